// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Norms that are quantised, with numbers at both ends of the range: what a GPU's kernel finds without the factors that a row shares
// (FactoredMax.h) must be what the strict graph, whose maxima wait for their factors, finds on the same target, but for rounding:
// scales within 2^-19, codes a step apart, few of them.
//
//   numeric_factored_test [--target cpu|cuda] [--seeds A:B]   of the forms below those from A up to B
#include "frontend/json/JsonReader.h"
#include "ir/interp/Convert.h"
#include "tests/numeric/support/Device.h"
#include "tests/numeric/support/Harness.h"
#include "tests/numeric/support/Rng.h"

#include <cmath>
#include <cstdio>
#include <string>

using namespace rl;
using namespace rl::numeric;

namespace {

struct Form {
  const char *name, *type, *nodes;
};

// x: [rows, width] of `type`; w: [width] of `type`. Codes are "q".
const Form kForms[] = {
    {"chain", "bf16",
     R"({"op":"cast","inputs":["x"],"outputs":["h"],"attrs":{"dtype":"f32"}},
        {"op":"rms_norm","inputs":["h"],"outputs":["n"],"attrs":{"eps":EPS}},
        {"op":"cast","inputs":["w"],"outputs":["v"],"attrs":{"dtype":"f32"}},
        {"op":"mul","inputs":["n","v"],"outputs":["m"]},
        {"op":"quantize","inputs":["m"],"outputs":["q","s"],"attrs":{"dtype":"f8e4m3","granularity":"token"}})"},
    {"norm", "bf16",
     R"({"op":"rms_norm","inputs":["x","w"],"outputs":["n"],"attrs":{"eps":EPS}},
        {"op":"quantize","inputs":["n"],"outputs":["q","s"],"attrs":{"dtype":"i8","granularity":"token"}})"},
    {"norm_f16", "f16",
     R"({"op":"rms_norm","inputs":["x","w"],"outputs":["n"],"attrs":{"eps":EPS}},
        {"op":"quantize","inputs":["n"],"outputs":["q","s"],"attrs":{"dtype":"f8e5m2","granularity":"token"}})"},
    {"norm_f32", "f32",
     R"({"op":"rms_norm","inputs":["x","w"],"outputs":["n"],"attrs":{"eps":EPS}},
        {"op":"neg","inputs":["n"],"outputs":["m"]},
        {"op":"quantize","inputs":["m"],"outputs":["q","s"],"attrs":{"dtype":"f8e4m3","granularity":"token"}})"},
    {"no_weights", "f32",
     R"({"op":"rms_norm","inputs":["x"],"outputs":["n"],"attrs":{"eps":EPS}},
        {"op":"quantize","inputs":["n"],"outputs":["q","s"],"attrs":{"dtype":"f8e4m3","granularity":"token","scale_dtype":"f8e8m0"}})"},
    {"residual", "bf16",
     R"({"op":"cast","inputs":["x"],"outputs":["a"],"attrs":{"dtype":"f32"}},
        {"op":"add","inputs":["a","y"],"outputs":["h"]},
        {"op":"rms_norm","inputs":["h"],"outputs":["n"],"attrs":{"eps":EPS}},
        {"op":"mul","inputs":["n","w"],"outputs":["m"]},
        {"op":"quantize","inputs":["m"],"outputs":["q","s"],"attrs":{"dtype":"f8e4m3","granularity":"token"}})"},
    {"quotient", "bf16",
     R"({"op":"cast","inputs":["x"],"outputs":["h"],"attrs":{"dtype":"f32"}},
        {"op":"square","inputs":["h"],"outputs":["c"]},
        {"op":"mean","inputs":["c"],"outputs":["d"],"attrs":{"dims":[1],"keepdim":true}},
        {"op":"add","inputs":["d",EPS],"outputs":["e"]},
        {"op":"sqrt","inputs":["e"],"outputs":["f"]},
        {"op":"div","inputs":["h","f"],"outputs":["n"]},
        {"op":"mul","inputs":["w","n"],"outputs":["m"]},
        {"op":"mul","inputs":["m",0.75],"outputs":["k"]},
        {"op":"abs","inputs":["k"],"outputs":["b"]},
        {"op":"quantize","inputs":["b"],"outputs":["q","s"],"attrs":{"dtype":"f8e4m3","granularity":"token"}})"},
    {"variance", "bf16",
     R"({"op":"cast","inputs":["x"],"outputs":["h"],"attrs":{"dtype":"f32"}},
        {"op":"layer_norm","inputs":["h","w"],"outputs":["n"],"attrs":{"eps":EPS}},
        {"op":"quantize","inputs":["n"],"outputs":["q","s"],"attrs":{"dtype":"f8e4m3","granularity":"token"}})"},
    {"two_factors", "f32",
     R"({"op":"square","inputs":["x"],"outputs":["c"]},
        {"op":"sum","inputs":["c"],"outputs":["d"],"attrs":{"dims":[1],"keepdim":true}},
        {"op":"add","inputs":["d",EPS],"outputs":["e"]},
        {"op":"rsqrt","inputs":["e"],"outputs":["f"]},
        {"op":"sum","inputs":["x"],"outputs":["g"],"attrs":{"dims":[1],"keepdim":true}},
        {"op":"mul","inputs":["x","f"],"outputs":["n"]},
        {"op":"mul","inputs":["n","w"],"outputs":["m"]},
        {"op":"mul","inputs":["m","g"],"outputs":["k"]},
        {"op":"quantize","inputs":["k"],"outputs":["q","s"],"attrs":{"dtype":"f8e4m3","granularity":"token"}})"},
};

struct Size {
  int64_t rows, width;
};
// Blocks of 128 and 256 threads, with and without a rest; few rows; a cluster on compute capability 9.0.
const Size kSizes[] = {{560, 4096}, {560, 3080}, {544, 8200}, {24, 4104}, {24, 12288}, {24, 65536}};

GraphSpec specOf(const Form &form, Size size, double eps, bool strict) {
  auto replace = [](std::string text, const std::string &what, const std::string &by) {
    for (size_t at; (at = text.find(what)) != std::string::npos;)
      text.replace(at, what.size(), by);
    return text;
  };
  char number[40];
  std::snprintf(number, sizeof number, "%.3g", eps);
  const std::string rows = std::to_string(size.rows), width = std::to_string(size.width), type = form.type;
  auto tensor = [&](const std::string &shape) { return R"({"dtype":")" + type + R"(","shape":[)" + shape + "]}"; };
  const std::string nodes = replace(form.nodes, "EPS", number), whole = tensor(rows + "," + width);
  const bool two = nodes.find(R"("y")") != std::string::npos;
  Result<GraphSpec> spec =
      parseGraph(R"({"ridgeline":1,"name":"factored","numerics":")" + std::string(strict ? "strict" : "fused") +
                 R"(","inputs":{"x":)" + whole + R"(,"w":)" + tensor(width) +
                 (two ? R"(,"y":)" + whole : std::string()) + R"(},"nodes":[)" + nodes + R"(],"outputs":["q","s"]})");
  if (!spec) {
    std::fprintf(stderr, "%s: %s\n", form.name, spec.error().str().c_str());
    std::abort();
  }
  return *std::move(spec);
}

