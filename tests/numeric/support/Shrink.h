// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Makes a failing case small: fewer outputs, nodes replaced by inputs that hold what the interpreter computes there, nodes
// left out.
#pragma once

#include "tests/numeric/support/RandomData.h"

#include <functional>

namespace rl::numeric {

/// `fails` says whether a case still fails; it is called at most `budget` times. The result fails.
Case shrink(Case, const std::function<bool(const Case &)> &fails, int budget = 400);

/// The graph file of a case, with its inputs' elements below it where they are few.
std::string describeCase(const Case &);

} // namespace rl::numeric
