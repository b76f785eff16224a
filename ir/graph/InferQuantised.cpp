// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Shape and type inference of quantize, dequantize, fake_quantize and scaled_matmul: which scales a tensor has under each
// granularity, and which of them a matrix product can apply.
#include "ir/graph/Infer.h"

namespace rl::graph {
namespace {

const char *granularityName(Granularity g) {
  switch (g) {
  case Granularity::Tensor: return "tensor";
  case Granularity::Axis: return "axis";
  case Granularity::Token: return "token";
  case Granularity::Block: return "block";
  }
  return "";
}

Status checkScaleType(OpKind op, const Operands &in, size_t operand) {
  const DType type = in[operand].type.dtype;
  if (type != DType::F32 && type != DType::F8E8M0)
    return operandError(operand,
                        std::string(opInfo(op).name) + " needs a scale of f32 or f8e8m0, not " + dtypeName(type));
  return {};
}

Status checkScale(OpKind op, const Operands &in, size_t operand, const Shape &of, const Shape &shape, Granularity g) {
  RL_TRY(checkScaleType(op, in, operand));
  if (in[operand].type.shape != shape)
    return operandError(operand, "the scale of " + rl::str(of) + " by " + granularityName(g) + " has shape " +
                                     rl::str(shape) + ", not " + rl::str(in[operand].type.shape));
  return {};
}

Result<Types> inferQuantize(OpKind op, const Operands &in, size_t outputs, const Attrs &attrs) {
  const TensorType &x = in[0].type;
  if (!isArithmeticFloat(x.dtype))
    return operandError(0, std::string(opInfo(op).name) + " needs a tensor of f32, f16 or bf16, not " +
                               dtypeName(x.dtype));
  if (!isQuantised(attrs.dtype))
    return attrError("dtype", std::string("'dtype' must be f8e4m3, f8e5m2 or i8, not ") + dtypeName(attrs.dtype));
  if (attrs.scaleDtype != DType::F32 && attrs.scaleDtype != DType::F8E8M0 && in.size() == 1)
    return attrError("scale_dtype",
                     std::string("'scale_dtype' must be f32 or f8e8m0, not ") + dtypeName(attrs.scaleDtype));
  if (attrs.asymmetric && attrs.dtype != DType::I8)
    return attrError("scheme", std::string("scheme \"asymmetric\" is for i8 only, not ") + dtypeName(attrs.dtype));
  RL_ASSIGN(Shape scale, scaleShape(x.shape, attrs.granularity, attrs.axis, attrs.block, ""));
  if (in.size() == 2) {
    if (attrs.asymmetric)
      return operandError(1, "scheme \"asymmetric\" finds scale and zero point itself and takes no scale");
    RL_TRY(checkScale(op, in, 1, x.shape, scale, attrs.granularity));
    if (in[1].type.dtype != attrs.scaleDtype)
      return attrError("scale_dtype", std::string("'scale_dtype' is ") + dtypeName(attrs.scaleDtype) +
                                          ", and the scale given is " + dtypeName(in[1].type.dtype));
  }
  if (op == OpKind::FakeQuantize)
    return Types{x};
  if (outputs != (attrs.asymmetric ? 3 : 2))
    return invalid("/outputs", attrs.asymmetric ? "scheme \"asymmetric\" has three results: q, scale and zero_point"
                                                : "scheme \"symmetric\" has two results: q and scale");
  Types out{{attrs.dtype, x.shape}, {attrs.scaleDtype, scale}};
  if (attrs.asymmetric)
    out.push_back({DType::I32, scale});
  return out;
}

Result<Types> inferDequantize(const Operands &in, const Attrs &attrs) {
  const OpKind op = OpKind::Dequantize;
  const TensorType &q = in[0].type;
  if (!isQuantised(q.dtype))
    return operandError(0, std::string("dequantize needs f8e4m3, f8e5m2 or i8, not ") + dtypeName(q.dtype));
  if (!isArithmeticFloat(attrs.dtype))
    return attrError("dtype", std::string("'dtype' must be f32, f16 or bf16, not ") + dtypeName(attrs.dtype));
  RL_ASSIGN(Shape scale, scaleShape(q.shape, attrs.granularity, attrs.axis, attrs.block, ""));
  RL_TRY(checkScale(op, in, 1, q.shape, scale, attrs.granularity));
  if (attrs.asymmetric != (in.size() > 2))
    return invalid("/inputs", "the operands are not those that the attributes tell of");
  if (in.size() > 2) {
    if (q.dtype != DType::I8)
      return operandError(2, std::string("a zero point belongs to i8, not to ") + dtypeName(q.dtype));
    if (in[2].type.dtype != DType::I32)
      return operandError(2, std::string("a zero point must be i32, not ") + dtypeName(in[2].type.dtype));
    if (in[2].type.shape != scale)
      return operandError(2, "the zero point must have the scale's shape " + rl::str(scale) + ", not " +
                                 rl::str(in[2].type.shape));
  }
  return Types{{attrs.dtype, q.shape}};
}

/// The scales of one operand of scaled_matmul may vary along its row or column dimension; along K only in blocks.
Status checkScaledOperand(const Operands &in, size_t operand, Granularity g, int64_t axis, const int64_t (&block)[2],
                          int64_t outer, std::string_view suffix) {
  const Shape &shape = in[operand].type.shape;
  const std::string which = "granularity" + std::string(suffix);
  const int64_t last = static_cast<int64_t>(shape.size()) - 1;
  RL_ASSIGN(Shape scale, scaleShape(shape, g, axis, block, suffix));
  if (g == Granularity::Token && outer == last)
    return attrError(which, "a scale for each row of " + rl::str(shape) +
                                " varies along K, which only blocks may; give b as "
                                "[N, K] with 'transpose_b'");
  if (g == Granularity::Axis && axis != outer)
    return attrError("axis" + std::string(suffix), "the scales of " + rl::str(shape) + " may vary along dimension " +
                                                       std::to_string(outer) + ", not along dimension " +
                                                       std::to_string(axis));
  return checkScale(OpKind::ScaledMatmul, in, operand + 2, shape, scale, g);
}

Result<Types> inferScaledMatmul(const Operands &in, const Attrs &attrs) {
  for (size_t k = 0; k < 2; ++k) {
    if (!isQuantised(in[k].type.dtype))
      return operandError(k,
                          std::string("scaled_matmul needs f8e4m3, f8e5m2 or i8, not ") + dtypeName(in[k].type.dtype));
    if (in[k].type.rank() < 2)
      return operandError(k,
                          "scaled_matmul needs operands of rank 2 or more, not of shape " + rl::str(in[k].type.shape));
  }
  if (isF8(in[0].type.dtype) != isF8(in[1].type.dtype))
    return nodeError(std::string("scaled_matmul multiplies f8 with f8 or i8 with i8, not ") +
                     dtypeName(in[0].type.dtype) + " with " + dtypeName(in[1].type.dtype));
  if (!isFloat(attrs.dtype) || attrs.dtype == DType::F8E8M0)
    return attrError("out_dtype", std::string("'out_dtype' must be f32, f16, bf16, f8e4m3 or f8e5m2, not ") +
                                      dtypeName(attrs.dtype));
  RL_ASSIGN(Shape shape, productShape(in, false, attrs.transposeB));
  const int64_t rankA = in[0].type.rank(), rankB = in[1].type.rank();
  RL_TRY(checkScaledOperand(in, 0, attrs.granularityA, attrs.axisA, attrs.blockA, rankA - 2, "_a"));
  RL_TRY(checkScaledOperand(in, 1, attrs.granularityB, attrs.axisB, attrs.blockB, rankB - (attrs.transposeB ? 2 : 1),
                            "_b"));
  return Types{{attrs.dtype, std::move(shape)}};
}

} // namespace

Result<Shape> scaleShape(const Shape &shape, Granularity g, int64_t axis, const int64_t (&block)[2],
                         std::string_view suffix) {
  const int64_t rank = static_cast<int64_t>(shape.size());
  auto attr = [&](const char *name) { return name + std::string(suffix); };
  Shape out;
  switch (g) {
  case Granularity::Tensor: return out;
  case Granularity::Axis:
    if (axis < 0 || axis >= rank)
      return attrError(attr("axis"),
                       "dimension " + std::to_string(axis) + " is out of range for rank " + std::to_string(rank));
    return Shape{shape[axis]};
  case Granularity::Token:
    if (rank == 0)
      return attrError(attr("granularity"), "a rank-0 tensor has no rows");
    return Shape(shape.begin(), shape.end() - 1);
  case Granularity::Block: break;
  }
  if (block[0] < 1 || block[1] < 1)
    return attrError(attr("block"),
                     "a block must have extents of 1 or more, not " + rl::str(Shape{block[0], block[1]}));
  // A vector is cut by blocks of one row.
  if (rank == 0 || (rank == 1 && block[0] != 1))
    return attrError(attr("block"), "blocks " + rl::str(Shape{block[0], block[1]}) +
                                        " need two dimensions, and the shape is " + rl::str(shape));
  out = shape;
  for (int64_t back = 1; back <= std::min<int64_t>(rank, 2); ++back) {
    int64_t &extent = out[rank - back];
    const int64_t size = block[2 - back];
    extent = extent / size + (extent % size != 0);
  }
  return out;
}

Result<Types> inferQuantised(OpKind op, const Operands &in, size_t outputs, const Attrs &attrs) {
  switch (op) {
  case OpKind::Dequantize: return inferDequantize(in, attrs);
  case OpKind::ScaledMatmul: return inferScaledMatmul(in, attrs);
  default: return inferQuantize(op, in, outputs, attrs);
  }
}

} // namespace rl::graph
