// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Graph back to GraphSpec: static extents, every attribute written out, nodes in topological order.
#include "frontend/json/JsonReader.h"

namespace rl {
namespace {

std::vector<Dim> dimList(const std::vector<int64_t> &values) {
  std::vector<Dim> out;
  for (int64_t v : values)
    out.push_back({v, {}});
  return out;
}
AttrValue boolean(bool b) { return Scalar{Scalar::Bool, b, 0}; }
AttrValue integer(int64_t i) { return Scalar{Scalar::Int, i, 0}; }
AttrValue number(double f) { return Scalar{Scalar::Float, 0, f}; }
AttrValue text(const char *s) { return std::string(s); }
AttrValue type(DType t) { return text(dtypeName(t)); }
AttrValue granularity(Granularity g) {
  switch (g) {
  case Granularity::Tensor: return text("tensor");
  case Granularity::Axis: return text("axis");
  case Granularity::Token: return text("token");
  case Granularity::Block: break;
  }
  return text("block");
}
std::optional<AttrValue> axisIf(Granularity g, int64_t axis) {
  return g == Granularity::Axis ? std::optional(integer(axis)) : std::nullopt;
}
std::optional<AttrValue> blockIf(Granularity g, const int64_t (&block)[2]) {
  return g == Granularity::Block ? std::optional<AttrValue>(dimList({block[0], block[1]})) : std::nullopt;
}

/// Python's `end` of a slice that takes `length` elements from `start` by `step`: the bound just beyond the last one.
int64_t sliceEnd(const Attrs &a, int64_t extent) {
  if (a.length == 0)
    return a.start;
  int64_t last = a.start + (a.length - 1) * a.step;
  if (a.step > 0)
    return last + 1;
  return last > 0 ? last - 1 : -extent - 1; // -1 would mean the last element
}

/// An attribute as the format writes it; nullopt: it is optional and not there.
std::optional<AttrValue> attribute(std::string_view name, const Graph &graph, const Node &node) {
  const Attrs &a = node.attrs;
  auto optionalScalar = [](const std::optional<Scalar> &s) { return s ? std::optional<AttrValue>(*s) : std::nullopt; };
  if (name == "approximate")
    return text(a.tanhApproximation ? "tanh" : "none");
  if (name == "dtype" || name == "out_dtype")
    return type(a.dtype);
  if (name == "saturate")
    return boolean(a.saturate);
  if (name == "min")
    return optionalScalar(a.min);
  if (name == "max")
    return optionalScalar(a.max);
  if (name == "shape")
    return dimList(a.shape);
  if (name == "dims")
    return dimList(a.dims);
  if (name == "keepdim")
    return boolean(a.keepdim);
  if (name == "dim")
    return integer(a.dim);
  if (name == "start")
    return integer(a.start);
  if (name == "end")
    return integer(sliceEnd(a, graph.type(node.inputs[0].value).shape[static_cast<size_t>(a.dim)]));
  if (name == "step")
    return integer(a.step);
  if (name == "low")
    return dimList(a.low);
  if (name == "high")
    return dimList(a.high);
  if (name == "value")
    return a.value;
  if (name == "correction")
    return number(a.correction);
  if (name == "eps")
    return number(a.eps);
  if (name == "transpose_a")
    return boolean(a.transposeA);
  if (name == "transpose_b")
    return boolean(a.transposeB);
  if (name == "causal")
    return boolean(a.causal);
  if (name == "scale")
    return a.scale ? std::optional(number(*a.scale)) : std::nullopt;
  if (name == "ignore_index")
    return integer(a.ignoreIndex);
  if (name == "granularity")
    return granularity(a.granularity);
  if (name == "granularity_a")
    return granularity(a.granularityA);
  if (name == "granularity_b")
    return granularity(a.granularityB);
  if (name == "axis")
    return axisIf(a.granularity, a.axis);
  if (name == "axis_a")
    return axisIf(a.granularityA, a.axisA);
  if (name == "axis_b")
    return axisIf(a.granularityB, a.axisB);
  if (name == "block")
    return blockIf(a.granularity, a.block);
  if (name == "block_a")
    return blockIf(a.granularityA, a.blockA);
  if (name == "block_b")
    return blockIf(a.granularityB, a.blockB);
  if (name == "scale_dtype")
    return type(a.scaleDtype);
  if (name == "scheme")
    return text(a.asymmetric ? "asymmetric" : "symmetric");
  if (name == "fast_accumulate")
    return boolean(a.fastAccumulate);
  return std::nullopt;
}

} // namespace

GraphSpec specOf(const Graph &graph) {
  GraphSpec spec;
  spec.name = graph.name;
  spec.strict = graph.strict;
  spec.precision = graph.precision;
  spec.gradient = graph.gradient;
  auto tensors = [&](const std::vector<ValueId> &ids, std::vector<TensorSpec> &out) {
    for (ValueId v : ids)
      out.push_back({graph.values[v].name, graph.values[v].type.dtype, dimList(graph.values[v].type.shape)});
  };
  tensors(graph.inputs, spec.inputs);
  tensors(graph.parameters, spec.parameters);
  for (const Node &node : graph.nodes) {
    const OpInfo &info = opInfo(node.op);
    NodeSpec &out = spec.nodes.emplace_back();
    out.op = info.name;
    for (const Operand &operand : node.inputs) {
      OperandSpec &o = out.inputs.emplace_back();
      if (operand.isLiteral())
        o.literal = operand.literal;
      else
        o.name = graph.values[operand.value].name;
    }
    for (ValueId v : node.outputs)
      out.outputs.push_back(graph.values[v].name);
    for (const AttrInfo &attr : info.attrs)
      if (auto value = attribute(attr.name, graph, node))
        out.attrs.emplace(attr.name, std::move(*value));
    if (node.pin)
      out.precision = dtypeName(*node.pin);
    out.source = node.source;
  }
  for (ValueId v : graph.outputs)
    spec.outputs.push_back(graph.values[v].name);
  return spec;
}

} // namespace rl
