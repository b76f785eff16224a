// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products in one form, and attention by products. A product that is left is a `ridge.matmul` of [B, M, K] and [B, K, N]
// (either stored transposed) that gives [B, M, N] in the type in which it is accumulated: f32, or i32 or i64 of integers. What
// `matmul`, `linear` and attention say beyond that are layout ops on its operands and elementwise ops behind it. Every op that is
// made keeps the node's name and place in the file.
#include "ir/dialect/OpModel.h"
#include "ir/dialect/Ridge.h"
#include "passes/cost/GemmModel.h"
#include "passes/transforms/NodeBuilder.h"
#include "passes/transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Pass/Pass.h"

#include <cmath>
#include <numeric>

using namespace mlir;
using ridge::MapFn;
using ridge::ReduceFn;

namespace {

using Extents = SmallVector<int64_t>;

/// Builds the ops that stand for one node.
class ProductLowering : rl::NodeBuilder {
public:
  ProductLowering(Operation *op, bool pad, const rl::cost::TargetDesc *machine)
      : NodeBuilder(op), pad(pad), machine(machine) {}

  /// What the node's result is replaced by; null: it stays.
  Value run() {
    if (auto matmul = dyn_cast<ridge::MatmulOp>(op))
      return lower(matmul);
    if (auto linear = dyn_cast<ridge::LinearOp>(op))
      return lower(linear);
    return lower(cast<ridge::AttentionOp>(op));
  }

private:
  static rl::DType dtypeOf(Value v) { return ridge::toTensorType(v.getType())->dtype; }
  static int64_t product(ArrayRef<int64_t> s) {
    return std::accumulate(s.begin(), s.end(), int64_t(1), std::multiplies<>());
  }

  Value zeros(RankedTensorType type) {
    return named(
        ridge::FullOp::create(b, loc, type, ridge::toAttribute(b.getContext(), rl::Scalar{rl::Scalar::Int, 0, 0})));
  }
  Value expand(Value v, ArrayRef<int64_t> shape) {
    if (typeOf(v).getShape() == shape)
      return v;
    return named(ridge::ExpandOp::create(b, loc, RankedTensorType::get(shape, typeOf(v).getElementType()), v));
  }
  Value reduce(ReduceFn fn, Value v) {
    Extents shape(typeOf(v).getShape());
    int64_t dim = static_cast<int64_t>(shape.size()) - 1;
    shape[dim] = 1;
    return named(ridge::ReduceOp::create(b, loc, RankedTensorType::get(shape, typeOf(v).getElementType()),
                                         ridge::ReduceFnAttr::get(b.getContext(), fn), v, b.getDenseI64ArrayAttr(dim),
                                         b.getUnitAttr(), b.getF64FloatAttr(1)));
  }
  Value iota(ArrayRef<int64_t> shape, int64_t dim) {
    Type index = shape[dim] < INT32_MAX ? b.getI32Type() : b.getI64Type();
    return named(ridge::IotaOp::create(b, loc, RankedTensorType::get(shape, index), b.getI64IntegerAttr(dim)));
  }

  /// A batch of matrices, [batch..., rows, columns], stored transposed or not.
  struct Matrices {
    Value v;
    bool transposed = false;
    Extents batch() const { return Extents(typeOf(v).getShape().drop_back(2)); }
    int64_t rows() const { return typeOf(v).getShape().take_back(2)[transposed ? 1 : 0]; }
    int64_t columns() const { return typeOf(v).getShape().take_back(2)[transposed ? 0 : 1]; }
    Extents stored(ArrayRef<int64_t> batch) const {
      Extents s(batch);
      s.append({typeOf(v).getShape().take_back(2)[0], typeOf(v).getShape().take_back(2)[1]});
      return s;
    }
  };

  /// Where the last dimension of what is permuted became the second to last, the matrices are read as they are stored.
  void absorbPermute(Matrices &m) {
    auto permute = m.v.getDefiningOp<ridge::PermuteOp>();
    if (!permute)
      return;
    SmallVector<int64_t> dims(permute.getDims());
    if (dims.size() < 2 || dims[dims.size() - 2] != static_cast<int64_t>(dims.size()) - 1)
      return;
    std::swap(dims[dims.size() - 2], dims.back());
    Extents shape;
    bool moves = false;
    for (auto [i, d] : llvm::enumerate(dims)) {
      shape.push_back(typeOf(permute.getInput()).getShape()[d]);
      moves |= static_cast<int64_t>(i) != d;
    }
    m.v = !moves ? permute.getInput()
                 : named(ridge::PermuteOp::create(b, loc, RankedTensorType::get(shape, typeOf(m.v).getElementType()),
                                                  permute.getInput(), b.getDenseI64ArrayAttr(dims)));
    m.transposed = !m.transposed;
  }

