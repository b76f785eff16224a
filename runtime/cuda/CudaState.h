// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a CUDA package has in one context: its code, its device memory, and its launches made ready. Private to
// runtime/cuda.
#pragma once

#include "runtime/cuda/Driver.h"
#include "runtime/package/Package.h"

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace rl {

/// A launch with everything looked up, so that running it is one call of the driver.
struct CudaLaunch {
  const PackageLaunch *launch = nullptr;
  std::shared_ptr<const std::string> description;
  cu::Function function = nullptr, unaligned = nullptr; ///< the latter null until it is wanted
  /// The driver's kernelParams: addresses of slots in CudaState::pointers, then of `maps`. The other kernel takes the
  /// pointers alone; the driver knows how many.
  std::vector<void *> params;
  std::vector<cu::TensorMap> maps; ///< encoded for `mapPointers`
  std::vector<cu::DevicePtr> mapPointers;
  std::vector<uint32_t> varying; ///< buffers among the arguments whose place is the caller's
  cu::DevicePtr alignMask = 0;
  bool useUnaligned = false;
  bool hasMaps = true; ///< false: this driver has no tensor maps
  bool early = false;  ///< launched while the kernel before it still runs
  uint32_t blocks = 0; ///< the grid's x of `function`

  /// Of the kernel that runs with the pointers at hand.
  Extent3 grid() const;
  const Extent3 &block() const { return useUnaligned ? launch->unalignedBlock : launch->block; }
  const Extent3 &cluster() const { return useUnaligned ? launch->unalignedCluster : launch->cluster; }
  uint32_t sharedBytes() const { return useUnaligned ? launch->unalignedSharedBytes : launch->sharedBytes; }
  bool hasCluster() const { return cluster() != Extent3{}; }
  cu::LaunchAttribute clusterAttribute() const;
  cu::KernelNodeParams nodeParams();
};

/// A plan of several kernels as a CUDA graph of our own: one launch instead of many.
class CudaGraph {
public:
  /// Null where the driver cannot (the caller then launches one by one). `launches` are kernels, in order.
  static std::unique_ptr<CudaGraph> build(const cu::Api &, std::vector<CudaLaunch> &launches);
  ~CudaGraph();
  CudaGraph(const CudaGraph &) = delete;
  CudaGraph &operator=(const CudaGraph &) = delete;
  /// Takes over the current pointers and kernel of a launch.
  cu::Result update(size_t index, CudaLaunch &);
  cu::Result launch(cu::Stream);
  /// The context is gone: nothing is released.
  void abandon() {
    graph = nullptr;
    exec = nullptr;
  }

private:
  explicit CudaGraph(const cu::Api &api) : api(api) {}
  const cu::Api &api;
  cu::Graph graph = nullptr;
  cu::GraphExec exec = nullptr;
  std::vector<cu::GraphNode> nodes;
  std::vector<Extent3> clusters; ///< of the nodes
};

class CudaState {
public:
  /// Loads the code into the current context (the cubin where it fits, else the PTX) and takes the arena. `context` is
  /// current. Kernels for pointers that are not aligned are loaded when there are such.
  static Result<std::unique_ptr<CudaState>> create(const cu::Api &, const Package &, cu::Context context);
  ~CudaState();
  CudaState(const CudaState &) = delete;
  CudaState &operator=(const CudaState &) = delete;

  /// Drivers without ids of contexts are asked the other way, which takes longer.
  bool isFor(cu::Context wanted) const {
    return context == wanted && (api.cuCtxGetId ? id == contextId(api, wanted) : isAlive());
  }
  bool hasContext(cu::Context wanted) const { return context == wanted; }
  /// False once the context was destroyed, with all that lived in it. Asks after our memory there, never touches the
  /// context's handle: a driver may crash on one that is no longer valid.
  bool isAlive() const;
  /// The context is gone, and with it all that lived in it: nothing is released.
  void abandon() {
    context = nullptr;
    if (graph)
      graph->abandon();
  }

  /// Device memory of a parameter, taken on first use.
  Result<cu::DevicePtr> parameter(size_t index);
  cu::DevicePtr boundParameter(size_t index) const { return parameters[index]; }
  cu::Context contextHandle() const { return context; }

  /// The parameter has other values here: what is made of it is due.
  void parameterChanged(size_t index);
  /// Makes what is due of parameters that are all here, and waits for it. Nothing is captured meanwhile.
  Status derive();
  bool isDue() const { return anyDue; }

  /// Enqueues all launches.
  Status run(const void *const *inputs, void *const *outputs, cu::Stream stream);

  std::vector<uint64_t> parameterVersions; ///< see CudaModule
  uint64_t generation = 0;

private:
  CudaState(const cu::Api &api, const Package &package, cu::Context context)
      : api(api), package(package), context(context), id(contextId(api, context)) {}
  static unsigned long long contextId(const cu::Api &, cu::Context);
  Status checkArch() const;
  Status loadCode();
  Status loadText(const std::string &ptx, cu::ModuleHandle &);
  Status findUnaligned(CudaLaunch &);
  Status prepare(const PackageLaunch &, bool bind);
  Result<cu::Function> function(cu::ModuleHandle, const std::string &name, const Extent3 &cluster,
                                uint32_t sharedBytes);
  Result<uint32_t> persistentBlocks(const CudaLaunch &);
  Status encodeMaps(CudaLaunch &);
  void setPointer(uint32_t buffer, cu::DevicePtr);
  Status updateChanged();
  Status launchAll(cu::Stream);
  cu::Result launch(CudaLaunch &, cu::Stream);

  const cu::Api &api;
  const Package &package;
  cu::Context context;
  unsigned long long id; ///< handles of contexts are used again, ids are not
  cu::ModuleHandle code = nullptr, unalignedCode = nullptr;
  std::set<std::string_view> waiting;        ///< kernels whose code is loaded when they are wanted
  std::map<cu::Function, uint32_t> sharedOf; ///< dynamic shared memory that a kernel has been given
  cu::DevicePtr arena = 0, derived = 0;
  cu::DevicePtr witness = 0;        ///< the memory whose life shows the context's: the arena, or a few bytes
  unsigned long long witnessId = 0; ///< the driver's number for it, never given out twice
  std::vector<cu::DevicePtr> parameters;
  std::vector<cu::DevicePtr> pointers;      ///< of each buffer; never resized, the launches point into it
  std::vector<uint32_t> varying;            ///< buffers that are inputs or outputs
  std::vector<std::vector<uint32_t>> users; ///< of each buffer: places in `launches`
  std::vector<CudaLaunch> launches;         ///< those that do something
  std::vector<char> dirty;                  ///< launches with a pointer that changed
  bool anyDirty = false;
  std::vector<CudaLaunch> bindLaunches; ///< those that do something
  std::vector<size_t> bindPlaces;       ///< of each in the package's list
  std::vector<BindStep> steps;
  std::vector<char> due; ///< by step
  bool anyDue = false;
  std::unique_ptr<CudaGraph> graph;
  std::shared_ptr<const std::string> graphDescription;
  cu::Event done = nullptr; ///< recorded after each run where runs share the arena
  cu::Stream lastStream = nullptr;
  bool hasRun = false;
};

} // namespace rl
