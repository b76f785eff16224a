// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// exp and what is made of it: exp2, expm1, tanh, sigmoid, silu, softplus, erf and both gelus.
//
// Polynomials: minimax in the relative error of the whole function (Remez exchange in 160-bit arithmetic), coefficients
// rounded to f32 one after the other from the lowest degree, the rest fitted again after each. The bound beside each
// is that of the rounded polynomial, without the rounding errors of its evaluation.
#include "compiler/lower/common/MathExpansionBuilder.h"

namespace rl::mathx {
namespace {

constexpr float kLog2E = 0x1.715476p+0f;
constexpr float kLn2 = 0x1.62e43p-1f, kLn2Low = -0x1.05c61p-29f; // ln 2 to 48 bits
// Adding 1.5 * 2^23 rounds to an integer, which then stands in the low bits of the sum.
constexpr float kRound = 0x1.8p23f;
constexpr int32_t kRoundBits = 0x4b400000;

// (e^r - 1) / r on |r| <= 0.3475, to 2^-27.8 of e^r.
constexpr float kExp[] = {1.0f, 0.5f, 0x1.555464p-3f, 0x1.5552fap-5f, 0x1.125912p-7f, 0x1.6feedep-10f};

/// (1 + z) * s1 * s2, with z in [-0.3, 0.42] and powers of two s1, s2, each about the root of the whole: a product
/// with s2 that comes last is the only place where a subnormal value is rounded or a large one overflows. To leave
/// the sum with 1 to the product with a factor saves a rounding.
struct Scaled {
  F z, s1, s2;
  F value() const { return fma(z, s1, s1) * s2; }
  /// factor * value() / s2
  F timesPartial(F factor) const {
    F scaled = factor * s1;
    return fma(scaled, z, scaled);
  }
};

/// 2^(n + offset) for t = n + kRound.
F powerOfTwo(F t, int32_t offset = 0) { return fromBits((bits(t) - (kRoundBits - 127 - offset)) << 23); }

Scaled scaled(F r, F t) {
  I n = bits(t) - kRoundBits;
  I half = shrS(n, 1);
  return {r * horner(r, kExp), fromBits((half + 127) << 23), fromBits((n - half + 127) << 23)};
}

/// x = n ln 2 + r. n * kLn2 is exact within the fma, and so is the first difference: both are multiples of the last
/// place of the smaller one (Cody and Waite).
struct Reduced {
  F t, r;
};
Reduced reduce(F x) {
  F t = fma(x, kLog2E, kRound);
  F n = t - kRound;
  F r = fma(n, -kLn2, x);
  return {t, fma(n, -kLn2Low, r)};
}

/// e^(x + low) for |x| < 200, |low| < 2^-10.
Scaled expParts(F x) {
  Reduced y = reduce(x);
  return scaled(y.r, y.t);
}
Scaled expParts(F x, F low) {
  Reduced y = reduce(x);
  return scaled(y.r + low, y.t);
}

/// 2^x for x in [-126, 127].
F exp2Normal(F x) {
  F t = x + kRound;
  F f = x - (t - kRound);
  F r = f * kLn2;
  return fma(r, horner(r, kExp), 1.0f) * powerOfTwo(t);
}

/// False for NaN and both zeros.
B isNegative(F x) { return lt(x, 0.0f); }

/// x where that is positive, else 0, from |x| / 2 + x / 2: gives NaN for NaN and for -inf, which is what x times a
/// function that vanishes there gives (in PyTorch as well).
F positivePart(F x) { return fma(abs(x), 0.5f, x * 0.5f); }

/// x * sigmoid(y) for y of x's sign, e = e^-|y|: (x >= 0 ? x : x e) / (1 + e). `magnitude` is |x| up to where the
/// result for -|x| is zero; the second scale of e comes last, since e can be subnormal where the product is not.
F timesSigmoid(F x, F magnitude, const Scaled &e) {
  B negative = isNegative(x);
  F r = reciprocal(e.value() + 1.0f);
  F result = select(negative, e.timesPartial(magnitude), x) * r;
  F signedResult = orSign(result * select(negative, e.s2, 1.0f), x);
  return select(eq(x, -__builtin_inff()), __builtin_nanf(""), signedResult);
}

} // namespace

F expF32(F x) {
  // Below -104 the result rounds to zero, above 89 to infinity.
  return expParts(atMost(atLeast(x, -104.0f), 89.0f)).value();
}

F exp2F32(F x) {
  x = atMost(atLeast(x, -151.0f), 129.0f);
  F t = x + kRound;
  F f = x - (t - kRound); // exact
  return scaled(f * kLn2, t).value();
}

F expm1F32(F x) {
  // (e^r - 1) on |r| <= 0.348: 2^-30.8. With h = 2^(n-1): e^x - 1 = 2 (h (e^r - 1) + h - 1/2).
  constexpr float kExpm1[] = {0x1.0p-1f,     0x1.555556p-3f,  0x1.5554ep-5f,
                              0x1.110efp-7f, 0x1.6d599ep-10f, 0x1.a5021cp-13f};
  Reduced y = reduce(atMost(atLeast(x, -25.0f), 89.0f));
  F p = fma(y.r * y.r, horner(y.r, kExpm1), y.r);
  F h = powerOfTwo(y.t, -1);
  F sum = fma(h, p, h - 0.5f);
  return orSign(sum + sum, x);
}

F tanhF32(F x) {
  // x + x^3 P(x^2) on [0, 0.65]: 2^-27.1. Above, 1 - 2 / (e^2x + 1); 1 from 9.1 on.
  constexpr float kTanh[] = {-0x1.555524p-2f, 0x1.1103fp-3f, -0x1.b7cfb2p-5f, 0x1.4f5d36p-6f, -0x1.6968fap-8f};
  F a = abs(x);
  F square = a * a;
  F small = fma(a * square, horner(square, kTanh), a);
  F limited = atMost(a, 10.0f);
  Reduced y = reduce(limited + limited);
  F e = fma(y.r, horner(y.r, kExp), 1.0f) * powerOfTwo(y.t);
  F large = fma(reciprocal(e + 1.0f), -2.0f, 1.0f);
  return orSign(select(lt(a, 0.65f), small, large), x);
}

F sigmoidF32(F x) {
  F e = expParts(-atMost(abs(x), 105.0f)).value();
  return select(isNegative(x), e, 1.0f) * reciprocal(e + 1.0f);
}

F siluF32(F x) {
  F a = atMost(abs(x), 110.0f);
  return timesSigmoid(x, a, expParts(-a));
}

F softplusF32(F x) {
  // log(1 + e) / e on [0, 1]: 2^-30.1. log(1 + e^x) = max(x, 0) + log(1 + e^-|x|).
  constexpr float kLog1p[] = {1.0f,           -0x1.fffff8p-2f, 0x1.5553b6p-2f, -0x1.ffc59ep-3f,
                              0x1.978b54p-3f, -0x1.4a72b2p-3f, 0x1.ff28d6p-4f, -0x1.54f162p-4f,
                              0x1.58ff2p-5f,  -0x1.c0a19p-7f,  0x1.1135b4p-9f};
  F e = expParts(-atMost(abs(x), 105.0f)).value();
  return fma(e, horner(e, kLog1p), atLeast(x, 0.0f));
}

F erfF32(F x) {
  // erf x / x - 1 on [0, 1]: 2^-29.4; log2(erfc x) on [0.9, 4], relative to erf: 2^-29.1; 1 from 3.93 on.
  constexpr float kSmall[] = {0x1.06eba8p-3f, -0x1.81273ep-2f,  0x1.ce2ce6p-4f, -0x1.b7f71ap-6f,
                              0x1.53f224p-8f, -0x1.a3515ep-11f, 0x1.4771fcp-14f};
  constexpr float kLarge[] = {-0x1.f79f12p-13f, -0x1.a0877ep+0f, -0x1.d6823ap-1f, -0x1.339e46p-3f,
                              0x1.07bbb8p-5f,   -0x1.21d60ep-8f, 0x1.2bdbb2p-12f};
  F a = abs(x);
  F small = fma(a, horner(a * a, kSmall), a);
  F large = 1.0f - exp2Normal(horner(atMost(a, 4.0f), kLarge));
  return orSign(select(lt(a, 1.0f), small, large), x);
}

F geluErfF32(F x) {
  // |x| < 1: x (1/2 + x R(x^2)), R to 2^-28.4 relative to Phi(-|x|). Else, with a = |x| and Q(a) = Phi(-a): max(x, 0)
  // - a Q(a), where a Q(a) = G(1 / (a + 2)) e^(-a^2/2), G to 2^-27.0 on a in [1, 14.5]. G, which is near 0.4 and
  // varies slowly, passes on little of the error of its operand or of its own higher terms. The square is carried to
  // 48 bits.
  constexpr float kSmall[] = {0x1.988454p-2f,   -0x1.105862p-4f, 0x1.46d558p-7f,
                              -0x1.376eb2p-10f, 0x1.e26d7ep-14f, -0x1.1224bep-17f};
  constexpr float kMills[] = {0x1.98876p-2f,   -0x1.a5787ap-11f, -0x1.80382cp-2f, -0x1.fce8aep+0f, 0x1.92238ep-2f,
                              -0x1.caaab2p+4f, 0x1.b3a07cp+6f,   -0x1.3443e6p+7f, 0x1.45d882p+6f};
  F small = x * fma(x, horner(x * x, kSmall), 0.5f);
  F a = atMost(abs(x), 14.5f);
  F square = a * a;
  F low = fma(a, a, -square);
  Scaled e = expParts(square * -0.5f, low * -0.5f);
  F d = a + 2.0f;
  F q = e.timesPartial(horner(reciprocal(d), kMills));
  F large = orSign(fma(-q, e.s2, positivePart(x)), x);
  return select(lt(abs(x), 1.0f), small, large);
}

F geluTanhF32(F x) {
  // x sigmoid(2u), 2u = x (c1 + c2 x^2), where e^-2u needs 2u to about 32 bits: c1 + c2 x^2 as a sum of two f32
  // (two-sum by Knuth, two-product by fma). c1 = 2 sqrt(2/pi), c2 = 0.044715 c1.
  constexpr float c1 = 0x1.988454p+0f, c1Low = -0x1.857936p-25f;
  constexpr float c2 = 0x1.2444f2p-4f, c2Low = 0x1.49b16ap-29f;
  F a = atMost(abs(x), 11.0f);
  F u = a * a;
  F uLow = fma(a, a, -u);
  F m = u * c2;
  F mLow = fma(u, c2, -m);
  F s = m + c1;
  F back = s - c1;
  F sLow = (c1 - (s - back)) + (m - back);
  sLow = fma(u, c2Low, fma(uLow, c2, sLow + (mLow + c1Low)));
  F y = a * s;
  F yLow = fma(a, sLow, fma(a, s, -y));
  return timesSigmoid(x, a, expParts(-y, -yLow));
}

// What follows is for NVPTX with a 16-bit result. ex2 and rcp err by 2^-22 at most, and the product with log2(e) by
// 2^-18 where the result is near the ends of bf16's range, 2^-20.5 near those of f16's.

F exp16(F x) { return x.emitter->perLane("llvm.nvvm.ex2.approx", {x * kLog2E}); }

F expTerm(F x) { return ex2Ftz(fma(x, kLog2E, 24.0f)); }

F tanh16(F x) {
  // x + x^3 P(x^2) on [0, 0.5]: 2^-20.6.
  constexpr float kTanh[] = {-0x1.5547c6p-2f, 0x1.0e7232p-3f, -0x1.6e99c2p-5f};
  F a = abs(x);
  F square = a * a;
  F small = fma(a * square, horner(square, kTanh), a);
  F large = fma(rcpFtz(ex2Ftz(a * (2 * kLog2E)) + 1.0f), -2.0f, 1.0f);
  return orSign(select(lt(a, 0.5f), small, large), x);
}

namespace {

/// E = 2^(y + offset) for y <= 0, and 1 / (1 + 2^y). In bf16 the results for negative operands are in range where 2^y
/// is subnormal, which ex2.ftz flushes: an offset of 24 keeps E normal, and costs nothing but accuracy that bf16 does
/// not need.
struct Offset {
  F e, r;
  float unscale;
};
Offset offsetExp(F magnitude, float minusScale, bool bf16) {
  if (!bf16) {
    F e = ex2Ftz(magnitude * minusScale);
    return {e, rcpFtz(e + 1.0f), 1.0f};
  }
  F e = ex2Ftz(fma(magnitude, minusScale, 24.0f));
  return {e, rcpFtz(fma(e, 0x1p-24f, 1.0f)), 0x1p-24f};
}

/// x sigmoid(y) with y of x's sign.
F timesSigmoid16(F x, const Offset &o) {
  F product = x * o.e;
  if (o.unscale != 1.0f)
    product = product * o.unscale;
  return select(isNegative(x), product, x) * o.r;
}

} // namespace

F sigmoid16(F x, bool bf16) {
  Offset o = offsetExp(abs(x), -kLog2E, bf16);
  F e = o.unscale == 1.0f ? o.e : o.e * o.unscale;
  return select(isNegative(x), e, 1.0f) * o.r;
}

F silu16(F x, bool bf16) { return timesSigmoid16(x, offsetExp(abs(x), -kLog2E, bf16)); }

F geluTanh16(F x, bool bf16) {
  constexpr float c1 = 0x1.26aec2p+1f, c2 = 0x1.a5a7dp-4f; // as in geluTanhF32, times log2(e)
  F a = abs(x);
  F slope = fma(x * x, c2, c1);
  if (!bf16) {
    F e = ex2Ftz(a * -slope);
    return timesSigmoid16(x, {e, rcpFtz(e + 1.0f), 1.0f});
  }
  F e = ex2Ftz(fma(a, -slope, 24.0f));
  return timesSigmoid16(x, {e, rcpFtz(fma(e, 0x1p-24f, 1.0f)), 0x1p-24f});
}

F softplus16(F x, bool bf16) {
  // log(1 + e) / e on [0, 1]: 2^-19.4 for bf16, 2^-24.8 for f16.
  constexpr float kShort[] = {1.0f,           -0x1.ffe7bep-2f, 0x1.535ba2p-2f, -0x1.e38f6ep-3f,
                              0x1.354e0cp-3f, -0x1.15eb4ap-4f, 0x1.de0838p-7f};
  constexpr float kLong[] = {1.0f,           -0x1.ffff14p-2f, 0x1.5535dep-2f, -0x1.fd1368p-3f,
                             0x1.884552p-3f, -0x1.19af84p-3f, 0x1.447056p-4f, -0x1.eca32ap-6f,
                             0x1.5fa062p-8f};
  F e = x.emitter->perLane("llvm.nvvm.ex2.approx", {abs(x) * -kLog2E});
  F p = bf16 ? horner(e, kShort) : horner(e, kLong);
  return fma(e, p, atLeast(x, 0.0f));
}

F erf16(F x) {
  // As erfF32; 2^-24.6 and 2^-25.1.
  constexpr float kSmall[] = {0x1.06eba2p-3f,  -0x1.81267p-2f, 0x1.ce089p-4f,
                              -0x1.b59a8ap-6f, 0x1.421a1p-8f,  -0x1.26a268p-11f};
  constexpr float kLarge[] = {-0x1.5896ap-9f,  -0x1.9dcbe2p+0f, -0x1.e076d4p-1f,
                              -0x1.0dd364p-3f, 0x1.71fb2ep-6f,  -0x1.dd0c24p-10f};
  F a = abs(x);
  F small = fma(a, horner(a * a, kSmall), a);
  F large = 1.0f - ex2Ftz(horner(atMost(a, 4.0f), kLarge));
  return orSign(select(lt(a, 1.0f), small, large), x);
}

F geluErf16(F x, bool bf16) {
  // max(x, 0) - a Q(a) with a Q(a) = a / (a + 3) P(1 / (a + 3)) e^(-a^2/2): P to 2^-21.4 on [0, 6] for f16 and
  // 2^-17.8 on [0, 13.6] for bf16, and 25 times closer than that towards a = 0, where most 16-bit operands lie. In
  // bf16 the exponential stays scaled by 2^24 until the end, as in Offset.
  constexpr float kF16[] = {0x1.9accb8p-2f, 0x1.1c16cap+0f,  0x1.274654p+2f, -0x1.521e4cp+2f,
                            0x1.273b18p+6f, -0x1.339ebap+7f, 0x1.85ec18p+6f};
  constexpr float kBF16[] = {0x1.994cf2p-2f, 0x1.2873acp+0f,  0x1.fd19a2p+1f, -0x1.fb93dap-1f,
                             0x1.d1222ap+5f, -0x1.f17b16p+6f, 0x1.2c9c54p+6f};
  F a = atMost(abs(x), 32.0f);
  F exponent = x * (-0.5f * kLog2E);
  F t = rcpFtz(a + 3.0f);
  if (!bf16) {
    F q = a * t * horner(t, kF16);
    return orSign(fma(-q, ex2Ftz(exponent * x), positivePart(x)), x);
  }
  F q = a * t * horner(t, kBF16) * ex2Ftz(fma(exponent, x, 24.0f));
  return orSign(fma(q, -0x1p-24f, positivePart(x)), x);
}

} // namespace rl::mathx
