// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random small networks under every precision mode, with random pins, on a target: what is compiled must give what the interpreter
// makes of the assigned graph, also after every parameter was bound anew. Codes of a
// quantisation may be off by one where what is quantised is not exact, so that results are compared by their root mean squares.
//
//   numeric_precision_test [--target cpu|cuda] [--seeds A:B] [--verify] [--print]
#include "frontend/api/Engine.h"
#include "frontend/json/JsonReader.h"
#include "ir/interp/Convert.h"
#include "tests/numeric/support/Device.h"
#include "tests/numeric/support/GraphMaker.h"
#include "tests/numeric/support/Harness.h"

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

private:
  Val product(Val x, int64_t n);
  void pins();
};

/// x times a matrix of parameters, as linear or matmul, stored either way, the matrix perhaps behind a layout op.
GraphMaker::Val Generator::product(Val x, int64_t n) {
  const int64_t k = x.type.shape.back();
  const DType w = rng.chance(80) ? x.type.dtype : rng.pick<DType>({DType::F32, DType::BF16, DType::F16});
  if (rng.chance(55)) {
    std::vector<Val> operands{x, rng.chance(20) ? *emit("permute", {parameter(w, {k, n})}, {{"dims", list({1, 0})}})
                                                : parameter(w, {n, k})};
    if (rng.chance(40))
      operands.push_back(parameter(w, {n}));
    return *emit("linear", operands);
  }
  const bool transposed = rng.chance(50);
  Attributes attrs{{"transpose_b", flag(transposed)}};
  if (rng.chance(25))
    attrs["out_dtype"] = word(rng.pick<DType>({DType::F32, DType::BF16}));
  return *emit("matmul", {x, parameter(w, transposed ? Shape{n, k} : Shape{k, n})}, attrs);
}

GraphSpec Generator::run() {
  static const std::vector<int64_t> widths = {1, 8, 16, 24, 33, 40, 64, 77, 96, 128, 192};
  static const std::vector<int64_t> rows = {1, 1, 2, 5, 16, 17, 40, 64, 70};
  spec.name = "network";
  spec.strict = rng.chance(15);
  Shape shape{rng.pick(rows), rng.pick(widths)};
  if (rng.chance(30))
    shape.insert(shape.begin(), rng.range(1, 3));
  Val x = input(rng.pick<DType>({DType::F32, DType::BF16, DType::BF16, DType::F16}), shape), first = x;
  for (int64_t layers = rng.range(1, 4); layers-- > 0;) {
    if (rng.chance(50)) {
      std::vector<Val> operands{x};
      if (rng.chance(60))
        operands.push_back(parameter(x.type.dtype, {x.type.shape.back()}));
      x = *emit("rms_norm", operands);
    }
    const int64_t n = rng.chance(30) ? first.type.shape.back() : rng.pick(widths);
    Val y = product(x, n);
    if (rng.chance(30)) // a gate and what it lets through share a kernel
      y = *emit("mul", {*emit("silu", {y}), product(x, n)});
    else if (rng.chance(60))
      y = *emit(rng.pick<std::string>({"gelu", "relu", "tanh", "silu"}), {y});
    if (y.type.shape == first.type.shape && rng.chance(60))
      y = *emit("add", {first, y});
    x = y;
  }
  if (rng.chance(20))
    x = *emit("softmax", {x}, {{"dim", integer(-1)}});
  spec.outputs.push_back(x.name);
  static const std::vector<std::string> modes = {"bf16", "f16", "fp8", "int8", "auto", "auto"};
  spec.precision.mode = rng.pick(modes);
  spec.precision.tolerance = rng.chance(70) ? 10 : 0.02;
  pins();
  return std::move(spec);
}

void Generator::pins() {
  static const std::vector<DType> types = {DType::F32,    DType::BF16,   DType::F16, DType::F8E4M3,
                                           DType::F8E4M3, DType::F8E5M2, DType::I8,  DType::I8};
  for (const TensorSpec &p : spec.parameters)
    if (rng.chance(35))
      spec.precision.pin[p.name] = rng.pick(types);
  for (NodeSpec &n : spec.nodes) {
    if (rng.chance(10))
      spec.precision.pin[n.outputs[0]] = rng.pick(types);
    if (rng.chance(8) && (n.op == "linear" || n.op == "matmul"))
      n.precision = dtypeName(rng.pick(types));
  }
}

/// Normal numbers, nearly; parameters of two dimensions so small that products keep the size of their operands.
HostTensor data(Rng &rng, const TensorType &type, bool weight) {
  HostTensor t{type, std::vector<std::byte>(static_cast<size_t>(type.bytes()))};
  double scale =
      weight && type.rank() == 2 ? 1 / std::sqrt(static_cast<double>(std::max(type.shape[0], type.shape[1]))) : 1;
  for (int64_t i = 0; i < type.elements(); ++i)
    storeElement(t.data.data(), type.dtype, i,
                 (rng.unit() + rng.unit() + rng.unit() + rng.unit() - 2) * std::sqrt(3.0) * scale);
  return t;
}

