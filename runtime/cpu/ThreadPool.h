// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A pool of threads that share the blocks of a kernel. Not TBB: Debian has it as a shared
// library only, and the runtime depends on libc and libstdc++ alone.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace rl {

class ThreadPool {
public:
  /// The process's pool: as many threads as this process may run on (its affinity mask), or RIDGELINE_THREADS (1 to
  /// 1024). It is made on first use and lives until the process ends; a fork's child gets one of its own.
  static ThreadPool &global();

  /// `threads` counts the caller, who takes part in its own work. They are started when first needed.
  explicit ThreadPool(int threads);
  ~ThreadPool(); ///< no `run` may be in progress
  ThreadPool(const ThreadPool &) = delete;
  ThreadPool &operator=(const ThreadPool &) = delete;

  int threads() const { return threadCount; }

  /// Does part of the work; 0, or a code of failure.
  using Body = int64_t (*)(void *context, int64_t first, int64_t end);
  /// Calls `body` for ranges that together are [0, count), each once, on up to `participants` threads (the caller is
  /// one), and returns when all are done. The ranges depend on `count` and `participants` alone. Returns 0, or the code
  /// of the failing range that is first, whatever the order in which they ran; ranges after a failed one may be left
  /// out. Any number of threads may call this at once. The body runs in the default floating-point environment.
  int64_t run(int64_t count, int participants, Body body, void *context);

private:
  struct Job;
  void start(int wanted);
  void work();
  Job *pick();

  const int threadCount;
  std::mutex mutex;
  std::condition_variable wake, done;
  std::vector<Job *> jobs; ///< guarded by mutex, as what follows
  std::vector<std::thread *> workers;
  int sleeping = 0;
  bool stopping = false;
  std::atomic<uint64_t> epoch{0}; ///< counts jobs; what a thread without work watches
};

} // namespace rl
