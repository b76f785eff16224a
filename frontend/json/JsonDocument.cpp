// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Fills a JsonDocument from nlohmann's SAX parser, which works with an explicit stack and so cannot overflow ours.
#include "frontend/json/JsonDocument.h"

#include "runtime/base/JsonPointer.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <limits>
#include <new>
#include <optional>
#include <vector>

namespace rl {

std::string quoted(std::string_view text) {
  constexpr size_t limit = 80;
  std::string out = "'";
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned char c = static_cast<unsigned char>(text[i]);
    // Cut between characters, not inside the bytes of one.
    if (i >= limit && (c & 0xC0) != 0x80) {
      out += "...";
      break;
    }
    if (c < 0x20 || c == 0x7F) {
      char hex[8];
      std::snprintf(hex, sizeof hex, "\\x%02x", c);
      out += hex;
    } else {
      out += text[i];
    }
  }
  return out + "'";
}

std::string JsonDocument::pointer(Index target) const {
  std::string path;
  Index at = 0;
  while (at != target) {
    bool object = kind(at) == Kind::Object, found = false;
    uint64_t position = 0;
    for (Index c = first(at), e = end(at); c < e; ++position) {
      Index value = object ? c + 1 : c;
      Index after = value < items.size() ? next(value) : value;
      if (target < after || target == c) {
        path += '/' + (object ? escapePointer(string(c)) : std::to_string(position));
        if (target == c)
          return path;
        at = value;
        found = true;
        break;
      }
      c = after;
    }
    if (!found)
      return path;
  }
  return path;
}

std::string JsonDocument::nodeLabel(std::string_view pointer) const {
  constexpr std::string_view prefix = "/nodes/";
  if (items.empty() || kind(0) != Kind::Object || !pointer.starts_with(prefix))
    return {};
  pointer.remove_prefix(prefix.size());
  uint32_t wanted = 0;
  auto parsed = std::from_chars(pointer.data(), pointer.data() + pointer.size(), wanted);
  if (parsed.ec != std::errc() || (parsed.ptr != pointer.data() + pointer.size() && *parsed.ptr != '/'))
    return {};
  auto member = [&](Index object, std::string_view key) -> std::optional<Index> {
    if (kind(object) == Kind::Object)
      for (Index c = first(object), e = end(object); c + 1 < e; c = next(c + 1))
        if (string(c) == key)
          return c + 1;
    return std::nullopt;
  };
  auto nodes = member(0, "nodes");
  if (!nodes || kind(*nodes) != Kind::Array)
    return {};
  for (Index c = first(*nodes), e = end(*nodes); c < e; c = next(c)) {
    if (wanted--)
      continue;
    auto outputs = member(c, "outputs");
    if (!outputs || kind(*outputs) != Kind::Array || size(*outputs) == 0)
      return {};
    Index name = first(*outputs);
    if (name >= items.size() || kind(name) != Kind::String)
      return {};
    auto plain = [&](Index i) {
      std::string text = quoted(string(i));
      return text.substr(1, text.size() - 2);
    };
    auto op = member(c, "op");
    return "node " + plain(name) + (op && kind(*op) == Kind::String ? " (" + plain(*op) + "): " : ": ");
  }
  return {};
}

/// The SAX handler. Structural errors do not end the parse: a syntax error further on says more about the file, and the
/// label of a node may follow the place of the error.
class JsonDocumentBuilder {
public:
  using number_integer_t = nlohmann::json::number_integer_t;
  using number_unsigned_t = nlohmann::json::number_unsigned_t;
  using number_float_t = nlohmann::json::number_float_t;
  using string_t = nlohmann::json::string_t;
  using binary_t = nlohmann::json::binary_t;
  using Kind = JsonDocument::Kind;
  using Index = JsonDocument::Index;

  JsonDocumentBuilder(std::string_view text, int maxDepth) : text(text), maxDepth(maxDepth) {}

  JsonDocument doc;
  std::optional<Error> syntaxError;     ///< the text is not JSON
  std::optional<Error> structuralError; ///< the first of the other errors
  size_t nonFiniteAt = std::string_view::npos,
         nonFiniteLength = 0; ///< the token that ended the parse, if it was a number

