// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The roofline with its fixed costs; occupancy; coalescing; cache effects.
#include "passes/cost/Cost.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

namespace rl::cost {

double WorkEstimate::flops() const {
  double f = ops + specialOps;
  for (double t : tensorFlops)
    f += t;
  return f;
}

WorkEstimate &WorkEstimate::operator+=(const WorkEstimate &o) {
  bytesRead += o.bytesRead;
  bytesWritten += o.bytesWritten;
  l2Bytes += o.l2Bytes;
  ops += o.ops;
  specialOps += o.specialOps;
  for (size_t i = 0; i < tensorFlops.size(); ++i)
    tensorFlops[i] += o.tensorFlops[i];
  reductions += o.reductions;
  return *this;
}

const char *limitName(Occupancy::Limit l) {
  static constexpr const char *names[] = {"threads", "blocks", "registers", "shared memory", "clusters", "nothing"};
  return names[l];
}

const char *boundName(Bound b) {
  static constexpr const char *names[] = {"memory", "l2", "issue", "special functions", "tensor", "launch"};
  return names[static_cast<size_t>(b)];
}

static double roundUp(double v, double granule) { return std::ceil(v / granule) * granule; }

Occupancy occupancy(const TargetDesc &t, int registers, int threadsPerBlock, double sharedBytes) {
  Occupancy o;
  if (threadsPerBlock < 1 || threadsPerBlock > t.maxThreadsPerBlock) {
    o.limit = Occupancy::Threads;
    return o;
  }
  if (registers > t.registersPerThread) {
    o.limit = Occupancy::Registers;
    return o;
  }
  if (sharedBytes > t.sharedPerBlock) {
    o.limit = Occupancy::Shared;
    return o;
  }
  double warps = std::ceil(threadsPerBlock / t.warpSize);
  double best = t.maxBlocksPerSm;
  o.limit = Occupancy::Blocks;
  auto limit = [&](double blocks, Occupancy::Limit by) {
    if (blocks < best) {
      best = blocks;
      o.limit = by;
    }
  };
  limit(std::floor(t.maxThreadsPerSm / (warps * t.warpSize)), Occupancy::Threads);
  if (registers > 0) {
    // Registers are handed to a warp in granules, out of four equal parts of the file (one a scheduler) on a GPU.
    double perWarp = roundUp(registers * t.warpSize, t.registerGranule);
    double parts = t.gpu ? 4 : 1;
    double warpsHeld = std::floor(t.registersPerSm / parts / perWarp) * parts;
    limit(std::floor(warpsHeld / warps), Occupancy::Registers);
  }
  if (sharedBytes > 0)
    limit(std::floor(t.sharedPerSm / (roundUp(sharedBytes, t.sharedGranule) + t.sharedReserved)), Occupancy::Shared);
  o.blocksPerSm = static_cast<int>(best);
  o.fraction = best * warps * t.warpSize / t.maxThreadsPerSm;
  return o;
}

double residentBlocks(const TargetDesc &t, const WorkEstimate &w) {
  double blocks = occupancy(t, w.registers, w.threadsPerBlock, w.sharedBytes).blocksPerSm * t.smCount;
  if (w.clusterSize <= 1)
    return blocks;
  // activeClusters is for one block an SM. A graphics processing cluster's odd SMs hold no whole cluster.
  auto it = t.activeClusters.find(w.clusterSize);
  if (it == t.activeClusters.end())
    return 0;
  return it->second * w.clusterSize * (blocks / t.smCount);
}

double waves(const TargetDesc &t, const WorkEstimate &w) {
  double resident = residentBlocks(t, w);
  return resident > 0 ? w.blocks / resident : 0;
}

Estimate estimate(const WorkEstimate &w, const TargetDesc &t, bool first, bool early) {
  Estimate e;
  double resident = residentBlocks(t, w);
  e.fits = resident > 0;
  e.launch = first ? t.launchFirst : early ? t.launchNextEarly : t.launchNext;
  bool anything = w.bytes() + w.l2Bytes + w.flops() > 0;
  if (anything)
    e.latency = w.bytesRead > 0 || w.l2Bytes == 0 ? t.memoryLatency : t.l2Latency;
  e.reductions = w.reductions * (w.clusterSize > 1 ? t.clusterReduction : t.blockReduction);

  // Mixed traffic reaches dramCopy. Of one kind alone, more: by the share that exceeds an even mix. ReadStatistics is
  // measured as such, against the copy.
  double bandwidth = t.dramCopy;
  if (w.traffic == Traffic::Copy && w.bytes() > 0) {
    double readShare = w.bytesRead / w.bytes();
    double pure = readShare >= 0.5 ? t.dramRead : t.dramWrite, excess = std::abs(readShare - 0.5) * 2;
    // Linear in time per byte; up to three reads a write behave as a copy does.
    excess = std::max(0.0, (excess - 0.5) * 2);
    bandwidth = 1 / ((1 - excess) / t.dramCopy + excess / pure);
  }
  e.memory = w.bytes() / (bandwidth * t.efficiencyOf(w.traffic));
  e.l2 = (w.bytes() + w.l2Bytes) / t.l2Bandwidth;

  double lanes = t.smCount * t.clockHz;
  double f32Fmas = w.tensorFlops[static_cast<size_t>(DType::F32)] / 2;
  e.issue =
      std::max((w.ops + w.specialOps + f32Fmas) / (lanes * t.issueLanes), (w.ops + f32Fmas) / (lanes * t.fp32Lanes));
  e.special = w.specialOps / (lanes * t.specialLanes);
  // A CPU has no unit of its own for them: they are more of the same instructions.
  if (!t.gpu && e.special > 0)
    e.special += e.issue;
  for (size_t i = 0; i < w.tensorFlops.size(); ++i) {
    DType type = static_cast<DType>(i);
    if (type == DType::F32 || w.tensorFlops[i] == 0)
      continue;
    double peak = t.tensorFlops(type);
    e.tensor += w.tensorFlops[i] / (peak > 0 ? peak * t.tensorAchieved : t.fp32Peak);
  }

  e.starts = w.blocks * t.blockStart;
  double body = std::max(e.transfer(), e.compute());
  if (w.blocks > 0 && e.fits) {
    // Compute: the busiest SM has whole blocks, and clusters occupy only part of the machine.
    double sms =
        w.clusterSize > 1 ? std::min(t.smCount, t.activeClusters.at(w.clusterSize) * w.clusterSize) : t.smCount;
    double busiest = std::ceil(w.blocks / sms) * t.smCount / w.blocks;
    double compute = e.compute() * busiest;
    // Memory: so many trips, each a latency long, for what one resident block's share is of the bytes. The first is
    // `latency`.
    double perTrip = w.bytesInFlight > 0 ? w.bytesInFlight : 64.0 * w.threadsPerBlock;
    double active = std::min(w.blocks, resident);
    double trips = std::ceil((w.bytesRead + w.l2Bytes) / (active * perTrip));
    double memory = std::max(e.transfer(), (trips - 1) * e.latency);
    if (t.smBandwidth > 0)
      memory = std::max(memory, (w.bytes() + w.l2Bytes) / (std::min(w.blocks, t.smCount) * t.smBandwidth));
    e.tail = std::max(compute, memory) - body;
  }

  e.total = e.launch + e.latency + body + e.reductions + e.tail;
  e.intensity = w.bytes() > 0 ? w.flops() / w.bytes() : 0;
  struct {
    double seconds;
    Bound bound;
  } terms[] = {{e.memory, Bound::Memory},
               {e.l2, Bound::L2},
               {e.issue, Bound::Issue},
               {e.special, Bound::Special},
               {e.tensor, Bound::Tensor}};
  double greatest = -1;
  for (auto &term : terms)
    if (term.seconds > greatest) {
      greatest = term.seconds;
      e.bound = term.bound;
    }
  if (e.launch + e.latency + e.reductions > greatest || e.starts > greatest)
    e.bound = Bound::Launch;
  return e;
}

EarlyLaunch earlyLaunch(double seconds, double blocks, double longest, const TargetDesc &t) {
  EarlyLaunch out;
  if (!t.gpu || t.sm < 90)
    return out;
  // What the plan writes is then loaded as memory that changes, not by way of the read-only path, which gives the assembler less
  // freedom; a long kernel has nothing to gain for it.
  constexpr double kLong = 100e-6;
  char text[200];
  out.is = seconds < kLong;
  if (!out.is) {
    std::snprintf(text, sizeof text, "launched behind the kernel before: of %.4g us, launching it earlier saves %.2g",
                  seconds * 1e6, (t.launchNext - t.launchNextEarly) * 1e6);
    out.why.push_back(text);
    return out;
  }
  std::snprintf(text, sizeof text,
                "launched while the kernel before still runs, for whose end it waits: predicted to save %.2g us",
                (t.launchNext - t.launchNextEarly) * 1e6);
  out.why.push_back(text);
  // Blocks that start early find room where a kernel before ended first, and would crowd there; a matrix of 90 MB took 42 us
  // instead of 25. What is over soon does not mind, nor leaves others where there is no room.
  constexpr double kSoon = 3e-6;
  constexpr int kMost = 4;
  const double perSm = std::ceil(blocks / t.smCount);
  if (blocks > 0 && perSm <= kMost && std::min(seconds, longest) - t.launchFirst > kSoon) {
    out.blocksPerSm = static_cast<int>(perSm);
    std::snprintf(text, sizeof text, "an SM has room for no more than %d of its %.0f blocks, so that they lie evenly",
                  out.blocksPerSm, blocks);
    out.why.push_back(text);
  }
  return out;
}

double estimatePlan(const std::vector<WorkEstimate> &kernels, const TargetDesc &t) {
  double total = 0;
  for (size_t i = 0; i < kernels.size(); ++i)
    total += estimate(kernels[i], t, i == 0).total;
  return total;
}

std::string Estimate::str() const {
  auto us = [](double s) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", s * 1e6);
    return std::string(text);
  };
  if (!fits)
    return "does not fit";
  double body = std::max(transfer(), compute());
  const std::pair<const char *, double> all[] = {{"memory", memory},   {"l2", l2},         {"issue", issue},
                                                 {"special", special}, {"tensor", tensor}, {"blocks' starts", starts}};
  std::string out = us(total) + " us:", hidden;
  for (auto &[name, seconds] : all) {
    if (seconds == body && out.back() == ':')
      out += std::string(" ") + name + " " + us(seconds);
    else if (seconds > 0)
      hidden += (hidden.empty() ? "" : ", ") + std::string(name) + " " + us(seconds);
  }
  out += ", launch " + us(launch) + ", latency " + us(latency);
  if (reductions > 0)
    out += ", reductions " + us(reductions);
  if (tail > 0)
    out += ", tail " + us(tail);
  return hidden.empty() ? out : out + " (" + hidden + ")";
}

