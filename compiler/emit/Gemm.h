// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The emitter of matrix products: a group whose outputs are elementwise functions of one product, or of two that share their
// left operand, becomes one kernel. Pointers are arguments in the order: the group's inputs, then its outputs.
#pragma once

#include "compiler/emit/EarlyLaunch.h"
#include "compiler/lower/Lower.h"
#include "passes/plan/Gemm.h"

namespace rl::emit {

struct GemmKernel {
  std::string name;
  Graph body; ///< inputs: what is loaded; outputs: what is stored, B*M*N elements each
  GemmSchedule schedule;
  int64_t lanes = 1; ///< elements that the epilogue handles at once; divides N
  EarlyLaunch early; ///< weights that may be read ahead are asked for before the wait
};
struct GemmLaunch {
  int64_t blocks = 0;
  int64_t sharedBytes = 0; ///< dynamic shared memory
};
/// Adds `kernel.name` to the module. `alignedTo16`: pointers are multiples of 16 bytes; otherwise of their element's size.
Result<GemmLaunch> emitGemm(mlir::ModuleOp, const GemmKernel &, const CodeTarget &, bool alignedTo16);

} // namespace rl::emit
