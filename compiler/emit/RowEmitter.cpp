// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/emit/RowEmitter.h"
#include "compiler/emit/Packed.h"
#include "passes/plan/RowSchedule.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace rl::emit {

using mlir::Value; // not the graph's

/// What differs within the row among what `root` is computed from, itself included; not what is above a value that is computed by
/// its factors.
void RowEmitter::collect(uint32_t root, std::vector<bool> &in) const {
  std::vector<uint32_t> work{root};
  while (!work.empty()) {
    uint32_t i = work.back();
    work.pop_back();
    if (i == kNone || in[i] || !trace.instances[i].varies)
      continue;
    in[i] = true;
    if (factored && targetOf(*factored) == i)
      continue;
    for (uint32_t o : trace.instances[i].operands)
      work.push_back(o);
    for (const Instance::Piece &p : trace.instances[i].pieces)
      work.push_back(p.instance);
  }
}

/// A maximum that several sums are over is one of a pair with the first; the others stay in the next pass.
void RowEmitter::findOnlineSums() {
  for (size_t p = 0; p + 1 < passes.size(); ++p)
    for (uint32_t sum : std::vector<uint32_t>(passes[p + 1].reductions)) {
      std::optional<OnlineSum> pair = findOnline(graph, trace, sum);
      auto &tops = passes[p].reductions;
      auto top = pair ? std::find(tops.begin(), tops.end(), pair->top) : tops.end();
      if (top == tops.end())
        continue;
      tops.erase(top);
      std::erase(passes[p + 1].reductions, sum);
      passes[p].online.push_back(*pair);
    }
}

/// What a branch computes is written with the branch.
std::vector<uint32_t> RowEmitter::inOrder(const std::vector<bool> &needed) const {
  std::vector<uint32_t> out;
  for (uint32_t i : trace.scopes[0].order)
    if (needed[i])
      out.push_back(i);
  return out;
}

/// The maximum of magnitudes ends a pass earlier.
void RowEmitter::factorMax() {
  std::optional<FactoredMax> found = findFactoredMax(graph, trace).found;
  if (!found)
    return;
  std::vector<bool> needed(trace.instances.size(), false);
  collect(trace.instances[found->reduction].operands[0], needed);
  toReduce = inOrder(needed);
  needed.assign(trace.instances.size(), false);
  for (size_t s : passes[trace.levels].stores)
    collect(trace.stores[s].instance, needed);
  toStore = inOrder(needed);
  factored = std::move(found);
  std::erase(passes[factored->level].reductions, factored->reduction);
  passes[factored->level - 1].reductions.push_back(factored->reduction);
}

void RowEmitter::plan() {
  passes.resize(trace.levels + 1);
  for (uint32_t i = 0; i < trace.instances.size(); ++i)
    if (isReduction(trace.instances[i]) && !trace.instances[i].segment)
      passes[trace.instances[i].level - 1].reductions.push_back(i);
  for (size_t s = 0; s < trace.stores.size(); ++s)
    if (storesRow(trace.stores[s]))
      passes[trace.instances[trace.stores[s].instance].level].stores.push_back(s);
  for (size_t s = 0; s < trace.columnSums.size(); ++s)
    passes[trace.instances[trace.columnSums[s].instance].level].columnSums.push_back(s);
  if (schedule.online)
    findOnlineSums();
  if (schedule.factored)
    factorMax();
  dears = dearInstances(graph, trace);
  for (Pass &p : passes) {
    std::vector<bool> needed;
    for (const OnlineSum &pair : p.online) {
      needed.assign(trace.instances.size(), false);
      collect(trace.instances[pair.sum].operands[0], needed);
      p.exponentials.push_back(inOrder(needed));
    }
    needed.assign(trace.instances.size(), false);
    for (const OnlineSum &pair : p.online)
      collect(trace.instances[pair.top].operands[0], needed);
    for (uint32_t r : p.reductions)
      if (!isFactored(r))
        collect(trace.instances[r].operands[0], needed);
      else
        for (const FactoredMax::Step &s : factored->steps)
          collect(s.instance, needed);
    for (size_t s : p.stores)
      collect(trace.stores[s].instance, needed);
    for (size_t s : p.columnSums)
      collect(trace.columnSums[s].instance, needed);
    p.instances = inOrder(needed);
  }
}

