// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The features of each x86-64 level, asked of the processor (and of the operating system, which must save the
// registers). Not __builtin_cpu_supports: its names for the levels depend on the version of the compiler and of its
// runtime library.
#include "runtime/cpu/CpuFeatures.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace rl {

#if defined(__x86_64__)
namespace {

struct Registers {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Registers cpuid(unsigned leaf) {
  Registers r;
  __get_cpuid_count(leaf, 0, &r.a, &r.b, &r.c, &r.d);
  return r;
}

/// The register states that the operating system saves; 0 where it has no XSAVE.
unsigned savedStates(const Registers &one) {
  if (!(one.c & 1u << 27)) // OSXSAVE
    return 0;
  unsigned low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

} // namespace

Status checkCpuArch(const std::string &arch) {
  int level = 0;
  if (arch == "x86-64")
    level = 1;
  else if (arch.size() == 9 && arch.starts_with("x86-64-v") && arch[8] >= '2' && arch[8] <= '4')
    level = arch[8] - '0';
  else
    return unsupported({}, "this x86-64 machine does not run code for '" + arch + "'");
  const Registers one = cpuid(1), seven = cpuid(7), extended = cpuid(0x80000001);
  const unsigned states = savedStates(one);
  const struct {
    int level;
    const char *name;
    bool present;
  } features[] = {
      {2, "SSE3", (one.c & 1u << 0) != 0},        {2, "SSSE3", (one.c & 1u << 9) != 0},
      {2, "CMPXCHG16B", (one.c & 1u << 13) != 0}, {2, "SSE4.1", (one.c & 1u << 19) != 0},
      {2, "SSE4.2", (one.c & 1u << 20) != 0},     {2, "POPCNT", (one.c & 1u << 23) != 0},
      {2, "LAHF", (extended.c & 1u << 0) != 0},   {3, "FMA", (one.c & 1u << 12) != 0},
      {3, "MOVBE", (one.c & 1u << 22) != 0},      {3, "AVX", (one.c & 1u << 28) != 0 && (states & 6) == 6},
      {3, "F16C", (one.c & 1u << 29) != 0},       {3, "BMI1", (seven.b & 1u << 3) != 0},
      {3, "AVX2", (seven.b & 1u << 5) != 0},      {3, "BMI2", (seven.b & 1u << 8) != 0},
      {3, "LZCNT", (extended.c & 1u << 5) != 0},  {4, "AVX512F", (seven.b & 1u << 16) != 0 && (states & 0xe6) == 0xe6},
      {4, "AVX512DQ", (seven.b & 1u << 17) != 0}, {4, "AVX512CD", (seven.b & 1u << 28) != 0},
      {4, "AVX512BW", (seven.b & 1u << 30) != 0}, {4, "AVX512VL", (seven.b & 1u << 31) != 0},
  };
  for (const auto &feature : features)
    if (feature.level <= level && !feature.present)
      return unsupported({}, "the code is for '" + arch + "', but this processor has no " + feature.name);
  return {};
}

#else

Status checkCpuArch(const std::string &arch) {
#if defined(__aarch64__)
  if (arch == "aarch64")
    return {};
#endif
  return unsupported({}, "this machine does not run code for '" + arch + "'");
}

#endif

} // namespace rl
