// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The conversions that both targets share, and the hand-over to LLVM.
#include "compiler/lower/Lower.h"
#include "compiler/lower/Backend.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVM.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/UBToLLVM/UBToLLVM.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVM.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/DialectConversion.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace rl {

static LogicalResult convertToLlvm(ModuleOp module) {
  MLIRContext *ctx = module.getContext();
  LowerToLLVMOptions options(ctx);
  LLVMTypeConverter types(ctx, options);
  {
    // By itself: its loop pattern looks back at branches which, in one conversion with the rest, are already replaced.
    RewritePatternSet structured(ctx);
    populateSCFToControlFlowConversionPatterns(structured);
    ConversionTarget flat(*ctx);
    flat.addIllegalDialect<scf::SCFDialect>();
    flat.markUnknownOpDynamicallyLegal([](Operation *) { return true; });
    if (failed(applyPartialConversion(module, flat, std::move(structured))))
      return failure();
  }
  RewritePatternSet patterns(ctx);
  arith::populateArithToLLVMConversionPatterns(types, patterns);
  populateVectorToLLVMConversionPatterns(types, patterns);
  populateMathToLLVMConversionPatterns(types, patterns);
  cf::populateControlFlowToLLVMConversionPatterns(types, patterns);
  populateFuncToLLVMConversionPatterns(types, patterns);
  ub::populateUBToLLVMConversionPatterns(types, patterns);
  LLVMConversionTarget target(*ctx);
  target.addLegalOp<ModuleOp>();
  target.addLegalDialect<NVVM::NVVMDialect>();
  ConversionConfig config;
  return applyFullConversion(module, target, std::move(patterns), config);
}

Result<LoweredCode> lowerKernels(ModuleOp module, const CodeTarget &target, bool wantLlvmIr) {
  std::string said;
  ScopedDiagnosticHandler handler(module.getContext(), [&](Diagnostic &d) {
    if (!said.empty())
      said += "; ";
    said += d.str();
    return success();
  });
  auto fail = [&](const char *stage) {
    return unsupported({}, std::string("internal: ") + stage + " failed" + (said.empty() ? "" : ": " + said));
  };
  RL_TRY(expandMathCalls(module, target));
  lowerIds(module, target);
  if (failed(convertToLlvm(module)))
    return fail("conversion of the kernels to the LLVM dialect");
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> ir = translateModuleToLLVMIR(module, context, "ridgeline");
  if (!ir)
    return fail("translation of the kernels to LLVM IR");
  LoweredCode out;
  RL_ASSIGN(out.code, generateCode(*ir, target, wantLlvmIr ? &out.llvmIr : nullptr));
  return out;
}

} // namespace rl
