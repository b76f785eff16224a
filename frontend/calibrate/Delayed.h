// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Delayed scaling: a whole tensor is quantised with a scale from the amax that it had in earlier runs, so that it is read
// once. (Micikevicius et al. 2022, "FP8 formats for deep learning"; NVIDIA's Transformer Engine calls it so.) What is
// remembered is state of the module, in the form of parameters that each run replaces.
#pragma once

#include "ir/graph/Graph.h"

#include <cstddef>
#include <string>
#include <vector>

namespace rl::calibrate {

inline constexpr int64_t kHistory = 16; ///< runs that a scale looks back upon

/// A parameter of the graph that holds state, and the output that holds its next value.
struct StateTensor {
  std::string name, next;
  TensorType type;
  std::vector<std::byte> initial;
};

struct DelayedGraph {
  /// With the state as the last parameters and, in the same order, its next values as the last outputs.
  GraphSpec spec;
  std::vector<StateTensor> state; ///< history, scale, overflows, runs
  std::vector<std::string>
      nodes; ///< the first outputs of the nodes with delayed scales, in the state's order: the file's
};

/// Gives delayed scales to quantize and fake_quantize nodes of granularity "tensor", symmetric, with an f32 scale that is
/// dynamic or a literal, whose tensor has elements and is not made of parameters alone; a pinned node keeps its scale. With S
/// such nodes the state is
///   delayed.history f32 [S, 16]  amax of the run r at r mod 16; 0 before there was one, and where it was not finite
///   delayed.scale f32 [S]        what the next run uses: first the literal, or 1
///   delayed.overflows i64 [S]    values so far that were clipped: of at least the scale times 464, 61440 or 127.5
///   delayed.runs i64 []
/// (another prefix where the graph has these names). After every run whose number, from 1, is a multiple of `every`, the
/// scale becomes the history's maximum / largest, at least 2^-126; it stays where the maximum is 0.
/// Errors: what is wrong with the graph; Code::Unsupported where it has no such node.
Result<DelayedGraph> delayScales(const GraphSpec &, const DimValues &, int64_t every);

} // namespace rl::calibrate
