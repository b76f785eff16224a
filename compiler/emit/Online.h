// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A row's maximum m and the sum of e^(x - m) in one pass and with one exchange between threads (Milakov and Gimelshein,
// "Online normalizer calculation for softmax", 2018): each thread sums e^(x - l) with l the maximum of what it has seen, and
// sums of different l are brought to a common one by a factor e^(l - m).
//
// What is subtracted is m itself in a softmax, and in a logsumexp m where that is finite, else 0. A thread subtracts its own
// maximum where that is finite, else 0, so that its sum is 0 over -inf alone, inf with a +inf and NaN with a NaN; the factor
// e^(l - m) of the maxima proper then makes of it what the two passes would have.
#pragma once

#include "compiler/emit/Combine.h"
#include "passes/plan/OnlineSum.h"

namespace rl::emit {

/// Writes the arithmetic of one such pair; every value is an f32 or a vector of them.
class OnlineEmitter {
public:
  OnlineEmitter(mlir::OpBuilder &b, mlir::Location loc, const Graph &graph, const Trace &trace, OnlineSum pair)
      : b(b), loc(loc), fast(graph.nodes[trace.instances[pair.exponential].node].attrs.fast), pair(pair) {}

  /// What a thread whose maximum this is subtracts.
  Value local(Value top) const { return finiteOr0(top); }
  /// What a sum over e^(x - local(top)) is multiplied by where e^(x - subtrahend of `whole`) is wanted.
  Value factor(Value top, Value whole) const;
  /// The same where one over e^(x - local(now)) is wanted.
  Value rescale(Value top, Value now) const;
  /// The maximum and sum of a row's threads, the same in each of them. Takes two of a reduction's places in `shared`.
  void combineThreads(const RowThreads &, Value &top, Value &sum, Value shared, int64_t firstSlot) const;

private:
  Value finiteOr0(Value) const;
  Value exponential(Value) const;

  mlir::OpBuilder &b;
  mlir::Location loc;
  bool fast;
  OnlineSum pair;
};

} // namespace rl::emit
