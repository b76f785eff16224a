// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/numeric/support/AssembledGraphs.h"
#include "tests/numeric/support/GraphMaker.h"

#include <algorithm>

namespace rl::numeric {

namespace {

class Generator : GraphMaker {
public:
  explicit Generator(uint64_t seed) : GraphMaker(seed), kind(seed % 8) {}
  GraphSpec run();

private:
  /// Of a product: where its operands come from is told by these.
  struct Product {
    int64_t batch = 0, m = 1, n = 1, k = 1; ///< batch 0: no such dimension
    DType dtype = DType::BF16;
    bool alongN = false; ///< rows of the weights are K
    int64_t manner = 0;  ///< of the weights
  };
  int64_t extent(int64_t least, int64_t most);
  Val left(const Product &);
  Val before(Val v);
  Val weights(const Product &);
  Val product(const Product &, const Val &left);
  Val scaled(const Product &);
  Val unary(Val v);
  Val behind(Val v, int64_t most);
  void quantise(const Val &v);
  void products();
  void scaledProducts();
  void wholeProducts();
  void rows();
  Val reduced(Val v, const Val &whole);
  void pointwise();
  Val cast(const Val &v, DType to) {
    return v.type.dtype == to ? v : emit("cast", {v}, {{"dtype", word(to)}}).value_or(v);
  }
  void result(const Val &v) {
    if (std::find(spec.outputs.begin(), spec.outputs.end(), v.name) == spec.outputs.end())
      spec.outputs.push_back(v.name);
  }
  Scalar number(double v) { return {Scalar::Float, 0, v}; }

