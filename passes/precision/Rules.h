// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What no precision mode may do, as pure questions about a graph that give a reason where the answer is no; and which tensors
// are likely to pass through memory, of which alone the storage type matters.
//
// Accumulators are f32 by the form of what the assignment makes: a product with narrow operands still gives f32, or is
// rounded once behind its sum.
#pragma once

#include "ir/graph/Graph.h"

#include <string>
#include <vector>

namespace rl {

inline constexpr uint32_t kPointwise = kNone - 1;

/// Products whose operands may be of narrow types.
bool isDecidedProduct(const Node &);

class PrecisionRules {
public:
  explicit PrecisionRules(const Graph &);

  /// Why an f32 tensor must not be stored in 16 bits: a statistic of rows (sums, extremes, variances and what is computed of
  /// them alone), an optimiser's state and what is elementwise computed of it, what a loss is computed of and what becomes of it. Empty: it may be.
  std::string mayNotNarrow(ValueId) const;
  /// Why a product's operands must not be rounded to 16 bits. Empty: they may be.
  std::string mayNotCast(NodeId) const;
  /// Why a product's weight, and its activation, must not be quantised: it has no weight; the weight is also an embedding
  /// table, a norm's scale or a bias; it is the final projection onto logits; probabilities, with their normalisers, are multiplied.
  std::string mayNotQuantise(NodeId) const;

  /// The place of a product's weight among its operands: on the right, a matrix, of parameters alone.
  bool hasWeight(NodeId) const;
  bool isStored(ValueId v) const { return stored[v]; }
  /// The kernel that computes a value, as far as this estimate goes: the place of the op that it is built around; kPointwise: one of
  /// elementwise ops alone, which are computed again wherever else they are read; kNone: it is given, or a constant.
  uint32_t kernelOf(ValueId v) const { return kernels[v]; }
  /// Whether a quantisation by rows fits into the kernel that computes the value.
  bool rowsAtHand(ValueId v) const { return rows[v]; }
  bool isConstant(ValueId v) const { return constant[v]; }

private:
  void findKernels();
  void findRoles();

  const Graph &g;
  std::vector<char> constant, stored, rows;
  std::vector<uint32_t> kernels;
  std::vector<char> statistic, probability, state, loss, logits;
  std::vector<char> table, normParameter; ///< of parameters, through layout ops and casts to the parameter
};

/// A parameter behind layout ops and casts, or kNone.
ValueId parameterOf(const Graph &, ValueId);

} // namespace rl
