// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Thread and block ids, and a kernel's calling convention: the two places where a GPU and a CPU differ before LLVM.
#include "compiler/lower/Lower.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;

namespace rl {

/// Ids are `index` in kernels; the special registers are i32 and never negative.
static void idsToRegisters(func::FuncOp f) {
  auto replace = [](Operation *op, auto make) {
    OpBuilder b(op);
    Value reg = make(b, op->getLoc());
    op->getResult(0).replaceAllUsesWith(arith::IndexCastUIOp::create(b, op->getLoc(), b.getIndexType(), reg));
    op->erase();
  };
  f.walk([&](Operation *op) {
    if (isa<gpu::ThreadIdOp>(op))
      replace(op, [](OpBuilder &b, Location l) -> Value { return NVVM::ThreadIdXOp::create(b, l, b.getI32Type()); });
    else if (isa<gpu::BlockIdOp>(op))
      replace(op, [](OpBuilder &b, Location l) -> Value { return NVVM::BlockIdXOp::create(b, l, b.getI32Type()); });
  });
}

/// Turns `kernel(pointers...)` into a function of one block and wraps it: int32(void *const *args, int64 first, int64 end).
/// Of a kernel that reports, the last pointer is to what the wrapper returns.
static void wrapForCpu(func::FuncOp f) {
  MLIRContext *ctx = f.getContext();
  OpBuilder b(ctx);
  Location loc = f.getLoc();
  std::string name = f.getSymName().str();
  Type ptr = LLVM::LLVMPointerType::get(ctx);
  Type i64 = b.getI64Type();

  // The block's number is one more argument; there is one thread.
  unsigned pointers = f.getNumArguments();
  (void)f.insertArgument(pointers, b.getIndexType(), {}, loc);
  Value block = f.getArgument(pointers);
  f.walk([&](Operation *op) {
    if (isa<gpu::BlockIdOp>(op)) {
      op->getResult(0).replaceAllUsesWith(block);
      op->erase();
    } else if (isa<gpu::ThreadIdOp>(op)) {
      OpBuilder at(op);
      op->getResult(0).replaceAllUsesWith(arith::ConstantIndexOp::create(at, loc, 0));
      op->erase();
    }
  });
  bool reports = f->hasAttr("ridge.reports");
  if (reports)
    --pointers;
  f.setSymName(name + ".block");
  f.setPrivate();
  f->removeAttr("ridge.kernel");
  f->removeAttr("ridge.reports");
  f->setAttr("llvm.linkage", LLVM::LinkageAttr::get(ctx, LLVM::Linkage::Internal));
  f->setAttr("passthrough", b.getArrayAttr({b.getStringAttr("alwaysinline")}));

  b.setInsertionPointAfter(f);
  auto wrapper = func::FuncOp::create(b, loc, name, b.getFunctionType({ptr, i64, i64}, {b.getI32Type()}));
  Block *entry = wrapper.addEntryBlock();
  b.setInsertionPointToStart(entry);
  SmallVector<Value> args;
  for (unsigned i = 0; i < pointers; ++i) {
    Value slot =
        LLVM::GEPOp::create(b, loc, ptr, ptr, entry->getArgument(0), ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(i)});
    args.push_back(LLVM::LoadOp::create(b, loc, ptr, slot, 8));
  }
  Value result = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(0));
  if (reports) {
    Value count = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(1));
    args.push_back(LLVM::AllocaOp::create(b, loc, ptr, b.getI32Type(), count, 4));
    LLVM::StoreOp::create(b, loc, result, args.back(), 4);
  }
  Value first = arith::IndexCastOp::create(b, loc, b.getIndexType(), entry->getArgument(1));
  Value end = arith::IndexCastOp::create(b, loc, b.getIndexType(), entry->getArgument(2));
  Value one = arith::ConstantIndexOp::create(b, loc, 1);
  auto loop = scf::ForOp::create(b, loc, first, end, one);
  b.setInsertionPointToStart(loop.getBody());
  args.push_back(loop.getInductionVar());
  func::CallOp::create(b, loc, f, args);
  b.setInsertionPointAfter(loop);
  if (reports)
    result = LLVM::LoadOp::create(b, loc, b.getI32Type(), args[pointers], 4);
  func::ReturnOp::create(b, loc, result);
}

void lowerIds(ModuleOp module, const CodeTarget &target) {
  SmallVector<func::FuncOp> kernels;
  for (func::FuncOp f : module.getOps<func::FuncOp>())
    if (f->hasAttr("ridge.kernel"))
      kernels.push_back(f);
  for (func::FuncOp f : kernels) {
    if (!target.nvptx) {
      wrapForCpu(f);
      continue;
    }
    idsToRegisters(f);
    OpBuilder b(f);
    f->setAttr(NVVM::NVVMDialect::getKernelFuncAttrName(), b.getUnitAttr());
    if (auto block = f->getAttrOfType<IntegerAttr>("ridge.block"))
      f->setAttr(NVVM::NVVMDialect::getReqntidAttrName(),
                 b.getDenseI32ArrayAttr({static_cast<int32_t>(block.getInt())}));
    f->removeAttr("ridge.kernel");
    f->removeAttr("ridge.block");
  }
}

} // namespace rl
