// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Packages for CUDA: one CudaState for each context that the module is used in, and the parameters, which follow the
// module from context to context.
#include "runtime/PackageModule.h"
#include "runtime/cuda/CudaState.h"

#include <algorithm>

namespace rl {
namespace {

using cu::failure;
using cu::kSuccess;

class CudaModule final : public PackageModule {
public:
  explicit CudaModule(Package package)
      : PackageModule(std::move(package)), versions(contents.parameters.size(), 0),
        homes(contents.parameters.size(), nullptr), unboundCount(contents.parameters.size()) {
    for (const PackageLaunch &l : contents.launches)
      if (l.kind == PackageLaunch::Copy && contents.buffers[l.args[0]].kind == PackageBuffer::Parameter)
        written.push_back(contents.buffers[l.args[0]].index);
  }

  /// Where a context is current already, everything is made ready in it, so that the first run allocates nothing. What
  /// goes wrong is left for the first bind or run to report: the package may be loaded only to be looked at, or saved.
  void prepareEarly() {
    if (const cu::Api *current = cu::driverWithCurrentContext()) {
      auto scope = cu::ContextScope::enter(*current);
      if (!scope)
        return;
      api = current;
      (void)stateFor(scope->context());
    }
  }

  Status bind(std::string_view parameter, const void *data, size_t bytes) override;
  Status read(std::string_view parameter, void *data, size_t bytes) override;
  Status run(const void *const *inputs, void *const *outputs, void *stream) override;

private:
  Result<CudaState *> stateFor(cu::Context);
  void dropDead(cu::Context fresh);
  Status copyIn(CudaState &, size_t index, const void *data, size_t bytes);
  Status fetchParameters(CudaState &);
  Status needDriver() {
    if (api)
      return {};
    RL_ASSIGN(api, cu::driver());
    return {};
  }

