// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The reference interpreter behind the module interface.
#pragma once

#include "ir/graph/Graph.h"
#include "runtime/Module.h"

namespace rl {

/// Runs on host memory, op by op. Its kernelCount is 0: it launches nothing.
std::unique_ptr<Module> makeReferenceModule(Graph);

} // namespace rl
