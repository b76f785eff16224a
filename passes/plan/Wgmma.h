// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which kernels of products the generator for Hopper (compiler/emit/WgmmaGemm) computes: where operands, results and what the
// epilogue reads lie, as tensor memory copies see it, and whether that kernel is the quickest. Planner and emitter ask the
// same function, so that what was judged is what is emitted. No MLIR here.
#pragma once

#include "passes/cost/GemmModel.h"
#include "passes/plan/Planner.h"

#include <set>

namespace rl {

/// Element (batch, row, column) of the product is at offset + sum of batch + row * row + column * column. In elements. Where columns lie
/// in parts (heads that a view puts beside each other), a column is column % part, and column / part * partStride is added: of an
/// operand it is K that may do so, of an output N.
struct WgmmaAccess {
  ValueId value = kNone;
  uint32_t place = 0; ///< of a load of the epilogue: the instance; of an output: its place among the kernel's
  int64_t offset = 0;
  std::vector<int64_t> batch; ///< strides along WgmmaForm::batch
  int64_t row = 0, column = 0;
  int64_t part = 0, partStride = 0; ///< 0: one part
};

/// Scales of an operand in f32, each of 128 elements along K: of (batch, row, k) at offset + sum of batch + row / rows * stride +
/// k / 128 * kStride. A row is one of M, or of N.
struct WgmmaScaleAccess {
  ValueId value = kNone;
  int64_t offset = 0;
  std::vector<int64_t> batch;
  int64_t rows = 1, stride = 0, kStride = 0;
};

/// What is stored once for each segment of so many columns as the shape says: of (batch, row, column) at offset + sum of batch +
/// row * row + column / segment * segment.
struct WgmmaSegmentAccess {
  ValueId value = kNone;
  uint32_t place = 0; ///< among the kernel's outputs
  int64_t offset = 0;
  std::vector<int64_t> batch;
  int64_t row = 0, segment = 0;
};

/// What the left operand is computed from where it is multiplied: tensors of M by K (row: of M, column: of K), vectors along K, and
/// what each row has. `place`: the instance in the operand's trace, which has two lanes.
struct WgmmaLeftForm {
  std::vector<WgmmaAccess> tiles, columns, rows;
};

struct WgmmaForm {
  std::string refusal; ///< why there is no such kernel, or nothing; then the rest is whole
  /// Extents. Where views take M apart (batches and a sequence), its outer parts are the innermost of them, and `shape` says so: of
  /// those the right operands have a stride of 0.
  std::vector<int64_t> batch;
  WgmmaAccess left;                                       ///< row: of M, column: of K
  std::optional<WgmmaLeftForm> computed;                  ///< in the place of `left`
  std::vector<WgmmaAccess> right;                         ///< of each product. row: of N, column: of K
  std::vector<WgmmaScaleAccess> scales;                   ///< of the left and the right operand, or none
  std::vector<WgmmaAccess> outputs, tiles, columns, rows; ///< the latter three are loaded ahead of the epilogue
  std::vector<WgmmaSegmentAccess> segments;               ///< outputs that have one element a segment
  /// Where the result is turned round (cost::GemmShape::turned): `computed` has each product's weights, `right` the activations, and the
  /// sums of each product are multiplied by what a row of its weights has (row: of these; or no value). `columns` are along the
  /// kernel's N, `rows` along its M; all else is as the result has it.
  std::vector<WgmmaAccess> weightScales;
  uint32_t kept = kNone;    ///< what passes behind the first may find in shared memory (keptValue)
  bool loadsItself = false; ///< the epilogue, what it reads otherwise
  cost::GemmShape shape;
};

/// The lanes of the epilogue's trace of such a kernel: two columns, or one where N is odd.
inline int64_t wgmmaLanes(int64_t n) { return n % 2 == 0 ? 2 : 1; }

/// The lanes of the left operand's trace where that is computed.
inline constexpr int64_t kLeftLanes = 2;

/// Whether the kernel may compute the product's left operand as it multiplies it, rather than another kernel write it. `stored`: what
/// is in memory by then.
bool computesLeft(const Graph &, const Node &product, const std::set<ValueId> &stored, const cost::TargetDesc &);

/// `epilogue` has wgmmaLanes; `operands`: the left and right operand's trace of each product.
WgmmaForm wgmmaForm(const Graph &, const Trace &epilogue, const std::vector<NodeId> &products,
                    const std::vector<const Trace *> &operands);

/// The form of the products turned round: weights of 8 bits, times one number for all of K, that become as wide as the activations in
/// the registers from which the tensor cores take a left operand. `epilogue` has one lane.
WgmmaForm turnedForm(const Graph &, const Trace &epilogue, const std::vector<NodeId> &products,
                     const std::vector<const Trace *> &operands);

/// Why the product's right operand, which is computed, is not widened so on this machine, of more rows than are streamed (Stream.h), or
/// nothing. `boundary`: what is loaded.
std::string turnedRefusal(const Graph &, const Node &product, const std::vector<bool> &boundary,
                          const cost::TargetDesc &);
inline constexpr const char *kNotTurned = "no warpgroup products with weights widened in registers: ";

/// Gives a group that scheduleGemm has scheduled the kernel for Hopper where that is there and quicker; the other is then its
/// fallback. Says why, either way, where the machine has such kernels. `only`: the one candidate, which is taken where it is such a
/// kernel; null: the quickest of all.
void scheduleWgmma(const Graph &, const Trace &epilogue, const std::vector<NodeId> &products,
                   const std::vector<Trace> &operands, const cost::TargetDesc &, PlannedGroup &,
                   const GemmSchedule *only = nullptr);

/// The same of the products turned round; nothing where their weights are in memory as they are multiplied. `epilogue` has one lane.
void scheduleTurned(const Graph &, const Trace &epilogue, const std::vector<NodeId> &products,
                    const std::vector<Trace> &operands, const cost::TargetDesc &, PlannedGroup &,
                    const GemmSchedule *only = nullptr);

/// What both do with a form that is not refused.
void scheduleForm(const Graph &, const Trace &epilogue, const std::vector<NodeId> &products, const WgmmaForm &,
                  const cost::TargetDesc &, PlannedGroup &, const GemmSchedule *only);

} // namespace rl
