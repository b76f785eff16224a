// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How large a tensor's values are: counts that are gathered sample by sample in constant memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rl::calibrate {

/// A histogram of |x| over the 2^15 magnitudes of bf16, each bin with the f32 values from one of them up to the next: 2^-7
/// wide relative to its values (absolutely in the subnormal range), over all of f32's range. 256 KiB. Values that are not
/// finite are counted and otherwise left out.
class Magnitudes {
public:
  /// `bf16`: every value is one of bf16, so that a bin holds one magnitude and percentiles are exact.
  explicit Magnitudes(bool bf16) : bins(kBins), bf16(bf16) {}

  void add(const float *x, size_t n);

  int64_t finite() const { return all - nanCount - infiniteCount; }
  int64_t nans() const { return nanCount; }
  int64_t infinite() const { return infiniteCount; }
  float amax() const; ///< of the finite values; 0 where there are none

  /// A magnitude that at least `percent` per cent (0 to 100) of the finite values do not exceed: the upper end of the bin of
  /// the least such one, hence at most 2^-7 above it, and never above the amax. 0 where no value is finite.
  float percentile(double percent) const;

private:
  static constexpr size_t kBins = size_t(1) << 15;
  std::vector<int64_t> bins;
  int64_t all = 0, nanCount = 0, infiniteCount = 0;
  uint32_t largest = 0; ///< the bits of the amax
  bool bf16;
};

} // namespace rl::calibrate
