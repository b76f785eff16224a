// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The choice of tiles for matrix products: what it predicts beside what was measured on an H200, that what it returns can be
// generated, and that it is quick and always the same.
#include "passes/cost/GemmModel.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

using namespace rl;
using namespace rl::cost;

namespace {

TargetDesc h200() { return *findTarget("h200"); }

GemmShape shape(int64_t m, int64_t n, int64_t k, DType t = DType::BF16) {
  GemmShape s;
  s.m = m;
  s.n = n;
  s.k = k;
  s.a = s.b = t;
  s.outputs = {dtypeSize(t) == 1 ? DType::BF16 : t};
  return s;
}

/// Of 8-bit floats, each stage's sums added in f32, times scales of so many columns (0: none).
GemmShape promoted(int64_t m, int64_t n, int64_t k, int64_t scaleColumns = 0) {
  GemmShape s = shape(m, n, k, DType::F8E4M3);
  s.promotes = true;
  s.scaleColumns = scaleColumns;
  return s;
}

GemmShape withGelu(GemmShape s) {
  s.ops = 10;
  s.specialOps = 2;
  s.columns = {DType::BF16};
  return s;
}

} // namespace

TEST(GemmModel, PredictsWhatWasMeasured) {
  struct {
    GemmShape shape;
    int tileN, consumers, blocks;
    bool alternate;
    double microseconds;
  } measured[] = {
      {shape(4096, 4096, 4096), 128, 2, 2, true, 189.8},
      {shape(4096, 4096, 4096), 256, 2, 1, false, 195.3},
      {shape(4096, 4096, 4096), 128, 2, 1, false, 191.1},
      {shape(4096, 4096, 4096), 176, 3, 1, false, 198.5},
      {shape(4096, 4096, 4096), 64, 2, 1, true, 307.5},
      {shape(8192, 4096, 1024), 128, 2, 2, true, 96.4},
      {shape(8192, 4096, 1024), 256, 2, 1, false, 107.7},
      {shape(2048, 2048, 2048), 128, 2, 2, true, 24.3},
      {shape(512, 11008, 4096), 168, 2, 1, false, 66.6},
      {shape(512, 11008, 4096), 168, 2, 2, false, 69.2},
      {shape(1796, 1792, 4096), 144, 3, 1, false, 38.9},
      {shape(1796, 1792, 4096), 224, 2, 1, false, 38.4},
      {shape(4096, 4096, 4096, DType::F8E4M3), 128, 2, 2, true, 104.1},
      {promoted(8192, 4096, 7168, 128), 96, 2, 1, false, 490.4},
      {promoted(8192, 4096, 7168, 128), 160, 2, 1, false, 429.8},
      {promoted(512, 11008, 4096, 128), 128, 2, 1, false, 46.8},
      {promoted(4096, 7168, 2048), 176, 2, 1, false, 103.6},
      {promoted(8192, 4096, 7168), 160, 2, 1, false, 384.7},
      {promoted(512, 11008, 4096), 176, 2, 1, false, 39.9},
      {promoted(4096, 7168, 2048, 128), 160, 2, 1, false, 114.9},
      {promoted(8192, 4096, 7168, 128), 128, 2, 1, false, 437.0},
      {promoted(8192, 4096, 7168, 128), 192, 2, 1, false, 421.0},
      {promoted(4096, 4096, 4096, 128), 128, 2, 1, false, 127.0},
      {promoted(4096, 4096, 4096, 128), 96, 2, 1, false, 144.9},
      {promoted(512, 11008, 4096, 128), 192, 2, 1, false, 45.1},
      {withGelu(shape(4096, 4096, 4096)), 128, 2, 2, true, 192.0},
      {withGelu(shape(4096, 4096, 4096)), 256, 2, 1, false, 206.2},
      {withGelu(shape(4096, 4096, 512)), 128, 2, 2, true, 37.9},
  };
  for (auto &m : measured) {
    GemmTile t;
    t.tileN = m.tileN;
    t.consumers = m.consumers;
    t.blocks = m.blocks;
    t.alternate = m.alternate;
    ASSERT_TRUE(completeGemmTile(m.shape, t, h200()));
    GemmCandidate c = predictGemm(m.shape, t, h200());
    EXPECT_NEAR(c.seconds * 1e6 / m.microseconds, 1, 0.16) << c.str() << ", measured " << m.microseconds;
  }
}

