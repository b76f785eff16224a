// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/emit/TraceEmitter.h"
#include "ir/index/Access.h"
#include "passes/plan/NarrowQuotients.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <cmath>

using namespace mlir;

namespace rl::emit {

using mlir::Value; // not the graph's

bool reportsIndices(const Graph &graph, const CodeTarget &target) {
  return !target.nvptx &&
         llvm::any_of(graph.nodes, [](const Node &n) { return opInfo(n.op).cls == OpClass::Indexing; });
}

TraceEmitter::TraceEmitter(OpBuilder &b, Location loc, const Graph &graph, const Trace &trace, const CodeTarget &target,
                           bool aligned, ValueRange inputs, ValueRange outputs)
    : b(b), loc(loc), graph(graph), trace(trace), target(target), aligned(aligned), outputs(outputs),
      body(b, loc, MathTarget{target.nvptx, target.sm}, graph.strict),
      indices(b, loc, trace, [this](int dim) { return dynamicIndex(dim); }) {
  for (auto [i, v] : llvm::enumerate(graph.inputs))
    pointers[v] = inputs[i];
  lanes.resize(trace.instances.size());
  stored.resize(trace.instances.size(), false);
  for (const TraceStore &s : trace.stores)
    stored[s.instance] = true;
  narrow.resize(trace.instances.size(), false);
  if (target.nvptx && trace.lanes > 1)
    narrow = narrowQuotients(graph, trace);
}

void TraceEmitter::emitLoads(bool gathered) {
  for (uint32_t i : trace.scopes[0].order)
    if (const Instance &in = trace.instances[i];
        in.node == kNone && in.guard == 0 && !has(i) && in.operands.empty() != gathered && hasIndices(in))
      lanes[i] = emitLoad(in);
}

void TraceEmitter::emitRest() {
  // Few results are stored together at the end, behind all loads. Many are stored as soon as they are there, so that they do
  // not occupy registers.
  constexpr size_t kStoredTogether = 8;
  bool atOnce = trace.stores.size() > kStoredTogether;
  if (atOnce) {
    storesOf.resize(trace.instances.size());
    for (const TraceStore &store : trace.stores)
      storesOf[store.instance].push_back(&store);
  }
  emitScope(0);
  if (!atOnce)
    for (const TraceStore &store : trace.stores)
      emitStore(store);
}

void TraceEmitter::emit(uint32_t i) {
  if (has(i))
    return;
  const Instance &in = trace.instances[i];
  Lane lane = emitInstance(in, !stored[i]);
  if (in.node != kNone && graph.nodes[in.node].attrs.rounded)
    body.round(lane);
  setLane(i, std::move(lane));
}

void TraceEmitter::emitScope(uint32_t scope) {
  for (uint32_t i : trace.scopes[scope].order) {
    emit(i);
    if (!storesOf.empty())
      for (const TraceStore *store : storesOf[i])
        emitStore(*store);
  }
}

Lane TraceEmitter::emitInstance(const Instance &in, bool inner) {
  if (in.node == kNone)
    return emitLoad(in);
  const Node &node = graph.nodes[in.node];
  DType type = graph.type(in.value).dtype;
  switch (opInfo(node.op).cls) {
  case OpClass::Creation:
    if (node.op == OpKind::Full)
      return body.constant(node.attrs.value, type);
    return body.fromIndex(
        in.uniform ? indices.scalar(in.index[node.attrs.dim]) : indices.lanes(in.index[node.attrs.dim]), type);
  case OpClass::Shape:
    if (node.op == OpKind::Cat || node.op == OpKind::Pad)
      return emitPieces(in, node, type);
    return lanes[in.operands[0]];
  case OpClass::Indexing: return emitGather(in, node, type);
  default: break;
  }
  // A product's sum as its node's type: no cast of the file's.
  if (node.op == OpKind::Cast && node.attrs.fast && !node.attrs.rounded && !graph.strict &&
      (type == DType::F16 || type == DType::BF16) && !node.inputs[0].isLiteral() &&
      lanes[in.operands[0]].dtype == DType::F32)
    return {type, {}, body.wide(lanes[in.operands[0]]), {}};
  if (std::optional<Lane> code = emitCode(in, type))
    return *code;
  if (node.op == OpKind::Add && type == DType::F32)
    for (size_t k : {0, 1}) {
      uint32_t product = in.operands[k], other = in.operands[1 - k];
      if (product == kNone || other == kNone)
        continue;
      if (SmallVector<Value> f = factorsFor(product, node, in.uniform); !f.empty()) {
        Value term = body.splatTo(body.wide(lanes[other]), in.uniform ? 1 : trace.lanes);
        Value v = math::FmaOp::create(b, loc, f[0], f[1], term);
        return {type, v, v, {}};
      }
    }
  SmallVector<Lane> operands;
  for (auto [o, i] : llvm::zip(node.inputs, in.operands)) {
    if (o.isLiteral()) {
      Lane literal;
      literal.literal = o.literal;
      operands.push_back(literal);
    } else {
      operands.push_back(lanes[i]);
    }
  }
  Lane result = body.emit(node, operands, type, inner, narrow[static_cast<size_t>(&in - trace.instances.data())]);
  // A widened operand is kept for its other users.
  for (auto [o, i, lane] : llvm::zip(node.inputs, in.operands, operands))
    if (!o.isLiteral() && !lanes[i].wide && lane.wide && definedHere(lane.wide)) {
      Lane both = lanes[i];
      both.wide = lane.wide;
      setLane(i, std::move(both));
    }
  return result;
}

/// A number that is rounded, clamped and made an integer, which is how numbers are quantised: the three in one.
std::optional<Lane> TraceEmitter::emitCode(const Instance &in, DType type) {
  auto operandOf = [&](const Instance &of, OpKind op) -> const Instance * {
    const uint32_t o = of.operands.empty() ? kNone : of.operands[0];
    if (o == kNone || trace.instances[o].node == kNone || graph.nodes[trace.instances[o].node].op != op ||
        graph.type(trace.instances[o].value).dtype != DType::F32)
      return nullptr;
    return &trace.instances[o];
  };
  const Instance *clamp =
      graph.nodes[in.node].op == OpKind::Cast && !isFloat(type) ? operandOf(in, OpKind::Clamp) : nullptr;
  const Instance *round = clamp ? operandOf(*clamp, OpKind::Round) : nullptr;
  if (!round || round->operands[0] == kNone || lanes[round->operands[0]].dtype != DType::F32 ||
      !has(round->operands[0]))
    return std::nullopt;
  const Attrs &attrs = graph.nodes[clamp->node].attrs;
  if (!attrs.min || !attrs.max)
    return std::nullopt;
  const double least = attrs.min->asDouble(), most = attrs.max->asDouble();
  double low = -0x1p21, high = 0x1p21; // which the type holds
  if (type == DType::I8)
    low = -128, high = 127;
  else if (type == DType::U8)
    low = 0, high = 255;
  auto fits = [&](double v) { return v == std::floor(v) && v >= low && v <= high; };
  if (type == DType::Bool || !fits(least) || !fits(most))
    return std::nullopt;
  return body.roundToInteger(lanes[round->operands[0]], least, most, type);
}

/// Whether later code at the insertion point may use the value: it is defined in this block or around it.
bool TraceEmitter::definedHere(Value v) { return v.getParentBlock() == b.getInsertionBlock(); }

SmallVector<Value> TraceEmitter::factorsFor(uint32_t product, const Node &of, bool uniform) {
  const Instance &in = trace.instances[product];
  if (graph.strict || in.node == kNone || graph.type(in.value).dtype != DType::F32)
    return {};
  const Node &node = graph.nodes[in.node];
  if (node.op != OpKind::Mul || node.specIndex != of.specIndex || (uniform && !in.uniform))
    return {};
  SmallVector<Value> out;
  for (uint32_t o : in.operands) {
    if (o == kNone || !has(o) || graph.type(trace.instances[o].value).dtype != DType::F32)
      return {};
    out.push_back(body.splatTo(body.wide(lanes[o]), uniform ? 1 : trace.lanes));
  }
  return out;
}

Value TraceEmitter::guardOf(const Instance &in, bool perLane) {
  Value all;
  for (const Condition &c : trace.guards[in.guard]) {
    Value one = indices.condition(c, perLane);
    all = all ? arith::AndIOp::create(b, loc, all, one).getResult() : one;
  }
  return all;
}

Value TraceEmitter::address(Value pointer, Type element, Value offset) {
  if (offset.getType().isInteger(32))
    offset = arith::ExtUIOp::create(b, loc, b.getI64Type(), offset);
  return LLVM::GEPOp::create(b, loc, pointer.getType(), element, pointer, ValueRange{offset});
}

Value TraceEmitter::load(Value pointer, Type element, Type type, Value offset, unsigned alignment) {
  return LLVM::LoadOp::create(b, loc, type, address(pointer, element, offset), alignment, false, false,
                              /*isInvariant=*/target.nvptx && !again);
}

Value TraceEmitter::loadVector(const Instance &in, VectorType type, Value offset, unsigned alignment) {
  Value pointer = pointers.at(in.value);
  Type element = type.getElementType();
  const TensorType &tensor = graph.type(in.value);
  const unsigned bytes = static_cast<unsigned>(type.getNumElements()) * type.getElementTypeBitWidth() / 8;
  if (policy && alignment >= bytes && (bytes == 4 || bytes == 8 || bytes == 16))
    return loadByPolicy(b, loc, policy, type, address(pointer, element, offset), /*keepsInL1=*/false);
  if (!again && streams.isOne(tensor.bytes()) && alignment == 16 && bytes == 16 && !trace.isGathered(in))
    return loadByPolicy(b, loc, streams.loaded, type, address(pointer, element, offset), /*keepsInL1=*/true);
  return load(pointer, element, type, offset, alignment);
}

Lane TraceEmitter::emitLoad(const Instance &in) {
  const TensorType &type = graph.type(in.value);
  Type element = body.memoryType(type.dtype);
  auto size = static_cast<unsigned>(dtypeSize(type.dtype));
  Value pointer = pointers.at(in.value);
  bool guardVaries = false;
  for (const Condition &c : trace.guards[in.guard])
    guardVaries |= trace.dependsOnLane(c.expr);
  if (in.uniform) {
    Value offset = indices.scalar(in.linear);
    if (Value ok = guardOf(in, false))
      offset = arith::SelectOp::create(b, loc, ok, offset, indices.constant(0));
    return body.fromMemory(load(pointer, element, element, offset, size), type.dtype);
  }
  VectorAccess access = indices.access(in.linear);
  VectorType vector = VectorType::get({trace.lanes}, element);
  if (access.contiguous && !guardVaries && (in.guard == 0 || type.elements() >= trace.lanes)) {
    Value offset = indices.scalar(in.linear);
    if (Value ok = guardOf(in, false))
      offset = arith::SelectOp::create(b, loc, ok, offset, indices.constant(0));
    return body.fromMemory(loadVector(in, vector, offset, alignmentOf(access, size)), type.dtype);
  }
  Value offsets = indices.lanes(in.linear);
  if (Value ok = guardOf(in, guardVaries)) {
    Value zero = body.splatTo(indices.constant(0), trace.lanes);
    offsets = arith::SelectOp::create(b, loc, ok, offsets, zero);
  }
  SmallVector<Value> elements;
  for (int64_t l = 0; l < trace.lanes; ++l) {
    Value offset = vector::ExtractOp::create(b, loc, offsets, ArrayRef<int64_t>{l});
    elements.push_back(load(pointer, element, element, offset, size));
  }
  return body.fromMemory(vector::FromElementsOp::create(b, loc, vector, elements), type.dtype);
}

void TraceEmitter::copyAsync(const Instance &in, Value to) {
  DType type = graph.type(in.value).dtype;
  int64_t bytes = trace.lanes * static_cast<int64_t>(dtypeSize(type));
  Value from = address(pointers.at(in.value), body.memoryType(type), indices.scalar(in.linear));
  NVVM::CpAsyncOp::create(b, loc, to, from, static_cast<uint32_t>(bytes),
                          bytes == 16 ? NVVM::LoadCacheModifierKind::CG : NVVM::LoadCacheModifierKind::CA, Value());
}

SmallVector<Lane> TraceEmitter::loadSquare(const Instance &in) {
  const TensorType &type = graph.type(in.value);
  Type element = body.memoryType(type.dtype);
  auto size = static_cast<unsigned>(dtypeSize(type.dtype));
  VectorType vector = VectorType::get({trace.lanes}, element);
  // Of all the square's columns: the lane is among what the offset depends on.
  int64_t alignElements = index::classify(*trace.context, in.linear, trace.rowDim, trace.lanes).alignElements;
  unsigned alignment = aligned ? static_cast<unsigned>(std::min<int64_t>(16, alignElements * size)) : size;
  Value offsets = indices.lanes(in.linear);
  SmallVector<Value> columns;
  for (int64_t l = 0; l < trace.lanes; ++l)
    columns.push_back(
        loadVector(in, vector, vector::ExtractOp::create(b, loc, offsets, ArrayRef<int64_t>{l}), alignment));
  SmallVector<Lane> rows;
  if (!target.nvptx) {
    // A CPU merges two registers in one instruction. Vectors of the one half with those of the other, time and again.
    const int64_t n = trace.lanes;
    SmallVector<int64_t> low, high;
    for (int64_t l = 0; l < n; ++l) {
      low.push_back(l % 2 * n + l / 2);
      high.push_back(low.back() + n / 2);
    }
    for (int64_t step = 1; step < n; step *= 2) {
      SmallVector<Value> merged;
      for (size_t c = 0; c < columns.size() / 2; ++c)
        for (const auto &mask : {low, high})
          merged.push_back(vector::ShuffleOp::create(b, loc, columns[c], columns[c + columns.size() / 2], mask));
      columns = std::move(merged);
    }
    for (Value row : columns)
      rows.push_back(body.fromMemory(row, type.dtype));
    return rows;
  }
  for (int64_t r = 0; r < trace.lanes; ++r) {
    SmallVector<Value> elements;
    for (Value column : columns)
      elements.push_back(vector::ExtractOp::create(b, loc, column, ArrayRef<int64_t>{r}));
    rows.push_back(body.fromMemory(vector::FromElementsOp::create(b, loc, vector, elements), type.dtype));
  }
  return rows;
}

/// Whether the value of an index instance is one of `extent` places: of each lane where they differ.
Value TraceEmitter::inRange(uint32_t index, int64_t extent) {
  Value v = lanes[index].raw;
  Type element = getElementTypeOrSelf(v.getType());
  if (element.isInteger(32) && extent > INT32_MAX) {
    element = b.getI64Type();
    Type wide = element;
    if (auto vector = dyn_cast<VectorType>(v.getType()))
      wide = VectorType::get(vector.getShape(), element);
    v = arith::ExtSIOp::create(b, loc, wide, v);
  }
  Value limit = arith::ConstantOp::create(b, loc, b.getIntegerAttr(element, extent));
  if (auto vector = dyn_cast<VectorType>(v.getType()))
    limit = body.splatTo(limit, vector.getNumElements());
  // A negative one is a large unsigned one.
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, v, limit);
}

