// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The assignment of types: what no mode may touch, pins, the budget, what is chosen where, and that the graph which comes out
// means what the record says.
#include "frontend/api/Builder.h"
#include "frontend/json/JsonReader.h"
#include "ir/interp/Convert.h"
#include "ir/interp/Interpreter.h"
#include "passes/precision/AtBind.h"
#include "passes/precision/ErrorModel.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

using namespace rl;

namespace {

using Tensor = TensorHandle;
constexpr DType F32 = DType::F32, F16 = DType::F16, BF16 = DType::BF16, E4M3 = DType::F8E4M3, E5M2 = DType::F8E5M2,
                I8 = DType::I8;
constexpr double kAny = 100; // a tolerance that stops nothing
const char *const kModes[] = {"bf16", "f16", "fp8", "int8", "auto"};

Graph graphOf(const GraphBuilder &b, const std::string &mode, double tolerance = kAny,
              std::map<std::string, DType> pins = {}) {
  Result<GraphSpec> spec = b.build();
  EXPECT_TRUE(spec.ok()) << spec.error().str();
  spec->precision = {mode, tolerance, std::move(pins), {}};
  Result<Graph> g = resolve(*spec);
  EXPECT_TRUE(g.ok()) << g.error().str();
  return *g;
}

PrecisionAssignment assign(const Graph &g, const std::vector<std::string> &cotangents = {},
                           const char *machine = "h200") {
  std::vector<ValueId> ids;
  for (ValueId v : g.inputs)
    for (const std::string &name : cotangents)
      if (g.values[v].name == name)
        ids.push_back(v);
  Result<PrecisionAssignment> out = assignPrecision(g, *cost::findTarget(machine), ids);
  EXPECT_TRUE(out.ok()) << out.error().str();
  if (!out)
    return {};
  // Whatever was decided: the signature stays, the graph is valid as a file, and each decision takes one alternative.
  auto signature = [](const Graph &of) {
    std::string s;
    for (auto *list : {&of.inputs, &of.parameters, &of.outputs})
      for (ValueId v : *list)
        s += of.values[v].name + " " + str(of.type(v)) + "; ";
    return s;
  };
  EXPECT_EQ(signature(out->graph), signature(g));
  EXPECT_EQ(out->graph.precision.mode, "keep");
  Result<Graph> again = resolve(specOf(out->graph));
  EXPECT_TRUE(again.ok()) << again.error().str();
  for (const PrecisionDecision &d : out->record.decisions) {
    size_t chosen = 0;
    for (const PrecisionAlternative &a : d.alternatives) {
      chosen += a.chosen;
      EXPECT_FALSE(a.chosen && !a.refused.empty()) << d.name << " takes " << a.name;
    }
    EXPECT_EQ(chosen, 1u) << d.name;
    EXPECT_FALSE(d.why.empty()) << d.name;
  }
  return *std::move(out);
}

std::string text(const Graph &g) { return printGraph(specOf(g)); }

size_t count(const Graph &g, OpKind op) {
  size_t n = 0;
  for (const Node &node : g.nodes)
    n += node.op == op;
  return n;
}

const PrecisionDecision *decision(const PrecisionRecord &r, const std::string &name) {
  for (const PrecisionDecision &d : r.decisions)
    if (d.name == name)
      return &d;
  return nullptr;
}

/// "f8e4m3 x f8e4m3": what was chosen for a tensor.
std::string chosen(const PrecisionRecord &r, const std::string &name) {
  if (const PrecisionDecision *d = decision(r, name))
    for (const PrecisionAlternative &a : d->alternatives)
      if (a.chosen)
        return a.name;
  return "nothing decided";
}

/// Why the first alternative that quantises is not open.
std::string refusal(const PrecisionRecord &r, const std::string &name) {
  if (const PrecisionDecision *d = decision(r, name))
    for (const PrecisionAlternative &a : d->alternatives)
      if (a.name.find("f8") != std::string::npos || a.name.find("i8") != std::string::npos)
        return a.refused.empty() ? "open" : a.refused;
  return "nothing decided";
}

/// rms_norm, gate and up, silu, down and the residual, as in a transformer's block.
GraphBuilder feedForward(int64_t rows, DType t = BF16, int64_t width = 4096, int64_t inner = 11008) {
  GraphBuilder b("ffn");
  auto x = b.input("x", t, {rows, width});
  auto n = b.rmsNorm(x, b.parameter("scale", t, {width}));
  auto gate = b.name(b.linear(n, b.parameter("wg", t, {inner, width})), "gate");
  auto up = b.name(b.linear(n, b.parameter("wu", t, {inner, width})), "up");
  auto h = b.name(b.mul(b.silu(gate), up), "h");
  auto down = b.name(b.linear(h, b.parameter("wd", t, {width, inner})), "down");
  b.output(b.add(x, down), "y");
  return b;
}

/// A product that every mode would change where nothing speaks against it; `role` gets its result, its weight and its activation.
PrecisionAssignment withRole(const std::string &mode,
                             const std::function<void(GraphBuilder &, Tensor y, Tensor w, Tensor x)> &role,
                             DType t = BF16, int64_t n = 4096) {
  GraphBuilder b("role");
  auto x = b.input("x", t, {4096, 4096});
  auto w = b.parameter("w", t, {n, 4096});
  role(b, b.name(b.linear(x, w), "y"), w, x);
  return assign(graphOf(b, mode));
}

std::vector<HostTensor> random(const Graph &g, const std::vector<ValueId> &ids, uint64_t seed) {
  std::mt19937_64 rng(seed);
  std::normal_distribution<double> normal;
  std::vector<HostTensor> out;
  for (ValueId v : ids) {
    HostTensor t{g.type(v), std::vector<std::byte>(static_cast<size_t>(g.type(v).bytes()))};
    double scale = t.type.rank() == 2 && g.values[v].kind == Value::Parameter
                       ? 1 / std::sqrt(static_cast<double>(t.type.shape[1]))
                       : 1;
    for (int64_t i = 0; i < t.type.elements(); ++i)
      storeElement(t.data.data(), t.type.dtype, i, normal(rng) * scale);
    out.push_back(std::move(t));
  }
  return out;
}

/// Relative rms error of the assigned graph's first output against the graph in f32.
double measured(const Graph &g, const PrecisionAssignment &a) {
  auto inputs = random(g, g.inputs, 1), parameters = random(g, g.parameters, 2);
  Graph exact = g;
  exact.precision = {};
  auto want = interpret(exact, inputs, parameters, {}, Intermediates::KeepF32);
  auto got = interpret(a.graph, inputs, parameters);
  EXPECT_TRUE(want.ok() && got.ok());
  double difference = 0, size = 0;
  const TensorType &t = (*want)[0].type;
  for (int64_t i = 0; i < t.elements(); ++i) {
    double w = loadElement((*want)[0].data.data(), t.dtype, i), v = loadElement((*got)[0].data.data(), t.dtype, i);
    difference += (v - w) * (v - w);
    size += w * w;
  }
  return std::sqrt(difference / size);
}

//===--------------------------------------------------------------------------------------------------------------===//
// What is chosen where
//===--------------------------------------------------------------------------------------------------------------===//

TEST(Precision, KeepAsksForNothing) {
  EXPECT_FALSE(asksForPrecision(graphOf(feedForward(16), "keep")));
  for (const char *mode : kModes)
    EXPECT_TRUE(asksForPrecision(graphOf(feedForward(16), mode)));
}

TEST(Precision, OneTokenTakesNarrowWeightsAndManyMultiplyInEightBits) {
  PrecisionAssignment one = assign(graphOf(feedForward(1), "auto"));
  for (const char *name : {"gate", "up", "down"})
    EXPECT_EQ(chosen(one.record, name), "bf16 x i8 widened");
  EXPECT_EQ(count(one.graph, OpKind::ScaledMatmul), 0u);
  EXPECT_EQ(count(one.graph, OpKind::Dequantize), 3u);
  EXPECT_LT(one.record.seconds, 0.65 * one.record.secondsKept);

  for (auto [mode, types] : {std::pair{"fp8", "f8e4m3 x f8e4m3"}, {"auto", "i8 x i8"}})
    for (int64_t rows : {300, 2048}) {
      PrecisionAssignment many = assign(graphOf(feedForward(rows), mode));
      for (const char *name : {"gate", "up", "down"})
        EXPECT_EQ(chosen(many.record, name), types) << mode << " " << rows;
      EXPECT_EQ(count(many.graph, OpKind::ScaledMatmul), 3u);
      EXPECT_EQ(count(many.graph, OpKind::Quantize), 5u) << "three weights, the norm once, and h";
      EXPECT_LT(many.record.seconds, 0.8 * many.record.secondsKept);
    }
}

TEST(Precision, MachinesDecideWhatPays) {
  // One token: without a kernel that streams them, unpacking 8-bit weights takes longer than reading 16 bits, where there is
  // little arithmetic for the bandwidth.
  auto types = [](const char *machine, int64_t rows) {
    return chosen(assign(graphOf(feedForward(rows), "auto"), {}, machine).record, "down");
  };
  EXPECT_EQ(types("h200", 1), "bf16 x i8 widened");
  EXPECT_EQ(types("h200", 64), "bf16 x i8 widened");
  EXPECT_EQ(types("rtx4090", 1), "bf16 x i8 widened");
  EXPECT_EQ(types("a100", 1), "bf16 x bf16");
  EXPECT_EQ(types("cpu", 1), "bf16 x bf16");
  // No 8-bit products on its tensor cores here.
  EXPECT_EQ(types("a100", 2048), "bf16 x bf16");
  EXPECT_EQ(types("cpu", 300), "bf16 x bf16");
}

TEST(Precision, ModesOfferTheirTypesAlone) {
  auto types = [](const char *mode, DType t) {
    std::string all;
    PrecisionAssignment a = assign(graphOf(feedForward(1, t), mode));
    for (const PrecisionAlternative &x : decision(a.record, "gate")->alternatives)
      all += x.name + ", ";
    return all;
  };
  EXPECT_EQ(types("bf16", F32), "f32 x f32, bf16 x bf16, ");
  EXPECT_EQ(types("f16", F32), "f32 x f32, f16 x f16, ");
  EXPECT_EQ(types("fp8", BF16), "bf16 x bf16, f8e4m3 x f8e4m3, bf16 x f8e4m3 widened, ");
  EXPECT_EQ(types("int8", BF16), "bf16 x bf16, i8 x i8, bf16 x i8 widened, ");
  EXPECT_EQ(types("auto", F32), "f32 x f32, bf16 x bf16, f8e4m3 x f8e4m3, bf16 x f8e4m3 widened, i8 x i8, "
                                "bf16 x i8 widened, ");
}

TEST(Precision, NothingIsConvertedWhereThatCostsMoreThanItSaves) {
  // A kernel more for the activations takes longer than the product.
  GraphBuilder b("small");
  auto x = b.input("x", BF16, {256, 256});
  b.output(b.gelu(b.linear(x, b.parameter("w", BF16, {256, 256}))), "y");
  PrecisionAssignment a = assign(graphOf(b, "fp8"));
  EXPECT_EQ(a.graph.nodes.size(), 2u);
  EXPECT_EQ(chosen(a.record, "linear"), "bf16 x bf16");
  EXPECT_NE(decision(a.record, "linear")->why.find("costs to convert"), std::string::npos);
}

TEST(Precision, ProductsThatShareAKernelChangeTogether) {
  // Alone each would fit: both do not.
  for (double tolerance : {0.018, 0.022, 0.026, 0.03, 0.05}) {
    PrecisionAssignment a = assign(graphOf(feedForward(2048), "fp8", tolerance));
    EXPECT_EQ(chosen(a.record, "gate"), chosen(a.record, "up")) << tolerance;
  }
}

TEST(Precision, F32ProductsAndWhatPassesThroughMemoryBecomeSixteenBits) {
  for (auto [mode, t] : {std::pair{"bf16", BF16}, std::pair{"f16", F16}}) {
    GraphBuilder b("two");
    auto x = b.input("x", F32, {4096, 4096});
    auto h = b.name(b.gelu(b.linear(x, b.parameter("u", F32, {4096, 4096}))), "h");
    auto s = b.name(b.softmax(b.mul(h, 2.0), -1), "s"); // reads h from memory
    b.output(b.linear(s, b.parameter("v", F32, {4096, 4096})), "y");
    PrecisionAssignment a = assign(graphOf(b, mode));
    EXPECT_EQ(count(a.graph, OpKind::Linear), 0u);
    EXPECT_EQ(chosen(a.record, "s"), "f32") << "the product alone reads it, and in 16 bits";
    size_t products = 0;
    for (const Node &n : a.graph.nodes)
      if (n.op == OpKind::Matmul) {
        ++products;
        EXPECT_EQ(a.graph.type(n.inputs[0].value).dtype, t);
        EXPECT_EQ(a.graph.type(n.inputs[1].value).dtype, t);
        EXPECT_EQ(a.graph.type(n.outputs[0]).dtype, F32) << "sums are f32";
      }
    EXPECT_EQ(products, 2u);
  }
}

TEST(Precision, WhatIsPickedFromPassesThroughMemory) {
  GraphBuilder b("halves");
  auto h = b.name(b.linear(b.input("x", F32, {4096, 4096}), b.parameter("w", F32, {4096, 4096})), "h");
  auto turned = b.name(b.permute(h, {1, 0}), "turned");
  auto low = b.slice(turned, {.dim = 0, .end = 2048}), high = b.slice(turned, {.dim = 0, .start = 2048});
  b.output(b.cast(b.add(b.name(b.mul(low, 2.0), "m"), high), BF16), "y");
  PrecisionAssignment a = assign(graphOf(b, "bf16"));
  EXPECT_EQ(chosen(a.record, "turned"), "bf16");
  for (const Node &n : a.graph.nodes)
    if (n.op == OpKind::Permute)
      EXPECT_EQ(a.graph.values[n.inputs[0].value].name, "h.again") << "rounded before it is turned";
  EXPECT_EQ(chosen(a.record, "m"), "nothing decided") << "it is computed where it is read";
}

//===--------------------------------------------------------------------------------------------------------------===//
// What no mode may do. Each has the same product without the role beside it.
//===--------------------------------------------------------------------------------------------------------------===//

TEST(PrecisionRules, AProductWithoutARoleIsQuantised) {
  PrecisionAssignment a =
      withRole("fp8", [](GraphBuilder &b, Tensor y, Tensor, Tensor) { b.output(b.gelu(y), "out"); });
  EXPECT_EQ(chosen(a.record, "y"), "f8e4m3 x f8e4m3");
}

TEST(PrecisionRules, SumsOfProductsAreF32) {
  for (const char *mode : kModes)
    for (DType t : {F32, BF16})
      for (int64_t rows : {1, 512}) {
        PrecisionAssignment a = assign(graphOf(feedForward(rows, t), mode));
        for (const Node &n : a.graph.nodes) {
          EXPECT_FALSE(n.attrs.fastAccumulate);
          // What is multiplied in fewer bits than the graph says is not rounded to them before the node's own type.
          if (n.op == OpKind::ScaledMatmul || n.op == OpKind::Matmul)
            EXPECT_EQ(a.graph.type(n.outputs[0]).dtype, t);
        }
      }
}

TEST(PrecisionRules, StatisticsOfNormsStayF32) {
  for (const char *mode : kModes) {
    GraphBuilder b("norm");
    auto x = b.input("x", F32, {8192, 4096});
    auto h = b.linear(x, b.parameter("w", F32, {4096, 4096}));
    auto m = b.name(b.mean(b.square(h), {.dims = {-1}, .keepdim = true}), "m");
    auto r = b.name(b.rsqrt(b.add(m, 1e-6)), "r");
    // The scale behind the product, whose kernel reads it from memory.
    b.output(b.mul(b.linear(h, b.parameter("v", F32, {4096, 4096})), r), "y");
    PrecisionAssignment a = assign(graphOf(b, mode));
    for (const Node &n : a.graph.nodes)
      for (const Operand &o : n.inputs)
        if (!o.isLiteral() && (a.graph.values[o.value].name == "m" || a.graph.values[o.value].name == "r"))
          EXPECT_NE(n.op, OpKind::Cast) << mode;
    ASSERT_TRUE(decision(a.record, "r"));
    EXPECT_EQ(decision(a.record, "r")->alternatives[1].refused, "a statistic of rows stays f32") << mode;
  }
}

TEST(PrecisionRules, LossesAndTheirLogitsStayF32) {
  for (const char *mode : kModes) {
    GraphBuilder b("loss");
    auto x = b.input("x", F32, {4096, 4096});
    auto targets = b.input("t", DType::I64, {4096});
    auto h = b.gelu(b.linear(x, b.parameter("u", F32, {4096, 4096})));
    auto logits = b.name(b.linear(h, b.parameter("head", F32, {16000, 4096})), "logits");
    auto l = b.name(b.crossEntropy(logits, targets), "l");
    b.output(b.mean(l), "loss");
    PrecisionAssignment a = assign(graphOf(b, mode));
    ASSERT_TRUE(decision(a.record, "logits")) << mode;
    for (const Value &v : a.graph.values)
      if (v.name == "l" || v.name == "logits")
        EXPECT_EQ(v.type.dtype, F32);
    for (const Node &n : a.graph.nodes)
      for (const Operand &o : n.inputs)
        if (!o.isLiteral()) {
          EXPECT_FALSE(a.graph.values[o.value].name == "l" && n.op == OpKind::Cast) << mode;
          EXPECT_FALSE(a.graph.values[o.value].name == "logits" && n.op == OpKind::Cast) << mode;
        }
    std::string refused;
    for (const PrecisionDecision &d : a.record.decisions)
      if (d.kind == "storage" && (d.name == "l" || d.name == "logits"))
        refused += d.name + ": " + d.alternatives[1].refused + "; ";
    EXPECT_EQ(refused, "logits: logits stay f32; l: a loss stays f32; ") << mode;
  }
}

TEST(PrecisionRules, AnOptimisersStateStaysF32) {
  for (const char *mode : kModes) {
    // Weights' gradient, and Adam behind it: m and v are read and written in f32, whatever passes between.
    GraphBuilder b("adam");
    auto x = b.input("x", F32, {4096, 4096}), dy = b.input("dy", F32, {4096, 4096});
    auto m = b.input("m", F32, {4096, 4096}), w = b.input("w", F32, {4096, 4096});
    auto g = b.matmul(dy, x, {.transposeA = true});
    auto next = b.name(b.add(b.mul(m, 0.9), b.mul(g, 0.1)), "m_next");
    auto clipped = b.div(next, b.add(b.sqrt(b.sum(b.square(next))), 1.0)); // reads m_next from memory
    b.output(next, "m_next");
    b.output(b.sub(w, b.mul(clipped, 0.001)), "w_next");
    PrecisionAssignment a = assign(graphOf(b, mode));
    for (const Node &n : a.graph.nodes)
      if (n.op == OpKind::Cast)
        for (const Operand &o : n.inputs) {
          const std::string &name = a.graph.values[o.value].name;
          EXPECT_TRUE(name == "x" || name == "dy") << mode << " rounds " << name;
        }
  }
  // Elementwise, from f32 states to f32 states: nothing is done.
  GraphBuilder b("state");
  auto w = b.input("w", F32, {1 << 20});
  auto kept = b.name(b.mul(w, 0.99), "kept");
  auto size = b.sum(b.square(kept));
  b.output(b.div(kept, size), "next");
  PrecisionAssignment a = assign(graphOf(b, "bf16"));
  EXPECT_EQ(a.graph.nodes.size(), 4u);
}

TEST(PrecisionRules, StatesAreNotNarrowedOnTheirWay) {
  GraphBuilder b("residual");
  auto x = b.input("x", F32, {4096, 4096});
  auto s = b.name(b.add(x, b.linear(b.rmsNorm(x), b.parameter("u", F32, {4096, 4096}))), "s");
  b.output(b.add(s, b.linear(b.rmsNorm(s), b.parameter("v", F32, {4096, 4096}))), "y");
  PrecisionAssignment a = assign(graphOf(b, "bf16"));
  ASSERT_TRUE(decision(a.record, "s"));
  EXPECT_EQ(decision(a.record, "s")->alternatives[1].refused,
            "a state that is carried from an f32 input to an f32 output stays f32");
  // The same where nothing f32 comes out.
  GraphBuilder c("narrow");
  auto z = c.input("x", BF16, {4096, 4096});
  auto r = c.name(c.add(c.cast(z, F32), c.linear(c.rmsNorm(c.cast(z, F32)), c.parameter("u", F32, {4096, 4096}))), "s");
  c.output(c.cast(c.add(r, c.linear(c.rmsNorm(r), c.parameter("v", F32, {4096, 4096}))), BF16), "y");
  EXPECT_EQ(chosen(assign(graphOf(c, "bf16")).record, "s"), "bf16");
}

TEST(PrecisionRules, EmbeddingTablesAreNotQuantised) {
  for (const char *mode : {"fp8", "int8", "auto"}) {
    PrecisionAssignment a = withRole(mode, [](GraphBuilder &b, Tensor y, Tensor w, Tensor) {
      auto ids = b.input("ids", DType::I64, {4096});
      b.output(b.add(b.gelu(y), b.embedding(w, ids)), "out");
    });
    EXPECT_EQ(refusal(a.record, "y"), "the weight is an embedding table, which is not quantised");
    EXPECT_EQ(count(a.graph, OpKind::Quantize), 0u);
  }
}

TEST(PrecisionRules, NormScalesAndBiasesAreNotQuantised) {
  for (const char *mode : {"fp8", "int8", "auto"})
    for (bool bias : {false, true}) {
      GraphBuilder b("scale");
      auto x = b.input("x", BF16, {65536, 4096});
      auto p = b.parameter("p", BF16, {4096});
      auto n = bias ? b.linear(x, b.parameter("w", BF16, {4096, 4096}), p) : b.rmsNorm(x, p);
      b.output(b.gelu(n), "n");
      b.output(b.gelu(b.name(b.linear(x, b.reshape(p, {1, 4096})), "y")), "out");
      PrecisionAssignment a = assign(graphOf(b, mode));
      EXPECT_EQ(refusal(a.record, "y"), "the weight is a norm's scale or a bias, which is not quantised");
      for (const Node &node : a.graph.nodes)
        if (node.op == OpKind::Quantize) {
          const std::string &name = a.graph.values[node.outputs[0]].name;
          EXPECT_TRUE(bias && (name.starts_with("w.") || name.starts_with("x."))) << name;
        }
    }
}

TEST(PrecisionRules, ProbabilitiesAreNotQuantised) {
  for (const char *mode : {"fp8", "int8", "auto"}) {
    GraphBuilder b("pick");
    auto x = b.input("x", BF16, {4096, 4096});
    auto p = b.softmax(b.mul(x, 0.1), -1);
    b.output(b.gelu(b.name(b.linear(p, b.parameter("w", BF16, {4096, 4096})), "y")), "out");
    PrecisionAssignment a = assign(graphOf(b, mode));
    EXPECT_EQ(refusal(a.record, "y"), "probabilities and their normaliser are not quantised");
    EXPECT_EQ(count(a.graph, OpKind::Quantize), 0u);
  }
}

// As wide as vocabularies are, and with more than a bias behind it: a temperature, a mask, a pick.
TEST(PrecisionRules, VocabulariesAreKnownByTheirWidth) {
  for (int behind = 0; behind < 4; ++behind) {
    GraphBuilder b("head");
    auto x = b.input("x", BF16, {1, 8192});
    auto h = b.name(b.linear(x, b.parameter("w", BF16, {32000, 8192})), "h");
    if (behind == 1)
      h = b.div(h, b.input("temperature", BF16, {1, 1}));
    if (behind == 2)
      h = b.where(b.input("mask", DType::Bool, {32000}), h, b.input("low", BF16, {1, 1}));
    if (behind == 3)
      h = b.indexSelect(h, b.input("ids", DType::I64, {7}), 1);
    b.output(h, behind ? "y" : "h");
    PrecisionAssignment a = assign(graphOf(b, "auto"));
    const PrecisionDecision *d = decision(a.record, "h");
    ASSERT_TRUE(d) << behind;
    EXPECT_TRUE(d->alternatives[0].chosen) << behind;
    for (const PrecisionAlternative &other : d->alternatives)
      if (other.name.find('8') != std::string::npos)
        EXPECT_EQ(other.refused, "a final projection onto logits is not quantised") << behind << other.name;
  }
}

// What a step makes of a rounded value may be anything: no tolerance allows it.
TEST(PrecisionBudget, NothingIsRoundedAboveAStep) {
  for (int step = 0; step < 5; ++step) {
    GraphBuilder b("steps");
    auto x = b.input("x", BF16, {1, 4096});
    auto h = b.linear(x, b.parameter("w", BF16, {4096, 4096}));
    auto z = b.input("z", BF16, {1, 4096});
    Tensor y = step == 0   ? b.where(b.gt(h, z), x, z)
               : step == 1 ? b.round(h)
               : step == 2 ? b.remainder(h, z)
               : step == 3 ? b.reciprocal(h)
                           : b.div(x, h);
    b.output(y, "y");
    PrecisionAssignment a = assign(graphOf(b, "auto", 0.5));
    EXPECT_EQ(count(a.graph, OpKind::Quantize), 0u) << step;
    EXPECT_EQ(a.record.error, a.record.errorKept) << step;
  }
}

// A table that is scaled, or joined with another, on the way to a product is a table.
TEST(PrecisionRules, TablesAreKnownBehindElementwiseOps) {
  for (int how = 0; how < 3; ++how) {
    GraphBuilder b("tied");
    auto ids = b.input("ids", DType::I64, {1});
    auto tab = b.parameter("tab", BF16, {4096, 4096});
    auto e = b.embedding(how == 2 ? b.mul(tab, 2.0) : tab, ids);
    auto w = how == 0 ? b.mul(tab, 0.5) : how == 1 ? b.cat({tab, b.parameter("more", BF16, {64, 4096})}, 0) : tab;
    b.output(b.gelu(b.name(b.linear(e, w), "h")), "y");
    PrecisionAssignment a = assign(graphOf(b, "auto"));
    EXPECT_EQ(refusal(a.record, "h"), "the weight is an embedding table, which is not quantised") << how;
  }
}

TEST(PrecisionRules, ScalesAreStatistics) {
  GraphBuilder b("scales");
  auto x = b.input("x", F32, {4096, 4096});
  auto q = b.quantize(b.gelu(x), {.dtype = E4M3, .granularity = Granularity::Token});
  b.output(b.dequantize(q.q, q.scale, {.granularity = Granularity::Token}), "y");
  b.output(b.mul(q.scale, q.scale), "s2");
  for (const char *mode : kModes) {
    PrecisionAssignment a = assign(graphOf(b, mode));
    for (const Node &n : a.graph.nodes)
      if (n.op == OpKind::Quantize)
        EXPECT_EQ(a.graph.type(n.outputs[1]).dtype, F32) << mode;
  }
}

TEST(PrecisionRules, FinalProjectionsOntoLogitsAreNotQuantised) {
  const std::string refused = "a final projection onto logits is not quantised";
  for (const char *mode : {"fp8", "int8", "auto"}) {
    auto refusalOf = [&](auto role, int64_t n = 4096) { return refusal(withRole(mode, role, BF16, n).record, "y"); };
    EXPECT_EQ(refusalOf([](GraphBuilder &b, Tensor y, Tensor, Tensor) {
                b.output(b.crossEntropy(y, b.input("t", DType::I64, {4096})), "loss");
              }),
              refused);
    EXPECT_EQ(refusalOf([](GraphBuilder &b, Tensor y, Tensor, Tensor) { b.output(b.softmax(b.mul(y, 0.5), -1), "p"); }),
              refused);
    EXPECT_EQ(refusalOf([](GraphBuilder &b, Tensor y, Tensor, Tensor) { b.output(b.logSoftmax(y, -1), "p"); }),
              refused);
    EXPECT_EQ(refusalOf([](GraphBuilder &b, Tensor y, Tensor, Tensor) { b.output(b.argmax(y, -1), "i"); }), refused);
    EXPECT_EQ(refusalOf([](GraphBuilder &b, Tensor y, Tensor, Tensor) { b.output(b.mul(y, 0.5), "logits"); }, 32000),
              refused);
    // A feed-forward's wide product, and scores that are multiplied again, are none.
    EXPECT_EQ(refusalOf([](GraphBuilder &b, Tensor y, Tensor, Tensor) { b.output(b.gelu(y), "h"); }, 16384), "open");
    EXPECT_EQ(refusalOf([](GraphBuilder &b, Tensor y, Tensor, Tensor x) {
                b.output(b.gelu(b.matmul(b.softmax(y, -1), x)), "attended");
              }),
              "open");
  }
}

TEST(PrecisionRules, WeightsAndActivationsAreE4m3AndGradientsE5m2) {
  GraphBuilder b("backward");
  auto x = b.input("x", BF16, {4096, 4096}), dy = b.input("dy", BF16, {4096, 4096});
  auto w = b.parameter("w", BF16, {4096, 4096});
  b.output(b.gelu(b.name(b.linear(x, w), "y")), "out");
  b.output(b.gelu(b.name(b.matmul(dy, w), "dx")), "back");
  PrecisionAssignment a = assign(graphOf(b, "fp8"), {"dy"});
  EXPECT_EQ(chosen(a.record, "y"), "f8e4m3 x f8e4m3");
  EXPECT_EQ(chosen(a.record, "dx"), "f8e5m2 x f8e4m3");
}

//===--------------------------------------------------------------------------------------------------------------===//
// Pins
//===--------------------------------------------------------------------------------------------------------------===//

TEST(PrecisionPins, WinOverWhatWouldBeChosen) {
  PrecisionAssignment a = assign(graphOf(feedForward(2048), "fp8", kAny, {{"wd", BF16}}));
  EXPECT_EQ(chosen(a.record, "down"), "bf16 x bf16");
  EXPECT_EQ(chosen(a.record, "gate"), "f8e4m3 x f8e4m3");
  EXPECT_EQ(decision(a.record, "down")->why, "pinned by its weight wd to bf16");
  a = assign(graphOf(feedForward(2048), "fp8", kAny, {{"h", BF16}}));
  EXPECT_EQ(chosen(a.record, "down"), "bf16 x f8e4m3 widened") << "its activation is pinned";
}

TEST(PrecisionPins, WinOverTheBudget) {
  for (DType t : {E4M3, E5M2, I8}) {
    PrecisionAssignment a = assign(graphOf(feedForward(2048), "bf16", 1e-9, {{"wd", t}}));
    EXPECT_NE(chosen(a.record, "down").find(dtypeName(t)), std::string::npos) << chosen(a.record, "down");
    EXPECT_GT(a.record.error, 1e-9);
  }
}

TEST(PrecisionPins, WinOverTheRules) {
  GraphBuilder b("head");
  auto x = b.input("x", BF16, {4096, 4096});
  auto y = b.name(b.linear(x, b.parameter("w", BF16, {4096, 4096})), "y");
  b.output(b.softmax(y, -1), "p");
  PrecisionAssignment a = assign(graphOf(b, "fp8", 1e-9, {{"w", E4M3}}));
  EXPECT_EQ(chosen(a.record, "y"), "f8e4m3 x f8e4m3");
}

TEST(PrecisionPins, NodesPinnedToEightBitsMultiplyInThemInEveryMode) {
  for (const char *mode : {"keep", "bf16", "fp8"})
    for (DType t : {E4M3, E5M2, I8}) {
      GraphBuilder b("node");
      auto x = b.input("x", BF16, {16, 64});
      b.output(b.pin(b.name(b.linear(x, b.parameter("w", BF16, {32, 64}), b.parameter("b", BF16, {32})), "y"), t), "y");
      Graph g = graphOf(b, mode, 1e-9);
      EXPECT_TRUE(asksForPrecision(g));
      PrecisionAssignment a = assign(g);
      EXPECT_EQ(count(a.graph, OpKind::ScaledMatmul), 1u);
      for (const Node &n : a.graph.nodes)
        EXPECT_FALSE(n.pin);
    }
}

TEST(PrecisionPins, NodesPinnedToSixteenBitsAreLeftToTheirPin) {
  GraphBuilder b("node");
  auto x = b.input("x", F32, {4096, 4096});
  b.output(b.gelu(b.pin(b.linear(x, b.parameter("w", F32, {4096, 4096})), F32)), "y");
  PrecisionAssignment a = assign(graphOf(b, "bf16"));
  EXPECT_EQ(a.graph.nodes.size(), 2u);
  EXPECT_EQ(a.graph.nodes[0].pin, F32);
}

TEST(PrecisionPins, ATensorPassesThroughItsPinnedType) {
  for (DType t : {BF16, F16, E4M3, I8}) {
    GraphBuilder b("pass");
    auto x = b.input("x", F32, {4, 64});
    b.output(b.mul(b.name(b.exp(x), "h"), 2.0), "y");
    Graph g = graphOf(b, "auto", 1e-9, {{"h", t}});
    PrecisionAssignment a = assign(g);
    EXPECT_EQ(chosen(a.record, "h"), dtypeName(t));
    double error = measured(g, a);
    EXPECT_GT(error, 0.2 * roundingError(t, 64));
    EXPECT_LT(error, 1.5 * roundingError(t, 64, true));
    // An output as well, under its own name and type.
    g = graphOf(b, "auto", 1e-9, {{"y", t}});
    a = assign(g);
    EXPECT_GT(measured(g, a), 0.2 * roundingError(t, 64));
  }
}

TEST(PrecisionPins, AreRefusedWhereTheyCannotBeHonoured) {
  auto error = [](const GraphBuilder &b, std::map<std::string, DType> pins = {}) {
    Result<PrecisionAssignment> a =
        assignPrecision(graphOf(b, "auto", 0.02, std::move(pins)), *cost::findTarget("h200"));
    return a.ok() ? std::string("none") : std::to_string(static_cast<int>(a.error().code)) + a.error().pointer;
  };
  GraphBuilder soft("soft");
  soft.output(soft.pin(soft.softmax(soft.input("x", F32, {4, 8}), -1), E4M3), "y");
  EXPECT_EQ(error(soft), "3/nodes/0/precision");
  GraphBuilder ids("ids");
  ids.output(ids.embedding(ids.parameter("t", F32, {4, 8}), ids.input("i", DType::I64, {3})), "y");
  EXPECT_EQ(error(ids, {{"i", I8}}), "3/precision/pin/i");
  GraphBuilder two("two"); // no parameter: nothing to scale by row of [N, K]
  two.output(two.pin(two.matmul(two.input("a", F32, {4, 8}), two.input("b", F32, {8, 4})), I8), "y");
  EXPECT_EQ(error(two), "3/nodes/0/precision");
}

TEST(Precision, GradientRequestsComeBefore) {
  GraphBuilder b("g");
  auto x = b.input("x", F32, {4});
  auto l = b.name(b.sum(b.square(x)), "l");
  b.output(l, "l");
  b.gradientOfLoss(l, {x});
  Result<PrecisionAssignment> a = assignPrecision(graphOf(b, "auto"), *cost::findTarget("h200"));
  ASSERT_FALSE(a.ok());
  EXPECT_EQ(a.error().pointer, "/gradient");
}

//===--------------------------------------------------------------------------------------------------------------===//
// The budget, and whether estimates hold
//===--------------------------------------------------------------------------------------------------------------===//

TEST(PrecisionBudget, WithoutAnyEverythingStays) {
  for (const char *mode : kModes)
    for (DType t : {F32, BF16})
      for (int64_t rows : {1, 2048}) {
        Graph g = graphOf(feedForward(rows, t), mode, 1e-12);
        PrecisionAssignment a = assign(g);
        Graph kept = g;
        kept.precision = {};
        EXPECT_EQ(text(a.graph), text(kept)) << mode;
        EXPECT_TRUE(a.atBind.empty());
        EXPECT_EQ(a.record.error, a.record.errorKept);
        EXPECT_EQ(a.record.seconds, a.record.secondsKept);
      }
}

TEST(PrecisionBudget, IsKeptAndMoreOfItIsNeverSlower) {
  for (const char *mode : kModes)
    for (DType t : {F32, BF16})
      for (int64_t rows : {1, 2048}) {
        double before = 1e9;
        for (double tolerance : {1e-4, 2e-3, 0.01, 0.02, 0.05, 0.2}) {
          PrecisionAssignment a = assign(graphOf(feedForward(rows, t), mode, tolerance));
          if (a.record.error > a.record.errorKept)
            EXPECT_LE(a.record.error, tolerance);
          EXPECT_LE(a.record.seconds, a.record.secondsKept);
          EXPECT_LE(a.record.seconds, before * 1.1) << mode << " " << tolerance;
          before = a.record.seconds;
        }
      }
}

TEST(PrecisionBudget, WhatWasObservedMultipliesTheErrors) {
  Graph g = graphOf(feedForward(1), "auto", 0.02);
  const std::string y = g.values[g.outputs[0]].name;
  PrecisionAssignment a = assign(g);
  EXPECT_FALSE(a.record.observed);
  ASSERT_EQ(a.record.errors.size(), 1u);
  EXPECT_EQ(a.record.errors[0], a.record.error);
  EXPECT_EQ(a.record.errorsKept[0], a.record.errorKept);
  double before = 0;
  for (double ratio : {0.1, 0.5, 1.0, 4.0}) {
    g.precision.observed = {{y, ratio}};
    PrecisionAssignment b = assign(g);
    EXPECT_TRUE(b.record.observed);
    EXPECT_NEAR(b.record.errorKept, ratio * a.record.errorKept, 1e-9);
    EXPECT_LE(b.record.error, 0.02);
    EXPECT_GE(b.record.seconds, before) << ratio;
    before = b.record.seconds;
  }
  g = graphOf(feedForward(1), "auto", 0.008);
  const double asEstimated = assign(g).record.seconds;
  g.precision.observed = {{y, 0.1}};
  EXPECT_LT(assign(g).record.seconds, asEstimated) << "errors are small, and more may be in 8 bits";
}

TEST(PrecisionBudget, TheSameGraphGivesTheSameAssignment) {
  for (const char *mode : kModes) {
    Graph g = graphOf(feedForward(300), mode, 0.02);
    PrecisionAssignment a = assign(g), b = assign(g);
    EXPECT_EQ(text(a.graph), text(b.graph));
    EXPECT_EQ(a.atBind, b.atBind);
    EXPECT_EQ(a.record.error, b.record.error);
    EXPECT_EQ(a.record.seconds, b.record.seconds);
  }
}

TEST(PrecisionBudget, ErrorsAreWithinTheEstimateAndNotFarBelow) {
  for (DType t : {BF16, F32})
    for (DType to : {E4M3, E5M2, I8, BF16, F16})
      for (const std::vector<std::string> &weights :
           std::vector<std::vector<std::string>>{{"wg", "wu", "wd"}, {"wg"}, {"wd"}}) {
        if (t == BF16 && isArithmeticFloat(to))
          continue;
        std::map<std::string, DType> pins;
        for (const std::string &w : weights)
          pins[w] = to;
        Graph g = graphOf(feedForward(32, t, 256, 384), "auto", 1e-9, pins);
        PrecisionAssignment a = assign(g);
        double error = measured(g, a);
        EXPECT_LE(error, a.record.error) << dtypeName(t) << " " << dtypeName(to) << " " << weights.size();
        EXPECT_GE(error, (to == I8 ? 0.2 : 0.3) * a.record.error) // random activations have no outliers
            << dtypeName(t) << " " << dtypeName(to) << " " << weights.size();
      }
}

TEST(PrecisionBudget, RoundingErrorsAreThoseOfTheTypes) {
  std::mt19937_64 rng(7);
  std::normal_distribution<double> normal;
  for (DType t : {F16, BF16, E4M3, E5M2}) {
    double difference = 0, size = 0;
    for (int i = 0; i < 20000; ++i) {
      double v = normal(rng);
      std::byte stored[4];
      storeElement(stored, t, 0, v);
      double r = loadElement(stored, t, 0);
      difference += (r - v) * (r - v);
      size += v * v;
    }
    double error = std::sqrt(difference / size);
    EXPECT_NEAR(error / roundingError(t), 1, 0.15) << dtypeName(t);
  }
}

//===--------------------------------------------------------------------------------------------------------------===//
// At binding, and in runs
//===--------------------------------------------------------------------------------------------------------------===//

TEST(PrecisionAtBind, ThePartsTogetherAreTheWhole) {
  for (const char *mode : kModes)
    for (DType t : {F32, BF16})
      for (const char *machine : {"h200", "a100", "cpu"}) {
        std::map<std::string, DType> pins;
        if (std::string_view(mode) == "int8")
          pins = {{"wg", I8}, {"wd", I8}};
        if (std::string_view(mode) == "fp8")
          pins = {{"wg", E4M3}, {"wu", E5M2}};
        Graph g = graphOf(feedForward(8, t, 64, 96), mode, kAny, pins);
        PrecisionAssignment a = assign(g, {}, machine);
        BindSplit split = splitAtBind(a.graph, a.atBind);
        if (pins.size())
          EXPECT_GE(split.atBind.outputs.size(), 4u);
        auto inputs = random(g, g.inputs, 3), parameters = random(g, g.parameters, 4);
        auto whole = interpret(a.graph, inputs, parameters);
        ASSERT_TRUE(whole.ok()) << whole.error().str();
        std::vector<HostTensor> all = parameters;
        if (!split.atBind.outputs.empty()) {
          auto derived = interpret(split.atBind, parameters, {});
          ASSERT_TRUE(derived.ok()) << derived.error().str();
          all.insert(all.end(), derived->begin(), derived->end());
        }
        ASSERT_EQ(split.atRun.parameters.size(), all.size());
        auto parts = interpret(split.atRun, inputs, all);
        ASSERT_TRUE(parts.ok()) << parts.error().str();
        EXPECT_EQ((*parts)[0].data, (*whole)[0].data);
        // Nothing that depends on parameters alone is left for the runs to convert.
        for (const Node &n : split.atRun.nodes)
          if (n.op == OpKind::Quantize) {
            ValueId v = n.inputs[0].value;
            EXPECT_NE(split.atRun.values[v].kind, Value::Parameter);
          }
      }
}

TEST(PrecisionAtBind, WithoutConversionsTheGraphIsLeftAlone) {
  Graph g = graphOf(feedForward(8), "keep");
  BindSplit split = splitAtBind(g, {});
  EXPECT_TRUE(split.atBind.outputs.empty());
  EXPECT_EQ(text(split.atRun), text(g));
}

} // namespace
