// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Plan.h"

#include <algorithm>
#include <numeric>

namespace rl {

std::string kernelName(const std::string &graph, bool atBind, size_t place) {
  return graph + (atBind ? "_bind_" : "_") + std::to_string(place);
}

int64_t placeInArena(const std::vector<Lifetime> &tensors, std::vector<int64_t> &offsets) {
  constexpr int64_t kAlign = 256;
  offsets.assign(tensors.size(), 0);
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(),
            [&](size_t a, size_t b) { return std::pair(-tensors[a].bytes, a) < std::pair(-tensors[b].bytes, b); });
  int64_t size = 0;
  std::vector<size_t> placed; // by offset
  for (size_t i : order) {
    const Lifetime &t = tensors[i];
    int64_t at = 0;
    for (size_t j : placed) {
      const Lifetime &o = tensors[j];
      if (o.last < t.first || t.last < o.first)
        continue;
      if (at + t.bytes <= offsets[j])
        break;
      at = std::max(at, (offsets[j] + o.bytes + kAlign - 1) / kAlign * kAlign);
    }
    offsets[i] = at;
    size = std::max(size, at + t.bytes);
    placed.insert(
        std::upper_bound(placed.begin(), placed.end(), at, [&](int64_t v, size_t j) { return v < offsets[j]; }), i);
  }
  return (size + kAlign - 1) / kAlign * kAlign;
}

} // namespace rl
