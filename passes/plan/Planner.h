// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which kernels a graph of pointwise, layout and creation ops becomes, and why. No MLIR here: the grouping pass applies what
// this decides to the IR.
//
// The rule. A kernel computes all that can be stored over one iteration space in one pass: outputs with equal element counts
// share a kernel, and everything above them is recomputed in it from what is loaded. A value in between is written to memory
// and read back ("cut") only for a reason that has figures: more kernel arguments than a launch takes, more live registers
// than a thread has, layouts that would evaluate it at many distinct indices, or a broadcast that would repeat work which
// costs more than a pass through memory. Outputs that only have too many arguments together are divided between kernels.
#pragma once

#include "ir/graph/Graph.h"
#include "passes/cost/Cost.h"
#include "passes/cost/OpCost.h"
#include "passes/plan/Gemm.h"

#include <optional>

namespace rl {

struct PlannedGroup {
  std::string kind = "pointwise"; ///< or "row", "transpose", "gemm"
  std::vector<ValueId> inputs, outputs;
  std::vector<NodeId> nodes; ///< what is evaluated, in the graph's order
  int64_t elements = 0;      ///< of the iteration space
  int64_t lanes = 1, threads = 1, unroll = 1;
  bool splitCat = false;
  /// Of a transposing kernel: `rows` of `width` elements, of both of which a thread has `lanes`.
  /// Of a row kernel: `rows` of `width` elements; a block has `rowsPerBlock`, with `threads` each, and a thread has `unroll`
  /// vectors, of all of which it keeps the loads where the row is `resident`, and dear results too where it `keeps`.
  int64_t width = 0, rows = 0, rowsPerBlock = 1;
  bool resident = false, keeps = false;
  bool across = false; ///< neighbouring threads have neighbouring rows, as those are neighbours in memory
  int64_t parts = 0;   ///< not 0: some outputs are sums down the columns (ColumnSums.h); a block has the rows of a part
  bool inTurn = false; ///< every parts-th row; otherwise rows that follow each other
  /// Of a kernel with parts: rows of which a block has room for what they load, so that all but one are under way while it
  /// computes; 0: a row is loaded when it is its turn.
  int64_t stages = 0;
  bool staged = false; ///< a block's rows are copied to shared memory as one range, as vectors would be short
  int64_t cluster = 1; ///< blocks that share a row, whose shared memory they exchange through; `threads` of each
  int64_t streamBytes =
      0;                 ///< tensors of so many bytes or more leave the cache before they are read again; 0: none does
  bool online = false;   ///< a maximum and the sum of exponentials over it take one pass (OnlineSum.h)
  bool factored = false; ///< a maximum of magnitudes exchanges together with the reduction before (FactoredMax.h)
  std::optional<GemmSchedule> gemm;     ///< of a kernel of matrix products, with B*M `rows` of N
  std::optional<GemmSchedule> fallback; ///< of "wgmma", "stream" and "direct": for pointers that are not aligned
  std::string key;                      ///< of products on a GPU: what it is the same kernel as (TileChoice.h)
  std::vector<TileCandidate> tiles;     ///< of products on a GPU: the model's first, and those that come near it
  size_t tile = 0;                      ///< which of them it has
  std::vector<double> measured;         ///< microseconds of the first of them, where they were timed
  cost::WorkEstimate work;
  cost::Estimate time;
  int64_t unfusedBytes = 0; ///< what its nodes would move as one kernel each; layouts that are views move nothing
  std::vector<std::string> why;
};

/// Whether an op's results are computed from what is at hand at an index: all that the pointwise planner takes.
bool isPointwise(OpKind);

/// A value's name as reasons give it.
inline std::string quoted(const Graph &graph, ValueId v) { return "'" + graph.values[v].name + "'"; }

struct Plan {
  std::vector<PlannedGroup> groups; ///< a group comes after those whose outputs it loads
  int64_t unfusedBytes = 0;         ///< of all nodes that are evaluated, each counted once
};

/// The tensors that a kernel may read and write together: pointers among a launch's parameters, of which a few bytes stay
/// free.
size_t maxKernelArguments(const cost::TargetDesc &);

/// Errors: Code::Unsupported with the node's pointer for an op of another class (reductions, matrix products ...).
Result<Plan> planPointwise(const Graph &, const cost::TargetDesc &);

} // namespace rl
