// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plans of many small kernels, each of which needs what the one before wrote, on a target: of every kind (rows, columns, pointwise,
// transposes, gathers, products that stream weights or what was just computed), as one launch of a graph and one by one (a plan that
// copies). Kernels that start while the one before them still runs must not be seen to: runs follow each other without a wait, with
// other inputs each time, so that what is read too early is another run's, and every run must give the bits of the first of its
// inputs, which the interpreter's results are near to.
//
//   numeric_chain_test [--target cpu|cuda] [--seeds A:B] [--runs N] [--print]
#include "frontend/json/JsonReader.h"
#include "ir/interp/Convert.h"
#include "runtime/cuda/Cuda.h"
#include "tests/numeric/support/Device.h"
#include "tests/numeric/support/GraphMaker.h"
#include "tests/numeric/support/Harness.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace rl;
using namespace rl::numeric;

namespace {

class Generator : GraphMaker {
public:
  explicit Generator(uint64_t seed) : GraphMaker(seed) {}
  GraphSpec run();

private:
  /// The next value, of the same shape, which other kernels than the last must compute.
  std::optional<Val> step(const Val &x);
  std::optional<Val> product(const Val &x);
  std::optional<Val> siblings(const Val &x);

  int64_t rows = 1, width = 1;
};

/// x through a matrix: weights of 16 bits or 8, or the product of x with itself.
std::optional<GraphMaker::Val> Generator::product(const Val &x) {
  switch (rng.below(4)) {
  case 0: // what was just written is the right operand
    if (auto scores = emit("matmul", {x, x}, {{"transpose_b", flag(true)}}))
      if (auto weights = emit("softmax", {*scores}, {{"dim", integer(-1)}}))
        return emit("matmul", {*weights, x});
    return {};
  case 1:
    if (auto w = emit("dequantize", {parameter(DType::I8, {width, width}), parameter(DType::F32, {width})},
                      {{"dtype", word(x.type.dtype)}, {"granularity", std::string("axis")}, {"axis", integer(0)}}))
      return emit("linear", {x, *w});
    return {};
  case 2: return emit("matmul", {x, parameter(x.type.dtype, {width, width})});
  default: return emit("linear", {x, parameter(x.type.dtype, {width, width}), parameter(x.type.dtype, {width})});
  }
}

/// Two products of x and what is made of each: kernels that need nothing of each other.
std::optional<GraphMaker::Val> Generator::siblings(const Val &x) {
  std::optional<Val> sum;
  for (int i = 0; i < 2; ++i) {
    std::optional<Val> y = emit("linear", {x, parameter(x.type.dtype, {width, width})});
    std::optional<Val> turned = y ? emit("flip", {*y}, {{"dims", list({1})}}) : y;
    std::optional<Val> made = turned ? emit("tanh", {*turned}) : turned;
    std::optional<Val> mixed = made ? emit("matmul", {*made, *made}, {{"transpose_b", flag(true)}}) : made;
    if (!mixed)
      return {};
    std::optional<Val> back = emit("matmul", {*mixed, x});
    sum = sum && back ? emit("add", {*sum, *back}) : back;
  }
  return sum ? emit("rms_norm", {*sum}) : sum;
}

std::optional<GraphMaker::Val> Generator::step(const Val &x) {
  switch (rng.below(11)) {
  case 0: return emit("rms_norm", {x, parameter(x.type.dtype, {width})});
  case 1:
    if (auto sum = emit("mean", {x}, {{"dims", list({0})}, {"keepdim", flag(true)}})) // down the columns
      return emit("sub", {x, *sum});
    return {};
  case 2: // a row that is picked by what was computed
    if (auto best = emit("argmax", {x}, {{"dim", integer(0)}}))
      if (auto flat = emit("reshape", {*best}, {{"shape", list({width})}}))
        if (auto picked = emit("index_select", {parameter(x.type.dtype, {64, width}), *flat}, {{"dim", integer(0)}}))
          if (auto one = emit("slice", {*picked}, {{"dim", integer(0)}, {"start", integer(0)}, {"end", integer(1)}}))
            return emit("add", {x, *one});
    return {};
  case 3:
    if (auto turned = emit("permute", {x}, {{"dims", list({1, 0})}}))
      if (auto soft = emit("softmax", {*turned}, {{"dim", integer(0)}}))
        if (auto back = emit("permute", {*soft}, {{"dims", list({1, 0})}}))
          return emit("add", {x, *back});
    return {};
  case 4:
    if (auto flipped = emit("flip", {x}, {{"dims", list({1})}}))
      return emit("add", {*emit("tanh", {*flipped}), x});
    return {};
  case 5: return emit("layer_norm", {x});
  case 6:
  case 7: return siblings(x);
  default:
    if (auto y = product(x))
      return emit("add", {x, *emit("tanh", {*y})});
    return {};
  }
}

GraphSpec Generator::run() {
  static const std::vector<int64_t> widths = {64, 128, 256, 264, 512, 1024, 1024, 2048};
  spec.name = "chain";
  rows = rng.chance(40) ? 1 : rng.range(2, 40);
  width = rng.pick(widths);
  while (rows * width * width > 20000000)
    rows = (rows + 1) / 2;
  const Val first = input(rng.chance(70) ? DType::BF16 : DType::F16, {rows, width});
  Val x = first;
  for (int64_t steps = rng.range(3, 9); steps > 0; --steps) {
    const size_t nodes = spec.nodes.size(), parameters = spec.parameters.size();
    if (std::optional<Val> next = step(x)) {
      x = *next;
      if (rng.chance(15))
        spec.outputs.push_back(x.name); // and read again by later kernels
    } else {
      spec.nodes.resize(nodes);
      spec.parameters.resize(parameters);
    }
  }
  if (spec.outputs.empty() || spec.outputs.back() != x.name)
    spec.outputs.push_back(x.name);
  if (rng.chance(35)) // a copy: kernels are launched one by one
    spec.outputs.push_back(first.name);
  return std::move(spec);
}

HostTensor data(Rng &rng, const TensorType &type) {
  HostTensor t{type, std::vector<std::byte>(static_cast<size_t>(type.bytes()))};
  const double scale =
      type.rank() == 2 && type.shape[0] == type.shape[1] ? 1 / std::sqrt(static_cast<double>(type.shape[0])) : 1;
  for (int64_t i = 0; i < type.elements(); ++i)
    storeElement(t.data.data(), type.dtype, i,
                 type.dtype == DType::I8    ? static_cast<double>(rng.range(-127, 127))
                 : type.dtype == DType::F32 ? 0.01 * rng.unit() / std::sqrt(static_cast<double>(type.shape[0]))
                                            : (rng.unit() * 2 - 1) * scale);
  return t;
}

/// The tensors of two calls of a module on the GPU, and many results of each.
class Stress {
public:
  /// Empty, or which run gave other bits than the first of its inputs.
  std::string operator()(Module &module, const std::vector<std::vector<HostTensor>> &inputs,
                         const std::vector<std::vector<HostTensor>> &results, int runs, Rng &rng);

private:
  Status fill(Module &, const std::vector<std::vector<HostTensor>> &inputs);
  static constexpr int kAtOnce = 8; ///< runs without a wait between them
  static constexpr size_t kFlush = 96 << 20;

