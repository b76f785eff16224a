// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A maximum of magnitudes over a row whose values have a factor that the whole row shares, as those of a norm that is quantised:
// max |x r w| is |r| max |x w|. That does not wait for the reduction which r comes from, so that both exchange between a row's
// threads at once.
//
// For numbers in the middle of the range alone: x w may be too large or too small for an f32 where x r w is not, and the other
// way round. So the kernel that does this compares what it found with limits (below); a row beyond them reduces again, as it
// is written. Within them no value overflows in either order, and what underflows is too small beside the maximum for a code of
// 8 bits to tell, which is all that may be made of the values. NaN, which a maximum hands on, and 0 are beyond the limits.
#pragma once

#include "passes/plan/Trace.h"

#include <optional>
#include <string>

namespace rl {

struct FactoredMax {
  /// The maximum's and the factors' magnitudes are within [1/kLimit, kLimit], `squares` no more than kLimit squared. With two
  /// factors no product of some of all these is beyond 2^120.
  static constexpr float kLimit = 0x1p40f;
  static constexpr size_t kMostFactors = 2;

  /// How a value is computed without the factors, from the instances that are there before them.
  struct Step {
    enum Kind { Known, Literal, Mul, Div, Neg, Abs } kind = Known;
    uint32_t instance = kNone;  ///< Known
    double literal = 0;         ///< Literal
    size_t left = 0, right = 0; ///< earlier steps
  };
  struct Factor {
    uint32_t instance = kNone; ///< the row's; no more is known before than `value` waits for
    bool divides = false, magnitude = false;
  };
  uint32_t reduction = kNone; ///< the maximum
  uint32_t value = kNone;     ///< what the factors are taken out of
  uint32_t level = 0;         ///< of the value: reductions that must be known before it
  /// Casts above the value, in order, which round: as they keep an order, the maximum's rounding is that of the greatest.
  std::vector<uint32_t> roundings;
  /// Where all else that is made of the value is its quotient by what the row shares: that quotient. Its factors are then divided
  /// by the divisor once, not each element.
  uint32_t quotient = kNone;
  std::vector<Step> steps; ///< the last is `value` without its factors
  std::vector<Factor> factors;
  /// Sums of squares, known with the maximum: of what a factor multiplies before something else does, so that the product is
  /// bounded too.
  std::vector<uint32_t> squares;
};

/// What is computed from the values without their factors.
inline uint32_t targetOf(const FactoredMax &f) { return f.quotient != kNone ? f.quotient : f.value; }

struct Factoring {
  std::optional<FactoredMax> found;
  std::string refusal; ///< where there is a maximum of magnitudes that waits for another reduction: why it does
};

/// The first in a trace of rows.
Factoring findFactoredMax(const Graph &, const Trace &);

} // namespace rl
