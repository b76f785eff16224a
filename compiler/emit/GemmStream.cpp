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
// Weights with N contiguous come by 64 rows of K and the block's columns, and matrices of eight by eight are turned as they are loaded.
//
// Products are those of a warp, mma.m16n8k16, with sixteen rows of weights as M and eight rows of the left operand as N: few rows
// waste little. Which element of K is which of an instruction's sixteen is free, as long as both sides agree, so a thread takes 16
// bytes of a row at a time, and integers of 8 bits become floats of 16 in its registers, two at once and exactly. What multiplies
// a whole row of the weights multiplies its sum.
#include "compiler/emit/GemmStream.h"
#include "compiler/emit/StreamParts.h"

#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

using namespace mlir;

namespace rl::emit {

using mlir::Value; // not the graph's

namespace {

class StreamEmitter : StreamParts {
public:
  StreamEmitter(GemmParts &p, const StreamForm &form, const cost::StreamTile &tile, ValueRange maps)
      : StreamParts(p, form, tile), maps(maps) {}
  void emit();

private:
  int64_t perStage() const { return 128 / static_cast<int64_t>(dtypeSize(shape.right)); } ///< of K
  Value full(Value slot) { return i.add(i.add(base, i.mul(slot, 16)), shared.barriers); }
  Value empty(Value slot) { return i.add(full(slot), 8); }
  std::pair<Value, Value> slotOf(Value stage);
  void copy(Value stage, Value slot) {
    copyRight(stage, slot);
    copyLeft(stage, slot);
  }
  void copyRight(Value stage, Value slot);
  void copyLeft(Value stage, Value slot);
  void release(Value stage, Value slot, Value parity, Value warpN);
  void multiplyAll();
  void multiplyRows(MutableArrayRef<Value> sums, Value right, Value left);
  void multiplyColumns(MutableArrayRef<Value> sums, Value stage, Value warpN);
  Vector load(Value address);

  ValueRange maps;
  Value base;
  int64_t stages = 0; ///< of all of K
};

/// A stage's place in the ring, and the parity of the round that has it.
std::pair<Value, Value> StreamEmitter::slotOf(Value stage) {
  Value round = i.div(stage, tile.stages);
  return {i.sub(stage, i.mul(round, tile.stages)), i.andWith(round, 1)};
}

/// Asks for a stage, which has this slot: the weights, then the left operand. By one thread.
void StreamEmitter::copyRight(Value stage, Value slot) {
  hopper.expectBytes(full(slot), int64_t(tile.tileN) * 128 * shape.products + shared.left);
  Value to = i.add(base, i.mul(slot, shared.stage)), k = i.mul(stage, perStage());
  for (int product = 0; product < shape.products; ++product)
    hopper.load(i.add(to, product * shared.right), maps[static_cast<size_t>(product) + 1],
                shape.kMajor ? SmallVector<Value>{k, firstColumn} : SmallVector<Value>{firstColumn, k}, full(slot),
                policy);
}

void StreamEmitter::copyLeft(Value stage, Value slot) {
  constexpr int64_t box = 64;
  Value to = i.add(base, i.mul(slot, shared.stage)), k = i.mul(stage, perStage());
  for (int64_t part = 0; part < perStage() / box; ++part)
    hopper.load(i.add(to, shape.products * shared.right + part * shape.rows() * 128), maps[0],
                {i.add(k, part * box), i.of(0)}, full(slot));
}

/// The stage has been read by this warp. Once all of it that share it have read it, the next one takes its place.
void StreamEmitter::release(Value stage, Value slot, Value parity, Value warpN) {
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
  copy(next, slot);
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

/// A stage's products. `right`, `left`: where the thread's first chunk of either lies.
void StreamEmitter::multiplyRows(MutableArrayRef<Value> sums, Value right, Value left) {
  const int64_t groups = shape.rows() / 8, blocks = tile.blocksOfWarp();
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
            multiply(sums.slice(static_cast<size_t>(((product * blocks + block) * groups + j) * 4), 4), weights,
                     x[static_cast<size_t>(step % 2 * 2)], x[static_cast<size_t>(step % 2 * 2 + 1)]);
          }
        }
      }
  }
}

