// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ridge-opt: reads MLIR in the `ridge` dialect, runs the passes named on the command line, prints the result. For tests
// and for looking at one pass at a time.
#include "compiler/tools/RegisterPasses.h"
#include "ir/dialect/Import.h"

#include "mlir/IR/Dialect.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"

int main(int argc, char **argv) {
  mlir::DialectRegistry registry;
  mlir::ridge::registerRidgeDialects(registry);
  registerRidgePasses();
  return mlir::asMainReturnCode(mlir::MlirOptMain(argc, argv, "Ridgeline's optimiser driver\n", registry));
}
