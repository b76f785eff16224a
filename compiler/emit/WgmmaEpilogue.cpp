// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From accumulators to memory. Each consumer warp works by itself, so that one warpgroup's epilogue overlaps the other's
// products: it goes over its 16 rows in chunks of up to 64 columns, puts the results of the epilogue into its own staging
// memory, and has a tensor memory copy (or its lanes, where a tensor has no map) take them from there. The code of the
// epilogue is there once, in a loop over groups of 16 columns; a switch picks a group's registers.
//
// Where an accumulator sits (PTX ISA, "Register fragments for wgmma", D): of 16 columns a lane l has rows l / 4 and
// l / 4 + 8, and in each the columns 2 * (l % 4) + {0, 1} and those + 8; register 4 * octet + 2 * half + column.
#include "compiler/emit/WgmmaParts.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinTypes.h"

using namespace mlir;

namespace rl::emit {

WgmmaEpilogueEmitter::WgmmaEpilogueEmitter(OpBuilder &b, Location loc, const GemmPlan &plan, const GemmBlock &block,
                                           const GemmEpilogue &epilogue)
    : b(b), loc(loc), plan(plan), block(block), epilogue(epilogue), i(b, loc), hopper(b, loc) {}

Type WgmmaEpilogueEmitter::elementType(DType t) {
  switch (t) {
  case DType::F32: return b.getF32Type();
  case DType::I32: return b.getI32Type();
  default: return dtypeSize(t) == 2 ? b.getI16Type() : b.getI8Type();
  }
}

Type WgmmaEpilogueEmitter::lanesOf(Type t, int lanes) { return lanes == 1 ? t : VectorType::get({lanes}, t); }

Value WgmmaEpilogueEmitter::sharedPointer(Value address) {
  return LLVM::IntToPtrOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext(), 3), address);
}

/// Which lane starts and waits for copies between staging and global memory: one of each warp; of a result turned round one of each
/// warpgroup, whose warps have parts of the same rows in memory.
Value WgmmaEpilogueEmitter::isCopying() {
  Value isFirst = i.equal(block.lane, i.of(0));
  if (!plan.gemm->turned)
    return isFirst;
  return arith::AndIOp::create(b, loc, isFirst, i.equal(i.andWith(block.warp, 3), i.of(0)));
}

/// The first of the rows that are copied together, where `row` is the warp's first.
Value WgmmaEpilogueEmitter::firstRowOf(Value row) {
  return plan.gemm->turned ? i.sub(row, i.mul(i.andWith(block.warp, 3), 16)) : row;
}

/// Of those whose rows are copied together.
void WgmmaEpilogueEmitter::syncCopied() {
  if (plan.gemm->turned)
    hopper.syncWarpgroup(i.shiftRight(block.warp, 2));
  else
    hopper.syncWarp();
}

/// This warp's buffer; turned round, the warpgroup's.
Value WgmmaEpilogueEmitter::bufferOf(Value buffer) {
  int64_t staging = plan.shared.stage * plan.tile().stages;
  if (plan.gemm->turned) {
    const int64_t each = 4 * plan.shared.slots;
    Value warpgroup = i.mul(i.shiftRight(block.warp, 2), plan.buffers * each);
    return i.add(i.add(i.add(block.base, warpgroup), i.mul(buffer, each)), staging);
  }
  Value warp = i.mul(block.warp, plan.buffers * plan.shared.slots);
  return i.add(i.add(i.add(block.base, warp), i.mul(buffer, plan.shared.slots)), staging);
}

Value WgmmaEpilogueEmitter::barrierOf(Value buffer) {
  int64_t first = plan.barriers() + 16 * plan.tile().stages;
  Value owner = plan.gemm->turned ? i.shiftRight(block.warp, 2) : block.warp;
  return i.add(i.add(block.base, i.mul(i.add(i.mul(owner, plan.buffers), buffer), 8)), first);
}

