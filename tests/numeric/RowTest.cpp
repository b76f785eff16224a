// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random graphs with reductions, norms, softmax, losses and what is picked by indices on a target against the reference interpreter, which computes in f64. Where
// a result is not finite it must be so in the same way; integers and places must be equal; floats may differ by what sums in
// f32 in another order do, measured against the largest of the tensor. Graphs that fail are printed.
//
//   numeric_row_test [--target cpu|cuda] [--seeds A:B] [--verify] [--print]
#include "compiler/Compiler.h"
#include "frontend/json/JsonReader.h"
#include "ir/interp/Convert.h"
#include "tests/numeric/support/Device.h"
#include "tests/numeric/support/GraphMaker.h"
#include "tests/numeric/support/Harness.h"
#include "tests/numeric/support/RandomData.h"
#include "tests/numeric/support/Rng.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>

using namespace rl;
using namespace rl::numeric;

namespace {

/// Graphs of a few nodes around reductions over one tensor's rows.
class Generator : GraphMaker {
public:
  explicit Generator(uint64_t seed)
      : GraphMaker(seed), heads(seed % 6 == 5), columns(seed % 16 == 9), longs(seed % 16 == 3), odd(seed % 16 == 11) {}
  GraphSpec run();

private:
  Val around(Val v);
  std::optional<Val> reduction(Val v);
  std::optional<Val> picked(Val v);
  std::optional<Val> segments(Val v);
  Shape shape();
  int64_t dimOf(const Val &v) { // mostly the last one
    return rng.chance(70) ? v.type.rank() - 1 : rng.below(v.type.rank());
  }

