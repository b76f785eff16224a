// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The cost model against cases worked by hand and against kernels that were measured on an H200.
#include "passes/cost/OpCost.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

using namespace rl;
using namespace rl::cost;

namespace {

TargetDesc target(const char *name) {
  Result<TargetDesc> t = findTarget(name);
  EXPECT_TRUE(t.ok()) << name;
  return t ? *t : TargetDesc{};
}

//===--------------------------------------------------------------------------------------------------------------===//
// Targets
//===--------------------------------------------------------------------------------------------------------------===//

std::string fileText(const std::filesystem::path &path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

TEST(Target, EveryFileIsValidAndBuiltIn) {
  std::filesystem::path folder = std::filesystem::path(RIDGELINE_SOURCE_DIR) / "passes/cost/targets";
  size_t files = 0;
  for (const auto &entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".json")
      continue;
    ++files;
    Result<TargetDesc> t = parseTarget(fileText(entry.path()));
    ASSERT_TRUE(t.ok()) << entry.path() << ": " << t.error().str();
    EXPECT_EQ(t->name, entry.path().stem().string());
    Result<TargetDesc> builtIn = findTarget(t->name);
    ASSERT_TRUE(builtIn.ok()) << t->name;
    EXPECT_EQ(builtIn->sources, t->sources) << "the build's copy is stale";
    EXPECT_GT(t->sources.size(), 45u);
    for (const auto &[field, source] : t->sources)
      EXPECT_GT(source.size(), 6u) << field;
  }
  EXPECT_EQ(files, allTargets().size());
  EXPECT_GE(files, 5u);
}

TEST(EarlyLaunch, ShortKernelsOfNewMachinesAndHowTheyLie) {
  const TargetDesc h200 = *findTarget("h200"), a100 = *findTarget("a100"), cpu = *findTarget("cpu");
  const double launch = h200.launchFirst;
  EXPECT_TRUE(earlyLaunch(10e-6, 0, launch, h200).is);
  EXPECT_FALSE(earlyLaunch(200e-6, 0, launch, h200).is);
  EXPECT_FALSE(earlyLaunch(200e-6, 0, launch, h200).why.empty());
  for (const TargetDesc &t : {a100, cpu}) {
    EXPECT_FALSE(earlyLaunch(10e-6, 0, launch, t).is);
    EXPECT_TRUE(earlyLaunch(10e-6, 0, launch, t).why.empty());
  }
  // 394 blocks on 132 SMs: three each, where a long kernel is before and the blocks themselves take their time.
  EXPECT_EQ(earlyLaunch(30e-6, 394, 30e-6, h200).blocksPerSm, 3);
  EXPECT_EQ(earlyLaunch(30e-6, 128, 30e-6, h200).blocksPerSm, 1);
  EXPECT_EQ(earlyLaunch(30e-6, 1376, 30e-6, h200).blocksPerSm, 0);
  EXPECT_EQ(earlyLaunch(30e-6, 0, 30e-6, h200).blocksPerSm, 0);
  EXPECT_EQ(earlyLaunch(30e-6, 394, launch + 1e-6, h200).blocksPerSm, 0);
  EXPECT_EQ(earlyLaunch(launch + 1e-6, 394, 30e-6, h200).blocksPerSm, 0);
}

TEST(Cost, BlocksStartOneAfterTheOther) {
  // 134 MB written by blocks of 128 threads of 16 bytes each, and by half as many: 43.8 and 32.8 us on an H200.
  WorkEstimate w;
  w.bytesWritten = 64.0 * 1024 * 1024 * 2;
  w.threadsPerBlock = 128;
  w.blocks = 65536;
  Estimate many = estimate(w, target("h200"));
  EXPECT_NEAR(many.total * 1e6 / 43.8, 1, 0.1);
  EXPECT_EQ(many.bound, Bound::Launch);
  EXPECT_NE(many.str().find("blocks' starts"), std::string::npos) << many.str();
  w.blocks /= 2;
  w.threadsPerBlock *= 2;
  Estimate half = estimate(w, target("h200"));
  EXPECT_NEAR(half.total * 1e6 / 32.8, 1, 0.1);
  EXPECT_EQ(half.bound, Bound::Memory);
}

TEST(Target, NumbersAgreeWithOneAnother) {
  for (const TargetDesc &t : allTargets()) {
    SCOPED_TRACE(t.name);
    EXPECT_NEAR(t.smCount * t.fp32Lanes * 2 * t.clockHz / t.fp32Peak, 1, 0.02);
    EXPECT_LE(t.dramCopy, t.dramPeak);
    EXPECT_LE(t.dramRead, t.dramPeak);
    EXPECT_GT(t.l2Bandwidth, t.dramCopy);
    EXPECT_LE(t.sharedPerBlock, t.sharedPerSm);
    EXPECT_LE(t.launchNextEarly, t.launchNext);
    EXPECT_LT(t.launchNext, t.launchFirst);
    EXPECT_LE(t.l2Latency, t.memoryLatency);
    if (t.gpu) { // the data sheet's dense peaks come in powers of two
      EXPECT_NEAR(t.tensorFlops(DType::BF16) / t.tf32Peak, 2, 0.01);
      EXPECT_EQ(t.tensorFlops(DType::BF16), t.tensorFlops(DType::F16));
    }
  }
  EXPECT_EQ(target("a100").tensorFlops(DType::F8E4M3), target("a100").tensorFlops(DType::BF16)); // widened
  EXPECT_EQ(target("h200").tensorFlops(DType::F32), 0);
}

TEST(Target, Lookup) {
  for (const char *name : {"h200", "h100", "a100", "rtx4090", "sm_80", "sm_89", "sm_90a", "sm_90", "cpu", "H200"})
    EXPECT_TRUE(findTarget(name).ok()) << name;
  EXPECT_EQ(target("sm_80").name, "a100");
  EXPECT_EQ(target("sm_89").name, "rtx4090");
  EXPECT_EQ(target("sm_90a").name, "h100");
  EXPECT_EQ(target("h200").arch, "sm_90a");
  EXPECT_FALSE(target("cpu").gpu);
  Result<TargetDesc> none = findTarget("sm_70");
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, Code::Usage);
  EXPECT_NE(none.error().message.find("rtx4090"), std::string::npos);
}

