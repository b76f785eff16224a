// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Kernels for pointers that are not aligned: where they stand in PTX, and that their code is loaded when they are wanted and not before,
// against the fake driver.
#include "runtime/package/PtxKernels.h"
#include "tests/gpu/fake/CudaRuntimeFixture.h"

using namespace rl;
using namespace rl::fake;

TEST(PtxKernels, FromEntryToTheClosingBrace) {
  const std::string text = ".version 8.7\n.target sm_90a\n.global .align 4 .b8 table[8] = {1, 2, 3, 4, 5, 6, 7, 8};\n"
                           ".func helper()\n{\n\tret;\n}\n"
                           "\t// .globl\tone // -- Begin function one\n"
                           ".visible .entry one(\n\t.param .u64 one_param_0\n)\n.maxntid 128\n{\n"
                           "\t// begin inline asm { not counted }\n{\n\tmov.b32 %r1, 0;\n}\n\tret; // }\n}\n"
                           "\t// -- End function\n"
                           ".visible .entry one_unaligned(.param .u64 a) {}\n"
                           ".entry two$3.x(.param .u64 a)\n{\n\tret;\n}";
  std::vector<PtxKernel> found = ptxKernels(text);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].name, "one");
  EXPECT_EQ(found[1].name, "one_unaligned");
  EXPECT_EQ(found[2].name, "two$3.x");
  EXPECT_EQ(text.substr(found[0].begin, 20), ".visible .entry one(");
  EXPECT_TRUE(text.substr(found[0].begin, found[0].end - found[0].begin).ends_with("\tret; // }\n}\n"));
  EXPECT_EQ(found[2].end, text.size());
  EXPECT_TRUE(ptxKernels("").empty());
  EXPECT_TRUE(ptxKernels(".version 8.0\n// .entry none()\n").empty());
}

TEST(PtxKernels, PartsHaveEachKernelOnceAndWhatIsAroundThem) {
  Package p = chain(1);
  const std::string usual = ptxPart(p, CodePart::Usual), other = ptxPart(p, CodePart::Other);
  auto names = [](const std::string &ptx) {
    std::vector<std::string> out;
    for (const PtxKernel &k : ptxKernels(ptx))
      out.emplace_back(k.name);
    return out;
  };
  EXPECT_EQ(names(usual), (std::vector<std::string>{"add", "add_cluster", "add_maps"}));
  EXPECT_EQ(names(other), std::vector<std::string>{"add_u"});
  for (const std::string &part : {usual, other})
    EXPECT_TRUE(part.starts_with(".version 8.0\n.target sm_80\n")) << part;
  // A kernel that is some launch's own is no other one.
  p.launches[0].unalignedKernel = "add_cluster";
  p.launches.push_back(add({0, 1, 2}));
  p.launches.back().kernel = "add_cluster";
  p.launches.back().unalignedKernel.clear();
  EXPECT_EQ(ptxPart(p, CodePart::Usual), p.ptx);
  EXPECT_EQ(ptxPart(p, CodePart::Other), "");
}

TEST_F(CudaRuntime, CodeIsLoadedWhenItIsWanted) {
  for (int launches : {1, 4}) {
    control().reset();
    auto m = mustMake(chain(launches));
    ASSERT_TRUE(m && m->bind("w", w, kBytes));
    ASSERT_TRUE(run(*m, 0) && run(*m, 4));
    EXPECT_EQ(count("cuModuleLoadDataEx"), 1);
    Status s = run(*m, 1);
    ASSERT_TRUE(s) << s.error().str();
    expectResult(launches, 1);
    EXPECT_EQ(control().launches[control().launches.size() - static_cast<size_t>(launches)].kernel, "add_u");
    EXPECT_EQ(count("cuModuleLoadDataEx"), 2);
    ASSERT_TRUE(run(*m, 4) && run(*m, 3) && run(*m, 2));
    expectResult(launches, 2);
    EXPECT_EQ(count("cuModuleLoadDataEx"), 2);
  }
  EXPECT_EQ(control().liveModules, 0);
}

TEST_F(CudaRuntime, LaunchesOfOneKernelMayDiffer) {
  Package p = chain(2);
  p.launches[0].sharedBytes = 60000;
  p.launches[1].sharedBytes = 50000;
  p.launches[1].name = "add_of_layer_2";
  auto m = mustMake(p);
  ASSERT_TRUE(m && m->bind("w", w, kBytes));
  Status s = run(*m);
  ASSERT_TRUE(s) << why(s);
  expectResult(2);
  control().failures["cuLaunchKernel"] = {1, 1};
  s = run(*m);
  ASSERT_FALSE(s);
  EXPECT_NE(why(s).find("'add_of_layer_2'"), std::string::npos) << why(s);
}

TEST_F(CudaRuntime, AmidACapture) {
  auto m = mustMake(chain(2));
  ASSERT_TRUE(m && m->bind("w", w, kBytes) && run(*m, 0));
  control().capturing = 1;
  Status s = run(*m, 1);
  control().capturing = 0;
  EXPECT_TRUE(s) << s.error().str();
  expectResult(2, 1);
}

TEST_F(CudaRuntime, AFailureIsSaidAndNotRemembered) {
  auto m = mustMake(chain(1));
  ASSERT_TRUE(m && m->bind("w", w, kBytes) && run(*m, 0));
  control().failures["cuModuleLoadDataEx"] = {0, 1};
  Status s = run(*m, 1);
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().code, Code::Device);
  ASSERT_TRUE(run(*m, 0)) << "others go on";
  control().failures.clear();
  ASSERT_TRUE(run(*m, 1));
  expectResult(1, 1);
}

TEST_F(CudaRuntime, MachineCodeWithAndWithoutThem) {
  const std::string magic = "\x7f"
                            "ELF";
  Package p = chain(1);
  for (bool all : {true, false}) {
    control().reset();
    p.cubin = magic + (all ? p.ptx : ptxPart(p, CodePart::Usual));
    auto m = mustMake(p);
    ASSERT_TRUE(m && m->bind("w", w, kBytes) && run(*m, 0) && run(*m, 1));
    expectResult(1, 1);
    EXPECT_EQ(count("cuModuleLoadDataEx"), all ? 1 : 2);
  }
  // Without the text there is nothing to load them from.
  p.ptx.clear();
  auto m = mustMake(p);
  ASSERT_TRUE(m && m->bind("w", w, kBytes) && run(*m, 0));
  Status s = run(*m, 1);
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().code, Code::Invalid);
  EXPECT_NE(s.error().message.find("'add_u'"), std::string::npos) << s.error().message;
}
