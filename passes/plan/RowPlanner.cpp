// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/plan/RowPlanner.h"
#include "passes/plan/ColumnSums.h"
#include "passes/plan/Cuts.h"
#include "passes/plan/Gemm.h"
#include "passes/plan/Measure.h"
#include "passes/plan/RowSchedule.h"
#include "passes/plan/Trace.h"
#include "passes/plan/TransposePlanner.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <set>

namespace rl {

namespace {

std::string quoted(const Graph &graph, ValueId v) { return "'" + graph.values[v].name + "'"; }

/// Plain rows of elements have width 0: they are not reduced. A product of [B, M, N] has B*M rows of N.
struct Space {
  int64_t rows = 0, width = 0;
  bool product = false;
  auto operator<=>(const Space &) const = default;
};

class RowPlanner {
public:
  RowPlanner(const Graph &graph, const cost::TargetDesc &target) : graph(graph), target(target) {}
  Result<Plan> run();

private:
  struct Cut {
    std::string reason;
    bool hard = false; ///< loaded even by a kernel over the same rows
  };
  struct Draft {
    Space space;
    int level = 0;
    std::vector<ValueId> outputs;
  };
  /// A group, or (cut) what must be written first.
  struct Verdict {
    std::optional<PlannedGroup> group;
    ValueId cut = kNone;
    std::string reason;
    bool hard = false;            ///< to be loaded even by a kernel over the same rows
    std::vector<ValueId> dropped; ///< column sums that the kernel cannot carry
  };

  const Node *nodeOf(ValueId v) const {
    return graph.values[v].kind == Value::Result ? &graph.nodes[graph.values[v].node] : nullptr;
  }
  Space rowsOf(const Node &hero) const {
    int64_t rows = graph.type(hero.outputs[0]).elements();
    if (isProduct(hero)) {
      ProductShape shape = productShape(graph, hero);
      return {shape.rows(), shape.n, true};
    }
    return {rows, graph.type(hero.inputs[0].value).elements() / rows};
  }
  bool inSpace(ValueId v, Space s) const {
    if (auto own = carried.find(v); own != carried.end())
      return own->second == s;
    int64_t n = graph.type(v).elements();
    return (n == s.rows && !s.product) || (s.width && n == s.rows * s.width);
  }
  void above(ValueId v, Space s, std::vector<ValueId> &computed, std::vector<ValueId> *loaded) const;
  bool dependsOn(ValueId v, ValueId on) const;
  void storeOperands();
  ValueId cutBehindProduct(const std::vector<ValueId> &path) const;
  std::vector<ValueId> pathTo(const std::vector<ValueId> &outputs, NodeId hero, Space s) const;
  bool productsOnce(const std::vector<Draft> &);
  bool loadedFor(ValueId v, Space s) const;
  Status checkSupported() const;
  void carryColumnSums();
  bool spacesFit(); ///< false: something was cut, plan again
  void placeLevels();
  std::vector<Draft> drafts() const;
  void joinPointwise(std::vector<Draft> &, std::set<ValueId> &pointwise) const;
  std::vector<ValueId> nearestHero(ValueId v, bool softly) const;
  ValueId cutOnPath(const std::vector<ValueId> &path) const;
  bool cut(ValueId v, std::string reason, bool hard = false);
  Result<Verdict> judge(const Draft &);
  Result<Verdict> judgeProducts(const Draft &);
  Result<Plan> planPointwiseAt(int level, const std::set<ValueId> &outputs) const;

