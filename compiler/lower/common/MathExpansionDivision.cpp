// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// fmod, remainder, floor_divide, and a quotient and a root without a subroutine.
#include "compiler/lower/common/MathExpansionBuilder.h"

#include "mlir/Dialect/SCF/IR/SCF.h"

#include <limits>

using namespace mlir;

namespace rl::mathx {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// a = m 2^e with m in [1, 2), for a positive and finite.
struct Normalised {
  F m;
  I e;
};
Normalised normalise(F a) {
  B subnormal = lt(a, 0x1p-126f);
  I b = bits(select(subnormal, a * 0x1p24f, a));
  return {fromBits((b & 0x7fffff) | 0x3f800000), shrS(b, 23) - select(subnormal, 127 + 24, 127)};
}

F powerOfTwo(I n) { return fromBits((n + 127) << 23); }

} // namespace

// Long division in base 2^20, exact: m_a 2^d mod m_b by d = e_a - e_b doublings, 20 at a time. Each step multiplies the
// remainder r < m_b by 2^20 and takes off a multiple of m_b with one fma. The quotient, below 2^20, comes from a
// reciprocal that is too large by 0.75 to 2.25 * 2^-22, all roundings counted: it is the right one or one too many,
// and one addition mends that. r is a multiple of 2^-23 below 2 throughout, so nothing rounds. At most 14 steps; one
// where a / b is below 2^20.
F fmodF32(F a, F b) {
  Emitter &em = *a.emitter;
  OpBuilder &builder = em.builder;
  F x = abs(a), y = abs(b);
  Normalised nx = normalise(x), ny = normalise(y);
  F inverse = reciprocal(ny.m);
  inverse = fma(inverse, 0x1.8p-22f, inverse);
  F start = select(lt(nx.m, ny.m), nx.m, nx.m - ny.m);
  I distance = nx.e - ny.e;

  auto loop = scf::WhileOp::create(
      builder, em.loc, TypeRange{start.value.getType(), distance.value.getType()},
      ValueRange{start.value, distance.value},
      [&](OpBuilder &inner, Location loc, ValueRange state) {
        OpBuilder::InsertionGuard guard(builder);
        builder.restoreInsertionPoint(inner.saveInsertionPoint());
        scf::ConditionOp::create(builder, loc, em.any(gtS(em.wrapInt(state[1]), 0)), state);
      },
      [&](OpBuilder &inner, Location loc, ValueRange state) {
        OpBuilder::InsertionGuard guard(builder);
        builder.restoreInsertionPoint(inner.saveInsertionPoint());
        F r = em.wrap(state[0]);
        I left = em.wrapInt(state[1]);
        F scaled = r * powerOfTwo(minS(maxS(left, 0), 20)); // by 1 where another lane is not done
        F q = trunc(scaled * inverse);
        F next = fma(-q, ny.m, scaled);
        next = select(lt(next, 0.0f), next + ny.m, next);
        scf::YieldOp::create(builder, loc, ValueRange{next.value, (left - 20).value});
      });

  I half = shrS(ny.e, 1);
  F r = em.wrap(loop.getResult(0)) * powerOfTwo(half) * powerOfTwo(ny.e - half); // exact, in subnormals too
  F result = orSign(select(lt(x, y), x, r), a);
  B defined = lt(x, kInfinity) & gt(y, 0.0f);
  return select(defined, result, kNan);
}

F remainderF32(F a, F b) {
  F r = fmodF32(a, b);
  B opposite = ltS(bits(r) ^ bits(b), 0);
  F moved = select(opposite, r + b, r);
  // A zero takes the divisor's sign.
  return select(eq(r, 0.0f), orSign(a.emitter->f(0.0f), b), moved);
}

// floor of the quotient itself, then rounded. With q the rounded quotient and n = floor(q), the quotient is n + rest
// / b for rest = a - n b, whose sign the fma gets right (a non-zero rest is at least 2^-149); below 2^23 it can only
// lie just under n, where q was rounded up to it. Above, rest is exact, and floor(rest / b) is what n lacks.
F floorDivideF32(F a, F b, llvm::function_ref<F(F, F)> divide) {
  F q = divide(a, b);
  F n = floor(q);
  F rest = fma(-n, b, a);
  B under = ltS(bits(rest) ^ bits(b), 0) & !eq(rest, 0.0f);
  F small = select(under, n - 1.0f, n);
  F large = n + floor(divide(rest, b));
  F magnitude = abs(q);
  F result = select(lt(magnitude, 0x1p23f), small, large);
  // An infinite quotient stays; an infinite divisor gives -1 for a dividend of the other sign, else 0.
  result = select(lt(magnitude, kInfinity), result, q);
  F ofInfinite = select(ltS(bits(a) ^ bits(b), 0), -1.0f, 0.0f);
  result = select(eq(abs(b), kInfinity), select(eq(a, 0.0f), q, ofInfinite), result);
  B undefined = isNan(a) | isNan(b) | (eq(abs(a), kInfinity) & !eq(b, 0.0f));
  return select(undefined, kNan, result);
}