TEST(Target, Device) {
  EXPECT_EQ(targetForDevice({"NVIDIA H200", 9, 0})->name, "h200");
  EXPECT_EQ(targetForDevice({"NVIDIA H100 80GB HBM3", 9, 0})->name, "h100");
  EXPECT_EQ(targetForDevice({"NVIDIA GH200 480GB", 9, 0})->name, "h100");
  EXPECT_EQ(targetForDevice({"NVIDIA A100-SXM4-80GB", 8, 0})->name, "a100");
  EXPECT_EQ(targetForDevice({"NVIDIA GeForce RTX 4090", 8, 9})->name, "rtx4090");
  EXPECT_EQ(targetForDevice({"NVIDIA A10G", 8, 6})->name, "a100"); // nearest below
  EXPECT_EQ(targetForDevice({"NVIDIA B200", 10, 0})->arch, "sm_90a");
  EXPECT_EQ(targetForDevice({"Tesla V100", 7, 0}).error().code, Code::Unsupported);
  // Half an H100, as the driver reports it.
  DeviceFacts pcie{"NVIDIA H100 PCIe", 9, 0, 66, 25 << 20, 200 << 10, 0.99e9, 1.675e12};
  TargetDesc half = *targetForDevice(pcie), whole = target("h100");
  EXPECT_EQ(half.smCount, 66);
  EXPECT_DOUBLE_EQ(half.fp32Peak, whole.fp32Peak / 4);
  EXPECT_DOUBLE_EQ(half.dramCopy, whole.dramCopy / 2);
  EXPECT_EQ(half.activeClusters[2], 33);
  EXPECT_EQ(half.sharedPerBlock, 200 << 10);
  TargetDesc cpu = cpuTarget(16);
  EXPECT_EQ(cpu.smCount, 16);
  EXPECT_EQ(cpu.dramCopy, target("cpu").dramCopy);
  EXPECT_DOUBLE_EQ(cpu.fp32Peak, target("cpu").fp32Peak * 8);
}

TEST(Target, RefusesWhatIsWrong) {
  std::string good = fileText(std::filesystem::path(RIDGELINE_SOURCE_DIR) / "passes/cost/targets/h200.json");
  auto changed = [&](const std::string &from, const std::string &to) {
    std::string text = good;
    size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
    return parseTarget(text);
  };
  EXPECT_FALSE(parseTarget("").ok());
  EXPECT_FALSE(parseTarget("[]").ok());
  EXPECT_FALSE(parseTarget("{\"name\": \"x\"}").ok());
  auto pointer = [](const Result<TargetDesc> &r) { return r.ok() ? "accepted" : r.error().pointer; };
  EXPECT_EQ(pointer(changed("\"smCount\": {\"value\": 132", "\"smCount\": {\"value\": -1")), "/smCount/value");
  EXPECT_EQ(pointer(changed("\"smCount\": {\"value\": 132", "\"smCount\": {\"value\": \"many\"")), "/smCount/value");
  EXPECT_EQ(pointer(changed("\"smCount\"", "\"smsCount\"")), "/smCount");
  EXPECT_EQ(pointer(changed("\"arch\"", "\"extra\": 1, \"arch\"")), "/extra");
  EXPECT_EQ(pointer(changed("\"longRow\"", "\"longrow\"")), "/efficiency/longrow");
  EXPECT_EQ(pointer(changed("\"bf16\": {", "\"bf17\": {")), "/tensorPeak/bf17");
  EXPECT_EQ(pointer(changed("{\"value\": 132, \"source\": \"NVIDIA H200 data sheet (SXM)\"}",
                            "{\"value\": 132, \"source\": \"\"}")),
            "/smCount/source");
  EXPECT_EQ(pointer(changed("\"gpu\": true", "\"gpu\": 1")), "/gpu");
}

//===--------------------------------------------------------------------------------------------------------------===//
// Roofline
//===--------------------------------------------------------------------------------------------------------------===//

TEST(Roofline, RidgePoints) {
  EXPECT_NEAR(target("h100").ridgePoint(DType::BF16), 295, 0.5); // 989.4 TFLOP/s / 3.35 TB/s
  EXPECT_NEAR(target("h200").ridgePoint(DType::BF16), 206, 0.5);
  EXPECT_NEAR(target("h100").ridgePoint(DType::F8E4M3), 591, 1);
  EXPECT_NEAR(target("a100").ridgePoint(DType::BF16), 153, 0.5);
  EXPECT_NEAR(target("h100").ridgePoint(DType::F32), 20, 0.5);
}

