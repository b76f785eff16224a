// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the parts of a WgmmaGemm kernel share: its plan (where things lie in shared memory, which tensor maps it has) and the values
// that are the same for a whole block. Private to the Wgmma*.cpp here.
#pragma once

#include "compiler/emit/HopperAsm.h"
#include "compiler/emit/WgmmaGemm.h"

#include <array>

namespace rl::emit {

/// One 16-row part of a chunk in staging memory: rows of `span` bytes, swizzled over that span, `subs` of them beside each
/// other. Or of as many rows as a tile of M by K has. Turned round, a row is one of the chunk's columns, with 64 of the warpgroup's rows.
struct GemmSlot {
  int elementBytes = 2;
  int rows = 16;
  int span = 128;     ///< bytes of a row of one part: 16 (not swizzled), 32, 64, 128
  int subs = 1;       ///< parts
  int64_t offset = 0; ///< of the slot in a warp's buffer
  int subBytes() const { return rows * span; }
  int subColumns() const { return span / elementBytes; }
  int swizzleMask() const { return span - 16; } ///< of address bits 4 to 6, taken from bits 7 to 9
};

struct GemmPlan {
  const WgmmaGemm *gemm = nullptr;
  cost::GemmShared shared;
  std::vector<GemmSlot> slots;
  std::vector<int> outputSlot, tileSlot;
  std::vector<PackageTensorMap> maps;
  unsigned mapA = 0;
  std::vector<unsigned> mapLeft, mapLeftColumn; ///< of WgmmaGemm::left
  std::vector<GemmSlot> left;                   ///< places in a stage of its tiles
  int64_t copiedBytes = 0;                      ///< of a stage
  int64_t boxA = 0;                             ///< rows of one copy of A where that is K-major
  std::vector<unsigned> mapB;
  std::vector<int> outputMap, tileMap; ///< -1: stored by plain stores
  int64_t tileK = 0, kBlocks = 0;      ///< elements of K of a stage; stages of a tile
  int64_t tilesM = 0, tilesN = 0;      ///< tilesM: of clusters
  int64_t work = 0;                    ///< tiles of clusters in all
  int64_t batches = 1;
  int buffers = 1;

  const cost::GemmTile &tile() const { return gemm->tile; }
  int consumerWarps() const { return tile().warps(); }
  int64_t columns() const { return shared.stage * tile().stages + shared.staging; } ///< place in shared memory
  int64_t kept() const { return columns() + shared.columns; }
  int64_t barriers() const { return kept() + shared.kept; }
  int chunks() const { return tile().chunks(); }
  int lanes() const { return gemm->n % 2 == 0 && !gemm->turned ? 2 : 1; }
  size_t rights() const { return gemm->turned ? 1 : gemm->b.size(); } ///< right operands of a stage
  bool storesByMap() const;
};

GemmPlan makePlan(const WgmmaGemm &);

/// Columns of an operand that is not K-major that one box holds: 128 bytes.
constexpr int64_t kMnBox = 64;

/// Where a tile of the result is. Elements; `row` is of this block.
struct GemmPlace {
  mlir::Value batch, row, column; ///< i32
};

constexpr int kGroup = 16; ///< columns that a round of the epilogue has of a row

/// A group of columns in a chunk of a warp's 16 rows. i32.
struct GemmGroup {
  mlir::Value chunk;      ///< of the tile
  mlir::Value row;        ///< the first of the warp's
  mlir::Value column;     ///< the chunk's first
  mlir::Value blockIndex; ///< which of the warpgroup's blocks of 64 rows
  mlir::Value buffer;
  mlir::Value group;     ///< in the chunk
  mlir::Value inSegment; ///< where segments are reduced: in the segment
};

/// What is the same for all of a block's tiles. i32.
struct GemmBlock {
  mlir::Value base;       ///< of shared memory, a multiple of 1024
  mlir::Value warp, lane; ///< of the block, of the warp
  mlir::Value rank;       ///< in the cluster; 0 where there is none
  mlir::ValueRange pointers, maps;
};

/// The coordinates of a tensor map behind its first two dimensions: the batch's index along each dimension that the tensor
/// has (strides other than 0).
llvm::SmallVector<mlir::Value> batchCoordinates(Int32 &, const WgmmaGemm &, const std::vector<int64_t> &batchStrides,
                                                mlir::Value batch);

/// The offset of a batch's first element in a tensor, in elements (i64).
mlir::Value batchOffset(mlir::OpBuilder &, mlir::Location, const WgmmaGemm &, int64_t offset,
                        const std::vector<int64_t> &batchStrides, mlir::Value batch);

/// The left operand of a stage in registers, where it is computed (WgmmaGemm::left).
class WgmmaLeftEmitter {
public:
  WgmmaLeftEmitter(mlir::OpBuilder &, mlir::Location, const GemmPlan &, const GemmBlock &);

