// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The graph reader and writer: what is read, where each kind of mistake is reported, and that nothing is lost on the
// way out and back.
#include "frontend/json/JsonReader.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

using namespace rl;

namespace {

std::string readFile(const std::filesystem::path &path) {
  std::ifstream file(path, std::ios::binary);
  EXPECT_TRUE(file) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A valid graph with the given text in some of its places.
struct Pieces {
  std::string version = "1", name = "\"g\"", inputs = R"({"x": {"dtype": "f32", "shape": [2, 3]}})";
  std::string nodes = R"([{"op": "abs", "inputs": ["x"], "outputs": ["y"]}])", outputs = "[\"y\"]", more = {};
  std::string str() const {
    return "{\"ridgeline\": " + version + ", \"name\": " + name + ", \"inputs\": " + inputs + ", \"nodes\": " + nodes +
           ", \"outputs\": " + outputs + (more.empty() ? "" : ", " + more) + "}";
  }
};
std::string withNode(std::string node) { return Pieces{.nodes = "[" + node + "]"}.str(); }
std::string withAttr(std::string attr) {
  return withNode(R"({"op": "abs", "inputs": ["x"], "outputs": ["y"], "attrs": {)" + attr + "}}");
}
std::string withMore(std::string more) { return Pieces{.more = std::move(more)}.str(); }

void expectError(const std::string &json, const std::string &pointer, const std::string &part) {
  Result<GraphSpec> spec = parseGraph(json);
  ASSERT_FALSE(spec.ok()) << json;
  EXPECT_EQ(spec.error().code, Code::Invalid) << json;
  EXPECT_EQ(spec.error().pointer, pointer) << json << "\n" << spec.error().message;
  EXPECT_NE(spec.error().message.find(part), std::string::npos) << spec.error().message;
}

/// As expectError, without the text in the message.
void expectTooLarge(const std::string &json, const std::string &pointer) {
  Result<GraphSpec> spec = parseGraph(json);
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.error().pointer, pointer);
  EXPECT_NE(spec.error().message.find("too large"), std::string::npos) << spec.error().message;
}

TEST(JsonReader, ReadsEverything) {
  Result<GraphSpec> spec = parseGraph(R"({
    "ridgeline": 1, "name": "all",
    "inputs": {"z": {"dtype": "bfloat16", "shape": ["B", 3]}, "a": {"dtype": "F8_E4M3", "shape": []}},
    "parameters": {"w": {"shape": [9223372036854775807], "dtype": "i8"}},
    "nodes": [
      {"op": "add", "inputs": ["z", 1], "outputs": ["n0"]},
      {"op": "where", "inputs": [true, 0.5, -1e2], "outputs": ["n1", "n2"], "precision": "bf16", "source": "m.py:3 \u00e9\n",
       "attrs": {"i": -3, "f": 2.0, "b": false, "s": "tanh", "l": [1, "B", -1], "e": []}}],
    "outputs": ["n1", "z"],
    "dims": {"B": {"min": 0, "max": 7}, "C": {}},
    "numerics": "strict",
    "precision": {"mode": "fp8", "tolerance": 1, "pin": {"n0": "float16"}, "observed": {"n1": 0.25, "z": 2}},
    "gradient": {"of": {"n1": "z", "n0": "a"}, "wrt": ["z", "w"]}})");
  ASSERT_TRUE(spec.ok()) << spec.error().str();
  EXPECT_EQ(spec->name, "all");
  ASSERT_EQ(spec->inputs.size(), 2u); // the order of the file, not of the alphabet
  EXPECT_EQ(spec->inputs[0].name, "z");
  EXPECT_EQ(spec->inputs[0].dtype, DType::BF16);
  EXPECT_EQ(spec->inputs[0].shape, (std::vector<Dim>{{0, "B"}, {3, ""}}));
  EXPECT_EQ(spec->inputs[1].dtype, DType::F8E4M3);
  EXPECT_TRUE(spec->inputs[1].shape.empty());
  ASSERT_EQ(spec->parameters.size(), 1u);
  EXPECT_EQ(spec->parameters[0].shape[0].value, INT64_MAX);
  ASSERT_EQ(spec->nodes.size(), 2u);
  EXPECT_EQ(spec->nodes[0].inputs[0].name, "z");
  EXPECT_EQ(*spec->nodes[0].inputs[1].literal, (Scalar{Scalar::Int, 1, 0}));
  const NodeSpec &node = spec->nodes[1];
  EXPECT_EQ(*node.inputs[0].literal, (Scalar{Scalar::Bool, 1, 0}));
  EXPECT_EQ(*node.inputs[1].literal, (Scalar{Scalar::Float, 0, 0.5}));
  EXPECT_EQ(*node.inputs[2].literal, (Scalar{Scalar::Float, 0, -100}));
  EXPECT_EQ(node.outputs, (std::vector<std::string>{"n1", "n2"}));
  EXPECT_EQ(node.precision, "bf16");
  EXPECT_EQ(node.source, "m.py:3 \xc3\xa9\n");
  EXPECT_EQ(std::get<Scalar>(node.attrs.at("i")), (Scalar{Scalar::Int, -3, 0}));
  EXPECT_EQ(std::get<Scalar>(node.attrs.at("f")), (Scalar{Scalar::Float, 0, 2}));
  EXPECT_EQ(std::get<Scalar>(node.attrs.at("b")), (Scalar{Scalar::Bool, 0, 0}));
  EXPECT_EQ(std::get<std::string>(node.attrs.at("s")), "tanh");
  EXPECT_EQ(std::get<std::vector<Dim>>(node.attrs.at("l")), (std::vector<Dim>{{1, ""}, {0, "B"}, {-1, ""}}));
  EXPECT_TRUE(std::get<std::vector<Dim>>(node.attrs.at("e")).empty());
  EXPECT_EQ(spec->outputs, (std::vector<std::string>{"n1", "z"}));
  ASSERT_EQ(spec->dims.size(), 2u);
  EXPECT_EQ(spec->dims[0].max, 7);
  EXPECT_EQ(spec->dims[1].min, 1);
  EXPECT_EQ(spec->dims[1].max, INT32_MAX);
  EXPECT_TRUE(spec->strict);
  EXPECT_EQ(spec->precision.mode, "fp8");
  EXPECT_EQ(spec->precision.tolerance, 1);
  EXPECT_EQ(spec->precision.pin.at("n0"), DType::F16);
  EXPECT_EQ(spec->precision.observed, (std::map<std::string, double>{{"n1", 0.25}, {"z", 2}}));
  ASSERT_TRUE(spec->gradient);
  EXPECT_EQ(spec->gradient->of[0], (std::pair<std::string, std::string>{"n1", "z"}));
  EXPECT_EQ(spec->gradient->wrt, (std::vector<std::string>{"z", "w"}));
}

