// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A row's maximum m and the sum of e^(x - m), which need one pass over the row instead of two: see compiler/emit/Online.h.
#pragma once

#include "passes/plan/Trace.h"

#include <optional>

namespace rl {

struct OnlineSum {
  uint32_t top = kNone;         ///< instance: the maximum of x
  uint32_t sum = kNone;         ///< instance: the sum of `exponential`
  uint32_t exponential = kNone; ///< instance: e^(x - subtrahend)
  uint32_t subtrahend = kNone;  ///< instance: `top`, or a choice between it and 0
  uint32_t subtracted = kNone;  ///< instance: what the exponential's operand reads, `subtrahend` or a view of it
  bool finite = false;          ///< which of the two
};

/// The sum's online form where `sum` is one over e^(x - m) and m is the maximum of the same x over the same row.
std::optional<OnlineSum> findOnline(const Graph &, const Trace &, uint32_t sum);

} // namespace rl
