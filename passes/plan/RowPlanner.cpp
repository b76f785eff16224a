// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/plan/RowPlanner.h"
#include "passes/plan/ColumnSums.h"
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

bool isReduction(const Node &node) { return opInfo(node.op).cls == OpClass::Reduction; }

std::string quoted(const Graph &graph, ValueId v) { return "'" + graph.values[v].name + "'"; }

/// Plain rows of elements have width 0: they are not reduced.
struct Space {
  int64_t rows = 0, width = 0;
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
    bool whole = false;           ///< its rows must be reduced whole
  };

  const Node *nodeOf(ValueId v) const {
    return graph.values[v].kind == Value::Result ? &graph.nodes[graph.values[v].node] : nullptr;
  }
  Space rowsOf(const Node &reduction) const {
    int64_t rows = graph.type(reduction.outputs[0]).elements();
    return {rows, graph.type(reduction.inputs[0].value).elements() / rows};
  }
  bool inSpace(ValueId v, Space s) const {
    if (auto own = carried.find(v); own != carried.end())
      return own->second == s;
    if (auto own = spaces.find(v); own != spaces.end() && own->second == s)
      return true;
    int64_t n = graph.type(v).elements();
    return n == s.rows || (s.width && n == s.rows * s.width);
  }
  bool loadedFor(ValueId v, Space s) const;
  void measureCones();
  Status checkSupported() const;
  std::set<ValueId> wholeTensors(ValueId v, int64_t elements) const;
  void carryColumnSums();
  bool spacesFit(); ///< false: something was cut, plan again
  Space longestRows(ValueId v, Space rows) const;
  void placeLevels();
  std::vector<Draft> drafts() const;
  void joinPointwise(std::vector<Draft> &, std::set<ValueId> &pointwise) const;
  std::vector<ValueId> nearestReduction(ValueId v, bool softly) const;
  ValueId cutOnPath(const std::vector<ValueId> &path) const;
  bool cut(ValueId v, std::string reason, bool hard = false);
  Result<Verdict> judge(const Draft &);
  ValueId cutBetweenLevels(const Trace &) const;
  Result<Plan> planPointwiseAt(int level, const std::set<ValueId> &outputs) const;

  const Graph &graph;
  const cost::TargetDesc &target;
  std::set<ValueId> stored;
  std::map<ValueId, Cut> cuts;
  std::map<ValueId, Space> spaces; ///< of what is stored
  /// Stored sums down the columns of a row kernel's rows, which it carries along; and those that it cannot carry.
  std::map<ValueId, Space> carried;
  std::set<ValueId> notCarried;
  /// Stored values whose kernel iterates over rows of which the nearest reduction takes segments; and those whose kernel must
  /// not reduce segments.
  std::set<ValueId> lifted, whole;
  std::map<ValueId, int> level;
  std::vector<uint32_t> cone; ///< by value: a cheap measure of the work above it, saturating
  std::vector<bool> reduces;  ///< by value: a reduction is above it, or it is one
};

Status RowPlanner::checkSupported() const {
  for (NodeId n = 0; n < graph.nodes.size(); ++n)
    if (const Node &node = graph.nodes[n]; !isPointwise(node.op) && !isReduction(node))
      return unsupported(
          node.pointer(),
          graph.describe(n) +
              ": only elementwise, layout, creation and indexing ops, reductions, norms and softmax are compiled for " +
              target.name + "; the target 'reference' runs every op");
  return {};
}