TEST(JsonReader, DefaultsOfWhatIsLeftOut) {
  Result<GraphSpec> spec = parseGraph(Pieces{}.str());
  ASSERT_TRUE(spec.ok()) << spec.error().str();
  EXPECT_TRUE(spec->parameters.empty());
  EXPECT_TRUE(spec->dims.empty());
  EXPECT_FALSE(spec->strict);
  EXPECT_EQ(spec->precision, PrecisionPolicy{});
  EXPECT_FALSE(spec->gradient);
  EXPECT_TRUE(checkSpec(*spec).ok());
}

TEST(JsonReader, LossGradient) {
  Result<GraphSpec> spec = parseGraph(withMore(R"("gradient": {"loss": "y", "loss_scale": 8, "wrt": ["x"]})"));
  ASSERT_TRUE(spec.ok()) << spec.error().str();
  EXPECT_EQ(spec->gradient->loss, "y");
  EXPECT_EQ(spec->gradient->lossScale, 8);
  EXPECT_TRUE(spec->gradient->of.empty());
}

TEST(JsonReader, WhatIsNotJson) {
  const std::string ok = Pieces{}.str();
  expectError("", "", "line 1, column 1");
  expectError("   \n\t", "", "not JSON");
  expectError(ok.substr(0, ok.size() - 1), "", "not JSON");
  expectError(ok.substr(0, ok.size() / 2), "", "not JSON");
  expectError(ok + "x", "", "not JSON");
  expectError(ok + "{}", "", "not JSON");
  expectError(ok + std::string("\0x", 2), "", "zero byte");
  expectError(ok + std::string("\0", 1), "", "zero byte");
  expectError("{\"ridgeline\": 1,\n  \"name\": }", "", "line 2, column 11");
  expectError("{\"ridgeline\": 01}", "", "not JSON");
  expectError("{\"ridgeline\": .5}", "", "not JSON");
  expectError("{\"ridgeline\": 0x1}", "", "not JSON");
  expectError("{\"ridgeline\": +1}", "", "not JSON");
  expectError("{'ridgeline': 1}", "", "not JSON");
  expectError("{\"ridgeline\": 1,}", "", "not JSON");
  expectError("// hello\n" + ok, "", "not JSON");
  expectError("[1 NaN]", "", "not JSON");
  expectError("{NaN: 1}", "", "not JSON");
  // Text that is not UTF-8: a lone continuation, an overlong form, a surrogate, beyond U+10FFFF, a cut sequence.
  for (const char *bytes : {"\x80", "\xc0\xaf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\xff"})
    expectError(Pieces{.name = std::string("\"") + bytes + "\""}.str(), "", "not JSON");
  for (const char *escape : {"\\ud800", "\\ud800\\u0041", "\\udc00", "\\u12", "\\x41", "\n"})
    expectError(Pieces{.name = std::string("\"") + escape + "\""}.str(), "", "not JSON");
  // The message shows nothing of what a broken file holds.
  Result<GraphSpec> broken = parseGraph("{\"a\": \"" + std::string(100000, 'x'));
  ASSERT_FALSE(broken.ok());
  EXPECT_LT(broken.error().message.size(), 200u);
}

