// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "frontend/calibrate/Sites.h"

#include <algorithm>

namespace rl::calibrate {
namespace {

/// The scaled_matmul dimension that survives the product: M of its first operand, N of its second.
int64_t outerDim(const Graph &graph, const Node &product, size_t operand) {
  const int64_t rank = graph.type(product.inputs[operand].value).rank();
  return operand == 1 && !product.attrs.transposeB ? rank - 1 : rank - 2;
}

/// The extents of each site's tensor, -1 where a call decides them.
std::vector<std::vector<int64_t>> fixedExtents(const GraphSpec &spec, const std::vector<Site> &sites) {
  std::vector<std::string> tensors;
  for (const Site &site : sites)
    if (std::find(tensors.begin(), tensors.end(), site.tensor) == tensors.end())
      tensors.push_back(site.tensor);
  std::vector<std::vector<int64_t>> out;
  const Result<Signature> signature = checkSpec(measuring(spec, tensors));
  for (const Site &site : sites)
    for (size_t k = 0; signature && k < tensors.size(); ++k)
      if (tensors[k] == site.tensor)
        out.push_back(signature->outputs[k].second.shape);
  return out;
}

std::vector<int64_t> scaleShapeOf(const std::vector<int64_t> &shape, const Grouping &g) {
  std::vector<int64_t> out;
  if (g.granularity == Granularity::Axis)
    out = {shape[static_cast<size_t>(g.axis)]};
  if (g.granularity == Granularity::Token)
    out.assign(shape.begin(), shape.end() - 1);
  if (g.granularity == Granularity::Block) {
    out = shape;
    for (size_t back = 1; back <= std::min<size_t>(shape.size(), 2); ++back) {
      int64_t &extent = out[shape.size() - back];
      const int64_t size = g.block[2 - back];
      if (extent >= 0)
        extent = extent / size + (extent % size != 0);
    }
  }
  return out;
}

bool isOpen(const std::vector<int64_t> &shape) { return std::find(shape.begin(), shape.end(), -1) != shape.end(); }

/// Why no scale can be given to the node, from the extents that are fixed.
std::string whyDynamic(const Site &site) {
  if (site.asymmetric)
    return "the asymmetric scheme takes no scale";
  if (!site.constant && site.grouping.granularity == Granularity::Token)
    return "each row's scale is its own";
  if (!site.constant && site.grouping.granularity == Granularity::Block)
    return "each block's scale is its own";
  if (isOpen(site.scaleShape))
    return "the scale has a symbolic extent";
  return {};
}

/// Groupings of an activation or a weight that are finer than the tensor and that all users of the quantised tensor take.
/// `products`: the dimension that survives each scaled_matmul.
void addFiner(Site &site, const std::vector<int64_t> &products) {
  const auto rank = static_cast<int64_t>(site.shape.size());
  if (rank < 2 || site.asymmetric || site.grouping.granularity != Granularity::Tensor)
    return;
  bool axis = site.shape[static_cast<size_t>(site.channelDim)] > 1, token = true;
  for (int64_t outer : products) {
    axis &= outer == site.channelDim;
    token &= outer == rank - 2;
  }
  if (axis)
    site.finer.push_back({Granularity::Axis, site.channelDim});
  if (token)
    site.finer.push_back({Granularity::Token});
}

/// Finds who takes q and its scale, and whether another granularity would come out anywhere else.
void findUses(Site &site, const Graph &graph, const Node &node) {
  if (node.op != OpKind::Quantize)
    return;
  const ValueId q = node.outputs[0], scale = node.outputs[1];
  auto is = [](const Node &user, size_t k, ValueId v) { return k < user.inputs.size() && user.inputs[k].value == v; };
  for (ValueId v : graph.outputs)
    if (v == q || v == scale)
      site.keepsGrouping = graph.values[v].name + " is an output of the graph";
  for (NodeId n = 0; n < graph.nodes.size(); ++n) {
    const Node &user = graph.nodes[n];
    for (size_t k = 0; k < user.inputs.size(); ++k) {
      if (!is(user, k, q) && !is(user, k, scale))
        continue;
      const bool dequantizes = user.op == OpKind::Dequantize && is(user, 0, q) && is(user, 1, scale);
      const bool multiplies = user.op == OpKind::ScaledMatmul && is(user, k % 2, q) && is(user, k % 2 + 2, scale);
      if (!dequantizes && !multiplies)
        site.keepsGrouping = graph.values[user.inputs[k].value].name + " is used by " + graph.describe(n);
      else if (is(user, k, q))
        site.uses.push_back({user.specIndex, static_cast<int>(k)});
    }
  }
}

const char *nameOf(Granularity g) {
  const char *const names[] = {"tensor", "axis", "token", "block"};
  return names[static_cast<size_t>(g)];
}

} // namespace

std::vector<char> constants(const Graph &graph) {
  std::vector<char> constant(graph.values.size());
  for (ValueId v : graph.parameters)
    constant[v] = true;
  for (const Node &node : graph.nodes) {
    const bool all = std::all_of(node.inputs.begin(), node.inputs.end(),
                                 [&](const Operand &o) { return o.isLiteral() || constant[o.value]; });
    for (ValueId v : node.outputs)
      constant[v] = all;
  }
  return constant;
}

std::string str(const Grouping &g) {
  const std::string name = nameOf(g.granularity);
  if (g.granularity == Granularity::Axis)
    return name + " " + std::to_string(g.axis);
  return g.granularity == Granularity::Block ? name + " " + rl::str(std::vector<int64_t>{g.block[0], g.block[1]})
                                             : name;
}

std::vector<Site> findSites(const GraphSpec &spec, const Graph &graph) {
  const std::vector<char> constant = constants(graph);
  std::vector<Site> sites;
  std::vector<std::vector<int64_t>> products; // of each site: the dimension that survives each scaled_matmul
  for (const Node &node : graph.nodes) {
    if ((node.op != OpKind::Quantize && node.op != OpKind::FakeQuantize) || node.inputs.size() != 1)
      continue;
    const NodeSpec &from = spec.nodes[node.specIndex];
    if (from.inputs[0].literal)
      continue;
    const ValueId x = node.inputs[0].value;
    Site &site = sites.emplace_back();
    site.node = node.specIndex;
    site.tensor = from.inputs[0].name;
    site.output = from.outputs[0];
    site.op = node.op;
    site.from = graph.type(x).dtype;
    site.dtype = node.attrs.dtype;
    site.scaleDtype = node.attrs.scaleDtype;
    site.grouping = {node.attrs.granularity, node.attrs.axis, {node.attrs.block[0], node.attrs.block[1]}};
    site.asymmetric = node.attrs.asymmetric;
    site.constant = constant[x];
    const int64_t rank = graph.type(x).rank();
    site.channelDim = rank == 0 ? -1 : site.constant && rank > 1 ? 0 : rank - 1;
    findUses(site, graph, node);
    auto &outer = products.emplace_back();
    if (node.op == OpKind::Quantize)
      for (const Node &user : graph.nodes)
        for (size_t k = 0; user.op == OpKind::ScaledMatmul && k < 2; ++k)
          if (user.inputs[k].value == node.outputs[0]) {
            outer.push_back(outerDim(graph, user, k));
            if (k == 1)
              site.channelDim = outer.back();
          }
    if (site.grouping.granularity == Granularity::Axis)
      site.channelDim = site.grouping.axis;
  }
  const std::vector<std::vector<int64_t>> extents = fixedExtents(spec, sites);
  for (size_t i = 0; i < extents.size(); ++i) {
    sites[i].shape = extents[i];
    sites[i] = regrouped(sites[i], sites[i].grouping);
    addFiner(sites[i], products[i]);
  }
  std::sort(sites.begin(), sites.end(), [](const Site &a, const Site &b) { return a.node < b.node; });
  return sites;
}

Site regrouped(const Site &site, const Grouping &grouping) {
  Site out = site;
  out.grouping = grouping;
  out.scaleShape = scaleShapeOf(site.shape, grouping);
  out.staysDynamic = whyDynamic(out);
  return out;
}

void writeGrouping(GraphSpec &spec, const Site &site) {
  auto write = [&](size_t node, const std::string &suffix) {
    auto &attrs = spec.nodes[node].attrs;
    attrs["granularity" + suffix] = std::string(nameOf(site.grouping.granularity));
    if (site.grouping.granularity == Granularity::Axis)
      attrs["axis" + suffix] = Scalar{Scalar::Int, site.grouping.axis, 0};
  };
  write(site.node, "");
  for (const Use &use : site.uses)
    write(use.node, spec.nodes[use.node].op == "dequantize" ? "" : use.operand == 0 ? "_a" : "_b");
}

GraphSpec measuring(const GraphSpec &spec, const std::vector<std::string> &tensors) {
  GraphSpec out = spec;
  out.outputs = tensors;
  out.gradient.reset();
  out.precision.observed.clear(); // of the outputs that there are no more
  return out;
}

std::string writeScale(GraphSpec &spec, const Site &site, const std::vector<float> &scale) {
  NodeSpec &node = spec.nodes[site.node];
  if (site.scaleShape.empty() && site.scaleDtype == DType::F32) {
    node.inputs.push_back({{}, Scalar{Scalar::Float, 0, static_cast<double>(scale[0])}});
    return {};
  }
  auto taken = [&](const std::string &name) {
    auto among = [&](const std::vector<TensorSpec> &list) {
      return std::any_of(list.begin(), list.end(), [&](const TensorSpec &t) { return t.name == name; });
    };
    return among(spec.inputs) || among(spec.parameters) ||
           std::any_of(spec.nodes.begin(), spec.nodes.end(), [&](const NodeSpec &n) {
             return std::find(n.outputs.begin(), n.outputs.end(), name) != n.outputs.end();
           });
  };
  std::string name = site.output + ".scale";
  for (int i = 2; taken(name); ++i)
    name = site.output + ".scale" + std::to_string(i);
  TensorSpec &parameter = spec.parameters.emplace_back();
  parameter.name = name;
  parameter.dtype = site.scaleDtype;
  for (int64_t extent : site.scaleShape)
    parameter.shape.push_back({extent, {}});
  node.inputs.push_back({name, {}});
  return name;
}

} // namespace rl::calibrate
