// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Loading graphs, packages and the tensors of a call.
#include "frontend/cli/Work.h"
#include "frontend/cli/Random.h"
#include "frontend/engine/Tune.h"
#include "frontend/json/JsonReader.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace rl::cli {

static Error inFile(Error error, const std::string &file) {
  if (error.file.empty())
    error.file = file;
  return error;
}

Result<Work> loadGraph(const Options &options) {
  if (isDirectory(options.graph))
    return usageError(options.graph + " is a directory; a graph file is wanted here");
  Work work;
  work.path = options.graph;
  RL_ASSIGN(std::string text, readGraphFile(options.graph));
  Result<GraphSpec> spec = parseGraph(text);
  if (!spec)
    return inFile(spec.takeError(), work.path);
  work.spec = *std::move(spec);
  Result<Signature> signature = checkSpec(work.spec);
  if (!signature)
    return inFile(signature.takeError(), work.path);
  work.signature = *std::move(signature);
  work.name = work.spec.name;
  return work;
}

Result<Work> loadWork(const Options &options) {
  if (!isDirectory(options.graph))
    return loadGraph(options);
  Work work;
  work.path = options.graph;
  Result<Package> package = readPackage(options.graph);
  if (!package)
    return inFile(package.takeError(), work.path);
  work.package = *std::move(package);
  work.name = work.package->name;
  auto tensors = [](const std::vector<PackageTensor> &from, auto &to) {
    for (const PackageTensor &t : from)
      to.emplace_back(t.name, t.type);
  };
  tensors(work.package->inputs, work.signature.inputs);
  tensors(work.package->parameters, work.signature.parameters);
  tensors(work.package->outputs, work.signature.outputs);
  // The graph in a package is for those who read it; without one the package runs all the same.
  if (Result<GraphSpec> spec = parseGraph(work.package->graph))
    work.spec = *std::move(spec);
  return work;
}

void HostBuffer::Free::operator()(std::byte *p) const { std::free(p); }

Result<HostBuffer> HostBuffer::allocate(size_t bytes) {
  HostBuffer buffer;
  buffer.bytes = bytes;
  size_t rounded = std::max<size_t>((bytes + 255) / 256 * 256, 256);
  // A request beyond the machine's memory may be granted and then kill the process when it is used.
  auto machine = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (rounded >= bytes && static_cast<double>(bytes) <= machine)
    buffer.memory.reset(static_cast<std::byte *>(std::aligned_alloc(256, rounded)));
  if (!buffer.memory)
    return deviceError("out of memory: " + std::to_string(bytes) + " bytes for a tensor");
  return buffer;
}

Result<DimValues> givenDims(const Options &options, const GraphSpec &spec) {
  DimValues dims;
  for (const std::string &text : options.dims) {
    size_t equals = text.find('=');
    int64_t value = 0;
    const char *end = text.data() + text.size();
    if (equals == std::string::npos || equals == 0)
      return usageError("--dim " + text + ": NAME=VALUE is wanted, as in --dim B=32");
    auto parsed = std::from_chars(text.data() + equals + 1, end, value);
    if (parsed.ec != std::errc() || parsed.ptr != end || value < 0)
      return usageError("--dim " + text + ": the value is not a whole number of at least 0");
    std::string name = text.substr(0, equals), known;
    bool found = false;
    for (const DimSpec &d : spec.dims) {
      found |= d.name == name;
      known += (known.empty() ? "" : ", ") + d.name;
    }
    if (!found)
      return usageError("--dim " + text + ": the graph has no symbolic dimension " + name +
                        (known.empty() ? "" : "; it has: " + known));
    if (!dims.emplace(name, value).second)
      return usageError("--dim " + text + ": " + name + " is given twice");
  }
  return dims;
}

