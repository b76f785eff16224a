// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Norms, softmax and the reductions that are made of others become elementwise ops and sums, products, extremes, any and all.
// What lies in between is f32, whatever the node's type, so that no mode rounds it; the node's type comes last, by a cast.
// Every op that is made keeps the node's name and place in the file.
#include "ir/dialect/Ridge.h"
#include "passes/cost/Target.h"
#include "passes/transforms/NodeBuilder.h"
#include "passes/transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Pass/Pass.h"

#include <cmath>
#include <set>

using namespace mlir;
using ridge::MapFn;
using ridge::ReduceFn;

namespace {

/// Builds the ops that stand for one node.
class Decomposer : rl::NodeBuilder {
public:
  /// `rowBlocks`: blocks that take rows one after the other, where sums down the columns of rows that are reduced as well
  /// are to be carried along; `clusterRows`: so many rows, each by a cluster of eight blocks, occupy half of the machine, 0
  /// where it has no clusters; `rows`: shapes of what is reduced along its last dimension.
  Decomposer(Operation *op, int64_t rowBlocks, int64_t clusterRows, const std::set<std::vector<int64_t>> &rows)
      : NodeBuilder(op), rowBlocks(rowBlocks), clusterRows(clusterRows), rows(rows) {}

  /// What the node's result is replaced by; null: it stays.
  Value run() {
    if (auto softmax = dyn_cast<ridge::SoftmaxOp>(op))
      return finish(decompose(softmax));
    if (auto norm = dyn_cast<ridge::LayerNormOp>(op))
      return finish(layerNorm(norm));
    if (auto norm = dyn_cast<ridge::RmsNormOp>(op))
      return finish(rmsNorm(norm));
    if (auto reduce = dyn_cast<ridge::ReduceOp>(op))
      return decompose(reduce);
    return {};
  }

private:
  /// Into how many parts, contiguous along dimension `dim`, a reduction is divided so that enough blocks and cores work on it; 1:
  /// not at all. What a block or a cluster can hold as a row stays whole, as other ops on the same rows may then share its
  /// kernel.
  int64_t partsOf(ArrayRef<int64_t> shape, ArrayRef<int64_t> dims, int64_t dim) const {
    constexpr int64_t kLongRow = 1 << 16, kClusterRow = 1 << 18, kVector = 8, kLongColumn = 2048, kBlocks = 1024,
                      kRowsOfBlock = 128, kLeast = 256;
    int64_t results = 1, reduced = 1;
    for (auto [d, extent] : llvm::enumerate(shape))
      (llvm::is_contained(dims, static_cast<int64_t>(d)) ? reduced : results) *= extent;
    bool column = dims.back() + 1 != static_cast<int64_t>(shape.size()) && shape.back() > 1;
    int64_t blocks = column ? (results + kRowsOfBlock - 1) / kRowsOfBlock : results;
    int64_t most = column ? kBlocks / 2 : kBlocks;
    if (reduced < (column ? kLongColumn : kLongRow) || blocks >= most / 2)
      return 1;
    if (!column && clusterRows && results >= clusterRows && reduced <= kClusterRow && reduced % kVector == 0)
      return 1;
    int64_t best = 1;
    for (int64_t parts = 2; parts <= shape[dim] && parts * blocks <= most && reduced / parts >= kLeast; ++parts)
      if (shape[dim] % parts == 0)
        best = parts;
    return best;
  }

  /// Of a sum down the columns of rows that are reduced as well: a part for each block that takes rows one after the other.
  int64_t partsBesideRows(ArrayRef<int64_t> shape, ArrayRef<int64_t> dims) const {
    if (shape.size() < 2 || dims.size() + 1 != shape.size() || dims.back() + 1 == static_cast<int64_t>(shape.size()) ||
        !rows.contains(shape.vec()))
      return 1;
    int64_t height = 1, best = 1;
    for (int64_t d : shape.drop_back())
      height *= d;
    for (int64_t parts = 2; parts <= rowBlocks && parts * 2 <= height; ++parts)
      if (height % parts == 0)
        best = parts;
    return best * 4 >= rowBlocks ? best : 1;
  }

