// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The decision record: what a compiled graph's says, and how it is rendered.
#include "compiler/explain/Record.h"
#include "compiler/Compiler.h"
#include "frontend/api/Builder.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

using namespace rl;
using Json = nlohmann::ordered_json;

namespace {

std::string recordOf(const GraphBuilder &g, const char *target = "h200") {
  Result<GraphSpec> spec = g.build();
  EXPECT_TRUE(spec.ok()) << spec.error().str();
  Result<Graph> graph = resolve(*spec);
  EXPECT_TRUE(graph.ok()) << graph.error().str();
  Result<Compiled> compiled = compile(*graph, *findCompileTarget(target));
  EXPECT_TRUE(compiled.ok()) << compiled.error().str();
  return compiled ? compiled->package.explain : std::string();
}

std::string rendered(const std::string &record, std::string_view format) {
  Result<std::string> text = renderRecord(record, format);
  EXPECT_TRUE(text.ok()) << text.error().str();
  return text ? *text : std::string();
}

size_t count(const std::string &text, std::string_view what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1))
    ++n;
  return n;
}

/// swiglu on [128, 256] bf16: 3 tensors of 64 KiB fused, 5 unfused.
GraphBuilder swiglu() {
  GraphBuilder g("swiglu");
  auto gate = g.input("gate", DType::BF16, {128, 256}), up = g.input("up", DType::BF16, {128, 256});
  g.source("model.py:7");
  g.output(g.mul(g.name(g.silu(gate), "s"), up), "y");
  return g;
}

// Kernels behind the first do not take a launch of their own, and start while the one before ends.
TEST(Record, KernelsInARow) {
  GraphBuilder g("two");
  auto x = g.input("x", DType::BF16, {4096, 4096});
  g.output(g.softmax(g.softmax(x, 0), 1), "y");
  Json r = Json::parse(recordOf(g));
  ASSERT_GE(r["kernels"].size(), 2u);
  cost::TargetDesc machine = *cost::findTarget("h200");
  double sum = machine.launchFirst * 1e6;
  for (const Json &k : r["kernels"]) {
    EXPECT_EQ(k["early"], &k != &r["kernels"][0]);
    const double saved =
        (k["early"].get<bool>() ? machine.launchFirst - machine.launchNextEarly : machine.launchFirst) * 1e6;
    sum += k["predicted_us"].get<double>() - saved;
    if (k["early"].get<bool>())
      EXPECT_NEAR(k["saved_us"].get<double>(), saved, 1e-6);
    else
      EXPECT_FALSE(k.contains("saved_us"));
  }
  EXPECT_NEAR(r["predicted_us"].get<double>(), sum, 1e-6);
}

// Two products of one operand, both short: one launch, of which either kernel says its name.
TEST(Record, KernelsThatShareALaunch) {
  GraphBuilder g("two");
  auto x = g.input("x", DType::BF16, {1, 1024});
  auto w = g.parameter("w", DType::BF16, {512, 1024}), v = g.parameter("v", DType::BF16, {512, 1024});
  g.output(g.linear(x, w), "y");
  g.output(g.linear(x, v), "z");
  Json r = Json::parse(recordOf(g));
  ASSERT_EQ(r["kernels"].size(), 2u);
  EXPECT_FALSE(r["kernels"][0].contains("launch"));
  EXPECT_EQ(r["kernels"][1]["launch"], "two_0");
  EXPECT_EQ(r["kernels"][0]["blocks"], r["kernels"][1]["blocks"]);
}

