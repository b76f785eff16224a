// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From a resolved graph to the dialect.
#pragma once

#include "mlir/IR/OwningOpRef.h"

namespace rl {
struct Graph;
} // namespace rl

namespace mlir {
class DialectRegistry;
class MLIRContext;
class ModuleOp;
} // namespace mlir

namespace mlir::ridge {

/// Registers `ridge` and `func`, the dialects that a graph is written in.
void registerRidgeDialects(DialectRegistry &registry);

/// A module with one function, named as the graph: its arguments are the graph's inputs, then its parameters; its
/// results the graph's outputs. One op a node, in the graph's order; literals ahead of their first use, equal ones
/// once. Locations are the values' names. Loads the dialects into the context. The module verifies, since `resolve`
/// made the same checks.
OwningOpRef<ModuleOp> importGraph(MLIRContext &context, const rl::Graph &graph);

} // namespace mlir::ridge
