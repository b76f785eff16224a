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

/// Terms of a sum of a matrix product or an attention.
int64_t termsOf(const Graph &graph, const Node &node) {
  auto extent = [&](size_t operand, size_t fromEnd) -> int64_t {
    if (node.inputs[operand].isLiteral())
      return 0;
    const std::vector<int64_t> &s = graph.type(node.inputs[operand].value).shape;
    return s.size() < fromEnd ? 0 : s[s.size() - fromEnd];
  };
  switch (opInfo(node.op).cls) {
  case OpClass::Matrix: return extent(0, node.attrs.transposeA ? 2 : 1);
  case OpClass::Attention: return std::max(extent(1, 1), extent(1, 2)); // of scores, and of weights
  default: return 0;
  }
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

struct Element {
  double got = 0, kept = 0, rounded = 0;
  int64_t steps = 0; ///< to the nearer reference value
};

/// By how much an element of a float type uses up its tolerance: 0 equal, up to 1 within. `moved`: how far nudges move it.
double strain(const Element &e, double relative, double floor, double moved, int64_t freeSteps) {
  if (std::isnan(e.kept) != std::isnan(e.rounded)) { // either may come out, and so may what is between
    if (std::isnan(e.got))
      return 0;
  } else if (std::isnan(e.kept) || std::isnan(e.got)) {
    return std::isnan(e.kept) && std::isnan(e.got) ? 0 : kNever;
  }
  if (e.got == e.kept || e.got == e.rounded)
    return 0;
  if (std::isnan(e.got))
    return kNever;
  double best = kNever;
  if (e.steps <= freeSteps)
    best = static_cast<double>(e.steps) / static_cast<double>(freeSteps);
  double spread = std::isfinite(e.kept) && std::isfinite(e.rounded) ? std::fabs(e.kept - e.rounded) : 0;
  for (double wanted : {e.kept, e.rounded}) {
    if (!std::isfinite(wanted) || !std::isfinite(e.got))
      continue;
    double allowed = relative * std::fabs(wanted) + floor + spread + moved;
    if (allowed > 0)
      best = std::min(best, std::fabs(e.got - wanted) / allowed);
  }
  return best;
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
    all.products += opInfo(node.op).cls == OpClass::Matrix ? 1 : opInfo(node.op).cls == OpClass::Attention ? 2 : 0;
    all.terms = std::max(all.terms, termsOf(graph, node));
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
      floor = dtype == DType::F16 ? 0x1p-12 : 0x1p-9;
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
    c.rule += " or " + number(floor) + " of the root mean square" +
              (tolerance.nudged ? ", more where errors of rounding grow" : "");
  } else {
    // What 16-bit values lead to may be a step beside by their own roundings: a code of a quantised one, where it is large, often.
    if (tolerance.output.narrow)
      share = tolerance.output.step > 0 ? 8 : 100;
    c.rule = "equal but for 1 in " + std::string(share == 1000 ? "1,000" : std::to_string(share)) + " one step off";
  }
  if (floor > 0) { // in units of the output's root mean square
    double sum = 0;
    int64_t finite = 0;
    for (int64_t i = 0; i < c.elements; ++i) {
      double v = loadElement(kept, dtype, i);
      if (std::isfinite(v)) {
        sum += v * v;
        ++finite;
      }
    }
    floor *= finite ? std::sqrt(sum / static_cast<double>(finite)) : 0;
  }

  const bool isNudged = (real || isF8(dtype)) && loose && tolerance.nudged && tolerance.relative < 0;
  auto movedBy = [&](int64_t i) {
    const double d = std::fabs(loadElement(tolerance.nudged, dtype, i) - loadElement(rounded, dtype, i));
    return std::isfinite(d) ? d : 0;
  };
  double movedAll = 0;
  for (int64_t i = 0; isNudged && i < c.elements; ++i)
    movedAll += movedBy(i) * movedBy(i);
  movedAll = std::sqrt(movedAll / static_cast<double>(std::max<int64_t>(1, c.elements)));

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

    double used;
    if (real || tolerance.relative >= 0) {
      used = strain(e, relative, floor, isNudged ? std::max(movedBy(i), movedAll) : 0, freeSteps);
    } else if (!loose || std::isnan(e.got) || std::isnan(wanted)) {
      used = kNever;
    } else {
      // Between the two reference values, or a step beside one of them.
      bool between = g >= std::min(k, r) && g <= std::max(k, r);
      used = between ? 0.5 : e.steps <= 1 ? 1 : kNever;
      oneStep += !between && e.steps <= 1;
      if (used > 1 && isNudged) // codes of sums that nearly cancel
        used = strain(e, 2 * stepOf(dtype), 0, 4 * std::max(movedBy(i), movedAll), 0);
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
  c.within = c.beyond == 0;
  if (c.worst >= 0)
    c.worstPlace = place(type, c.worst);
  return c;
}

} // namespace rl::cli
