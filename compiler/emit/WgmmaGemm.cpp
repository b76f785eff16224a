// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernel around the epilogue: the plan, the roles of the warps, the ring of stages and the products.
#include "compiler/emit/WgmmaParts.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinOps.h"

#include <map>
#include <numeric>

using namespace mlir;

namespace rl::emit {

cost::GemmShape WgmmaGemm::shape() const {
  cost::GemmShape s;
  for (int64_t e : batch)
    s.batch *= e;
  s.m = m;
  s.n = n;
  s.k = k;
  s.a = a.dtype;
  s.b = b.empty() ? a.dtype : b[0].dtype;
  s.products = static_cast<int>(b.size());
  s.aKMajor = a.kMajor;
  for (const WgmmaOperand &o : b)
    s.bKMajor.push_back(o.kMajor);
  for (const GemmTensor &t : outputs)
    s.outputs.push_back(t.dtype);
  for (const GemmTensor &t : tiles)
    s.tiles.push_back(t.dtype);
  for (const GemmVector &v : columns)
    s.columns.push_back(v.dtype);
  s.promotes = promotes;
  s.scaleColumns = scales.empty() ? 0 : scales[1].rows;
  s.segment = segment;
  for (const GemmTensor &t : outputs)
    s.columnPart = std::gcd(s.columnPart, t.part);
  return s;
}

namespace {

constexpr int64_t kMaxWork = int64_t(1) << 30;

bool hasMap(const WgmmaGemm &g, const GemmTensor &t) {
  return cost::hasTensorMap(t.dtype, t.offset, g.m, t.stride, g.batch, t.batchStrides);
}

PackageTensorMap makeMap(unsigned arg, DType dtype, int64_t offset, int64_t contiguous, int64_t extent, int64_t stride,
                         const std::vector<int64_t> &batch, const std::vector<int64_t> &batchStrides,
                         int64_t boxColumns, int64_t boxRows, int64_t parts = 1, int64_t partStride = 0) {
  auto size = static_cast<int64_t>(dtypeSize(dtype));
  PackageTensorMap m;
  m.arg = arg;
  m.dtype = dtype;
  m.offset = offset * size;
  m.extents = {contiguous, extent};
  // One row alone has a stride that nothing is read at; the driver wants one that it can take.
  m.strides = {extent > 1 ? stride * size : (contiguous * size + 15) / 16 * 16};
  m.box = {static_cast<uint32_t>(boxColumns), static_cast<uint32_t>(boxRows)};
  if (parts > 1) {
    m.extents.push_back(parts);
    m.strides.push_back(partStride * size);
    m.box.push_back(1);
  }
  for (size_t d = batch.size(); d-- > 0;)
    if (batch[d] > 1 && batchStrides[d] != 0) {
      m.extents.push_back(batch[d]);
      m.strides.push_back(batchStrides[d] * size);
      m.box.push_back(1);
    }
  int64_t span = boxColumns * size;
  m.swizzle = span >= 32 ? static_cast<uint32_t>(span) : 0;
  return m;
}

/// Columns of an operand that is not K-major that one box holds: 128 bytes.
constexpr int64_t kMnBox = 64;

GemmPlan makePlan(const WgmmaGemm &g) {
  const cost::GemmTile &t = g.tile;
  GemmPlan p;
  p.gemm = &g;
  cost::GemmShape shape = g.shape();
  p.shared = gemmShared(shape, t);
  p.tileK = 128 / static_cast<int64_t>(dtypeSize(g.a.dtype));
  p.kBlocks = (g.k + p.tileK - 1) / p.tileK;
  p.tilesM = (g.m + t.tileM() * t.cluster - 1) / (t.tileM() * t.cluster);
  p.tilesN = (g.n + t.tileN - 1) / t.tileN;
  p.batches = shape.batch;
  p.work = p.batches * p.tilesM * p.tilesN;
  p.buffers = t.buffers;

  cost::GemmSlots slots = gemmSlots(shape);
  int64_t offset = 0;
  for (int bytes : slots.bytes) {
    GemmSlot s;
    s.elementBytes = bytes;
    s.span = std::min(128, t.chunkColumns() * bytes);
    s.subs = t.chunkColumns() * bytes / s.span;
    s.offset = offset;
    offset += (s.subs * s.subBytes() + 1023) / 1024 * 1024;
    p.slots.push_back(s);
  }
  p.outputSlot = slots.ofOutput;
  p.tileSlot = slots.ofTile;

  auto operandMap = [&](const WgmmaOperand &o, int64_t rows, int64_t boxRows) {
    const int64_t k = o.part ? o.part : g.k, parts = g.k / k;
    p.maps.push_back(o.kMajor ? makeMap(o.arg, o.dtype, o.offset, k, rows, o.stride, g.batch, o.batchStrides, p.tileK,
                                        boxRows, parts, o.partStride)
                              : makeMap(o.arg, o.dtype, o.offset, rows, k, o.stride, g.batch, o.batchStrides, kMnBox,
                                        p.tileK, parts, o.partStride));
    p.maps.back().l2Promotion = 256;
    return static_cast<unsigned>(p.maps.size() - 1);
  };
  p.boxA = t.tileM() <= 256 ? t.tileM() : t.tileM() / 2; // a box has at most 256 rows
  p.mapA = operandMap(g.a, g.m, p.boxA);
  for (const WgmmaOperand &o : g.b)
    p.mapB.push_back(operandMap(o, g.n, t.tileN / t.cluster));
  auto tensorMap = [&](const GemmTensor &x, int slot) {
    const int64_t n = x.part ? x.part : g.n;
    p.maps.push_back(makeMap(x.arg, x.dtype, x.offset, n, g.m, x.stride, g.batch, x.batchStrides,
                             p.slots[static_cast<size_t>(slot)].subColumns(), 16, g.n / n, x.partStride));
    return static_cast<int>(p.maps.size() - 1);
  };
  for (size_t o = 0; o < g.outputs.size(); ++o)
    p.outputMap.push_back(hasMap(g, g.outputs[o]) ? tensorMap(g.outputs[o], p.outputSlot[o]) : -1);
  for (size_t o = 0; o < g.tiles.size(); ++o)
    p.tileMap.push_back(tensorMap(g.tiles[o], p.tileSlot[o]));
  return p;
}

} // namespace

bool GemmPlan::storesByMap() const {
  return std::any_of(outputMap.begin(), outputMap.end(), [](int m) { return m >= 0; });
}

std::string wgmmaRefusal(const WgmmaGemm &g, const cost::TargetDesc &machine) {
  std::string why = gemmRefusal(g.shape(), g.tile, machine);
  if (!why.empty())
    return why;
  if (g.batch.size() > 3)
    return "a tensor map has five dimensions, not " + std::to_string(g.batch.size() + 2);
  if (g.outputs.empty() && g.segments.empty())
    return "nothing is stored";
  const cost::GemmTile &t = g.tile;
  auto work =
      static_cast<__int128>(g.shape().batch) * ((g.m + t.tileM() - 1) / t.tileM()) * ((g.n + t.tileN - 1) / t.tileN);
  if (work > kMaxWork || g.m > INT32_MAX / 2 || g.n > INT32_MAX / 2 || g.k > INT32_MAX / 2)
    return "the product is larger than 32-bit coordinates reach";
  auto operand = [&](const WgmmaOperand &o, const std::string &name, int64_t rows) -> std::string {
    if (!isWgmmaShape(g.a.dtype, o.dtype, t.tileN))
      return std::string("there is no wgmma for ") + dtypeName(g.a.dtype) + " by " + dtypeName(o.dtype) + " with " +
             std::to_string(t.tileN) + " columns";
    if (!cost::hasTensorMap(o.dtype, o.offset, o.kMajor ? rows : (o.part ? o.part : g.k), o.stride, g.batch,
                            o.batchStrides))
      return name + ": a stride of " + std::to_string(o.stride) + " elements or its start is no multiple of 16 bytes";
    const int64_t step = 128 / static_cast<int64_t>(dtypeSize(g.a.dtype));
    if (o.part && (o.part % step != 0 || g.k % o.part != 0 || g.k == o.part ||
                   !cost::hasTensorMap(o.dtype, o.offset, 1, 0, {2}, {o.partStride})))
      return name + ": parts of " + std::to_string(o.part) + " along K";
    return {};
  };
  if (why = operand(g.a, "the left operand", g.m); !why.empty())
    return why;
  for (const WgmmaOperand &o : g.b)
    if (why = operand(o, "the right operand", g.n); !why.empty())
      return why;
  if (g.promotes && (!isF8(g.a.dtype) || !isF8(g.b[0].dtype)))
    return "sums over parts of K are added up for 8-bit floats";
  if (!g.scales.empty() && (g.scales.size() != 2 || !g.promotes || g.b.size() != 1))
    return "scales along K are those of both operands of one product, whose sums are promoted";
  if (g.segment > 0 && (g.n % g.segment != 0 || g.segment < 16 || g.reductions.empty() || t.unroll > 1))
    return "rows of " + std::to_string(g.n) + " are not reduced by segments of " + std::to_string(g.segment);
  for (const GemmTensor &o : g.outputs)
    if (o.part && (g.n % o.part != 0 || g.n == o.part || !hasMap(g, o) ||
                   !cost::hasTensorMap(o.dtype, 0, 1, 0, {2}, {o.partStride})))
      return "parts of " + std::to_string(o.part) + " columns, " + std::to_string(o.partStride) +
             " elements apart, have no tensor map";
  for (const GemmTensor &o : g.outputs)
    if (dtypeSize(o.dtype) > 4)
      return std::string("outputs of type ") + dtypeName(o.dtype) + " are not staged";
  for (const GemmTensor &x : g.tiles)
    if (dtypeSize(x.dtype) > 4 || !hasMap(g, x))
      return "an operand of the epilogue has strides that are no multiples of 16 bytes";
  for (const GemmVector &v : g.columns) {
    bool whole = cost::isMultipleOf16Bytes(v.offset, v.dtype);
    for (size_t d = 0; d < g.batch.size(); ++d)
      whole &= cost::isMultipleOf16Bytes(v.batchStrides[d], v.dtype);
    if (dtypeSize(v.dtype) > 4 || !whole || !cost::isMultipleOf16Bytes(t.tileN, v.dtype))
      return "a vector of the epilogue starts at no multiple of 16 bytes";
  }
  return {};
}

SmallVector<Value> batchCoordinates(Int32 &i, const WgmmaGemm &g, const std::vector<int64_t> &strides, Value batch) {
  SmallVector<Value> out;
  int64_t inner = 1;
  for (size_t d = g.batch.size(); d-- > 0;) {
    if (g.batch[d] > 1 && strides[d] != 0)
      out.push_back(i.rem(i.div(batch, inner), g.batch[d]));
    inner *= g.batch[d];
  }
  return out;
}

Value batchOffset(OpBuilder &b, Location loc, const WgmmaGemm &g, int64_t offset, const std::vector<int64_t> &strides,
                  Value batch) {
  Int32 i(b, loc);
  Type i64 = b.getI64Type();
  auto constant = [&](int64_t v) { return arith::ConstantIntOp::create(b, loc, i64, v).getResult(); };
  Value out = constant(offset);
  int64_t inner = 1;
  for (size_t d = g.batch.size(); d-- > 0;) {
    if (g.batch[d] > 1 && strides[d] != 0) {
      Value at = arith::ExtUIOp::create(b, loc, i64, i.rem(i.div(batch, inner), g.batch[d]));
      out = arith::AddIOp::create(b, loc, out, arith::MulIOp::create(b, loc, at, constant(strides[d])));
    }
    inner *= g.batch[d];
  }
  return out;
}

namespace {

/// Registers a thread, which the roles share anew: of 384 threads with 168 each, 24 + 2 x 240 = 3 x 168; of 512 with 128,
/// 24 + 3 x 160 = 4 x 126. PTX ISA, setmaxnreg.
constexpr int kProducerRegisters = 24;
int consumerRegisters(const cost::GemmTile &t) { return t.consumers == 2 ? 240 : 160; }

class KernelEmitter {
public:
  KernelEmitter(OpBuilder &b, Location loc, const GemmPlan &plan, const GemmEpilogue &epilogue)
      : b(b), loc(loc), plan(plan), g(*plan.gemm), tile(plan.gemm->tile), callback(epilogue), i(b, loc),
        hopper(b, loc) {}

