// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// GraphSpec to Graph: names, order, types, and the requests that go with a graph. Time and memory are n log n in the number
// of nodes and operands.
#include "ir/graph/Infer.h"

#include "runtime/base/JsonPointer.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <queue>
#include <unordered_map>
#include <unordered_set>

namespace rl {

using namespace graph;

namespace {

std::string described(std::string_view output, size_t index, std::string_view op, std::string_view source) {
  std::string out = "node " + (output.empty() ? std::to_string(index) : std::string(output)) + " (" + std::string(op);
  if (!source.empty())
    out += ", " + std::string(source);
  return out + ")";
}

bool isIdentifier(std::string_view text) {
  auto letter = [](char c) { return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_'; };
  if (text.empty() || !letter(text.front()))
    return false;
  return std::all_of(text.begin(), text.end(), [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

/// Types that a node may be pinned to: those that a value can be stored and computed in.
bool canPin(DType type) { return isArithmeticFloat(type) || isQuantised(type); }
constexpr const char *kPinTypes = "f32, f16, bf16, f8e4m3, f8e5m2 or i8";

class Resolver {
public:
  Resolver(const GraphSpec &spec, const DimValues &dims) : spec(spec), dims(dims) {}

  Result<Graph> run() {
    RL_TRY(checkHeader());
    RL_TRY(declareTensors(spec.inputs, Value::Input, "/inputs/"));
    RL_TRY(declareTensors(spec.parameters, Value::Parameter, "/parameters/"));
    RL_TRY(declareNodes());
    RL_TRY(connect());
    RL_TRY(sort());
    RL_TRY(typeNodes());
    RL_TRY(resolveOutputs());
    RL_TRY(checkPrecision());
    RL_TRY(checkGradient());
    graph.name = spec.name;
    graph.strict = spec.strict;
    graph.precision = spec.precision;
    graph.gradient = spec.gradient;
    return std::move(graph);
  }

private:
  /// What a name stands for. `value` is set once its type is known.
  struct Definition {
    std::string_view name;
    Value::Kind kind;
    uint32_t spec;  ///< place among the inputs, the parameters or the nodes
    uint32_t index; ///< among the node's outputs
    ValueId value = kNone;
  };

  static std::string nodePointer(size_t node) { return "/nodes/" + std::to_string(node); }

  Error atNode(size_t node, const std::string &place, const std::string &message) const {
    const NodeSpec &n = spec.nodes[node];
    std::string_view first = n.outputs.empty() ? std::string_view() : std::string_view(n.outputs.front());
    return invalid(nodePointer(node) + place, described(first, node, n.op, n.source) + ": " + message);
  }

  Status checkHeader() {
    if (!isIdentifier(spec.name))
      return invalid("/name",
                     "the graph's name must be an identifier (a letter or _, then letters, digits and _), not '" +
                         spec.name + "'");
    std::unordered_set<std::string_view> seen;
    for (const DimSpec &dim : spec.dims) {
      const std::string pointer = "/dims/" + escapePointer(dim.name);
      if (dim.name.empty())
        return invalid("/dims", "a dimension's name must not be empty");
      if (!seen.insert(dim.name).second)
        return invalid(pointer, "dimension " + dim.name + " is declared twice");
      if (dim.min < 0)
        return invalid(pointer + "/min",
                       "dimension " + dim.name + ": 'min' " + std::to_string(dim.min) + " is negative");
      if (dim.max < dim.min)
        return invalid(pointer + "/max", "dimension " + dim.name + ": 'max' " + std::to_string(dim.max) +
                                             " is less than 'min' " + std::to_string(dim.min));
      auto value = dims.find(dim.name);
      if (value == dims.end())
        return invalid(pointer, "dimension " + dim.name + " has no value");
      if (value->second < dim.min || value->second > dim.max)
        return invalid(pointer, "dimension " + dim.name + " is " + std::to_string(value->second) +
                                    ", out of its range " + std::to_string(dim.min) + " to " + std::to_string(dim.max));
    }
    for (const auto &[name, value] : dims)
      if (!seen.count(name))
        return invalid("/dims/" + escapePointer(name), "the graph has no dimension " + name);
    return {};
  }

  Status define(const std::string &name, Value::Kind kind, size_t place, size_t index,
                const std::function<Error(std::string)> &error) {
    if (name.empty())
      return error("a tensor's name must not be empty");
    auto [it, fresh] = names.emplace(name, definitions.size());
    if (!fresh) {
      static constexpr const char *kinds[] = {"an input", "a parameter", "a node's output"};
      return error("the name " + name + " is defined twice; it is also " + kinds[definitions[it->second].kind]);
    }
    definitions.push_back({name, kind, static_cast<uint32_t>(place), static_cast<uint32_t>(index)});
    return {};
  }

  Status declareTensors(const std::vector<TensorSpec> &tensors, Value::Kind kind, const std::string &prefix) {
    for (size_t i = 0; i < tensors.size(); ++i) {
      const TensorSpec &tensor = tensors[i];
      const std::string pointer = prefix + escapePointer(tensor.name);
      RL_TRY(
          define(tensor.name, kind, i, 0, [&](std::string message) { return invalid(pointer, std::move(message)); }));
      const std::string at = pointer + "/shape",
                        noun = (kind == Value::Input ? "input " : "parameter ") + tensor.name + ": ";
      TensorType type{tensor.dtype, {}};
      for (size_t d = 0; d < tensor.shape.size(); ++d) {
        const Dim &dim = tensor.shape[d];
        if (dim.symbol.empty()) {
          type.shape.push_back(dim.value);
          if (dim.value < 0)
            return invalid(at + "/" + std::to_string(d), noun + "extent " + std::to_string(dim.value) + " is negative");
          continue;
        }
        auto value = dims.find(dim.symbol);
        if (value == dims.end())
          return invalid(at + "/" + std::to_string(d),
                         noun + "the dimension '" + dim.symbol + "' is not declared in 'dims'");
        type.shape.push_back(value->second);
      }
      if (std::optional<std::string> problem = tensorProblem(type))
        return invalid(at, noun + *problem);
      definitions.back().value = static_cast<ValueId>(graph.values.size());
      (kind == Value::Input ? graph.inputs : graph.parameters).push_back(definitions.back().value);
      graph.values.push_back({kind, tensor.name, std::move(type), kNone, static_cast<uint32_t>(i)});
    }
    return {};
  }

  Status declareNodes() {
    ops.reserve(spec.nodes.size());
    firstOutput.reserve(spec.nodes.size());
    for (size_t n = 0; n < spec.nodes.size(); ++n) {
      const NodeSpec &node = spec.nodes[n];
      const OpInfo *info = findOp(node.op);
      if (!info)
        return atNode(n, "/op", "unknown op '" + node.op + "'");
      ops.push_back(info->kind);
      if (node.outputs.empty())
        return atNode(n, "/outputs", "a node needs at least one output");
      firstOutput.push_back(static_cast<uint32_t>(definitions.size()));
      for (size_t k = 0; k < node.outputs.size(); ++k)
        RL_TRY(define(node.outputs[k], Value::Result, n, k,
                      [&](std::string message) { return atNode(n, "/outputs/" + std::to_string(k), message); }));
    }
    return {};
  }

  /// Operands to definitions, all nodes' in one array.
  Status connect() {
    operandStart.reserve(spec.nodes.size() + 1);
    for (size_t n = 0; n < spec.nodes.size(); ++n) {
      operandStart.push_back(operands.size());
      for (size_t k = 0; k < spec.nodes[n].inputs.size(); ++k) {
        const OperandSpec &operand = spec.nodes[n].inputs[k];
        if (operand.literal) {
          operands.push_back(kNone);
          continue;
        }
        const std::string place = "/inputs/" + std::to_string(k);
        if (operand.name.empty())
          return atNode(n, place, "a tensor's name must not be empty");
        auto it = names.find(operand.name);
        if (it == names.end())
          return atNode(n, place, operand.name + " is not defined");
        operands.push_back(it->second);
      }
    }
    operandStart.push_back(operands.size());
    return {};
  }

  /// Kahn's algorithm, the earliest node of the file first: a file that is in order stays as it is.
  Status sort() {
    const size_t count = spec.nodes.size();
    std::vector<uint32_t> waits(count, 0), consumerStart(count + 1, 0);
    auto producer = [&](uint32_t definition) {
      return definition != kNone && definitions[definition].kind == Value::Result ? definitions[definition].spec
                                                                                  : kNone;
    };
    for (size_t n = 0; n < count; ++n)
      for (size_t k = operandStart[n]; k < operandStart[n + 1]; ++k)
        if (uint32_t p = producer(operands[k]); p != kNone)
          ++waits[n], ++consumerStart[p + 1];
    for (size_t n = 0; n < count; ++n)
      consumerStart[n + 1] += consumerStart[n];
    std::vector<uint32_t> consumers(consumerStart[count]), next(consumerStart.begin(), consumerStart.end() - 1);
    for (size_t n = 0; n < count; ++n)
      for (size_t k = operandStart[n]; k < operandStart[n + 1]; ++k)
        if (uint32_t p = producer(operands[k]); p != kNone)
          consumers[next[p]++] = static_cast<uint32_t>(n);

    std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
    for (size_t n = 0; n < count; ++n)
      if (waits[n] == 0)
        ready.push(static_cast<uint32_t>(n));
    order.reserve(count);
    while (!ready.empty()) {
      const uint32_t n = ready.top();
      ready.pop();
      order.push_back(n);
      for (size_t c = consumerStart[n]; c < consumerStart[n + 1]; ++c)
        if (--waits[consumers[c]] == 0)
          ready.push(consumers[c]);
    }
    if (order.size() == count)
      return {};
    return cycle(waits);
  }

  /// Some nodes wait for ever. Each waits for another one of them, so going back from any of them meets a cycle.
  Error cycle(const std::vector<uint32_t> &waits) const {
    uint32_t node = 0;
    while (waits[node] == 0)
      ++node;
    std::vector<uint32_t> step(spec.nodes.size(), kNone); // where on the path a node is
    std::vector<uint32_t> path, tensors;                  // tensors[i]: the output of path[i + 1] that path[i] reads
    while (step[node] == kNone) {
      step[node] = static_cast<uint32_t>(path.size());
      path.push_back(node);
      for (size_t k = operandStart[node];; ++k) {
        if (operands[k] == kNone || definitions[operands[k]].kind != Value::Result ||
            waits[definitions[operands[k]].spec] == 0)
          continue;
        tensors.push_back(operands[k]);
        node = definitions[operands[k]].spec;
        break;
      }
    }
    // In the direction of the data, from the node that comes first in the file.
    std::vector<uint32_t> ring(tensors.begin() + step[node], tensors.end());
    std::reverse(ring.begin(), ring.end());
    std::rotate(ring.begin(),
                std::min_element(ring.begin(), ring.end(),
                                 [&](uint32_t a, uint32_t b) { return definitions[a].spec < definitions[b].spec; }),
                ring.end());
    constexpr size_t kMostNames = 1000; // a message is read by people
    std::string message = "cycle through ";
    for (size_t i = 0; i < std::min(ring.size(), kMostNames); ++i)
      message += (i ? ", " : "") + std::string(definitions[ring[i]].name);
    if (ring.size() > kMostNames)
      message += " and " + std::to_string(ring.size() - kMostNames) + " more";
    return invalid(nodePointer(definitions[ring.front()].spec), message);
  }

  /// A literal operand of an op that takes tensors only becomes a `full` in front of the node.
  ValueId materialise(size_t n, size_t k, const Scalar &literal, DType type) {
    std::string name = spec.nodes[n].outputs.front() + ".operand" + std::to_string(k);
    while (names.count(name))
      name += "_";
    Node node{OpKind::Full, {}, {}, {}, {}, spec.nodes[n].source, static_cast<uint32_t>(n)};
    node.attrs.dtype = type;
    node.attrs.value = scalarIn(literal, type).value;
    const ValueId value = static_cast<ValueId>(graph.values.size());
    node.outputs = {value};
    graph.values.push_back({Value::Result, std::move(name), {type, {}}, static_cast<NodeId>(graph.nodes.size()), 0});
    graph.nodes.push_back(std::move(node));
    return value;
  }

  Status typeNodes() {
    graph.nodes.reserve(spec.nodes.size());
    graph.values.reserve(definitions.size());
    Operands types;
    for (uint32_t n : order) {
      const NodeSpec &from = spec.nodes[n];
      Node node{ops[n], {}, {}, {}, {}, from.source, n};
      types.clear();
      node.inputs.reserve(from.inputs.size());
      for (size_t k = 0; k < from.inputs.size(); ++k) {
        if (from.inputs[k].literal) {
          types.push_back({{}, from.inputs[k].literal});
          node.inputs.push_back({kNone, *from.inputs[k].literal});
        } else {
          const ValueId value = definitions[operands[operandStart[n] + k]].value;
          types.push_back({graph.values[value].type, std::nullopt});
          node.inputs.push_back({value, {}});
        }
      }
      Result<Inferred> inferred = inferNode(node.op, types, from.outputs.size(), from.attrs, dims);
      if (!inferred)
        return atNode(n, inferred.error().pointer, inferred.error().message);
      node.attrs = std::move(inferred->attrs);
      if (!from.precision.empty()) {
        node.pin = parseDType(from.precision);
        if (!node.pin || !canPin(*node.pin))
          return atNode(n, "/precision",
                        "'precision' must be " + std::string(kPinTypes) + ", not '" + from.precision + "'");
      }
      if (!isElementwise(node.op))
        for (size_t k = 0; k < node.inputs.size(); ++k)
          if (node.inputs[k].isLiteral())
            node.inputs[k] = {
                materialise(n, k, node.inputs[k].literal, literalType(node.op, k, node.inputs[k].literal)), {}};
      for (size_t k = 0; k < from.outputs.size(); ++k) {
        const ValueId value = static_cast<ValueId>(graph.values.size());
        definitions[firstOutput[n] + k].value = value;
        node.outputs.push_back(value);
        graph.values.push_back({Value::Result, from.outputs[k], std::move(inferred->results[k]),
                                static_cast<NodeId>(graph.nodes.size()), static_cast<uint32_t>(k)});
      }
      graph.nodes.push_back(std::move(node));
    }
    return {};
  }

  ValueId find(const std::string &name) const {
    auto it = names.find(name);
    return it == names.end() ? kNone : definitions[it->second].value;
  }

  Status resolveOutputs() {
    if (spec.outputs.empty())
      return invalid("/outputs", "a graph needs at least one output");
    for (size_t k = 0; k < spec.outputs.size(); ++k) {
      const std::string &name = spec.outputs[k], pointer = "/outputs/" + std::to_string(k);
      const ValueId value = find(name);
      if (value == kNone)
        return invalid(pointer, "output " + name + " is not defined");
      if (!outputs.insert(value).second)
        return invalid(pointer, "output " + name + " is listed twice");
      graph.outputs.push_back(value);
    }
    return {};
  }

  Status checkPrecision() const {
    const PrecisionPolicy &policy = spec.precision;
    if (!isChoice(policy.mode, "keep|bf16|f16|fp8|int8|auto"))
      return invalid("/precision/mode", "'mode' must be keep, bf16, f16, fp8, int8 or auto, not '" + policy.mode + "'");
    if (!(policy.tolerance > 0 && std::isfinite(policy.tolerance)))
      return invalid("/precision/tolerance", "'tolerance' must be a finite number greater than 0");
    for (const auto &[name, type] : policy.pin) {
      const std::string pointer = "/precision/pin/" + escapePointer(name);
      if (find(name) == kNone)
        return invalid(pointer, name + " is not a tensor of the graph");
      if (!canPin(type))
        return invalid(pointer, name + " must be pinned to " + kPinTypes + ", not to " + dtypeName(type));
    }
    for (const auto &[name, ratio] : policy.observed) {
      const std::string pointer = "/precision/observed/" + escapePointer(name);
      if (std::find(spec.outputs.begin(), spec.outputs.end(), name) == spec.outputs.end())
        return invalid(pointer, name + " is not an output of the graph");
      if (!(ratio >= kLeastObserved && ratio <= kMostObserved))
        return invalid(pointer, "what was observed of " + name + " must be a number from 1e-6 to 1e6");
    }
    return {};
  }

  Status checkDifferentiable(const std::string &pointer, const std::string &noun, ValueId value) const {
    const Value &v = graph.values[value];
    if (!isArithmeticFloat(v.type.dtype))
      return invalid(pointer,
                     noun + " " + v.name + " is " + dtypeName(v.type.dtype) + ": gradients need f32, f16 or bf16");
    return {};
  }

  Status checkGradient() const {
    if (!spec.gradient)
      return {};
    const GradientSpec &request = *spec.gradient;
    if (request.of.empty() == request.loss.empty())
      return invalid("/gradient", request.loss.empty()
                                      ? "a gradient needs 'of' (outputs and their cotangents) or 'loss'"
                                      : "a gradient has 'of' or 'loss', not both");
    std::unordered_set<std::string_view> seen;
    for (const auto &[name, cotangent] : request.of) {
      const std::string pointer = "/gradient/of/" + escapePointer(name);
      if (!seen.insert(name).second)
        return invalid(pointer, name + " is listed twice");
      const ValueId y = find(name), dy = find(cotangent);
      if (y == kNone || !outputs.count(y))
        return invalid(pointer, name + " is not an output of the graph");
      RL_TRY(checkDifferentiable(pointer, "output", y));
      if (dy == kNone || graph.values[dy].kind != Value::Input)
        return invalid(pointer, "the cotangent " + cotangent + " of " + name + " is not an input of the graph");
      RL_TRY(checkDifferentiable(pointer, "the cotangent", dy));
      if (graph.type(dy).shape != graph.type(y).shape)
        return invalid(pointer, "the cotangent " + cotangent + " has shape " + rl::str(graph.type(dy).shape) +
                                    ", and " + name + " has " + rl::str(graph.type(y).shape));
    }
    if (!request.loss.empty()) {
      const ValueId loss = find(request.loss);
      if (loss == kNone)
        return invalid("/gradient/loss", "the loss " + request.loss + " is not defined");
      RL_TRY(checkDifferentiable("/gradient/loss", "the loss", loss));
      if (graph.type(loss).rank() != 0)
        return invalid("/gradient/loss", "the loss " + request.loss + " must be a scalar, not of shape " +
                                             rl::str(graph.type(loss).shape));
    }
    if (!std::isfinite(request.lossScale))
      return invalid("/gradient/loss_scale", "'loss_scale' must be finite");
    if (request.wrt.empty())
      return invalid("/gradient/wrt", "a gradient needs at least one tensor in 'wrt'");
    seen.clear();
    for (size_t k = 0; k < request.wrt.size(); ++k) {
      const std::string &name = request.wrt[k], pointer = "/gradient/wrt/" + std::to_string(k);
      const ValueId value = find(name);
      if (value == kNone || graph.values[value].kind == Value::Result)
        return invalid(pointer, name + " is neither an input nor a parameter of the graph");
      RL_TRY(checkDifferentiable(pointer, graph.values[value].kind == Value::Input ? "input" : "parameter", value));
      if (!seen.insert(name).second)
        return invalid(pointer, name + " is listed twice");
      if (names.count("grad." + name))
        return invalid(pointer, "the gradient's name grad." + name + " is already defined in the graph");
    }
    return {};
  }

  const GraphSpec &spec;
  const DimValues &dims;
  Graph graph;
  std::unordered_map<std::string_view, uint32_t> names; ///< to a place in `definitions`; the views are the spec's
  std::vector<Definition> definitions;
  std::vector<OpKind> ops;           ///< by node of the spec
  std::vector<uint32_t> firstOutput; ///< by node: the definition of its first output
  std::vector<uint32_t> operands;    ///< definitions, or kNone for a literal
  std::vector<size_t> operandStart;  ///< by node: its first place in `operands`
  std::vector<uint32_t> order;       ///< nodes of the spec, producers first
  std::unordered_set<ValueId> outputs;
};

} // namespace

std::string Graph::describe(NodeId id) const {
  const Node &node = nodes[id];
  std::string_view output =
      node.outputs.empty() ? std::string_view() : std::string_view(values[node.outputs.front()].name);
  return described(output, id, opInfo(node.op).name, node.source);
}

Result<Graph> resolve(const GraphSpec &spec, const DimValues &dims) { return Resolver(spec, dims).run(); }

} // namespace rl
