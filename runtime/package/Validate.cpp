// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The checks of a package, whether it was read from a file or handed over in memory. Whatever passes can be run without
// another look at it: no place is out of range, no size overflows and no launch is beyond what the hardware takes.
#include "runtime/package/Package.h"

#include <algorithm>
#include <bit>
#include <map>
#include <set>

namespace rl {
namespace {

constexpr int64_t kMaxBytes = int64_t(1) << 62;
constexpr size_t kMaxNameBytes = 64 << 10;
// The bytes of kernel parameters of sm_70 and newer (CUDA programming guide, "Parameters").
constexpr size_t kMaxParameterBytes = 32764;
constexpr size_t kTensorMapBytes = 128, kTensorMapAlign = 64;
// The most dynamic shared memory of a block on any GPU so far: 227 KiB, compute capability 9.0 and 10.0 (CUDA
// programming guide, "Technical specifications per compute capability").
constexpr uint32_t kMaxSharedBytes = 227 * 1024;

std::string at(std::string_view list, size_t index, std::string_view field = {}) {
  std::string out = "/" + std::string(list) + "/" + std::to_string(index);
  if (!field.empty())
    out += "/" + std::string(field);
  return out;
}

/// A symbol that every assembler and linker takes.
bool isSymbol(std::string_view name) {
  if (name.empty() || name.size() > kMaxNameBytes || (name[0] >= '0' && name[0] <= '9'))
    return false;
  for (char c : name)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '$' ||
          c == '.'))
      return false;
  return true;
}

Status checkTensors(const std::vector<PackageTensor> &tensors, std::string_view list, std::set<std::string> &names) {
  for (size_t i = 0; i < tensors.size(); ++i) {
    const PackageTensor &t = tensors[i];
    if (t.name.empty() || t.name.size() > kMaxNameBytes || t.name.find('\0') != std::string::npos)
      return invalid(at(list, i, "name"), "a tensor's name must have 1 to 65536 bytes and no zero byte");
    if (!names.insert(t.name).second)
      return invalid(at(list, i, "name"), "the name '" + t.name + "' is used twice");
    if (t.type.shape.size() > 8)
      return invalid(at(list, i, "shape"), "rank " + std::to_string(t.type.shape.size()) + " is above 8");
    if (static_cast<int>(t.type.dtype) >= kDTypeCount)
      return invalid(at(list, i, "dtype"), "not an element type");
    // Extents beside a zero count as well, so that the product is safe in any order.
    int64_t bytes = static_cast<int64_t>(dtypeSize(t.type.dtype));
    for (int64_t extent : t.type.shape) {
      if (extent < 0)
        return invalid(at(list, i, "shape"), "extent " + std::to_string(extent) + " is negative");
      if (extent > 0 && bytes > kMaxBytes / extent)
        return invalid(at(list, i, "shape"), "the tensor is larger than 2^62 bytes");
      bytes *= extent > 0 ? extent : 1;
    }
  }
  return {};
}

Status checkBuffers(const Package &p) {
  for (size_t i = 0; i < p.buffers.size(); ++i) {
    const PackageBuffer &b = p.buffers[i];
    if (b.kind == PackageBuffer::Arena || b.kind == PackageBuffer::Derived) {
      const bool arena = b.kind == PackageBuffer::Arena;
      const int64_t size = arena ? p.arenaBytes : p.derivedBytes;
      if (b.offset < 0 || b.offset % 256 != 0)
        return invalid(at("buffers", i, "offset"), "the offset must be a multiple of 256, at least 0");
      if (b.bytes < 0 || b.bytes > size || b.offset > size - b.bytes)
        return invalid(at("buffers", i), std::string("the buffer does not lie within the ") +
                                             (arena ? "arena's " : "derived tensors' ") + std::to_string(size) +
                                             " bytes");
      continue;
    }
    if (b.kind > PackageBuffer::Derived)
      return invalid(at("buffers", i, "kind"), "unknown kind of buffer");
    const auto &tensors = b.kind == PackageBuffer::Input       ? p.inputs
                          : b.kind == PackageBuffer::Parameter ? p.parameters
                                                               : p.outputs;
    if (b.index >= tensors.size())
      return invalid(at("buffers", i, "index"), "there are only " + std::to_string(tensors.size()) + " such tensors");
    if (b.offset != 0)
      return invalid(at("buffers", i, "offset"), "only a buffer of the arena or of derived tensors has an offset");
    if (b.bytes != tensors[b.index].type.bytes())
      return invalid(at("buffers", i, "bytes"), std::to_string(b.bytes) + " bytes, but tensor '" +
                                                    tensors[b.index].name + "' has " +
                                                    std::to_string(tensors[b.index].type.bytes()));
  }
  return {};
}

