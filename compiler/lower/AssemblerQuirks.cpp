// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the assembler of PTX does to correct code. Found by random graphs on a GPU (ptxas and driver of CUDA 13.0):
//  - It takes the result of abs.s32 and abs.s64 for non-negative, and drops a later comparison with zero. The absolute value
//    of the least integer is itself in this format, and negative. max(x, -x) says the same without the assumption.
//  - It evaluates an approximation (rsqrt.approx and its kin) of a constant itself, more exactly than the hardware does at
//    run time: a strict graph would then give other bits fused than op by op. Such a constant is hidden from it.
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

void avoidAssemblerQuirks(Module &module) {
  for (Function &f : module)
    for (Instruction &i : make_early_inc_range(instructions(f))) {
      auto *call = dyn_cast<CallInst>(&i);
      if (!call)
        continue;
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
