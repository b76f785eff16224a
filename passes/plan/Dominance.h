// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a trace would no longer evaluate if one of its values were loaded instead: the instances that are used through it
// alone. Those are the ones that it dominates, seen from what is stored.
#pragma once

#include "passes/plan/Trace.h"

namespace rl {

/// The immediate dominators of a trace's instances, walking from the stores towards the loads. Users come after what they
/// use, so that one sweep from the last instance to the first finds them; common ancestors are found through jump pointers
/// (Myers, "An applicative random-access stack", 1983), which makes the whole O((instances + uses) log instances).
class Dominance {
public:
  explicit Dominance(const Trace &);

  /// The instance through which all uses of `i` go; `root()` where there is none, or where `i` is stored.
  uint32_t above(uint32_t i) const { return parent[i]; }
  uint32_t root() const { return static_cast<uint32_t>(parent.size() - 1); }
  /// The nearest that dominates both.
  uint32_t meet(uint32_t a, uint32_t b) const;
  /// Adds to each instance's entry those of all that it dominates. `own`: one entry an instance, and the root's.
  template <class T> void accumulate(std::vector<T> &own) const {
    for (uint32_t i = 0; i < root(); ++i)
      if (parent[i] != kNone)
        own[parent[i]] += own[i];
  }

private:
  std::vector<uint32_t> parent, jump, depth; ///< parent kNone: nothing uses it
};

} // namespace rl
