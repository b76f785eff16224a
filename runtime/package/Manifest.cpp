// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// manifest.json: a Package as JSON and back. Reading trusts nothing: each value is checked for its type and range where
// it is taken, and validatePackage checks what the values mean together.
#include "runtime/package/Manifest.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

namespace rl {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

uint64_t fileHash(std::string_view contents) {
  constexpr uint64_t prime = 0x100000001b3, basis = 0xcbf29ce484222325;
  uint64_t hash = basis;
  size_t i = 0;
  auto mix = [&](uint64_t word) { hash = std::rotl((hash ^ word) * prime, 29); };
  for (; i + 8 <= contents.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, contents.data() + i, 8);
    mix(word);
  }
  uint64_t tail = 0;
  std::memcpy(&tail, contents.data() + i, contents.size() - i);
  mix(tail);
  mix(contents.size());
  return hash ^ hash >> 32;
}

namespace {

std::string hex(uint64_t value) {
  char buffer[17];
  std::snprintf(buffer, sizeof buffer, "%016llx", static_cast<unsigned long long>(value));
  return buffer;
}

// ---- writing

OrderedJson json(const std::vector<PackageTensor> &tensors) {
  OrderedJson out = OrderedJson::array();
  for (const PackageTensor &t : tensors)
    out.push_back({{"name", t.name}, {"dtype", dtypeName(t.type.dtype)}, {"shape", t.type.shape}});
  return out;
}

OrderedJson json(const Extent3 &e) { return OrderedJson::array({e.x, e.y, e.z}); }

constexpr std::array<const char *, 5> kBufferKinds = {"input", "parameter", "output", "arena", "derived"};

bool hasOffset(PackageBuffer::Kind kind) { return kind == PackageBuffer::Arena || kind == PackageBuffer::Derived; }

OrderedJson json(const PackageBuffer &b) {
  OrderedJson out{{"kind", kBufferKinds[std::min<size_t>(b.kind, kBufferKinds.size() - 1)]}};
  if (hasOffset(b.kind))
    out["offset"] = b.offset;
  else
    out["index"] = b.index;
  out["bytes"] = b.bytes;
  return out;
}

OrderedJson json(const PackageTensorMap &m) {
  return {{"arg", m.arg},         {"offset", m.offset}, {"dtype", dtypeName(m.dtype)}, {"extents", m.extents},
          {"strides", m.strides}, {"box", m.box},       {"swizzle", m.swizzle},        {"l2_promotion", m.l2Promotion}};
}

OrderedJson json(const PackageLaunch &l) {
  if (l.kind == PackageLaunch::Copy)
    return {{"kind", "copy"},
            {"to", l.args.size() > 0 ? l.args[0] : 0},
            {"from", l.args.size() > 1 ? l.args[1] : 0},
            {"label", l.label}};
  OrderedJson out{
      {"kind", "kernel"},       {"kernel", l.kernel},         {"args", l.args},     {"grid", json(l.grid)},
      {"block", json(l.block)}, {"cluster", json(l.cluster)}, {"blocks", l.blocks}, {"shared_bytes", l.sharedBytes},
      {"align", l.align}};
  if (!l.name.empty())
    out["name"] = l.name;
  if (l.persistent)
    out["persistent"] = true;
  if (l.early)
    out["early"] = true;
  if (!l.tensorMaps.empty()) {
    OrderedJson &maps = out["tensor_maps"] = OrderedJson::array();
    for (const PackageTensorMap &m : l.tensorMaps)
      maps.push_back(json(m));
  }
  if (!l.unalignedKernel.empty())
    out["unaligned"] = {{"kernel", l.unalignedKernel},
                        {"grid", json(l.unalignedGrid)},
                        {"block", json(l.unalignedBlock)},
                        {"cluster", json(l.unalignedCluster)},
                        {"shared_bytes", l.unalignedSharedBytes}};
  out["label"] = l.label;
  return out;
}

// ---- reading

/// Takes values out of objects; the first thing that does not fit becomes the error, and the rest is not looked at.
class Reader {
public:
  bool failed() const { return !status.ok(); }
  Status takeStatus() { return std::move(status); }

