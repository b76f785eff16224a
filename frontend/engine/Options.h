// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#pragma once

#include "frontend/api/Engine.h"

namespace rl {

/// rl_compile's options, a JSON object (or empty text): "precision": a mode or a policy as in a graph file, which replaces the
/// graph's; "cache": a directory, or "off"; "dims": extents of symbolic dimensions by name;
/// "delayed_scaling": {"every": N}. Code::Usage with a pointer for
/// anything else.
Status applyOptions(std::string_view json, GraphSpec &, EngineOptions &);

} // namespace rl
