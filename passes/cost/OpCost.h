// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the ops of the graph cost, apart from any fusion: instructions and special-function uses per element, flops of
// matmuls, and the bytes that the op would move as a kernel of its own.
#pragma once

#include "ir/graph/Graph.h"
#include "passes/cost/Cost.h"

namespace rl::cost {

/// Per element: of the result for elementwise ops and data movement, of the operand for reductions, norms, losses and
/// quantisation, per score for attention. Matmuls count no lane instructions here (nodeWork has their flops).
struct OpCost {
  double ops = 0;     ///< lane instructions
  double special = 0; ///< of those units: ex2, lg2, rcp, rsqrt, sqrt, tanh, sin, cos
};

/// `type` is the result's storage type: where it has 16 bits or fewer the fast hardware forms are used, an f32 result
/// pays for its last bits. `tanhApproximation` is gelu's.
OpCost opCost(OpKind, DType type, bool tanhApproximation = false);
/// Of a node's op, with what its attributes change.
OpCost opCost(const Node &, DType type);

/// Reshape, permute, expand, unsqueeze, squeeze and slice: index maps, which no framework runs as kernels.
bool isView(OpKind);

/// A node's work as a kernel of its own: every tensor operand read once, every result written once. Views move nothing.
/// Ops that pick rows (embedding, index_select, gather) read what they pick. Grid and limits are left at their
/// defaults.
WorkEstimate nodeWork(const Graph &, NodeId);

/// nodeWork over all nodes: the graph unfused.
WorkEstimate unfusedWork(const Graph &);

} // namespace rl::cost