/// The same of weights with N contiguous, all of the stage at `stage`: rows of 64 or 128 bytes, swizzled over as many.
void StreamEmitter::multiplyColumns(MutableArrayRef<Value> sums, Value stage, Value warpN) {
  const int64_t groups = shape.rows() / 8, blocks = tile.blocksOfWarp(), pitch = tile.tileN * 2;
  // A lane has the address of a row of eight elements: one of matrix lane / 8.
  Value row = i.andWith(lane, 7), matrix = i.shiftRight(lane, 3);
  // Of the left operand, eight rows by four times eight along K; of the right one, twice eight along K by twice eight columns.
  Value leftAt = i.add(i.add(stage, shape.products * shared.right), i.mul(row, 128));
  Value k = i.add(row, i.mul(i.shiftRight(matrix, 1), 8)), rightAt = i.add(stage, i.mul(k, pitch));
  Value mask = pitch == 128 ? row : i.shiftRight(row, 1); // of chunks of 16 bytes
  Value first = i.add(i.mul(warpN, 2 * blocks), i.andWith(matrix, 1));
  for (int64_t half = 0; half < 2; ++half) {
    SmallVector<SmallVector<Value>> lefts; // [group]
    for (int64_t j = 0; j < groups; ++j) {
      Value chunk = i.xorWith(i.add(matrix, 4 * half), row);
      lefts.push_back(hopper.loadMatrices(i.add(i.add(leftAt, i.mul(chunk, 16)), j * 1024)));
    }
    for (int product = 0; product < shape.products; ++product)
      for (int64_t block = 0; block < blocks; ++block)
        for (int64_t step = 0; step < 2; ++step) { // of 16 along K
          Value chunk = i.xorWith(i.add(first, 2 * block), mask);
          SmallVector<Value> weights = hopper.loadMatrices(
              i.add(i.add(rightAt, i.mul(chunk, 16)), product * shared.right + (half * 2 + step) * 16 * pitch),
              /*transposed=*/true);
          for (int64_t j = 0; j < groups; ++j) {
            ArrayRef<Value> x(lefts[static_cast<size_t>(j)]);
            multiply(sums.slice(static_cast<size_t>(((product * blocks + block) * groups + j) * 4), 4), weights,
                     x[static_cast<size_t>(2 * step)], x[static_cast<size_t>(2 * step + 1)]);
          }
        }
  }
}

/// All stages, and the sums to shared memory.
void StreamEmitter::multiplyAll() {
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
    if (shape.kMajor)
      multiplyRows(next, right, left);
    else
      multiplyColumns(next, i.add(base, offset), warpN);
    release(loop.getInductionVar(), slot, parity, warpN);
    scf::YieldOp::create(b, loc, next);
  }
  hopper.syncBlock(); // the sums lie where stages were
  finish(loop.getResults(), scales, part, row);
}

void StreamEmitter::emit() {
  base = arith::TruncIOp::create(b, loc, b.getI32Type(), LLVM::PtrToIntOp::create(b, loc, b.getI64Type(), dynamic));
  stages = (shape.k + perStage() - 1) / perStage();
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
    copyRight(ahead.getInductionVar(), ahead.getInductionVar());
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
  multiplyAll();
}

/// Boxes of so many elements of a row, 128 bytes or less.
PackageTensorMap mapOf(const GemmKernel &kernel, const StreamAccess &a, int64_t rows, int64_t columns, int64_t boxRows,
                       int64_t boxColumns) {
  PackageTensorMap m;
  m.arg = static_cast<unsigned>(llvm::find(kernel.body.inputs, a.value) - kernel.body.inputs.begin());
  m.dtype = kernel.body.type(a.value).dtype;
  auto size = static_cast<int64_t>(dtypeSize(m.dtype));
  m.offset = a.offset * size;
  m.extents = {columns, rows};
  // One row alone has a stride that nothing is read at; the driver wants one that it can take.
  m.strides = {rows > 1 ? a.stride * size : (columns * size + 15) / 16 * 16};
  m.box = {static_cast<uint32_t>(boxColumns), static_cast<uint32_t>(boxRows)};
  m.swizzle = static_cast<uint32_t>(boxColumns * size);
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
  tile.direct = s.kernel == "direct";
  cost::StreamShared shared = streamShared(form.shape, tile);
  if (!tile.direct &&
      tile.stages % tile.parts() != 0) // a warp would take what another's stage left in its slot for its own
    return unsupported({}, "internal: " + std::to_string(tile.stages) + " stages for " + std::to_string(tile.parts()) +
                               " parts of K");
  if (static_cast<double>(shared.total) > machine.sharedPerBlock)
    return unsupported({}, "internal: " + std::to_string(shared.total) + " bytes of shared memory");

  std::vector<PackageTensorMap> maps;
  if (!tile.direct) {
    maps.push_back(mapOf(kernel, form.left, s.shape.m, s.shape.k, form.shape.rows(), 64));
    const int64_t step = 128 / static_cast<int64_t>(dtypeSize(form.shape.right)); // of K
    for (const StreamOperand &o : form.right) {
      maps.push_back(form.shape.kMajor ? mapOf(kernel, o.rows, s.shape.n, s.shape.k, tile.tileN, step)
                                       : mapOf(kernel, o.rows, s.shape.k, s.shape.n, step, tile.tileN));
      maps.back().l2Promotion = 256;
    }
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
  if (tile.direct)
    emitDirectly(parts, form, tile, static_cast<int64_t>(machine.smCount));
  else
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