/// Large blocks leave a thread so few registers that a subroutine, which a linked quotient calls, would have some spilled.
static bool isLarge(const RowSchedule &s) {
  constexpr int64_t kLarge = 512;
  return s.threads * s.rowsPerBlock >= kLarge;
}

/// So where a row's loads take so many.
static bool holdsMany(const RowSchedule &s, const Graph &graph, const Trace &trace) {
  constexpr int64_t kMany = 64, kManyOfLarge = 40;
  int64_t bytes = 0;
  for (const Instance &in : trace.instances)
    if (in.node == kNone && in.varies && !in.uniform)
      bytes += static_cast<int64_t>(dtypeSize(graph.type(in.value).dtype)) * trace.lanes;
  return s.resident && s.unroll * bytes / 4 > (isLarge(s) ? kManyOfLarge : kMany);
}

std::unique_ptr<TraceEmitter> RowEmitter::vectorEmitter(Value row, Value vector) {
  auto e = std::make_unique<TraceEmitter>(b, loc, graph, trace, target, aligned, inputs, outputs);
  e->setRowIndex(row);
  e->setVectorIndex(vector);
  e->setErrorSlot(errorSlot);
  e->setStreams(streams);
  if (target.nvptx && schedule.cluster == 1 && isLarge(schedule) && holdsMany(schedule, graph, trace))
    e->bodies().spareRegisters();
  return e;
}

/// What a row has once and `level` reductions suffice for.
void RowEmitter::emitScalars(uint32_t level) {
  for (uint32_t i : trace.scopes[0].order) {
    const Instance &in = trace.instances[i];
    if (!in.varies && in.level == level && !isReduction(in))
      scalars.emit(i);
  }
}

/// One instance of a pass over the row. A reduction of segments is combined by the threads that have the segment.
void RowEmitter::emitVarying(TraceEmitter &e, uint32_t i) {
  const Instance &in = trace.instances[i];
  if (!in.segment || e.has(i))
    return e.emit(i);
  Combiner c = combinerOf(i);
  Value v = c.acrossLanes(b, loc, contributionOf(e, i, c, Value()));
  v = combineInWarp(b, loc, c, v, in.segment / trace.lanes);
  e.lane(i) = c.finish(e.bodies(), v);
}

Value RowEmitter::contributionOf(TraceEmitter &e, uint32_t reduction, const Combiner &c, Value isThere) {
  Value v = c.contribution(e.bodies(), loc, e.lane(trace.instances[reduction].operands[0]), trace.lanes);
  if (isThere)
    v = arith::SelectOp::create(b, loc, isThere, v, c.identity(b, loc, trace.lanes));
  return v;
}

/// A partial result and what an element adds to it: of a sum of products, as within a norm, in one operation.
Value RowEmitter::addTo(Value total, TraceEmitter &e, uint32_t reduction, const Combiner &c, Value isThere) {
  const Instance &in = trace.instances[reduction];
  if (total && !isThere && c.op == OpKind::Sum && c.operand == DType::F32)
    if (SmallVector<Value> f = e.factorsFor(in.operands[0], graph.nodes[in.node], false); !f.empty())
      return math::FmaOp::create(b, loc, f[0], f[1], total);
  Value v = contributionOf(e, reduction, c, isThere);
  return total ? c.combine(b, loc, total, v) : v;
}

