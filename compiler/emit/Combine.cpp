// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/emit/Combine.h"
#include "compiler/emit/InlineAsm.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/bit.h"

#include <cmath>

using namespace mlir;

namespace rl::emit {

using mlir::Value; // not the graph's

Type Combiner::type(OpBuilder &b) const {
  if (op == OpKind::Any || op == OpKind::All)
    return b.getI32Type();
  if (isFloat(operand))
    return b.getF32Type();
  return op == OpKind::Sum || op == OpKind::Prod || operand == DType::I64 ? b.getI64Type() : b.getI32Type();
}

Value Combiner::identity(OpBuilder &b, Location loc, int64_t lanes) const {
  Type t = type(b);
  TypedAttr element;
  if (t.isF32()) {
    float f = op == OpKind::Amax ? -INFINITY : op == OpKind::Amin ? INFINITY : op == OpKind::Prod ? 1.0f : 0.0f;
    element = b.getF32FloatAttr(f);
  } else {
    unsigned width = t.getIntOrFloatBitWidth();
    llvm::APInt i(width, op == OpKind::Prod || op == OpKind::All ? 1 : 0);
    if (op == OpKind::Amax)
      i = llvm::APInt::getSignedMinValue(width);
    else if (op == OpKind::Amin)
      i = llvm::APInt::getSignedMaxValue(width);
    element = IntegerAttr::get(t, i);
  }
  if (lanes == 1)
    return arith::ConstantOp::create(b, loc, element);
  return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(VectorType::get({lanes}, t), Attribute(element)));
}

Value Combiner::contribution(BodyEmitter &body, Location loc, Lane &lane, int64_t lanes) const {
  OpBuilder &b = body.builder();
  Value v;
  if (op == OpKind::Any || op == OpKind::All) {
    Value bit = body.cast(lane, DType::Bool, true).raw;
    Type i32 = b.getI32Type();
    if (auto vector = dyn_cast<VectorType>(bit.getType()))
      i32 = VectorType::get(vector.getShape(), i32);
    v = arith::ExtUIOp::create(b, loc, i32, bit);
  } else if (isFloat(operand)) {
    v = body.wide(lane);
  } else {
    v = body.cast(lane, type(b).isInteger(64) ? DType::I64 : DType::I32, true).raw;
  }
  return body.splatTo(v, lanes);
}

Value Combiner::combine(OpBuilder &b, Location loc, Value x, Value y) const {
  bool isFloat = isa<FloatType>(getElementTypeOrSelf(x.getType()));
  switch (op) {
  case OpKind::Sum:
    return isFloat ? arith::AddFOp::create(b, loc, x, y).getResult() : arith::AddIOp::create(b, loc, x, y).getResult();
  case OpKind::Prod:
    return isFloat ? arith::MulFOp::create(b, loc, x, y).getResult() : arith::MulIOp::create(b, loc, x, y).getResult();
  case OpKind::Amax:
    return isFloat ? arith::MaximumFOp::create(b, loc, x, y).getResult()
                   : arith::MaxSIOp::create(b, loc, x, y).getResult();
  case OpKind::Amin:
    return isFloat ? arith::MinimumFOp::create(b, loc, x, y).getResult()
                   : arith::MinSIOp::create(b, loc, x, y).getResult();
  case OpKind::Any: return arith::OrIOp::create(b, loc, x, y);
  default: // All
    return arith::AndIOp::create(b, loc, x, y);
  }
}

Value Combiner::acrossLanes(OpBuilder &b, Location loc, Value v) const {
  auto vector = dyn_cast<VectorType>(v.getType());
  if (!vector)
    return v;
  for (int64_t half = vector.getNumElements() / 2; half > 1; half /= 2) {
    SmallVector<int64_t> low, high;
    for (int64_t i = 0; i < half; ++i) {
      low.push_back(i);
      high.push_back(half + i);
    }
    Value x = vector::ShuffleOp::create(b, loc, v, v, low), y = vector::ShuffleOp::create(b, loc, v, v, high);
    v = combine(b, loc, x, y);
  }
  Value x = vector::ExtractOp::create(b, loc, v, ArrayRef<int64_t>{0}),
        y = vector::ExtractOp::create(b, loc, v, ArrayRef<int64_t>{1});
  return combine(b, loc, x, y);
}