TEST(Record, SaysWhatIsFusedAndWhatItMoves) {
  Json r = Json::parse(recordOf(swiglu()));
  EXPECT_EQ(r["name"], "swiglu");
  EXPECT_EQ(r["target"], "cuda");
  EXPECT_EQ(r["arch"], "sm_90a");
  EXPECT_EQ(r["machine"], "h200");
  EXPECT_EQ(r["nodes"], 2);
  EXPECT_EQ(r["kernel_count"], 1);
  EXPECT_EQ(r["copies"], 0);
  EXPECT_EQ(r["bytes"], 3 * 65536);
  EXPECT_EQ(r["bytes_unfused"], 5 * 65536);
  EXPECT_EQ(r["arena_bytes"], 0);
  ASSERT_EQ(r["kernels"].size(), 1u);
  const Json &k = r["kernels"][0];
  EXPECT_EQ(k["name"], "swiglu_0");
  EXPECT_EQ(k["kind"], "pointwise");
  EXPECT_EQ(k["bytes_read"], 2 * 65536);
  EXPECT_EQ(k["bytes_written"], 65536);
  EXPECT_EQ(k["bytes_unfused"], 5 * 65536);
  EXPECT_EQ(k["bound"], "memory");
  EXPECT_EQ(k["elements"], 32768);
  EXPECT_EQ(k["blocks"], 32768 / (k["lanes"].get<int64_t>() * k["threads"].get<int64_t>()));
  ASSERT_EQ(k["nodes"].size(), 2u);
  EXPECT_EQ(k["nodes"][0], Json({{"op", "silu"}, {"output", "s"}, {"pointer", "/nodes/0"}, {"source", "model.py:7"}}));
  EXPECT_EQ(k["inputs"][0], Json({{"name", "gate"}, {"dtype", "bf16"}, {"shape", {128, 256}}, {"bytes", 65536}}));
  EXPECT_EQ(k["outputs"][0]["name"], "y");
  ASSERT_GE(k["why"].size(), 1u);
  EXPECT_NE(k["why"][0].get<std::string>().find("one pass over 32768 elements"), std::string::npos);
}

TEST(Record, SaysWhatTypesWereChosenAndWhatElseThereWas) {
  GraphBuilder g("narrow");
  auto x = g.input("x", DType::BF16, {1, 4096});
  g.output(g.gelu(g.name(g.linear(x, g.parameter("w", DType::BF16, {4096, 4096})), "h")), "y");
  g.precision({.mode = "int8", .tolerance = 0.05, .pin = {}, .observed = {}});
  std::string record = recordOf(g);
  Json r = Json::parse(record);
  const Json &p = r["precision"];
  EXPECT_EQ(p["mode"], "int8");
  EXPECT_EQ(p["tolerance"], 0.05);
  ASSERT_EQ(p["decisions"].size(), 1u);
  const Json &d = p["decisions"][0];
  EXPECT_EQ(d["name"], "h");
  EXPECT_EQ(d["pointer"], "/nodes/0");
  ASSERT_EQ(d["alternatives"].size(), 3u);
  size_t chosen = 0;
  for (const Json &a : d["alternatives"]) {
    EXPECT_GT(a["predicted_us"].get<double>(), 0);
    EXPECT_EQ(a["types"] == "bf16 x bf16", a["error"] == 0.0);
    chosen += a["chosen"].get<bool>();
  }
  EXPECT_EQ(chosen, 1u);
  EXPECT_LT(p["predicted_us"], p["predicted_kept_us"]);
  EXPECT_LT(p["error"], 0.05);
  // What is done at binding is no part of a run.
  ASSERT_EQ(r["kernels"].size(), 1u);
  ASSERT_EQ(r["bind_kernels"].size(), 1u);
  EXPECT_EQ(r["bind_kernels"][0]["name"], "narrow_bind_0");
  EXPECT_EQ(r["kernel_count"], 1);
  EXPECT_LT(r["bytes"], 4096 * 4096 * 1.1);
  EXPECT_GE(r["derived_bytes"], 4096 * 4096 + 4096 * 4);
  for (const char *format : {"text", "html"}) {
    std::string text = rendered(record, format);
    EXPECT_NE(text.find("bf16 x i8 widened"), std::string::npos) << format;
    EXPECT_NE(text.find(d["why"].get<std::string>()), std::string::npos) << format;
  }
}

TEST(Record, ANodeThatTwoKernelsComputeIsCountedOnce) {
  GraphBuilder g("twice");
  auto x = g.input("x", DType::F32, {64}), w = g.input("w", DType::F32, {8, 64});
  auto h = g.name(g.relu(x), "h"); // cheap: computed again for the large output
  g.output(h, "h");
  g.output(g.mul(h, w), "y");
  Json r = Json::parse(recordOf(g));
  ASSERT_EQ(r["kernel_count"], 2);
  EXPECT_EQ(r["kernels"][0]["nodes"].size() + r["kernels"][1]["nodes"].size(), 3u);
  EXPECT_EQ(r["nodes"], 2);
  EXPECT_EQ(r["bytes_unfused"], 4 * (64 + 64 + 64 + 512 + 512));
}