/// What a maximum or minimum takes of a vector whose values were 16 bits wide before they were widened, or their magnitudes: these
/// 16 bits, of which one instruction compares two. Null: it is over something else.
Value RowEmitter::narrowOperand(TraceEmitter &e, uint32_t reduction, const Combiner &c, Value isThere) {
  if (!target.nvptx || trace.lanes == 1 || acrossLanes() > 1 || (c.op != OpKind::Amax && c.op != OpKind::Amin))
    return {};
  uint32_t i = trace.instances[reduction].operands[0];
  auto opOf = [&] { return trace.instances[i].node == kNone ? OpKind::Full : graph.nodes[trace.instances[i].node].op; };
  bool magnitude = opOf() == OpKind::Abs;
  if (magnitude)
    i = trace.instances[i].operands[0];
  if (opOf() == OpKind::Cast && graph.type(trace.instances[i].value).dtype == DType::F32)
    i = trace.instances[i].operands[0];
  DType from = graph.type(trace.instances[i].value).dtype;
  Value raw = e.lane(i).raw;
  if (!raw || !isa<VectorType>(raw.getType()) || (from != DType::BF16 && from != DType::F16))
    return {};
  FloatType element = from == DType::BF16 ? FloatType(b.getBF16Type()) : FloatType(b.getF16Type());
  auto type = VectorType::get({trace.lanes}, element);
  Value v = arith::BitcastOp::create(b, loc, type, raw);
  if (magnitude)
    v = math::AbsFOp::create(b, loc, v);
  if (isThere) {
    llvm::APFloat none = llvm::APFloat::getInf(element.getFloatSemantics(), /*Negative=*/c.op == OpKind::Amax);
    v = arith::SelectOp::create(b, loc, isThere, v,
                                arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, none)));
  }
  return v;
}

/// The lanes of a thread's partial result.
Value RowEmitter::acrossVector(const Combiner &c, Value v) {
  if (acrossLanes() > 1)
    return v;
  v = c.acrossLanes(b, loc, v);
  return isa<FloatType>(v.getType()) && !v.getType().isF32() ? arith::ExtFOp::create(b, loc, b.getF32Type(), v) : v;
}

/// `which`: of a resident row's vectors.
void RowEmitter::storeRow(TraceEmitter &e, size_t which, const Pass &pass, Value isThere) {
  if (pass.stores.empty())
    return;
  if (there)
    isThere = isThere ? arith::AndIOp::create(b, loc, isThere, there).getResult() : there;
  OpBuilder::InsertionGuard guard(b);
  if (isThere) {
    auto branch = scf::IfOp::create(b, loc, isThere);
    b.setInsertionPoint(branch.thenBlock()->getTerminator());
  }
  e.enterBlock();
  for (size_t s : pass.stores)
    if (tile && tile->stages(trace.stores[s]))
      tile->put(e, trace.stores[s], rowIndex, heldAt[which]);
    else if (int64_t n = graph.type(graph.outputs[trace.stores[s].output]).elements();
             n == schedule.rows * schedule.width)
      e.emitStore(trace.stores[s]);
    else
      e.emitSegmentStore(trace.stores[s], schedule.rows * vectorsOfRow() / n);
  e.leaveBlock();
}

void RowEmitter::storeScalars() {
  std::vector<const TraceStore *> stores;
  for (const TraceStore &s : trace.stores)
    if (!storesRow(s))
      stores.push_back(&s);
  if (stores.empty())
    return;
  OpBuilder::InsertionGuard guard(b);
  Value writes = there;
  if (schedule.threads > 1) {
    Value first = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, place, index(0));
    writes = writes ? arith::AndIOp::create(b, loc, writes, first).getResult() : first;
  }
  if (writes) {
    auto branch = scf::IfOp::create(b, loc, writes);
    b.setInsertionPoint(branch.thenBlock()->getTerminator());
  }
  scalars.enterBlock();
  for (const TraceStore *s : stores)
    if (acrossLanes() > 1)
      scalars.emitStore(*s);
    else
      scalars.emitScalarStore(*s);
  scalars.leaveBlock();
}

