// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From an op of the dialect to the OpKind, operand types and attributes that the graph library knows, and the verifier
// that puts them to rl::inferResults.
#include "ir/dialect/OpModel.h"
#include "ir/dialect/Ridge.h"

#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::ridge;
using rl::Attrs;
using rl::OpKind;

// The enums of the dialect number their cases as runs of OpKind, so that converting is adding an offset.
template <class Enum> static constexpr int kFirst = 0;
template <> constexpr int kFirst<MapFn> = static_cast<int>(OpKind::Abs);
template <> constexpr int kFirst<ReduceFn> = static_cast<int>(OpKind::Sum);
template <> constexpr int kFirst<GatherKind> = static_cast<int>(OpKind::Embedding);
template <class Enum> static constexpr OpKind kindOf(Enum value) {
  return static_cast<OpKind>(static_cast<int>(value) + kFirst<Enum>);
}

namespace check {
using Unary = MapFn;
using Binary = MapFn;
using Ternary = MapFn;
using Reduction = ReduceFn;
using Indexing = GatherKind;
// Classes that have an op class each, not an enum: nothing to compare.
#define RL_OP(Enum, Name, Class, ...)                                                                                  \
  template <class T> constexpr bool same##Enum() {                                                                     \
    if constexpr (std::is_enum_v<T>)                                                                                   \
      return kindOf(T::Enum) == OpKind::Enum;                                                                          \
    return true;                                                                                                       \
  }
#include "ir/graph/Ops.def"
struct Shape {};
struct Creation {};
struct Norm {};
struct Matrix {};
struct Attention {};
struct Loss {};
struct Quant {};
#define RL_OP(Enum, Name, Class, ...) static_assert(same##Enum<Class>(), "RidgeAttrs.td and Ops.def disagree on " Name);
#include "ir/graph/Ops.def"
} // namespace check

//===-- Kind and attributes -------------------------------------------------------------------------------------===//

static std::vector<int64_t> toVector(ArrayRef<int64_t> values) { return {values.begin(), values.end()}; }
static ArrayRef<int64_t> shapeOf(Value value) { return cast<RankedTensorType>(value.getType()).getShape(); }
static rl::DType dtypeOf(Type type) { return *toDType(getElementTypeOrSelf(type)); }

static void setGranularity(GranularityAttr attr, rl::Granularity &kind, int64_t &axis, int64_t (&block)[2]) {
  kind = attr.getKind();
  axis = attr.getAxis();
  block[0] = attr.getRows();
  block[1] = attr.getColumns();
}

std::optional<OpKind> mlir::ridge::opKind(Operation *op) {
  using Kind = std::optional<OpKind>;
  return llvm::TypeSwitch<Operation *, Kind>(op)
      .Case([](MapOp o) -> Kind { return kindOf(o.getFn()); })
      .Case([](ReshapeOp) -> Kind { return OpKind::Reshape; })
      .Case([](PermuteOp) -> Kind { return OpKind::Permute; })
      .Case([](ExpandOp) -> Kind { return OpKind::Expand; })
      .Case([](SliceOp) -> Kind { return OpKind::Slice; })
      .Case([](CatOp) -> Kind { return OpKind::Cat; })
      .Case([](PadOp) -> Kind { return OpKind::Pad; })
      .Case([](FlipOp) -> Kind { return OpKind::Flip; })
      .Case([](FullOp) -> Kind { return OpKind::Full; })
      .Case([](IotaOp) -> Kind { return OpKind::Iota; })
      .Case([](ReduceOp o) -> Kind { return kindOf(o.getFn()); })
      .Case([](SoftmaxOp o) -> Kind { return o.getLog() ? OpKind::LogSoftmax : OpKind::Softmax; })
      .Case([](LayerNormOp) -> Kind { return OpKind::LayerNorm; })
      .Case([](RmsNormOp) -> Kind { return OpKind::RmsNorm; })
      .Case([](MatmulOp) -> Kind { return OpKind::Matmul; })
      .Case([](LinearOp) -> Kind { return OpKind::Linear; })
      .Case([](GatherOp o) -> Kind { return kindOf(o.getKind()); })
      .Case([](AttentionOp) -> Kind { return OpKind::Attention; })
      .Case([](CrossEntropyOp) -> Kind { return OpKind::CrossEntropy; })
      .Case([](QuantizeOp) -> Kind { return OpKind::Quantize; })
      .Case([](DequantizeOp) -> Kind { return OpKind::Dequantize; })
      .Case([](ScaledMatmulOp) -> Kind { return OpKind::ScaledMatmul; })
      .Case([](FakeQuantizeOp) -> Kind { return OpKind::FakeQuantize; })
      .Default([](Operation *) -> Kind { return std::nullopt; });
}

