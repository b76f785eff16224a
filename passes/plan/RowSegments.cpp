// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of the planner of RowPlanner.h that decides whether segments of a product's rows are reduced by the product's kernel or
// by a kernel of their own.
#include "passes/plan/RowPlannerParts.h"
#include "passes/plan/TileSegments.h"

#include <algorithm>
#include <cstdio>

namespace rl {

/// The space of the product whose tiles have the rows whole that `v` is reduced over: the rows are segments of the product's. nullopt:
/// there is none, or what is between them no kernel of products computes.
std::optional<Space> RowPlanner::productOfRows(ValueId v, Space rows) const {
  if (apart.contains(v) || rows.width > kMostTileSegment)
    return std::nullopt;
  std::optional<Space> found;
  std::set<ValueId> seen{v};
  std::vector<ValueId> work{v};
  while (!work.empty() && !found) {
    ValueId u = work.back();
    work.pop_back();
    const Node *node = nodeOf(u);
    auto it = cuts.find(u);
    if (!node || !cones.heroes[u] || (u != v && it != cuts.end() && it->second.hard))
      continue;
    if (isProduct(*node)) {
      Space s = rowsOf(*node);
      if (s.rows * s.width == rows.rows * rows.width && s.width % rows.width == 0)
        found = s;
      continue;
    }
    for (const Operand &o : node->inputs)
      if (!o.isLiteral() && seen.insert(o.value).second)
        work.push_back(o.value);
  }
  int64_t n = graph.type(v).elements();
  if (!found || (n != found->rows * found->width && (n % found->rows != 0 || n * rows.width != rows.rows * rows.width)))
    return std::nullopt;
  TraceRequest request = requestOf({*found, 0, {v}});
  request.products = true;
  request.lanes = epilogueLanes(graph, {v}, found->width, target);
  Result<TraceOutcome> traced = tracePointwiseUpTo(request);
  if (!traced || traced->exceeded || !traced->foreign.empty())
    return std::nullopt;
  // What is loaded may hide the product.
  const std::vector<Instance> &all = traced->trace.instances;
  bool computed = std::any_of(all.begin(), all.end(),
                              [&](const Instance &in) { return in.node != kNone && isProduct(graph.nodes[in.node]); });
  return computed ? found : std::nullopt;
}

/// What a kernel of products stores that is made of segments' sums and the like.
std::vector<ValueId> RowPlanner::reducingOutputs(const Trace &trace) const {
  std::vector<bool> reduces(trace.instances.size(), false);
  for (size_t i = 0; i < trace.instances.size(); ++i) { // operands come before
    const Instance &in = trace.instances[i];
    reduces[i] = isSegmentReduction(in);
    for (uint32_t o : in.operands)
      reduces[i] = reduces[i] || (o != kNone && reduces[o]);
    for (const Instance::Piece &p : in.pieces)
      reduces[i] = reduces[i] || (p.instance != kNone && reduces[p.instance]);
  }
  std::vector<ValueId> out;
  for (const TraceStore &s : trace.stores)
    if (reduces[s.instance])
      out.push_back(trace.instances[s.instance].value);
  return out;
}

/// The time of two kernels in the place of the draft's: one stores what the segments are of, another reduces it. nullopt: there are
/// no such two.
Result<std::optional<RowPlanner::Apart>> RowPlanner::planApart(const Draft &d, const Trace &trace, NodeId hero) const {
  const std::optional<Apart> none;
  std::vector<uint32_t> first = reductionsOf(trace, 1);
  if (first.empty())
    return none;
  const Instance &reduction = trace.instances[first[0]];
  std::vector<ValueId> path = pathTo({reduction.value}, hero, d.space);
  if (path.size() < 2)
    return none;
  // The one that the product's kernel would end with, else one before it, which all that is behind the reductions is made of.
  auto at = std::find(path.begin() + 1, path.end(), cutBehindProduct(path));
  for (; at != path.end(); ++at) {
    RowPlanner trial(*this);
    trial.stored.insert(*at);
    trial.cuts[*at] = {"", true};
    Draft before{d.space, d.level, {*at}}, behind{rowsOf(graph.nodes[reduction.node]), d.level + 1, {}};
    for (const TraceStore &s : trace.stores)
      if (ValueId v = trace.instances[s.instance].value; v != *at)
        (trace.instances[s.instance].level == 0 ? before : behind).outputs.push_back(v);
    if (behind.outputs.empty())
      return none;
    for (Draft *part : {&before, &behind})
      std::sort(part->outputs.begin(), part->outputs.end());
    RL_ASSIGN(Verdict rows, trial.judge(behind));
    if (!rows.group)
      continue;
    RL_ASSIGN(Verdict product, trial.judgeProducts(before));
    if (!product.group)
      return none;
    // Each is estimated as if it were launched alone.
    return std::optional(Apart{*at, product.group->time.total,
                               rows.group->time.total - std::max(0.0, target.launchFirst - target.launchNext)});
  }
  return none;
}

/// Why the scheduled group, which reduces segments on the way, is better two kernels, or nothing; then `together` says why it is not.
Result<std::string> RowPlanner::whyApart(const Draft &d, const Trace &trace, const PlannedGroup &g, int64_t segment,
                                         std::string &together) const {
  NodeId product = *std::find_if(g.nodes.begin(), g.nodes.end(), [&](NodeId n) { return isProduct(graph.nodes[n]); });
  RL_ASSIGN(std::optional<Apart> two, planApart(d, trace, product));
  auto figure = [](double seconds) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g us", seconds * 1e6);
    return std::string(text);
  };
  const std::string own =
      figure(g.time.total) + " with tiles of " + std::to_string(g.gemm->tileM) + " x " + std::to_string(g.gemm->tileN);
  // Neither model is exact: what is as good as equal stays one kernel, which takes no memory in between.
  constexpr double kGain = 0.99;
  if (two && two->product + two->rows < kGain * g.time.total)
    return "reducing segments of " + std::to_string(segment) + " in the product's tiles takes " + own + ", writing " +
           quoted(graph, two->stored) + " and reading it again " + figure(two->product) + " and " + figure(two->rows);
  together = "segments of " + std::to_string(segment) + " are reduced within tiles";
  if (two)
    together += ": " + own + ", where " + figure(two->product) + " and " + figure(two->rows) + " would write " +
                quoted(graph, two->stored) + " and read it again";
  return std::string();
}

} // namespace rl
