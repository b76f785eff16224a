// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Graphs from C++. A GraphBuilder collects what a graph file would say, one method an op of the format; `build` checks
// it all at once, by the same rules and with the same messages and places as for a file.
//
//   rl::GraphBuilder g("ffn");
//   auto x = g.input("x", rl::DType::BF16, {512, 4096});
//   auto w = g.parameter("w", rl::DType::BF16, {11008, 4096});
//   auto y = g.gelu(g.linear(x, w), {.approximate = "tanh"}) * 0.5;
//   g.output(y, "y");
//   rl::Result<rl::GraphSpec> spec = g.build();
#pragma once

#include "ir/graph/Graph.h"

#include <concepts>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rl {

class Arg;
class GraphBuilder;
struct GraphBuilderState;

/// A tensor of a graph that is being built: two words, copied freely, valid as long as its builder lives. An empty
/// handle stands for an operand that is not there.
class TensorHandle {
public:
  TensorHandle() = default;
  explicit operator bool() const { return state != nullptr; }

private:
  friend class GraphBuilder;
  friend struct GraphBuilderState;
  friend TensorHandle binaryNode(const char *op, const Arg &, const Arg &);
  friend TensorHandle negated(TensorHandle);
  TensorHandle(GraphBuilderState *state, uint32_t id) : state(state), id(id) {}
  GraphBuilderState *state = nullptr;
  uint32_t id = 0;
};

/// A scalar literal: bool, an integer or a floating-point number. Weakly typed, as a JSON number is.
struct Literal {
  Scalar scalar{Scalar::Int, 0, 0};
  bool inRange = true; ///< an unsigned integer beyond int64 is an error

  Literal() = default;
  template <class T>
    requires std::same_as<T, bool>
  Literal(T v) : scalar{Scalar::Bool, v, 0} {}
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  Literal(T v) : scalar{Scalar::Int, static_cast<int64_t>(v), 0}, inRange(std::in_range<int64_t>(v)) {}
  template <std::floating_point T> Literal(T v) : scalar{Scalar::Float, 0, static_cast<double>(v)} {}
};

/// An operand: a tensor or a scalar literal.
class Arg {
public:
  Arg(TensorHandle tensor) : tensor(tensor), isTensor(true) {}
  template <class T>
    requires std::constructible_from<Literal, T>
  Arg(T value) : literal(value) {}

private:
  friend class GraphBuilder;
  friend struct GraphBuilderState;
  friend TensorHandle binaryNode(const char *op, const Arg &, const Arg &);
  TensorHandle tensor;
  Literal literal;
  bool isTensor = false;
};

/// An extent: a number, or a symbolic dimension from GraphBuilder::dim.
struct Extent {
  Dim dim;
  template <std::integral T> Extent(T v) : dim{static_cast<int64_t>(v), {}} {}
  Extent(Dim d) : dim(std::move(d)) {}
};

/// A list of extents: {512, 4096}, {batch, 4096}, a std::vector<int64_t>.
struct Shape {
  std::vector<Dim> dims;
  Shape() = default;
  Shape(std::initializer_list<Extent> extents) {
    for (const Extent &e : extents)
      dims.push_back(e.dim);
  }
  Shape(const std::vector<int64_t> &extents) {
    for (int64_t e : extents)
      dims.push_back({e, {}});
  }
  Shape(std::vector<Dim> dims) : dims(std::move(dims)) {}
};

/// The dimensions of a reduction: {-1}, {0, 1}; by default all of them.
struct Axes {
  std::optional<std::vector<int64_t>> list;
  Axes() = default;
  Axes(std::initializer_list<int64_t> dims) : list(dims) {}
  Axes(std::vector<int64_t> dims) : list(std::move(dims)) {}
};

