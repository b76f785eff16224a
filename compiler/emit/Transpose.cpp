// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/emit/Transpose.h"
#include "compiler/emit/Kernel.h"
#include "compiler/emit/TraceEmitter.h"
#include "passes/plan/TransposePlanner.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;

namespace rl::emit {

using mlir::Value; // not the graph's

namespace {

// How a warp's 32 squares lie. Eight beside each other: a store, and a load of what is not transposed, moves 128 bytes in a row,
// whole lines. Four below each other, as are the block's warps: together their loads read 256 bytes down a column.
constexpr int64_t kDown = 4, kBeside = 8, kDownOfBlock = kDown * kTransposeThreads / 32;
// A CPU's block goes down a line of what is transposed (bytes) before it goes to the next column of squares, so that each line is read
// once, and those of the result are whole after as many columns; so many columns let a call pay.
constexpr int64_t kCpuLine = 64, kCpuBeside = 64;

} // namespace

Result<int64_t> emitTranspose(ModuleOp module, const TransposeKernel &kernel, const CodeTarget &target) {
  const Graph &graph = kernel.body;
  const TransposeSchedule &s = kernel.schedule;
  TraceRequest request;
  request.graph = &graph;
  request.outputs = graph.outputs;
  request.boundary.assign(graph.values.size(), false);
  request.width = s.width;
  request.rows = s.rows;
  request.lanes = s.lanes;
  RL_ASSIGN(Trace trace, tracePointwise(request));

  MLIRContext *ctx = module.getContext();
  OpBuilder b(ctx);
  Location loc = b.getUnknownLoc();
  KernelFunction f = createKernel(b, loc, module, kernel.name, graph, target, target.nvptx ? kTransposeThreads : 1);
  b.setInsertionPointToStart(f.entry);
  auto index = [&](int64_t v) { return arith::ConstantIndexOp::create(b, loc, v).getResult(); };
  auto div = [&](Value x, int64_t c) { return arith::DivUIOp::create(b, loc, x, index(c)).getResult(); };
  auto rem = [&](Value x, int64_t c) { return arith::RemUIOp::create(b, loc, x, index(c)).getResult(); };
  auto mul = [&](Value x, int64_t c) { return arith::MulIOp::create(b, loc, x, index(c)).getResult(); };
  auto add = [&](Value x, Value y) { return arith::AddIOp::create(b, loc, x, y).getResult(); };

  Streams streams = makeStreams(b, loc, s.streamBytes);
  auto emitSquare = [&](Value square, Value vector) {
    Value firstRow = mul(square, s.lanes);
    std::vector<std::unique_ptr<TraceEmitter>> rows;
    for (int64_t r = 0; r < s.lanes; ++r) {
      rows.push_back(
          std::make_unique<TraceEmitter>(b, loc, graph, trace, target, /*aligned=*/target.nvptx, f.inputs, f.outputs));
      rows.back()->setRowIndex(r ? add(firstRow, index(r)) : firstRow);
      rows.back()->setVectorIndex(vector);
      rows.back()->setStreams(streams);
    }
    for (uint32_t i = 0; i < trace.instances.size(); ++i)
      if (readsDown(trace, trace.instances[i])) {
        SmallVector<Lane> square = rows[0]->loadSquare(trace.instances[i]);
        for (auto [row, lane] : llvm::zip(rows, square))
          row->lane(i) = std::move(lane);
      }
    for (auto &row : rows)
      row->emitLoads();
    for (auto &row : rows)
      row->emitRest();
  };

  // Neighbouring blocks go along the rows.
  int64_t down = s.rows / s.lanes, beside = s.width / s.lanes;
  Value block = gpu::BlockIdOp::create(b, loc, gpu::Dimension::x);
  if (!target.nvptx) {
    int64_t narrowest = 8;
    for (const Instance &in : trace.instances)
      if (readsDown(trace, in))
        narrowest = std::min<int64_t>(narrowest, static_cast<int64_t>(dtypeSize(graph.type(in.value).dtype)));
    int64_t tall = std::max<int64_t>(1, kCpuLine / (s.lanes * narrowest));
    int64_t blocksBeside = (beside + kCpuBeside - 1) / kCpuBeside, blocksDown = (down + tall - 1) / tall;
    auto min = [&](Value x, int64_t c) { return arith::MinUIOp::create(b, loc, x, index(c)).getResult(); };
    Value firstDown = mul(div(block, blocksBeside), tall), firstBeside = mul(rem(block, blocksBeside), kCpuBeside);
    auto across = scf::ForOp::create(b, loc, firstBeside, min(add(firstBeside, index(kCpuBeside)), beside), index(1));
    b.setInsertionPointToStart(across.getBody());
    auto along = scf::ForOp::create(b, loc, firstDown, min(add(firstDown, index(tall)), down), index(1));
    b.setInsertionPointToStart(along.getBody());
    emitSquare(along.getInductionVar(), across.getInductionVar());
    b.setInsertionPointToEnd(f.entry);
    func::ReturnOp::create(b, loc);
    return blocksDown * blocksBeside;
  }
  int64_t blocksBeside = (beside + kBeside - 1) / kBeside, blocksDown = (down + kDownOfBlock - 1) / kDownOfBlock;
  Value thread = gpu::ThreadIdOp::create(b, loc, gpu::Dimension::x);
  Value warp = div(thread, 32), lane = rem(thread, 32);
  Value square = add(mul(div(block, blocksBeside), kDownOfBlock), add(mul(warp, kDown), rem(lane, kDown)));
  Value vector = add(mul(rem(block, blocksBeside), kBeside), div(lane, kDown));
  Value there;
  auto within = [&](Value x, int64_t n, int64_t tile) {
    if (n % tile == 0)
      return;
    Value in = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, x, index(n));
    there = there ? arith::AndIOp::create(b, loc, there, in).getResult() : in;
  };
  within(square, down, kDownOfBlock);
  within(vector, beside, kBeside);
  if (there) {
    auto branch = scf::IfOp::create(b, loc, there);
    b.setInsertionPoint(branch.thenBlock()->getTerminator());
  }
  emitSquare(square, vector);
  b.setInsertionPointToEnd(f.entry);
  func::ReturnOp::create(b, loc);
  return blocksDown * blocksBeside;
}

} // namespace rl::emit
