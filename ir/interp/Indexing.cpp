// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// embedding, index_select, gather. Every index is checked before anything is read by it.
#include "ir/interp/Tensor.h"

namespace rl::interp {
namespace {

/// The index tensor's element at flat place `at`, as coordinates.
std::vector<int64_t> coordinates(const std::vector<int64_t> &shape, int64_t at) {
  std::vector<int64_t> result(shape.size());
  for (size_t d = shape.size(); d-- > 0;) {
    result[d] = at % shape[d];
    at /= shape[d];
  }
  return result;
}

Status check(Call &c, const Tensor &indices, int64_t extent) {
  for (size_t e = 0; e < indices.i.size(); ++e)
    if (indices.i[e] < 0 || indices.i[e] >= extent)
      return c.error("index " + std::to_string(indices.i[e]) + " at position " +
                     str(coordinates(indices.shape, static_cast<int64_t>(e))) + " is out of range for an extent of " +
                     std::to_string(extent));
  return {};
}

/// y[o, j, i] = x[o, index[j], i]
void select(const Tensor &x, const Split &split, const std::vector<int64_t> &indices, Tensor &y) {
  withElements(y, x, [&](auto &to, const auto &from) {
    auto *out = to.data();
    for (int64_t o = 0; o < split.outer; ++o)
      for (int64_t index : indices)
        out = std::copy_n(from.data() + (o * split.extent + index) * split.inner, split.inner, out);
  });
}

/// y[index] = x[index with its place along dim replaced by indices[index]]
void gather(const Tensor &x, int64_t dim, const Tensor &indices, Tensor &y) {
  std::vector<int64_t> own = stridesOf(x.shape);
  const int64_t along = x.rank() == 0 ? 0 : own[static_cast<size_t>(dim)];
  if (x.rank() != 0)
    own[static_cast<size_t>(dim)] = 0;
  const std::vector<int64_t> strides[2] = {stridesOf(indices.shape), own};
  withElements(y, x, [&](auto &to, const auto &from) {
    forEachRow(indices.shape, strides, [&](const int64_t *offset, int64_t n, const int64_t *step) {
      for (int64_t j = 0; j < n; ++j) {
        const size_t at = static_cast<size_t>(offset[0] + j * step[0]);
        to[at] = from[static_cast<size_t>(offset[1] + j * step[1] + indices.i[at] * along)];
      }
    });
  });
}

} // namespace

Status evalIndexing(Call &c) {
  const Tensor &x = *c.in[0], &indices = *c.in[1];
  const int64_t dim = c.node.op == OpKind::Embedding ? 0 : c.attrs().dim;
  const Split split(x.shape, dim);
  RL_TRY(check(c, indices, split.extent));
  if (c.node.op == OpKind::Gather)
    gather(x, dim, indices, c.out[0]);
  else
    select(x, split, indices.i, c.out[0]);
  return {};
}

} // namespace rl::interp
