// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reference interpreter: the meaning of every op of the format. Plain loops, no fusion, no shared code with the
// emitters. Every node's result is rounded to its type, as a library that runs op by op would have it, unless the
// caller asks for what a fused kernel may do instead.
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

/// What becomes of a float result on its way to the next node. The format lets fused graphs do either of the first two with 16
/// bits; strict graphs always round.
enum class Intermediates : uint8_t {
  Rounded, ///< rounded to its type, as if every node stored its result
  KeepF32, ///< keeps f32 precision until a cast, a graph output or a quantised op (which reads storage) rounds it
  /// Rounded; what is computed in f32 is off by 2^-22 of itself, up and down in turn: what a graph makes of errors. Sums and means of
  /// floats are off by what an addition in another order may bring, which knows nothing of what cancels: of N terms by 2^-17 /
  /// sqrt(N) of the sum of their magnitudes, and no more than 2^-22 of it. Products' sums likewise; what is
  /// rounded to 16 bits is moved by half a place before it is.
  Nudged,
};

/// What `interpret` refuses whatever the tensors: Code::Unsupported, with the place.
Status checkInterpretable(const Graph &);

/// Runs the graph; nodes that no output needs are not run. `inputs` and `parameters` in the graph's order, with the
/// graph's types. Errors: Code::Invalid with the node's pointer for an index or a target out of range, and with
/// "/tensor" for a tensor of another type than the graph's; Code::Unsupported for a gradient request, a precision mode
/// other than "keep", or a node pinned to a type that is not f32, f16 or bf16; Code::Device where memory runs out. A
/// pinned node has its float operands and results rounded to the type that it is pinned to. `progress` (may be empty)
/// is told nodes done and in all.
Result<std::vector<HostTensor>> interpret(const Graph &, const std::vector<HostTensor> &inputs,
                                          const std::vector<HostTensor> &parameters,
                                          const std::function<void(size_t, size_t)> &progress = {},
                                          Intermediates intermediates = Intermediates::Rounded);

} // namespace rl
