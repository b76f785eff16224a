// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the kernels of products share: the traces of their operands and epilogue, and how an element of them is read, handed on
// and stored.
#pragma once

#include "compiler/emit/Gemm.h"
#include "compiler/emit/TraceEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

namespace rl::emit {

/// An operand of [B, rows, columns] as it is stored; for the left one rows are M (K if transposed), for the right one K (N).
struct TracedOperand {
  ValueId value = kNone;
  bool transposed = false;
  Trace trace;
  int64_t rows() const { return shape[1]; }
  int64_t width() const { return shape[2]; }
  int64_t lanes() const { return trace.lanes; }
  std::vector<int64_t> shape;
  /// The load that it is, where only index maps are between it and memory; kNone otherwise.
  uint32_t load = kNone;
};

/// The traces of a kernel, from its body alone.
struct GemmTraces {
  std::vector<NodeId> products;
  Trace epilogue;
  std::vector<uint32_t> instances; ///< of the products in the epilogue
  TracedOperand left;
  std::vector<TracedOperand> right; ///< one a product
};
Result<GemmTraces> traceGemm(const GemmKernel &, bool gpu);

/// Writes the parts of a kernel at the builder's insertion point.
class GemmParts {
public:
  GemmParts(mlir::OpBuilder &, mlir::Location, const GemmKernel &, const GemmTraces &, const CodeTarget &, bool aligned,
            mlir::ValueRange inputs, mlir::ValueRange outputs);

  /// f32, i32 or i64: in which sums are kept.
  mlir::Type accumulator() const { return sum; }
  mlir::Type vectorOf(int64_t lanes, mlir::Type element) const;
  /// `lanes()` consecutive elements of the operand at [row of all batches, vector], as the type `as`. A vector, or a scalar of one
  /// lane. Without `as`: the accumulator's.
  mlir::Value read(const TracedOperand &operand, mlir::Value row, mlir::Value vector, std::optional<DType> as = {}) {
    return finishRead(operand, *startRead(operand, row, vector), as);
  }
  /// The same in two steps, of which the first only loads: so that many loads are in flight before the first is waited for.
  std::unique_ptr<TraceEmitter> startRead(const TracedOperand &, mlir::Value row, mlir::Value vector);
  mlir::Value finishRead(const TracedOperand &, TraceEmitter &, std::optional<DType> as = {});
  /// What is behind the products at [row of all batches, vector of `kernel.lanes`], and its stores. `sums`: one value a product,
  /// a vector of the lanes (a scalar of one).
  void finish(mlir::Value row, mlir::Value vector, mlir::ValueRange sums);
  /// The same in two steps, of which the first only loads what the epilogue reads beside the sums.
  std::unique_ptr<TraceEmitter> startFinish(mlir::Value row, mlir::Value vector);
  void endFinish(TraceEmitter &, mlir::ValueRange sums);
  /// The same where segments of the row are reduced: those of a GPU's threads that have a segment's vectors are neighbours in a warp,
  /// all of which comes here, and stores where `there` (null: everywhere).
  void finishTogether(mlir::Value row, mlir::Value vector, mlir::ValueRange sums, mlir::Value there);
  /// And where one thread has a segment, whose vectors begin with `firstVector`: it goes over them once more for each reduction that
  /// must be known before the next. `sumsOf`: of the segment's vector.
  void finishInTurn(mlir::Value row, mlir::Value firstVector,
                    llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value vector)> sumsOf);
  int64_t segment = 0; ///< columns that are reduced together; 0: none are
  /// x*y + z.
  mlir::Value multiplyAdd(mlir::Value x, mlir::Value y, mlir::Value z);
  mlir::Value zero(mlir::Type);

