// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where the kernel of warpgroup products reads and stores: against the interpreter, which puts the views of a tensor of
// consecutive numbers in order. And what has no such kernel, with the reason.
#include "ir/interp/Interpreter.h"
#include "passes/plan/Wgmma.h"
#include "tests/unit/TraceHarness.h"

#include <cstring>
#include <functional>

namespace {

using Views = std::function<TensorHandle(GraphBuilder &, TensorHandle)>;
using Extents = std::vector<int64_t>;

TensorHandle same(GraphBuilder &, TensorHandle x) { return x; }

struct Case {
  int64_t batch, m, n, k;
  Extents a, b;       ///< in memory
  Views viewA, viewB; ///< to [batch, m, k], [batch, k, n], or with the last two dimensions swapped:
  bool transposeA = false, transposeB = false;
  Extents tile = {}; ///< that is added to the product, through viewTile to its shape
  Views viewTile = same;
  Views viewOut = same;
  DType dtype = DType::BF16;
  bool computed = false; ///< the left operand, as it is multiplied
};

/// The views of 0, 1, 2 ..., in order.
std::vector<int32_t> orderOf(const Extents &shape, const Views &views) {
  GraphBuilder g("order");
  TensorHandle x = g.input("x", DType::I32, shape);
  // A view of an input is an output like any other.
  g.output(views(g, x) + 0, "y");
  Graph graph = graphOf(g);
  HostTensor t{{DType::I32, shape}, {}};
  std::vector<int32_t> numbers(static_cast<size_t>(t.type.elements()));
  for (size_t i = 0; i < numbers.size(); ++i)
    numbers[i] = static_cast<int32_t>(i);
  t.data.resize(numbers.size() * 4);
  std::memcpy(t.data.data(), numbers.data(), t.data.size());
  Result<std::vector<HostTensor>> out = interpret(graph, {t}, {});
  if (!out) {
    ADD_FAILURE() << out.error().str();
    return {};
  }
  numbers.resize((*out)[0].data.size() / 4);
  std::memcpy(numbers.data(), (*out)[0].data.data(), (*out)[0].data.size());
  return numbers;
}

struct Made {
  Graph graph;
  WgmmaForm form;
};

std::vector<NodeId> productsOf(const Graph &graph) {
  std::vector<NodeId> out;
  for (NodeId n = 0; n < graph.nodes.size(); ++n)
    if (isProduct(graph.nodes[n]))
      out.push_back(n);
  return out;
}

/// What is behind the products, of `rows` of `width`.
Result<Trace> traceEpilogue(const Graph &graph, int64_t rows, int64_t width, int64_t lanes) {
  TraceRequest request;
  request.graph = &graph;
  request.outputs = graph.outputs;
  request.boundary.assign(graph.values.size(), false);
  request.lanes = lanes;
  request.width = width;
  request.rows = rows;
  request.products = true;
  return tracePointwise(request);
}

Made formOf(const Case &c) {
  GraphBuilder g("product");
  TensorHandle a = c.viewA(g, g.input("a", c.dtype, c.a)), b = c.viewB(g, g.input("b", c.dtype, c.b));
  TensorHandle y = g.matmul(a, b, {.transposeA = c.transposeA, .transposeB = c.transposeB, .outDtype = DType::F32});
  if (!c.tile.empty())
    y = y + c.viewTile(g, g.input("t", DType::BF16, c.tile));
  g.output(c.viewOut(g, y), "y");
  Made out;
  out.graph = graphOf(g);
  const std::vector<NodeId> products = productsOf(out.graph);
  Result<Trace> epilogue = traceEpilogue(out.graph, c.batch * c.m, c.n, wgmmaLanes(c.n));
  if (!epilogue) {
    ADD_FAILURE() << epilogue.error().str();
    return out;
  }
  std::vector<Trace> operands;
  for (const Operand &o : out.graph.nodes[products[0]].inputs)
    operands.push_back(*traceOperand(out.graph, o.value, {}, true, c.computed && operands.empty() ? kLeftLanes : 0));
  out.form = wgmmaForm(out.graph, *epilogue, products, {&operands[0], &operands[1]});
  return out;
}

/// `row`: of the right operand of N, otherwise of all M, of which the form may have parts as batches.
int64_t place(const WgmmaForm &f, const WgmmaAccess &a, int64_t batch, int64_t m, int64_t row, int64_t column,
              bool isRight = false) {
  const int64_t apart = m / f.shape.m;
  batch = batch * apart + (isRight ? apart - 1 : row / f.shape.m);
  if (!isRight)
    row %= f.shape.m;
  int64_t at = a.offset + row * a.row;
  at += a.part ? column % a.part * a.column + column / a.part * a.partStride : column * a.column;
  for (size_t d = f.batch.size(); d-- > 0;) {
    at += batch % f.batch[d] * a.batch[d];
    batch /= f.batch[d];
  }
  return at;
}

void check(const Case &c) {
  Made made = formOf(c);
  const WgmmaForm &f = made.form;
  ASSERT_EQ(f.refusal, "");
  int64_t batches = 1;
  for (int64_t e : f.batch)
    batches *= e;
  ASSERT_EQ(batches, f.shape.batch);
  ASSERT_EQ(batches * f.shape.m, c.batch * c.m);
  std::vector<int32_t> a = orderOf(c.a, c.viewA), b = orderOf(c.b, c.viewB);
  Views out = [&](GraphBuilder &g, TensorHandle x) { return c.viewOut(g, x); };
  std::vector<int32_t> y = orderOf({c.batch, c.m, c.n}, out), t;
  if (!c.tile.empty())
    t = orderOf(c.tile,
                [&](GraphBuilder &g, TensorHandle x) { return g.expand(c.viewTile(g, x), {c.batch, c.m, c.n}); });
  auto number = [](int64_t v) { return static_cast<size_t>(v); };
  for (int64_t i = 0; i < c.batch; ++i)
    for (int64_t k = 0; k < c.k; ++k) {
      for (int64_t m = 0; m < c.m; ++m)
        ASSERT_EQ(a[number(c.transposeA ? (i * c.k + k) * c.m + m : (i * c.m + m) * c.k + k)],
                  place(f, f.left, i, c.m, m, k));
      for (int64_t n = 0; n < c.n; ++n)
        ASSERT_EQ(b[number(c.transposeB ? (i * c.n + n) * c.k + k : (i * c.k + k) * c.n + n)],
                  place(f, f.right[0], i, c.m, n, k, true));
    }
  const std::vector<WgmmaAccess> *ahead = !f.tiles.empty() ? &f.tiles : !f.columns.empty() ? &f.columns : &f.rows;
  ASSERT_EQ(ahead->size(), t.empty() ? 0 : 1);
  for (int64_t i = 0; i < c.batch; ++i)
    for (int64_t m = 0; m < c.m; ++m)
      for (int64_t n = 0; n < c.n; ++n) {
        int64_t own = (i * c.m + m) * c.n + n;
        ASSERT_EQ(y[number(place(f, f.outputs[0], i, c.m, m, n))], own);
        if (!t.empty()) {
          ASSERT_EQ(t[number(own)], place(f, ahead->front(), i, c.m, m, n));
        }
      }
}

Views permuted(std::vector<int64_t> dims, Extents shape) {
  return [=](GraphBuilder &g, TensorHandle x) { return g.reshape(g.permute(x, dims), shape); };
}

} // namespace