TEST(JsonReader, RootAndVersion) {
  expectError("[]", "", "one object");
  expectError("1", "", "one object");
  expectError("null", "", "one object");
  expectError("{}", "/ridgeline", "missing");
  for (const char *version : {"2", "0", "\"1\"", "1.0", "1e0", "true", "null", "[1]"})
    expectError(Pieces{.version = version}.str(), "/ridgeline", "integer 1");
  // A file of another version may have other keys: the version is what to say.
  expectError(R"({"new": 1, "ridgeline": 2})", "/ridgeline", "integer 1");
}

TEST(JsonReader, Keys) {
  expectError(withMore("\"foo\": 1"), "/foo", "unknown key 'foo'");
  expectError(withMore("\"a/b~c\": 1"), "/a~1b~0c", "unknown key 'a/b~c'");
  expectError(withMore("\"\": 1"), "/", "unknown key ''");
  expectError(withMore("\"Name\": \"g\""), "/Name", "unknown key");
  expectError(Pieces{.inputs = R"({"x": {"dtype": "f32", "shape": [], "layout": 1}})"}.str(), "/inputs/x/layout",
              "unknown");
  expectError(withNode(R"({"op": "abs", "inputs": ["x"], "outputs": ["y"], "name": "n"})"), "/nodes/0/name",
              "node y (abs): unknown key");
  expectError(withMore(R"("dims": {"B": {"min": 1, "max": 2, "step": 3}})"), "/dims/B/step", "unknown key");
  expectError(withMore(R"("precision": {"modes": 1})"), "/precision/modes", "unknown key");
  expectError(withMore(R"("gradient": {"to": 1})"), "/gradient/to", "unknown key");
  for (const char *key : {"name", "inputs", "nodes", "outputs"}) {
    std::string text = Pieces{}.str(), member = "\"" + std::string(key) + "\": ";
    size_t at = key == std::string_view("inputs") ? text.find(member) : text.rfind(member);
    text.replace(at, member.size(), "\"dims\": ");
    // The key is gone; that dims now has another's value does not matter, keys come first.
    expectError(text, std::string("/") + key, "missing");
  }
  expectError(Pieces{.inputs = R"({"x": {"shape": []}})"}.str(), "/inputs/x/dtype", "missing");
  expectError(Pieces{.inputs = R"({"x": {"dtype": "f32"}})"}.str(), "/inputs/x/shape", "missing");
  expectError(withNode(R"({"inputs": ["x"], "outputs": ["y"]})"), "/nodes/0/op", "node y: missing");
  expectError(withNode(R"({"op": "abs", "outputs": ["y"]})"), "/nodes/0/inputs", "missing");
  expectError(withNode(R"({"op": "abs", "inputs": ["x"]})"), "/nodes/0/outputs", "missing");
}

TEST(JsonReader, DuplicateKeys) {
  expectError(R"({"ridgeline": 1, "name": "g", "name": "g"})", "/name", "duplicate key 'name'");
  expectError(R"({"ridgeline": 1, "na\u006de": "g", "name": "g"})", "/name", "duplicate key 'name'");
  expectError(
      Pieces{.inputs = R"({"x": {"dtype": "f32", "shape": []}, "w": {}, "x": {"dtype": "f32", "shape": []}})"}.str(),
      "/inputs/x", "duplicate key 'x'");
  expectError(withNode(R"({"op": "abs", "op": "neg", "inputs": ["x"], "outputs": ["y"]})"), "/nodes/0/op",
              "node y (abs): duplicate key 'op'");
  expectError(withAttr("\"a\": 1, \"b\": 2, \"b\": 2"), "/nodes/0/attrs/b", "duplicate key 'b'");
  // Among many keys the first repetition is named.
  std::string inputs = "{";
  for (int i = 0; i < 1000; ++i)
    inputs += "\"t" + std::to_string(i * 7919 % 1000) + "\": {\"dtype\": \"f32\", \"shape\": []}, ";
  expectError(Pieces{.inputs = inputs + "\"t5\": 1, \"t3\": 1}"}.str(), "/inputs/t5", "duplicate key 't5'");
  // A place behind arrays in arrays.
  expectError(R"({"a": [0, [1, 2, {"b": 1, "b": 1}]]})", "/a/1/2/b", "duplicate key 'b'");
}

