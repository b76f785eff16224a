// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels that need nothing of each other in one launch: the grid is divided between them. None of them knows.
#pragma once

#include "runtime/package/Package.h"

#include "mlir/IR/BuiltinOps.h"

#include <vector>

namespace rl::emit {

/// One launch of all these, of a GPU's kernels with as many threads a block each; the first have the first blocks. The functions
/// in the module become one of this name, and so do those for pointers that are not aligned.
PackageLaunch mergeLaunches(mlir::ModuleOp, const std::string &name, const std::vector<PackageLaunch> &);

} // namespace rl::emit
