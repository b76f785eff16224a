// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Storage patterns of the narrow float types (bf16, f16, f8) to and from f32, on vectors; to the bit what
// ir/interp/Convert.h does, but for which NaN a NaN becomes (the GPU's conversions give the positive quiet one).
#pragma once

#include "compiler/lower/common/MathExpansion.h"
#include "runtime/base/DType.h"

namespace rl {

/// The f32 values of bit patterns. `storage` is i16 (BF16, F16) or i8 (the f8 types), or a vector of them; the result
/// is f32 or a vector as long.
mlir::Value widenFloat(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value storage, DType from,
                       const MathTarget &target);

/// The bit patterns (i16 or i8, or vectors) of f32 values rounded to nearest even. `saturate` matters to F8E4M3 and
/// F8E5M2 alone: beyond the largest finite value they give that value, else NaN (e4m3) or infinity (e5m2).
/// `plainNans`: the last 16 bits of every NaN among the values are 0, as in those of bf16 and those that arithmetic
/// makes of other numbers; then rounding to bf16 needs no test for them.
mlir::Value narrowFloat(mlir::OpBuilder &builder, mlir::Location loc, mlir::Value f32, DType to, bool saturate,
                        const MathTarget &target, bool plainNans = false);

} // namespace rl
