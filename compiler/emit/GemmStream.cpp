// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of few rows on Hopper: the right operand (the weights) streams from memory once, and all else hides under that.
//
// A block has some rows of the weights and all of K. Tensor memory copies bring 128 bytes of each of these rows, and the same part
// of K of the left operand, into a stage of a ring. A warp has each stage of its turn to itself (or shares it with few, which have
// other rows) and asks for the next in its place as soon as it has read it, so that warps wait for copies alone. At the end the
// warps' sums, of different parts of K, are added in order through shared memory.
//
// Products are those of a warp, mma.m16n8k16, with sixteen rows of weights as M and eight rows of the left operand as N: few rows
// waste little. Which element of K is which of an instruction's sixteen is free, as long as both sides agree, so a thread takes 16
// bytes of a row at a time, and integers of 8 bits become floats of 16 in its registers, two at once and exactly. What multiplies
// a whole row of the weights multiplies its sum.
#include "compiler/emit/GemmStream.h"
#include "compiler/emit/GemmParts.h"
#include "compiler/emit/HopperAsm.h"
#include "passes/plan/Stream.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace rl::emit {

using mlir::Value; // not the graph's

namespace {

class StreamEmitter {
public:
  StreamEmitter(GemmParts &p, const StreamForm &form, const cost::StreamTile &tile, ValueRange maps)
      : p(p), b(p.b), loc(p.loc), form(form), shape(form.shape), tile(tile), shared(streamShared(shape, tile)),
        maps(maps), i(b, loc), hopper(b, loc) {}
  void emit();

private:
  using Vector = SmallVector<Value, 4>; ///< 16 bytes as four registers

  int64_t perStage() const { return 128 / static_cast<int64_t>(dtypeSize(shape.right)); } ///< of K
  Value full(Value slot) { return i.add(i.add(base, i.mul(slot, 16)), shared.barriers); }
  Value empty(Value slot) { return i.add(full(slot), 8); }
  std::pair<Value, Value> slotOf(Value stage);
  void copy(Value stage, Value slot, Value policy) {
    copyRight(stage, slot, policy);
    copyLeft(stage, slot);
  }
  void copyRight(Value stage, Value slot, Value policy);
  void copyLeft(Value stage, Value slot);
  bool readsAhead() const;
  void release(Value stage, Value slot, Value parity, Value warpN, Value policy);
  void multiplyAll(Value policy);
  Vector load(Value address);
  Value pure(const Twine &text, const char *constraints, ValueRange operands);
  std::pair<Value, Value> widen(Value four);
  void multiply(MutableArrayRef<Value> sums, ArrayRef<Value> weights, Value low, Value high);
  SmallVector<SmallVector<Value>> loadScales(Value row);
  void storeSums(ValueRange sums, ArrayRef<SmallVector<Value>> scales, Value part, Value row);

