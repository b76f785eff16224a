// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tuning: what is measured, what wins, what stays in the cache, and what is refused; on a driver that says how long kernels take.
#include "frontend/engine/Tune.h"
#include "frontend/api/Builder.h"
#include "frontend/engine/Options.h"
#include "tests/gpu/fake/FakePackages.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

using namespace rl;

namespace {

/// Two equal layers, and what is behind them as a kernel of its own.
GraphSpec layers() {
  GraphBuilder g("layers");
  auto x = g.input("x", DType::BF16, {256, 512}), w = g.parameter("w", DType::BF16, {512, 512}),
       v = g.parameter("v", DType::BF16, {512, 512});
  g.output(g.softmax(g.relu(g.matmul(g.relu(g.matmul(x, w)), v)), -1), "y");
  Result<GraphSpec> spec = g.build();
  EXPECT_TRUE(spec.ok()) << spec.error().str();
  return *std::move(spec);
}

class Tune : public ::testing::Test {
protected:
  static void SetUpTestSuite() { driver = fake::fakeDriver(); }
  void SetUp() override {
    driver.control->reset();
    std::string pattern = (std::filesystem::temp_directory_path() / "ridgeline-tune-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory = pattern;
    options.cache = directory + "/cache";
    Result<Target> resolved = resolveTarget("cuda");
    ASSERT_TRUE(resolved.ok()) << resolved.error().str();
    target = *resolved;
  }
  void TearDown() override {
    driver.control->reset();
    std::filesystem::remove_all(directory);
  }

  /// The first tile that is launched takes 44 ms, any other 41.
  void othersAreQuicker() {
    driver.control->milliseconds = [first = std::string()](const fake::Launch &l) mutable {
      std::string shape;
      for (unsigned v : {l.grid[0], l.block[0], l.shared})
        shape += std::to_string(v) + " ";
      if (first.empty())
        first = shape;
      return shape == first ? 44.0 : 41.0;
    };
  }
  Artifact compiled() {
    Result<Artifact> a = compileSpec(layers(), target, options);
    if (!a) {
      ADD_FAILURE() << a.error().str();
      return {};
    }
    return *std::move(a);
  }
  size_t launches() {
    size_t n = driver.control->launches.size();
    driver.control->launches.clear();
    return n;
  }
  static size_t count(const std::string &text, std::string_view what) {
    size_t n = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
      ++n;
    return n;
  }

  static fake::Exports driver;
  std::string directory;
  EngineOptions options;
  Target target;
};
fake::Exports Tune::driver;

TEST_F(Tune, TheQuickestIsTakenAndKept) {
  const Artifact before = compiled();
  EXPECT_EQ(launches(), 0u) << "nothing is timed unasked";
  EXPECT_EQ(before.measured, 0u);
  EXPECT_EQ(count(before.package.explain, "measure"), 0u);

  othersAreQuicker();
  options.tune = kTuneDefault;
  std::vector<std::pair<size_t, size_t>> told;
  options.tuning = [&](size_t done, size_t all) { told.emplace_back(done, all); };
  const Artifact tuned = compiled();
  EXPECT_EQ(tuned.measured, 1u) << "equal layers are measured once";
  EXPECT_EQ(told, (std::vector<std::pair<size_t, size_t>>{{0, 1}}));
  EXPECT_GT(launches(), 2 * 15u);
  EXPECT_EQ(count(tuned.package.explain, "chosen by measurement: "), 2u) << tuned.package.explain;
  EXPECT_EQ(count(tuned.package.explain, "took 42500.0 us; the model's first, "), 2u) << tuned.package.explain;
  EXPECT_EQ(tuned.package.launches.size(), before.package.launches.size());
  EXPECT_NE(tuned.package.ptx, before.package.ptx);
  EXPECT_EQ(printManifest(tuned.package).find("t0"), std::string::npos);

  // As a whole from the cache, and kernel by kernel for a graph that is new.
  const Artifact again = compiled();
  EXPECT_EQ(again.cached, Artifact::Hit);
  EXPECT_EQ(again.package.explain, tuned.package.explain);
  options.keepStages = true;
  const Artifact fresh = compiled();
  EXPECT_EQ(fresh.cached, Artifact::Off);
  EXPECT_EQ(fresh.measured, 0u);
  EXPECT_EQ(fresh.package.explain, tuned.package.explain);
  EXPECT_EQ(fresh.package.ptx, tuned.package.ptx);
  EXPECT_EQ(launches(), 0u);
  // Who does not ask for it gets the model's.
  options.tune = 0;
  EXPECT_EQ(compiled().package.ptx, before.package.ptx);
  options.keepStages = false;
  EXPECT_EQ(compiled().package.ptx, before.package.ptx);
  // Another number of candidates, and no cache, measure anew.
  options.tune = 2;
  EXPECT_EQ(compiled().measured, 1u);
  options.cache = "off";
  EXPECT_EQ(compiled().measured, 1u);
  EXPECT_EQ(compiled().measured, 1u);
}

TEST_F(Tune, WhatIsAsQuickStaysTheModels) {
  const Artifact before = compiled();
  options.tune = kTuneMost;
  const Artifact tuned = compiled();
  EXPECT_EQ(tuned.measured, 1u);
  EXPECT_EQ(tuned.package.ptx, before.package.ptx);
  EXPECT_EQ(count(tuned.package.explain, "the model's first it is; "), 2u) << tuned.package.explain;
}

TEST_F(Tune, ADeviceThatFailsIsTold) {
  options.tune = kTuneDefault;
  driver.control->failures["cuEventRecord"] = {3, 700};
  Result<Artifact> failed = compileSpec(layers(), target, options);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, Code::Device);
  EXPECT_NE(failed.error().message.find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos);
  driver.control->failures.clear();
  EXPECT_EQ(compiled().measured, 1u) << "nothing of the failure was kept";
}

TEST_F(Tune, NeedsADeviceOfTheTarget) {
  options.tune = kTuneDefault;
  driver.control->major = 8;
  for (auto [name, code] :
       {std::pair("cpu", Code::Unsupported), {"reference", Code::Unsupported}, {"h200", Code::Device}}) {
    Result<Artifact> refused = compileSpec(layers(), *resolveTarget(name), options);
    ASSERT_FALSE(refused.ok()) << name;
    EXPECT_EQ(refused.error().code, code) << refused.error().str();
    EXPECT_NE(refused.error().message.find("tuning"), std::string::npos) << refused.error().str();
  }
  EXPECT_EQ(compileSpec(layers(), *resolveTarget("a100"), options)->measured, 1u);
}

TEST(TuneParts, AChoiceOfAKernelThatIsNotThereIsRefused) {
  Result<Graph> graph = resolve(layers());
  ASSERT_TRUE(graph.ok());
  CompileTarget target = *findCompileTarget("h200");
  CompileOptions options;
  options.only = "";
  Result<Compiled> plan = compile(*graph, target, options);
  ASSERT_TRUE(plan.ok()) << plan.error().str();
  EXPECT_TRUE(plan->package.launches.empty());
  EXPECT_TRUE(plan->package.ptx.empty());
  ASSERT_EQ(plan->tunable.size(), 2u);
  const TunableKernel &k = plan->tunable[1];
  EXPECT_EQ(k.kernel, "layers_1");
  EXPECT_EQ(k.key, plan->tunable[0].key);
  EXPECT_EQ(k.inputs.size() + k.outputs.size(), 3u);
  options.tiles[k.key] = {1, {}};
  options.only = k.kernel;
  Result<Compiled> alone = compile(*graph, target, options);
  ASSERT_TRUE(alone.ok()) << alone.error().str();
  ASSERT_EQ(alone->package.launches.size(), 1u);
  const PackageLaunch &l = alone->package.launches[0];
  EXPECT_EQ(l.kernel, k.kernel);
  Package p = aloneOf(alone->package, l, k);
  EXPECT_TRUE(validatePackage(p)) << validatePackage(p).error().str();
  EXPECT_EQ(p.arenaBytes, 0);
  EXPECT_EQ(p.inputs.size(), k.inputs.size());
  options.tiles["512x512x512-0000000000000000"] = {0, {}};
  Result<Compiled> refused = compile(*graph, target, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::Usage);
  EXPECT_NE(refused.error().message.find("512x512x512-0000000000000000"), std::string::npos);
}

TEST(TuneParts, MoreThanOnePercentWins) {
  EXPECT_EQ(quickest({}), 0u);
  EXPECT_EQ(quickest({44}), 0u);
  EXPECT_EQ(quickest({44, 43.57}), 0u);
  EXPECT_EQ(quickest({44, 43.5}), 1u);
  EXPECT_EQ(quickest({44, 43.5, 43.4}), 2u);
  EXPECT_EQ(quickest({44, 0, 43}), 2u);
  EXPECT_EQ(quickest({0, 0, 43}), 2u);
}

TEST(TuneParts, ChoicesAsTextAndBack) {
  for (const TileChoice &c : {TileChoice{0, {41.25}}, TileChoice{2, {44.0625, 0, 41.2001}}, TileChoice{1, {0, 3}}}) {
    std::optional<TileChoice> back = parseChoice(printChoice(c), 3);
    ASSERT_TRUE(back) << printChoice(c);
    EXPECT_EQ(*back, c);
  }
  for (const char *text : {"", "x", "0", "1 41", "-1 41", "0 41 x", "0 -41", "0 nan", "0 inf", "1 41 0", "0 1 2 3 4"})
    EXPECT_FALSE(parseChoice(text, 3)) << text;
}

TEST(TuneParts, Options) {
  auto tune = [](const char *text) -> Result<int> {
    GraphSpec spec;
    EngineOptions options;
    RL_TRY(applyOptions(text, spec, options));
    return options.tune;
  };
  EXPECT_EQ(*tune("{}"), 0);
  EXPECT_EQ(*tune(R"({"tune": false})"), 0);
  EXPECT_EQ(*tune(R"({"tune": true})"), kTuneDefault);
  EXPECT_EQ(*tune(R"({"tune": 2})"), 2);
  EXPECT_EQ(*tune(R"({"tune": 8})"), 8);
  for (const char *text : {R"({"tune": 1})", R"({"tune": 9})", R"({"tune": 2.5})", R"({"tune": "yes"})"}) {
    Result<int> refused = tune(text);
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_EQ(refused.error().code, Code::Usage);
    EXPECT_EQ(refused.error().pointer, "/tune");
  }
}

} // namespace
