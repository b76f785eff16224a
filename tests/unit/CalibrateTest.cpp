// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Calibration: percentiles against sorted values, rounding and scales against the interpreter, which scales a graph gets.
#include "frontend/calibrate/Calibration.h"
#include "frontend/json/JsonReader.h"
#include "ir/interp/Convert.h"
#include "ir/interp/Interpreter.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>

using namespace rl;
using namespace rl::calibrate;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int64_t kNoBlock[2] = {1, 1};

std::vector<float> gauss(size_t n, uint32_t seed = 1, float deviation = 1) {
  std::mt19937 bits(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> out(n);
  for (float &v : out)
    v = normal(bits);
  return out;
}

/// The least magnitude that `percent` per cent of the values do not exceed, by sorting.
float exactPercentile(std::vector<float> x, double percent) {
  for (float &v : x)
    v = std::fabs(v);
  std::sort(x.begin(), x.end());
  size_t rank = 0; // of 100,000ths, so that no share is rounded
  const auto parts = static_cast<size_t>(std::llround(percent * 1000));
  while (rank < x.size() && rank * 100000 < parts * x.size())
    ++rank;
  return x[rank ? rank - 1 : 0];
}

constexpr double kPercents[] = {0, 1, 50, 90, 99, 99.9, 99.99, 100};

TEST(Magnitudes, PercentilesBesideSortedValues) {
  for (size_t n : {1, 2, 7, 1000, 10000, 123457}) {
    for (float deviation : {1e-30f, 1.0f, 1e30f}) {
      const std::vector<float> x = gauss(n, static_cast<uint32_t>(n), deviation);
      Magnitudes m(false);
      m.add(x.data(), n / 3); // in pieces
      m.add(x.data() + n / 3, n - n / 3);
      EXPECT_EQ(m.finite(), static_cast<int64_t>(n));
      EXPECT_EQ(m.amax(), exactPercentile(x, 100));
      for (double p : kPercents) {
        const float want = exactPercentile(x, p), got = m.percentile(p);
        EXPECT_GE(got, want) << n << " values, " << p;
        EXPECT_LE(got, want * (1 + 0x1p-7f)) << n << " values, " << p;
        EXPECT_LE(got, m.amax());
      }
    }
  }
}

TEST(Magnitudes, OfBf16TheyAreExact) {
  std::vector<float> x = gauss(5000);
  for (float &v : x)
    v = bf16ToF32(f32ToBf16(v));
  Magnitudes m(true);
  m.add(x.data(), x.size());
  for (double p : kPercents)
    EXPECT_EQ(m.percentile(p), exactPercentile(x, p)) << p;
}

TEST(Magnitudes, AShareIsNotRoundedUp) {
  std::vector<float> x(1000, 1.0f);
  x[500] = 100; // the 1,000th of 1,000
  Magnitudes m(true);
  m.add(x.data(), x.size());
  EXPECT_EQ(m.percentile(99.9), 1);
  EXPECT_EQ(m.percentile(99.91), 100);
}

TEST(Magnitudes, NothingZerosAndNotFinite) {
  Magnitudes none(false);
  none.add(nullptr, 0);
  EXPECT_EQ(none.finite(), 0);
  EXPECT_EQ(none.amax(), 0);
  EXPECT_EQ(none.percentile(50), 0);

  Magnitudes zeros(false);
  const float z[] = {0.0f, -0.0f, 0.0f};
  zeros.add(z, 3);
  EXPECT_EQ(zeros.finite(), 3);
  EXPECT_EQ(zeros.percentile(99.99), 0);

  Magnitudes mixed(false);
  const float all[] = {kNan, -kNan, kInf, -kInf, -kInf, -3, 2, std::numeric_limits<float>::max()};
  mixed.add(all, 8);
  EXPECT_EQ(mixed.nans(), 2);
  EXPECT_EQ(mixed.infinite(), 3);
  EXPECT_EQ(mixed.finite(), 3);
  EXPECT_EQ(mixed.amax(), std::numeric_limits<float>::max());
  EXPECT_EQ(mixed.percentile(100), std::numeric_limits<float>::max());

  Magnitudes lost(false);
  lost.add(all, 5);
  EXPECT_EQ(lost.finite(), 0);
  EXPECT_EQ(lost.percentile(99), 0);

  Magnitudes least(false);
  const float denormal = std::numeric_limits<float>::denorm_min();
  least.add(&denormal, 1);
  EXPECT_EQ(least.amax(), denormal);
  EXPECT_EQ(least.percentile(50), denormal);
}

/// One node on x in the interpreter: fake_quantize with these attributes, the scale dynamic or given.
std::vector<float> fakeQuantized(const std::vector<float> &x, const std::vector<int64_t> &shape,
                                 const std::string &attrs, const std::vector<float> &scale = {},
                                 const std::vector<int64_t> &scaleShape = {}) {
  const bool given = !scale.empty();
  const std::string json = R"({"ridgeline": 1, "name": "g", "inputs": {"x": {"dtype": "f32", "shape": )" + str(shape) +
                           "}" + (given ? R"(, "s": {"dtype": "f32", "shape": )" + str(scaleShape) + "}" : "") +
                           R"(}, "nodes": [{"op": "fake_quantize", "inputs": ["x")" + (given ? R"(, "s")" : "") +
                           R"(], "outputs": ["y"], "attrs": {)" + attrs + R"(}}], "outputs": ["y"]})";
  auto bytes = [](const std::vector<float> &v) {
    std::vector<std::byte> out(v.size() * sizeof(float));
    if (!out.empty())
      std::memcpy(out.data(), v.data(), out.size());
    return out;
  };
  auto spec = parseGraph(json);
  EXPECT_TRUE(spec) << spec.error().str();
  auto graph = resolve(*spec);
  EXPECT_TRUE(graph) << graph.error().str();
  std::vector<HostTensor> inputs{{{DType::F32, shape}, bytes(x)}};
  if (given)
    inputs.push_back({{DType::F32, scaleShape}, bytes(scale)});
  auto out = interpret(*graph, inputs, {});
  EXPECT_TRUE(out);
  std::vector<float> y(x.size());
  if (!y.empty())
    std::memcpy(y.data(), (*out)[0].data.data(), y.size() * sizeof(float));
  return y;
}

double noiseOf(const std::vector<float> &x, const std::vector<float> &y) {
  double sum = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double d = static_cast<double>(x[i]) - static_cast<double>(y[i]);
    sum += d * d;
  }
  return sum;
}

