// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A mathematical function in a kernel is a call of a declared function, `ridge_tanh_bf16_v8`, until lowering expands it.
// So a dump of a kernel reads as mathematics, and lowering may choose between code in place and one function for all calls.
#pragma once

#include "compiler/lower/common/MathExpansion.h"

#include "mlir/IR/Builders.h"

namespace rl {

/// Calls fn on f32 scalars or vectors at the insertion point; declares it in the enclosing module where needed.
mlir::Value callMath(mlir::OpBuilder &, mlir::Location, MathFn, mlir::ValueRange args, Rounding);

} // namespace rl
