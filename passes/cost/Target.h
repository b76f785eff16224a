// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A machine as data. The numbers live in targets/*.json, each beside its source, and are built into the program; code
// holds none of them. A GPU is described as CUDA describes it. A CPU is described in the same words, so that one cost
// model and one set of emitters serve both: an "SM" is a core, a warp is one thread, shared memory is a stack buffer.
#pragma once

#include "runtime/base/DType.h"
#include "runtime/base/Result.h"

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace rl::cost {

/// How a kernel goes over memory, as far as its achieved share of the copy bandwidth depends on it.
enum class Traffic : uint8_t {
  Copy,           ///< pointwise: every element once, in order
  Row,            ///< a row reduced and written, held in registers or shared memory
  LongRow,        ///< a row that one block does not hold comfortably: clusters, or parts read again
  Column,         ///< reduction over leading dimensions
  Full,           ///< reduction of everything
  ReadStatistics, ///< rows read, next to nothing written
  ColumnPartials, ///< rows read and written while column sums are carried
  Transpose,      ///< through shared memory
  Gather,         ///< rows picked by an index
  Matrix,         ///< operands of a matmul
  MatrixOnce,     ///< the same, of which the larger leaves the L2 cache first
};
inline constexpr int kTrafficCount = 11;
const char *trafficName(Traffic);

struct TargetDesc {
  std::string name;        ///< "h200"
  std::string description; ///< "NVIDIA H200 SXM, 141 GB"
  std::string arch;        ///< what code is generated for: "sm_90a"; "x86-64" for a CPU
  bool gpu = true;
  int sm = 0;                           ///< 80, 89, 90; 0 for a CPU
  std::vector<std::string> aliases;     ///< further names: an arch that has no machine of its own names its typical one
  std::vector<std::string> deviceNames; ///< parts of the driver's device name, most specific first

  // Units and clock
  double smCount = 0;
  double clockHz = 0;
  double fp32Lanes = 0;                         ///< f32 instructions (an fma is one) a clock and SM
  double issueLanes = 0;                        ///< instructions of any kind, in lanes, a clock and SM
  double specialLanes = 0;                      ///< ex2, lg2, rcp, rsqrt, tanh, sin, cos a clock and SM
  double fp32Peak = 0;                          ///< flop/s, an fma counted as two
  std::array<double, kDTypeCount> tensorPeak{}; ///< dense flop/s by operand type; 0: no such unit
  double tf32Peak = 0;
  double tensorAchieved = 1; ///< share of tensorPeak that a good matmul sustains

  // Memory. Bytes and bytes/s
  double dramPeak = 0;                ///< the data sheet's
  double dramCopy = 0;                ///< achieved, reading and writing alike
  double dramRead = 0, dramWrite = 0; ///< achieved, of one kind alone
  double l2Bytes = 0;
  double l2Usable = 0;                            ///< share of l2Bytes within which what was touched is still there
  double l2Bandwidth = 0;                         ///< achieved
  double bytesInFlight = 0;                       ///< an SM must have asked for this many at once to keep DRAM busy
  std::array<double, kTrafficCount> efficiency{}; ///< achieved share of dramCopy

  // Granularity. Bytes
  double sectorBytes = 0, lineBytes = 0;
  double vectorBytes = 0; ///< widest access of one thread

  // Limits
  double sharedPerSm = 0, sharedPerBlock = 0, sharedReserved = 0,
         sharedGranule = 0;                                               ///< reserved: by the system, a block
  double registersPerSm = 0, registersPerThread = 0, registerGranule = 0; ///< granule: of a warp's allocation
  double maxThreadsPerBlock = 0, maxThreadsPerSm = 0, maxBlocksPerSm = 0, warpSize = 0;
  double maxParameterBytes = 0;
  double maxGridX = 0;
  std::map<int, double>
      activeClusters; ///< cluster size -> clusters that run at once, one block an SM; empty: no clusters

  // Fixed times. Seconds
  double launchFirst = 0;      ///< from nothing to the end of an empty kernel
  double launchNext = 0;       ///< between the end of one kernel of a plan and the start of the next
  double launchNextEarly = 0;  ///< the same with programmatic dependent launch
  double memoryLatency = 0;    ///< load from DRAM, compute, store: what the emptiest of kernels adds to an empty one
  double l2Latency = 0;        ///< the same where all that is read lies in L2
  double blockReduction = 0;   ///< one reduction across a block and its barriers
  double clusterReduction = 0; ///< the same across a cluster; 0: there are none
  double blockStart = 0;       ///< from the start of one block to that of the next, wherever they run
  double smBandwidth = 0;      ///< what one SM reads and writes of L2, bytes a second; 0: not known

  std::map<std::string, std::string> sources; ///< field -> where its number comes from

  double tensorFlops(DType) const; ///< tensorPeak, or that of the type which operands are widened to; 0: f32 lanes
  /// The flop/byte at which compute and memory take equally long, by the data sheet's peaks: tensor flop for 16 bits
  /// and less, f32 flop for f32.
  double ridgePoint(DType) const;
  double usableL2() const { return l2Bytes * l2Usable; }
  double efficiencyOf(Traffic t) const { return efficiency[static_cast<size_t>(t)]; }
};

/// Reads one description. Strict: every field is there once, each number a positive one with a non-empty source. Errors
/// are Code::Invalid with the JSON pointer of the place.
Result<TargetDesc> parseTarget(std::string_view json);

/// The machines built in, in the order of their names.
const std::vector<TargetDesc> &allTargets();

/// By name or alias, in any case: "h200", "sm_90a", "cpu". Error: Code::Usage, with the names that there are.
Result<TargetDesc> findTarget(std::string_view name);

/// What the driver says about the GPU at hand. Zeros: not known.
struct DeviceFacts {
  std::string name; ///< "NVIDIA H200"
  int major = 0, minor = 0;
  int smCount = 0;
  int64_t l2Bytes = 0, sharedPerBlock = 0;
  double clockHz = 0, dramPeak = 0;
};
/// The description of a GPU by its name, else of one of its compute capability or the nearest below it, with the facts
/// put in the place of the numbers (achieved bandwidths and peaks scale with them). Error: Code::Unsupported below
/// sm_80.
Result<TargetDesc> targetForDevice(const DeviceFacts &);

/// The CPU with this many cores; peaks scale, memory bandwidth does not.
TargetDesc cpuTarget(int cores);

} // namespace rl::cost
