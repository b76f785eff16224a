// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/plan/Cuts.h"
#include "passes/plan/Dominance.h"

#include <algorithm>
#include <cstdio>

namespace rl {

static bool isElementwise(OpClass c) { return c == OpClass::Unary || c == OpClass::Binary || c == OpClass::Ternary; }

static std::string microseconds(double s) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f us", s * 1e6);
  return text;
}

/// Which instances others are computed from, the pieces of a cat that is stored piece by piece among them; what is only stored
/// is not worth loading.
std::vector<bool> CutFinder::usedByOthers(const Trace &trace) const {
  std::vector<bool> used(trace.instances.size(), false);
  for (const TraceStore &s : trace.stores)
    used[s.instance] = !stored.contains(trace.instances[s.instance].value);
  for (const Instance &in : trace.instances) {
    for (uint32_t o : in.operands)
      if (o != kNone)
        used[o] = true;
    for (const Instance::Piece &p : in.pieces)
      if (p.instance != kNone)
        used[p.instance] = true;
  }
  return used;
}

/// Whether writing the value to memory could spare a kernel anything.
bool CutFinder::isWorth(const Instance &in) const {
  if (in.node == kNone || cuts.contains(in.value))
    return false;
  OpKind op = graph.nodes[in.node].op;
  return isElementwise(opInfo(op).cls) || opInfo(op).cls == OpClass::Indexing || op == OpKind::Cat || op == OpKind::Pad;
}

ValueId CutFinder::amongRepeated(const Trace &trace, int &times) const {
  std::map<ValueId, int> count;
  for (const Instance &in : trace.instances)
    if (in.node != kNone && opInfo(graph.nodes[in.node].op).cls != OpClass::Creation && !cuts.contains(in.value))
      ++count[in.value];
  ValueId best = kNone;
  times = 1;
  for (auto [v, n] : count) // ascending: the last is nearest to the outputs
    if (n >= 8 || (n > times && times < 8)) {
      times = n;
      best = v;
    }
  return best;
}

ValueId CutFinder::forArguments(const Trace &trace, size_t arguments, size_t limit) const {
  Dominance dominance(trace);
  // A tensor is an argument once however often it is read: it counts where all its reads meet.
  std::map<ValueId, uint32_t> meeting;
  for (uint32_t i = 0; i < trace.instances.size(); ++i) {
    if (trace.instances[i].node != kNone || dominance.above(i) == kNone)
      continue;
    auto [it, first] = meeting.emplace(trace.instances[i].value, dominance.above(i));
    if (!first)
      it->second = dominance.meet(it->second, dominance.above(i));
  }
  std::vector<size_t> reads(trace.instances.size() + 1, 0);
  for (auto [v, at] : meeting)
    ++reads[at];
  dominance.accumulate(reads);
  std::vector<bool> used = usedByOthers(trace);
  ValueId best = kNone;
  size_t most = std::max<size_t>(2, std::min(limit / 8, arguments - limit + 1));
  for (uint32_t i = 0; i < trace.instances.size(); ++i) {
    const Instance &in = trace.instances[i];
    if (!isWorth(in) || !used[i] || reads[i] >= limit || reads[i] < most)
      continue;
    if (best != kNone && reads[i] == most && graph.type(in.value).bytes() > graph.type(best).bytes())
      continue;
    most = reads[i];
    best = in.value;
  }
  if (best != kNone)
    return best;
  // Everything is read by everybody. The last value that is complete when half of the arguments have been loaded.
  std::set<ValueId> loaded;
  for (uint32_t i = 0; i < trace.instances.size(); ++i) {
    const Instance &in = trace.instances[i];
    if (in.node == kNone)
      loaded.insert(in.value);
    else if (isWorth(in) && used[i])
      best = in.value;
    if (loaded.size() >= limit / 2 && best != kNone)
      break;
  }
  return best;
}

