// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Index maps of the layout ops.
#include "ir/index/Layout.h"

#include <algorithm>
#include <cassert>

namespace rl::index {

bool Guarded::never() const {
  return std::any_of(conditions.begin(), conditions.end(), [](const Condition &c) { return c.never(); });
}

Tuple identity(Context &ctx, size_t rank) {
  Tuple t;
  for (size_t i = 0; i < rank; ++i)
    t.push_back(ctx.dim(static_cast<int>(i)));
  return t;
}

static bool isEmpty(const Shape &shape) { return std::find(shape.begin(), shape.end(), 0) != shape.end(); }

/// Linearises dimensions [from, to).
static Expr linearizePart(Context &ctx, const Tuple &index, const Shape &shape, size_t from, size_t to) {
  Expr e = ctx.constant(0);
  int64_t stride = 1;
  for (size_t i = to; i-- > from;) {
    e = ctx.add(e, ctx.mul(index[i], stride));
    stride *= shape[i];
  }
  return e;
}

/// Appends the index within dimensions [from, to) of `shape`.
static void delinearizePart(Context &ctx, Expr linear, const Shape &shape, size_t from, size_t to, Tuple &out) {
  int64_t stride = 1;
  for (size_t i = from + 1; i < to; ++i)
    stride *= shape[i];
  bool outermost = true; // of those with more than one place: the bound on `linear` stands for its mod
  for (size_t i = from; i < to; ++i) {
    if (shape[i] <= 1) {
      out.push_back(ctx.constant(0));
    } else {
      Expr q = ctx.floordiv(linear, stride);
      out.push_back(outermost ? q : ctx.mod(q, shape[i]));
      outermost = false;
    }
    if (i + 1 < to)
      stride /= shape[i + 1];
  }
}

Expr linearize(Context &ctx, const Tuple &index, const Shape &shape) {
  assert(index.size() == shape.size());
  if (isEmpty(shape))
    return ctx.constant(0);
  return linearizePart(ctx, index, shape, 0, shape.size());
}

Tuple delinearize(Context &ctx, Expr linear, const Shape &shape) {
  if (isEmpty(shape))
    return Tuple(shape.size(), ctx.constant(0));
  Tuple out;
  delinearizePart(ctx, linear, shape, 0, shape.size(), out);
  return out;
}

Expr address(Context &ctx, const Tuple &index, const Shape &shape) { return ctx.expand(linearize(ctx, index, shape)); }

Condition expanded(Context &ctx, const Condition &c) { return {ctx.expand(c.expr), c.lo, c.hi}; }

Tuple reshapeOperand(Context &ctx, const Tuple &result, const Shape &resultShape, const Shape &operandShape) {
  assert(result.size() == resultShape.size());
  if (isEmpty(resultShape))
    return Tuple(operandShape.size(), ctx.constant(0));
  Tuple out;
  size_t i = 0, j = 0;
  while (j < operandShape.size()) {
    size_t iEnd = i, jEnd = j;
    int64_t a = 1, b = operandShape[jEnd++];
    while (a != b) {
      if (a < b)
        a *= resultShape[iEnd++];
      else
        b *= operandShape[jEnd++];
    }
    // Extents of 1 on either side belong to whatever group they stand beside; their index is 0.
    if (jEnd - j == 1 && iEnd - i == 1)
      out.push_back(result[i]);
    else
      delinearizePart(ctx, linearizePart(ctx, result, resultShape, i, iEnd), operandShape, j, jEnd, out);
    i = iEnd;
    j = jEnd;
  }
  return out;
}

Tuple permuteOperand(const Tuple &result, const std::vector<int64_t> &dims) {
  Tuple out(result.size());
  for (size_t i = 0; i < dims.size(); ++i)
    out[static_cast<size_t>(dims[i])] = result[i];
  return out;
}

Tuple broadcastIndex(Context &ctx, const Tuple &result, const Shape &resultShape, const Shape &operandShape) {
  assert(result.size() == resultShape.size() && operandShape.size() <= resultShape.size());
  Tuple out;
  size_t skip = resultShape.size() - operandShape.size();
  for (size_t i = 0; i < operandShape.size(); ++i)
    out.push_back(operandShape[i] == 1 ? ctx.constant(0) : result[skip + i]);
  return out;
}

Tuple unsqueezeOperand(const Tuple &result, int64_t dim) {
  Tuple out = result;
  out.erase(out.begin() + dim);
  return out;
}

Tuple squeezeOperand(Context &ctx, const Tuple &result, int64_t dim) {
  Tuple out = result;
  out.insert(out.begin() + dim, ctx.constant(0));
  return out;
}

Tuple sliceOperand(Context &ctx, const Tuple &result, int64_t dim, int64_t start, int64_t step) {
  Tuple out = result;
  Expr &e = out[static_cast<size_t>(dim)];
  e = ctx.add(ctx.mul(e, step), start);
  return out;
}

Tuple flipOperand(Context &ctx, const Tuple &result, const Shape &shape, const std::vector<int64_t> &dims) {
  Tuple out = result;
  for (int64_t d : dims) {
    Expr &e = out[static_cast<size_t>(d)];
    e = ctx.add(ctx.mul(e, -1), std::max<int64_t>(shape[static_cast<size_t>(d)], 1) - 1);
  }
  return out;
}

/// The shifted index e - offset within [0, extent), recorded with its condition unless that always holds.
static Expr guarded(Context &ctx, Expr e, int64_t offset, int64_t extent, Conditions &conditions) {
  Condition c{e, offset, offset + extent};
  if (!c.always())
    conditions.push_back(c);
  return ctx.restrict(ctx.add(e, -offset), extent);
}

Guarded padOperand(Context &ctx, const Tuple &result, const std::vector<int64_t> &low, const Shape &operandShape) {
  assert(result.size() == low.size() && low.size() == operandShape.size());
  Guarded g;
  for (size_t i = 0; i < result.size(); ++i)
    g.index.push_back(guarded(ctx, result[i], low[i], operandShape[i], g.conditions));
  return g;
}

Guarded catOperand(Context &ctx, const Tuple &result, int64_t dim, const std::vector<int64_t> &extents, size_t which) {
  Guarded g{result, {}};
  int64_t offset = 0;
  for (size_t k = 0; k < which; ++k)
    offset += extents[k];
  Expr &e = g.index[static_cast<size_t>(dim)];
  e = guarded(ctx, e, offset, extents[which], g.conditions);
  return g;
}

} // namespace rl::index
