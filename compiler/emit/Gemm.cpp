// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/emit/Gemm.h"
#include "compiler/emit/Combine.h"
#include "compiler/emit/GemmParts.h"
#include "compiler/emit/HopperAsm.h"
#include "compiler/emit/InlineAsm.h"
#include "compiler/emit/Kernel.h"
#include "passes/plan/Measure.h"
#include "passes/plan/TileSegments.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;

namespace rl::emit {

using mlir::Value; // not the graph's

static Result<TracedOperand> traceOf(const Graph &graph, ValueId v, bool transposed, bool gpu) {
  TracedOperand out;
  out.value = v;
  out.transposed = transposed;
  out.shape = graph.type(v).shape;
  RL_ASSIGN(out.trace, traceOperand(graph, v, {}, gpu));
  uint32_t i = out.trace.stores[0].instance;
  for (;;) {
    const Instance &in = out.trace.instances[i];
    if (in.node == kNone) {
      if (in.guard == 0)
        out.load = i;
      break;
    }
    if (opInfo(graph.nodes[in.node].op).cls != OpClass::Shape || in.operands.empty())
      break;
    i = in.operands[0];
  }
  return out;
}

Result<GemmTraces> traceGemm(const GemmKernel &kernel, bool gpu) {
  const Graph &graph = kernel.body;
  GemmTraces out;
  TraceRequest request;
  request.graph = &graph;
  request.outputs = graph.outputs;
  request.boundary.assign(graph.values.size(), false);
  request.width = kernel.schedule.shape.n;
  request.rows = kernel.schedule.shape.rows();
  request.lanes = kernel.lanes;
  request.products = true;
  RL_ASSIGN(out.epilogue, tracePointwise(request));
  for (uint32_t i = 0; i < out.epilogue.instances.size(); ++i)
    if (NodeId n = out.epilogue.instances[i].node; n != kNone && isProduct(graph.nodes[n])) {
      out.products.push_back(n);
      out.instances.push_back(i);
    }
  const Node &first = graph.nodes[out.products[0]];
  RL_ASSIGN(out.left, traceOf(graph, first.inputs[0].value, first.attrs.transposeA, gpu));
  for (NodeId n : out.products) {
    RL_ASSIGN(TracedOperand right,
              traceOf(graph, graph.nodes[n].inputs[1].value, graph.nodes[n].attrs.transposeB, gpu));
    out.right.push_back(std::move(right));
  }
  return out;
}

GemmParts::GemmParts(OpBuilder &b, Location loc, const GemmKernel &kernel, const GemmTraces &traces,
                     const CodeTarget &target, bool aligned, ValueRange inputs, ValueRange outputs)
    : b(b), loc(loc), kernel(kernel), traces(traces), target(target), aligned(aligned), inputs(inputs),
      outputs(outputs) {
  segment = tileSegments(kernel.body, traces.epilogue).columns;
  switch (kernel.body.type(kernel.body.nodes[traces.products[0]].outputs[0]).dtype) {
  case DType::F32: sum = b.getF32Type(); break;
  case DType::I64: sum = b.getI64Type(); break;
  default: sum = b.getI32Type(); break;
  }
}

Type GemmParts::vectorOf(int64_t lanes, Type element) const {
  return lanes == 1 ? element : Type(VectorType::get({lanes}, element));
}

std::unique_ptr<TraceEmitter> GemmParts::startRead(const TracedOperand &operand, Value row, Value vector) {
  auto e = std::make_unique<TraceEmitter>(b, loc, kernel.body, operand.trace, target, aligned, inputs, outputs);
  e->setRowIndex(row);
  e->setVectorIndex(vector);
  e->setErrorSlot(errorSlot);
  if (policy && &operand != &traces.left)
    e->setPolicy(policy);
  e->emitLoads();
  return e;
}

Value GemmParts::finishRead(const TracedOperand &operand, TraceEmitter &e, std::optional<DType> as) {
  for (uint32_t i : operand.trace.scopes[0].order)
    e.emit(i);
  DType to = as ? *as : sum.isF32() ? DType::F32 : sum.isInteger(64) ? DType::I64 : DType::I32;
  Lane lane = e.lane(operand.trace.stores[0].instance);
  if (lane.dtype != to)
    lane = e.bodies().cast(lane, to, true);
  Value v = to == DType::F32 ? e.bodies().wide(lane) : isFloat(to) ? e.bodies().toMemory(lane, to) : lane.raw;
  return e.bodies().splatTo(v, operand.trace.lanes);
}

std::unique_ptr<TraceEmitter> GemmParts::startFinish(Value row, Value vector) {
  auto e = std::make_unique<TraceEmitter>(b, loc, kernel.body, traces.epilogue, target, aligned, inputs, outputs);
  e->setRowIndex(row);
  e->setVectorIndex(vector);
  e->setErrorSlot(errorSlot);
  if (segment && target.nvptx)
    e->bodies().spareRegisters();
  e->emitLoads();
  return e;
}

void GemmParts::setSums(TraceEmitter &e, ValueRange sums) {
  DType type = sum.isF32() ? DType::F32 : sum.isInteger(64) ? DType::I64 : DType::I32;
  for (auto [i, v] : llvm::zip(traces.instances, sums))
    e.lane(i) = {type, v, sum.isF32() ? v : Value(), {}};
}

std::unique_ptr<TraceEmitter> GemmParts::startFinish(Value row, Value vector, ValueRange sums) {
  std::unique_ptr<TraceEmitter> e = startFinish(row, vector);
  setSums(*e, sums);
  return e;
}

void GemmParts::endFinish(TraceEmitter &e, ValueRange sums) {
  setSums(e, sums);
  e.emitRest();
}

void GemmParts::finish(Value row, Value vector, ValueRange sums) { startFinish(row, vector, sums)->emitRest(); }

void GemmParts::storeAll(TraceEmitter &e, int64_t vectorsOfSegment, Value there) {
  const Trace &trace = traces.epilogue;
  when(there, [&] {
    e.enterBlock();
    for (const TraceStore &s : trace.stores)
      if (storesSegments(kernel.body, trace, s))
        e.emitSegmentStore(s, vectorsOfSegment);
      else
        e.emitStore(s);
    e.leaveBlock();
  });
}

void GemmParts::finishTogether(Value row, Value vector, ValueRange sums, Value there) {
  const Trace &trace = traces.epilogue;
  std::unique_ptr<TraceEmitter> e = startFinish(row, vector, sums);
  for (uint32_t i : trace.scopes[0].order) {
    if (!isSegmentReduction(trace.instances[i])) {
      e->emit(i);
      continue;
    }
    Combiner c = combinerOf(kernel.body, trace, i);
    Value v = c.contribution(e->bodies(), loc, e->lane(trace.instances[i].operands[0]), trace.lanes);
    v = combineInWarp(b, loc, c, c.acrossLanes(b, loc, v), segment / trace.lanes);
    e->lane(i) = c.finish(e->bodies(), v);
  }
  storeAll(*e, segment / trace.lanes, there);
}

void GemmParts::finishInTurn(Value row, Value firstVector,
                             llvm::function_ref<SmallVector<Value>(Value vector)> sumsOf) {
  const Trace &trace = traces.epilogue;
  const Graph &graph = kernel.body;
  const int64_t vectors = segment / trace.lanes;
  std::vector<std::pair<uint32_t, Value>> known;
  auto startPass = [&](Value v, uint32_t level) {
    std::unique_ptr<TraceEmitter> e = startFinish(row, add(firstVector, v), sumsOf(v));
    for (auto [r, total] : known)
      e->lane(r) = combinerOf(graph, trace, r).finish(e->bodies(), total);
    for (uint32_t i : segmentPass(graph, trace, level))
      e->emit(i);
    return e;
  };
  for (uint32_t level = 1; level <= trace.levels; ++level) {
    std::vector<uint32_t> reductions = reductionsOf(trace, level);
    SmallVector<Value> totals;
    for (uint32_t r : reductions)
      totals.push_back(combinerOf(graph, trace, r).identity(b, loc, trace.lanes));
    totals = loop(index(0), index(vectors), 1, totals, [&](Value v, ValueRange now) {
      SmallVector<Value> next;
      std::unique_ptr<TraceEmitter> e = startPass(v, level);
      for (auto [r, total] : llvm::zip(reductions, now)) {
        Combiner c = combinerOf(graph, trace, r);
        Value own = c.contribution(e->bodies(), loc, e->lane(trace.instances[r].operands[0]), trace.lanes);
        next.push_back(c.combine(b, loc, total, own));
      }
      return next;
    });
    for (auto [r, total] : llvm::zip(reductions, totals))
      known.push_back({r, combinerOf(graph, trace, r).acrossLanes(b, loc, total)});
  }
  loop(index(0), index(vectors), 1, [&](Value v) {
    std::unique_ptr<TraceEmitter> e = startPass(v, trace.levels + 1);
    for (const TraceStore &s : trace.stores)
      if (!storesSegments(graph, trace, s))
        e->emitStore(s);
  });
  if (llvm::none_of(trace.stores, [&](const TraceStore &s) { return storesSegments(graph, trace, s); }))
    return;
  std::unique_ptr<TraceEmitter> once = startPass(index(0), 0);
  for (const TraceStore &s : trace.stores)
    if (storesSegments(graph, trace, s))
      once->emitSegmentStore(s, 1);
}

Value GemmParts::multiplyAdd(Value x, Value y, Value z) {
  if (sum.isF32())
    return math::FmaOp::create(b, loc, x, y, z);
  return arith::AddIOp::create(b, loc, arith::MulIOp::create(b, loc, x, y), z);
}

Value GemmParts::zero(Type type) { return arith::ConstantOp::create(b, loc, b.getZeroAttr(type)); }

static std::optional<int64_t> constantOf(Value v) {
  llvm::APInt c;
  if (matchPattern(v, m_ConstantInt(&c)))
    return c.getSExtValue();
  return std::nullopt;
}

Value GemmParts::index(int64_t v) { return arith::ConstantIndexOp::create(b, loc, v); }
Value GemmParts::add(Value x, Value y) {
  auto cx = constantOf(x), cy = constantOf(y);
  if (cx && cy)
    return index(*cx + *cy);
  if (cx && *cx == 0)
    return y;
  if (cy && *cy == 0)
    return x;
  return arith::AddIOp::create(b, loc, x, y, arith::IntegerOverflowFlags::nsw);
}
Value GemmParts::mul(Value x, int64_t c) {
  if (auto cx = constantOf(x))
    return index(*cx * c);
  return c == 1 ? x : arith::MulIOp::create(b, loc, x, index(c), arith::IntegerOverflowFlags::nsw).getResult();
}
Value GemmParts::div(Value x, int64_t c) {
  if (auto cx = constantOf(x))
    return index(*cx / c);
  return c == 1 ? x : arith::DivUIOp::create(b, loc, x, index(c)).getResult();
}
Value GemmParts::rem(Value x, int64_t c) {
  if (auto cx = constantOf(x))
    return index(*cx % c);
  return c == 1 ? index(0) : arith::RemUIOp::create(b, loc, x, index(c)).getResult();
}
Value GemmParts::less(Value x, Value y) { return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, x, y); }
Value GemmParts::min(Value x, Value y) {
  auto cx = constantOf(x), cy = constantOf(y);
  if (cx && cy)
    return index(std::min(*cx, *cy));
  return arith::MinSIOp::create(b, loc, x, y);
}