Value Combiner::inOrder(OpBuilder &b, Location loc, Value total, Value v) const {
  auto vector = dyn_cast<VectorType>(v.getType());
  for (int64_t lane = 0; lane < (vector ? vector.getNumElements() : 1); ++lane) {
    Value one = vector ? vector::ExtractOp::create(b, loc, v, ArrayRef<int64_t>{lane}).getResult() : v;
    total = total ? combine(b, loc, total, one) : one;
  }
  return total;
}

Lane Combiner::finish(BodyEmitter &body, Value v) const {
  if (isFloat(operand) && op != OpKind::Any && op != OpKind::All) {
    if (result == DType::F32)
      return {result, v, v, {}};
    if (!rounds)
      return {result, {}, v, {}};
    return body.cast({DType::F32, v, v, {}}, result, true);
  }
  return body.cast({v.getType().isInteger(64) ? DType::I64 : DType::I32, v, {}, {}}, result, true);
}

Combiner combinerOf(const Graph &graph, const Trace &trace, uint32_t reduction) {
  const Instance &in = trace.instances[reduction];
  const Node &node = graph.nodes[in.node];
  return {node.op, graph.type(trace.instances[in.operands[0]].value).dtype, graph.type(in.value).dtype,
          graph.strict || node.attrs.rounded};
}

static Value constant32(OpBuilder &b, Location loc, int64_t v) {
  return arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(static_cast<int32_t>(v)));
}

Value exchange(OpBuilder &b, Location loc, Value v, int64_t offset) {
  Type type = v.getType();
  auto shuffle = [&](Value x) -> Value {
    return NVVM::ShflOp::create(b, loc, x.getType(), constant32(b, loc, -1), x, constant32(b, loc, offset),
                                constant32(b, loc, 31), NVVM::ShflKindAttr::get(b.getContext(), NVVM::ShflKind::bfly),
                                UnitAttr());
  };
  if (!type.isInteger(64))
    return shuffle(v);
  Type i32 = b.getI32Type(), i64 = b.getI64Type();
  Value bits = arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(32));
  Value low = shuffle(arith::TruncIOp::create(b, loc, i32, v));
  Value high = shuffle(arith::TruncIOp::create(b, loc, i32, arith::ShRUIOp::create(b, loc, v, bits)));
  Value wide = arith::ShLIOp::create(b, loc, arith::ExtUIOp::create(b, loc, i64, high), bits);
  return arith::OrIOp::create(b, loc, wide, arith::ExtUIOp::create(b, loc, i64, low));
}

Value combineInWarp(OpBuilder &b, Location loc, const Combiner &c, Value v, int64_t threads) {
  for (int64_t offset = threads / 2; offset > 0; offset /= 2)
    v = c.combine(b, loc, v, exchange(b, loc, v, offset));
  return v;
}

void syncRow(OpBuilder &b, Location loc, const RowThreads &row) {
  if (row.blocks == 1) {
    NVVM::Barrier0Op::create(b, loc);
    return;
  }
  NVVM::ClusterArriveOp::create(b, loc, b.getUnitAttr());
  NVVM::ClusterWaitOp::create(b, loc, b.getUnitAttr());
}

void storeInBlock(OpBuilder &b, Location loc, Value v, Value to, Value rank) {
  const bool wide = v.getType().getIntOrFloatBitWidth() == 64;
  if (isa<FloatType>(v.getType()))
    v = arith::BitcastOp::create(b, loc, b.getI32Type(), v);
  // Told to touch memory, and given the place as a number: the optimiser must not think it knows who writes there.
  std::string text = "{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, $0, $1;\nst.shared::cluster.b" +
                     std::string(wide ? "64" : "32") + " [there], $2;\n}";
  Value address = LLVM::PtrToIntOp::create(b, loc, b.getI32Type(), to);
  inlineAsm(b, loc, LLVM::LLVMVoidType::get(b.getContext()), text, wide ? "r,r,l,~{memory}" : "r,r,r,~{memory}",
            ValueRange{address, rank, v});
}

static unsigned sizeOf(Type t) { return t.getIntOrFloatBitWidth() / 8; }

