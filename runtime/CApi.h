// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What every function of the C interface does at its edge: remember the error for rl_last_error, let nothing be thrown
// through, and wrap a Module. Shared by the runtime's functions and the compiler's.
#pragma once

#include "ridgeline.h"
#include "runtime/Module.h"
#include "runtime/base/Result.h"

#include <memory>
#include <new>
#include <string_view>

namespace rl {

/// Remembers `error` as this thread's last and returns its code. `fallbackFile` stands in for an empty error.file.
/// Never throws; when even the text cannot be stored, rl_last_error says "out of memory".
int setLastError(const Error &error, std::string_view fallbackFile = {}) noexcept;

/// Remembers that memory ran out; returns RL_DEVICE.
int setOutOfMemory() noexcept;

/// Remembers that something unknown was thrown; returns RL_DEVICE.
int setUnexpected() noexcept;

/// Runs `body`, which returns an int status, and turns whatever it throws into RL_DEVICE.
template <class Body> int guarded(Body &&body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc &) {
    return setOutOfMemory();
  } catch (...) {
    return setUnexpected();
  }
}

/// The handle that rl_unload releases. Null where memory ran out.
inline rl_module *wrapModule(std::unique_ptr<Module> module) { return new rl_module{std::move(module)}; }

} // namespace rl
