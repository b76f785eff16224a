// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/emit/BodyEmitter.h"
#include "compiler/emit/InlineAsm.h"
#include "compiler/lower/MathCalls.h"
#include "compiler/lower/common/NarrowFloat.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinTypes.h"

#include <bit>
#include <cmath>

using namespace mlir;

namespace rl::emit {

using mlir::Value; // not the graph's

static bool isSigned(DType t) { return t == DType::I8 || t == DType::I32 || t == DType::I64; }

static Type withElement(Type like, Type element) {
  if (auto v = dyn_cast<VectorType>(like))
    return VectorType::get(v.getShape(), element);
  return element;
}
static Type elementOf(Value v) { return getElementTypeOrSelf(v.getType()); }

static Value splatConstant(OpBuilder &b, Location loc, TypedAttr element, Type type) {
  if (auto v = dyn_cast<VectorType>(type))
    return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(v, Attribute(element)));
  return arith::ConstantOp::create(b, loc, element);
}

Value BodyEmitter::constF32(float f, Value like) {
  return splatConstant(b, loc, b.getF32FloatAttr(f), withElement(like.getType(), b.getF32Type()));
}
Value BodyEmitter::constInt(int64_t i, Value like) {
  Type element = elementOf(like);
  return splatConstant(b, loc, IntegerAttr::get(element, APInt(element.getIntOrFloatBitWidth(), i, true, true)),
                       like.getType());
}

Value BodyEmitter::splatTo(Value v, int64_t lanes) {
  if (lanes == 1 || isa<VectorType>(v.getType()))
    return v;
  return vector::BroadcastOp::create(b, loc, VectorType::get({lanes}, v.getType()), v);
}

void BodyEmitter::unify(MutableArrayRef<Value> values) {
  int64_t lanes = 1;
  for (Value v : values)
    if (auto t = dyn_cast<VectorType>(v.getType()))
      lanes = t.getNumElements();
  for (Value &v : values)
    v = splatTo(v, lanes);
}

Type BodyEmitter::memoryType(DType t) {
  switch (t) {
  case DType::F32: return b.getF32Type();
  case DType::F16:
  case DType::BF16: return b.getI16Type();
  case DType::I32: return b.getI32Type();
  case DType::I64: return b.getI64Type();
  default: return b.getI8Type();
  }
}

Lane BodyEmitter::fromMemory(Value loaded, DType t) {
  if (t == DType::Bool)
    return makeRaw(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, loaded, constInt(0, loaded)), t);
  Lane lane = makeRaw(loaded, t);
  plainNans &= t != DType::F32 && t != DType::F16;
  if (t == DType::F32)
    lane.wide = loaded;
  return lane;
}

Value BodyEmitter::toMemory(Lane &lane, DType t) {
  if (t == DType::Bool)
    return arith::ExtUIOp::create(b, loc, withElement(lane.raw.getType(), b.getI8Type()), lane.raw);
  if (t == DType::F32)
    return wide(lane);
  if (!lane.raw)
    lane.raw = narrowFloat(b, loc, lane.wide, t, true, target, plainNans);
  return lane.raw;
}

void BodyEmitter::round(Lane &lane) {
  if (lane.literal || lane.dtype == DType::F32 || !isArithmeticFloat(lane.dtype))
    return;
  toMemory(lane, lane.dtype);
  lane.wide = {};
}

Value BodyEmitter::wide(Lane &lane) {
  if (!lane.wide)
    lane.wide = lane.dtype == DType::F32 ? lane.raw : widenFloat(b, loc, lane.raw, lane.dtype, target);
  return lane.wide;
}

Lane BodyEmitter::makeFloat(Value f32, DType t) {
  if (t == DType::F32)
    return {t, f32, f32, {}};
  if (!strict)
    return {t, {}, f32, {}};
  return {t, narrowFloat(b, loc, f32, t, true, target, plainNans), {}, {}};
}

/// With the NaN that has no payload for every NaN.
static float literalF32(const Scalar &s) {
  double d = s.asDouble();
  return std::isnan(d) ? NAN : static_cast<float>(d);
}

Lane BodyEmitter::constant(Scalar s, DType t) {
  if (isFloat(t)) {
    Value f = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(literalF32(s)));
    if (t == DType::F32)
      return {t, f, f, {}};
    Value raw = narrowFloat(b, loc, f, t, true, target);
    return {t, raw, isF8(t) ? Value() : widenFloat(b, loc, raw, t, target), {}};
  }
  int64_t i = s.kind == Scalar::Float ? static_cast<int64_t>(s.f) : s.i;
  if (t == DType::Bool)
    return makeRaw(arith::ConstantOp::create(b, loc, b.getBoolAttr(s.asDouble() != 0)), t);
  Type type = memoryType(t);
  return makeRaw(
      arith::ConstantOp::create(b, loc, IntegerAttr::get(type, APInt(type.getIntOrFloatBitWidth(), i, true, true))), t);
}

