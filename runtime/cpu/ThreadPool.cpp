// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See ThreadPool.h. A job's ranges are fixed at its start and handed out by an atomic counter, so a thread that is late
// or never comes costs nothing: the caller alone would finish the job.
#include "runtime/cpu/ThreadPool.h"

#include <algorithm>
#include <cfenv>
#include <climits>
#include <cstdlib>
#include <pthread.h>
#include <signal.h>
#include <system_error>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace rl {
namespace {

/// Ranges a thread gets on average: enough that one slow core does not hold up the rest by more than a fraction.
constexpr int64_t kRangesPerThread = 4;
/// Turns of the loop that waits without sleeping, about 20 us: waking a thread costs about as much.
constexpr int kSpins = 500;

inline void relax() {
#if defined(__x86_64__)
  _mm_pause();
#else
  std::atomic_signal_fence(std::memory_order_seq_cst);
#endif
}

/// The default floating-point environment (round to nearest, subnormals kept, traps masked), whatever the host program
/// set, for as long as this lives: results must not depend on the thread that computes them.
class DefaultFloatEnvironment {
public:
#if defined(__x86_64__)
  DefaultFloatEnvironment() : saved(_mm_getcsr()) { _mm_setcsr(0x1f80); }
  ~DefaultFloatEnvironment() { _mm_setcsr(saved); }

private:
  unsigned saved;
#else
  DefaultFloatEnvironment() {
    std::fegetenv(&saved);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultFloatEnvironment() { std::fesetenv(&saved); }

private:
  std::fenv_t saved;
#endif
};

int defaultThreads() {
  if (const char *text = std::getenv("RIDGELINE_THREADS")) {
    char *end = nullptr;
    long n = std::strtol(text, &end, 10);
    if (end != text && *end == '\0' && n >= 1)
      return static_cast<int>(std::min<long>(n, 1024));
  }
  return static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1u, 1024u));
}

std::atomic<ThreadPool *> globalPool{nullptr};

} // namespace

ThreadPool &ThreadPool::global() {
  ThreadPool *pool = globalPool.load(std::memory_order_acquire);
  if (pool)
    return *pool;
  // A fork's child has none of the threads, and perhaps a mutex that nobody will unlock: it abandons the pool.
  static const int registered =
      pthread_atfork(nullptr, nullptr, [] { globalPool.store(nullptr, std::memory_order_release); });
  (void)registered;
  auto *made = new ThreadPool(defaultThreads());
  if (globalPool.compare_exchange_strong(pool, made, std::memory_order_acq_rel))
    return *made;
  delete made; // another thread was first
  return *pool;
}

struct ThreadPool::Job {
  Body body;
  void *context;
  int64_t count, size; ///< size of a range
  int64_t ranges;
  int places; ///< workers that may still join; guarded by the pool's mutex
  std::atomic<int64_t> next{0};
  std::atomic<int> active{0};             ///< workers in it; the caller is not counted
  std::atomic<int64_t> failed{INT64_MAX}; ///< the first failing range so far
  std::mutex failureMutex;
  int64_t failure = 0; ///< its code

  void work() {
    DefaultFloatEnvironment environment;
    for (;;) {
      int64_t range = next.fetch_add(1, std::memory_order_relaxed);
      if (range >= ranges || range > failed.load(std::memory_order_relaxed))
        return;
      int64_t first = range * size;
      int64_t code = body(context, first, first + std::min(size, count - first));
      if (code == 0)
        continue;
      std::lock_guard lock(failureMutex);
      if (range < failed.load(std::memory_order_relaxed)) {
        failed.store(range, std::memory_order_relaxed);
        failure = code;
      }
    }
  }
};

ThreadPool::ThreadPool(int threads) : threadCount(std::max(threads, 1)) {}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(mutex);
    stopping = true;
    epoch.fetch_add(1, std::memory_order_release);
  }
  wake.notify_all();
  for (std::thread *worker : workers) {
    worker->join();
    delete worker;
  }
}

/// Starts workers up to `wanted`; the caller holds the mutex. Where the system has no more threads, fewer do the work.
void ThreadPool::start(int wanted) {
  if (static_cast<int>(workers.size()) >= wanted)
    return;
  // The host program's signal handlers are none of our threads' business.
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  try {
    workers.reserve(static_cast<size_t>(wanted));
    while (static_cast<int>(workers.size()) < wanted)
      workers.push_back(new std::thread([this] { work(); }));
  } catch (const std::exception &) {
  }
  pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

ThreadPool::Job *ThreadPool::pick() {
  for (Job *job : jobs)
    if (job->places > 0 && job->next.load(std::memory_order_relaxed) < job->ranges)
      return job;
  return nullptr;
}

void ThreadPool::work() {
  std::unique_lock lock(mutex);
  while (!stopping) {
    if (Job *job = pick()) {
      --job->places;
      job->active.fetch_add(1, std::memory_order_relaxed);
      lock.unlock();
      job->work();
      lock.lock();
      // The caller may release the job as soon as this is zero.
      if (job->active.fetch_sub(1, std::memory_order_release) == 1)
        done.notify_all();
      continue;
    }
    uint64_t seen = epoch.load(std::memory_order_relaxed);
    lock.unlock();
    for (int i = 0; i < kSpins && epoch.load(std::memory_order_acquire) == seen; ++i)
      relax();
    lock.lock();
    if (epoch.load(std::memory_order_relaxed) != seen)
      continue;
    ++sleeping;
    wake.wait(lock, [&] { return epoch.load(std::memory_order_relaxed) != seen; });
    --sleeping;
  }
}

int64_t ThreadPool::run(int64_t count, int participants, Body body, void *context) {
  if (count <= 0)
    return 0;
  participants = static_cast<int>(std::min<int64_t>({participants, threadCount, count}));
  if (participants <= 1) {
    DefaultFloatEnvironment environment;
    return body(context, 0, count);
  }
  Job job{.body = body,
          .context = context,
          .count = count,
          .size = 0,
          .ranges = 0,
          .places = participants - 1,
          .failureMutex = {}};
  int64_t wanted = participants * kRangesPerThread;
  job.size = count / wanted + (count % wanted != 0);
  job.ranges = count / job.size + (count % job.size != 0);
  int toWake;
  {
    std::lock_guard lock(mutex);
    start(participants - 1);
    jobs.push_back(&job);
    epoch.fetch_add(1, std::memory_order_release);
    toWake = std::min(sleeping, participants - 1);
  }
  for (; toWake > 0; --toWake)
    wake.notify_one();
  job.work();
  {
    std::lock_guard lock(mutex);
    jobs.erase(std::find(jobs.begin(), jobs.end(), &job)); // nobody joins from here on
  }
  for (int i = 0; i < kSpins && job.active.load(std::memory_order_acquire) != 0; ++i)
    relax();
  if (job.active.load(std::memory_order_acquire) != 0) {
    std::unique_lock lock(mutex);
    done.wait(lock, [&] { return job.active.load(std::memory_order_acquire) == 0; });
  }
  std::lock_guard lock(job.failureMutex);
  return job.failure;
}

} // namespace rl
