// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/emit/StreamParts.h"
#include "compiler/emit/InlineAsm.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"

using namespace mlir;

namespace rl::emit {

using mlir::Value; // not the graph's

StreamParts::StreamParts(GemmParts &p, const StreamForm &form, const cost::StreamTile &tile)
    : p(p), b(p.b), loc(p.loc), form(form), shape(form.shape), tile(tile), shared(streamShared(shape, tile)), i(b, loc),
      hopper(b, loc) {
  Type i32 = b.getI32Type();
  dynamic = dynamicShared(p);
  thread = NVVM::ThreadIdXOp::create(b, loc, i32);
  warp = hopper.firstLane(i.shiftRight(thread, 5));
  lane = i.andWith(thread, 31);
  firstColumn = i.mul(Value(NVVM::BlockIdXOp::create(b, loc, i32)), tile.tileN);
  if (p.kernel.schedule.once)
    policy = evictFirst(b, loc);
}

bool StreamParts::areAhead(llvm::function_ref<ValueId(const StreamOperand &)> valueOf) const {
  return llvm::all_of(form.right, [&](const StreamOperand &o) {
    const std::vector<ValueId> &inputs = p.kernel.body.inputs;
    const ValueId v = valueOf(o);
    return v == kNone || p.kernel.early.mayReadAhead(static_cast<size_t>(llvm::find(inputs, v) - inputs.begin()));
  });
}

bool StreamParts::readsAhead() const {
  return areAhead([](const StreamOperand &o) { return o.rows.value; });
}

bool StreamParts::readsScalesAhead() const {
  return areAhead([](const StreamOperand &o) { return o.scale.value; });
}

Value StreamParts::pointerOf(ValueId v) const {
  const std::vector<ValueId> &inputs = p.kernel.body.inputs;
  return p.inputs[static_cast<size_t>(llvm::find(inputs, v) - inputs.begin())];
}

Value StreamParts::pure(const Twine &text, const char *constraints, ValueRange operands) {
  return pureAsm(b, loc, b.getI32Type(), text, constraints, operands);
}

std::pair<Value, Value> StreamParts::widen(Value four) {
  Value low = widenPair(b, loc, shape.right, shape.left, four, 0);
  return {low, widenPair(b, loc, shape.right, shape.left, four, 1)};
}

std::pair<Value, Value> StreamParts::widenAlternate(Value four) {
  auto pair = [&](Value v) {
    if (shape.left == DType::F16)
      return pure("{\n.reg .b32 x;\nlop3.b32 x, $1, 0x00ff00ff, 0x64806480, 0x6a;\nsub.rn.f16x2 $0, x, $2;\n}",
                  "=r,r,r", {v, i.of(0x64806480)});
    return pure("{\n.reg .b32 x, y;\nlop3.b32 x, $1, 0x007f007f, 0x43004300, 0xea;\n"
                "lop3.b32 y, $1, 0x00800080, 0x43004300, 0xea;\nsub.rn.bf16x2 $0, x, y;\n}",
                "=r,r", v);
  };
  Value low = pair(four);
  return {low, pair(i.shiftRight(four, 8))};
}

Value StreamParts::loadScale(const StreamAccess &scale, Value column) {
  DType t = p.kernel.body.type(scale.value).dtype;
  Type element = t == DType::F32 ? Type(b.getF32Type()) : t == DType::BF16 ? Type(b.getBF16Type()) : b.getF16Type();
  auto constant = [&](int64_t v) { return arith::ConstantIntOp::create(b, loc, b.getI64Type(), v).getResult(); };
  Value at = arith::ExtUIOp::create(b, loc, b.getI64Type(), i.min(column, i.of(shape.n - 1)));
  at = arith::AddIOp::create(b, loc, arith::MulIOp::create(b, loc, at, constant(scale.stride)), constant(scale.offset));
  Value pointer = pointerOf(scale.value);
  Value address = LLVM::GEPOp::create(b, loc, pointer.getType(), element, pointer, ValueRange{at});
  // Of memory that might change, so that the load stays where it is, ahead of the products.
  Value v = LLVM::LoadOp::create(b, loc, element, address, static_cast<unsigned>(dtypeSize(t)));
  return t == DType::F32 ? v : arith::ExtFOp::create(b, loc, b.getF32Type(), v).getResult();
}

SmallVector<SmallVector<Value>> StreamParts::loadScales(Value row) {
  SmallVector<SmallVector<Value>> out(static_cast<size_t>(shape.products));
  for (auto [scales, operand] : llvm::zip(out, form.right))
    for (int64_t half = 0; operand.scale.value != kNone && half < 2 * tile.blocksOfWarp(); ++half)
      scales.push_back(loadScale(operand.scale, i.add(i.add(firstColumn, row), half * 8)));
  return out;
}

void StreamParts::storeSums(ValueRange sums, ArrayRef<SmallVector<Value>> scales, Value part, Value row) {
  int64_t groups = shape.rows() / 8, blocks = tile.blocksOfWarp();
  Value m0 = i.mul(i.rem(lane, 4), 2);
  for (int product = 0; product < shape.products; ++product)
    for (int64_t j = 0; j < groups; ++j)
      for (int odd = 0; odd < 2; ++odd) {
        Value m = i.add(m0, 8 * j + odd);
        Value there = 8 * j + 8 > shape.m ? i.less(m, i.of(shape.m)) : Value();
        p.when(there, [&] {
          Value at =
              i.add(i.mul(i.add(i.mul(i.add(i.mul(part, shape.products), product), shape.m), m), shared.stride), row);
          Value to = LLVM::GEPOp::create(b, loc, dynamic.getType(), b.getF32Type(), dynamic, ValueRange{at});
          for (int64_t block = 0; block < blocks; ++block)
            for (int half = 0; half < 2; ++half) {
              Value v = sums[static_cast<size_t>(((product * blocks + block) * groups + j) * 4 + half * 2 + odd)];
              if (const auto &s = scales[static_cast<size_t>(product)]; !s.empty())
                v = arith::MulFOp::create(b, loc, v, s[static_cast<size_t>(block * 2 + half)]);
              Value at = LLVM::GEPOp::create(b, loc, to.getType(), b.getF32Type(), to,
                                             ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(block * 16 + half * 8)});
              LLVM::StoreOp::create(b, loc, v, at, 4);
            }
        });
      }
}

void StreamParts::finish(ValueRange sums, ArrayRef<SmallVector<Value>> scales, Value part, Value row) {
  storeSums(sums, scales, part, row);
  hopper.syncBlock();
  auto index = [&](Value v) { return arith::IndexCastUIOp::create(b, loc, b.getIndexType(), v).getResult(); };
  GemmTile place;
  place.batch = place.m = p.index(0);
  place.n = index(firstColumn);
  finishStaged(p, place, index(thread), dynamic, shared.stride, shape.m, p.index(0), tile.parts());
}

} // namespace rl::emit
