// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Builds, lowers and compiles the kernels of MathHarness.h.
#include "tests/unit/MathHarness.h"

#include "compiler/lower/common/NarrowFloat.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVMPass.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/Passes.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/VectorToLLVM/ConvertVectorToLLVMPass.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"

#include "llvm/ExecutionEngine/Orc/JITTargetMachineBuilder.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"

using namespace mlir;

namespace rl::mathtest {

std::string KernelSpec::name() const {
  std::string type = dtypeName(dtype), tail = lanes ? "_v" + std::to_string(lanes) : "_scalar";
  switch (kind) {
  case Math: return std::string(mathName(fn)) + "_" + type + tail;
  case Fused: return std::string(mathName(fn)) + "_for_" + type + tail;
  case Inner: return std::string(mathName(fn)) + "_inner_" + type + tail;
  case Widen: return "widen_" + type + tail;
  case Narrow: return "narrow_" + type + (saturate ? "_sat" : "_nosat") + tail;
  }
  return {};
}

std::vector<KernelSpec> allKernels(int lanes) {
  std::vector<KernelSpec> specs;
  for (int fn = 0; fn < kMathFnCount; ++fn)
    for (DType t : {DType::F32, DType::F16, DType::BF16}) {
      specs.push_back({KernelSpec::Math, static_cast<MathFn>(fn), t, true, lanes});
      if (t != DType::F32)
        specs.push_back({KernelSpec::Fused, static_cast<MathFn>(fn), t, true, lanes});
      if (t == DType::BF16)
        specs.push_back({KernelSpec::Inner, static_cast<MathFn>(fn), t, true, lanes});
    }
  for (DType t : {DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2, DType::F8E8M0}) {
    specs.push_back({KernelSpec::Widen, MathFn::Exp, t, true, lanes});
    specs.push_back({KernelSpec::Narrow, MathFn::Exp, t, true, lanes});
    if (t == DType::F8E4M3 || t == DType::F8E5M2)
      specs.push_back({KernelSpec::Narrow, MathFn::Exp, t, false, lanes});
  }
  return specs;
}

namespace {

bool isStored(DType t) { return t != DType::F32; }

struct Builder {
  OpBuilder b;
  Location loc;
  MathTarget target;

  Type element(DType t) { return isStored(t) ? Type(b.getIntegerType(8 * dtypeSize(t))) : Type(b.getF32Type()); }
  Type lanesOf(Type t, int lanes) { return lanes ? Type(VectorType::get({lanes}, t)) : t; }
  Value address(Value base, Value index, Type t) {
    return LLVM::GEPOp::create(b, loc, base.getType(), t, base, ValueRange{index});
  }

  Value load(Value base, Value index, DType t, int lanes) {
    Value v = LLVM::LoadOp::create(b, loc, lanesOf(element(t), lanes), address(base, index, element(t)), dtypeSize(t));
    return isStored(t) ? widenFloat(b, loc, v, t, target) : v;
  }
  void store(Value v, Value base, Value index, DType t, bool saturate) {
    if (isStored(t))
      v = narrowFloat(b, loc, v, t, saturate, target);
    LLVM::StoreOp::create(b, loc, v, address(base, index, element(t)), dtypeSize(t));
  }

  /// The body for elements [index, index + lanes).
  void emitBody(const KernelSpec &k, Value a, Value bb, Value out, Value index) {
    DType in = k.dtype, to = k.dtype;
    if (k.kind == KernelSpec::Fused || k.kind == KernelSpec::Inner)
      in = to = DType::F32;
    else if (k.kind == KernelSpec::Widen)
      to = DType::F32;
    else if (k.kind == KernelSpec::Narrow)
      in = DType::F32;
    Value x = load(a, index, in, k.lanes);
    if (k.kind == KernelSpec::Math || k.kind == KernelSpec::Fused || k.kind == KernelSpec::Inner) {
      SmallVector<Value> args = {x};
      if (mathArity(k.fn) == 2)
        args.push_back(load(bb, index, in, k.lanes));
      Rounding rounding = k.kind == KernelSpec::Inner ? Rounding::BF16Inner
                          : k.dtype == DType::F16     ? Rounding::F16
                          : k.dtype == DType::BF16    ? Rounding::BF16
                                                      : Rounding::F32;
      x = expandMath(b, loc, k.fn, args, rounding, target);
    }
    store(x, out, index, to, k.saturate);
  }

