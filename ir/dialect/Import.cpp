// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One op a node. Nothing is decided here.
#include "ir/dialect/Import.h"
#include "ir/dialect/Ridge.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;
using namespace mlir::ridge;
using rl::OpClass;
using rl::OpKind;

void mlir::ridge::registerRidgeDialects(DialectRegistry &registry) {
  registry.insert<RidgeDialect, func::FuncDialect>();
}

namespace {
class Importer {
public:
  Importer(MLIRContext &context, const rl::Graph &graph) : context(&context), graph(graph), builder(&context) {}
  OwningOpRef<ModuleOp> run();

private:
  Operation *createNode(const rl::Node &node, Location loc, ValueRange in, ArrayRef<Type> types);
  Operation *createShape(const rl::Node &node, Location loc, ValueRange in, Type type);
  Operation *createQuant(const rl::Node &node, Location loc, ValueRange in, ArrayRef<Type> types);
  Value literal(const rl::Scalar &scalar);
  Location locationOf(const std::string &name) {
    return name.empty() ? Location(builder.getUnknownLoc()) : Location(NameLoc::get(builder.getStringAttr(name)));
  }
  UnitAttr unit(bool set) { return set ? builder.getUnitAttr() : UnitAttr(); }

  MLIRContext *context;
  const rl::Graph &graph;
  OpBuilder builder;
  std::vector<Value> values;
  llvm::DenseMap<Attribute, Value> literals;
};
} // namespace

template <class Enum> static Enum offset(OpKind kind, OpKind first) {
  return static_cast<Enum>(static_cast<int>(kind) - static_cast<int>(first));
}

Value Importer::literal(const rl::Scalar &scalar) {
  Attribute attr = toAttribute(context, scalar);
  Value &value = literals[attr];
  if (!value)
    value = LiteralOp::create(builder, builder.getUnknownLoc(), attr);
  return value;
}

Operation *Importer::createShape(const rl::Node &node, Location loc, ValueRange in, Type type) {
  const rl::Attrs &a = node.attrs;
  switch (node.op) {
  case OpKind::Permute: return PermuteOp::create(builder, loc, type, in[0], a.dims);
  case OpKind::Expand: return ExpandOp::create(builder, loc, type, in[0]);
  case OpKind::Slice: return SliceOp::create(builder, loc, type, in[0], a.dim, a.start, a.step);
  case OpKind::Cat: return CatOp::create(builder, loc, type, in, a.dim);
  case OpKind::Pad: return PadOp::create(builder, loc, type, in[0], a.low, a.high, toAttribute(context, a.value));
  case OpKind::Flip: return FlipOp::create(builder, loc, type, in[0], a.dims);
  default: // reshape, squeeze, unsqueeze
    return ReshapeOp::create(builder, loc, type, in[0]);
  }
}

Operation *Importer::createQuant(const rl::Node &node, Location loc, ValueRange in, ArrayRef<Type> types) {
  const rl::Attrs &a = node.attrs;
  auto granularity = [&](rl::Granularity kind, int64_t axis, const int64_t (&block)[2]) {
    // What the granularity does not use is left at its default, so that equal meanings are equal attributes.
    bool isBlock = kind == rl::Granularity::Block;
    return GranularityAttr::get(context, kind, kind == rl::Granularity::Axis ? axis : 0, isBlock ? block[0] : 1,
                                isBlock ? block[1] : 1);
  };
  auto optional = [&](size_t i) { return in.size() > i ? in[i] : Value(); };
  switch (node.op) {
  case OpKind::Quantize:
    return QuantizeOp::create(builder, loc, types[0], types[1], types.size() > 2 ? types[2] : Type(), in[0],
                              optional(1), granularity(a.granularity, a.axis, a.block), unit(a.asymmetric));
  case OpKind::Dequantize:
    return DequantizeOp::create(builder, loc, types[0], in[0], in[1], optional(2),
                                granularity(a.granularity, a.axis, a.block));
  case OpKind::FakeQuantize:
    return FakeQuantizeOp::create(builder, loc, types[0], in[0], optional(1),
                                  TypeAttr::get(toMlirType(context, a.dtype)),
                                  TypeAttr::get(toMlirType(context, a.scaleDtype)),
                                  granularity(a.granularity, a.axis, a.block), unit(a.asymmetric));
  default:
    return ScaledMatmulOp::create(
        builder, loc, types[0], in[0], in[1], in[2], in[3], granularity(a.granularityA, a.axisA, a.blockA),
        granularity(a.granularityB, a.axisB, a.blockB), unit(a.transposeA), unit(a.transposeB), unit(a.fastAccumulate));
  }
}

