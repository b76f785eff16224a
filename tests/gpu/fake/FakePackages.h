// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The fake driver opened, and packages of kernels that it can run.
#pragma once

#include "runtime/package/Package.h"
#include "tests/gpu/fake/FakeCuda.h"

#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>
#include <string>
#include <vector>

namespace rl::fake {

/// lib/NAME.so beside this program's bin/.
inline std::string libraryPath(const std::string &name) {
  return (std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib" / (name + ".so"))
      .string();
}

inline Exports fakeDriver(const std::string &name = "librl_fake_cuda") {
  ::setenv("RIDGELINE_LIBCUDA", libraryPath(name).c_str(), 1);
  void *library = ::dlopen(libraryPath(name).c_str(), RTLD_NOW);
  auto get = library ? reinterpret_cast<GetExports>(::dlsym(library, kExportsSymbol)) : nullptr;
  if (!get) {
    std::fprintf(stderr, "the fake driver is missing: %s\n", ::dlerror());
    std::abort();
  }
  return get();
}

inline constexpr int64_t kN = 256;
inline constexpr int64_t kBytes = kN * 4;

inline const char *const kPtx = ".version 8.0\n.target sm_80\n"
                                ".visible .entry add(.param .u64 a, .param .u64 b, .param .u64 c) {}\n"
                                ".visible .entry add_u(.param .u64 a, .param .u64 b, .param .u64 c) {}\n"
                                ".visible .entry add_cluster(.param .u64 a, .param .u64 b, .param .u64 c) {}\n"
                                ".visible .entry add_maps(.param .u64 a, .param .u64 b, .param .u64 c, "
                                ".param .align 64 .b8 x[128], .param .align 64 .b8 z[128]) {}\n";

inline PackageLaunch add(std::vector<uint32_t> args) {
  PackageLaunch l;
  l.kernel = "add";
  l.args = std::move(args);
  l.grid = {2, 1, 1};
  l.block = {128, 1, 1};
  l.align = 16;
  l.unalignedKernel = "add_u";
  l.unalignedGrid = {4, 1, 1};
  l.unalignedBlock = {64, 1, 1};
  l.label = "add:n" + std::to_string(l.args.back());
  return l;
}

/// y = x + w * launches, through alternating halves of the arena.
inline Package chain(int launches) {
  Package p;
  p.name = "chain";
  p.version = "test";
  p.target = "cuda";
  p.arch = "sm_80";
  TensorType t{DType::F32, {kN}};
  p.inputs = {{"x", t}};
  p.parameters = {{"w", t}};
  p.outputs = {{"y", t}};
  p.buffers = {{PackageBuffer::Input, 0, 0, kBytes},
               {PackageBuffer::Parameter, 0, 0, kBytes},
               {PackageBuffer::Output, 0, 0, kBytes}};
  if (launches > 1) {
    p.buffers.push_back({PackageBuffer::Arena, 0, 0, kBytes});
    p.buffers.push_back({PackageBuffer::Arena, 0, 1024, kBytes});
    p.arenaBytes = 2048;
  }
  for (int i = 0; i < launches; ++i) {
    uint32_t from = i == 0 ? 0 : 3 + static_cast<uint32_t>(i + 1) % 2,
             to = i + 1 == launches ? 2 : 3 + static_cast<uint32_t>(i) % 2;
    p.launches.push_back(add({from, 1, to}));
  }
  p.ptx = kPtx;
  return p;
}

/// As chain, with kernels that take tensor maps of what they add and write.
inline Package chainWithMaps(int launches) {
  Package p = chain(launches);
  for (PackageLaunch &l : p.launches) {
    l.kernel = "add_maps";
    l.tensorMaps = {{.arg = 0,
                     .offset = 16,
                     .dtype = DType::F32,
                     .extents = {28, 8},
                     .strides = {128},
                     .box = {32, 4},
                     .swizzle = 128,
                     .l2Promotion = 256},
                    {.arg = 2, .dtype = DType::BF16, .extents = {512}, .strides = {}, .box = {64}}};
  }
  return p;
}

} // namespace rl::fake
