// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// quantize, dequantize and fake_quantize become extremes over the groups that share a scale, a few operations a group, and a
// quotient, a rounding and a cast an element: bit for bit what the interpreter computes, most of it in f64.
#include "passes/transforms/NodeBuilder.h"
#include "passes/transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

#include <numeric>

using namespace mlir;
using ridge::MapFn;
using ridge::ReduceFn;

namespace {

class QuantBuilder : rl::NodeBuilder {
public:
  using rl::NodeBuilder::NodeBuilder;

  void quantize(ridge::QuantizeOp q) {
    granularity = q.getGranularity();
    shape.assign(shapeOf(q.getInput()).begin(), shapeOf(q.getInput()).end());
    Value x = input(q.getInput());
    Parameters p =
        parametersOf(x, q.getScale(), elementOf(q.getResult()), elementOf(q.getResultScale()), q.getAsymmetric());
    q.getResult().replaceAllUsesWith(quantised(x, p, elementOf(q.getResult())));
    q.getResultScale().replaceAllUsesWith(p.stored);
    if (Value zero = q.getZeroPoint())
      zero.replaceAllUsesWith(p.zero);
  }

  void dequantize(ridge::DequantizeOp d) {
    granularity = d.getGranularity();
    shape.assign(shapeOf(d.getInput()).begin(), shapeOf(d.getInput()).end());
    Value v;
    if (Value zero = d.getZeroPoint()) {
      // The difference of an i8 and any i32, rounded once.
      Type i64 = b.getI64Type();
      v = cast32(map(MapFn::Sub, {cast(d.getInput(), i64), cast(spread(zero), i64)}, i64));
    } else {
      v = cast32(d.getInput());
    }
    d.getResult().replaceAllUsesWith(
        cast(map(MapFn::Mul, {v, spread(cast32(d.getScale()))}), elementOf(d.getResult())));
  }

  void fakeQuantize(ridge::FakeQuantizeOp f) {
    granularity = f.getGranularity();
    shape.assign(shapeOf(f.getInput()).begin(), shapeOf(f.getInput()).end());
    Value x = input(f.getInput());
    Parameters p = parametersOf(x, f.getScale(), f.getQuantizedType(), f.getScaleType(), f.getAsymmetric());
    Value v = cast32(quantised(x, p, f.getQuantizedType()));
    if (p.zero) // exact: both are small
      v = map(MapFn::Sub, {v, cast32(spread(p.zero))});
    f.getResult().replaceAllUsesWith(cast(map(MapFn::Mul, {v, spread(p.scale)}), elementOf(f.getResult())));
  }

  /// A product of what is stored, times the scales; operands with scales of blocks, which vary along K, are scaled before.
  Value scaledMatmul(ridge::ScaledMatmulOp m) {
    auto isBlocks = [](ridge::GranularityAttr g) { return g.getKind() == rl::Granularity::Block; };
    const bool blocks = isBlocks(m.getGranularityA()) || isBlocks(m.getGranularityB());
    auto operand = [&](Value v, Value scale, ridge::GranularityAttr g) {
      if (!blocks)
        return v;
      v = cast32(v);
      return isBlocks(g) ? map(MapFn::Mul, {v, scaleOf(v, scale, g)}) : v;
    };
    Value x = operand(m.getA(), m.getScaleA(), m.getGranularityA());
    Value y = operand(m.getB(), m.getScaleB(), m.getGranularityB());
    Type sum = elementOf(x).isInteger(8) && elementOf(y).isInteger(8) ? Type(b.getI32Type()) : Type(b.getF32Type());
    Value v = named(ridge::MatmulOp::create(b, loc, RankedTensorType::get(shapeOf(m.getResult()), sum), x, y,
                                            m.getTransposeAAttr(), m.getTransposeBAttr()));
    if (m.getFastAccumulate())
      v.getDefiningOp()->setAttr(ridge::kFastAttr, b.getUnitAttr());
    v = cast32(v);
    if (!isBlocks(m.getGranularityA()))
      v = map(MapFn::Mul, {v, alongRows(scaleOf(m.getA(), m.getScaleA(), m.getGranularityA()), m.getTransposeA())});
    if (!isBlocks(m.getGranularityB()))
      v = map(MapFn::Mul, {v, alongRows(scaleOf(m.getB(), m.getScaleB(), m.getGranularityB()), m.getTransposeB())});
    Value own = cast(v, elementOf(m.getResult()));
    if (own != v) // as that of any product
      own.getDefiningOp()->setAttr(ridge::kFastAttr, b.getUnitAttr());
    return own;
  }

private:
  Value scaleOf(Value v, Value scale, ridge::GranularityAttr of) {
    granularity = of;
    shape.assign(shapeOf(v).begin(), shapeOf(v).end());
    return spread(cast32(scale));
  }
  /// The scales of an operand that is stored transposed: one of the last two extents is 1.
  Value alongRows(Value scale, bool transposed) {
    SmallVector<int64_t> to(shapeOf(scale));
    if (transposed && to.size() >= 2)
      std::swap(to[to.size() - 1], to[to.size() - 2]);
    return reshape(scale, to);
  }

