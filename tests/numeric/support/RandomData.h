// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Data that finds mistakes: NaN, infinities, zeros of both signs, subnormals, the extremes of each type, halves, small
// integers, and enough ordinary numbers that the others do not drown everything.
#pragma once

#include "ir/graph/Graph.h"
#include "ir/interp/Interpreter.h"
#include "tests/numeric/support/Rng.h"

#include <map>
#include <random>

namespace rl::numeric {

/// A graph with data, in the order of the spec.
struct Case {
  GraphSpec spec;
  std::vector<HostTensor> inputs, parameters;
};

HostTensor randomTensor(Rng &, const TensorType &);
/// Of a normal distribution about 0.
HostTensor normalTensor(const TensorType &, double deviation, std::mt19937 &);
/// Indices of an extent: every one of them, the first and the last most often. `extent` 0: there are none but 0.
HostTensor randomIndices(Rng &, const TensorType &, int64_t extent);
/// Inputs and parameters that are the indices of a node, with the least extent that they pick from. The spec resolves.
std::map<std::string, int64_t> indexExtents(const GraphSpec &);
/// Data for every input and parameter; indices are in range. The spec has no symbolic extents.
Case withRandomData(GraphSpec, uint64_t seed);

/// The values of a type that most often go wrong, each once: every one is exactly representable.
std::vector<double> specialValues(DType);
/// A tensor of all codes of a type of one or two bytes.
HostTensor allCodes(DType);

} // namespace rl::numeric
