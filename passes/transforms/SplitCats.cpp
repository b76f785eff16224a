// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A cat is the one op that reads as many tensors as it likes; a launch takes only so many arguments. A long one becomes a
// cat of cats, and the planner may then write the inner ones in kernels of their own.
#include "ir/dialect/Ridge.h"
#include "passes/transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

using namespace mlir;

namespace {

struct SplitCatsPass : PassWrapper<SplitCatsPass, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(SplitCatsPass)
  explicit SplitCatsPass(size_t limit) { most = limit; }
  SplitCatsPass(const SplitCatsPass &other) : PassWrapper(other) {}
  StringRef getArgument() const override { return "ridge-split-cats"; }
  StringRef getDescription() const override { return "Nest concatenations of more operands than a kernel takes"; }
  Option<size_t> most{*this, "most", llvm::cl::desc("operands that a cat may have"), llvm::cl::init(254)};

  void runOnOperation() override {
    if (most < 2) {
      getOperation().emitError("ridge-split-cats: a cat must be allowed two operands");
      return signalPassFailure();
    }
    SmallVector<ridge::CatOp> cats(getOperation().getOps<ridge::CatOp>());
    for (ridge::CatOp cat : cats)
      split(cat);
  }

  void split(ridge::CatOp cat) {
    if (cat.getInputs().size() <= most)
      return;
    auto type = cast<RankedTensorType>(cat.getType());
    auto dim = static_cast<size_t>(cat.getDim());
    SmallVector<Value> parts(cat.getInputs());
    OpBuilder b(cat);
    size_t made = 0;
    while (parts.size() > most) {
      // As few parts as do, of even size.
      size_t count = (parts.size() + most - 1) / most, at = 0;
      SmallVector<Value> next;
      for (size_t i = 0; i < count; ++i) {
        size_t end = parts.size() * (i + 1) / count;
        ArrayRef<Value> some = ArrayRef<Value>(parts).slice(at, end - at);
        at = end;
        if (some.size() == 1) {
          next.push_back(some[0]);
          continue;
        }
        SmallVector<int64_t> shape(type.getShape());
        shape[dim] = 0;
        for (Value v : some)
          shape[dim] += cast<RankedTensorType>(v.getType()).getDimSize(static_cast<unsigned>(dim));
        auto part = ridge::CatOp::create(b, cat.getLoc(), RankedTensorType::get(shape, type.getElementType()), some,
                                         cat.getDim());
        for (StringRef attr : {StringRef(ridge::kNodeAttr), StringRef(ridge::kSourceAttr)})
          if (Attribute a = cat->getAttr(attr))
            part->setAttr(attr, a);
        if (StringRef name = ridge::valueName(cat); !name.empty())
          part->setAttr(ridge::kNameAttr, b.getStringAttr(name + ".part" + Twine(made++)));
        next.push_back(part);
      }
      parts = std::move(next);
    }
    cat.getInputsMutable().assign(parts);
  }
};

} // namespace

std::unique_ptr<Pass> rl::createSplitCatsPass(size_t most) { return std::make_unique<SplitCatsPass>(most); }
