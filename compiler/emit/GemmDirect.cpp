// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Products of one row: each thread loads its part of the right operand (the weights) straight to its registers, 16 bytes at a
// time, and asks for that before it does anything else. There are no barriers and no stages: what is on its way is what
// registers hold, and blocks, which are small, follow each other wherever one has ended.
//
// A block has a few rows of the weights, and its warps share K: in a round a warp has 512 bytes of each row, which its lanes read
// next to each other, and the same part of the left operand. A product of the warp, mma.m16n8k16, takes two rows of weights: the
// eight groups of four lanes have eight parts of K of the one as rows of A, of the other as eight more, and of the left operand
// as columns of B. Where an element of the result is of one part on both sides, on two diagonals, it is a sum of products that
// belong together; the others are not looked at. So the tensor cores do eight times what is needed, and each weight is read, and
// widened, once and where it lies. At the end the parts are added up, in order.
//
// Blocks that ask for their weights together have them together, and multiply together while memory has nothing to do: those that an SM
// has first start apart, and their successors then do.
#include "compiler/emit/Combine.h"
#include "compiler/emit/InlineAsm.h"
#include "compiler/emit/StreamParts.h"

using namespace mlir;

namespace rl::emit {

using mlir::Value; // not the graph's

namespace {

class DirectEmitter : StreamParts {
public:
  DirectEmitter(GemmParts &p, const StreamForm &form, const cost::StreamTile &tile, int64_t sms)
      : StreamParts(p, form, tile), rounds((rowBytes() + perRound() - 1) / perRound()), sms(sms) {}
  void emit();

private:
  /// What a thread has of a round: 16 bytes of each row of weights, [product][row], and of the left operand as many elements.
  struct Round {
    SmallVector<Vector> weights;
    Vector left;
  };

  int64_t rowBytes() const { return shape.k * static_cast<int64_t>(dtypeSize(shape.right)); }
  int64_t perRound() const { return int64_t(512) * tile.parts(); } ///< bytes of a row
  /// Elements of the left operand are put in the order in which integers are widened with least.
  bool alternates() const { return shape.right == DType::I8; }
  bool isWhole(int64_t round) const { return (round + 1) * perRound() <= rowBytes(); }
  Value wide(Value v) { return arith::ExtUIOp::create(b, loc, b.getI64Type(), v); }
  Value constant(int64_t v) { return arith::ConstantIntOp::create(b, loc, b.getI64Type(), v); }
  Value at(Value pointer, Value bytes) {
    return LLVM::GEPOp::create(b, loc, pointer.getType(), b.getI8Type(), pointer, ValueRange{bytes});
  }
  Value rowOf(const StreamAccess &, Value row);
  void findWeights(Value place);
  void startApart();
  Vector load(const Twine &text, const Twine &constraints, ValueRange operands);
  Value permute(Value low, Value high, int64_t bytes);
  Vector loadWeights(Value address, bool whole);
  /// A round's first byte of a row. `from`: of a loop's round, from which `round` is counted, or none.
  Value offsetOf(Value from, int64_t round);
  void loadWeights(Round &, Value from, int64_t round);
  void loadLeft(Round &, Value from, int64_t round);
  void multiplyRound(const Round &, MutableArrayRef<Value> sums);
  SmallVector<Value> multiplyAll(std::vector<Round> held);
  Value addParts(ArrayRef<Value> sums);
  std::unique_ptr<TraceEmitter> startEpilogue();
  void endEpilogue(std::unique_ptr<TraceEmitter> started);
  Value index(Value v) { return arith::IndexCastUIOp::create(b, loc, b.getIndexType(), v); }

