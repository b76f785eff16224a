// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Placement of intermediates in the arena.
#include "compiler/Plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

using namespace rl;

namespace {

int64_t aligned(int64_t bytes) { return (bytes + 255) / 256 * 256; }

/// Checks what every placement must hold, and returns the arena's size.
int64_t place(const std::vector<Lifetime> &tensors, std::vector<int64_t> &offsets) {
  int64_t size = placeInArena(tensors, offsets);
  EXPECT_EQ(offsets.size(), tensors.size());
  EXPECT_EQ(size % 256, 0);
  for (size_t i = 0; i < tensors.size(); ++i) {
    EXPECT_GE(offsets[i], 0);
    EXPECT_EQ(offsets[i] % 256, 0) << i;
    EXPECT_LE(offsets[i] + tensors[i].bytes, size) << i;
    for (size_t j = 0; j < i; ++j) {
      bool together = tensors[i].first <= tensors[j].last && tensors[j].first <= tensors[i].last;
      bool overlap = offsets[i] < offsets[j] + tensors[j].bytes && offsets[j] < offsets[i] + tensors[i].bytes;
      EXPECT_FALSE(together && overlap) << i << " and " << j;
    }
  }
  // No less than what is alive at once.
  int last = 0;
  for (const Lifetime &t : tensors)
    last = std::max(last, t.last);
  for (int at = 0; at <= last; ++at) {
    int64_t alive = 0;
    for (const Lifetime &t : tensors)
      alive += t.first <= at && at <= t.last ? t.bytes : 0;
    EXPECT_GE(size, alive) << "launch " << at;
  }
  return size;
}

TEST(Arena, Nothing) {
  std::vector<int64_t> offsets{7};
  EXPECT_EQ(placeInArena({}, offsets), 0);
  EXPECT_TRUE(offsets.empty());
}

TEST(Arena, OneTensorIsAligned) {
  std::vector<int64_t> offsets;
  EXPECT_EQ(place({{1, 0, 1}}, offsets), 256);
  EXPECT_EQ(place({{256, 0, 1}}, offsets), 256);
  EXPECT_EQ(place({{257, 0, 1}}, offsets), 512);
}

TEST(Arena, TensorsThatNeverMeetShareMemory) {
  std::vector<int64_t> offsets;
  EXPECT_EQ(place({{1000, 0, 1}, {1000, 2, 3}, {500, 4, 9}}, offsets), 1024);
  EXPECT_EQ(offsets, (std::vector<int64_t>{0, 0, 0}));
}

TEST(Arena, AKernelsInputAndOutputDoNotShare) {
  // One is last read by the launch that writes the other.
  std::vector<int64_t> offsets;
  EXPECT_EQ(place({{1000, 0, 1}, {1000, 1, 2}}, offsets), 2048);
}

TEST(Arena, AGapIsFilled) {
  // The large ones stand around a place that is free while the small one lives.
  std::vector<int64_t> offsets;
  EXPECT_EQ(place({{4096, 0, 3}, {2048, 0, 0}, {2048, 0, 3}, {1024, 1, 3}}, offsets), 8192);
  EXPECT_LT(offsets[3], offsets[2]);
}

TEST(Arena, AChainTakesTwoPlaces) {
  std::vector<Lifetime> chain;
  for (int i = 0; i < 1000; ++i)
    chain.push_back({4096, i, i + 1});
  std::vector<int64_t> offsets;
  EXPECT_EQ(placeInArena(chain, offsets), 8192);
}

TEST(Arena, EmptyTensorsTakeNoPlace) {
  std::vector<int64_t> offsets;
  EXPECT_EQ(place({{0, 0, 5}, {512, 0, 5}, {0, 2, 3}}, offsets), 512);
}

TEST(Arena, BeyondFourGigabytes) {
  std::vector<int64_t> offsets;
  int64_t big = (int64_t(1) << 33) + 1;
  EXPECT_EQ(place({{big, 0, 2}, {big, 1, 3}, {big, 3, 4}}, offsets), 2 * aligned(big));
}

TEST(Arena, RandomLifetimesNeverOverlap) {
  std::mt19937 random(1);
  for (int round = 0; round < 400; ++round) {
    size_t n = random() % 40;
    int launches = 1 + static_cast<int>(random() % 20);
    std::vector<Lifetime> tensors;
    int64_t sum = 0;
    for (size_t i = 0; i < n; ++i) {
      int first = static_cast<int>(random() % static_cast<unsigned>(launches));
      int last = std::min(launches - 1, first + static_cast<int>(random() % 6));
      tensors.push_back({static_cast<int64_t>(random() % 5000), first, last});
      sum += aligned(tensors.back().bytes);
    }
    std::vector<int64_t> offsets, again;
    int64_t size = place(tensors, offsets);
    EXPECT_LE(size, sum) << "no sharing at all is better";
    EXPECT_EQ(placeInArena(tensors, again), size);
    EXPECT_EQ(again, offsets) << "the same lifetimes, another placement";
    if (HasFailure())
      return;
  }
}

/// The least arena over all orders in which tensors could be placed lowest first: what the fixed order is measured against.
int64_t leastOverOrders(const std::vector<Lifetime> &tensors) {
  std::vector<size_t> order(tensors.size());
  for (size_t i = 0; i < order.size(); ++i)
    order[i] = i;
  int64_t least = INT64_MAX;
  do {
    std::vector<std::pair<size_t, int64_t>> placed;
    int64_t size = 0;
    for (size_t i : order) {
      int64_t at = 0;
      for (bool moved = true; moved;) {
        moved = false;
        for (auto [j, offset] : placed) {
          bool together = tensors[i].first <= tensors[j].last && tensors[j].first <= tensors[i].last;
          if (together && at < offset + aligned(tensors[j].bytes) && offset < at + aligned(tensors[i].bytes)) {
            at = offset + aligned(tensors[j].bytes);
            moved = true;
          }
        }
      }
      placed.push_back({i, at});
      size = std::max(size, at + aligned(tensors[i].bytes));
    }
    least = std::min(least, size);
  } while (std::next_permutation(order.begin(), order.end()));
  return least;
}

TEST(Arena, CloseToTheBestOfAllOrders) {
  std::mt19937 random(2);
  for (int round = 0; round < 60; ++round) {
    std::vector<Lifetime> tensors;
    for (int i = 0; i < 6; ++i) {
      int first = static_cast<int>(random() % 6);
      tensors.push_back(
          {static_cast<int64_t>(256 * (1 + random() % 8)), first, first + static_cast<int>(random() % 4)});
    }
    std::vector<int64_t> offsets;
    int64_t size = place(tensors, offsets), best = leastOverOrders(tensors);
    EXPECT_GE(size, best);
    EXPECT_LE(static_cast<double>(size), 1.5 * static_cast<double>(best));
    if (HasFailure())
      return;
  }
}

} // namespace