  std::vector<std::vector<CudaMemory>> in, out; ///< of each call; of each run at once
  CudaMemory flush;
};

Status Stress::fill(Module &module, const std::vector<std::vector<HostTensor>> &inputs) {
  RL_ASSIGN(flush, CudaMemory::allocate(kFlush));
  for (const auto &call : inputs) {
    in.emplace_back();
    for (const HostTensor &t : call) {
      RL_ASSIGN(CudaMemory memory, CudaMemory::allocate(t.data.size()));
      RL_TRY(memory.upload(t.data.data(), t.data.size()));
      in.back().push_back(memory);
    }
  }
  for (int r = 0; r < kAtOnce; ++r) {
    out.emplace_back();
    for (const PackageTensor &t : module.tensors(2)) {
      RL_ASSIGN(CudaMemory memory, CudaMemory::allocate(static_cast<size_t>(t.type.bytes())));
      out.back().push_back(memory);
    }
  }
  return {};
}

std::string Stress::operator()(Module &module, const std::vector<std::vector<HostTensor>> &inputs,
                               const std::vector<std::vector<HostTensor>> &results, int runs, Rng &rng) {
  Result<CudaStream> stream = CudaStream::create();
  if (!stream)
    return stream.error().str();
  if (Status s = fill(module, inputs); !s)
    return s.error().str();
  auto once = [&](int round) -> Status {
    for (auto &run : out)
      for (CudaMemory &m : run)
        RL_TRY(m.fill(0xFF, stream->handle()));
    // Cold caches make what follows wait, warm ones let it run ahead.
    const bool cold = rng.chance(30);
    for (int r = 0; r < kAtOnce; ++r) {
      if (cold)
        RL_TRY(flush.fill(static_cast<uint8_t>(round), stream->handle()));
      std::vector<const void *> from;
      std::vector<void *> to;
      for (CudaMemory &m : in[static_cast<size_t>(r) % in.size()])
        from.push_back(m.data());
      for (CudaMemory &m : out[static_cast<size_t>(r)])
        to.push_back(m.data());
      RL_TRY(module.run(from.data(), to.data(), stream->handle()));
    }
    return stream->synchronize();
  };
  for (int round = 0; round * kAtOnce < runs; ++round) {
    if (Status s = once(round); !s)
      return s.error().str();
    for (int r = 0; r < kAtOnce; ++r) {
      const auto &want = results[static_cast<size_t>(r) % results.size()];
      for (size_t o = 0; o < want.size(); ++o) {
        std::vector<std::byte> got(want[o].data.size());
        if (Status s = out[static_cast<size_t>(r)][o].download(got.data(), got.size()); !s)
          return s.error().str();
        if (got != want[o].data)
          return "run " + std::to_string(round * kAtOnce + r) + " gives other bits in output " + std::to_string(o);
      }
    }
  }
  return {};
}

/// Nothing, or how far the results are apart where rounding alone does not explain it.
std::string farApart(const HostTensor &want, const HostTensor &kept, const HostTensor &got) {
  double off = 0, size = 0, spread = 0;
  for (int64_t i = 0; i < want.type.elements(); ++i) {
    const double w = loadElement(want.data.data(), want.type.dtype, i),
                 g = loadElement(got.data.data(), want.type.dtype, i),
                 k = loadElement(kept.data.data(), want.type.dtype, i);
    if (!std::isfinite(w) || !std::isfinite(k))
      continue;
    if (!std::isfinite(g))
      return "element " + std::to_string(i) + " is not finite";
    off += (g - w) * (g - w);
    spread += (k - w) * (k - w);
    size += w * w;
  }
  if (std::sqrt(off) > 0.03 * std::sqrt(size) + 3 * std::sqrt(spread))
    return "off by " + std::to_string(std::sqrt(off)) + " of " + std::to_string(std::sqrt(size));
  return {};
}

} // namespace

