// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Whether this machine can run a CPU package's code.
#pragma once

#include "runtime/base/Result.h"

#include <string>

namespace rl {

/// `arch`: "x86-64" and its levels "-v2" to "-v4" (System V ABI for x86-64, "Micro-architecture levels"), or "aarch64".
/// Code::Unsupported names what is missing.
Status checkCpuArch(const std::string &arch);

} // namespace rl