/// Partial results of neighbours first.
static Value combineInOrder(OpBuilder &b, Location loc, const Combiner &c, SmallVector<Value> all) {
  while (all.size() > 1) {
    SmallVector<Value> next;
    for (size_t i = 0; i + 1 < all.size(); i += 2)
      next.push_back(c.combine(b, loc, all[i], all[i + 1]));
    if (all.size() % 2)
      next.push_back(all.back());
    all = std::move(next);
  }
  return all[0];
}

/// So many values from a place of which that number of them is a multiple's distance from a multiple of 16 bytes.
static SmallVector<Value> loadAll(OpBuilder &b, Location loc, Type type, Value from, int64_t count) {
  SmallVector<Value> out;
  int64_t width = 16 / sizeOf(type);
  while (count % width != 0)
    width /= 2;
  for (int64_t i = 0; i < count; i += width) {
    Value at = LLVM::GEPOp::create(b, loc, from.getType(), type, from, ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(i)});
    auto vector = VectorType::get({width}, type);
    Value v = LLVM::LoadOp::create(b, loc, vector, at, static_cast<unsigned>(width) * sizeOf(type));
    for (int64_t l = 0; l < width; ++l)
      out.push_back(vector::ExtractOp::create(b, loc, v, ArrayRef<int64_t>{l}));
  }
  return out;
}

/// Whether one instruction combines partial results of any of them.
static bool areAlike(ArrayRef<Combiner> combiners) {
  const Combiner &c = combiners[0];
  return llvm::all_of(combiners,
                      [&](const Combiner &o) { return o.op == c.op && o.operand == c.operand && isFloat(c.operand); });
}

/// Combines 1, 2 or 4 values of all threads of a warp in fewer exchanges than one after the other takes: a thread hands half of its
/// values on and goes on with the other half. Lane l has the result of value `which`: bit 4 of l, and of 4 values also twice
/// bit 3 (null where there is one value). The order of additions is that of combineInWarp.
static std::pair<Value, Value> combineTogether(OpBuilder &b, Location loc, const Combiner &c, ArrayRef<Value> values,
                                               Value lane) {
  SmallVector<Value> left(values);
  Value which;
  int64_t offset = 16;
  for (int64_t weight = 1; left.size() > 1; weight *= 2, offset /= 2) {
    Value bit = arith::AndIOp::create(b, loc, lane, constant32(b, loc, offset));
    Value upper = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, bit, constant32(b, loc, 0));
    SmallVector<Value> next;
    for (size_t i = 0; i < left.size(); i += 2) {
      Value kept = arith::SelectOp::create(b, loc, upper, left[i + 1], left[i]);
      Value handed = arith::SelectOp::create(b, loc, upper, left[i], left[i + 1]);
      next.push_back(c.combine(b, loc, kept, exchange(b, loc, handed, offset)));
    }
    Value share = arith::SelectOp::create(b, loc, upper, constant32(b, loc, weight), constant32(b, loc, 0));
    which = which ? arith::AddIOp::create(b, loc, which, share).getResult() : share;
    left = std::move(next);
  }
  return {combineInWarp(b, loc, c, left[0], 2 * offset), which};
}

