// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random graphs around matrix products and attention on a target against the reference interpreter, which sums in f64. Where a
// result is not finite it must be so in the same way; integers must be equal; floats may differ by what sums in f32 in another
// order do, measured against the largest of the tensor. Results are the same bits from run to run, from a compile to the next and
// wherever tensors lie in memory; but for products by tensor memory copies (Hopper), which another kernel stands in for where a tensor
// is not aligned. Graphs that fail are printed.
//
// --large: products large enough for warpgroup products.
// --segments: products whose rows are reduced by segments (support/SegmentGraphs.h), most of them exact; with --large those for
// warpgroup products.
// --heads: heads of attention put beside each other before a product, or taken apart behind it; with --large as above.
// --few: products of few rows and many weights, of 16 bits, along K or N, or of 8 with a scale for each row of them, all of them, or a
// block.
//
//   numeric_gemm_test [--target cpu|cuda] [--seeds A:B] [--large] [--few] [--heads] [--segments] [--verify] [--print]
#include "frontend/json/JsonReader.h"
#include "ir/interp/Convert.h"
#include "tests/numeric/support/Device.h"
#include "tests/numeric/support/Evaluate.h"
#include "tests/numeric/support/GraphMaker.h"
#include "tests/numeric/support/Harness.h"
#include "tests/numeric/support/RandomData.h"
#include "tests/numeric/support/Rng.h"
#include "tests/numeric/support/SegmentGraphs.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

using namespace rl;
using namespace rl::numeric;

namespace {

/// Graphs of one product or two, with layouts and casts before them and elementwise ops, norms and reductions behind.
class Generator : GraphMaker {
public:
  Generator(uint64_t seed, bool large) : GraphMaker(seed), large(large), budget(large ? 1500000000 : 3000000) {}
  GraphSpec run();
  GraphSpec runFew(bool more);
  GraphSpec runHeads();

private:
  int64_t extent();
  Val operand(DType, Shape);
  Val behind(Val v);
  Val before(Val v);
  std::optional<Val> product(std::optional<Val> left);
  std::optional<Val> attention();
  std::optional<Val> scaled(Shape batch, int64_t M, int64_t N, int64_t K, bool transposeA, bool transposeB);
  std::optional<Val> weights(DType, int64_t n, int64_t k);