Value GemmParts::address(Value base, Type element, Value offset) {
  Value at = arith::IndexCastOp::create(b, loc, b.getI64Type(), offset);
  return LLVM::GEPOp::create(b, loc, base.getType(), element, base, ValueRange{at});
}

void GemmParts::loop(Value from, Value to, int64_t step, llvm::function_ref<void(Value)> body) {
  auto cf = constantOf(from), ct = constantOf(to);
  if (cf && ct && *cf >= *ct)
    return;
  OpBuilder::InsertionGuard guard(b);
  if (cf && ct && *cf + step >= *ct)
    return body(from);
  auto f = scf::ForOp::create(b, loc, from, to, index(step));
  b.setInsertionPointToStart(f.getBody());
  body(f.getInductionVar());
}

SmallVector<Value> GemmParts::loop(Value from, Value to, int64_t step, ValueRange first,
                                   llvm::function_ref<SmallVector<Value>(Value, ValueRange)> body) {
  auto f = scf::ForOp::create(b, loc, from, to, index(step), first);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(f.getBody());
  scf::YieldOp::create(b, loc, body(f.getInductionVar(), f.getRegionIterArgs()));
  return SmallVector<Value>(f.getResults());
}

void GemmParts::when(Value condition, llvm::function_ref<void()> body) {
  if (!condition)
    return body();
  auto branch = scf::IfOp::create(b, loc, condition);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(branch.thenBlock()->getTerminator());
  body();
}

