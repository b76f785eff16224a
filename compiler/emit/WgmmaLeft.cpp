// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The left operand of warpgroup products where it is computed as it is multiplied. What it is computed from comes to shared memory
// as the operand itself would; each warp reads its 16 rows of a stage there, in the order in which the tensor cores take registers,
// computes, and narrows.
//
// Where an element sits (PTX ISA, "Register fragments for wgmma", A): of 16 rows and 16 along K a lane l has rows l / 4 and
// l / 4 + 8, and in each 2 * (l % 4) + {0, 1} along K and those + 8; register 2 * octet + half.
#include "compiler/emit/WgmmaParts.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinTypes.h"

using namespace mlir;

namespace rl::emit {

WgmmaLeftEmitter::WgmmaLeftEmitter(OpBuilder &b, Location loc, const GemmPlan &plan, const GemmBlock &block)
    : b(b), loc(loc), plan(plan), block(block), i(b, loc), hopper(b, loc) {
  if (plan.gemm->turned)
    exponents = exponentsOf128(b, loc);
}

static Type elementType(OpBuilder &b, DType t) {
  return t == DType::F32 ? Type(b.getF32Type()) : b.getIntegerType(static_cast<unsigned>(8 * dtypeSize(t)));
}

static Value sharedPointer(OpBuilder &b, Location loc, Value address) {
  return LLVM::IntToPtrOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext(), 3), address);
}

Value WgmmaLeftEmitter::firstRow() {
  Value ofGroup = i.mul(i.shiftRight(block.warp, 2), plan.tile().blocks * 64);
  return i.add(ofGroup, i.add(i.mul(i.andWith(block.warp, 3), 16), i.shiftRight(block.lane, 2)));
}

void WgmmaLeftEmitter::loadRows(const GemmPlace &place) {
  const WgmmaGemm &g = *plan.gemm;
  Value first = i.add(place.row, firstRow());
  for (const GemmVector &v : g.left.rows) {
    Value start = batchOffset(b, loc, g, v.offset, v.batchStrides, place.batch);
    Type element = elementType(b, v.dtype);
    SmallVector<Value> values;
    for (int part = 0; part < 2 * plan.tile().blocks; ++part) {
      Value row = i.min(i.add(first, part / 2 * 64 + part % 2 * 8), i.of(g.m - 1));
      Value offset = arith::AddIOp::create(b, loc, start, arith::ExtUIOp::create(b, loc, b.getI64Type(), row));
      Value at = LLVM::GEPOp::create(b, loc, block.pointers[v.arg].getType(), element, block.pointers[v.arg],
                                     ValueRange{offset});
      values.push_back(LLVM::LoadOp::create(b, loc, element, at, static_cast<unsigned>(dtypeSize(v.dtype))));
    }
    rowValues.push_back(std::move(values));
  }
}

/// Two neighbours along K: of one of four parts, 2 * octet + half. The place of a byte in its row is swizzled by the row's bits alone,
/// which are the lane's: what is known beforehand of the byte's place is an exclusive or with it. Of elements of 32 bits, which eight
/// rows would read from half of the banks, odd rows get what the other step of a pair has.
Value WgmmaLeftEmitter::tilePair(const GemmSlot &slot, Value stage, int block64, int step, int part) {
  const int size = slot.elementBytes, inRow = (step * 16 + part / 2 * 8) * size;
  Value row = firstRow(), quad = i.shiftRight(block.lane, 2);
  Value swizzle = i.andWith(i.shiftRight(i.mul(quad, slot.span), 3), slot.swizzleMask());
  // Within 16 bytes nothing is swizzled: that is a part of the instruction.
  Value inSpan =
      i.xorWith(i.xorWith(i.mul(i.andWith(block.lane, 3), 2 * size), swizzle), i.of(inRow % slot.span / 16 * 16));
  if (size == 4)
    inSpan = i.xorWith(inSpan, i.mul(i.andWith(quad, 1), 16 * size));
  Value at = i.add(i.add(stage, i.mul(row, slot.span)), inSpan);
  at = i.add(at, slot.offset + inRow % 16 +
                     (inRow / slot.span * plan.tile().tileM() + block64 * 64 + part % 2 * 8) * int64_t(slot.span));
  return sharedPointer(b, loc, at);
}

/// Two neighbours of a vector along K; `column`: in the stage.
Value WgmmaLeftEmitter::columnPair(size_t vector, Value stage, Value column) {
  const WgmmaGemm &g = *plan.gemm;
  int64_t offset = plan.shared.a + plan.shared.b * static_cast<int64_t>(g.b.size());
  for (size_t v = 0; v < vector; ++v)
    offset += cost::leftColumnBytes(g.shape(), g.left.columns[v].dtype);
  auto size = static_cast<int64_t>(dtypeSize(g.left.columns[vector].dtype));
  Value at = i.add(i.add(stage, i.mul(column, size)), offset);
  return LLVM::LoadOp::create(b, loc, VectorType::get({2}, elementType(b, g.left.columns[vector].dtype)),
                              sharedPointer(b, loc, at), static_cast<unsigned>(2 * size));
}

