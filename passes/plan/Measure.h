// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Counts a trace: what it moves, what it computes, how many values live at once.
#pragma once

#include "passes/cost/OpCost.h"
#include "passes/plan/Trace.h"

namespace rl {

/// How often a kernel evaluates each instance: once for each element of the iteration space, once for each vector where all
/// lanes share it, and inside a branch for that part of the space which takes the branch.
std::vector<double> measureEvaluations(const Graph &, const Trace &);

/// Bytes (each tensor once, and no more of it than is asked for), operations, and the launch.
cost::WorkEstimate measureWork(const Graph &, const Trace &, int64_t threads);
/// The operations alone of one instance that is evaluated `times` times.
cost::WorkEstimate measureOps(const Graph &, const Instance &, double times);

/// A thread's instructions for one instance; a vector of `lanes` takes as many for one op, fewer where registers hold several
/// elements. Index arithmetic counts as far as its weight is small.
double measureInstructions(const Graph &, const Instance &, const cost::TargetDesc &, int64_t lanes);

/// Whether most of what a GPU's vectors load is loaded element by element, as it is contiguous but not aligned or its lanes are
/// guarded one by one: neighbouring threads then lie a vector apart, and each of their loads touches as many sectors as all of
/// them need. Vectors of at most four bytes do not count.
bool readsPiecemeal(const Graph &, const Trace &);

/// By instance, the one whose registers hold its value: layout ops but cat and pad are names for their operand.
std::vector<uint32_t> measureHomes(const Graph &, const Trace &);

/// An estimate of live 32-bit registers in the order of evaluation. Layout ops are names for their operand and take none;
/// of the pieces of a branch only one is there at a time.
struct Pressure {
  int64_t registers = 0;
  uint32_t peak = kNone; ///< the instance at which that many are live
  /// Computed values that are live there and used later, the one whose next use is farthest first, with their registers:
  /// what to write to memory if they are too many. Loads are not among them: they can be issued again.
  std::vector<std::pair<ValueId, int64_t>> live;
};
Pressure measurePressure(const Graph &, const Trace &);

/// What is above each value: a cheap measure of its work, saturating, and whether a reduction or a product is (or it is one).
struct Cones {
  std::vector<uint32_t> work;
  std::vector<bool> heroes;
};
Cones measureCones(const Graph &);

} // namespace rl