static int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t tileCount(const GemmSchedule &s) {
  return s.shape.batch * ceilDiv(s.shape.m, s.tileM) * ceilDiv(s.shape.n, s.tileN);
}

/// Tiles in bands of eight along M, so that those which run together read few different rows and columns.
GemmTile tileOf(GemmParts &p, Value block) {
  const GemmSchedule &s = p.kernel.schedule;
  int64_t tilesM = ceilDiv(s.shape.m, s.tileM), tilesN = ceilDiv(s.shape.n, s.tileN);
  GemmTile out;
  out.batch = p.div(block, tilesM * tilesN);
  Value tile = p.rem(block, tilesM * tilesN), m, n;
  int64_t band = std::min<int64_t>(8, tilesM);
  if (tilesM % band != 0)
    band = 1;
  Value which = p.div(tile, band * tilesN), within = p.rem(tile, band * tilesN);
  m = p.add(p.mul(which, band), p.rem(within, band));
  n = p.div(within, band);
  out.m = p.mul(m, s.tileM);
  out.n = p.mul(n, s.tileN);
  return out;
}

void multiplyByWarp(OpBuilder &b, Location loc, DType type, MutableArrayRef<Value> sums, ArrayRef<Value> left,
                    ArrayRef<Value> right) {
  MLIRContext *ctx = b.getContext();
  Type f32 = b.getF32Type(), four = LLVM::LLVMStructType::getLiteral(ctx, {f32, f32, f32, f32});
  std::string t = type == DType::BF16 ? "bf16" : "f16";
  std::string text = "mma.sync.aligned.m16n8k16.row.col.f32." + t + "." + t +
                     ".f32 {$0,$1,$2,$3}, {$4,$5,$6,$7}, {$8,$9}, {$10,$11,$12,$13};";
  SmallVector<Value> operands(left);
  llvm::append_range(operands, right);
  llvm::append_range(operands, sums);
  Value all = pureAsm(b, loc, four, text, "=f,=f,=f,=f,r,r,r,r,r,r,0,1,2,3", operands);
  for (int64_t r = 0; r < 4; ++r)
    sums[static_cast<size_t>(r)] = LLVM::ExtractValueOp::create(b, loc, all, ArrayRef<int64_t>{r});
}