  /// A reduction in two stages where one would be too few blocks; the same order of additions every time.
  Value reduceInParts(ReduceFn fn, Value v, ArrayRef<int64_t> dims, Type element) {
    ArrayRef<int64_t> shape = typeOf(v).getShape();
    if (int64_t parts = partsBesideRows(shape, dims); parts > 1 && fn == ReduceFn::Sum && element.isF32()) {
      int64_t width = shape.back(), height = typeOf(v).getNumElements() / width;
      Value pieces = named(ridge::ReshapeOp::create(
          b, loc, RankedTensorType::get({height / parts, parts, width}, typeOf(v).getElementType()), v));
      // Rows in turn, so that all blocks together go through memory in its order.
      Value all = reduce(fn, reduce(fn, pieces, 0, element), 1, element);
      SmallVector<int64_t> kept(shape.size(), 1);
      kept.back() = width;
      return named(ridge::ReshapeOp::create(b, loc, RankedTensorType::get(kept, element), all));
    }
    int64_t dim = dims[0], parts = shape.size() < 8 ? partsOf(shape, dims, dim) : 1;
    if (parts == 1)
      return reduce(fn, v, dims, element);
    SmallVector<int64_t> split(shape), inner;
    split[dim] /= parts;
    split.insert(split.begin() + dim, parts);
    for (int64_t d : dims)
      inner.push_back(d + 1);
    Value pieces = named(ridge::ReshapeOp::create(b, loc, RankedTensorType::get(split, typeOf(v).getElementType()), v));
    Value all = reduce(fn, reduce(fn, pieces, inner, element), dim, element);
    SmallVector<int64_t> kept(shape);
    for (int64_t d : dims)
      kept[d] = 1;
    return named(ridge::ReshapeOp::create(b, loc, RankedTensorType::get(kept, element), all));
  }

  /// The dimensions stay, with extent 1.
  Value reduce(ReduceFn fn, Value v, ArrayRef<int64_t> dims, Type element) {
    SmallVector<int64_t> shape(typeOf(v).getShape());
    for (int64_t d : dims)
      shape[d] = 1;
    return named(ridge::ReduceOp::create(b, loc, RankedTensorType::get(shape, element),
                                         ridge::ReduceFnAttr::get(b.getContext(), fn), v, b.getDenseI64ArrayAttr(dims),
                                         b.getUnitAttr(), b.getF64FloatAttr(1)));
  }
  /// The same of f32. A row of one element is its own sum and extreme: so what is subtracted from it is exactly that, where one
  /// kernel would have it as it was stored and another as it was computed.
  Value reduce(ReduceFn fn, Value v, ArrayRef<int64_t> dims) {
    ArrayRef<int64_t> shape = typeOf(v).getShape();
    if (llvm::all_of(dims, [&](int64_t d) { return shape[d] == 1; }))
      return v;
    return reduce(fn, v, dims, b.getF32Type());
  }

  /// The node's own type and shape.
  Value finish(Value v) {
    auto type = typeOf(op->getResult(0));
    if (typeOf(v).getElementType() != type.getElementType())
      v = map(MapFn::Cast, v, type.getElementType());
    if (typeOf(v).getShape() != type.getShape())
      v = named(ridge::ReshapeOp::create(b, loc, type, v));
    return v;
  }

  /// A quotient by a number that is known: exactly what dividing gives, so that the mean of equal values is the value.
  Value over(Value v, double n) { return map(MapFn::Div, {v, literal(n)}); }

  /// Where the node's result is rounded to 16 bits the error of the fast exponential does not show, in a logarithm of the sum
  /// neither: a term near 1 has a small x, and the error is x * 2^-24. Nor does it where only such a logarithm is returned, of
  /// numbers that were rounded to 16 bits.
  Value exponential(Value x) {
    Value result = op->getResult(0);
    bool rounded = is16Bits(result) || (isa<ridge::ReduceOp>(op) && comesFrom16Bits(op->getOperand(0))) ||
                   (!result.use_empty() && llvm::all_of(result.getUsers(), [&](Operation *user) {
                     auto cast = dyn_cast<ridge::MapOp>(user);
                     return cast && cast.getFn() == MapFn::Cast && is16Bits(cast.getResult());
                   }));
    return NodeBuilder::exponential(x, rounded);
  }

  Value decompose(ridge::SoftmaxOp softmax) {
    // A row of -inf alone, or with a +inf or a NaN, has no finite maximum: the difference below is NaN where it must be.
    Value x = cast32(softmax.getInput());
    if (typeOf(x).getRank() == 0) {
      Value zero = map(MapFn::Sub, {x, x});
      return softmax.getLog() ? zero : map(MapFn::Exp, zero);
    }
    int64_t dim = softmax.getDim();
    Value less = map(MapFn::Sub, {x, reduce(ReduceFn::Amax, x, dim)});
    Value e = exponential(less);
    Value sum = reduce(ReduceFn::Sum, e, dim);
    if (softmax.getLog())
      return map(MapFn::Sub, {less, logOfSum(e, sum)});
    // The sum is one or more: its reciprocal neither overflows nor is subnormal.
    return map(MapFn::Mul, {e, map(MapFn::Reciprocal, sum)});
  }

  Value scaled(Value v, Value weight, Value bias) {
    if (weight)
      v = map(MapFn::Mul, {v, cast32(weight)});
    if (bias)
      v = map(MapFn::Add, {v, cast32(bias)});
    return v;
  }

