// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Columns of a product's result that are read apart are products with those columns of the right operand, a view. Where some
// columns are read by nobody there is less to multiply; where two halves meet in an elementwise op (a gate and what it lets
// through, out of one matrix of weights) a kernel can compute both and store what they make alone. Otherwise the one product
// stays: it fills the machine better than its parts.
#include "passes/transforms/NodeBuilder.h"
#include "passes/transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace {

/// What slices of the columns read of a product; empty where anything else reads it.
SmallVector<ridge::SliceOp> columnsRead(Operation *product) {
  Value result = product->getResult(0);
  const int64_t dim = cast<RankedTensorType>(result.getType()).getRank() - 1;
  SmallVector<ridge::SliceOp> out;
  for (Operation *user : result.getUsers()) {
    auto slice = dyn_cast<ridge::SliceOp>(user);
    if (!slice || static_cast<int64_t>(slice.getDim()) != dim || slice.getStep() != 1)
      return {};
    out.push_back(slice);
  }
  llvm::sort(out, [](ridge::SliceOp a, ridge::SliceOp b) { return a.getStart() < b.getStart(); });
  return out;
}

int64_t widthOf(ridge::SliceOp s) { return cast<RankedTensorType>(s.getType()).getShape().back(); }

/// Whether an elementwise op has something of both, through few elementwise ops of each.
bool meet(ridge::SliceOp x, ridge::SliceOp y) {
  constexpr size_t kMost = 32;
  auto behind = [](ridge::SliceOp s) {
    llvm::SetVector<Operation *> out;
    auto add = [&](Value v) {
      for (Operation *user : v.getUsers())
        if (isa<ridge::MapOp>(user))
          out.insert(user);
    };
    add(s.getResult());
    for (size_t i = 0; i < out.size() && out.size() < kMost; ++i)
      add(out[i]->getResult(0));
    return out;
  };
  llvm::SetVector<Operation *> ofX = behind(x);
  return llvm::any_of(behind(y), [&](Operation *op) { return ofX.contains(op); });
}

/// The same product with a part of its columns.
class PartOfProduct : rl::NodeBuilder {
public:
  using NodeBuilder::NodeBuilder;

  void replace(ridge::SliceOp columns) {
    Operation *part = b.clone(*op);
    auto take = [&](unsigned operand, int64_t dim) {
      Value v = op->getOperand(operand);
      llvm::SmallVector<int64_t> shape(shapeOf(v));
      shape[static_cast<size_t>(dim)] = widthOf(columns);
      b.setInsertionPoint(part);
      auto slice =
          ridge::SliceOp::create(b, loc, RankedTensorType::get(shape, elementOf(v)), v, dim, columns.getStart(), 1);
      for (StringRef attr : {StringRef(ridge::kNameAttr), StringRef(ridge::kNodeAttr), StringRef(ridge::kSourceAttr)})
        if (Attribute a = columns->getAttr(attr))
          slice->setAttr(attr, a);
      part->setOperand(operand, slice);
      b.setInsertionPoint(op);
    };
    if (auto matmul = dyn_cast<ridge::MatmulOp>(op)) {
      const int64_t rank = typeOf(matmul.getB()).getRank();
      take(1, matmul.getTransposeB() ? rank - 2 : rank - 1);
    } else {
      take(1, 0);
      if (cast<ridge::LinearOp>(op).getBias())
        take(2, 0);
    }
    part->getResult(0).setType(columns.getType());
    if (Attribute name = columns->getAttr(ridge::kNameAttr))
      part->setAttr(ridge::kNameAttr, name);
    columns.getResult().replaceAllUsesWith(part->getResult(0));
    columns.erase();
  }
};

struct SliceProductsPass : PassWrapper<SliceProductsPass, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(SliceProductsPass)
  StringRef getArgument() const override { return "ridge-slice-products"; }
  StringRef getDescription() const override { return "Products of the columns that are read"; }

  void runOnOperation() override {
    SmallVector<Operation *> products;
    for (Operation &op : getOperation().getOps())
      if (auto matmul = dyn_cast<ridge::MatmulOp>(op);
          isa<ridge::LinearOp>(op) || (matmul && cast<RankedTensorType>(matmul.getB().getType()).getRank() > 1))
        products.push_back(&op);
    for (Operation *product : products) {
      SmallVector<ridge::SliceOp> parts = columnsRead(product);
      if (!pays(product, parts))
        continue;
      for (ridge::SliceOp part : parts)
        PartOfProduct(product).replace(part);
      product->erase();
    }
  }

  static bool pays(Operation *product, ArrayRef<ridge::SliceOp> parts) {
    constexpr size_t kMost = 4; // kernels in place of one
    if (parts.empty() || parts.size() > kMost)
      return false;
    int64_t read = 0, end = 0;
    for (ridge::SliceOp s : parts) {
      if (static_cast<int64_t>(s.getStart()) < end) // columns that would be computed twice
        return false;
      end = static_cast<int64_t>(s.getStart()) + widthOf(s);
      read += widthOf(s);
    }
    const int64_t all = cast<RankedTensorType>(product->getResult(0).getType()).getShape().back();
    // Less than a tenth is not worth a start that may be at no multiple of 16 bytes.
    if (10 * read <= 9 * all)
      return true;
    return parts.size() == 2 && widthOf(parts[0]) == widthOf(parts[1]) && meet(parts[0], parts[1]);
  }
};

} // namespace

std::unique_ptr<Pass> rl::createSliceProductsPass() { return std::make_unique<SliceProductsPass>(); }
