// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reading and finding machine descriptions.
#include "passes/cost/Target.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <set>

namespace rl::cost {
namespace detail {
/// The texts of targets/*.json, made by the build.
extern const char *const kTargetTexts[];
extern const size_t kTargetTextCount;
} // namespace detail

static constexpr const char *kTrafficNames[kTrafficCount] = {
    "copy",           "row",       "longRow", "column", "full",      "readStatistics",
    "columnPartials", "transpose", "gather",  "matrix", "matrixOnce"};

const char *trafficName(Traffic t) { return kTrafficNames[static_cast<size_t>(t)]; }

namespace {

using Json = nlohmann::json;

std::string lower(std::string_view s) {
  std::string out(s);
  for (char &c : out)
    c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

/// Reads fields of an object once each, keeps the first error, and can tell what was left over.
class Reader {
public:
  Reader(const Json &object, TargetDesc &target) : object(object), target(target) {}

  void text(const char *key, std::string &out) {
    const Json *v = take(key);
    if (v && v->is_string() && !v->get_ref<const std::string &>().empty())
      out = v->get<std::string>();
    else
      fail(key, "must be a non-empty string");
  }
  void flag(const char *key, bool &out) {
    const Json *v = take(key);
    if (v && v->is_boolean())
      out = v->get<bool>();
    else
      fail(key, "must be true or false");
  }
  void integer(const char *key, int &out) {
    const Json *v = take(key);
    if (v && v->is_number_integer())
      out = v->get<int>();
    else
      fail(key, "must be an integer");
  }
  void list(const char *key, std::vector<std::string> &out) {
    const Json *v = take(key);
    if (!v || !v->is_array())
      return fail(key, "must be a list of strings");
    for (const Json &e : *v) {
      if (!e.is_string())
        return fail(key, "must be a list of strings");
      out.push_back(e.get<std::string>());
    }
  }
  void number(const std::string &key, double &out, bool zeroAllowed = false) {
    if (const Json *v = take(key.c_str()))
      value(key, *v, out, zeroAllowed);
    else
      fail(key, "is missing");
  }
  /// An object of numbers; `store` answers false for a name that it does not know.
  template <class Store> void table(const char *key, Store store) {
    const Json *v = take(key);
    if (!v || !v->is_object())
      return fail(key, "must be an object");
    for (const auto &[name, entry] : v->items()) {
      double number = 0;
      std::string path = std::string(key) + "/" + name;
      value(path, entry, number, false);
      if (!store(name, number))
        fail(path, "is not a known name");
    }
  }
  Status finish() {
    for (const auto &[key, _] : object.items())
      if (!seen.count(key))
        fail(key, "is not a known field");
    return failed ? Status(error) : Status();
  }
  void fail(const std::string &path, const std::string &what) {
    if (!failed)
      error = invalid("/" + path, what);
    failed = true;
  }

private:
  const Json *take(const char *key) {
    seen.insert(key);
    auto it = object.find(key);
    return it == object.end() ? nullptr : &*it;
  }
  void value(const std::string &path, const Json &v, double &out, bool zeroAllowed) {
    if (!v.is_object() || v.size() != 2 || !v.contains("value") || !v.contains("source"))
      return fail(path, "must be {\"value\": number, \"source\": text}");
    if (!v["value"].is_number())
      return fail(path + "/value", "must be a number");
    if (!v["source"].is_string() || v["source"].get_ref<const std::string &>().empty())
      return fail(path + "/source", "must say where the number comes from");
    out = v["value"].get<double>();
    if (!std::isfinite(out) || out < 0 || (out == 0 && !zeroAllowed))
      return fail(path + "/value", "must be a positive number");
    target.sources[path] = v["source"].get<std::string>();
  }

  const Json &object;
  TargetDesc &target;
  std::set<std::string> seen;
  bool failed = false;
  Error error;
};

} // namespace

Result<TargetDesc> parseTarget(std::string_view text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object())
    return invalid("", "a target description is one JSON object");
  TargetDesc t;
  Reader r(json, t);
  r.text("name", t.name);
  r.text("description", t.description);
  r.text("arch", t.arch);
  r.flag("gpu", t.gpu);
  r.integer("sm", t.sm);
  r.list("aliases", t.aliases);
  r.list("deviceNames", t.deviceNames);