std::vector<ValueId> CutFinder::forLength(const Trace &trace) const {
  auto n = static_cast<uint32_t>(trace.instances.size());
  std::vector<uint32_t> homes = measureHomes(graph, trace), lastUse(n, 0);
  double total = 0;
  for (uint32_t i = 0; i < n; ++i) {
    const Instance &in = trace.instances[i];
    total += measureInstructions(graph, in, target, trace.lanes);
    for (uint32_t o : in.operands)
      if (o != kNone)
        lastUse[homes[o]] = i;
    for (const Instance::Piece &p : in.pieces)
      if (p.instance != kNone)
        lastUse[homes[p.instance]] = i;
  }
  double limit = std::min(total / 2, 0.95 * kMaxInstructions), sum = 0;
  std::vector<int> ending(n, 0);
  int alive = 0, fewest = INT32_MAX;
  uint32_t place = kNone;
  for (uint32_t i = 0; i < n && (sum <= limit || place == kNone); ++i) {
    const Instance &in = trace.instances[i];
    sum += measureInstructions(graph, in, target, trace.lanes);
    alive -= ending[i];
    if (isWorth(in) && lastUse[i] > i) {
      ++alive;
      ++ending[lastUse[i]];
    }
    if (in.scope == 0 && alive > 0 && sum >= limit / 2 && alive <= fewest) {
      fewest = alive;
      place = i;
    }
  }
  std::set<ValueId> out;
  for (uint32_t i = 0; place != kNone && i <= place; ++i)
    if (isWorth(trace.instances[i]) && lastUse[i] > place)
      out.insert(trace.instances[i].value);
  return {out.begin(), out.end()};
}

Result<std::vector<ValueId>> CutFinder::forRegisters(TraceRequest request, const Trace &trace,
                                                     const Pressure &pressure) const {
  std::vector<ValueId> several;
  std::set<ValueId> chosen;
  int64_t live = pressure.registers, bytes = 0;
  for (auto [v, registers] : pressure.live) {
    if (live <= registerBudget())
      break;
    if (cuts.contains(v))
      continue;
    live -= registers;
    if (!chosen.insert(v).second)
      continue;
    several.push_back(v);
    bytes += 2 * graph.type(v).bytes();
  }
  std::vector<bool> used = usedByOthers(trace);
  uint32_t at = pressure.peak;
  while (at != kNone && !(isWorth(trace.instances[at]) && used[at]))
    at = at == 0 ? kNone : at - 1;
  if (at == kNone)
    return several;
  ValueId before = trace.instances[at].value;
  std::vector<ValueId> one{before};
  if (several.empty())
    return one;
  if (static_cast<double>(2 * graph.type(before).bytes()) + measureWork(graph, trace, 1).bytesRead >=
          static_cast<double>(bytes) &&
      live <= registerBudget())
    return several;
  request.boundary[before] = true;
  RL_ASSIGN(TraceOutcome anew, tracePointwiseUpTo(request));
  bool suffices = !anew.exceeded && measurePressure(graph, anew.trace).registers <= registerBudget();
  return suffices ? one : several;
}