TEST(JsonReader, Numbers) {
  const std::string node = R"({"op": "add", "inputs": ["x", NUMBER], "outputs": ["y"]})";
  auto with = [&](const std::string &number) {
    std::string text = node;
    text.replace(text.find("NUMBER"), 6, number);
    return withNode(text);
  };
  for (const char *number : {"9223372036854775808", "-9223372036854775809", "18446744073709551616",
                             "123456789012345678901234567890123456789012345678901234567890"})
    expectError(with(number), "/nodes/0/inputs/1", "node y (add): integer out of range");
  for (const char *number : {"1e309", "-1e309", "1.5E+999999999", "NaN", "Infinity", "-Infinity", "-NaN"})
    expectError(with(number), "/nodes/0/inputs/1",
                std::string("node y (add): '") + number + "' is not a finite number");
  expectError("[1, [2e308,3]]", "/1/0", "'2e308' is not a finite number");
  expectError("1e999", "", "'1e999' is not a finite number");
  expectError("NaN", "", "'NaN' is not a finite number");
  expectError(withAttr("\"eps\": NaN"), "/nodes/0/attrs/eps", "'NaN' is not a finite number");
  expectError(withMore("\"precision\": {\"tolerance\": -Infinity}"), "/precision/tolerance", "not a finite number");
  for (auto [number, value] : {std::pair<const char *, Scalar>{"9223372036854775807", {Scalar::Int, INT64_MAX, 0}},
                               {"-9223372036854775808", {Scalar::Int, INT64_MIN, 0}},
                               {"0", {Scalar::Int, 0, 0}},
                               {"1.0", {Scalar::Float, 0, 1}},
                               {"1e2", {Scalar::Float, 0, 100}},
                               {"-0.0", {Scalar::Float, 0, -0.0}},
                               {"1.7976931348623157e308", {Scalar::Float, 0, 1.7976931348623157e308}},
                               {"5e-324", {Scalar::Float, 0, 5e-324}},
                               {"1e-999", {Scalar::Float, 0, 0}}}) {
    Result<GraphSpec> spec = parseGraph(with(number));
    ASSERT_TRUE(spec.ok()) << number;
    EXPECT_EQ(*spec->nodes[0].inputs[1].literal, value) << number;
  }
}

