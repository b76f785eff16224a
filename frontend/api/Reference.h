// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reference interpreter behind the module interface.
#pragma once

#include "ir/graph/Graph.h"
#include "runtime/Module.h"

namespace rl {

/// Runs on host memory, op by op. Its kernelCount is 0: it launches nothing. The last `state` outputs are not the caller's:
/// after each run they become the values of the last parameters.
std::unique_ptr<Module> makeReferenceModule(Graph, size_t state = 0);

} // namespace rl