std::optional<Cut> CutFinder::forBroadcast(const Trace &trace, const cost::WorkEstimate &work) const {
  const cost::Estimate time = cost::estimate(work, target);
  if (time.compute() <= time.memory)
    return std::nullopt;
  // What each value's kernel would spare this one: all that is evaluated for it alone.
  Dominance dominance(trace);
  std::vector<double> times = measureEvaluations(graph, trace);
  std::vector<double> ops(trace.instances.size() + 1, 0), special(ops), opsOnce(ops), specialOnce(ops);
  for (size_t i = 0; i < trace.instances.size(); ++i) {
    const Instance &in = trace.instances[i];
    cost::WorkEstimate w = measureOps(graph, in, times[i]);
    ops[i] = w.ops;
    special[i] = w.specialOps;
    w = measureOps(graph, in, static_cast<double>(graph.type(in.value).elements()));
    opsOnce[i] = w.ops;
    specialOnce[i] = w.specialOps;
  }
  dominance.accumulate(ops);
  dominance.accumulate(special);
  dominance.accumulate(opsOnce);
  dominance.accumulate(specialOnce);
  struct Saving {
    double times = 0, ops = 0, special = 0, opsOnce = 0, specialOnce = 0;
  };
  std::map<ValueId, Saving> savings;
  std::vector<bool> used = usedByOthers(trace);
  for (size_t i = 0; i < trace.instances.size(); ++i) {
    const Instance &in = trace.instances[i];
    if (!isWorth(in) || !used[i])
      continue;
    Saving &s = savings[in.value];
    s.times += times[i];
    s.ops += ops[i];
    s.special += special[i];
    s.opsOnce = std::max(s.opsOnce, opsOnce[i]);
    s.specialOnce = std::max(s.specialOnce, specialOnce[i]);
  }
  auto compute = [&](double o, double sp) {
    cost::WorkEstimate w = work;
    w.ops = o;
    w.specialOps = sp;
    return cost::estimate(w, target).compute();
  };
  std::optional<Cut> best;
  double bestNet = 0, bestOps = 0;
  for (const auto &[v, s] : savings) {
    auto small = static_cast<double>(graph.type(v).elements());
    if (s.times < 4 * small)
      continue;
    double after = std::max(compute(work.ops - s.ops, work.specialOps - s.special), time.memory);
    double gain = time.compute() - after;
    double extra = target.launchNext + 2.0 * static_cast<double>(graph.type(v).bytes()) / target.dramCopy +
                   compute(s.opsOnce, s.specialOnce);
    // Of values that spare the same, for the kernel is bound by memory then, the one that spares most work.
    double net = gain - extra;
    if (net <= 0 || (best && (net < 0.98 * bestNet || (net < 1.02 * bestNet && s.ops < bestOps))))
      continue;
    bestNet = net;
    bestOps = s.ops;
    best = Cut{v, "stored: computing it for each element that it is broadcast to costs " + microseconds(gain) +
                      ", a kernel and a pass through memory " + microseconds(extra)};
  }
  return best;
}

ValueId cutBetweenLevels(const Graph &graph, const Trace &trace, const std::function<bool(ValueId)> &mayCut) {
  std::map<ValueId, int> uses;
  for (const Instance &in : trace.instances) {
    // What a reduction alone reads (squares, say) would not spare the rest from being computed again.
    if (in.level <= trace.levels / 2 || (in.node != kNone && opInfo(graph.nodes[in.node].op).cls == OpClass::Reduction))
      continue;
    for (uint32_t o : in.operands)
      if (o != kNone)
        if (const Instance &from = trace.instances[o];
            from.node != kNone && from.varies && from.level <= trace.levels / 2 && from.level > 0 && mayCut(from.value))
          ++uses[from.value];
  }
  ValueId best = kNone;
  for (auto [v, n] : uses)
    if (best == kNone || n >= uses[best])
      best = v;
  return best;
}

std::string loadOrCompute(const Graph &graph, const cost::TargetDesc &target, const Cones &cones, ValueId v) {
  auto time = [](double seconds) {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g us", seconds * 1e6);
    return std::string(text);
  };
  const TensorType &type = graph.type(v);
  double load = static_cast<double>(type.bytes()) / target.dramCopy;
  std::string again = "a product is above it, which is computed once";
  if (cones.work[v] < 1u << 20) {
    double lanes = target.smCount * target.issueLanes * target.clockHz;
    again = time(static_cast<double>(cones.work[v]) * static_cast<double>(type.elements()) / lanes) +
            " to compute again, before what that would read";
    if (cones.heroes[v])
      again = "to compute it again a kernel would reduce the rows above it once more";
  }
  return "'" + graph.values[v].name + "': " + time(load) + " to load; " + again;
}

} // namespace rl
