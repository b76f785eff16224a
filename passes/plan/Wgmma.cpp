// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/plan/Wgmma.h"
#include "passes/plan/Measure.h"
#include "passes/plan/TileSegments.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <numeric>
#include <set>

namespace rl {

namespace {

using index::Atom;
using index::Context;
using index::Expr;

int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

/// A trace's rows are those of all batches; its dimensions in terms of batches, a batch's rows, and columns.
class Places {
public:
  /// The dimension that has M.
  enum M : uint8_t { Rows, Columns, None };

  /// `rows`: of a batch. `batch`, `apart`: extents whose product is the number of batches, and that by which M is divided.
  Places(const Trace &trace, int64_t rows, const std::vector<int64_t> &batch, const std::vector<int64_t> &apart = {},
         M m = None)
      : ctx(*trace.context) {
    auto places = [&](const std::vector<int64_t> &extents) {
      Expr at = ctx.constant(0);
      for (int64_t e : extents) {
        batchDims.push_back(ctx.addDim(e));
        at = ctx.add(ctx.mul(at, e), ctx.dim(batchDims.back()));
      }
      return at;
    };
    Expr at = places(batch), outer = places(apart);
    const int64_t parts = std::accumulate(apart.begin(), apart.end(), int64_t(1), std::multiplies<>());
    auto whole = [&](int &dim, int64_t extent, M which) {
      const int64_t inner = m == which ? extent / parts : extent;
      dim = ctx.addDim(inner);
      return m == which ? ctx.add(ctx.mul(outer, inner), ctx.dim(dim)) : ctx.dim(dim);
    };
    Expr row = whole(rowDim, rows, Rows), column = whole(columnDim, trace.width, Columns);
    with.push_back({trace.rowDim, ctx.add(ctx.mul(at, rows), row)});
    if (trace.laneDim >= 0) {
      with.push_back({trace.vectorDim, ctx.floordiv(column, trace.lanes)});
      with.push_back({trace.laneDim, ctx.mod(column, trace.lanes)});
    } else {
      with.push_back({trace.vectorDim, column});
    }
  }

  Expr of(Expr e) { return ctx.substitute(ctx.expand(e), with); }
  int onlyBatch() const { return batchDims[0]; }

  /// Nothing where the offset is no sum of multiples. `parted`: the dimension that may lie in parts (WgmmaAccess::part), or -1.
  std::optional<WgmmaAccess> affine(Expr linear, int parted = -1) {
    Expr e = of(linear);
    WgmmaAccess out;
    out.offset = e.constantTerm();
    out.batch.assign(batchDims.size(), 0);
    int64_t quotient = 0, remainder = 0;
    for (const index::Term &t : e.terms()) {
      if (t.atom->kind != Atom::Dim) {
        if (parted < 0 || t.atom->arg != ctx.dim(parted) || (out.part != 0 && out.part != t.atom->divisor))
          return std::nullopt;
        out.part = t.atom->divisor;
        (t.atom->kind == Atom::FloorDiv ? quotient : remainder) = t.coef;
        continue;
      }
      auto at = std::find(batchDims.begin(), batchDims.end(), t.atom->dim);
      if (at != batchDims.end())
        out.batch[static_cast<size_t>(at - batchDims.begin())] = t.coef;
      else if (t.atom->dim == rowDim)
        out.row = t.coef;
      else if (t.atom->dim == columnDim)
        out.column = t.coef;
      else
        return std::nullopt;
    }
    if (out.part) { // k = part * (k floordiv part) + k mod part
      int64_t &inner = parted == rowDim ? out.row : out.column;
      out.partStride = out.part * inner + quotient;
      inner += remainder;
    }
    return out;
  }

  int rows() const { return rowDim; }
  int columns() const { return columnDim; }

