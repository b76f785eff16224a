// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of few rows whose right operand streams from memory: where the kernel reads, what has none, how it is divided between
// SMs, and the times that were measured.
#include "passes/plan/Stream.h"
#include "tests/unit/TraceHarness.h"

#include <functional>

namespace {

using Weights = std::function<TensorHandle(GraphBuilder &)>;

struct Made {
  Graph graph;
  StreamForm form;
};

/// `weights` are made of [n, k], or [k, n], with the ops before decomposition that a graph has here: casts, products, views.
Made formOf(int64_t m, int64_t k, const Weights &weights, DType left = DType::BF16, bool strict = false,
            bool kMajor = true) {
  GraphBuilder g("few");
  g.strict(strict);
  TensorHandle a = g.input("a", left, {1, m, k});
  g.output(g.matmul(a, weights(g), {.transposeB = kMajor, .outDtype = DType::F32}), "y");
  Made out;
  out.graph = graphOf(g);
  std::vector<NodeId> products;
  for (NodeId n = 0; n < out.graph.nodes.size(); ++n)
    if (isProduct(out.graph.nodes[n]))
      products.push_back(n);
  std::vector<Trace> operands;
  for (const Operand &o : out.graph.nodes[products[0]].inputs)
    operands.push_back(*traceOperand(out.graph, o.value, {}, true));
  out.form = streamForm(out.graph, products, {&operands[0], &operands[1]});
  return out;
}

Weights scaled(int64_t n, int64_t k, std::vector<int64_t> scale, DType type = DType::BF16, DType narrow = DType::I8) {
  return [=](GraphBuilder &g) {
    TensorHandle w = g.cast(g.input("w", narrow, {1, n, k}), type);
    return w * g.input("s", type, scale);
  };
}

TEST(Stream, ReadsWhatIsInMemory) {
  Made plain = formOf(16, 4096, [](GraphBuilder &g) { return g.input("w", DType::BF16, {1, 11008, 4096}); });
  ASSERT_EQ(plain.form.refusal, "");
  EXPECT_EQ(plain.form.shape.right, DType::BF16);
  EXPECT_EQ(plain.form.right[0].rows.stride, 4096);
  EXPECT_EQ(plain.form.right[0].scale.value, kNone);
  // A part of larger rows.
  Made part = formOf(16, 4096, [](GraphBuilder &g) {
    return g.slice(g.input("w", DType::BF16, {1, 512, 4160}), {.dim = 2, .start = 16, .end = 4112});
  });
  ASSERT_EQ(part.form.refusal, "");
  EXPECT_EQ(part.form.right[0].rows.stride, 4160);
  EXPECT_EQ(part.form.right[0].rows.offset, 16);
}

TEST(Stream, WeightsAlongN) {
  auto form = [](const Weights &weights) { return formOf(16, 4096, weights, DType::BF16, false, false).form; };
  StreamForm whole = form([](GraphBuilder &g) { return g.input("w", DType::BF16, {1, 4096, 11008}); });
  ASSERT_EQ(whole.refusal, "");
  EXPECT_FALSE(whole.shape.kMajor);
  EXPECT_EQ(whole.shape.n, 11008);
  EXPECT_EQ(whole.right[0].rows.stride, 11008);
  StreamForm part = form([](GraphBuilder &g) {
    return g.slice(g.input("w", DType::BF16, {1, 4096, 528}), {.dim = 2, .start = 8, .end = 520});
  });
  ASSERT_EQ(part.refusal, "");
  EXPECT_EQ(part.right[0].rows.stride, 528);
  EXPECT_EQ(part.right[0].rows.offset, 8);
  EXPECT_EQ(form([](GraphBuilder &g) { return g.input("w", DType::BF16, {1, 4096, 1004}); }).refusal,
            "'w': its rows, 1004 elements apart, or its start are no multiples of 16 bytes");
  EXPECT_EQ(form([](GraphBuilder &g) { return g.cast(g.input("w", DType::I8, {1, 4096, 1024}), DType::BF16); }).refusal,
            "'w' is i8, and its rows are not along K");
  EXPECT_EQ(
      form([](GraphBuilder &g) { return g.permute(g.input("w", DType::BF16, {1, 1024, 4096}), {0, 2, 1}); }).refusal,
      "'w' is not read row by row");
}

TEST(Stream, ScalesMultiplySums) {
  Made rows = formOf(3, 256, scaled(96, 256, {1, 96, 1}));
  ASSERT_EQ(rows.form.refusal, "");
  EXPECT_EQ(rows.form.shape.right, DType::I8);
  EXPECT_EQ(rows.graph.values[rows.form.right[0].rows.value].name, "w");
  EXPECT_EQ(rows.graph.values[rows.form.right[0].scale.value].name, "s");
  EXPECT_EQ(rows.form.right[0].scale.stride, 1);
  Made one = formOf(3, 256, scaled(96, 256, {1, 1, 1}));
  ASSERT_EQ(one.form.refusal, "");
  EXPECT_EQ(one.form.right[0].scale.stride, 0);
  Made none =
      formOf(3, 256, [](GraphBuilder &g) { return g.cast(g.input("w", DType::I8, {1, 96, 256}), DType::BF16); });
  ASSERT_EQ(none.form.refusal, "");
  EXPECT_EQ(none.form.shape.right, DType::I8);
  EXPECT_EQ(none.form.right[0].scale.value, kNone);
}

TEST(Stream, RefusesTheRest) {
  auto why = [](const Made &m) { return m.form.refusal; };
  EXPECT_EQ(why(formOf(1, 256, scaled(96, 256, {1, 96, 1}, DType::BF16, DType::F8E5M2))), "");
  EXPECT_NE(why(formOf(1, 256, scaled(96, 256, {1, 96, 1}, DType::BF16, DType::F8E8M0))), "") << "powers of two";
  EXPECT_NE(why(formOf(65, 256, scaled(96, 256, {1, 96, 1}))), "");
  EXPECT_NE(why(formOf(3, 256, scaled(96, 256, {1, 1, 256}))), "") << "a scale along K";
  EXPECT_NE(why(formOf(3, 256, scaled(96, 256, {1, 96, 1}), DType::BF16, true)), "") << "strict rounds each element";
  EXPECT_NE(why(formOf(3, 264, scaled(96, 264, {1, 96, 1}))), "") << "rows of 264 bytes";
  EXPECT_NE(why(formOf(3, 256, [](GraphBuilder &g) { return g.relu(g.input("w", DType::BF16, {1, 96, 256})); })), "");
  // A cast of the file's own rounds what is scaled.
  EXPECT_NE(why(formOf(3, 256,
                       [](GraphBuilder &g) {
                         TensorHandle w = g.cast(g.input("w", DType::I8, {1, 96, 256}), DType::F32);
                         return g.cast(w * g.input("s", DType::F32, {1, 96, 1}), DType::BF16);
                       })),
            "");
}

cost::StreamShape shapeOf(int64_t m, DType right, int64_t n = 11008, int64_t k = 4096) {
  cost::StreamShape s;
  s.m = m;
  s.n = n;
  s.k = k;
  s.right = right;
  s.bytes = static_cast<double>(n * k * static_cast<int64_t>(dtypeSize(right)) + m * (n + k) * 2);
  return s;
}

cost::TargetDesc h200() { return *cost::findTarget("h200"); }

TEST(Stream, TilesAreWhole) {
  for (DType right : {DType::BF16, DType::I8, DType::F8E4M3})
    for (int64_t n : {100, 4096, 5501, 11008, 28672, 128256})
      for (int64_t m : {1, 8, 9, 16, 31, 64})
        for (int manner : {0, 1, 2, 3}) {
          const int products = manner % 2 + 1;
          cost::StreamShape s = shapeOf(m, right, n);
          s.products = products;
          s.kMajor = manner < 2;
          if (!s.kMajor && (right != DType::BF16 || n % 8 != 0))
            continue;
          std::optional<cost::StreamCandidate> c = cost::chooseStream(s, n % 2 == 0, 20, h200());
          if (!c)
            continue;
          const cost::StreamTile &t = c->tile;
          EXPECT_EQ(t.direct, m == 1 && s.kMajor) << c->str();
          if (!s.kMajor)
            EXPECT_TRUE(t.rows() == t.tileN && (t.tileN == 32 || t.tileN == 64)) << "a line, or half of one";
          if (t.direct) {
            EXPECT_EQ(32 % (t.tileN * products), 0) << "lanes that end with one sum each";
            continue;
          }
          EXPECT_EQ(t.stages % t.parts(), 0) << "a slot of the ring is one warp's";
          EXPECT_GE(t.rows(), t.tileN);
          EXPECT_LE(t.tileN, 256);
          if (n % 2 == 0)
            EXPECT_EQ(t.tileN % 2, 0);
          cost::StreamShared shared = cost::streamShared(s, t);
          EXPECT_EQ(shared.right % 1024 + shared.left % 1024, 0);
          EXPECT_LE(static_cast<double>(shared.total + 1024) * t.blocksPerSm, h200().sharedPerSm);
          EXPECT_LE(shared.sums, shared.barriers);
        }
  EXPECT_FALSE(cost::chooseStream(shapeOf(65, DType::I8), true, 20, h200()));
  EXPECT_FALSE(cost::chooseStream(shapeOf(1, DType::I8), true, 20, *cost::findTarget("a100")));
  EXPECT_FALSE(cost::chooseStream(shapeOf(1, DType::I8), true, 250, h200())) << "an epilogue without registers";
}

TEST(Stream, ThreadsLoadWholeVectorsOfARow) {
  auto areDirect = [](DType right, int64_t k) {
    std::vector<cost::StreamCandidate> all = cost::streamCandidates(shapeOf(1, right, 11008, k), true, 20, h200());
    EXPECT_FALSE(all.empty());
    return std::any_of(all.begin(), all.end(), [](const cost::StreamCandidate &c) { return c.tile.direct; });
  };
  EXPECT_TRUE(areDirect(DType::I8, 4080));
  EXPECT_FALSE(areDirect(DType::I8, 4084)) << "of rows that lie apart";
  EXPECT_FALSE(areDirect(DType::I8, 4088));
  EXPECT_TRUE(areDirect(DType::BF16, 4088));
  EXPECT_FALSE(areDirect(DType::BF16, 4084));
}

/// On an H200, with the launch (tests/bench/NOTES.md).
TEST(Stream, TimesAsMeasured) {
  struct {
    int64_t m;
    DType right;
    double us;
    int64_t n = 11008, k = 4096;
  } rows[] = {{1, DType::BF16, 28.6},        {16, DType::BF16, 29.3},     {64, DType::BF16, 32.1},
              {1, DType::I8, 17.4},          {1, DType::F8E4M3, 17.5},    {16, DType::I8, 19.7},
              {32, DType::I8, 21.4},         {64, DType::I8, 25.2},       {1, DType::I8, 11.0, 4096},
              {1, DType::BF16, 14.6, 4096},  {1, DType::I8, 7.3, 1024},   {1, DType::I8, 34.2, 28672},
              {16, DType::BF16, 15.0, 4096}, {64, DType::I8, 15.3, 4096}, {1, DType::I8, 18.1, 4096, 11008},
              {16, DType::I8, 14.4, 6144}};
  for (const auto &r : rows) {
    std::optional<cost::StreamCandidate> c = cost::chooseStream(shapeOf(r.m, r.right, r.n, r.k), true, 8, h200());
    ASSERT_TRUE(c);
    double us = (c->seconds + h200().launchFirst + h200().memoryLatency) * 1e6;
    EXPECT_NEAR(us, r.us, 0.12 * r.us) << r.m << " rows: " << c->str();
  }
}

} // namespace
