// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "frontend/calibrate/Delayed.h"
#include "frontend/calibrate/Quality.h"
#include "frontend/calibrate/Sites.h"

#include <algorithm>
#include <cstring>
#include <set>

namespace rl::calibrate {
namespace {

struct Delayed {
  size_t node = 0;
  std::string tensor;
  DType dtype = DType::F8E4M3;
  int64_t rank = 0;
  float initial = 1;
};

std::vector<Delayed> delayedNodes(const GraphSpec &spec, const Graph &graph) {
  const std::vector<char> constant = constants(graph);
  std::vector<Delayed> out;
  for (const Node &node : graph.nodes) {
    const Attrs &a = node.attrs;
    if ((node.op != OpKind::Quantize && node.op != OpKind::FakeQuantize) || a.granularity != Granularity::Tensor ||
        a.asymmetric || a.scaleDtype != DType::F32 || node.pin)
      continue;
    const NodeSpec &from = spec.nodes[node.specIndex];
    if (from.inputs[0].literal || (from.inputs.size() > 1 && !from.inputs[1].literal))
      continue;
    const ValueId x = node.inputs[0].value;
    if (constant[x] || graph.type(x).elements() == 0)
      continue;
    const float initial = from.inputs.size() > 1 ? static_cast<float>(from.inputs[1].literal->asDouble()) : 1.0f;
    out.push_back({node.specIndex, from.inputs[0].name, a.dtype, graph.type(x).rank(), initial});
  }
  std::sort(out.begin(), out.end(), [](const Delayed &a, const Delayed &b) { return a.node < b.node; });
  return out;
}

std::vector<Dim> dimsOf(const std::vector<int64_t> &values) {
  std::vector<Dim> out;
  for (int64_t v : values)
    out.push_back({v, {}});
  return out;
}
AttrValue integer(int64_t i) { return Scalar{Scalar::Int, i, 0}; }

/// Adds nodes to a spec; each is known by its result's name.
class Writer {
public:
  using Attributes = std::map<std::string, AttrValue>;

  explicit Writer(GraphSpec &spec) : spec(spec) {
    for (const auto *list : {&spec.inputs, &spec.parameters})
      for (const TensorSpec &t : *list)
        names.insert(t.name);
    for (const NodeSpec &n : spec.nodes)
      names.insert(n.outputs.begin(), n.outputs.end());
    for (int i = 2; isTaken(prefix); ++i)
      prefix = "delayed" + std::to_string(i);
  }

  static OperandSpec number(double f) { return {{}, Scalar{Scalar::Float, 0, f}}; }
  static OperandSpec whole(int64_t i) { return {{}, Scalar{Scalar::Int, i, 0}}; }

