// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The graph library: the op table, promotion, shape and type inference of every op (the cases are in GraphCases.h), and
// what `resolve`, `checkSpec` and `bindDims` accept and refuse, with the place and the words of the error.
#include "ir/graph/Graph.h"

#include "GraphCases.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <set>

using namespace rl;

namespace {

const DimValues kDims = {{"B", 4}};

std::string str(const std::vector<TensorType> &types) {
  std::string out;
  for (const TensorType &type : types) {
    out += (out.empty() ? "" : " ") + std::string(dtypeName(type.dtype)) + "[";
    for (size_t d = 0; d < type.shape.size(); ++d)
      out += (d ? "," : "") + std::to_string(type.shape[d]);
    out += "]";
  }
  return out;
}

// --- The op table -------------------------------------------------------------------------------------------------------

TEST(Ops, TableIsConsistent) {
  std::set<std::string> names;
  for (const OpInfo &info : allOps()) {
    SCOPED_TRACE(info.name);
    EXPECT_TRUE(names.insert(info.name).second);
    EXPECT_EQ(findOp(info.name), &info);
    EXPECT_EQ(&opInfo(info.kind), &info);
    EXPECT_GE(info.minOutputs, 1);
    EXPECT_GE(info.maxOutputs, info.minOutputs);
    EXPECT_TRUE(info.maxInputs < 0 || info.maxInputs >= info.minInputs);
    std::set<std::string> attrs;
    for (const AttrInfo &attr : info.attrs)
      EXPECT_TRUE(attrs.insert(attr.name).second) << attr.name;
  }
  EXPECT_EQ(findOp("matmull"), nullptr);
  EXPECT_EQ(findOp(""), nullptr);
  EXPECT_EQ(findOp("Add"), nullptr);
}

TEST(Ops, EveryOpOfTheFormatIsThere) {
  const char *page =
      "abs neg sign exp exp2 expm1 log log2 log1p sqrt rsqrt reciprocal square sin cos tanh sigmoid erf relu silu "
      "softplus "
      "floor ceil round trunc isnan isinf isfinite logical_not bitwise_not gelu cast add sub mul div floor_divide fmod "
      "remainder pow atan2 maximum minimum eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or "
      "bitwise_xor where clamp reshape permute expand unsqueeze squeeze slice cat pad flip full iota sum mean amax "
      "amin prod "
      "any all var logsumexp argmax argmin softmax log_softmax layer_norm rms_norm matmul linear embedding "
      "index_select "
      "gather scaled_dot_product_attention cross_entropy quantize dequantize scaled_matmul fake_quantize";
  std::vector<std::string> all = words(page);
  for (const std::string &name : all)
    EXPECT_NE(findOp(name), nullptr) << name;
  EXPECT_EQ(all.size(), allOps().size());
}

// --- Promotion ----------------------------------------------------------------------------------------------------------

TEST(Promote, IsPyTorchs) {
  // torch.promote_types, with i16 (of i8 and u8) as i32.
  const DType types[] = {DType::U8,  DType::I8,   DType::I32, DType::I64,
                         DType::F16, DType::BF16, DType::F32, DType::Bool};
  const char *table[] = {"u8   i32  i32  i64  f16  bf16 f32  u8",  //
                         "i32  i8   i32  i64  f16  bf16 f32  i8",  //
                         "i32  i32  i32  i64  f16  bf16 f32  i32", //
                         "i64  i64  i64  i64  f16  bf16 f32  i64", //
                         "f16  f16  f16  f16  f16  f32  f32  f16", //
                         "bf16 bf16 bf16 bf16 f32  bf16 f32  bf16",
                         "f32  f32  f32  f32  f32  f32  f32  f32", //
                         "u8   i8   i32  i64  f16  bf16 f32  bool"};
  for (size_t a = 0; a < std::size(types); ++a) {
    std::vector<std::string> row = words(table[a]);
    for (size_t b = 0; b < std::size(types); ++b)
      EXPECT_EQ(dtypeName(promote(types[a], types[b])), row[b]) << dtypeName(types[a]) << " " << dtypeName(types[b]);
  }
  EXPECT_EQ(promote(DType::F8E4M3, DType::F8E4M3), DType::F8E4M3);
}

TEST(Promote, LiteralsAreWeak) {
  auto type = [](const char *operands) -> std::string {
    std::optional<DType> t = promoteOperands(parseOperands(operands));
    return t ? dtypeName(*t) : "none";
  };
  EXPECT_EQ(type("bf16[] 0.5"), "bf16");
  EXPECT_EQ(type("i32[] 0.5"), "f32");
  EXPECT_EQ(type("i32[] 5"), "i32");
  EXPECT_EQ(type("u8[] true"), "u8");
  EXPECT_EQ(type("bool[] 2"), "i64");
  EXPECT_EQ(type("bool[] true"), "bool");
  EXPECT_EQ(type("0.5 f16[] bf16[]"), "f32");
  EXPECT_EQ(type("true 1"), "i64");
  EXPECT_EQ(type("true false"), "bool");
  EXPECT_EQ(type("1 0.5"), "f32");
  EXPECT_EQ(type("f8e4m3[] 1"), "none");
  EXPECT_EQ(type(""), "none");
}

TEST(ComputeType, FollowsOpAndOperands) {
  auto type = [](const char *op, const char *operands) -> std::string {
    return dtypeName(computeType(findOp(op)->kind, parseOperands(operands)));
  };
  EXPECT_EQ(type("add", "bf16[] bf16[]"), "f32");
  EXPECT_EQ(type("add", "u8[] 1"), "u8");
  EXPECT_EQ(type("add", "u8[] 1.5"), "f32");
  EXPECT_EQ(type("div", "i32[] i32[]"), "f32");
  EXPECT_EQ(type("exp", "i64[]"), "f32");
  EXPECT_EQ(type("eq", "i8[] i64[]"), "i64");
  EXPECT_EQ(type("where", "bool[] i8[] 3"), "i8");
  EXPECT_EQ(type("where", "bool[] bf16[] bf16[]"), "f32");
  EXPECT_EQ(type("logical_not", "bool[]"), "bool");
  EXPECT_EQ(type("square", "bool[]"), "i64");
  EXPECT_EQ(type("cast", "i64[]"), "i64");
  EXPECT_EQ(type("cast", "f8e4m3[]"), "f32");
  EXPECT_EQ(type("clamp", "i32[] 0.5"), "f32");
  EXPECT_EQ(type("clamp", "i32[] 0"), "i32");
}

// --- Inference ----------------------------------------------------------------------------------------------------------

TEST(Infer, Accepts) {
  std::set<std::string> covered;
  for (const AcceptCase &c : kAccepted) {
    SCOPED_TRACE(std::string(c.op) + "(" + c.operands + ") " + c.attrs);
    const OpInfo *info = findOp(c.op);
    ASSERT_NE(info, nullptr);
    covered.insert(c.op);
    const std::vector<OperandType> operands = parseOperands(c.operands);
    const size_t outputs = words(c.results).size();
    Result<Inferred> inferred = inferNode(info->kind, operands, outputs, parseAttrs(c.attrs), kDims);
    if (!inferred) {
      ADD_FAILURE() << inferred.error().str();
      continue;
    }
    EXPECT_EQ(str(inferred->results), c.results);
    // The resolved attributes say the same.
    Result<std::vector<TensorType>> again = inferResults(info->kind, operands, outputs, inferred->attrs);
    if (!again) {
      ADD_FAILURE() << again.error().str();
      continue;
    }
    EXPECT_EQ(str(*again), c.results);
  }
  EXPECT_EQ(covered.size(), allOps().size()) << "an op has no accepting case";
}

TEST(Infer, Refuses) {
  std::set<std::string> covered;
  for (const RefuseCase &c : kRefused) {
    SCOPED_TRACE(std::string(c.op) + "(" + c.operands + ") " + c.attrs);
    const OpInfo *info = findOp(c.op);
    ASSERT_NE(info, nullptr);
    covered.insert(c.op);
    const size_t outputs = c.outputs < 0 ? info->minOutputs : c.outputs;
    Result<Inferred> inferred = inferNode(info->kind, parseOperands(c.operands), outputs, parseAttrs(c.attrs), kDims);
    if (inferred) {
      ADD_FAILURE() << "accepted as " << str(inferred->results);
      continue;
    }
    EXPECT_EQ(inferred.error().code, Code::Invalid);
    EXPECT_EQ(inferred.error().pointer, c.pointer) << inferred.error().message;
    EXPECT_NE(inferred.error().message.find(c.words), std::string::npos) << inferred.error().message;
  }
  EXPECT_EQ(covered.size(), allOps().size()) << "an op has no refusing case";
}

Attrs attrsOf(const char *op, const char *operands, const char *attrs, size_t outputs = 1) {
  Result<Inferred> inferred = inferNode(findOp(op)->kind, parseOperands(operands), outputs, parseAttrs(attrs), kDims);
  EXPECT_TRUE(inferred) << op << " " << attrs << ": " << (inferred ? "" : inferred.error().message);
  return inferred ? inferred->attrs : Attrs{};
}

using Ints = std::vector<int64_t>;

TEST(Attrs, DimensionsAreCountedFromTheFront) {
  EXPECT_EQ(attrsOf("sum", "f32[2,3,4]", "").dims, (Ints{0, 1, 2}));
  EXPECT_EQ(attrsOf("sum", "f32[2,3,4]", "dims=[-1,0]").dims, (Ints{0, 2}));
  EXPECT_EQ(attrsOf("sum", "f32[2,3,4]", "dims=[]").dims, Ints{});
  EXPECT_EQ(attrsOf("permute", "f32[2,3,4]", "dims=[-1,0,-2]").dims, (Ints{2, 0, 1}));
  EXPECT_EQ(attrsOf("unsqueeze", "f32[2,3]", "dim=-1").dim, 2);
  EXPECT_EQ(attrsOf("softmax", "f32[2,3]", "dim=-2").dim, 0);
  EXPECT_EQ(attrsOf("iota", "", "shape=[2,3] dim=-1 dtype=i32").dim, 1);
  EXPECT_EQ(attrsOf("quantize", "f32[2,3]", "dtype=i8 granularity=axis axis=-1", 2).axis, 1);
  EXPECT_EQ(attrsOf("reshape", "f32[2,3]", "shape=[-1,2]").shape, (Ints{3, 2}));
  EXPECT_EQ(attrsOf("full", "", "shape=[B] value=1 dtype=f32").shape, Ints{4});
}

TEST(Attrs, DefaultsAreFilledIn) {
  EXPECT_TRUE(attrsOf("cast", "f32[2]", "dtype=f16").saturate);
  EXPECT_FALSE(attrsOf("gelu", "f32[2]", "").tanhApproximation);
  EXPECT_TRUE(attrsOf("gelu", "f32[2]", "approximate=tanh").tanhApproximation);
  EXPECT_EQ(attrsOf("layer_norm", "f32[2]", "").eps, 1e-5);
  EXPECT_EQ(attrsOf("rms_norm", "f32[2]", "").eps, 1e-6);
  EXPECT_EQ(attrsOf("var", "f32[2]", "").correction, 1);
  EXPECT_EQ(attrsOf("var", "f32[2]", "correction=0").correction, 0);
  EXPECT_EQ(attrsOf("cross_entropy", "f32[2,3] i64[2]", "").ignoreIndex, -100);
  EXPECT_EQ(attrsOf("scaled_dot_product_attention", "f32[2,16] f32[3,16] f32[3,4]", "").scale, 0.25);
  EXPECT_EQ(attrsOf("matmul", "bf16[2,3] bf16[3,2]", "").dtype, DType::BF16);
  EXPECT_EQ(attrsOf("matmul", "i8[2,3] i8[3,2]", "").dtype, DType::I32);
  EXPECT_EQ(attrsOf("scaled_matmul", "i8[2,3] i8[3,2] f32[] f32[]", "").dtype, DType::F32);
  EXPECT_EQ(attrsOf("quantize", "f32[2,3] f8e8m0[]", "dtype=i8", 2).scaleDtype, DType::F8E8M0);
  EXPECT_TRUE(attrsOf("dequantize", "i8[2,3] f32[] i32[]", "").asymmetric);
  EXPECT_TRUE(attrsOf("linear", "f32[2,3] f32[4,3] f32[4]", "").hasBias);
  EXPECT_FALSE(attrsOf("linear", "f32[2,3] f32[4,3]", "").hasBias);
  Attrs block = attrsOf("quantize", "f32[2,64]", "dtype=i8 granularity=block block=[32]", 2);
  EXPECT_EQ(block.block[0], 1);
  EXPECT_EQ(block.block[1], 32);
}

TEST(Attrs, ScalarsTakeTheTypesCategory) {
  EXPECT_EQ(attrsOf("full", "", "shape=[] value=3.0 dtype=i8").value, (Scalar{Scalar::Int, 3, 0}));
  EXPECT_EQ(attrsOf("full", "", "shape=[] value=3 dtype=bf16").value, (Scalar{Scalar::Float, 0, 3}));
  EXPECT_EQ(attrsOf("full", "", "shape=[] value=0 dtype=bool").value, (Scalar{Scalar::Bool, 0, 0}));
  EXPECT_EQ(attrsOf("full", "", "shape=[] value=0.25 dtype=bool").value, (Scalar{Scalar::Bool, 1, 0}));
  EXPECT_EQ(attrsOf("pad", "f16[1]", "low=[1] high=[0]").value, (Scalar{Scalar::Float, 0, 0}));
  EXPECT_EQ(attrsOf("pad", "bool[1]", "low=[1] high=[0]").value, (Scalar{Scalar::Bool, 0, 0}));
  EXPECT_EQ(attrsOf("clamp", "f16[1]", "min=-1").min, (Scalar{Scalar::Float, 0, -1}));
  EXPECT_EQ(attrsOf("clamp", "i8[1]", "min=-1").max, std::nullopt);
  EXPECT_EQ(attrsOf("full", "", "shape=[] value=-9223372036854775808 dtype=i64").value.i, INT64_MIN);
  EXPECT_EQ(attrsOf("full", "", "shape=[] value=-9223372036854775808.0 dtype=i64").value.i, INT64_MIN);
  EXPECT_TRUE(std::isinf(attrsOf("full", "", "shape=[] value=-inf dtype=f32").value.f));
}

/// Every start, end and step near the edges against Python's definition, written as a walk over the elements.
TEST(Attrs, SliceIsPythons) {
  for (int64_t n = 0; n <= 5; ++n)
    for (int64_t step : {-7, -3, -2, -1, 1, 2, 3, 7})
      for (int64_t start = -8; start <= 8; ++start)
        for (int64_t end = -8; end <= 8; ++end) { // 8: left out
          Ints expected;
          // range(n)[start:end:step]: clamp as CPython's PySlice_AdjustIndices does, then walk.
          auto clamp = [&](int64_t v) {
            if (v < 0)
              v += n;
            return step > 0 ? std::min(std::max<int64_t>(v, 0), n) : std::min(std::max<int64_t>(v, -1), n - 1);
          };
          int64_t from = start == 8 ? (step > 0 ? 0 : n - 1) : clamp(start),
                  to = end == 8 ? (step > 0 ? n : -1) : clamp(end);
          for (int64_t i = from; step > 0 ? i < to : i > to; i += step)
            expected.push_back(i);
          std::string text = "dim=0 step=" + std::to_string(step);
          if (start != 8)
            text += " start=" + std::to_string(start);
          if (end != 8)
            text += " end=" + std::to_string(end);
          Attrs a = attrsOf("slice", ("f32[" + std::to_string(n) + "]").c_str(), text.c_str());
          Ints got;
          for (int64_t i = 0; i < a.length; ++i)
            got.push_back(a.start + i * a.step);
          ASSERT_EQ(got, expected) << "n " << n << " " << text;
        }
}

TEST(Attrs, ExtremeStepsDoNotOverflow) {
  Attrs a = attrsOf("slice", "f32[10]", "dim=0 step=-9223372036854775808");
  EXPECT_EQ(a.start, 9);
  EXPECT_EQ(a.length, 1);
  EXPECT_EQ(a.step, 1);
}

TEST(InferResults, RefusesAttributesThatDoNotFit) {
  auto refuses = [](const char *op, const char *operands, const Attrs &attrs, const char *pointer) {
    const OpInfo *info = findOp(op);
    Result<std::vector<TensorType>> types = inferResults(info->kind, parseOperands(operands), info->minOutputs, attrs);
    ASSERT_FALSE(types) << op;
    EXPECT_EQ(types.error().pointer, pointer) << op << ": " << types.error().message;
  };
  Attrs a;
  a.dim = 2;
  refuses("softmax", "f32[2,3]", a, "/attrs/dim");
  refuses("squeeze", "f32[2,3]", a, "/attrs/dim");
  refuses("cat", "f32[2,3]", a, "/attrs/dim");
  refuses("gather", "f32[2,3] i64[2,3]", a, "/attrs/dim");
  a.dim = -1;
  refuses("argmax", "f32[2,3]", a, "/attrs/dim");
  a.dim = 0, a.start = 1, a.length = 3;
  refuses("slice", "f32[3]", a, "");
  a.start = 2, a.step = -1, a.length = 4;
  refuses("slice", "f32[3]", a, "");
  a.dims = {0, 0};
  refuses("permute", "f32[2,3]", a, "/attrs/dims");
  a.dims = {70};
  refuses("sum", "f32[2,3]", a, "/attrs/dims");
  a.shape = {-1};
  refuses("reshape", "f32[2,3]", a, "/attrs/shape");
  a.dtype = DType::F16;
  refuses("quantize", "f32[2,3]", a, "/attrs/dtype");
  refuses("clamp", "f32[2,3]", Attrs{}, "");
  a.hasBias = true;
  refuses("linear", "f32[2,3] f32[4,3]", a, "/inputs");
  refuses("abs", "f32[1,1,1,1,1,1,1,1,1]", a, "/inputs/0");
  refuses("abs", "f32[-1]", a, "/inputs/0");
  refuses("abs", "f32[4294967296,4294967296]", a, "/inputs/0");
}

// --- resolve ------------------------------------------------------------------------------------------------------------

struct Builder {
  GraphSpec spec;
  Builder() { spec.name = "g"; }
  Builder &in(const char *name, const char *type) { return spec.inputs.push_back(parseTensor(name, type)), *this; }
  Builder &param(const char *name, const char *type) {
    return spec.parameters.push_back(parseTensor(name, type)), *this;
  }
  Builder &dim(const char *name, int64_t min, int64_t max) { return spec.dims.push_back({name, min, max}), *this; }
  Builder &node(const char *op, const std::string &inputs, const std::string &outputs, const char *attrs = "") {
    NodeSpec node;
    node.op = op;
    for (const std::string &word : words(inputs)) {
      std::optional<Scalar> literal = parseScalar(word);
      node.inputs.push_back(literal ? OperandSpec{"", literal} : OperandSpec{word, std::nullopt});
    }
    node.outputs = words(outputs);
    node.attrs = parseAttrs(attrs);
    spec.nodes.push_back(std::move(node));
    return *this;
  }
  Builder &out(const std::string &names) { return spec.outputs = words(names), *this; }
};

Builder base() {
  return Builder()
      .in("x", "f32[2,3]")
      .param("w", "f32[3,4]")
      .node("relu", "x", "hid")
      .node("matmul", "hid w", "res")
      .out("res");
}

void refuses(const GraphSpec &spec, const char *pointer, const char *wordsOf, const DimValues &dims = {}) {
  Result<Graph> graph = resolve(spec, dims);
  ASSERT_FALSE(graph) << "accepted; expected " << pointer << ": " << wordsOf;
  EXPECT_EQ(graph.error().code, Code::Invalid);
  EXPECT_EQ(graph.error().pointer, pointer) << graph.error().message;
  EXPECT_NE(graph.error().message.find(wordsOf), std::string::npos) << graph.error().message;
}

TEST(Resolve, BuildsTheGraph) {
  Builder b = base();
  b.spec.nodes[1].source = "model.py:12";
  b.spec.nodes[1].precision = "bfloat16";
  b.spec.strict = true;
  Result<Graph> graph = resolve(b.out("res x w").spec);
  ASSERT_TRUE(graph) << graph.error().str();
  EXPECT_EQ(graph->name, "g");
  EXPECT_TRUE(graph->strict);
  ASSERT_EQ(graph->nodes.size(), 2u);
  ASSERT_EQ(graph->values.size(), 4u);
  EXPECT_EQ(graph->inputs, (std::vector<ValueId>{0}));
  EXPECT_EQ(graph->parameters, (std::vector<ValueId>{1}));
  EXPECT_EQ(graph->outputs, (std::vector<ValueId>{3, 0, 1}));
  const Node &matmul = graph->nodes[1];
  EXPECT_EQ(matmul.op, OpKind::Matmul);
  EXPECT_EQ(matmul.pointer(), "/nodes/1");
  EXPECT_EQ(matmul.pin, DType::BF16);
  EXPECT_EQ(matmul.inputs[0].value, 2u);
  EXPECT_EQ(matmul.inputs[1].value, 1u);
  EXPECT_EQ(graph->values[3].node, 1u);
  EXPECT_EQ(graph->values[3].kind, Value::Result);
  EXPECT_EQ(rl::str(graph->type(3)), "f32 [2, 4]");
  EXPECT_EQ(graph->describe(0), "node hid (relu)");
  EXPECT_EQ(graph->describe(1), "node res (matmul, model.py:12)");
}

TEST(Resolve, NodesInAnyOrder) {
  Builder b;
  b.in("x", "f32[2]")
      .node("add", "c a", "d")
      .node("exp", "b", "c")
      .node("neg", "x", "z")
      .node("exp", "a", "b")
      .node("exp", "x", "a");
  Result<Graph> graph = resolve(b.out("d z").spec);
  ASSERT_TRUE(graph) << graph.error().str();
  std::vector<uint32_t> order;
  for (const Node &node : graph->nodes)
    order.push_back(node.specIndex);
  EXPECT_EQ(order, (std::vector<uint32_t>{2, 4, 3, 1, 0})); // the earliest of the file that can go first
  for (NodeId n = 0; n < graph->nodes.size(); ++n)
    for (const Operand &operand : graph->nodes[n].inputs)
      if (graph->values[operand.value].kind == Value::Result)
        EXPECT_LT(graph->values[operand.value].node, n);
}

TEST(Resolve, AGraphOfNothingButAnInput) {
  Result<Graph> graph = resolve(Builder().in("x", "bool[]").out("x").spec);
  ASSERT_TRUE(graph) << graph.error().str();
  EXPECT_TRUE(graph->nodes.empty());
  EXPECT_EQ(graph->outputs, (std::vector<ValueId>{0}));
}

TEST(Resolve, SeveralResults) {
  Builder b;
  b.in("x", "f32[2,8]")
      .node("quantize", "x", "q s", "dtype=i8 granularity=token")
      .node("dequantize", "q s", "y", "granularity=token");
  Result<Graph> graph = resolve(b.out("y s").spec);
  ASSERT_TRUE(graph) << graph.error().str();
  EXPECT_EQ(graph->values[2].index, 1u);
  EXPECT_EQ(rl::str(graph->type(graph->outputs[1])), "f32 [2]");
}

TEST(Resolve, LiteralsOfTensorOpsBecomeTensors) {
  Builder b;
  b.in("x", "f32[2,8]").in("q.operand1", "f32[]").node("quantize", "x 2", "q s", "dtype=i8");
  Result<Graph> graph = resolve(b.out("q s").spec);
  ASSERT_TRUE(graph) << graph.error().str();
  ASSERT_EQ(graph->nodes.size(), 2u);
  const Node &full = graph->nodes[0], &quantize = graph->nodes[1];
  EXPECT_EQ(full.op, OpKind::Full);
  EXPECT_EQ(full.specIndex, 0u);
  EXPECT_EQ(full.attrs.value, (Scalar{Scalar::Float, 0, 2}));
  EXPECT_EQ(rl::str(graph->type(full.outputs[0])), "f32 []");
  EXPECT_EQ(graph->values[full.outputs[0]].name, "q.operand1_");
  EXPECT_EQ(quantize.inputs[1].value, full.outputs[0]);
  // An elementwise op keeps its literal.
  graph = resolve(Builder().in("x", "f32[2]").node("add", "x 2", "y").out("y").spec);
  ASSERT_TRUE(graph);
  EXPECT_TRUE(graph->nodes[0].inputs[1].isLiteral());
  EXPECT_EQ(graph->nodes[0].inputs[1].literal, (Scalar{Scalar::Int, 2, 0}));
}

TEST(Resolve, Names) {
  Builder b = base();
  for (const char *name : {"", "1x", "a-b", "a b", "a.b", "\xc3\xa9"}) {
    b.spec.name = name;
    refuses(b.spec, "/name", "identifier");
  }
  b.spec.name = "_a1";
  EXPECT_TRUE(resolve(b.spec));
  refuses(base().in("w", "f32[]").spec, "/parameters/w", "defined twice");
  refuses(base().in("x", "f32[]").spec, "/inputs/x", "defined twice");
  refuses(base().in("", "f32[]").spec, "/inputs/", "must not be empty");
  refuses(base().node("exp", "x", "hid").spec, "/nodes/2/outputs/0", "node hid (exp): the name hid is defined twice");
  refuses(base().node("exp", "x", "x").spec, "/nodes/2/outputs/0", "also an input");
  refuses(base().node("quantize", "x", "q q", "dtype=i8").spec, "/nodes/2/outputs/1", "a node's output");
  refuses(base().node("exp", "x", "").spec, "/nodes/2/outputs", "node 2 (exp): a node needs at least one output");
  b = base();
  b.spec.nodes[1].outputs[0] = "";
  refuses(b.spec, "/nodes/1/outputs/0", "must not be empty");
  b = base();
  b.spec.nodes[1].inputs[1].name = "";
  refuses(b.spec, "/nodes/1/inputs/1", "must not be empty");
  refuses(base().node("add", "x nowhere", "y").spec, "/nodes/2/inputs/1", "node y (add): nowhere is not defined");
  refuses(base().node("matmull", "x w", "y").spec, "/nodes/2/op", "node y (matmull): unknown op 'matmull'");
}

TEST(Resolve, ErrorsOfNodesHaveThePlaceTheNameAndTheSource) {
  refuses(base().node("add", "x w", "bad_out").spec, "/nodes/2",
          "node bad_out (add): shapes do not broadcast: [2, 3], [3, 4]");
  refuses(base().node("matmul", "x w", "y", "transpose_c=true").spec, "/nodes/2/attrs/transpose_c",
          "unknown attribute 'transpose_c'");
  refuses(base().node("abs", "x x", "y").spec, "/nodes/2/inputs", "takes 1 operand");
  refuses(base().node("bitwise_and", "1 x", "y").spec, "/nodes/2/inputs/1", "f32");
  Builder b = base();
  b.spec.nodes[0].source = "net.py:7";
  b.spec.nodes[0].op = "bitwise_not";
  refuses(b.spec, "/nodes/0/inputs/0", "node hid (bitwise_not, net.py:7): ");
  for (const char *pin : {"f64", "bool", "i64", "f8e8m0"}) {
    b = base();
    b.spec.nodes[1].precision = pin;
    refuses(b.spec, "/nodes/1/precision", pin);
  }
}

TEST(Resolve, Shapes) {
  refuses(base().in("a/b~", "f32[2,-1]").spec, "/inputs/a~1b~0/shape/1", "extent -1 is negative");
  refuses(base().param("p", "f32[1,1,1,1,1,1,1,1,1]").spec, "/parameters/p/shape", "rank 9");
  refuses(base().param("p", "f32[4294967296,4294967296]").spec, "/parameters/p/shape", "too large");
  refuses(base().param("p", "f32[4294967296,4294967296,0]").spec, "/parameters/p/shape", "too large");
  refuses(base().in("a", "f32[2,N]").spec, "/inputs/a/shape/1", "'N' is not declared");
  EXPECT_TRUE(resolve(
      base().in("large", "i8[65536,65536,4096]").in("rank8", "f32[1,1,1,1,1,1,1,1]").in("empty", "f32[0]").spec));
}

TEST(Resolve, Outputs) {
  refuses(base().out("").spec, "/outputs", "at least one output");
  refuses(base().out("res nowhere").spec, "/outputs/1", "nowhere is not defined");
  refuses(base().out("res hid res").spec, "/outputs/2", "listed twice");
  Builder b = base();
  b.spec.outputs = {""};
  refuses(b.spec, "/outputs/0", "not defined");
}

TEST(Resolve, CyclesNameTheirNodes) {
  Result<Graph> graph = resolve(base().node("add", "x ring_b", "ring_a").node("neg", "ring_a", "ring_b").spec);
  ASSERT_FALSE(graph);
  EXPECT_EQ(graph.error().pointer, "/nodes/2");
  EXPECT_EQ(graph.error().message, "cycle through ring_a, ring_b");
  refuses(base().node("add", "me 1", "me").spec, "/nodes/2", "cycle through me");
  // In the direction of the data from the first node of the file; what hangs on the cycle is not named.
  graph = resolve(base()
                      .node("exp", "b", "after")
                      .node("exp", "a", "b")
                      .node("exp", "b", "c")
                      .node("add", "before c", "a")
                      .node("exp", "x", "before")
                      .spec);
  ASSERT_FALSE(graph);
  EXPECT_EQ(graph.error().pointer, "/nodes/3");
  EXPECT_EQ(graph.error().message, "cycle through b, c, a");
  // Of two cycles, one behind the other, the message names the nodes of one.
  graph =
      resolve(base().node("add", "p r", "q").node("exp", "q", "r").node("exp", "o", "p").node("exp", "p", "o").spec);
  ASSERT_FALSE(graph);
  EXPECT_TRUE(graph.error().message == "cycle through p, o" || graph.error().message == "cycle through q, r")
      << graph.error().message;
  // The tensors on the cycle, not just their nodes' first outputs.
  graph = resolve(
      Builder().in("x", "f32[2]").node("quantize", "m", "q s", "dtype=i8").node("mul", "x s", "m").out("m").spec);
  ASSERT_FALSE(graph);
  EXPECT_EQ(graph.error().message, "cycle through s, m");
}

TEST(Resolve, Precision) {
  Builder b = base();
  b.spec.precision.mode = "fp16";
  refuses(b.spec, "/precision/mode", "'fp16'");
  for (const char *mode : {"keep", "bf16", "f16", "fp8", "int8", "auto"}) {
    b.spec.precision.mode = mode;
    EXPECT_TRUE(resolve(b.spec)) << mode;
  }
  for (double tolerance : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    b.spec.precision.tolerance = tolerance;
    refuses(b.spec, "/precision/tolerance", "greater than 0");
  }
  b = base();
  b.spec.precision.pin = {{"res", DType::BF16}, {"w", DType::I8}};
  EXPECT_TRUE(resolve(b.spec));
  b.spec.precision.pin = {{"lm/head", DType::BF16}};
  refuses(b.spec, "/precision/pin/lm~1head", "not a tensor");
  b.spec.precision.pin = {{"res", DType::I64}};
  refuses(b.spec, "/precision/pin/res", "i64");
  b = base();
  b.spec.precision.observed = {{"res", 0.5}};
  EXPECT_EQ(resolve(b.spec)->precision.observed.at("res"), 0.5);
  b.spec.precision.observed = {{"w", 0.5}};
  refuses(b.spec, "/precision/observed/w", "not an output");
  for (double ratio : {0.0, -1.0, std::nan(""), HUGE_VAL}) {
    b.spec.precision.observed = {{"res", ratio}};
    refuses(b.spec, "/precision/observed/res", "greater than 0");
  }
}

TEST(Resolve, Gradient) {
  auto with = [](std::vector<std::pair<std::string, std::string>> of, std::vector<std::string> wrt,
                 std::string loss = "") {
    Builder b = base().in("dy", "f32[2,4]").in("n", "i32[2,4]").in("small", "f32[4]").node("sum", "res", "l");
    b.node("sum", "n", "count").node("argmax", "res", "best", "dim=0").out("res l count");
    b.spec.gradient = GradientSpec{std::move(of), std::move(wrt), std::move(loss), 1};
    return b;
  };
  EXPECT_TRUE(resolve(with({{"res", "dy"}}, {"x", "w"}).spec));
  EXPECT_TRUE(resolve(with({}, {"x"}, "l").spec));
  EXPECT_EQ(resolve(with({}, {"x"}, "l").spec)->gradient->loss, "l");
  refuses(with({}, {"x"}).spec, "/gradient", "'of'");
  refuses(with({{"res", "dy"}}, {"x"}, "l").spec, "/gradient", "not both");
  refuses(with({{"hid", "dy"}}, {"x"}).spec, "/gradient/of/hid", "not an output");
  refuses(with({{"a/b", "dy"}}, {"x"}).spec, "/gradient/of/a~1b", "not an output");
  refuses(with({{"res", "dy"}, {"res", "dy"}}, {"x"}).spec, "/gradient/of/res", "twice");
  refuses(with({{"res", "w"}}, {"x"}).spec, "/gradient/of/res", "w of res is not an input");
  refuses(with({{"res", "small"}}, {"x"}).spec, "/gradient/of/res", "has shape [4], and res has [2, 4]");
  refuses(with({{"res", "n"}}, {"x"}).spec, "/gradient/of/res", "n is i32");
  refuses(with({{"count", "dy"}}, {"x"}).spec, "/gradient/of/count", "count is i64");
  refuses(with({{"res", "dy"}}, {}).spec, "/gradient/wrt", "at least one");
  refuses(with({{"res", "dy"}}, {"x", "hid"}).spec, "/gradient/wrt/1", "neither an input nor a parameter");
  refuses(with({{"res", "dy"}}, {"x", "x"}).spec, "/gradient/wrt/1", "twice");
  refuses(with({{"res", "dy"}}, {"n"}).spec, "/gradient/wrt/0", "n is i32");
  refuses(with({{"res", "dy"}}, {"x"}).in("grad.x", "f32[]").spec, "/gradient/wrt/0", "grad.x is already defined");
  refuses(with({}, {"x"}, "nowhere").spec, "/gradient/loss", "not defined");
  refuses(with({}, {"x"}, "res").spec, "/gradient/loss", "must be a scalar");
  refuses(with({}, {"x"}, "count").spec, "/gradient/loss", "count is i64");
  Builder b = with({}, {"x"}, "l");
  b.spec.gradient->lossScale = HUGE_VAL;
  refuses(b.spec, "/gradient/loss_scale", "finite");
}

/// The sanitizers make the same work several times as long; bounds on time allow for that, and only there.
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif
#else
constexpr bool kSanitized = false;
#endif

/// 100,000 nodes, the file backwards: time may grow as n log n only.
TEST(Resolve, LargeGraphs) {
  auto chain = [](size_t count, bool backwards) {
    Builder b;
    b.in("x", "f32[2,3]");
    for (size_t i = 0; i < count; ++i) {
      size_t n = backwards ? count - 1 - i : i;
      NodeSpec node;
      node.op = n % 2 ? "add" : "mul";
      node.inputs = {{n ? "t" + std::to_string(n - 1) : "x", std::nullopt},
                     {n > 9 ? "t" + std::to_string(n - 10) : "x", std::nullopt}};
      node.outputs = {"t" + std::to_string(n)};
      b.spec.nodes.push_back(std::move(node));
    }
    return b.out("t" + std::to_string(count - 1)).spec;
  };
  for (bool backwards : {false, true}) {
    GraphSpec spec = chain(100000, backwards);
    auto begin = std::chrono::steady_clock::now();
    Result<Graph> graph = resolve(spec);
    double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    ASSERT_TRUE(graph) << graph.error().str();
    EXPECT_EQ(graph->nodes.size(), 100000u);
    EXPECT_EQ(graph->nodes.front().specIndex, backwards ? 99999u : 0u);
    EXPECT_LT(ms, kSanitized ? 30000 : 5000) << "some hundred times what it takes";
    RecordProperty(backwards ? "backwards_us" : "forwards_us", static_cast<int>(ms * 1000));
  }
  // A ring of all of them.
  GraphSpec ring = chain(100000, true);
  ring.nodes.back().inputs[0].name = "t99999";
  Result<Graph> graph = resolve(ring);
  ASSERT_FALSE(graph);
  EXPECT_EQ(graph.error().pointer, "/nodes/0");
  EXPECT_EQ(graph.error().message.rfind("cycle through t99999", 0), 0u) << graph.error().message.substr(0, 100);
  EXPECT_LT(graph.error().message.size(), 20000u);
}

// --- Symbolic dimensions ------------------------------------------------------------------------------------------------

Builder symbolic() {
  return Builder()
      .dim("B", 1, 65536)
      .dim("K", 3, 3)
      .in("x", "bf16[B,K]")
      .param("w", "bf16[4,3]")
      .node("linear", "x w", "y")
      .out("y");
}

TEST(Dims, ResolveNeedsTheirValues) {
  GraphSpec spec = symbolic().spec;
  Result<Graph> graph = resolve(spec, {{"B", 7}, {"K", 3}});
  ASSERT_TRUE(graph) << graph.error().str();
  EXPECT_EQ(rl::str(graph->type(graph->outputs[0])), "bf16 [7, 4]");
  refuses(spec, "/dims/B", "no value");
  refuses(spec, "/dims/B", "0, out of its range 1 to 65536", {{"B", 0}, {"K", 3}});
  refuses(spec, "/dims/K", "4, out of its range", {{"B", 1}, {"K", 4}});
  refuses(spec, "/dims/Z", "no dimension Z", {{"B", 1}, {"K", 3}, {"Z", 1}});
  refuses(symbolic().dim("B", 1, 2).spec, "/dims/B", "twice", {{"B", 1}, {"K", 3}});
  refuses(symbolic().dim("a/b", -1, 2).spec, "/dims/a~1b/min", "negative", {{"B", 1}, {"K", 3}, {"a/b", 0}});
  refuses(symbolic().dim("C", 3, 2).spec, "/dims/C/max", "less than", {{"B", 1}, {"K", 3}, {"C", 3}});
  refuses(symbolic().dim("", 3, 4).spec, "/dims", "empty", {{"B", 1}, {"K", 3}, {"", 3}});
}

std::string signature(const std::vector<std::pair<std::string, TensorType>> &tensors) {
  std::string out;
  for (const auto &[name, type] : tensors)
    out += (out.empty() ? "" : "; ") + name + " " + rl::str(type);
  return out;
}

TEST(Dims, SignatureOfASymbolicGraph) {
  Builder b = symbolic();
  b.dim("S", 1, INT32_MAX)
      .in("z", "f32[S,B,8]")
      .node("reshape", "z", "r", "shape=[S,-1]")
      .node("sum", "z", "t", "dims=[0,1]");
  b.node("full", "", "f", "shape=[B,2] value=1 dtype=i8").node("slice", "z", "u", "dim=1 end=1").out("y r t f u z w");
  Result<Signature> s = checkSpec(b.spec);
  ASSERT_TRUE(s) << s.error().str();
  EXPECT_EQ(signature(s->inputs), "x bf16 [-1, 3]; z f32 [-1, -1, 8]");
  EXPECT_EQ(signature(s->parameters), "w bf16 [4, 3]");
  EXPECT_EQ(
      signature(s->outputs),
      "y bf16 [-1, 4]; r f32 [-1, -1]; t f32 [8]; f i8 [-1, 2]; u f32 [-1, 1, 8]; z f32 [-1, -1, 8]; w bf16 [4, 3]");
}

TEST(Dims, AGraphThatHoldsForSomeExtentsIsAccepted) {
  // Divisible by 12; equal to a fixed extent; equal to each other.
  Result<Signature> s =
      checkSpec(Builder().dim("B", 1, 1000).in("x", "f32[B]").node("reshape", "x", "y", "shape=[-1,12]").out("y").spec);
  ASSERT_TRUE(s) << s.error().str();
  EXPECT_EQ(s->outputs[0].second.shape[0], -1);
  s = checkSpec(
      Builder().dim("K", 2, 9000).in("x", "f32[2,K]").param("w", "f32[77,5]").node("matmul", "x w", "y").out("y").spec);
  ASSERT_TRUE(s) << s.error().str();
  s = checkSpec(Builder()
                    .dim("A", 2, 9)
                    .dim("B", 3, 80)
                    .in("x", "f32[A]")
                    .in("y", "f32[B]")
                    .node("add", "x y", "z")
                    .out("z")
                    .spec);
  ASSERT_TRUE(s) << s.error().str();
  EXPECT_EQ(s->outputs[0].second.shape[0], -1);
}

TEST(Dims, WhatHoldsForNoExtentsIsRefused) {
  Builder b =
      Builder().dim("K", 2, 9000).in("x", "f32[2,K]").param("w", "f32[9001,5]").node("matmul", "x w", "y").out("y");
  Result<Signature> s = checkSpec(b.spec);
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().pointer, "/nodes/0");
  EXPECT_NE(s.error().message.find("K is 2 and 9001 (with K = 2)"), std::string::npos) << s.error().message;
  s = checkSpec(symbolic().node("cast", "y", "q").spec);
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().pointer, "/nodes/1");
  s = checkSpec(base().node("cast", "res", "q").spec);
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().message, "node q (cast): attribute 'dtype' is missing");
  s = checkSpec(symbolic().dim("Free", 1, 2).node("full", "", "f", "shape=[Free] value=0 dtype=f32").spec);
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().pointer, "/dims/Free");
}

