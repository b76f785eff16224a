// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The planner: which kernels a graph becomes, in which order, and the reasons that it gives. Every plan is checked for
// what makes any plan sound.
#include "passes/plan/Planner.h"
#include "passes/plan/Cuts.h"
#include "tests/unit/TraceHarness.h"

#include <random>
#include <set>

namespace {

cost::TargetDesc machine(const char *name) { return *cost::findTarget(name); }

/// Every output is stored once, what a kernel loads has been stored by one before it, the arguments fit a launch, and the
/// kernel can be traced as it was planned.
void checkSound(const Graph &graph, const Plan &plan, const cost::TargetDesc &target) {
  std::set<ValueId> there;
  for (ValueId v = 0; v < graph.values.size(); ++v)
    if (graph.values[v].kind != Value::Result)
      there.insert(v);
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    SCOPED_TRACE("group " + std::to_string(i));
    const PlannedGroup &g = plan.groups[i];
    ASSERT_FALSE(g.outputs.empty());
    EXPECT_LE(g.inputs.size() + g.outputs.size(), maxKernelArguments(target));
    EXPECT_EQ(std::set<ValueId>(g.inputs.begin(), g.inputs.end()).size(), g.inputs.size());
    for (ValueId v : g.inputs)
      EXPECT_TRUE(there.contains(v)) << graph.values[v].name << " is loaded before it is stored";
    std::set<NodeId> nodes(g.nodes.begin(), g.nodes.end());
    EXPECT_EQ(nodes.size(), g.nodes.size());
    EXPECT_TRUE(std::is_sorted(g.nodes.begin(), g.nodes.end()));
    for (ValueId v : g.outputs) {
      EXPECT_EQ(graph.type(v).elements(), g.elements);
      EXPECT_TRUE(nodes.contains(graph.values[v].node));
      EXPECT_TRUE(there.insert(v).second) << graph.values[v].name << " is stored twice";
    }
    EXPECT_GE(g.lanes, 1);
    EXPECT_EQ(g.lanes & (g.lanes - 1), 0) << "lanes are a power of two";
    EXPECT_FALSE(g.why.empty());
    TraceRequest request;
    request.graph = &graph;
    request.outputs = g.outputs;
    request.boundary.assign(graph.values.size(), false);
    for (ValueId v : g.inputs)
      request.boundary[v] = true;
    request.lanes = g.lanes;
    request.splitCat = g.splitCat;
    Result<Trace> trace = tracePointwise(request);
    ASSERT_TRUE(trace.ok()) << trace.error().str();
    for (const Instance &in : trace->instances)
      EXPECT_TRUE(in.node == kNone ? std::count(g.inputs.begin(), g.inputs.end(), in.value) == 1
                                   : nodes.contains(in.node))
          << graph.values[in.value].name;
  }
  for (ValueId v : graph.outputs)
    EXPECT_TRUE(there.contains(v)) << graph.values[v].name << " is never stored";
}

Plan planOf(const Graph &graph, const char *target = "h200") {
  Result<Plan> plan = planPointwise(graph, machine(target));
  if (!plan) {
    ADD_FAILURE() << plan.error().str();
    return {};
  }
  checkSound(graph, *plan, machine(target));
  return *std::move(plan);
}

std::vector<std::string> names(const Graph &graph, const std::vector<ValueId> &values) {
  std::vector<std::string> out;
  for (ValueId v : values)
    out.push_back(graph.values[v].name);
  return out;
}
using Names = std::vector<std::string>;

/// The whole of a group's reasons.
std::string why(const PlannedGroup &g) {
  std::string out;
  for (const std::string &w : g.why)
    out += w + "\n";
  return out;
}

#define EXPECT_WHY(group, text) EXPECT_NE(why(group).find(text), std::string::npos) << why(group)

//===--------------------------------------------------------------------------------------------------------------===//
// Groups
//===--------------------------------------------------------------------------------------------------------------===//

