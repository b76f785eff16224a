// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/precision/Times.h"
#include "passes/cost/GemmModel.h"
#include "passes/cost/OpCost.h"
#include "passes/cost/StreamModel.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace rl {

namespace {

double sizeOf(DType t) { return static_cast<double>(dtypeSize(t)); }

/// Rows up to which a product widens a narrow right operand where it reads it. With more, every tile of rows would widen it
/// again, and it is widened once, through memory; or streamed, or widened in the registers of warpgroup products.
int64_t widenedRows(const cost::TargetDesc &machine) { return machine.gpu ? 2 : 16; }

bool isSixteen(DType t) { return t == DType::BF16 || t == DType::F16; }

/// A kernel that streams the right operand, in 16 bits or in 8, beside few rows of 16 bits; nothing where there is none.
std::optional<double> streamSeconds(const ProductAsk &p, const cost::TargetDesc &machine) {
  const bool wide = p.b == p.a;
  if (!isSixteen(p.a) || !(wide || cost::isNarrow(p.b)) || p.batch != 1 || !p.rows || p.k % 16 != 0)
    return std::nullopt;
  cost::StreamShape s;
  s.m = p.m;
  s.n = p.n;
  s.k = p.k;
  s.left = p.a;
  s.right = p.b;
  s.bytes = static_cast<double>(p.m * p.k) * sizeOf(p.a) +
            static_cast<double>(p.n) * static_cast<double>(p.k) * sizeOf(p.b) +
            static_cast<double>(p.m * p.n) * sizeOf(p.out);
  constexpr int64_t kLive = 16; // registers of an epilogue of a few ops
  auto chosen = cost::chooseStream(s, false, kLive, machine);
  if (!chosen)
    return std::nullopt;
  return machine.launchNext + machine.memoryLatency + chosen->seconds;
}

/// A kernel of warpgroup products that widens the right operand in registers, of more rows than are streamed.
std::optional<double> turnedSeconds(const ProductAsk &p, const cost::TargetDesc &machine) {
  if (!isSixteen(p.a) || !cost::isNarrow(p.b) || p.batch != 1 || !p.rows || p.m <= cost::kMostStreamRows ||
      p.k % 16 != 0)
    return std::nullopt;
  cost::GemmShape s;
  s.turned = true;
  s.m = p.n;
  s.n = p.m;
  s.k = p.k;
  s.a = s.b = p.a;
  s.leftTiles = {p.b};
  s.outputs = {p.out};
  auto tiles = cost::chooseGemmTiles(s, machine, 1);
  if (tiles.empty())
    return std::nullopt;
  return tiles[0].seconds;
}

/// Of the rate of 16-bit products, what f8 operands widened on the way to a warp's tensor cores take longer: 4096^3 in 761 us on an
/// H200, against 196 (tests/bench/NOTES.md).
constexpr double kWidenedPair = 3.9;

/// Instructions that make an f32 or 16-bit number of a narrow one: conversions for f8 came with compute capability 8.9. On a CPU,
/// those that an operand takes to be packed (measured, 1 x 11008 x 4096 on two cores of a Zen 4 that had other work as well: f32
/// 15.3 ms, bf16 11.2, i8 20.0, f8 23.1).
double widening(DType t, const cost::TargetDesc &machine) {
  if (!machine.gpu)
    return t == DType::F32 ? 8 : dtypeSize(t) == 2 ? 14 : isF8(t) ? 38 : 30;
  const double each = 14; // in the kernel of a few rows (tests/bench/NOTES.md)
  return isF8(t) ? each + (machine.sm >= 89 ? 0 : 8) : t == DType::I8 ? each : 0;
}

/// The type at whose rate two operands multiply. Pairs of 8 bits do so by warpgroup products alone (passes/plan/Wgmma), f8 only where
/// the result has 16 bits; otherwise f8 is widened, and i8 multiplied by ordinary instructions.
DType multipliedAs(DType a, DType b, DType out, const cost::TargetDesc &machine) {
  if (!machine.gpu)
    return DType::F32;
  if (isF8(a) && isF8(b))
    return machine.sm == 90 && dtypeSize(out) <= 2 ? DType::F8E4M3 : DType::F16;
  if (a == DType::I8 && b == DType::I8 && machine.sm == 90)
    return DType::I8;
  if (a == DType::BF16 || a == DType::F16)
    return b == DType::F32 ? DType::F32 : a;
  return DType::F32;
}

} // namespace

