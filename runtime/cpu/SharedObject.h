// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A shared object whose bytes are in memory, opened with dlopen.
#pragma once

#include "runtime/base/Result.h"

#include <memory>
#include <string>

namespace rl {

class SharedObject {
public:
  /// Code::Invalid: not an ELF shared object of this machine, or cut short; Code::Device: the system cannot open it.
  static Result<std::unique_ptr<SharedObject>> open(const std::string &bytes);
  ~SharedObject();
  SharedObject(const SharedObject &) = delete;
  SharedObject &operator=(const SharedObject &) = delete;

  void *find(const char *symbol) const; ///< null where there is none

private:
  SharedObject(void *handle, int fd, std::string path) : handle(handle), fd(fd), path(std::move(path)) {}
  void *handle;
  int fd;
  std::string path;
};

} // namespace rl
