// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Generated CPU code: run in this process, or linked into a shared object for a package.
#pragma once

#include "runtime/base/Result.h"

#include <functional>
#include <string>

namespace rl {

/// The address of a function of the object; the code lives as long as a copy of the resolver does.
using CodeResolver = std::function<Result<void *>(const std::string &symbol)>;

/// Loads a relocatable object into this process with LLVM's ORC. Code::Unsupported with what ORC said.
Result<CodeResolver> loadObject(const std::string &object);

/// Links an object into a shared object with LLD's library. Code::Device where temporary files cannot be written.
Result<std::string> linkSharedObject(const std::string &object);

} // namespace rl
