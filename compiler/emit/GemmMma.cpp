// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of 16-bit floats on the tensor cores that one warp commands (mma.sync, sm_80 and later). Tiles of the operands wait in a
// ring in shared memory, filled by cp.async where an operand is 16 bytes of memory at a time, else through registers; ldmatrix
// takes fragments from there, and the sums in registers go through shared memory to the epilogue.
//
// Shared memory holds rows of 16-byte chunks, as an operand is stored. Chunk c of row r is at c xor f(r), so that the eight rows
// which ldmatrix reads at once lie in different banks: f(r) is r modulo 8 where rows have 128 bytes or more, and changes every
// second (fourth) row where two (four) of them share 128 bytes. Fragment layouts are those of the PTX ISA's m16n8k16.
//
// Where there are few rows, warps divide the tile's K between them (`warpsK`) and their sums are added, in order, at the end.
#include "compiler/emit/GemmParts.h"
#include "compiler/emit/Packed.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace rl::emit {

using mlir::Value; // not the graph's

namespace {

class MmaEmitter {
public:
  MmaEmitter(GemmParts &p, Value block, Value thread, DType type)
      : p(p), b(p.b), loc(p.loc), s(p.kernel.schedule), type(type), thread(thread), tile(tileOf(p, block)) {}
  int64_t emit();

private:
  /// 16 bytes that a thread copies of every tile.
  struct Chunk {
    Value from;                ///< address in the first tile, where it moves on by a constant
    Value row, vector, alongK; ///< place in the operand and in the tile's K, of the first tile
    Value to;                  ///< place in the first stage
    Value inside;              ///< within M or N; null: always
  };
  /// An operand's ring of tiles.
  struct Side {
    const TracedOperand *operand;
    bool left;
    int64_t extent, tile; ///< of M or N
    Value start;          ///< of the tile, along that
    int64_t offset = 0;   ///< of the ring, bytes
    bool async = false, steady = false;
    int64_t advance = 0; ///< elements from a tile to the next, where that is steady
    SmallVector<Chunk> chunksOfThread = {};
    int64_t rows = 0, columns = 0;                       ///< of a tile as it is stored
    int64_t chunks() const { return columns / 8; }       ///< a row's
    int64_t bytes() const { return rows * columns * 2; } ///< a tile's
    bool alongK() const { return left != operand->transposed; }
  };
  /// A vector's place: row and first column in the tile, and whether there is such an element of the operand.
  struct Place {
    Value row, column, memoryRow, memoryVector, there;
  };
  Side sideOf(const TracedOperand &, bool left);
  bool readsChunks(const TracedOperand &) const;
  int64_t vectorsOf(const Side &side, int64_t lanes) const { return side.rows * side.columns / lanes; }
  Place placeOf(const Side &, int64_t lanes, Value at, Value k0, Value *inside = nullptr, Value *along = nullptr);
  void prepare(Side &);
  Value source(const Side &, Value row, Value vector);
  Value chunkAddress(const Side &, Value stage, Value row, Value chunk);
  void copyAsync(const Side &, Value stage, Value t);
  int64_t vectorsOfThread(const Side &) const;
  SmallVector<Value> vectorsFrom(Value first, int64_t count);
  SmallVector<Value> load(const Side &, Value k0, ArrayRef<Value> vectors);
  void store(const Side &, ArrayRef<Value> loaded, ArrayRef<Value> vectors, Value stage, Value k0);
  void copyThrough(const Side &, Value stage, Value k0);
  SmallVector<Value> fragments(const Side &, Value stage, Value warp, int64_t perWarp, Value kChunk);
  void multiply(MutableArrayRef<Value> sums, ArrayRef<Value> left, ArrayRef<Value> right);
  Value xorWith(Value x, Value y) { return arith::XOrIOp::create(b, loc, x, y); }
  Value sharedAt(Value bytes) { return p.address(shared, b.getI8Type(), bytes); }

