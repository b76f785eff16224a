// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The disk cache of compiled code: one file an entry, named by the SHA-256 of everything that decides its content. It is an
// aid and never an obstacle: what goes wrong with it is a miss, or turns it off with a reason, and fails no compile.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rl {

/// What decides the compiled code. Two keys are the same where all four texts are.
struct CacheKey {
  std::string text;     ///< the canonical IR
  std::string target;   ///< with the architecture, and on the CPU the features of the machine
  std::string schedule; ///< the options that steer the compiler
  std::string version;  ///< of the compiler

  std::string digest() const; ///< SHA-256 of the four, each behind its length, as 64 hex digits
};

/// Of this object, since it was opened. `hits + misses` is the number of lookups of an open cache.
struct CacheStats {
  uint64_t hits = 0, misses = 0;
  uint64_t stored = 0;
  uint64_t damaged = 0; ///< of the misses: entries found torn or tampered with, and deleted
  uint64_t failed = 0;  ///< entries that could not be stored (disk full, larger than half the bound)
  uint64_t evicted = 0; ///< entries deleted to keep the bound
};

/// Safe to use from several threads and, on one directory, from several processes. Copies share their counters.
class DiskCache {
public:
  static constexpr uint64_t kDefaultBytes = uint64_t(1) << 30;

  /// `where`: a directory, made if it is missing; empty for the default, $XDG_CACHE_HOME/ridgeline or ~/.cache/ridgeline; "off".
  /// Entries are code that will run, so that the directory must belong to this user and be writable by no other; a
  /// directory that is not so, or not writable, turns the cache off and `reason` says why. `maxBytes`: above it the entries
  /// used longest ago are deleted.
  static DiskCache open(std::string_view where, uint64_t maxBytes = kDefaultBytes);

  bool enabled() const;
  const std::string &directory() const; ///< empty where off
  const std::string &reason() const;    ///< why it is off: "off" as asked, or what went wrong; empty where on

  /// The value stored under the key, whole and checked; none otherwise. Marks it as used now.
  std::optional<std::string> get(const CacheKey &) const;
  /// Stores the value; what is there under the key is replaced. Readers see the old entry or the new one, never a part.
  void put(const CacheKey &, std::string_view value) const;
  CacheStats stats() const;

private:
  struct State;
  std::shared_ptr<State> state;
};

/// Several byte strings as one value, and back; none where the bytes were not made by joinBlobs.
std::string joinBlobs(const std::vector<std::string_view> &);
std::optional<std::vector<std::string>> splitBlobs(std::string_view);

} // namespace rl
