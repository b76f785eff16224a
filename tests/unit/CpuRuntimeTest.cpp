// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The CPU runtime and the C interface on it: the pool, modules with kernels of this program and of a shared object that
// the system's C compiler makes, and every wrong argument.
#include "ridgeline.h"
#include "runtime/CApi.h"
#include "runtime/Module.h"
#include "runtime/cpu/CpuFeatures.h"
#include "runtime/cpu/SharedObject.h"
#include "runtime/cpu/ThreadPool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cfloat>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>
#include <sstream>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

using namespace rl;
namespace fs = std::filesystem;

namespace {

#if defined(__x86_64__)
constexpr const char *kArch = "x86-64";
#else
constexpr const char *kArch = "aarch64";
#endif

// ---- kernels of this program; a block is 64 elements of f32

constexpr int64_t kBlock = 64;
std::atomic<int> unalignedRuns{0};
std::atomic<int64_t> blocksRun{0};

int32_t addKernel(void *const *args, int64_t first, int64_t end) {
  auto *a = static_cast<const float *>(args[0]), *b = static_cast<const float *>(args[1]);
  auto *c = static_cast<float *>(args[2]);
  for (int64_t i = first * kBlock; i < end * kBlock; ++i)
    c[i] = a[i] + b[i];
  blocksRun += end - first;
  return 0;
}
int32_t addUnaligned(void *const *args, int64_t first, int64_t end) {
  ++unalignedRuns;
  return addKernel(args, first, end);
}
/// args: table [1000] f32, indices i64, out. Fails with 2 where an index is out of range.
int32_t gatherKernel(void *const *args, int64_t first, int64_t end) {
  auto *table = static_cast<const float *>(args[0]);
  auto *index = static_cast<const int64_t *>(args[1]);
  auto *out = static_cast<float *>(args[2]);
  for (int64_t i = first * kBlock; i < end * kBlock; ++i) {
    if (index[i] < 0 || index[i] >= 1000)
      return 2;
    out[i] = table[index[i]];
  }
  return 0;
}
int32_t strangeKernel(void *const *, int64_t, int64_t) { return 77; }

Result<CpuKernel> resolve(const std::string &name) {
  if (name == "add")
    return addKernel;
  if (name == "add_u")
    return addUnaligned;
  if (name == "gather")
    return gatherKernel;
  if (name == "strange")
    return strangeKernel;
  return invalid({}, "no kernel '" + name + "'");
}

PackageLaunch kernel(std::string name, std::vector<uint32_t> args, int64_t blocks) {
  PackageLaunch l;
  l.kernel = std::move(name);
  l.args = std::move(args);
  l.blocks = blocks;
  l.label = "node " + l.kernel;
  return l;
}

/// y = (x + w) + w through the arena; n elements, a multiple of 64.
Package addTwice(int64_t n) {
  Package p;
  p.name = "add_twice";
  p.version = "test";
  p.target = "cpu";
  p.arch = kArch;
  TensorType t{DType::F32, {n}};
  p.inputs = {{"x", t}};
  p.parameters = {{"w", t}};
  p.outputs = {{"y", t}};
  p.buffers = {{PackageBuffer::Input, 0, 0, t.bytes()},
               {PackageBuffer::Parameter, 0, 0, t.bytes()},
               {PackageBuffer::Output, 0, 0, t.bytes()},
               {PackageBuffer::Arena, 0, 256, t.bytes()}};
  p.arenaBytes = 256 + (t.bytes() + 255) / 256 * 256;
  p.launches = {kernel("add", {0, 1, 3}, n / kBlock), kernel("add", {3, 1, 2}, n / kBlock)};
  for (auto &l : p.launches) {
    l.align = 16;
    l.unalignedKernel = "add_u";
  }
  return p;
}

Package gatherPackage(int64_t n) {
  Package p;
  p.name = "gather";
  p.target = "cpu";
  p.arch = kArch;
  p.inputs = {{"table", {DType::F32, {1000}}}, {"ids/0~", {DType::I64, {n}}}};
  p.outputs = {{"y", {DType::F32, {n}}}};
  p.buffers = {
      {PackageBuffer::Input, 0, 0, 4000}, {PackageBuffer::Input, 1, 0, n * 8}, {PackageBuffer::Output, 0, 0, n * 4}};
  p.launches = {kernel("gather", {0, 1, 2}, n / kBlock)};
  return p;
}

std::vector<float> ramp(int64_t n, float start) {
  std::vector<float> v(static_cast<size_t>(n));
  std::iota(v.begin(), v.end(), start);
  return v;
}

std::string slurp(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}

/// A shared object with the kernel `add`, made by the system's compiler, once.
const std::string &compiledObject() {
  static const std::string bytes = [] {
    std::string folder = ::testing::TempDir() + "ridgeline-cpu-XXXXXX";
    if (!::mkdtemp(folder.data()))
      return std::string();
    std::ofstream(folder + "/k.c") << "#include <stdint.h>\n"
                                      "int32_t add(void *const *args, int64_t first, int64_t end) {\n"
                                      "  const float *a = args[0], *b = args[1];\n"
                                      "  float *c = args[2];\n"
                                      "  for (int64_t i = first * 64; i < end * 64; ++i) c[i] = a[i] + b[i];\n"
                                      "  return 0;\n"
                                      "}\n";
    std::string out;
    if (std::system(("cc -shared -fPIC -O2 -o " + folder + "/k.so " + folder + "/k.c").c_str()) == 0)
      out = slurp(folder + "/k.so");
    fs::remove_all(folder);
    return out;
  }();
  return bytes;
}

std::unique_ptr<Module> mustMake(Package p, CpuResolver resolver = resolve) {
  auto m = makeModule(std::move(p), std::move(resolver));
  if (!m) {
    ADD_FAILURE() << m.error().str();
    return nullptr;
  }
  return *std::move(m);
}

} // namespace

