// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/plan/Measure.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <queue>

namespace rl {

/// 32-bit registers that one element of the type takes: a 16-bit float lives as f32 once it is computed with.
static int64_t registersOf(DType t) { return t == DType::I64 ? 2 : 1; }

Pressure measurePressure(const Graph &graph, const Trace &trace) {
  size_t n = trace.instances.size();
  std::vector<uint32_t> lastUse(n, 0);
  std::vector<bool> storedLast(n, false);
  auto use = [&](uint32_t of, uint32_t by) {
    if (of != kNone)
      lastUse[of] = std::max(lastUse[of], by);
  };
  for (uint32_t i = 0; i < n; ++i) {
    for (uint32_t o : trace.instances[i].operands)
      use(o, i);
    for (const Instance::Piece &p : trace.instances[i].pieces)
      use(p.instance, i);
  }
  for (const TraceStore &s : trace.stores)
    lastUse[s.instance] = std::max(lastUse[s.instance], s.instance);

  Pressure out;
  int64_t live = 0;
  // Live instances by last use, the farthest on top; entries that have ended are dropped when they surface.
  std::priority_queue<std::pair<uint32_t, uint32_t>> byEnd;
  std::multimap<uint32_t, uint32_t> ends;
  auto size = [&](uint32_t i) {
    const Instance &in = trace.instances[i];
    return registersOf(graph.type(in.value).dtype) * (in.uniform ? 1 : trace.lanes);
  };
  for (uint32_t i = 0; i < n; ++i) {
    live += size(i);
    if (live > out.registers) {
      out.registers = live;
      out.farthest = kNone;
      // A load need not be kept: it can be issued again. Only computed values are worth writing.
      auto copy = byEnd;
      while (!copy.empty()) {
        auto [end, j] = copy.top();
        copy.pop();
        const Instance &in = trace.instances[j];
        if (end > i && in.node != kNone && in.scope == 0 && opInfo(graph.nodes[in.node].op).cls != OpClass::Creation) {
          out.farthest = in.value;
          break;
        }
      }
    }
    if (lastUse[i] > i) {
      byEnd.push({lastUse[i], i});
      ends.emplace(lastUse[i], i);
    } else {
      live -= size(i);
    }
    for (auto it = ends.begin(); it != ends.end() && it->first <= i; it = ends.erase(it))
      live -= size(it->second);
  }
  return out;
}

cost::WorkEstimate measureWork(const Graph &graph, const Trace &trace, int64_t threads) {
  cost::WorkEstimate w;
  std::map<ValueId, int64_t> reads;
  for (const Instance &in : trace.instances) {
    const TensorType &type = graph.type(in.value);
    int64_t n = in.uniform ? trace.elements / trace.lanes : trace.elements;
    if (in.node == kNone) {
      // However often it is read, a tensor comes from memory once, and no more of it than is asked for.
      int64_t &r = reads[in.value];
      r = std::min(type.elements(), r + n);
      continue;
    }
    const Node &node = graph.nodes[in.node];
    cost::OpCost c = cost::opCost(node.op, type.dtype, node.attrs.tanhApproximation);
    w.ops += c.ops * static_cast<double>(n);
    w.specialOps += c.special * static_cast<double>(n);
  }
  for (auto [v, n] : reads)
    w.bytesRead += static_cast<double>(n) * static_cast<double>(dtypeSize(graph.type(v).dtype));
  for (const TraceStore &s : trace.stores)
    w.bytesWritten += static_cast<double>(trace.elements) * static_cast<double>(dtypeSize(graph.type(trace.instances[s.instance].value).dtype));
  w.threadsPerBlock = static_cast<int>(threads);
  w.blocks = std::ceil(static_cast<double>(trace.elements) / static_cast<double>(trace.lanes * threads));
  return w;
}

double measureCone(const Graph &graph, const Trace &trace, uint32_t root, const cost::TargetDesc &target, int64_t elements) {
  cost::WorkEstimate w;
  std::vector<uint32_t> work{root};
  std::vector<bool> seen(trace.instances.size(), false);
  while (!work.empty()) {
    uint32_t i = work.back();
    work.pop_back();
    if (i == kNone || seen[i])
      continue;
    seen[i] = true;
    const Instance &in = trace.instances[i];
    if (in.node == kNone)
      continue;
    const Node &node = graph.nodes[in.node];
    cost::OpCost c = cost::opCost(node.op, graph.type(in.value).dtype, node.attrs.tanhApproximation);
    w.ops += c.ops * static_cast<double>(elements);
    w.specialOps += c.special * static_cast<double>(elements);
    for (uint32_t o : in.operands)
      work.push_back(o);
    for (const Instance::Piece &p : in.pieces)
      work.push_back(p.instance);
  }
  return cost::estimate(w, target).compute();
}

} // namespace rl
