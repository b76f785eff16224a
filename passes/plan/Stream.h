// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which products of few rows the kernels that stream the right operand compute (compiler/emit/GemmStream and GemmDirect), and
// whether one of them is the quickest. The right operand is 16-bit floats as they are in memory, or 8-bit numbers times one that
// all of K shares: these are multiplied as they are, and the sums get the number. Planner and emitter ask the same function. No
// MLIR here.
#pragma once

#include "passes/cost/StreamModel.h"
#include "passes/plan/Planner.h"

namespace rl {

/// Element (row, column) is at offset + row * stride + column. In elements.
struct StreamAccess {
  ValueId value = kNone;
  int64_t offset = 0, stride = 0;
};

/// The right operand of one product (a row is one of N, or of K where N is contiguous); `scale`: what each row of N is multiplied by, or
/// no value.
struct StreamOperand {
  StreamAccess rows, scale;
};

struct StreamForm {
  std::string refusal; ///< why there is no such kernel, or nothing; then the rest is whole
  StreamAccess left;
  std::vector<StreamOperand> right; ///< one a product
  cost::StreamShape shape;
};

/// The right operand, of `rows` of K elements, or the reason why it is none of a kernel that streams.
Result<StreamOperand> streamOperand(const Graph &, const Trace &);

/// `operands`: the left and right operand's trace of each product. `mostRows`: of the left operand.
StreamForm streamForm(const Graph &, const std::vector<NodeId> &products, const std::vector<const Trace *> &operands,
                      int64_t mostRows = cost::kMostStreamRows);

/// Whether the product's right operand, which is computed, may be read once by such a kernel on this machine. `boundary`: what
/// is loaded.
bool streamsOperand(const Graph &, const Node &product, const std::vector<bool> &boundary, const cost::TargetDesc &);

/// Gives a group that has a schedule this kernel where it is there and quicker; the other, or its fallback, is then the fallback.
/// `epilogue` has wgmmaLanes. Says why, either way, where the machine has such kernels and the rows are few. `only`: the one candidate,
/// which is taken where it is such a kernel; null: the quickest of all.
void scheduleStream(const Graph &, const Trace &epilogue, const std::vector<NodeId> &products,
                    const std::vector<Trace> &operands, const cost::TargetDesc &, PlannedGroup &,
                    const GemmSchedule *only = nullptr);

} // namespace rl
