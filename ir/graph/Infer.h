// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the files of the graph library share among themselves: pieces of shape and type inference. Not for other folders;
// they use Graph.h.
#pragma once

#include "ir/graph/Graph.h"

#include <string>
#include <string_view>
#include <vector>

namespace rl::graph {

inline constexpr int64_t kMaxRank = 8;

using Shape = std::vector<int64_t>;
using Operands = std::vector<OperandType>;

// Errors with pointers relative to the node.
Error nodeError(std::string message);
Error attrError(std::string_view name, std::string message);
Error operandError(size_t operand, std::string message);

/// The product of the extents; nullopt where it does not fit an int64.
std::optional<int64_t> product(const Shape &);
/// Rank at most 8, no negative extent, and no more bytes than an int64 counts (extents of 0 counted as 1, so that strides
/// fit as well). On failure: what is wrong, without a place.
std::optional<std::string> tensorProblem(const TensorType &);

/// NumPy's broadcasting of two shapes; nullopt where they do not fit.
std::optional<Shape> broadcast(const Shape &, const Shape &);
/// Whether `from` broadcasts to exactly `to`.
bool broadcastsTo(const Shape &from, const Shape &to);

/// A scalar as a value of the type: Float, Int or Bool by its category. Error text (without a place) where the type cannot
/// hold it: an integer out of range, a fraction or a non-finite number for an integer type.
struct ScalarIn {
  Scalar value;
  std::string problem; ///< empty: none
};
ScalarIn scalarIn(const Scalar &, DType);
std::string str(const Scalar &);

/// "f32, f16 or bf16" from "f32|f16|bf16".
std::string listed(std::string_view choices);
/// Whether `word` is among the `choices` of an AttrInfo.
bool isChoice(std::string_view word, const char *choices);

bool isElementwise(OpKind);
/// Whether the op makes f32 of integers and bools (exp, div, ...).
bool makesFloat(OpKind);
bool isComparison(OpKind);
bool isQuantised(DType); ///< what `quantize` makes: f8e4m3, f8e5m2, i8

/// The type of the rank-0 tensor that a literal stands for as this operand of an op that is not elementwise.
DType literalType(OpKind, size_t operand, const Scalar &);

/// matmul, linear: the type of the product of operands 0 and 1; nullopt where out_dtype must say (unlike f8 types).
Result<std::optional<DType>> productType(const Operands &);

/// What NumPy's matmul makes of the shapes of operands 0 and 1: an operand of rank 1 is a row on the left and a column on the
/// right, and that dimension is missing in the result. Both have rank 1 or more.
Result<Shape> productShape(const Operands &, bool transposeA, bool transposeB);

/// The shape of the scales of a tensor of this shape. `suffix` is "", "_a" or "_b": of the attributes that errors name.
Result<Shape> scaleShape(const Shape &, Granularity, int64_t axis, const int64_t (&block)[2], std::string_view suffix);

/// Arity of operands and results.
Status checkArity(OpKind, size_t operands, size_t outputs);

/// Attributes as written to attributes as meant. Operands are tensors here but for elementwise ops.
Result<Attrs> readAttributes(OpKind, const Operands &, const std::map<std::string, AttrValue> &, const DimValues &);

// One family of ops each; operands' number and literals are already checked.
using Types = std::vector<TensorType>;
Result<Types> inferElementwise(OpKind, const Operands &, const Attrs &);
Result<Types> inferLayout(OpKind, const Operands &, const Attrs &);
Result<Types> inferReduction(OpKind, const Operands &, const Attrs &);
Result<Types> inferNorm(OpKind, const Operands &, const Attrs &);
Result<Types> inferMatrix(OpKind, const Operands &, const Attrs &);
Result<Types> inferIndexing(OpKind, const Operands &, const Attrs &);
Result<Types> inferAttention(const Operands &, const Attrs &);
Result<Types> inferCrossEntropy(const Operands &, const Attrs &);
Result<Types> inferQuantised(OpKind, const Operands &, size_t outputs, const Attrs &);

} // namespace rl::graph
