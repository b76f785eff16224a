// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A graph with what was decided about precision written out as nodes. Private to passes/precision.
#pragma once

#include "passes/precision/Precision.h"

#include <optional>

namespace rl {

/// How a product multiplies.
struct ProductForm {
  enum Kind : uint8_t {
    Keep,   ///< as the graph says
    Cast,   ///< operands cast to `compute`
    Both,   ///< both operands quantised, to `activation` and `weight`
    Weight, ///< the weight quantised, and widened to `compute` where it is multiplied
  } kind = Keep;
  DType compute = DType::BF16, activation = DType::F8E4M3, weight = DType::F8E4M3;
  bool operator==(const ProductForm &) const = default;
  std::string str(const std::string &kept) const;
};

struct PrecisionChoices {
  std::vector<ProductForm> products;         ///< by node
  std::vector<std::optional<DType>> storage; ///< by value: the type that it passes through
};

/// Nodes that are made carry the source and the place of the node that they are made for. Inputs, parameters and outputs keep
/// their names, types and order.
Result<PrecisionAssignment> rewritePrecision(const Graph &, const PrecisionChoices &);

} // namespace rl
