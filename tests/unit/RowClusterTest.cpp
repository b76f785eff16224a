// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which rows are divided between the blocks of a cluster: those that one block cannot hold, and few long ones. Which rows are
// copied to shared memory together with their neighbours: those that no vectors divide.
#include "passes/plan/RowPlanner.h"
#include "tests/unit/TraceHarness.h"

#include <algorithm>
#include <tuple>

namespace {

/// x - max(x), then over the sum of its squares.
PlannedGroup planned(int64_t rows, int64_t width, DType type, const char *target = "h200") {
  GraphBuilder g("rows");
  auto x = g.input("x", type, {rows, width});
  auto d = x - g.amax(x, {.dims = {1}, .keepdim = true});
  g.output(d / g.sum(d * d, {.dims = {1}, .keepdim = true}), "y");
  Graph graph = graphOf(g);
  Result<Plan> plan = planKernels(graph, *cost::findTarget(target));
  if (!plan) {
    ADD_FAILURE() << plan.error().str();
    return {};
  }
  EXPECT_EQ(plan->groups.size(), 1u);
  return plan->groups[0];
}

bool says(const PlannedGroup &g, const std::string &text) {
  return std::any_of(g.why.begin(), g.why.end(),
                     [&](const std::string &w) { return w.find(text) != std::string::npos; });
}

void checkHeld(const PlannedGroup &g) {
  EXPECT_TRUE(g.resident);
  EXPECT_EQ(g.rowsPerBlock, 1);
  EXPECT_GE(g.threads, 64);
  EXPECT_EQ(g.threads & (g.threads - 1), 0);
  EXPECT_GE(g.cluster * g.threads * g.unroll * g.lanes, g.width);
  EXPECT_EQ(g.work.clusterSize, g.cluster);
  EXPECT_DOUBLE_EQ(g.work.blocks, static_cast<double>(g.rows * g.cluster));
  EXPECT_DOUBLE_EQ(g.work.l2Bytes, 0);
  EXPECT_TRUE(says(g, "a cluster of " + std::to_string(g.cluster) + " blocks shares a row"));
  EXPECT_TRUE(says(g, "with one block a row"));
}

TEST(RowCluster, RowsOverABlocksRegisters) {
  PlannedGroup g = planned(4096, 131072, DType::F32);
  EXPECT_EQ(g.cluster, 8);
  EXPECT_EQ(g.threads, 256);
  checkHeld(g);
  // What one block would read again comes from memory: the rows under way together are more than the cache holds.
  EXPECT_DOUBLE_EQ(g.work.bytesRead, 4096. * 131072 * 4);
  PlannedGroup other = planned(4096, 131072, DType::F32, "a100");
  EXPECT_EQ(other.cluster, 1);
  EXPECT_FALSE(other.resident);
  EXPECT_DOUBLE_EQ(other.work.bytesRead, 3 * 4096. * 131072 * 4);
}

TEST(RowCluster, FewRowsTakeMoreMultiprocessors) {
  PlannedGroup g = planned(1, 131072, DType::BF16);
  EXPECT_EQ(g.cluster, 8);
  EXPECT_EQ(g.unroll, 4);
  checkHeld(g);
  g = planned(16, 131072, DType::F32);
  EXPECT_EQ(g.cluster, 8) << "16 rows by 8 are 128 of 132";
  checkHeld(g);
}

TEST(RowCluster, OneBlockHoldsTheRowWell) {
  for (auto [rows, width] :
       {std::pair<int64_t, int64_t>{16384, 4096}, {8192, 50304}, {16, 4096}, {16, 8192}, {132, 32768}}) {
    PlannedGroup g = planned(rows, width, DType::BF16);
    EXPECT_EQ(g.cluster, 1) << rows << "x" << width;
    EXPECT_TRUE(g.resident);
    EXPECT_FALSE(says(g, "cluster"));
  }
}

TEST(RowCluster, LongerThanEightBlocksHold) {
  EXPECT_EQ(planned(256, 524288, DType::F32).cluster, 16);
  PlannedGroup g = planned(256, int64_t{1} << 22, DType::F32);
  EXPECT_EQ(g.cluster, 1);
  EXPECT_FALSE(g.resident);
}

TEST(RowCluster, WidthsThatVectorsDoNotDivide) {
  for (auto [width, type] :
       {std::pair<int64_t, DType>{40007, DType::F32}, {98312, DType::BF16}, {100003, DType::F32}}) {
    PlannedGroup g = planned(64, width, type);
    EXPECT_GT(g.cluster, 1) << width;
    checkHeld(g);
  }
}

TEST(RowTile, WidthsThatNoVectorsDivide) {
  for (auto [rows, width, type] : {std::tuple<int64_t, int64_t, DType>{524288, 77, DType::BF16},
                                   {524288, 77, DType::F32},
                                   {65536, 1023, DType::BF16},
                                   {16384, 4097, DType::BF16},
                                   {16384, 4098, DType::F16},
                                   {65536, 3, DType::F32}}) {
    PlannedGroup g = planned(rows, width, type);
    EXPECT_TRUE(g.staged) << width;
    EXPECT_TRUE(g.resident);
    EXPECT_GE(g.threads * g.unroll * g.lanes, width);
    EXPECT_GE(g.threads * g.rowsPerBlock, 128) << "each byte that two blocks share has a thread";
    EXPECT_TRUE(g.threads < 32 ? 32 % g.threads == 0 : g.threads % 32 == 0);
    // What was copied and what will be: two blocks fit on an SM at least.
    EXPECT_GE(g.work.sharedBytes, 2. * static_cast<double>(g.rowsPerBlock * width) * dtypeSize(type));
    EXPECT_LE(2 * g.work.sharedBytes, cost::findTarget("h200")->sharedPerSm);
    EXPECT_TRUE(says(g, "copied to shared memory as one range")) << width;
    EXPECT_FALSE(planned(rows, width, type, "a100").staged);
  }
}

TEST(RowTile, VectorsAreRead) {
  EXPECT_FALSE(planned(16384, 4096, DType::BF16).staged);
  EXPECT_FALSE(planned(16384, 4100, DType::BF16).staged) << "8 bytes at a time are enough under way";
  EXPECT_FALSE(planned(16384, 1026, DType::F32).staged);
  EXPECT_FALSE(planned(64, 1001, DType::BF16).staged) << "not a block for each SM";
  EXPECT_FALSE(planned(8192, 50001, DType::BF16).staged) << "not two blocks an SM";
}

// Small siblings share a kernel for its launch; very many would have more arguments than a kernel, and compile in their square.
TEST(SmallRows, AreFewToAKernel) {
  for (int siblings : {1, 8, 9, 255}) {
    GraphBuilder g("siblings");
    for (int i = 0; i < siblings; ++i)
      g.output(g.sum(g.input("x" + std::to_string(i), DType::F32, {5, 33}), {.dims = {0}}), "y" + std::to_string(i));
    Result<Plan> plan = planKernels(graphOf(g), *cost::findTarget("h200"));
    ASSERT_TRUE(plan) << plan.error().str();
    EXPECT_EQ(plan->groups.size(), static_cast<size_t>((siblings + 7) / 8));
    for (const PlannedGroup &group : plan->groups)
      EXPECT_LE(group.outputs.size(), 8u);
  }
}

} // namespace
