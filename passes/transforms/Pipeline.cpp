// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/plan/Planner.h"
#include "passes/transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

rl::Status rl::runPipeline(ModuleOp module, const cost::TargetDesc &target, const TileChoices *choices, bool atRun) {
  std::string said;
  ScopedDiagnosticHandler handler(module.getContext(), [&](Diagnostic &d) {
    said += (said.empty() ? "" : "; ") + d.str();
    return success();
  });
  Error planned;
  planned.code = Code::Ok;
  PassManager pm(module.getContext());
  OpPassManager &f = pm.nest<func::FuncOp>();
  f.addPass(createPinsPass());
  f.addPass(createEmptyTensorsPass());
  f.addPass(createDecomposeLossPass());
  f.addPass(createDecomposeQuantPass());
  f.addPass(createSliceProductsPass());
  f.addPass(createProductsPass(target));
  f.addPass(createDecomposePass(target));
  f.addPass(mlir::createCanonicalizerPass());
  f.addPass(mlir::createCSEPass());
  f.addPass(createSplitCatsPass(maxKernelArguments(target) / 2));
  f.addPass(createGroupPass(target, &planned, choices));
  if (atRun) {
    f.addPass(createShareLaunchPass(target));
    f.addPass(createEarlyLaunchPass(target));
  }
  if (failed(pm.run(module))) {
    if (planned.code != Code::Ok)
      return planned;
    return unsupported({}, "internal: the pass pipeline failed: " + said);
  }
  return {};
}