Lane BodyEmitter::missing(DType t) {
  if (!isFloat(t) || t == DType::F32)
    return constant({Scalar::Float, 0, isFloat(t) ? NAN : 0.0}, t);
  int64_t code = t == DType::F16 ? 0x7e00 : t == DType::BF16 ? 0x7fc0 : t == DType::F8E8M0 ? 0xff : 0x7f;
  return makeRaw(arith::ConstantOp::create(b, loc, IntegerAttr::get(memoryType(t), APInt(dtypeSize(t) * 8, code))), t);
}

Value BodyEmitter::floatOf(Lane &lane) {
  if (lane.literal)
    return arith::ConstantOp::create(b, loc, b.getF32FloatAttr(literalF32(*lane.literal)));
  if (isFloat(lane.dtype))
    return wide(lane);
  Type type = withElement(lane.raw.getType(), b.getF32Type());
  if (isSigned(lane.dtype))
    return arith::SIToFPOp::create(b, loc, type, lane.raw);
  return arith::UIToFPOp::create(b, loc, type, lane.raw);
}

Value BodyEmitter::integerOf(Lane &lane, DType to) {
  Type element = memoryType(to);
  if (lane.literal)
    return constant(*lane.literal, to).raw;
  Type type = withElement(lane.raw.getType(), element);
  unsigned from = elementOf(lane.raw).getIntOrFloatBitWidth(), width = element.getIntOrFloatBitWidth();
  if (from == width)
    return lane.raw;
  if (from > width)
    return arith::TruncIOp::create(b, loc, type, lane.raw);
  if (isSigned(lane.dtype))
    return arith::ExtSIOp::create(b, loc, type, lane.raw);
  return arith::ExtUIOp::create(b, loc, type, lane.raw);
}

Value BodyEmitter::boolOf(Lane &lane) {
  if (lane.literal)
    return arith::ConstantOp::create(b, loc, b.getBoolAttr(lane.literal->asDouble() != 0));
  if (lane.dtype == DType::Bool)
    return lane.raw;
  if (isFloat(lane.dtype)) {
    Value x = wide(lane);
    return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNE, x, constF32(0, x));
  }
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, lane.raw, constInt(0, lane.raw));
}

Value BodyEmitter::math(MathFn fn, ValueRange args, DType result) {
  // Strict graphs promise the same bits op by op and fused, and exactly rounded quotients and roots before the rounding to
  // the node's type: they take the f32 forms throughout.
  Rounding r = strict || !isArithmeticFloat(result) || result == DType::F32 ? Rounding::F32
               : result == DType::F16                                       ? Rounding::F16
               : inner                                                      ? Rounding::BF16Inner
                                                                            : Rounding::BF16;
  SmallVector<Value> unified(args);
  if (sparing && r == Rounding::F32 && fn == MathFn::Reciprocal)
    unified.insert(unified.begin(), constF32(1, unified[0]));
  if (sparing && r == Rounding::F32 && (fn == MathFn::Div || fn == MathFn::Reciprocal))
    fn = MathFn::Quotient;
  if (sparing && r == Rounding::F32 && fn == MathFn::Sqrt)
    fn = MathFn::Root;
  if (sparing && fn == MathFn::FloorDivide)
    fn = MathFn::FloorQuotient;
  unify(unified);
  return callMath(b, loc, fn, unified, r);
}

Lane BodyEmitter::select(Value cond, Lane x, Lane y) {
  bool raw = x.raw && y.raw && !(isArithmeticFloat(x.dtype) && (x.wide || y.wide));
  SmallVector<Value> v;
  if (raw)
    v = {x.raw, y.raw};
  else
    v = {wide(x), wide(y)};
  if (isa<VectorType>(cond.getType()) || isa<VectorType>(v[0].getType()) || isa<VectorType>(v[1].getType())) {
    SmallVector<Value> all = {cond, v[0], v[1]};
    unify(all);
    // A uniform condition may stay a scalar: arith.select takes an i1 for vectors.
    v = {all[1], all[2]};
    if (isa<VectorType>(cond.getType()))
      cond = all[0];
  }
  Value r = arith::SelectOp::create(b, loc, cond, v[0], v[1]);
  if (raw && x.dtype != DType::F32)
    return makeRaw(r, x.dtype);
  if (x.dtype == DType::F32)
    return {x.dtype, r, r, {}};
  return {x.dtype, {}, r, {}};
}

Lane BodyEmitter::fromIndex(Value index, DType t) {
  unsigned from = elementOf(index).getIntOrFloatBitWidth();
  Lane as{from == 32 ? DType::I32 : DType::I64, index, {}, {}};
  return cast(as, t, true);
}