TEST(WgmmaForm, Plain) {
  check({1, 24, 16, 32, {1, 24, 32}, {1, 32, 16}, same, same});
  check({3, 24, 16, 32, {3, 32, 24}, {3, 16, 32}, same, same, true, true});
}

// [batch, row, head, element] in memory.
TEST(WgmmaForm, Heads) {
  check({6,
         16,
         24,
         8,
         {2, 16, 3, 8},
         {2, 24, 3, 8},
         permuted({0, 2, 1, 3}, {6, 16, 8}),
         permuted({0, 2, 1, 3}, {6, 24, 8}),
         false,
         true});
}

// Results go back to where heads are apart, and a mask is the same for all heads.
TEST(WgmmaForm, HeadsOfResults) {
  Case c{6, 16, 8, 24, {6, 16, 24}, {6, 24, 8}, same, same};
  c.viewOut = [](GraphBuilder &g, TensorHandle x) { return g.permute(g.reshape(x, {2, 3, 16, 8}), {0, 2, 1, 3}); };
  check(c);
  Case masked{6, 16, 24, 8, {6, 16, 8}, {6, 24, 8}, same, same, false, true};
  masked.tile = {2, 1, 16, 24};
  masked.viewTile = [](GraphBuilder &g, TensorHandle x) { return g.reshape(g.expand(x, {2, 3, 16, 24}), {6, 16, 24}); };
  Made made = formOf(masked);
  // Batches are apart for the mask's sake: it is not loaded ahead, but the kernel is there.
  EXPECT_EQ(made.form.refusal, "");
}