/// A pointwise kernel over n bf16 elements with `reads` operands and one result.
WorkEstimate pointwise(double n, int reads, double ops, double special, const TargetDesc &t, bool resident = false) {
  WorkEstimate w;
  for (int i = 0; i < reads; ++i)
    addRead(w, {2 * n, 1, 0, resident}, t);
  addWrite(w, 2 * n);
  w.ops = ops * n;
  w.specialOps = special * n;
  w.blocks = std::ceil(n / (256 * 8));
  return w;
}

TEST(Roofline, FiveUnfusedGeluKernelsAgainstOne) {
  // gelu on [512, 11008] bf16: 11.27 MB a tensor. Five kernels go over it ten times, one goes twice.
  const double n = 512.0 * 11008, tensor = 2 * n;
  TargetDesc t = target("h200");
  EXPECT_NEAR(tensor, 11.3e6, 0.05e6);
  std::vector<WorkEstimate> five, cold;
  for (int i = 0; i < 5; ++i) {
    cold.push_back(pointwise(n, 1, 4, 0.2, t));
    // The one before wrote its operand: with the operand of the one before that, 34 MB were touched since at most.
    five.push_back(pointwise(n, 1, 4, 0.2, t, i > 0 && staysInL2(3 * tensor, t)));
  }
  WorkEstimate one = pointwise(n, 1, 20, 1, t);
  double moved = 0, dram = 0, l2 = 0;
  for (int i = 0; i < 5; ++i) {
    moved += cold[static_cast<size_t>(i)].bytes();
    dram += five[static_cast<size_t>(i)].bytes();
    l2 += five[static_cast<size_t>(i)].l2Bytes;
  }
  EXPECT_DOUBLE_EQ(moved, 10 * tensor);
  EXPECT_DOUBLE_EQ(one.bytes(), 2 * tensor);
  // With the cache: the first read and five writes reach DRAM, four reads do not.
  EXPECT_DOUBLE_EQ(dram, 6 * tensor);
  EXPECT_DOUBLE_EQ(l2, 4 * tensor);
  // By hand: one 4.1 + 1.2 + 22.5 MB / 4.24 TB/s = 10.6 us. Five: 10.6 + 4 x (0.7 + 0.75 + 22.5 MB / 5.5 TB/s) = 32.8
  // us.
  double oneTime = estimate(one, t).total, fiveTime = estimatePlan(five, t), coldTime = estimatePlan(cold, t);
  EXPECT_NEAR(oneTime, 10.6e-6, 0.1e-6);
  EXPECT_NEAR(fiveTime, 32.8e-6, 0.3e-6);
  EXPECT_GT(coldTime, fiveTime);
  // Launch and latency are 5.3 us, the bytes too: at half the rows the fixed costs are the bound.
  EXPECT_EQ(estimate(pointwise(n / 2, 1, 20, 1, t), t).bound, Bound::Launch);
  EXPECT_EQ(estimate(pointwise(n * 2, 1, 20, 1, t), t).bound, Bound::Memory);
  // The same at 16384 rows: nothing stays, the ratio tends to the passes'.
  double big = 16384.0 * 11008;
  EXPECT_FALSE(staysInL2(3 * 2 * big, t));
  std::vector<WorkEstimate> fiveBig(5, pointwise(big, 1, 4, 0.2, t));
  EXPECT_NEAR(estimatePlan(fiveBig, t) / estimate(pointwise(big, 1, 20, 1, t), t).total, 5, 0.15);
}

TEST(Roofline, Bounds) {
  TargetDesc t = target("h100");
  WorkEstimate w;
  w.bytesRead = w.bytesWritten = 1e9;
  EXPECT_EQ(estimate(w, t).bound, Bound::Memory);
  WorkEstimate sfu = w;
  sfu.specialOps = 1e10; // 10 G / 4.18 T/s = 2.4 ms against 0.68
  EXPECT_EQ(estimate(sfu, t).bound, Bound::Special);
  EXPECT_NEAR(estimate(sfu, t).special, 1e10 / (132 * 16 * 1.98e9), 1e-9);
  WorkEstimate alu = w;
  alu.ops = 1e11;
  EXPECT_EQ(estimate(alu, t).bound, Bound::Issue);
  EXPECT_NEAR(estimate(alu, t).issue, 1e11 / (132 * 128 * 1.98e9), 1e-9);
  WorkEstimate mm = w;
  mm.tensorFlops[static_cast<size_t>(DType::BF16)] = 2.0 * 8192 * 8192 * 8192;
  EXPECT_EQ(estimate(mm, t).bound, Bound::Tensor);
  EXPECT_NEAR(estimate(mm, t).tensor, 2.0 * 8192 * 8192 * 8192 / (989.4e12 * 0.71), 1e-6);
  // f32 products run on the f32 lanes, one fma for two flops.
  WorkEstimate f32;
  f32.tensorFlops[static_cast<size_t>(DType::F32)] = 1e12;
  EXPECT_NEAR(estimate(f32, t).issue, 1e12 / t.fp32Peak, 0.02 * 1e12 / t.fp32Peak);
  WorkEstimate l2 = w;
  l2.bytesRead = 1e6;
  l2.bytesWritten = 0;
  l2.l2Bytes = 1e9;
  EXPECT_EQ(estimate(l2, t).bound, Bound::L2);
  EXPECT_EQ(estimate(WorkEstimate{}, t).bound, Bound::Launch);
  EXPECT_DOUBLE_EQ(estimate(WorkEstimate{}, t).total, t.launchFirst); // an empty kernel
  EXPECT_DOUBLE_EQ(estimate(w, t).intensity, 0);
  EXPECT_DOUBLE_EQ(estimate(alu, t).intensity, 50);
  // Reading alone is faster than copying, writing alone too.
  WorkEstimate r, wr;
  r.bytesRead = wr.bytesWritten = 2e9;
  EXPECT_NEAR(estimate(r, t).memory, 2e9 / t.dramRead, 1e-9);
  EXPECT_NEAR(estimate(wr, t).memory, 2e9 / t.dramWrite, 1e-9);
  EXPECT_NEAR(estimate(w, t).memory, 2e9 / t.dramCopy, 1e-9);
  EXPECT_NE(estimate(sfu, t).str().find("special"), std::string::npos);
  EXPECT_EQ(estimate(WorkEstimate{}, t).str().substr(0, 7), "4.1 us:");
}

