// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A loss becomes reductions of its rows and one element that is picked from each, so that one kernel reads the logits once.
#include "passes/transforms/NodeBuilder.h"
#include "passes/transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

using namespace mlir;
using ridge::MapFn;
using ridge::ReduceFn;

namespace {

class LossBuilder : rl::NodeBuilder {
public:
  using rl::NodeBuilder::NodeBuilder;

  /// log(sum of exp(x - top)) - (x[target] - top), top being the row's maximum: as log_softmax, so that a row of -inf alone, or
  /// with a +inf or a NaN, gives NaN. The target that is ignored is looked up at 0 and counts for nothing.
  Value crossEntropy(ridge::CrossEntropyOp loss) {
    int64_t rows = shapeOf(loss.getLogits())[0], classes = shapeOf(loss.getLogits())[1];
    Value targets = loss.getTargets(), ignored = test(MapFn::Eq, {targets, literal(ignoredIndex(loss))});
    Type i64 = b.getI64Type();
    if (classes == 0) {
      // Any other target is out of range.
      Value out = choose(ignored, literal(int64_t{0}), literal(int64_t{1}), i64);
      return pick(full(0, RankedTensorType::get({rows, 1}, b.getF32Type())), out);
    }
    Value x = loss.getLogits(), logits = cast32(x);
    Value chosen = choose(ignored, literal(int64_t{0}), targets, i64);
    Value top = reduce(ReduceFn::Amax, logits, 1);
    Value less = map(MapFn::Sub, {logits, reshape(top, {rows, 1})});
    // As in ridge-decompose: only the logarithm of the sum is returned, of numbers that were rounded to 16 bits.
    Value e = exponential(less, comesFrom16Bits(x)), sum = reduce(ReduceFn::Sum, e, 1);
    Value target = map(MapFn::Sub, {pick(logits, chosen), top});
    return choose(ignored, literal(0.0), map(MapFn::Sub, {logOfSum(e, sum), target}));
  }

private:
  static int64_t ignoredIndex(ridge::CrossEntropyOp loss) { return static_cast<int64_t>(loss.getIgnoreIndex()); }

  /// y[m] = x[m, index[m]].
  Value pick(Value x, Value index) {
    int64_t rows = shapeOf(x)[0];
    auto type = RankedTensorType::get({rows, 1}, elementOf(x));
    Value picked = named(ridge::GatherOp::create(b, loc, type,
                                                 ridge::GatherKindAttr::get(b.getContext(), ridge::GatherKind::Gather),
                                                 x, reshape(index, {rows, 1}), b.getI64IntegerAttr(1)));
    return reshape(picked, rows);
  }
};

struct DecomposeLossPass : PassWrapper<DecomposeLossPass, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(DecomposeLossPass)
  StringRef getArgument() const override { return "ridge-decompose-loss"; }
  StringRef getDescription() const override { return "Losses as reductions of rows and an element picked from each"; }

  void runOnOperation() override {
    if (getOperation().isExternal())
      return;
    SmallVector<ridge::CrossEntropyOp> losses;
    getOperation().walk([&](ridge::CrossEntropyOp op) { losses.push_back(op); });
    for (ridge::CrossEntropyOp op : losses) {
      op.getResult().replaceAllUsesWith(LossBuilder(op).crossEntropy(op));
      op.erase();
    }
  }
};

} // namespace

std::unique_ptr<Pass> rl::createDecomposeLossPass() { return std::make_unique<DecomposeLossPass>(); }