// Heads put beside each other are K in parts, and with batches M apart: [batch, head, row, element] in memory.
TEST(WgmmaForm, HeadsAlongK) {
  check({1, 24, 16, 192, {3, 24, 64}, {1, 192, 16}, permuted({1, 0, 2}, {1, 24, 192}), same});
  Case batches{1, 96, 16, 192, {4, 3, 24, 64}, {1, 16, 192}, permuted({0, 2, 1, 3}, {1, 96, 192}), same, false, true};
  check(batches);
  Made made = formOf(batches);
  EXPECT_EQ(made.form.batch, (Extents{4}));
  EXPECT_EQ(made.form.shape.m, 24);
  EXPECT_EQ(made.form.shape.bBatches, 1);
  EXPECT_EQ(made.form.left.part, 64);
  // Gradients of weights: K is batches and rows, M is heads and their elements.
  check({1, 48, 16, 128, {2, 3, 64, 16}, {1, 128, 16}, permuted({1, 3, 0, 2}, {1, 48, 128}), same});
  check({1, 48, 16, 128, {2, 3, 64, 16}, {1, 128, 16}, permuted({0, 2, 1, 3}, {1, 128, 48}), same, true});
  // Of the right operand.
  check({1, 24, 16, 192, {1, 24, 192}, {3, 64, 16}, same, [](GraphBuilder &g, TensorHandle x) {
           return g.reshape(x, {1, 192, 16});
         }});
  check({1, 24, 16, 192, {1, 24, 192}, {3, 16, 64}, same, permuted({1, 0, 2}, {1, 16, 192}), false, true});
}

// Columns taken apart into heads: parts of N.
TEST(WgmmaForm, ColumnsToHeads) {
  Case c{1, 96, 64, 32, {1, 96, 32}, {1, 32, 64}, same, same};
  c.viewOut = [](GraphBuilder &g, TensorHandle x) { return g.permute(g.reshape(x, {4, 24, 2, 32}), {0, 2, 1, 3}); };
  check(c);
  Made made = formOf(c);
  EXPECT_EQ(made.form.shape.m, 24);
  EXPECT_EQ(made.form.shape.columnPart, 32);
  EXPECT_EQ(made.form.outputs[0].part, 32);
  // What is added lies as the product does: the batches of M are one stride there, and columns no parts.
  c.tile = {96, 64};
  check(c);
}

// Groups of queries share keys; a part of a larger tensor.
TEST(WgmmaForm, BroadcastAndSlice) {
  check({8,
         16,
         24,
         8,
         {8, 16, 8},
         {4, 1, 24, 8},
         same,
         [](GraphBuilder &g, TensorHandle x) { return g.reshape(g.expand(x, {4, 2, 24, 8}), {8, 24, 8}); },
         false,
         true});
  check({1,
         16,
         24,
         32,
         {1, 16, 96},
         {1, 24, 32},
         [](GraphBuilder &g, TensorHandle x) { return g.slice(x, {.dim = 2, .start = 32, .end = 64}); },
         same,
         false,
         true});
}

TEST(WgmmaForm, TilesColumnsRows) {
  for (Extents tile :
       {Extents{2, 24, 16}, Extents{24, 16}, Extents{1, 1, 16}, Extents{2, 1, 16}, Extents{2, 24, 1}, Extents{24, 1}}) {
    SCOPED_TRACE(str(tile));
    Case c{2, 24, 16, 32, {2, 24, 32}, {2, 32, 16}, same, same};
    c.tile = tile;
    check(c);
    Made made = formOf(c);
    EXPECT_EQ(made.form.tiles.size(), tile.size() > 1 && tile[tile.size() - 2] == 24 && tile.back() == 16);
    EXPECT_EQ(made.form.rows.size(), tile.back() == 1);
  }
  Case odd{1, 24, 17, 32, {1, 24, 32}, {1, 17, 32}, same, same, false, true};
  odd.tile = {24, 17}; // rows that no tensor map takes
  Made made = formOf(odd);
  EXPECT_EQ(made.form.refusal, "");
  EXPECT_TRUE(made.form.loadsItself);
  odd.tile = {17};
  check(odd);
}

