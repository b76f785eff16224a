// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions of segments of a product's rows in the kernel that computes the product: what its results are quantised by, a norm of
// heads. A tile has whole segments, so that what is behind the product is gone over once for each reduction that must be known
// before the next, and once more for what is stored; each time it is computed again from the product's sums. No MLIR here.
#pragma once

#include "passes/cost/Cost.h"
#include "passes/plan/Trace.h"

#include <string>

namespace rl {

struct TileSegments {
  int64_t columns = 0; ///< of a segment; 0: the trace has no such reductions
  std::string refusal; ///< why no kernel of products computes the trace, or nothing
};

/// `epilogue`: the trace of a kernel of products.
TileSegments tileSegments(const Graph &, const Trace &epilogue);

inline bool isSegmentReduction(const Instance &in) { return in.segment != 0; }

/// Whether the store is of what each segment has once.
bool storesSegments(const Graph &, const Trace &, const TraceStore &);

/// What the pass that ends with the reductions of `level` (counted from 1) computes, in order; the last pass, of level 1 more than
/// the trace has, what is stored whole; and with `level` 0 what is stored once a segment, behind all reductions. Reductions are
/// known, and not among it; nor is `kept`, a value that an earlier pass left, and what only that is made of.
std::vector<uint32_t> segmentPass(const Graph &, const Trace &, uint32_t level, uint32_t kept = kNone);

/// The float that the first pass computes and all that is computed of the products goes through in the passes behind it, so that they
/// need nothing else of them; of several the one that they have least to do behind. kNone: there is none.
uint32_t keptValue(const Graph &, const Trace &);

/// The reductions that end with the pass, in order.
std::vector<uint32_t> reductionsOf(const Trace &, uint32_t level);

/// Ops an element that the pass takes.
cost::WorkEstimate passOps(const Graph &, const Trace &, uint32_t level);

} // namespace rl
