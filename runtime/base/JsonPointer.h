// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <string>
#include <string_view>

namespace rl {

/// A key as it stands in a JSON pointer (RFC 6901): ~ becomes ~0 and / becomes ~1.
std::string escapePointer(std::string_view key);

} // namespace rl