/// A conversion to a float narrower than f32 must round once. f32 by round-to-odd keeps what a later rounding to 11 bits or
/// fewer needs (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008: p + 2 bits suffice).
Value BodyEmitter::intToFloatForNarrowing(Value i, bool sign) {
  unsigned width = elementOf(i).getIntOrFloatBitWidth();
  Type f32 = withElement(i.getType(), b.getF32Type());
  Value f =
      sign ? arith::SIToFPOp::create(b, loc, f32, i).getResult() : arith::UIToFPOp::create(b, loc, f32, i).getResult();
  if (width < 32)
    return f;
  Value back = floatToInt(f, width == 32 ? DType::I32 : DType::I64);
  Value exact = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, back, i);
  // |f| > |i| exactly where f moved away from zero.
  Value negative = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, i, constInt(0, i));
  Value less = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, back, i);
  Value greater = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sgt, back, i);
  Value away = arith::SelectOp::create(b, loc, negative, less, greater);
  Value bits = arith::BitcastOp::create(b, loc, withElement(i.getType(), b.getI32Type()), f);
  Value one = constInt(1, bits);
  Value truncated = arith::SelectOp::create(b, loc, away, arith::SubIOp::create(b, loc, bits, one), bits);
  Value odd = arith::OrIOp::create(b, loc, truncated, one);
  Value chosen = arith::SelectOp::create(b, loc, exact, bits, odd);
  return arith::BitcastOp::create(b, loc, f32, chosen);
}

/// Truncation toward zero, saturating; NaN gives 0.
Value BodyEmitter::floatToInt(Value f, DType to) {
  Type type = withElement(f.getType(), memoryType(to));
  StringRef name = to == DType::U8 ? "llvm.fptoui.sat" : "llvm.fptosi.sat";
  return LLVM::CallIntrinsicOp::create(b, loc, type, b.getStringAttr(name), ValueRange{f}).getResult(0);
}

/// Codes of 8 bits by the GPU's own conversion, which rounds to even, saturates and makes 0 of NaN: one instruction a number, and three
/// that put four of them into a word.
static Value codesOf(OpBuilder &b, Location loc, Value f, DType to) {
  const std::string convert = to == DType::U8 ? "cvt.rni.sat.u8.f32 " : "cvt.rni.sat.s8.f32 ";
  auto one = [&](Value x) -> Value {
    Value code = pureAsm(b, loc, b.getI32Type(), convert + "$0, $1;", "=r,f", x);
    return arith::TruncIOp::create(b, loc, b.getI8Type(), code);
  };
  auto vector = dyn_cast<VectorType>(f.getType());
  if (!vector)
    return one(f);
  SmallVector<Value> numbers;
  for (int64_t i = 0; i < vector.getNumElements(); ++i)
    numbers.push_back(vector::ExtractOp::create(b, loc, f, i));
  Type codes = withElement(vector, b.getI8Type());
  if (numbers.size() % 4 != 0) {
    SmallVector<Value> single;
    for (Value x : numbers)
      single.push_back(one(x));
    return vector::FromElementsOp::create(b, loc, codes, single);
  }
  std::string four = "{ .reg .b32 %c<6>; ";
  for (int i = 0; i < 4; ++i)
    four += convert + "%c" + std::to_string(i) + ", $" + std::to_string(i + 1) + "; ";
  four += "prmt.b32 %c4, %c0, %c1, 0x0040; prmt.b32 %c5, %c2, %c3, 0x0040; prmt.b32 $0, %c4, %c5, 0x5410; }";
  SmallVector<Value> words;
  for (size_t i = 0; i < numbers.size(); i += 4)
    words.push_back(pureAsm(b, loc, b.getI32Type(), four, "=r,f,f,f,f", ArrayRef(numbers).slice(i, 4)));
  auto packed = VectorType::get({static_cast<int64_t>(words.size())}, b.getI32Type());
  return vector::BitCastOp::create(b, loc, cast<VectorType>(codes),
                                   vector::FromElementsOp::create(b, loc, packed, words));
}

/// With 1.5 * 2^23 added, a number of up to 2^22 is rounded to an integer, half to even, which the low bits then are: an addition where
/// a rounding and a conversion are a quarter as fast.
Lane BodyEmitter::roundToInteger(Lane x, double least, double most, DType to) {
  Value f = wide(x);
  const bool byte = target.nvptx && (to == DType::I8 || to == DType::U8);
  const double low = to == DType::U8 ? 0 : -128, high = to == DType::U8 ? 255 : 127; // where the conversion saturates
  if (!byte || least > low)
    f = arith::MaximumFOp::create(b, loc, f, constF32(static_cast<float>(least), f));
  if (!byte || most < high)
    f = arith::MinimumFOp::create(b, loc, f, constF32(static_cast<float>(most), f));
  if (byte)
    return makeRaw(codesOf(b, loc, f, to), to);
  constexpr float kShift = 0x1.8p23f;
  Type type = withElement(f.getType(), b.getI32Type());
  Value bits = LLVM::BitcastOp::create(b, loc, type, arith::AddFOp::create(b, loc, f, constF32(kShift, f)));
  Value whole = arith::SubIOp::create(b, loc, bits, constInt(std::bit_cast<int32_t>(kShift), bits));
  Value isNan = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UNO, f, f);
  return cast(makeRaw(arith::SelectOp::create(b, loc, isNan, constInt(0, bits), whole), DType::I32), to, true);
}

