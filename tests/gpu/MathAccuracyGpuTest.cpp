// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The contract's accuracy of every expanded function, on a real device: the kernels of math_ptx against the references
// of the test on the CPU. A program by itself, no part of ctest; without a GPU it fails. Reads the PTX that the build
// made, or the files that RIDGELINE_MATH_PTX names (separated by colons). RIDGELINE_MATH_EXHAUSTIVE=1 adds all 2^32
// operands.
#include "ir/interp/Convert.h"
#include "runtime/cuda/Cuda.h"
#include "runtime/cuda/Driver.h"
#include "tests/unit/MathReference.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <sstream>

using namespace rl;
using namespace rl::mathtest;

namespace {

constexpr int kFunctions = static_cast<int>(MathFn::Root) + 1;
constexpr unsigned kLanes = 4, kBlock = 128;

std::vector<std::string> ptxFiles() {
  const char *given = std::getenv("RIDGELINE_MATH_PTX");
  std::stringstream list(given ? given : RIDGELINE_MATH_PTX_FILES);
  std::vector<std::string> files;
  for (std::string f; std::getline(list, f, ':');)
    files.push_back(f);
  return files;
}

/// One loaded module, and array kernels run in it.
class Kernels {
public:
  explicit Kernels(const std::string &path) {
    auto driver = cu::driver();
    if (!driver) {
      error = driver.error().message;
      return;
    }
    api = *driver;
    auto entered = cu::ContextScope::enter(*api);
    if (!entered) {
      error = entered.error().message;
      return;
    }
    scope = std::make_unique<cu::ContextScope>(std::move(*entered));
    std::ifstream in(path, std::ios::binary);
    std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    if (text.empty())
      error = path + ": not there or empty";
    else if (cu::Result r = api->cuModuleLoadDataEx(&module, text.c_str(), 0, nullptr, nullptr))
      error = cu::failure(*api, r, "loading " + path).message;
  }
  ~Kernels() {
    if (module)
      api->cuModuleUnload(module);
  }

  template <class Out, class In>
  void run(const std::string &name, const std::vector<In> &a, const std::vector<In> &b, std::vector<Out> &out) {
    auto check = [&](Status s) { EXPECT_TRUE(s.ok()) << name << ": " << (s.ok() ? "" : s.error().message); };
    auto ma = CudaMemory::allocate(a.size() * sizeof(In)), mb = CudaMemory::allocate(b.size() * sizeof(In));
    auto mo = CudaMemory::allocate(out.size() * sizeof(Out));
    ASSERT_TRUE(ma.ok() && mb.ok() && mo.ok());
    check(ma->upload(a.data(), a.size() * sizeof(In)));
    if (!b.empty())
      check(mb->upload(b.data(), b.size() * sizeof(In)));
    check(mo->upload(out.data(), out.size() * sizeof(Out)));
    cu::Function f = nullptr;
    ASSERT_EQ(api->cuModuleGetFunction(&f, module, name.c_str()), cu::kSuccess) << name;
    void *pa = ma->data(), *pb = mb->data(), *po = mo->data();
    int64_t n = static_cast<int64_t>(out.size());
    void *params[] = {&pa, &pb, &po, &n};
    unsigned blocks = static_cast<unsigned>((out.size() / kLanes + kBlock - 1) / kBlock);
    ASSERT_EQ(api->cuLaunchKernel(f, blocks, 1, 1, kBlock, 1, 1, 0, nullptr, params, nullptr), cu::kSuccess) << name;
    check(cudaSynchronize());
    check(mo->download(out.data(), out.size() * sizeof(Out)));
  }