TEST(Planner, AChainIsOneKernel) {
  GraphBuilder g("swiglu");
  auto gate = g.input("gate", DType::BF16, {512, 1024}), up = g.input("up", DType::BF16, {512, 1024});
  g.output(g.mul(g.silu(gate), up), "y");
  Graph graph = graphOf(g);
  Plan plan = planOf(graph);
  ASSERT_EQ(plan.groups.size(), 1u);
  const PlannedGroup &k = plan.groups[0];
  EXPECT_EQ(names(graph, k.inputs), (Names{"gate", "up"}));
  EXPECT_EQ(k.nodes.size(), 2u);
  EXPECT_EQ(k.elements, 512 * 1024);
  EXPECT_EQ(k.lanes, 8);
  EXPECT_EQ(k.work.bytesRead, 2 * 1048576);
  EXPECT_EQ(k.work.bytesWritten, 1048576);
  EXPECT_EQ(k.unfusedBytes, 5 * 1048576);
  EXPECT_EQ(plan.unfusedBytes, 5 * 1048576);
  EXPECT_WHY(k, "one pass over 524288 elements: every value above 'y' is computed from what is loaded");
}

TEST(Planner, OutputsOfOneCountShareAKernel) {
  GraphBuilder g("adam");
  auto w = g.input("w", DType::F32, {1000}), m = g.input("m", DType::F32, {1000});
  auto n = g.mul(m, 0.9);
  g.output(n, "n");
  g.output(g.sub(w, n), "v");
  g.output(g.reshape(g.cast(w, DType::BF16), {10, 100}), "b"); // another shape of as many elements
  Graph graph = graphOf(g);
  Plan plan = planOf(graph);
  ASSERT_EQ(plan.groups.size(), 1u);
  EXPECT_EQ(plan.groups[0].outputs.size(), 3u);
  EXPECT_WHY(plan.groups[0], "every value above 3 outputs");
}

TEST(Planner, OtherCountsAreOtherKernels) {
  GraphBuilder g("two");
  auto x = g.input("x", DType::F32, {64, 32});
  g.output(g.exp(x), "y");
  g.output(g.exp(g.slice(x, {.dim = 0, .start = 0, .end = 8})), "z");
  Graph graph = graphOf(g);
  Plan plan = planOf(graph);
  ASSERT_EQ(plan.groups.size(), 2u);
  EXPECT_EQ(plan.groups[0].elements, 256);
  EXPECT_EQ(plan.groups[1].elements, 2048);
}

TEST(Planner, NodesThatNothingNeedsAreInNoKernel) {
  GraphBuilder g("dead");
  auto x = g.input("x", DType::F32, {64});
  g.exp(x);
  g.output(g.neg(x), "y");
  Plan plan = planOf(graphOf(g));
  ASSERT_EQ(plan.groups.size(), 1u);
  EXPECT_EQ(plan.groups[0].nodes.size(), 1u);
}

TEST(Planner, InputsThatAreReturnedNeedNoKernel) {
  GraphBuilder g("copy");
  g.output(g.input("x", DType::F32, {64}));
  EXPECT_TRUE(planOf(graphOf(g)).groups.empty());
}

TEST(Planner, ScalarsAndEmptyTensors) {
  GraphBuilder g("small");
  g.output(g.neg(g.input("s", DType::F32, {})), "r");
  g.output(g.neg(g.input("e", DType::F32, {0, 3})), "n");
  Graph graph = graphOf(g);
  for (const char *target : {"h200", "cpu"}) {
    Plan plan = planOf(graph, target);
    ASSERT_EQ(plan.groups.size(), 2u);
    EXPECT_EQ(plan.groups[0].elements, 0);
    EXPECT_EQ(plan.groups[1].elements, 1);
    EXPECT_EQ(plan.groups[1].lanes, 1);
  }
}

TEST(Planner, OtherOpsAreErrorsWithTheirPlace) {
  GraphBuilder g("sum");
  auto h = g.relu(g.input("x", DType::F32, {4, 8}));
  g.output(g.name(g.sum(h, {.dims = {1}}), "total"));
  Result<Plan> plan = planPointwise(graphOf(g), machine("h200"));
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, Code::Unsupported);
  EXPECT_EQ(plan.error().pointer, "/nodes/1");
  EXPECT_NE(plan.error().message.find("node total (sum)"), std::string::npos) << plan.error().message;
  EXPECT_NE(plan.error().message.find("h200"), std::string::npos);
}

//===--------------------------------------------------------------------------------------------------------------===//
// Loads between iteration spaces
//===--------------------------------------------------------------------------------------------------------------===//