Value TraceEmitter::dynamicIndex(int dim) {
  uint32_t i = trace.indexInstance(dim);
  Value v = lanes[i].raw, ok = inRange(i, trace.context->extent(dim));
  auto vector = dyn_cast<VectorType>(v.getType());
  Type type = indices.indexType(), to = vector ? Type(VectorType::get(vector.getShape(), type)) : type;
  unsigned from = getElementTypeOrSelf(v.getType()).getIntOrFloatBitWidth(), width = type.getIntOrFloatBitWidth();
  if (from > width)
    v = arith::TruncIOp::create(b, loc, to, v);
  else if (from < width)
    v = arith::ExtSIOp::create(b, loc, to, v);
  Value zero = body.splatTo(indices.constant(0), vector ? vector.getNumElements() : 1);
  v = arith::SelectOp::create(b, loc, ok, v, zero);
  return body.splatTo(v, trace.instances[i].uniform ? 1 : trace.lanes);
}

Lane TraceEmitter::emitGather(const Instance &in, const Node &node, DType type) {
  const std::vector<int64_t> &shape = graph.type(node.inputs[0].value).shape;
  int64_t extent = shape[node.op == OpKind::Embedding ? 0 : static_cast<size_t>(node.attrs.dim)];
  Value ok = inRange(in.operands[1], extent);
  reportUnless(ok, in);
  Lane none = body.missing(type);
  return in.operands[0] == kNone ? none : body.select(ok, lanes[in.operands[0]], none);
}