std::string text(const Extent3 &e) {
  return "[" + std::to_string(e.x) + ", " + std::to_string(e.y) + ", " + std::to_string(e.z) + "]";
}

// Limits from the CUDA programming guide, "Technical specifications per compute capability": the same on all of them.
Status checkShape(const Extent3 &grid, const Extent3 &block, const std::string &where, const std::string &kernel) {
  if (grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535)
    return invalid(where, "kernel '" + kernel + "': grid " + text(grid) + " is beyond [2147483647, 65535, 65535]");
  if (block.x < 1 || block.y < 1 || block.z < 1 || block.x > 1024 || block.y > 1024 || block.z > 64 ||
      uint64_t(block.x) * block.y * block.z > 1024)
    return invalid(where, "kernel '" + kernel + "': block " + text(block) +
                              " is not within [1024, 1024, 64] with 1 to 1024 threads");
  return {};
}

Status checkCluster(const Extent3 &cluster, const Extent3 &grid, const std::string &where, const std::string &kernel) {
  // 16 blocks is the largest cluster of any GPU so far (non-portable size on compute capability 9.0).
  if (cluster.x < 1 || cluster.y < 1 || cluster.z < 1 || cluster.x > 16 || cluster.y > 16 || cluster.z > 16 ||
      uint64_t(cluster.x) * cluster.y * cluster.z > 16)
    return invalid(where, "kernel '" + kernel + "': cluster " + text(cluster) + " does not have 1 to 16 blocks");
  if (grid.x % cluster.x || grid.y % cluster.y || grid.z % cluster.z)
    return invalid(where,
                   "kernel '" + kernel + "': grid " + text(grid) + " is not a multiple of cluster " + text(cluster));
  return {};
}

Status checkShared(uint32_t bytes, const std::string &where, const std::string &kernel) {
  if (bytes > kMaxSharedBytes)
    return invalid(where, "kernel '" + kernel + "': " + std::to_string(bytes) +
                              " bytes of shared memory are more than " + std::to_string(kMaxSharedBytes));
  return {};
}

// Limits from the CUDA driver API reference, cuTensorMapEncodeTiled; and that no element lies outside of the buffer.
Status checkTensorMap(const Package &p, const PackageLaunch &l, const PackageTensorMap &m, const std::string &where) {
  if (m.arg >= l.args.size())
    return invalid(where + "/arg", "argument " + std::to_string(m.arg) + " of " + std::to_string(l.args.size()));
  if (static_cast<int>(m.dtype) >= kDTypeCount)
    return invalid(where + "/dtype", "not an element type");
  size_t rank = m.extents.size();
  if (rank < 1 || rank > 5)
    return invalid(where + "/extents", "a tensor map has 1 to 5 dimensions");
  if (m.strides.size() != rank - 1)
    return invalid(where + "/strides", "there must be one stride fewer than extents");
  if (m.box.size() != rank)
    return invalid(where + "/box", "there must be as many as extents");
  if (m.swizzle != 0 && m.swizzle != 32 && m.swizzle != 64 && m.swizzle != 128)
    return invalid(where + "/swizzle", "must be 0, 32, 64 or 128");
  if (m.l2Promotion != 0 && m.l2Promotion != 64 && m.l2Promotion != 128 && m.l2Promotion != 256)
    return invalid(where + "/l2_promotion", "must be 0, 64, 128 or 256");
  auto size = static_cast<int64_t>(dtypeSize(m.dtype));
  for (size_t d = 0; d < rank; ++d) {
    if (m.extents[d] < 1 || m.extents[d] > int64_t(1) << 32)
      return invalid(where + "/extents", "an extent must be within 1 and 2^32");
    if (m.box[d] < 1 || m.box[d] > 256)
      return invalid(where + "/box", "a box has 1 to 256 elements along each dimension");
  }
  int64_t inner = m.box[0] * size;
  if (inner % 16 != 0 || (m.swizzle != 0 && inner > m.swizzle))
    return invalid(where + "/box", "the box's rows must be a multiple of 16 bytes, within the span of the swizzle");
  if (m.offset < 0 || m.offset % 16 != 0)
    return invalid(where + "/offset", "must be a multiple of 16, at least 0");
  // Each term is below 2^72 at most; the sum is cut off as soon as it passes the buffer.
  int64_t bytes = p.buffers[l.args[m.arg]].bytes;
  auto last = static_cast<__int128>(m.offset) + static_cast<__int128>(m.extents[0]) * size;
  for (size_t d = 1; d < rank; ++d) {
    int64_t stride = m.strides[d - 1];
    if (stride < 16 || stride % 16 != 0 || stride >= int64_t(1) << 40)
      return invalid(where + "/strides", "a stride must be a multiple of 16 below 2^40");
    last += static_cast<__int128>(m.extents[d] - 1) * stride;
  }
  if (last > bytes)
    return invalid(where, "the tensor map reaches beyond the buffer's " + std::to_string(bytes) + " bytes");
  return {};
}

