// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which values to write to memory where a kernel would be too much. Each search answers one reason; the planner asks them and
// plans again.
#pragma once

#include "passes/cost/Cost.h"
#include "passes/plan/Measure.h"
#include "passes/plan/Trace.h"

#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>

namespace rl {

/// A value and why it is written, to follow its name: "stored: ...".
using Cut = std::pair<ValueId, std::string>;

/// An index that takes more operations, or a load under more conditions, is as much work as reading memory.
inline constexpr uint32_t kMaxIndexWeight = 2048;
inline constexpr size_t kMaxGuards = 48;
/// Instructions of a thread. At 3e13 a second on a large GPU 16384 of them take 0.5 ns an element; 8 bytes through memory take
/// 0.002 ns. An assembler takes about a second for twice as many, and longer than in proportion for more.
inline constexpr double kMaxInstructions = 16384;

class CutFinder {
public:
  /// `stored`: graph outputs and earlier cuts. `cuts`: earlier cuts, which are not found again. Both may grow between calls.
  CutFinder(const Graph &graph, const cost::TargetDesc &target, const std::set<ValueId> &stored,
            const std::map<ValueId, std::string> &cuts)
      : graph(graph), target(target), stored(stored), cuts(cuts) {}

  /// Of a trace that has too many instances: the value nearest to the outputs that is evaluated at eight or more indices.
  /// Below it little is repeated, and above it counting starts anew. Fewer where none has as many; kNone where all have one.
  ValueId amongRepeated(const Trace &, int &times) const;
  /// The value that most of the tensors read go through and that one kernel of `limit` arguments can compute; where none
  /// makes much of a difference to the `arguments` that there are, one that is complete when half as many tensors as may be
  /// have been read. kNone where nothing is computed in between.
  ValueId forArguments(const Trace &, size_t arguments, size_t limit) const;
  /// The values that are alive across one place of the trace, chosen within its second quarter by instructions such that they
  /// are fewest: what is behind it can do without what is ahead.
  std::vector<ValueId> forLength(const Trace &) const;
  /// Enough of what is live where most is; or what has been computed there so far, so that what comes behind it begins anew
  /// and computes again what it needs. The latter where it suffices and moves fewer bytes. `request`: that of the trace.
  Result<std::vector<ValueId>> forRegisters(TraceRequest request, const Trace &, const Pressure &) const;
  /// A chain on a small tensor that is broadcast is evaluated once for every element of the large one. Where that makes the
  /// kernel bound by arithmetic, writing the small tensor first may be cheaper. `work`: the trace's.
  std::optional<Cut> forBroadcast(const Trace &, const cost::WorkEstimate &work) const;

  /// A thread's registers less addresses, temporaries and what the assembler keeps.
  int64_t registerBudget() const { return static_cast<int64_t>(target.registersPerThread * 0.75); }

private:
  bool isWorth(const Instance &) const;
  std::vector<bool> usedByOthers(const Trace &) const;

  const Graph &graph;
  const cost::TargetDesc &target;
  const std::set<ValueId> &stored;
  const std::map<ValueId, std::string> &cuts;
};

/// A value of whole rows in the middle of a long chain of reductions, the one that most of what follows is computed from; kNone:
/// there is none that may be cut.
ValueId cutBetweenLevels(const Graph &, const Trace &, const std::function<bool(ValueId)> &mayCut);

/// For the record of a value that one kernel stores and another loads: what loading it takes, and what computing it once more would.
std::string loadOrCompute(const Graph &, const cost::TargetDesc &, const Cones &, ValueId);

} // namespace rl