/// 1 + the argument that holds the index tensor; 1 + the number of arguments where it is computed from several or none.
int32_t TraceEmitter::placeOf(uint32_t index) const {
  uint32_t found = kNone;
  std::vector<uint32_t> work{index};
  while (!work.empty()) {
    const Instance &in = trace.instances[work.back()];
    work.pop_back();
    if (in.node == kNone) {
      uint32_t place = kNone;
      for (auto [i, v] : llvm::enumerate(graph.inputs))
        if (v == in.value)
          place = static_cast<uint32_t>(i);
      if (found != kNone && found != place)
        return static_cast<int32_t>(graph.inputs.size() + graph.outputs.size() + 1);
      found = place;
      continue;
    }
    for (uint32_t o : in.operands)
      if (o != kNone)
        work.push_back(o);
    for (const Instance::Piece &p : in.pieces)
      if (p.instance != kNone)
        work.push_back(p.instance);
  }
  return static_cast<int32_t>(found == kNone ? graph.inputs.size() + graph.outputs.size() + 1 : found + 1);
}

/// The first index out of range is what the kernel returns. Lanes that the guard leaves out do not count.
void TraceEmitter::reportUnless(Value ok, const Instance &in) {
  if (!errorSlot)
    return;
  auto typed = [&](bool v) { return arith::ConstantOp::create(b, loc, b.getBoolAttr(v)).getResult(); };
  bool guardVaries =
      llvm::any_of(trace.guards[in.guard], [&](const Condition &c) { return trace.dependsOnLane(c.expr); });
  Value guard = guardOf(in, guardVaries);
  int64_t n = 1;
  for (Value v : {ok, guard})
    if (v && isa<VectorType>(v.getType()))
      n = trace.lanes;
  Value bad = arith::XOrIOp::create(b, loc, body.splatTo(ok, n), body.splatTo(typed(true), n));
  if (guard)
    bad = arith::AndIOp::create(b, loc, bad, body.splatTo(guard, n));
  if (n > 1)
    bad = vector::ReductionOp::create(b, loc, vector::CombiningKind::OR, bad);
  auto branch = scf::IfOp::create(b, loc, bad);
  OpBuilder::InsertionGuard inner(b);
  b.setInsertionPoint(branch.thenBlock()->getTerminator());
  auto i32 = [&](int32_t v) { return arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(v)).getResult(); };
  Value before = LLVM::LoadOp::create(b, loc, b.getI32Type(), errorSlot, 4);
  Value first = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, before, i32(0));
  LLVM::StoreOp::create(b, loc, arith::SelectOp::create(b, loc, first, i32(placeOf(in.operands[1])), before), errorSlot,
                        4);
}