  struct Parameters {
    Value scale;        ///< f32
    Value stored;       ///< in its own type
    Value zero;         ///< i32, of the asymmetric scheme
    bool found = false; ///< from the values, not given
  };
  /// A range of values: `high` + `low` exactly, times `back`. That and `shrink`, one over it, are powers of two, or null for 1.
  struct Range {
    Value high, low, shrink, back;
  };

  /// Values are quantised from what their type stores.
  Value input(Value x) { return cast32(elementOf(x).isF32() ? x : rounded(x)); }

  static double largest(Type type) {
    return isa<Float8E4M3FNType>(type) ? 448 : isa<Float8E5M2Type>(type) ? 57344 : 127;
  }

  //===-- Groups ------------------------------------------------------------------------------------------------===//

  /// The last two extents as blocks: `lead` matrices of blockRows x blockColumns blocks of rows x columns.
  struct Blocks {
    int64_t lead, height, width, rows, columns, blockRows, blockColumns;
  };
  Blocks blocks() const {
    size_t rank = shape.size();
    Blocks k{1, rank > 1 ? shape[rank - 2] : 1, shape[rank - 1], 0, 0, 0, 0};
    for (size_t d = 0; d + 2 < rank; ++d)
      k.lead *= shape[d];
    k.rows = std::min(granularity.getRows(), std::max<int64_t>(1, k.height));
    k.columns = std::min(granularity.getColumns(), std::max<int64_t>(1, k.width));
    if (k.rows == 1) { // every row by itself
      k.lead *= k.height;
      k.height = 1;
    }
    k.blockRows = (k.height + k.rows - 1) / k.rows;
    k.blockColumns = (k.width + k.columns - 1) / k.columns;
    return k;
  }

  SmallVector<int64_t> scaleShape() const {
    SmallVector<int64_t> out(shape);
    auto kind = granularity.getKind();
    if (kind == rl::Granularity::Tensor)
      return {};
    if (kind == rl::Granularity::Axis)
      return {shape[granularity.getAxis()]};
    if (kind == rl::Granularity::Token) {
      out.pop_back();
      return out;
    }
    auto divide = [](int64_t &extent, int64_t by) { extent = extent / by + (extent % by != 0); };
    divide(out.back(), granularity.getColumns());
    if (out.size() > 1)
      divide(out[out.size() - 2], granularity.getRows());
    return out;
  }

  /// One value a group, of the scales' shape.
  Value perGroup(ReduceFn fn, Value x) {
    auto rank = static_cast<int64_t>(shape.size());
    SmallVector<int64_t> dims;
    switch (granularity.getKind()) {
    case rl::Granularity::Tensor:
    case rl::Granularity::Axis:
      for (int64_t d = 0; d < rank; ++d)
        if (granularity.getKind() == rl::Granularity::Tensor || d != granularity.getAxis())
          dims.push_back(d);
      return reshape(reduce(fn, x, dims), scaleShape());
    case rl::Granularity::Token: return reduce(fn, x, rank - 1);
    case rl::Granularity::Block: break;
    }
    // Blocks at the edges are filled up with zeros, which every range includes.
    Blocks k = blocks();
    x = reshape(x, {k.lead, k.height, k.width});
    SmallVector<int64_t> high = {0, k.blockRows * k.rows - k.height, k.blockColumns * k.columns - k.width}, none(3, 0);
    if (high[1] || high[2])
      x = named(ridge::PadOp::create(
          b, loc, RankedTensorType::get({k.lead, k.height + high[1], k.width + high[2]}, elementOf(x)), x, none, high,
          scalar(0.0)));
    x = reshape(x, {k.lead, k.blockRows, k.rows, k.blockColumns, k.columns});
    return reshape(reduce(fn, x, {2, 4}), scaleShape());
  }

