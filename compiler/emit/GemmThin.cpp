// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of few rows on a GPU: memory-bound, so that all that counts is that the right operand streams in, 16 bytes a thread and
// many loads in flight, and is used for all rows while it is in registers.
//
// Where the right operand is stored along K, a warp has some columns and its lanes share K among them; where it is stored along N,
// a thread has a vector of columns and the block's threads share K. Partial sums are added by exchanges within a warp, in a fixed
// order, and then through shared memory, where the epilogue takes them.
#include "compiler/emit/Combine.h"
#include "compiler/emit/GemmParts.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace rl::emit {

using mlir::Value; // not the graph's

namespace {

class ThinEmitter {
public:
  ThinEmitter(GemmParts &p, Value block, Value thread)
      : p(p), b(p.b), loc(p.loc), s(p.kernel.schedule), element(p.accumulator()),
        bytes(element.getIntOrFloatBitWidth() / 8), thread(thread), tile(tileOf(p, block)) {}
  int64_t emit();

private:
  Value add(Value x, Value y) {
    return element.isF32() ? arith::AddFOp::create(b, loc, x, y).getResult()
                           : arith::AddIOp::create(b, loc, x, y).getResult();
  }
  Value lane(Value v, int64_t l) {
    return isa<VectorType>(v.getType()) ? vector::ExtractOp::create(b, loc, v, ArrayRef<int64_t>{l}).getResult() : v;
  }
  /// Vectors of a round where one stage of it has `elements`, which take a register each where they are loaded one by one.
  int64_t stagesOf(int64_t elements) const {
    constexpr int64_t kMost = 128;
    return p.aligned ? s.stages : std::clamp<int64_t>(kMost / elements, 1, s.stages);
  }
  void alongK();
  void alongN();
  void store(Value sum, int64_t product, Value part, int64_t row, Value column) {
    Value at = p.add(p.add(p.mul(part, s.products * s.tileM * stride), column), (product * s.tileM + row) * stride);
    LLVM::StoreOp::create(b, loc, sum, p.address(shared, element, at), static_cast<unsigned>(bytes));
  }

  GemmParts &p;
  OpBuilder &b;
  Location loc;
  const GemmSchedule &s;
  Type element;
  int64_t bytes;
  Value thread;
  GemmTile tile;
  Value shared, laneId, warp;
  int64_t stride = 0;
};

/// A warp has `columns` neighbouring columns, of which its lanes read neighbouring vectors along K; `warpsK` warps have every
/// warpsK-th of these.
void ThinEmitter::alongK() {
  const TracedOperand &left = p.traces.left;
  int64_t V = p.traces.right[0].lanes(), vectors = s.shape.k / V, M = s.shape.m, columns = s.tileN / s.warpsN;
  auto products = static_cast<int64_t>(p.traces.right.size());
  Value warpN = p.rem(warp, s.warpsN), warpK = p.div(warp, s.warpsN);
  Value firstColumn = p.mul(warpN, columns);
  SmallVector<Value> sums(static_cast<size_t>(products * M * columns), p.zero(element));
  // Beyond N the last column is read again and its sum goes nowhere.
  SmallVector<Value> rows;
  for (int64_t c = 0; c < columns; ++c) {
    Value n = p.add(p.add(tile.n, firstColumn), c);
    if (s.shape.n % s.tileN != 0)
      n = p.min(n, s.shape.n - 1);
    rows.push_back(p.add(p.mul(tile.batch, s.shape.n), n));
  }
  int64_t step = 32 * s.warpsK, unroll = stagesOf(V * products * columns);
  auto round = [&](Value at, int64_t times, SmallVector<Value> next) {
    // All loads of the round first. A vector of the left operand has as many elements or, where it is wider, a part of them.
    SmallVector<Value> weights, places;
    std::vector<std::unique_ptr<TraceEmitter>> reads;
    for (int64_t u = 0; u < times; ++u) {
      places.push_back(p.add(at, u * step));
      for (const TracedOperand &right : p.traces.right)
        for (Value row : rows)
          reads.push_back(p.startRead(right, row, places.back()));
    }
    int64_t parts = V / left.lanes();
    for (int64_t u = 0; u < times; ++u) {
      for (int64_t i = 0; i < products * columns; ++i)
        weights.push_back(p.finishRead(p.traces.right[static_cast<size_t>(i / columns)], *reads[weights.size()]));
      for (int64_t m = 0; m < M; ++m) {
        SmallVector<Value> x;
        Value row = p.add(p.mul(tile.batch, M), m);
        for (int64_t part = 0; part < parts; ++part) {
          Value v = p.read(left, row, p.add(p.mul(places[u], parts), part));
          for (int64_t l = 0; l < left.lanes(); ++l)
            x.push_back(lane(v, l));
        }
        for (int64_t r = 0; r < products; ++r)
          for (int64_t c = 0; c < columns; ++c) {
            Value w = weights[static_cast<size_t>((u * products + r) * columns + c)];
            Value &sum = next[static_cast<size_t>((r * M + m) * columns + c)];
            for (int64_t l = 0; l < V; ++l)
              sum = p.multiplyAdd(x[static_cast<size_t>(l)], lane(w, l), sum);
          }
      }
    }
    return next;
  };
  Value first = p.add(p.mul(warpK, 32), laneId);
  int64_t whole = vectors / (step * unroll) * (step * unroll);
  if (whole)
    sums = p.loop(first, p.index(whole), step * unroll, sums,
                  [&](Value at, ValueRange now) { return round(at, unroll, SmallVector<Value>(now)); });
  if (whole < vectors)
    sums = p.loop(p.add(first, whole), p.index(vectors), step, sums,
                  [&](Value at, ValueRange now) { return round(at, 1, SmallVector<Value>(now)); });
  for (Value &sum : sums)
    for (int64_t offset = 16; offset > 0; offset /= 2)
      sum = add(sum, exchange(b, loc, sum, offset));
  p.when(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, laneId, p.index(0)), [&] {
    for (int64_t r = 0; r < products; ++r)
      for (int64_t m = 0; m < M; ++m)
        for (int64_t c = 0; c < columns; ++c)
          store(sums[static_cast<size_t>((r * M + m) * columns + c)], r, warpK, m, p.add(firstColumn, c));
  });
}

