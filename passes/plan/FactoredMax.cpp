// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/plan/FactoredMax.h"
#include "passes/plan/NarrowQuotients.h"

#include <algorithm>

namespace rl {

namespace {

class Finder {
public:
  Finder(const Graph &graph, const Trace &trace, uint32_t reduction) : graph(graph), trace(trace) {
    out.reduction = reduction;
  }
  /// Empty: found. Else why not.
  std::string find();
  FactoredMax out;

private:
  const Instance &at(uint32_t i) const { return trace.instances[i]; }
  const Node *nodeOf(uint32_t i) const { return at(i).node == kNone ? nullptr : &graph.nodes[at(i).node]; }
  bool is(uint32_t i, OpKind op) const { return nodeOf(i) && nodeOf(i)->op == op; }
  DType typeOf(uint32_t i) const { return graph.type(at(i).value).dtype; }
  std::string nameOf(uint32_t i) const { return "'" + graph.values[at(i).value].name + "'"; }
  bool isView(uint32_t i) const {
    return nodeOf(i) && opInfo(nodeOf(i)->op).cls == OpClass::Shape && at(i).pieces.empty();
  }
  /// Below views, which are names for their operand.
  uint32_t resolve(uint32_t i) const {
    while (isView(i))
      i = at(i).operands[0];
    return i;
  }
  /// A cast between floats that loses nothing, or that a fused chain does not round.
  bool keeps(uint32_t i) const {
    return is(i, OpKind::Cast) && isArithmeticFloat(typeOf(i)) && isArithmeticFloat(typeOf(at(i).operands[0])) &&
           (typeOf(i) == DType::F32 || (nodeOf(i)->attrs.fast && !nodeOf(i)->attrs.rounded));
  }
  bool isFactor(uint32_t i) const { return !at(i).varies && at(i).level == out.level; }
  std::optional<size_t> add(FactoredMax::Step step) {
    out.steps.push_back(step);
    return out.steps.size() - 1;
  }
  bool addFactor(uint32_t i, bool divides, bool magnitude) {
    if (typeOf(i) != DType::F32) // others would be rounded by their use
      return fail("the factor " + nameOf(i) + " is no f32");
    out.factors.push_back({i, divides, magnitude});
    return out.factors.size() <= FactoredMax::kMostFactors || fail("there are more than two factors");
  }
  bool fail(std::string why) {
    if (refusal.empty())
      refusal = std::move(why);
    return false;
  }
  std::optional<size_t> walk(uint32_t, bool complete, bool magnitude);
  std::optional<size_t> operand(const Node &, uint32_t instance, size_t place, bool complete, bool magnitude);
  bool isBounded(uint32_t);
  bool hasOtherUsers(const std::vector<uint32_t> &chain);