Lane BodyEmitter::cast(Lane x, DType to, bool saturate) {
  if (x.literal)
    return constant(*x.literal, to);
  if (to == DType::Bool)
    return makeRaw(boolOf(x), to);
  if (isFloat(to)) {
    // Bits that are already of the type need no rounding; an f32 value that stands for a 16-bit tensor does.
    // A saturating cast clamps an infinity, which of the f8 types e5m2 alone has.
    if (x.dtype == to && x.raw && !(to == DType::F8E5M2 && saturate))
      return x;
    bool narrow = to != DType::F32;
    bool wideInteger = x.dtype == DType::I32 || x.dtype == DType::I64;
    Value f = narrow && wideInteger ? intToFloatForNarrowing(x.raw, true) : floatOf(x);
    if (!narrow)
      return {to, f, f, {}};
    return makeRaw(narrowFloat(b, loc, f, to, saturate, target, plainNans), to);
  }
  if (isFloat(x.dtype))
    return makeRaw(floatToInt(wide(x), to), to);
  return makeRaw(integerOf(x, to), to);
}

Lane BodyEmitter::floatUnary(const Node &node, Lane &lane, DType result) {
  Value x = floatOf(lane);
  auto cmp = [&](arith::CmpFPredicate p, Value l, Value r) {
    return arith::CmpFOp::create(b, loc, p, l, r).getResult();
  };
  auto fn = [&](MathFn f) { return makeFloat(math(f, x, result), result); };
  auto value = [&](Value v) { return makeFloat(v, result); };
  if (node.op == OpKind::Exp && node.attrs.fast)
    return value(callMath(b, loc, MathFn::Exp, x, Rounding::Term));
  switch (node.op) {
  case OpKind::Abs: return value(math::AbsFOp::create(b, loc, x));
  case OpKind::Neg: return value(arith::NegFOp::create(b, loc, x));
  case OpKind::Sign: {
    Value other = arith::SelectOp::create(b, loc, cmp(arith::CmpFPredicate::UNO, x, x), x, constF32(0, x));
    Value positive =
        arith::SelectOp::create(b, loc, cmp(arith::CmpFPredicate::OGT, x, constF32(0, x)), constF32(1, x), other);
    return value(
        arith::SelectOp::create(b, loc, cmp(arith::CmpFPredicate::OLT, x, constF32(0, x)), constF32(-1, x), positive));
  }
  case OpKind::Exp: return fn(MathFn::Exp);
  case OpKind::Exp2: return fn(MathFn::Exp2);
  case OpKind::Expm1: return fn(MathFn::Expm1);
  case OpKind::Log: return fn(MathFn::Log);
  case OpKind::Log2: return fn(MathFn::Log2);
  case OpKind::Log1p: return fn(MathFn::Log1p);
  case OpKind::Sqrt: return fn(MathFn::Sqrt);
  case OpKind::Rsqrt: return fn(MathFn::Rsqrt);
  case OpKind::Reciprocal: return fn(MathFn::Reciprocal);
  case OpKind::Square: return value(arith::MulFOp::create(b, loc, x, x));
  case OpKind::Sin: return fn(MathFn::Sin);
  case OpKind::Cos: return fn(MathFn::Cos);
  case OpKind::Tanh: return fn(MathFn::Tanh);
  case OpKind::Sigmoid: return fn(MathFn::Sigmoid);
  case OpKind::Erf: return fn(MathFn::Erf);
  case OpKind::Relu: return value(arith::MaximumFOp::create(b, loc, x, constF32(0, x)));
  case OpKind::Silu: return fn(MathFn::Silu);
  case OpKind::Softplus: return fn(MathFn::Softplus);
  case OpKind::Gelu: return fn(node.attrs.tanhApproximation ? MathFn::GeluTanh : MathFn::GeluErf);
  case OpKind::Floor: return value(math::FloorOp::create(b, loc, x));
  case OpKind::Ceil: return value(math::CeilOp::create(b, loc, x));
  case OpKind::Round: return value(math::RoundEvenOp::create(b, loc, x));
  case OpKind::Trunc: return value(math::TruncOp::create(b, loc, x));
  case OpKind::IsNan: return makeRaw(cmp(arith::CmpFPredicate::UNO, x, x), DType::Bool);
  case OpKind::IsInf:
    return makeRaw(cmp(arith::CmpFPredicate::OEQ, math::AbsFOp::create(b, loc, x), constF32(INFINITY, x)), DType::Bool);
  case OpKind::IsFinite:
    return makeRaw(cmp(arith::CmpFPredicate::OLT, math::AbsFOp::create(b, loc, x), constF32(INFINITY, x)), DType::Bool);
  default: return {};
  }
}