  /// Of scales that blocks of `kBlock` columns and of so many rows as the result says share.
  std::optional<WgmmaScaleAccess> scales(Expr linear, int64_t kBlock) {
    Expr e = of(linear);
    WgmmaScaleAccess out;
    out.offset = e.constantTerm();
    out.batch.assign(batchDims.size(), 0);
    for (const index::Term &t : e.terms()) {
      const bool whole = t.atom->kind == Atom::Dim;
      // A floordiv of one dimension by itself.
      if (!whole &&
          (t.atom->kind != Atom::FloorDiv || t.atom->arg.terms().size() != 1 || t.atom->arg.constantTerm() != 0 ||
           t.atom->arg.terms()[0].coef != 1 || t.atom->arg.terms()[0].atom->kind != Atom::Dim))
        return std::nullopt;
      int dim = whole ? t.atom->dim : t.atom->arg.terms()[0].atom->dim;
      auto at = std::find(batchDims.begin(), batchDims.end(), dim);
      if (at != batchDims.end() && whole) {
        out.batch[static_cast<size_t>(at - batchDims.begin())] = t.coef;
      } else if (dim == rowDim && out.stride == 0) {
        out.rows = whole ? 1 : t.atom->divisor;
        out.stride = t.coef;
      } else if (dim == columnDim && !whole && t.atom->divisor == kBlock) {
        out.kStride = t.coef;
      } else {
        return std::nullopt;
      }
    }
    return out;
  }

private:
  Context &ctx;
  int rowDim, columnDim;
  std::vector<int> batchDims;
  index::Substitution with;
};

/// By what the dimension is divided anywhere in the expression.
void collectDivisors(Expr e, int dim, std::set<int64_t> &out) {
  for (const index::Term &t : e.terms())
    if (t.atom->kind != Atom::Dim && t.atom->arg.dependsOn(dim)) {
      out.insert(t.atom->divisor);
      collectDivisors(t.atom->arg, dim, out);
    }
}

/// The batches, or M, as several dimensions, the innermost last, where views before or behind the products need them apart.
std::vector<int64_t> extentsOf(int64_t batch, const std::set<int64_t> &divisors) {
  std::vector<int64_t> out;
  int64_t inner = 1;
  for (int64_t d : divisors)
    if (d > inner && d < batch && d % inner == 0 && batch % d == 0) {
      out.insert(out.begin(), d / inner);
      inner = d;
    }
  if (batch > inner)
    out.insert(out.begin(), batch / inner);
  return out;
}

/// What an instance is behind index maps, and casts where `casts`.
const Instance *seenThrough(const Graph &graph, const Trace &trace, uint32_t instance, bool casts) {
  const Instance *in = &trace.instances[instance];
  auto isThrough = [&] {
    if (in->node == kNone || in->operands.size() != 1 || in->operands[0] == kNone)
      return false;
    OpKind op = graph.nodes[in->node].op;
    return opInfo(op).cls == OpClass::Shape || (casts && op == OpKind::Cast);
  };
  while (isThrough())
    in = &trace.instances[in->operands[0]];
  return in;
}

bool isPlainLoad(const Instance &in) { return in.node == kNone && in.guard == 0 && in.operands.empty(); }

bool isMultipliedF8(DType t) { return isF8(t) && t != DType::F8E8M0; }

/// An operand as wgmma takes it: a load, or 8-bit floats times scales in f32. Null: it is neither.
struct OperandLoad {
  const Instance *load = nullptr, *scale = nullptr;
};

OperandLoad loadOf(const Graph &graph, const Trace &trace) {
  const Instance *in = seenThrough(graph, trace, trace.stores[0].instance, false);
  if (isPlainLoad(*in))
    return {in, nullptr};
  if (in->node == kNone || graph.nodes[in->node].op != OpKind::Mul || in->operands.size() != 2)
    return {};
  OperandLoad out;
  for (uint32_t o : in->operands) {
    if (o == kNone)
      return {};
    const Instance *x = seenThrough(graph, trace, o, true);
    if (!isPlainLoad(*x))
      return {};
    DType t = graph.type(x->value).dtype;
    if (isMultipliedF8(t))
      out.load = x;
    else if (t == DType::F32)
      out.scale = x;
  }
  return out.load && out.scale ? out : OperandLoad();
}

bool hasMap(const WgmmaAccess &a, DType t, int64_t extent, int64_t stride, const std::vector<int64_t> &batch) {
  return cost::hasTensorMap(t, a.offset, extent, stride, batch, a.batch);
}

/// Ops that are neither a branch nor a subroutine: those would serialise warpgroup products.
bool isStraight(OpKind op, DType t) {
  switch (op) {
  case OpKind::Sin:
  case OpKind::Cos:
  case OpKind::Pow:
  case OpKind::Fmod:
  case OpKind::Remainder:
  case OpKind::FloorDivide:
  case OpKind::Atan2:
  case OpKind::Sqrt:
  case OpKind::Rsqrt:
  case OpKind::Log1p:
  case OpKind::Expm1: return false;
  case OpKind::Div: return isFloat(t);
  default: {
    OpClass c = opInfo(op).cls;
    return c == OpClass::Unary || c == OpClass::Binary || c == OpClass::Ternary;
  }
  }
}

/// Why an operand is not computed from its trace as it is multiplied, or nothing.
std::string leftRefusal(const Graph &graph, const Trace &trace, Places &places, int64_t rows,
                        const std::vector<int64_t> &batch, WgmmaLeftForm &out, cost::GemmShape &shape) {
  constexpr int64_t kLive = 6; // values of an element at once, beside the accumulators
  if (trace.lanes != kLeftLanes)
    return "is computed where it is read, and is not in memory as it is";
  if (measurePressure(graph, trace).registers > kLive * trace.lanes)
    return "has too many values of an element at once";
  for (uint32_t i = 0; i < trace.instances.size(); ++i) {
    const Instance &in = trace.instances[i];
    DType t = graph.type(in.value).dtype;
    if (in.node != kNone) {
      OpKind op = graph.nodes[in.node].op;
      if (!in.pieces.empty() || (opInfo(op).cls != OpClass::Shape && op != OpKind::Full && !isStraight(op, t)))
        return std::string("is made by '") + opInfo(op).name + "'";
      if (op == OpKind::Cast)
        continue;
      cost::WorkEstimate w = measureOps(graph, in, in.uniform ? 1.0 / static_cast<double>(trace.lanes) : 1.0);
      shape.leftOps += w.ops;
      shape.leftSpecialOps += w.specialOps;
      continue;
    }
    if (in.linear.isConstant() && in.guard == 0 && in.operands.empty())
      continue;
    const std::string name = quoted(graph, in.value);
    std::optional<WgmmaAccess> a;
    if (in.guard == 0 && in.scope == 0 && in.operands.empty() && dtypeSize(t) <= 4)
      a = places.affine(in.linear);
    if (!a)
      return "reads " + name + " through views that no tensor map describes";
    a->value = in.value;
    a->place = i;
    if (a->column == 1 && a->row > 0 && hasMap(*a, t, rows, a->row, batch)) {
      out.tiles.push_back(*std::move(a));
      shape.leftTiles.push_back(t);
    } else if (a->column == 1 && a->row == 0 && hasMap(*a, t, 1, 0, batch)) {
      out.columns.push_back(*std::move(a));
      shape.leftColumns.push_back(t);
    } else if (a->column == 0 && a->row == 1) {
      out.rows.push_back(*std::move(a));
    } else {
      return "reads " + name + " neither row by row nor by vectors at multiples of 16 bytes";
    }
  }
  constexpr size_t kMost = 3; // tensors of a stage
  if (out.tiles.empty() || out.tiles.size() > kMost)
    return "reads " + std::to_string(out.tiles.size()) + " tensors of its extents";
  return {};
}

/// What the model of tiles does not know of: addresses of plain loads and stores, values that rows have, conversions to 8 bits.
/// Such epilogues are there once, and beside many accumulators get more registers. (What ptxas spilled otherwise.) False: as it
/// was.
bool spareRegisters(const Graph &graph, const WgmmaForm &form, cost::GemmTile &tile) {
  constexpr int kMany = 96;
  const cost::GemmTile before = tile;
  constexpr int64_t kShort =
      32; // of shorter segments a chunk has so many that what each has once wants registers as well
  bool narrow = false, addresses = form.loadsItself || (form.shape.segment > 0 && form.shape.segment < kShort);
  for (const WgmmaAccess &o : form.outputs) {
    DType t = graph.type(o.value).dtype;
    narrow |= dtypeSize(t) == 1;
    addresses |= !hasMap(o, t, form.shape.m, o.row, form.batch);
  }
  if (narrow || addresses || !form.rows.empty() || form.shape.segment)
    tile.unroll = 1;
  // Sums of integers are converted before they meet anything.
  if (!isFloat(form.shape.a) && form.shape.ops > 0 && tile.blocks * tile.tileN / 2 > kMany)
    tile.unroll = std::min(tile.unroll, 2);
  if (addresses && tile.consumers > 1 && form.shape.products * tile.blocks * tile.tileN / 2 > kMany)
    tile.moreRegisters = true;
  // A pass over a segment waits for its own results rather than for instructions: two groups at once.
  constexpr int64_t kBoth = 32;
  if (tile.keeps && form.shape.segment % kBoth == 0 && tile.chunkColumns() % kBoth == 0) {
    tile.unroll = 2;
    tile.moreRegisters = tile.consumers > 1;
  }
  return tile != before;
}

} // namespace

bool computesLeft(const Graph &graph, const Node &product, const std::set<ValueId> &stored,
                  const cost::TargetDesc &target) {
  if (!target.gpu || target.sm != 90 || product.attrs.transposeA)
    return false;
  const ValueId operand = product.inputs[0].value;
  DType t = graph.type(operand).dtype;
  const ProductShape p = productShape(graph, product);
  if ((t != DType::BF16 && t != DType::F16) || graph.type(product.inputs[1].value).dtype != t || p.m < 2 ||
      p.batch < 1 || p.n < 1 || p.k < 1)
    return false;
  std::vector<bool> boundary(graph.values.size(), false);
  for (ValueId v : stored)
    boundary[v] = true;
  Result<Trace> trace = traceOperand(graph, operand, boundary, true, kLeftLanes);
  WgmmaLeftForm form;
  cost::GemmShape shape;
  if (!trace)
    return false;
  const std::vector<int64_t> batch = extentsOf(p.batch, {});
  Places places(*trace, p.m, batch);
  return leftRefusal(graph, *trace, places, p.m, batch, form, shape).empty();
}

WgmmaForm wgmmaForm(const Graph &graph, const Trace &epilogue, const std::vector<NodeId> &products,
                    const std::vector<const Trace *> &operands) {
  WgmmaForm out;
  auto refuse = [&](std::string why) {
    out.refusal = std::move(why);
    return out;
  };
  const Node &first = graph.nodes[products[0]];
  ProductShape p = productShape(graph, first);
  if (p.batch < 1 || p.m < 1 || p.n < 1 || p.k < 1)
    return refuse("the product is empty");
  if (std::max({p.m, p.n, p.k}) > INT32_MAX / 2)
    return refuse("the product is larger than 32-bit coordinates reach");
  if (products.size() > 2)
    return refuse(std::to_string(products.size()) + " products");

  std::vector<const Instance *> loads, scales;
  auto typeOf = [&](size_t o) {
    return graph.type(loads[o] ? loads[o]->value : graph.nodes[products[o / 2]].inputs[o % 2].value).dtype;
  };
  auto nameOf = [&](size_t o) {
    return quoted(graph, loads[o] ? loads[o]->value : graph.nodes[products[o / 2]].inputs[o % 2].value);
  };
  for (size_t o = 0; o < operands.size(); ++o) {
    const Operand &operand = graph.nodes[products[o / 2]].inputs[o % 2];
    auto [load, scale] = loadOf(graph, *operands[o]);
    const bool computed = !load && o % 2 == 0 && !first.attrs.transposeA;
    if (!load && !computed)
      return refuse(quoted(graph, operand.value) + " is computed where it is read, and is not in memory as it is");
    loads.push_back(load);
    scales.push_back(scale);
    DType t = typeOf(o);
    const bool integers = t == DType::I8 || t == DType::U8;
    if (t != DType::BF16 && t != DType::F16 && !isMultipliedF8(t) && !integers)
      return refuse("it multiplies numbers of 16 or 8 bits, and " + nameOf(o) + " is " + dtypeName(t));
    if (computed && dtypeSize(t) != 2)
      return refuse(nameOf(o) + " is computed where it is read, and is not of 16 bits");
    DType before = typeOf(0);
    if (t != before && !(isF8(t) && isF8(before)))
      return refuse(nameOf(0) + " and " + nameOf(o) + " have different types");
    if ((scale != nullptr) != (scales[0] != nullptr))
      return refuse("one of " + nameOf(0) + " and " + nameOf(o) + " has scales along K, and the other none");
    // Tensor cores take e4m3 beside e5m2, but all right operands alike.
    if (o > 1 && t != typeOf(o % 2))
      return refuse("the two products' operands have different types");
  }
  DType accumulated = graph.type(first.outputs[0]).dtype;
  if (accumulated != DType::F32 && accumulated != DType::I32)
    return refuse(std::string("it accumulates in f32 or i32, not in ") + dtypeName(accumulated));
  if (scales[0] && products.size() > 1)
    return refuse("two products with scales along K");

  // Views may divide the batches, and M: then they are several dimensions of a tensor map.
  std::set<int64_t> divisors, mDivisors;
  auto rowsOf = [&](const Trace *t) { return t->elements / t->width / p.batch; };
  auto divide = [&](const Trace &trace, int64_t rows, Expr linear, Places::M m) {
    Places places(trace, rows, {p.batch});
    Expr e = places.of(linear);
    collectDivisors(e, places.onlyBatch(), divisors);
    if (m != Places::None)
      collectDivisors(e, m == Places::Rows ? places.rows() : places.columns(), mDivisors);
  };
  const Places::M leftM = first.attrs.transposeA ? Places::Columns : Places::Rows;
  for (size_t o = 0; o < operands.size(); ++o)
    for (const Instance &in : operands[o]->instances)
      if (in.node == kNone && (!loads[o] || &in == loads[o]))
        divide(*operands[o], rowsOf(operands[o]), in.linear, o % 2 ? Places::None : leftM);
  for (const TraceStore &s : epilogue.stores)
    divide(epilogue, p.m, s.linear, storesSegments(graph, epilogue, s) ? Places::None : Places::Rows);
  std::vector<int64_t> apart = extentsOf(p.m, mDivisors);
  const std::vector<int64_t> batches = extentsOf(p.batch, divisors);
  const int64_t m = apart.empty() ? 1 : apart.back();
  if (!apart.empty())
    apart.pop_back();
  out.batch = batches;
  out.batch.insert(out.batch.end(), apart.begin(), apart.end());
  if (out.batch.size() > 3)
    return refuse("a tensor map has five dimensions, not " + std::to_string(out.batch.size() + 2));

  cost::GemmShape &shape = out.shape;
  shape.batch = p.batch * (p.m / m);
  shape.m = m;
  shape.n = p.n;
  shape.k = p.k;
  shape.a = typeOf(0);
  shape.b = typeOf(1);
  // Scales along K multiply the sums of their block: such sums are promoted whether they may stay or not.
  shape.promotes = isF8(shape.a) && (!first.attrs.fast || scales[0]);
  shape.products = static_cast<int>(products.size());
  for (size_t o = 0; o < operands.size(); ++o) {
    if (o > 0 && o % 2 == 0)
      continue; // the left operand again
    const Node &node = graph.nodes[products[o / 2]];
    Places places(*operands[o], rowsOf(operands[o]), batches, apart, o == 0 ? leftM : Places::None);
    if (!loads[o]) {
      std::string why = leftRefusal(graph, *operands[o], places, m, out.batch, out.computed.emplace(), shape);
      if (!why.empty())
        return refuse(nameOf(o) + " " + why);
      continue;
    }
    // As it is stored: the left operand's rows are M, or K where it is transposed; the right one's K, or N.
    const bool left = o == 0, rowsOfK = left ? node.attrs.transposeA : !node.attrs.transposeB;
    std::optional<WgmmaAccess> a = places.affine(loads[o]->linear, rowsOfK ? places.rows() : places.columns());
    std::string name = quoted(graph, loads[o]->value);
    if (!a)
      return refuse(name + " is read through views that no tensor map describes");
    a->value = loads[o]->value;
    if (rowsOfK)
      std::swap(a->row, a->column);
    bool kMajor = a->column == 1;
    if (!kMajor && a->row != 1)
      return refuse(name + " has no contiguous dimension");
    int64_t stride = kMajor ? a->row : a->column;
    if (dtypeSize(shape.a) == 1 && !kMajor)
      return refuse(name + ": 8-bit operands are multiplied where K is contiguous");
    if (a->part) {
      const int64_t step = 128 / static_cast<int64_t>(dtypeSize(shape.a)); // along K, of a tile
      const auto further = std::count_if(a->batch.begin(), a->batch.end(), [](int64_t s) { return s != 0; });
      if (a->part % step != 0)
        return refuse(name + " lies in parts of " + std::to_string(a->part) + " along K, no multiple of " +
                      std::to_string(step));
      if (further > 2)
        return refuse("a tensor map has five dimensions, not " + std::to_string(further + 3));
      if (!cost::isMapStride(shape.a, a->partStride))
        return refuse(name + ": its parts along K are " + std::to_string(a->partStride) +
                      " elements apart, which no tensor map takes");
    }
    if (!hasMap(*a, shape.a, kMajor ? (left ? m : p.n) : (a->part ? a->part : p.k), stride, out.batch))
      return refuse(name + ": its rows, " + std::to_string(stride) +
                    " elements apart, or its start are no multiples of 16 bytes");
    if (scales[o]) {
      constexpr int64_t kBlock = 128, kLeastPiece = 32;
      std::string scaleName = quoted(graph, scales[o]->value);
      std::optional<WgmmaScaleAccess> s;
      if (left ? !node.attrs.transposeA : node.attrs.transposeB)
        s = places.scales(scales[o]->linear, kBlock);
      if (!s)
        return refuse(scaleName + " is not one scale of 128 elements along K");
      if (!left && s->stride != 0 && s->rows % kLeastPiece != 0)
        return refuse(scaleName + " has a scale for every " + std::to_string(s->rows) +
                      " columns, and a thread's columns share them by 32 and more");
      s->value = scales[o]->value;
      if (s->stride == 0) // one for all rows
        s->rows = left ? m : p.n;
      if (!left)
        shape.scaleColumns = s->rows;
      out.scales.push_back(*std::move(s));
    }
    int64_t different = 1;
    for (size_t d = 0; d < out.batch.size(); ++d)
      different *= a->batch[d] != 0 ? out.batch[d] : 1;
    (left ? shape.aBatches : shape.bBatches) = different;
    if (left) {
      shape.aKMajor = kMajor;
      shape.aPitch = stride;
      out.left = *std::move(a);
    } else {
      shape.bKMajor.push_back(kMajor);
      shape.bPitch.push_back(stride);
      out.right.push_back(*std::move(a));
    }
  }
  if (shape.products == 2 && shape.isBKMajor(0) != shape.isBKMajor(1))
    return refuse("the two right operands have their elements in different orders");

  Places places(epilogue, p.m, batches, apart, Places::Rows);
  shape.segment = tileSegments(graph, epilogue).columns;
  for (const TraceStore &s : epilogue.stores) {
    ValueId v = epilogue.instances[s.instance].value;
    if (storesSegments(graph, epilogue, s)) {
      std::optional<WgmmaScaleAccess> a = places.scales(s.linear, shape.segment);
      if (!a || a->rows != 1)
        return refuse(quoted(graph, v) + " is not stored row by row");
      out.segments.push_back({v, s.output, a->offset, a->batch, a->stride, a->kStride});
      shape.segmentBytes += static_cast<double>(dtypeSize(graph.type(v).dtype));
      continue;
    }
    std::optional<WgmmaAccess> a = places.affine(s.linear, places.columns());
    if (!a || (a->column != 1 && p.n > 1) || a->row < 0 || a->offset != 0)
      return refuse(quoted(graph, v) + " is not stored row by row");
    if (a->part) {
      const DType t = graph.type(v).dtype;
      const auto further = std::count_if(a->batch.begin(), a->batch.end(), [](int64_t s) { return s != 0; });
      if (further > 2 || !hasMap(*a, t, m, a->row, out.batch) || !cost::isMapStride(t, a->partStride))
        return refuse(quoted(graph, v) + " is stored in parts of its rows that no tensor map describes");
      shape.columnPart = std::gcd(shape.columnPart, a->part);
    }
    if (dtypeSize(graph.type(v).dtype) > 4)
      return refuse(std::string("results of type ") + dtypeName(graph.type(v).dtype) + " are not staged");
    a->value = v;
    a->place = s.output;
    out.outputs.push_back(*std::move(a));
  }
  for (const WgmmaAccess &a : out.outputs) {
    DType t = graph.type(a.value).dtype;
    // Adding up parts keeps what a result of 16 bits shows, no more.
    if (shape.promotes && !first.attrs.fast && dtypeSize(t) > 2)
      return refuse("in the tensor cores a sum of 8-bit floats keeps about 13 bits, and " + quoted(graph, a.value) +
                    " is " + dtypeName(t) + " (a result of 16 bits, or \"fast_accumulate\", lets them)");
    shape.outputs.push_back(t);
  }

  // What a whole tile, column or row reads in order is loaded ahead, other loads are made where their value is needed.
  constexpr double kOwnLoadOps = 16; // what waiting for it takes, as instructions of an element
  const uint32_t last = epilogue.levels + 1;
  if (shape.segment) {
    out.kept = keptValue(graph, epilogue);
    shape.mayKeep = out.kept != kNone;
    for (uint32_t level = 2; shape.mayKeep && level <= last; ++level)
      for (uint32_t i : segmentPass(graph, epilogue, level, out.kept)) {
        const Instance &in = epilogue.instances[i];
        if (in.node == kNone || graph.nodes[in.node].op == OpKind::Cast)
          continue;
        cost::WorkEstimate w = measureOps(graph, in, in.uniform ? 1.0 / static_cast<double>(epilogue.lanes) : 1.0);
        shape.keptOps += w.ops;
        shape.keptSpecialOps += w.specialOps;
      }
  }
  std::vector<bool> again(epilogue.instances.size(), !shape.segment); // in the pass that stores
  for (uint32_t level = 1; shape.segment && level <= last; ++level)
    for (uint32_t i : segmentPass(graph, epilogue, level)) {
      const Instance &in = epilogue.instances[i];
      again[i] = level == last;
      if (level == last || (in.node != kNone && graph.nodes[in.node].op == OpKind::Cast))
        continue;
      cost::WorkEstimate w = measureOps(graph, in, in.uniform ? 1.0 / static_cast<double>(epilogue.lanes) : 1.0);
      shape.passOps += w.ops;
      shape.passSpecialOps += w.specialOps;
    }
  for (uint32_t i = 0; i < epilogue.instances.size(); ++i) {
    const Instance &in = epilogue.instances[i];
    if (in.node != kNone) {
      cost::WorkEstimate w = measureOps(graph, in, in.uniform ? 1.0 / static_cast<double>(epilogue.lanes) : 1.0);
      // A product's f32 is what there is; narrowing it for the store is in the model.
      if (graph.nodes[in.node].op != OpKind::Cast && again[i])
        shape.ops += w.ops;
      if (again[i])
        shape.specialOps += w.specialOps;
      else if (isSegmentReduction(in))
        shape.passOps += w.ops;
      continue;
    }
    DType t = graph.type(in.value).dtype;
    auto size = static_cast<int64_t>(dtypeSize(t));
    std::optional<WgmmaAccess> a;
    if (in.guard == 0 && in.scope == 0 && in.operands.empty() && size <= 4)
      a = places.affine(in.linear);
    if (a) {
      a->value = in.value;
      a->place = i;
      bool whole = cost::isMultipleOf16Bytes(a->offset, t);
      for (int64_t s : a->batch)
        whole &= cost::isMultipleOf16Bytes(s, t) && s >= 0;
      if (a->column == 1 && a->row > 0 && size >= 2 && hasMap(*a, t, m, a->row, out.batch)) {
        shape.tiles.push_back(t);
        out.tiles.push_back(*std::move(a));
        continue;
      }
      if (a->column == 1 && a->row == 0 && size >= 2 && whole) {
        shape.columns.push_back(t);
        out.columns.push_back(*std::move(a));
        continue;
      }
      if (a->column == 0 && a->row == 1 && m > 1) {
        out.rows.push_back(*std::move(a));
        continue;
      }
    }
    if (!in.linear.isConstant()) {
      out.loadsItself = true;
      shape.ops += kOwnLoadOps;
    }
  }
  return out;
}

void scheduleWgmma(const Graph &graph, const Trace &epilogue, const std::vector<NodeId> &products,
                   const std::vector<Trace> &operands, const cost::TargetDesc &target, PlannedGroup &g,
                   const GemmSchedule *only) {
  if (!target.gpu || target.sm != 90 || !g.gemm || (only && (only->kernel != "wgmma" || only->turned)))
    return;
  std::vector<const Trace *> traces;
  for (const Trace &t : operands)
    traces.push_back(&t);
  WgmmaForm form = wgmmaForm(graph, epilogue, products, traces);
  if (form.refusal.empty())
    scheduleForm(graph, epilogue, products, form, target, g, only);
  else
    g.why.push_back("no warpgroup products: " + form.refusal);
}

void scheduleForm(const Graph &graph, const Trace &epilogue, const std::vector<NodeId> &products, const WgmmaForm &form,
                  const cost::TargetDesc &target, PlannedGroup &g, const GemmSchedule *only) {
  const bool turned = form.shape.turned;
  auto refuse = [&](const std::string &why) {
    g.why.push_back((turned ? kNotTurned : "no warpgroup products: ") + why);
  };
  // Of a column. Beside the accumulators and the addresses of staging memory ptxas has room for more where N is even, and spills
  // from 13 on where elements are stored one by one.
  constexpr int64_t kLive = 11;
  if (int64_t live = measurePressure(graph, epilogue).registers; live > kLive * epilogue.lanes)
    return refuse("what is behind has " + std::to_string(live / epilogue.lanes) +
                  " values of an element at once, and " + std::to_string(kLive) +
                  " have registers beside the accumulators");
  // A subroutine of the assembler's, beside which warpgroup products are serialised. (Those of floats are written out.)
  for (const Instance &in : epilogue.instances)
    if (OpKind op = in.node == kNone ? OpKind::Full : graph.nodes[in.node].op;
        (op == OpKind::FloorDivide || op == OpKind::Fmod || op == OpKind::Remainder) &&
        graph.type(in.value).dtype == DType::I64)
      return refuse("what is behind divides integers of 64 bits");
  // Many for the list of candidates, which has few of a form; the choice is among the first.
  constexpr size_t kMany = 96, kChosenFrom = 8;
  std::vector<cost::GemmCandidate> many = cost::chooseGemmTiles(form.shape, target, kMany);
  std::vector<cost::GemmCandidate> all(many.begin(), many.begin() + std::min(many.size(), kChosenFrom));
  if (all.empty())
    return refuse("no tile fits the shared memory of an SM beside what the epilogue reads and stores");
  for (std::vector<cost::GemmCandidate> *list : {&all, &many})
    for (cost::GemmCandidate &c : *list)
      if (cost::GemmTile t = c.tile; spareRegisters(graph, form, t))
        c = cost::predictGemm(form.shape, t, target);
  std::stable_sort(all.begin(), all.end(),
                   [](const cost::GemmCandidate &a, const cost::GemmCandidate &b) { return a.seconds < b.seconds; });
  // The model's launch is from one of many to the next; here both are the first.
  auto secondsOf = [&](const cost::GemmCandidate &c) { return c.seconds - c.launch + g.time.launch + g.time.latency; };
  auto scheduleOf = [&](const cost::GemmTile &tile) {
    GemmSchedule s = *g.gemm;
    s.kernel = "wgmma";
    s.turned = turned;
    s.tileM = turned ? tile.tileN : tile.tileM();
    s.tileN = turned ? tile.tileM() : tile.tileN;
    s.tileK = 128 / static_cast<int64_t>(dtypeSize(form.shape.a));
    s.stages = tile.stages;
    s.threads = tile.threads();
    s.warpsM = s.warpsN = s.warpsK = 1;
    s.wgmma = tile;
    s.once = readsRightOnce(graph, products, g.inputs, s, target);
    return s;
  };
  for (const cost::GemmCandidate &c : many)
    g.tiles.push_back({scheduleOf(c.tile), secondsOf(c)});
  constexpr size_t kTold = 3;
  all.resize(std::min(all.size(), kTold));
  if (only)
    all = {cost::predictGemm(form.shape, only->wgmma, target)};
  const cost::GemmCandidate &best = all[0];
  const cost::GemmTile &tile = best.tile;
  constexpr double kMostTiles = 1 << 30;
  const double tiles = static_cast<double>(form.shape.batch) *
                       static_cast<double>(ceilDiv(form.shape.m, tile.tileM())) *
                       static_cast<double>(ceilDiv(form.shape.n, tile.tileN));
  if (tiles > kMostTiles)
    return refuse("more tiles than 2^30");
  double seconds = secondsOf(best);
  char text[160];
  // Where both are predicted alike, as memory binds them, this one is the quicker (measured on an H200: 14 to 170 us where mma takes 15
  // to 228).
  // With weights to be widened the choice is between this and weights that are written first, which the caller judges.
  if (!only && !turned && seconds >= g.time.total) {
    std::snprintf(text, sizeof text, "predicted %.3g us, against %.3g us; ", seconds * 1e6, g.time.total * 1e6);
    return refuse(text + best.str());
  }

  g.fallback = g.gemm;
  GemmSchedule &s = *g.gemm;
  s = scheduleOf(tile);
  std::snprintf(text, sizeof text,
                " at %.3g us: where a pointer is no multiple of 16 bytes, or the driver has no tensor maps",
                g.time.total * 1e6);
  std::string fallback = "kernel '" + g.fallback->kernel + "', tiles of " + std::to_string(g.fallback->tileM) + " x " +
                         std::to_string(g.fallback->tileN) + " x " + std::to_string(g.fallback->tileK) + text;

  g.threads = s.threads;
  g.work.threadsPerBlock = static_cast<int>(s.threads);
  g.work.blocks = std::min(tiles, target.smCount * tile.blocksPerSm);
  g.work.registers = 0;
  g.work.sharedBytes = static_cast<double>(cost::gemmShared(form.shape, tile).total);
  // Whole tiles are computed, also where they stick out.
  g.work.tensorFlops = {};
  g.work.tensorFlops[static_cast<size_t>(form.shape.a)] =
      2.0 * tiles * static_cast<double>(s.tileM * s.tileN) *
      static_cast<double>(ceilDiv(s.shape.k, s.tileK) * s.tileK * s.products);
  cost::Estimate time;
  time.launch = g.time.launch;
  time.latency = g.time.latency;
  time.memory = best.memory;
  time.tensor = best.mainloop + best.epilogue;
  time.total = seconds;
  g.time = time;
  g.time.bound = best.memory > g.time.tensor ? cost::Bound::Memory : cost::Bound::Tensor;
  g.time.intensity = g.work.bytes() > 0 ? g.work.flops() / g.work.bytes() : 0;

  g.why.resize(1); // the tiles of the kernel that is not taken
  std::snprintf(text, sizeof text, "predicted %.3g us; kernel 'wgmma', tile ", seconds * 1e6);
  g.why.push_back(text + best.str());
  for (size_t i = 1; i < all.size(); ++i)
    g.why.push_back("next best tile " + all[i].str());
  std::string ahead;
  auto list = [&](const std::vector<WgmmaAccess> &from, const char *as) {
    for (const WgmmaAccess &a : from)
      ahead += (ahead.empty() ? "" : ", ") + quoted(graph, a.value) + as;
  };
  if (turned) {
    list(form.computed->tiles, "");
    g.why.push_back(ahead + (form.shape.products > 1 ? " become " : " becomes ") + dtypeName(form.shape.a) +
                    " in the registers that the tensor cores read, and the result is computed turned round");
    ahead.clear();
    for (const WgmmaAccess &a : form.weightScales)
      if (a.value != kNone)
        list({a}, "");
    if (!ahead.empty())
      g.why.push_back(ahead + (form.shape.products > 1 ? " multiply their sums" : " multiplies the sums"));
    ahead.clear();
  } else if (form.computed) {
    list(form.computed->tiles, "");
    list(form.computed->columns, " along K");
    list(form.computed->rows, " by rows");
    g.why.push_back(quoted(graph, graph.nodes[products[0]].inputs[0].value) +
                    " is computed in registers as it is multiplied, from " + ahead);
    ahead.clear();
  }
  list(form.tiles, " in tiles");
  list(form.columns, turned ? " by rows" : " by columns");
  list(form.rows, turned ? " by columns" : " by rows");
  if (!ahead.empty())
    g.why.push_back("loaded ahead of the epilogue: " + ahead);
  if (s.once)
    g.why.push_back(kReadOnce);
  g.why.push_back("otherwise " + fallback);
}

} // namespace rl