struct TypeCase {
  DType dtype;
  const char *name;
};
constexpr TypeCase kTypes[] = {{DType::F8E4M3, "f8e4m3"}, {DType::F8E5M2, "f8e5m2"}, {DType::I8, "i8"}};

TEST(Quality, RoundsAsTheInterpreterDoes) {
  // Every f16 value, and one scale that moves the ties away: each element by itself, so that no error hides in a sum.
  for (const TypeCase &type : kTypes)
    for (float scale : {1.0f, 0.37f, 300.0f}) {
      std::vector<float> x;
      for (uint32_t code = 0; code < 0x10000; ++code)
        if (const float v = f16ToF32(static_cast<uint16_t>(code)); std::isfinite(v))
          x.push_back(v);
      const auto n = static_cast<int64_t>(x.size());
      const std::vector<float> y = fakeQuantized(x, {n}, std::string(R"("dtype": ")") + type.name + "\"", {scale}, {});
      const Groups one({1}, Granularity::Tensor, 0, kNoBlock);
      int64_t wrong = 0;
      for (size_t i = 0; i < x.size(); ++i) {
        Quality q;
        add(q, &x[i], one, {scale}, type.dtype);
        wrong += q.noise != noiseOf({x[i]}, {y[i]});
      }
      EXPECT_EQ(wrong, 0) << type.name << " by " << scale;
    }
}

