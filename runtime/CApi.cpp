// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The runtime's half of the C interface. The checks of arguments are here, those of data in the modules.
#include "runtime/CApi.h"

#include <string>

namespace rl {
namespace {
// Two strings, so that running out of memory while storing a text leaves a valid one behind.
thread_local std::string lastError;
thread_local const char *lastErrorText = "";
} // namespace

int setOutOfMemory() noexcept {
  lastErrorText = "out of memory";
  return RL_DEVICE;
}

int setUnexpected() noexcept {
  lastErrorText = "an unexpected failure inside the library";
  return RL_DEVICE;
}

int setLastError(const Error &error, std::string_view fallbackFile) noexcept {
  try {
    lastError = error.str(fallbackFile);
    lastErrorText = lastError.c_str();
  } catch (...) {
    lastErrorText = "out of memory";
  }
  return error.code == Code::Ok ? RL_DEVICE : static_cast<int>(error.code);
}

namespace {

int usage(std::string message) { return setLastError(usageError(std::move(message))); }

/// The tensors of `kind`, or null with the error set.
const std::vector<PackageTensor> *signature(const rl_module *module, int kind, const char *function) {
  if (!module || !module->impl) {
    usage(std::string(function) + ": module is NULL");
    return nullptr;
  }
  if (kind < 0 || kind > 2) {
    usage(std::string(function) + ": kind is " + std::to_string(kind) +
          "; it must be 0 (inputs), 1 (parameters) or 2 (outputs)");
    return nullptr;
  }
  return &module->impl->tensors(kind);
}

} // namespace
} // namespace rl

using namespace rl;

const char *rl_last_error(void) { return lastErrorText; }
const char *rl_version(void) { return RIDGELINE_VERSION; }

int rl_load(const char *package_directory, rl_module **out) {
  return guarded([&] {
    if (!out)
      return usage("rl_load: out is NULL");
    *out = nullptr;
    if (!package_directory)
      return usage("rl_load: package_directory is NULL");
    auto package = readPackage(package_directory);
    if (!package)
      return setLastError(package.error(), package_directory);
    auto module = makeModule(*std::move(package));
    if (!module)
      return setLastError(module.error(), package_directory);
    *out = wrapModule(*std::move(module));
    return int(RL_OK);
  });
}

void rl_unload(rl_module *module) {
  guarded([&] {
    delete module;
    return int(RL_OK);
  });
}

int rl_count(const rl_module *module, int kind) {
  int count = -1;
  guarded([&] {
    if (const auto *tensors = signature(module, kind, "rl_count"))
      count = static_cast<int>(tensors->size());
    return int(RL_OK);
  });
  return count;
}

int rl_tensor(const rl_module *module, int kind, int index, const char **name, const char **dtype, int *rank,
              const int64_t **extents) {
  return guarded([&] {
    const auto *tensors = signature(module, kind, "rl_tensor");
    if (!tensors)
      return int(RL_USAGE);
    if (index < 0 || static_cast<size_t>(index) >= tensors->size())
      return usage("rl_tensor: index is " + std::to_string(index) + ", but there are " +
                   std::to_string(tensors->size()) + " tensors of kind " + std::to_string(kind));
    const PackageTensor &tensor = (*tensors)[static_cast<size_t>(index)];
    static const int64_t none = 0; // so that the extents of a rank-0 tensor are not a null pointer
    if (name)
      *name = tensor.name.c_str();
    if (dtype)
      *dtype = dtypeName(tensor.type.dtype);
    if (rank)
      *rank = static_cast<int>(tensor.type.shape.size());
    if (extents)
      *extents = tensor.type.shape.empty() ? &none : tensor.type.shape.data();
    return int(RL_OK);
  });
}

int rl_bind(rl_module *module, const char *parameter, const void *data, size_t bytes) {
  return guarded([&] {
    if (!module || !module->impl)
      return usage("rl_bind: module is NULL");
    if (!parameter)
      return usage("rl_bind: parameter is NULL");
    Status status = module->impl->bind(parameter, data, bytes);
    return status ? int(RL_OK) : setLastError(status.error());
  });
}

int rl_read(rl_module *module, const char *parameter, void *data, size_t bytes) {
  return guarded([&] {
    if (!module || !module->impl)
      return usage("rl_read: module is NULL");
    if (!parameter)
      return usage("rl_read: parameter is NULL");
    Status status = module->impl->read(parameter, data, bytes);
    return status ? int(RL_OK) : setLastError(status.error());
  });
}

int rl_run(rl_module *module, const void *const *inputs, void *const *outputs, void *stream) {
  return guarded([&] {
    if (!module || !module->impl)
      return usage("rl_run: module is NULL");
    if (!inputs && !module->impl->tensors(0).empty())
      return usage("rl_run: inputs is NULL");
    if (!outputs && !module->impl->tensors(2).empty())
      return usage("rl_run: outputs is NULL");
    Status status = module->impl->run(inputs, outputs, stream);
    return status ? int(RL_OK) : setLastError(status.error());
  });
}

int rl_kernel_count(const rl_module *module) {
  int count = -1;
  guarded([&] {
    if (!module || !module->impl)
      return usage("rl_kernel_count: module is NULL");
    count = module->impl->kernelCount();
    return int(RL_OK);
  });
  return count;
}