/// 8-bit floats times one scale for `rows` rows and 128 columns, as scaled_matmul has them.
Views scaled(const char *name, int64_t rows, int64_t of, int64_t k, int64_t block = 128) {
  return [=](GraphBuilder &g, TensorHandle x) {
    int64_t across = (of + rows - 1) / rows, along = (k + block - 1) / block;
    TensorHandle s = g.input(name, DType::F32, {across, along});
    s = g.expand(g.reshape(s, {across, 1, along, 1}), {across, rows, along, block});
    s = g.reshape(s, {across * rows, along * block});
    s = g.slice(g.slice(s, {.dim = 0, .start = 0, .end = of}), {.dim = 1, .start = 0, .end = k});
    return g.cast(x, DType::F32) * g.reshape(s, {1, of, k});
  };
}

Case ofFloat8(int64_t m, int64_t n, int64_t k, Views viewA, Views viewB) {
  Case c{1, m, n, k, {1, m, k}, {1, n, k}, std::move(viewA), std::move(viewB), false, true};
  c.dtype = DType::F8E4M3;
  c.viewOut = [](GraphBuilder &g, TensorHandle x) { return g.cast(x, DType::BF16); };
  return c;
}

TEST(WgmmaForm, EightBits) {
  Made plain = formOf(ofFloat8(24, 16, 64, same, same));
  EXPECT_EQ(plain.form.refusal, "");
  EXPECT_TRUE(plain.form.shape.promotes);
  EXPECT_TRUE(plain.form.scales.empty());
  Case f32 = ofFloat8(24, 16, 64, same, same);
  f32.viewOut = same;
  EXPECT_EQ(formOf(f32).form.refusal.substr(0, 65),
            "in the tensor cores a sum of 8-bit floats keeps about 13 bits, an");
  Case alongN = ofFloat8(24, 16, 64, same, same);
  alongN.transposeB = false;
  alongN.b = {1, 64, 16};
  EXPECT_EQ(formOf(alongN).form.refusal, "'b': 8-bit operands are multiplied where K is contiguous");
}

TEST(WgmmaForm, ScalesAlongK) {
  const int64_t m = 300, n = 400, k = 336;
  Made made = formOf(ofFloat8(m, n, k, scaled("sa", 1, m, k), scaled("sb", 128, n, k)));
  ASSERT_EQ(made.form.refusal, "");
  EXPECT_TRUE(made.form.shape.promotes);
  EXPECT_EQ(made.form.shape.scaleColumns, 128);
  ASSERT_EQ(made.form.scales.size(), 2u);
  auto at = [](const WgmmaScaleAccess &s, int64_t row, int64_t of) {
    return s.offset + row / s.rows * s.stride + of / 128 * s.kStride;
  };
  for (int64_t of = 0; of < k; of += 16) {
    for (int64_t row = 0; row < m; ++row)
      ASSERT_EQ(at(made.form.scales[0], row, of), row * 3 + of / 128);
    for (int64_t row = 0; row < n; ++row)
      ASSERT_EQ(at(made.form.scales[1], row, of), row / 128 * 3 + of / 128);
  }
  // One scale for all columns.
  made = formOf(ofFloat8(m, 64, k, scaled("sa", 64, m, k), scaled("sb", 128, 64, k)));
  ASSERT_EQ(made.form.refusal, "");
  EXPECT_EQ(made.form.shape.scaleColumns, 64);
  EXPECT_EQ(made.form.scales[1].stride, 0);

  auto why = [&](Views a, Views b) { return formOf(ofFloat8(m, n, k, std::move(a), std::move(b))).form.refusal; };
  EXPECT_EQ(why(scaled("sa", 1, m, k), scaled("sb", 1, n, k)),
            "'sb' has a scale for every 1 columns, and a thread's columns share them by 32 and more");
  EXPECT_EQ(why(scaled("sa", 1, m, k, 32), scaled("sb", 128, n, k)), "'sa' is not one scale of 128 elements along K");
  // Scales along K of one operand alone.
  EXPECT_EQ(why(scaled("sa", 1, m, k), [](GraphBuilder &g, TensorHandle x) { return g.cast(x, DType::F32); }),
            "'cast_1' is computed where it is read, and is not in memory as it is");
}

