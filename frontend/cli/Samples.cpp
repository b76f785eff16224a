// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "frontend/cli/Samples.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <tuple>

namespace rl::cli {
namespace {

Error inFile(Error error, const std::string &file) {
  error.file = file;
  return error;
}

/// The safetensors files of a directory, by name; the file itself where it is one.
Result<std::vector<std::string>> dataFiles(const std::string &path) {
  if (!isDirectory(path))
    return std::vector<std::string>{path};
  DIR *folder = ::opendir(path.c_str());
  if (!folder)
    return inFile(invalid({}, std::string("cannot open: ") + std::strerror(errno)), path);
  std::vector<std::string> names;
  errno = 0;
  while (const dirent *entry = ::readdir(folder))
    if (std::string_view(entry->d_name).ends_with(".safetensors"))
      names.push_back(path + (path.ends_with('/') ? "" : "/") + entry->d_name);
  const int problem = errno;
  ::closedir(folder);
  if (problem)
    return inFile(invalid({}, std::string("cannot be read: ") + std::strerror(problem)), path);
  if (names.empty())
    return inFile(invalid({}, "no *.safetensors file is in this directory"), path);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<int64_t> withoutFirst(const std::vector<int64_t> &shape) { return {shape.begin() + 1, shape.end()}; }

} // namespace

Status Samples::add(const Options &options, const Work &work, size_t file) {
  const std::string &path = paths[file];
  const auto &inputs = work.signature.inputs;
  // The first input that is there says which of the two a file is; the others must agree.
  bool stacked = false;
  for (const auto &[name, type] : inputs)
    if (const SafetensorsEntry *entry = opened[file].find(name)) {
      stacked = entry->type.rank() == type.rank() + 1;
      break;
    }
  int64_t count = 1;
  std::vector<std::vector<int64_t>> shapes[2];
  for (size_t i = 0; i < inputs.size(); ++i) {
    TensorType type = inputs[i].second;
    if (stacked)
      type.shape.insert(type.shape.begin(), i == 0 ? -1 : count);
    RL_ASSIGN(const SafetensorsEntry *entry, opened[file].get(inputs[i].first, type));
    const std::vector<int64_t> &shape = entry->type.shape;
    if (stacked && i == 0)
      count = shape[0];
    shapes[0].push_back(stacked ? withoutFirst(shape) : shape);
  }
  for (const SafetensorsEntry *entry : parameterEntries)
    shapes[1].push_back(entry->type.shape);
  Result<DimValues> dims = bindDims(work.spec, shapes[0], shapes[1]);
  if (!dims) {
    Error error = dims.takeError();
    const bool ofGraph = error.pointer.starts_with("/dims/");
    return inFile(std::move(error), ofGraph ? work.path : path);
  }
  for (int64_t i = 0; i < count && samples.size() < static_cast<size_t>(options.samples); ++i)
    samples.push_back({file, stacked ? i : -1, *dims});
  return {};
}

Result<Samples> Samples::open(const Options &options, const Work &work) {
  Samples out;
  RL_ASSIGN(out.paths, dataFiles(options.data));
  RL_ASSIGN(out.parameterFiles, ParameterFiles::open(options));
  for (const auto &input : work.signature.inputs)
    out.names.push_back(input.first);
  for (size_t i = 0; i < out.paths.size() && out.samples.size() < static_cast<size_t>(options.samples); ++i) {
    RL_ASSIGN(SafetensorsFile file, SafetensorsFile::open(out.paths[i]));
    out.opened.push_back(std::move(file));
    for (size_t p = 0; i == 0 && p < work.signature.parameters.size(); ++p) {
      const auto &[name, type] = work.signature.parameters[p];
      RL_ASSIGN(const SafetensorsEntry *entry, out.parameterFiles.find(name, type));
      if (!entry) {
        RL_ASSIGN(entry, out.opened[0].get(name, type));
      }
      out.parameterEntries.push_back(entry);
    }
    RL_TRY(out.add(options, work, i));
  }
  if (out.samples.empty())
    return inFile(invalid({}, "there is no sample: the inputs are stacked 0 high"), options.data);
  std::sort(out.samples.begin(), out.samples.end(), [](const Sample &a, const Sample &b) {
    return std::tie(a.dims, a.file, a.index) < std::tie(b.dims, b.file, b.index);
  });
  return out;
}

Result<std::vector<CallTensor>> Samples::inputs(const Sample &sample) const {
  std::vector<CallTensor> out;
  for (const std::string &name : names) {
    SafetensorsEntry entry = *opened[sample.file].find(name);
    if (sample.index >= 0) {
      entry.type.shape = withoutFirst(entry.type.shape);
      entry.bytes = static_cast<size_t>(entry.type.bytes());
      entry.data += static_cast<size_t>(sample.index) * entry.bytes;
    }
    RL_ASSIGN(CallTensor tensor, callTensor(entry));
    out.push_back(std::move(tensor));
  }
  return out;
}

Result<std::vector<CallTensor>> Samples::parameters() const {
  std::vector<CallTensor> out;
  for (const SafetensorsEntry *entry : parameterEntries) {
    RL_ASSIGN(CallTensor tensor, callTensor(*entry));
    out.push_back(std::move(tensor));
  }
  return out;
}

Status SampleRunner::run(const Sample &sample) {
  if (!runner) {
    RL_ASSIGN(call.parameters, samples.parameters());
  }
  RL_ASSIGN(call.inputs, samples.inputs(sample));
  call.source = samples.source(sample);
  if (runner && call.dims == sample.dims) {
    RL_TRY(runner->setInputs(call.inputs, call.source));
  } else {
    runner.reset(); // its memory before that of the next
    call.dims = sample.dims;
    RL_ASSIGN(Artifact artifact, buildArtifact(options, work, target, call.dims));
    RL_ASSIGN(std::unique_ptr<Module> module, makeModule(std::move(artifact)));
    tensors = module->tensors(2);
    RL_ASSIGN(runner, Runner::make(std::move(module), target, call));
  }
  RL_TRY(runner->run());
  return runner->fetch();
}

} // namespace rl::cli
