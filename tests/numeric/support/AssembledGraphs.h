// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random graphs of the sizes that users have, which are compiled and not run: products of one row to thousands with anything before
// and behind them, rows of every length that are reduced, and what is elementwise over them.
#pragma once

#include "ir/graph/Graph.h"

namespace rl::numeric {

/// A valid graph, the same for the same seed. Kinds take turns: eight seeds in a row have one of each.
GraphSpec assembledGraph(uint64_t seed);

} // namespace rl::numeric