WgmmaLeftEmitter::Loaded WgmmaLeftEmitter::load(Value stage, int firstStep) {
  const WgmmaGemm &g = *plan.gemm;
  const int blocks = plan.tile().blocks;
  Loaded out;
  for (auto [o, slot] : llvm::zip(g.left.tiles, plan.left)) {
    SmallVector<Value> &pairs = out.tiles.emplace_back();
    Type type = VectorType::get({2}, elementType(b, o.dtype));
    const bool isNarrow = slot.elementBytes == 1; // loaded as a number, or each element has a register of its own
    for (int step = firstStep; step < firstStep + 2; ++step)
      for (int block64 = 0; block64 < blocks; ++block64) {
        if (slot.elementBytes == 2) { // lane l has the address of row l % 8 of matrix l / 8
          Value matrix = i.shiftRight(block.lane, 3), inEight = i.andWith(block.lane, 7);
          Value row =
              i.add(i.sub(firstRow(), i.shiftRight(block.lane, 2)), i.add(inEight, i.mul(i.andWith(matrix, 1), 8)));
          Value inSpan = i.xorWith(i.mul(i.xorWith(i.shiftRight(matrix, 1), inEight), 16), i.of(step * 32));
          Value at = i.add(i.add(i.add(stage, i.mul(row, slot.span)), inSpan), slot.offset + block64 * 64 * slot.span);
          for (Value v : hopper.loadMatrices(at))
            pairs.push_back(LLVM::BitcastOp::create(b, loc, type, v));
          continue;
        }
        for (int part = 0; part < 4; ++part) {
          Value v = LLVM::LoadOp::create(b, loc, isNarrow ? Type(b.getI16Type()) : type,
                                         tilePair(slot, stage, block64, step, part),
                                         static_cast<unsigned>(2 * slot.elementBytes));
          pairs.push_back(isNarrow && !g.turned ? LLVM::BitcastOp::create(b, loc, type, v).getResult() : v);
        }
      }
    // Odd rows have read the two steps the other way round.
    Value isOdd = i.equal(i.andWith(i.shiftRight(block.lane, 2), 1), i.of(1));
    const size_t perStep = static_cast<size_t>(blocks) * 4;
    for (size_t p = 0; slot.elementBytes == 4 && p < perStep; ++p) {
      Value even = pairs[p], odd = pairs[p + perStep];
      pairs[p] = i.select(isOdd, odd, even);
      pairs[p + perStep] = i.select(isOdd, even, odd);
    }
  }
  Value pair = i.mul(i.andWith(block.lane, 3), 2);
  for (size_t v = 0; v < g.left.columns.size(); ++v) {
    SmallVector<Value> &pairs = out.columns.emplace_back();
    for (int octet = 2 * firstStep; octet < 2 * firstStep + 4; ++octet)
      pairs.push_back(columnPair(v, stage, i.add(pair, octet * 8)));
  }
  return out;
}

/// Of numbers of 8 bits, what they are: zeros beyond K stay zeros.
SmallVector<Value> WgmmaLeftEmitter::widen(int step, const Loaded &loaded) {
  const WgmmaGemm &g = *plan.gemm;
  const size_t perStep = 4 * static_cast<size_t>(plan.tile().blocks);
  SmallVector<Value> out;
  for (auto [o, pairs] : llvm::zip(g.left.tiles, loaded.tiles))
    for (Value v : ArrayRef<Value>(pairs).slice(static_cast<size_t>(step % 2) * perStep, perStep))
      out.push_back(widenPair(b, loc, o.dtype, g.a.dtype, arith::ExtUIOp::create(b, loc, b.getI32Type(), v).getResult(),
                              0, exponents));
  return out;
}

Result<SmallVector<Value>> WgmmaLeftEmitter::compute(const GemmPlace &place, Value kBlock, int step,
                                                     const Loaded &loaded) {
  const WgmmaGemm &g = *plan.gemm;
  if (g.turned)
    return widen(step, loaded);
  const int blocks = plan.tile().blocks;
  Type i32 = b.getI32Type(), index = b.getIndexType();
  auto toIndex = [&](Value v) { return arith::IndexCastUIOp::create(b, loc, index, v).getResult(); };
  Value row = i.add(place.row, firstRow()), pair = i.mul(i.andWith(block.lane, 3), 2);
  SmallVector<Value> out;
  for (int block64 = 0; block64 < blocks; ++block64)
    for (int part = 0; part < 4; ++part) {
      GemmSite site;
      site.lanes = 2;
      site.batch = toIndex(place.batch);
      site.row = toIndex(i.min(i.add(row, block64 * 64 + part % 2 * 8), i.of(g.m - 1)));
      Value column = i.add(i.mul(kBlock, plan.tileK), i.add(pair, step * 16 + part / 2 * 8));
      site.column = toIndex(i.min(column, i.of(g.k - 2)));
      site.pointers = block.pointers;
      for (const SmallVector<Value> &pairs : loaded.tiles)
        site.tiles.push_back(pairs[static_cast<size_t>((step % 2 * blocks + block64) * 4 + part)]);
      for (const SmallVector<Value> &pairs : loaded.columns)
        site.columns.push_back(pairs[static_cast<size_t>(step % 2 * 2 + part / 2)]);
      for (const SmallVector<Value> &values : rowValues)
        site.rows.push_back(values[static_cast<size_t>(2 * block64 + part % 2)]);
      RL_ASSIGN(SmallVector<Value> v, g.left.compute(b, loc, site));
      Value bits = LLVM::BitcastOp::create(b, loc, i32, v[0]);
      // What is computed of the zeros beyond K may be no zero.
      if (g.k % plan.tileK != 0) {
        Value octet = i.add(i.mul(kBlock, plan.tileK), step * 16 + part / 2 * 8);
        bits = i.select(i.less(g.k % 8 == 0 ? octet : column, i.of(g.k)), bits, i.of(0));
      }
      out.push_back(bits);
    }
  return out;
}

} // namespace rl::emit
