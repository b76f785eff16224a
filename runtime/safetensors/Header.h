// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The JSON header of a safetensors file, read token by token: no document is built, so that memory stays proportional to
// the header, and what the format does not allow is refused at its place.
#pragma once

#include "runtime/base/DType.h"
#include "runtime/base/Result.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rl {

struct SafetensorsHeaderEntry {
  std::string name;
  std::optional<DType> dtype; ///< none: a dtype of the file format that the graph format lacks
  std::string dtypeSpelling;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0; ///< bytes from the start of the data section
};

/// A name from a file as a message may print it: control characters escaped, cut after 200 bytes.
std::string printableName(std::string_view name);

/// A JSON pointer to a tensor: "/" and the name with '~' and '/' escaped (RFC 6901).
std::string safetensorsPointer(std::string_view name);

/// Parses the header and checks each entry by itself: known keys, each once; names unique; the shape's bytes (within
/// int64, also when extents of 0 are left out) equal to end - begin; end within `dataBytes`. Entries come in file order.
Result<std::vector<SafetensorsHeaderEntry>> parseSafetensorsHeader(std::string_view json, uint64_t dataBytes);

} // namespace rl
