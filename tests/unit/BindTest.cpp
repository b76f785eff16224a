// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a package makes of parameters when they are bound, on the CPU (CudaRuntimeTest has it for CUDA).
#include "runtime/Module.h"

#include <gtest/gtest.h>

#include <atomic>
#include <numeric>

using namespace rl;

namespace {

#if defined(__x86_64__)
constexpr const char *kArch = "x86-64";
#else
constexpr const char *kArch = "aarch64";
#endif

constexpr int64_t kBlock = 64;
std::atomic<int64_t> blocksRun{0};

int32_t addKernel(void *const *args, int64_t first, int64_t end) {
  auto *a = static_cast<const float *>(args[0]), *b = static_cast<const float *>(args[1]);
  auto *c = static_cast<float *>(args[2]);
  for (int64_t i = first * kBlock; i < end * kBlock; ++i)
    c[i] = a[i] + b[i];
  blocksRun += end - first;
  return 0;
}

Result<CpuKernel> resolve(const std::string &) { return &addKernel; }

PackageLaunch add(std::vector<uint32_t> args, int64_t n) {
  PackageLaunch l;
  l.kernel = "add";
  l.args = std::move(args);
  l.blocks = n / kBlock;
  return l;
}

TEST(Binding, MakesWhatIsDerivedWhenParametersAreBound) {
  // d = (w + w) + w by way of the arena, and e = v + v; y = x + d + e.
  constexpr int64_t n = 128;
  Package p;
  p.name = "derived";
  p.target = "cpu";
  p.arch = kArch;
  const TensorType t{DType::F32, {n}};
  p.inputs = {{"x", t}};
  p.parameters = {{"w", t}, {"v", t}};
  p.outputs = {{"y", t}};
  p.buffers = {{PackageBuffer::Input, 0, 0, t.bytes()},     {PackageBuffer::Parameter, 0, 0, t.bytes()},
               {PackageBuffer::Output, 0, 0, t.bytes()},    {PackageBuffer::Arena, 0, 0, t.bytes()},
               {PackageBuffer::Parameter, 1, 0, t.bytes()}, {PackageBuffer::Derived, 0, 0, t.bytes()},
               {PackageBuffer::Derived, 0, 512, t.bytes()}};
  p.arenaBytes = 512;
  p.derivedBytes = 1024;
  p.bindLaunches = {add({1, 1, 3}, n), add({4, 4, 6}, n), add({3, 1, 5}, n)};
  p.launches = {add({0, 5, 3}, n), add({3, 6, 2}, n)};
  std::vector<BindStep> steps = bindSteps(p);
  ASSERT_EQ(steps.size(), 2u);
  EXPECT_EQ(steps[0].launches, (std::vector<size_t>{0, 2}));
  EXPECT_EQ(steps[0].parameters, std::vector<uint32_t>{0});
  EXPECT_EQ(steps[1].parameters, std::vector<uint32_t>{1});

  auto made = makeModule(p, resolve);
  ASSERT_TRUE(made) << made.error().str();
  Module *m = made->get();
  EXPECT_EQ(m->kernelCount(), 2) << "of a run";
  std::vector<float> x(n), w(n), v(n), y(n);
  std::iota(x.begin(), x.end(), 0.0f);
  std::iota(w.begin(), w.end(), 5.0f);
  std::iota(v.begin(), v.end(), 9.0f);
  const void *in[] = {x.data()};
  void *out[] = {y.data()};
  auto expect = [&](float perW, float perV) {
    for (size_t i = 0; i < n; ++i)
      ASSERT_EQ(y[i], x[i] + 3 * (w[i] * perW) + 2 * (v[i] * perV)) << i;
  };
  blocksRun = 0;
  ASSERT_TRUE(m->bind("v", v.data(), n * 4));
  EXPECT_EQ(blocksRun, n / kBlock) << "what v alone leads to";
  EXPECT_FALSE(m->run(in, out, nullptr)) << "w is not bound";
  ASSERT_TRUE(m->bind("w", w.data(), n * 4));
  blocksRun = 0;
  ASSERT_TRUE(m->run(in, out, nullptr));
  EXPECT_EQ(blocksRun, 2 * n / kBlock) << "a run makes nothing of parameters";
  expect(1, 1);
  auto twice = w;
  for (float &f : twice)
    f *= 2;
  blocksRun = 0;
  ASSERT_TRUE(m->bind("w", twice.data(), n * 4));
  EXPECT_EQ(blocksRun, 2 * n / kBlock) << "v's is left alone";
  ASSERT_TRUE(m->run(in, out, nullptr));
  expect(2, 1);
}

} // namespace
