// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ir/dialect/Export.h"
#include "ir/dialect/OpModel.h"
#include "ir/dialect/Ridge.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;
using namespace mlir::ridge;

ExportedGraph mlir::ridge::exportBlock(Block &block, bool strict) {
  ExportedGraph out;
  rl::Graph &graph = out.graph;
  graph.strict = strict;
  llvm::DenseMap<Value, rl::ValueId> ids;
  auto add = [&](Value v, rl::Value value) {
    auto id = static_cast<rl::ValueId>(graph.values.size());
    value.name = valueName(v).str();
    value.type = *toTensorType(v.getType());
    graph.values.push_back(std::move(value));
    out.values.push_back(v);
    ids[v] = id;
    return id;
  };
  auto function = dyn_cast<func::FuncOp>(block.getParentOp());
  for (BlockArgument arg : block.getArguments()) {
    bool parameter = function && function.getArgAttr(arg.getArgNumber(), kParameterAttr);
    auto &list = parameter ? graph.parameters : graph.inputs;
    list.push_back(add(
        arg,
        {parameter ? rl::Value::Parameter : rl::Value::Input, {}, {}, rl::kNone, static_cast<uint32_t>(list.size())}));
  }
  for (Operation &op : block.without_terminator()) {
    std::optional<OpModel> model = opModel(&op);
    if (!model)
      continue;
    rl::Node node;
    node.op = model->kind;
    node.attrs = model->attrs;
    node.attrs.fast = op.hasAttr(kFastAttr);
    node.attrs.rounded = op.hasAttr(kRoundedAttr);
    if (auto index = op.getAttrOfType<IntegerAttr>(kNodeAttr))
      node.specIndex = static_cast<uint32_t>(index.getInt());
    if (auto source = op.getAttrOfType<StringAttr>(kSourceAttr))
      node.source = source.str();
    for (Value operand : op.getOperands()) {
      rl::Operand o;
      if (auto literal = operand.getDefiningOp<LiteralOp>())
        o.literal = toScalar(literal.getValue());
      else
        o.value = ids.lookup(operand);
      node.inputs.push_back(o);
    }
    auto id = static_cast<rl::NodeId>(graph.nodes.size());
    for (OpResult result : op.getResults())
      node.outputs.push_back(
          add(result, {rl::Value::Result, {}, {}, id, static_cast<uint32_t>(result.getResultNumber())}));
    graph.nodes.push_back(std::move(node));
  }
  for (Value v : block.getTerminator()->getOperands())
    graph.outputs.push_back(ids.lookup(v));
  return out;
}
