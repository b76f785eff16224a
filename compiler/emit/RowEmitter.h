// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What writes the rows of a kernel: Row.cpp makes the kernel around it and takes rows one after the other, RowEmitter.cpp writes
// one row, RowFactored.cpp what is its own to a row that is reduced without the factors it shares.
#pragma once

#include "compiler/emit/Combine.h"
#include "compiler/emit/Online.h"
#include "compiler/emit/Row.h"
#include "compiler/emit/RowTile.h"
#include "compiler/emit/TraceEmitter.h"
#include "passes/plan/FactoredMax.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"

#include <map>
#include <optional>
#include <set>

namespace rl::emit {

/// What is computed while the row is gone over once: up to the reductions that need no more than `level` others.
struct Pass {
  std::vector<uint32_t> instances;  ///< that differ within the row, in order
  std::vector<uint32_t> reductions; ///< that end with this pass
  std::vector<size_t> stores;       ///< of whole rows
  std::vector<size_t> columnSums;   ///< places in Trace::columnSums
  // Pairs of which the maximum would end with this pass and the sum with the next: both end with this one.
  std::vector<OnlineSum> online;
  std::vector<std::vector<uint32_t>> exponentials; ///< of each, the instances of the sum's operand, in order
  bool empty() const { return reductions.empty() && stores.empty() && online.empty() && columnSums.empty(); }
};

class RowEmitter {
public:
  RowEmitter(mlir::OpBuilder &b, mlir::Location loc, const RowKernel &kernel, const CodeTarget &target, bool aligned,
             const Trace &trace, mlir::ValueRange inputs, mlir::ValueRange outputs)
      : b(b), loc(loc), graph(kernel.body), schedule(kernel.schedule), target(target), aligned(aligned), trace(trace),
        inputs(inputs), outputs(outputs), scalars(b, loc, graph, trace, target, aligned, inputs, outputs) {}

  void setErrorSlot(Value slot) {
    errorSlot = slot;
    scalars.setErrorSlot(slot);
  }
  void setStreams(const Streams &s) { streams = s; }
  void setThread(Value row, Value inRow, Value inBlock, Value inCluster, Value rowIsThere, Value sharedMemory) {
    rowIndex = row;
    place = inRow;
    rowThreads = {schedule.threads, schedule.rowsPerBlock, schedule.across, acrossLanes(),
                  inBlock,          schedule.cluster,      inCluster};
    there = rowIsThere;
    shared = sharedMemory;
  }
  /// The block's rows are staged, from this one on; `thread` (index) is that in the block.
  void setTile(Value firstRow, Value thread) {
    tile.emplace(b, loc, graph, trace, schedule.rowsPerBlock, schedule.rows, schedule.threads * schedule.rowsPerBlock,
                 firstRow, thread, inputs, outputs);
  }
  /// Slots of shared memory, an i64 each.
  int64_t slots() const {
    return reductionCount() *
           RowThreads{schedule.threads, schedule.rowsPerBlock, schedule.across, acrossLanes(),
                      Value(),          schedule.cluster,      Value()}
               .slots() *
           (schedule.parts ? 2 : 1);
  }
  void plan();
  /// One row, or the rows of a part. Returns the bytes of dynamic shared memory.
  int64_t emit();

private:
  void awaitCluster();
  int64_t acrossLanes() const { return schedule.across ? schedule.lanes : 1; }
  int64_t vectorsOfRow() const { return schedule.across ? schedule.width : schedule.width / schedule.lanes; }
  int64_t reductionCount() const {
    int64_t n = 0;
    for (const Pass &p : passes)
      n += static_cast<int64_t>(p.reductions.size() + 2 * p.online.size());
    return n + (factored ? 1 : 0); // it may be reduced again
  }
  Combiner combinerOf(uint32_t reduction) const { return emit::combinerOf(graph, trace, reduction); }
  bool isReduction(const Instance &in) const {
    return in.node != kNone && opInfo(graph.nodes[in.node].op).cls == OpClass::Reduction;
  }
  void emitVarying(TraceEmitter &, uint32_t instance);
  bool storesRow(const TraceStore &s) const { return graph.type(graph.outputs[s.output]).elements() != schedule.rows; }
  void collect(uint32_t root, std::vector<bool> &in) const;
  bool isFactored(uint32_t reduction) const { return factored && factored->reduction == reduction; }
  std::vector<uint32_t> inOrder(const std::vector<bool> &needed) const;

