// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the command line, the C interface and C++ programs share: from a graph to something that runs. Resolves the target
// against the machine, looks into the cache, compiles, and makes modules. No MLIR in this header.
#pragma once

#include "ir/graph/Graph.h"
#include "passes/precision/Precision.h"
#include "runtime/Module.h"
#include "runtime/cache/Cache.h"

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace rl {

/// A target as it was asked for, and what it is here.
struct Target {
  enum Kind : uint8_t { Reference, Cpu, Cuda } kind = Cpu;
  std::string name;     ///< as asked for: "cuda", "h200", "cpu"
  std::string arch;     ///< "sm_90a", "x86-64-v3"; empty for reference
  std::string machine;  ///< whose figures decide: "h200", "cpu"
  bool runsHere = true; ///< false: compile only (an architecture that is not this machine's GPU)
};

/// "" is cuda where a GPU is present and cpu elsewhere. Code::Usage for a name that is not known, with the known ones;
/// Code::Device for "cuda" without a usable GPU.
Result<Target> resolveTarget(std::string_view name);

/// A line for `ridgeline targets`.
struct TargetLine {
  std::string name, description;
  bool runsHere = false;
};
std::vector<TargetLine> listTargets();

inline constexpr int kTuneDefault = 4, kTuneMost = 8; ///< of EngineOptions::tune, where it is not 0; 2 at least

struct EngineOptions {
  std::string cache;          ///< a directory; "" the default one; "off"
  DimValues dims;             ///< extents of the symbolic dimensions
  int64_t delayedScaling = 0; ///< runs between changes of delayed scales (frontend/calibrate/Delayed.h); 0: none are
  bool keepStages = false;    ///< also turns the cache off, as a cached package has no stages
  /// So many of the tiles that the model finds good for a kernel of matrix products are timed on the device, and the quickest
  /// is taken (frontend/engine/Tune.h); 0: the model's first is. What was measured stays in the cache.
  int tune = 0;
  std::function<void(size_t done, size_t all)> tuning; ///< how many kernels are tuned
};

/// A text that a stage of the compiler left: "graph", "fused", "kernel", "llvm", "ptx".
struct StageDump {
  std::string stage, text;
};

/// A parameter that each run replaces: the last ones of the signature.
struct ArtifactState {
  std::string name;
  std::vector<std::byte> initial; ///< makeModule binds it
};

/// A graph compiled for a target.
struct Artifact {
  Graph
      graph; ///< with the types that its precision policy led to; with state, its last outputs are the next values of its last parameters
  Target target;
  Package package; ///< empty for reference
  std::vector<ArtifactState> state;
  std::vector<StageDump> stages;
  std::map<std::string, double> seconds; ///< of each phase of the compiler
  enum Cached : uint8_t { Off, Miss, Hit } cached = Off;
  std::string cacheNote; ///< why the cache is off, or its directory
  size_t measured = 0;   ///< kernels whose tiles were timed for this
};

/// The graph with its precision policy carried out for a target: what `compileSpec` compiles and the interpreter runs. A policy
/// that keeps every type leaves it as it is. The reference interpreter has no times of its own: for it those of an H200 decide.
Result<PrecisionAssignment> assignTypes(Graph, const Target &);

/// Errors: Code::Invalid with the graph's pointer, Code::Unsupported with the node's; with `tune` also Code::Unsupported for a target
/// that has no tiles to time and Code::Device for one that is not this machine's.
Result<Artifact> compileSpec(const GraphSpec &, const Target &, const EngineOptions & = {});

/// Something that runs. Code::Device where the target is not this machine's.
Result<std::unique_ptr<Module>> makeModule(Artifact);

/// Writes a package directory that runs without the compiler. Code::Unsupported for reference.
Status savePackage(const Package &, const std::string &directory);

/// "text", "json" or "html".
Result<std::string> explainPackage(const Package &, std::string_view format);
/// For reference: says that nothing is fused, with the graph's nodes.
Result<std::string> explainArtifact(const Artifact &, std::string_view format);

} // namespace rl
