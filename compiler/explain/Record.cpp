// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/explain/Record.h"
#include "compiler/Plan.h"
#include "ir/dialect/OpModel.h"
#include "ir/dialect/Ridge.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <nlohmann/json.hpp>

#include <algorithm>

using namespace mlir;
using Json = nlohmann::ordered_json;

namespace rl {

static double real(DictionaryAttr d, StringRef name) {
  if (!d)
    return 0;
  if (auto f = d.getAs<FloatAttr>(name))
    return f.getValueAsDouble();
  if (auto i = d.getAs<IntegerAttr>(name))
    return static_cast<double>(i.getInt());
  return 0;
}
static int64_t integer(DictionaryAttr d, StringRef name) { return static_cast<int64_t>(real(d, name)); }

static Json tensorOf(mlir::Value v) {
  TensorType type = *ridge::toTensorType(v.getType());
  return {{"name", ridge::valueName(v).str()},
          {"dtype", dtypeName(type.dtype)},
          {"shape", type.shape},
          {"bytes", type.bytes()}};
}

namespace {

/// What all kernels of a function add up to.
struct Sums {
  int64_t bytes = 0;
  double seconds = 0;              ///< of kernels launched alone
  double saved = 0;                ///< as one is behind, beside or amid another
  llvm::DenseSet<int64_t> counted; ///< a node that two kernels compute is one node
  size_t unnumbered = 0;
};

/// `launch`: the kernel by whose name it is launched.
Json kernelOf(ridge::GroupOp g, const std::string &name, const std::string &launch,
              const std::vector<PackageLaunch> &launches, Sums &sums) {
  DictionaryAttr s = g.getScheduleAttr();
  Json k;
  k["name"] = name;
  if (launch != name)
    k["launch"] = launch;
  k["kind"] = g.getKind().str();
  k["nodes"] = Json::array();
  for (Operation &op : g.getBody().front().without_terminator()) {
    auto kind = ridge::opKind(&op);
    if (!kind)
      continue;
    auto at = op.getAttrOfType<IntegerAttr>(ridge::kNodeAttr);
    StringRef output = ridge::valueName(op.getResult(0));
    if (!at && output.empty() && isa<ridge::FullOp>(op))
      continue; // stands for a piece of which no element is read
    Json node = {{"op", opInfo(*kind).name}, {"output", output.str()}};
    if (at) {
      node["pointer"] = "/nodes/" + std::to_string(at.getInt());
      sums.counted.insert(at.getInt());
    } else {
      ++sums.unnumbered;
    }
    if (auto source = op.getAttrOfType<StringAttr>(ridge::kSourceAttr))
      node["source"] = source.str();
    k["nodes"].push_back(node);
  }
  k["inputs"] = Json::array();
  k["outputs"] = Json::array();
  for (mlir::Value v : g.getOperands())
    k["inputs"].push_back(tensorOf(v));
  for (mlir::Value v : g.getResults())
    k["outputs"].push_back(tensorOf(v));
  int64_t read = integer(s, "bytes_read"), written = integer(s, "bytes_written");
  double flops = real(s, "flops"), memory = real(s, "memory_seconds"), compute = real(s, "compute_seconds");
  k["bytes_read"] = read;
  k["bytes_written"] = written;
  k["bytes_unfused"] = integer(s, "bytes_unfused");
  k["flops"] = flops;
  k["intensity_flops_per_byte"] = read + written ? flops / static_cast<double>(read + written) : 0.0;
  k["ridge_point_flops_per_byte"] = real(s, "ridge_point");
  k["bound"] = compute > memory ? "compute" : "memory";
  k["memory_us"] = memory * 1e6;
  k["compute_us"] = compute * 1e6;
  k["predicted_us"] = real(s, "seconds") * 1e6;
  k["elements"] = integer(s, "elements");
  k["lanes"] = integer(s, "lanes");
  k["threads"] = integer(s, "threads") * std::max<int64_t>(1, integer(s, "rows_per_block"));
  if (int64_t width = integer(s, "width")) {
    k["rows"] = integer(s, "rows");
    k["width"] = width;
    k["vectors_per_thread"] = g.getKind() == "transpose" ? integer(s, "lanes") : integer(s, "unroll");
  }
  if (g.getKind() == "row") {
    k["rows_per_block"] = integer(s, "rows_per_block");
    k["resident"] = s.getAs<BoolAttr>("resident").getValue();
  }
  for (const PackageLaunch &l : launches)
    if (l.kind == PackageLaunch::Kernel && l.planName() == launch) {
      if (l.kernel != launch)
        k["code"] = l.kernel;
      k["blocks"] = l.blocks;
      k["early"] = l.early;
    }
  if (auto candidates = s ? s.getAs<DictionaryAttr>("candidates") : DictionaryAttr()) {
    Json tiles = Json::array();
    for (auto [tile, seconds] : llvm::zip(candidates.getAs<ArrayAttr>("tiles"), candidates.getAs<ArrayAttr>("seconds")))
      tiles.push_back({{"tile", cast<StringAttr>(tile).str()},
                       {"predicted_us", cast<FloatAttr>(seconds).getValueAsDouble() * 1e6}});
    for (auto [at, us] : llvm::enumerate(candidates.getAs<ArrayAttr>("measured_us")))
      tiles[at]["measured_us"] = cast<FloatAttr>(us).getValueAsDouble();
    k["candidates"] = {
        {"key", candidates.getAs<StringAttr>("key").str()}, {"taken", integer(candidates, "taken")}, {"tiles", tiles}};
  }
  k["why"] = Json::array();
  if (auto why = g.getWhyAttr())
    for (Attribute a : why)
      k["why"].push_back(cast<StringAttr>(a).str());
  sums.bytes += read + written;
  sums.seconds += real(s, "seconds");
  return k;
}

/// Each kernel is estimated as if it were launched alone. From the second on they start soon after the one before, while it still
/// runs, or with it.
double savedBehind(ridge::GroupOp g, const cost::TargetDesc &machine) {
  auto is = [&](StringRef name) {
    auto a = g.getScheduleAttr().getAs<BoolAttr>(name);
    return a && a.getValue();
  };
  if (is("joins"))
    return machine.launchFirst + machine.l2Latency;
  return std::max(0.0, machine.launchFirst - (is("early") ? machine.launchNextEarly : machine.launchNext));
}

Json kernelsOf(func::FuncOp f, bool atBind, const Package &package, const cost::TargetDesc &machine, Sums &sums) {
  Json kernels = Json::array();
  size_t index = 0;
  std::string launch;
  for (ridge::GroupOp g : f.getOps<ridge::GroupOp>()) {
    std::string name = kernelName(package.name, atBind, index++);
    if (integer(g.getScheduleAttr(), "elements") == 0)
      continue;
    auto joins = g.getScheduleAttr().getAs<BoolAttr>("joins");
    if (!joins || !joins.getValue())
      launch = name;
    const double saved = kernels.empty() ? 0 : savedBehind(g, machine);
    sums.saved += saved;
    kernels.push_back(kernelOf(g, name, launch, atBind ? package.bindLaunches : package.launches, sums));
    if (saved > 0)
      kernels.back()["saved_us"] = saved * 1e6;
  }
  return kernels;
}

Json precisionOf(const PrecisionRecord &r) {
  Json out = {{"mode", r.mode},
              {"tolerance", r.tolerance},
              {"error", r.error},
              {"error_kept", r.errorKept},
              {"observed", r.observed},
              {"predicted_us", r.seconds * 1e6},
              {"predicted_kept_us", r.secondsKept * 1e6},
              {"bind_us", r.atBind * 1e6},
              {"decisions", Json::array()}};
  for (const PrecisionDecision &d : r.decisions) {
    Json decision = {{"kind", d.kind}, {"name", d.name}};
    if (!d.op.empty())
      decision["op"] = d.op;
    if (!d.pointer.empty())
      decision["pointer"] = d.pointer;
    if (!d.source.empty())
      decision["source"] = d.source;
    decision["alternatives"] = Json::array();
    for (const PrecisionAlternative &a : d.alternatives) {
      Json alternative = {{"types", a.name},  {"predicted_us", a.seconds * 1e6}, {"bind_us", a.atBind * 1e6},
                          {"error", a.error}, {"error_at_output", a.atOutput},   {"chosen", a.chosen}};
      if (!a.refused.empty())
        alternative["refused"] = a.refused;
      decision["alternatives"].push_back(std::move(alternative));
    }
    decision["why"] = d.why;
    out["decisions"].push_back(std::move(decision));
  }
  return out;
}

} // namespace

Result<std::string> writeRecord(func::FuncOp f, func::FuncOp atBind, const PrecisionRecord &precision,
                                const Package &package, const cost::TargetDesc &machine) {
  Json record;
  record["ridgeline_record"] = 1;
  record["name"] = package.name;
  record["target"] = package.target;
  record["arch"] = package.arch;
  record["machine"] = machine.name;
  // The intensity at which arithmetic in f32, which pointwise kernels compute in, takes as long as memory.
  record["ridge_point_flops_per_byte"] = machine.ridgePoint(DType::F32);
  Sums sums;
  Json kernels = kernelsOf(f, false, package, machine, sums);
  int64_t bytes = sums.bytes;
  size_t copies = 0;
  for (const PackageLaunch &l : package.launches)
    if (l.kind == PackageLaunch::Copy) {
      ++copies;
      bytes += 2 * package.buffers[l.args[0]].bytes;
    }
  auto unfused = f->getAttrOfType<IntegerAttr>(ridge::kUnfusedBytesAttr);
  record["nodes"] = sums.counted.size() + sums.unnumbered;
  record["kernel_count"] = kernels.size();
  record["copies"] = copies;
  record["bytes"] = bytes;
  record["bytes_unfused"] = unfused ? unfused.getInt() : 0;
  record["predicted_us"] = (sums.seconds - sums.saved) * 1e6;
  record["arena_bytes"] = package.arenaBytes;
  record["kernels"] = std::move(kernels);
  if (!precision.mode.empty())
    record["precision"] = precisionOf(precision);
  if (atBind) {
    Sums once;
    record["bind_kernels"] = kernelsOf(atBind, true, package, machine, once);
    record["bind_bytes"] = once.bytes;
    record["bind_us"] = (once.seconds - once.saved) * 1e6;
    record["derived_bytes"] = package.derivedBytes;
  }
  return record.dump(1, ' ', false, Json::error_handler_t::replace);
}

static std::string amount(double bytes) {
  const char *unit[] = {"B", "kB", "MB", "GB", "TB"};
  int u = 0;
  while (bytes >= 1000 && u < 4) {
    bytes /= 1000;
    ++u;
  }
  char text[32];
  std::snprintf(text, sizeof text, u == 0 ? "%.0f %s" : "%.2f %s", bytes, unit[u]);
  return text;
}

static std::string fixed(double v, int digits) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", digits, v);
  return text;
}

