// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What InterpreterTest runs its cases with: tensors of doubles, graphs of a node or a few, comparisons that know NaN and
// the sign of zero.
#pragma once

#include "frontend/json/JsonReader.h"
#include "ir/interp/Convert.h"
#include "ir/interp/Interpreter.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <set>

using namespace rl;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
using Values = std::vector<double>;
using Shape = std::vector<int64_t>;

/// Ops that some test has run: the last test of the program demands all of them.
std::set<std::string> &covered() {
  static std::set<std::string> ops;
  return ops;
}

struct In {
  const char *dtype;
  Shape shape;
  Values values;
};

/// A tensor of doubles, through the format's own casts: integers beyond 2^53 are not for this.
HostTensor tensor(const In &in) {
  HostTensor t;
  t.type = {*parseDType(in.dtype), in.shape};
  t.data.resize(static_cast<size_t>(t.type.bytes()));
  EXPECT_EQ(static_cast<int64_t>(in.values.size()), t.type.elements());
  for (size_t i = 0; i < in.values.size(); ++i)
    storeElement(t.data.data(), t.type.dtype, static_cast<int64_t>(i), in.values[i]);
  return t;
}

Values valuesOf(const HostTensor &t) {
  Values v;
  for (int64_t i = 0; i < t.type.elements(); ++i)
    v.push_back(loadElement(t.data.data(), t.type.dtype, i));
  return v;
}

/// "x, 0.5" as JSON: names in quotes, literals as they are.
std::string quoted(const std::string &list) {
  std::string out, word;
  for (char c : list + ",") {
    if (c == ' ')
      continue;
    if (c != ',') {
      word += c;
      continue;
    }
    const bool name =
        !word.empty() && std::isalpha(static_cast<unsigned char>(word[0])) && word != "true" && word != "false";
    out += (out.empty() ? "" : ", ") + (name ? "\"" + word + "\"" : word);
    word.clear();
  }
  return out;
}

std::string node(const std::string &op, const std::string &inputs, const std::string &outputs,
                 const std::string &attrs = "") {
  return "{\"op\": \"" + op + "\", \"inputs\": [" + quoted(inputs) + "], \"outputs\": [" + quoted(outputs) + "]" +
         (attrs.empty() ? "" : ", \"attrs\": {" + attrs + "}") + "}";
}

/// A graph of inputs x0, x1, ... ; `nodes` is the JSON text of that key.
Result<std::vector<HostTensor>> runGraph(const std::vector<HostTensor> &inputs, const std::string &nodes,
                                         const std::string &outputs, bool strict = false,
                                         Intermediates intermediates = Intermediates::Rounded,
                                         const std::string &more = "") {
  std::string text = R"({"ridgeline": 1, "name": "t", "inputs": {)";
  for (size_t k = 0; k < inputs.size(); ++k)
    text += std::string(k ? ", " : "") + "\"x" + std::to_string(k) + "\": {\"dtype\": \"" +
            dtypeName(inputs[k].type.dtype) + "\", \"shape\": " + str(inputs[k].type.shape) + "}";
  text += "}, \"nodes\": [" + nodes + "], \"outputs\": [" + quoted(outputs) + "]" +
          (strict ? ", \"numerics\": \"strict\"" : "") + more + "}";
  RL_ASSIGN(GraphSpec spec, parseGraph(text));
  RL_ASSIGN(Graph graph, resolve(spec));
  for (const Node &node : graph.nodes)
    covered().insert(opInfo(node.op).name);
  return interpret(graph, inputs, {}, {}, intermediates);
}

/// One node on its inputs; `operands` may replace the list of inputs (literals).
std::vector<HostTensor> evalAll(const std::string &op, const std::vector<HostTensor> &inputs,
                                const std::string &attrs = "", std::string operands = "", size_t results = 1) {
  if (operands.empty())
    for (size_t k = 0; k < inputs.size(); ++k)
      operands += (k ? ", x" : "x") + std::to_string(k);
  std::string outputs;
  for (size_t k = 0; k < results; ++k)
    outputs += (k ? ", y" : "y") + std::to_string(k);
  Result<std::vector<HostTensor>> result = runGraph(inputs, node(op, operands, outputs, attrs), outputs);
  EXPECT_TRUE(result.ok()) << op << ": " << (result.ok() ? "" : result.error().str());
  return result.ok() ? *result : std::vector<HostTensor>(results);
}

HostTensor evalOne(const std::string &op, const std::vector<In> &inputs, const std::string &attrs = "",
                   const std::string &operands = "") {
  std::vector<HostTensor> tensors;
  for (const In &in : inputs)
    tensors.push_back(tensor(in));
  return evalAll(op, tensors, attrs, operands)[0];
}

void expectValues(const Values &got, const Values &want, double tolerance, const std::string &what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i]))
      EXPECT_TRUE(std::isnan(got[i])) << what << " [" << i << "]: " << got[i] << ", not NaN";
    else if (tolerance == 0 || std::isinf(want[i]))
      EXPECT_TRUE(got[i] == want[i] && (want[i] != 0 || std::signbit(got[i]) == std::signbit(want[i])))
          << what << " [" << i << "]: " << got[i] << ", not " << want[i];
    else
      EXPECT_NEAR(got[i], want[i], tolerance * std::fabs(want[i]) + 1e-44) << what << " [" << i << "]";
  }
}

void check(const std::string &op, const std::vector<In> &inputs, const std::string &attrs, const In &want,
           double tolerance = 0, const std::string &operands = "") {
  HostTensor got = evalOne(op, inputs, attrs, operands);
  EXPECT_EQ(str(got.type), str(TensorType{*parseDType(want.dtype), want.shape})) << op;
  expectValues(valuesOf(got), want.values, tolerance, op + " " + attrs);
}

/// f32 values to f32 values, elementwise.
void unary(const std::string &op, const Values &x, const Values &y, double tolerance = 0,
           const std::string &attrs = "") {
  const int64_t n = static_cast<int64_t>(x.size());
  check(op, {{"f32", {n}, x}}, attrs, {"f32", {n}, y}, tolerance);
}
void binary(const char *dtype, const std::string &op, const Values &a, const Values &b, const Values &y,
            const char *result = nullptr) {
  const int64_t n = static_cast<int64_t>(a.size());
  check(op, {{dtype, {n}, a}, {dtype, {n}, b}}, "", {result ? result : dtype, {n}, y});
}

HostTensor longs(const Shape &shape, const std::vector<int64_t> &values) {
  HostTensor t;
  t.type = {DType::I64, shape};
  t.data.resize(values.size() * 8);
  for (size_t i = 0; i < values.size(); ++i)
    storeInteger(t.data.data(), DType::I64, static_cast<int64_t>(i), values[i]);
  return t;
}
std::vector<int64_t> longsOf(const HostTensor &t) {
  std::vector<int64_t> v;
  for (int64_t i = 0; i < t.type.elements(); ++i)
    v.push_back(loadInteger(t.data.data(), t.type.dtype, i));
  return v;
}

double f32(double v) { return static_cast<float>(v); }

} // namespace
