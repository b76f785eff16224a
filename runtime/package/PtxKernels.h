// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where kernels stand in PTX, and a package's text in two: most of what loading PTX takes is the driver's assembler, which half of a
// package's kernels (those for pointers that are not aligned) need not keep busy before they are wanted.
#pragma once

#include "runtime/package/Package.h"

#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace rl {

/// A kernel's lines, from `.entry` to the brace that closes its body.
struct PtxKernel {
  std::string_view name;
  size_t begin = 0, end = 0; ///< bytes of the text
};

/// In the text's order; the names point into it.
std::vector<PtxKernel> ptxKernels(std::string_view ptx);

enum class CodePart {
  Usual, ///< the kernels that launches name, and those that they do not mention
  Other, ///< those that are for some launch the other kernel, and for none its own
};

/// The names of the kernels of CodePart::Other that the package's PTX has; they point into it.
std::set<std::string_view> otherKernels(const Package &);

/// The package's PTX with the kernels of one part, and what stands around kernels. Other is empty where there are none.
std::string ptxPart(const Package &, CodePart);

} // namespace rl
