// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products on a CPU, in the manner of Goto and van de Geijn ("Anatomy of high-performance matrix multiplication", 2008): a block
// packs parts of both operands into buffers that stay in the cache, and multiplies them six rows by sixteen columns at a time in
// registers. Here one block computes a whole tile over all of K, so that what is behind the product runs on the tile while it is
// in the cache; both operands are packed once a tile, which the tile's extents amortise.
#include "compiler/emit/GemmParts.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace rl::emit {

using mlir::Value; // not the graph's

namespace {

constexpr int64_t kColumns = 16; ///< of the innermost tile: two vectors

class BlockedEmitter {
public:
  BlockedEmitter(GemmParts &p, Value block)
      : p(p), b(p.b), loc(p.loc), s(p.kernel.schedule), element(p.accumulator()),
        bytes(element.getIntOrFloatBitWidth() / 8), rowsAtOnce(std::min<int64_t>(6, s.shape.m)),
        tile(tileOf(p, block)) {}
  void emit();

private:
  Value buffer(int64_t elements) {
    Value n = arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(elements));
    return LLVM::AllocaOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext()), element, n, /*alignment=*/64);
  }
  Value load(Value base, Value at, int64_t lanes, int64_t align) {
    return LLVM::LoadOp::create(b, loc, p.vectorOf(lanes, element), p.address(base, element, at),
                                static_cast<unsigned>(align * bytes));
  }
  void store(Value v, Value base, Value at, int64_t align) {
    LLVM::StoreOp::create(b, loc, v, p.address(base, element, at), static_cast<unsigned>(align * bytes));
  }
  void packLeft(Value k0, Value kCount);
  void packRight(const TracedOperand &, Value to, Value k0, Value kCount);
  SmallVector<Value> transpose(SmallVector<Value> rows);
  void multiply(Value right, Value results, Value kCount);
  Value leftAt(Value row, Value k) {
    return p.traces.left.transposed ? p.add(p.mul(k, s.tileM), row) : p.add(p.mul(row, s.tileK), k);
  }

  GemmParts &p;
  OpBuilder &b;
  Location loc;
  const GemmSchedule &s;
  Type element;
  int64_t bytes, rowsAtOnce;
  GemmTile tile;
  Value mCount, nCount, left;
};

/// The left operand's rows as they are, widened.
void BlockedEmitter::packLeft(Value k0, Value kCount) {
  const TracedOperand &o = p.traces.left;
  int64_t V = o.lanes();
  if (!o.transposed) {
    Value first = p.add(p.mul(tile.batch, s.shape.m), tile.m);
    p.loop(p.index(0), mCount, 1, [&](Value i) {
      p.loop(p.index(0), p.div(kCount, V), 1, [&](Value kv) {
        Value v = p.read(o, p.add(first, i), p.add(p.div(k0, V), kv));
        store(v, left, leftAt(i, p.mul(kv, V)), s.tileK % V == 0 ? V : 1);
      });
    });
    return;
  }
  Value first = p.add(p.mul(tile.batch, s.shape.k), k0);
  p.loop(p.index(0), kCount, 1, [&](Value k) {
    p.loop(p.index(0), p.div(mCount, V), 1, [&](Value mv) {
      Value v = p.read(o, p.add(first, k), p.add(p.div(tile.m, V), mv));
      store(v, left, leftAt(p.mul(mv, V), k), 1);
    });
  });
}

/// Eight vectors of eight: blocks of one, two and four lanes change places across the diagonal.
SmallVector<Value> BlockedEmitter::transpose(SmallVector<Value> rows) {
  for (int64_t step : {4, 2, 1})
    for (int64_t i = 0; i < 8; ++i) {
      if (i & step)
        continue;
      SmallVector<int64_t> low, high;
      for (int64_t l = 0; l < 8; ++l) {
        low.push_back(l & step ? 8 + l - step : l);
        high.push_back(l & step ? 8 + l : l + step);
      }
      Value x = rows[i], y = rows[i + step];
      rows[i] = vector::ShuffleOp::create(b, loc, x, y, low);
      rows[i + step] = vector::ShuffleOp::create(b, loc, x, y, high);
    }
  return rows;
}

