// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random graphs on a target against the reference interpreter. What must be equal bit by bit is compared so, the rest within
// bounds that follow every rounding (see support/Evaluate.h). A graph that fails is made small and printed.
//
//   numeric_test [--target cpu|cuda] [--seeds A:B] [--numerics strict|fused|either] [--max-nodes N] [--max-elements N]
//                [--graph FILE] [--save DIR] [--shrinks N] [--print]
//   numeric_test --mutations A:B     breaks one node of each graph and asks that the comparison tells
#include "frontend/json/JsonReader.h"
#include "runtime/safetensors/Safetensors.h"
#include "tests/numeric/support/Device.h"
#include "tests/numeric/support/Evaluate.h"
#include "tests/numeric/support/Harness.h"
#include "tests/numeric/support/RandomGraph.h"
#include "tests/numeric/support/Shrink.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

using namespace rl;
using namespace rl::numeric;

namespace {

/// "" or why the case fails. `compiled`, where not null, is what the target gets in the place of the case's own graph.
std::string failure(Device &device, Oracle &oracle, const Case &c, const GraphSpec *compiled = nullptr) {
  Result<Graph> graph = resolve(c.spec);
  if (!graph)
    return "does not resolve: " + graph.error().str();
  Result<std::unique_ptr<Module>> module = device.compile(compiled ? *compiled : c.spec);
  if (!module)
    return "does not compile: " + module.error().str();
  Result<std::vector<Expected>> want = oracle.expect(*graph, c);
  if (!want)
    return "oracle: " + want.error().str();
  for (bool offset : {false, true}) {
    Result<std::vector<HostTensor>> got = device.run(**module, c.inputs, c.parameters, offset);
    if (!got)
      return "does not run: " + got.error().str();
    for (size_t o = 0; o < got->size(); ++o)
      if (std::string text = mismatch((*want)[o], (*got)[o]); !text.empty())
        return "output '" + c.spec.outputs[o] + "' (" + str((*got)[o].type) + (offset ? ", unaligned" : "") +
               "): " + text;
  }
  return {};
}

struct Options {
  std::string target = "cpu", graph, save;
  uint64_t first = 0, end = 100;
  RandomGraphOptions random;
  int shrinks = 3; ///< failures that are made small
  bool print = false, mutate = false;
};

void save(const std::string &directory, const std::string &name, const Case &c) {
  std::filesystem::create_directories(directory + "/" + name);
  std::ofstream(directory + "/" + name + "/graph.json") << printGraph(c.spec);
  std::vector<SafetensorsWrite> tensors;
  for (size_t i = 0; i < c.inputs.size(); ++i)
    tensors.push_back({c.spec.inputs[i].name, c.inputs[i].type, c.inputs[i].data.data()});
  for (size_t i = 0; i < c.parameters.size(); ++i)
    tensors.push_back({c.spec.parameters[i].name, c.parameters[i].type, c.parameters[i].data.data()});
  if (Status s = writeSafetensors(directory + "/" + name + "/in.safetensors", tensors); !s)
    std::fprintf(stderr, "%s\n", s.error().str().c_str());
}

bool report(Device &device, Oracle &oracle, Options &options, const std::string &name, const Case &c) {
  nameCrash(name);
  std::string text = failure(device, oracle, c);
  if (text.empty())
    return true;
  std::printf("FAILED %s: %s\n", name.c_str(), text.c_str());
  if (!options.save.empty())
    save(options.save, name, c);
  if (options.shrinks-- > 0) {
    // It must go on failing in the same manner: "output", "does not compile" ...
    std::string manner = text.substr(0, text.find_first_of(" :"));
    Case small = shrink(c, [&](const Case &candidate) {
      std::string t = failure(device, oracle, candidate);
      return !t.empty() && t.substr(0, t.find_first_of(" :")) == manner;
    });
    std::printf("%s made small: %s\n%s\n", name.c_str(), failure(device, oracle, small).c_str(),
                describeCase(small).c_str());
    if (!options.save.empty())
      save(options.save, name + "_small", small);
  }
  std::fflush(stdout);
  return false;
}

std::string seedName(uint64_t seed) { return "seed_" + std::to_string(seed); }

/// A graph with one live elementwise or layout node changed to another that is valid in its place; false where there is none.
bool mutate(GraphSpec &spec, uint64_t seed) {
  static const std::map<std::string, std::string> others = {{"add", "sub"},
                                                            {"sub", "add"},
                                                            {"mul", "add"},
                                                            {"maximum", "minimum"},
                                                            {"minimum", "maximum"},
                                                            {"lt", "le"},
                                                            {"le", "lt"},
                                                            {"gt", "ge"},
                                                            {"ge", "gt"},
                                                            {"eq", "ne"},
                                                            {"ne", "eq"},
                                                            {"floor", "ceil"},
                                                            {"ceil", "floor"},
                                                            {"round", "trunc"},
                                                            {"trunc", "floor"},
                                                            {"abs", "neg"},
                                                            {"neg", "abs"},
                                                            {"exp", "exp2"},
                                                            {"exp2", "exp"},
                                                            {"sin", "cos"},
                                                            {"cos", "sin"},
                                                            {"log", "log2"},
                                                            {"log2", "log"},
                                                            {"tanh", "erf"},
                                                            {"erf", "tanh"},
                                                            {"silu", "gelu"},
                                                            {"sigmoid", "tanh"},
                                                            {"fmod", "remainder"},
                                                            {"remainder", "fmod"},
                                                            {"logical_and", "logical_or"},
                                                            {"isnan", "isfinite"},
                                                            {"sqrt", "rsqrt"},
                                                            {"square", "abs"},
                                                            {"logical_or", "logical_xor"},
                                                            {"relu", "abs"},
                                                            {"bitwise_and", "bitwise_or"},
                                                            {"bitwise_or", "bitwise_xor"},
                                                            {"bitwise_xor", "bitwise_and"},
                                                            {"reciprocal", "neg"}};
  Rng rng(seed);
  std::vector<size_t> places;
  for (size_t n = 0; n < spec.nodes.size(); ++n)
    if (others.contains(spec.nodes[n].op) ||
        (spec.nodes[n].op == "flip" && !std::get<std::vector<Dim>>(spec.nodes[n].attrs["dims"]).empty()))
      places.push_back(n);
  if (places.empty())
    return false;
  NodeSpec &node = spec.nodes[rng.pick(places)];
  if (node.op == "flip")
    node.attrs["dims"] = std::vector<Dim>{};
  else
    node.op = others.at(node.op);
  return resolve(spec).ok();
}

/// Whether a broken graph gives other results at all, as the interpreter has it: max for min of equal operands does not.
bool shows(const GraphSpec &right, const GraphSpec &broken, const Case &c) {
  Result<Graph> a = resolve(right), b = resolve(broken);
  Result<std::vector<HostTensor>> x = interpret(*a, c.inputs, c.parameters), y = interpret(*b, c.inputs, c.parameters);
  if (!x || !y)
    return false;
  for (size_t o = 0; o < x->size(); ++o) {
    Expected e;
    e.type = (*x)[o].type;
    e.lo = (*x)[o];
    if (!mismatch(e, (*y)[o]).empty())
      return true;
  }
  return false;
}

/// Every broken graph that is compared bit by bit must be told where the break shows; of those compared within bounds nearly
/// all: a change may be as small as what rounding may do.
bool mutations(Device &device, Oracle &oracle, const Options &options) {
  int made[2] = {}, told[2] = {};
  for (uint64_t seed = options.first; seed < options.end; ++seed) {
    RandomGraphOptions random = options.random;
    random.maxNodes = 6;
    random.structures = false;
    random.transcendental = seed % 2 == 0; // where they are, a result may be off by some places
    Case c = withRandomData(randomGraph(seed, random), seed);
    GraphSpec broken = c.spec;
    nameCrash("mutation " + seedName(seed));
    if (!mutate(broken, seed) || !shows(c.spec, broken, c))
      continue;
    Result<Graph> graph = resolve(c.spec);
    bool exact = isDetermined(*graph);
    for (const Node &n : graph->nodes)
      exact &= !isTranscendental(n.op);
    std::string text = failure(device, oracle, c, &broken);
    if (text.starts_with("does not") || text.starts_with("oracle")) {
      std::printf("FAILED mutation %s: %s\n", seedName(seed).c_str(), text.c_str());
      return false;
    }
    ++made[exact];
    told[exact] += !text.empty();
    if (text.empty() && (exact || options.print))
      std::printf("not told: %s\n%s\n", printGraph(c.spec).c_str(), printGraph(broken).c_str());
  }
  std::printf("told: %d of %d broken graphs compared bit by bit, %d of %d compared within bounds\n", told[1], made[1],
              told[0], made[0]);
  return made[1] >= 10 && made[0] >= 10 && told[1] == made[1] && told[0] * 100 >= made[0] * 85;
}

bool parse(int argc, char **argv, Options &options) {
  for (int i = 1; i < argc; ++i) {
    std::string a = argv[i];
    auto value = [&]() -> std::string { return i + 1 < argc ? argv[++i] : ""; };
    auto seeds = [&] {
      std::string v = value();
      size_t colon = v.find(':');
      options.first = std::strtoull(v.c_str(), nullptr, 10);
      options.end = colon == std::string::npos ? options.first + 1 : std::strtoull(v.c_str() + colon + 1, nullptr, 10);
    };
    if (a == "--target")
      options.target = value();
    else if (a == "--seeds")
      seeds();
    else if (a == "--mutations")
      options.mutate = true, seeds();
    else if (a == "--graph")
      options.graph = value();
    else if (a == "--save")
      options.save = value();
    else if (a == "--max-nodes")
      options.random.maxNodes = std::atoi(value().c_str());
    else if (a == "--max-elements")
      options.random.maxElements = std::atoll(value().c_str());
    else if (a == "--numerics") {
      std::string v = value();
      options.random.numerics = v == "strict"  ? RandomGraphOptions::Strict
                                : v == "fused" ? RandomGraphOptions::Fused
                                               : RandomGraphOptions::Either;
    } else if (a == "--shrinks")
      options.shrinks = std::atoi(value().c_str());
    else if (a == "--print")
      options.print = true;
    else
      return false;
  }
  return true;
}

} // namespace

