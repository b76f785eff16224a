// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Graphs with symbolic dimensions: what can be said before their extents are known, and finding the extents of a call.
#include "ir/graph/Infer.h"

#include "runtime/base/JsonPointer.h"

#include <algorithm>
#include <set>
#include <unordered_map>

namespace rl {

using namespace graph;

namespace {

using SpecTensors = std::vector<TensorSpec>;

TensorType declaredType(const TensorSpec &tensor, const std::unordered_map<std::string_view, const DimSpec *> &dims) {
  TensorType type{tensor.dtype, {}};
  for (const Dim &dim : tensor.shape) {
    if (dim.symbol.empty()) {
      type.shape.push_back(dim.value);
      continue;
    }
    const DimSpec &symbol = *dims.at(dim.symbol);
    type.shape.push_back(symbol.min == symbol.max ? symbol.min : -1);
  }
  return type;
}

DimValues valuesOf(const std::vector<DimSpec> &dims, auto &&value) {
  DimValues out;
  for (const DimSpec &dim : dims)
    out[dim.name] = std::clamp<int64_t>(value(dim), dim.min, std::max(dim.min, dim.max));
  return out;
}

/// How many names are varied one by one.
constexpr size_t kMostAlone = 8;

/// Choices of the extents at which a spec is tried, the first two being the least and the greatest. The others are there
/// for graphs that hold for some extents only: that must be divisible, or equal to each other or to a fixed extent.
std::vector<DimValues> probes(const GraphSpec &spec) {
  std::vector<DimValues> out;
  auto add = [&](auto &&value) {
    DimValues values = valuesOf(spec.dims, value);
    if (std::find(out.begin(), out.end(), values) == out.end())
      out.push_back(std::move(values));
  };
  add([](const DimSpec &d) { return d.min; });
  add([](const DimSpec &d) { return d.max; });
  // Different extents for different names, so that an extent that follows one of them shows as varying.
  for (size_t i = 0; spec.dims.size() > 1 && i < std::min(spec.dims.size(), kMostAlone); ++i)
    add([&](const DimSpec &d) { return &d == &spec.dims[i] ? d.min : std::min<int64_t>(d.max, 4096); });
  // Highly composite numbers (divisible by 2^k, 3, 5, 7), equal for all names, small enough that products of three fit.
  for (int64_t n :
       {64, 4096, 5040, 40320, 720720, 8, 16, 32, 128, 256, 512, 1024, 2048, 8192, 96, 192, 384, 768, 1536, 3})
    add([&](const DimSpec &) { return n; });
  std::set<int64_t> fixed;
  for (const SpecTensors *tensors : {&spec.inputs, &spec.parameters})
    for (const TensorSpec &tensor : *tensors)
      for (const Dim &dim : tensor.shape)
        if (dim.symbol.empty() && fixed.size() < 16)
          fixed.insert(dim.value);
  for (int64_t n : fixed)
    add([&](const DimSpec &) { return n; });
  return out;
}

std::string withDims(const DimValues &dims) {
  std::string out;
  for (const auto &[name, value] : dims)
    out += (out.empty() ? "" : ", ") + name + " = " + std::to_string(value);
  return " (with " + out + ")";
}

} // namespace

Result<Signature> checkSpec(const GraphSpec &spec) {
  std::unordered_map<std::string_view, const DimSpec *> dims;
  for (const DimSpec &dim : spec.dims)
    dims.emplace(dim.name, &dim);

  std::vector<Graph> graphs;
  std::optional<Error> failure;
  // Without symbols there is one choice. With them the first few are looked at to see which extents vary; if they all
  // fail the rest are tried for one that holds.
  const std::vector<DimValues> choices = probes(spec);
  const size_t few = 3 + (spec.dims.size() > 1 ? std::min(spec.dims.size(), kMostAlone) : 0);
  for (size_t i = 0; i < choices.size() && (i < few || graphs.empty()); ++i) {
    Result<Graph> graph = resolve(spec, choices[i]);
    if (graph) {
      graphs.push_back(*std::move(graph));
    } else if (!failure) {
      failure = graph.takeError();
      if (!choices[i].empty())
        failure->message += withDims(choices[i]);
    }
  }
  if (graphs.empty())
    return std::move(*failure);

  std::set<std::string_view> bound;
  Signature out;
  for (const TensorSpec &tensor : spec.inputs)
    out.inputs.emplace_back(tensor.name, declaredType(tensor, dims));
  for (const TensorSpec &tensor : spec.parameters)
    out.parameters.emplace_back(tensor.name, declaredType(tensor, dims));
  for (const SpecTensors *tensors : {&spec.inputs, &spec.parameters})
    for (const TensorSpec &tensor : *tensors)
      for (const Dim &dim : tensor.shape)
        bound.insert(dim.symbol);
  for (const DimSpec &dim : spec.dims)
    if (!bound.count(dim.name) && dim.min != dim.max)
      return invalid("/dims/" + escapePointer(dim.name), "no shape of an input or parameter mentions the dimension " +
                                                             dim.name + ": its extent is never known");

  // One choice alone does not show which extents vary.
  const bool unsure = graphs.size() == 1 &&
                      std::any_of(spec.dims.begin(), spec.dims.end(), [](const DimSpec &d) { return d.min != d.max; });
  for (size_t k = 0; k < spec.outputs.size(); ++k) {
    TensorType type = graphs[0].type(graphs[0].outputs[k]);
    for (size_t d = 0; d < type.shape.size(); ++d)
      for (const Graph &graph : graphs)
        if (unsure || graph.type(graph.outputs[k]).shape[d] != type.shape[d])
          type.shape[d] = -1;
    const Value &value = graphs[0].values[graphs[0].outputs[k]];
    if (value.kind == Value::Input)
      type = out.inputs[value.index].second;
    else if (value.kind == Value::Parameter)
      type = out.parameters[value.index].second;
    out.outputs.emplace_back(spec.outputs[k], std::move(type));
  }
  return out;
}

Result<DimValues> bindDims(const GraphSpec &spec, const std::vector<std::vector<int64_t>> &inputShapes,
                           const std::vector<std::vector<int64_t>> &parameterShapes) {
  std::unordered_map<std::string_view, const DimSpec *> declared;
  for (const DimSpec &dim : spec.dims)
    declared.emplace(dim.name, &dim);

  DimValues out;
  std::map<std::string, std::string> boundBy; // the tensor that gave a symbol its value
  auto bind = [&](const SpecTensors &tensors, const std::vector<std::vector<int64_t>> &shapes,
                  const char *noun) -> Status {
    if (shapes.size() != tensors.size())
      return usageError("the graph has " + std::to_string(tensors.size()) + " " + noun + "s, and " +
                        std::to_string(shapes.size()) + " shapes are given");
    for (size_t i = 0; i < tensors.size(); ++i) {
      const TensorSpec &tensor = tensors[i];
      const std::vector<int64_t> &shape = shapes[i];
      auto fail = [&](const std::string &message) {
        return invalid("/" + escapePointer(tensor.name), std::string(noun) + " " + tensor.name + ": " + message);
      };
      if (shape.size() != tensor.shape.size())
        return fail("shape " + rl::str(shape) + " has rank " + std::to_string(shape.size()) +
                    ", and the graph wants rank " + std::to_string(tensor.shape.size()));
      for (size_t d = 0; d < shape.size(); ++d) {
        const Dim &dim = tensor.shape[d];
        const std::string extent =
            "dimension " + std::to_string(d) + " of " + rl::str(shape) + " is " + std::to_string(shape[d]);
        if (dim.symbol.empty()) {
          if (shape[d] != dim.value)
            return fail(extent + ", and the graph wants " + std::to_string(dim.value));
          continue;
        }
        auto symbol = declared.find(dim.symbol);
        if (symbol == declared.end())
          return fail("the dimension '" + dim.symbol + "' is not declared in 'dims'");
        const DimSpec &range = *symbol->second;
        if (shape[d] < range.min || shape[d] > range.max)
          return fail(extent + ", out of the range " + std::to_string(range.min) + " to " + std::to_string(range.max) +
                      " of " + dim.symbol);
        auto [it, fresh] = out.emplace(dim.symbol, shape[d]);
        if (fresh)
          boundBy[dim.symbol] = tensor.name;
        else if (it->second != shape[d])
          return fail(extent + ", and " + boundBy[dim.symbol] + " has " + dim.symbol + " = " +
                      std::to_string(it->second));
      }
    }
    return {};
  };
  RL_TRY(bind(spec.inputs, inputShapes, "input"));
  RL_TRY(bind(spec.parameters, parameterShapes, "parameter"));
  for (const DimSpec &dim : spec.dims) {
    if (out.count(dim.name))
      continue;
    if (dim.min != dim.max) // with one extent in its range, that is it
      return invalid("/dims/" + escapePointer(dim.name), "no shape of an input or parameter mentions the dimension " +
                                                             dim.name + ": its extent is not known");
    out[dim.name] = dim.min;
  }
  return out;
}

} // namespace rl