  r.number("smCount", t.smCount);
  r.number("clockHz", t.clockHz);
  r.number("fp32Lanes", t.fp32Lanes);
  r.number("issueLanes", t.issueLanes);
  r.number("specialLanes", t.specialLanes);
  r.number("fp32Peak", t.fp32Peak);
  r.table("tensorPeak", [&](const std::string &name, double v) {
    if (name == "tf32") {
      t.tf32Peak = v;
      return true;
    }
    std::optional<DType> type = parseDType(name);
    if (type)
      t.tensorPeak[static_cast<size_t>(*type)] = v;
    return type.has_value();
  });
  r.number("tensorAchieved", t.tensorAchieved);

  r.number("dramPeak", t.dramPeak);
  r.number("dramCopy", t.dramCopy);
  r.number("dramRead", t.dramRead);
  r.number("dramWrite", t.dramWrite);
  r.number("l2Bytes", t.l2Bytes);
  r.number("l2Usable", t.l2Usable);
  r.number("l2Bandwidth", t.l2Bandwidth);
  r.number("bytesInFlight", t.bytesInFlight);
  r.number("smBandwidth", t.smBandwidth, true);
  std::set<std::string> traffic;
  r.table("efficiency", [&](const std::string &name, double v) {
    for (size_t i = 0; i < kTrafficCount; ++i)
      if (name == kTrafficNames[i]) {
        t.efficiency[i] = v;
        traffic.insert(name);
        return true;
      }
    return false;
  });
  for (const char *name : kTrafficNames)
    if (!traffic.count(name))
      r.fail(std::string("efficiency/") + name, "is missing");

  r.number("sectorBytes", t.sectorBytes);
  r.number("lineBytes", t.lineBytes);
  r.number("vectorBytes", t.vectorBytes);
  r.number("sharedPerSm", t.sharedPerSm);
  r.number("sharedPerBlock", t.sharedPerBlock);
  r.number("sharedReserved", t.sharedReserved, true);
  r.number("sharedGranule", t.sharedGranule);
  r.number("registersPerSm", t.registersPerSm);
  r.number("registersPerThread", t.registersPerThread);
  r.number("registerGranule", t.registerGranule);
  r.number("maxThreadsPerBlock", t.maxThreadsPerBlock);
  r.number("maxThreadsPerSm", t.maxThreadsPerSm);
  r.number("maxBlocksPerSm", t.maxBlocksPerSm);
  r.number("warpSize", t.warpSize);
  r.number("maxParameterBytes", t.maxParameterBytes);
  r.number("maxGridX", t.maxGridX);
  r.table("activeClusters", [&](const std::string &name, double v) {
    if (name.empty() || name.size() > 2 ||
        !std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; }))
      return false;
    t.activeClusters[std::stoi(name)] = v;
    return true;
  });

  r.number("launchFirst", t.launchFirst);
  r.number("launchNext", t.launchNext);
  r.number("launchNextEarly", t.launchNextEarly);
  r.number("memoryLatency", t.memoryLatency);
  r.number("l2Latency", t.l2Latency);
  r.number("blockReduction", t.blockReduction);
  r.number("blockStart", t.blockStart, /*zeroAllowed=*/true);
  r.number("clusterReduction", t.clusterReduction, true);
  RL_TRY(r.finish());
  return t;
}

double TargetDesc::tensorFlops(DType type) const {
  double own = tensorPeak[static_cast<size_t>(type)];
  if (own > 0 || type == DType::F32)
    return own;
  if (isF8(type) || type == DType::I8) // widened to bf16 on the way into the unit
    return tensorPeak[static_cast<size_t>(DType::BF16)];
  return 0;
}