Lane BodyEmitter::integerUnary(const Node &node, Lane lane, DType result) {
  DType t = lane.dtype;
  auto boolean = [&](bool v) {
    Type type = withElement(lane.raw.getType(), b.getI1Type());
    return makeRaw(splatConstant(b, loc, b.getBoolAttr(v), type), DType::Bool);
  };
  switch (node.op) {
  case OpKind::IsNan:
  case OpKind::IsInf: return boolean(false);
  case OpKind::IsFinite: return boolean(true);
  case OpKind::BitwiseNot: {
    Value ones =
        t == DType::Bool ? splatConstant(b, loc, b.getBoolAttr(true), lane.raw.getType()) : constInt(-1, lane.raw);
    return makeRaw(arith::XOrIOp::create(b, loc, lane.raw, ones), result);
  }
  default: break;
  }
  // Bool in, bool out where the op keeps it (abs, relu, floor ...): the value is its own result.
  if (t == DType::Bool && result == DType::Bool)
    return lane;
  Value x = integerOf(lane, result), zero = constInt(0, x);
  auto cmp = [&](arith::CmpIPredicate p) { return arith::CmpIOp::create(b, loc, p, x, zero).getResult(); };
  Value negated = arith::SubIOp::create(b, loc, zero, x);
  bool sign = isSigned(result);
  switch (node.op) {
  case OpKind::Abs:
    return makeRaw(sign ? arith::SelectOp::create(b, loc, cmp(arith::CmpIPredicate::slt), negated, x).getResult() : x,
                   result);
  case OpKind::Neg: return makeRaw(negated, result);
  case OpKind::Sign: {
    Value one = constInt(1, x);
    Value r = arith::SelectOp::create(b, loc, cmp(arith::CmpIPredicate::ne), one, zero);
    if (sign)
      r = arith::SelectOp::create(b, loc, cmp(arith::CmpIPredicate::slt), constInt(-1, x), r);
    return makeRaw(r, result);
  }
  case OpKind::Square: return makeRaw(arith::MulIOp::create(b, loc, x, x), result);
  case OpKind::Relu: return makeRaw(sign ? arith::MaxSIOp::create(b, loc, x, zero).getResult() : x, result);
  case OpKind::Floor:
  case OpKind::Ceil:
  case OpKind::Round:
  case OpKind::Trunc: return makeRaw(x, result);
  default: return {};
  }
}

static std::optional<std::pair<arith::CmpFPredicate, std::pair<arith::CmpIPredicate, arith::CmpIPredicate>>>
comparison(OpKind op) {
  using F = arith::CmpFPredicate;
  using I = arith::CmpIPredicate;
  switch (op) {
  case OpKind::Eq: return {{F::OEQ, {I::eq, I::eq}}};
  case OpKind::Ne: return {{F::UNE, {I::ne, I::ne}}};
  case OpKind::Lt: return {{F::OLT, {I::slt, I::ult}}};
  case OpKind::Le: return {{F::OLE, {I::sle, I::ule}}};
  case OpKind::Gt: return {{F::OGT, {I::sgt, I::ugt}}};
  case OpKind::Ge: return {{F::OGE, {I::sge, I::uge}}};
  default: return std::nullopt;
  }
}

Lane BodyEmitter::floatBinary(const Node &node, Value x, Value y, DType result) {
  if (auto c = comparison(node.op))
    return makeRaw(arith::CmpFOp::create(b, loc, c->first, x, y), DType::Bool);
  auto fn = [&](MathFn f) { return makeFloat(math(f, {x, y}, result), result); };
  switch (node.op) {
  case OpKind::Add: return makeFloat(arith::AddFOp::create(b, loc, x, y), result);
  case OpKind::Sub: return makeFloat(arith::SubFOp::create(b, loc, x, y), result);
  case OpKind::Mul: return makeFloat(arith::MulFOp::create(b, loc, x, y), result);
  case OpKind::Div: return fn(MathFn::Div);
  case OpKind::FloorDivide: return fn(MathFn::FloorDivide);
  case OpKind::Fmod: return fn(MathFn::Fmod);
  case OpKind::Remainder: return fn(MathFn::Remainder);
  case OpKind::Pow: return fn(MathFn::Pow);
  case OpKind::Atan2: return fn(MathFn::Atan2);
  case OpKind::Maximum: return makeFloat(arith::MaximumFOp::create(b, loc, x, y), result);
  case OpKind::Minimum: return makeFloat(arith::MinimumFOp::create(b, loc, x, y), result);
  default: return {};
  }
}