// ---- the pool

TEST(ThreadPool, EveryIndexOnceForEveryCount) {
  ThreadPool pool(4);
  std::vector<std::atomic<int>> seen(1000);
  for (int64_t count : {0, 1, 2, 3, 4, 5, 15, 16, 17, 63, 64, 65, 999, 1000})
    for (int participants : {1, 2, 3, 4, 100}) {
      for (auto &s : seen)
        s = 0;
      int64_t code = pool.run(
          count, participants,
          [](void *context, int64_t first, int64_t end) -> int64_t {
            EXPECT_LT(first, end);
            for (int64_t i = first; i < end; ++i)
              ++(*static_cast<std::vector<std::atomic<int>> *>(context))[static_cast<size_t>(i)];
            return 0;
          },
          &seen);
      EXPECT_EQ(code, 0);
      for (int64_t i = 0; i < 1000; ++i)
        ASSERT_EQ(seen[static_cast<size_t>(i)], i < count) << count << " " << participants << " " << i;
    }
}

TEST(ThreadPool, CountsBeyond32Bits) {
  ThreadPool pool(3);
  std::atomic<int64_t> total{0};
  int64_t count = INT64_MAX;
  pool.run(
      count, 3,
      [](void *context, int64_t first, int64_t end) -> int64_t {
        *static_cast<std::atomic<int64_t> *>(context) += end - first;
        return 0;
      },
      &total);
  EXPECT_EQ(total, count);
}

TEST(ThreadPool, TheFirstFailureIsReported) {
  ThreadPool pool(4);
  for (int repeat = 0; repeat < 200; ++repeat) {
    int64_t code = pool.run(
        64, 4,
        [](void *, int64_t first, int64_t end) -> int64_t {
          for (int64_t i = first; i < end; ++i)
            if (i >= 20 && i % 10 == 0)
              return 1000 + i;
          return 0;
        },
        nullptr);
    ASSERT_EQ(code, 1020);
  }
}

TEST(ThreadPool, ManyCallersAtOnce) {
  ThreadPool pool(3);
  std::vector<std::thread> callers;
  std::atomic<int64_t> total{0};
  for (int t = 0; t < 6; ++t)
    callers.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        std::atomic<int64_t> own{0};
        pool.run(
            37, 3,
            [](void *context, int64_t first, int64_t end) -> int64_t {
              *static_cast<std::atomic<int64_t> *>(context) += end - first;
              return 0;
            },
            &own);
        total += own;
      }
    });
  for (auto &c : callers)
    c.join();
  EXPECT_EQ(total, 6 * 300 * 37);
}

