// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/emit/RowTile.h"
#include "compiler/emit/HopperAsm.h"
#include "compiler/emit/Kernel.h"
#include "passes/plan/RowSchedule.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace rl::emit {

using mlir::Value; // not the graph's

RowTile::RowTile(OpBuilder &b, Location loc, const Graph &graph, const Trace &trace, int64_t rows, int64_t allRows,
                 int64_t threads, Value firstRow, Value thread, ValueRange inputs, ValueRange outputs)
    : b(b), loc(loc), graph(graph), trace(trace), rows(rows), allRows(allRows), bytes(kStagedBarrier),
      firstRow(firstRow), thread(thread), base(dynamicShared(b, loc)) {
  assert(threads >= 16 && "one for each byte of what two ranges share");
  for (uint32_t i : stagedLoads(graph, trace))
    for (auto [place, v] : llvm::enumerate(graph.inputs))
      if (v == trace.instances[i].value)
        addRange({.instance = i, .pointer = inputs[place]}, graph.type(v).dtype);
  for (size_t s : stagedStores(graph, trace)) {
    const TraceStore &store = trace.stores[s];
    addRange({.instance = store.instance, .store = &store, .pointer = outputs[store.output]},
             graph.type(trace.instances[store.instance].value).dtype);
  }
}

Value RowTile::number(int64_t v) { return arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(v)); }
Value RowTile::roundDown(Value v) { return arith::AndIOp::create(b, loc, v, number(-16)); }
Value RowTile::roundUp(Value v) { return roundDown(arith::AddIOp::create(b, loc, v, number(15))); }

void RowTile::addRange(Range r, DType type) {
  r.dtype = type;
  r.size = static_cast<int64_t>(dtypeSize(type));
  r.place = bytes;
  bytes += stagedBytes(trace, type, rows);
  const int64_t row = trace.width * r.size;
  r.starts = rows * row % 16 == 0;
  r.ends = r.starts && allRows % rows == 0;
  Value first = arith::IndexCastUIOp::create(b, loc, b.getI64Type(), firstRow);
  Value last = arith::AddIOp::create(b, loc, first, number(rows));
  if (allRows % rows != 0)
    last = arith::MinUIOp::create(b, loc, last, number(allRows));
  r.begin = arith::MulIOp::create(b, loc, first, number(row));
  r.end = arith::MulIOp::create(b, loc, last, number(row));
  r.first = r.starts ? r.begin : roundDown(r.begin);
  ranges.push_back(r);
}

/// A number of bytes as an address in shared memory.
Value RowTile::inShared(Value offset) {
  Value start = LLVM::PtrToIntOp::create(b, loc, b.getI32Type(), base);
  return arith::AddIOp::create(b, loc, start, arith::TruncIOp::create(b, loc, b.getI32Type(), offset));
}

Value RowTile::global(const Range &r, Value offset) {
  return LLVM::GEPOp::create(b, loc, r.pointer.getType(), b.getI8Type(), r.pointer, ValueRange{offset});
}

void RowTile::onFirstThread(llvm::function_ref<void()> body) {
  Value zero = arith::ConstantIndexOp::create(b, loc, 0);
  auto branch = scf::IfOp::create(b, loc, arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, thread, zero));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(branch.thenBlock()->getTerminator());
  body();
}

/// The elements of less than 16 bytes of a range, in memory and in shared memory, a thread each.
void RowTile::eachElement(const Range &r, Value from, Value to, llvm::function_ref<void(Value, Value)> body) {
  Value own = arith::IndexCastUIOp::create(b, loc, b.getI64Type(), thread);
  Value at = arith::AddIOp::create(b, loc, from, arith::MulIOp::create(b, loc, own, number(r.size)));
  Value few = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, own, number(16 / r.size));
  Value inside = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, at, to);
  auto branch = scf::IfOp::create(b, loc, arith::AndIOp::create(b, loc, few, inside));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(branch.thenBlock()->getTerminator());
  Value place = arith::AddIOp::create(b, loc, arith::SubIOp::create(b, loc, at, r.first), number(r.place));
  body(global(r, at), LLVM::GEPOp::create(b, loc, base.getType(), b.getI8Type(), base, ValueRange{place}));
}

