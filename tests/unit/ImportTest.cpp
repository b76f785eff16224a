// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The importer: every op of the format, with every attribute, comes through the dialect and its text unchanged. Cases
// are GraphCases.h's, one node a graph, and the graph files of the repository.
#include "ir/dialect/Import.h"
#include "frontend/json/JsonReader.h"
#include "ir/dialect/OpModel.h"
#include "ir/dialect/Ridge.h"
#include "tests/unit/GraphCases.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <sstream>

using namespace mlir;
using namespace mlir::ridge;
using rl::OpKind;

namespace {

std::string print(Operation *op) {
  std::string text;
  llvm::raw_string_ostream os(text);
  op->print(os);
  return text;
}

bool hasAttr(OpKind kind, std::string_view name) {
  for (const rl::AttrInfo &attr : rl::opInfo(kind).attrs)
    if (attr.name == name)
      return true;
  return false;
}

struct Granularity {
  rl::Granularity kind;
  int64_t axis, rows, columns;
  bool operator==(const Granularity &) const = default;
};
Granularity granularity(rl::Granularity kind, int64_t axis, const int64_t (&block)[2]) {
  bool isAxis = kind == rl::Granularity::Axis, isBlock = kind == rl::Granularity::Block;
  return {kind, isAxis ? axis : 0, isBlock ? block[0] : 1, isBlock ? block[1] : 1};
}

/// Compares the attributes that the kind has. squeeze and unsqueeze become reshapes and have none that could be
/// compared.
void expectSameAttrs(OpKind kind, const rl::Attrs &a, const rl::Attrs &b) {
  EXPECT_EQ(a.tanhApproximation, b.tanhApproximation);
  if (hasAttr(kind, "dtype") || hasAttr(kind, "out_dtype"))
    EXPECT_EQ(a.dtype, b.dtype);
  if (hasAttr(kind, "saturate"))
    EXPECT_EQ(a.saturate, b.saturate);
  EXPECT_TRUE(a.min == b.min);
  EXPECT_TRUE(a.max == b.max);
  if (hasAttr(kind, "shape"))
    EXPECT_EQ(a.shape, b.shape);
  if (hasAttr(kind, "dims"))
    EXPECT_EQ(a.dims, b.dims);
  if (hasAttr(kind, "dim") && kind != OpKind::Squeeze && kind != OpKind::Unsqueeze)
    EXPECT_EQ(a.dim, b.dim);
  EXPECT_EQ(a.keepdim, b.keepdim);
  if (kind == OpKind::Slice) {
    EXPECT_EQ(a.start, b.start);
    EXPECT_EQ(a.step, b.step);
    EXPECT_EQ(a.length, b.length);
  }
  EXPECT_EQ(a.low, b.low);
  EXPECT_EQ(a.high, b.high);
  if (hasAttr(kind, "value"))
    EXPECT_TRUE(a.value == b.value);
  if (hasAttr(kind, "correction"))
    EXPECT_EQ(a.correction, b.correction);
  if (hasAttr(kind, "eps"))
    EXPECT_EQ(a.eps, b.eps);
  if (kind == OpKind::LayerNorm || kind == OpKind::RmsNorm)
    EXPECT_EQ(a.hasWeight, b.hasWeight);
  EXPECT_EQ(a.hasBias, b.hasBias);
  EXPECT_EQ(a.transposeA, b.transposeA);
  EXPECT_EQ(a.transposeB, b.transposeB);
  EXPECT_EQ(a.causal, b.causal);
  EXPECT_EQ(a.scale, b.scale);
  EXPECT_EQ(a.ignoreIndex, b.ignoreIndex);
  EXPECT_TRUE(granularity(a.granularity, a.axis, a.block) == granularity(b.granularity, b.axis, b.block));
  EXPECT_TRUE(granularity(a.granularityA, a.axisA, a.blockA) == granularity(b.granularityA, b.axisA, b.blockA));
  EXPECT_TRUE(granularity(a.granularityB, a.axisB, a.blockB) == granularity(b.granularityB, b.axisB, b.blockB));
  if (hasAttr(kind, "scale_dtype"))
    EXPECT_EQ(a.scaleDtype, b.scaleDtype);
  EXPECT_EQ(a.asymmetric, b.asymmetric);
  EXPECT_EQ(a.fastAccumulate, b.fastAccumulate);
}

/// The function holds the graph: signature, ops in order, operands, types, attributes, names.
void expectHolds(const rl::Graph &graph, func::FuncOp function) {
  std::vector<rl::ValueId> arguments(graph.inputs);
  arguments.insert(arguments.end(), graph.parameters.begin(), graph.parameters.end());
  ASSERT_EQ(function.getNumArguments(), arguments.size());
  ASSERT_EQ(function.getNumResults(), graph.outputs.size());
  EXPECT_EQ(function->hasAttr(kStrictAttr), graph.strict);
  std::vector<mlir::Value> values(graph.values.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const rl::Value &value = graph.values[arguments[i]];
    mlir::Value argument = values[arguments[i]] = function.getArgument(i);
    EXPECT_EQ(valueName(argument).str(), value.name);
    EXPECT_TRUE(toTensorType(argument.getType()) == value.type);
    EXPECT_EQ(function.getArgAttr(i, kParameterAttr) != nullptr, value.kind == rl::Value::Parameter);
  }
  std::vector<Operation *> ops;
  for (Operation &op : function.getBody().front().without_terminator())
    if (!isa<LiteralOp>(op))
      ops.push_back(&op);
  ASSERT_EQ(ops.size(), graph.nodes.size());
  for (size_t n = 0; n < ops.size(); ++n) {
    const rl::Node &node = graph.nodes[n];
    Operation *op = ops[n];
    SCOPED_TRACE(graph.describe(static_cast<rl::NodeId>(n)));
    bool isReshape = node.op == OpKind::Squeeze || node.op == OpKind::Unsqueeze;
    auto model = opModel(op);
    ASSERT_TRUE(model.has_value());
    EXPECT_EQ(model->kind, opKind(op));
    EXPECT_EQ(model->kind, isReshape ? OpKind::Reshape : node.op);
    expectSameAttrs(node.op, node.attrs, model->attrs);
    ASSERT_EQ(op->getNumOperands(), node.inputs.size());
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      if (node.inputs[i].isLiteral()) {
        auto literal = op->getOperand(i).getDefiningOp<LiteralOp>();
        ASSERT_TRUE(literal);
        EXPECT_TRUE(toScalar(literal.getValue()) == node.inputs[i].literal);
      } else {
        EXPECT_TRUE(op->getOperand(i) == values[node.inputs[i].value]);
      }
    }
    ASSERT_EQ(op->getNumResults(), node.outputs.size());
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      values[node.outputs[i]] = op->getResult(i);
      EXPECT_TRUE(toTensorType(op->getResult(i).getType()) == graph.type(node.outputs[i]));
    }
    EXPECT_EQ(valueName(op->getResult(0)).str(), graph.values[node.outputs[0]].name);
    EXPECT_EQ(op->getAttrOfType<IntegerAttr>(kNodeAttr).getInt(), node.specIndex);
    auto source = op->getAttrOfType<StringAttr>(kSourceAttr);
    EXPECT_EQ(source ? source.str() : "", node.source);
    auto precision = op->getAttrOfType<TypeAttr>(kPrecisionAttr);
    EXPECT_EQ(precision ? toDType(precision.getValue()) : std::nullopt, node.pin);
  }
  auto results = cast<func::ReturnOp>(function.getBody().front().getTerminator()).getOperands();
  for (size_t i = 0; i < graph.outputs.size(); ++i) {
    EXPECT_TRUE(results[i] == values[graph.outputs[i]]);
    auto name = function.getResultAttrOfType<StringAttr>(i, kNameAttr);
    ASSERT_TRUE(name);
    EXPECT_EQ(name.str(), graph.values[graph.outputs[i]].name);
  }
}

