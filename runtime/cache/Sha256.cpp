// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Source of the algorithm and of its constants: FIPS 180-4, sections 4.1.2, 4.2.2, 5.3.3 and 6.2. The constants are the
// first 32 bits of the fractional parts of the square roots (state) and cube roots (rounds) of the first primes.
#include "runtime/cache/Sha256.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace rl {
namespace {

constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

} // namespace

void Sha256::block(const uint8_t *bytes) {
  uint32_t w[64];
  for (int t = 0; t < 16; ++t)
    w[t] = uint32_t(bytes[4 * t]) << 24 | uint32_t(bytes[4 * t + 1]) << 16 | uint32_t(bytes[4 * t + 2]) << 8 |
           uint32_t(bytes[4 * t + 3]);
  for (int t = 16; t < 64; ++t) {
    uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
    uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
    w[t] = s1 + w[t - 7] + s0 + w[t - 16];
  }
  auto [a, b, c, d, e, f, g, h] = state;
  for (int t = 0; t < 64; ++t) {
    uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    uint32_t choose = (e & f) ^ (~e & g);
    uint32_t t1 = h + s1 + choose + kRound[t] + w[t];
    uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + s0 + majority;
  }
  const uint32_t after[8] = {a, b, c, d, e, f, g, h};
  for (size_t i = 0; i < 8; ++i)
    state[i] += after[i];
}

Sha256 &Sha256::update(std::string_view bytes) {
  auto *at = reinterpret_cast<const uint8_t *>(bytes.data());
  size_t left = bytes.size();
  totalBytes += left;
  if (pendingBytes > 0) {
    size_t take = std::min(left, pending.size() - pendingBytes);
    if (take > 0)
      std::memcpy(pending.data() + pendingBytes, at, take);
    pendingBytes += take;
    at += take;
    left -= take;
    if (pendingBytes < pending.size())
      return *this;
    block(pending.data());
    pendingBytes = 0;
  }
  for (; left >= pending.size(); at += pending.size(), left -= pending.size())
    block(at);
  if (left > 0)
    std::memcpy(pending.data(), at, left);
  pendingBytes = left;
  return *this;
}

Sha256::Digest Sha256::finish() {
  const uint64_t bits = totalBytes * 8;
  // A one bit, zeros up to 8 bytes short of a block, the length.
  uint8_t tail[72] = {0x80};
  size_t zeros = (pendingBytes < 56 ? 56 : 120) - pendingBytes;
  for (size_t i = 0; i < 8; ++i)
    tail[zeros + i] = static_cast<uint8_t>(bits >> (56 - 8 * i));
  update({reinterpret_cast<const char *>(tail), zeros + 8});
  Digest out;
  for (size_t i = 0; i < 32; ++i)
    out[i] = static_cast<uint8_t>(state[i / 4] >> (24 - 8 * (i % 4)));
  return out;
}

std::string hex(const Sha256::Digest &digest) {
  constexpr char digits[] = "0123456789abcdef";
  std::string out;
  for (uint8_t byte : digest) {
    out += digits[byte >> 4];
    out += digits[byte & 15];
  }
  return out;
}

} // namespace rl