/// Before anything is written to another block's shared memory that block must have begun.
void RowEmitter::awaitCluster() {
  if (schedule.cluster > 1 && !clusterStarted)
    NVVM::ClusterWaitOp::create(b, loc, b.getUnitAttr());
  clusterStarted = true;
}

void RowEmitter::finishReductions(const Pass &pass, SmallVector<Value> partial) {
  if (pass.reductions.empty())
    return;
  SmallVector<Combiner> combiners;
  for (auto [r, v] : llvm::zip(pass.reductions, partial)) {
    combiners.push_back(combinerOf(r));
    v = acrossVector(combiners.back(), v);
  }
  awaitCluster();
  combineThreads(b, loc, rowThreads, combiners, partial, shared, nextSlot);
  nextSlot += static_cast<int64_t>(pass.reductions.size()) * rowThreads.slots();
  for (auto [r, c, v] : llvm::zip(pass.reductions, combiners, partial))
    scalars.lane(r) = c.finish(scalars.bodies(), v);
}

/// Between two passes over a resident row: loads stay, packed as they came; of the rest at most what takes the
/// special-function unit and is needed again.
void RowEmitter::forget(TraceEmitter &e, uint32_t level, bool beforeExponentials) {
  std::vector<bool> later(trace.instances.size(), false);
  for (uint32_t p = level + 1; p < passes.size(); ++p)
    for (uint32_t i : passes[p].instances)
      later[i] = true;
  if (beforeExponentials)
    for (const auto &list : passes[level].exponentials)
      for (uint32_t i : list)
        later[i] = true;
  for (uint32_t i : trace.scopes[0].order) {
    const Instance &in = trace.instances[i];
    if (!in.varies || !e.has(i))
      continue;
    if (in.node == kNone) {
      if (later[i])
        if (target.nvptx)
          hidePacked(b, loc, e.lane(i));
      continue;
    }
    const bool dear = schedule.keeps && dears[i];
    if (!dear || !later[i])
      e.lane(i) = {};
  }
}

/// A thread's part of the sum in one vector, lane by lane, with `local` for what is subtracted.
Value RowEmitter::sumOnline(TraceEmitter &e, const Pass &pass, size_t which, Value local, Value isThere) {
  const OnlineSum &pair = pass.online[which];
  e.lane(pair.subtracted) = {DType::F32, local, local, {}};
  for (uint32_t i : pass.exponentials[which])
    emitVarying(e, i);
  return contributionOf(e, pair.sum, combinerOf(pair.sum), isThere);
}

/// Makes the pair known to what follows; returns the factor to the row's of what this thread has computed.
Value RowEmitter::finishOnline(const OnlineEmitter &online, const OnlineSum &pair, Value top, Value sum) {
  Value own = top;
  sum = combinerOf(pair.sum).acrossLanes(b, loc, sum);
  awaitCluster();
  online.combineThreads(rowThreads, top, sum, shared, nextSlot);
  nextSlot += 2 * rowThreads.slots();
  scalars.lane(pair.top) = {DType::F32, top, top, {}};
  scalars.lane(pair.sum) = {DType::F32, sum, sum, {}};
  return online.factor(own, top);
}