// What it is computed from: tensors of M by K, through views, vectors along K, and what rows have. Scalars are no part of it.
TEST(WgmmaForm, LeftOperandsThatAreComputed) {
  const int64_t m = 24, k = 32;
  auto left = [&](GraphBuilder &g, TensorHandle x) {
    TensorHandle v = g.silu(g.slice(x, {.dim = 1, .start = 8, .end = 32})) * g.input("u", DType::F32, {2, m, k});
    v = v * g.input("s", DType::F32, {2, m, 1}) + g.input("c", DType::BF16, {k});
    return g.cast(v * g.input("one", DType::F32, {}), DType::BF16);
  };
  Case c{2, m, 16, k, {2, 40, k}, {2, k, 16}, left, same};
  c.computed = true;
  Made made = formOf(c);
  ASSERT_EQ(made.form.refusal, "");
  ASSERT_TRUE(made.form.computed);
  const WgmmaLeftForm &f = *made.form.computed;
  ASSERT_EQ(f.tiles.size(), 2u);
  ASSERT_EQ(f.columns.size(), 1u);
  ASSERT_EQ(f.rows.size(), 1u);
  for (int64_t batch : {0, 1})
    for (int64_t row : {0, 5, 23})
      for (int64_t at : {0, 2, 31}) {
        EXPECT_EQ(place(made.form, f.tiles[0], batch, m, row, at), (batch * 40 + row + 8) * k + at);
        EXPECT_EQ(place(made.form, f.tiles[1], batch, m, row, at), (batch * m + row) * k + at);
        EXPECT_EQ(place(made.form, f.columns[0], batch, m, row, at), at);
        EXPECT_EQ(place(made.form, f.rows[0], batch, m, row, at), batch * m + row);
      }
  const cost::GemmShape &shape = made.form.shape;
  EXPECT_EQ(shape.a, DType::BF16);
  EXPECT_EQ(shape.leftTiles, (std::vector<DType>{DType::BF16, DType::F32}));
  EXPECT_EQ(shape.leftColumns, (std::vector<DType>{DType::BF16}));
  EXPECT_GE(shape.leftSpecialOps, 1);

  auto why = [&](Views views, Extents a = {1, 24, 32}) {
    Case c{1, m, 16, k, std::move(a), {1, k, 16}, std::move(views), same};
    c.computed = true;
    return formOf(c).form.refusal;
  };
  EXPECT_EQ(why([](GraphBuilder &g, TensorHandle x) { return g.sin(x); }), "'sin' is made by 'sin'");
  EXPECT_EQ(why([](GraphBuilder &g, TensorHandle x) { return g.relu(g.flip(x, {2})); }),
            "'relu' reads 'a' neither row by row nor by vectors at multiples of 16 bytes");
  EXPECT_EQ(why([](GraphBuilder &g, TensorHandle x) { return g.relu(g.slice(x, {.dim = 2, .start = 4, .end = 36})); },
                {1, 24, 64}),
            "'relu' reads 'a' neither row by row nor by vectors at multiples of 16 bytes");
}

TEST(WgmmaForm, Refuses) {
  auto why = [](const Case &c) { return formOf(c).form.refusal; };
  EXPECT_EQ(why({1, 24, 16, 32, {1, 24, 32}, {1, 32, 16}, same, same, false, false, {}, same, same, DType::F32}),
            "it multiplies numbers of 16 or 8 bits, and 'a' is f32");
  EXPECT_EQ(why({1, 24, 16, 36, {1, 24, 36}, {1, 36, 16}, same, same}),
            "'a': its rows, 36 elements apart, or its start are no multiples of 16 bytes");
  EXPECT_EQ(why({1,
                 24,
                 16,
                 32,
                 {1, 24, 64},
                 {1, 32, 16},
                 [](GraphBuilder &g, TensorHandle x) { return g.slice(x, {.dim = 2, .start = 4, .end = 36}); },
                 same}),
            "'a': its rows, 64 elements apart, or its start are no multiples of 16 bytes");
  EXPECT_EQ(
      why({1,
           24,
           16,
           32,
           {1, 24, 64},
           {1, 32, 16},
           [](GraphBuilder &g, TensorHandle x) { return g.slice(x, {.dim = 2, .start = 0, .end = 64, .step = 2}); },
           same}),
      "'a' has no contiguous dimension");
  // K over heads that are apart: two strides, and tiles that would lie in two of them.
  EXPECT_EQ(why({1, 24, 16, 32, {4, 24, 8}, {1, 32, 16}, permuted({1, 0, 2}, {1, 24, 32}), same}),
            "'a' lies in parts of 8 along K, no multiple of 64");
  // One head again and again: a stride of nothing.
  EXPECT_EQ(why({1,
                 24,
                 16,
                 128,
                 {24, 64},
                 {1, 128, 16},
                 [](GraphBuilder &g, TensorHandle x) {
                   return g.reshape(g.expand(g.reshape(x, {24, 1, 64}), {24, 2, 64}), {1, 24, 128});
                 },
                 same}),
            "'a': its parts along K are 0 elements apart, which no tensor map takes");
  // Over two dimensions of heads: three strides.
  EXPECT_EQ(why({1, 24, 16, 256, {2, 24, 2, 64}, {1, 256, 16}, permuted({1, 2, 0, 3}, {1, 24, 256}), same}),
            "'a' is read through views that no tensor map describes");
  Case odd{1, 24, 16, 32, {1, 24, 32}, {1, 32, 16}, same, same};
  odd.viewOut = [](GraphBuilder &g, TensorHandle x) { return g.permute(g.reshape(x, {24, 8, 2}), {1, 0, 2}); };
  EXPECT_EQ(why(odd), "'y' is stored in parts of its rows that no tensor map describes");
  EXPECT_EQ(
      why({1, 24, 16, 32, {1, 24, 32}, {1, 32, 16}, [](GraphBuilder &g, TensorHandle x) { return g.relu(x); }, same}),
      "'relu' is computed where it is read, and is not in memory as it is");
}