TEST(JsonReader, WrongTypes) {
  expectError(Pieces{.name = "1"}.str(), "/name", "must be a string, not an integer");
  expectError(Pieces{.inputs = "[]"}.str(), "/inputs", "must be an object");
  expectError(Pieces{.inputs = R"({"x": "f32"})"}.str(), "/inputs/x", "must be an object");
  expectError(Pieces{.inputs = R"({"x": {"dtype": 1, "shape": []}})"}.str(), "/inputs/x/dtype", "name of a type");
  expectError(Pieces{.inputs = R"({"x": {"dtype": "f64", "shape": []}})"}.str(), "/inputs/x/dtype",
              "unknown type 'f64'");
  expectError(Pieces{.inputs = R"({"x": {"dtype": "f32", "shape": 3}})"}.str(), "/inputs/x/shape", "must be a list");
  expectError(Pieces{.inputs = R"({"x": {"dtype": "f32", "shape": [1, 2.0]}})"}.str(), "/inputs/x/shape/1",
              "an integer");
  expectError(Pieces{.inputs = R"({"x": {"dtype": "f32", "shape": [true]}})"}.str(), "/inputs/x/shape/0", "an integer");
  expectError(Pieces{.inputs = R"({"x": {"dtype": "f32", "shape": [1, ""]}})"}.str(), "/inputs/x/shape/1",
              "empty name");
  expectError(withMore("\"parameters\": null"), "/parameters", "must be an object");
  expectError(Pieces{.nodes = "{}"}.str(), "/nodes", "must be a list");
  expectError(withNode("\"abs\""), "/nodes/0", "must be an object");
  expectError(withNode(R"({"op": 1, "inputs": ["x"], "outputs": ["y"]})"), "/nodes/0/op",
              "node y: op must be a string");
  expectError(withNode(R"({"op": "abs", "inputs": "x", "outputs": ["y"]})"), "/nodes/0/inputs", "must be a list");
  expectError(withNode(R"({"op": "abs", "inputs": [null], "outputs": ["y"]})"), "/nodes/0/inputs/0", "not null");
  expectError(withNode(R"({"op": "abs", "inputs": ["x", ["x"]], "outputs": ["y"]})"), "/nodes/0/inputs/1",
              "not a list");
  expectError(withNode(R"({"op": "abs", "inputs": [""], "outputs": ["y"]})"), "/nodes/0/inputs/0", "empty name");
  expectError(withNode(R"({"op": "abs", "inputs": ["x"], "outputs": "y"})"), "/nodes/0/outputs", "must be a list");
  expectError(withNode(R"({"op": "abs", "inputs": ["x"], "outputs": ["y", 1]})"), "/nodes/0/outputs/1",
              "must be a string");
  expectError(withNode(R"({"op": "abs", "inputs": ["x"], "outputs": ["y"], "attrs": []})"), "/nodes/0/attrs",
              "an object");
  expectError(withNode(R"({"op": "abs", "inputs": ["x"], "outputs": ["y"], "source": 12})"), "/nodes/0/source",
              "a string");
  expectError(withNode(R"({"op": "abs", "inputs": ["x"], "outputs": ["y"], "precision": 16})"), "/nodes/0/precision",
              "a string");
  expectError(withNode(R"({"op": "abs", "inputs": ["x"], "outputs": ["y"], "precision": ""})"), "/nodes/0/precision",
              "empty");
  expectError(withAttr("\"dim\": null"), "/nodes/0/attrs/dim", "not null");
  expectError(withAttr("\"dim\": {}"), "/nodes/0/attrs/dim", "not an object");
  expectError(withAttr("\"dims\": [0, 1.5]"), "/nodes/0/attrs/dims/1", "must be an integer");
  expectError(withAttr("\"dims\": [0, true]"), "/nodes/0/attrs/dims/1", "must be an integer");
  expectError(withAttr("\"dims\": [[0]]"), "/nodes/0/attrs/dims/0", "not a list");
  expectError(Pieces{.outputs = "\"y\""}.str(), "/outputs", "must be a list");
  expectError(Pieces{.outputs = "[1]"}.str(), "/outputs/0", "must be a string");
  expectError(withMore(R"("dims": ["B"])"), "/dims", "must be an object");
  expectError(withMore(R"("dims": {"B": 4})"), "/dims/B", "must be an object");
  expectError(withMore(R"("dims": {"B": {"min": 1.0}})"), "/dims/B/min", "must be an integer");
  expectError(withMore(R"("dims": {"B": {"max": "9"}})"), "/dims/B/max", "must be an integer");
  expectError(withMore(R"("numerics": "exact")"), "/numerics", "'fused' or 'strict'");
  expectError(withMore(R"("numerics": true)"), "/numerics", "must be a string");
  expectError(withMore(R"("precision": "bf16")"), "/precision", "must be an object");
  expectError(withMore(R"("precision": {"mode": 1})"), "/precision/mode", "must be a string");
  expectError(withMore(R"("precision": {"tolerance": "1"})"), "/precision/tolerance", "must be a number");
  expectError(withMore(R"("precision": {"pin": ["y"]})"), "/precision/pin", "must be an object");
  expectError(withMore(R"("precision": {"pin": {"y": "f12"}})"), "/precision/pin/y", "unknown type");
  expectError(withMore(R"("precision": {"observed": ["y"]})"), "/precision/observed", "must be an object");
  expectError(withMore(R"("precision": {"observed": {"y": "1"}})"), "/precision/observed/y", "must be a number");
  expectError(withMore(R"("gradient": [])"), "/gradient", "must be an object");
  expectError(withMore(R"("gradient": {"wrt": ["x"]})"), "/gradient", "'of' or 'loss'");
  expectError(withMore(R"("gradient": {"of": {"y": "x"}})"), "/gradient/wrt", "missing");
  expectError(withMore(R"("gradient": {"of": {"y": "x"}, "loss": "y", "wrt": ["x"]})"), "/gradient/loss", "both");
  expectError(withMore(R"("gradient": {"of": {"y": "x"}, "loss_scale": 2, "wrt": ["x"]})"), "/gradient/loss_scale",
              "'loss'");
  expectError(withMore(R"("gradient": {"of": {}, "wrt": ["x"]})"), "/gradient/of", "no output");
  expectError(withMore(R"("gradient": {"of": ["y"], "wrt": ["x"]})"), "/gradient/of", "an object");
  expectError(withMore(R"("gradient": {"of": {"y": 1}, "wrt": ["x"]})"), "/gradient/of/y", "must be a string");
  expectError(withMore(R"("gradient": {"loss": "", "wrt": ["x"]})"), "/gradient/loss", "empty name");
  expectError(withMore(R"("gradient": {"loss": "y", "loss_scale": "2", "wrt": ["x"]})"), "/gradient/loss_scale",
              "a number");
  expectError(withMore(R"("gradient": {"loss": "y", "wrt": "x"})"), "/gradient/wrt", "must be a list");
}

