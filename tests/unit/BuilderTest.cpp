// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The C++ graph builder: it says what a graph file says, with the same checks, and remembers misuse until `build`.
#include "frontend/api/Builder.h"

#include "frontend/json/JsonReader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

using namespace rl;

namespace {

std::string built(const GraphBuilder &g) {
  Result<GraphSpec> spec = g.build();
  return spec ? printGraph(*spec) : spec.error().str();
}
std::string canonical(std::string_view json) {
  Result<GraphSpec> spec = parseGraph(json);
  return spec ? printGraph(*spec) : spec.error().str();
}
void expectError(const GraphBuilder &g, const std::string &pointer, const std::string &part) {
  Result<GraphSpec> spec = g.build();
  ASSERT_FALSE(spec.ok()) << printGraph(*spec);
  EXPECT_EQ(spec.error().code, Code::Invalid);
  EXPECT_EQ(spec.error().pointer, pointer) << spec.error().message;
  EXPECT_NE(spec.error().message.find(part), std::string::npos) << spec.error().message;
}

TEST(Builder, TheExampleOfTheHeader) {
  GraphBuilder g("ffn");
  auto x = g.input("x", DType::BF16, {512, 4096});
  auto w = g.parameter("w", DType::BF16, {11008, 4096});
  auto b = g.parameter("b", DType::BF16, {11008});
  auto y = g.gelu(g.linear(x, w, b), {.approximate = "tanh"}) * 0.5;
  g.output(y, "y");
  EXPECT_EQ(built(g),
            canonical(R"({"ridgeline": 1, "name": "ffn", "inputs": {"x": {"dtype": "bf16", "shape": [512, 4096]}},
    "parameters": {"w": {"dtype": "bf16", "shape": [11008, 4096]}, "b": {"dtype": "bf16", "shape": [11008]}},
    "nodes": [{"op": "linear", "inputs": ["x", "w", "b"], "outputs": ["linear"]},
              {"op": "gelu", "inputs": ["linear"], "outputs": ["gelu"], "attrs": {"approximate": "tanh"}},
              {"op": "mul", "inputs": ["gelu", 0.5], "outputs": ["y"]}],
    "outputs": ["y"]})"));
}

TEST(Builder, OperatorsAndLiterals) {
  GraphBuilder g("g");
  auto x = g.input("x", DType::F32, {4});
  auto t = (x + 1) * 2.5f - true / x;
  t = -(1 - t) / 2u + t;
  t = 0.25 * t;
  g.output(t);
  EXPECT_EQ(built(g),
            canonical(R"({"ridgeline": 1, "name": "g", "inputs": {"x": {"dtype": "f32", "shape": [4]}}, "nodes": [
    {"op": "add", "inputs": ["x", 1], "outputs": ["add"]},
    {"op": "mul", "inputs": ["add", 2.5], "outputs": ["mul"]},
    {"op": "div", "inputs": [true, "x"], "outputs": ["div"]},
    {"op": "sub", "inputs": ["mul", "div"], "outputs": ["sub"]},
    {"op": "sub", "inputs": [1, "sub"], "outputs": ["sub_1"]},
    {"op": "neg", "inputs": ["sub_1"], "outputs": ["neg"]},
    {"op": "div", "inputs": ["neg", 2], "outputs": ["div_1"]},
    {"op": "add", "inputs": ["div_1", "sub"], "outputs": ["add_1"]},
    {"op": "mul", "inputs": [0.25, "add_1"], "outputs": ["mul_1"]}], "outputs": ["mul_1"]})"));
}

