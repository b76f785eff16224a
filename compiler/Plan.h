// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where every tensor of a grouped function lives while it runs.
#pragma once

#include "runtime/package/Package.h"

#include <cstdint>
#include <string>
#include <vector>

namespace rl {

/// The symbol of a graph's kernel, by its place among those of a run or of the binding of parameters.
std::string kernelName(const std::string &graph, bool atBind, size_t place);

/// An intermediate that launches first..last use, both included.
struct Lifetime {
  int64_t bytes = 0;
  int first = 0, last = 0;
};

/// Offsets, multiples of 256, such that tensors alive together do not overlap: the largest first, each at the lowest place
/// that is free for its lifetime. Returns the arena's size.
int64_t placeInArena(const std::vector<Lifetime> &, std::vector<int64_t> &offsets);

} // namespace rl
