// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/emit/Row.h"
#include "compiler/emit/Kernel.h"
#include "compiler/emit/RowEmitter.h"
#include "compiler/emit/RowRing.h"
#include "passes/plan/ColumnSums.h"
#include "passes/plan/RowSchedule.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;

namespace rl::emit {

using mlir::Value; // not the graph's

/// The rows of a part, one after the other.
void RowEmitter::emitPart() {
  const int64_t rows = schedule.rows / schedule.parts, U = schedule.unroll;
  auto times = [&](Value x, int64_t c) {
    auto flags = arith::IntegerOverflowFlags::nsw | arith::IntegerOverflowFlags::nuw;
    return arith::MulIOp::create(b, loc, x, index(c), flags).getResult();
  };
  Value first = schedule.inTurn ? rowIndex : times(rowIndex, rows);
  auto rowAt = [&](Value turn) { return add(first, schedule.inTurn ? times(turn, schedule.parts) : turn); };
  SmallVector<Value> at;
  for (int64_t u = 0; u < U; ++u) {
    auto [vector, isThere] = vectorOfThread(u);
    at.push_back(vector);
    valid.push_back(isThere);
  }
  auto vectorsOf = [&](Value row) {
    std::vector<std::unique_ptr<TraceEmitter>> out;
    for (Value vector : at)
      out.push_back(vectorEmitter(row, vector));
    return out;
  };
  std::optional<RowRing> ring;
  if (schedule.stages && aligned)
    ring.emplace(b, loc, graph, trace, copiedLoads(graph, trace), schedule.stages, schedule.threads, U, place);
  if (ring) {
    dynamicBytes = ring->sharedBytes();
    for (int64_t r = 0; r + 1 < schedule.stages; ++r) {
      Value isThere;
      if (r >= rows)
        isThere = arith::ConstantOp::create(b, loc, b.getBoolAttr(false));
      ring->fill(index(r), vectorsOf(rowAt(index(r))), isThere);
    }
  }
  // What all rows have in common is loaded once: the optimiser does not move it past the copies.
  std::vector<std::unique_ptr<TraceEmitter>> common = vectorsOf(first);
  std::vector<uint32_t> weights;
  for (uint32_t i = 0; i < trace.instances.size(); ++i)
    if (const Instance &in = trace.instances[i]; in.node == kNone && in.guard == 0 && in.scope == 0 && in.varies &&
                                                 !trace.isGathered(in) &&
                                                 !trace.context->expand(in.linear).dependsOn(trace.rowDim)) {
      weights.push_back(i);
      for (auto &e : common)
        e->emit(i);
    }
  Value zero = arith::ConstantOp::create(
      b, loc, DenseElementsAttr::get(VectorType::get({trace.lanes}, b.getF32Type()), b.getF32FloatAttr(0).getValue()));
  SmallVector<Value> carried(trace.columnSums.size() * static_cast<size_t>(U), zero);
  auto loop = scf::ForOp::create(b, loc, index(0), index(rows), index(1), carried);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value turn = loop.getInductionVar();
    rowIndex = rowAt(turn);
    held = vectorsOf(rowIndex);
    for (uint32_t i : weights)
      for (auto [to, from] : llvm::zip(held, common))
        to->lane(i) = from->lane(i);
    if (ring) {
      Value ahead = plus(turn, schedule.stages - 1);
      Value isThere = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, ahead, index(rows));
      // Where the row before this one lay: what a thread copies, only it reads.
      ring->fill(ahead, vectorsOf(rowAt(ahead)), isThere);
      ring->take(turn, held);
    }
    columnTotals.append(loop.getRegionIterArgs().begin(), loop.getRegionIterArgs().end());
    if (shared) {
      // Two rows in turn: a thread may write its part of the next row's exchange while another still reads this one's.
      Value half = arith::AndIOp::create(b, loc, turn, index(1));
      Value offset = arith::MulIOp::create(b, loc, half, index(slots() / 2));
      offset = arith::IndexCastUIOp::create(b, loc, b.getI32Type(), offset);
      shared = LLVM::GEPOp::create(b, loc, shared.getType(), b.getI64Type(), shared, ValueRange{offset});
    }
    emitRow();
    scf::YieldOp::create(b, loc, columnTotals);
  }
  for (int64_t u = 0; u < U; ++u) {
    std::unique_ptr<TraceEmitter> e = vectorEmitter(first, at[static_cast<size_t>(u)]);
    OpBuilder::InsertionGuard guard(b);
    if (Value isThere = valid[static_cast<size_t>(u)]) {
      auto branch = scf::IfOp::create(b, loc, isThere);
      b.setInsertionPoint(branch.thenBlock()->getTerminator());
    }
    for (size_t s = 0; s < trace.columnSums.size(); ++s) {
      size_t k = s * static_cast<size_t>(U) + static_cast<size_t>(u);
      Value total = loop.getResult(static_cast<unsigned>(k));
      e->lane(trace.columnSums[s].instance) = {DType::F32, total, total, {}};
      e->emitStore(trace.columnSums[s]);
    }
  }
}