  bool null() { return add(Kind::Null, 0); }
  bool boolean(bool value) { return add(Kind::Bool, value); }
  bool number_integer(number_integer_t value) { return add(Kind::Int, value); }
  bool number_unsigned(number_unsigned_t value) {
    if (value > static_cast<number_unsigned_t>(std::numeric_limits<int64_t>::max()))
      integerTooLarge(std::to_string(value));
    return add(Kind::Int, static_cast<int64_t>(value));
  }
  bool number_float(number_float_t value, const string_t &written) {
    // The parser turns an integer beyond 64 bits into a double.
    if (written.find_first_of(".eE") == string_t::npos)
      integerTooLarge(written);
    if (!add(Kind::Float, 0))
      return false;
    doc.items.back().f = value;
    return true;
  }
  bool string(string_t &value) { return addText(Kind::String, value); }
  bool binary(binary_t &) { return false; } // JSON text has none
  bool start_object(size_t) { return open(Kind::Object); }
  bool key(string_t &value) {
    // A key is counted with its value, so that `size` is the number of members.
    doc.items.push_back({{static_cast<int64_t>(doc.pool.size())}, static_cast<uint32_t>(value.size()), Kind::Key});
    doc.pool += value;
    stack.back().key = static_cast<Index>(doc.items.size() - 1);
    return true;
  }
  bool end_object() {
    checkDuplicates(stack.back().container);
    return close();
  }
  bool start_array(size_t) { return open(Kind::Array); }
  bool end_array() { return close(); }

  bool parse_error(size_t position, const std::string &, const nlohmann::detail::exception &error) {
    size_t last = std::min(position, text.size()); // of the last byte read
    last -= last > 0;
    std::string_view what = error.what();
    if (error.id == 406) { // a number beyond the range of a double
      size_t start = text.find_last_not_of("0123456789+-.eE", last);
      // The lexer has read one byte beyond the number, where there is one.
      if (start != std::string_view::npos && start == last)
        start = last ? text.find_last_not_of("0123456789+-.eE", last - 1) : std::string_view::npos;
      start = start == std::string_view::npos ? 0 : start + 1;
      size_t end = text.find_first_not_of("0123456789+-.eE", start);
      nonFinite(start, (end == std::string_view::npos ? text.size() : end) - start);
      return false;
    }
    if (what.find("while parsing value") != std::string_view::npos) {
      for (std::string_view word : {"NaN", "Infinity"}) {
        if (text.substr(last).starts_with(word)) {
          bool minus = last > 0 && text[last - 1] == '-';
          nonFinite(last - minus, word.size() + minus);
          return false;
        }
      }
    }
    // "[json.exception...] parse error at line 1, column 2: DETAIL; last read: 'BYTES'": what was read may be anything.
    std::string_view detail = what;
    if (size_t column = detail.find("column "); column != std::string_view::npos)
      if (size_t colon = detail.find(": ", column); colon != std::string_view::npos)
        detail.remove_prefix(colon + 2);
    detail = detail.substr(0, detail.find("; last read"));
    syntaxAt(last, detail);
    return false;
  }

  /// Records a syntax error at a byte of the text.
  void syntaxAt(size_t offset, std::string_view detail) {
    std::string_view before = text.substr(0, offset);
    size_t line = 1 + static_cast<size_t>(std::count(before.begin(), before.end(), '\n'));
    size_t newline = before.rfind('\n');
    size_t column = offset - (newline == std::string_view::npos ? 0 : newline + 1) + 1;
    syntaxError = invalid({}, "not JSON: line " + std::to_string(line) + ", column " + std::to_string(column) + ": " +
                                  std::string(detail));
  }

private:
  struct Open {
    Index container; ///< the item
    Index key;       ///< an object's last key
  };
  std::string_view text;
  int maxDepth;
  std::vector<Open> stack;

