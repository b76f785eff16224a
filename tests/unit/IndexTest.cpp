// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Index expressions against brute force: each rule by hand, random expressions at every point of small spaces, random
// chains of layout ops against a tensor that is actually moved, and access analysis against the lanes themselves.
#include "ir/index/Access.h"

#include <gtest/gtest.h>

#include <functional>
#include <numeric>
#include <random>

using namespace rl::index;

namespace {

using Point = std::vector<int64_t>;

/// Calls f for every point of the space, in row-major order.
void forEach(const Shape &shape, const std::function<void(const Point &)> &f) {
  int64_t n = 1;
  for (int64_t e : shape)
    n *= e;
  Point p(shape.size(), 0);
  for (int64_t i = 0; i < n; ++i) {
    f(p);
    for (size_t d = shape.size(); d-- > 0;) {
      if (++p[d] < shape[d])
        break;
      p[d] = 0;
    }
  }
}

/// The point padded with zeros for dimensions that the context gained later.
Point padded(const Context &ctx, Point p) {
  p.resize(static_cast<size_t>(ctx.dimCount()), 0);
  return p;
}

//===--------------------------------------------------------------------------------------------------------------===//
// The rules, one by one
//===--------------------------------------------------------------------------------------------------------------===//

TEST(Expr, SumsAreCanonical) {
  Context c({8, 8});
  Expr a = c.dim(0), b = c.dim(1);
  EXPECT_EQ(c.add(a, b), c.add(b, a));
  EXPECT_EQ(c.sub(c.add(a, b), b), a);
  EXPECT_EQ(c.mul(c.add(a, b), 3), c.add(c.mul(b, 3), c.mul(a, 3)));
  EXPECT_EQ(c.mul(a, 0), c.constant(0));
  EXPECT_EQ(c.str(c.add(c.mul(a, 4096), c.floordiv(b, 3))), "d0*4096 + (d1 floordiv 3)");
  EXPECT_EQ(c.str(c.add(c.mul(a, -2), -7)), "-d0*2 - 7");
  EXPECT_EQ(c.str(c.mod(c.add(a, b), 5)), "((d0 + d1) mod 5)");
  EXPECT_EQ(c.str(c.constant(0)), "0");
}

TEST(Expr, Ranges) {
  Context c({8, 5});
  Expr a = c.dim(0), b = c.dim(1);
  EXPECT_EQ(a.range(), (Range{0, 7}));
  EXPECT_EQ(c.add(c.mul(a, -3), c.add(b, 2)).range(), (Range{-19, 6}));
  EXPECT_EQ(c.floordiv(c.add(a, -4), 3).range(), (Range{-2, 1}));
  EXPECT_EQ(c.mod(c.add(c.mul(a, 3), b), 7).range(), (Range{0, 6}));
}

TEST(Expr, SplitsMultiplesOff) { // R1
  Context c({9, 70});
  Expr a = c.dim(0), b = c.dim(1);
  Expr e = c.add(c.add(c.mul(a, 128), b), 64 * 3 + 5);
  EXPECT_EQ(c.floordiv(e, 64), c.add(c.add(c.mul(a, 2), c.floordiv(c.add(b, 5), 64)), 3));
  EXPECT_EQ(c.mod(e, 64), c.mod(c.add(b, 5), 64));
  // A negative constant: -1 = 64*(-1) + 63.
  EXPECT_EQ(c.floordiv(c.add(b, -1), 64), c.add(c.floordiv(c.add(b, 63), 64), -1));
}

TEST(Expr, RangeDecides) { // R2
  Context c({64, 100});
  Expr a = c.dim(0), b = c.dim(1);
  EXPECT_EQ(c.floordiv(a, 64), c.constant(0));
  EXPECT_EQ(c.mod(a, 64), a);
  EXPECT_EQ(c.floordiv(c.sub(c.constant(63), a), 64), c.constant(0));
  EXPECT_EQ(c.mod(c.sub(c.constant(127), a), 64), c.sub(c.constant(63), a));
  EXPECT_EQ(c.floordiv(c.add(a, 64), 64), c.constant(1));
  EXPECT_EQ(c.mod(c.add(a, -64), 64), a);
  Expr offset = c.floordiv(c.add(a, 100), 7); // 14 .. 23
  EXPECT_EQ(c.mod(c.mul(c.floordiv(offset, 8), 3), 3), c.constant(0));
  Expr narrow = c.floordiv(c.add(a, 100), 20); // 5 .. 8
  EXPECT_EQ(narrow.range(), (Range{5, 8}));
  EXPECT_EQ(c.mod(narrow, 5), c.add(narrow, -5));
  EXPECT_EQ(c.floordiv(narrow, 5), c.constant(1));
  EXPECT_FALSE(c.floordiv(b, 64).isConstant());
  EXPECT_FALSE(c.floordiv(c.add(a, 1), 64).isConstant());
}

TEST(Expr, CommonFactor) { // R3
  Context c({1000, 8, 16});
  Expr a = c.dim(0), l = c.dim(1), w = c.dim(2);
  EXPECT_EQ(c.floordiv(c.add(c.mul(a, 8), l), 64), c.floordiv(a, 8));
  EXPECT_EQ(c.mod(c.add(c.mul(a, 8), l), 64), c.add(c.mul(c.mod(a, 8), 8), l));
  EXPECT_EQ(c.floordiv(c.mul(a, 6), 4), c.floordiv(c.mul(a, 3), 2));
  EXPECT_EQ(c.mod(c.mul(a, 6), 4), c.mul(c.mod(c.mul(a, 3), 2), 2));
  // r up to 15 is too much for g = 8
  EXPECT_EQ(c.str(c.floordiv(c.add(c.mul(a, 8), w), 64)), "((d0*8 + d2) floordiv 64)");
  // the part below g may sit in any one multiple of it
  EXPECT_EQ(c.floordiv(c.add(c.add(c.mul(a, 8), l), 16), 64), c.floordiv(c.add(a, 2), 8));
}

TEST(Expr, Nesting) { // R4
  Context c({100000, 7});
  Expr x = c.dim(0), y = c.dim(1);
  EXPECT_EQ(c.floordiv(c.floordiv(x, 6), 35), c.floordiv(x, 210));
  EXPECT_EQ(c.floordiv(c.add(c.floordiv(x, 6), 4), 35), c.floordiv(c.add(x, 24), 210));
  EXPECT_EQ(c.floordiv(c.add(y, c.floordiv(x, 6)), 35), c.floordiv(c.add(c.mul(y, 6), x), 210));
  EXPECT_EQ(c.mod(c.mod(x, 60), 12), c.mod(x, 12));
  EXPECT_EQ(c.mod(c.add(c.mul(c.mod(x, 60), 2), y), 24), c.mod(c.add(c.mul(x, 2), y), 24));
  EXPECT_EQ(c.floordiv(c.mod(x, 60), 12), c.mod(c.floordiv(x, 12), 5));
}

TEST(Expr, Rejoins) { // R5
  Context c({100000, 7});
  Expr x = c.dim(0), y = c.dim(1);
  auto both = [&](Expr s, int64_t d, int64_t k) {
    return c.add(c.mul(c.floordiv(s, d), k * d), c.mul(c.mod(s, d), k));
  };
  EXPECT_EQ(both(x, 12, 1), x);
  EXPECT_EQ(both(x, 12, -5), c.mul(x, -5));
  EXPECT_EQ(both(c.add(c.mul(x, 3), y), 7, 2), c.mul(c.add(c.mul(x, 3), y), 2));
  EXPECT_EQ(both(c.floordiv(x, 10), 12, 3), c.mul(c.floordiv(x, 10), 3));
  EXPECT_EQ(c.sub(x, c.mul(c.floordiv(x, 12), 12)), c.mod(x, 12));
  EXPECT_EQ(c.add(c.mul(c.mod(c.floordiv(x, 12), 5), 12), c.mod(x, 12)), c.mod(x, 60));
  // other terms do not stand in the way
  EXPECT_EQ(c.add(both(x, 12, 1), c.mul(y, 100)), c.add(x, c.mul(y, 100)));
  // the wrong factor does
  Expr e = c.add(c.mul(c.floordiv(x, 12), 13), c.mod(x, 12));
  EXPECT_EQ(e.terms().size(), 2u);
}

TEST(Expr, TrivialDimensions) { // R6
  Context c({1, 0, 2});
  EXPECT_EQ(c.dim(0), c.constant(0));
  EXPECT_EQ(c.dim(1), c.constant(0));
  EXPECT_FALSE(c.dim(2).isConstant());
}

TEST(Expr, Queries) {
  Context c({1000, 1000, 8});
  Expr e = c.add(c.add(c.mul(c.dim(0), 4096), c.dim(2)), c.mul(c.floordiv(c.dim(1), 3), 64));
  EXPECT_EQ(e.coefficient(0), 4096);
  EXPECT_EQ(e.coefficient(1), 0);
  EXPECT_TRUE(e.dependsNonlinearly(1));
  EXPECT_FALSE(e.dependsNonlinearly(0));
  EXPECT_TRUE(e.dependsOn(1));
  EXPECT_EQ(e.dims(), (std::vector<int>{0, 1, 2}));
  EXPECT_EQ(e.divisor(2), 64);
  EXPECT_EQ(e.divisor(), 1);
  EXPECT_EQ(c.add(e, 24).divisor(2), 8);
  EXPECT_EQ(c.dim(2).divisor(2), 0);
  EXPECT_TRUE(e.fits32());
  EXPECT_FALSE(c.mul(c.dim(0), 3000000).fits32());
  EXPECT_TRUE(c.mul(c.dim(0), 2000000).fits32());
  // the final value is small, an intermediate one is not
  EXPECT_FALSE(c.floordiv(c.add(c.mul(c.dim(0), 3000001), c.dim(1)), 7000000).fits32());
}

TEST(Expr, HugeValuesAreSafe) {
  int64_t big = int64_t(1) << 62;
  Context c({big, big, 3});
  Expr e = c.add(c.add(c.mul(c.dim(0), 7), c.mul(c.dim(1), 7)), c.mul(c.dim(2), -7));
  EXPECT_EQ(e.range().hi, kPlusInfinity);
  EXPECT_EQ(e.range().lo, -14);
  EXPECT_FALSE(c.overflowed());
  // An infinite end is not used to drop a quotient, also after division.
  Expr q = c.floordiv(e, int64_t(1) << 61);
  EXPECT_FALSE(q.isConstant());
  EXPECT_EQ(q.range().hi, kPlusInfinity);
  EXPECT_FALSE(e.fits32());
  Expr neg = c.mul(e, -1);
  EXPECT_EQ(neg.range().lo, kMinusInfinity);
  EXPECT_EQ(c.sub(e, e), c.constant(0));
  Context d({4});
  d.mul(d.mul(d.dim(0), big), 4);
  EXPECT_TRUE(d.overflowed());
  // Element counts beyond 2^31 are ordinary.
  Context f({1 << 20, 1 << 20});
  EXPECT_EQ(linearize(f, identity(f, 2), {1 << 20, 1 << 20}).range().hi, (int64_t(1) << 40) - 1);
  EXPECT_FALSE(f.overflowed());
}

TEST(Expr, RestrictAndExpand) {
  Context c({128});
  Expr shifted = c.add(c.dim(0), -64);
  Expr r = c.restrict(shifted, 64);
  EXPECT_EQ(r.range(), (Range{0, 63}));
  EXPECT_EQ(c.restrict(shifted, 64), r);
  EXPECT_EQ(c.floordiv(r, 64), c.constant(0));
  EXPECT_EQ(c.expand(c.add(c.mul(r, 2), 1)), c.add(c.mul(shifted, 2), 1));
  EXPECT_EQ(c.restrict(c.dim(0), 128), c.dim(0));
  EXPECT_EQ(c.evaluate(r, {70}), 6);
  // nested
  Expr rr = c.restrict(c.add(r, -3), 50);
  EXPECT_EQ(c.expand(rr), c.add(c.dim(0), -67));
}

//===--------------------------------------------------------------------------------------------------------------===//
// Random expressions
//===--------------------------------------------------------------------------------------------------------------===//

/// An expression and the function it must be.
struct Checked {
  Expr e;
  std::function<int64_t(const Point &)> f;
};

Checked randomExpr(Context &c, std::mt19937 &rng, int depth, int rank) {
  auto pick = [&](int64_t n) { return static_cast<int64_t>(rng() % static_cast<uint64_t>(n)); };
  static const int64_t divisors[] = {1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32};
  if (depth == 0 || pick(6) == 0) {
    if (pick(5) == 0) {
      int64_t k = pick(41) - 20;
      return {c.constant(k), [k](const Point &) { return k; }};
    }
    int d = static_cast<int>(pick(rank));
    return {c.dim(d), [d](const Point &p) { return p[static_cast<size_t>(d)]; }};
  }
  Checked a = randomExpr(c, rng, depth - 1, rank);
  int64_t k = divisors[pick(11)];
  switch (pick(5)) {
  case 0:
  case 1: {
    Checked b = randomExpr(c, rng, depth - 1, rank);
    if (pick(3) == 0)
      return {c.sub(a.e, b.e), [=](const Point &p) { return a.f(p) - b.f(p); }};
    return {c.add(a.e, b.e), [=](const Point &p) { return a.f(p) + b.f(p); }};
  }
  case 2:
    if (pick(4) == 0)
      k = -k;
    return {c.mul(a.e, k), [=](const Point &p) { return a.f(p) * k; }};
  case 3: return {c.floordiv(a.e, k), [=](const Point &p) { return floorDiv(a.f(p), k); }};
  default: return {c.mod(a.e, k), [=](const Point &p) { return floorMod(a.f(p), k); }};
  }
}

TEST(Expr, RandomAgainstBruteForce) {
  std::mt19937 rng(1);
  static const int64_t extents[] = {1, 2, 3, 4, 6, 7, 8, 12};
  for (int round = 0; round < 20000; ++round) {
    Shape shape;
    for (int i = 0; i < 3; ++i)
      shape.push_back(extents[rng() % 8]);
    Context c(shape);
    Checked x = randomExpr(c, rng, 1 + static_cast<int>(rng() % 6), 3);
    int64_t lo = INT64_MAX, hi = INT64_MIN, g = 0;
    forEach(shape, [&](const Point &p) {
      int64_t want = x.f(p);
      ASSERT_EQ(c.evaluate(x.e, p), want) << c.str(x.e);
      lo = std::min(lo, want);
      hi = std::max(hi, want);
      g = std::gcd(g, want);
    });
    ASSERT_LE(x.e.range().lo, lo) << c.str(x.e);
    ASSERT_GE(x.e.range().hi, hi) << c.str(x.e);
    if (x.e.divisor() != 0) {
      ASSERT_EQ(g % x.e.divisor(), 0) << c.str(x.e);
    } else {
      ASSERT_EQ(g, 0);
    }
    for (int d = 0; d < 3; ++d)
      if (!x.e.dependsOn(d))
        forEach(shape, [&](Point p) {
          int64_t v = c.evaluate(x.e, p);
          p[static_cast<size_t>(d)] = 0;
          ASSERT_EQ(c.evaluate(x.e, p), v);
        });
  }
}

TEST(Expr, RandomSubstitution) {
  std::mt19937 rng(2);
  for (int round = 0; round < 10000; ++round) {
    Shape shape{6, 4, 5};
    Context c(shape);
    Checked x = randomExpr(c, rng, 4, 3);
    // d1 (0..3) <- a function of d0 and d2 in its range
    Checked y = randomExpr(c, rng, 3, 3);
    Expr with = c.mod(y.e, 4);
    Expr e = c.substitute(x.e, 1, with);
    forEach(shape, [&](const Point &p) {
      Point q = p;
      q[1] = floorMod(y.f(p), 4);
      ASSERT_EQ(c.evaluate(e, p), x.f(q)) << c.str(x.e) << " with " << c.str(with) << " is " << c.str(e);
    });
  }
}

//===--------------------------------------------------------------------------------------------------------------===//
// Layout
//===--------------------------------------------------------------------------------------------------------------===//

TEST(Layout, ReshapeOfHeadsAndBack) {
  const int64_t B = 6, H = 32, D = 128;
  Context c({B, H, D});
  Tuple two = reshapeOperand(c, identity(c, 3), {B, H, D}, {B, H * D});
  EXPECT_EQ(two[0], c.dim(0));
  EXPECT_EQ(two[1], c.add(c.mul(c.dim(1), D), c.dim(2)));
  Tuple three = reshapeOperand(c, two, {B, H * D}, {B, H, D});
  EXPECT_EQ(three, identity(c, 3));
  Context k({B, H * D});
  Tuple t = reshapeOperand(k, identity(k, 2), {B, H * D}, {B, H, D});
  EXPECT_EQ(k.str(t[1]), "(d1 floordiv 128)");
  EXPECT_EQ(k.str(t[2]), "(d1 mod 128)");
  EXPECT_EQ(reshapeOperand(k, t, {B, H, D}, {B, H * D}), identity(k, 2));
  EXPECT_EQ(linearize(k, t, {B, H, D}), linearize(k, identity(k, 2), {B, H * D}));
}

TEST(Layout, ReshapeRoundTripsGivePlainDims) {
  const std::vector<std::pair<Shape, Shape>> cases{
      {{6, 4}, {8, 3}},         {{2, 3, 4, 5}, {5, 4, 3, 2}}, {{7}, {7, 1}},
      {{1, 7, 1}, {7}},         {{12}, {2, 1, 2, 3}},         {{3, 1, 4}, {1, 12, 1, 1}},
      {{30, 2}, {4, 15}},       {{8, 9, 10}, {6, 120}},       {{1}, {}},
      {{16, 8, 4}, {4, 8, 16}}, {{2, 9, 2}, {3, 12}},         {{36, 35}, {20, 63}},
  };
  for (const auto &[a, b] : cases) {
    Context c(a);
    Tuple inner = reshapeOperand(c, identity(c, a.size()), a, b);
    EXPECT_EQ(reshapeOperand(c, inner, b, a), identity(c, a.size())) << rl::index::Context().dimCount();
    EXPECT_EQ(linearize(c, inner, b), linearize(c, identity(c, a.size()), a));
  }
}

TEST(Layout, EmptyAndRankZero) {
  Context c({0, 3});
  EXPECT_EQ(reshapeOperand(c, identity(c, 2), {0, 3}, {3, 0, 2}).size(), 3u);
  EXPECT_EQ(linearize(c, {}, {}), c.constant(0));
  EXPECT_TRUE(delinearize(c, c.constant(0), {}).empty());
  Context d({5});
  EXPECT_TRUE(broadcastIndex(d, identity(d, 1), {5}, {}).empty());
  EXPECT_EQ(reshapeOperand(d, {}, {}, {1, 1}), Tuple(2, d.constant(0)));
}

TEST(Layout, CatKnowsItsBounds) {
  // Second half of a row of 128 comes from a [10, 64] tensor that is a view of [640].
  Context c({10, 128});
  Guarded g = catOperand(c, identity(c, 2), 1, {64, 64}, 1);
  ASSERT_EQ(g.conditions.size(), 1u);
  EXPECT_EQ(g.conditions[0], (Condition{c.dim(1), 64, 128}));
  Tuple flat = reshapeOperand(c, g.index, {10, 64}, {640});
  Tuple back = reshapeOperand(c, flat, {640}, {10, 64});
  EXPECT_EQ(back, g.index);
  EXPECT_EQ(c.str(address(c, back, {10, 64})), "d0*64 + d1 - 64");
  EXPECT_TRUE(catOperand(c, sliceOperand(c, identity(c, 2), 1, 0, 0), 1, {64, 64}, 1).never());
  Context one({4});
  EXPECT_TRUE(catOperand(one, identity(one, 1), 0, {0, 4}, 1).conditions.empty());
  EXPECT_TRUE(catOperand(one, identity(one, 1), 0, {0, 4}, 0).never());
}

/// A tensor whose elements are numbered, moved for real, beside the operand index that the library computes.
struct Chain {
  std::vector<std::function<Guarded(Context &, const Tuple &)>>
      steps; // operand from result, in the order of application
  Shape shape;
  std::vector<int64_t> values; // -1: padding or another operand
};

int64_t offsetOf(const Point &p, const Shape &s) {
  int64_t o = 0;
  for (size_t i = 0; i < s.size(); ++i)
    o = o * s[i] + p[i];
  return o;
}

void applyRandomOp(Chain &chain, std::mt19937 &rng) {
  auto pick = [&](int64_t n) { return static_cast<int64_t>(rng() % static_cast<uint64_t>(n)); };
  Shape old = chain.shape, shape = old;
  std::vector<int64_t> before = chain.values;
  int64_t count = static_cast<int64_t>(before.size());
  std::function<int64_t(const Point &)> read; // the value at a result's point
  size_t rank = old.size();
  auto plain = [](auto f) { return [f](Context &c, const Tuple &t) { return Guarded{f(c, t), {}}; }; };
  size_t d = rank ? static_cast<size_t>(pick(static_cast<int64_t>(rank))) : 0;
  switch (rank ? pick(9) : pick(2)) {
  case 0: { // unsqueeze
    if (rank >= 5)
      return;
    size_t at = static_cast<size_t>(pick(static_cast<int64_t>(rank) + 1));
    shape.insert(shape.begin() + static_cast<long>(at), 1);
    chain.steps.push_back(
        plain([=](Context &, const Tuple &t) { return unsqueezeOperand(t, static_cast<int64_t>(at)); }));
    read = [=](Point p) {
      p.erase(p.begin() + static_cast<long>(at));
      return before[static_cast<size_t>(offsetOf(p, old))];
    };
    break;
  }
  case 1: { // reshape: random factorisation
    shape.clear();
    int64_t left = count;
    while (left > 1 && shape.size() < 4) {
      std::vector<int64_t> divs;
      for (int64_t k = 1; k <= left; ++k)
        if (left % k == 0)
          divs.push_back(k);
      int64_t f = shape.size() == 3 ? left : divs[static_cast<size_t>(pick(static_cast<int64_t>(divs.size())))];
      shape.push_back(f);
      left /= f;
    }
    if (count == 0)
      shape = {3, 0};
    chain.steps.push_back(plain([=](Context &c, const Tuple &t) { return reshapeOperand(c, t, shape, old); }));
    read = [=](const Point &p) { return before[static_cast<size_t>(offsetOf(p, shape))]; };
    break;
  }
  case 2: { // permute
    std::vector<int64_t> dims(rank);
    std::iota(dims.begin(), dims.end(), 0);
    std::shuffle(dims.begin(), dims.end(), rng);
    for (size_t i = 0; i < rank; ++i)
      shape[i] = old[static_cast<size_t>(dims[i])];
    chain.steps.push_back(plain([=](Context &, const Tuple &t) { return permuteOperand(t, dims); }));
    read = [=](const Point &p) {
      Point q(rank);
      for (size_t i = 0; i < rank; ++i)
        q[static_cast<size_t>(dims[i])] = p[i];
      return before[static_cast<size_t>(offsetOf(q, old))];
    };
    break;
  }
  case 3: { // expand an extent of 1, and perhaps a new leading dimension
    if (count > 200 || rank >= 5)
      return;
    for (int64_t &e : shape)
      if (e == 1)
        e = 1 + pick(3);
    bool lead = pick(2);
    if (lead)
      shape.insert(shape.begin(), 2);
    chain.steps.push_back(plain([=](Context &c, const Tuple &t) { return broadcastIndex(c, t, shape, old); }));
    read = [=](Point p) {
      if (lead)
        p.erase(p.begin());
      for (size_t i = 0; i < old.size(); ++i)
        if (old[i] == 1)
          p[i] = 0;
      return before[static_cast<size_t>(offsetOf(p, old))];
    };
    break;
  }
  case 4: { // slice with a step
    if (old[d] == 0)
      return;
    int64_t start = pick(old[d]), step = 1 + pick(3);
    if (pick(3) == 0)
      step = -step;
    int64_t most = step > 0 ? (old[d] - 1 - start) / step + 1 : start / -step + 1;
    shape[d] = 1 + pick(most);
    chain.steps.push_back(
        plain([=](Context &c, const Tuple &t) { return sliceOperand(c, t, static_cast<int64_t>(d), start, step); }));
    read = [=](Point p) {
      p[d] = start + step * p[d];
      return before[static_cast<size_t>(offsetOf(p, old))];
    };
    break;
  }
  case 5: { // flip
    chain.steps.push_back(
        plain([=](Context &c, const Tuple &t) { return flipOperand(c, t, old, {static_cast<int64_t>(d)}); }));
    read = [=](Point p) {
      p[d] = old[d] - 1 - p[d];
      return before[static_cast<size_t>(offsetOf(p, old))];
    };
    break;
  }
  case 6: { // pad or crop
    if (count > 200)
      return;
    std::vector<int64_t> low(rank, 0);
    low[d] = pick(4) - (old[d] > 2 ? 1 : 0);
    shape[d] += low[d] + pick(3);
    chain.steps.push_back([=](Context &c, const Tuple &t) { return padOperand(c, t, low, old); });
    read = [=](Point p) {
      p[d] -= low[d];
      return p[d] < 0 || p[d] >= old[d] ? -1 : before[static_cast<size_t>(offsetOf(p, old))];
    };
    break;
  }
  case 7: { // cat with others
    if (count > 200)
      return;
    std::vector<int64_t> extents{pick(3), 1 + pick(2)};
    size_t which = static_cast<size_t>(pick(3));
    extents.insert(extents.begin() + static_cast<long>(which), old[d]);
    shape[d] = extents[0] + extents[1] + extents[2];
    int64_t offset = 0;
    for (size_t k = 0; k < which; ++k)
      offset += extents[k];
    chain.steps.push_back(
        [=](Context &c, const Tuple &t) { return catOperand(c, t, static_cast<int64_t>(d), extents, which); });
    read = [=](Point p) {
      p[d] -= offset;
      return p[d] < 0 || p[d] >= old[d] ? -1 : before[static_cast<size_t>(offsetOf(p, old))];
    };
    break;
  }
  default: { // squeeze
    if (old[d] != 1)
      return;
    shape.erase(shape.begin() + static_cast<long>(d));
    chain.steps.push_back(
        plain([=](Context &c, const Tuple &t) { return squeezeOperand(c, t, static_cast<int64_t>(d)); }));
    read = [=](Point p) {
      p.insert(p.begin() + static_cast<long>(d), 0);
      return before[static_cast<size_t>(offsetOf(p, old))];
    };
    break;
  }
  }
  chain.shape = shape;
  chain.values.clear();
  forEach(shape, [&](const Point &p) { chain.values.push_back(read(p)); });
}

bool holds(Context &c, const Conditions &conditions, const Point &p) {
  for (const Condition &k : conditions) {
    int64_t v = c.evaluate(k.expr, p);
    if (v < k.lo || v >= k.hi)
      return false;
  }
  return true;
}

TEST(Layout, RandomChainsAgainstMovedTensors) {
  std::mt19937 rng(3);
  static const int64_t extents[] = {1, 2, 3, 4, 6, 8};
  int guardedChains = 0;
  for (int round = 0; round < 20000; ++round) {
    Chain chain;
    int rank = static_cast<int>(rng() % 4);
    for (int i = 0; i < rank; ++i)
      chain.shape.push_back(rng() % 40 == 0 ? 0 : extents[rng() % 6]);
    const Shape base = chain.shape;
    int64_t n = std::accumulate(base.begin(), base.end(), int64_t(1), std::multiplies<>());
    chain.values.resize(static_cast<size_t>(n));
    std::iota(chain.values.begin(), chain.values.end(), 0);
    int ops = 1 + static_cast<int>(rng() % 7);
    for (int i = 0; i < ops; ++i)
      applyRandomOp(chain, rng);

    Context c(chain.shape);
    Tuple t = identity(c, chain.shape.size());
    Conditions conditions;
    for (size_t i = chain.steps.size(); i-- > 0;) {
      Guarded g = chain.steps[i](c, t);
      t = g.index;
      for (const Condition &k : g.conditions)
        conditions.push_back(expanded(c, k));
    }
    guardedChains += !conditions.empty();
    Expr offset = address(c, t, base);
    size_t i = 0;
    forEach(chain.shape, [&](const Point &p) {
      Point q = padded(c, p);
      int64_t want = chain.values[i++];
      bool in = holds(c, conditions, q);
      ASSERT_EQ(in, want >= 0);
      if (in) {
        ASSERT_EQ(c.evaluate(offset, q), want) << c.str(offset);
      }
    });

    // The collapsed space visits the same points in the same order.
    std::vector<int> dims(chain.shape.size());
    std::iota(dims.begin(), dims.end(), 0);
    std::vector<Expr> all{offset};
    for (const Condition &k : conditions)
      all.push_back(k.expr);
    Collapsed small = collapseDims(c, dims, all);
    ASSERT_EQ(small.exprs.size(), all.size());
    ASSERT_LE(small.dims.size(), std::max<size_t>(dims.size(), 1));
    i = 0;
    std::vector<Point> order;
    forEach(chain.shape, [&](const Point &p) { order.push_back(p); });
    forEach(small.shape, [&](const Point &p) {
      ASSERT_LT(i, order.size());
      Point q(static_cast<size_t>(c.dimCount()), 0);
      for (size_t k = 0; k < p.size(); ++k)
        q[static_cast<size_t>(small.dims[k])] = p[k];
      for (size_t k = 0; k < all.size(); ++k)
        ASSERT_EQ(c.evaluate(small.exprs[k], q), c.evaluate(all[k], padded(c, order[i])));
      for (const auto &[d, value] : small.replacements)
        ASSERT_EQ(c.evaluate(value, q), order[i][static_cast<size_t>(d)]);
      ++i;
    });
    ASSERT_EQ(i, order.size());

    // Access analysis against the lanes.
    if (chain.shape.empty())
      continue;
    int inner = static_cast<int>(chain.shape.size()) - 1;
    for (int64_t V : {1, 2, 4, 8}) {
      if (chain.shape.back() < V)
        continue;
      Access a = classify(c, offset, inner, V);
      std::vector<bool> agree;
      for (const Condition &k : conditions)
        agree.push_back(lanesAgree(c, k, inner, V));
      forEach(chain.shape, [&](const Point &p) {
        if (p.back() % V != 0 || p.back() + V > chain.shape.back())
          return;
        Point q = padded(c, p);
        int64_t first = c.evaluate(offset, q);
        ASSERT_EQ(floorMod(first, a.alignElements), 0) << c.str(offset);
        std::vector<bool> held;
        for (const Condition &k : conditions)
          held.push_back(holds(c, {k}, q));
        for (int64_t l = 0; l < V; ++l, ++q[static_cast<size_t>(inner)]) {
          if (a.kind != Access::Gather) {
            ASSERT_EQ(c.evaluate(offset, q), first + a.stride * l) << c.str(offset);
          }
          for (size_t k = 0; k < conditions.size(); ++k)
            if (agree[k]) {
              ASSERT_EQ(holds(c, {conditions[k]}, q), held[k]) << c.str(conditions[k].expr);
            }
        }
      });
    }
  }
  EXPECT_GT(guardedChains, 500);
}

//===--------------------------------------------------------------------------------------------------------------===//
// Access
//===--------------------------------------------------------------------------------------------------------------===//

TEST(Access, HandCases) {
  Context c({8192, 128});
  Expr r = c.dim(0), d = c.dim(1);
  auto kind = [&](Expr e, int64_t V = 8) { return classify(c, e, 1, V); };
  Expr row = c.add(c.mul(r, 128), d);
  EXPECT_EQ(kind(row), (Access{Access::Contiguous, 1, 8}));
  EXPECT_EQ(kind(c.add(row, -64)), (Access{Access::Contiguous, 1, 8}));
  EXPECT_EQ(kind(c.add(row, 3)), (Access{Access::Contiguous, 1, 1}));
  EXPECT_EQ(kind(c.add(row, 12)), (Access{Access::Contiguous, 1, 4}));
  EXPECT_EQ(kind(c.add(c.mul(r, 130), d)), (Access{Access::Contiguous, 1, 2}));
  EXPECT_EQ(kind(r), (Access{Access::Uniform, 0, 1}));
  EXPECT_EQ(kind(c.constant(0)), (Access{Access::Uniform, 0, 8}));
  EXPECT_EQ(kind(c.add(c.mul(d, 8192), r)), (Access{Access::Strided, 8192, 1}));
  EXPECT_EQ(kind(c.sub(c.add(c.mul(r, 128), 127), d)), (Access{Access::Strided, -1, 1}));
  EXPECT_EQ(kind(c.mod(d, 12)).kind, Access::Gather);
  EXPECT_EQ(kind(c.mod(d, 12), 4), (Access{Access::Contiguous, 1, 4}));
  EXPECT_EQ(kind(c.mod(d, 64)), (Access{Access::Contiguous, 1, 8}));
  EXPECT_EQ(kind(c.floordiv(d, 64)), (Access{Access::Uniform, 0, 1}));
  EXPECT_EQ(kind(c.floordiv(d, 2)).kind, Access::Gather);
  EXPECT_EQ(kind(c.floordiv(d, 2), 2), (Access{Access::Uniform, 0, 1}));
  EXPECT_EQ(kind(d, 1), (Access{Access::Contiguous, 1, 1}));
  EXPECT_EQ(kind(r, 1).kind, Access::Uniform);
  EXPECT_EQ(kind(c.mul(d, 4096), 1), (Access{Access::Strided, 4096, 1}));
  EXPECT_EQ(kind(c.floordiv(d, 2), 1).kind, Access::Gather);
}

TEST(Access, LanesAgreeOnHalves) {
  Context c({64, 128});
  Condition upper{c.dim(1), 64, 128}, odd{c.dim(1), 3, 128}, row{c.dim(0), 5, 60};
  EXPECT_TRUE(lanesAgree(c, upper, 1, 8));
  EXPECT_TRUE(lanesAgree(c, row, 1, 8));
  EXPECT_FALSE(lanesAgree(c, odd, 1, 8));
  EXPECT_TRUE(lanesAgree(c, {c.add(c.mul(c.dim(0), 128), c.dim(1)), 1024, 4096}, 1, 8));
  EXPECT_FALSE(lanesAgree(c, {c.add(c.mul(c.dim(0), 128), c.dim(1)), 1024, 4097}, 1, 8));
}

TEST(Access, ConditionsWithoutLanes) {
  Context c({1000, 8});
  const Expr e = c.add(c.mul(c.mod(c.dim(0), 16), 8), c.dim(1)), eight = c.mod(c.dim(0), 16);
  EXPECT_EQ(independentOf(c, {e, 0, 64}, 1), (Conditions{{c.floordiv(c.add(c.mul(eight, 8), -64), 8), -8, 0}}));
  EXPECT_EQ(independentOf(c, {e, 63, 128}, 1), (Conditions{{e, 63, 128}}));
  EXPECT_EQ(independentOf(c, {c.dim(1), 3, 8}, 1), (Conditions{{c.dim(1), 3, 8}}));
  EXPECT_EQ(independentOf(c, {eight, 3, 8}, 1), (Conditions{{eight, 3, 8}}));
  // Both bounds; and by evaluation.
  for (auto [lo, hi] : {std::pair<int64_t, int64_t>{32, 96},
                        {8, 128},
                        {-5, 64},
                        {64, 64},
                        {64, 32},
                        {40, 47},
                        {0, 128},
                        {128, 200},
                        {-9, 0}}) {
    Conditions without = independentOf(c, {e, lo, hi}, 1);
    for (const Condition &k : without)
      EXPECT_EQ(k.expr.dependsOn(1), lo >= hi || hi == 47 || lo > 127 || hi < 1) << lo << " " << hi;
    for (int64_t a = 0; a < 40; ++a)
      for (int64_t b = 0; b < 8; ++b) {
        int64_t v = a % 16 * 8 + b;
        EXPECT_EQ(holds(c, without, {a, b}), lo <= v && v < hi) << lo << " " << hi << " " << a << " " << b;
      }
  }
}

TEST(Access, Collapse) {
  {
    Context c({512, 11008});
    Expr x = c.add(c.mul(c.dim(0), 11008), c.dim(1));
    Collapsed k = collapseDims(c, {0, 1}, {x, x, c.constant(0)});
    EXPECT_EQ(k.shape, (Shape{5636096}));
    EXPECT_EQ(k.exprs[0], c.dim(k.dims[0]));
    EXPECT_EQ(k.exprs[2], c.constant(0));
    EXPECT_EQ(collapseDims(c, {0, 1}, {x, c.dim(1)}).shape, (Shape{512, 11008}));
    EXPECT_EQ(collapseDims(c, {0, 1}, {x, c.dim(0)}).shape, (Shape{512, 11008}));
  }
  { // the outer pair merges though the inner does not; extents of 1 vanish
    Context c({4, 1, 6, 10});
    Expr x = linearize(c, identity(c, 4), {4, 1, 6, 10});
    Collapsed k = collapseDims(c, {0, 1, 2, 3}, {x, c.dim(3)});
    EXPECT_EQ(k.shape, (Shape{24, 10}));
    EXPECT_EQ(k.replacements.size(), 3u);
  }
  { // inside an atom too a merge must not cost a mod
    Context c({8, 10});
    EXPECT_EQ(collapseDims(c, {0, 1}, {c.floordiv(c.dim(1), 3)}).shape, (Shape{8, 10}));
    EXPECT_EQ(collapseDims(c, {0, 1}, {c.floordiv(c.dim(0), 3)}).shape, (Shape{80})); // at d floordiv 30: no dearer
  }
  { // a view inside: (10*d0 + d1) floordiv 4 follows the merge
    Context c({8, 10});
    Expr x = c.floordiv(c.add(c.mul(c.dim(0), 10), c.dim(1)), 4);
    Collapsed k = collapseDims(c, {0, 1}, {x});
    EXPECT_EQ(k.shape, (Shape{80}));
    EXPECT_EQ(k.exprs[0], c.floordiv(c.dim(k.dims[0]), 4));
  }
  {
    Context c(Shape{});
    EXPECT_EQ(collapseDims(c, {}, {c.constant(0)}).shape, (Shape{1}));
    Context e({3, 0, 2});
    EXPECT_EQ(collapseDims(e, {0, 1, 2}, {e.add(e.mul(e.dim(0), 100), e.dim(2))}).shape, (Shape{0}));
    Context o({1, 1});
    EXPECT_EQ(collapseDims(o, {0, 1}, {o.constant(7)}).shape, (Shape{1}));
  }
}

TEST(Layout, LongChainsStayCheap) {
  const Shape a{24, 36}, b{36, 24};
  Context c(a);
  Tuple t = identity(c, 2);
  for (int i = 0; i < 2000; ++i)
    t = reshapeOperand(c, reshapeOperand(c, t, a, b), b, a);
  EXPECT_EQ(t, identity(c, 2));
  // Transposing in between leaves nothing to cancel. The tree doubles; the shared nodes, and the time, must not.
  for (int i = 0; i < 300; ++i)
    t = permuteOperand(reshapeOperand(c, t, a, b), {1, 0});
  EXPECT_EQ(t[0].weight(), kMaxWeight);
  EXPECT_TRUE(t[0].fits32());
  EXPECT_TRUE(t[0].range().within(0, 23));
  EXPECT_EQ(classify(c, c.add(c.mul(t[0], 36), t[1]), 1, 4).kind, Access::Gather);
}

} // namespace