TEST(Builder, AutomaticNamesKeepClearOfGivenOnes) {
  GraphBuilder g("g");
  auto x = g.input("add", DType::F32, {4});
  auto a = x + 1, b = x + 2, c = x + 3;
  g.name(c, "add_1"); // after nodes that might have been called so
  g.input("add_2", DType::F32, {});
  g.output(a);
  g.output(b);
  g.output(c);
  Result<GraphSpec> spec = g.build();
  ASSERT_TRUE(spec.ok()) << spec.error().str();
  EXPECT_EQ(spec->outputs, (std::vector<std::string>{"add_3", "add_4", "add_1"}));
  EXPECT_EQ(printGraph(*g.build()), printGraph(*spec)); // building changes nothing
}

TEST(Builder, SymbolicDims) {
  GraphBuilder g("g");
  Dim batch = g.dim("B", 1, 65536);
  auto x = g.input("x", DType::F16, {batch, 8, 16});
  auto r = g.reshape(x, {batch, -1});
  auto f = g.full({batch, 128}, 2, DType::F16);
  g.output(r + f, "y");
  EXPECT_EQ(
      built(g),
      canonical(R"({"ridgeline": 1, "name": "g", "inputs": {"x": {"dtype": "f16", "shape": ["B", 8, 16]}}, "nodes": [
    {"op": "reshape", "inputs": ["x"], "outputs": ["reshape"], "attrs": {"shape": ["B", -1]}},
    {"op": "full", "inputs": [], "outputs": ["full"], "attrs": {"shape": ["B", 128], "value": 2, "dtype": "f16"}},
    {"op": "add", "inputs": ["reshape", "full"], "outputs": ["y"]}], "outputs": ["y"], "dims": {"B": {"min": 1, "max": 65536}}})"));
}

TEST(Builder, WholeGraphSettings) {
  GraphBuilder g("g");
  auto x = g.input("x", DType::BF16, {2, 3}), dy = g.input("dy", DType::BF16, {2, 3});
  g.source("model.py:7");
  auto y = g.pin(g.exp(x), DType::F32);
  g.source("");
  auto z = g.neg(y);
  g.output(z, "z");
  g.strict();
  g.precision({.mode = "auto", .tolerance = 0.1, .pin = {{"x", DType::F16}}, .observed = {{"z", 0.5}}});
  g.gradientOf({{z, dy}}, {x});
  EXPECT_EQ(
      built(g),
      canonical(
          R"({"ridgeline": 1, "name": "g", "inputs": {"x": {"dtype": "bf16", "shape": [2, 3]}, "dy": {"dtype": "bf16", "shape": [2, 3]}},
    "nodes": [{"op": "exp", "inputs": ["x"], "outputs": ["exp"], "precision": "f32", "source": "model.py:7"},
              {"op": "neg", "inputs": ["exp"], "outputs": ["z"]}], "outputs": ["z"], "numerics": "strict",
    "precision": {"mode": "auto", "tolerance": 0.1, "pin": {"x": "f16"}, "observed": {"z": 0.5}}, "gradient": {"of": {"z": "dy"}, "wrt": ["x"]}})"));
  GraphBuilder l("g");
  auto p = l.parameter("p", DType::F32, {5});
  auto loss = l.sum(p);
  l.output(loss, "loss");
  l.gradientOfLoss(loss, {p}, 1024);
  EXPECT_EQ(
      built(l),
      canonical(R"({"ridgeline": 1, "name": "g", "inputs": {}, "parameters": {"p": {"dtype": "f32", "shape": [5]}},
    "nodes": [{"op": "sum", "inputs": ["p"], "outputs": ["loss"]}], "outputs": ["loss"],
    "gradient": {"loss": "loss", "loss_scale": 1024.0, "wrt": ["p"]}})"));
}