void RowPlanner::measureCones() {
  cone.assign(graph.values.size(), 0);
  reduces.assign(graph.values.size(), false);
  for (const Node &node : graph.nodes) {
    cost::OpCost c = cost::opCost(node.op, DType::F32);
    auto work = static_cast<uint64_t>(c.ops + 8 * c.special);
    bool any = isReduction(node);
    for (const Operand &o : node.inputs)
      if (!o.isLiteral()) {
        work += cone[o.value];
        any = any || reduces[o.value];
      }
    for (ValueId v : node.outputs) {
      cone[v] = static_cast<uint32_t>(std::min<uint64_t>(work, 1u << 30));
      reduces[v] = any;
    }
  }
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
  if (!inSpace(v, s))
    return it != cuts.end() || reduces[v] || cone[v] > 8;
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
  if (hard || !made || (!fresh && reduces[v] && !isReduction(*nodeOf(v))))
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

/// The way from a stored value up to the reduction nearest above it, value first; empty: there is none. It does not lead through
/// what is cut hard, nor, where `softly`, through what is cut at all.
std::vector<ValueId> RowPlanner::nearestReduction(ValueId v, bool softly) const {
  std::map<ValueId, ValueId> below{{v, kNone}};
  std::deque<ValueId> work{v};
  while (!work.empty()) {
    ValueId u = work.front();
    work.pop_front();
    const Node *node = nodeOf(u);
    auto it = cuts.find(u);
    if (!node || !reduces[u] || (u != v && it != cuts.end() && (softly || it->second.hard)))
      continue;
    if (isReduction(*node)) {
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

/// What has at least half as many elements and is read where `v` is computed.
std::set<ValueId> RowPlanner::wholeTensors(ValueId v, int64_t elements) const {
  std::set<ValueId> seen{v}, out;
  std::vector<ValueId> work{v};
  while (!work.empty()) {
    ValueId u = work.back();
    work.pop_back();
    const Node *node = nodeOf(u);
    if (!node && graph.type(u).elements() * 2 > elements)
      out.insert(u);
    if (node)
      for (const Operand &o : node->inputs)
        if (!o.isLiteral() && seen.insert(o.value).second)
          work.push_back(o.value);
  }
  return out;
}

/// Sums down the columns of what a row kernel computes, or at least loads, are carried along by it.
void RowPlanner::carryColumnSums() {
  carried.clear();
  if (!target.gpu)
    return;
  auto fits = [&](ValueId v, Space s) {
    std::optional<ColumnSum> sum = columnSum(graph, v, s.width);
    return sum && graph.type(sum->operand).elements() == s.rows * s.width && s.rows % sum->parts == 0 &&
           s.rows / sum->parts > 1 && static_cast<double>(sum->parts) >= target.smCount / 2;
  };
  for (ValueId v : stored) {
    const Node *node = nodeOf(v);
    if (notCarried.contains(v) || !node || node->op != OpKind::Sum || node->inputs[0].isLiteral())
      continue;
    ValueId of = node->inputs[0].value;
    if (std::vector<ValueId> path = nearestReduction(of, false); !path.empty()) {
      if (Space s = rowsOf(*nodeOf(path.back())); fits(v, s))
        carried.emplace(v, s);
      continue;
    }
    std::set<ValueId> own = wholeTensors(of, graph.type(of).elements());
    for (ValueId other : stored) {
      std::vector<ValueId> path = other == v ? std::vector<ValueId>() : nearestReduction(other, false);
      if (path.empty())
        continue;
      Space s = rowsOf(*nodeOf(path.back()));
      if (!fits(v, s) || !inSpace(other, s))
        continue;
      std::set<ValueId> theirs = wholeTensors(other, s.rows * s.width);
      if (std::any_of(own.begin(), own.end(), [&](ValueId u) { return theirs.contains(u); })) {
        carried.emplace(v, s);
        break;
      }
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
    if (!node || !reduces[u] || (u != v && it != cuts.end() && it->second.hard))
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
    if (std::vector<ValueId> path = nearestReduction(v, false); !path.empty()) {
      Space rows = rowsOf(*nodeOf(path.back()));
      if (inSpace(v, rows)) {
        space = longestRows(v, rows);
        if (space != rows)
          lifted.insert(v);
      } else if (path = nearestReduction(v, true); !path.empty()) {
        cut(cutOnPath(path), "stored: " + quoted(graph, v) + " is not made of the rows that '" +
                                 graph.values[path.back()].name + "' reduces");
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
    std::set<ValueId> seen{v};
    std::vector<ValueId> work{v};
    while (!work.empty()) {
      ValueId u = work.back();
      work.pop_back();
      if (const Node *node = nodeOf(u))
        for (const Operand &o : node->inputs)
          if (!o.isLiteral() && seen.insert(o.value).second) {
            if (loadedFor(o.value, s))
              most = std::max(most, level.at(o.value) + 1);
            else
              work.push_back(o.value);
          }
    }
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
      std::set<ValueId> seen{values[i]};
      std::vector<ValueId> work{values[i]};
      while (!work.empty()) {
        ValueId u = work.back();
        work.pop_back();
        bool boundary = u != values[i] && loadedFor(u, space);
        if (graph.type(u).elements() * 2 > space.rows * space.width || u == values[i]) {
          auto [it, fresh] = owner.try_emplace(u, i);
          if (!fresh)
            group[find(i)] = find(it->second);
        }
        const Node *node = boundary ? nullptr : nodeOf(u);
        if (node)
          for (const Operand &o : node->inputs)
            if (!o.isLiteral() && seen.insert(o.value).second)
              work.push_back(o.value);
      }
    }
    // Small ones are not worth a launch each.
    constexpr int64_t kSmall = 1 << 22; // elements
    if (target.gpu && space.rows * space.width <= kSmall)
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
    std::set<ValueId> seen(d.outputs.begin(), d.outputs.end());
    std::vector<ValueId> work(d.outputs);
    while (!work.empty()) {
      ValueId u = work.back();
      work.pop_back();
      if (pointwise.contains(u) && level.at(u) == d.level && inSpace(u, d.space)) {
        pointwise.erase(u);
        d.outputs.push_back(u);
      }
      if (const Node *node = nodeOf(u))
        for (const Operand &o : node->inputs)
          if (!o.isLiteral() && !loadedFor(o.value, d.space) && seen.insert(o.value).second)
            work.push_back(o.value);
    }
    std::sort(d.outputs.begin(), d.outputs.end());
  }
}

/// A value of whole rows in the middle of a long chain of reductions, the one that most of what follows is computed from.
ValueId RowPlanner::cutBetweenLevels(const Trace &trace) const {
  std::map<ValueId, int> uses;
  for (const Instance &in : trace.instances) {
    // What a reduction alone reads (squares, say) would not spare the rest from being computed again.
    if (in.level <= trace.levels / 2 || (in.node != kNone && isReduction(graph.nodes[in.node])))
      continue;
    for (uint32_t o : in.operands)
      if (o != kNone)
        if (const Instance &from = trace.instances[o]; from.node != kNone && from.varies &&
                                                       from.level <= trace.levels / 2 && from.level > 0 &&
                                                       !cuts.contains(from.value))
          ++uses[from.value];
  }
  ValueId best = kNone;
  for (auto [v, n] : uses)
    if (best == kNone || n >= uses[best])
      best = v;
  return best;
}

Result<RowPlanner::Verdict> RowPlanner::judge(const Draft &d) {
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
  for (ValueId v : d.outputs) {
    request.segments &= !whole.contains(v);
    out.whole |= lifted.contains(v);
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
  if (out.whole && (!traced.foreign.empty() || traced.exceeded || traced.trace.levels > kMostLevels))
    return out;
  if (!traced.foreign.empty()) {
    out.cut = cutOnPath(traced.foreign);
    out.reason = "stored: " + quoted(graph, traced.foreign.back()) + " reduces other rows than " +
                 quoted(graph, traced.foreign[0]) + " is computed over";
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
    out.cut = cutBetweenLevels(traced.trace);
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
    out.whole = true;
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
        (cuts.contains(v) || reduces[v] || cone[v] > 8)) {
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
  measureCones();
  for (ValueId v : graph.outputs)
    if (graph.values[v].kind == Value::Result)
      stored.insert(v);
  // Each round finds every row kernel sound, or writes one more value to memory or has one more loaded.
  for (;;) {
    if (!spacesFit())
      continue;
    placeLevels();
    std::vector<Draft> rows = drafts();
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
      if (!v.group && v.whole) {
        whole.insert(d.outputs.begin(), d.outputs.end());
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
  bool reduces = std::any_of(graph.nodes.begin(), graph.nodes.end(), isReduction);
  RL_ASSIGN(Plan plan, reduces ? RowPlanner(graph, target).run() : planPointwise(graph, target));
  chooseTransposes(graph, target, plan);
  return plan;
}

} // namespace rl