  Status emit(LLVM::LLVMFuncOp f, Value dynamic);

private:
  Value fullBarrier(Value stage) { return i.add(barriers, i.mul(stage, 8)); }
  Value emptyBarrier(Value stage) { return i.add(i.add(barriers, i.mul(stage, 8)), 8 * tile.stages); }
  GemmPlace placeOf(Value work);
  /// The stage after this, and its parity; and the one that many stages on.
  std::pair<Value, Value> next(Value stage, Value parity);
  std::pair<Value, Value> skip(Value stage, Value parity, int64_t stages);
  void initBarriers(WgmmaEpilogueEmitter &);
  void emitProducer();
  void loadStage(const GemmPlace &, ArrayRef<SmallVector<Value>> batches, Value kBlock, Value stage);
  Status emitConsumer(WgmmaEpilogueEmitter &);
  Type accumulatorType() { return accumulatesIntegers(g.a.dtype) ? Type(b.getI32Type()) : Type(b.getF32Type()); }
  void release(Value stage);
  SmallVector<Value> multiplyStage(const WgmmaShape &, ValueRange accumulators, Value aBase, Value stage, Value parity,
                                   Value accumulate);
  void prefetch(WgmmaEpilogueEmitter &, const GemmPlace &, Value kBlock);
  SmallVector<Value> emitProducts(WgmmaEpilogueEmitter &, const WgmmaShape &, const GemmPlace &, Value aBase,
                                  Value &stage, Value &parity);
  SmallVector<Value> emitPromoted(WgmmaEpilogueEmitter &, const WgmmaShape &, const GemmPlace &, Value aBase,
                                  Value &stage, Value &parity);
  Value descriptor(Value address, bool kMajor);