/// The second half of a pass with pairs: sums over what each thread subtracts, from its own maxima, one a pair.
void RowEmitter::residentOnline(const Pass &pass, uint32_t level, ArrayRef<Value> tops) {
  for (size_t o = 0; o < pass.online.size(); ++o) {
    const OnlineSum &pair = pass.online[o];
    OnlineEmitter online(b, loc, graph, trace, pair);
    Combiner c = combinerOf(pair.sum);
    Value top = tops[o], local = online.local(top), sum;
    for (size_t u = 0; u < held.size(); ++u) {
      // One register a pair, not one a lane: a row that fills the registers of a block leaves few.
      sum = c.inOrder(b, loc, sum, sumOnline(*held[u], pass, o, local, valid[u]));
      forget(*held[u], level, /*beforeExponentials=*/pass.online.size() > 1);
      // What follows from the thread's own maximum is of no use later, but for the exponential, which a factor corrects.
      for (uint32_t i : pass.exponentials[o])
        if (trace.instances[i].level > level && i != pair.exponential)
          held[u]->lane(i) = {};
      held[u]->lane(pair.subtracted) = {};
    }
    Value factor = finishOnline(online, pair, top, sum);
    for (auto &e : held)
      if (e->has(pair.exponential)) {
        Value v = e->bodies().wide(e->lane(pair.exponential));
        v = arith::MulFOp::create(b, loc, v,
                                  e->bodies().splatTo(factor, isa<VectorType>(v.getType()) ? trace.lanes : 1));
        e->lane(pair.exponential) = {DType::F32, v, v, {}};
      }
  }
}

void RowEmitter::residentPass(const Pass &pass, uint32_t level) {
  SmallVector<Value> partial(pass.reductions.size()), tops(pass.online.size());
  for (size_t u = 0; u < held.size(); ++u) {
    TraceEmitter &e = *held[u];
    for (uint32_t i = 0; i < trace.instances.size(); ++i)
      if (!trace.instances[i].varies && trace.instances[i].scope == 0 && scalars.has(i))
        e.lane(i) = scalars.lane(i);
    for (uint32_t i : pass.instances)
      emitVarying(e, i);
    for (auto [r, total] : llvm::zip(pass.reductions, partial)) {
      Combiner c = combinerOf(r);
      if (isFactored(r))
        total = addFactored(total, e, valid[u]);
      else if (Value v = narrowOperand(e, r, c, valid[u]))
        total = total ? c.combine(b, loc, total, v) : v;
      else
        total = addTo(total, e, r, c, valid[u]);
    }
    for (auto [pair, top] : llvm::zip(pass.online, tops)) {
      Combiner c = combinerOf(pair.top);
      if (Value v = narrowOperand(e, pair.top, c, valid[u]))
        top = top ? c.combine(b, loc, top, v) : v;
      else
        top = c.inOrder(b, loc, top, contributionOf(e, pair.top, c, valid[u]));
    }
    storeRow(e, u, pass, valid[u]);
    for (size_t s : pass.columnSums) {
      Value &total = columnTotals[s * held.size() + u];
      Value v = e.bodies().splatTo(e.bodies().wide(e.lane(trace.columnSums[s].instance)), trace.lanes);
      total = arith::AddFOp::create(b, loc, total, v);
    }
    forget(e, level, !pass.online.empty());
  }
  for (auto [pair, top] : llvm::zip(pass.online, tops))
    top = acrossVector(combinerOf(pair.top), top);
  residentOnline(pass, level, tops);
  finishReductions(pass, std::move(partial));
}

/// Memory for each dear f32 result that more than one pass over the row needs.
void RowEmitter::makeScratch() {
  std::map<uint32_t, int> uses;
  for (const Pass &p : passes)
    for (uint32_t i : p.instances)
      ++uses[i];
  OpBuilder::InsertionGuard guard(b);
  // In the entry: once a call, however many rows that has.
  auto function = b.getInsertionBlock()->getParentOp();
  if (!isa<func::FuncOp>(function))
    function = function->getParentOfType<func::FuncOp>();
  b.setInsertionPointToStart(&cast<func::FuncOp>(function).getBody().front());
  for (auto [i, times] : uses) {
    const Instance &in = trace.instances[i];
    if (!dears[i] || times < 2 || in.segment || in.scope != 0 || graph.type(in.value).dtype != DType::F32 ||
        trace.lanes == 1)
      continue;
    Value count = arith::ConstantIntOp::create(b, loc, b.getI64Type(), vectorsOfRow());
    scratch[i] = LLVM::AllocaOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext()), scratchType(), count, 64);
  }
}

