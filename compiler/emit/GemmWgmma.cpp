// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/emit/GemmWgmma.h"
#include "compiler/emit/Combine.h"
#include "compiler/emit/GemmParts.h"
#include "compiler/emit/HopperAsm.h"
#include "compiler/emit/WgmmaGemm.h"
#include "passes/plan/TileSegments.h"
#include "passes/plan/Wgmma.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace rl::emit {

using mlir::Value; // not the graph's

/// What the generator has loaded of a form's tiles, columns and rows.
template <class Form> static void giveLoaded(TraceEmitter &e, const Graph &graph, const Form &form, const GemmSite &s) {
  auto give = [&](const std::vector<WgmmaAccess> &loads, ArrayRef<Value> values) {
    for (auto [load, v] : llvm::zip(loads, values))
      e.lane(load.place) = e.bodies().fromMemory(v, graph.type(load.value).dtype);
  };
  give(form.tiles, s.tiles);
  give(form.columns, s.columns);
  give(form.rows, s.rows);
}

/// What is behind the products at a site. What the generator has loaded is given to the trace, which loads the rest.
static GemmEpilogue epilogueOf(const GemmKernel &kernel, const GemmTraces &traces, const WgmmaForm &form,
                               const CodeTarget &target) {
  return [&](OpBuilder &b, Location loc, const GemmSite &s) -> Result<SmallVector<Value>> {
    const Graph &graph = kernel.body;
    const Trace &trace = traces.epilogue;
    TraceEmitter e(b, loc, graph, trace, target, /*aligned=*/true, s.pointers.take_front(graph.inputs.size()),
                   s.pointers.drop_front(graph.inputs.size()));
    auto index = [&](int64_t v) { return arith::ConstantIndexOp::create(b, loc, v).getResult(); };
    Value row = s.row, vector = s.column;
    if (form.shape.turned)
      std::swap(row, vector);
    if (form.shape.batch > 1)
      row = arith::AddIOp::create(b, loc, arith::MulIOp::create(b, loc, s.batch, index(form.shape.m)), row);
    if (trace.lanes > 1)
      vector = arith::DivUIOp::create(b, loc, vector, index(trace.lanes));
    e.setRowIndex(row);
    e.setVectorIndex(vector);
    e.bodies().spareRegisters();
    giveLoaded(e, graph, form, s);
    const bool integers = accumulatesIntegers(form.shape.a);
    ArrayRef<Value> scales = ArrayRef<Value>(s.rows).drop_front(std::min(s.rows.size(), form.rows.size()));
    for (size_t p = 0; p < s.products.size(); ++p) {
      Value v = s.products[p];
      if (form.shape.turned && form.weightScales[p].value != kNone) {
        Lane scale = e.bodies().fromMemory(scales.front(), graph.type(form.weightScales[p].value).dtype);
        v = arith::MulFOp::create(b, loc, v, e.bodies().wide(scale));
        scales = scales.drop_front();
      }
      e.lane(traces.instances[p]) = {integers ? DType::I32 : DType::F32, v, integers ? Value() : v, {}};
    }
    if (!form.shape.segment)
      e.emitLoads();
    if (s.kept) {
      DType t = graph.type(trace.instances[form.kept].value).dtype;
      e.lane(form.kept) = {t, t == DType::F32 ? s.kept : Value(), s.kept, {}};
    }
    size_t known = 0;
    const uint32_t last = trace.levels + 1;
    for (uint32_t level = 1; level < (s.level ? s.level : last); ++level)
      for (uint32_t r : reductionsOf(trace, level))
        e.lane(r) = combinerOf(graph, trace, r).finish(e.bodies(), s.reduced[known++]);
    const std::vector<uint32_t> wanted =
        form.shape.segment ? segmentPass(graph, trace, s.level, s.kept ? form.kept : kNone) : trace.scopes[0].order;
    for (uint32_t i : wanted) // all loads first
      if (form.shape.segment && trace.instances[i].node == kNone && trace.instances[i].operands.empty())
        e.emit(i);
    for (uint32_t i : wanted)
      e.emit(i);
    SmallVector<Value> out;
    auto element = [&](ValueId v) {
      for (const TraceStore &store : trace.stores)
        if (graph.outputs[store.output] == v)
          return e.bodies().toMemory(e.lane(store.instance), graph.type(v).dtype);
      return Value();
    };
    if (s.level == last) {
      for (const WgmmaAccess &a : form.outputs)
        out.push_back(e.bodies().splatTo(element(graph.outputs[a.place]), trace.lanes));
    } else if (s.level == 0) {
      for (const WgmmaSegmentAccess &a : form.segments) {
        Value v = element(graph.outputs[a.place]);
        if (isa<VectorType>(v.getType())) // of which all lanes are alike
          v = vector::ExtractOp::create(b, loc, v, ArrayRef<int64_t>{0});
        out.push_back(v);
      }
    } else {
      for (uint32_t r : reductionsOf(trace, s.level)) {
        Combiner c = combinerOf(graph, trace, r);
        Value v = c.contribution(e.bodies(), loc, e.lane(trace.instances[r].operands[0]), trace.lanes);
        out.push_back(c.acrossLanes(b, loc, v));
      }
      if (kernel.schedule.wgmma.keeps && s.level == 1)
        out.push_back(e.bodies().splatTo(e.bodies().wide(e.lane(form.kept)), trace.lanes));
    }
    return out;
  };
}

