// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/safetensors/Safetensors.h"

#include "runtime/safetensors/Header.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>
#include <unordered_map>

namespace rl {

struct SafetensorsFile::Impl {
  std::string path; ///< empty for a buffer
  void *mapping = nullptr;
  size_t mappedBytes = 0;
  std::vector<SafetensorsEntry> entries;
  std::vector<SafetensorsHeaderEntry> foreign; ///< of a dtype or rank that no graph tensor has
  std::unordered_map<std::string_view, const SafetensorsEntry *> index;

  Impl() = default;
  Impl(const Impl &) = delete;
  Impl &operator=(const Impl &) = delete;
  ~Impl() {
    if (mapping)
      ::munmap(mapping, mappedBytes);
  }

  Status read(const std::byte *data, size_t bytes);
  Error at(Error error) const {
    error.file = path;
    return error;
  }
};

namespace {

constexpr size_t kGraphMaxRank = 8;

/// The tensors' ranges must tile the data section: no overlap, no gap, nothing left over.
Status checkRanges(const std::vector<SafetensorsHeaderEntry> &sorted, uint64_t dataBytes) {
  uint64_t place = 0;
  const SafetensorsHeaderEntry *before = nullptr;
  for (const SafetensorsHeaderEntry &e : sorted) {
    if (e.begin < place)
      return invalid(safetensorsPointer(e.name) + "/data_offsets",
                     "tensor " + printableName(e.name) + " overlaps tensor " + printableName(before->name));
    if (e.begin > place)
      return invalid(safetensorsPointer(e.name) + "/data_offsets", "a gap of " + std::to_string(e.begin - place) +
                                                                       " bytes stands before tensor " +
                                                                       printableName(e.name));
    place = e.end;
    before = &e;
  }
  if (place != dataBytes)
    return invalid({}, std::to_string(dataBytes - place) + " bytes at the end of the file belong to no tensor");
  return {};
}

std::string describe(const std::string &dtype, const std::vector<int64_t> &shape) {
  std::string out = dtype + " [";
  for (size_t i = 0; i < shape.size(); ++i)
    out += (i ? ", " : "") + (shape[i] < 0 ? std::string("any") : std::to_string(shape[i]));
  return out + "]";
}

bool fits(const TensorType &have, const TensorType &want) {
  return have.dtype == want.dtype && have.shape.size() == want.shape.size() &&
         std::equal(have.shape.begin(), have.shape.end(), want.shape.begin(),
                    [](int64_t h, int64_t w) { return w == -1 || h == w; });
}

} // namespace

Status SafetensorsFile::Impl::read(const std::byte *data, size_t bytes) {
  if (bytes < 8)
    return invalid({}, "not a safetensors file: " + std::to_string(bytes) + " bytes, where 8 of header length are due");
  uint64_t headerBytes = 0;
  for (int i = 7; i >= 0; --i)
    headerBytes = headerBytes << 8 | std::to_integer<uint64_t>(data[i]);
  if (headerBytes > bytes - 8)
    return invalid({}, "header runs past the end of the file: " + std::to_string(headerBytes) + " bytes, where " +
                           std::to_string(bytes - 8) + " follow its length");
  if (headerBytes > kSafetensorsMaxHeader)
    return invalid({}, "header of " + std::to_string(headerBytes) + " bytes is longer than " +
                           std::to_string(kSafetensorsMaxHeader));

  const std::byte *tensors = data + 8 + headerBytes;
  const uint64_t dataBytes = bytes - 8 - headerBytes;
  RL_ASSIGN(auto header, parseSafetensorsHeader({reinterpret_cast<const char *>(data) + 8, headerBytes}, dataBytes));
  // Empty tensors share their place with a neighbour: the name makes the order one.
  std::sort(header.begin(), header.end(), [](const SafetensorsHeaderEntry &a, const SafetensorsHeaderEntry &b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  RL_TRY(checkRanges(header, dataBytes));

  entries.reserve(header.size());
  for (SafetensorsHeaderEntry &e : header) {
    if (!e.dtype || e.shape.size() > kGraphMaxRank) {
      foreign.push_back(std::move(e));
      continue;
    }
    entries.push_back(
        {std::move(e.name), {*e.dtype, std::move(e.shape)}, tensors + e.begin, static_cast<size_t>(e.end - e.begin)});
  }
  index.reserve(entries.size());
  for (const SafetensorsEntry &e : entries)
    index.emplace(e.name, &e);
  return {};
}

Result<SafetensorsFile> SafetensorsFile::open(const std::string &path) {
  auto impl = std::make_shared<Impl>();
  impl->path = path;
  auto failed = [&](const char *what) {
    return impl->at(invalid({}, std::string(what) + ": " + std::strerror(errno)));
  };

  int fd =
      ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK); // non-blocking: a pipe without a writer must not hang
  if (fd < 0)
    return failed("cannot open");
  struct stat info;
  if (::fstat(fd, &info) != 0) {
    Error error = failed("cannot inspect");
    ::close(fd);
    return error;
  }
  if (!S_ISREG(info.st_mode)) {
    ::close(fd);
    return impl->at(invalid({}, S_ISDIR(info.st_mode) ? "is a directory, not a file" : "is not a regular file"));
  }
  auto bytes = static_cast<size_t>(info.st_size);
  if (bytes > 0) { // nothing of length 0 can be mapped
    void *mapping = ::mmap(nullptr, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
    if (mapping == MAP_FAILED) {
      Error error = failed("cannot map");
      ::close(fd);
      return error;
    }
    impl->mapping = mapping;
    impl->mappedBytes = bytes;
  }
  ::close(fd);
  if (Status status = impl->read(static_cast<const std::byte *>(impl->mapping), bytes); !status)
    return impl->at(status.takeError());
  SafetensorsFile file;
  file.impl = std::move(impl);
  return file;
}

Result<SafetensorsFile> SafetensorsFile::parse(const void *data, size_t bytes) {
  auto impl = std::make_shared<Impl>();
  RL_TRY(impl->read(static_cast<const std::byte *>(data), bytes));
  SafetensorsFile file;
  file.impl = std::move(impl);
  return file;
}

const std::vector<SafetensorsEntry> &SafetensorsFile::entries() const { return impl->entries; }

const SafetensorsEntry *SafetensorsFile::find(std::string_view name) const {
  auto it = impl->index.find(name);
  return it == impl->index.end() ? nullptr : it->second;
}

Result<const SafetensorsEntry *> SafetensorsFile::get(std::string_view name, const TensorType &type) const {
  const std::string pointer = safetensorsPointer(name);
  const std::string shown = printableName(name);
  const std::string wanted = describe(dtypeName(type.dtype), type.shape);
  const SafetensorsEntry *entry = find(name);
  if (!entry) {
    for (const SafetensorsHeaderEntry &e : impl->foreign)
      if (e.name == name)
        return impl->at(invalid(pointer, "tensor " + shown + " is " + describe(e.dtypeSpelling, e.shape) + ", where " +
                                             wanted + " is expected"));
    return impl->at(invalid(pointer, "tensor " + shown + " is missing"));
  }
  if (!fits(entry->type, type))
    return impl->at(invalid(pointer, "tensor " + shown + " is " +
                                         describe(dtypeName(entry->type.dtype), entry->type.shape) + ", where " +
                                         wanted + " is expected"));
  if (entry->type.dtype == DType::Bool) {
    const std::byte *end = entry->data + entry->bytes;
    const std::byte *bad = std::find_if(entry->data, end, [](std::byte b) { return b > std::byte{1}; });
    if (bad != end)
      return impl->at(invalid(pointer, "tensor " + shown + ": element " + std::to_string(bad - entry->data) +
                                           " is the byte " + std::to_string(std::to_integer<int>(*bad)) +
                                           ", where a bool is 0 or 1"));
  }
  return entry;
}

} // namespace rl
