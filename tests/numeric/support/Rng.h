// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random numbers that are the same on every platform for a seed: the standard's generator, but none of its distributions,
// which it leaves to each library.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

namespace rl::numeric {

class Rng {
public:
  explicit Rng(uint64_t seed) : engine(seed) {}
  uint64_t bits() { return engine(); }
  int64_t below(int64_t n) { return static_cast<int64_t>(engine() % static_cast<uint64_t>(n)); } ///< 0 .. n-1
  int64_t range(int64_t lo, int64_t hi) { return lo + below(hi - lo + 1); }                      ///< both included
  bool chance(int percent) { return below(100) < percent; }
  double unit() { return static_cast<double>(engine() >> 11) * 0x1p-53; } ///< [0, 1)
  template <class T> const T &pick(const std::vector<T> &v) {
    return v[static_cast<size_t>(below(static_cast<int64_t>(v.size())))];
  }

private:
  std::mt19937_64 engine;
};

} // namespace rl::numeric