TEST(Roofline, WavesAndTail) {
  TargetDesc t = target("h200");
  WorkEstimate w; // one 128x256 tile a block and SM; 4096^3 has 512 of them: 3.88 waves, four rounds
  w.tensorFlops[static_cast<size_t>(DType::BF16)] = 2.0 * 4096 * 4096 * 4096;
  w.threadsPerBlock = 384;
  w.registers = 168;
  w.sharedBytes = 200 << 10;
  w.blocks = 512;
  EXPECT_EQ(residentBlocks(t, w), 132);
  EXPECT_NEAR(waves(t, w), 3.879, 0.001);
  Estimate e = estimate(w, t);
  EXPECT_NEAR(e.tail / e.tensor, 4 / 3.8788 - 1, 1e-3);
  // 512x11008: 128x256 tiles are 172 blocks, two rounds for 1.3; 256x168 tiles are 132, one round.
  w.blocks = 172;
  EXPECT_NEAR(estimate(w, t).tail / estimate(w, t).tensor, 2.0 * 132 / 172 - 1, 1e-9);
  w.blocks = 132;
  EXPECT_EQ(estimate(w, t).tail, 0);
  // One block computes alone.
  w.blocks = 1;
  EXPECT_NEAR(estimate(w, t).tail / estimate(w, t).tensor, 131, 1e-6);
  // Little's law: 16 blocks of 256 threads that keep 16 KB each in flight read 1 GB in 4,096 trips of 1.2 us.
  WorkEstimate few;
  few.bytesRead = double(1 << 30);
  few.blocks = 16;
  few.threadsPerBlock = 256;
  EXPECT_NEAR(estimate(few, t).total, 4096 * 1.2e-6 + 4.1e-6, 1e-6);
  few.blocks = 1056;
  EXPECT_EQ(estimate(few, t).tail, 0);
  // 32 clusters of four where 30 run: the machine holds 120 blocks.
  WorkEstimate c;
  c.clusterSize = 4;
  c.threadsPerBlock = 512;
  c.sharedBytes = 200 << 10;
  c.blocks = 128;
  EXPECT_EQ(residentBlocks(t, c), 120);
  EXPECT_GT(waves(t, c), 1);
  c.blocks = 120;
  EXPECT_EQ(waves(t, c), 1);
  // What a cluster reduces takes longer, and a block has no more than its multiprocessor's rate: 1 MB in 12.5 us.
  c.reductions = 2;
  EXPECT_DOUBLE_EQ(estimate(c, t).reductions, 2 * t.clusterReduction);
  EXPECT_GT(t.clusterReduction, t.blockReduction);
  WorkEstimate one;
  one.bytesRead = one.bytesInFlight = 1e6;
  one.blocks = 1;
  EXPECT_NEAR(estimate(one, t).total, t.launchFirst + t.memoryLatency + 12.5e-6, 1e-9);
  EXPECT_LT(estimate(one, target("a100")).total, 8e-6) << "no such figure is known";
  EXPECT_EQ(residentBlocks(target("a100"), c), 0); // no clusters there
  EXPECT_FALSE(estimate(c, target("a100")).fits);
}

TEST(Roofline, Occupancy) {
  TargetDesc h = target("h100"), a = target("a100"), r = target("rtx4090");
  auto blocks = [](const TargetDesc &t, int regs, int threads, double shared) {
    return occupancy(t, regs, threads, shared).blocksPerSm;
  };
  EXPECT_EQ(blocks(h, 0, 256, 0), 8);
  EXPECT_EQ(blocks(h, 32, 256, 0), 8);
  EXPECT_EQ(blocks(h, 64, 256, 0), 4);
  EXPECT_EQ(blocks(h, 64, 1024, 0), 1);
  EXPECT_EQ(blocks(h, 65, 1024, 0), 0);       // 72 registers a thread x 1024: more than the file
  EXPECT_EQ(blocks(h, 255, 128, 0), 2);       // 8,192 a warp: two warps in each quarter, two blocks of four
  EXPECT_EQ(blocks(h, 33, 128, 0), 12);       // 1,280 a warp: 12 in a quarter, 48 in all
  EXPECT_EQ(blocks(h, 32, 32, 0), 32);        // the limit of blocks
  EXPECT_EQ(blocks(h, 32, 33, 0), 32);        // two warps
  EXPECT_EQ(blocks(h, 32, 128, 48 << 10), 4); // 49 KB each of 228
  EXPECT_EQ(blocks(h, 32, 128, 227 << 10), 1);
  EXPECT_EQ(blocks(h, 32, 128, (227 << 10) + 1), 0);
  EXPECT_EQ(blocks(a, 32, 128, 163 << 10), 1);
  EXPECT_EQ(blocks(a, 32, 128, 81 << 10), 2); // 82 KB each of 164
  EXPECT_EQ(blocks(r, 32, 256, 0), 6);        // 1,536 threads
  EXPECT_EQ(blocks(r, 40, 1024, 0), 1);
  EXPECT_EQ(blocks(h, 32, 1025, 0), 0);
  EXPECT_EQ(blocks(h, 32, 0, 0), 0);
  EXPECT_EQ(blocks(h, 256, 32, 0), 0);
  EXPECT_EQ(occupancy(h, 64, 256, 0).limit, Occupancy::Registers);
  EXPECT_DOUBLE_EQ(occupancy(h, 64, 256, 0).fraction, 0.5);
  EXPECT_EQ(occupancy(h, 32, 128, 48 << 10).limit, Occupancy::Shared);
  EXPECT_EQ(occupancy(h, 32, 32, 0).limit, Occupancy::Blocks);
  EXPECT_EQ(occupancy(h, 16, 1024, 0).limit, Occupancy::Threads);
  EXPECT_EQ(occupancy(target("cpu"), 0, 1, 0).blocksPerSm, 1);
}