unsigned TraceEmitter::alignmentOf(const VectorAccess &access, unsigned size) const {
  if (!aligned)
    return size;
  return static_cast<unsigned>(std::min<int64_t>(16, access.alignElements * size));
}

void TraceEmitter::emitScalarStore(const TraceStore &store) {
  DType type = graph.type(trace.instances[store.instance].value).dtype;
  Value value = body.toMemory(lanes[store.instance], type);
  LLVM::StoreOp::create(b, loc, value,
                        address(outputs[store.output], body.memoryType(type), indices.scalar(store.linear)),
                        static_cast<unsigned>(dtypeSize(type)));
}

void TraceEmitter::emitSegmentStore(const TraceStore &store, int64_t vectors) {
  index::Context &ctx = *trace.context;
  OpBuilder::InsertionGuard guard(b);
  if (vectors > 1) {
    Value first = indices.condition({ctx.mod(ctx.dim(trace.vectorDim), vectors), 0, 1}, false);
    auto branch = scf::IfOp::create(b, loc, first);
    b.setInsertionPoint(branch.thenBlock()->getTerminator());
  }
  indices.push();
  emitScalarStore(store);
  indices.pop();
}

void TraceEmitter::emitStore(const TraceStore &store) {
  const Instance &in = trace.instances[store.instance];
  DType type = graph.type(in.value).dtype;
  Type element = body.memoryType(type);
  auto size = static_cast<unsigned>(dtypeSize(type));
  Value value = body.splatTo(body.toMemory(lanes[store.instance], type), trace.lanes);
  Value pointer = outputs[store.output];
  if (trace.lanes == 1) {
    LLVM::StoreOp::create(b, loc, value, address(pointer, element, indices.scalar(store.linear)), size);
    return;
  }
  VectorAccess access = indices.access(store.linear);
  if (access.contiguous) {
    unsigned alignment = alignmentOf(access, size);
    Value to = address(pointer, element, indices.scalar(store.linear));
    if (streams.isOne(graph.type(graph.outputs[store.output]).bytes()) && alignment == 16 && trace.lanes * size == 16)
      storeStream(b, loc, streams, value, to);
    else
      LLVM::StoreOp::create(b, loc, value, to, alignment);
    return;
  }
  Value offsets = indices.lanes(store.linear);
  for (int64_t l = 0; l < trace.lanes; ++l) {
    Value offset = vector::ExtractOp::create(b, loc, offsets, ArrayRef<int64_t>{l});
    Value one = vector::ExtractOp::create(b, loc, value, ArrayRef<int64_t>{l});
    LLVM::StoreOp::create(b, loc, one, address(pointer, element, offset), size);
  }
}

