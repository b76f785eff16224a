// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/emit/Streams.h"
#include "compiler/emit/Packed.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace rl::emit {

using mlir::Value; // not the graph's

static LLVM::InlineAsmOp inlineAsm(OpBuilder &b, Location loc, Type result, StringRef text, StringRef constraints,
                                   ValueRange operands, bool sideEffects) {
  return LLVM::InlineAsmOp::create(b, loc, result, operands, b.getStringAttr(text), b.getStringAttr(constraints),
                                   sideEffects ? b.getUnitAttr() : UnitAttr(), UnitAttr(),
                                   LLVM::TailCallKindAttr::get(b.getContext(), LLVM::TailCallKind::None),
                                   LLVM::AsmDialectAttr(), ArrayAttr());
}

Streams makeStreams(OpBuilder &b, Location loc, int64_t leastBytes) {
  Streams out;
  out.leastBytes = leastBytes;
  if (leastBytes <= 0)
    return out;
  auto policy = [&](StringRef kind) {
    std::string text = "createpolicy.fractional.L2::" + kind.str() + ".b64 $0, 1.0;";
    return inlineAsm(b, loc, b.getI64Type(), text, "=l", {}, false).getResult(0);
  };
  out.loaded = policy("evict_last");
  out.stored = policy("evict_first");
  return out;
}

Value loadStream(OpBuilder &b, Location loc, const Streams &streams, VectorType type, Value from) {
  Type i32 = b.getI32Type();
  auto words = LLVM::LLVMStructType::getLiteral(b.getContext(), {i32, i32, i32, i32});
  Value all = inlineAsm(b, loc, words, "ld.global.nc.L2::cache_hint.v4.b32 {$0, $1, $2, $3}, [$4], $5;",
                        "=r,=r,=r,=r,l,l", {from, streams.loaded}, false)
                  .getResult(0);
  SmallVector<Value> parts;
  for (int64_t i = 0; i < 4; ++i)
    parts.push_back(LLVM::ExtractValueOp::create(b, loc, all, ArrayRef<int64_t>{i}));
  return fromWords(b, loc, vector::FromElementsOp::create(b, loc, VectorType::get({4}, i32), parts), type);
}

void storeStream(OpBuilder &b, Location loc, const Streams &streams, Value v, Value to) {
  Value words = toWords(b, loc, v);
  SmallVector<Value> operands{to};
  for (int64_t i = 0; i < 4; ++i)
    operands.push_back(vector::ExtractOp::create(b, loc, words, ArrayRef<int64_t>{i}));
  operands.push_back(streams.stored);
  inlineAsm(b, loc, LLVM::LLVMVoidType::get(b.getContext()),
            "st.global.L2::cache_hint.v4.b32 [$0], {$1, $2, $3, $4}, $5;", "l,r,r,r,r,l,~{memory}", operands, true);
}

} // namespace rl::emit
