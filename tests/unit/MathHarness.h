// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Test support: wraps the math expansion and the narrow float conversions in array kernels, and compiles those for the
// CPU here (run by a JIT) or to PTX. No MLIR header in sight.
#pragma once

#include "compiler/lower/common/MathExpansion.h"
#include "runtime/base/DType.h"
#include "runtime/base/Result.h"

#include <memory>
#include <span>
#include <string>
#include <vector>

namespace rl::mathtest {

/// An array kernel (a, b, out, n): n elements, a multiple of `lanes`; on the GPU each thread does `lanes` elements.
struct KernelSpec {
  enum Kind {
    Math,  ///< out[i] = fn(a[i], b[i]) on arrays of dtype, computed in f32; unary functions do not read b
    Fused, ///< the same on f32 arrays, though for a result rounded to dtype (F16 or BF16): what a fused kernel computes
    Inner, ///< as Fused, for a bf16 result that is not rounded at all
    Widen, ///< f32 out[i] = a[i] of dtype
    Narrow ///< dtype out[i] = f32 a[i]
  };
  Kind kind = Math;
  MathFn fn = MathFn::Exp;
  DType dtype = DType::F32;
  bool saturate = true;
  int lanes = 8; ///< vector length; 0: scalars

  std::string name() const; ///< "gelu_erf_bf16_v8", "narrow_f8e4m3_sat_v8"
};

inline constexpr int kMathFnCount = static_cast<int>(MathFn::Root) + 1;

/// Every function on f32, f16 and bf16, the latter two also fused, bf16 also unrounded; every widening and narrowing.
std::vector<KernelSpec> allKernels(int lanes);

/// Kernels compiled for this machine as x86-64-v3, with LLVM's O2 and no contraction.
class Jit {
public:
  using Kernel = void (*)(const void *a, const void *b, void *out, int64_t n);
  static Result<std::unique_ptr<Jit>> create(std::span<const KernelSpec>);
  virtual ~Jit() = default;
  virtual Kernel lookup(const std::string &name) = 0; ///< null where there is none
};

/// PTX (version 8.0) of the kernels for compute capability `sm`/10; `arch` is "sm_80", "sm_90a" ...
Result<std::string> emitPtx(std::span<const KernelSpec>, const std::string &arch, int sm);

} // namespace rl::mathtest
