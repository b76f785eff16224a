// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/plan/Measure.h"
#include "ir/index/Access.h"
#include "passes/plan/Gemm.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace rl {

/// 32-bit registers that one element of the type takes: a 16-bit float lives as f32 once it is computed with.
static int64_t registersOf(DType t) { return t == DType::I64 ? 2 : 1; }

std::vector<uint32_t> measureHomes(const Graph &graph, const Trace &trace) {
  std::vector<uint32_t> homes(trace.instances.size());
  for (uint32_t i = 0; i < homes.size(); ++i) {
    const Instance &in = trace.instances[i];
    bool alias = in.node != kNone && opInfo(graph.nodes[in.node].op).cls == OpClass::Shape && in.pieces.empty();
    homes[i] = alias ? homes[in.operands[0]] : i;
  }
  return homes;
}

Pressure measurePressure(const Graph &graph, const Trace &trace) {
  auto n = static_cast<uint32_t>(trace.instances.size());
  std::vector<uint32_t> home = measureHomes(graph, trace), lastUse(n, 0);
  auto use = [&](uint32_t of, uint32_t by) {
    if (of != kNone)
      lastUse[home[of]] = std::max(lastUse[home[of]], by);
  };
  for (uint32_t i = 0; i < n; ++i) {
    const Instance &in = trace.instances[i];
    for (uint32_t o : in.operands)
      use(o, i);
    for (const Instance::Piece &p : in.pieces) {
      // What a branch computed becomes the result at the branch's end; from outside it is used where the branch stands.
      bool inside = in.branches && p.instance != kNone && trace.instances[p.instance].scope == p.scope;
      use(p.instance, inside ? p.instance : i);
    }
  }
  for (const TraceStore &s : trace.stores)
    use(s.instance, s.instance);

  auto size = [&](uint32_t i) {
    const Instance &in = trace.instances[i];
    bool constant = in.node != kNone && graph.nodes[in.node].op == OpKind::Full;
    if (home[i] != i || constant)
      return int64_t(0);
    return registersOf(graph.type(in.value).dtype) * (in.uniform ? 1 : trace.lanes);
  };
  Pressure out;
  std::vector<int64_t> ending(n, 0); ///< registers that are free after instance i
  int64_t live = 0;
  for (uint32_t i = 0; i < n; ++i) {
    live += size(i);
    if (live > out.registers) {
      out.registers = live;
      out.peak = i;
    }
    ending[std::max(lastUse[i], i)] += size(i);
    live -= ending[i];
  }
  if (out.peak == kNone)
    return out;
  std::vector<uint32_t> there;
  for (uint32_t i = 0; i < out.peak; ++i) {
    const Instance &in = trace.instances[i];
    if (lastUse[i] > out.peak && size(i) > 0 && in.node != kNone &&
        opInfo(graph.nodes[in.node].op).cls != OpClass::Creation)
      there.push_back(i);
  }
  std::sort(there.begin(), there.end(),
            [&](uint32_t a, uint32_t b) { return std::pair(lastUse[a], a) > std::pair(lastUse[b], b); });
  for (uint32_t i : there)
    out.live.push_back({trace.instances[i].value, size(i)});
  return out;
}

std::vector<double> measureEvaluations(const Graph &graph, const Trace &trace) {
  // The part of the iteration space that evaluates a scope. A scope's number is greater than its parent's.
  std::vector<double> share(trace.scopes.size(), 1);
  for (const Instance &in : trace.instances) {
    if (!in.branches)
      continue;
    double whole = static_cast<double>(std::max<int64_t>(1, graph.type(in.value).elements()));
    for (const Instance::Piece &p : in.pieces)
      if (p.scope != in.scope && p.instance != kNone)
        share[p.scope] =
            std::min(1.0, static_cast<double>(graph.type(trace.instances[p.instance].value).elements()) / whole);
  }
  for (uint32_t s = 1; s < trace.scopes.size(); ++s)
    share[s] *= share[trace.scopes[s].parent];
  std::vector<double> out;
  out.reserve(trace.instances.size());
  for (const Instance &in : trace.instances)
    out.push_back(static_cast<double>(trace.elements) / static_cast<double>(in.uniform ? trace.lanes : 1) *
                  share[in.scope]);
  return out;
}