  GemmParts &p;
  OpBuilder &b;
  Location loc;
  const StreamForm &form;
  const cost::StreamShape &shape;
  const cost::StreamTile &tile;
  cost::StreamShared shared;
  ValueRange maps;
  Int32 i;
  HopperAsm hopper;
  Value dynamic, base, thread, warp, lane, firstColumn;
  int64_t stages = 0; ///< of all of K
};

/// A stage's place in the ring, and the parity of the round that has it.
std::pair<Value, Value> StreamEmitter::slotOf(Value stage) {
  Value round = i.div(stage, tile.stages);
  return {i.sub(stage, i.mul(round, tile.stages)), i.andWith(round, 1)};
}

/// Asks for a stage, which has this slot: the weights, then the left operand. By one thread.
void StreamEmitter::copyRight(Value stage, Value slot, Value policy) {
  hopper.expectBytes(full(slot), int64_t(tile.tileN) * 128 * shape.products + shared.left);
  Value to = i.add(base, i.mul(slot, shared.stage)), k = i.mul(stage, perStage());
  for (int product = 0; product < shape.products; ++product)
    hopper.load(i.add(to, product * shared.right), maps[static_cast<size_t>(product) + 1], {k, firstColumn}, full(slot),
                policy);
}

void StreamEmitter::copyLeft(Value stage, Value slot) {
  constexpr int64_t box = 64;
  Value to = i.add(base, i.mul(slot, shared.stage)), k = i.mul(stage, perStage());
  for (int64_t part = 0; part < perStage() / box; ++part)
    hopper.load(i.add(to, shape.products * shared.right + part * shape.rows() * 128), maps[0],
                {i.add(k, part * box), i.of(0)}, full(slot));
}

/// Whether no kernel of the plan writes the weights.
bool StreamEmitter::readsAhead() const {
  return llvm::all_of(form.right, [&](const StreamOperand &o) {
    const std::vector<ValueId> &inputs = p.kernel.body.inputs;
    return p.kernel.early.mayReadAhead(static_cast<size_t>(llvm::find(inputs, o.rows.value) - inputs.begin()));
  });
}

/// The stage has been read by this warp. Once all of it that share it have read it, the next one takes its place.
void StreamEmitter::release(Value stage, Value slot, Value parity, Value warpN, Value policy) {
  hopper.syncWarp();
  auto one = scf::IfOp::create(b, loc, i.equal(lane, i.of(0)));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(one.thenBlock()->getTerminator());
  if (tile.warpsN > 1)
    hopper.arrive(empty(slot));
  Value next = i.add(stage, tile.stages), isThere = i.less(next, i.of(stages));
  if (tile.warpsN > 1)
    isThere = arith::AndIOp::create(b, loc, isThere, i.equal(warpN, i.of(0)));
  auto more = scf::IfOp::create(b, loc, isThere);
  b.setInsertionPoint(more.thenBlock()->getTerminator());
  if (tile.warpsN > 1)
    hopper.wait(empty(slot), parity);
  copy(next, slot, policy);
}

StreamEmitter::Vector StreamEmitter::load(Value address) {
  Type type = VectorType::get({4}, b.getI32Type());
  Value at = LLVM::IntToPtrOp::create(b, loc, LLVM::LLVMPointerType::get(b.getContext(), 3), address);
  Value all = LLVM::LoadOp::create(b, loc, type, at, 16);
  Vector out;
  for (int64_t r = 0; r < 4; ++r)
    out.push_back(vector::ExtractOp::create(b, loc, all, ArrayRef<int64_t>{r}));
  return out;
}

Value StreamEmitter::pure(const Twine &text, const char *constraints, ValueRange operands) {
  return LLVM::InlineAsmOp::create(b, loc, b.getI32Type(), operands, b.getStringAttr(text),
                                   b.getStringAttr(constraints), UnitAttr(), UnitAttr(),
                                   LLVM::TailCallKindAttr::get(b.getContext(), LLVM::TailCallKind::None),
                                   LLVM::AsmDialectAttr(), ArrayAttr())
      .getResult(0);
}

/// Four integers of 8 bits as two pairs of floats, exactly. bf16: the lower seven bits behind the exponent of 128 are 128 + them,
/// and the sign behind it is 128 or 256. f16: the integer + 128 behind the exponent of 1024.
std::pair<Value, Value> StreamEmitter::widen(Value four) {
  Value out[2];
  for (int half = 0; half < 2; ++half) {
    const char *bytes = half ? "0x4342" : "0x4140";
    if (shape.left == DType::BF16)
      out[half] = pure(Twine("{\n.reg .b32 p, x, y;\nprmt.b32 p, $1, 0x43434343, ") + bytes +
                           ";\nand.b32 x, p, 0xff7fff7f;\nand.b32 y, p, 0xff80ff80;\nsub.rn.bf16x2 $0, x, y;\n}",
                       "=r,r", four);
    else
      out[half] = pure(Twine("{\n.reg .b32 p, x;\nxor.b32 x, $1, 0x80808080;\nprmt.b32 p, x, 0x64646464, ") + bytes +
                           ";\nsub.rn.f16x2 $0, p, $2;\n}",
                       "=r,r,r", {four, i.of(0x64806480)});
  }
  return {out[0], out[1]};
}

void StreamEmitter::multiply(MutableArrayRef<Value> sums, ArrayRef<Value> weights, Value low, Value high) {
  multiplyByWarp(b, loc, shape.left, sums, weights, {low, high});
}

/// What multiplies the sums of the thread's rows of weights, from `row` of the block's on: two of each sixteen. By product; empty
/// where there is nothing. Asked for ahead of the stream.
SmallVector<SmallVector<Value>> StreamEmitter::loadScales(Value row) {
  SmallVector<SmallVector<Value>> out(static_cast<size_t>(shape.products));
  for (auto [scales, operand] : llvm::zip(out, form.right)) {
    const StreamAccess &scale = operand.scale;
    if (scale.value == kNone)
      continue;
    DType t = p.kernel.body.type(scale.value).dtype;
    Type element = t == DType::F32 ? Type(b.getF32Type()) : t == DType::BF16 ? Type(b.getBF16Type()) : b.getF16Type();
    Value pointer =
        p.inputs[static_cast<size_t>(llvm::find(p.kernel.body.inputs, scale.value) - p.kernel.body.inputs.begin())];
    for (int half = 0; half < 2 * tile.blocksOfWarp(); ++half) {
      Value n = i.min(i.add(i.add(firstColumn, row), half * 8), i.of(shape.n - 1));
      Value at = arith::ExtUIOp::create(b, loc, b.getI64Type(), n);
      auto constant = [&](int64_t v) { return arith::ConstantIntOp::create(b, loc, b.getI64Type(), v).getResult(); };
      at = arith::AddIOp::create(b, loc, arith::MulIOp::create(b, loc, at, constant(scale.stride)),
                                 constant(scale.offset));
      Value address = LLVM::GEPOp::create(b, loc, pointer.getType(), element, pointer, ValueRange{at});
      Value v = LLVM::LoadOp::create(b, loc, element, address, static_cast<unsigned>(dtypeSize(t)), false, false,
                                     /*isInvariant=*/true);
      scales.push_back(t == DType::F32 ? v : arith::ExtFOp::create(b, loc, b.getF32Type(), v).getResult());
    }
  }
  return out;
}

/// To [part][product][row of the left operand][row of the weights].
void StreamEmitter::storeSums(ValueRange sums, ArrayRef<SmallVector<Value>> scales, Value part, Value row) {
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

/// All stages, and the sums to shared memory.
void StreamEmitter::multiplyAll(Value policy) {
  int64_t groups = shape.rows() / 8, blocks = tile.blocksOfWarp();
  Value warpN = i.rem(warp, tile.warpsN), part = i.div(warp, tile.warpsN);
  Value g = i.div(lane, 4), t = i.rem(lane, 4);
  Value row = i.add(i.mul(warpN, blocks * 16), g); // the thread's first, of the block's
  SmallVector<SmallVector<Value>> scales = loadScales(row);

  // Chunk c of 16 bytes of row r is at c xor r % 8. A thread has two chunks of a row, `first` and that xor 1. Eight threads, of four
  // chunks in two rows, read at once: these lie in different banks, on both sides, where the four first chunks are of different
  // pairs of chunks and different modulo 4: 0, 3, 5, 6.
  Value first = i.add(i.mul(t, 2), i.rem(i.add(i.shiftRight(t, 1), t), 2));
  Value swizzled = i.add(i.mul(g, 128), i.mul(i.xorWith(first, g), 16));
  Value rightAt = i.add(swizzled, i.mul(warpN, blocks * 2048)), leftAt = swizzled;
  if (shape.widens()) // 16 elements are two chunks of 16 bits; boxes of eight chunks
    leftAt = i.add(i.add(i.mul(g, 128), i.mul(i.xorWith(i.mul(i.rem(first, 4), 2), g), 16)),
                   i.mul(i.div(first, 4), shape.rows() * 128));
  rightAt = i.add(rightAt, base);
  leftAt = i.add(leftAt, i.add(base, shape.products * shared.right));

  SmallVector<Value> sums(static_cast<size_t>(shape.products * blocks * groups * 4), p.zero(b.getF32Type()));
  auto loop = scf::ForOp::create(b, loc, part, i.of(stages), i.of(tile.parts()), sums);
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    SmallVector<Value> next(loop.getRegionIterArgs());
    auto [slot, parity] = slotOf(loop.getInductionVar());
    hopper.wait(full(slot), parity);
    Value offset = i.mul(slot, shared.stage), right = i.add(rightAt, offset), left = i.add(leftAt, offset);
    for (int64_t chunk = 0; chunk < 2; ++chunk) {
      SmallVector<Vector> lefts; // [group][chunk of 16 bits]
      int64_t parts = shape.widens() ? 2 : 1;
      for (int64_t j = 0; j < groups; ++j)
        for (int64_t half = 0; half < parts; ++half)
          lefts.push_back(load(i.add(i.xorWith(left, i.of(chunk * 16 * parts + half * 16)), j * 1024)));
      for (int product = 0; product < shape.products; ++product)
        for (int64_t block = 0; block < blocks; ++block) {
          Vector rows[2];
          for (int64_t half = 0; half < 2; ++half)
            rows[half] =
                load(i.add(i.xorWith(right, i.of(chunk * 16)), product * shared.right + block * 2048 + half * 1024));
          for (int64_t step = 0; step < 2 * parts; ++step) { // of 16 along K, of which this thread has four
            Value weights[4];
            for (size_t half = 0; half < 2; ++half) {
              if (shape.widens())
                std::tie(weights[half], weights[half + 2]) = widen(rows[half][static_cast<size_t>(step)]);
              else
                std::tie(weights[half], weights[half + 2]) =
                    std::pair(rows[half][static_cast<size_t>(2 * step)], rows[half][static_cast<size_t>(2 * step + 1)]);
            }
            for (int64_t j = 0; j < groups; ++j) {
              const Vector &x = lefts[static_cast<size_t>(j * parts + step / 2)];
              multiply(MutableArrayRef<Value>(next).slice(
                           static_cast<size_t>(((product * blocks + block) * groups + j) * 4), 4),
                       weights, x[static_cast<size_t>(step % 2 * 2)], x[static_cast<size_t>(step % 2 * 2 + 1)]);
            }
          }
        }
    }
    release(loop.getInductionVar(), slot, parity, warpN, policy);
    scf::YieldOp::create(b, loc, next);
  }
  hopper.syncBlock(); // the sums lie where stages were
  storeSums(loop.getResults(), scales, part, row);
}

void StreamEmitter::emit() {
  dynamic = dynamicShared(p);
  Type i32 = b.getI32Type();
  base = arith::TruncIOp::create(b, loc, i32, LLVM::PtrToIntOp::create(b, loc, b.getI64Type(), dynamic));
  thread = NVVM::ThreadIdXOp::create(b, loc, i32);
  warp = hopper.firstLane(i.shiftRight(thread, 5));
  lane = i.andWith(thread, 31);
  firstColumn = i.mul(Value(NVVM::BlockIdXOp::create(b, loc, i32)), tile.tileN);
  stages = (shape.k + perStage() - 1) / perStage();

  Value policy = p.kernel.schedule.once ? evictFirst(b, loc) : Value();
  auto first = scf::IfOp::create(b, loc, i.equal(thread, i.of(0)));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(first.thenBlock()->getTerminator());
    for (int s = 0; s < tile.stages; ++s) {
      hopper.initBarrier(full(i.of(s)), 1);
      hopper.initBarrier(empty(i.of(s)), tile.warpsN);
    }
    hopper.fenceBarrierInit();
    auto ahead = scf::ForOp::create(b, loc, i.of(0), i.of(std::min<int64_t>(tile.stages, stages)), i.of(1));
    b.setInsertionPointToStart(ahead.getBody());
    copyRight(ahead.getInductionVar(), ahead.getInductionVar(), policy);
    if (!readsAhead())
      copyLeft(ahead.getInductionVar(), ahead.getInductionVar());
  }
  if (readsAhead()) {
    waitForKernelBefore(b, loc);
    auto again = scf::IfOp::create(b, loc, i.equal(thread, i.of(0)));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(again.thenBlock()->getTerminator());
    auto ahead = scf::ForOp::create(b, loc, i.of(0), i.of(std::min<int64_t>(tile.stages, stages)), i.of(1));
    b.setInsertionPointToStart(ahead.getBody());
    copyLeft(ahead.getInductionVar(), ahead.getInductionVar());
  }
  hopper.syncBlock();
  multiplyAll(policy);
  hopper.syncBlock();
  auto index = [&](Value v) { return arith::IndexCastUIOp::create(b, loc, b.getIndexType(), v).getResult(); };
  GemmTile place;
  place.batch = place.m = p.index(0);
  place.n = index(firstColumn);
  finishStaged(p, place, index(thread), dynamic, shared.stride, shape.m, p.index(0), tile.parts());
}

