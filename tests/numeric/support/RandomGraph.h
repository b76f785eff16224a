// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random graphs of elementwise, cast, layout and creation ops over every type of the format: mixed types and literals, odd
// extents, broadcasting in every position, empty tensors, diamonds, several outputs, inputs as outputs, chains of layouts.
#pragma once

#include "ir/graph/Graph.h"

namespace rl::numeric {

struct RandomGraphOptions {
  enum Numerics : uint8_t { Either, Strict, Fused } numerics = Either;
  int minNodes = 1, maxNodes = 30;
  int64_t maxElements = 6000; ///< of any tensor
  bool transcendental = true; ///< exp, sin, pow, div on floats ...
  bool sixteenBits = true;    ///< f16 and bf16
  bool structures = true;     ///< one graph in ten starts as something that a planner must take apart
};

/// A valid graph (it resolves), the same for the same seed and options.
GraphSpec randomGraph(uint64_t seed, const RandomGraphOptions & = {});

/// Whether the op is one that the format lets be inexact on f32.
bool isTranscendental(OpKind);

/// Removes nodes, inputs and parameters that no output needs.
void dropDead(GraphSpec &);

} // namespace rl::numeric