  std::string error;

private:
  const cu::Api *api = nullptr;
  std::unique_ptr<cu::ContextScope> scope;
  cu::ModuleHandle module = nullptr;
};

class MathGpu : public testing::TestWithParam<std::string> {
protected:
  std::unique_ptr<Kernels> kernels;
  void SetUp() override {
    if (GetParam().find("90a") != std::string::npos)
      if (auto device = currentCudaDevice(); device && device->major != 9)
        GTEST_SKIP() << "sm_90a code runs on Hopper alone";
    kernels = std::make_unique<Kernels>(GetParam());
    ASSERT_EQ(kernels->error, "");
  }
};

TEST_P(MathGpu, F32) {
  for (int i = 0; i < kFunctions; ++i) {
    MathFn fn = static_cast<MathFn>(i);
    Points p = pointsFor(fn);
    std::vector<float> out(p.x.size(), -7.0f);
    kernels->run(std::string(mathName(fn)) + "_f32_v4", p.x, p.y, out);
    Tally t = judge(fn, p, out);
    EXPECT_LE(t.maxUlp, isExact(fn) ? 0.0 : 4.0) << t.worst;
    std::printf("| %s | f32 | %.2f | %s\n", mathName(fn), t.maxUlp, t.worst.c_str());
  }
}

TEST_P(MathGpu, SixteenBits) {
  for (int i = 0; i < kFunctions; ++i)
    for (DType type : {DType::F16, DType::BF16}) {
      MathFn fn = static_cast<MathFn>(i);
      Patterns p = patternsFor(fn, type);
      std::vector<uint16_t> out(p.x.size(), 0xdead);
      kernels->run(std::string(mathName(fn)) + "_" + dtypeName(type) + "_v4", p.x, p.y, out);
      Tally t = judge(fn, type, p, out);
      EXPECT_LE(t.misrounded * 1000, t.points) << t.worst;
      EXPECT_LE(t.maxSteps, 1) << t.worst;
      std::printf("| %s | %s | %ld of %ld, %ld step | %s\n", mathName(fn), dtypeName(type), long(t.misrounded),
                  long(t.points), long(t.maxSteps), t.worst.c_str());
    }
}

// As in a fused kernel: operands of f32 precision, the result rounded to 16 bits later.
TEST_P(MathGpu, FusedSixteenBits) {
  for (int i = 0; i < kFunctions; ++i)
    for (DType type : {DType::F16, DType::BF16}) {
      MathFn fn = static_cast<MathFn>(i);
      Points p = pointsFor(fn);
      std::vector<float> out(p.x.size(), -7.0f);
      kernels->run(std::string(mathName(fn)) + "_for_" + dtypeName(type) + "_v4", p.x, p.y, out);
      Tally t = judgeRounded(fn, type, p, out);
      EXPECT_LE(t.misrounded * 1000, t.points) << mathName(fn) << " " << t.worst;
      EXPECT_LE(t.maxSteps, 1) << t.worst;
      std::printf("| %s | fused, %s | %ld of %ld, %ld step | %s\n", mathName(fn), dtypeName(type), long(t.misrounded),
                  long(t.points), long(t.maxSteps), t.worst.c_str());
    }
}

TEST_P(MathGpu, F32Exhaustive) {
  if (!std::getenv("RIDGELINE_MATH_EXHAUSTIVE"))
    GTEST_SKIP() << "not asked for";
  for (int i = 0; i < kFunctions; ++i) {
    MathFn fn = static_cast<MathFn>(i);
    if (mathArity(fn) != 1)
      continue;
    Tally t = judgeAll(fn, [&](const std::vector<float> &x, std::vector<float> &out) {
      kernels->run(std::string(mathName(fn)) + "_f32_v4", x, {}, out);
    });
    EXPECT_LE(t.maxUlp, isExact(fn) ? 0.0 : 4.0) << t.worst;
    std::printf("| %s | all f32 | %.3f | %s\n", mathName(fn), t.maxUlp, t.worst.c_str());
    std::fflush(stdout);
  }
}

TEST_P(MathGpu, WidensEveryPattern) {
  auto compare = [&](DType type, const auto &in) {
    std::vector<float> out(in.size(), -7.0f);
    kernels->run(std::string("widen_") + dtypeName(type) + "_v4", in, {}, out);
    for (size_t i = 0; i < in.size(); ++i) {
      float want = static_cast<float>(loadElement(&in[i], type, 0));
      ASSERT_TRUE((std::isnan(want) && std::isnan(out[i])) ||
                  std::bit_cast<uint32_t>(want) == std::bit_cast<uint32_t>(out[i]))
          << dtypeName(type) << " " << i << ": " << out[i] << ", not " << want;
    }
  };
  std::vector<uint16_t> words(65536);
  std::vector<uint8_t> bytes(256);
  for (size_t i = 0; i < words.size(); ++i)
    words[i] = static_cast<uint16_t>(i);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<uint8_t>(i);
  compare(DType::F16, words);
  compare(DType::BF16, words);
  compare(DType::F8E4M3, bytes);
  compare(DType::F8E5M2, bytes);
  compare(DType::F8E8M0, bytes);
}

TEST_P(MathGpu, NarrowsAsTheReferenceDoes) {
  // Every f32 whose low 12 bits are 0, 1, 2047, 2048, 2049 or 4095: all midpoints of all these types and their
  // neighbours.
  std::vector<float> in;
  for (uint32_t high = 0; high < 1u << 20; ++high)
    for (uint32_t low : {0u, 1u, 2047u, 2048u, 2049u, 4095u, 0u, 1u})
      in.push_back(std::bit_cast<float>(high << 12 | low));
  auto compare = [&](DType type, bool saturate, auto zero, auto reference, auto isNan) {
    std::vector<decltype(zero)> out(in.size(), 0xee);
    kernels->run(std::string("narrow_") + dtypeName(type) + (saturate ? "_sat_v4" : "_nosat_v4"), in, {}, out);
    for (size_t i = 0; i < in.size(); ++i) {
      auto want = reference(in[i]);
      ASSERT_TRUE(want == out[i] || (isNan(want) && isNan(out[i])))
          << dtypeName(type) << (saturate ? "" : " without saturation") << " of " << in[i] << ": " << int(out[i])
          << ", not " << int(want);
    }
  };
  auto of = [](DType type) {
    return [type](auto code) { return std::isnan(static_cast<float>(loadElement(&code, type, 0))); };
  };
  compare(DType::F16, true, uint16_t{}, f32ToF16, of(DType::F16));
  compare(DType::BF16, true, uint16_t{}, f32ToBf16, of(DType::BF16));
  compare(DType::F8E8M0, true, uint8_t{}, f32ToF8e8m0, of(DType::F8E8M0));
  for (bool saturate : {true, false}) {
    compare(DType::F8E4M3, saturate, uint8_t{}, [&](float x) { return f32ToF8e4m3(x, saturate); }, of(DType::F8E4M3));
    compare(DType::F8E5M2, saturate, uint8_t{}, [&](float x) { return f32ToF8e5m2(x, saturate); }, of(DType::F8E5M2));
  }
}

INSTANTIATE_TEST_SUITE_P(All, MathGpu, testing::ValuesIn(ptxFiles()), [](const auto &info) {
  return info.param.find("90a") != std::string::npos ? "sm_90a" : "file" + std::to_string(info.index);
});

} // namespace

int main(int argc, char **argv) {
  testing::InitGoogleTest(&argc, argv);
  if (!cudaAvailable()) {
    std::fprintf(stderr, "error: no CUDA device\n");
    return 4;
  }
  return RUN_ALL_TESTS();
}
