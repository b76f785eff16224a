// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "frontend/engine/Tune.h"
#include "frontend/engine/CudaTimer.h"
#include "ir/interp/Convert.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

namespace rl {

Status checkTunable(const Target &target) {
  if (target.kind == Target::Reference)
    return unsupported({}, "tuning measures compiled kernels, and the reference interpreter has none");
  if (target.kind == Target::Cpu)
    return unsupported({},
                       "tuning measures tiles of matrix products on a GPU, and the target is cpu, where a product's "
                       "extents and the number of threads leave one tile");
  if (!target.runsHere)
    return deviceError("tuning measures on the device, and target " + target.name + " (" + target.arch +
                       ") does not run on this machine; see ridgeline targets");
  return {};
}

size_t quickest(const std::vector<double> &microseconds) {
  constexpr double kGain = 0.99;
  size_t best = 0;
  for (size_t i = 1; i < microseconds.size(); ++i)
    if (microseconds[i] > 0 && (microseconds[best] <= 0 || microseconds[i] < microseconds[best]))
      best = i;
  return !microseconds.empty() && microseconds[0] > 0 && microseconds[best] >= kGain * microseconds[0] ? 0 : best;
}

std::string printChoice(const TileChoice &choice) {
  std::string out = std::to_string(choice.candidate);
  for (double us : choice.microseconds) {
    char text[32];
    std::snprintf(text, sizeof text, " %.9g", us);
    out += text;
  }
  return out;
}

std::optional<TileChoice> parseChoice(std::string_view given, size_t candidates) {
  const std::string text(given);
  TileChoice out;
  char *at = nullptr;
  const unsigned long long taken = std::strtoull(text.c_str(), &at, 10);
  if (at == text.c_str())
    return std::nullopt;
  while (*at) {
    char *end = nullptr;
    double us = std::strtod(at, &end);
    if (end == at || !(us >= 0) || us > 1e15 || out.microseconds.size() == candidates)
      return std::nullopt;
    out.microseconds.push_back(us);
    at = end;
  }
  if (taken >= out.microseconds.size() || out.microseconds[taken] <= 0)
    return std::nullopt;
  out.candidate = static_cast<size_t>(taken);
  return out;
}

Package aloneOf(const Package &whole, const PackageLaunch &launch, const TunableKernel &kernel) {
  Package out;
  out.name = whole.name;
  out.version = whole.version;
  out.target = whole.target;
  out.arch = whole.arch;
  out.ptx = whole.ptx;
  out.launches = {launch};
  PackageLaunch &l = out.launches[0];
  for (size_t i = 0; i < l.args.size(); ++i) {
    l.args[i] = static_cast<uint32_t>(i);
    const bool input = i < kernel.inputs.size();
    const TensorType &type = input ? kernel.inputs[i] : kernel.outputs[i - kernel.inputs.size()];
    auto &list = input ? out.inputs : out.outputs;
    out.buffers.push_back(
        {input ? PackageBuffer::Input : PackageBuffer::Output, static_cast<uint32_t>(list.size()), 0, type.bytes()});
    list.push_back({"t" + std::to_string(i), type});
  }
  return out;
}

namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

/// Fills device memory with numbers such as a network has: how fast a GPU multiplies depends on what. Integers that may be indices
/// are zeros, which are always in range.
Status fillTensor(CudaMemory &memory, const TensorType &type, uint64_t seed) {
  if (memory.size() == 0)
    return {};
  if (type.dtype == DType::I32 || type.dtype == DType::I64 || type.dtype == DType::Bool)
    return memory.fill(0);
  const size_t size = dtypeSize(type.dtype), bytes = memory.size();
  std::vector<std::byte> block(std::min<size_t>(bytes, size_t(1) << 20));
  for (size_t i = 0; i < block.size() / size; ++i) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    const double unit = static_cast<double>(static_cast<int64_t>(seed) >> 11) / static_cast<double>(int64_t(1) << 52);
    const auto at = static_cast<int64_t>(i);
    if (isInteger(type.dtype))
      storeInteger(block.data(), type.dtype, at, static_cast<int64_t>(100 * unit));
    else // 8-bit scales are powers of two
      storeElement(block.data(), type.dtype, at, type.dtype == DType::F8E8M0 ? 1.0 : unit);
  }
  for (size_t at = 0; at < bytes; at += block.size())
    RL_TRY(memory.upload(block.data(), std::min(block.size(), bytes - at), at));
  return {};
}

/// Times a kernel's tiles, on tensors of their own.
class Stopwatch {
public:
  static Result<Stopwatch> create() {
    Stopwatch out;
    RL_ASSIGN(CudaDevice device, currentCudaDevice());
    // Several times the cache, as what is written last may push out what it wrote itself.
    RL_ASSIGN(out.timer,
              CudaTimer::create(std::max<size_t>(size_t(32) << 20, 4 * static_cast<size_t>(device.l2Bytes))));
    RL_ASSIGN(out.stream, CudaStream::create());
    return out;
  }

