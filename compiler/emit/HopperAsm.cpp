// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/emit/HopperAsm.h"
#include "compiler/emit/InlineAsm.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;

namespace rl::emit {

Value Int32::of(int64_t v) { return arith::ConstantIntOp::create(b, loc, b.getI32Type(), v); }
Value Int32::add(Value x, Value y) { return arith::AddIOp::create(b, loc, x, y); }
Value Int32::sub(Value x, Value y) { return arith::SubIOp::create(b, loc, x, y); }
Value Int32::mul(Value x, Value y) { return arith::MulIOp::create(b, loc, x, y); }
Value Int32::div(Value x, Value y) { return arith::DivUIOp::create(b, loc, x, y); }
Value Int32::rem(Value x, Value y) { return arith::RemUIOp::create(b, loc, x, y); }
Value Int32::andWith(Value x, int64_t c) { return arith::AndIOp::create(b, loc, x, of(c)); }
Value Int32::xorWith(Value x, Value y) { return arith::XOrIOp::create(b, loc, x, y); }
Value Int32::shiftRight(Value x, int64_t c) { return arith::ShRUIOp::create(b, loc, x, of(c)); }
Value Int32::min(Value x, Value y) { return arith::MinSIOp::create(b, loc, x, y); }
Value Int32::equal(Value x, Value y) { return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, x, y); }
Value Int32::less(Value x, Value y) { return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, x, y); }
Value Int32::select(Value c, Value x, Value y) { return arith::SelectOp::create(b, loc, c, x, y); }

// PTX ISA, "Asynchronous warpgroup level matrix instructions": shapes by type.
bool isWgmmaShape(DType a, DType b, int n) {
  if (n < 8 || n > 256 || n % 8 != 0)
    return false;
  switch (a) {
  case DType::BF16:
  case DType::F16: return a == b;
  case DType::F8E4M3:
  case DType::F8E5M2: return b == DType::F8E4M3 || b == DType::F8E5M2;
  case DType::I8:
  case DType::U8: return (b == DType::I8 || b == DType::U8) && (n <= 24 || n % 16 == 0);
  case DType::F32: return b == DType::F32; // as tf32
  default: return false;
  }
}

bool accumulatesIntegers(DType a) { return a == DType::I8 || a == DType::U8; }

static const char *ptxType(DType t) {
  switch (t) {
  case DType::BF16: return "bf16";
  case DType::F16: return "f16";
  case DType::F8E4M3: return "e4m3";
  case DType::F8E5M2: return "e5m2";
  case DType::I8: return "s8";
  case DType::U8: return "u8";
  default: return "tf32";
  }
}

void HopperAsm::run(const Twine &text, const Twine &constraints, ValueRange operands) {
  inlineAsm(b, loc, LLVM::LLVMVoidType::get(b.getContext()), text, constraints, operands);
}

Value HopperAsm::compute(Type type, const Twine &text, const Twine &constraints, ValueRange operands) {
  return inlineAsm(b, loc, type, text, constraints, operands)->getResult(0);
}

Value evictFirst(OpBuilder &b, Location loc) {
  return pureAsm(b, loc, b.getI64Type(), "createpolicy.fractional.L2::evict_first.b64 $0, 1.0;", "=l", ValueRange{});
}