int main(int argc, char **argv) {
  SeedOptions options;
  options.end = 20;
  int runs = 200;
  for (int i = 1; i < argc; ++i) {
    std::string a = argv[i];
    if (options.take(argc, argv, i))
      continue;
    if (a == "--runs" && i + 1 < argc) {
      runs = std::atoi(argv[++i]);
    } else {
      std::fprintf(stderr, "usage: numeric_chain_test [--target cpu|cuda] [--seeds A:B] [--runs N] [--print]\n");
      return 1;
    }
  }
  Result<std::unique_ptr<Device>> device = Device::create(options.target);
  if (!device) {
    std::fprintf(stderr, "%s\n", device.error().str().c_str());
    return 4;
  }
  int kernels = 0, early = 0, streams = 0;
  auto generate = [](uint64_t seed) { return Generator(seed).run(); };
  const int failed = countFailures(options, generate, [&](uint64_t seed, const GraphSpec &spec) -> std::string {
    Result<Graph> graph = resolve(spec);
    if (!graph)
      return graph.error().str();
    Result<std::unique_ptr<Module>> module = (*device)->compile(spec);
    if (!module)
      return "does not compile: " + module.error().str();
    kernels += (*module)->kernelCount();
    for (size_t at = 0; (at = (*device)->record.find("\"early\": true", at)) != std::string::npos; ++at)
      ++early;
    streams += (*device)->record.find("kernel 'stream'") != std::string::npos;
    Rng rng(seed * 77 + 5);
    std::vector<HostTensor> parameters;
    for (ValueId v : graph->parameters)
      parameters.push_back(data(rng, graph->type(v)));
    std::vector<std::vector<HostTensor>> inputs(2), results;
    for (auto &call : inputs) {
      for (ValueId v : graph->inputs)
        call.push_back(data(rng, graph->type(v)));
      Result<std::vector<HostTensor>> want = interpret(*graph, call, parameters),
                                      kept = interpret(*graph, call, parameters, {}, Intermediates::KeepF32);
      if (!want || !kept)
        return "interpreter: " + (want ? kept.error() : want.error()).str();
      Result<std::vector<HostTensor>> got = (*device)->run(**module, call, parameters, false);
      if (!got)
        return "does not run: " + got.error().str();
      for (size_t o = 0; o < got->size(); ++o)
        if (std::string text = farApart((*want)[o], (*kept)[o], (*got)[o]); !text.empty())
          return "output '" + spec.outputs[o] + "': " + text;
      results.push_back(*std::move(got));
    }
    return options.target == "cuda" ? Stress()(**module, inputs, results, runs, rng) : std::string();
  });
  std::printf("%s: chains, seeds %llu:%llu, %d kernels, %d launched early, %d plans that stream, %d failed\n",
              options.target.c_str(), static_cast<unsigned long long>(options.first),
              static_cast<unsigned long long>(options.end), kernels, early, streams, failed);
  return failed ? 4 : 0;
}