  OpBuilder &b;
  Location loc;
  const GemmPlan &plan;
  const WgmmaGemm &g;
  const cost::GemmTile &tile;
  const GemmEpilogue &callback;
  Int32 i;
  HopperAsm hopper;
  GemmBlock block;
  Value barriers, firstWork, workStep;
  Value policy; ///< of the right operand's copies
};

std::pair<Value, Value> KernelEmitter::next(Value stage, Value parity) {
  Value n = i.add(stage, 1), wraps = i.equal(n, i.of(tile.stages));
  return {i.select(wraps, i.of(0), n), i.select(wraps, i.xorWith(parity, i.of(1)), parity)};
}

std::pair<Value, Value> KernelEmitter::skip(Value stage, Value parity, int64_t stages) {
  int64_t rounds = stages / tile.stages, rest = stages % tile.stages;
  Value n = i.add(stage, rest), wraps = i.less(i.of(tile.stages - 1), n);
  Value flip = i.select(wraps, i.of((rounds + 1) % 2), i.of(rounds % 2));
  return {i.select(wraps, i.sub(n, i.of(tile.stages)), n), i.xorWith(parity, flip)};
}

/// Tiles in groups of `groupRows` along M, within a group M first: the tiles that run at once then share rows of A and
/// columns of B that fit in L2.
GemmPlace KernelEmitter::placeOf(Value work) {
  int64_t perBatch = plan.tilesM * plan.tilesN;
  Value batch = plan.batches == 1 ? i.of(0) : i.div(work, perBatch);
  Value rest = plan.batches == 1 ? work : i.rem(work, perBatch);
  int64_t rows = std::min<int64_t>(tile.groupRows, plan.tilesM), perGroup = rows * plan.tilesN;
  Value group = i.div(rest, perGroup), inGroup = i.rem(rest, perGroup), first = i.mul(group, rows);
  Value height = plan.tilesM % rows == 0 ? i.of(rows) : i.min(i.of(rows), i.sub(i.of(plan.tilesM), first));
  Value m = i.add(first, i.rem(inGroup, height)), n = i.div(inGroup, height);
  Value row = i.mul(m, tile.tileM() * tile.cluster);
  if (tile.cluster > 1)
    row = i.add(row, i.mul(block.rank, tile.tileM()));
  return {batch, row, i.mul(n, tile.tileN)};
}

void KernelEmitter::initBarriers(WgmmaEpilogueEmitter &epilogue) {
  auto first = scf::IfOp::create(b, loc, i.equal(i.add(i.mul(block.warp, 32), block.lane), i.of(0)));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(first.thenBlock()->getTerminator());
  for (int s = 0; s < tile.stages; ++s) {
    hopper.initBarrier(fullBarrier(i.of(s)), 1);
    hopper.initBarrier(emptyBarrier(i.of(s)), (tile.alternate ? 4 : plan.consumerWarps()) * tile.cluster);
  }
  epilogue.initBarriers();
  hopper.fenceBarrierInit();
}

/// All copies of one stage. Of the right operand each block of a cluster reads its share, for all.
void KernelEmitter::loadStage(const GemmPlace &place, ArrayRef<SmallVector<Value>> batches, Value kBlock, Value stage) {
  Value barrier = fullBarrier(stage), k = i.mul(kBlock, plan.tileK);
  Value base = i.add(block.base, i.mul(stage, plan.shared.stage));
  auto coordinates = [&](const WgmmaOperand &o, Value row, size_t operand) {
    Value within = o.part ? i.rem(k, o.part) : k;
    SmallVector<Value> c = o.kMajor ? SmallVector<Value>{within, row} : SmallVector<Value>{row, within};
    if (o.part)
      c.push_back(i.div(k, o.part));
    c.append(batches[operand].begin(), batches[operand].end());
    return c;
  };
  Value mapA = block.maps[plan.mapA];
  for (int64_t m = 0; m < tile.tileM(); m += g.a.kMajor ? plan.boxA : kMnBox)
    hopper.load(i.add(base, m * 128), mapA, coordinates(g.a, i.add(place.row, m), 0), barrier);
  for (size_t p = 0; p < g.b.size(); ++p) {
    Value map = block.maps[plan.mapB[p]];
    Value to = i.add(base, plan.shared.a + static_cast<int64_t>(p) * plan.shared.b);
    int64_t columns = tile.tileN / tile.cluster; // of this block's share
    Value column = place.column;
    if (tile.cluster > 1) {
      to = i.add(to, i.mul(block.rank, columns * 128));
      column = i.add(column, i.mul(block.rank, columns));
    }
    int64_t step = g.b[p].kMajor ? columns : kMnBox;
    for (int64_t n = 0; n < columns; n += step) {
      SmallVector<Value> c = coordinates(g.b[p], i.add(column, n), 1 + p);
      if (tile.cluster > 1)
        hopper.loadMulticast(i.add(to, n * 128), map, c, barrier, (1 << tile.cluster) - 1);
      else
        hopper.load(i.add(to, n * 128), map, c, barrier, policy);
    }
  }
}

void KernelEmitter::emitProducer() {
  // One thread; the others of its warp wait at the end.
  auto one = scf::IfOp::create(b, loc, i.equal(block.lane, i.of(0)));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(one.thenBlock()->getTerminator());
  for (Value map : block.maps)
    hopper.prefetchMap(map);
  if (g.once)
    policy = evictFirst(b, loc);
  auto tiles = scf::ForOp::create(b, loc, firstWork, i.of(plan.work), workStep, ValueRange{i.of(0), i.of(1)});
  OpBuilder::InsertionGuard tilesGuard(b);
  b.setInsertionPointToStart(tiles.getBody());
  GemmPlace place = placeOf(tiles.getInductionVar());
  SmallVector<SmallVector<Value>> batches{batchCoordinates(i, g, g.a.batchStrides, place.batch)};
  for (const WgmmaOperand &o : g.b)
    batches.push_back(batchCoordinates(i, g, o.batchStrides, place.batch));
  auto blocks = scf::ForOp::create(b, loc, i.of(0), i.of(plan.kBlocks), i.of(1), tiles.getRegionIterArgs());
  {
    OpBuilder::InsertionGuard blocksGuard(b);
    b.setInsertionPointToStart(blocks.getBody());
    Value stage = blocks.getRegionIterArg(0), parity = blocks.getRegionIterArg(1);
    hopper.wait(emptyBarrier(stage), parity);
    hopper.expectBytes(fullBarrier(stage), plan.shared.stage);
    loadStage(place, batches, blocks.getInductionVar(), stage);
    auto [nextStage, nextParity] = next(stage, parity);
    scf::YieldOp::create(b, loc, ValueRange{nextStage, nextParity});
  }
  scf::YieldOp::create(b, loc, blocks.getResults());
}

/// PTX ISA, "Matrix descriptor": the swizzle over 128 bytes; groups of eight rows 1,024 bytes apart. Where K is not contiguous
/// the leading dimension offset is that between boxes of 64 columns.
Value KernelEmitter::descriptor(Value address, bool kMajor) {
  int64_t leading = kMajor ? 16 : plan.tileK * 128;
  int64_t fixed = int64_t(1) << 62 | int64_t(1024 >> 4) << 32 | (leading >> 4) << 16;
  Value low = i.shiftRight(i.andWith(address, 0x3ffff), 4);
  Value wide = arith::ExtUIOp::create(b, loc, b.getI64Type(), low);
  return arith::OrIOp::create(b, loc, wide, arith::ConstantIntOp::create(b, loc, b.getI64Type(), fixed));
}

Status KernelEmitter::emitConsumer(WgmmaEpilogueEmitter &epilogue) {
  WgmmaShape shape;
  shape.a = g.a.dtype;
  shape.b = g.b[0].dtype;
  shape.n = tile.tileN;
  shape.blocks = tile.blocks;
  shape.products = static_cast<int>(g.b.size());
  shape.steps = 4;
  shape.transposeA = !g.a.kMajor;
  shape.transposeB = !g.b[0].kMajor;
  // K-major: 32 bytes further in the row. Otherwise 16 rows of 128 bytes further.
  shape.stepA = g.a.kMajor ? 2 : 128;
  shape.stepB = g.b[0].kMajor ? 2 : 128;
  shape.blockA = 64 * 128 / 16; // rows, or a box of 64 columns by 64 of K: the same bytes

  Value zero = i.of(0), warpgroup = i.shiftRight(block.warp, 2);
  Value aBase = block.base, first = firstWork, step = workStep, stage0 = zero, parity0 = zero;
  if (tile.alternate) { // the warpgroups have every other tile
    first = i.add(first, i.mul(warpgroup, workStep));
    step = i.mul(step, 2);
    auto [skipped, flipped] = skip(zero, zero, plan.kBlocks);
    Value isFirst = i.equal(warpgroup, zero);
    stage0 = i.select(isFirst, zero, skipped);
    parity0 = i.select(isFirst, zero, flipped);
  } else {
    aBase = i.add(aBase, i.mul(warpgroup, tile.blocks * 64 * 128));
  }
  if (tile.alternate) { // the first has the first turn
    auto second = scf::IfOp::create(b, loc, i.equal(warpgroup, i.of(1)));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(second.thenBlock()->getTerminator());
    hopper.passTurn(zero);
  }
  auto tiles = scf::ForOp::create(b, loc, first, i.of(plan.work), step, ValueRange{stage0, parity0, zero});
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(tiles.getBody());
  Value tilesBefore = tiles.getRegionIterArg(2);
  GemmPlace place = placeOf(tiles.getInductionVar());
  epilogue.loadRows(place);
  // In the ring, one warpgroup's stages follow the other's: none looks at a stage before the other has come to those ahead
  // of it, or it could not tell a stage's turns apart.
  if (tile.alternate)
    hopper.waitTurn(warpgroup);
  Value stage = tiles.getRegionIterArg(0), parity = tiles.getRegionIterArg(1);
  SmallVector<Value> accumulators = g.promotes ? emitPromoted(epilogue, shape, place, aBase, stage, parity)
                                               : emitProducts(epilogue, shape, place, aBase, stage, parity);
  RL_TRY(epilogue.emit(place, tilesBefore, accumulators));
  epilogue.endTile();
  if (tile.alternate)
    std::tie(stage, parity) = skip(stage, parity, plan.kBlocks);
  scf::YieldOp::create(b, loc, ValueRange{stage, parity, i.add(tilesBefore, 1)});
  return {};
}

/// Each warp for itself: the products that it waited for have read the stage.
void KernelEmitter::release(Value stage) {
  Value releases = tile.cluster > 1 ? i.less(block.lane, i.of(tile.cluster)) : i.equal(block.lane, i.of(0));
  auto branch = scf::IfOp::create(b, loc, releases);
  OpBuilder::InsertionGuard inner(b);
  b.setInsertionPoint(branch.thenBlock()->getTerminator());
  if (tile.cluster > 1)
    hopper.arriveAt(emptyBarrier(stage), block.lane);
  else
    hopper.arrive(emptyBarrier(stage));
}

/// One stage's products, behind the copies that bring it.
SmallVector<Value> KernelEmitter::multiplyStage(const WgmmaShape &shape, ValueRange accumulators, Value aBase,
                                                Value stage, Value parity, Value accumulate) {
  hopper.wait(fullBarrier(stage), parity);
  Value offset = i.mul(stage, plan.shared.stage);
  Value a = descriptor(i.add(aBase, offset), g.a.kMajor);
  SmallVector<Value> bs;
  for (size_t p = 0; p < g.b.size(); ++p)
    bs.push_back(descriptor(i.add(i.add(block.base, plan.shared.a + static_cast<int64_t>(p) * plan.shared.b), offset),
                            g.b[p].kMajor));
  return hopper.multiply(shape, accumulators, a, bs, accumulate);
}

void KernelEmitter::prefetch(WgmmaEpilogueEmitter &epilogue, const GemmPlace &place, Value kBlock) {
  if (!epilogue.hasPrefetch())
    return;
  // Not with the first: the stores of the tile before still read what is written over.
  auto when = scf::IfOp::create(b, loc, i.equal(kBlock, i.of(std::min<int64_t>(1, plan.kBlocks - 1))));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(when.thenBlock()->getTerminator());
  epilogue.prefetch(place);
}

/// A tile's products, all of K in the tensor cores' accumulators.
SmallVector<Value> KernelEmitter::emitProducts(WgmmaEpilogueEmitter &epilogue, const WgmmaShape &shape,
                                               const GemmPlace &place, Value aBase, Value &stage, Value &parity) {
  auto count = static_cast<size_t>(shape.accumulators());
  // The first products do not read them.
  Value undefined = LLVM::UndefOp::create(b, loc, accumulatorType());
  SmallVector<Value> carried(count, undefined);
  carried.append({stage, parity, i.of(0)});
  auto loop = scf::ForOp::create(b, loc, i.of(0), i.of(plan.kBlocks), i.of(1), carried);
  {
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(loop.getBody());
    Value kBlock = loop.getInductionVar();
    ValueRange arguments = loop.getRegionIterArgs();
    Value at = arguments[count], turn = arguments[count + 1], previous = arguments[count + 2];
    SmallVector<Value> out = multiplyStage(shape, arguments.take_front(count), aBase, at, turn, kBlock);
    auto later = scf::IfOp::create(b, loc, i.less(i.of(0), kBlock));
    {
      OpBuilder::InsertionGuard laterGuard(b);
      b.setInsertionPoint(later.thenBlock()->getTerminator());
      release(previous);
    }
    prefetch(epilogue, place, kBlock);
    auto [nextStage, nextParity] = next(at, turn);
    out.append({nextStage, nextParity, at});
    scf::YieldOp::create(b, loc, out);
  }
  if (tile.alternate)
    hopper.passTurn(i.sub(i.of(1), i.shiftRight(block.warp, 2)));
  SmallVector<Value> accumulators = hopper.finish(shape, loop.getResults().take_front(count));
  release(loop.getResult(static_cast<unsigned>(count) + 2));
  stage = loop.getResult(static_cast<unsigned>(count));
  parity = loop.getResult(static_cast<unsigned>(count) + 1);
  return accumulators;
}

/// The scales of a thread: loaded a stage ahead, so that none is waited for.
class StageScales {
public:
  StageScales(OpBuilder &b, Location loc, const WgmmaGemm &g, const GemmBlock &block, const GemmPlace &place)
      : b(b), loc(loc), i(b, loc), g(g) {
    if (g.scales.empty())
      return;
    const cost::GemmTile &tile = g.tile;
    Value warpgroup = i.shiftRight(block.warp, 2), warp = i.andWith(block.warp, 3);
    Value first = i.add(i.add(place.row, i.mul(warpgroup, 64 * tile.blocks)),
                        i.add(i.mul(warp, 16), i.shiftRight(block.lane, 2)));
    for (int m = 0; m < tile.blocks; ++m)
      for (int half = 0; half < 2; ++half)
        add(g.scales[0], block, place.batch, i.min(i.add(first, 64 * m + 8 * half), i.of(g.m - 1)));
    piece = static_cast<int>(cost::scalePiece(g.shape(), tile.tileN));
    for (int n = 0; n < tile.tileN; n += piece)
      add(g.scales[1], block, place.batch, i.min(i.add(place.column, n), i.of(g.n - 1)));
  }