double trafficSeconds(double bytes, const cost::TargetDesc &machine) { return bytes / machine.dramCopy; }

double conversionSeconds(double read, double written, const cost::TargetDesc &machine) {
  cost::WorkEstimate w;
  w.traffic = cost::Traffic::Row;
  w.bytesRead = read;
  w.bytesWritten = written;
  return cost::estimate(w, machine, false).total;
}

double quantiseSeconds(int64_t rows, int64_t width, DType from, DType to, bool alone, const cost::TargetDesc &machine) {
  double elements = static_cast<double>(rows) * static_cast<double>(width);
  double written = elements * sizeOf(to) + 4 * static_cast<double>(rows);
  cost::WorkEstimate w;
  w.traffic = cost::Traffic::Row;
  w.bytesWritten = written;
  w.bytesRead = alone ? elements * sizeOf(from) : 0;
  w.ops = elements * cost::opCost(OpKind::Quantize, to).ops;
  w.reductions = 1;
  cost::Estimate e = cost::estimate(w, machine, false);
  return alone ? e.total : e.total - e.launch - e.latency;
}

double productSeconds(const ProductAsk &p, const cost::TargetDesc &machine) {
  if (p.batch < 1 || p.m < 1 || p.n < 1 || p.k < 1)
    return 0;
  const int64_t rows = p.batch * p.m;
  const bool widened = p.b != p.a && sizeOf(p.b) < sizeOf(p.a);
  const std::optional<double> streamed = streamSeconds(p, machine);
  if (widened && streamed)
    return *streamed;
  if (widened && p.m > widenedRows(machine)) {
    ProductAsk wide = p;
    wide.b = p.a;
    double weights = static_cast<double>(p.n) * static_cast<double>(p.k);
    const double apart =
        conversionSeconds(weights * sizeOf(p.b), weights * sizeOf(p.a), machine) + productSeconds(wide, machine);
    return std::min(apart, turnedSeconds(p, machine).value_or(apart));
  }
  const DType as = multipliedAs(p.a, p.b, p.out, machine);
  double M = static_cast<double>(p.m), N = static_cast<double>(p.n), K = static_cast<double>(p.k),
         B = static_cast<double>(p.batch);
  const bool warpgroups = machine.gpu && machine.sm == 90 && as != DType::F32 &&
                          (as == p.a || (isF8(as) && isF8(p.a))) && p.m >= 64 && !widened &&
                          p.k * static_cast<int64_t>(dtypeSize(p.a)) % 16 == 0;
  if (warpgroups) {
    cost::GemmShape s;
    s.batch = p.batch;
    s.m = p.m;
    s.n = p.n;
    s.k = p.k;
    s.a = p.a;
    s.b = p.b;
    s.outputs = {p.out};
    s.promotes = as == DType::F8E4M3;
    if (auto tiles = cost::chooseGemmTiles(s, machine, 1); !tiles.empty())
      return std::min(tiles[0].seconds, streamed.value_or(tiles[0].seconds));
  }
  cost::WorkEstimate w;
  w.traffic = cost::Traffic::Matrix;
  w.bytesRead = B * (M * K * sizeOf(p.a) + N * K * sizeOf(p.b));
  w.bytesWritten = B * M * N * sizeOf(p.out);
  // The rows of a tensor core's instruction are computed whole; single elements are not.
  double computed = as == DType::F32 || rows <= 2 ? M : std::ceil(M / 16) * 16;
  const bool pair = isF8(p.a) && isF8(p.b);
  DType at = rows <= 2 ? DType::F32 : pair ? DType::F16 : as == DType::I8 ? DType::F32 : as;
  w.tensorFlops[static_cast<size_t>(at)] = 2 * B * computed * N * K * (pair && at == DType::F16 ? kWidenedPair : 1);
  const double passes = machine.gpu ? std::ceil(M / static_cast<double>(widenedRows(machine))) : 1;
  // These kernels widen whatever has 8 bits.
  w.ops = B * (passes * N * K * widening(p.b, machine) + M * K * widening(p.a, machine));
  const double seconds = cost::estimate(w, machine, false).total;
  return std::min(seconds, streamed.value_or(seconds));
}

} // namespace rl
