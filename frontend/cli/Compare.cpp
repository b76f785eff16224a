// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Comparing results.
#include "frontend/cli/Compare.h"
#include "frontend/cli/Cli.h"
#include "ir/interp/Convert.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace rl::cli {
namespace {

/// Is a node's result exact, or correctly rounded, whatever the order of its steps?
bool isExact(const Graph &graph, const Node &node) {
  bool integers = true;
  for (const Operand &o : node.inputs)
    integers &= !o.isLiteral() ? !isFloat(graph.type(o.value).dtype) : o.literal.kind != Scalar::Float;
  for (ValueId v : node.outputs)
    integers &= !isFloat(graph.type(v).dtype);
  if (integers)
    return true;
  switch (opInfo(node.op).cls) {
  case OpClass::Shape:
  case OpClass::Creation:
  case OpClass::Ternary:
  case OpClass::Indexing: return true;
  case OpClass::Reduction:
    return node.op == OpKind::Amax || node.op == OpKind::Amin || node.op == OpKind::ArgMax ||
           node.op == OpKind::ArgMin || node.op == OpKind::Any || node.op == OpKind::All;
  case OpClass::Binary:
    return node.op != OpKind::Pow && node.op != OpKind::Atan2 && node.op != OpKind::Div &&
           node.op != OpKind::FloorDivide && node.op != OpKind::Remainder && node.op != OpKind::Fmod;
  case OpClass::Unary:
    switch (node.op) {
    case OpKind::Abs:
    case OpKind::Neg:
    case OpKind::Sign:
    case OpKind::Square:
    case OpKind::Relu:
    case OpKind::Floor:
    case OpKind::Ceil:
    case OpKind::Round:
    case OpKind::Trunc:
    case OpKind::IsNan:
    case OpKind::IsInf:
    case OpKind::IsFinite:
    case OpKind::LogicalNot:
    case OpKind::BitwiseNot:
    case OpKind::Cast:
    case OpKind::Clamp: return true;
    default: return false;
    }
  default: return false;
  }
}

/// Of a code of the type to the next, relative to the values that it is about; 0 for types that are not quantised to.
double stepOf(DType t) { return t == DType::F8E5M2 ? 0x1p-3 : t == DType::F8E4M3 || t == DType::I8 ? 0x1p-4 : 0; }

bool isProduct(const Node &node) { return opInfo(node.op).cls == OpClass::Matrix || node.op == OpKind::ScaledMatmul; }

/// Terms of a sum of a matrix product or an attention.
int64_t termsOf(const Graph &graph, const Node &node) {
  auto extent = [&](size_t operand, size_t fromEnd) -> int64_t {
    if (node.inputs[operand].isLiteral())
      return 0;
    const std::vector<int64_t> &s = graph.type(node.inputs[operand].value).shape;
    return s.size() < fromEnd ? 0 : s[s.size() - fromEnd];
  };
  if (isProduct(node))
    return extent(0, node.attrs.transposeA ? 2 : 1);
  if (opInfo(node.op).cls == OpClass::Attention)
    return std::max(extent(1, 1), extent(1, 2)); // of scores, and of weights
  return 0;
}

bool is16(DType t) { return t == DType::F16 || t == DType::BF16; }

/// The bits as a number that rises with the value, steps of one between neighbours; both zeros are 0.
int64_t ordered(const void *data, DType dtype, int64_t i) {
  int64_t bits = 0, sign = 0;
  switch (dtype) {
  case DType::F32: {
    uint32_t b;
    std::memcpy(&b, static_cast<const char *>(data) + i * 4, 4);
    bits = b & 0x7fffffff, sign = b >> 31;
    break;
  }
  case DType::F16:
  case DType::BF16: {
    uint16_t b;
    std::memcpy(&b, static_cast<const char *>(data) + i * 2, 2);
    bits = b & 0x7fff, sign = b >> 15;
    break;
  }
  case DType::F8E4M3:
  case DType::F8E5M2: {
    uint8_t b = static_cast<const uint8_t *>(data)[i];
    bits = b & 0x7f, sign = b >> 7;
    break;
  }
  case DType::F8E8M0: return static_cast<const uint8_t *>(data)[i];
  default: return loadInteger(data, dtype, i);
  }
  return sign ? -bits : bits;
}

int64_t stepsBetween(int64_t a, int64_t b) { // saturates: i64 values may lie 2^64 apart
  uint64_t steps =
      a > b ? static_cast<uint64_t>(a) - static_cast<uint64_t>(b) : static_cast<uint64_t>(b) - static_cast<uint64_t>(a);
  return static_cast<int64_t>(std::min<uint64_t>(steps, INT64_MAX));
}

std::string place(const TensorType &type, int64_t index) {
  std::vector<int64_t> at(type.shape.size());
  for (size_t d = at.size(); d-- > 0;) {
    at[d] = index % type.shape[d];
    index /= type.shape[d];
  }
  return str(at);
}

constexpr double kNever = std::numeric_limits<double>::infinity();

/// The number from which a value rounds to infinity in the type; infinity where the type has none.
double overflowOf(DType t) {
  switch (t) {
  case DType::F16: return 65520;
  case DType::BF16: return 0x1.ffp127;
  case DType::F32: return 0x1.ffffffp127;
  default: return kNever;
  }
}

struct Element {
  double got = 0, kept = 0, rounded = 0;
  int64_t steps = 0; ///< to the nearer reference value
};

/// What the draws of a nudged run make of an element.
struct Draws {
  double moved = 0; ///< the farthest of those that are finite
  bool nan = false, above = false, below = false;
  double least = kNever, most = -kNever; ///< of those that are finite
};

struct Allowance {
  double relative = 0, floor = 0;
  int64_t freeSteps = 0;
  double overflow = kNever;
};

/// By how much an element of a float type uses up its tolerance: 0 equal, up to 1 within.
double strain(const Element &e, const Allowance &a, const Draws &draws) {
  if (e.got == e.kept || e.got == e.rounded)
    return 0;
  const bool both = std::isnan(e.kept) && std::isnan(e.rounded);
  // Something overflowed on the way to one and not to the other.
  const bool unsettled = std::isnan(e.kept) != std::isnan(e.rounded) || (std::isinf(e.kept) && e.rounded == 0) ||
                         (std::isinf(e.rounded) && e.kept == 0);
  if (std::isnan(e.got))
    return both ? 0 : unsettled || draws.nan ? 0.5 : kNever;
  if (std::isinf(e.got) && (draws.nan || (e.got > 0 ? draws.above : draws.below)))
    return 0.5;
  if (unsettled && (std::isinf(e.got) || e.got == 0))
    return 0.5;
  double best = kNever;
  if (e.steps <= a.freeSteps && !both)
    best = static_cast<double>(e.steps) / static_cast<double>(a.freeSteps);
  const double spread = std::isfinite(e.kept) && std::isfinite(e.rounded) ? std::fabs(e.kept - e.rounded) : 0;
  // What is infinite stands for the number from which there is no other.
  auto near = [&](double v) { return std::isinf(v) ? std::copysign(a.overflow, v) : v; };
  const double got = near(e.got);
  auto beside = [&](double v, double more) {
    const double wanted = near(v), allowed = std::max(a.relative * std::fabs(wanted) + a.floor, draws.moved) + more;
    if (std::isfinite(got) && std::isfinite(wanted) && allowed > 0)
      best = std::min(best, std::fabs(got - wanted) / allowed);
  };
  for (double v : {e.kept, e.rounded})
    if (!std::isnan(v))
      beside(v, spread);
  if (draws.least <= draws.most && !(std::isfinite(e.kept) && std::isfinite(e.rounded)))
    beside(std::clamp(got, draws.least, draws.most), 0);
  return best;
}

/// How far half of the elements are moved by draws: those of a row of some length, and relative to themselves those of a tensor.
/// A draw may leave an element where it was that others of its kind are moved from.
struct Typical {
  int64_t row = 1;
  std::vector<double> ofRow;
  double relative = 0;
};

double median(std::vector<double> of) {
  if (of.empty())
    return 0;
  const auto half = of.begin() + static_cast<std::ptrdiff_t>(of.size() / 2);
  std::nth_element(of.begin(), half, of.end());
  return *half;
}

Typical typicalOf(const TensorType &type, const void *rounded, const std::vector<double> &moved) {
  Typical t;
  const auto n = static_cast<int64_t>(moved.size());
  const bool isLong = !type.shape.empty() && type.shape.back() >= 32;
  t.row = std::max<int64_t>(1, isLong ? type.shape.back() : n);
  for (int64_t start = 0; start < n; start += t.row)
    t.ofRow.push_back(median({moved.begin() + start, moved.begin() + start + t.row}));
  std::vector<double> relative;
  for (int64_t i = 0; i < n; ++i)
    if (const double v = std::fabs(loadElement(rounded, type.dtype, i)); v > 0 && std::isfinite(v))
      relative.push_back(moved[static_cast<size_t>(i)] / v);
  t.relative = median(std::move(relative));
  return t;
}

/// What half of the values that are not 0 have in common of an error: the median of (value - reference) / reference, 0 for few. Roundings go
/// either way; a wrong factor does not, however little it is beside what roundings may add up to in an element.
double commonError(int64_t n, const std::function<double(int64_t)> &value,
                   const std::function<double(int64_t)> &reference) {
  constexpr size_t kFew = 64;
  const int64_t step = n >> 18 | 1; // of many elements a part; odd, so that it meets all columns
  std::vector<double> errors;
  for (int64_t i = 0; i < n; i += step)
    if (const double w = reference(i), e = (value(i) - w) / w; w != 0 && std::isfinite(e))
      errors.push_back(e);
  return errors.size() < kFew ? 0 : median(std::move(errors));
}

/// How large each `row` elements are, of those that are finite: their root mean square. `typical`: no more than twice what half of them
/// are below, so that a few large ones do not speak for small ones.
std::vector<double> sizesOfRows(const TensorType &type, const void *data, int64_t row, bool typical) {
  const int64_t n = type.elements();
  std::vector<double> sizes, magnitudes;
  for (int64_t start = 0; start < n; start += row) {
    double sum = 0;
    magnitudes.clear();
    for (int64_t i = start; i < start + row; ++i)
      if (const double v = loadElement(data, type.dtype, i); std::isfinite(v)) {
        sum += v * v;
        magnitudes.push_back(std::fabs(v));
      }
    double size = magnitudes.empty() ? 0 : std::sqrt(sum / static_cast<double>(magnitudes.size()));
    if (typical && !magnitudes.empty()) {
      const auto half = magnitudes.begin() + static_cast<std::ptrdiff_t>((magnitudes.size() - 1) / 2);
      std::nth_element(magnitudes.begin(), half, magnitudes.end());
      size = std::min(size, 2 * *half);
    }
    sizes.push_back(size);
  }
  return sizes;
}

} // namespace

