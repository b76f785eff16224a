// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Layout ops as index maps: from the index of a result element to the index of the operand element that it is.
//
// A tensor's index is a Tuple, one Expr per dimension; rank 0 has the empty tuple. Every function takes the result's
// tuple and gives the operand's, so an emitter walks from a store towards the loads. `cat` and `pad` have no operand
// element for some results: their functions also give the conditions under which one exists.
//
// Inside those conditions the operand's index is in bounds, and further simplification should know it. Indices from
// catOperand and padOperand therefore stand for themselves through Context::restrict; `address` (or Context::expand) at
// the end of a chain puts the plain expression back. Conditions stay as they are; call `expanded` before emitting them.
#pragma once

#include "ir/index/Expr.h"

namespace rl::index {

using Tuple = std::vector<Expr>;
using Shape = std::vector<int64_t>;

/// Holds where lo <= expr < hi.
struct Condition {
  Expr expr;
  int64_t lo, hi;
  bool always() const { return expr.range().lo >= lo && expr.range().hi < hi; }
  bool never() const { return expr.range().hi < lo || expr.range().lo >= hi || lo >= hi; }
  bool operator==(const Condition &) const = default;
};
using Conditions = std::vector<Condition>; ///< all of them must hold; empty: always

/// An operand's index and when it exists. Conditions that always hold are left out.
struct Guarded {
  Tuple index;
  Conditions conditions;
  bool never() const; ///< some condition never holds: this operand contributes nothing
};

/// Dimensions 0 .. rank-1 of the context as a tuple.
Tuple identity(Context &, size_t rank);

/// Row-major: index[0]*(shape[1]*shape[2]*...) + ... + index[rank-1]. 0 for rank 0.
Expr linearize(Context &, const Tuple &index, const Shape &shape);
/// The inverse, where 0 <= linear < elements(shape); that bound is relied upon, not checked. All zero for empty shapes.
Tuple delinearize(Context &, Expr linear, const Shape &shape);
/// linearize, then Context::expand: an element offset ready to be emitted or analysed.
Expr address(Context &, const Tuple &index, const Shape &shape);
Condition expanded(Context &, const Condition &);

/// reshape: equal element counts. Shapes are matched from the left in the smallest groups whose products agree, and
/// each group is linearised and delinearised on its own.
Tuple reshapeOperand(Context &, const Tuple &result, const Shape &resultShape, const Shape &operandShape);
/// permute: result dimension i is operand dimension dims[i].
Tuple permuteOperand(const Tuple &result, const std::vector<int64_t> &dims);
/// NumPy's broadcasting, aligned at the right: leading dimensions are dropped, extents of 1 are read at 0. Also
/// `expand`.
Tuple broadcastIndex(Context &, const Tuple &result, const Shape &resultShape, const Shape &operandShape);
Tuple unsqueezeOperand(const Tuple &result, int64_t dim);
Tuple squeezeOperand(Context &, const Tuple &result, int64_t dim);
/// slice: element i of the result is element start + step*i along dim; step may be negative.
Tuple sliceOperand(Context &, const Tuple &result, int64_t dim, int64_t start, int64_t step);
Tuple flipOperand(Context &, const Tuple &result, const Shape &shape, const std::vector<int64_t> &dims);
/// pad: low[i] elements before and some after along each dimension; negative amounts crop. Where the conditions do not
/// hold the result is the padding value.
Guarded padOperand(Context &, const Tuple &result, const std::vector<int64_t> &low, const Shape &operandShape);
/// cat: operand `which` of those with these extents along dim.
Guarded catOperand(Context &, const Tuple &result, int64_t dim, const std::vector<int64_t> &extents, size_t which);

} // namespace rl::index
