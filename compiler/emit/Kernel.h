// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A kernel's function: pointers in the order of the group's inputs and outputs, and what lowering is told about it.
#pragma once

#include "compiler/lower/Lower.h"
#include "ir/graph/Graph.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace rl::emit {

struct KernelFunction {
  mlir::func::FuncOp function;
  mlir::Block *entry = nullptr;
  mlir::ValueRange inputs, outputs;
  mlir::Value errorSlot; ///< where an index out of range is reported; null: the target reports none
};

/// Adds the function to the module, empty, for blocks of so many threads; the builder is left where it was.
KernelFunction createKernel(mlir::OpBuilder &, mlir::Location, mlir::ModuleOp, const std::string &name,
                            const Graph &body, const CodeTarget &, int64_t threads);

/// The dynamic shared memory of a GPU's block, at the start of which 1024 bytes are aligned.
mlir::Value dynamicShared(mlir::OpBuilder &, mlir::Location);

} // namespace rl::emit