  Value constant(int64_t v) { return arith::ConstantOp::create(b, loc, b.getI64IntegerAttr(v)); }
  Value special(StringRef name) {
    Value v = LLVM::CallIntrinsicOp::create(b, loc, b.getI32Type(), b.getStringAttr(name), ValueRange{}).getResult(0);
    return arith::ExtUIOp::create(b, loc, b.getI64Type(), v);
  }

  void emitKernel(const KernelSpec &k) {
    Type ptr = LLVM::LLVMPointerType::get(b.getContext(), target.nvptx ? 1 : 0);
    auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(b.getContext()), {ptr, ptr, ptr, b.getI64Type()});
    auto fn = LLVM::LLVMFuncOp::create(b, loc, k.name(), type);
    OpBuilder::InsertionGuard guard(b);
    Block *entry = fn.addEntryBlock(b);
    b.setInsertionPointToStart(entry);
    Value step = constant(k.lanes ? k.lanes : 1), n = entry->getArgument(3);
    auto body = [&](Value index) {
      emitBody(k, entry->getArgument(0), entry->getArgument(1), entry->getArgument(2), index);
    };
    if (target.nvptx) {
      Value thread = arith::AddIOp::create(b, loc,
                                           arith::MulIOp::create(b, loc, special("llvm.nvvm.read.ptx.sreg.ctaid.x"),
                                                                 special("llvm.nvvm.read.ptx.sreg.ntid.x")),
                                           special("llvm.nvvm.read.ptx.sreg.tid.x"));
      Value index = arith::MulIOp::create(b, loc, thread, step);
      Value inside = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, index, n);
      scf::IfOp branch = scf::IfOp::create(b, loc, inside);
      OpBuilder::InsertionGuard inner(b);
      b.setInsertionPointToStart(branch.thenBlock());
      body(index);
    } else {
      scf::ForOp loop = scf::ForOp::create(b, loc, constant(0), n, step);
      OpBuilder::InsertionGuard inner(b);
      b.setInsertionPointToStart(loop.getBody());
      body(loop.getInductionVar());
    }
    b.setInsertionPointToEnd(entry);
    LLVM::ReturnOp::create(b, loc, ValueRange{});
  }
};

/// The kernels as an LLVM module, not yet optimised.
Result<std::unique_ptr<llvm::Module>> buildModule(std::span<const KernelSpec> specs, const MathTarget &target,
                                                  llvm::LLVMContext &llvmContext) {
  DialectRegistry registry;
  registry.insert<arith::ArithDialect, cf::ControlFlowDialect, LLVM::LLVMDialect, math::MathDialect, scf::SCFDialect,
                  vector::VectorDialect>();
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  OpBuilder b(&context);
  OwningOpRef<ModuleOp> module = ModuleOp::create(b.getUnknownLoc());
  b.setInsertionPointToEnd(module->getBody());
  Builder builder{b, b.getUnknownLoc(), target};
  for (const KernelSpec &k : specs)
    builder.emitKernel(k);
  if (failed(verify(*module)))
    return unsupported("", "the kernels do not verify");

  PassManager passes(&context);
  passes.addPass(createSCFToControlFlowPass());
  passes.addPass(createConvertVectorToLLVMPass());
  passes.addPass(createConvertMathToLLVMPass());
  passes.addPass(createArithToLLVMConversionPass());
  passes.addPass(createConvertControlFlowToLLVMPass());
  passes.addPass(createReconcileUnrealizedCastsPass());
  if (failed(passes.run(*module)))
    return unsupported("", "the kernels do not lower");
  std::unique_ptr<llvm::Module> result = translateModuleToLLVMIR(*module, llvmContext);
  if (!result)
    return unsupported("", "the kernels do not translate");
  return result;
}