std::optional<OpModel> mlir::ridge::opModel(Operation *op) {
  auto kind = opKind(op);
  if (!kind)
    return std::nullopt;
  OpModel model{*kind, {}};
  Attrs &a = model.attrs;
  // Several kinds take their type from the result; the others have no such attribute and do not look at it.
  a.dtype = dtypeOf(op->getResult(0).getType());
  llvm::TypeSwitch<Operation *>(op)
      .Case([&](MapOp o) {
        a.tanhApproximation = o.getTanh();
        a.saturate = o.getSaturate();
        if (auto min = o.getMin())
          a.min = toScalar(*min);
        if (auto max = o.getMax())
          a.max = toScalar(*max);
      })
      .Case([&](ReshapeOp o) { a.shape = toVector(shapeOf(o.getResult())); })
      .Case([&](ExpandOp o) { a.shape = toVector(shapeOf(o.getResult())); })
      .Case([&](PermuteOp o) { a.dims = toVector(o.getDims()); })
      .Case([&](SliceOp o) {
        a.dim = o.getDim();
        a.start = o.getStart();
        a.step = o.getStep();
        ArrayRef<int64_t> shape = shapeOf(o.getResult());
        if (a.dim >= 0 && a.dim < static_cast<int64_t>(shape.size()))
          a.length = shape[a.dim];
      })
      .Case([&](CatOp o) { a.dim = o.getDim(); })
      .Case([&](PadOp o) {
        a.low = toVector(o.getLow());
        a.high = toVector(o.getHigh());
        a.value = toScalar(o.getValue());
      })
      .Case([&](FlipOp o) { a.dims = toVector(o.getDims()); })
      .Case([&](FullOp o) {
        a.shape = toVector(shapeOf(o.getResult()));
        a.value = toScalar(o.getValue());
      })
      .Case([&](IotaOp o) {
        a.shape = toVector(shapeOf(o.getResult()));
        a.dim = o.getDim();
      })
      .Case([&](ReduceOp o) {
        a.dims = toVector(o.getDims());
        a.dim = a.dims.size() == 1 ? a.dims[0] : -1;
        a.keepdim = o.getKeepdim();
        a.correction = o.getCorrection().convertToDouble();
      })
      .Case([&](SoftmaxOp o) { a.dim = o.getDim(); })
      .Case([&](LayerNormOp o) {
        a.eps = o.getEps().convertToDouble();
        a.hasWeight = o.getWeight() != nullptr;
        a.hasBias = o.getBias() != nullptr;
      })
      .Case([&](RmsNormOp o) {
        a.eps = o.getEps().convertToDouble();
        a.hasWeight = o.getWeight() != nullptr;
      })
      .Case([&](MatmulOp o) {
        a.transposeA = o.getTransposeA();
        a.transposeB = o.getTransposeB();
      })
      .Case([&](LinearOp o) {
        a.hasWeight = true;
        a.hasBias = o.getBias() != nullptr;
      })
      .Case([&](GatherOp o) { a.dim = o.getDim(); })
      .Case([&](AttentionOp o) {
        a.causal = o.getCausal();
        if (auto scale = o.getScale())
          a.scale = scale->convertToDouble();
      })
      .Case([&](CrossEntropyOp o) { a.ignoreIndex = static_cast<int64_t>(o.getIgnoreIndex()); })
      .Case([&](QuantizeOp o) {
        setGranularity(o.getGranularity(), a.granularity, a.axis, a.block);
        a.scaleDtype = dtypeOf(o.getResultScale().getType());
        a.asymmetric = o.getAsymmetric();
      })
      .Case([&](DequantizeOp o) {
        setGranularity(o.getGranularity(), a.granularity, a.axis, a.block);
        a.asymmetric = o.getZeroPoint() != nullptr;
      })
      .Case([&](ScaledMatmulOp o) {
        setGranularity(o.getGranularityA(), a.granularityA, a.axisA, a.blockA);
        setGranularity(o.getGranularityB(), a.granularityB, a.axisB, a.blockB);
        a.transposeA = o.getTransposeA();
        a.transposeB = o.getTransposeB();
        a.fastAccumulate = o.getFastAccumulate();
      })
      .Case([&](FakeQuantizeOp o) {
        setGranularity(o.getGranularity(), a.granularity, a.axis, a.block);
        a.dtype = toDType(o.getQuantizedType()).value_or(rl::DType::Bool);
        a.scaleDtype = toDType(o.getScaleType()).value_or(rl::DType::Bool);
        a.asymmetric = o.getAsymmetric();
      });
  return model;
}

