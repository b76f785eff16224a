// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The builder keeps nodes with operands by number; names are given when the spec is made, so that a name chosen here
// never takes one that the user gives later.
#include "frontend/api/Builder.h"

#include "frontend/json/Utf8.h"

#include <cmath>
#include <unordered_map>
#include <unordered_set>

namespace rl {

struct GraphBuilderState {
  struct Tensor {
    std::string name; ///< empty: to be chosen
    size_t node = SIZE_MAX;
  };
  struct Node {
    NodeSpec spec; ///< without operands and outputs
    std::vector<Arg> inputs;
    std::vector<uint32_t> outputs;
  };

  GraphSpec spec; ///< what needs no names of node results
  std::vector<Tensor> tensors;
  std::vector<Node> nodes;
  std::vector<uint32_t> outputs;
  std::vector<std::pair<uint32_t, uint32_t>> gradientOf;
  std::vector<uint32_t> wrt;
  std::optional<uint32_t> loss;
  std::string source;
  std::optional<Error> misuse; ///< the first mistake that a spec cannot express

  void wrong(std::string pointer, std::string message) {
    if (!misuse)
      misuse = invalid(std::move(pointer), std::move(message));
  }
  TensorHandle add(std::string name, size_t node = SIZE_MAX) {
    tensors.push_back({std::move(name), node});
    return {this, static_cast<uint32_t>(tensors.size() - 1)};
  }
  TensorHandle addTensor(std::vector<TensorSpec> &list, std::string name, DType dtype, Shape shape) {
    list.push_back({name, dtype, std::move(shape.dims)});
    return add(std::move(name));
  }
  /// Whether the handle is a tensor of this graph; if not, remembers that as the mistake of `pointer`.
  bool owns(TensorHandle tensor, const std::string &pointer) {
    if (tensor.state == this)
      return true;
    wrong(pointer, tensor ? "the tensor belongs to another graph" : "an empty tensor handle");
    return false;
  }
  /// What no JSON number can be: a graph that is built can be saved.
  void check(const Scalar &scalar, bool inRange, const std::string &pointer) {
    if (!inRange)
      wrong(pointer, "integer out of range: it does not fit 64 bits");
    else if (scalar.kind == Scalar::Float && !std::isfinite(scalar.f))
      wrong(pointer, std::to_string(scalar.f) + " is not a finite number");
  }

  std::vector<TensorHandle> addNode(std::string_view op, const std::vector<Arg> &inputs,
                                    std::map<std::string, AttrValue> attrs, size_t outputs) {
    std::string pointer = "/nodes/" + std::to_string(nodes.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      std::string at = pointer + "/inputs/" + std::to_string(i);
      if (inputs[i].isTensor)
        owns(inputs[i].tensor, at);
      else
        check(inputs[i].literal.scalar, inputs[i].literal.inRange, at);
    }
    for (const auto &[name, value] : attrs)
      if (auto *scalar = std::get_if<Scalar>(&value))
        check(*scalar, true, pointer + "/attrs/" + name);
    Node &node = nodes.emplace_back();
    node.spec.op = op;
    node.spec.attrs = std::move(attrs);
    node.spec.source = source;
    node.inputs = inputs;
    std::vector<TensorHandle> results;
    for (size_t i = 0; i < outputs; ++i) {
      results.push_back(add({}, nodes.size() - 1));
      nodes.back().outputs.push_back(results.back().id);
    }
    return results;
  }

  void giveName(TensorHandle tensor, std::string name, const std::string &pointer) {
    Tensor &t = tensors[tensor.id];
    if (t.name == name)
      return;
    if (!t.name.empty())
      return wrong(pointer,
                   "the tensor is already called '" + t.name + "'; it cannot be called '" + name + "' as well");
    t.name = std::move(name);
  }

