// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Cost of single ops.
#include "passes/cost/OpCost.h"

#include <algorithm>
#include <set>

namespace rl::cost {

OpCost opCost(OpKind kind, DType type, bool tanhApproximation) {
  bool full = type == DType::F32;
  if (kind == OpKind::Gelu && tanhApproximation)
    return full ? OpCost{20, 2} : OpCost{8, 1};
  switch (kind) {
#define RL_COST(Kind, Ops, Special, FullOps, FullSpecial)                                                              \
  case OpKind::Kind: return full ? OpCost{FullOps, FullSpecial} : OpCost{Ops, Special};
#include "passes/cost/OpCosts.def"
  }
  return {};
}

OpCost opCost(const Node &n, DType type) {
  return opCost(n.op, n.attrs.fast ? DType::BF16 : type, n.attrs.tanhApproximation);
}

bool isView(OpKind kind) {
  switch (kind) {
  case OpKind::Reshape:
  case OpKind::Permute:
  case OpKind::Expand:
  case OpKind::Unsqueeze:
  case OpKind::Squeeze:
  case OpKind::Slice: return true;
  default: return false;
  }
}

/// Multiply-adds of a matmul: the result's elements times the contracted extent.
static double contracted(const Graph &g, const Node &n) {
  const TensorType &a = g.type(n.inputs[0].value);
  if (a.rank() == 0)
    return 1;
  bool transposed = n.op != OpKind::Linear && n.attrs.transposeA && a.rank() >= 2;
  return static_cast<double>(a.shape[static_cast<size_t>(a.rank()) - (transposed ? 2 : 1)]);
}

WorkEstimate nodeWork(const Graph &g, NodeId id) {
  const Node &n = g.nodes[id];
  WorkEstimate w;
  if (isView(n.op))
    return w;
  const TensorType &result = g.type(n.outputs[0]);
  double elements = static_cast<double>(result.elements());
  OpClass cls = opInfo(n.op).cls;

  std::set<ValueId> seen;
  double converted = 0; // elements that are widened on load or narrowed on store
  bool first = true;
  for (const Operand &o : n.inputs) {
    bool table = first && cls == OpClass::Indexing;
    first = false;
    if (o.isLiteral() || !seen.insert(o.value).second)
      continue;
    const TensorType &t = g.type(o.value);
    // Broadcast operands are read once from DRAM; what is picked from a table is as large as the result.
    w.bytesRead += table ? elements * static_cast<double>(dtypeSize(t.dtype)) : static_cast<double>(t.bytes());
    if (isFloat(t.dtype) && t.dtype != DType::F32 && cls != OpClass::Matrix && cls != OpClass::Attention && !table)
      converted += static_cast<double>(t.elements());
  }
  for (ValueId v : n.outputs) {
    const TensorType &t = g.type(v);
    w.bytesWritten += static_cast<double>(t.bytes());
    if (isFloat(t.dtype) && t.dtype != DType::F32 && cls != OpClass::Indexing && n.op != OpKind::Cast)
      converted += static_cast<double>(t.elements());
  }
  bool moves = cls == OpClass::Shape || cls == OpClass::Creation || cls == OpClass::Indexing;
  w.ops = moves ? 0 : converted;

  double per = elements;
  switch (cls) {
  case OpClass::Reduction:
  case OpClass::Norm:
  case OpClass::Loss:
  case OpClass::Quant:
    if (n.op != OpKind::ScaledMatmul && !n.inputs[0].isLiteral())
      per = static_cast<double>(g.type(n.inputs[0].value).elements());
    break;
  case OpClass::Attention: {
    const TensorType &q = g.type(n.inputs[0].value), &k = g.type(n.inputs[1].value);
    double depth = q.rank() > 0 ? static_cast<double>(q.shape.back()) : 1;
    double keys = k.rank() > 1 ? static_cast<double>(k.shape[static_cast<size_t>(k.rank()) - 2]) : 1;
    double valueDepth = result.rank() > 0 ? static_cast<double>(result.shape.back()) : 1;
    per = depth > 0 ? static_cast<double>(q.elements()) / depth * keys : 0; // scores
    // Causal: the mean query sees half of the keys.
    if (n.attrs.causal)
      per /= 2;
    w.tensorFlops[static_cast<size_t>(q.dtype)] += 2 * per * (depth + valueDepth);
    break;
  }
  case OpClass::Matrix:
    w.tensorFlops[static_cast<size_t>(g.type(n.inputs[0].value).dtype)] += 2 * elements * contracted(g, n);
    if (n.op == OpKind::Linear && n.attrs.hasBias)
      w.ops += elements;
    break;
  default: break;
  }
  if (n.op == OpKind::ScaledMatmul) {
    w.tensorFlops[static_cast<size_t>(g.type(n.inputs[0].value).dtype)] += 2 * elements * contracted(g, n);
    w.ops = 2 * elements; // the outer scales
  }
  OpCost c = opCost(n, result.dtype);
  w.ops += c.ops * per;
  w.specialOps += c.special * per;

  switch (cls) {
  case OpClass::Norm:
    w.traffic = Traffic::Row;
    w.reductions = n.op == OpKind::RmsNorm ? 1 : 2;
    break;
  case OpClass::Reduction: {
    const std::vector<int64_t> &shape = g.type(n.inputs[0].value).shape;
    int64_t last = static_cast<int64_t>(shape.size()) - 1;
    bool arg = n.op == OpKind::ArgMax || n.op == OpKind::ArgMin;
    bool row =
        arg ? n.attrs.dim == last : std::find(n.attrs.dims.begin(), n.attrs.dims.end(), last) != n.attrs.dims.end();
    bool all = !arg && n.attrs.dims.size() == shape.size();
    w.traffic = all ? Traffic::Full : row ? Traffic::ReadStatistics : Traffic::Column;
    w.reductions = 1;
    break;
  }
  case OpClass::Loss:
    w.traffic = Traffic::ReadStatistics;
    w.reductions = 1;
    break;
  case OpClass::Indexing: w.traffic = Traffic::Gather; break;
  case OpClass::Matrix:
  case OpClass::Attention: w.traffic = Traffic::Matrix; break;
  case OpClass::Quant:
    if (n.op == OpKind::ScaledMatmul) {
      w.traffic = Traffic::Matrix;
    } else if (n.op != OpKind::Dequantize) {
      w.traffic = Traffic::Row;
      w.reductions = n.inputs.size() > 1 ? 0 : 1; // a given scale needs no amax
    }
    break;
  default: break;
  }
  return w;
}

WorkEstimate unfusedWork(const Graph &g) {
  WorkEstimate w;
  for (NodeId i = 0; i < g.nodes.size(); ++i)
    w += nodeWork(g, i);
  return w;
}

} // namespace rl::cost