std::vector<Exactness> exactness(const Graph &graph) {
  std::vector<Exactness> of(graph.values.size());
  std::vector<char> isOutput(graph.values.size());
  for (const Node &node : graph.nodes) {
    Exactness all;
    all.inexact = !isExact(graph, node);
    for (const Operand &o : node.inputs) {
      if (o.isLiteral())
        continue;
      all.inexact |= of[o.value].inexact;
      all.products = std::max(all.products, of[o.value].products);
      all.f8Sums |= of[o.value].f8Sums;
      all.fastSums |= of[o.value].fastSums;
      all.terms = std::max(all.terms, of[o.value].terms);
      // The weights of an attention are stored in its type.
      bool between = graph.values[o.value].kind == Value::Result || opInfo(node.op).cls == OpClass::Attention;
      DType dtype = graph.type(o.value).dtype;
      all.narrow |= of[o.value].narrow || (between && is16(dtype));
      all.bf16 |= of[o.value].bf16 || (between && dtype == DType::BF16);
      all.step = std::max(all.step, of[o.value].step);
      all.pinned = std::max(all.pinned, of[o.value].pinned);
    }
    // Sums in another order may lie on the other side of what the pinned type rounds at.
    if (node.pin && is16(*node.pin) && all.inexact)
      all.pinned = std::max(all.pinned, *node.pin == DType::F16 ? 0x1p-10 : 0x1p-7);
    if ((node.op == OpKind::Quantize || node.op == OpKind::FakeQuantize || node.op == OpKind::Cast) &&
        !node.inputs[0].isLiteral() && (of[node.inputs[0].value].inexact || all.narrow))
      all.step = std::max(all.step, stepOf(node.attrs.dtype));
    all.products += isProduct(node) ? 1 : opInfo(node.op).cls == OpClass::Attention ? 2 : 0;
    all.terms = std::max(all.terms, termsOf(graph, node));
    if (termsOf(graph, node) > 0 && !node.inputs[0].isLiteral() && isF8(graph.type(node.inputs[0].value).dtype)) {
      all.f8Sums = true;
      all.fastSums |= node.attrs.fastAccumulate;
    }
    for (ValueId v : node.outputs)
      of[v] = all;
  }
  std::vector<Exactness> out;
  for (ValueId v : graph.outputs)
    out.push_back(of[v]);
  return out;
}

