// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A driver for machines without a GPU: it remembers what it is asked, keeps device memory in host memory, runs a few
// kernels that it knows by name, and fails where a test tells it to. The runtime loads it through RIDGELINE_LIBCUDA.
#pragma once

#include "runtime/cuda/DriverApi.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace rl::fake {

struct Launch {
  std::string kernel;
  unsigned grid[3], block[3], shared, cluster[3];
  void *stream;
  std::vector<unsigned long long> args;
  bool graph; ///< as a node of a graph
  bool early; ///< by programmatic dependent launch
};

struct EncodedMap {
  int type;
  unsigned long long address;
  std::vector<uint64_t> extents, strides;
  std::vector<uint32_t> box;
  int swizzle, l2Promotion;
};

struct Control {
  std::recursive_mutex mutex;
  std::vector<std::string> calls; ///< names of the functions, in order
  std::vector<Launch> launches;
  std::vector<EncodedMap> maps; ///< in the order of their making
  int blocksPerSm = 1;
  /// Function to {calls that still succeed, code of the ones after}.
  std::map<std::string, std::pair<int, int>> failures;
  struct Memory {
    size_t bytes;
    cu::Context context;
    unsigned long long id;
  };
  std::map<unsigned long long, Memory> memory; ///< device memory that is not freed
  int capturing = 0;                           ///< of every stream; forbids allocation unless the thread is relaxed
  int major = 9, minor = 0;
  bool cubinFits = true;
  std::string log;                                    ///< what the PTX compiler writes when it fails
  std::function<double(const Launch &)> milliseconds; ///< how long a kernel takes; none: no time
  int liveModules = 0, liveGraphs = 0, liveEvents = 0, liveStreams = 0, retained = 0;

  void reset() {
    std::lock_guard lock(mutex);
    calls.clear();
    launches.clear();
    maps.clear();
    blocksPerSm = 1;
    failures.clear();
    capturing = 0;
    major = 9;
    minor = 0;
    cubinFits = true;
    log.clear();
    milliseconds = nullptr;
  }
  int count(const std::string &name) {
    std::lock_guard lock(mutex);
    return static_cast<int>(std::count(calls.begin(), calls.end(), name));
  }
};

/// What the library exports besides the driver's functions.
struct Exports {
  Control *control;
  cu::Context (*makeContext)();        ///< a context of a caller's own; not current yet
  void (*destroyContext)(cu::Context); ///< with its memory; its handle goes to the next one made
  void (*setCurrent)(cu::Context);     ///< replaces the thread's stack of contexts; null empties it
  int (*depth)();                      ///< of the thread's stack
};
using GetExports = Exports (*)();
inline constexpr const char *kExportsSymbol = "rlFakeCudaExports";

} // namespace rl::fake
