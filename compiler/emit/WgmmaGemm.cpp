// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The kernel around the epilogue: the roles of the warps, the ring of stages and the products.
#include "compiler/emit/WgmmaParts.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;

namespace rl::emit {

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
  Result<SmallVector<Value>> emitComputed(WgmmaEpilogueEmitter &, const WgmmaShape &, const GemmPlace &, Value &stage,
                                          Value &parity);
  SmallVector<Value> rightOperands(Value stageOffset);
  void loadLeft(const GemmPlace &, Value k, Value base, Value barrier);
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
  if (!g.left.tiles.empty())
    loadLeft(place, k, base, barrier);
  Value mapA = block.maps[plan.mapA];
  for (int64_t m = 0; g.left.tiles.empty() && m < tile.tileM(); m += g.a.kMajor ? plan.boxA : kMnBox)
    hopper.load(i.add(base, m * 128), mapA, coordinates(g.a, i.add(place.row, m), 0), barrier);
  for (size_t p = 0; p < plan.rights(); ++p) {
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
        hopper.load(i.add(to, n * 128), map, c, barrier, g.turned ? Value() : policy);
    }
  }
}

/// What the left operand of a stage is computed from.
void KernelEmitter::loadLeft(const GemmPlace &place, Value k, Value base, Value barrier) {
  for (auto [o, slot, map] : llvm::zip(g.left.tiles, plan.left, plan.mapLeft)) {
    SmallVector<Value> batch = batchCoordinates(i, g, o.batchStrides, place.batch);
    for (int sub = 0; sub < slot.subs; ++sub)
      for (int64_t m = 0; m < tile.tileM(); m += plan.boxA) {
        SmallVector<Value> at{i.add(k, sub * slot.subColumns()), i.add(place.row, m)};
        at.append(batch.begin(), batch.end());
        hopper.load(i.add(base, slot.offset + (sub * tile.tileM() + m) * slot.span), block.maps[map], at, barrier,
                    g.turned ? policy : Value());
      }
  }
  int64_t to = plan.shared.a + plan.shared.b * static_cast<int64_t>(g.b.size());
  for (auto [v, map] : llvm::zip(g.left.columns, plan.mapLeftColumn)) {
    SmallVector<Value> at{k, i.of(0)};
    at.append(batchCoordinates(i, g, v.batchStrides, place.batch));
    hopper.load(i.add(base, to), block.maps[map], at, barrier);
    to += cost::leftColumnBytes(g.shape(), v.dtype);
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
  SmallVector<SmallVector<Value>> batches(1); // a left operand that is computed is loaded otherwise
  if (g.left.tiles.empty())
    batches[0] = batchCoordinates(i, g, g.a.batchStrides, place.batch);
  for (const WgmmaOperand &o : g.b)
    batches.push_back(batchCoordinates(i, g, o.batchStrides, place.batch));
  auto blocks = scf::ForOp::create(b, loc, i.of(0), i.of(plan.kBlocks), i.of(1), tiles.getRegionIterArgs());
  {
    OpBuilder::InsertionGuard blocksGuard(b);
    b.setInsertionPointToStart(blocks.getBody());
    Value stage = blocks.getRegionIterArg(0), parity = blocks.getRegionIterArg(1);
    hopper.wait(emptyBarrier(stage), parity);
    hopper.expectBytes(fullBarrier(stage), plan.copiedBytes);
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
  SmallVector<Value> accumulators;
  if (!g.left.tiles.empty()) {
    RL_ASSIGN(accumulators, emitComputed(epilogue, shape, place, stage, parity));
  } else {
    accumulators = g.promotes ? emitPromoted(epilogue, shape, place, aBase, stage, parity)
                              : emitProducts(epilogue, shape, place, aBase, stage, parity);
  }
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

SmallVector<Value> KernelEmitter::rightOperands(Value stageOffset) {
  SmallVector<Value> out;
  for (size_t p = 0; p < plan.rights(); ++p)
    out.push_back(descriptor(
        i.add(i.add(block.base, plan.shared.a + static_cast<int64_t>(p) * plan.shared.b), stageOffset), g.b[p].kMajor));
  return out;
}

/// One stage's products, behind the copies that bring it.
SmallVector<Value> KernelEmitter::multiplyStage(const WgmmaShape &shape, ValueRange accumulators, Value aBase,
                                                Value stage, Value parity, Value accumulate) {
  hopper.wait(fullBarrier(stage), parity);
  Value offset = i.mul(stage, plan.shared.stage);
  Value a = descriptor(i.add(aBase, offset), g.a.kMajor);
  return hopper.multiply(shape, accumulators, a, rightOperands(offset), accumulate);
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

/// A tile's products whose left operand is computed on the way: while those of a stage are under way, which the tensor cores read from
/// registers step by step, the same step of the next stage. None are under way where the loop begins anew, or ptxas would serialise them
/// (C7513). Where the operand is widened numbers, which take few instructions, two stages are a round of the loop: each has registers of
/// its own, between which nothing is moved, and the first one's products end under the second's.
Result<SmallVector<Value>> KernelEmitter::emitComputed(WgmmaEpilogueEmitter &epilogue, const WgmmaShape &shape,
                                                       const GemmPlace &place, Value &stage, Value &parity) {
  WgmmaLeftEmitter left(b, loc, plan, block);
  left.loadRows(place);
  const bool widens = g.turned;
  const auto count = static_cast<size_t>(shape.accumulators()),
             perStep = static_cast<size_t>(4 * tile.blocks * (widens ? shape.products : 1));
  const size_t registers = perStep * static_cast<size_t>(shape.steps);
  auto addressOf = [&](Value at) { return i.add(block.base, i.mul(at, plan.shared.stage)); };
  // A stage whose products are under way while the next one's begin, and the registers that they read.
  Value before;
  SmallVector<Value> beforeA;
  auto endStage = [&](ValueRange a, Value at) { // the tensor cores have read the registers until now
    if (widens)
      hopper.holdQuads(addressOf(at), a);
    else
      hopper.holdValues(addressOf(at), a);
    release(at);
  };
  /// A stage's products from the registers `a`; with `next` what its left operand is, behind the results. `ends`: no product is under
  /// way behind it.
  auto emitStage = [&](ValueRange sums, ValueRange a, Value at, Value accumulate, Value kBlock, Value next, Value turn,
                       bool ends) -> Result<SmallVector<Value>> {
    SmallVector<Value> out(sums), ahead, bs = rightOperands(i.mul(at, plan.shared.stage));
    Value from = next ? addressOf(next) : Value();
    WgmmaLeftEmitter::Loaded loaded;
    auto startStep = [&](int step) {
      ValueRange own = a.slice(static_cast<size_t>(step) * perStep, perStep);
      out = hopper.startStep(shape, step, out, own, bs, step == 0 ? accumulate : i.of(1), /*isGroup=*/widens);
      if (!before)
        return;
      hopper.waitAllBut(1);
      endStage(beforeA, before);
      before = Value();
    };
    // What is loaded in 32 bits is so little work that the next step had better not wait for its loads.
    const bool isBetween = llvm::all_of(g.left.tiles, [](const WgmmaOperand &o) { return dtypeSize(o.dtype) < 4; });
    for (int step = 0; step < shape.steps && (!next || !isBetween); ++step)
      startStep(step);
    for (int step = 0; step < shape.steps && next; ++step) {
      if (isBetween)
        startStep(step);
      if (step == 0)
        hopper.wait(fullBarrier(next), turn);
      if (step % 2 == 0)
        loaded = left.load(from, step);
      RL_ASSIGN(SmallVector<Value> values, left.compute(place, kBlock, step, loaded));
      if (isBetween && !widens)
        hopper.holdValues(from, values);
      ahead.append(values);
    }
    if (next && widens)
      hopper.holdQuads(from, ahead);
    if (ends) {
      out = hopper.finish(shape, out);
      endStage(a, at);
    } else {
      before = at;
      beforeA.assign(a.begin(), a.end());
    }
    out.append(ahead);
    return out;
  };
  /// `carried`: sums, the stage's registers, the stage and its parity.
  auto advance = [&](ValueRange carried, Value kBlock, bool ends) -> Result<SmallVector<Value>> {
    Value at = carried[count + registers];
    prefetch(epilogue, place, kBlock);
    auto [nextStage, nextParity] = next(at, carried.back());
    RL_ASSIGN(SmallVector<Value> out, emitStage(carried.take_front(count), carried.slice(count, registers), at, kBlock,
                                                i.add(kBlock, 1), nextStage, nextParity, ends));
    out.append({nextStage, nextParity});
    return out;
  };

  SmallVector<Value> carried(count, LLVM::UndefOp::create(b, loc, accumulatorType()));
  hopper.wait(fullBarrier(stage), parity);
  WgmmaLeftEmitter::Loaded loaded;
  for (int step = 0; step < shape.steps; ++step) {
    if (step % 2 == 0)
      loaded = left.load(addressOf(stage), step);
    RL_ASSIGN(SmallVector<Value> values, left.compute(place, i.of(0), step, loaded));
    carried.append(values);
  }
  carried.append({stage, parity});
  const int64_t last = plan.kBlocks - 1, round = widens ? 2 : 1, inRounds = last / round * round;
  auto loop = scf::ForOp::create(b, loc, i.of(0), i.of(inRounds), i.of(round), carried);
  {
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(loop.getBody());
    SmallVector<Value> out(loop.getRegionIterArgs());
    for (int64_t which = 0; which < round; ++which) {
      const SmallVector<Value> now = out;
      RL_ASSIGN(out, advance(now, i.add(loop.getInductionVar(), which), which == round - 1));
    }
    scf::YieldOp::create(b, loc, out);
  }
  carried.assign(loop.getResults().begin(), loop.getResults().end());
  if (inRounds < last) {
    const SmallVector<Value> now = carried;
    RL_ASSIGN(carried, advance(now, i.of(inRounds), true));
  }
  ValueRange results(carried);
  Value at = results[count + registers];
  if (last <= 1)
    prefetch(epilogue, place, i.of(last));
  RL_ASSIGN(SmallVector<Value> sums, emitStage(results.take_front(count), results.slice(count, registers), at,
                                               i.of(last), i.of(last), Value(), Value(), true));
  std::tie(stage, parity) = next(at, results.back());
  return sums;
}

/// A tile's products where each stage's sums are added, times their scales, to those of the stages before. While a warpgroup adds,
/// another multiplies. (Turns, so that they do not add at once, took 1 to 6 % longer.)
SmallVector<Value> KernelEmitter::emitPromoted(WgmmaEpilogueEmitter &epilogue, const WgmmaShape &shape,
                                               const GemmPlace &place, Value aBase, Value &stage, Value &parity) {
  auto count = static_cast<size_t>(shape.accumulators());
  SmallVector<Value> undefined(count, LLVM::UndefOp::create(b, loc, accumulatorType()));
  WgmmaScaleEmitter scales(b, loc, plan, block, place);
  Value nothing = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(0));
  SmallVector<Value> carried(count, nothing);
  carried.append({stage, parity});
  carried.append(scales.begin());
  auto loop = scf::ForOp::create(b, loc, i.of(0), i.of(plan.kBlocks), i.of(1), carried);
  {
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPointToStart(loop.getBody());
    Value kBlock = loop.getInductionVar();
    ValueRange arguments = loop.getRegionIterArgs();
    Value at = arguments[count], turn = arguments[count + 1];
    SmallVector<Value> ahead = scales.advance(kBlock, arguments.drop_front(count + 2));
    SmallVector<Value> sums = multiplyStage(shape, undefined, aBase, at, turn, i.of(0)), out;
    sums = hopper.finish(shape, sums);
    release(at);
    prefetch(epilogue, place, kBlock);
    for (size_t a = 0; a < count; ++a)
      out.push_back(g.scales.empty() ? arith::AddFOp::create(b, loc, arguments[a], sums[a]).getResult()
                                     : math::FmaOp::create(b, loc, sums[a], scales.of(a), arguments[a]).getResult());
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
