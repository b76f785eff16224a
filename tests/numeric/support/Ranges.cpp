// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bounds on what a fused graph may give. An element is a range lo .. hi, with or without NaN. A range of one value goes through
// the interpreter's own arithmetic. For wider ones the op is evaluated at the ends of its operands' ranges, at their value
// nearest to zero and at NaN where that is possible: for ops that are monotone in each operand on either side of zero that
// is their hull. The few ops that are not have their own rule, or give up (anything is allowed). Rounding to 16 bits may
// happen at any op or not at all: both are inside.
#include "ir/interp/Convert.h"
#include "tests/numeric/support/Evaluate.h"
#include "tests/numeric/support/RandomGraph.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

namespace rl::numeric {

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::numeric_limits<float>::quiet_NaN();

struct Ranged {
  HostTensor lo, hi;        ///< floats as f32, others in their own type
  std::vector<uint8_t> nan; ///< NaN is possible; certain where lo is NaN
};

float &f32At(HostTensor &t, int64_t i) { return reinterpret_cast<float *>(t.data.data())[i]; }
float f32At(const HostTensor &t, int64_t i) { return reinterpret_cast<const float *>(t.data.data())[i]; }
uint32_t bitsOf(float v) { return std::bit_cast<uint32_t>(v); }

/// Floats as f32.
HostTensor carried(const HostTensor &t) {
  if (!isFloat(t.type.dtype) || t.type.dtype == DType::F32)
    return t;
  HostTensor out{{DType::F32, t.type.shape}, {}};
  out.data.resize(static_cast<size_t>(out.type.bytes()));
  for (int64_t i = 0; i < t.type.elements(); ++i)
    f32At(out, i) = static_cast<float>(loadElement(t.data.data(), t.type.dtype, i));
  return out;
}

/// -0 before +0.
bool before(float a, float b) { return a < b || (a == b && std::signbit(a) && !std::signbit(b)); }

struct Bounds {
  float lo = kNan, hi = kNan;
  bool nan = false;
  void add(float v) {
    if (std::isnan(v)) {
      nan = true;
      return;
    }
    lo = std::isnan(lo) || before(v, lo) ? v : lo;
    hi = std::isnan(hi) || before(hi, v) ? v : hi;
  }
  void anything() { lo = -kInf, hi = kInf, nan = true; }
};

bool isPoint(const Ranged &r, int64_t i) {
  if (isFloat(r.lo.type.dtype)) {
    float lo = f32At(r.lo, i);
    return std::isnan(lo) || (!r.nan[static_cast<size_t>(i)] && bitsOf(lo) == bitsOf(f32At(r.hi, i)));
  }
  return loadInteger(r.lo.data.data(), r.lo.type.dtype, i) == loadInteger(r.hi.data.data(), r.hi.type.dtype, i);
}

bool allPoints(const Ranged &r) {
  for (int64_t i = 0; i < r.lo.type.elements(); ++i)
    if (!isPoint(r, i))
      return false;
  return true;
}

/// The value nearest to zero of each range, and NaN where possible (else lo).
HostTensor nearestToZero(const Ranged &r) {
  HostTensor t = r.lo;
  for (int64_t i = 0; i < t.type.elements(); ++i) {
    if (isFloat(t.type.dtype)) {
      float lo = f32At(r.lo, i), hi = f32At(r.hi, i);
      f32At(t, i) = hi < 0 ? hi : lo <= 0 && hi >= 0 && bitsOf(lo) != bitsOf(hi) ? 0.0f : lo;
    } else {
      int64_t lo = loadInteger(r.lo.data.data(), t.type.dtype, i), hi = loadInteger(r.hi.data.data(), t.type.dtype, i);
      storeInteger(t.data.data(), t.type.dtype, i, hi < 0 ? hi : lo > 0 ? lo : 0);
    }
  }
  return t;
}
bool anyNan(const Ranged &r) { return std::find(r.nan.begin(), r.nan.end(), 1) != r.nan.end(); }
HostTensor nanWherePossible(const Ranged &r) {
  HostTensor t = r.lo;
  for (int64_t i = 0; i < t.type.elements(); ++i)
    if (r.nan[static_cast<size_t>(i)])
      f32At(t, i) = kNan;
  return t;
}

class Evaluator {
public:
  explicit Evaluator(const Graph &graph) : graph(graph), held(graph.values.size()) {}
  Result<std::vector<Expected>> run(const Case &data);

private:
  void give(ValueId v, const HostTensor &t) {
    held[v] = {carried(t), carried(t), std::vector<uint8_t>(static_cast<size_t>(t.type.elements()), 0)};
    if (isFloat(t.type.dtype))
      for (int64_t i = 0; i < t.type.elements(); ++i)
        held[v].nan[static_cast<size_t>(i)] = std::isnan(f32At(held[v].lo, i));
  }
  Status node(NodeId);
  Status moved(NodeId, Ranged &out);
  Status computed(NodeId, Ranged &out);
  Result<HostTensor> evaluate(NodeId, std::vector<const HostTensor *>);
  void special(const Node &, std::vector<Bounds> &, const std::vector<int64_t> &shape, DType result);
  void widen(const Node &, DType type, Bounds &, bool farArgument) const;

