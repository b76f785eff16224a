// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The graph, twice. A GraphSpec is what a user wrote (through JSON, the C++ builder or the C interface): names, symbolic
// extents, attributes as given. A Graph is its meaning for one choice of the symbolic extents: every value typed, nodes in
// topological order, every attribute present, non-negative and in range. `resolve` makes the second from the first and is
// the only place where a graph's validity is decided; every front end gets the same checks and the same messages from it.
//
// No MLIR and no JSON here.
#pragma once

#include "runtime/base/DType.h"
#include "runtime/base/Result.h"

#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace rl {

/// Every op of the format. opInfo(OpKind) has its name, arity and attributes; Ops.def is the table.
enum class OpKind : uint8_t {
#define RL_OP(Enum, Name, Class, MinIn, MaxIn, MinOut, MaxOut) Enum,
#include "ir/graph/Ops.def"
};

/// What kind of rule an op follows. Emitters, passes and tests go by the class first.
enum class OpClass : uint8_t {
  Unary,
  Binary,
  Ternary,
  Shape,
  Creation,
  Reduction,
  Norm,
  Matrix,
  Indexing,
  Attention,
  Loss,
  Quant
};

/// A JSON number or boolean given in the place of a tensor, or as an attribute: it is weakly typed.
struct Scalar {
  enum Kind : uint8_t { Bool, Int, Float } kind = Float;
  int64_t i = 0; ///< Bool (0 or 1) and Int
  double f = 0;  ///< Float
  double asDouble() const { return kind == Float ? f : static_cast<double>(i); }
  bool operator==(const Scalar &) const = default;
};

/// An extent as written: a number, or the name of a symbolic dimension. In the attributes of reshape -1 is a number too.
struct Dim {
  int64_t value = 0;
  std::string symbol; ///< empty: `value` holds
  bool operator==(const Dim &) const = default;
};

/// An attribute as written.
using AttrValue = std::variant<Scalar, std::string, std::vector<Dim>>;

struct TensorSpec {
  std::string name;
  DType dtype = DType::F32;
  std::vector<Dim> shape;
};
struct OperandSpec {
  std::string name;              ///< a tensor's name, or empty:
  std::optional<Scalar> literal; ///< a scalar literal
};
struct NodeSpec {
  std::string op;
  std::vector<OperandSpec> inputs;
  std::vector<std::string> outputs;
  std::map<std::string, AttrValue> attrs;
  std::string precision; ///< a dtype's name that pins this node; empty: none
  std::string source;    ///< free text
};
struct DimSpec {
  std::string name;
  int64_t min = 1, max = INT32_MAX;
};
/// Of PrecisionPolicy::observed.
inline constexpr double kLeastObserved = 1e-6, kMostObserved = 1e6;

struct PrecisionPolicy {
  std::string mode = "keep"; ///< keep | bf16 | f16 | fp8 | int8 | auto
  double tolerance = 0.02;
  std::map<std::string, DType> pin;
  /// By output: the error that `ridgeline calibrate` measured over the one that is estimated without data.
  std::map<std::string, double> observed;
  bool operator==(const PrecisionPolicy &) const = default;
};
struct GradientSpec {
  std::vector<std::pair<std::string, std::string>> of; ///< output -> input that holds its cotangent
  std::vector<std::string> wrt;
  std::string loss;
  double lossScale = 1;
};

struct GraphSpec {
  std::string name;
  std::vector<TensorSpec> inputs, parameters; ///< in the order of the file
  std::vector<NodeSpec> nodes;
  std::vector<std::string> outputs;
  std::vector<DimSpec> dims;
  bool strict = false;
  PrecisionPolicy precision;
  std::optional<GradientSpec> gradient;
};

using ValueId = uint32_t;
using NodeId = uint32_t;
inline constexpr uint32_t kNone = UINT32_MAX;

/// A typed tensor of a Graph.
struct Value {
  enum Kind : uint8_t { Input, Parameter, Result } kind = Input;
  std::string name;
  TensorType type;
  NodeId node = kNone; ///< of a Result: the node that defines it
  uint32_t index = 0;  ///< place among the graph's inputs or parameters, or among the node's outputs
};

struct Operand {
  ValueId value = kNone; ///< kNone: `literal` holds
  Scalar literal;
  bool isLiteral() const { return value == kNone; }
};

enum class Granularity : uint8_t { Tensor, Axis, Token, Block };

/// Every attribute of the format, checked and with its default filled in. Which of them an op has: see Ops.cpp. Dimension
/// numbers are non-negative here. `slice` has start, step and the extent of its result in `length` (0 <= start < extent
/// where length > 0; step may be negative).
struct Attrs {
  bool tanhApproximation = false; // gelu
  // Not of the format, set by passes: an exponential in a softmax whose result is rounded to 16 bits, which gives 2^24 e^x; a quotient that is within
  // 2^20 wherever its divisor is within 2^-64 and 2^64; a product of 8-bit floats that the tensor cores may add up by themselves; a
  // permutation that is stored for a product; the cast of a product's sum to its node's type.
  bool fast = false;
  // Set with the kernels: some kernel stores the 16-bit result and another uses it, and all have what memory has of it, within the kernel
  // that stores it and where it is computed again. (A maximum of what was not rounded is no maximum of what was.)
  bool rounded = false;
  DType dtype = DType::F32;       // cast full iota quantize dequantize fake_quantize; out_dtype of matmul and
                                  // scaled_matmul (without one: the type that the result has)
  bool saturate = true;           // cast
  std::optional<Scalar> min, max; // clamp
  std::vector<int64_t> shape;     // reshape expand full iota: the result's shape
  std::vector<int64_t> dims;      // permute, flip; reductions: ascending, all of them where the file has none
  bool keepdim = false;           // reductions
  int64_t dim = 0;                // unsqueeze squeeze slice cat iota argmax argmin softmax index_select gather ...
  int64_t start = 0, step = 1, length = 0;     // slice
  std::vector<int64_t> low, high;              // pad
  Scalar value;                                // pad full
  double correction = 1;                       // var
  double eps = 0;                              // layer_norm rms_norm
  bool hasWeight = false, hasBias = false;     // layer_norm rms_norm linear: which optional operands are there
  bool transposeA = false, transposeB = false; // matmul scaled_matmul
  bool causal = false;                         // scaled_dot_product_attention
  std::optional<double> scale;                 // scaled_dot_product_attention
  int64_t ignoreIndex = -100;                  // cross_entropy
  Granularity granularity = Granularity::Tensor, granularityA = Granularity::Tensor, granularityB = Granularity::Tensor;
  int64_t axis = 0, axisA = 0, axisB = 0;
  int64_t block[2] = {1, 1}, blockA[2] = {1, 1}, blockB[2] = {1, 1}; // a block [n] of one number is {1, n}
  DType scaleDtype = DType::F32;                                     // quantize fake_quantize
  bool asymmetric = false;                                           // quantize dequantize fake_quantize
  bool fastAccumulate = false;                                       // scaled_matmul
};