TEST(JsonReader, DepthAndSize) {
  auto nested = [](int depth, std::string open, std::string close, std::string inner) {
    std::string text;
    for (int i = 0; i < depth; ++i)
      text += open;
    text += inner;
    for (int i = 0; i < depth; ++i)
      text += close;
    return text;
  };
  expectError(nested(kMaxJsonDepth, "[", "]", ""), "", "one object"); // deep enough for every graph, not too deep
  expectError(nested(kMaxJsonDepth + 1, "[", "]", ""), nested(kMaxJsonDepth, "/0", "", ""), "nested deeper");
  expectError(nested(kMaxJsonDepth + 1, "{\"a\":", "}", "1"), nested(kMaxJsonDepth, "/a", "", ""), "nested deeper");
  // Far deeper than any stack.
  expectError(std::string(10'000'000, '['), nested(kMaxJsonDepth, "/0", "", ""), "nested deeper");
  Result<GraphSpec> large = parseGraph(std::string(kMaxGraphBytes + 1, ' '));
  ASSERT_FALSE(large.ok());
  EXPECT_NE(large.error().message.find("the limit is"), std::string::npos);
  expectError(withAttr("\"dims\": [" + nested(2000, "0,", "", "0") + "]"), "/nodes/0/attrs/dims", "2001 entries");
}

TEST(JsonReader, TextThatWouldBecomeManyGigabytes) {
  // Two bytes an operand, and a spec of 64 bytes for each.
  std::string text = R"({"ridgeline": 1, "name": "g", "inputs": {}, "outputs": ["y"],
    "nodes": [{"op": "cat", "outputs": ["y"], "inputs": [0)";
  for (size_t i = 0; i < (34u << 20); ++i)
    text += ",0";
  expectTooLarge(text + "]}]}", "/nodes/0/inputs");
}

TEST(JsonReader, ErrorsQuoteSafely) {
  // Neither control characters nor a name of a megabyte reach the terminal through a message.
  Result<GraphSpec> spec = parseGraph(withMore("\"numerics\": \"\\u001b[31m" + std::string(1 << 20, 'x') + "\""));
  ASSERT_FALSE(spec.ok());
  EXPECT_LT(spec.error().message.size(), 300u);
  EXPECT_EQ(spec.error().message.find('\x1b'), std::string::npos);
}

TEST(JsonWriter, Canonical) {
  Result<GraphSpec> spec = parseGraph(R"({"outputs": ["y"], "nodes": [
      {"outputs": ["y"], "source": "a\"b\\\u0001\t", "op": "clamp", "attrs": {"min": -1, "max": 1e20}, "inputs": ["x"]}],
    "numerics": "strict", "ridgeline": 1, "name": "g", "inputs": {"x": {"shape": [2, "B"], "dtype": "float32"}},
    "dims": {"B": {"max": 3}}, "precision": {"mode": "keep"}})");
  ASSERT_TRUE(spec.ok()) << spec.error().str();
  EXPECT_EQ(printGraph(*spec), R"({
  "ridgeline": 1,
  "name": "g",
  "inputs": {
    "x": {"dtype": "f32", "shape": [2, "B"]}
  },
  "nodes": [
    {"op": "clamp", "inputs": ["x"], "outputs": ["y"], "attrs": {"max": 1e+20, "min": -1}, "source": "a\"b\\\u0001\t"}
  ],
  "outputs": ["y"],
  "dims": {
    "B": {"min": 1, "max": 3}
  },
  "numerics": "strict"
}
)");
}

TEST(JsonWriter, NumbersSurvive) {
  GraphSpec spec;
  spec.name = "g";
  for (double value :
       {0.0, -0.0, 1.0, 0.1, 1e20, 1e-7, 5e-324, 1.7976931348623157e308, 0.7978845608028654, 1.0 / 3, 123456789.0})
    spec.nodes.push_back({"neg", {{"", Scalar{Scalar::Float, 0, value}}}, {"y"}, {}, {}, {}});
  for (int64_t value : {INT64_MIN, INT64_MAX, int64_t{0}})
    spec.nodes.push_back({"neg", {{"", Scalar{Scalar::Int, value, 0}}}, {"y"}, {}, {}, {}});
  Result<GraphSpec> back = parseGraph(printGraph(spec));
  ASSERT_TRUE(back.ok()) << back.error().str();
  for (size_t i = 0; i < spec.nodes.size(); ++i) {
    const Scalar &a = *spec.nodes[i].inputs[0].literal, &b = *back->nodes[i].inputs[0].literal;
    EXPECT_EQ(a, b);
    EXPECT_EQ(std::signbit(a.f), std::signbit(b.f));
  }
  // What has no JSON is written so that the reader names the place.
  spec.nodes = {{"neg", {{"", Scalar{Scalar::Float, 0, -INFINITY}}}, {"y"}, {}, {}, {}}};
  Result<GraphSpec> infinite = parseGraph(printGraph(spec));
  ASSERT_FALSE(infinite.ok());
  EXPECT_EQ(infinite.error().pointer, "/nodes/0/inputs/0");
}