/// Integers, bf16: the lower seven bits behind the exponent of 128 are 128 + them, and the sign behind it is 128 or 256. f16: the
/// integer + 128 behind the exponent of 1024. Floats: by way of f16, which has all.
Value widenPair(OpBuilder &b, Location loc, DType from, DType to, Value four, int half, Value exponents) {
  auto pure = [&](const Twine &text, const char *constraints, ValueRange operands) {
    return pureAsm(b, loc, b.getI32Type(), text, constraints, operands);
  };
  const char *bytes = half ? "0x4342" : "0x4140";
  if (from == DType::I8 && to == DType::BF16)
    return pure(Twine("{\n.reg .b32 p, x, y;\nprmt.b32 p, $1, ") + (exponents ? "$2, " : "0x43434343, ") + bytes +
                    ";\nand.b32 x, p, 0xff7fff7f;\nand.b32 y, p, 0xff80ff80;\nsub.rn.bf16x2 $0, x, y;\n}",
                exponents ? "=r,r,r" : "=r,r", exponents ? ValueRange{four, exponents} : ValueRange{four});
  if (from == DType::I8) {
    Value offset = arith::ConstantIntOp::create(b, loc, b.getI32Type(), 0x64806480);
    return pure(Twine("{\n.reg .b32 p, x;\nxor.b32 x, $1, 0x80808080;\nprmt.b32 p, x, 0x64646464, ") + bytes +
                    ";\nsub.rn.f16x2 $0, p, $2;\n}",
                "=r,r,r", {four, offset});
  }
  const char *type = from == DType::F8E4M3 ? "e4m3x2" : "e5m2x2", *which = half ? "{o, s}" : "{s, o}";
  if (to == DType::F16)
    return pure(Twine("{\n.reg .b16 s, o;\nmov.b32 ") + which + ", $1;\ncvt.rn.f16x2." + type + " $0, s;\n}", "=r,r",
                four);
  return pure(Twine("{\n.reg .b16 s, o, l, h;\n.reg .b32 p;\n.reg .f32 x, y;\nmov.b32 ") + which +
                  ", $1;\ncvt.rn.f16x2." + type +
                  " p, s;\nmov.b32 {l, h}, p;\ncvt.f32.f16 x, l;\ncvt.f32.f16 y, h;\ncvt.rn.bf16x2.f32 $0, y, x;\n}",
              "=r,r", four);
}

/// No lane is below lane 0 and above lane 31 at once; but the assembler does not know.
Value exponentsOf128(OpBuilder &b, Location loc) {
  return pureAsm(b, loc, b.getI32Type(),
                 "{\n.reg .b32 below;\nmov.u32 below, %lanemask_lt;\n"
                 "shr.u32 below, below, 31;\nadd.u32 $0, below, 0x43434343;\n}",
                 "=r", ValueRange{});
}

void HopperAsm::initBarrier(Value barrier, int count) {
  run("mbarrier.init.shared::cta.b64 [$0], " + Twine(count) + ";", "r", barrier);
}

void HopperAsm::fenceBarrierInit() { run("fence.mbarrier_init.release.cluster;", "", {}); }

void HopperAsm::expectBytes(Value barrier, int64_t bytes) {
  run("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], " + Twine(bytes) + ";", "r", barrier);
}

void HopperAsm::arrive(Value barrier) { run("mbarrier.arrive.shared::cta.b64 _, [$0];", "r", barrier); }

void HopperAsm::arriveAt(Value barrier, Value rank) {
  run("{\n.reg .b32 there;\nmapa.shared::cluster.u32 there, $0, $1;\nmbarrier.arrive.shared::cluster.b64 _, "
      "[there];\n}",
      "r,r", {barrier, rank});
}

void HopperAsm::wait(Value barrier, Value parity) {
  run("{\n.reg .pred ended;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 ended, [$0], $1;\n@ended bra ENDED;\n"
      "bra AGAIN;\nENDED:\n}",
      "r,r", {barrier, parity});
}

void HopperAsm::prefetchMap(Value map) { run("prefetch.tensormap [$0];", "l", map); }

/// "{$first, $first+1, ...}" and its constraints.
static std::string coordinateText(size_t first, size_t count) {
  std::string out = "{";
  for (size_t i = 0; i < count; ++i)
    out += (i ? ", $" : "$") + std::to_string(first + i);
  return out + "}";
}

static std::string repeated(const char *text, size_t count) {
  std::string out;
  for (size_t i = 0; i < count; ++i)
    out += text;
  return out;
}

void HopperAsm::load(Value to, Value map, ValueRange coordinates, Value barrier, Value policy) {
  SmallVector<Value> operands{to, map, barrier};
  operands.append(coordinates.begin(), coordinates.end());
  std::string hint = policy ? ".L2::cache_hint" : "", last;
  if (policy) {
    last = ", $" + std::to_string(operands.size());
    operands.push_back(policy);
  }
  run("cp.async.bulk.tensor." + Twine(coordinates.size()) +
          "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes" + hint + " [$0], [$1, " +
          coordinateText(3, coordinates.size()) + "], [$2]" + last + ";",
      "r,l,r" + repeated(",r", coordinates.size()) + (policy ? ",l" : ""), operands);
}

