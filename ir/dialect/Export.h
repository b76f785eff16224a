// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From the dialect back to a graph, for what reasons about ops rather than about IR: the planner sees a function so, an
// emitter a group's body.
#pragma once

#include "ir/graph/Graph.h"

#include "mlir/IR/Value.h"

#include <vector>

namespace mlir {
class Block;
} // namespace mlir

namespace mlir::ridge {

/// A block's ops as a graph, and which IR value each of its values is. Arguments are inputs; in a function those marked
/// `ridge.parameter` are parameters. The terminator's operands are the outputs. Groups are not nodes: a block that holds
/// some has no graph (their results stay unknown), so export functions before grouping, or a group's own body.
struct ExportedGraph {
  rl::Graph graph;
  std::vector<Value> values; ///< by rl::ValueId
};
ExportedGraph exportBlock(Block &block, bool strict);

} // namespace mlir::ridge