  std::unique_ptr<TraceEmitter> vectorEmitter(Value row, Value vector);
  void emitRow();
  void emitPart();
  std::pair<Value, Value> vectorOfThread(int64_t u);
  void emitIndices();
  void emitLoads();
  void emitScalars(uint32_t level);
  Value contributionOf(TraceEmitter &, uint32_t reduction, const Combiner &, Value valid);
  Value addTo(Value total, TraceEmitter &, uint32_t reduction, const Combiner &, Value valid);
  Value narrowOperand(TraceEmitter &, uint32_t reduction, const Combiner &, Value valid);
  Value acrossVector(const Combiner &, Value);
  void storeRow(TraceEmitter &, size_t which, const Pass &, Value valid);
  void storeScalars();
  void residentPass(const Pass &, uint32_t level);
  void loopPass(const Pass &);
  void makeScratch();
  Value scratchAt(uint32_t instance, Value vector);
  mlir::Type scratchType() const { return mlir::VectorType::get({trace.lanes}, b.getF32Type()); }
  void finishReductions(const Pass &, llvm::SmallVector<Value> partial);
  void findOnlineSums();
  Value sumOnline(TraceEmitter &, const Pass &, size_t which, Value local, Value isThere);
  Value finishOnline(const OnlineEmitter &, const OnlineSum &, Value top, Value sum);
  void residentOnline(const Pass &, uint32_t level, llvm::ArrayRef<Value> tops);
  void forget(TraceEmitter &, uint32_t level, bool beforeExponentials = false);
  void factorMax();
  Value withoutFactors(TraceEmitter &);
  Value addFactored(Value total, TraceEmitter &, Value valid);
  Value roundAsValue(Value);
  llvm::SmallVector<Value>
  overAgain(mlir::ValueRange initial,
            llvm::function_ref<llvm::SmallVector<Value>(TraceEmitter &, Value valid, mlir::ValueRange)>);
  void finishFactoredMax();
  void factoredPass(const Pass &, uint32_t level);
  void require(mlir::arith::CmpFPredicate, Value, float limit);
  void requireWithin(Value);

  Value index(int64_t v) { return mlir::arith::ConstantIndexOp::create(b, loc, v); }
  Value add(Value x, Value y) {
    auto flags = mlir::arith::IntegerOverflowFlags::nsw | mlir::arith::IntegerOverflowFlags::nuw;
    return mlir::arith::AddIOp::create(b, loc, x, y, flags);
  }
  Value plus(Value x, int64_t c) { return c ? add(x, index(c)) : x; }
  Value constant(float f) { return mlir::arith::ConstantOp::create(b, loc, b.getF32FloatAttr(f)); }

  mlir::OpBuilder &b;
  mlir::Location loc;
  const Graph &graph;
  const RowSchedule &schedule;
  const CodeTarget &target;
  bool aligned;
  const Trace &trace;
  mlir::ValueRange inputs, outputs;
  TraceEmitter scalars; ///< what a row has once
  std::vector<Pass> passes;
  std::vector<std::unique_ptr<TraceEmitter>> held; ///< of a resident row: its vectors
  std::vector<Value> valid;                        ///< of these: whether the vector is there; null: always
  std::vector<Value> heldAt;                       ///< of these: which of the row's vectors it is
  std::optional<FactoredMax> factored;
  std::vector<uint32_t> toReduce,
      toStore;                   ///< what its operand and what is stored are computed from in a row beyond the limits
  std::vector<Value> unfactored; ///< of the held vectors: the values without the factors
  Value factor, withinLimits;    ///< the factors' product; the condition
  std::optional<RowTile> tile;
  llvm::SmallVector<Value> columnTotals; ///< of each column sum, for each of these
  std::vector<bool> dears;               ///< by instance: better kept than computed again
  /// Of a row that is gone over several times and keeps: where a thread has the dear results of the passes before.
  std::map<uint32_t, Value> scratch;
  std::set<uint32_t> inScratch; ///< those that a pass has stored
  Value rowIndex, place, there, shared, errorSlot;
  Streams streams;
  RowThreads rowThreads;
  int64_t nextSlot = 0, dynamicBytes = 0;
  bool clusterStarted = false;
};

} // namespace rl::emit
