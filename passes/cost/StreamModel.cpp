// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/cost/StreamModel.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace rl::cost {

namespace {

int64_t roundUp(int64_t v, int64_t to) { return (v + to - 1) / to * to; }

/// Beyond these many stages of a block nothing more is on its way.
constexpr int kMostStages = 16;
/// Of the right operand, in bytes along K.
constexpr int64_t kStageBytes = 128;

// What the parts take; measured on an H200 (tests/bench/NOTES.md).
/// Of the copy bandwidth, what the stream reaches.
constexpr double kStreamed = 0.97;
/// Bytes a clock that an SM takes in (as in GemmModel.cpp).
constexpr double kIngest = 57;
/// Multiply-adds a clock that the tensor cores of an SM do for mma.sync, and warp instructions a clock beside them, of so many warps;
/// fewer leave the share kAlone and what they are of the rest.
constexpr double kMacs = 670, kIssue = 2.2, kIssueWarps = 24, kAlone = 0.3;
/// What memory takes longer where each warp has one stage, of less than so many bytes an SM in all: 32 rows by 11008 x 4096 of 8 bits, 42
/// columns and four stages in each of two blocks, 24.0 us.
constexpr double kShortRing = 0.5, kShortRingBytes = 64e3;
/// Ahead of the first stage and behind the last: barriers, sums are exchanged and added, the epilogue waits for its loads. And again
/// for each further block that an SM has in the same place, where no other hides it.
constexpr double kEndSeconds = 1.8e-6, kTurnSeconds = 2e-6;
/// Where weights are loaded to registers: of the copy bandwidth, what is reached; at the end, where less is on its way, seconds, and
/// bytes of a block a second, of blocks larger than that; for each round that is not asked for at the start; and where an SM has
/// fewer warps than hide each other, seconds for each that is missing.
constexpr double kDirect = 0.98, kDirectEndSeconds = 0.8e-6, kDirectEndBytes = 50e9, kDirectBlock = 17e3,
                 kRoundSeconds = 0.5e-6, kDirectWarps = 32, kWarpSeconds = 0.07e-6;
/// Rows that such a kernel has.
constexpr int64_t kMostDirectRows = 1;

/// Registers of a thread that multiplies: sums, fragments of both sides, scales, addresses; and what ptxas wants to be free with, or
/// it spills.
int64_t registersOf(const StreamShape &s, const StreamTile &t) {
  if (t.direct) {
    const int rows = t.tileN * s.products;
    int64_t stages = t.stages, addresses = 0;
    // Of two products' weights that are widened the next round comes while one is multiplied, and addresses and scales stay; else
    // there is room.
    if (s.widens() && s.products > 1 && s.k > 512 * t.parts() * stages) {
      addresses = 2 * rows + 8;
      stages *= 2;
    }
    return (4 * rows + (s.widens() ? 8 : 4)) * stages + 2 * rows + addresses + 16;
  }
  int64_t sums = s.products * t.blocksOfWarp() * s.rows() / 2;
  const int64_t pairs = s.rows() > 8 ? (s.rows() + 15) / 16 * 16 : s.rows(),
                left = s.widens() ? pairs : pairs / 2; // loaded sixteen rows at a time
  int64_t scales = s.widens() ? 2 * s.products * t.blocksOfWarp() : 0;
  return sums + left + scales + 32 + 8 * s.products + sums / 8;
}

/// What a thread may have, by the blocks that an SM holds.
int64_t registersFor(const StreamTile &t, const TargetDesc &machine) {
  auto all = static_cast<int64_t>(machine.registersPerSm) / (t.threads() * t.blocksPerSm) / 8 * 8;
  return std::min<int64_t>(all, static_cast<int64_t>(machine.registersPerThread));
}

} // namespace

