// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/plan/RowPlanner.h"
#include "passes/plan/ColumnSums.h"
#include "passes/plan/Cuts.h"
#include "passes/plan/RowPlannerParts.h"
#include "passes/plan/RowSchedule.h"
#include "passes/plan/Stream.h"
#include "passes/plan/TileSegments.h"
#include "passes/plan/Trace.h"
#include "passes/plan/TransposePlanner.h"
#include "passes/plan/Wgmma.h"

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <set>

namespace rl {

Status RowPlanner::checkSupported() const {
  for (NodeId n = 0; n < graph.nodes.size(); ++n)
    if (const Node &node = graph.nodes[n]; !isPointwise(node.op) && !isHero(node))
      return unsupported(node.pointer(), graph.describe(n) + ": this op is not compiled yet for " + target.name +
                                             "; the target 'reference' runs every op");
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
    // Small ones are not worth a launch each, of which several share one anyway. What very many in one kernel take to compile
    // grows by their square, and kernels that are equal are compiled once.
    constexpr int64_t kSmall = 1 << 22; // elements
    constexpr size_t kMostValues = 8;
    if (target.gpu && !space.product && space.rows * space.width <= kSmall) {
      std::map<size_t, size_t> together; // by what they are united with
      for (size_t i = 0; i < values.size(); ++i)
        ++together[find(i)];
      size_t into = find(0);
      for (size_t i = 1; i < values.size(); ++i) {
        const size_t other = find(i);
        if (other == into)
          continue;
        if (together[into] + together[other] > kMostValues) {
          into = other;
          continue;
        }
        together[into] += together[other];
        group[other] = into;
      }
    }
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

/// What a draft's outputs are computed from over its rows, everything stored but they loaded where it must be.
TraceRequest RowPlanner::requestOf(const Draft &d) const {
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
  return request;
}

/// A kernel of products: its epilogue is traced with the products as given, its operands are traced each by itself. `loaded`: what the
/// operands load, and the epilogue therefore too.
Result<RowPlanner::Verdict> RowPlanner::judgeProducts(const Draft &d, const std::set<ValueId> &loaded) {
  Verdict out;
  TraceRequest request = requestOf(d);
  for (ValueId v : loaded)
    request.boundary[v] = true;
  request.products = true;
  // An output whose segments another kernel must reduce is here for its elements alone. Then none are reduced, and what is here for
  // its segments leaves too: cut, its reduction would be this kernel's again.
  request.segments = std::none_of(d.outputs.begin(), d.outputs.end(), [&](ValueId v) { return apart.contains(v); });
  if (!request.segments)
    for (ValueId v : d.outputs)
      if (std::vector<ValueId> path = nearestHero(v, false);
          !apart.contains(v) && !path.empty() && !isProduct(*nodeOf(path.back()))) {
        out.apart = "what is stored beside it must have its segments reduced apart";
        out.reducing.push_back(v);
      }
  if (!out.apart.empty())
    return out;
  request.lanes = epilogueLanes(graph, d.outputs, d.space.width, target);
  RL_ASSIGN(TraceOutcome traced, tracePointwiseUpTo(request));
  constexpr int64_t kRegisters =
      128; // half of a thread's: on a GPU tiles wait in shared memory while the epilogue runs
  Pressure pressure = measurePressure(graph, traced.trace);
  // What a thread has of a segment waits in registers until the segment is reduced, beside its sums.
  // 32 threads have one at most.
  constexpr int64_t kSegmentLanes = 4, kThreads = 32;
  auto isWide = [&] {
    const int64_t columns = tileSegments(graph, traced.trace).columns;
    return columns > 0 && request.lanes > std::max(kSegmentLanes, columns / kThreads);
  };
  while (target.gpu && (pressure.registers > kRegisters || isWide()) && request.lanes > 1) {
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
  const TileSegments segments = tileSegments(graph, traced.trace);
  out.reducing = reducingOutputs(traced.trace);
  if (out.apart = segments.refusal; !out.apart.empty())
    return out;
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
  if (products.empty() && segments.columns == 0) { // what is behind the product reads another part of what it stands in
    if (std::vector<ValueId> path = nearestHero(d.outputs[0], false); !path.empty()) {
      out.cut = cutOnPath(path);
      out.hard = true;
      out.reason = "stored: " + quoted(graph, d.outputs[0]) + " is of another part of what it stands in";
      return out;
    }
  }
  if (products.empty()) { // of which segments were to be reduced, and which another kernel stores
    out.apart = "another kernel stores what its segments are of";
    return out;
  }
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
  std::vector<Trace> operands;
  for (ValueId v : stored)
    boundary[v] = true;
  ValueId computed = operandSource(graph, graph.nodes[products[0]].inputs[0].value, &stored);
  if (!nodeOf(computed) || stored.contains(computed) || !mayComputeLeft(graph.nodes[products[0]], computed))
    computed = kNone;
  for (NodeId n : products)
    for (const Operand &o : graph.nodes[n].inputs) {
      const bool pairs = computed != kNone && &o == &graph.nodes[n].inputs[0];
      RL_ASSIGN(Trace operand, traceOperand(graph, o.value, boundary, target.gpu, pairs ? kLeftLanes : 0));
      count(operand);
      operands.push_back(std::move(operand));
    }
  // A value has one place in a kernel: computed again for the epilogue it would be that for the operand as well.
  std::set<ValueId> both;
  for (ValueId v : loads)
    if (const Value &value = graph.values[v]; value.kind == Value::Result && nodes.contains(value.node))
      both.insert(v);
  if (!both.empty() && !std::includes(loaded.begin(), loaded.end(), both.begin(), both.end())) {
    both.insert(loaded.begin(), loaded.end());
    return judgeProducts(d, both);
  }
  size_t arguments = g.inputs.size() + d.outputs.size();
  bool crowded = target.gpu && pressure.registers > kRegisters && !pressure.live.empty();
  if (traced.exceeded || arguments > maxKernelArguments(target) || crowded) {
    if (segments.columns) {
      out.apart = "beside its tiles there is no room to reduce segments of " + std::to_string(segments.columns);
      return out;
    }
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
  const std::set<ValueId> widened = widenedRights(products);
  auto schedule = [&](const GemmSchedule *only) -> Result<PlannedGroup> {
    PlannedGroup made = g;
    scheduleGemm(graph, traced.trace, products, target, made, only);
    if (target.sm == 90) {
      request.lanes = wgmmaLanes(d.space.width);
      RL_ASSIGN(Trace pairs, tracePointwise(request));
      scheduleWgmma(graph, pairs, products, operands, target, made, only);
      if (!widened.empty()) {
        request.lanes = 1;
        RL_ASSIGN(Trace singles, tracePointwise(request));
        scheduleTurned(graph, singles, products, operands, target, made, only);
      }
      scheduleStream(graph, pairs, products, operands, target, made, only);
    }
    return made;
  };
  RL_ASSIGN(PlannedGroup made, schedule(nullptr));
  if (!made.gemm) { // of those for all machines
    out.apart = noTileFor(segments.columns);
    return out;
  }
  std::string onTheWay, together;
  if (products.size() == 2 && !widened.empty()) {
    RL_ASSIGN(out.cut, cutBetweenProducts(d, made, products, widened, loaded, out.reason));
    if (out.hard = out.cut != kNone; out.hard)
      return out;
  }
  for (bool isRight : {false, true}) {
    const std::set<ValueId> one = computed != kNone ? std::set<ValueId>{computed} : std::set<ValueId>(),
                            &judged = isRight ? widened : one;
    if (judged.empty())
      continue;
    RL_ASSIGN(bool leaves, leavesOperands(d, made, judged, isRight, loaded, onTheWay));
    if (leaves) {
      out.cut = *judged.begin();
      out.reason = std::move(onTheWay);
      return out;
    }
  }
  if (segments.columns) {
    RL_ASSIGN(out.apart, whyApart(d, traced.trace, made, segments.columns, together));
    if (!out.apart.empty())
      return out;
  }
  if (target.gpu) {
    made.key = productKey(graph, made);
    rankCandidates(made);
    RL_ASSIGN(made, takeChoice(std::move(made), choices, [&](const GemmSchedule &only) { return schedule(&only); }));
  }
  for (const std::string &why : {onTheWay, together})
    if (!why.empty())
      made.why.push_back(why);
  out.group = std::move(made);
  return out;
}

Result<RowPlanner::Verdict> RowPlanner::judge(const Draft &d) {
  if (d.space.product)
    return judgeProducts(d);
  constexpr uint32_t kMostLevels = 12;
  Verdict out;
  TraceRequest request = requestOf(d);
  request.columnSums.assign(d.outputs.size(), kNone);
  for (size_t o = 0; o < d.outputs.size(); ++o)
    if (carried.contains(d.outputs[o])) {
      std::optional<ColumnSum> sum = columnSum(graph, d.outputs[o], d.space.width);
      if (request.parts > 1 && (request.parts != sum->parts || request.partsInTurn != sum->inTurn)) {
        out.dropped.push_back(d.outputs[o]);
        return out;
      }
      request.columnSums[o] = sum->operand;
      request.parts = sum->parts;
      request.partsInTurn = sum->inTurn;
    }
  for (ValueId v : d.outputs) {
    request.segments &= !whole.contains(v);
    out.whole |= lifted.contains(v);
  }
  request.lanes = chooseRowLanes(graph, request, target);
  // What is stored once a segment must be so for whole vectors.
  for (ValueId v : d.outputs)
    if (int64_t n = graph.type(v).elements(), all = d.space.rows * d.space.width;
        out.whole && n != d.space.rows && n != all && (all % (n * request.lanes) != 0 || n % d.space.rows != 0))
      return out;
  RL_ASSIGN(TraceOutcome traced, tracePointwiseUpTo(request));
  bool carries = request.parts > 1;
  bool across = !carries && traced.foreign.empty() && !traced.exceeded && readsAcrossRows(graph, traced.trace);
  if (across) {
    request.lanes = chooseColumnLanes(graph, request, target);
    request.lanesAcross = request.lanes > 1;
    RL_ASSIGN(traced, tracePointwiseUpTo(request));
  }
  bool segments = std::any_of(traced.trace.instances.begin(), traced.trace.instances.end(),
                              [](const Instance &in) { return in.segment != 0; });
  if (out.whole && (!segments || !traced.foreign.empty() || traced.exceeded || traced.trace.levels > kMostLevels))
    return out;
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
  g.inTurn = carries && request.partsInTurn;
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
      if (!v.apart.empty()) {
        bool fresh = false;
        for (ValueId o : v.reducing.empty() ? d.outputs : v.reducing)
          fresh |= apart.try_emplace(o, v.apart).second;
        if (!fresh)
          return unsupported(graph.nodes[graph.values[d.outputs[0]].node].pointer(),
                             graph.describe(graph.values[d.outputs[0]].node) + ": " + v.apart);
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
        std::set<std::string> told;
        for (ValueId v : g.outputs)
          if (auto it = apart.find(v); it != apart.end() && told.insert(it->second).second)
            g.why.push_back("apart from the product: " + it->second);
        for (ValueId v : g.inputs)
          if (graph.values[v].kind == Value::Result) {
            g.why.push_back(quoted(graph, v) + " is loaded from an earlier kernel");
            g.why.push_back(loadOrCompute(graph, target, cones, v));
          }
        plan.groups.push_back(std::move(g));
      }
      std::set<ValueId> here;
      for (ValueId v : pointwise)
        if (level.at(v) == at)
          here.insert(v);
      if (here.empty())
        continue;
      RL_ASSIGN(Plan part, planPointwiseAt(at, here));
      for (PlannedGroup &g : part.groups) {
        for (ValueId v : g.outputs)
          if (auto it = cuts.find(v); it != cuts.end())
            g.why.push_back(quoted(graph, v) + " " + it->second.reason);
        plan.groups.push_back(std::move(g));
      }
    }
    std::set<NodeId> evaluated;
    for (const PlannedGroup &g : plan.groups)
      evaluated.insert(g.nodes.begin(), g.nodes.end());
    plan.unfusedBytes = unfusedBytes(graph, {evaluated.begin(), evaluated.end()});
    return plan;
  }
}

/// Of kernels that read and write, tensors of twice the second-level cache and more (tests/bench/NOTES.md says what it brings):
/// whatever the next kernel does, it finds little of them there.
static void findStreams(const Graph &graph, const cost::TargetDesc &target, PlannedGroup &g) {
  if (!target.gpu || (g.kind != "row" && g.kind != "transpose"))
    return;
  const auto least = static_cast<int64_t>(2 * target.l2Bytes);
  auto isOne = [&](ValueId v) { return graph.type(v).bytes() >= least; };
  if (std::none_of(g.inputs.begin(), g.inputs.end(), isOne) || std::none_of(g.outputs.begin(), g.outputs.end(), isOne))
    return;
  g.streamBytes = least;
  g.why.push_back("tensors of " + std::to_string(least / 1000000) +
                  " MB or more do not fit in the second-level cache: of these, what is written is given up first");
}

Result<Plan> planKernels(const Graph &graph, const cost::TargetDesc &target, const TileChoices &choices) {
  bool reduces = std::any_of(graph.nodes.begin(), graph.nodes.end(), isHero);
  RL_ASSIGN(Plan plan, reduces ? RowPlanner(graph, target, choices).run() : planPointwise(graph, target));
  chooseTransposes(graph, target, plan);
  for (PlannedGroup &g : plan.groups)
    findStreams(graph, target, g);
  return plan;
}

} // namespace rl
