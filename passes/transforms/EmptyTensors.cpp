// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ir/dialect/Ridge.h"
#include "passes/transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

using namespace mlir;

namespace {

struct EmptyTensorsPass : PassWrapper<EmptyTensorsPass, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(EmptyTensorsPass)
  StringRef getArgument() const override { return "ridge-empty-tensors"; }
  StringRef getDescription() const override {
    return "Replace what computes tensors without elements by an empty constant";
  }

  void runOnOperation() override {
    if (getOperation().isExternal())
      return;
    SmallVector<Operation *> ops;
    for (Operation &op : getOperation().getBody().front().without_terminator())
      if (!isa<ridge::FullOp, ridge::LiteralOp>(op))
        ops.push_back(&op);
    // From the last to the first: what only empty tensors were computed from has no use by then.
    for (Operation *op : llvm::reverse(ops)) {
      bool empty = false;
      for (OpResult result : op->getResults()) {
        auto type = dyn_cast<RankedTensorType>(result.getType());
        if (!type || type.getNumElements() != 0)
          continue;
        empty = true;
        if (result.use_empty())
          continue;
        OpBuilder b(op);
        auto full = ridge::FullOp::create(b, op->getLoc(), type,
                                          ridge::toAttribute(op->getContext(), rl::Scalar{rl::Scalar::Int, 0, 0}));
        for (StringRef name : {StringRef(ridge::kNameAttr), StringRef(ridge::kNodeAttr), StringRef(ridge::kSourceAttr)})
          if (Attribute a = op->getAttr(name))
            full->setAttr(name, a);
        result.replaceAllUsesWith(full);
      }
      if (empty && op->use_empty())
        op->erase();
    }
  }
};

} // namespace

std::unique_ptr<Pass> rl::createEmptyTensorsPass() { return std::make_unique<EmptyTensorsPass>(); }