std::string StreamTile::str() const {
  std::string out = std::to_string(tileN) + " columns a block, " + std::to_string(stages) +
                    (!direct       ? " stages, "
                     : stages == 1 ? " round, "
                                   : " rounds, ") +
                    std::to_string(parts()) + " parts of K";
  if (blocksPerSm > 1)
    out += ", " + std::to_string(blocksPerSm) + " blocks an SM";
  return out;
}

std::string StreamCandidate::str() const {
  char text[160];
  std::snprintf(text, sizeof text, "%s (%.0f blocks; memory %.1f us, into an SM %.1f, instructions %.1f, end %.1f)",
                tile.str().c_str(), blocks, memory * 1e6, ingest * 1e6, compute * 1e6, end * 1e6);
  return text;
}

StreamShared streamShared(const StreamShape &s, const StreamTile &t) {
  constexpr int64_t period = 1024; // of the 128-byte swizzle
  StreamShared out;
  if (!t.direct) {
    out.right = roundUp(t.rows() * kStageBytes, period);
    // As many elements of the left operand as bytes (i8) or pairs of bytes of the right one.
    out.left = s.rows() * kStageBytes * (s.widens() ? 2 : 1);
    out.stage = s.products * out.right + out.left;
  }
  // Neighbouring rows of sums four banks apart: a warp's threads write eight columns of four pairs of rows.
  out.stride = t.direct ? t.tileN : t.rows() + 4;
  out.sums = roundUp(t.parts() * s.products * s.m * out.stride * 4, period);
  out.barriers = std::max(out.stage * t.stages, out.sums);
  out.total = out.barriers + (t.direct ? 0 : 16 * t.stages);
  return out;
}

/// Memory and what an SM does: neither hides the other wholly where they are alike. Then the end.
static void addUp(StreamCandidate &c) {
  const double a = c.memory * c.memory, b = std::max(c.ingest, c.compute);
  c.seconds = std::sqrt(std::sqrt(a * a + b * b * b * b)) + c.end;
}

/// The time where weights are loaded to registers.
static StreamCandidate predictDirect(const StreamShape &s, const StreamTile &t, const TargetDesc &machine) {
  StreamCandidate out;
  out.tile = t;
  const double clock = machine.clockHz, K = static_cast<double>(s.k), rightBytes = s.widens() ? 1 : 2;
  out.blocks = std::ceil(static_cast<double>(s.n) / t.tileN);
  // Blocks follow each other where one has ended: the busiest SM has one more than its share at most.
  const double turns = std::max(1.0, out.blocks / machine.smCount), resident = std::min(turns, 1.0 * t.blocksPerSm);
  const double ofBlock = t.tileN * s.products * K * rightBytes;
  const double rounds = std::ceil(K * rightBytes / (512.0 * t.warps));
  const double inFlight = resident * ofBlock * std::min(1.0, t.stages / rounds);
  out.memory = std::max(s.bytes / (machine.dramCopy * kDirect), turns * ofBlock / inFlight * machine.memoryLatency);
  out.ingest = turns * (ofBlock + 2 * K) / (kIngest * clock);
  // A weight's share of its load, its conversion, its product and of what adds up parts; whole rounds are computed.
  const double weights = turns * t.tileN * s.products * rounds * 512 * t.warps / rightBytes;
  out.compute = weights / 32 * (rightBytes / 16 + (s.widens() ? 2.4 : 0.3)) / (kIssue * clock);
  out.end = kDirectEndSeconds + std::max(0.0, ofBlock - kDirectBlock) / kDirectEndBytes +
            (rounds - std::min<double>(rounds, t.stages)) * kRoundSeconds +
            std::max(0.0, kDirectWarps - t.blocksPerSm * t.warps) * kWarpSeconds +
            s.ops * static_cast<double>(s.m) * turns * t.tileN / (machine.issueLanes * clock);
  addUp(out);
  return out;
}

