// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products on a GPU without tensor cores: exact f32 and integers, and every operand that only a trace can read. A block has a
// tile of the result; 256 threads load tiles of the operands into shared memory, the next one while they multiply the one that is
// there, and each has 4 x 4 or 8 x 8 elements of the result in registers.
#include "compiler/emit/GemmParts.h"
#include "compiler/emit/Kernel.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;

namespace rl::emit {

using mlir::Value; // not the graph's

Value dynamicShared(GemmParts &p) { return dynamicShared(p.b, p.loc); }

SmallVector<Value> stagedSums(GemmParts &p, Value staged, int64_t rowStride, int64_t rows, int64_t parts, Value row,
                              Value column) {
  const int64_t V = p.kernel.lanes, products = p.kernel.schedule.products;
  Type element = p.accumulator();
  auto align = static_cast<unsigned>(std::min<int64_t>(16, V * element.getIntOrFloatBitWidth() / 8));
  SmallVector<Value> sums;
  for (int64_t i = 0; i < products; ++i) {
    Value sum;
    for (int64_t part = 0; part < parts; ++part) {
      Value at = p.add(p.add(p.mul(row, rowStride), column), (part * products + i) * rows * rowStride);
      Value one = LLVM::LoadOp::create(p.b, p.loc, p.vectorOf(V, element), p.address(staged, element, at), align);
      sum = !sum              ? one
            : element.isF32() ? arith::AddFOp::create(p.b, p.loc, sum, one).getResult()
                              : arith::AddIOp::create(p.b, p.loc, sum, one).getResult();
    }
    sums.push_back(sum);
  }
  return sums;
}

void finishStaged(GemmParts &p, const GemmTile &tile, Value thread, Value staged, int64_t rowStride, int64_t rows,
                  Value firstRow, int64_t parts) {
  OpBuilder &b = p.b;
  const GemmSchedule &s = p.kernel.schedule;
  int64_t V = p.kernel.lanes, perRow = s.tileN / V;
  auto each = [&](llvm::function_ref<void(Value)> vectorOf) {
    // A loop that no thread goes through twice would be unrolled.
    if (rows * perRow <= s.threads)
      p.when(rows * perRow < s.threads ? p.less(thread, p.index(rows * perRow)) : Value(), [&] { vectorOf(thread); });
    else
      p.loop(thread, p.index(rows * perRow), s.threads, vectorOf);
  };
  each([&](Value at) {
    Value r = p.div(at, perRow), v = p.rem(at, perRow);
    Value row = p.add(p.add(tile.m, firstRow), r), vector = p.add(p.div(tile.n, V), v);
    Value there;
    auto also = [&](Value c) { there = there ? arith::AndIOp::create(b, p.loc, there, c).getResult() : c; };
    if (s.shape.m % s.tileM != 0)
      also(p.less(row, p.index(s.shape.m)));
    if (s.shape.n % s.tileN != 0)
      also(p.less(vector, p.index(s.shape.n / V)));
    // Where threads hand each other what they have, all of them come along, those beyond the result with its last elements.
    if (p.segment) {
      row = p.min(row, s.shape.m - 1);
      vector = p.min(vector, s.shape.n / V - 1);
    }
    p.when(p.segment ? Value() : there, [&] {
      SmallVector<Value> sums = stagedSums(p, staged, rowStride, rows, parts, r, p.mul(v, V));
      row = p.add(p.mul(tile.batch, s.shape.m), row);
      if (p.segment)
        p.finishTogether(row, vector, sums, there);
      else
        p.finish(row, vector, sums);
    });
  });
}

namespace {

class SimtEmitter {
public:
  SimtEmitter(GemmParts &p, Value block, Value thread)
      : p(p), b(p.b), loc(p.loc), s(p.kernel.schedule), element(p.accumulator()),
        bytes(element.getIntOrFloatBitWidth() / 8), thread(thread), tile(tileOf(p, block)) {}
  int64_t emit();

private:
  /// An operand's tiles in shared memory: [k][row or column], two of them.
  struct Side {
    const TracedOperand *operand;
    bool left;
    int64_t extent, tile; ///< of M or N
    Value start;          ///< of the tile, along that
    int64_t offset;       ///< in shared memory, elements
    int64_t stride() const { return tile + 4; }
  };
  SmallVector<Value> load(const Side &, Value k0);
  void store(const Side &, ArrayRef<Value> vectors, Value buffer);
  /// Whether the operand is stored with K along its rows.
  static bool alongK(const Side &side) { return side.left != side.operand->transposed; }
  int64_t vectors(const Side &side) const { return side.tile * s.tileK / side.operand->lanes(); }
  /// The q-th vector of this thread: place across (M or N) and along K, in vectors for whichever is the operand's width.
  std::pair<Value, Value> placeOf(const Side &, int64_t q);
  int64_t count(const Side &side) const { return (vectors(side) + s.threads - 1) / s.threads; }

