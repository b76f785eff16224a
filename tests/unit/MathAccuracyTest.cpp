// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The contract's accuracy of every expanded function: on the CPU by running it, for NVPTX by what can be read from
// its PTX (tests/gpu/MathAccuracyGpuTest runs that). RIDGELINE_MATH_TABLE=1 prints the measured table.
#include "ir/interp/Convert.h"
#include "tests/unit/MathHarness.h"
#include "tests/unit/MathReference.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <regex>

#include <unistd.h>

using namespace rl;
using namespace rl::mathtest;

namespace {

bool printTable() { return std::getenv("RIDGELINE_MATH_TABLE") != nullptr; }

/// The compiled kernels, once for all tests.
Jit *vectors() {
  static std::unique_ptr<Jit> jit = [] {
    auto result = Jit::create(allKernels(8));
    EXPECT_TRUE(result.ok()) << (result.ok() ? "" : result.error().message);
    return result.ok() ? std::move(*result) : nullptr;
  }();
  return jit.get();
}

Jit::Kernel kernel(Jit *jit, const KernelSpec &spec) {
  Jit::Kernel k = jit ? jit->lookup(spec.name()) : nullptr;
  EXPECT_NE(k, nullptr) << spec.name();
  return k;
}

class MathAccuracy : public testing::TestWithParam<int> {
protected:
  MathFn fn = static_cast<MathFn>(GetParam());
  void SetUp() override {
    if (!__builtin_cpu_supports("x86-64-v3"))
      GTEST_SKIP() << "needs AVX2, FMA and F16C";
  }
};

TEST_P(MathAccuracy, F32) {
  Points p = pointsFor(fn);
  std::vector<float> out(p.x.size(), -7.0f);
  Jit::Kernel k = kernel(vectors(), {KernelSpec::Math, fn, DType::F32});
  ASSERT_TRUE(k);
  k(p.x.data(), p.y.data(), out.data(), static_cast<int64_t>(out.size()));
  Tally t = judge(fn, p, out);
  EXPECT_GE(t.points, 2000000);
  EXPECT_LE(t.maxUlp, isExact(fn) ? 0.0 : 4.0) << t.worst;
  if (printTable())
    std::printf("| %s | f32 | %.2f | %s\n", mathName(fn), t.maxUlp, t.worst.c_str());
}

// All 2^32 operands: hours of one core's time, so only on request.
TEST_P(MathAccuracy, F32Exhaustive) {
  if (!std::getenv("RIDGELINE_MATH_EXHAUSTIVE") || mathArity(fn) != 1)
    GTEST_SKIP() << "not asked for, or a binary function";
  Jit::Kernel k = kernel(vectors(), {KernelSpec::Math, fn, DType::F32});
  ASSERT_TRUE(k);
  Tally t = judgeAll(fn, [&](const std::vector<float> &x, std::vector<float> &out) {
    k(x.data(), nullptr, out.data(), static_cast<int64_t>(x.size()));
  });
  EXPECT_LE(t.maxUlp, isExact(fn) ? 0.0 : 4.0) << t.worst;
  std::printf("| %s | all f32 | %.3f | %s\n", mathName(fn), t.maxUlp, t.worst.c_str());
}

TEST_P(MathAccuracy, SixteenBits) {
  for (DType type : {DType::F16, DType::BF16}) {
    Patterns p = patternsFor(fn, type);
    std::vector<uint16_t> out(p.x.size(), 0xdead);
    Jit::Kernel k = kernel(vectors(), {KernelSpec::Math, fn, type});
    ASSERT_TRUE(k);
    k(p.x.data(), p.y.data(), out.data(), static_cast<int64_t>(out.size()));
    Tally t = judge(fn, type, p, out);
    EXPECT_LE(t.misrounded * 1000, t.points) << t.worst;
    EXPECT_LE(t.maxSteps, 1) << t.worst;
    if (printTable())
      std::printf("| %s | %s | %ld of %ld, %ld step | %s\n", mathName(fn), dtypeName(type), long(t.misrounded),
                  long(t.points), long(t.maxSteps), t.worst.c_str());
  }
}

// As in a fused kernel: operands of f32 precision, the result rounded to 16 bits later.
TEST_P(MathAccuracy, FusedSixteenBits) {
  for (DType type : {DType::F16, DType::BF16}) {
    Points p = pointsFor(fn);
    std::vector<float> out(p.x.size(), -7.0f);
    Jit::Kernel k = kernel(vectors(), {KernelSpec::Fused, fn, type});
    ASSERT_TRUE(k);
    k(p.x.data(), p.y.data(), out.data(), static_cast<int64_t>(out.size()));
    Tally t = judgeRounded(fn, type, p, out);
    EXPECT_LE(t.misrounded * 1000, t.points) << t.worst;
    EXPECT_LE(t.maxSteps, 1) << t.worst;
    if (printTable())
      std::printf("| %s | fused %s | %ld of %ld, %ld step | %s\n", mathName(fn), dtypeName(type), long(t.misrounded),
                  long(t.points), long(t.maxSteps), t.worst.c_str());
  }
}

// A bf16 value that is not rounded errs by 2^-11 at most where that is more than its own last place, and is what it
// should be in kind: NaN, infinity, sign.
TEST_P(MathAccuracy, UnroundedBF16) {
  if (mathArity(fn) != 1)
    GTEST_SKIP() << "binary functions have no form of their own";
  Points p = pointsFor(fn);
  std::vector<float> out(p.x.size(), -7.0f);
  Jit::Kernel k = kernel(vectors(), {KernelSpec::Inner, fn, DType::BF16});
  ASSERT_TRUE(k);
  k(p.x.data(), nullptr, out.data(), static_cast<int64_t>(out.size()));
  double largest = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    double want = reference(fn, p.x[i], 0), got = out[i];
    if (std::isnan(want) || std::isnan(got)) {
      ASSERT_EQ(std::isnan(want), std::isnan(got)) << mathName(fn) << " of " << p.x[i] << " = " << got;
      continue;
    }
    ASSERT_EQ(std::signbit(want), std::signbit(got)) << mathName(fn) << " of " << p.x[i] << " = " << got;
    if (std::fabs(want) > 3.3e38 || std::fabs(want) < 0x1p-133)
      continue; // infinite or zero in bf16
    double error = std::fabs(got - want) / std::fmax(std::fabs(want), 0x1p-126);
    largest = std::fmax(largest, error);
    ASSERT_LE(error, 0x1p-11) << mathName(fn) << " of " << p.x[i] << " = " << got << ", not " << want;
  }
  if (printTable())
    std::printf("| %s | unrounded bf16 | 2^%.1f\n", mathName(fn), std::log2(largest));
}

