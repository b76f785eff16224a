// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How operand types combine: PyTorch's promotion, weak literals, and the type that an elementwise node computes in.
#include "ir/graph/Infer.h"

#include <cmath>

namespace rl {
namespace {

int category(DType t) { return t == DType::Bool ? 0 : isInteger(t) ? 1 : 2; }
int category(const Scalar &s) { return s.kind == Scalar::Bool ? 0 : s.kind == Scalar::Int ? 1 : 2; }
constexpr DType kDefaultOfCategory[] = {DType::Bool, DType::I64, DType::F32};

} // namespace

DType promote(DType a, DType b) {
  if (a == b)
    return a;
  if (isF8(a) || isF8(b))
    return DType::F32;
  if (category(a) != category(b))
    return category(a) > category(b) ? a : b;
  if (isFloat(a)) // f16 with bf16: neither holds the other
    return DType::F32;
  if (a == DType::I64 || b == DType::I64)
    return DType::I64;
  return DType::I32; // i32 with a narrow one, or i8 with u8: i16 in PyTorch
}

std::optional<DType> promoteOperands(const std::vector<OperandType> &operands) {
  std::optional<DType> tensors;
  int literals = -1;
  for (const OperandType &operand : operands) {
    if (operand.literal) {
      literals = std::max(literals, category(*operand.literal));
      continue;
    }
    if (isF8(operand.type.dtype))
      return std::nullopt;
    tensors = tensors ? promote(*tensors, operand.type.dtype) : operand.type.dtype;
  }
  if (literals < 0)
    return tensors;
  return tensors && literals <= category(*tensors) ? *tensors : kDefaultOfCategory[literals];
}

DType computeType(OpKind op, const std::vector<OperandType> &operands) {
  if (graph::makesFloat(op))
    return DType::F32;
  if (op == OpKind::Where && operands.size() == 3)
    return computeType(OpKind::Maximum, {operands[1], operands[2]});
  std::optional<DType> type = promoteOperands(operands);
  if (!type || isFloat(*type))
    return DType::F32;
  bool wide =
      op == OpKind::Sum || op == OpKind::Prod || op == OpKind::Mean || (op == OpKind::Square && *type == DType::Bool);
  return wide ? DType::I64 : *type;
}

namespace graph {

bool isElementwise(OpKind op) {
  OpClass cls = opInfo(op).cls;
  return cls == OpClass::Unary || cls == OpClass::Binary || cls == OpClass::Ternary;
}

bool makesFloat(OpKind op) {
  switch (op) {
  case OpKind::Exp:
  case OpKind::Exp2:
  case OpKind::Expm1:
  case OpKind::Log:
  case OpKind::Log2:
  case OpKind::Log1p:
  case OpKind::Sqrt:
  case OpKind::Rsqrt:
  case OpKind::Reciprocal:
  case OpKind::Sin:
  case OpKind::Cos:
  case OpKind::Tanh:
  case OpKind::Sigmoid:
  case OpKind::Erf:
  case OpKind::Silu:
  case OpKind::Softplus:
  case OpKind::Gelu:
  case OpKind::Div:
  case OpKind::Atan2:
  case OpKind::LogSumExp: return true;
  default: return false;
  }
}

bool isComparison(OpKind op) { return op >= OpKind::Eq && op <= OpKind::Ge; }

bool isQuantised(DType t) { return t == DType::F8E4M3 || t == DType::F8E5M2 || t == DType::I8; }

DType literalType(OpKind op, size_t operand, const Scalar &literal) {
  bool scale = ((op == OpKind::Quantize || op == OpKind::FakeQuantize || op == OpKind::Dequantize) && operand == 1) ||
               (op == OpKind::ScaledMatmul && operand >= 2);
  if (scale)
    return DType::F32;
  if (op == OpKind::Dequantize && operand == 2 && literal.kind == Scalar::Int)
    return DType::I32; // a zero point
  return kDefaultOfCategory[category(literal)];
}

std::string str(const Scalar &s) {
  if (s.kind == Scalar::Bool)
    return s.i ? "true" : "false";
  if (s.kind == Scalar::Int)
    return std::to_string(s.i);
  char text[32];
  std::snprintf(text, sizeof text, "%.9g", s.f);
  return text;
}

ScalarIn scalarIn(const Scalar &s, DType type) {
  Scalar out;
  if (isFloat(type)) {
    out.kind = Scalar::Float;
    out.f = s.asDouble();
    return {out, {}};
  }
  if (type == DType::Bool) {
    out.kind = Scalar::Bool;
    out.i = s.kind == Scalar::Float ? s.f != 0 : s.i != 0;
    return {out, {}};
  }
  out.kind = Scalar::Int;
  if (s.kind == Scalar::Float) {
    // 2^63 is a double, 2^63 - 1 is not: the comparison is exact this way.
    if (!(s.f >= -0x1p63 && s.f < 0x1p63) || s.f != std::trunc(s.f))
      return {s, str(s) + " is not a value of " + dtypeName(type)};
    out.i = static_cast<int64_t>(s.f);
  } else {
    out.i = s.i;
  }
  int64_t least = INT64_MIN, greatest = INT64_MAX;
  if (type == DType::I8)
    least = INT8_MIN, greatest = INT8_MAX;
  else if (type == DType::U8)
    least = 0, greatest = UINT8_MAX;
  else if (type == DType::I32)
    least = INT32_MIN, greatest = INT32_MAX;
  if (out.i < least || out.i > greatest)
    return {s, str(s) + " is out of the range of " + dtypeName(type)};
  return {out, {}};
}

} // namespace graph
} // namespace rl
