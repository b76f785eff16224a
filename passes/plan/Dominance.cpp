// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/plan/Dominance.h"

#include <algorithm>

namespace rl {

Dominance::Dominance(const Trace &trace) {
  auto n = static_cast<uint32_t>(trace.instances.size());
  parent.assign(n + 1, kNone);
  jump.assign(n + 1, n);
  depth.assign(n + 1, 0);
  parent[n] = n;
  for (const TraceStore &s : trace.stores)
    parent[s.instance] = n;
  for (uint32_t i = n; i-- > 0;) {
    // All users of `i` are behind it, so that its parent is final now.
    uint32_t p = parent[i];
    if (p == kNone)
      continue;
    depth[i] = depth[p] + 1;
    jump[i] = depth[p] - depth[jump[p]] == depth[jump[p]] - depth[jump[jump[p]]] ? jump[jump[p]] : p;
    auto use = [&](uint32_t o) {
      if (o != kNone)
        parent[o] = parent[o] == kNone ? i : meet(parent[o], i);
    };
    for (uint32_t o : trace.instances[i].operands)
      use(o);
    for (const Instance::Piece &piece : trace.instances[i].pieces)
      use(piece.instance);
  }
  parent[n] = kNone;
}

uint32_t Dominance::meet(uint32_t a, uint32_t b) const {
  if (depth[a] < depth[b])
    std::swap(a, b);
  while (depth[a] > depth[b])
    a = depth[jump[a]] >= depth[b] ? jump[a] : parent[a];
  while (a != b) {
    bool apart = jump[a] != jump[b];
    a = apart ? jump[a] : parent[a];
    b = apart ? jump[b] : parent[b];
  }
  return a;
}

} // namespace rl
