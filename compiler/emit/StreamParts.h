// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the kernels of few rows share whose right operand streams from memory (GemmStream.cpp, GemmDirect.cpp): how weights of 8 bits
// become floats of 16, what multiplies a row's sums, and how sums reach the epilogue.
#pragma once

#include "compiler/emit/GemmParts.h"
#include "compiler/emit/HopperAsm.h"
#include "passes/plan/Stream.h"

namespace rl::emit {

/// A block's kernel at the builder's insertion point; what both kinds need of its threads is there from the start.
class StreamParts {
public:
  StreamParts(GemmParts &p, const StreamForm &form, const cost::StreamTile &tile);

protected:
  using Vector = llvm::SmallVector<mlir::Value, 4>; ///< 16 bytes as four registers

  /// Whether no kernel of the plan writes the weights.
  bool readsAhead() const;
  /// Whether none writes what multiplies sums.
  bool readsScalesAhead() const;
  /// The kernel's argument that is this value's start.
  mlir::Value pointerOf(ValueId) const;
  /// Four numbers of 8 bits as two pairs of the left operand's type, exactly.
  std::pair<mlir::Value, mlir::Value> widen(mlir::Value four);
  /// The same of integers, the first and third and the second and fourth: an operation less.
  std::pair<mlir::Value, mlir::Value> widenAlternate(mlir::Value four);
  void multiply(llvm::MutableArrayRef<mlir::Value> sums, llvm::ArrayRef<mlir::Value> weights, mlir::Value low,
                mlir::Value high) {
    multiplyByWarp(b, loc, shape.left, sums, weights, {low, high});
  }
  /// What multiplies the sums of the thread's rows of weights, from `row` of the block's on: two of each sixteen. By product; empty
  /// where there is nothing.
  llvm::SmallVector<llvm::SmallVector<mlir::Value>> loadScales(mlir::Value row);
  /// What multiplies the sum of a column, in f32; beyond the last one that one's.
  mlir::Value loadScale(const StreamAccess &, mlir::Value column);
  /// To shared memory, [part][product][row of the left operand][row of the weights], and on to the epilogue.
  void finish(mlir::ValueRange sums, llvm::ArrayRef<llvm::SmallVector<mlir::Value>> scales, mlir::Value part,
              mlir::Value row);

  GemmParts &p;
  mlir::OpBuilder &b;
  mlir::Location loc;
  const StreamForm &form;
  const cost::StreamShape &shape;
  const cost::StreamTile &tile;
  cost::StreamShared shared;
  Int32 i;
  HopperAsm hopper;
  mlir::Value dynamic, thread, warp, lane, firstColumn;
  mlir::Value policy; ///< of loads of the weights; null: none

private:
  bool areAhead(llvm::function_ref<ValueId(const StreamOperand &)>) const;
  mlir::Value pure(const llvm::Twine &text, const char *constraints, mlir::ValueRange operands);
  void storeSums(mlir::ValueRange sums, llvm::ArrayRef<llvm::SmallVector<mlir::Value>> scales, mlir::Value part,
                 mlir::Value row);
};

/// The kernel whose weights are loaded to registers (GemmDirect.cpp), at the builder's insertion point, for a machine of so many SMs.
void emitDirectly(GemmParts &, const StreamForm &, const cost::StreamTile &, int64_t sms);

} // namespace rl::emit