  const Graph &graph;
  std::vector<Ranged> held;
};

Result<HostTensor> Evaluator::evaluate(NodeId id, std::vector<const HostTensor *> operands) {
  // Creation in f32: what the kernel keeps of a value that the type does not hold. f8 has no such freedom.
  const Node &n = graph.nodes[id];
  if ((n.op == OpKind::Full || n.op == OpKind::Iota) && isArithmeticFloat(n.attrs.dtype) &&
      n.attrs.dtype != DType::F32) {
    Graph copy;
    copy.values = graph.values;
    copy.nodes = {n};
    copy.nodes[0].attrs.dtype = DType::F32;
    return evaluateNode(copy, 0, operands);
  }
  RL_ASSIGN(HostTensor t, evaluateNode(graph, id, operands));
  return carried(t);
}

/// Layout and indexing ops move both ends and the possibility of NaN alike.
Status Evaluator::moved(NodeId id, Ranged &out) {
  const Node &n = graph.nodes[id];
  std::vector<const HostTensor *> lo, hi, nan;
  std::vector<HostTensor> masks;
  masks.reserve(n.inputs.size());
  for (const Operand &o : n.inputs) {
    const Ranged &r = held[o.value];
    lo.push_back(&r.lo);
    hi.push_back(&r.hi);
    HostTensor mask{{DType::U8, r.lo.type.shape}, {}};
    for (uint8_t b : r.nan)
      mask.data.push_back(std::byte{b});
    masks.push_back(std::move(mask));
    bool index = opInfo(n.op).cls == OpClass::Indexing && !nan.empty();
    nan.push_back(index ? &r.lo : &masks.back());
  }
  RL_ASSIGN(out.lo, evaluate(id, lo));
  RL_ASSIGN(out.hi, evaluate(id, hi));
  if (opInfo(n.op).cls == OpClass::Creation) {
    out.nan.assign(static_cast<size_t>(out.lo.type.elements()), 0);
    return {};
  }
  Graph copy;
  copy.values = graph.values;
  copy.nodes = {n};
  copy.nodes[0].attrs.value = {Scalar::Int, 0, 0};
  RL_ASSIGN(HostTensor mask, evaluateNode(copy, 0, nan));
  out.nan.clear();
  for (std::byte b : mask.data)
    out.nan.push_back(std::to_integer<uint8_t>(b));
  return {};
}

/// Where the operands of an element of the result are.
struct At {
  std::vector<int64_t> place;
};
int64_t broadcastPlace(int64_t i, const std::vector<int64_t> &shape, const std::vector<int64_t> &from) {
  int64_t place = 0, stride = 1;
  for (size_t k = 0; k < shape.size(); ++k) {
    size_t d = shape.size() - 1 - k;
    int64_t at = i % shape[d];
    i /= shape[d];
    if (k < from.size()) {
      int64_t extent = from[from.size() - 1 - k];
      place += extent == 1 ? 0 : at * stride;
      stride *= extent;
    }
  }
  return place;
}

Status Evaluator::computed(NodeId id, Ranged &out) {
  const Node &n = graph.nodes[id];
  const TensorType &type = graph.type(n.outputs[0]);
  // The corners of each operand.
  std::vector<std::vector<HostTensor>> corners;
  std::vector<std::vector<const HostTensor *>> choices{{}};
  bool points = true;
  corners.reserve(n.inputs.size());
  for (const Operand &o : n.inputs) {
    std::vector<HostTensor> own;
    if (!o.isLiteral()) {
      const Ranged &r = held[o.value];
      own.push_back(r.lo);
      if (!allPoints(r)) {
        points = false;
        own.push_back(r.hi);
        own.push_back(nearestToZero(r));
        if (isFloat(r.lo.type.dtype) && anyNan(r))
          own.push_back(nanWherePossible(r));
      }
    }
    corners.push_back(std::move(own));
    std::vector<std::vector<const HostTensor *>> next;
    for (const auto &c : choices) {
      if (o.isLiteral()) {
        next.push_back(c);
        next.back().push_back(nullptr);
      }
      for (const HostTensor &t : corners.back()) {
        next.push_back(c);
        next.back().push_back(&t);
      }
    }
    choices = std::move(next);
  }
  const bool floats = isFloat(type.dtype);
  const auto count = static_cast<size_t>(type.elements());
  std::vector<Bounds> bounds(floats ? count : 0);
  for (size_t c = 0; c < choices.size(); ++c) {
    RL_ASSIGN(HostTensor t, evaluate(id, choices[c]));
    if (c == 0)
      out.lo = out.hi = t;
    for (int64_t i = 0; i < type.elements(); ++i) {
      if (floats) {
        bounds[static_cast<size_t>(i)].add(f32At(t, i));
        continue;
      }
      int64_t v = loadInteger(t.data.data(), type.dtype, i);
      if (v < loadInteger(out.lo.data.data(), type.dtype, i))
        storeInteger(out.lo.data.data(), type.dtype, i, v);
      if (v > loadInteger(out.hi.data.data(), type.dtype, i))
        storeInteger(out.hi.data.data(), type.dtype, i, v);
    }
  }
  out.nan.assign(count, 0);
  using enum OpKind;
  for (int64_t i = 0; i < type.elements(); ++i) {
    bool wide = false, farArgument = false, hasZero[3] = {}, hasInf[3] = {};
    double lo[3] = {}, hi[3] = {};
    bool nanAt[3] = {};
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      if (n.inputs[k].isLiteral()) {
        lo[k] = hi[k] = static_cast<float>(n.inputs[k].literal.asDouble());
      } else {
        const Ranged &r = held[n.inputs[k].value];
        int64_t at = broadcastPlace(i, type.shape, r.lo.type.shape);
        wide |= !points && !isPoint(r, at);
        DType carrier = r.lo.type.dtype;
        lo[k] = loadElement(r.lo.data.data(), carrier, at);
        hi[k] = loadElement(r.hi.data.data(), carrier, at);
        nanAt[k] = r.nan[static_cast<size_t>(at)] != 0;
      }
      hasZero[k] = lo[k] <= 0 && hi[k] >= 0;
      hasInf[k] = std::isinf(lo[k]) || std::isinf(hi[k]);
      farArgument |= std::fabs(lo[k]) > 8192 || std::fabs(hi[k]) > 8192;
    }
    if (!floats) {
      if (!wide)
        continue;
      auto anything = [&] {
        HostTensor *ends[] = {&out.lo, &out.hi};
        for (int e = 0; e < 2; ++e)
          storeInteger(ends[e]->data.data(), type.dtype, i,
                       type.dtype == DType::Bool  ? e
                       : type.dtype == DType::U8  ? e * 255
                       : type.dtype == DType::I8  ? (e ? 127 : -128)
                       : type.dtype == DType::I32 ? (e ? INT32_MAX : INT32_MIN)
                                                  : (e ? INT64_MAX : INT64_MIN));
      };
      switch (n.op) {
      case Eq:
      case Ne: {
        bool meet = lo[0] <= hi[1] && lo[1] <= hi[0]; // they may be equal, and as one of them is wide, may differ
        bool nanOnly = std::isnan(lo[0]) || std::isnan(lo[1]);
        if (meet && !nanOnly)
          anything();
        break;
      }
      case Add:
      case Sub:
      case Mul:
      case Neg:
      case Abs:
      case Square:
      case Pow:
      case FloorDivide:
      case Fmod:
      case Remainder:
      case BitwiseAnd:
      case BitwiseOr:
      case BitwiseXor:
      case BitwiseNot: anything(); break;
      case Cast: {
        // Integers wrap, so that the ends say nothing once one of them does.
        bool integer = !isFloat(graph.type(n.inputs[0].value).dtype);
        int64_t l = loadInteger(out.lo.data.data(), type.dtype, i), h = loadInteger(out.hi.data.data(), type.dtype, i);
        if (integer && type.dtype != DType::Bool &&
            (static_cast<double>(l) != lo[0] || static_cast<double>(h) != hi[0]))
          anything();
        break;
      }
      default: break;
      }
      continue;
    }
    Bounds &b = bounds[static_cast<size_t>(i)];
    if (wide) {
      auto sane = [&](size_t k) { return !hasInf[k] && !nanAt[k]; };
      switch (n.op) {
      case Reciprocal:
        if (hasZero[0])
          b.anything();
        break;
      case Cast: // where e4m3 does not saturate, what is too large gives NaN, and what lies between the ends may be finite
        if (type.dtype == DType::F8E4M3 && !n.attrs.saturate && !std::isnan(lo[0]))
          b.add(roundedTo(type.dtype, static_cast<float>(lo[0]))),
              b.add(roundedTo(type.dtype, static_cast<float>(hi[0])));
        break;
      case Div:
        if (hasZero[1])
          b.anything();
        break;
      case Rsqrt:
        if (hasZero[0])
          b.add(-kInf), b.add(kInf);
        b.nan |= lo[0] < 0;
        break;
      case Log1p:
        if (lo[0] <= -1 && hi[0] >= -1)
          b.add(-kInf);
        break;
      case Mul: b.nan |= (hasZero[0] && hasInf[1]) || (hasZero[1] && hasInf[0]); break;
      case Sin:
      case Cos: {
        double w = hi[0] - lo[0];
        if (!(w < 1))
          b.add(-1), b.add(1);
        else
          b.add(static_cast<float>(std::max(b.lo - w, -1.0))), b.add(static_cast<float>(std::min(b.hi + w, 1.0)));
        b.nan |= hasInf[0];
        break;
      }
      case Silu:
      case Gelu:
        if (lo[0] < -0.7)
          b.add(n.op == Silu ? -0.27847f : -0.17005f), b.add(0.0f);
        break;
      case FloorDivide:
        if (hasZero[1] || !sane(0) || !sane(1))
          b.anything();
        break;
      case Fmod:
      case Remainder:
        if (hasZero[1] || !sane(0) || !sane(1)) {
          b.anything();
        } else {
          auto m = static_cast<float>(std::max(std::fabs(lo[1]), std::fabs(hi[1])));
          b.add(-m), b.add(m), b.add(-0.0f), b.add(0.0f);
        }
        break;
      case Pow:
        if (!(lo[0] > 0) || !sane(0) || !sane(1))
          b.anything();
        break;
      case Atan2:
        if (hasZero[0] && !(lo[1] > 0))
          b.add(-std::numbers::pi_v<float>), b.add(std::numbers::pi_v<float>);
        break;
      default: break;
      }
    }
    if (wide && b.lo <= 0 && b.hi >= 0) // of either sign, as the operands' zeros may be
      b.add(-0.0f), b.add(0.0f);
    widen(n, type.dtype, b, farArgument);
    f32At(out.lo, i) = b.lo;
    f32At(out.hi, i) = b.hi;
    out.nan[static_cast<size_t>(i)] = b.nan;
  }
  return {};
}

