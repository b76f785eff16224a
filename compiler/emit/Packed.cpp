// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/emit/Packed.h"
#include "compiler/emit/InlineAsm.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace rl::emit {

using mlir::Value; // not the graph's

Value toWords(OpBuilder &b, Location loc, Value v) {
  auto vector = cast<VectorType>(v.getType());
  int64_t bits = vector.getNumElements() * vector.getElementTypeBitWidth();
  return vector::BitCastOp::create(b, loc, VectorType::get({bits / 32}, b.getI32Type()), v);
}

Value fromWords(OpBuilder &b, Location loc, Value words, Type type) {
  return vector::BitCastOp::create(b, loc, cast<VectorType>(type), words);
}

Value hidden(OpBuilder &b, Location loc, Value v) {
  return inlineAsm(b, loc, v.getType(), "", "=r,0", ValueRange{v})->getResult(0);
}

void hidePacked(OpBuilder &b, Location loc, Lane &lane) {
  auto vector = dyn_cast_or_null<VectorType>(lane.raw ? lane.raw.getType() : Type());
  if (!vector || !isFloat(lane.dtype) || lane.dtype == DType::F32)
    return;
  lane.wide = {};
  int64_t bits = vector.getNumElements() * vector.getElementTypeBitWidth();
  if (bits % 32 != 0)
    return;
  Value packed = toWords(b, loc, lane.raw);
  SmallVector<Value> words;
  for (int64_t w = 0; w < bits / 32; ++w)
    words.push_back(hidden(b, loc, vector::ExtractOp::create(b, loc, packed, ArrayRef<int64_t>{w})));
  auto type = cast<VectorType>(packed.getType());
  lane.raw = fromWords(b, loc, vector::FromElementsOp::create(b, loc, type, words), vector);
}

} // namespace rl::emit
