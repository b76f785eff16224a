// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// sin, cos and atan2. The polynomials are fitted as MathExpansionExp.cpp says.
#include "compiler/lower/common/MathExpansionBuilder.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

#include <limits>

using namespace mlir;

namespace rl::mathx {
namespace {

/// |x| = k pi/2 + r with r in about [-pi/4, pi/4] and q = k modulo 4 in its low two bits.
struct Quadrant {
  F r;
  I q;
};

/// Up to this magnitude the reduction by three constants is exact to an ulp of r; sin and cos of larger operands take
/// a branch.
constexpr float kCodyWaiteLimit = 131072.0f;

/// Cody and Waite with fma: k < 2^17, so that k times the first 24 bits of pi/2 and its difference from x are exact
/// in the first fma; the rest of pi/2 is good to 2^-76.
Quadrant reduceByConstants(F x) {
  constexpr float kRound = 0x1.8p23f;
  F t = fma(x, 0x1.45f306p-1f, kRound);
  F k = t - kRound;
  F r = fma(k, -0x1.921fb6p+0f, x);
  r = fma(k, 0x1.777a5cp-25f, r);
  r = fma(k, 0x1.ee59dap-50f, r);
  return {r, bits(t)};
}

/// Payne and Hanek: x = M 2^(e-23), and x 2/pi modulo 4 needs only 96 bits of 2/pi, from the first whose product with M
/// is not a multiple of 4. For x in [2^17, infinity); anything comes out below that and for NaN and infinity.
Quadrant reduceByTable(F x) {
  Emitter &em = *x.emitter;
  // One word of zeros, then the bits of 2/pi after the binary point.
  constexpr uint32_t kTwoOverPi[] = {0,          0xa2f9836e, 0x4e441529, 0xfc2757d1,
                                     0xf534ddc0, 0xdb629599, 0x3c439041, 0xfe5163ab};
  I b = bits(x);
  I mantissa = (b & 0x7fffff) | 0x800000;
  I first = shrU(b, 23) - 120; // e + 7, the index of the first bit
  I word = shrU(first, 5) & 7;
  I shift = first & 31;
  std::vector<I> table;
  for (uint32_t w : kTwoOverPi)
    table.push_back(em.i(static_cast<int32_t>(w)));
  for (int bit = 1; bit <= 4; bit *= 2) { // table[i] becomes table[i + word]
    B set = !eq(word & bit, 0);
    size_t wanted = bit == 1 ? 6 : 4; // what the later steps and the window read for words up to 4
    for (size_t i = 0; i < wanted && i + bit < table.size(); ++i)
      table[i] = select(set, table[i + bit], table[i]);
  }
  L window[3];
  I back = em.i(31) - shift;
  for (int i = 0; i < 3; ++i)
    window[i] = extendU((table[i] << shift) | shrU(shrU(table[i + 1], 1), back));
  L m = extendU(mantissa);
  // The fraction of a full turn, in units of 2^-64.
  L turn = (m * window[0] << 32) + m * window[1] + shrU(m * window[2], 32);
  I q = truncate(shrU(turn + em.l(int64_t{1} << 61), 62));
  F r = toFloat(turn << 2) * 0x1.921fb6p-64f;
  return {r, q};
}

Quadrant reduceQuadrant(F x) {
  Emitter &em = *x.emitter;
  OpBuilder &b = em.builder;
  Quadrant fast = reduceByConstants(x);
  B large = !le(x, em.f(kCodyWaiteLimit));
  auto branch = scf::IfOp::create(
      b, em.loc, em.any(large),
      [&](OpBuilder &inner, Location loc) {
        OpBuilder::InsertionGuard guard(b);
        b.restoreInsertionPoint(inner.saveInsertionPoint());
        Quadrant slow = reduceByTable(x);
        F r = select(large, slow.r, fast.r);
        I q = select(large, slow.q, fast.q);
        scf::YieldOp::create(b, loc, ValueRange{r.value, q.value});
      },
      [&](OpBuilder &inner, Location loc) {
        scf::YieldOp::create(inner, loc, ValueRange{fast.r.value, fast.q.value});
      });
  return {em.wrap(branch.getResult(0)), em.wrapInt(branch.getResult(1))};
}

} // namespace

F sinCos(F x, bool cosine) {
  // On |r| <= 0.8: sin r = r + r^3 S(r^2), 2^-27.7; cos r = 1 - r^2/2 + r^4 C(r^2), 2^-32.6.
  constexpr float kSin[] = {-0x1.555544p-3f, 0x1.1106aep-7f, -0x1.990f92p-13f};
  constexpr float kCos[] = {1.0f, -0.5f, 0x1.555548p-5f, -0x1.6c0af4p-10f, 0x1.99911cp-16f};
  F a = abs(x);
  Quadrant y = reduceQuadrant(a);
  F square = y.r * y.r;
  F sine = fma(y.r * square, horner(square, kSin), y.r);
  F cosineValue = horner(square, kCos);
  // Quadrants of cos: cos, -sin, -cos, sin; of sin: sin, cos, -sin, -cos.
  I q = cosine ? y.q + 1 : y.q;
  F value = select(eq(y.q & 1, cosine ? 1 : 0), sine, cosineValue);
  I sign = (q & 2) << 30;
  if (!cosine)
    sign = sign ^ (bits(x) & std::numeric_limits<int32_t>::min());
  F result = fromBits(bits(value) ^ sign);
  return select(lt(a, std::numeric_limits<float>::infinity()), result, std::numeric_limits<float>::quiet_NaN());
}

F atan2F32(F y, F x) {
  // atan q = q + q^3 P(q^2) on [0, 1]: 2^-28.5.
  constexpr float kAtan[] = {-0x1.55553ep-2f, 0x1.9991e4p-3f,  -0x1.242084p-3f, 0x1.c08c1ap-4f,  -0x1.580816p-4f,
                             0x1.da24e2p-5f,  -0x1.fd7024p-6f, 0x1.6411a6p-7f,  -0x1.d32fbcp-10f};
  constexpr float halfPi = 0x1.921fb6p+0f, halfPiLow = -0x1.777a5cp-25f;
  F ax = abs(x), ay = abs(y);
  B steep = lt(ax, ay);
  F large = select(steep, ay, ax), small = select(steep, ax, ay);
  // Two infinities count as equal, two zeros as 0 / positive.
  F q = select(eq(large, small), select(eq(large, 0.0f), 0.0f, 1.0f), small / large);
  F square = q * q;
  F r = fma(q * square, horner(square, kAtan), q);
  r = select(steep, halfPi - (r - halfPiLow), r);
  B left = ltS(bits(x), 0); // -0 too
  r = select(left, 2 * halfPi - (r - 2 * halfPiLow), r);
  return select(isNan(x) | isNan(y), std::numeric_limits<float>::quiet_NaN(), orSign(r, y));
}

} // namespace rl::mathx
