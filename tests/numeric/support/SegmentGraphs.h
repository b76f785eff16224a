// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random graphs of a product whose results are reduced by segments of a row: quantised in blocks, normed by heads, summed. Most are
// exact: numbers are small integers and powers of two, so that sums are the same in any order, and results the same bits.
#pragma once

#include "ir/graph/Graph.h"
#include "ir/interp/Tensor.h"
#include "tests/numeric/support/Rng.h"

#include <string>

namespace rl::numeric {

struct SegmentGraph {
  GraphSpec spec;
  bool exact = true;
};
/// `large`: for warpgroup products.
SegmentGraph segmentGraph(uint64_t seed, bool large);

/// What an input of an exact graph holds; now and then, where the graph only adds it, NaN, infinities, and groups of zeros.
HostTensor segmentData(Rng &, const Graph &, ValueId input);

/// Empty, or where `got` is wrong: not the same bits (or NaN for NaN) where the graph is exact, more than a step off otherwise.
std::string compareSegments(const HostTensor &want, const HostTensor &got, bool exact);

} // namespace rl::numeric
