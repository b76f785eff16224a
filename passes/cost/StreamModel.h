// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a product of few rows is divided between the SMs of a machine with tensor memory copies (compute capability 9.0), and how
// long that takes. The kernel is compiler/emit/GemmStream: a block has some rows of the right operand and all of K, which pass
// through a ring of stages; warps multiply the stages of their turn, and their sums are added at the end. Of one row it is
// compiler/emit/GemmDirect: a small block, whose threads load what they multiply.
#pragma once

#include "passes/cost/Target.h"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace rl::cost {

/// Numbers of 8 bits that kernels of products make floats of 16 bits in registers.
inline bool isNarrow(DType t) { return t == DType::I8 || t == DType::F8E4M3 || t == DType::F8E5M2; }

/// A product of [m, k] by [n, k] transposed, or by [k, n], with what is computed of its elements.
struct StreamShape {
  int64_t m = 0, n = 0, k = 0;
  DType left = DType::BF16;  ///< bf16 or f16: what is multiplied
  DType right = DType::BF16; ///< the same, or of 8 bits
  bool kMajor = true;        ///< K is the right operand's contiguous dimension; otherwise N, of 16-bit numbers
  int products = 1;          ///< that share the left operand
  double bytes = 0;          ///< that are read and written in all
  double ops = 0;            ///< of the epilogue, an element

  int64_t rows() const { return (m + 7) / 8 * 8; } ///< as tensor cores have them
  bool widens() const { return dtypeSize(right) == 1; }
};

/// The most rows that such a kernel has.
inline constexpr int64_t kMostStreamRows = 64;

struct StreamTile {
  int tileN = 0;  ///< rows of the right operand that a block has; columns of one with N contiguous, 32 or 64
  int stages = 2; ///< of 128 bytes of the right operand's K, or 64 of its rows
  int warps = 8;  ///< that multiply
  int warpsN = 1; ///< of these, how many divide a stage's rows; the others have other stages
  int blocksPerSm = 1;
  /// The right operand is loaded to registers: `stages` are rounds, of 512 bytes of K for each warp.
  bool direct = false;

  int parts() const { return warps / warpsN; } ///< in which K is added up
  int threads() const { return 32 * warps; }
  /// Sixteen rows of the right operand each, that a warp multiplies.
  int blocksOfWarp() const { return (tileN + 16 * warpsN - 1) / (16 * warpsN); }
  int rows() const { return 16 * warpsN * blocksOfWarp(); } ///< of a stage, whole blocks
  bool operator==(const StreamTile &) const = default;
  std::string str() const; ///< "84 columns a block, 13 stages"; "4 columns a block, 1 round"
};

/// Bytes of dynamic shared memory, in the order in which they lie there; parts are multiples of 1,024, the period of the swizzle.
struct StreamShared {
  int64_t right = 0, left = 0; ///< of one stage; right: of each product
  int64_t stage = 0;
  int64_t sums = 0;     ///< take the ring's place at the end
  int64_t stride = 0;   ///< elements from a row of sums to the next
  int64_t barriers = 0; ///< where they lie
  int64_t total = 0;
};
StreamShared streamShared(const StreamShape &, const StreamTile &);

struct StreamCandidate {
  StreamTile tile;
  double blocks = 0;
  /// Seconds, launch and first latency apart: of memory, of what an SM takes in, of its instructions, and what is left at the end.
  double memory = 0, ingest = 0, compute = 0, end = 0, seconds = 0;
  std::string str() const;
};

StreamCandidate predictStream(const StreamShape &, const StreamTile &, const TargetDesc &);

/// All tiles that are worth a look, in a fixed order; none where the machine has no such kernel or the rows are too many. `even`: a
/// block has an even number of the right operand's rows. `live`: registers that the epilogue needs. A pure function of its
/// arguments.
std::vector<StreamCandidate> streamCandidates(const StreamShape &, bool even, int64_t live, const TargetDesc &);
/// The quickest of them.
std::optional<StreamCandidate> chooseStream(const StreamShape &, bool even, int64_t live, const TargetDesc &);

} // namespace rl::cost