void RowTile::load() {
  HopperAsm hopper(b, loc);
  Value barrier = inShared(number(0));
  // What lies behind the last whole 16 bytes of a tensor is not there to be copied.
  auto lastOf = [&](const Range &r) -> Value {
    if (r.ends)
      return r.end;
    const int64_t whole = allRows * trace.width * r.size / 16 * 16;
    return arith::MinSIOp::create(b, loc, roundUp(r.end), number(whole));
  };
  onFirstThread([&] {
    hopper.initBarrier(barrier, 1);
    hopper.fenceBarrierInit();
    Value zero = number(0), all = zero;
    SmallVector<Value> counts;
    for (const Range &r : ranges) {
      Value count = zero;
      if (!r.store)
        count = arith::MaxSIOp::create(b, loc, arith::SubIOp::create(b, loc, lastOf(r), r.first), zero);
      counts.push_back(count);
      all = arith::AddIOp::create(b, loc, all, count);
    }
    hopper.expectBytes(barrier, arith::TruncIOp::create(b, loc, b.getI32Type(), all));
    for (auto [r, count] : llvm::zip(ranges, counts)) {
      if (r.store)
        continue;
      auto branch = scf::IfOp::create(b, loc, arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sgt, count, zero));
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPoint(branch.thenBlock()->getTerminator());
      hopper.loadRange(inShared(number(r.place)), global(r, r.first),
                       arith::TruncIOp::create(b, loc, b.getI32Type(), count), barrier);
    }
  });
  for (const Range &r : ranges)
    if (allRows * trace.width * r.size % 16 != 0 && !r.store) {
      Value last = lastOf(r);
      eachElement(r, arith::MaxSIOp::create(b, loc, last, r.begin), r.end, [&](Value from, Value to) {
        Type element = b.getIntegerType(static_cast<unsigned>(8 * r.size));
        auto alignment = static_cast<unsigned>(r.size);
        LLVM::StoreOp::create(b, loc, LLVM::LoadOp::create(b, loc, element, from, alignment), to, alignment);
      });
    }
  NVVM::Barrier0Op::create(b, loc);
  hopper.waitRange(barrier);
}

Value RowTile::slot(const Range &r, Value row, Value vector) {
  auto wide = [&](Value v) { return arith::IndexCastUIOp::create(b, loc, b.getI64Type(), v).getResult(); };
  Value inTile = arith::SubIOp::create(b, loc, wide(row), wide(firstRow));
  Value element = arith::AddIOp::create(b, loc, arith::MulIOp::create(b, loc, inTile, number(trace.width)),
                                        arith::MulIOp::create(b, loc, wide(vector), number(trace.lanes)));
  Value at = arith::AddIOp::create(b, loc, arith::MulIOp::create(b, loc, element, number(r.size)), number(r.place));
  if (!r.starts)
    at = arith::AddIOp::create(b, loc, at, arith::SubIOp::create(b, loc, r.begin, r.first));
  return LLVM::GEPOp::create(b, loc, base.getType(), b.getI8Type(), base, ValueRange{at});
}

void RowTile::take(TraceEmitter &e, Value row, Value vector) {
  for (const Range &r : ranges) {
    if (r.store)
      continue;
    Type element = e.bodies().memoryType(r.dtype);
    Type type = trace.lanes == 1 ? element : VectorType::get({trace.lanes}, element);
    Value v = LLVM::LoadOp::create(b, loc, type, slot(r, row, vector), static_cast<unsigned>(trace.lanes * r.size));
    e.lane(r.instance) = e.bodies().fromMemory(v, r.dtype);
  }
}

const RowTile::Range *RowTile::rangeOf(const TraceStore &store) const {
  for (const Range &r : ranges)
    if (r.store == &store)
      return &r;
  return nullptr;
}

void RowTile::put(TraceEmitter &e, const TraceStore &store, Value row, Value vector) {
  const Range &r = *rangeOf(store);
  Value v = e.bodies().splatTo(e.bodies().toMemory(e.lane(store.instance), r.dtype), trace.lanes);
  LLVM::StoreOp::create(b, loc, v, slot(r, row, vector), static_cast<unsigned>(trace.lanes * r.size));
}

void RowTile::store() {
  if (llvm::none_of(ranges, [](const Range &r) { return r.store; }))
    return;
  HopperAsm hopper(b, loc);
  hopper.fenceProxy();
  NVVM::Barrier0Op::create(b, loc);
  auto firstOf = [&](const Range &r) { return r.starts ? r.begin : roundUp(r.begin); };
  auto lastOf = [&](const Range &r) { return r.ends ? r.end : roundDown(r.end); };
  onFirstThread([&] {
    for (const Range &r : ranges) {
      if (!r.store)
        continue;
      Value from = firstOf(r), count = arith::SubIOp::create(b, loc, lastOf(r), from);
      auto branch =
          scf::IfOp::create(b, loc, arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sgt, count, number(0)));
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPoint(branch.thenBlock()->getTerminator());
      Value place = arith::AddIOp::create(b, loc, arith::SubIOp::create(b, loc, from, r.first), number(r.place));
      hopper.storeRange(global(r, from), inShared(place), arith::TruncIOp::create(b, loc, b.getI32Type(), count));
    }
    hopper.commitStores();
  });
  for (const Range &r : ranges) {
    if (!r.store)
      continue;
    auto copy = [&](Value to, Value from) {
      Type element = b.getIntegerType(static_cast<unsigned>(8 * r.size));
      auto alignment = static_cast<unsigned>(r.size);
      LLVM::StoreOp::create(b, loc, LLVM::LoadOp::create(b, loc, element, from, alignment), to, alignment);
    };
    if (!r.starts)
      eachElement(r, r.begin, arith::MinSIOp::create(b, loc, firstOf(r), r.end), copy);
    if (!r.ends)
      eachElement(r, arith::MaxSIOp::create(b, loc, lastOf(r), firstOf(r)), r.end, copy);
  }
  // The memory is the block's until it has been read.
  onFirstThread([&] { hopper.waitStoresRead(0); });
}

} // namespace rl::emit