  GemmParts &p;
  OpBuilder &b;
  Location loc;
  const GemmSchedule &s;
  DType type;
  Value thread;
  GemmTile tile;
  Value shared, lane, warpM, warpN, warpK;
  bool keepsAddresses = true; ///< of what passes through registers, from tile to tile
};

/// Whether every vector of the operand is 16 bytes of memory, in the type that is multiplied.
bool MmaEmitter::readsChunks(const TracedOperand &o) const {
  if (!p.aligned || o.load == kNone || o.lanes() != 8)
    return false;
  const Instance &in = o.trace.instances[o.load];
  if (p.kernel.body.type(in.value).dtype != type || o.trace.isGathered(in))
    return false;
  IndexEmitter indices(b, loc, o.trace);
  VectorAccess access = indices.access(in.linear);
  return access.contiguous && access.alignElements >= 8;
}

MmaEmitter::Side MmaEmitter::sideOf(const TracedOperand &o, bool left) {
  Side side{&o, left, left ? s.shape.m : s.shape.n, left ? s.tileM : s.tileN, left ? tile.m : tile.n};
  side.rows = side.alongK() ? side.tile : s.tileK;
  side.columns = side.alongK() ? s.tileK : side.tile;
  side.async = readsChunks(o);
  return side;
}

/// `inside` and `along`, where given, take whether the vector is within M or N, and its place along K; `there` is then left
/// alone, and nothing is limited to K.
/// `at`: the vector, counted through the tile.
MmaEmitter::Place MmaEmitter::placeOf(const Side &side, int64_t lanes, Value at, Value k0, Value *inside,
                                      Value *along) {
  int64_t perRow = side.columns / lanes, all = vectorsOf(side, lanes);
  if (all % s.threads != 0) // some threads load what others do too
    at = p.rem(at, all);
  Place out;
  out.row = p.div(at, perRow);
  Value vector = p.rem(at, perRow);
  out.column = p.mul(vector, lanes);
  auto limit = [&](Value v, int64_t extent, int64_t step) {
    if (extent % step == 0)
      return v;
    Value less = p.less(v, p.index(extent));
    if (inside)
      *inside = less;
    else
      out.there = out.there ? arith::AndIOp::create(b, loc, out.there, less).getResult() : less;
    return p.min(v, extent - 1);
  };
  int64_t K = s.shape.k;
  if (along)
    *along = side.alongK() ? vector : out.row;
  if (side.alongK()) {
    Value row = limit(p.add(side.start, out.row), side.extent, side.tile);
    out.memoryRow = p.add(p.mul(tile.batch, side.extent), row);
    out.memoryVector = p.add(p.div(k0, lanes), vector);
    if (!along)
      out.memoryVector = limit(out.memoryVector, K / lanes, s.tileK / lanes);
  } else {
    Value row = p.add(k0, out.row);
    if (!along)
      row = limit(row, K, s.tileK);
    out.memoryRow = p.add(p.mul(tile.batch, K), row);
    out.memoryVector = limit(p.add(p.div(side.start, lanes), vector), side.extent / lanes, side.tile / lanes);
  }
  return out;
}

Value MmaEmitter::chunkAddress(const Side &side, Value stage, Value row, Value chunk) {
  int64_t C = side.chunks();
  Value f = C >= 8 ? p.rem(row, 8) : p.rem(p.div(row, 8 / C), C);
  Value at = p.add(p.mul(row, C), xorWith(chunk, f));
  return p.add(p.add(p.mul(at, 16), p.mul(stage, side.bytes())), side.offset);
}

/// What does not change from tile to tile, ahead of the loop: addresses move on by a constant there.
void MmaEmitter::prepare(Side &side) {
  const TracedOperand &o = *side.operand;
  const Instance &in = o.trace.instances[o.load];
  int dim = side.alongK() ? o.trace.vectorDim : o.trace.rowDim;
  side.steady = !in.linear.dependsNonlinearly(dim);
  side.advance = in.linear.coefficient(dim) * (side.alongK() ? s.tileK / 8 : s.tileK);
  int64_t n = (vectorsOf(side, 8) + s.threads - 1) / s.threads;
  for (int64_t q = 0; q < n; ++q) {
    Chunk c;
    Place at = placeOf(side, 8, p.add(thread, q * s.threads), p.index(0), &c.inside, &c.alongK);
    c.to = chunkAddress(side, p.index(0), at.row, p.div(at.column, 8));
    c.row = at.memoryRow;
    c.vector = at.memoryVector;
    if (side.steady)
      c.from = source(side, at.memoryRow, at.memoryVector);
    side.chunksOfThread.push_back(c);
  }
}

Value MmaEmitter::source(const Side &side, Value row, Value vector) {
  const TracedOperand &o = *side.operand;
  const Instance &in = o.trace.instances[o.load];
  IndexEmitter indices(b, loc, o.trace);
  indices.setRowIndex(row);
  indices.setVectorIndex(vector);
  Value offset = indices.scalar(in.linear);
  if (!offset.getType().isInteger(64))
    offset = arith::ExtUIOp::create(b, loc, b.getI64Type(), offset);
  size_t input = 0;
  while (p.kernel.body.inputs[input] != in.value)
    ++input;
  return LLVM::GEPOp::create(b, loc, p.inputs[input].getType(), b.getI16Type(), p.inputs[input], ValueRange{offset});
}

/// Asks for tile `t` of the operand.
void MmaEmitter::copyAsync(const Side &side, Value stage, Value t) {
  int64_t perTile = side.alongK() ? s.tileK / 8 : s.tileK, all = side.alongK() ? s.shape.k / 8 : s.shape.k;
  Value moved = p.mul(t, side.advance), along = p.mul(t, perTile), into = p.mul(stage, side.bytes());
  for (const Chunk &c : side.chunksOfThread) {
    Value from, there = c.inside, size;
    if (side.steady) {
      from = p.address(c.from, b.getI16Type(), moved);
    } else {
      // Beyond K nothing is read, but an address must be computed of an index that there is.
      Value row = c.row, vector = c.vector;
      Value last = p.index(all - 1), place = p.min(p.add(c.alongK, along), last);
      (side.alongK() ? vector : row) = side.alongK() ? place : p.add(p.mul(tile.batch, s.shape.k), place);
      from = source(side, row, vector);
    }
    if (s.shape.k % s.tileK != 0) {
      Value inside = p.less(p.add(c.alongK, along), p.index(all));
      there = there ? arith::AndIOp::create(b, loc, there, inside).getResult() : inside;
    }
    if (there) { // where there is nothing, nothing is read and zeros are written
      Value some = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(16)),
            none = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(0));
      size = arith::SelectOp::create(b, loc, there, some, none);
    }
    NVVM::CpAsyncOp::create(b, loc, sharedAt(p.add(c.to, into)), from, 16, NVVM::LoadCacheModifierKind::CG, size);
  }
}

