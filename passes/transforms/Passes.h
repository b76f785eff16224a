// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The passes over the `ridge` dialect, and the one place that knows their order.
#pragma once

#include "passes/plan/TileChoice.h"
#include "runtime/base/Result.h"

#include <memory>
#include <string>

namespace mlir {
class ModuleOp;
class Pass;
} // namespace mlir

namespace rl {
namespace cost {
struct TargetDesc;
}

/// Replaces what computes tensors without elements by an empty `ridge.full`, so that nothing depends on its operands.
std::unique_ptr<mlir::Pass> createEmptyTensorsPass();
/// Rounds the float operands and results of nodes that are pinned to f16 or bf16, by casts.
std::unique_ptr<mlir::Pass> createPinsPass();
/// Nests every `ridge.cat` of more operands than `most` (two or more), so that each kernel reads a part of them.
std::unique_ptr<mlir::Pass> createSplitCatsPass(size_t most);
/// Columns of a product that are read apart as products of those, where columns are left over or two halves meet. Before ridge-products.
std::unique_ptr<mlir::Pass> createSliceProductsPass();
/// Matrix products as `ridge.matmul` of three dimensions each in the type that accumulates, with what else the nodes say as
/// layout and elementwise ops around it; attention by such products and a softmax. On a GPU, large operands of 8 and 16 bits whose
/// rows are not whole 16-byte vectors are padded with zeros along K, and to whole lines of the cache where the model finds that quicker.
std::unique_ptr<mlir::Pass> createProductsPass();
std::unique_ptr<mlir::Pass> createProductsPass(const cost::TargetDesc &);
/// Norms, softmax and the reductions that are made of others (mean, var, logsumexp, argmax, argmin) as elementwise ops and
/// plain reductions, with f32 in between; reductions over nothing and over one element as what they give.
std::unique_ptr<mlir::Pass> createDecomposePass();
std::unique_ptr<mlir::Pass> createDecomposePass(const cost::TargetDesc &);
/// Losses as reductions of rows and an element picked from each. Before ridge-decompose.
std::unique_ptr<mlir::Pass> createDecomposeLossPass();
/// Quantisation as extremes over groups, quotients and casts. Before ridge-decompose.
std::unique_ptr<mlir::Pass> createDecomposeQuantPass();
/// Forms the groups that `planPointwise` decides. The error that it may report stays available through `groupingError`.
/// `choices`: tiles other than the model's (passes/plan/TileChoice.h).
std::unique_ptr<mlir::Pass> createGroupPass(const cost::TargetDesc &target, Error *error = nullptr,
                                            const TileChoices *choices = nullptr);

/// Says which short kernels share the launch of the one before them. Behind ridge-group.
std::unique_ptr<mlir::Pass> createShareLaunchPass(const cost::TargetDesc &);
/// Says of each kernel of a plan but the first whether it is launched while the one before it still runs (programmatic dependent
/// launch). Behind ridge-share-launch.
std::unique_ptr<mlir::Pass> createEarlyLaunchPass(const cost::TargetDesc &);

/// Makes the passes known to ridge-opt: -ridge-pins, -ridge-empty-tensors, -ridge-slice-products, -ridge-split-cats="most=254",
/// -ridge-group="target=h200", -ridge-share-launch="target=h200", -ridge-early-launch="target=h200".
void registerRidgePasses();
void registerShareLaunchPass();
void registerEarlyLaunchPass();

/// Runs everything from an imported graph to frozen groups. Errors carry the node's JSON pointer. `choices`: as of the group pass.
/// `atRun`: the kernels are launched by each run, on a GPU; they may share launches, and start early.
Status runPipeline(mlir::ModuleOp, const cost::TargetDesc &, const TileChoices *choices = nullptr, bool atRun = false);

} // namespace rl