  bool large;
  int64_t budget; ///< multiplications: the interpreter is slow
};

int64_t Generator::extent() {
  static const std::vector<int64_t> extents = {1,   1,   2,   3,   4,   5,   7,   8,   15,  16,  17,  24,  31,  32,
                                               33,  40,  48,  63,  64,  65,  72,  96,  97,  99,  100, 120, 127, 128,
                                               129, 136, 160, 192, 200, 255, 256, 257, 264, 384, 513, 1000};
  static const std::vector<int64_t> largeExtents = {136, 256,  257,  333,  384,  392,  512,  520, 640,
                                                    648, 1000, 1024, 1032, 2048, 2056, 3000, 4104};
  if (large)
    return rng.pick(largeExtents);
  return rng.chance(2) ? 0 : rng.chance(1) ? 4097 : rng.pick(extents);
}

/// A tensor of this shape, at times as a view of another or a cast.
Generator::Val Generator::operand(DType dtype, Shape shape) {
  const auto rank = static_cast<int64_t>(shape.size());
  switch (rng.below(8)) {
  case 0: // a permutation
    if (rank > 1) {
      int64_t i = rng.below(rank), j = rng.below(rank);
      Shape from(shape), dims;
      for (int64_t d = 0; d < rank; ++d)
        dims.push_back(d);
      std::swap(from[static_cast<size_t>(i)], from[static_cast<size_t>(j)]);
      std::swap(dims[static_cast<size_t>(i)], dims[static_cast<size_t>(j)]);
      if (auto v = emit("permute", {input(dtype, from)}, {{"dims", list(dims)}}))
        return *v;
    }
    break;
  case 1: { // a part of a larger one
    int64_t d = rng.below(rank), start = rng.below(9);
    Shape from(shape);
    from[static_cast<size_t>(d)] += start + rng.below(9);
    if (auto v = emit(
            "slice", {input(dtype, from)},
            {{"dim", integer(d)}, {"start", integer(start)}, {"end", integer(start + shape[static_cast<size_t>(d)])}}))
      return *v;
    break;
  }
  case 2: // of another shape
    if (auto v = emit("reshape", {input(dtype, {TensorType{dtype, shape}.elements()})}, {{"shape", list(shape)}}))
      return *v;
    break;
  case 4: // numbers of 8 bits and their scales
    if (isArithmeticFloat(dtype) && rank > 1)
      if (auto v = emit("cast", {input(DType::I8, shape)}, {{"dtype", word(dtype)}})) {
        Shape scales(shape);
        scales.back() = 1;
        if (auto scaled = emit("mul", {*v, input(dtype, scales)}))
          if (auto small = emit("mul", {*scaled}, {}, Scalar{Scalar::Float, 0, 0.0078125}))
            return *small;
      }
    break;
  case 3: // a cast, or something that computes
    if (isFloat(dtype))
      if (auto v = rng.chance(50) ? emit("cast", {input(rng.chance(50) ? DType::BF16 : DType::F32, shape)},
                                         {{"dtype", word(dtype)}})
                   : isF8(dtype)  ? std::nullopt
                                  : emit("relu", {input(dtype, shape)}))
        return *v;
    break;
  default: break;
  }
  return input(dtype, shape);
}

/// Something before a product, which its kernel may compute as it multiplies: elementwise, with vectors and tensors of its shape.
Generator::Val Generator::before(Val v) {
  for (int64_t more = rng.range(1, 3); more > 0; --more) {
    std::optional<Val> next;
    Shape row(v.type.shape);
    row.back() = 1;
    switch (rng.below(6)) {
    case 0: next = emit("silu", {v}); break;
    case 1: next = emit("mul", {v, input(rng.chance(50) ? DType::F32 : v.type.dtype, row)}); break;
    case 2: next = emit("add", {v, input(v.type.dtype, {v.type.shape.back()})}); break;
    case 3: next = emit("mul", {v, input(v.type.dtype, v.type.shape)}); break;
    case 4: next = emit("div", {v, input(DType::F32, row)}); break;
    default: next = emit("relu", {v}); break;
    }
    if (next && next->type.dtype != v.type.dtype)
      next = emit("cast", {*next}, {{"dtype", word(v.type.dtype)}});
    if (next)
      v = *next;
  }
  return v;
}

/// Something behind a product.
Generator::Val Generator::behind(Val v) {
  for (int64_t more = rng.below(4); more > 0; --more) {
    std::optional<Val> next;
    const int64_t rank = v.type.rank();
    if (!isFloat(v.type.dtype) || isF8(v.type.dtype)) {
      if (rng.chance(50))
        next = emit("cast", {v}, {{"dtype", word(rng.chance(50) ? DType::F32 : DType::BF16)}});
      else if (!isFloat(v.type.dtype))
        next = emit("add", {v, input(v.type.dtype, v.type.shape)});
      if (next)
        v = *next;
      continue;
    }
    switch (rng.below(14)) {
    case 0: next = emit("gelu", {v}, {{"approximate", std::string(rng.chance(50) ? "tanh" : "none")}}); break;
    case 1: next = emit("mul", {v}, {}, Scalar{Scalar::Float, 0, 0.5}); break;
    case 2:
    case 3: next = emit("add", {v, input(rng.chance(80) ? v.type.dtype : DType::F32, v.type.shape)}); break;
    case 4:
      if (rank > 0)
        next = emit("add", {v, input(v.type.dtype, {v.type.shape.back()})});
      break;
    case 5:
      if (rank > 1) {
        Shape column(v.type.shape);
        column.back() = 1;
        next = emit("mul", {v, input(v.type.dtype, column)});
      }
      break;
    case 6: next = emit("silu", {v}); break;
    case 7: next = emit("cast", {v}, {{"dtype", word(rng.chance(50) ? DType::F32 : DType::BF16)}}); break;
    case 8:
      if (rank > 1) {
        Shape dims;
        for (int64_t d = 0; d < rank; ++d)
          dims.push_back(d);
        std::swap(dims[static_cast<size_t>(rng.below(rank))], dims[static_cast<size_t>(rng.below(rank))]);
        next = emit("permute", {v}, {{"dims", list(dims)}});
      }
      break;
    case 9: // heads
      if (rank > 0 && v.type.shape.back() % 4 == 0) {
        Shape split(v.type.shape);
        split.back() /= 4;
        split.push_back(4);
        next = emit("reshape", {v}, {{"shape", list(split)}});
      }
      break;
    case 10:
      if (rank > 0)
        next = emit("softmax", {v}, {{"dim", integer(rank - 1)}});
      break;
    case 11:
      if (rank > 0)
        next = emit("rms_norm", {v, input(v.type.dtype, {v.type.shape.back()})});
      break;
    case 12:
      if (rank > 0)
        next = emit(rng.chance(50) ? "sum" : "amax", {v},
                    {{"dims", list({rng.below(rank)})}, {"keepdim", flag(rng.chance(60))}});
      break;
    default: next = emit("mul", {v, v}); break;
    }
    if (next)
      v = *next;
  }
  return v;
}

std::optional<Generator::Val> Generator::product(std::optional<Val> left) {
  static const std::vector<DType> floats = {DType::F32, DType::F32, DType::BF16, DType::BF16, DType::F16};
  DType dtype = left ? left->type.dtype : rng.pick(floats);
  static const std::vector<DType> largeTypes = {DType::BF16, DType::BF16, DType::BF16,   DType::F16,
                                                DType::F16,  DType::I8,   DType::F8E4M3, DType::F8E4M3};
  if (!left && large)
    dtype = rng.pick(largeTypes);
  else if (!left && rng.chance(12))
    dtype = rng.chance(60) ? DType::I8 : DType::I32;
  if (!left && !large && rng.chance(5))
    dtype = DType::F8E4M3;
  DType other = dtype;
  if (isArithmeticFloat(dtype) && rng.chance(10))
    other = rng.pick(floats);
  std::map<std::string, AttrValue> attrs;
  const bool linear = rng.chance(45) && !isF8(dtype);
  Shape batch;
  for (int64_t more = rng.chance(40) ? rng.range(1, 2) : 0; more > 0; --more)
    batch.push_back(rng.range(1, 4));
  int64_t M = extent(), N = extent(), K = extent();
  if (left) {
    if (left->type.rank() == 0)
      return std::nullopt;
    batch.assign(left->type.shape.begin(), left->type.shape.end() - 1);
    K = left->type.shape.back();
    M = 1;
    if (!batch.empty()) {
      M = batch.back();
      batch.pop_back();
    }
  }
  auto work = [&] {
    int64_t n = std::max<int64_t>(M, 1) * std::max<int64_t>(N, 1) * std::max<int64_t>(K, 1);
    for (int64_t e : batch)
      n *= std::max<int64_t>(e, 1);
    return n;
  };
  while (work() > budget && N > 1)
    N /= 2;
  while (!left && work() > budget && (M > 1 || K > 1))
    (M > K ? M : K) /= 2;
  if (work() > budget)
    return std::nullopt;
  budget -= work();
  const bool narrow = dtypeSize(dtype) == 1;
  const bool transposeA = !linear && !left && rng.chance(narrow ? 8 : 25),
             transposeB = !linear && rng.chance(narrow ? 80 : 40);
  if (!left && isF8(dtype) && rng.chance(60))
    return scaled(batch, M, N, K, transposeA, transposeB);
  if (!left) {
    Shape shape(batch);
    shape.push_back(transposeA ? K : M);
    shape.push_back(transposeA ? M : K);
    if (rng.chance(25))
      for (int64_t &e : batch)
        if (!linear && rng.chance(60))
          shape[static_cast<size_t>(&e - batch.data())] = 1;
    if (M == 1 && rng.chance(50) && !transposeA)
      shape.erase(shape.end() - 2);
    if (M == 1 && shape.size() == 1)
      batch.clear();
    left = operand(dtype, shape);
    if (large && !transposeA && isArithmeticFloat(dtype) && dtypeSize(dtype) == 2 && left->type.rank() > 1 &&
        rng.chance(40))
      left = before(*left);
  }
  auto right = [&]() -> Val {
    if (linear)
      return operand(other, {N, K});
    Shape shape;
    if (rng.chance(50))
      shape = batch;
    for (int64_t &e : shape)
      if (rng.chance(20))
        e = 1;
    if (left->type.rank() == 1)
      shape.clear();
    shape.push_back(transposeB ? N : K);
    shape.push_back(transposeB ? K : N);
    if (N == 1 && shape.size() == 2 && rng.chance(30) && !transposeB)
      shape.pop_back();
    return operand(other, shape);
  };
  if (transposeA)
    attrs["transpose_a"] = flag(true);
  if (transposeB)
    attrs["transpose_b"] = flag(true);
  auto once = [&]() -> std::optional<Val> {
    if (linear)
      return rng.chance(60)
                 ? emit("linear", {*left, right(), input(isArithmeticFloat(other) ? other : DType::I32, {N})})
                 : emit("linear", {*left, right()});
    auto all = attrs;
    if (isF8(dtype) || rng.chance(10))
      all["out_dtype"] = word(isFloat(dtype) ? (rng.chance(50) ? DType::F32 : DType::BF16) : DType::I64);
    return emit("matmul", {*left, right()}, all);
  };
  std::optional<Val> r = once();
  // The gate of a gated unit: another product of the same operand.
  if (r && rng.chance(20) && budget > 0)
    if (std::optional<Val> gate = once(); gate && isArithmeticFloat(gate->type.dtype))
      if (std::optional<Val> act = emit("silu", {*gate}))
        if (std::optional<Val> both = emit("mul", {*act, *r}))
          r = both;
  return r;
}

/// A product of quantised operands, whose scales are inputs.
std::optional<Generator::Val> Generator::scaled(Shape batch, int64_t M, int64_t N, int64_t K, bool transposeA,
                                                bool transposeB) {
  Shape a(batch), b;
  if (rng.chance(50))
    b = batch;
  a.insert(a.end(), {transposeA ? K : M, transposeA ? M : K});
  b.insert(b.end(), {transposeB ? N : K, transposeB ? K : N});
  std::map<std::string, AttrValue> attrs;
  auto scales = [&](const Shape &of, bool left, bool alongK) {
    const std::string suffix = left ? "_a" : "_b";
    auto say = [&](const char *granularity) { attrs["granularity" + suffix] = std::string(granularity); };
    Shape s(of);
    switch (rng.below(4)) {
    case 0: say("tensor"); return Shape();
    case 1:
      if (!alongK)
        break;
      say("token");
      s.pop_back();
      return s;
    default: break;
    }
    Shape block = left || rng.chance(30) ? Shape{1, 128} : Shape{128, 128};
    if (rng.chance(20))
      block = rng.chance(50) ? Shape{64, 128} : Shape{1, 32};
    say("block");
    attrs["block" + suffix] = list(block);
    for (size_t d = 0; d < 2; ++d) {
      int64_t &e = s[s.size() - 2 + d];
      e = (e + block[d] - 1) / block[d];
    }
    return s;
  };
  Shape scalesA = scales(a, true, !transposeA), scalesB = scales(b, false, transposeB);
  if (transposeA)
    attrs["transpose_a"] = flag(true);
  if (transposeB)
    attrs["transpose_b"] = flag(true);
  attrs["out_dtype"] = word(rng.chance(75) ? DType::BF16 : DType::F32);
  if (rng.chance(20))
    attrs["fast_accumulate"] = flag(true);
  DType other = rng.chance(70) ? DType::F8E4M3 : DType::F8E5M2;
  return emit("scaled_matmul",
              {input(DType::F8E4M3, a), input(other, b), input(DType::F32, scalesA), input(DType::F32, scalesB)},
              attrs);
}

std::optional<Generator::Val> Generator::attention() {
  static const std::vector<DType> floats = {DType::F32, DType::BF16, DType::F16};
  DType dtype = rng.pick(floats);
  int64_t L = rng.range(1, 40), S = rng.range(1, 40), E = rng.pick(std::vector<int64_t>{1, 8, 16, 20, 64}), heads = 4;
  Shape q{rng.range(1, 2), heads, L, E}, k{q[0], heads, S, E}, v{q[0], heads, S, rng.chance(50) ? E : 24};
  std::vector<Val> operands{operand(dtype, q), operand(dtype, k), operand(dtype, v)};
  std::map<std::string, AttrValue> attrs;
  if (rng.chance(40))
    operands.push_back(
        input(rng.chance(50) ? DType::Bool : DType::F32, rng.chance(50) ? Shape{L, S} : Shape{q[0], 1, 1, S}));
  if (rng.chance(40))
    attrs["causal"] = flag(true);
  if (rng.chance(30))
    attrs["scale"] = Scalar{Scalar::Float, 0, 0.25};
  return emit("scaled_dot_product_attention", operands, attrs);
}

GraphSpec Generator::run() {
  spec.name = "products";
  spec.strict = rng.chance(30);
  std::vector<std::string> results;
  std::optional<Val> v;
  for (int64_t more = rng.range(1, 3); more > 0; --more) {
    std::optional<Val> r = rng.chance(10)
                               ? attention()
                               : product(v && isArithmeticFloat(v->type.dtype) && rng.chance(80) ? v : std::nullopt);
    if (!r)
      continue;
    if (rng.chance(15))
      results.push_back(r->name);
    v = behind(*r);
    results.push_back(v->name);
  }
  for (const NodeSpec &n : spec.nodes)
    if ((v && n.outputs[0] == v->name) ||
        (std::find(results.begin(), results.end(), n.outputs[0]) != results.end() && rng.chance(40)))
      spec.outputs.push_back(n.outputs[0]);
  if (spec.outputs.empty())
    spec.outputs.push_back(spec.nodes.empty() ? input(DType::F32, {1}).name : spec.nodes.back().outputs[0]);
  return std::move(spec);
}

/// As they are, or dequantised.
std::optional<Generator::Val> Generator::weights(DType dtype, int64_t n, int64_t k) {
  const int64_t manner = rng.below(10);
  if (manner < 2)
    return input(dtype, {n, k});
  const DType narrow = rng.chance(70) ? DType::I8 : rng.chance(60) ? DType::F8E4M3 : DType::F8E5M2;
  Val q = input(narrow, {n, k});
  if (rng.chance(15)) { // a part of larger rows, of which vectors may be a part
    if (auto part = emit("slice", {input(narrow, {n, (k + 47) / 16 * 16})},
                         {{"dim", integer(1)}, {"start", integer(16)}, {"end", integer(k + 16)}}))
      q = *part;
  }
  std::optional<Val> wide;
  if (manner == 2)
    return emit("cast", {q}, {{"dtype", word(dtype)}});
  if (manner == 3) {
    wide = emit("cast", {q}, {{"dtype", word(dtype)}});
    return wide ? emit("mul", {*wide, input(dtype, {n, 1})}) : wide;
  }
  Shape scale{n};
  Attributes attrs{{"dtype", word(dtype)}, {"granularity", std::string("axis")}, {"axis", integer(0)}};
  if (manner == 4) {
    scale = {};
    attrs = {{"dtype", word(dtype)}, {"granularity", std::string("tensor")}};
  } else if (manner == 5 && n % 8 == 0 && k % 8 == 0) {
    scale = {n / 8, k / 8};
    attrs = {{"dtype", word(dtype)}, {"granularity", std::string("block")}, {"block", list({8, 8})}};
  }
  std::vector<Val> operands{q, input(DType::F32, scale)};
  if (manner == 6)
    operands.push_back(input(DType::I32, scale));
  return emit("dequantize", operands, attrs);
}

GraphSpec Generator::runFew(bool more) {
  spec.name = more ? "weights" : "few";
  spec.strict = rng.chance(more ? 5 : 15);
  constexpr int64_t kBudget = 60000000;
  static const std::vector<int64_t> wide = {264, 1000, 1280, 2056, 3001, 4104, 5000, 5504, 8192, 11008},
                                    deep = {256, 416, 528, 1040, 1296, 2064, 3000, 3004, 4096, 4112};
  int64_t m = rng.chance(25) ? 1 : rng.range(1, 64), n = rng.pick(wide), k = rng.pick(deep);
  const bool alongN = !more && rng.chance(30); // N is the weights' contiguous dimension
  if (alongN && rng.chance(70)) {              // deep, where such weights stream
    m = rng.range(1, 3);
    n = rng.pick<int64_t>({1032, 2056, 2072, 3000});
    k = rng.pick<int64_t>({11008, 12312, 16400});
  }
  if (more) { // wide enough that warpgroups are worth it
    static const std::vector<int64_t> some = {128, 176, 200, 256, 352, 512}, along = {80, 256, 416, 528, 1040, 2080};
    m = rng.chance(40) ? rng.pick(some) : rng.range(65, large ? 2100 : 600);
    n = rng.chance(85) ? 8 * rng.range(250, 1400) : n;
    k = rng.pick(along);
    const int64_t most = (large ? 20 : 3) * kBudget;
    while (m * n * k > most)
      (m > 130 ? m : k % 32 == 0 && k > 256 ? k : n) /= 2;
    n -= n > 16 && rng.chance(90) ? n % 16 : 0; // rows of results at multiples of 16 bytes
  }
  while (!more && m * n * k > (alongN ? 3 : 1) * kBudget)
    (m > 8 && rng.chance(50) ? m : n) /= 2;
  const DType dtype = rng.chance(70) ? DType::BF16 : DType::F16;
  Val left = input(dtype, {m, k});
  /// Whole, or columns of a larger matrix.
  auto columns = [&] {
    const int64_t start = rng.chance(30) ? 8 : 0;
    Val whole = input(dtype, {k, n + 2 * start});
    return start
               ? *emit("slice", {whole}, {{"dim", integer(1)}, {"start", integer(start)}, {"end", integer(start + n)}})
               : whole;
  };
  std::optional<Val> out;
  for (int64_t products = rng.chance(20) ? 2 : 1; products > 0; --products) {
    std::optional<Val> w = alongN ? columns() : weights(dtype, n, k);
    std::optional<Val> y = !w               ? w
                           : alongN         ? emit("matmul", {left, *w})
                           : rng.chance(30) ? emit("linear", {left, *w, input(dtype, {n})})
                                            : emit("linear", {left, *w});
    if (y && out) {
      std::optional<Val> gate = emit("silu", {*out});
      y = gate ? emit("mul", {*gate, *y}) : y;
    }
    out = y ? y : out;
  }
  // Of more rows what is elementwise in tiles, by columns and by rows; reductions of such sums are told apart by roundings alone.
  if (out && more) {
    if (rng.chance(40))
      out = emit("add", {*out, input(dtype, {m, n})});
    if (out && rng.chance(40))
      out = emit(rng.chance(50) ? "silu" : "relu", {*out});
    if (out && rng.chance(25))
      out = emit("mul", {*out, input(dtype, {m, 1})});
    if (out && rng.chance(20))
      out = emit("cast", {*out}, {{"dtype", word(DType::F32)}});
  } else if (out && rng.chance(40)) {
    out = behind(*out);
  }
  spec.outputs.push_back(out ? out->name : left.name);
  return std::move(spec);
}

/// What attention has around it: heads put beside each other before a product, its columns taken apart into heads behind it, and
/// gradients of weights, whose K is batches and places in a sequence.
GraphSpec Generator::runHeads() {
  spec.name = "heads";
  const int64_t most = large ? 6000000000 : 300000000;
  static const std::vector<int64_t> lengths = {100, 128, 130, 256, 384, 512}, longer = {128, 256, 500, 512, 1000, 1024},
                                    widths = {32, 48, 64, 64, 64, 96, 128, 128, 128},
                                    others = {64, 136, 192, 256, 320, 512, 1000}, wider = {512, 1000, 1024, 2048, 4096};
  const int64_t B = rng.pick<int64_t>({1, 2, 3, 4, 6}), H = rng.pick<int64_t>({2, 3, 4, 8, 16}), D = rng.pick(widths);
  int64_t S = rng.pick(large ? longer : lengths), N = rng.pick(large ? wider : others);
  while (B * S * H * D * N > most)
    (S > 128 ? S : N) /= 2;
  const DType dtype = rng.chance(70) ? DType::BF16 : DType::F16;
  const Val heads = input(dtype, {B, H, S, D});
  auto layout = [&](const Val &v, const Shape &dims, const Shape &shape) {
    return *emit("reshape", {*emit("permute", {v}, {{"dims", list(dims)}})}, {{"shape", list(shape)}});
  };
  const int64_t manner = rng.below(6);
  Val out;
  if (manner == 0) { // [H*D, B*S] by [B*S, N]
    out = *emit("matmul", {layout(heads, {1, 3, 0, 2}, {H * D, B * S}), input(dtype, {B * S, N})});
  } else if (manner == 1) { // the right operand's K in parts
    const bool transposed = rng.chance(50);
    Val right = transposed ? layout(input(dtype, {H, N, D}), {1, 0, 2}, {N, H * D})
                           : layout(input(dtype, {H, N, D}), {0, 2, 1}, {H * D, N});
    out = *emit("matmul", {input(dtype, {B * S, H * D}), right}, {{"transpose_b", flag(transposed)}});
  } else if (manner == 5) { // both halves of a gate from one matrix, or a part of the columns
    const Val whole = *emit("linear", {input(dtype, {B * S, H * D}), input(dtype, {2 * N, H * D})});
    auto columns = [&](int64_t start, int64_t n) {
      return *emit("slice", {whole}, {{"dim", integer(1)}, {"start", integer(start)}, {"end", integer(start + n)}});
    };
    out = rng.chance(60) ? *emit("mul", {*emit("silu", {columns(0, N)}), columns(N, N)})
                         : columns(rng.range(0, N / 2), rng.range(1, N));
  } else {
    // Of a sequence's heads, or of what has none; to rows, or to heads again.
    const bool flat = rng.chance(50);
    Val left = manner == 2 ? input(dtype, flat ? Shape{B * S, H * D} : Shape{B, S, H * D})
                           : layout(heads, {0, 2, 1, 3}, flat ? Shape{B * S, H * D} : Shape{B, S, H * D});
    const int64_t n = manner == 3 ? N : H * D;
    std::vector<Val> operands{left, input(dtype, {n, H * D})};
    if (rng.chance(40))
      operands.push_back(input(dtype, {n}));
    out = *emit("linear", operands);
    if (rng.chance(40))
      out = *emit("add", {out, input(dtype, out.type.shape)});
    if (rng.chance(40))
      out = *emit("silu", {out});
    if (manner != 3)
      out = *emit("permute", {*emit("reshape", {out}, {{"shape", list({B, S, H, D})}})},
                  {{"dims", rng.chance(80) ? list({0, 2, 1, 3}) : list({2, 0, 1, 3})}});
  }
  if (rng.chance(30))
    out = *emit("mul", {out, input(dtype, out.type.shape)});
  if (rng.chance(20))
    out = *emit("cast", {out}, {{"dtype", word(DType::F32)}});
  spec.outputs.push_back(out.name);
  return std::move(spec);
}

/// Tame numbers; now and then, where `wild`, what is not finite. (Behind one product it can be told what must come of it; in
/// another one it meets numbers of which rounding decides the sign.)
HostTensor data(Rng &rng, const TensorType &type, bool wild) {
  HostTensor t{type, {}};
  t.data.resize(static_cast<size_t>(type.bytes()));
  const int64_t manner = rng.below(12);
  for (int64_t i = 0; i < type.elements(); ++i) {
    double v = rng.unit() * 2 - 1;
    if (!isFloat(type.dtype))
      v = type.dtype == DType::Bool ? static_cast<double>(rng.below(2)) : static_cast<double>(rng.range(-128, 127));
    if (manner == 0) // exact sums
      v = type.dtype == DType::Bool ? 1 : static_cast<double>(rng.range(-3, 3));
    if (manner == 1 && wild && isArithmeticFloat(type.dtype) && rng.below(1000) < 2)
      v = rng.chance(40) ? NAN : rng.chance(50) ? INFINITY : -INFINITY;
    storeElement(t.data.data(), type.dtype, i, v);
  }
  return t;
}

/// The neighbours of 16-bit floats, above and below in turn: what a graph makes of one rounding. Within attention that is all that
/// tells, as the interpreter rounds none of its probabilities.
std::vector<HostTensor> besideThem(std::vector<HostTensor> tensors) {
  for (HostTensor &t : tensors)
    for (int64_t i = 0; (t.type.dtype == DType::F16 || t.type.dtype == DType::BF16) && i < t.type.elements(); ++i) {
      const auto v = static_cast<float>(loadElement(t.data.data(), t.type.dtype, i));
      storeElement(t.data.data(), t.type.dtype, i, stepped(t.type.dtype, v, i % 2 ? 1 : -1));
    }
  return tensors;
}

} // namespace