  /// The type in which a product accumulates: integers exactly modulo 2^32 where neither they nor the result are wider (what
  /// 8-bit numbers sum to is made into other types from there), else modulo 2^64.
  Type accumulator(rl::DType x, rl::DType y, rl::DType result) {
    if (rl::isFloat(x) || rl::isFloat(y))
      return b.getF32Type();
    auto wide = [](rl::DType t) { return t == rl::DType::I32 || t == rl::DType::I64; };
    bool narrow = wide(x) || wide(y) ? !rl::isFloat(result) : true;
    return narrow && result != rl::DType::I64 ? b.getI32Type() : b.getI64Type();
  }

  /// Rows of numbers of 16 or 8 bits that are no multiple of 16 bytes are read number by number, and 8-bit numbers are multiplied
  /// where K is contiguous. Where there is much to multiply it takes less time to write such operands anew: along K, and up to the
  /// next multiple with zeros. The same goes for rows that begin amid lines of the cache, by the model.
  void padRows(Matrices &x, Matrices &y, int64_t M, int64_t N, int64_t &K) {
    // Rows that begin at lines of the cache where that adds little to multiply: others share lines with their neighbours, and
    // tiles fetch these twice.
    constexpr int64_t kVectorBytes = 16, kLineBytes = rl::cost::kCacheLine, kLeast = 128, kMuch = 1024;
    auto isFloat8 = [](rl::DType t) { return t == rl::DType::F8E4M3 || t == rl::DType::F8E5M2; };
    const rl::DType tx = dtypeOf(x.v), ty = dtypeOf(y.v);
    const bool bytes = (isFloat8(tx) && isFloat8(ty)) || (tx == ty && (tx == rl::DType::I8 || tx == rl::DType::U8));
    const bool halves = tx == ty && (tx == rl::DType::BF16 || tx == rl::DType::F16);
    if (!pad || !(bytes || halves) || std::min({M, N, K}) < kLeast)
      return;
    const int64_t size = bytes ? 1 : 2, vector = kVectorBytes / size, line = kLineBytes / size;
    auto fits = [&](const Matrices &m) { return typeOf(m.v).getShape().back() % vector == 0; };
    auto turns = [&](const Matrices &m) { return m.transposed == (&m == &x) && (bytes || !fits(m)); };
    const int64_t step = K >= kMuch ? line : vector;
    int64_t whole = K % vector == 0 ? K : (K + step - 1) / step * step;
    if (!turns(x) && !turns(y) && fits(x) && fits(y)) {
      if (!machine || x.transposed || !y.transposed || K % step == 0)
        return;
      rl::cost::GemmShape shape;
      shape.batch = typeOf(x.v).getShape().front();
      shape.m = M;
      shape.n = N;
      shape.k = K;
      shape.a = tx;
      shape.b = ty;
      shape.outputs = {rl::DType::BF16};
      whole = (K + step - 1) / step * step;
      if (!rl::cost::paddingPays(shape, whole, *machine))
        return;
    }
    for (bool left : {true, false}) {
      Matrices &m = left ? x : y;
      if (turns(m)) {
        ArrayRef<int64_t> s = typeOf(m.v).getShape();
        m.v = named(ridge::PermuteOp::create(b, loc,
                                             RankedTensorType::get({s[0], s[2], s[1]}, typeOf(m.v).getElementType()),
                                             m.v, b.getDenseI64ArrayAttr({0, 2, 1})));
        if (whole == K) // otherwise it would be read where it is
          m.v.getDefiningOp()->setAttr(ridge::kFastAttr, b.getUnitAttr());
        m.transposed = !m.transposed;
      }
      if (whole == K)
        continue;
      Extents shape(typeOf(m.v).getShape());
      size_t along = m.transposed == left ? 1 : 2;
      SmallVector<int64_t> low(3, 0), high(3, 0);
      high[along] = whole - K;
      shape[along] = whole;
      m.v = named(ridge::PadOp::create(b, loc, RankedTensorType::get(shape, typeOf(m.v).getElementType()), m.v,
                                       b.getDenseI64ArrayAttr(low), b.getDenseI64ArrayAttr(high),
                                       ridge::toAttribute(b.getContext(), rl::Scalar{rl::Scalar::Int, 0, 0})));
    }
    K = whole;
  }