TEST(JsonWriter, AnyBytesInNamesPrintAsJson) {
  GraphSpec spec;
  spec.name = "g";
  spec.inputs.push_back({"\xff\xc0\xaf\xed\xa0\x80ok\xf0\x9f\x98\x80\x7f", DType::F32, {}});
  Result<GraphSpec> back = parseGraph(printGraph(spec));
  ASSERT_TRUE(back.ok()) << back.error().str();
  EXPECT_TRUE(back->inputs[0].name.ends_with("ok\xf0\x9f\x98\x80\x7f"));
}

/// Every graph of the repository that can be read.
std::vector<std::filesystem::path> graphFiles() {
  std::vector<std::filesystem::path> out;
  const std::filesystem::path root = RIDGELINE_SOURCE_DIR;
  for (const char *folder : {"tests/cases", "examples/graphs", "tests/fuzz/corpus/FuzzJson"})
    for (const auto &entry : std::filesystem::recursive_directory_iterator(root / folder))
      if (entry.path().filename() == "graph.json" || entry.path().parent_path().filename() == "graphs" ||
          entry.path().parent_path().filename() == "FuzzJson")
        out.push_back(entry.path());
  EXPECT_GT(out.size(), 100u);
  return out;
}

TEST(JsonRoundTrip, PrintedGraphsReadBackAsThemselves) {
  size_t read = 0;
  for (const auto &path : graphFiles()) {
    Result<GraphSpec> spec = parseGraph(readFile(path));
    if (!spec)
      continue;
    ++read;
    std::string printed = printGraph(*spec);
    Result<GraphSpec> again = parseGraph(printed);
    ASSERT_TRUE(again.ok()) << path << again.error().str();
    EXPECT_EQ(printGraph(*again), printed) << path;
    EXPECT_EQ(checkSpec(*spec).ok(), checkSpec(*again).ok()) << path;
  }
  EXPECT_GT(read, 100u);
}

TEST(JsonRoundTrip, ExampleGraphsAreValidAndCanonical) {
  size_t seen = 0;
  for (const auto &entry :
       std::filesystem::directory_iterator(std::filesystem::path(RIDGELINE_SOURCE_DIR) / "examples/graphs")) {
    ++seen;
    std::string text = readFile(entry.path());
    Result<GraphSpec> spec = parseGraph(text);
    ASSERT_TRUE(spec.ok()) << spec.error().str(entry.path().string());
    EXPECT_EQ(printGraph(*spec), text) << entry.path();
    EXPECT_EQ(entry.path().stem().string(), spec->name);
    Result<Signature> signature = checkSpec(*spec);
    EXPECT_TRUE(signature.ok()) << signature.error().str(entry.path().string());
  }
  EXPECT_GE(seen, 8u);
}