// Both are brought to [2^-56, 2^56] by powers of two, where no quotient, and no rest of one, leaves the range. The quotient from the
// reciprocal is mended by its rest twice, after which it is the rounded one (Markstein, "IA-64 and elementary functions", 2000,
// chapter 8). Multiplied by the powers of two again it is right where it is normal. Below, it would be rounded twice: there its
// mantissa, with two bits more that tell on which side of it the quotient lies, is rounded once, as an integer.
F quotientF32(F a, F b) {
  Emitter &em = *a.emitter;
  constexpr auto kSign = static_cast<int32_t>(0x80000000);
  B smallA = lt(abs(a), 0x1p-40f), largeA = gt(abs(a), 0x1p40f), smallB = lt(abs(b), 0x1p-40f),
    largeB = gt(abs(b), 0x1p40f);
  auto factor = [&](B small, float ifSmall, B large, float ifLarge) {
    return select(small, ifSmall, select(large, ifLarge, em.f(1.0f)));
  };
  auto exponent = [&](B small, B large) { return select(small, 96, select(large, -96, em.i(0))); };
  F byA = factor(smallA, 0x1p96f, largeA, 0x1p-96f), byB = factor(smallB, 0x1p96f, largeB, 0x1p-96f);
  F x = a * byA, y = b * byB, inverse = reciprocal(y);
  F q = x * inverse;
  q = fma(fma(-q, y, x), inverse, q);
  q = fma(fma(-q, y, x), inverse, q);
  B alike = eq(byA, byB);
  F result = q * select(alike, 1.0f, byB) * select(alike, 1.0f, factor(smallA, 0x1p-96f, largeA, 0x1p96f));

  F rest = fma(-q, y, x);
  I side = select(eq(rest, 0.0f), 0, select(ltS(bits(rest) ^ bits(x), 0), -1, em.i(1)));
  I mantissa = (((bits(q) & 0x7fffff) | 0x800000) << 2) + side;
  I e = shrU(bits(q) & 0x7fffffff, 23) - 127 + exponent(smallB, largeB) - exponent(smallA, largeA);
  I lost = maxS(minS(em.i(-126) - e, 26), 1) + 2; // bits
  I half = em.i(1) << (lost - 1);
  I rounded = shrU(mantissa + half - 1 + (shrU(mantissa, lost) & 1), lost);
  result = select(ltS(e, -126), fromBits(rounded | ((bits(x) ^ bits(y)) & kSign)), result);

  // By zero, by an infinity, of such: what the signs and NaN of a product with the reciprocal are.
  I sign = bits(y) & kSign;
  F partner = select(eq(y, 0.0f), fromBits(sign | 0x7f800000), select(eq(abs(y), kInfinity), fromBits(sign), y));
  B ordinary = gt(abs(x), 0.0f) & lt(abs(x), kInfinity) & gt(abs(y), 0.0f) & lt(abs(y), kInfinity);
  return select(ordinary, result, x * partner);
}

// From the approximation of 1 / sqrt and one step by the rest of its root: what ptxas makes of sqrt.rn itself where a number is
// at least 2^-101, and right there. Smaller ones are brought there by a power of four.
F rootF32(F x) {
  Emitter &em = *x.emitter;
  B small = lt(x, 0x1p-96f);
  F y = x * select(small, 0x1p64f, 1.0f);
  F inverse = em.target.nvptx ? em.perLane("llvm.nvvm.rsqrt.approx.ftz.f", {y}) : em.f(1.0f) / sqrt(y);
  F root = y * inverse;
  root = fma(fma(-root, root, y), inverse * 0.5f, root);
  F other = select(lt(x, 0.0f), kNan, x); // zeros, infinity and NaN are their own
  return select(gt(x, 0.0f) & lt(x, kInfinity), root * select(small, 0x1p-32f, 1.0f), other);
}

} // namespace rl::mathx