/// How the pieces of a choice are handed on: as storage bits where all of them are just that, else as f32.
bool TraceEmitter::yieldsRaw(const Instance &in, DType type) const {
  if (!isArithmeticFloat(type) || type == DType::F32 || graph.strict)
    return true;
  for (const Instance::Piece &p : in.pieces)
    if (p.instance != kNone && trace.instances[p.instance].node != kNone)
      return false;
  return true;
}

Value TraceEmitter::pieceValue(const Instance &in, const Instance::Piece &piece, const Node &node, DType type,
                               bool raw) {
  Lane lane;
  if (piece.instance == kNone) {
    lane = body.constant(node.attrs.value, type);
  } else {
    lane = lanes[piece.instance];
    DType from = graph.type(trace.instances[piece.instance].value).dtype;
    if (from != type)
      lane = body.cast(lane, type, true);
  }
  Value v = !raw || type == DType::F32 ? body.wide(lane) : lane.raw;
  if (raw && !v)
    v = body.toMemory(lane, type);
  return body.splatTo(v, in.uniform ? 1 : trace.lanes);
}

Lane TraceEmitter::emitPieces(const Instance &in, const Node &node, DType type) {
  bool raw = yieldsRaw(in, type);
  Value result;
  if (in.branches) {
    result = emitBranch(in, 0, in.pieces.size() - 1, node, type, raw, areOrdered(in.pieces));
  } else {
    result = pieceValue(in, in.pieces.back(), node, type, raw);
    for (size_t i = in.pieces.size() - 1; i-- > 0;) {
      Value cond;
      for (const Condition &c : in.pieces[i].conditions) {
        Value one = body.splatTo(indices.condition(c, trace.dependsOnLane(c.expr)), in.uniform ? 1 : trace.lanes);
        cond = cond ? arith::AndIOp::create(b, loc, cond, one).getResult() : one;
      }
      result = arith::SelectOp::create(b, loc, cond, pieceValue(in, in.pieces[i], node, type, raw), result);
    }
  }
  if (type == DType::F32)
    return {type, result, result, {}};
  return raw ? Lane{type, result, {}, {}} : Lane{type, {}, result, {}};
}