TEST(ThreadPool, SeveralThreadsTakePart) {
  ThreadPool pool(3);
  struct {
    std::mutex mutex;
    std::set<std::thread::id> threads;
  } seen;
  // A range waits a little for company; whether it comes in one run is the system's choice, in many it is not.
  for (int i = 0; i < 50 && seen.threads.size() < 2; ++i)
    pool.run(
        12, 3,
        [](void *context, int64_t, int64_t) -> int64_t {
          auto *s = static_cast<decltype(&seen)>(context);
          {
            std::lock_guard lock(s->mutex);
            s->threads.insert(std::this_thread::get_id());
          }
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          return 0;
        },
        &seen);
  EXPECT_GE(seen.threads.size(), 2u);
}

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define RL_NO_FORK 1 // ThreadSanitizer ends a fork's child that starts threads
#endif
#endif
#ifndef RL_NO_FORK
TEST(ThreadPool, AForksChildHasItsOwn) {
  auto work = [] {
    std::atomic<int64_t> sum{0};
    ThreadPool::global().run(
        1000, 8,
        [](void *context, int64_t first, int64_t end) -> int64_t {
          *static_cast<std::atomic<int64_t> *>(context) += end - first;
          return 0;
        },
        &sum);
    return sum == 1000;
  };
  ASSERT_TRUE(work());
  pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(20); // a deadlock is a failure, not a hang
    ::_exit(work() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  EXPECT_TRUE(work());
}
#endif

#if defined(__x86_64__)
TEST(ThreadPool, SubnormalsAreKeptWhateverTheCallerSet) {
  unsigned saved = _mm_getcsr();
  _mm_setcsr(saved | 0x8040); // flush to zero, denormals are zero
  std::atomic<int> lost{0};
  for (int participants : {1, 3}) {
    ThreadPool pool(3);
    pool.run(
        64, participants,
        [](void *context, int64_t, int64_t) -> int64_t {
          volatile float tiny = FLT_MIN;
          volatile float half = 0.5f;
          if (tiny * half == 0.0f)
            ++*static_cast<std::atomic<int> *>(context);
          return 0;
        },
        &lost);
  }
  EXPECT_EQ(_mm_getcsr() & 0x8040, 0x8040u); // and the caller's own setting is as it was
  _mm_setcsr(saved);
  EXPECT_EQ(lost, 0);
}
#endif

// ---- this machine

TEST(CpuFeatures, Levels) {
#if defined(__x86_64__)
  EXPECT_TRUE(checkCpuArch("x86-64"));
  __builtin_cpu_init();
  bool v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  EXPECT_EQ(checkCpuArch("x86-64-v3").ok(), v3);
  EXPECT_EQ(checkCpuArch("x86-64-v2").ok(), static_cast<bool>(__builtin_cpu_supports("sse4.2")));
  EXPECT_EQ(checkCpuArch("x86-64-v4").ok(), __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"));
#endif
  for (const char *arch : {"", "x86-64-v1", "x86-64-v5", "x86-64-v33", "sm_90", "riscv64"}) {
    Status s = checkCpuArch(arch);
    ASSERT_FALSE(s) << arch;
    EXPECT_EQ(s.error().code, Code::Unsupported);
  }
  Package p = addTwice(64);
  p.arch = "x86-64-v9";
  auto m = makeModule(p, resolve);
  ASSERT_FALSE(m);
  EXPECT_EQ(m.error().code, Code::Unsupported);
}

// ---- modules

TEST(CpuModule, RunsThroughTheArena) {
  for (int64_t n : {int64_t(64), int64_t(640), int64_t(1) << 20}) {
    auto m = mustMake(addTwice(n));
    ASSERT_TRUE(m);
    EXPECT_EQ(m->kernelCount(), 2);
    auto x = ramp(n, 0), w = ramp(n, 5), y = ramp(n, 0);
    ASSERT_TRUE(m->bind("w", w.data(), w.size() * 4));
    std::fill(w.begin(), w.end(), -1.0f); // it was copied
    const void *in[] = {x.data()};
    void *out[] = {y.data()};
    unalignedRuns = 0;
    blocksRun = 0;
    for (int repeat = 0; repeat < 3; ++repeat) {
      std::fill(y.begin(), y.end(), -1.0f);
      Status s = m->run(in, out, nullptr);
      ASSERT_TRUE(s) << s.error().str();
      for (int64_t i = 0; i < n; ++i)
        ASSERT_EQ(y[static_cast<size_t>(i)], float(i) + 2 * float(i + 5)) << i;
    }
    EXPECT_EQ(blocksRun, 3 * 2 * (n / kBlock));
  }
}

TEST(CpuModule, ChoosesTheKernelByAlignment) {
  auto m = mustMake(addTwice(64));
  ASSERT_TRUE(m);
  auto w = ramp(64, 5);
  ASSERT_TRUE(m->bind("w", w.data(), 256));
  alignas(64) float x[80] = {}, y[80] = {};
  auto run = [&](int dx, int dy) {
    unalignedRuns = 0;
    const void *in[] = {x + dx};
    void *out[] = {y + dy};
    Status s = m->run(in, out, nullptr);
    EXPECT_TRUE(s) << s.error().str();
    for (int i = 0; i < 64; ++i)
      EXPECT_EQ(y[dy + i], 2 * float(i + 5));
    return unalignedRuns.load();
  };
  // Each launch is judged by its own pointers: the first reads x, the second writes y.
  EXPECT_EQ(run(0, 0), 0);
  EXPECT_EQ(run(1, 0), 1);
  EXPECT_EQ(run(0, 1), 1);
  EXPECT_EQ(run(3, 2), 2);
  EXPECT_EQ(run(4, 8), 0);

  Package strict = addTwice(64);
  for (auto &l : strict.launches)
    l.unalignedKernel.clear();
  m = mustMake(strict);
  ASSERT_TRUE(m && m->bind("w", w.data(), 256));
  const void *in[] = {x + 1};
  void *out[] = {y};
  Status s = m->run(in, out, nullptr);
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().code, Code::Usage);
}

TEST(CpuModule, WrongPointersAndMissingParameters) {
  auto m = mustMake(addTwice(64));
  ASSERT_TRUE(m);
  auto x = ramp(64, 0), y = x;
  const void *in[] = {x.data()};
  void *out[] = {y.data()};
  Status s = m->run(in, out, nullptr);
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().code, Code::Usage);
  EXPECT_NE(s.error().message.find("'w'"), std::string::npos);

  EXPECT_EQ(m->bind("nope", x.data(), 256).error().code, Code::Usage);
  EXPECT_EQ(m->bind("x", x.data(), 256).error().code, Code::Usage);
  EXPECT_EQ(m->bind("w", x.data(), 255).error().code, Code::Invalid);
  EXPECT_EQ(m->bind("w", x.data(), 0).error().code, Code::Invalid);
  EXPECT_EQ(m->bind("w", nullptr, 256).error().code, Code::Usage);
  ASSERT_TRUE(m->bind("w", x.data(), 256));
  ASSERT_TRUE(m->run(in, out, nullptr));

  const void *null[] = {nullptr};
  void *nullOut[] = {nullptr};
  EXPECT_EQ(m->run(null, out, nullptr).error().code, Code::Usage);
  EXPECT_EQ(m->run(in, nullOut, nullptr).error().code, Code::Usage);
  const void *odd[] = {reinterpret_cast<char *>(x.data()) + 2};
  EXPECT_EQ(m->run(odd, out, nullptr).error().code, Code::Usage);
}

