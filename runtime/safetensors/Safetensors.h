// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// safetensors files: 8 bytes of header length (little endian), a JSON header, data. Reading maps the file and checks
// everything (header length, JSON, dtype, shape against byte range, overlaps, gaps, duplicate names); nothing is read past
// the mapping whatever the bytes say.
#pragma once

#include "runtime/base/DType.h"
#include "runtime/base/Result.h"

#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace rl {

/// The format's own bound on the header, in bytes.
inline constexpr uint64_t kSafetensorsMaxHeader = 100'000'000;

struct SafetensorsEntry {
  std::string name;
  TensorType type;
  const std::byte *data = nullptr; ///< within the mapping (or the buffer); may be unaligned
  size_t bytes = 0;
};

class SafetensorsFile {
public:
  /// Maps the file. Code::Invalid, with `file` set, where it cannot be opened or is malformed; pointers are "/tensor" and
  /// "/tensor/shape" (names escaped as RFC 6901 asks), empty for the file as a whole. The entries point into the mapping,
  /// which lives as long as the last copy of this object does. A file that another process shortens meanwhile is that
  /// process's breach: replace files by renaming, as writeSafetensors does.
  static Result<SafetensorsFile> open(const std::string &path);
  static Result<SafetensorsFile> parse(const void *data, size_t bytes); ///< borrows the buffer

  /// In the order of the data. Left out are tensors that no graph can name: of a dtype that the graph format lacks (F64,
  /// U16, ...) or of a rank above 8. Their ranges are checked all the same, and `get` says why they are not to be had.
  const std::vector<SafetensorsEntry> &entries() const;
  const SafetensorsEntry *find(std::string_view name) const; ///< null where `entries` has none of that name
  /// The entry of that name, checked against `type` (extent -1 matches any); Code::Invalid with pointer "/name" where it is
  /// missing, or its dtype or shape differs, with both in the message, or where a bool is a byte other than 0 and 1 (this
  /// alone reads the data).
  Result<const SafetensorsEntry *> get(std::string_view name, const TensorType &type) const;

private:
  struct Impl;
  std::shared_ptr<const Impl> impl;
};

struct SafetensorsWrite {
  std::string name;
  TensorType type;
  const void *data;
};
/// Writes beside the target and renames, so that a failure leaves nothing half-written; a target that exists and is no
/// regular file (/dev/null, a pipe) is written to directly. The data section starts at a multiple of 64 bytes, and tensors
/// stand in it by falling element size, so that each is aligned to its element: the format allows no padding between them.
/// Code::Device with the path on failure; Code::Invalid for names that the format cannot hold (twice the same,
/// "__metadata__", not UTF-8).
Status writeSafetensors(const std::string &path, const std::vector<SafetensorsWrite> &tensors);
/// The bytes of such a file.
Result<std::string> formatSafetensors(const std::vector<SafetensorsWrite> &tensors);

} // namespace rl
