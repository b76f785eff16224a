// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Elementwise ops of two and three operands, with NumPy's broadcasting, and clamp. Floats compute in f32 whatever their
// storage type, integers modulo 2^width of their promoted type.
#include "ir/interp/Tensor.h"

#include <cmath>
#include <limits>

namespace rl::interp {
namespace {

/// y = f(a, b) over the broadcast shape of y.
template <class In, class Out, class F>
void zip(const std::vector<int64_t> &shape, const std::vector<In> &a, const std::vector<int64_t> &shapeA,
         const std::vector<In> &b, const std::vector<int64_t> &shapeB, std::vector<Out> &y, F f) {
  const std::vector<int64_t> strides[2] = {broadcastStrides(shapeA, shape), broadcastStrides(shapeB, shape)};
  Out *out = y.data();
  forEachRow(shape, strides, [&](const int64_t *offset, int64_t n, const int64_t *step) {
    const In *pa = a.data() + offset[0], *pb = b.data() + offset[1];
    if (step[0] == 1 && step[1] == 1)
      for (int64_t j = 0; j < n; ++j)
        out[j] = static_cast<Out>(f(pa[j], pb[j]));
    else
      for (int64_t j = 0; j < n; ++j)
        out[j] = static_cast<Out>(f(pa[j * step[0]], pb[j * step[1]]));
    out += n;
  });
}

/// IEEE 754-2019 maximum and minimum: NaN propagates, -0 is less than +0.
float maximum(float a, float b) {
  if (std::isnan(a) || std::isnan(b))
    return a + b;
  if (a == b)
    return std::signbit(a) ? b : a;
  return a > b ? a : b;
}
float minimum(float a, float b) {
  if (std::isnan(a) || std::isnan(b))
    return a + b;
  if (a == b)
    return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

/// The quotient itself rounded down, not its f32 rounding: f64 holds enough of the quotient of two f32 to tell on which
/// side of an integer it lies. At infinities as Python, NumPy and PyTorch have it, so that a = b * floor_divide +
/// remainder where that has a meaning: an infinite dividend gives NaN, an infinite divisor of the other sign -1.
float floorDivide(float a, float b) {
  if (std::isinf(a) && b != 0)
    return std::numeric_limits<float>::quiet_NaN();
  if (std::isinf(b) && a != 0 && !std::isnan(a))
    return std::signbit(a) != std::signbit(b) ? -1.0f : 0.0f;
  return static_cast<float>(std::floor(static_cast<double>(a) / static_cast<double>(b)));
}

/// fmod, moved by one divisor where its sign is not the divisor's. A zero takes the divisor's sign too.
float remainder(float a, float b) {
  float r = std::fmod(a, b);
  if (r == 0)
    return std::copysign(0.0f, b);
  return (r < 0) != (b < 0) ? r + b : r;
}

float power(float a, float b) { return static_cast<float>(std::pow(static_cast<double>(a), static_cast<double>(b))); }
float arcTangent(float a, float b) {
  return static_cast<float>(std::atan2(static_cast<double>(a), static_cast<double>(b)));
}

// Integers: on i64 modulo 2^64; the caller wraps the result to the type. The smallest i64 over -1 would trap.
int64_t wrappingNegate(int64_t a) { return static_cast<int64_t>(0 - static_cast<uint64_t>(a)); }
int64_t floorDivide(int64_t a, int64_t b) {
  if (b == 0)
    return 0;
  if (b == -1)
    return wrappingNegate(a);
  int64_t q = a / b;
  return a % b != 0 && (a < 0) != (b < 0) ? q - 1 : q;
}
int64_t modulo(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
int64_t remainder(int64_t a, int64_t b) {
  int64_t r = modulo(a, b);
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
/// A negative exponent gives the integer part of the reciprocal: 0, but for bases 1 and -1.
int64_t power(int64_t a, int64_t b) {
  if (b < 0)
    return a == 1 ? 1 : a == -1 ? (b % 2 == 0 ? 1 : -1) : 0;
  uint64_t base = static_cast<uint64_t>(a), result = 1;
  for (; b > 0; b >>= 1, base *= base)
    if (b & 1)
      result *= base;
  return static_cast<int64_t>(result);
}

std::vector<OperandType> operandTypes(const Call &c) {
  std::vector<OperandType> types;
  for (const Operand &operand : c.node.inputs) {
    OperandType t;
    if (operand.isLiteral())
      t.literal = operand.literal;
    else
      t.type = c.graph.type(operand.value);
    types.push_back(std::move(t));
  }
  return types;
}

template <class F> void onFloats(Call &c, F f) {
  std::vector<float> scratchA, scratchB;
  const std::vector<float> &a = asFloats(*c.in[0], scratchA), &b = asFloats(*c.in[1], scratchB);
  zip(c.out[0].shape, a, c.in[0]->shape, b, c.in[1]->shape, c.out[0].f, f);
}

/// An integer operand in the promoted type: only a literal may have to wrap.
const std::vector<int64_t> &promoted(const Tensor &t, DType type, std::vector<int64_t> &scratch) {
  if (t.rank() != 0 || isFloat(t.dtype))
    return asIntegers(t, scratch);
  scratch = {wrapTo(type, t.i[0])};
  return scratch;
}

template <class F> void onIntegers(Call &c, DType type, F f) {
  std::vector<int64_t> scratchA, scratchB;
  const std::vector<int64_t> &a = promoted(*c.in[0], type, scratchA), &b = promoted(*c.in[1], type, scratchB);
  DType result = c.out[0].dtype;
  zip(c.out[0].shape, a, c.in[0]->shape, b, c.in[1]->shape, c.out[0].i,
      [&](int64_t p, int64_t q) { return wrapTo(result, f(p, q)); });
}

/// Comparisons: of floats in f32, else of integers, whose order no float would keep.
template <class F> void compare(Call &c, DType type, F f) {
  if (!isFloat(type))
    return onIntegers(c, type, [&](int64_t a, int64_t b) { return int64_t{f(a, b)}; });
  std::vector<float> scratchA, scratchB;
  const std::vector<float> &a = asFloats(*c.in[0], scratchA), &b = asFloats(*c.in[1], scratchB);
  zip(c.out[0].shape, a, c.in[0]->shape, b, c.in[1]->shape, c.out[0].i, f);
}

/// Logical ops ask each operand, in its own type, whether it is not zero. NaN is not.
std::vector<int64_t> truths(const Tensor &t) {
  std::vector<float> scratch;
  const std::vector<float> &v = asFloats(t, scratch); // no integer but 0 becomes 0
  std::vector<int64_t> result(v.size());
  for (size_t e = 0; e < v.size(); ++e)
    result[e] = v[e] != 0;
  return result;
}
template <class F> void logical(Call &c, F f) {
  zip(c.out[0].shape, truths(*c.in[0]), c.in[0]->shape, truths(*c.in[1]), c.in[1]->shape, c.out[0].i, f);
}

} // namespace

Status evalBinary(Call &c) {
  using enum OpKind;
  switch (c.node.op) {
  case LogicalAnd: return logical(c, [](int64_t a, int64_t b) { return a & b; }), Status();
  case LogicalOr: return logical(c, [](int64_t a, int64_t b) { return a | b; }), Status();
  case LogicalXor: return logical(c, [](int64_t a, int64_t b) { return a ^ b; }), Status();
  default: break;
  }
  const DType type = computeType(c.node.op, operandTypes(c));
  switch (c.node.op) {
  case Eq: return compare(c, type, [](auto a, auto b) { return a == b; }), Status();
  case Ne: return compare(c, type, [](auto a, auto b) { return a != b; }), Status();
  case Lt: return compare(c, type, [](auto a, auto b) { return a < b; }), Status();
  case Le: return compare(c, type, [](auto a, auto b) { return a <= b; }), Status();
  case Gt: return compare(c, type, [](auto a, auto b) { return a > b; }), Status();
  case Ge: return compare(c, type, [](auto a, auto b) { return a >= b; }), Status();
  default: break;
  }
  if (isFloat(c.out[0].dtype)) {
    switch (c.node.op) {
    case Add: return onFloats(c, [](float a, float b) { return a + b; }), Status();
    case Sub: return onFloats(c, [](float a, float b) { return a - b; }), Status();
    case Mul: return onFloats(c, [](float a, float b) { return a * b; }), Status();
    case Div: return onFloats(c, [](float a, float b) { return a / b; }), Status();
    case FloorDivide: return onFloats(c, [](float a, float b) { return floorDivide(a, b); }), Status();
    case Fmod: return onFloats(c, [](float a, float b) { return std::fmod(a, b); }), Status();
    case Remainder: return onFloats(c, [](float a, float b) { return remainder(a, b); }), Status();
    case Pow: return onFloats(c, [](float a, float b) { return power(a, b); }), Status();
    case Atan2: return onFloats(c, arcTangent), Status();
    case Maximum: return onFloats(c, maximum), Status();
    case Minimum: return onFloats(c, minimum), Status();
    default: break;
    }
  } else {
    using U = uint64_t;
    using I = int64_t;
    switch (c.node.op) {
    case Add:
      return onIntegers(c, type, [](I a, I b) { return static_cast<I>(static_cast<U>(a) + static_cast<U>(b)); }),
             Status();
    case Sub:
      return onIntegers(c, type, [](I a, I b) { return static_cast<I>(static_cast<U>(a) - static_cast<U>(b)); }),
             Status();
    case Mul:
      return onIntegers(c, type, [](I a, I b) { return static_cast<I>(static_cast<U>(a) * static_cast<U>(b)); }),
             Status();
    case FloorDivide: return onIntegers(c, type, [](I a, I b) { return floorDivide(a, b); }), Status();
    case Fmod: return onIntegers(c, type, modulo), Status();
    case Remainder: return onIntegers(c, type, [](I a, I b) { return remainder(a, b); }), Status();
    case Pow: return onIntegers(c, type, [](I a, I b) { return power(a, b); }), Status();
    case Maximum: return onIntegers(c, type, [](I a, I b) { return std::max(a, b); }), Status();
    case Minimum: return onIntegers(c, type, [](I a, I b) { return std::min(a, b); }), Status();
    case BitwiseAnd: return onIntegers(c, type, [](I a, I b) { return a & b; }), Status();
    case BitwiseOr: return onIntegers(c, type, [](I a, I b) { return a | b; }), Status();
    case BitwiseXor: return onIntegers(c, type, [](I a, I b) { return a ^ b; }), Status();
    default: break;
    }
  }
  return unsupported(c.node.pointer(), std::string("the interpreter has no ") + opInfo(c.node.op).name + " for " +
                                           dtypeName(c.out[0].dtype));
}

Status evalWhere(Call &c) {
  Tensor &y = c.out[0];
  const Tensor &a = *c.in[1], &b = *c.in[2];
  const std::vector<int64_t> strides[3] = {broadcastStrides(c.in[0]->shape, y.shape),
                                           broadcastStrides(a.shape, y.shape), broadcastStrides(b.shape, y.shape)};
  const std::vector<int64_t> condition = truths(*c.in[0]);
  auto select = [&](const auto &va, const auto &vb, auto &result) {
    auto *out = result.data();
    forEachRow(y.shape, strides, [&](const int64_t *offset, int64_t n, const int64_t *step) {
      for (int64_t j = 0; j < n; ++j) {
        bool first = condition[static_cast<size_t>(offset[0] + j * step[0])] != 0;
        *out++ =
            first ? va[static_cast<size_t>(offset[1] + j * step[1])] : vb[static_cast<size_t>(offset[2] + j * step[2])];
      }
    });
  };
  if (isArithmeticFloat(y.dtype)) {
    std::vector<float> scratchA, scratchB;
    select(asFloats(a, scratchA), asFloats(b, scratchB), y.f);
  } else if (isF8(y.dtype)) {
    auto codes = [&](const Tensor &t) {
      if (t.dtype == y.dtype)
        return t.codes;
      std::vector<float> scratch;
      std::vector<uint8_t> result;
      for (float v : asFloats(t, scratch))
        result.push_back(encodeF8(y.dtype, v));
      return result;
    };
    select(codes(a), codes(b), y.codes);
  } else {
    std::vector<int64_t> scratchA, scratchB;
    select(promoted(a, y.dtype, scratchA), promoted(b, y.dtype, scratchB), y.i);
  }
  return {};
}

Status evalClamp(Call &c) {
  const Tensor &x = *c.in[0];
  Tensor &y = c.out[0];
  const std::optional<Scalar> &least = c.attrs().min, &most = c.attrs().max;
  if (isFloat(y.dtype)) {
    std::vector<float> scratch;
    const std::vector<float> &v = asFloats(x, scratch);
    float low = least ? scalarFloat(*least) : 0, high = most ? scalarFloat(*most) : 0;
    for (size_t e = 0; e < v.size(); ++e) {
      float r = least ? maximum(v[e], low) : v[e];
      y.f[e] = most ? minimum(r, high) : r;
    }
    return {};
  }
  int64_t low = least ? scalarInteger(DType::I64, *least) : INT64_MIN,
          high = most ? scalarInteger(DType::I64, *most) : INT64_MAX;
  for (size_t e = 0; e < x.i.size(); ++e)
    y.i[e] = wrapTo(y.dtype, std::min(std::max(x.i[e], low), high));
  return {};
}

} // namespace rl::interp
