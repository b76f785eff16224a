// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The list of passes. A new pass gets its line here.
#include "compiler/tools/RegisterPasses.h"

#include "mlir/Transforms/Passes.h"

void registerRidgePasses() {
  mlir::registerCanonicalizerPass();
  mlir::registerCSEPass();
  mlir::registerSymbolDCEPass();
}