struct GeluOptions {
  std::string approximate = "none"; ///< "none" | "tanh"
};
struct CastOptions {
  bool saturate = true; ///< to f8: clamp what is beyond the largest finite value
};
struct ClampOptions {
  std::optional<Literal> min = {}, max = {}; ///< at least one
};
struct SliceOptions { ///< Python's rules
  int64_t dim = 0;
  std::optional<int64_t> start = {}, end = {};
  int64_t step = 1;
};
struct PadOptions {
  std::vector<int64_t> low = {}, high = {}; ///< one entry a dimension
  Literal value = 0;
};
struct ReduceOptions {
  Axes dims = {};
  bool keepdim = false;
};
struct VarOptions {
  Axes dims = {};
  bool keepdim = false;
  double correction = 1;
};
struct LayerNormOptions {
  double eps = 1e-5;
};
struct RmsNormOptions {
  double eps = 1e-6;
};
struct MatmulOptions {
  bool transposeA = false, transposeB = false;
  std::optional<DType> outDtype = {};
};
struct AttentionOptions {
  bool causal = false;
  std::optional<double> scale = {}; ///< default: 1 / sqrt(extent of q's last dimension)
};
struct CrossEntropyOptions {
  int64_t ignoreIndex = -100;
};
struct QuantizeOptions {
  DType dtype = DType::F8E4M3;
  Granularity granularity = Granularity::Tensor;
  std::optional<int64_t> axis = {}; ///< Granularity::Axis
  std::vector<int64_t> block = {};  ///< Granularity::Block
  DType scaleDtype = DType::F32;
  std::string scheme = "symmetric"; ///< "symmetric" | "asymmetric"
  TensorHandle scale = {};          ///< empty: dynamic
};
struct DequantizeOptions {
  DType dtype = DType::F32;
  Granularity granularity = Granularity::Tensor;
  std::optional<int64_t> axis = {};
  std::vector<int64_t> block = {};
  TensorHandle zeroPoint = {}; ///< of the asymmetric scheme
};
struct ScaledMatmulOptions {
  Granularity granularityA = Granularity::Tensor, granularityB = Granularity::Tensor;
  std::optional<int64_t> axisA = {}, axisB = {};
  std::vector<int64_t> blockA = {}, blockB = {};
  bool transposeB = false;
  DType outDtype = DType::F32;
  bool fastAccumulate = false;
};
/// The results of `quantize`; `zeroPoint` is empty but for the asymmetric scheme.
struct Quantized {
  TensorHandle q, scale, zeroPoint;
};

/// Builds one graph. Nothing fails before `build`: a mistake is remembered with its place. Not thread-safe.
class GraphBuilder {
public:
  explicit GraphBuilder(std::string name);
  ~GraphBuilder();
  GraphBuilder(GraphBuilder &&) noexcept;
  GraphBuilder &operator=(GraphBuilder &&) noexcept;

  // Tensors and the graph as a whole.

  TensorHandle input(std::string name, DType, Shape);
  TensorHandle parameter(std::string name, DType, Shape);
  /// A symbolic dimension, for shapes and for the shape attributes of ops.
  Dim dim(std::string name, int64_t min = 1, int64_t max = INT32_MAX);
  /// Returns the tensor. A node's result that has no name yet is named; an output's name is its tensor's name.
  void output(TensorHandle, std::string name = {});
  /// Names a node's result. Results without a name get one from their op.
  TensorHandle name(TensorHandle, std::string name);
  /// Text kept with every node made from here on, e.g. the line of the model; empty ends it.
  void source(std::string text);
  /// Pins the compute and storage type of the node that makes this tensor.
  TensorHandle pin(TensorHandle, DType);
  void strict(bool on = true); ///< numerics: strict
  void precision(PrecisionPolicy);
  void gradientOf(const std::vector<std::pair<TensorHandle, TensorHandle>> &outputsAndCotangents,
                  const std::vector<TensorHandle> &wrt);
  void gradientOfLoss(TensorHandle loss, const std::vector<TensorHandle> &wrt, double lossScale = 1);

  /// The graph as a spec, valid by `checkSpec`; else the first error: Code::Invalid, its pointer that of the graph file
  /// which `printGraph` would write.
  Result<GraphSpec> build() const;