TEST(Quality, GroupsAndScalesAreTheFormats) {
  struct Case {
    std::string attrs;
    Grouping grouping;
  };
  const std::vector<Case> cases{{"", {}},
                                {R"(, "granularity": "axis", "axis": 0)", {Granularity::Axis, 0}},
                                {R"(, "granularity": "axis", "axis": 1)", {Granularity::Axis, 1}},
                                {R"(, "granularity": "axis", "axis": 2)", {Granularity::Axis, 2}},
                                {R"(, "granularity": "token")", {Granularity::Token}},
                                {R"(, "granularity": "block", "block": [1, 4])", {Granularity::Block, 0, {1, 4}}},
                                {R"(, "granularity": "block", "block": [2, 3])", {Granularity::Block, 0, {2, 3}}}};
  for (const std::vector<int64_t> &shape :
       {std::vector<int64_t>{3, 5, 7}, std::vector<int64_t>{1, 1, 1}, std::vector<int64_t>{2, 1, 9}}) {
    std::vector<float> x = gauss(static_cast<size_t>(shape[0] * shape[1] * shape[2]));
    for (size_t i = 0; i < x.size(); i += 3)
      x[i] *= 40;
    for (const TypeCase &type : kTypes)
      for (const char *scaleType : {"f32", "f8e8m0"})
        for (const Case &c : cases) {
          const std::string attrs =
              std::string(R"("dtype": ")") + type.name + R"(", "scale_dtype": ")" + scaleType + "\"" + c.attrs;
          const Groups groups(shape, c.grouping.granularity, c.grouping.axis, c.grouping.block);
          std::vector<float> scales(static_cast<size_t>(groups.count()));
          raise(scales, x.data(), groups);
          for (float &s : scales)
            s = scaleFor(s, type.dtype, *parseDType(scaleType));
          Quality q;
          add(q, x.data(), groups, scales, type.dtype);
          const double want = noiseOf(x, fakeQuantized(x, shape, attrs));
          EXPECT_NEAR(q.noise, want, 1e-12 * want) << attrs << " of " << str(shape);
          EXPECT_EQ(q.values, static_cast<int64_t>(x.size()));
          EXPECT_EQ(q.clipped, 0) << attrs;
          if (type.dtype != DType::I8)
            continue;
          Quality affine;
          add(affine, x.data(), groups, affineFor(x.data(), groups, *parseDType(scaleType)));
          const double other = noiseOf(x, fakeQuantized(x, shape, attrs + R"(, "scheme": "asymmetric")"));
          EXPECT_NEAR(affine.noise, other, 1e-12 * other) << attrs;
        }
  }
}

TEST(Quality, ScalesAtTheEnds) {
  EXPECT_EQ(scaleFor(0, DType::F8E4M3, DType::F32), 1);
  EXPECT_EQ(scaleFor(0, DType::I8, DType::F8E8M0), 1);
  EXPECT_EQ(scaleFor(std::numeric_limits<float>::denorm_min(), DType::I8, DType::F32),
            std::numeric_limits<float>::denorm_min());
  EXPECT_EQ(scaleFor(448 * 8, DType::F8E4M3, DType::F8E8M0), 8); // a power of two is not rounded up
  EXPECT_EQ(scaleFor(std::nextafter(448.0f * 8, kInf), DType::F8E4M3, DType::F8E8M0), 16);
  EXPECT_EQ(scaleFor(std::nextafter(448.0f * 8, 0.0f), DType::F8E4M3, DType::F8E8M0), 8);
  EXPECT_EQ(scaleFor(std::numeric_limits<float>::denorm_min(), DType::I8, DType::F8E8M0), 0x1p-127f);
}

TEST(Quality, ClippingIsWhatTheBoundsChange) {
  const Groups groups({4}, Granularity::Tensor, 0, kNoBlock);
  const float x[] = {127.25f, -127.5f, 128, 3};
  Quality q;
  add(q, x, groups, {1}, DType::I8);
  EXPECT_EQ(q.clipped, 2); // 127.25 is 127 with and without bounds
  const float y[] = {463, -464, 1e30f, kInf};
  Quality f;
  add(f, y, groups, {1}, DType::F8E4M3);
  EXPECT_EQ(f.clipped, 2);
  EXPECT_EQ(f.values, 3);
  EXPECT_DOUBLE_EQ(f.clippedShare(), 2.0 / 3);
}

TEST(Quality, SqnrWithoutNoiseOrSignal) {
  const Groups groups({2}, Granularity::Tensor, 0, kNoBlock);
  const float exact[] = {1, 127}, zero[] = {0, 0};
  Quality q, z, none;
  add(q, exact, groups, {1}, DType::I8);
  add(z, zero, groups, {1}, DType::I8);
  add(none, nullptr, Groups({0, 3}, Granularity::Token, 0, kNoBlock), {}, DType::I8);
  EXPECT_EQ(q.sqnr(), INFINITY);
  EXPECT_TRUE(std::isnan(z.sqnr()));
  EXPECT_TRUE(std::isnan(none.sqnr()));
  EXPECT_EQ(none.clippedShare(), 0);
}