/// The right operand in panels of sixteen columns, each k after k.
void BlockedEmitter::packRight(const TracedOperand &o, Value to, Value k0, Value kCount) {
  int64_t V = o.lanes();
  auto place = [&](Value n, Value k) {
    return p.add(p.add(p.mul(p.div(n, kColumns), s.tileK * kColumns), p.mul(k, kColumns)), p.rem(n, kColumns));
  };
  if (!o.transposed) {
    Value first = p.add(p.mul(tile.batch, s.shape.k), k0);
    // Panel by panel, whole lines of memory at a time; then what is left of the last.
    Value whole = p.div(nCount, kColumns);
    p.loop(p.index(0), whole, 1, [&](Value panel) {
      p.loop(p.index(0), kCount, 1, [&](Value k) {
        Value base = p.add(p.mul(panel, s.tileK * kColumns), p.mul(k, kColumns));
        for (int64_t c = 0; c < kColumns; c += V) {
          Value vector = p.add(p.add(p.div(tile.n, V), p.mul(panel, kColumns / V)), c / V);
          store(p.read(o, p.add(first, k), vector), to, p.add(base, c), V);
        }
      });
    });
    p.loop(p.mul(whole, kColumns / V), p.div(nCount, V), 1, [&](Value nv) {
      Value base = place(p.mul(nv, V), p.index(0));
      p.loop(p.index(0), kCount, 1, [&](Value k) {
        Value v = p.read(o, p.add(first, k), p.add(p.div(tile.n, V), nv));
        store(v, to, p.add(base, p.mul(k, kColumns)), V);
      });
    });
    return;
  }
  Value first = p.add(p.mul(tile.batch, s.shape.n), tile.n), whole = p.index(0);
  if (V == 8) {
    whole = p.mul(p.div(nCount, 8), 8);
    p.loop(p.index(0), whole, 8, [&](Value n) {
      p.loop(p.index(0), p.div(kCount, V), 1, [&](Value kv) {
        SmallVector<Value> rows;
        for (int64_t r = 0; r < 8; ++r)
          rows.push_back(p.read(o, p.add(p.add(first, n), r), p.add(p.div(k0, V), kv)));
        rows = transpose(std::move(rows));
        Value base = place(n, p.mul(kv, V));
        for (int64_t l = 0; l < V; ++l)
          store(rows[l], to, p.add(base, l * kColumns), 8);
      });
    });
  }
  p.loop(whole, nCount, 1, [&](Value n) {
    p.loop(p.index(0), p.div(kCount, V), 1, [&](Value kv) {
      Value v = p.read(o, p.add(first, n), p.add(p.div(k0, V), kv));
      Value base = place(n, p.mul(kv, V));
      for (int64_t l = 0; l < V; ++l) {
        Value one = V == 1 ? v : vector::ExtractOp::create(b, loc, v, ArrayRef<int64_t>{l}).getResult();
        store(one, to, p.add(base, l * kColumns), 1);
      }
    });
  });
}