  // Elementwise.

#define RL_UNARY(method, op)                                                                                           \
  TensorHandle method(Arg x) { return one(op, {x}); }
  RL_UNARY(abs, "abs");
  RL_UNARY(neg, "neg");
  RL_UNARY(sign, "sign");
  RL_UNARY(exp, "exp");
  RL_UNARY(exp2, "exp2");
  RL_UNARY(expm1, "expm1");
  RL_UNARY(log, "log");
  RL_UNARY(log2, "log2");
  RL_UNARY(log1p, "log1p");
  RL_UNARY(sqrt, "sqrt");
  RL_UNARY(rsqrt, "rsqrt");
  RL_UNARY(reciprocal, "reciprocal");
  RL_UNARY(square, "square");
  RL_UNARY(sin, "sin");
  RL_UNARY(cos, "cos");
  RL_UNARY(tanh, "tanh");
  RL_UNARY(sigmoid, "sigmoid");
  RL_UNARY(erf, "erf");
  RL_UNARY(relu, "relu");
  RL_UNARY(silu, "silu");
  RL_UNARY(softplus, "softplus");
  RL_UNARY(floor, "floor");
  RL_UNARY(ceil, "ceil");
  RL_UNARY(round, "round");
  RL_UNARY(trunc, "trunc");
  RL_UNARY(isNan, "isnan");
  RL_UNARY(isInf, "isinf");
  RL_UNARY(isFinite, "isfinite");
  RL_UNARY(logicalNot, "logical_not");
  RL_UNARY(bitwiseNot, "bitwise_not");
#undef RL_UNARY
#define RL_BINARY(method, op)                                                                                          \
  TensorHandle method(Arg a, Arg b) { return one(op, {a, b}); }
  RL_BINARY(add, "add");
  RL_BINARY(sub, "sub");
  RL_BINARY(mul, "mul");
  RL_BINARY(div, "div");
  RL_BINARY(floorDivide, "floor_divide");
  RL_BINARY(fmod, "fmod");
  RL_BINARY(remainder, "remainder");
  RL_BINARY(pow, "pow");
  RL_BINARY(atan2, "atan2");
  RL_BINARY(maximum, "maximum");
  RL_BINARY(minimum, "minimum");
  RL_BINARY(eq, "eq");
  RL_BINARY(ne, "ne");
  RL_BINARY(lt, "lt");
  RL_BINARY(le, "le");
  RL_BINARY(gt, "gt");
  RL_BINARY(ge, "ge");
  RL_BINARY(logicalAnd, "logical_and");
  RL_BINARY(logicalOr, "logical_or");
  RL_BINARY(logicalXor, "logical_xor");
  RL_BINARY(bitwiseAnd, "bitwise_and");
  RL_BINARY(bitwiseOr, "bitwise_or");
  RL_BINARY(bitwiseXor, "bitwise_xor");
#undef RL_BINARY
  TensorHandle gelu(Arg x, const GeluOptions & = {});
  TensorHandle cast(Arg x, DType, const CastOptions & = {});
  TensorHandle clamp(Arg x, const ClampOptions &);
  TensorHandle where(Arg condition, Arg a, Arg b);

  // Shape and creation.

  TensorHandle reshape(Arg x, Shape);
  TensorHandle permute(Arg x, const std::vector<int64_t> &dims);
  TensorHandle expand(Arg x, Shape);
  TensorHandle unsqueeze(Arg x, int64_t dim);
  TensorHandle squeeze(Arg x, int64_t dim);
  TensorHandle slice(Arg x, const SliceOptions &);
  TensorHandle cat(const std::vector<Arg> &tensors, int64_t dim);
  TensorHandle pad(Arg x, const PadOptions &);
  TensorHandle flip(Arg x, const std::vector<int64_t> &dims);
  TensorHandle full(Shape, Literal value, DType);
  TensorHandle iota(Shape, int64_t dim, DType);

  // Reductions and normalisation.