TEST(Planner, CheapValuesOfAnotherSpaceAreComputedAgain) {
  GraphBuilder g("cheap");
  auto row = g.input("row", DType::F32, {64}), x = g.input("x", DType::F32, {1024, 64});
  auto r = g.mul(row, 2.0);
  g.output(r, "r");
  g.output(g.add(x, r), "y");
  Graph graph = graphOf(g);
  Plan plan = planOf(graph);
  ASSERT_EQ(plan.groups.size(), 2u);
  EXPECT_EQ(names(graph, plan.groups[1].inputs), (Names{"x", "row"}));
  EXPECT_EQ(plan.unfusedBytes, 4 * (64 + 64 + 64 + 2 * 65536)) << "r is computed twice and counted once";
}

TEST(Planner, DearValuesOfAnotherSpaceAreLoaded) {
  GraphBuilder g("dear");
  auto row = g.input("row", DType::F32, {64}), x = g.input("x", DType::F32, {1024, 64});
  auto r = g.pow(row, 1.5);
  g.output(g.add(x, r), "y"); // named first; still the kernel that stores r comes first
  g.output(r, "r");
  Graph graph = graphOf(g);
  Plan plan = planOf(graph);
  ASSERT_EQ(plan.groups.size(), 2u);
  EXPECT_EQ(names(graph, plan.groups[0].outputs), (Names{"r"}));
  EXPECT_EQ(names(graph, plan.groups[1].inputs), (Names{"x", "r"}));
  EXPECT_WHY(
      plan.groups[1],
      "'r' is loaded from an earlier kernel: another iteration space stores it, and computing it again costs more");
  // Both costs.
  EXPECT_WHY(plan.groups[1], "'r': ");
  EXPECT_WHY(plan.groups[1], " us to load; ");
  EXPECT_WHY(plan.groups[1], " us to compute again");
}

TEST(Planner, LevelsFollowLoadsBackAndForth) {
  // Small, large, small, large: each loads the one before.
  GraphBuilder g("levels");
  auto small = g.input("small", DType::F32, {16}), large = g.input("large", DType::F32, {64, 16});
  auto a = g.pow(small, 1.5);
  auto b = g.pow(g.add(large, a), 1.5);
  auto c = g.pow(g.reshape(g.slice(b, {.dim = 0, .start = 3, .end = 4}), {16}), 1.5);
  auto d = g.add(b, c);
  g.output(d, "d");
  g.output(c, "c");
  g.output(b, "b");
  g.output(a, "a");
  Graph graph = graphOf(g);
  Plan plan = planOf(graph);
  ASSERT_EQ(plan.groups.size(), 4u);
  EXPECT_EQ(names(graph, plan.groups[0].outputs), (Names{"a"}));
  EXPECT_EQ(names(graph, plan.groups[1].outputs), (Names{"b"}));
  EXPECT_EQ(names(graph, plan.groups[2].outputs), (Names{"c"}));
  EXPECT_EQ(names(graph, plan.groups[3].outputs), (Names{"d"}));
  EXPECT_EQ(names(graph, plan.groups[3].inputs), (Names{"b", "c"}));
  EXPECT_WHY(plan.groups[3], "'b' is loaded from an earlier kernel, which stores it anyway");
}

TEST(Planner, AStoredValueOfTheSameSpaceIsNotLoadedByItsOwnKernel) {
  GraphBuilder g("same");
  auto e = g.pow(g.input("x", DType::F32, {64, 16}), 1.5);
  g.output(e, "e");
  g.output(g.neg(e), "n");
  Graph graph = graphOf(g);
  Plan plan = planOf(graph);
  ASSERT_EQ(plan.groups.size(), 1u);
  EXPECT_EQ(names(graph, plan.groups[0].inputs), (Names{"x"}));
}

//===--------------------------------------------------------------------------------------------------------------===//
// Lanes
//===--------------------------------------------------------------------------------------------------------------===//

int64_t lanesOf(DType in, DType out, std::vector<int64_t> shape, const char *target = "h200") {
  GraphBuilder g("lanes");
  g.output(g.cast(g.input("x", in, shape), out), "y");
  Plan plan = planOf(graphOf(g), target);
  return plan.groups.empty() ? 0 : plan.groups[0].lanes;
}

