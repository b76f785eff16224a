// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/emit/Pointwise.h"
#include "compiler/emit/Kernel.h"
#include "compiler/emit/TraceEmitter.h"
#include "passes/plan/Trace.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;

namespace rl::emit {

using mlir::Value; // not the graph's

Result<int64_t> emitPointwise(ModuleOp module, const PointwiseKernel &kernel, const CodeTarget &target,
                              bool alignedTo16) {
  const Graph &graph = kernel.body;
  TraceRequest request;
  request.graph = &graph;
  request.outputs = graph.outputs;
  request.boundary.assign(graph.values.size(), false);
  request.splitCat = kernel.schedule.splitCat;
  request.lanes = kernel.schedule.lanes;
  int64_t elements = iterationElements(graph, graph.outputs[0], request.splitCat);
  int64_t V = request.lanes, vectors = elements / V, tail = elements % V, threads = kernel.schedule.threads;

  MLIRContext *ctx = module.getContext();
  OpBuilder b(ctx);
  Location loc = b.getUnknownLoc();
  KernelFunction f = createKernel(b, loc, module, kernel.name, graph, target, threads);
  b.setInsertionPointToStart(f.entry);
  Value thread = gpu::ThreadIdOp::create(b, loc, gpu::Dimension::x);
  Value block = gpu::BlockIdOp::create(b, loc, gpu::Dimension::x);
  auto index = [&](int64_t v) { return arith::ConstantIndexOp::create(b, loc, v).getResult(); };
  auto plus = [&](Value x, Value y) { return arith::AddIOp::create(b, loc, x, y).getResult(); };

  auto bodyAt = [&](int64_t lanes, ArrayRef<Value> vectorIndices) -> Status {
    request.lanes = lanes;
    RL_ASSIGN(Trace trace, tracePointwise(request));
    std::vector<std::unique_ptr<TraceEmitter>> emitters;
    for (Value at : vectorIndices) {
      emitters.push_back(
          std::make_unique<TraceEmitter>(b, loc, graph, trace, target, alignedTo16 && lanes > 1, f.inputs, f.outputs));
      emitters.back()->setVectorIndex(at);
      emitters.back()->setErrorSlot(f.errorSlot);
    }
    if (emitters.size() > 1)
      for (bool gathered : {false, true})
        for (auto &emitter : emitters)
          emitter->emitLoads(gathered);
    for (auto &emitter : emitters)
      emitter->emitRest();
    return {};
  };
  // One unit at `at`, if it is there: a whole vector, or the last elements one by one.
  auto unitAt = [&](Value at) -> Status {
    OpBuilder::InsertionGuard guard(b);
    if (vectors) {
      Value whole = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, at, index(vectors));
      auto branch = scf::IfOp::create(b, loc, whole);
      OpBuilder::InsertionGuard inner(b);
      b.setInsertionPoint(branch.thenBlock()->getTerminator());
      RL_TRY(bodyAt(V, at));
    }
    if (tail) {
      Value last = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, at, index(vectors));
      auto branch = scf::IfOp::create(b, loc, last);
      b.setInsertionPoint(branch.thenBlock()->getTerminator());
      auto loop = scf::ForOp::create(b, loc, index(vectors * V), index(elements), index(1));
      b.setInsertionPointToStart(loop.getBody());
      RL_TRY(bodyAt(1, loop.getInductionVar()));
    }
    return {};
  };
  int64_t unroll = kernel.schedule.unroll, perBlock = threads * unroll;
  int64_t units = vectors + (tail ? 1 : 0), blocks = (units + perBlock - 1) / perBlock;
  Value first = plus(arith::MulIOp::create(b, loc, block, index(perBlock)), thread);
  bool exact = !tail && vectors % perBlock == 0;
  auto straight = [&]() -> Status {
    SmallVector<Value> at;
    for (int64_t u = 0; u < unroll; ++u)
      at.push_back(u ? plus(first, index(u * threads)) : first);
    return bodyAt(V, at);
  };
  if (exact) {
    RL_TRY(straight());
  } else if (unroll == 1) {
    RL_TRY(unitAt(first));
  } else {
    // Blocks that are whole run without a test between their vectors, so that all loads may be issued first.
    Value end = arith::MulIOp::create(b, loc, plus(block, index(1)), index(perBlock));
    Value whole = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ule, end, index(vectors));
    auto branch = scf::IfOp::create(b, loc, whole, /*withElseRegion=*/true);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(branch.thenBlock()->getTerminator());
    RL_TRY(straight());
    b.setInsertionPoint(branch.elseBlock()->getTerminator());
    auto loop = scf::ForOp::create(b, loc, index(0), index(unroll), index(1));
    b.setInsertionPointToStart(loop.getBody());
    RL_TRY(unitAt(plus(first, arith::MulIOp::create(b, loc, loop.getInductionVar(), index(threads)))));
  }
  b.setInsertionPointToEnd(f.entry);
  func::ReturnOp::create(b, loc);
  return blocks;
}

} // namespace rl::emit