  void fail(std::string pointer, std::string message) {
    if (status.ok())
      status = invalid(std::move(pointer), std::move(message));
  }

  /// True where `value` is an object with all of `required` and nothing beyond those and `optional`.
  bool object(const Json &value, const std::string &where, std::initializer_list<const char *> required,
              std::initializer_list<const char *> optional = {}) {
    if (failed())
      return false;
    if (!value.is_object()) {
      fail(where, "must be an object");
      return false;
    }
    size_t found = 0;
    for (const char *key : required)
      if (value.contains(key))
        ++found;
      else
        fail(where, std::string("key '") + key + "' is missing");
    for (const char *key : optional)
      found += value.contains(key);
    if (!failed() && found != value.size())
      for (const auto &[key, unused] : value.items()) {
        bool known = false;
        for (const char *name : required)
          known |= key == name;
        for (const char *name : optional)
          known |= key == name;
        if (!known)
          fail(where, "unknown key '" + key + "'");
      }
    return !failed();
  }

  const Json *array(const Json &object, const char *key, const std::string &where, size_t limit) {
    const Json &value = object[key];
    if (!value.is_array() || value.size() > limit) {
      fail(where + "/" + key, "must be an array of at most " + std::to_string(limit) + " elements");
      return nullptr;
    }
    return failed() ? nullptr : &value;
  }

  int64_t integer(const Json &value, const std::string &where, int64_t low, int64_t high) {
    int64_t out = 0;
    bool fits = value.is_number_integer();
    if (fits && value.is_number_unsigned()) {
      uint64_t u = value.get<uint64_t>();
      fits = u <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
      out = static_cast<int64_t>(u);
    } else if (fits) {
      out = value.get<int64_t>();
    }
    if (!fits || out < low || out > high) {
      fail(where, "must be an integer from " + std::to_string(low) + " to " + std::to_string(high));
      return low;
    }
    return out;
  }

  int64_t integer(const Json &object, const char *key, const std::string &where, int64_t low, int64_t high) {
    return integer(object[key], where + "/" + key, low, high);
  }

  std::string string(const Json &object, const char *key, const std::string &where) {
    const Json &value = object[key];
    if (!value.is_string()) {
      fail(where + "/" + key, "must be a string");
      return {};
    }
    return value.get<std::string>();
  }

  bool boolean(const Json &object, const char *key, const std::string &where) {
    const Json &value = object[key];
    if (!value.is_boolean()) {
      fail(where + "/" + key, "must be true or false");
      return false;
    }
    return value.get<bool>();
  }

  template <class T>
  void integers(const Json &object, const char *key, const std::string &where, size_t limit, int64_t low, int64_t high,
                std::vector<T> &out) {
    if (const Json *list = array(object, key, where, limit))
      for (const Json &item : *list)
        out.push_back(static_cast<T>(integer(item, where + "/" + key + "/" + std::to_string(out.size()), low, high)));
  }

  DType dtype(const Json &object, const char *key, const std::string &where) {
    std::string text = string(object, key, where);
    if (auto parsed = parseDType(text))
      return *parsed;
    fail(where + "/" + key, "'" + text + "' is not an element type");
    return {};
  }

