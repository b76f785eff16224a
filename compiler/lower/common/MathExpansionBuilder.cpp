// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One arith, math or vector operation for each operator of MathExpansionBuilder.h.
#include "compiler/lower/common/MathExpansionBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinTypes.h"

#include <limits>

using namespace mlir;

namespace rl::mathx {
namespace {

int64_t laneCount(Type type) {
  auto vector = dyn_cast<VectorType>(type);
  return vector ? vector.getNumElements() : 0;
}

template <class Op, int K, class... Rest> Typed<K> emit(Typed<K> first, Rest... rest) {
  Emitter *e = first.emitter;
  return {Op::create(e->builder, e->loc, first.value, rest.value...), e};
}

B compare(arith::CmpFPredicate p, F a, F b) {
  return {arith::CmpFOp::create(a.emitter->builder, a.emitter->loc, p, a.value, b.value), a.emitter};
}
B compare(arith::CmpIPredicate p, I a, I b) {
  return {arith::CmpIOp::create(a.emitter->builder, a.emitter->loc, p, a.value, b.value), a.emitter};
}
template <class Op, int To, int From> Typed<To> convert(Typed<From> x, Type element) {
  Emitter *e = x.emitter;
  return {Op::create(e->builder, e->loc, e->typeOf(element), x.value), e};
}
template <int K> Typed<K> choose(B mask, Typed<K> a, Typed<K> b) {
  return {arith::SelectOp::create(mask.emitter->builder, mask.emitter->loc, mask.value, a.value, b.value),
          mask.emitter};
}

} // namespace

Emitter::Emitter(OpBuilder &builder, Location loc, Type like, const MathTarget &target)
    : builder(builder), loc(loc), target(target), lanes(laneCount(like)) {}

Type Emitter::typeOf(Type element) const { return lanes ? Type(VectorType::get({lanes}, element)) : element; }

F Emitter::f(float constant) {
  TypedAttr attr = builder.getF32FloatAttr(constant);
  if (lanes)
    attr = DenseElementsAttr::get(cast<ShapedType>(typeOf(builder.getF32Type())), constant);
  return {arith::ConstantOp::create(builder, loc, attr), this};
}
I Emitter::i(int32_t constant) {
  TypedAttr attr = builder.getI32IntegerAttr(constant);
  if (lanes)
    attr = DenseElementsAttr::get(cast<ShapedType>(typeOf(builder.getI32Type())), constant);
  return {arith::ConstantOp::create(builder, loc, attr), this};
}
L Emitter::l(int64_t constant) {
  TypedAttr attr = builder.getI64IntegerAttr(constant);
  if (lanes)
    attr = DenseElementsAttr::get(cast<ShapedType>(typeOf(builder.getI64Type())), constant);
  return {arith::ConstantOp::create(builder, loc, attr), this};
}

Value Emitter::any(B mask) {
  if (!lanes)
    return mask.value;
  return vector::ReductionOp::create(builder, loc, vector::CombiningKind::OR, mask.value);
}

F Emitter::overLanes(ArrayRef<F> args, llvm::function_ref<Value(ValueRange)> emitOne) {
  SmallVector<Value> operands;
  for (F a : args)
    operands.push_back(a.value);
  if (!lanes)
    return {emitOne(operands), this};
  SmallVector<Value> results;
  for (int64_t lane = 0; lane < lanes; ++lane) {
    SmallVector<Value> scalars;
    for (Value v : operands)
      scalars.push_back(vector::ExtractOp::create(builder, loc, v, lane));
    results.push_back(emitOne(scalars));
  }
  return {vector::FromElementsOp::create(builder, loc, cast<VectorType>(typeOf(builder.getF32Type())), results), this};
}

F Emitter::perLane(llvm::StringRef intrinsic, ArrayRef<F> args) {
  return overLanes(args, [&](ValueRange scalars) -> Value {
    return LLVM::CallIntrinsicOp::create(builder, loc, builder.getF32Type(), builder.getStringAttr(intrinsic), scalars)
        .getResult(0);
  });
}

F Emitter::perLaneAsm(llvm::StringRef text, F x) {
  return overLanes({x}, [&](ValueRange scalars) -> Value {
    return LLVM::InlineAsmOp::create(builder, loc, builder.getF32Type(), scalars, text, "=f,f",
                                     /*has_side_effects=*/false, /*is_align_stack=*/false,
                                     LLVM::tailcallkind::TailCallKind::None, /*asm_dialect=*/LLVM::AsmDialectAttr(),
                                     /*operand_attrs=*/ArrayAttr())
        .getResult(0);
  });
}

F operator+(F a, F b) { return emit<arith::AddFOp>(a, b); }
F operator-(F a, F b) { return emit<arith::SubFOp>(a, b); }
F operator*(F a, F b) { return emit<arith::MulFOp>(a, b); }
F operator/(F a, F b) { return emit<arith::DivFOp>(a, b); }
F operator-(F a) { return emit<arith::NegFOp>(a); }
F operator+(F a, float b) { return a + a.emitter->f(b); }
F operator-(F a, float b) { return a - a.emitter->f(b); }
F operator-(float a, F b) { return b.emitter->f(a) - b; }
F operator*(F a, float b) { return a * a.emitter->f(b); }
F fma(F a, F b, F c) { return emit<math::FmaOp>(a, b, c); }
F fma(F a, float b, F c) { return fma(a, a.emitter->f(b), c); }
F fma(F a, float b, float c) { return fma(a, a.emitter->f(b), a.emitter->f(c)); }
F fma(F a, F b, float c) { return fma(a, b, a.emitter->f(c)); }
F abs(F a) { return emit<math::AbsFOp>(a); }
F sqrt(F a) { return emit<math::SqrtOp>(a); }
F floor(F a) { return emit<math::FloorOp>(a); }
F trunc(F a) { return emit<math::TruncOp>(a); }
B lt(F a, F b) { return compare(arith::CmpFPredicate::OLT, a, b); }
B lt(F a, float b) { return lt(a, a.emitter->f(b)); }
B gt(F a, float b) { return compare(arith::CmpFPredicate::OGT, a, a.emitter->f(b)); }
B le(F a, F b) { return compare(arith::CmpFPredicate::OLE, a, b); }
B eq(F a, F b) { return compare(arith::CmpFPredicate::OEQ, a, b); }
B eq(F a, float b) { return eq(a, a.emitter->f(b)); }
B ne(F a, F b) { return compare(arith::CmpFPredicate::UNE, a, b); }
B isNan(F a) { return compare(arith::CmpFPredicate::UNO, a, a); }

// On x86, min and max are one instruction that gives its second operand where either is NaN, which is what this
// select says; on NVPTX it would be two, where min.NaN and max.NaN are one.
F atMost(F x, float bound) {
  F limit = x.emitter->f(bound);
  return x.emitter->target.nvptx ? emit<arith::MinimumFOp>(x, limit) : select(lt(limit, x), limit, x);
}
F atLeast(F x, float bound) {
  F limit = x.emitter->f(bound);
  return x.emitter->target.nvptx ? emit<arith::MaximumFOp>(x, limit) : select(lt(x, limit), limit, x);
}

F orSign(F value, F sign) { return fromBits(bits(value) | (bits(sign) & std::numeric_limits<int32_t>::min())); }

I bits(F a) { return convert<arith::BitcastOp, 1>(a, a.emitter->builder.getI32Type()); }
F fromBits(I a) { return convert<arith::BitcastOp, 0>(a, a.emitter->builder.getF32Type()); }
F toFloat(I a) { return convert<arith::SIToFPOp, 0>(a, a.emitter->builder.getF32Type()); }
F toFloat(L a) { return convert<arith::SIToFPOp, 0>(a, a.emitter->builder.getF32Type()); }
I operator+(I a, I b) { return emit<arith::AddIOp>(a, b); }
I operator-(I a, I b) { return emit<arith::SubIOp>(a, b); }
I operator&(I a, I b) { return emit<arith::AndIOp>(a, b); }
I operator|(I a, I b) { return emit<arith::OrIOp>(a, b); }
I operator^(I a, I b) { return emit<arith::XOrIOp>(a, b); }
I operator+(I a, int32_t b) { return a + a.emitter->i(b); }
I operator-(I a, int32_t b) { return a - a.emitter->i(b); }
I operator&(I a, int32_t b) { return a & a.emitter->i(b); }
I operator|(I a, int32_t b) { return a | a.emitter->i(b); }
I operator<<(I a, I b) { return emit<arith::ShLIOp>(a, b); }
I operator<<(I a, int32_t b) { return a << a.emitter->i(b); }
I shrS(I a, int32_t b) { return emit<arith::ShRSIOp>(a, a.emitter->i(b)); }
I shrU(I a, I b) { return emit<arith::ShRUIOp>(a, b); }
I shrU(I a, int32_t b) { return shrU(a, a.emitter->i(b)); }
B ltS(I a, I b) { return compare(arith::CmpIPredicate::slt, a, b); }
B ltS(I a, int32_t b) { return ltS(a, a.emitter->i(b)); }
B gtS(I a, int32_t b) { return compare(arith::CmpIPredicate::sgt, a, a.emitter->i(b)); }
B ltU(I a, int32_t b) { return compare(arith::CmpIPredicate::ult, a, a.emitter->i(b)); }
B eq(I a, int32_t b) { return compare(arith::CmpIPredicate::eq, a, a.emitter->i(b)); }
I minS(I a, int32_t b) { return emit<arith::MinSIOp>(a, a.emitter->i(b)); }
I maxS(I a, int32_t b) { return emit<arith::MaxSIOp>(a, a.emitter->i(b)); }
L extendU(I a) { return convert<arith::ExtUIOp, 2>(a, a.emitter->builder.getI64Type()); }
I truncate(L a) { return convert<arith::TruncIOp, 1>(a, a.emitter->builder.getI32Type()); }
L operator+(L a, L b) { return emit<arith::AddIOp>(a, b); }
L operator*(L a, L b) { return emit<arith::MulIOp>(a, b); }
L operator<<(L a, int64_t b) { return emit<arith::ShLIOp>(a, a.emitter->l(b)); }
L shrU(L a, int64_t b) { return emit<arith::ShRUIOp>(a, a.emitter->l(b)); }

B operator&(B a, B b) { return emit<arith::AndIOp>(a, b); }
B operator|(B a, B b) { return emit<arith::OrIOp>(a, b); }
B operator!(B a) {
  Emitter *e = a.emitter;
  TypedAttr one = e->builder.getBoolAttr(true);
  if (e->lanes)
    one = DenseElementsAttr::get(cast<ShapedType>(a.value.getType()), true);
  return emit<arith::XOrIOp>(a, B{arith::ConstantOp::create(e->builder, e->loc, one), e});
}
F select(B mask, F a, F b) { return choose(mask, a, b); }
F select(B mask, float a, F b) { return choose(mask, b.emitter->f(a), b); }
F select(B mask, F a, float b) { return choose(mask, a, a.emitter->f(b)); }
F select(B mask, float a, float b) { return choose(mask, mask.emitter->f(a), mask.emitter->f(b)); }
I select(B mask, I a, I b) { return choose(mask, a, b); }
I select(B mask, int32_t a, I b) { return choose(mask, b.emitter->i(a), b); }
I select(B mask, int32_t a, int32_t b) { return choose(mask, mask.emitter->i(a), mask.emitter->i(b)); }

F horner(F x, F start, ArrayRef<float> c) {
  F sum = start;
  for (size_t k = c.size(); k-- > 0;)
    sum = fma(sum, x, c[k]);
  return sum;
}
F horner(F x, ArrayRef<float> c) { return horner(x, x.emitter->f(c.back()), c.drop_back()); }

F ex2Ftz(F x) { return x.emitter->perLane("llvm.nvvm.ex2.approx.ftz", {x}); }
F rcpFtz(F x) { return x.emitter->perLane("llvm.nvvm.rcp.approx.ftz.f", {x}); }

F reciprocal(F d) {
  if (!d.emitter->target.nvptx)
    return d.emitter->f(1.0f) / d;
  // One Newton step on the approximation (1 ulp): the residual is exact but for its last rounding.
  F r = rcpFtz(d);
  return fma(fma(-d, r, 1.0f), r, r);
}

} // namespace rl::mathx