/// A thread has a vector of columns and every (threads / vectors)-th k. The left operand waits in shared memory, widened, a part
/// of K at a time.
void ThinEmitter::alongN() {
  const TracedOperand &left = p.traces.left;
  int64_t V = p.traces.right[0].lanes(), M = s.shape.m, K = s.shape.k, across = s.tileN / V,
          groups = s.threads / across;
  auto products = static_cast<int64_t>(p.traces.right.size());
  Value vector = p.rem(thread, across), group = p.div(thread, across);
  Value at = p.add(p.div(tile.n, V), vector);
  if (s.shape.n % s.tileN != 0)
    at = p.min(at, s.shape.n / V - 1);
  SmallVector<Value> sums(static_cast<size_t>(products * M * V), p.zero(element));
  int64_t LV = left.lanes();
  sums = p.loop(p.index(0), p.index(K), s.tileK, sums, [&](Value k0, ValueRange outer) {
    Value count =
        K % s.tileK == 0 ? p.index(s.tileK) : p.min(arith::SubIOp::create(b, loc, p.index(K), k0).getResult(), s.tileK);
    NVVM::Barrier0Op::create(b, loc);
    // The left operand is stored along K here.
    for (int64_t m = 0; m < M; ++m)
      p.loop(thread, p.div(count, LV), s.threads, [&](Value kv) {
        Value v = p.read(left, p.add(p.mul(tile.batch, M), m), p.add(p.div(k0, LV), kv));
        LLVM::StoreOp::create(b, loc, v, p.address(shared, element, p.add(p.mul(kv, LV), m * s.tileK)),
                              static_cast<unsigned>(std::min<int64_t>(16, bytes * LV)));
      });
    NVVM::Barrier0Op::create(b, loc);
    auto round = [&](Value k, int64_t times, SmallVector<Value> next) {
      SmallVector<Value> weights, places;
      std::vector<std::unique_ptr<TraceEmitter>> reads;
      for (int64_t u = 0; u < times; ++u) {
        places.push_back(p.add(k, u * groups));
        for (const TracedOperand &right : p.traces.right)
          reads.push_back(p.startRead(right, p.add(p.add(p.mul(tile.batch, K), k0), places.back()), at));
      }
      for (int64_t u = 0; u < times; ++u) {
        for (const TracedOperand &right : p.traces.right)
          weights.push_back(p.finishRead(right, *reads[weights.size()]));
        for (int64_t m = 0; m < M; ++m) {
          Value x = LLVM::LoadOp::create(b, loc, element, p.address(shared, element, p.add(places[u], m * s.tileK)),
                                         static_cast<unsigned>(bytes));
          for (int64_t r = 0; r < products; ++r)
            for (int64_t l = 0; l < V; ++l) {
              Value &sum = next[static_cast<size_t>((r * M + m) * V + l)];
              sum = p.multiplyAdd(x, lane(weights[static_cast<size_t>(u * products + r)], l), sum);
            }
        }
      }
      return next;
    };
    int64_t unroll = stagesOf(V * products);
    Value whole = p.mul(p.div(count, groups * unroll), groups * unroll);
    SmallVector<Value> now = p.loop(group, whole, groups * unroll, outer, [&](Value k, ValueRange values) {
      return round(k, unroll, SmallVector<Value>(values));
    });
    return p.loop(p.add(whole, group), count, groups, now,
                  [&](Value k, ValueRange values) { return round(k, 1, SmallVector<Value>(values)); });
  });
  // Lanes of a warp that have the same columns, then the warps.
  for (Value &sum : sums)
    for (int64_t offset = 16; offset >= across; offset /= 2)
      sum = add(sum, exchange(b, loc, sum, offset));
  NVVM::Barrier0Op::create(b, loc);
  Value writes = across < 32 ? p.less(laneId, p.index(across)) : Value();
  p.when(writes, [&] {
    for (int64_t r = 0; r < products; ++r)
      for (int64_t m = 0; m < M; ++m)
        for (int64_t l = 0; l < V; ++l)
          store(sums[static_cast<size_t>((r * M + m) * V + l)], r, warp, m, p.add(p.mul(vector, V), l));
  });
}

int64_t ThinEmitter::emit() {
  shared = dynamicShared(p);
  laneId = p.rem(thread, 32);
  warp = p.div(thread, 32);
  stride = s.tileN;
  bool k = p.traces.right[0].transposed;
  if (k)
    alongK();
  else
    alongN();
  NVVM::Barrier0Op::create(b, loc);
  int64_t parts = k ? s.warpsK : s.threads / 32;
  finishStaged(p, tile, thread, shared, stride, s.tileM, p.index(0), parts);
  return bytes * std::max(parts * s.products * s.tileM * stride, k ? 0 : s.shape.m * s.tileK);
}

} // namespace

Result<int64_t> emitThin(GemmParts &p, Value block, Value thread) { return ThinEmitter(p, block, thread).emit(); }

} // namespace rl::emit
