// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/plan/Planner.h"
#include "passes/plan/Cuts.h"
#include "passes/plan/Measure.h"
#include "passes/plan/Trace.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

namespace rl {

namespace {

bool isElementwise(OpClass c) { return c == OpClass::Unary || c == OpClass::Binary || c == OpClass::Ternary; }

class Planner {
public:
  Planner(const Graph &graph, const cost::TargetDesc &target)
      : graph(graph), target(target), finder(graph, target, stored, cuts) {}
  Result<Plan> run();

private:
  struct Draft {
    int64_t elements = 0;
    int level = 0;
    std::vector<ValueId> outputs;
  };
  /// One of: a sound group; values to write to memory, with the reason, after which all is planned again; the draft's outputs
  /// in parts to be judged one by one.
  struct Verdict {
    std::optional<PlannedGroup> group;
    bool strained = false; ///< the group exceeds a limit, and nothing is left to cut
    std::vector<Cut> cuts;
    std::vector<Draft> parts;
  };
  struct Placed {
    PlannedGroup group;
    int level;
    std::vector<ValueId> loaded; ///< what it reads of what earlier kernels store
  };

  Status checkSupported() const;
  std::vector<Draft> drafts();
  bool loadedFor(ValueId v, int64_t elements) const;
  std::vector<ValueId> boundaryOf(const Draft &) const;
  Result<Verdict> judge(const Draft &, const std::vector<ValueId> &loaded);
  Result<Verdict> fitArguments(const Draft &, const Trace &, size_t arguments) const;
  int64_t chooseLanes(const Draft &, const std::vector<bool> &boundary, bool splitCat) const;
  bool splitsCat(const Draft &, const std::vector<bool> &boundary) const;
  void merge(std::vector<Placed> &);
  void explain(Plan &) const;
  const Graph &graph;
  const cost::TargetDesc &target;
  std::set<ValueId> stored;            ///< outputs and cuts
  std::map<ValueId, std::string> cuts; ///< value -> why it is written, or loaded where it is an output anyway
  CutFinder finder;
  std::map<ValueId, int> level; ///< of what is stored: kernels that must have run before its own
  Cones cones;
  std::map<std::pair<std::vector<ValueId>, std::vector<ValueId>>, PlannedGroup>
      sound; ///< by outputs and loads: judged before
};

Status Planner::checkSupported() const {
  for (NodeId n = 0; n < graph.nodes.size(); ++n) {
    const Node &node = graph.nodes[n];
    if (!isPointwise(node.op))
      return unsupported(node.pointer(), graph.describe(n) + ": this op is not compiled yet for " + target.name +
                                             "; the target 'reference' runs every op");
  }
  return {};
}

/// A value that another kernel stores is loaded where it was cut, or where this kernel iterates over another space and
/// computing it again would cost more than a few cheap operations.
bool Planner::loadedFor(ValueId v, int64_t elements) const {
  if (!stored.contains(v))
    return false;
  if (cuts.contains(v))
    return true;
  return graph.type(v).elements() != elements && cones.work[v] > 8;
}

std::vector<Planner::Draft> Planner::drafts() {
  std::map<int64_t, std::vector<ValueId>> spaces;
  for (ValueId v : stored)
    spaces[graph.type(v).elements()].push_back(v);
  // Which nodes each iteration space computes.
  struct Step {
    NodeId node;
    uint32_t space;
    auto operator<=>(const Step &) const = default;
  };
  std::vector<Step> steps;
  std::vector<int64_t> elementsOf;
  std::vector<uint32_t> seen(graph.values.size(), kNone);
  for (auto &[elements, roots] : spaces) {
    auto space = static_cast<uint32_t>(elementsOf.size());
    elementsOf.push_back(elements);
    std::vector<ValueId> work = roots;
    while (!work.empty()) {
      ValueId v = work.back();
      work.pop_back();
      if (seen[v] == space || graph.values[v].kind != Value::Result)
        continue;
      seen[v] = space;
      steps.push_back({graph.values[v].node, space});
      for (const Operand &o : graph.nodes[graph.values[v].node].inputs)
        if (!o.isLiteral() && !loadedFor(o.value, elements))
          work.push_back(o.value);
    }
  }
  // In the graph's order, so that the level of what is loaded is known. A space's depth at a value: how many kernels must have
  // run before the value can be computed in it.
  std::sort(steps.begin(), steps.end());
  std::vector<std::unordered_map<ValueId, int>> depth(elementsOf.size());
  level.clear();
  for (const Step &step : steps) {
    int64_t elements = elementsOf[step.space];
    const Node &node = graph.nodes[step.node];
    int most = 0;
    for (const Operand &o : node.inputs) {
      if (o.isLiteral())
        continue;
      if (loadedFor(o.value, elements))
        most = std::max(most, level[o.value] + 1);
      else if (auto it = depth[step.space].find(o.value); it != depth[step.space].end())
        most = std::max(most, it->second);
    }
    for (ValueId v : node.outputs) {
      depth[step.space][v] = most;
      if (stored.contains(v) && graph.type(v).elements() == elements)
        level[v] = most;
    }
  }
  std::map<std::pair<int, int64_t>, Draft> byKey;
  for (ValueId v : stored) {
    Draft &d = byKey[{level[v], graph.type(v).elements()}];
    d.elements = graph.type(v).elements();
    d.level = level[v];
    d.outputs.push_back(v);
  }
  std::vector<Draft> out;
  for (auto &[key, d] : byKey)
    out.push_back(std::move(d));
  return out;
}

/// What the draft reads of what earlier kernels store, ascending.
std::vector<ValueId> Planner::boundaryOf(const Draft &d) const {
  std::vector<ValueId> loaded;
  std::vector<bool> seen(graph.values.size(), false);
  for (ValueId v : d.outputs)
    seen[v] = true;
  std::vector<ValueId> work = d.outputs;
  while (!work.empty()) {
    ValueId v = work.back();
    work.pop_back();
    if (graph.values[v].kind != Value::Result)
      continue;
    for (const Operand &o : graph.nodes[graph.values[v].node].inputs) {
      if (o.isLiteral() || seen[o.value])
        continue;
      seen[o.value] = true;
      // What an earlier kernel happens to have stored is there for the loading.
      bool there = stored.contains(o.value) && level.at(o.value) < d.level && cones.work[o.value] > 8;
      if (there || loadedFor(o.value, d.elements))
        loaded.push_back(o.value);
      else
        work.push_back(o.value);
    }
  }
  std::sort(loaded.begin(), loaded.end());
  return loaded;
}

int64_t Planner::chooseLanes(const Draft &d, const std::vector<bool> &boundary, bool splitCat) const {
  // What is loaded and stored decides: 16-byte accesses of the widest type. (Two 16-byte accesses a thread to one tensor touch
  // every sector twice; adamw, f32 beside bf16, ran 6 % slower so on an H200.)
  int64_t least = 8, most = 1;
  std::vector<bool> seen(graph.values.size(), false);
  std::vector<ValueId> work(d.outputs);
  size_t nodes = 0;
  for (ValueId v : d.outputs) {
    least = std::min<int64_t>(least, dtypeSize(graph.type(v).dtype));
    most = std::max<int64_t>(most, dtypeSize(graph.type(v).dtype));
  }
  while (!work.empty()) {
    ValueId v = work.back();
    work.pop_back();
    if (seen[v])
      continue;
    seen[v] = true;
    const Value &value = graph.values[v];
    if (value.kind != Value::Result || boundary[v]) {
      if (value.type.elements() * 4 >= d.elements) {
        least = std::min<int64_t>(least, dtypeSize(value.type.dtype));
        most = std::max<int64_t>(most, dtypeSize(value.type.dtype));
      }
      continue;
    }
    ++nodes;
    for (const Operand &o : graph.nodes[value.node].inputs)
      if (!o.isLiteral())
        work.push_back(o.value);
  }
  int64_t elements = iterationElements(graph, d.outputs[0], splitCat);
  auto vectorBytes = static_cast<int64_t>(target.vectorBytes);
  int64_t lanes = target.gpu ? vectorBytes / most : std::min(vectorBytes / least, 2 * vectorBytes / most);
  lanes = std::max<int64_t>(lanes, 1);
  // Long bodies are bound by arithmetic; narrower vectors keep code and registers small.
  int64_t fewest = target.gpu ? 1 : 8; // a CPU's vectors are worth their code
  while (lanes > fewest && nodes * lanes > 4096)
    lanes /= 2;
  // A small tensor is spread over more threads, down to 4-byte accesses.
  while (target.gpu && lanes > 1 && lanes * least > 4 && static_cast<double>(elements / lanes) < 64 * target.smCount)
    lanes /= 2;
  while (lanes > 1 && elements < lanes)
    lanes /= 2;
  return lanes;
}

/// More tensors than a launch takes. Outputs that share little are divided between kernels; otherwise a value in between is
/// written first.
Result<Planner::Verdict> Planner::fitArguments(const Draft &d, const Trace &trace, size_t arguments) const {
  Verdict out;
  size_t limit = maxKernelArguments(target);
  // What each part of the outputs reads, outputs in their order, each part as long as it fits.
  std::vector<uint32_t> rootOf(d.outputs.size(), kNone);
  for (const TraceStore &s : trace.stores)
    rootOf[s.output] = s.instance;
  std::vector<Draft> parts;
  std::vector<bool> seen;
  std::set<ValueId> loads;
  double repeated = 0; // bytes that more than one part reads, or that are read twice
  std::set<ValueId> loadedBefore;
  bool fits = d.outputs.size() > 1;
  for (size_t o = 0; o < d.outputs.size() && fits; ++o) {
    for (bool fresh : {false, true}) {
      if (fresh || parts.empty()) {
        loadedBefore.insert(loads.begin(), loads.end());
        parts.push_back({d.elements, d.level, {}});
        seen.assign(trace.instances.size(), false);
        loads.clear();
        fresh = true;
      }
      std::vector<uint32_t> work{rootOf[o]}, visited;
      std::vector<ValueId> added;
      while (!work.empty()) {
        uint32_t i = work.back();
        work.pop_back();
        if (i == kNone || seen[i])
          continue;
        seen[i] = true;
        visited.push_back(i);
        const Instance &in = trace.instances[i];
        if (in.node == kNone && loads.insert(in.value).second)
          added.push_back(in.value);
        work.insert(work.end(), in.operands.begin(), in.operands.end());
        for (const Instance::Piece &p : in.pieces)
          work.push_back(p.instance);
      }
      if (loads.size() + parts.back().outputs.size() + 1 <= limit) {
        parts.back().outputs.push_back(d.outputs[o]);
        for (ValueId v : added)
          if (loadedBefore.contains(v))
            repeated += static_cast<double>(graph.type(v).bytes());
        break;
      }
      for (uint32_t i : visited)
        seen[i] = false;
      for (ValueId v : added)
        loads.erase(v);
      if (fresh) {
        fits = false; // this output alone has too many
        break;
      }
    }
  }
  ValueId cut = finder.forArguments(trace, arguments, limit);
  if (fits && (cut == kNone || repeated <= 2.0 * static_cast<double>(graph.type(cut).bytes()))) {
    out.parts = std::move(parts);
    return out;
  }
  if (cut == kNone)
    return unsupported({}, "a kernel of " + std::to_string(arguments) + " tensors: a launch on " + target.name +
                               " takes " + std::to_string(limit));
  out.cuts.push_back({cut, "stored: " + std::to_string(arguments) + " tensors meet here, and a launch takes " +
                               std::to_string(limit)});
  return out;
}

/// Whether the draft's one output is a cat of equal pieces that are whole vectors long: then a thread computes the same place
/// of every piece, and what they share once.
bool Planner::splitsCat(const Draft &d, const std::vector<bool> &boundary) const {
  if (d.outputs.size() != 1 || !isSplittableCat(graph, d.outputs[0]))
    return false;
  const Node &cat = graph.nodes[graph.values[d.outputs[0]].node];
  const std::vector<int64_t> &shape = graph.type(cat.inputs[0].value).shape;
  int64_t run = 1;
  for (size_t i = static_cast<size_t>(cat.attrs.dim); i < shape.size(); ++i)
    run *= shape[i];
  return run % chooseLanes(d, boundary, true) == 0;
}

Result<Planner::Verdict> Planner::judge(const Draft &d, const std::vector<ValueId> &loaded) {
  Verdict out;
  PlannedGroup g;
  g.outputs = d.outputs;
  g.elements = d.elements;
  std::vector<bool> boundary(graph.values.size(), false);
  for (ValueId v : loaded)
    boundary[v] = true;
  g.splitCat = splitsCat(d, boundary);
  g.lanes = chooseLanes(d, boundary, g.splitCat);
  TraceRequest request;
  request.graph = &graph;
  request.outputs = d.outputs;
  request.boundary = std::move(boundary);
  request.splitCat = g.splitCat;
  // Each value at four distinct indices on average, and what small graphs need.
  request.maxInstances = 1024;
  for (const Node &node : graph.nodes)
    request.maxInstances += 4 * (1 + node.inputs.size());
  request.maxIndexWeight = kMaxIndexWeight;
  request.maxGuards = kMaxGuards;
  auto exceeded = [&](const TraceOutcome &traced) -> Result<Verdict> {
    if (traced.deep != kNone) {
      out.cuts.push_back({traced.deep, "stored: the layouts below read it at an index of " +
                                           std::to_string(traced.indexWeight) + " operations under " +
                                           std::to_string(traced.guards) + " conditions, too many for one kernel"});
      return std::move(out);
    }
    int times = 0;
    ValueId v = finder.amongRepeated(traced.trace, times);
    if (v == kNone)
      return unsupported({}, "the layouts of this graph make more than " + std::to_string(request.maxInstances) +
                                 " distinct indices");
    out.cuts.push_back({v, "stored: the layouts below read it at " + std::to_string(times) +
                               " or more distinct indices, and each would be computed again"});
    return std::move(out);
  };
  for (;; g.lanes /= 2) {
    g.inputs.clear();
    request.lanes = g.lanes;
    RL_ASSIGN(TraceOutcome traced, tracePointwiseUpTo(request));
    const Trace &trace = traced.trace;
    if (traced.exceeded)
      return exceeded(traced);
    std::set<ValueId> loads;
    std::set<NodeId> nodes;
    auto collect = [&](const Trace &of) {
      for (const Instance &in : of.instances)
        if (in.node != kNone)
          nodes.insert(in.node);
        else if (loads.insert(in.value).second)
          g.inputs.push_back(in.value);
    };
    collect(trace);
    // What is left behind the last whole vector is computed one by one, and may reach pieces of a cat that no vector reaches.
    if (trace.elements % g.lanes != 0) {
      TraceRequest single = request;
      single.lanes = 1;
      single.maxInstances = 2 * request.maxInstances;
      RL_ASSIGN(TraceOutcome tail, tracePointwiseUpTo(single));
      if (tail.exceeded)
        return exceeded(tail);
      collect(tail.trace);
    }
    if (g.inputs.size() + g.outputs.size() > maxKernelArguments(target))
      return fitArguments(d, trace, g.inputs.size() + g.outputs.size());
    if (g.lanes > 1) {
      // Where the lanes of a vector differ in the piece that they take, every lane evaluates every piece.
      bool choosy = std::any_of(trace.instances.begin(), trace.instances.end(),
                                [](const Instance &in) { return !in.branches && in.pieces.size() > 8; });
      // The assembler issues many loads ahead; with this many tensors wide ones leave it short of registers.
      if (choosy || (target.gpu && g.inputs.size() > 96 && g.lanes > 2))
        continue;
      if (target.gpu && readsPiecemeal(graph, trace))
        continue;
    }
    double instructions = 0;
    for (const Instance &in : trace.instances)
      instructions += measureInstructions(graph, in, target, g.lanes);
    if (instructions > kMaxInstructions) {
      if (g.lanes >
          (target.gpu ? 1 : static_cast<int64_t>(target.vectorBytes / 4))) // fewer than a register holds save nothing
        continue;
      for (ValueId v : finder.forLength(trace))
        out.cuts.push_back(
            {v, "stored: a kernel of about " + std::to_string(static_cast<int64_t>(instructions)) +
                    " instructions is divided: beyond " + std::to_string(static_cast<int64_t>(kMaxInstructions)) +
                    " a pass through memory costs less than 1 % of the arithmetic, and assembling takes long"});
      if (!out.cuts.empty())
        return out;
      out.strained = true;
    }
    Pressure pressure = measurePressure(graph, trace);
    // Vectors are worth at most half of the registers: beyond that too few threads are there to keep memory busy.
    if (target.gpu && g.lanes > 1 && pressure.registers > finder.registerBudget() / 2)
      continue;
    if (target.gpu && pressure.registers > finder.registerBudget()) {
      RL_ASSIGN(std::vector<ValueId> written, finder.forRegisters(request, trace, pressure));
      for (ValueId v : written)
        out.cuts.push_back({v, "stored: about " + std::to_string(pressure.registers) +
                                   " registers would be live, a thread has " + std::to_string(finder.registerBudget()) +
                                   " for values"});
      if (!out.cuts.empty())
        return out;
      out.strained = true;
    }
    // Small blocks in address order, one vector a thread: of 128 to 512 threads and 1 to 4 vectors the fastest or within 1 % of
    // it on an H200 for every pointwise row measured (tests/bench/NOTES.md).
    g.threads = target.gpu ? 128 : 1;
    // A load at a loaded index waits for two accesses: several vectors a thread, so that the second are in flight together. (64
    // threads of 8 vectors: .98 of the copy bandwidth for rows of 8 KB picked from a table, one vector a thread .93.)
    bool gathers = std::any_of(trace.instances.begin(), trace.instances.end(), [&](const Instance &in) {
      return in.node == kNone && !in.uniform && trace.isGathered(in);
    });
    if (target.gpu && gathers) {
      int64_t blocks = g.elements / g.lanes / 64;
      for (int64_t unroll : {8, 4, 2})
        if (unroll * pressure.registers <= 200 && static_cast<double>(blocks / unroll) >= 16 * target.smCount) {
          g.threads = 64;
          g.unroll = unroll;
          break;
        }
    }
    if (g.splitCat)
      nodes.insert(graph.values[d.outputs[0]].node);
    g.nodes.assign(nodes.begin(), nodes.end());
    g.work = measureWork(graph, trace, g.threads);
    // Blocks that move little are over before the next one has started. (A few are better spread over all SMs.)
    constexpr int64_t kMostThreads = 512;
    constexpr double kManyWaves = 2;
    while (target.gpu && g.threads < kMostThreads) {
      cost::Estimate e = cost::estimate(g.work, target);
      if (e.starts <= std::max({e.memory, e.l2, e.compute()}) || cost::waves(target, g.work) < kManyWaves)
        break;
      g.threads *= 2;
      g.work = measureWork(graph, trace, g.threads);
    }
    // A CPU's blocks are one vector each and handed to threads in long runs: they make no waves.
    if (!target.gpu)
      g.work.blocks = 0;
    g.time = cost::estimate(g.work, target);
    if (auto cut = finder.forBroadcast(trace, g.work)) {
      out.cuts.push_back(std::move(*cut));
      return out;
    }
    break;
  }
  for (NodeId n : g.nodes)
    g.unfusedBytes += static_cast<int64_t>(cost::nodeWork(graph, n).bytes());
  out.group = std::move(g);
  return out;
}

void Planner::explain(Plan &plan) const {
  for (PlannedGroup &g : plan.groups) {
    g.why.push_back(
        "one pass over " + std::to_string(g.elements) + " elements: every value above " +
        (g.outputs.size() == 1 ? quoted(graph, g.outputs[0]) : std::to_string(g.outputs.size()) + " outputs") +
        " is computed from what is loaded");
    // Values that are written for one reason are named together.
    std::map<std::string, std::vector<ValueId>> reasons;
    for (ValueId v : g.outputs)
      if (auto it = cuts.find(v); it != cuts.end())
        reasons[it->second].push_back(v);
    for (const auto &[reason, values] : reasons) {
      std::string names;
      for (size_t i = 0; i < values.size() && i < 4; ++i)
        names += (i ? ", " : "") + quoted(graph, values[i]);
      if (values.size() > 4)
        names += " and " + std::to_string(values.size() - 4) + " more";
      g.why.push_back(names + " " + reason);
    }
    for (ValueId v : g.inputs) {
      if (graph.values[v].kind != Value::Result)
        continue;
      bool otherSpace = graph.type(v).elements() != g.elements;
      g.why.push_back(quoted(graph, v) + " is loaded from an earlier kernel" +
                      (cuts.contains(v) ? ""
                       : otherSpace     ? ": another iteration space stores it, and computing it again costs more"
                                        : ", which stores it anyway"));
      g.why.push_back(loadOrCompute(graph, target, cones, v));
    }
  }
}

/// A value that is cut is loaded by all that uses it, so that values cut one above the other make a kernel each. Where the
/// kernel before can compute both at no greater cost, it does.
void Planner::merge(std::vector<Placed> &placed) {
  std::map<ValueId, size_t> writer;
  std::vector<Placed> out;
  for (Placed &p : placed) {
    // The last of the kernels that it waits for: what else it loads is there before that one.
    size_t before = SIZE_MAX;
    for (ValueId v : p.loaded)
      before = before == SIZE_MAX ? writer.at(v) : std::max(before, writer.at(v));
    if (before != SIZE_MAX && out[before].group.elements == p.group.elements) {
      Placed &q = out[before];
      Draft both{p.group.elements, q.level, q.group.outputs};
      both.outputs.insert(both.outputs.end(), p.group.outputs.begin(), p.group.outputs.end());
      std::sort(both.outputs.begin(), both.outputs.end());
      std::set<ValueId> loaded(q.loaded.begin(), q.loaded.end());
      for (ValueId v : p.loaded)
        if (!std::binary_search(both.outputs.begin(), both.outputs.end(), v))
          loaded.insert(v);
      std::vector<ValueId> list(loaded.begin(), loaded.end());
      Result<Verdict> v = judge(both, list); // an error says that it cannot be
      auto seconds = [&](const PlannedGroup &g) { return cost::estimate(g.work, target, /*first=*/false).total; };
      if (v && v->group && !v->strained && v->group->lanes >= std::min(p.group.lanes, q.group.lanes) &&
          seconds(*v->group) <= seconds(p.group) + seconds(q.group)) {
        q.group = std::move(*v->group);
        q.loaded = std::move(list);
        for (ValueId o : p.group.outputs)
          writer[o] = before;
        continue;
      }
    }
    for (ValueId o : p.group.outputs)
      writer[o] = out.size();
    out.push_back(std::move(p));
  }
  placed = std::move(out);
}

Result<Plan> Planner::run() {
  RL_TRY(checkSupported());
  cones = measureCones(graph);
  for (ValueId v : graph.outputs)
    if (graph.values[v].kind == Value::Result)
      stored.insert(v);
  // Each round either finds every group sound or writes more values to memory; a value is cut once.
  for (;;) {
    std::vector<Placed> placed;
    std::vector<Cut> found;
    std::vector<Draft> work = drafts();
    std::reverse(work.begin(), work.end());
    while (!work.empty() && found.empty()) {
      Draft d = std::move(work.back());
      work.pop_back();
      std::pair key{d.outputs, boundaryOf(d)};
      if (auto it = sound.find(key); it != sound.end()) {
        placed.push_back({it->second, d.level, std::move(key.second)});
        continue;
      }
      RL_ASSIGN(Verdict v, judge(d, key.second));
      if (v.group) {
        placed.push_back({*v.group, d.level, key.second});
        sound.emplace(std::move(key), std::move(*v.group));
      }
      work.insert(work.end(), std::make_move_iterator(v.parts.rbegin()), std::make_move_iterator(v.parts.rend()));
      found = std::move(v.cuts);
    }
    if (found.empty()) {
      merge(placed);
      Plan plan;
      for (Placed &p : placed)
        plan.groups.push_back(std::move(p.group));
      std::vector<bool> counted(graph.nodes.size(), false);
      for (const PlannedGroup &g : plan.groups)
        for (NodeId n : g.nodes)
          if (!counted[n]) {
            counted[n] = true;
            plan.unfusedBytes += static_cast<int64_t>(cost::nodeWork(graph, n).bytes());
          }
      explain(plan);
      return plan;
    }
    for (Cut &cut : found) {
      stored.insert(cut.first);
      cuts.emplace(std::move(cut));
    }
  }
}

} // namespace

size_t maxKernelArguments(const cost::TargetDesc &target) {
  return static_cast<size_t>(target.maxParameterBytes / 8) - 4;
}

bool isPointwise(OpKind op) {
  OpClass c = opInfo(op).cls;
  return isElementwise(c) || c == OpClass::Shape || c == OpClass::Creation || c == OpClass::Indexing;
}

Result<Plan> planPointwise(const Graph &graph, const cost::TargetDesc &target) { return Planner(graph, target).run(); }

} // namespace rl
