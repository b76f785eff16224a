// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/emit/Streams.h"
#include "compiler/emit/InlineAsm.h"
#include "compiler/emit/Packed.h"

#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace rl::emit {

using mlir::Value; // not the graph's

Streams makeStreams(OpBuilder &b, Location loc, int64_t leastBytes) {
  Streams out;
  out.leastBytes = leastBytes;
  if (leastBytes <= 0)
    return out;
  auto policy = [&](StringRef kind) {
    std::string text = "createpolicy.fractional.L2::" + kind.str() + ".b64 $0, 1.0;";
    return pureAsm(b, loc, b.getI64Type(), text, "=l", {});
  };
  out.loaded = policy("evict_last");
  out.stored = policy("evict_first");
  return out;
}

Value loadByPolicy(OpBuilder &b, Location loc, Value policy, VectorType type, Value from, bool keepsInL1) {
  const int64_t words = type.getNumElements() * type.getElementTypeBitWidth() / 32;
  std::string to = words == 1 ? "$0" : words == 2 ? "{$0, $1}" : "{$0, $1, $2, $3}", constraints;
  for (int64_t w = 0; w < words; ++w)
    constraints += "=r,";
  std::string text = std::string("ld.global.nc") + (keepsInL1 ? "" : ".L1::no_allocate") + ".L2::cache_hint" +
                     (words == 1 ? "" : ".v" + std::to_string(words)) + ".b32 " + to + ", [$" + std::to_string(words) +
                     "], $" + std::to_string(words + 1) + ";";
  Type word = b.getI32Type(), result = word;
  if (words > 1)
    result = LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(static_cast<size_t>(words), word));
  Value all = pureAsm(b, loc, result, text, constraints + "l,l", {from, policy});
  SmallVector<Value> parts{all};
  if (words > 1) {
    parts.clear();
    for (int64_t w = 0; w < words; ++w)
      parts.push_back(LLVM::ExtractValueOp::create(b, loc, all, ArrayRef<int64_t>{w}));
  }
  return fromWords(b, loc, vector::FromElementsOp::create(b, loc, VectorType::get({words}, word), parts), type);
}

void storeStream(OpBuilder &b, Location loc, const Streams &streams, Value v, Value to) {
  Value words = toWords(b, loc, v);
  SmallVector<Value> operands{to};
  for (int64_t i = 0; i < 4; ++i)
    operands.push_back(vector::ExtractOp::create(b, loc, words, ArrayRef<int64_t>{i}));
  operands.push_back(streams.stored);
  inlineAsm(b, loc, LLVM::LLVMVoidType::get(b.getContext()),
            "st.global.L2::cache_hint.v4.b32 [$0], {$1, $2, $3, $4}, $5;", "l,r,r,r,r,l,~{memory}", operands);
}

} // namespace rl::emit