/// `columns` elements of a row at a time, 128 bytes or less.
PackageTensorMap mapOf(const GemmKernel &kernel, const StreamAccess &a, int64_t rows, int64_t k, int64_t boxRows) {
  PackageTensorMap m;
  m.arg = static_cast<unsigned>(llvm::find(kernel.body.inputs, a.value) - kernel.body.inputs.begin());
  m.dtype = kernel.body.type(a.value).dtype;
  auto size = static_cast<int64_t>(dtypeSize(m.dtype));
  m.offset = a.offset * size;
  m.extents = {k, rows};
  // One row alone has a stride that nothing is read at; the driver wants one that it can take.
  m.strides = {rows > 1 ? a.stride * size : (k * size + 15) / 16 * 16};
  m.box = {static_cast<uint32_t>(128 / size), static_cast<uint32_t>(boxRows)};
  m.swizzle = 128;
  return m;
}

} // namespace

Status emitGemmStream(ModuleOp module, const GemmKernel &kernel, const CodeTarget &target,
                      const cost::TargetDesc &machine, PackageLaunch &launch) {
  RL_ASSIGN(GemmTraces traces, traceGemm(kernel, /*gpu=*/true));
  std::vector<const Trace *> operands;
  for (const TracedOperand &right : traces.right) {
    operands.push_back(&traces.left.trace);
    operands.push_back(&right.trace);
  }
  StreamForm form = streamForm(kernel.body, traces.products, operands);
  if (!form.refusal.empty())
    return unsupported({}, "internal: no kernel that streams its operand: " + form.refusal);
  const GemmSchedule &s = kernel.schedule;
  cost::StreamTile tile;
  tile.tileN = static_cast<int>(s.tileN);
  tile.stages = static_cast<int>(s.stages);
  tile.warps = static_cast<int>(s.warpsN * s.warpsK);
  tile.warpsN = static_cast<int>(s.warpsN);
  tile.blocksPerSm = static_cast<int>(s.blocksPerSm);
  cost::StreamShared shared = streamShared(form.shape, tile);
  if (tile.stages % tile.parts() != 0) // a warp would take what another's stage left in its slot for its own
    return unsupported({}, "internal: " + std::to_string(tile.stages) + " stages for " + std::to_string(tile.parts()) +
                               " parts of K");
  if (static_cast<double>(shared.total) > machine.sharedPerBlock)
    return unsupported({}, "internal: " + std::to_string(shared.total) + " bytes of shared memory");

  std::vector<PackageTensorMap> maps{mapOf(kernel, form.left, s.shape.m, s.shape.k, form.shape.rows())};
  for (const StreamOperand &o : form.right) {
    maps.push_back(mapOf(kernel, o.rows, s.shape.n, s.shape.k, tile.tileN));
    maps.back().l2Promotion = 256;
  }

  MLIRContext *ctx = module.getContext();
  OpBuilder b(ctx);
  Location loc = b.getUnknownLoc();
  b.setInsertionPointToEnd(module.getBody());
  Type pointer = LLVM::LLVMPointerType::get(ctx, 1), generic = LLVM::LLVMPointerType::get(ctx);
  size_t inputs = kernel.body.inputs.size(), pointers = inputs + kernel.body.outputs.size();
  SmallVector<Type> types(pointers, pointer);
  types.append(maps.size(), generic);
  auto f =
      LLVM::LLVMFuncOp::create(b, loc, kernel.name, LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(ctx), types));
  f->setAttr(NVVM::NVVMDialect::getKernelFuncAttrName(), b.getUnitAttr());
  f->setAttr(NVVM::NVVMDialect::getReqntidAttrName(), b.getDenseI32ArrayAttr({tile.threads()}));
  f->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(), b.getI32IntegerAttr(tile.blocksPerSm));
  auto mapType = LLVM::LLVMArrayType::get(b.getI8Type(), 128);
  for (size_t m = 0; m < maps.size(); ++m) {
    auto arg = static_cast<unsigned>(pointers + m);
    f.setArgAttr(arg, LLVM::LLVMDialect::getByValAttrName(), TypeAttr::get(mapType));
    f.setArgAttr(arg, LLVM::LLVMDialect::getAlignAttrName(), b.getI64IntegerAttr(64));
    f.setArgAttr(arg, NVVM::NVVMDialect::getGridConstantAttrName(), b.getUnitAttr());
  }
  Block *entry = f.addEntryBlock(b);
  b.setInsertionPointToStart(entry);
  ValueRange arguments = entry->getArguments();
  GemmParts parts(b, loc, kernel, traces, target, /*aligned=*/true, arguments.take_front(inputs),
                  arguments.slice(inputs, kernel.body.outputs.size()));
  StreamEmitter(parts, form, tile, arguments.drop_front(pointers)).emit();
  LLVM::ReturnOp::create(b, loc, ValueRange{});

  launch.kernel = kernel.name;
  launch.blocks = (s.shape.n + tile.tileN - 1) / tile.tileN;
  launch.grid = {static_cast<uint32_t>(launch.blocks), 1, 1};
  launch.block = {static_cast<uint32_t>(tile.threads()), 1, 1};
  launch.sharedBytes = static_cast<uint32_t>(shared.total);
  launch.align = 16;
  launch.tensorMaps = std::move(maps);
  return {};
}

} // namespace rl::emit