  /// Microseconds of each, the median of runs in turn, so that what changes meanwhile (clocks, heat) changes all; 0 for a null
  /// module.
  Result<std::vector<double>> time(const TunableKernel &kernel, const std::vector<std::unique_ptr<Module>> &modules) {
    std::vector<CudaMemory> memory;
    std::vector<const void *> inputs;
    std::vector<void *> outputs;
    for (const auto *list : {&kernel.inputs, &kernel.outputs})
      for (const TensorType &t : *list) {
        RL_ASSIGN(CudaMemory m, CudaMemory::allocate(static_cast<size_t>(t.bytes())));
        RL_TRY(fillTensor(m, t, 1 + memory.size()));
        list == &kernel.inputs ? inputs.push_back(m.data()) : outputs.push_back(m.data());
        memory.push_back(std::move(m));
      }
    RL_TRY(cudaSynchronize());
    constexpr int kWarmUp = 3, kFewest = 15, kMost = 51;
    constexpr double kBudgetSeconds = 0.5;
    std::vector<std::vector<double>> times(modules.size());
    const double begin = now();
    for (int round = -kWarmUp; round < kFewest || (round < kMost && now() - begin < kBudgetSeconds); ++round)
      for (size_t i = 0; i < modules.size(); ++i) {
        if (!modules[i])
          continue;
        RL_ASSIGN(double us, timer.once(stream->handle(), [&] {
          return modules[i]->run(inputs.data(), outputs.data(), stream->handle());
        }));
        if (round >= 0)
          times[i].push_back(us);
      }
    RL_TRY(stream->synchronize());
    std::vector<double> out;
    for (std::vector<double> &t : times)
      out.push_back(median(std::move(t)));
    return out;
  }

private:
  CudaTimer timer;
  std::optional<CudaStream> stream;
};

/// The kernel alone with one of its tiles, loaded. Null where that tile cannot be compiled after all.
Result<std::unique_ptr<Module>> moduleOf(const Graph &graph, const CompileTarget &target, const TunableKernel &kernel,
                                         size_t tile) {
  CompileOptions options;
  options.only = kernel.kernel;
  options.tiles[kernel.key].candidate = tile;
  Result<Compiled> compiled = compile(graph, target, options);
  if (!compiled) {
    if (tile != 0 && compiled.error().code == Code::Unsupported)
      return std::unique_ptr<Module>();
    return compiled.takeError();
  }
  for (const PackageLaunch &l : compiled->package.launches)
    if (l.kind == PackageLaunch::Kernel && l.kernel == kernel.kernel)
      return makeModule(aloneOf(compiled->package, l, kernel), CpuResolver());
  return std::unique_ptr<Module>();
}

} // namespace

Result<Tuning> tuneTiles(const Graph &graph, const CompileTarget &target, const EngineOptions &options,
                         const DiskCache &cache, const CacheKey &base) {
  Tuning out;
  CompileOptions plan;
  plan.only = "";
  RL_ASSIGN(const Compiled planned, compile(graph, target, plan));
  // Equal layers have one key, and are timed once.
  std::vector<const TunableKernel *> kernels;
  for (const TunableKernel &k : planned.tunable)
    if (std::none_of(kernels.begin(), kernels.end(), [&](const TunableKernel *o) { return o->key == k.key; }))
      kernels.push_back(&k);
  std::optional<Stopwatch> stopwatch;
  for (size_t at = 0; at < kernels.size(); ++at) {
    const TunableKernel &k = *kernels[at];
    const size_t count = std::min(k.tiles.size(), static_cast<size_t>(options.tune));
    if (options.tuning)
      options.tuning(at, kernels.size());
    CacheKey key = base;
    key.text = "tiles of " + k.key;
    key.schedule = "tune " + std::to_string(count);
    if (std::optional<std::string> kept = cache.enabled() ? cache.get(key) : std::nullopt)
      if (std::optional<TileChoice> choice = parseChoice(*kept, count)) {
        out.choices[k.key] = *std::move(choice);
        continue;
      }
    std::vector<std::unique_ptr<Module>> modules;
    for (size_t tile = 0; tile < count; ++tile) {
      RL_ASSIGN(std::unique_ptr<Module> module, moduleOf(graph, target, k, tile));
      modules.push_back(std::move(module));
    }
    if (!modules[0]) // its tensors are empty: nothing is launched
      continue;
    if (!stopwatch) {
      RL_ASSIGN(stopwatch, Stopwatch::create());
    }
    TileChoice choice;
    RL_ASSIGN(choice.microseconds, stopwatch->time(k, modules));
    choice.candidate = quickest(choice.microseconds);
    if (cache.enabled())
      cache.put(key, printChoice(choice));
    out.choices[k.key] = std::move(choice);
    ++out.measured;
  }
  return out;
}

} // namespace rl