//===--------------------------------------------------------------------------------------------------------------===//
// Bytes
//===--------------------------------------------------------------------------------------------------------------===//

AccessPattern accessPattern(const index::Access &a, int64_t V, int64_t elementBytes, const TargetDesc &t) {
  AccessPattern p;
  p.accessBytes = elementBytes;
  if (a.kind == index::Access::Contiguous)
    p.accessBytes *=
        std::min(a.alignElements, std::max<int64_t>(1, static_cast<int64_t>(t.vectorBytes) / elementBytes));
  p.strideBytes = a.stride * V * elementBytes;
  p.alignBytes = a.alignElements * elementBytes;
  p.gather = a.kind == index::Access::Gather;
  return p;
}

AccessCost accessCost(const AccessPattern &p, const TargetDesc &t) {
  AccessCost c;
  auto line = static_cast<int64_t>(t.lineBytes), sector = static_cast<int64_t>(t.sectorBytes);
  int64_t threads = static_cast<int64_t>(t.warpSize);
  int64_t step = std::clamp<int64_t>(p.alignBytes, 1, line);
  int64_t bases = 0;
  // A CPU's "warp" of one thread walks on: take as many accesses as fill a line.
  if (threads == 1)
    threads = std::max<int64_t>(1, line / std::max<int64_t>(p.accessBytes, 1));
  for (int64_t base = 0; base < line; base += step, ++bases) {
    std::set<int64_t> sectors, lines;
    std::set<std::pair<int64_t, int64_t>> used; // a thread's own range, once
    for (int64_t i = 0; i < threads; ++i) {
      // Gather: far apart; what is known of each base is the alignment alone.
      int64_t from = p.gather ? base + i * (int64_t(1) << 20) : base + i * p.strideBytes;
      int64_t to = from + p.accessBytes;
      from += int64_t(1) << 40; // negative strides stay above zero
      to += int64_t(1) << 40;
      used.insert({from, to});
      for (int64_t s = from / sector; s * sector < to; ++s)
        sectors.insert(s);
      for (int64_t l = from / line; l * line < to; ++l)
        lines.insert(l);
    }
    int64_t covered = 0, end = 0;
    for (auto [from, to] : used) {
      covered += std::max<int64_t>(0, to - std::max(from, end));
      end = std::max(end, to);
    }
    c.usedBytes += static_cast<double>(covered);
    c.sectors += static_cast<double>(sectors.size());
    c.lines += static_cast<double>(lines.size());
  }
  double n = static_cast<double>(bases);
  c.usedBytes /= n;
  c.sectors /= n;
  c.lines /= n;
  c.sectorEfficiency = c.usedBytes / (c.sectors * t.sectorBytes);
  c.lineEfficiency = c.usedBytes / (c.lines * t.lineBytes);
  return c;
}

void addRead(WorkEstimate &w, const TensorRead &r, const TargetDesc &t) {
  double again = r.footprint * std::max(0.0, r.reads - 1);
  double missed = std::clamp(r.reuseDistance / t.usableL2() - 1, 0.0, 1.0);
  w.bytesRead += (r.resident ? 0 : r.footprint) + again * missed;
  w.l2Bytes += (r.resident ? r.footprint : 0) + again * (1 - missed);
}

void addWrite(WorkEstimate &w, double bytes) { w.bytesWritten += bytes; }

bool staysInL2(double touched, const TargetDesc &t) { return touched <= t.usableL2(); }

} // namespace rl::cost