static std::string shapeText(const Json &t) {
  std::string s = t.at("name").get<std::string>() + ": " + t.at("dtype").get<std::string>() + " [";
  bool first = true;
  for (const Json &e : t.at("shape")) {
    s += (first ? "" : ", ") + std::to_string(e.get<int64_t>());
    first = false;
  }
  return s + "]";
}

static std::string nodeList(const Json &kernel) {
  std::string line;
  size_t shown = 0, all = kernel.at("nodes").size();
  for (const Json &n : kernel.at("nodes")) {
    if (shown == 40 && all > 48) {
      line += " ... and " + std::to_string(all - shown) + " more";
      break;
    }
    line += (shown++ ? ", " : "") + n.at("output").get<std::string>() + " (" + n.at("op").get<std::string>() + ")";
  }
  return line;
}

static std::string candidateText(const Json &candidates) {
  std::string out = "predicted us: ";
  size_t at = 0;
  for (const Json &t : candidates.at("tiles")) {
    out += (at ? "; " : "") + t.at("tile").get<std::string>() + ": " + fixed(t.at("predicted_us").get<double>(), 1);
    if (double us = t.value("measured_us", 0.0); us > 0)
      out += " (measured " + fixed(us, 1) + ")";
    if (at++ == candidates.at("taken").get<size_t>())
      out += " *";
  }
  return out;
}