  /// Loads what the tile's rows have once, into registers. Before the main loop.
  void loadRows(const GemmPlace &);
  /// What a stage holds, which lies in shared memory at `stage`, for two steps of 16 along K from `step` on.
  struct Loaded {
    std::vector<llvm::SmallVector<mlir::Value>> tiles;   ///< [tile][step, block of 64 rows, part]
    std::vector<llvm::SmallVector<mlir::Value>> columns; ///< [vector][step, octet]
  };
  Loaded load(mlir::Value stage, int step);
  /// Four registers of each block of 64 rows, of a step; of a result turned round, of each product.
  Result<llvm::SmallVector<mlir::Value>> compute(const GemmPlace &, mlir::Value kBlock, int step, const Loaded &);

private:
  mlir::Value tilePair(const GemmSlot &, mlir::Value stage, int block, int step, int part);
  llvm::SmallVector<mlir::Value> widen(int step, const Loaded &);
  mlir::Value columnPair(size_t vector, mlir::Value stage, mlir::Value column);
  mlir::Value firstRow(); ///< of the block's, that this thread has

  mlir::OpBuilder &b;
  mlir::Location loc;
  const GemmPlan &plan;
  const GemmBlock &block;
  Int32 i;
  HopperAsm hopper;
  std::vector<llvm::SmallVector<mlir::Value>> rowValues; ///< [vector][block and half]
  mlir::Value exponents;                                 ///< of integers that become bf16
};

/// What a stage's sums are multiplied by: products of the scales of a thread's rows and of the tile's columns.
class WgmmaScaleEmitter {
public:
  /// Before the main loop, which carries what `begin` gives (f32; nothing where there are no scales).
  WgmmaScaleEmitter(mlir::OpBuilder &, mlir::Location, const GemmPlan &, const GemmBlock &, const GemmPlace &);
  llvm::SmallVector<mlir::Value> begin();
  /// At a stage's beginning, by whole warps: takes its factors out of what is carried, and gives what is carried on.
  llvm::SmallVector<mlir::Value> advance(mlir::Value kBlock, mlir::ValueRange carried);
  mlir::Value of(size_t accumulator) const; ///< the stage's factor

private:
  using Address = std::pair<mlir::Value, int64_t>; ///< of the first stage's scale; elements to the next one's
  Address addressOf(const WgmmaScales &, const GemmBlock &, mlir::Value batch, mlir::Value row);
  llvm::SmallVector<mlir::Value> load(mlir::Value firstStage);
  void takeFactors(mlir::Value kBlock, mlir::ValueRange products);

  mlir::OpBuilder &b;
  mlir::Location loc;
  const GemmPlan &plan;
  const WgmmaGemm &g;
  Int32 i;
  HopperAsm hopper;
  mlir::Value lane;
  std::vector<Address> rows, columns;
  int64_t piece = 1, share = 1;                        ///< columns that are sure to have one scale; that have one
  mlir::Value inShare;                                 ///< where in a share the tile begins
  std::vector<llvm::SmallVector<mlir::Value>> factors; ///< [row][piece]
};

/// One consumer warp's part after the products: rounds of loading tile operands, the epilogue, staging and stores.
class WgmmaEpilogueEmitter {
public:
  WgmmaEpilogueEmitter(mlir::OpBuilder &, mlir::Location, const GemmPlan &, const GemmBlock &, const GemmEpilogue &);