void checkImport(MLIRContext &context, const rl::Graph &graph) {
  OwningOpRef<ModuleOp> module = importGraph(context, graph);
  ASSERT_TRUE(module);
  ASSERT_TRUE(succeeded(verify(*module)));
  auto functions = module->getOps<func::FuncOp>();
  ASSERT_EQ(std::distance(functions.begin(), functions.end()), 1);
  EXPECT_EQ((*functions.begin()).getName().str(), graph.name);
  expectHolds(graph, *functions.begin());
  std::string text = print(*module);
  OwningOpRef<ModuleOp> again = parseSourceString<ModuleOp>(text, &context);
  ASSERT_TRUE(again) << text;
  EXPECT_EQ(print(*again), text);
  expectHolds(graph, *again->getOps<func::FuncOp>().begin());
}

/// A graph of one node from a line of GraphCases.h, as JSON.
std::string graphOf(const AcceptCase &c) {
  std::istringstream operands(c.operands), attrs(c.attrs), results(c.results);
  std::string inputs, uses, outputs, attributes, word;
  for (int i = 0; operands >> word; ++i) {
    size_t bracket = word.find('[');
    std::string separator = uses.empty() ? "" : ", ", name = "x" + std::to_string(i);
    if (bracket == std::string::npos) {
      uses += separator + word;
      continue;
    }
    uses += separator + '"' + name + '"';
    inputs += (inputs.empty() ? "" : ", ") + ('"' + name + "\": {\"dtype\": \"" + word.substr(0, bracket) +
                                              "\", \"shape\": " + word.substr(bracket) + "}");
  }
  for (int i = 0; results >> word; ++i)
    outputs += (i ? ", " : "") + ("\"y" + std::to_string(i) + '"');
  while (attrs >> word) {
    size_t equal = word.find('=');
    std::string value = word.substr(equal + 1);
    bool isBare = value == "true" || value == "false" || value.find_first_of("-0123456789") == 0;
    if (value[0] == '[')
      for (size_t at; (at = value.find_first_of('B')) != std::string::npos && value[at - 1] != '"';)
        value.replace(at, 1, "\"b\"");
    else if (!isBare)
      value = '"' + value + '"';
    attributes += (attributes.empty() ? "" : ", ") + ('"' + word.substr(0, equal) + "\": " + value);
  }
  // A symbol must be some tensor's extent.
  inputs += std::string(inputs.empty() ? "" : ", ") + R"("symbol": {"dtype": "f32", "shape": ["b"]})";
  return R"({"ridgeline": 1, "name": "case", "dims": {"b": {"min": 1, "max": 9}}, "inputs": {)" + inputs +
         R"(}, "nodes": [{"op": ")" + c.op + R"(", "inputs": [)" + uses + R"(], "outputs": [)" + outputs +
         R"(], "attrs": {)" + attributes + R"(}, "source": "line \"7\""}], "outputs": [)" + outputs + "]}";
}

