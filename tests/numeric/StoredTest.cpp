// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What is true of values however they are rounded, where the kernels that store them also reduce them: the largest element of a row is
// none above the row's maximum, and probabilities add up to one. Logits are in the hundreds, where a step of 16 bits is more than one.
// RIDGELINE_TEST_TARGET=cuda runs it on a GPU.
#include "frontend/api/Builder.h"
#include "frontend/api/Engine.h"
#include "ir/interp/Convert.h"
#include "tests/numeric/support/Device.h"
#include "tests/numeric/support/RandomData.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

using namespace rl;
using namespace rl::numeric;

namespace {

HostTensor random(DType type, const std::vector<int64_t> &shape, double size, unsigned seed) {
  std::mt19937 bits(seed);
  return normalTensor({type, shape}, size, bits);
}

std::vector<HostTensor> outputsOf(const GraphBuilder &g, const std::vector<HostTensor> &inputs) {
  auto device = Device::ofEnvironment();
  auto spec = g.build();
  if (!device || !spec) {
    ADD_FAILURE() << (spec ? device.error().str() : spec.error().str());
    return {};
  }
  auto module = (*device)->compile(*spec);
  if (!module) {
    ADD_FAILURE() << module.error().str();
    return {};
  }
  auto out = (*device)->run(**module, inputs, {}, false);
  EXPECT_TRUE(out) << out.error().str();
  return out ? *out : std::vector<HostTensor>();
}

double element(const HostTensor &t, int64_t i) { return loadElement(t.data.data(), t.type.dtype, i); }

double sumOf(const HostTensor &t) {
  double sum = 0;
  for (int64_t i = 0; i < t.type.elements(); ++i)
    sum += element(t, i);
  return sum;
}

double largestOf(const HostTensor &t) {
  double most = -INFINITY;
  for (int64_t i = 0; i < t.type.elements(); ++i)
    most = std::max(most, element(t, i));
  return most;
}

class Stored : public ::testing::TestWithParam<DType> {};

// The product's kernel reduces rows of its tiles and stores them; another goes over the columns.
TEST_P(Stored, ASoftmaxBehindAProduct) {
  for (int64_t n : {32, 64, 128})
    for (int64_t m : {64, 200}) {
      GraphBuilder g("stored");
      auto x = g.input("x", GetParam(), {m, 512}), w = g.input("w", GetParam(), {n, 512});
      auto p = g.matmul(x, w, {.transposeB = true});
      g.output(g.sum(g.softmax(p, -1), {.dims = {0}}), "columns");
      g.output(g.amax(g.logSoftmax(p, -1), {.dims = {0}}), "largest");
      std::vector<HostTensor> out =
          outputsOf(g, {random(GetParam(), {m, 512}, 6, 1), random(GetParam(), {n, 512}, 6, 2)});
      ASSERT_EQ(out.size(), 2u);
      // Each of n columns is rounded to 16 bits, by a 256th at most.
      EXPECT_NEAR(sumOf(out[0]), static_cast<double>(m), static_cast<double>(m) / 200) << m << " x " << n;
      EXPECT_LE(largestOf(out[1]), 0) << m << " x " << n;
    }
}

// A sum is an output, and reduced by a row kernel; columns are reduced by another, which may compute the sum again.
TEST_P(Stored, AMaximumBesideWhatItIsOf) {
  for (int64_t n : {64, 1000, 4096})
    for (bool maximumIsStored : {false, true}) {
      GraphBuilder g("stored");
      auto a = g.input("a", GetParam(), {96, n}), b = g.input("b", GetParam(), {96, n});
      auto h = a + b;
      auto most = g.amax(h, {.dims = {1}, .keepdim = true});
      g.output(h, "h");
      if (maximumIsStored)
        g.output(most, "most");
      g.output(g.amax(h - most, {.dims = {0}}), "columns");
      std::vector<HostTensor> out =
          outputsOf(g, {random(GetParam(), {96, n}, 300, 3), random(GetParam(), {96, n}, 0.7, 4)});
      ASSERT_EQ(out.size(), maximumIsStored ? 3u : 2u);
      EXPECT_EQ(largestOf(out.back()), 0) << n;
      if (!maximumIsStored)
        continue;
      for (int64_t row = 0; row < 96; ++row) {
        double found = -INFINITY;
        for (int64_t i = 0; i < n; ++i)
          found = std::max(found, element(out[0], row * n + i));
        EXPECT_EQ(element(out[1], row), found) << row << " of " << n;
      }
    }
}

INSTANTIATE_TEST_SUITE_P(Types, Stored, ::testing::Values(DType::BF16, DType::F16),
                         [](const auto &info) { return std::string(dtypeName(info.param)); });

} // namespace
