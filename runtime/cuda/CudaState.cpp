// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See CudaState.h. The steady state (the same pointers as last time) is: compare the pointers, launch.
#include "runtime/cuda/CudaState.h"

#include "runtime/PackageModule.h"
#include "runtime/package/PtxKernels.h"

#include <algorithm>
#include <bit>
#include <cctype>

namespace rl {

using cu::failure;
using cu::kSuccess;

namespace {

/// Plans of at least this many kernels run as a graph: below, a graph's own launch costs as much as the kernels'.
constexpr size_t kGraphLaunches = 3;
/// Blocks that a cluster may have on every device with clusters.
constexpr uint32_t kPortableCluster = 8;

} // namespace

unsigned long long CudaState::contextId(const cu::Api &api, cu::Context context) {
  unsigned long long id = 0;
  if (api.cuCtxGetId)
    api.cuCtxGetId(context, &id);
  return id;
}

/// "sm_80" runs on 8.0 and newer, "sm_90a" on 9.0 alone, "sm_100f" on its family (10.x from 10.0 on).
Status CudaState::checkArch() const {
  const std::string &arch = package.arch;
  size_t end = 3;
  while (end < arch.size() && std::isdigit(static_cast<unsigned char>(arch[end])))
    ++end;
  std::string suffix = end < arch.size() ? arch.substr(end) : "";
  if (!arch.starts_with("sm_") || end < 5 || end > 7 || (suffix != "" && suffix != "a" && suffix != "f"))
    return invalid("/arch", "'" + arch + "' is not a CUDA architecture");
  int number = std::stoi(arch.substr(3, end - 3));
  cu::Device device = 0;
  int major = 0, minor = 0;
  char name[256] = "this device";
  if (cu::Result r = api.cuCtxGetDevice(&device); r != kSuccess)
    return failure(api, r, "the context's device cannot be read");
  if (api.cuDeviceGetAttribute(&major, cu::kComputeMajor, device) != kSuccess ||
      api.cuDeviceGetAttribute(&minor, cu::kComputeMinor, device) != kSuccess)
    return {}; // the driver will tell when it loads the code
  api.cuDeviceGetName(name, sizeof name - 1, device);
  int here = major * 10 + minor;
  bool fits = suffix == "a"   ? here == number
              : suffix == "f" ? here >= number && here / 10 == number / 10
                              : here >= number;
  if (!fits)
    return unsupported({}, "the package is for " + arch + "; " + name + " is sm_" + std::to_string(here));
  return {};
}

Status CudaState::loadCode() {
  bool elf = package.cubin.starts_with("\x7f"
                                       "ELF");
  cu::Result r = cu::kNotFound;
  if (elf) {
    r = api.cuModuleLoadDataEx(&code, package.cubin.data(), 0, nullptr, nullptr);
    if (r == kSuccess)
      return {};
    code = nullptr; // made for another device or by a newer toolkit: the PTX is for every one
  }
  if (package.ptx.empty())
    return elf ? Status(failure(api, r, "the package's machine code cannot be loaded, and it has no PTX"))
               : Status(invalid({}, "the package has no code of its kernels"));
  return loadText(ptxPart(package, CodePart::Usual), code);
}

Status CudaState::loadText(const std::string &ptx, cu::ModuleHandle &out) {
  std::string log(16384, '\0');
  int options[] = {cu::kJitErrorLogBuffer, cu::kJitErrorLogBufferSize};
  void *values[] = {log.data(), reinterpret_cast<void *>(uintptr_t(log.size()))};
  cu::Result r = api.cuModuleLoadDataEx(&out, ptx.c_str(), 2, options, values);
  if (r == kSuccess)
    return {};
  out = nullptr;
  Error e = failure(api, r, "the driver cannot load the package's PTX");
  log.back() = '\0';
  if (*log.c_str())
    e.message += std::string("\n") + log.c_str();
  return e;
}

/// Looks the launch's other kernel up. Its code is loaded when some launch wants it for the first time, which may be amid a capture.
Status CudaState::findUnaligned(CudaLaunch &l) {
  const PackageLaunch &p = *l.launch;
  cu::RelaxedCapture relaxed(api);
  cu::ModuleHandle from = code; // machine code may have all kernels
  if (cu::Function found; api.cuModuleGetFunction(&found, code, p.unalignedKernel.c_str()) != kSuccess) {
    const std::string text = unalignedCode ? std::string() : ptxPart(package, CodePart::Other);
    if (!text.empty())
      RL_TRY(loadText(text, unalignedCode));
    from = unalignedCode ? unalignedCode : code;
  }
  RL_ASSIGN(l.unaligned, function(from, p.unalignedKernel, p.unalignedCluster, p.unalignedSharedBytes));
  return {};
}

Result<cu::Function> CudaState::function(cu::ModuleHandle from, const std::string &name, const Extent3 &cluster,
                                         uint32_t sharedBytes) {
  cu::Function out = nullptr;
  if (cu::Result r = api.cuModuleGetFunction(&out, from, name.c_str()); r == cu::kNotFound)
    return invalid({}, "the package's code has no kernel '" + name + "'");
  else if (r != kSuccess)
    return failure(api, r, "kernel '" + name + "' cannot be loaded");
  // Without asking it has 48 KB in all, of which only the driver knows how much the kernel's own variables take. Launches may share a
  // kernel.
  uint32_t &most = sharedOf[out];
  if (sharedBytes > most) {
    most = sharedBytes;
    if (cu::Result r = api.cuFuncSetAttribute(out, cu::kFuncMaxDynamicShared, static_cast<int>(sharedBytes));
        r != kSuccess)
      return failure(api, r,
                     "kernel '" + name + "' cannot have " + std::to_string(sharedBytes) + " bytes of shared memory");
  }
  if (cluster.x * cluster.y * cluster.z > kPortableCluster)
    if (cu::Result r = api.cuFuncSetAttribute(out, cu::kFuncNonPortableCluster, 1); r != kSuccess)
      return failure(api, r, "kernel '" + name + "' cannot have a cluster of more than 8 blocks");
  return out;
}

/// The blocks of a launch whose grid is counted in pieces of work.
Result<uint32_t> CudaState::persistentBlocks(const CudaLaunch &l) {
  const PackageLaunch &p = *l.launch;
  cu::Device device = 0;
  int sms = 0, perSm = 0;
  cu::Result r = api.cuCtxGetDevice(&device);
  if (r == kSuccess)
    r = api.cuDeviceGetAttribute(&sms, cu::kSmCount, device);
  if (r == kSuccess)
    r = api.cuOccupancyMaxActiveBlocksPerMultiprocessor(
        &perSm, l.function, static_cast<int>(p.block.x * p.block.y * p.block.z), p.sharedBytes);
  if (r != kSuccess)
    return failure(api, r, *l.description + ": how many blocks the device holds is not known");
  if (sms < 1 || perSm < 1)
    return unsupported({}, *l.description + " needs more registers or shared memory than a multiprocessor has");
  auto held = static_cast<uint64_t>(sms) * static_cast<uint64_t>(perSm);
  auto blocks = static_cast<uint32_t>(std::min<uint64_t>(p.grid.x, held));
  return std::max(blocks / p.cluster.x, 1u) * p.cluster.x;
}

/// The driver's name of an element type; those that it has none for are moved as integers of their size.
static int mapType(DType t) {
  switch (t) {
  case DType::BF16: return cu::kMapBF16;
  case DType::F16: return cu::kMapF16;
  case DType::F32: return cu::kMapF32;
  case DType::I32: return cu::kMapI32;
  default: return dtypeSize(t) == 1 ? cu::kMapU8 : dtypeSize(t) == 2 ? cu::kMapU16 : cu::kMapI64;
  }
}

/// Encodes the tensor maps of buffers that are not where they were.
Status CudaState::encodeMaps(CudaLaunch &l) {
  for (size_t i = 0; i < l.maps.size(); ++i) {
    const PackageTensorMap &m = l.launch->tensorMaps[i];
    cu::DevicePtr place = pointers[l.launch->args[m.arg]] + static_cast<cu::DevicePtr>(m.offset);
    if (place == l.mapPointers[i])
      continue;
    uint64_t extents[5], strides[4] = {};
    uint32_t steps[5] = {1, 1, 1, 1, 1};
    std::copy(m.extents.begin(), m.extents.end(), extents);
    std::copy(m.strides.begin(), m.strides.end(), strides);
    // 0, 32, 64, 128 and 0, 64, 128, 256 are 0 to 3 in the driver's enumerations.
    int swizzle = m.swizzle ? std::countr_zero(m.swizzle) - 4 : 0;
    int promotion = m.l2Promotion ? std::countr_zero(m.l2Promotion) - 5 : 0;
    if (cu::Result r = api.cuTensorMapEncodeTiled(&l.maps[i], mapType(m.dtype), static_cast<uint32_t>(m.extents.size()),
                                                  reinterpret_cast<void *>(static_cast<uintptr_t>(place)), extents,
                                                  strides, m.box.data(), steps, cu::kMapInterleaveNone, swizzle,
                                                  promotion, cu::kMapFillZeros);
        r != kSuccess)
      return failure(api, r, *l.description + ": tensor map " + std::to_string(i) + " cannot be encoded");
    l.mapPointers[i] = place;
  }
  return {};
}

Status CudaState::prepare(const PackageLaunch &l, bool bind) {
  if (isEmptyLaunch(package, l))
    return {};
  CudaLaunch out;
  out.launch = &l;
  out.description = std::make_shared<const std::string>(describeLaunch(l));
  out.alignMask = l.align - 1;
  if (l.kind == PackageLaunch::Kernel) {
    RL_ASSIGN(out.function, function(code, l.kernel, l.cluster, l.sharedBytes));
    // Of two that share a kernel, and where the text has it not. The others can wait.
    if (!l.unalignedKernel.empty() && !package.ptx.empty() && !waiting.contains(l.unalignedKernel)) {
      RL_ASSIGN(out.unaligned, function(code, l.unalignedKernel, l.unalignedCluster, l.unalignedSharedBytes));
    }
    if ((l.cluster != Extent3{} || l.unalignedCluster != Extent3{}) && !api.cuLaunchKernelEx)
      return unsupported({}, *out.description + " needs clusters, which this driver is too old for");
    out.hasMaps = l.tensorMaps.empty() || api.cuTensorMapEncodeTiled;
    // The first kernel of a run follows work of the caller's, which may write what kernels read before they wait. Drivers with such
    // edges in graphs (CUDA 12.3) also capture such launches.
    out.early = l.early && !bind && !launches.empty() && launches.back().launch->kind == PackageLaunch::Kernel &&
                api.cuLaunchKernelEx && api.cuGraphAddDependencies_v2;
    if (!out.hasMaps && l.unalignedKernel.empty())
      return unsupported({}, *out.description + " needs tensor maps, which this driver is too old for");
    out.useUnaligned = !out.hasMaps;
    if (out.useUnaligned && !out.unaligned)
      RL_TRY(findUnaligned(out));
    out.maps.resize(l.tensorMaps.size());
    out.mapPointers.assign(l.tensorMaps.size(), 0);
    out.blocks = l.grid.x;
    if (l.persistent) {
      RL_ASSIGN(out.blocks, persistentBlocks(out));
    }
  }
  for (uint32_t buffer : l.args) {
    out.params.push_back(&pointers[buffer]);
    PackageBuffer::Kind kind = package.buffers[buffer].kind;
    if (kind == PackageBuffer::Input || kind == PackageBuffer::Output)
      out.varying.push_back(buffer);
    auto &list = users[buffer];
    if (!bind && (list.empty() || list.back() != launches.size()))
      list.push_back(static_cast<uint32_t>(launches.size()));
  }
  for (cu::TensorMap &map : out.maps) // moving the vector leaves them in their place
    out.params.push_back(&map);
  (bind ? bindLaunches : launches).push_back(std::move(out));
  return {};
}

void CudaState::parameterChanged(size_t index) {
  for (size_t s = 0; s < steps.size(); ++s)
    if (std::binary_search(steps[s].parameters.begin(), steps[s].parameters.end(), static_cast<uint32_t>(index)))
      due[s] = anyDue = true;
}

Status CudaState::derive() {
  if (!anyDue)
    return {};
  cu::RelaxedCapture relaxed(api);
  // Runs that are on their way use the arena, and read what is made anew.
  if (cu::Result r = api.cuCtxSynchronize(); r != kSuccess)
    return failure(api, r, "what is made of the parameters of graph '" + package.name + "'");
  bool left = false;
  for (size_t s = 0; s < steps.size(); ++s) {
    if (!due[s])
      continue;
    const std::vector<uint32_t> &needed = steps[s].parameters;
    if (!std::all_of(needed.begin(), needed.end(), [&](uint32_t p) { return parameterVersions[p] != 0; })) {
      left = true;
      continue;
    }
    for (size_t place : steps[s].launches) {
      auto at = std::find(bindPlaces.begin(), bindPlaces.end(), place);
      if (at == bindPlaces.end()) // it does nothing
        continue;
      CudaLaunch &l = bindLaunches[static_cast<size_t>(at - bindPlaces.begin())];
      if (!l.useUnaligned)
        RL_TRY(encodeMaps(l));
      if (cu::Result r = launch(l, nullptr); r != kSuccess)
        return failure(api, r, "launching " + *l.description);
      cu::noteLaunch(l.description);
    }
    if (cu::Result r = api.cuStreamSynchronize(nullptr); r != kSuccess)
      return failure(api, r, "what is made of the parameters of graph '" + package.name + "'");
    due[s] = 0;
  }
  anyDue = left;
  return {};
}

Result<std::unique_ptr<CudaState>> CudaState::create(const cu::Api &api, const Package &package, cu::Context context) {
  std::unique_ptr<CudaState> s(new CudaState(api, package, context));
  cu::RelaxedCapture relaxed(api);
  RL_TRY(s->checkArch());
  s->parameters.assign(package.parameters.size(), 0);
  s->parameterVersions.assign(package.parameters.size(), 0);
  s->pointers.assign(package.buffers.size(), 0);
  s->users.resize(package.buffers.size());
  bool kernels = false;
  for (const std::vector<PackageLaunch> *list : {&package.launches, &package.bindLaunches})
    for (const PackageLaunch &l : *list)
      kernels |= l.kind == PackageLaunch::Kernel && !isEmptyLaunch(package, l);
  if (kernels)
    RL_TRY(s->loadCode());
  s->waiting = otherKernels(package);
  if (package.arenaBytes > 0) {
    if (cu::Result r = api.cuMemAlloc_v2(&s->arena, static_cast<size_t>(package.arenaBytes)); r != kSuccess) {
      s->arena = 0;
      return failure(api, r, std::to_string(package.arenaBytes) + " bytes of device memory for intermediate tensors");
    }
    if (cu::Result r = api.cuEventCreate(&s->done, cu::kEventDisableTiming); r != kSuccess) {
      s->done = nullptr;
      return failure(api, r, "an event cannot be made");
    }
  }
  if (package.derivedBytes > 0)
    if (cu::Result r = api.cuMemAlloc_v2(&s->derived, static_cast<size_t>(package.derivedBytes)); r != kSuccess) {
      s->derived = 0;
      return failure(api, r,
                     std::to_string(package.derivedBytes) + " bytes of device memory for what is made of parameters");
    }
  s->witness = s->arena;
  if (!s->witness)
    if (cu::Result r = api.cuMemAlloc_v2(&s->witness, 16); r != kSuccess) {
      s->witness = 0;
      return failure(api, r, "16 bytes of device memory");
    }
  if (cu::Result r = api.cuPointerGetAttribute(&s->witnessId, cu::kPointerBufferId, s->witness); r != kSuccess)
    return failure(api, r, "the driver does not know its own memory");
  for (uint32_t i = 0; i < package.buffers.size(); ++i) {
    const PackageBuffer &b = package.buffers[i];
    if (b.kind == PackageBuffer::Arena)
      s->pointers[i] = s->arena + static_cast<cu::DevicePtr>(b.offset);
    else if (b.kind == PackageBuffer::Derived)
      s->pointers[i] = s->derived + static_cast<cu::DevicePtr>(b.offset);
    else if (b.kind != PackageBuffer::Parameter)
      s->varying.push_back(i);
  }
  s->launches.reserve(package.launches.size());
  for (const PackageLaunch &l : package.launches)
    RL_TRY(s->prepare(l, false));
  s->bindLaunches.reserve(package.bindLaunches.size());
  for (size_t i = 0; i < package.bindLaunches.size(); ++i) {
    RL_TRY(s->prepare(package.bindLaunches[i], true));
    if (s->bindLaunches.size() > s->bindPlaces.size())
      s->bindPlaces.push_back(i);
  }
  s->steps = bindSteps(package);
  s->due.assign(s->steps.size(), 1);
  s->anyDue = !s->steps.empty();
  s->dirty.assign(s->launches.size(), 0);
  for (size_t i = 0; i < s->launches.size(); ++i)
    if (!s->launches[i].maps.empty())
      s->dirty[i] = s->anyDirty = 1; // maps of the arena are encoded once, by the first run
  bool copies = std::any_of(s->launches.begin(), s->launches.end(),
                            [](const CudaLaunch &l) { return l.launch->kind == PackageLaunch::Copy; });
  if (s->launches.size() >= kGraphLaunches && !copies) {
    s->graph = CudaGraph::build(api, s->launches);
    s->graphDescription = std::make_shared<const std::string>(
        std::to_string(s->launches.size()) + " kernels of graph '" + package.name + "', from " +
        *s->launches.front().description + " to " + *s->launches.back().description);
  }
  return s;
}

bool CudaState::isAlive() const {
  unsigned long long now = 0;
  return api.cuPointerGetAttribute(&now, cu::kPointerBufferId, witness) == kSuccess && now == witnessId;
}

CudaState::~CudaState() {
  // A state whose making failed is released right then, in the context that is current.
  if (context && witnessId && !isAlive())
    abandon();
  if (!context)
    return;
  cu::RelaxedCapture relaxed(api);
  if (api.cuCtxPushCurrent_v2(context) != kSuccess)
    return;               // the process is ending, or the context is gone, and the memory with it
  api.cuCtxSynchronize(); // nothing that is enqueued may use what is released here
  graph.reset();
  if (done)
    api.cuEventDestroy_v2(done);
  if (witness && witness != arena)
    api.cuMemFree_v2(witness);
  if (arena)
    api.cuMemFree_v2(arena);
  if (derived)
    api.cuMemFree_v2(derived);
  for (cu::DevicePtr p : parameters)
    if (p)
      api.cuMemFree_v2(p);
  for (cu::ModuleHandle m : {code, unalignedCode})
    if (m)
      api.cuModuleUnload(m);
  cu::Context popped;
  api.cuCtxPopCurrent_v2(&popped);
}

void CudaState::setPointer(uint32_t buffer, cu::DevicePtr value) {
  if (pointers[buffer] == value)
    return;
  pointers[buffer] = value;
  for (uint32_t user : users[buffer])
    dirty[user] = 1;
  anyDirty = true;
}

Result<cu::DevicePtr> CudaState::parameter(size_t index) {
  auto bytes = static_cast<size_t>(package.parameters[index].type.bytes());
  if (parameters[index] || bytes == 0)
    return parameters[index];
  cu::RelaxedCapture relaxed(api);
  if (cu::Result r = api.cuMemAlloc_v2(&parameters[index], bytes); r != kSuccess) {
    parameters[index] = 0;
    return failure(api, r,
                   std::to_string(bytes) + " bytes of device memory for parameter '" + package.parameters[index].name +
                       "'");
  }
  for (uint32_t i = 0; i < package.buffers.size(); ++i)
    if (package.buffers[i].kind == PackageBuffer::Parameter && package.buffers[i].index == index)
      setPointer(i, parameters[index]);
  return parameters[index];
}

/// Chooses the kernels for the pointers that changed, and tells the graph.
Status CudaState::updateChanged() {
  for (size_t i = 0; i < launches.size(); ++i) {
    if (!dirty[i])
      continue;
    CudaLaunch &l = launches[i];
    cu::DevicePtr bits = 0;
    for (uint32_t buffer : l.varying)
      bits |= pointers[buffer];
    l.useUnaligned = l.launch->kind == PackageLaunch::Kernel && ((bits & l.alignMask) != 0 || !l.hasMaps);
    if (l.useUnaligned && !l.unaligned) {
      if (l.launch->unalignedKernel.empty())
        return misalignedLaunch(*l.launch);
      RL_TRY(findUnaligned(l));
    }
    if (!l.useUnaligned)
      RL_TRY(encodeMaps(l));
    if (graph && graph->update(i, l) != kSuccess)
      graph.reset(); // one by one, then: whatever is wrong comes out there, with the kernel's name
    dirty[i] = 0;
  }
  anyDirty = false;
  return {};
}

cu::Result CudaState::launch(CudaLaunch &l, cu::Stream stream) {
  const PackageLaunch &p = *l.launch;
  if (p.kind == PackageLaunch::Copy) {
    cu::DevicePtr to = pointers[p.args[0]], from = pointers[p.args[1]];
    if (to == from)
      return kSuccess;
    return api.cuMemcpyDtoDAsync_v2(to, from, static_cast<size_t>(package.buffers[p.args[0]].bytes), stream);
  }
  Extent3 grid = l.grid();
  const Extent3 &block = l.block();
  cu::Function function = l.useUnaligned ? l.unaligned : l.function;
  cu::LaunchAttribute attributes[2];
  unsigned count = 0;
  if (l.hasCluster())
    attributes[count++] = l.clusterAttribute();
  if (l.early) {
    attributes[count].id = cu::kAttributeProgrammaticStreamSerialization;
    attributes[count++].value.programmatic = 1;
  }
  if (!count)
    return api.cuLaunchKernel(function, grid.x, grid.y, grid.z, block.x, block.y, block.z, l.sharedBytes(), stream,
                              l.params.data(), nullptr);
  cu::LaunchConfig config{grid.x,  grid.y,          grid.z, block.x,    block.y,
                          block.z, l.sharedBytes(), stream, attributes, count};
  return api.cuLaunchKernelEx(&config, function, l.params.data(), nullptr);
}

Status CudaState::launchAll(cu::Stream stream) {
  for (size_t i = 0; i < launches.size(); ++i) {
    cu::Result r = launch(launches[i], stream);
    if (r == kSuccess)
      continue;
    if (i)
      cu::noteLaunch(launches[i - 1].description);
    return failure(api, r, "launching " + *launches[i].description);
  }
  if (!launches.empty())
    cu::noteLaunch(launches.back().description);
  return {};
}

Status CudaState::run(const void *const *inputs, void *const *outputs, cu::Stream stream) {
  for (uint32_t i : varying) {
    const PackageBuffer &b = package.buffers[i];
    const void *pointer = b.kind == PackageBuffer::Input ? inputs[b.index] : outputs[b.index];
    setPointer(i, static_cast<cu::DevicePtr>(reinterpret_cast<uintptr_t>(pointer)));
  }
  if (anyDirty)
    RL_TRY(updateChanged());
  if (!graph && !done)
    return launchAll(stream);

  int capturing = cu::kCaptureNone;
  if (cu::Result r = api.cuStreamIsCapturing(stream, &capturing); r != kSuccess)
    return failure(api, r, "graph '" + package.name + "' cannot run on this stream");
  // Into a capture go the plain kernels. Their order against earlier runs is the caller's: an event recorded outside a
  // capture cannot be waited for inside.
  if (capturing != cu::kCaptureNone)
    return launchAll(stream);
  // Runs on different streams use the same arena, so the later waits for the earlier.
  if (done && hasRun && (stream != lastStream || stream == cu::perThreadStream()))
    if (cu::Result r = api.cuStreamWaitEvent(stream, done, 0); r != kSuccess)
      return failure(api, r, "graph '" + package.name + "' cannot wait for its run on another stream");
  cu::Result launched = graph ? graph->launch(stream) : cu::kNotFound;
  if (launched == kSuccess) {
    cu::noteLaunch(graphDescription);
  } else {
    if (graph && cu::isSticky(launched))
      return failure(api, launched, "launching " + *graphDescription);
    graph.reset();
    RL_TRY(launchAll(stream));
  }
  if (done) {
    if (cu::Result r = api.cuEventRecord(done, stream); r != kSuccess)
      return failure(api, r, "graph '" + package.name + "' cannot mark its end");
    lastStream = stream;
    hasRun = true;
  }
  return {};
}

} // namespace rl