/// How many blocks an SM is to hold, which bounds a thread's registers; 0: as the assembler likes.
static int64_t blocksOfSm(const RowSchedule &s, const Graph &graph, const Trace &trace) {
  // Where rows follow each other, what one block waits for at its exchanges the other computes through.
  if (s.parts)
    return 2;
  // Many loads are held: left alone ptxas spills some of them for the sake of more blocks. So it does of large blocks where it assembles
  // what is loaded; what is linked takes as many registers either way. (A maximum and a sum of what is read again have enough.)
  constexpr int64_t kLarge = 512, kLargest = 1024, kFewLevels = 2;
  const int64_t threads = s.threads * s.rowsPerBlock;
  if (s.across || s.staged ||
      (s.cluster == 1 && threads >= kLarge && threads < kLargest && (s.resident || trace.levels > kFewLevels)))
    return 1;
  // Rows that are kept to be quantised, in 32 registers and without a rest, take 56 where the driver loads PTX, but 63 and more
  // where it links machine code, which is a block less. Of those that wait without their factors 48 suffice for 16 and 64 where
  // a third tensor is loaded: left alone, linked ones take up to 91.
  constexpr int64_t kRegisters = 65536;
  auto loads = llvm::count_if(trace.instances, [](const Instance &in) { return in.node == kNone && in.varies; });
  bool quantises = llvm::any_of(graph.outputs, [&](ValueId v) {
    return dtypeSize(graph.type(v).dtype) == 1 && graph.type(v).elements() != s.rows;
  });
  bool whole = s.cluster == 1 && s.rowsPerBlock == 1 && s.width == s.threads * s.unroll * s.lanes;
  const int64_t held = s.unroll * s.lanes;
  if (!s.keeps || !quantises || !whole || loads > 3)
    return 0;
  if (held == 32 && loads <= 2)
    return s.threads == 128 || s.factored ? kRegisters / 56 / s.threads : 0;
  return !s.factored ? 0 : held == 32 ? kRegisters / 64 / s.threads : held == 16 ? kRegisters / 48 / s.threads : 0;
}