TEST(PlannerLanes, TheWidestTypeTakesSixteenBytes) {
  std::vector<int64_t> large{4096, 4096};
  EXPECT_EQ(lanesOf(DType::F32, DType::F32, large), 4);
  EXPECT_EQ(lanesOf(DType::F32, DType::BF16, large), 4);
  EXPECT_EQ(lanesOf(DType::BF16, DType::F32, large), 4);
  EXPECT_EQ(lanesOf(DType::BF16, DType::F16, large), 8);
  EXPECT_EQ(lanesOf(DType::F8E4M3, DType::BF16, large), 8);
  EXPECT_EQ(lanesOf(DType::I8, DType::U8, large), 16);
  EXPECT_EQ(lanesOf(DType::I64, DType::F32, large), 2);
}

TEST(PlannerLanes, SmallTensorsAreSpreadOverMoreThreads) {
  EXPECT_EQ(lanesOf(DType::BF16, DType::BF16, {64, 64}), 2) << "down to 4-byte accesses";
  EXPECT_EQ(lanesOf(DType::F32, DType::F32, {64, 64}), 1);
  EXPECT_EQ(lanesOf(DType::I8, DType::I8, {64}), 4);
  EXPECT_EQ(lanesOf(DType::I8, DType::I8, {3}), 2);
  EXPECT_EQ(lanesOf(DType::I8, DType::I8, {1}), 1);
}

TEST(PlannerLanes, OnACpu) {
  EXPECT_EQ(lanesOf(DType::F32, DType::F32, {4096}, "cpu"), 8);
  EXPECT_GE(lanesOf(DType::BF16, DType::BF16, {4096}, "cpu"), 16);
  EXPECT_EQ(lanesOf(DType::F32, DType::F32, {3}, "cpu"), 2);
}

TEST(PlannerLanes, BroadcastOperandsDoNotNarrow) {
  GraphBuilder g("row");
  auto x = g.input("x", DType::BF16, {4096, 4096}), row = g.input("row", DType::F32, {4096});
  g.output(g.cast(g.mul(x, row), DType::BF16), "y");
  EXPECT_EQ(planOf(graphOf(g)).groups[0].lanes, 8);
}

TEST(PlannerLanes, BlocksThatMoveLittleAreLarger) {
  auto threads = [](std::vector<int64_t> a, std::vector<int64_t> b) {
    GraphBuilder g("sum");
    auto x = g.input("x", DType::BF16, a), y = g.input("y", DType::BF16, b);
    g.output(g.add(x, y), "z");
    return planOf(graphOf(g)).groups[0].threads;
  };
  EXPECT_EQ(threads({8192, 4096}, {8192, 4096}), 128);
  EXPECT_EQ(threads({64, 1}, {1, 512}), 128) << "few blocks, on as many SMs";
  EXPECT_EQ(threads({8192, 1}, {1, 4096}), 256) << "2 KB of 128 threads are written before the next block starts";
}

TEST(PlannerLanes, ManyPiecesWithinAVectorAreTakenOneByOne) {
  for (int pieces : {3, 20}) {
    GraphBuilder g("cat");
    std::vector<Arg> parts;
    for (int i = 0; i < pieces; ++i)
      parts.push_back(g.input("x" + std::to_string(i), DType::BF16, {8192, 37}));
    g.output(g.cat(parts, 1), "y");
    EXPECT_EQ(planOf(graphOf(g)).groups[0].lanes, pieces == 3 ? 8 : 1);
  }
}

//===--------------------------------------------------------------------------------------------------------------===//
// Cats
//===--------------------------------------------------------------------------------------------------------------===//

TEST(PlannerCat, EqualPiecesOfWholeVectorsAreSplit) {
  auto split = [](int64_t extent, int64_t dim) {
    GraphBuilder g("rope");
    auto x = g.input("x", DType::BF16, {8192, extent}), y = g.input("y", DType::BF16, {8192, extent});
    g.output(g.cat({g.sub(x, y), g.add(x, y)}, dim), "z");
    Graph graph = graphOf(g);
    Plan plan = planOf(graph);
    EXPECT_EQ(plan.groups.size(), 1u);
    return plan.groups[0].splitCat;
  };
  EXPECT_TRUE(split(64, 1));
  EXPECT_TRUE(split(64, 0));
  EXPECT_FALSE(split(63, 1)) << "a row is no whole number of vectors";
  EXPECT_TRUE(split(63, 0)) << "along rows the pieces are";
}