TEST(GemmModel, WeightsWidenedInRegisters) {
  // `ridgeline bench` on an H200, weights in i8, with a launch by itself; m is of the weights.
  constexpr double kOwnLaunch = 2.3;
  struct Measured {
    int64_t m, n, k;
    int tileN, consumers;
    double microseconds;
  } measured[] = {{11008, 128, 4096, 128, 2, 31.6},   {11008, 256, 4096, 128, 3, 39.8},
                  {11008, 512, 4096, 176, 2, 66.7},   {4096, 512, 11008, 128, 2, 74.0},
                  {11008, 1024, 4096, 176, 2, 131.3}, {11008, 2048, 4096, 232, 2, 238},
                  {11008, 8192, 4096, 256, 2, 910},   {4096, 4096, 4096, 256, 2, 173.4}};
  for (const Measured &m : measured) {
    GemmShape s = shape(m.m, m.n, m.k);
    s.turned = true;
    s.leftTiles = {DType::I8};
    GemmTile t{.tileN = m.tileN, .consumers = m.consumers};
    ASSERT_TRUE(completeGemmTile(s, t, h200()));
    GemmCandidate c = predictGemm(s, t, h200());
    EXPECT_NEAR((c.seconds * 1e6 + kOwnLaunch) / m.microseconds, 1, 0.1) << c.str() << ", measured " << m.microseconds;
  }
  GemmShape s = shape(4096, 512, 4096);
  s.turned = true;
  EXPECT_NE(gemmRefusal(s, {}, h200()), ""); // nothing to widen
  s.leftTiles = {DType::I8};
  EXPECT_EQ(gemmRefusal(s, {}, h200()), "");
  s.segment = 128;
  EXPECT_NE(gemmRefusal(s, {}, h200()), "");
}

TEST(GemmModel, CopiesThatStartAmidLinesOfTheCache) {
  auto time = [](const GemmShape &s, int tileN, int consumers, int blocks, bool alternate) {
    GemmTile t{.tileN = tileN, .consumers = consumers, .blocks = blocks, .alternate = alternate};
    EXPECT_TRUE(completeGemmTile(s, t, h200()));
    return predictGemm(s, t, h200()).seconds * 1e6;
  };
  // Measured: rows of 4104 elements 385, 465 and 285 us, of 4096 182, 183 and 187.
  GemmShape odd = shape(4096, 4096, 4104);
  EXPECT_NEAR(time(odd, 128, 2, 2, true) / 385, 1, 0.16);
  EXPECT_NEAR(time(odd, 256, 2, 1, true) / 465, 1, 0.16);
  EXPECT_NEAR(time(odd, 256, 2, 1, false) / 285, 1, 0.16);
  // A right operand stored along N, in tiles of whole lines or not: 1481, 1998 and 3564 us.
  GemmShape along = shape(8192, 8192, 8192);
  along.bKMajor = {false};
  EXPECT_NEAR(time(along, 128, 2, 2, true) / 1481, 1, 0.16);
  EXPECT_NEAR(time(along, 144, 2, 2, true) / 1998, 1, 0.16);
  EXPECT_NEAR(time(along, 248, 2, 1, true) / 3564, 1, 0.16);
  // The same tile where rows of N begin amid lines anyway.
  along.bPitch = {8200};
  EXPECT_GT(time(along, 128, 2, 2, true), 1.2 * 1481);
  // Written anew where there is much to multiply.
  EXPECT_TRUE(paddingPays(shape(4096, 4096, 4104), 4160, h200()));
  EXPECT_FALSE(paddingPays(shape(512, 11008, 4104), 4160, h200()));
  EXPECT_FALSE(paddingPays(shape(4096, 4096, 4104), 4160, *findTarget("a100")));
}

TEST(GemmModel, ChoosesWhatIsQuick) {
  // Waves: 132 SMs. One round of 132 tiles of 256x168, or two of 264 of 128x168, where 128x128 takes three.
  auto narrow = chooseGemmTiles(shape(512, 11008, 4096), h200());
  ASSERT_FALSE(narrow.empty());
  EXPECT_TRUE(narrow[0].tile.tileN == 168 || narrow[0].tile.tileN == 112) << narrow[0].str();
  // Long epilogues go under the other warpgroup's products.
  for (int64_t k : {512, 4096})
    EXPECT_TRUE(chooseGemmTiles(withGelu(shape(4096, 4096, k)), h200())[0].tile.alternate);
  // Few rows: one warpgroup of 64 is enough.
  EXPECT_EQ(chooseGemmTiles(shape(16, 4096, 4096), h200())[0].tile.tileM(), 64);
  // Candidates are in order, and all different.
  auto many = chooseGemmTiles(shape(4096, 4096, 4096), h200(), 50);
  EXPECT_EQ(many.size(), 50u);
  for (size_t i = 1; i < many.size(); ++i) {
    EXPECT_LE(many[i - 1].seconds, many[i].seconds);
    for (size_t j = 0; j < i; ++j)
      EXPECT_FALSE(many[j].tile == many[i].tile);
  }
}

