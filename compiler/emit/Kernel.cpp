// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/emit/Kernel.h"
#include "compiler/emit/TraceEmitter.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;

namespace rl::emit {

using mlir::Value; // not the graph's

KernelFunction createKernel(OpBuilder &b, Location loc, ModuleOp module, const std::string &name, const Graph &body,
                            const CodeTarget &target, int64_t threads) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(module.getBody());
  Type pointer = LLVM::LLVMPointerType::get(b.getContext(), target.nvptx ? 1 : 0);
  SmallVector<Type> types(body.inputs.size() + body.outputs.size(), pointer);
  bool reports = reportsIndices(body, target);
  if (reports)
    types.push_back(pointer);
  KernelFunction out;
  out.function = func::FuncOp::create(b, loc, name, b.getFunctionType(types, {}));
  out.function->setAttr("ridge.kernel", b.getUnitAttr());
  if (reports)
    out.function->setAttr("ridge.reports", b.getUnitAttr());
  out.function->setAttr("ridge.block", b.getI64IntegerAttr(threads));
  out.entry = out.function.addEntryBlock();
  ValueRange arguments = out.entry->getArguments();
  out.inputs = arguments.take_front(body.inputs.size());
  out.outputs = arguments.slice(body.inputs.size(), body.outputs.size());
  if (reports)
    out.errorSlot = arguments.back();
  return out;
}

Value dynamicShared(OpBuilder &b, Location loc) {
  constexpr StringLiteral name = "ridge_dynamic_shared";
  auto module = b.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
  if (!module.lookupSymbol(name)) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(module.getBody());
    LLVM::GlobalOp::create(b, loc, LLVM::LLVMArrayType::get(b.getI8Type(), 0), /*isConstant=*/false,
                           LLVM::Linkage::External, name, Attribute(), /*alignment=*/1024, /*addrSpace=*/3);
  }
  return LLVM::AddressOfOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext(), 3), name);
}

} // namespace rl::emit
