// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "runtime/safetensors/Header.h"

#include "runtime/base/JsonPointer.h"

#include <nlohmann/json.hpp>

#include <cstdio>
#include <unordered_set>

namespace rl {
namespace {

/// The dtypes of the file format that no graph tensor has, with bits an element: such tensors may stand in a file beside
/// those that a graph names. Source: the format's reference implementation, safetensors/src/tensor.rs.
struct ForeignDType {
  const char *name;
  int bits;
};
constexpr ForeignDType kForeign[] = {{"F64", 64},        {"C64", 64},        {"I16", 16},    {"U16", 16},
                                     {"U32", 32},        {"U64", 64},        {"F6_E2M3", 6}, {"F6_E3M2", 6},
                                     {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8}, {"F4", 4}};

/// No writer has more; the bound keeps a hostile shape from growing memory.
constexpr size_t kMaxRank = 64;

std::optional<DType> graphDType(std::string_view name) {
  for (int i = 0; i < kDTypeCount; ++i)
    if (name == safetensorsName(static_cast<DType>(i)))
      return static_cast<DType>(i);
  return std::nullopt;
}

int dtypeBits(std::string_view name) { ///< 0: unknown
  if (auto type = graphDType(name))
    return static_cast<int>(dtypeSize(*type)) * 8;
  for (const ForeignDType &f : kForeign)
    if (name == f.name)
      return f.bits;
  return 0;
}

class HeaderHandler : public nlohmann::json_sax<nlohmann::json> {
public:
  explicit HeaderHandler(uint64_t dataBytes) : dataBytes(dataBytes) {}

  std::vector<SafetensorsHeaderEntry> entries;
  std::optional<Error> failure;

  bool null() override { return unexpected("null"); }
  bool boolean(bool) override { return unexpected("a boolean"); }
  bool number_float(number_float_t, const string_t &text) override {
    return unexpected("the number " + text.substr(0, 40));
  }
  bool binary(binary_t &) override { return unexpected("binary data"); }

  bool number_integer(number_integer_t value) override { return unexpected("the number " + std::to_string(value)); }

  bool number_unsigned(number_unsigned_t value) override {
    if (at == At::Shape) {
      if (value > static_cast<uint64_t>(INT64_MAX))
        return fail("/shape", "extent " + std::to_string(value) + " is too large");
      if (current.shape.size() == kMaxRank)
        return fail("/shape", "rank above " + std::to_string(kMaxRank));
      current.shape.push_back(static_cast<int64_t>(value));
      return true;
    }
    if (at == At::Offsets) {
      if (offsetCount == 2)
        return fail("/data_offsets", "more than two offsets");
      (offsetCount++ == 0 ? current.begin : current.end) = value;
      return true;
    }
    return unexpected("the number " + std::to_string(value));
  }

  bool string(string_t &value) override {
    if (at == At::Metadata)
      return true;
    if (at == At::DTypeValue) {
      current.dtypeSpelling = value;
      at = At::Entry;
      return true;
    }
    return unexpected("a string");
  }

  bool start_object(std::size_t) override {
    switch (at) {
    case At::Start: at = At::Top; return true;
    case At::EntryValue: at = At::Entry; return true;
    case At::MetadataValue: at = At::Metadata; return true;
    default: return unexpected("an object");
    }
  }

  bool key(string_t &name) override {
    switch (at) {
    case At::Top: {
      if (!names.insert(name).second) {
        failure = invalid(safetensorsPointer(name), "tensor " + printableName(name) + " stands twice in the header");
        return false;
      }
      if (name == "__metadata__") {
        at = At::MetadataValue;
        return true;
      }
      current = {};
      current.name = name;
      seenDType = seenShape = seenOffsets = false;
      offsetCount = 0;
      at = At::EntryValue;
      return true;
    }
    case At::Entry:
      if (name == "dtype")
        return field(seenDType, name, At::DTypeValue);
      if (name == "shape")
        return field(seenShape, name, At::ShapeValue);
      if (name == "data_offsets")
        return field(seenOffsets, name, At::OffsetsValue);
      return fail(safetensorsPointer(name), "unknown key '" + printableName(name) + "'");
    default: // of the metadata
      return true;
    }
  }

  bool end_object() override {
    if (at == At::Entry)
      return finishEntry();
    at = at == At::Metadata ? At::Top : At::End;
    return true;
  }

  bool start_array(std::size_t) override {
    if (at == At::ShapeValue)
      at = At::Shape;
    else if (at == At::OffsetsValue)
      at = At::Offsets;
    else
      return unexpected("an array");
    return true;
  }

  bool end_array() override {
    if (at == At::Offsets && offsetCount != 2)
      return fail("/data_offsets", "not two offsets");
    at = At::Entry;
    return true;
  }

  bool parse_error(std::size_t position, const std::string &, const nlohmann::detail::exception &) override {
    failure = invalid({}, "header is not JSON, at its byte " + std::to_string(position));
    return false;
  }

private:
  /// Where in the header's grammar the next token falls.
  enum class At {
    Start,
    Top,
    EntryValue,
    Entry,
    DTypeValue,
    ShapeValue,
    Shape,
    OffsetsValue,
    Offsets,
    MetadataValue,
    Metadata,
    End
  };