/// Sizes of rows and of weights, and what stands among them. The kinds follow each other, so that each form and size sees all.
struct Kind {
  double size, other; ///< of most elements, and of one in eight
  double special = 0; ///< one element; 0: none
};
const double kInf = INFINITY, kNan = NAN;
const Kind kRows[] = {
    {1, 3},       {1, 1e-3},      {0, 0},         {1e-3, 1},      {1e15, 1e14},   {1e18, 1e18},
    {3e38, 1},    {3e38, 3e38},   {1e-38, 1e-38}, {1e-13, 1e-13}, {1e-20, 1e-44}, {1e-42, 0},
    {1, 1, kNan}, {1, 1, kInf},   {1, 1, -kInf},  {0, 0, 1},      {0, 0, 1e-38},  {0, 0, 3e38},
    {1e12, 1e12}, {1.1e12, 1e12}, {9e11, 1e-11},  {1e-12, 9e-13}, {1, 1e-45},     {65504, 1e-7},
};
const Kind kWeights[] = {{1, 1}, {1e30, 1e30}, {1e-30, 1e-30}, {1e-3, 1e-9},  {1, 1, kNan}, {1, 1, kInf},
                         {0, 0}, {1, 1e38},    {1e-38, 1e38},  {1e12, 1e-12}, {0, 1e-42}};

void fill(Rng &rng, HostTensor &t, int64_t from, int64_t count, const Kind &kind) {
  const int64_t at = rng.below(count);
  for (int64_t i = 0; i < count; ++i) {
    double v = (rng.unit() * 2 - 1) * (rng.chance(12) ? kind.other : kind.size);
    if (kind.special != 0 && i == at)
      v = kind.special;
    storeElement(t.data.data(), t.type.dtype, from + i, v);
  }
}

