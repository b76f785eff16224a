// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions. The elements of a group are visited in row-major order, so that results do not depend on anything else;
// floats accumulate in f64, integers modulo 2^64.
#include "ir/interp/Tensor.h"

#include <cmath>
#include <limits>

namespace rl::interp {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// Calls `group(o, elements, n)` for each element o of the result, with the n elements of x that it is made from.
template <class T, class Group>
void forEachGroup(const std::vector<T> &x, const std::vector<int64_t> &shape, const std::vector<int64_t> &dims,
                  Group group) {
  std::vector<int64_t> strides = stridesOf(shape), keptShape, foldedShape, kept[1], folded[1];
  size_t next = 0;
  for (size_t d = 0; d < shape.size(); ++d) {
    bool fold = next < dims.size() && dims[next] == static_cast<int64_t>(d);
    next += fold;
    (fold ? foldedShape : keptShape).push_back(shape[d]);
    (fold ? folded[0] : kept[0]).push_back(strides[d]);
  }
  int64_t n = 1;
  for (int64_t e : foldedShape)
    n *= e;
  std::vector<T> scratch;
  int64_t o = 0;
  forEachRow(keptShape, kept, [&](const int64_t *offset, int64_t count, const int64_t *step) {
    for (int64_t j = 0; j < count; ++j, ++o) {
      const int64_t start = offset[0] + j * step[0]; // no place in x where the group is empty: nothing is read then
      const T *elements = nullptr;
      size_t filled = 0;
      forEachRow(foldedShape, folded, [&](const int64_t *at, int64_t length, const int64_t *by) {
        const T *from = x.data() + start + at[0];
        if (length == n && (by[0] == 1 || length == 1)) {
          elements = from;
          return;
        }
        scratch.resize(static_cast<size_t>(n));
        elements = scratch.data();
        for (int64_t e = 0; e < length; ++e)
          scratch[filled++] = from[e * by[0]];
      });
      group(static_cast<size_t>(o), elements, n);
    }
  });
}

double sum(const float *v, int64_t n) {
  double s = 0;
  for (int64_t e = 0; e < n; ++e)
    s += v[e];
  return s;
}

uint64_t sum(const int64_t *v, int64_t n) {
  uint64_t s = 0;
  for (int64_t e = 0; e < n; ++e)
    s += static_cast<uint64_t>(v[e]);
  return s;
}

double magnitudeOf(const float *v, int64_t n) {
  double s = 0;
  for (int64_t e = 0; e < n; ++e)
    s += std::fabs(v[e]);
  return s;
}

/// Two passes. Correction as PyTorch: divided by max(0, n - correction).
double variance(const float *v, int64_t n, double correction) {
  double mean = sum(v, n) / static_cast<double>(n), squares = 0;
  for (int64_t e = 0; e < n; ++e)
    squares += (v[e] - mean) * (v[e] - mean);
  return (n == 0 ? kNan : squares) / std::fmax(0, static_cast<double>(n) - correction);
}

/// Of factors whose products may leave f32's range in some order, and come back in another, what may come out of that.
double nudgedProduct(const Nudges &nudges, const float *v, int64_t n) {
  double p = 1, large = 1, small = 1;
  for (int64_t e = 0; e < n; ++e) {
    const double factor = v[e], size = std::fabs(factor);
    p *= factor;
    if (size > 1)
      large *= size;
    else
      small *= size; // a zero as well
  }
  const bool over = large > std::numeric_limits<float>::max(), under = small < std::numeric_limits<float>::min();
  const uint64_t order = nudges.order();
  if (!std::isnan(p) && (over || under) && order >= 2)
    return over && under && order == 2 ? kNan : std::copysign(under && (order == 3 || !over) ? 0.0 : kInfinity, p);
  return p * (1 + nudges.at(0, 1) * Nudges::kShare * std::sqrt(static_cast<double>(n)) / 4);
}

double logSumExp(const float *v, int64_t n) {
  double top = -kInfinity;
  for (int64_t e = 0; e < n; ++e) {
    if (std::isnan(v[e]))
      return kNan;
    top = std::fmax(top, v[e]);
  }
  if (std::isinf(top)) // nothing, or all -inf: -inf. A +inf outweighs the rest
    return top;
  double s = 0;
  for (int64_t e = 0; e < n; ++e)
    s += std::exp(v[e] - top);
  return top + std::log(s);
}

bool isNan(float v) { return std::isnan(v); }
bool isNan(int64_t) { return false; }

/// The place of the first NaN, else of the first extreme value. n > 0.
template <class T> int64_t extreme(const T *v, int64_t n, bool greatest) {
  int64_t best = 0;
  for (int64_t e = 0; e < n; ++e) {
    if (isNan(v[e]))
      return e;
    if (greatest ? v[e] > v[best] : v[e] < v[best])
      best = e;
  }
  return best;
}

/// The extreme value; among zeros +0 is greater than -0, as for maximum.
float extremeValue(const float *v, int64_t n, bool greatest) {
  float best = v[extreme(v, n, greatest)];
  for (int64_t e = 0; best == 0 && e < n; ++e)
    if (v[e] == 0 && std::signbit(v[e]) != greatest)
      return v[e];
  return best;
}

/// Reductions of floats (and of integers, held as f32, where the result is a float that sums are not: var, logsumexp).
Status reduceFloats(Call &c, const std::vector<float> &x, const std::vector<int64_t> &dims) {
  using enum OpKind;
  const std::vector<int64_t> &shape = c.in[0]->shape;
  Tensor &y = c.out[0];
  auto each = [&](auto f) {
    forEachGroup(x, shape, dims, [&](size_t o, const float *v, int64_t n) { y.f[o] = static_cast<float>(f(v, n)); });
    return Status();
  };
  auto place = [&](auto f) {
    forEachGroup(x, shape, dims, [&](size_t o, const float *v, int64_t n) { y.i[o] = f(v, n); });
    return Status();
  };
  switch (c.node.op) {
  case Sum: return each([](const float *v, int64_t n) { return sum(v, n); });
  case Mean: return each([](const float *v, int64_t n) { return sum(v, n) / static_cast<double>(n); });
  case Prod:
    if (c.nudges)
      return each([&](const float *v, int64_t n) { return nudgedProduct(*c.nudges, v, n); });
    return each([](const float *v, int64_t n) {
      double p = 1;
      for (int64_t e = 0; e < n; ++e)
        p *= v[e];
      return p;
    });
  case Amax: return each([](const float *v, int64_t n) { return extremeValue(v, n, true); });
  case Amin: return each([](const float *v, int64_t n) { return extremeValue(v, n, false); });
  case Var:
    return each([&](const float *v, int64_t n) {
      const bool overflows = c.nudges && c.nudges->order() >= 2 && // as sums' parts
                             magnitudeOf(v, n) > std::numeric_limits<float>::max();
      return overflows ? kNan : variance(v, n, c.attrs().correction);
    });
  case LogSumExp: return each(logSumExp);
  case ArgMax: return place([](const float *v, int64_t n) { return extreme(v, n, true); });
  case ArgMin: return place([](const float *v, int64_t n) { return extreme(v, n, false); });
  case Any:
    return place([](const float *v, int64_t n) { return std::any_of(v, v + n, [](float e) { return e != 0; }); });
  case All:
    return place([](const float *v, int64_t n) { return std::all_of(v, v + n, [](float e) { return e != 0; }); });
  default:
    return unsupported(c.node.pointer(), std::string("the interpreter has no reduction ") + opInfo(c.node.op).name);
  }
}

Status reduceIntegers(Call &c, const std::vector<int64_t> &dims) {
  using enum OpKind;
  const Tensor &x = *c.in[0];
  Tensor &y = c.out[0];
  auto each = [&](auto f) {
    forEachGroup(x.i, x.shape, dims, [&](size_t o, const int64_t *v, int64_t n) {
      y.i[o] = wrapTo(y.dtype, static_cast<int64_t>(f(v, n)));
    });
    return Status();
  };
  switch (c.node.op) {
  case Sum: return each([](const int64_t *v, int64_t n) { return sum(v, n); });
  case Prod:
    return each([](const int64_t *v, int64_t n) {
      uint64_t p = 1;
      for (int64_t e = 0; e < n; ++e)
        p *= static_cast<uint64_t>(v[e]);
      return p;
    });
  case Amax: return each([](const int64_t *v, int64_t n) { return v[extreme(v, n, true)]; });
  case Amin: return each([](const int64_t *v, int64_t n) { return v[extreme(v, n, false)]; });
  case ArgMax: return each([](const int64_t *v, int64_t n) { return extreme(v, n, true); });
  case ArgMin: return each([](const int64_t *v, int64_t n) { return extreme(v, n, false); });
  case Any:
    return each([](const int64_t *v, int64_t n) { return std::any_of(v, v + n, [](int64_t e) { return e != 0; }); });
  case All:
    return each([](const int64_t *v, int64_t n) { return std::all_of(v, v + n, [](int64_t e) { return e != 0; }); });
  case Mean:
    forEachGroup(x.i, x.shape, dims, [&](size_t o, const int64_t *v, int64_t n) {
      y.f[o] = static_cast<float>(static_cast<double>(static_cast<int64_t>(sum(v, n))) / static_cast<double>(n));
    });
    return {};
  default: {
    std::vector<float> scratch;
    return reduceFloats(c, asFloats(x, scratch), dims);
  }
  }
}

} // namespace

Status evalReduction(Call &c) {
  using enum OpKind;
  const Tensor &x = *c.in[0];
  const bool place = c.node.op == ArgMax || c.node.op == ArgMin;
  std::vector<int64_t> dims = c.attrs().dims;
  if (place)
    dims = x.rank() == 0 ? std::vector<int64_t>{} : std::vector<int64_t>{c.attrs().dim};
  if (isFloat(x.dtype)) {
    std::vector<float> scratch;
    return reduceFloats(c, asFloats(x, scratch), dims);
  }
  return reduceIntegers(c, dims);
}

} // namespace rl::interp
