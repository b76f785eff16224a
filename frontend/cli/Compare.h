// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A target's result beside the reference interpreter's, and what the format lets differ.
//
// A fused kernel may keep f32 where op by op every 16-bit result is rounded, so that there are two reference values: with
// every node's result rounded, and with none rounded inside the graph. What a target computes lies within the tolerance of
// the span between them. An element of a float output is within the tolerance where
//
//   |got - reference| <= max(relative * |reference| + floor * size(reference's row), moved) + |kept - rounded|
//
// or, for 16-bit types without a given tolerance, where it is at most two representable values away. `relative` is 1e-5
// for f32 and two units in the last place for 16-bit types. A row's size is its root mean square, or twice its median where that is
// less: large elements do not speak for small ones (but behind quantisation, where a code is off that no draw tells). The floor is for cancellation: 1e-6 for what is computed in f32,
// half a unit in the last place (2^-9 bf16, 2^-12 f16) where 16-bit intermediates are stored between kernels or, in
// strict graphs, after each node; 2^-11 where bf16 intermediates stay in a kernel, as functions whose result is one may err by
// that much (compiler/lower/common/ACCURACY.md); behind matrix products at least 2^-29 for each term of a sum, since tensor cores cut
// off what they add up, 16 terms at a time, instead of rounding it. Where values are quantised that may themselves differ, codes differ by one, and the
// floor is 2^-4 (i8, f8e4m3) or 2^-3 (f8e5m2) at least, `relative` twice that. Outputs that only exact operations lead to (comparisons, layout, casts, integers, sums
// and products of two; in f32 or strict graphs) must be equal. Integers, bool and f8 must be equal to either reference
// value; where an output depends on a function that is correct to a few ulp, 1 element in 1,000 may be one step off; where 16-bit values
// lead to it, 1 in 100, of quantised values 1 in 8.
//
// `moved` is known where that is not enough: how far an element is moved by errors of a few roundings at every node on the way
// (Intermediates::Nudged), the most of several draws, or half as much again where 16-bit values are on the way. It is large just where the graph makes much of them: where sums cancel, behind
// exp of large logits. An integer or a code may be what lies between the reference values and those draws; a code of 8-bit
// floats four times as far off.
//
// Beyond the tolerance is also a result in 16 bits, or that 16-bit values lead to, half of which is off in one direction, relative to itself, by more than half
// a unit in the last place, or four times what draws are: a wrong factor. (But not where fast_accumulate cuts off sums, which makes all of them less.)
//
// NaN equals NaN. What is not finite is right where any of the reference values or draws is so, with this sign (where one is NaN, with any, as in another order it may have been an infinity), or where a finite one is within the
// tolerance of the number from which its type rounds to infinity; what is finite beside an infinite reference, where it is
// within the tolerance of that number or of a finite draw. Where the reference is NaN, or infinite, rounded and not otherwise, or the
// other way round, something overflowed on the way, and a kernel that keeps some of it may have NaN, an infinity or 0 as well.
#pragma once

#include "ir/graph/Graph.h"
#include "ir/interp/Interpreter.h"

#include <functional>
#include <string>
#include <vector>

namespace rl::cli {

/// How an output depends on what may be inexact.
struct Exactness {
  bool inexact = false; ///< a function, a reduction of floats or a matrix product leads to it
  bool narrow = false;  ///< 16-bit floats stand between two nodes on the way to it, or within an attention
  bool bf16 = false;    ///< bf16 is among them
  double step = 0;      ///< relative, of the coarsest quantisation of what is inexact or narrow that leads to it
  double pinned = 0;    ///< relative, one step of the coarsest 16-bit type that an inexact node on the way is pinned to
  bool f8Sums =
      false; ///< products of 8-bit floats lead to it: tensor cores cut off what is below 13 bits of their sums
  bool fastSums = false; ///< of these one that says fast_accumulate, and so all along K
  int products =
      0; ///< matrix products, one above the other, that lead to it: sums of many terms that were rounded before
  int64_t terms = 0; ///< of the longest sum among them
};
/// For each output of the graph.
std::vector<Exactness> exactness(const Graph &);

struct Tolerance {
  double relative = -1; ///< negative: by type
  bool strict = false;  ///< the graph's numerics
  bool severalKernels = false;
  Exactness output;
  std::vector<const void *> nudged =
      {}; ///< the rounded reference's values, nudged, a draw each. Not with `relative` given
};

struct Comparison {
  int64_t elements = 0;
  int64_t different = 0; ///< of other bits than both reference values
  int64_t beyond = 0;    ///< outside the tolerance
  int64_t nans = 0;      ///< where both are NaN
  double maxAbsolute = 0, maxRelative = 0;
  int64_t maxSteps = 0; ///< representable values apart
  std::string rule;     ///< "equal", "1e-05 relative", "2 ulp"
  bool within = true;
  int64_t worst = -1; ///< the element farthest beyond or, within, nearest to the tolerance; -1: all are equal
  std::string worstPlace;
  double worstGot = 0, worstWanted = 0;
};

/// Root mean square of the difference over that of what is wanted. Infinities and NaN that are in both are left out; one that is in one
/// alone is an infinite error.
class ErrorSum {
public:
  void add(const TensorType &, const void *got, const void *wanted);
  double relative() const;
  bool hasValues() const { return size > 0; } ///< other than 0: there is something that an error is relative to
  int64_t leftOut() const { return alike; }

private:
  double difference = 0, size = 0; ///< sums of squares
  int64_t alike = 0;
};

/// `kept` and `rounded` may be the same buffer.
Comparison compare(const TensorType &, const void *got, const void *kept, const void *rounded, const Tolerance &);

/// What a run's outputs are compared with. The reference is run nudged only where a result is beyond the tolerance without, and
/// as often as that explains more of them.
class References {
public:
  using Run = std::function<Result<std::vector<HostTensor>>(const Graph &, Intermediates, uint64_t nudging)>;
  /// `fused`: a kernel may keep f32 where the graph says 16 bits. `run` gets the graph with more outputs behind its own.
  static Result<References> make(const Graph &, bool fused, Run);
  Result<Comparison> compare(size_t output, const void *got, double relative, bool severalKernels);

private:
  References(const Graph &, Run);
  /// Places of extremes: right where what is there is the extreme in one of the reference's runs, or as near to it as both are moved.
  void judgeExtremes(size_t output, const int64_t *got, Comparison &) const;

  Graph graph;
  Run run;
  std::vector<Exactness> exact;
  std::vector<size_t>
      extremeOf; ///< of an output that is argmax or argmin of a float: the output that holds its operand; else 0
  std::vector<HostTensor> rounded, kept; ///< `kept`: empty where it is the same
  std::vector<std::vector<HostTensor>> nudged;
};

} // namespace rl::cli