/// Empty, or what differs: more than a step, or more than `few` of all elements.
std::string compare(const HostTensor &want, const HostTensor &got, double tolerance, double few) {
  const DType type = want.type.dtype;
  int64_t differing = 0;
  for (int64_t i = 0; i < want.type.elements(); ++i) {
    double w = loadElement(want.data.data(), type, i), g = loadElement(got.data.data(), type, i);
    if (w == g || (std::isnan(w) && std::isnan(g)))
      continue;
    ++differing;
    const double step = type == DType::I8 ? 1 : tolerance * std::max(std::fabs(w), std::fabs(g)) + 0x1p-9;
    if (!(std::fabs(w - g) <= (type == DType::F32 ? tolerance * std::fabs(w) : step))) {
      char text[160];
      std::snprintf(text, sizeof text, "element %lld is %.9g, not %.9g", static_cast<long long>(i), g, w);
      return text;
    }
  }
  if (static_cast<double>(differing) > few * static_cast<double>(want.type.elements()) + 4)
    return std::to_string(differing) + " of " + std::to_string(want.type.elements()) + " elements differ";
  return {};
}

} // namespace

int main(int argc, char **argv) {
  SeedOptions options;
  for (int i = 1; i < argc; ++i)
    if (!options.take(argc, argv, i)) {
      std::fprintf(stderr, "usage: numeric_factored_test [--target cpu|cuda] [--seeds A:B]\n");
      return 1;
    }
  Result<std::unique_ptr<Device>> device = Device::create(options.target);
  if (!device) {
    std::fprintf(stderr, "%s\n", device.error().str().c_str());
    return 4;
  }
  int compared = 0, factored = 0, failed = 0;
  Rng rng(7);
  size_t turn = 0;
  for (size_t f = options.first; f < std::min<size_t>(options.end, std::size(kForms)); ++f)
    for (const Size &size : kSizes)
      for (double eps : {1e-6, 1e-30}) {
        const Form &form = kForms[f];
        const std::string name =
            std::string(form.name) + " " + std::to_string(size.rows) + "x" + std::to_string(size.width);
        nameCrash(name);
        const GraphSpec spec = specOf(form, size, eps, false), plain = specOf(form, size, eps, true);
        auto fail = [&](const std::string &what) {
          ++failed;
          std::printf("FAILED %s: %s\n", name.c_str(), what.c_str());
        };
        Result<std::unique_ptr<Module>> module = (*device)->compile(spec);
        const bool is = (*device)->record.find("is reduced without its factor") != std::string::npos;
        factored += is;
        constexpr int64_t kAnyBlockHolds = 16384;
        if (options.target == "cuda" && size.width <= kAnyBlockHolds && !is)
          fail("its maximum waits");
        Result<std::unique_ptr<Module>> strict = (*device)->compile(plain);
        if (!module || !strict) {
          fail((module ? strict : module).error().str());
          continue;
        }
        Result<Graph> graph = resolve(spec);
        std::vector<HostTensor> inputs;
        for (ValueId v : graph->inputs) {
          const TensorType &type = graph->type(v);
          inputs.push_back({type, std::vector<std::byte>(static_cast<size_t>(type.bytes()))});
        }
        const bool large = size.rows > 100;
        for (const Kind &weights : kWeights) {
          if (large && (turn++ % 5 != 0 || options.target == "cpu")) // the others have other forms, sizes and eps
            continue;
          size_t next = static_cast<size_t>(rng.below(std::size(kRows)));
          for (HostTensor &t : inputs)
            if (t.type.rank() == 1)
              fill(rng, t, 0, size.width, weights);
            else
              for (int64_t r = 0; r < size.rows; ++r)
                fill(rng, t, r * size.width, size.width, kRows[next++ % std::size(kRows)]);
          for (bool offset : {false, true}) {
            Result<std::vector<HostTensor>> got = (*device)->run(**module, inputs, {}, offset);
            Result<std::vector<HostTensor>> want = (*device)->run(**strict, inputs, {}, offset);
            if (!got || !want) {
              fail((got ? want : got).error().str());
              break;
            }
            std::string codes = compare((*want)[0], (*got)[0], 0.26, 2e-3),
                        scales = compare((*want)[1], (*got)[1], std::string(form.type) == "f32" ? 0x1p-19 : 0x1p-7, 1);
            if (!codes.empty() || !scales.empty()) {
              char text[80];
              std::snprintf(text, sizeof text, "weights of %g, eps %g%s: ", weights.size, eps,
                            offset ? ", unaligned" : "");
              fail(text + (scales.empty() ? codes : "scale " + scales));
              break;
            }
            ++compared;
          }
        }
      }
  std::printf("%s: norms quantised, %d compared, %d graphs without their factors, %d failed\n", options.target.c_str(),
              compared, factored, failed);
  return failed ? 4 : 0;
}