// What else is counted on in the middle of a chain: a limit that is reached is reached to the bit, and never passed.
TEST(MathExpansion, ShortFormsReachTheirLimits) {
  if (!__builtin_cpu_supports("x86-64-v3"))
    GTEST_SKIP() << "needs AVX2, FMA and F16C";
  constexpr float inf = std::numeric_limits<float>::infinity();
  auto values = [](const KernelSpec &spec, std::vector<float> x) {
    x.resize((x.size() + 7) / 8 * 8);
    std::vector<float> out(x.size());
    kernel(vectors(), spec)(x.data(), nullptr, out.data(), static_cast<int64_t>(x.size()));
    return out;
  };
  std::vector<KernelSpec> forms = {{KernelSpec::Fused, MathFn::Exp, DType::F16},
                                   {KernelSpec::Fused, MathFn::Exp, DType::BF16},
                                   {KernelSpec::Inner, MathFn::Exp, DType::BF16}};
  for (KernelSpec spec : forms) {
    auto at = [&](MathFn fn, float x) {
      spec.fn = fn;
      return values(spec, {x})[0];
    };
    EXPECT_EQ(at(MathFn::Exp, -inf), 0.0f) << spec.name();
    EXPECT_EQ(at(MathFn::Exp, inf), inf) << spec.name();
    EXPECT_EQ(at(MathFn::Exp, 0.0f), 1.0f) << spec.name();
    EXPECT_EQ(at(MathFn::Exp2, -inf), 0.0f) << spec.name();
    EXPECT_EQ(at(MathFn::Exp2, inf), inf) << spec.name();
    EXPECT_EQ(at(MathFn::Exp2, 10.0f), 1024.0f) << spec.name();
    EXPECT_EQ(at(MathFn::Sigmoid, -inf), 0.0f) << spec.name();
    EXPECT_EQ(at(MathFn::Sigmoid, inf), 1.0f) << spec.name();
    EXPECT_EQ(at(MathFn::Sigmoid, 0.0f), 0.5f) << spec.name();
    EXPECT_EQ(at(MathFn::Softplus, -inf), 0.0f) << spec.name();
    for (float x : {3.0f, 1000.0f, 1e30f, inf}) {
      if (x > 10) {
        EXPECT_EQ(at(MathFn::Tanh, x), 1.0f) << spec.name();
        EXPECT_EQ(at(MathFn::Tanh, -x), -1.0f) << spec.name();
      }
      EXPECT_LE(at(MathFn::Silu, x), x) << spec.name();
      EXPECT_LE(at(MathFn::GeluErf, x), x) << spec.name();
      EXPECT_LE(at(MathFn::GeluTanh, x), x) << spec.name();
    }
    spec.fn = MathFn::Tanh;
    std::vector<float> x;
    for (uint32_t b = std::bit_cast<uint32_t>(2.0f); b < std::bit_cast<uint32_t>(8.0f); ++b)
      x.push_back(std::bit_cast<float>(b));
    for (float y : values(spec, x))
      ASSERT_LE(y, 1.0f) << spec.name();
  }
}

