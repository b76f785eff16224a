// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From a resolved graph to a package.
#pragma once

#include "ir/graph/Graph.h"
#include "passes/cost/Cost.h"
#include "passes/plan/TileChoice.h"
#include "runtime/package/Package.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace rl {

/// What to compile for.
struct CompileTarget {
  bool cuda = false;
  std::string arch;         ///< "sm_90a", "sm_80"; "x86-64-v3" on a CPU
  cost::TargetDesc machine; ///< whose figures decide
};

/// A target by name: cpu, sm_80, sm_89, sm_90a, a100, h100, h200, rtx4090. Code::Usage with the list of names otherwise.
/// "cuda" is for the caller to resolve, who can ask the driver.
Result<CompileTarget> findCompileTarget(std::string_view name);
std::vector<std::string> compileTargetNames();

struct CompileOptions {
  bool keepStages = false;         ///< fill in Compiled::stages
  TileChoices tiles;               ///< of kernels of products, where they are not the model's first
  std::optional<std::string> only; ///< the one kernel that is emitted; empty: none, there is but the plan
};

/// A stage's text: stages are "graph", "fused", "kernel", "llvm", "ptx". Where a stage has one text a kernel, `kernel` names it.
struct StageText {
  std::string stage, kernel, text;
};

/// A kernel of products with more than one tile that the model finds good. Keys and candidates: passes/plan/TileChoice.h.
struct TunableKernel {
  std::string kernel, key;
  std::vector<std::string> tiles;
  std::vector<TensorType> inputs, outputs; ///< of its launch's arguments, in order
};

struct Compiled {
  Package package;
  std::vector<TunableKernel> tunable;
  Graph graph; ///< what was compiled: the graph with the types that its precision policy led to
  std::vector<StageText> stages;
  std::map<std::string, double> seconds; ///< of each phase
};

/// Errors: Code::Usage for a choice of tiles of a kernel that there is not, or beyond its candidates; Code::Unsupported with the
/// node's pointer where the target has no kernel for an op; a gradient request; a pin that cannot be honoured.
Result<Compiled> compile(const Graph &, const CompileTarget &, const CompileOptions & = {});

} // namespace rl
