// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// math_ptx ARCH SM FILE: writes the PTX of every array kernel of the math expansion (four elements a thread), for
// gpu_math_test, which needs no compiler then.
#include "tests/unit/MathHarness.h"

#include <cstdio>
#include <cstdlib>
#include <fstream>

int main(int argc, char **argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: math_ptx ARCH SM FILE\n");
    return 1;
  }
  auto ptx = rl::mathtest::emitPtx(rl::mathtest::allKernels(4), argv[1], std::atoi(argv[2]));
  if (!ptx) {
    std::fprintf(stderr, "error: %s\n", ptx.error().message.c_str());
    return 3;
  }
  std::ofstream out(argv[3], std::ios::binary);
  out << *ptx;
  out.close();
  if (!out) {
    std::fprintf(stderr, "error: %s: cannot be written\n", argv[3]);
    return 4;
  }
  return 0;
}