int main(int argc, char **argv) {
  Options options;
  if (!parse(argc, argv, options)) {
    std::fprintf(stderr,
                 "usage: numeric_test [--target cpu|cuda] [--seeds A:B | --mutations A:B | --graph FILE] [--numerics "
                 "strict|fused|either]\n"
                 "                    [--max-nodes N] [--max-elements N] [--save DIR] [--shrinks N] [--print]\n");
    return 1;
  }
  Result<std::unique_ptr<Device>> device = Device::create(options.target);
  if (!device) {
    std::fprintf(stderr, "%s\n", device.error().str().c_str());
    return 4;
  }
  Oracle oracle(**device);
  if (options.mutate)
    return mutations(**device, oracle, options) ? 0 : 4;
  if (!options.graph.empty()) {
    std::ifstream file(options.graph);
    std::stringstream text;
    text << file.rdbuf();
    Result<GraphSpec> spec = parseGraph(text.str());
    if (!spec) {
      std::fprintf(stderr, "%s\n", spec.error().str(options.graph).c_str());
      return 2;
    }
    bool fine = true;
    std::string data = std::filesystem::path(options.graph).parent_path().string() + "/in.safetensors";
    Case c = withRandomData(*spec, options.first);
    if (Result<SafetensorsFile> file = SafetensorsFile::open(data); file) {
      auto take = [&](const std::vector<TensorSpec> &specs, std::vector<HostTensor> &tensors) {
        for (size_t i = 0; i < specs.size(); ++i)
          if (Result<const SafetensorsEntry *> e = file->get(specs[i].name, tensors[i].type); e)
            tensors[i].data.assign((*e)->data, (*e)->data + (*e)->bytes);
      };
      take(spec->inputs, c.inputs);
      take(spec->parameters, c.parameters);
      return report(**device, oracle, options, options.graph, c) ? 0 : 4;
    }
    for (uint64_t seed = options.first; seed < options.end; ++seed)
      fine &= report(**device, oracle, options, options.graph + " " + seedName(seed), withRandomData(*spec, seed));
    return fine ? 0 : 4;
  }
  int failed = 0, determined = 0;
  auto start = std::chrono::steady_clock::now();
  for (uint64_t seed = options.first; seed < options.end; ++seed) {
    GraphSpec spec = randomGraph(seed, options.random);
    if (options.print) {
      std::printf("%s\n%s\n", seedName(seed).c_str(), printGraph(spec).c_str());
      if (!options.save.empty())
        save(options.save, seedName(seed), withRandomData(spec, seed));
    }
    determined += isDetermined(*resolve(spec));
    failed += !report(**device, oracle, options, seedName(seed), withRandomData(std::move(spec), seed));
  }
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  std::printf(
      "%s: seeds %llu:%llu, %d compared bit by bit, %llu within bounds, %d failed, %.1f s\n", options.target.c_str(),
      static_cast<unsigned long long>(options.first), static_cast<unsigned long long>(options.end), determined,
      static_cast<unsigned long long>(options.end - options.first) - static_cast<unsigned long long>(determined),
      failed, seconds);
  return failed ? 4 : 0;
}
