// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A resident row whose maximum of magnitudes is taken without the factors that the row shares, together with the reduction which
// those come from (FactoredMax.h). What is kept between the two is the values without their factors, in as many registers as the
// values would take; a row beyond the limits is loaded once more.
#include "compiler/emit/Packed.h"
#include "compiler/emit/RowEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace rl::emit {

using mlir::Value; // not the graph's

/// The vector's values without the factors, as f32.
Value RowEmitter::withoutFactors(TraceEmitter &e) {
  using Step = FactoredMax::Step;
  BodyEmitter &body = e.bodies();
  SmallVector<Value> done;
  auto binary = [&](const Step &s, auto make) {
    return make(body.splatTo(done[s.left], trace.lanes), body.splatTo(done[s.right], trace.lanes));
  };
  for (const Step &s : factored->steps)
    switch (s.kind) {
    case Step::Known: done.push_back(body.wide(e.lane(s.instance))); break;
    case Step::Literal: done.push_back(constant(static_cast<float>(s.literal))); break;
    case Step::Neg: done.push_back(arith::NegFOp::create(b, loc, done[s.left])); break;
    case Step::Abs: done.push_back(math::AbsFOp::create(b, loc, done[s.left])); break;
    case Step::Mul:
      done.push_back(binary(s, [&](Value x, Value y) { return arith::MulFOp::create(b, loc, x, y).getResult(); }));
      break;
    case Step::Div:
      done.push_back(binary(s, [&](Value x, Value y) { return arith::DivFOp::create(b, loc, x, y).getResult(); }));
      break;
    }
  return body.splatTo(done.back(), trace.lanes);
}

/// What a vector adds to the maximum; the vector's values are kept.
Value RowEmitter::addFactored(Value total, TraceEmitter &e, Value isThere) {
  const Combiner c = combinerOf(factored->reduction);
  unfactored.push_back(withoutFactors(e));
  Value v = math::AbsFOp::create(b, loc, unfactored.back());
  if (isThere)
    v = arith::SelectOp::create(b, loc, isThere, v, c.identity(b, loc, trace.lanes));
  return total ? c.combine(b, loc, total, v) : v;
}

/// A maximum of the value's magnitudes as one of what is above the value.
Value RowEmitter::roundAsValue(Value v) {
  Lane lane{graph.type(trace.instances[factored->value].value).dtype, {}, v, {}};
  for (uint32_t i : factored->roundings) {
    const Attrs &attrs = graph.nodes[trace.instances[i].node].attrs;
    DType to = graph.type(trace.instances[i].value).dtype;
    if (attrs.fast && to != DType::F32)
      lane = {to, {}, scalars.bodies().wide(lane), {}};
    else
      lane = scalars.bodies().cast(lane, to, attrs.saturate);
  }
  return scalars.bodies().wide(lane);
}

/// Goes over a row beyond the limits once more, a vector at a time in a loop: of no row's loads that wait in registers is there
/// need for it, nor are more of them taken.
SmallVector<Value>
RowEmitter::overAgain(ValueRange initial,
                      llvm::function_ref<SmallVector<Value>(TraceEmitter &, Value isThere, ValueRange)> body) {
  auto opaque = [&](Value v) -> Value {
    v = hidden(b, loc, arith::IndexCastUIOp::create(b, loc, b.getI32Type(), v));
    return arith::IndexCastUIOp::create(b, loc, b.getIndexType(), v);
  };
  const int64_t vectors = vectorsOfRow(), threads = schedule.threads * schedule.cluster;
  auto loop = scf::ForOp::create(b, loc, index(0), opaque(index(schedule.unroll)), index(1), initial);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  Value at = add(place, arith::MulIOp::create(b, loc, loop.getInductionVar(), index(threads))), isThere;
  if (schedule.unroll * threads > vectors) {
    isThere = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, at, index(vectors));
    at = arith::SelectOp::create(b, loc, isThere, at, index(vectors - 1));
  }
  // In another place as far as the optimiser knows, so that it keeps nothing of what was loaded before.
  std::unique_ptr<TraceEmitter> e = vectorEmitter(opaque(rowIndex), opaque(at));
  e->loadAgain();
  for (uint32_t i = 0; i < trace.instances.size(); ++i)
    if (!trace.instances[i].varies && trace.instances[i].scope == 0 && scalars.has(i))
      e->lane(i) = scalars.lane(i);
  SmallVector<Value> next = body(*e, isThere, loop.getRegionIterArgs());
  if (!next.empty())
    scf::YieldOp::create(b, loc, next);
  return SmallVector<Value>(loop.getResults());
}

