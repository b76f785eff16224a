// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Folders. They move and compose index maps only: no fold here computes on elements, so no NaN, signed zero or rounding
// can change. An op that absorbs its producer is changed in place and so keeps its node, name and type.
#include "ir/dialect/Ridge.h"

#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace mlir::ridge;

static ArrayRef<int64_t> shapeOf(Value value) { return cast<RankedTensorType>(value.getType()).getShape(); }

/// The format lets a 16-bit value keep f32 precision inside a kernel until an explicit cast rounds it, so a cast of
/// such a value to its own type does something, unless the value was read from memory or is a cast's (but one that gives a product
/// its node's type, kFastAttr), or the graph is strict.
static bool isRounded(Value value) {
  Type element = getElementTypeOrSelf(value.getType());
  if (!element.isF16() && !element.isBF16())
    return true;
  if (isa<BlockArgument>(value))
    return true;
  if (auto map = value.getDefiningOp<MapOp>(); map && map.getFn() == MapFn::Cast && !map->hasAttr(kFastAttr))
    return true;
  auto function = value.getDefiningOp()->getParentOfType<FunctionOpInterface>();
  return function && function->hasAttr(kStrictAttr);
}

/// What an op that changes nothing folds to. A literal is weakly typed and its moved copy is not: that op stays.
static OpFoldResult foldTo(Value source) {
  return source.getDefiningOp<LiteralOp>() ? OpFoldResult() : OpFoldResult(source);
}

OpFoldResult MapOp::fold(FoldAdaptor) {
  if (getFn() != MapFn::Cast || getInputs().size() != 1)
    return {};
  Value input = getInputs()[0];
  if (input.getType() != getType() || !isRounded(input))
    return {};
  // A saturating cast clamps an infinity, which of the f8 types this one alone has.
  if (isa<Float8E5M2Type>(getElementTypeOrSelf(getType())) && getSaturate())
    return {};
  return foldTo(input);
}

OpFoldResult ReshapeOp::fold(FoldAdaptor) {
  if (getInput().getType() == getType())
    return foldTo(getInput());
  if (auto inner = getInput().getDefiningOp<ReshapeOp>()) {
    getInputMutable().assign(inner.getInput());
    return getResult();
  }
  return {};
}

OpFoldResult ExpandOp::fold(FoldAdaptor) {
  if (getInput().getType() == getType())
    return foldTo(getInput());
  if (auto inner = getInput().getDefiningOp<ExpandOp>()) {
    getInputMutable().assign(inner.getInput());
    return getResult();
  }
  return {};
}

OpFoldResult PermuteOp::fold(FoldAdaptor) {
  ArrayRef<int64_t> dims = getDims();
  if (llvm::equal(dims, llvm::seq<int64_t>(0, dims.size())))
    return foldTo(getInput());
  auto inner = getInput().getDefiningOp<PermuteOp>();
  if (!inner)
    return {};
  SmallVector<int64_t> composed;
  for (int64_t d : dims)
    composed.push_back(inner.getDims()[d]);
  getInputMutable().assign(inner.getInput());
  setDims(composed);
  return getResult();
}

OpFoldResult SliceOp::fold(FoldAdaptor) {
  int64_t dim = getDim(), step = getStep(), start = getStart();
  int64_t length = shapeOf(getResult())[dim];
  // A slice as long as its operand takes every element; only a step of -1 reverses them.
  if (getInput().getType() == getType() && (step > 0 || length <= 1))
    return foldTo(getInput());
  auto inner = getInput().getDefiningOp<SliceOp>();
  if (!inner || inner.getDim() != getDim() || length == 0)
    return {};
  // Element i is the inner slice's start + i * step, and so the source's innerStart + innerStep * (start + i * step).
  int64_t innerStep = inner.getStep(), innerStart = inner.getStart(), newStart, newStep;
  if (llvm::MulOverflow(innerStep, step, newStep) || llvm::MulOverflow(innerStep, start, newStart) ||
      llvm::AddOverflow(innerStart, newStart, newStart))
    return {};
  getInputMutable().assign(inner.getInput());
  setStart(newStart);
  setStep(newStep);
  return getResult();
}

OpFoldResult CatOp::fold(FoldAdaptor) {
  if (getInputs().size() == 1 && getInputs()[0].getType() == getType())
    return foldTo(getInputs()[0]);
  // Operands without elements take no place. Those of another element type stay: they have a say in the result's.
  Type element = getType().getElementType();
  auto isEmpty = [&](Value v) { return shapeOf(v)[getDim()] == 0 && getElementTypeOrSelf(v.getType()) == element; };
  SmallVector<Value> kept;
  for (Value v : getInputs())
    if (!isEmpty(v))
      kept.push_back(v);
  if (kept.empty())
    kept.push_back(getInputs()[0]);
  bool typeKept = llvm::any_of(kept, [&](Value v) { return getElementTypeOrSelf(v.getType()) == element; });
  if (kept.size() == getInputs().size() || !typeKept)
    return {};
  getInputsMutable().assign(kept);
  return getResult();
}

OpFoldResult PadOp::fold(FoldAdaptor) {
  auto isZero = [](int64_t n) { return n == 0; };
  if (getInput().getType() == getType() && llvm::all_of(getLow(), isZero) && llvm::all_of(getHigh(), isZero))
    return foldTo(getInput());
  return {};
}

OpFoldResult FlipOp::fold(FoldAdaptor) {
  ArrayRef<int64_t> shape = shapeOf(getInput());
  // Reversing at most one element changes nothing, and reversing twice neither.
  auto inner = getInput().getDefiningOp<FlipOp>();
  SmallVector<int64_t> dims;
  for (int64_t d = 0, rank = shape.size(); d < rank; ++d) {
    bool flipped = llvm::is_contained(getDims(), d) != (inner && llvm::is_contained(inner.getDims(), d));
    if (flipped && shape[d] > 1)
      dims.push_back(d);
  }
  Value source = inner ? Value(inner.getInput()) : Value(getInput());
  if (dims.empty())
    return foldTo(source);
  if (!inner && dims.size() == getDims().size())
    return {};
  getInputMutable().assign(source);
  setDims(dims);
  return getResult();
}
