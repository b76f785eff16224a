// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/numeric/support/SegmentGraphs.h"
#include "ir/interp/Convert.h"
#include "tests/numeric/support/GraphMaker.h"

#include <cmath>
#include <cstdio>
#include <cstring>

namespace rl::numeric {

namespace {

class Maker : GraphMaker {
public:
  Maker(uint64_t seed, bool large) : GraphMaker(seed), large(large) {}
  SegmentGraph run();

private:
  std::optional<Val> product();
  std::optional<Val> behind(Val);
  void reduce(const Val &);
  void quantise(const Val &);
  void store(const Val &v) { spec.outputs.push_back(v.name); }

  bool large, exact = true;
  int64_t m = 1, n = 1, k = 1, segment = 128;
  DType dtype = DType::BF16;
  Shape batch;
  std::optional<Val> left;
};

std::optional<Maker::Val> Maker::product() {
  Shape a(batch);
  a.insert(a.end(), {m, k});
  if (!left)
    left = input(dtype, a);
  if (isF8(dtype))
    return emit("scaled_matmul", {*left, input(dtype, {n, k}), input(DType::F32, {}), input(DType::F32, {n})},
                {{"granularity_a", std::string("tensor")},
                 {"granularity_b", std::string("token")},
                 {"transpose_b", flag(true)},
                 {"out_dtype", word(DType::BF16)}});
  if (rng.chance(60))
    return emit("linear", {*left, input(dtype, {n, k})});
  Attributes attrs{{"transpose_b", flag(true)}};
  if (dtype != DType::F32 && rng.chance(40))
    attrs["out_dtype"] = word(DType::F32);
  return emit("matmul", {*left, input(dtype, {n, k})}, attrs);
}

std::optional<Maker::Val> Maker::behind(Val v) {
  Shape column(v.type.shape);
  column.back() = 1;
  for (int64_t more = rng.below(4); more > 0; --more) {
    std::optional<Val> next;
    switch (rng.below(exact ? 6 : 9)) {
    case 0: next = emit("add", {v, input(v.type.dtype, {n})}); break;
    case 1:
    case 2: next = emit("add", {v, input(rng.chance(80) ? v.type.dtype : DType::F32, v.type.shape)}); break;
    case 3: next = emit("relu", {v}); break;
    case 4: next = emit("mul", {v, input(v.type.dtype, column)}); break;
    case 5: next = emit("mul", {v}, {}, Scalar{Scalar::Float, 0, 0.5}); break;
    case 6: next = emit("silu", {v}); break;
    case 7: next = emit("gelu", {v}, {{"approximate", std::string("tanh")}}); break;
    default:
      if (std::optional<Val> other = product(), gate = other ? emit("silu", {*other}) : other; gate)
        next = emit("mul", {v, *gate});
    }
    if (next && isArithmeticFloat(next->type.dtype))
      v = *next;
  }
  return v;
}

void Maker::quantise(const Val &v) {
  static const std::vector<std::string> types = {"f8e4m3", "f8e4m3", "f8e5m2", "i8"};
  Attributes attrs{{"granularity", std::string("block")}, {"block", list({1, segment})}}, own(attrs);
  own["dtype"] = rng.pick(types);
  const bool asymmetric = std::get<std::string>(own["dtype"]) == "i8" && rng.chance(50);
  if (rng.chance(30) && (exact || !asymmetric)) // a scale twice as large moves the zero point
    own["scale_dtype"] = std::string("f8e8m0");
  if (asymmetric)
    own["scheme"] = std::string("asymmetric");
  if (rng.chance(20)) {
    for (const Val &out : emitAll("fake_quantize", {v}, own))
      store(out);
    return;
  }
  std::vector<Val> q = emitAll("quantize", {v}, own, asymmetric ? 3 : 2);
  for (const Val &out : q)
    if (q.size() == 2 || rng.chance(80))
      store(out);
  attrs["dtype"] = word(rng.chance(50) ? DType::F32 : DType::BF16);
  if (!q.empty() && rng.chance(20))
    for (const Val &out : emitAll("dequantize", q, attrs))
      store(out);
}

/// Something that has segments of the rows.
void Maker::reduce(const Val &v) {
  if (n % segment != 0 || rng.chance(65))
    return quantise(v);
  Shape heads(v.type.shape);
  heads.back() = n / segment;
  heads.push_back(segment);
  std::optional<Val> split = emit("reshape", {v}, {{"shape", list(heads)}}), out;
  if (!split)
    return;
  const auto last = static_cast<int64_t>(heads.size()) - 1;
  switch (rng.below(exact ? 2 : 4)) {
  case 0:
    out = emit(rng.chance(50) ? "amax" : "amin", {*split}, {{"dims", list({last})}, {"keepdim", flag(true)}});
    if (out && rng.chance(60))
      if (std::optional<Val> less = emit("sub", {*split, *out}))
        store(*less);
    break;
  case 1: out = emit("sum", {*split}, {{"dims", list({last})}, {"keepdim", flag(rng.chance(50))}}); break;
  case 2: out = emit("rms_norm", {*split, input(v.type.dtype, {segment})}); break;
  default: out = emit("softmax", {*split}, {{"dim", integer(last)}}); break;
  }
  if (out)
    store(*out);
}

SegmentGraph Maker::run() {
  static const std::vector<int64_t> rows = {1, 2, 5, 16, 17, 33, 63, 64, 65, 100, 127, 129, 200},
                                    manyRows = {127, 129, 256, 333, 517, 640},
                                    lengths = {16, 32, 32, 32, 64, 64, 128, 128, 128, 256},
                                    depths = {8, 16, 40, 64, 96}, wide = {64, 128, 256, 512, 1024};
  static const std::vector<DType> types = {DType::BF16, DType::BF16, DType::BF16,
                                           DType::F16,  DType::F32,  DType::F8E4M3};
  spec.name = "segments";
  spec.strict = rng.chance(25);
  exact = !rng.chance(35);
  m = rng.pick(large ? manyRows : rows);
  segment = rng.pick(lengths);
  n = segment * rng.range(1, std::max<int64_t>(1, (large ? 1536 : 512) / segment));
  if (rng.chance(10))
    n += 8;
  k = rng.pick(large ? wide : depths);
  dtype = rng.pick(types);
  if (large && dtype == DType::F32)
    dtype = DType::BF16;
  constexpr int64_t kBudget = 300000000; // multiplications: the interpreter is slow
  while (m * n * k > kBudget)
    n = std::max(segment, n / 2 / segment * segment);
  if (rng.chance(15))
    batch = {rng.range(1, 3)};
  std::optional<Val> v = product();
  v = v ? behind(*v) : v;
  if (v && rng.chance(30))
    store(*v);
  if (v)
    reduce(*v);
  if (v && rng.chance(15))
    reduce(*v);
  if (v && spec.outputs.empty())
    store(*v);
  return {std::move(spec), exact};
}

} // namespace

SegmentGraph segmentGraph(uint64_t seed, bool large) { return Maker(seed, large).run(); }

HostTensor segmentData(Rng &rng, const Graph &graph, ValueId input) {
  const TensorType &type = graph.type(input);
  HostTensor t{type, std::vector<std::byte>(static_cast<size_t>(type.bytes()))};
  bool multiplied = false, summed = false; ///< a factor of elements; one of a product's terms
  for (const Node &node : graph.nodes)
    for (const Operand &o : node.inputs)
      if (!o.isLiteral() && o.value == input) {
        multiplied |= node.op == OpKind::Mul || (node.op == OpKind::ScaledMatmul && type.dtype == DType::F32);
        summed |=
            node.op == OpKind::Linear || node.op == OpKind::Matmul || (node.op == OpKind::ScaledMatmul && !multiplied);
      }
  static const std::vector<double> factors = {1, 1, 2, 0.5, -1};
  const bool wild = !multiplied && !summed && rng.chance(50), zeros = multiplied && rng.chance(50);
  for (int64_t i = 0, left = 0, manner = 0; i < type.elements(); ++i, --left) {
    if (left == 0) {
      left = rng.range(1, 300);
      manner = rng.below(8);
    }
    double v = multiplied ? rng.pick(factors) : static_cast<double>(summed ? rng.range(-1, 1) : rng.range(-8, 8));
    if (zeros && type.dtype != DType::F32 && manner < 2)
      v = 0;
    if (wild && manner == 0 && rng.chance(2))
      v = rng.chance(50) ? NAN : rng.chance(50) ? INFINITY : -INFINITY;
    storeElement(t.data.data(), type.dtype, i, v);
  }
  return t;
}

std::string compareSegments(const HostTensor &want, const HostTensor &got, bool exact) {
  const DType type = want.type.dtype;
  double largest = 0;
  for (int64_t i = 0; !exact && i < want.type.elements(); ++i)
    if (double v = loadElement(want.data.data(), type, i); std::isfinite(v))
      largest = std::max(largest, std::fabs(v));
  for (int64_t i = 0; i < want.type.elements(); ++i) {
    const size_t size = dtypeSize(type), at = static_cast<size_t>(i) * size;
    double w = loadElement(want.data.data(), type, i), g = loadElement(got.data.data(), type, i);
    bool fine = std::memcmp(want.data.data() + at, got.data.data() + at, size) == 0 ||
                (isFloat(type) && std::isnan(w) && std::isnan(g)) || (isFloat(type) && w == 0 && g == 0);
    // A step of an f8, of an i8, or of a zero point, and, of powers of two, a scale that is twice as large.
    if (!exact && std::isfinite(w) && std::isfinite(g))
      fine |= std::fabs(w - g) <=
              0.6 * std::max(std::fabs(w), std::fabs(g)) + std::max(0x1p-5 * largest, isFloat(type) ? 0.0 : 2.0);
    if (!fine) {
      char text[160];
      std::snprintf(text, sizeof text, "element %lld is %.9g, not %.9g", static_cast<long long>(i), g, w);
      return text;
    }
  }
  return {};
}

} // namespace rl::numeric
