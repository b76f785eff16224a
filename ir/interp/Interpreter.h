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
  /// Rounded; what is computed is off by a few roundings, up or down: what a graph makes of errors. By 2^-22 of itself, a 16-bit
  /// float by half a place before it is rounded; what sums are made of (also those within products, scaled ones, attention's scores and
  /// weights, means of norms) by what an addition in another order may bring, which knows nothing of what cancels: of N terms by 2^-17 / sqrt(N) of
  /// the sum of their magnitudes, and no more than 2^-22 of it. What is exact whatever computes it (layouts, choices of an operand) is as it is.
  /// Statistics of norms and products of many factors overflow as f32 does.
  Nudged,
};

/// What `interpret` refuses whatever the tensors: Code::Unsupported, with the place.
Status checkInterpretable(const Graph &);

/// Runs the graph; nodes that no output needs are not run. `inputs` and `parameters` in the graph's order, with the
/// graph's types. Errors: Code::Invalid with the node's pointer for an index or a target out of range, and with
/// "/tensor" for a tensor of another type than the graph's; Code::Unsupported for a gradient request, a precision mode
/// other than "keep", or a node pinned to a type that is not f32, f16 or bf16; Code::Device where memory runs out. A
/// pinned node has its float operands and results rounded to the type that it is pinned to. `progress` (may be empty)
/// is told nodes done and in all. `nudging`: which errors a nudged run has. 0: those of neighbours have opposite signs; each other number another draw
/// of signs, and of sizes from half as large to as large. Odd ones keep f32 as KeepF32 does; 2, 6 ... have one sign and size a node.
Result<std::vector<HostTensor>> interpret(const Graph &, const std::vector<HostTensor> &inputs,
                                          const std::vector<HostTensor> &parameters,
                                          const std::function<void(size_t, size_t)> &progress = {},
                                          Intermediates intermediates = Intermediates::Rounded, uint64_t nudging = 0);

} // namespace rl