Result<Graph> resolveWithDefaults(const Options &options, const GraphSpec &spec, DimValues &dims) {
  std::vector<const DimSpec *> open;
  for (const DimSpec &d : spec.dims)
    if (!dims.count(d.name))
      open.push_back(&d);
  if (open.empty())
    return resolve(spec, dims);
  // 64 is large enough to show what a kernel does and small enough for any graph; then whatever else is valid.
  std::optional<Error> first;
  for (int64_t wish : {int64_t(64), int64_t(8), int64_t(1), int64_t(1024), INT64_MAX}) {
    DimValues values = dims;
    for (const DimSpec *d : open)
      values[d->name] = std::clamp(wish, d->min, d->max);
    Result<Graph> graph = resolve(spec, values);
    if (graph) {
      std::string text;
      for (const DimSpec *d : open)
        text += (text.empty() ? "" : ", ") + d->name + "=" + std::to_string(values[d->name]);
      note(options, "note: " + text + " by default; --dim NAME=VALUE sets a dimension");
      dims = std::move(values);
      return graph;
    }
    if (!first)
      first = graph.takeError();
  }
  return *first;
}

Result<CallTensor> callTensor(const SafetensorsEntry &entry) {
  CallTensor tensor;
  tensor.name = entry.name;
  tensor.type = entry.type;
  tensor.data = entry.data;
  if (reinterpret_cast<uintptr_t>(entry.data) % dtypeSize(entry.type.dtype) != 0) {
    RL_ASSIGN(tensor.owned, HostBuffer::allocate(entry.bytes));
    std::memcpy(tensor.owned.data(), entry.data, entry.bytes);
    tensor.data = tensor.owned.data();
  }
  return tensor;
}

Result<ParameterFiles> ParameterFiles::open(const Options &options) {
  ParameterFiles out;
  for (const std::string &path : options.params) {
    RL_ASSIGN(SafetensorsFile file, SafetensorsFile::open(path));
    out.files.push_back(std::move(file));
  }
  return out;
}

Result<const SafetensorsEntry *> ParameterFiles::find(const std::string &name, const TensorType &type) const {
  for (const SafetensorsFile &file : files)
    if (file.find(name))
      return file.get(name, type);
  return nullptr;
}

static Result<uint64_t> seedOf(const std::string &inputs) {
  if (inputs == "random")
    return uint64_t(0);
  const char *begin = inputs.data() + std::strlen("random:"), *end = inputs.data() + inputs.size();
  uint64_t seed = 0;
  auto parsed = std::from_chars(begin, end, seed);
  if (parsed.ec != std::errc() || parsed.ptr != end)
    return usageError("--inputs " + inputs +
                      ": the seed is not a whole number of at least 0; a file of that name is ./" + inputs);
  return seed;
}

static Status checkMemory(const Call &call, const Signature &signature, bool copies) {
  double bytes = 0;
  if (copies)
    for (const auto *tensors : {&call.inputs, &call.parameters})
      for (const CallTensor &t : *tensors)
        bytes += static_cast<double>(t.type.bytes());
  for (size_t i = 0; i < signature.outputs.size(); ++i)
    bytes += static_cast<double>(call.graph.outputs.size() == signature.outputs.size()
                                     ? call.graph.type(call.graph.outputs[i]).bytes()
                                     : signature.outputs[i].second.bytes());
  auto machine = static_cast<double>(::sysconf(_SC_PHYS_PAGES)) * static_cast<double>(::sysconf(_SC_PAGESIZE));
  if (bytes > machine)
    return deviceError("out of memory: the graph's tensors take " + amount(bytes) + ", and this machine has " +
                       amount(machine));
  return {};
}