  GemmParts &p;
  OpBuilder &b;
  Location loc;
  const GemmSchedule &s;
  Type element;
  int64_t bytes;
  Value thread;
  GemmTile tile;
  Value shared;
};

std::pair<Value, Value> SimtEmitter::placeOf(const Side &side, int64_t q) {
  int64_t V = side.operand->lanes(), all = vectors(side);
  Value at = p.add(thread, q * s.threads);
  if (all % s.threads != 0) // some threads load what others do too
    at = p.rem(at, all);
  int64_t perRow = (alongK(side) ? s.tileK : side.tile) / V;
  Value outer = p.div(at, perRow), inner = p.rem(at, perRow);
  return alongK(side) ? std::pair{outer, inner} : std::pair{inner, outer};
}

SmallVector<Value> SimtEmitter::load(const Side &side, Value k0) {
  SmallVector<Value> out;
  int64_t V = side.operand->lanes(), K = s.shape.k;
  for (int64_t q = 0; q < count(side); ++q) {
    auto [across, along] = placeOf(side, q);
    Value row, vector, there;
    if (alongK(side)) {
      row = p.add(side.start, across);
      if (side.extent % side.tile != 0)
        row = p.min(row, side.extent - 1);
      row = p.add(p.mul(tile.batch, side.extent), row);
      vector = p.add(p.div(k0, V), along);
      if (K % s.tileK != 0) {
        there = p.less(vector, p.index(K / V));
        vector = p.min(vector, K / V - 1);
      }
    } else {
      row = p.add(k0, along);
      if (K % s.tileK != 0) {
        there = p.less(row, p.index(K));
        row = p.min(row, K - 1);
      }
      row = p.add(p.mul(tile.batch, K), row);
      vector = p.add(p.div(side.start, V), across);
      if (side.extent % side.tile != 0)
        vector = p.min(vector, side.extent / V - 1);
    }
    Value v = p.read(*side.operand, row, vector);
    if (there)
      v = arith::SelectOp::create(b, loc, there, v, p.zero(v.getType()));
    out.push_back(v);
  }
  return out;
}

void SimtEmitter::store(const Side &side, ArrayRef<Value> vectors, Value buffer) {
  int64_t V = side.operand->lanes();
  Value base = p.add(p.mul(buffer, s.tileK * side.stride()), side.offset);
  for (int64_t q = 0; q < count(side); ++q) {
    auto [across, along] = placeOf(side, q);
    if (alongK(side)) {
      for (int64_t l = 0; l < V; ++l) {
        Value one =
            V == 1 ? vectors[q] : vector::ExtractOp::create(b, loc, vectors[q], ArrayRef<int64_t>{l}).getResult();
        Value at = p.add(p.add(p.mul(p.add(p.mul(along, V), l), side.stride()), across), base);
        LLVM::StoreOp::create(b, loc, one, p.address(shared, element, at), static_cast<unsigned>(bytes));
      }
      continue;
    }
    Value at = p.add(p.add(p.mul(along, side.stride()), p.mul(across, V)), base);
    LLVM::StoreOp::create(b, loc, vectors[q], p.address(shared, element, at),
                          static_cast<unsigned>(std::min<int64_t>(4, V) * bytes));
  }
}

int64_t SimtEmitter::emit() {
  shared = dynamicShared(p);
  int64_t perThreadM = s.tileM / 16, perThreadN = s.tileN / 16;
  SmallVector<Side> sides;
  sides.push_back({&p.traces.left, true, s.shape.m, s.tileM, tile.m, 0});
  int64_t used = 2 * s.tileK * sides[0].stride();
  for (const TracedOperand &o : p.traces.right) {
    sides.push_back({&o, false, s.shape.n, s.tileN, tile.n, used});
    used += 2 * s.tileK * sides.back().stride();
  }
  Value x = p.mul(p.rem(thread, 16), 4), y = p.mul(p.div(thread, 16), 4);
  int64_t tiles = (s.shape.k + s.tileK - 1) / s.tileK;
  auto barrier = [&] { NVVM::Barrier0Op::create(b, loc); };
  for (const Side &side : sides)
    store(side, load(side, p.index(0)), p.index(0));
  barrier();
  size_t perProduct = static_cast<size_t>(perThreadM * perThreadN);
  SmallVector<Value> sums(perProduct * p.traces.right.size(), p.zero(element));
  sums = p.loop(p.index(0), p.index(tiles), 1, sums, [&](Value t, ValueRange now) {
    SmallVector<Value> next(now);
    // The last round loads its own tile again rather than one that is not there.
    Value ahead = p.mul(p.min(p.add(t, 1), tiles - 1), s.tileK);
    SmallVector<SmallVector<Value>> loaded;
    for (const Side &side : sides)
      loaded.push_back(load(side, ahead));
    Value buffer = p.rem(t, 2);
    auto take = [&](const Side &side, int64_t k, Value first, int64_t n) {
      SmallVector<Value> out;
      for (int64_t part = 0; part < n; part += 4) {
        Value at =
            p.add(p.add(first, p.mul(buffer, s.tileK * side.stride())), side.offset + k * side.stride() + part * 16);
        Value four = LLVM::LoadOp::create(b, loc, p.vectorOf(4, element), p.address(shared, element, at),
                                          static_cast<unsigned>(std::min<int64_t>(16, 4 * bytes)));
        for (int64_t l = 0; l < 4; ++l)
          out.push_back(vector::ExtractOp::create(b, loc, four, ArrayRef<int64_t>{l}));
      }
      return out;
    };
    for (int64_t k = 0; k < s.tileK; ++k) {
      SmallVector<Value> rows = take(sides[0], k, y, perThreadM);
      for (size_t r = 1; r < sides.size(); ++r) {
        SmallVector<Value> columns = take(sides[r], k, x, perThreadN);
        for (size_t i = 0; i < rows.size(); ++i)
          for (size_t j = 0; j < columns.size(); ++j) {
            Value &sum = next[(r - 1) * perProduct + i * columns.size() + j];
            sum = p.multiplyAdd(rows[i], columns[j], sum);
          }
      }
    }
    Value other = p.rem(p.add(t, 1), 2);
    for (auto [side, vectors] : llvm::zip(sides, loaded))
      store(side, vectors, other);
    barrier();
    return next;
  });
  // The results go through shared memory, so that one loop, with neighbouring threads at neighbouring elements, finishes them.
  int64_t stride = s.tileN + 4;
  for (size_t r = 0; r < p.traces.right.size(); ++r)
    for (int64_t i = 0; i < perThreadM; ++i)
      for (int64_t j = 0; j < perThreadN; j += 4) {
        Value row = p.add(y, i % 4 + i / 4 * 64), column = p.add(x, j * 16);
        SmallVector<Value> four;
        for (int64_t l = 0; l < 4; ++l)
          four.push_back(sums[r * perProduct + static_cast<size_t>(i * perThreadN + j + l)]);
        Value v = vector::FromElementsOp::create(b, loc, cast<VectorType>(p.vectorOf(4, element)), four);
        Value at = p.add(p.add(p.mul(row, stride), column), static_cast<int64_t>(r) * s.tileM * stride);
        LLVM::StoreOp::create(b, loc, v, p.address(shared, element, at),
                              static_cast<unsigned>(std::min<int64_t>(16, 4 * bytes)));
      }
  barrier();
  finishStaged(p, tile, thread, shared, stride, s.tileM, p.index(0));
  return std::max(used, static_cast<int64_t>(p.traces.right.size()) * s.tileM * stride) * bytes;
}

} // namespace

Result<int64_t> emitSimt(GemmParts &p, Value block, Value thread) { return SimtEmitter(p, block, thread).emit(); }

} // namespace rl::emit
