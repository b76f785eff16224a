// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The Hopper GEMM generator's code as ptxas sees it: every tile that the cost model can choose is assembled for sm_90a, and
// must neither spill nor have its products made to wait for one another. Without ptxas the test is skipped.
#include "tests/gpu/GemmHarness.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <unistd.h>

using namespace rl;
using namespace rl::gemmtest;

namespace {

std::string ptxas() {
  for (const char *path : {"/usr/local/cuda/bin/ptxas", "/usr/bin/ptxas"})
    if (::access(path, X_OK) == 0)
      return path;
  return {};
}

struct Assembled {
  int status = -1, registers = 0;
  std::string log;
};

/// As the runtime has it done: as code to be linked, where that takes all of it.
Assembled assemble(const std::string &ptx) {
  std::string folder = ::testing::TempDir() + "ridgeline-gemm-XXXXXX";
  if (!::mkdtemp(folder.data()))
    return {};
  std::ofstream(folder + "/k.ptx") << ptx;
  std::string command = ptxas() + (ptx.find("setmaxnreg") == std::string::npos ? " -c" : "") + " -arch=sm_90a -v -o " +
                        folder + "/k.cubin " + folder + "/k.ptx 2>&1";
  Assembled out;
  if (FILE *pipe = ::popen(command.c_str(), "r")) {
    std::array<char, 4096> text;
    while (size_t n = std::fread(text.data(), 1, text.size(), pipe))
      out.log.append(text.data(), n);
    out.status = ::pclose(pipe);
  }
  std::filesystem::remove_all(folder);
  if (size_t at = out.log.find("Used "); at != std::string::npos)
    out.registers = std::atoi(out.log.c_str() + at + 5);
  return out;
}

void expectGood(const GemmCase &c) {
  auto package = compileGemm(c, false);
  ASSERT_TRUE(package) << c.str() << ": " << package.error().str();
  if (const char *folder = std::getenv("RIDGELINE_KEEP_PTX")) {
    static int count = 0;
    std::ofstream(std::string(folder) + "/gemm" + std::to_string(count++) + ".ptx") << "// " << c.str() << "\n"
                                                                                    << package->ptx;
  }
  auto count = [&](const char *what) {
    size_t n = 0;
    for (size_t at = package->ptx.find(what); at != std::string::npos; at = package->ptx.find(what, at + 1))
      ++n;
    return static_cast<int>(n);
  };
  // What a warp executes together is there once: a copy in a branch that one lane takes would wait for the others for ever.
  // (The last stage's products, of a left operand that is computed, are behind the loop. With weights that are widened the loop has two
  // stages, one that is left over is behind it as well, and each of four steps is a group.)
  const auto ahead = static_cast<int>((c.k + 63) / 64 - 1);
  const int groups = c.weights                                   ? 4 * ((ahead > 1 ? 2 : 0) + ahead % 2 + 1)
                     : c.left == GemmCase::InMemory || c.k <= 64 ? 1
                                                                 : 2;
  EXPECT_EQ(count("wgmma.commit_group"), groups) << c.str();
  EXPECT_EQ(count("stmatrix"), dtypeSize(c.output()) == 2 ? c.tile.unroll : 0) << c.str();
  // The warps of a warpgroup store together what is turned round.
  const int together = count("cp.async.bulk.commit_group") == 1 ? 2 : 3;
  EXPECT_EQ(count("bar.warp.sync"), c.weights ? 0 : together) << c.str();
  Assembled a = assemble(package->ptx);
  EXPECT_EQ(a.status, 0) << c.str() << "\n" << a.log;
  EXPECT_NE(a.log.find(" 0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"), std::string::npos)
      << c.str() << "\n"
      << a.log;
  // C7508: setmaxnreg ignored. C7510 and on: wgmma serialised.
  EXPECT_EQ(a.log.find("C75"), std::string::npos) << c.str() << "\n" << a.log;
  EXPECT_EQ(a.log.find("warning"), std::string::npos) << c.str() << "\n" << a.log;
  std::printf("%s: %d registers, %zu bytes of PTX\n", c.str().c_str(), a.registers, package->ptx.size());
}

} // namespace

TEST(WgmmaGemm, Assembles) {
  if (ptxas().empty())
    GTEST_SKIP() << "no ptxas on this machine";
  for (const GemmCase &c : gemmCases())
    expectGood(c);
}

TEST(WgmmaGemm, WhatTheModelChoosesAssembles) {
  if (ptxas().empty())
    GTEST_SKIP() << "no ptxas on this machine";
  auto machine = *cost::findTarget("h200");
  std::vector<GemmCase> done;
  // Rows of the right operand that share a scale; -1: sums of 16 bits, which are not promoted; -2: of weights of 8 bits, which are widened.
  for (int64_t scaleRows : {-2, -1, 0, 128})
    for (auto [m, n, k] : {std::array<int64_t, 3>{4096, 4096, 4096},
                           {512, 11008, 4096},
                           {1796, 1792, 4096},
                           {1024, 1024, 1024},
                           {64, 4096, 4096},
                           {4096, 11008, 512},
                           {8192, 4096, 7168},
                           {300, 136, 8}})
      for (auto e :
           {GemmCase::Plain, GemmCase::BiasGelu, GemmCase::BiasResidual, GemmCase::SwiGlu, GemmCase::TwoOutputs}) {
        if (scaleRows > 0 && (e == GemmCase::BiasResidual || e == GemmCase::SwiGlu))
          continue;
        GemmCase c;
        c.m = m;
        c.n = n;
        c.k = scaleRows == -1 ? k : (k + 15) / 16 * 16;
        c.epilogue = e;
        if (scaleRows == -2)
          c.weights = DType::I8;
        if (scaleRows >= 0) {
          c.type = DType::F8E4M3;
          c.promotes = true;
          c.scaleRows = scaleRows;
        }
        for (const cost::GemmCandidate &k : cost::chooseGemmTiles(c.shape(), machine, 3)) {
          c.tile = k.tile;
          // Once for each form of the code.
          bool again = std::any_of(done.begin(), done.end(), [&](const GemmCase &d) {
            return d.epilogue == c.epilogue && d.promotes == c.promotes && d.weights == c.weights &&
                   d.scaleRows == c.scaleRows && d.tile.tileN == c.tile.tileN && d.tile.consumers == c.tile.consumers &&
                   d.tile.blocks == c.tile.blocks && d.tile.alternate == c.tile.alternate &&
                   d.tile.unroll == c.tile.unroll;
          });
          if (again)
            continue;
          done.push_back(c);
          expectGood(c);
        }
      }
  EXPECT_GT(done.size(), 20u);
}
