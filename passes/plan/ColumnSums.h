// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sums down the columns of a tensor whose rows another kernel reduces, as a norm's backward needs for its weights. Such a
// kernel has the row in registers anyway: if a block takes many rows one after the other, each of its threads adds up the
// columns that it holds, and the block writes one partial sum a column at its end.
#pragma once

#include "ir/graph/Graph.h"

#include <optional>
#include <set>

namespace rl {

struct ColumnSum {
  ValueId operand = kNone; ///< rows of the width, in the order of memory
  int64_t parts = 1;       ///< the result: for each part of the rows, one after the other, a sum for each column
  bool inTurn = false;     ///< a part has every parts-th row; otherwise rows that follow each other
};

/// Whether a value is sums of f32 down the columns of rows of this width.
std::optional<ColumnSum> columnSum(const Graph &, ValueId, int64_t width);

/// Whether it is, of these rows, in equal parts of two or more and at least so many of them.
bool isColumnSumOf(const Graph &, ValueId, int64_t rows, int64_t width, int64_t leastParts);

/// What is loaded where a value is computed and has at least half as many elements as that: inputs, and what is stored.
std::set<ValueId> largeLoads(const Graph &, const std::set<ValueId> &stored, ValueId, int64_t elements);

} // namespace rl