int64_t MmaEmitter::vectorsOfThread(const Side &side) const {
  return (vectorsOf(side, side.operand->lanes()) + s.threads - 1) / s.threads;
}

SmallVector<Value> MmaEmitter::load(const Side &side, Value k0, ArrayRef<Value> vectors) {
  SmallVector<Value> out;
  const int64_t V = side.operand->lanes();
  SmallVector<Place> places;
  std::vector<std::unique_ptr<TraceEmitter>> reads;
  for (Value at : vectors) {
    places.push_back(placeOf(side, V, at, k0));
    reads.push_back(p.startRead(*side.operand, places.back().memoryRow, places.back().memoryVector));
  }
  for (auto [at, read] : llvm::zip(places, reads)) {
    Value v = p.finishRead(*side.operand, *read, type);
    if (at.there)
      v = arith::SelectOp::create(b, loc, at.there, v, p.zero(v.getType()));
    out.push_back(v);
  }
  return out;
}

void MmaEmitter::store(const Side &side, ArrayRef<Value> loaded, ArrayRef<Value> vectors, Value stage, Value k0) {
  int64_t V = side.operand->lanes(), part = std::min<int64_t>(V, 8);
  for (auto [v, place] : llvm::zip(loaded, vectors)) {
    Place at = placeOf(side, V, place, k0);
    for (int64_t first = 0; first < V; first += part) {
      Value one = v;
      if (part < V) {
        SmallVector<int64_t> lanes;
        for (int64_t l = 0; l < part; ++l)
          lanes.push_back(first + l);
        one = vector::ShuffleOp::create(b, loc, v, v, lanes);
      }
      Value column = p.add(at.column, first);
      Value to = p.add(chunkAddress(side, stage, at.row, p.div(column, 8)), p.mul(p.rem(column, 8), 2));
      LLVM::StoreOp::create(b, loc, one, sharedAt(to), static_cast<unsigned>(part * 2));
    }
  }
}

