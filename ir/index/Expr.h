// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Index expressions: which element of an operand does a result element read?
//
// THE PROBLEM. A kernel iterates over a space of points (d0, d1, ...), each 0 <= di < ni. Layout ops (reshape, permute,
// slice, ...) move no data in a fused kernel: they only change the index at which their operand is read. Composing a
// chain of them gives, for every load, an integer function of the point. Three questions matter about that function:
// what does it cost to evaluate, do consecutive points read consecutive elements, and is the first of them aligned? All
// three are answered by bringing the function to a normal form in which a chain that cancels *has* cancelled.
//
// THE NORMAL FORM. An Expr is a sum
//
//     c1*a1 + c2*a2 + ... + k          ci, k integers, ci != 0, the ai distinct atoms
//
// and an atom is an iteration dimension d, a rounded-down quotient (S floordiv c), or a remainder (S mod c), where S is
// again such a sum and c > 1 a constant. floordiv rounds towards minus infinity and mod is its remainder, so that
// always S = c*(S floordiv c) + (S mod c) and 0 <= S mod c < c, for negative S too. Expressions are hash-consed: two
// handles of one Context are equal exactly when their normal forms are, and comparing them is comparing pointers.
//
// RANGES do most of the work. Every dimension has a known extent, so every expression has an interval [lo, hi] that
// holds all of its values. The rules, each exact for all integers:
//
//   R1 split     (c*Q + R) floordiv c = Q + (R floordiv c)
//                (c*Q + R) mod c = R mod c
//   R2 range     where m*c <= R < (m+1)*c everywhere:
//                R floordiv c = m,  R mod c = R - m*c
//   R3 common    where 0 <= r < g:
//                (g*A + r) floordiv (g*m) = A floordiv m
//                (g*A + r) mod (g*m) = g*(A mod m) + r
//   R4 nesting   (Y + (X floordiv a)) floordiv b = (a*Y + X) floordiv (a*b)
//                (X mod m) floordiv a = (X floordiv a) mod (m/a)          where a divides m
//                (Y + k*(X mod m)) mod c = (Y + k*X) mod c                where c divides k*m
//   R5 rejoin    c*(S floordiv c) + (S mod c) = S
//                c*((S floordiv c) mod n) + (S mod c) = S mod (c*n)
//                applied, in either direction, whenever it makes a sum lighter (Expr::weight) and no less bounded
//   R6 trivial   a dimension of extent 1 (or 0: there is no point at all) is the constant 0
//
// WORKED CASES.
//  * View a [B, H*D] matrix as [B, H, D], with D = 128, H = 32. The result's point (b, h, d) has the linear index
//    4096*b + 128*h + d. The operand's row is (4096*b + 128*h + d) floordiv 4096 = b + ((128*h + d) floordiv 4096)
//    [R1] = b, as 128*h + d is at most 4095  [R2]; its column is (128*h + d) mod 4096 = 128*h + d  [R2].
//  * The way back, from the point (b, e), e < 4096: h = (4096*b + e) floordiv 128 mod 32 = (32*b + (e floordiv 128))
//    mod 32 = e floordiv 128, d = e mod 128. Linearised again: 4096*b + 128*(e floordiv 128) + (e mod 128) = 4096*b + e
//    [R5].
//  * Vectors of 8: put e = 8*j + l, 0 <= l < 8. (8*j + l) mod 128 = 8*(j mod 16) + l  [R3 with g = 8]: eight
//    consecutive elements from a multiple of 8, which is what one 16-byte access of bf16 needs. See Access.h.
//  * Flip: 63 - d with d < 64. (63 - d) floordiv 64 = 0  [R2]; negative coefficients are ordinary.
//
// LIMITS. The form is canonical for chains of the format's layout ops over extents that divide one another, not for all
// expressions: two equal functions may keep different forms where no rule applies (then a kernel is merely slower).
// Arithmetic is in int64. An interval end that does not fit is an infinity (INT64_MIN, INT64_MAX), which no rule
// trusts; a coefficient that does not fit sets Context::overflowed(), and that context's results are then void.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace rl::index {

inline constexpr int64_t kMinusInfinity = std::numeric_limits<int64_t>::min();
inline constexpr int64_t kPlusInfinity = std::numeric_limits<int64_t>::max();

/// Weights stop here: a chain of reshapes and permutes can double an expression at each step, as a tree.
inline constexpr uint32_t kMaxWeight = 1u << 30;

/// Quotient rounded to minus infinity, and its remainder in [0, c). c > 0.
inline int64_t floorDiv(int64_t a, int64_t c) { return a / c - (a % c < 0); }
inline int64_t floorMod(int64_t a, int64_t c) { return a % c + (a % c < 0 ? c : 0); }

/// A closed interval; its ends may be the infinities above.
struct Range {
  int64_t lo = 0, hi = 0;
  bool within(int64_t from, int64_t to) const { return lo >= from && hi <= to; }
  bool operator==(const Range &) const = default;
};

struct Atom;
struct Sum;
struct Term {
  int64_t coef;
  const Atom *atom;
  bool operator==(const Term &) const = default;
};

/// A handle to an immutable expression of one Context. Equality is equality of normal forms. A default-made one
/// is null.
struct Expr {
  const Sum *sum = nullptr;

  explicit operator bool() const { return sum != nullptr; }
  bool operator==(const Expr &) const = default;

