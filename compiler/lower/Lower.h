// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From kernels to code. A kernel module is a builtin.module of func.func: kernels (unit attribute `ridge.kernel`, pointer
// arguments, `ridge.block` = threads per block) written in arith, math, vector, scf, gpu ids and llvm loads and stores, and
// declarations of the functions `ridge_<function>_<rounding>[_v<lanes>]` that stand for expanded mathematics.
#pragma once

#include "runtime/base/Result.h"

#include <string>

namespace mlir {
class ModuleOp;
}

namespace rl {

struct CodeTarget {
  bool nvptx = false;
  int sm = 0;          ///< 80, 89, 90
  std::string cpu;     ///< LLVM's name of the processor: "sm_90a", "x86-64-v3"
  int ptxVersion = 80; ///< 80 = PTX 8.0, the least that sm_90a takes
};

/// What lowering leaves behind. `code` is PTX text or an ELF object; `llvmIr` is filled in where asked for.
struct LoweredCode {
  std::string code;
  std::string llvmIr;
};

/// Consumes the module (lowers it in place). Errors are Code::Unsupported with what LLVM or a verifier said: a bug in an
/// emitter shows here, never as an abort.
Result<LoweredCode> lowerKernels(mlir::ModuleOp, const CodeTarget &, bool wantLlvmIr);

/// Replaces each gpu id of a kernel: on NVPTX by the special registers, on a CPU by an argument (block) and zero (thread).
void lowerIds(mlir::ModuleOp, const CodeTarget &);

/// Replaces calls of mathematical functions by code: in place, or as one function each where a module has so many calls that
/// in-place code would be large.
Status expandMathCalls(mlir::ModuleOp, const CodeTarget &);

} // namespace rl
