// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shorter forms for the CPU where the result is rounded to 16 bits: the exponential with a shorter polynomial and one
// power of two, and odd rational functions that are 1 exactly where their operand is cut off. Each costs one division
// at most; approximate reciprocals are not used, because makers' processors differ in them.
//
// Polynomials: minimax in the relative error of the whole function (Remez exchange in 50 digits) with the constant
// term fixed. Rational functions: minimax by linear programming over 700 points, with the value 1 at the end and none
// above it; then the end is moved to the first f32 at which numerator and denominator, in the arithmetic here, are
// equal. So the functions are 1 there to the bit, and below nowhere greater (1 - tanh(x)^2 is never negative). The
// bound beside each is that of the rounded coefficients; of rational functions it includes the evaluation.
#include "compiler/lower/common/MathExpansionBuilder.h"

namespace rl::mathx {
namespace {

constexpr float kLog2E = 0x1.715476p+0f;

/// 1.5 * 2^23 rounds what is added to it to an integer; the rest of the constant is the exponent's bias.
constexpr float roundAndBias(int offset) { return 0x1.8p23f + 127.0f + static_cast<float>(offset); }

/// 2^(a b + offset) as p * s: |log2 p| <= 1/2. s is 0 where the exponent is -127 and infinite where it is 128; beyond,
/// down to -256 and up to 255, it is neither, so operands have to be cut off.
struct Power {
  F p, s;
};
/// 2^f on |f| <= 1/2, exact for f = 0.
F exp2Fraction(F f, int degree) {
  constexpr float k4[] = {1.0f, 0x1.62e0c0p-1f, 0x1.ebfa4ap-3f, 0x1.ca1ea4p-5f, 0x1.3cc030p-7f}; // 2^-18.1
  constexpr float k5[] = {1.0f,           0x1.62e39ep-1f, 0x1.ebfa4cp-3f,
                          0x1.c7436ep-5f, 0x1.3cbf78p-7f, 0x1.23a672p-10f}; // 2^-21.1
  constexpr float k6[] = {1.0f,           0x1.62e430p-1f,  0x1.ebfbe0p-3f, 0x1.c6aecap-5f,
                          0x1.3b2a1ap-7f, 0x1.5f49a6p-10f, 0x1.4440a0p-13f}; // 2^-28.5
  return degree == 4 ? horner(f, k4) : degree == 5 ? horner(f, k5) : horner(f, k6);
}
Power power(F a, F b, int offset, int degree) {
  F t = fma(a, b, roundAndBias(offset));
  F n = t - roundAndBias(offset);
  return {exp2Fraction(fma(a, b, -n), degree), fromBits(bits(t) << 23)};
}
Power power(F a, float b, int offset, int degree) { return power(a, a.emitter->f(b), offset, degree); }

int degreeFor(Rounding r) { return r == Rounding::F16 ? 6 : 4; }

/// 1 / (1 + 2^(a b)) as c / (c + c 2^(a b)) with c = 2^-32: that is subnormal where it should be, down to exponents of
/// the power of 159, and 0 from 160 on. a b from -94 on.
F logistic(F a, F b, Rounding r) {
  Power e = power(a, b, -32, degreeFor(r));
  return a.emitter->f(0x1p-32f) / fma(e.p, e.s, 0x1p-32f);
}

/// x P(x^2) / Q(x^2) with |x| cut off at `end`.
F oddQuotient(F x, float end, llvm::ArrayRef<float> p, llvm::ArrayRef<float> q) {
  x = atMost(atLeast(x, -end), end);
  F square = x * x;
  return x * horner(square, p) / horner(square, q);
}

F cut(F x, float low, float high) { return atMost(atLeast(x, low), high); }

} // namespace

F expCpu16(F x, Rounding r) {
  // 0 at -88. f16 needs nothing below 2^-25, but a zero must be one. In bf16 results are subnormal in f32 too: the
  // square of 2^(t/2), which is not.
  if (r == Rounding::F16) {
    Power e = power(cut(x, -88.0f, 89.0f), kLog2E, 0, 6);
    return e.p * e.s;
  }
  Power half = power(cut(x, -106.0f, 90.0f), 0.5f * kLog2E, 0, 5);
  F root = half.p * half.s;
  return root * root;
}

F expTermCpu(F x) {
  // 0 from -104.6 on, inf from 72.1 on.
  Power e = power(cut(x, -104.7f, 72.1f), kLog2E, 24, 6);
  return e.p * e.s;
}

F exp2Cpu16(F x, Rounding r) {
  if (r == Rounding::F16) {
    Power e = power(cut(x, -127.0f, 128.0f), 1.0f, 0, 6);
    return e.p * e.s;
  }
  Power half = power(cut(x, -153.0f, 129.0f), 0.5f, 0, 5);
  F root = half.p * half.s;
  return root * root;
}

F tanhCpu16(F x, Rounding r) {
  if (r == Rounding::F16) // 2^-21.6 on [0, 2], 2^-15.3 up to the end, all of which rounds to 1
    return oddQuotient(x, 0x1.6a8e84p+2f, {0x1.fffffcp-1f, 0x1.e3c852p-4f, 0x1.b168d4p-10f, -0x1.bf9d82p-18f},
                       {1.0f, 0x1.ce472ap-2f, 0x1.341054p-6f, 0x1.29c042p-15f, -0x1.f0eeecp-22f});
  if (r == Rounding::BF16) // 2^-19.0 on [0, 2], 2^-13.6 up to the end
    return oddQuotient(x, 0x1.45b974p+2f, {0x1.ffffc8p-1f, 0x1.dc5a08p-4f, 0x1.a58552p-10f},
                       {1.0f, 0x1.cc6826p-2f, 0x1.29a40ep-6f, 0x1.03dc0ap-14f});
  // 2^-13.5
  return oddQuotient(x, 0x1.42d102p+2f, {0x1.fff516p-1f, 0x1.9ebe14p-4f, 0x1.4f02d8p-11f},
                     {1.0f, 0x1.bc88e8p-2f, 0x1.98fd72p-7f});
}

F erfCpu16(F x) {
  // For bf16: 2^-19.9 on [0, 2], 2^-14.5 up to the end, all of which rounds to 1.
  return oddQuotient(x, 0x1.738b68p+1f, {0x1.20dd84p+0f, 0x1.3bd34ap-3f, 0x1.5b3bf6p-5f, 0x1.7339f4p-11f},
                     {1.0f, 0x1.e14d2ap-2f, 0x1.819f86p-4f, 0x1.260472p-7f});
}

F sigmoidCpu16(F x, Rounding r) { return logistic(cut(x, -111.0f, 65.0f), x.emitter->f(-kLog2E), r); }

// x times 0 is NaN for -inf.
F siluCpu16(F x, Rounding r) { return x * sigmoidCpu16(x, r); }

F geluTanhCpu16(F x, Rounding r) {
  constexpr float c1 = 0x1.26aec2p+1f, c2 = 0x1.a5a7dp-4f; // 2 sqrt(2/pi) log2(e), and 0.044715 of it
  // -x (c1 + c2 x^2) is 160 at -10.8, -94 at 8.6.
  F limited = cut(x, -10.9f, 8.5f);
  return x * logistic(limited, fma(limited * limited, -c2, -c1), r);
}

F softplusCpu16(F x, Rounding r) {
  // log(1 + e) / e on [0, 1]: 2^-19.4 for bf16, 2^-24.8 for f16, as on the GPU. e = e^-|x| by way of 2^24 e, which is
  // not subnormal; 0 from 104.5 on.
  constexpr float kShort[] = {1.0f,           -0x1.ffe7bep-2f, 0x1.535ba2p-2f, -0x1.e38f6ep-3f,
                              0x1.354e0cp-3f, -0x1.15eb4ap-4f, 0x1.de0838p-7f};
  constexpr float kLong[] = {1.0f,           -0x1.ffff14p-2f, 0x1.5535dep-2f, -0x1.fd1368p-3f,
                             0x1.884552p-3f, -0x1.19af84p-3f, 0x1.447056p-4f, -0x1.eca32ap-6f,
                             0x1.5fa062p-8f};
  Power scaled = power(atMost(abs(x), 104.5f), -kLog2E, 24, r == Rounding::F16 ? 6 : 5);
  F e = scaled.p * scaled.s * 0x1p-24f;
  F p = r == Rounding::F16 ? horner(e, kLong) : horner(e, kShort);
  return fma(e, p, atLeast(x, 0.0f));
}

F geluErfCpu16(F x, Rounding r) {
  // max(x, 0) - a Q(a), as geluErf16, whose polynomials these are, but for the first coefficient for bf16: t P(t) is
  // 1/2 to the bit where a is small, so that a subnormal x gives x/2 before the rounding.
  constexpr float kF16[] = {0x1.9accb8p-2f, 0x1.1c16cap+0f,  0x1.274654p+2f, -0x1.521e4cp+2f,
                            0x1.273b18p+6f, -0x1.339ebap+7f, 0x1.85ec18p+6f};
  constexpr float kBF16[] = {0x1.994cfcp-2f, 0x1.2873acp+0f,  0x1.fd19a2p+1f, -0x1.fb93dap-1f,
                             0x1.d1222ap+5f, -0x1.f17b16p+6f, 0x1.2c9c54p+6f};
  F a = atMost(abs(x), 14.45f);
  Power e = power(a * (-0.5f * kLog2E), a, 24, degreeFor(r));
  F t = a.emitter->f(1.0f) / (a + 3.0f);
  F q = t * (r == Rounding::F16 ? horner(t, kF16) : horner(t, kBF16)) * (e.p * e.s) * a;
  F positive = fma(abs(x), 0.5f, x * 0.5f); // NaN for -inf; 0 for 2^-149, which leaves less than that
  return orSign(abs(fma(q, -0x1p-24f, positive)), x);
}

} // namespace rl::mathx