  const std::vector<Term> &terms() const; ///< in the order in which the atoms were first made: deterministic
  int64_t constantTerm() const;
  bool isConstant() const { return terms().empty(); }
  Range range() const;
  const std::vector<int> &dims() const; ///< the dimensions that occur anywhere within, ascending
  bool dependsOn(int dim) const;
  /// The dimension occurs inside a floordiv or mod, so that `coefficient` does not tell its whole influence.
  bool dependsNonlinearly(int dim) const;
  /// The factor of the dimension as a term of the sum itself; 0 when it is none.
  int64_t coefficient(int dim) const;
  /// The greatest g such that every term but `dim`'s own, the constant included, is a multiple of g wherever it is
  /// evaluated. 0: all of that is zero, so any g will do. dim -1: of the whole expression.
  int64_t divisor(int dim = -1) const;
  /// Cost of evaluating it as a tree: a dimension counts 1, a floordiv or mod 2 more than what is inside. At most
  /// kMaxWeight. Parts are shared: whoever walks an expression (to emit it) remembers the atoms and sums that it has
  /// been through.
  uint32_t weight() const;
  /// Every intermediate value fits 31 bits and a sign when terms are added in any order: 32-bit arithmetic is enough.
  bool fits32() const;
};

struct Atom {
  enum Kind : uint8_t { Dim, FloorDiv, Mod } kind = Dim;
  int dim = -1;        ///< Dim
  Expr arg;            ///< FloorDiv, Mod
  int64_t divisor = 1; ///< FloorDiv, Mod: > 1
  Range range;
  uint32_t id = 0, weight = 1;
};

struct Sum {
  std::vector<Term> terms;
  int64_t constant = 0;
  Range range;
  std::vector<int> dims;
  uint32_t id = 0, weight = 0;
  bool fits32 = false;
};

/// Values for the dimensions that a substitution replaces.
using Substitution = std::vector<std::pair<int, Expr>>;

/// Owns expressions. Not thread safe; expressions of two contexts must not meet.
class Context {
public:
  Context() = default;
  /// Dimensions 0, 1, ... with these extents.
  explicit Context(const std::vector<int64_t> &extents) {
    for (int64_t n : extents)
      addDim(n);
  }
  Context(const Context &) = delete;
  Context &operator=(const Context &) = delete;

  /// A new dimension: a value in [0, extent). Iteration dimensions, lanes, and indices that are loaded from memory.
  int addDim(int64_t extent);
  int dimCount() const { return static_cast<int>(dimTable.size()); }
  int64_t extent(int dim) const { return dimTable[static_cast<size_t>(dim)].extent; }

  Expr dim(int dim);
  Expr constant(int64_t c);
  Expr add(Expr a, Expr b);
  Expr add(Expr a, int64_t c);
  Expr sub(Expr a, Expr b);
  Expr mul(Expr a, int64_t c);
  Expr floordiv(Expr a, int64_t c); ///< c > 0
  Expr mod(Expr a, int64_t c);      ///< c > 0

  /// Replaces dimensions, all at once, and simplifies again.
  Expr substitute(Expr e, const Substitution &);
  Expr substitute(Expr e, int dim, Expr with) { return substitute(e, Substitution{{dim, with}}); }

  /// `e` where it is known, from a condition that holds whenever the value matters, that 0 <= e < extent (an index into
  /// one operand of a cat, or inside a pad). Is `e` itself if its range already says so; otherwise a dimension of that
  /// extent which stands for it, so that simplification may use the bound. `expand` puts what it stands for back.
  Expr restrict(Expr e, int64_t extent);
  /// Replaces every dimension that `restrict` made by its definition. Do this before evaluating or emitting.
  Expr expand(Expr e);

  /// The parts of dimension `dim` = width*outer + lane, 0 <= lane < width, over its whole vectors. Made once a pair.
  struct Split {
    int outer, lane;
    Expr value; ///< width*outer + lane
  };
  Split split(int dim, int64_t width);

  /// The value at a point; `values` by dimension number (those that `restrict` made are computed).
  int64_t evaluate(Expr e, const std::vector<int64_t> &values);

  /// "d0*4096 + (d1 floordiv 64) - 3".
  std::string str(Expr e) const;

  /// A coefficient or constant did not fit int64.
  bool overflowed() const { return overflow; }

private:
  struct DimEntry {
    int64_t extent;
    Expr definition;
    const Atom *atom;
  };
  struct OpKey {
    int op;
    const Sum *arg;
    int64_t c;
    bool operator==(const OpKey &) const = default;
  };
  struct OpKeyHash {
    size_t operator()(const OpKey &) const;
  };

  int64_t mulChecked(int64_t a, int64_t b);
  int64_t addChecked(int64_t a, int64_t b);
  Expr make(std::vector<Term> terms, int64_t constant);
  Expr intern(std::vector<Term> terms, int64_t constant);
  Expr rejoin(Expr e);
  Expr atomExpr(Atom::Kind, Expr arg, int64_t c);
  const Atom *atom(Atom::Kind, Expr arg, int64_t c);
  Expr simplifyFloorDiv(Expr e, int64_t c);
  Expr simplifyMod(Expr e, int64_t c);
  struct Common {
    int64_t g = 0; ///< 0: none
    Expr multiple, rest;
  };
  Common commonFactor(Expr e, int64_t c);
  Expr substituteIn(Expr e, const Substitution &, std::unordered_map<const Sum *, Expr> &memo);

  std::vector<DimEntry> dimTable;
  std::deque<Atom> atoms;
  std::deque<Sum> sums;
  std::unordered_multimap<size_t, const Sum *> sumTable;
  std::unordered_map<OpKey, const Atom *, OpKeyHash> atomTable;
  std::unordered_map<OpKey, Expr, OpKeyHash> results, restrictions;
  std::unordered_map<OpKey, Split, OpKeyHash> splits;
  bool overflow = false;
};

} // namespace rl::index