TEST(CpuModule, AnIndexOutOfRangeIsInvalidAndNamesItsTensor) {
  for (int64_t n : {int64_t(64), int64_t(1) << 18}) {
    auto m = mustMake(gatherPackage(n));
    ASSERT_TRUE(m);
    auto table = ramp(1000, 0);
    std::vector<int64_t> ids(static_cast<size_t>(n), 999);
    std::vector<float> y(static_cast<size_t>(n));
    const void *in[] = {table.data(), ids.data()};
    void *out[] = {y.data()};
    ASSERT_TRUE(m->run(in, out, nullptr));
    EXPECT_EQ(y.back(), 999);
    for (int64_t bad : {int64_t(-1), int64_t(1000), INT64_MIN, INT64_MAX}) {
      ids[static_cast<size_t>(n) - 1] = bad;
      Status s = m->run(in, out, nullptr);
      ASSERT_FALSE(s);
      EXPECT_EQ(s.error().code, Code::Invalid);
      EXPECT_EQ(s.error().pointer, "/ids~10~0");
      EXPECT_NE(s.error().message.find("node gather"), std::string::npos) << s.error().message;
    }
    ids.back() = 0;
    EXPECT_TRUE(m->run(in, out, nullptr)); // and the module is usable afterwards
  }
}