Value BodyEmitter::integerPow(Value base, Value exponent, bool sign) {
  // Square and multiply over the bits of the exponent, wrapping. A negative exponent gives 0, but for the bases 1 and -1.
  unsigned width = elementOf(base).getIntOrFloatBitWidth();
  Value one = constInt(1, base), zero = constInt(0, base);
  Value low = arith::ConstantIndexOp::create(b, loc, 0), high = arith::ConstantIndexOp::create(b, loc, width);
  Value step = arith::ConstantIndexOp::create(b, loc, 1);
  auto loop = scf::ForOp::create(b, loc, low, high, step, ValueRange{one, base, exponent});
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    Value r = loop.getRegionIterArgs()[0], p = loop.getRegionIterArgs()[1], e = loop.getRegionIterArgs()[2];
    Value bit = arith::AndIOp::create(b, loc, e, one);
    Value set = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, bit, zero);
    Value next = arith::SelectOp::create(b, loc, set, arith::MulIOp::create(b, loc, r, p), r);
    scf::YieldOp::create(b, loc,
                         ValueRange{next, arith::MulIOp::create(b, loc, p, p), arith::ShRUIOp::create(b, loc, e, one)});
  }
  Value r = loop.getResult(0);
  if (!sign)
    return r;
  Value minus = constInt(-1, base);
  Value negative = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, exponent, zero);
  Value isOne = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, base, one);
  Value isMinus = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, base, minus);
  Value odd =
      arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, arith::AndIOp::create(b, loc, exponent, one), zero);
  Value alternating = arith::SelectOp::create(b, loc, odd, minus, one);
  Value inverse = arith::SelectOp::create(b, loc, isMinus, alternating, zero);
  inverse = arith::SelectOp::create(b, loc, isOne, one, inverse);
  return arith::SelectOp::create(b, loc, negative, inverse, r);
}

Lane BodyEmitter::integerBinary(const Node &node, Value x, Value y, DType compute, DType result) {
  bool sign = isSigned(compute);
  if (auto c = comparison(node.op))
    return makeRaw(arith::CmpIOp::create(b, loc, sign ? c->second.first : c->second.second, x, y), DType::Bool);
  if (compute == DType::Bool) {
    switch (node.op) {
    case OpKind::Add:
    case OpKind::Maximum:
    case OpKind::BitwiseOr: return makeRaw(arith::OrIOp::create(b, loc, x, y), result);
    case OpKind::Mul:
    case OpKind::Minimum:
    case OpKind::BitwiseAnd: return makeRaw(arith::AndIOp::create(b, loc, x, y), result);
    case OpKind::BitwiseXor: return makeRaw(arith::XOrIOp::create(b, loc, x, y), result);
    default: return {};
    }
  }
  Value zero = constInt(0, x);
  auto cmp = [&](arith::CmpIPredicate p, Value l, Value r) {
    return arith::CmpIOp::create(b, loc, p, l, r).getResult();
  };
  auto pick = [&](Value c, Value l, Value r) { return arith::SelectOp::create(b, loc, c, l, r).getResult(); };
  switch (node.op) {
  case OpKind::Add: return makeRaw(arith::AddIOp::create(b, loc, x, y), result);
  case OpKind::Sub: return makeRaw(arith::SubIOp::create(b, loc, x, y), result);
  case OpKind::Mul: return makeRaw(arith::MulIOp::create(b, loc, x, y), result);
  case OpKind::Maximum:
    return makeRaw(sign ? arith::MaxSIOp::create(b, loc, x, y).getResult()
                        : arith::MaxUIOp::create(b, loc, x, y).getResult(),
                   result);
  case OpKind::Minimum:
    return makeRaw(sign ? arith::MinSIOp::create(b, loc, x, y).getResult()
                        : arith::MinUIOp::create(b, loc, x, y).getResult(),
                   result);
  case OpKind::BitwiseAnd: return makeRaw(arith::AndIOp::create(b, loc, x, y), result);
  case OpKind::BitwiseOr: return makeRaw(arith::OrIOp::create(b, loc, x, y), result);
  case OpKind::BitwiseXor: return makeRaw(arith::XOrIOp::create(b, loc, x, y), result);
  case OpKind::Pow: return makeRaw(integerPow(x, y, sign), result);
  case OpKind::FloorDivide:
  case OpKind::Fmod:
  case OpKind::Remainder: {
    // No division that traps or is undefined is ever executed: by zero the result is 0; by -1 the quotient is the wrapped
    // negation and the rest 0.
    Value one = constInt(1, x);
    Value byZero = cmp(arith::CmpIPredicate::eq, y, zero);
    if (!sign) {
      Value divisor = pick(byZero, one, y);
      Value r = node.op == OpKind::FloorDivide ? arith::DivUIOp::create(b, loc, x, divisor).getResult()
                                               : arith::RemUIOp::create(b, loc, x, divisor).getResult();
      return makeRaw(pick(byZero, zero, r), result);
    }
    Value byMinusOne = cmp(arith::CmpIPredicate::eq, y, constInt(-1, x));
    Value unsafe = arith::OrIOp::create(b, loc, byZero, byMinusOne);
    Value divisor = pick(unsafe, one, y);
    Value rest = arith::RemSIOp::create(b, loc, x, divisor);
    Value hasRest = cmp(arith::CmpIPredicate::ne, rest, zero);
    Value signsDiffer = cmp(arith::CmpIPredicate::slt, arith::XOrIOp::create(b, loc, x, divisor), zero);
    Value adjust = arith::AndIOp::create(b, loc, hasRest, signsDiffer);
    if (node.op == OpKind::Fmod)
      return makeRaw(pick(unsafe, zero, rest), result);
    if (node.op == OpKind::Remainder) {
      Value r = pick(adjust, arith::AddIOp::create(b, loc, rest, divisor), rest);
      return makeRaw(pick(unsafe, zero, r), result);
    }
    Value q = arith::DivSIOp::create(b, loc, x, divisor);
    q = pick(adjust, arith::SubIOp::create(b, loc, q, one), q);
    q = pick(byMinusOne, arith::SubIOp::create(b, loc, zero, x), q);
    return makeRaw(pick(byZero, zero, q), result);
  }
  default: return {};
  }
}

