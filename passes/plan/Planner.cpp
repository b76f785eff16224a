// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/plan/Planner.h"
#include "passes/plan/Measure.h"
#include "passes/plan/Trace.h"

#include <algorithm>
#include <map>
#include <set>

namespace rl {

namespace {

bool isElementwise(OpClass c) { return c == OpClass::Unary || c == OpClass::Binary || c == OpClass::Ternary; }

std::string quoted(const Graph &graph, ValueId v) { return "'" + graph.values[v].name + "'"; }

class Planner {
public:
  Planner(const Graph &graph, const cost::TargetDesc &target) : graph(graph), target(target) {}
  Result<Plan> run();

private:
  struct Draft {
    int64_t elements;
    int level;
    std::vector<ValueId> outputs;
  };
  struct Verdict {
    std::optional<PlannedGroup> group;
    ValueId cut = kNone; ///< write this value to memory, then plan again
    std::string reason;
  };

  Status checkSupported() const;
  std::vector<Draft> drafts();
  bool loadedFor(ValueId v, int64_t elements) const;
  Result<Verdict> judge(const Draft &);
  std::vector<bool> boundaryFor(const Draft &) const;
  ValueId cutAmongRepeated(const Trace &) const;
  ValueId cutForArguments(const Trace &, size_t limit) const;
  int64_t chooseLanes(const Draft &, const std::vector<bool> &boundary, bool splitCat, std::vector<std::string> &why) const;
  std::optional<std::pair<ValueId, std::string>> cutForBroadcast(const Draft &, const Trace &, const PlannedGroup &) const;
  int64_t unfusedBytes(const std::vector<NodeId> &) const;
  /// A launch's parameters are pointers; a few bytes stay free for what later needs them.
  size_t maxArguments() const { return static_cast<size_t>((target.gpu ? target.maxParameterBytes : 4096) / 8) - 4; }
  /// A thread's registers less addresses, temporaries and what the assembler keeps.
  int64_t registerBudget() const { return static_cast<int64_t>(target.registersPerThread * 0.75); }
  static uint64_t opWeight(const Node &node) {
    cost::OpCost c = cost::opCost(node.op, DType::F32);
    return static_cast<uint64_t>(c.ops + 8 * c.special);
  }