void WgmmaEpilogueEmitter::initBarriers() {
  if (!hasTiles())
    return;
  int64_t first = plan.barriers() + 16 * plan.tile().stages;
  auto loop = scf::ForOp::create(b, loc, i.of(0), i.of(plan.consumerWarps() * plan.buffers), i.of(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  hopper.initBarrier(i.add(i.add(block.base, i.mul(loop.getInductionVar(), 8)), first), 1);
}

/// The first column, in the tile, of a chunk of a row of chunks. The last one is moved back so that it ends with the tile:
/// what it has in common with the one before is stored twice, the same values.
Value WgmmaEpilogueEmitter::chunkColumn(Value chunk) {
  int width = plan.tile().chunkColumns(), tileN = plan.tile().tileN;
  Value column = i.mul(chunk, width);
  return tileN % width == 0 ? column : i.min(column, i.of(tileN - width));
}

Value WgmmaEpilogueEmitter::rowOffset(const GemmSlot &slot, Value row) { return i.mul(row, slot.span); }

/// A byte's place in its row of a part: bits 4 to 6 xor bits 7 to 9 of the place without swizzle (CUDA driver API,
/// CU_TENSOR_MAP_SWIZZLE).
Value WgmmaEpilogueEmitter::within(const GemmSlot &slot, Value row, Value byteColumn) {
  Value in = i.andWith(byteColumn, slot.span - 1);
  if (slot.swizzleMask() == 0)
    return in;
  return i.xorWith(in, i.andWith(i.shiftRight(i.mul(row, slot.span), 3), slot.swizzleMask()));
}

/// One lane: starts the loads of a chunk of all tile operands.
void WgmmaEpilogueEmitter::loadTiles(const GemmPlace &place, Value chunk) {
  int perRow = plan.chunks() / plan.tile().blocks;
  Value buffer = i.rem(chunk, plan.buffers), barrier = barrierOf(buffer);
  Value row = firstRowOf(i.add(place.row, i.mul(i.div(chunk, perRow), 64)));
  Value column = i.add(place.column, chunkColumn(i.rem(chunk, perRow)));
  int64_t bytes = 0;
  for (int s : plan.tileSlot)
    bytes += plan.slots[static_cast<size_t>(s)].subs * plan.slots[static_cast<size_t>(s)].subBytes();
  hopper.expectBytes(barrier, bytes);
  for (size_t t = 0; t < plan.gemm->tiles.size(); ++t) {
    const GemmSlot &slot = plan.slots[static_cast<size_t>(plan.tileSlot[t])];
    SmallVector<Value> batch = batchCoordinates(i, *plan.gemm, plan.gemm->tiles[t].batchStrides, place.batch);
    for (int sub = 0; sub < slot.subs; ++sub) {
      SmallVector<Value> at{i.add(plan.gemm->turned ? row : column, sub * slot.subColumns()),
                            plan.gemm->turned ? column : row};
      at.append(batch.begin(), batch.end());
      hopper.load(i.add(bufferOf(buffer), slot.offset + sub * slot.subBytes()),
                  block.maps[static_cast<size_t>(plan.tileMap[t])], at, barrier);
    }
  }
}

/// `place` with the row of this warp's first 16 rows.
GemmPlace WgmmaEpilogueEmitter::warpPlace(const GemmPlace &place) {
  Value row = i.mul(i.andWith(block.warp, 3), 16);
  if (!plan.tile().alternate)
    row = i.add(row, i.mul(i.shiftRight(block.warp, 2), plan.tile().blocks * 64));
  return {place.batch, i.add(place.row, row), place.column};
}

/// This warpgroup's copy of the tile's part of a column vector.
Value WgmmaEpilogueEmitter::columnsOf(size_t vector) {
  const WgmmaGemm &g = *plan.gemm;
  auto bytes = [&](size_t v) {
    return (plan.tile().tileN * static_cast<int64_t>(dtypeSize(g.columns[v].dtype)) + 15) / 16 * 16;
  };
  int64_t before = 0;
  for (size_t v = 0; v < vector; ++v)
    before += bytes(v) * plan.tile().consumers;
  return i.add(i.add(block.base, i.mul(i.shiftRight(block.warp, 2), bytes(vector))), plan.columns() + before);
}

/// 16 bytes a thread of the warpgroup, by copies that nothing waits for until the epilogue. What lies beyond the vector
/// becomes zero.
void WgmmaEpilogueEmitter::loadColumns(const GemmPlace &place) {
  const WgmmaGemm &g = *plan.gemm;
  Value thread = i.add(i.mul(i.andWith(block.warp, 3), 32), block.lane);
  for (size_t v = 0; v < g.columns.size(); ++v) {
    const GemmVector &vector = g.columns[v];
    auto size = static_cast<int64_t>(dtypeSize(vector.dtype)), perThread = 16 / size;
    Value start = batchOffset(b, loc, g, vector.offset, vector.batchStrides, place.batch);
    Type element = elementType(vector.dtype);
    Value in = i.mul(thread, perThread), column = i.add(place.column, in);
    auto branch = scf::IfOp::create(b, loc, i.less(in, i.of(plan.tile().tileN)));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(branch.thenBlock()->getTerminator());
    // Where no column is there, none is read of the vector's first.
    Value left = i.sub(i.of(g.n), column), there = i.less(i.of(0), left);
    Value bytes = i.select(there, i.mul(i.min(left, i.of(perThread)), size), i.of(0));
    Value offset = arith::ExtUIOp::create(b, loc, b.getI64Type(), i.select(there, column, i.of(0)));
    Value from = LLVM::GEPOp::create(b, loc, block.pointers[vector.arg].getType(), element, block.pointers[vector.arg],
                                     ValueRange{arith::AddIOp::create(b, loc, start, offset).getResult()});
    hopper.copyAsync(i.add(columnsOf(v), i.mul(in, size)), from, bytes);
  }
}

void WgmmaEpilogueEmitter::loadRows(const GemmPlace &tilePlace) {
  const WgmmaGemm &g = *plan.gemm;
  rowValues.clear();
  if (g.rows.empty())
    return;
  GemmPlace place = warpPlace(tilePlace);
  for (const GemmVector &vector : g.rows) {
    Value start = batchOffset(b, loc, g, vector.offset, vector.batchStrides, place.batch);
    Type element = elementType(vector.dtype);
    SmallVector<Value> values;
    for (int part = 0; part < 2 * plan.tile().blocks; ++part) {
      Value row = i.add(i.add(place.row, i.shiftRight(block.lane, 2)), part / 2 * 64 + part % 2 * 8);
      Value offset = arith::ExtUIOp::create(b, loc, b.getI64Type(), i.min(row, i.of(g.m - 1)));
      if (vector.stride != 1)
        offset =
            arith::MulIOp::create(b, loc, offset, arith::ConstantIntOp::create(b, loc, b.getI64Type(), vector.stride));
      Value at = LLVM::GEPOp::create(b, loc, block.pointers[vector.arg].getType(), element, block.pointers[vector.arg],
                                     ValueRange{arith::AddIOp::create(b, loc, start, offset).getResult()});
      values.push_back(LLVM::LoadOp::create(b, loc, element, at, static_cast<unsigned>(dtypeSize(vector.dtype))));
    }
    rowValues.push_back(std::move(values));
  }
}

void WgmmaEpilogueEmitter::prefetch(const GemmPlace &tilePlace) {
  if (!plan.gemm->columns.empty())
    loadColumns(tilePlace);
  if (!hasTiles())
    return;
  auto one = scf::IfOp::create(b, loc, isCopying());
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(one.thenBlock()->getTerminator());
  GemmPlace place = warpPlace(tilePlace);
  if (plan.storesByMap())
    hopper.waitStoresRead(0);
  auto loop = scf::ForOp::create(b, loc, i.of(0), i.of(plan.buffers), i.of(1));
  b.setInsertionPointToStart(loop.getBody());
  loadTiles(place, loop.getInductionVar());
}

/// What a pair of elements has of a slot, and where it is. Turned round, where an element is; its pair is in the next row.
Value WgmmaEpilogueEmitter::pairAddress(const GemmSlot &slot, Value buffer, Value inRow, Value inColumn) {
  if (plan.gemm->turned)
    std::tie(inRow, inColumn) = std::pair(inColumn, i.add(inRow, i.mul(i.andWith(block.warp, 3), 16)));
  Value bytes = i.mul(inColumn, slot.elementBytes);
  Value address = i.add(i.add(buffer, i.add(rowOffset(slot, inRow), within(slot, inRow, bytes))), slot.offset);
  if (slot.subs > 1)
    address = i.add(address, i.mul(i.div(bytes, slot.span), slot.subBytes()));
  return address;
}

/// Two rows by four columns of each product: the epilogue at each place, whose results `use` takes; pairs of columns one after the
/// other.
Status WgmmaEpilogueEmitter::evaluate(const GemmPlace &place, const GemmGroup &at, ValueRange registers, uint32_t level,
                                      const Known &known, UseOfPair use) {
  const WgmmaGemm &g = *plan.gemm;
  int lanes = plan.lanes();
  Value base = bufferOf(at.buffer), quad = i.shiftRight(block.lane, 2), pair = i.mul(i.andWith(block.lane, 3), 2);
  Value groupColumn = i.mul(at.group, kGroup);
  Type index = b.getIndexType();
  auto toIndex = [&](Value v) { return arith::IndexCastUIOp::create(b, loc, index, v).getResult(); };
  for (int octet = 0; octet < 2; ++octet)
    for (int half = 0; half < 2; ++half) {
      Value inRow = i.add(quad, 8 * half), inColumn = i.add(i.add(groupColumn, pair), 8 * octet);
      Value atRow = i.add(at.row, inRow), atColumn = i.add(at.column, inColumn);
      if (g.m % (plan.tile().tileM() * plan.tile().cluster) != 0)
        atRow = i.min(atRow, i.of(g.m - 1));
      SmallVector<Value> tileValues;
      for (size_t t = 0; t < g.tiles.size(); ++t) {
        const GemmSlot &slot = plan.slots[static_cast<size_t>(plan.tileSlot[t])];
        Type element = elementType(g.tiles[t].dtype), type = VectorType::get({2}, element);
        if (g.turned) {
          SmallVector<Value> both;
          for (int which = 0; which < 2; ++which)
            both.push_back(LLVM::LoadOp::create(b, loc, element,
                                                sharedPointer(pairAddress(slot, base, inRow, i.add(inColumn, which))),
                                                static_cast<unsigned>(slot.elementBytes)));
          tileValues.push_back(vector::FromElementsOp::create(b, loc, type, both));
          continue;
        }
        tileValues.push_back(LLVM::LoadOp::create(b, loc, type, sharedPointer(pairAddress(slot, base, inRow, inColumn)),
                                                  static_cast<unsigned>(2 * slot.elementBytes)));
      }
      SmallVector<Value> columnValues;
      for (size_t v = 0; v < g.columns.size(); ++v) {
        auto size = static_cast<int64_t>(dtypeSize(g.columns[v].dtype));
        Value inTile = i.add(i.sub(at.column, place.column), inColumn);
        columnValues.push_back(LLVM::LoadOp::create(b, loc, VectorType::get({2}, elementType(g.columns[v].dtype)),
                                                    sharedPointer(i.add(columnsOf(v), i.mul(inTile, size))),
                                                    static_cast<unsigned>(2 * size)));
      }
      GemmSite site;
      site.lanes = lanes;
      site.level = level;
      site.reduced = known[static_cast<size_t>(half)];
      for (const SmallVector<Value> &values : rowValues) {
        Value v = values[static_cast<size_t>(half)];
        if (plan.tile().blocks == 2)
          v = i.select(i.equal(at.blockIndex, i.of(0)), v, values[static_cast<size_t>(2 + half)]);
        site.rows.push_back(v);
      }
      site.batch = toIndex(place.batch);
      site.row = toIndex(atRow);
      site.pointers = block.pointers;
      std::vector<SmallVector<Value>> results; // [site][output]
      for (int first = 0; first < 2; first += lanes) {
        Value c = i.add(atColumn, first);
        if (g.n % plan.tile().tileN != 0)
          c = i.min(c, i.of(g.n - lanes));
        site.column = toIndex(c);
        site.products.clear();
        site.tiles.clear();
        const bool keeps = plan.tile().keeps, isKept = keeps && level > 1;
        if (isKept)
          site.kept = LLVM::LoadOp::create(b, loc, lanesOf(b.getF32Type(), lanes),
                                           keptAddress(at, 2 * octet + half, first), static_cast<unsigned>(4 * lanes));
        for (size_t p = 0; p < g.b.size() && !isKept; ++p) {
          size_t from = p * 8 + static_cast<size_t>(4 * octet + 2 * half + first);
          if (lanes == 1)
            site.products.push_back(registers[from]);
          else
            site.products.push_back(vector::FromElementsOp::create(b, loc,
                                                                   VectorType::get({2}, registers[from].getType()),
                                                                   ValueRange{registers[from], registers[from + 1]}));
        }
        auto part = [&](Value v) {
          return lanes == 2 ? v : vector::ExtractOp::create(b, loc, v, ArrayRef<int64_t>{first}).getResult();
        };
        for (Value v : tileValues)
          site.tiles.push_back(part(v));
        site.columns.clear();
        for (Value v : columnValues)
          site.columns.push_back(part(v));
        RL_ASSIGN(SmallVector<Value> out, epilogue(b, loc, site));
        if (keeps && level == 1)
          LLVM::StoreOp::create(b, loc, out.pop_back_val(), keptAddress(at, 2 * octet + half, first),
                                static_cast<unsigned>(4 * lanes));
        results.push_back(std::move(out));
      }
      RL_TRY(use(half, inRow, inColumn, results));
    }
  return {};
}

/// The epilogue's results into staging memory.
Status WgmmaEpilogueEmitter::emitGroup(const GemmPlace &place, const GemmGroup &at, ValueRange registers,
                                       const Known &known) {
  const WgmmaGemm &g = *plan.gemm;
  Value base = bufferOf(at.buffer);
  std::vector<SmallVector<Value>> words(g.outputs.size()); // of 16-bit outputs: [octet][half]
  auto level = static_cast<uint32_t>(g.reductions.size() + 1);
  RL_TRY(evaluate(place, at, registers, level, known,
                  [&](int, Value inRow, Value inColumn, ArrayRef<SmallVector<Value>> results) -> Status {
                    if (results[0].size() != g.outputs.size())
                      return unsupported({}, "internal: the epilogue gave " + std::to_string(results[0].size()) +
                                                 " results");
                    for (size_t o = 0; o < g.outputs.size(); ++o) {
                      const GemmSlot &slot = plan.slots[static_cast<size_t>(plan.outputSlot[o])];
                      Value v = results[0][o];
                      if (g.turned && slot.elementBytes != 2) {
                        for (int which = 0; which < 2; ++which)
                          LLVM::StoreOp::create(b, loc, results[static_cast<size_t>(which)][o],
                                                sharedPointer(pairAddress(slot, base, inRow, i.add(inColumn, which))),
                                                static_cast<unsigned>(slot.elementBytes));
                        continue;
                      }
                      if (results.size() == 2)
                        v = vector::FromElementsOp::create(b, loc, VectorType::get({2}, v.getType()),
                                                           ValueRange{results[0][o], results[1][o]});
                      if (slot.elementBytes == 2)
                        words[o].push_back(LLVM::BitcastOp::create(b, loc, b.getI32Type(), v));
                      else
                        LLVM::StoreOp::create(b, loc, v, sharedPointer(pairAddress(slot, base, inRow, inColumn)),
                                              static_cast<unsigned>(2 * slot.elementBytes));
                    }
                    return {};
                  }));
  if (g.branches)
    hopper.syncWarp(); // which stores together
  for (size_t o = 0; o < g.outputs.size(); ++o) {
    if (words[o].empty())
      continue;
    const GemmSlot &slot = plan.slots[static_cast<size_t>(plan.outputSlot[o])];
    Value matrix = i.shiftRight(block.lane, 3), inMatrix = i.andWith(block.lane, 7);
    Value inRow = i.mul(i.andWith(matrix, 1), 8);
    Value inColumn = i.add(i.mul(at.group, kGroup), i.mul(i.shiftRight(matrix, 1), 8));
    (g.turned ? inColumn : inRow) = i.add(g.turned ? inColumn : inRow, inMatrix);
    hopper.storeMatrices(pairAddress(slot, base, inRow, inColumn), words[o], g.turned);
  }
  return {};
}

/// 16 rows from staging memory to a tensor without a map, row by row: the lanes write neighbours.
void WgmmaEpilogueEmitter::storePlain(const GemmTensor &t, const GemmSlot &slot, const GemmPlace &place, Value row,
                                      Value column, Value buffer) {
  const WgmmaGemm &g = *plan.gemm;
  int width = plan.tile().chunkColumns();
  auto even = [](int64_t v) { return v % 2 == 0; };
  bool pairs = even(g.n) && even(t.stride) && even(t.offset);
  for (size_t d = 0; d < g.batch.size(); ++d)
    pairs &= g.batch[d] == 1 || even(t.batchStrides[d]);
  Type i64 = b.getI64Type();
  auto wide = [&](Value v) { return arith::ExtUIOp::create(b, loc, i64, v).getResult(); };
  auto constant = [&](int64_t v) { return arith::ConstantIntOp::create(b, loc, i64, v).getResult(); };
  auto plus = [&](Value x, Value y) { return arith::AddIOp::create(b, loc, x, y).getResult(); };
  auto times = [&](Value x, int64_t c) { return arith::MulIOp::create(b, loc, x, constant(c)).getResult(); };
  Value start = batchOffset(b, loc, g, t.offset, t.batchStrides, place.batch);
  int perLane = pairs ? 2 : 1;
  Type element = elementType(t.dtype), type = lanesOf(element, perLane);
  Value base = i.add(bufferOf(buffer), slot.offset);
  auto loop = scf::ForOp::create(b, loc, i.of(0), i.of(16), i.of(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value inRow = loop.getInductionVar(), atRow = i.add(row, inRow), rowThere = i.less(atRow, i.of(g.m));
  Value rowStart = plus(start, times(wide(atRow), t.stride));
  for (int first = 0; first < width; first += 32 * perLane) {
    Value inColumn = i.add(i.mul(block.lane, perLane), first), atColumn = i.add(column, inColumn);
    Value there = arith::AndIOp::create(b, loc, rowThere, i.less(atColumn, i.of(g.n)));
    if (width < first + 32 * perLane)
      there = arith::AndIOp::create(b, loc, there, i.less(inColumn, i.of(width)));
    auto branch = scf::IfOp::create(b, loc, there);
    OpBuilder::InsertionGuard inBranch(b);
    b.setInsertionPoint(branch.thenBlock()->getTerminator());
    Value bytes = i.mul(inColumn, slot.elementBytes);
    Value from = i.add(base, i.add(rowOffset(slot, inRow), within(slot, inRow, bytes)));
    if (slot.subs > 1)
      from = i.add(from, i.mul(i.div(bytes, slot.span), slot.subBytes()));
    auto alignment = static_cast<unsigned>(perLane * slot.elementBytes);
    Value v = LLVM::LoadOp::create(b, loc, type, sharedPointer(from), alignment);
    Value to = LLVM::GEPOp::create(b, loc, block.pointers[t.arg].getType(), element, block.pointers[t.arg],
                                   ValueRange{plus(rowStart, wide(atColumn))});
    LLVM::StoreOp::create(b, loc, v, to, alignment);
  }
}

void WgmmaEpilogueEmitter::storeChunk(const GemmPlace &place, Value row, Value column, Value buffer) {
  const WgmmaGemm &g = *plan.gemm;
  if (plan.storesByMap()) {
    auto one = scf::IfOp::create(b, loc, isCopying());
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(one.thenBlock()->getTerminator());
    for (size_t o = 0; o < g.outputs.size(); ++o) {
      if (plan.outputMap[o] < 0)
        continue;
      const GemmSlot &slot = plan.slots[static_cast<size_t>(plan.outputSlot[o])];
      SmallVector<Value> batch = batchCoordinates(i, g, g.outputs[o].batchStrides, place.batch);
      for (int sub = 0; sub < slot.subs; ++sub) {
        Value first = i.add(g.turned ? firstRowOf(row) : column, sub * slot.subColumns());
        const int64_t part = g.outputs[o].part;
        SmallVector<Value> at{part ? i.rem(first, part) : first, g.turned ? column : row};
        if (part)
          at.push_back(i.div(first, part));
        at.append(batch.begin(), batch.end());
        hopper.store(block.maps[static_cast<size_t>(plan.outputMap[o])], at,
                     i.add(bufferOf(buffer), slot.offset + sub * slot.subBytes()));
      }
    }
    hopper.commitStores();
  }
  for (size_t o = 0; o < g.outputs.size(); ++o)
    if (plan.outputMap[o] < 0)
      storePlain(g.outputs[o], plan.slots[static_cast<size_t>(plan.outputSlot[o])], place, row, column, buffer);
}

Status WgmmaEpilogueEmitter::loop(int64_t count, llvm::function_ref<Status(Value)> body) {
  if (count == 1)
    return body(i.of(0));
  auto f = scf::ForOp::create(b, loc, i.of(0), i.of(count), i.of(1));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(f.getBody());
  return body(f.getInductionVar());
}

/// The registers of round `id`, [group][product][8]; rounds are counted from chunk to chunk.
SmallVector<Value> WgmmaEpilogueEmitter::pickRegisters(ValueRange accumulators, Value id) {
  const cost::GemmTile &tile = plan.tile();
  int total = plan.chunks(), perRow = total / tile.blocks, width = tile.chunkColumns(), unroll = tile.unroll,
      rounds = width / kGroup / unroll;
  size_t products = plan.gemm->b.size(), perBlock = static_cast<size_t>(tile.tileN) / 2;
  std::vector<SmallVector<Value>> choices;
  for (int c = 0; c < total; ++c)
    for (int q = 0; q < rounds; ++q) {
      SmallVector<Value> choice;
      for (int u = 0; u < unroll; ++u) {
        int firstColumn = std::min(c % perRow * width, tile.tileN - width) + (q * unroll + u) * kGroup;
        for (size_t p = 0; p < products; ++p) {
          size_t at = (p * static_cast<size_t>(tile.blocks) + static_cast<size_t>(c / perRow)) * perBlock +
                      static_cast<size_t>(firstColumn) / 2;
          for (size_t r = 0; r < 8; ++r)
            choice.push_back(accumulators[at + r]);
        }
      }
      choices.push_back(std::move(choice));
    }
  if (choices.size() == 1)
    return choices[0];
  SmallVector<int64_t> cases;
  for (size_t c = 0; c + 1 < choices.size(); ++c)
    cases.push_back(static_cast<int64_t>(c));
  SmallVector<Type> types(choices[0].size(), accumulators[0].getType());
  auto which = arith::IndexCastUIOp::create(b, loc, b.getIndexType(), id);
  auto pick = scf::IndexSwitchOp::create(b, loc, types, which, cases, static_cast<unsigned>(cases.size()));
  for (size_t c = 0; c < choices.size(); ++c) {
    OpBuilder::InsertionGuard inCase(b);
    Region &region = c + 1 < choices.size() ? pick.getCaseRegions()[c] : pick.getDefaultRegion();
    b.setInsertionPointToStart(&region.emplaceBlock());
    scf::YieldOp::create(b, loc, choices[c]);
  }
  return SmallVector<Value>(pick.getResults());
}

/// The chunk's place, and its operands and room.
GemmGroup WgmmaEpilogueEmitter::chunkAt(const GemmPlace &place, Value chunk) {
  int perRow = plan.chunks() / plan.tile().blocks;
  GemmGroup at;
  at.chunk = chunk;
  at.buffer = i.rem(chunk, plan.buffers);
  at.blockIndex = i.div(chunk, perRow);
  at.row = i.add(place.row, i.mul(at.blockIndex, 64));
  at.column = i.add(place.column, chunkColumn(i.rem(chunk, perRow)));
  return at;
}

void WgmmaEpilogueEmitter::beginChunk(const GemmGroup &at, Value count) {
  if (hasTiles()) {
    Value uses = i.add(i.mul(count, plan.chunks() / plan.buffers), i.div(at.chunk, plan.buffers));
    hopper.wait(barrierOf(at.buffer), i.andWith(uses, 1));
  } else if (plan.storesByMap()) {
    auto one = scf::IfOp::create(b, loc, isCopying());
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPoint(one.thenBlock()->getTerminator());
    hopper.waitStoresRead(plan.buffers - 1);
  }
  syncCopied();
}

void WgmmaEpilogueEmitter::endChunk(const GemmPlace &place, const GemmGroup &at) {
  if (plan.storesByMap())
    hopper.fenceProxy();
  syncCopied();
  storeChunk(place, at.row, at.column, at.buffer);
  bool plain = llvm::any_of(plan.outputMap, [](int m) { return m < 0; });
  if (plain)
    hopper.syncWarp();
  if (hasTiles() && plan.buffers < plan.chunks()) {
    Value further = i.add(at.chunk, plan.buffers);
    auto more =
        scf::IfOp::create(b, loc, arith::AndIOp::create(b, loc, isCopying(), i.less(further, i.of(plan.chunks()))));
    OpBuilder::InsertionGuard inner(b);
    b.setInsertionPoint(more.thenBlock()->getTerminator());
    if (plan.storesByMap())
      hopper.waitStoresRead(0);
    loadTiles(place, further);
  }
}

Status WgmmaEpilogueEmitter::emit(const GemmPlace &tilePlace, Value count, ValueRange accumulators) {
  const cost::GemmTile &tile = plan.tile();
  const int64_t segment = plan.gemm->segment;
  GemmPlace place = warpPlace(tilePlace);
  if (!plan.gemm->columns.empty()) {
    hopper.waitAsync(); // the copies of this thread, then of all
    hopper.syncWarpgroup(i.shiftRight(block.warp, 2));
  }
  // A segment has several chunks, or a chunk several segments.
  const int width = tile.chunkColumns(), chunks = tile.chunksOf(segment), unroll = tile.unroll,
            rounds = width / kGroup / unroll, segments = segment && chunks == 1 ? width / static_cast<int>(segment) : 1;
  auto emitChunk = [&](Value chunk, Known known) -> Status {
    GemmGroup at = chunkAt(place, chunk);
    beginChunk(at, count);
    RL_TRY(loop(segments, [&](Value which) -> Status {
      Value first = i.mul(which, rounds / segments);
      if (segment && chunks == 1) {
        RL_ASSIGN(known, reduceSegment(place, chunk, i.mul(first, unroll), accumulators));
      }
      if (plan.gemm->outputs.empty()) // all that is stored, segments have once
        return {};
      return loop(rounds / segments, [&](Value r) -> Status {
        Value round = segments == 1 ? r : i.add(first, r);
        Value inSegment = chunks == 1 ? r : i.add(i.mul(i.rem(chunk, chunks), rounds), r);
        SmallVector<Value> registers;
        if (!tile.keeps)
          registers = pickRegisters(accumulators, i.add(i.mul(chunk, rounds), round));
        size_t perGroup = plan.gemm->b.size() * 8;
        for (int u = 0; u < unroll; ++u) {
          at.group = i.add(i.mul(round, unroll), u);
          at.inSegment = i.add(i.mul(inSegment, unroll), u);
          ArrayRef<Value> own(registers);
          RL_TRY(
              emitGroup(place, at, tile.keeps ? own : own.slice(static_cast<size_t>(u) * perGroup, perGroup), known));
        }
        return {};
      });
    }));
    endChunk(place, at);
    return {};
  };
  return loop(plan.chunks() / chunks, [&](Value unit) -> Status {
    if (chunks == 1)
      return emitChunk(unit, {});
    Value firstChunk = i.mul(unit, chunks);
    if (hasTiles())
      for (int c = 0; c < chunks; ++c)
        beginChunk(chunkAt(place, i.add(firstChunk, c)), count);
    RL_ASSIGN(Known known, reduceSegment(place, firstChunk, i.of(0), accumulators));
    return loop(chunks, [&](Value c) { return emitChunk(i.add(firstChunk, c), known); });
  });
}

/// With two stages of K and more, the products that a warp has waited for when it loads the next tile's vectors need all
/// warps of the group, so that none still reads the last tile's.
void WgmmaEpilogueEmitter::endTile() {
  if (plan.kBlocks == 1 && !plan.gemm->columns.empty())
    hopper.syncWarpgroup(i.shiftRight(block.warp, 2));
}

void WgmmaEpilogueEmitter::finish() {
  if (!plan.storesByMap())
    return;
  auto one = scf::IfOp::create(b, loc, i.equal(block.lane, i.of(0)));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(one.thenBlock()->getTerminator());
  hopper.waitStoresRead(0);
}

} // namespace rl::emit