INSTANTIATE_TEST_SUITE_P(All, MathAccuracy, testing::Range(0, kMathFnCount),
                         [](const auto &info) { return std::string(mathName(static_cast<MathFn>(info.param))); });

// Scalars and vectors of an odd length, some of whose lanes take a branch that others do not, give the bits of
// vectors of 8.
TEST(MathExpansion, EveryVectorLengthGivesTheSameBits) {
  if (!__builtin_cpu_supports("x86-64-v3"))
    GTEST_SKIP() << "needs AVX2, FMA and F16C";
  std::vector<KernelSpec> others;
  for (int lanes : {0, 1, 3})
    for (int fn = 0; fn < kMathFnCount; ++fn)
      others.push_back({KernelSpec::Math, static_cast<MathFn>(fn), DType::F32, true, lanes});
  auto jit = Jit::create(others);
  ASSERT_TRUE(jit.ok()) << jit.error().message;
  for (const KernelSpec &spec : others) {
    Points p = pointsFor(spec.fn);
    size_t n = 24 * 2000, skip = (p.x.size() - n) / 64 * 64;
    std::vector<float> one(n), other(n);
    const float *x = p.x.data() + skip, *y = p.y.empty() ? nullptr : p.y.data() + skip;
    kernel(vectors(), {KernelSpec::Math, spec.fn, DType::F32})(x, y, one.data(), static_cast<int64_t>(n));
    kernel(jit->get(), spec)(x, y, other.data(), static_cast<int64_t>(n));
    for (size_t i = 0; i < n; ++i)
      if (!(std::isnan(one[i]) && std::isnan(other[i])))
        ASSERT_EQ(std::bit_cast<uint32_t>(one[i]), std::bit_cast<uint32_t>(other[i]))
            << spec.name() << " of " << x[i] << (y ? ", " + std::to_string(y[i]) : "");
  }
}

TEST(NarrowFloat, WidensEveryPattern) {
  if (!__builtin_cpu_supports("x86-64-v3"))
    GTEST_SKIP() << "needs AVX2, FMA and F16C";
  for (DType type : {DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2, DType::F8E8M0}) {
    size_t n = dtypeSize(type) == 2 ? 65536 : 256;
    std::vector<uint16_t> words(n);
    std::vector<uint8_t> bytes(n);
    for (size_t i = 0; i < n; ++i)
      words[i] = static_cast<uint16_t>(i), bytes[i] = static_cast<uint8_t>(i);
    const void *in = dtypeSize(type) == 2 ? static_cast<void *>(words.data()) : bytes.data();
    std::vector<float> out(n, -7.0f);
    kernel(vectors(), {KernelSpec::Widen, MathFn::Exp, type})(in, nullptr, out.data(), static_cast<int64_t>(n));
    for (size_t i = 0; i < n; ++i) {
      float want = static_cast<float>(loadElement(in, type, static_cast<int64_t>(i)));
      if (std::isnan(want))
        EXPECT_TRUE(std::isnan(out[i]) && std::signbit(out[i]) == std::signbit(want)) << dtypeName(type) << " " << i;
      else
        EXPECT_EQ(std::bit_cast<uint32_t>(out[i]), std::bit_cast<uint32_t>(want)) << dtypeName(type) << " " << i;
    }
  }
}

