// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "frontend/engine/Options.h"

#include <nlohmann/json.hpp>

using Json = nlohmann::json;

namespace rl {

static Error bad(std::string pointer, std::string message) {
  return {Code::Usage, std::move(pointer), std::move(message)};
}

static Status readPrecision(const Json &value, PrecisionPolicy &policy) {
  policy = {};
  if (value.is_string()) {
    policy.mode = value.get<std::string>();
    return {};
  }
  if (!value.is_object())
    return bad("/precision", "must be a mode or an object");
  for (const auto &[key, v] : value.items()) {
    std::string at = "/precision/" + key;
    if (key == "mode" && v.is_string()) {
      policy.mode = v.get<std::string>();
    } else if (key == "tolerance" && v.is_number()) {
      policy.tolerance = v.get<double>();
    } else if (key == "pin" && v.is_object()) {
      for (const auto &[name, type] : v.items()) {
        auto dtype = type.is_string() ? parseDType(type.get<std::string>()) : std::nullopt;
        if (!dtype)
          return bad(at + "/" + name, "must name an element type");
        policy.pin[name] = *dtype;
      }
    } else {
      return bad(at, "unknown or wrong; known: mode (a string), tolerance (a number), pin (an object)");
    }
  }
  return {};
}

Status applyOptions(std::string_view text, GraphSpec &spec, EngineOptions &options) {
  if (text.empty())
    return {};
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    return bad({}, "the options must be one JSON object");
  for (const auto &[key, value] : json.items()) {
    if (key == "cache" && value.is_string()) {
      options.cache = value.get<std::string>();
    } else if (key == "precision") {
      RL_TRY(readPrecision(value, spec.precision));
    } else if (key == "dims" && value.is_object()) {
      for (const auto &[name, extent] : value.items()) {
        if (!extent.is_number_integer())
          return bad("/dims/" + name, "must be an integer");
        options.dims[name] = extent.get<int64_t>();
      }
    } else if (key == "delayed_scaling" && value.is_object()) {
      options.delayedScaling = 1;
      for (const auto &[name, every] : value.items()) {
        if (name != "every" || !every.is_number_integer() || every.get<int64_t>() < 1)
          return bad("/delayed_scaling/" + name, "unknown or wrong; known: every (an integer of at least 1)");
        options.delayedScaling = every.get<int64_t>();
      }
    } else {
      return bad("/" + key, "unknown or wrong; known: cache (a string), precision (a mode or an object), dims (an "
                            "object), delayed_scaling (an object)");
    }
  }
  return {};
}

} // namespace rl