/// The left operand's values at a site, two along K. `m`: rows of a batch.
static GemmEpilogue leftOf(const GemmKernel &kernel, const Trace &trace, const WgmmaLeftForm &form, int64_t m,
                           const CodeTarget &target) {
  return [&](OpBuilder &b, Location loc, const GemmSite &s) -> Result<SmallVector<Value>> {
    const Graph &graph = kernel.body;
    TraceEmitter e(b, loc, graph, trace, target, /*aligned=*/true, s.pointers.take_front(graph.inputs.size()),
                   s.pointers.drop_front(graph.inputs.size()));
    auto index = [&](int64_t v) { return arith::ConstantIndexOp::create(b, loc, v).getResult(); };
    Value first = arith::MulIOp::create(b, loc, s.batch, index(m));
    e.setRowIndex(arith::AddIOp::create(b, loc, first, s.row));
    e.setVectorIndex(arith::DivUIOp::create(b, loc, s.column, index(kLeftLanes)));
    e.bodies().spareRegisters();
    giveLoaded(e, graph, form, s);
    e.emitLoads();
    for (uint32_t i : trace.scopes[0].order)
      e.emit(i);
    const uint32_t result = trace.stores[0].instance;
    Value v = e.bodies().toMemory(e.lane(result), graph.type(trace.instances[result].value).dtype);
    return SmallVector<Value>{e.bodies().splatTo(v, kLeftLanes)};
  };
}