/// What can go wrong in a narrowing: every value of the type, every midpoint of two neighbours, and the f32 on either
/// side of both; every f32 exponent with a few mantissas; NaNs with either sign and payload.
std::vector<float> narrowingPoints(DType type) {
  std::vector<float> p;
  auto around = [&](float x) {
    uint32_t b = std::bit_cast<uint32_t>(x);
    for (uint32_t d : {0u, 1u, ~0u})
      p.push_back(std::bit_cast<float>(b + d)), p.push_back(-std::bit_cast<float>(b + d));
  };
  uint32_t codes = dtypeSize(type) == 2 ? 0x8000 : type == DType::F8E8M0 ? 0x100 : 0x80;
  float last = 0;
  for (uint32_t c = 0; c < codes; ++c) {
    uint16_t code = static_cast<uint16_t>(c);
    float x = static_cast<float>(loadElement(&code, type, 0));
    around(x);
    around(static_cast<float>((static_cast<double>(x) + static_cast<double>(last)) / 2));
    last = x;
  }
  for (float x : {448.0f, 464.0f, 480.0f, 57344.0f, 61440.0f, 65504.0f, 65519.0f, 65520.0f, 65536.0f, 0x1.ffp127f,
                  std::numeric_limits<float>::infinity()})
    around(x);
  for (uint32_t i = 0; i < 1u << 17; ++i)
    p.push_back(std::bit_cast<float>(i << 15 | (i * 2654435761u) >> 17));
  while (p.size() % 8)
    p.push_back(0);
  return p;
}

TEST(NarrowFloat, NarrowsAsTheReferenceDoes) {
  if (!__builtin_cpu_supports("x86-64-v3"))
    GTEST_SKIP() << "needs AVX2, FMA and F16C";
  for (DType type : {DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2, DType::F8E8M0})
    for (bool saturate : {true, false}) {
      if (!saturate && type != DType::F8E4M3 && type != DType::F8E5M2)
        continue;
      std::vector<float> in = narrowingPoints(type);
      std::vector<uint8_t> out(in.size() * dtypeSize(type), 0xee);
      KernelSpec spec{KernelSpec::Narrow, MathFn::Exp, type, saturate};
      kernel(vectors(), spec)(in.data(), nullptr, out.data(), static_cast<int64_t>(in.size()));
      for (size_t i = 0; i < in.size(); ++i) {
        float x = in[i];
        uint32_t want = type == DType::F16      ? f32ToF16(x)
                        : type == DType::BF16   ? f32ToBf16(x)
                        : type == DType::F8E4M3 ? f32ToF8e4m3(x, saturate)
                        : type == DType::F8E5M2 ? f32ToF8e5m2(x, saturate)
                                                : f32ToF8e8m0(x);
        uint32_t got = 0;
        std::memcpy(&got, out.data() + i * dtypeSize(type), dtypeSize(type));
        ASSERT_EQ(got, want) << spec.name() << " of " << std::hexfloat << x;
      }
    }
}

/// Runs a command; its status and what it printed.
std::pair<int, std::string> runCommand(const std::string &command) {
  std::string text;
  FILE *pipe = popen((command + " 2>&1").c_str(), "r");
  if (!pipe)
    return {-1, text};
  char buffer[4096];
  while (size_t n = fread(buffer, 1, sizeof buffer, pipe))
    text.append(buffer, n);
  return {pclose(pipe), text};
}

class MathPtx : public testing::TestWithParam<std::pair<const char *, int>> {};

