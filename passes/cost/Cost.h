// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The cost model: how long will a kernel take? Every pass asks this one function, so no two decisions disagree.
//
//   total = launch + latency + max(memory, l2, starts, issue, special, tensor) + reductions + tail
//
//   launch      an empty kernel (TargetDesc::launchFirst; launchNext for the later kernels of a plan)
//   latency     one trip: load, compute, store (memoryLatency, or l2Latency where nothing is read from DRAM)
//   memory      DRAM bytes / (dramCopy x the efficiency of the kernel's kind of traffic)
//   l2          bytes through the L2 cache / its bandwidth
//   starts      blocks x the time from the start of one to that of the next (TargetDesc::blockStart)
//   issue, special, tensor   instructions by unit / that unit's rate over the SMs
//   reductions  dependent block-wide reductions
//   tail        what an uneven or small grid adds: see estimate()
//
// It is deterministic, and fits what was measured on an H200 within 10 % on the rows that CostTest lists.
//
// WORKED CASE. gelu on bf16 [16384, 11008]: 180.4 M elements, 2 x 360.7 MB, 721.4 MB / 4.24 TB/s = 170.1 us; issue: 11
// instructions each, 1.98e9 / 33.5e12 = 59 us; special: one tanh each, 180.4e6 / (132 x 16 x 1.98e9) = 43 us. Bound by
// memory, 4.1 + 1.2 + 170.1 = 175.4 us; a hand-written kernel took 174.
#pragma once

#include "ir/index/Access.h"
#include "passes/cost/Target.h"

#include <algorithm>

namespace rl::cost {

/// What a kernel does, in total over its grid.
struct WorkEstimate {
  Traffic traffic = Traffic::Copy;
  double bytesRead = 0, bytesWritten = 0; ///< DRAM, after cache effects (addRead, addWrite below)
  double l2Bytes = 0;    ///< served by L2 beyond the DRAM bytes: repeated reads, resident intermediates
  double ops = 0;        ///< lane instructions: f32, integer, comparison, conversion; an fma is one
  double specialOps = 0; ///< uses of the special-function unit
  std::array<double, kDTypeCount> tensorFlops{}; ///< by operand type; f32 is computed on the f32 lanes
  int reductions = 0;                            ///< dependent reductions across a block, each with its barriers

  double blocks = 0; ///< 0: enough, and even
  int threadsPerBlock = 256;
  int registers = 0;      ///< a thread's; 0: not known, no limit
  double sharedBytes = 0; ///< a block's
  int clusterSize = 1;
  double bytesInFlight = 0; ///< that a block asks for before it waits; 0: 64 bytes a thread

  double bytes() const { return bytesRead + bytesWritten; }
  double flops() const;                           ///< ops + specialOps + tensorFlops
  WorkEstimate &operator+=(const WorkEstimate &); ///< adds the work; grid, traffic and limits stay this one's
};

/// How many blocks run at once, and what limits them.
struct Occupancy {
  int blocksPerSm = 0; ///< 0: a block does not fit at all
  double fraction = 0; ///< resident threads / maxThreadsPerSm
  enum Limit : uint8_t { Threads, Blocks, Registers, Shared, Cluster, None } limit = None;
};
const char *limitName(Occupancy::Limit);
Occupancy occupancy(const TargetDesc &, int registers, int threadsPerBlock, double sharedBytes);

/// Blocks that run at once on the whole machine; clusters run only as many as activeClusters says.
double residentBlocks(const TargetDesc &, const WorkEstimate &);
/// blocks / residentBlocks: 2.3 is two full rounds and 0.3 of one.
double waves(const TargetDesc &, const WorkEstimate &);

enum class Bound : uint8_t { Memory, L2, Issue, Special, Tensor, Launch };
const char *boundName(Bound);

struct Estimate {
  // Seconds
  double launch = 0, latency = 0, memory = 0, l2 = 0, issue = 0, special = 0, tensor = 0, reductions = 0, tail = 0;
  double starts = 0; ///< of all blocks, one after the other
  double total = 0;
  Bound bound = Bound::Memory; ///< the greatest of the terms; Launch: launch and latency exceed them all
  bool fits = true;            ///< a block fits on an SM; otherwise the times mean nothing
  double intensity = 0;        ///< flop per DRAM byte; 0 where no byte moves