/// The error of an op that may be inexact, then what rounding may add.
void Evaluator::widen(const Node &n, DType type, Bounds &b, bool farArgument) const {
  using enum OpKind;
  if (std::isnan(b.lo) || !isArithmeticFloat(type))
    return;
  bool sixteen = type != DType::F32;
  bool inexact = isTranscendental(n.op) || (sixteen && (n.op == Div || n.op == Sqrt || n.op == Reciprocal));
  if (inexact) {
    if ((n.op == Sin || n.op == Cos) && farArgument) {
      b.lo -= 1e-4f * std::fabs(b.lo);
      b.hi += 1e-4f * std::fabs(b.hi);
    }
    if (sixteen) { // at most one step from the correctly rounded result
      b.lo = std::fmin(b.lo, stepped(type, b.lo, -1));
      b.hi = std::fmax(b.hi, stepped(type, b.hi, 1));
    } else {
      b.lo = stepped(DType::F32, b.lo, -kUlps);
      b.hi = stepped(DType::F32, b.hi, kUlps);
      if (std::fabs(b.lo) < 0x1p-126f || std::fabs(b.hi) < 0x1p-126f) // a flushed result
        b.add(0.0f), b.add(-0.0f);
    }
  }
  if (sixteen && n.op != Cast) {
    b.add(roundedTo(type, b.lo));
    b.add(roundedTo(type, b.hi));
  }
}

