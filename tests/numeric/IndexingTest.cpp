// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// embedding, index_select, gather and cross_entropy on every element type, and with indices out of range: an error that names
// the index tensor on a CPU; NaN, or 0 where the type has none, and nothing read outside of the table on a GPU.
// RIDGELINE_TEST_TARGET=cuda runs it there. (Chains of these ops are among the random graphs.)
#include "frontend/json/JsonReader.h"
#include "ir/interp/Convert.h"
#include "tests/numeric/support/Device.h"
#include "tests/numeric/support/RandomData.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>

using namespace rl;
using namespace rl::numeric;

namespace {

const bool onGpu = [] {
  const char *target = std::getenv("RIDGELINE_TEST_TARGET");
  return target && std::string(target) == "cuda";
}();

Device *device() {
  static std::unique_ptr<Device> made = [] {
    Result<std::unique_ptr<Device>> d = Device::create(onGpu ? "cuda" : "cpu");
    if (!d)
      std::fprintf(stderr, "%s\n", d.error().str().c_str());
    return d ? std::move(*d) : nullptr;
  }();
  return made.get();
}

TensorSpec specOf(const std::string &name, const TensorType &type) {
  TensorSpec t{name, type.dtype, {}};
  for (int64_t e : type.shape)
    t.shape.push_back({e, {}});
  return t;
}

HostTensor integers(DType type, std::vector<int64_t> shape, const std::vector<int64_t> &values) {
  HostTensor t{{type, std::move(shape)}, {}};
  t.data.resize(static_cast<size_t>(t.type.bytes()));
  for (size_t i = 0; i < values.size(); ++i)
    storeInteger(t.data.data(), type, static_cast<int64_t>(i), values[i]);
  return t;
}

/// A graph of one table "x" and one index tensor "i".
struct Lookup {
  GraphSpec spec;
  std::vector<HostTensor> inputs;
  Lookup(HostTensor x, HostTensor i) {
    spec.name = "lookup";
    spec.inputs = {specOf("x", x.type), specOf("i", i.type)};
    inputs = {std::move(x), std::move(i)};
  }
  Lookup &node(const std::string &op, std::vector<std::string> in, const std::string &out,
               std::map<std::string, AttrValue> attrs = {}) {
    NodeSpec n;
    n.op = op;
    for (std::string &name : in)
      n.inputs.push_back({std::move(name), {}});
    n.outputs = {out};
    n.attrs = std::move(attrs);
    spec.nodes.push_back(std::move(n));
    spec.outputs = {out};
    return *this;
  }
  Result<std::vector<HostTensor>> want() const {
    RL_ASSIGN(Graph graph, resolve(spec));
    return interpret(graph, inputs, {});
  }
  Result<std::vector<HostTensor>> got(bool offset = false) const {
    static std::map<std::string, std::unique_ptr<Module>> modules; // the data differs more often than the graph
    std::unique_ptr<Module> &module = modules[printGraph(spec)];
    if (!module) {
      RL_ASSIGN(module, device()->compile(spec));
    }
    return device()->run(*module, inputs, {}, offset);
  }
};

AttrValue integer(int64_t v) { return Scalar{Scalar::Int, v, 0}; }

bool sameElement(const HostTensor &a, const HostTensor &b, int64_t i) {
  const size_t size = dtypeSize(a.type.dtype), at = static_cast<size_t>(i) * size;
  return std::memcmp(a.data.data() + at, b.data.data() + at, size) == 0 ||
         (isFloat(a.type.dtype) && std::isnan(loadElement(a.data.data(), a.type.dtype, i)) &&
          std::isnan(loadElement(b.data.data(), a.type.dtype, i)));
}

void expectSame(const Lookup &l) {
  Result<std::vector<HostTensor>> want = l.want();
  ASSERT_TRUE(want.ok()) << want.error().str();
  for (bool offset : {false, true}) {
    Result<std::vector<HostTensor>> got = l.got(offset);
    ASSERT_TRUE(got.ok()) << got.error().str();
    for (int64_t e = 0; e < (*want)[0].type.elements(); ++e)
      ASSERT_TRUE(sameElement((*want)[0], (*got)[0], e)) << printGraph(l.spec) << "\nelement " << e;
  }
}

/// The interpreter refuses; a CPU does likewise, naming the tensor; on a GPU the elements `missing` says are NaN or 0, and the
/// others what `valid`, the same graph with an index in range in their place, gives.
void expectRefused(const Lookup &l, const std::string &pointer, const Lookup &valid, auto missing) {
  Result<std::vector<HostTensor>> want = l.want();
  ASSERT_FALSE(want.ok());
  EXPECT_EQ(want.error().code, Code::Invalid);
  for (bool offset : {false, true}) {
    Result<std::vector<HostTensor>> got = l.got(offset);
    if (!onGpu) {
      ASSERT_FALSE(got.ok()) << printGraph(l.spec);
      EXPECT_EQ(got.error().code, Code::Invalid) << got.error().str();
      EXPECT_EQ(got.error().pointer, pointer) << got.error().str();
      continue;
    }
    ASSERT_TRUE(got.ok()) << got.error().str();
    want = valid.want();
    ASSERT_TRUE(want.ok()) << want.error().str();
    const DType type = (*got)[0].type.dtype;
    for (int64_t e = 0; e < (*got)[0].type.elements(); ++e) {
      double v = loadElement((*got)[0].data.data(), type, e);
      if (missing(e))
        ASSERT_TRUE(isFloat(type) ? std::isnan(v) : v == 0) << "element " << e << " is " << v;
      else
        ASSERT_TRUE(sameElement((*want)[0], (*got)[0], e)) << "element " << e;
    }
  }
}

class Indexing : public testing::TestWithParam<DType> {
protected:
  void SetUp() override { ASSERT_NE(device(), nullptr); }
  Rng rng{1234};
  HostTensor table(std::vector<int64_t> shape) { return randomTensor(rng, {GetParam(), std::move(shape)}); }
};

TEST_P(Indexing, RowsAndElementsOfEveryType) {
  // Rows of whole vectors, and of odd length; one row; one column.
  for (auto [rows, width] : {std::pair<int64_t, int64_t>{37, 64}, {11, 7}, {1, 40}, {50, 1}, {9, 200}})
    for (DType index : {DType::I32, DType::I64}) {
      HostTensor x = table({rows, width});
      expectSame(Lookup(x, randomIndices(rng, {index, {5, 9}}, rows)).node("embedding", {"x", "i"}, "y"));
      expectSame(Lookup(x, randomIndices(rng, {index, {77}}, rows))
                     .node("index_select", {"x", "i"}, "y", {{"dim", integer(0)}}));
      expectSame(Lookup(x, randomIndices(rng, {index, {33}}, width))
                     .node("index_select", {"x", "i"}, "y", {{"dim", integer(1)}}));
      expectSame(Lookup(x, randomIndices(rng, {index, {rows, 23}}, width))
                     .node("gather", {"x", "i"}, "y", {{"dim", integer(1)}}));
      expectSame(Lookup(x, randomIndices(rng, {index, {70, width}}, rows))
                     .node("gather", {"x", "i"}, "y", {{"dim", integer(0)}}));
    }
}

TEST_P(Indexing, OutOfRange) {
  const int64_t rows = 6, width = 16;
  HostTensor x = table({rows, width});
  for (DType index : {DType::I32, DType::I64})
    for (int64_t bad : {int64_t{6}, int64_t{-1}, int64_t{INT32_MAX}, int64_t{INT32_MIN}, int64_t{1} << 32,
                        (int64_t{1} << 32) + 2, INT64_MIN, INT64_MAX}) {
      if (index == DType::I32 && bad != static_cast<int32_t>(bad))
        continue;
      for (int64_t at : {0, 4}) {
        std::vector<int64_t> values = {0, 5, 2, 3, 1}, fine = values;
        values[static_cast<size_t>(at)] = bad;
        HostTensor wrong = integers(index, {5}, values), right = integers(index, {5}, fine);
        expectRefused(Lookup(x, wrong).node("embedding", {"x", "i"}, "y"), "/i",
                      Lookup(x, right).node("embedding", {"x", "i"}, "y"), [&](int64_t e) { return e / width == at; });
        // The lanes of one vector each with an index of their own.
        expectRefused(Lookup(x, wrong).node("index_select", {"x", "i"}, "y", {{"dim", integer(0)}}), "/i",
                      Lookup(x, right).node("index_select", {"x", "i"}, "y", {{"dim", integer(0)}}),
                      [&](int64_t e) { return e / width == at; });
        HostTensor column = table({rows});
        expectRefused(Lookup(column, wrong).node("gather", {"x", "i"}, "y", {{"dim", integer(0)}}), "/i",
                      Lookup(column, right).node("gather", {"x", "i"}, "y", {{"dim", integer(0)}}),
                      [&](int64_t e) { return e == at; });
      }
    }
}

TEST_P(Indexing, OfAnEmptyTable) {
  HostTensor x = table({0, 8}), one = table({1, 8});
  HostTensor i = integers(DType::I64, {3}, {0, 1, -1}), zeros = integers(DType::I64, {3}, {0, 0, 0});
  expectRefused(Lookup(x, i).node("embedding", {"x", "i"}, "y"), "/i",
                Lookup(one, zeros).node("embedding", {"x", "i"}, "y"), [](int64_t) { return true; });
  expectSame(Lookup(x, integers(DType::I64, {0}, {})).node("embedding", {"x", "i"}, "y"));
  expectSame(Lookup(one, zeros).node("embedding", {"x", "i"}, "y"));
}

INSTANTIATE_TEST_SUITE_P(Types, Indexing,
                         testing::Values(DType::F32, DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2,
                                         DType::F8E8M0, DType::I8, DType::U8, DType::I32, DType::I64, DType::Bool),
                         [](const testing::TestParamInfo<DType> &info) { return dtypeName(info.param); });

class Losses : public testing::Test {
protected:
  void SetUp() override { ASSERT_NE(device(), nullptr); }
  static HostTensor logits(std::vector<int64_t> shape) {
    Rng rng(99);
    HostTensor t{{DType::F32, std::move(shape)}, {}};
    t.data.resize(static_cast<size_t>(t.type.bytes()));
    for (int64_t i = 0; i < t.type.elements(); ++i)
      storeElement(t.data.data(), DType::F32, i, rng.unit() * 8 - 4);
    return t;
  }
  static Lookup loss(HostTensor x, const std::vector<int64_t> &targets, std::map<std::string, AttrValue> attrs = {}) {
    HostTensor t = integers(DType::I64, {static_cast<int64_t>(targets.size())}, targets);
    return Lookup(std::move(x), std::move(t)).node("cross_entropy", {"x", "i"}, "y", std::move(attrs));
  }
};

TEST_F(Losses, IgnoredTargetsAreNotLookedUp) {
  for (int64_t ignored : {int64_t{-100}, int64_t{3}, INT64_MIN, INT64_MAX}) {
    Lookup l = loss(logits({4, 33}), {5, ignored, 32, ignored}, {{"ignore_index", integer(ignored)}});
    Result<std::vector<HostTensor>> want = l.want(), got = l.got();
    ASSERT_TRUE(want.ok()) << want.error().str();
    ASSERT_TRUE(got.ok()) << got.error().str();
    for (int64_t e = 0; e < 4; ++e) {
      double w = loadElement((*want)[0].data.data(), DType::F32, e),
             g = loadElement((*got)[0].data.data(), DType::F32, e);
      EXPECT_NEAR(w, g, 1e-5 * w) << e;
      EXPECT_EQ(w == 0, e % 2 == 1);
    }
  }
  Lookup none = loss(logits({3, 0}), {-100, -100, -100});
  expectSame(none);
}

TEST_F(Losses, TargetsOutOfRange) {
  for (int64_t bad : {int64_t{33}, int64_t{-1}, int64_t{-101}, (int64_t{1} << 32) + 1, INT64_MIN}) {
    Lookup l = loss(logits({3, 33}), {1, bad, -100});
    EXPECT_FALSE(l.want().ok());
    Result<std::vector<HostTensor>> got = l.got();
    if (!onGpu) {
      ASSERT_FALSE(got.ok());
      EXPECT_EQ(got.error().code, Code::Invalid);
      EXPECT_EQ(got.error().pointer, "/i") << got.error().str();
      continue;
    }
    ASSERT_TRUE(got.ok()) << got.error().str();
    EXPECT_TRUE(std::isnan(loadElement((*got)[0].data.data(), DType::F32, 1)));
    EXPECT_FALSE(std::isnan(loadElement((*got)[0].data.data(), DType::F32, 0)));
    EXPECT_EQ(loadElement((*got)[0].data.data(), DType::F32, 2), 0);
  }
  Lookup empty = loss(logits({2, 0}), {-100, 0});
  EXPECT_FALSE(empty.want().ok());
  if (!onGpu)
    EXPECT_FALSE(empty.got().ok());
}

// An index that is computed has no tensor to name.
TEST_F(Losses, ComputedIndexOutOfRange) {
  HostTensor x = logits({6, 8}), i = integers(DType::I32, {2}, {2, 3});
  Lookup l(x, i);
  l.node("add", {"i", "i"}, "j")
      .node("iota", {}, "k",
            {{"shape", std::vector<Dim>{{2, {}}}}, {"dim", integer(0)}, {"dtype", std::string("i32")}});
  l.node("add", {"j", "k"}, "m").node("embedding", {"x", "m"}, "y");
  EXPECT_FALSE(l.want().ok());
  Result<std::vector<HostTensor>> got = l.got();
  if (onGpu) {
    ASSERT_TRUE(got.ok()) << got.error().str();
    EXPECT_TRUE(std::isnan(loadElement((*got)[0].data.data(), DType::F32, 15)));
    return;
  }
  ASSERT_FALSE(got.ok());
  EXPECT_EQ(got.error().code, Code::Invalid);
}

} // namespace