void ErrorSum::add(const TensorType &type, const void *got, const void *wanted) {
  for (int64_t i = 0, n = type.elements(); i < n; ++i) {
    const double g = loadElement(got, type.dtype, i), w = loadElement(wanted, type.dtype, i);
    if (!std::isfinite(w) || !std::isfinite(g)) {
      if (g == w || (std::isnan(g) && std::isnan(w)))
        ++alike;
      else
        difference = std::numeric_limits<double>::infinity();
      continue;
    }
    difference += (g - w) * (g - w);
    size += w * w;
  }
}

double ErrorSum::relative() const {
  return difference == 0 ? 0 : size == 0 ? std::numeric_limits<double>::infinity() : std::sqrt(difference / size);
}

Comparison compare(const TensorType &type, const void *got, const void *kept, const void *rounded,
                   const Tolerance &tolerance) {
  Comparison c;
  const DType dtype = type.dtype;
  c.elements = type.elements();
  const bool real = isArithmeticFloat(dtype);
  const bool loose = tolerance.output.inexact || (tolerance.output.narrow && !tolerance.strict);

  double relative = 0, floor = 0;
  int64_t freeSteps = 0, share = 1000;
  if (tolerance.relative >= 0) {
    relative = tolerance.relative;
    floor = real ? tolerance.relative * 0.1 : 0;
    c.rule = number(relative) + " relative";
  } else if (!loose) {
    c.rule = "equal";
  } else if (real) {
    // One code is up to two steps from the next, relative to itself.
    relative = std::max({dtype == DType::F32 ? 1e-5 : 0, tolerance.output.pinned, 2 * tolerance.output.step});
    freeSteps = dtype == DType::F32 ? 0 : 2;
    floor = 1e-6;
    if (tolerance.output.narrow && (tolerance.strict || tolerance.severalKernels)) {
      floor = tolerance.output.bf16 || dtype == DType::BF16 ? 0x1p-9 : 0x1p-12;
      // A value of 16 bits may be a step beside, and so may what is multiplied of it.
      if (dtype == DType::F32)
        relative = std::max(relative, tolerance.output.bf16 ? 0x1p-8 : 0x1p-11);
    } else if (tolerance.output.bf16) {
      floor = 0x1p-11;
    }
    floor = std::max(floor, 0x1p-29 * static_cast<double>(tolerance.output.terms));
    if (int products = tolerance.output.products)
      floor *= 2 + 2 * products;
    floor = std::max(floor, tolerance.output.step);
    // What nearly cancels is many places off, and little beside the others.
    c.rule = dtype == DType::F32 ? (relative > 1e-5 ? number(relative) : "1e-05") + " relative" : "2 ulp";
    c.rule += " or " + number(floor) + " of the row's root mean square" +
              (tolerance.nudged.empty() ? "" : ", more where errors of rounding grow");
  } else {
    // What 16-bit values lead to may be a step beside by their own roundings: a code of a quantised one, where it is large, often.
    if (tolerance.output.narrow)
      share = tolerance.output.step > 0 ? 8 : 100;
    c.rule = "equal but for 1 in " + std::string(share == 1000 ? "1,000" : std::to_string(share)) + " one step off";
  }
  // Rows may be of other sizes than each other; a tolerance that is given is of all of them.
  const int64_t row = type.shape.empty() || tolerance.relative >= 0 ? c.elements : type.shape.back();
  const std::vector<double> sizes =
      floor > 0 ? sizesOfRows(type, kept, row, tolerance.relative < 0 && tolerance.output.step == 0)
                : std::vector<double>();

  const bool isNudged = loose && !tolerance.nudged.empty() && tolerance.relative < 0;
  auto drawsOf = [&](int64_t i) {
    Draws d;
    // Where one of the reference values overflowed the draws that keep f32 are about the other.
    const double from =
        std::isfinite(loadElement(rounded, dtype, i)) ? loadElement(rounded, dtype, i) : loadElement(kept, dtype, i);
    for (size_t k = 0; isNudged && k < tolerance.nudged.size(); ++k) {
      const double v = loadElement(tolerance.nudged[k], dtype, i), by = std::fabs(v - from);
      d.nan |= std::isnan(v);
      d.above |= std::isinf(v) && v > 0;
      d.below |= std::isinf(v) && v < 0;
      if (!std::isfinite(v))
        continue;
      d.least = std::min(d.least, v), d.most = std::max(d.most, v);
      d.moved = std::isfinite(by) ? std::max(d.moved, by) : d.moved;
    }
    return d;
  };
  Typical typical;
  if (isNudged) {
    std::vector<double> moved;
    for (int64_t i = 0; i < c.elements; ++i)
      moved.push_back(drawsOf(i).moved);
    typical = typicalOf(type, rounded, moved);
  }
  // Of thousands of elements some have roundings to 16 bits add up more than a few draws of them show. Those of f32 are drawn several times
  // as large as they are.
  const double often = tolerance.output.narrow ? 1.5 : 1;

  double worst = 0;
  int64_t oneStep = 0;
  for (int64_t i = 0; i < c.elements; ++i) {
    Element e{loadElement(got, dtype, i), loadElement(kept, dtype, i), loadElement(rounded, dtype, i), 0};
    if (std::isnan(e.got) && std::isnan(e.kept) && std::isnan(e.rounded)) {
      ++c.nans;
      continue;
    }
    const int64_t g = ordered(got, dtype, i), k = ordered(kept, dtype, i), r = ordered(rounded, dtype, i);
    if (g == k || g == r)
      continue;
    ++c.different;
    const bool nearer = stepsBetween(g, k) <= stepsBetween(g, r);
    e.steps = std::min(stepsBetween(g, k), stepsBetween(g, r));
    const double wanted = nearer ? e.kept : e.rounded;
    const double absolute = std::fabs(e.got - wanted);
    if (std::isfinite(absolute)) {
      c.maxAbsolute = std::max(c.maxAbsolute, absolute);
      if (wanted != 0)
        c.maxRelative = std::max(c.maxRelative, absolute / std::fabs(wanted));
    }
    if (!std::isnan(e.got) && !std::isnan(wanted))
      c.maxSteps = std::max(c.maxSteps, e.steps);

    Draws draws = drawsOf(i);
    const double own = draws.moved;
    if (isNudged)
      draws.moved = often * std::max({own, typical.ofRow[static_cast<size_t>(i / typical.row)],
                                      std::isfinite(e.rounded) ? typical.relative * std::fabs(e.rounded) : 0});
    Allowance allowance{relative, floor > 0 ? floor * sizes[static_cast<size_t>(i / row)] : 0, freeSteps,
                        overflowOf(dtype)};
    if (loose && dtype == DType::F32 && floor > 0)
      allowance.floor += 0x1p-126; // functions may flush what is smaller
    double used;
    if (real || tolerance.relative >= 0) {
      used = strain(e, allowance, draws);
    } else if (std::isnan(e.got) || std::isnan(wanted)) {
      used = loose && std::isnan(e.got) && (std::isnan(e.kept) || std::isnan(e.rounded) || draws.nan) ? 0.5 : kNever;
    } else if (!loose) {
      used = kNever;
    } else {
      // Between the reference values, or a step beside one of them.
      bool between = g >= std::min(k, r) && g <= std::max(k, r);
      used = between ? 0.5 : e.steps <= 1 ? 1 : kNever;
      oneStep += !between && e.steps <= 1;
      if (used > 1 && isNudged && own > 0)
        used =
            isF8(dtype) // codes of sums that nearly cancel
                ? strain(e, {2 * stepOf(dtype), 0, 0, kNever}, {4 * draws.moved, draws.nan, draws.above, draws.below})
                : e.got >= std::min(draws.least, e.rounded) && e.got <= std::max(draws.most, e.rounded) ? 0.5 : kNever;
    }
    if (used > 1)
      ++c.beyond;
    if (used > worst || c.worst < 0) {
      worst = used;
      c.worst = i;
      c.worstGot = e.got;
      c.worstWanted = wanted;
    }
  }
  if (oneStep > std::max<int64_t>(1, c.elements / share))
    c.beyond += oneStep;
  if (c.beyond == 0 && real && loose && tolerance.relative < 0 && (tolerance.output.narrow || is16(dtype)) &&
      tolerance.output.step == 0 && !tolerance.output.fastSums) {
    const auto at = [&](const void *data) { return [=](int64_t i) { return loadElement(data, dtype, i); }; };
    const bool coarse = tolerance.output.bf16 || dtype == DType::BF16 || tolerance.output.f8Sums;
    double allowed = (coarse ? 0x1p-9 : 0x1p-12) + std::fabs(commonError(c.elements, at(kept), at(rounded)));
    const double common = std::min(std::fabs(commonError(c.elements, at(got), at(kept))),
                                   std::fabs(commonError(c.elements, at(got), at(rounded))));
    for (size_t k = 0; k < tolerance.nudged.size(); ++k)
      if (k % 4 != 2) // whose errors are alike
        allowed = std::max(allowed, 4 * std::fabs(commonError(c.elements, at(tolerance.nudged[k]), at(rounded))));
    if (common > allowed) {
      c.beyond = (c.elements + 1) / 2;
      c.rule += ", half of all no more than " + number(allowed) + " of themselves off in one direction";
    }
  }
  c.within = c.beyond == 0;
  if (c.worst >= 0)
    c.worstPlace = place(type, c.worst);
  return c;
}

