// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a matrix product is cut into tiles on a machine with warpgroup products and tensor memory copies (compute capability
// 9.0), and how long that takes. The kernel is compiler/emit/WgmmaGemm: a persistent grid whose blocks each take a tile of
// [tileM, tileN] after the other; one warp copies operands into a ring of stages, one to three warpgroups multiply.
#pragma once

#include "passes/cost/Target.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace rl::cost {

/// A product of [m, k] by [k, n], `batch` times, with what is computed of its elements.
struct GemmShape {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  DType a = DType::BF16, b = DType::BF16;
  int products = 1;               ///< that share the left operand; their elements meet in the epilogue
  bool aKMajor = true;            ///< K is the left operand's contiguous dimension
  std::vector<bool> bKMajor;      ///< of each product's right operand; shorter: true
  int64_t aPitch = 0;             ///< elements from a row of the left operand as it is stored to the next; 0: dense
  std::vector<int64_t> bPitch;    ///< of each product's right operand; shorter: dense
  std::vector<DType> outputs;     ///< tensors of m x n that are stored
  std::vector<DType> tiles;       ///< tensors of m x n that the epilogue reads
  std::vector<DType> columns;     ///< vectors of n that it reads
  double ops = 0, specialOps = 0; ///< of the epilogue, an element
  /// Rows are reduced by segments of so many columns, a power of two, on the way (0: not): the epilogue is gone over once more for
  /// that, with these ops an element, and what a segment has once, so many bytes of it, is stored.
  int64_t segment = 0;
  double passOps = 0, passSpecialOps = 0, segmentBytes = 0;
  int64_t aBatches = 0,
          bBatches = 0;   ///< different operands among the batches, each of which memory gives once; 0: all are
  int64_t columnPart = 0; ///< parts in which the outputs' columns lie have a multiple of so many; 0: all are one part
  /// What the first time has computed may be kept in shared memory (GemmTile::keeps), in f32; then that is all that is gone over
  /// again, with these ops.
  bool mayKeep = false;
  double keptOps = 0, keptSpecialOps = 0;
  /// What a stage sums to, 128 bytes of K, is added to what came before by f32 additions of its own: the tensor cores keep fewer
  /// bits of a sum of 8-bit floats than f32 has.
  bool promotes = false;
  /// With promotion: each stage's sums are multiplied by a scale of the row and one of the columns, of which so many neighbours
  /// share one; 0: not.
  int64_t scaleColumns = 0;
  /// The left operand is computed where it is multiplied, in registers, from tensors of m x k with K contiguous and vectors of k, by
  /// so many ops an element. No tensors: it is in memory as it is.
  std::vector<DType> leftTiles, leftColumns;
  double leftOps = 0, leftSpecialOps = 0;
  /// The product of weights by activations, which is the result turned round: m is its columns, n its rows. The left operands, one of
  /// each product, are numbers of 8 bits (leftTiles) that become `a` in registers; the products share the right one, and tensors of
  /// the epilogue have M contiguous.
  bool turned = false;

  int rights() const { return turned ? 1 : products; } ///< right operands of a stage
  bool computesLeft() const { return !leftTiles.empty(); }
  int64_t pitchOfA() const { return aPitch > 0 ? aPitch : aKMajor ? k : m; }
  int64_t pitchOfB(int product) const {
    auto p = static_cast<size_t>(product);
    return p < bPitch.size() && bPitch[p] > 0 ? bPitch[p] : isBKMajor(product) ? k : n;
  }
  bool isBKMajor(int product) const {
    return static_cast<size_t>(product) >= bKMajor.size() || bKMajor[static_cast<size_t>(product)];
  }
};

bool isMultipleOf16Bytes(int64_t elements, DType);

/// Bytes of a line of the L2 cache. A copy of as many that starts elsewhere touches two.
constexpr int64_t kCacheLine = 128;

/// Whether a tensor map's dimension may have this stride, in elements: whole multiples of 16 bytes below 2^40 (CUDA driver API,
/// cuTensorMapEncodeTiled).
bool isMapStride(DType, int64_t stride);
/// Whether a tensor map describes a matrix of `extent` contiguous rows, `stride` elements apart, `batch` times at these strides (0: the
/// same again): starts and strides are multiples of 16 bytes, strides positive and below 2^40 bytes (CUDA driver API,
/// cuTensorMapEncodeTiled).
bool hasTensorMap(DType, int64_t offset, int64_t extent, int64_t stride, const std::vector<int64_t> &batch,
                  const std::vector<int64_t> &batchStrides);

/// Columns of a tile that are sure to share a scale: tiles start at multiples of tileN.
int64_t scalePiece(const GemmShape &, int tileN);
/// Scales that a tile's columns have at most.
int64_t scalesOfTile(const GemmShape &, int tileN);

