// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <string>

namespace rl {

/// Identifies this build of the compiler, for cache keys: the linker's build id of the binary that this code is in, in hex; where
/// it has none, the binary's path, size and time of change.
std::string buildId();

} // namespace rl