void HopperAsm::loadMulticast(Value to, Value map, ValueRange coordinates, Value barrier, int mask) {
  SmallVector<Value> operands{to, map, barrier};
  operands.append(coordinates.begin(), coordinates.end());
  run("{\n.reg .b16 mask;\nmov.b16 mask, " + Twine(mask) + ";\ncp.async.bulk.tensor." + Twine(coordinates.size()) +
          "d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster [$0], [$1, " +
          coordinateText(3, coordinates.size()) + "], [$2], mask;\n}",
      "r,l,r" + repeated(",r", coordinates.size()), operands);
}

void HopperAsm::store(Value map, ValueRange coordinates, Value from) {
  SmallVector<Value> operands{map, from};
  operands.append(coordinates.begin(), coordinates.end());
  run("cp.async.bulk.tensor." + Twine(coordinates.size()) + "d.global.shared::cta.tile.bulk_group [$0, " +
          coordinateText(2, coordinates.size()) + "], [$1];",
      "l,r" + repeated(",r", coordinates.size()), operands);
}

void HopperAsm::commitStores() { run("cp.async.bulk.commit_group;", "", {}); }
void HopperAsm::waitStoresRead(int pending) { run("cp.async.bulk.wait_group.read " + Twine(pending) + ";", "", {}); }
void HopperAsm::fenceProxy() { run("fence.proxy.async.shared::cta;", "", {}); }

void HopperAsm::expectBytes(Value barrier, Value bytes) {
  run("mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", "r,r,~{memory}", {barrier, bytes});
}

void HopperAsm::loadRange(Value to, Value from, Value bytes, Value barrier) {
  run("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];", "r,l,r,r,~{memory}",
      {to, from, bytes, barrier});
}

void HopperAsm::storeRange(Value to, Value from, Value bytes) {
  run("cp.async.bulk.global.shared::cta.bulk_group [$0], [$1], $2;", "l,r,r,~{memory}", {to, from, bytes});
}

void HopperAsm::waitRange(Value barrier) {
  run("{\n.reg .pred ended;\nAGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 ended, [$0], 0;\n@ended bra ENDED;\n"
      "bra AGAIN;\nENDED:\n}",
      "r,~{memory}", barrier);
}

void HopperAsm::copyAsync(Value to, Value from, Value bytes) {
  run("cp.async.ca.shared.global [$0], [$1], 16, $2;", "r,l,r", {to, from, bytes});
}
void HopperAsm::waitAsync() { run("cp.async.wait_all;", "", {}); }

void HopperAsm::setMaxRegisters(int count, bool raise) {
  run(Twine("setmaxnreg.") + (raise ? "inc" : "dec") + ".sync.aligned.u32 " + Twine(count) + ";", "", {});
}

void HopperAsm::clusterArrive() { run("barrier.cluster.arrive.release.aligned;", "", {}); }
void HopperAsm::clusterWait() { run("barrier.cluster.wait.acquire.aligned;", "", {}); }
Value HopperAsm::clusterRank() { return compute(b.getI32Type(), "mov.u32 $0, %cluster_ctarank;", "=r", {}); }
void HopperAsm::syncBlock() { run("bar.sync 0;", "", {}); }
void HopperAsm::syncWarpgroup(Value index) {
  run("{\n.reg .b32 barrier;\nadd.s32 barrier, $0, 1;\nbar.sync barrier, 128;\n}", "r", index);
}
void HopperAsm::waitTurn(Value index) {
  run("{\n.reg .b32 barrier;\nadd.s32 barrier, $0, 4;\nbar.sync barrier, 256;\n}", "r", index);
}
void HopperAsm::passTurn(Value index) {
  run("{\n.reg .b32 barrier;\nadd.s32 barrier, $0, 4;\nbar.arrive barrier, 256;\n}", "r", index);
}
void HopperAsm::syncWarp() { run("bar.warp.sync 0xffffffff;", "", {}); }

Value HopperAsm::firstLane(Value v) {
  return compute(b.getI32Type(), "shfl.sync.idx.b32 $0, $1, 0, 31, 0xffffffff;", "=r,r", v);
}