Status emitGemmWgmma(ModuleOp module, const GemmKernel &kernel, const CodeTarget &target,
                     const cost::TargetDesc &machine, PackageLaunch &launch) {
  const Graph &graph = kernel.body;
  RL_ASSIGN(GemmTraces traces, traceGemm(kernel, /*gpu=*/true));
  Trace pairs;
  if (!kernel.schedule.turned && traces.left.load == kNone && dtypeSize(graph.type(traces.left.value).dtype) == 2) {
    RL_ASSIGN(pairs, traceOperand(graph, traces.left.value, {}, /*gpu=*/true, kLeftLanes));
  }
  std::vector<const Trace *> operands;
  for (const TracedOperand &right : traces.right) {
    operands.push_back(pairs.context ? &pairs : &traces.left.trace);
    operands.push_back(&right.trace);
  }
  const bool turned = kernel.schedule.turned;
  WgmmaForm form = turned ? turnedForm(graph, traces.epilogue, traces.products, operands)
                          : wgmmaForm(graph, traces.epilogue, traces.products, operands);
  if (!form.refusal.empty())
    return unsupported({}, "internal: no kernel of warpgroup products: " + form.refusal);

  WgmmaGemm g;
  g.name = kernel.name;
  g.turned = turned;
  g.m = form.shape.m;
  g.n = form.shape.n;
  g.k = form.shape.k;
  g.batch = form.batch;
  g.pointers = static_cast<unsigned>(graph.inputs.size() + graph.outputs.size());
  g.tile = kernel.schedule.wgmma;
  g.once = kernel.schedule.once;
  g.segment = form.shape.segment;
  g.mayKeep = form.shape.mayKeep;
  // Pieces of a cat; sin and cos reduce large arguments apart, and a division is done apart where it takes all of its steps.
  g.branches = g.segment > 0 || traces.epilogue.scopes.size() > 1 ||
               llvm::any_of(traces.epilogue.instances, [&](const Instance &in) {
                 OpKind op = in.node == kNone ? OpKind::Full : graph.nodes[in.node].op;
                 return op == OpKind::Sin || op == OpKind::Cos;
               });
  auto argument = [&](ValueId v) { return static_cast<unsigned>(llvm::find(graph.inputs, v) - graph.inputs.begin()); };
  auto dtype = [&](const WgmmaAccess &a) { return graph.type(a.value).dtype; };
  auto operand = [&](const WgmmaAccess &a, bool kMajor) {
    return WgmmaOperand{argument(a.value),         dtype(a), kMajor, a.offset,
                        kMajor ? a.row : a.column, a.batch,  a.part, a.partStride};
  };
  if (form.computed) {
    g.a.dtype = form.shape.a;
    for (const WgmmaAccess &a : form.computed->tiles)
      g.left.tiles.push_back(operand(a, true));
    for (const WgmmaAccess &a : form.computed->columns)
      g.left.columns.push_back({argument(a.value), dtype(a), a.offset, a.batch});
    for (const WgmmaAccess &a : form.computed->rows)
      g.left.rows.push_back({argument(a.value), dtype(a), a.offset, a.batch});
    if (!turned)
      g.left.compute = leftOf(kernel, pairs, *form.computed, form.shape.m, target);
  } else {
    g.a = operand(form.left, form.shape.aKMajor);
  }
  for (auto [p, a] : llvm::enumerate(form.right))
    g.b.push_back(operand(a, form.shape.isBKMajor(static_cast<int>(p))));
  if (turned)
    g.b.resize(static_cast<size_t>(form.shape.products), g.b[0]);
  g.promotes = form.shape.promotes;
  for (const WgmmaScaleAccess &a : form.scales)
    g.scales.push_back({argument(a.value), a.offset, a.rows, a.stride, a.kStride, a.batch});
  for (const WgmmaAccess &a : form.outputs)
    g.outputs.push_back({static_cast<unsigned>(graph.inputs.size()) + a.place, dtype(a), a.offset, a.row, a.batch,
                         a.part, a.partStride});
  for (const WgmmaAccess &a : form.tiles)
    g.tiles.push_back({argument(a.value), dtype(a), a.offset, a.row, a.batch});
  for (const WgmmaAccess &a : form.columns)
    g.columns.push_back({argument(a.value), dtype(a), a.offset, a.batch});
  for (const WgmmaAccess &a : form.rows)
    g.rows.push_back({argument(a.value), dtype(a), a.offset, a.batch});
  for (const WgmmaAccess &a : form.weightScales)
    if (a.value != kNone)
      g.rows.push_back({argument(a.value), dtype(a), a.offset, a.batch, a.row});
  for (const WgmmaSegmentAccess &a : form.segments)
    g.segments.push_back({static_cast<unsigned>(graph.inputs.size()) + a.place, graph.type(a.value).dtype, a.offset,
                          a.row, a.segment, a.batch});
  for (uint32_t level = 1; g.segment > 0 && level <= traces.epilogue.levels; ++level) {
    g.reductions.emplace_back();
    for (uint32_t r : reductionsOf(traces.epilogue, level))
      g.reductions.back().push_back(combinerOf(graph, traces.epilogue, r));
  }
  return emitWgmmaGemm(module, g, epilogueOf(kernel, traces, form, target), machine, launch);
}

} // namespace rl::emit
