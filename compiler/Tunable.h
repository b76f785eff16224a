// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the groups of a planned function say of tiles that might be quicker than theirs.
#pragma once

#include "compiler/Compiler.h"

#include <optional>

namespace mlir::ridge {
class GroupOp;
} // namespace mlir::ridge

namespace rl {

/// All but the kernel's name; nothing where a group has no other tile.
std::optional<TunableKernel> tunableKernel(mlir::ridge::GroupOp);

/// Code::Usage for a choice of a kernel that is not among these.
Status checkChoices(const TileChoices &, const std::vector<TunableKernel> &);

} // namespace rl
