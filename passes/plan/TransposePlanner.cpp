// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/plan/TransposePlanner.h"
#include "passes/plan/Measure.h"
#include "passes/plan/Trace.h"

#include <algorithm>
#include <map>

namespace rl {

namespace {

/// Bytes that are loaded in one manner, of tensors of at least half of the iteration space.
struct Reads {
  int64_t all = 0, down = 0; ///< down: V rows apart are neighbours, V elements of a row are not
};

Reads readsOf(const Graph &graph, const Trace &trace) {
  Reads out;
  for (const Instance &in : trace.instances) {
    if (in.node != kNone || in.uniform || graph.type(in.value).elements() * 2 <= trace.elements)
      continue;
    auto bytes = static_cast<int64_t>(dtypeSize(graph.type(in.value).dtype));
    out.all += bytes;
    if (readsDown(trace, in))
      out.down += bytes;
  }
  return out;
}

bool isStrided(const Graph &graph, const Trace &trace) {
  for (const Instance &in : trace.instances)
    if (in.node == kNone && !in.uniform && graph.type(in.value).elements() * 2 > trace.elements && trace.laneDim >= 0 &&
        index::classify(*trace.context, in.linear, trace.laneDim, trace.lanes).kind != index::Access::Contiguous)
      return true;
  return false;
}

void choose(const Graph &graph, const cost::TargetDesc &target, PlannedGroup &g) {
  constexpr int64_t kLeastElements = 1 << 12; // below it a launch takes longer than any access
  if (g.splitCat || g.elements < kLeastElements)
    return;
  // What an index picks is not where the square's columns are.
  for (NodeId n : g.nodes)
    if (opInfo(graph.nodes[n].op).cls == OpClass::Indexing)
      return;
  int64_t widest = 1;
  for (const auto *list : {&g.inputs, &g.outputs})
    for (ValueId v : *list)
      if (graph.type(v).elements() * 2 > g.elements)
        widest = std::max(widest, static_cast<int64_t>(dtypeSize(graph.type(v).dtype)));
  // Beyond 8 a square takes more registers than a thread of a GPU has.
  int64_t V = std::min<int64_t>(target.gpu ? 8 : 16, static_cast<int64_t>(target.vectorBytes) / widest);
  if (V < 2)
    return;
  TraceRequest request;
  request.graph = &graph;
  request.outputs = g.outputs;
  request.boundary.assign(graph.values.size(), false);
  for (ValueId v : g.inputs)
    request.boundary[v] = true;
  request.lanes = V;
  if (g.elements % V != 0)
    return;
  Result<Trace> flat = tracePointwise(request);
  if (!flat || !isStrided(graph, *flat))
    return;
  // Rows that end where a trailing dimension of an output does.
  const std::vector<int64_t> &shape = graph.type(g.outputs[0]).shape;
  int64_t width = 1;
  for (size_t d = shape.size(); d-- > 1;) {
    width *= shape[d];
    int64_t rows = width ? g.elements / width : 0;
    if (width % V != 0 || rows % V != 0 || width == 1 || rows < V)
      continue;
    request.width = width;
    request.rows = rows;
    Result<Trace> trace = tracePointwise(request);
    if (!trace)
      continue;
    Reads reads = readsOf(graph, *trace);
    if (reads.down * 2 < reads.all || reads.down == 0)
      continue;
    // The squares of what is read down stay in registers, beside one row of everything else.
    int64_t squares = reads.down * V * V / 4;
    if (squares + measurePressure(graph, *trace).registers > static_cast<int64_t>(target.registersPerThread) - 40)
      continue;
    g.kind = "transpose";
    g.width = width;
    g.rows = rows;
    g.lanes = V;
    g.threads = target.gpu ? 128 : 1;
    g.unroll = 1;
    if (target.gpu) // of a CPU: each line once, as it was
      g.work = measureWork(graph, *trace, static_cast<int>(g.threads));
    g.work.traffic = cost::Traffic::Transpose;
    if (target.gpu)
      g.work.blocks = static_cast<double>(g.elements / (V * V) + g.threads - 1) / static_cast<double>(g.threads);
    g.time = cost::estimate(g.work, target);
    g.why.push_back("what is read down the columns of " + std::to_string(rows) + " rows of " + std::to_string(width) +
                    " is transposed in registers, in squares of " + std::to_string(V) + " by " + std::to_string(V) +
                    " a thread: vector by vector it would fetch " +
                    std::to_string(static_cast<int>(target.sectorBytes)) + " bytes for each element");
    return;
  }
}

} // namespace

bool readsDown(const Trace &trace, const Instance &in) {
  if (in.node != kNone || in.uniform || in.guard != 0 || in.scope != 0)
    return false;
  index::Context &ctx = *trace.context;
  return index::classify(ctx, in.linear, trace.rowDim, trace.lanes).kind == index::Access::Contiguous &&
         index::classify(ctx, in.linear, trace.laneDim, trace.lanes).kind != index::Access::Contiguous;
}

void chooseTransposes(const Graph &graph, const cost::TargetDesc &target, Plan &plan) {
  for (PlannedGroup &g : plan.groups)
    if (g.kind == "pointwise")
      choose(graph, target, g);
}

} // namespace rl