Lane BodyEmitter::clamp(const Node &node, Lane lane, DType result) {
  const auto &low = node.attrs.min, &high = node.attrs.max;
  if (isFloat(result)) {
    Value x = floatOf(lane);
    if (low)
      x = arith::MaximumFOp::create(b, loc, x, constF32(static_cast<float>(low->asDouble()), x));
    if (high)
      x = arith::MinimumFOp::create(b, loc, x, constF32(static_cast<float>(high->asDouble()), x));
    return makeFloat(x, result);
  }
  Value x = result == DType::Bool ? boolOf(lane) : integerOf(lane, result);
  bool sign = isSigned(result);
  auto bound = [&](const Scalar &s) {
    return splatTo(constant(s, result).raw,
                   isa<VectorType>(x.getType()) ? cast<VectorType>(x.getType()).getNumElements() : 1);
  };
  if (low)
    x = sign ? arith::MaxSIOp::create(b, loc, x, bound(*low)).getResult()
             : arith::MaxUIOp::create(b, loc, x, bound(*low)).getResult();
  if (high)
    x = sign ? arith::MinSIOp::create(b, loc, x, bound(*high)).getResult()
             : arith::MinUIOp::create(b, loc, x, bound(*high)).getResult();
  return makeRaw(x, result);
}

/// A vector over a number that its lanes share, where results of a few bits are made of it: the number's reciprocal once, and
/// for each lane what makes the product with it the correctly rounded quotient (Markstein, "IA-64 and elementary functions",
/// 2000, chapter 8, and Cornea, Golliver and Markstein, 1999). With the rest negated a zero keeps its sign. A lane whose quotient
/// is beyond 2^20, where the rest may overflow, stays the product, but where quotients are `bounded`; below 2^-64, where rests
/// are inexact, 8 bits hold no more than a zero. The assembler's division costs three times as much.
Value BodyEmitter::divideNarrow(Value x, Value y, bool bounded) {
  auto cmp = [&](arith::CmpFPredicate p, float bound) {
    return arith::CmpFOp::create(b, loc, p, y, constF32(bound, y)).getResult();
  };
  Value tame =
      arith::AndIOp::create(b, loc, cmp(arith::CmpFPredicate::OGE, 0x1p-64f), cmp(arith::CmpFPredicate::OLE, 0x1p64f));
  auto branch = scf::IfOp::create(b, loc, TypeRange{x.getType()}, tame, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  scf::YieldOp::create(b, loc, timesReciprocal(x, y, y, bounded));
  b.setInsertionPointToStart(branch.elseBlock());
  int64_t lanes = cast<VectorType>(x.getType()).getNumElements();
  scf::YieldOp::create(b, loc, math(MathFn::Div, {x, splatTo(y, lanes)}, DType::F32));
  return branch.getResult(0);
}

/// `divisor`: what the rest is taken by.
Value BodyEmitter::timesReciprocal(Value x, Value y, Value divisor, bool bounded) {
  int64_t lanes = cast<VectorType>(x.getType()).getNumElements();
  auto negative = [&](Value v) { return arith::NegFOp::create(b, loc, v).getResult(); };
  auto fma = [&](Value l, Value r, Value s) { return math::FmaOp::create(b, loc, l, r, s).getResult(); };
  Value inverse = splatTo(math(MathFn::Div, {constF32(1, y), y}, DType::F32), lanes);
  Value product = arith::MulFOp::create(b, loc, x, inverse);
  Value q = fma(negative(fma(product, splatTo(divisor, lanes), negative(x))), inverse, product);
  if (bounded)
    return q;
  Value size = math::AbsFOp::create(b, loc, product);
  Value large = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGE, size, constF32(0x1p20f, size));
  return arith::SelectOp::create(b, loc, large, product, q);
}

