// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/package/PtxKernels.h"

#include <algorithm>
#include <cctype>

namespace rl {

/// The name of the kernel that a line begins; empty where it begins none.
static std::string_view kernelBegunBy(std::string_view line) {
  auto skip = [&](std::string_view word) {
    line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
    if (!line.starts_with(word))
      return false;
    line.remove_prefix(word.size());
    return true;
  };
  if (!skip(".visible "))
    skip(".weak ");
  if (!skip(".entry "))
    return {};
  line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
  auto end = std::find_if(line.begin(), line.end(), [](char c) {
    return !std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '$' && c != '.';
  });
  return line.substr(0, static_cast<size_t>(end - line.begin()));
}

std::vector<PtxKernel> ptxKernels(std::string_view ptx) {
  std::vector<PtxKernel> out;
  bool inside = false, opened = false;
  int depth = 0;
  for (size_t at = 0; at < ptx.size();) {
    size_t end = ptx.find('\n', at);
    end = end == std::string_view::npos ? ptx.size() : end + 1;
    std::string_view line = ptx.substr(at, end - at);
    if (std::string_view name = inside ? std::string_view() : kernelBegunBy(line); !name.empty()) {
      out.push_back({name, at, end});
      inside = true;
      opened = false;
      depth = 0;
    }
    if (inside) {
      line = line.substr(0, line.find("//"));
      const auto opens = std::count(line.begin(), line.end(), '{');
      depth += static_cast<int>(opens - std::count(line.begin(), line.end(), '}'));
      opened |= opens > 0; // a signature has none
      out.back().end = end;
      inside = !opened || depth > 0;
    }
    at = end;
  }
  return out;
}

std::set<std::string_view> otherKernels(const Package &package) {
  std::set<std::string_view> own, other, out;
  for (const std::vector<PackageLaunch> *list : {&package.launches, &package.bindLaunches})
    for (const PackageLaunch &l : *list) {
      own.insert(l.kernel);
      if (!l.unalignedKernel.empty())
        other.insert(l.unalignedKernel);
    }
  for (const PtxKernel &k : ptxKernels(package.ptx))
    if (other.contains(k.name) && !own.contains(k.name))
      out.insert(k.name);
  return out;
}

std::string ptxPart(const Package &package, CodePart part) {
  const std::set<std::string_view> others = otherKernels(package);
  if (others.empty())
    return part == CodePart::Usual ? package.ptx : std::string();
  std::string out;
  size_t at = 0;
  for (const PtxKernel &k : ptxKernels(package.ptx)) {
    const bool keeps = others.contains(k.name) == (part == CodePart::Other);
    out.append(package.ptx, at, (keeps ? k.end : k.begin) - at);
    at = k.end;
  }
  return out.append(package.ptx, at);
}

} // namespace rl
