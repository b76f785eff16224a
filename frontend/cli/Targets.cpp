// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ridgeline targets, and ridgeline cache.
#include "frontend/cli/Cli.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

namespace rl::cli {

Status targetsCommand(const Options &) {
  const std::vector<TargetLine> lines = listTargets();
  size_t width = 0;
  for (const TargetLine &l : lines)
    width = std::max(width, l.name.size());
  std::string out;
  for (const TargetLine &l : lines)
    out += l.name + std::string(width - l.name.size() + 2, ' ') +
           (l.runsHere         ? "runs here     "
            : l.name == "cuda" ? "not here      "
                               : "compile only  ") +
           l.description + "\n";
  return print(out);
}

Status cacheCommand(const Options &options) {
  DiskCache cache = DiskCache::open(options.cache);
  if (!cache.enabled()) {
    if (options.action == "clear" && options.cache != "off")
      return deviceError("the cache cannot be used: " + cache.reason());
    return print("cache: off (" + cache.reason() + ")\n");
  }
  std::unique_ptr<DIR, int (*)(DIR *)> dir(::opendir(cache.directory().c_str()), ::closedir);
  if (!dir)
    return Error{Code::Device, {}, std::string("cannot be listed: ") + std::strerror(errno), cache.directory()};
  uint64_t entries = 0, bytes = 0;
  while (const dirent *item = ::readdir(dir.get())) {
    std::string_view name = item->d_name;
    const std::string path = cache.directory() + "/" + item->d_name;
    struct stat info;
    // What the cache itself writes, and nothing else that may stand in a directory that --cache names.
    bool entry = name.size() == 64 + 6 && name.ends_with(".entry"), ledger = name == "ledger";
    if (!(entry || ledger) || ::lstat(path.c_str(), &info) != 0 || !S_ISREG(info.st_mode))
      continue;
    entries += entry;
    bytes += entry ? static_cast<uint64_t>(info.st_size) : 0;
    if (options.action == "clear" && ::unlink(path.c_str()) != 0 && errno != ENOENT)
      return Error{Code::Device, {}, std::string("cannot be deleted: ") + std::strerror(errno), path};
  }
  std::string count =
      std::to_string(entries) + (entries == 1 ? " entry, " : " entries, ") + amount(static_cast<double>(bytes));
  if (options.action == "clear")
    return options.quiet ? Status() : print("cache: " + cache.directory() + ": deleted " + count + "\n");
  return print("cache: " + cache.directory() + ": " + count + " of at most " +
               amount(static_cast<double>(DiskCache::kDefaultBytes)) + "\n");
}

} // namespace rl::cli