Value RowEmitter::scratchAt(uint32_t instance, Value vector) {
  Value at = arith::IndexCastUIOp::create(b, loc, b.getI64Type(), vector), memory = scratch[instance];
  return LLVM::GEPOp::create(b, loc, memory.getType(), scratchType(), memory, ValueRange{at});
}

void RowEmitter::loopPass(const Pass &pass) {
  int64_t vectors = vectorsOfRow(), T = schedule.threads, U = schedule.unroll;
  SmallVector<Combiner> combiners;
  for (uint32_t r : pass.reductions)
    combiners.push_back(combinerOf(r));
  auto emitterAt = [&](Value at) {
    std::unique_ptr<TraceEmitter> e = vectorEmitter(rowIndex, at);
    for (uint32_t i = 0; i < trace.instances.size(); ++i)
      if (!trace.instances[i].varies && trace.instances[i].scope == 0 && scalars.has(i))
        e->lane(i) = scalars.lane(i);
    for (uint32_t i : pass.instances)
      if (inScratch.contains(i)) {
        Value v = LLVM::LoadOp::create(b, loc, scratchType(), scratchAt(i, at), 4);
        e->lane(i) = {DType::F32, v, v, {}};
      }
    return e;
  };
  auto finish = [&](std::unique_ptr<TraceEmitter> &e, Value at, MutableArrayRef<Value> totals) {
    for (uint32_t i : pass.instances) {
      emitVarying(*e, i);
      if (scratch.contains(i) && !inScratch.contains(i)) {
        Value v = e->bodies().splatTo(e->bodies().wide(e->lane(i)), trace.lanes);
        LLVM::StoreOp::create(b, loc, v, scratchAt(i, at), 4);
      }
    }
    for (size_t r = 0; r < combiners.size(); ++r)
      totals[r] = addTo(totals[r], *e, pass.reductions[r], combiners[r], Value());
    storeRow(*e, 0, pass, Value());
  };
  // Of each pair the maximum so far, and the sum lane by lane.
  auto finishPairs = [&](MutableArrayRef<std::unique_ptr<TraceEmitter>> all, MutableArrayRef<Value> pairs) {
    for (size_t o = 0; o < pass.online.size(); ++o) {
      const OnlineSum &pair = pass.online[o];
      OnlineEmitter online(b, loc, graph, trace, pair);
      Combiner most = combinerOf(pair.top), total = combinerOf(pair.sum);
      Value &top = pairs[2 * o], &sum = pairs[2 * o + 1], seen;
      for (auto &e : all) {
        Value v = contributionOf(*e, pair.top, most, Value());
        seen = seen ? most.combine(b, loc, seen, v) : v;
      }
      Value before = top;
      top = most.combine(b, loc, top, most.acrossLanes(b, loc, seen));
      Value local = online.local(top), factor = online.rescale(before, top);
      sum = arith::MulFOp::create(b, loc, sum, all[0]->bodies().splatTo(factor, trace.lanes));
      for (auto &e : all)
        sum = total.combine(b, loc, sum, sumOnline(*e, pass, o, local, Value()));
    }
  };
  // Vectors of which all loads are issued first.
  auto bodies = [&](Value at, int64_t count, MutableArrayRef<Value> totals) {
    SmallVector<std::unique_ptr<TraceEmitter>> all;
    SmallVector<Value> places;
    for (int64_t u = 0; u < count; ++u) {
      places.push_back(plus(at, u * T));
      all.push_back(emitterAt(places.back()));
      for (uint32_t i : pass.instances)
        if (const Instance &in = trace.instances[i]; in.node == kNone && in.guard == 0 && all.back()->hasIndices(in))
          all.back()->emit(i);
    }
    for (auto [e, at] : llvm::zip(all, places))
      finish(e, at, totals);
    finishPairs(all, totals.drop_front(combiners.size()));
  };
  // U partial results of each reduction, so that one need not wait for another; what is left goes to the first. Lanes that are
  // rows are enough of them; of pairs there is one.
  int64_t sets = acrossLanes() > 1 || !pass.online.empty() ? 1 : U;
  SmallVector<Value> totals;
  for (int64_t u = 0; u < sets; ++u)
    for (const Combiner &c : combiners)
      totals.push_back(c.identity(b, loc, trace.lanes));
  for (const OnlineSum &pair : pass.online) {
    totals.push_back(combinerOf(pair.top).identity(b, loc, 1));
    totals.push_back(combinerOf(pair.sum).identity(b, loc, trace.lanes));
  }
  int64_t n = static_cast<int64_t>(combiners.size()), whole = vectors / (T * U) * (T * U);
  // From `from` up to `to` in steps of all threads' vectors.
  auto run = [&](Value from, Value to, ValueRange before) {
    auto loop = scf::ForOp::create(b, loc, from, to, index(T * U), before);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    SmallVector<Value> next(loop.getRegionIterArgs());
    if (sets == 1)
      bodies(loop.getInductionVar(), U, next);
    else
      for (int64_t u = 0; u < U; ++u)
        bodies(plus(loop.getInductionVar(), u * T), 1, MutableArrayRef<Value>(next).slice(u * n, n));
    if (!next.empty())
      scf::YieldOp::create(b, loc, next);
    return loop;
  };
  // What is added to one partial result is off by as many roundings: long rows are added up in blocks, and these then.
  constexpr int64_t kBlock = 1024;
  if (whole > 4 * kBlock * T * U && n > 0 && pass.online.empty() && pass.stores.empty()) {
    const int64_t block = kBlock * T * U;
    auto loop = scf::ForOp::create(b, loc, place, index(whole), index(block), totals);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value from = loop.getInductionVar();
    Value to = arith::MinUIOp::create(b, loc, plus(from, block), index(whole));
    auto inner = run(from, to, totals);
    SmallVector<Value> next;
    for (auto [r, before] : llvm::enumerate(loop.getRegionIterArgs()))
      next.push_back(
          combiners[r % combiners.size()].combine(b, loc, before, inner.getResult(static_cast<unsigned>(r))));
    scf::YieldOp::create(b, loc, next);
    totals.assign(loop.getResults().begin(), loop.getResults().end());
  } else if (whole) {
    auto loop = run(place, index(whole), totals);
    totals.assign(loop.getResults().begin(), loop.getResults().end());
  }
  if (whole < vectors) {
    SmallVector<Value> first(totals.begin(), totals.begin() + n);
    first.append(totals.begin() + sets * n, totals.end());
    auto loop = scf::ForOp::create(b, loc, plus(place, whole), index(vectors), index(T), first);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    SmallVector<Value> next(loop.getRegionIterArgs());
    bodies(loop.getInductionVar(), 1, next);
    if (!next.empty())
      scf::YieldOp::create(b, loc, next);
    std::copy_n(loop.getResults().begin(), n, totals.begin());
    std::copy(loop.getResults().begin() + n, loop.getResults().end(), totals.begin() + sets * n);
  }
  for (uint32_t i : pass.instances)
    if (scratch.contains(i))
      inScratch.insert(i);
  SmallVector<Value> partial;
  for (int64_t r = 0; r < n; ++r) {
    Value v = totals[r];
    for (int64_t u = 1; u < sets; ++u)
      v = combiners[r].combine(b, loc, v, totals[u * n + r]);
    partial.push_back(v);
  }
  for (size_t o = 0; o < pass.online.size(); ++o)
    finishOnline(OnlineEmitter(b, loc, graph, trace, pass.online[o]), pass.online[o], totals[sets * n + 2 * o],
                 totals[sets * n + 2 * o + 1]);
  finishReductions(pass, std::move(partial));
}

