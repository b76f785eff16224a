// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The passes of MLIR that tests use, and the project's, which passes/transforms lists.
#include "compiler/tools/RegisterPasses.h"
#include "passes/transforms/Passes.h"

#include "mlir/Transforms/Passes.h"

void registerRidgePasses() {
  mlir::registerCanonicalizerPass();
  mlir::registerCSEPass();
  mlir::registerSymbolDCEPass();
  rl::registerRidgePasses();
}