TEST(PlannerCat, NotBesideOtherOutputs) {
  GraphBuilder g("beside");
  auto x = g.input("x", DType::BF16, {8192, 64}), y = g.input("y", DType::BF16, {8192, 64});
  auto z = g.cat({x, y}, 1);
  g.output(z, "z");
  g.output(g.neg(z), "n");
  Plan plan = planOf(graphOf(g));
  ASSERT_EQ(plan.groups.size(), 1u);
  EXPECT_FALSE(plan.groups[0].splitCat);
}

TEST(PlannerCat, ManyActivatedPiecesStayInOneKernel) {
  // One branch is taken for an element: neither its registers nor its work are those of all pieces.
  GraphBuilder g("cat");
  std::vector<Arg> parts;
  for (int i = 0; i < 300; ++i)
    parts.push_back(g.gelu(g.input("x" + std::to_string(i), DType::BF16, {64, 512})));
  g.output(g.cat(parts, 0), "y");
  Plan plan = planOf(graphOf(g));
  ASSERT_EQ(plan.groups.size(), 1u);
  EXPECT_LT(plan.groups[0].time.compute(), plan.groups[0].time.memory);
}

//===--------------------------------------------------------------------------------------------------------------===//
// Cuts
//===--------------------------------------------------------------------------------------------------------------===//

TEST(PlannerCut, ArgumentsOfASum) {
  GraphBuilder g("sum");
  auto sum = g.input("x0", DType::F32, {64, 64});
  for (int i = 1; i < 1200; ++i)
    sum = g.name(g.add(sum, g.input("x" + std::to_string(i), DType::F32, {64, 64})), "a" + std::to_string(i));
  g.output(sum);
  Graph graph = graphOf(g);
  for (const char *target : {"h200", "cpu"}) {
    Plan plan = planOf(graph, target);
    size_t limit = maxKernelArguments(machine(target));
    EXPECT_EQ(plan.groups.size(), (1200 + limit - 3) / (limit - 2)) << "as few kernels as do";
    EXPECT_EQ(plan.groups[0].inputs.size(), limit - 1);
    EXPECT_WHY(plan.groups[0], "stored: 1201 tensors meet here, and a launch takes " + std::to_string(limit));
  }
}

TEST(PlannerCut, ArgumentsOfATree) {
  GraphBuilder g("tree");
  std::vector<TensorHandle> level;
  for (int i = 0; i < 1024; ++i)
    level.push_back(g.input("x" + std::to_string(i), DType::F32, {64, 64}));
  while (level.size() > 1) {
    std::vector<TensorHandle> next;
    for (size_t i = 0; i + 1 < level.size(); i += 2)
      next.push_back(g.add(level[i], level[i + 1]));
    level = next;
  }
  g.output(level[0], "y");
  Plan plan = planOf(graphOf(g));
  EXPECT_LE(plan.groups.size(), 5u);
}

TEST(PlannerCut, ArgumentsInsideBranches) {
  GraphBuilder g("cat");
  std::vector<Arg> parts;
  for (int i = 0; i < 300; ++i)
    parts.push_back(g.add(g.input("x" + std::to_string(i), DType::F32, {64, 64}),
                          g.input("y" + std::to_string(i), DType::F32, {64, 64})));
  g.output(g.cat(parts, 0), "z");
  Plan plan = planOf(graphOf(g));
  EXPECT_GE(plan.groups.size(), 2u);
}

TEST(PlannerCut, OutputsWithLittleInCommonAreDividedNotCut) {
  GraphBuilder g("many");
  for (int i = 0; i < 600; ++i)
    g.output(g.relu(g.add(g.input("x" + std::to_string(i), DType::F32, {100}), 1.0)), "y" + std::to_string(i));
  Graph graph = graphOf(g);
  Plan plan = planOf(graph);
  EXPECT_EQ(plan.groups.size(), 3u);
  double bytes = 0;
  for (const PlannedGroup &k : plan.groups)
    bytes += k.work.bytes();
  EXPECT_EQ(bytes, 2 * 600 * 400) << "nothing is stored but outputs";
}

