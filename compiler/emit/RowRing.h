// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The rows that a block takes one after the other, copied to shared memory ahead of their turn. Each thread copies what it will
// itself read, so that it need not wait for others. Loads into registers would do as well but for the assembler, which moves
// them behind the arithmetic on the row before, next to their use.
#pragma once

#include "compiler/emit/TraceEmitter.h"

namespace rl::emit {

class RowRing {
public:
  /// `loads`: what of a row is copied (copiedLoads); `stages`: rows that there is room for, a power of two. `thread`: in the
  /// block, of so many, each with `unroll` vectors of a row.
  RowRing(mlir::OpBuilder &, mlir::Location, const Graph &, const Trace &, std::vector<uint32_t> loads, int64_t stages,
          int64_t threads, int64_t unroll, mlir::Value thread);

  int64_t sharedBytes() const { return stages * stageBytes; }
  /// Starts the copies of row `turn` (of type index, counted from 0) of the thread's vectors, where `isThere` (null: it is).
  void fill(mlir::Value turn, llvm::ArrayRef<std::unique_ptr<TraceEmitter>> vectors, mlir::Value isThere);
  /// Waits for row `turn`, behind which stages - 1 were filled, and hands its vectors what was copied.
  void take(mlir::Value turn, llvm::ArrayRef<std::unique_ptr<TraceEmitter>> vectors);

private:
  mlir::Value stageOf(mlir::Value turn);
  void eachSlot(mlir::Value stage, llvm::ArrayRef<std::unique_ptr<TraceEmitter>> vectors,
                llvm::function_ref<void(TraceEmitter &, uint32_t load, mlir::Value slot)>);

  mlir::OpBuilder &b;
  mlir::Location loc;
  const Graph &graph;
  const Trace &trace;
  std::vector<uint32_t> loads;
  int64_t stages, threads, stageBytes;
  mlir::Value thread, base;
};

} // namespace rl::emit
