// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the CPU and the CUDA module share: the signature, and the checks of what a caller passes.
#pragma once

#include "runtime/Module.h"

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace rl {

/// Does this launch do nothing (an empty grid, no blocks, a copy of nothing)?
bool isEmptyLaunch(const Package &, const PackageLaunch &);
/// "kernel 'k' (label)" or "copy (label)", for messages.
std::string describeLaunch(const PackageLaunch &);
/// The error for a pointer that is too little aligned for a kernel without another one for this: Code::Usage.
Error misalignedLaunch(const PackageLaunch &);

class PackageModule : public Module {
public:
  explicit PackageModule(Package);
  const std::vector<PackageTensor> &tensors(int kind) const override;
  int kernelCount() const override { return kernels; }
  const Package *package() const override { return &contents; }

protected:
  /// The parameter's place. Code::Usage: unknown, or `data` null; Code::Invalid: wrong size.
  Result<size_t> checkBind(std::string_view parameter, const void *data, size_t bytes) const;
  /// Code::Usage where a pointer is null or not aligned to its element.
  Status checkPointers(const void *const *inputs, void *const *outputs) const;
  Error unbound(size_t parameter) const;

  Package contents;
  /// Held for each call: the contract asks callers for one call at a time, and this makes a breach slow, not wrong.
  std::mutex mutex;

private:
  struct Requirement {
    uintptr_t mask; ///< of the address bits that must be zero
    bool empty;
  };
  std::vector<Requirement> inputRequirements, outputRequirements;
  int kernels = 0;
};

Result<std::unique_ptr<Module>> makeCpuModule(Package, CpuResolver);
Result<std::unique_ptr<Module>> makeCudaModule(Package);

} // namespace rl