  /// The product with its batch dimensions broadcast, [batch..., M, N], in the type `element`.
  Value multiply(Matrices x, Matrices y, Type element) {
    absorbPermute(x);
    absorbPermute(y);
    int64_t M = x.rows(), K = x.columns(), N = y.columns();
    Extents bx = x.batch(), by = y.batch(), batch(std::max(bx.size(), by.size()));
    for (size_t d = 0; d < batch.size(); ++d) {
      int64_t ex = d < bx.size() ? bx[bx.size() - 1 - d] : 1, ey = d < by.size() ? by[by.size() - 1 - d] : 1;
      batch[batch.size() - 1 - d] = ex == 1 ? ey : ex;
    }
    Extents result(batch);
    result.append({M, N});
    if (K == 0)
      return zeros(RankedTensorType::get(result, element));
    if (K == 1) {
      // An outer product is elementwise.
      Extents column(bx), row(by);
      column.append({M, 1});
      row.append({1, N});
      Value p = map(MapFn::Mul, {cast(reshape(x.v, column), element), cast(reshape(y.v, row), element)}, element);
      return p;
    }
    if (M == 1 && N == 1 && element.isF32()) {
      // An inner product is a reduction of rows, which takes in what is before and behind it.
      Extents left(bx), right(by);
      left.append({1, K});
      right.append({1, K});
      Value p = map(MapFn::Mul, {cast(reshape(x.v, left), element), cast(reshape(y.v, right), element)}, element);
      return reduce(ReduceFn::Sum, p);
    }
    int64_t B = product(batch);
    if (product(by) == 1 && !x.transposed) {
      // One right operand: the rows of all batches are rows of one matrix.
      if (bx.size() < batch.size())
        bx = batch;
      x.v = reshape(x.v, {1, product(bx) * M, K});
      y.v = reshape(y.v, y.stored({1}));
      M *= product(bx);
      B = 1;
    } else {
      for (Matrices *m : {&x, &y})
        m->v = reshape(expand(m->v, m->stored(batch)), m->stored({B}));
    }
    // A single column is a single row of the transposed product, so that all thin products have one form.
    if (N == 1 && M > 1) {
      Matrices right{x.v, !x.transposed};
      x = y;
      y = right;
      std::swap(M, N);
    }
    if (M == 1)
      x = {reshape(x.v, {B, 1, K}), false};
    padRows(x, y, M, N, K);
    auto flag = [&](bool v) { return v ? b.getUnitAttr() : UnitAttr(); };
    Value p = named(ridge::MatmulOp::create(b, loc, RankedTensorType::get({B, M, N}, element), x.v, y.v,
                                            flag(x.transposed), flag(y.transposed)));
    if (op->hasAttr(ridge::kFastAttr)) // it may accumulate as the hardware does fastest
      p.getDefiningOp()->setAttr(ridge::kFastAttr, b.getUnitAttr());
    return reshape(p, result);
  }

  /// The node's own type and shape.
  Value finish(Value v) {
    auto type = typeOf(op->getResult(0));
    Value own = cast(v, type.getElementType());
    if (own != v) // no cast of the file's: in fused numerics it need not round
      own.getDefiningOp()->setAttr(ridge::kFastAttr, b.getUnitAttr());
    return reshape(own, type.getShape());
  }

  Value lower(ridge::MatmulOp matmul) {
    auto x = typeOf(matmul.getA()), y = typeOf(matmul.getB()), r = typeOf(matmul.getResult());
    Type element = accumulator(dtypeOf(matmul.getA()), dtypeOf(matmul.getB()), dtypeOf(matmul.getResult()));
    if (r.getNumElements() == 0)
      return {};
    Matrices mx{matmul.getA(), matmul.getTransposeA() && x.getRank() > 1};
    Matrices my{matmul.getB(), matmul.getTransposeB() && y.getRank() > 1};
    // As NumPy has it, a vector is a row on the left and a column on the right.
    if (x.getRank() == 1)
      mx.v = reshape(mx.v, {1, x.getShape()[0]});
    if (y.getRank() == 1)
      my.v = reshape(my.v, {y.getShape()[0], 1});
    return finish(multiply(mx, my, element));
  }

  Value lower(ridge::LinearOp linear) {
    auto x = typeOf(linear.getInput()), w = typeOf(linear.getWeight());
    if (typeOf(linear.getResult()).getNumElements() == 0)
      return {};
    Type element = accumulator(dtypeOf(linear.getInput()), dtypeOf(linear.getWeight()), dtypeOf(linear.getResult()));
    int64_t K = x.getShape().back(), rows = product(x.getShape().drop_back());
    Value p = multiply({reshape(linear.getInput(), {rows, K})}, {linear.getWeight(), true}, element);
    Extents shape(x.getShape().drop_back());
    shape.push_back(w.getShape()[0]);
    p = reshape(p, shape);
    if (Value bias = linear.getBias()) {
      // Before the one rounding to the node's type.
      if (isa<FloatType>(getElementTypeOrSelf(bias.getType())))
        element = b.getF32Type();
      p = map(MapFn::Add, {cast(p, element), cast(bias, element)}, element);
    }
    return finish(p);
  }

