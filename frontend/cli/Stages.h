// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The texts that the stages of the compiler leave, as files and as one.
#pragma once

#include "frontend/api/Engine.h"

#include <string>
#include <utility>
#include <vector>

namespace rl::cli {

/// A numbered file for each stage and kernel: "00-graph.mlir", "01-fused.mlir", "02-kernel-NAME.mlir", "03-llvm-NAME.ll",
/// "04-ptx-NAME.ptx"; and, where a stage has several kernels, the stage as a whole: "02-kernel.mlir".
std::vector<std::pair<std::string, std::string>> stageFiles(const Artifact &);

/// The kernels of a stage's text with their names: func.func of MLIR, define of LLVM IR (with what stands between the
/// functions), .entry of PTX (behind the head of its module, so that each can be assembled).
std::vector<std::pair<std::string, std::string>> splitKernels(const std::string &stage, const std::string &text);

/// The machine code of a CUDA package as text, through nvdisasm or cuobjdump; assembled by ptxas or the driver where the
/// package has none. Code::Unsupported where a tool is missing.
Result<std::string> disassemble(const Package &);

} // namespace rl::cli
