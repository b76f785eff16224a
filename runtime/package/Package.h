// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A package: everything that the runtime needs to run one compiled graph, and nothing else. The compiler fills one in;
// the runtime runs it, from memory or from a directory (manifest.json, kernels.ptx, kernels.cubin, kernels.so,
// graph.json, explain.json). This header is the whole interface between the two.
#pragma once

#include "runtime/base/DType.h"
#include "runtime/base/Result.h"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace rl {

struct PackageTensor {
  std::string name;
  TensorType type;
};

/// A range of memory that launches read or write.
struct PackageBuffer {
  /// Derived: made of parameters by `bindLaunches`, and kept until they are bound anew.
  enum Kind : uint8_t { Input, Parameter, Output, Arena, Derived } kind = Arena;
  uint32_t index = 0; ///< Input, Parameter, Output: place in the signature
  int64_t offset = 0; ///< Arena, Derived: bytes from the start of that memory, a multiple of 256
  int64_t bytes = 0;
};

struct Extent3 {
  uint32_t x = 1, y = 1, z = 1;
  bool operator==(const Extent3 &) const = default;
};

/// How a kernel's tensor map (CUDA's tensor memory accelerator, compute capability 9.0) describes a part of a buffer. The
/// runtime encodes it for the place that the buffer has; no interleaving, reads outside give zeros, writes are dropped.
struct PackageTensorMap {
  uint32_t arg = 0;   ///< which of the launch's `args`
  int64_t offset = 0; ///< bytes from the buffer's start, a multiple of 16
  DType dtype = DType::F32;
  std::vector<int64_t> extents; ///< elements, 1 to 2^32 each, the innermost first, rank 1 to 5
  std::vector<int64_t> strides; ///< bytes between neighbours along extents[1], extents[2], ...: multiples of 16
  std::vector<uint32_t> box;    ///< elements that one copy moves, 1 to 256 along each dimension
  uint32_t swizzle = 0;         ///< span of the swizzle in shared memory, in bytes: 0 (none), 32, 64, 128
  uint32_t l2Promotion = 0;     ///< bytes of an L2 fetch: 0 (as they are), 64, 128, 256
  bool operator==(const PackageTensorMap &) const = default;
};

/// One kernel launch, or one copy of a buffer: an output that is an input, or the next value of a parameter that is state.
struct PackageLaunch {
  enum Kind : uint8_t { Kernel, Copy } kind = Kernel;
  std::string kernel;         ///< symbol in the module
  std::vector<uint32_t> args; ///< buffers, in the order of the kernel's pointer parameters. Copy: {to, from}
  /// CUDA: grid of blocks. CPU: `blocks` independent blocks, spread over threads by the runtime; a kernel there has the
  /// type int32_t(void *const *args, int64_t firstBlock, int64_t endBlock) and returns 0, or 1 + the place in `args` of
  /// an index tensor that holds an index out of range; 1 + the size of `args` where the index is computed.
  Extent3 grid, block, cluster;
  int64_t blocks = 1;
  uint32_t sharedBytes = 0; ///< dynamic shared memory
  /// CUDA: grid.x counts pieces of work that blocks take in turn; as many blocks run as the device holds at once, or
  /// grid.x where that is less, rounded down to whole clusters. grid.y = grid.z = 1.
  bool persistent = false;
  /// CUDA: both kernels themselves wait for the one launched before them (griddepcontrol.wait) before they touch what kernels
  /// write, so that they may be launched while that one still runs. Not heeded of the first launch, or behind a copy.
  bool early = false;
  /// CUDA: parameters of 128 bytes that the kernel has behind its pointers, by value.
  std::vector<PackageTensorMap> tensorMaps;
  /// Where a pointer is not a multiple of `align` bytes, or the driver has no tensor maps, this other kernel runs instead
  /// (the same pointers, no tensor maps).
  uint32_t align = 1;
  std::string unalignedKernel;
  Extent3 unalignedGrid, unalignedBlock, unalignedCluster;
  uint32_t unalignedSharedBytes = 0;
  std::string label; ///< for messages and traces: the nodes in it
  std::string name;  ///< of the plan's kernel, where the code is that of another which is equal; else empty

  const std::string &planName() const { return name.empty() ? kernel : name; }
};

struct Package {
  std::string name;
  std::string version; ///< of the compiler
  std::string target;  ///< "cuda" or "cpu"
  std::string arch;    ///< "sm_90a", "x86-64-v3"
  std::vector<PackageTensor> inputs, parameters, outputs;
  std::vector<PackageBuffer> buffers;
  int64_t arenaBytes = 0, derivedBytes = 0;
  std::vector<PackageLaunch> launches;
  /// What is done once parameters are bound, and again where one is bound anew, before the next run: from parameters to derived
  /// buffers, by way of the arena. Launches that share a parameter or a buffer run together, in this order.
  std::vector<PackageLaunch> bindLaunches;
  std::string ptx;          ///< CUDA: text
  std::string cubin;        ///< CUDA: machine code for the device it was loaded on, where known
  std::string object;       ///< CPU: relocatable object, in memory only
  std::string sharedObject; ///< CPU: what a directory holds
  std::string graph;        ///< the canonical graph, JSON
  std::string explain;      ///< the decision record, JSON
};

/// Checks everything that the runtime relies on: the signature (names, ranks, extents, sizes within 2^62 bytes),
/// buffers (places in the signature, offsets and sizes within the arena), launches (argument places, launch limits of
/// the hardware, names). Code::Invalid with a JSON pointer into the manifest.
Status validatePackage(const Package &);

/// Whether a package needs code: it has launches of kernels.
bool hasKernels(const Package &);

/// The manifest's text, without the contents of the other files; and back, checked as validatePackage does, but for
/// what depends on those contents. Unknown and duplicate keys are errors.
std::string printManifest(const Package &);
Result<Package> parseManifest(std::string_view json);

/// Limits of what a package directory may hold, in bytes.
inline constexpr int64_t kMaxManifestBytes = int64_t(256) << 20;
inline constexpr int64_t kMaxPackageFileBytes = int64_t(2) << 30;

/// The bind launches that run together, each list in order, and the parameters that they need.
struct BindStep {
  std::vector<size_t> launches;
  std::vector<uint32_t> parameters; ///< ascending
};
std::vector<BindStep> bindSteps(const Package &);

/// Writes `directory` (made whole beside it, then renamed; an existing package there is replaced, any other non-empty
/// directory is refused). Errors: Code::Device with the path.
Status writePackage(const Package &, const std::string &directory);
/// Reads and checks every field (checksums and sizes of the files, places, offsets within the arena); Code::Invalid
/// with the file and the pointer.
Result<Package> readPackage(const std::string &directory);

} // namespace rl