void expectSameGraph(const Graph &a, const Graph &b) {
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.strict, b.strict);
  EXPECT_EQ(a.inputs, b.inputs);
  EXPECT_EQ(a.parameters, b.parameters);
  EXPECT_EQ(a.outputs, b.outputs);
  EXPECT_EQ(a.precision, b.precision);
  ASSERT_EQ(a.values.size(), b.values.size());
  for (size_t v = 0; v < a.values.size(); ++v) {
    EXPECT_EQ(a.values[v].name, b.values[v].name);
    EXPECT_EQ(a.values[v].kind, b.values[v].kind);
    EXPECT_EQ(a.values[v].type, b.values[v].type) << a.values[v].name;
    EXPECT_EQ(a.values[v].node, b.values[v].node);
    EXPECT_EQ(a.values[v].index, b.values[v].index);
  }
  ASSERT_EQ(a.nodes.size(), b.nodes.size());
  for (size_t n = 0; n < a.nodes.size(); ++n) {
    const Node &x = a.nodes[n], &y = b.nodes[n];
    const Attrs &p = x.attrs, &q = y.attrs;
    SCOPED_TRACE(a.describe(static_cast<NodeId>(n)));
    EXPECT_EQ(x.op, y.op);
    EXPECT_EQ(x.outputs, y.outputs);
    EXPECT_EQ(x.pin, y.pin);
    EXPECT_EQ(x.source, y.source);
    ASSERT_EQ(x.inputs.size(), y.inputs.size());
    for (size_t k = 0; k < x.inputs.size(); ++k) {
      EXPECT_EQ(x.inputs[k].value, y.inputs[k].value);
      EXPECT_EQ(x.inputs[k].literal, y.inputs[k].literal);
    }
    EXPECT_EQ(p.tanhApproximation, q.tanhApproximation);
    EXPECT_EQ(p.dtype, q.dtype);
    EXPECT_EQ(p.saturate, q.saturate);
    EXPECT_EQ(p.min, q.min);
    EXPECT_EQ(p.max, q.max);
    EXPECT_EQ(p.shape, q.shape);
    EXPECT_EQ(p.dims, q.dims);
    EXPECT_EQ(p.keepdim, q.keepdim);
    EXPECT_EQ(p.dim, q.dim);
    EXPECT_EQ(p.start, q.start);
    EXPECT_EQ(p.step, q.step);
    EXPECT_EQ(p.length, q.length);
    EXPECT_EQ(p.low, q.low);
    EXPECT_EQ(p.high, q.high);
    EXPECT_EQ(p.value, q.value);
    EXPECT_EQ(p.correction, q.correction);
    EXPECT_EQ(p.eps, q.eps);
    EXPECT_EQ(p.hasWeight, q.hasWeight);
    EXPECT_EQ(p.hasBias, q.hasBias);
    EXPECT_EQ(p.transposeA, q.transposeA);
    EXPECT_EQ(p.transposeB, q.transposeB);
    EXPECT_EQ(p.causal, q.causal);
    EXPECT_EQ(p.scale, q.scale);
    EXPECT_EQ(p.ignoreIndex, q.ignoreIndex);
    EXPECT_EQ(p.granularity, q.granularity);
    EXPECT_EQ(p.granularityA, q.granularityA);
    EXPECT_EQ(p.granularityB, q.granularityB);
    EXPECT_EQ(p.axis, q.axis);
    EXPECT_EQ(p.axisA, q.axisA);
    EXPECT_EQ(p.axisB, q.axisB);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(p.block[i], q.block[i]);
      EXPECT_EQ(p.blockA[i], q.blockA[i]);
      EXPECT_EQ(p.blockB[i], q.blockB[i]);
    }
    EXPECT_EQ(p.scaleDtype, q.scaleDtype);
    EXPECT_EQ(p.asymmetric, q.asymmetric);
    EXPECT_EQ(p.fastAccumulate, q.fastAccumulate);
  }
}

TEST(JsonRoundTrip, ResolvedGraphsWriteOutAndResolveToThemselves) {
  size_t resolved = 0;
  std::vector<bool> seen(allOps().size());
  for (const auto &path : graphFiles()) {
    Result<GraphSpec> spec = parseGraph(readFile(path));
    if (!spec)
      continue;
    DimValues dims;
    for (const DimSpec &dim : spec->dims)
      dims[dim.name] = dim.min;
    Result<Graph> graph = resolve(*spec, dims);
    if (!graph)
      continue;
    ++resolved;
    SCOPED_TRACE(path.string());
    for (const Node &node : graph->nodes)
      seen[static_cast<size_t>(node.op)] = true;
    Result<GraphSpec> back = parseGraph(printGraph(specOf(*graph)));
    ASSERT_TRUE(back.ok()) << back.error().str();
    Result<Graph> again = resolve(*back);
    ASSERT_TRUE(again.ok()) << again.error().str();
    expectSameGraph(*graph, *again);
  }
  EXPECT_GT(resolved, 90u);
  for (const OpInfo &op : allOps()) // every op with attributes of its own is among those graphs
    if (!op.attrs.empty())
      EXPECT_TRUE(seen[static_cast<size_t>(op.kind)]) << op.name;
}

TEST(JsonRoundTrip, SlicesOfEveryKind) {
  for (int64_t extent : {0, 1, 2, 5})
    for (int64_t start = -7; start <= 7; ++start)
      for (int64_t end = -7; end <= 7; ++end)
        for (int64_t step : {-7, -2, -1, 1, 2, 7}) {
          GraphSpec spec;
          spec.name = "g";
          spec.inputs.push_back({"x", DType::F32, {{extent, ""}}});
          auto integer = [](int64_t i) { return AttrValue(Scalar{Scalar::Int, i, 0}); };
          spec.nodes.push_back(
              {"slice",
               {{"x", {}}},
               {"y"},
               {{"dim", integer(0)}, {"start", integer(start)}, {"end", integer(end)}, {"step", integer(step)}},
               {},
               {}});
          spec.outputs = {"y"};
          Result<Graph> graph = resolve(spec);
          ASSERT_TRUE(graph.ok()) << graph.error().str();
          Result<Graph> again = resolve(specOf(*graph));
          ASSERT_TRUE(again.ok()) << again.error().str();
          expectSameGraph(*graph, *again);
        }
}

} // namespace