  const bool heads;   ///< reductions of segments of rows
  const bool columns; ///< sums down the columns of what is reduced by rows, as many as a GPU's blocks carry along
  const bool longs;   ///< rows that a GPU's blocks share
  const bool odd;     ///< rows that no vectors divide, as many as a GPU copies to shared memory
};

Generator::Shape Generator::shape() {
  if (columns) {
    static const std::vector<Shape> tall = {{264, 1024},    {264, 1032}, {396, 1056},   {264, 517},
                                            {2, 132, 1024}, {280, 2048}, {3, 264, 1024}};
    return rng.pick(tall);
  }
  if (longs) {
    static const std::vector<Shape> wide = {{1, 32768}, {2, 32768},  {1, 65536}, {3, 40960},
                                            {2, 20480}, {1, 131072}, {1, 98312}, {2, 30012}};
    return rng.pick(wide);
  }
  if (odd) {
    static const std::vector<Shape> uneven = {{16901, 3},    {16896, 5},  {4, 4230, 7}, {8450, 31},  {4225, 77},
                                              {2, 267, 517}, {133, 2051}, {140, 2050},  {1057, 259}, {132, 1023}};
    return rng.pick(uneven);
  }
  static const std::vector<int64_t> widths = {1,  2,   3,   5,   7,   8,   12,  16,  24,   31,   32,   40,   64,  77,
                                              96, 128, 129, 160, 255, 256, 384, 512, 1000, 1024, 1536, 2048, 4099};
  static const std::vector<int64_t> rows = {1, 1, 2, 3, 4, 5, 7, 9, 16, 17, 33};
  Shape s{rng.pick(rows), rng.pick(widths)};
  if (rng.chance(35))
    s.insert(s.begin(), rng.range(1, 4));
  if (rng.chance(10))
    s.insert(s.begin(), rng.range(1, 3));
  if (rng.chance(12))
    s.erase(s.begin());
  if (rng.chance(4))
    s[static_cast<size_t>(rng.below(static_cast<int64_t>(s.size())))] = 0;
  // Large ones are rare: the interpreter is slow.
  int64_t n = 1;
  for (int64_t e : s)
    n *= e;
  if (n > 40000)
    s[0] = 1;
  return s;
}

/// Something elementwise that keeps values tame.
Generator::Val Generator::around(Val v) {
  for (int64_t more = rng.below(3); more > 0; --more) {
    std::optional<Val> next;
    if (!isFloat(v.type.dtype)) {
      if (rng.chance(30))
        next = emit("cast", {v}, {{"dtype", std::string(rng.chance(50) ? "f32" : "bf16")}});
      if (next)
        v = *next;
      continue;
    }
    switch (rng.below(9)) {
    case 0: next = emit("tanh", {v}); break;
    case 1: next = emit("mul", {v}, {}, Scalar{Scalar::Float, 0, 0.5}); break;
    case 2: next = emit("add", {v, input(v.type.dtype, v.type.shape)}); break;
    case 3:
      if (v.type.rank() > 0)
        next = emit("mul", {v, input(v.type.dtype, {v.type.shape.back()})});
      break;
    case 4: next = emit("silu", {v}); break;
    case 5: next = emit("cast", {v}, {{"dtype", std::string(rng.chance(50) ? "f32" : "bf16")}}); break;
    case 6:
      if (v.type.rank() > 1 && rng.chance(50)) {
        Shape dims;
        for (int64_t d = 0; d < v.type.rank(); ++d)
          dims.push_back(d);
        std::swap(dims[static_cast<size_t>(rng.below(v.type.rank()))], dims.back());
        next = emit("permute", {v}, {{"dims", list(dims)}});
      } else if (v.type.rank() > 0 && rng.chance(50)) {
        next = emit("flip", {v}, {{"dims", list({rng.below(v.type.rank())})}});
      }
      break;
    case 7: next = picked(v); break;
    default: next = emit("neg", {v}); break;
    }
    if (next)
      v = *next;
  }
  return v;
}

/// A norm of each few neighbouring elements of a row, as of heads; or what a sum of them leaves.
std::optional<Generator::Val> Generator::segments(Val v) {
  const int64_t width = v.type.shape.back(), size = int64_t{4} << rng.below(5);
  if (!isFloat(v.type.dtype) || isF8(v.type.dtype) || width % size != 0 || width == 0)
    return std::nullopt;
  Shape to = v.type.shape;
  to.back() = width / size;
  to.push_back(size);
  std::optional<Val> heads = emit("reshape", {v}, {{"shape", list(to)}}), r;
  const int64_t last = v.type.rank();
  switch (heads ? rng.below(4) : -1) {
  case 0: r = emit("softmax", {*heads}, {{"dim", integer(last)}}); break;
  case 1: r = emit("rms_norm", {*heads}); break;
  case 2:
    if (std::optional<Val> sum =
            emit(rng.chance(50) ? "sum" : "amax", {*heads}, {{"dims", list({last})}, {"keepdim", flag(true)}}))
      r = emit("sub", {*heads, *sum});
    break;
  case 3: return emit("mean", {*heads}, {{"dims", list({last})}});
  default: break;
  }
  return r ? emit("reshape", {*r}, {{"shape", list(v.type.shape)}}) : std::nullopt;
}

/// Rows, columns or elements in another order, some of them twice. The index may be a place that was computed.
std::optional<Generator::Val> Generator::picked(Val v) {
  if (v.type.rank() == 0 || v.type.elements() == 0)
    return std::nullopt;
  int64_t d = rng.below(v.type.rank()), kind = rng.below(4), extent = v.type.shape[static_cast<size_t>(d)];
  const DType index = rng.chance(50) ? DType::I32 : DType::I64;
  switch (kind) {
  case 0:
    return emit("index_select", {v, input(index, {rng.chance(60) ? extent : rng.range(1, 9)})}, {{"dim", integer(d)}});
  case 1: {
    Shape to = v.type.shape;
    if (rng.chance(40))
      to[static_cast<size_t>(d)] = rng.range(1, 9);
    return emit("gather", {v, input(index, to)}, {{"dim", integer(d)}});
  }
  case 2:
    if (v.type.rank() == 2)
      return emit("embedding", {v, input(index, {rng.chance(60) ? v.type.shape[0] : rng.range(1, 9)})});
    return std::nullopt;
  default: // of an input: of what was computed inexactly the greatest may be another
    for (const TensorSpec &t : spec.inputs)
      if (t.name == v.name)
        if (auto at = emit("argmax", {v}, {{"dim", integer(d)}, {"keepdim", flag(true)}}))
          return emit("gather", {v, *at}, {{"dim", integer(d)}});
    return std::nullopt;
  }
}

std::optional<Generator::Val> Generator::reduction(Val v) {
  if (v.type.rank() == 0)
    return emit("sum", {v});
  if (heads && rng.chance(60))
    if (std::optional<Val> r = segments(v))
      return r;
  const bool floats = isFloat(v.type.dtype);
  int64_t kind = rng.below(floats ? 8 : 3);
  if (kind >= 3 && !isF8(v.type.dtype)) {
    int64_t d = dimOf(v);
    Val w = input(rng.chance(70) ? v.type.dtype : DType::F32, {v.type.shape.back()});
    switch (kind) {
    case 3: return emit("softmax", {v}, {{"dim", integer(d)}});
    case 4: return emit("log_softmax", {v}, {{"dim", integer(d)}});
    case 5: return rng.chance(50) ? emit("rms_norm", {v, w}) : emit("rms_norm", {v});
    default:
      return rng.chance(50) ? emit("layer_norm", {v, w, input(v.type.dtype, {v.type.shape.back()})})
                            : emit("layer_norm", {v, w}, {{"eps", Scalar{Scalar::Float, 0, 1e-3}}});
    }
  }
  if (floats && v.type.rank() == 2 && v.type.shape[1] > 0 && rng.chance(15))
    return emit("cross_entropy", {v, input(DType::I64, {v.type.shape[0]})},
                rng.chance(50) ? std::map<std::string, AttrValue>{{"ignore_index", integer(rng.below(3))}}
                               : std::map<std::string, AttrValue>{});
  if (rng.chance(20))
    return emit(rng.chance(50) ? "argmax" : "argmin", {v},
                {{"dim", integer(dimOf(v))}, {"keepdim", flag(rng.chance(50))}});
  static const std::vector<std::string> ops = {"sum", "sum", "mean", "amax",      "amin",
                                               "any", "all", "var",  "logsumexp", "prod"};
  std::map<std::string, AttrValue> attrs{{"keepdim", flag(rng.chance(60))}};
  Shape dims{dimOf(v)};
  if (rng.chance(20) && v.type.rank() > 1)
    for (int64_t d = 0; d < v.type.rank(); ++d)
      if (d != dims[0] && rng.chance(50))
        dims.push_back(d);
  if (!rng.chance(5))
    attrs["dims"] = list(dims);
  const std::string &op = rng.pick(ops);
  if (op == "var" && rng.chance(40))
    attrs["correction"] = Scalar{Scalar::Float, 0, rng.chance(50) ? 0.0 : 2.0};
  return emit(op, {v}, attrs);
}

GraphSpec Generator::run() {
  static const std::vector<DType> floats = {DType::F32, DType::F32, DType::BF16, DType::BF16, DType::F16};
  static const std::vector<DType> others = {DType::I8, DType::U8, DType::I32, DType::I64, DType::Bool};
  spec.name = "rows";
  spec.strict = rng.chance(40);
  Val x = input(columns || rng.chance(85) ? rng.pick(floats) : rng.pick(others), shape()), v = x;
  std::vector<Val> wholes;
  std::vector<std::string> results;
  for (int64_t more = rng.range(1, 3); more > 0; --more) {
    Val before = v = around(v);
    if (before.type.shape == x.type.shape && isFloat(before.type.dtype))
      wholes.push_back(before);
    std::optional<Val> r = reduction(v);
    if (!r)
      continue;
    results.push_back(r->name);
    v = *r;
    // Back to the rows: x - mean(x) and the like. (x - log_softmax(x) is the same for a whole row, up to rounding.)
    if (isFloat(r->type.dtype) && isFloat(before.type.dtype) && rng.chance(60))
      if (std::optional<Val> back =
              emit(spec.nodes.back().op != "log_softmax" && rng.chance(50) ? "sub" : "mul", {before, *r})) {
        v = *back;
        if (rng.chance(40))
          results.push_back(v.name);
      }
  }
  v = around(v);
  std::vector<std::string> sums;
  for (size_t i = wholes.size(); columns && i-- > 0 && sums.size() < 2;) {
    Shape leading;
    for (int64_t d = 0; d + 1 < x.type.rank(); ++d)
      leading.push_back(d);
    if (leading.size() > 1 && rng.chance(50)) // rows in turn: a sum for each of the second dimension
      leading.resize(1);
    Val f32 = wholes[i];
    if (f32.type.dtype != DType::F32)
      f32 = *emit("cast", {f32}, {{"dtype", std::string("f32")}});
    if (std::optional<Val> sum = emit("sum", {f32}, {{"dims", list(leading)}}))
      sums.push_back(sum->name);
  }
  spec.outputs = sums;
  for (const NodeSpec &n : spec.nodes)
    if (std::find(sums.begin(), sums.end(), n.outputs[0]) != sums.end())
      continue;
    else if (n.outputs[0] == v.name ||
             (std::find(results.begin(), results.end(), n.outputs[0]) != results.end() && rng.chance(50)) ||
             rng.chance(8))
      spec.outputs.push_back(n.outputs[0]);
  if (spec.outputs.empty())
    spec.outputs.push_back(spec.nodes.empty() ? x.name : spec.nodes.back().outputs[0]);
  return std::move(spec);
}

/// Tame numbers, on an offset at times; now and then what is not finite: single elements, and rows of -inf alone.
HostTensor data(Rng &rng, const TensorType &type) {
  if (!isFloat(type.dtype) || isF8(type.dtype))
    return randomTensor(rng, type);
  HostTensor t{type, {}};
  t.data.resize(static_cast<size_t>(type.bytes()));
  const int64_t manner = rng.below(10), width = type.rank() ? type.shape.back() : 1;
  const double offset = manner == 0 ? 50 : 0;
  bool row = false;
  for (int64_t i = 0; i < type.elements(); ++i) {
    double v = rng.unit() * 6 - 3 + offset;
    if (manner == 1) // ties
      v = static_cast<double>(rng.range(-3, 3));
    if (width && i % width == 0)
      row = manner == 2 && rng.chance(30);
    if (row)
      v = -INFINITY;
    if (manner == 3 && rng.chance(2))
      v = rng.chance(40) ? NAN : rng.chance(50) ? INFINITY : -INFINITY;
    storeElement(t.data.data(), type.dtype, i, v);
  }
  return t;
}

/// Whether the results say anything: extremes and places of values that were computed inexactly do not, nor do long products and
/// sums of squares of 64-bit integers, which overflow f32 on the way, nor what rounding alone can make finite. Of products that vanish in
/// one order and not in another a norm makes numbers of any size, so that shorter ones do not where there is one.
bool isTelling(const Graph &graph, const std::vector<HostTensor> &want, const std::vector<HostTensor> &kept) {
  const int64_t longest =
      std::any_of(graph.nodes.begin(), graph.nodes.end(),
                  [](const Node &n) { return n.op == OpKind::LayerNorm || n.op == OpKind::RmsNorm; })
          ? 8
          : 64;
  for (const Node &n : graph.nodes)
    if (n.op == OpKind::Prod && isFloat(graph.type(n.outputs[0]).dtype) &&
        graph.type(n.inputs[0].value).elements() > longest * graph.type(n.outputs[0]).elements())
      return false;
  auto is64 = [&](const Node &n) {
    return n.op == OpKind::Cast && !n.inputs[0].isLiteral() && graph.type(n.inputs[0].value).dtype == DType::I64;
  };
  if (std::any_of(graph.nodes.begin(), graph.nodes.end(), is64))
    for (const Node &n : graph.nodes)
      if (n.op == OpKind::LayerNorm || n.op == OpKind::RmsNorm || n.op == OpKind::Var)
        return false;
  for (const Node &n : graph.nodes)
    if ((n.op == OpKind::ArgMax || n.op == OpKind::ArgMin || n.op == OpKind::Any || n.op == OpKind::All) &&
        !n.inputs[0].isLiteral() && graph.values[n.inputs[0].value].kind == Value::Result &&
        isFloat(graph.type(n.inputs[0].value).dtype))
      return false;
  return isFiniteAlike(want, kept);
}

/// Bit by bit, but for which NaN it is: packed and single conversions hand on different ones.
bool sameNumbers(const HostTensor &x, const HostTensor &y) {
  if (x.data == y.data)
    return true;
  const auto size = dtypeSize(x.type.dtype);
  for (int64_t i = 0; i < x.type.elements(); ++i)
    if (std::memcmp(x.data.data() + i * size, y.data.data() + i * size, size) != 0 &&
        !(isFloat(x.type.dtype) && std::isnan(loadElement(x.data.data(), x.type.dtype, i)) &&
          std::isnan(loadElement(y.data.data(), y.type.dtype, i))))
      return false;
  return true;
}

/// What can be said of a GPU's kernels without one: that there is code for each graph.
int compileAll(const std::string &name, uint64_t first, uint64_t end) {
  Result<CompileTarget> target = findCompileTarget(name);
  if (!target) {
    std::fprintf(stderr, "%s\n", target.error().str().c_str());
    return 1;
  }
  int failed = 0;
  for (uint64_t seed = first; seed < end; ++seed) {
    nameCrash("seed " + std::to_string(seed));
    Result<Graph> graph = resolve(Generator(seed).run());
    if (!graph)
      continue;
    if (Result<Compiled> code = compile(*graph, *target, {}); !code) {
      ++failed;
      std::printf("FAILED seed %llu: %s\n", static_cast<unsigned long long>(seed), code.error().str().c_str());
    }
  }
  std::printf("%s: rows, seeds %llu:%llu compiled, %d failed\n", name.c_str(), static_cast<unsigned long long>(first),
              static_cast<unsigned long long>(end), failed);
  return failed ? 4 : 0;
}

} // namespace