  TensorHandle sum(Arg x, const ReduceOptions & = {});
  TensorHandle mean(Arg x, const ReduceOptions & = {});
  TensorHandle amax(Arg x, const ReduceOptions & = {});
  TensorHandle amin(Arg x, const ReduceOptions & = {});
  TensorHandle prod(Arg x, const ReduceOptions & = {});
  TensorHandle any(Arg x, const ReduceOptions & = {});
  TensorHandle all(Arg x, const ReduceOptions & = {});
  TensorHandle logsumexp(Arg x, const ReduceOptions & = {});
  TensorHandle var(Arg x, const VarOptions & = {});
  TensorHandle argmax(Arg x, int64_t dim, bool keepdim = false);
  TensorHandle argmin(Arg x, int64_t dim, bool keepdim = false);
  TensorHandle softmax(Arg x, int64_t dim);
  TensorHandle logSoftmax(Arg x, int64_t dim);
  TensorHandle layerNorm(Arg x, const LayerNormOptions & = {});
  TensorHandle layerNorm(Arg x, Arg weight, const LayerNormOptions & = {});
  TensorHandle layerNorm(Arg x, Arg weight, Arg bias, const LayerNormOptions & = {});
  TensorHandle rmsNorm(Arg x, const RmsNormOptions & = {});
  TensorHandle rmsNorm(Arg x, Arg weight, const RmsNormOptions & = {});

  // Matrix, indexing, attention, loss, quantisation.

  TensorHandle matmul(Arg a, Arg b, const MatmulOptions & = {});
  TensorHandle linear(Arg x, Arg weight);
  TensorHandle linear(Arg x, Arg weight, Arg bias);
  TensorHandle embedding(Arg table, Arg indices);
  TensorHandle indexSelect(Arg x, Arg indices, int64_t dim);
  TensorHandle gather(Arg x, Arg indices, int64_t dim);
  TensorHandle scaledDotProductAttention(Arg q, Arg k, Arg v, const AttentionOptions & = {});
  TensorHandle scaledDotProductAttention(Arg q, Arg k, Arg v, Arg mask, const AttentionOptions & = {});
  TensorHandle crossEntropy(Arg logits, Arg targets, const CrossEntropyOptions & = {});
  Quantized quantize(Arg x, const QuantizeOptions &);
  TensorHandle dequantize(Arg q, Arg scale, const DequantizeOptions & = {});
  TensorHandle scaledMatmul(Arg a, Arg b, Arg scaleA, Arg scaleB, const ScaledMatmulOptions & = {});
  TensorHandle fakeQuantize(Arg x, const QuantizeOptions &);

  /// Any op by its name in the format.
  std::vector<TensorHandle> node(std::string_view op, const std::vector<Arg> &inputs,
                                 std::map<std::string, AttrValue> attrs = {}, size_t outputs = 1);

private:
  std::unique_ptr<GraphBuilderState> state;
  TensorHandle one(std::string_view op, const std::vector<Arg> &inputs, std::map<std::string, AttrValue> attrs = {});
  TensorHandle reduce(std::string_view op, const Arg &x, const ReduceOptions &);
};

/// a + b and the like: the node is added to the graph of the operand that is a tensor.
TensorHandle binaryNode(const char *op, const Arg &a, const Arg &b);
TensorHandle negated(TensorHandle);
#define RL_OPERATOR(symbol, op)                                                                                        \
  inline TensorHandle operator symbol(TensorHandle a, TensorHandle b) { return binaryNode(op, a, b); }                 \
  template <class T>                                                                                                   \
    requires std::constructible_from<Literal, T>                                                                       \
  TensorHandle operator symbol(TensorHandle a, T b) {                                                                  \
    return binaryNode(op, a, b);                                                                                       \
  }                                                                                                                    \
  template <class T>                                                                                                   \
    requires std::constructible_from<Literal, T>                                                                       \
  TensorHandle operator symbol(T a, TensorHandle b) {                                                                  \
    return binaryNode(op, a, b);                                                                                       \
  }
RL_OPERATOR(+, "add")
RL_OPERATOR(-, "sub")
RL_OPERATOR(*, "mul")
RL_OPERATOR(/, "div")
#undef RL_OPERATOR
inline TensorHandle operator-(TensorHandle x) { return negated(x); }

} // namespace rl
