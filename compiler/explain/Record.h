// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The decision record: what was decided for each kernel and why, as JSON in the package, and rendered for people. Rendering
// recomputes nothing: it shows what was recorded.
#pragma once

#include "passes/cost/Cost.h"
#include "passes/precision/Precision.h"
#include "runtime/package/Package.h"

namespace mlir {
namespace func {
class FuncOp;
}
} // namespace mlir

namespace rl {

/// The record of a grouped function, from the groups' attributes; `atBind` is what runs when parameters are bound, or null.
/// `package` gives the launches.
Result<std::string> writeRecord(mlir::func::FuncOp, mlir::func::FuncOp atBind, const PrecisionRecord &,
                                const Package &package, const cost::TargetDesc &machine);

/// format: "text", "json" or "html"; Code::Usage otherwise.
Result<std::string> renderRecord(const std::string &record, std::string_view format);

} // namespace rl
