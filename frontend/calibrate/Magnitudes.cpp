// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "frontend/calibrate/Magnitudes.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace rl::calibrate {

static constexpr uint32_t kInfinity = 0x7f800000; // magnitudes order as their bits do

void Magnitudes::add(const float *x, size_t n) {
  all += static_cast<int64_t>(n);
  for (size_t i = 0; i < n; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(x[i]) & 0x7fffffff;
    if (magnitude >= kInfinity) {
      ++(magnitude == kInfinity ? infiniteCount : nanCount);
      continue;
    }
    ++bins[magnitude >> 16];
    largest = std::max(largest, magnitude);
  }
}

float Magnitudes::amax() const { return std::bit_cast<float>(largest); }

float Magnitudes::percentile(double percent) const {
  const int64_t count = finite();
  if (count == 0)
    return 0;
  // A share such as 99.9 per cent of 1,000 must not become 1,000 by the product's rounding.
  const double share = percent / 100 * static_cast<double>(count);
  const int64_t wanted = std::clamp<int64_t>(static_cast<int64_t>(std::ceil(share - 1e-12 * share)), 1, count);
  int64_t seen = 0;
  for (uint32_t bin = 0; bin < kBins; ++bin) {
    seen += bins[bin];
    if (seen >= wanted)
      return std::bit_cast<float>(std::min(bin << 16 | (bf16 ? 0u : 0xffffu), largest));
  }
  return amax();
}

} // namespace rl::calibrate
