// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/emit/InlineAsm.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;

namespace rl::emit {

static LLVM::InlineAsmOp create(OpBuilder &b, Location loc, Type result, const Twine &text, const Twine &constraints,
                                ValueRange operands, UnitAttr sideEffects) {
  return LLVM::InlineAsmOp::create(b, loc, result, operands, b.getStringAttr(text), b.getStringAttr(constraints),
                                   sideEffects, /*is_align_stack=*/UnitAttr(),
                                   LLVM::TailCallKindAttr::get(b.getContext(), LLVM::TailCallKind::None),
                                   LLVM::AsmDialectAttr(), ArrayAttr());
}

Operation *inlineAsm(OpBuilder &b, Location loc, Type result, const Twine &text, const Twine &constraints,
                     ValueRange operands) {
  return create(b, loc, result, text, constraints, operands, b.getUnitAttr());
}

Value pureAsm(OpBuilder &b, Location loc, Type result, const Twine &text, const Twine &constraints,
              ValueRange operands) {
  return create(b, loc, result, text, constraints, operands, UnitAttr()).getResult(0);
}

} // namespace rl::emit