  Value layerNorm(ridge::LayerNormOp norm) {
    Value x = cast32(norm.getInput());
    int64_t last = typeOf(x).getRank() - 1;
    auto n = static_cast<double>(typeOf(x).getShape()[last]);
    Value centred = map(MapFn::Sub, {x, over(reduce(ReduceFn::Sum, x, last), n)});
    Value variance = over(reduce(ReduceFn::Sum, map(MapFn::Mul, {centred, centred}), last), n);
    Value scale = map(MapFn::Rsqrt, map(MapFn::Add, {variance, literal(norm.getEps().convertToDouble())}));
    return scaled(map(MapFn::Mul, {centred, scale}), norm.getWeight(), norm.getBias());
  }

  Value rmsNorm(ridge::RmsNormOp norm) {
    Value x = cast32(norm.getInput());
    int64_t last = typeOf(x).getRank() - 1;
    auto n = static_cast<double>(typeOf(x).getShape()[last]);
    Value square = over(reduce(ReduceFn::Sum, map(MapFn::Mul, {x, x}), last), n);
    Value scale = map(MapFn::Rsqrt, map(MapFn::Add, {square, literal(norm.getEps().convertToDouble())}));
    return scaled(map(MapFn::Mul, {x, scale}), norm.getWeight(), Value());
  }

  Value decompose(ridge::ReduceOp r) {
    Value x = r.getInput();
    auto type = typeOf(r.getResult());
    Type element = getElementTypeOrSelf(x.getType());
    SmallVector<int64_t> dims(r.getDims());
    int64_t n = 1;
    for (int64_t d : dims)
      n *= typeOf(x).getShape()[d];
    if (typeOf(x).getRank() == 0 || n == 0 || n == 1)
      return trivial(r, n);
    bool isBool = element.isInteger(1);
    switch (r.getFn()) {
    case ReduceFn::Sum:
    case ReduceFn::Prod: {
      if (partsOf(typeOf(x).getShape(), dims, dims[0]) == 1 && partsBesideRows(typeOf(x).getShape(), dims) == 1)
        return {};
      bool floats = isa<FloatType>(element);
      return finish(
          reduceInParts(r.getFn(), floats ? cast32(x) : x, dims, floats ? Type(b.getF32Type()) : Type(b.getI64Type())));
    }
    case ReduceFn::Any:
    case ReduceFn::All:
      return partsOf(typeOf(x).getShape(), dims, dims[0]) == 1
                 ? Value()
                 : finish(reduceInParts(r.getFn(), x, dims, type.getElementType()));
    case ReduceFn::Amax:
    case ReduceFn::Amin: {
      ReduceFn fn = !isBool ? r.getFn() : r.getFn() == ReduceFn::Amax ? ReduceFn::Any : ReduceFn::All;
      if (!isBool && partsOf(typeOf(x).getShape(), dims, dims[0]) == 1)
        return {};
      return finish(reduceInParts(fn, x, dims, element));
    }
    case ReduceFn::Mean: {
      // Integers are summed as such: exactly, modulo 2^64.
      bool floats = isa<FloatType>(element);
      Value sum = reduceInParts(ReduceFn::Sum, floats ? cast32(x) : x, dims,
                                floats ? Type(b.getF32Type()) : Type(b.getI64Type()));
      return finish(over(sum, static_cast<double>(n)));
    }
    case ReduceFn::Var: {
      Value v = cast32(x);
      Value centred = map(MapFn::Sub, {v, over(reduce(ReduceFn::Sum, v, dims), static_cast<double>(n))});
      double freedom = std::fmax(0, static_cast<double>(n) - r.getCorrection().convertToDouble());
      return finish(over(reduce(ReduceFn::Sum, map(MapFn::Mul, {centred, centred}), dims), freedom));
    }
    case ReduceFn::LogSumExp: {
      // A maximum that is not finite is not subtracted: of -inf alone the sum is then 0, with a +inf it is inf.
      Value v = cast32(x);
      Value top = reduce(ReduceFn::Amax, v, dims);
      Value finite = map(MapFn::Where, {map(MapFn::IsFinite, top, b.getI1Type()), top, literal(0.0)});
      Value e = exponential(map(MapFn::Sub, {v, finite}));
      return finish(map(MapFn::Add, {logOfSum(e, reduce(ReduceFn::Sum, e, dims)), finite}));
    }
    case ReduceFn::ArgMax:
    case ReduceFn::ArgMin: {
      // The least place of what equals the extreme value; a NaN is extreme and equal to nothing.
      bool greatest = r.getFn() == ReduceFn::ArgMax;
      Value top = isBool ? reduce(greatest ? ReduceFn::Any : ReduceFn::All, x, dims, element)
                         : reduce(greatest ? ReduceFn::Amax : ReduceFn::Amin, x, dims, element);
      Value hit = map(MapFn::Eq, {x, top}, b.getI1Type());
      if (isa<FloatType>(element))
        hit = map(MapFn::LogicalOr, {hit, map(MapFn::IsNan, x, b.getI1Type())}, b.getI1Type());
      Type index = n < INT32_MAX ? b.getI32Type() : b.getI64Type();
      SmallVector<int64_t> shape(typeOf(x).getShape().size(), 1);
      shape[dims[0]] = n;
      Value place =
          named(ridge::IotaOp::create(b, loc, RankedTensorType::get(shape, index), b.getI64IntegerAttr(dims[0])));
      Value none = full(static_cast<double>(n - 1), RankedTensorType::get({}, index));
      return finish(reduce(ReduceFn::Amin, map(MapFn::Where, {hit, place, none}, index), dims, index));
    }
    }
    return Value(full(0, type));
  }

