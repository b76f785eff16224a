// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Access classification and merging of iteration dimensions.
#include "ir/index/Access.h"

#include <cassert>
#include <numeric>

namespace rl::index {

Expr atLane(Context &ctx, Expr e, int dim, int64_t V, int64_t lane) {
  Context::Split s = ctx.split(dim, V);
  return ctx.substitute(e, dim, ctx.add(ctx.mul(ctx.dim(s.outer), V), lane));
}

/// The largest power of two, at most V, that divides g; V when g is 0.
static int64_t powerOfTwoWithin(int64_t g, int64_t V) {
  int64_t p = 1;
  while (p < V && g % (2 * p) == 0)
    p *= 2;
  return p;
}

Access classify(Context &ctx, Expr linear, int dim, int64_t V) {
  assert(V > 0 && (V & (V - 1)) == 0 && "a vector has a power of two of lanes");
  linear = ctx.expand(linear);
  Expr first = atLane(ctx, linear, dim, V, 0);
  Access a;
  a.alignElements = powerOfTwoWithin(first.divisor(), V);
  int64_t stride = linear.coefficient(dim);
  if (V == 1 && linear.dependsNonlinearly(dim))
    return a;
  if (linear.dependsNonlinearly(dim)) {
    // Lanes inside atoms: compare each with the first.
    for (int64_t l = 1; l < V; ++l) {
      Expr difference = ctx.sub(atLane(ctx, linear, dim, V, l), first);
      if (!difference.isConstant())
        return a;
      if (l == 1)
        stride = difference.constantTerm();
      else if (difference.constantTerm() != stride * l)
        return a;
    }
  }
  a.stride = stride;
  a.kind = stride == 0 ? Access::Uniform : stride == 1 ? Access::Contiguous : Access::Strided;
  return a;
}

Conditions independentOf(Context &ctx, const Condition &condition, int dim) {
  const Expr e = condition.expr;
  if (!e.dependsOn(dim) || condition.never())
    return {condition};
  Conditions out;
  for (int64_t bound : {condition.lo, condition.hi}) {
    if (e.range().lo >= bound || e.range().hi < bound)
      continue;
    // e >= bound iff (e - bound) floordiv g >= 0, for any g: choose the one in which the dimension may drop out.
    const Expr shifted = ctx.add(e, -bound);
    int64_t g = 0;
    for (const Term &t : shifted.terms()) {
      const bool own = t.atom->kind == Atom::Dim ? t.atom->dim == dim : t.atom->arg.dependsOn(dim);
      if (!own)
        g = std::gcd(g, t.coef);
    }
    const Expr q = g == 0 ? shifted : ctx.floordiv(shifted, g);
    if (q.dependsOn(dim))
      return {condition};
    const bool below = bound == condition.hi; // where both are alike, nothing is between them
    out.push_back(below ? Condition{q, q.range().lo, 0} : Condition{q, 0, q.range().hi + 1});
  }
  return out;
}

bool lanesAgree(Context &ctx, const Condition &condition, int dim, int64_t V) {
  Context::Split s = ctx.split(dim, V);
  const Condition split{ctx.substitute(ctx.expand(condition.expr), dim, s.value), condition.lo, condition.hi};
  if (split.never())
    return true;
  for (const Condition &c : independentOf(ctx, split, s.lane))
    if (c.expr.dependsOn(s.lane))
      return false;
  return true;
}

Collapsed collapseDims(Context &ctx, const std::vector<int> &dims, const std::vector<Expr> &given) {
  Collapsed c;
  for (Expr e : given)
    c.exprs.push_back(ctx.expand(e));
  for (int d : dims)
    if (ctx.extent(d) != 1)
      c.dims.push_back(d);
    else
      c.replacements.emplace_back(d, ctx.constant(0));
  if (c.dims.empty() && !dims.empty())
    c.dims.push_back(dims.back());
  if (c.dims.empty())
    c.dims.push_back(ctx.addDim(1));

  for (size_t inner = c.dims.size() - 1; inner > 0; --inner) {
    int a = c.dims[inner - 1], b = c.dims[inner];
    int64_t na = ctx.extent(a), nb = ctx.extent(b), n;
    if (__builtin_mul_overflow(na, nb, &n))
      continue;
    if (n == 0) { // no points: any order will do
      c.dims.assign(1, ctx.addDim(0));
      for (int d : dims)
        if (ctx.extent(d) != 1)
          c.replacements.emplace_back(d, ctx.constant(0));
      for (Expr &e : c.exprs)
        e = ctx.substitute(e, c.replacements);
      break;
    }
    // Cheap refusal before making a dimension: as plain terms, a must continue b's stride.
    bool plausible = true;
    for (Expr e : c.exprs)
      if (!e.dependsNonlinearly(a) && !e.dependsNonlinearly(b))
        plausible &= static_cast<__int128>(e.coefficient(b)) * nb == e.coefficient(a);
    if (!plausible)
      continue;
    int m = ctx.addDim(n);
    Substitution parts{{a, ctx.floordiv(ctx.dim(m), nb)}, {b, ctx.mod(ctx.dim(m), nb)}};
    std::vector<Expr> merged;
    for (Expr e : c.exprs) {
      Expr f = ctx.substitute(e, parts);
      if (f.weight() > e.weight() || f.weight() == kMaxWeight)
        break;
      merged.push_back(f);
    }
    if (merged.size() < c.exprs.size())
      continue;
    c.exprs = std::move(merged);
    for (auto &[_, value] : c.replacements)
      value = ctx.substitute(value, parts);
    c.replacements.insert(c.replacements.end(), parts.begin(), parts.end());
    c.dims[inner - 1] = m;
    c.dims.erase(c.dims.begin() + static_cast<std::ptrdiff_t>(inner));
  }
  // Dimensions made by an earlier merge have no meaning outside.
  std::erase_if(c.replacements, [&](const auto &r) {
    for (int d : dims)
      if (d == r.first)
        return false;
    return true;
  });
  for (int d : c.dims)
    c.shape.push_back(ctx.extent(d));
  return c;
}

} // namespace rl::index
