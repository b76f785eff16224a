// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/emit/RowRing.h"
#include "compiler/emit/Kernel.h"
#include "passes/plan/RowSchedule.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace rl::emit {

using mlir::Value; // not the graph's

RowRing::RowRing(OpBuilder &b, Location loc, const Graph &graph, const Trace &trace, std::vector<uint32_t> loads,
                 int64_t stages, int64_t threads, int64_t unroll, Value thread)
    : b(b), loc(loc), graph(graph), trace(trace), loads(std::move(loads)), stages(stages), threads(threads),
      stageBytes(threads * unroll * vectorBytes(graph, trace, this->loads)), thread(thread),
      base(dynamicShared(b, loc)) {}

Value RowRing::stageOf(Value turn) {
  Value i = arith::IndexCastUIOp::create(b, loc, b.getI32Type(), turn);
  auto constant = [&](int64_t v) {
    return arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(static_cast<int32_t>(v)));
  };
  return arith::MulIOp::create(b, loc, arith::AndIOp::create(b, loc, i, constant(stages - 1)), constant(stageBytes));
}

/// Neighbouring threads have neighbouring slots of one vector of one tensor, so that no bank is asked for twice at once.
void RowRing::eachSlot(Value stage, ArrayRef<std::unique_ptr<TraceEmitter>> vectors,
                       llvm::function_ref<void(TraceEmitter &, uint32_t, Value)> visit) {
  Type i8 = b.getI8Type(), i32 = b.getI32Type();
  auto at = [&](Value from, Value offset) -> Value {
    return LLVM::GEPOp::create(b, loc, from.getType(), i8, from, ValueRange{offset});
  };
  Value own = arith::IndexCastUIOp::create(b, loc, i32, thread), row = at(base, stage);
  int64_t place = 0;
  for (uint32_t load : loads) {
    int64_t bytes = vectorBytes(graph, trace, {load});
    Value width = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(static_cast<int32_t>(bytes)));
    Value first = at(row, arith::MulIOp::create(b, loc, own, width));
    for (const std::unique_ptr<TraceEmitter> &vector : vectors) {
      visit(
          *vector, load,
          LLVM::GEPOp::create(b, loc, first.getType(), i8, first, ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(place)}));
      place += threads * bytes;
    }
  }
}

void RowRing::fill(Value turn, ArrayRef<std::unique_ptr<TraceEmitter>> vectors, Value isThere) {
  {
    OpBuilder::InsertionGuard guard(b);
    if (isThere) {
      auto branch = scf::IfOp::create(b, loc, isThere);
      b.setInsertionPoint(branch.thenBlock()->getTerminator());
    }
    eachSlot(stageOf(turn), vectors,
             [&](TraceEmitter &e, uint32_t load, Value slot) { e.copyAsync(trace.instances[load], slot); });
  }
  // Counted even where nothing is copied, so that the wait below is for the same number every time.
  NVVM::CpAsyncCommitGroupOp::create(b, loc);
}

void RowRing::take(Value turn, ArrayRef<std::unique_ptr<TraceEmitter>> vectors) {
  NVVM::CpAsyncWaitGroupOp::create(b, loc, static_cast<uint32_t>(stages - 1));
  eachSlot(stageOf(turn), vectors, [&](TraceEmitter &e, uint32_t load, Value slot) {
    DType type = graph.type(trace.instances[load].value).dtype;
    auto vector = VectorType::get({trace.lanes}, e.bodies().memoryType(type));
    auto bytes = static_cast<unsigned>(vectorBytes(graph, trace, {load}));
    e.lane(load) = e.bodies().fromMemory(LLVM::LoadOp::create(b, loc, vector, slot, bytes), type);
  });
}

} // namespace rl::emit
