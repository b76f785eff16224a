// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Graph files: text to GraphSpec and back. The reader is strict (unknown and duplicate keys, wrong types, trailing
// bytes are errors), every error has its JSON pointer, and no input of any kind crashes it or makes it use more than a
// fixed multiple of the input's size.
#pragma once

#include "ir/graph/Graph.h"

#include <string>
#include <string_view>

namespace rl {

/// Limits of a graph file.
inline constexpr size_t kMaxGraphBytes = 256u << 20;
inline constexpr int kMaxJsonDepth = 32;

/// Syntax and structure only: names, shapes and types are for `checkSpec` and `resolve`. Syntax errors have an empty
/// pointer and "line L, column C" in the message.
Result<GraphSpec> parseGraph(std::string_view json);

/// A canonical file: keys in the order of the format page, attributes as written, two-space indent.
std::string printGraph(const GraphSpec &);

/// The spec of a resolved graph (static extents, all attributes written out); dead nodes stay. For packages and caches.
GraphSpec specOf(const Graph &);

/// The JSON Schema (2020-12) of graph files, made from the op table; graph.schema.json is a copy of it.
std::string graphSchema();

} // namespace rl