/// Of this thread: `count` from the `first`th on.
SmallVector<Value> MmaEmitter::vectorsFrom(Value first, int64_t count) {
  SmallVector<Value> out;
  for (int64_t q = 0; q < count; ++q)
    out.push_back(p.add(thread, p.mul(p.add(first, q), s.threads)));
  return out;
}

/// A tile's vectors, in a loop where they are many, so that neither they nor their addresses wait in registers. ptxas unrolls the
/// loop, which puts more on its way, and keeps the addresses after all: of a kernel's all together there must not be too many.
void MmaEmitter::copyThrough(const Side &side, Value stage, Value k0) {
  const int64_t kAtOnce = keepsAddresses ? 4 : 16 / (p.aligned ? 1 : side.operand->lanes()),
                all = vectorsOfThread(side), whole = all <= 2 * kAtOnce && keepsAddresses ? 0 : all / kAtOnce * kAtOnce;
  auto copy = [&](Value first, int64_t count) {
    SmallVector<Value> vectors = vectorsFrom(first, count);
    store(side, load(side, k0, vectors), vectors, stage, k0);
  };
  if (whole > 0 && !keepsAddresses) {
    Value end = hidden(b, loc, arith::ConstantIntOp::create(b, loc, b.getI32Type(), whole));
    p.loop(p.index(0), arith::IndexCastUIOp::create(b, loc, b.getIndexType(), end), kAtOnce,
           [&](Value first) { copy(first, kAtOnce); });
  } else if (whole > 0) {
    p.loop(p.index(0), p.index(whole), kAtOnce, [&](Value first) { copy(first, kAtOnce); });
  }
  if (whole < all)
    copy(p.index(whole), all - whole);
}

/// One k-step's fragments of a warp: four registers for each 16 rows (columns of the right operand).
SmallVector<Value> MmaEmitter::fragments(const Side &side, Value stage, Value warp, int64_t perWarp, Value kChunk) {
  SmallVector<Value> out;
  Type i32 = b.getI32Type();
  Type four = LLVM::LLVMStructType::getLiteral(b.getContext(), {i32, i32, i32, i32});
  Value low = p.rem(lane, 8), third = p.rem(p.div(lane, 8), 2), fourth = p.div(lane, 16);
  // Which of the four 8 x 8 matrices a lane points into: the second follows the first along M for the left operand and along K
  // for the right one.
  Value across = side.left ? third : fourth, along = side.left ? fourth : third;
  for (int64_t i = 0; i < perWarp; i += 16) {
    Value row, chunk;
    if (side.alongK()) {
      row = p.add(p.add(p.mul(warp, perWarp), i), p.add(low, p.mul(across, 8)));
      chunk = p.add(kChunk, along);
    } else {
      row = p.add(p.mul(kChunk, 8), p.add(low, p.mul(along, 8)));
      chunk = p.add(p.add(p.mul(warp, perWarp / 8), i / 8), across);
    }
    auto shape = NVVM::LdStMatrixShapeAttr::get(b.getContext(), 8, 8);
    auto layout = side.alongK() ? NVVM::MMALayout::row : NVVM::MMALayout::col;
    Value all = NVVM::LdMatrixOp::create(b, loc, four, sharedAt(chunkAddress(side, stage, row, chunk)), uint32_t(4),
                                         layout, shape, NVVM::LdStMatrixEltType::B16);
    for (int64_t r = 0; r < 4; ++r)
      out.push_back(LLVM::ExtractValueOp::create(b, loc, all, ArrayRef<int64_t>{r}));
  }
  return out;
}