  OperandSpec node(const char *op, std::vector<OperandSpec> inputs, Attributes attrs = {}, std::string name = {}) {
    NodeSpec &n = spec.nodes.emplace_back();
    n.op = op;
    n.inputs = std::move(inputs);
    n.outputs = {name.empty() ? prefix + "." + std::to_string(count++) : std::move(name)};
    n.attrs = std::move(attrs);
    return {n.outputs[0], {}};
  }
  OperandSpec reshape(OperandSpec x, const std::vector<int64_t> &shape) {
    return node("reshape", {std::move(x)}, {{"shape", dimsOf(shape)}});
  }
  /// Over all elements, rows first: so that the kernel that quantises rows can reduce them.
  OperandSpec reduce(const char *op, OperandSpec x, int64_t rank) {
    if (rank > 1)
      x = node(op, {std::move(x)}, {{"dims", dimsOf({-1})}});
    return node(op, {std::move(x)});
  }
  /// Scalars as one vector.
  OperandSpec vector(const std::vector<OperandSpec> &scalars) {
    std::vector<OperandSpec> parts;
    for (const OperandSpec &s : scalars)
      parts.push_back(reshape(s, {1}));
    return parts.size() == 1 ? parts[0] : node("cat", parts, {{"dim", integer(0)}});
  }
  std::string stateName(const char *what) const { return prefix + "." + what; }

private:
  bool isTaken(const std::string &p) const {
    return std::any_of(names.begin(), names.end(), [&](const std::string &n) { return n.starts_with(p + "."); });
  }
  GraphSpec &spec;
  std::set<std::string> names;
  std::string prefix = "delayed";
  int count = 0;
};

template <class T> std::vector<std::byte> bytesOf(const std::vector<T> &values) {
  std::vector<std::byte> out(values.size() * sizeof(T));
  std::memcpy(out.data(), values.data(), out.size());
  return out;
}

} // namespace

Result<DelayedGraph> delayScales(const GraphSpec &given, const DimValues &dims, int64_t every) {
  RL_ASSIGN(Graph graph, resolve(given, dims));
  const std::vector<Delayed> nodes = delayedNodes(given, graph);
  if (nodes.empty())
    return unsupported("/nodes",
                       "delayed scaling: no symmetric quantize or fake_quantize node of granularity \"tensor\" has "
                       "an f32 scale that could be delayed");
  DelayedGraph out;
  out.spec = given;
  Writer w(out.spec);
  const auto count = static_cast<int64_t>(nodes.size());
  std::vector<float> scales;
  for (const Delayed &d : nodes)
    scales.push_back(d.initial);
  auto state = [&](const char *what, const TensorType &type, std::vector<std::byte> initial) -> OperandSpec {
    const std::string name = w.stateName(what);
    out.spec.parameters.push_back({name, type.dtype, dimsOf(type.shape)});
    out.state.push_back({name, name + ".next", type, std::move(initial)});
    return {name, {}};
  };
  const OperandSpec history = state("history", {DType::F32, {count, kHistory}},
                                    bytesOf(std::vector<float>(nodes.size() * static_cast<size_t>(kHistory))));
  const OperandSpec scale = state("scale", {DType::F32, {count}}, bytesOf(scales));
  const OperandSpec overflows = state("overflows", {DType::I64, {count}}, bytesOf(std::vector<int64_t>(nodes.size())));
  const OperandSpec runs = state("runs", {DType::I64, {}}, bytesOf(std::vector<int64_t>(1)));

  std::vector<OperandSpec> amaxes, clips, largest;
  for (size_t i = 0; i < nodes.size(); ++i) {
    const Delayed &d = nodes[i];
    const auto at = static_cast<int64_t>(i);
    const OperandSpec own = w.reshape(
        w.node("slice", {scale}, {{"dim", integer(0)}, {"start", integer(at)}, {"end", integer(at + 1)}}), {});
    NodeSpec &node = out.spec.nodes[d.node];
    node.inputs.resize(1);
    node.inputs.push_back(own);
    out.nodes.push_back(node.outputs[0]);
    const OperandSpec magnitude =
        w.node("abs", {w.node("cast", {OperandSpec{d.tensor, {}}}, {{"dtype", std::string("f32")}})});
    amaxes.push_back(w.reduce("amax", magnitude, d.rank));
    const OperandSpec limit = w.node("mul", {own, Writer::number(static_cast<double>(clipsFrom(d.dtype)))});
    const OperandSpec beyond = w.node("ge", {magnitude, limit});
    // That the result is finite where its magnitude is beyond goes without saying; said, it puts the result on the way to a
    // reduction, so that one kernel writes it and reduces, and the tensor is read once.
    const OperandSpec kept =
        w.node("isfinite", {w.node("cast", {OperandSpec{out.nodes.back(), {}}}, {{"dtype", std::string("f32")}})});
    const OperandSpec clipped = w.node("logical_and", {beyond, kept});
    clips.push_back(w.reduce("sum", clipped, d.rank));
    largest.push_back(w.node("full", {},
                             {{"shape", dimsOf({})},
                              {"value", Scalar{Scalar::Float, 0, static_cast<double>(largestOf(d.dtype))}},
                              {"dtype", std::string("f32")}}));
  }
  const OperandSpec amax = w.vector(amaxes);
  const OperandSpec known = w.node("where", {w.node("isfinite", {amax}), amax, Writer::number(0)});
  const OperandSpec slot = w.node("remainder", {runs, Writer::whole(kHistory)});
  const OperandSpec slots =
      w.node("iota", {}, {{"shape", dimsOf({1, kHistory})}, {"dim", integer(1)}, {"dtype", std::string("i64")}});
  const OperandSpec newHistory =
      w.node("where", {w.node("eq", {slots, slot}), w.reshape(known, {count, 1}), history}, {}, out.state[0].next);
  const OperandSpec range = w.node("amax", {newHistory}, {{"dims", dimsOf({1})}});
  const OperandSpec fresh = w.node("maximum", {w.node("div", {range, w.vector(largest)}), Writer::number(0x1p-126)});
  const OperandSpec newRuns = w.node("add", {runs, Writer::whole(1)}, {}, out.state[3].next);
  const OperandSpec due = w.node("eq", {w.node("remainder", {newRuns, Writer::whole(every)}), Writer::whole(0)});
  const OperandSpec changes = w.node("logical_and", {w.node("gt", {range, Writer::number(0)}), due});
  w.node("where", {changes, fresh, scale}, {}, out.state[1].next);
  w.node("add", {overflows, w.vector(clips)}, {}, out.state[2].next);
  for (const StateTensor &s : out.state)
    out.spec.outputs.push_back(s.next);
  return out;
}

} // namespace rl::calibrate