TEST(Dims, BoundFromShapes) {
  Builder b = symbolic().in("z", "f32[B,8]");
  Result<DimValues> dims = bindDims(b.spec, {{5, 3}, {5, 8}}, {{4, 3}});
  ASSERT_TRUE(dims) << dims.error().str();
  EXPECT_EQ(*dims, (DimValues{{"B", 5}, {"K", 3}}));
  auto refused = [&](std::vector<Ints> inputs, std::vector<Ints> parameters, const char *pointer, const char *wordsOf) {
    Result<DimValues> got = bindDims(b.spec, inputs, parameters);
    ASSERT_FALSE(got) << wordsOf;
    EXPECT_EQ(got.error().pointer, pointer);
    EXPECT_NE(got.error().message.find(wordsOf), std::string::npos) << got.error().message;
  };
  refused({{5}, {5, 8}}, {{4, 3}}, "/x", "rank 1");
  refused({{5, 3}, {5, 9}}, {{4, 3}}, "/z", "wants 8");
  refused({{5, 3}, {6, 8}}, {{4, 3}}, "/z", "x has B = 5");
  refused({{0, 3}, {0, 8}}, {{4, 3}}, "/x", "out of the range 1 to 65536 of B");
  refused({{65537, 3}, {65537, 8}}, {{4, 3}}, "/x", "out of the range");
  refused({{5, 4}, {5, 8}}, {{4, 3}}, "/x", "out of the range 3 to 3 of K");
  refused({{5, 3}, {5, 8}}, {{4, 4}}, "/w", "parameter w");
  refused({{5, 3}}, {{4, 3}}, "", "2 inputs");
  b = symbolic().dim("Free", 1, 2);
  refused({{5, 3}}, {{4, 3}}, "/dims/Free", "not known");
  b = base();
  EXPECT_EQ(*bindDims(b.spec, {{2, 3}}, {{3, 4}}), DimValues{});
}

} // namespace