//===------------------------------------------------------------------------------------------------------------------===//
// Sites
//===------------------------------------------------------------------------------------------------------------------===//

struct Found {
  GraphSpec spec;
  std::vector<Site> sites;
};

Found find(const std::string &json, const DimValues &dims = {}) {
  Found out;
  auto spec = parseGraph(json);
  EXPECT_TRUE(spec) << spec.error().str();
  auto graph = resolve(*spec, dims);
  EXPECT_TRUE(graph) << graph.error().str();
  out.spec = *spec;
  out.sites = findSites(*spec, *graph);
  return out;
}

std::string text(const std::vector<Grouping> &groupings) {
  std::string out;
  for (const Grouping &g : groupings)
    out += (out.empty() ? "" : ", ") + calibrate::str(g);
  return out;
}

TEST(Sites, WhichAndHow) {
  const Found f = find(R"({"ridgeline": 1, "name": "g",
    "inputs": {"x": {"dtype": "bf16", "shape": ["B", 8]}},
    "parameters": {"w": {"dtype": "f32", "shape": [6, 8]}, "v": {"dtype": "f32", "shape": [8, 6]}},
    "dims": {"B": {"min": 1, "max": 64}},
    "nodes": [
      {"op": "scaled_matmul", "inputs": ["q", "wq", "s", "ws"], "outputs": ["y"], "attrs": {"granularity_a": "tensor",
       "granularity_b": "tensor", "transpose_b": true}},
      {"op": "quantize", "inputs": ["x"], "outputs": ["q", "s"], "attrs": {"dtype": "f8e4m3"}},
      {"op": "neg", "inputs": ["w"], "outputs": ["nw"]},
      {"op": "quantize", "inputs": ["nw"], "outputs": ["wq", "ws"], "attrs": {"dtype": "f8e4m3"}},
      {"op": "quantize", "inputs": ["x", 0.5], "outputs": ["g", "gs"], "attrs": {"dtype": "i8"}},
      {"op": "fake_quantize", "inputs": ["x"], "outputs": ["t"], "attrs": {"dtype": "i8", "granularity": "token"}},
      {"op": "fake_quantize", "inputs": ["w"], "outputs": ["k"], "attrs": {"dtype": "i8", "granularity": "block",
       "block": [4, 5]}},
      {"op": "fake_quantize", "inputs": ["x"], "outputs": ["a"], "attrs": {"dtype": "i8", "granularity": "axis", "axis": 0}},
      {"op": "fake_quantize", "inputs": ["x"], "outputs": ["c"], "attrs": {"dtype": "i8", "granularity": "axis", "axis": 1}},
      {"op": "fake_quantize", "inputs": ["x"], "outputs": ["n"], "attrs": {"dtype": "i8", "scheme": "asymmetric"}},
      {"op": "quantize", "inputs": ["v"], "outputs": ["vq", "vs"], "attrs": {"dtype": "f8e4m3"}},
      {"op": "scaled_matmul", "inputs": ["q", "vq", "s", "vs"], "outputs": ["u"], "attrs": {"granularity_a": "tensor",
       "granularity_b": "tensor"}},
      {"op": "fake_quantize", "inputs": [0.5], "outputs": ["l"], "attrs": {"dtype": "i8"}}],
    "outputs": ["y", "g", "t", "k", "a", "c", "n", "u", "l"]})",
                       {{"B", 4}});
  struct Want {
    const char *output, *tensor;
    bool constant, written;
    std::vector<int64_t> scale;
    int64_t channel;
    const char *finer;
  };
  // Scales of an operand along K are none of scaled_matmul's, so that the activation can have tokens only.
  const std::vector<Want> wanted{
      {"q", "x", false, true, {}, 1, "token"}, {"wq", "nw", true, true, {}, 0, "axis 0, token"},
      {"t", "x", false, false, {-1}, 1, ""},   {"k", "w", true, true, {2, 2}, 0, ""},
      {"a", "x", false, false, {-1}, 0, ""},   {"c", "x", false, true, {8}, 1, ""},
      {"n", "x", false, false, {}, 1, ""},     {"vq", "v", true, true, {}, 1, "axis 1"}};
  ASSERT_EQ(f.sites.size(), wanted.size());
  for (size_t i = 0; i < wanted.size(); ++i) {
    const Site &site = f.sites[i];
    EXPECT_EQ(site.output, wanted[i].output);
    EXPECT_EQ(site.tensor, wanted[i].tensor);
    EXPECT_EQ(f.spec.nodes[site.node].outputs[0], site.output);
    EXPECT_EQ(site.constant, wanted[i].constant) << site.output;
    EXPECT_EQ(site.staysDynamic.empty(), wanted[i].written) << site.output << ": " << site.staysDynamic;
    EXPECT_EQ(site.scaleShape, wanted[i].scale) << site.output;
    EXPECT_EQ(site.channelDim, wanted[i].channel) << site.output;
    EXPECT_EQ(text(site.finer), wanted[i].finer) << site.output;
  }
  const GraphSpec measured = measuring(f.spec, {"x", "nw"});
  EXPECT_TRUE(resolve(measured, {{"B", 4}}));
}