TEST(CpuModule, ACodeThatNamesNoArgumentIsAFailure) {
  Package p = gatherPackage(64);
  p.launches[0].kernel = "strange";
  auto m = mustMake(p);
  ASSERT_TRUE(m);
  std::vector<int64_t> a(1000), b(64), c(64);
  const void *in[] = {a.data(), b.data()};
  void *out[] = {c.data()};
  Status s = m->run(in, out, nullptr);
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().code, Code::Device);
  EXPECT_NE(s.error().message.find("77"), std::string::npos);
}

TEST(CpuModule, CopiesAndEmptyTensors) {
  Package p;
  p.target = "cpu";
  p.arch = kArch;
  int64_t n = 300001;
  p.inputs = {{"x", {DType::U8, {n}}}, {"e", {DType::F32, {0, 7}}}};
  p.parameters = {{"pe", {DType::F32, {0}}}};
  p.outputs = {{"x", {DType::U8, {n}}}, {"e", {DType::F32, {0, 7}}}};
  p.buffers = {{PackageBuffer::Input, 0, 0, n},
               {PackageBuffer::Output, 0, 0, n},
               {PackageBuffer::Input, 1, 0, 0},
               {PackageBuffer::Output, 1, 0, 0}};
  PackageLaunch copy;
  copy.kind = PackageLaunch::Copy;
  copy.args = {1, 0};
  PackageLaunch empty = copy;
  empty.args = {3, 2};
  PackageLaunch nothing = kernel("no such kernel is needed", {2}, 0);
  nothing.kernel = "absent";
  p.launches = {copy, empty, nothing};
  auto m = mustMake(p, {}); // no kernel runs, so no code is needed
  ASSERT_TRUE(m);
  EXPECT_EQ(m->kernelCount(), 0);
  ASSERT_TRUE(m->bind("pe", nullptr, 0));
  std::vector<uint8_t> x(static_cast<size_t>(n) + 1), y(static_cast<size_t>(n) + 1, 9);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<uint8_t>(i * 7);
  const void *in[] = {x.data() + 1, nullptr};
  void *out[] = {y.data(), nullptr};
  Status s = m->run(in, out, nullptr);
  ASSERT_TRUE(s) << s.error().str();
  EXPECT_EQ(std::memcmp(y.data(), x.data() + 1, static_cast<size_t>(n)), 0);
  EXPECT_EQ(y.back(), 9);
  // The output may be the input itself.
  const void *same[] = {y.data(), nullptr};
  EXPECT_TRUE(m->run(same, out, nullptr));
}

TEST(CpuModule, AMissingKernelIsFoundWhenTheModuleIsMade) {
  Package p = addTwice(64);
  p.launches[1].kernel = "missing";
  EXPECT_FALSE(makeModule(p, resolve));
  p = addTwice(64);
  p.launches[1].unalignedKernel = "missing";
  EXPECT_FALSE(makeModule(p, resolve));
}