TEST(Builder, EveryOpOfTheFormat) {
  GraphBuilder g("all");
  auto x = g.input("x", DType::F32, {4, 6}), y = g.input("y", DType::F32, {6});
  auto i = g.input("i", DType::I64, {4}), k = g.input("k", DType::I32, {4, 6});
  auto a8 = g.input("a8", DType::F8E4M3, {4, 8}), b8 = g.input("b8", DType::F8E4M3, {6, 8});
  auto sa = g.input("sa", DType::F32, {4}), sb = g.input("sb", DType::F32, {3, 2});
  auto mask = g.input("mask", DType::Bool, {4, 4});
  std::vector<TensorHandle> all;
  for (auto t : {g.abs(x),
                 g.neg(x),
                 g.sign(x),
                 g.exp(x),
                 g.exp2(x),
                 g.expm1(x),
                 g.log(x),
                 g.log2(x),
                 g.log1p(x),
                 g.sqrt(x),
                 g.rsqrt(x),
                 g.reciprocal(x),
                 g.square(x),
                 g.sin(x),
                 g.cos(x),
                 g.tanh(x),
                 g.sigmoid(x),
                 g.erf(x),
                 g.relu(x),
                 g.silu(x),
                 g.softplus(x),
                 g.floor(x),
                 g.ceil(x),
                 g.round(x),
                 g.trunc(x),
                 g.isNan(x),
                 g.isInf(x),
                 g.isFinite(x),
                 g.logicalNot(x),
                 g.bitwiseNot(k),
                 g.gelu(x),
                 g.cast(x, DType::F8E5M2, {.saturate = false}),
                 g.clamp(x, {.min = -1, .max = 0.5})})
    all.push_back(t);
  for (auto t : {g.add(x, y),         g.sub(x, 1),        g.mul(2.0, y),      g.div(x, y),
                 g.floorDivide(x, y), g.fmod(x, y),       g.remainder(x, y),  g.pow(x, 2),
                 g.atan2(x, y),       g.maximum(x, y),    g.minimum(x, y),    g.eq(x, y),
                 g.ne(x, y),          g.lt(x, y),         g.le(x, y),         g.gt(x, y),
                 g.ge(x, 0),          g.logicalAnd(x, y), g.logicalOr(x, y),  g.logicalXor(x, y),
                 g.bitwiseAnd(k, k),  g.bitwiseOr(k, 1),  g.bitwiseXor(k, k), g.where(g.lt(x, y), x, 0.0)})
    all.push_back(t);
  for (auto t : {g.reshape(x, {2, -1}), g.permute(x, {1, 0}), g.expand(y, {3, 6}), g.unsqueeze(x, 0),
                 g.squeeze(g.unsqueeze(x, -1), -1), g.slice(x, {.dim = 1, .start = -1, .end = -7, .step = -2}),
                 g.slice(x, {}), g.cat({x, x}, 0), g.pad(x, {.low = {0, 1}, .high = {2, 0}, .value = 1.5}),
                 g.flip(x, {0, -1}), g.full({2, 3}, true, DType::Bool), g.iota({2, 3}, 1, DType::I32)})
    all.push_back(t);
  for (auto t :
       {g.sum(x), g.mean(x, {.dims = {0}}), g.amax(x, {.dims = {-1}, .keepdim = true}), g.amin(x), g.prod(x), g.any(x),
        g.all(x), g.logsumexp(x, {.dims = {0, 1}}), g.var(x, {.dims = {1}, .keepdim = true, .correction = 0}),
        g.argmax(x, -1), g.argmin(x, 0, true), g.softmax(x, -1), g.logSoftmax(x, 0), g.layerNorm(x), g.layerNorm(x, y),
        g.layerNorm(x, y, y, {.eps = 1e-3}), g.rmsNorm(x), g.rmsNorm(x, y, {.eps = 1e-5})})
    all.push_back(t);
  for (auto t :
       {g.matmul(x, x, {.transposeB = true}), g.matmul(x, x, {.transposeA = true, .outDtype = DType::BF16}),
        g.linear(x, x), g.linear(x, x, sa), g.embedding(x, i), g.indexSelect(x, i, 1), g.gather(x, k, 0),
        g.scaledDotProductAttention(x, x, x, {.causal = true}),
        g.scaledDotProductAttention(x, x, x, mask, {.scale = 0.125}), g.crossEntropy(x, i, {.ignoreIndex = -1})})
    all.push_back(t);
  auto q = g.quantize(
      x, {.dtype = DType::F8E4M3, .granularity = Granularity::Block, .block = {2, 3}, .scaleDtype = DType::F8E8M0});
  EXPECT_FALSE(q.zeroPoint);
  auto z = g.quantize(x, {.dtype = DType::I8, .granularity = Granularity::Axis, .axis = 1, .scheme = "asymmetric"});
  EXPECT_TRUE(z.zeroPoint);
  auto s = g.quantize(x, {.dtype = DType::I8, .granularity = Granularity::Token, .scale = sa});
  for (auto t : {q.q, q.scale, z.q, z.scale, z.zeroPoint, s.q,
                 g.dequantize(q.q, q.scale, {.dtype = DType::BF16, .granularity = Granularity::Block, .block = {2, 3}}),
                 g.dequantize(z.q, z.scale, {.granularity = Granularity::Axis, .axis = -1, .zeroPoint = z.zeroPoint}),
                 g.fakeQuantize(x, {.dtype = DType::F8E5M2}),
                 g.scaledMatmul(a8, b8, sa, sb,
                                {.granularityA = Granularity::Token,
                                 .granularityB = Granularity::Block,
                                 .blockB = {2, 4},
                                 .transposeB = true,
                                 .outDtype = DType::BF16,
                                 .fastAccumulate = true})})
    all.push_back(t);
  for (TensorHandle t : all)
    g.output(t);

  Result<GraphSpec> spec = g.build();
  ASSERT_TRUE(spec.ok()) << spec.error().str();
  std::set<std::string> used;
  std::set<std::pair<std::string, std::string>> attrs;
  for (const NodeSpec &node : spec->nodes) {
    used.insert(node.op);
    for (const auto &[name, value] : node.attrs)
      attrs.emplace(node.op, name);
  }
  for (const OpInfo &op : allOps())
    EXPECT_TRUE(used.count(op.name)) << "the builder has no method for " << op.name;
  // Through JSON and back it is the same graph.
  std::string text = printGraph(*spec);
  Result<GraphSpec> back = parseGraph(text);
  ASSERT_TRUE(back.ok()) << back.error().str();
  EXPECT_EQ(printGraph(*back), text);
  // Options reach the file under the format's names.
  for (auto [op, attr] : {std::pair{"cast", "saturate"},
                          {"clamp", "min"},
                          {"clamp", "max"},
                          {"slice", "start"},
                          {"slice", "end"},
                          {"slice", "step"},
                          {"pad", "low"},
                          {"pad", "high"},
                          {"pad", "value"},
                          {"iota", "dim"},
                          {"amax", "keepdim"},
                          {"var", "correction"},
                          {"argmin", "keepdim"},
                          {"layer_norm", "eps"},
                          {"rms_norm", "eps"},
                          {"matmul", "transpose_a"},
                          {"matmul", "transpose_b"},
                          {"matmul", "out_dtype"},
                          {"scaled_dot_product_attention", "causal"},
                          {"scaled_dot_product_attention", "scale"},
                          {"cross_entropy", "ignore_index"},
                          {"quantize", "granularity"},
                          {"quantize", "axis"},
                          {"quantize", "block"},
                          {"quantize", "scale_dtype"},
                          {"quantize", "scheme"},
                          {"dequantize", "dtype"},
                          {"scaled_matmul", "granularity_a"},
                          {"scaled_matmul", "block_b"},
                          {"scaled_matmul", "transpose_b"},
                          {"scaled_matmul", "out_dtype"},
                          {"scaled_matmul", "fast_accumulate"}})
    EXPECT_TRUE(attrs.count({op, attr})) << op << " " << attr;
}

