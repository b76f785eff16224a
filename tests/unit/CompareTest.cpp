// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What verify lets a target's result differ from the reference by.
#include "frontend/cli/Compare.h"
#include "frontend/api/Builder.h"

#include <gtest/gtest.h>

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
