// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Chooses the form of each function: one in f32 arithmetic, the same on every target, and for some a shorter one where
// the result is rounded to 16 bits: on the GPU by its special function unit, on the CPU by fewer operations.
#include "compiler/lower/common/MathExpansion.h"
#include "compiler/lower/common/MathExpansionBuilder.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <cassert>

using namespace mlir;

namespace rl {

/// The form for NVPTX and 16-bit results, or an empty value where there is none.
static mathx::F expandFor16Bits(MathFn fn, llvm::ArrayRef<mathx::F> a, bool bf16) {
  using namespace mathx;
  F x = a[0];
  Emitter &em = *x.emitter;
  switch (fn) {
  case MathFn::Exp: return exp16(x);
  case MathFn::Exp2: return em.perLane("llvm.nvvm.ex2.approx", {x});
  // f16 has too many values near 1 for lg2.
  case MathFn::Log:
  case MathFn::Log2: return bf16 ? log16(x, fn == MathFn::Log2) : F();
  case MathFn::Sqrt: return em.perLane("llvm.nvvm.sqrt.approx.f", {x});
  case MathFn::Rsqrt: return em.perLane("llvm.nvvm.rsqrt.approx.f", {x});
  case MathFn::Reciprocal: // the intrinsic exists only in the form that flushes subnormals
    return em.perLaneAsm("rcp.approx.f32 $0, $1;", x);
  case MathFn::Div: return em.perLane("llvm.nvvm.div.full", {x, a[1]});
  case MathFn::Tanh: return tanh16(x);
  case MathFn::Sigmoid: return sigmoid16(x, bf16);
  case MathFn::Silu: return silu16(x, bf16);
  case MathFn::Softplus: return softplus16(x, bf16);
  case MathFn::Erf: return erf16(x);
  case MathFn::GeluErf: return geluErf16(x, bf16);
  case MathFn::GeluTanh: return geluTanh16(x, bf16);
  default: return {};
  }
}

/// The form for the CPU and 16-bit results, or an empty value where there is none.
static mathx::F expandFor16BitsCpu(MathFn fn, mathx::F x, Rounding rounding) {
  using namespace mathx;
  switch (fn) {
  case MathFn::Exp: return expCpu16(x, rounding);
  case MathFn::Exp2: return exp2Cpu16(x, rounding);
  case MathFn::Tanh: return tanhCpu16(x, rounding);
  case MathFn::Sigmoid: return sigmoidCpu16(x, rounding);
  case MathFn::Silu: return siluCpu16(x, rounding);
  case MathFn::Softplus: return softplusCpu16(x, rounding);
  case MathFn::Erf: return rounding == Rounding::F16 ? F() : erfCpu16(x);
  case MathFn::GeluErf: return geluErfCpu16(x, rounding);
  case MathFn::GeluTanh: return geluTanhCpu16(x, rounding);
  default: return {};
  }
}

static mathx::F expandF32(MathFn fn, llvm::ArrayRef<mathx::F> a) {
  using namespace mathx;
  F x = a[0];
  Emitter &em = *x.emitter;
  switch (fn) {
  case MathFn::Exp: return expF32(x);
  case MathFn::Exp2: return exp2F32(x);
  case MathFn::Expm1: return expm1F32(x);
  case MathFn::Log: return logF32(x);
  case MathFn::Log2: return log2F32(x);
  case MathFn::Log1p: return log1pF32(x);
  case MathFn::Sqrt: return sqrt(x);
  case MathFn::Rsqrt: // 2^-22.9 on the GPU
    return em.target.nvptx ? em.perLane("llvm.nvvm.rsqrt.approx.f", {x}) : em.f(1.0f) / sqrt(x);
  case MathFn::Reciprocal: return em.f(1.0f) / x;
  case MathFn::Div: return x / a[1];
  case MathFn::Sin: return sinCos(x, false);
  case MathFn::Cos: return sinCos(x, true);
  case MathFn::Tanh: return tanhF32(x);
  case MathFn::Sigmoid: return sigmoidF32(x);
  case MathFn::Silu: return siluF32(x);
  case MathFn::Softplus: return softplusF32(x);
  case MathFn::Erf: return erfF32(x);
  case MathFn::GeluErf: return geluErfF32(x);
  case MathFn::GeluTanh: return geluTanhF32(x);
  case MathFn::Pow: return powF32(x, a[1]);
  case MathFn::Atan2: return atan2F32(x, a[1]);
  case MathFn::Fmod: return fmodF32(x, a[1]);
  case MathFn::Remainder: return remainderF32(x, a[1]);
  case MathFn::FloorDivide: return floorDivideF32(x, a[1], [](F p, F q) { return p / q; });
  case MathFn::Quotient: return quotientF32(x, a[1]);
  case MathFn::FloorQuotient: return floorDivideF32(x, a[1], quotientF32);
  case MathFn::Root: return rootF32(x);
  }
  llvm_unreachable("a value that is no MathFn");
}

Value expandMath(OpBuilder &builder, Location loc, MathFn fn, ValueRange args, Rounding rounding,
                 const MathTarget &target) {
  assert(static_cast<int>(args.size()) == mathArity(fn));
  mathx::Emitter emitter(builder, loc, args[0].getType(), target);
  llvm::SmallVector<mathx::F, 2> operands;
  for (Value v : args)
    operands.push_back(emitter.wrap(v));
  // The hardware's tanh errs by 2^-11 (PTX ISA, tanh.approx.f32): not enough to round from, enough to compute on with.
  if (target.nvptx && rounding == Rounding::BF16Inner && fn == MathFn::Tanh)
    return emitter.perLaneAsm("tanh.approx.f32 $0, $1;", operands[0]).value;
  if (rounding == Rounding::Term && fn == MathFn::Exp)
    return (target.nvptx ? mathx::expTerm(operands[0]) : mathx::expTermCpu(operands[0])).value;
  if (rounding != Rounding::F32)
    if (mathx::F fast = target.nvptx ? expandFor16Bits(fn, operands, rounding != Rounding::F16)
                                     : expandFor16BitsCpu(fn, operands[0], rounding);
        fast.value)
      return fast.value;
  return expandF32(fn, operands).value;
}

} // namespace rl
