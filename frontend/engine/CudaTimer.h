// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The time of work on a CUDA stream, by events, with a cold L2 cache.
#pragma once

#include "runtime/cuda/Cuda.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace rl {

/// Of an empty list: 0.
double median(std::vector<double>);

/// Before each run it writes memory of its own, which empties the cache and hides the time that the host takes to launch.
class CudaTimer {
public:
  static constexpr size_t kFlushBytes = size_t(256) << 20;
  static Result<CudaTimer> create(size_t flushBytes = kFlushBytes);

  /// Microseconds of what `enqueue`, a function to a Status, puts on the stream. Waits for it.
  template <class Enqueue> Result<double> once(void *stream, Enqueue enqueue) {
    RL_ASSIGN(CudaEvent start, CudaEvent::create());
    RL_ASSIGN(CudaEvent end, CudaEvent::create());
    RL_TRY(flush.fill(value++, stream));
    RL_TRY(start.record(stream));
    RL_TRY(enqueue());
    RL_TRY(end.record(stream));
    return CudaEvent::elapsedMicroseconds(start, end);
  }

private:
  CudaMemory flush;
  uint8_t value = 0;
};

} // namespace rl
