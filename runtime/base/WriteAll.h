// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include <string_view>

namespace rl {

/// Writes all bytes to a file descriptor, in as many calls as it takes. Where false, errno says why.
bool writeAll(int fd, std::string_view bytes);

} // namespace rl
