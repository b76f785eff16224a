// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/plan/OnlineSum.h"

namespace rl {

std::optional<OnlineSum> findOnline(const Graph &graph, const Trace &trace, uint32_t sum) {
  // Layout ops but cat and pad are names for their operand.
  auto resolve = [&](uint32_t i) {
    while (i != kNone && trace.instances[i].node != kNone) {
      const Node &n = graph.nodes[trace.instances[i].node];
      if (opInfo(n.op).cls != OpClass::Shape || n.op == OpKind::Cat || n.op == OpKind::Pad)
        break;
      i = trace.instances[i].operands[0];
    }
    return i;
  };
  // The operands of an f32 instance that is such an op; empty where it is not.
  auto operandsOf = [&](uint32_t i, OpKind op) -> std::vector<uint32_t> {
    if (i == kNone || trace.instances[i].node == kNone || graph.nodes[trace.instances[i].node].op != op)
      return {};
    std::vector<uint32_t> out;
    for (uint32_t o : trace.instances[i].operands)
      out.push_back(resolve(o));
    return out;
  };
  auto isF32 = [&](uint32_t i) { return i != kNone && graph.type(trace.instances[i].value).dtype == DType::F32; };
  OnlineSum out;
  out.sum = sum;
  std::vector<uint32_t> of = operandsOf(sum, OpKind::Sum);
  if (of.empty() || !isF32(sum))
    return std::nullopt;
  out.exponential = of[0];
  std::vector<uint32_t> power = operandsOf(of[0], OpKind::Exp);
  if (power.empty() || !isF32(of[0]) || !trace.instances[of[0]].varies) // a row of one element may not vary
    return std::nullopt;
  std::vector<uint32_t> difference = operandsOf(power[0], OpKind::Sub);
  if (difference.empty() || !isF32(power[0]) || !isF32(difference[1]) || trace.instances[difference[1]].varies)
    return std::nullopt;
  out.top = out.subtrahend = difference[1];
  out.subtracted = trace.instances[power[0]].operands[1];
  if (std::vector<uint32_t> choice = operandsOf(out.top, OpKind::Where); !choice.empty()) {
    const Node &where = graph.nodes[trace.instances[out.top].node];
    std::vector<uint32_t> condition = operandsOf(choice[0], OpKind::IsFinite);
    if (condition.empty() || condition[0] != choice[1] || !where.inputs[2].isLiteral() ||
        where.inputs[2].literal.asDouble() != 0)
      return std::nullopt;
    out.top = choice[1];
    out.finite = true;
  }
  std::vector<uint32_t> reduced = operandsOf(out.top, OpKind::Amax);
  if (reduced.empty() || !isF32(out.top) || reduced[0] != difference[0] ||
      trace.instances[out.top].level + 1 != trace.instances[sum].level)
    return std::nullopt;
  return out;
}

} // namespace rl
