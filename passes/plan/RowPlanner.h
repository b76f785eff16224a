// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which kernels a graph with reductions and matrix products becomes. Row kernels and kernels of products are formed first; what
// is left between them goes to the pointwise planner, level by level.
//
// The rule. A row kernel iterates over R rows of W elements and computes, in one kernel, all outputs of R*W or of R elements
// whose reductions run over exactly these rows, with everything above them: several reductions that depend on each other over
// the same row, and what is elementwise before, between and behind. A reduction over other rows (or over the same after a
// permute, say) is written by a kernel of its own, or what the layout op reads is.
//
// A kernel of products computes, behind one product or two that share their left operand, all that is elementwise and has
// their elements in their order. What multiplies is loaded: it is written first unless it is a view or a widening cast of what
// is in memory. A product that is needed otherwise (by a reduction, by another product, transposed) is written, in the
// smallest type that the chain behind it comes to.
#pragma once

#include "passes/plan/Planner.h"
#include "passes/plan/TileChoice.h"

namespace rl {

/// Reductions must be plain ones (sum, prod, amax, amin, any, all) over two or more elements. `choices`: tiles of kernels of
/// products on a GPU that are not the model's first; those of kernels that the plan does not have say nothing. Errors:
/// Code::Unsupported with the node's pointer for an op of another class (indexing, quantisation ...), Code::Usage for a choice
/// beyond its kernel's candidates.
Result<Plan> planKernels(const Graph &, const cost::TargetDesc &, const TileChoices &choices = {});

} // namespace rl