TEST(PlannerCut, OutputsThatShareMuchGetItFromMemory) {
  // All 400 outputs need the sum of 400 tensors: it is summed once.
  GraphBuilder g("shared");
  auto sum = g.input("x0", DType::F32, {1000});
  for (int i = 1; i < 400; ++i)
    sum = g.add(sum, g.input("x" + std::to_string(i), DType::F32, {1000}));
  g.name(sum, "sum");
  for (int i = 0; i < 400; ++i)
    g.output(g.mul(sum, 1.0 + i), "y" + std::to_string(i));
  Graph graph = graphOf(g);
  Plan plan = planOf(graph);
  ASSERT_EQ(plan.groups.size(), 2u);
  EXPECT_EQ(names(graph, plan.groups[0].outputs), (Names{"sum"}));
  EXPECT_EQ(names(graph, plan.groups[1].inputs), (Names{"sum"}));
}

TEST(PlannerCut, OutputsThatAreEachOthersOperands) {
  // Each output is a tensor more than the one before; every one of them is stored anyway.
  GraphBuilder g("prefix");
  auto sum = g.input("x0", DType::F32, {1000});
  for (int i = 1; i < 700; ++i) {
    sum = g.add(sum, g.input("x" + std::to_string(i), DType::F32, {1000}));
    g.output(sum, "y" + std::to_string(i));
  }
  Plan plan = planOf(graphOf(g));
  EXPECT_GE(plan.groups.size(), 3u);
  EXPECT_LE(plan.groups.size(), 12u);
}

TEST(PlannerCut, NothingInBetweenIsAnError) {
  GraphBuilder g("cat");
  std::vector<Arg> parts;
  for (int i = 0; i < 600; ++i)
    parts.push_back(g.input("x" + std::to_string(i), DType::F32, {8}));
  g.output(g.cat(parts, 0), "y"); // the pass over the IR nests it before it comes here
  Result<Plan> plan = planPointwise(graphOf(g), machine("h200"));
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, Code::Unsupported);
  EXPECT_NE(plan.error().message.find("601 tensors"), std::string::npos) << plan.error().message;
}

/// n values from x that are all used twice, the second time from the last to the first.
Graph wide(int n, bool cheap) {
  GraphBuilder g("wide");
  auto x = g.input("x", DType::F32, {100000});
  std::vector<TensorHandle> v;
  auto sum = x;
  for (int i = 0; i < n; ++i) {
    v.push_back(g.name(cheap ? g.mul(x, 1.0 + i) : g.sin(v.empty() ? x : v.back()), "v" + std::to_string(i)));
    sum = g.name(g.add(sum, v.back()), "a" + std::to_string(i));
  }
  for (int i = n; i-- > 0;)
    sum = g.name(g.sub(v[static_cast<size_t>(i)], sum), "b" + std::to_string(i));
  g.output(sum);
  return graphOf(g);
}

TEST(PlannerCut, RegistersNarrowVectorsFirst) {
  auto lanes = [](int n) {
    Plan plan = planOf(wide(n, true));
    EXPECT_EQ(plan.groups.size(), 1u);
    return plan.groups[0].lanes;
  };
  EXPECT_EQ(lanes(20), 4); // 22 live values of four registers are within half of 191
  EXPECT_EQ(lanes(40), 2);
  EXPECT_EQ(lanes(60), 1);
  EXPECT_EQ(lanes(180), 1);
}

TEST(PlannerCut, RegistersBeyondThat) {
  Graph graph = wide(300, true);
  Plan plan = planOf(graph);
  ASSERT_EQ(plan.groups.size(), 2u) << "what is cheap is computed again behind the one value that is cut";
  EXPECT_EQ(names(graph, plan.groups[0].outputs), (Names{"a298"}));
  EXPECT_WHY(plan.groups[0], "'a298' stored: about 302 registers would be live, a thread has 191 for values");
  EXPECT_EQ(planOf(graph, "cpu").groups.size(), 1u) << "a CPU spills to its cache";
}

TEST(PlannerCut, ValuesThatAreCutOneAboveTheOtherShareAKernel) {
  // Computing v299 anew takes all of the chain: the values are stored, by one kernel that computes each once.
  Graph graph = wide(300, false);
  Plan plan = planOf(graph);
  EXPECT_LE(plan.groups.size(), 4u);
  EXPECT_GT(plan.groups[0].outputs.size(), 100u);
  size_t chain = 0;
  for (const PlannedGroup &k : plan.groups)
    for (NodeId n : k.nodes)
      chain += graph.nodes[n].op == OpKind::Sin;
  EXPECT_LE(chain, 600u);
}

