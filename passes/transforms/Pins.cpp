// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ir/dialect/Ridge.h"
#include "passes/transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Pass/Pass.h"

using namespace mlir;

namespace {

/// A node pinned to a 16-bit type reads its float operands rounded to it and rounds its result to it, once, before that
/// is stored in the node's own type. Casts say so to everything that follows: they always round. A pin to f32 asks for
/// nothing: f32 is what these ops compute in. Ops of other classes are left to those who compile them.
struct PinsPass : PassWrapper<PinsPass, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(PinsPass)
  StringRef getArgument() const override { return "ridge-pins"; }
  StringRef getDescription() const override { return "Round around nodes that are pinned to a 16-bit float type"; }

  void runOnOperation() override {
    SmallVector<std::pair<Operation *, Type>> pinned;
    getOperation().walk([&](Operation *op) {
      auto pin = op->getAttrOfType<TypeAttr>(ridge::kPrecisionAttr);
      if (pin && (pin.getValue().isF16() || pin.getValue().isBF16()))
        pinned.emplace_back(op, pin.getValue());
    });
    for (auto [op, pin] : pinned)
      wrap(op, pin);
  }

  static bool takesAnyFloat(Operation *op) {
    return isa<ridge::MapOp, ridge::FullOp, ridge::IotaOp, ridge::ReshapeOp, ridge::PermuteOp, ridge::ExpandOp,
               ridge::SliceOp, ridge::CatOp, ridge::PadOp, ridge::FlipOp>(op);
  }

  static void wrap(Operation *op, Type pin) {
    OpBuilder b(op);
    // Where no operand decides the result's type, or a float one does, the result may be of the pinned type itself.
    auto map = dyn_cast<ridge::MapOp>(op);
    bool follows = op->getNumOperands() == 0 || (map && map.getFn() == ridge::MapFn::Cast);
    const bool any = takesAnyFloat(op);
    for (OpOperand &operand : op->getOpOperands())
      if (!operand.get().getDefiningOp<ridge::LiteralOp>() && isFloat(operand.get())) {
        // Ops whose operands' types say more than how they round get them back in these.
        Type own = getElementTypeOrSelf(operand.get().getType());
        Value narrow = cast(b, op, operand.get(), pin);
        operand.set(any ? narrow : cast(b, op, narrow, own));
        follows = any;
      }
    b.setInsertionPointAfter(op);
    for (OpResult result : op->getResults()) {
      if (!isFloat(result))
        continue;
      Type own = getElementTypeOrSelf(result.getType());
      if (follows)
        result.setType(llvm::cast<RankedTensorType>(result.getType()).clone(pin));
      Value first = cast(b, op, result, pin), last = cast(b, op, first, own);
      result.replaceAllUsesExcept(last, first.getDefiningOp());
    }
  }

  static bool isFloat(Value v) {
    Type element = getElementTypeOrSelf(v.getType());
    return element.isF32() || element.isF16() || element.isBF16();
  }

  /// A cast of `v` that belongs to the node of `op`.
  static Value cast(OpBuilder &b, Operation *op, Value v, Type element) {
    auto map = ridge::MapOp::create(b, op->getLoc(), llvm::cast<RankedTensorType>(v.getType()).clone(element),
                                    ridge::MapFnAttr::get(b.getContext(), ridge::MapFn::Cast), v, UnitAttr(),
                                    b.getBoolAttr(true), Attribute(), Attribute());
    for (StringRef name : {StringRef(ridge::kNameAttr), StringRef(ridge::kNodeAttr), StringRef(ridge::kSourceAttr)})
      if (Attribute a = op->getAttr(name))
        map->setAttr(name, a);
    return map;
  }
};

} // namespace

std::unique_ptr<Pass> rl::createPinsPass() { return std::make_unique<PinsPass>(); }