/// A mistake made through the builder and in a file: the same place, the same words.
TEST(Builder, SameErrorsAsAFile) {
  auto expectSame = [](const GraphBuilder &g, const std::string &nodes, const std::string &outputs = "[\"y\"]",
                       const std::string &name = "g") {
    Result<GraphSpec> file =
        parseGraph("{\"ridgeline\": 1, \"name\": \"" + name + R"(", "inputs": {"x": {"dtype": "f32", "shape": [2, 3]}},
        "parameters": {"w": {"dtype": "f8e4m3", "shape": [3, 4]}}, "nodes": [)" +
                   nodes + "], \"outputs\": " + outputs + "}");
    ASSERT_TRUE(file.ok()) << file.error().str();
    Result<Signature> checked = checkSpec(*file);
    ASSERT_FALSE(checked.ok());
    Result<GraphSpec> built = g.build();
    ASSERT_FALSE(built.ok());
    EXPECT_EQ(built.error().str(), checked.error().str());
  };
  struct Start {
    GraphBuilder g;
    TensorHandle x, w;
    explicit Start(const char *name = "g")
        : g(name), x(g.input("x", DType::F32, {2, 3})), w(g.parameter("w", DType::F8E4M3, {3, 4})) {}
  };
  {
    Start s;
    s.g.output(s.x + s.w, "y");
    expectSame(s.g, R"({"op": "add", "inputs": ["x", "w"], "outputs": ["y"]})");
  }
  {
    Start s;
    s.g.output(s.g.softmax(s.x, 2), "y");
    expectSame(s.g, R"({"op": "softmax", "inputs": ["x"], "outputs": ["y"], "attrs": {"dim": 2}})");
  }
  {
    Start s;
    s.g.output(s.g.gelu(s.x, {.approximate = "erf"}), "y");
    expectSame(s.g, R"({"op": "gelu", "inputs": ["x"], "outputs": ["y"], "attrs": {"approximate": "erf"}})");
  }
  {
    Start s;
    s.g.output(s.g.node("matmull", {s.x, s.x})[0], "y");
    expectSame(s.g, R"({"op": "matmull", "inputs": ["x", "x"], "outputs": ["y"]})");
  }
  {
    Start s;
    s.g.output(s.g.node("exp", {s.x}, {{"fast", Scalar{Scalar::Bool, 1, 0}}})[0], "y");
    expectSame(s.g, R"({"op": "exp", "inputs": ["x"], "outputs": ["y"], "attrs": {"fast": true}})");
  }
  {
    Start s;
    s.g.source("net.cpp:9");
    s.g.output(s.g.reshape(s.x, {4, -1}), "y");
    expectSame(
        s.g,
        R"({"op": "reshape", "inputs": ["x"], "outputs": ["y"], "source": "net.cpp:9", "attrs": {"shape": [4, -1]}})");
  }
  {
    Start s;
    s.g.name(s.g.exp(s.x), "x");
    s.g.output(s.x);
    expectSame(s.g, R"({"op": "exp", "inputs": ["x"], "outputs": ["x"]})", R"(["x"])");
  }
  {
    Start s;
    expectSame(s.g, "", "[]");
  }
  {
    Start s("not an identifier");
    s.g.output(s.x);
    expectSame(s.g, "", R"(["x"])", "not an identifier");
  }
}