Result<RowLaunch> emitRow(ModuleOp module, const RowKernel &kernel, const CodeTarget &target, bool alignedTo16) {
  const Graph &graph = kernel.body;
  const RowSchedule &s = kernel.schedule;
  TraceRequest request;
  request.graph = &graph;
  request.outputs = graph.outputs;
  request.boundary.assign(graph.values.size(), false);
  request.width = s.width;
  request.rows = s.rows;
  request.lanes = s.lanes;
  request.lanesAcross = s.across && s.lanes > 1;
  if (s.parts) {
    request.parts = s.parts;
    request.partsInTurn = s.inTurn;
    for (ValueId v : graph.outputs) {
      std::optional<ColumnSum> sum = columnSum(graph, v, s.width);
      const bool carried = sum && sum->parts == s.parts && sum->inTurn == s.inTurn;
      request.columnSums.push_back(carried ? sum->operand : kNone);
    }
  }
  RL_ASSIGN(Trace trace, tracePointwise(request));

  MLIRContext *ctx = module.getContext();
  OpBuilder b(ctx);
  Location loc = b.getUnknownLoc();
  KernelFunction f = createKernel(b, loc, module, kernel.name, graph, target, s.threads * s.rowsPerBlock);
  if (int64_t blocks = target.nvptx ? blocksOfSm(s, graph, trace) : 0)
    f.function->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(), b.getI32IntegerAttr(static_cast<int32_t>(blocks)));
  RowEmitter emitter(b, loc, kernel, target, alignedTo16 && s.lanes > 1, trace, f.inputs, f.outputs);
  emitter.setErrorSlot(f.errorSlot);
  emitter.plan();
  if (emitter.slots()) {
    b.setInsertionPointToEnd(module.getBody());
    auto type = LLVM::LLVMArrayType::get(b.getI64Type(), static_cast<unsigned>(emitter.slots()));
    LLVM::GlobalOp::create(b, loc, type, /*isConstant=*/false, LLVM::Linkage::Internal, kernel.name + "_shared",
                           Attribute(), /*alignment=*/16,
                           /*addrSpace=*/3);
  }
  b.setInsertionPointToStart(f.entry);
  auto index = [&](int64_t v) { return arith::ConstantIndexOp::create(b, loc, v).getResult(); };
  Value thread = gpu::ThreadIdOp::create(b, loc, gpu::Dimension::x),
        row = gpu::BlockIdOp::create(b, loc, gpu::Dimension::x);
  int64_t groups = s.across ? s.rows / s.lanes : s.rows; // of rows, a thread each
  Value place = s.threads == 1 ? index(0) : thread, there, shared, inBlock, inCluster;
  if (s.cluster > 1) {
    NVVM::ClusterArriveRelaxedOp::create(b, loc, b.getUnitAttr());
    Value blocks = index(s.cluster), block = arith::RemUIOp::create(b, loc, row, blocks);
    row = arith::DivUIOp::create(b, loc, row, blocks);
    place = arith::AddIOp::create(b, loc, arith::MulIOp::create(b, loc, block, index(s.threads)), thread);
    inCluster = arith::IndexCastUIOp::create(b, loc, b.getI32Type(), block);
  }
  if (s.rowsPerBlock > 1) {
    Value inner = index(s.across ? s.rowsPerBlock : s.threads);
    Value quotient = arith::DivUIOp::create(b, loc, thread, inner),
          rest = arith::RemUIOp::create(b, loc, thread, inner);
    place = s.across ? quotient : rest;
    Value first = arith::MulIOp::create(b, loc, row, index(s.rowsPerBlock));
    row = arith::AddIOp::create(b, loc, first, s.across ? rest : quotient);
    if (groups % s.rowsPerBlock != 0) {
      // All threads take part in exchanges: those without a row repeat the last one.
      there = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, row, index(groups));
      row = arith::SelectOp::create(b, loc, there, row, index(groups - 1));
    }
  }
  if (target.nvptx)
    inBlock = arith::IndexCastUIOp::create(b, loc, b.getI32Type(), thread);
  if (emitter.slots())
    shared = LLVM::AddressOfOp::create(b, loc, LLVM::LLVMPointerType::get(ctx, 3), kernel.name + "_shared");
  if (s.staged && alignedTo16) {
    Value block = gpu::BlockIdOp::create(b, loc, gpu::Dimension::x);
    emitter.setTile(arith::MulIOp::create(b, loc, block, index(s.rowsPerBlock)), thread);
  }
  emitter.setThread(row, place, inBlock, inCluster, there, shared);
  if (target.nvptx)
    emitter.setStreams(makeStreams(b, loc, s.streamBytes));
  RowLaunch launch;
  launch.sharedBytes = emitter.emit();
  launch.blocks = s.parts ? s.parts : (groups + s.rowsPerBlock - 1) / s.rowsPerBlock * s.cluster;
  func::ReturnOp::create(b, loc);
  return launch;
}

} // namespace rl::emit
