// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of few rows on Hopper, whose right operand streams from memory once; between a group's schedule and the launch.
#pragma once

#include "compiler/emit/Gemm.h"
#include "runtime/package/Package.h"

namespace rl::emit {

/// Adds `kernel.name` to the module and fills in the launch's grid, block, shared memory, alignment and tensor maps. The kernel's
/// schedule is "stream" or "direct". Pointers that are not multiples of 16 bytes need another kernel. Code::Unsupported where streamForm
/// refuses.
Status emitGemmStream(mlir::ModuleOp, const GemmKernel &, const CodeTarget &, const cost::TargetDesc &,
                      PackageLaunch &);

} // namespace rl::emit
