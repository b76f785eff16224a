// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Ops that move elements without changing them, and ops that make tensors from nothing.
#include "ir/interp/Convert.h"
#include "ir/interp/Tensor.h"

#include <cmath>

namespace rl::interp {
namespace {

/// to[toStart + index * toStrides] = from[fromStart + index * fromStrides] for every index within `shape`.
void copyStrided(Tensor &to, int64_t toStart, const std::vector<int64_t> &toStrides, const Tensor &from,
                 int64_t fromStart, const std::vector<int64_t> &fromStrides, const std::vector<int64_t> &shape) {
  const std::vector<int64_t> strides[2] = {toStrides, fromStrides};
  withElements(to, from, [&](auto &target, const auto &source) {
    auto *t = target.data() + toStart;
    const auto *s = source.data() + fromStart;
    forEachRow(shape, strides, [&](const int64_t *offset, int64_t n, const int64_t *step) {
      for (int64_t j = 0; j < n; ++j)
        t[offset[0] + j * step[0]] = s[offset[1] + j * step[1]];
    });
  });
}

void fill(Tensor &t, const Scalar &value) {
  if (isArithmeticFloat(t.dtype))
    std::fill(t.f.begin(), t.f.end(), scalarFloat(value));
  else if (isF8(t.dtype))
    std::fill(t.codes.begin(), t.codes.end(), encodeF8(t.dtype, scalarFloat(value)));
  else
    std::fill(t.i.begin(), t.i.end(), scalarInteger(t.dtype, value));
}

/// A tensor of another type as one of `dtype`: the operands of cat promote.
Tensor convert(const Tensor &t, DType dtype) {
  Tensor result(TensorType{dtype, t.shape});
  std::vector<float> floats;
  std::vector<int64_t> integers;
  if (isArithmeticFloat(dtype))
    result.f = asFloats(t, floats);
  else if (isF8(dtype))
    for (size_t e = 0; e < result.codes.size(); ++e)
      result.codes[e] = encodeF8(dtype, asFloats(t, floats)[e]);
  else
    for (size_t e = 0; e < result.i.size(); ++e)
      result.i[e] = wrapTo(dtype, asIntegers(t, integers)[e]);
  return result;
}

void cat(Call &c) {
  Tensor &y = c.out[0];
  const size_t dim = static_cast<size_t>(c.attrs().dim);
  const std::vector<int64_t> strides = stridesOf(y.shape);
  int64_t at = 0;
  for (const Tensor *x : c.in) {
    if (x->size() != 0)
      copyStrided(y, at * strides[dim], strides, x->dtype == y.dtype ? *x : convert(*x, y.dtype), 0,
                  stridesOf(x->shape), x->shape);
    at += x->shape[dim];
  }
}

void pad(Call &c) {
  const Tensor &x = *c.in[0];
  Tensor &y = c.out[0];
  fill(y, c.attrs().value);
  const std::vector<int64_t> strides = stridesOf(y.shape), own = stridesOf(x.shape);
  // A negative pad crops, so that only what lies within both is copied.
  std::vector<int64_t> shape(x.shape.size());
  int64_t toStart = 0, fromStart = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    int64_t low = c.attrs().low[d], first = std::max<int64_t>(0, -low);
    int64_t end = std::min(x.shape[d], y.shape[d] - low);
    shape[d] = std::max<int64_t>(0, end - first);
    fromStart += first * own[d];
    toStart += (first + low) * strides[d];
  }
  if (std::find(shape.begin(), shape.end(), 0) == shape.end())
    copyStrided(y, toStart, strides, x, fromStart, own, shape);
}

void iota(Call &c) {
  Tensor &y = c.out[0];
  Split split(y.shape, c.attrs().dim);
  int64_t at = 0;
  for (int64_t o = 0; o < split.outer; ++o)
    for (int64_t k = 0; k < split.extent; ++k)
      for (int64_t j = 0; j < split.inner; ++j, ++at) {
        if (isArithmeticFloat(y.dtype))
          y.f[static_cast<size_t>(at)] = static_cast<float>(k);
        else if (isF8(y.dtype))
          y.codes[static_cast<size_t>(at)] = encodeF8(y.dtype, static_cast<float>(k));
        else
          y.i[static_cast<size_t>(at)] = wrapTo(y.dtype, k);
      }
}

} // namespace

Status evalLayout(Call &c) {
  using enum OpKind;
  const Attrs &a = c.attrs();
  Tensor &y = c.out[0];
  switch (c.node.op) {
  case Full: return fill(y, a.value), Status();
  case Iota: return iota(c), Status();
  case Cat: return cat(c), Status();
  case Pad: return pad(c), Status();
  default: break;
  }
  // The others read x by strides: y[index] = x[start + index * strides].
  const Tensor &x = *c.in[0];
  const std::vector<int64_t> own = stridesOf(x.shape);
  std::vector<int64_t> strides;
  int64_t start = 0;
  switch (c.node.op) {
  case Reshape:
  case Unsqueeze:
  case Squeeze: return withElements(y, x, [](auto &to, const auto &from) { to = from; }), Status();
  case Permute:
    for (int64_t d : a.dims)
      strides.push_back(own[static_cast<size_t>(d)]);
    break;
  case Expand: strides = broadcastStrides(x.shape, y.shape); break;
  case Slice:
    strides = own;
    strides[static_cast<size_t>(a.dim)] *= a.step;
    start = a.start * own[static_cast<size_t>(a.dim)];
    break;
  case Flip:
    strides = own;
    for (int64_t d : a.dims) {
      start += (x.shape[static_cast<size_t>(d)] - 1) * own[static_cast<size_t>(d)];
      strides[static_cast<size_t>(d)] *= -1;
    }
    break;
  default:
    return unsupported(c.node.pointer(), std::string("the interpreter has no layout op ") + opInfo(c.node.op).name);
  }
  if (y.size() != 0)
    copyStrided(y, 0, stridesOf(y.shape), x, start, strides, y.shape);
  return {};
}

} // namespace rl::interp
