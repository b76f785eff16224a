// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Packages for the CPU: each launch spreads its blocks over the pool, and the launches run one after the other.
#include "runtime/PackageModule.h"
#include "runtime/cpu/CpuFeatures.h"
#include "runtime/cpu/SharedObject.h"
#include "runtime/cpu/ThreadPool.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace rl {
namespace {

/// Intermediates and parameters start at multiples of this: a package may promise its kernels as much.
constexpr size_t kAlignment = 256;
/// A thread joins for each so many bytes that a launch touches: below, waking it costs more than it saves.
constexpr int64_t kBytesPerThread = 32 << 10;

struct FreeMemory {
  void operator()(void *p) const { std::free(p); }
};
using Memory = std::unique_ptr<char, FreeMemory>;

Result<Memory> allocate(int64_t bytes, const std::string &what) {
  size_t size = (static_cast<size_t>(bytes) + kAlignment - 1) / kAlignment * kAlignment;
  Memory memory(static_cast<char *>(std::aligned_alloc(kAlignment, std::max(size, kAlignment))));
  if (!memory)
    return deviceError("out of memory: " + std::to_string(bytes) + " bytes for " + what);
  return memory;
}

struct Prepared {
  const PackageLaunch *launch = nullptr;
  CpuKernel kernel = nullptr, unaligned = nullptr;
  std::vector<void *> args;
  struct Patch {
    uint32_t arg, buffer;
  };
  std::vector<Patch> patches; ///< the arguments that change from run to run: inputs and outputs
  uintptr_t alignMask = 0;
  int64_t bytes = 0; ///< that the launch touches, for the number of threads
};

class CpuModule final : public PackageModule {
public:
  explicit CpuModule(Package package) : PackageModule(std::move(package)) {}
  Status prepare(CpuResolver resolver);
  Status bind(std::string_view parameter, const void *data, size_t bytes) override;
  Status read(std::string_view parameter, void *data, size_t bytes) override;
  Status run(const void *const *inputs, void *const *outputs, void *stream) override;

private:
  Status prepareLaunch(const PackageLaunch &, const CpuResolver &, std::vector<Prepared> &);
  Status derive();
  Status launch(const Prepared &p) const {
    if (p.launch->kind == PackageLaunch::Kernel)
      return launchKernel(p);
    launchCopy(p);
    return {};
  }
  Status launchKernel(const Prepared &) const;
  void launchCopy(const Prepared &) const;
  Error indexError(const PackageLaunch &, int64_t code) const;