TEST(Record, CopiesAndNothing) {
  GraphBuilder g("copies");
  auto x = g.input("x", DType::F32, {100});
  g.output(x);
  g.output(g.name(g.relu(g.input("e", DType::F32, {0, 4})), "y"));
  std::string record = recordOf(g);
  Json r = Json::parse(record);
  EXPECT_EQ(r["kernel_count"], 0);
  EXPECT_EQ(r["copies"], 1);
  EXPECT_EQ(r["bytes"], 800);
  EXPECT_EQ(r["bytes_unfused"], 0);
  std::string text = rendered(record, "text");
  EXPECT_NE(text.find("copies: 1"), std::string::npos);
  EXPECT_EQ(text.find("times as much"), std::string::npos) << text;
  EXPECT_EQ(text.find("nan"), std::string::npos) << text;
}

TEST(Record, TilesOfAProductWithTheOneTaken) {
  GraphBuilder g("product");
  g.output(g.relu(g.matmul(g.input("x", DType::BF16, {512, 1024}), g.parameter("w", DType::BF16, {1024, 1024}))), "y");
  Json kernel = Json::parse(recordOf(g))["kernels"][0], &c = kernel["candidates"];
  EXPECT_TRUE(c["key"].get<std::string>().starts_with("512x1024x1024-")) << c;
  EXPECT_EQ(c["taken"], 0);
  ASSERT_GT(c["tiles"].size(), 1u);
  EXPECT_EQ(c["tiles"][0]["predicted_us"], kernel["predicted_us"]);
  EXPECT_FALSE(c["tiles"][0].contains("measured_us"));
  EXPECT_EQ(rendered(recordOf(g), "text").find("measured"), std::string::npos);
  EXPECT_FALSE(Json::parse(recordOf(swiglu()))["kernels"][0].contains("candidates"));

  Result<Graph> graph = resolve(*g.build());
  CompileOptions options;
  options.tiles[c["key"].get<std::string>()] = {1, {44.04, 41.25}};
  Result<Compiled> tuned = compile(*graph, *findCompileTarget("h200"), options);
  ASSERT_TRUE(tuned.ok()) << tuned.error().str();
  Json after = Json::parse(tuned->package.explain)["kernels"][0]["candidates"];
  EXPECT_EQ(after["taken"], 1);
  EXPECT_EQ(after["tiles"][1]["measured_us"], 41.25);
  EXPECT_EQ(after["tiles"].size(), c["tiles"].size());
  std::string text = rendered(tuned->package.explain, "text");
  for (const std::string part : {"(measured 44.0); ", "(measured 41.2) *", "why     chosen by measurement: "})
    EXPECT_EQ(count(text, part), 1u) << part << "\n" << text;
}

TEST(Record, TextNamesEveryTensorAndReason) {
  std::string text = rendered(recordOf(swiglu()), "text");
  for (const char *part :
       {"graph swiglu for sm_90a (figures of h200): 2 nodes in 1 fused kernel\n",
        "196.61 kB, one kernel a node would move 327.68 kB (1.7 times as much)", "kernel swiglu_0 (pointwise)\n",
        "nodes   s (silu), y (mul)\n", "reads   gate: bf16 [128, 256]\n", "reads   up: bf16 [128, 256]\n",
        "writes  y: bf16 [128, 256]\n", "bound   memory: ", " blocks of 128 threads, ",
        "why     one pass over 32768 elements"})
    EXPECT_NE(text.find(part), std::string::npos) << part << "\nis not in\n" << text;
}

TEST(Record, LongListsOfNodesAreCutShort) {
  GraphBuilder g("chain");
  auto x = g.input("x", DType::F32, {100});
  for (int i = 0; i < 100; ++i)
    x = g.name(g.sin(x), "n" + std::to_string(i));
  g.output(x);
  std::string text = rendered(recordOf(g), "text");
  EXPECT_NE(text.find("n39 (sin) ... and 60 more\n"), std::string::npos) << text;
  EXPECT_EQ(text.find("n40 (sin)"), std::string::npos);
}