TEST(PlannerCut, LoadsAloneFillTheRegisters) {
  GraphBuilder g("loads");
  std::vector<TensorHandle> x;
  for (int i = 0; i < 250; ++i)
    x.push_back(g.input("x" + std::to_string(i), DType::F32, {10000}));
  auto y = x[0];
  for (int i = 1; i < 250; ++i)
    y = g.add(y, x[static_cast<size_t>(i)]);
  for (int i = 250; i-- > 0;)
    y = g.mul(y, x[static_cast<size_t>(i)]);
  g.output(y, "y");
  Plan plan = planOf(graphOf(g));
  ASSERT_EQ(plan.groups.size(), 2u);
  EXPECT_WHY(plan.groups[0], "registers would be live");
}

TEST(PlannerCut, LayoutsThatReadAtManyIndices) {
  GraphBuilder g("stencil");
  auto x = g.input("x", DType::F32, {64, 64});
  for (int i = 0; i < 12; ++i) { // 3^12 indices without a cut
    auto inner = g.slice(x, {.dim = 0, .start = 1, .end = -1});
    x = g.add(g.add(g.slice(x, {.dim = 0, .start = 0, .end = -2}), inner), g.flip(inner, {1}));
  }
  g.output(x, "y");
  Plan plan = planOf(graphOf(g));
  EXPECT_GE(plan.groups.size(), 1u);
  EXPECT_LE(plan.groups.size(), 12u);

  // Two indices a step, none equal to another: 2^30 of them.
  GraphBuilder h("doubling");
  auto y = h.input("x", DType::F32, {4096});
  for (int i = 0; i < 30; ++i)
    y = h.name(
        h.sin(h.add(h.slice(y, {.dim = 0, .start = 1 + i}), h.slice(h.flip(y, {0}), {.dim = 0, .start = 1 + i}))),
        "y" + std::to_string(i));
  h.output(y);
  Graph doubling = graphOf(h);
  Plan doubled = planOf(doubling);
  EXPECT_GE(doubled.groups.size(), 3u);
  EXPECT_WHY(doubled.groups[0], "or more distinct indices, and each would be computed again");
}

TEST(PlannerCut, DeepLayouts) {
  GraphBuilder g("pads");
  auto x = g.input("x", DType::F32, {64, 4096});
  for (int i = 0; i < 200; ++i)
    x = g.slice(g.mul(g.pad(x, {.low = {0, 1}, .high = {0, 0}}), 2.0), {.dim = 1, .end = -1});
  g.output(x, "y");
  Plan plan = planOf(graphOf(g));
  EXPECT_GE(plan.groups.size(), 200 / (kMaxGuards + 1));
  EXPECT_WHY(plan.groups[0], "under 49 conditions, too many for one kernel");
}

TEST(PlannerCut, LongKernelsAreDivided) {
  GraphBuilder g("long");
  auto x = g.input("x", DType::F32, {100000});
  for (int i = 0; i < 3000; ++i)
    x = g.name(g.tanh(x), "t" + std::to_string(i)); // 16 instructions each
  g.output(x);
  for (const char *target : {"h200", "cpu"}) {
    Plan plan = planOf(graphOf(g), target);
    EXPECT_GE(plan.groups.size(), 3u) << target;
    EXPECT_LE(plan.groups.size(), 8u) << target;
    EXPECT_WHY(plan.groups[0], "instructions is divided: beyond 16384");
  }
}

TEST(PlannerCut, BroadcastThatRepeatsMuchWork) {
  auto build = [](int n, std::vector<int64_t> small) {
    GraphBuilder g("broadcast");
    auto s = g.input("s", DType::F32, small), x = g.input("x", DType::F32, {4096, 4096});
    for (int i = 0; i < n; ++i)
      s = g.name(g.pow(s, 1.01), "p" + std::to_string(i));
    g.output(g.add(x, s), "y");
    return graphOf(g);
  };
  Graph graph = build(40, {4096});
  Plan plan = planOf(graph);
  ASSERT_EQ(plan.groups.size(), 2u);
  EXPECT_EQ(names(graph, plan.groups[0].outputs), (Names{"p39"}));
  EXPECT_WHY(plan.groups[0], "stored: computing it for each element that it is broadcast to costs ");
  EXPECT_WHY(plan.groups[0], " us, a kernel and a pass through memory 0.");
  EXPECT_EQ(planOf(build(1, {4096})).groups.size(), 1u) << "hidden behind the memory";
  EXPECT_EQ(planOf(build(40, {4096, 4096})).groups.size(), 1u) << "nothing is broadcast";
}