std::optional<std::vector<rl::OperandType>> mlir::ridge::operandTypes(Operation *op) {
  std::vector<rl::OperandType> types;
  types.reserve(op->getNumOperands());
  for (Value operand : op->getOperands()) {
    auto type = toTensorType(operand.getType());
    if (!type)
      return std::nullopt;
    auto &entry = types.emplace_back(rl::OperandType{*std::move(type), std::nullopt});
    if (auto literal = operand.getDefiningOp<LiteralOp>())
      entry.literal = toScalar(literal.getValue());
  }
  return types;
}

//===-- Verifier ------------------------------------------------------------------------------------------------===//

/// What inferResults cannot see: attributes that an op of this class may carry and this kind does not have, and forms
/// that a resolved graph has only one of.
static LogicalResult verifyForm(Operation *op) {
  if (auto map = dyn_cast<MapOp>(op)) {
    MapFn fn = map.getFn();
    if (map.getTanh() && fn != MapFn::Gelu)
      return op->emitOpError("has 'tanh', which is an attribute of gelu");
    if (!map.getSaturate() && fn != MapFn::Cast)
      return op->emitOpError("has 'saturate', which is an attribute of cast");
    if ((map.getMin() || map.getMax()) && fn != MapFn::Clamp)
      return op->emitOpError("has 'min' or 'max', which are attributes of clamp");
  } else if (auto reduce = dyn_cast<ReduceOp>(op)) {
    ReduceFn fn = reduce.getFn();
    ArrayRef<int64_t> dims = reduce.getDims();
    if (!llvm::is_sorted(dims))
      return op->emitOpError("has dims that do not ascend");
    if ((fn == ReduceFn::ArgMax || fn == ReduceFn::ArgMin) && dims.size() != 1)
      return op->emitOpError() << "takes one dimension for " << stringifyReduceFn(fn) << ", not " << dims.size();
    if (fn != ReduceFn::Var && !reduce.getCorrection().isExactlyValue(1.0))
      return op->emitOpError("has 'correction', which is an attribute of var");
  } else if (auto norm = dyn_cast<LayerNormOp>(op)) {
    // Operands are told apart by place in the graph library, so a bias alone would be taken for a weight.
    if (norm.getBias() && !norm.getWeight())
      return op->emitOpError("has a bias and no weight");
  } else if (auto gather = dyn_cast<GatherOp>(op)) {
    if (gather.getKind() == GatherKind::Embedding && gather.getDim() != 0)
      return op->emitOpError("embedding takes rows: its dim is 0");
  } else if (auto fake = dyn_cast<FakeQuantizeOp>(op)) {
    for (Type type : {fake.getQuantizedType(), fake.getScaleType()})
      if (!toDType(type))
        return op->emitOpError() << type << " is not an element type of the graph format";
  }
  return success();
}

LogicalResult mlir::ridge::verifyCompute(Operation *op) {
  auto operands = operandTypes(op);
  if (!operands)
    return op->emitOpError("has an operand of more than 8 dimensions or with an encoding");
  for (Type type : op->getResultTypes())
    if (!toTensorType(type))
      return op->emitOpError("has a result of more than 8 dimensions or with an encoding");
  if (failed(verifyForm(op)))
    return failure();
  auto model = opModel(op);
  if (!model)
    return op->emitOpError("is not an op of the graph format");
  auto inferred = rl::inferResults(model->kind, *operands, op->getNumResults(), model->attrs);
  if (!inferred) {
    auto diagnostic = op->emitOpError();
    if (!inferred.error().pointer.empty())
      diagnostic << inferred.error().pointer << ": ";
    return diagnostic << inferred.error().message;
  }
  for (auto [i, expected] : llvm::enumerate(*inferred)) {
    RankedTensorType type = toMlirType(op->getContext(), expected);
    if (op->getResult(i).getType() != type)
      return op->emitOpError() << "result " << i << " must be " << type << ", not " << op->getResult(i).getType();
  }
  return success();
}