  const Graph &graph;
  const cost::TargetDesc &target;
  std::set<ValueId> stored;
  std::map<ValueId, Cut> cuts;
  std::map<ValueId, Space> spaces; ///< of what is stored
  /// Stored sums down the columns of a row kernel's rows, which it carries along; and those that it cannot carry.
  std::map<ValueId, Space> carried;
  std::set<ValueId> notCarried;
  std::map<ValueId, int> level;
  Cones cones;
};

Status RowPlanner::checkSupported() const {
  for (NodeId n = 0; n < graph.nodes.size(); ++n)
    if (const Node &node = graph.nodes[n]; !isPointwise(node.op) && !isHero(node))
      return unsupported(node.pointer(), graph.describe(n) +
                                             ": only elementwise, layout, creation and indexing ops, reductions, "
                                             "norms, softmax, losses, quantisation, "
                                             "matrix products and attention are compiled for " +
                                             target.name + "; the target 'reference' runs every op");
  return {};
}

/// What another kernel stores is loaded where it was cut, and where it lies in another space and is not cheap; a kernel over
/// the same rows computes it again, and stores it too if it can.
bool RowPlanner::loadedFor(ValueId v, Space s) const {
  if (!stored.contains(v))
    return false;
  if (carried.contains(v))
    return true;
  auto it = cuts.find(v);
  if (it != cuts.end() && (it->second.hard || s.width == 0))
    return true;
  // Beside a product nothing is computed twice.
  if (it != cuts.end() && s.product && (!spaces.contains(v) || spaces.at(v) != s))
    return true;
  if (!inSpace(v, s))
    return it != cuts.end() || cones.heroes[v] || cones.work[v] > 8;
  // The same number of elements, but of other rows.
  if (auto own = spaces.find(v); own != spaces.end() && own->second.width && own->second != s)
    return true;
  return false;
}

bool RowPlanner::cut(ValueId v, std::string reason, bool hard) {
  bool fresh = stored.insert(v).second;
  auto [it, made] = cuts.try_emplace(v, Cut{std::move(reason), false});
  if (!made && it->second.hard)
    return false;
  if (hard || !made || (!fresh && cones.heroes[v] && !isHero(*nodeOf(v))))
    it->second.hard = true;
  return true;
}

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
  for (const Node &node : graph.nodes)
    if (isProduct(node))
      for (bool left : {true, false}) {
        ValueId operand = node.inputs[left ? 0 : 1].value, v = operandSource(graph, operand, &stored);
        const Node *from = nodeOf(v);
        if (from && !stored.contains(v) && opInfo(from->op).cls != OpClass::Creation &&
            !readsOnce(graph, node, left, stored))
          cut(v, "stored: '" + graph.values[node.outputs[0]].name + "' multiplies it");
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

/// Gives every stored value its space, from the reduction nearest above it. Where that one's rows do not make up the value,
/// something is cut in between, until none is left that is not.
bool RowPlanner::spacesFit() {
  spaces.clear();
  carryColumnSums();
  for (ValueId v : stored) {
    if (auto it = carried.find(v); it != carried.end()) {
      spaces[v] = it->second;
      continue;
    }
    Space space{graph.type(v).elements(), 0};
    if (std::vector<ValueId> path = nearestHero(v, false); !path.empty()) {
      Space rows = rowsOf(*nodeOf(path.back()));
      if (inSpace(v, rows)) {
        space = rows;
      } else if (path = nearestHero(v, true); !path.empty()) {
        cut(cutOnPath(path), "stored: " + quoted(graph, v) + " is not made of the " +
                                 (isProduct(*nodeOf(path.back())) ? "elements of '" : "rows of '") +
                                 graph.values[path.back()].name + "'");
        return false;
      }
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

/// Row kernels: stored values of one space and level that read a tensor of rows in common, or are computed from each other.
std::vector<RowPlanner::Draft> RowPlanner::drafts() const {
  std::map<std::pair<int, Space>, std::vector<ValueId>> byKey;
  for (ValueId v : stored)
    if (spaces.at(v).width)
      byKey[{level.at(v), spaces.at(v)}].push_back(v);
  std::vector<Draft> out;
  for (auto &[key, values] : byKey) {
    Space space = key.second;
    std::vector<size_t> group(values.size());
    std::iota(group.begin(), group.end(), 0);
    auto find = [&](size_t i) {
      while (group[i] != i)
        i = group[i];
      return i;
    };
    std::map<ValueId, size_t> owner;
    for (size_t i = 0; i < values.size(); ++i) {
      std::vector<ValueId> reached, loaded;
      above(values[i], space, reached, &loaded);
      // Kernels of products have their products in common, whatever they read.
      if (!space.product)
        reached.insert(reached.end(), loaded.begin(), loaded.end());
      for (ValueId u : reached)
        if ((space.product ? cones.heroes[u] : graph.type(u).elements() * 2 > space.rows * space.width) ||
            u == values[i]) {
          auto [it, fresh] = owner.try_emplace(u, i);
          if (!fresh)
            group[find(i)] = find(it->second);
        }
    }
    // Small ones are not worth a launch each.
    constexpr int64_t kSmall = 1 << 22; // elements
    if (target.gpu && !space.product && space.rows * space.width <= kSmall)
      for (size_t i = 1; i < values.size(); ++i)
        group[find(i)] = find(0);
    std::map<size_t, Draft> parts;
    for (size_t i = 0; i < values.size(); ++i) {
      Draft &d = parts[find(i)];
      d.space = space;
      d.level = key.first;
      d.outputs.push_back(values[i]);
    }
    for (auto &[root, d] : parts)
      out.push_back(std::move(d));
  }
  return out;
}

/// A stored elementwise value that a row kernel computes anyway is stored by it.
void RowPlanner::joinPointwise(std::vector<Draft> &rows, std::set<ValueId> &pointwise) const {
  for (Draft &d : rows) {
    std::vector<ValueId> computed;
    for (ValueId v : d.outputs)
      above(v, d.space, computed, nullptr);
    for (ValueId u : computed)
      if (pointwise.contains(u) && level.at(u) == d.level && inSpace(u, d.space)) {
        pointwise.erase(u);
        d.outputs.push_back(u);
      }
    std::sort(d.outputs.begin(), d.outputs.end());
  }
}

/// A kernel of products: its epilogue is traced with the products as given, its operands are traced each by itself.
Result<RowPlanner::Verdict> RowPlanner::judgeProducts(const Draft &d) {
  Verdict out;
  TraceRequest request;
  request.graph = &graph;
  request.outputs = d.outputs;
  request.boundary.assign(graph.values.size(), false);
  for (ValueId v : stored)
    request.boundary[v] = loadedFor(v, d.space);
  for (ValueId v : d.outputs)
    request.boundary[v] = false;
  request.width = d.space.width;
  request.rows = d.space.rows;
  request.products = true;
  request.maxInstances = 4 * graph.nodes.size() + 1024;
  request.lanes = epilogueLanes(graph, d.outputs, d.space.width, target);
  RL_ASSIGN(TraceOutcome traced, tracePointwiseUpTo(request));
  constexpr int64_t kRegisters =
      128; // half of a thread's: on a GPU tiles wait in shared memory while the epilogue runs
  Pressure pressure = measurePressure(graph, traced.trace);
  while (target.gpu && pressure.registers > kRegisters && request.lanes > 1) {
    request.lanes /= 2;
    RL_ASSIGN(traced, tracePointwiseUpTo(request));
    pressure = measurePressure(graph, traced.trace);
  }
  if (!traced.foreign.empty()) {
    out.cut = cutOnPath(traced.foreign);
    out.reason = "stored: " + quoted(graph, traced.foreign[0]) + " needs " + quoted(graph, traced.foreign.back()) +
                 " otherwise than element by element";
    return out;
  }
  std::vector<NodeId> products;
  std::set<ValueId> loads;
  std::set<NodeId> nodes;
  PlannedGroup g;
  auto count = [&](const Trace &trace) {
    for (const Instance &in : trace.instances)
      if (in.node != kNone)
        nodes.insert(in.node);
      else if (loads.insert(in.value).second)
        g.inputs.push_back(in.value);
  };
  count(traced.trace);
  for (NodeId n : nodes)
    if (isProduct(graph.nodes[n]))
      products.push_back(n);
  for (size_t i = 1; i < products.size(); ++i)
    if (i > 1 || !shareKernel(graph, graph.nodes[products[0]], graph.nodes[products[i]])) {
      out.cut = cutOnPath(pathTo(d.outputs, products[i], d.space));
      out.hard = true;
      out.reason = i > 1 ? "stored: a third product would need more registers for results than a thread has"
                         : "stored: " + quoted(graph, graph.nodes[products[0]].outputs[0]) + " and " +
                               quoted(graph, graph.nodes[products[i]].outputs[0]) +
                               " have no left operand and extents in common, so that no kernel computes both";
      return out;
    }
  std::vector<bool> boundary(graph.values.size(), false);
  for (ValueId v : stored)
    boundary[v] = true;
  for (NodeId n : products)
    for (const Operand &o : graph.nodes[n].inputs) {
      RL_ASSIGN(Trace operand, traceOperand(graph, o.value, boundary, target.gpu));
      count(operand);
    }
  size_t arguments = g.inputs.size() + d.outputs.size();
  bool crowded = target.gpu && pressure.registers > kRegisters && !pressure.live.empty();
  if (traced.exceeded || arguments > maxKernelArguments(target) || crowded) {
    // Behind the product itself everything is left to others.
    for (NodeId n : products)
      if (ValueId v = graph.nodes[n].outputs[0]; !cuts.contains(v) || !cuts.at(v).hard) {
        out.cut = v;
        out.hard = true;
        out.reason = "stored: what is elementwise behind it has " + std::to_string(arguments) + " tensors and " +
                     std::to_string(pressure.registers) + " registers of values at once, too much beside a tile";
        return out;
      }
    return unsupported(graph.nodes[products[0]].pointer(), graph.describe(products[0]) + ": its kernel would have " +
                                                               std::to_string(arguments) +
                                                               " arguments, and there is nowhere to part it");
  }
  g.outputs = d.outputs;
  g.nodes.assign(nodes.begin(), nodes.end());
  scheduleGemm(graph, traced.trace, products, target, g);
  out.group = std::move(g);
  return out;
}

Result<RowPlanner::Verdict> RowPlanner::judge(const Draft &d) {
  if (d.space.product)
    return judgeProducts(d);
  constexpr uint32_t kMostLevels = 12;
  Verdict out;
  TraceRequest request;
  request.graph = &graph;
  request.outputs = d.outputs;
  request.boundary.assign(graph.values.size(), false);
  for (ValueId v : stored)
    request.boundary[v] = loadedFor(v, d.space);
  for (ValueId v : d.outputs)
    request.boundary[v] = false;
  request.width = d.space.width;
  request.rows = d.space.rows;
  request.maxInstances = 4 * graph.nodes.size() + 1024;
  request.columnSums.assign(d.outputs.size(), kNone);
  for (size_t o = 0; o < d.outputs.size(); ++o)
    if (carried.contains(d.outputs[o])) {
      std::optional<ColumnSum> sum = columnSum(graph, d.outputs[o], d.space.width);
      if (request.parts > 1 && request.parts != sum->parts) {
        out.dropped.push_back(d.outputs[o]);
        return out;
      }
      request.columnSums[o] = sum->operand;
      request.parts = sum->parts;
    }
  request.lanes = chooseRowLanes(graph, request, target);
  RL_ASSIGN(TraceOutcome traced, tracePointwiseUpTo(request));
  bool carries = request.parts > 1;
  bool across = !carries && traced.foreign.empty() && !traced.exceeded && readsAcrossRows(graph, traced.trace);
  if (across) {
    request.lanes = chooseColumnLanes(graph, request, target);
    request.lanesAcross = request.lanes > 1;
    RL_ASSIGN(traced, tracePointwiseUpTo(request));
  }
  if (!traced.foreign.empty()) {
    out.cut = cutOnPath(traced.foreign);
    bool product = isProduct(*nodeOf(traced.foreign.back()));
    out.reason = "stored: " + quoted(graph, traced.foreign[0]) + " is computed over rows of " +
                 std::to_string(d.space.width) + ", " +
                 (product ? "which no tile of the product " + quoted(graph, traced.foreign.back()) + " has"
                          : "other than " + quoted(graph, traced.foreign.back()) + " reduces");
    return out;
  }
  std::set<ValueId> loads;
  std::set<NodeId> nodes;
  PlannedGroup g;
  for (const Instance &in : traced.trace.instances)
    if (in.node != kNone)
      nodes.insert(in.node);
    else if (loads.insert(in.value).second)
      g.inputs.push_back(in.value);
  for (size_t o = 0; o < d.outputs.size(); ++o) // the sum, and the views between it and what is summed
    for (ValueId v = d.outputs[o]; request.columnSums[o] != kNone && v != request.columnSums[o];
         v = nodeOf(v)->inputs[0].value)
      nodes.insert(graph.values[v].node);
  size_t arguments = g.inputs.size() + d.outputs.size();
  size_t most = maxKernelArguments(target);
  if (traced.exceeded || traced.trace.levels > kMostLevels || arguments > most) {
    out.cut = cutBetweenLevels(graph, traced.trace, [&](ValueId v) { return !cuts.contains(v); });
    if (out.cut == kNone)
      return unsupported(graph.nodes[graph.values[d.outputs[0]].node].pointer(),
                         graph.describe(graph.values[d.outputs[0]].node) + ": a kernel over its rows would have " +
                             std::to_string(arguments) + " arguments and " +
                             std::to_string(traced.trace.instances.size()) +
                             " values, and there is nowhere to part it");
    out.hard = true;
    out.reason = "stored: " + std::to_string(traced.trace.levels) + " reductions would follow each other in one kernel";
    return out;
  }
  g.kind = "row";
  g.outputs = d.outputs;
  g.nodes.assign(nodes.begin(), nodes.end());
  g.elements = d.space.rows * d.space.width;
  g.rows = d.space.rows;
  g.width = d.space.width;
  g.lanes = request.lanes;
  g.across = across;
  g.parts = carries ? request.parts : 0;
  if (!scheduleRows(graph, traced.trace, target, g)) {
    for (ValueId v : d.outputs)
      if (carried.contains(v))
        out.dropped.push_back(v);
    return out;
  }
  out.group = std::move(g);
  return out;
}

/// What is stored without a reduction and can be computed once the kernels below this level have run. The rest of the graph
/// is blanked out, so that values and nodes keep their numbers.
Result<Plan> RowPlanner::planPointwiseAt(int at, const std::set<ValueId> &outputs) const {
  Graph part = graph;
  part.outputs.assign(outputs.begin(), outputs.end());
  std::vector<bool> needed(graph.nodes.size(), false);
  std::vector<ValueId> work(part.outputs);
  std::set<ValueId> seen(outputs);
  while (!work.empty()) {
    ValueId v = work.back();
    work.pop_back();
    if (!outputs.contains(v) && stored.contains(v) && level.at(v) < at &&
        (cuts.contains(v) || cones.heroes[v] || cones.work[v] > 8)) {
      part.values[v].kind = Value::Input;
      continue;
    }
    const Node *node = nodeOf(v);
    if (!node)
      continue;
    needed[graph.values[v].node] = true;
    for (const Operand &o : node->inputs)
      if (!o.isLiteral() && seen.insert(o.value).second)
        work.push_back(o.value);
  }
  for (NodeId n = 0; n < part.nodes.size(); ++n)
    if (!needed[n]) {
      part.nodes[n].op = OpKind::Full;
      part.nodes[n].inputs.clear();
    }
  return planPointwise(part, target);
}

Result<Plan> RowPlanner::run() {
  RL_TRY(checkSupported());
  cones = measureCones(graph);
  for (ValueId v : graph.outputs)
    if (graph.values[v].kind == Value::Result)
      stored.insert(v);
  storeOperands();
  // Each round finds every row kernel sound, or writes one more value to memory or has one more loaded.
  for (;;) {
    if (!spacesFit())
      continue;
    placeLevels();
    std::vector<Draft> rows = drafts();
    if (!productsOnce(rows))
      continue;
    std::set<ValueId> pointwise;
    int last = 0;
    for (ValueId v : stored) {
      last = std::max(last, level.at(v));
      if (!spaces.at(v).width)
        pointwise.insert(v);
    }
    joinPointwise(rows, pointwise);
    std::map<int, std::vector<PlannedGroup>> groups;
    bool again = false;
    for (const Draft &d : rows) {
      RL_ASSIGN(Verdict v, judge(d));
      if (!v.dropped.empty()) {
        notCarried.insert(v.dropped.begin(), v.dropped.end());
        again = true;
        break;
      }
      if (!v.group) {
        if (!cut(v.cut, v.reason, v.hard))
          return unsupported(graph.nodes[graph.values[v.cut].node].pointer(),
                             graph.describe(graph.values[v.cut].node) +
                                 ": no way was found to part the kernels around it");
        again = true;
        break;
      }
      groups[d.level].push_back(std::move(*v.group));
    }
    if (again)
      continue;
    Plan plan;
    for (int at = 0; at <= last; ++at) {
      for (PlannedGroup &g : groups[at]) {
        for (ValueId v : g.outputs)
          if (auto it = cuts.find(v); it != cuts.end())
            g.why.push_back(quoted(graph, v) + " " + it->second.reason);
        for (ValueId v : g.inputs)
          if (graph.values[v].kind == Value::Result)
            g.why.push_back(quoted(graph, v) + " is loaded from an earlier kernel");
        plan.groups.push_back(std::move(g));
      }
      std::set<ValueId> here;
      for (ValueId v : pointwise)
        if (level.at(v) == at)
          here.insert(v);
      if (here.empty())
        continue;
      RL_ASSIGN(Plan part, planPointwiseAt(at, here));
      for (PlannedGroup &g : part.groups)
        plan.groups.push_back(std::move(g));
    }
    std::set<NodeId> evaluated;
    for (const PlannedGroup &g : plan.groups)
      evaluated.insert(g.nodes.begin(), g.nodes.end());
    plan.unfusedBytes = unfusedBytes(graph, {evaluated.begin(), evaluated.end()});
    return plan;
  }
}

} // namespace

Result<Plan> planKernels(const Graph &graph, const cost::TargetDesc &target) {
  bool reduces = std::any_of(graph.nodes.begin(), graph.nodes.end(), isHero);
  RL_ASSIGN(Plan plan, reduces ? RowPlanner(graph, target).run() : planPointwise(graph, target));
  chooseTransposes(graph, target, plan);
  return plan;
}

} // namespace rl
