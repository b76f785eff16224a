// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "frontend/engine/BuildId.h"

#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/stat.h>

namespace rl {

namespace {
struct Search {
  uintptr_t address;
  std::string id;
};
} // namespace

static int visit(dl_phdr_info *info, size_t, void *data) {
  auto *search = static_cast<Search *>(data);
  bool mine = false;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) &p = info->dlpi_phdr[i];
    uintptr_t begin = info->dlpi_addr + p.p_vaddr;
    mine |= p.p_type == PT_LOAD && search->address >= begin && search->address < begin + p.p_memsz;
  }
  if (!mine)
    return 0;
  for (int i = 0; i < info->dlpi_phnum; ++i) {
    const ElfW(Phdr) &p = info->dlpi_phdr[i];
    if (p.p_type != PT_NOTE)
      continue;
    const char *at = reinterpret_cast<const char *>(info->dlpi_addr + p.p_vaddr), *end = at + p.p_memsz;
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      ElfW(Nhdr) note;
      std::memcpy(&note, at, sizeof note);
      const char *name = at + sizeof note, *value = name + (note.n_namesz + 3) / 4 * 4;
      if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 && std::memcmp(name, "GNU", 4) == 0) {
        static const char digits[] = "0123456789abcdef";
        for (size_t k = 0; k < note.n_descsz; ++k) {
          auto byte = static_cast<unsigned char>(value[k]);
          search->id += {digits[byte >> 4], digits[byte & 15]};
        }
        return 1;
      }
      at = value + (note.n_descsz + 3) / 4 * 4;
    }
  }
  return 1;
}

std::string buildId() {
  Search search{reinterpret_cast<uintptr_t>(&visit), {}};
  dl_iterate_phdr(visit, &search);
  if (!search.id.empty())
    return search.id;
  Dl_info info{};
  struct stat status{};
  const char *path = "/proc/self/exe";
  if (dladdr(reinterpret_cast<void *>(&visit), &info) && info.dli_fname)
    path = info.dli_fname;
  if (stat(path, &status) != 0 && stat("/proc/self/exe", &status) != 0)
    return "unknown";
  return std::string(path) + " " + std::to_string(status.st_size) + " " + std::to_string(status.st_mtime);
}

} // namespace rl
