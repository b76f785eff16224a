// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/emit/IndexEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinTypes.h"

using namespace mlir;

namespace rl::emit {

using mlir::Value; // not the graph's

IndexEmitter::IndexEmitter(OpBuilder &b, Location loc, const Trace &trace, DynamicIndex dynamicIndex)
    : b(b), loc(loc), trace(trace), dynamicIndex(std::move(dynamicIndex)) {
  bool narrow = trace.elements < INT32_MAX;
  for (const Instance &in : trace.instances) {
    if (in.node == kNone)
      narrow &= in.linear.fits32();
    for (index::Expr e : in.index)
      narrow &= trace.context->expand(e).fits32();
    for (const Instance::Piece &p : in.pieces)
      for (const Condition &c : p.conditions)
        narrow &= c.expr.fits32() && c.hi < INT32_MAX && c.lo > INT32_MIN;
  }
  for (const std::vector<Condition> &guard : trace.guards)
    for (const Condition &c : guard)
      narrow &= c.expr.fits32() && c.hi < INT32_MAX && c.lo > INT32_MIN;
  for (const TraceStore &s : trace.stores)
    narrow &= s.linear.fits32();
  type = narrow ? b.getI32Type() : b.getI64Type();
}

void IndexEmitter::setVectorIndex(Value index) { vectorIndex = arith::IndexCastUIOp::create(b, loc, type, index); }

void IndexEmitter::setRowIndex(Value index) { rowIndex = arith::IndexCastUIOp::create(b, loc, type, index); }

void IndexEmitter::pop() {
  for (; log.size() > marks.back(); log.pop_back())
    memo.erase(log.back());
  marks.pop_back();
}

Value IndexEmitter::constant(int64_t c) { return arith::ConstantOp::create(b, loc, b.getIntegerAttr(type, c)); }

Value IndexEmitter::splat(int64_t c, bool vector) {
  if (!vector || trace.lanes == 1)
    return constant(c);
  auto v = VectorType::get({trace.lanes}, type);
  return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(v, b.getIntegerAttr(type, c)));
}

Value IndexEmitter::toVector(Value v) {
  if (trace.lanes == 1 || isa<VectorType>(v.getType()))
    return v;
  return vector::BroadcastOp::create(b, loc, VectorType::get({trace.lanes}, type), v);
}

Value IndexEmitter::divide(Value x, int64_t c, bool mod, bool nonNegative) {
  bool vector = isa<VectorType>(x.getType());
  Value d = splat(c, vector);
  if (nonNegative)
    return mod ? arith::RemUIOp::create(b, loc, x, d).getResult() : arith::DivUIOp::create(b, loc, x, d).getResult();
  // Rounded to minus infinity: C's quotient, less one where the rest is negative.
  Value rest = arith::RemSIOp::create(b, loc, x, d), zero = splat(0, vector);
  Value negative = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, rest, zero);
  if (mod)
    return arith::SelectOp::create(b, loc, negative, arith::AddIOp::create(b, loc, rest, d), rest);
  Value q = arith::DivSIOp::create(b, loc, x, d);
  return arith::SelectOp::create(b, loc, negative, arith::SubIOp::create(b, loc, q, splat(1, vector)), q);
}

Value IndexEmitter::atom(const index::Atom &a, bool perLane) {
  if (a.kind == index::Atom::Dim) {
    if (a.dim == trace.vectorDim)
      return vectorIndex;
    if (a.dim == trace.rowDim)
      return rowIndex;
    if (trace.indexInstance(a.dim) != kNone)
      return dynamicIndex(a.dim);
    // The lane: 0, 1, 2 ... as a constant vector.
    if (!perLane)
      return constant(0);
    SmallVector<Attribute> steps;
    for (int64_t l = 0; l < trace.lanes; ++l)
      steps.push_back(b.getIntegerAttr(type, l));
    return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(VectorType::get({trace.lanes}, type), steps));
  }
  bool vector = perLane && trace.dependsOnLane(a.arg);
  return divide(sum(a.arg, vector), a.divisor, a.kind == index::Atom::Mod, a.arg.range().lo >= 0);
}

Value IndexEmitter::sum(index::Expr e, bool perLane) {
  perLane = perLane && trace.dependsOnLane(e);
  Key key{e.sum, perLane};
  if (auto it = memo.find(key); it != memo.end())
    return it->second;
  // Terms without the lane first, as a scalar; what depends on it is added to its broadcast.
  // No part of a sum overflows (index::Expr::fits32); said here, constants end up in the offsets of loads.
  bool positive = e.constantTerm() >= 0;
  for (const index::Term &t : e.terms())
    positive &= t.coef >= 0 && t.atom->range.lo >= 0;
  auto flags = arith::IntegerOverflowFlags::nsw;
  if (positive)
    flags = flags | arith::IntegerOverflowFlags::nuw;
  auto plus = [&](Value x, Value y) { return arith::AddIOp::create(b, loc, x, y, flags).getResult(); };
  Value total, vectorTotal;
  auto add = [&](Value &to, Value v) { to = to ? plus(to, v) : v; };
  for (const index::Term &t : e.terms()) {
    bool isDim = t.atom->kind == index::Atom::Dim;
    bool isLane = isDim && t.atom->dim == trace.laneDim && trace.laneDim >= 0;
    if (isLane && !perLane)
      continue;
    Value v = atom(*t.atom, isLane || (perLane && !isDim && trace.dependsOnLane(t.atom->arg)));
    bool vector = isa<VectorType>(v.getType());
    if (t.coef != 1)
      v = arith::MulIOp::create(b, loc, v, splat(t.coef, vector), flags);
    add(vector ? vectorTotal : total, v);
  }
  if (e.constantTerm() || (!total && !vectorTotal))
    add(total, constant(e.constantTerm()));
  if (vectorTotal)
    total = total ? plus(toVector(total), vectorTotal) : vectorTotal;
  memo[key] = total;
  log.push_back(key);
  return total;
}

Value IndexEmitter::scalar(index::Expr e) { return sum(trace.context->expand(e), false); }
Value IndexEmitter::lanes(index::Expr e) { return toVector(sum(trace.context->expand(e), true)); }

Value IndexEmitter::condition(const Condition &c, bool perLane) {
  // One unsigned comparison serves both bounds.
  Value v = perLane ? lanes(c.expr) : scalar(c.expr);
  bool vector = isa<VectorType>(v.getType());
  Value shifted = c.lo ? arith::SubIOp::create(b, loc, v, splat(c.lo, vector)).getResult() : v;
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, shifted, splat(c.hi - c.lo, vector));
}

VectorAccess IndexEmitter::access(index::Expr e) const {
  VectorAccess out;
  if (trace.laneDim < 0)
    return out;
  out.contiguous = !e.dependsNonlinearly(trace.laneDim) && e.coefficient(trace.laneDim) == 1;
  for (int d : e.dims())
    out.contiguous &=
        d == trace.laneDim || trace.indexInstance(d) == kNone || !trace.dependsOnLane(trace.context->dim(d));
  int64_t g = e.divisor(trace.laneDim);
  out.alignElements = trace.lanes;
  while (g % out.alignElements != 0)
    out.alignElements /= 2;
  return out;
}

} // namespace rl::emit
