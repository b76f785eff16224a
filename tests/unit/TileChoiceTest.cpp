// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tiles of products that are not the model's first: candidates, keys, and choices that the planner honours, records or refuses.
#include "passes/plan/RowPlanner.h"
#include "tests/unit/TraceHarness.h"

#include <algorithm>
#include <set>

namespace {

struct Layer {
  int64_t m = 512, n = 4096, k = 4096;
  DType type = DType::BF16;
  const char *name = "a";
  bool tanh = true, strict = false, transposed = false;
  double factor = 1;
};

/// gelu(a b * factor) in 16 bits.
Graph layer(const Layer &l) {
  GraphBuilder g("layer");
  if (l.strict)
    g.strict();
  auto a = g.input(l.name, l.type, {1, l.m, l.k});
  auto b = g.input("b", l.type, l.transposed ? std::vector<int64_t>{1, l.n, l.k} : std::vector<int64_t>{1, l.k, l.n});
  auto y = g.matmul(a, b, {.transposeB = l.transposed, .outDtype = DType::F32}) * l.factor;
  g.output(g.cast(g.gelu(y, {.approximate = l.tanh ? "tanh" : "none"}), l.type), "y");
  return graphOf(g);
}

PlannedGroup planned(const Graph &graph, const char *target = "h200", const TileChoices &choices = {}) {
  Result<Plan> plan = planKernels(graph, *cost::findTarget(target), choices);
  if (!plan) {
    ADD_FAILURE() << plan.error().str();
    return {};
  }
  EXPECT_EQ(plan->groups.size(), 1u);
  return plan->groups[0];
}

std::string why(const PlannedGroup &g) {
  std::string out;
  for (const std::string &w : g.why)
    out += w + "\n";
  return out;
}

TEST(TileChoice, CandidatesAreRanked) {
  for (const char *target : {"h200", "a100"})
    for (int64_t m : {1, 4, 64, 512, 4096}) {
      SCOPED_TRACE(std::string(target) + " " + std::to_string(m));
      PlannedGroup g = planned(layer({.m = m, .transposed = m < 64}), target);
      ASSERT_FALSE(g.tiles.empty());
      EXPECT_EQ(g.tiles[0].schedule, *g.gemm);
      EXPECT_EQ(g.tiles[0].seconds, g.time.total);
      EXPECT_EQ(g.tile, 0u);
      EXPECT_LE(g.tiles.size(), kMostCandidates);
      for (size_t i = 1; i < g.tiles.size(); ++i) {
        EXPECT_LE(g.tiles[i].seconds, 1.15 * g.time.total);
        EXPECT_TRUE(i == 1 || g.tiles[i - 1].seconds <= g.tiles[i].seconds);
        for (size_t j = 0; j < i; ++j)
          EXPECT_NE(g.tiles[j].str(), g.tiles[i].str()) << "tiles are told apart by their texts";
      }
    }
  EXPECT_GT(planned(layer({})).tiles.size(), 3u);
  EXPECT_TRUE(planned(layer({}), "cpu").tiles.empty());
  EXPECT_TRUE(planned(layer({}), "cpu").key.empty());
}

TEST(TileChoice, EveryCandidateIsTakenAsAskedFor) {
  std::set<std::string> kernels;
  for (auto [target, m] : {std::pair("h200", 384), {"h200", 16}, {"h200", 2}, {"a100", 384}}) {
    Graph graph = layer({.m = m, .n = 3000, .transposed = m < 64});
    PlannedGroup first = planned(graph, target);
    ASSERT_GT(first.tiles.size(), 1u);
    for (const TileCandidate &c : first.tiles)
      kernels.insert(c.schedule.kernel);
    for (size_t i = 0; i < first.tiles.size(); ++i) {
      SCOPED_TRACE(std::string(target) + ", " + first.tiles[i].str());
      PlannedGroup g = planned(graph, target, {{first.key, {i, {}}}});
      EXPECT_EQ(*g.gemm, first.tiles[i].schedule);
      EXPECT_EQ(g.tile, i);
      EXPECT_NEAR(g.time.total, first.tiles[i].seconds, 1e-12);
      EXPECT_EQ(g.threads, g.gemm->threads);
      EXPECT_EQ(g.key, first.key);
      EXPECT_EQ(g.inputs, first.inputs);
      EXPECT_EQ(g.outputs, first.outputs);
      EXPECT_EQ(g.nodes, first.nodes);
      ASSERT_EQ(g.tiles.size(), first.tiles.size());
      for (size_t j = 0; j < g.tiles.size(); ++j)
        EXPECT_EQ(g.tiles[j].schedule, first.tiles[j].schedule);
      // The kernel for pointers that are not aligned is the model's, whatever the tile.
      EXPECT_EQ(g.fallback.has_value(), g.gemm->kernel == "wgmma" || g.gemm->streams());
      if (g.fallback && first.fallback) {
        EXPECT_EQ(*g.fallback, *first.fallback);
      }
      EXPECT_NE(why(g).find("tile " + first.tiles[i].str() + " as asked for"), std::string::npos) << why(g);
    }
  }
  EXPECT_EQ(kernels, (std::set<std::string>{"mma", "stream", "thin", "wgmma"}));
}

TEST(TileChoice, WhatWasMeasuredIsTold) {
  Graph graph = layer({});
  PlannedGroup first = planned(graph);
  ASSERT_GE(first.tiles.size(), 3u);
  EXPECT_EQ(why(first).find("measurement"), std::string::npos);
  auto tile = [&](size_t i) { return first.tiles[i].str(); };
  PlannedGroup g = planned(graph, "h200", {{first.key, {1, {44.04, 41.2, 0}}}});
  EXPECT_EQ(*g.gemm, first.tiles[1].schedule);
  EXPECT_EQ(g.measured, (std::vector<double>{44.04, 41.2, 0}));
  EXPECT_NE(why(g).find("chosen by measurement: " + tile(1) + " took 41.2 us; the model's first, " + tile(0) +
                        ", took 44.0; " + tile(2) + " could not be timed\n"),
            std::string::npos)
      << why(g);
  g = planned(graph, "h200", {{first.key, {0, {41, 42}}}});
  EXPECT_EQ(*g.gemm, *first.gemm);
  EXPECT_NE(why(g).find("chosen by measurement: " + tile(0) + " took 41.0 us; the model's first it is; " + tile(1) +
                        " took 42.0\n"),
            std::string::npos)
      << why(g);
}

TEST(TileChoice, BeyondTheListIsRefused) {
  Graph graph = layer({});
  PlannedGroup first = planned(graph);
  size_t n = first.tiles.size();
  for (const TileChoice &c : {TileChoice{n, {}}, TileChoice{0, std::vector<double>(n + 1, 1.0)}, TileChoice{1, {5}}}) {
    Result<Plan> plan = planKernels(graph, *cost::findTarget("h200"), {{first.key, c}});
    ASSERT_FALSE(plan.ok());
    EXPECT_EQ(plan.error().code, Code::Usage);
    EXPECT_NE(plan.error().message.find(first.key), std::string::npos) << plan.error().message;
  }
  // Of another kernel: nothing is said here, as a graph may be planned in parts.
  EXPECT_EQ(*planned(graph, "h200", {{"other", {99, {}}}}).gemm, *first.gemm);
}

TEST(TileChoice, KeysAreOfBodiesAndNotOfNames) {
  auto key = [](const Layer &l) { return planned(layer(l)).key; };
  const std::string own = key({});
  EXPECT_TRUE(own.starts_with("512x4096x4096-")) << own;
  EXPECT_EQ(own, key({}));
  EXPECT_EQ(own, key({.name = "other"}));
  std::vector<std::string> keys{own,
                                key({.m = 511}),
                                key({.type = DType::F16}),
                                key({.tanh = false}),
                                key({.strict = true}),
                                key({.factor = 2}),
                                key({.factor = 0.5})};
  std::sort(keys.begin(), keys.end());
  EXPECT_EQ(std::unique(keys.begin(), keys.end()), keys.end());
}

} // namespace
