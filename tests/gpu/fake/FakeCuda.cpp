// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See FakeCuda.h. Built twice: with all functions, and (RL_FAKE_OLD) without those that the runtime can do without.
#include "tests/gpu/fake/FakeCuda.h"

#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>

using namespace rl::cu;
using rl::fake::Control;

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace rl::cu {
struct ContextHandle {
  unsigned long long id;
};
struct FunctionHandle {
  std::string name;
  size_t params;
  int maxShared = 48 * 1024;
};
struct ModuleHandleT {
  std::map<std::string, FunctionHandle> functions;
};
struct StreamHandle {
  Context context;
};
struct EventHandle {
  bool recorded = false;
  double time = 0;
};
struct GraphNodeHandle {
  KernelNodeParams params;
  std::vector<unsigned long long> args;
  unsigned cluster[3] = {1, 1, 1};
  bool follows = false, early = false; ///< has an edge from the node before it; a programmatic one
};
struct GraphHandle {
  std::vector<std::unique_ptr<GraphNodeHandle>> nodes;
};
struct GraphExecHandle {
  std::map<GraphNodeHandle *, size_t> places;
  std::vector<GraphNodeHandle> nodes;
};
struct LinkStateHandle {
  std::string image;
  char *log;
  size_t logBytes;
};
} // namespace rl::cu