Operation *Importer::createNode(const rl::Node &node, Location loc, ValueRange in, ArrayRef<Type> types) {
  const rl::Attrs &a = node.attrs;
  auto optional = [&](size_t i) { return in.size() > i ? in[i] : Value(); };
  auto f64 = [&](double value) { return builder.getF64FloatAttr(value); };
  auto i64 = [&](int64_t value) { return builder.getI64IntegerAttr(value); };
  switch (rl::opInfo(node.op).cls) {
  case OpClass::Unary:
  case OpClass::Binary:
  case OpClass::Ternary: {
    auto scalar = [&](const std::optional<rl::Scalar> &s) { return s ? toAttribute(context, *s) : Attribute(); };
    return MapOp::create(builder, loc, types[0], MapFnAttr::get(context, offset<MapFn>(node.op, OpKind::Abs)), in,
                         unit(a.tanhApproximation), builder.getBoolAttr(a.saturate), scalar(a.min), scalar(a.max));
  }
  case OpClass::Shape: return createShape(node, loc, in, types[0]);
  case OpClass::Creation:
    if (node.op == OpKind::Full)
      return FullOp::create(builder, loc, types[0], toAttribute(context, a.value));
    return IotaOp::create(builder, loc, types[0], i64(a.dim));
  case OpClass::Reduction: {
    bool isArg = node.op == OpKind::ArgMax || node.op == OpKind::ArgMin;
    return ReduceOp::create(builder, loc, types[0], ReduceFnAttr::get(context, offset<ReduceFn>(node.op, OpKind::Sum)),
                            in[0],
                            builder.getDenseI64ArrayAttr(isArg ? ArrayRef<int64_t>(a.dim) : ArrayRef<int64_t>(a.dims)),
                            unit(a.keepdim), f64(a.correction));
  }
  case OpClass::Norm:
    if (node.op == OpKind::LayerNorm)
      return LayerNormOp::create(builder, loc, types[0], in[0], optional(1), optional(2), f64(a.eps));
    if (node.op == OpKind::RmsNorm)
      return RmsNormOp::create(builder, loc, types[0], in[0], optional(1), f64(a.eps));
    return SoftmaxOp::create(builder, loc, types[0], in[0], i64(a.dim), unit(node.op == OpKind::LogSoftmax));
  case OpClass::Matrix:
    if (node.op == OpKind::Linear)
      return LinearOp::create(builder, loc, types[0], in[0], in[1], optional(2));
    return MatmulOp::create(builder, loc, types[0], in[0], in[1], unit(a.transposeA), unit(a.transposeB));
  case OpClass::Indexing:
    return GatherOp::create(builder, loc, types[0],
                            GatherKindAttr::get(context, offset<GatherKind>(node.op, OpKind::Embedding)), in[0], in[1],
                            i64(node.op == OpKind::Embedding ? 0 : a.dim));
  case OpClass::Attention:
    return AttentionOp::create(builder, loc, types[0], in[0], in[1], in[2], optional(3), unit(a.causal),
                               a.scale ? f64(*a.scale) : FloatAttr());
  case OpClass::Loss: return CrossEntropyOp::create(builder, loc, types[0], in[0], in[1], i64(a.ignoreIndex));
  case OpClass::Quant: return createQuant(node, loc, in, types);
  }
  llvm_unreachable("not a class of ops");
}

