// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the decision record says, in short.
#include "frontend/cli/Work.h"

#include <nlohmann/json.hpp>

namespace rl::cli {

RecordSummary summarise(const std::string &record) {
  using Json = nlohmann::json;
  RecordSummary out;
  // The record of a package on disk is text that anyone may have written: whatever is missing or of another type is 0.
  auto real = [](const Json &j, const char *key) {
    auto it = j.find(key);
    return it != j.end() && it->is_number() ? it->get<double>() : 0.0;
  };
  auto text = [](const Json &j, const char *key) {
    auto it = j.find(key);
    return it != j.end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  Json json = Json::parse(record, nullptr, false);
  if (!json.is_object())
    return out;
  out.bytes = real(json, "bytes");
  out.bytesUnfused = real(json, "bytes_unfused");
  out.predictedMicroseconds = real(json, "predicted_us");
  out.nodes = static_cast<int64_t>(real(json, "nodes"));
  out.copies = static_cast<int64_t>(real(json, "copies"));
  auto kernels = json.find("kernels");
  if (kernels == json.end() || !kernels->is_array())
    return out;
  for (const Json &k : *kernels) {
    if (!k.is_object())
      continue;
    KernelSummary kernel;
    kernel.name = text(k, "name");
    kernel.launch = text(k, "launch").empty() ? kernel.name : text(k, "launch");
    kernel.bound = text(k, "bound");
    kernel.bytes = real(k, "bytes_read") + real(k, "bytes_written");
    kernel.bytesUnfused = real(k, "bytes_unfused");
    kernel.flops = real(k, "flops");
    kernel.predictedMicroseconds = real(k, "predicted_us");
    kernel.savedMicroseconds = real(k, "saved_us");
    auto nodes = k.find("nodes");
    if (nodes != k.end() && nodes->is_array()) {
      size_t shown = 0;
      for (const Json &n : *nodes) {
        if (!n.is_object())
          continue;
        if (shown == 24 && nodes->size() > 28) {
          kernel.nodes += " ... and " + std::to_string(nodes->size() - shown) + " more";
          break;
        }
        kernel.nodes += (shown++ ? ", " : "") + text(n, "output") + " (" + text(n, "op") + ")";
      }
    }
    out.kernels.push_back(std::move(kernel));
  }
  return out;
}

std::string summaryText(const RecordSummary &record, const std::string &graph, const Target &target) {
  const size_t count = record.kernels.size();
  std::string out = "graph " + graph + " on " + target.name;
  if (!target.arch.empty() && target.arch != target.name)
    out += " (" + target.arch + ")";
  out += ": " + std::to_string(record.nodes) + (record.nodes == 1 ? " node in " : " nodes in ") +
         std::to_string(count) + (count == 1 ? " fused kernel" : " fused kernels");
  if (record.copies)
    out += " and " + std::to_string(record.copies) + (record.copies == 1 ? " copy" : " copies");
  out += "\n";
  size_t shown = 0;
  for (const KernelSummary &k : record.kernels) {
    if (shown++ == 20 && count > 24) {
      out += "  ... and " + std::to_string(count - 20) + " more kernels; ridgeline explain shows them all\n";
      break;
    }
    out += "  " + k.name + ": " + k.nodes + "\n";
  }
  out += "bytes moved: " + amount(record.bytes) + "; unfused, one kernel a node: " + amount(record.bytesUnfused);
  if (record.bytes > 0 && record.bytesUnfused > record.bytes)
    out += " (" + fixed(record.bytesUnfused / record.bytes, 1) + " times as much)";
  return out + "\n";
}

} // namespace rl::cli
