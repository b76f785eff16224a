// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Every elementwise op on every legal combination of types, on the values that most often go wrong (all codes of the types of
// 8 and 16 bits), against the interpreter. The data is rotated from run to run, so that every value is computed in a
// vector's body and in the tail; scalars are broadcast from either side. RIDGELINE_TEST_TARGET=cuda runs it on a GPU.
#include "frontend/api/Engine.h"
#include "frontend/json/JsonReader.h"
#include "ir/interp/Convert.h"
#include "tests/numeric/support/Device.h"
#include "tests/numeric/support/Evaluate.h"
#include "tests/numeric/support/RandomGraph.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>
#include <tuple>

using namespace rl;
using namespace rl::numeric;

namespace {

const std::vector<DType> kArithmetic = {DType::F32, DType::F16, DType::BF16, DType::I8,
                                        DType::U8,  DType::I32, DType::I64,  DType::Bool};
const std::vector<DType> kAll = {DType::F32, DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2, DType::F8E8M0,
                                 DType::I8,  DType::U8,  DType::I32,  DType::I64,    DType::Bool};

Device *device() {
  static std::unique_ptr<Device> made = [] {
    Result<std::unique_ptr<Device>> d = Device::ofEnvironment();
    if (!d)
      std::fprintf(stderr, "%s\n", d.error().str().c_str());
    return d ? std::move(*d) : nullptr;
  }();
  return made.get();
}

std::string ptxOf(const GraphSpec &spec) {
  EngineOptions options;
  options.cache = "off";
  Result<Target> target = resolveTarget("sm_90a");
  EXPECT_TRUE(target.ok());
  Result<Artifact> artifact = compileSpec(spec, *target, options);
  EXPECT_TRUE(artifact.ok()) << (artifact.ok() ? "" : artifact.error().str());
  return artifact ? artifact->package.ptx : std::string();
}

HostTensor tensorOf(DType type, const std::vector<double> &values) {
  HostTensor t{{type, {static_cast<int64_t>(values.size())}}, {}};
  t.data.resize(static_cast<size_t>(t.type.bytes()));
  for (size_t i = 0; i < values.size(); ++i)
    storeElement(t.data.data(), type, static_cast<int64_t>(i), values[i]);
  return t;
}

/// The special values; of i64 also those that no double holds.
HostTensor specials(DType type) {
  HostTensor t = tensorOf(type, specialValues(type));
  if (type == DType::I64)
    for (int64_t v : {INT64_MAX, INT64_MIN + 1, (int64_t{1} << 53) + 1, int64_t{0x7fffffffffffff00}}) {
      t.data.insert(t.data.end(), reinterpret_cast<const std::byte *>(&v), reinterpret_cast<const std::byte *>(&v) + 8);
      ++t.type.shape[0];
    }
  return t;
}

std::vector<std::byte> rotated(const HostTensor &t, int64_t by) {
  const size_t size = dtypeSize(t.type.dtype), n = static_cast<size_t>(t.type.elements());
  std::vector<std::byte> out(t.data.size());
  for (size_t i = 0; i < n; ++i)
    std::memcpy(out.data() + (i + static_cast<size_t>(by)) % n * size, t.data.data() + i * size, size);
  return out;
}

TensorSpec input(const std::string &name, const HostTensor &t) {
  TensorSpec s{name, t.type.dtype, {}};
  for (int64_t e : t.type.shape)
    s.shape.push_back({e, {}});
  return s;
}

/// One op a node, all of them outputs, over inputs of the same number of elements or of one.
struct OpGraph {
  GraphSpec spec;
  std::vector<HostTensor> inputs;