TEST_P(MathPtx, SelfContainedUncontractedAndInRegisters) {
  auto [arch, sm] = GetParam();
  std::vector<KernelSpec> specs = allKernels(4);
  auto ptx = emitPtx(specs, arch, sm);
  ASSERT_TRUE(ptx.ok()) << ptx.error().message;
  EXPECT_EQ(ptx->find(".extern"), std::string::npos);
  EXPECT_EQ(ptx->find("call"), std::string::npos);
  EXPECT_EQ(ptx->find(".local"), std::string::npos);
  EXPECT_EQ(ptx->find(".f64"), std::string::npos);
  // ptxas contracts what carries no rounding mode.
  std::smatch m;
  EXPECT_FALSE(std::regex_search(*ptx, m, std::regex("\\b(mul|add|sub)\\.(ftz\\.)?f32"))) << m.str();
  // div and sqrt of f32 are the correctly rounded ones.
  size_t begin = ptx->find(".entry div_f32_v4");
  ASSERT_NE(begin, std::string::npos);
  EXPECT_NE(ptx->substr(begin, ptx->find("ret;", begin) - begin).find("div.rn.f32"), std::string::npos);
  begin = ptx->find(".entry sqrt_f32_v4");
  ASSERT_NE(begin, std::string::npos);
  EXPECT_NE(ptx->substr(begin, ptx->find("ret;", begin) - begin).find("sqrt.rn.f32"), std::string::npos);

  std::string ptxas = std::getenv("RIDGELINE_PTXAS") ? std::getenv("RIDGELINE_PTXAS") : "/usr/local/cuda/bin/ptxas";
  if (!std::filesystem::exists(ptxas))
    GTEST_SKIP() << "no ptxas at " << ptxas;
  auto path = std::filesystem::temp_directory_path() / ("ridgeline_math_" + std::to_string(getpid()) + ".ptx");
  std::ofstream(path) << *ptx;
  auto [status, text] = runCommand(ptxas + " -v -arch=" + arch + " -o /dev/null " + path.string());
  std::filesystem::remove(path);
  EXPECT_EQ(status, 0) << text;
  EXPECT_NE(text.find("bytes stack frame"), std::string::npos) << text;
  EXPECT_FALSE(std::regex_search(text, m, std::regex("[1-9][0-9]* bytes (stack frame|spill)"))) << m.str();
}

// What the fusion of activations into memory-bound kernels may cost: two of the special function unit, and few of the
// rest.
TEST(MathPtxCost, ActivationsFor16Bits) {
  std::vector<KernelSpec> specs;
  for (MathFn fn : {MathFn::Tanh, MathFn::Sigmoid, MathFn::Silu, MathFn::GeluErf, MathFn::GeluTanh})
    for (DType t : {DType::BF16, DType::F16})
      specs.push_back({KernelSpec::Math, fn, t, true, 4});
  auto ptx = emitPtx(specs, "sm_90a", 90);
  ASSERT_TRUE(ptx.ok()) << ptx.error().message;
  for (const KernelSpec &spec : specs) {
    size_t begin = ptx->find(".entry " + spec.name() + "(");
    ASSERT_NE(begin, std::string::npos) << spec.name();
    std::string body = ptx->substr(begin, ptx->find("ret;", begin) - begin);
    auto count = [&](const char *pattern) {
      std::regex r(pattern);
      return std::distance(std::sregex_iterator(body.begin(), body.end(), r), std::sregex_iterator());
    };
    EXPECT_EQ(count("\\b(ex2|rcp)\\."), 2 * 4) << body;
    EXPECT_LE(count("\\b(fma|mul|add|sub|min|max)\\.(rn\\.|NaN\\.)?f32"), (spec.fn == MathFn::GeluErf ? 16 : 8) * 4)
        << body;
    // The conversions to 16 bits stay packed.
    EXPECT_EQ(count("cvt\\.rn\\.(bf16x2|f16x2)\\.f32"), 2) << body;
  }
}

INSTANTIATE_TEST_SUITE_P(All, MathPtx, testing::Values(std::pair{"sm_80", 80}, std::pair{"sm_90a", 90}),
                         [](const auto &info) { return std::string(info.param.first); });

} // namespace