References::References(const Graph &of, Run run) : graph(of), run(std::move(run)) {
  for (ValueId v : of.outputs) {
    extremeOf.push_back(0);
    const NodeId n = of.values[v].kind == Value::Result ? of.values[v].node : kNone;
    if (n == kNone || (of.nodes[n].op != OpKind::ArgMax && of.nodes[n].op != OpKind::ArgMin) ||
        of.nodes[n].inputs[0].isLiteral() || !isArithmeticFloat(of.type(of.nodes[n].inputs[0].value).dtype))
      continue;
    extremeOf.back() = graph.outputs.size();
    graph.outputs.push_back(of.nodes[n].inputs[0].value);
  }
  exact = exactness(graph);
}

void References::judgeExtremes(size_t output, const int64_t *got, Comparison &c) const {
  const size_t operand = extremeOf[output];
  const TensorType &type = graph.type(graph.outputs[operand]);
  const int64_t dim = graph.nodes[graph.values[graph.outputs[output]].node].attrs.dim,
                extent = type.rank() == 0 ? 1 : type.shape[static_cast<size_t>(dim)];
  int64_t inner = 1;
  for (size_t d = static_cast<size_t>(dim) + 1; d < type.shape.size(); ++d)
    inner *= type.shape[d];
  const double relative = type.dtype == DType::F32 ? 1e-5 : type.dtype == DType::F16 ? 0x1p-9 : 0x1p-6;
  std::vector<const std::vector<HostTensor> *> runs{&rounded};
  if (!kept.empty())
    runs.push_back(&kept);
  for (const std::vector<HostTensor> &draw : nudged)
    runs.push_back(&draw);
  auto valueIn = [&](const std::vector<HostTensor> &in, int64_t e, int64_t at) {
    return loadElement(in[operand].data.data(), type.dtype, (e / inner * extent + at) * inner + e % inner);
  };
  auto moved = [&](int64_t e, int64_t at) {
    double most = 0;
    for (const auto *in : runs)
      if (const double by = std::fabs(valueIn(*in, e, at) - valueIn(rounded, e, at)); std::isfinite(by))
        most = std::max(most, by);
    return most;
  };
  auto isExtreme = [&](int64_t e, const std::vector<HostTensor> &in) {
    const int64_t at = loadInteger(in[output].data.data(), DType::I64, e);
    const double best = valueIn(in, e, at), g = valueIn(in, e, got[e]);
    return g == best || (std::isnan(g) && std::isnan(best)) ||
           std::fabs(g - best) <= relative * std::fabs(best) + moved(e, at) + moved(e, got[e]);
  };
  c.beyond = 0;
  for (int64_t e = 0; e < c.elements; ++e) {
    if (got[e] >= 0 && got[e] < extent &&
        std::any_of(runs.begin(), runs.end(), [&](const auto *in) { return isExtreme(e, *in); }))
      continue;
    if (c.beyond++ > 0)
      continue;
    c.worst = e;
    c.worstPlace = place(rounded[output].type, e);
    c.worstGot = static_cast<double>(got[e]);
    c.worstWanted = static_cast<double>(loadInteger(rounded[output].data.data(), DType::I64, e));
  }
  c.within = c.beyond == 0;
  c.rule = "places of values within " + number(relative) + " of the extreme one";
}

