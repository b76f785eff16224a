// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/precision/AtBind.h"

#include <algorithm>

namespace rl {

namespace {

/// Nodes that lead to `wanted`, not looking behind values that are `given`.
std::vector<char> above(const Graph &g, const std::vector<ValueId> &wanted, const std::vector<char> &given) {
  std::vector<char> values(g.values.size(), 0), nodes(g.nodes.size(), 0);
  for (ValueId v : wanted)
    values[v] = 1;
  for (NodeId n = static_cast<NodeId>(g.nodes.size()); n-- > 0;) {
    for (ValueId v : g.nodes[n].outputs)
      nodes[n] |= values[v] && !given[v];
    if (nodes[n])
      for (const Operand &o : g.nodes[n].inputs)
        if (!o.isLiteral())
          values[o.value] = 1;
  }
  return nodes;
}

class Part {
public:
  explicit Part(const Graph &from) : from(from), to(from.values.size(), kNone) {
    g.name = from.name;
    g.strict = from.strict;
  }
  void declare(ValueId v, Value::Kind kind) {
    std::vector<ValueId> &list = kind == Value::Input ? g.inputs : g.parameters;
    to[v] = static_cast<ValueId>(g.values.size());
    g.values.push_back({kind, from.values[v].name, from.type(v), kNone, static_cast<uint32_t>(list.size())});
    list.push_back(to[v]);
  }
  void take(const std::vector<char> &nodes) {
    for (NodeId n = 0; n < from.nodes.size(); ++n) {
      if (!nodes[n])
        continue;
      Node node = from.nodes[n];
      for (Operand &o : node.inputs)
        if (!o.isLiteral())
          o.value = to[o.value];
      for (size_t k = 0; k < node.outputs.size(); ++k) {
        ValueId v = node.outputs[k], made = static_cast<ValueId>(g.values.size());
        if (to[v] == kNone) // else it is given, beside a sibling that is computed
          to[v] = made;
        node.outputs[k] = made;
        g.values.push_back({Value::Result, from.values[v].name, from.type(v), static_cast<NodeId>(g.nodes.size()),
                            static_cast<uint32_t>(k)});
      }
      g.nodes.push_back(std::move(node));
    }
  }
  ValueId at(ValueId v) const { return to[v]; }

  const Graph &from;
  Graph g;

private:
  std::vector<ValueId> to;
};

} // namespace

BindSplit splitAtBind(const Graph &graph, const std::vector<ValueId> &atBind) {
  std::vector<char> given(graph.values.size(), 0), read(graph.values.size(), 0), none(graph.values.size(), 0);
  for (ValueId v : atBind)
    given[v] = 1;
  std::vector<char> run = above(graph, graph.outputs, given);
  for (NodeId n = 0; n < graph.nodes.size(); ++n)
    if (run[n])
      for (const Operand &o : graph.nodes[n].inputs)
        if (!o.isLiteral())
          read[o.value] = 1;
  std::vector<ValueId> crossing;
  for (ValueId v = 0; v < graph.values.size(); ++v)
    if (given[v] && read[v])
      crossing.push_back(v);
  if (crossing.empty())
    return {{}, graph};

  Part first(graph), rest(graph);
  for (ValueId v : graph.parameters)
    first.declare(v, Value::Input);
  first.take(above(graph, crossing, none));
  for (ValueId v : crossing)
    first.g.outputs.push_back(first.at(v));
  for (ValueId v : graph.inputs)
    rest.declare(v, Value::Input);
  for (ValueId v : graph.parameters)
    rest.declare(v, Value::Parameter);
  for (ValueId v : crossing)
    rest.declare(v, Value::Parameter);
  rest.take(run);
  for (ValueId v : graph.outputs)
    rest.g.outputs.push_back(rest.at(v));
  return {std::move(first.g), std::move(rest.g)};
}

} // namespace rl