Value HopperAsm::fromLane(Value v, Value lane) {
  return compute(b.getF32Type(), "shfl.sync.idx.b32 $0, $1, $2, 31, 0xffffffff;", "=f,f,r", {v, lane});
}

void HopperAsm::storeMatrices(Value address, ValueRange values, bool transposed) {
  SmallVector<Value> operands{address};
  operands.append(values.begin(), values.end());
  run(Twine("stmatrix.sync.aligned.m8n8.x4") + (transposed ? ".trans" : "") + ".shared.b16 [$0], {$1, $2, $3, $4};",
      "r,r,r,r,r", operands);
}

SmallVector<Value> HopperAsm::loadMatrices(Value address, bool transposed) {
  Type i32 = b.getI32Type();
  Value all = compute(LLVM::LLVMStructType::getLiteral(b.getContext(), {i32, i32, i32, i32}),
                      Twine("ldmatrix.sync.aligned.m8n8.x4") + (transposed ? ".trans" : "") +
                          ".shared.b16 {$0, $1, $2, $3}, [$4];",
                      "=r,=r,=r,=r,r", address);
  SmallVector<Value> out;
  for (int64_t r = 0; r < 4; ++r)
    out.push_back(LLVM::ExtractValueOp::create(b, loc, all, r));
  return out;
}

SmallVector<Value> HopperAsm::tied(const WgmmaShape &shape, ValueRange accumulators, const Twine &text,
                                   const Twine &constraints, ValueRange operands) {
  size_t count = accumulators.size();
  bool integers = accumulatesIntegers(shape.a);
  std::string all;
  for (size_t i = 0; i < count; ++i)
    all += integers ? "=r," : "=f,";
  for (size_t i = 0; i < count; ++i)
    all += (i ? "," : "") + std::to_string(i);
  std::string rest = constraints.str();
  if (!rest.empty())
    all += "," + rest;
  SmallVector<Value> inputs(accumulators);
  inputs.append(operands.begin(), operands.end());
  SmallVector<Type> types(count, accumulators[0].getType());
  auto structType = LLVM::LLVMStructType::getLiteral(b.getContext(), types);
  Value result = inlineAsm(b, loc, structType, text, all, inputs)->getResult(0);
  SmallVector<Value> out;
  for (size_t i = 0; i < count; ++i)
    out.push_back(LLVM::ExtractValueOp::create(b, loc, result, static_cast<int64_t>(i)));
  return out;
}

SmallVector<Value> HopperAsm::multiply(const WgmmaShape &shape, ValueRange accumulators, Value a, ValueRange bs,
                                       Value accumulate) {
  bool integers = accumulatesIntegers(shape.a), halves = dtypeSize(shape.a) == 2;
  int perBlock = shape.n / 2;
  size_t first = 2 * accumulators.size(); // of the operands behind the tied ones
  std::string text = "{\n.reg .pred some, all;\n.reg .b64 a, b;\nsetp.ne.b32 some, $" +
                     std::to_string(first + 1 + bs.size()) +
                     ", 0;\nsetp.eq.b32 all, 0, 0;\nwgmma.fence.sync.aligned;\n";
  std::string name = "wgmma.mma_async.sync.aligned.m64n" + std::to_string(shape.n) + "k" +
                     std::to_string(32 / dtypeSize(shape.a)) + (integers ? ".s32." : ".f32.") + ptxType(shape.a) + "." +
                     ptxType(shape.b) + " {";
  std::string tail = integers ? ";\n" : ", 1, 1";
  if (halves)
    tail += std::string(", ") + (shape.transposeA ? "1" : "0") + ", " + (shape.transposeB ? "1" : "0");
  if (!integers)
    tail += ";\n";
  for (int k = 0; k < shape.steps; ++k)
    for (int block = 0; block < shape.blocks; ++block) {
      text += "add.s64 a, $" + std::to_string(first) + ", " + std::to_string(k * shape.stepA + block * shape.blockA) +
              ";\n";
      for (int p = 0; p < shape.products; ++p) {
        text += "add.s64 b, $" + std::to_string(first + 1 + static_cast<size_t>(p)) + ", " +
                std::to_string(k * shape.stepB) + ";\n" + name;
        int base = (p * shape.blocks + block) * perBlock;
        for (int i = 0; i < perBlock; ++i)
          text += (i ? ", $" : "$") + std::to_string(base + i);
        text += std::string("}, a, b, ") + (k == 0 ? "some" : "all") + tail;
      }
    }
  text += "wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 1;\n}";
  SmallVector<Value> operands{a};
  operands.append(bs.begin(), bs.end());
  operands.push_back(accumulate);
  return tied(shape, accumulators, text, repeated("l,", 1 + bs.size()) + "r", operands);
}