  Extent3 extent(const Json &object, const char *key, const std::string &where) {
    const Json *list = array(object, key, where, 3);
    if (!list)
      return {};
    if (list->size() != 3) {
      fail(where + "/" + key, "must have three elements");
      return {};
    }
    constexpr int64_t most = std::numeric_limits<uint32_t>::max();
    auto get = [&](size_t i) {
      return static_cast<uint32_t>(integer((*list)[i], where + "/" + key + "/" + std::to_string(i), 0, most));
    };
    return {get(0), get(1), get(2)};
  }

private:
  Status status;
};

constexpr size_t kMaxElements = 1 << 24;
constexpr int64_t kAny = std::numeric_limits<int64_t>::max();

void readTensors(Reader &r, const Json &top, const char *key, std::vector<PackageTensor> &out) {
  const Json *list = r.array(top, key, "", kMaxElements);
  if (!list)
    return;
  out.reserve(list->size());
  for (const Json &item : *list) {
    std::string where = std::string("/") + key + "/" + std::to_string(out.size());
    if (!r.object(item, where, {"name", "dtype", "shape"}))
      return;
    PackageTensor t;
    t.name = r.string(item, "name", where);
    t.type.dtype = r.dtype(item, "dtype", where);
    if (const Json *shape = r.array(item, "shape", where, 8))
      for (const Json &extent : *shape)
        t.type.shape.push_back(r.integer(extent, where + "/shape/" + std::to_string(t.type.shape.size()), 0, kAny));
    out.push_back(std::move(t));
  }
}

void readBuffers(Reader &r, const Json &top, std::vector<PackageBuffer> &out) {
  const Json *list = r.array(top, "buffers", "", kMaxElements);
  if (!list)
    return;
  out.reserve(list->size());
  for (const Json &item : *list) {
    std::string where = "/buffers/" + std::to_string(out.size());
    if (!r.object(item, where, {"kind", "bytes"}, {"index", "offset"}))
      return;
    PackageBuffer b;
    std::string kind = r.string(item, "kind", where);
    auto known = std::find(kBufferKinds.begin(), kBufferKinds.end(), kind);
    if (known == kBufferKinds.end())
      r.fail(where + "/kind", "'" + kind + "' is not a kind of buffer");
    else
      b.kind = static_cast<PackageBuffer::Kind>(known - kBufferKinds.begin());
    const char *place = hasOffset(b.kind) ? "offset" : "index";
    if (!r.object(item, where, {"kind", "bytes", place}))
      return;
    if (hasOffset(b.kind))
      b.offset = r.integer(item, "offset", where, 0, kAny);
    else
      b.index = static_cast<uint32_t>(r.integer(item, "index", where, 0, std::numeric_limits<uint32_t>::max()));
    b.bytes = r.integer(item, "bytes", where, 0, kAny);
    out.push_back(b);
  }
}

void readTensorMaps(Reader &r, const Json &launch, const std::string &at, std::vector<PackageTensorMap> &out) {
  constexpr int64_t most = std::numeric_limits<uint32_t>::max();
  const Json *list = r.array(launch, "tensor_maps", at, kMaxElements);
  if (!list)
    return;
  for (const Json &item : *list) {
    std::string where = at + "/tensor_maps/" + std::to_string(out.size());
    if (!r.object(item, where, {"arg", "offset", "dtype", "extents", "strides", "box", "swizzle", "l2_promotion"}))
      return;
    PackageTensorMap m;
    m.arg = static_cast<uint32_t>(r.integer(item, "arg", where, 0, most));
    m.offset = r.integer(item, "offset", where, 0, kAny);
    m.dtype = r.dtype(item, "dtype", where);
    r.integers(item, "extents", where, 5, 1, kAny, m.extents);
    r.integers(item, "strides", where, 4, 0, kAny, m.strides);
    r.integers(item, "box", where, 5, 1, most, m.box);
    m.swizzle = static_cast<uint32_t>(r.integer(item, "swizzle", where, 0, most));
    m.l2Promotion = static_cast<uint32_t>(r.integer(item, "l2_promotion", where, 0, most));
    out.push_back(std::move(m));
  }
}

void readLaunches(Reader &r, const Json &top, const char *key, std::vector<PackageLaunch> &out) {
  const Json *list = r.array(top, key, "", kMaxElements);
  if (!list)
    return;
  constexpr int64_t most = std::numeric_limits<uint32_t>::max();
  out.reserve(list->size());
  for (const Json &item : *list) {
    std::string where = std::string("/") + key + "/" + std::to_string(out.size());
    PackageLaunch l;
    if (!item.is_object() || !item.contains("kind"))
      return r.fail(where, "must be an object with the key 'kind'");
    std::string kind = r.string(item, "kind", where);
    if (kind == "copy") {
      if (!r.object(item, where, {"kind", "to", "from", "label"}))
        return;
      l.kind = PackageLaunch::Copy;
      l.args = {static_cast<uint32_t>(r.integer(item, "to", where, 0, most)),
                static_cast<uint32_t>(r.integer(item, "from", where, 0, most))};
    } else if (kind == "kernel") {
      if (!r.object(item, where,
                    {"kind", "kernel", "args", "grid", "block", "cluster", "blocks", "shared_bytes", "align", "label"},
                    {"name", "unaligned", "persistent", "early", "tensor_maps"}))
        return;
      l.kernel = r.string(item, "kernel", where);
      if (item.contains("name"))
        l.name = r.string(item, "name", where);
      r.integers(item, "args", where, kMaxElements, 0, most, l.args);
      l.grid = r.extent(item, "grid", where);
      l.block = r.extent(item, "block", where);
      l.cluster = r.extent(item, "cluster", where);
      l.blocks = r.integer(item, "blocks", where, 0, kAny);
      l.sharedBytes = static_cast<uint32_t>(r.integer(item, "shared_bytes", where, 0, most));
      l.align = static_cast<uint32_t>(r.integer(item, "align", where, 1, most));
      if (item.contains("persistent"))
        l.persistent = r.boolean(item, "persistent", where);
      if (item.contains("early"))
        l.early = r.boolean(item, "early", where);
      if (item.contains("tensor_maps"))
        readTensorMaps(r, item, where, l.tensorMaps);
      if (item.contains("unaligned")) {
        const Json &other = item["unaligned"];
        if (!r.object(other, where + "/unaligned", {"kernel", "grid", "block", "cluster", "shared_bytes"}))
          return;
        l.unalignedKernel = r.string(other, "kernel", where + "/unaligned");
        if (l.unalignedKernel.empty())
          r.fail(where + "/unaligned/kernel", "not a kernel's name");
        l.unalignedGrid = r.extent(other, "grid", where + "/unaligned");
        l.unalignedBlock = r.extent(other, "block", where + "/unaligned");
        l.unalignedCluster = r.extent(other, "cluster", where + "/unaligned");
        l.unalignedSharedBytes = static_cast<uint32_t>(r.integer(other, "shared_bytes", where + "/unaligned", 0, most));
      }
    } else {
      return r.fail(where + "/kind", "'" + kind + "' is not a kind of launch");
    }
    l.label = r.string(item, "label", where);
    out.push_back(std::move(l));
  }
}

void readFiles(Reader &r, const Json &top, std::map<std::string, FileRecord> &out) {
  const Json &list = top["files"];
  if (!list.is_object())
    return r.fail("/files", "must be an object");
  for (const auto &[name, item] : list.items()) {
    bool known = false;
    for (const PackageFile &file : kPackageFiles)
      known |= name == file.name;
    std::string where = "/files/" + name;
    if (!known)
      return r.fail("/files", "'" + name + "' is not a file of a package");
    if (!r.object(item, where, {"bytes", "hash"}))
      return;
    FileRecord record;
    record.bytes = r.integer(item, "bytes", where, 0, kMaxPackageFileBytes);
    std::string text = r.string(item, "hash", where);
    size_t used = 0;
    for (; used < text.size() && used < 16; ++used) {
      char c = text[used];
      int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
      if (digit < 0)
        break;
      record.hash = record.hash << 4 | static_cast<uint64_t>(digit);
    }
    if (used != 16 || text.size() != 16)
      r.fail(where + "/hash", "must be 16 hexadecimal digits");
    out[name] = record;
  }
}

/// Text to a value, duplicate keys and depth beyond what a manifest has refused.
Result<Json> parseStrict(std::string_view text) {
  constexpr int kMaxDepth = 8;
  std::vector<std::set<std::string>> keys;
  std::string problem;
  auto callback = [&](int depth, Json::parse_event_t event, Json &parsed) {
    if (!problem.empty())
      return false;
    if (event == Json::parse_event_t::object_start) {
      keys.emplace_back();
    } else if (event == Json::parse_event_t::object_end) {
      if (!keys.empty())
        keys.pop_back();
    } else if (event == Json::parse_event_t::key && !keys.empty()) {
      if (!keys.back().insert(parsed.get<std::string>()).second)
        problem = "the key '" + parsed.get<std::string>() + "' is given twice in one object";
    }
    if (depth > kMaxDepth)
      problem = "nested too deeply";
    return problem.empty();
  };
  Json value;
  try {
    value = Json::parse(text.begin(), text.end(), callback);
  } catch (const Json::exception &e) {
    return invalid({}, std::string("not a manifest: ") + e.what());
  }
  if (!problem.empty())
    return invalid({}, "not a manifest: " + problem);
  return value;
}

} // namespace

