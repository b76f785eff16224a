// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/cost/GemmModel.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace rl::cost {

namespace {

int64_t roundUp(int64_t v, int64_t to) { return (v + to - 1) / to * to; }
int64_t sizeOf(DType t) { return static_cast<int64_t>(dtypeSize(t)); }

} // namespace

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

GemmShared gemmShared(const GemmShape &s, const GemmTile &t) {
  constexpr int64_t period = 1024; // of the 128-byte swizzle
  GemmShared out;
  out.a = int64_t(t.tileM()) * 128;
  out.stage = out.a;
  for (int p = 0; p < s.products; ++p) {
    // Boxes of 64 columns, or whole rows of K.
    out.b = std::max(out.b, (s.isBKMajor(p) ? int64_t(t.tileN) : roundUp(t.tileN, 64)) * 128);
  }
  out.stage += out.b * s.products;
  for (int bytes : gemmSlots(s).bytes)
    out.slots += roundUp(int64_t(16) * t.chunkColumns() * bytes, period);
  out.staging = int64_t(t.warps()) * t.buffers * out.slots;
  for (DType column : s.columns)
    out.columns += t.consumers * roundUp(int64_t(t.tileN) * sizeOf(column), 16);
  out.barriers = 8 * (2 * t.stages + (s.tiles.empty() ? 0 : t.warps() * t.buffers));
  out.total = out.stage * t.stages + out.staging + out.columns + out.barriers;
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
  if (t.cluster == 2 && t.tileN % (s.isBKMajor(0) ? 16 : 128) != 0)
    return "a cluster's halves of the right operand must be whole";
  // Accumulators beside about 40 registers of addresses and the epilogue, of what a thread may have: 255 of 256 threads in a
  // block, 168 of 384, 128 of 512; 240 and 160 where the copying warps give theirs.
  int registers = s.products * t.blocks * t.tileN / 2;
  if (t.moreRegisters && t.consumers == 1)
    return "one warpgroup has all the registers that it may have";
  int most = t.consumers == 1   ? (t.blocksPerSm > 1 ? 80 : 176)
             : t.consumers == 2 ? (t.moreRegisters ? 176 : 128)
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

} // namespace rl::cost
