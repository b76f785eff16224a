// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// LLVM's side of lowering: optimise a module and generate PTX or an object.
#pragma once

#include "compiler/lower/Lower.h"

namespace llvm {
class Module;
}

namespace rl {

/// Makes LLVM's NVPTX or x86 back end known, once a process.
void initializeTarget(bool nvptx);

/// Rewrites what the assembler of PTX would get wrong. Behind the optimiser, which would undo it.
void avoidAssemblerQuirks(llvm::Module &);

/// Verifies, optimises and generates. `irText`, where not null, receives the optimised LLVM IR.
Result<std::string> generateCode(llvm::Module &, const CodeTarget &, std::string *irText);

} // namespace rl
