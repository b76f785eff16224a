// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of Wgmma.h that turns products round. Of the operands of a warpgroup's product the left one alone may be in registers, where
// numbers of 8 bits become wider: so weights are taken as the left one, the activations as the right, and the tile that comes of it
// lies transposed.
#include "passes/plan/Measure.h"
#include "passes/plan/Stream.h"
#include "passes/plan/TileSegments.h"
#include "passes/plan/Wgmma.h"

#include <algorithm>

namespace rl {

namespace {

/// A place of the epilogue, which has one lane, as offset + row * M's index + column * N's; nothing where it is another.
std::optional<WgmmaAccess> affine(const Trace &trace, const index::Expr &linear) {
  WgmmaAccess out;
  out.offset = linear.constantTerm();
  for (const index::Term &t : linear.terms()) {
    if (t.atom->kind != index::Atom::Dim)
      return std::nullopt;
    if (t.atom->dim == trace.rowDim)
      out.row = t.coef;
    else if (t.atom->dim == trace.vectorDim)
      out.column = t.coef;
    else
      return std::nullopt;
  }
  return out;
}

WgmmaAccess accessOf(const StreamAccess &a, int64_t column) {
  WgmmaAccess out;
  out.value = a.value;
  out.offset = a.offset;
  out.row = a.stride;
  out.column = column;
  return out;
}

/// What is stored, and what the epilogue reads; the reason why there is no such kernel, or nothing.
std::string addEpilogue(const Graph &graph, const Trace &epilogue, const ProductShape &p, WgmmaForm &out) {
  cost::GemmShape &shape = out.shape;
  auto isTile = [&](const WgmmaAccess &a, DType t) {
    return (a.column == 1 || p.n == 1) && a.row > 0 && cost::hasTensorMap(t, a.offset, p.m, a.row, {}, {});
  };
  for (const TraceStore &s : epilogue.stores) {
    const ValueId v = epilogue.instances[s.instance].value;
    const DType t = graph.type(v).dtype;
    std::optional<WgmmaAccess> a = affine(epilogue, s.linear);
    if (!a || a->offset != 0 || !isTile(*a, t) || dtypeSize(t) > 4)
      return quoted(graph, v) + " is not stored row by row at multiples of 16 bytes";
    a->value = v;
    a->place = s.output;
    out.outputs.push_back(*std::move(a));
    shape.outputs.push_back(t);
  }
  constexpr double kOwnLoadOps = 16; // what waiting for a load takes, as instructions of an element
  for (uint32_t i = 0; i < epilogue.instances.size(); ++i) {
    const Instance &in = epilogue.instances[i];
    if (in.node != kNone) {
      cost::WorkEstimate w = measureOps(graph, in, 1);
      if (graph.nodes[in.node].op != OpKind::Cast) // narrowing for the store is in the model
        shape.ops += w.ops;
      shape.specialOps += w.specialOps;
      continue;
    }
    const DType t = graph.type(in.value).dtype;
    std::optional<WgmmaAccess> a;
    if (in.guard == 0 && in.scope == 0 && in.operands.empty() && dtypeSize(t) <= 4)
      a = affine(epilogue, in.linear);
    if (a) {
      a->value = in.value;
      a->place = i;
      if (a->column == 1 && isTile(*a, t)) {
        shape.tiles.push_back(t);
        out.tiles.push_back(*std::move(a));
        continue;
      }
      if (a->column == 1 && a->row == 0) { // what the kernel's rows have
        out.rows.push_back(*std::move(a));
        continue;
      }
      if (a->column == 0 && a->row == 1 && dtypeSize(t) >= 2 && cost::isMultipleOf16Bytes(a->offset, t)) {
        shape.columns.push_back(t);
        out.columns.push_back(*std::move(a));
        continue;
      }
    }
    if (!in.linear.isConstant()) {
      out.loadsItself = true;
      shape.ops += kOwnLoadOps;
    }
  }
  return {};
}

} // namespace

WgmmaForm turnedForm(const Graph &graph, const Trace &epilogue, const std::vector<NodeId> &products,
                     const std::vector<const Trace *> &operands) {
  WgmmaForm out;
  auto refuse = [&](std::string why) {
    out.refusal = std::move(why);
    return out;
  };
  StreamForm read = streamForm(graph, products, operands, INT32_MAX / 2);
  if (!read.refusal.empty())
    return refuse(std::move(read.refusal));
  if (!cost::isNarrow(read.shape.right))
    return refuse(quoted(graph, read.right[0].rows.value) + " is multiplied as it is in memory");
  if (int64_t segment = tileSegments(graph, epilogue).columns)
    return refuse("a warp has 16 columns of a row, and segments of " + std::to_string(segment) + " are reduced");
  const ProductShape p = productShape(graph, graph.nodes[products[0]]);
  cost::GemmShape &shape = out.shape;
  shape.turned = true;
  shape.m = p.n;
  shape.n = p.m;
  shape.k = p.k;
  shape.a = shape.b = read.shape.left;
  shape.products = read.shape.products;
  shape.bPitch.push_back(read.left.stride);
  out.computed.emplace();
  for (const StreamOperand &w : read.right) {
    out.computed->tiles.push_back(accessOf(w.rows, 1));
    out.weightScales.push_back(accessOf(w.scale, 0));
    shape.leftTiles.push_back(read.shape.right);
    shape.aPitch = w.rows.stride;
  }
  out.right.push_back(accessOf(read.left, 1));
  if (std::string why = addEpilogue(graph, epilogue, p, out); !why.empty())
    return refuse(std::move(why));
  return out;
}

std::string turnedRefusal(const Graph &graph, const Node &product, const std::vector<bool> &boundary,
                          const cost::TargetDesc &target) {
  if (!target.gpu || target.sm != 90)
    return "the machine has no warpgroup products";
  if (const ProductShape p = productShape(graph, product); p.m <= cost::kMostStreamRows)
    return std::to_string(p.m) + " rows";
  if (!product.attrs.transposeB)
    return "the right operand's rows are not along K";
  Result<Trace> left = traceOperand(graph, product.inputs[0].value, boundary, true),
                right = traceOperand(graph, product.inputs[1].value, boundary, true);
  if (!left || !right)
    return (left ? right : left).error().message;
  auto self = static_cast<NodeId>(&product - graph.nodes.data());
  const StreamForm read = streamForm(graph, {self}, {&*left, &*right}, INT32_MAX / 2);
  if (read.refusal.empty() && !cost::isNarrow(read.shape.right))
    return "it has 16 bits in memory";
  return read.refusal;
}

void scheduleTurned(const Graph &graph, const Trace &epilogue, const std::vector<NodeId> &products,
                    const std::vector<Trace> &operands, const cost::TargetDesc &target, PlannedGroup &g,
                    const GemmSchedule *only) {
  if (!target.gpu || target.sm != 90 || !g.gemm || (only && !only->turned))
    return;
  std::vector<const Trace *> traces;
  for (const Trace &t : operands)
    traces.push_back(&t);
  const WgmmaForm form = turnedForm(graph, epilogue, products, traces);
  if (form.refusal.empty())
    scheduleForm(graph, epilogue, products, form, target, g, only);
  else
    g.why.push_back(kNotTurned + form.refusal);
}

} // namespace rl