TEST(Builder, Misuse) {
  {
    GraphBuilder g("g"), other("h");
    auto x = g.input("x", DType::F32, {2}), foreign = other.input("x", DType::F32, {2});
    g.exp(x);
    g.output(g.add(x, foreign), "y");
    expectError(g, "/nodes/1/inputs/1", "another graph");
    EXPECT_FALSE(other.build().ok()); // no outputs; but nothing else happened to it
    other.output(foreign);
    EXPECT_TRUE(other.build().ok());
  }
  {
    GraphBuilder g("g"), other("h");
    auto x = g.input("x", DType::F32, {2}), foreign = other.input("x", DType::F32, {2});
    g.output(x * foreign);
    expectError(g, "/nodes/0/inputs/1", "another graph");
  }
  {
    GraphBuilder g("g"), other("h");
    g.input("x", DType::F32, {2});
    g.output(other.input("x", DType::F32, {2}), "y");
    expectError(g, "/outputs/0", "another graph");
  }
  {
    GraphBuilder g("g");
    auto x = g.input("x", DType::F32, {2});
    g.output(g.exp(TensorHandle()), "y");
    g.output(x);
    expectError(g, "/nodes/0/inputs/0", "empty tensor handle");
  }
  {
    GraphBuilder g("g");
    TensorHandle empty;
    g.output(-(empty + 1.0), "y"); // no graph to tell until here
    expectError(g, "/outputs/0", "empty tensor handle");
  }
  {
    GraphBuilder g("g");
    auto x = g.input("x", DType::F32, {2});
    g.output(x, "y");
    expectError(g, "/outputs/0", "already called 'x'");
  }
  {
    GraphBuilder g("g");
    auto y = g.name(g.exp(g.input("x", DType::F32, {2})), "a");
    g.output(g.name(y, "b"));
    expectError(g, "/nodes/0/outputs", "already called 'a'");
  }
  {
    GraphBuilder g("g");
    auto x = g.input("x", DType::F32, {2});
    g.output(g.pin(x, DType::BF16));
    expectError(g, "", "only the result of a node");
  }
  {
    GraphBuilder g("g");
    auto x = g.input("x", DType::I64, {2});
    g.output(x + UINT64_MAX);
    expectError(g, "/nodes/0/inputs/1", "out of range");
  }
  {
    GraphBuilder g("g");
    auto x = g.input("x", DType::I64, {2});
    g.output(g.clamp(x, {.max = UINT64_MAX}));
    expectError(g, "/nodes/0/attrs/max", "out of range");
  }
  {
    GraphBuilder g("g");
    Dim none = g.dim("");
    g.output(g.input("x", DType::I64, {none}));
    expectError(g, "/dims/", "empty name");
  }
  {
    GraphBuilder g("g");
    g.output(g.input("\xff", DType::F32, {2}));
    expectError(g, "/inputs", "UTF-8");
  }
  {
    GraphBuilder g("g");
    auto x = g.input("x", DType::F32, {2});
    g.output(x);
    g.gradientOf({}, {x});
    expectError(g, "/gradient/of", "no output");
  }
  { // the first mistake counts
    GraphBuilder g("g");
    g.output(TensorHandle());
    g.exp(TensorHandle());
    expectError(g, "/outputs/0", "empty");
  }
}