StreamCandidate predictStream(const StreamShape &s, const StreamTile &t, const TargetDesc &machine) {
  if (t.direct)
    return predictDirect(s, t, machine);
  StreamCandidate out;
  out.tile = t;
  double clock = machine.clockHz;
  out.blocks = std::ceil(static_cast<double>(s.n) / t.tileN);
  double turns = std::ceil(out.blocks / machine.smCount); // blocks of the busiest SM, side by side or in turn
  double columns = turns * t.tileN, padded = turns * t.rows();
  double rightBytes = s.widens() ? 1 : 2, K = static_cast<double>(s.k), rows = static_cast<double>(s.rows());
  // All of memory, or what one SM has on its way.
  double inFlight = static_cast<double>(t.stages * t.tileN * s.products * kStageBytes) * t.blocksPerSm;
  out.memory = std::max(s.bytes / (machine.dramCopy * kStreamed),
                        columns * s.products * K * rightBytes / inFlight * machine.memoryLatency);
  // Where a warp has one stage at a time it asks for none while it multiplies.
  if (t.stages == t.parts())
    out.memory *= 1 + kShortRing * std::max(0.0, 1 - inFlight / kShortRingBytes);
  out.ingest = (columns * s.products * K * rightBytes + turns * static_cast<double>(s.m) * K * 2) / (kIngest * clock);
  double weights = padded * s.products * K;
  // A weight's share of a load of 16 bytes and of its conversion, its products, and the loads of the left operand.
  double instructions = weights / 32 * (rightBytes / 16 + (s.widens() ? 2.0 : 0.0)) + weights * rows / 2048 +
                        turns * t.warpsN * K * rows / 8 / 32;
  const double issued = kIssue * std::min(1.0, kAlone + (1 - kAlone) * t.warps * t.blocksPerSm / kIssueWarps);
  out.compute = std::max(weights * rows / (kMacs * clock), instructions / (issued * clock));
  double rounds = std::ceil(out.blocks / (machine.smCount * t.blocksPerSm));
  out.end = kEndSeconds + (rounds - 1) * kTurnSeconds / t.blocksPerSm +
            s.ops * static_cast<double>(s.m) * columns / (machine.issueLanes * clock);
  addUp(out);
  return out;
}

/// Tiles of kernels that load weights to registers.
static void directCandidates(const StreamShape &s, int64_t live, const TargetDesc &machine,
                             std::vector<StreamCandidate> &out) {
  constexpr int64_t kLongest = int64_t(1) << 28; // of which 32 bits count the bytes
  // A thread's 16 bytes are within the row as a whole, or none of them is: behind them lies another column's, and behind the left operand
  // nothing.
  if (s.m > kMostDirectRows || s.k > kLongest || s.k * (s.widens() ? 1 : 2) % 16 != 0)
    return;
  constexpr int64_t kEpilogueRegisters = 40; // beside what is alive there
  constexpr int kMostLoads = 8;              // of a thread on their way
  constexpr double kLeastUsed = 0.8;
  const int64_t slices = (s.k * (s.widens() ? 1 : 2) + 511) / 512;
  for (int warps : {8, 16, 4})
    for (int columns : {4, 2, 8})
      for (int ahead = 1; ahead * columns * s.products <= kMostLoads; ++ahead) {
        const int64_t rounds = (slices + warps - 1) / warps;
        // Warps that have nothing of the last round have less on its way.
        if (ahead > rounds ||
            (warps > 4 && static_cast<double>(slices) < kLeastUsed * static_cast<double>(rounds * warps)))
          continue;
        StreamTile t;
        t.direct = true;
        t.tileN = columns;
        t.warps = warps;
        t.stages = ahead;
        int64_t registers = roundUp(std::max(registersOf(s, t), live + kEpilogueRegisters), 8);
        if (registers > static_cast<int64_t>(machine.registersPerThread))
          continue;
        t.blocksPerSm = static_cast<int>(std::min(machine.registersPerSm / static_cast<double>(t.threads() * registers),
                                                  machine.maxThreadsPerSm / t.threads()));
        out.push_back(predictStream(s, t, machine));
      }
}