//===--------------------------------------------------------------------------------------------------------------===//
// Bytes
//===--------------------------------------------------------------------------------------------------------------===//

TEST(Bytes, ColumnAndRowOfAMatrix) {
  TargetDesc t = target("h100");
  // bf16 [.., 4096]. A column: a warp takes one element of 32 rows, 8,192 bytes apart: 32 lines for 64 bytes.
  AccessCost column = accessCost({2, 8192, 2, false}, t);
  EXPECT_DOUBLE_EQ(column.usedBytes, 64);
  EXPECT_DOUBLE_EQ(column.lines, 32);
  EXPECT_DOUBLE_EQ(column.sectors, 32);
  EXPECT_NEAR(column.lineEfficiency, 0.016, 0.0005); // 2 / 128
  EXPECT_DOUBLE_EQ(column.sectorEfficiency, 0.0625); // 2 / 32
  AccessCost row = accessCost({16, 16, 128, false}, t);
  EXPECT_DOUBLE_EQ(row.usedBytes, 512);
  EXPECT_DOUBLE_EQ(row.lines, 4);
  EXPECT_DOUBLE_EQ(row.sectors, 16);
  EXPECT_DOUBLE_EQ(row.lineEfficiency, 1);
  EXPECT_DOUBLE_EQ(row.sectorEfficiency, 1);
}

TEST(Bytes, Alignment) {
  TargetDesc t = target("h100");
  // Single bf16 elements, 64 bytes a warp, from anywhere even: a third sector in 15 of 16 cases.
  AccessCost scalar = accessCost({2, 2, 2, false}, t);
  EXPECT_DOUBLE_EQ(scalar.usedBytes, 64);
  EXPECT_DOUBLE_EQ(scalar.sectors, 2 + 15.0 / 16);
  // 512 bytes from a multiple of 16: 17 sectors in half of the cases.
  EXPECT_DOUBLE_EQ(accessCost({16, 16, 16, false}, t).sectors, 16.5);
  EXPECT_DOUBLE_EQ(accessCost({16, 16, 32, false}, t).sectors, 16);
  // Backwards is as good as forwards.
  EXPECT_DOUBLE_EQ(accessCost({4, -4, 4, false}, t).sectors, accessCost({4, 4, 4, false}, t).sectors);
  // Every second element.
  EXPECT_DOUBLE_EQ(accessCost({4, 8, 128, false}, t).lineEfficiency, 0.5);
  // All the same: one sector.
  AccessCost same = accessCost({4, 0, 4, false}, t);
  EXPECT_DOUBLE_EQ(same.sectors, 1);
  EXPECT_DOUBLE_EQ(same.usedBytes, 4);
  // A gather of f32: a sector each.
  EXPECT_DOUBLE_EQ(accessCost({4, 0, 4, true}, t).sectorEfficiency, 0.125);
  // A CPU reads its line of 64 bytes.
  EXPECT_DOUBLE_EQ(accessCost({4, 4, 64, false}, target("cpu")).lineEfficiency, 1);
  EXPECT_DOUBLE_EQ(accessCost({4, 4096, 64, false}, target("cpu")).lineEfficiency, 4.0 / 64);
}

TEST(Bytes, FromIndexMaps) {
  TargetDesc t = target("h200");
  index::Context c({4096, 4096});
  index::Expr row = c.add(c.mul(c.dim(0), 4096), c.dim(1)), column = c.add(c.mul(c.dim(1), 4096), c.dim(0));
  auto cost = [&](index::Expr e, int64_t V) {
    return accessCost(accessPattern(index::classify(c, e, 1, V), V, 2, t), t);
  };
  EXPECT_EQ(accessPattern(index::classify(c, row, 1, 8), 8, 2, t).accessBytes, 16);
  EXPECT_DOUBLE_EQ(cost(row, 8).usedBytes, 512);
  EXPECT_DOUBLE_EQ(cost(row, 8).sectors, 16.5); // 16-byte alignment is all that the map promises
  EXPECT_NEAR(cost(column, 1).lineEfficiency, 0.016, 0.0005);
  // Shifted by 3 elements: single elements, a thread's eight of them 16 bytes from the next thread's.
  EXPECT_EQ(accessPattern(index::classify(c, c.add(row, 3), 1, 8), 8, 2, t).accessBytes, 2);
  EXPECT_EQ(accessPattern(index::classify(c, c.add(row, 3), 1, 8), 8, 2, t).strideBytes, 16);
  EXPECT_EQ(accessPattern(index::classify(c, c.dim(0), 1, 8), 8, 2, t).strideBytes, 0);
}

