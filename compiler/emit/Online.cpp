// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/emit/Online.h"
#include "compiler/lower/MathCalls.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "llvm/ADT/bit.h"

#include <cmath>

using namespace mlir;

namespace rl::emit {

using mlir::Value; // not the graph's

Value OnlineEmitter::exponential(Value x) const {
  if (!fast)
    return callMath(b, loc, MathFn::Exp, x, Rounding::F32);
  Value unscale = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(0x1p-24f));
  return arith::MulFOp::create(b, loc, callMath(b, loc, MathFn::Exp, x, Rounding::Term), unscale);
}

Value OnlineEmitter::finiteOr0(Value x) const {
  Value infinity = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(INFINITY));
  Value zero = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(0));
  Value finite = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OLT, math::AbsFOp::create(b, loc, x), infinity);
  return arith::SelectOp::create(b, loc, finite, x, zero);
}

Value OnlineEmitter::factor(Value top, Value whole) const {
  return exponential(arith::SubFOp::create(b, loc, top, pair.finite ? finiteOr0(whole) : whole));
}

Value OnlineEmitter::rescale(Value top, Value now) const {
  return exponential(arith::SubFOp::create(b, loc, top, local(now)));
}

void OnlineEmitter::combineThreads(const RowThreads &row, Value &top, Value &sum, Value shared,
                                   int64_t firstSlot) const {
  if (row.threads == 1) {
    sum = arith::MulFOp::create(b, loc, sum, factor(top, top));
    return;
  }
  const Combiner most{OpKind::Amax, DType::F32, DType::F32}, total{OpKind::Sum, DType::F32, DType::F32};
  // A warp's sum is still one over e^(x - local(its maximum)); the last exchange makes it one over e^(x - subtrahend).
  auto among = [&](int64_t threads, bool last) {
    Value own = top;
    top = combineInWarp(b, loc, most, top, threads);
    Value to = last ? factor(own, top) : rescale(own, top);
    sum = combineInWarp(b, loc, total, arith::MulFOp::create(b, loc, sum, to), threads);
  };
  among(std::min<int64_t>(row.threads, 32), row.threads <= 32);
  if (row.threads <= 32)
    return;
  Type pointer = LLVM::LLVMPointerType::get(b.getContext(), 3), slot = b.getI64Type(), f32 = b.getF32Type();
  auto i32 = [&](int64_t v) -> Value {
    return arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(static_cast<int32_t>(v)));
  };
  auto at = [&](Value place, int64_t start) -> Value {
    place = arith::AddIOp::create(b, loc, place, i32(start));
    return LLVM::GEPOp::create(b, loc, pointer, slot, shared, ValueRange{place});
  };
  const int64_t second = firstSlot + row.slots();
  Value warp = arith::DivUIOp::create(b, loc, row.thread, i32(32));
  Value lane = arith::RemUIOp::create(b, loc, row.thread, i32(32));
  auto branch =
      scf::IfOp::create(b, loc, arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, lane, i32(row.blocks)));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(branch.thenBlock()->getTerminator());
    if (row.blocks > 1) {
      Value own = arith::AddIOp::create(b, loc, warp, arith::MulIOp::create(b, loc, row.block, i32(row.threads / 32)));
      storeInBlock(b, loc, top, at(own, firstSlot), lane);
      storeInBlock(b, loc, sum, at(own, second), lane);
    } else {
      LLVM::StoreOp::create(b, loc, top, at(warp, firstSlot), 8);
      LLVM::StoreOp::create(b, loc, sum, at(warp, second), 8);
    }
  }
  syncRow(b, loc, row);
  int64_t warps = row.threads / 32 * row.blocks;
  auto readPair = [&](Value place) {
    return std::pair<Value, Value>(LLVM::LoadOp::create(b, loc, f32, at(place, firstSlot), 8),
                                   LLVM::LoadOp::create(b, loc, f32, at(place, second), 8));
  };
  if (warps > 32) {
    // Of several blocks: every 32nd warp's to a lane, brought to the greatest of their maxima.
    SmallVector<std::pair<Value, Value>> pairs;
    for (int64_t w = 0; w < warps; w += 32)
      pairs.push_back(readPair(arith::AddIOp::create(b, loc, lane, i32(w))));
    top = pairs[0].first;
    for (size_t i = 1; i < pairs.size(); ++i)
      top = most.combine(b, loc, top, pairs[i].first);
    for (size_t i = 0; i < pairs.size(); ++i) {
      Value one = arith::MulFOp::create(b, loc, pairs[i].second, rescale(pairs[i].first, top));
      sum = i ? total.combine(b, loc, sum, one) : one;
    }
    among(32, true);
    return;
  }
  auto lanes = static_cast<int64_t>(llvm::bit_ceil(static_cast<uint64_t>(warps)));
  Value own = arith::RemUIOp::create(b, loc, lane, i32(lanes));
  Value there = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, own, i32(warps));
  Value place = arith::SelectOp::create(b, loc, there, own, i32(0));
  if (row.rowsPerBlock > 1) {
    Value first = arith::MulIOp::create(b, loc, arith::DivUIOp::create(b, loc, warp, i32(warps)), i32(warps));
    place = arith::AddIOp::create(b, loc, place, first);
  }
  auto [tops, sums] = readPair(place);
  top = arith::SelectOp::create(b, loc, there, tops, most.identity(b, loc, 1));
  sum = arith::SelectOp::create(b, loc, there, sums, total.identity(b, loc, 1));
  among(lanes, true);
}

} // namespace rl::emit
