// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the planner asks of a trace: what dominates what, how many registers are live, how much work it is.
#include "passes/plan/Measure.h"
#include "passes/plan/Dominance.h"
#include "tests/unit/TraceHarness.h"

#include <functional>
#include <random>
#include <set>

namespace {

/// What dominance means: without `i`, `j` reaches no store.
bool dominatesByDefinition(const Trace &t, uint32_t i, uint32_t j) {
  std::vector<bool> reach(t.instances.size(), false);
  std::function<void(uint32_t)> walk = [&](uint32_t k) {
    if (k == kNone || k == i || reach[k])
      return;
    reach[k] = true;
    for (uint32_t o : t.instances[k].operands)
      walk(o);
    for (const Instance::Piece &p : t.instances[k].pieces)
      walk(p.instance);
  };
  for (const TraceStore &s : t.stores)
    walk(s.instance);
  return !reach[j];
}

TEST(Dominance, AgreesWithItsDefinition) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    GraphBuilder g("dag");
    std::vector<TensorHandle> pool{g.input("x", DType::F32, {64}), g.input("y", DType::F32, {64})};
    size_t n = 4 + random() % 20;
    for (size_t i = 0; i < n; ++i) {
      auto pick = [&] { return pool[pool.size() - 1 - random() % std::min<size_t>(pool.size(), 5)]; };
      pool.push_back(g.add(pick(), pick()));
    }
    g.output(pool.back(), "last");
    if (seed % 2)
      g.output(pool[pool.size() - 2], "other");
    Graph graph = graphOf(g);
    Trace t = traceOf(graph, 1);
    Dominance d(t);
    for (uint32_t j = 0; j < t.instances.size(); ++j) {
      std::set<uint32_t> up;
      for (uint32_t k = d.above(j); k != d.root(); k = d.above(k))
        up.insert(k);
      for (uint32_t i = 0; i < t.instances.size(); ++i)
        if (i != j)
          EXPECT_EQ(up.contains(i), dominatesByDefinition(t, i, j)) << "seed " << seed << ": " << i << " over " << j;
      EXPECT_EQ(d.meet(j, j), j);
      EXPECT_EQ(d.meet(j, d.above(j)), d.above(j));
    }
    std::vector<int> ones(t.instances.size() + 1, 1);
    d.accumulate(ones);
    EXPECT_EQ(ones[d.root()], static_cast<int>(t.instances.size()) + 1);
    if (HasFailure())
      return;
  }
}

TEST(Pressure, CountsWhatIsAlive) {
  // Sum of n values that are all there before the first is used last.
  GraphBuilder g("wide");
  auto x = g.input("x", DType::F32, {4096});
  std::vector<TensorHandle> v;
  for (int i = 0; i < 20; ++i)
    v.push_back(g.name(g.mul(x, 1.0 + i), "v" + std::to_string(i)));
  auto sum = v[0];
  for (int i = 1; i < 20; ++i)
    sum = g.add(sum, v[static_cast<size_t>(i)]);
  for (int i = 0; i < 20; ++i)
    sum = g.mul(sum, v[static_cast<size_t>(i)]);
  g.output(sum, "y");
  Graph graph = graphOf(g);
  Trace one = traceOf(graph, 1);
  Pressure p = measurePressure(graph, one);
  EXPECT_NEAR(static_cast<double>(p.registers), 22, 1);
  ASSERT_GE(p.live.size(), 19u);
  // v19 is used last. It may itself be what comes to be where most are live.
  EXPECT_TRUE(graph.values[p.live[0].first].name == "v18" || graph.values[p.live[0].first].name == "v19");
  Trace four = traceOf(graph, 4);
  EXPECT_EQ(measurePressure(graph, four).registers, 4 * p.registers);
}

TEST(Pressure, LayoutsTakeNoRegisterAndOneBranchIsThereAtATime) {
  GraphBuilder g("views");
  auto x = g.input("x", DType::F32, {64, 64});
  auto e = g.exp(x);
  for (int i = 0; i < 30; ++i)
    e = g.reshape(e, i % 2 ? Shape{64, 64} : Shape{4096});
  g.output(g.neg(e), "y");
  Graph graph = graphOf(g);
  Trace t = traceOf(graph, 1);
  EXPECT_EQ(measurePressure(graph, t).registers, 2);

  GraphBuilder h("cat");
  std::vector<Arg> parts;
  for (int i = 0; i < 50; ++i)
    parts.push_back(h.exp(h.input("x" + std::to_string(i), DType::F32, {8, 64})));
  h.output(h.neg(h.cat(parts, 0)), "y");
  Graph cat = graphOf(h);
  Trace u = traceOf(cat, 1);
  EXPECT_LE(measurePressure(cat, u).registers, 3);
}

TEST(Pressure, IsQuickOnLongTraces) {
  // 50000 values live at the peak: a search that is quadratic in them does not end.
  GraphBuilder g("long");
  auto x = g.input("x", DType::F32, {64});
  std::vector<TensorHandle> v;
  auto sum = x;
  for (int i = 0; i < 50000; ++i) {
    v.push_back(g.neg(i ? v.back() : x));
    sum = g.add(sum, v.back());
  }
  for (size_t i = 0; i < v.size(); ++i)
    sum = g.mul(sum, v[i]);
  g.output(sum, "y");
  Graph graph = graphOf(g);
  Trace t = traceOf(graph, 1);
  EXPECT_GT(measurePressure(graph, t).registers, 49000);
}

TEST(Work, CountsTensorsOnceAndSharesOfBranches) {
  GraphBuilder g("work");
  auto x = g.input("x", DType::BF16, {64, 128}), row = g.input("row", DType::F32, {64, 1}),
       unused = g.input("unused", DType::F32, {64, 128});
  auto half = g.slice(unused, {.dim = 0, .start = 0, .end = 32});
  g.output(g.mul(g.add(x, g.flip(x, {1})), row), "y");
  g.output(g.reshape(g.cat({half, half}, 1), {64, 128}), "z");
  Graph graph = graphOf(g);
  Trace t = traceOf(graph, 4);
  cost::WorkEstimate w = measureWork(graph, t, 128);
  EXPECT_EQ(w.bytesRead, 64 * 128 * 2 + 64 * 4 + 32 * 128 * 4 * 2);
  EXPECT_EQ(w.bytesWritten, 64 * 128 * 4 * 2);
  EXPECT_EQ(w.blocks, 64 * 128 / 4 / 128);

  // Fifty pieces, one of which is evaluated for each element: not fifty times the work.
  auto flops = [](int pieces) {
    GraphBuilder h("cat");
    std::vector<Arg> parts;
    for (int i = 0; i < pieces; ++i)
      parts.push_back(h.tanh(h.input("x" + std::to_string(i), DType::F32, {static_cast<int64_t>(1200 / pieces), 64})));
    h.output(h.cat(parts, 0), "y");
    Graph graph = graphOf(h);
    Trace t = traceOf(graph, 4);
    return measureWork(graph, t, 128).flops();
  };
  EXPECT_NEAR(flops(50), flops(2), 1);
  EXPECT_GT(flops(2), 1200 * 64 * 10);
}

} // namespace