struct GemmTile {
  int tileN = 128;   ///< a multiple of 8, 16 to 256
  int consumers = 2; ///< warpgroups that multiply: 1 to 3
  int blocks = 1;    ///< of 64 rows that each has: 1 or 2
  bool alternate =
      false;         ///< two consumers, and each has tiles of its own: one's epilogue runs under the other's products
  int stages = 4;    ///< of 128 bytes of K
  int cluster = 1;   ///< blocks, neighbours along M, that share what they read of the right operand: 1 or 2
  int groupRows = 8; ///< tiles along M that are gone through before the next tile along N
  int buffers = 2;   ///< of 16 rows by 64 columns that each warp has for its stores and tile operands
  int unroll = 1;    ///< groups of 16 columns that the epilogue's code has beside each other
  int blocksPerSm = 1;
  /// The warpgroups that multiply take over registers of the one that copies. For more than 128 accumulators and for long
  /// epilogues; such a kernel is assembled at each load, by the driver (runtime/cuda/Cuda.h, assemblePtx).
  bool moreRegisters = false;
  bool keeps = false; ///< of a segment that a warp reduces, what it has computed: in shared memory

  int tileM() const { return 64 * blocks * (alternate ? 1 : consumers); }
  int warps() const { return 4 * consumers; } ///< that multiply
  int threads() const { return consumers == 1 ? 160 : 128 * (consumers + 1); }
  /// What a warp stages at once, in columns: the largest power of two that fits, to 64.
  int chunkColumns() const { return tileN >= 64 ? 64 : tileN >= 32 ? 32 : 16; }
  /// Of the tile; the last may overlap the one before.
  int chunks() const { return blocks * ((tileN + chunkColumns() - 1) / chunkColumns()); }
  /// Chunks of a segment of so many columns; 1 where a chunk has several.
  int chunksOf(int64_t segment) const { return std::max(1, static_cast<int>(segment) / chunkColumns()); }
  bool operator==(const GemmTile &) const = default;
  std::string str() const; ///< "128x256, 4 stages"
};

/// Bytes of dynamic shared memory, in the order in which they lie there. Each part is a multiple of 1,024 bytes, the period of
/// the swizzle.
struct GemmShared {
  int64_t a = 0, b = 0;    ///< of one stage; b: of each product
  int64_t leftColumns = 0; ///< of one stage: vectors that the left operand is computed with, behind the right operands
  int64_t stage = 0;       ///< of one stage
  int64_t slots = 0;       ///< of one buffer of one warp: outputs and tile operands
  int64_t staging = 0;     ///< of all warps
  int64_t columns = 0;     ///< of all warpgroups: vectors
  int64_t kept = 0;        ///< of all warps
  int64_t barriers = 0;
  int64_t total = 0;
};
GemmShared gemmShared(const GemmShape &, const GemmTile &);

/// Bytes of a stage that a vector of type `t` along K has, where the left operand is computed with it: a copy's, and a line of
/// banks at least.
int64_t leftColumnBytes(const GemmShape &, DType t);

/// A tile operand and an output with elements of one size share their staging: element size by slot.
struct GemmSlots {
  std::vector<int> bytes;            ///< of an element, by slot
  std::vector<int> ofOutput, ofTile; ///< slot of each
};
GemmSlots gemmSlots(const GemmShape &);

/// Why the kernel cannot be generated for this shape and tile, or nothing.
std::string gemmRefusal(const GemmShape &, const GemmTile &, const TargetDesc &);

struct GemmCandidate {
  GemmTile tile;
  double seconds = 0;
  double waves = 0;                                          ///< tiles / blocks that run at once
  double mainloop = 0, epilogue = 0, memory = 0, launch = 0; ///< parts of `seconds`
  std::string str() const;
};

/// How long the kernel takes. The tile is one that gemmRefusal has nothing against.
GemmCandidate predictGemm(const GemmShape &, const GemmTile &, const TargetDesc &);

/// Fills in all of a tile but its form (tileN, consumers, blocks, alternate, blocksPerSm, cluster); false where the kernel
/// cannot be generated.
bool completeGemmTile(const GemmShape &, GemmTile &, const TargetDesc &);

/// The best tiles, the quickest first, at most `most`; none where the machine has no such kernel or no tile fits. A pure
/// function of its arguments.
std::vector<GemmCandidate> chooseGemmTiles(const GemmShape &, const TargetDesc &, size_t most = 8);

/// Whether it takes less time to write operands with K contiguous anew, with rows of `k` elements, the rest zeros, and to multiply
/// these, than to multiply what is there. False where the machine has no such kernel.
bool paddingPays(const GemmShape &, int64_t k, const TargetDesc &);

} // namespace rl::cost
