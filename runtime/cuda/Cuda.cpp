// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See Cuda.h.
#include "runtime/cuda/Cuda.h"
#include "runtime/cuda/Driver.h"

namespace rl {

using cu::failure;
using cu::kSuccess;

namespace {

/// Calls `release` in `context`, whatever is current then. Errors at the end of a process (the driver is gone) do not
/// matter.
template <class Release> void releaseIn(const cu::Api &api, cu::Context context, Release release) {
  cu::RelaxedCapture relaxed(api);
  if (api.cuCtxPushCurrent_v2(context) != kSuccess)
    return;
  release();
  cu::Context popped;
  api.cuCtxPopCurrent_v2(&popped);
}

} // namespace

bool cudaAvailable() {
  auto api = cu::driver();
  int count = 0;
  return api && (*api)->cuDeviceGetCount(&count) == kSuccess && count > 0;
}

std::string CudaDevice::arch() const {
  return "sm_" + std::to_string(major) + std::to_string(minor) + (major >= 9 ? "a" : "");
}

Result<CudaDevice> currentCudaDevice() {
  RL_ASSIGN(const cu::Api *api, cu::driver());
  CudaDevice out;
  cu::Device device = 0;
  cu::Context context = nullptr;
  if (api->cuCtxGetCurrent(&context) != kSuccess || !context || api->cuCtxGetDevice(&device) != kSuccess)
    if (cu::Result r = api->cuDeviceGet(&device, 0); r != kSuccess)
      return failure(*api, r, "there is no CUDA device");
  out.ordinal = device;
  char name[256] = {};
  if (cu::Result r = api->cuDeviceGetName(name, sizeof name - 1, device); r != kSuccess)
    return failure(*api, r, "the device's name cannot be read");
  out.name = name;
  auto attribute = [&](int which) {
    int value = 0;
    return api->cuDeviceGetAttribute(&value, which, device) == kSuccess ? value : 0;
  };
  out.major = attribute(cu::kComputeMajor);
  out.minor = attribute(cu::kComputeMinor);
  out.sms = attribute(cu::kSmCount);
  if (out.major == 0 || out.sms == 0)
    return deviceError("the driver does not tell the compute capability of '" + out.name + "'");
  out.clockKHz = attribute(cu::kClockRateKHz);
  out.memoryClockKHz = attribute(cu::kMemoryClockKHz);
  out.memoryBusBits = attribute(cu::kMemoryBusWidth);
  out.l2Bytes = attribute(cu::kL2Bytes);
  out.sharedPerSm = attribute(cu::kSharedPerSm);
  out.sharedPerBlock = attribute(cu::kMaxSharedPerBlockOptin);
  if (out.sharedPerBlock == 0)
    out.sharedPerBlock = attribute(cu::kMaxSharedPerBlock);
  size_t total = 0;
  if (api->cuDeviceTotalMem_v2(&total, device) == kSuccess)
    out.memoryBytes = static_cast<int64_t>(total);
  api->cuDriverGetVersion(&out.driverVersion);
  return out;
}

Result<std::string> assemblePtx(const std::string &ptx) {
  if (ptx.find("setmaxnreg") != std::string::npos)
    return unsupported({}, "kernels that set their number of registers are assembled as they are loaded");
  // Linked they take up to twice the registers, so that an SM holds one block where it is to hold three.
  if (ptx.find("barrier.cluster.arrive.relaxed") != std::string::npos)
    return unsupported({}, "kernels whose rows are shared by clusters are assembled as they are loaded");
  RL_ASSIGN(const cu::Api *api, cu::driver());
  RL_ASSIGN(auto scope, cu::ContextScope::enter(*api));
  cu::RelaxedCapture relaxed(*api);
  std::string log(16384, '\0');
  int options[] = {cu::kJitErrorLogBuffer, cu::kJitErrorLogBufferSize};
  void *values[] = {log.data(), reinterpret_cast<void *>(uintptr_t(log.size()))};
  cu::LinkState link = nullptr;
  if (cu::Result r = api->cuLinkCreate_v2(2, options, values, &link); r != kSuccess)
    return failure(*api, r, "the PTX assembler cannot be started");
  std::unique_ptr<cu::LinkStateHandle, cu::Result (*)(cu::LinkState)> owner(link, api->cuLinkDestroy);
  // The text's terminator is part of the data, as the driver's reference asks for PTX.
  cu::Result r = api->cuLinkAddData_v2(link, cu::kJitInputPtx, const_cast<char *>(ptx.c_str()), ptx.size() + 1,
                                       "kernels.ptx", 0, nullptr, nullptr);
  void *cubin = nullptr;
  size_t bytes = 0;
  if (r == kSuccess)
    r = api->cuLinkComplete(link, &cubin, &bytes);
  if (r != kSuccess) {
    Error e = failure(*api, r, "the PTX cannot be assembled");
    if (!cu::isSticky(r) && r != cu::kOutOfMemory)
      e.code = Code::Invalid;
    log.back() = '\0';
    if (*log.c_str())
      e.message += std::string("\n") + log.c_str();
    return e;
  }
  return std::string(static_cast<const char *>(cubin), bytes);
}

Result<CudaStream> CudaStream::create() {
  RL_ASSIGN(const cu::Api *api, cu::driver());
  RL_ASSIGN(auto scope, cu::ContextScope::enter(*api));
  cu::Stream made = nullptr;
  if (cu::Result r = api->cuStreamCreate(&made, cu::kStreamNonBlocking); r != kSuccess)
    return failure(*api, r, "a stream cannot be made");
  CudaStream out;
  out.stream = std::shared_ptr<void>(made, [api, context = scope.context()](void *s) {
    releaseIn(*api, context, [&] { api->cuStreamDestroy_v2(static_cast<cu::Stream>(s)); });
  });
  return out;
}

Status CudaStream::synchronize() const {
  RL_ASSIGN(const cu::Api *api, cu::driver());
  auto handle = static_cast<cu::Stream>(stream.get());
  RL_ASSIGN(auto scope, cu::ContextScope::enter(*api, handle));
  if (cu::Result r = api->cuStreamSynchronize(handle); r != kSuccess)
    return failure(*api, r, "waiting for the device failed");
  return {};
}

Result<CudaMemory> CudaMemory::allocate(size_t bytes) {
  CudaMemory out;
  if (bytes == 0)
    return out;
  RL_ASSIGN(const cu::Api *api, cu::driver());
  RL_ASSIGN(auto scope, cu::ContextScope::enter(*api));
  cu::RelaxedCapture relaxed(*api);
  cu::DevicePtr made = 0;
  if (cu::Result r = api->cuMemAlloc_v2(&made, bytes); r != kSuccess)
    return failure(*api, r, std::to_string(bytes) + " bytes of device memory cannot be had");
  out.bytes = bytes;
  out.pointer =
      std::shared_ptr<const uint64_t>(new uint64_t(made), [api, context = scope.context()](const uint64_t *p) {
        releaseIn(*api, context, [&] { api->cuMemFree_v2(*p); });
        delete p;
      });
  return out;
}

static Status checkRange(size_t size, size_t count, size_t offset) {
  if (offset > size || count > size - offset)
    return usageError("a copy of " + std::to_string(count) + " bytes at " + std::to_string(offset) + " leaves the " +
                      std::to_string(size) + " bytes of the device memory");
  return {};
}

Status CudaMemory::upload(const void *host, size_t count, size_t offset) {
  RL_TRY(checkRange(bytes, count, offset));
  if (count == 0)
    return {};
  RL_ASSIGN(const cu::Api *api, cu::driver());
  RL_ASSIGN(auto scope, cu::ContextScope::enter(*api));
  cu::Result r = api->cuMemcpyHtoD_v2(*pointer + offset, host, count);
  // From pageable memory the call may return before the last piece has landed.
  if (r == kSuccess)
    r = api->cuStreamSynchronize(nullptr);
  if (r != kSuccess)
    return failure(*api, r, "copying to the device failed");
  return {};
}

Status CudaMemory::download(void *host, size_t count, size_t offset) const {
  RL_TRY(checkRange(bytes, count, offset));
  if (count == 0)
    return {};
  RL_ASSIGN(const cu::Api *api, cu::driver());
  RL_ASSIGN(auto scope, cu::ContextScope::enter(*api));
  if (cu::Result r = api->cuMemcpyDtoH_v2(host, *pointer + offset, count); r != kSuccess)
    return failure(*api, r, "copying from the device failed");
  return {};
}

Status CudaMemory::fill(uint8_t value, void *stream) {
  if (bytes == 0)
    return {};
  RL_ASSIGN(const cu::Api *api, cu::driver());
  auto handle = static_cast<cu::Stream>(stream);
  RL_ASSIGN(auto scope, cu::ContextScope::enter(*api, handle));
  if (cu::Result r = api->cuMemsetD8Async(*pointer, value, bytes, handle); r != kSuccess)
    return failure(*api, r, "filling device memory failed");
  return {};
}

Result<CudaEvent> CudaEvent::create() {
  RL_ASSIGN(const cu::Api *api, cu::driver());
  RL_ASSIGN(auto scope, cu::ContextScope::enter(*api));
  cu::Event made = nullptr;
  if (cu::Result r = api->cuEventCreate(&made, cu::kEventDefault); r != kSuccess)
    return failure(*api, r, "an event cannot be made");
  CudaEvent out;
  out.event = std::shared_ptr<void>(made, [api, context = scope.context()](void *e) {
    releaseIn(*api, context, [&] { api->cuEventDestroy_v2(static_cast<cu::Event>(e)); });
  });
  return out;
}

Status CudaEvent::record(void *stream) {
  RL_ASSIGN(const cu::Api *api, cu::driver());
  auto handle = static_cast<cu::Stream>(stream);
  RL_ASSIGN(auto scope, cu::ContextScope::enter(*api, handle));
  if (cu::Result r = api->cuEventRecord(static_cast<cu::Event>(event.get()), handle); r != kSuccess)
    return failure(*api, r, "an event cannot be recorded");
  return {};
}

Status CudaEvent::synchronize() const {
  RL_ASSIGN(const cu::Api *api, cu::driver());
  RL_ASSIGN(auto scope, cu::ContextScope::enter(*api));
  if (cu::Result r = api->cuEventSynchronize(static_cast<cu::Event>(event.get())); r != kSuccess)
    return failure(*api, r, "waiting for the device failed");
  return {};
}

Result<double> CudaEvent::elapsedMicroseconds(const CudaEvent &start, const CudaEvent &end) {
  RL_ASSIGN(const cu::Api *api, cu::driver());
  RL_ASSIGN(auto scope, cu::ContextScope::enter(*api));
  RL_TRY(end.synchronize());
  float milliseconds = 0;
  if (cu::Result r = api->cuEventElapsedTime(&milliseconds, static_cast<cu::Event>(start.event.get()),
                                             static_cast<cu::Event>(end.event.get()));
      r != kSuccess)
    return failure(*api, r, "the time between two events cannot be read");
  return milliseconds * 1000.0;
}

Status cudaSynchronize() {
  RL_ASSIGN(const cu::Api *api, cu::driver());
  RL_ASSIGN(auto scope, cu::ContextScope::enter(*api));
  if (cu::Result r = api->cuCtxSynchronize(); r != kSuccess)
    return failure(*api, r, "waiting for the device failed");
  return {};
}

Result<CudaMemoryInfo> cudaMemoryInfo() {
  RL_ASSIGN(const cu::Api *api, cu::driver());
  RL_ASSIGN(auto scope, cu::ContextScope::enter(*api));
  CudaMemoryInfo out;
  if (cu::Result r = api->cuMemGetInfo_v2(&out.free, &out.total); r != kSuccess)
    return failure(*api, r, "the device's free memory cannot be read");
  return out;
}

} // namespace rl