TEST(Sites, ScalesAreWritten) {
  Found f = find(R"({"ridgeline": 1, "name": "g", "inputs": {"x": {"dtype": "f32", "shape": [4, 2]}},
    "parameters": {"a.scale": {"dtype": "f32", "shape": [2]}},
    "nodes": [{"op": "fake_quantize", "inputs": ["x"], "outputs": ["t"], "attrs": {"dtype": "i8"}},
              {"op": "fake_quantize", "inputs": ["x"], "outputs": ["a"], "attrs": {"dtype": "i8", "granularity": "axis", "axis": -1}},
              {"op": "quantize", "inputs": ["x"], "outputs": ["m", "ms"], "attrs": {"dtype": "f8e4m3", "scale_dtype": "f8e8m0"}}],
    "outputs": ["t", "a", "m", "a.scale"]})");
  ASSERT_EQ(f.sites.size(), 3u);
  EXPECT_EQ(writeScale(f.spec, f.sites[0], {0.1f}), "");
  EXPECT_EQ(writeScale(f.spec, f.sites[1], {0.5f, 2}), "a.scale2"); // a.scale is taken
  EXPECT_EQ(writeScale(f.spec, f.sites[2], {4}), "m.scale");
  const std::string text = printGraph(f.spec);
  auto spec = parseGraph(text);
  ASSERT_TRUE(spec) << text;
  auto graph = resolve(*spec);
  ASSERT_TRUE(graph) << graph.error().str() << text;
  ASSERT_TRUE(spec->nodes[0].inputs[1].literal);
  EXPECT_EQ(static_cast<float>(spec->nodes[0].inputs[1].literal->f), 0.1f); // every bit
  ASSERT_EQ(graph->parameters.size(), 3u);
  EXPECT_EQ(str(graph->type(graph->parameters[1])), "f32 [2]");
  EXPECT_EQ(str(graph->type(graph->parameters[2])), "f8e8m0 []");
}