TEST(Import, EveryOp) {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  std::vector<bool> seen(rl::allOps().size());
  for (const AcceptCase &c : kAccepted) {
    SCOPED_TRACE(std::string(c.op) + " " + c.operands + " " + c.attrs);
    auto spec = rl::parseGraph(graphOf(c));
    ASSERT_TRUE(spec) << spec.error().str() << "\n" << graphOf(c);
    auto graph = rl::resolve(*spec, {{"b", 4}});
    ASSERT_TRUE(graph) << graph.error().str();
    checkImport(context, *graph);
    seen[static_cast<size_t>(graph->nodes[0].op)] = true;
  }
  for (size_t i = 0; i < seen.size(); ++i)
    EXPECT_TRUE(seen[i]) << rl::allOps()[i].name << " has no case";
}

TEST(Import, GraphFiles) {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  int count = 0;
  for (const char *folder : {"/examples/graphs", "/tests/cases"}) {
    for (const auto &entry :
         std::filesystem::recursive_directory_iterator(std::string(RIDGELINE_SOURCE_DIR) + folder)) {
      if (entry.path().extension() != ".json")
        continue;
      std::ifstream file(entry.path());
      std::stringstream text;
      text << file.rdbuf();
      auto spec = rl::parseGraph(text.str());
      if (!spec)
        continue; // a case of an error, or another kind of file
      rl::DimValues dims;
      for (const rl::DimSpec &dim : spec->dims)
        dims[dim.name] = std::min(dim.max, dim.min + 2);
      auto graph = rl::resolve(*spec, dims);
      if (!graph)
        continue;
      SCOPED_TRACE(entry.path().string());
      checkImport(context, *graph);
      ++count;
    }
  }
  EXPECT_GE(count, 12);
}

