// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// JSON text as a flat list of items, for the graph reader. nlohmann's document type would keep the last of two equal
// keys, sort members by name and lose the place of an error; this one keeps the order, refuses what a graph file may
// not hold (duplicate keys, deep nesting, integers beyond 64 bits, numbers that are not finite) and knows each item's
// JSON pointer.
#pragma once

#include "runtime/base/Result.h"

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

namespace rl {

/// A parsed JSON text in preorder: item 0 is the root, a container's children follow it, an object's children alternate
/// between keys and values. 16 bytes an item, so memory stays a fixed multiple of the text's length.
class JsonDocument {
public:
  enum class Kind : uint8_t { Null, Bool, Int, Float, String, Array, Object, Key };
  using Index = uint32_t;

  /// Never throws and does not recurse. Errors: the text is not JSON (empty pointer, line and column in the message), a
  /// container is nested deeper than `maxDepth`, a key is given twice, a number is out of range.
  static Result<JsonDocument> parse(std::string_view text, int maxDepth);

  Kind kind(Index i) const { return items[i].kind; }
  bool isNumber(Index i) const { return kind(i) == Kind::Int || kind(i) == Kind::Float; }
  bool isContainer(Index i) const { return kind(i) == Kind::Array || kind(i) == Kind::Object; }
  int64_t integer(Index i) const { return items[i].i; } ///< of an Int or a Bool
  double number(Index i) const { return kind(i) == Kind::Float ? items[i].f : static_cast<double>(items[i].i); }
  std::string_view string(Index i) const { ///< of a String or a Key
    return std::string_view(pool).substr(static_cast<size_t>(items[i].i), items[i].size);
  }
  uint32_t size(Index i) const { return items[i].size; } ///< elements of an Array, members of an Object

  /// `for (Index c = first(i); c < end(i); c = next(c))` visits the children of a container.
  Index first(Index i) const { return i + 1; }
  Index end(Index i) const {
    return items[i].i < 0 ? static_cast<Index>(items.size()) : static_cast<Index>(items[i].i);
  }
  Index next(Index i) const { return isContainer(i) ? end(i) : i + 1; }

  /// The JSON pointer (RFC 6901) of an item; a key has the pointer of its value.
  std::string pointer(Index) const;
  /// What a message about this pointer begins with, as the resolver's do: "node NAME (op): " for a pointer into a node
  /// whose first output's name can be read, else empty.
  std::string nodeLabel(std::string_view pointer) const;

private:
  friend class JsonDocumentBuilder;
  struct Item {
    union {
      int64_t i; ///< Bool, Int; the place in `pool` of a String or Key; the end of a container (-1 while it is open)
      double f;
    };
    uint32_t size = 0; ///< bytes of a String or Key; children of a container
    Kind kind = Kind::Null;
  };
  std::deque<Item> items; // a deque: growth copies nothing
  std::string pool;
};

/// Text from a file for use in a message: quoted, shortened, control characters made visible.
std::string quoted(std::string_view);

} // namespace rl
