// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/base/WriteAll.h"

#include <algorithm>
#include <cerrno>
#include <unistd.h>

namespace rl {

bool writeAll(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    // The kernel takes at most about 2 GiB a call.
    ssize_t n = ::write(fd, bytes.data(), std::min<size_t>(bytes.size(), size_t(1) << 30));
    if (n < 0 && errno == EINTR)
      continue;
    if (n == 0)
      errno = EIO;
    if (n <= 0)
      return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

} // namespace rl
