// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tensor maps, persistent grids and the unaligned kernel's own shape, against a driver that a test can ask and command.
#include "tests/gpu/fake/CudaRuntimeFixture.h"

using namespace rl;
using namespace rl::fake;

TEST_F(CudaRuntime, TensorMapsAreEncodedWhereAPointerChanged) {
  auto m = mustMake(chainWithMaps(1));
  ASSERT_TRUE(m && m->bind("w", w, kBytes));
  auto address = [](const float *p) { return static_cast<unsigned long long>(reinterpret_cast<uintptr_t>(p)); };
  struct {
    int dx, dy, maps;
  } runs[] = {{0, 0, 2}, {0, 0, 0}, {4, 0, 1}, {4, 4, 1}, {1, 4, 0}, {4, 4, 0}, {0, 0, 2}};
  for (auto &c : runs) {
    control().maps.clear();
    control().launches.clear();
    Status s = run(*m, c.dx, c.dy);
    ASSERT_TRUE(s) << why(s);
    EXPECT_EQ(control().maps.size(), static_cast<size_t>(c.maps)) << c.dx << " " << c.dy;
    ASSERT_EQ(control().launches.size(), 1u);
    const fake::Launch &l = control().launches[0];
    if (c.dx == 1) { // which a tensor map cannot describe
      EXPECT_EQ(l.kernel, "add_u");
      EXPECT_EQ(l.grid[0], 4u);
    } else {
      EXPECT_EQ(l.kernel, "add_maps");
      ASSERT_EQ(l.args.size(), 5u);
      EXPECT_EQ(l.args[3], address(x + c.dx) + 16);
      EXPECT_EQ(l.args[4], address(y + c.dy));
    }
    expectResult(1, c.dx, c.dy);
  }
  const fake::EncodedMap &map = control().maps[0];
  EXPECT_EQ(map.type, cu::kMapF32);
  EXPECT_EQ(map.extents, (std::vector<uint64_t>{28, 8}));
  EXPECT_EQ(map.strides, (std::vector<uint64_t>{128}));
  EXPECT_EQ(map.box, (std::vector<uint32_t>{32, 4}));
  EXPECT_EQ(map.swizzle, 3);     // CU_TENSOR_MAP_SWIZZLE_128B
  EXPECT_EQ(map.l2Promotion, 3); // CU_TENSOR_MAP_L2_PROMOTION_L2_256B
  EXPECT_EQ(control().maps[1].type, cu::kMapBF16);
  EXPECT_EQ(control().maps[1].swizzle, 0);
  EXPECT_EQ(control().maps[1].l2Promotion, 0);
}

TEST_F(CudaRuntime, TensorMapsInAGraph) {
  auto m = mustMake(chainWithMaps(4));
  ASSERT_TRUE(m && m->bind("w", w, kBytes) && run(*m));
  EXPECT_EQ(control().maps.size(), 8u);
  expectResult(4);
  ASSERT_TRUE(run(*m));
  EXPECT_EQ(control().maps.size(), 8u);
  ASSERT_TRUE(run(*m, 4));
  EXPECT_EQ(control().maps.size(), 9u);
  expectResult(4, 4);
  ASSERT_EQ(control().launches.size(), 12u);
  for (const fake::Launch &l : control().launches) {
    EXPECT_TRUE(l.graph);
    EXPECT_EQ(l.args[3], l.args[0] + 16);
    EXPECT_EQ(l.args[4], l.args[2]);
  }
}

TEST_F(CudaRuntime, ATensorMapThatTheDriverRefuses) {
  auto m = mustMake(chainWithMaps(1));
  ASSERT_TRUE(m && m->bind("w", w, kBytes));
  control().failures["cuTensorMapEncodeTiled"] = {1, cu::kInvalidValue};
  Status s = run(*m);
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().code, Code::Device);
  EXPECT_NE(s.error().message.find("tensor map 1"), std::string::npos) << why(s);
  EXPECT_NE(s.error().message.find("add_maps"), std::string::npos) << why(s);
  control().failures.clear();
  ASSERT_TRUE(run(*m)); // nothing of the failure stays
  expectResult(1);
}

TEST_F(CudaRuntime, APersistentGridIsWhatTheDeviceHolds) {
  struct {
    uint32_t work, cluster;
    int perSm;
    unsigned blocks;
  } cases[] = {{1000, 1, 1, 132}, {1000, 1, 2, 264}, {100, 1, 2, 100},
               {1000, 8, 1, 128}, {4, 4, 1, 4},      {132, 2, 1, 132}};
  for (auto &c : cases) {
    control().reset();
    control().blocksPerSm = c.perSm;
    Package p = chain(1);
    p.launches[0].kernel = "fill"; // does nothing in the fake
    p.ptx += ".visible .entry fill(.param .u64 a, .param .u64 b, .param .u64 c) {}\n";
    p.launches[0].unalignedKernel.clear();
    p.launches[0].grid.x = c.work;
    p.launches[0].cluster.x = c.cluster;
    p.launches[0].persistent = true;
    auto m = mustMake(p);
    ASSERT_TRUE(m && m->bind("w", w, kBytes) && run(*m));
    ASSERT_EQ(control().launches.size(), 1u);
    EXPECT_EQ(control().launches[0].grid[0], c.blocks) << c.work << " " << c.cluster << " " << c.perSm;
    EXPECT_EQ(control().launches[0].cluster[0], c.cluster);
  }
  control().blocksPerSm = 0;
  Package p = chain(1);
  p.launches[0].persistent = true;
  auto m = mustMake(p);
  Status s = m->bind("w", w, kBytes);
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().code, Code::Unsupported);
}

TEST_F(CudaRuntime, TheOtherKernelHasAShapeOfItsOwn) {
  for (int launches : {1, 3}) {
    control().reset();
    Package p = chain(launches);
    for (auto &l : p.launches) {
      l.kernel = "add_cluster";
      l.cluster = {2, 1, 1};
      l.sharedBytes = 100000;
      l.unalignedSharedBytes = 60000;
    }
    auto m = mustMake(p);
    ASSERT_TRUE(m && m->bind("w", w, kBytes));
    for (int dx : {0, 1, 0}) {
      control().launches.clear();
      Status s = run(*m, dx);
      ASSERT_TRUE(s) << why(s);
      expectResult(launches, dx);
      const fake::Launch &l = control().launches[0]; // the others' pointers are the arena's
      EXPECT_EQ(l.kernel, dx ? "add_u" : "add_cluster");
      EXPECT_EQ(l.cluster[0], dx ? 1u : 2u);
      EXPECT_EQ(l.shared, dx ? 60000u : 100000u);
    }
  }
}

TEST_F(CudaRuntime, TextThatLinkingWouldSlowDownIsAssembledWhenItIsLoaded) {
  fakeCuda.setCurrent(fakeCuda.makeContext());
  EXPECT_TRUE(assemblePtx(kPtx));
  for (const char *text :
       {"// setmaxnreg.inc.sync.aligned.u32 240;\n", "// barrier.cluster.arrive.relaxed.aligned;\n"}) {
    auto refused = assemblePtx(std::string(kPtx) + text);
    ASSERT_FALSE(refused) << text;
    EXPECT_EQ(refused.error().code, Code::Unsupported);
  }
  fakeCuda.setCurrent(nullptr);
}