/// Vectors of partial results, a lane a row. Lane l of thread t lies at place l * blockThreads + t. The threads of a group of rows
/// divide its lanes between them; then each reads all of them.
static void combineLanes(
    OpBuilder &b, Location loc, const RowThreads &row, ArrayRef<Combiner> combiners, MutableArrayRef<Value> partial,
    llvm::function_ref<Value(Value)> at, int64_t firstSlot,
    llvm::function_ref<Value(const Combiner &, Value base, int64_t start, int64_t count, int64_t stride)> combineAll) {
  auto plus = [&](Value x, int64_t c) -> Value {
    return c ? arith::AddIOp::create(b, loc, x, constant32(b, loc, c)).getResult() : x;
  };
  auto start = [&](size_t r) { return firstSlot + static_cast<int64_t>(r) * row.slots(); };
  for (size_t r = 0; r < combiners.size(); ++r)
    for (int64_t l = 0; l < row.lanes; ++l)
      LLVM::StoreOp::create(b, loc, vector::ExtractOp::create(b, loc, partial[r], ArrayRef<int64_t>{l}),
                            at(plus(row.thread, start(r) + l * row.blockThreads())), 8);
  NVVM::Barrier0Op::create(b, loc);
  Value groups = constant32(b, loc, row.rowsPerBlock);
  Value own = arith::RemUIOp::create(b, loc, row.thread, groups);
  Value place = arith::DivUIOp::create(b, loc, row.thread, groups);
  for (int64_t l = 0; l < row.lanes; l += row.threads) {
    OpBuilder::InsertionGuard guard(b);
    if (l + row.threads > row.lanes) {
      Value has = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, place, constant32(b, loc, row.lanes - l));
      auto branch = scf::IfOp::create(b, loc, has);
      b.setInsertionPoint(branch.thenBlock()->getTerminator());
    }
    Value base = arith::AddIOp::create(
        b, loc, own, arith::MulIOp::create(b, loc, plus(place, l), constant32(b, loc, row.blockThreads())));
    for (size_t r = 0; r < combiners.size(); ++r)
      LLVM::StoreOp::create(b, loc, combineAll(combiners[r], base, start(r), row.threads, row.rowsPerBlock),
                            at(plus(base, start(r))), 8);
  }
  NVVM::Barrier0Op::create(b, loc);
  for (size_t r = 0; r < combiners.size(); ++r) {
    SmallVector<Value> all;
    for (int64_t l = 0; l < row.lanes; ++l)
      all.push_back(
          LLVM::LoadOp::create(b, loc, combiners[r].type(b), at(plus(own, start(r) + l * row.blockThreads())), 8));
    partial[r] = vector::FromElementsOp::create(b, loc, cast<VectorType>(partial[r].getType()), all);
  }
}

