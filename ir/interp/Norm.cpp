// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Softmax, log-softmax, layer norm and RMS norm, a row at a time in f64, each result rounded once.
#include "ir/interp/Tensor.h"

#include <cmath>
#include <limits>

namespace rl::interp {
namespace {

/// Of n > 0 values. A row of all -inf, or with a +inf or a NaN, has no finite maximum to subtract: it gives NaN.
void softmaxRow(std::vector<double> &row, bool logarithm) {
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  for (double v : row)
    top = std::isnan(v) || v > top ? v : top; // a NaN stays: nothing is greater
  for (double v : row)
    sum += std::exp(v - top);
  const double log = std::log(sum);
  for (double &v : row)
    v = logarithm ? v - top - log : std::exp(v - top) / sum;
}

void softmax(Call &c, bool logarithm) {
  const Tensor &x = *c.in[0];
  Tensor &y = c.out[0];
  std::vector<float> scratch;
  const std::vector<float> &v = asFloats(x, scratch);
  Split split(x.shape, c.attrs().dim);
  std::vector<double> row(static_cast<size_t>(split.extent));
  for (int64_t o = 0; o < split.outer; ++o)
    for (int64_t j = 0; j < split.inner; ++j) {
      const int64_t start = o * split.extent * split.inner + j;
      for (int64_t k = 0; k < split.extent; ++k)
        row[static_cast<size_t>(k)] = v[static_cast<size_t>(start + k * split.inner)];
      softmaxRow(row, logarithm);
      for (int64_t k = 0; k < split.extent; ++k)
        y.f[static_cast<size_t>(start + k * split.inner)] = static_cast<float>(row[static_cast<size_t>(k)]);
    }
}

/// (x - mean) / sqrt(variance + eps), or x / sqrt(mean square + eps), times the weight plus the bias.
void normalise(Call &c, bool centre) {
  const Tensor &x = *c.in[0];
  Tensor &y = c.out[0];
  const Attrs &a = c.attrs();
  std::vector<float> scratchX, scratchW, scratchB;
  const std::vector<float> &v = asFloats(x, scratchX);
  const float *weight = a.hasWeight ? asFloats(*c.in[1], scratchW).data() : nullptr;
  const float *bias = a.hasBias ? asFloats(*c.in[a.hasWeight ? 2 : 1], scratchB).data() : nullptr;
  const int64_t n = x.rank() == 0 ? 1 : x.shape.back(), rows = n == 0 ? 0 : x.size() / n;
  for (int64_t r = 0; r < rows; ++r) {
    const float *row = v.data() + r * n;
    float *to = y.f.data() + r * n;
    double mean = 0, squares = 0;
    if (centre) {
      for (int64_t e = 0; e < n; ++e)
        mean += row[e];
      mean /= static_cast<double>(n);
      if (c.nudges) {
        double magnitude = 0;
        for (int64_t e = 0; e < n; ++e)
          magnitude += std::fabs(row[e]);
        if (magnitude > std::numeric_limits<float>::max() && c.nudges->order() >= 2) // as sums' parts
          mean = std::numeric_limits<double>::quiet_NaN();
        if (const double by = magnitude / static_cast<double>(n) * Nudges::ofMean(static_cast<double>(n));
            std::isfinite(by))
          mean += c.nudges->at(static_cast<size_t>(r), 1) * by;
      }
    }
    for (int64_t e = 0; e < n; ++e)
      squares += (row[e] - mean) * (row[e] - mean);
    if (c.nudges)
      squares = static_cast<float>(squares); // statistics are of f32: they overflow where that does
    const double root = std::sqrt(squares / static_cast<double>(n) + a.eps);
    for (int64_t e = 0; e < n; ++e) {
      double result = (row[e] - mean) / root;
      if (weight)
        result *= weight[e];
      if (bias)
        result += bias[e];
      to[e] = static_cast<float>(result);
    }
  }
}

} // namespace

Status evalNorm(Call &c) {
  switch (c.node.op) {
  case OpKind::Softmax: return softmax(c, false), Status();
  case OpKind::LogSoftmax: return softmax(c, true), Status();
  case OpKind::LayerNorm: return normalise(c, true), Status();
  case OpKind::RmsNorm: return normalise(c, false), Status();
  default:
    return unsupported(c.node.pointer(), std::string("the interpreter has no normalisation ") + opInfo(c.node.op).name);
  }
}

} // namespace rl::interp
