// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Vectors of loaded values as the 32-bit registers that they fill.
#pragma once

#include "compiler/emit/BodyEmitter.h"

namespace rl::emit {

using mlir::Value; // not the graph's

/// A vector of a whole number of 32-bit registers as vector<N x i32>, and back to its type.
Value toWords(mlir::OpBuilder &, mlir::Location, Value vector);
Value fromWords(mlir::OpBuilder &, mlir::Location, Value words, mlir::Type);

/// The same i32, of which the optimiser does not know that it is the same.
Value hidden(mlir::OpBuilder &, mlir::Location, Value);

/// The compiler would rather keep a row's f32 values than widen the 16-bit ones again, and runs out of registers. What it
/// cannot see through it must widen again (a third less time where a thread holds many vectors, measured on an H200). Forgets
/// the lane's f32 values, and hides where the narrow ones come from; leaves a lane of other types alone. For NVPTX.
void hidePacked(mlir::OpBuilder &, mlir::Location, Lane &);

} // namespace rl::emit
