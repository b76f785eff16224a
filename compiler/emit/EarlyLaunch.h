// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programmatic dependent launch (compute capability 9.0): a kernel of a plan starts while the one before it still runs, and waits
// for that one's end itself, before it touches what kernels of the plan write. Each kernel waits before it ends, so that the end of
// one is the end of all before it. What no kernel writes may be read, or asked for, before the wait.
//
// PTX ISA, "griddepcontrol".
#pragma once

#include "runtime/base/Result.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Value.h"

#include <vector>

namespace rl::emit {

/// How a kernel stands to its neighbours in a plan.
struct EarlyLaunch {
  bool waits = false;         ///< it starts before the kernel before it has ended
  bool triggers = false;      ///< the kernel behind it does
  std::vector<bool> written;  ///< of the inputs: a kernel of the plan writes it
  std::vector<int64_t> bytes; ///< of the inputs

  bool mayReadAhead(size_t input) const { return waits && input < written.size() && !written[input]; }
};

/// Waits, at this place of the kernel's first block. What follows may touch what the plan writes; before, all threads may ask for
/// what mayReadAhead says.
void waitForKernelBefore(mlir::OpBuilder &, mlir::Location);

/// Asks for `bytes` bytes (a multiple of 16) from global memory at `from` (of 16 bytes' alignment) to be brought into the L2 cache.
/// `policy`: of that cache, or none.
void prefetchBulk(mlir::OpBuilder &, mlir::Location, mlir::Value from, mlir::Value bytes, mlir::Value policy = {});

/// Makes a kernel that was emitted keep this: it triggers and, unless its emitter placed the wait, waits before all else. Small
/// inputs that may be read ahead are asked for before. Nothing that reads what the plan writes can be moved before the wait: its
/// pointers come out of the wait, and these loads are none of read-only memory. `blocks`: the grid.
Status applyEarlyLaunch(mlir::ModuleOp, const std::string &kernel, const EarlyLaunch &, int64_t blocks);

} // namespace rl::emit