  /// Over nothing, or over one element.
  Value trivial(ridge::ReduceOp r, int64_t n) {
    Value x = r.getInput();
    auto type = typeOf(r.getResult());
    constexpr double nan = std::numeric_limits<double>::quiet_NaN();
    Type element = getElementTypeOrSelf(x.getType());
    switch (r.getFn()) {
    case ReduceFn::Sum:
    case ReduceFn::Any: return n ? finish(x) : full(0, type);
    case ReduceFn::Prod:
    case ReduceFn::All: return n ? finish(x) : full(1, type);
    case ReduceFn::Amax:
    case ReduceFn::Amin: return finish(x);
    case ReduceFn::Mean: return n ? finish(isa<FloatType>(element) ? x : cast32(x)) : full(nan, type);
    case ReduceFn::LogSumExp: // a sum with the logarithm of 1, which makes 0 of -0
      return n ? finish(map(MapFn::Add, {cast32(x), literal(0.0)})) : full(-INFINITY, type);
    case ReduceFn::Var: {
      if (!n)
        return full(nan, type);
      // 0 over what is left of one element; NaN of what is not finite.
      Value v = cast32(x);
      return finish(over(map(MapFn::Sub, {v, v}), std::fmax(0, 1 - r.getCorrection().convertToDouble())));
    }
    case ReduceFn::ArgMax:
    case ReduceFn::ArgMin: return full(0, type);
    }
    return full(0, type);
  }

  int64_t rowBlocks, clusterRows;
  const std::set<std::vector<int64_t>> &rows;
};

struct DecomposePass : PassWrapper<DecomposePass, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(DecomposePass)
  DecomposePass() = default;
  explicit DecomposePass(const rl::cost::TargetDesc &target)
      // Two blocks an SM, so that one computes while the other waits.
      : rowBlocks(target.gpu ? 2 * static_cast<int64_t>(target.smCount) : 0),
        clusterRows(target.activeClusters.contains(8) ? static_cast<int64_t>(target.smCount) / 16 : 0) {}
  StringRef getArgument() const override { return "ridge-decompose"; }
  StringRef getDescription() const override {
    return "Norms, softmax and composed reductions as elementwise ops and plain reductions";
  }

  void runOnOperation() override {
    if (getOperation().isExternal())
      return;
    SmallVector<Operation *> ops;
    getOperation().walk([&](Operation *op) {
      if (isa<ridge::SoftmaxOp, ridge::LayerNormOp, ridge::RmsNormOp, ridge::ReduceOp>(op))
        ops.push_back(op);
    });
    std::set<std::vector<int64_t>> rows;
    for (Operation *op : ops) {
      auto type = cast<RankedTensorType>(op->getOperand(0).getType());
      int64_t last = type.getRank() - 1;
      auto reduce = dyn_cast<ridge::ReduceOp>(op);
      auto softmax = dyn_cast<ridge::SoftmaxOp>(op);
      if (reduce ? reduce.getDims() == ArrayRef<int64_t>(last)
                 : !softmax || static_cast<int64_t>(softmax.getDim()) == last)
        rows.insert(type.getShape().vec());
    }
    for (Operation *op : ops)
      if (Value v = Decomposer(op, rowBlocks, clusterRows, rows).run()) {
        op->getResult(0).replaceAllUsesWith(v);
        op->erase();
      }
  }

  int64_t rowBlocks = 0, clusterRows = 0;
};

} // namespace

std::unique_ptr<Pass> rl::createDecomposePass() { return std::make_unique<DecomposePass>(); }
std::unique_ptr<Pass> rl::createDecomposePass(const cost::TargetDesc &target) {
  return std::make_unique<DecomposePass>(target);
}