  SmallVector<Value> load(Value kBlock) {
    SmallVector<Value> out;
    for (auto [address, step] : llvm::zip(addresses, steps)) {
      Value offset = arith::ExtUIOp::create(b, loc, b.getI64Type(), i.mul(kBlock, step));
      Value at = LLVM::GEPOp::create(b, loc, address.getType(), b.getF32Type(), address, ValueRange{offset});
      out.push_back(
          LLVM::LoadOp::create(b, loc, b.getF32Type(), at, /*alignment=*/4, false, false, /*isInvariant=*/true));
    }
    return out;
  }

  /// What accumulator `a` (of one product) is multiplied by.
  Value of(ValueRange loaded, size_t a) {
    size_t perBlock = static_cast<size_t>(g.tile.tileN) / 2, rows = static_cast<size_t>(2 * g.tile.blocks);
    size_t row = a / perBlock * 2 + a % 4 / 2, column = a % perBlock / 4 * 8 / static_cast<size_t>(piece);
    Value &product = products[{row, column}];
    if (!product)
      product = arith::MulFOp::create(b, loc, loaded[row], loaded[rows + column]);
    return product;
  }

private:
  void add(const WgmmaScales &s, const GemmBlock &block, Value batch, Value row) {
    Type i64 = b.getI64Type();
    Value at = arith::ExtUIOp::create(b, loc, i64, s.rows == 1 ? row : i.div(row, s.rows));
    at = arith::MulIOp::create(b, loc, at, arith::ConstantIntOp::create(b, loc, i64, s.stride));
    at = arith::AddIOp::create(b, loc, at, batchOffset(b, loc, g, s.offset, s.batchStrides, batch));
    addresses.push_back(LLVM::GEPOp::create(b, loc, block.pointers[s.arg].getType(), b.getF32Type(),
                                            block.pointers[s.arg], ValueRange{at}));
    steps.push_back(s.kStride);
  }

