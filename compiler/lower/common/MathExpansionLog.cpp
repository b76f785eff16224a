// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// log, log2, log1p and pow. The polynomials are fitted as MathExpansionExp.cpp says.
#include "compiler/lower/common/MathExpansionBuilder.h"

#include <limits>

namespace rl::mathx {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kLn2 = 0x1.62e43p-1f;
constexpr float kLog2E = 0x1.715476p+0f, kLog2ELow = 0x1.4ae0cp-26f;

/// log(1 + f) for f in [-1/3, 1/3]: f + f^2 P(f), 2^-27.6.
F logNearOne(F f) {
  constexpr float kLog[] = {-0x1.0p-1f,    0x1.5554fap-2f,  -0x1.ffff94p-3f, 0x1.99d588p-3f, -0x1.557e34p-3f,
                            0x1.1e82ep-3f, -0x1.f6b108p-4f, 0x1.1ff644p-3f,  -0x1.ffa0fep-4f};
  return fma(f * f, horner(f, kLog), f);
}

/// x = 2^n m with m in [low, 2 low), for x positive and finite; `lowBits` are the bits of `low`, a float in (1/2, 1).
struct Split {
  F n, m;
};
Split split(F x, int32_t lowBits) {
  B subnormal = lt(x, 0x1p-126f);
  I b = bits(select(subnormal, x * 0x1p23f, x));
  I exponent = (b - lowBits) & static_cast<int32_t>(0xff800000);
  return {fma(toFloat(exponent), 0x1p-23f, select(subnormal, -23.0f, 0.0f)), fromBits(b - exponent)};
}

/// `result` where x is positive and finite; else -inf at zero, NaN below it, and x itself for +inf and NaN.
F outsideLogDomain(F x, F result) {
  B inside = ltU(bits(x) - 1, 0x7f7fffff);
  F special = select(lt(x, 0.0f), kNan, select(eq(x, 0.0f), -kInfinity, x));
  return select(inside, result, special);
}

constexpr int32_t kTwoThirds = 0x3f2aaaab;

} // namespace

F logF32(F x) {
  Split s = split(x, kTwoThirds);
  return outsideLogDomain(x, fma(s.n, kLn2, logNearOne(s.m - 1.0f)));
}

F log2F32(F x) {
  Split s = split(x, kTwoThirds);
  F r = logNearOne(s.m - 1.0f);
  // The low part counts where n is 0; elsewhere it vanishes in n, and n alone is exact.
  return outsideLogDomain(x, fma(r, kLog2E, fma(r, kLog2ELow, s.n)));
}

F log16(F x, bool base2) {
  // lg2 errs by 2^-22 in [1/2, 2], too much near 1: there, log(1 + f) = f - f^2/2 + f^3/3 - f^4/4, 2^-18 for |f| <
  // 1/16.
  constexpr float kNatural[] = {1.0f, -0x1p-1f, 0x1.555556p-2f, -0x1p-2f};
  constexpr float kBinary[] = {0x1.715476p+0f, -0x1.715476p-1f, 0x1.ec709ep-2f, -0x1.715476p-2f};
  F f = x - 1.0f;
  F near = f * (base2 ? horner(f, kBinary) : horner(f, kNatural));
  F far = x.emitter->perLane("llvm.nvvm.lg2.approx.f", {x});
  return select(lt(abs(f), 0.0625f), near, base2 ? far : far * kLn2);
}

F log1pF32(F x) {
  // 1 + x = 2^n m would lose x's low bits; but its exponent is right, and f = x 2^-n + (2^-n - 1) is rounded once.
  // Scaling by a change of the exponent bits is exact: n is not 0 only where |x| >= 1/3. From n = 127 on, 2^-n counts
  // as 0.
  I exponent = (bits(x + 1.0f) - kTwoThirds) & static_cast<int32_t>(0xff800000);
  F f = fromBits(bits(x) - exponent) + (fromBits(maxS(x.emitter->i(0x3f800000) - exponent, 0)) - 1.0f);
  F result = orSign(fma(toFloat(exponent) * 0x1p-23f, kLn2, logNearOne(f)), x);
  B inside = lt(abs(x), kInfinity);
  F special = select(lt(x, -1.0f), kNan, select(eq(x, -1.0f), -kInfinity, x));
  return select(inside & gt(x, -1.0f), result, special);
}

