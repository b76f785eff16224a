// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which pointwise kernels transpose, and how. A kernel that reads one tensor along its rows and another along its columns
// would fetch a sector of 32 bytes for every element of the second. If instead each thread computes a square of V rows by V
// elements, it reads both in vectors of V and transposes the second in registers.
#pragma once

#include "passes/plan/Planner.h"
#include "passes/plan/Trace.h"

namespace rl {

/// Turns those groups of kind "pointwise" of which at least half of the bytes read are read along a column into kind
/// "transpose": `rows` of `width` elements, `lanes` (V) rows and elements a thread. Others stay as they are, as does
/// everything on a CPU.
void chooseTransposes(const Graph &, const cost::TargetDesc &, Plan &);

/// Whether an instance is a load that such a kernel turns: `lanes` rows apart are neighbours in memory, elements of a row are not.
bool readsDown(const Trace &, const Instance &);

} // namespace rl