  OpBuilder &b;
  Location loc;
  Int32 i;
  const WgmmaGemm &g;
  int piece = 1;
  SmallVector<Value> addresses;
  SmallVector<int64_t> steps;
  std::map<std::pair<size_t, size_t>, Value> products;
};

/// A tile's products where each stage's sums are added, times their scales, to those of the stages before. While a warpgroup adds,
/// another multiplies. (Turns, so that they do not add at once, took 1 to 6 % longer.)
SmallVector<Value> KernelEmitter::emitPromoted(WgmmaEpilogueEmitter &epilogue, const WgmmaShape &shape,
                                               const GemmPlace &place, Value aBase, Value &stage, Value &parity) {
  auto count = static_cast<size_t>(shape.accumulators());
  SmallVector<Value> undefined(count, LLVM::UndefOp::create(b, loc, accumulatorType()));
  StageScales scales(b, loc, g, block, place);
  Value nothing = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(0));
  SmallVector<Value> carried(count, nothing);
  carried.append({stage, parity});
  carried.append(scales.load(i.of(0)));
  auto loop = scf::ForOp::create(b, loc, i.of(0), i.of(plan.kBlocks), i.of(1), carried);
  {
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(loop.getBody());
    Value kBlock = loop.getInductionVar();
    ValueRange arguments = loop.getRegionIterArgs();
    Value at = arguments[count], turn = arguments[count + 1];
    ValueRange loaded = arguments.drop_front(count + 2);
    SmallVector<Value> ahead = scales.load(i.min(i.add(kBlock, 1), i.of(plan.kBlocks - 1)));
    SmallVector<Value> sums = multiplyStage(shape, undefined, aBase, at, turn, i.of(0)), out;
    sums = hopper.finish(shape, sums);
    release(at);
    prefetch(epilogue, place, kBlock);
    for (size_t a = 0; a < count; ++a)
      out.push_back(g.scales.empty()
                        ? arith::AddFOp::create(b, loc, arguments[a], sums[a]).getResult()
                        : math::FmaOp::create(b, loc, sums[a], scales.of(loaded, a), arguments[a]).getResult());
    auto [nextStage, nextParity] = next(at, turn);
    out.append({nextStage, nextParity});
    out.append(ahead);
    scf::YieldOp::create(b, loc, out);
  }
  stage = loop.getResult(static_cast<unsigned>(count));
  parity = loop.getResult(static_cast<unsigned>(count) + 1);
  return SmallVector<Value>(loop.getResults().take_front(count));
}

Status KernelEmitter::emit(LLVM::LLVMFuncOp f, Value dynamic) {
  Type i32 = b.getI32Type();
  Value thread = NVVM::ThreadIdXOp::create(b, loc, i32);
  block.base = arith::TruncIOp::create(b, loc, i32, LLVM::PtrToIntOp::create(b, loc, b.getI64Type(), dynamic));
  block.warp = hopper.firstLane(i.shiftRight(thread, 5));
  block.lane = i.andWith(thread, 31);
  block.rank = tile.cluster > 1 ? hopper.clusterRank() : i.of(0);
  ValueRange arguments = f.getBody().front().getArguments();
  block.pointers = arguments.take_front(g.pointers);
  block.maps = arguments.drop_front(g.pointers);
  barriers = i.add(block.base, plan.barriers());
  Value blockId = NVVM::BlockIdXOp::create(b, loc, i32), blocks = NVVM::GridDimXOp::create(b, loc, i32);
  firstWork = i.div(blockId, tile.cluster);
  workStep = i.div(blocks, tile.cluster);

  WgmmaEpilogueEmitter epilogue(b, loc, plan, block, callback);
  initBarriers(epilogue);
  if (tile.cluster > 1) {
    hopper.clusterArrive();
    hopper.clusterWait();
  } else {
    hopper.syncBlock();
  }
  auto role = scf::IfOp::create(b, loc, i.less(block.warp, i.of(plan.consumerWarps())), /*withElseRegion=*/true);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(role.thenBlock()->getTerminator());
    if (tile.moreRegisters)
      hopper.setMaxRegisters(consumerRegisters(tile), true);
    RL_TRY(emitConsumer(epilogue));
    b.setInsertionPoint(role.thenBlock()->getTerminator());
    epilogue.finish();
    b.setInsertionPoint(role.elseBlock()->getTerminator());
    if (tile.moreRegisters)
      hopper.setMaxRegisters(kProducerRegisters, false);
    auto producer = scf::IfOp::create(b, loc, i.equal(block.warp, i.of(plan.consumerWarps())));
    b.setInsertionPoint(producer.thenBlock()->getTerminator());
    emitProducer();
  }
  if (tile.cluster > 1) { // a block must not end while another still sends to its memory
    hopper.clusterArrive();
    hopper.clusterWait();
  }
  return {};
}

} // namespace