/// The graph for the shapes that a file has.
static Status bindFile(const Options &options, const Work &work, Call &call) {
  Result<SafetensorsFile> file = SafetensorsFile::open(options.inputs);
  if (!file)
    return inFile(file.takeError(), options.inputs);
  call.file = *std::move(file);
  call.source = options.inputs;
  std::vector<std::vector<int64_t>> shapes[2];
  std::vector<const SafetensorsEntry *> entries[2];
  const std::vector<std::pair<std::string, TensorType>> *lists[2] = {&work.signature.inputs,
                                                                     &work.signature.parameters};
  for (int kind = 0; kind < 2; ++kind)
    for (const auto &[name, type] : *lists[kind]) {
      Result<const SafetensorsEntry *> entry = nullptr;
      if (kind == 1) {
        RL_ASSIGN(entry, call.parameterFiles.find(name, type));
      }
      if (*entry) {
        entries[kind].push_back(*entry);
        shapes[kind].push_back((*entry)->type.shape);
        continue;
      }
      entry = call.file->get(name, type);
      if (!entry)
        return inFile(entry.takeError(), options.inputs);
      entries[kind].push_back(*entry);
      shapes[kind].push_back((*entry)->type.shape);
    }
  if (!work.package) {
    RL_ASSIGN(DimValues given, givenDims(options, work.spec));
    Result<DimValues> dims = bindDims(work.spec, shapes[0], shapes[1]);
    if (!dims) {
      Error error = dims.takeError();
      // "/dims/NAME" is a place in the graph; a tensor's pointer has one part.
      bool ofGraph = error.pointer.starts_with("/dims/");
      return inFile(std::move(error), ofGraph ? work.path : options.inputs);
    }
    for (const auto &[name, value] : given) {
      auto [it, fresh] = dims->emplace(name, value);
      if (!fresh && it->second != value)
        return usageError("--dim " + name + "=" + std::to_string(value) + ": the tensors of " + options.inputs +
                          " have " + name + "=" + std::to_string(it->second));
    }
    call.dims = *std::move(dims);
    Result<Graph> graph = resolve(work.spec, call.dims);
    if (!graph)
      return inFile(graph.takeError(), work.path);
    call.graph = *std::move(graph);
  }
  for (int kind = 0; kind < 2; ++kind)
    for (size_t i = 0; i < entries[kind].size(); ++i) {
      RL_ASSIGN(CallTensor tensor, callTensor(*entries[kind][i]));
      (kind ? call.parameters : call.inputs).push_back(std::move(tensor));
    }
  return {};
}

Result<Call> prepareCall(const Options &options, const Work &work) {
  Call call;
  RL_ASSIGN(call.parameterFiles, ParameterFiles::open(options));
  if (work.package) {
    if (!options.dims.empty())
      return usageError("--dim: a package's extents are fixed");
    if (!work.spec.outputs.empty()) {
      Result<Graph> graph = resolve(work.spec);
      if (graph)
        call.graph = *std::move(graph);
    }
  }
  const bool random = options.inputs == "random" || options.inputs.starts_with("random:");
  if (!random) {
    RL_TRY(bindFile(options, work, call));
    RL_TRY(checkMemory(call, work.signature, false));
    return call;
  }

  RL_ASSIGN(uint64_t seed, seedOf(options.inputs));
  call.source = "random:" + std::to_string(seed);
  if (!work.package) {
    RL_ASSIGN(call.dims, givenDims(options, work.spec));
    Result<Graph> graph = resolveWithDefaults(options, work.spec, call.dims);
    if (!graph)
      return inFile(graph.takeError(), work.path);
    call.graph = *std::move(graph);
  }
  const std::vector<Demand> asked = demands(call.graph);
  auto lay = [&](const std::vector<std::pair<std::string, TensorType>> &signature, const std::vector<ValueId> &values,
                 std::vector<CallTensor> &out) {
    for (size_t i = 0; i < signature.size(); ++i) {
      CallTensor tensor;
      tensor.name = signature[i].first;
      tensor.type = work.package ? signature[i].second : call.graph.type(values[i]);
      out.push_back(std::move(tensor));
    }
  };
  lay(work.signature.inputs, call.graph.inputs, call.inputs);
  lay(work.signature.parameters, call.graph.parameters, call.parameters);
  RL_TRY(checkMemory(call, work.signature, true));
  Progress progress(options, "making up tensors");
  size_t done = 0, all = call.inputs.size() + call.parameters.size();
  for (int kind = 0; kind < 2; ++kind) {
    std::vector<CallTensor> &tensors = kind ? call.parameters : call.inputs;
    const std::vector<ValueId> &values = kind ? call.graph.parameters : call.graph.inputs;
    for (size_t i = 0; i < tensors.size(); ++i) {
      CallTensor &t = tensors[i];
      if (kind == 1) {
        RL_ASSIGN(const SafetensorsEntry *entry, call.parameterFiles.find(t.name, t.type));
        if (entry) {
          RL_ASSIGN(t, callTensor(*entry));
          progress.step(++done, all);
          continue;
        }
      }
      RL_ASSIGN(t.owned, HostBuffer::allocate(static_cast<size_t>(t.type.bytes())));
      fillRandom(t.owned.data(), t.type, t.name, seed, i < values.size() ? asked[values[i]] : Demand());
      t.data = t.owned.data();
      progress.step(++done, all);
    }
  }
  return call;
}