double TargetDesc::ridgePoint(DType type) const {
  double tensor = tensorFlops(type);
  return (tensor > 0 ? tensor : fp32Peak) / dramPeak;
}

const std::vector<TargetDesc> &allTargets() {
  static const std::vector<TargetDesc> targets = [] {
    std::vector<TargetDesc> list;
    for (size_t i = 0; i < detail::kTargetTextCount; ++i) {
      Result<TargetDesc> t = parseTarget(detail::kTargetTexts[i]);
      // The texts are part of the program and CostTest reads each; one that is wrong never ships.
      if (t)
        list.push_back(*std::move(t));
      else
        std::fprintf(stderr, "ridgeline: built-in target %zu: %s\n", i, t.error().str().c_str());
    }
    std::sort(list.begin(), list.end(), [](const TargetDesc &a, const TargetDesc &b) { return a.name < b.name; });
    return list;
  }();
  return targets;
}

Result<TargetDesc> findTarget(std::string_view name) {
  std::string wanted = lower(name), known;
  for (const TargetDesc &t : allTargets()) {
    if (wanted == t.name)
      return t;
    known += (known.empty() ? "" : ", ") + t.name;
    for (const std::string &alias : t.aliases) {
      if (wanted == alias)
        return t;
      known += ", " + alias;
    }
  }
  return usageError("unknown target '" + std::string(name) + "'; known: " + known);
}

Result<TargetDesc> targetForDevice(const DeviceFacts &facts) {
  int sm = facts.major * 10 + facts.minor;
  if (sm < 80)
    return unsupported("", "the GPU '" + facts.name + "' has compute capability " + std::to_string(facts.major) + "." +
                               std::to_string(facts.minor) + "; 8.0 or newer is needed");
  const TargetDesc *best = nullptr;
  std::string name = lower(facts.name);
  size_t length = 0;
  for (const TargetDesc &t : allTargets())
    for (const std::string &part : t.deviceNames)
      if (part.size() > length && t.sm <= sm && name.find(lower(part)) != std::string::npos) {
        best = &t;
        length = part.size();
      }
  if (!best)
    for (const TargetDesc &t : allTargets())
      if (t.gpu && t.sm <= sm && (!best || t.sm > best->sm))
        best = &t;
  if (!best)
    return unsupported("", "no target describes the GPU '" + facts.name + "'");

  TargetDesc t = *best;
  auto scale = [](double &v, double by) { v *= by; };
  double units = 1;
  if (facts.smCount > 0) {
    units *= facts.smCount / t.smCount;
    for (auto &[_, clusters] : t.activeClusters)
      clusters = std::max(1.0, std::floor(clusters * facts.smCount / t.smCount));
    t.smCount = facts.smCount;
  }
  if (facts.clockHz > 0) {
    units *= facts.clockHz / t.clockHz;
    t.clockHz = facts.clockHz;
  }
  scale(t.fp32Peak, units);
  scale(t.tf32Peak, units);
  for (double &peak : t.tensorPeak)
    scale(peak, units);
  if (facts.dramPeak > 0) {
    double by = facts.dramPeak / t.dramPeak;
    t.dramPeak = facts.dramPeak;
    scale(t.dramCopy, by);
    scale(t.dramRead, by);
    scale(t.dramWrite, by);
  }
  if (facts.l2Bytes > 0)
    t.l2Bytes = static_cast<double>(facts.l2Bytes);
  if (facts.sharedPerBlock > 0)
    t.sharedPerBlock = static_cast<double>(facts.sharedPerBlock);
  if (!facts.name.empty())
    t.description = facts.name;
  return t;
}

TargetDesc cpuTarget(int cores) {
  for (const TargetDesc &t : allTargets())
    if (!t.gpu) {
      TargetDesc cpu = t;
      double by = std::max(cores, 1) / cpu.smCount;
      cpu.smCount *= by;
      cpu.fp32Peak *= by;
      for (double &peak : cpu.tensorPeak)
        peak *= by;
      return cpu;
    }
  return {};
}

} // namespace rl::cost