/// The same for all numbers alike: a small or large one and what it divides are multiplied by a power of two, which loses nothing but
/// of quotients that 8 bits do not hold. An infinite one has the reciprocal 0, and no rest: x * 0 is what there is.
Value BodyEmitter::divideScaled(Value x, Value y, bool bounded) {
  int64_t lanes = cast<VectorType>(x.getType()).getNumElements();
  Value size = math::AbsFOp::create(b, loc, y), one = constF32(1, y);
  auto cmp = [&](arith::CmpFPredicate p, float bound) {
    return arith::CmpFOp::create(b, loc, p, size, constF32(bound, y)).getResult();
  };
  auto select = [&](Value c, Value v, Value w) { return arith::SelectOp::create(b, loc, c, v, w).getResult(); };
  Value by = select(cmp(arith::CmpFPredicate::OLT, 0x1p-64f), constF32(0x1p100f, y),
                    select(cmp(arith::CmpFPredicate::OGT, 0x1p64f), constF32(0x1p-100f, y), one));
  Value scaled = arith::MulFOp::create(b, loc, y, by);
  Value divisor = select(cmp(arith::CmpFPredicate::OEQ, INFINITY), constF32(0, y), scaled);
  return timesReciprocal(arith::MulFOp::create(b, loc, x, splatTo(by, lanes)), scaled, divisor, bounded);
}

Lane BodyEmitter::emit(const Node &node, MutableArrayRef<Lane> operands, DType result, bool isInner, bool isNarrow) {
  inner = isInner;
  narrow = isNarrow;
  OpClass cls = opInfo(node.op).cls;
  if (node.op == OpKind::Cast)
    return cast(operands[0], result, node.attrs.saturate);
  if (node.op == OpKind::Where) {
    Value cond = boolOf(operands[0]);
    Lane x = cast(operands[1], result, true), y = cast(operands[2], result, true);
    // A branch that already is of the result's type keeps its unrounded value.
    for (auto [i, lane] : {std::pair<int, Lane *>{1, &x}, {2, &y}}) {
      if (isArithmeticFloat(result) && operands[i].literal) {
        Value f = floatOf(operands[i]);
        *lane = strict && result != DType::F32 ? cast(operands[i], result, true) : Lane{result, {}, f, {}};
        if (result == DType::F32)
          lane->raw = f;
      } else if (operands[i].dtype == result && !operands[i].literal) {
        *lane = operands[i];
      } else if (isArithmeticFloat(result) && !strict) {
        Value f = floatOf(operands[i]);
        *lane = {result, result == DType::F32 ? f : Value(), f, {}};
      }
    }
    return select(cond, x, y);
  }
  if (node.op == OpKind::Clamp)
    return clamp(node, operands[0], result);
  if (node.op == OpKind::LogicalNot) {
    Value x = boolOf(operands[0]);
    return makeRaw(arith::XOrIOp::create(b, loc, x, splatConstant(b, loc, b.getBoolAttr(true), x.getType())),
                   DType::Bool);
  }
  if (node.op == OpKind::LogicalAnd || node.op == OpKind::LogicalOr || node.op == OpKind::LogicalXor) {
    SmallVector<Value> v = {boolOf(operands[0]), boolOf(operands[1])};
    unify(v);
    if (node.op == OpKind::LogicalAnd)
      return makeRaw(arith::AndIOp::create(b, loc, v[0], v[1]), DType::Bool);
    if (node.op == OpKind::LogicalOr)
      return makeRaw(arith::OrIOp::create(b, loc, v[0], v[1]), DType::Bool);
    return makeRaw(arith::XOrIOp::create(b, loc, v[0], v[1]), DType::Bool);
  }
  std::vector<OperandType> types;
  for (const Lane &lane : operands)
    types.push_back({TensorType{lane.dtype, {}}, lane.literal});
  DType compute = computeType(node.op, types);
  if (cls == OpClass::Unary) {
    Lane &x = operands[0];
    if (x.literal)
      x = constant(*x.literal, compute);
    return isFloat(compute) ? floatUnary(node, x, result) : integerUnary(node, x, result);
  }
  if (isFloat(compute)) {
    SmallVector<Value> v = {floatOf(operands[0]), floatOf(operands[1])};
    if (narrow && node.op == OpKind::Div && isa<VectorType>(v[0].getType()) && !isa<VectorType>(v[1].getType()))
      return makeFloat(sparing ? divideScaled(v[0], v[1], node.attrs.fast) : divideNarrow(v[0], v[1], node.attrs.fast),
                       result);
    unify(v);
    return floatBinary(node, v[0], v[1], result);
  }
  SmallVector<Value> v;
  for (Lane &lane : operands)
    v.push_back(compute == DType::Bool ? boolOf(lane) : integerOf(lane, compute));
  unify(v);
  return integerBinary(node, v[0], v[1], compute, result);
}

} // namespace rl::emit
