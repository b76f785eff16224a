// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Made-up tensors. A value depends on the seed, the tensor's name and the element's place alone, so that the same command
// gives the same data on every machine and with any number of threads.
#pragma once

#include "ir/graph/Graph.h"

#include <cstdint>
#include <vector>

namespace rl::cli {

/// What the graph asks of an input's values, beyond its type.
struct Demand {
  int64_t limit = INT64_MAX; ///< integers: an index into so many; values are 0 to limit - 1
  bool positive = false;     ///< floats: a root, a logarithm or a scale is taken of it
  float scale = 1;           ///< floats: so much smaller, as weights are, so that products of unit rows have unit size
};

/// For each value of the graph. Followed back from the users (index operands, targets, sqrt, log, scales) through casts,
/// layout operations and, for signs, sums and products.
std::vector<Demand> demands(const Graph &);

/// Fills `data` (of type.bytes()).
///   f32 f16 bf16 f8: the sum of four uniform numbers scaled to mean 0 and variance 1 (within +-3.5), rounded to the type;
///     positive: its magnitude plus 1/64. Right operands of products are scaled by one over the root of K.
///   f8e8m0: 2^-3 to 2^3.  i8 i32 i64: -8 to 8.  u8: 0 to 16.  bool: either.  Indices: 0 to limit - 1, uniform.
/// Bits come from SplitMix64 (Steele, Lea, Flood 2014), as a function of place.
void fillRandom(void *data, const TensorType &, const std::string &name, uint64_t seed, const Demand &);

} // namespace rl::cli