std::string printManifest(const Package &p) {
  OrderedJson top;
  top[kManifestMark] = kManifestVersion;
  top["name"] = p.name;
  top["version"] = p.version;
  top["target"] = p.target;
  top["arch"] = p.arch;
  top["inputs"] = json(p.inputs);
  top["parameters"] = json(p.parameters);
  top["outputs"] = json(p.outputs);
  top["arena_bytes"] = p.arenaBytes;
  top["buffers"] = OrderedJson::array();
  for (const PackageBuffer &b : p.buffers)
    top["buffers"].push_back(json(b));
  top["launches"] = OrderedJson::array();
  for (const PackageLaunch &l : p.launches)
    top["launches"].push_back(json(l));
  if (!p.bindLaunches.empty()) {
    top["derived_bytes"] = p.derivedBytes;
    top["bind_launches"] = OrderedJson::array();
    for (const PackageLaunch &l : p.bindLaunches)
      top["bind_launches"].push_back(json(l));
  }
  top["files"] = OrderedJson::object();
  for (const PackageFile &file : kPackageFiles)
    if (const std::string &contents = p.*file.member; !contents.empty())
      top["files"][file.name] = {{"bytes", contents.size()}, {"hash", hex(fileHash(contents))}};
  // Names and labels come from graph files; bytes that are not UTF-8 are replaced, never thrown over.
  return top.dump(1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

Result<Package> parseManifest(std::string_view text, std::map<std::string, FileRecord> &files) {
  if (text.size() > static_cast<size_t>(kMaxManifestBytes))
    return invalid({}, "the manifest is larger than " + std::to_string(kMaxManifestBytes) + " bytes");
  RL_ASSIGN(const Json top, parseStrict(text));
  if (!top.is_object() || !top.contains(kManifestMark))
    return invalid({}, std::string("not a package's manifest: the key '") + kManifestMark + "' is missing");
  Reader r;
  int64_t version = r.integer(top, kManifestMark, "", 0, kAny);
  if (!r.failed() && version != kManifestVersion)
    return unsupported(std::string("/") + kManifestMark, "package format " + std::to_string(version) +
                                                             "; this runtime reads " +
                                                             std::to_string(kManifestVersion));
  Package p;
  if (r.object(top, "",
               {kManifestMark, "name", "version", "target", "arch", "inputs", "parameters", "outputs", "arena_bytes",
                "buffers", "launches", "files"},
               {"derived_bytes", "bind_launches"})) {
    p.name = r.string(top, "name", "");
    p.version = r.string(top, "version", "");
    p.target = r.string(top, "target", "");
    p.arch = r.string(top, "arch", "");
    readTensors(r, top, "inputs", p.inputs);
    readTensors(r, top, "parameters", p.parameters);
    readTensors(r, top, "outputs", p.outputs);
    p.arenaBytes = r.integer(top, "arena_bytes", "", 0, kAny);
    readBuffers(r, top, p.buffers);
    readLaunches(r, top, "launches", p.launches);
    if (top.contains("derived_bytes"))
      p.derivedBytes = r.integer(top, "derived_bytes", "", 0, kAny);
    if (top.contains("bind_launches"))
      readLaunches(r, top, "bind_launches", p.bindLaunches);
    readFiles(r, top, files);
  }
  RL_TRY(r.takeStatus());
  RL_TRY(validatePackage(p));
  return p;
}

Result<Package> parseManifest(std::string_view text) {
  std::map<std::string, FileRecord> files;
  return parseManifest(text, files);
}

} // namespace rl