TEST(Import, PinsNamesAndOutputs) {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  auto spec = rl::parseGraph(R"({"ridgeline": 1, "name": "g", "numerics": "strict",
    "inputs": {"a b/c": {"dtype": "f32", "shape": [2]}}, "parameters": {"0": {"dtype": "u8", "shape": []}},
    "nodes": [{"op": "add", "inputs": ["a b/c", 0.1], "outputs": ["é"], "precision": "bf16", "source": "x.py:3"},
              {"op": "mul", "inputs": ["é", 0.1], "outputs": ["y"]}],
    "outputs": ["y", "0", "é", "a b/c"]})");
  ASSERT_TRUE(spec) << spec.error().str();
  auto graph = rl::resolve(*spec);
  ASSERT_TRUE(graph) << graph.error().str();
  checkImport(context, *graph);
  // Equal literals are one op.
  OwningOpRef<ModuleOp> module = importGraph(context, *graph);
  int literals = 0;
  module->walk([&](LiteralOp literal) { ++literals; });
  EXPECT_EQ(literals, 1);
}

TEST(Import, LiteralsOfEqualValueAndOtherKindStayApart) {
  MLIRContext context(MLIRContext::Threading::DISABLED);
  auto spec = rl::parseGraph(R"({"ridgeline": 1, "name": "g", "inputs": {"x": {"dtype": "f32", "shape": [2]}},
    "nodes": [{"op": "add", "inputs": ["x", 1], "outputs": ["a"]},
              {"op": "add", "inputs": ["x", 1.0], "outputs": ["b"]},
              {"op": "add", "inputs": ["x", true], "outputs": ["c"]},
              {"op": "add", "inputs": ["x", 0.0], "outputs": ["d"]},
              {"op": "add", "inputs": ["x", -0.0], "outputs": ["e"]}], "outputs": ["a", "b", "c", "d", "e"]})");
  ASSERT_TRUE(spec) << spec.error().str();
  auto graph = rl::resolve(*spec);
  ASSERT_TRUE(graph) << graph.error().str();
  OwningOpRef<ModuleOp> module = importGraph(context, *graph);
  int literals = 0;
  module->walk([&](LiteralOp literal) { ++literals; });
  EXPECT_EQ(literals, 5);
}

TEST(Import, LargeGraphIsFast) {
  rl::GraphSpec spec;
  spec.name = "chain";
  spec.inputs.push_back({"v0", rl::DType::BF16, {{64, {}}, {128, {}}}});
  constexpr int kNodes = 5000;
  for (int i = 0; i < kNodes; ++i) {
    rl::NodeSpec node;
    node.op = "add";
    node.inputs = {{"v" + std::to_string(i), {}}, {"", rl::Scalar{rl::Scalar::Float, 0, i * 0.5}}};
    node.outputs = {"v" + std::to_string(i + 1)};
    spec.nodes.push_back(std::move(node));
  }
  spec.outputs = {"v" + std::to_string(kNodes)};
  auto graph = rl::resolve(spec);
  ASSERT_TRUE(graph) << graph.error().str();
  MLIRContext context(MLIRContext::Threading::DISABLED);
  auto milliseconds = [](auto f) {
    auto start = std::chrono::steady_clock::now();
    f();
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  };
  OwningOpRef<ModuleOp> module;
  double importing = milliseconds([&] { module = importGraph(context, *graph); });
  double verifying = milliseconds([&] { EXPECT_TRUE(succeeded(verify(*module))); });
  std::printf("%d nodes: import %.1f ms, verify %.1f ms\n", kNodes, importing, verifying);
  // Twenty times what a free machine needs: a bound on growth, not a measurement.
  EXPECT_LT(importing, 1000);
  EXPECT_LT(verifying, 1000);
}

} // namespace
