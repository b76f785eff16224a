// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/lower/MathCalls.h"
#include "compiler/lower/Lower.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"

#include <map>

using namespace mlir;

namespace rl {

static constexpr StringLiteral kFn = "ridge.math_fn", kRounding = "ridge.rounding";

Value callMath(OpBuilder &b, Location loc, MathFn fn, ValueRange args, Rounding rounding) {
  Type type = args[0].getType();
  // PTX names have no dots.
  std::string name = std::string("ridge_") + mathName(fn) +
                     (rounding == Rounding::F32    ? "_f32"
                      : rounding == Rounding::F16  ? "_f16"
                      : rounding == Rounding::BF16 ? "_bf16"
                      : rounding == Rounding::Term ? "_term"
                                                   : "_bf16_inner");
  if (auto v = dyn_cast<VectorType>(type))
    name += "_v" + std::to_string(v.getNumElements());
  auto module = b.getInsertionBlock()->getParentOp()->getParentOfType<ModuleOp>();
  auto callee = module.lookupSymbol<func::FuncOp>(name);
  if (!callee) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToEnd(module.getBody());
    SmallVector<Type> types(args.getTypes());
    callee = func::FuncOp::create(b, loc, name, b.getFunctionType(types, {type}));
    callee.setPrivate();
    callee->setAttr(kFn, b.getI32IntegerAttr(static_cast<int>(fn)));
    callee->setAttr(kRounding, b.getI32IntegerAttr(static_cast<int>(rounding)));
  }
  return func::CallOp::create(b, loc, callee, args).getResult(0);
}

/// Beyond this many operations of expanded mathematics in a module each function is emitted once and called: compile time
/// grows with the code, and a body this long is bound by arithmetic whatever the calls cost.
/// The GPU's bound is higher: code is quicker to generate there, and a call's conventions take a stack.
static constexpr size_t kInlineOperations = 12000, kInlineOperationsNvptx = 40000;

Status expandMathCalls(ModuleOp module, const CodeTarget &target) {
  MathTarget mathTarget{target.nvptx, target.sm};
  std::map<std::string, SmallVector<func::CallOp>> calls;
  module.walk([&](func::CallOp call) { calls[call.getCallee().str()].push_back(call); });
  SmallVector<func::FuncOp> declarations;
  for (func::FuncOp f : module.getOps<func::FuncOp>())
    if (f->hasAttr(kFn))
      declarations.push_back(f);

  // Each function is written once; its size decides for all of its calls.
  size_t total = 0;
  SmallVector<size_t> sizes;
  for (func::FuncOp f : declarations) {
    auto fn = static_cast<MathFn>(f->getAttrOfType<IntegerAttr>(kFn).getInt());
    auto rounding = static_cast<Rounding>(f->getAttrOfType<IntegerAttr>(kRounding).getInt());
    Block *body = f.addEntryBlock();
    OpBuilder b = OpBuilder::atBlockEnd(body);
    Value result = expandMath(b, f.getLoc(), fn, body->getArguments(), rounding, mathTarget);
    func::ReturnOp::create(b, f.getLoc(), result);
    size_t operations = 0;
    f.walk([&](Operation *) { ++operations; });
    auto vectorType = dyn_cast<VectorType>(f.getFunctionType().getResult(0));
    // LLVM splits vectors; what it must process is about one operation a native vector (CPU) or a lane (GPU).
    size_t pieces =
        vectorType ? (target.nvptx ? vectorType.getNumElements() : (vectorType.getNumElements() + 7) / 8) : 1;
    total += operations * pieces * calls[f.getSymName().str()].size();
    f->removeAttr(kFn);
    f->removeAttr(kRounding);
  }
  bool outline = total > (target.nvptx ? kInlineOperationsNvptx : kInlineOperations);
  for (func::FuncOp f : declarations) {
    OpBuilder b(f);
    f->setAttr("llvm.linkage", LLVM::LinkageAttr::get(f.getContext(), LLVM::Linkage::Internal));
    f->setAttr("passthrough", b.getArrayAttr({b.getStringAttr(outline ? "noinline" : "alwaysinline")}));
  }
  return {};
}

} // namespace rl
