// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Mathematics without libdevice and without libm: each function is expanded, at the level of vectors, into arith and
// math operations that LLVM selects directly; where the result is rounded to 16 bits into fewer of them, on NVPTX into
// the hardware's approximations where they are good enough. The error of every function is in ACCURACY.md, held by
// MathAccuracyTest.
#pragma once

#include <cstdint>

namespace mlir {
class Location;
class OpBuilder;
class Value;
class ValueRange;
} // namespace mlir

namespace rl {

/// The functions that need an expansion. They take one operand, and two where marked.
enum class MathFn : uint8_t {
  Exp,
  Exp2,
  Expm1,
  Log,
  Log2,
  Log1p,
  Sqrt,
  Rsqrt,
  Reciprocal,
  Div, ///< (a, b): a / b
  Sin,
  Cos,
  Tanh,
  Sigmoid,
  Silu,     ///< x * sigmoid(x), as one function
  Softplus, ///< log(1 + e^x)
  Erf,
  GeluErf,     ///< x * Phi(x), Phi the normal distribution function
  GeluTanh,    ///< x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))
  Pow,         ///< (x, y): x^y with the special cases of C99
  Atan2,       ///< (y, x)
  Fmod,        ///< (a, b): exact, sign of a
  Remainder,   ///< (a, b): sign of b (Python's and PyTorch's)
  FloorDivide, ///< (a, b): PyTorch's floor_divide
  // Without a call: NVPTX's division and root call a subroutine for numbers near the ends of the range.
  Quotient,      ///< (a, b): as Div
  FloorQuotient, ///< (a, b): as FloorDivide
  Root,          ///< as Sqrt
};

/// The type that the result is going to be rounded to. The 16-bit ones permit cheaper code where the target has some;
/// the value handed back is an unrounded f32 all the same.
/// BF16Inner is a bf16 result of a fused graph that stays in registers, so that it is not rounded: an error of 2^-11, a
/// quarter of what rounding it would cost, is allowed.
/// Term is a summand of a quotient or logarithm that is rounded to 16 bits: exp gives 2^24 e^x, so that what is subnormal in e^x
/// is not flushed, may err by 2^-17 and be zero where e^x is below 2^-150.
enum class Rounding : uint8_t { F32, F16, BF16, BF16Inner, Term };

/// What the code is for: `sm` is the compute capability times ten (90 for sm_90 and sm_90a). The CPU is x86-64-v3.
struct MathTarget {
  bool nvptx = false;
  int sm = 0;
};

/// The number of operands of `fn`, 1 or 2.
int mathArity(MathFn fn);
/// "exp2", "gelu_tanh": for tests and messages.
const char *mathName(MathFn fn);

/// Emits the code of fn(args) at the builder's insertion point and returns its result, of the operands' type. Every
/// operand is f32 or vector<Nxf32>, all alike. Uses arith, math (fma, sqrt, floor, trunc, absf), vector, scf (a
/// branch in sin and cos, a loop in fmod and its kin) and, on NVPTX, LLVM intrinsics; no fast-math flag, no
/// contraction. Cannot fail.
mlir::Value expandMath(mlir::OpBuilder &builder, mlir::Location loc, MathFn fn, mlir::ValueRange args,
                       Rounding rounding, const MathTarget &target);

} // namespace rl
