// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Builds ops that together stand for one node of the file: each keeps the node's name, place and source. For the passes that
// decompose nodes.
#pragma once

#include "ir/dialect/Ridge.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

namespace rl {

class NodeBuilder {
public:
  using Value = mlir::Value;
  using MapFn = mlir::ridge::MapFn;
  using Shape = llvm::ArrayRef<int64_t>;

  explicit NodeBuilder(mlir::Operation *op) : op(op), b(op), loc(op->getLoc()) {}

protected:
  static mlir::RankedTensorType typeOf(Value v) { return llvm::cast<mlir::RankedTensorType>(v.getType()); }
  static Shape shapeOf(Value v) { return typeOf(v).getShape(); }
  static mlir::Type elementOf(Value v) { return mlir::getElementTypeOrSelf(v.getType()); }

  template <class Op> Value named(Op made) {
    for (llvm::StringRef name : {llvm::StringRef(mlir::ridge::kNameAttr), llvm::StringRef(mlir::ridge::kNodeAttr),
                                 llvm::StringRef(mlir::ridge::kSourceAttr)})
      if (mlir::Attribute a = op->getAttr(name))
        made->setAttr(name, a);
    return made;
  }

  mlir::Attribute scalar(double v) { return mlir::ridge::toAttribute(b.getContext(), Scalar{Scalar::Float, 0, v}); }
  mlir::Attribute scalar(int64_t v) { return mlir::ridge::toAttribute(b.getContext(), Scalar{Scalar::Int, v, 0}); }
  template <class T> Value literal(T v) { return mlir::ridge::LiteralOp::create(b, loc, scalar(v)); }

  /// An elementwise function over operands that broadcast; the result's element type is f32 unless given.
  Value map(MapFn fn, mlir::ValueRange in, mlir::Type element = {}, mlir::Attribute min = {},
            mlir::Attribute max = {}) {
    llvm::SmallVector<int64_t> shape;
    for (Value v : in) {
      if (v.getDefiningOp<mlir::ridge::LiteralOp>())
        continue;
      Shape s = shapeOf(v);
      if (s.size() > shape.size())
        shape.insert(shape.begin(), s.size() - shape.size(), 1);
      for (size_t i = 0; i < s.size(); ++i)
        if (int64_t &to = shape[shape.size() - s.size() + i]; to == 1)
          to = s[i];
    }
    auto type = mlir::RankedTensorType::get(shape, element ? element : mlir::Type(b.getF32Type()));
    return named(mlir::ridge::MapOp::create(b, loc, type, mlir::ridge::MapFnAttr::get(b.getContext(), fn), in,
                                            mlir::UnitAttr(), b.getBoolAttr(true), min, max));
  }
  Value test(MapFn fn, mlir::ValueRange in) { return map(fn, in, b.getI1Type()); }
  Value choose(Value condition, Value yes, Value no, mlir::Type element = {}) {
    return map(MapFn::Where, {condition, yes, no}, element);
  }
  Value cast(Value v, mlir::Type element) { return elementOf(v) == element ? v : map(MapFn::Cast, v, element); }
  Value cast32(Value v) { return cast(v, b.getF32Type()); }
  /// As its type stores it, even where a fused kernel would keep more of it.
  Value rounded(Value v) { return map(MapFn::Cast, v, elementOf(v)); }

  Value reshape(Value v, Shape shape) {
    if (shapeOf(v) == shape)
      return v;
    return named(mlir::ridge::ReshapeOp::create(b, loc, mlir::RankedTensorType::get(shape, elementOf(v)), v));
  }
  Value full(double v, mlir::RankedTensorType type) {
    bool floats = llvm::isa<mlir::FloatType>(type.getElementType());
    return named(mlir::ridge::FullOp::create(b, loc, type, floats ? scalar(v) : scalar(static_cast<int64_t>(v))));
  }
  /// Over `dims`, ascending, which go.
  Value reduce(mlir::ridge::ReduceFn fn, Value v, Shape dims) {
    if (dims.empty())
      return v;
    llvm::SmallVector<int64_t> shape;
    for (auto [d, extent] : llvm::enumerate(shapeOf(v)))
      if (!llvm::is_contained(dims, static_cast<int64_t>(d)))
        shape.push_back(extent);
    return named(mlir::ridge::ReduceOp::create(b, loc, mlir::RankedTensorType::get(shape, elementOf(v)),
                                               mlir::ridge::ReduceFnAttr::get(b.getContext(), fn), v,
                                               b.getDenseI64ArrayAttr(dims), mlir::UnitAttr(), b.getF64FloatAttr(1)));
  }

  static bool is16Bits(Value v) { return elementOf(v).isBF16() || elementOf(v).isF16(); }
  /// Numbers of 16 bits, or what a cast made of them.
  static bool comesFrom16Bits(Value v) {
    if (auto cast = v.getDefiningOp<mlir::ridge::MapOp>(); cast && cast.getFn() == MapFn::Cast)
      v = cast.getInputs()[0];
    return is16Bits(v);
  }
  /// e^x for x <= 0 or, where `fast` and the graph is not strict, 2^24 e^x (rl::Attrs::fast): to be summed, and the sum to divide
  /// it or to be its logarithm.
  Value exponential(Value x, bool fast) {
    Value e = map(MapFn::Exp, x);
    if (fast && !op->getParentOfType<mlir::FunctionOpInterface>()->hasAttr(mlir::ridge::kStrictAttr))
      e.getDefiningOp()->setAttr(mlir::ridge::kFastAttr, b.getUnitAttr());
    return e;
  }
  /// The logarithm of a sum of these.
  Value logOfSum(Value e, Value sum) {
    return map(MapFn::Log,
               e.getDefiningOp()->hasAttr(mlir::ridge::kFastAttr) ? map(MapFn::Mul, {sum, literal(0x1p-24)}) : sum);
  }

  mlir::Operation *op;
  mlir::OpBuilder b;
  mlir::Location loc;
};

} // namespace rl
