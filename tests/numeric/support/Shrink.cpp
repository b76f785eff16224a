// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/numeric/support/Shrink.h"

#include "frontend/json/JsonReader.h"
#include "ir/interp/Convert.h"
#include "tests/numeric/support/RandomGraph.h"

#include <algorithm>
#include <map>

namespace rl::numeric {

namespace {

/// Drops what no output needs, data included.
Case pruned(Case c) {
  std::map<std::string, HostTensor> data;
  for (size_t i = 0; i < c.inputs.size(); ++i)
    data[c.spec.inputs[i].name] = std::move(c.inputs[i]);
  for (size_t i = 0; i < c.parameters.size(); ++i)
    data[c.spec.parameters[i].name] = std::move(c.parameters[i]);
  dropDead(c.spec);
  c.inputs.clear();
  c.parameters.clear();
  for (const TensorSpec &t : c.spec.inputs)
    c.inputs.push_back(data[t.name]);
  for (const TensorSpec &t : c.spec.parameters)
    c.parameters.push_back(data[t.name]);
  return c;
}

TensorSpec specFor(const std::string &name, const TensorType &type) {
  TensorSpec t{name, type.dtype, {}};
  for (int64_t e : type.shape)
    t.shape.push_back({e, {}});
  return t;
}

void rename(GraphSpec &spec, const std::string &from, const std::string &to) {
  for (NodeSpec &n : spec.nodes)
    for (OperandSpec &o : n.inputs)
      if (!o.literal && o.name == from)
        o.name = to;
  std::replace(spec.outputs.begin(), spec.outputs.end(), from, to);
}

} // namespace

Case shrink(Case c, const std::function<bool(const Case &)> &fails, int budget) {
  auto attempt = [&](Case candidate) {
    if (budget <= 0)
      return false;
    candidate = pruned(std::move(candidate));
    if (!resolve(candidate.spec))
      return false;
    --budget;
    if (!fails(candidate))
      return false;
    c = std::move(candidate);
    return true;
  };
  attempt(c);
  for (bool again = true; again && budget > 0;) {
    again = false;
    // One output.
    for (size_t o = 0; c.spec.outputs.size() > 1 && o < c.spec.outputs.size(); ++o) {
      Case candidate = c;
      candidate.spec.outputs = {c.spec.outputs[o]};
      if (attempt(std::move(candidate))) {
        again = true;
        break;
      }
    }
    for (size_t o = 0; c.spec.outputs.size() > 1 && o < c.spec.outputs.size();) {
      Case candidate = c;
      candidate.spec.outputs.erase(candidate.spec.outputs.begin() + static_cast<std::ptrdiff_t>(o));
      if (attempt(std::move(candidate)))
        again = true;
      else
        ++o;
    }
    // Another, earlier output.
    if (c.spec.outputs.size() == 1)
      for (const NodeSpec &n : std::vector<NodeSpec>(c.spec.nodes)) {
        if (n.outputs[0] == c.spec.outputs[0])
          continue;
        Case candidate = c;
        candidate.spec.outputs = {n.outputs[0]};
        if (attempt(std::move(candidate))) {
          again = true;
          break;
        }
      }
    // A node becomes an input: those far from the outputs, whose going takes others along, last in topological order first.
    Result<Graph> graph = resolve(c.spec);
    if (!graph)
      break;
    for (NodeId n = static_cast<NodeId>(graph->nodes.size()); n-- > 0 && budget > 0;) {
      const Value &value = graph->values[graph->nodes[n].outputs[0]];
      if (std::find(c.spec.outputs.begin(), c.spec.outputs.end(), value.name) != c.spec.outputs.end())
        continue;
      size_t at = 0;
      while (at < c.spec.nodes.size() && c.spec.nodes[at].outputs[0] != value.name)
        ++at;
      if (at == c.spec.nodes.size())
        continue;
      Case candidate = c;
      candidate.spec.outputs = {value.name};
      candidate = pruned(std::move(candidate));
      Result<Graph> cone = resolve(candidate.spec);
      if (!cone)
        continue;
      Result<std::vector<HostTensor>> data = interpret(*cone, candidate.inputs, candidate.parameters);
      if (!data)
        continue;
      candidate = c;
      candidate.spec.nodes.erase(candidate.spec.nodes.begin() + static_cast<std::ptrdiff_t>(at));
      candidate.spec.inputs.push_back(specFor(value.name, value.type));
      candidate.inputs.push_back((*data)[0]);
      again |= attempt(std::move(candidate));
    }
    // A node is left out where one of its operands has its type.
    for (NodeId n = static_cast<NodeId>(graph->nodes.size()); n-- > 0 && budget > 0;) {
      const Value &value = graph->values[graph->nodes[n].outputs[0]];
      for (const Operand &o : graph->nodes[n].inputs) {
        if (o.isLiteral() || graph->type(o.value) != value.type)
          continue;
        Case candidate = c;
        rename(candidate.spec, value.name, graph->values[o.value].name);
        if (attempt(std::move(candidate))) {
          again = true;
          break;
        }
      }
    }
  }
  return c;
}

std::string describeCase(const Case &c) {
  std::string out = printGraph(c.spec);
  auto show = [&](const std::vector<TensorSpec> &specs, const std::vector<HostTensor> &tensors) {
    for (size_t i = 0; i < specs.size(); ++i) {
      const HostTensor &t = tensors[i];
      out += specs[i].name + " =";
      char text[40];
      for (int64_t e = 0; e < std::min<int64_t>(t.type.elements(), 24); ++e) {
        if (isFloat(t.type.dtype))
          std::snprintf(text, sizeof text, " %.9g", loadElement(t.data.data(), t.type.dtype, e));
        else
          std::snprintf(text, sizeof text, " %lld",
                        static_cast<long long>(loadInteger(t.data.data(), t.type.dtype, e)));
        out += text;
      }
      out += t.type.elements() > 24 ? " ...\n" : "\n";
    }
  };
  show(c.spec.inputs, c.inputs);
  show(c.spec.parameters, c.parameters);
  return out;
}

} // namespace rl::numeric
