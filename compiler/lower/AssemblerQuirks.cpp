// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the assembler of PTX does to correct code. Found by random graphs on a GPU (ptxas and driver of CUDA 13.0):
//  - It takes the result of abs.s32 and abs.s64 for non-negative, and drops a later comparison with zero. The absolute value
//    of the least integer is itself in this format, and negative. max(x, -x) says the same without the assumption.
//  - It evaluates an approximation (rsqrt.approx and its kin) of a constant itself, more exactly than the hardware does at
//    run time: a strict graph would then give other bits fused than op by op. Such a constant is hidden from it.
//  - Of mul.hi.u32 d, a, b with two different constants added to d it computes one sum and takes it for both: the product and
//    the sum become one IMAD.HI, and of that one's 64-bit addend it compares the lower half, which is 0. A division by a
//    constant is therefore written so that a shift follows the product.
//  - Of a packed operation on 16-bit integers (add.s16x2) and a constant it gives both halves the lower half's operand.
#include "compiler/lower/Backend.h"

#include "llvm/ADT/SmallVector.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/Intrinsics.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/IR/Module.h"

using namespace llvm;

namespace rl {

static bool isApproximation(const CallInst &call) {
  if (auto *text = dyn_cast<InlineAsm>(call.getCalledOperand()))
    return text->getAsmString().find(".approx") != StringRef::npos;
  const Function *f = call.getCalledFunction();
  return f && f->getName().starts_with("llvm.nvvm.") &&
         (f->getName().contains(".approx") || f->getName().contains(".div.full"));
}

/// The constant plus the block's z coordinate, which is 0: every launch has one block there, and the assembler cannot know.
static Value *hidden(IRBuilder<> &b, Value *constant) {
  Value *zero = b.CreateIntrinsic(Intrinsic::nvvm_read_ptx_sreg_ctaid_z, {});
  Value *bits = b.CreateBitCast(constant, b.getInt32Ty());
  return b.CreateBitCast(b.CreateOr(bits, zero), constant->getType());
}

/// Lane by lane, where the lanes of a constant operand differ.
static void divideLanes(Instruction &i) {
  auto *type = dyn_cast<FixedVectorType>(i.getType());
  if (!type || !type->getElementType()->isIntegerTy() || type->getScalarSizeInBits() > 16 ||
      !(isa<BinaryOperator>(i) || isa<MinMaxIntrinsic>(i)))
    return;
  auto differs = [](Value *v) {
    auto *c = dyn_cast<Constant>(v);
    return c && !c->getSplatValue();
  };
  if (!differs(i.getOperand(0)) && !differs(i.getOperand(1)))
    return;
  IRBuilder<> b(&i);
  Value *result = PoisonValue::get(type);
  for (uint64_t lane = 0; lane < type->getNumElements(); ++lane) {
    Value *x = b.CreateExtractElement(i.getOperand(0), lane), *y = b.CreateExtractElement(i.getOperand(1), lane), *one;
    if (auto *minMax = dyn_cast<MinMaxIntrinsic>(&i))
      one = b.CreateBinaryIntrinsic(minMax->getIntrinsicID(), x, y);
    else
      one = b.CreateBinOp(cast<BinaryOperator>(i).getOpcode(), x, y);
    result = b.CreateInsertElement(result, one, lane);
  }
  i.replaceAllUsesWith(result);
  i.eraseFromParent();
}

/// Writes a division of x below 2^31 by d, which is no power of two, as (x * m) >> (32 + s) with s = ceil(log2 d) - 1 and m =
/// ceil(2^(32+s) / d): m * d exceeds 2^(32+s) by less than d <= 2^(s+1), which times x stays below 2^(32+s) (Granlund and
/// Montgomery, 1994). What kernels divide without a sign are indices that fit in an i32, and integers known not to be negative.
static void divideWithShift(BinaryOperator &division) {
  Value *x = division.getOperand(0);
  Type *type = division.getType();
  auto *constant = dyn_cast<Constant>(division.getOperand(1));
  auto *divisor = dyn_cast_or_null<ConstantInt>(constant && type->isVectorTy() ? constant->getSplatValue() : constant);
  if (!divisor || !type->isIntOrIntVectorTy(32) || divisor->isNegative() || divisor->getValue().ule(2) ||
      divisor->getValue().isPowerOf2())
    return;
  uint64_t d = divisor->getZExtValue();
  unsigned shift = 32 + Log2_64_Ceil(d) - 1;
  uint64_t m = ((uint64_t(1) << shift) + d - 1) / d;
  IRBuilder<> b(&division);
  Type *wide = type->getWithNewBitWidth(64);
  Value *product = b.CreateMul(b.CreateZExt(x, wide), ConstantInt::get(wide, m), "", /*HasNUW=*/true);
  Value *result = b.CreateTrunc(b.CreateLShr(product, shift), type);
  if (division.getOpcode() == Instruction::URem)
    result = b.CreateSub(x, b.CreateMul(result, constant));
  division.replaceAllUsesWith(result);
  division.eraseFromParent();
}

void avoidAssemblerQuirks(Module &module) {
  for (Function &f : module)
    for (Instruction &i : make_early_inc_range(instructions(f))) {
      if (i.getOpcode() == Instruction::UDiv || i.getOpcode() == Instruction::URem) {
        divideWithShift(cast<BinaryOperator>(i));
        continue;
      }
      auto *call = dyn_cast<CallInst>(&i);
      if (!call || isa<MinMaxIntrinsic>(call)) {
        divideLanes(i);
        continue;
      }
      IRBuilder<> b(call);
      if (call->getIntrinsicID() == Intrinsic::abs) {
        Value *x = call->getArgOperand(0);
        Value *larger = b.CreateBinaryIntrinsic(Intrinsic::smax, x, b.CreateNeg(x));
        call->replaceAllUsesWith(larger);
        call->eraseFromParent();
        continue;
      }
      bool constant = isApproximation(*call) && call->arg_size() > 0 && call->getArgOperand(0)->getType()->isFloatTy();
      for (Value *argument : call->args())
        constant &= isa<Constant>(argument);
      if (constant)
        call->setArgOperand(0, hidden(b, call->getArgOperand(0)));
    }
}

} // namespace rl
