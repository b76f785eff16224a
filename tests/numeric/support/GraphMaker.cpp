// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/numeric/support/GraphMaker.h"
#include "ir/graph/Infer.h"

namespace rl::numeric {

AttrValue GraphMaker::list(const Shape &s) {
  std::vector<Dim> dims;
  for (int64_t e : s)
    dims.push_back({e, {}});
  return dims;
}

static TensorSpec fixed(std::string name, DType dtype, const std::vector<int64_t> &shape) {
  TensorSpec t{std::move(name), dtype, {}};
  for (int64_t e : shape)
    t.shape.push_back({e, {}});
  return t;
}

GraphMaker::Val GraphMaker::input(DType dtype, Shape shape) {
  spec.inputs.push_back(fixed("x" + std::to_string(names++), dtype, shape));
  return {spec.inputs.back().name, {dtype, std::move(shape)}};
}

GraphMaker::Val GraphMaker::parameter(DType dtype, Shape shape) {
  spec.parameters.push_back(fixed("p" + std::to_string(spec.parameters.size()), dtype, shape));
  return {spec.parameters.back().name, {dtype, std::move(shape)}};
}

std::vector<GraphMaker::Val> GraphMaker::emitAll(const std::string &op, const std::vector<Val> &operands,
                                                 Attributes attrs, size_t results, std::optional<Scalar> literal) {
  std::vector<OperandType> types;
  NodeSpec node;
  for (const Val &v : operands) {
    types.push_back({v.type, {}});
    node.inputs.push_back({v.name, {}});
  }
  if (literal) {
    types.push_back({{}, literal});
    node.inputs.push_back({{}, literal});
  }
  Result<Inferred> inferred = inferNode(findOp(op)->kind, types, results, attrs, {});
  if (!inferred)
    return {};
  node.op = op;
  node.attrs = std::move(attrs);
  std::vector<Val> out;
  for (const TensorType &type : inferred->results) {
    out.push_back({"n" + std::to_string(names++), type});
    node.outputs.push_back(out.back().name);
  }
  spec.nodes.push_back(node);
  return out;
}

std::optional<GraphMaker::Val> GraphMaker::emit(const std::string &op, const std::vector<Val> &operands,
                                                Attributes attrs, std::optional<Scalar> literal) {
  std::vector<Val> out = emitAll(op, operands, std::move(attrs), 1, literal);
  return out.empty() ? std::nullopt : std::optional<Val>(out[0]);
}

} // namespace rl::numeric
