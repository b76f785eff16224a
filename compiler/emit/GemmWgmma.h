// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A planned kernel of products as the generator for Hopper takes it (WgmmaGemm.h): the places of its tensors from the body's
// traces, and its epilogue as that of every other kernel of products.
#pragma once

#include "compiler/emit/Gemm.h"
#include "runtime/package/Package.h"

namespace rl::emit {

/// Adds `kernel.name` to the module and fills in the launch's grid, block, cluster, shared memory, alignment and tensor maps. The
/// kernel's schedule is "wgmma". Pointers that are not multiples of 16 bytes need another kernel. Code::Unsupported where
/// wgmmaForm refuses.
Status emitGemmWgmma(mlir::ModuleOp, const GemmKernel &, const CodeTarget &, const cost::TargetDesc &, PackageLaunch &);

} // namespace rl::emit