TEST(CpuModule, ModulesRunInParallel) {
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 6; ++t)
    threads.emplace_back([t, &wrong] {
      int64_t n = 64 * (1 + 1000 * (t % 3));
      auto m = makeModule(addTwice(n), resolve);
      auto x = ramp(n, float(t)), w = ramp(n, 1);
      std::vector<float> y(x.size());
      if (!m || !(*m)->bind("w", w.data(), w.size() * 4))
        return void(++wrong);
      const void *in[] = {x.data()};
      void *out[] = {y.data()};
      for (int i = 0; i < 50; ++i) {
        std::fill(y.begin(), y.end(), 0.0f);
        if (!(*m)->run(in, out, nullptr))
          ++wrong;
        for (int64_t j = 0; j < n; ++j)
          if (y[static_cast<size_t>(j)] != float(t + j) + 2 * float(j + 1))
            ++wrong;
      }
    });
  for (auto &t : threads)
    t.join();
  EXPECT_EQ(wrong, 0);
}

TEST(CpuModule, OneModuleFromSeveralThreads) {
  auto m = mustMake(addTwice(6400));
  ASSERT_TRUE(m);
  auto w = ramp(6400, 0);
  ASSERT_TRUE(m->bind("w", w.data(), w.size() * 4));
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      auto x = ramp(6400, float(t));
      std::vector<float> y(6400);
      const void *in[] = {x.data()};
      void *out[] = {y.data()};
      for (int i = 0; i < 50; ++i) {
        wrong += !m->run(in, out, nullptr);
        for (int j = 0; j < 6400; ++j)
          wrong += y[static_cast<size_t>(j)] != float(t + 3 * j);
      }
    });
  for (auto &t : threads)
    t.join();
  EXPECT_EQ(wrong, 0);
}

// ---- shared objects

TEST(CpuModule, RunsASharedObjectFromMemory) {
  ASSERT_FALSE(compiledObject().empty()) << "the system's C compiler (cc) is needed";
  // Several at once and one after another: the loader must never take one for another.
  std::vector<std::unique_ptr<Module>> modules;
  for (int i = 0; i < 8; ++i) {
    Package p = addTwice(128);
    for (auto &l : p.launches)
      l.unalignedKernel.clear();
    p.launches[0].align = p.launches[1].align = 1;
    p.sharedObject = compiledObject();
    auto m = mustMake(p, {});
    ASSERT_TRUE(m);
    auto w = ramp(128, float(i)), x = ramp(128, 0), y = x;
    ASSERT_TRUE(m->bind("w", w.data(), 512));
    const void *in[] = {x.data()};
    void *out[] = {y.data()};
    ASSERT_TRUE(m->run(in, out, nullptr));
    EXPECT_EQ(y[100], 100 + 2 * (100.0f + float(i)));
    if (i % 2)
      modules.push_back(std::move(m));
  }
}

TEST(CpuModule, DamagedSharedObjectsAreRefused) {
  const std::string &whole = compiledObject();
  ASSERT_FALSE(whole.empty());
  auto load = [](std::string bytes) {
    Package p = addTwice(64);
    for (auto &l : p.launches)
      l.unalignedKernel.clear();
    p.sharedObject = std::move(bytes);
    return makeModule(std::move(p));
  };
  EXPECT_TRUE(load(whole));
  for (size_t n : {size_t(0), size_t(1), size_t(63), size_t(64), size_t(100), whole.size() / 8, whole.size() / 4}) {
    auto m = load(whole.substr(0, n));
    ASSERT_FALSE(m) << n;
    EXPECT_EQ(m.error().code, Code::Invalid) << m.error().str();
  }
  EXPECT_FALSE(load("not an object at all, but longer than a header of ELF would be, to get past that check"));
  std::string relocatable = whole;
  relocatable[16] = 1; // ET_REL
  EXPECT_FALSE(load(relocatable));
  std::string other = whole;
  other[18] = 8; // EM_MIPS
  auto m = load(other);
  ASSERT_FALSE(m);
  EXPECT_EQ(m.error().code, Code::Unsupported);

  Package p = addTwice(64);
  p.sharedObject = whole; // which has no add_u
  m = makeModule(p);
  ASSERT_FALSE(m);
  EXPECT_NE(m.error().message.find("add_u"), std::string::npos);
}

// ---- the C interface

