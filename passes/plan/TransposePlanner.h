// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which pointwise kernels transpose, and how. A kernel that reads one tensor along its rows and another along its columns
// would fetch a sector of 32 bytes for every element of the second. If instead each thread computes a square of V rows by V
// elements, it reads both in vectors of V and transposes the second in registers.
#pragma once

#include "passes/plan/Planner.h"

namespace rl {

/// Turns those groups of kind "pointwise" of which at least half of the bytes read are read along a column into kind
/// "transpose": `rows` of `width` elements, `lanes` (V) rows and elements a thread. Others stay as they are, as does
/// everything on a CPU.
void chooseTransposes(const Graph &, const cost::TargetDesc &, Plan &);

} // namespace rl