Status checkLaunch(const Package &p, bool bind, size_t i) {
  const PackageLaunch &l = (bind ? p.bindLaunches : p.launches)[i];
  const char *const list = bind ? "bind_launches" : "launches";
  for (size_t a = 0; a < l.args.size(); ++a)
    if (l.args[a] >= p.buffers.size())
      return invalid(at(list, i, l.kind == PackageLaunch::Copy ? (a ? "from" : "to") : "args"),
                     "buffer " + std::to_string(l.args[a]) + " of " + std::to_string(p.buffers.size()));
  if (l.kind == PackageLaunch::Copy) {
    if (l.args.size() != 2)
      return invalid(at(list, i), "a copy has two buffers");
    const PackageBuffer &to = p.buffers[l.args[0]], &from = p.buffers[l.args[1]];
    if (to.bytes != from.bytes)
      return invalid(at(list, i),
                     "a copy of " + std::to_string(from.bytes) + " bytes into " + std::to_string(to.bytes));
    if (to.kind == PackageBuffer::Input || (bind && to.kind == PackageBuffer::Parameter))
      return invalid(at(list, i, "to"), bind ? "inputs and parameters are not written" : "inputs are not written");
    return {};
  }
  if (l.kind != PackageLaunch::Kernel)
    return invalid(at(list, i, "kind"), "unknown kind of launch");
  if (!isSymbol(l.kernel))
    return invalid(at(list, i, "kernel"), "not a kernel's name");
  size_t mapBytes = l.tensorMaps.empty() ? 0 : l.tensorMaps.size() * kTensorMapBytes + kTensorMapAlign;
  if (l.args.size() > kMaxParameterBytes / 8 || mapBytes + l.args.size() * 8 > kMaxParameterBytes)
    return invalid(at(list, i, "args"), std::to_string(l.args.size()) + " arguments and " +
                                            std::to_string(l.tensorMaps.size()) + " tensor maps are more than " +
                                            std::to_string(kMaxParameterBytes) + " bytes");
  if (l.blocks < 0)
    return invalid(at(list, i, "blocks"), "the number of blocks is negative");
  if (!std::has_single_bit(l.align) || l.align > 256)
    return invalid(at(list, i, "align"), "the alignment must be a power of two up to 256");
  if (!l.unalignedKernel.empty() && !isSymbol(l.unalignedKernel))
    return invalid(at(list, i, "unaligned/kernel"), "not a kernel's name");
  if (p.target != "cuda") {
    if (!l.tensorMaps.empty() || l.persistent || l.early)
      return invalid(at(list, i), "tensor maps, persistent grids and early launches are CUDA's");
    return {};
  }
  RL_TRY(checkShape(l.grid, l.block, at(list, i), l.kernel));
  RL_TRY(checkCluster(l.cluster, l.grid, at(list, i, "cluster"), l.kernel));
  RL_TRY(checkShared(l.sharedBytes, at(list, i, "shared_bytes"), l.kernel));
  if (l.persistent && (l.grid.y != 1 || l.grid.z != 1))
    return invalid(at(list, i, "persistent"), "a persistent grid has one dimension");
  for (size_t m = 0; m < l.tensorMaps.size(); ++m)
    RL_TRY(checkTensorMap(p, l, l.tensorMaps[m], at(list, i, "tensor_maps/" + std::to_string(m))));
  if (!l.tensorMaps.empty() && l.align < 16)
    return invalid(at(list, i, "align"), "a kernel with tensor maps needs pointers aligned to 16 bytes");
  if (!l.unalignedKernel.empty()) {
    RL_TRY(checkShape(l.unalignedGrid, l.unalignedBlock, at(list, i, "unaligned"), l.unalignedKernel));
    RL_TRY(checkCluster(l.unalignedCluster, l.unalignedGrid, at(list, i, "unaligned"), l.unalignedKernel));
    RL_TRY(checkShared(l.unalignedSharedBytes, at(list, i, "unaligned/shared_bytes"), l.unalignedKernel));
  }
  return {};
}

} // namespace