  void structural(std::string pointer, std::string message) {
    if (!structuralError)
      structuralError = invalid(std::move(pointer), std::move(message));
  }
  /// The pointer of the value that comes next.
  std::string here() const {
    std::string path;
    for (size_t d = 0; d < stack.size(); ++d) {
      const Open &o = stack[d];
      if (doc.items[o.container].kind == Kind::Object)
        path += '/' + escapePointer(doc.string(o.key));
      else // an inner container has been counted already
        path += '/' + std::to_string(doc.items[o.container].size - (d + 1 < stack.size() ? 1 : 0));
    }
    return path;
  }
  void integerTooLarge(const std::string &written) {
    structural(here(), "integer out of range: " + written.substr(0, 40) + (written.size() > 40 ? "..." : "") +
                           " does not fit 64 bits");
  }
  void nonFinite(size_t at, size_t length) {
    nonFiniteAt = at;
    nonFiniteLength = length;
    structural(here(), quoted(text.substr(at, length)) + " is not a finite number");
  }

  bool add(Kind kind, int64_t payload, size_t size = 0) {
    if (!stack.empty())
      ++doc.items[stack.back().container].size;
    doc.items.push_back({{payload}, static_cast<uint32_t>(size), kind});
    return true;
  }
  bool addText(Kind kind, const string_t &value) {
    add(kind, static_cast<int64_t>(doc.pool.size()), value.size());
    doc.pool += value;
    return true;
  }
  bool open(Kind kind) {
    if (static_cast<int>(stack.size()) >= maxDepth) {
      structural(here(), "nested deeper than " + std::to_string(maxDepth) + " levels");
      return false;
    }
    add(kind, -1);
    stack.push_back({static_cast<Index>(doc.items.size() - 1), 0});
    return true;
  }
  bool close() {
    doc.items[stack.back().container].i = static_cast<int64_t>(doc.items.size());
    stack.pop_back();
    return true;
  }
  void checkDuplicates(Index object) {
    uint32_t count = doc.size(object);
    if (count < 2)
      return;
    std::vector<std::pair<std::string_view, Index>> keys;
    keys.reserve(count);
    for (Index c = doc.first(object), e = doc.end(object); c < e; c = doc.next(c + 1))
      keys.emplace_back(doc.string(c), c);
    std::sort(keys.begin(), keys.end());
    std::optional<Index> earliest;
    for (size_t k = 1; k < keys.size(); ++k)
      if (keys[k].first == keys[k - 1].first && (!earliest || keys[k].second < *earliest))
        earliest = keys[k].second;
    if (!earliest)
      return;
    // The path of the object itself, then the key.
    stack.back().key = *earliest;
    structural(here(), "duplicate key " + quoted(doc.string(*earliest)));
  }
};

static Result<JsonDocument> parseUnguarded(std::string_view text, int maxDepth) {
  JsonDocumentBuilder builder(text, maxDepth);
  // The lexer takes a zero byte for the end of the text; nothing after it would be seen.
  if (size_t zero = text.find('\0'); zero != std::string_view::npos) {
    builder.syntaxAt(zero, "a zero byte");
    return std::move(*builder.syntaxError);
  }
  bool ok = nlohmann::json::sax_parse(text.data(), text.data() + text.size(), &builder);
  if (builder.syntaxError)
    return std::move(*builder.syntaxError);
  if (builder.structuralError) {
    Error error = std::move(*builder.structuralError);
    std::string label = builder.doc.nodeLabel(error.pointer);
    if (label.empty() && builder.nonFiniteAt != std::string_view::npos) {
      // Such a token ends the parse. Read on with a zero in its place, to learn which node the error is in.
      std::string patched(text);
      patched.replace(builder.nonFiniteAt, builder.nonFiniteLength,
                      "0" + std::string(builder.nonFiniteLength - 1, ' '));
      JsonDocumentBuilder again(patched, maxDepth);
      nlohmann::json::sax_parse(patched.data(), patched.data() + patched.size(), &again);
      label = again.doc.nodeLabel(error.pointer);
    }
    error.message = label + error.message;
    return error;
  }
  if (!ok)
    return invalid({}, "not JSON");
  return std::move(builder.doc);
}

Result<JsonDocument> JsonDocument::parse(std::string_view text, int maxDepth) {
  try {
    return parseUnguarded(text, maxDepth);
  } catch (const std::bad_alloc &) {
    return deviceError("not enough memory to read the graph file");
  } catch (const std::exception &e) {
    return invalid({}, std::string("not JSON: ") + e.what());
  }
}

} // namespace rl
