// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The arithmetic of reductions: what an element contributes, how two partial results become one, and how the partial results
// of a vector's lanes and of a row's threads do, always in the same order.
#pragma once

#include "compiler/emit/BodyEmitter.h"
#include "passes/plan/Trace.h"

namespace rl::emit {

using mlir::Value; // not the graph's

/// One reduction. Partial results are f32 for floats, i64 for sums and products of integers and for i64, else i32.
struct Combiner {
  OpKind op;
  DType operand, result;
  bool rounds = false; ///< a result of 16 bits has no more than those: the graph is strict, or it is stored

  mlir::Type type(mlir::OpBuilder &) const;
  /// What changes nothing: a scalar, or a vector of so many lanes.
  Value identity(mlir::OpBuilder &, mlir::Location, int64_t lanes) const;
  /// An operand as a partial result, `lanes` wide.
  Value contribution(BodyEmitter &, mlir::Location, Lane &operand, int64_t lanes) const;
  Value combine(mlir::OpBuilder &, mlir::Location, Value a, Value b) const;
  /// The lanes of one vector, halves first.
  Value acrossLanes(mlir::OpBuilder &, mlir::Location, Value) const;
  /// `total` and the lanes of one vector, one after the other: takes no registers for results in between.
  Value inOrder(mlir::OpBuilder &, mlir::Location, Value total, Value vector) const;
  /// The result in the node's type.
  Lane finish(BodyEmitter &, Value) const;
};

/// That of a reduction in a trace.
Combiner combinerOf(const Graph &, const Trace &, uint32_t reduction);

/// The threads of a GPU's block that share a row.
struct RowThreads {
  int64_t threads = 1;      ///< a row's: a power of two up to 32, or a multiple of 32; any number where `across`
  int64_t rowsPerBlock = 1; ///< groups of `lanes` rows
  bool across = false;      ///< neighbouring threads have neighbouring rows, not neighbouring places of one row
  int64_t lanes = 1;        ///< of a partial result, where `across`: rows of which a thread has one each
  Value thread;             ///< in the block, of type i32
  /// Blocks that share the row, a power of two, `threads` of each: a cluster. Then rowsPerBlock is 1, `threads` a power
  /// of two from 64 on.
  int64_t blocks = 1;
  Value block; ///< in the cluster, of type i32
  int64_t blockThreads() const { return threads * rowsPerBlock; }
  int64_t warps() const { return blockThreads() / 32; }
  /// Places of shared memory that one reduction takes, an i64 each.
  int64_t slots() const {
    return threads == 1 ? 0 : across ? blockThreads() * lanes : threads > 32 ? warps() * blocks : 0;
  }
};

/// Waits for all threads of the row's block, or of its blocks: what they wrote to shared memory is there.
void syncRow(mlir::OpBuilder &, mlir::Location, const RowThreads &);

/// A value of 32 or 64 bits to its place in the shared memory of the cluster's block `rank` (i32); `to` is that place in
/// the own block's.
void storeInBlock(mlir::OpBuilder &, mlir::Location, Value, Value to, Value rank);

/// The value, of 32 or 64 bits, of the thread whose number in its warp differs in the bits of `offset`.
Value exchange(mlir::OpBuilder &, mlir::Location, Value, int64_t offset);

/// Combines the values of each group of so many (a power of two up to 32) neighbouring threads; each of them has the result.
Value combineInWarp(mlir::OpBuilder &, mlir::Location, const Combiner &, Value, int64_t threads);

/// Combines partial results of a row's threads so that each of them has the result: exchanges within warps, then through
/// shared memory behind one barrier for all of `partial`. `firstSlot`: the place of the first in `shared`, an array of i64, of
/// which each takes slots(); no place is used twice in a kernel. All threads of the block take part. Of several blocks
/// each warp hands its result to every block, whose threads add all of them up in the same order.
void combineThreads(mlir::OpBuilder &, mlir::Location, const RowThreads &, llvm::ArrayRef<Combiner>,
                    llvm::MutableArrayRef<Value> partial, Value shared, int64_t firstSlot);

} // namespace rl::emit