cost::WorkEstimate measureOps(const Graph &graph, const Instance &in, double times) {
  cost::WorkEstimate w;
  if (in.node == kNone)
    return w;
  const Node &node = graph.nodes[in.node];
  cost::OpCost c = cost::opCost(node, graph.type(in.value).dtype);
  w.ops = c.ops * times;
  w.specialOps = c.special * times;
  return w;
}

double measureInstructions(const Graph &graph, const Instance &in, const cost::TargetDesc &target, int64_t lanes) {
  double perRegister = target.gpu ? 1 : target.vectorBytes / 4;
  cost::WorkEstimate w =
      measureOps(graph, in, in.uniform ? 1.0 : std::max(1.0, static_cast<double>(lanes) / perRegister));
  double conditions = 0;
  for (const Instance::Piece &p : in.pieces)
    conditions += 2.0 * static_cast<double>(p.conditions.size());
  double address = in.node == kNone ? std::min<double>(in.linear.weight(), 64) : 0;
  return w.ops + w.specialOps + conditions + address;
}

cost::WorkEstimate measureWork(const Graph &graph, const Trace &trace, int64_t threads) {
  cost::WorkEstimate w;
  std::map<ValueId, double> reads;
  std::vector<double> times = measureEvaluations(graph, trace);
  for (size_t i = 0; i < trace.instances.size(); ++i) {
    const Instance &in = trace.instances[i];
    if (in.node == kNone) {
      // However often it is read, a tensor comes from memory once, and no more of it than is asked for. What is picked from
      // a table comes as often as it is picked.
      double &r = reads[in.value];
      if (trace.isGathered(in)) {
        w.traffic = cost::Traffic::Gather;
        r += times[i];
      } else {
        r = std::min(std::max(r, static_cast<double>(graph.type(in.value).elements())), r + times[i]);
      }
      continue;
    }
    cost::WorkEstimate one = measureOps(graph, in, times[i]);
    w.ops += one.ops;
    w.specialOps += one.specialOps;
  }
  for (auto [v, n] : reads)
    w.bytesRead += std::ceil(n) * static_cast<double>(dtypeSize(graph.type(v).dtype));
  for (const TraceStore &s : trace.stores)
    w.bytesWritten += static_cast<double>(trace.elements) *
                      static_cast<double>(dtypeSize(graph.type(trace.instances[s.instance].value).dtype));
  w.threadsPerBlock = static_cast<int>(threads);
  w.blocks = std::ceil(static_cast<double>(trace.elements) / static_cast<double>(trace.lanes * threads));
  return w;
}

bool readsPiecemeal(const Graph &graph, const Trace &trace) {
  int64_t pieces = 0, all = 0;
  for (const Instance &in : trace.instances) {
    if (in.node != kNone || in.uniform || trace.laneDim < 0 || graph.type(in.value).elements() * 2 <= trace.elements)
      continue;
    auto size = static_cast<int64_t>(dtypeSize(graph.type(in.value).dtype));
    all += size;
    index::Access access = index::classify(*trace.context, in.linear, trace.laneDim, trace.lanes);
    bool guarded = std::any_of(trace.guards[in.guard].begin(), trace.guards[in.guard].end(),
                               [&](const Condition &c) { return trace.dependsOnLane(trace.context->expand(c.expr)); });
    bool narrow = guarded || access.alignElements * size < 4;
    if (access.kind == index::Access::Contiguous && narrow && trace.lanes * size > 4)
      pieces += size;
  }
  return pieces * 2 > all;
}

Cones measureCones(const Graph &graph) {
  Cones out{std::vector<uint32_t>(graph.values.size(), 0), std::vector<bool>(graph.values.size(), false)};
  for (const Node &node : graph.nodes) {
    cost::OpCost c = cost::opCost(node.op, DType::F32);
    auto work = static_cast<uint64_t>(c.ops + 8 * c.special) + (isProduct(node) ? 1u << 20 : 0);
    bool any = isHero(node);
    for (const Operand &o : node.inputs)
      if (!o.isLiteral()) {
        work += out.work[o.value];
        any = any || out.heroes[o.value];
      }
    for (ValueId v : node.outputs) {
      out.work[v] = static_cast<uint32_t>(std::min<uint64_t>(work, 1u << 30));
      out.heroes[v] = any;
    }
  }
  return out;
}

} // namespace rl