TEST(Bytes, CacheEffects) {
  TargetDesc t = target("h200");
  double usable = t.usableL2();
  WorkEstimate w;
  addRead(w, {1e6, 132, 1e6, false}, t); // a small operand that every block reads
  EXPECT_DOUBLE_EQ(w.bytesRead, 1e6);
  EXPECT_DOUBLE_EQ(w.l2Bytes, 131e6);
  WorkEstimate far;
  addRead(far, {1e9, 3, 1e9, false}, t); // three passes over what no cache holds
  EXPECT_DOUBLE_EQ(far.bytesRead, 3e9);
  EXPECT_DOUBLE_EQ(far.l2Bytes, 0);
  WorkEstimate half;
  addRead(half, {1.5 * usable, 2, 1.5 * usable, false}, t);
  EXPECT_DOUBLE_EQ(half.bytesRead, 1.5 * usable * 1.5);
  EXPECT_DOUBLE_EQ(half.l2Bytes, 1.5 * usable * 0.5);
  WorkEstimate resident;
  addRead(resident, {1e7, 1, 0, true}, t);
  EXPECT_DOUBLE_EQ(resident.bytesRead, 0);
  EXPECT_DOUBLE_EQ(resident.l2Bytes, 1e7);
  EXPECT_TRUE(staysInL2(34e6, t));
  EXPECT_FALSE(staysInL2(268e6, t));
}

//===--------------------------------------------------------------------------------------------------------------===//
// Measured kernels (H200, graph replays, cold L2)
//===--------------------------------------------------------------------------------------------------------------===//

struct Measured {
  const char *name;
  Traffic traffic;
  double read, written; // bytes
  int reductions;
  double microseconds;
};

TEST(Measured, KernelsOnAnH200Within10Percent) {
  const double K = 1024, MB = 1 << 20;
  const Measured rows[] = {
      {"gelu 16384x11008", Traffic::Copy, 2. * 16384 * 11008, 2. * 16384 * 11008, 0, 174},
      {"gelu 512x11008", Traffic::Copy, 2. * 512 * 11008, 2. * 512 * 11008, 0, 10.7},
      {"copy 1 GiB", Traffic::Copy, 1024 * MB, 1024 * MB, 0, 503},
      {"chain15 1x4096", Traffic::Copy, 8 * K, 8 * K, 0, 5.3},
      {"layernorm 16384x4096", Traffic::Row, 128 * MB, 128 * MB, 2, 69.6},
      {"layernorm 16384x8192", Traffic::Row, 256 * MB, 256 * MB, 2, 134.8},
      {"layernorm 2048x12288", Traffic::Row, 48 * MB, 48 * MB, 2, 29.7},
      {"layernorm 16x4096", Traffic::Row, 128 * K, 128 * K, 2, 6.0},
      {"softmax_masked 16384x8192", Traffic::Row, 256 * MB, 256 * MB, 1, 133.2},
      {"rmsnorm 131072x128", Traffic::Row, 32 * MB, 32 * MB, 0, 20.5},
      {"log_softmax 8192x50304", Traffic::Row, 2. * 8192 * 50304, 2. * 8192 * 50304, 1, 402},
      {"softmax f32 4096x131072", Traffic::LongRow, 2048 * MB, 2048 * MB, 1, 1088},
      {"groupnorm 1024 rows of 128 KB", Traffic::LongRow, 128 * MB, 128 * MB, 2, 72.3},
      {"cross_entropy 8192x128256", Traffic::ReadStatistics, 2. * 8192 * 128256, 32 * K, 1, 470},
      {"colsum 65536x4096", Traffic::Column, 512 * MB, 16 * K, 1, 134.6},
      {"sum of squares 2^28", Traffic::Full, 512 * MB, 4, 1, 133.1},
      {"layernorm_bwd 16384x4096", Traffic::ColumnPartials, 256 * MB, 128 * MB, 2, 107},
      {"rmsnorm+e4m3 16384x4096", Traffic::Row, 128 * MB, 64 * MB, 1, 52.5},
      {"transpose_add 8192^2", Traffic::Transpose, 256 * MB, 128 * MB, 0, 100.6},
      {"embedding 65536x8 KB", Traffic::Gather, 512 * MB, 512 * MB, 0, 262.5},
      {"gemv bf16 11008x4096", Traffic::Matrix, 2. * 11008 * 4096, 22 * K, 1, 31.6},
  };
  TargetDesc t = target("h200");
  for (const Measured &m : rows) {
    WorkEstimate w;
    w.traffic = m.traffic;
    addRead(w, {m.read}, t);
    addWrite(w, m.written);
    w.reductions = m.reductions;
    double predicted = estimate(w, t).total * 1e6;
    EXPECT_NEAR(predicted / m.microseconds, 1, 0.1) << m.name << ": " << predicted << " for " << m.microseconds;
  }
}