TEST(Sites, AnotherGranularityIsWrittenToAllWhoTakeIt) {
  const std::string start = R"({"ridgeline": 1, "name": "g", "inputs": {"x": {"dtype": "f32", "shape": [4, 8]}},
    "parameters": {"w": {"dtype": "f32", "shape": [8, 6]}},
    "nodes": [
      {"op": "quantize", "inputs": ["x"], "outputs": ["q", "s"], "attrs": {"dtype": "i8", "granularity": "tensor"}},
      {"op": "quantize", "inputs": ["w"], "outputs": ["v", "t"], "attrs": {"dtype": "i8"}},
      {"op": "dequantize", "inputs": ["q", "s"], "outputs": ["d"], "attrs": {"dtype": "f32"}},
      {"op": "scaled_matmul", "inputs": ["q", "v", "s", "t"], "outputs": ["y"], "attrs": {"granularity_a": "tensor",
       "granularity_b": "tensor"}})";
  Found f = find(start + R"(], "outputs": ["d", "y"]})");
  ASSERT_EQ(f.sites.size(), 2u);
  EXPECT_EQ(f.sites[0].keepsGrouping, "");
  ASSERT_EQ(f.sites[0].uses.size(), 2u);
  EXPECT_EQ(text(f.sites[0].finer), "token");
  writeGrouping(f.spec, regrouped(f.sites[0], {Granularity::Token}));
  EXPECT_EQ(text(f.sites[1].finer), "axis 1");
  const Site columns = regrouped(f.sites[1], f.sites[1].finer[0]);
  EXPECT_EQ(columns.scaleShape, std::vector<int64_t>{6});
  writeGrouping(f.spec, columns);
  writeScale(f.spec, columns, std::vector<float>(6, 0.5f));
  auto graph = resolve(f.spec);
  ASSERT_TRUE(graph) << graph.error().str();
  for (const Node &node : graph->nodes) {
    if (node.op == OpKind::Dequantize)
      EXPECT_EQ(node.attrs.granularity, Granularity::Token);
    if (node.op == OpKind::ScaledMatmul) {
      EXPECT_EQ(node.attrs.granularityA, Granularity::Token);
      EXPECT_EQ(node.attrs.granularityB, Granularity::Axis);
      EXPECT_EQ(node.attrs.axisB, 1);
    }
  }
  // Where the codes or the scale show otherwise, they stay.
  for (const char *end :
       {R"(], "outputs": ["d", "q"]})", R"(], "outputs": ["y", "s"]})",
        R"(, {"op": "neg", "inputs": ["s"], "outputs": ["n"]}], "outputs": ["n"]})",
        R"(, {"op": "reshape", "inputs": ["q"], "outputs": ["r"], "attrs": {"shape": [32]}}], "outputs": ["r"]})"})
    EXPECT_NE(find(start + end).sites[0].keepsGrouping, "") << end;
}

//===------------------------------------------------------------------------------------------------------------------===//
// Calibration
//===------------------------------------------------------------------------------------------------------------------===//

Site tensorSite(DType dtype) {
  Site site;
  site.tensor = "x";
  site.output = "q";
  site.dtype = dtype;
  site.channelDim = 1;
  site.shape = {-1, 2}; // of the finer scales only whether they are fixed matters here
  site.finer = {{Granularity::Axis, 1}, {Granularity::Token}};
  return site;
}

Calibration calibrated(const Site &site, const std::vector<std::vector<float>> &samples,
                       const std::vector<int64_t> &shape, std::optional<double> percentile = std::nullopt) {
  Calibration c(site, percentile);
  for (const auto &x : samples)
    c.first(x.data(), shape);
  c.endFirst();
  for (const auto &x : samples)
    c.second(x.data(), shape);
  c.endSecond();
  return c;
}

TEST(Calibrate, TheScaleOfTheHigherSqnr) {
  // i8: values evenly within +-1 beside a few of 30. Clipping those few costs less than 60 times coarser steps for all.
  std::vector<float> even(100000), spread;
  for (size_t i = 0; i < even.size(); ++i)
    even[i] = static_cast<float>(static_cast<int64_t>(i) - 50000) / 50000.0f;
  spread = even;
  spread[7] = 30;
  const std::vector<int64_t> shape{1000, 100};
  Site site = tensorSite(DType::I8);
  site.finer.clear();

  Calibration plain = calibrated(site, {even, even}, shape);
  EXPECT_EQ(plain.percentile(), 100);
  EXPECT_EQ(plain.scale(), std::vector<float>{1.0f / 127});
  EXPECT_EQ(plain.quality().clipped, 0);
  EXPECT_EQ(plain.quality().values, 200000);
  EXPECT_FALSE(plain.proposal());
  EXPECT_TRUE(plain.outliers().empty());

  Calibration f8 = calibrated(tensorSite(DType::F8E4M3), {spread}, shape);
  EXPECT_EQ(f8.percentile(), 100); // a float's steps are relative: nothing is gained by clipping

  // Clipped because it is asked for.
  Calibration forced = calibrated(site, {spread}, shape, 99.9);
  EXPECT_EQ(forced.percentile(), 99.9);
  EXPECT_NEAR(forced.scale()[0], 1.0f / 127, 0.01f / 127);
  EXPECT_GE(forced.quality().clipped, 1);
  Calibration amax = calibrated(site, {spread}, shape, 100);
  EXPECT_EQ(amax.scale()[0], 30.0f / 127);
  EXPECT_EQ(amax.quality().clipped, 0);

  // One value of 8 in 100,000: 1/12 of a step squared times them all, or its own distance squared.
  std::vector<float> few(100000);
  for (size_t i = 0; i < few.size(); ++i)
    few[i] = i % 2 ? 0.9f : -0.37f;
  few[11] = 8;
  Calibration c = calibrated(site, {few}, shape);
  Calibration byAmax = calibrated(site, {few}, shape, 100), byShare = calibrated(site, {few}, shape, kPercentile);
  EXPECT_EQ(c.quality().sqnr(), std::max(byAmax.quality().sqnr(), byShare.quality().sqnr()));
  EXPECT_NE(byAmax.quality().sqnr(), byShare.quality().sqnr());
}

