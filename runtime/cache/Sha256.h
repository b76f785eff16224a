// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// SHA-256 (FIPS 180-4): names the entries of the disk cache and tells a whole entry from a torn one.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace rl {

class Sha256 {
public:
  using Digest = std::array<uint8_t, 32>;

  Sha256 &update(std::string_view bytes);
  Digest finish(); ///< once; the object is spent afterwards

  static Digest of(std::string_view bytes) { return Sha256().update(bytes).finish(); }

private:
  void block(const uint8_t *bytes);

  std::array<uint32_t, 8> state{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<uint8_t, 64> pending{};
  size_t pendingBytes = 0;
  uint64_t totalBytes = 0;
};

std::string hex(const Sha256::Digest &); ///< 64 lower-case digits

} // namespace rl
