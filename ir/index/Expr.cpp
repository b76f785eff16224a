// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Construction and simplification of index expressions. The rules' numbers are those of Expr.h.
#include "ir/index/Expr.h"

#include <algorithm>
#include <cassert>
#include <numeric>

namespace rl::index {
namespace {

bool infinite(int64_t v) { return v == kMinusInfinity || v == kPlusInfinity; }

int64_t clampToInt64(__int128 v) {
  if (v <= kMinusInfinity)
    return kMinusInfinity;
  if (v >= kPlusInfinity)
    return kPlusInfinity;
  return static_cast<int64_t>(v);
}

int64_t saturatingMul(int64_t v, int64_t c) {
  if (c == 0 || v == 0)
    return 0;
  if (infinite(v))
    return (v > 0) == (c > 0) ? kPlusInfinity : kMinusInfinity;
  return clampToInt64(static_cast<__int128>(v) * c);
}

/// Adds interval ends of the same side, where an infinity absorbs. Two infinities of opposite sign meet only when a
/// finite sum has left int64 on both ways; `towards` (the side of this end) is then the safe answer.
int64_t saturatingAdd(int64_t a, int64_t b, int64_t towards) {
  if (infinite(a) && infinite(b) && a != b)
    return towards;
  if (infinite(a))
    return a;
  if (infinite(b))
    return b;
  return clampToInt64(static_cast<__int128>(a) + b);
}

Range scaled(Range r, int64_t c) {
  Range s{saturatingMul(r.lo, c), saturatingMul(r.hi, c)};
  if (c < 0)
    std::swap(s.lo, s.hi);
  return s;
}

Range plus(Range a, Range b) {
  return {saturatingAdd(a.lo, b.lo, kMinusInfinity), saturatingAdd(a.hi, b.hi, kPlusInfinity)};
}

int64_t quotientEnd(int64_t v, int64_t c) { return infinite(v) ? v : floorDiv(v, c); }

size_t mix(size_t h, uint64_t v) {
  h ^= v + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
  return h * 0xff51afd7ed558ccdull;
}

uint64_t magnitude(int64_t v) { return v < 0 ? 0 - static_cast<uint64_t>(v) : static_cast<uint64_t>(v); }

/// gcd on magnitudes; a result of 2^63 (of INT64_MIN alone) is halved to stay an int64, which keeps it a divisor.
int64_t gcdOf(int64_t a, int64_t b) {
  uint64_t g = std::gcd(magnitude(a), magnitude(b));
  return g > static_cast<uint64_t>(kPlusInfinity) ? int64_t(1) << 62 : static_cast<int64_t>(g);
}

bool fitsIn32(const Sum &s) {
  __int128 total = magnitude(s.constant);
  for (const Term &t : s.terms) {
    Range r = t.atom->range;
    if (infinite(r.lo) || infinite(r.hi) || magnitude(t.coef) > INT32_MAX)
      return false;
    total += static_cast<__int128>(magnitude(t.coef)) * std::max(magnitude(r.lo), magnitude(r.hi));
    if (total > INT32_MAX)
      return false;
    if (t.atom->kind != Atom::Dim && (t.atom->divisor > INT32_MAX || !t.atom->arg.fits32()))
      return false;
  }
  return total <= INT32_MAX;
}

} // namespace

size_t Context::OpKeyHash::operator()(const OpKey &k) const {
  return mix(mix(mix(17, static_cast<uint64_t>(k.op)), k.arg ? k.arg->id : ~0u), static_cast<uint64_t>(k.c));
}

//===--------------------------------------------------------------------------------------------------------------===//
// Queries
//===--------------------------------------------------------------------------------------------------------------===//

const std::vector<Term> &Expr::terms() const { return sum->terms; }
int64_t Expr::constantTerm() const { return sum->constant; }
Range Expr::range() const { return sum->range; }
const std::vector<int> &Expr::dims() const { return sum->dims; }
uint32_t Expr::weight() const { return sum->weight; }
bool Expr::dependsOn(int dim) const { return std::binary_search(sum->dims.begin(), sum->dims.end(), dim); }

bool Expr::dependsNonlinearly(int dim) const {
  for (const Term &t : sum->terms)
    if (t.atom->kind != Atom::Dim && t.atom->arg.dependsOn(dim))
      return true;
  return false;
}

int64_t Expr::coefficient(int dim) const {
  for (const Term &t : sum->terms)
    if (t.atom->kind == Atom::Dim && t.atom->dim == dim)
      return t.coef;
  return 0;
}

int64_t Expr::divisor(int dim) const {
  int64_t g = gcdOf(sum->constant, 0);
  for (const Term &t : sum->terms)
    if (dim < 0 || t.atom->kind != Atom::Dim || t.atom->dim != dim)
      g = gcdOf(g, t.coef);
  return g;
}

bool Expr::fits32() const { return sum->fits32; }

//===--------------------------------------------------------------------------------------------------------------===//
// Sums
//===--------------------------------------------------------------------------------------------------------------===//

int64_t Context::mulChecked(int64_t a, int64_t b) {
  int64_t r;
  if (!__builtin_mul_overflow(a, b, &r))
    return r;
  overflow = true;
  return (a < 0) == (b < 0) ? kPlusInfinity : kMinusInfinity;
}

int64_t Context::addChecked(int64_t a, int64_t b) {
  int64_t r;
  if (!__builtin_add_overflow(a, b, &r))
    return r;
  overflow = true;
  return a > 0 ? kPlusInfinity : kMinusInfinity;
}

Expr Context::intern(std::vector<Term> terms, int64_t constant) {
  size_t h = mix(29, static_cast<uint64_t>(constant));
  for (const Term &t : terms)
    h = mix(mix(h, t.atom->id), static_cast<uint64_t>(t.coef));
  auto [first, last] = sumTable.equal_range(h);
  for (auto it = first; it != last; ++it)
    if (it->second->constant == constant && it->second->terms == terms)
      return {it->second};

  Sum s;
  s.constant = constant;
  s.range = {constant, constant};
  s.id = static_cast<uint32_t>(sums.size());
  for (const Term &t : terms) {
    s.range = plus(s.range, scaled(t.atom->range, t.coef));
    s.weight = std::min(s.weight + t.atom->weight, kMaxWeight);
    if (t.atom->kind == Atom::Dim)
      s.dims.push_back(t.atom->dim);
    else
      s.dims.insert(s.dims.end(), t.atom->arg.dims().begin(), t.atom->arg.dims().end());
  }
  std::sort(s.dims.begin(), s.dims.end());
  s.dims.erase(std::unique(s.dims.begin(), s.dims.end()), s.dims.end());
  s.terms = std::move(terms);
  s.fits32 = fitsIn32(s);
  sums.push_back(std::move(s));
  sumTable.emplace(h, &sums.back());
  return {&sums.back()};
}

Expr Context::make(std::vector<Term> terms, int64_t constant) {
  std::sort(terms.begin(), terms.end(), [](const Term &a, const Term &b) { return a.atom->id < b.atom->id; });
  size_t kept = 0;
  for (size_t i = 0; i < terms.size();) {
    Term t = terms[i];
    for (++i; i < terms.size() && terms[i].atom == t.atom; ++i)
      t.coef = addChecked(t.coef, terms[i].coef);
    if (t.coef != 0)
      terms[kept++] = t;
  }
  terms.resize(kept);
  return rejoin(intern(std::move(terms), constant));
}

/// R5: adds k*(S - c*(S floordiv c) - (S mod c)), which is zero, for the S and c of each atom, where that makes the sum
/// lighter and its interval no wider (36*(x mod 24) + (x floordiv 24) is 36*x - 863*(x floordiv 24), but that knows
/// less about itself). The weight falls at each step, and the quotients asked for lie strictly inside the atoms of `e`:
/// it ends.
Expr Context::rejoin(Expr e) {
  if (e.terms().size() < 2)
    return e;
  for (bool changed = true; changed;) {
    changed = false;
    std::vector<Term> terms = e.terms(); // `e` changes below
    for (const Term &t : terms) {
      if (t.atom->kind == Atom::Dim)
        continue;
      int64_t c = t.atom->divisor, k = t.coef;
      if (t.atom->kind == Atom::FloorDiv) {
        if (k % c != 0)
          continue;
        k /= c;
      } else {
        // c*((S floordiv c) mod n) + (S mod c) = S mod (c*n)
        int64_t kc, cn;
        if (!__builtin_mul_overflow(k, c, &kc))
          for (const Term &u : terms) {
            if (u.atom->kind != Atom::Mod || u.coef != kc || u.atom == t.atom ||
                __builtin_mul_overflow(c, u.atom->divisor, &cn))
              continue;
            Expr whole = mod(floordiv(t.atom->arg, c), u.atom->divisor);
            if (whole.constantTerm() != 0 || whole.terms() != std::vector<Term>{{1, u.atom}})
              continue;
            std::vector<Term> rest;
            for (const Term &v : terms)
              if (v.atom != t.atom && v.atom != u.atom)
                rest.push_back(v);
            Expr joined = mod(t.atom->arg, cn);
            for (const Term &v : joined.terms())
              rest.push_back({mulChecked(v.coef, k), v.atom});
            Expr candidate = make(std::move(rest), addChecked(e.constantTerm(), mulChecked(joined.constantTerm(), k)));
            if (candidate.weight() < e.weight()) {
              e = candidate;
              changed = true;
              break;
            }
          }
        if (changed)
          break;
      }
      Expr s = t.atom->arg, quotient = floordiv(s, c), remainder = mod(s, c);
      // Without the other half in the sum nothing can cancel.
      std::vector<Term> next = terms;
      __int128 constant = e.constantTerm();
      bool fits = true;
      auto accumulate = [&](Expr part, __int128 factor) {
        for (const Term &v : part.terms()) {
          __int128 coef = factor * v.coef;
          fits &= coef == static_cast<int64_t>(coef);
          next.push_back({static_cast<int64_t>(coef), v.atom});
        }
        constant += factor * part.constantTerm();
      };
      accumulate(s, k);
      accumulate(remainder, -static_cast<__int128>(k));
      accumulate(quotient, -static_cast<__int128>(k) * c);
      if (!fits || constant != static_cast<int64_t>(constant))
        continue;
      std::sort(next.begin(), next.end(), [](const Term &a, const Term &b) { return a.atom->id < b.atom->id; });
      std::vector<Term> merged;
      uint32_t weight = 0;
      for (size_t i = 0; i < next.size() && fits;) {
        __int128 coef = 0;
        const Atom *a = next[i].atom;
        for (; i < next.size() && next[i].atom == a; ++i)
          coef += next[i].coef;
        fits = coef == static_cast<int64_t>(coef);
        if (coef != 0) {
          merged.push_back({static_cast<int64_t>(coef), a});
          weight += a->weight;
        }
      }
      if (!fits || weight >= e.weight())
        continue;
      Expr candidate = intern(std::move(merged), static_cast<int64_t>(constant));
      if (!candidate.range().within(e.range().lo, e.range().hi))
        continue;
      e = candidate;
      changed = e.terms().size() >= 2;
      if (!changed)
        return e;
      break;
    }
  }
  return e;
}

int Context::addDim(int64_t extent) {
  int id = dimCount();
  Atom a;
  a.kind = Atom::Dim;
  a.dim = id;
  a.range = {0, std::max<int64_t>(extent - 1, 0)};
  a.id = static_cast<uint32_t>(atoms.size());
  atoms.push_back(a);
  dimTable.push_back({extent, Expr{}, &atoms.back()});
  return id;
}

Expr Context::dim(int dim) {
  assert(dim >= 0 && dim < dimCount());
  const DimEntry &d = dimTable[static_cast<size_t>(dim)];
  if (d.extent <= 1)
    return constant(0); // R6
  return intern({{1, d.atom}}, 0);
}

Expr Context::constant(int64_t c) { return intern({}, c); }

Expr Context::add(Expr a, Expr b) {
  std::vector<Term> terms = a.terms();
  terms.insert(terms.end(), b.terms().begin(), b.terms().end());
  return make(std::move(terms), addChecked(a.constantTerm(), b.constantTerm()));
}

Expr Context::add(Expr a, int64_t c) { return intern(a.terms(), addChecked(a.constantTerm(), c)); }

Expr Context::sub(Expr a, Expr b) { return add(a, mul(b, -1)); }

Expr Context::mul(Expr a, int64_t c) {
  if (c == 0)
    return constant(0);
  std::vector<Term> terms = a.terms();
  for (Term &t : terms)
    t.coef = mulChecked(t.coef, c);
  return intern(std::move(terms), mulChecked(a.constantTerm(), c));
}

//===--------------------------------------------------------------------------------------------------------------===//
// Quotients and remainders
//===--------------------------------------------------------------------------------------------------------------===//

const Atom *Context::atom(Atom::Kind kind, Expr arg, int64_t c) {
  const Atom *&slot = atomTable[OpKey{kind, arg.sum, c}];
  if (slot)
    return slot;
  Atom a;
  a.kind = kind;
  a.arg = arg;
  a.divisor = c;
  Range r = arg.range();
  a.range = kind == Atom::FloorDiv ? Range{quotientEnd(r.lo, c), quotientEnd(r.hi, c)} : Range{0, c - 1};
  a.id = static_cast<uint32_t>(atoms.size());
  a.weight = std::min(2 + arg.weight(), kMaxWeight);
  atoms.push_back(a);
  return slot = &atoms.back();
}

Expr Context::atomExpr(Atom::Kind kind, Expr arg, int64_t c) { return intern({{1, atom(kind, arg, c)}}, 0); }

/// Finds e = g*multiple + rest with 0 <= rest < g, g > 1 a divisor of c, g as great as possible.
Context::Common Context::commonFactor(Expr e, int64_t c) {
  // A useful g divides c and the coefficients that go into `multiple`: one of the gcds of subsets of {gcd(coef, c)}.
  std::vector<int64_t> candidates;
  for (const Term &t : e.terms()) {
    int64_t own = gcdOf(t.coef, c);
    size_t n = candidates.size();
    for (size_t i = 0; i <= n && candidates.size() < 64; ++i) {
      int64_t g = i == n ? own : gcdOf(candidates[i], own);
      if (g > 1 && std::find(candidates.begin(), candidates.end(), g) == candidates.end())
        candidates.push_back(g);
    }
  }
  std::sort(candidates.rbegin(), candidates.rend());
  for (int64_t g : candidates) {
    std::vector<Term> multiple, rest;
    for (const Term &t : e.terms())
      t.coef % g == 0 ? multiple.push_back({t.coef / g, t.atom}) : rest.push_back(t);
    Expr r = intern(rest, e.constantTerm());
    Range range = r.range();
    if (infinite(range.lo) || infinite(range.hi) || floorDiv(range.lo, g) != floorDiv(range.hi, g))
      continue;
    int64_t m = floorDiv(range.lo, g);
    return {g, make(std::move(multiple), m), make(r.terms(), r.constantTerm() - m * g)};
  }
  return {};
}

/// R1: e = c*Q + R, where R has the terms that c does not divide and a constant in [0, c).
static std::pair<std::vector<Term>, std::vector<Term>> divideTerms(Expr e, int64_t c) {
  std::pair<std::vector<Term>, std::vector<Term>> parts;
  for (const Term &t : e.terms())
    t.coef % c == 0 ? parts.first.push_back({t.coef / c, t.atom}) : parts.second.push_back(t);
  return parts;
}

Expr Context::floordiv(Expr e, int64_t c) {
  assert(c > 0 && "the divisor of an index expression is positive");
  if (c == 1)
    return e;
  OpKey key{Atom::FloorDiv, e.sum, c};
  if (auto it = results.find(key); it != results.end())
    return it->second;
  auto [multiples, others] = divideTerms(e, c);
  Expr q = make(std::move(multiples), floorDiv(e.constantTerm(), c));
  Expr r = make(std::move(others), floorMod(e.constantTerm(), c));
  Expr result = add(q, simplifyFloorDiv(r, c));
  results.emplace(key, result);
  return result;
}

Expr Context::simplifyFloorDiv(Expr r, int64_t c) {
  Range range = r.range();
  if (!infinite(range.lo) && !infinite(range.hi) && floorDiv(range.lo, c) == floorDiv(range.hi, c))
    return constant(floorDiv(range.lo, c)); // R2
  // A rejoining while R was made may have produced new multiples of c.
  for (const Term &t : r.terms())
    if (t.coef % c == 0)
      return floordiv(r, c);
  // R4, a remainder inside
  if (r.terms().size() == 1 && r.constantTerm() == 0 && r.terms()[0].coef == 1) {
    const Atom *a = r.terms()[0].atom;
    if (a->kind == Atom::Mod && a->divisor % c == 0)
      return mod(floordiv(a->arg, c), a->divisor / c);
  }
  // R4, one quotient inside
  const Atom *inner = nullptr;
  int quotients = 0;
  for (const Term &t : r.terms())
    if (t.atom->kind == Atom::FloorDiv) {
      ++quotients;
      if (t.coef == 1)
        inner = t.atom;
    }
  int64_t product;
  if (inner && quotients == 1 && !__builtin_mul_overflow(inner->divisor, c, &product)) {
    bool fits = true;
    std::vector<Term> terms = inner->arg.terms();
    int64_t k = 0, a = inner->divisor;
    for (const Term &t : r.terms())
      if (t.atom != inner) {
        Term u{0, t.atom};
        fits &= !__builtin_mul_overflow(t.coef, a, &u.coef);
        terms.push_back(u);
      }
    fits &=
        !__builtin_mul_overflow(r.constantTerm(), a, &k) && !__builtin_add_overflow(k, inner->arg.constantTerm(), &k);
    if (fits)
      return floordiv(make(std::move(terms), k), product);
  }
  if (Common f = commonFactor(r, c); f.g) // R3
    return floordiv(f.multiple, c / f.g);
  return atomExpr(Atom::FloorDiv, r, c);
}

Expr Context::mod(Expr e, int64_t c) {
  assert(c > 0 && "the divisor of an index expression is positive");
  if (c == 1)
    return constant(0);
  OpKey key{Atom::Mod, e.sum, c};
  if (auto it = results.find(key); it != results.end())
    return it->second;
  auto [multiples, others] = divideTerms(e, c);
  Expr result = simplifyMod(make(std::move(others), floorMod(e.constantTerm(), c)), c);
  results.emplace(key, result);
  return result;
}

Expr Context::simplifyMod(Expr r, int64_t c) {
  Range range = r.range();
  if (!infinite(range.lo) && !infinite(range.hi) && floorDiv(range.lo, c) == floorDiv(range.hi, c))
    return add(r, -(floorDiv(range.lo, c) * c)); // R2
  for (const Term &t : r.terms())
    if (t.coef % c == 0)
      return mod(r, c);
  // R4: a remainder whose own period is a multiple of c only adds multiples of c.
  for (const Term &t : r.terms()) {
    int64_t period;
    if (t.atom->kind != Atom::Mod || __builtin_mul_overflow(t.coef, t.atom->divisor, &period) || period % c != 0)
      continue;
    std::vector<Term> terms;
    bool fits = true;
    for (const Term &u : r.terms())
      if (u.atom != t.atom)
        terms.push_back(u);
    for (const Term &u : t.atom->arg.terms()) {
      Term scaledTerm{0, u.atom};
      fits &= !__builtin_mul_overflow(u.coef, t.coef, &scaledTerm.coef);
      terms.push_back(scaledTerm);
    }
    int64_t k;
    fits &= !__builtin_mul_overflow(t.atom->arg.constantTerm(), t.coef, &k) &&
            !__builtin_add_overflow(k, r.constantTerm(), &k);
    if (fits)
      return mod(make(std::move(terms), k), c);
  }
  if (Common f = commonFactor(r, c); f.g) // R3
    return add(mul(mod(f.multiple, c / f.g), f.g), f.rest);
  return atomExpr(Atom::Mod, r, c);
}

//===--------------------------------------------------------------------------------------------------------------===//
// Substitution
//===--------------------------------------------------------------------------------------------------------------===//

Expr Context::substituteIn(Expr e, const Substitution &with, std::unordered_map<const Sum *, Expr> &memo) {
  bool touched = false;
  for (const auto &[d, _] : with)
    touched |= e.dependsOn(d);
  if (!touched)
    return e;
  if (auto it = memo.find(e.sum); it != memo.end())
    return it->second;
  std::vector<Term> terms;
  int64_t k = e.constantTerm();
  const std::vector<Term> old = e.terms();
  for (const Term &t : old) {
    Expr value;
    if (t.atom->kind == Atom::Dim) {
      for (const auto &[d, replacement] : with)
        if (d == t.atom->dim)
          value = replacement;
      if (!value)
        value = intern({{1, t.atom}}, 0);
    } else {
      Expr arg = substituteIn(t.atom->arg, with, memo);
      value = t.atom->kind == Atom::FloorDiv ? floordiv(arg, t.atom->divisor) : mod(arg, t.atom->divisor);
    }
    for (const Term &u : value.terms())
      terms.push_back({mulChecked(u.coef, t.coef), u.atom});
    k = addChecked(k, mulChecked(value.constantTerm(), t.coef));
  }
  Expr result = make(std::move(terms), k);
  memo.emplace(e.sum, result);
  return result;
}

Expr Context::substitute(Expr e, const Substitution &with) {
  std::unordered_map<const Sum *, Expr> memo;
  return substituteIn(e, with, memo);
}

Expr Context::restrict(Expr e, int64_t extent) {
  if (e.range().within(0, std::max<int64_t>(extent, 1) - 1))
    return e;
  if (extent <= 1)
    return constant(0);
  OpKey key{0, e.sum, extent};
  if (auto it = restrictions.find(key); it != restrictions.end())
    return it->second;
  int d = addDim(extent);
  dimTable[static_cast<size_t>(d)].definition = expand(e); // in plain dimensions: chains of restrictions stay flat
  Expr result = dim(d);
  restrictions.emplace(key, result);
  return result;
}

Expr Context::expand(Expr e) {
  Substitution with;
  for (int d : e.dims())
    if (Expr definition = dimTable[static_cast<size_t>(d)].definition)
      with.emplace_back(d, definition);
  return with.empty() ? e : substitute(e, with); // definitions hold no restricted dimensions
}

Context::Split Context::split(int dim, int64_t width) {
  assert(width > 0);
  OpKey key{dim, nullptr, width};
  if (auto it = splits.find(key); it != splits.end())
    return it->second;
  Split s;
  s.outer = addDim(std::max<int64_t>(extent(dim) / width, 1));
  s.lane = addDim(width);
  s.value = add(mul(this->dim(s.outer), width), this->dim(s.lane));
  splits.emplace(key, s);
  return s;
}

int64_t Context::evaluate(Expr e, const std::vector<int64_t> &values) {
  int64_t total = e.constantTerm();
  for (const Term &t : e.terms()) {
    int64_t v;
    if (t.atom->kind == Atom::Dim) {
      Expr definition = dimTable[static_cast<size_t>(t.atom->dim)].definition;
      v = definition ? evaluate(definition, values) : values[static_cast<size_t>(t.atom->dim)];
    } else {
      v = evaluate(t.atom->arg, values);
      v = t.atom->kind == Atom::FloorDiv ? floorDiv(v, t.atom->divisor) : floorMod(v, t.atom->divisor);
    }
    total += t.coef * v;
  }
  return total;
}

std::string Context::str(Expr e) const {
  if (!e)
    return "<null>";
  std::string out;
  for (const Term &t : e.terms()) {
    bool negative = t.coef < 0;
    out += out.empty() ? (negative ? "-" : "") : (negative ? " - " : " + ");
    if (t.atom->kind == Atom::Dim) {
      out += 'd' + std::to_string(t.atom->dim);
    } else {
      std::string inside = str(t.atom->arg);
      bool plain = inside.find(' ') == std::string::npos;
      out += '(' + (plain ? inside : '(' + inside + ')') + (t.atom->kind == Atom::FloorDiv ? " floordiv " : " mod ") +
             std::to_string(t.atom->divisor) + ')';
    }
    if (magnitude(t.coef) != 1)
      out += '*' + std::to_string(magnitude(t.coef));
  }
  if (e.constantTerm() != 0 || out.empty()) {
    bool negative = e.constantTerm() < 0;
    out += out.empty() ? (negative ? "-" : "") : (negative ? " - " : " + ");
    out += std::to_string(magnitude(e.constantTerm()));
  }
  return out;
}

} // namespace rl::index