namespace {
std::string writtenPackage(const std::string &name) {
  Package p = addTwice(128);
  for (auto &l : p.launches) {
    l.unalignedKernel.clear();
    l.align = 1;
  }
  p.sharedObject = compiledObject();
  std::string path = ::testing::TempDir() + "ridgeline-capi-" + std::to_string(::getpid()) + "-" + name;
  fs::remove_all(path);
  Status s = writePackage(p, path);
  EXPECT_TRUE(s) << s.error().str();
  return path;
}
} // namespace

TEST(CApi, LoadBindRun) {
  std::string path = writtenPackage("run");
  rl_module *m = nullptr;
  ASSERT_EQ(rl_load(path.c_str(), &m), RL_OK) << rl_last_error();
  fs::remove_all(path); // a loaded module needs its directory no more
  EXPECT_EQ(rl_count(m, RL_INPUTS), 1);
  EXPECT_EQ(rl_count(m, RL_PARAMETERS), 1);
  EXPECT_EQ(rl_count(m, RL_OUTPUTS), 1);
  EXPECT_EQ(rl_kernel_count(m), 2);
  const char *name = nullptr, *dtype = nullptr;
  int rank = -1;
  const int64_t *extents = nullptr;
  ASSERT_EQ(rl_tensor(m, RL_PARAMETERS, 0, &name, &dtype, &rank, &extents), RL_OK);
  EXPECT_STREQ(name, "w");
  EXPECT_STREQ(dtype, "f32");
  ASSERT_EQ(rank, 1);
  EXPECT_EQ(extents[0], 128);
  EXPECT_EQ(rl_tensor(m, RL_INPUTS, 0, nullptr, nullptr, nullptr, nullptr), RL_OK);
  auto x = ramp(128, 0), w = ramp(128, 1), y = x;
  const void *in[] = {x.data()};
  void *out[] = {y.data()};
  EXPECT_EQ(rl_run(m, in, out, nullptr), RL_USAGE);
  EXPECT_NE(std::string(rl_last_error()).find("'w' is not bound"), std::string::npos) << rl_last_error();
  ASSERT_EQ(rl_bind(m, "w", w.data(), 512), RL_OK);
  ASSERT_EQ(rl_run(m, in, out, nullptr), RL_OK) << rl_last_error();
  EXPECT_EQ(y[127], 127 + 2 * 128);
  rl_unload(m);
}

TEST(CApi, WrongArgumentsAreErrorsNeverCrashes) {
  std::string path = writtenPackage("args");
  rl_module *m = nullptr;
  ASSERT_EQ(rl_load(path.c_str(), &m), RL_OK) << rl_last_error();
  fs::remove_all(path);

  EXPECT_EQ(rl_load(nullptr, nullptr), RL_USAGE);
  EXPECT_EQ(rl_load("x", nullptr), RL_USAGE);
  auto *junk = reinterpret_cast<rl_module *>(uintptr_t(8));
  rl_module *out = junk;
  EXPECT_EQ(rl_load(nullptr, &out), RL_USAGE);
  EXPECT_EQ(out, nullptr);
  out = junk;
  EXPECT_EQ(rl_load("/nonexistent/package", &out), RL_INVALID);
  EXPECT_EQ(out, nullptr);
  EXPECT_NE(std::string(rl_last_error()).find("/nonexistent/package/manifest.json"), std::string::npos)
      << rl_last_error();
  EXPECT_EQ(rl_load("", &out), RL_INVALID);
  rl_unload(nullptr);

  EXPECT_EQ(rl_count(nullptr, 0), -1);
  EXPECT_EQ(rl_kernel_count(nullptr), -1);
  for (int kind : {-1, 3, INT_MAX, INT_MIN}) {
    EXPECT_EQ(rl_count(m, kind), -1);
    EXPECT_EQ(rl_tensor(m, kind, 0, nullptr, nullptr, nullptr, nullptr), RL_USAGE);
  }
  for (int index : {-1, 1, INT_MAX, INT_MIN})
    EXPECT_EQ(rl_tensor(m, 0, index, nullptr, nullptr, nullptr, nullptr), RL_USAGE);
  EXPECT_EQ(rl_tensor(nullptr, 0, 0, nullptr, nullptr, nullptr, nullptr), RL_USAGE);

  float w[128] = {};
  EXPECT_EQ(rl_bind(nullptr, "w", w, 512), RL_USAGE);
  EXPECT_EQ(rl_bind(m, nullptr, w, 512), RL_USAGE);
  EXPECT_EQ(rl_bind(m, "w", nullptr, 512), RL_USAGE);
  EXPECT_EQ(rl_bind(m, "v", w, 512), RL_USAGE);
  EXPECT_EQ(rl_bind(m, "w", w, 511), RL_INVALID);
  EXPECT_EQ(rl_bind(m, "w", w, SIZE_MAX), RL_INVALID);
  ASSERT_EQ(rl_bind(m, "w", w, 512), RL_OK);

  const void *in[] = {w};
  void *outs[] = {w};
  EXPECT_EQ(rl_run(nullptr, in, outs, nullptr), RL_USAGE);
  EXPECT_EQ(rl_run(m, nullptr, outs, nullptr), RL_USAGE);
  EXPECT_EQ(rl_run(m, in, nullptr, nullptr), RL_USAGE);
  const void *null[] = {nullptr};
  EXPECT_EQ(rl_run(m, null, outs, nullptr), RL_USAGE);
  EXPECT_NE(std::string(rl_last_error()).find("'x'"), std::string::npos);
  rl_unload(m);
}