  /// Names for all results: those given, and for the rest op, op_1, op_2, ... with those left out that are taken.
  std::vector<std::string> chooseNames() const {
    std::unordered_set<std::string_view> taken;
    for (const Tensor &t : tensors)
      taken.insert(t.name);
    std::unordered_map<std::string_view, size_t> next;
    std::vector<std::string> names;
    names.reserve(tensors.size());
    for (const Tensor &t : tensors) {
      if (!t.name.empty() || t.node == SIZE_MAX) {
        names.push_back(t.name);
        continue;
      }
      const std::string &op = nodes[t.node].spec.op;
      std::string candidate;
      do {
        size_t n = next[op]++;
        candidate = n ? op + '_' + std::to_string(n) : op;
      } while (taken.contains(candidate));
      names.push_back(std::move(candidate));
    }
    return names;
  }
};

namespace {

using Attributes = std::map<std::string, AttrValue>;

AttrValue boolean(bool b) { return Scalar{Scalar::Bool, b, 0}; }
AttrValue integer(int64_t i) { return Scalar{Scalar::Int, i, 0}; }
AttrValue number(double f) { return Scalar{Scalar::Float, 0, f}; }
AttrValue type(DType t) { return std::string(dtypeName(t)); }
AttrValue list(const std::vector<int64_t> &values) {
  std::vector<Dim> out;
  for (int64_t v : values)
    out.push_back({v, {}});
  return out;
}

/// granularity, axis and block, with "", "_a" or "_b" behind each name. What does not belong together is for the check.
void addGranularity(Attributes &attrs, const std::string &suffix, Granularity g, std::optional<int64_t> axis,
                    const std::vector<int64_t> &block) {
  static constexpr const char *names[] = {"tensor", "axis", "token", "block"};
  attrs["granularity" + suffix] = std::string(names[static_cast<size_t>(g)]);
  if (axis)
    attrs["axis" + suffix] = integer(*axis);
  if (!block.empty())
    attrs["block" + suffix] = list(block);
}

Attributes quantizeAttributes(const QuantizeOptions &o) {
  Attributes attrs{{"dtype", type(o.dtype)}};
  addGranularity(attrs, "", o.granularity, o.axis, o.block);
  if (o.scaleDtype != DType::F32)
    attrs["scale_dtype"] = type(o.scaleDtype);
  if (o.scheme != "symmetric")
    attrs["scheme"] = o.scheme;
  return attrs;
}

} // namespace

GraphBuilder::GraphBuilder(std::string name) : state(std::make_unique<GraphBuilderState>()) {
  state->spec.name = std::move(name);
}
GraphBuilder::~GraphBuilder() = default;
GraphBuilder::GraphBuilder(GraphBuilder &&) noexcept = default;
GraphBuilder &GraphBuilder::operator=(GraphBuilder &&) noexcept = default;

TensorHandle GraphBuilder::input(std::string name, DType dtype, Shape shape) {
  return state->addTensor(state->spec.inputs, std::move(name), dtype, std::move(shape));
}
TensorHandle GraphBuilder::parameter(std::string name, DType dtype, Shape shape) {
  return state->addTensor(state->spec.parameters, std::move(name), dtype, std::move(shape));
}
Dim GraphBuilder::dim(std::string name, int64_t min, int64_t max) {
  // A Dim without a symbol is a number, so an empty name would go unnoticed.
  if (name.empty())
    state->wrong("/dims/", "an empty name");
  state->spec.dims.push_back({name, min, max});
  return {0, std::move(name)};
}
void GraphBuilder::output(TensorHandle tensor, std::string name) {
  std::string pointer = "/outputs/" + std::to_string(state->outputs.size());
  if (!state->owns(tensor, pointer))
    return;
  if (!name.empty())
    state->giveName(tensor, std::move(name), pointer);
  state->outputs.push_back(tensor.id);
}
TensorHandle GraphBuilder::name(TensorHandle tensor, std::string name) {
  if (!state->owns(tensor, {}))
    return tensor;
  size_t node = state->tensors[tensor.id].node;
  std::string pointer = node == SIZE_MAX ? std::string() : "/nodes/" + std::to_string(node) + "/outputs";
  if (name.empty())
    state->wrong(pointer, "an empty name");
  else
    state->giveName(tensor, std::move(name), pointer);
  return tensor;
}
void GraphBuilder::source(std::string text) { state->source = std::move(text); }
TensorHandle GraphBuilder::pin(TensorHandle tensor, DType dtype) {
  if (!state->owns(tensor, {}))
    return tensor;
  const GraphBuilderState::Tensor &t = state->tensors[tensor.id];
  if (t.node == SIZE_MAX)
    state->wrong({}, "only the result of a node can be pinned; '" + t.name + "' is none");
  else
    state->nodes[t.node].spec.precision = dtypeName(dtype);
  return tensor;
}
void GraphBuilder::strict(bool on) { state->spec.strict = on; }
void GraphBuilder::precision(PrecisionPolicy policy) { state->spec.precision = std::move(policy); }
void GraphBuilder::gradientOf(const std::vector<std::pair<TensorHandle, TensorHandle>> &outputsAndCotangents,
                              const std::vector<TensorHandle> &wrt) {
  state->spec.gradient.emplace();
  state->gradientOf.clear();
  state->wrt.clear();
  state->loss.reset();
  if (outputsAndCotangents.empty())
    state->wrong("/gradient/of", "of names no output");
  for (const auto &[output, cotangent] : outputsAndCotangents)
    if (state->owns(output, "/gradient/of") && state->owns(cotangent, "/gradient/of"))
      state->gradientOf.emplace_back(output.id, cotangent.id);
  for (size_t i = 0; i < wrt.size(); ++i)
    if (state->owns(wrt[i], "/gradient/wrt/" + std::to_string(i)))
      state->wrt.push_back(wrt[i].id);
}
void GraphBuilder::gradientOfLoss(TensorHandle loss, const std::vector<TensorHandle> &wrt, double lossScale) {
  state->spec.gradient.emplace().lossScale = lossScale;
  state->gradientOf.clear();
  state->wrt.clear();
  state->loss.reset();
  if (state->owns(loss, "/gradient/loss"))
    state->loss = loss.id;
  for (size_t i = 0; i < wrt.size(); ++i)
    if (state->owns(wrt[i], "/gradient/wrt/" + std::to_string(i)))
      state->wrt.push_back(wrt[i].id);
}

/// The JSON reader refuses text that is not UTF-8; so does the builder, with the same places.
static Status checkText(const GraphSpec &spec) {
  auto check = [](const std::string &text, std::string pointer) -> Status {
    if (isUtf8(text))
      return {};
    return invalid(std::move(pointer), "not UTF-8");
  };
  RL_TRY(check(spec.name, "/name"));
  for (const TensorSpec &t : spec.inputs)
    RL_TRY(check(t.name, "/inputs"));
  for (const TensorSpec &t : spec.parameters)
    RL_TRY(check(t.name, "/parameters"));
  for (const DimSpec &d : spec.dims)
    RL_TRY(check(d.name, "/dims"));
  for (size_t i = 0; i < spec.nodes.size(); ++i) {
    const NodeSpec &node = spec.nodes[i];
    std::string pointer = "/nodes/" + std::to_string(i);
    RL_TRY(check(node.op, pointer + "/op"));
    RL_TRY(check(node.source, pointer + "/source"));
    for (size_t k = 0; k < node.outputs.size(); ++k)
      RL_TRY(check(node.outputs[k], pointer + "/outputs/" + std::to_string(k)));
    for (const auto &[name, value] : node.attrs) {
      RL_TRY(check(name, pointer + "/attrs"));
      if (auto *text = std::get_if<std::string>(&value))
        RL_TRY(check(*text, pointer + "/attrs/" + name));
    }
  }
  for (const auto &[name, dtype] : spec.precision.pin)
    RL_TRY(check(name, "/precision/pin"));
  for (const auto &[name, ratio] : spec.precision.observed)
    RL_TRY(check(name, "/precision/observed"));
  return check(spec.precision.mode, "/precision/mode");
}

Result<GraphSpec> GraphBuilder::build() const {
  if (state->misuse)
    return *state->misuse;
  GraphSpec spec = state->spec;
  std::vector<std::string> names = state->chooseNames();
  spec.nodes.reserve(state->nodes.size());
  for (const GraphBuilderState::Node &node : state->nodes) {
    NodeSpec &out = spec.nodes.emplace_back(node.spec);
    for (const Arg &arg : node.inputs) {
      OperandSpec &operand = out.inputs.emplace_back();
      if (arg.isTensor)
        operand.name = names[arg.tensor.id];
      else
        operand.literal = arg.literal.scalar;
    }
    for (uint32_t id : node.outputs)
      out.outputs.push_back(names[id]);
  }
  for (uint32_t id : state->outputs)
    spec.outputs.push_back(names[id]);
  if (spec.gradient) {
    for (auto [output, cotangent] : state->gradientOf)
      spec.gradient->of.emplace_back(names[output], names[cotangent]);
    for (uint32_t id : state->wrt)
      spec.gradient->wrt.push_back(names[id]);
    if (state->loss)
      spec.gradient->loss = names[*state->loss];
  }
  RL_TRY(checkText(spec));
  RL_TRY(checkSpec(spec));
  return spec;
}

std::vector<TensorHandle> GraphBuilder::node(std::string_view op, const std::vector<Arg> &inputs, Attributes attrs,
                                             size_t outputs) {
  return state->addNode(op, inputs, std::move(attrs), outputs);
}
TensorHandle GraphBuilder::one(std::string_view op, const std::vector<Arg> &inputs, Attributes attrs) {
  return state->addNode(op, inputs, std::move(attrs), 1)[0];
}

TensorHandle binaryNode(const char *op, const Arg &a, const Arg &b) {
  GraphBuilderState *state = a.isTensor && a.tensor ? a.tensor.state : b.isTensor ? b.tensor.state : nullptr;
  // Empty handles have no graph that could remember the mistake: the result is empty as well, and its next use tells.
  return state ? state->addNode(op, {a, b}, {}, 1)[0] : TensorHandle();
}
TensorHandle negated(TensorHandle x) { return x ? x.state->addNode("neg", {x}, {}, 1)[0] : TensorHandle(); }

TensorHandle GraphBuilder::gelu(Arg x, const GeluOptions &o) {
  Attributes attrs;
  if (o.approximate != "none")
    attrs["approximate"] = o.approximate;
  return one("gelu", {x}, std::move(attrs));
}
TensorHandle GraphBuilder::cast(Arg x, DType dtype, const CastOptions &o) {
  Attributes attrs{{"dtype", type(dtype)}};
  if (!o.saturate)
    attrs["saturate"] = boolean(false);
  return one("cast", {x}, std::move(attrs));
}

/// An attribute that is a scalar literal.
static void addLiteral(GraphBuilderState &state, Attributes &attrs, const char *name, const Literal &value) {
  state.check(value.scalar, value.inRange, "/nodes/" + std::to_string(state.nodes.size()) + "/attrs/" + name);
  attrs[name] = value.scalar;
}
TensorHandle GraphBuilder::clamp(Arg x, const ClampOptions &o) {
  Attributes attrs;
  if (o.min)
    addLiteral(*state, attrs, "min", *o.min);
  if (o.max)
    addLiteral(*state, attrs, "max", *o.max);
  return one("clamp", {x}, std::move(attrs));
}
TensorHandle GraphBuilder::where(Arg condition, Arg a, Arg b) { return one("where", {condition, a, b}); }

TensorHandle GraphBuilder::reshape(Arg x, Shape shape) {
  return one("reshape", {x}, {{"shape", std::move(shape.dims)}});
}
TensorHandle GraphBuilder::expand(Arg x, Shape shape) { return one("expand", {x}, {{"shape", std::move(shape.dims)}}); }
TensorHandle GraphBuilder::permute(Arg x, const std::vector<int64_t> &dims) {
  return one("permute", {x}, {{"dims", list(dims)}});
}
TensorHandle GraphBuilder::flip(Arg x, const std::vector<int64_t> &dims) {
  return one("flip", {x}, {{"dims", list(dims)}});
}
TensorHandle GraphBuilder::unsqueeze(Arg x, int64_t dim) { return one("unsqueeze", {x}, {{"dim", integer(dim)}}); }
TensorHandle GraphBuilder::squeeze(Arg x, int64_t dim) { return one("squeeze", {x}, {{"dim", integer(dim)}}); }
TensorHandle GraphBuilder::slice(Arg x, const SliceOptions &o) {
  Attributes attrs{{"dim", integer(o.dim)}};
  if (o.start)
    attrs["start"] = integer(*o.start);
  if (o.end)
    attrs["end"] = integer(*o.end);
  if (o.step != 1)
    attrs["step"] = integer(o.step);
  return one("slice", {x}, std::move(attrs));
}
TensorHandle GraphBuilder::cat(const std::vector<Arg> &tensors, int64_t dim) {
  return one("cat", tensors, {{"dim", integer(dim)}});
}
TensorHandle GraphBuilder::pad(Arg x, const PadOptions &o) {
  Attributes attrs{{"low", list(o.low)}, {"high", list(o.high)}};
  addLiteral(*state, attrs, "value", o.value);
  return one("pad", {x}, std::move(attrs));
}
TensorHandle GraphBuilder::full(Shape shape, Literal value, DType dtype) {
  Attributes attrs{{"shape", std::move(shape.dims)}, {"dtype", type(dtype)}};
  addLiteral(*state, attrs, "value", value);
  return one("full", {}, std::move(attrs));
}
TensorHandle GraphBuilder::iota(Shape shape, int64_t dim, DType dtype) {
  return one("iota", {}, {{"shape", std::move(shape.dims)}, {"dim", integer(dim)}, {"dtype", type(dtype)}});
}

TensorHandle GraphBuilder::reduce(std::string_view op, const Arg &x, const ReduceOptions &o) {
  Attributes attrs;
  if (o.dims.list)
    attrs["dims"] = list(*o.dims.list);
  if (o.keepdim)
    attrs["keepdim"] = boolean(true);
  return one(op, {x}, std::move(attrs));
}
TensorHandle GraphBuilder::sum(Arg x, const ReduceOptions &o) { return reduce("sum", x, o); }
TensorHandle GraphBuilder::mean(Arg x, const ReduceOptions &o) { return reduce("mean", x, o); }
TensorHandle GraphBuilder::amax(Arg x, const ReduceOptions &o) { return reduce("amax", x, o); }
TensorHandle GraphBuilder::amin(Arg x, const ReduceOptions &o) { return reduce("amin", x, o); }
TensorHandle GraphBuilder::prod(Arg x, const ReduceOptions &o) { return reduce("prod", x, o); }
TensorHandle GraphBuilder::any(Arg x, const ReduceOptions &o) { return reduce("any", x, o); }
TensorHandle GraphBuilder::all(Arg x, const ReduceOptions &o) { return reduce("all", x, o); }
TensorHandle GraphBuilder::logsumexp(Arg x, const ReduceOptions &o) { return reduce("logsumexp", x, o); }
TensorHandle GraphBuilder::var(Arg x, const VarOptions &o) {
  Attributes attrs;
  if (o.dims.list)
    attrs["dims"] = list(*o.dims.list);
  if (o.keepdim)
    attrs["keepdim"] = boolean(true);
  if (o.correction != 1)
    attrs["correction"] = number(o.correction);
  return one("var", {x}, std::move(attrs));
}

static Attributes argAttributes(int64_t dim, bool keepdim) {
  Attributes attrs{{"dim", integer(dim)}};
  if (keepdim)
    attrs["keepdim"] = boolean(true);
  return attrs;
}
TensorHandle GraphBuilder::argmax(Arg x, int64_t dim, bool keepdim) {
  return one("argmax", {x}, argAttributes(dim, keepdim));
}
TensorHandle GraphBuilder::argmin(Arg x, int64_t dim, bool keepdim) {
  return one("argmin", {x}, argAttributes(dim, keepdim));
}
TensorHandle GraphBuilder::softmax(Arg x, int64_t dim) { return one("softmax", {x}, {{"dim", integer(dim)}}); }
TensorHandle GraphBuilder::logSoftmax(Arg x, int64_t dim) { return one("log_softmax", {x}, {{"dim", integer(dim)}}); }

/// `eps`, where it is not the op's default.
static Attributes epsAttribute(double eps, double byDefault) {
  return eps == byDefault ? Attributes() : Attributes{{"eps", number(eps)}};
}
TensorHandle GraphBuilder::layerNorm(Arg x, const LayerNormOptions &o) {
  return one("layer_norm", {x}, epsAttribute(o.eps, LayerNormOptions().eps));
}
TensorHandle GraphBuilder::layerNorm(Arg x, Arg weight, const LayerNormOptions &o) {
  return one("layer_norm", {x, weight}, epsAttribute(o.eps, LayerNormOptions().eps));
}
TensorHandle GraphBuilder::layerNorm(Arg x, Arg weight, Arg bias, const LayerNormOptions &o) {
  return one("layer_norm", {x, weight, bias}, epsAttribute(o.eps, LayerNormOptions().eps));
}
TensorHandle GraphBuilder::rmsNorm(Arg x, const RmsNormOptions &o) {
  return one("rms_norm", {x}, epsAttribute(o.eps, RmsNormOptions().eps));
}
TensorHandle GraphBuilder::rmsNorm(Arg x, Arg weight, const RmsNormOptions &o) {
  return one("rms_norm", {x, weight}, epsAttribute(o.eps, RmsNormOptions().eps));
}

TensorHandle GraphBuilder::matmul(Arg a, Arg b, const MatmulOptions &o) {
  Attributes attrs;
  if (o.transposeA)
    attrs["transpose_a"] = boolean(true);
  if (o.transposeB)
    attrs["transpose_b"] = boolean(true);
  if (o.outDtype)
    attrs["out_dtype"] = type(*o.outDtype);
  return one("matmul", {a, b}, std::move(attrs));
}
TensorHandle GraphBuilder::linear(Arg x, Arg weight) { return one("linear", {x, weight}); }
TensorHandle GraphBuilder::linear(Arg x, Arg weight, Arg bias) { return one("linear", {x, weight, bias}); }
TensorHandle GraphBuilder::embedding(Arg table, Arg indices) { return one("embedding", {table, indices}); }
TensorHandle GraphBuilder::indexSelect(Arg x, Arg indices, int64_t dim) {
  return one("index_select", {x, indices}, {{"dim", integer(dim)}});
}
TensorHandle GraphBuilder::gather(Arg x, Arg indices, int64_t dim) {
  return one("gather", {x, indices}, {{"dim", integer(dim)}});
}

static Attributes attentionAttributes(const AttentionOptions &o) {
  Attributes attrs;
  if (o.causal)
    attrs["causal"] = boolean(true);
  if (o.scale)
    attrs["scale"] = number(*o.scale);
  return attrs;
}
TensorHandle GraphBuilder::scaledDotProductAttention(Arg q, Arg k, Arg v, const AttentionOptions &o) {
  return one("scaled_dot_product_attention", {q, k, v}, attentionAttributes(o));
}
TensorHandle GraphBuilder::scaledDotProductAttention(Arg q, Arg k, Arg v, Arg mask, const AttentionOptions &o) {
  return one("scaled_dot_product_attention", {q, k, v, mask}, attentionAttributes(o));
}
TensorHandle GraphBuilder::crossEntropy(Arg logits, Arg targets, const CrossEntropyOptions &o) {
  Attributes attrs;
  if (o.ignoreIndex != CrossEntropyOptions().ignoreIndex)
    attrs["ignore_index"] = integer(o.ignoreIndex);
  return one("cross_entropy", {logits, targets}, std::move(attrs));
}

Quantized GraphBuilder::quantize(Arg x, const QuantizeOptions &o) {
  std::vector<Arg> inputs{x};
  if (o.scale)
    inputs.push_back(o.scale);
  bool asymmetric = o.scheme == "asymmetric";
  std::vector<TensorHandle> results = node("quantize", inputs, quantizeAttributes(o), asymmetric ? 3 : 2);
  return {results[0], results[1], asymmetric ? results[2] : TensorHandle()};
}
TensorHandle GraphBuilder::dequantize(Arg q, Arg scale, const DequantizeOptions &o) {
  std::vector<Arg> inputs{q, scale};
  if (o.zeroPoint)
    inputs.push_back(o.zeroPoint);
  Attributes attrs{{"dtype", type(o.dtype)}};
  addGranularity(attrs, "", o.granularity, o.axis, o.block);
  return one("dequantize", inputs, std::move(attrs));
}
TensorHandle GraphBuilder::scaledMatmul(Arg a, Arg b, Arg scaleA, Arg scaleB, const ScaledMatmulOptions &o) {
  Attributes attrs;
  addGranularity(attrs, "_a", o.granularityA, o.axisA, o.blockA);
  addGranularity(attrs, "_b", o.granularityB, o.axisB, o.blockB);
  if (o.transposeB)
    attrs["transpose_b"] = boolean(true);
  if (o.outDtype != DType::F32)
    attrs["out_dtype"] = type(o.outDtype);
  if (o.fastAccumulate)
    attrs["fast_accumulate"] = boolean(true);
  return one("scaled_matmul", {a, b, scaleA, scaleB}, std::move(attrs));
}
TensorHandle GraphBuilder::fakeQuantize(Arg x, const QuantizeOptions &o) {
  std::vector<Arg> inputs{x};
  if (o.scale)
    inputs.push_back(o.scale);
  return one("fake_quantize", inputs, quantizeAttributes(o));
}

} // namespace rl
