// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The transposing emitter: a group of elementwise, layout and creation ops over R rows of W elements of which some loads are
// contiguous down the columns. A thread computes V rows by V elements: those loads are vectors of V down a column, V of them,
// which it transposes in registers; everything else is as in a pointwise kernel, a vector of V for each of the rows.
#pragma once

#include "compiler/lower/Lower.h"
#include "ir/graph/Graph.h"

namespace rl::emit {

struct TransposeSchedule {
  int64_t width = 0, rows = 0; ///< W and R, multiples of `lanes`
  int64_t lanes = 1;           ///< V, a power of two above 1
  int64_t streamBytes = 0;     ///< a tensor of so many or more is one of Streams.h; 0: none is
};

struct TransposeKernel {
  std::string name;
  Graph body; ///< inputs: what is loaded; outputs: what is stored, R*W elements each
  TransposeSchedule schedule;
};

/// Threads of a block of every transposing kernel on a GPU.
inline constexpr int64_t kTransposeThreads = 128;

/// Adds `kernel.name` to the module, and returns the number of blocks to launch. On a GPU pointers must be multiples of 16 bytes.
Result<int64_t> emitTranspose(mlir::ModuleOp, const TransposeKernel &, const CodeTarget &);

} // namespace rl::emit
