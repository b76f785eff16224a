// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the C interface's rl_module is: something with a signature that can be bound and run.
#pragma once

#include "runtime/package/Package.h"

#include <functional>
#include <memory>
#include <span>

namespace rl {

class Module {
public:
  virtual ~Module() = default;
  virtual const std::vector<PackageTensor> &tensors(int kind) const = 0; ///< 0 inputs, 1 parameters, 2 outputs
  /// Copies `data`. Device pointer (or host pointer; the driver tells) on CUDA, host pointer elsewhere.
  virtual Status bind(std::string_view parameter, const void *data, size_t bytes) = 0;
  /// Copies a parameter's values to host memory, on CUDA when the context's work has ended. Errors as of `bind`, and
  /// Code::Usage where it is not bound.
  virtual Status read(std::string_view parameter, void *data, size_t bytes) = 0;
  /// Code::Usage where a parameter is not bound. On CUDA only enqueues on `stream`.
  virtual Status run(const void *const *inputs, void *const *outputs, void *stream) = 0;
  virtual int kernelCount() const = 0;
  virtual const Package *package() const { return nullptr; } ///< null: cannot be saved (the reference interpreter)
};

/// CPU packages: where the kernels are. The compiler's library passes a resolver of its JIT; without one the package's
/// shared object is opened with dlopen.
using CpuKernel = int32_t (*)(void *const *args, int64_t firstBlock, int64_t endBlock);
using CpuResolver = std::function<Result<CpuKernel>(const std::string &symbol)>;

Result<std::unique_ptr<Module>> makeModule(Package, CpuResolver = {});

} // namespace rl

/// The C interface's opaque handle.
struct rl_module {
  std::unique_ptr<rl::Module> impl;
};