/// How many blocks an SM shall hold. Left to itself the assembler keeps registers back for more blocks than there will be, and
/// spills; with one it takes more than it needs, and less is in flight. Sums wait in registers while the epilogue runs.
static int blocksPerSm(const GemmKernel &kernel, const GemmTraces &traces) {
  const GemmSchedule &s = kernel.schedule;
  int64_t live = measurePressure(kernel.body, traces.epilogue).registers;
  if (s.kernel == "thin")
    return s.shape.m * s.products == 1 && live <= 24 ? 2 : 1;
  if (s.kernel != "mma")
    return 1;
  int64_t sums = s.tileM * s.tileN * s.products * s.warpsK / s.threads;
  int64_t registers = sums + std::max<int64_t>(64, live + 40);
  if (tileSegments(kernel.body, traces.epilogue).columns) // which no sums wait for
    registers = std::max<int64_t>(sums + 64, live + 104);
  int64_t shared = s.stages * (s.tileM + s.products * s.tileN) * s.tileK * 2 + 1024;
  return static_cast<int>(std::clamp<int64_t>(std::min(65536 / (s.threads * registers), 164 * 1024 / shared), 1, 4));
}

/// Before the wait, where a kernel has one: the rows of the right operands that a block multiplies are asked for.
static void readWeightsAhead(GemmParts &p, Value block, Value thread) {
  // Of larger ones so much would be on its way that all come late (a matrix of 90 MB took 8 us longer).
  constexpr int64_t kMostBytes = 10 << 20;
  const GemmSchedule &s = p.kernel.schedule;
  const Graph &graph = p.kernel.body;
  if (s.shape.batch != 1 || s.shape.m > s.tileM || !p.aligned)
    return;
  SmallVector<std::pair<size_t, int64_t>> ahead; // inputs, and the bytes of a row
  for (const TracedOperand &right : p.traces.right)
    for (auto [i, v] : llvm::enumerate(graph.inputs)) {
      const int64_t row = s.shape.k * static_cast<int64_t>(dtypeSize(graph.type(v).dtype));
      const bool isWhole =
          graph.type(v).elements() == s.shape.n * s.shape.k &&
          llvm::any_of(right.trace.instances, [&](const Instance &in) { return in.node == kNone && in.value == v; });
      if (isWhole && right.transposed && row % 16 == 0 && graph.type(v).bytes() <= kMostBytes &&
          p.kernel.early.mayReadAhead(i))
        ahead.push_back({i, row});
    }
  if (ahead.empty())
    return;
  p.when(arith::CmpIOp::create(p.b, p.loc, arith::CmpIPredicate::eq, thread, p.index(0)), [&] {
    for (auto [i, row] : ahead) {
      Value first = p.mul(block, s.tileN);
      Value bytes = p.index(s.tileN * row);
      if (s.shape.n % s.tileN != 0)
        bytes = p.mul(p.min(arith::SubIOp::create(p.b, p.loc, p.index(s.shape.n), first).getResult(), s.tileN), row);
      prefetchBulk(p.b, p.loc, p.address(p.inputs[i], p.b.getI8Type(), p.mul(first, row)),
                   arith::IndexCastUIOp::create(p.b, p.loc, p.b.getI32Type(), bytes), p.policy);
    }
  });
  waitForKernelBefore(p.b, p.loc);
}