/// Nothing, or by how much the root mean square of the difference, or one element, is beyond what may be.
std::string compareRms(const HostTensor &want, const HostTensor &kept, const HostTensor &got, double share) {
  double difference = 0, size = 0, spread = 0;
  const int64_t n = want.type.elements();
  for (int64_t i = 0; i < n; ++i) {
    double w = loadElement(want.data.data(), want.type.dtype, i), g = loadElement(got.data.data(), want.type.dtype, i),
           k = loadElement(kept.data.data(), want.type.dtype, i);
    if (!std::isfinite(g) && std::isfinite(w))
      return "element " + std::to_string(i) + " is not finite";
    difference += (g - w) * (g - w);
    spread += (k - w) * (k - w);
    size += w * w;
  }
  const double rms = std::sqrt(size / static_cast<double>(n)), off = std::sqrt(difference / static_cast<double>(n)),
               apart = std::sqrt(spread / static_cast<double>(n));
  if (off > share * rms + 2 * apart)
    return "off by " + std::to_string(off) + " of " + std::to_string(rms);
  for (int64_t i = 0; i < n; ++i) {
    double w = loadElement(want.data.data(), want.type.dtype, i), g = loadElement(got.data.data(), want.type.dtype, i);
    if (std::fabs(g - w) > 12 * (share * (rms + std::fabs(w)) + 2 * apart))
      return "element " + std::to_string(i) + " is " + std::to_string(g) + ", not " + std::to_string(w);
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
      std::fprintf(stderr, "usage: numeric_precision_test [--target cpu|cuda] [--seeds A:B] [--verify] [--print]\n");
      return 1;
    }
  }
  Result<std::unique_ptr<Device>> device = Device::create(options.target);
  Result<Target> target = resolveTarget(options.target);
  if (!device || !target) {
    std::fprintf(stderr, "%s\n", (device ? target.error() : device.error()).str().c_str());
    return 4;
  }
  int refused = 0, atBind = 0, quantised = 0;
  auto generate = [](uint64_t seed) { return Generator(seed).run(); };
  const int failed = countFailures(options, generate, [&](uint64_t seed, const GraphSpec &spec) -> std::string {
    Result<Graph> graph = resolve(spec);
    if (!graph)
      return graph.error().str();
    Result<PrecisionAssignment> assigned = assignTypes(*graph, *target);
    Result<std::unique_ptr<Module>> module = (*device)->compile(spec);
    if (!assigned) { // a pin that cannot be honoured
      ++refused;
      return module || assigned.error().code != Code::Unsupported ? "refused, and compiled" : std::string();
    }
    if (!module)
      return "does not compile: " + module.error().str();
    atBind += !assigned->atBind.empty();
    double share = 0x1p-19;
    for (const Value &v : assigned->graph.values)
      if (v.type.dtype == DType::BF16 || v.type.dtype == DType::F16)
        share = std::max(share, 0x1p-7);
    for (const Node &n : assigned->graph.nodes) {
      if (n.pin &&
          *n.pin != DType::F32) // its operands are rounded to it: f32 sums in another order may fall on another side
        share = std::max(share, 0x1p-7);
      if (n.op == OpKind::Quantize) {
        share = 0x1p-5;
        ++quantised;
      }
    }
    Rng rng(seed * 77 + 5);
    // The second time every parameter has other values.
    for (bool again : {false, true}) {
      std::vector<HostTensor> inputs, parameters;
      for (ValueId v : graph->inputs)
        inputs.push_back(data(rng, graph->type(v), false));
      for (ValueId v : graph->parameters)
        parameters.push_back(data(rng, graph->type(v), true));
      Result<std::vector<HostTensor>> want = interpret(assigned->graph, inputs, parameters),
                                      kept = interpret(assigned->graph, inputs, parameters, {}, Intermediates::KeepF32);
      if (!want || !kept)
        return "interpreter: " + (want ? kept.error() : want.error()).str();
      Result<std::vector<HostTensor>> got = (*device)->run(**module, inputs, parameters, again);
      if (!got)
        return "does not run: " + got.error().str();
      for (size_t o = 0; o < got->size(); ++o) {
        std::string text = compareRms((*want)[o], (*kept)[o], (*got)[o], share);
        // A rounding that moves a scale, or a code that much hangs on, may move all: how far, draws of roundings say.
        for (uint64_t draw = 0; !text.empty() && draw < 12; ++draw) {
          Result<std::vector<HostTensor>> nudged =
              interpret(assigned->graph, inputs, parameters, {}, Intermediates::Nudged, draw);
          if (!nudged)
            return "interpreter: " + nudged.error().str();
          if (compareRms((*want)[o], (*nudged)[o], (*got)[o], share).empty())
            text.clear();
        }
        if (!text.empty())
          return std::string(again ? "bound anew, " : "") + "output '" + spec.outputs[o] + "': " + text;
      }
      if (options.verify)
        if (std::string text = verifyResults(assigned->graph, inputs, parameters, (*device)->record, *got);
            !text.empty())
          return text;
    }
    return {};
  });
  std::printf(
      "%s: precision, seeds %llu:%llu, %d with parameters converted at binding, %d quantised tensors, %d refused, "
      "%d failed\n",
      options.target.c_str(), static_cast<unsigned long long>(options.first),
      static_cast<unsigned long long>(options.end), atBind, quantised, refused, failed);
  return failed || atBind * 4 < static_cast<int>(options.end - options.first) ? 4 : 0;
}