Result<Target> chooseTarget(const Options &options, const Work &work) {
  if (!work.package) {
    RL_ASSIGN(Target target, resolveTarget(options.target));
    if (options.tune)
      if (Status status = checkTunable(target); !status)
        return inFile(status.takeError(), work.path);
    return target;
  }
  if (options.tune)
    return usageError("--tune: a package is compiled already; give the graph file");
  Target own;
  own.kind = work.package->target == "cuda" ? Target::Cuda : Target::Cpu;
  own.name = work.package->target;
  own.arch = work.package->arch;
  if (!options.target.empty()) {
    RL_ASSIGN(Target asked, resolveTarget(options.target));
    if (asked.kind != own.kind)
      return usageError("--target " + options.target + ": the package is compiled for " + own.name + " (" + own.arch +
                        "); leave --target out");
  }
  return own;
}

Status checkRunsHere(const Target &target) {
  if (!target.runsHere)
    return deviceError("target " + target.name +
                       (target.arch.empty() || target.arch == target.name ? "" : " (" + target.arch + ")") +
                       " does not run on this machine, it can be compiled for only; see ridgeline targets");
  return {};
}

Result<Artifact> buildArtifact(const Options &options, const Work &work, const Target &target, const DimValues &dims,
                               bool keepStages) {
  if (work.package) {
    Artifact artifact;
    artifact.target = target;
    artifact.package = *work.package;
    return artifact;
  }
  EngineOptions engine;
  engine.cache = options.cache;
  engine.dims = dims;
  engine.keepStages = keepStages;
  engine.tune = options.tune;
  std::optional<Progress> progress(std::in_place, options, "tuning kernels");
  engine.tuning = [&](size_t done, size_t all) { progress->step(done, all); };
  double start = now();
  Result<Artifact> artifact = compileSpec(work.spec, target, engine);
  progress.reset(); // its line goes before others come
  if (!artifact)
    return inFile(artifact.takeError(), work.path);
  if (options.verbose) {
    std::string line = "compile: " + fixed((now() - start) * 1e3, 2) + " ms";
    for (const auto &[phase, seconds] : artifact->seconds)
      line += ", " + phase + " " + fixed(seconds * 1e3, 2);
    note(options, line);
    const char *const states[] = {"off", "miss", "hit"};
    note(options, std::string("cache: ") + states[artifact->cached] +
                      (artifact->cacheNote.empty() ? "" : " (" + artifact->cacheNote + ")"));
    if (options.tune)
      note(options, "tuned: " + std::to_string(artifact->measured) +
                        (artifact->measured == 1 ? " kernel" : " kernels") + " measured now");
  }
  return artifact;
}

