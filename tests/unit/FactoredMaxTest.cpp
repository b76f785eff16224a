// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which maxima of magnitudes are reduced without the factors that their row shares, and why others wait for them.
#include "passes/plan/FactoredMax.h"
#include "passes/plan/RowPlanner.h"
#include "tests/unit/TraceHarness.h"

#include <algorithm>
#include <functional>

namespace {

using Make = std::function<TensorHandle(GraphBuilder &, TensorHandle x)>;

/// x (f32), then what `make` makes of it, quantised by its greatest magnitude.
Graph quantised(const Make &make, Shape shape, DType type = DType::BF16, bool strict = false,
                const std::function<void(GraphBuilder &, TensorHandle value, TensorHandle most)> &more = {}) {
  GraphBuilder g("factored");
  if (strict)
    g.strict();
  TensorHandle x = g.input("x", type, shape);
  TensorHandle v = make(g, type == DType::F32 ? x : g.cast(x, DType::F32));
  TensorHandle most = g.name(g.amax(g.abs(v), {.dims = {1}, .keepdim = true}), "most");
  TensorHandle scale = most / 448.0;
  g.output(g.cast(v / scale, DType::F8E4M3), "q");
  g.output(scale, "s");
  if (more)
    more(g, v, most);
  return graphOf(g);
}

/// One over the root of the mean of squares.
TensorHandle inverse(GraphBuilder &g, TensorHandle x) {
  return g.rsqrt(g.sum(x * x, {.dims = {1}, .keepdim = true}) / 4096.0 + 1e-6);
}
TensorHandle weights(GraphBuilder &g, const char *name = "w", DType type = DType::F32) {
  return g.input(name, type, {4096});
}
TensorHandle norm(GraphBuilder &g, TensorHandle x) { return x * inverse(g, x) * weights(g); }

Factoring factoringOf(const Graph &graph, int64_t lanes = 4) {
  TraceRequest request = requestOf(graph, lanes);
  request.rows = graph.type(graph.inputs[0]).shape[0];
  request.width = graph.type(graph.inputs[0]).shape[1];
  Result<Trace> trace = tracePointwise(request);
  if (!trace) {
    ADD_FAILURE() << trace.error().str();
    return {};
  }
  return findFactoredMax(graph, *trace);
}

const Shape kShape{2048, 4096};
std::string refusalOf(const Make &make,
                      const std::function<void(GraphBuilder &, TensorHandle, TensorHandle)> &more = {}) {
  Factoring f = factoringOf(quantised(make, kShape, DType::BF16, false, more));
  EXPECT_FALSE(f.found);
  return f.refusal;
}

TEST(FactoredMax, Norm) {
  Graph graph = quantised(norm, kShape);
  Factoring f = factoringOf(graph);
  ASSERT_TRUE(f.found) << f.refusal;
  EXPECT_EQ(f.found->level, 1u);
  EXPECT_EQ(f.found->factors.size(), 1u);
  EXPECT_FALSE(f.found->factors[0].divides);
  EXPECT_EQ(f.found->squares.size(), 1u) << "they bound what the factor multiplies before the weights do";
  EXPECT_EQ(f.found->steps.size(), 3u) << "two that are known, and their product";
  EXPECT_NE(f.found->quotient, kNone);
  EXPECT_TRUE(f.found->roundings.empty());
}

TEST(FactoredMax, NothingBoundsWhatIsAlone) {
  Factoring f = factoringOf(quantised([](GraphBuilder &g, TensorHandle x) { return x * inverse(g, x); }, kShape));
  ASSERT_TRUE(f.found);
  EXPECT_TRUE(f.found->squares.empty()) << "the maximum itself is within limits";
  EXPECT_EQ(f.found->steps.size(), 1u);
}

TEST(FactoredMax, QuotientsSignsAndLiterals) {
  Factoring f = factoringOf(quantised(
      [](GraphBuilder &g, TensorHandle x) {
        TensorHandle root = g.sqrt(g.sum(g.square(x), {.dims = {1}, .keepdim = true}) + 1e-6);
        return g.abs(-(weights(g) * (x / root)) * 0.5);
      },
      kShape));
  ASSERT_TRUE(f.found) << f.refusal;
  EXPECT_TRUE(f.found->factors[0].divides);
  EXPECT_TRUE(f.found->factors[0].magnitude);
  EXPECT_EQ(f.found->squares.size(), 1u);
}

TEST(FactoredMax, RoundingBeforeTheMaximum) {
  Factoring f = factoringOf(quantised(
      [](GraphBuilder &g, TensorHandle x) { return g.cast(g.cast(norm(g, x), DType::BF16), DType::F32); }, kShape));
  ASSERT_TRUE(f.found) << f.refusal;
  EXPECT_EQ(f.found->roundings.size(), 2u);
  EXPECT_EQ(f.found->quotient, kNone) << "the quotient is that of rounded values";
}

TEST(FactoredMax, VarianceOfWhatHasNoMean) {
  Factoring f = factoringOf(quantised(
      [](GraphBuilder &g, TensorHandle x) { return norm(g, x - g.sum(x, {.dims = {1}, .keepdim = true}) / 4096.0); },
      kShape));
  ASSERT_TRUE(f.found) << f.refusal;
  EXPECT_EQ(f.found->level, 2u) << "together with the second sum";
}

TEST(FactoredMax, Refused) {
  EXPECT_NE(refusalOf([](GraphBuilder &g, TensorHandle x) {
              return norm(g, x) + weights(g, "b");
            }).find("is neither a product nor a quotient"),
            std::string::npos);
  EXPECT_NE(refusalOf([](GraphBuilder &g, TensorHandle x) {
              return weights(g) * (inverse(g, x) * weights(g, "v")) * x;
            }).find("nothing bounds what"),
            std::string::npos);
  EXPECT_NE(refusalOf([](GraphBuilder &g, TensorHandle x) { return inverse(g, x) / x; }).find("is divided"),
            std::string::npos);
  EXPECT_NE(refusalOf([](GraphBuilder &g, TensorHandle x) {
              TensorHandle r = inverse(g, x);
              return x * r * r * r;
            }).find("more than two factors"),
            std::string::npos);
  auto rounded = [](GraphBuilder &g, TensorHandle x) {
    return g.cast(g.cast(x * inverse(g, x), DType::BF16), DType::F32) * weights(g);
  };
  EXPECT_NE(refusalOf(rounded).find("is neither a product nor a quotient"), std::string::npos);
  // What is made of the values must be of 8 bits, and must not tell which is the greatest.
  EXPECT_NE(refusalOf(norm, [](GraphBuilder &g, TensorHandle v, TensorHandle) { g.output(v, "v"); })
                .find("than values of 8 bits"),
            std::string::npos);
  EXPECT_NE(
      refusalOf(norm, [](GraphBuilder &g, TensorHandle v, TensorHandle most) { g.output(g.eq(g.abs(v), most), "e"); })
          .find("than values of 8 bits"),
      std::string::npos);
  EXPECT_NE(refusalOf(norm, [](GraphBuilder &g, TensorHandle v,
                               TensorHandle most) { g.output(g.sum(g.cast(v / most, DType::I8), {.dims = {1}}), "t"); })
                .find("other reductions follow it"),
            std::string::npos);
}

TEST(FactoredMax, NotWhereNothingIsWaitedFor) {
  Factoring f = factoringOf(quantised([](GraphBuilder &g, TensorHandle x) { return x * weights(g); }, kShape));
  EXPECT_FALSE(f.found);
  EXPECT_EQ(f.refusal, "");
  f = factoringOf(quantised(norm, kShape, DType::BF16, /*strict=*/true));
  EXPECT_FALSE(f.found);
  EXPECT_EQ(f.refusal, "");
}

PlannedGroup planned(int64_t rows, int64_t width, const char *target, bool weighted = true) {
  Graph graph = quantised(
      [&](GraphBuilder &g, TensorHandle x) {
        TensorHandle n = x * inverse(g, x);
        return weighted ? n * g.cast(g.input("w", DType::BF16, {width}), DType::F32) : n;
      },
      {rows, width});
  Result<Plan> plan = planKernels(graph, *cost::findTarget(target));
  if (!plan || plan->groups.size() != 1) {
    ADD_FAILURE() << (plan ? "not one kernel" : plan.error().str());
    return {};
  }
  return plan->groups[0];
}

bool says(const PlannedGroup &g, const std::string &text) {
  return std::any_of(g.why.begin(), g.why.end(),
                     [&](const std::string &w) { return w.find(text) != std::string::npos; });
}

TEST(FactoredMax, Schedules) {
  PlannedGroup g = planned(16384, 4096, "h200");
  EXPECT_TRUE(g.factored);
  EXPECT_EQ(g.work.reductions, 1) << "two, of which one exchange is saved";
  EXPECT_TRUE(says(g, "is reduced without its factor"));
  EXPECT_TRUE(says(g, "with an exchange more"));
  EXPECT_TRUE(planned(16384, 4096, "a100").factored);
  g = planned(512, 131072, "h200");
  EXPECT_TRUE(g.factored && g.cluster > 1);
  g = planned(16384, 256, "h200");
  EXPECT_FALSE(g.factored);
  EXPECT_EQ(g.work.reductions, 2);
  EXPECT_TRUE(says(g, "one warp"));
  g = planned(16384, 1024, "h200");
  EXPECT_FALSE(g.factored);
  EXPECT_TRUE(says(g, "rows share a block"));
  EXPECT_FALSE(planned(512, 262144, "a100").factored) << "no block holds the row";
  EXPECT_FALSE(planned(16384, 4096, "cpu").factored);
  g = planned(16384, 4096, "h200", /*weighted=*/false);
  EXPECT_TRUE(g.resident && !g.factored) << "32 f32 for 16 registers of loads";
  EXPECT_TRUE(says(g, "more registers than the loads"));
}

} // namespace
