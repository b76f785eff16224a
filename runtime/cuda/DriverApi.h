// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The part of the CUDA driver interface that the runtime uses, declared here so that no CUDA toolkit is needed: types
// and constants as the driver API reference manual gives them (their binary layout is fixed), and one table of all
// functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rl::cu {

using Result = int; ///< CUresult
using Device = int;
using DevicePtr = unsigned long long;
using Context = struct ContextHandle *;
using ModuleHandle = struct ModuleHandleT *;
using Function = struct FunctionHandle *;
using Stream = struct StreamHandle *;
using Event = struct EventHandle *;
using Graph = struct GraphHandle *;
using GraphNode = struct GraphNodeHandle *;
using GraphExec = struct GraphExecHandle *;
using LinkState = struct LinkStateHandle *;

// CUresult
inline constexpr Result kSuccess = 0, kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kDeinitialized = 4,
                        kNoDevice = 100, kInvalidImage = 200, kInvalidContext = 201, kNoBinaryForGpu = 209,
                        kInvalidPtx = 218, kUnsupportedPtxVersion = 222, kNotFound = 500, kNotReady = 600;

// CUjit_option
inline constexpr int kJitErrorLogBuffer = 5, kJitErrorLogBufferSize = 6;
// CUjitInputType
inline constexpr int kJitInputPtx = 1;

// CUdevice_attribute
inline constexpr int kMaxSharedPerBlock = 8, kClockRateKHz = 13, kSmCount = 16, kMemoryClockKHz = 36,
                     kMemoryBusWidth = 37, kL2Bytes = 38, kComputeMajor = 75, kComputeMinor = 76, kSharedPerSm = 81,
                     kMaxSharedPerBlockOptin = 97;
// CUfunction_attribute
inline constexpr int kFuncMaxDynamicShared = 8, kFuncNonPortableCluster = 14;
// CUpointer_attribute, CUmemorytype
inline constexpr int kPointerMemoryType = 2, kPointerBufferId = 7;
inline constexpr unsigned kMemoryTypeHost = 1, kMemoryTypeDevice = 2, kMemoryTypeArray = 3, kMemoryTypeUnified = 4;
// CUstreamCaptureStatus, CUstreamCaptureMode, stream and event flags
inline constexpr int kCaptureNone = 0;
inline constexpr int kCaptureModeRelaxed = 2;
inline constexpr unsigned kStreamNonBlocking = 1, kEventDefault = 0, kEventDisableTiming = 2;
// CUtensorMapDataType, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion, CUtensorMapFloatOOBfill
inline constexpr int kMapU8 = 0, kMapU16 = 1, kMapI32 = 3, kMapI64 = 5, kMapF16 = 6, kMapF32 = 7, kMapBF16 = 9;
inline constexpr int kMapInterleaveNone = 0, kMapFillZeros = 0;
// CUlaunchAttributeID
inline constexpr int kAttributeClusterDimension = 4, kAttributeProgrammaticStreamSerialization = 6;

/// CU_STREAM_PER_THREAD: one handle that is another stream in each thread.
inline Stream perThreadStream() { return reinterpret_cast<Stream>(uintptr_t(2)); }

/// CUlaunchAttribute: an id and a union of 64 bytes at offset 8.
struct LaunchAttribute {
  int id = 0;
  char pad[4] = {};
  union Value {
    char bytes[64];
    unsigned cluster[3];
    int programmatic; ///< of kAttributeProgrammaticStreamSerialization: whether it is allowed
  } value = {};
};
static_assert(sizeof(LaunchAttribute) == 72);

/// CUlaunchConfig
struct LaunchConfig {
  unsigned gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes;
  Stream stream;
  LaunchAttribute *attributes;
  unsigned attributeCount;
};
static_assert(sizeof(LaunchConfig) == 56);

/// CUgraphEdgeData. From CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC with CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC: the node behind may
/// be launched once all blocks of the kernel before have said so, or ended.
struct GraphEdge {
  unsigned char fromPort = 0, toPort = 0, type = 0;
  unsigned char reserved[5] = {};
};
static_assert(sizeof(GraphEdge) == 8);
inline constexpr GraphEdge kProgrammaticEdge{.fromPort = 1, .type = 1};

/// CUtensorMap
struct alignas(64) TensorMap {
  uint64_t opaque[16];
};
static_assert(sizeof(TensorMap) == 128);

/// CUDA_KERNEL_NODE_PARAMS_v1, which every driver since 10.0 takes.
struct KernelNodeParams {
  Function function;
  unsigned gridX, gridY, gridZ, blockX, blockY, blockZ, sharedBytes;
  void **params;
  void **extra;
};
static_assert(sizeof(KernelNodeParams) == 56);