  /// softmax(q k^T scale + mask) v. What a mask excludes has no weight, whatever its score is; a query with no key left has
  /// weights of 0.
  Value lower(ridge::AttentionOp attention) {
    auto type = typeOf(attention.getResult());
    auto q = typeOf(attention.getQ()), k = typeOf(attention.getK());
    if (type.getNumElements() == 0)
      return {};
    int64_t L = q.getShape().take_back(2)[0], E = q.getShape().back(), S = k.getShape().take_back(2)[0];
    if (S == 0)
      return zeros(type);
    Type f32 = b.getF32Type(), i1 = b.getI1Type();
    double scale = attention.getScale() ? attention.getScale()->convertToDouble()
                                        : 1 / std::sqrt(static_cast<double>(std::max<int64_t>(E, 1)));
    Value s = multiply({attention.getQ()}, {attention.getK(), true}, f32);
    s = map(MapFn::Mul, {s, literal(scale)}, f32);
    Value keeps;
    auto keep = [&](Value bit) { keeps = keeps ? map(MapFn::LogicalAnd, {keeps, bit}, i1) : bit; };
    if (Value mask = attention.getMask()) {
      if (getElementTypeOrSelf(mask.getType()).isInteger(1)) {
        keep(mask);
      } else {
        mask = cast(mask, f32);
        s = map(MapFn::Add, {s, mask}, f32);
        keep(map(MapFn::Ne, {mask, literal(-INFINITY)}, i1));
      }
    }
    if (attention.getCausal())
      keep(map(MapFn::Ge, {iota({L, 1}, 0), iota({1, S}, 1)}, i1));
    if (keeps)
      s = map(MapFn::Where, {keeps, s, literal(-INFINITY)}, f32);
    Value e = map(MapFn::Exp, map(MapFn::Sub, {s, S == 1 ? s : reduce(ReduceFn::Amax, s)}, f32), f32);
    if (keeps)
      e = map(MapFn::Where, {keeps, e, literal(0.0)}, f32);
    Value p = map(MapFn::Mul, {e, map(MapFn::Reciprocal, S == 1 ? e : reduce(ReduceFn::Sum, e), f32)}, f32);
    if (keeps)
      p = map(MapFn::Where, {keeps, p, literal(0.0)}, f32);
    // The weights are at most 1: in the values' type they are as exact as the values are.
    Type values = getElementTypeOrSelf(attention.getV().getType());
    if (values.isF16() || values.isBF16())
      p = cast(p, values);
    return finish(multiply({p}, {attention.getV()}, f32));
  }

  bool pad; ///< so that rows are whole 16-byte vectors
  const rl::cost::TargetDesc
      *machine; ///< by which it is judged whether they should be whole lines of the cache; or null
};

struct ProductsPass : PassWrapper<ProductsPass, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ProductsPass)
  ProductsPass() = default;
  ProductsPass(const ProductsPass &other) : PassWrapper(other), machine(other.machine) {}
  explicit ProductsPass(const rl::cost::TargetDesc &target) : machine(&target) { pad = target.gpu; }
  StringRef getArgument() const override { return "ridge-products"; }
  StringRef getDescription() const override { return "Matrix products in one form, and attention by products"; }

  Option<bool> pad{*this, "pad",
                   llvm::cl::desc("write operands of 16 bits anew whose rows are not whole 16-byte vectors"),
                   llvm::cl::init(false)};
  Option<std::string> targetName{*this, "target", llvm::cl::desc("machine by which more is judged to be worth that"),
                                 llvm::cl::init("")};

  void runOnOperation() override {
    if (getOperation().isExternal())
      return;
    std::optional<rl::cost::TargetDesc> named;
    if (!targetName.empty()) {
      auto found = rl::cost::findTarget(targetName);
      if (!found) {
        getOperation().emitError(found.error().message);
        return signalPassFailure();
      }
      named = *found;
    }
    SmallVector<Operation *> ops;
    getOperation().walk([&](Operation *op) {
      if (isa<ridge::MatmulOp, ridge::LinearOp, ridge::AttentionOp>(op))
        ops.push_back(op);
    });
    for (Operation *op : ops)
      if (Value v = ProductLowering(op, pad, named ? &*named : machine).run()) {
        op->getResult(0).replaceAllUsesWith(v);
        op->erase();
      }
  }

  const rl::cost::TargetDesc *machine = nullptr;
};

} // namespace

std::unique_ptr<Pass> rl::createProductsPass() { return std::make_unique<ProductsPass>(); }
std::unique_ptr<Pass> rl::createProductsPass(const cost::TargetDesc &target) {
  return std::make_unique<ProductsPass>(target);
}