SmallVector<Value> HopperAsm::startStep(const WgmmaShape &shape, int step, ValueRange accumulators, ValueRange a,
                                        ValueRange bs, Value accumulate, bool isGroup) {
  const size_t perBlock = static_cast<size_t>(shape.n) / 2, blocks = static_cast<size_t>(shape.blocks);
  const size_t firstA = 2 * accumulators.size(), firstB = firstA + a.size();
  const size_t ownA =
      a.size() > 4 * blocks ? 4 * blocks : 0; // each product has a left operand of its own, or all have one
  std::string text = "{\n.reg .pred some;\n.reg .b64 b;\nsetp.ne.b32 some, $" + std::to_string(firstB + bs.size()) +
                     ", 0;\nwgmma.fence.sync.aligned;\n";
  const std::string name = "wgmma.mma_async.sync.aligned.m64n" + std::to_string(shape.n) + "k16.f32." +
                           ptxType(shape.a) + "." + ptxType(shape.b) + " ";
  for (size_t p = 0; p < static_cast<size_t>(shape.products); ++p) {
    if (p < bs.size())
      text += "add.s64 b, $" + std::to_string(firstB + p) + ", " + std::to_string(step * shape.stepB) + ";\n";
    for (size_t block = 0; block < blocks; ++block)
      text += name + coordinateText((p * blocks + block) * perBlock, perBlock) + ", " +
              coordinateText(firstA + p * ownA + block * 4, 4) + ", b, some, 1, 1, " + (shape.transposeB ? "1" : "0") +
              ";\n";
  }
  text += isGroup || step == shape.steps - 1 ? "wgmma.commit_group.sync.aligned;\n}" : "}";
  SmallVector<Value> operands(a);
  operands.append(bs.begin(), bs.end());
  operands.push_back(accumulate);
  return tied(shape, accumulators, text, repeated("r,", a.size()) + repeated("l,", bs.size()) + "r", operands);
}

void HopperAsm::holdValues(Value address, ValueRange values) {
  std::string text = "{\n.reg .pred never;\n.reg .b32 all;\nmov.b32 all, $1;\n";
  for (size_t v = 1; v < values.size(); v += 2)
    text += v + 1 < values.size()
                ? "lop3.b32 all, all, $" + std::to_string(v + 1) + ", $" + std::to_string(v + 2) + ", 0xfe;\n"
                : "or.b32 all, all, $" + std::to_string(v + 1) + ";\n";
  text += "setp.eq.b32 never, $0, 0xffffffff;\n@never st.shared.b32 [$0], all;\n}";
  SmallVector<Value> operands{address};
  operands.append(values.begin(), values.end());
  run(text, "r" + repeated(",r", values.size()), operands);
}

void HopperAsm::holdQuads(Value address, ValueRange values) {
  std::string text = "{\n.reg .pred never;\nsetp.eq.b32 never, $0, 0xffffffff;\n";
  for (size_t v = 0; v < values.size(); v += 4)
    text += "@never st.shared.v4.b32 [$0], " + coordinateText(v + 1, 4) + ";\n";
  text += "}";
  SmallVector<Value> operands{address};
  operands.append(values.begin(), values.end());
  run(text, "r" + repeated(",r", values.size()), operands);
}

void HopperAsm::waitAllBut(int groups) { run("wgmma.wait_group.sync.aligned " + Twine(groups) + ";", "", {}); }

SmallVector<Value> HopperAsm::finish(const WgmmaShape &shape, ValueRange accumulators) {
  return tied(shape, accumulators, "wgmma.wait_group.sync.aligned 0;", "", {});
}

} // namespace rl::emit
