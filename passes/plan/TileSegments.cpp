// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/plan/TileSegments.h"
#include "passes/plan/Measure.h"

#include <algorithm>
#include <bit>

namespace rl {

bool storesSegments(const Graph &graph, const Trace &trace, const TraceStore &store) {
  return graph.type(trace.instances[store.instance].value).elements() != trace.elements;
}

TileSegments tileSegments(const Graph &graph, const Trace &trace) {
  // Each further one that waits for those before computes all of the epilogue once more.
  constexpr uint32_t kMostLevels = 2;
  constexpr int64_t kLeast = 16; // what a warp's lanes have of a row at once
  TileSegments out;
  for (const Instance &in : trace.instances)
    if (isSegmentReduction(in)) {
      if (out.columns && in.segment != out.columns)
        out.refusal = "it would reduce segments of " + std::to_string(std::min(in.segment, out.columns)) + " and of " +
                      std::to_string(std::max(in.segment, out.columns));
      out.columns = std::max(out.columns, in.segment);
    }
  if (!out.columns || !out.refusal.empty())
    return out;
  if (out.columns < kLeast || !std::has_single_bit(static_cast<uint64_t>(out.columns)))
    out.refusal = "segments of " + std::to_string(out.columns) + " are no power of two from " + std::to_string(kLeast) +
                  " to " + std::to_string(kMostTileSegment);
  else if (trace.levels > kMostLevels)
    out.refusal = std::to_string(trace.levels) + " reductions of segments wait for one another, and it takes " +
                  std::to_string(kMostLevels);
  else if (trace.scopes.size() > 1)
    out.refusal = "it would choose between pieces of a cat";
  for (const TraceStore &s : trace.stores)
    if (int64_t n = graph.type(trace.instances[s.instance].value).elements();
        storesSegments(graph, trace, s) && n * out.columns != trace.elements)
      out.refusal = "'" + graph.values[trace.instances[s.instance].value].name + "' has not one element a segment";
  return out;
}

std::vector<uint32_t> reductionsOf(const Trace &trace, uint32_t level) {
  std::vector<uint32_t> out;
  for (uint32_t i : trace.scopes[0].order)
    if (isSegmentReduction(trace.instances[i]) && trace.instances[i].level == level)
      out.push_back(i);
  return out;
}

std::vector<uint32_t> segmentPass(const Graph &graph, const Trace &trace, uint32_t level, uint32_t kept) {
  std::vector<uint32_t> work, out;
  if (level > 0 && level <= trace.levels) {
    for (uint32_t r : reductionsOf(trace, level))
      work.push_back(trace.instances[r].operands[0]);
  } else {
    for (const TraceStore &s : trace.stores)
      if (storesSegments(graph, trace, s) == (level == 0))
        work.push_back(s.instance);
  }
  std::vector<bool> needed(trace.instances.size(), false);
  while (!work.empty()) {
    uint32_t i = work.back();
    work.pop_back();
    if (i == kNone || i == kept || needed[i] || isSegmentReduction(trace.instances[i]))
      continue;
    needed[i] = true;
    for (uint32_t o : trace.instances[i].operands)
      work.push_back(o);
    for (const Instance::Piece &p : trace.instances[i].pieces)
      work.push_back(p.instance);
  }
  std::copy_if(trace.scopes[0].order.begin(), trace.scopes[0].order.end(), std::back_inserter(out),
               [&](uint32_t i) { return needed[i]; });
  return out;
}

uint32_t keptValue(const Graph &graph, const Trace &trace) {
  if (trace.levels == 0)
    return kNone;
  uint32_t best = kNone;
  size_t least = SIZE_MAX;
  for (uint32_t i : segmentPass(graph, trace, 1)) {
    const Instance &in = trace.instances[i];
    if (in.node == kNone || in.uniform || !isFloat(graph.type(in.value).dtype) ||
        dtypeSize(graph.type(in.value).dtype) < 2)
      continue;
    size_t behind = 0;
    bool whole = true;
    for (uint32_t level = 2; level <= trace.levels + 1; ++level)
      for (uint32_t j : segmentPass(graph, trace, level, i)) {
        const Instance &other = trace.instances[j];
        whole &= other.node == kNone || graph.nodes[other.node].op != OpKind::Matmul;
        ++behind;
      }
    if (whole && behind < least) {
      best = i;
      least = behind;
    }
  }
  return best;
}

cost::WorkEstimate passOps(const Graph &graph, const Trace &trace, uint32_t level) {
  std::vector<uint32_t> all = segmentPass(graph, trace, level);
  for (uint32_t r : reductionsOf(trace, level))
    all.push_back(r);
  cost::WorkEstimate out;
  for (uint32_t i : all) {
    const Instance &in = trace.instances[i];
    const bool once = in.uniform && !isSegmentReduction(in);
    cost::WorkEstimate w = measureOps(graph, in, once ? 1.0 / static_cast<double>(trace.lanes) : 1.0);
    out.ops += w.ops;
    out.specialOps += w.specialOps;
  }
  return out;
}

} // namespace rl
