// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A test of the CUDA runtime against the driver of FakeCuda.cpp.
#pragma once

#include "ridgeline.h"
#include "runtime/CApi.h"
#include "runtime/Module.h"
#include "runtime/cuda/Cuda.h"
#include "tests/gpu/fake/FakePackages.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>
#include <thread>
#include <unistd.h>

namespace rl::fake {

inline std::unique_ptr<Module> mustMake(Package p) {
  auto m = makeModule(std::move(p));
  if (!m) {
    ADD_FAILURE() << m.error().str();
    return nullptr;
  }
  return *std::move(m);
}

inline std::string why(const Status &s) { return s ? "" : s.error().str(); }

class CudaRuntime : public ::testing::Test {
protected:
  static void SetUpTestSuite() { fakeCuda = fakeDriver(); }
  void SetUp() override {
    fakeCuda.setCurrent(nullptr);
    control().reset();
    std::iota(x, x + kN + 8, 0.0f);
    std::fill(w, w + kN, 2.0f);
    std::fill(y, y + kN + 8, -1.0f);
  }
  void TearDown() override {
    EXPECT_EQ(fakeCuda.depth(), 0) << "a context was left current";
    control().reset();
    EXPECT_EQ(control().memory.size(), 0u) << "device memory was left behind";
    EXPECT_EQ(control().liveModules, 0);
    EXPECT_EQ(control().liveGraphs, 0);
    EXPECT_EQ(control().liveEvents, 0);
    EXPECT_EQ(control().liveStreams, 0);
  }
  static fake::Control &control() { return *fakeCuda.control; }
  static int count(const char *name) { return control().count(name); }
  static void *stream(uintptr_t n) { return reinterpret_cast<void *>(n); }

  Status run(Module &m, int dx = 0, int dy = 0, void *s = nullptr) {
    const void *in[] = {x + dx};
    void *out[] = {y + dy};
    return m.run(in, out, s);
  }
  void expectResult(int launches, int dx = 0, int dy = 0) {
    for (int i = 0; i < kN; ++i)
      ASSERT_EQ(y[dy + i], x[dx + i] + 2.0f * static_cast<float>(launches)) << i;
  }

  static fake::Exports fakeCuda;
  // The fake's device memory is host memory, so these serve as the caller's device pointers.
  alignas(256) float x[kN + 8], w[kN], y[kN + 8];
};
inline fake::Exports CudaRuntime::fakeCuda;

} // namespace rl::fake
