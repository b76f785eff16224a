// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A piece of PTX within a kernel, by LLVM's constraints: $0 and on are its results, then its operands.
#pragma once

#include "mlir/IR/Builders.h"

namespace rl::emit {

/// With side effects: not moved across another such piece, dropped or made twice. `result` may be void.
mlir::Operation *inlineAsm(mlir::OpBuilder &, mlir::Location, mlir::Type result, const llvm::Twine &text,
                           const llvm::Twine &constraints, mlir::ValueRange operands);
/// Without: a function of its operands.
mlir::Value pureAsm(mlir::OpBuilder &, mlir::Location, mlir::Type result, const llvm::Twine &text,
                    const llvm::Twine &constraints, mlir::ValueRange operands);

} // namespace rl::emit