void optimise(llvm::Module &module, llvm::TargetMachine &machine) {
  module.setTargetTriple(machine.getTargetTriple());
  module.setDataLayout(machine.createDataLayout());
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager callGraph;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder passes(&machine);
  passes.registerModuleAnalyses(modules);
  passes.registerCGSCCAnalyses(callGraph);
  passes.registerFunctionAnalyses(functions);
  passes.registerLoopAnalyses(loops);
  passes.crossRegisterProxies(loops, functions, callGraph, modules);
  passes.buildPerModuleDefaultPipeline(llvm::OptimizationLevel::O2).run(module, modules);
}

llvm::TargetOptions strictOptions() {
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  return options;
}

std::string message(llvm::Error e) { return llvm::toString(std::move(e)); }

class OrcJit : public Jit {
public:
  std::unique_ptr<llvm::orc::LLJIT> jit;
  Kernel lookup(const std::string &name) override {
    auto address = jit->lookup(name);
    if (!address) {
      llvm::consumeError(address.takeError());
      return nullptr;
    }
    return address->toPtr<Kernel>();
  }
};

} // namespace

Result<std::unique_ptr<Jit>> Jit::create(std::span<const KernelSpec> specs) {
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  auto context = std::make_unique<llvm::LLVMContext>();
  RL_ASSIGN(std::unique_ptr<llvm::Module> module, buildModule(specs, MathTarget(), *context));

  llvm::orc::JITTargetMachineBuilder machineBuilder(llvm::Triple("x86_64-unknown-linux-gnu"));
  machineBuilder.setCPU("x86-64-v3").setOptions(strictOptions()).setCodeGenOptLevel(llvm::CodeGenOptLevel::Default);
  auto machine = machineBuilder.createTargetMachine();
  if (!machine)
    return unsupported("", message(machine.takeError()));
  optimise(*module, **machine);
  auto jit = llvm::orc::LLJITBuilder().setJITTargetMachineBuilder(machineBuilder).create();
  if (!jit)
    return unsupported("", message(jit.takeError()));
  if (llvm::Error e = (*jit)->addIRModule(llvm::orc::ThreadSafeModule(std::move(module), std::move(context))))
    return unsupported("", message(std::move(e)));
  auto result = std::make_unique<OrcJit>();
  result->jit = std::move(*jit);
  return std::unique_ptr<Jit>(std::move(result));
}

Result<std::string> emitPtx(std::span<const KernelSpec> specs, const std::string &arch, int sm) {
  LLVMInitializeNVPTXTargetInfo();
  LLVMInitializeNVPTXTarget();
  LLVMInitializeNVPTXTargetMC();
  LLVMInitializeNVPTXAsmPrinter();
  llvm::LLVMContext context;
  RL_ASSIGN(std::unique_ptr<llvm::Module> module, buildModule(specs, MathTarget{true, sm}, context));
  for (llvm::Function &f : *module)
    if (!f.isDeclaration())
      f.setCallingConv(llvm::CallingConv::PTX_Kernel);
  llvm::Triple triple("nvptx64-nvidia-cuda");
  std::string error;
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return unsupported("", error);
  std::unique_ptr<llvm::TargetMachine> machine(
      target->createTargetMachine(triple, arch, "+ptx80", strictOptions(), std::nullopt));
  optimise(*module, *machine);
  llvm::SmallString<0> text;
  llvm::raw_svector_ostream stream(text);
  llvm::legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::AssemblyFile))
    return unsupported("", "the target emits no PTX");
  passes.run(*module);
  return std::string(text);
}

} // namespace rl::mathtest
