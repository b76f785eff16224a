// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Elementwise ops of one operand. Arithmetic is done in f32; transcendental functions in f64, rounded once to f32.
#include "ir/interp/Convert.h"
#include "ir/interp/Tensor.h"

#include <cmath>
#include <limits>
#include <numbers>

namespace rl::interp {
namespace {

template <class F> void mapFloats(const std::vector<float> &x, std::vector<float> &y, F f) {
  for (size_t e = 0; e < x.size(); ++e)
    y[e] = static_cast<float>(f(x[e]));
}
template <class F> void mapDoubles(const std::vector<float> &x, std::vector<float> &y, F f) {
  for (size_t e = 0; e < x.size(); ++e)
    y[e] = static_cast<float>(f(static_cast<double>(x[e])));
}
template <class F> void mapIntegers(const Tensor &x, Tensor &y, F f) {
  for (size_t e = 0; e < x.i.size(); ++e)
    y.i[e] = wrapTo(y.dtype, f(x.i[e]));
}
template <class F> void mapPredicate(const std::vector<float> &x, Tensor &y, F f) {
  for (size_t e = 0; e < x.size(); ++e)
    y.i[e] = f(x[e]);
}

double gelu(double x) { return 0.5 * x * std::erfc(-x / std::numbers::sqrt2); }

/// x / 2 * (1 + tanh u), written as x * sigmoid(2 u), which does not cancel for negative x.
double geluTanh(double x) {
  double u = std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x);
  return x / (1 + std::exp(-2 * u));
}

double softplus(double x) { return std::isnan(x) ? x : std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))); }

/// True where the op maps integers to integers (and bool) without a detour over floats.
bool onIntegers(const Call &c, const Tensor &x, Tensor &y) {
  using enum OpKind;
  switch (c.node.op) {
  case Abs:
    mapIntegers(x, y, [](int64_t v) { return v < 0 ? static_cast<int64_t>(0 - static_cast<uint64_t>(v)) : v; });
    return true;
  case Neg:
    mapIntegers(x, y, [](int64_t v) { return static_cast<int64_t>(0 - static_cast<uint64_t>(v)); });
    return true;
  case Sign: mapIntegers(x, y, [](int64_t v) { return int64_t{v > 0} - int64_t{v < 0}; }); return true;
  case Square:
    mapIntegers(x, y,
                [](int64_t v) { return static_cast<int64_t>(static_cast<uint64_t>(v) * static_cast<uint64_t>(v)); });
    return true;
  case Relu: mapIntegers(x, y, [](int64_t v) { return v > 0 ? v : 0; }); return true;
  case Floor:
  case Ceil:
  case Round:
  case Trunc: mapIntegers(x, y, [](int64_t v) { return v; }); return true;
  case BitwiseNot:
    if (x.dtype == DType::Bool)
      mapIntegers(x, y, [](int64_t v) { return int64_t{v == 0}; });
    else
      mapIntegers(x, y, [](int64_t v) { return ~v; });
    return true;
  default: return false;
  }
}

} // namespace

