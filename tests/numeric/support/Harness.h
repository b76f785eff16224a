// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the tests of random graphs share around their generators: what a crash says, and when results that were summed in another
// order are right.
#pragma once

#include "ir/graph/Graph.h"
#include "ir/interp/Tensor.h"

#include <string>
#include <vector>

namespace rl::numeric {

/// From the first call on a crash prints `what` of the last call ("seed 7"), in the compiler or in a kernel.
void nameCrash(const std::string &what);

/// "A:B", or "A" for one: the seeds from A up to B, which is left out.
void readSeeds(const char *text, uint64_t &first, uint64_t &end);

/// Prints what is wrong with a seed's graph, and the graph.
void reportFailure(uint64_t seed, const std::string &what, const GraphSpec &);

/// Empty, or where `got` is wrong. Where a result is not finite it must be so in the same way; integers must be equal; floats may
/// differ by what sums in f32 in another order do, measured against the largest of the tensor.
/// `kept`: what is wanted where no intermediate result is rounded to 16 bits, as a fused graph may have it. How far the two
/// are apart says how well the problem is conditioned.
/// `coarsest`: the type that is rounded most coarsely on the way. Where that is f32 `kept` says nothing; `nudged` (or null) does,
/// what comes out if all results on the way are a few roundings off: what nearly cancels makes much of those.
std::string compareSums(const HostTensor &want, const HostTensor &kept, const HostTensor &got, DType coarsest,
                        const HostTensor *nudged = nullptr);
DType coarsestType(const Graph &);

/// Whether results are finite alike with and without the rounding to 16 bits, and far from f32's end.
bool isFiniteAlike(const std::vector<HostTensor> &want, const std::vector<HostTensor> &kept);

} // namespace rl::numeric