TEST(Builder, NumbersThatNoFileCanHold) {
  // What JSON cannot write the builder refuses as well: no graph can be built that could not be saved.
  for (double value : {INFINITY, -INFINITY, NAN}) {
    GraphBuilder g("g");
    g.output(g.input("x", DType::F32, {2}) * value, "y");
    expectError(g, "/nodes/0/inputs/1", "finite");
    GraphBuilder p("g");
    p.output(p.pad(p.input("x", DType::F32, {2}), {.low = {1}, .high = {0}, .value = value}), "y");
    expectError(p, "/nodes/0/attrs/value", "finite");
  }
}

TEST(Builder, MovesWithItsHandles) {
  GraphBuilder g("g");
  auto x = g.input("x", DType::F32, {2});
  GraphBuilder moved = std::move(g);
  moved.output(x + 1, "y");
  EXPECT_TRUE(moved.build().ok());
}

TEST(Builder, LargeGraphsInLinearTime) {
  GraphBuilder g("g");
  auto x = g.input("x", DType::F32, {2});
  for (int i = 0; i < 100000; ++i)
    x = x + 1;
  g.output(x, "y");
  Result<GraphSpec> spec = g.build();
  ASSERT_TRUE(spec.ok());
  EXPECT_EQ(spec->nodes.size(), 100000u);
  EXPECT_EQ(spec->nodes[99998].outputs[0], "add_99998");
}

} // namespace