  const int64_t rounds, sms;
  SmallVector<Value> weightRows; ///< the thread's place in the first round, [product][row]
  Value leftRow;
  Value isThere; ///< of the last round, where it is not all threads'
};

Value DirectEmitter::rowOf(const StreamAccess &a, Value row) {
  const auto bytes = static_cast<int64_t>(dtypeSize(p.kernel.body.type(a.value).dtype));
  Value offset = arith::MulIOp::create(b, loc, wide(row), constant(a.stride * bytes));
  return at(pointerOf(a.value), arith::AddIOp::create(b, loc, offset, constant(a.offset * bytes)));
}

/// Beyond N the last row is read again, and its sum goes nowhere.
void DirectEmitter::findWeights(Value place) {
  const auto size = static_cast<int64_t>(dtypeSize(shape.right));
  for (const StreamOperand &o : form.right) {
    Value first = at(rowOf(o.rows, firstColumn), wide(place));
    for (int64_t row = 0; row < tile.tileN; ++row)
      if (shape.n % tile.tileN == 0)
        weightRows.push_back(at(first, constant(row * o.rows.stride * size)));
      else
        weightRows.push_back(at(rowOf(o.rows, i.min(i.add(firstColumn, row), i.of(shape.n - 1))), wide(place)));
  }
}

/// Of the blocks that the machine has room for at once each SM has every `sms`-th. (The launch's own number: kernels that share it
/// are renumbered.)
void DirectEmitter::startApart() {
  const GemmSchedule &s = p.kernel.schedule;
  if (!s.startApart)
    return;
  const std::string text =
      "{\n.reg .pred waits;\n.reg .b32 at, begin, now;\nmov.u32 at, %ctaid.x;\nsetp.lt.u32 waits, at, " +
      std::to_string(s.blocksPerSm * sms) + ";\ndiv.u32 at, at, " + std::to_string(sms) + ";\nmul.lo.u32 at, at, " +
      std::to_string(s.startApart) +
      ";\nselp.b32 at, at, 0, waits;\nmov.u32 begin, %clock;\nAGAIN:\nmov.u32 now, %clock;\n"
      "sub.u32 now, now, begin;\nsetp.lt.u32 waits, now, at;\n@waits bra AGAIN;\n}";
  inlineAsm(b, loc, LLVM::LLVMVoidType::get(b.getContext()), text, "~{memory}", ValueRange{});
}

/// 16 bytes, in the order in which they are asked for.
DirectEmitter::Vector DirectEmitter::load(const Twine &text, const Twine &constraints, ValueRange operands) {
  Type word = b.getI32Type(), four = LLVM::LLVMStructType::getLiteral(b.getContext(), {word, word, word, word});
  Value all = inlineAsm(b, loc, four, text, constraints, operands)->getResult(0);
  Vector out;
  for (int64_t w = 0; w < 4; ++w)
    out.push_back(LLVM::ExtractValueOp::create(b, loc, all, ArrayRef<int64_t>{w}));
  return out;
}

Value DirectEmitter::permute(Value low, Value high, int64_t bytes) {
  return pureAsm(b, loc, b.getI32Type(), "prmt.b32 $0, $1, $2, " + Twine(bytes) + ";", "=r,r,r", ValueRange{low, high});
}

/// As memory that might change: the assembler moves loads of other memory down to where they are used, behind the wait for the
/// kernel before and behind products. Zeros where there is nothing.
DirectEmitter::Vector DirectEmitter::loadWeights(Value address, bool whole) {
  SmallVector<Value> operands{address};
  std::string text = policy ? "ld.global.L2::cache_hint.v4.b32 {$0, $1, $2, $3}, [$4], $5;"
                            : "ld.global.v4.b32 {$0, $1, $2, $3}, [$4];";
  std::string constraints = "=r,=r,=r,=r,l";
  if (policy) {
    operands.push_back(policy);
    constraints += ",l";
  }
  if (!whole) {
    constraints = "=&r,=&r,=&r,=&r" + constraints.substr(strlen("=r,=r,=r,=r")) + ",r";
    text = "{\n.reg .pred there;\nsetp.ne.b32 there, $" + std::to_string(4 + operands.size()) +
           ", 0;\nmov.b32 $0, 0;\nmov.b32 $1, 0;\nmov.b32 $2, 0;\nmov.b32 $3, 0;\n@there " + text + "\n}";
    operands.push_back(arith::ExtUIOp::create(b, loc, b.getI32Type(), isThere));
  }
  return load(text, constraints, operands);
}

Value DirectEmitter::offsetOf(Value from, int64_t round) {
  Value bytes = constant(round * perRound());
  return from ? arith::AddIOp::create(b, loc, arith::MulIOp::create(b, loc, wide(from), constant(perRound())), bytes)
                    .getResult()
              : bytes;
}

void DirectEmitter::loadWeights(Round &to, Value from, int64_t round) {
  to.weights.clear();
  Value offset = offsetOf(from, round);
  for (Value row : weightRows)
    to.weights.push_back(loadWeights(at(row, offset), from || isWhole(round)));
}

/// A thread that has none of the round reads what it had of the first, and has zeros.
void DirectEmitter::loadLeft(Round &to, Value from, int64_t round) {
  const bool whole = from || isWhole(round);
  const int64_t parts = shape.widens() ? 2 : 1; // of 16 bytes
  Value offset = arith::MulIOp::create(b, loc, offsetOf(from, round), constant(parts));
  if (!whole)
    offset = arith::SelectOp::create(b, loc, isThere, offset, constant(0));
  to.left.clear();
  for (int64_t part = 0; part < parts; ++part)
    llvm::append_range(to.left, load("ld.global.nc.v4.b32 {$0, $1, $2, $3}, [$4];", "=r,=r,=r,=r,l",
                                     at(at(leftRow, offset), constant(16 * part))));
  if (!whole)
    for (Value &word : to.left)
      word = i.select(isThere, word, i.of(0));
  if (!alternates())
    return;
  for (size_t word = 0; word < to.left.size(); word += 2) {
    Value even = permute(to.left[word], to.left[word + 1], 0x5410),
          odd = permute(to.left[word], to.left[word + 1], 0x7632);
    to.left[word] = even;
    to.left[word + 1] = odd;
  }
}

void DirectEmitter::multiplyRound(const Round &round, MutableArrayRef<Value> sums) {
  const size_t steps = shape.widens() ? 4 : 2; // of 16 along K, of which the thread has four
  for (size_t pair = 0; pair < sums.size() / 4; ++pair)
    for (size_t step = 0; step < steps; ++step) {
      Value fragment[4];
      for (size_t half = 0; half < 2; ++half) {
        const Vector &row = round.weights[2 * pair + half];
        std::tie(fragment[half], fragment[half + 2]) = alternates()     ? widenAlternate(row[step])
                                                       : shape.widens() ? widen(row[step])
                                                                        : std::pair(row[2 * step], row[2 * step + 1]);
      }
      multiply(sums.slice(4 * pair, 4), fragment, round.left[2 * step], round.left[2 * step + 1]);
    }
}

/// All rounds; `held`: the first ones. The sums of each two rows of weights.
SmallVector<Value> DirectEmitter::multiplyAll(std::vector<Round> held) {
  const auto ahead = static_cast<int64_t>(held.size());
  SmallVector<Value> sums(weightRows.size() * 2, p.zero(b.getF32Type()));
  auto pack = [&] {
    SmallVector<Value> all(sums);
    for (const Round &round : held) {
      for (const Vector &v : round.weights)
        llvm::append_range(all, v);
      llvm::append_range(all, round.left);
    }
    return all;
  };
  auto unpack = [&](ValueRange values) {
    size_t next = 0;
    for (Value &sum : sums)
      sum = values[next++];
    for (Round &round : held) {
      for (Vector &v : round.weights)
        for (Value &word : v)
          word = values[next++];
      for (Value &word : round.left)
        word = values[next++];
    }
  };
  // Rounds of a loop leave a whole one in their place.
  constexpr int64_t kMostStraight = 4;
  const int64_t looped = rounds > std::max(kMostStraight, 2 * ahead) ? (rounds - 1 - ahead) / ahead * ahead : 0;
  if (looped > 0) {
    auto loop = scf::ForOp::create(b, loc, i.of(0), i.of(looped), i.of(ahead), pack());
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(loop.getBody());
    unpack(loop.getRegionIterArgs());
    for (int64_t r = 0; r < ahead; ++r) {
      Round &slot = held[static_cast<size_t>(r)];
      multiplyRound(slot, sums);
      loadWeights(slot, loop.getInductionVar(), r + ahead);
      loadLeft(slot, loop.getInductionVar(), r + ahead);
    }
    scf::YieldOp::create(b, loc, pack());
    unpack(loop.getResults());
  }
  for (int64_t r = looped; r < rounds; ++r) {
    Round &slot = held[static_cast<size_t>(r % ahead)];
    multiplyRound(slot, sums);
    if (r + ahead < rounds) {
      loadWeights(slot, {}, r + ahead);
      loadLeft(slot, {}, r + ahead);
    }
  }
  return sums;
}

/// The sum of one row of weights over the warp's K: lane l has that of row l / (32 / rows).
Value DirectEmitter::addParts(ArrayRef<Value> sums) {
  Value group = i.shiftRight(lane, 2), isOdd = i.equal(i.andWith(group, 1), i.of(1));
  Value isDiagonal = i.equal(i.andWith(lane, 3), i.shiftRight(group, 1));
  SmallVector<Value> rows;
  for (size_t row = 0; row < weightRows.size(); ++row) {
    size_t first = row / 2 * 4 + row % 2 * 2;
    rows.push_back(i.select(isDiagonal, i.select(isOdd, sums[first + 1], sums[first]), p.zero(b.getF32Type())));
  }
  for (int64_t offset = 16; offset > 0; offset /= 2) {
    if (rows.size() == 1) {
      rows[0] = arith::AddFOp::create(b, loc, rows[0], exchange(b, loc, rows[0], offset));
      continue;
    }
    // Each lane hands on half of what it has.
    const size_t half = rows.size() / 2;
    Value isUpper = i.equal(i.andWith(lane, offset), i.of(offset));
    for (size_t r = 0; r < half; ++r) {
      Value kept = i.select(isUpper, rows[r + half], rows[r]), handed = i.select(isUpper, rows[r], rows[r + half]);
      rows[r] = arith::AddFOp::create(b, loc, kept, exchange(b, loc, handed, offset));
    }
    rows.resize(half);
  }
  return rows[0];
}

/// Loads what the epilogue reads beside the sums: each thread the vector of one that will want it. Nothing where that is much.
std::unique_ptr<TraceEmitter> DirectEmitter::startEpilogue() {
  constexpr int64_t kMostLoads = 3;
  const int64_t vectors = tile.tileN / p.kernel.lanes;
  if (llvm::count_if(p.traces.epilogue.instances, [](const Instance &in) { return in.node == kNone; }) > kMostLoads)
    return nullptr;
  Operation *before = b.getInsertionBlock()->empty() ? nullptr : &b.getInsertionBlock()->back();
  Value vector = p.add(p.div(index(firstColumn), p.kernel.lanes), p.rem(index(thread), vectors));
  if (shape.n % tile.tileN != 0)
    vector = p.min(vector, shape.n / p.kernel.lanes - 1);
  std::unique_ptr<TraceEmitter> e = p.startFinish(p.index(0), vector);
  // They stay here, ahead of the products.
  for (Operation *op = before ? before->getNextNode() : &b.getInsertionBlock()->front(); op; op = op->getNextNode())
    if (auto load = dyn_cast<LLVM::LoadOp>(op))
      load.setInvariant(false);
  return e;
}

void DirectEmitter::endEpilogue(std::unique_ptr<TraceEmitter> started) {
  const int64_t lanes = p.kernel.lanes, vectors = tile.tileN / lanes;
  hopper.syncBlock();
  Value own = index(thread), vector = p.add(p.div(index(firstColumn), lanes), own),
        there = p.less(own, p.index(vectors));
  if (shape.n % tile.tileN != 0)
    there = arith::AndIOp::create(b, loc, there, p.less(vector, p.index(shape.n / lanes)));
  p.when(there, [&] {
    SmallVector<Value> sums = stagedSums(p, dynamic, shared.stride, 1, tile.parts(), p.index(0), p.mul(own, lanes));
    p.endFinish(started ? *started : *(started = p.startFinish(p.index(0), vector)), sums);
  });
}

void DirectEmitter::emit() {
  const auto lanesOfRow = static_cast<int64_t>(32 / (form.right.size() * static_cast<size_t>(tile.tileN)));
  Value place = i.add(i.mul(warp, 512), i.mul(lane, 16));
  if (!isWhole(rounds - 1))
    isThere = i.less(i.add(place, (rounds - 1) * perRound()), i.of(rowBytes()));
  // The lane's own row at the end.
  Value row = i.div(lane, lanesOfRow), product = i.div(row, tile.tileN), column = i.rem(row, tile.tileN);

  // Where the kernel waits for nobody the assembler still keeps ahead of the wait what was asked for there.
  const bool waits = p.kernel.early.waits, isAhead = readsAhead() || !waits, scalesAhead = readsScalesAhead() || !waits;
  if (!isAhead)
    waitForKernelBefore(b, loc);
  findWeights(place);
  startApart();
  std::vector<Round> held(static_cast<size_t>(std::min<int64_t>(tile.stages, rounds)));
  for (auto [r, round] : llvm::enumerate(held))
    loadWeights(round, {}, static_cast<int64_t>(r));
  Value scale;
  auto loadScale = [&] {
    for (auto [q, operand] : llvm::enumerate(form.right))
      if (operand.scale.value != kNone) {
        Value own = StreamParts::loadScale(operand.scale, i.add(firstColumn, column));
        Value other = scale ? scale : arith::ConstantOp::create(b, loc, b.getF32FloatAttr(1.0F)).getResult();
        scale = form.right.size() == 1 ? own : i.select(i.equal(product, i.of(static_cast<int64_t>(q))), own, other);
      }
  };
  if (scalesAhead)
    loadScale();
  if (isAhead)
    waitForKernelBefore(b, loc);
  if (!scalesAhead)
    loadScale();
  Value leftPlace = rounds == 1 && isThere ? i.select(isThere, place, i.of(0)) : place;
  leftRow = at(rowOf(form.left, i.of(0)), wide(i.mul(leftPlace, shape.widens() ? 2 : 1)));
  for (auto [r, round] : llvm::enumerate(held))
    loadLeft(round, {}, static_cast<int64_t>(r));
  std::unique_ptr<TraceEmitter> epilogue = startEpilogue();

  Value sum = addParts(multiplyAll(std::move(held)));
  if (scale)
    sum = arith::MulFOp::create(b, loc, sum, scale);
  p.when(i.equal(i.rem(lane, lanesOfRow), i.of(0)), [&] {
    Value at = i.add(i.mul(i.add(i.mul(warp, shape.products), product), shared.stride), column);
    Value to = LLVM::GEPOp::create(b, loc, dynamic.getType(), b.getF32Type(), dynamic, ValueRange{at});
    LLVM::StoreOp::create(b, loc, sum, to, 4);
  });
  endEpilogue(std::move(epilogue));
}

} // namespace

void emitDirectly(GemmParts &p, const StreamForm &form, const cost::StreamTile &tile, int64_t sms) {
  DirectEmitter(p, form, tile, sms).emit();
}

} // namespace rl::emit