static std::string kernelText(const Json &k, double ridgePoint) {
  std::string out;
  out += "\nkernel " + k.at("name").get<std::string>() + " (" + k.at("kind").get<std::string>() + ")\n";
  out += "  nodes   " + nodeList(k) + "\n";
  for (const Json &t : k.at("inputs"))
    out += "  reads   " + shapeText(t) + "\n";
  for (const Json &t : k.at("outputs"))
    out += "  writes  " + shapeText(t) + "\n";
  out += "  bytes   " + amount(k.at("bytes_read").get<double>()) + " read, " +
         amount(k.at("bytes_written").get<double>()) + " written; unfused " +
         amount(k.at("bytes_unfused").get<double>()) + "\n";
  out += "  work    " + fixed(k.at("flops").get<double>() / 1e6, 2) + " Mflop, " +
         fixed(k.at("intensity_flops_per_byte").get<double>(), 2) + " flop/byte; ridge point " +
         fixed(k.value("ridge_point_flops_per_byte", ridgePoint), 1) + "\n";
  out += "  bound   " + k.at("bound").get<std::string>() + ": memory " + fixed(k.at("memory_us").get<double>(), 2) +
         " us, compute " + fixed(k.at("compute_us").get<double>(), 2) + " us; predicted " +
         fixed(k.at("predicted_us").get<double>(), 2) + " us" +
         (k.contains("saved_us")
              ? ", " + fixed(k.at("saved_us").get<double>(), 2) + " us less " +
                    (k.contains("launch") ? "in the launch that it shares" : "behind the kernel before") + "\n"
              : std::string("\n"));
  out += "  launch  " +
         (k.contains("launch") ? "with kernel " + k.at("launch").get<std::string>() + ": " : std::string()) +
         std::to_string(k.value("blocks", int64_t(0))) + " blocks of " +
         std::to_string(k.at("threads").get<int64_t>()) + " threads, " + std::to_string(k.at("lanes").get<int64_t>()) +
         (k.contains("width") ? " elements a vector, " + std::to_string(k.at("vectors_per_thread").get<int64_t>()) +
                                    " vectors a thread at once\n"
                              : " elements a thread\n");
  if (k.contains("code"))
    out += "  code    of kernel " + k.at("code").get<std::string>() + ", which is equal\n";
  if (k.contains("candidates"))
    out += "  tiles   " + candidateText(k.at("candidates")) + "\n";
  for (const Json &w : k.at("why"))
    out += "  why     " + w.get<std::string>() + "\n";
  return out;
}

