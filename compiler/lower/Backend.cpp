// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/lower/Backend.h"

#include "llvm/Analysis/CGSCCPassManager.h"
#include "llvm/Analysis/LoopAnalysisManager.h"
#include "llvm/Analysis/TargetTransformInfo.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/PassManager.h"
#include "llvm/IR/Verifier.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/IPO/AlwaysInliner.h"
#include "llvm/Transforms/IPO/GlobalDCE.h"
#include "llvm/Transforms/InstCombine/InstCombine.h"
#include "llvm/Transforms/Scalar/ADCE.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/LICM.h"
#include "llvm/Transforms/Scalar/LoopPassManager.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"
#include "llvm/Transforms/Utils/LCSSA.h"
#include "llvm/Transforms/Utils/LoopSimplify.h"

#include <mutex>

extern "C" {
void LLVMInitializeNVPTXTarget();
void LLVMInitializeNVPTXTargetInfo();
void LLVMInitializeNVPTXTargetMC();
void LLVMInitializeNVPTXAsmPrinter();
void LLVMInitializeX86Target();
void LLVMInitializeX86TargetInfo();
void LLVMInitializeX86TargetMC();
void LLVMInitializeX86AsmPrinter();
}

namespace rl {

void initializeTarget(bool nvptx) {
  static std::once_flag gpu, host;
  if (nvptx)
    std::call_once(gpu, [] {
      LLVMInitializeNVPTXTargetInfo();
      LLVMInitializeNVPTXTarget();
      LLVMInitializeNVPTXTargetMC();
      LLVMInitializeNVPTXAsmPrinter();
    });
  else
    std::call_once(host, [] {
      LLVMInitializeX86TargetInfo();
      LLVMInitializeX86Target();
      LLVMInitializeX86TargetMC();
      LLVMInitializeX86AsmPrinter();
    });
}

static Result<std::unique_ptr<llvm::TargetMachine>> makeTargetMachine(const CodeTarget &target) {
  initializeTarget(target.nvptx);
  llvm::Triple triple(target.nvptx ? "nvptx64-nvidia-cuda" : "x86_64-unknown-linux-gnu");
  std::string error;
  const llvm::Target *found = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!found)
    return unsupported({}, "internal: " + error);
  llvm::TargetOptions options;
  // The format promises that a product and a sum of two nodes never become one fma.
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  options.FunctionSections = false;
  std::string features = target.nvptx ? "+ptx" + std::to_string(target.ptxVersion) : std::string();
  std::unique_ptr<llvm::TargetMachine> machine(found->createTargetMachine(
      triple, target.cpu, features, options, llvm::Reloc::PIC_, std::nullopt, llvm::CodeGenOptLevel::Default));
  if (!machine)
    return unsupported({}, "internal: LLVM has no machine for " + target.cpu);
  return machine;
}

static void optimise(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager callGraph;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(callGraph);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, callGraph, modules);

  llvm::ModulePassManager passes;
  passes.addPass(llvm::AlwaysInlinerPass());
  llvm::FunctionPassManager function;
  function.addPass(llvm::SimplifyCFGPass());
  function.addPass(llvm::EarlyCSEPass());
  function.addPass(llvm::InstCombinePass());
  function.addPass(llvm::EarlyCSEPass(true));
  function.addPass(llvm::LoopSimplifyPass());
  function.addPass(llvm::LCSSAPass());
  function.addPass(llvm::createFunctionToLoopPassAdaptor(llvm::LICMPass(llvm::LICMOptions()), /*UseMemorySSA=*/true));
  function.addPass(llvm::SimplifyCFGPass());
  function.addPass(llvm::ADCEPass());
  passes.addPass(llvm::createModuleToFunctionPassAdaptor(std::move(function)));
  passes.addPass(llvm::GlobalDCEPass());
  passes.run(module, modules);
}

/// Inline assembly that all threads of a warp must come to together. MLIR has no attribute for it, and the optimiser would put
/// copies into branches that threads take one by one.
static void markConvergent(llvm::Module &module) {
  for (llvm::Function &f : module)
    for (llvm::Instruction &i : llvm::instructions(f)) {
      auto *call = llvm::dyn_cast<llvm::CallInst>(&i);
      auto *text = call ? llvm::dyn_cast<llvm::InlineAsm>(call->getCalledOperand()) : nullptr;
      if (!text)
        continue;
      llvm::StringRef asmText = text->getAsmString();
      if (asmText.contains(".sync") || asmText.contains(".aligned") || asmText.contains("bar.arrive"))
        call->setConvergent();
    }
}

Result<std::string> generateCode(llvm::Module &module, const CodeTarget &target, std::string *irText) {
  RL_ASSIGN(std::unique_ptr<llvm::TargetMachine> machine, makeTargetMachine(target));
  module.setTargetTriple(machine->getTargetTriple());
  module.setDataLayout(machine->createDataLayout());
  std::string broken;
  llvm::raw_string_ostream brokenStream(broken);
  if (llvm::verifyModule(module, &brokenStream))
    return unsupported({}, "internal: LLVM refuses the generated module: " + broken);
  if (!target.nvptx)
    for (llvm::Function &f : module)
      if (!f.isDeclaration()) {
        f.addFnAttr("target-cpu", target.cpu);
        f.addFnAttr("prefer-vector-width", "256");
      }
  if (target.nvptx)
    markConvergent(module);
  optimise(module, *machine);
  if (target.nvptx)
    avoidAssemblerQuirks(module);
  if (irText) {
    llvm::raw_string_ostream text(*irText);
    module.print(text, nullptr);
  }
  llvm::SmallVector<char, 0> buffer;
  llvm::raw_svector_ostream out(buffer);
  llvm::legacy::PassManager codegen;
  auto kind = target.nvptx ? llvm::CodeGenFileType::AssemblyFile : llvm::CodeGenFileType::ObjectFile;
  if (machine->addPassesToEmitFile(codegen, out, nullptr, kind))
    return unsupported({}, "internal: LLVM cannot emit code for " + target.cpu);
  codegen.run(module);
  return std::string(buffer.begin(), buffer.end());
}

} // namespace rl