  /// What each element's group has, so that it broadcasts to the elements.
  Value spread(Value v) {
    switch (granularity.getKind()) {
    case rl::Granularity::Tensor: return v;
    case rl::Granularity::Axis: {
      SmallVector<int64_t> to(shape.size() - granularity.getAxis(), 1);
      to[0] = shape[granularity.getAxis()];
      return reshape(v, to);
    }
    case rl::Granularity::Token: {
      SmallVector<int64_t> to(shape);
      to.back() = 1;
      return reshape(v, to);
    }
    case rl::Granularity::Block: break;
    }
    Blocks k = blocks();
    v = reshape(v, {k.lead, k.blockRows, 1, k.blockColumns, 1});
    v = named(ridge::ExpandOp::create(
        b, loc, RankedTensorType::get({k.lead, k.blockRows, k.rows, k.blockColumns, k.columns}, elementOf(v)), v));
    v = reshape(v, {k.lead, k.blockRows * k.rows, k.blockColumns * k.columns});
    v = firstOf(v, 1, k.height);
    return reshape(firstOf(v, 2, k.width), shape);
  }
  Value firstOf(Value v, int64_t dim, int64_t extent) {
    SmallVector<int64_t> to(shapeOf(v));
    if (to[dim] == extent)
      return v;
    to[dim] = extent;
    return named(ridge::SliceOp::create(b, loc, RankedTensorType::get(to, elementOf(v)), v, dim, 0, 1));
  }

  //===-- Scales ------------------------------------------------------------------------------------------------===//

  Parameters parametersOf(Value x, Value given, Type type, Type scaleType, bool asymmetric) {
    Parameters p;
    if (given) {
      p.stored = given;
      p.scale = cast32(given);
      return p;
    }
    if (llvm::is_contained(shape, 0)) { // groups of nothing
      SmallVector<int64_t> to = scaleShape();
      p.stored = full(1, RankedTensorType::get(to, scaleType));
      p.scale = cast32(p.stored);
      if (asymmetric)
        p.zero = full(-128, RankedTensorType::get(to, b.getI32Type()));
      return p;
    }
    p.found = true;
    Range range;
    Value least;
    if (asymmetric) {
      least = map(MapFn::Minimum, {perGroup(ReduceFn::Amin, x), literal(0.0)});
      range = sum(map(MapFn::Maximum, {perGroup(ReduceFn::Amax, x), literal(0.0)}), map(MapFn::Neg, least));
    } else {
      range.high = perGroup(ReduceFn::Amax, map(MapFn::Abs, x));
    }
    double steps = asymmetric ? 255 : largest(type);
    p.scale = quotient(range, steps);
    p.scale = scaleType.isF32() ? choose(test(MapFn::Eq, {p.scale, literal(0.0)}), literal(0x1p-149), p.scale)
                                : powerOfTwo(range, p.scale, steps);
    p.scale = choose(test(MapFn::Eq, {range.high, literal(0.0)}), literal(1.0), p.scale);
    p.stored = cast(p.scale, scaleType);
    if (asymmetric) { // so that the least value becomes -128
      Value at = nearest(map(MapFn::Div, {least, p.scale}));
      Type i32 = b.getI32Type();
      p.zero = map(MapFn::Clamp, map(MapFn::Sub, {literal(int64_t{-128}), at}, i32), i32, scalar(int64_t{-128}),
                   scalar(int64_t{127}));
    }
    return p;
  }

  /// a + c, neither negative, as a rounded sum and its exact error (Knuth, "The Art of Computer Programming", vol. 2, 4.2.2);
  /// scaled where it would overflow, or what follows lose bits.
  Range sum(Value a, Value c) {
    Range r;
    Value total = map(MapFn::Add, {a, c}), big = test(MapFn::Ge, {map(MapFn::Maximum, {a, c}), literal(0x1p119)});
    // A correction of a small quotient would be subnormal; where the quotient is so itself all is in multiples of 2^-149, and exact.
    Value small = test(MapFn::LogicalAnd,
                       {test(MapFn::Lt, {total, literal(0x1p-60)}), test(MapFn::Ge, {total, literal(255 * 0x1p-126)})});
    r.shrink = choose(big, literal(0x1p-8), choose(small, literal(0x1p64), literal(1.0)));
    r.back = choose(big, literal(0x1p8), choose(small, literal(0x1p-64), literal(1.0)));
    a = map(MapFn::Mul, {a, r.shrink});
    c = map(MapFn::Mul, {c, r.shrink});
    r.high = map(MapFn::Add, {a, c});
    Value part = map(MapFn::Sub, {r.high, a});
    r.low = map(MapFn::Add, {map(MapFn::Sub, {a, map(MapFn::Sub, {r.high, part})}), map(MapFn::Sub, {c, part})});
    return r;
  }

