// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "frontend/engine/CudaTimer.h"

#include <algorithm>

namespace rl {

double median(std::vector<double> v) {
  if (v.empty())
    return 0;
  std::sort(v.begin(), v.end());
  return v.size() % 2 ? v[v.size() / 2] : (v[v.size() / 2 - 1] + v[v.size() / 2]) / 2;
}

Result<CudaTimer> CudaTimer::create(size_t flushBytes) {
  CudaTimer timer;
  RL_ASSIGN(timer.flush, CudaMemory::allocate(flushBytes));
  return timer;
}

} // namespace rl