namespace {

Control &control() {
  static auto *c = new Control;
  return *c;
}
thread_local std::vector<Context> contexts;
thread_local int captureMode = 0;
unsigned long long nextId = 1;
std::vector<Context> freeHandles;
std::set<Context> dead;
// What was made and not destroyed: what dies with a context stays here, reachable. Never destroyed itself.
auto &alive = *new std::set<const void *>;
std::set<Stream> streams; ///< made here; tests pass other values too, which only name a stream
ContextHandle primary{0};
double clockNow = 0;
bool initialised = false;

/// Notes the call; the code it is to fail with, or success.
Result enter(const char *name) {
  Control &c = control();
  std::lock_guard lock(c.mutex);
  c.calls.push_back(name);
  if (!initialised && std::strcmp(name, "cuInit") != 0)
    return kNotInitialized;
  auto it = c.failures.find(name);
  if (it == c.failures.end())
    return kSuccess;
  if (it->second.first-- > 0)
    return kSuccess;
  it->second.first = 0;
  return it->second.second;
}
#define ENTER(name)                                                                                                    \
  if (Result r = enter(#name); r != kSuccess)                                                                          \
    return r;                                                                                                          \
  std::lock_guard lock(control().mutex)
#define NEED_CONTEXT                                                                                                   \
  if (contexts.empty())                                                                                                \
  return kInvalidContext

Result allocation() { return control().capturing && captureMode != kCaptureModeRelaxed ? 900 : kSuccess; }

/// The kernels of PTX: ".entry NAME(" and the number of ".param" before ")".
void parsePtx(const std::string &text, ModuleHandleT &out) {
  for (size_t at = text.find(".entry "); at != std::string::npos; at = text.find(".entry ", at + 1)) {
    size_t open = text.find('(', at), close = text.find(')', at);
    std::string name = text.substr(at + 7, open - at - 7), list = text.substr(open, close - open);
    size_t params = 0;
    for (size_t p = list.find(".param"); p != std::string::npos; p = list.find(".param", p + 1))
      ++params;
    out.functions[name] = {name, params};
  }
}

std::vector<unsigned long long> values(Function f, void **params) {
  std::vector<unsigned long long> out;
  for (size_t i = 0; i < f->params; ++i)
    out.push_back(*static_cast<unsigned long long *>(params[i]));
  return out;
}

/// "add*": c = a + b, f32, one element a thread.
void execute(const rl::fake::Launch &l) {
  if (!l.kernel.starts_with("add"))
    return;
  size_t n = size_t(l.grid[0]) * l.block[0];
  for (size_t i = 0; i < n; ++i) {
    float a, b;
    std::memcpy(&a, reinterpret_cast<char *>(l.args[0]) + 4 * i, 4);
    std::memcpy(&b, reinterpret_cast<char *>(l.args[1]) + 4 * i, 4);
    a += b;
    std::memcpy(reinterpret_cast<char *>(l.args[2]) + 4 * i, &a, 4);
  }
}

Result perform(rl::fake::Launch l) {
  for (unsigned e : {l.grid[0], l.grid[1], l.grid[2], l.block[0], l.block[1], l.block[2]})
    if (e == 0)
      return kInvalidValue;
  execute(l);
  if (control().milliseconds)
    clockNow += control().milliseconds(l);
  control().launches.push_back(std::move(l));
  return kSuccess;
}

[[maybe_unused]] rl::fake::Launch describe(const GraphNodeHandle &n, Stream stream) {
  const KernelNodeParams &p = n.params;
  return {p.function->name,
          {p.gridX, p.gridY, p.gridZ},
          {p.blockX, p.blockY, p.blockZ},
          p.sharedBytes,
          {n.cluster[0], n.cluster[1], n.cluster[2]},
          stream,
          n.args,
          true,
          n.early};
}

Context makeContext() {
  std::lock_guard lock(control().mutex);
  if (freeHandles.empty()) {
    auto *made = new ContextHandle{nextId++};
    alive.insert(made);
    return made;
  }
  Context c = freeHandles.back();
  freeHandles.pop_back();
  dead.erase(c);
  c->id = nextId++;
  return c;
}
void destroyContext(Context c) {
  std::lock_guard lock(control().mutex);
  std::erase_if(control().memory, [&](auto &entry) {
    if (entry.second.context == c)
      std::free(reinterpret_cast<void *>(entry.first));
    return entry.second.context == c;
  });
  dead.insert(c);
  freeHandles.push_back(c);
}
void setCurrent(Context c) {
  contexts.clear();
  if (c)
    contexts.push_back(c);
}

} // namespace

EXPORT rl::fake::Exports rlFakeCudaExports() {
  return {&control(), makeContext, destroyContext, setCurrent, [] { return static_cast<int>(contexts.size()); }};
}

EXPORT Result cuInit(unsigned) {
  ENTER(cuInit);
  initialised = true;
  return kSuccess;
}
EXPORT Result cuDriverGetVersion(int *version) {
  ENTER(cuDriverGetVersion);
  *version = 13000;
  return kSuccess;
}
EXPORT Result cuGetErrorName(Result code, const char **name) {
  static const std::map<int, const char *> names = {
      {1, "CUDA_ERROR_INVALID_VALUE"},     {2, "CUDA_ERROR_OUT_OF_MEMORY"},
      {100, "CUDA_ERROR_NO_DEVICE"},       {218, "CUDA_ERROR_INVALID_PTX"},
      {700, "CUDA_ERROR_ILLEGAL_ADDRESS"}, {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED"}};
  auto it = names.find(code);
  if (it == names.end())
    return kInvalidValue;
  *name = it->second;
  return kSuccess;
}
EXPORT Result cuGetErrorString(Result code, const char **text) {
  *text = code == 700 ? "an illegal memory access was encountered" : "told by the fake driver";
  return kSuccess;
}
EXPORT Result cuDeviceGetCount(int *count) {
  ENTER(cuDeviceGetCount);
  *count = 1;
  return kSuccess;
}
EXPORT Result cuDeviceGet(Device *device, int ordinal) {
  ENTER(cuDeviceGet);
  *device = ordinal;
  return ordinal == 0 ? kSuccess : kInvalidValue;
}
EXPORT Result cuDeviceGetName(char *name, int length, Device) {
  ENTER(cuDeviceGetName);
  std::snprintf(name, static_cast<size_t>(length), "Fake H200");
  return kSuccess;
}
EXPORT Result cuDeviceTotalMem_v2(size_t *bytes, Device) {
  ENTER(cuDeviceTotalMem_v2);
  *bytes = size_t(1) << 37;
  return kSuccess;
}
EXPORT Result cuDeviceGetAttribute(int *value, int attribute, Device) {
  ENTER(cuDeviceGetAttribute);
  switch (attribute) {
  case kComputeMajor: *value = control().major; break;
  case kComputeMinor: *value = control().minor; break;
  case kSmCount: *value = 132; break;
  case kMaxSharedPerBlockOptin: *value = 232448; break;
  default: *value = 0; break;
  }
  return kSuccess;
}
EXPORT Result cuDevicePrimaryCtxRetain(Context *out, Device) {
  ENTER(cuDevicePrimaryCtxRetain);
  ++control().retained;
  if (!primary.id)
    primary.id = nextId++;
  *out = &primary;
  return kSuccess;
}
EXPORT Result cuDevicePrimaryCtxRelease_v2(Device) {
  ENTER(cuDevicePrimaryCtxRelease_v2);
  --control().retained;
  return kSuccess;
}
EXPORT Result cuCtxGetCurrent(Context *out) {
  ENTER(cuCtxGetCurrent);
  *out = contexts.empty() ? nullptr : contexts.back();
  return kSuccess;
}
EXPORT Result cuCtxPushCurrent_v2(Context c) {
  ENTER(cuCtxPushCurrent_v2);
  if (dead.contains(c)) // as a real driver may
    std::abort();
  contexts.push_back(c);
  return kSuccess;
}
EXPORT Result cuCtxPopCurrent_v2(Context *out) {
  ENTER(cuCtxPopCurrent_v2);
  NEED_CONTEXT;
  *out = contexts.back();
  contexts.pop_back();
  return kSuccess;
}
EXPORT Result cuCtxGetDevice(Device *out) {
  ENTER(cuCtxGetDevice);
  NEED_CONTEXT;
  *out = 0;
  return kSuccess;
}
EXPORT Result cuCtxSynchronize() {
  ENTER(cuCtxSynchronize);
  NEED_CONTEXT;
  return kSuccess;
}
EXPORT Result cuModuleLoadDataEx(ModuleHandle *out, const void *image, unsigned count, int *options, void **values) {
  ENTER(cuModuleLoadDataEx);
  NEED_CONTEXT;
  const char *bytes = static_cast<const char *>(image);
  bool elf = std::memcmp(bytes,
                         "\x7f"
                         "ELF",
                         4) == 0;
  if (elf && !control().cubinFits)
    return kNoBinaryForGpu;
  if (!elf && std::strstr(bytes, "broken")) {
    for (unsigned i = 0; i < count; ++i)
      if (options[i] == kJitErrorLogBuffer)
        std::strcpy(static_cast<char *>(values[i]), control().log.c_str());
    return kInvalidPtx;
  }
  auto *made = new ModuleHandleT;
  // After an ELF magic the fake's machine code goes on as PTX, and calls its kernels by the same names.
  parsePtx(bytes + (elf ? 4 : 0), *made);
  ++control().liveModules;
  alive.insert(made);
  *out = made;
  return kSuccess;
}
EXPORT Result cuModuleUnload(ModuleHandle m) {
  ENTER(cuModuleUnload);
  alive.erase(m);
  delete m;
  --control().liveModules;
  return kSuccess;
}
EXPORT Result cuModuleGetFunction(Function *out, ModuleHandle m, const char *name) {
  ENTER(cuModuleGetFunction);
  auto it = m->functions.find(name);
  if (it == m->functions.end())
    return kNotFound;
  *out = &it->second;
  return kSuccess;
}
EXPORT Result cuFuncSetAttribute(Function f, int attribute, int value) {
  ENTER(cuFuncSetAttribute);
  if (attribute == kFuncMaxDynamicShared)
    f->maxShared = value;
  return kSuccess;
}
EXPORT Result cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, Function f, int threads, size_t shared) {
  ENTER(cuOccupancyMaxActiveBlocksPerMultiprocessor);
  if (threads < 1 || static_cast<int>(shared) > f->maxShared)
    return kInvalidValue;
  *blocks = control().blocksPerSm;
  return kSuccess;
}
EXPORT Result cuLaunchKernel(Function f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                             unsigned shared, Stream stream, void **params, void **) {
  ENTER(cuLaunchKernel);
  NEED_CONTEXT;
  if (static_cast<int>(shared) > f->maxShared)
    return kInvalidValue;
  return perform({f->name, {gx, gy, gz}, {bx, by, bz}, shared, {1, 1, 1}, stream, values(f, params), false, false});
}
EXPORT Result cuMemAlloc_v2(DevicePtr *out, size_t bytes) {
  ENTER(cuMemAlloc_v2);
  NEED_CONTEXT;
  if (Result r = allocation(); r != kSuccess)
    return r;
  if (bytes == 0)
    return kInvalidValue;
  *out = reinterpret_cast<uintptr_t>(std::aligned_alloc(512, (bytes + 511) / 512 * 512));
  control().memory[*out] = {bytes, contexts.back(), nextId++};
  return kSuccess;
}
EXPORT Result cuMemFree_v2(DevicePtr p) {
  ENTER(cuMemFree_v2);
  if (!control().memory.erase(p))
    return kInvalidValue;
  std::free(reinterpret_cast<void *>(p));
  return kSuccess;
}
EXPORT Result cuMemGetInfo_v2(size_t *free, size_t *total) {
  ENTER(cuMemGetInfo_v2);
  *free = 1000;
  *total = 2000;
  return kSuccess;
}
static Result copy(DevicePtr to, DevicePtr from, size_t bytes) {
  std::memmove(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), bytes);
  return kSuccess;
}
EXPORT Result cuMemcpyHtoD_v2(DevicePtr to, const void *from, size_t bytes) {
  ENTER(cuMemcpyHtoD_v2);
  return copy(to, reinterpret_cast<uintptr_t>(from), bytes);
}
EXPORT Result cuMemcpyDtoH_v2(void *to, DevicePtr from, size_t bytes) {
  ENTER(cuMemcpyDtoH_v2);
  return copy(reinterpret_cast<uintptr_t>(to), from, bytes);
}
EXPORT Result cuMemcpy(DevicePtr to, DevicePtr from, size_t bytes) {
  ENTER(cuMemcpy);
  return copy(to, from, bytes);
}
EXPORT Result cuMemcpyDtoDAsync_v2(DevicePtr to, DevicePtr from, size_t bytes, Stream) {
  ENTER(cuMemcpyDtoDAsync_v2);
  return copy(to, from, bytes);
}
EXPORT Result cuMemsetD8Async(DevicePtr p, unsigned char value, size_t count, Stream) {
  ENTER(cuMemsetD8Async);
  std::memset(reinterpret_cast<void *>(p), value, count);
  return kSuccess;
}
EXPORT Result cuPointerGetAttribute(void *value, int attribute, DevicePtr p) {
  ENTER(cuPointerGetAttribute);
  auto it = control().memory.upper_bound(p);
  if (it == control().memory.begin())
    return kInvalidValue;
  --it;
  if (p >= it->first + it->second.bytes)
    return kInvalidValue;
  if (attribute == kPointerMemoryType)
    *static_cast<unsigned *>(value) = kMemoryTypeDevice;
  else if (attribute == kPointerBufferId)
    *static_cast<unsigned long long *>(value) = it->second.id;
  else
    return kInvalidValue;
  return kSuccess;
}
EXPORT Result cuPointerGetAttributes(unsigned count, int *attributes, void **values, DevicePtr p) {
  ENTER(cuPointerGetAttributes);
  if (count != 1 || attributes[0] != kPointerMemoryType)
    return kInvalidValue;
  if (cuPointerGetAttribute(values[0], attributes[0], p) != kSuccess)
    *static_cast<unsigned *>(values[0]) = 0; // memory that the driver does not know
  return kSuccess;
}
EXPORT Result cuStreamCreate(Stream *out, unsigned) {
  ENTER(cuStreamCreate);
  NEED_CONTEXT;
  *out = new StreamHandle{contexts.back()};
  streams.insert(*out);
  ++control().liveStreams;
  return kSuccess;
}
EXPORT Result cuStreamDestroy_v2(Stream s) {
  ENTER(cuStreamDestroy_v2);
  streams.erase(s);
  delete s;
  --control().liveStreams;
  return kSuccess;
}
EXPORT Result cuStreamSynchronize(Stream) {
  ENTER(cuStreamSynchronize);
  return kSuccess;
}
EXPORT Result cuStreamIsCapturing(Stream, int *status) {
  ENTER(cuStreamIsCapturing);
  *status = control().capturing;
  return kSuccess;
}
EXPORT Result cuStreamWaitEvent(Stream, Event e, unsigned) {
  ENTER(cuStreamWaitEvent);
  return e->recorded && !control().capturing ? kSuccess : kInvalidValue;
}
EXPORT Result cuEventCreate(Event *out, unsigned) {
  ENTER(cuEventCreate);
  NEED_CONTEXT;
  *out = new EventHandle;
  alive.insert(*out);
  ++control().liveEvents;
  return kSuccess;
}
EXPORT Result cuEventDestroy_v2(Event e) {
  ENTER(cuEventDestroy_v2);
  alive.erase(e);
  delete e;
  --control().liveEvents;
  return kSuccess;
}
EXPORT Result cuEventRecord(Event e, Stream) {
  ENTER(cuEventRecord);
  e->recorded = true;
  e->time = clockNow += 1.5;
  return kSuccess;
}
EXPORT Result cuEventSynchronize(Event) {
  ENTER(cuEventSynchronize);
  return kSuccess;
}
EXPORT Result cuEventElapsedTime(float *ms, Event start, Event end) {
  ENTER(cuEventElapsedTime);
  *ms = static_cast<float>(end->time - start->time);
  return kSuccess;
}
EXPORT Result cuLinkCreate_v2(unsigned count, int *options, void **values, LinkState *out) {
  ENTER(cuLinkCreate_v2);
  NEED_CONTEXT;
  *out = new LinkStateHandle{};
  for (unsigned i = 0; i < count; ++i)
    if (options[i] == kJitErrorLogBuffer)
      (*out)->log = static_cast<char *>(values[i]);
  return kSuccess;
}
EXPORT Result cuLinkAddData_v2(LinkState s, int type, void *data, size_t bytes, const char *, unsigned, int *,
                               void **) {
  ENTER(cuLinkAddData_v2);
  const char *text = static_cast<const char *>(data);
  if (type != kJitInputPtx || bytes == 0 || text[bytes - 1] != '\0')
    return kInvalidValue;
  if (std::strstr(text, "broken")) {
    std::strcpy(s->log, control().log.c_str());
    return kInvalidPtx;
  }
  s->image = std::string("\x7f"
                         "ELF") +
             text;
  return kSuccess;
}
EXPORT Result cuLinkComplete(LinkState s, void **cubin, size_t *bytes) {
  ENTER(cuLinkComplete);
  *cubin = s->image.data();
  *bytes = s->image.size() + 1;
  return kSuccess;
}
EXPORT Result cuLinkDestroy(LinkState s) {
  ENTER(cuLinkDestroy);
  delete s;
  return kSuccess;
}

#ifndef RL_FAKE_OLD
EXPORT Result cuCtxGetId(Context c, unsigned long long *id) {
  ENTER(cuCtxGetId);
  *id = c->id;
  return kSuccess;
}
EXPORT Result cuStreamGetCtx(Stream s, Context *out) {
  ENTER(cuStreamGetCtx);
  if (!streams.contains(s))
    return kInvalidValue;
  *out = s->context;
  return kSuccess;
}
EXPORT Result cuThreadExchangeStreamCaptureMode(int *mode) {
  ENTER(cuThreadExchangeStreamCaptureMode);
  std::swap(*mode, captureMode);
  return kSuccess;
}
EXPORT Result cuLaunchKernelEx(const LaunchConfig *c, Function f, void **params, void **) {
  ENTER(cuLaunchKernelEx);
  NEED_CONTEXT;
  rl::fake::Launch l{f->name,
                     {c->gridX, c->gridY, c->gridZ},
                     {c->blockX, c->blockY, c->blockZ},
                     c->sharedBytes,
                     {1, 1, 1},
                     c->stream,
                     values(f, params),
                     false,
                     false};
  for (unsigned i = 0; i < c->attributeCount; ++i)
    if (c->attributes[i].id == kAttributeClusterDimension)
      std::copy_n(c->attributes[i].value.cluster, 3, l.cluster);
    else if (c->attributes[i].id == kAttributeProgrammaticStreamSerialization)
      l.early = c->attributes[i].value.programmatic == 1;
    else
      return kInvalidValue;
  return perform(std::move(l));
}
EXPORT Result cuTensorMapEncodeTiled(TensorMap *out, int type, uint32_t rank, void *address, const uint64_t *extents,
                                     const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
                                     int interleave, int swizzle, int l2Promotion, int fill) {
  ENTER(cuTensorMapEncodeTiled);
  if (reinterpret_cast<uintptr_t>(out) % 64 || reinterpret_cast<uintptr_t>(address) % 16 || rank < 1 || rank > 5 ||
      steps[0] != 1 || interleave != 0 || fill != 0)
    return kInvalidValue;
  rl::fake::EncodedMap map{type, reinterpret_cast<uintptr_t>(address), {}, {}, {}, swizzle, l2Promotion};
  map.extents.assign(extents, extents + rank);
  map.strides.assign(strides, strides + rank - 1);
  map.box.assign(box, box + rank);
  control().maps.push_back(map);
  *out = {};
  out->opaque[0] = reinterpret_cast<uintptr_t>(address); // what a kernel that takes it is seen to be given
  return kSuccess;
}
EXPORT Result cuMemcpyPeer(DevicePtr to, Context toContext, DevicePtr from, Context fromContext, size_t bytes) {
  ENTER(cuMemcpyPeer);
  if (dead.contains(toContext) || dead.contains(fromContext))
    std::abort();
  return copy(to, from, bytes);
}
EXPORT Result cuGraphCreate(Graph *out, unsigned) {
  ENTER(cuGraphCreate);
  *out = new GraphHandle;
  alive.insert(*out);
  ++control().liveGraphs;
  return kSuccess;
}
EXPORT Result cuGraphDestroy(Graph g) {
  ENTER(cuGraphDestroy);
  alive.erase(g);
  delete g;
  --control().liveGraphs;
  return kSuccess;
}
EXPORT Result cuGraphAddKernelNode(GraphNode *out, Graph g, const GraphNode *deps, size_t count,
                                   const KernelNodeParams *p) {
  ENTER(cuGraphAddKernelNode);
  // A chain: the one dependency is the node before, here or by an edge added later.
  if (count > 1 || (count && (g->nodes.empty() || deps[0] != g->nodes.back().get())))
    return kInvalidValue;
  auto node = std::make_unique<GraphNodeHandle>();
  node->follows = count == 1;
  node->params = *p;
  node->args = values(p->function, p->params);
  *out = node.get();
  g->nodes.push_back(std::move(node));
  return kSuccess;
}
EXPORT Result cuGraphAddDependencies_v2(Graph g, const GraphNode *from, const GraphNode *to, const GraphEdge *edge,
                                        size_t count) {
  ENTER(cuGraphAddDependencies_v2);
  const size_t n = g->nodes.size();
  if (count != 1 || n < 2 || *from != g->nodes[n - 2].get() || *to != g->nodes[n - 1].get() || (*to)->follows ||
      edge->fromPort != 1 || edge->toPort != 0 || edge->type != 1)
    return kInvalidValue;
  (*to)->follows = (*to)->early = true;
  return kSuccess;
}
EXPORT Result cuGraphKernelNodeSetAttribute(GraphNode n, int attribute, const LaunchAttribute::Value *value) {
  ENTER(cuGraphKernelNodeSetAttribute);
  if (attribute != kAttributeClusterDimension)
    return kInvalidValue;
  std::copy_n(value->cluster, 3, n->cluster);
  return kSuccess;
}
EXPORT Result cuGraphInstantiateWithFlags(GraphExec *out, Graph g, unsigned long long) {
  ENTER(cuGraphInstantiateWithFlags);
  for (size_t i = 1; i < g->nodes.size(); ++i)
    if (!g->nodes[i]->follows) // kernels of a plan run one behind the other
      return kInvalidValue;
  *out = new GraphExecHandle;
  alive.insert(*out);
  for (auto &n : g->nodes) {
    (*out)->places[n.get()] = (*out)->nodes.size();
    (*out)->nodes.push_back(*n);
  }
  ++control().liveGraphs;
  return kSuccess;
}
EXPORT Result cuGraphExecKernelNodeSetParams(GraphExec e, GraphNode n, const KernelNodeParams *p) {
  ENTER(cuGraphExecKernelNodeSetParams);
  GraphNodeHandle &mine = e->nodes[e->places.at(n)];
  mine.params = *p;
  mine.args = values(p->function, p->params);
  return kSuccess;
}
EXPORT Result cuGraphLaunch(GraphExec e, Stream stream) {
  ENTER(cuGraphLaunch);
  NEED_CONTEXT;
  for (const GraphNodeHandle &n : e->nodes)
    if (Result r = perform(describe(n, stream)); r != kSuccess)
      return r;
  return kSuccess;
}
EXPORT Result cuGraphExecDestroy(GraphExec e) {
  ENTER(cuGraphExecDestroy);
  alive.erase(e);
  delete e;
  --control().liveGraphs;
  return kSuccess;
}
#endif
