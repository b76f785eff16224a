// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Internal to the math expansion: f32, i32, i64 and i1 values (scalars or vectors, all of one length) with C++
// operators that emit one arith operation each, so that the algorithms read as formulas. Nothing here contracts or
// reassociates: fma() is the only fused operation, and it is emitted only where it is written.
#pragma once

#include "compiler/lower/common/MathExpansion.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/Value.h"

#include <functional>
#include <utility>
#include <vector>

namespace rl::mathx {

class Emitter;

/// A value of one kind (K names the kind alone) with the emitter that operations on it go through.
template <int K> struct Typed {
  mlir::Value value;
  Emitter *emitter = nullptr;
};
using F = Typed<0>; ///< f32
using I = Typed<1>; ///< i32
using L = Typed<2>; ///< i64
using B = Typed<3>; ///< i1

class Emitter {
public:
  /// `like` is f32 (or i8, i16, i32), or a vector: the length of every value that is made.
  Emitter(mlir::OpBuilder &builder, mlir::Location loc, mlir::Type like, const MathTarget &target);

  F f(float constant);
  I i(int32_t constant);
  L l(int64_t constant);
  F wrap(mlir::Value v) { return {v, this}; }
  I wrapInt(mlir::Value v) { return {v, this}; }
  mlir::Type typeOf(mlir::Type element) const; ///< the element type, or a vector of it as long as `like`

  /// True where any lane of the mask is set; an i1 scalar.
  mlir::Value any(B mask);
  /// Calls an LLVM intrinsic of f32 operands and result once per lane.
  F perLane(llvm::StringRef intrinsic, llvm::ArrayRef<F> args);
  /// Emits inline PTX of one f32 operand and result once per lane.
  F perLaneAsm(llvm::StringRef text, F x);

  mlir::OpBuilder &builder;
  mlir::Location loc;
  const MathTarget target;
  const int64_t lanes; ///< 0: scalar

private:
  F overLanes(llvm::ArrayRef<F> args, llvm::function_ref<mlir::Value(mlir::ValueRange)> emit);
};

// f32 arithmetic. Signs: neg is an exact change of sign.
F operator+(F, F);
F operator-(F, F);
F operator*(F, F);
F operator/(F, F); ///< correctly rounded
F operator-(F);
F operator+(F, float);
F operator-(F, float);
F operator-(float, F);
F operator*(F, float);
F fma(F a, F b, F c); ///< a * b + c, rounded once
F fma(F a, float b, F c);
F fma(F a, float b, float c);
F fma(F a, F b, float c);
F abs(F);
F sqrt(F); ///< correctly rounded
F floor(F);
F trunc(F);
/// `value` with the sign bit set where that of `sign` is: copysign for a value whose sign bit is not set where
/// `sign`'s is not. Integers, because LLVM moves a copysign to the other side of a conversion to 16 bits, where it
/// costs ten instructions.
F orSign(F value, F sign);
/// Comparisons are ordered: false where an operand is NaN. ne() is unordered: true there.
B lt(F, F);
B lt(F, float);
B gt(F, float);
B le(F, F);
B eq(F, F);
B eq(F, float);
B ne(F, F);
B isNan(F);
/// min(x, bound) and max(x, bound) with the NaN of x kept; `bound` is no NaN.
F atMost(F x, float bound);
F atLeast(F x, float bound);

I bits(F);
F fromBits(I);
F toFloat(I); ///< signed, to nearest
F toFloat(L);
I operator+(I, I);
I operator-(I, I);
I operator&(I, I);
I operator|(I, I);
I operator^(I, I);
I operator+(I, int32_t);
I operator-(I, int32_t);
I operator&(I, int32_t);
I operator|(I, int32_t);
I operator<<(I, int32_t);
I operator<<(I, I);
I shrS(I, int32_t); ///< arithmetic
I shrU(I, int32_t); ///< logical
I shrU(I, I);
B ltS(I, I);
B ltS(I, int32_t);
B gtS(I, int32_t);
B ltU(I, int32_t);
B eq(I, int32_t);
I minS(I, int32_t);
I maxS(I, int32_t);
L extendU(I);
I truncate(L);
L operator+(L, L);
L operator*(L, L);
L operator<<(L, int64_t);
L shrU(L, int64_t);

B operator&(B, B);
B operator|(B, B);
B operator!(B);
F select(B, F, F);
F select(B, float, F);
F select(B, F, float);
F select(B, float, float);
I select(B, I, I);
I select(B, int32_t, I);
I select(B, int32_t, int32_t);

/// c[0] + c[1] x + c[2] x^2 + ..., by Horner's rule with fma.
F horner(F x, llvm::ArrayRef<float> c);
/// Horner's rule continued: ((start x + c[n-1]) x + ... ) x + c[0].
F horner(F x, F start, llvm::ArrayRef<float> c);

/// 1 / d and a / d to within 0.52 ulp (0.5 on the CPU) for d in [2^-60, 2^60] and quotients away from the ends of the
/// range.
F reciprocal(F d);

// NVPTX alone: the special function unit. Errors as the PTX manual gives them; "ftz" flushes subnormals.
F ex2Ftz(F); ///< 2^x, 2 ulp
F rcpFtz(F); ///< 1/x, 1 ulp

// Families, each in a file of its own. All take and give f32.
F expF32(F x);
F exp2F32(F x);
F expm1F32(F x);
F logF32(F x);
F log2F32(F x);
F log1pF32(F x);
F tanhF32(F x);
F sigmoidF32(F x);
F siluF32(F x);
F softplusF32(F x);
F erfF32(F x);
F geluErfF32(F x);
F geluTanhF32(F x);
F sinCos(F x, bool cosine);
F powF32(F x, F y);
F atan2F32(F y, F x);
F fmodF32(F a, F b);
F remainderF32(F a, F b);
F floorDivideF32(F a, F b, llvm::function_ref<F(F, F)> divide);
F quotientF32(F a, F b);
F rootF32(F x);

// The forms for NVPTX where the result is rounded to 16 bits; `bf16` where subnormal f32 results matter.
F exp16(F x);
F expTerm(F x);
F log16(F x, bool base2); ///< for bf16
F tanh16(F x);
F sigmoid16(F x, bool bf16);
F silu16(F x, bool bf16);
F softplus16(F x, bool bf16);
F erf16(F x);
F geluErf16(F x, bool bf16);
F geluTanh16(F x, bool bf16);

// The forms for the CPU where the result is rounded to 16 bits.
F expCpu16(F x, Rounding r);
F expTermCpu(F x);
F exp2Cpu16(F x, Rounding r);
F tanhCpu16(F x, Rounding r);
F sigmoidCpu16(F x, Rounding r);
F siluCpu16(F x, Rounding r);
F softplusCpu16(F x, Rounding r);
F erfCpu16(F x); ///< for bf16
F geluErfCpu16(F x, Rounding r);
F geluTanhCpu16(F x, Rounding r);

} // namespace rl::mathx