  const cu::Api *api = nullptr;
  std::vector<std::unique_ptr<CudaState>> states;
  /// Of each parameter: when it was bound or replaced last, and the state that has its latest values. A state whose version differs
  /// copies them before it runs.
  std::vector<uint64_t> versions;
  std::vector<CudaState *> homes;
  std::vector<uint32_t> written; ///< parameters that a run replaces
  uint64_t generation = 0;       ///< binds and replacements in all
  size_t unboundCount;
};

Result<CudaState *> CudaModule::stateFor(cu::Context context) {
  for (auto &state : states)
    if (state->isFor(context))
      return state.get();
  dropDead(context);
  RL_ASSIGN(auto made, CudaState::create(*api, contents, context));
  states.push_back(std::move(made));
  return states.back().get();
}

/// Forgets the states whose context was destroyed (and one that has this new context's handle is of such), and the
/// parameters that were there alone.
void CudaModule::dropDead(cu::Context fresh) {
  std::erase_if(states, [&](std::unique_ptr<CudaState> &state) {
    if (!state->hasContext(fresh) && state->isAlive())
      return false;
    for (size_t i = 0; i < homes.size(); ++i)
      if (homes[i] == state.get()) {
        homes[i] = nullptr;
        ++unboundCount;
      }
    state->abandon();
    return true;
  });
}

Status CudaModule::copyIn(CudaState &state, size_t index, const void *data, size_t bytes) {
  RL_ASSIGN(cu::DevicePtr to, state.parameter(index));
  if (bytes == 0)
    return {};
  std::string what = "binding parameter '" + contents.parameters[index].name + "'";
  cu::RelaxedCapture relaxed(*api);
  // Kernels that still read the old values, and those that write what is copied, end first.
  cu::Result r = api->cuCtxSynchronize();
  if (r != kSuccess)
    return failure(*api, r, what);
  auto from = static_cast<cu::DevicePtr>(reinterpret_cast<uintptr_t>(data));
  // The form for one attribute fails for host memory that the driver does not know, which tools that watch calls report.
  unsigned type = 0;
  int attribute = cu::kPointerMemoryType;
  void *value = &type;
  bool onDevice = api->cuPointerGetAttributes(1, &attribute, &value, from) == kSuccess && type == cu::kMemoryTypeDevice;
  r = onDevice ? api->cuMemcpy(to, from, bytes) : api->cuMemcpyHtoD_v2(to, data, bytes);
  if (r == kSuccess)
    r = api->cuStreamSynchronize(nullptr); // both may return before the copy has ended
  if (r != kSuccess)
    return failure(*api, r, what);
  return {};
}

Status CudaModule::bind(std::string_view parameter, const void *data, size_t bytes) {
  RL_ASSIGN(size_t index, checkBind(parameter, data, bytes));
  std::lock_guard lock(mutex);
  RL_TRY(needDriver());
  RL_ASSIGN(auto scope, cu::ContextScope::enter(*api));
  RL_ASSIGN(CudaState * state, stateFor(scope.context()));
  RL_TRY(copyIn(*state, index, data, bytes));
  unboundCount -= homes[index] == nullptr;
  homes[index] = state;
  state->parameterVersions[index] = versions[index] = ++generation;
  state->parameterChanged(index);
  return state->derive();
}

Status CudaModule::read(std::string_view parameter, void *data, size_t bytes) {
  RL_ASSIGN(size_t index, checkBind(parameter, data, bytes));
  std::lock_guard lock(mutex);
  if (!homes[index])
    return unbound(index);
  RL_TRY(needDriver());
  RL_ASSIGN(auto scope, cu::ContextScope::enter(*api));
  RL_ASSIGN(CudaState * state, stateFor(scope.context()));
  if (!homes[index]) // the context that had it is gone
    return unbound(index);
  if (state->parameterVersions[index] != versions[index])
    RL_TRY(fetchParameters(*state));
  RL_ASSIGN(cu::DevicePtr from, state->parameter(index));
  cu::RelaxedCapture relaxed(*api);
  cu::Result r = api->cuCtxSynchronize();
  if (r == kSuccess && bytes)
    r = api->cuMemcpyDtoH_v2(data, from, bytes);
  if (r != kSuccess)
    return failure(*api, r, "reading parameter '" + contents.parameters[index].name + "'");
  return {};
}

/// Brings the parameters that were bound in another context.
Status CudaModule::fetchParameters(CudaState &state) {
  for (size_t i = 0; i < homes.size(); ++i) {
    if (state.parameterVersions[i] == versions[i])
      continue;
    if (!homes[i]->isAlive())
      return usageError("parameter '" + contents.parameters[i].name +
                        "' is not bound: the context that it was bound in was destroyed");
    RL_ASSIGN(cu::DevicePtr to, state.parameter(i));
    if (auto bytes = static_cast<size_t>(contents.parameters[i].type.bytes())) {
      if (!api->cuMemcpyPeer)
        return unsupported({}, "parameter '" + contents.parameters[i].name +
                                   "' was bound in another context, and this driver cannot copy between contexts");
      if (cu::Result r = api->cuMemcpyPeer(to, state.contextHandle(), homes[i]->boundParameter(i),
                                           homes[i]->contextHandle(), bytes);
          r != kSuccess)
        return failure(*api, r, "parameter '" + contents.parameters[i].name + "' cannot be copied between contexts");
      if (cu::Result r = api->cuCtxSynchronize(); r != kSuccess)
        return failure(*api, r, "parameter '" + contents.parameters[i].name + "' cannot be copied between contexts");
    }
    state.parameterVersions[i] = versions[i];
    state.parameterChanged(i);
  }
  state.generation = generation;
  return state.derive();
}

Status CudaModule::run(const void *const *inputs, void *const *outputs, void *stream) {
  std::lock_guard lock(mutex);
  RL_TRY(checkPointers(inputs, outputs));
  if (unboundCount)
    return unbound(static_cast<size_t>(std::find(homes.begin(), homes.end(), nullptr) - homes.begin()));
  RL_TRY(needDriver());
  auto handle = static_cast<cu::Stream>(stream);
  RL_ASSIGN(auto scope, cu::ContextScope::enter(*api, handle));
  RL_ASSIGN(CudaState * state, stateFor(scope.context()));
  if (unboundCount) // the context that had them is gone
    return unbound(static_cast<size_t>(std::find(homes.begin(), homes.end(), nullptr) - homes.begin()));
  if (state->generation != generation)
    RL_TRY(fetchParameters(*state));
  if (state->isDue()) // of constants alone, or where it failed before
    RL_TRY(state->derive());
  RL_TRY(state->run(inputs, outputs, handle));
  for (uint32_t index : written) {
    homes[index] = state;
    state->parameterVersions[index] = versions[index] = state->generation = ++generation;
  }
  return {};
}

} // namespace

Result<std::unique_ptr<Module>> makeCudaModule(Package package) {
  auto module = std::make_unique<CudaModule>(std::move(package));
  module->prepareEarly();
  return std::unique_ptr<Module>(std::move(module));
}

} // namespace rl
