// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How a row kernel is laid out over threads and registers, and what it costs.
#pragma once

#include "passes/plan/Planner.h"
#include "passes/plan/Trace.h"

namespace rl {

/// Consecutive elements that a thread takes at once: 16 bytes of the widest tensor of whole rows (on a CPU some vectors of its
/// narrowest), as far as they divide the width.
int64_t chooseRowLanes(const Graph &, const TraceRequest &, const cost::TargetDesc &);

/// Rows that a thread takes at once where neighbouring rows are neighbours in memory: 16 bytes of the widest tensor of whole
/// rows, as far as they divide the rows; 1 where something is stored for each element.
int64_t chooseColumnLanes(const Graph &, const TraceRequest &, const cost::TargetDesc &);

/// Whether neighbouring rows are neighbours in memory in most of what is read, as for a reduction over a leading dimension.
bool readsAcrossRows(const Graph &, Trace &);

/// By instance of a row kernel: whether a thread that has the row in registers had better keep the value for a later pass than
/// compute it again: it takes the special-function unit, or several operations.
std::vector<bool> dearInstances(const Graph &, const Trace &);

/// Instances of a kernel with parts whose vectors, of pointers that are multiples of 16 bytes, asynchronous copies can move: what
/// each row loads anew, 4, 8 or 16 bytes a vector.
std::vector<uint32_t> copiedLoads(const Graph &, const Trace &);
/// Whether an instance or a store of a row kernel goes over a tensor of all its elements in their own order.
bool isFlat(const Trace &, const index::Expr &linear);
/// Instances of a kernel whose rows are staged that shared memory is filled with.
std::vector<uint32_t> stagedLoads(const Graph &, const Trace &);
/// Places in Trace::stores of what is written to shared memory first.
std::vector<size_t> stagedStores(const Graph &, const Trace &);
/// Shared memory that one such tensor takes of `rows` rows: its elements from a multiple of 16 bytes in memory on.
int64_t stagedBytes(const Trace &, DType, int64_t rows);
/// And what lies before all of them, for the barrier that copies are announced to.
inline constexpr int64_t kStagedBarrier = 128;

/// Bytes of a vector of what these load.
int64_t vectorBytes(const Graph &, const Trace &, const std::vector<uint32_t> &loads);

/// What the nodes of the file that these stand for would move as a kernel each; those that are views move nothing.
int64_t unfusedBytes(const Graph &, const std::vector<NodeId> &);

/// Fills in threads, rows a block, unrolling, residence, work, time and the reasons; rows, width, lanes, `across` and parts
/// are given. False: there are parts, and such a kernel cannot carry sums down the columns.
bool scheduleRows(const Graph &, const Trace &, const cost::TargetDesc &, PlannedGroup &);

} // namespace rl