Result<References> References::make(const Graph &graph, bool fused, Run run) {
  References r(graph, std::move(run));
  RL_ASSIGN(r.rounded, r.run(r.graph, Intermediates::Rounded, 0));
  const bool narrow = std::any_of(graph.values.begin(), graph.values.end(),
                                  [](const Value &v) { return v.kind == Value::Result && is16(v.type.dtype); });
  if (fused && !graph.strict && narrow) {
    RL_ASSIGN(r.kept, r.run(r.graph, Intermediates::KeepF32, 0));
  }
  return r;
}

Result<Comparison> References::compare(size_t output, const void *got, double relative, bool severalKernels) {
  const std::byte *wanted = rounded[output].data.data(), *other = kept.empty() ? wanted : kept[output].data.data();
  Tolerance tolerance{relative, graph.strict, severalKernels, exact[output]};
  // An element that rounding moves one way or the other shows it in every other draw. Whole tensors that none explains are wrong.
  constexpr size_t kMost = 16, kIdle = 6, kFew = 4;
  int64_t beyond = std::numeric_limits<int64_t>::max();
  size_t idle = 0;
  for (size_t draw = 0;; ++draw) {
    Comparison c = cli::compare(rounded[output].type, got, other, wanted, tolerance);
    if (c.different && extremeOf[output] && exact[output].inexact && relative < 0)
      judgeExtremes(output, static_cast<const int64_t *>(got), c);
    idle = c.beyond < beyond ? 0 : idle + 1;
    beyond = c.beyond;
    if (c.within || c.rule == "equal" || relative >= 0 || draw == kMost || idle == kIdle ||
        (draw >= kFew && beyond > 16 + c.elements / 10))
      return c;
    if (draw == nudged.size()) {
      RL_ASSIGN(std::vector<HostTensor> next, run(graph, Intermediates::Nudged, draw));
      nudged.push_back(std::move(next));
    }
    tolerance.nudged.push_back(nudged[draw][output].data.data());
  }
}

} // namespace rl::cli