static std::string precisionText(const Json &p) {
  auto real = [](const Json &j, const char *key) { return j.at(key).get<double>(); };
  auto error = [&](const Json &j, const char *key) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g", real(j, key));
    return std::string(text);
  };
  std::string out = "\nprecision " + p.at("mode").get<std::string>() + ", tolerance " + error(p, "tolerance") +
                    ": estimated error " + error(p, "error") + ", " + error(p, "error_kept") +
                    " with the types of the file" + (p.value("observed", false) ? ", by what samples showed" : "") +
                    "\n";
  out += "  predicted: " + fixed(real(p, "predicted_us"), 1) + " us for what is decided about, " +
         fixed(real(p, "predicted_kept_us"), 1) + " with the types of the file";
  if (real(p, "bind_us") > 0)
    out += "; " + fixed(real(p, "bind_us"), 1) + " us once, when parameters are bound";
  out += "\n";
  for (const Json &d : p.at("decisions")) {
    out += "  " + d.at("kind").get<std::string>() + " " + d.at("name").get<std::string>() + "\n";
    for (const Json &a : d.at("alternatives")) {
      out += std::string(a.at("chosen").get<bool>() ? "    takes   " : "    or      ") +
             a.at("types").get<std::string>() + ": " + fixed(real(a, "predicted_us"), 2) + " us, error " +
             error(a, "error") + ", " + error(a, "error_at_output") + " at an output";
      if (a.contains("refused"))
        out += "; not open: " + a.at("refused").get<std::string>();
      out += "\n";
    }
    out += "    why     " + d.at("why").get<std::string>() + "\n";
  }
  return out;
}

static std::string asText(const Json &r) {
  std::string out = "graph " + r.at("name").get<std::string>() + " for " + r.at("arch").get<std::string>() +
                    " (figures of " + r.at("machine").get<std::string>() +
                    "): " + std::to_string(r.at("nodes").get<int64_t>()) + " nodes in " +
                    std::to_string(r.at("kernel_count").get<int64_t>()) +
                    (r.at("kernel_count") == 1 ? " fused kernel" : " kernels") + "\n";
  if (r.at("copies") != 0)
    out += "  copies: " + std::to_string(r.at("copies").get<int64_t>()) + " (outputs that are inputs)\n";
  double bytes = r.at("bytes").get<double>(), unfused = r.at("bytes_unfused").get<double>();
  out += "  memory traffic: " + amount(bytes) + ", one kernel a node would move " + amount(unfused);
  if (bytes > 0 && unfused > 0)
    out += " (" + fixed(unfused / bytes, 1) + " times as much)";
  out += "\n  predicted: " + fixed(r.at("predicted_us").get<double>(), 1) +
         " us; intermediates: " + amount(r.at("arena_bytes").get<double>()) + "\n";
  const double ridgePoint = r.at("ridge_point_flops_per_byte").get<double>();
  for (const Json &k : r.at("kernels"))
    out += kernelText(k, ridgePoint);
  if (r.contains("bind_kernels")) {
    out += "\nwhen parameters are bound: " + amount(r.at("bind_bytes").get<double>()) + ", predicted " +
           fixed(r.at("bind_us").get<double>(), 1) + " us; kept: " + amount(r.at("derived_bytes").get<double>()) + "\n";
    for (const Json &k : r.at("bind_kernels"))
      out += kernelText(k, ridgePoint);
  }
  if (r.contains("precision"))
    out += precisionText(r.at("precision"));
  return out;
}

