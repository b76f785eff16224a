// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "frontend/api/Engine.h"
#include "compiler/Compiler.h"
#include "compiler/explain/Record.h"
#include "compiler/lower/Jit.h"
#include "frontend/api/Reference.h"
#include "frontend/calibrate/Delayed.h"
#include "frontend/engine/BuildId.h"
#include "frontend/engine/Tune.h"
#include "frontend/json/JsonReader.h"
#include "ir/interp/Interpreter.h"
#include "runtime/cpu/CpuFeatures.h"
#include "runtime/cuda/Cuda.h"
#include "runtime/package/PtxKernels.h"

#include <algorithm>
#include <chrono>
#include <thread>

namespace rl {

namespace {

cost::DeviceFacts factsOf(const CudaDevice &d) {
  cost::DeviceFacts f;
  f.name = d.name;
  f.major = d.major;
  f.minor = d.minor;
  f.smCount = d.sms;
  f.l2Bytes = d.l2Bytes;
  f.sharedPerBlock = d.sharedPerBlock;
  f.clockHz = 1e3 * d.clockKHz;
  // Double data rate: two transfers a clock.
  f.dramPeak = 2e3 * d.memoryClockKHz * d.memoryBusBits / 8.0;
  return f;
}

/// This machine's GPU, where there is a usable one.
std::optional<CudaDevice> presentDevice() {
  if (cudaAvailable())
    if (auto device = currentCudaDevice())
      return *std::move(device);
  return std::nullopt;
}

/// sm_90a code runs on 9.0 alone; other code on its own architecture and, assembled by the driver, on later ones.
bool runsOn(const std::string &arch, const CudaDevice &d) {
  int sm = std::atoi(arch.c_str() + 3);
  int have = 10 * d.major + d.minor;
  return arch.ends_with('a') ? sm == have : sm <= have;
}

Result<CompileTarget> compileTarget(const Target &t) {
  if (t.kind == Target::Cuda && t.name == "cuda") {
    RL_ASSIGN(CudaDevice device, currentCudaDevice());
    CompileTarget out;
    RL_ASSIGN(out.machine, cost::targetForDevice(factsOf(device)));
    out.cuda = true;
    out.arch = t.arch;
    return out;
  }
  RL_ASSIGN(CompileTarget out, findCompileTarget(t.name));
  if (t.kind == Target::Cpu)
    out.machine = cost::cpuTarget(static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  return out;
}

std::string toBlob(const Package &p) {
  return joinBlobs({printManifest(p), p.ptx, p.cubin, p.object, p.graph, p.explain});
}

std::optional<Package> fromBlob(const std::string &blob) {
  auto parts = splitBlobs(blob);
  if (!parts || parts->size() != 6)
    return std::nullopt;
  auto p = parseManifest((*parts)[0]);
  if (!p)
    return std::nullopt;
  p->ptx = std::move((*parts)[1]);
  p->cubin = std::move((*parts)[2]);
  p->object = std::move((*parts)[3]);
  p->graph = std::move((*parts)[4]);
  p->explain = std::move((*parts)[5]);
  return *std::move(p);
}

} // namespace

Result<Target> resolveTarget(std::string_view name) {
  Target t;
  t.name = name;
  if (name == "reference") {
    t.kind = Target::Reference;
    return t;
  }
  if (name.empty())
    t.name = cudaAvailable() ? "cuda" : "cpu";
  if (t.name == "cpu") {
    t.kind = Target::Cpu;
    t.arch = "x86-64-v3";
    t.machine = "cpu";
    return t;
  }
  t.kind = Target::Cuda;
  if (t.name == "cuda") {
    RL_ASSIGN(CudaDevice device, currentCudaDevice());
    RL_ASSIGN(cost::TargetDesc machine, cost::targetForDevice(factsOf(device)));
    t.arch = device.arch();
    t.machine = machine.name;
    return t;
  }
  auto found = findCompileTarget(t.name);
  if (!found) {
    std::string known = "cuda, reference";
    for (const std::string &n : compileTargetNames())
      known += ", " + n;
    return usageError("unknown target '" + t.name + "'; known: " + known);
  }
  t.arch = found->arch;
  t.machine = found->machine.name;
  t.runsHere = false;
  if (auto device = presentDevice())
    t.runsHere = runsOn(t.arch, *device);
  return t;
}

std::vector<TargetLine> listTargets() {
  std::vector<TargetLine> out;
  out.push_back({"reference", "plain interpreter on the host: the meaning of the format, every op", true});
  std::optional<CudaDevice> device = presentDevice();
  out.push_back(
      {"cuda", device ? device->name + " (" + device->arch() + ")" : std::string("the GPU of this machine: none found"),
       device.has_value()});
  for (const std::string &n : compileTargetNames()) {
    auto t = findCompileTarget(n);
    if (!t)
      continue;
    bool here = n == "cpu" ? true : device && runsOn(t->arch, *device);
    out.push_back({n,
                   n == "cpu" ? std::string("this machine's processor, code for x86-64-v3 (AVX2, FMA, F16C)")
                              : t->machine.description + ", code for " + t->arch,
                   here});
  }
  return out;
}

Result<PrecisionAssignment> assignTypes(Graph graph, const Target &target) {
  if (!asksForPrecision(graph)) {
    PrecisionAssignment out;
    out.graph = std::move(graph);
    return out;
  }
  if (target.kind == Target::Reference) {
    RL_ASSIGN(CompileTarget machine, findCompileTarget("h200"));
    return assignPrecision(graph, machine.machine);
  }
  RL_ASSIGN(CompileTarget machine, compileTarget(target));
  return assignPrecision(graph, machine.machine);
}

/// Makes the last outputs intermediates that are copied over the last parameters when all kernels have run.
static void tieState(Package &p, size_t count) {
  const size_t firstOutput = p.outputs.size() - count, firstParameter = p.parameters.size() - count;
  for (size_t k = 0; k < count; ++k) {
    auto bufferOf = [&](PackageBuffer::Kind kind, size_t index) {
      return static_cast<uint32_t>(
          std::find_if(p.buffers.begin(), p.buffers.end(),
                       [&](const PackageBuffer &b) { return b.kind == kind && b.index == index; }) -
          p.buffers.begin());
    };
    const uint32_t from = bufferOf(PackageBuffer::Output, firstOutput + k);
    PackageLaunch copy;
    copy.kind = PackageLaunch::Copy;
    copy.args = {bufferOf(PackageBuffer::Parameter, firstParameter + k), from};
    copy.label = p.parameters[firstParameter + k].name;
    p.launches.push_back(std::move(copy));
    PackageBuffer &next = p.buffers[from];
    next.kind = PackageBuffer::Arena;
    next.index = 0;
    next.offset = (p.arenaBytes + 255) / 256 * 256;
    p.arenaBytes = next.offset + next.bytes;
  }
  p.outputs.resize(firstOutput);
}

static Result<Artifact> compileGraph(const GraphSpec &, const Target &, const EngineOptions &);

Result<Artifact> compileSpec(const GraphSpec &spec, const Target &target, const EngineOptions &options) {
  if (options.delayedScaling == 0)
    return compileGraph(spec, target, options);
  RL_ASSIGN(calibrate::DelayedGraph delayed, calibrate::delayScales(spec, options.dims, options.delayedScaling));
  if (!delayed.state.empty() && spec.precision.mode != "keep")
    return unsupported("/precision/mode",
                       "with delayed scaling types are kept: scales change from run to run, and what a precision "
                       "mode makes of parameters is made once");
  RL_ASSIGN(Artifact out, compileGraph(delayed.spec, target, options));
  for (calibrate::StateTensor &s : delayed.state)
    out.state.push_back({std::move(s.name), std::move(s.initial)});
  if (target.kind != Target::Reference)
    tieState(out.package, out.state.size());
  return out;
}

static Result<Artifact> compileGraph(const GraphSpec &spec, const Target &target, const EngineOptions &options) {
  Artifact out;
  out.target = target;
  auto start = std::chrono::steady_clock::now();
  auto lap = [&](const char *phase) {
    auto now = std::chrono::steady_clock::now();
    out.seconds[phase] += std::chrono::duration<double>(now - start).count();
    start = now;
  };
  RL_ASSIGN(const Graph graph, resolve(spec, options.dims));
  lap("resolve");
  if (options.tune)
    RL_TRY(checkTunable(target));
  if (graph.gradient)
    return unsupported("/gradient", "gradient requests are not carried out by this version");
  RL_ASSIGN(PrecisionAssignment assigned, assignTypes(graph, target));
  out.graph = std::move(assigned.graph);
  lap("precision");
  if (target.kind == Target::Reference) {
    RL_TRY(checkInterpretable(out.graph));
    return out;
  }
  RL_ASSIGN(CompileTarget machine, compileTarget(target));
  // The key of the cache is what was asked for; the package holds what came of it.
  std::string canonical = printGraph(specOf(graph));
  DiskCache cache = DiskCache::open(options.keepStages ? "off" : options.cache);
  CacheKey key;
  if (cache.enabled() || options.tune) {
    key.text = canonical;
    if (options.tune)
      key.schedule = "tune " + std::to_string(options.tune);
    key.target = (machine.cuda ? "cuda " : "cpu ") + machine.arch + " " + machine.machine.name + " " +
                 std::to_string(machine.machine.smCount);
    if (target.kind == Target::Cuda && target.runsHere)
      if (auto device = presentDevice())
        key.target += " on " + device->name + " driver " + std::to_string(device->driverVersion);
    key.version = std::string(RIDGELINE_VERSION) + " " + buildId();
  }
  if (cache.enabled()) {
    out.cached = Artifact::Miss;
    out.cacheNote = cache.directory();
    if (auto blob = cache.get(key))
      if (auto package = fromBlob(*blob)) {
        out.package = *std::move(package);
        out.cached = Artifact::Hit;
        lap("cache");
        return out;
      }
    lap("cache");
  } else {
    out.cacheNote = cache.reason();
  }
  CompileOptions compileOptions;
  compileOptions.keepStages = options.keepStages;
  if (options.tune) {
    RL_ASSIGN(Tuning tuning, tuneTiles(graph, machine, options, DiskCache::open(options.cache), key));
    compileOptions.tiles = std::move(tuning.choices);
    out.measured = tuning.measured;
    lap("tune");
  }
  RL_ASSIGN(Compiled compiled, compile(graph, machine, compileOptions));
  out.package = std::move(compiled.package);
  out.package.graph = printGraph(specOf(compiled.graph));
  for (StageText &s : compiled.stages)
    out.stages.push_back({std::move(s.stage), std::move(s.text)});
  for (auto &[phase, seconds] : compiled.seconds)
    out.seconds[phase] += seconds;
  start = std::chrono::steady_clock::now();
  if (cache.enabled()) {
    // The driver would assemble the text at every load; its machine code is kept beside it, but of what is seldom wanted.
    if (target.kind == Target::Cuda && target.runsHere && !out.package.ptx.empty()) {
      if (auto cubin = assemblePtx(ptxPart(out.package, CodePart::Usual)))
        out.package.cubin = *std::move(cubin);
      lap("assemble");
    }
    cache.put(key, toBlob(out.package));
    lap("cache");
  }
  return out;
}

static Result<std::unique_ptr<Module>> makeStateless(Artifact artifact) {
  if (artifact.target.kind == Target::Reference)
    return makeReferenceModule(std::move(artifact.graph), artifact.state.size());
  if (!artifact.target.runsHere)
    return deviceError("target " + artifact.target.name + " (" + artifact.target.arch +
                       ") is not this machine's: it can be compiled for, not run");
  if (artifact.target.kind == Target::Cuda)
    return makeModule(std::move(artifact.package), {});
  CpuResolver resolver;
  if (!artifact.package.object.empty()) {
    RL_TRY(checkCpuArch(artifact.package.arch));
    RL_ASSIGN(CodeResolver code, loadObject(artifact.package.object));
    resolver = [code = std::move(code)](const std::string &symbol) -> Result<CpuKernel> {
      RL_ASSIGN(void *address, code(symbol));
      return reinterpret_cast<CpuKernel>(address);
    };
  }
  return makeModule(std::move(artifact.package), std::move(resolver));
}

Result<std::unique_ptr<Module>> makeModule(Artifact artifact) {
  const std::vector<ArtifactState> state = artifact.state;
  RL_ASSIGN(std::unique_ptr<Module> module, makeStateless(std::move(artifact)));
  for (const ArtifactState &s : state)
    RL_TRY(module->bind(s.name, s.initial.data(), s.initial.size()));
  return module;
}

Status savePackage(const Package &package, const std::string &directory) {
  Package copy = package;
  if (copy.target == "cpu" && copy.sharedObject.empty() && !copy.object.empty()) {
    RL_ASSIGN(copy.sharedObject, linkSharedObject(copy.object));
  }
  return writePackage(copy, directory);
}

Result<std::string> explainPackage(const Package &package, std::string_view format) {
  if (package.explain.empty())
    return unsupported({}, "this package carries no decision record");
  return renderRecord(package.explain, format);
}

Result<std::string> explainArtifact(const Artifact &artifact, std::string_view format) {
  if (artifact.target.kind != Target::Reference)
    return explainPackage(artifact.package, format);
  std::string record = "{\"ridgeline_record\": 1, \"name\": \"" + artifact.graph.name +
                       "\", \"target\": \"reference\", \"nodes\": " + std::to_string(artifact.graph.nodes.size()) +
                       ", \"kernels\": []}";
  if (format == "json")
    return record + "\n";
  std::string text = "graph " + artifact.graph.name + " for reference: " + std::to_string(artifact.graph.nodes.size()) +
                     " nodes, run one after the other; the interpreter fuses nothing\n";
  if (format == "text")
    return text;
  if (format == "html")
    return "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>" + artifact.graph.name +
           "</title></head><body><p>" + text + "</p></body></html>\n";
  return usageError("unknown format '" + std::string(format) + "'; known: text, json, html");
}

} // namespace rl