  std::unique_ptr<SharedObject> library;
  CpuResolver keep; ///< what the kernels live in may live in the resolver
  Memory arena, derived;
  std::vector<Memory> parameters;
  std::vector<char> bound;
  size_t unboundCount = 0;
  std::vector<char *> pointers; ///< of each buffer
  std::vector<Prepared> launches, bindLaunches;
  std::vector<BindStep> steps;
  std::vector<char> due; ///< by step: parameters of it were bound since it ran
};

Status CpuModule::prepare(CpuResolver resolver) {
  RL_TRY(checkCpuArch(contents.arch));
  bool kernels = kernelCount() > 0;
  for (const PackageLaunch &l : contents.bindLaunches)
    kernels |= l.kind == PackageLaunch::Kernel && !isEmptyLaunch(contents, l);
  if (!resolver && kernels) {
    RL_ASSIGN(library, SharedObject::open(contents.sharedObject));
    resolver = [this](const std::string &symbol) -> Result<CpuKernel> {
      if (void *address = library->find(symbol.c_str()))
        return reinterpret_cast<CpuKernel>(address);
      return invalid({}, "kernels.so has no kernel '" + symbol + "'");
    };
  }
  if (contents.arenaBytes > 0) {
    RL_ASSIGN(arena, allocate(contents.arenaBytes, "intermediate tensors"));
  }
  if (contents.derivedBytes > 0) {
    RL_ASSIGN(derived, allocate(contents.derivedBytes, "what is made of parameters"));
  }
  for (const PackageTensor &t : contents.parameters) {
    RL_ASSIGN(Memory memory, allocate(t.type.bytes(), "parameter '" + t.name + "'"));
    parameters.push_back(std::move(memory));
  }
  unboundCount = parameters.size();
  bound.assign(unboundCount, 0);
  for (const PackageBuffer &b : contents.buffers)
    pointers.push_back(b.kind == PackageBuffer::Arena       ? arena.get() + b.offset
                       : b.kind == PackageBuffer::Derived   ? derived.get() + b.offset
                       : b.kind == PackageBuffer::Parameter ? parameters[b.index].get()
                                                            : nullptr);
  for (const PackageLaunch &l : contents.launches)
    if (!isEmptyLaunch(contents, l))
      RL_TRY(prepareLaunch(l, resolver, launches));
  for (const PackageLaunch &l : contents.bindLaunches) // steps know them by their places
    RL_TRY(prepareLaunch(l, resolver, bindLaunches));
  steps = bindSteps(contents);
  due.assign(steps.size(), 1);
  keep = std::move(resolver);
  return {};
}

Status CpuModule::prepareLaunch(const PackageLaunch &l, const CpuResolver &resolver, std::vector<Prepared> &into) {
  Prepared prepared;
  prepared.launch = &l;
  if (l.kind == PackageLaunch::Kernel && !isEmptyLaunch(contents, l)) {
    RL_ASSIGN(prepared.kernel, resolver(l.kernel));
    if (!l.unalignedKernel.empty()) {
      RL_ASSIGN(prepared.unaligned, resolver(l.unalignedKernel));
    }
  }
  prepared.alignMask = l.align - 1;
  for (uint32_t i = 0; i < l.args.size(); ++i) {
    const PackageBuffer &b = contents.buffers[l.args[i]];
    prepared.args.push_back(pointers[l.args[i]]);
    prepared.bytes += std::min(b.bytes, INT64_MAX - prepared.bytes);
    if (b.kind == PackageBuffer::Input || b.kind == PackageBuffer::Output)
      prepared.patches.push_back({i, l.args[i]});
  }
  into.push_back(std::move(prepared));
  return {};
}

/// Runs the steps whose parameters changed, as far as all that they need is bound.
Status CpuModule::derive() {
  for (size_t s = 0; s < steps.size(); ++s) {
    const std::vector<uint32_t> &needed = steps[s].parameters;
    if (!due[s] || !std::all_of(needed.begin(), needed.end(), [&](uint32_t p) { return bound[p] != 0; }))
      continue;
    for (size_t l : steps[s].launches)
      if (!isEmptyLaunch(contents, *bindLaunches[l].launch))
        RL_TRY(launch(bindLaunches[l]));
    due[s] = 0;
  }
  return {};
}

Status CpuModule::bind(std::string_view parameter, const void *data, size_t bytes) {
  RL_ASSIGN(size_t index, checkBind(parameter, data, bytes));
  std::lock_guard lock(mutex);
  if (bytes)
    std::memmove(parameters[index].get(), data, bytes);
  unboundCount -= !bound[index];
  bound[index] = 1;
  for (size_t s = 0; s < steps.size(); ++s)
    due[s] |= std::binary_search(steps[s].parameters.begin(), steps[s].parameters.end(), static_cast<uint32_t>(index));
  return derive();
}

Status CpuModule::read(std::string_view parameter, void *data, size_t bytes) {
  RL_ASSIGN(size_t index, checkBind(parameter, data, bytes));
  std::lock_guard lock(mutex);
  if (!bound[index])
    return unbound(index);
  if (bytes)
    std::memcpy(data, parameters[index].get(), bytes);
  return {};
}

Error CpuModule::indexError(const PackageLaunch &l, int64_t code) const {
  if (code < 1 || static_cast<uint64_t>(code) > l.args.size() + 1)
    return deviceError(describeLaunch(l) + " failed with code " + std::to_string(code));
  std::string where = l.label.empty() ? "" : " (" + l.label + ")";
  bool computed = static_cast<uint64_t>(code) > l.args.size();
  const PackageBuffer &b = contents.buffers[computed ? 0 : l.args[static_cast<size_t>(code - 1)]];
  if (computed || b.kind == PackageBuffer::Arena)
    return invalid({}, "an index out of range in a computed tensor" + where);
  const std::string &name = tensors(b.kind == PackageBuffer::Input       ? 0
                                    : b.kind == PackageBuffer::Parameter ? 1
                                                                         : 2)[b.index]
                                .name;
  std::string pointer = "/";
  for (char c : name) // RFC 6901
    pointer += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return invalid(pointer, "an index out of range in tensor '" + name + "'" + where);
}

Status CpuModule::launchKernel(const Prepared &p) const {
  CpuKernel kernel = p.kernel;
  uintptr_t bits = 0;
  for (const Prepared::Patch &patch : p.patches)
    bits |= reinterpret_cast<uintptr_t>(p.args[patch.arg]);
  if (bits & p.alignMask) {
    if (!p.unaligned)
      return misalignedLaunch(*p.launch);
    kernel = p.unaligned;
  }
  struct Context {
    CpuKernel kernel;
    void *const *args;
  } context{kernel, p.args.data()};
  ThreadPool &pool = ThreadPool::global();
  int64_t participants = std::clamp<int64_t>(p.bytes / kBytesPerThread, 1, pool.threads());
  int64_t code = pool.run(
      p.launch->blocks, static_cast<int>(participants),
      [](void *opaque, int64_t first, int64_t end) -> int64_t {
        auto *c = static_cast<Context *>(opaque);
        return c->kernel(c->args, first, end);
      },
      &context);
  if (code != 0)
    return indexError(*p.launch, code);
  return {};
}

void CpuModule::launchCopy(const Prepared &p) const {
  struct Context {
    char *to;
    const char *from;
    int64_t bytes;
  } context{static_cast<char *>(p.args[0]), static_cast<const char *>(p.args[1]),
            contents.buffers[p.launch->args[0]].bytes};
  if (context.to == context.from)
    return;
  constexpr int64_t piece = 64 << 10;
  int64_t distance = std::abs(context.to - context.from);
  ThreadPool &pool = ThreadPool::global();
  // Memory that overlaps is copied by one thread, in memmove's order.
  int64_t participants =
      distance < context.bytes ? 1 : std::clamp<int64_t>(p.bytes / kBytesPerThread, 1, pool.threads());
  pool.run((context.bytes + piece - 1) / piece, static_cast<int>(participants),
           [](void *opaque, int64_t first, int64_t end) -> int64_t {
             auto *c = static_cast<Context *>(opaque);
             std::memmove(c->to + first * piece, c->from + first * piece,
                          static_cast<size_t>(std::min(end * piece, c->bytes) - first * piece));
             return 0;
           },
           &context);
}

Status CpuModule::run(const void *const *inputs, void *const *outputs, void *) {
  std::lock_guard lock(mutex);
  if (unboundCount)
    return unbound(static_cast<size_t>(std::find(bound.begin(), bound.end(), 0) - bound.begin()));
  RL_TRY(checkPointers(inputs, outputs));
  if (std::find(due.begin(), due.end(), 1) != due.end()) // of constants alone, or where it failed before
    RL_TRY(derive());
  for (size_t i = 0; i < contents.buffers.size(); ++i) {
    const PackageBuffer &b = contents.buffers[i];
    if (b.kind == PackageBuffer::Input)
      pointers[i] = const_cast<char *>(static_cast<const char *>(inputs[b.index]));
    else if (b.kind == PackageBuffer::Output)
      pointers[i] = static_cast<char *>(outputs[b.index]);
  }
  for (Prepared &p : launches) {
    for (const Prepared::Patch &patch : p.patches)
      p.args[patch.arg] = pointers[patch.buffer];
    RL_TRY(launch(p));
  }
  return {};
}

} // namespace

Result<std::unique_ptr<Module>> makeCpuModule(Package package, CpuResolver resolver) {
  auto module = std::make_unique<CpuModule>(std::move(package));
  RL_TRY(module->prepare(std::move(resolver)));
  return std::unique_ptr<Module>(std::move(module));
}

} // namespace rl
