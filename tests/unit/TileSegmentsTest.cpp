// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Segments of a product's rows that its kernel reduces: what passes it makes, which plans have it, and what is parted with which
// reason.
#include "passes/plan/TileSegments.h"
#include "passes/plan/RowPlanner.h"
#include "tests/unit/TraceHarness.h"

#include <algorithm>

namespace {

struct Layer {
  int64_t m = 4096, n = 4096, k = 4096;
  int64_t segment = 128;
  int levels = 1;      ///< reductions that wait for one another
  int64_t another = 0; ///< length of other segments, reduced as well
  DType type = DType::BF16;
  bool scalesAlone = false, silu = true;
};

/// What is quantised by its largest magnitude: codes and scales.
Graph layer(const Layer &l) {
  GraphBuilder g("layer");
  auto a = g.input("a", l.type, {1, l.m, l.k}), b = g.input("b", l.type, {1, l.n, l.k});
  auto y = g.cast(g.matmul(a, b, {.transposeB = true, .outDtype = DType::F32}), DType::BF16);
  y = l.silu ? g.silu(y) : y;
  auto amaxOf = [&](TensorHandle x, int64_t segment) {
    auto split = g.reshape(x, {l.m, l.n / segment, segment});
    return std::pair(split, g.amax(g.abs(split), {.dims = {2}, .keepdim = true}));
  };
  auto [x, amax] = amaxOf(y, l.segment);
  for (int more = 1; more < l.levels; ++more)
    amax = g.amax(g.abs(x - amax), {.dims = {2}, .keepdim = true});
  auto scale = g.cast(amax, DType::F32) / 448.0;
  if (!l.scalesAlone)
    g.output(g.reshape(g.cast(g.cast(x, DType::F32) / scale, DType::F8E4M3), {l.m, l.n}), "q");
  g.output(g.reshape(scale, {l.m, l.n / l.segment}), "s");
  if (l.another)
    g.output(g.reshape(amaxOf(y, l.another).second, {l.m, l.n / l.another}), "t");
  return graphOf(g);
}

Plan planned(const Graph &graph, const char *target = "h200") {
  Result<Plan> plan = planKernels(graph, *cost::findTarget(target), {});
  if (!plan) {
    ADD_FAILURE() << plan.error().str();
    return {};
  }
  return *std::move(plan);
}

std::string why(const Plan &plan) {
  std::string out;
  for (const PlannedGroup &g : plan.groups)
    for (const std::string &w : g.why)
      out += w + "\n";
  return out;
}

bool says(const Plan &plan, const std::string &text) { return why(plan).find(text) != std::string::npos; }

Trace epilogueOf(const Graph &graph, const Layer &l, int64_t lanes) {
  TraceRequest request = requestOf(graph, lanes);
  request.products = true;
  request.width = l.n;
  request.rows = l.m;
  Result<Trace> t = tracePointwise(request);
  if (!t) {
    ADD_FAILURE() << t.error().str();
    return {};
  }
  return *std::move(t);
}

} // namespace

TEST(TileSegments, PassesOfATrace) {
  Layer l;
  l.levels = 2;
  Graph graph = layer(l);
  Trace t = epilogueOf(graph, l, 2);
  EXPECT_EQ(t.levels, 2u);
  TileSegments s = tileSegments(graph, t);
  EXPECT_EQ(s.columns, 128);
  EXPECT_EQ(s.refusal, "");
  for (uint32_t level : {1u, 2u}) {
    std::vector<uint32_t> r = reductionsOf(t, level), pass = segmentPass(graph, t, level);
    ASSERT_EQ(r.size(), 1u);
    EXPECT_EQ(t.instances[r[0]].segment, 128);
    EXPECT_EQ(t.instances[r[0]].level, level);
    // Everything from the product on, but no reduction.
    EXPECT_TRUE(std::any_of(pass.begin(), pass.end(), [&](uint32_t i) {
      return t.instances[i].node != kNone && isProduct(graph.nodes[t.instances[i].node]);
    }));
    EXPECT_TRUE(std::none_of(pass.begin(), pass.end(), [&](uint32_t i) { return isSegmentReduction(t.instances[i]); }));
  }
  // What a segment has once needs its reductions and nothing of the elements.
  for (uint32_t i : segmentPass(graph, t, 0))
    EXPECT_TRUE(t.instances[i].node == kNone || !isProduct(graph.nodes[t.instances[i].node]));
  ASSERT_EQ(t.stores.size(), 2u);
  EXPECT_FALSE(storesSegments(graph, t, t.stores[0]));
  EXPECT_TRUE(storesSegments(graph, t, t.stores[1]));
}

// What the first pass leaves is all that the next ones need of the product, and the last that is in common.
TEST(TileSegments, WhatTheFirstPassLeaves) {
  for (int levels : {1, 2}) {
    Layer l;
    l.levels = levels;
    Graph graph = layer(l);
    Trace t = epilogueOf(graph, l, 2);
    const uint32_t kept = keptValue(graph, t);
    ASSERT_NE(kept, kNone);
    std::vector<uint32_t> first = segmentPass(graph, t, 1);
    EXPECT_NE(std::find(first.begin(), first.end(), kept), first.end());
    for (uint32_t level = 2; level <= t.levels + 1; ++level) {
      std::vector<uint32_t> pass = segmentPass(graph, t, level, kept);
      EXPECT_LT(pass.size(), segmentPass(graph, t, level).size());
      for (uint32_t i : pass) {
        EXPECT_NE(i, kept);
        const Instance &in = t.instances[i];
        EXPECT_TRUE(in.node == kNone || (!isProduct(graph.nodes[in.node]) && graph.nodes[in.node].op != OpKind::Silu));
      }
    }
  }
}

