// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tiles of matrix products by measurement: the first few that the model finds good for each kernel are compiled alone and timed on
// the device in turn. What comes of it is a choice for the planner, kept in the disk cache.
#pragma once

#include "compiler/Compiler.h"
#include "frontend/api/Engine.h"

namespace rl {

/// Code::Unsupported where a target has no tiles to time, Code::Device where it is not this machine's GPU.
Status checkTunable(const Target &);

struct Tuning {
  TileChoices choices;
  size_t measured = 0; ///< kernels whose tiles were timed, and not found in the cache
};

/// `base`: what the results depend on beside the kernels (the device, its driver, the compiler's build). Reports progress to
/// `options.tuning`. Errors: what compiling the graph may give; Code::Device where the device fails or has no memory for a
/// kernel's tensors.
Result<Tuning> tuneTiles(const Graph &, const CompileTarget &, const EngineOptions &, const DiskCache &,
                         const CacheKey &base);

/// The tile that is taken after the times of some, in microseconds (0: none): the model's first unless another is more than 1 %
/// quicker.
size_t quickest(const std::vector<double> &microseconds);

/// A choice as the cache keeps it, and back; nothing where the text is none of `candidates` tiles.
std::string printChoice(const TileChoice &);
std::optional<TileChoice> parseChoice(std::string_view, size_t candidates);

/// One launch of a package as a package of its own: what the kernel reads are its inputs, what it writes its outputs.
Package aloneOf(const Package &, const PackageLaunch &, const TunableKernel &);

} // namespace rl
