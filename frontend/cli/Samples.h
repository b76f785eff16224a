// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The tensors of many calls, from files.
#pragma once

#include "frontend/cli/Work.h"

namespace rl::cli {

/// A call's inputs, in a file as they are or stacked: every input has one more dimension before its own, as long as there
/// are samples in the file.
struct Sample {
  size_t file = 0;
  int64_t index = -1; ///< along the stacking dimension; -1: the file is one sample
  DimValues dims;
};

class Samples {
public:
  /// Opens the files of options.data, by name, until there are options.samples samples. Parameters are those of --params; one
  /// that is in none of them is taken from the first file. The samples come by their extents, otherwise in the files' order.
  /// Code::Invalid, with the file, where there is no sample, or a tensor is missing or does not fit.
  static Result<Samples> open(const Options &, const Work &);

  const std::vector<Sample> &list() const { return samples; }
  const std::string &source(const Sample &s) const { return paths[s.file]; }
  const std::vector<std::string> &files() const { return paths; }
  Result<std::vector<CallTensor>> inputs(const Sample &) const;
  Result<std::vector<CallTensor>> parameters() const;

private:
  Status add(const Options &, const Work &, size_t file);

  std::vector<std::string> paths;
  std::vector<SafetensorsFile> opened;
  std::vector<std::string> names; ///< of the inputs
  ParameterFiles parameterFiles;
  std::vector<const SafetensorsEntry *> parameterEntries;
  std::vector<Sample> samples;
};

/// Runs a graph on samples in turn: compiled once for all that come after one another with the same extents.
class SampleRunner {
public:
  /// All must outlive it.
  SampleRunner(const Options &options, const Work &work, const Target &target, const Samples &samples)
      : options(options), work(work), target(target), samples(samples) {}
  /// Until the next: the outputs are the runner's, of these types.
  Status run(const Sample &);
  const std::byte *output(size_t i) const { return runner->output(i); }
  const std::vector<PackageTensor> &outputs() const { return tensors; }

private:
  const Options &options;
  const Work &work;
  const Target &target;
  const Samples &samples;
  Call call;
  std::optional<Runner> runner;
  std::vector<PackageTensor> tensors;
};

} // namespace rl::cli