void BlockedEmitter::multiply(Value right, Value results, Value kCount) {
  constexpr int64_t V = 8;
  Type vector = p.vectorOf(V, element);
  auto up = [&](Value v, int64_t c) { return p.div(p.add(v, c - 1), c); };
  bool oneChunk = s.shape.k <= s.tileK;
  p.loop(p.index(0), up(nCount, kColumns), 1, [&](Value panel) {
    Value base = p.mul(panel, s.tileK * kColumns);
    p.loop(p.index(0), up(mCount, rowsAtOnce), 1, [&](Value group) {
      Value row = p.mul(group, rowsAtOnce);
      SmallVector<Value> sums, at;
      for (int64_t i = 0; i < rowsAtOnce; ++i)
        for (int64_t j = 0; j < kColumns; j += V) {
          at.push_back(p.add(p.mul(p.add(row, i), s.tileN), p.add(p.mul(panel, kColumns), j)));
          sums.push_back(oneChunk ? p.zero(vector) : load(results, at.back(), V, V));
        }
      sums = p.loop(p.index(0), kCount, 1, sums, [&](Value k, ValueRange now) {
        SmallVector<Value> next(now), columns;
        for (int64_t j = 0; j < kColumns; j += V)
          columns.push_back(load(right, p.add(p.add(base, p.mul(k, kColumns)), j), V, V));
        for (int64_t i = 0; i < rowsAtOnce; ++i) {
          Value one = load(left, leftAt(p.add(row, i), k), 1, 1);
          Value all = vector::BroadcastOp::create(b, loc, vector, one);
          for (size_t j = 0; j < columns.size(); ++j) {
            Value &sum = next[static_cast<size_t>(i) * columns.size() + j];
            sum = p.multiplyAdd(all, columns[j], sum);
          }
        }
        return next;
      });
      for (auto [v, place] : llvm::zip(sums, at))
        store(v, results, place, V);
    });
  });
}

void BlockedEmitter::emit() {
  // Rows are multiplied six at a time, columns sixteen: the buffers have room for what the last of them is short of.
  int64_t rows = (s.tileM + rowsAtOnce - 1) / rowsAtOnce * rowsAtOnce;
  int64_t columns = (s.tileN + kColumns - 1) / kColumns * kColumns;
  left = buffer((rows + 8) * s.tileK);
  SmallVector<Value> right, results;
  for (size_t i = 0; i < p.traces.right.size(); ++i) {
    right.push_back(buffer(columns * s.tileK));
    results.push_back(buffer(rows * s.tileN));
  }
  auto count = [&](Value first, int64_t tileExtent, int64_t extent) {
    return extent % tileExtent == 0
               ? p.index(tileExtent)
               : p.min(arith::SubIOp::create(b, loc, p.index(extent), first).getResult(), tileExtent);
  };
  mCount = count(tile.m, s.tileM, s.shape.m);
  nCount = count(tile.n, s.tileN, s.shape.n);
  if (s.shape.k > s.tileK)
    for (Value r : results)
      p.loop(p.index(0), p.index(rows * s.tileN), 8, [&](Value i) { store(p.zero(p.vectorOf(8, element)), r, i, 8); });
  p.loop(p.index(0), p.index(s.shape.k), s.tileK, [&](Value k0) {
    Value kCount = count(k0, s.tileK, s.shape.k);
    packLeft(k0, kCount);
    for (size_t i = 0; i < right.size(); ++i) {
      packRight(p.traces.right[i], right[i], k0, kCount);
      multiply(right[i], results[i], kCount);
    }
  });
  int64_t V = p.kernel.lanes;
  Value firstRow = p.add(p.mul(tile.batch, s.shape.m), tile.m);
  p.loop(p.index(0), mCount, 1, [&](Value i) {
    auto sumsOf = [&](Value nv) {
      SmallVector<Value> sums;
      for (Value r : results)
        sums.push_back(load(r, p.add(p.mul(i, s.tileN), p.mul(nv, V)), V, V));
      return sums;
    };
    if (p.segment) {
      p.loop(p.index(0), p.div(nCount, V), p.segment / V, [&](Value first) {
        p.finishInTurn(p.add(firstRow, i), p.add(p.div(tile.n, V), first),
                       [&](Value nv) { return sumsOf(p.add(first, nv)); });
      });
      return;
    }
    p.loop(p.index(0), p.div(nCount, V), 1,
           [&](Value nv) { p.finish(p.add(firstRow, i), p.add(p.div(tile.n, V), nv), sumsOf(nv)); });
  });
}

} // namespace

void emitBlocked(GemmParts &p, Value block) { BlockedEmitter(p, block).emit(); }

} // namespace rl::emit
