// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the cost model says of products and conversions before there are kernels: which types a product multiplies in on a
// machine, what its weights are read as, and what quantising takes.
#pragma once

#include "passes/cost/Cost.h"

namespace rl {

/// A product of [batch, m, k] by [k, n], its operands as they are stored. A right operand narrower than the left is widened where it is read.
struct ProductAsk {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  DType a = DType::F32, b = DType::F32, out = DType::F32;
  bool rows = true; ///< the left operand lies in memory row by row
  auto operator<=>(const ProductAsk &) const = default;
};

/// Seconds of one kernel of a plan.
double productSeconds(const ProductAsk &, const cost::TargetDesc &);

/// Rows by their own largest element to `to`, with a scale each. `alone`: a kernel of its own, which reads what is quantised;
/// otherwise only what it writes beyond the kernel that has the rows.
double quantiseSeconds(int64_t rows, int64_t width, DType from, DType to, bool alone, const cost::TargetDesc &);

/// Reading or writing so many bytes within kernels that are there anyway.
double trafficSeconds(double bytes, const cost::TargetDesc &);

/// A kernel that reads and writes so many bytes, once, when parameters are bound.
double conversionSeconds(double read, double written, const cost::TargetDesc &);

} // namespace rl
