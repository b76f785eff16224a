// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See SharedObject.h. The bytes go into an anonymous file (memfd_create), so nothing is left on any disk; where the
// system has none, or no /proc, into a temporary file that is unlinked once it is open.
#include "runtime/cpu/SharedObject.h"

#include "runtime/base/WriteAll.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <sys/mman.h>
#include <unistd.h>

namespace rl {
namespace {

/// dlopen maps what the headers say and faults where the file ends before: look first.
Status checkElf(const std::string &bytes) {
  auto bad = [](const char *why) { return invalid({}, std::string("kernels.so: ") + why); };
  Elf64_Ehdr header;
  if (bytes.size() < sizeof header)
    return bad("too short for a shared object");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 || header.e_ident[EI_CLASS] != ELFCLASS64 ||
      header.e_type != ET_DYN)
    return bad("not a 64-bit ELF shared object");
#if defined(__x86_64__)
  if (header.e_machine != EM_X86_64)
    return Error{Code::Unsupported, {}, "kernels.so: not for this processor"};
#elif defined(__aarch64__)
  if (header.e_machine != EM_AARCH64)
    return Error{Code::Unsupported, {}, "kernels.so: not for this processor"};
#endif
  uint64_t size = bytes.size();
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phoff > size ||
      uint64_t(header.e_phnum) * sizeof(Elf64_Phdr) > size - header.e_phoff)
    return bad("its program headers lie outside the file");
  bool loads = false;
  for (unsigned i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr segment;
    std::memcpy(&segment, bytes.data() + header.e_phoff + i * sizeof segment, sizeof segment);
    if (segment.p_filesz && (segment.p_offset > size || segment.p_filesz > size - segment.p_offset))
      return bad("a segment lies outside the file");
    loads |= segment.p_type == PT_LOAD;
  }
  if (!loads)
    return bad("it has nothing to load");
  return {};
}

} // namespace

Result<std::unique_ptr<SharedObject>> SharedObject::open(const std::string &bytes) {
  RL_TRY(checkElf(bytes));
  std::string problem;
  int fd = ::memfd_create("ridgeline-kernels", MFD_CLOEXEC);
  if (fd >= 0) {
    std::string path = "/proc/self/fd/" + std::to_string(fd);
    if (writeAll(fd, bytes))
      if (void *handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL))
        // The descriptor stays open: the loader knows objects by their path, and a later file with the same number
        // would be taken for this one.
        return std::unique_ptr<SharedObject>(new SharedObject(handle, fd, path));
    if (const char *text = ::dlerror())
      problem = text;
    ::close(fd);
  }
  const char *folder = std::getenv("TMPDIR");
  std::string path = std::string(folder && *folder ? folder : "/tmp") + "/ridgeline-XXXXXX";
  fd = ::mkstemp(path.data());
  if (fd < 0)
    return deviceError("kernels.so cannot be opened: " +
                       (problem.empty() ? std::string(std::strerror(errno)) : problem));
  void *handle = nullptr;
  if (writeAll(fd, bytes))
    handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    if (const char *text = ::dlerror())
      problem = text;
  ::close(fd);
  ::unlink(path.c_str());
  if (!handle)
    return deviceError("kernels.so cannot be opened: " + problem);
  return std::unique_ptr<SharedObject>(new SharedObject(handle, -1, path));
}

SharedObject::~SharedObject() {
  ::dlclose(handle);
  if (fd < 0)
    return;
  // An object that cannot be unloaded keeps its path, and so its descriptor.
  if (void *still = ::dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD))
    ::dlclose(still);
  else
    ::close(fd);
}

void *SharedObject::find(const char *symbol) const { return ::dlsym(handle, symbol); }

} // namespace rl
