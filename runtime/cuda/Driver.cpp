// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See Driver.h.
#include "runtime/cuda/Driver.h"

#include <cstdlib>
#include <dlfcn.h>
#include <mutex>

namespace rl::cu {
namespace {

struct Loaded {
  Api api;
  bool ok = false;
  Error error;
};

/// The library's file. The variable is ignored in programs that run with another user's rights.
const char *libraryName() {
  const char *name = ::secure_getenv("RIDGELINE_LIBCUDA");
  return name && *name ? name : "libcuda.so.1";
}

/// Fills the table; the name of a required function that is missing, or null.
const char *resolve(void *library, Api &api) {
#define RL_CUDA_RESOLVE(name, parameters)                                                                              \
  api.name = reinterpret_cast<decltype(api.name)>(::dlsym(library, #name));                                            \
  if (!api.name)                                                                                                       \
    return #name;
  RL_CUDA_REQUIRED(RL_CUDA_RESOLVE)
#undef RL_CUDA_RESOLVE
#define RL_CUDA_RESOLVE(name, parameters) api.name = reinterpret_cast<decltype(api.name)>(::dlsym(library, #name));
  RL_CUDA_OPTIONAL(RL_CUDA_RESOLVE)
#undef RL_CUDA_RESOLVE
  return nullptr;
}

void load(Loaded &out) {
  void *library = ::dlopen(libraryName(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *why = ::dlerror();
    out.error = deviceError(std::string("no NVIDIA driver: ") + (why ? why : libraryName()));
    return;
  }
  if (const char *missing = resolve(library, out.api)) {
    out.error = deviceError(std::string("the NVIDIA driver is too old: it has no ") + missing);
    return;
  }
  if (Result r = out.api.cuInit(0); r != kSuccess) {
    out.error = failure(out.api, r, "the NVIDIA driver cannot be started (cuInit)");
    return;
  }
  out.ok = true;
}

thread_local std::shared_ptr<const std::string> lastLaunch;

} // namespace

rl::Result<const Api *> driver() {
  static Loaded loaded;
  static std::once_flag once;
  std::call_once(once, [] { load(loaded); });
  if (!loaded.ok)
    return loaded.error;
  return &loaded.api;
}

const Api *driverWithCurrentContext() {
  // A context can be current only where somebody has the library open already.
  void *library = ::dlopen(libraryName(), RTLD_NOW | RTLD_NOLOAD);
  if (!library)
    return nullptr;
  auto getCurrent = reinterpret_cast<Result (*)(Context *)>(::dlsym(library, "cuCtxGetCurrent"));
  Context context = nullptr;
  bool current = getCurrent && getCurrent(&context) == kSuccess && context;
  ::dlclose(library);
  if (!current)
    return nullptr;
  auto api = driver();
  return api ? *api : nullptr;
}

bool isSticky(Result r) {
  switch (r) {
  case 214: // CUDA_ERROR_ECC_UNCORRECTABLE
  case 220: // CUDA_ERROR_NVLINK_UNCORRECTABLE
  case 700: // CUDA_ERROR_ILLEGAL_ADDRESS
  case 702: // CUDA_ERROR_LAUNCH_TIMEOUT
  case 710: // CUDA_ERROR_ASSERT
  case 714: // CUDA_ERROR_HARDWARE_STACK_ERROR
  case 715: // CUDA_ERROR_ILLEGAL_INSTRUCTION
  case 716: // CUDA_ERROR_MISALIGNED_ADDRESS
  case 717: // CUDA_ERROR_INVALID_ADDRESS_SPACE
  case 718: // CUDA_ERROR_INVALID_PC
  case 719: // CUDA_ERROR_LAUNCH_FAILED
  case 721: // CUDA_ERROR_TENSOR_MEMORY_LEAK
  case 999: // CUDA_ERROR_UNKNOWN
    return true;
  default: return false;
  }
}

void noteLaunch(const std::shared_ptr<const std::string> &description) {
  if (lastLaunch != description)
    lastLaunch = description;
}

std::string errorText(const Api &api, Result r) {
  const char *name = nullptr, *text = nullptr;
  std::string out;
  if (api.cuGetErrorName && api.cuGetErrorName(r, &name) == kSuccess && name)
    out = name;
  else
    out = "CUDA error " + std::to_string(r);
  if (api.cuGetErrorString && api.cuGetErrorString(r, &text) == kSuccess && text)
    out += std::string(": ") + text;
  if (isSticky(r)) {
    out += "; an earlier launch in this context failed, and every later call in it will fail too";
    if (lastLaunch)
      out += " (last launched here: " + *lastLaunch + ")";
  }
  return out;
}

Error failure(const Api &api, Result r, const std::string &what) {
  return deviceError(what + ": " + errorText(api, r));
}

namespace {

/// The primary context of device 0, retained on first use.
rl::Result<Context> primaryContext(const Api &api) {
  static std::mutex mutex;
  static Context context = nullptr;
  std::lock_guard lock(mutex);
  if (context)
    return context;
  Device device = 0;
  if (Result r = api.cuDeviceGet(&device, 0); r != kSuccess)
    return failure(api, r, "there is no CUDA device");
  Context made = nullptr;
  if (Result r = api.cuDevicePrimaryCtxRetain(&made, device); r != kSuccess)
    return failure(api, r, "the primary context of device 0 cannot be made");
  context = made;
  return context;
}

} // namespace

rl::Result<ContextScope> ContextScope::enter(const Api &api, Stream stream) {
  Context context = nullptr;
  if (Result r = api.cuCtxGetCurrent(&context); r != kSuccess)
    return failure(api, r, "the current context cannot be read");
  if (context)
    return ContextScope(api, context, false);
  // The default streams (NULL, 1 and 2 are names, not handles) belong to whatever context is current.
  bool named = reinterpret_cast<uintptr_t>(stream) <= 2;
  if (named || !api.cuStreamGetCtx || api.cuStreamGetCtx(stream, &context) != kSuccess || !context) {
    RL_ASSIGN(context, primaryContext(api));
  }
  if (Result r = api.cuCtxPushCurrent_v2(context); r != kSuccess)
    return failure(api, r, "the context cannot be made current");
  return ContextScope(api, context, true);
}

void ContextScope::leave() {
  if (!pushed)
    return;
  Context popped = nullptr;
  api->cuCtxPopCurrent_v2(&popped);
  pushed = false;
}

} // namespace rl::cu
