// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of the planner of RowPlanner.h that decides whether a product's kernel computes its left operand as it multiplies it, again
// for each of its tiles along N, or another kernel writes it first.
#include "passes/plan/RowPlannerParts.h"
#include "passes/plan/Wgmma.h"

#include <algorithm>
#include <cstdio>

namespace rl {

/// Whether the product's kernel may compute its left operand, which is `v` behind views and casts, as it multiplies it: nothing
/// but products that share a kernel use it, and no kernel that is there anyway could write it on the way.
bool RowPlanner::mayComputeLeft(const Node &product, ValueId v) const {
  if (!nodeOf(v) || stored.contains(v) || cones.heroes[v] || !computesLeft(graph, product, stored, target))
    return false;
  std::set<ValueId> seen{v};
  std::vector<ValueId> work{v};
  while (!work.empty()) {
    ValueId u = work.back();
    work.pop_back();
    for (const Node &node : graph.nodes)
      for (const Operand &o : node.inputs) {
        if (o.isLiteral() || o.value != u)
          continue;
        if (isProduct(node)) {
          if (&o != &node.inputs[0] || !shareKernel(graph, node, product))
            return false;
        } else if (node.op == OpKind::Cast || cost::isView(node.op)) {
          if (stored.contains(node.outputs[0]))
            return false;
          if (seen.insert(node.outputs[0]).second)
            work.push_back(node.outputs[0]);
        } else {
          return false;
        }
      }
  }
  return true;
}

/// Whether the operand had better be written by a kernel of its own than computed by `g`; why, either way.
Result<bool> RowPlanner::leavesLeft(const Draft &d, const PlannedGroup &g, ValueId left,
                                    const std::set<ValueId> &loaded, std::string &why) const {
  RowPlanner trial(*this);
  trial.stored.insert(left);
  trial.cuts[left] = {"", false};
  RL_ASSIGN(Verdict apart, trial.judgeProducts(d, loaded));
  if (!apart.group)
    return false;
  std::vector<bool> boundary(graph.values.size(), false);
  for (ValueId v : stored)
    boundary[v] = true;
  std::vector<ValueId> inputs;
  TraceRequest request;
  request.graph = &graph;
  request.outputs = {left};
  request.boundary = std::move(boundary);
  // A pointwise kernel's, as far as it matters here: vectors of 16 bytes of the widest that it reads.
  RL_ASSIGN(Trace single, tracePointwise(request));
  size_t widest = dtypeSize(graph.type(left).dtype);
  for (const Instance &in : single.instances)
    if (in.node == kNone)
      widest = std::max(widest, dtypeSize(graph.type(in.value).dtype));
  request.lanes = static_cast<int64_t>(16 / widest);
  while (graph.type(left).elements() % request.lanes != 0)
    request.lanes /= 2;
  RL_ASSIGN(Trace trace, tracePointwise(request));
  constexpr int64_t kThreads = 128; // of a pointwise kernel
  cost::WorkEstimate work = measureWork(graph, trace, kThreads);
  double writing = cost::estimate(work, target, /*first=*/false, /*early=*/true).total;
  const int64_t elements = graph.type(left).elements();
  // A kernel of the same elements is there anyway, and writes it on the way.
  if (std::any_of(trace.instances.begin(), trace.instances.end(), [&](const Instance &in) {
        return in.node == kNone && nodeOf(in.value) && graph.type(in.value).elements() == elements;
      }))
    writing = work.bytesWritten / target.dramCopy;
  char text[160];
  std::snprintf(text, sizeof text,
                "%.3g us with kernel '%s', where writing it takes %.3g us and the product then %.3g us",
                g.time.total * 1e6, g.gemm->kernel.c_str(), writing * 1e6, apart.group->time.total * 1e6);
  // Neither model is exact: what is as good as equal is left to two kernels, of which the product's multiplies at its full rate. Of other
  // kernels than warpgroups' none was measured but those that compute each element once.
  constexpr double kGain = 0.98, kUnmeasuredGain = 0.9;
  const Node &product =
      graph.nodes[*std::find_if(g.nodes.begin(), g.nodes.end(), [&](NodeId n) { return isProduct(graph.nodes[n]); })];
  const bool measured = g.gemm->kernel == "wgmma" || readsOnce(graph, product, /*left=*/true, stored);
  if (g.time.total >= (measured ? kGain : kUnmeasuredGain) * (writing + apart.group->time.total)) {
    why = "stored: '" + graph.values[g.outputs[0]].name + "' multiplies it, and to compute it there would take " + text;
    return true;
  }
  why = quoted(graph, left) + " is computed where it is multiplied: " + text;
  return false;
}

} // namespace rl