int main(int argc, char **argv) {
  SeedOptions options;
  std::string compileFor;
  for (int i = 1; i < argc; ++i) {
    std::string a = argv[i];
    if (options.take(argc, argv, i))
      continue;
    if (a == "--compile" && i + 1 < argc) {
      compileFor = argv[++i];
    } else {
      std::fprintf(stderr,
                   "usage: numeric_row_test [--target cpu|cuda | --compile T] [--seeds A:B] [--verify] [--print]\n");
      return 1;
    }
  }
  if (!compileFor.empty())
    return compileAll(compileFor, options.first, options.end);
  Result<std::unique_ptr<Device>> device = Device::create(options.target);
  if (!device) {
    std::fprintf(stderr, "%s\n", device.error().str().c_str());
    return 4;
  }
  int compared = 0;
  auto generate = [](uint64_t seed) { return Generator(seed).run(); };
  const int failed = countFailures(options, generate, [&](uint64_t seed, const GraphSpec &spec) -> std::string {
    Result<Graph> graph = resolve(spec);
    if (!graph)
      return {}; // an extreme of nothing
    // A column less a row of thousands: the interpreter would take minutes.
    constexpr int64_t kMost = 1 << 22;
    if (std::any_of(graph->values.begin(), graph->values.end(),
                    [&](const rl::Value &v) { return v.type.elements() > kMost; }))
      return {};
    Rng rng(seed * 77 + 5);
    std::vector<HostTensor> inputs;
    const std::map<std::string, int64_t> extents = indexExtents(spec);
    for (ValueId v : graph->inputs) {
      auto it = extents.find(graph->values[v].name);
      inputs.push_back(it == extents.end() ? data(rng, graph->type(v))
                                           : randomIndices(rng, graph->type(v), it->second));
    }
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
    const bool telling = isTelling(*graph, *want, *kept);
    const DType coarsest = coarsestType(*graph);
    Result<std::vector<HostTensor>> nudged = std::vector<HostTensor>();
    if (coarsest == DType::F32)
      nudged = interpret(*graph, inputs, {}, {}, Intermediates::Nudged);
    if (!nudged)
      return "interpreter: " + nudged.error().str();
    std::vector<HostTensor> before;
    for (bool offset : {false, true, false}) {
      Result<std::vector<HostTensor>> got = (*device)->run(**module, inputs, {}, offset);
      if (!got)
        return "does not run: " + got.error().str();
      std::optional<std::string> verified; // one of the outputs may ask
      if (options.verify && !offset)
        if (verified = verifyResults(*graph, inputs, {}, (*device)->record, *got); !verified->empty())
          return *verified;
      for (size_t o = 0; o < got->size(); ++o) {
        std::string text = telling ? compareSums((*want)[o], (*kept)[o], (*got)[o], coarsest,
                                                 nudged->empty() ? nullptr : &(*nudged)[o])
                                   : std::string();
        if (!text.empty()) {
          if (!verified)
            verified = verifyResults(*graph, inputs, {}, (*device)->record, *got);
          text = verified->empty() ? std::string() : text + "; " + *verified;
        }
        if (text.empty() && !before.empty() && !sameNumbers(before[o], (*got)[o]))
          text = "differs from run to run";
        if (!text.empty())
          return "output '" + spec.outputs[o] + "' (" + str((*got)[o].type) + (offset ? ", unaligned" : "") +
                 "): " + text;
      }
      before = *std::move(got);
    }
    compared += telling;
    return {};
  });
  std::printf("%s: rows, seeds %llu:%llu, %d compared, %d failed\n", options.target.c_str(),
              static_cast<unsigned long long>(options.first), static_cast<unsigned long long>(options.end), compared,
              failed);
  return failed || compared * 2 < static_cast<int>(options.end - options.first) ? 4 : 0;
}
