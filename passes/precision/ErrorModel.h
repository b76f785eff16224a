// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How far roundings inside a graph move its outputs, estimated without data.
//
// Errors are relative root mean squares: of x, rms(computed - exact) / rms(exact). Roundings are taken as independent and
// without bias (Higham and Mary, "A new approach to probabilistic rounding error analysis", 2019; Widrow and Kollar,
// "Quantization Noise", 2008), so that variances add, and each is carried to the outputs by a factor of its own.
//
//   rounding to a float type of unit roundoff u   0.425 u: uniform within a step, over mantissas distributed by Benford's law
//   rounding to i8 by a scale of amax / 127       c / (127 sqrt(12)); c = amax / rms of n normal numbers for weights; 20 for
//                                                 activations, which have outliers (and no bound but their range)
//   a product of K terms                          both operands' errors, sqrt(ea^2 + eb^2), whatever K: the exact sum and
//                                                 the sum of its terms' errors both grow as sqrt(K)
//   a sum of two tensors                          weighted by their sizes
//   a function                                    x f'(x) over a normal distribution of x's size
//   softmax, attention                            the absolute error of the scores
//
// Sizes (rms) follow the same paths from inputs of size 1, weights that keep the size of what they multiply, and literals.
// These are what a trained network has after its norms; where a graph is otherwise the estimate is off, and `verify --precision`
// measures. Of transformer blocks with random weights and inputs the errors measured were up to 1.2 times what these
// factors give, which kAllowance makes up for. What was observed on samples (PrecisionPolicy::observed) multiplies all that reaches an
// output.
#pragma once

#include "ir/graph/Graph.h"

#include <vector>

namespace rl {

/// Largest relative error of rounding a normal number to a float type: half a step. 0 for integers.
double unitRoundoff(DType);
/// Relative rms error of rounding to a float type, or to i8 where the largest of `group` elements has the largest code.
/// `tails`: of activations.
double roundingError(DType, int64_t group = 1, bool tails = false);

/// By value: whether it depends on parameters (and constants) alone.
std::vector<char> onParametersAlone(const Graph &);

inline constexpr double kAllowance = 1.2;

class ErrorModel {
public:
  explicit ErrorModel(const Graph &);

  double size(ValueId v) const { return sizes[v]; }
  size_t outputs() const { return gains.size(); }
  /// Variance at an output for each unit of (relative) variance at a value, with the allowance.
  double gain(size_t output, ValueId v) const { return gains[output][v]; }
  double greatestGain(ValueId) const;
  /// For one node: variance at its first result for each unit of variance at an operand.
  const std::vector<double> &local(NodeId n) const { return factors[n]; }

private:
  void propagate(const Graph &, NodeId);
  std::vector<double> sizes;
  std::vector<char> positive; ///< values that are nowhere negative: their mean does not vanish
  std::vector<char> constant;
  std::vector<std::vector<double>> factors;
  std::vector<std::vector<double>> gains;
};

} // namespace rl