TEST(Measured, ChainsOnAnH200) {
  TargetDesc t = target("h200");
  auto norm = [&](double bytes, bool resident) {
    WorkEstimate w;
    w.traffic = Traffic::Row;
    addRead(w, {bytes, 1, 0, resident}, t);
    addWrite(w, bytes);
    w.reductions = 1;
    return w;
  };
  auto chain = [&](int n, double bytes) {
    std::vector<WorkEstimate> plan;
    for (int i = 0; i < n; ++i)
      plan.push_back(norm(bytes, i > 0 && staysInL2(2 * bytes, t)));
    return estimatePlan(plan, t) * 1e6;
  };
  EXPECT_NEAR(chain(2, 16. * 4096 * 2), 7.5, 0.75);
  EXPECT_NEAR(chain(8, 16. * 4096 * 2), 18.2, 1.8);
  EXPECT_NEAR(chain(2, 17e6), 21.5, 2.2);
  EXPECT_NEAR(chain(2, 134e6), 138, 14);
  double early = estimate(norm(131072, false), t).total;
  for (int i = 0; i < 7; ++i)
    early += estimate(norm(131072, true), t, false, true).total;
  EXPECT_NEAR(early * 1e6, 13.4, 1.4);
}

TEST(Measured, MatmulsOnAnH200) {
  TargetDesc t = target("h200");
  auto flops = [&](double m, double n, double k, DType type, double blocks) {
    WorkEstimate w;
    w.traffic = Traffic::Matrix;
    double size = static_cast<double>(dtypeSize(type));
    addRead(w, {(m * k + n * k) * size}, t);
    addWrite(w, m * n * 2);
    w.tensorFlops[static_cast<size_t>(type)] = 2 * m * n * k;
    w.blocks = blocks;
    w.threadsPerBlock = 384;
    w.registers = 168;
    w.sharedBytes = 200 << 10;
    w.bytesInFlight = 190 << 10;
    return 2 * m * n * k / estimate(w, t).total / 1e12;
  };
  EXPECT_NEAR(flops(4096, 4096, 4096, DType::BF16, 512) / 706, 1, 0.1);
  EXPECT_NEAR(flops(8192, 8192, 8192, DType::BF16, 2048) / 682, 1, 0.1);
  EXPECT_NEAR(flops(512, 11008, 4096, DType::BF16, 132) / 698, 1, 0.15);
  EXPECT_NEAR(flops(8192, 8192, 8192, DType::F8E4M3, 2048) / 1299, 1, 0.1);
}

//===--------------------------------------------------------------------------------------------------------------===//
// Ops
//===--------------------------------------------------------------------------------------------------------------===//

TEST(OpCost, EveryOpHasOne) {
  for (int i = 0; i <= static_cast<int>(OpKind::FakeQuantize); ++i) {
    OpKind k = static_cast<OpKind>(i);
    for (DType type : {DType::F32, DType::BF16}) {
      OpCost c = opCost(k, type);
      EXPECT_LE(c.special, 2);
      EXPECT_LE(c.special, c.ops + 1e-9);
      if (isView(k)) {
        EXPECT_EQ(c.ops, 0);
      }
    }
    EXPECT_GE(opCost(k, DType::F32).ops, opCost(k, DType::BF16).ops);
  }
  EXPECT_EQ(opCost(OpKind::Tanh, DType::BF16).special, 1);
  EXPECT_EQ(opCost(OpKind::Add, DType::F32).ops, 1);
  EXPECT_LT(opCost(OpKind::Gelu, DType::BF16, true).ops, opCost(OpKind::Gelu, DType::BF16, false).ops);
}

/// A graph of one node over values of these types.
Graph oneNode(OpKind op, std::vector<TensorType> inputs, std::vector<TensorType> results, Attrs attrs = {}) {
  Graph g;
  Node n{op, {}, {}, attrs, {}, "", 0};
  for (TensorType &t : inputs) {
    n.inputs.push_back({static_cast<ValueId>(g.values.size()), {}});
    g.values.push_back({Value::Input, "x", t});
  }
  for (TensorType &t : results) {
    n.outputs.push_back(static_cast<ValueId>(g.values.size()));
    g.values.push_back({Value::Result, "y", t, 0, 0});
  }
  g.nodes.push_back(n);
  return g;
}