int main(int argc, char **argv) {
  SeedOptions options;
  bool large = false, few = false, more = false, segments = false, heads = false;
  for (int i = 1; i < argc; ++i) {
    std::string a = argv[i];
    if (options.take(argc, argv, i))
      continue;
    if (a == "--large") {
      large = true;
    } else if (a == "--few") {
      few = true;
    } else if (a == "--weights") {
      few = more = true;
    } else if (a == "--segments") {
      segments = true;
    } else if (a == "--heads") {
      heads = true;
    } else {
      std::fprintf(stderr, "usage: numeric_gemm_test [--target cpu|cuda] [--seeds A:B] [--large] [--few] [--weights] "
                           "[--heads] [--segments] [--verify] [--print]\n");
      return 1;
    }
  }
  Result<std::unique_ptr<Device>> device = Device::create(options.target);
  if (!device) {
    std::fprintf(stderr, "%s\n", device.error().str().c_str());
    return 4;
  }
  int compared = 0, warpgroups = 0, lefts = 0, widened = 0, streams = 0, reducing = 0;
  bool hasThem = false, hasStreams = false; // the machine; it says why where it does not use them
  bool exact = false;                       // the graph at hand
  auto generate = [&](uint64_t seed) {
    if (heads)
      return Generator(seed, large).runHeads();
    if (!segments)
      return few ? Generator(seed, large).runFew(more) : Generator(seed, large).run();
    SegmentGraph made = segmentGraph(seed, large);
    exact = made.exact;
    return made.spec;
  };
  const int failed = countFailures(options, generate, [&](uint64_t seed, const GraphSpec &spec) -> std::string {
    Result<Graph> graph = resolve(spec);
    if (!graph)
      return {}; // an extreme of nothing
    Rng rng(seed * 77 + 5);
    std::vector<HostTensor> inputs;
    int64_t products = 0;
    for (const Node &n : graph->nodes)
      products += n.op == OpKind::Attention
                      ? 2
                      : n.op == OpKind::Matmul || n.op == OpKind::Linear || n.op == OpKind::ScaledMatmul;
    // A scale that is not finite multiplies a sum where it should its terms. Activations of weights that have scales are the first input.
    for (ValueId v : graph->inputs)
      inputs.push_back(
          exact ? segmentData(rng, *graph, v)
                : data(rng, graph->type(v), products == 1 && !segments && (!few || (more && v == graph->inputs[0]))));
    Result<std::unique_ptr<Module>> module = (*device)->compile(spec);
    if (!module)
      return "does not compile: " + module.error().str();
    Result<std::vector<HostTensor>> want = interpret(*graph, inputs, {});
    if (!want)
      return "interpreter: " + want.error().str();
    Result<std::vector<HostTensor>> kept =
        interpret(*graph, inputs, {}, {}, graph->strict ? Intermediates::Rounded : Intermediates::KeepF32);
    if (!kept)
      return "interpreter: " + kept.error().str();
    const bool telling = exact || isFiniteAlike(*want, *kept);
    const DType coarsest = coarsestType(*graph);
    Result<std::vector<HostTensor>> nudged = coarsest == DType::F32
                                                 ? interpret(*graph, inputs, {}, {}, Intermediates::Nudged)
                                                 : interpret(*graph, besideThem(inputs), {});
    if (!nudged)
      return "interpreter: " + nudged.error().str();
    const bool warpgroup = (*device)->record.find("kernel 'wgmma'") != std::string::npos,
               stream = (*device)->record.find("kernel 'stream'") != std::string::npos ||
                        (*device)->record.find("kernel 'direct'") != std::string::npos,
               other = warpgroup || stream;
    warpgroups += warpgroup;
    lefts += (*device)->record.find("is computed in registers as it is multiplied") != std::string::npos;
    widened += (*device)->record.find("in the registers that the tensor cores read") != std::string::npos;
    reducing += (*device)->record.find("are reduced within tiles") != std::string::npos;
    streams += stream;
    hasStreams |= (*device)->record.find("streamed operand") != std::string::npos || stream;
    hasThem |= (*device)->record.find("warpgroup products") != std::string::npos;
    std::vector<HostTensor> last[2];
    for (bool offset : {false, true, false}) {
      Result<std::vector<HostTensor>> got = (*device)->run(**module, inputs, {}, offset);
      if (!got)
        return "does not run: " + got.error().str();
      const std::vector<HostTensor> &before = last[other && offset];
      std::optional<std::string> verified; // one of the outputs may ask
      if (options.verify && !offset)
        if (verified = verifyResults(*graph, inputs, {}, (*device)->record, *got); !verified->empty())
          return *verified;
      for (size_t o = 0; o < got->size(); ++o) {
        std::string text = !telling   ? std::string()
                           : segments ? compareSegments((*want)[o], (*got)[o], exact)
                                      : compareSums((*want)[o], (*kept)[o], (*got)[o], coarsest, &(*nudged)[o]);
        if (!text.empty() && !exact) {
          if (!verified)
            verified = verifyResults(*graph, inputs, {}, (*device)->record, *got);
          text = verified->empty() ? std::string() : text + "; " + *verified;
        }
        if (text.empty() && !before.empty() &&
            std::memcmp(before[o].data.data(), (*got)[o].data.data(), before[o].data.size()) != 0)
          text = "differs from run to run";
        if (!text.empty())
          return "output '" + spec.outputs[o] + "' (" + str((*got)[o].type) + (offset ? ", unaligned" : "") +
                 "): " + text;
      }
      last[other && offset] = *std::move(got);
    }
    compared += telling;
    return {};
  });
  std::printf(
      "%s: products, seeds %llu:%llu, %d compared, %d by warpgroup products, %d of operands computed for them, %d "
      "of weights widened, %d streamed, %d with segments, %d failed\n",
      options.target.c_str(), static_cast<unsigned long long>(options.first),
      static_cast<unsigned long long>(options.end), compared, warpgroups, lefts, widened, streams, reducing, failed);
  const bool idle = (large && hasThem && warpgroups == 0) || (few && !more && hasStreams && streams == 0) ||
                    (more && hasThem && widened == 0) || (segments && reducing == 0);
  return failed || idle || compared * 2 < static_cast<int>(options.end - options.first) ? 4 : 0;
}
