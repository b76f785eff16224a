// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rows that start at no multiple of 16 bytes: threads could read them but a few bytes at a time, too little to keep memory busy.
// A block's rows follow each other, so that of each tensor they are one range: a copy of compute capability 9.0 brings it to
// shared memory, threads read and write their elements there, and another copy takes results back. What of a range shares 16
// bytes with a neighbour's is written element by element.
#pragma once

#include "compiler/emit/TraceEmitter.h"

namespace rl::emit {

class RowTile {
public:
  /// `rows` of a block, from `firstRow` (of type index) on, of `allRows`; `thread` (index) of `threads` in the block, at least 16.
  /// Pointers are multiples of 16 bytes.
  RowTile(mlir::OpBuilder &, mlir::Location, const Graph &, const Trace &, int64_t rows, int64_t allRows,
          int64_t threads, mlir::Value firstRow, mlir::Value thread, mlir::ValueRange inputs, mlir::ValueRange outputs);

  int64_t sharedBytes() const { return bytes; }
  /// Starts the copies, and waits for them.
  void load();
  /// What a vector of the row loads.
  void take(TraceEmitter &, mlir::Value row, mlir::Value vector);
  bool stages(const TraceStore &store) const { return rangeOf(store) != nullptr; }
  void put(TraceEmitter &, const TraceStore &, mlir::Value row, mlir::Value vector);
  /// Copies results back. All threads of the block come here.
  void store();

private:
  struct Range {
    uint32_t instance = kNone;
    const TraceStore *store = nullptr; ///< null: a load
    DType dtype = DType::F32;
    mlir::Value pointer;
    int64_t size = 0, place = 0; ///< bytes of an element; where the range lies in shared memory
    mlir::Value begin, end;      ///< bytes from the tensor's start, i64
    mlir::Value first;           ///< the multiple of 16 at or before `begin`: what lies at `place`
    bool starts = false;         ///< `begin` is a multiple of 16
    bool ends = false;           ///< `end` is one
  };
  const Range *rangeOf(const TraceStore &) const;
  void addRange(Range, DType);
  mlir::Value number(int64_t v);
  mlir::Value roundDown(mlir::Value), roundUp(mlir::Value);
  mlir::Value inShared(mlir::Value bytes);
  mlir::Value slot(const Range &, mlir::Value row, mlir::Value vector);
  mlir::Value global(const Range &, mlir::Value bytes);
  void eachElement(const Range &, mlir::Value from, mlir::Value to,
                   llvm::function_ref<void(mlir::Value global, mlir::Value shared)>);
  void onFirstThread(llvm::function_ref<void()>);

  mlir::OpBuilder &b;
  mlir::Location loc;
  const Graph &graph;
  const Trace &trace;
  int64_t rows, allRows, bytes;
  mlir::Value firstRow, thread, base;
  std::vector<Range> ranges;
};

} // namespace rl::emit
