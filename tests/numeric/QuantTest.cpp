// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random quantize, dequantize and fake_quantize nodes of every granularity, type and scheme on a target: the same bits as the
// interpreter's, NaN for NaN. What is quantised is an input, or computed from inputs exactly. Groups are tame, of zeros alone, of
// subnormals, of ties, of the greatest values, with NaN and infinities.
//
// One graph in six quantises a norm, which is not exact: there every value that is read back may be a step off.
//
//   numeric_quant_test [--target cpu|cuda] [--seeds A:B] [--print]
#include "frontend/json/JsonReader.h"
#include "ir/interp/Convert.h"
#include "tests/numeric/support/Device.h"
#include "tests/numeric/support/GraphMaker.h"
#include "tests/numeric/support/Harness.h"
#include "tests/numeric/support/RandomData.h"
#include "tests/numeric/support/Rng.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace rl;
using namespace rl::numeric;

namespace {

class Generator : GraphMaker {
public:
  explicit Generator(uint64_t seed) : GraphMaker(seed) {}
  GraphSpec run();
  bool isExact = true;

private:
  Shape shape();
  Attributes granularity(const Shape &);
  Val before(Val);
  void quantise(Val);
};

Generator::Shape Generator::shape() {
  static const std::vector<int64_t> widths = {1,  2,  3,   5,   8,   16,  24,  31,  32,  40,  64,
                                              77, 96, 128, 129, 160, 256, 300, 384, 512, 1000};
  static const std::vector<int64_t> rows = {1, 1, 2, 3, 4, 5, 7, 9, 16, 33, 130};
  Shape s{rng.pick(rows), rng.pick(widths)};
  if (rng.chance(30))
    s.insert(s.begin(), rng.range(1, 4));
  if (rng.chance(8))
    s.insert(s.begin(), 2);
  if (rng.chance(12))
    s.erase(s.begin());
  if (rng.chance(4))
    s = {};
  if (rng.chance(4) && !s.empty())
    s[static_cast<size_t>(rng.below(static_cast<int64_t>(s.size())))] = 0;
  int64_t n = 1;
  for (int64_t e : s)
    n *= e;
  if (n > 30000)
    s[0] = 1;
  return s;
}

Generator::Attributes Generator::granularity(const Shape &s) {
  auto rank = static_cast<int64_t>(s.size());
  switch (rng.below(6)) {
  case 0: return {{"granularity", std::string("tensor")}};
  case 1: return {{"granularity", std::string("axis")}, {"axis", integer(rng.below(std::max<int64_t>(1, rank)))}};
  case 2: return {{"granularity", std::string("token")}};
  default: {
    static const std::vector<Shape> sizes = {{1, 128}, {128, 128}, {1, 32}, {1, 16}, {4, 8}, {3, 5}, {2, 1}, {1, 1000}};
    return {{"granularity", std::string("block")}, {"block", list(rng.pick(sizes))}};
  }
  }
}

/// Something that is exact, or moves elements about.
Generator::Val Generator::before(Val v) {
  for (int64_t more = rng.below(3); more > 0; --more) {
    std::vector<Val> next;
    switch (rng.below(8)) {
    case 0: next = emitAll("neg", {v}, {}); break;
    case 1: next = emitAll("mul", {v}, {}, 1, Scalar{Scalar::Float, 0, rng.chance(50) ? 2.0 : -1.0}); break;
    case 2: next = emitAll("cast", {v}, {{"dtype", std::string(rng.chance(50) ? "f32" : "bf16")}}); break;
    case 3:
      if (v.type.rank() > 1) {
        Shape dims;
        for (int64_t d = 0; d < v.type.rank(); ++d)
          dims.push_back(d);
        std::swap(dims[0], dims.back());
        next = emitAll("permute", {v}, {{"dims", list(dims)}});
      }
      break;
    case 4: // rounded to 16 bits before it is quantised, in a fused graph too
      next = emitAll("mul", {v, input(v.type.dtype, v.type.shape)}, {});
      if (next.empty() || spec.strict || v.type.dtype == DType::F32)
        break;
      next = emitAll("cast", {next[0]}, {{"dtype", std::string(dtypeName(v.type.dtype))}});
      break;
    case 5:
    case 6: // the same rows once more, in blocks of a few vectors
      next = emitAll("fake_quantize", {v},
                     {{"dtype", std::string("f8e4m3")},
                      {"granularity", std::string("block")},
                      {"block", list({1, int64_t{8} << rng.below(4)})}});
      break;
    default:
      if (v.type.rank() > 0)
        next = emitAll("flip", {v}, {{"dims", list({v.type.rank() - 1})}});
    }
    if (!next.empty())
      v = next[0];
  }
  return v;
}

void Generator::quantise(Val v) {
  Attributes attrs = granularity(v.type.shape);
  static const std::vector<std::string> types = {"f8e4m3", "f8e5m2", "i8", "i8"};
  const std::string type = rng.pick(types);
  const bool powers = rng.chance(30), asymmetric = type == "i8" && rng.chance(45);
  Attributes own = attrs;
  own["dtype"] = type;
  if (powers)
    own["scale_dtype"] = std::string("f8e8m0");
  if (asymmetric)
    own["scheme"] = std::string("asymmetric");
  std::vector<Val> operands{v};
  if (!asymmetric && rng.chance(25)) {
    // The scale's shape is that which a quantize without one has.
    std::vector<TensorType> results;
    if (Result<Inferred> in = inferNode(OpKind::Quantize, {{v.type, {}}}, 2, own, {}))
      results = in->results;
    if (!results.empty())
      operands.push_back(input(results[1].dtype, results[1].shape));
  }
  if (rng.chance(25)) {
    for (const Val &out : emitAll("fake_quantize", operands, own))
      spec.outputs.push_back(out.name);
    return;
  }
  std::vector<Val> q = emitAll("quantize", operands, own, asymmetric ? 3 : 2);
  for (const Val &out : q)
    if (isExact)
      spec.outputs.push_back(out.name);
  if (q.empty() || (isExact && rng.chance(30)))
    return;
  attrs["dtype"] = std::string(rng.chance(50) ? "f32" : rng.chance(50) ? "bf16" : "f16");
  if (asymmetric && isExact && rng.chance(40))
    q[2] = input(DType::I32, q[2].type.shape); // any zero point
  for (const Val &out : emitAll("dequantize", q, attrs))
    spec.outputs.push_back(out.name);
}

GraphSpec Generator::run() {
  static const std::vector<DType> floats = {DType::F32, DType::F32, DType::BF16, DType::F16};
  spec.name = "quant";
  spec.strict = rng.chance(40);
  isExact = !rng.chance(16);
  while (spec.outputs.empty()) {
    Val v = before(input(rng.pick(floats), shape()));
    if (!isExact) {
      std::vector<Val> norm = emitAll("rms_norm", {v}, {});
      if (norm.empty())
        continue;
      v = norm[0];
    }
    for (int64_t n = rng.chance(20) ? 2 : 1; n > 0; --n)
      quantise(v);
  }
  return std::move(spec);
}

/// A manner for each run of elements, so that groups of one tensor differ.
HostTensor data(Rng &rng, const TensorType &type) {
  if (!isFloat(type.dtype) || isF8(type.dtype))
    return randomTensor(rng, type);
  HostTensor t{type, std::vector<std::byte>(static_cast<size_t>(type.bytes()))};
  const std::vector<double> special = specialValues(type.dtype);
  const bool wild = rng.chance(35);
  int64_t manner = 0, left = 0;
  double size = 1;
  for (int64_t i = 0; i < type.elements(); ++i, --left) {
    if (left == 0) {
      left = rng.range(1, 200);
      manner = rng.below(wild ? 9 : 4);
      size = std::ldexp(1 + rng.unit(), static_cast<int>(rng.range(-12, 12)));
    }
    double v = (rng.unit() * 2 - 1) * size;
    switch (manner) {
    case 0: v = 0; break;
    case 1: v = static_cast<double>(rng.range(-255, 255)) / 2; break; // ties
    case 4: v = rng.pick(special); break;
    case 5: v = std::ldexp(rng.unit() * 2 - 1, static_cast<int>(rng.range(-149, -118))); break;
    case 6: v = std::ldexp(rng.unit() * 2 - 1, static_cast<int>(rng.range(110, 128))); break;
    case 7: v = rng.chance(3) ? NAN : v; break;
    case 8: v = rng.chance(3) ? (rng.chance(50) ? INFINITY : -INFINITY) : v; break;
    default: break;
    }
    storeElement(t.data.data(), type.dtype, i, v);
  }
  return t;
}

std::string compare(const HostTensor &want, const HostTensor &got, bool exact) {
  const DType type = want.type.dtype;
  double largest = 0;
  for (int64_t i = 0; !exact && i < want.type.elements(); ++i)
    if (double v = loadElement(want.data.data(), type, i); std::isfinite(v))
      largest = std::max(largest, std::fabs(v));
  for (int64_t i = 0; i < want.type.elements(); ++i) {
    const size_t size = dtypeSize(type), at = static_cast<size_t>(i) * size;
    double w = loadElement(want.data.data(), type, i), g = loadElement(got.data.data(), type, i);
    bool fine = std::memcmp(want.data.data() + at, got.data.data() + at, size) == 0 ||
                (isFloat(type) && std::isnan(w) && std::isnan(g));
    // A step of an f8, of an i8, and, of powers of two, a scale that is twice as large.
    if (!exact && std::isfinite(w) && std::isfinite(g))
      fine |= std::fabs(w - g) <= 0x1p-1 * std::fabs(w) + 0x1p-5 * largest;
    if (!fine) {
      char text[160];
      std::snprintf(text, sizeof text, "element %lld is %.9g, not %.9g", static_cast<long long>(i), g, w);
      return text;
    }
  }
  return {};
}

} // namespace

