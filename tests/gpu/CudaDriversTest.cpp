// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The CUDA runtime with drivers that are missing, old or without a device. The driver is opened once a process, so each
// test runs in one of its own. Needs no GPU.
#include "runtime/Module.h"
#include "runtime/cuda/Cuda.h"
#include "tests/gpu/fake/FakePackages.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <numeric>

using namespace rl;
using namespace rl::fake;

namespace {

class CudaDrivers : public ::testing::Test {
protected:
  void SetUp() override { ::testing::FLAGS_gtest_death_test_style = "threadsafe"; }
};

} // namespace

#define CHECK_OR_EXIT(condition)                                                                                       \
  if (!(condition)) {                                                                                                  \
    std::fprintf(stderr, "failed: %s\n", #condition);                                                                  \
    std::_Exit(1);                                                                                                     \
  }

TEST_F(CudaDrivers, NoDriver) {
  auto body = [] {
    ::setenv("RIDGELINE_LIBCUDA", "/nonexistent/libcuda.so.1", 1);
    CHECK_OR_EXIT(!cudaAvailable());
    auto m = makeModule(chain(1));
    CHECK_OR_EXIT(m.ok()); // it can be looked at, and saved
    CHECK_OR_EXIT((*m)->kernelCount() == 1);
    float w[kN] = {};
    Status s = (*m)->bind("w", w, kBytes);
    CHECK_OR_EXIT(!s && s.error().code == Code::Device);
    CHECK_OR_EXIT(s.error().message.find("/nonexistent/libcuda.so.1") != std::string::npos);
    CHECK_OR_EXIT(!currentCudaDevice() && !assemblePtx(kPtx) && !CudaMemory::allocate(1) && !CudaStream::create());
    CHECK_OR_EXIT(CudaMemory::allocate(0).ok());
    std::_Exit(0);
  };
  EXPECT_EXIT(body(), ::testing::ExitedWithCode(0), "");
}

TEST_F(CudaDrivers, ALibraryThatIsNoDriver) {
  auto body = [] {
    ::setenv("RIDGELINE_LIBCUDA", "libm.so.6", 1);
    auto d = currentCudaDevice();
    CHECK_OR_EXIT(!d && d.error().message.find("cuInit") != std::string::npos);
    std::_Exit(0);
  };
  EXPECT_EXIT(body(), ::testing::ExitedWithCode(0), "");
}

TEST_F(CudaDrivers, NoDevice) {
  auto body = [] {
    fake::Exports driver = fakeDriver();
    driver.control->failures["cuInit"] = {0, 100};
    CHECK_OR_EXIT(!cudaAvailable());
    auto d = currentCudaDevice();
    CHECK_OR_EXIT(!d && d.error().code == Code::Device);
    CHECK_OR_EXIT(d.error().message.find("CUDA_ERROR_NO_DEVICE") != std::string::npos);
    std::_Exit(0);
  };
  EXPECT_EXIT(body(), ::testing::ExitedWithCode(0), "");
}

TEST_F(CudaDrivers, AnOldDriver) {
  auto body = [] {
    fake::Exports driver = fakeDriver("librl_fake_cuda_old");
    float x[kN], w[kN], y[kN];
    std::iota(x, x + kN, 0.0f);
    std::fill(w, w + kN, 2.0f);
    Package four = chain(4);
    for (PackageLaunch &l : four.launches)
      l.early = true; // and are launched one behind the other all the same
    auto m = makeModule(four);
    CHECK_OR_EXIT(m.ok() && (*m)->bind("w", w, kBytes));
    const void *in[] = {x};
    void *out[] = {y};
    CHECK_OR_EXIT((*m)->run(in, out, nullptr));
    CHECK_OR_EXIT(y[5] == 13.0f && driver.control->count("cuLaunchKernel") == 4);
    // Without tensor maps runs the kernel that takes none; where there is no such kernel, that is said.
    auto maps = makeModule(chainWithMaps(1));
    CHECK_OR_EXIT(maps.ok() && (*maps)->bind("w", w, kBytes) && (*maps)->run(in, out, nullptr));
    CHECK_OR_EXIT(driver.control->launches.back().kernel == "add_u" && y[5] == 7.0f);
    Package bare = chainWithMaps(1);
    bare.launches[0].unalignedKernel.clear();
    auto mapsAlone = makeModule(bare);
    CHECK_OR_EXIT(mapsAlone.ok());
    Status refused = (*mapsAlone)->bind("w", w, kBytes);
    CHECK_OR_EXIT(!refused && refused.error().code == Code::Unsupported);
    // No clusters, no copies between contexts: refused by name.
    Package p = chain(1);
    p.launches[0].cluster = {2, 1, 1};
    auto cluster = makeModule(p);
    CHECK_OR_EXIT(cluster.ok());
    Status s = (*cluster)->bind("w", w, kBytes);
    CHECK_OR_EXIT(!s && s.error().code == Code::Unsupported);
    driver.setCurrent(driver.makeContext());
    s = (*m)->run(in, out, nullptr);
    CHECK_OR_EXIT(!s && s.error().code == Code::Unsupported);
    CHECK_OR_EXIT((*m)->bind("w", w, kBytes) && (*m)->run(in, out, nullptr));
    std::_Exit(0);
  };
  EXPECT_EXIT(body(), ::testing::ExitedWithCode(0), "");
}