/// Weights that become wider in registers: the product turned round.
static WgmmaForm turnedFormOf(DType weights, bool transposeB, Extents mask, Made &out) {
  GraphBuilder g("turned");
  TensorHandle a = g.input("a", DType::BF16, {1, 100, 48}), w = g.input("w", weights, {1, 24, 48});
  if (!transposeB)
    w = g.permute(w, {0, 2, 1});
  TensorHandle wide = weights == DType::BF16 ? w : g.cast(w, DType::BF16);
  TensorHandle y = g.matmul(a, wide, {.transposeB = transposeB, .outDtype = DType::F32});
  TensorHandle z = y + g.input("t", DType::BF16, {100, 24}) + g.input("b", DType::BF16, {24});
  g.output(z * g.input("s", DType::F32, mask), "y");
  out.graph = graphOf(g);
  const std::vector<NodeId> products = productsOf(out.graph);
  Result<Trace> epilogue = traceEpilogue(out.graph, 100, 24, 1);
  std::vector<Trace> operands;
  for (const Operand &o : out.graph.nodes[products[0]].inputs)
    operands.push_back(*traceOperand(out.graph, o.value, {}, true));
  return turnedForm(out.graph, *epilogue, products, {&operands[0], &operands[1]});
}

TEST(WgmmaForm, TurnedRound) {
  Made made;
  WgmmaForm f = turnedFormOf(DType::I8, true, {100, 1}, made);
  ASSERT_EQ(f.refusal, "");
  EXPECT_TRUE(f.shape.turned);
  EXPECT_EQ(f.shape.m, 24);
  EXPECT_EQ(f.shape.n, 100);
  EXPECT_EQ(f.shape.k, 48);
  auto name = [&](const WgmmaAccess &a) { return made.graph.values[a.value].name; };
  ASSERT_EQ(f.computed->tiles.size(), 1u);
  EXPECT_EQ(name(f.computed->tiles[0]), "w");
  EXPECT_EQ(f.computed->tiles[0].row, 48);
  EXPECT_EQ(f.shape.leftTiles, std::vector<DType>{DType::I8});
  EXPECT_EQ(f.weightScales[0].value, kNone);
  EXPECT_EQ(name(f.right[0]), "a");
  EXPECT_EQ(f.right[0].row, 48);
  ASSERT_EQ(f.outputs.size(), 1u);
  EXPECT_EQ(f.outputs[0].row, 24);
  // What is by columns of the result is by rows of the kernel, and the other way round.
  ASSERT_TRUE(f.tiles.size() == 1 && f.rows.size() == 1 && f.columns.size() == 1);
  EXPECT_EQ(name(f.tiles[0]), "t");
  EXPECT_EQ(name(f.rows[0]), "b");
  EXPECT_EQ(name(f.columns[0]), "s");
  EXPECT_FALSE(f.loadsItself);
  EXPECT_EQ(turnedFormOf(DType::F8E5M2, true, {1}, made).refusal, "");
  EXPECT_NE(turnedFormOf(DType::BF16, true, {1}, made).refusal.find("'w' is multiplied as it is"), std::string::npos);
  EXPECT_NE(turnedFormOf(DType::I8, false, {1}, made).refusal, ""); // its rows are not along K
}
