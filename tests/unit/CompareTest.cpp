// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What verify lets a target's result differ from the reference by.
#include "frontend/cli/Compare.h"
#include "frontend/api/Builder.h"
#include "ir/interp/Convert.h"

#include <gtest/gtest.h>

#include <cmath>

using namespace rl;
using namespace rl::cli;

namespace {

Exactness of(GraphBuilder &g) {
  Result<GraphSpec> spec = g.build();
  Result<Graph> graph = spec ? resolve(*spec) : Result<Graph>(spec.error());
  if (!graph) {
    ADD_FAILURE() << graph.error().str();
    return {};
  }
  return exactness(*graph).at(0);
}

Exactness product(int64_t k) {
  GraphBuilder g("product");
  auto x = g.input("x", DType::F32, {4, k}), w = g.input("w", DType::F32, {k, 4});
  g.output(g.matmul(x, w), "y");
  return of(g);
}

/// Of values of 1 and one that should be 0.
bool within(double zero, const Exactness &e) {
  std::vector<float> wanted(100, 1), got(100, 1);
  wanted[7] = 0;
  got[7] = static_cast<float>(zero);
  Tolerance tolerance;
  tolerance.output = e;
  return compare({DType::F32, {100}}, got.data(), wanted.data(), wanted.data(), tolerance).within;
}

TEST(Compare, LongSumsMayCancelLess) {
  EXPECT_EQ(product(4104).terms, 4104);
  EXPECT_EQ(product(4104).products, 1);
  EXPECT_TRUE(within(2e-6, product(256)));
  EXPECT_FALSE(within(8e-6, product(256)));
  EXPECT_TRUE(within(2e-5, product(4104)));
  EXPECT_FALSE(within(4e-5, product(4104)));
}

TEST(Compare, WhatNudgesMoveMayBeFartherOff) {
  std::vector<float> wanted{18, 1000}, got{18.002f, 1000}, nudged{18.004f, 999.996f};
  Tolerance t;
  t.output.inexact = true;
  auto one = [&] { return compare({DType::F32, {}}, got.data(), wanted.data(), wanted.data(), t).within; };
  EXPECT_FALSE(one());
  t.nudged = {nudged.data()};
  EXPECT_TRUE(one());
  got[0] = 18.005f;
  EXPECT_FALSE(one());
  got[0] = 18.002f;
  t.relative = 1e-5; // asked for
  EXPECT_FALSE(one());
  t.relative = -1;
  t.output.inexact = false;
  EXPECT_FALSE(one()) << "what is exact must be equal";
}

// A large element of a result in f32 that was bf16 on the way, between kernels: a step of bf16 of its own, not of the others.
TEST(Compare, WhatWasNarrowOnTheWayIsAStepBeside) {
  std::vector<float> wanted(1000, 1), got(1000, 1);
  wanted[3] = 1000;
  Tolerance t;
  t.output = {.inexact = true, .narrow = true, .bf16 = true};
  t.severalKernels = true;
  auto within = [&](float value) {
    got[3] = value;
    return compare({DType::F32, {1000}}, got.data(), wanted.data(), wanted.data(), t).within;
  };
  EXPECT_TRUE(within(1003.5f));
  EXPECT_FALSE(within(1009));
  t.output.bf16 = false; // f16
  EXPECT_TRUE(within(1000.4f));
  EXPECT_FALSE(within(1003.5f));
  t.severalKernels = false;
  EXPECT_FALSE(within(1000.4f)) << "one kernel keeps f32 within";
}

TEST(Compare, ErrorsAreRelativeToWhatIsThere) {
  const float inf = HUGE_VALF, nan = std::nanf("");
  auto sum = [](std::vector<float> got, std::vector<float> wanted) {
    ErrorSum s;
    s.add({DType::F32, {static_cast<int64_t>(got.size())}}, got.data(), wanted.data());
    return s;
  };
  EXPECT_NEAR(sum({3, 5}, {3, 4}).relative(), 0.2, 1e-6);
  EXPECT_EQ(sum({3, 4}, {3, 4}).relative(), 0);
  EXPECT_EQ(sum({3, nan, inf, -inf}, {3, nan, inf, -inf}).relative(), 0);
  EXPECT_EQ(sum({3, nan, inf, -inf}, {3, nan, inf, -inf}).leftOut(), 3);
  for (float other : {1.0f, nan, -inf})
    EXPECT_EQ(sum({3, other}, {3, inf}).relative(), HUGE_VAL) << other;
  EXPECT_EQ(sum({3, inf}, {3, 1}).relative(), HUGE_VAL);
  EXPECT_EQ(sum({1, 0}, {0, 0}).relative(), HUGE_VAL);
  EXPECT_FALSE(sum({0, nan}, {0, nan}).hasValues());
  EXPECT_TRUE(sum({0, 1}, {0, 1}).hasValues());
}

TEST(Compare, CodesBehindSixteenBitsAreOftenAStepBeside) {
  std::vector<int8_t> wanted(1000, 5), got(wanted);
  for (int i = 0; i < 50; ++i)
    got[static_cast<size_t>(20 * i)] = 6;
  Tolerance t;
  t.output.inexact = true;
  auto is = [&] { return compare({DType::I8, {1000}}, got.data(), wanted.data(), wanted.data(), t).within; };
  EXPECT_FALSE(is());
  t.output.narrow = true;
  EXPECT_FALSE(is());
  t.output.step = 0x1p-4;
  EXPECT_TRUE(is());
  got[3] = 7; // two steps
  EXPECT_FALSE(is());
}

TEST(Compare, CodesOfWhatCancels) {
  auto codes = [](std::vector<float> values) {
    std::vector<uint8_t> out(values.size());
    for (size_t i = 0; i < values.size(); ++i)
      storeElement(out.data(), DType::F8E5M2, static_cast<int64_t>(i), values[i]);
    return out;
  };
  const std::vector<uint8_t> wanted = codes({16384, 48, -8192, 64}), nudged = codes({16384, 64, -8192, 40});
  std::vector<uint8_t> got = codes({16384, 96, -8192, 64});
  Tolerance t;
  t.output.inexact = true;
  auto is = [&] { return compare({DType::F8E5M2, {4}}, got.data(), wanted.data(), wanted.data(), t).within; };
  EXPECT_FALSE(is());
  t.nudged = {nudged.data()};
  EXPECT_TRUE(is());
  got = codes({16384, 48, -8192, 512});
  EXPECT_FALSE(is());
}

TEST(Compare, TermsOfLayoutsAndAttention) {
  GraphBuilder g("transposed");
  auto x = g.input("x", DType::F32, {3000, 4}), w = g.input("w", DType::F32, {3000, 5});
  MatmulOptions options;
  options.transposeA = true;
  g.output(g.relu(g.matmul(x, w, options)), "y");
  EXPECT_EQ(of(g).terms, 3000);

  GraphBuilder a("attention");
  auto q = a.input("q", DType::F32, {2, 7, 64}), k = a.input("k", DType::F32, {2, 900, 64}),
       v = a.input("v", DType::F32, {2, 900, 64});
  a.output(a.scaledDotProductAttention(q, k, v), "y");
  EXPECT_EQ(of(a).terms, 900);

  GraphBuilder none("none");
  none.output(none.exp(none.input("x", DType::F32, {3000})), "y");
  EXPECT_EQ(of(none).terms, 0);
}

} // namespace