TEST(CApi, ErrorsBelongToTheirThread) {
  rl_count(nullptr, 0);
  std::string mine = rl_last_error();
  EXPECT_FALSE(mine.empty());
  std::string other = "unset";
  std::thread([&] {
    other = rl_last_error(); // of a thread without a failure: empty, not null
    rl_load(nullptr, nullptr);
  }).join();
  EXPECT_EQ(other, "");
  EXPECT_EQ(mine, rl_last_error());
  EXPECT_STREQ(rl_version(), RIDGELINE_VERSION);
}

TEST(CApi, RankZeroAndEveryType) {
  Package p;
  p.target = "cpu";
  p.arch = kArch;
  for (int i = 0; i < kDTypeCount; ++i)
    p.inputs.push_back({"t" + std::to_string(i), {static_cast<DType>(i), {}}});
  p.outputs = {{"t0", {DType::F32, {}}}};
  p.buffers = {{PackageBuffer::Input, 0, 0, 4}, {PackageBuffer::Output, 0, 0, 4}};
  PackageLaunch copy;
  copy.kind = PackageLaunch::Copy;
  copy.args = {1, 0};
  p.launches = {copy};
  rl_module *m = wrapModule(mustMake(p, {}));
  for (int i = 0; i < kDTypeCount; ++i) {
    const char *dtype = nullptr;
    int rank = -1;
    const int64_t *extents = nullptr;
    ASSERT_EQ(rl_tensor(m, 0, i, nullptr, &dtype, &rank, &extents), RL_OK);
    EXPECT_STREQ(dtype, dtypeName(static_cast<DType>(i)));
    EXPECT_EQ(rank, 0);
    EXPECT_NE(extents, nullptr);
  }
  EXPECT_EQ(rl_count(m, RL_PARAMETERS), 0);
  rl_unload(m);
}

TEST(CApi, NothingThrownGetsOut) {
  class Thrower final : public Module {
    std::vector<PackageTensor> none;
    const std::vector<PackageTensor> &tensors(int) const override { return none; }
    Status bind(std::string_view, const void *, size_t) override { throw std::bad_alloc(); }
    Status read(std::string_view, void *, size_t) override { throw 43; }
    Status run(const void *const *, void *const *, void *) override { throw 42; }
    int kernelCount() const override { throw std::runtime_error("no"); }
  };
  rl_module *m = wrapModule(std::make_unique<Thrower>());
  EXPECT_EQ(rl_bind(m, "w", "", 0), RL_DEVICE);
  EXPECT_STREQ(rl_last_error(), "out of memory");
  EXPECT_EQ(rl_run(m, nullptr, nullptr, nullptr), RL_DEVICE);
  EXPECT_STRNE(rl_last_error(), "out of memory");
  EXPECT_EQ(rl_kernel_count(m), -1);
  rl_unload(m);
}
