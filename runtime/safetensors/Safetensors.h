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

struct SafetensorsEntry {
  std::string name;
  TensorType type;
  const std::byte *data = nullptr; ///< within the mapping (or the buffer); may be unaligned
  size_t bytes = 0;
};

class SafetensorsFile {
public:
  static Result<SafetensorsFile> open(const std::string &path);          ///< Code::Invalid, `file` set; pointers "/tensor"
  static Result<SafetensorsFile> parse(const void *data, size_t bytes);  ///< borrows the buffer
  const std::vector<SafetensorsEntry> &entries() const;
  const SafetensorsEntry *find(std::string_view name) const;
  /// The entry of that name, checked against `type` (extent -1 matches any); Code::Invalid with pointer "/name" where it is
  /// missing, or its dtype or shape differs, with both in the message.
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
/// Writes beside the target and renames, so that a failure leaves nothing half-written. Data aligned to 64 bytes in the file.
/// Code::Device with the path on failure.
Status writeSafetensors(const std::string &path, const std::vector<SafetensorsWrite> &tensors);

} // namespace rl
