// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ridgeline bench: measured times beside predicted ones.
//
// On a GPU a run is timed by events on its stream, behind a write of 256 MB that empties the L2 cache and hides the time
// that the host takes to launch; the limit of a kernel is the time of an empty one by the same method plus its bytes over
// the copy bandwidth, both measured here. On the CPU: wall clock, caches as the last run left them.
#include "frontend/cli/Work.h"
#include "frontend/engine/CudaTimer.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstring>
#include <set>
#include <thread>

namespace rl::cli {
namespace {

constexpr double kBudgetSeconds = 2;
constexpr int kMostRuns = 200, kFewestRuns = 5;

struct Sample {
  double median = 0, least = 0; ///< microseconds
  int runs = 0;
};

Sample sampleOf(const std::vector<double> &times) {
  return {median(times), times.empty() ? 0 : *std::min_element(times.begin(), times.end()),
          static_cast<int>(times.size())};
}

/// Times anything that can be enqueued on a CUDA stream.
template <class Enqueue>
Result<Sample> timeCuda(CudaTimer &timer, void *stream, int repeat, Progress &progress, Enqueue enqueue) {
  std::vector<double> times;
  const double begin = now();
  const int warmUp = 3;
  for (int i = -warmUp; repeat ? i < repeat : i < kFewestRuns || (i < kMostRuns && now() - begin < kBudgetSeconds);
       ++i) {
    RL_ASSIGN(double t, timer.once(stream, enqueue));
    if (i >= 0)
      times.push_back(t);
    progress.step(static_cast<size_t>(std::max(i, 0)), static_cast<size_t>(repeat ? repeat : kMostRuns));
  }
  return sampleOf(times);
}

template <class Run> Result<Sample> timeWall(int repeat, Progress &progress, Run run) {
  std::vector<double> times;
  RL_TRY(run());
  const double begin = now();
  for (int i = 0; repeat ? i < repeat : i < kFewestRuns || (i < kMostRuns && now() - begin < kBudgetSeconds); ++i) {
    double start = now();
    RL_TRY(run());
    times.push_back((now() - start) * 1e6);
    progress.step(static_cast<size_t>(i + 1), static_cast<size_t>(repeat ? repeat : kMostRuns));
  }
  return sampleOf(times);
}

struct Machine {
  std::string device;
  double copyBytesPerSecond = 0; ///< read and written bytes together
  double emptyMicroseconds = 0;
};

/// A package of one launch that needs nothing else.
Package smallPackage(const std::string &arch) {
  Package p;
  p.name = "bench";
  p.version = RIDGELINE_VERSION;
  p.target = "cuda";
  p.arch = arch;
  return p;
}

Result<Machine> measureCuda(CudaTimer &timer, Progress &progress) {
  Machine machine;
  RL_ASSIGN(CudaDevice device, currentCudaDevice());
  machine.device = device.name;
  RL_ASSIGN(CudaStream stream, CudaStream::create());

  RL_ASSIGN(CudaMemoryInfo memory, cudaMemoryInfo());
  const int64_t bytes = std::min<int64_t>(int64_t(1) << 30, static_cast<int64_t>(memory.free / 4) / 256 * 256);
  if (bytes > 0) {
    Package copy = smallPackage(device.arch());
    copy.inputs.push_back({"x", {DType::U8, {bytes}}});
    copy.outputs.push_back({"y", {DType::U8, {bytes}}});
    copy.buffers = {{PackageBuffer::Input, 0, 0, bytes}, {PackageBuffer::Output, 0, 0, bytes}};
    PackageLaunch launch;
    launch.kind = PackageLaunch::Copy;
    launch.args = {1, 0};
    copy.launches.push_back(launch);
    RL_ASSIGN(std::unique_ptr<Module> module, rl::makeModule(std::move(copy), CpuResolver()));
    RL_ASSIGN(CudaMemory from, CudaMemory::allocate(static_cast<size_t>(bytes)));
    RL_ASSIGN(CudaMemory to, CudaMemory::allocate(static_cast<size_t>(bytes)));
    RL_TRY(from.fill(1, stream.handle()));
    const void *in[] = {from.data()};
    void *out[] = {to.data()};
    RL_ASSIGN(Sample s,
              timeCuda(timer, stream.handle(), 20, progress, [&] { return module->run(in, out, stream.handle()); }));
    machine.copyBytesPerSecond = s.median > 0 ? 2e6 * static_cast<double>(bytes) / s.median : 0;
  }

  Package empty = smallPackage(device.arch());
  empty.ptx = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry ridgeline_empty() { ret; }\n";
  PackageLaunch launch;
  launch.kernel = "ridgeline_empty";
  launch.block = {32, 1, 1};
  empty.launches.push_back(launch);
  RL_ASSIGN(std::unique_ptr<Module> module, rl::makeModule(std::move(empty), CpuResolver()));
  RL_ASSIGN(Sample s, timeCuda(timer, stream.handle(), 50, progress,
                               [&] { return module->run(nullptr, nullptr, stream.handle()); }));
  machine.emptyMicroseconds = s.median;
  return machine;
}

/// Copies between two buffers beyond the caches, on all cores; the best of some, as other work only ever slows it.
Result<Machine> measureCpu() {
  Machine machine;
  const unsigned threads = std::max(1u, std::thread::hardware_concurrency());
  machine.device = std::to_string(threads) + (threads == 1 ? " thread" : " threads");
  const size_t bytes = size_t(128) << 20;
  Result<HostBuffer> from = HostBuffer::allocate(bytes), to = HostBuffer::allocate(bytes);
  if (!from || !to)
    return machine; // a share that is not known is left out
  std::memset(from->data(), 1, bytes);
  std::memset(to->data(), 2, bytes);
  auto copy = [&] {
    std::vector<std::thread> others;
    auto part = [&](unsigned t) {
      size_t begin = bytes / threads * t, end = t + 1 == threads ? bytes : bytes / threads * (t + 1);
      std::memcpy(to->data() + begin, from->data() + begin, end - begin);
    };
    for (unsigned t = 1; t < threads; ++t) {
      try {
        others.emplace_back(part, t);
      } catch (...) {
        part(t);
      }
    }
    part(0);
    for (std::thread &t : others)
      t.join();
  };
  double best = 0;
  for (int i = 0; i < 8; ++i) {
    double start = now();
    copy();
    double seconds = now() - start;
    best = std::max(best, 2 * static_cast<double>(bytes) / seconds);
  }
  machine.copyBytesPerSecond = best;
  return machine;
}

struct Row {
  std::string name;
  double predicted = 0, bytes = 0;
  Sample measured;
};

nlohmann::ordered_json jsonOf(const Row &row, const Machine &machine) {
  nlohmann::ordered_json j;
  j["name"] = row.name;
  j["predicted_us"] = row.predicted;
  j["measured_us"] = row.measured.median;
  j["least_us"] = row.measured.least;
  j["runs"] = row.measured.runs;
  j["bytes"] = row.bytes;
  double rate = row.measured.median > 0 ? row.bytes / row.measured.median * 1e6 : 0;
  j["bytes_per_second"] = rate;
  j["of_copy"] = machine.copyBytesPerSecond > 0 ? rate / machine.copyBytesPerSecond : 0;
  if (machine.emptyMicroseconds > 0 && machine.copyBytesPerSecond > 0 && row.measured.median > 0)
    j["of_limit"] = (machine.emptyMicroseconds + row.bytes / machine.copyBytesPerSecond * 1e6) / row.measured.median;
  return j;
}

std::string padded(const std::string &s, size_t width, bool left = false) {
  std::string space(s.size() < width ? width - s.size() : 0, ' ');
  return left ? s + space : space + s;
}

std::string tableOf(const std::vector<Row> &rows, const Machine &machine) {
  size_t width = 6;
  for (const Row &r : rows)
    width = std::max(width, r.name.size());
  const bool limit = machine.emptyMicroseconds > 0;
  std::string out = padded("kernel", width, true) +
                    "  predicted us  measured us      least us        bytes      GB/s  of copy" +
                    (limit ? "  of limit" : "") + "\n";
  for (const Row &r : rows) {
    nlohmann::ordered_json j = jsonOf(r, machine);
    out += padded(r.name, width, true) + padded(r.predicted > 0 ? fixed(r.predicted, 2) : "-", 14) +
           padded(fixed(r.measured.median, 2), 13) + padded(fixed(r.measured.least, 2), 14) +
           padded(amount(r.bytes), 13) + padded(fixed(j["bytes_per_second"].get<double>() / 1e9, 1), 10) +
           padded(fixed(j["of_copy"].get<double>(), 3), 9) +
           (limit ? padded(fixed(j.value("of_limit", 0.0), 3), 10) : "") + "\n";
  }
  return out;
}

/// The package with what its launches hand on as results behind its own, each in memory of its own: a module of one launch then
/// finds what a run of all has left.
Package withIntermediates(Package p) {
  std::set<uint32_t> atBind;
  for (const PackageLaunch &l : p.bindLaunches)
    atBind.insert(l.args.begin(), l.args.end());
  for (uint32_t i = 0; i < p.buffers.size(); ++i) {
    PackageBuffer &buffer = p.buffers[i];
    if (buffer.kind != PackageBuffer::Arena || atBind.contains(i))
      continue;
    buffer = {PackageBuffer::Output, static_cast<uint32_t>(p.outputs.size()), 0, buffer.bytes};
    p.outputs.push_back({"intermediate", {DType::U8, {buffer.bytes}}});
  }
  return p;
}

} // namespace

Status benchCommand(const Options &given) {
  Options options = given;
  if (options.inputs.empty())
    options.inputs = "random";
  RL_ASSIGN(Work work, loadWork(options));
  RL_ASSIGN(Target target, chooseTarget(options, work));
  RL_TRY(checkRunsHere(target));
  RL_ASSIGN(Call call, prepareCall(options, work));
  RL_ASSIGN(Artifact artifact, buildArtifact(options, work, target, call.dims));
  const RecordSummary record = summarise(artifact.package.explain);
  const bool cuda = target.kind == Target::Cuda;
  Progress progress(options, "bench: runs");

  Machine machine;
  std::optional<CudaTimer> timer;
  if (cuda) {
    RL_ASSIGN(timer, CudaTimer::create());
    RL_ASSIGN(machine, measureCuda(*timer, progress));
  } else {
    RL_ASSIGN(machine, measureCpu());
  }

  auto measure = [&](Runner &runner) -> Result<Sample> {
    if (cuda)
      return timeCuda(*timer, runner.stream(), options.repeat, progress, [&] { return runner.enqueue(); });
    return timeWall(options.repeat, progress, [&] { return runner.run(); });
  };

  Row total{"all", record.predictedMicroseconds, record.bytes, {}};
  {
    RL_ASSIGN(std::unique_ptr<Module> module, makeModule(artifact));
    RL_ASSIGN(Runner runner, Runner::make(std::move(module), target, call));
    RL_ASSIGN(total.measured, measure(runner));
  }
  if (target.kind == Target::Reference) { // what goes in and comes out; nothing is predicted
    for (const auto *tensors : {&call.inputs, &call.parameters})
      for (const CallTensor &t : *tensors)
        total.bytes += static_cast<double>(t.type.bytes());
    for (ValueId v : call.graph.outputs)
      total.bytes += static_cast<double>(call.graph.type(v).bytes());
  }

  // Each launch alone, as a package of its own, on what a run of all of them has left: how long some take depends on their data.
  std::vector<Row> rows;
  const std::vector<PackageLaunch> launches = artifact.package.launches;
  std::optional<Runner> one;
  if (launches.size() > 1) {
    Artifact whole = artifact;
    whole.package = withIntermediates(std::move(whole.package));
    RL_ASSIGN(std::unique_ptr<Module> module, makeModule(whole));
    if (Result<Runner> made = Runner::make(std::move(module), target, call); made.ok()) {
      one = std::move(*made);
      artifact = std::move(whole);
    } else { // they share memory otherwise
      note(options,
           "note: there is no memory for all intermediate tensors at once: kernels alone read what lies there");
      RL_ASSIGN(std::unique_ptr<Module> plain, makeModule(artifact));
      RL_ASSIGN(one, Runner::make(std::move(plain), target, call));
    }
    RL_TRY(one->run());
  }
  const size_t kMostRows = 64;
  if (launches.size() > kMostRows)
    note(options, "note: the graph has " + std::to_string(launches.size()) + " launches; only the first " +
                      std::to_string(kMostRows) + " are measured alone");
  for (size_t i = 0; i < launches.size() && i < kMostRows; ++i) {
    const PackageLaunch &l = launches[i];
    Row row;
    row.name = l.kind == PackageLaunch::Copy ? "copy" : l.planName();
    if (l.kind == PackageLaunch::Copy)
      row.bytes = 2 * static_cast<double>(artifact.package.buffers[l.args[0]].bytes);
    for (const KernelSummary &k : record.kernels)
      if (l.kind == PackageLaunch::Kernel && k.launch == l.planName()) {
        row.predicted += k.predictedMicroseconds - (k.name == k.launch ? 0 : k.savedMicroseconds);
        row.bytes += k.bytes;
      }
    if (launches.size() == 1) {
      row.measured = total.measured;
    } else {
      Artifact alone = artifact;
      alone.package.launches = {l};
      RL_ASSIGN(std::unique_ptr<Module> module, makeModule(std::move(alone)));
      RL_TRY(one->setModule(std::move(module), call));
      RL_ASSIGN(row.measured, measure(*one));
    }
    rows.push_back(std::move(row));
  }

  if (options.json) {
    nlohmann::ordered_json j;
    j["graph"] = work.name;
    j["target"] = target.name;
    j["arch"] = target.arch;
    j["device"] = machine.device;
    j["copy_bytes_per_second"] = machine.copyBytesPerSecond;
    if (cuda)
      j["empty_us"] = machine.emptyMicroseconds;
    j["total"] = jsonOf(total, machine);
    j["kernels"] = nlohmann::ordered_json::array();
    for (const Row &row : rows)
      j["kernels"].push_back(jsonOf(row, machine));
    return print(j.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  }
  std::string out = "graph " + work.name + " on " + target.name +
                    (target.arch.empty() ? "" : " (" + target.arch + ")") + ", " + machine.device + ": median of " +
                    std::to_string(total.measured.runs) + " runs" + (cuda ? ", cold L2 cache" : "") + "\n";
  out += "copy bandwidth here: " + fixed(machine.copyBytesPerSecond / 1e9, 1) + " GB/s";
  if (cuda)
    out += "; an empty kernel: " + fixed(machine.emptyMicroseconds, 2) + " us";
  rows.push_back(total);
  out += "\n" + tableOf(rows, machine);
  return print(out);
}

} // namespace rl::cli