Status validatePackage(const Package &p) {
  if (p.target != "cuda" && p.target != "cpu")
    return invalid("/target", "'" + p.target + "' is not a target of packages (cuda, cpu)");
  std::set<std::string> names;
  RL_TRY(checkTensors(p.inputs, "inputs", names));
  RL_TRY(checkTensors(p.parameters, "parameters", names));
  // An output may be an input or a parameter, or be returned twice.
  for (size_t i = 0; i < p.outputs.size(); ++i) {
    std::set<std::string> own;
    if (Status s = checkTensors({p.outputs[i]}, "outputs", own); !s) {
      Error e = s.takeError();
      e.pointer.replace(0, std::string("/outputs/0").size(), at("outputs", i));
      return e;
    }
  }
  if (p.arenaBytes < 0 || p.arenaBytes > kMaxBytes)
    return invalid("/arena_bytes", "the arena's size is not within 0 and 2^62 bytes");
  if (p.derivedBytes < 0 || p.derivedBytes > kMaxBytes)
    return invalid("/derived_bytes", "the derived tensors' size is not within 0 and 2^62 bytes");
  RL_TRY(checkBuffers(p));
  for (size_t i = 0; i < p.launches.size(); ++i)
    RL_TRY(checkLaunch(p, false, i));
  for (size_t i = 0; i < p.bindLaunches.size(); ++i) {
    RL_TRY(checkLaunch(p, true, i));
    for (uint32_t buffer : p.bindLaunches[i].args) {
      if (p.buffers[buffer].kind == PackageBuffer::Input || p.buffers[buffer].kind == PackageBuffer::Output)
        return invalid(at("bind_launches", i, "args"), "inputs and outputs are not there when parameters are bound");
      for (const PackageLaunch &l : p.launches)
        if (l.kind == PackageLaunch::Copy && l.args[0] == buffer)
          return invalid(at("bind_launches", i, "args"),
                         "buffer " + std::to_string(buffer) + " is written by each run");
    }
  }
  return {};
}

std::vector<BindStep> bindSteps(const Package &p) {
  // The launches that use each buffer are joined (a forest of sets, by the first launch).
  std::vector<size_t> first(p.bindLaunches.size());
  auto root = [&](size_t l) {
    while (first[l] != l)
      l = first[l];
    return l;
  };
  std::map<uint32_t, size_t> userOf;
  for (size_t l = 0; l < p.bindLaunches.size(); ++l) {
    first[l] = l;
    for (uint32_t buffer : p.bindLaunches[l].args) {
      auto [user, fresh] = userOf.emplace(buffer, l);
      size_t a = root(user->second), b = root(l);
      first[std::max(a, b)] = std::min(a, b);
    }
  }
  std::vector<BindStep> out;
  std::map<size_t, size_t> place;
  for (size_t l = 0; l < p.bindLaunches.size(); ++l) {
    auto [at, fresh] = place.emplace(root(l), out.size());
    if (fresh)
      out.emplace_back();
    BindStep &step = out[at->second];
    step.launches.push_back(l);
    for (uint32_t buffer : p.bindLaunches[l].args)
      if (p.buffers[buffer].kind == PackageBuffer::Parameter)
        step.parameters.push_back(p.buffers[buffer].index);
  }
  for (BindStep &step : out) {
    std::sort(step.parameters.begin(), step.parameters.end());
    step.parameters.erase(std::unique(step.parameters.begin(), step.parameters.end()), step.parameters.end());
  }
  return out;
}

} // namespace rl