  // Index arithmetic that folds what is constant.
  mlir::Value index(int64_t v);
  mlir::Value add(mlir::Value, mlir::Value);
  mlir::Value add(mlir::Value v, int64_t c) { return c ? add(v, index(c)) : v; }
  mlir::Value mul(mlir::Value, int64_t);
  mlir::Value div(mlir::Value, int64_t);
  mlir::Value rem(mlir::Value, int64_t);
  mlir::Value less(mlir::Value, mlir::Value);
  mlir::Value min(mlir::Value, mlir::Value);
  mlir::Value min(mlir::Value v, int64_t c) { return min(v, index(c)); }
  /// The address of an element; `offset` of type index.
  mlir::Value address(mlir::Value base, mlir::Type element, mlir::Value offset);
  /// `for (i = from; i < to; i += step) body(i)`.
  void loop(mlir::Value from, mlir::Value to, int64_t step, llvm::function_ref<void(mlir::Value)> body);
  /// The same with values handed from round to round.
  llvm::SmallVector<mlir::Value>
  loop(mlir::Value from, mlir::Value to, int64_t step, mlir::ValueRange first,
       llvm::function_ref<llvm::SmallVector<mlir::Value>(mlir::Value, mlir::ValueRange)> body);
  void when(mlir::Value condition, llvm::function_ref<void()> body);

  mlir::OpBuilder &b;
  mlir::Location loc;
  const GemmKernel &kernel;
  const GemmTraces &traces;
  const CodeTarget &target;
  bool aligned;
  mlir::ValueRange inputs, outputs;
  mlir::Value policy;    ///< of loads of the right operands, by which these leave the L2 cache first; null: none
  mlir::Value errorSlot; ///< where an index out of range is reported; null: nowhere

private:
  std::unique_ptr<TraceEmitter> startFinish(mlir::Value row, mlir::Value vector, mlir::ValueRange sums);
  void setSums(TraceEmitter &, mlir::ValueRange sums);
  void storeAll(TraceEmitter &, int64_t vectorsOfSegment, mlir::Value there);

  mlir::Type sum;
};

/// A kernel's tiles: the block's batch and where its tile starts.
struct GemmTile {
  mlir::Value batch, m, n;
};
GemmTile tileOf(GemmParts &, mlir::Value block);
int64_t tileCount(const GemmSchedule &);

/// One product of a warp, mma.sync.m16n8k16 of bf16 or f16: to the thread's four f32 `sums` that of its four registers of the left
/// operand by its two of the right one (PTX ISA, "Matrix fragments for mma.m16n8k16").
void multiplyByWarp(mlir::OpBuilder &, mlir::Location, DType, llvm::MutableArrayRef<mlir::Value> sums,
                    llvm::ArrayRef<mlir::Value> left, llvm::ArrayRef<mlir::Value> right);

/// A GPU block's dynamic shared memory.
mlir::Value dynamicShared(GemmParts &);
/// The sums of one vector, a value a product, from shared memory, where they lie as finishStaged says: of row `row` of `rows`, from
/// the tile's column `column` on.
llvm::SmallVector<mlir::Value> stagedSums(GemmParts &, mlir::Value staged, int64_t rowStride, int64_t rows,
                                          int64_t parts, mlir::Value row, mlir::Value column);
/// Finishes `rows` rows of a tile, from row `firstRow` of it on, whose sums lie in shared memory at `staged`: row by row,
/// `rowStride` elements apart, product after product, and so again for each of `parts` that are added in order. All threads
/// take part.
void finishStaged(GemmParts &, const GemmTile &, mlir::Value thread, mlir::Value staged, int64_t rowStride,
                  int64_t rows, mlir::Value firstRow, int64_t parts = 1);

void emitBlocked(GemmParts &, mlir::Value block);
/// All return the bytes of dynamic shared memory.
Result<int64_t> emitSimt(GemmParts &, mlir::Value block, mlir::Value thread);
Result<int64_t> emitMma(GemmParts &, mlir::Value block, mlir::Value thread);
Result<int64_t> emitThin(GemmParts &, mlir::Value block, mlir::Value thread);

} // namespace rl::emit