TEST(PlannerCut, ASharedChainUnderTwoBroadcastsIsCutOnce) {
  GraphBuilder g("shared");
  auto s = g.input("s", DType::F32, {4096}), x = g.input("x", DType::F32, {4096, 4096});
  for (int i = 0; i < 40; ++i)
    s = g.name(g.pow(s, 1.01), "p" + std::to_string(i));
  g.output(g.mul(g.add(x, g.neg(s)), g.exp(s)), "y");
  Graph graph = graphOf(g);
  Plan plan = planOf(graph);
  ASSERT_EQ(plan.groups.size(), 2u);
  EXPECT_EQ(names(graph, plan.groups[0].outputs), (Names{"p39"}));
}

TEST(PlannerCut, PlansOfLargeGraphsAreQuick) {
  // Quadratic searches do not end here.
  GraphBuilder g("large");
  auto s = g.input("s", DType::F32, {64}), x = g.input("x", DType::F32, {64, 64});
  for (int i = 0; i < 20000; ++i)
    s = g.sin(s);
  g.output(g.add(x, s), "y");
  for (int i = 0; i < 2000; ++i)
    g.output(g.neg(g.input("x" + std::to_string(i), DType::F32, {i + 2})), "n" + std::to_string(i));
  Plan plan = planOf(graphOf(g), "cpu");
  EXPECT_GE(plan.groups.size(), 2000u);
}

//===--------------------------------------------------------------------------------------------------------------===//
// Any graph
//===--------------------------------------------------------------------------------------------------------------===//

Graph randomGraph(unsigned seed) {
  std::mt19937 random(seed);
  GraphBuilder g("random");
  std::vector<std::pair<TensorHandle, bool>> pool; // a tensor, and whether it is the large one or a row
  for (int i = 0; i < 4; ++i) {
    bool large = i % 2 == 0;
    pool.push_back(
        {g.input("x" + std::to_string(i), i == 3 ? DType::BF16 : DType::F32, large ? Shape{96, 64} : Shape{64}),
         large});
  }
  size_t n = 3 + random() % 40;
  for (size_t i = 0; i < n; ++i) {
    auto [a, la] = pool[random() % pool.size()];
    auto [b, lb] = pool[random() % pool.size()];
    TensorHandle made;
    bool large = la || lb;
    switch (random() % 6) {
    case 0: made = g.add(a, b); break;
    case 1: made = g.mul(g.sin(a), b); break;
    case 2:
      made = g.pow(a, 1.5);
      large = la;
      break;
    case 3:
      made = g.flip(a, {la ? static_cast<int64_t>(random() % 2) : 0});
      large = la;
      break;
    case 4:
      if (!la)
        continue;
      made = g.reshape(g.slice(a, {.dim = 0, .start = 2, .end = 3}), {64});
      large = false;
      break;
    default:
      if (!la || !lb)
        continue;
      made = g.slice(g.cat({a, b}, 1), {.dim = 1, .start = 32, .end = 96});
      large = true;
    }
    pool.push_back({made, large});
    if (random() % 3 == 0)
      g.output(made, "y" + std::to_string(i));
  }
  g.output(g.neg(pool.back().first), "last");
  return graphOf(g);
}

TEST(Planner, RandomGraphsGiveSoundPlans) {
  for (unsigned seed = 0; seed < 150; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Graph graph = randomGraph(seed);
    for (const char *target : {"h200", "a100", "cpu"})
      planOf(graph, target);
    if (HasFailure())
      return;
  }
}

TEST(Planner, IsDeterministic) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    Graph graph = randomGraph(seed), again = randomGraph(seed);
    Plan a = planOf(graph), b = planOf(again);
    ASSERT_EQ(a.groups.size(), b.groups.size());
    for (size_t i = 0; i < a.groups.size(); ++i) {
      EXPECT_EQ(a.groups[i].inputs, b.groups[i].inputs);
      EXPECT_EQ(a.groups[i].outputs, b.groups[i].outputs);
      EXPECT_EQ(a.groups[i].nodes, b.groups[i].nodes);
      EXPECT_EQ(a.groups[i].lanes, b.groups[i].lanes);
      EXPECT_EQ(a.groups[i].why, b.groups[i].why);
    }
  }
}

} // namespace
