// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "runtime/package/Package.h"

#include "mlir/IR/BuiltinOps.h"

namespace rl::emit {

/// Of kernels that are equal but for their names the first stays, and every launch of one of them launches that: the layers of a model
/// are compiled once. To be called before the kernels are lowered.
void shareEqualKernels(mlir::ModuleOp kernels, Package &);

} // namespace rl::emit
