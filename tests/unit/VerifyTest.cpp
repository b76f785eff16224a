// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// verify's comparison of whole runs: results that are right, however unlike the reference's, and mistakes beside each of them.
#include "frontend/api/Builder.h"
#include "frontend/cli/Compare.h"
#include "ir/interp/Convert.h"
#include "ir/interp/Interpreter.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

using namespace rl;
using namespace rl::cli;

namespace {

HostTensor tensor(DType dtype, std::vector<int64_t> shape, const std::function<double(int64_t)> &value) {
  HostTensor t{{dtype, std::move(shape)}, {}};
  t.data.resize(static_cast<size_t>(t.type.bytes()));
  for (int64_t i = 0; i < t.type.elements(); ++i)
    storeElement(t.data.data(), dtype, i, value(i));
  return t;
}

std::vector<double> valuesOf(const HostTensor &t) {
  std::vector<double> out;
  for (int64_t i = 0; i < t.type.elements(); ++i)
    out.push_back(loadElement(t.data.data(), t.type.dtype, i));
  return out;
}

/// A number in [-1, 1) that looks random.
double noise(int64_t i) {
  uint64_t z = static_cast<uint64_t>(i + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>(z >> 11) * 0x1p-52 - 1;
}

/// A graph of one output and its data.
struct Compared {
  Graph graph;
  std::vector<HostTensor> inputs;

  Compared(GraphBuilder &g, std::vector<HostTensor> inputs, bool strict = false) : inputs(std::move(inputs)) {
    Result<GraphSpec> spec = g.build();
    if (spec && strict)
      spec->strict = true;
    Result<Graph> made = spec ? resolve(*spec) : Result<Graph>(spec.error());
    if (made)
      graph = *std::move(made);
    else
      ADD_FAILURE() << made.error().str();
  }
  HostTensor wanted(Intermediates kind = Intermediates::Rounded) const {
    return (*interpret(graph, inputs, {}, {}, kind))[0];
  }
  Comparison with(const HostTensor &got) const {
    auto references = References::make(graph, true, [&](const Graph &of, Intermediates kind, uint64_t nudging) {
      return interpret(of, inputs, {}, {}, kind, nudging);
    });
    Result<Comparison> c =
        references ? references->compare(0, got.data.data(), -1, true) : Result<Comparison>(references.error());
    if (!c) {
      ADD_FAILURE() << c.error().str();
      return {};
    }
    return *c;
  }
  bool holds(const std::vector<double> &got) const {
    return with(tensor(graph.type(graph.outputs[0]).dtype, graph.type(graph.outputs[0]).shape,
                       [&](int64_t i) { return got[static_cast<size_t>(i)]; }))
        .within;
  }
};

/// Adds as tensor cores do, that cut off what f32 has no place for.
float addCut(float a, double b) {
  const double sum = static_cast<double>(a) + b;
  const auto nearest = static_cast<float>(sum);
  return std::fabs(nearest) > std::fabs(sum) ? std::nextafterf(nearest, 0) : nearest;
}

TEST(Verify, ScaledSumsMayBeCutOff) {
  constexpr int64_t M = 8, N = 16, K = 600, B = (K + 127) / 128;
  GraphBuilder g("scaled");
  auto a = g.input("a", DType::F8E4M3, {M, K}), b = g.input("b", DType::F8E4M3, {N, K}),
       sa = g.input("sa", DType::F32, {M, B}), sb = g.input("sb", DType::F32, {1, B});
  ScaledMatmulOptions options;
  options.granularityA = options.granularityB = Granularity::Block;
  options.blockA = {1, 128}, options.blockB = {128, 128};
  options.transposeB = true;
  g.output(g.scaledMatmul(a, b, sa, sb, options), "y");
  std::vector<HostTensor> in{tensor(DType::F8E4M3, {M, K}, [](int64_t i) { return 8 * noise(i); }),
                             tensor(DType::F8E4M3, {N, K}, [](int64_t i) { return 8 * noise(i + 9999); }),
                             tensor(DType::F32, {M, B}, [](int64_t i) { return 1 + 0.5 * noise(i + 5); }),
                             tensor(DType::F32, {1, B}, [](int64_t i) { return 1 + 0.5 * noise(i + 77); })};
  const Compared scaled(g, in);
  const std::vector<double> va = valuesOf(in[0]), vb = valuesOf(in[1]), vsa = valuesOf(in[2]), vsb = valuesOf(in[3]);
  auto product = [&](int64_t terms, int64_t shift, double lastScale) {
    std::vector<double> y;
    for (int64_t m = 0; m < M; ++m)
      for (int64_t n = 0; n < N; ++n) {
        float sum = 0;
        double some = 0; // that are added exactly
        for (int64_t k = 0; k < terms; ++k) {
          const int64_t row = std::min(m + shift, M - 1), block = k / 128;
          some += va[static_cast<size_t>(row * K + k)] * vb[static_cast<size_t>(n * K + k)] *
                  vsa[static_cast<size_t>(row * B + block)] * vsb[static_cast<size_t>(block)] *
                  (block == B - 1 ? lastScale : 1);
          if (k % 8 == 7 || k + 1 == terms) {
            sum = addCut(sum, some);
            some = 0;
          }
        }
        y.push_back(sum);
      }
    return y;
  };
  EXPECT_TRUE(scaled.holds(product(K, 0, 1)));
  EXPECT_FALSE(scaled.holds(product(K - 1, 0, 1))) << "the last of K is lost";
  EXPECT_FALSE(scaled.holds(product(K, 1, 1))) << "rows off by one";
  EXPECT_FALSE(scaled.holds(product(K, 0, 1.0005))) << "a scale of one block is wrong";
  std::vector<double> one = product(K, 0, 1);
  one[37] *= 1.0005;
  EXPECT_FALSE(scaled.holds(one));
}

TEST(Verify, LargeLogitsMoveWeights) {
  constexpr int64_t M = 6, N = 20, K = 300;
  GraphBuilder g("logits");
  auto x = g.input("x", DType::F32, {M, K}), w = g.input("w", DType::F32, {K, N});
  g.output(g.softmax(g.matmul(x, w), 1), "y");
  // Two columns are alike but for a little, so that no logit is the only one.
  std::vector<HostTensor> in{tensor(DType::F32, {M, K}, [](int64_t i) { return 30 * (1 + noise(i)); }),
                             tensor(DType::F32, {K, N}, [](int64_t i) {
                               const int64_t k = i / N, n = i % N;
                               return noise(k * N + n / 2) + (k == 0 ? 0.01 * noise(n) : 0);
                             })};
  const Compared logits(g, in);
  const std::vector<double> vx = valuesOf(in[0]), vw = valuesOf(in[1]);
  auto softmax = [&](int64_t terms, double scale, int64_t shift) {
    std::vector<double> y;
    for (int64_t m = 0; m < M; ++m) {
      std::vector<double> row;
      double top = -HUGE_VAL, sum = 0;
      for (int64_t n = 0; n < N; ++n) {
        float logit = 0;
        for (int64_t k = 0; k < terms; ++k)
          logit += static_cast<float>(vx[static_cast<size_t>(m * K + k)] * vw[static_cast<size_t>(k * N + n)]);
        row.push_back(logit * scale);
        top = std::max(top, row.back());
      }
      for (double v : row)
        sum += std::exp(v - top);
      for (int64_t n = 0; n < N; ++n)
        y.push_back(std::exp(row[static_cast<size_t>((n + shift) % N)] - top) / sum);
    }
    return y;
  };
  EXPECT_TRUE(logits.holds(softmax(K, 1, 0)));
  EXPECT_FALSE(logits.holds(softmax(K - 1, 1, 0))) << "the last of K is lost";
  EXPECT_FALSE(logits.holds(softmax(K, 1.01, 0))) << "a wrong scale";
  EXPECT_FALSE(logits.holds(softmax(K, 1, 1))) << "columns off by one";
}

TEST(Verify, AttentionOfLargeScores) {
  constexpr int64_t L = 5, S = 33, E = 16;
  GraphBuilder g("attention");
  auto q = g.input("q", DType::F32, {1, L, E}), k = g.input("k", DType::F32, {1, S, E}),
       v = g.input("v", DType::F32, {1, S, E});
  g.output(g.scaledDotProductAttention(q, k, v), "y");
  std::vector<HostTensor> in{
      tensor(DType::F32, {1, L, E}, [](int64_t i) { return 200 * noise(i); }),
      tensor(DType::F32, {1, S, E}, [](int64_t i) { return 20 * noise(i % E + (i / E / 8) * E) + 1e-3 * noise(i); }),
      tensor(DType::F32, {1, S, E}, [](int64_t i) { return noise(i + 5555); })};
  const Compared attention(g, in);
  const std::vector<double> vq = valuesOf(in[0]), vk = valuesOf(in[1]), vv = valuesOf(in[2]);
  auto run = [&](double scale, int64_t keys) {
    std::vector<double> y;
    for (int64_t l = 0; l < L; ++l) {
      std::vector<double> weights;
      double top = -HUGE_VAL, sum = 0;
      for (int64_t s = 0; s < keys; ++s) {
        float score = 0;
        for (int64_t e = 0; e < E; ++e)
          score += static_cast<float>(vq[static_cast<size_t>(l * E + e)] * vk[static_cast<size_t>(s * E + e)]);
        weights.push_back(static_cast<float>(score * scale));
        top = std::max(top, weights.back());
      }
      for (double &w : weights)
        sum += w = std::exp(w - top);
      for (int64_t e = 0; e < E; ++e) {
        double r = 0;
        for (int64_t s = 0; s < keys; ++s)
          r += weights[static_cast<size_t>(s)] / sum * vv[static_cast<size_t>(s * E + e)];
        y.push_back(r);
      }
    }
    return y;
  };
  EXPECT_TRUE(attention.holds(run(0.25, S)));
  EXPECT_FALSE(attention.holds(run(0.27, S))) << "a wrong scale";
  EXPECT_FALSE(attention.holds(run(0.25, S - 8))) << "the last keys are lost";
}

TEST(Verify, LargestHalvesBesideInfinity) {
  for (double sign : {1.0, -1.0})
    for (bool strict : {false, true}) {
      // 65,520 is halfway from the largest number to what would be the next: infinity, or 65,504 where f32 has a little less.
      GraphBuilder g("gate");
      auto x = g.input("x", DType::F16, {4, 2}), w = g.input("w", DType::F16, {2, 1}),
           gate = g.input("g", DType::F16, {4, 1});
      auto up = g.matmul(x, w);
      g.output(g.cast(g.mul(g.sigmoid(gate), up), DType::F32), "y");
      const Compared gated(g,
                           {tensor(DType::F16, {4, 2},
                                   [&](int64_t i) {
                                     return sign * (i == 7 ? 0 : i % 2 ? 16 : i == 6 ? 60000 : 65504);
                                   }),
                            tensor(DType::F16, {2, 1}, [](int64_t) { return 1; }),
                            tensor(DType::F16, {4, 1}, [](int64_t i) { return i == 1 ? 20.0 : 0.0; })},
                           strict);
      const double inf = HUGE_VAL;
      auto with = [&](int64_t at, double value) {
        std::vector<double> got = valuesOf(gated.wanted());
        EXPECT_EQ(got[0], sign * inf);
        EXPECT_EQ(got[3], sign * 30000);
        got[static_cast<size_t>(at)] = sign * value;
        return gated.holds(got);
      };
      EXPECT_TRUE(with(0, inf));
      EXPECT_TRUE(with(0, 32752)) << strict;
      EXPECT_TRUE(with(1, 65504)) << strict;
      EXPECT_FALSE(with(0, 32000)) << "not beside it";
      EXPECT_FALSE(with(0, -inf)) << "the other end";
      EXPECT_FALSE(with(1, -65504));
      EXPECT_FALSE(with(1, std::nan("")));
      EXPECT_FALSE(with(3, inf)) << "far from the end";
      EXPECT_FALSE(with(3, std::nan("")));
      EXPECT_FALSE(with(3, 30100));
    }
}

TEST(Verify, SumsOfWhatOverflowsInPart) {
  GraphBuilder g("sum");
  g.output(g.sum(g.input("x", DType::F32, {2, 8}), {.dims = {1}}), "y");
  const Compared sums(g,
                      {tensor(DType::F32, {2, 8}, [](int64_t i) { return i < 8 ? (i < 4 ? 1.5e38 : -1.25e38) : 1; })});
  const double inf = HUGE_VAL;
  EXPECT_TRUE(sums.holds({1e38, 8}));
  EXPECT_TRUE(sums.holds({std::nan(""), 8})) << "half of it is infinite, and the other half";
  EXPECT_TRUE(sums.holds({inf, 8}));
  EXPECT_FALSE(sums.holds({2e38, 8}));
  EXPECT_FALSE(sums.holds({1e38, inf}));
  EXPECT_FALSE(sums.holds({1e38, std::nan("")}));
  EXPECT_FALSE(sums.holds({1e38, 7}));
}

TEST(Verify, MeansOfWhatOverflows) {
  GraphBuilder g("mean");
  g.output(g.mean(g.input("x", DType::F32, {2, 8}), {.dims = {1}}), "y");
  const Compared means(g, {tensor(DType::F32, {2, 8}, [](int64_t i) { return i < 8 ? 1e38 : 1; })});
  EXPECT_TRUE(means.holds({1e38, 1}));
  EXPECT_TRUE(means.holds({HUGE_VAL, 1}));
  EXPECT_FALSE(means.holds({0.8e38, 1}));
  EXPECT_FALSE(means.holds({1e38, HUGE_VAL}));
}

TEST(Verify, NormsOfWhatIsConstant) {
  GraphBuilder g("norm");
  g.output(g.layerNorm(g.input("x", DType::F32, {2, 512}), LayerNormOptions{1e-12}), "y");
  const Compared norm(g, {tensor(DType::F32, {2, 512}, [](int64_t i) { return i < 512 ? 0.1 : noise(i); })});
  std::vector<double> got = valuesOf(norm.wanted());
  for (size_t i = 0; i < 512; ++i)
    got[i] += 1e-7 * 0.1 / 1e-6; // the mean of equal numbers is one of them but for roundings
  EXPECT_TRUE(norm.holds(got));
  for (size_t i = 0; i < 512; ++i)
    got[i] += 1;
  EXPECT_FALSE(norm.holds(got));
  got = valuesOf(norm.wanted());
  got[600] *= 1.001;
  EXPECT_FALSE(norm.holds(got));
}

TEST(Verify, PlacesOfWhatIsNearlyTheGreatest) {
  GraphBuilder g("greatest");
  auto x = g.input("x", DType::F32, {2, 6});
  g.output(g.argmax(g.exp(x), 1), "y");
  const Compared greatest(g, {tensor(DType::F32, {2, 6}, [](int64_t i) {
                            return i == 1 ? 1 : i == 4 ? 1 + 1e-7 : i == 9 ? 3 : 0.5;
                          })});
  EXPECT_EQ(valuesOf(greatest.wanted()), (std::vector<double>{4, 3}));
  EXPECT_TRUE(greatest.holds({1, 3}));
  EXPECT_FALSE(greatest.holds({2, 3}));
  EXPECT_FALSE(greatest.holds({1, 2})) << "one of them is clear";
  EXPECT_FALSE(greatest.holds({1, 6})) << "there is no such place";
  EXPECT_FALSE(greatest.holds({-1, 3}));
}

TEST(Verify, SmallRowsBesideLargeOnes) {
  GraphBuilder g("rows");
  auto x = g.input("x", DType::F32, {4, 64});
  g.output(g.exp(x), "y");
  const Compared rows(g, {tensor(DType::F32, {4, 64}, [](int64_t i) { return noise(i) + (i < 64 ? 40 : 0); })});
  std::vector<double> got = valuesOf(rows.wanted());
  EXPECT_TRUE(rows.holds(got));
  got[100] *= 1.01; // little beside the first row
  EXPECT_FALSE(rows.holds(got));
}

TEST(Verify, FactorsThatRoundingsHide) {
  GraphBuilder g("chain");
  auto x = g.input("x", DType::BF16, {16, 64}), w = g.input("w", DType::BF16, {64, 64});
  g.output(g.rmsNorm(g.gelu(g.matmul(g.silu(g.matmul(x, w)), w))), "y");
  const Compared chain(g, {tensor(DType::BF16, {16, 64}, noise),
                           tensor(DType::BF16, {64, 64}, [](int64_t i) { return noise(i + 7777); })});
  const std::vector<double> rounded = valuesOf(chain.wanted()), kept = valuesOf(chain.wanted(Intermediates::KeepF32));
  EXPECT_TRUE(chain.holds(kept));
  std::vector<double> got = rounded;
  for (size_t i = 0; i < got.size(); ++i)
    got[i] *= 1 + (i % 2 ? 0x1p-7 : -0x1p-7);
  EXPECT_TRUE(chain.holds(got)) << "either way";
  for (size_t i = 0; i < got.size(); ++i)
    got[i] = rounded[i] * (1 + 0x1p-7);
  EXPECT_FALSE(chain.holds(got)) << "one way";
}

// Tensor cores make all sums less where they cut off what is below 13 bits.
TEST(Verify, FastSumsAreAllLess) {
  for (bool fast : {false, true}) {
    GraphBuilder g("fast");
    auto a = g.input("a", DType::F8E4M3, {8, 2048}), b = g.input("b", DType::F8E4M3, {16, 2048}),
         one = g.input("s", DType::F32, {});
    ScaledMatmulOptions options;
    options.transposeB = true;
    options.outDtype = DType::BF16;
    options.fastAccumulate = fast;
    g.output(g.scaledMatmul(a, b, one, one, options), "y");
    const Compared product(g, {tensor(DType::F8E4M3, {8, 2048}, [](int64_t i) { return 2 + noise(i); }),
                               tensor(DType::F8E4M3, {16, 2048}, [](int64_t i) { return 2 + noise(i + 999); }),
                               tensor(DType::F32, {}, [](int64_t) { return 1; })});
    std::vector<double> got = valuesOf(product.wanted());
    for (double &v : got)
      v *= 1 - 0x1p-8;
    EXPECT_EQ(product.holds(got), fast);
    for (double &v : got)
      v *= 0.97;
    EXPECT_FALSE(product.holds(got)) << "more than that";
  }
}

} // namespace
