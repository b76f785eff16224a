// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of the planner of RowPlanner.h that decides whether a product's kernel computes an operand as it multiplies it, again for each
// of its tiles along the other one, or another kernel writes it first: a left operand, or right ones of 8 bits that become wider.
#include "passes/plan/RowPlannerParts.h"
#include "passes/plan/Wgmma.h"

#include <algorithm>
#include <cmath>
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

/// Right operands of 8 bits that a kernel of more rows than are streamed may widen as it multiplies them.
std::set<ValueId> RowPlanner::widenedRights(const std::vector<NodeId> &products) const {
  std::vector<bool> boundary(graph.values.size(), false);
  for (ValueId v : stored)
    boundary[v] = true;
  std::set<ValueId> out;
  for (NodeId n : products) {
    const ValueId v = operandSource(graph, graph.nodes[n].inputs[1].value, &stored);
    if (nodeOf(v) && !stored.contains(v) && turnedRefusal(graph, graph.nodes[n], boundary, target).empty())
      out.insert(v);
  }
  return out;
}

/// A kernel that writes the operand, or what it takes beside another that is there anyway.
Result<double> RowPlanner::writingSeconds(ValueId operand) const {
  std::vector<bool> boundary(graph.values.size(), false);
  for (ValueId v : stored)
    boundary[v] = true;
  TraceRequest request;
  request.graph = &graph;
  request.outputs = {operand};
  request.boundary = std::move(boundary);
  // A pointwise kernel's, as far as it matters here: vectors of 16 bytes of the widest that it reads.
  RL_ASSIGN(Trace single, tracePointwise(request));
  const int64_t elements = graph.type(operand).elements();
  size_t widest = dtypeSize(graph.type(operand).dtype);
  for (const Instance &in : single.instances)
    if (in.node == kNone && graph.type(in.value).elements() == elements)
      widest = std::max(widest, dtypeSize(graph.type(in.value).dtype));
  request.lanes = static_cast<int64_t>(16 / widest);
  while (elements % request.lanes != 0)
    request.lanes /= 2;
  RL_ASSIGN(Trace trace, tracePointwise(request));
  constexpr int64_t kThreads = 128; // of a pointwise kernel
  cost::WorkEstimate work = measureWork(graph, trace, kThreads);
  // A kernel of the same elements is there anyway, and writes it on the way.
  if (std::any_of(trace.instances.begin(), trace.instances.end(), [&](const Instance &in) {
        return in.node == kNone && nodeOf(in.value) && graph.type(in.value).elements() == elements;
      }))
    return work.bytesWritten / target.dramCopy;
  return cost::estimate(work, target, /*first=*/false, /*early=*/true).total;
}

Result<RowPlanner::LeftToOthers> RowPlanner::leaveOperands(const Draft &d, const std::set<ValueId> &operands,
                                                           const std::set<ValueId> &loaded) const {
  RowPlanner trial(*this);
  LeftToOthers out;
  for (ValueId v : operands) {
    trial.stored.insert(v);
    trial.cuts[v] = {"", false};
    RL_ASSIGN(double writing, writingSeconds(v));
    out.writing += writing;
  }
  RL_ASSIGN(Verdict apart, trial.judgeProducts(d, loaded));
  if (apart.group)
    out.product = apart.group->time.total;
  return out;
}

/// What the first of two products that widen their right operands had better hand on to the kernel of the second, through memory: in one
/// kernel each warp widens the weights of both, beside half as many columns of sums. kNone: one kernel, or one with the operands
/// written before, is as quick.
Result<ValueId> RowPlanner::cutBetweenProducts(const Draft &d, const PlannedGroup &g,
                                               const std::vector<NodeId> &products, const std::set<ValueId> &widened,
                                               const std::set<ValueId> &loaded, std::string &why) const {
  const ValueId second = graph.nodes[products[1]].outputs[0];
  ValueId between = kNone;
  for (ValueId v : pathTo(d.outputs, products[0], d.space))
    if (between == kNone && v != d.outputs[0] && v != second && !dependsOn(v, second))
      between = v;
  if (between == kNone || stored.contains(between))
    return kNone;
  RowPlanner trial(*this);
  trial.stored.insert(between);
  trial.cuts[between] = {"", true};
  Draft first = d;
  first.outputs = {between};
  RL_ASSIGN(Verdict one, trial.judgeProducts(first));
  RL_ASSIGN(Verdict other, trial.judgeProducts(d, loaded));
  if (!one.group || !other.group)
    return kNone;
  RL_ASSIGN(LeftToOthers left, leaveOperands(d, widened, loaded));
  const double apart = left.writing + left.product;
  const double both = one.group->time.total + other.group->time.total;
  constexpr double kGain = 0.98;
  if (both >= kGain * std::min(g.time.total, apart))
    return kNone;
  char text[200];
  std::snprintf(text, sizeof text,
                ": a kernel for each product takes %.3g us and %.3g us, one for both %.3g us, and with weights widened "
                "through memory %.3g us",
                one.group->time.total * 1e6, other.group->time.total * 1e6, g.time.total * 1e6, apart * 1e6);
  why = "stored" + std::string(text);
  return between;
}

/// Whether the operands, left or right ones, had better be written by kernels of their own than computed by `g`; why, either way.
Result<bool> RowPlanner::leavesOperands(const Draft &d, const PlannedGroup &g, const std::set<ValueId> &operands,
                                        bool isRight, const std::set<ValueId> &loaded, std::string &why) const {
  why = "stored: '" + graph.values[g.outputs[0]].name + "' multiplies it";
  // In many rows no other kernel than warpgroups' was measured with a right operand that it computes for each of its tiles.
  if (isRight && !g.gemm->turned) {
    for (const std::string &reason : g.why)
      if (reason.starts_with(kNotTurned))
        why += "; " + reason;
    return true;
  }
  RL_ASSIGN(LeftToOthers apart, leaveOperands(d, operands, loaded));
  if (std::isinf(apart.product)) {
    why.clear();
    return false;
  }
  std::string names;
  for (ValueId v : operands)
    names += (names.empty() ? "" : ", ") + quoted(graph, v);
  char text[160];
  std::snprintf(text, sizeof text,
                "%.3g us with kernel '%s', where writing it takes %.3g us and the product then %.3g us",
                g.time.total * 1e6, g.gemm->kernel.c_str(), apart.writing * 1e6, apart.product * 1e6);
  // Neither model is exact: what is as good as equal is left to two kernels, of which the product's multiplies at its full rate. Of other
  // kernels than warpgroups' none was measured but those that compute each element once.
  constexpr double kGain = 0.98, kUnmeasuredGain = 0.9;
  const Node &product =
      graph.nodes[*std::find_if(g.nodes.begin(), g.nodes.end(), [&](NodeId n) { return isProduct(graph.nodes[n]); })];
  const bool measured = g.gemm->kernel == "wgmma" || readsOnce(graph, product, /*left=*/true, stored);
  if (g.time.total >= (measured ? kGain : kUnmeasuredGain) * (apart.writing + apart.product)) {
    why += std::string(", and to compute it there would take ") + text;
    return true;
  }
  why = names + (operands.size() > 1 ? " are computed where they are" : " is computed where it is") +
        " multiplied: " + text;
  return false;
}

} // namespace rl
