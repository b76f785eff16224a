// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the tests of random graphs share around their generators: what a crash says, and when results that were summed in another
// order are right.
#pragma once

#include "ir/graph/Graph.h"
#include "ir/interp/Tensor.h"

#include <functional>
#include <string>
#include <vector>

namespace rl::numeric {

/// From the first call on a crash prints `what` of the last call ("seed 7"), in the compiler or in a kernel.
void nameCrash(const std::string &what);

/// What tests of random graphs are told alike: --target, --seeds, --print and --verify.
struct SeedOptions {
  std::string target = "cpu";
  uint64_t first = 0, end = 100; ///< "A:B", or "A" for one: the seeds from A up to B, which is left out
  bool print = false;            ///< every graph
  bool verify = false;           ///< `ridgeline verify` alone decides what is right
  /// Takes argv[i], with its value behind it. False: it is none of these, or has no value.
  bool take(int argc, char **argv, int &i);
};

/// How many graphs `check` finds something wrong with; that is printed, and the graph.
int countFailures(const SeedOptions &, const std::function<GraphSpec(uint64_t seed)> &generate,
                  const std::function<std::string(uint64_t seed, const GraphSpec &)> &check);

/// Empty, or where `got` is wrong. Where a result is not finite it must be so in the same way; integers must be equal; floats may
/// differ by what sums in f32 in another order do, measured against the largest of the tensor.
/// `kept`: what is wanted where no intermediate result is rounded to 16 bits, as a fused graph may have it. How far the two
/// are apart says how well the problem is conditioned.
/// `coarsest`: the type that is rounded most coarsely on the way. Where that is f32 `kept` says nothing; `nudged` (or null) does,
/// what comes out if all results on the way are a few roundings off: what nearly cancels makes much of those.
std::string compareSums(const HostTensor &want, const HostTensor &kept, const HostTensor &got, DType coarsest,
                        const HostTensor *nudged = nullptr);
/// Empty, or what `ridgeline verify` has to say against a run's results. It knows better than compareSums what rounding decides, which
/// may be the sign of an infinity, and may be asked about what that finds wrong. `record`: the decision record.
std::string verifyResults(const Graph &, const std::vector<HostTensor> &inputs,
                          const std::vector<HostTensor> &parameters, const std::string &record,
                          const std::vector<HostTensor> &got);
DType coarsestType(const Graph &);

/// Whether results are finite alike with and without the rounding to 16 bits, and far from f32's end.
bool isFiniteAlike(const std::vector<HostTensor> &want, const std::vector<HostTensor> &kept);

} // namespace rl::numeric
