// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels of matrix products: what one computes, which tiles it goes over, and what that costs.
//
// A product is a `matmul` of [B, M, K] and [B, K, N], either stored transposed, in the type in which it accumulates. Its kernel
// stores all that is elementwise behind it and has its B*M*N elements; its operands are loads, or index maps and widening casts
// of loads, evaluated where tiles are read. Two products of the same left operand and the same extents share a kernel.
#pragma once

#include "ir/graph/Graph.h"
#include "passes/cost/Cost.h"
#include "passes/cost/GemmModel.h"
#include "passes/plan/Trace.h"

#include <set>
#include <string>

namespace rl {

struct PlannedGroup;

inline bool isProduct(const Node &node) { return node.op == OpKind::Matmul; }

inline bool isReduction(const Node &node) { return opInfo(node.op).cls == OpClass::Reduction; }

/// What a kernel is built around, and the elementwise ops come with.
inline bool isHero(const Node &node) { return isReduction(node) || isProduct(node); }

struct ProductShape {
  int64_t batch = 1, m = 0, n = 0, k = 0;
  int64_t rows() const { return batch * m; }
  bool operator==(const ProductShape &) const = default;
};
ProductShape productShape(const Graph &, const Node &product);

/// Whether one kernel may compute both: the same extents and the same left operand.
bool shareKernel(const Graph &, const Node &, const Node &);

/// How a kernel of products runs. `kernel` names the algorithm:
///   blocked  CPU: tiles of packed operands, all of K by one thread
///   simt     GPU: tiles in shared memory, fused multiply-adds of single elements
///   mma      GPU: tiles in shared memory, 16-bit operands on the tensor cores of a warp
///   thin     GPU: a few rows, the right operand streamed from memory once; `stages` loads of a thread in flight
///   stream   compute capability 9.0: up to 64 rows, the right operand by tensor memory copies (compiler/emit/GemmStream)
///   direct   the same, one row, the right operand straight to registers (compiler/emit/GemmDirect); `stages` rounds of them
///   wgmma    compute capability 9.0: tensor memory copies and warpgroup products (compiler/emit/WgmmaGemm)
struct GemmSchedule {
  std::string kernel;
  ProductShape shape;
  int64_t products = 1;
  int64_t tileM = 0, tileN = 0, tileK = 0; ///< of a block
  int64_t stages = 1;                      ///< tiles of operands in flight
  int64_t threads = 1;
  int64_t warpsM = 1, warpsN = 1, warpsK = 1; ///< of mma, thin and stream: how a tile is divided between warps
  int64_t blocksPerSm = 1;                    ///< of stream and direct
  int64_t startApart = 0; ///< of direct: clocks between the starts of the blocks that an SM has first
  bool once =
      false; ///< the right operand is read once, and asked for so that it leaves the L2 cache before what else is there
  cost::GemmTile wgmma; ///< of wgmma: all of its tile
  bool turned =
      false; ///< of wgmma: the kernel's M is the result's N (cost::GemmShape::turned); tileM is of the result's M
  /// Of passes/plan/Stream.
  bool streams() const { return kernel == "stream" || kernel == "direct"; }
  bool operator==(const GemmSchedule &) const = default;
};

/// A schedule that a kernel of products may have, and the model's time for it.
struct TileCandidate {
  GemmSchedule schedule;
  double seconds = 0;
  std::string str() const; ///< "wgmma 128x256, 4 stages", "mma 128x64x32"
};

/// What a product's operand is computed from where tiles are read: behind views and casts that lose nothing, up to what is in
/// `stored` (by value; may be null). That is a load, or it must be stored.
ValueId operandSource(const Graph &, ValueId operand, const std::set<ValueId> *stored = nullptr);

/// Whether an operand may be computed where it is read, although ops are in between: each element once (the other side is one
/// tile), by few cheap ops, from loads of no more bytes than it has. `stored` is loaded.
bool readsOnce(const Graph &, const Node &product, bool left, const std::set<ValueId> &stored);

/// The values that an operand of 8-bit floats times scales in f32 is made of, behind views and widening casts: numbers, then scales;
/// nullopt: it is no such. Warpgroup products take both as they are, where the scales allow it (Wgmma.h).
std::optional<std::pair<ValueId, ValueId>> scaledOperand(const Graph &, ValueId operand,
                                                         const std::set<ValueId> &stored);

/// The operand as a batch of matrices as it is stored: rows are its first two dimensions, the width is its last. Lanes are `lanes`, or
/// (0) as many as a thread reads at once, as far as they divide the width. `boundary` may be empty.
Result<Trace> traceOperand(const Graph &, ValueId operand, const std::vector<bool> &boundary, bool gpu,
                           int64_t lanes = 0);

/// The elements that the epilogue handles at once: what the machine takes of the outputs that have one for each of the product's, as
/// far as they divide N.
int64_t epilogueLanes(const Graph &, const std::vector<ValueId> &outputs, int64_t n, const cost::TargetDesc &);

/// Of mma: whether the sums of a whole tile fit in shared memory where its operands were, so that none waits in registers while the
/// epilogue runs. They must where segments are reduced, which wants registers.
inline bool stagesWhole(const GemmSchedule &s) {
  return s.warpsK * s.products * s.tileM * (s.tileN + 8) * 4 <=
         s.stages * (s.tileM + s.products * s.tileN) * s.tileK * 2;
}

/// Why scheduleGemm finds no tile for segments of so many columns, in the record's words.
std::string noTileFor(int64_t segment);

/// The type whose values all operands are exactly in, of those that tensor cores of a warp multiply: bf16 or f16; nullopt: they
/// are multiplied as f32 or integers.
std::optional<DType> tensorType(const Graph &, const Node &product);

/// Whether the kernel reads the right operands once, and they are so large a part of the L2 cache that they had better leave it
/// first: nothing of them would still be there when they are read again, and what others left there would be gone.
/// `loads`: of the group.
bool readsRightOnce(const Graph &, const std::vector<NodeId> &products, const std::vector<ValueId> &loads,
                    const GemmSchedule &, const cost::TargetDesc &);
inline constexpr const char *kReadOnce =
    "the right operand is read once and is a large part of the L2 cache: it is asked for so that it leaves that first";

/// Fills in the schedule, candidates, work, time and reasons. `epilogue` is the trace of the group's outputs; inputs, outputs and
/// nodes are there. `only`: the one candidate, where it is of a kernel that is scheduled here; null: the quickest of all. Where no
/// tile has the trace's segments whole, the group has no schedule.
void scheduleGemm(const Graph &, const Trace &epilogue, const std::vector<NodeId> &products, const cost::TargetDesc &,
                  PlannedGroup &, const GemmSchedule *only = nullptr);

} // namespace rl
