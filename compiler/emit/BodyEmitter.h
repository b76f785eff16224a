// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// One elementwise op to arith and math on vectors. Knows nothing of indices, loops, memory or targets beyond what the
// mathematics needs: every emitter (pointwise, rows, epilogues) writes its bodies with it.
#pragma once

#include "compiler/lower/common/MathExpansion.h"
#include "ir/graph/Graph.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/Value.h"

namespace rl::emit {

using mlir::Value; // not the graph's

/// The value of a tensor for V consecutive elements (a vector), or for one element that all of them share (a scalar). A
/// float of 16 bits or fewer has its storage bits (`raw`: i16, i8), its f32 value (`wide`), or both; other types have `raw`
/// alone: f32, the integers (u8 as i8), bool as i1.
struct Lane {
  DType dtype = DType::F32;
  mlir::Value raw, wide;
  std::optional<Scalar> literal;
};

class BodyEmitter {
public:
  BodyEmitter(mlir::OpBuilder &builder, mlir::Location loc, MathTarget target, bool strict)
      : b(builder), loc(loc), target(target), strict(strict) {}

  /// The result of an op of class Unary, Binary or Ternary. `result` is its element type.
  /// Operands that had to be widened keep their f32 value in `operands`, for the caller's other uses of them.
  /// `inner`: the result is not stored, so that in a fused graph it is never rounded.
  /// `narrow`: of a quotient, all that is made of it are values of 8 bits, to which what is beyond 2^20 or below 2^-64 is all the
  /// same but for its sign.
  Lane emit(const Node &node, llvm::MutableArrayRef<Lane> operands, DType result, bool inner = false,
            bool narrow = false);

  /// From and to what memory holds: bool is i8 there.
  Lane fromMemory(mlir::Value loaded, DType);
  mlir::Value toMemory(Lane &, DType);
  /// The MLIR type of one element in memory.
  mlir::Type memoryType(DType);

  Lane constant(Scalar, DType);
  /// What an index out of range yields: NaN, or 0 where the type has none.
  Lane missing(DType);
  /// An integer (i32 or i64, never negative) that iota yields, as `dtype`.
  Lane fromIndex(mlir::Value index, DType dtype);
  /// lanes[i] ? a : b with the representations of a and b kept where both have them.
  Lane select(mlir::Value cond, Lane a, Lane b);
  mlir::Value splatTo(mlir::Value v, int64_t lanes);
  /// Where the f32 value of a float lane is needed.
  mlir::Value wide(Lane &);
  /// A lane of 16-bit floats has no other value than its storage bits stand for.
  void round(Lane &);
  /// The lane as element type `to`, by the rules of `cast`.
  Lane cast(Lane, DType to, bool saturate);
  /// An f32 lane clamped to `least` and `most`, integers of at most 2^21 that `to`, of an integer type, holds, and rounded half to even;
  /// NaN gives 0.
  Lane roundToInteger(Lane, double least, double most, DType to);

  mlir::OpBuilder &builder() { return b; }

  /// Quotients and roots take more instructions, but neither a branch nor a subroutine: where nearly all registers hold something else, which a
  /// call would save, and where warpgroup products are under way, which it would serialise.
  void spareRegisters() { sparing = true; }

private:
  mlir::Value floatOf(Lane &);             ///< any type -> f32
  mlir::Value integerOf(Lane &, DType to); ///< integers and bool -> the integer type `to`
  mlir::Value boolOf(Lane &);              ///< any type -> i1: is it not zero
  Lane makeFloat(mlir::Value f32, DType);
  Lane makeRaw(mlir::Value raw, DType dtype) { return {dtype, raw, {}, {}}; }
  mlir::Value constF32(float, mlir::Value like);
  mlir::Value constInt(int64_t, mlir::Value like);
  mlir::Value math(MathFn, mlir::ValueRange args, DType result);
  void unify(llvm::MutableArrayRef<mlir::Value>);
  Lane floatUnary(const Node &, Lane &, DType result);
  Lane integerUnary(const Node &, Lane, DType result);
  Lane floatBinary(const Node &, mlir::Value x, mlir::Value y, DType result);
  Lane integerBinary(const Node &, mlir::Value x, mlir::Value y, DType compute, DType result);
  Lane clamp(const Node &, Lane, DType result);
  mlir::Value divideNarrow(mlir::Value x, mlir::Value y, bool bounded);
  mlir::Value divideScaled(mlir::Value x, mlir::Value y, bool bounded);
  mlir::Value timesReciprocal(mlir::Value x, mlir::Value y, mlir::Value divisor, bool bounded);
  mlir::Value integerPow(mlir::Value base, mlir::Value exponent, bool isSigned);
  mlir::Value intToFloatForNarrowing(mlir::Value, bool isSigned);
  mlir::Value floatToInt(mlir::Value f32, DType to);

  mlir::OpBuilder &b;
  mlir::Location loc;
  MathTarget target;
  bool strict, sparing = false;
  bool inner = false, narrow = false; ///< of the op being emitted
  /// No NaN that a value here can be has bits beyond those of a bf16: there was no load of another float with room for
  /// more. (An operation hands on the payload of an operand's NaN; one that it makes itself has none.)
  bool plainNans = true;
};

} // namespace rl::emit