  bool field(bool &seen, const std::string &name, At next) {
    if (seen)
      return fail("/" + name, "key '" + name + "' stands twice");
    seen = true;
    at = next;
    return true;
  }

  bool fail(const std::string &below, std::string message) {
    failure = invalid(safetensorsPointer(current.name) + below,
                      "tensor " + printableName(current.name) + ": " + std::move(message));
    return false;
  }

  bool unexpected(const std::string &what) {
    switch (at) {
    case At::Start:
    case At::Top:
    case At::End: failure = invalid({}, "header is not a JSON object but " + what); return false;
    case At::EntryValue:
    case At::Entry: return fail("", "an object is expected, not " + what);
    case At::DTypeValue: return fail("/dtype", "a string is expected, not " + what);
    case At::ShapeValue:
    case At::Shape: return fail("/shape", "a list of extents is expected, not " + what);
    case At::OffsetsValue:
    case At::Offsets: return fail("/data_offsets", "two offsets are expected, not " + what);
    case At::MetadataValue:
    case At::Metadata:
      failure = invalid("/__metadata__", "the metadata is an object of strings, not " + what);
      return false;
    }
    return false;
  }

  bool finishEntry() {
    for (auto [seen, name] :
         {std::pair(seenDType, "dtype"), std::pair(seenShape, "shape"), std::pair(seenOffsets, "data_offsets")})
      if (!seen)
        return fail("", std::string("key '") + name + "' is missing");
    int bits = dtypeBits(current.dtypeSpelling);
    if (bits == 0)
      return fail("/dtype", "unknown dtype '" + printableName(current.dtypeSpelling) + "'");
    current.dtype = graphDType(current.dtypeSpelling);

    // In bits, and with the extents of 0 left out, so that no consumer's own product or stride can overflow either.
    bool empty = false, overflow = false;
    uint64_t total = static_cast<uint64_t>(bits);
    for (int64_t extent : current.shape) {
      if (extent == 0)
        empty = true;
      else
        overflow |= __builtin_mul_overflow(total, static_cast<uint64_t>(extent), &total);
    }
    if (overflow || total > static_cast<uint64_t>(INT64_MAX))
      return fail("/shape", "the size of shape " + str(current.shape) + " overflows");
    if (empty)
      total = 0;
    if (total % 8 != 0)
      return fail("/shape", "shape " + str(current.shape) + " does not fill whole bytes");

    if (current.begin > current.end)
      return fail("/data_offsets",
                  "begins at " + std::to_string(current.begin) + ", after its end at " + std::to_string(current.end));
    if (current.end > dataBytes)
      return fail("/data_offsets", "ends at byte " + std::to_string(current.end) + " of the data, which has " +
                                       std::to_string(dataBytes));
    if (current.end - current.begin != total / 8)
      return fail("/data_offsets", "spans " + std::to_string(current.end - current.begin) + " bytes, where " +
                                       current.dtypeSpelling + " " + str(current.shape) + " takes " +
                                       std::to_string(total / 8));
    entries.push_back(std::move(current));
    at = At::Top;
    return true;
  }

  const uint64_t dataBytes;
  At at = At::Start;
  SafetensorsHeaderEntry current;
  std::unordered_set<std::string> names;
  bool seenDType = false, seenShape = false, seenOffsets = false;
  int offsetCount = 0;
};

} // namespace

std::string printableName(std::string_view name) {
  constexpr size_t kLongest = 200;
  bool cut = name.size() > kLongest;
  if (cut) {
    size_t end = kLongest;
    while (end > 0 && (static_cast<unsigned char>(name[end]) & 0xC0) == 0x80) // not within a UTF-8 sequence
      --end;
    name = name.substr(0, end);
  }
  std::string out;
  for (char c : name) {
    auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\x%02x", byte);
      out += escape;
    } else {
      out += c;
    }
  }
  return cut ? out + "..." : out;
}

std::string safetensorsPointer(std::string_view name) { return "/" + escapePointer(printableName(name)); }

Result<std::vector<SafetensorsHeaderEntry>> parseSafetensorsHeader(std::string_view json, uint64_t dataBytes) {
  if (json.empty() || json.front() != '{')
    return invalid({}, "header does not begin with '{'");
  // The JSON library takes a zero byte for the end of its input; JSON has no place for one, in strings neither.
  if (size_t zero = json.find('\0'); zero != std::string_view::npos)
    return invalid({}, "header is not JSON, at its byte " + std::to_string(zero + 1));
  HeaderHandler handler(dataBytes);
  bool ok = nlohmann::json::sax_parse(json.data(), json.data() + json.size(), &handler);
  if (handler.failure)
    return std::move(*handler.failure);
  if (!ok)
    return invalid({}, "header is not JSON");
  return std::move(handler.entries);
}

} // namespace rl
