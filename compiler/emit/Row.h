// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The row emitter: a group whose reductions all run over the rows of one iteration space [R, W], with what is elementwise
// before, between and after them, becomes one kernel. On a GPU the threads of a row hold it in registers, or go over it once
// for each reduction that depends on another; on a CPU a block is a row and goes over it likewise. Pointers are arguments in
// the order: the group's inputs, then its outputs.
#pragma once

#include "compiler/lower/Lower.h"
#include "ir/graph/Graph.h"

namespace rl::emit {

struct RowSchedule {
  int64_t width = 0; ///< W: elements of a row
  int64_t rows = 0;  ///< R
  /// V: consecutive elements that a thread computes at once, a power of two that divides W. Where `across`: rows, of which it
  /// takes the same element at once; divides R, and rowsPerBlock below counts groups of V rows.
  int64_t lanes = 1;
  int64_t threads = 1;      ///< of a row in one block: a power of two up to 32 or a multiple of 32; 1 on a CPU
  int64_t rowsPerBlock = 1; ///< threads * rowsPerBlock is a multiple of 32 on a GPU
  int64_t unroll = 1;       ///< vectors a thread holds where the row is resident, else that it goes over at once
  bool resident = false;    ///< unroll * threads * cluster * lanes >= W: the row is loaded once
  /// Blocks that share a row: a cluster (compute capability 9.0), a power of two up to 16. More than 1: the row is
  /// resident, something reduces over it, rowsPerBlock is 1 and threads a power of two from 64 on.
  int64_t cluster = 1;
  bool across = false; ///< neighbouring rows are neighbours in memory: so are the threads that have them
  /// Not 0: outputs of parts * W elements are sums down the columns (ColumnSums.h), a block has the R / parts rows of a part, one
  /// after the other; rowsPerBlock is 1 and the row resident.
  int64_t parts = 0;
  bool inTurn = false; ///< a part has every parts-th row, so that blocks together go through memory in its order
  /// Of a kernel with parts: rows for whose loads a block has shared memory, a power of two; asynchronous copies fill it ahead.
  /// 0: none. Pointers that are not aligned have none either.
  int64_t stages = 0;
  /// The rows of a block are copied to shared memory as one range, and results from there (RowTile.h), where pointers
  /// are aligned. The row is resident; compute capability 9.0.
  bool staged = false;
  int64_t streamBytes = 0; ///< a tensor of so many or more is one of Streams.h; 0: none is
  bool online = false;     ///< a maximum and the sum of exponentials over it take one pass
  /// A maximum of magnitudes exchanges together with the reduction before (FactoredMax.h). The row is resident and its block's
  /// only one, something reduces over it, and it keeps.
  bool factored = false;
  bool keeps = false; ///< a resident row's results that take the special-function unit stay in registers as well
};

struct RowKernel {
  std::string name;
  Graph body; ///< inputs: what is loaded; outputs: what is stored, R or R*W elements each
  RowSchedule schedule;
};

struct RowLaunch {
  int64_t blocks = 0;
  int64_t sharedBytes = 0; ///< dynamic shared memory
};

/// Adds `kernel.name` to the module. `alignedTo16`: pointers are multiples of 16 bytes; otherwise of their element's size.
Result<RowLaunch> emitRow(mlir::ModuleOp, const RowKernel &, const CodeTarget &, bool alignedTo16);

} // namespace rl::emit
