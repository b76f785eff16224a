// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Any bytes through the reader; what it accepts through the checks, the writer and back. Beyond not crashing: a printed
// graph reads back as itself and is judged alike, and a resolved graph written out resolves to itself.
#include "frontend/json/JsonReader.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>

using namespace rl;

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t maxSize);

/// Bytes mutated at random seldom stay JSON; half of the mutations therefore change a value or a key of the tree.
extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize, unsigned seed) {
  using Json = nlohmann::ordered_json;
  std::minstd_rand random(seed);
  auto below = [&](size_t n) { return static_cast<size_t>(random()) % n; };
  Json root = Json::parse(data, data + size, nullptr, /*allow_exceptions=*/false);
  if (root.is_discarded() || below(2) == 0)
    return LLVMFuzzerMutate(data, size, maxSize);

  std::vector<Json *> values{&root};
  std::vector<Json> names; // words of this file, to be used elsewhere in it
  for (size_t i = 0; i < values.size() && i < 4096; ++i) {
    if (values[i]->is_string())
      names.push_back(*values[i]);
    if (values[i]->is_object())
      for (auto &[key, value] : values[i]->items())
        names.push_back(key);
    if (values[i]->is_structured())
      for (Json &value : *values[i])
        values.push_back(&value);
  }
  auto word = [&]() -> Json {
    const std::vector<OpInfo> &ops = allOps();
    const OpInfo &op = ops[below(ops.size())];
    switch (below(4)) {
    case 0: return op.name;
    case 1: return op.attrs.empty() ? Json("dim") : Json(op.attrs[below(op.attrs.size())].name);
    case 2: return dtypeName(static_cast<DType>(below(kDTypeCount)));
    default: return names.empty() ? Json("x") : names[below(names.size())];
    }
  };
  Json &target = *values[below(values.size())];
  static const Json numbers[] = {0,         1,         -1,        2,   3,   8,    9,    -8,     127,  256,
                                 INT32_MAX, INT64_MAX, INT64_MIN, 0.5, 1.0, -0.0, 1e30, 1e-300, 1e308};
  switch (below(7)) {
  case 0: target = numbers[below(std::size(numbers))]; break;
  case 1: target = word(); break;
  case 2: target = below(2) == 0; break;
  case 3: target = Json(*values[below(values.size())]); break;
  case 4:
    if (target.is_array() && !target.empty())
      target.erase(below(target.size()));
    else if (target.is_object() && !target.empty())
      target.erase(std::next(target.begin(), static_cast<std::ptrdiff_t>(below(target.size()))));
    break;
  case 5:
    if (target.is_array())
      target.push_back(target.empty() || below(2) ? word() : Json(target[below(target.size())]));
    else if (target.is_object())
      target[word().get<std::string>()] = below(2) ? word() : numbers[below(std::size(numbers))];
    break;
  default:
    if (target.is_array())
      std::shuffle(target.begin(), target.end(), random);
    else if (target.is_number_integer())
      target = Json(static_cast<int64_t>(static_cast<uint64_t>(target.get<int64_t>()) + below(5) - 2));
    break;
  }
  std::string text = root.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > maxSize)
    return LLVMFuzzerMutate(data, size, maxSize);
  std::memcpy(data, text.data(), text.size());
  return text.size();
}

static void require(bool condition, const char *what) {
  if (condition)
    return;
  std::fprintf(stderr, "FuzzJson: %s\n", what);
  std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  Result<GraphSpec> spec = parseGraph({reinterpret_cast<const char *>(data), size});
  if (!spec) {
    require(!spec.error().message.empty(), "an error without a message");
    return 0;
  }
  std::string printed = printGraph(*spec);
  Result<GraphSpec> again = parseGraph(printed);
  require(again.ok(), "a printed graph is refused");
  require(printGraph(*again) == printed, "a printed graph reads back as another");

  Result<Signature> first = checkSpec(*spec), second = checkSpec(*again);
  require(first.ok() == second.ok(), "a printed graph is judged otherwise");
  if (!first) {
    require(first.error().str() == second.error().str(), "a printed graph has another error");
    return 0;
  }

  DimValues least;
  for (const DimSpec &dim : spec->dims)
    least[dim.name] = dim.min;
  Result<Graph> graph = resolve(*spec, least);
  if (!graph)
    return 0; // valid for other extents only
  GraphSpec written = specOf(*graph);
  Result<GraphSpec> readBack = parseGraph(printGraph(written));
  require(readBack.ok(), "a resolved graph, written out, is refused");
  Result<Graph> resolvedAgain = resolve(*readBack);
  if (!resolvedAgain)
    std::fprintf(stderr, "%s\n", resolvedAgain.error().str().c_str());
  require(resolvedAgain.ok(), "a resolved graph, written out, does not resolve");
  require(printGraph(specOf(*resolvedAgain)) == printGraph(written),
          "a resolved graph, written out, resolves to another");
  return 0;
}
