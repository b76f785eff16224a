// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Narrow floats by integer arithmetic where the target has no instruction, else by that instruction: f16 on both
// targets, bf16 on NVPTX from sm_80 on, f8e4m3 and f8e5m2 from sm_89 on (there from PTX 8.1 on, which the compiler then
// asks for). fptrunc to bf16 is not used on x86, where LLVM 22 would call a library function.
#include "compiler/lower/common/NarrowFloat.h"
#include "compiler/lower/common/MathExpansionBuilder.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <bit>
#include <cmath>
#include <limits>

using namespace mlir;

namespace rl {
namespace {

using namespace mathx;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

I extend(Emitter &em, Value storage) {
  return em.wrapInt(
      arith::ExtUIOp::create(em.builder, em.loc, em.typeOf(em.builder.getI32Type()), storage).getResult());
}
Value cut(I code, unsigned width) {
  Emitter &em = *code.emitter;
  return arith::TruncIOp::create(em.builder, em.loc, em.typeOf(em.builder.getIntegerType(width)), code.value);
}
/// f32 values of bf16 patterns, two to a register: one operation each, where an element taken out of its register first would
/// cost two for the upper one.
Value widenPairs(Emitter &em, Value storage) {
  OpBuilder &b = em.builder;
  auto words = VectorType::get({em.lanes / 2}, b.getI32Type());
  Value pairs = vector::BitCastOp::create(b, em.loc, words, storage);
  auto constant = [&](int32_t v) {
    return arith::ConstantOp::create(b, em.loc, DenseElementsAttr::get(words, b.getI32IntegerAttr(v).getValue()));
  };
  Value low = arith::ShLIOp::create(b, em.loc, pairs, constant(16));
  Value high = arith::AndIOp::create(b, em.loc, pairs, constant(static_cast<int32_t>(0xffff0000)));
  Value both = vector::InterleaveOp::create(b, em.loc, low, high);
  return arith::BitcastOp::create(b, em.loc, em.typeOf(b.getF32Type()), both);
}
/// f32 values of f16 patterns that stand in the low halves of i32.
F halfToFloat(I code) {
  Emitter &em = *code.emitter;
  Value half =
      arith::BitcastOp::create(em.builder, em.loc, em.typeOf(em.builder.getF16Type()), cut(code, 16)).getResult();
  return em.wrap(arith::ExtFOp::create(em.builder, em.loc, em.typeOf(em.builder.getF32Type()), half).getResult());
}
/// The patterns of f32 values converted to a 16-bit type by arith.truncf.
Value truncateTo(F x, Type narrow) {
  Emitter &em = *x.emitter;
  Value half = arith::TruncFOp::create(em.builder, em.loc, em.typeOf(narrow), x.value).getResult();
  return arith::BitcastOp::create(em.builder, em.loc, em.typeOf(em.builder.getI16Type()), half);
}
I withSign(I magnitude, I sourceBits, int shift, int32_t signBit) {
  return magnitude | (shrU(sourceBits, shift) & signBit);
}

bool hasF8Conversions(const MathTarget &target) { return target.nvptx && target.sm >= 89; }

/// Calls an intrinsic on pairs of lanes; an odd last lane is paired with `filler`. `emitPair(low, high)` gives one
/// value for the two, `unpack(value, i)` lane i of it.
Value overPairs(Emitter &em, Value x, Value filler, Type result, llvm::function_ref<Value(Value, Value)> emitPair,
                llvm::function_ref<Value(Value, int)> unpack) {
  if (!em.lanes)
    return unpack(emitPair(x, filler), 0);
  SmallVector<Value> results;
  for (int64_t lane = 0; lane < em.lanes; lane += 2) {
    bool whole = lane + 1 < em.lanes;
    Value low = vector::ExtractOp::create(em.builder, em.loc, x, lane);
    Value high = whole ? vector::ExtractOp::create(em.builder, em.loc, x, lane + 1).getResult() : filler;
    Value pair = emitPair(low, high);
    results.push_back(unpack(pair, 0));
    if (whole)
      results.push_back(unpack(pair, 1));
  }
  return vector::FromElementsOp::create(em.builder, em.loc, cast<VectorType>(em.typeOf(result)), results);
}

Value widenF8ByHardware(Emitter &em, Value storage, bool e4m3) {
  OpBuilder &b = em.builder;
  Location loc = em.loc;
  Type i8 = b.getI8Type(), i16 = b.getI16Type(), f32 = b.getF32Type(), pairType = VectorType::get({2}, b.getF16Type());
  Value zero = arith::ConstantOp::create(b, loc, b.getI8IntegerAttr(0));
  Value eight = arith::ConstantOp::create(b, loc, b.getI16IntegerAttr(8));
  assert(getElementTypeOrSelf(storage.getType()) == i8);
  (void)i8;
  StringRef name = e4m3 ? "llvm.nvvm.e4m3x2.to.f16x2.rn" : "llvm.nvvm.e5m2x2.to.f16x2.rn";
  if (em.lanes && em.lanes % 2 == 0) { // as they lie in registers, without a detour by single bytes
    Value pairs = vector::BitCastOp::create(b, loc, VectorType::get({em.lanes / 2}, i16), storage);
    SmallVector<Value> results;
    for (int64_t p = 0; p < em.lanes / 2; ++p) {
      Value pair = vector::ExtractOp::create(b, loc, pairs, p);
      Value halves =
          LLVM::CallIntrinsicOp::create(b, loc, pairType, b.getStringAttr(name), ValueRange{pair}).getResult(0);
      for (int64_t i : {0, 1}) {
        Value half = vector::ExtractOp::create(b, loc, halves, i);
        results.push_back(arith::ExtFOp::create(b, loc, f32, half));
      }
    }
    return vector::FromElementsOp::create(b, loc, cast<VectorType>(em.typeOf(f32)), results);
  }
  return overPairs(
      em, storage, zero, f32,
      [&](Value low, Value high) -> Value {
        Value l = arith::ExtUIOp::create(b, loc, i16, low), h = arith::ExtUIOp::create(b, loc, i16, high);
        Value packed = arith::OrIOp::create(b, loc, l, arith::ShLIOp::create(b, loc, h, eight).getResult());
        return LLVM::CallIntrinsicOp::create(b, loc, pairType, b.getStringAttr(name), ValueRange{packed}).getResult(0);
      },
      [&](Value pair, int lane) -> Value {
        Value half = vector::ExtractOp::create(b, loc, pair, lane);
        return arith::ExtFOp::create(b, loc, f32, half);
      });
}

/// Saturating, NaN to 0x7f.
Value narrowF8ByHardware(F x, bool e4m3) {
  Emitter &em = *x.emitter;
  OpBuilder &b = em.builder;
  Location loc = em.loc;
  Type i8 = b.getI8Type(), i16 = b.getI16Type();
  Value zero = arith::ConstantOp::create(b, loc, b.getF32FloatAttr(0));
  Value eight = arith::ConstantOp::create(b, loc, b.getI16IntegerAttr(8));
  StringRef name = e4m3 ? "llvm.nvvm.ff.to.e4m3x2.rn" : "llvm.nvvm.ff.to.e5m2x2.rn";
  if (em.lanes && em.lanes % 4 == 0) { // whole registers, without a detour by single bytes
    Type i32 = b.getI32Type();
    Value sixteen = arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(16));
    SmallVector<Value> words;
    auto pairAt = [&](int64_t lane) -> Value {
      Value low = vector::ExtractOp::create(b, loc, x.value, lane),
            high = vector::ExtractOp::create(b, loc, x.value, lane + 1);
      Value pair =
          LLVM::CallIntrinsicOp::create(b, loc, i16, b.getStringAttr(name), ValueRange{high, low}).getResult(0);
      return arith::ExtUIOp::create(b, loc, i32, pair);
    };
    for (int64_t lane = 0; lane < em.lanes; lane += 4) {
      Value upper = arith::ShLIOp::create(b, loc, pairAt(lane + 2), sixteen);
      words.push_back(arith::OrIOp::create(b, loc, pairAt(lane), upper));
    }
    Value all = vector::FromElementsOp::create(b, loc, VectorType::get({em.lanes / 4}, i32), words);
    return vector::BitCastOp::create(b, loc, cast<VectorType>(em.typeOf(i8)), all);
  }
  return overPairs(
      em, x.value, zero, i8,
      [&](Value low, Value high) -> Value { // the first operand goes to the upper half
        return LLVM::CallIntrinsicOp::create(b, loc, i16, b.getStringAttr(name), ValueRange{high, low}).getResult(0);
      },
      [&](Value pair, int lane) -> Value {
        if (lane)
          pair = arith::ShRUIOp::create(b, loc, pair, eight);
        return arith::TruncIOp::create(b, loc, i8, pair);
      });
}

/// Sign and magnitude code of x rounded to a format of `manBits` mantissa bits and exponent bias `bias`; codes beyond
/// `last` become `beyond`, NaN `nan`.
I roundToCode(F x, int manBits, int bias, int32_t last, int32_t beyond, int32_t nan) {
  I b = bits(x), magnitude = b & 0x7fffffff;
  int drop = 23 - manBits;
  // Normal results: add just under half a unit, a whole half where the last kept bit is odd; a carry goes into the
  // exponent.
  I odd = shrU(magnitude, drop) & 1;
  I normal = shrU(magnitude + odd + ((1 << (drop - 1)) - 1), drop) - ((127 - bias) << manBits);
  // Subnormal results: in the sum with a power of two whose last place is their unit, the hardware rounds.
  float unit = std::ldexp(1.0f, 23 + 1 - bias - manBits);
  I subnormal = bits(abs(x) + unit) - std::bit_cast<int32_t>(unit);
  I code = select(lt(abs(x), std::ldexp(1.0f, 1 - bias)), subnormal, normal);
  code = select(gtS(code, last), beyond, code);
  code = select(isNan(x), nan, code);
  return withSign(code, b, 24, 0x80);
}

I narrowBF16(F x, bool plainNans) {
  I b = bits(x);
  I rounded = shrU(b + (shrU(b, 16) & 1) + 0x7fff, 16);
  return plainNans ? rounded : select(isNan(x), shrU(b, 16) | 0x40, rounded);
}

I narrowE8M0(F x) {
  I b = bits(x);
  I magnitude = b & 0x7fffffff;
  // To the nearest power of two: half of the mantissa's range rounds up, the tie to the even exponent.
  I normal = shrU(magnitude + (shrU(magnitude, 23) & 1) + 0x3fffff, 23);
  // Below 2^-126 the midpoint of 2^-127 and 2^-126 decides.
  I code = select(ltS(magnitude, 0x800000), select(gtS(magnitude, 0x600000), 1, 0), normal);
  code = minS(code, 254);
  return select(isNan(x) | lt(x, 0.0f), 255, code);
}

} // namespace

