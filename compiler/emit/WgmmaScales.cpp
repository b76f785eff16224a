// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Scales of blocks along K, by which a stage's sums are multiplied. A warp's rows have their scales in eight lines of memory, so each load
// of one takes eight turns of the cache that operands come through. The four lanes that share rows therefore load those of four
// stages at once, one each, and multiply rows' by columns'; each stage takes the products from the lane that has them.
#include "compiler/emit/WgmmaParts.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace rl::emit {

namespace {
constexpr int64_t kLanes = 4; ///< that share rows of accumulators
}

WgmmaScaleEmitter::WgmmaScaleEmitter(OpBuilder &b, Location loc, const GemmPlan &plan, const GemmBlock &block,
                                     const GemmPlace &place)
    : b(b), loc(loc), plan(plan), g(*plan.gemm), i(b, loc), hopper(b, loc) {
  if (g.scales.empty())
    return;
  const cost::GemmTile &tile = g.tile;
  lane = block.lane;
  Value warpgroup = i.shiftRight(block.warp, 2), warp = i.andWith(block.warp, 3);
  Value first =
      i.add(i.add(place.row, i.mul(warpgroup, 64 * tile.blocks)), i.add(i.mul(warp, 16), i.shiftRight(lane, 2)));
  for (int m = 0; m < tile.blocks; ++m)
    for (int half = 0; half < 2; ++half)
      rows.push_back(addressOf(g.scales[0], block, place.batch, i.min(i.add(first, 64 * m + 8 * half), i.of(g.m - 1))));
  const cost::GemmShape shape = g.shape();
  piece = cost::scalePiece(shape, tile.tileN);
  share = std::min(g.scales[1].rows, g.n);
  inShare = i.rem(place.column, share);
  Value whole = i.sub(place.column, inShare);
  for (int64_t n = 0; n < cost::scalesOfTile(shape, tile.tileN); ++n)
    columns.push_back(addressOf(g.scales[1], block, place.batch, i.min(i.add(whole, n * share), i.of(g.n - 1))));
}

WgmmaScaleEmitter::Address WgmmaScaleEmitter::addressOf(const WgmmaScales &s, const GemmBlock &block, Value batch,
                                                        Value row) {
  Type i64 = b.getI64Type();
  Value at = arith::ExtUIOp::create(b, loc, i64, s.rows == 1 ? row : i.div(row, s.rows));
  at = arith::MulIOp::create(b, loc, at, arith::ConstantIntOp::create(b, loc, i64, s.stride));
  at = arith::AddIOp::create(b, loc, at, batchOffset(b, loc, g, s.offset, s.batchStrides, batch));
  Value pointer = block.pointers[s.arg];
  return {LLVM::GEPOp::create(b, loc, pointer.getType(), b.getF32Type(), pointer, ValueRange{at}), s.kStride};
}

/// Of the four stages from `firstStage` on this lane's, or the last one's.
SmallVector<Value> WgmmaScaleEmitter::load(Value firstStage) {
  Value kBlock = i.min(i.add(firstStage, i.andWith(lane, kLanes - 1)), i.of(plan.kBlocks - 1));
  SmallVector<Value> out;
  for (ArrayRef<Address> list : {ArrayRef(rows), ArrayRef(columns)})
    for (const Address &a : list) {
      Value offset = arith::ExtUIOp::create(b, loc, b.getI64Type(), i.mul(kBlock, a.second));
      Value at = LLVM::GEPOp::create(b, loc, a.first.getType(), b.getF32Type(), a.first, ValueRange{offset});
      out.push_back(
          LLVM::LoadOp::create(b, loc, b.getF32Type(), at, /*alignment=*/4, false, false, /*isInvariant=*/true));
    }
  return out;
}

/// Products for this stage and those behind it, which none is yet; and what the next four's are of.
SmallVector<Value> WgmmaScaleEmitter::begin() {
  if (g.scales.empty())
    return {};
  SmallVector<Value> out(rows.size() * columns.size(), arith::ConstantOp::create(b, loc, b.getF32FloatAttr(0)));
  out.append(load(i.of(0)));
  return out;
}

SmallVector<Value> WgmmaScaleEmitter::advance(Value kBlock, ValueRange carried) {
  if (g.scales.empty())
    return {};
  const size_t count = rows.size() * columns.size();
  SmallVector<Type> types(carried.size(), b.getF32Type());
  auto first = scf::IfOp::create(b, loc, types, i.equal(i.andWith(kBlock, kLanes - 1), i.of(0)),
                                 /*withElseRegion=*/true);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(first.thenBlock());
    ValueRange loaded = carried.drop_front(count);
    SmallVector<Value> out;
    for (size_t r = 0; r < rows.size(); ++r)
      for (size_t c = 0; c < columns.size(); ++c)
        out.push_back(arith::MulFOp::create(b, loc, loaded[r], loaded[rows.size() + c]));
    out.append(load(i.add(kBlock, kLanes)));
    scf::YieldOp::create(b, loc, out);
    b.setInsertionPointToStart(first.elseBlock());
    scf::YieldOp::create(b, loc, carried);
  }
  takeFactors(kBlock, first.getResults().take_front(count));
  return SmallVector<Value>(first.getResults());
}

void WgmmaScaleEmitter::takeFactors(Value kBlock, ValueRange products) {
  Value from = arith::OrIOp::create(b, loc, i.andWith(lane, 32 - kLanes), i.andWith(kBlock, kLanes - 1));
  factors.assign(rows.size(), {});
  for (size_t r = 0; r < rows.size(); ++r) {
    SmallVector<Value> own; // by share of columns
    for (Value v : products.slice(r * columns.size(), columns.size()))
      own.push_back(hopper.fromLane(v, from));
    for (int64_t n = 0; n < g.tile.tileN; n += piece) {
      // Tiles begin at multiples of a piece, so that this one's may be of two shares.
      const int64_t least = n / share, most = (share - piece + n) / share;
      Value factor = own[static_cast<size_t>(least)];
      if (most > least)
        factor = i.select(i.less(inShare, i.of(most * share - n)), factor, own[static_cast<size_t>(most)]);
      factors[r].push_back(factor);
    }
  }
}

Value WgmmaScaleEmitter::of(size_t accumulator) const {
  const size_t perBlock = static_cast<size_t>(g.tile.tileN) / 2;
  const size_t row = accumulator / perBlock * 2 + accumulator % 4 / 2;
  return factors[row][accumulator % perBlock / 4 * 8 / static_cast<size_t>(piece)];
}

} // namespace rl::emit
