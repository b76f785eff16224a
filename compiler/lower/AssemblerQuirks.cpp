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
//  - A register of which one half was never written is wholly undefined to it, and so is what is computed from the other
//    half (a vector of which one lane is read). Such a half is set to zero.
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

namespace {

/// The text of one function's registers %rs<N> or %r<N>, by N.
struct Registers {
  StringRef prefix;
  SmallVector<bool> written;
  SmallVector<unsigned> packed; ///< that are half of another

  /// Whether `name` is one of these, and its number.
  bool number(StringRef name, unsigned &n) const {
    return name.consume_front(prefix) && !name.empty() && !name.getAsInteger(10, n);
  }
  void write(StringRef name) {
    unsigned n;
    if (!number(name, n))
      return;
    if (written.size() <= n)
      written.resize(n + 1, false);
    written[n] = true;
  }
  void pack(StringRef name) {
    unsigned n;
    if (number(name, n))
      packed.push_back(n);
  }
};

} // namespace

std::string defineRegisterHalves(StringRef ptx) {
  std::string out;
  size_t body = StringRef::npos; // behind the declarations of the function's registers
  bool started = false;          // its instructions, among which assembler blocks may declare more
  Registers halves[] = {{"%rs", {}, {}}, {"%r", {}, {}}};
  auto finish = [&] {
    std::string moves;
    for (Registers &r : halves) {
      for (unsigned n : r.packed)
        if (n >= r.written.size() || !r.written[n]) {
          moves += (r.prefix == "%r" ? "\tmov.b32 \t" : "\tmov.b16 \t") + r.prefix.str() + std::to_string(n) + ", 0;\n";
          r.write(r.prefix.str() + std::to_string(n));
        }
      r.written.clear();
      r.packed.clear();
    }
    if (body != StringRef::npos)
      out.insert(body, moves);
    body = StringRef::npos;
  };
  out.reserve(ptx.size());
  while (!ptx.empty()) {
    auto [line, rest] = ptx.split('\n');
    out.append(line.begin(), line.end());
    out += '\n';
    ptx = rest;
    StringRef text = line.trim();
    if (text.starts_with(".reg") && !started) {
      body = out.size();
      continue;
    }
    if (line.starts_with("}")) {
      finish();
      started = false;
      continue;
    }
    started |= text.ends_with(";") && body != StringRef::npos;
    if (text.starts_with("@"))
      text = text.split(' ').second.ltrim();
    size_t space = text.find_first_of(" \t");
    if (space == StringRef::npos)
      continue;
    StringRef operands = text.substr(space).ltrim();
    bool several = operands.consume_front("{");
    auto [results, sources] = operands.split(several ? '}' : ',');
    SmallVector<StringRef> names;
    results.split(names, ',');
    for (StringRef name : names)
      for (Registers &r : halves)
        r.write(name.trim());
    sources = sources.ltrim(" ,");
    if (!text.starts_with("mov.b") || !sources.consume_front("{"))
      continue;
    names.clear();
    sources.split('}').first.split(names, ',');
    for (StringRef name : names)
      for (Registers &r : halves)
        r.pack(name.trim());
  }
  return out;
}

} // namespace rl
