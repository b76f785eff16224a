// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/plan/ColumnSums.h"
#include "passes/plan/RowPlannerParts.h"
#include "passes/plan/Stream.h"
#include "passes/plan/Wgmma.h"

#include <algorithm>
#include <deque>

namespace rl {

/// Where to part the way from an output to a reduction over other rows: at what is stored anyway, else at what the layout op
/// nearest to the output reads, or the smallest of what the layout ops right above it do, else at the reduction.
ValueId RowPlanner::cutOnPath(const std::vector<ValueId> &path) const {
  auto free = [&](ValueId v) {
    auto it = cuts.find(v);
    return it == cuts.end() || !it->second.hard;
  };
  for (size_t i = 1; i < path.size(); ++i)
    if (stored.contains(path[i]) && free(path[i]))
      return path[i];
  if (isProduct(*nodeOf(path.back())))
    return cutBehindProduct(path);
  for (size_t i = 0; i + 1 < path.size(); ++i)
    switch (nodeOf(path[i])->op) {
    case OpKind::Permute:
    case OpKind::Flip:
    case OpKind::Slice:
    case OpKind::Cat:
    case OpKind::Pad:
    case OpKind::Expand:
    case OpKind::Embedding:
    case OpKind::IndexSelect:
    case OpKind::Gather:
      if (free(path[i + 1]) && nodeOf(path[i + 1])) {
        ValueId best = path[i + 1];
        for (size_t k = i + 1; k + 1 < path.size() && opInfo(nodeOf(path[k])->op).cls == OpClass::Shape; ++k)
          if (free(path[k + 1]) && graph.type(path[k + 1]).elements() < graph.type(best).elements())
            best = path[k + 1];
        return best;
      }
      break;
    default: break;
    }
  return path.back();
}

/// How much of what follows a product its kernel takes along: as far as the elements stay its own, to the smallest type, and
/// to the last value of that. What needs another hero is not for this kernel, unless that one shares it.
ValueId RowPlanner::cutBehindProduct(const std::vector<ValueId> &path) const {
  ValueId product = path.back(), best = product;
  const Node &hero = *nodeOf(product);
  auto joins = [&](ValueId v) { // a product over the same left operand alone
    std::vector<ValueId> work{v};
    std::set<ValueId> seen{v};
    while (!work.empty()) {
      ValueId u = work.back();
      work.pop_back();
      const Node *node = nodeOf(u);
      if (!node || !cones.heroes[u] || stored.contains(u))
        continue;
      if (isHero(*node)) {
        if (!isProduct(*node) || (u != product && !shareKernel(graph, *node, hero)))
          return false;
        continue;
      }
      for (const Operand &o : node->inputs)
        if (!o.isLiteral() && seen.insert(o.value).second)
          work.push_back(o.value);
    }
    return true;
  };
  for (size_t i = path.size() - 1; i-- > 1;) {
    const Node &node = *nodeOf(path[i]);
    bool same = opInfo(node.op).cls != OpClass::Shape || node.op == OpKind::Reshape || node.op == OpKind::Unsqueeze ||
                node.op == OpKind::Squeeze;
    if (!same || isHero(node) || graph.type(path[i]).elements() != graph.type(product).elements())
      break;
    bool pure = true;
    for (const Operand &o : node.inputs)
      if (!o.isLiteral() && o.value != path[i + 1])
        pure &= !cones.heroes[o.value] || (stored.contains(o.value) ? !dependsOn(o.value, product) : joins(o.value));
    if (!pure)
      break;
    auto it = cuts.find(path[i]);
    if ((it == cuts.end() || !it->second.hard) &&
        dtypeSize(graph.type(path[i]).dtype) <= dtypeSize(graph.type(best).dtype))
      best = path[i];
  }
  return best;
}

bool RowPlanner::dependsOn(ValueId v, ValueId on) const {
  std::vector<ValueId> work{v};
  std::set<ValueId> seen{v};
  while (!work.empty()) {
    ValueId u = work.back();
    work.pop_back();
    if (u == on)
      return true;
    if (const Node *node = nodeOf(u))
      for (const Operand &o : node->inputs)
        if (!o.isLiteral() && cones.heroes[o.value] && seen.insert(o.value).second)
          work.push_back(o.value);
  }
  return false;
}

/// What a kernel of this space computes for `v`, itself first, and what it loads. What only a product's operands need is
/// loaded as soon as it is stored.
void RowPlanner::above(ValueId v, Space s, std::vector<ValueId> &computed, std::vector<ValueId> *loaded) const {
  std::set<std::pair<ValueId, bool>> seen{{v, false}};
  std::vector<std::pair<ValueId, bool>> work{{v, false}};
  while (!work.empty()) {
    auto [u, operand] = work.back();
    work.pop_back();
    if (!operand)
      computed.push_back(u);
    const Node *node = nodeOf(u);
    if (!node)
      continue;
    bool inner = operand || isProduct(*node);
    for (const Operand &o : node->inputs)
      if (!o.isLiteral() && seen.insert({o.value, inner}).second) {
        if (inner ? stored.contains(o.value) : loadedFor(o.value, s)) {
          if (loaded)
            loaded->push_back(o.value);
        } else {
          work.push_back({o.value, inner});
        }
      }
  }
}

/// Products read their operands over and over: what is more than a view or a widening cast of a load is written first, unless it
/// is computed but once and from no more than it has itself.
void RowPlanner::storeOperands() {
  std::vector<bool> boundary(graph.values.size(), false);
  for (ValueId v : stored)
    boundary[v] = true;
  /// Of 8-bit numbers, in more rows than are streamed: it might have been widened where it is multiplied.
  auto isWidened = [&](ValueId v) {
    const Node *from = nodeOf(v);
    if (!target.gpu || target.sm != 90 || !from || dtypeSize(graph.type(v).dtype) != 2)
      return false;
    std::vector<ValueId> work{v};
    for (size_t i = 0; i < work.size() && i < 16; ++i)
      if (const Node *node = nodeOf(work[i]); node && !stored.contains(work[i])) {
        for (const Operand &o : node->inputs)
          if (!o.isLiteral())
            work.push_back(o.value);
      } else if (cost::isNarrow(graph.type(work[i]).dtype) &&
                 graph.type(work[i]).elements() == graph.type(v).elements()) {
        return true;
      }
    return false;
  };
  auto cutComputed = [&](ValueId v, const Node &product, const std::string &why = {}) {
    const Node *from = nodeOf(v);
    if (from && !stored.contains(v) && opInfo(from->op).cls != OpClass::Creation) {
      cut(v, "stored: '" + graph.values[product.outputs[0]].name + "' multiplies it" + why);
      boundary[v] = true; // the right operand is streamed beside a left one that is in memory
    }
  };
  for (const Node &node : graph.nodes)
    if (isProduct(node)) {
      if (target.gpu && target.sm == 90) {
        auto x = scaledOperand(graph, node.inputs[0].value, stored),
             y = scaledOperand(graph, node.inputs[1].value, stored);
        if (x && y) {
          for (ValueId v : {x->first, x->second, y->first, y->second})
            cutComputed(v, node);
          continue;
        }
      }
      for (bool left : {true, false}) {
        ValueId operand = node.inputs[left ? 0 : 1].value, v = operandSource(graph, operand, &stored);
        if (left && mayComputeLeft(node, v))
          continue; // the product's kernel is judged with and without
        if (readsOnce(graph, node, left, stored) || (!left && streamsOperand(graph, node, boundary, target)))
          continue;
        const std::string why = left ? std::string() : turnedRefusal(graph, node, boundary, target);
        if (!left && why.empty())
          continue; // judged with and without as well
        const bool asks = !left && productShape(graph, node).m > cost::kMostStreamRows && isWidened(v);
        cutComputed(v, node, asks ? "; " + (kNotTurned + why) : std::string());
      }
    }
}

std::vector<ValueId> RowPlanner::pathTo(const std::vector<ValueId> &outputs, NodeId hero, Space s) const {
  std::map<ValueId, ValueId> below;
  std::deque<ValueId> work;
  for (ValueId v : outputs) {
    below.try_emplace(v, kNone);
    work.push_back(v);
  }
  while (!work.empty()) {
    ValueId u = work.front();
    work.pop_front();
    const Node *node = nodeOf(u);
    if (!node)
      continue;
    if (graph.values[u].node == hero) {
      std::vector<ValueId> path;
      for (; u != kNone; u = below[u])
        path.push_back(u);
      std::reverse(path.begin(), path.end());
      return path;
    }
    if (!isProduct(*node))
      for (const Operand &o : node->inputs)
        if (!o.isLiteral() && !loadedFor(o.value, s) && below.try_emplace(o.value, u).second)
          work.push_back(o.value);
  }
  return {};
}

/// A product that two kernels would compute is written by the first of them. False: something was cut, plan again.
bool RowPlanner::productsOnce(const std::vector<Draft> &drafts) {
  std::map<NodeId, size_t> owner;
  for (size_t d = 0; d < drafts.size(); ++d) // ascending levels
    if (drafts[d].space.product)
      for (ValueId v : drafts[d].outputs) {
        std::vector<ValueId> computed;
        above(v, drafts[d].space, computed, nullptr);
        for (ValueId u : computed)
          if (nodeOf(u) && isProduct(*nodeOf(u))) {
            NodeId hero = graph.values[u].node;
            auto [it, fresh] = owner.try_emplace(hero, d);
            if (fresh || it->second == d)
              continue;
            std::vector<ValueId> path = pathTo(drafts[d].outputs, hero, drafts[d].space);
            if (cut(cutOnPath(path), "stored: a later kernel needs it beside what was not there yet", true))
              return false;
          }
      }
  return true;
}

/// The way from a stored value up to the hero (reduction or product) nearest above it, value first; empty: there is none. It does not lead through
/// what is cut hard, nor, where `softly`, through what is cut at all.
std::vector<ValueId> RowPlanner::nearestHero(ValueId v, bool softly) const {
  std::map<ValueId, ValueId> below{{v, kNone}};
  std::deque<ValueId> work{v};
  while (!work.empty()) {
    ValueId u = work.front();
    work.pop_front();
    const Node *node = nodeOf(u);
    auto it = cuts.find(u);
    if (!node || !cones.heroes[u] || (u != v && it != cuts.end() && (softly || it->second.hard)))
      continue;
    if (isHero(*node)) {
      std::vector<ValueId> path;
      for (; u != kNone; u = below[u])
        path.push_back(u);
      std::reverse(path.begin(), path.end());
      return path;
    }
    for (const Operand &o : node->inputs)
      if (!o.isLiteral() && below.try_emplace(o.value, u).second)
        work.push_back(o.value);
  }
  return {};
}

/// Sums down the columns of what a row kernel computes, or at least loads, are carried along by it.
void RowPlanner::carryColumnSums() {
  carried.clear();
  auto leastParts = static_cast<int64_t>(target.smCount / 2);
  auto tryRows = [&](ValueId v, const Node &hero) {
    Space s = rowsOf(hero);
    bool fits = isReduction(hero) && isColumnSumOf(graph, v, s.rows, s.width, leastParts);
    if (fits)
      carried.emplace(v, s);
    return fits;
  };
  for (ValueId v : stored) {
    const Node *node = nodeOf(v);
    if (!target.gpu || notCarried.contains(v) || !node || node->op != OpKind::Sum || node->inputs[0].isLiteral())
      continue;
    ValueId of = node->inputs[0].value;
    if (std::vector<ValueId> path = nearestHero(of, false); !path.empty()) {
      tryRows(v, *nodeOf(path.back()));
      continue;
    }
    std::set<ValueId> own = largeLoads(graph, stored, of, graph.type(of).elements());
    for (ValueId other : stored) {
      std::vector<ValueId> path = other == v ? std::vector<ValueId>() : nearestHero(other, false);
      if (path.empty() || !inSpace(other, rowsOf(*nodeOf(path.back()))))
        continue;
      std::set<ValueId> theirs = largeLoads(graph, stored, other, graph.type(of).elements());
      if (std::any_of(own.begin(), own.end(), [&](ValueId u) { return theirs.contains(u); }) &&
          tryRows(v, *nodeOf(path.back())))
        break;
    }
  }
}

/// Where a reduction farther above has rows that are each several of the nearest one's (a norm of a row, and what its blocks are
/// quantised by), the kernel is over those, and the nearest one takes segments of them.
Space RowPlanner::longestRows(ValueId v, Space rows) const {
  Space best = rows;
  std::set<ValueId> seen{v};
  std::vector<ValueId> work{v};
  while (!work.empty() && !whole.contains(v)) {
    ValueId u = work.back();
    work.pop_back();
    const Node *node = nodeOf(u);
    auto it = cuts.find(u);
    if (!node || !cones.heroes[u] || isProduct(*node) || (u != v && it != cuts.end() && it->second.hard))
      continue;
    if (isReduction(*node))
      if (Space s = rowsOf(*node); s.rows * s.width == rows.rows * rows.width && s.width > best.width &&
                                   s.width % rows.width == 0 && s.width % best.width == 0)
        best = s;
    for (const Operand &o : node->inputs)
      if (!o.isLiteral() && seen.insert(o.value).second)
        work.push_back(o.value);
  }
  return best;
}

/// Gives every stored value its space, from the reduction nearest above it. Where that one's rows do not make up the value,
/// something is cut in between, until none is left that is not.
bool RowPlanner::spacesFit() {
  spaces.clear();
  lifted.clear();
  carryColumnSums();
  for (ValueId v : stored) {
    if (auto it = carried.find(v); it != carried.end()) {
      spaces[v] = it->second;
      continue;
    }
    Space space{graph.type(v).elements(), 0};
    std::vector<ValueId> path = nearestHero(v, false);
    auto fits = [&] { return !path.empty() && inSpace(v, rowsOf(*nodeOf(path.back()))); };
    // Behind a cut that may yet be computed again there may be one whose rows are others, and before it one that has these.
    if (!path.empty() && !fits())
      path = nearestHero(v, true);
    if (fits()) {
      Space rows = rowsOf(*nodeOf(path.back()));
      if (std::optional<Space> product = rows.product ? rows : productOfRows(v, rows); product) {
        space = *product;
      } else {
        space = longestRows(v, rows);
        if (space != rows)
          lifted.insert(v);
      }
    } else if (!path.empty()) {
      cut(cutOnPath(path), "stored: " + quoted(graph, v) + " is not made of the " +
                               (isProduct(*nodeOf(path.back())) ? "elements of '" : "rows of '") +
                               graph.values[path.back()].name + "'");
      return false;
    }
    spaces[v] = space;
  }
  return true;
}

/// How many kernels must have run before each stored value can be computed.
void RowPlanner::placeLevels() {
  level.clear();
  for (ValueId v : stored) { // ascending: operands come before results
    Space s = spaces.at(v);
    int most = 0;
    std::vector<ValueId> computed, loaded;
    above(v, s, computed, &loaded);
    for (ValueId u : loaded)
      if (nodeOf(u))
        most = std::max(most, level.at(u) + 1);
    level[v] = most;
  }
}

} // namespace rl
