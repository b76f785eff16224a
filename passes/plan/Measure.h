// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Counts a trace: what it moves, what it computes, how many values live at once.
#pragma once

#include "passes/cost/OpCost.h"
#include "passes/plan/Trace.h"

namespace rl {

/// Bytes (each tensor once, and what its access pattern wastes), operations, and the launch.
cost::WorkEstimate measureWork(const Graph &, const Trace &, int64_t threads);

/// An estimate of live 32-bit registers in the order of evaluation, and the value whose next use is farthest where most are
/// live: the one to write to memory if they are too many.
struct Pressure {
  int64_t registers = 0;
  ValueId farthest = kNone;
};
Pressure measurePressure(const Graph &, const Trace &);

/// Seconds of arithmetic that computing instance `root` and all above it takes for `elements` elements.
double measureCone(const Graph &, const Trace &, uint32_t root, const cost::TargetDesc &, int64_t elements);

} // namespace rl