void MmaEmitter::multiply(MutableArrayRef<Value> sums, ArrayRef<Value> left, ArrayRef<Value> right) {
  size_t columns = right.size() / 2; // of eight each
  for (size_t i = 0; i < left.size() / 4; ++i)
    for (size_t j = 0; j < columns; ++j)
      multiplyByWarp(b, loc, type, sums.slice((i * columns + j) * 4, 4), left.slice(i * 4, 4), right.slice(j * 2, 2));
}

int64_t MmaEmitter::emit() {
  shared = dynamicShared(p);
  SmallVector<Side> sides{sideOf(p.traces.left, true)};
  for (const TracedOperand &o : p.traces.right)
    sides.push_back(sideOf(o, false));
  int64_t used = 0;
  for (Side &side : sides) {
    side.offset = used;
    used += s.stages * side.bytes();
  }
  lane = p.rem(thread, 32);
  Value warp = p.div(thread, 32);
  warpN = p.rem(warp, s.warpsN);
  warpM = p.rem(p.div(warp, s.warpsN), s.warpsM);
  warpK = p.div(warp, s.warpsN * s.warpsM);
  int64_t perM = s.tileM / s.warpsM, perN = s.tileN / s.warpsN, steps = s.tileK / 16 / s.warpsK;
  int64_t tiles = (s.shape.k + s.tileK - 1) / s.tileK, ahead = s.stages - 1;
  auto barrier = [&] { NVVM::Barrier0Op::create(b, loc); };
  for (Side &side : sides)
    if (side.async)
      prepare(side);

  // What passes through registers waits there for the products of the tile before, if it has room beside sums and fragments.
  constexpr int64_t kWaiting = 24, kMostLoads = 64, kDeep = 256, kMostOfDeep = 40;
  int64_t waiting = 0, loads = 0;
  for (const Side &side : sides)
    if (!side.async && side.operand->lanes() < 8) { // whole vectors have few addresses beside them
      waiting += vectorsOfThread(side) * std::max<int64_t>(1, side.operand->lanes() / 2);
      loads += vectorsOfThread(side) * (p.aligned ? 1 : side.operand->lanes());
    }
  const bool waits = waiting <= kWaiting;
  keepsAddresses = loads <= (s.tileK < kDeep ? kMostLoads : kMostOfDeep);

  for (int64_t t = 0; t < ahead; ++t) {
    if (t < tiles)
      for (const Side &side : sides) {
        if (side.async)
          copyAsync(side, p.index(t), p.index(t));
        else
          copyThrough(side, p.index(t), p.index(t * s.tileK));
      }
    NVVM::CpAsyncCommitGroupOp::create(b, loc);
  }
  size_t perProduct = static_cast<size_t>(perM / 16 * perN / 8 * 4);
  SmallVector<Value> sums(perProduct * p.traces.right.size(), p.zero(b.getF32Type()));
  sums = p.loop(p.index(0), p.index(tiles), 1, sums, [&](Value t, ValueRange now) {
    SmallVector<Value> next(now);
    NVVM::CpAsyncWaitGroupOp::create(b, loc, static_cast<uint32_t>(std::max<int64_t>(0, ahead - 1)));
    barrier();
    // The stage that the round before has gone through takes the tile that is `ahead` of this one.
    Value coming = p.add(t, ahead), into = p.rem(coming, s.stages), stage = p.rem(t, s.stages);
    Value isThere = p.less(coming, p.index(tiles));
    p.when(isThere, [&] {
      for (const Side &side : sides)
        if (side.async)
          copyAsync(side, into, coming);
    });
    NVVM::CpAsyncCommitGroupOp::create(b, loc);
    Value last = p.mul(p.min(coming, tiles - 1), s.tileK);
    SmallVector<SmallVector<Value>> loaded;
    for (const Side &side : sides)
      loaded.push_back(waits && !side.async ? load(side, last, vectorsFrom(p.index(0), vectorsOfThread(side)))
                                            : SmallVector<Value>());
    for (int64_t step = 0; step < steps; ++step) {
      Value chunk = p.add(p.mul(warpK, steps * 2), step * 2);
      SmallVector<Value> left = fragments(sides[0], stage, warpM, perM, chunk);
      for (size_t r = 1; r < sides.size(); ++r)
        multiply(MutableArrayRef<Value>(next).slice((r - 1) * perProduct, perProduct), left,
                 fragments(sides[r], stage, warpN, perN, chunk));
    }
    for (auto [side, vectors] : llvm::zip(sides, loaded))
      if (!side.async)
        p.when(isThere, [&] {
          if (waits)
            store(side, vectors, vectorsFrom(p.index(0), vectorsOfThread(side)), into, last);
          else
            copyThrough(side, into, last);
        });
    return next;
  });
  NVVM::CpAsyncWaitGroupOp::create(b, loc, uint32_t(0));

  // One row of warps after the other hands its sums over: one copy of the epilogue, and not too much shared memory. Rows are 8
  // words longer than the tile, so that pairs of neighbouring sums fall into different banks. Where segments are reduced all do at
  // once, so that none keeps sums in registers meanwhile.
  const bool whole = p.segment > 0;
  int64_t rows = whole ? s.tileM : perM, stride = s.tileN + 8, partElements = rows * stride;
  auto products = static_cast<int64_t>(p.traces.right.size());
  p.loop(p.index(0), p.index(whole ? 1 : s.warpsM), 1, [&](Value which) {
    barrier();
    Value mine = !whole && s.warpsM > 1
                     ? arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, warpM, which).getResult()
                     : Value();
    p.when(mine, [&] {
      Value row = p.div(lane, 4);
      if (whole)
        row = p.add(row, p.mul(warpM, perM));
      Value column = p.add(p.mul(warpN, perN), p.mul(p.rem(lane, 4), 2));
      Value base = p.add(p.add(p.mul(row, stride), column), p.mul(warpK, products * partElements));
      for (int64_t r = 0; r < products; ++r)
        for (int64_t i = 0; i < perM / 16; ++i)
          for (int64_t j = 0; j < perN / 8; ++j)
            for (int64_t half = 0; half < 2; ++half) {
              size_t at =
                  static_cast<size_t>(r) * perProduct + static_cast<size_t>((i * (perN / 8) + j) * 4 + half * 2);
              Value pair = vector::FromElementsOp::create(b, loc, VectorType::get({2}, b.getF32Type()),
                                                          ValueRange{sums[at], sums[at + 1]});
              Value to = p.add(base, r * partElements + (i * 16 + half * 8) * stride + j * 8);
              LLVM::StoreOp::create(b, loc, pair, p.address(shared, b.getF32Type(), to), 8);
            }
    });
    barrier();
    finishStaged(p, tile, thread, shared, stride, rows, p.mul(which, perM), s.warpsK);
  });
  return std::max(used, s.warpsK * products * partElements * 4);
}

} // namespace

Result<int64_t> emitMma(GemmParts &p, Value block, Value thread) {
  const Graph &graph = p.kernel.body;
  std::optional<DType> type = tensorType(graph, graph.nodes[p.traces.products[0]]);
  if (!type)
    return unsupported({}, "internal: operands that tensor cores do not multiply");
  return MmaEmitter(p, block, thread, *type).emit();
}

} // namespace rl::emit