Value widenFloat(OpBuilder &builder, Location loc, Value storage, DType from, const MathTarget &target) {
  Emitter em(builder, loc, storage.getType(), target);
  if ((from == DType::F8E4M3 || from == DType::F8E5M2) && hasF8Conversions(target))
    return widenF8ByHardware(em, storage, from == DType::F8E4M3);
  I code = extend(em, storage);
  switch (from) {
  case DType::BF16:
    if (target.nvptx && em.lanes && em.lanes % 2 == 0)
      return widenPairs(em, storage);
    return fromBits(code << 16).value;
  case DType::F16: return halfToFloat(code).value;
  case DType::F8E5M2: // the upper half of an f16
    return halfToFloat(code << 8).value;
  case DType::F8E4M3: {
    // The seven bits are those of an f16 2^8 times smaller; only NaN is another pattern.
    I magnitude = code & 0x7f;
    F value = halfToFloat(withSign(magnitude << 7, code << 8, 0, 0x8000)) * 256.0f;
    return fromBits(bits(value) | select(eq(magnitude, 0x7f), 0x7fc00000, 0)).value;
  }
  case DType::F8E8M0: { // an f32's exponent; 2^-127 is subnormal
    F value = fromBits(select(eq(code, 0), 0x00400000, code << 23));
    return select(eq(code, 255), kNan, value).value;
  }
  default: llvm_unreachable("no narrow float type");
  }
}

