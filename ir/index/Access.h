// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a vector of consecutive iterations reads, and iteration spaces with fewer dimensions.
//
// A kernel processes V consecutive points of its innermost dimension at once: d = V*j + l with lanes l = 0 .. V-1. For
// a load at element offset E(..., d), the lanes' offsets are E_0 .. E_{V-1}. When all differences E_l - E_0 are
// constants of the kernel (they do not depend on the point) the access has a shape that is known at compile time:
//
//   Uniform     all zero                   one scalar load, broadcast
//   Contiguous  E_l - E_0 = l              one vector load, if E_0 is a multiple of enough elements
//   Strided     E_l - E_0 = s*l, s not 0,1 (s = -1: load the vector from E_{V-1} and reverse it)
//   Gather      anything else              V scalar loads
//
// Case: x viewed [8192, 128], its half rotated (rope): reads (d - 64) of the row for d >= 64. E = 128*d0 + d - 64; with
// V = 8 the lanes differ by l, and E_0 = 128*d0 + 8*j - 64 is a multiple of 8: Contiguous, alignElements 8. After a
// slice that starts at 3 it would be 128*d0 + 8*j + 3: Contiguous, alignElements 1.
// Case: a bias over rows, E = d0: Uniform. A transposed read, E = 8192*d + d0: Strided by 8192.
// Case: E = (d mod 12), V = 8: vectors that start at 8 wrap inside, 8 9 10 11 0 1 2 3: Gather. With V = 4: Contiguous.
#pragma once

#include "ir/index/Layout.h"

namespace rl::index {

struct Access {
  enum Kind : uint8_t { Contiguous, Uniform, Strided, Gather } kind = Gather;
  int64_t stride = 0;        ///< elements from a lane to the next: Contiguous 1, Uniform 0, Gather 0 (no meaning)
  int64_t alignElements = 1; ///< the first lane's offset is a multiple of this power of two, at most V
  bool operator==(const Access &) const = default;
};

/// How V whole consecutive iterations of `dim`, from a multiple of V, read at element offset `linear`. V is a power of
/// two. With V = 1: how one iteration follows another; Gather where the dimension is inside a floordiv or mod.
Access classify(Context &, Expr linear, int dim, int64_t V);

/// The same in terms of what does not depend on the dimension, where its value decides nothing: 8*d0 + d1 < 64 with d1 < 8 is d0 < 8.
/// Otherwise the condition as it is. Takes what `expanded` gives.
Conditions independentOf(Context &, const Condition &, int dim);

/// The condition is all true or all false over every such vector (so one branch or one select serves all lanes).
/// Sufficient, not necessary.
bool lanesAgree(Context &, const Condition &, int dim, int64_t V);

/// The expression for lane `l` of vector j: `dim` becomes V*j + l with j = Context::split(dim, V).outer.
Expr atLane(Context &, Expr e, int dim, int64_t V, int64_t lane);

/// An iteration space with adjacent dimensions merged.
struct Collapsed {
  std::vector<int> dims;     ///< new or surviving dimensions, outermost first; at least one
  Shape shape;               ///< their extents
  std::vector<Expr> exprs;   ///< the expressions given, over those dimensions, in the order given
  Substitution replacements; ///< old dimension -> its value in terms of the new ones, for anything else
};

/// Merges adjacent dimensions of the iteration space (`dims`, outermost first, extents as in the context) wherever that
/// makes no expression heavier, and drops dimensions of extent 1. Pass element offsets (`address`) and the expressions
/// of conditions. The row-major order of the points stays the same.
/// Case: [512, 11008] with x, y at 11008*d0 + d1 becomes [5636096] with d2. Add a bias at d1 and nothing is merged, as
/// it would have to be read at d2 mod 11008.
Collapsed collapseDims(Context &, const std::vector<int> &dims, const std::vector<Expr> &exprs);

} // namespace rl::index
