// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tensors of more than 2^31 elements, whose indices do not fit 32 bits, against formulas. Needs about 7 GB of memory, and as
// much on the GPU with `--target cuda`; so it is no part of ctest.
#include "frontend/api/Engine.h"
#include "frontend/json/JsonReader.h"
#include "runtime/cuda/Cuda.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>

using namespace rl;

namespace {

constexpr int64_t kN = (int64_t{1} << 31) + 13;

uint8_t pattern(int64_t i) { return static_cast<uint8_t>((static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15ull) >> 53); }

struct Huge {
  const char *name;
  std::string inputs, nodes;
  std::function<uint8_t(int64_t)> want; ///< of an element of the only output, y
};

using Bytes = std::vector<uint8_t>;

Result<Bytes> run(const Target &target, const std::string &json) {
  RL_ASSIGN(GraphSpec spec, parseGraph(json));
  EngineOptions options;
  options.cache = "off";
  RL_ASSIGN(Artifact artifact, compileSpec(spec, target, options));
  RL_ASSIGN(std::unique_ptr<Module> module, makeModule(std::move(artifact)));
  std::vector<Bytes> in;
  for (const PackageTensor &t : module->tensors(0)) {
    in.emplace_back(static_cast<size_t>(t.type.bytes()));
    for (size_t i = 0; i < in.back().size(); ++i)
      in.back()[i] = pattern(static_cast<int64_t>(i));
  }
  Bytes out(static_cast<size_t>(module->tensors(2)[0].type.bytes()), 0xFF);
  std::vector<const void *> inputs;
  if (target.kind == Target::Cpu) {
    for (const Bytes &b : in)
      inputs.push_back(b.data());
    void *outputs[] = {out.data()};
    RL_TRY(module->run(inputs.data(), outputs, nullptr));
    return out;
  }
  std::vector<CudaMemory> memory;
  for (const Bytes &b : in) {
    RL_ASSIGN(CudaMemory m, CudaMemory::allocate(b.size()));
    RL_TRY(m.upload(b.data(), b.size()));
    inputs.push_back(m.data());
    memory.push_back(std::move(m));
  }
  RL_ASSIGN(CudaMemory result, CudaMemory::allocate(out.size()));
  RL_TRY(result.upload(out.data(), out.size()));
  void *outputs[] = {result.data()};
  RL_ASSIGN(CudaStream stream, CudaStream::create());
  RL_TRY(module->run(inputs.data(), outputs, stream.handle()));
  RL_TRY(stream.synchronize());
  RL_TRY(result.download(out.data(), out.size()));
  return out;
}

} // namespace

int main(int argc, char **argv) {
  bool cuda = argc == 3 && !std::strcmp(argv[1], "--target") && !std::strcmp(argv[2], "cuda");
  Result<Target> target = resolveTarget(cuda ? "cuda" : "cpu");
  if (!target) {
    std::fprintf(stderr, "%s\n", target.error().str().c_str());
    return 4;
  }
  const std::string n = std::to_string(kN), x = "\"x\": {\"dtype\": \"u8\", \"shape\": [" + n + "]}";
  constexpr int64_t rows = 65539, columns = 32771;
  const Huge cases[] = {
      {"flip and add", x,
       R"({"op": "flip", "inputs": ["x"], "outputs": ["f"], "attrs": {"dims": [0]}},
          {"op": "add", "inputs": ["f", 1], "outputs": ["y"]})",
       [](int64_t i) { return static_cast<uint8_t>(pattern(kN - 1 - i) + 1); }},
      {"a few elements of many", x,
       R"({"op": "slice", "inputs": ["x"], "outputs": ["y"], "attrs": {"dim": 0, "step": -1000003}})",
       [](int64_t i) { return pattern(kN - 1 - 1000003 * i); }},
      {"pad to many", R"("x": {"dtype": "u8", "shape": [7]})",
       "{\"op\": \"pad\", \"inputs\": [\"x\"], \"outputs\": [\"y\"], \"attrs\": {\"low\": [" + std::to_string(kN - 10) +
           "], \"high\": [3], \"value\": 9}}",
       [](int64_t i) { return i >= kN - 10 && i < kN - 3 ? pattern(i - (kN - 10)) : uint8_t{9}; }},
      {"rows and columns",
       "\"a\": {\"dtype\": \"u8\", \"shape\": [65539, 1]}, \"b\": {\"dtype\": \"u8\", \"shape\": [32771]}",
       R"({"op": "bitwise_xor", "inputs": ["a", "b"], "outputs": ["y"]})",
       [](int64_t i) { return static_cast<uint8_t>(pattern(i / columns) ^ pattern(i % columns)); }},
      {"transposed", "\"a\": {\"dtype\": \"u8\", \"shape\": [65539, 32771]}",
       R"({"op": "permute", "inputs": ["a"], "outputs": ["y"], "attrs": {"dims": [1, 0]}})",
       [](int64_t i) { return pattern(i % rows * columns + i / rows); }},
  };
  int failed = 0;
  for (const Huge &c : cases) {
    Result<Bytes> got = run(*target, R"({"ridgeline": 1, "name": "huge", "inputs": {)" + c.inputs + "}, \"nodes\": [" +
                                         c.nodes + R"(], "outputs": ["y"]})");
    if (!got) {
      std::printf("FAILED %s: %s\n", c.name, got.error().str().c_str());
      ++failed;
      continue;
    }
    int64_t wrong = 0, first = -1;
    for (int64_t i = 0; i < static_cast<int64_t>(got->size()); ++i)
      if ((*got)[static_cast<size_t>(i)] != c.want(i) && ++wrong == 1)
        first = i;
    std::printf("%s %s: %zu elements, %lld wrong%s\n", wrong ? "FAILED" : "passed", c.name, got->size(),
                static_cast<long long>(wrong), wrong ? (", the first at " + std::to_string(first)).c_str() : "");
    failed += wrong != 0;
  }
  return failed ? 4 : 0;
}