  const uint64_t kind;
};

/// Of any size between the two, small ones as often as large ones; mostly round, at times just beside that, at times anything.
int64_t Generator::extent(int64_t least, int64_t most) {
  int64_t v = least;
  while (v < most && rng.chance(88))
    v *= 2;
  v = std::clamp(v + rng.below(v + 1), least, most);
  const int64_t manner = rng.below(10), to = manner < 4 ? 64 : manner < 6 ? 16 : manner < 8 ? 8 : 1;
  v = v / to * to + (manner == 9 ? rng.range(-1, 1) : 0);
  return std::clamp(v, least, most);
}

Generator::Val Generator::before(Val v) {
  const DType own = v.type.dtype;
  const int64_t rank = v.type.rank();
  Shape column(v.type.shape);
  column.back() = 1;
  for (int64_t more = rng.range(1, 2); more > 0; --more) {
    std::optional<Val> next;
    switch (rng.below(7)) {
    case 0: next = emit("silu", {v}); break;
    case 1: next = emit("mul", {v, input(own, v.type.shape)}); break;
    case 2: next = emit("mul", {v, input(own, {v.type.shape.back()})}); break;
    case 3: next = emit("mul", {v, input(DType::F32, column)}); break;
    case 4: next = emit("rms_norm", {v, input(own, {v.type.shape.back()})}); break;
    case 5: next = emit("softmax", {v}, {{"dim", integer(rank - 1)}}); break;
    default: next = emit("add", {v, input(own, v.type.shape)}); break;
    }
    if (next)
      v = cast(*next, own);
  }
  return v;
}

Generator::Val Generator::left(const Product &p) {
  Shape shape{p.m, p.k};
  if (p.batch)
    shape.insert(shape.begin(), p.batch);
  if (!isArithmeticFloat(p.dtype))
    return input(p.dtype, shape);
  switch (rng.below(12)) {
  case 0: return cast(input(DType::F32, shape), p.dtype);
  case 1: return cast(input(rng.chance(70) ? DType::F8E4M3 : DType::F8E5M2, shape), p.dtype);
  case 2:
  case 3: return before(input(p.dtype, shape));
  case 4: { // a part of larger rows
    Shape from(shape);
    from.back() += 16;
    if (auto part = emit("slice", {input(p.dtype, from)},
                         {{"dim", integer(p.batch ? 2 : 1)}, {"start", integer(8)}, {"end", integer(8 + p.k)}}))
      return *part;
    break;
  }
  default: break;
  }
  return input(p.dtype, shape);
}

/// As they are; of 8 bits, cast or dequantised; a part of a larger matrix.
Generator::Val Generator::weights(const Product &p) {
  Shape shape = p.alongN ? Shape{p.k, p.n} : Shape{p.n, p.k};
  if (p.batch)
    shape.insert(shape.begin(), p.batch);
  if (!isArithmeticFloat(p.dtype) || p.manner < 4)
    return rng.chance(50) ? parameter(p.dtype, shape) : input(p.dtype, shape);
  const DType narrow = rng.chance(50) ? DType::I8 : rng.chance(70) ? DType::F8E4M3 : DType::F8E5M2;
  const Val q = p.manner == 9 ? input(p.dtype, shape) : input(narrow, shape);
  const bool pair = shape.size() == 2;
  Attributes attrs{{"dtype", word(p.dtype)}};
  Shape scale;
  switch (p.manner) {
  case 4: return cast(q, p.dtype);
  case 5: {
    const Val wide = cast(q, p.dtype);
    return emit("mul", {wide, input(p.dtype, {p.alongN ? p.n : 1})}).value_or(wide);
  }
  case 6:
    attrs.insert({{"granularity", std::string("axis")}, {"axis", integer(p.alongN ? 1 : 0)}});
    scale = {p.n};
    break;
  case 7: attrs.insert({"granularity", std::string("tensor")}); break;
  case 8: {
    const int64_t r = rng.chance(50) ? 128 : 1, c = rng.chance(70) ? 128 : 32;
    attrs.insert({{"granularity", std::string("block")}, {"block", list({r, c})}});
    scale = {(shape[0] + r - 1) / r, (shape[1] + c - 1) / c};
    break;
  }
  default: { // columns, or rows, of a larger one
    Shape from(shape);
    from.back() += 24;
    std::optional<Val> part = emit("slice", {input(p.dtype, from)},
                                   {{"dim", integer(static_cast<int64_t>(shape.size()) - 1)},
                                    {"start", integer(8)},
                                    {"end", integer(8 + shape.back())}});
    return part.value_or(q);
  }
  }
  if (!pair)
    return cast(q, p.dtype);
  std::vector<Val> operands{q, input(DType::F32, scale)};
  if (narrow == DType::I8 && rng.chance(30))
    operands.push_back(input(DType::I32, scale));
  return emit("dequantize", operands, attrs).value_or(cast(q, p.dtype));
}

Generator::Val Generator::product(const Product &p, const Val &left) {
  const Val w = weights(p);
  Attributes attrs{{"transpose_b", flag(!p.alongN)}};
  if (isF8(p.dtype))
    attrs.insert({"out_dtype", word(rng.chance(70) ? DType::BF16 : DType::F32)});
  std::optional<Val> y;
  if (!p.alongN && !p.batch && isArithmeticFloat(p.dtype) && rng.chance(70))
    y = rng.chance(50) ? emit("linear", {left, w, input(p.dtype, {p.n})}) : emit("linear", {left, w});
  else
    y = emit("matmul", {left, w}, attrs);
  return y.value_or(left);
}

/// Of operands of 8 bits and their scales.
Generator::Val Generator::scaled(const Product &p) {
  Attributes attrs{{"transpose_b", flag(true)}, {"out_dtype", word(rng.chance(75) ? DType::BF16 : DType::F32)}};
  const Shape a{p.m, p.k}, b{p.n, p.k};
  auto scales = [&](const Shape &of, const std::string &side, bool left) -> Shape {
    const int64_t manner = rng.below(4);
    if (manner == 0) {
      attrs["granularity" + side] = std::string("tensor");
      return {};
    }
    if (manner < 3) {
      attrs["granularity" + side] = std::string("token");
      return {of[0]};
    }
    const int64_t rows = left || rng.chance(30) ? 1 : 128;
    attrs["granularity" + side] = std::string("block");
    attrs["block" + side] = list({rows, 128});
    return {(of[0] + rows - 1) / rows, (of[1] + 127) / 128};
  };
  const Shape sa = scales(a, "_a", true), sb = scales(b, "_b", false);
  if (rng.chance(20))
    attrs["fast_accumulate"] = flag(true);
  const DType right = p.dtype == DType::I8 ? DType::I8 : rng.chance(80) ? DType::F8E4M3 : DType::F8E5M2;
  const Val x = input(p.dtype, a);
  return emit("scaled_matmul", {x, input(right, b), input(DType::F32, sa), input(DType::F32, sb)}, attrs).value_or(x);
}

Generator::Val Generator::unary(Val v) {
  static const std::vector<std::string> ops = {"silu", "silu",     "sigmoid", "tanh", "relu",   "exp",
                                               "erf",  "softplus", "rsqrt",   "sin",  "square", "log1p"};
  if (rng.chance(30))
    return emit("gelu", {v}, {{"approximate", std::string(rng.chance(50) ? "tanh" : "none")}}).value_or(v);
  return emit(rng.pick(ops), {v}).value_or(v);
}

Generator::Val Generator::behind(Val v, int64_t most) {
  for (int64_t more = rng.below(most + 1); more > 0; --more) {
    if (!isArithmeticFloat(v.type.dtype)) {
      v = cast(v, rng.chance(50) ? DType::F32 : DType::BF16);
      continue;
    }
    if (rng.chance(12))
      result(v);
    const DType own = v.type.dtype, other = rng.chance(75) ? own : DType::F32;
    Shape column(v.type.shape);
    column.back() = 1;
    std::optional<Val> next;
    switch (rng.below(9)) {
    case 0:
    case 1:
    case 2: next = unary(v); break;
    case 3: next = emit(rng.chance(60) ? "add" : "mul", {v, input(other, {v.type.shape.back()})}); break;
    case 4: next = emit("mul", {v, input(other, column)}); break;
    case 5: next = emit("mul", {v}, {}, number(0.125)); break;
    case 6: next = emit("div", {v, input(other, v.type.shape)}); break;
    default: next = emit(rng.chance(70) ? "add" : "mul", {v, input(other, v.type.shape)}); break;
    }
    v = next.value_or(v);
    if (rng.chance(10))
      v = cast(v, rng.pick<DType>({DType::F32, DType::BF16, DType::F16}));
  }
  return v;
}

/// The last of it: numbers of 8 bits with scales, or cast.
void Generator::quantise(const Val &v) {
  if (!isArithmeticFloat(v.type.dtype) || v.type.rank() < 2)
    return result(v);
  const DType narrow = rng.pick<DType>({DType::F8E4M3, DType::F8E4M3, DType::I8, DType::F8E5M2});
  if (rng.chance(25))
    return result(cast(v, narrow));
  Attributes attrs{{"dtype", word(narrow)}};
  size_t results = 2;
  if (rng.chance(40)) {
    attrs.insert({"granularity", std::string("token")});
  } else {
    attrs.insert({{"granularity", std::string("block")}, {"block", list({1, int64_t(16) << rng.below(4)})}});
    if (rng.chance(25))
      attrs.insert({"scale_dtype", word(DType::F8E8M0)});
  }
  if (narrow == DType::I8 && !attrs.contains("scale_dtype") && rng.chance(40)) {
    attrs.insert({"scheme", std::string("asymmetric")});
    results = 3;
  }
  std::vector<Val> made = emitAll("quantize", {v}, attrs, results);
  for (const Val &r : made)
    result(r);
  if (made.empty())
    result(v);
}

void Generator::products() {
  static const std::vector<DType> types = {DType::BF16, DType::BF16, DType::BF16, DType::F16, DType::F16, DType::F32};
  Product p;
  p.dtype = rng.chance(6) ? DType::I8 : rng.chance(3) ? DType::F8E4M3 : rng.pick(types);
  // One row, few of them, more than are streamed, many.
  const int64_t size = kind < 3 ? static_cast<int64_t>(kind) : 3;
  p.m = size == 0   ? (rng.chance(60) ? 1 : rng.range(2, 8))
        : size == 1 ? rng.range(2, 64)
                    : extent(65, size == 2 ? 600 : 8192);
  const bool stream = size < 2 && rng.chance(75); // as many weights as are worth it
  p.n = extent(stream ? 1024 : 8, stream ? 32768 : 16384);
  p.k = extent(stream ? 512 : 16, stream && rng.chance(30) ? 40000 : 16384);
  p.alongN = rng.chance(20);
  p.manner = rng.below(size == 3 ? 5 : 10);
  if (rng.chance(10))
    p.batch = rng.pick<int64_t>({2, 3, 8, 32});
  const Val x = left(p);
  Val y = product(p, x);
  if (rng.chance(40)) {
    const Val gate = unary(y), up = product(p, x);
    y = emit("mul", {gate, up}).value_or(gate);
  }
  y = behind(y, rng.chance(50) ? 1 : 4);
  if (rng.chance(12) && y.type.rank() == 2 && isArithmeticFloat(y.type.dtype))
    y = reduced(y, y);
  if (rng.chance(25))
    quantise(y);
  else
    result(y);
  if (!spec.parameters.empty() && rng.chance(35)) {
    spec.precision.mode = rng.pick<std::string>({"fp8", "int8", "auto"});
    spec.precision.tolerance = 0.1;
  }
}

void Generator::scaledProducts() {
  Product p;
  p.dtype = rng.chance(25) ? DType::I8 : DType::F8E4M3;
  p.m = rng.chance(30) ? rng.range(1, 64) : extent(65, 8192);
  p.n = extent(64, 12288);
  p.k = extent(64, 12288);
  Val y = scaled(p);
  if (rng.chance(30)) {
    const Val gate = unary(y);
    y = emit("mul", {gate, scaled(p)}).value_or(gate);
  }
  y = behind(y, 3);
  if (rng.chance(40))
    quantise(y);
  else
    result(y);
}

/// What is around attention, and gradients.
void Generator::wholeProducts() {
  const DType dtype = rng.chance(70) ? DType::BF16 : DType::F16;
  const int64_t manner = rng.below(3);
  if (manner == 0) {
    const int64_t B = rng.range(1, 4), H = rng.pick<int64_t>({1, 4, 16, 32}), D = rng.pick<int64_t>({32, 64, 80, 128}),
                  L = rng.chance(30) ? 1 : extent(16, 2048), S = extent(16, 4096);
    std::vector<Val> operands{input(dtype, {B, H, L, D}), input(dtype, {B, H, S, D}), input(dtype, {B, H, S, D})};
    Attributes attrs;
    if (rng.chance(40))
      operands.push_back(input(rng.chance(50) ? DType::Bool : dtype, {L, S}));
    if (rng.chance(40))
      attrs.insert({"causal", flag(true)});
    result(*emit("scaled_dot_product_attention", operands, attrs));
    return;
  }
  if (manner == 1) { // heads
    const int64_t B = rng.range(1, 4), H = rng.pick<int64_t>({4, 16, 32}), D = rng.pick<int64_t>({64, 96, 128}),
                  S = rng.chance(30) ? 1 : extent(16, 1024), N = extent(64, 8192);
    Val x = *emit("permute", {input(dtype, {B, H, S, D})}, {{"dims", list({0, 2, 1, 3})}});
    x = *emit("reshape", {x}, {{"shape", list({B, S, H * D})}});
    Val y = *emit("linear", {x, input(dtype, {N, H * D})});
    if (N % 128 == 0 && rng.chance(50)) {
      y = *emit("reshape", {y}, {{"shape", list({B, S, N / 128, 128})}});
      if (rng.chance(50))
        y = *emit("rms_norm", {y, input(dtype, {128})});
      else
        y = *emit("permute", {y}, {{"dims", list({0, 2, 1, 3})}});
    }
    result(behind(y, 2));
    return;
  }
  const int64_t m = rng.chance(40) ? rng.range(1, 64) : extent(65, 4096), k = extent(64, 8192), n = extent(64, 8192);
  const Val x = input(dtype, {m, k}), w = parameter(dtype, {n, k});
  Val y = *emit("linear", {x, w});
  const bool gated = rng.chance(40);
  if (gated) {
    const Val v = parameter(dtype, {n, k});
    y = *emit("mul", {*emit("silu", {y}), *emit("linear", {x, v})});
  } else {
    y = unary(y);
  }
  result(y);
  const Val dy = input(dtype, {m, n});
  spec.gradient = GradientSpec{{{y.name, dy.name}}, {x.name, w.name}, {}, 1};
}

Generator::Val Generator::reduced(Val v, const Val &whole) {
  const int64_t rank = v.type.rank(), width = v.type.shape.back();
  const DType own = v.type.dtype;
  std::optional<Val> r;
  switch (rng.below(9)) {
  case 0: r = emit("softmax", {v}, {{"dim", integer(rank - 1)}}); break;
  case 1: r = emit("log_softmax", {v}, {{"dim", integer(rank - 1)}}); break;
  case 2: r = emit("rms_norm", {v, input(rng.chance(70) ? own : DType::F32, {width})}); break;
  case 3: r = emit("layer_norm", {v, input(own, {width}), input(own, {width})}); break;
  case 4: r = emit("layer_norm", {v}); break;
  case 5: r = emit("rms_norm", {v}); break;
  case 6: {
    const std::string op = rng.pick<std::string>({"sum", "amax", "mean", "var", "logsumexp", "prod"});
    if (std::optional<Val> one = emit(op, {v}, {{"dims", list({rank - 1})}, {"keepdim", flag(true)}})) {
      if (rng.chance(30))
        return *one;
      r = emit(rng.chance(50) ? "sub" : "div", {whole, *one});
    }
    break;
  }
  case 7:
    if (std::optional<Val> at = emit("argmax", {v}, {{"dim", integer(rank - 1)}, {"keepdim", flag(true)}}))
      result(*at);
    break;
  default:
    if (rank == 2)
      if (auto loss = emit("cross_entropy", {v, input(DType::I64, {v.type.shape[0]})}))
        result(*loss);
    break;
  }
  return r.value_or(v);
}

/// Rows of every length.
void Generator::rows() {
  static const std::vector<DType> types = {DType::F32, DType::F32, DType::BF16, DType::BF16, DType::F16};
  const int64_t width = extent(rng.chance(30) ? 2 : 256, 140000),
                most = std::max<int64_t>(1, (int64_t(1) << 28) / width);
  const int64_t count = std::min(most, rng.chance(20) ? rng.range(1, 8) : extent(16, 20000));
  const DType dtype = rng.pick(types);
  spec.strict = rng.chance(20);
  Val x = input(dtype, {count, width});
  if (rng.chance(40)) { // with a residual, which is a result as well
    x = *emit("add", {x, input(dtype, {count, width})});
    if (rng.chance(60))
      result(x);
  }
  Val v = behind(x, 2);
  for (int64_t more = rng.chance(70) ? 1 : 2; more > 0 && isArithmeticFloat(v.type.dtype); --more)
    v = behind(reduced(v, v), more > 1 ? 1 : 2);
  if (rng.chance(15))
    if (auto sum = emit("sum", {cast(x, DType::F32)}, {{"dims", list({0})}}))
      result(*sum);
  if (rng.chance(35) && v.type.shape.back() == width)
    quantise(v);
  else
    result(v);
}

/// What is elementwise, with layouts in between and several results.
void Generator::pointwise() {
  static const std::vector<DType> types = {DType::F32, DType::BF16, DType::F16, DType::BF16};
  Shape shape{extent(16, 4096), extent(16, 4096)};
  if (rng.chance(40))
    shape.insert(shape.begin(), rng.range(1, 8));
  const auto rank = static_cast<int64_t>(shape.size());
  spec.strict = rng.chance(20);
  Val v = input(rng.pick(types), shape);
  for (int64_t more = rng.range(1, 6); more > 0; --more) {
    v = behind(v, 6);
    std::optional<Val> next;
    switch (rng.below(6)) {
    case 0: {
      Shape dims;
      for (int64_t d = 0; d < rank; ++d)
        dims.push_back(d);
      std::swap(dims[static_cast<size_t>(rng.below(rank))], dims.back());
      next = emit("permute", {v}, {{"dims", list(dims)}});
      break;
    }
    case 1: next = emit("flip", {v}, {{"dims", list({rank - 1})}}); break;
    case 2: next = emit("cat", {v, input(v.type.dtype, v.type.shape)}, {{"dim", integer(rank - 1)}}); break;
    case 3: {
      const int64_t half = v.type.shape.back() / 2;
      next = emit("slice", {v},
                  {{"dim", integer(rank - 1)}, {"start", integer(half / 2)}, {"end", integer(half + half / 2)}});
      break;
    }
    case 4: next = emit("index_select", {v, input(DType::I64, {v.type.shape[0]})}, {{"dim", integer(0)}}); break;
    default: break;
    }
    v = next.value_or(v);
  }
  if (rng.chance(30))
    quantise(v);
  else
    result(v);
}

GraphSpec Generator::run() {
  spec.name = "assembled";
  switch (kind) {
  case 4: scaledProducts(); break;
  case 5: rng.chance(60) ? wholeProducts() : pointwise(); break;
  case 6:
  case 7: rows(); break;
  default: products(); break;
  }
  return std::move(spec);
}

} // namespace

GraphSpec assembledGraph(uint64_t seed) { return Generator(seed).run(); }

} // namespace rl::numeric
