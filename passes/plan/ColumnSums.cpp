// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/plan/ColumnSums.h"

namespace rl {

std::optional<ColumnSum> columnSum(const Graph &graph, ValueId v, int64_t width) {
  if (graph.values[v].kind != Value::Result)
    return std::nullopt;
  const Node &node = graph.nodes[graph.values[v].node];
  if (node.op != OpKind::Sum || node.inputs[0].isLiteral() || node.attrs.dims.empty())
    return std::nullopt;
  const TensorType &from = graph.type(node.inputs[0].value);
  if (from.dtype != DType::F32 || graph.type(v).dtype != DType::F32)
    return std::nullopt;
  // Neighbouring dimensions are summed: of what comes before them and after them.
  auto first = static_cast<size_t>(node.attrs.dims.front()), last = static_cast<size_t>(node.attrs.dims.back());
  if (last - first + 1 != node.attrs.dims.size())
    return std::nullopt;
  ColumnSum out;
  int64_t before = 1, behind = 1;
  for (size_t d = 0; d < first; ++d)
    before *= from.shape[d];
  for (size_t d = last + 1; d < from.shape.size(); ++d)
    behind *= from.shape[d];
  if (from.elements() == 0 || behind % width != 0 || (behind != width && before != 1))
    return std::nullopt;
  out.inTurn = behind != width;
  out.parts = out.inTurn ? behind / width : before;
  out.operand = node.inputs[0].value;
  while (graph.values[out.operand].kind == Value::Result) {
    const Node &view = graph.nodes[graph.values[out.operand].node];
    if (view.op != OpKind::Reshape && view.op != OpKind::Squeeze && view.op != OpKind::Unsqueeze)
      break;
    out.operand = view.inputs[0].value;
  }
  return out;
}

bool isColumnSumOf(const Graph &graph, ValueId v, int64_t rows, int64_t width, int64_t leastParts) {
  std::optional<ColumnSum> sum = columnSum(graph, v, width);
  return sum && graph.type(sum->operand).elements() == rows * width && rows % sum->parts == 0 &&
         rows / sum->parts > 1 && sum->parts >= leastParts;
}

std::set<ValueId> largeLoads(const Graph &graph, const std::set<ValueId> &stored, ValueId v, int64_t elements) {
  std::set<ValueId> seen{v}, out;
  std::vector<ValueId> work{v};
  while (!work.empty()) {
    ValueId u = work.back();
    work.pop_back();
    if (graph.values[u].kind != Value::Result || (u != v && stored.contains(u))) {
      if (graph.type(u).elements() * 2 > elements)
        out.insert(u);
      continue;
    }
    for (const Operand &o : graph.nodes[graph.values[u].node].inputs)
      if (!o.isLiteral() && seen.insert(o.value).second)
        work.push_back(o.value);
  }
  return out;
}

} // namespace rl
