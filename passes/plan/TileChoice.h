// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which of the tiles that the model finds good for a kernel of products is taken. The model takes its first; whoever has timed
// them on a device says which otherwise. The planner times nothing: what was chosen is an argument of its.
#pragma once

#include "passes/plan/Gemm.h"

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace rl {

/// For one kernel: a place in its list of candidates, and what was measured of the first of them.
struct TileChoice {
  size_t candidate = 0;
  std::vector<double> microseconds; ///< may be empty; 0: that one could not be timed
  bool operator==(const TileChoice &) const = default;
};

/// By the key of the kernel.
using TileChoices = std::map<std::string, TileChoice>;

/// Of a kernel of products: its extents, and a hash of the types, ops and attributes in it. Names do not count, so that equal
/// layers have equal keys.
std::string productKey(const Graph &, const PlannedGroup &);

/// Orders a scheduled group's candidates: what it has first, then those that the model finds no more than 15 % slower, the
/// quickest first, few of them alike. At most kMostCandidates.
inline constexpr size_t kMostCandidates = 8;
void rankCandidates(PlannedGroup &);

/// The group as the choices want it. `reschedule` gives the group with another of its candidates. Code::Usage where a choice is
/// beyond the list.
Result<PlannedGroup> takeChoice(PlannedGroup, const TileChoices &,
                                const std::function<Result<PlannedGroup>(const GemmSchedule &)> &reschedule);

} // namespace rl
