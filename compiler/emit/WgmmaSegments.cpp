// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions of segments of a row in the epilogue of warpgroup products. Of a segment's columns the four lanes of a quad have two of
// every eight, in each of two rows: a lane reduces its own, then the quad exchanges what it has. What the reductions are of is
// computed from the accumulators; when the results are known it is computed again, or was kept in shared memory, where each thread
// finds what is its own. (In registers it would take as many as the accumulators do.)
#include "compiler/emit/WgmmaParts.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinTypes.h"

using namespace mlir;

namespace rl::emit {

/// Of a warp's segment: each thread's pairs one below the other, those of the warp beside each other. `site`: of four of a group.
Value WgmmaEpilogueEmitter::keptAddress(const GemmGroup &at, int site, int lane) {
  Value warp = i.add(i.add(block.base, plan.kept()), i.mul(block.warp, plan.gemm->segment * 64));
  Value inWarp = i.add(i.mul(at.inSegment, 4 * 32 * 8), i.mul(block.lane, 8));
  return sharedPointer(i.add(i.add(warp, inWarp), site * 32 * 8 + lane * 4));
}

/// The segment that begins with group `firstGroup` of the chunk `firstChunk`; stores what it has once.
Result<WgmmaEpilogueEmitter::Known> WgmmaEpilogueEmitter::reduceSegment(const GemmPlace &place, Value firstChunk,
                                                                        Value firstGroup, ValueRange accumulators) {
  const WgmmaGemm &g = *plan.gemm;
  const int64_t perChunk = plan.tile().chunkColumns() / kGroup, unroll = plan.tile().unroll,
                rounds = g.segment / kGroup / unroll;
  Known known;
  for (uint32_t level = 1; level <= g.reductions.size(); ++level) {
    const std::vector<Combiner> &combiners = g.reductions[level - 1];
    SmallVector<Value> totals; // [half][reduction]
    for (int half = 0; half < 2; ++half)
      for (const Combiner &c : combiners)
        totals.push_back(c.identity(b, loc, 1));
    const bool several = g.segment / kGroup > perChunk; // chunks, or one has several segments
    auto emitRound = [&](Value round) -> Status {
      Value firstOfRound = i.mul(round, unroll), first = i.add(firstGroup, firstOfRound);
      GemmGroup at = chunkAt(place, several ? i.add(firstChunk, i.div(first, perChunk)) : firstChunk);
      SmallVector<Value> registers;
      const bool reads = level == 1 || !plan.tile().keeps;
      if (reads)
        registers = pickRegisters(accumulators, i.add(i.mul(firstChunk, perChunk / unroll), i.div(first, unroll)));
      const size_t perGroup = g.b.size() * 8;
      for (int64_t u = 0; u < unroll; ++u) {
        at.group = i.add(several ? i.rem(first, perChunk) : first, u);
        at.inSegment = i.add(firstOfRound, u);
        ArrayRef<Value> own(registers);
        RL_TRY(evaluate(place, at, reads ? own.slice(static_cast<size_t>(u) * perGroup, perGroup) : own, level, known,
                        [&](int half, Value, Value, ArrayRef<SmallVector<Value>> results) -> Status {
                          if (results.size() != 1 || results[0].size() != combiners.size())
                            return unsupported({}, "internal: the epilogue does not contribute to its reductions");
                          for (size_t r = 0; r < combiners.size(); ++r) {
                            Value &total = totals[static_cast<size_t>(half) * combiners.size() + r];
                            total = combiners[r].combine(b, loc, total, results[0][r]);
                          }
                          return {};
                        }));
      }
      return {};
    };
    if (rounds == 1) {
      RL_TRY(emitRound(i.of(0)));
    } else {
      auto f = scf::ForOp::create(b, loc, i.of(0), i.of(rounds), i.of(1), totals);
      OpBuilder::InsertionGuard guard(b);
      b.setInsertionPointToStart(f.getBody());
      totals.assign(f.getRegionIterArgs().begin(), f.getRegionIterArgs().end());
      RL_TRY(emitRound(f.getInductionVar()));
      scf::YieldOp::create(b, loc, totals);
      totals.assign(f.getResults().begin(), f.getResults().end());
    }
    for (size_t half = 0; half < 2; ++half)
      for (size_t r = 0; r < combiners.size(); ++r)
        known[half].push_back(combineInWarp(b, loc, combiners[r], totals[half * combiners.size() + r], 4));
  }
  GemmGroup at = chunkAt(place, firstChunk);
  RL_TRY(storeSegment(place, at, i.add(at.column, i.mul(firstGroup, kGroup)), known));
  return known;
}

/// One lane of each quad stores. Plain stores: neighbouring rows are far apart.
Status WgmmaEpilogueEmitter::storeSegment(const GemmPlace &place, const GemmGroup &at, Value column,
                                          const Known &known) {
  const WgmmaGemm &g = *plan.gemm;
  if (g.segments.empty())
    return {};
  Type i64 = b.getI64Type();
  auto toIndex = [&](Value v) { return arith::IndexCastUIOp::create(b, loc, b.getIndexType(), v).getResult(); };
  auto plus = [&](Value x, Value y) { return arith::AddIOp::create(b, loc, x, y).getResult(); };
  auto times = [&](Value x, int64_t c) {
    Value wide = arith::ExtUIOp::create(b, loc, i64, x);
    return arith::MulIOp::create(b, loc, wide, arith::ConstantIntOp::create(b, loc, i64, c)).getResult();
  };
  auto both = [&](Value x, Value y) { return arith::AndIOp::create(b, loc, x, y).getResult(); };
  for (size_t half = 0; half < 2; ++half) {
    Value row = i.add(i.add(at.row, i.shiftRight(block.lane, 2)), 8 * static_cast<int64_t>(half));
    Value there = both(i.equal(i.andWith(block.lane, 3), i.of(0)), i.less(row, i.of(g.m)));
    if (g.n % plan.tile().tileN != 0)
      there = both(there, i.less(column, i.of(g.n)));
    GemmSite site;
    site.level = 0;
    site.lanes = plan.lanes();
    site.reduced = known[half];
    site.batch = toIndex(place.batch);
    site.row = toIndex(i.min(row, i.of(g.m - 1)));
    site.column = toIndex(g.n % plan.tile().tileN != 0 ? i.min(column, i.of(g.n - plan.lanes())) : column);
    site.pointers = block.pointers;
    RL_ASSIGN(SmallVector<Value> values, epilogue(b, loc, site));
    if (values.size() != g.segments.size())
      return unsupported({}, "internal: the epilogue gave " + std::to_string(values.size()) + " values of a segment");
    auto branch = scf::IfOp::create(b, loc, there);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(branch.thenBlock()->getTerminator());
    for (auto [t, v] : llvm::zip(g.segments, values)) {
      Value offset = batchOffset(b, loc, g, t.offset, t.batchStrides, place.batch);
      offset = plus(offset, plus(times(row, t.stride), times(i.div(column, g.segment), t.segmentStride)));
      Type element = elementType(t.dtype);
      Value to = LLVM::GEPOp::create(b, loc, block.pointers[t.arg].getType(), element, block.pointers[t.arg],
                                     ValueRange{offset});
      LLVM::StoreOp::create(b, loc, v, to, static_cast<unsigned>(dtypeSize(t.dtype)));
    }
  }
  return {};
}

} // namespace rl::emit
