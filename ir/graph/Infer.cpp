// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shape and type inference: the shared pieces, the entry points, and the elementwise, layout, creation and reduction ops.
// The others are in InferTensorOps.cpp and InferQuantised.cpp.
#include "ir/graph/Infer.h"

#include "runtime/base/JsonPointer.h"

#include <algorithm>
#include <cmath>

namespace rl {
namespace graph {

Error nodeError(std::string message) { return invalid("", std::move(message)); }
Error attrError(std::string_view name, std::string message) {
  return invalid("/attrs/" + escapePointer(name), std::move(message));
}
Error operandError(size_t operand, std::string message) {
  return invalid("/inputs/" + std::to_string(operand), std::move(message));
}

std::optional<int64_t> product(const Shape &shape) {
  if (std::find(shape.begin(), shape.end(), 0) != shape.end())
    return 0;
  int64_t n = 1;
  for (int64_t extent : shape)
    if (__builtin_mul_overflow(n, extent, &n))
      return std::nullopt;
  return n;
}

std::optional<std::string> tensorProblem(const TensorType &type) {
  if (type.rank() > kMaxRank)
    return "rank " + std::to_string(type.rank()) + " is more than " + std::to_string(kMaxRank);
  int64_t bytes = static_cast<int64_t>(dtypeSize(type.dtype));
  for (int64_t extent : type.shape) {
    if (extent < 0)
      return "extent " + std::to_string(extent) + " is negative";
    if (__builtin_mul_overflow(bytes, std::max<int64_t>(extent, 1), &bytes))
      return rl::str(type) + " is too large: more than 2^63 - 1 bytes";
  }
  return std::nullopt;
}

std::optional<Shape> broadcast(const Shape &a, const Shape &b) {
  const Shape &longer = a.size() >= b.size() ? a : b, &shorter = a.size() >= b.size() ? b : a;
  Shape out = longer;
  const size_t lead = longer.size() - shorter.size();
  for (size_t i = 0; i < shorter.size(); ++i) {
    int64_t &extent = out[lead + i];
    if (extent == 1)
      extent = shorter[i];
    else if (shorter[i] != 1 && shorter[i] != extent)
      return std::nullopt;
  }
  return out;
}

bool broadcastsTo(const Shape &from, const Shape &to) {
  if (from.size() > to.size())
    return false;
  const size_t lead = to.size() - from.size();
  for (size_t i = 0; i < from.size(); ++i)
    if (from[i] != 1 && from[i] != to[lead + i])
      return false;
  return true;
}

Status checkArity(OpKind op, size_t operands, size_t outputs) {
  const OpInfo &info = opInfo(op);
  auto count = [](int least, int most, const char *noun) {
    std::string text = std::to_string(least);
    if (most < 0)
      text += " or more";
    else if (most != least)
      text += (most == least + 1 ? " or " : " to ") + std::to_string(most);
    return text + " " + noun + (least == 1 && most == 1 ? "" : "s");
  };
  const int in = static_cast<int>(std::min<size_t>(operands, INT32_MAX)),
            out = static_cast<int>(std::min<size_t>(outputs, INT32_MAX));
  if (in < info.minInputs || (info.maxInputs >= 0 && in > info.maxInputs))
    return invalid("/inputs", std::string(info.name) + " takes " + count(info.minInputs, info.maxInputs, "operand") +
                                  ", not " + std::to_string(operands));
  if (out < info.minOutputs || out > info.maxOutputs)
    return invalid("/outputs", std::string(info.name) + " has " + count(info.minOutputs, info.maxOutputs, "result") +
                                   ", not " + std::to_string(outputs));
  return {};
}

namespace {

/// Operand k takes part in arithmetic.
Status noF8(OpKind op, const Operands &in) {
  for (size_t k = 0; k < in.size(); ++k)
    if (!in[k].literal && isF8(in[k].type.dtype))
      return operandError(k, std::string(opInfo(op).name) + " does not compute on " + dtypeName(in[k].type.dtype) +
                                 ": cast it to a wider type first");
  return {};
}

Error wrongType(OpKind op, size_t operand, DType type, std::string_view wants) {
  return operandError(operand,
                      std::string(opInfo(op).name) + " needs " + std::string(wants) + ", not " + dtypeName(type));
}

bool isBitwise(OpKind op) {
  return op == OpKind::BitwiseNot || op == OpKind::BitwiseAnd || op == OpKind::BitwiseOr || op == OpKind::BitwiseXor;
}

/// Ops that PyTorch does not define on bools alone.
bool refusesBool(OpKind op) {
  switch (op) {
  case OpKind::Abs:
  case OpKind::Neg:
  case OpKind::Relu:
  case OpKind::Floor:
  case OpKind::Ceil:
  case OpKind::Round:
  case OpKind::Trunc:
  case OpKind::Sub:
  case OpKind::FloorDivide:
  case OpKind::Fmod:
  case OpKind::Remainder:
  case OpKind::Pow: return true;
  default: return false;
  }
}

bool makesBool(OpKind op) {
  switch (op) {
  case OpKind::IsNan:
  case OpKind::IsInf:
  case OpKind::IsFinite:
  case OpKind::LogicalNot:
  case OpKind::LogicalAnd:
  case OpKind::LogicalOr:
  case OpKind::LogicalXor: return true;
  default: return isComparison(op);
  }
}

/// A literal stands beside a tensor in the tensor's own type: it must be a value of it.
Status literalsFit(const Operands &in, DType type, size_t first) {
  for (size_t k = first; k < in.size(); ++k) {
    if (!in[k].literal)
      continue;
    ScalarIn value = scalarIn(*in[k].literal, type);
    if (!value.problem.empty())
      return operandError(k, value.problem);
  }
  return {};
}

Result<DType> elementwiseType(OpKind op, const Operands &in, const Attrs &attrs) {
  if (op == OpKind::Cast)
    return attrs.dtype;
  RL_TRY(noF8(op, in));
  if (op == OpKind::Where) {
    const OperandType &cond = in[0];
    if (cond.literal ? cond.literal->kind != Scalar::Bool : cond.type.dtype != DType::Bool)
      return operandError(0, "the condition must be bool, not " +
                                 (cond.literal ? graph::str(*cond.literal) : std::string(dtypeName(cond.type.dtype))));
    DType type = *promoteOperands({in[1], in[2]});
    RL_TRY(literalsFit(in, type, 1));
    return type;
  }
  if (op == OpKind::Clamp) {
    if (!attrs.min && !attrs.max)
      return nodeError("clamp needs 'min', 'max' or both");
    Operands all = in;
    for (const auto &bound : {attrs.min, attrs.max})
      if (bound)
        all.push_back({{}, *bound});
    DType type = *promoteOperands(all);
    for (auto [name, bound] : {std::pair{"min", &attrs.min}, std::pair{"max", &attrs.max}})
      if (*bound)
        if (ScalarIn value = scalarIn(**bound, type); !value.problem.empty())
          return attrError(name, value.problem);
    return type;
  }
  const DType type = *promoteOperands(in);
  if (makesFloat(op))
    return isFloat(type) ? type : DType::F32;
  if (isBitwise(op) && isFloat(type)) {
    for (size_t k = 0; k < in.size(); ++k)
      if (in[k].literal ? in[k].literal->kind == Scalar::Float : isFloat(in[k].type.dtype))
        return operandError(
            k, std::string(opInfo(op).name) + " needs integers or bools, not " +
                   (in[k].literal ? graph::str(*in[k].literal) : std::string(dtypeName(in[k].type.dtype))));
  }
  if (type == DType::Bool && refusesBool(op))
    return operandError(0, std::string(opInfo(op).name) + " is not defined on bool: cast it first");
  RL_TRY(literalsFit(in, type, 0));
  if (makesBool(op))
    return DType::Bool;
  return op == OpKind::Square && type == DType::Bool ? DType::I64 : type;
}

Error badBroadcast(const Operands &in) {
  std::string shapes;
  for (const OperandType &operand : in)
    shapes += (shapes.empty() ? "" : ", ") + rl::str(operand.type.shape);
  return nodeError("shapes do not broadcast: " + shapes);
}

/// Attributes that are dimensions of a tensor of this rank, as the dialect may hand them over.
Status dimInRange(const char *name, int64_t dim, int64_t rank) {
  if (dim < 0 || dim >= rank)
    return attrError(name, "dimension " + std::to_string(dim) + " is out of range for rank " + std::to_string(rank));
  return {};
}

Status distinctDims(const std::vector<int64_t> &dims, int64_t rank) {
  uint64_t seen = 0;
  for (int64_t dim : dims) {
    RL_TRY(dimInRange("dims", dim, rank));
    if (seen >> dim & 1)
      return attrError("dims", "dimension " + std::to_string(dim) + " is listed twice");
    seen |= uint64_t{1} << dim;
  }
  return {};
}

Status shapeAttribute(const Shape &shape, DType type) {
  if (std::optional<std::string> problem = tensorProblem({type, shape}))
    return attrError("shape", *problem);
  return {};
}

Result<TensorType> inferCat(const Operands &in, const Attrs &attrs) {
  TensorType out = in[0].type;
  RL_TRY(dimInRange("dim", attrs.dim, out.rank()));
  for (size_t k = 1; k < in.size(); ++k) {
    const TensorType &type = in[k].type;
    bool fits = type.rank() == out.rank();
    for (int64_t d = 0; fits && d < out.rank(); ++d)
      fits = d == attrs.dim || type.shape[d] == out.shape[d];
    if (!fits)
      return operandError(k, "shapes do not fit for cat along dimension " + std::to_string(attrs.dim) + ": " +
                                 rl::str(in[0].type.shape) + ", " + rl::str(type.shape));
    if (type.dtype != out.dtype && (isF8(type.dtype) || isF8(out.dtype)))
      return operandError(k, std::string(dtypeName(type.dtype)) + " beside " + dtypeName(out.dtype) +
                                 ": an f8 type does not promote, cast first");
    out.dtype = promote(out.dtype, type.dtype);
    if (__builtin_add_overflow(out.shape[attrs.dim], type.shape[attrs.dim], &out.shape[attrs.dim]))
      return nodeError("the result is too large: more than 2^63 - 1 elements");
  }
  return out;
}

Result<TensorType> inferPad(const Operands &in, const Attrs &attrs) {
  TensorType out = in[0].type;
  for (auto [name, list] : {std::pair{"low", &attrs.low}, std::pair{"high", &attrs.high}}) {
    if (list->size() != out.shape.size())
      return attrError(name, "'" + std::string(name) + "' has " + std::to_string(list->size()) + " entries for rank " +
                                 std::to_string(out.rank()));
    for (size_t d = 0; d < list->size(); ++d) {
      if ((*list)[d] < 0)
        return attrError(name, "padding " + std::to_string((*list)[d]) + " is negative; slice removes elements");
      if (__builtin_add_overflow(out.shape[d], (*list)[d], &out.shape[d]))
        return attrError(name, "the result is too large: more than 2^63 - 1 elements");
    }
  }
  if (ScalarIn value = scalarIn(attrs.value, out.dtype); !value.problem.empty())
    return attrError("value", value.problem);
  return out;
}

Result<TensorType> inferSlice(const Operands &in, const Attrs &attrs) {
  TensorType out = in[0].type;
  RL_TRY(dimInRange("dim", attrs.dim, out.rank()));
  const int64_t extent = out.shape[attrs.dim];
  bool valid = attrs.length >= 0 && attrs.step != 0;
  if (valid && attrs.length > 0) {
    const __int128 last = attrs.start + static_cast<__int128>(attrs.length - 1) * attrs.step;
    valid = attrs.start >= 0 && attrs.start < extent && last >= 0 && last < extent;
  }
  if (!valid)
    return nodeError("slice from " + std::to_string(attrs.start) + " by " + std::to_string(attrs.step) + ", " +
                     std::to_string(attrs.length) + " elements, leaves the extent " + std::to_string(extent));
  out.shape[attrs.dim] = attrs.length;
  return out;
}

Result<TensorType> layoutType(OpKind op, const Operands &in, const Attrs &attrs) {
  if (op == OpKind::Full || op == OpKind::Iota) {
    RL_TRY(shapeAttribute(attrs.shape, attrs.dtype));
    if (op == OpKind::Full) {
      if (ScalarIn value = scalarIn(attrs.value, attrs.dtype); !value.problem.empty())
        return attrError("value", value.problem);
    } else {
      RL_TRY(dimInRange("dim", attrs.dim, static_cast<int64_t>(attrs.shape.size())));
      if (isF8(attrs.dtype) || attrs.dtype == DType::Bool)
        return attrError("dtype", std::string("iota does not count in ") + dtypeName(attrs.dtype));
    }
    return TensorType{attrs.dtype, attrs.shape};
  }
  const TensorType &x = in[0].type;
  TensorType out = x;
  switch (op) {
  case OpKind::Reshape:
    RL_TRY(shapeAttribute(attrs.shape, x.dtype));
    out.shape = attrs.shape;
    if (out.elements() != x.elements())
      return attrError("shape", rl::str(x.shape) + " does not reshape to " + rl::str(attrs.shape) + ": " +
                                    std::to_string(x.elements()) + " elements to " + std::to_string(out.elements()));
    return out;
  case OpKind::Permute:
    RL_TRY(distinctDims(attrs.dims, x.rank()));
    if (static_cast<int64_t>(attrs.dims.size()) != x.rank())
      return attrError("dims", "'dims' must list every one of the " + std::to_string(x.rank()) + " dimensions once");
    for (size_t d = 0; d < attrs.dims.size(); ++d)
      out.shape[d] = x.shape[attrs.dims[d]];
    return out;
  case OpKind::Expand:
    RL_TRY(shapeAttribute(attrs.shape, x.dtype));
    if (!broadcastsTo(x.shape, attrs.shape))
      return attrError("shape", rl::str(x.shape) + " does not expand to " + rl::str(attrs.shape));
    out.shape = attrs.shape;
    return out;
  case OpKind::Unsqueeze:
    RL_TRY(dimInRange("dim", attrs.dim, x.rank() + 1));
    out.shape.insert(out.shape.begin() + attrs.dim, 1);
    return out;
  case OpKind::Squeeze:
    RL_TRY(dimInRange("dim", attrs.dim, x.rank()));
    if (x.shape[attrs.dim] != 1)
      return attrError("dim", "dimension " + std::to_string(attrs.dim) + " of " + rl::str(x.shape) + " has extent " +
                                  std::to_string(x.shape[attrs.dim]) + ", and only an extent of 1 can be squeezed");
    out.shape.erase(out.shape.begin() + attrs.dim);
    return out;
  case OpKind::Slice: return inferSlice(in, attrs);
  case OpKind::Cat: return inferCat(in, attrs);
  case OpKind::Pad: return inferPad(in, attrs);
  default: // flip
    RL_TRY(distinctDims(attrs.dims, x.rank()));
    return out;
  }
}

DType reductionType(OpKind op, DType x) {
  switch (op) {
  case OpKind::Sum:
  case OpKind::Prod: return isFloat(x) ? x : DType::I64;
  case OpKind::Mean:
  case OpKind::LogSumExp: return isFloat(x) ? x : DType::F32;
  case OpKind::Any:
  case OpKind::All: return DType::Bool;
  case OpKind::ArgMax:
  case OpKind::ArgMin: return DType::I64;
  default: return x;
  }
}

} // namespace

Result<Types> inferElementwise(OpKind op, const Operands &in, const Attrs &attrs) {
  TensorType out;
  RL_ASSIGN(out.dtype, elementwiseType(op, in, attrs));
  for (const OperandType &operand : in) {
    if (operand.literal)
      continue;
    std::optional<Shape> shape = broadcast(out.shape, operand.type.shape);
    if (!shape)
      return badBroadcast(in);
    out.shape = std::move(*shape);
  }
  return Types{std::move(out)};
}

Result<Types> inferLayout(OpKind op, const Operands &in, const Attrs &attrs) {
  RL_ASSIGN(TensorType out, layoutType(op, in, attrs));
  return Types{std::move(out)};
}

Result<Types> inferReduction(OpKind op, const Operands &in, const Attrs &attrs) {
  RL_TRY(noF8(op, in));
  const TensorType &x = in[0].type;
  const bool one = op == OpKind::ArgMax || op == OpKind::ArgMin;
  if (one)
    RL_TRY(dimInRange("dim", attrs.dim, x.rank()));
  else
    RL_TRY(distinctDims(attrs.dims, x.rank()));
  if (op == OpKind::Var && !isFloat(x.dtype))
    return wrongType(op, 0, x.dtype, "a float tensor");
  if (op == OpKind::Var && !std::isfinite(attrs.correction))
    return attrError("correction", "'correction' must be finite");
  const std::vector<int64_t> dims = one ? std::vector<int64_t>{attrs.dim} : attrs.dims;
  const bool needsElements = one || op == OpKind::Amax || op == OpKind::Amin;
  TensorType out{reductionType(op, x.dtype), {}};
  for (int64_t d = 0; d < x.rank(); ++d) {
    const bool reduced = std::find(dims.begin(), dims.end(), d) != dims.end();
    if (reduced && needsElements && x.shape[d] == 0)
      return nodeError(std::string(opInfo(op).name) + " over nothing: dimension " + std::to_string(d) + " of " +
                       rl::str(x.shape) + " is empty");
    if (!reduced || attrs.keepdim)
      out.shape.push_back(reduced ? 1 : x.shape[d]);
  }
  return Types{std::move(out)};
}

} // namespace graph

namespace {

using namespace graph;

/// Literals of ops that are not elementwise as the rank-0 tensors that they stand for.
Result<Operands> asTensors(OpKind op, const Operands &operands) {
  Operands out = operands;
  for (size_t k = 0; k < out.size(); ++k) {
    if (!out[k].literal)
      continue;
    out[k].type = {literalType(op, k, *out[k].literal), {}};
    if (ScalarIn value = scalarIn(*out[k].literal, out[k].type.dtype); !value.problem.empty())
      return operandError(k, value.problem);
    out[k].literal.reset();
  }
  return out;
}

Status checkOperands(OpKind op, const Operands &operands, size_t outputs) {
  RL_TRY(checkArity(op, operands.size(), outputs));
  for (size_t k = 0; k < operands.size(); ++k)
    if (!operands[k].literal)
      if (std::optional<std::string> problem = tensorProblem(operands[k].type))
        return operandError(k, *problem);
  return {};
}

Result<Types> dispatch(OpKind op, const Operands &in, size_t outputs, const Attrs &attrs) {
  switch (opInfo(op).cls) {
  case OpClass::Unary:
  case OpClass::Binary:
  case OpClass::Ternary: return inferElementwise(op, in, attrs);
  case OpClass::Shape:
  case OpClass::Creation: return inferLayout(op, in, attrs);
  case OpClass::Reduction: return inferReduction(op, in, attrs);
  case OpClass::Norm: return inferNorm(op, in, attrs);
  case OpClass::Matrix: return inferMatrix(op, in, attrs);
  case OpClass::Indexing: return inferIndexing(op, in, attrs);
  case OpClass::Attention: return inferAttention(in, attrs);
  case OpClass::Loss: return inferCrossEntropy(in, attrs);
  case OpClass::Quant: return inferQuantised(op, in, outputs, attrs);
  }
  return nodeError("unknown op class");
}

Result<Types> inferChecked(OpKind op, const Operands &in, size_t outputs, const Attrs &attrs) {
  RL_ASSIGN(Types types, dispatch(op, in, outputs, attrs));
  for (const TensorType &type : types)
    if (std::optional<std::string> problem = tensorProblem(type))
      return nodeError("result: " + *problem);
  return types;
}

bool hasLiteral(const Operands &operands) {
  return std::any_of(operands.begin(), operands.end(), [](const OperandType &o) { return o.literal.has_value(); });
}

} // namespace

Result<Inferred> inferNode(OpKind op, const Operands &given, size_t outputs,
                           const std::map<std::string, AttrValue> &attrs, const DimValues &dims) {
  RL_TRY(checkOperands(op, given, outputs));
  Operands tensors;
  const bool convert = !isElementwise(op) && hasLiteral(given);
  if (convert) {
    RL_ASSIGN(tensors, asTensors(op, given));
  }
  const Operands &operands = convert ? tensors : given;
  Inferred out;
  RL_ASSIGN(out.attrs, readAttributes(op, operands, attrs, dims));
  RL_ASSIGN(out.results, inferChecked(op, operands, outputs, out.attrs));
  return out;
}

Result<Types> inferResults(OpKind op, const Operands &given, size_t outputs, const Attrs &attrs) {
  RL_TRY(checkOperands(op, given, outputs));
  if (isElementwise(op) || !hasLiteral(given))
    return inferChecked(op, given, outputs, attrs);
  RL_ASSIGN(Operands operands, asTensors(op, given));
  return inferChecked(op, operands, outputs, attrs);
}

} // namespace rl
