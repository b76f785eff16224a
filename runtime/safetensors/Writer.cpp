// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/base/WriteAll.h"
#include "runtime/safetensors/Header.h"
#include "runtime/safetensors/Safetensors.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <numeric>
#include <sys/stat.h>
#include <unistd.h>
#include <unordered_set>

namespace rl {
namespace {

/// A JSON string. Bytes above 0x7F pass as they are: the whole header is checked to be UTF-8 afterwards.
std::string jsonString(std::string_view text) {
  std::string out = "\"";
  for (char c : text) {
    auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", byte);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

/// The length field and the header, padded with spaces to a multiple of 64 bytes. `order`: the data's.
Result<std::string> formatHeader(const std::vector<SafetensorsWrite> &tensors, const std::vector<size_t> &order) {
  std::string json = "{";
  uint64_t place = 0;
  for (size_t i : order) {
    const SafetensorsWrite &t = tensors[i];
    json += (json.size() > 1 ? "," : "") + jsonString(t.name) + ":{\"dtype\":\"" + safetensorsName(t.type.dtype) +
            "\",\"shape\":[";
    for (size_t d = 0; d < t.type.shape.size(); ++d)
      json += (d ? "," : "") + std::to_string(t.type.shape[d]);
    json += "],\"data_offsets\":[" + std::to_string(place) + ",";
    place += static_cast<uint64_t>(t.type.bytes());
    json += std::to_string(place) + "]}";
  }
  json += "}";
  if (!nlohmann::json::accept(json))
    return invalid({}, "a tensor's name is not UTF-8");
  constexpr size_t kAlign = 64, kLength = 8;
  json.append((kAlign - (json.size() + kLength) % kAlign) % kAlign, ' ');
  if (json.size() > kSafetensorsMaxHeader)
    return invalid({}, "header of " + std::to_string(json.size()) + " bytes is longer than " +
                           std::to_string(kSafetensorsMaxHeader));
  std::string out;
  for (size_t i = 0; i < kLength; ++i)
    out += static_cast<char>(static_cast<uint64_t>(json.size()) >> (8 * i) & 0xFF);
  return out + json;
}

/// Where the bytes really go: through symbolic links, so that a link is kept and its target replaced.
std::string resolved(const std::string &path) {
  std::string out = path;
  if (char *real = ::realpath(path.c_str(), nullptr)) {
    out = real;
    std::free(real);
  }
  return out;
}

} // namespace

/// Checks the tensors; `order` becomes the data's.
static Result<std::string> headerOf(const std::vector<SafetensorsWrite> &tensors, std::vector<size_t> &order) {
  std::unordered_set<std::string_view> names;
  for (const SafetensorsWrite &t : tensors) {
    if (t.name == "__metadata__")
      return invalid(safetensorsPointer(t.name), "the safetensors format keeps the name __metadata__ for itself");
    for (int64_t extent : t.type.shape)
      if (extent < 0)
        return invalid(safetensorsPointer(t.name),
                       "tensor " + printableName(t.name) + " has an extent that is not known");
    if (!names.insert(t.name).second)
      return invalid(safetensorsPointer(t.name), "tensor " + printableName(t.name) + " is written twice");
  }
  order.resize(tensors.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    size_t sizeA = dtypeSize(tensors[a].type.dtype), sizeB = dtypeSize(tensors[b].type.dtype);
    return sizeA != sizeB ? sizeA > sizeB : a < b;
  });
  return formatHeader(tensors, order);
}

Result<std::string> formatSafetensors(const std::vector<SafetensorsWrite> &tensors) {
  std::vector<size_t> order;
  RL_ASSIGN(std::string out, headerOf(tensors, order));
  for (size_t i : order)
    out.append(static_cast<const char *>(tensors[i].data), static_cast<size_t>(tensors[i].type.bytes()));
  return out;
}

Status writeSafetensors(const std::string &path, const std::vector<SafetensorsWrite> &tensors) {
  std::vector<size_t> order;
  RL_ASSIGN(std::string header, headerOf(tensors, order));
  auto failed = [&](const char *what) {
    Error error = deviceError(std::string(what) + ": " + std::strerror(errno));
    error.file = path;
    return error;
  };
  const std::string target = resolved(path);
  struct stat info;
  const bool exists = ::stat(target.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) {
    errno = EISDIR;
    return failed("cannot write");
  }
  const bool direct = exists && !S_ISREG(info.st_mode);
  const std::string folder = target.substr(0, target.rfind('/') + 1); // empty where the path has no '/'
  static std::atomic<unsigned> counter{0};
  std::string beside = target;
  int fd = -1;
  if (direct)
    fd = ::open(target.c_str(), O_WRONLY | O_CLOEXEC);
  // A name may be left over from a process of the same id that was killed: then the next one.
  for (int attempt = 0; !direct && fd < 0 && attempt < 1000; ++attempt) {
    beside = folder + ".rl-" + std::to_string(::getpid()) + "-" + std::to_string(counter++) + ".tmp";
    fd = ::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0 && errno != EEXIST)
      break;
  }
  if (fd < 0)
    return failed("cannot write");
  bool ok = writeAll(fd, header);
  for (size_t i : order)
    ok = ok && writeAll(fd, {static_cast<const char *>(tensors[i].data), static_cast<size_t>(tensors[i].type.bytes())});
  int problem = ok ? 0 : errno;
  if (::close(fd) != 0 && problem == 0) // where a quota or a network file system reports a full disk
    problem = errno;
  if (problem == 0 && !direct && ::rename(beside.c_str(), target.c_str()) != 0)
    problem = errno;
  if (problem == 0)
    return {};
  if (!direct)
    ::unlink(beside.c_str());
  errno = problem;
  return failed("cannot write");
}

} // namespace rl
