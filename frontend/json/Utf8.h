// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Well-formedness of UTF-8, for texts that did not come through the JSON parser. Depends on the standard library alone.
#pragma once

#include <cstddef>
#include <string_view>

namespace rl {

/// The length of the well-formed sequence at the start of `s`, 0 if there is none (Unicode 15, table 3-7: no overlong
/// forms, no surrogates, nothing beyond U+10FFFF).
inline size_t utf8Length(std::string_view s) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(s[i]); };
  auto tail = [&](size_t i) { return i < s.size() && (byte(i) & 0xC0) == 0x80; };
  if (s.empty())
    return 0;
  unsigned char b = byte(0);
  if (b < 0x80)
    return 1;
  if (b >= 0xC2 && b <= 0xDF)
    return tail(1) ? 2 : 0;
  if (b >= 0xE0 && b <= 0xEF) {
    if (!tail(1) || !tail(2) || (b == 0xE0 && byte(1) < 0xA0) || (b == 0xED && byte(1) > 0x9F))
      return 0;
    return 3;
  }
  if (b >= 0xF0 && b <= 0xF4) {
    if (!tail(1) || !tail(2) || !tail(3) || (b == 0xF0 && byte(1) < 0x90) || (b == 0xF4 && byte(1) > 0x8F))
      return 0;
    return 4;
  }
  return 0;
}

inline bool isUtf8(std::string_view s) {
  while (!s.empty()) {
    size_t n = utf8Length(s);
    if (n == 0)
      return false;
    s.remove_prefix(n);
  }
  return true;
}

} // namespace rl