struct Node {
  OpKind op;
  std::vector<Operand> inputs;
  std::vector<ValueId> outputs;
  Attrs attrs;
  std::optional<DType> pin;
  std::string source;
  uint32_t specIndex = 0; ///< place in GraphSpec::nodes: its JSON pointer is /nodes/specIndex
  std::string pointer() const { return "/nodes/" + std::to_string(specIndex); }
};

/// A valid graph with all extents known.
struct Graph {
  std::string name;
  std::vector<Value> values;
  std::vector<Node> nodes; ///< topological order
  std::vector<ValueId> inputs, parameters, outputs;
  bool strict = false;
  PrecisionPolicy precision;
  std::optional<GradientSpec> gradient;

  const TensorType &type(ValueId v) const { return values[v].type; }
  /// "node h (linear)" with its source text, for messages.
  std::string describe(NodeId) const;
};

struct AttrInfo {
  enum Type : uint8_t { Boolean, Integer, Number, ScalarValue, String, DTypeName, IntList, Shape } type;
  const char *name;
  bool required = false;
  const char *choices = nullptr; ///< of a String or DTypeName: the words it may be, with '|' between; null: any
};
struct OpInfo {
  OpKind kind;
  const char *name;
  OpClass cls;
  int minInputs, maxInputs, minOutputs, maxOutputs; ///< maxInputs -1: any number
  std::vector<AttrInfo> attrs;
};
const OpInfo &opInfo(OpKind);
const OpInfo *findOp(std::string_view name);
const std::vector<OpInfo> &allOps();

/// Values of the symbolic dimensions, by name.
using DimValues = std::map<std::string, int64_t>;

/// Checks everything and types everything. Errors are Code::Invalid with the JSON pointer of the place in the graph file and
/// the node's output name in the message. `dims` must give every symbolic dimension a value within its range.
Result<Graph> resolve(const GraphSpec &, const DimValues &dims = {});

/// Checks a spec as far as it can be checked before the symbolic extents are known: there must be extents within the ranges
/// for which it resolves (the least, the greatest and some others are tried; the error is that of the least), and every
/// dimension must be one of an input or a parameter. Returns the types of inputs, parameters and outputs with -1 for an
/// extent that is not fixed.
struct Signature {
  std::vector<std::pair<std::string, TensorType>> inputs, parameters, outputs;
};
Result<Signature> checkSpec(const GraphSpec &);

/// The extents of the symbolic dimensions, from the shapes that a call's inputs and parameters have (in the order of the
/// spec). Errors: a rank or a fixed extent differs, a symbol has two values, a value out of its range, a symbol that no
/// shape mentions; their pointer is "/tensor", or "/dims/NAME" for the last.
Result<DimValues> bindDims(const GraphSpec &, const std::vector<std::vector<int64_t>> &inputShapes,
                           const std::vector<std::vector<int64_t>> &parameterShapes);

/// One op's checks and result types, used by `resolve` and by the dialect's verifiers. `operands` are the types of the
/// tensor operands (literals: `literal` set). On success fills in `attrs` and the result types.
struct OperandType {
  TensorType type;
  std::optional<Scalar> literal;
};
struct Inferred {
  Attrs attrs;
  std::vector<TensorType> results;
};
/// The pointers of errors are relative to the node: "/attrs/dim", "/inputs/1", "".
Result<Inferred> inferNode(OpKind, const std::vector<OperandType> &operands, size_t outputs,
                           const std::map<std::string, AttrValue> &attrs, const DimValues &dims);
/// The same from attributes that are already in resolved form (the dialect's).
Result<std::vector<TensorType>> inferResults(OpKind, const std::vector<OperandType> &operands, size_t outputs,
                                             const Attrs &attrs);

/// PyTorch's promote_types. i8 with u8 is i32, as the format has no i16. An f8 type with another type has no common type in
/// PyTorch: f32 here, and every op refuses such operands before it comes to that.
DType promote(DType, DType);
/// The type of a binary op's operands together, literals weak; nullopt where one is f8 and where there are none. Literals
/// alone: bool, i64 or f32.
std::optional<DType> promoteOperands(const std::vector<OperandType> &);
/// The type an elementwise node computes in: f32 for floats and for what makes floats of integers (div, exp, ...), else the
/// promoted integer or bool type (`where`: of its two branches). For clamp give the bounds as literal operands behind x.
DType computeType(OpKind, const std::vector<OperandType> &);

} // namespace rl
