// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An op of the dialect seen as a node of a graph: its kind and resolved attributes. Verifiers use it, and whatever
// decides or emits by OpKind rather than by op class.
#pragma once

#include "ir/graph/Graph.h"

#include <optional>
#include <vector>

namespace mlir {
class Operation;
} // namespace mlir

namespace mlir::ridge {

struct OpModel {
  rl::OpKind kind;
  rl::Attrs attrs;
};

/// What the op's kind would be in a graph; nothing for ops that are not nodes (literal, group, yield, other dialects).
/// squeeze and unsqueeze are reshapes.
std::optional<rl::OpKind> opKind(Operation *op);

/// Kind and attributes. Attributes that are the result type's (shape, dtype, a slice's length) are filled in from it.
/// The op must have passed the checks that ODS generates; one that is otherwise ill-formed gives attributes that
/// rl::inferResults refuses.
std::optional<OpModel> opModel(Operation *op);

/// Types of the operands, literals with their value; nothing where an operand is not a tensor of the format.
std::optional<std::vector<rl::OperandType>> operandTypes(Operation *op);

} // namespace mlir::ridge