/// Names and reasons that mean something in HTML or JSON.
std::string hostile() {
  Json k = {{"name", "k<0>"},
            {"kind", "pointwise"},
            {"nodes", {{{"op", "add"}, {"output", "a\"b<script>alert(1)</script>&"}}}},
            {"inputs", Json::array()},
            {"outputs", Json::array()},
            {"bytes_read", 1},
            {"bytes_written", 2},
            {"bytes_unfused", 3},
            {"flops", 4.0},
            {"intensity_flops_per_byte", 1.5},
            {"bound", "memory"},
            {"memory_us", 1.0},
            {"compute_us", 0.5},
            {"predicted_us", 2.0},
            {"elements", 1},
            {"lanes", 1},
            {"threads", 1},
            {"why", {"a < b && \"c\" > d"}}};
  Json r = {{"name", "<g>"},
            {"target", "cuda"},
            {"arch", "sm_90a"},
            {"machine", "h200"},
            {"ridge_point_flops_per_byte", 14.0},
            {"nodes", 1},
            {"kernel_count", 1},
            {"copies", 0},
            {"bytes", 3},
            {"bytes_unfused", 3},
            {"predicted_us", 2.0},
            {"arena_bytes", 0},
            {"kernels", {k}}};
  return r.dump();
}

TEST(Record, HtmlEscapesWhatComesFromTheGraph) {
  std::string html = rendered(hostile(), "html");
  EXPECT_EQ(html.find("<script"), std::string::npos) << html;
  EXPECT_NE(html.find("a&quot;b&lt;script&gt;alert(1)&lt;/script&gt;&amp;"), std::string::npos) << html;
  EXPECT_NE(html.find("<title>&lt;g&gt;</title>"), std::string::npos) << html;
  EXPECT_NE(html.find("<div>a &lt; b &amp;&amp; &quot;c&quot; &gt; d</div>"), std::string::npos) << html;
  for (const char *tag : {"html", "head", "body", "table", "thead", "tbody", "h1", "p", "style", "title"})
    EXPECT_EQ(count(html, std::string("<") + tag + ">") + count(html, std::string("<") + tag + " "),
              count(html, std::string("</") + tag + ">"))
        << tag;
  EXPECT_EQ(count(html, "<!doctype html>"), 1u);
}

TEST(Record, JsonIsWhatWasRecorded) {
  std::string record = recordOf(swiglu());
  EXPECT_EQ(Json::parse(rendered(record, "json")), Json::parse(record));
  EXPECT_EQ(rendered(record, "json").back(), '\n');
}

TEST(Record, NamesWithQuotesAreEscapedInJson) {
  GraphBuilder g("odd");
  g.output(g.name(g.relu(g.input("x", DType::F32, {4})), "quote\"back\\slash\ttab"));
  Json r = Json::parse(recordOf(g), nullptr, false);
  ASSERT_FALSE(r.is_discarded());
  EXPECT_EQ(r["kernels"][0]["outputs"][0]["name"], "quote\"back\\slash\ttab");
}

TEST(Record, TheSameGraphGivesTheSameRecord) { EXPECT_EQ(recordOf(swiglu()), recordOf(swiglu())); }

TEST(Record, BrokenRecordsAndFormatsAreErrors) {
  Result<std::string> r = renderRecord("not json", "text");
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, Code::Invalid);
  for (const char *record : {"{}", "[]", "3", "null", R"({"name": 3})", R"({"name": "x", "kernels": [1]})"})
    for (const char *format : {"text", "html"}) {
      r = renderRecord(record, format);
      ASSERT_FALSE(r.ok()) << record;
      EXPECT_EQ(r.error().code, Code::Invalid) << record;
    }
  Json missing = Json::parse(hostile());
  missing["kernels"][0].erase("why");
  EXPECT_FALSE(renderRecord(missing.dump(), "text").ok());
  EXPECT_FALSE(renderRecord(missing.dump(), "html").ok());
  r = renderRecord(hostile(), "yaml");
  ASSERT_FALSE(r.ok());
  EXPECT_EQ(r.error().code, Code::Usage);
  EXPECT_NE(r.error().message.find("text, json, html"), std::string::npos);
}

} // namespace