/// What a row's loads need of indices that the whole row shares.
void RowEmitter::emitIndices() {
  std::vector<bool> needed(trace.instances.size(), false);
  for (uint32_t i = static_cast<uint32_t>(trace.instances.size()); i-- > 0;) {
    const Instance &in = trace.instances[i];
    if (!needed[i] && in.node != kNone)
      continue;
    for (uint32_t o : in.operands)
      if (o != kNone)
        needed[o] = true;
    for (const Instance::Piece &p : in.pieces)
      if (p.instance != kNone)
        needed[p.instance] = true;
  }
  for (uint32_t i : trace.scopes[0].order)
    if (const Instance &in = trace.instances[i]; needed[i] && !in.varies && in.level == 0 && !isReduction(in)) {
      scalars.emit(i);
      for (auto &e : held)
        e->lane(i) = scalars.lane(i);
    }
}

/// A row's loads come first, so that all of them are in flight together; weights and the like that only a later pass reads
/// come right behind, if the registers for them are not worth more.
void RowEmitter::emitLoads() {
  constexpr int64_t kRegisters = 48;
  int64_t registers = 0;
  for (uint32_t p = 0; p < passes.size(); ++p)
    for (uint32_t i : passes[p].instances) {
      const Instance &in = trace.instances[i];
      if (in.node != kNone || in.guard != 0 || held[0]->has(i) || !held[0]->hasIndices(in))
        continue;
      auto bytes = static_cast<int64_t>(dtypeSize(graph.type(in.value).dtype)) * (in.uniform ? 1 : trace.lanes);
      registers += schedule.unroll * ((bytes + 3) / 4);
      if (p > 0 && registers > kRegisters)
        return;
      for (auto &e : held)
        e->emit(i);
    }
}

