// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Delayed scaling run after run beside the reference interpreter: results and state, bit for bit, as everything in the graphs
// is exact. RIDGELINE_TEST_TARGET=cuda runs it on a GPU.
#include "frontend/api/Builder.h"
#include "frontend/api/Engine.h"
#include "ir/interp/Convert.h"
#include "tests/numeric/support/Device.h"
#include "tests/numeric/support/RandomData.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>

using namespace rl;
using namespace rl::numeric;

namespace {

/// Quantised on the way in, behind arithmetic, twice from one tensor, and a token-wise one that has no state.
GraphSpec network(DType type, const std::vector<int64_t> &shape) {
  GraphBuilder g("delayed");
  auto x = g.input("x", type, shape);
  auto y = g.input("y", type, shape);
  auto h = g.maximum(x * 3.0, y);
  auto q = g.quantize(h, {.dtype = DType::F8E4M3});
  g.output(q.q, "q");
  g.output(q.scale, "s");
  g.output(g.dequantize(q.q, q.scale, {.dtype = DType::F32}), "d");
  g.output(g.fakeQuantize(h, {.dtype = DType::I8}), "i");
  g.output(g.fakeQuantize(y, {.dtype = DType::F8E5M2}), "f");
  g.output(g.fakeQuantize(y, {.dtype = DType::I8, .granularity = Granularity::Token}), "t");
  auto spec = g.build();
  EXPECT_TRUE(spec) << spec.error().str();
  spec->strict = true; // or h may be rounded once instead of twice
  return *spec;
}

std::vector<std::byte> read(Module &m, const std::string &name, size_t bytes) {
  std::vector<std::byte> out(bytes);
  Status s = m.read(name, out.data(), bytes);
  EXPECT_TRUE(s) << s.error().str();
  return out;
}

TEST(DelayedScaling, ResultsAndStateAreTheInterpreters) {
  const char *asked = std::getenv("RIDGELINE_TEST_TARGET");
  auto device = Device::create(asked && std::string(asked) == "cuda" ? "cuda" : "cpu"), host = Device::create("cpu");
  ASSERT_TRUE(device) << device.error().str();
  ASSERT_TRUE(host);
  auto reference = resolveTarget("reference");
  ASSERT_TRUE(reference);
  std::mt19937 bits(1);
  for (DType type : {DType::F32, DType::BF16, DType::F16})
    for (const std::vector<int64_t> &shape :
         {std::vector<int64_t>{37, 131}, {200, 1024}, {5}, {3, 1, 4096}, {2, 70000}})
      for (int64_t every : {1, 5}) {
        const GraphSpec spec = network(type, shape);
        auto module = (*device)->compile(spec, every);
        ASSERT_TRUE(module) << module.error().str();
        EngineOptions options;
        options.delayedScaling = every;
        auto artifact = compileSpec(spec, *reference, options);
        ASSERT_TRUE(artifact) << artifact.error().str();
        auto model = makeModule(*std::move(artifact));
        ASSERT_TRUE(model);
        const int runs = module->get()->tensors(0)[0].type.bytes() > 100000 ? 3 : 18; // the interpreter is slow
        for (int run = 0; run < runs; ++run) {
          const double size = std::pow(2.0, run % 5);
          const std::vector<HostTensor> in{normalTensor({type, shape}, size, bits),
                                           normalTensor({type, shape}, 200 * size, bits)};
          auto got = (*device)->run(**module, in, {}, run % 2);
          ASSERT_TRUE(got) << got.error().str();
          auto want = (*host)->run(**model, in, {}, false);
          ASSERT_TRUE(want) << want.error().str();
          ASSERT_EQ(got->size(), 6u);
          for (size_t i = 0; i < got->size(); ++i)
            ASSERT_EQ((*got)[i].data, (*want)[i].data)
                << dtypeName(type) << " " << str(shape) << ", run " << run << ", output " << i;
          for (const auto &[name, bytes] : std::vector<std::pair<std::string, size_t>>{
                   {"history", 3 * 16 * 4}, {"scale", 3 * 4}, {"overflows", 3 * 8}, {"runs", 8}})
            ASSERT_EQ(read(**module, "delayed." + name, bytes), read(**model, "delayed." + name, bytes))
                << dtypeName(type) << " " << str(shape) << ", run " << run << ", " << name;
        }
      }
}

} // namespace