/// The factors are known, and the maximum without them. That of the values, in a row beyond the limits reduced once more.
void RowEmitter::finishFactoredMax() {
  BodyEmitter &body = scalars.bodies();
  auto magnitude = [&](Value v) { return math::AbsFOp::create(b, loc, v).getResult(); };
  Value most = body.wide(scalars.lane(factored->reduction));
  withinLimits = {};
  requireWithin(most);
  for (const FactoredMax::Factor &f : factored->factors) {
    Value v = body.wide(scalars.lane(f.instance));
    requireWithin(magnitude(v));
    if (f.magnitude)
      v = magnitude(v);
    if (f.divides)
      v = arith::DivFOp::create(b, loc, constant(1), v);
    factor = factor ? arith::MulFOp::create(b, loc, factor, v).getResult() : v;
  }
  for (uint32_t s : factored->squares)
    require(arith::CmpFPredicate::OLE, body.wide(scalars.lane(s)), FactoredMax::kLimit * FactoredMax::kLimit);
  // All threads of the row compare the same numbers, so that they take one way together.
  SmallVector<Type> types{b.getF32Type()};
  for (Value v : unfactored)
    types.push_back(v.getType());
  auto branch = scf::IfOp::create(b, loc, types, withinLimits, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(branch.thenBlock());
  // The greatest of the products, as a product keeps the order of what is multiplied.
  SmallVector<Value> out{roundAsValue(arith::MulFOp::create(b, loc, most, magnitude(factor)))};
  out.append(unfactored.begin(), unfactored.end());
  scf::YieldOp::create(b, loc, out);
  b.setInsertionPointToStart(branch.elseBlock());
  const Combiner c = combinerOf(factored->reduction);
  Value again = overAgain(c.identity(b, loc, trace.lanes), [&](TraceEmitter &e, Value isThere, ValueRange total) {
    for (uint32_t i : toReduce)
      emitVarying(e, i);
    Value v = contributionOf(e, factored->reduction, c, isThere);
    return SmallVector<Value>{c.combine(b, loc, total[0], v)};
  })[0];
  again = acrossVector(c, again);
  combineThreads(b, loc, rowThreads, c, again, shared, nextSlot);
  nextSlot += rowThreads.slots();
  // Beyond the limits the values without factors are of no more use, and need not wait in registers.
  out.assign({again});
  for (Value v : unfactored)
    out.push_back(body.splatTo(constant(0), trace.lanes));
  scf::YieldOp::create(b, loc, out);
  scalars.lane(factored->reduction) = {DType::F32, branch.getResult(0), branch.getResult(0), {}};
  unfactored.assign(branch.getResults().begin() + 1, branch.getResults().end());
}

/// The last pass, from the values without factors; in a row beyond the limits as it is written.
void RowEmitter::factoredPass(const Pass &pass, uint32_t level) {
  BodyEmitter &body = scalars.bodies();
  const uint32_t target = targetOf(*factored);
  Value by = factor;
  if (factored->quotient != kNone) {
    by = arith::DivFOp::create(b, loc, by, body.wide(scalars.lane(trace.instances[target].operands[1])));
    requireWithin(math::AbsFOp::create(b, loc, by));
  }
  auto branch = scf::IfOp::create(b, loc, withinLimits, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPoint(branch.thenBlock()->getTerminator());
  DType type = graph.type(trace.instances[target].value).dtype;
  for (auto [e, v] : llvm::zip(held, unfactored)) {
    Value product = arith::MulFOp::create(b, loc, v, body.splatTo(by, trace.lanes));
    e->lane(target) = type == DType::F32 ? Lane{type, product, product, {}} : Lane{type, {}, product, {}};
  }
  residentPass(pass, level);
  b.setInsertionPoint(branch.elseBlock()->getTerminator());
  overAgain({}, [&](TraceEmitter &e, Value isThere, ValueRange) {
    for (uint32_t i : toStore)
      emitVarying(e, i);
    storeRow(e, 0, pass, isThere);
    return SmallVector<Value>();
  });
}

/// A condition more; false of NaN.
void RowEmitter::require(arith::CmpFPredicate predicate, Value v, float limit) {
  Value one = arith::CmpFOp::create(b, loc, predicate, v, constant(limit));
  withinLimits = withinLimits ? arith::AndIOp::create(b, loc, withinLimits, one).getResult() : one;
}

void RowEmitter::requireWithin(Value v) {
  require(arith::CmpFPredicate::OGE, v, 1 / FactoredMax::kLimit);
  require(arith::CmpFPredicate::OLE, v, FactoredMax::kLimit);
}

} // namespace rl::emit