  const Graph &graph;
  const cost::TargetDesc &target;
  std::set<ValueId> stored;           ///< outputs and cuts
  std::map<ValueId, std::string> cuts; ///< value -> why it is written
  std::map<ValueId, int> level;
  std::vector<uint32_t> cone;         ///< by value: a cheap measure of the work above it, saturating
};

Status Planner::checkSupported() const {
  for (NodeId n = 0; n < graph.nodes.size(); ++n) {
    const Node &node = graph.nodes[n];
    OpClass c = opInfo(node.op).cls;
    if (!isElementwise(c) && c != OpClass::Shape && c != OpClass::Creation)
      return unsupported(node.pointer(), graph.describe(n) + ": only elementwise, layout and creation ops are compiled for " +
                                             target.name + "; the target 'reference' runs every op");
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
  return graph.type(v).elements() != elements && cone[v] > 8;
}

std::vector<Planner::Draft> Planner::drafts() {
  // For each iteration space, how many kernels must have run before a value can be computed in it.
  std::set<int64_t> spaces;
  for (ValueId v : stored)
    spaces.insert(graph.type(v).elements());
  level.clear();
  // Levels depend on each other through loads; values come in topological order, so one sweep over values suffices when all
  // spaces are advanced together.
  std::map<int64_t, std::vector<int>> depth;
  for (int64_t n : spaces)
    depth[n].assign(graph.values.size(), 0);
  for (NodeId n = 0; n < graph.nodes.size(); ++n) {
    const Node &node = graph.nodes[n];
    for (auto &[elements, d] : depth) {
      int most = 0;
      for (const Operand &o : node.inputs)
        if (!o.isLiteral())
          most = std::max(most, loadedFor(o.value, elements) ? level[o.value] + 1 : d[o.value]);
      for (ValueId out : node.outputs)
        d[out] = most;
    }
    for (ValueId out : node.outputs)
      if (stored.contains(out))
        level[out] = depth[graph.type(out).elements()][out];
  }
  std::map<std::pair<int, int64_t>, Draft> byKey;
  for (ValueId v = 0; v < graph.values.size(); ++v)
    if (stored.contains(v)) {
      int64_t elements = graph.type(v).elements();
      Draft &d = byKey[{level[v], elements}];
      d.elements = elements;
      d.level = level[v];
      d.outputs.push_back(v);
    }
  std::vector<Draft> out;
  for (auto &[key, d] : byKey)
    out.push_back(std::move(d));
  return out;
}

std::vector<bool> Planner::boundaryFor(const Draft &d) const {
  std::vector<bool> b(graph.values.size(), false);
  for (ValueId v : stored)
    b[v] = loadedFor(v, d.elements);
  for (ValueId v : d.outputs)
    b[v] = false;
  return b;
}

/// The value nearest to the outputs that is evaluated at eight or more indices: below it little is repeated, and above it
/// counting starts anew.
ValueId Planner::cutAmongRepeated(const Trace &trace) const {
  std::map<ValueId, int> count;
  for (const Instance &in : trace.instances)
    if (in.node != kNone && opInfo(graph.nodes[in.node].op).cls != OpClass::Creation)
      ++count[in.value];
  ValueId best = kNone;
  int most = 1;
  for (auto [v, n] : count)
    if (n >= 8)
      best = v; // ascending: the last is nearest to the outputs
  if (best != kNone)
    return best;
  for (auto [v, n] : count)
    if (n > most) {
      most = n;
      best = v;
    }
  return best;
}

/// The last value that is complete when half of the allowed arguments have been loaded.
ValueId Planner::cutForArguments(const Trace &trace, size_t limit) const {
  std::set<ValueId> loaded;
  ValueId best = kNone;
  for (const Instance &in : trace.instances) {
    if (in.node == kNone)
      loaded.insert(in.value);
    else if (in.scope == 0 && opInfo(graph.nodes[in.node].op).cls != OpClass::Creation && !stored.contains(in.value))
      best = in.value;
    if (loaded.size() >= limit / 2 && best != kNone)
      break;
  }
  return best;
}

int64_t Planner::chooseLanes(const Draft &d, const std::vector<bool> &boundary, bool splitCat, std::vector<std::string> &why) const {
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

int64_t Planner::unfusedBytes(const std::vector<NodeId> &nodes) const {
  int64_t bytes = 0;
  for (NodeId n : nodes) {
    const Node &node = graph.nodes[n];
    std::set<ValueId> read;
    for (const Operand &o : node.inputs)
      if (!o.isLiteral() && read.insert(o.value).second)
        bytes += graph.type(o.value).bytes();
    for (ValueId v : node.outputs)
      bytes += graph.type(v).bytes();
  }
  return bytes;
}

/// A chain on a small tensor that is broadcast is evaluated once for every element of the large one. Where that makes the
/// kernel bound by arithmetic, writing the small tensor first may be cheaper.
std::optional<std::pair<ValueId, std::string>> Planner::cutForBroadcast(const Draft &d, const Trace &trace,
                                                                       const PlannedGroup &group) const {
  if (group.time.compute() <= group.time.memory)
    return std::nullopt;
  ValueId best = kNone;
  double bestSaving = 0;
  for (const Instance &in : trace.instances) {
    if (in.node == kNone || !isElementwise(opInfo(graph.nodes[in.node].op).cls))
      continue;
    for (uint32_t i : in.operands) {
      if (i == kNone || trace.instances[i].node == kNone)
        continue;
      ValueId v = trace.instances[i].value;
      int64_t small = graph.type(v).elements();
      if (small * 4 > d.elements || stored.contains(v))
        continue;
      double saving = measureCone(graph, trace, i, target, d.elements - small);
      if (saving > bestSaving) {
        bestSaving = saving;
        best = v;
      }
    }
  }
  if (best == kNone)
    return std::nullopt;
  double extra = target.launchNext + 2.0 * static_cast<double>(graph.type(best).bytes()) / target.dramCopy;
  double gain = std::min(bestSaving, group.time.compute() - group.time.memory);
  if (gain <= extra)
    return std::nullopt;
  auto us = [](double s) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f us", s * 1e6);
    return std::string(text);
  };
  return std::pair{best, "stored: computing it for each element that it is broadcast to costs " + us(gain) +
                             ", a kernel and a pass through memory " + us(extra)};
}

Result<Planner::Verdict> Planner::judge(const Draft &d) {
  Verdict out;
  PlannedGroup g;
  g.outputs = d.outputs;
  g.elements = d.elements;
  std::vector<bool> boundary = boundaryFor(d);
  TraceRequest request;
  request.graph = &graph;
  request.outputs = d.outputs;
  request.boundary = boundary;
  g.splitCat = d.outputs.size() == 1 && isSplittableCat(graph, d.outputs[0]);
  g.lanes = chooseLanes(d, boundary, g.splitCat, g.why);
  if (g.splitCat) {
    // Pieces that are not whole vectors long would be stored element by element.
    const Node &cat = graph.nodes[graph.values[d.outputs[0]].node];
    const std::vector<int64_t> &shape = graph.type(cat.inputs[0].value).shape;
    int64_t run = 1;
    for (size_t i = cat.attrs.dim; i < shape.size(); ++i)
      run *= shape[i];
    if (run % g.lanes != 0) {
      g.splitCat = false;
      g.lanes = chooseLanes(d, boundary, false, g.why);
    }
  }
  request.splitCat = g.splitCat;
  request.maxInstances = 4 * graph.nodes.size() + 1024;
  for (;;) {
    request.lanes = g.lanes;
    RL_ASSIGN(TraceOutcome traced, tracePointwiseUpTo(request));
    const Trace &trace = traced.trace;
    if (traced.exceeded) {
      out.cut = cutAmongRepeated(trace);
      if (out.cut == kNone)
        return unsupported({}, "the layouts of this graph make " + std::to_string(request.maxInstances) + " distinct indices");
      out.reason = "stored: the layouts below read it at many distinct indices, and each would be computed again";
      return out;
    }
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
      RL_ASSIGN(Trace tail, tracePointwise(single));
      collect(tail);
    }
    if (g.inputs.size() + g.outputs.size() > maxArguments()) {
      out.cut = cutForArguments(trace, maxArguments());
      if (out.cut != kNone) {
        out.reason = "stored: " + std::to_string(g.inputs.size() + g.outputs.size()) + " tensors meet here, and a launch takes " +
                     std::to_string(maxArguments());
        return out;
      }
    }
    // The assembler issues many loads ahead; with this many tensors wide ones leave it short of registers.
    if (target.gpu && g.inputs.size() > 96 && g.lanes > 2) {
      g.lanes /= 2;
      g.inputs.clear();
      continue;
    }
    Pressure pressure = measurePressure(graph, trace);
    if (target.gpu && pressure.registers > registerBudget()) {
      if (g.lanes > 1) {
        g.lanes /= 2;
        g.inputs.clear();
        continue;
      }
      if (pressure.farthest != kNone && !stored.contains(pressure.farthest)) {
        out.cut = pressure.farthest;
        out.reason = "stored: about " + std::to_string(pressure.registers) + " registers would be live, a thread has " +
                     std::to_string(registerBudget()) + " for values";
        return out;
      }
    }
    // Small blocks in address order, one vector a thread: of 128 to 512 threads and 1 to 4 vectors the fastest or within 1 % of
    // it on an H200 for every pointwise row measured (tests/bench/NOTES.md).
    g.threads = target.gpu ? 128 : 1;
    if (g.splitCat)
      nodes.insert(graph.values[d.outputs[0]].node);
    g.nodes.assign(nodes.begin(), nodes.end());
    g.work = measureWork(graph, trace, g.threads);
    // A CPU's blocks are one vector each and handed to threads in long runs: they make no waves.
    if (!target.gpu)
      g.work.blocks = 0;
    g.time = cost::estimate(g.work, target);
    if (auto cut = cutForBroadcast(d, trace, g)) {
      out.cut = cut->first;
      out.reason = cut->second;
      return out;
    }
    break;
  }
  g.unfusedBytes = unfusedBytes(g.nodes);
  out.group = std::move(g);
  return out;
}

Result<Plan> Planner::run() {
  RL_TRY(checkSupported());
  cone.assign(graph.values.size(), 0);
  for (const Node &node : graph.nodes) {
    uint64_t work = isElementwise(opInfo(node.op).cls) ? opWeight(node) : 0;
    for (const Operand &o : node.inputs)
      if (!o.isLiteral())
        work += cone[o.value];
    for (ValueId v : node.outputs)
      cone[v] = static_cast<uint32_t>(std::min<uint64_t>(work, 1u << 30));
  }
  for (ValueId v : graph.outputs)
    if (graph.values[v].kind == Value::Result)
      stored.insert(v);
  // Each round either finds every group sound or writes one more value to memory; a value is written once.
  for (;;) {
    Plan plan;
    bool again = false;
    for (const Draft &d : drafts()) {
      RL_ASSIGN(Verdict v, judge(d));
      if (!v.group) {
        stored.insert(v.cut);
        cuts[v.cut] = v.reason;
        again = true;
        break;
      }
      plan.groups.push_back(std::move(*v.group));
    }
    if (again)
      continue;
    for (PlannedGroup &g : plan.groups) {
      g.why.insert(g.why.begin(), "one pass over " + std::to_string(g.elements) + " elements: every value above " +
                                      (g.outputs.size() == 1 ? quoted(graph, g.outputs[0]) : std::to_string(g.outputs.size()) + " outputs") +
                                      " is computed from what is loaded");
      for (ValueId v : g.outputs)
        if (auto it = cuts.find(v); it != cuts.end())
          g.why.push_back(quoted(graph, v) + " " + it->second);
      for (ValueId v : g.inputs)
        if (graph.values[v].kind == Value::Result)
          g.why.push_back(quoted(graph, v) + " is loaded from an earlier kernel" +
                          (cuts.contains(v) ? "" : ": another iteration space stores it, and computing it again costs more"));
    }
    return plan;
  }
}

} // namespace

Result<Plan> planPointwise(const Graph &graph, const cost::TargetDesc &target) { return Planner(graph, target).run(); }

} // namespace rl