/// The table: symbol (with its version suffix), parameters. Required ones are in every driver since CUDA 11.4; a driver
/// that lacks an optional one gets a null pointer in its place.
#define RL_CUDA_REQUIRED(X)                                                                                            \
  X(cuInit, (unsigned flags))                                                                                          \
  X(cuDriverGetVersion, (int *version))                                                                                \
  X(cuGetErrorName, (Result, const char **name))                                                                       \
  X(cuGetErrorString, (Result, const char **text))                                                                     \
  X(cuDeviceGetCount, (int *count))                                                                                    \
  X(cuDeviceGet, (Device *, int ordinal))                                                                              \
  X(cuDeviceGetName, (char *name, int length, Device))                                                                 \
  X(cuDeviceTotalMem_v2, (size_t *bytes, Device))                                                                      \
  X(cuDeviceGetAttribute, (int *value, int attribute, Device))                                                         \
  X(cuDevicePrimaryCtxRetain, (Context *, Device))                                                                     \
  X(cuDevicePrimaryCtxRelease_v2, (Device))                                                                            \
  X(cuCtxGetCurrent, (Context *))                                                                                      \
  X(cuCtxPushCurrent_v2, (Context))                                                                                    \
  X(cuCtxPopCurrent_v2, (Context *))                                                                                   \
  X(cuCtxGetDevice, (Device *))                                                                                        \
  X(cuCtxSynchronize, ())                                                                                              \
  X(cuModuleLoadDataEx, (ModuleHandle *, const void *image, unsigned count, int *options, void **values))              \
  X(cuModuleUnload, (ModuleHandle))                                                                                    \
  X(cuModuleGetFunction, (Function *, ModuleHandle, const char *name))                                                 \
  X(cuFuncSetAttribute, (Function, int attribute, int value))                                                          \
  X(cuLaunchKernel, (Function, unsigned gridX, unsigned gridY, unsigned gridZ, unsigned blockX, unsigned blockY,       \
                     unsigned blockZ, unsigned sharedBytes, Stream, void **params, void **extra))                      \
  X(cuOccupancyMaxActiveBlocksPerMultiprocessor, (int *blocks, Function, int threads, size_t sharedBytes))             \
  X(cuMemAlloc_v2, (DevicePtr *, size_t bytes))                                                                        \
  X(cuMemFree_v2, (DevicePtr))                                                                                         \
  X(cuMemGetInfo_v2, (size_t *free, size_t *total))                                                                    \
  X(cuMemcpyHtoD_v2, (DevicePtr to, const void *from, size_t bytes))                                                   \
  X(cuMemcpyDtoH_v2, (void *to, DevicePtr from, size_t bytes))                                                         \
  X(cuMemcpy, (DevicePtr to, DevicePtr from, size_t bytes))                                                            \
  X(cuMemcpyDtoDAsync_v2, (DevicePtr to, DevicePtr from, size_t bytes, Stream))                                        \
  X(cuMemsetD8Async, (DevicePtr, unsigned char value, size_t count, Stream))                                           \
  X(cuPointerGetAttribute, (void *value, int attribute, DevicePtr))                                                    \
  X(cuPointerGetAttributes, (unsigned count, int *attributes, void **values, DevicePtr))                               \
  X(cuStreamCreate, (Stream *, unsigned flags))                                                                        \
  X(cuStreamDestroy_v2, (Stream))                                                                                      \
  X(cuStreamSynchronize, (Stream))                                                                                     \
  X(cuStreamIsCapturing, (Stream, int *status))                                                                        \
  X(cuStreamWaitEvent, (Stream, Event, unsigned flags))                                                                \
  X(cuEventCreate, (Event *, unsigned flags))                                                                          \
  X(cuEventDestroy_v2, (Event))                                                                                        \
  X(cuEventRecord, (Event, Stream))                                                                                    \
  X(cuEventSynchronize, (Event))                                                                                       \
  X(cuEventElapsedTime, (float *milliseconds, Event start, Event end))                                                 \
  X(cuLinkCreate_v2, (unsigned count, int *options, void **values, LinkState *))                                       \
  X(cuLinkAddData_v2,                                                                                                  \
    (LinkState, int type, void *data, size_t bytes, const char *name, unsigned count, int *options, void **values))    \
  X(cuLinkComplete, (LinkState, void **cubin, size_t *bytes))                                                          \
  X(cuLinkDestroy, (LinkState))
#define RL_CUDA_OPTIONAL(X)                                                                                            \
  X(cuCtxGetId, (Context, unsigned long long *id))                                                                     \
  X(cuStreamGetCtx, (Stream, Context *))                                                                               \
  X(cuThreadExchangeStreamCaptureMode, (int *mode))                                                                    \
  X(cuLaunchKernelEx, (const LaunchConfig *, Function, void **params, void **extra))                                   \
  X(cuTensorMapEncodeTiled,                                                                                            \
    (TensorMap *, int type, uint32_t rank, void *address, const uint64_t *extents, const uint64_t *strides,            \
     const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int l2Promotion, int fill))              \
  X(cuMemcpyPeer, (DevicePtr to, Context toContext, DevicePtr from, Context fromContext, size_t bytes))                \
  X(cuGraphCreate, (Graph *, unsigned flags))                                                                          \
  X(cuGraphDestroy, (Graph))                                                                                           \
  X(cuGraphAddKernelNode, (GraphNode *, Graph, const GraphNode *dependencies, size_t count, const KernelNodeParams *)) \
  X(cuGraphAddDependencies_v2, (Graph, const GraphNode *from, const GraphNode *to, const GraphEdge *, size_t count))   \
  X(cuGraphKernelNodeSetAttribute, (GraphNode, int attribute, const LaunchAttribute::Value *))                         \
  X(cuGraphInstantiateWithFlags, (GraphExec *, Graph, unsigned long long flags))                                       \
  X(cuGraphExecKernelNodeSetParams, (GraphExec, GraphNode, const KernelNodeParams *))                                  \
  X(cuGraphLaunch, (GraphExec, Stream))                                                                                \
  X(cuGraphExecDestroy, (GraphExec))

struct Api {
#define RL_CUDA_MEMBER(name, parameters) Result(*name) parameters = nullptr;
  RL_CUDA_REQUIRED(RL_CUDA_MEMBER)
  RL_CUDA_OPTIONAL(RL_CUDA_MEMBER)
#undef RL_CUDA_MEMBER
};

} // namespace rl::cu