TEST(GemmModel, WhatItReturnsCanBeGenerated) {
  std::mt19937_64 random(1);
  auto pick = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(random() % static_cast<uint64_t>(high - low + 1));
  };
  TargetDesc machine = h200();
  for (int round = 0; round < 200; ++round) {
    static constexpr DType types[] = {DType::BF16, DType::F16, DType::F8E4M3, DType::I8, DType::F32};
    GemmShape s =
        shape(pick(1, 1 << pick(0, 14)), pick(1, 1 << pick(0, 14)), pick(1, 1 << pick(0, 14)), types[pick(0, 4)]);
    s.batch = pick(0, 3) ? 1 : pick(1, 64);
    s.products = static_cast<int>(pick(1, 2));
    if (dtypeSize(s.a) == 2) {
      s.aKMajor = pick(0, 1);
      s.bKMajor.assign(2, pick(0, 1));
    }
    for (int64_t extra = pick(0, 2); extra-- > 0;)
      s.tiles.push_back(pick(0, 1) ? DType::BF16 : DType::F32);
    for (int64_t extra = pick(0, 2); extra-- > 0;)
      s.outputs.push_back(pick(0, 1) ? DType::BF16 : DType::F32);
    s.ops = static_cast<double>(pick(0, 60));
    s.specialOps = static_cast<double>(pick(0, 6));
    auto candidates = chooseGemmTiles(s, machine, 1000);
    ASSERT_FALSE(candidates.empty()) << s.m << "x" << s.n << "x" << s.k << " " << dtypeName(s.a);
    for (const GemmCandidate &c : candidates) {
      EXPECT_EQ(gemmRefusal(s, c.tile, machine), "") << c.str();
      EXPECT_LE(static_cast<double>(gemmShared(s, c.tile).total), machine.sharedPerBlock);
      EXPECT_GT(c.seconds, 0);
      EXPECT_LT(c.seconds, 1e6) << c.str();
    }
  }
}

TEST(GemmModel, RefusesWithAReason) {
  TargetDesc machine = h200();
  GemmTile t;
  EXPECT_EQ(gemmRefusal(shape(64, 64, 64), t, machine), "");
  EXPECT_NE(gemmRefusal(shape(64, 64, 0), t, machine), "");
  EXPECT_NE(gemmRefusal(shape(64, 64, 64), t, *findTarget("a100")), "");
  EXPECT_TRUE(chooseGemmTiles(shape(64, 64, 64), *findTarget("a100")).empty());
  EXPECT_TRUE(chooseGemmTiles(shape(64, 64, 64), *findTarget("cpu")).empty());
  EXPECT_TRUE(chooseGemmTiles(shape(0, 64, 64), machine).empty());
  GemmShape s = shape(64, 64, 64, DType::F8E4M3);
  s.bKMajor = {false};
  EXPECT_NE(gemmRefusal(s, t, machine).find("K contiguous"), std::string::npos);
  s = shape(64, 64, 64);
  s.outputs = {DType::F8E4M3};
  EXPECT_EQ(gemmRefusal(s, t, machine), "");
  t.tileN = 136;
  t.buffers = 1;
  EXPECT_NE(gemmRefusal(s, t, machine).find("16 bytes"), std::string::npos);
  t = {};
  t.tileN = 256;
  t.blocks = 2;
  t.moreRegisters = true;
  EXPECT_NE(gemmRefusal(shape(64, 64, 64), t, machine).find("256 accumulators"), std::string::npos);
  t = {};
  t.stages = 12;
  EXPECT_NE(gemmRefusal(shape(64, 64, 64), t, machine).find("shared memory"), std::string::npos);
  for (auto change :
       {+[](GemmTile &x) { x.tileN = 12; }, +[](GemmTile &x) { x.tileN = 264; }, +[](GemmTile &x) { x.consumers = 4; },
        +[](GemmTile &x) { x.buffers = 3; }, +[](GemmTile &x) { x.unroll = 3; }, +[](GemmTile &x) { x.cluster = 3; },
        +[](GemmTile &x) { x.consumers = 1, x.alternate = true; }}) {
    t = {};
    change(t);
    EXPECT_NE(gemmRefusal(shape(64, 64, 64), t, machine), "") << t.str();
  }
}

TEST(GemmModel, TakesUnderAMillisecondAndNoChance) {
  double best = 1;
  for (int round = 0; round < 20; ++round) {
    auto start = std::chrono::steady_clock::now();
    auto a = chooseGemmTiles(withGelu(shape(4096, 4096, 4096)), h200());
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    auto b = chooseGemmTiles(withGelu(shape(4096, 4096, 4096)), h200());
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i)
      EXPECT_TRUE(a[i].tile == b[i].tile && a[i].seconds == b[i].seconds);
  }
#ifndef __SANITIZE_ADDRESS__
#if !__has_feature(address_sanitizer)
  EXPECT_LT(best, 1e-3);
#endif
#endif
}