int64_t RowEmitter::emit() {
  if (schedule.parts)
    emitPart();
  else
    emitRow();
  return dynamicBytes;
}

/// The u-th vector of this thread in a resident row, and whether it is there (null: always). One beyond the row's end loads the
/// last in its place and counts for nothing.
std::pair<Value, Value> RowEmitter::vectorOfThread(int64_t u) {
  const int64_t vectors = vectorsOfRow(), threads = schedule.threads * schedule.cluster;
  Value at = plus(place, u * threads), isThere;
  if ((u + 1) * threads > vectors) {
    isThere = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, at, index(vectors));
    at = arith::SelectOp::create(b, loc, isThere, at, index(vectors - 1));
  }
  return {at, isThere};
}

void RowEmitter::emitRow() {
  // What a row has once costs next to nothing without.
  if (target.nvptx && schedule.cluster == 1 && (isLarge(schedule) || holdsMany(schedule, graph, trace)))
    scalars.bodies().spareRegisters();
  scalars.setRowIndex(rowIndex);
  scalars.setVectorIndex(index(0));
  if (schedule.resident && !schedule.parts) {
    for (int64_t u = 0; u < schedule.unroll; ++u) {
      auto [at, isThere] = vectorOfThread(u);
      held.push_back(vectorEmitter(rowIndex, at));
      valid.push_back(isThere);
      heldAt.push_back(at);
    }
  }
  if (tile) {
    tile->load();
    for (auto [e, at] : llvm::zip(held, heldAt))
      tile->take(*e, rowIndex, at);
  }
  if (schedule.resident) {
    emitIndices();
    emitLoads();
  } else if (schedule.keeps) {
    makeScratch();
  }
  for (uint32_t p = 0; p < passes.size(); ++p) {
    emitScalars(p);
    if (factored && factored->level == p)
      finishFactoredMax();
    if (passes[p].empty())
      continue;
    if (factored && p == trace.levels)
      factoredPass(passes[p], p);
    else if (schedule.resident)
      residentPass(passes[p], p);
    else
      loopPass(passes[p]);
  }
  storeScalars();
  if (tile) {
    tile->store();
    dynamicBytes = tile->sharedBytes();
  }
}

} // namespace rl::emit
