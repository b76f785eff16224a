// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes a trace down as code: loads, ops, choices and stores for one vector of the iteration space. The kernels around it
// decide which vector that is and, where a row's reductions come in between, which instances are written when.
#pragma once

#include "compiler/emit/BodyEmitter.h"
#include "compiler/emit/IndexEmitter.h"
#include "compiler/emit/Streams.h"
#include "compiler/lower/Lower.h"
#include "passes/plan/Trace.h"

#include "llvm/ADT/STLExtras.h"

namespace rl::emit {

/// Whether the kernel reports indices out of range, through one more argument behind the tensors (the function has the
/// attribute `ridge.reports` then). On a GPU, whose launches return nothing, none does.
bool reportsIndices(const Graph &, const CodeTarget &);

class TraceEmitter {
public:
  /// `aligned`: pointers are multiples of 16 bytes; otherwise of their element's size. `inputs` and `outputs` are the graph's.
  TraceEmitter(mlir::OpBuilder &, mlir::Location, const Graph &, const Trace &, const CodeTarget &, bool aligned,
               mlir::ValueRange inputs, mlir::ValueRange outputs);

  void setVectorIndex(mlir::Value v) { indices.setVectorIndex(v); }
  void setRowIndex(mlir::Value v) { indices.setRowIndex(v); }
  /// Where an index out of range is reported: a pointer to an i32 that is 0 before the first. Null: nowhere.
  void setErrorSlot(mlir::Value v) { errorSlot = v; }

  /// Of vectors that are loaded whole: how they are kept in the L2 cache (a GPU's policy, i64). Such are not kept in L1.
  void setPolicy(mlir::Value v) { policy = v; }
  /// Tensors that no cache holds; none without this. The policies must dominate what is emitted.
  void setStreams(const Streams &s) { streams = s; }

  /// What was loaded is loaded anew: as memory that may have changed, so that nobody keeps it in registers for this.
  void loadAgain() { again = true; }

  /// The loads that every element makes, ahead of everything else: those of several vectors are then in flight together.
  /// `gathered`: those at an index that is loaded, else those that are not.
  void emitLoads(bool gathered = false);
  /// Everything that is not there yet, and the stores.
  void emitRest();

  /// A load of which `lanes` consecutive rows are contiguous in memory, from the row that is set on: what each of these rows
  /// has. Vectors down the columns, transposed.
  llvm::SmallVector<Lane> loadSquare(const Instance &);

  /// Starts a copy of what the load reads, a vector of 4, 8 or 16 bytes that is aligned (copiedLoads), to shared memory.
  void copyAsync(const Instance &load, mlir::Value to);

  /// The factors of an f32 product that is made of the same node of the file as `of`, a sum or an op on it, so that both may be
  /// rounded as one: the format keeps only nodes' products and sums apart. Empty: no such. Each is as wide as the vector.
  llvm::SmallVector<mlir::Value> factorsFor(uint32_t product, const Node &of, bool uniform);

  /// One instance of scope 0 whose operands are there, unless it is there itself.
  void emit(uint32_t instance);
  void emitStore(const TraceStore &);
  /// One element: of a row kernel, what a row has once.
  void emitScalarStore(const TraceStore &);
  /// What each segment of `vectors` vectors of a row has once, stored by the first of them.
  void emitSegmentStore(const TraceStore &, int64_t vectors);
  bool has(uint32_t instance) const { return lanes[instance].raw || lanes[instance].wide; }
  /// Whether the indices that the load needs are there.
  bool hasIndices(const Instance &load) const {
    return llvm::all_of(load.operands, [&](uint32_t i) { return has(i); });
  }
  Lane &lane(uint32_t instance) { return lanes[instance]; }
  BodyEmitter &bodies() { return body; }
  /// What is computed of indices between these two is computed in a nested block, and not known after it.
  void enterBlock() { indices.push(); }
  void leaveBlock() { indices.pop(); }

private:
  void emitScope(uint32_t scope);
  Lane emitInstance(const Instance &, bool inner);
  std::optional<Lane> emitCode(const Instance &, DType type);
  bool definedHere(mlir::Value v);
  mlir::Value guardOf(const Instance &, bool perLane);
  mlir::Value address(mlir::Value pointer, mlir::Type element, mlir::Value offset);
  mlir::Value load(mlir::Value pointer, mlir::Type element, mlir::Type type, mlir::Value offset, unsigned alignment);
  mlir::Value loadVector(const Instance &, mlir::VectorType type, mlir::Value offset, unsigned alignment);
  Lane emitLoad(const Instance &);
  mlir::Value inRange(uint32_t index, int64_t extent);
  mlir::Value dynamicIndex(int dim);
  Lane emitGather(const Instance &, const Node &, DType);
  void reportUnless(mlir::Value inRange, const Instance &);
  int32_t placeOf(uint32_t index) const;
  unsigned alignmentOf(const VectorAccess &, unsigned size) const;
  bool yieldsRaw(const Instance &, DType) const;
  mlir::Value pieceValue(const Instance &, const Instance::Piece &, const Node &, DType, bool raw);
  Lane emitPieces(const Instance &, const Node &, DType);
  static bool areOrdered(const std::vector<Instance::Piece> &);
  mlir::Value emitBranch(const Instance &, size_t first, size_t last, const Node &, DType, bool raw, bool ordered);
  void setLane(uint32_t i, Lane);

  mlir::OpBuilder &b;
  mlir::Location loc;
  const Graph &graph;
  const Trace &trace;
  const CodeTarget &target;
  bool aligned;
  mlir::ValueRange outputs;
  BodyEmitter body;
  IndexEmitter indices;
  mlir::Value errorSlot, policy;
  Streams streams;
  bool again = false;
  std::unordered_map<ValueId, mlir::Value> pointers;
  std::vector<Lane> lanes;                     ///< by instance; set through setLane within branches
  std::vector<std::pair<uint32_t, Lane>> undo; ///< what lanes set within the open branches were before
  int branchDepth = 0;
  std::vector<bool> stored;
  std::vector<bool> narrow; ///< f32 quotients of which nothing but values of 8 bits is made
  std::vector<std::vector<const TraceStore *>> storesOf; ///< by instance, where they are written at once
};

} // namespace rl::emit