TEST(Calibrate, AnOutlierChannelIsNamedAndAFinerScaleProposed) {
  const std::vector<int64_t> shape{500, 64};
  std::vector<float> x = gauss(500 * 64);
  for (size_t row = 0; row < 500; ++row)
    x[row * 64 + 5] *= 50;
  const Calibration c = calibrated(tensorSite(DType::I8), {x, x}, shape);
  ASSERT_EQ(c.outliers().size(), 1u);
  EXPECT_EQ(c.outliers()[0].index, 5);
  EXPECT_EQ(c.outliers()[0].amax, c.magnitudes().amax());
  ASSERT_TRUE(c.proposal());
  EXPECT_GE(c.proposal()->quality.sqnr(), c.quality().sqnr() + kGainWithOutliers);

  // The same without the outlier: no channel, no proposal.
  const Calibration even = calibrated(tensorSite(DType::I8), {gauss(500 * 64), gauss(500 * 64, 2)}, shape);
  EXPECT_TRUE(even.outliers().empty());
  EXPECT_FALSE(even.proposal());

  // The same samples again and again: what is beyond in one row is a large share of its channel, and no outlier.
  const std::vector<float> row = gauss(64 * 64, 3);
  const Calibration equal = calibrated(tensorSite(DType::I8), std::vector<std::vector<float>>(50, row), {64, 64});
  EXPECT_TRUE(equal.outliers().empty());

  // Where no user takes another granularity there is none to propose.
  Site fixed = tensorSite(DType::I8);
  fixed.finer.clear();
  const Calibration none = calibrated(fixed, {x}, shape);
  EXPECT_EQ(none.outliers().size(), 1u);
  EXPECT_FALSE(none.proposal());
}

TEST(Calibrate, WhatIsProposedCanBeTaken) {
  std::vector<float> x = gauss(500 * 2);
  for (size_t row = 0; row < 500; ++row)
    x[row * 2] *= 50;
  Site site = tensorSite(DType::I8);
  site.finer = {{Granularity::Axis, 1}};
  Calibration c = calibrated(site, {x}, {500, 2});
  const std::vector<float> was = c.scale();
  ASSERT_TRUE(c.proposal());
  const double promised = c.proposal()->quality.sqnr();
  c.refine();
  EXPECT_EQ(calibrate::str(c.site().grouping), "axis 1");
  EXPECT_EQ(c.site().scaleShape, std::vector<int64_t>{2});
  EXPECT_EQ(c.scale().size(), 2u);
  EXPECT_EQ(c.quality().sqnr(), promised);
  EXPECT_FALSE(c.proposal());
  ASSERT_TRUE(c.unrefined());
  EXPECT_EQ(c.unrefined()->scale, was);
  EXPECT_LT(c.unrefined()->quality.sqnr(), promised);

  site.keepsGrouping = "q is an output";
  Calibration kept = calibrated(site, {x}, {500, 2});
  kept.refine();
  EXPECT_TRUE(kept.proposal());
  EXPECT_FALSE(kept.unrefined());
  EXPECT_EQ(kept.scale(), was);

  // Rows of an activation have scales of their own, rows of a weight have lasting ones.
  for (bool constant : {false, true}) {
    site = tensorSite(DType::I8);
    site.finer = {{Granularity::Token}};
    site.constant = constant;
    site.shape = {60, 3};
    std::vector<float> y = gauss(60 * 3);
    for (size_t i = 0; i < 3; ++i)
      y[i] *= 100;
    Calibration rows = calibrated(site, {y}, {60, 3});
    ASSERT_TRUE(rows.proposal());
    rows.refine();
    EXPECT_EQ(rows.isWritten(), constant);
    std::vector<float> amax(60), want;
    raise(amax, y.data(), Groups({60, 3}, Granularity::Token, 0, kNoBlock));
    for (float a : amax)
      want.push_back(scaleFor(a, DType::I8, DType::F32));
    EXPECT_EQ(rows.scale(), constant ? want : std::vector<float>());
  }
}