Status emitWgmmaGemm(ModuleOp module, const WgmmaGemm &gemm, const GemmEpilogue &epilogue,
                     const cost::TargetDesc &machine, PackageLaunch &launch) {
  if (std::string why = wgmmaRefusal(gemm, machine); !why.empty())
    return unsupported({}, why);
  GemmPlan plan = makePlan(gemm);
  const cost::GemmTile &t = gemm.tile;

  MLIRContext *ctx = module.getContext();
  OpBuilder b(ctx);
  Location loc = b.getUnknownLoc();
  b.setInsertionPointToEnd(module.getBody());
  // No size of its own: dynamic shared memory, whose size the launch gives.
  std::string memory = gemm.name + "_shared";
  auto bytes = LLVM::LLVMArrayType::get(b.getI8Type(), 0);
  LLVM::GlobalOp::create(b, loc, bytes, /*isConstant=*/false, LLVM::Linkage::External, memory, Attribute(),
                         /*alignment=*/1024, /*addrSpace=*/3);
  Type pointer = LLVM::LLVMPointerType::get(ctx, 1), generic = LLVM::LLVMPointerType::get(ctx);
  SmallVector<Type> types(gemm.pointers, pointer);
  types.append(plan.maps.size(), generic);
  auto f =
      LLVM::LLVMFuncOp::create(b, loc, gemm.name, LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(ctx), types));
  f->setAttr(NVVM::NVVMDialect::getKernelFuncAttrName(), b.getUnitAttr());
  f->setAttr(NVVM::NVVMDialect::getReqntidAttrName(), b.getDenseI32ArrayAttr({t.threads()}));
  f->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(), b.getI32IntegerAttr(t.blocksPerSm));
  if (t.cluster > 1)
    f->setAttr(NVVM::NVVMDialect::getClusterDimAttrName(), b.getDenseI32ArrayAttr({t.cluster, 1, 1}));
  auto mapType = LLVM::LLVMArrayType::get(b.getI8Type(), 128);
  for (unsigned m = 0; m < plan.maps.size(); ++m) {
    unsigned arg = gemm.pointers + m;
    f.setArgAttr(arg, LLVM::LLVMDialect::getByValAttrName(), TypeAttr::get(mapType));
    f.setArgAttr(arg, LLVM::LLVMDialect::getAlignAttrName(), b.getI64IntegerAttr(64));
    f.setArgAttr(arg, NVVM::NVVMDialect::getGridConstantAttrName(), b.getUnitAttr());
  }
  Block *entry = f.addEntryBlock(b);
  b.setInsertionPointToStart(entry);
  Value dynamic = LLVM::AddressOfOp::create(b, loc, LLVM::LLVMPointerType::get(ctx, 3), memory);
  KernelEmitter emitter(b, loc, plan, epilogue);
  RL_TRY(emitter.emit(f, dynamic));
  LLVM::ReturnOp::create(b, loc, ValueRange{});

  launch.kernel = gemm.name;
  launch.grid = {static_cast<uint32_t>(plan.work * t.cluster), 1, 1};
  launch.block = {static_cast<uint32_t>(t.threads()), 1, 1};
  launch.cluster = {static_cast<uint32_t>(t.cluster), 1, 1};
  launch.blocks = plan.work * t.cluster;
  launch.sharedBytes = static_cast<uint32_t>(plan.shared.total);
  launch.persistent = true;
  launch.align = 16;
  launch.tensorMaps = std::move(plan.maps);
  return {};
}

} // namespace rl::emit
