// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What quantising with given scales does to a tensor's values: the noise that it adds and the values that it clips.
#pragma once

#include "ir/graph/Graph.h"

#include <algorithm>
#include <vector>

namespace rl::calibrate {

/// Which scale each element of a tensor has. `runs` cuts the tensor into pieces whose elements' scales lie one behind the
/// other or are the same one.
class Groups {
public:
  Groups(std::vector<int64_t> shape, Granularity, int64_t axis, const int64_t (&block)[2]);

  int64_t count() const { return groups; }

  /// Calls f(first element, elements, group of the first, step of the group from one element to the next: 0 or 1).
  template <class F> void runs(F f) const {
    const size_t rank = shape.size();
    const int64_t columns = rank ? shape.back() : 1, width = rank ? divisor.back() : 1;
    const int64_t step = rank ? stride.back() : 0;
    int64_t total = 1;
    for (int64_t e : shape)
      total *= e;
    if (groups == 1)
      return f(int64_t(0), total, int64_t(0), int64_t(0));
    std::vector<int64_t> index(rank, 0);
    for (int64_t at = 0; at < total; at += columns) {
      int64_t group = 0;
      for (size_t d = 0; d + 1 < rank; ++d)
        group += index[d] / divisor[d] * stride[d];
      if (width == 1 || step == 0)
        f(at, columns, group, step);
      else
        for (int64_t j = 0; j < columns; j += width)
          f(at + j, std::min(width, columns - j), group + j / width * step, int64_t(0));
      for (size_t d = rank - 1; d-- > 0;) {
        if (++index[d] < shape[d])
          break;
        index[d] = 0;
      }
    }
  }

private:
  std::vector<int64_t> shape, divisor, stride; ///< element index / divisor * stride, summed over the dimensions
  int64_t groups = 1;
};

/// The largest magnitude that the quantised type is scaled to: 448 (f8e4m3), 57344 (f8e5m2), 127 (i8).
float largestOf(DType);
/// The least magnitude that rounds beyond it: 464, 61440, 127.5.
float clipsFrom(DType);

/// The scale by which values up to `range` fit, as the format has it: range / largest in f32, 1 for a range of 0; of f8e8m0
/// the least power of two that suffices.
float scaleFor(float range, DType quantised, DType scaleDtype);

/// Raises `amax` (one for each group) to the magnitudes of the finite values.
void raise(std::vector<float> &amax, const float *x, const Groups &);

/// The scales and zero points of the asymmetric scheme.
struct Affine {
  std::vector<float> scale, zeroPoint;
};
Affine affineFor(const float *x, const Groups &, DType scaleDtype);

/// Over the finite values. A value is clipped where the type's bounds change what it rounds to.
struct Quality {
  double signal = 0, noise = 0; ///< sums of x^2 and of (x - dequantised)^2
  int64_t values = 0, clipped = 0;

  double clippedShare() const { return values ? static_cast<double>(clipped) / static_cast<double>(values) : 0; }
  /// 10 log10(signal / noise) dB: infinite where there is no noise, NaN where there is no signal either.
  double sqnr() const;
};

/// Adds what quantising `x` symmetrically with these scales, one for each group, does.
void add(Quality &, const float *x, const Groups &, const std::vector<float> &scales, DType quantised);
void add(Quality &, const float *x, const Groups &, const Affine &);

} // namespace rl::calibrate