TEST(Calibrate, FewChannelsAndRareOutliers) {
  // Of 4 channels one is 100 times the others: its own values are the percentile.
  std::vector<float> x = gauss(4000);
  for (size_t row = 0; row < 1000; ++row)
    x[row * 4 + 2] *= 100;
  const Calibration c = calibrated(tensorSite(DType::F8E5M2), {x}, {1000, 4});
  ASSERT_EQ(c.outliers().size(), 1u);
  EXPECT_EQ(c.outliers()[0].index, 2);

  // 1 % of one channel's values among 1,024 even channels.
  std::vector<float> y = gauss(2000 * 1024, 3);
  for (float &v : y)
    v = std::clamp(v, -1.0f, 1.0f);
  for (size_t row = 0; row < 2000; row += 100)
    y[row * 1024 + 77] = 4;
  const Calibration rare = calibrated(tensorSite(DType::F8E4M3), {y}, {2000, 1024});
  ASSERT_EQ(rare.outliers().size(), 1u);
  EXPECT_EQ(rare.outliers()[0].index, 77);
  EXPECT_NEAR(rare.outliers()[0].share, 0.01, 1e-9);
}

TEST(Calibrate, EachIndexOfAnAxisHasItsAmax) {
  Site site = tensorSite(DType::I8);
  site.grouping = {Granularity::Axis, 1};
  site.scaleShape = {3};
  site.finer.clear();
  const Calibration c = calibrated(site, {{1, -2, 0, 4, 1, 0}, {-8, 1, 0, 2, 1, 0}}, {2, 3});
  EXPECT_EQ(c.scale(), (std::vector<float>{8.0f / 127, 2.0f / 127, 1}));
  EXPECT_EQ(c.quality().clipped, 0);
}

TEST(Calibrate, WhatStaysDynamicIsMeasuredAsItIs) {
  Site site = tensorSite(DType::I8);
  site.grouping = {Granularity::Token};
  site.staysDynamic = "rows";
  site.finer.clear();
  const std::vector<float> x = gauss(60);
  const Calibration c = calibrated(site, {x}, {12, 5});
  EXPECT_TRUE(c.scale().empty());
  EXPECT_FALSE(c.isWritten());
  const double want = noiseOf(x, fakeQuantized(x, {12, 5}, R"("dtype": "i8", "granularity": "token")"));
  EXPECT_NEAR(c.quality().noise, want, 1e-12 * want);
}

TEST(Calibrate, EmptyZeroAndNotFinite) {
  const Calibration empty = calibrated(tensorSite(DType::F8E4M3), {{}}, {0, 3});
  EXPECT_EQ(empty.scale(), std::vector<float>{1});
  EXPECT_TRUE(std::isnan(empty.quality().sqnr()));
  EXPECT_TRUE(empty.outliers().empty());
  EXPECT_FALSE(empty.proposal());

  const Calibration zero = calibrated(tensorSite(DType::I8), {std::vector<float>(6)}, {2, 3});
  EXPECT_EQ(zero.scale(), std::vector<float>{1});
  EXPECT_FALSE(zero.proposal());

  const Calibration odd = calibrated(tensorSite(DType::I8), {{kNan, 1, kInf, -127, 2, -kInf}}, {2, 3});
  EXPECT_EQ(odd.scale(), std::vector<float>{1});
  EXPECT_EQ(odd.quality().values, 3);
  EXPECT_EQ(odd.quality().noise, 0);

  Site scalar = tensorSite(DType::I8);
  scalar.channelDim = -1;
  scalar.finer.clear();
  EXPECT_EQ(calibrated(scalar, {{-254}, {1}}, {}).scale(), std::vector<float>{2});
}

} // namespace
