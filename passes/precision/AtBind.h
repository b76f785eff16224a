// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Divides an assigned graph into what is computed when parameters are bound and what is computed in each run.
#pragma once

#include "passes/precision/Precision.h"

namespace rl {

struct BindSplit {
  /// Parameters to converted tensors: its inputs are the whole graph's parameters, in their order, and its outputs what `atRun`
  /// reads. Without outputs there is nothing to do.
  Graph atBind;
  /// The rest. Behind the whole graph's parameters come the outputs of `atBind`, in their order, as further ones.
  Graph atRun;
};

/// Values that `atBind` names and no node of the rest reads are left out.
BindSplit splitAtBind(const Graph &, const std::vector<ValueId> &atBind);

} // namespace rl