OwningOpRef<ModuleOp> Importer::run() {
  context->loadDialect<RidgeDialect, func::FuncDialect>();
  std::vector<Type> types;
  types.reserve(graph.values.size());
  for (const rl::Value &value : graph.values)
    types.push_back(toMlirType(context, value.type));

  std::vector<rl::ValueId> arguments(graph.inputs);
  arguments.insert(arguments.end(), graph.parameters.begin(), graph.parameters.end());
  SmallVector<Type> argumentTypes, resultTypes;
  for (rl::ValueId v : arguments)
    argumentTypes.push_back(types[v]);
  for (rl::ValueId v : graph.outputs)
    resultTypes.push_back(types[v]);

  Location loc = locationOf(graph.name);
  OwningOpRef<ModuleOp> module = ModuleOp::create(loc);
  builder.setInsertionPointToEnd(module->getBody());
  auto function = func::FuncOp::create(builder, loc, graph.name, builder.getFunctionType(argumentTypes, resultTypes));
  if (graph.strict)
    function->setAttr(kStrictAttr, builder.getUnitAttr());

  StringAttr nameId = builder.getStringAttr(kNameAttr), nodeId = builder.getStringAttr(kNodeAttr);
  StringAttr parameterId = builder.getStringAttr(kParameterAttr);
  Block *block = function.addEntryBlock();
  builder.setInsertionPointToEnd(block);
  values.resize(graph.values.size());
  SmallVector<Attribute> argumentAttrs, resultAttrs;
  for (auto [i, v] : llvm::enumerate(arguments)) {
    const rl::Value &value = graph.values[v];
    SmallVector<NamedAttribute, 2> attrs{{nameId, builder.getStringAttr(value.name)}};
    if (value.kind == rl::Value::Parameter)
      attrs.emplace_back(parameterId, builder.getUnitAttr());
    argumentAttrs.push_back(builder.getDictionaryAttr(attrs));
    values[v] = block->getArgument(i);
    values[v].setLoc(locationOf(value.name));
  }
  for (rl::ValueId v : graph.outputs)
    resultAttrs.push_back(
        builder.getDictionaryAttr(NamedAttribute(nameId, builder.getStringAttr(graph.values[v].name))));
  function.setArgAttrsAttr(builder.getArrayAttr(argumentAttrs));
  function.setResAttrsAttr(builder.getArrayAttr(resultAttrs));

  SmallVector<Value> operands;
  SmallVector<Type> outputs;
  SmallVector<NamedAttribute> attrs;
  for (const rl::Node &node : graph.nodes) {
    operands.clear();
    outputs.clear();
    for (const rl::Operand &operand : node.inputs)
      operands.push_back(operand.isLiteral() ? literal(operand.literal) : values[operand.value]);
    for (rl::ValueId v : node.outputs)
      outputs.push_back(types[v]);
    const std::string &name = graph.values[node.outputs[0]].name;
    Operation *op = createNode(node, locationOf(name), operands, outputs);
    attrs.assign({{nodeId, builder.getI64IntegerAttr(node.specIndex)}, {nameId, builder.getStringAttr(name)}});
    if (!node.source.empty())
      attrs.emplace_back(builder.getStringAttr(kSourceAttr), builder.getStringAttr(node.source));
    if (node.pin)
      attrs.emplace_back(builder.getStringAttr(kPrecisionAttr), TypeAttr::get(toMlirType(context, *node.pin)));
    op->setDiscardableAttrs(builder.getDictionaryAttr(attrs));
    for (auto [i, v] : llvm::enumerate(node.outputs))
      values[v] = op->getResult(i);
  }
  operands.clear();
  for (rl::ValueId v : graph.outputs)
    operands.push_back(values[v]);
  func::ReturnOp::create(builder, loc, operands);
  return module;
}

OwningOpRef<ModuleOp> mlir::ridge::importGraph(MLIRContext &context, const rl::Graph &graph) {
  return Importer(context, graph).run();
}
