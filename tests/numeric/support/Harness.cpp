// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/numeric/support/Harness.h"
#include "frontend/cli/Compare.h"
#include "frontend/json/JsonReader.h"
#include "ir/interp/Convert.h"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <unistd.h>

namespace rl::numeric {

static char crashText[4096];
static void onCrash(int signal) {
  (void)!write(2, crashText, std::strlen(crashText));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void nameCrash(const std::string &what) {
  std::snprintf(crashText, sizeof crashText, "crashed in %s\n", what.c_str());
  static const bool once = [] {
    for (int s : {SIGSEGV, SIGABRT, SIGFPE, SIGILL, SIGBUS})
      std::signal(s, onCrash);
    return true;
  }();
  (void)once;
}

static void readSeeds(const char *text, uint64_t &first, uint64_t &end) {
  char *colon = nullptr;
  first = std::strtoull(text, &colon, 10);
  end = *colon == ':' ? std::strtoull(colon + 1, nullptr, 10) : first + 1;
}

static void reportFailure(uint64_t seed, const std::string &what, const GraphSpec &spec) {
  std::printf("FAILED seed %llu: %s\n%s\n", static_cast<unsigned long long>(seed), what.c_str(),
              printGraph(spec).c_str());
  std::fflush(stdout);
}

bool SeedOptions::take(int argc, char **argv, int &i) {
  const std::string a = argv[i];
  if (a == "--print")
    return print = true;
  if (a == "--verify")
    return verify = true;
  if (i + 1 == argc || (a != "--target" && a != "--seeds"))
    return false;
  if (a == "--target")
    target = argv[++i];
  else
    readSeeds(argv[++i], first, end);
  return true;
}

int countFailures(const SeedOptions &options, const std::function<GraphSpec(uint64_t)> &generate,
                  const std::function<std::string(uint64_t, const GraphSpec &)> &check) {
  int failed = 0;
  for (uint64_t seed = options.first; seed < options.end; ++seed) {
    nameCrash("seed " + std::to_string(seed));
    const GraphSpec spec = generate(seed);
    if (options.print)
      std::printf("%s\n", printGraph(spec).c_str());
    if (const std::string text = check(seed, spec); !text.empty()) {
      ++failed;
      reportFailure(seed, text, spec);
    }
  }
  return failed;
}

std::string compareSums(const HostTensor &want, const HostTensor &kept, const HostTensor &got, DType coarsest,
                        const HostTensor *nudged) {
  if (want.type != got.type)
    return "is " + str(got.type) + ", not " + str(want.type);
  const DType type = want.type.dtype;
  double largest = 1;
  for (int64_t i = 0; isFloat(type) && i < want.type.elements(); ++i)
    if (double v = loadElement(want.data.data(), type, i); std::isfinite(v))
      largest = std::max(largest, std::fabs(v));
  // The whole tensor's, as one nudge may leave a single element where it was.
  double moved = 0;
  for (int64_t i = 0; nudged && isFloat(type) && i < want.type.elements(); ++i)
    if (double d = std::fabs(loadElement(want.data.data(), type, i) - loadElement(nudged->data.data(), type, i));
        std::isfinite(d))
      moved = std::max(moved, d);
  const double step = coarsest == DType::F32 ? 3e-5 : coarsest == DType::F16 ? 0x1p-8 : 0x1p-5;
  for (int64_t i = 0; i < want.type.elements(); ++i) {
    bool fine;
    if (!isFloat(type)) {
      fine = loadInteger(want.data.data(), type, i) == loadInteger(got.data.data(), type, i);
    } else {
      double w = loadElement(want.data.data(), type, i), g = loadElement(got.data.data(), type, i);
      fine =
          std::isnan(w) || std::isnan(g) ? std::isnan(w) == std::isnan(g)
          : std::isinf(w) || std::isinf(g)
              ? w == g
              : std::fabs(w - g) <= step * largest + moved + 4 * std::fabs(w - loadElement(kept.data.data(), type, i));
    }
    if (!fine) {
      char text[160];
      std::snprintf(text, sizeof text, "element %lld is %.9g, not %.9g", static_cast<long long>(i),
                    loadElement(got.data.data(), type, i), loadElement(want.data.data(), type, i));
      return text;
    }
  }
  return {};
}

std::string verifyResults(const Graph &graph, const std::vector<HostTensor> &inputs,
                          const std::vector<HostTensor> &parameters, const std::string &record,
                          const std::vector<HostTensor> &got) {
  int kernels = 0;
  for (size_t at = 0; (at = record.find("\"bytes_read\"", at)) != std::string::npos; ++at)
    ++kernels;
  Result<cli::References> references =
      cli::References::make(graph, true, [&](const Graph &of, Intermediates kind, uint64_t nudging) {
        return interpret(of, inputs, parameters, {}, kind, nudging);
      });
  if (!references)
    return "interpreter: " + references.error().str();
  for (size_t o = 0; o < got.size(); ++o) {
    Result<cli::Comparison> c = references->compare(o, got[o].data.data(), -1, kernels > 1);
    if (!c)
      return "interpreter: " + c.error().str();
    if (!c->within) {
      char text[256];
      std::snprintf(text, sizeof text, "verify: output %zu (%s): %lld of %lld beyond %s; worst at %s: %.9g, not %.9g",
                    o, str(got[o].type).c_str(), static_cast<long long>(c->beyond), static_cast<long long>(c->elements),
                    c->rule.c_str(), c->worstPlace.c_str(), c->worstGot, c->worstWanted);
      return text;
    }
  }
  return {};
}

DType coarsestType(const Graph &graph) {
  DType coarsest = DType::F32;
  for (const Node &n : graph.nodes)
    if (DType t = graph.type(n.outputs[0]).dtype; t == DType::BF16 || (t == DType::F16 && coarsest == DType::F32))
      coarsest = t;
  return coarsest;
}

bool isFiniteAlike(const std::vector<HostTensor> &want, const std::vector<HostTensor> &kept) {
  for (size_t o = 0; o < want.size(); ++o)
    for (int64_t i = 0; isFloat(want[o].type.dtype) && i < want[o].type.elements(); ++i) {
      double v = loadElement(want[o].data.data(), want[o].type.dtype, i),
             u = loadElement(kept[o].data.data(), want[o].type.dtype, i);
      if ((std::isfinite(v) && std::fabs(v) > 1e30) || std::isfinite(v) != std::isfinite(u))
        return false;
    }
  return true;
}

} // namespace rl::numeric