  double transfer() const { return std::max({memory, l2, starts}); }
  double compute() const { return std::max({issue, special, tensor}); }
  /// "175.4 us: memory 170.1, launch 4.1, latency 1.2 (issue 59.3, special 43.1)".
  std::string str() const;
};

/// `first`: the first kernel of a plan. `early`: the kernel starts by programmatic dependent launch.
///
/// Tail: with compute as the bound, the SM with the most blocks decides: ceil(blocks/SMs) against blocks/SMs. With
/// memory as the bound, Little's law: a block that must go r times for its data takes at least r latencies.
Estimate estimate(const WorkEstimate &, const TargetDesc &, bool first = true, bool early = false);

/// Whether a kernel behind another of a plan is launched while that one still runs (programmatic dependent launch): `seconds` is
/// its estimate alone, `blocks` how many of products it has (0: of none), `longest` the longest estimate of the launches before it.
/// No reason is given where the machine knows no such launches.
struct EarlyLaunch {
  bool is = false;
  /// Not 0: so many blocks at most shall fit on an SM.
  int blocksPerSm = 0;
  std::vector<std::string> why;
};
EarlyLaunch earlyLaunch(double seconds, double blocks, double longest, const TargetDesc &);

/// Kernels one after another.
double estimatePlan(const std::vector<WorkEstimate> &, const TargetDesc &);

//===--------------------------------------------------------------------------------------------------------------===//
// Bytes
//===--------------------------------------------------------------------------------------------------------------===//

/// How the threads of a warp go over memory in one instruction: thread t accesses `accessBytes` at base +
/// t*strideBytes.
struct AccessPattern {
  int64_t accessBytes = 16; ///< one thread's contiguous access: elements a vector x element size
  int64_t strideBytes = 16; ///< from a thread to the next; 0: all the same
  int64_t alignBytes = 16;  ///< the base is a multiple of this power of two
  bool gather = false;      ///< each thread somewhere else; strideBytes means nothing
};

/// What one such request of a warp costs, averaged over the bases that the alignment admits.
struct AccessCost {
  double usedBytes = 0; ///< distinct bytes asked for
  double sectors = 0;   ///< TargetDesc::sectorBytes units touched: L1 and L2 traffic
  double lines = 0;     ///< TargetDesc::lineBytes units touched: what is fetched when nothing of the line is cached
  double sectorEfficiency = 0; ///< usedBytes / bytes of those sectors
  double lineEfficiency = 0;   ///< usedBytes / bytes of those lines
};
/// Hand cases on bf16 [.., 4096]: a column, one element per row, uses 2 of each 128 bytes fetched, 1.6 %; a row read by
/// 16-byte vectors uses all.
AccessCost accessCost(const AccessPattern &, const TargetDesc &);

/// The pattern of one memory instruction, where each thread has V consecutive iterations and the next thread the next
/// V. Contiguous accesses take as much at once as their alignment and vectorBytes allow; the others one element.
AccessPattern accessPattern(const index::Access &, int64_t V, int64_t elementBytes, const TargetDesc &);

/// One tensor as a kernel reads it.
struct TensorRead {
  double footprint = 0;     ///< distinct bytes fetched (with the waste of partly used lines)
  double reads = 1;         ///< how often each is asked for, by different blocks or at different times
  double reuseDistance = 0; ///< distinct bytes that the kernel touches between two uses of a byte
  bool resident = false;    ///< still in L2 from the kernel before (staysInL2)
};
/// First uses come from DRAM unless resident; repeated ones from L2 while the distance is within its usable size, from
/// DRAM from twice that on, and in proportion between.
void addRead(WorkEstimate &, const TensorRead &, const TargetDesc &);
/// A result is written back to DRAM sooner or later, whoever reads it next.
void addWrite(WorkEstimate &, double bytes);
/// Will a tensor just written, or read, be found in L2 after `touched` distinct bytes, its own included?
bool staysInL2(double touched, const TargetDesc &);

} // namespace rl::cost
