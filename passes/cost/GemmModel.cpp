// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/cost/GemmModel.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>
#include <tuple>

namespace rl::cost {

namespace {

int64_t roundUp(int64_t v, int64_t to) { return (v + to - 1) / to * to; }
int64_t sizeOf(DType t) { return static_cast<int64_t>(dtypeSize(t)); }

/// Registers of a thread that hold sums: of a promoted product those of a stage beside those of all, scales that were loaded ahead,
/// and their products, this stage's and those of four.
int accumulatorsOf(const GemmShape &s, const GemmTile &t) {
  int sums = s.products * t.blocks * t.tileN / 2 * (s.promotes ? 2 : 1);
  if (s.computesLeft()) // what the tensor cores read of a stage, what is computed for the next, and what it is computed from
    sums += (2 * 16 * (s.turned ? s.products : 1) + 8 * static_cast<int>(s.leftTiles.size())) * t.blocks;
  const int rows = 2 * t.blocks, columns = s.scaleColumns > 0 ? static_cast<int>(scalesOfTile(s, t.tileN)) : 0;
  return sums + (columns > 0 ? rows + columns + 2 * rows * columns : 0);
}

} // namespace

bool isMultipleOf16Bytes(int64_t elements, DType t) { return elements * sizeOf(t) % 16 == 0; }

bool isMapStride(DType t, int64_t stride) {
  constexpr int64_t kMostBytes = int64_t(1) << 40;
  return stride > 0 && isMultipleOf16Bytes(stride, t) && stride < kMostBytes / sizeOf(t);
}

bool hasTensorMap(DType t, int64_t offset, int64_t extent, int64_t stride, const std::vector<int64_t> &batch,
                  const std::vector<int64_t> &batchStrides) {
  auto fits = [&](int64_t s) { return isMapStride(t, s); };
  if (!isMultipleOf16Bytes(offset, t) || (extent > 1 && !fits(stride)))
    return false;
  for (size_t d = 0; d < batch.size(); ++d)
    if (batch[d] > 1 && batchStrides[d] != 0 && !fits(batchStrides[d]))
      return false;
  return true;
}

int64_t scalePiece(const GemmShape &s, int tileN) {
  return s.scaleColumns > 0 && s.scaleColumns < s.n ? std::gcd(s.scaleColumns, int64_t(tileN)) : tileN;
}

int64_t scalesOfTile(const GemmShape &s, int tileN) {
  const int64_t piece = scalePiece(s, tileN);
  return piece == tileN ? 1 : (s.scaleColumns - piece + tileN - 1) / s.scaleColumns + 1;
}

std::string GemmTile::str() const {
  std::string out = std::to_string(tileM()) + "x" + std::to_string(tileN) + ", " + std::to_string(stages) + " stages";
  if (cluster > 1)
    out += ", cluster of " + std::to_string(cluster);
  if (consumers == 1)
    out += ", one warpgroup";
  if (alternate)
    out += ", alternating";
  if (moreRegisters)
    out += ", more registers";
  if (unroll > 1)
    out += ", unroll " + std::to_string(unroll);
  if (keeps)
    out += ", keeping values";
  if (blocksPerSm > 1)
    out += ", " + std::to_string(blocksPerSm) + " blocks an SM";
  return out;
}

std::string GemmCandidate::str() const {
  char text[160];
  std::snprintf(text, sizeof text, "%s: %.1f us (%.2f waves; main loop %.1f, epilogue %.1f, memory %.1f, launch %.1f)",
                tile.str().c_str(), seconds * 1e6, waves, mainloop * 1e6, epilogue * 1e6, memory * 1e6, launch * 1e6);
  return text;
}

GemmSlots gemmSlots(const GemmShape &s) {
  GemmSlots out;
  for (DType t : s.tiles) {
    out.ofTile.push_back(static_cast<int>(out.bytes.size()));
    out.bytes.push_back(static_cast<int>(sizeOf(t)));
  }
  // Each tile operand's place serves one output.
  size_t operands = out.bytes.size();
  std::vector<bool> taken(operands, false);
  for (DType t : s.outputs) {
    size_t slot = 0;
    while (slot < operands && (taken[slot] || out.bytes[slot] != static_cast<int>(sizeOf(t))))
      ++slot;
    if (slot < operands) {
      taken[slot] = true;
    } else {
      slot = out.bytes.size();
      out.bytes.push_back(static_cast<int>(sizeOf(t)));
    }
    out.ofOutput.push_back(static_cast<int>(slot));
  }
  return out;
}

int64_t leftColumnBytes(const GemmShape &s, DType t) { return roundUp(128 / sizeOf(s.a) * sizeOf(t), 128); }

GemmShared gemmShared(const GemmShape &s, const GemmTile &t) {
  constexpr int64_t period = 1024; // of the 128-byte swizzle
  GemmShared out;
  out.a = int64_t(t.tileM()) * 128;
  if (s.computesLeft()) {
    out.a = 0;
    for (DType d : s.leftTiles)
      out.a += t.tileM() * 128 * sizeOf(d) / sizeOf(s.a);
  }
  out.stage = out.a;
  for (int p = 0; p < s.products; ++p) {
    // Boxes of 64 columns, or whole rows of K.
    out.b = std::max(out.b, (s.isBKMajor(p) ? int64_t(t.tileN) : roundUp(t.tileN, 64)) * 128);
  }
  out.stage += out.b * s.rights();
  for (DType d : s.leftColumns)
    out.leftColumns += leftColumnBytes(s, d);
  out.stage += roundUp(out.leftColumns, period);
  for (int bytes : gemmSlots(s).bytes)
    out.slots += roundUp(int64_t(16) * t.chunkColumns() * bytes, period);
  out.staging = int64_t(t.warps()) * t.buffers * out.slots;
  for (DType column : s.columns)
    out.columns += t.consumers * roundUp(int64_t(t.tileN) * sizeOf(column), 16);
  if (t.keeps) // of sixteen rows
    out.kept = t.warps() * s.segment * 16 * 4;
  out.barriers = 8 * (2 * t.stages + (s.tiles.empty() ? 0 : t.warps() * t.buffers));
  out.total = out.stage * t.stages + out.staging + out.columns + out.kept + out.barriers;
  return out;
}

std::string gemmRefusal(const GemmShape &s, const GemmTile &t, const TargetDesc &machine) {
  if (!machine.gpu || machine.sm != 90)
    return "the machine has no warpgroup products (compute capability 9.0)";
  if (s.batch < 1 || s.m < 1 || s.n < 1 || s.k < 1)
    return "the product is empty";
  if (s.products < 1 || s.products > 2)
    return std::to_string(s.products) + " products in one kernel; 1 or 2 have registers";
  bool kMajor = s.aKMajor;
  for (int p = 0; p < s.products; ++p) {
    kMajor &= s.isBKMajor(p);
    if (s.isBKMajor(p) != s.isBKMajor(0))
      return "the two right operands have their elements in different orders";
  }
  if (sizeOf(s.a) != 2 && !kMajor)
    return std::string(dtypeName(s.a)) + " operands must have K contiguous";
  if (t.tileN < 16 || t.tileN > 256 || t.tileN % 8 != 0 || t.consumers < 1 || t.consumers > 3 || t.blocks < 1 ||
      t.blocks > 2 || t.stages < 2 || t.buffers < 1 || t.groupRows < 1 || t.cluster < 1 || t.cluster > 2 ||
      t.blocksPerSm < 1 || (t.alternate && t.consumers != 2) || (t.consumers > 1 && t.blocksPerSm > 1))
    return "not a tile of this kernel";
  if (t.unroll < 1 || t.chunkColumns() / 16 % t.unroll != 0)
    return "the unrolled groups must divide a chunk";
  if (t.chunks() % t.buffers != 0)
    return "buffers must divide the tile's chunks";
  if (s.columnPart > 0 && (s.columnPart % t.chunkColumns() != 0 || t.tileN % t.chunkColumns() != 0))
    return "chunks of " + std::to_string(t.chunkColumns()) + " columns would lie in two parts of the outputs";
  if (t.keeps && (s.segment == 0 || !s.mayKeep))
    return "there is nothing to keep";
  if (s.segment > 0) {
    if (t.tileN % s.segment != 0)
      return std::to_string(t.tileN) + " columns are no whole segments of " + std::to_string(s.segment);
    if (!s.tiles.empty() && t.buffers % t.chunksOf(s.segment) != 0)
      return "buffers must hold whole segments of what the epilogue reads";
  }
  if (t.cluster == 2 && t.tileN % (s.isBKMajor(0) ? 16 : 128) != 0)
    return "a cluster's halves of the right operand must be whole";
  // A copy's first column must be at a multiple of 16 bytes; a copy that is not is an illegal instruction.
  for (const std::vector<DType> *list : {&s.outputs, &s.tiles})
    for (DType d : *list)
      if (!s.turned && t.tileN * sizeOf(d) % 16 != 0)
        return std::string("tiles of ") + std::to_string(t.tileN) + " columns of " + dtypeName(d) +
               " do not begin at multiples of 16 bytes";
  // Accumulators beside about 40 registers of addresses and the epilogue, of what a thread may have: 255 of 256 threads in a
  // block, 168 of 384, 128 of 512; 240 and 160 where the copying warps give theirs. Of promoted sums the epilogue has half.
  int registers = accumulatorsOf(s, t);
  constexpr int kLeastPiece = 32;
  if (int64_t piece = scalePiece(s, t.tileN); piece < kLeastPiece && piece < t.tileN)
    return "pieces of " + std::to_string(piece) + " columns with a scale each";
  if (s.promotes && t.alternate)
    return "what is added up beside the tensor cores is hidden by the other warpgroup's products, not by turns";
  if (s.computesLeft() && (sizeOf(s.a) != 2 || !s.aKMajor || s.promotes || t.alternate))
    return "the left operand is computed where 16-bit numbers with K contiguous are multiplied by all warpgroups at "
           "once";
  // Of wider tiles the assembler serialises the products (C7513): their common operand's registers are written under the second one.
  constexpr int kMostOfTwo = 64;
  if (s.computesLeft() && s.products == 2 && !s.turned && t.tileN > kMostOfTwo)
    return "two products of more than " + std::to_string(kMostOfTwo) +
           " columns of one left operand that is computed would wait for each other";
  if (s.turned && (!s.computesLeft() || s.batch != 1 || s.segment > 0 || t.cluster > 1))
    return "the result is turned round where its left operand is widened, one product at a time and rows whole";
  if (t.moreRegisters && t.consumers == 1)
    return "one warpgroup has all the registers that it may have";
  // ptxas wants an instruction's own operands within what the threads start with (C7602): half of tileN and 26 others.
  if (t.consumers == 3 && t.tileN > 200)
    return std::to_string(t.tileN) + " columns with three warpgroups";
  int most = t.consumers == 1   ? (t.blocksPerSm > 1 ? 80 : 176)
             : t.consumers == 2 ? (t.moreRegisters ? (s.promotes ? 208 : 176) : 128)
                                : (t.moreRegisters ? 112 : 88);
  if (registers > most)
    return std::to_string(registers) + " accumulators a thread";
  GemmShared shared = gemmShared(s, t);
  if (static_cast<double>(shared.total) > machine.sharedPerBlock)
    return std::to_string(shared.total) + " bytes of shared memory";
  if (static_cast<double>(shared.total + static_cast<int64_t>(machine.sharedReserved)) * t.blocksPerSm >
      machine.sharedPerSm)
    return std::to_string(t.blocksPerSm) + " blocks of " + std::to_string(shared.total) +
           " bytes of shared memory do not fit an SM";
  return {};
}

//===--------------------------------------------------------------------------------------------------------------===//
// Time
//===--------------------------------------------------------------------------------------------------------------===//

namespace {

// Fitted to some 400 measurements on an H200 with kernels of compiler/emit/WgmmaGemm (tests/gpu/GemmGpuTest --sweep; the
// figures are in tests/bench/NOTES.md). With all SMs at work the card is held back by its power; `Sustained` is then, and
// `Alone` is with few at work. Between them what an SM achieves falls with the share of them that are busy, to this power.
constexpr double kPowerShare = 0.7;

/// Of the data sheet's rate: 128x128 tiles of warpgroups in turns, 4096^3; a quarter of the SMs.
constexpr double kRateSustained = 0.78, kRateAlone = 0.96;
/// Bytes a clock that an SM takes in from L2: 64x128 to 64x256 tiles at 4096^3; 128x64 at 128 x 4096 x 4096.
constexpr double kIngestSustained = 57, kIngestAlone = 86;
/// Bytes a clock to and from shared memory, by copies and products together.
constexpr double kSharedSustained = 114, kSharedAlone = 200;
/// Seconds from one launch to the next on a stream beside what the tiles take: the launch, barriers, the first copies.
constexpr double kLaunchSeconds = 3.0e-6;
/// Clocks of a warp's epilogue: a tile, a chunk of 64 columns (the barriers around its store), and what unrolling hides of a
/// group of 16 columns. An instruction takes more than its issue, and thrice that where values wait for the special-function
/// unit (a gelu of a group takes 570 clocks, whether unrolled or not).
constexpr double kTileClocks = 350, kChunkClocks = 150, kGroupClocks = 30, kInstructionClocks = 1.2;
/// Instructions of a group beside the epilogue's own: conversion, staging.
constexpr double kGroupInstructions = 30;
/// Where segments are reduced: of each (exchanges, quotients), and of the groups, which are gone over in loops of one group with next to
/// no registers left: 8192 x 7168 x 2048 and 4096 x 4096 x 1024 with a silu behind, in turns, and 512 x 4096 x 4096, all at once.
constexpr double kSegmentClocks = 600, kSegmentTurns = 1.75, kSegmentTogether = 1.3;
/// The same in turns where two groups are gone over at once.
constexpr double kSegmentPairs = 1.25;
/// Of an element that is kept: the store and the load.
constexpr double kKeptInstructions = 1;
/// Clocks, under load, to those of TargetDesc::clockHz.
constexpr double kClockUnderLoad = 0.88;
/// Bytes/s that a block's stores take out of shared memory: 64 KB of a 128x256 tile in 1.4 us.
constexpr double kStoreBandwidth = 48e9;
/// Of the copy bandwidth, what tiles reach in DRAM: 32 products of 2048 x 2048 x 128.
constexpr double kDramShare = 0.85;
/// What copies of 128 bytes take where they start at multiples of so many bytes only, of what they take at multiples of 128: lines
/// of the L2 cache are of 128 bytes, its sectors of 32. Right operands stored along N, 4096^3 and 8192^3, tiles of 96 to 248 columns
/// (1.6 to 2.0 at 64, 1.6 to 2.0 at 32, 2.3 to 2.85 at 16); rows of 4104 elements of K (2.24 to 2.39).
constexpr double kLinesAt64 = 1.75, kLinesAt32 = 1.85, kLinesAt16 = 2.5;
/// The same of stores: 64 products of 1024 x 1024 x 128, tiles of 96 to 192 columns.
constexpr double kStoresAt64 = 1.08, kStoresAt32 = 1.2, kStoresAt16 = 1.6;
/// Two blocks in step, as measured: no gain where L2 keeps up.
constexpr double kClusterPenalty = 1.01;
/// What the same time is worth less where each load of the package assembles the kernel.
constexpr double kRegistersPenalty = 1.005;
/// Of the additions that promote a stage's sums, and of the clocks around them (the wait, barriers, the instructions that start the
/// next), what other warpgroups' products do not hide: f8, 4096^3 and 8192^3, tiles of 128 rows by 64 to 176 columns. And of those
/// that multiply by scales as well: 4096 x 7168 x 2048, 8192 x 4096 x 7168 and 512 x 11008 x 4096, 128 rows by 96 to 192 columns.
constexpr double kPromotionShown = 0.4, kPromotionClocks = 200, kScalingShown = 0.8;

/// Where the left operand is computed: instructions of an element beside its ops (loads, conversions, addresses); the share of it all
/// that shows beside what takes longer, of two warpgroups and of one alone; how much longer what passes through shared memory takes
/// as loads of threads are among it; and what a vector along K adds to a stage. 4096^3 and 8192 x 1024 x 4096 with a scale of
/// rows, one along K, a silu, a silu times a tensor, from f32; 8192 x 256 x 4096 by one warpgroup.
constexpr double kLeftInstructions = 3.5, kLeftShown = 0.05, kLeftShownAlone = 0.35, kLeftShared = 1.15,
                 kLeftColumnShown = 0.12;

/// Where weights of 8 bits are widened in registers: of the data sheet's rate (fewer bits toggle, and power holds it back less), 4096^3,
/// 2048 and 8192 x 11008 x 4096; and clocks that the warps of a scheduler take for their rows of a stage, each by itself and beside the
/// others, as an instruction takes about five: 512 x 4096 x 11008, 65 to 256 x 11008 x 4096.
constexpr double kRateTurned = 0.85, kTurnedClocks = 430, kTurnedWarpClocks = 140;
/// What shows of the shorter of both, beside other warpgroups: so that of tiles that are as quick the one is taken that widens less often.
/// (8192 x 11008 x 4096: 910 us with 256 columns; 168 columns 990 to 1101, in a run that power held back.)
constexpr double kTurnedShown = 0.02;

/// By the bytes at multiples of which copies start.
double linesFactor(int64_t start) {
  return start >= kCacheLine ? 1 : start >= 64 ? kLinesAt64 : start >= 32 ? kLinesAt32 : kLinesAt16;
}
double storesFactor(int64_t start) {
  return start >= kCacheLine ? 1 : start >= 64 ? kStoresAt64 : start >= 32 ? kStoresAt32 : kStoresAt16;
}

/// Copies of rows `pitch` elements apart that start at multiples of `columns` elements.
int64_t startOf(int64_t pitch, int64_t columns, DType t) {
  return std::gcd(kCacheLine, std::gcd(pitch, columns) * sizeOf(t));
}

/// Of a thread, for the factors of a stage's sums: each comes from the lane that has it, and is chosen where a scale's columns may end.
int factorInstructions(const GemmShape &s, const GemmTile &t) {
  if (s.scaleColumns == 0)
    return 0;
  const int64_t piece = scalePiece(s, t.tileN);
  int64_t chosen = 0;
  for (int64_t n = 0; piece < t.tileN && n < t.tileN; n += piece)
    chosen += (s.scaleColumns - piece + n) / s.scaleColumns > n / s.scaleColumns;
  return 2 * t.blocks * static_cast<int>(scalesOfTile(s, t.tileN) + chosen);
}

double tensorRate(DType t, const TargetDesc &machine) {
  return t == DType::F32 ? machine.tf32Peak : machine.tensorFlops(t);
}

/// Clocks of one warp's epilogue of a tile. `sharing`: warps of a scheduler that are in theirs at the same time.
double epilogueClocks(const GemmShape &s, const GemmTile &t, double sharing) {
  double groups = static_cast<double>(t.chunks()) * t.chunkColumns() / 16;
  // A thread has eight elements of a group; the special-function unit takes a warp's in eight clocks.
  double instructions = kGroupInstructions * static_cast<double>(s.outputs.size()) + 8 * s.ops +
                        12.0 * static_cast<double>(s.tiles.size() + s.columns.size());
  auto perGroup = [&](double count, double special) {
    double chain = kInstructionClocks * count * (1 + 2 * std::min(1.0, special));
    return std::max({kGroupClocks / t.unroll + chain, sharing * count, sharing * 64 * special});
  };
  double all = groups * perGroup(instructions, s.specialOps);
  if (s.segment > 0) {
    double loads = 12.0 * static_cast<double>(s.tiles.size() + s.columns.size());
    double first = groups * perGroup(8 * s.passOps + loads, s.passSpecialOps);
    if (t.keeps)
      all = groups *
            perGroup(kGroupInstructions * static_cast<double>(s.outputs.size()) + 8 * (s.keptOps + kKeptInstructions),
                     s.keptSpecialOps);
    all += first;
    const bool besideProducts = t.alternate || t.blocksPerSm > 1;
    all *= t.unroll > 1 ? (besideProducts ? kSegmentPairs : 1) : besideProducts ? kSegmentTurns : kSegmentTogether;
    all += t.blocks * t.tileN / static_cast<double>(s.segment) * kSegmentClocks;
  }
  return kTileClocks + t.chunks() * kChunkClocks + all;
}

} // namespace

GemmCandidate predictGemm(const GemmShape &s, const GemmTile &t, const TargetDesc &machine) {
  GemmCandidate out;
  out.tile = t;
  double sms = machine.smCount, clock = machine.clockHz, tileK = 128.0 / static_cast<double>(sizeOf(s.a));
  double kBlocks = std::ceil(static_cast<double>(s.k) / tileK);
  double tilesM = std::ceil(static_cast<double>(s.m) / (t.tileM() * t.cluster)) * t.cluster;
  double tilesN = std::ceil(static_cast<double>(s.n) / t.tileN);
  double tiles = static_cast<double>(s.batch) * tilesM * tilesN;
  double perSm = std::min<double>(t.blocksPerSm, std::ceil(tiles / sms)); // blocks that an SM really has
  double slots = sms * perSm, rounds = std::ceil(tiles / slots);
  out.waves = tiles / slots;
  // What promotes is not held back by power.
  double busy = s.promotes ? 1 : out.waves / rounds;
  auto between = [&](double sustained, double alone) {
    return std::min(alone, sustained / std::pow(busy, kPowerShare));
  };

  // DRAM: every tensor once.
  auto dense = [&](double rows, double columns, DType d) {
    return static_cast<double>(s.batch) * rows * columns * static_cast<double>(sizeOf(d));
  };
  auto M = static_cast<double>(s.m), N = static_cast<double>(s.n), K = static_cast<double>(s.k);
  auto operand = [&](int64_t batches, double rows, DType d) {
    return static_cast<double>(batches ? batches : s.batch) * rows * K * static_cast<double>(sizeOf(d));
  };
  double traffic = s.rights() * operand(s.bBatches, N, s.b);
  const std::vector<DType> lefts = s.computesLeft() ? s.leftTiles : std::vector<DType>{s.a};
  for (DType d : lefts)
    traffic += operand(s.aBatches, M, d);
  int64_t step = t.tileN >= s.n ? 0 : t.tileN; // from one tile of a row to the next
  const int64_t along = s.turned ? 64 : step;  // of what is stored
  for (DType d : s.outputs)
    traffic += dense(M, N, d) * storesFactor(startOf(0, along, d));
  for (DType d : s.tiles)
    traffic += dense(M, N, d) * linesFactor(startOf(0, along, d));
  if (s.segment > 0)
    traffic += static_cast<double>(s.batch) * M * N / static_cast<double>(s.segment) * s.segmentBytes;

  // One stage of one block: what multiplies, what comes from L2, what passes through shared memory.
  const GemmShared shared = gemmShared(s, t);
  double flop = 2.0 * t.tileM() * t.tileN * tileK * s.products;
  const double rate = between(s.turned ? kRateTurned : kRateSustained, kRateAlone);
  double products = flop / (tensorRate(s.a, machine) / sms * rate);
  double lines = 0;
  for (DType d : lefts)
    lines += t.tileM() * linesFactor(startOf(s.pitchOfA(), 0, d)) * static_cast<double>(sizeOf(d)) /
             static_cast<double>(sizeOf(s.a));
  for (int p = 0; p < s.rights(); ++p) { // boxes of 64 columns, or whole rows of K
    bool kMajor = s.isBKMajor(p);
    lines += static_cast<double>(kMajor ? t.tileN : roundUp(t.tileN, 64)) / t.cluster *
             linesFactor(startOf(s.pitchOfB(p), kMajor ? 0 : step, s.b));
  }
  double bytes = lines * kCacheLine;
  double ingest = bytes / (between(kIngestSustained, kIngestAlone) * clock);
  // Each product of 64 rows reads its A and all of B.
  double aBytes = static_cast<double>(shared.a), ofA = s.computesLeft() ? aBytes : aBytes * s.products;
  double reads = ofA + 4.0 * t.tileN * 32.0 * (t.tileM() / 64.0) * s.products;
  double written = aBytes + static_cast<double>(s.rights()) * t.tileN * 128;
  double passes = (reads + written) / (between(kSharedSustained, kSharedAlone) * clock);
  if (s.computesLeft())
    passes *= kLeftShared;
  double stage = std::max({products, ingest, passes}) * perSm;
  if (s.turned) {
    const double warps = t.consumers * perSm,
                 left = t.blocks * s.products * (kTurnedClocks + kTurnedWarpClocks * warps) / (clock * kClockUnderLoad);
    stage = std::max(stage, left) + (warps > 1 ? kTurnedShown : kLeftShownAlone) * std::min(stage, left);
  } else if (s.computesLeft()) {
    // The four schedulers of an SM each have a warp of every warpgroup, and a special function takes each eight clocks.
    double elements = 32.0 * t.blocks * t.consumers * perSm;
    double left = elements * (s.leftOps + kLeftInstructions + 8 * s.leftSpecialOps) / (clock * kClockUnderLoad);
    double shown = t.consumers * perSm > 1 ? kLeftShown * left : kLeftShownAlone * std::min(stage, left);
    stage = std::max(stage, left) + shown + kLeftColumnShown * stage * static_cast<double>(s.leftColumns.size());
  }
  if (s.promotes) {
    // All warpgroups' additions by the four schedulers of an SM.
    const double additions = (s.products * t.blocks * t.tileN / 2.0 + factorInstructions(s, t)) * t.consumers * perSm;
    const double alone = t.consumers * perSm > 1 ? 0 : 1 - kPromotionShown;
    const double shown = (s.scaleColumns > 0 ? kScalingShown : kPromotionShown) + alone;
    stage += (shown * additions + (kPromotionShown + alone) * kPromotionClocks) / (clock * kClockUnderLoad);
  }
  // A copy takes its time, and no more are on their way than there are stages. In several rounds most tiles find in the L2 cache what
  // others had from DRAM; in one, all wait for the same.
  double latency = machine.l2Latency;
  if (traffic > machine.usableL2())
    latency +=
        (machine.memoryLatency - latency) * (rounds > 1 ? std::min(1.0, traffic / (bytes * kBlocks * tiles)) : 1);
  stage = std::max(stage, latency / (t.stages - 1));
  double mainloop = kBlocks * stage;

  // The epilogue is hidden where another warpgroup multiplies meanwhile.
  double real = clock * kClockUnderLoad, stored = 0;
  for (DType d : s.outputs)
    stored += static_cast<double>(t.tileM()) * t.tileN * static_cast<double>(sizeOf(d));
  bool together = !t.alternate && t.consumers > 1;
  double epilogue = epilogueClocks(s, t, together ? t.consumers : t.alternate ? 2 : 1) / real;
  if (together)
    epilogue = std::max(epilogue, stored / kStoreBandwidth);
  double hidden = t.alternate ? mainloop : perSm > 1 ? mainloop * (perSm - 1) / perSm : 0;
  double exposed = std::max(0.0, epilogue - hidden);
  if (t.alternate) // two tiles a round of both
    exposed /= 2;
  out.mainloop = rounds * mainloop;
  out.epilogue = (rounds - 1) * exposed + epilogue;
  out.launch = kLaunchSeconds;
  double compute = out.mainloop + out.epilogue;

  out.memory = traffic / (machine.dramCopy * kDramShare);
  // Neither hides the other wholly where they are alike.
  double a = compute * compute, b = out.memory * out.memory;
  out.seconds = out.launch + std::sqrt(std::sqrt(a * a + b * b));
  if (t.cluster > 1)
    out.seconds *= kClusterPenalty;
  if (t.moreRegisters)
    out.seconds *= kRegistersPenalty;
  return out;
}

namespace {

/// Rows of tiles in a group so that those that run at once are about as high as they are wide.
int groupRowsFor(const GemmTile &t, double sms) {
  double rows = std::sqrt(sms * t.tileN / t.tileM());
  int power = 1;
  while (power < 16 && power * 1.5 < rows)
    power *= 2;
  return power;
}

/// Fills in stages and buffers: as many stages as fit, after the buffers that the epilogue wants; false where two do not fit.
bool fill(const GemmShape &s, GemmTile &t, const TargetDesc &machine) {
  constexpr int kMostStages = 8, kWanted = 3;
  double budget =
      t.blocksPerSm == 1 ? machine.sharedPerBlock : machine.sharedPerSm / t.blocksPerSm - machine.sharedReserved;
  int chunks = t.chunks();
  std::vector<int> choices;
  for (int b = chunks; b >= 1; --b)
    if (chunks % b == 0 && (b <= 2 || !s.tiles.empty() || b == 3) &&
        (s.tiles.empty() || b % t.chunksOf(s.segment) == 0))
      choices.push_back(b);
  bool found = false;
  GemmTile best = t;
  for (int buffers : choices) {
    GemmTile c = t;
    c.buffers = buffers;
    for (c.stages = kMostStages; c.stages >= 2; --c.stages)
      if (static_cast<double>(gemmShared(s, c).total) <= budget)
        break;
    if (c.stages < 2)
      continue;
    // Tile operands want to be there before the epilogue; stores are content with little.
    bool better = !found || (best.stages < kWanted && c.stages > best.stages) ||
                  (s.tiles.empty() && c.stages > best.stages && best.stages < 5);
    if (better) {
      best = c;
      found = true;
    }
  }
  if (!found)
    return false;
  t = best;
  // Values of the first pass, where they leave enough stages. (512 x 4096 x 4096, all at once, from DRAM: four stages in the place of
  // six took 34.9 us where computing again takes 32.3.)
  constexpr int kLeastStages = 4;
  if (s.mayKeep && t.alternate) {
    GemmTile c = best;
    for (c.keeps = true; c.stages > kLeastStages; --c.stages)
      if (static_cast<double>(gemmShared(s, c).total) <= budget)
        break;
    if (static_cast<double>(gemmShared(s, c).total) <= budget)
      t = c;
  }
  return true;
}

} // namespace

bool completeGemmTile(const GemmShape &s, GemmTile &t, const TargetDesc &machine) {
  // Long epilogues want registers and are not written twice.
  double work = s.ops + 2 * s.specialOps;
  int accumulators = accumulatorsOf(s, t);
  // What two products have of a column waits for both of them.
  const int beside = s.products > 1 ? 8 * static_cast<int>(s.columns.size()) : 0;
  t.moreRegisters = t.consumers > 1 && (accumulators + beside > (t.consumers == 3 ? 88 : 128) || work > 24);
  t.unroll = work <= 4 && s.tiles.empty() ? 4 : work <= 16 && accumulators <= 96 ? 2 : 1;
  t.unroll = std::min(t.unroll, t.chunkColumns() / 16);
  t.groupRows = groupRowsFor(t, machine.smCount);
  return machine.gpu && machine.sm == 90 && fill(s, t, machine) && gemmRefusal(s, t, machine).empty();
}

std::vector<GemmCandidate> chooseGemmTiles(const GemmShape &s, const TargetDesc &machine, size_t most) {
  std::vector<GemmCandidate> out;
  if (!machine.gpu || machine.sm != 90 || s.m < 1 || s.n < 1 || s.k < 1 || s.batch < 1)
    return out;
  struct Form {
    int consumers, blocks;
    bool alternate;
    int blocksPerSm;
  };
  static constexpr Form forms[] = {{2, 2, true, 1}, {2, 1, false, 1}, {2, 2, false, 1}, {3, 1, false, 1},
                                   {2, 1, true, 1}, {1, 1, false, 1}, {1, 1, false, 2}, {1, 2, false, 1}};
  for (const Form &f : forms)
    for (int tileN = 256; tileN >= 16; tileN -= 8) {
      if (tileN > 64 && tileN - 8 >= s.n) // wider than the product, and the next is too
        continue;
      if ((s.a == DType::I8 || s.a == DType::U8) && tileN > 24 && tileN % 16 != 0)
        continue; // wgmma's shapes for integers
      GemmTile t;
      t.tileN = tileN;
      t.consumers = f.consumers;
      t.blocks = f.blocks;
      t.alternate = f.alternate;
      t.blocksPerSm = f.blocksPerSm;
      if (completeGemmTile(s, t, machine))
        out.push_back(predictGemm(s, t, machine));
    }
  std::sort(out.begin(), out.end(), [](const GemmCandidate &a, const GemmCandidate &b) {
    auto key = [](const GemmCandidate &c) {
      return std::tuple(c.seconds, c.tile.tileM() + c.tile.tileN, c.tile.tileN, c.tile.consumers, c.tile.blocks,
                        c.tile.blocksPerSm);
    };
    return key(a) < key(b);
  });
  if (out.size() > most)
    out.resize(most);
  return out;
}

bool paddingPays(const GemmShape &s, int64_t k, const TargetDesc &machine) {
  GemmShape padded = s;
  padded.k = k;
  padded.aPitch = 0;
  padded.bPitch.clear();
  auto there = chooseGemmTiles(s, machine, 1), then = chooseGemmTiles(padded, machine, 1);
  if (there.empty() || then.empty())
    return false;
  auto copy = [&](int64_t rows, DType t) {
    return static_cast<double>(s.batch * rows * (s.k + k) * sizeOf(t)) / machine.dramCopy + machine.launchNext;
  };
  double copies = s.aKMajor ? copy(s.m, s.a) : 0;
  for (int p = 0; p < s.products; ++p)
    copies += s.isBKMajor(p) ? copy(s.n, s.b) : 0;
  return copies + then[0].seconds < there[0].seconds;
}

} // namespace rl::cost