Status evalUnary(Call &c) {
  using enum OpKind;
  const Tensor &x = *c.in[0];
  Tensor &y = c.out[0];
  if (!isFloat(x.dtype) && !isFloat(y.dtype) && onIntegers(c, x, y))
    return {};
  std::vector<float> scratch;
  const std::vector<float> &v = asFloats(x, scratch);
  switch (c.node.op) {
  case Abs: mapFloats(v, y.f, [](float a) { return std::fabs(a); }); break;
  case Neg: mapFloats(v, y.f, [](float a) { return -a; }); break;
  case Sign:
    mapFloats(v, y.f, [](float a) { return std::isnan(a) ? a : static_cast<float>(int(a > 0) - int(a < 0)); });
    break;
  case Exp: mapDoubles(v, y.f, [](double a) { return std::exp(a); }); break;
  case Exp2: mapDoubles(v, y.f, [](double a) { return std::exp2(a); }); break;
  case Expm1: mapDoubles(v, y.f, [](double a) { return std::expm1(a); }); break;
  case Log: mapDoubles(v, y.f, [](double a) { return std::log(a); }); break;
  case Log2: mapDoubles(v, y.f, [](double a) { return std::log2(a); }); break;
  case Log1p: mapDoubles(v, y.f, [](double a) { return std::log1p(a); }); break;
  case Sqrt: mapFloats(v, y.f, [](float a) { return std::sqrt(a); }); break;
  case Rsqrt: mapDoubles(v, y.f, [](double a) { return 1 / std::sqrt(a); }); break;
  case Reciprocal: mapFloats(v, y.f, [](float a) { return 1 / a; }); break;
  case Square: mapFloats(v, y.f, [](float a) { return a * a; }); break;
  case Sin: mapDoubles(v, y.f, [](double a) { return std::sin(a); }); break;
  case Cos: mapDoubles(v, y.f, [](double a) { return std::cos(a); }); break;
  case Tanh: mapDoubles(v, y.f, [](double a) { return std::tanh(a); }); break;
  case Sigmoid: mapDoubles(v, y.f, [](double a) { return 1 / (1 + std::exp(-a)); }); break;
  case Erf: mapDoubles(v, y.f, [](double a) { return std::erf(a); }); break;
  case Relu: mapFloats(v, y.f, [](float a) { return a > 0 || std::isnan(a) ? a : 0.0f; }); break;
  case Silu: mapDoubles(v, y.f, [](double a) { return a / (1 + std::exp(-a)); }); break;
  case Softplus: mapDoubles(v, y.f, softplus); break;
  case Gelu:
    if (c.attrs().tanhApproximation)
      mapDoubles(v, y.f, geluTanh);
    else
      mapDoubles(v, y.f, gelu);
    break;
  case Floor: mapFloats(v, y.f, [](float a) { return std::floor(a); }); break;
  case Ceil: mapFloats(v, y.f, [](float a) { return std::ceil(a); }); break;
  case Round:
    // rint is half to even in the default rounding mode, the only one that this process runs in.
    mapFloats(v, y.f, [](float a) { return std::rint(a); });
    break;
  case Trunc: mapFloats(v, y.f, [](float a) { return std::trunc(a); }); break;
  case IsNan: mapPredicate(v, y, [](float a) { return std::isnan(a); }); break;
  case IsInf: mapPredicate(v, y, [](float a) { return std::isinf(a); }); break;
  case IsFinite: mapPredicate(v, y, [](float a) { return std::isfinite(a); }); break;
  case LogicalNot: mapPredicate(v, y, [](float a) { return a == 0; }); break;
  default:
    return unsupported(c.node.pointer(), std::string("the interpreter has no unary op ") + opInfo(c.node.op).name);
  }
  return {};
}

Status evalCast(Call &c) {
  const Tensor &x = *c.in[0];
  Tensor &y = c.out[0];
  std::vector<float> scratch;
  if (isArithmeticFloat(y.dtype)) {
    if (isFloat(x.dtype)) {
      y.f = asFloats(x, scratch);
      roundAll(y.f, y.dtype);
    } else if (y.dtype == DType::F32) {
      y.f = asFloats(x, scratch);
    } else { // from the integer itself, so that it is rounded once
      for (size_t e = 0; e < x.i.size(); ++e) {
        uint16_t code;
        storeInteger(&code, y.dtype, 0, x.i[e]);
        y.f[e] = static_cast<float>(loadElement(&code, y.dtype, 0));
      }
    }
  } else if (isF8(y.dtype)) {
    if (!isFloat(x.dtype) && y.dtype == DType::F8E8M0) {
      for (size_t e = 0; e < x.i.size(); ++e)
        storeInteger(y.codes.data(), y.dtype, static_cast<int64_t>(e), x.i[e]);
      return {};
    }
    // An integer that f32 rounds is beyond 2^24, and so beyond the largest of the other f8 types.
    const std::vector<float> &v = asFloats(x, scratch);
    for (size_t e = 0; e < v.size(); ++e)
      y.codes[e] = encodeF8(y.dtype, v[e], c.attrs().saturate);
  } else if (isFloat(x.dtype)) {
    const std::vector<float> &v = asFloats(x, scratch);
    for (size_t e = 0; e < v.size(); ++e)
      y.i[e] = truncateTo(y.dtype, v[e]);
  } else {
    for (size_t e = 0; e < x.i.size(); ++e)
      y.i[e] = wrapTo(y.dtype, x.i[e]);
  }
  return {};
}

} // namespace rl::interp