TEST(TileSegments, KeepsWhereStagesRemain) {
  Plan plan = planned(layer({}));
  ASSERT_EQ(plan.groups.size(), 1u) << why(plan);
  const cost::GemmTile &tile = plan.groups[0].gemm->wgmma;
  EXPECT_TRUE(tile.alternate && tile.keeps) << tile.str();
  EXPECT_GE(tile.stages, 4);
  EXPECT_TRUE(says(plan, ", keeping values")) << why(plan);
  // Warpgroups that multiply together had rather have more stages.
  cost::GemmShape shape;
  shape.m = shape.n = shape.k = 4096;
  shape.outputs = {DType::F8E4M3};
  shape.segment = 128;
  shape.mayKeep = true;
  const cost::TargetDesc machine = *cost::findTarget("h200");
  for (bool alternate : {true, false}) {
    cost::GemmTile t;
    t.blocks = alternate ? 2 : 1;
    t.alternate = alternate;
    ASSERT_TRUE(cost::completeGemmTile(shape, t, machine));
    EXPECT_EQ(t.keeps, alternate);
    EXPECT_EQ(cost::gemmShared(shape, t).kept, alternate ? 8 * 128 * 16 * 4 : 0);
  }
}

// The silu is computed once more, and what follows the reduction is not part of the pass.
TEST(TileSegments, OpsOfPasses) {
  Layer l;
  Graph graph = layer(l);
  Trace t = epilogueOf(graph, l, 2);
  cost::WorkEstimate first = passOps(graph, t, 1), last = passOps(graph, t, 2);
  EXPECT_GT(first.specialOps, 0);
  EXPECT_EQ(first.specialOps, passOps(graph, t, 1).specialOps);
  EXPECT_GT(first.ops, 0);
  EXPECT_GT(last.ops, 0);
}

TEST(TileSegments, OneKernelOnAllMachines) {
  for (const char *target : {"h200", "a100", "rtx4090", "cpu"})
    for (int64_t segment : {32, 64, 128}) {
      SCOPED_TRACE(std::string(target) + " " + std::to_string(segment));
      // What is dear to compute twice, a CPU writes.
      Graph graph = layer({.segment = segment, .silu = std::string(target) != "cpu"});
      Plan plan = planned(graph, target);
      ASSERT_EQ(plan.groups.size(), 1u) << why(plan);
      const PlannedGroup &g = plan.groups[0];
      EXPECT_EQ(g.kind, "gemm");
      EXPECT_EQ(g.gemm->kernel, std::string(target) == "h200"  ? "wgmma"
                                : std::string(target) == "cpu" ? "blocked"
                                                               : "mma");
      EXPECT_EQ(g.gemm->tileN % segment, 0);
      if (g.fallback) {
        EXPECT_EQ(g.fallback->tileN % segment, 0);
      }
      EXPECT_EQ(g.work.bytesWritten, 4096.0 * 4096 + 4096.0 * 4096 / static_cast<double>(segment) * 4);
      EXPECT_TRUE(says(plan, "segments of " + std::to_string(segment) + " are reduced within tiles")) << why(plan);
    }
}

TEST(TileSegments, ScalesAloneAndUnalignedRows) {
  Plan plan = planned(layer({.scalesAlone = true}));
  ASSERT_EQ(plan.groups.size(), 1u) << why(plan);
  EXPECT_EQ(plan.groups[0].gemm->kernel, "wgmma");
  plan = planned(layer({.m = 4099, .n = 11008}));
  ASSERT_EQ(plan.groups.size(), 1u) << why(plan);
  EXPECT_EQ(plan.groups[0].gemm->kernel, "wgmma");
}

TEST(TileSegments, WhatIsParted) {
  struct {
    Layer layer;
    const char *why;
  } cases[] = {
      {{.n = 4608, .segment = 96}, "apart from the product: segments of 96 are no power of two from 16 to 128"},
      {{.segment = 8}, "apart from the product: segments of 8 are no power of two from 16 to 128"},
      {{.levels = 3}, "apart from the product: 3 reductions of segments wait for one another, and it takes 2"},
      {{.another = 32}, "apart from the product: it would reduce segments of 32 and of 128"},
      // Longer than a tile: as any other reduction.
      {{.segment = 256}, "which no tile of the product"},
      {{.segment = 4096}, "stored: "},
  };
  for (const auto &c : cases) {
    Plan plan = planned(layer(c.layer));
    EXPECT_GE(plan.groups.size(), 2u) << c.why;
    EXPECT_EQ(plan.groups[0].kind, "gemm");
    EXPECT_TRUE(says(plan, c.why)) << c.why << "\nis not in\n" << why(plan);
    EXPECT_FALSE(says(plan, "are reduced within tiles"));
  }
}

// Of few rows, tiles as wide as a segment leave most SMs idle: the record has both times.
TEST(TileSegments, TwoKernelsWhereTheyAreQuicker) {
  Plan plan = planned(layer({.m = 64}));
  ASSERT_EQ(plan.groups.size(), 2u) << why(plan);
  EXPECT_EQ(plan.groups[0].gemm->kernel, "wgmma");
  EXPECT_EQ(plan.groups[1].kind, "row");
  EXPECT_TRUE(says(plan, "apart from the product: reducing segments of 128 in the product's tiles takes "))
      << why(plan);
  EXPECT_TRUE(says(plan, " us with tiles of ")) << why(plan);
  EXPECT_TRUE(says(plan, "and reading it again ")) << why(plan);
}

TEST(TileSegments, PlansAreDeterministic) {
  Graph graph = layer({});
  EXPECT_EQ(why(planned(graph)), why(planned(graph)));
}
