// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The pointwise emitter: a group of elementwise, layout and creation ops becomes one kernel in which a thread computes V
// consecutive elements of every output. Pointers are arguments in the order: the group's inputs, then its outputs.
#pragma once

#include "compiler/lower/Lower.h"
#include "ir/graph/Graph.h"

namespace rl::emit {

struct PointwiseSchedule {
  int64_t lanes = 1;   ///< V: consecutive elements a thread computes at once, a power of two
  int64_t threads = 1; ///< a block; 1 on a CPU
  int64_t unroll = 1;  ///< vectors a thread computes, `threads` vectors apart
  bool splitCat = false;
};

struct PointwiseKernel {
  std::string name;
  Graph body; ///< inputs: what is loaded; outputs: what is stored
  PointwiseSchedule schedule;
};

/// Adds `kernel.name` to the module, and returns the number of blocks to launch. `alignedTo16`: pointers are multiples of 16
/// bytes; otherwise of their element's size.
Result<int64_t> emitPointwise(mlir::ModuleOp, const PointwiseKernel &, const CodeTarget &, bool alignedTo16);

} // namespace rl::emit