  /// The range over `steps`, rounded to f32 once. A quotient of two f32 is that already. Of a sum it is that of the rounded sum
  /// and what remains over `steps`, 255: s - 255q = q - (256q - s), both differences being of numbers within a factor of two
  /// and thus exact (Sterbenz 1974).
  Value quotient(const Range &range, double steps) {
    Value q = map(MapFn::Div, {range.high, literal(steps)});
    if (!range.low)
      return q;
    Value rest = map(MapFn::Sub, {q, map(MapFn::Sub, {map(MapFn::Mul, {q, literal(256.0)}), range.high})});
    rest = map(MapFn::Div, {map(MapFn::Add, {rest, range.low}), literal(steps)});
    q = choose(test(MapFn::IsFinite, range.high), map(MapFn::Add, {q, rest}), q);
    return map(MapFn::Mul, {q, range.back});
  }

  /// The least power of two that f8e8m0 has and whose product with `steps` is not below the range: the nearest to the quotient,
  /// or one of its neighbours. The products are exact, as `steps` has few bits. NaN where the range is not finite.
  Value powerOfTwo(const Range &range, Value quotient, double steps) {
    auto covers = [&](Value p) {
      if (!range.low)
        return test(MapFn::Ge, {map(MapFn::Mul, {p, literal(steps)}), range.high});
      // The range is an f64 in the interpreter. Where the product equals the sum as it was rounded to f32, up to half a step of
      // an f64 above it, 2^-46 of p, is still the same number.
      p = map(MapFn::Mul, {p, range.shrink});
      Value rest = map(MapFn::Sub, {range.low, map(MapFn::Mul, {p, literal(0x1p-46)})});
      return test(MapFn::Ge, {map(MapFn::Sub, {map(MapFn::Mul, {p, literal(steps)}), range.high}), rest});
    };
    Value near = cast32(cast(quotient, Float8E8M0FNUType::get(b.getContext())));
    Value half = map(MapFn::Mul, {near, literal(0.5)});
    Value less = test(MapFn::LogicalAnd, {covers(half), test(MapFn::Gt, {near, literal(0x1p-127)})});
    Value p = choose(covers(near), choose(less, half, near), map(MapFn::Mul, {near, literal(2.0)}));
    return choose(test(MapFn::IsFinite, range.high), p, map(MapFn::Sub, {range.high, range.high}));
  }

  //===-- Elements ----------------------------------------------------------------------------------------------===//

  /// The nearest integer, half to even, as an i32 within what matters beside a zero point; NaN gives 0.
  Value nearest(Value v) {
    return cast(map(MapFn::Clamp, map(MapFn::Round, v), b.getF32Type(), scalar(-512.0), scalar(512.0)), b.getI32Type());
  }

  Value quantised(Value x, const Parameters &p, Type type) {
    Value v = map(MapFn::Div, {x, spread(p.scale)});
    // By a scale that was found from the values no quotient is beyond the type's largest.
    if (p.found)
      v.getDefiningOp()->setAttr(ridge::kFastAttr, b.getUnitAttr());
    if (!type.isInteger(8))
      return cast(v, type);
    if (!p.zero)
      return cast(map(MapFn::Clamp, map(MapFn::Round, v), b.getF32Type(), scalar(-127.0), scalar(127.0)), type);
    Type i32 = b.getI32Type();
    Value q = map(MapFn::Add, {nearest(v), spread(p.zero)}, i32);
    return cast(map(MapFn::Clamp, q, i32, scalar(int64_t{-128}), scalar(int64_t{127})), type);
  }

  ridge::GranularityAttr granularity;
  SmallVector<int64_t> shape; ///< of what is quantised
};

struct DecomposeQuantPass : PassWrapper<DecomposeQuantPass, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(DecomposeQuantPass)
  StringRef getArgument() const override { return "ridge-decompose-quant"; }
  StringRef getDescription() const override {
    return "Quantisation as extremes over groups and elementwise quotients and casts";
  }

  void runOnOperation() override {
    if (getOperation().isExternal())
      return;
    SmallVector<Operation *> ops;
    getOperation().walk([&](Operation *op) {
      if (isa<ridge::QuantizeOp, ridge::DequantizeOp, ridge::FakeQuantizeOp, ridge::ScaledMatmulOp>(op))
        ops.push_back(op);
    });
    for (Operation *op : ops) {
      QuantBuilder builder(op);
      if (auto q = dyn_cast<ridge::QuantizeOp>(op))
        builder.quantize(q);
      else if (auto d = dyn_cast<ridge::DequantizeOp>(op))
        builder.dequantize(d);
      else if (auto m = dyn_cast<ridge::ScaledMatmulOp>(op))
        m.getResult().replaceAllUsesWith(builder.scaledMatmul(m));
      else
        builder.fakeQuantize(cast<ridge::FakeQuantizeOp>(op));
      op->erase();
    }
  }
};

} // namespace

std::unique_ptr<Pass> rl::createDecomposeQuantPass() { return std::make_unique<DecomposeQuantPass>(); }