TEST(OpCost, NodeWork) {
  const DType bf = DType::BF16;
  { // bias: the small operand is read once
    WorkEstimate w = nodeWork(oneNode(OpKind::Add, {{bf, {512, 4096}}, {bf, {4096}}}, {{bf, {512, 4096}}}), 0);
    EXPECT_EQ(w.bytesRead, 2 * (512 * 4096 + 4096));
    EXPECT_EQ(w.bytesWritten, 2 * 512 * 4096);
    EXPECT_EQ(w.traffic, Traffic::Copy);
    EXPECT_GE(w.ops, 512 * 4096);
  }
  { // x + x reads once
    Graph g = oneNode(OpKind::Mul, {{bf, {8}}}, {{bf, {8}}});
    g.nodes[0].inputs.push_back(g.nodes[0].inputs[0]);
    EXPECT_EQ(nodeWork(g, 0).bytesRead, 16);
    Operand literal;
    literal.literal = {Scalar::Float, 0, 0.5};
    g.nodes[0].inputs[1] = literal;
    EXPECT_EQ(nodeWork(g, 0).bytesRead, 16);
  }
  EXPECT_EQ(nodeWork(oneNode(OpKind::Reshape, {{bf, {8, 2}}}, {{bf, {16}}}), 0).bytes(), 0);
  EXPECT_EQ(nodeWork(oneNode(OpKind::Flip, {{bf, {8, 2}}}, {{bf, {8, 2}}}), 0).bytes(), 64);
  { // empty tensors
    WorkEstimate w = nodeWork(oneNode(OpKind::Add, {{bf, {0, 4}}, {bf, {0, 4}}}, {{bf, {0, 4}}}), 0);
    EXPECT_EQ(w.bytes() + w.flops(), 0);
    Attrs a;
    a.dims = {0};
    WorkEstimate z = nodeWork(oneNode(OpKind::Sum, {{DType::F32, {0, 4}}}, {{DType::F32, {4}}}, a), 0);
    EXPECT_EQ(z.bytes(), 16);
    EXPECT_EQ(z.flops(), 0);
  }
  { // linear, and matmul with transposes and a batch
    WorkEstimate w =
        nodeWork(oneNode(OpKind::Linear, {{bf, {512, 4096}}, {bf, {11008, 4096}}}, {{bf, {512, 11008}}}), 0);
    EXPECT_EQ(w.tensorFlops[static_cast<size_t>(bf)], 2. * 512 * 11008 * 4096);
    EXPECT_EQ(w.traffic, Traffic::Matrix);
    Attrs a;
    a.transposeA = true;
    WorkEstimate m = nodeWork(oneNode(OpKind::Matmul, {{bf, {3, 7, 5}}, {bf, {7, 11}}}, {{bf, {3, 5, 11}}}, a), 0);
    EXPECT_EQ(m.tensorFlops[static_cast<size_t>(bf)], 2. * 3 * 5 * 11 * 7);
    WorkEstimate v = nodeWork(oneNode(OpKind::Matmul, {{bf, {7}}, {bf, {7}}}, {{bf, {}}}), 0);
    EXPECT_EQ(v.tensorFlops[static_cast<size_t>(bf)], 14);
    WorkEstimate s =
        nodeWork(oneNode(OpKind::ScaledMatmul,
                         {{DType::F8E4M3, {64, 32}}, {DType::F8E4M3, {32, 16}}, {DType::F32, {}}, {DType::F32, {}}},
                         {{bf, {64, 16}}}),
                 0);
    EXPECT_EQ(s.tensorFlops[static_cast<size_t>(DType::F8E4M3)], 2. * 64 * 16 * 32);
  }
  { // embedding reads what it picks, not the table
    WorkEstimate w =
        nodeWork(oneNode(OpKind::Embedding, {{bf, {50304, 4096}}, {DType::I64, {64}}}, {{bf, {64, 4096}}}), 0);
    EXPECT_EQ(w.bytesRead, 2 * 64 * 4096 + 8 * 64);
    EXPECT_EQ(w.traffic, Traffic::Gather);
  }
  { // attention: both products over every score
    TensorType q{bf, {2, 4, 128, 64}}, k{bf, {2, 4, 256, 64}};
    WorkEstimate w = nodeWork(oneNode(OpKind::Attention, {q, k, k}, {q}), 0);
    EXPECT_EQ(w.tensorFlops[static_cast<size_t>(bf)], 4. * 2 * 4 * 128 * 256 * 64);
    EXPECT_EQ(w.specialOps, 2. * 4 * 128 * 256);
  }
  { // reductions by kind
    auto traffic = [&](std::vector<int64_t> dims) {
      Attrs a;
      a.dims = std::move(dims);
      return nodeWork(oneNode(OpKind::Sum, {{bf, {4, 8, 16}}}, {{bf, {4}}}, a), 0).traffic;
    };
    EXPECT_EQ(traffic({0, 1, 2}), Traffic::Full);
    EXPECT_EQ(traffic({2}), Traffic::ReadStatistics);
    EXPECT_EQ(traffic({0, 1}), Traffic::Column);
    EXPECT_EQ(nodeWork(oneNode(OpKind::LayerNorm, {{bf, {4, 8}}}, {{bf, {4, 8}}}), 0).reductions, 2);
  }
}

TEST(OpCost, GeluChainUnfused) {
  // x*x, *x, *c, +x, *c, tanh, +1, x*.5, * : nine kernels; a node that names x twice reads it once.
  const DType bf = DType::BF16;
  TensorType t{bf, {512, 11008}};
  Graph g;
  g.values.push_back({Value::Input, "x", t});
  auto node = [&](OpKind op, ValueId a, std::optional<ValueId> b) {
    Node n{op, {{a, {}}}, {static_cast<ValueId>(g.values.size())}, {}, {}, "", 0};
    if (b)
      n.inputs.push_back({*b, {}});
    else if (op != OpKind::Tanh)
      n.inputs.push_back({kNone, {Scalar::Float, 0, 0.5}});
    g.values.push_back({Value::Result, "v", t, static_cast<NodeId>(g.nodes.size()), 0});
    g.nodes.push_back(n);
    return n.outputs[0];
  };
  ValueId x2 = node(OpKind::Mul, 0, 0), x3 = node(OpKind::Mul, x2, 0), a = node(OpKind::Mul, x3, {});
  ValueId s = node(OpKind::Add, a, 0), c = node(OpKind::Mul, s, {}), h = node(OpKind::Tanh, c, {});
  ValueId p = node(OpKind::Add, h, {}), half = node(OpKind::Mul, 0, {});
  node(OpKind::Mul, half, p);
  WorkEstimate w = unfusedWork(g);
  double tensor = 2. * 512 * 11008;
  EXPECT_DOUBLE_EQ(w.bytesWritten, 9 * tensor);
  EXPECT_DOUBLE_EQ(w.bytesRead, 12 * tensor); // one each, two for x3, s and the result
}

} // namespace