int main(int argc, char **argv) {
  SeedOptions options;
  for (int i = 1; i < argc; ++i) {
    std::string a = argv[i];
    if (options.take(argc, argv, i))
      continue;
    {
      std::fprintf(stderr, "usage: numeric_quant_test [--target cpu|cuda] [--seeds A:B] [--print]\n");
      return 1;
    }
  }
  Result<std::unique_ptr<Device>> device = Device::create(options.target);
  if (!device) {
    std::fprintf(stderr, "%s\n", device.error().str().c_str());
    return 4;
  }
  int compared = 0;
  bool isExact = false; // the graph at hand
  auto generate = [&](uint64_t seed) {
    Generator generator(seed);
    GraphSpec spec = generator.run();
    isExact = generator.isExact;
    return spec;
  };
  const int failed = countFailures(options, generate, [&](uint64_t seed, const GraphSpec &spec) -> std::string {
    Result<Graph> graph = resolve(spec);
    if (!graph)
      return "does not resolve: " + graph.error().str();
    Rng rng(seed * 77 + 5);
    std::vector<HostTensor> inputs;
    for (ValueId v : graph->inputs)
      inputs.push_back(isExact ? data(rng, graph->type(v)) : [&] {
        HostTensor t{graph->type(v), std::vector<std::byte>(static_cast<size_t>(graph->type(v).bytes()))};
        for (int64_t i = 0; i < t.type.elements(); ++i)
          storeElement(t.data.data(), t.type.dtype, i, 0.25 + rng.unit() * 4);
        return t;
      }());
    Result<std::unique_ptr<Module>> module = (*device)->compile(spec);
    if (!module)
      return "does not compile: " + module.error().str();
    Result<std::vector<HostTensor>> want = interpret(*graph, inputs, {});
    if (!want)
      return "interpreter: " + want.error().str();
    for (bool offset : {false, true}) {
      Result<std::vector<HostTensor>> got = (*device)->run(**module, inputs, {}, offset);
      if (!got)
        return "does not run: " + got.error().str();
      for (size_t o = 0; o < got->size(); ++o)
        if (std::string text = compare((*want)[o], (*got)[o], isExact); !text.empty())
          return "output '" + spec.outputs[o] + "' (" + str((*got)[o].type) + (offset ? ", unaligned" : "") +
                 "): " + text;
    }
    compared += isExact;
    return {};
  });
  std::printf("%s: quantised, seeds %llu:%llu, %d compared bit by bit, %d failed\n", options.target.c_str(),
              static_cast<unsigned long long>(options.first), static_cast<unsigned long long>(options.end), compared,
              failed);
  return failed || compared * 2 < static_cast<int>(options.end - options.first) ? 4 : 0;
}
