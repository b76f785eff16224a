// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The manifest with the list of the files beside it; private to runtime/package.
#pragma once

#include "runtime/package/Package.h"

#include <array>
#include <map>

namespace rl {

inline constexpr const char *kManifestName = "manifest.json";
/// The key that marks a manifest, and the version that it holds.
inline constexpr const char *kManifestMark = "ridgeline_package";
inline constexpr int kManifestVersion = 1;

/// The files that a package may have beside its manifest, and the member that each fills.
struct PackageFile {
  const char *name;
  std::string Package::*member;
};
inline constexpr std::array<PackageFile, 5> kPackageFiles{{{"kernels.ptx", &Package::ptx},
                                                           {"kernels.cubin", &Package::cubin},
                                                           {"kernels.so", &Package::sharedObject},
                                                           {"graph.json", &Package::graph},
                                                           {"explain.json", &Package::explain}}};

struct FileRecord {
  int64_t bytes = 0;
  uint64_t hash = 0;
};

/// FNV-1a (Fowler, Noll, Vo) with 64-bit words for its octets, little endian, the tail padded with zeros and the length
/// mixed in last: it finds damaged files, it is no defence against forged ones.
uint64_t fileHash(std::string_view contents);

Result<Package> parseManifest(std::string_view json, std::map<std::string, FileRecord> &files);

} // namespace rl