Result<Runner> Runner::make(std::unique_ptr<Module> module, const Target &target, const Call &call) {
  Runner runner;
  runner.cuda = target.kind == Target::Cuda;
  runner.source = call.source;
  RL_TRY(runner.setModule(std::move(module), call));
  if (runner.cuda) {
    RL_ASSIGN(runner.queue, CudaStream::create());
  }
  for (const CallTensor &t : call.inputs) {
    if (!runner.cuda) {
      runner.inputPointers.push_back(t.data);
      continue;
    }
    auto bytes = static_cast<size_t>(t.type.bytes());
    RL_ASSIGN(CudaMemory memory, CudaMemory::allocate(bytes));
    if (bytes)
      RL_TRY(memory.upload(t.data, bytes));
    runner.inputPointers.push_back(memory.data());
    runner.deviceMemory.push_back(std::move(memory));
  }
  for (const PackageTensor &t : runner.module->tensors(2)) {
    auto bytes = static_cast<size_t>(t.type.bytes());
    RL_ASSIGN(HostBuffer memory, HostBuffer::allocate(bytes));
    runner.outputPointers.push_back(memory.data());
    runner.hostMemory.push_back(std::move(memory));
    if (runner.cuda) {
      RL_ASSIGN(CudaMemory device, CudaMemory::allocate(bytes));
      runner.outputPointers.back() = device.data();
      runner.deviceMemory.push_back(std::move(device));
    }
  }
  return runner;
}

Status Runner::setModule(std::unique_ptr<Module> other, const Call &call) {
  module = std::move(other);
  for (const CallTensor &p : call.parameters)
    RL_TRY(module->bind(p.name, p.data, static_cast<size_t>(p.type.bytes())));
  return {};
}

Status Runner::enqueue() {
  Status status = module->run(inputPointers.data(), outputPointers.data(), stream());
  if (status)
    return status;
  // An index out of range is found at run time. Its place is the tensor's, "/indices", in the data, or a node's.
  Error error = status.takeError();
  if (error.code == Code::Invalid && !error.pointer.empty() && !error.pointer.starts_with("/nodes/"))
    return inFile(std::move(error), source);
  return error;
}

Status Runner::finish() { return cuda ? queue->synchronize() : Status(); }

Status Runner::setInputs(const std::vector<CallTensor> &inputs, std::string from) {
  source = std::move(from);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto bytes = static_cast<size_t>(inputs[i].type.bytes());
    if (!cuda)
      inputPointers[i] = inputs[i].data;
    else if (bytes)
      RL_TRY(deviceMemory[i].upload(inputs[i].data, bytes));
  }
  return {};
}

Status Runner::fetch() {
  const size_t firstOutput = inputPointers.size();
  for (size_t i = 0; cuda && i < hostMemory.size(); ++i)
    if (hostMemory[i].size() > 0)
      RL_TRY(deviceMemory[firstOutput + i].download(hostMemory[i].data(), hostMemory[i].size()));
  return {};
}

Result<std::vector<CallTensor>> Runner::outputs() {
  RL_TRY(fetch());
  std::vector<CallTensor> out;
  const std::vector<PackageTensor> &tensors = module->tensors(2);
  for (size_t i = 0; i < tensors.size(); ++i) {
    CallTensor tensor;
    tensor.name = tensors[i].name;
    tensor.type = tensors[i].type;
    tensor.data = hostMemory[i].data();
    tensor.owned = std::move(hostMemory[i]);
    out.push_back(std::move(tensor));
  }
  return out;
}

Result<PrecisionRecord> assignTypes(Call &call, const Target &target) {
  RL_ASSIGN(PrecisionAssignment assigned, assignTypes(std::move(call.graph), target));
  call.graph = std::move(assigned.graph);
  return std::move(assigned.record);
}

Result<std::vector<HostTensor>> runReference(const Options &options, const Call &call, const Graph &graph,
                                             Intermediates intermediates, uint64_t nudging) {
  auto tensors = [](const std::vector<CallTensor> &from) {
    std::vector<HostTensor> to;
    to.reserve(from.size());
    for (const CallTensor &t : from)
      to.push_back({t.type, std::vector<std::byte>(t.data, t.data + t.type.bytes())});
    return to;
  };
  Progress progress(options, "reference: nodes");
  return interpret(
      graph, tensors(call.inputs), tensors(call.parameters), [&](size_t done, size_t all) { progress.step(done, all); },
      intermediates, nudging);
}

} // namespace rl::cli
