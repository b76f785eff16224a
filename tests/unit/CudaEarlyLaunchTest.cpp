// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Programmatic dependent launch against a driver that a test can ask: which launches are made so, as kernels one by one, in a graph
// of our own and in a caller's capture; and what is not, behind what, and with which drivers.
#include "tests/gpu/fake/CudaRuntimeFixture.h"

using namespace rl;
using namespace rl::fake;

namespace {

class CudaEarlyLaunch : public CudaRuntime {
protected:
  static Package earlyChain(int launches) {
    Package p = chain(launches);
    for (PackageLaunch &l : p.launches)
      l.early = true;
    return p;
  }
  /// Of the last run's kernels, which were launched early.
  std::vector<bool> early() const {
    std::vector<bool> out;
    for (const fake::Launch &l : control().launches)
      out.push_back(l.early);
    return out;
  }
};

TEST_F(CudaEarlyLaunch, AllKernelsOfARunButTheFirst) {
  for (int launches : {1, 2, 5}) {
    control().reset();
    auto m = mustMake(earlyChain(launches));
    ASSERT_TRUE(m && m->bind("w", w, kBytes));
    for (int again = 0; again < 2; ++again) {
      control().launches.clear();
      Status s = run(*m, 0, 0, stream(0x10));
      ASSERT_TRUE(s) << why(s);
      expectResult(launches);
      std::vector<bool> want(static_cast<size_t>(launches), true);
      want[0] = false; // what the caller's work before it writes, it may read before it waits
      EXPECT_EQ(early(), want);
    }
    EXPECT_EQ(count("cuGraphAddDependencies_v2"), launches >= 3 ? launches - 1 : 0);
    EXPECT_EQ(count("cuGraphLaunch"), launches >= 3 ? 2 : 0);
    EXPECT_EQ(count("cuLaunchKernelEx"), launches == 2 ? 2 : 0);
  }
}

TEST_F(CudaEarlyLaunch, InACallersCapture) {
  auto m = mustMake(earlyChain(4));
  ASSERT_TRUE(m && m->bind("w", w, kBytes) && run(*m));
  control().launches.clear();
  control().capturing = 1;
  Status s = run(*m, 0, 0, stream(0x20));
  control().capturing = 0;
  ASSERT_TRUE(s) << why(s);
  EXPECT_EQ(early(), (std::vector<bool>{false, true, true, true}));
  EXPECT_EQ(count("cuLaunchKernelEx"), 3);
}

TEST_F(CudaEarlyLaunch, TheUnalignedKernelAndAClusterAreToo) {
  Package p = earlyChain(2);
  p.launches[1].kernel = "add_cluster";
  p.launches[1].cluster = {2, 1, 1};
  auto m = mustMake(p);
  ASSERT_TRUE(m && m->bind("w", w, kBytes) && run(*m));
  EXPECT_EQ(early(), (std::vector<bool>{false, true}));
  EXPECT_EQ(control().launches.back().cluster[0], 2u);
  control().launches.clear();
  ASSERT_TRUE(run(*m, 0, 1));
  EXPECT_EQ(control().launches.back().kernel, "add_u");
  EXPECT_EQ(early(), (std::vector<bool>{false, true}));
  expectResult(2, 0, 1);
}

// A copy is no kernel that says when it may be followed.
TEST_F(CudaEarlyLaunch, NotBehindACopy) {
  Package p = earlyChain(3);
  PackageLaunch copy;
  copy.kind = PackageLaunch::Copy;
  copy.args = {3, 4};
  p.launches.insert(p.launches.begin() + 2, copy);
  p.launches[3].args = {3, 1, 2};
  auto m = mustMake(p);
  ASSERT_TRUE(m && m->bind("w", w, kBytes));
  Status s = run(*m);
  ASSERT_TRUE(s) << why(s);
  EXPECT_EQ(early(), (std::vector<bool>{false, true, false}));
  expectResult(3);
}

// A launch that does nothing is left out, and the next is behind what is before it.
TEST_F(CudaEarlyLaunch, BehindALaunchThatDoesNothing) {
  Package p = earlyChain(3);
  p.launches[0].grid.x = 0;
  p.launches[1].args = {0, 1, 4};
  auto m = mustMake(p);
  ASSERT_TRUE(m && m->bind("w", w, kBytes));
  Status s = run(*m);
  ASSERT_TRUE(s) << why(s);
  EXPECT_EQ(early(), (std::vector<bool>{false, true}));
}

TEST_F(CudaEarlyLaunch, WhatBindingLaunchesIsNot) {
  Package p = earlyChain(1);
  p.buffers.push_back({PackageBuffer::Derived, 0, 0, kBytes});
  p.buffers.push_back({PackageBuffer::Derived, 0, 1024, kBytes});
  p.derivedBytes = 2048;
  for (uint32_t from : {1u, 3u}) {
    p.bindLaunches.push_back(add({from, 1, from == 1 ? 3u : 4u}));
    p.bindLaunches.back().early = true;
  }
  auto m = mustMake(p);
  ASSERT_TRUE(m && m->bind("w", w, kBytes));
  EXPECT_EQ(early(), (std::vector<bool>{false, false}));
}

} // namespace