F powF32(F x, F y) {
  // exp2(y log2|x|), where the logarithm and the product are sums of two f32: log2|x| to 2^-44 of it, so that an
  // exponent near 128 still has an absolute error near 2^-36. Two-products by fma, fast two-sums where the order of
  // magnitude is known.
  constexpr float twelfth = 0x1.555556p-4f, twelfthLow = -0x1.555556p-29f;
  // 2 atanh(s/2) = s + s^3 (1/12 + s^2 P(s^2)) on |s| <= 0.3445: 2^-36.7 of s.
  constexpr float kAtanh[] = {0x1.999a02p-7f, 0x1.2451a2p-9f, 0x1.dfcd4cp-12f};
  constexpr float kExp[] = {0.5f, 0x1.55553cp-3f, 0x1.5554f2p-5f, 0x1.1136f6p-7f, 0x1.6d4164p-10f, 0x1.6c119p-13f};
  constexpr float ln2Low = -0x1.05c61p-29f;
  constexpr int32_t kSqrtHalf = 0x3f3504f3;

  F a = abs(x);
  Split z = split(a, kSqrtHalf);
  // log m = 2 atanh(s/2), s = 2f / (2 + f), f = m - 1; the residual 2f - s(2 + f) is exact up to its last rounding.
  F f = z.m - 1.0f;
  F r = reciprocal(f + 2.0f);
  F s = (f + f) * r;
  F residual = f - s;
  residual = fma(-s, f, residual + residual);
  F sLow = residual * r;
  F q = s * s;
  F qLow = fma(s + s, sLow, fma(s, s, -q));
  F tail = q * horner(q, kAtanh);
  F c = tail + twelfth;
  F cLow = (twelfth - c) + tail + twelfthLow;
  F v = q * c;
  F vLow = fma(q, cLow, fma(qLow, c, fma(q, c, -v)));
  F w = v * s;
  F wLow = fma(vLow, s, fma(v, sLow, fma(v, s, -w)));
  F ln = s + w;
  F lnLow = (s - ln) + w + (sLow + wLow);
  F g = ln * kLog2E;
  F gLow = fma(lnLow, kLog2E, fma(ln, kLog2ELow, fma(ln, kLog2E, -g)));
  F log = z.n + g;
  F logLow = (z.n - log) + g + gLow;
  B zero = eq(a, 0.0f), infinite = eq(a, kInfinity);
  log = select(zero, -kInfinity, select(infinite, kInfinity, log));
  logLow = select(zero | infinite, 0.0f, logLow);

  F p = y * log;
  F pLow = fma(y, logLow, fma(y, log, -p));
  // Beyond 2^150 the result is zero or infinite whatever the low part is; there it may be NaN.
  pLow = select(lt(abs(p), 160.0f), pLow, 0.0f);
  p = atMost(atLeast(p, -160.0f), 160.0f);

  // 2^(p + pLow) = 2^n e^(t + tLow) with t + tLow = (p - n + pLow) ln 2, tLow what t lost in its roundings.
  constexpr float kRound = 0x1.8p23f;
  F rounded = p + kRound;
  F exact = p - (rounded - kRound);
  F fraction = exact + pLow;
  F t = fraction * kLn2;
  F tLow = fma(fraction, ln2Low, fma(fraction, kLn2, -t));
  tLow = fma((exact - fraction) + pLow, kLn2, tLow);
  F e = fma(t * t, horner(t, kExp), fma(t, tLow, tLow)) + t + 1.0f;
  I n = bits(rounded) - 0x4b400000;
  I half = shrS(n, 1);
  F magnitude = e * fromBits((half + 127) << 23) * fromBits((n - half + 127) << 23);

  // C99, F.9.4.4. An infinite y counts as an even integer.
  F halfY = y * 0.5f;
  B integer = eq(trunc(y), y);
  B odd = integer & ne(trunc(halfY), halfY);
  F result = select(odd, orSign(magnitude, x), magnitude);
  B undefined = lt(x, 0.0f) & gt(x, -kInfinity) & !integer;
  result = select(undefined | isNan(x) | isNan(y), kNan, result);
  B minusOne = eq(x, -1.0f) & eq(abs(y), kInfinity);
  return select(eq(y, 0.0f) | eq(x, 1.0f) | minusOne, 1.0f, result);
}

} // namespace rl::mathx