Value narrowFloat(OpBuilder &builder, Location loc, Value f32, DType to, bool saturate, const MathTarget &target,
                  bool plainNans) {
  Emitter em(builder, loc, f32.getType(), target);
  F x = em.wrap(f32);
  switch (to) {
  case DType::BF16:
    if (target.nvptx && target.sm >= 80)
      return truncateTo(x, builder.getBF16Type());
    return cut(narrowBF16(x, plainNans), 16);
  case DType::F16: return truncateTo(x, builder.getF16Type());
  case DType::F8E4M3:
  case DType::F8E5M2: {
    bool e4m3 = to == DType::F8E4M3;
    if (hasF8Conversions(target)) {
      if (!saturate) // the first magnitude that rounds beyond the largest becomes NaN or, in e5m2, infinity
        x = e4m3 ? select(gt(abs(x), 464.0f), kNan, x) : x;
      Value code = narrowF8ByHardware(x, e4m3);
      if (saturate || e4m3)
        return code;
      I wide = extend(em, code);
      I infinity = withSign(em.i(0x7c), bits(x), 24, 0x80);
      return cut(select(lt(abs(x), 61440.0f) | isNan(x), wide, infinity), 8);
    }
    if (e4m3)
      return cut(roundToCode(x, 3, 7, 0x7e, saturate ? 0x7e : 0x7f, 0x7f), 8);
    return cut(roundToCode(x, 2, 15, 0x7b, saturate ? 0x7b : 0x7c, 0x7f), 8);
  }
  case DType::F8E8M0: return cut(narrowE8M0(x), 8);
  default: llvm_unreachable("no narrow float type");
  }
}

} // namespace rl