Result<GemmLaunch> emitGemm(ModuleOp module, const GemmKernel &kernel, const CodeTarget &target, bool alignedTo16) {
  const Graph &graph = kernel.body;
  RL_ASSIGN(GemmTraces traces, traceGemm(kernel, target.nvptx));
  MLIRContext *ctx = module.getContext();
  OpBuilder b(ctx);
  Location loc = b.getUnknownLoc();
  KernelFunction f = createKernel(b, loc, module, kernel.name, graph, target, kernel.schedule.threads);
  b.setInsertionPointToStart(f.entry);
  Value block = gpu::BlockIdOp::create(b, loc, gpu::Dimension::x);
  GemmParts parts(b, loc, kernel, traces, target, alignedTo16, f.inputs, f.outputs);
  parts.errorSlot = f.errorSlot;
  GemmLaunch launch;
  launch.blocks = tileCount(kernel.schedule);
  if (kernel.schedule.kernel == "blocked") {
    emitBlocked(parts, block);
  } else {
    f.function->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(), b.getI32IntegerAttr(blocksPerSm(kernel, traces)));
    if (kernel.schedule.once)
      parts.policy = evictFirst(b, loc);
    Value thread = gpu::ThreadIdOp::create(b, loc, gpu::Dimension::x);
    readWeightsAhead(parts, block, thread);
    auto emit = kernel.schedule.kernel == "mma" ? emitMma : kernel.schedule.kernel == "thin" ? emitThin : emitSimt;
    RL_ASSIGN(launch.sharedBytes, emit(parts, block, thread));
  }
  func::ReturnOp::create(b, loc);
  return launch;
}

} // namespace rl::emit