static std::string escaped(const std::string &s) {
  std::string out;
  for (char c : s)
    switch (c) {
    case '&': out += "&amp;"; break;
    case '<': out += "&lt;"; break;
    case '>': out += "&gt;"; break;
    case '"': out += "&quot;"; break;
    default: out += c;
    }
  return out;
}

static std::string precisionHtml(const Json &p) {
  char text[160];
  std::snprintf(text, sizeof text, "tolerance %.3g, estimated error %.3g, %.3g with the types of the file",
                p.at("tolerance").get<double>(), p.at("error").get<double>(), p.at("error_kept").get<double>());
  std::string out = "<h2>Precision</h2>\n<p>Mode " + escaped(p.at("mode").get<std::string>()) + ", " + text +
                    (p.value("observed", false) ? ", by what samples showed" : "") +
                    ".</p>\n<table><thead><tr><th>tensor<th>types<th>predicted us<th>error<th>at an "
                    "output<th>why</tr></thead><tbody>\n";
  for (const Json &d : p.at("decisions"))
    for (const Json &a : d.at("alternatives")) {
      const bool chosen = a.at("chosen").get<bool>();
      std::snprintf(text, sizeof text, "<td class=n>%.2f<td class=n>%.3g<td class=n>%.3g",
                    a.at("predicted_us").get<double>(), a.at("error").get<double>(),
                    a.at("error_at_output").get<double>());
      const std::string types = escaped(a.at("types").get<std::string>());
      out += "<tr><td>" + escaped(d.at("kind").get<std::string>() + " " + d.at("name").get<std::string>()) + "<td>" +
             (chosen ? "<b>" + types + "</b>" : types) + text + "<td>" +
             escaped(chosen ? d.at("why").get<std::string>() : a.value("refused", std::string())) + "</tr>\n";
    }
  return out + "</tbody></table>\n";
}

static std::string asHtml(const Json &r) {
  std::string name = escaped(r.at("name").get<std::string>());
  std::string out =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>" + name +
      "</title>\n<style>body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:64em;padding:0 1em}"
      "table{border-collapse:collapse;width:100%}td,th{border-bottom:1px solid #ccc;padding:.3em .6em;text-align:left;"
      "vertical-align:top}td.n{text-align:right;font-variant-numeric:tabular-nums}</style></head><body>\n<h1>" +
      name + "</h1>\n<p>" + std::to_string(r.at("nodes").get<int64_t>()) + " nodes in " +
      std::to_string(r.at("kernel_count").get<int64_t>()) +
      (r.at("kernel_count") == 1 ? " kernel for " : " kernels for ") + escaped(r.at("arch").get<std::string>()) +
      ". Memory traffic " + amount(r.at("bytes").get<double>()) + "; one kernel a node would move " +
      amount(r.at("bytes_unfused").get<double>()) + ". Predicted " + fixed(r.at("predicted_us").get<double>(), 1) +
      " us.</p>\n<table><thead><tr><th>kernel<th>nodes<th>read<th>written<th>unfused<th>flop/"
      "byte<th>bound<th>predicted us<th>why"
      "</tr></thead><tbody>\n";
  for (const Json &k : r.at("kernels")) {
    std::string why;
    for (const Json &w : k.at("why"))
      why += "<div>" + escaped(w.get<std::string>()) + "</div>";
    out += "<tr><td>" + escaped(k.at("name").get<std::string>()) + "<td>" + escaped(nodeList(k)) + "<td class=n>" +
           amount(k.at("bytes_read").get<double>()) + "<td class=n>" + amount(k.at("bytes_written").get<double>()) +
           "<td class=n>" + amount(k.at("bytes_unfused").get<double>()) + "<td class=n>" +
           fixed(k.at("intensity_flops_per_byte").get<double>(), 2) + "<td>" +
           escaped(k.at("bound").get<std::string>()) + "<td class=n>" + fixed(k.at("predicted_us").get<double>(), 2) +
           "<td>" + why + "</tr>\n";
  }
  out += "</tbody></table>\n";
  if (r.contains("precision"))
    out += precisionHtml(r.at("precision"));
  return out + "</body></html>\n";
}

Result<std::string> renderRecord(const std::string &record, std::string_view format) {
  if (format == "json")
    return record + "\n";
  Json r = Json::parse(record, nullptr, false);
  if (r.is_discarded())
    return invalid({}, "the decision record is not JSON");
  try {
    if (format == "text")
      return asText(r);
    if (format == "html")
      return asHtml(r);
  } catch (const Json::exception &e) {
    // A package's files may have been edited.
    return invalid({}, std::string("the decision record lacks what it should have: ") + e.what());
  }
  return usageError("unknown format '" + std::string(format) + "'; known: text, json, html");
}

} // namespace rl