  /// Barriers of the tile operands' buffers: initialised by one thread of the block.
  void initBarriers();
  /// Loads what the tile's rows have once, into registers. Before the main loop.
  void loadRows(const GemmPlace &);
  /// Starts loading a tile's operands and column vectors. In the main loop, once a tile, by the whole warp; nothing to do
  /// where there are none.
  void prefetch(const GemmPlace &);
  bool hasPrefetch() const { return hasTiles() || !plan.gemm->columns.empty(); }
  bool hasTiles() const { return !plan.gemm->tiles.empty(); }
  /// `count`: how many tiles this block has had before. `accumulators`: [product][block][tileN / 2].
  Status emit(const GemmPlace &, mlir::Value count, mlir::ValueRange accumulators);
  void endTile(); ///< behind emit
  /// Before the block ends: shared memory must outlive the copies that read it.
  void finish();

private:
  mlir::Value isCopying();
  mlir::Value firstRowOf(mlir::Value row);
  void syncCopied();
  mlir::Value bufferOf(mlir::Value chunk);
  mlir::Value barrierOf(mlir::Value buffer);
  mlir::Value chunkColumn(mlir::Value chunkInRow);
  mlir::Value columnsOf(size_t vector);
  void loadColumns(const GemmPlace &);
  GemmPlace warpPlace(const GemmPlace &);
  void loadTiles(const GemmPlace &, mlir::Value chunk);
  void storeChunk(const GemmPlace &, mlir::Value blockRow, mlir::Value column, mlir::Value buffer);
  void storePlain(const GemmTensor &, const GemmSlot &, const GemmPlace &, mlir::Value row, mlir::Value column,
                  mlir::Value buffer);
  mlir::Value rowOffset(const GemmSlot &, mlir::Value row);
  mlir::Value within(const GemmSlot &, mlir::Value row, mlir::Value byteColumn);
  mlir::Value keptAddress(const GemmGroup &, int site, int lane);
  mlir::Value pairAddress(const GemmSlot &, mlir::Value buffer, mlir::Value inRow, mlir::Value inColumn);
  mlir::Value sharedPointer(mlir::Value address);
  mlir::Type elementType(DType);
  mlir::Type lanesOf(mlir::Type, int lanes);
  Status loop(int64_t count, llvm::function_ref<Status(mlir::Value)> body);
  llvm::SmallVector<mlir::Value> pickRegisters(mlir::ValueRange accumulators, mlir::Value id);
  GemmGroup chunkAt(const GemmPlace &, mlir::Value chunk);
  void beginChunk(const GemmGroup &, mlir::Value count);
  void endChunk(const GemmPlace &, const GemmGroup &);
  /// Results of a segment's reductions, for each of the thread's two rows.
  using Known = std::array<llvm::SmallVector<mlir::Value>, 2>;
  /// `half`: which of the rows. `results`: [site][result].
  using UseOfPair = llvm::function_ref<Status(int half, mlir::Value inRow, mlir::Value inColumn,
                                              llvm::ArrayRef<llvm::SmallVector<mlir::Value>> results)>;
  Status evaluate(const GemmPlace &, const GemmGroup &, mlir::ValueRange registers, uint32_t level, const Known &,
                  UseOfPair);
  Status emitGroup(const GemmPlace &, const GemmGroup &, mlir::ValueRange registers, const Known &);
  Result<Known> reduceSegment(const GemmPlace &, mlir::Value firstChunk, mlir::Value firstGroup,
                              mlir::ValueRange accumulators);
  Status storeSegment(const GemmPlace &, const GemmGroup &, mlir::Value column, const Known &);

  mlir::OpBuilder &b;
  mlir::Location loc;
  const GemmPlan &plan;
  const GemmBlock &block;
  const GemmEpilogue &epilogue;
  Int32 i;
  HopperAsm hopper;
  std::vector<llvm::SmallVector<mlir::Value>> rowValues; ///< [vector][block][half]
};

} // namespace rl::emit