std::vector<StreamCandidate> streamCandidates(const StreamShape &s, bool even, int64_t live,
                                              const TargetDesc &machine) {
  std::vector<StreamCandidate> out;
  if (!machine.gpu || machine.sm != 90 || s.m < 1 || s.m > kMostStreamRows || s.n < 1 || s.k < 1)
    return out;
  // Of 16 columns a block (11008 of them, K = 4096) kernels took 23 to 84 us instead of 19 to 29.
  constexpr int kMostColumns = 128, kLeastColumns = 24, kMostTurns = 64;
  // Of the right operand and an SM. With twice as much on its way the same kernels took 0.5 to 1.6 us longer.
  constexpr double kInFlight = 100e3;
  constexpr int64_t kEpilogueRegisters = 40; // beside what is alive there
  auto consider = [&](StreamTile t) {
    if (registersOf(s, t) > registersFor(t, machine))
      t.warpsN = 2;
    if (std::max(registersOf(s, t), live + kEpilogueRegisters) > registersFor(t, machine))
      return;
    double budget =
        t.blocksPerSm == 1 ? machine.sharedPerBlock : machine.sharedPerSm / t.blocksPerSm - machine.sharedReserved;
    auto fits = [&] { return static_cast<double>(streamShared(s, t).total) <= budget; };
    // Slots of the ring belong to warps: a warp that waits for one must not meet another's stage there.
    auto onItsWay = [&] { return static_cast<double>(t.stages * t.tileN * s.products * kStageBytes) * t.blocksPerSm; };
    t.stages = t.parts();
    if (!fits() || (t.blocksPerSm > 1 && onItsWay() > kInFlight))
      return;
    do
      t.stages += t.parts();
    while (fits() && t.stages <= kMostStages && onItsWay() <= kInFlight);
    t.stages -= t.parts();
    if (std::none_of(out.begin(), out.end(), [&](const StreamCandidate &c) { return c.tile == t; }))
      out.push_back(predictStream(s, t, machine));
  };
  if (!s.kMajor) { // whole lines of memory, or halves
    for (int columns : {64, 32})
      for (int warps : {8, 4})
        for (int perSm : {3, 2, 1}) {
          StreamTile t;
          t.tileN = columns;
          t.warps = warps;
          t.blocksPerSm = perSm;
          if (perSm <=
              std::ceil(std::ceil(static_cast<double>(s.n) / columns) / machine.smCount)) // or there are not as many
            consider(t);
        }
    return out;
  }
  // Warps that share a stage need fewer stages, so that two products of which much is on its way have more warps too.
  for (auto [warps, warpsN] : {std::pair{8, 1}, {8, 2}, {16, 2}})
    for (int perSm : {3, 2, 1}) // several blocks of an SM hide each other's beginnings and ends
      for (int turns = 1; turns <= kMostTurns; ++turns) {
        StreamTile t;
        t.warps = warps;
        t.warpsN = warpsN;
        t.blocksPerSm = perSm;
        double slots = machine.smCount * perSm * turns;
        t.tileN =
            static_cast<int>(roundUp(static_cast<int64_t>(std::ceil(static_cast<double>(s.n) / slots)), even ? 2 : 1));
        if (t.tileN > kMostColumns)
          continue;
        if (t.tileN < kLeastColumns && (perSm > 1 || turns > 1))
          break;
        t.tileN = std::max(t.tileN, kLeastColumns);
        consider(t);
      }
  directCandidates(s, live, machine, out);
  return out;
}

std::optional<StreamCandidate> chooseStream(const StreamShape &s, bool even, int64_t live, const TargetDesc &machine) {
  std::optional<StreamCandidate> best;
  for (const StreamCandidate &c : streamCandidates(s, even, live, machine))
    if (!best || c.seconds < 0.99 * best->seconds)
      best = c;
  return best;
}

} // namespace rl::cost