  explicit OpGraph(bool strict) {
    spec.name = "ops";
    spec.strict = strict;
  }
  std::string add(const std::string &name, HostTensor t) {
    spec.inputs.push_back(input(name, t));
    inputs.push_back(std::move(t));
    return name;
  }
  /// Adds the node if the format has it for these operands.
  bool node(const std::string &op, const std::vector<std::string> &operands,
            std::map<std::string, AttrValue> attrs = {}) {
    NodeSpec n;
    n.op = op;
    std::vector<OperandType> types;
    for (const std::string &name : operands) {
      n.inputs.push_back({name, {}});
      for (size_t i = 0; i < inputs.size(); ++i)
        if (spec.inputs[i].name == name)
          types.push_back({inputs[i].type, {}});
    }
    if (!inferNode(findOp(op)->kind, types, 1, attrs, {}))
      return false;
    n.attrs = std::move(attrs);
    n.outputs = {op + "_" + std::to_string(spec.nodes.size())};
    spec.outputs.push_back(n.outputs[0]);
    spec.nodes.push_back(std::move(n));
    return true;
  }
  /// Runs with the data rotated by 0, `step`, 2 `step` ... places, `runs` times.
  void check(int64_t step = 7, int64_t runs = 1 << 20) {
    if (spec.nodes.empty())
      return;
    Result<Graph> graph = resolve(spec);
    ASSERT_TRUE(graph.ok()) << graph.error().str();
    Result<std::unique_ptr<Module>> module = device()->compile(spec);
    ASSERT_TRUE(module.ok()) << module.error().str() << "\n" << printGraph(spec);
    Result<std::vector<Expected>> want = evaluateRanges(*graph, Case{spec, inputs, {}});
    ASSERT_TRUE(want.ok()) << want.error().str();
    int64_t n = (*want)[0].type.elements();
    for (int64_t r = 0; r < runs && r * step < n; ++r) {
      std::vector<HostTensor> turned = inputs;
      for (HostTensor &t : turned)
        if (t.type.elements() == n)
          t.data = rotated(t, r * step);
      Result<std::vector<HostTensor>> got = device()->run(**module, turned, {}, r % 2 == 1);
      ASSERT_TRUE(got.ok()) << got.error().str();
      for (size_t o = 0; o < got->size(); ++o) {
        (*got)[o].data = rotated((*got)[o], n - r * step);
        std::string text = mismatch((*want)[o], (*got)[o]);
        EXPECT_EQ(text, "") << spec.nodes[o].op << " -> " << dtypeName((*want)[o].type.dtype)
                            << (spec.strict ? ", strict" : "") << ", rotated by " << r * step << of(o, text);
      }
    }
  }

private:
  /// What the operands were where it went wrong.
  std::string of(size_t o, const std::string &text) const {
    int64_t at = text.starts_with("element ") ? std::atoll(text.c_str() + 8) : -1;
    std::string out = " of";
    for (const OperandSpec &operand : spec.nodes[o].inputs)
      for (size_t i = 0; i < inputs.size(); ++i)
        if (spec.inputs[i].name == operand.name) {
          out += std::string(" ") + dtypeName(inputs[i].type.dtype);
          if (at >= 0) {
            char value[48];
            int64_t e = inputs[i].type.elements() == 1 ? 0 : at;
            std::snprintf(value, sizeof value, " %.9g", loadElement(inputs[i].data.data(), inputs[i].type.dtype, e));
            out += value;
          }
        }
    return out;
  }
};

AttrValue number(double v) { return Scalar{Scalar::Float, 0, v}; }
AttrValue integer(int64_t v) { return Scalar{Scalar::Int, v, 0}; }
AttrValue boolean(bool v) { return Scalar{Scalar::Bool, v, 0}; }

std::string nameOf(const testing::TestParamInfo<DType> &info) { return dtypeName(info.param); }

class PerType : public testing::TestWithParam<DType> {
protected:
  void SetUp() override { ASSERT_NE(device(), nullptr); }
};

void addUnary(OpGraph &g) {
  for (const OpInfo &op : allOps())
    if (op.cls == OpClass::Unary && op.kind != OpKind::Cast && op.kind != OpKind::Clamp)
      g.node(op.name, {"x"});
  g.node("gelu", {"x"}, {{"approximate", std::string("tanh")}});
  for (double low : {-1.0, 0.0, 0.5})
    for (double high : {-1.5, 0.25, 2.0, 448.0})
      g.node("clamp", {"x"}, {{"min", number(low)}, {"max", number(high)}});
  g.node("clamp", {"x"}, {{"min", integer(1)}});
  g.node("clamp", {"x"}, {{"max", integer(1)}});
  g.node("clamp", {"x"}, {{"min", boolean(true)}});
  g.node("clamp", {"x"}, {{"max", boolean(false)}});
}

TEST_P(PerType, UnaryOnSpecials) {
  for (bool strict : {false, true}) {
    OpGraph g(strict);
    g.add("x", specials(GetParam()));
    addUnary(g);
    EXPECT_GE(g.spec.nodes.size(), 20u);
    g.check(3);
  }
}

TEST_P(PerType, UnaryOfOneElement) {
  for (bool strict : {false, true}) {
    OpGraph g(strict);
    HostTensor x = tensorOf(GetParam(), {1});
    x.type.shape = {};
    g.add("x", x);
    addUnary(g);
    g.check();
  }
}

TEST_P(PerType, UnaryOnAllCodes) {
  if (dtypeSize(GetParam()) > 2 || GetParam() == DType::Bool)
    GTEST_SKIP() << "too many codes, or not all of them valid";
  for (bool strict : {false, true}) {
    OpGraph g(strict);
    g.add("x", allCodes(GetParam()));
    addUnary(g);
    g.check(1, 2);
  }
}

/// Every pair of special values of the two types, flat, with an odd number of elements.
void addPairs(OpGraph &g, DType a, DType b) {
  HostTensor x = specials(a), y = specials(b);
  HostTensor xs{{a, {0}}, {}}, ys{{b, {0}}, {}};
  auto append = [](HostTensor &to, const HostTensor &from, int64_t i) {
    const size_t size = dtypeSize(from.type.dtype);
    const std::byte *at = from.data.data() + static_cast<size_t>(i) * size;
    to.data.insert(to.data.end(), at, at + size);
    ++to.type.shape[0];
  };
  for (int64_t i = 0; i < x.type.elements(); ++i)
    for (int64_t j = 0; j < y.type.elements(); ++j) {
      append(xs, x, i);
      append(ys, y, j);
    }
  while (xs.type.elements() % 8 != 7) {
    append(xs, x, 0);
    append(ys, y, 1);
  }
  g.add("a", xs);
  g.add("b", ys);
}

TEST_P(PerType, BinaryOnEveryPairOfSpecials) {
  std::set<std::string> ran;
  for (DType other : kArithmetic) {
    bool sixteen = GetParam() == DType::F16 || GetParam() == DType::BF16 || other == DType::F16 || other == DType::BF16;
    for (bool strict : {true, false}) {
      if (!strict && !sixteen)
        continue; // the same code
      OpGraph g(strict);
      addPairs(g, GetParam(), other);
      HostTensor condition{{DType::Bool, g.inputs[0].type.shape}, {}};
      for (int64_t i = 0; i < condition.type.elements(); ++i)
        condition.data.push_back(std::byte(i % 3 == 0));
      g.add("c", condition);
      for (const OpInfo &op : allOps())
        if (op.cls == OpClass::Binary && g.node(op.name, {"a", "b"}))
          ran.insert(op.name);
      g.node("where", {"c", "a", "b"});
      // Not every place of the tail for every pair: the tail's code is the scalar kernel's, and rotated a few times.
      g.check(487, 7);
    }
  }
  EXPECT_GE(ran.size(), GetParam() == DType::Bool || isFloat(GetParam()) ? 18u : 21u);
}

// One operand is a scalar tensor: its value is computed once for all lanes.
TEST_P(PerType, BinaryWithAScalar) {
  const DType type = GetParam();
  OpGraph g(false);
  g.add("a", specials(type));
  g.add("b", HostTensor{{type, {}}, std::vector<std::byte>(dtypeSize(type))});
  for (const OpInfo &op : allOps())
    if (op.cls == OpClass::Binary) {
      g.node(op.name, {"a", "b"});
      g.node(op.name, {"b", "a"});
    }
  Result<Graph> graph = resolve(g.spec);
  ASSERT_TRUE(graph.ok()) << graph.error().str();
  Result<std::unique_ptr<Module>> module = device()->compile(g.spec);
  ASSERT_TRUE(module.ok()) << module.error().str();
  HostTensor all = specials(type);
  for (int64_t i = 0; i < all.type.elements(); ++i) {
    std::memcpy(g.inputs[1].data.data(), all.data.data() + static_cast<size_t>(i) * dtypeSize(type), dtypeSize(type));
    Result<std::vector<Expected>> want = evaluateRanges(*graph, Case{g.spec, g.inputs, {}});
    ASSERT_TRUE(want.ok()) << want.error().str();
    Result<std::vector<HostTensor>> got = device()->run(**module, g.inputs, {}, false);
    ASSERT_TRUE(got.ok()) << got.error().str();
    for (size_t o = 0; o < got->size(); ++o)
      EXPECT_EQ(mismatch((*want)[o], (*got)[o]), "")
          << g.spec.nodes[o].op << ", scalar " << g.spec.nodes[o].inputs[1].name << " = "
          << loadElement(g.inputs[1].data.data(), type, 0) << ", type " << dtypeName(type);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, PerType, testing::ValuesIn(kArithmetic), nameOf);

class Casts : public testing::TestWithParam<DType> {
protected:
  void SetUp() override { ASSERT_NE(device(), nullptr); }
};

/// Of f32, i32 and i64: every value and every midpoint of the narrow types with the neighbours of both, and the specials.
HostTensor castOperands(DType from) {
  if (from == DType::Bool)
    return specials(from);
  if (dtypeSize(from) <= 2)
    return allCodes(from);
  HostTensor t = specials(from);
  if (from != DType::F32) {
    auto append = [&](int64_t v) {
      std::byte bytes[8];
      storeInteger(bytes, from, 0, v);
      t.data.insert(t.data.end(), bytes, bytes + dtypeSize(from));
      ++t.type.shape[0];
    };
    // Around every power of two and around the ties of 8 and 11 bits above it, where a double rounding shows.
    for (int bit = 0; bit < 63; ++bit)
      for (int64_t tie : {int64_t{0}, bit >= 8 ? int64_t{1} << (bit - 8) : 0, bit >= 11 ? int64_t{1} << (bit - 11) : 0,
                          bit >= 8 ? int64_t{3} << (bit - 8) : 0, bit >= 24 ? int64_t{1} << (bit - 24) : 0,
                          bit >= 24 ? int64_t{3} << (bit - 24) : 0})
        for (int64_t near : {-1, 0, 1})
          for (int64_t sign : {-1, 1})
            append(sign * ((int64_t{1} << bit) + tie + near));
    return t;
  }
  std::vector<double> values;
  for (DType to : {DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2, DType::F8E8M0}) {
    HostTensor codes = allCodes(to);
    for (int64_t i = 0; i < codes.type.elements(); ++i) {
      double v = loadElement(codes.data.data(), to, i);
      if (!std::isfinite(v))
        continue;
      double next = i + 1 < codes.type.elements() ? loadElement(codes.data.data(), to, i + 1) : v;
      double middle = std::isfinite(next) ? (v + next) / 2 : v * 1.03125;
      for (double at : {v, middle})
        for (int step : {-1, 0, 1})
          values.push_back(stepped(DType::F32, static_cast<float>(at), step));
    }
  }
  HostTensor more = tensorOf(DType::F32, values);
  t.data.insert(t.data.end(), more.data.begin(), more.data.end());
  t.type.shape[0] += more.type.shape[0];
  return t;
}

TEST_P(Casts, ToEveryType) {
  for (bool strict : {false, true}) {
    OpGraph g(strict);
    g.add("x", castOperands(GetParam()));
    for (DType to : kAll)
      for (bool saturate : {true, false})
        if (saturate || isF8(to))
          EXPECT_TRUE(g.node("cast", {"x"}, {{"dtype", std::string(dtypeName(to))}, {"saturate", boolean(saturate)}}));
    g.check(1, 9);
  }
}

INSTANTIATE_TEST_SUITE_P(Types, Casts, testing::ValuesIn(kAll), nameOf);

/// A graph of one input is what the interpreter makes of it.
void expectRight(const GraphSpec &spec, const HostTensor &x) {
  Result<Graph> graph = resolve(spec);
  ASSERT_TRUE(graph.ok()) << graph.error().str();
  Result<std::unique_ptr<Module>> module = device()->compile(spec);
  ASSERT_TRUE(module.ok()) << module.error().str();
  Result<std::vector<Expected>> want = evaluateRanges(*graph, Case{spec, {x}, {}});
  Result<std::vector<HostTensor>> got = device()->run(**module, {x}, {}, false);
  ASSERT_TRUE(want.ok() && got.ok());
  for (size_t o = 0; o < got->size(); ++o)
    EXPECT_EQ(mismatch((*want)[o], (*got)[o]), "") << spec.outputs[o] << " of " << dtypeName(x.type.dtype);
}

// What quantises: rounded, clamped and made an integer, in one step where the type holds the bounds, and where it does not.
TEST(RoundedAndClamped, ToIntegers) {
  ASSERT_NE(device(), nullptr);
  HostTensor x = castOperands(DType::F32);
  std::vector<double> halves;
  for (int i = -1201; i <= 1201; ++i)
    for (int step : {-1, 0, 1})
      halves.push_back(stepped(DType::F32, static_cast<float>(i) / 2, step));
  for (int step : {-1, 0, 1})
    for (double at : {0x1p21, 0x1p22, 0x1p23})
      for (double half : {-0.5, 0.0, 0.5})
        for (int sign : {-1, 1})
          halves.push_back(sign * stepped(DType::F32, static_cast<float>(at + half), step));
  HostTensor more = tensorOf(DType::F32, halves);
  x.data.insert(x.data.end(), more.data.begin(), more.data.end());
  x.type.shape[0] += more.type.shape[0];
  for (int64_t rest : {0, 1, 3}) { // elements behind the last vector
    while (x.type.shape[0] % 8 != rest) {
      x.data.resize(x.data.size() + 4);
      ++x.type.shape[0];
    }
    GraphSpec spec;
    spec.name = "codes";
    spec.inputs = {input("x", x)};
    spec.nodes = {{"round", {{"x", {}}}, {"r"}, {}, {}, {}}};
    for (auto [to, least, most] : {std::tuple{"i8", -127.0, 127.0},
                                   {"i8", -128.0, 127.0},
                                   {"i8", -512.0, 512.0},
                                   {"i8", -127.5, 3.5},
                                   {"i8", 5.0, -5.0},
                                   {"u8", 0.0, 255.0},
                                   {"u8", -5.0, 5.0},
                                   {"i32", -512.0, 512.0},
                                   {"i32", -0x1p21, 0x1p21},
                                   {"i32", -0x1p23, 9.0},
                                   {"i64", -3.0, 0x1p21}}) {
      const std::string n = std::to_string(spec.outputs.size());
      spec.nodes.push_back({"clamp", {{"r", {}}}, {"c" + n}, {{"min", number(least)}, {"max", number(most)}}, {}, {}});
      spec.nodes.push_back({"cast", {{"c" + n, {}}}, {"q" + n}, {{"dtype", std::string(to)}}, {}, {}});
      spec.outputs.push_back("q" + n);
    }
    expectRight(spec, x);
  }
}

// The absolute value of the least integer is negative: what follows must not count on the contrary. (ptxas does for abs.s32.)
TEST(Quirks, AbsOfTheLeastInteger) {
  ASSERT_NE(device(), nullptr);
  for (DType type : {DType::I8, DType::I32, DType::I64}) {
    GraphSpec spec;
    spec.name = "quirk";
    HostTensor x = specials(type);
    spec.inputs = {input("x", x)};
    for (auto [op, from, to] : {std::tuple{"abs", "x", "a"}, {"log", "a", "l"}, {"sign", "a", "s"}, {"relu", "a", "r"}})
      spec.nodes.push_back({op, {{from, {}}}, {to}, {}, {}, {}});
    spec.nodes.push_back({"lt", {{"a", {}}, {"", Scalar{Scalar::Int, 0, 0}}}, {"n"}, {}, {}, {}});
    spec.outputs = {"a", "l", "s", "r", "n"};
    expectRight(spec, x);
    EXPECT_EQ(ptxOf(spec).find("abs.s"), std::string::npos);
  }
}

// A function of a constant is what the hardware makes of it at run time, not what the assembler computes.
TEST(Quirks, FunctionsOfConstantsAreNotFolded) {
  GraphSpec spec;
  spec.name = "quirk";
  spec.strict = true;
  spec.inputs = {{"x", DType::F32, {{64, {}}}}};
  spec.nodes = {{"full",
                 {},
                 {"two"},
                 {{"shape", std::vector<Dim>{}}, {"dtype", std::string("f32")}, {"value", number(2)}},
                 {},
                 {}},
                {"rsqrt", {{"two", {}}}, {"r"}, {}, {}, {}},
                {"add", {{"x", {}}, {"r", {}}}, {"y"}, {}, {}, {}}};
  spec.outputs = {"y"};
  std::string ptx = ptxOf(spec);
  if (ptx.find("rsqrt.approx") != std::string::npos)
    EXPECT_NE(ptx.find("%ctaid.z"), std::string::npos) << ptx;
}

// The comparison itself: it must tell a result that is one step off, a zero of the other sign, a missing NaN.
TEST(Comparison, TellsTheLeastDifference) {
  auto one = [](DType type, double v) {
    HostTensor t{{type, {}}, std::vector<std::byte>(dtypeSize(type))};
    storeElement(t.data.data(), type, 0, v, false);
    return t;
  };
  const double nan = std::nan(""), inf = INFINITY;
  for (bool exact : {true, false}) {
    auto told = [&](DType type, double want, double got) {
      Expected e;
      e.type = {type, {}};
      e.exact = exact;
      e.lo = exact || !isFloat(type) ? one(type, want) : one(DType::F32, want);
      e.hi = e.lo;
      e.mayBeNan = {static_cast<uint8_t>(std::isnan(want))};
      return !mismatch(e, one(type, got)).empty();
    };
    EXPECT_FALSE(told(DType::F32, 1.5, 1.5));
    EXPECT_FALSE(told(DType::F32, nan, -nan));
    EXPECT_TRUE(told(DType::F32, 1.0, 1.0000001192092896));
    EXPECT_TRUE(told(DType::F32, 0.0, -0.0));
    EXPECT_TRUE(told(DType::F32, nan, 1.0));
    EXPECT_TRUE(told(DType::F32, 1.0, nan));
    EXPECT_TRUE(told(DType::F16, 1.0, 1.0009765625));
    EXPECT_TRUE(told(DType::BF16, inf, 0x1.fep127));
    EXPECT_TRUE(told(DType::F8E4M3, 448, 416));
    EXPECT_FALSE(told(DType::F8E5M2, inf, inf));
    EXPECT_TRUE(told(DType::I64, 5, 6));
    EXPECT_TRUE(told(DType::Bool, 1, 0));
  }
}

} // namespace
