// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/gpu/GemmHarness.h"

#include <algorithm>

namespace rl::gemmtest {

std::vector<GemmCase> gemmCases() {
  const cost::GemmTile wide{.tileN = 256, .stages = 4, .buffers = 2};
  const cost::GemmTile square{.tileN = 128, .stages = 6, .buffers = 2};
  const cost::GemmTile square4{.tileN = 128, .stages = 4, .buffers = 2};
  const cost::GemmTile tall{.tileN = 168, .blocks = 2, .stages = 3, .buffers = 3, .moreRegisters = true};
  const cost::GemmTile small{.tileN = 64, .consumers = 1, .stages = 6, .buffers = 1, .blocksPerSm = 2};
  const cost::GemmTile narrow{.tileN = 24, .consumers = 1, .stages = 8, .buffers = 2};
  const cost::GemmTile pair{.tileN = 256, .stages = 4, .cluster = 2, .buffers = 2};
  const cost::GemmTile pairSquare{.tileN = 128, .stages = 5, .cluster = 2, .buffers = 1};
  const cost::GemmTile residual{.tileN = 256, .stages = 3, .buffers = 4};
  const cost::GemmTile residualHalf{.tileN = 256, .stages = 4, .buffers = 1};
  const cost::GemmTile twice{.tileN = 128, .stages = 4, .buffers = 2};
  const cost::GemmTile turns{.tileN = 128, .blocks = 2, .alternate = true, .stages = 5, .buffers = 2};
  const cost::GemmTile turnsPair{.tileN = 128,
                                 .blocks = 2,
                                 .alternate = true,
                                 .stages = 5,
                                 .cluster = 2,
                                 .buffers = 2,
                                 .unroll = 2,
                                 .moreRegisters = true};
  const cost::GemmTile turnsThin{.tileN = 64, .alternate = true, .stages = 7, .buffers = 1, .unroll = 4};
  const cost::GemmTile three{.tileN = 144, .consumers = 3, .stages = 4, .buffers = 1, .unroll = 4};
  const cost::GemmTile unrolled{.tileN = 256, .stages = 4, .buffers = 2, .unroll = 4, .moreRegisters = true};
  using E = GemmCase::Epilogue;
  std::vector<GemmCase> out;
  auto add = [&](int64_t m, int64_t n, int64_t k, const cost::GemmTile &tile, E epilogue = E::Plain) -> GemmCase & {
    GemmCase c;
    c.m = m;
    c.n = n;
    c.k = k;
    c.tile = tile;
    c.epilogue = epilogue;
    out.push_back(c);
    return out.back();
  };
  // Edges of M, N and K; one tile, fewer and more than there are SMs.
  add(128, 256, 64, wide);
  add(512, 512, 512, wide);
  add(130, 264, 72, wide);
  add(1000, 1000, 1000, wide);
  add(77, 520, 136, square);
  add(1, 8, 8, square);
  add(1, 16, 4096, narrow);
  add(3000, 2000, 504, square);
  add(4096, 4096, 4096, wide);
  // N that no tensor map takes: pairs, then single columns.
  add(300, 258, 128, wide);
  add(300, 257, 128, wide);
  add(1796, 1796, 256, square, E::BiasGelu);
  add(65, 33, 40, narrow, E::BiasGelu);
  // Orders of the operands.
  for (const cost::GemmTile &tile : {wide, tall, small, pair, turns, turnsPair, three}) {
    GemmCase a = add(392, 520, 328, tile);
    out.back().aKMajor = false;
    a.bKMajor = false;
    out.push_back(a);
    a.aKMajor = false;
    out.push_back(a);
  }
  // Tiles.
  add(512, 1008, 256, tall);
  add(1000, 1008, 200, tall, E::BiasGelu);
  add(640, 1000, 512, small);
  add(2048, 2048, 128, small, E::BiasGelu);
  add(100, 200, 304, narrow, E::BiasGelu);
  add(1024, 1024, 512, pair);
  add(384, 520, 512, pair, E::BiasGelu);
  add(3000, 1000, 256, pairSquare);
  add(100, 100, 64, pairSquare, E::BiasGelu);
  for (const cost::GemmTile &tile : {turns, turnsPair, turnsThin, three, unrolled}) {
    add(1000, 1000, 1000, tile);
    add(3000, 2000, 136, tile, E::BiasGelu);
    add(130, 264, 8, tile, E::OwnLoads).tile.stages = 3;
    add(77, 264, 64, tile, E::BiasGelu).batch = {200}; // one stage of K, and more tiles than blocks
    add(333, 520, 520, tile, E::RowScale).tile.stages = 3;
    add(200, 136, 64, tile).batch = {7};
  }
  add(4096, 4096, 1024, turns);
  add(4096, 4096, 1024, turnsPair, E::BiasGelu);
  // Epilogues.
  for (E e : {E::BiasGelu, E::BiasResidual, E::SwiGlu, E::TwoOutputs, E::RowScale}) {
    cost::GemmTile tile = e == E::BiasResidual ? residual : e == E::TwoOutputs || e == E::RowScale ? square : twice;
    if (e == E::TwoOutputs || e == E::RowScale)
      tile.stages = 4;
    add(333, 520, 200, tile, e);
    add(1024, 1536, 512, tile, e);
    add(200, 328, 136, tile, e).batch = {3};
  }
  add(1000, 1032, 256, residualHalf, E::BiasResidual);
  add(1000, 1032, 24, residual, E::BiasResidual);
  add(700, 1008, 256, {.tileN = 168, .blocks = 2, .stages = 2, .buffers = 6, .moreRegisters = true}, E::BiasResidual);
  add(700, 1000, 256, {.tileN = 64, .consumers = 1, .stages = 4, .buffers = 1}, E::BiasResidual);
  add(700, 1000, 256, {.tileN = 64, .blocks = 2, .stages = 4, .buffers = 2}, E::SwiGlu);
  add(700, 1000, 256,
      {.tileN = 64, .blocks = 2, .alternate = true, .stages = 5, .buffers = 1, .unroll = 2, .moreRegisters = true},
      E::SwiGlu);
  add(2000, 1000, 256, {.tileN = 128, .blocks = 2, .alternate = true, .stages = 4, .buffers = 4}, E::BiasResidual);
  add(2000, 1000, 256, {.tileN = 128, .blocks = 2, .alternate = true, .stages = 4, .buffers = 2, .unroll = 2},
      E::BiasResidual);
  add(512, 512, 256, {.tileN = 128, .stages = 4, .cluster = 2, .buffers = 2}, E::SwiGlu).bKMajor = false;
  add(333, 257, 200, square4, E::TwoOutputs);
  add(333, 258, 200, square4, E::RowScale).batch = {2};
  add(1000, 1032, 256, {.tileN = 64, .consumers = 3, .blocks = 2, .stages = 3, .buffers = 2});
  add(1000, 1032, 256, {.tileN = 64, .consumers = 3, .blocks = 2, .stages = 3, .buffers = 2}).aKMajor = false;
  // Batches.
  add(200, 136, 64, wide).batch = {5};
  add(200, 136, 64, square4, E::RowScale).batch = {2, 3};
  add(64, 64, 128, small, E::BiasGelu).batch = {2, 2, 3};
  {
    GemmCase &c = add(200, 136, 64, wide, E::BiasResidual);
    c.batch = {2, 3};
    c.tile = residual;
    c.bBroadcast = true;
  }
  {
    GemmCase &c = add(136, 104, 72, pair);
    c.batch = {3};
    c.aKMajor = c.bKMajor = false;
  }
  // Types.
  for (DType t : {DType::F16, DType::F8E4M3, DType::F8E5M2, DType::F32}) {
    add(1000, 1000, 512, t == DType::F32 ? square4 : wide, t == DType::F32 ? E::Plain : E::BiasGelu).type = t;
    add(333, 520, 208, square4).type = t;
    out.back().tile.stages = 4;
  }
  add(333, 520, 208, residual, E::BiasResidual).type = DType::F16;
  for (const cost::GemmTile &tile :
       {square4, three, cost::GemmTile{.tileN = 32, .consumers = 1, .stages = 4, .buffers = 1, .unroll = 2},
        cost::GemmTile{.tileN = 16, .consumers = 1, .stages = 4, .buffers = 1},
        cost::GemmTile{.tileN = 80, .consumers = 1, .stages = 4, .buffers = 2}}) {
    add(333, 528, 208, tile).type = DType::I8;
    add(333, 528, 208, tile, E::ToF8);
    add(333, 520, 208, tile, E::ToF8).type = DType::F8E4M3; // rows that no tensor map takes
    out.back().tile.unroll = 1;                             // the plain stores beside four groups want more registers
  }
  add(333, 529, 208, turns, E::ToF8);
  // Sums over parts of K, added up in f32; with scales of their rows and columns.
  const cost::GemmTile promoted{.tileN = 168, .stages = 4, .buffers = 1, .unroll = 2, .moreRegisters = true};
  const cost::GemmTile promotedPair{.tileN = 128, .stages = 4, .cluster = 2, .buffers = 2, .moreRegisters = true};
  const cost::GemmTile promotedTall{.tileN = 64, .blocks = 2, .stages = 4, .buffers = 1, .moreRegisters = true};
  const cost::GemmTile promotedOne{.tileN = 96, .consumers = 1, .stages = 4, .buffers = 2};
  const cost::GemmTile promotedThree{.tileN = 96, .consumers = 3, .stages = 3, .buffers = 2, .moreRegisters = true};
  // Of tiles that begin and end amid the columns of a scale, or have several.
  const cost::GemmTile promotedWide{.tileN = 160, .stages = 4, .buffers = 1, .moreRegisters = true};
  const cost::GemmTile promotedWidest{.tileN = 192, .stages = 3, .buffers = 1, .unroll = 2, .moreRegisters = true};
  for (const cost::GemmTile &tile :
       {promoted, promotedPair, promotedTall, promotedOne, promotedThree, promotedWide, promotedWidest})
    for (int64_t scaleRows : {0, 128, 64, 96, 32}) {
      if (scaleRows > 0 && tile.tileN == 168)
        continue; // pieces of eight columns
      if (tile.tileN == 192 && scaleRows > 0 && scaleRows < 96)
        continue; // more of them than have registers
      if (scaleRows == 32 ? tile.tileN != 160 : scaleRows == 96 && tile.tileN < 160)
        continue;
      for (E e : {E::Plain, E::BiasGelu, E::RowScale}) {
        auto flags = [&](GemmCase &c) -> GemmCase & {
          c.type = scaleRows == 64 ? DType::F8E5M2 : DType::F8E4M3;
          c.promotes = true;
          c.scaleRows = scaleRows;
          c.tile.unroll = std::min(c.tile.unroll, e == E::Plain ? 2 : 1);
          return c;
        };
        flags(add(1000, 1000, 2048, tile, e));
        flags(add(77, 264, 144, tile, e)).batch = {3};
        flags(add(130, 520, 16, tile, e)).special = true;
        flags(add(200, 1000, 784, tile, e)); // seven stages, the last of 16
      }
    }
  // Left operands that are computed as they are multiplied: one stage of K, two, and many; edges; batches; tiles of all forms.
  for (GemmCase::Left left : {GemmCase::Affine, GemmCase::FromF32, GemmCase::Gated, GemmCase::Exp}) {
    const int stages = left == GemmCase::FromF32 || left == GemmCase::Gated ? 2 : 3;
    const cost::GemmTile leftWide{.tileN = 256, .stages = stages, .buffers = 2, .moreRegisters = true};
    const cost::GemmTile leftTall{.tileN = 64, .blocks = 2, .stages = stages, .buffers = 2, .moreRegisters = true};
    const cost::GemmTile leftOne{.tileN = 64, .consumers = 1, .stages = stages, .buffers = 1, .unroll = 2};
    const cost::GemmTile leftThree{.tileN = 96, .consumers = 3, .stages = 2, .buffers = 2, .moreRegisters = true};
    const cost::GemmTile leftPair{.tileN = 128, .stages = stages, .cluster = 2, .buffers = 2, .moreRegisters = true};
    for (const cost::GemmTile &tile : {leftWide, leftTall, leftOne, leftThree, leftPair}) {
      add(1000, 1000, 1000, tile).left = left;
      add(333, 520, 64, tile, E::BiasGelu).left = left;
      GemmCase &c = add(77, 264, 136, tile);
      c.left = left;
      c.batch = {3};
      c.type = DType::F16;
      GemmCase &s = add(333, 520, 72, tile, E::RowScale);
      s.left = left;
      s.special = true;
      s.bKMajor = false;
    }
    add(4096, 4096, 1024, leftWide).left = left;
    add(512, 520, 256, {.tileN = 64, .stages = stages, .buffers = 1}, E::SwiGlu).left = left;
  }
  // Weights of 8 bits, widened in registers, and results turned round: one stage of K and several, odd and even; edges; all forms.
  for (DType weights : {DType::I8, DType::F8E4M3, DType::F8E5M2}) {
    const cost::GemmTile turnedWide{.tileN = 256, .stages = 3, .buffers = 2, .moreRegisters = true};
    const cost::GemmTile turnedOdd{.tileN = 176, .stages = 2, .buffers = 1};
    const cost::GemmTile turnedTall{.tileN = 64, .blocks = 2, .stages = 3, .buffers = 2, .moreRegisters = true};
    const cost::GemmTile turnedOne{.tileN = 72, .consumers = 1, .stages = 3, .buffers = 1, .blocksPerSm = 2};
    const cost::GemmTile turnedThree{.tileN = 64, .consumers = 3, .stages = 4, .buffers = 1};
    const cost::GemmTile turnedTwo{.tileN = 64, .stages = 3, .buffers = 1, .moreRegisters = true};
    for (const cost::GemmTile &tile : {turnedWide, turnedOdd, turnedTall, turnedOne, turnedThree}) {
      add(1000, 1000, 1008, tile).weights = weights;
      add(3000, 2064, 512, tile, E::RowScale).weights = weights;
      add(77, 264, 16, tile, E::BiasGelu).weights = weights;
      add(333, 520, 128, tile, E::BiasResidual).weights = weights;
      GemmCase &c = add(333, 1040, 192, tile, E::ToF8);
      c.weights = weights;
      c.type = DType::F16;
      GemmCase &s = add(65, 520, 80, tile, E::OwnLoads);
      s.weights = weights;
      s.special = true;
      add(200, 136, 272, tile, E::TwoOutputs).weights = weights;
    }
    add(512, 520, 256, turnedTwo, E::SwiGlu).weights = weights;
    add(300, 1000, 1040, turnedTwo, E::SwiGlu).weights = weights;
    add(4096, 4096, 1024, turnedWide).weights = weights;
  }
  // NaNs and infinities: where they are and no further, also beside the edges that are filled with zeros.
  for (E e : {E::Plain, E::BiasGelu, E::BiasResidual, E::RowScale, E::ToF8}) {
    add(333, 520, 136, e == E::BiasResidual ? residual : square4, e).special = true;
    add(333, 257, 136, square4, e == E::BiasResidual ? E::OwnLoads : e).special = true;
  }
  return out;
}

} // namespace rl::gemmtest
