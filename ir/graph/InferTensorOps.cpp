// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shape and type inference of the norms, matrix products, indexing, attention and the loss.
#include "ir/graph/Infer.h"

#include <cmath>

namespace rl::graph {
namespace {

std::string name(OpKind op) { return opInfo(op).name; }

Status needsFloat(OpKind op, const Operands &in, size_t operand, const char *what) {
  DType type = in[operand].type.dtype;
  if (!isArithmeticFloat(type))
    return operandError(operand, name(op) + " needs " + what + " of f32, f16 or bf16, not " + dtypeName(type));
  return {};
}

Status needsRank(OpKind op, const Operands &in, size_t operand, const char *what, int64_t least,
                 int64_t most = kMaxRank) {
  const Shape &shape = in[operand].type.shape;
  const int64_t rank = in[operand].type.rank();
  if (rank >= least && rank <= most)
    return {};
  return operandError(operand, name(op) + " needs " + what + " of rank " + std::to_string(least) +
                                   (most == least ? "" : " or more") + ", not of shape " + rl::str(shape));
}

Status needsShape(OpKind op, const Operands &in, size_t operand, const char *what, const Shape &shape) {
  if (in[operand].type.shape == shape)
    return {};
  return operandError(operand, name(op) + " needs " + what + " of shape " + rl::str(shape) + ", not " +
                                   rl::str(in[operand].type.shape));
}

Status needsIndices(OpKind op, const Operands &in, size_t operand) {
  DType type = in[operand].type.dtype;
  if (type != DType::I32 && type != DType::I64)
    return operandError(operand, name(op) + " needs indices of i32 or i64, not " + dtypeName(type));
  return {};
}

Status dimOf(const Operands &in, int64_t dim) {
  if (dim < 0 || dim >= in[0].type.rank())
    return attrError("dim", "dimension " + std::to_string(dim) + " is out of range for rank " +
                                std::to_string(in[0].type.rank()));
  return {};
}

Shape leading(const Shape &shape, size_t without) { return Shape(shape.begin(), shape.end() - without); }

} // namespace

Result<Shape> productShape(const Operands &in, bool transposeA, bool transposeB) {
  const Shape &a = in[0].type.shape, &b = in[1].type.shape;
  const bool vectorA = a.size() == 1, vectorB = b.size() == 1;
  if (vectorA && transposeA)
    return attrError("transpose_a", "a vector " + rl::str(a) + " has no transpose");
  if (vectorB && transposeB)
    return attrError("transpose_b", "a vector " + rl::str(b) + " has no transpose");
  const int64_t kA = a[a.size() - (transposeA ? 2 : 1)];
  const int64_t kB = b[b.size() - (vectorB || transposeB ? 1 : 2)];
  auto described = [&] {
    return rl::str(a) + (transposeA ? " transposed" : "") + " x " + rl::str(b) + (transposeB ? " transposed" : "");
  };
  if (kA != kB)
    return nodeError("shapes do not fit for a matrix product: " + described() + ", K is " + std::to_string(kA) +
                     " and " + std::to_string(kB));
  std::optional<Shape> out = broadcast(leading(a, vectorA ? 1 : 2), leading(b, vectorB ? 1 : 2));
  if (!out)
    return nodeError("batch dimensions do not broadcast: " + described());
  if (!vectorA)
    out->push_back(a[a.size() - (transposeA ? 1 : 2)]);
  if (!vectorB)
    out->push_back(b[b.size() - (transposeB ? 2 : 1)]);
  return *out;
}

Result<std::optional<DType>> productType(const Operands &in) {
  const DType a = in[0].type.dtype, b = in[1].type.dtype;
  for (size_t k = 0; k < 2; ++k) {
    const DType type = in[k].type.dtype;
    if (type == DType::Bool || type == DType::F8E8M0)
      return operandError(k, std::string("a matrix product of ") + dtypeName(type) + " is not defined: cast it first");
  }
  if (isF8(a) != isF8(b))
    return operandError(isF8(a) ? 0 : 1, std::string("a matrix product of ") + dtypeName(a) + " and " + dtypeName(b) +
                                             ": an f8 type does not promote, cast first");
  if (isF8(a))
    return a == b ? std::optional(a) : std::nullopt;
  if (dtypeSize(a) == 1 && dtypeSize(b) == 1)
    return std::optional(DType::I32);
  return std::optional(promote(a, b));
}

Result<Types> inferNorm(OpKind op, const Operands &in, const Attrs &attrs) {
  RL_TRY(needsFloat(op, in, 0, "a tensor"));
  TensorType out = in[0].type;
  if (op == OpKind::Softmax || op == OpKind::LogSoftmax) {
    RL_TRY(dimOf(in, attrs.dim));
    return Types{out};
  }
  RL_TRY(needsRank(op, in, 0, "a tensor", 1));
  if (!(attrs.eps >= 0 && std::isfinite(attrs.eps)))
    return attrError("eps", "'eps' must be 0 or more and finite");
  if (attrs.hasWeight != (in.size() > 1) || attrs.hasBias != (in.size() > 2))
    return invalid("/inputs", "the operands are not those that the attributes tell of");
  for (size_t k = 1; k < in.size(); ++k) {
    const char *what = k == 1 ? "a weight" : "a bias";
    RL_TRY(needsFloat(op, in, k, what));
    RL_TRY(needsShape(op, in, k, what, {out.shape.back()}));
    out.dtype = promote(out.dtype, in[k].type.dtype);
  }
  return Types{out};
}

Result<Types> inferMatrix(OpKind op, const Operands &in, const Attrs &attrs) {
  RL_ASSIGN(std::optional<DType> type, productType(in));
  if (op == OpKind::Matmul) {
    RL_TRY(needsRank(op, in, 0, "a left operand", 1));
    RL_TRY(needsRank(op, in, 1, "a right operand", 1));
    RL_ASSIGN(Shape shape, productShape(in, attrs.transposeA, attrs.transposeB));
    const bool floats = !type || isFloat(*type);
    if (attrs.dtype == DType::Bool || attrs.dtype == DType::F8E8M0 || (floats && !isFloat(attrs.dtype)))
      return attrError("out_dtype", std::string("a product of ") + dtypeName(in[0].type.dtype) + " and " +
                                        dtypeName(in[1].type.dtype) + " has no result of type " +
                                        dtypeName(attrs.dtype));
    return Types{{attrs.dtype, std::move(shape)}};
  }
  RL_TRY(needsRank(op, in, 0, "an input", 1));
  RL_TRY(needsRank(op, in, 1, "a weight [N, K]", 2, 2));
  RL_ASSIGN(Shape shape, productShape(in, false, true));
  if (attrs.hasBias != (in.size() > 2))
    return invalid("/inputs", "the operands are not those that the attributes tell of");
  if (in.size() > 2) {
    const DType bias = in[2].type.dtype;
    RL_TRY(needsShape(op, in, 2, "a bias", {in[1].type.shape[0]}));
    if (isF8(bias) || bias == DType::Bool)
      return operandError(2, std::string("a bias of ") + dtypeName(bias) + " is not defined: cast it first");
    if (!type || isF8(*type)) { // the f32 sum of an f8 product meets the bias, and takes its type
      if (!isFloat(bias))
        return operandError(2, std::string("a bias of ") + dtypeName(bias) +
                                   " on an f8 product: it must be f32, f16 or bf16");
      type = bias;
    }
    type = promote(*type, bias);
  }
  if (!type)
    return nodeError(std::string(dtypeName(in[0].type.dtype)) + " and " + dtypeName(in[1].type.dtype) +
                     " have no common type: use matmul with 'out_dtype'");
  return Types{{*type, std::move(shape)}};
}

Result<Types> inferIndexing(OpKind op, const Operands &in, const Attrs &attrs) {
  RL_TRY(needsIndices(op, in, 1));
  const TensorType &x = in[0].type, &indices = in[1].type;
  TensorType out = x;
  if (op == OpKind::Embedding) {
    RL_TRY(needsRank(op, in, 0, "a table", 2, 2));
    out.shape = indices.shape;
    out.shape.push_back(x.shape[1]);
    return Types{out};
  }
  RL_TRY(dimOf(in, attrs.dim));
  if (op == OpKind::IndexSelect) {
    RL_TRY(needsRank(op, in, 1, "indices", 1, 1));
    out.shape[attrs.dim] = indices.shape[0];
    return Types{out};
  }
  bool fits = indices.rank() == x.rank();
  for (int64_t d = 0; fits && d < x.rank(); ++d)
    fits = d == attrs.dim || indices.shape[d] <= x.shape[d];
  if (!fits)
    return operandError(1, "gather along dimension " + std::to_string(attrs.dim) + " of " + rl::str(x.shape) +
                               " needs indices of the same rank and nowhere else larger, not " +
                               rl::str(indices.shape));
  out.shape = indices.shape;
  return Types{out};
}

Result<Types> inferAttention(const Operands &in, const Attrs &attrs) {
  const OpKind op = OpKind::Attention;
  const char *const names[] = {"a query", "a key", "a value"};
  DType type = in[0].type.dtype;
  for (size_t k = 0; k < 3; ++k) {
    RL_TRY(needsFloat(op, in, k, names[k]));
    RL_TRY(needsRank(op, in, k, names[k], 2));
    type = promote(type, in[k].type.dtype);
  }
  if (attrs.scale && !std::isfinite(*attrs.scale))
    return attrError("scale", "'scale' must be finite");
  const Shape &q = in[0].type.shape, &k = in[1].type.shape, &v = in[2].type.shape;
  auto shapes = [&] { return "q " + rl::str(q) + ", k " + rl::str(k) + ", v " + rl::str(v); };
  if (q.back() != k.back())
    return nodeError("query and key differ in their last extent: " + shapes());
  if (k[k.size() - 2] != v[v.size() - 2])
    return nodeError("keys and values differ in number: " + shapes());
  std::optional<Shape> batch = broadcast(leading(q, 2), leading(k, 2));
  if (batch)
    batch = broadcast(*batch, leading(v, 2));
  if (!batch)
    return nodeError("batch dimensions do not broadcast: " + shapes());
  Shape scores = *batch;
  scores.push_back(q[q.size() - 2]);
  TensorType out{type, scores};
  out.shape.push_back(v.back());
  scores.push_back(k[k.size() - 2]);
  if (std::optional<std::string> problem = tensorProblem({DType::F32, scores}))
    return nodeError("scores: " + *problem);
  if (in.size() > 3) {
    const DType mask = in[3].type.dtype;
    if (mask != DType::Bool && !isArithmeticFloat(mask))
      return operandError(3, std::string("a mask must be bool, f32, f16 or bf16, not ") + dtypeName(mask));
    if (!broadcastsTo(in[3].type.shape, scores))
      return operandError(3, "the mask " + rl::str(in[3].type.shape) + " does not broadcast to the scores " +
                                 rl::str(scores));
  }
  return Types{out};
}

Result<Types> inferCrossEntropy(const Operands &in, const Attrs &) {
  const OpKind op = OpKind::CrossEntropy;
  RL_TRY(needsFloat(op, in, 0, "logits"));
  RL_TRY(needsRank(op, in, 0, "logits [M, V]", 2, 2));
  if (in[1].type.dtype != DType::I64)
    return operandError(1, std::string("cross_entropy needs targets of i64, not ") + dtypeName(in[1].type.dtype));
  const int64_t rows = in[0].type.shape[0];
  RL_TRY(needsShape(op, in, 1, "targets", {rows}));
  return Types{{DType::F32, {rows}}};
}

} // namespace rl::graph