/// Whether the pieces lie one after the other along one index, so that one comparison halves those in question.
bool TraceEmitter::areOrdered(const std::vector<Instance::Piece> &pieces) {
  for (size_t i = 0; i + 1 < pieces.size(); ++i) {
    if (pieces[i].conditions.size() != 1)
      return false;
    const Condition &c = pieces[i].conditions[0];
    if (i > 0) {
      const Condition &before = pieces[i - 1].conditions[0];
      if (c.expr != before.expr || c.lo < before.hi)
        return false;
    }
  }
  return true;
}

/// Branches to one of the pieces first .. last: by binary search where they are ordered, else one after the other.
Value TraceEmitter::emitBranch(const Instance &in, size_t first, size_t last, const Node &node, DType type, bool raw,
                               bool ordered) {
  if (first == last) {
    if (in.pieces[first].instance != kNone)
      emitScope(in.pieces[first].scope);
    return pieceValue(in, in.pieces[first], node, type, raw);
  }
  size_t middle = ordered ? first + (last - first) / 2 : first;
  Value cond;
  if (ordered) {
    const Condition &c = in.pieces[middle].conditions[0];
    cond = indices.condition({c.expr, in.pieces[first].conditions[0].lo, c.hi}, false);
  } else {
    for (const Condition &c : in.pieces[first].conditions) {
      Value one = indices.condition(c, false);
      cond = cond ? arith::AndIOp::create(b, loc, cond, one).getResult() : one;
    }
  }
  Type element = raw ? (type == DType::Bool ? b.getI1Type() : body.memoryType(type)) : Type(b.getF32Type());
  Type resultType = in.uniform || trace.lanes == 1 ? element : VectorType::get({trace.lanes}, element);
  auto branch = scf::IfOp::create(b, loc, TypeRange{resultType}, cond, /*withElseRegion=*/true);
  auto region = [&](Block *block, size_t from, size_t to) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(block);
    // What is widened or indexed inside a branch is not there outside of it.
    size_t mark = undo.size();
    ++branchDepth;
    indices.push();
    scf::YieldOp::create(b, loc, emitBranch(in, from, to, node, type, raw, ordered));
    indices.pop();
    --branchDepth;
    for (; undo.size() > mark; undo.pop_back())
      lanes[undo.back().first] = std::move(undo.back().second);
  };
  region(branch.thenBlock(), first, middle);
  region(branch.elseBlock(), middle + 1, last);
  return branch.getResult(0);
}

void TraceEmitter::setLane(uint32_t i, Lane lane) {
  if (branchDepth > 0)
    undo.push_back({i, std::move(lanes[i])});
  lanes[i] = std::move(lane);
}

} // namespace rl::emit