  const Graph &graph;
  const Trace &trace;
  std::string refusal;
};

std::optional<size_t> Finder::operand(const Node &node, uint32_t instance, size_t place, bool complete,
                                      bool magnitude) {
  if (node.inputs[place].isLiteral())
    return add({.kind = FactoredMax::Step::Literal, .literal = node.inputs[place].literal.asDouble()});
  return walk(at(instance).operands[place], complete, magnitude);
}

/// The steps of a value. `complete`: nothing but factors is still to come, so that it is bounded as the maximum is. `magnitude`:
/// only that of the value counts.
std::optional<size_t> Finder::walk(uint32_t i, bool complete, bool magnitude) {
  constexpr size_t kMostSteps = 16;
  i = resolve(i);
  if (out.steps.size() > kMostSteps || at(i).scope != 0) {
    fail("it is of too long a chain");
    return {};
  }
  if (at(i).level < out.level) {
    if (!isArithmeticFloat(typeOf(i))) {
      fail(nameOf(i) + " is no float");
      return {};
    }
    return add({.kind = FactoredMax::Step::Known, .instance = i});
  }
  const Node *node = nodeOf(i);
  if (node && node->attrs.rounded) {
    fail(nameOf(i) + " is rounded, as it is stored");
    return {};
  }
  if (keeps(i))
    return walk(at(i).operands[0], complete, magnitude);
  if (is(i, OpKind::Neg) || is(i, OpKind::Abs)) {
    const bool abs = node->op == OpKind::Abs;
    std::optional<size_t> of = walk(at(i).operands[0], complete, magnitude || abs);
    if (of)
      of = add({.kind = abs ? FactoredMax::Step::Abs : FactoredMax::Step::Neg, .left = *of});
    return of;
  }
  const bool divides = is(i, OpKind::Div);
  if (!divides && !is(i, OpKind::Mul)) {
    fail(nameOf(i) + " is neither a product nor a quotient");
    return {};
  }
  for (size_t place : {1, 0}) {
    uint32_t factor = at(i).operands[place];
    if (factor == kNone || !isFactor(factor))
      continue;
    if (divides && place == 0) {
      fail(nameOf(factor) + " is divided");
      return {};
    }
    if (!addFactor(factor, divides, magnitude))
      return {};
    uint32_t other = at(i).operands[1 - place];
    if (other != kNone && !complete && !isBounded(other)) {
      fail("nothing bounds what " + nameOf(factor) + (divides ? " divides" : " multiplies"));
      return {};
    }
    return operand(*node, i, 1 - place, complete, magnitude);
  }
  if (divides && at(i).operands[1] != kNone && at(at(i).operands[1]).level == out.level) {
    fail(nameOf(at(i).operands[1]) + " divides");
    return {};
  }
  std::optional<size_t> left = operand(*node, i, 0, false, magnitude), right;
  if (left)
    right = operand(*node, i, 1, false, magnitude);
  if (!right)
    return {};
  return add({.kind = divides ? FactoredMax::Step::Div : FactoredMax::Step::Mul, .left = *left, .right = *right});
}

/// Whether the magnitude of a value that a factor multiplies is at most kLimit where the squares are within their limit.
bool Finder::isBounded(uint32_t i) {
  auto below = [&](uint32_t o) {
    for (o = resolve(o); keeps(o) || is(o, OpKind::Neg) || is(o, OpKind::Abs); o = resolve(o))
      o = at(o).operands[0];
    return o;
  };
  i = below(i);
  if (at(i).level >= out.level)
    return false;
  if (at(i).node == kNone && typeOf(i) == DType::F16)
    return true;
  for (uint32_t s = 0; s < trace.instances.size(); ++s) {
    if (!is(s, OpKind::Sum) || at(s).segment || at(s).level > out.level || typeOf(s) != DType::F32)
      continue;
    uint32_t of = resolve(at(s).operands[0]);
    const bool squares = is(of, OpKind::Square) || (is(of, OpKind::Mul) && at(of).operands[0] == at(of).operands[1]);
    if (!squares || at(of).operands[0] == kNone || below(at(of).operands[0]) != i)
      continue;
    if (std::find(out.squares.begin(), out.squares.end(), s) == out.squares.end())
      out.squares.push_back(s);
    return true;
  }
  return false;
}

/// Whether the chain's instances are used otherwise than by each other, or to be divided for values of 8 bits.
bool Finder::hasOtherUsers(const std::vector<uint32_t> &chain) {
  std::vector<bool> own(trace.instances.size(), false);
  for (uint32_t i : chain)
    own[i] = true;
  auto isOwn = [&](uint32_t i) { return i != kNone && own[i]; };
  for (const TraceStore &s : trace.stores)
    if (own[s.instance])
      return true;
  for (const TraceStore &s : trace.columnSums)
    if (own[s.instance])
      return true;
  const std::vector<bool> narrow = narrowQuotients(graph, trace);
  std::vector<uint32_t> quotients;
  for (uint32_t i = 0; i < trace.instances.size(); ++i) {
    if (i == out.reduction)
      continue;
    const Instance &in = at(i);
    const bool divided = narrow[i] && isOwn(in.operands[0]) && !isOwn(in.operands[1]);
    if (divided)
      quotients.push_back(i);
    for (size_t o = 0; o < in.operands.size(); ++o) {
      if (!isOwn(in.operands[o]) || own[i] || (divided && o == 0))
        continue;
      if (!isView(i) || o > 0)
        return true;
      own[i] = true; // users come behind
      for (const TraceStore &s : trace.stores)
        if (s.instance == i)
          return true;
    }
    for (const Instance::Piece &p : in.pieces)
      if (isOwn(p.instance))
        return true;
  }
  // Of the value itself, not of its magnitude.
  if (quotients.size() == 1 && out.roundings.empty() && resolve(at(quotients[0]).operands[0]) == out.value)
    if (uint32_t divisor = at(quotients[0]).operands[1]; divisor != kNone && !at(divisor).varies)
      out.quotient = quotients[0];
  return false;
}

std::string Finder::find() {
  std::vector<uint32_t> chain;
  auto down = [&](uint32_t i) {
    for (; isView(i); i = at(i).operands[0])
      chain.push_back(i);
    return i;
  };
  uint32_t i = down(at(out.reduction).operands[0]);
  chain.push_back(i); // |v|
  i = down(at(i).operands[0]);
  out.level = at(i).level;
  auto rounds = [&](uint32_t o) {
    return is(o, OpKind::Cast) && isArithmeticFloat(typeOf(o)) && isArithmeticFloat(typeOf(at(o).operands[0]));
  };
  std::vector<uint32_t> casts;
  for (; rounds(i); i = down(at(i).operands[0])) {
    chain.push_back(i);
    casts.push_back(i);
  }
  chain.push_back(i);
  out.value = i;
  out.roundings.assign(casts.rbegin(), casts.rend());
  if (!isArithmeticFloat(typeOf(i)) || at(i).segment)
    return nameOf(i) + " is no float";
  if (at(out.reduction).level != trace.levels)
    return "other reductions follow it";
  if (!walk(i, /*complete=*/true, /*magnitude=*/false))
    return refusal;
  if (out.factors.empty())
    return "it has no factor that the row shares";
  if (hasOtherUsers(chain))
    return "more is made of " + nameOf(out.value) + " than values of 8 bits";
  return {};
}

} // namespace

Factoring findFactoredMax(const Graph &graph, const Trace &trace) {
  Factoring out;
  if (graph.strict || trace.width == 0 || trace.lanesAcross)
    return out;
  for (uint32_t i = 0; i < trace.instances.size(); ++i) {
    const Instance &in = trace.instances[i];
    if (in.node == kNone || graph.nodes[in.node].op != OpKind::Amax || in.segment || in.level < 2 ||
        graph.type(in.value).dtype != DType::F32 || in.operands[0] == kNone)
      continue;
    uint32_t of = in.operands[0];
    auto isView = [&](uint32_t o) {
      const Instance &at = trace.instances[o];
      return at.node != kNone && opInfo(graph.nodes[at.node].op).cls == OpClass::Shape && at.pieces.empty();
    };
    while (isView(of))
      of = trace.instances[of].operands[0];
    const Instance &magnitude = trace.instances[of];
    if (magnitude.node == kNone || graph.nodes[magnitude.node].op != OpKind::Abs || !magnitude.varies ||
        magnitude.scope != 0 || magnitude.level + 1 != in.level)
      continue;
    Finder finder(graph, trace, i);
    std::string refusal = finder.find();
    if (refusal.empty()) {
      out.found = std::move(finder.out);
      return out;
    }
    if (out.refusal.empty())
      out.refusal = std::move(refusal);
  }
  return out;
}

} // namespace rl
