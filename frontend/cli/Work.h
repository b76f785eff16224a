// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From arguments to something that runs on data: a graph file or a package, the tensors of one call, and a module with
// memory on its target.
#pragma once

#include "frontend/cli/Cli.h"
#include "ir/interp/Interpreter.h"
#include "runtime/cuda/Cuda.h"
#include "runtime/safetensors/Safetensors.h"

#include <memory>
#include <optional>

namespace rl::cli {

/// A graph file or a package directory, read and checked.
struct Work {
  std::string path;
  std::string name;
  GraphSpec spec;      ///< of the file, or of the graph that a package holds
  Signature signature; ///< extent -1: symbolic
  std::optional<Package> package;
};
Result<Work> loadWork(const Options &);
/// The same, of a graph file alone; for subcommands that compile. Code::Usage for a package.
Result<Work> loadGraph(const Options &);

/// Host memory, aligned to 256 bytes.
class HostBuffer {
public:
  static Result<HostBuffer> allocate(size_t bytes);
  std::byte *data() const { return memory.get(); }
  size_t size() const { return bytes; }

private:
  struct Free {
    void operator()(std::byte *) const;
  };
  std::unique_ptr<std::byte, Free> memory;
  size_t bytes = 0;
};

/// A tensor of a call: in the mapped file where it is aligned to its element there, else in memory of its own.
struct CallTensor {
  std::string name;
  TensorType type;
  const std::byte *data = nullptr;
  HostBuffer owned;
};

/// The tensor of a file, copied where it is not aligned.
Result<CallTensor> callTensor(const SafetensorsEntry &);

/// The files of --params. A parameter is taken from the first of them that has its name, else from where the inputs are.
class ParameterFiles {
public:
  static Result<ParameterFiles> open(const Options &);
  /// Null where no file has the name.
  Result<const SafetensorsEntry *> find(const std::string &name, const TensorType &) const;

private:
  std::vector<SafetensorsFile> files;
};

/// One call: the graph for its extents, and its data.
struct Call {
  Graph graph; ///< of a package without a graph: empty
  DimValues dims;
  std::vector<CallTensor> inputs, parameters;
  std::optional<SafetensorsFile> file; ///< keeps the mapping
  ParameterFiles parameterFiles;
  std::string source; ///< for messages: "random:0", "in.safetensors"
};

/// --dim as a map. Code::Usage for a name that the graph does not have, one given twice, or a value that is no number.
Result<DimValues> givenDims(const Options &, const GraphSpec &);

/// Resolves the graph for --dim; symbolic dimensions without a value get a small one from their range for which the graph is
/// valid, and a note says so.
Result<Graph> resolveWithDefaults(const Options &, const GraphSpec &, DimValues &dims);

/// Reads the tensors of options.inputs or makes them up. A package's extents are its own.
Result<Call> prepareCall(const Options &, const Work &);

/// Carries out the precision policy of the call's graph for a target, as compiling it does.
Result<PrecisionRecord> assignTypes(Call &, const Target &);

/// The target of the options, or a package's own. Code::Usage where both are given and differ.
Result<Target> chooseTarget(const Options &, const Work &);
/// Code::Device where the target does not run here.
Status checkRunsHere(const Target &);

/// Compiles (or takes the package) and says what the cache did where --verbose.
Result<Artifact> buildArtifact(const Options &, const Work &, const Target &, const DimValues &,
                               bool keepStages = false);

/// A module with the memory of one call on its target: CUDA device memory or host memory.
class Runner {
public:
  static Result<Runner> make(std::unique_ptr<Module>, const Target &, const Call &);
  /// Another module of the same signature, which gets the parameters and goes on with the memory as it is.
  Status setModule(std::unique_ptr<Module>, const Call &);
  /// Other inputs of the same types, for the runs after this. They must live as long as those runs. `source`: as in Call.
  Status setInputs(const std::vector<CallTensor> &, std::string source);
  Status enqueue(); ///< on CUDA only enqueues
  Status finish();  ///< waits
  Status run() {
    RL_TRY(enqueue());
    return finish();
  }
  /// Copies the outputs of the last run to host memory, to be read until the next.
  Status fetch();
  const std::byte *output(size_t i) const { return hostMemory[i].data(); }
  /// The outputs in host memory; the last that is asked of a runner.
  Result<std::vector<CallTensor>> outputs();
  void *stream() const { return cuda ? queue->handle() : nullptr; }

private:
  std::unique_ptr<Module> module;
  bool cuda = false;
  std::optional<CudaStream> queue;
  std::vector<CudaMemory> deviceMemory; ///< of the inputs, then of the outputs
  std::vector<HostBuffer> hostMemory;   ///< of the outputs
  std::vector<const void *> inputPointers;
  std::vector<void *> outputPointers;
  std::string source; ///< of the inputs, for errors in them that come out while they are used
};

/// The reference interpreter on a call's data, with progress. `graph`: the call's, or one with other outputs.
Result<std::vector<HostTensor>> runReference(const Options &, const Call &, const Graph &graph,
                                             Intermediates = Intermediates::Rounded, uint64_t nudging = 0);

/// What the decision record of a package says, for those who print it in their own way.
struct KernelSummary {
  std::string name, nodes, bound;
  std::string launch; ///< the name by which it is launched: its own, or that of the kernel whose launch it shares
  double bytes = 0, bytesUnfused = 0, flops = 0, predictedMicroseconds = 0;
  double savedMicroseconds = 0; ///< of these, behind or amid other kernels
};
struct RecordSummary {
  std::vector<KernelSummary> kernels;
  double bytes = 0, bytesUnfused = 0, predictedMicroseconds = 0;
  int64_t nodes = 0, copies = 0;
};
RecordSummary summarise(const std::string &record);
/// "1 fused kernel", "3 kernels", with the nodes in each and the bytes beside those of one kernel a node.
std::string summaryText(const RecordSummary &, const std::string &graph, const Target &);

} // namespace rl::cli