Status Evaluator::node(NodeId id) {
  const Node &n = graph.nodes[id];
  const DType type = graph.type(n.outputs[0]).dtype;
  Ranged out;
  OpClass cls = opInfo(n.op).cls;
  if (cls == OpClass::Shape || cls == OpClass::Creation || cls == OpClass::Indexing) {
    RL_TRY(moved(id, out));
    // A promoted piece, a pad value, a created value: rounded or not.
    if (isFloat(type))
      for (int64_t i = 0; i < out.lo.type.elements(); ++i) {
        Bounds b;
        for (float v : {f32At(out.lo, i), f32At(out.hi, i)}) {
          if (!isF8(type))
            b.add(v);
          b.add(isF8(type) && std::isinf(v) ? v
                                            : roundedTo(type, v)); // a saturating cast is not what moves an infinity
        }
        b.nan |= out.nan[static_cast<size_t>(i)] != 0;
        f32At(out.lo, i) = b.lo;
        f32At(out.hi, i) = b.hi;
        out.nan[static_cast<size_t>(i)] = b.nan;
      }
  } else {
    RL_TRY(computed(id, out));
  }
  out.lo.type.shape = out.hi.type.shape = graph.type(n.outputs[0]).shape;
  held[n.outputs[0]] = std::move(out);
  return {};
}

Result<std::vector<Expected>> Evaluator::run(const Case &data) {
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    give(graph.inputs[i], data.inputs[i]);
  for (size_t i = 0; i < graph.parameters.size(); ++i)
    give(graph.parameters[i], data.parameters[i]);
  for (NodeId n = 0; n < graph.nodes.size(); ++n)
    RL_TRY(node(n));
  std::vector<Expected> out;
  for (ValueId v : graph.outputs) {
    Expected e;
    e.type = graph.type(v);
    e.exact = false;
    e.lo = held[v].lo;
    e.hi = held[v].hi;
    e.mayBeNan = held[v].nan;
    out.push_back(std::move(e));
  }
  return out;
}

} // namespace

Result<std::vector<Expected>> evaluateRanges(const Graph &graph, const Case &data) {
  return Evaluator(graph).run(data);
}

} // namespace rl::numeric