void combineThreads(OpBuilder &b, Location loc, const RowThreads &row, ArrayRef<Combiner> combiners,
                    MutableArrayRef<Value> partial, Value shared, int64_t firstSlot) {
  if (row.threads == 1)
    return;
  Type pointer = LLVM::LLVMPointerType::get(b.getContext(), 3), slot = b.getI64Type();
  auto at = [&](Value place) -> Value { return LLVM::GEPOp::create(b, loc, pointer, slot, shared, ValueRange{place}); };
  auto plus = [&](Value x, int64_t c) -> Value {
    return c ? arith::AddIOp::create(b, loc, x, constant32(b, loc, c)).getResult() : x;
  };
  // Partial results at these places, neighbours first.
  auto combineAll = [&](const Combiner &c, Value base, int64_t start, int64_t count, int64_t stride) {
    SmallVector<Value> all;
    for (int64_t i = 0; i < count; ++i)
      all.push_back(LLVM::LoadOp::create(b, loc, c.type(b), at(plus(base, start + i * stride)), 8));
    return combineInOrder(b, loc, c, std::move(all));
  };
  if (row.across && row.lanes > 1) {
    combineLanes(b, loc, row, combiners, partial, at, firstSlot, combineAll);
    return;
  }
  if (row.across) {
    for (size_t r = 0; r < combiners.size(); ++r)
      LLVM::StoreOp::create(b, loc, partial[r], at(plus(row.thread, firstSlot + static_cast<int64_t>(r) * row.slots())),
                            8);
    NVVM::Barrier0Op::create(b, loc);
    Value own = arith::RemUIOp::create(b, loc, row.thread, constant32(b, loc, row.rowsPerBlock));
    for (size_t r = 0; r < combiners.size(); ++r)
      partial[r] = combineAll(combiners[r], own, firstSlot + static_cast<int64_t>(r) * row.slots(), row.threads,
                              row.rowsPerBlock);
    return;
  }
  if (row.threads <= 32) {
    for (auto [c, v] : llvm::zip(combiners, partial))
      v = combineInWarp(b, loc, c, v, row.threads);
    return;
  }
  // A warp's results lie next to each other, so that several are read at once.
  const int64_t warps = row.threads / 32 * row.blocks;
  Value warp = arith::DivUIOp::create(b, loc, row.thread, constant32(b, loc, 32));
  Value lane = arith::RemUIOp::create(b, loc, row.thread, constant32(b, loc, 32));
  Value ownPlace = warp;
  if (row.blocks > 1)
    ownPlace = arith::AddIOp::create(b, loc, warp,
                                     arith::MulIOp::create(b, loc, row.block, constant32(b, loc, row.threads / 32)));
  auto start = [&](size_t r) { return firstSlot + static_cast<int64_t>(r) * row.slots(); };
  auto place = [&](size_t r, Value at) -> Value {
    Value begin =
        LLVM::GEPOp::create(b, loc, pointer, slot, shared, ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(start(r))});
    return LLVM::GEPOp::create(b, loc, pointer, combiners[r].type(b), begin, ValueRange{at});
  };
  struct Share {
    size_t first, together;
    Value value, which;
  };
  SmallVector<Share> shares;
  auto store = [&] {
    for (auto &[r, together, v, which] : shares) {
      // The first of the lanes that have the same result, one for each block.
      Value target = arith::AndIOp::create(b, loc, lane, constant32(b, loc, 32 / static_cast<int64_t>(together) - 1));
      Value first =
          row.blocks == 1
              ? arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, target, constant32(b, loc, 0))
              : arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, target, constant32(b, loc, row.blocks));
      auto branch = scf::IfOp::create(b, loc, first);
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPoint(branch.thenBlock()->getTerminator());
      Value to = place(r, ownPlace);
      if (which)
        to = LLVM::GEPOp::create(
            b, loc, pointer, slot, to,
            ValueRange{arith::MulIOp::create(b, loc, which, constant32(b, loc, row.slots())).getResult()});
      if (row.blocks > 1)
        storeInBlock(b, loc, v, to, target);
      else
        LLVM::StoreOp::create(b, loc, v, to, sizeOf(v.getType()));
    }
    shares.clear();
  };
  // Those of different kinds are exchanged one beside the other before any is stored.
  const bool alike = areAlike(combiners);
  for (size_t r = 0; r < combiners.size();) {
    size_t together = 1;
    while (together < 4 && r + 2 * together <= combiners.size() && areAlike(combiners.slice(r, 2 * together)) &&
           static_cast<int64_t>(together) * 2 * row.blocks <= 32)
      together *= 2;
    auto [v, which] = combineTogether(b, loc, combiners[r], partial.slice(r, together), lane);
    shares.push_back({r, together, v, which});
    if (alike)
      store();
    r += together;
  }
  store();
  syncRow(b, loc, row);
  Value base = constant32(b, loc, 0);
  if (row.rowsPerBlock > 1)
    base = arith::MulIOp::create(b, loc, arith::DivUIOp::create(b, loc, warp, constant32(b, loc, warps)),
                                 constant32(b, loc, warps));
  for (size_t r = 0; r < combiners.size(); ++r) {
    const Combiner &c = combiners[r];
    Type type = c.type(b);
    if (warps <= 8) {
      partial[r] = combineInOrder(b, loc, c, loadAll(b, loc, type, place(r, base), warps));
      continue;
    }
    if (warps > 32) {
      // Of several blocks: every 32nd to a lane, in order.
      Value v;
      for (int64_t w = 0; w < warps; w += 32) {
        Value at = arith::AddIOp::create(b, loc, lane, constant32(b, loc, w));
        Value one = LLVM::LoadOp::create(b, loc, type, place(r, at), sizeOf(type));
        v = v ? c.combine(b, loc, v, one) : one;
      }
      partial[r] = combineInWarp(b, loc, c, v, 32);
      continue;
    }
    // Exchanges among as few lanes as hold the warps' results; the lanes beyond do the same again.
    auto lanes = static_cast<int64_t>(llvm::bit_ceil(static_cast<uint64_t>(warps)));
    Value among = arith::RemUIOp::create(b, loc, lane, constant32(b, loc, lanes));
    Value there = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, among, constant32(b, loc, warps));
    Value own = arith::SelectOp::create(b, loc, there, among, constant32(b, loc, 0));
    Value v = LLVM::LoadOp::create(b, loc, type, place(r, arith::AddIOp::create(b, loc, base, own)), sizeOf(type));
    v = arith::SelectOp::create(b, loc, there, v, c.identity(b, loc, 1));
    partial[r] = combineInWarp(b, loc, c, v, lanes);
  }
}

} // namespace rl::emit
