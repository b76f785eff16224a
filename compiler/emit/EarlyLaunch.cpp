// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/emit/EarlyLaunch.h"
#include "compiler/emit/InlineAsm.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;

namespace rl::emit {

using mlir::Value; // not the graph's

namespace {

constexpr StringLiteral kWait = "griddepcontrol.wait;";
constexpr StringLiteral kReadOnlyLoad = "ld.global.nc";
/// Inputs up to so many bytes are asked for ahead as a whole, by all threads of the grid: what each reads of them is not known here.
constexpr int64_t kSmallBytes = 64 << 10, kLine = 128, kLinesOfThread = 4;

Type nothing(OpBuilder &b) { return LLVM::LLVMVoidType::get(b.getContext()); }

/// The kernel's argument that an address is counted from, or none.
std::optional<unsigned> argumentOf(Value address, Block *entry) {
  while (auto gep = address.getDefiningOp<LLVM::GEPOp>())
    address = gep.getBase();
  auto argument = dyn_cast<BlockArgument>(address);
  if (!argument || argument.getOwner() != entry)
    return std::nullopt;
  return argument.getArgNumber();
}

/// Asks for the small inputs that may be read ahead, line by line.
void prefetchSmall(OpBuilder &b, Location loc, func::FuncOp f, const EarlyLaunch &early, int64_t blocks) {
  auto block = f->getAttrOfType<IntegerAttr>("ridge.block");
  const int64_t threads = block ? block.getInt() : 0;
  Value line;
  for (size_t i = 0; i < early.written.size(); ++i) {
    const int64_t lines = (early.bytes[i] + kLine - 1) / kLine;
    if (!early.mayReadAhead(i) || early.bytes[i] > kSmallBytes || lines > kLinesOfThread * threads * blocks)
      continue;
    if (!line) {
      Value at = gpu::BlockIdOp::create(b, loc, gpu::Dimension::x);
      at = arith::MulIOp::create(b, loc, at, arith::ConstantIndexOp::create(b, loc, threads));
      at = arith::AddIOp::create(b, loc, at, gpu::ThreadIdOp::create(b, loc, gpu::Dimension::x));
      line = arith::IndexCastUIOp::create(b, loc, b.getI64Type(), at);
    }
    for (int64_t first = 0; first < lines; first += threads * blocks) {
      auto constant = [&](int64_t v) { return arith::ConstantIntOp::create(b, loc, b.getI64Type(), v).getResult(); };
      Value mine = arith::AddIOp::create(b, loc, line, constant(first));
      Value offset = arith::MulIOp::create(b, loc, mine, constant(kLine));
      Value pointer = f.getArgument(static_cast<unsigned>(i));
      Value at = LLVM::GEPOp::create(b, loc, pointer.getType(), b.getI8Type(), pointer, ValueRange{offset});
      inlineAsm(b, loc, nothing(b),
                "{\n.reg .pred there;\nsetp.lt.u64 there, $1, " + Twine(lines) +
                    ";\n@there prefetch.global.L2 [$0];\n}",
                "l,l", {at, mine});
    }
  }
}

/// The wait, with the pointers to what the plan writes passed through it.
Status wait(OpBuilder &b, Location loc, LLVM::InlineAsmOp placed, Block *entry, const EarlyLaunch &early) {
  SmallVector<Value> pointers;
  for (auto [i, written] : llvm::enumerate(early.written))
    if (written)
      pointers.push_back(entry->getArgument(static_cast<unsigned>(i)));
  if (pointers.empty())
    return {};
  b.setInsertionPoint(placed);
  SmallVector<Type> types(pointers.size(), pointers[0].getType());
  Type result = types.size() == 1 ? types[0] : Type(LLVM::LLVMStructType::getLiteral(b.getContext(), types));
  std::string constraints;
  for (size_t i = 0; i < pointers.size(); ++i)
    constraints += "=l,";
  for (size_t i = 0; i < pointers.size(); ++i)
    constraints += std::to_string(i) + ",";
  Operation *made = inlineAsm(b, loc, result, kWait, constraints + "~{memory}", pointers);
  for (auto [i, before] : llvm::enumerate(pointers)) {
    Value behind = made->getResult(0);
    if (types.size() > 1)
      behind = LLVM::ExtractValueOp::create(b, loc, behind, static_cast<int64_t>(i));
    for (OpOperand &use : llvm::make_early_inc_range(before.getUses())) {
      Operation *user = use.getOwner();
      if (user == made)
        continue;
      Operation *inEntry = entry->findAncestorOpInBlock(*user);
      if (!inEntry || inEntry->isBeforeInBlock(made))
        return unsupported({}, "internal: a kernel uses what the plan writes before it waits");
      use.set(behind);
    }
  }
  placed.erase();
  return {};
}

/// Loads of read-only memory are allowed of what nobody writes while the kernel runs.
void loadAsWritten(FunctionOpInterface f, const EarlyLaunch &early) {
  Block *entry = &f.getFunctionBody().front();
  auto isReadOnly = [&](Value address) {
    std::optional<unsigned> argument = argumentOf(address, entry);
    return argument && early.mayReadAhead(*argument);
  };
  f.walk([&](Operation *op) {
    if (auto load = dyn_cast<LLVM::LoadOp>(op)) {
      if (load.getInvariant() && !isReadOnly(load.getAddr()))
        load.setInvariant(false);
      return;
    }
    auto text = dyn_cast<LLVM::InlineAsmOp>(op);
    if (!text || !text.getAsmString().starts_with(kReadOnlyLoad) || isReadOnly(text.getOperand(0)))
      return;
    OpBuilder b(op);
    Operation *made = inlineAsm(b, op->getLoc(), text.getResult(0).getType(),
                                "ld.global" + text.getAsmString().drop_front(kReadOnlyLoad.size()),
                                text.getConstraints(), text.getOperands());
    text.getResult(0).replaceAllUsesWith(made->getResult(0));
    text.erase();
  });
}

} // namespace

void waitForKernelBefore(OpBuilder &b, Location loc) { inlineAsm(b, loc, nothing(b), kWait, "~{memory}", {}); }

void prefetchBulk(OpBuilder &b, Location loc, Value from, Value bytes, Value policy) {
  SmallVector<Value> operands{from, bytes};
  if (policy)
    operands.push_back(policy);
  inlineAsm(b, loc, nothing(b),
            policy ? "cp.async.bulk.prefetch.L2.global.L2::cache_hint [$0], $1, $2;"
                   : "cp.async.bulk.prefetch.L2.global [$0], $1;",
            policy ? "l,r,l" : "l,r", operands);
}

Status applyEarlyLaunch(ModuleOp module, const std::string &kernel, const EarlyLaunch &early, int64_t blocks) {
  auto f = cast<FunctionOpInterface>(module.lookupSymbol(kernel));
  Block *entry = &f.getFunctionBody().front();
  OpBuilder b = OpBuilder::atBlockBegin(entry);
  Location loc = f.getLoc();
  if (early.triggers)
    inlineAsm(b, loc, nothing(b), "griddepcontrol.launch_dependents;", "", {});
  if (!early.waits)
    return {};
  LLVM::InlineAsmOp placed;
  for (auto op : entry->getOps<LLVM::InlineAsmOp>())
    if (op.getAsmString() == kWait)
      placed = op;
  if (!placed) {
    if (auto plain = dyn_cast<func::FuncOp>(f.getOperation()))
      prefetchSmall(b, loc, plain, early, blocks);
    placed = cast<LLVM::InlineAsmOp>(inlineAsm(b, loc, nothing(b), kWait, "~{memory}", {}));
  }
  RL_TRY(wait(b, loc, placed, entry, early));
  loadAsWritten(f, early);
  return {};
}

} // namespace rl::emit
