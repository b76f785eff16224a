// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Index expressions of a trace as integer arithmetic: for the first lane, for all lanes as a vector, and as conditions.
#pragma once

#include "passes/plan/Trace.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/Value.h"

#include <functional>
#include <map>

namespace rl::emit {

using mlir::Value; // not the graph's

/// How the lanes of a vector read memory at an offset.
struct VectorAccess {
  bool contiguous = false;
  int64_t alignElements = 1; ///< the first lane's offset is a multiple of this
};

class IndexEmitter {
public:
  /// The value of Trace::indexInstance(dim) brought into [0, extent): a vector where its lanes differ.
  using DynamicIndex = std::function<mlir::Value(int dim)>;
  IndexEmitter(mlir::OpBuilder &b, mlir::Location loc, const Trace &trace, DynamicIndex dynamicIndex = {});

  void setVectorIndex(mlir::Value index); ///< the value of trace.vectorDim, of type `index`
  void setRowIndex(mlir::Value index);    ///< the value of trace.rowDim, of type `index`
  mlir::Value scalar(index::Expr);        ///< at lane 0
  mlir::Value lanes(index::Expr);         ///< a vector of all lanes (a scalar where there is one lane)
  mlir::Value condition(const Condition &, bool perLane);
  mlir::Value constant(int64_t); ///< of the type of indices, i32 or i64
  mlir::Type indexType() const { return type; }
  VectorAccess access(index::Expr) const;

  /// What is computed between push and pop is forgotten at pop: it was computed inside a branch.
  void push() { marks.push_back(log.size()); }
  void pop();

private:
  mlir::Value sum(index::Expr, bool perLane);
  mlir::Value atom(const index::Atom &, bool perLane);
  mlir::Value splat(int64_t, bool vector);
  mlir::Value toVector(mlir::Value);
  mlir::Value divide(mlir::Value, int64_t c, bool mod, bool nonNegative);

  mlir::OpBuilder &b;
  mlir::Location loc;
  const Trace &trace;
  mlir::Type type; ///< i32 where every index fits
  DynamicIndex dynamicIndex;
  mlir::Value vectorIndex, rowIndex;
  using Key = std::pair<const void *, bool>;
  std::map<Key, mlir::Value> memo;
  std::vector<Key> log;
  std::vector<size_t> marks;
};

} // namespace rl::emit
