// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reference interpreter: the meaning of every op of the format. Plain loops, no fusion, no shared code with the
// emitters. In a `strict` graph every node's result is rounded to its type; otherwise a 16-bit float result keeps f32
// precision from node to node until a cast, a graph output or an op that reads storage (quantised ops) rounds it.
#pragma once

#include "ir/graph/Graph.h"

#include <cstddef>
#include <functional>
#include <vector>

namespace rl {

/// A tensor in host memory, dense, row-major, in its storage type.
struct HostTensor {
  TensorType type;
  std::vector<std::byte> data;
};

/// Runs the graph. `inputs` and `parameters` in the graph's order, with the graph's types. Errors: Code::Invalid with the
/// node's pointer for an index out of range; Code::Unsupported for a gradient request or a precision mode other than
/// "keep". `progress` (may be empty) is told nodes done and in all.
Result<std::vector<HostTensor>> interpret(const Graph &, const std::vector<HostTensor> &inputs,
                                          const std::vector<HostTensor> &parameters,
                                          const std::function<void(size_t, size_t)> &progress = {});

} // namespace rl
