// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/plan/TileChoice.h"
#include "passes/plan/Planner.h"

#include <algorithm>
#include <cstdio>
#include <tuple>

namespace rl {

std::string TileCandidate::str() const {
  if (schedule.kernel == "wgmma")
    return "wgmma " + schedule.wgmma.str() + (schedule.turned ? ", turned" : "");
  std::string out = schedule.kernel + " " + std::to_string(schedule.tileM) + "x" + std::to_string(schedule.tileN) +
                    "x" + std::to_string(schedule.tileK);
  if (schedule.kernel == "thin" || schedule.kernel == "stream")
    out += ", warps " + std::to_string(schedule.warpsN) + "x" + std::to_string(schedule.warpsK);
  if (schedule.kernel == "direct")
    out += ", " + std::to_string(schedule.warpsK) + " parts of K";
  if (schedule.streams())
    out += ", " + std::to_string(schedule.stages) + " stages" +
           (schedule.blocksPerSm > 1 ? ", " + std::to_string(schedule.blocksPerSm) + " blocks an SM" : "");
  return out;
}

namespace {

/// A text that two bodies have in common only where they are the same.
class Text {
public:
  void add(std::string_view s) { out.append(s).append(";"); }
  void add(int64_t v) { add(std::to_string(v)); }
  void add(double v) {
    char text[40];
    std::snprintf(text, sizeof text, "%a", v);
    add(std::string_view(text));
  }
  void add(const std::vector<int64_t> &list) {
    add(static_cast<int64_t>(list.size()));
    for (int64_t v : list)
      add(v);
  }
  void add(const Scalar &s) {
    add(static_cast<int64_t>(s.kind));
    add(s.i);
    add(s.f);
  }
  void add(const TensorType &t) {
    add(std::string_view(dtypeName(t.dtype)));
    add(t.shape);
  }
  void add(const Attrs &a) {
    for (bool flag :
         {a.tanhApproximation, a.fast, a.saturate, a.keepdim, a.hasWeight, a.hasBias, a.transposeA, a.transposeB,
          a.causal, a.asymmetric, a.fastAccumulate, a.min.has_value(), a.max.has_value(), a.scale.has_value()})
      out += flag ? '1' : '0';
    for (const std::optional<Scalar> &bound : {a.min, a.max})
      add(bound.value_or(Scalar()));
    for (DType t : {a.dtype, a.scaleDtype})
      add(std::string_view(dtypeName(t)));
    for (const std::vector<int64_t> *list : {&a.shape, &a.dims, &a.low, &a.high})
      add(*list);
    for (int64_t v : {a.dim, a.start, a.step, a.length, a.ignoreIndex, a.axis, a.axisA, a.axisB, a.block[0], a.block[1],
                      a.blockA[0], a.blockA[1], a.blockB[0], a.blockB[1]})
      add(v);
    for (Granularity g : {a.granularity, a.granularityA, a.granularityB})
      add(static_cast<int64_t>(g));
    add(a.value);
    for (double v : {a.correction, a.eps, a.scale.value_or(0)})
      add(v);
  }
  /// FNV-1a, 64 bits.
  uint64_t hash() const {
    uint64_t h = 14695981039346656037u;
    for (unsigned char c : out)
      h = (h ^ c) * 1099511628211u;
    return h;
  }

private:
  std::string out;
};

std::string figure(double microseconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", microseconds);
  return text;
}

} // namespace

std::string productKey(const Graph &graph, const PlannedGroup &g) {
  Text text;
  text.add(graph.strict ? "strict" : "fused");
  std::map<ValueId, int64_t> numbers;
  auto number = [&](ValueId v) { numbers.emplace(v, static_cast<int64_t>(numbers.size())); };
  for (ValueId v : g.inputs) {
    number(v);
    text.add(graph.type(v));
  }
  for (NodeId n : g.nodes) {
    const Node &node = graph.nodes[n];
    text.add(opInfo(node.op).name);
    text.add(node.attrs);
    for (const Operand &o : node.inputs) {
      if (o.isLiteral()) {
        text.add("literal");
        text.add(o.literal);
      } else if (auto it = numbers.find(o.value); it != numbers.end()) {
        text.add(it->second);
      } else { // no element of it is read: a piece of a cat, say
        text.add("unread");
        text.add(graph.type(o.value));
      }
    }
    for (ValueId v : node.outputs) {
      number(v);
      text.add(graph.type(v));
    }
  }
  text.add("outputs");
  for (ValueId v : g.outputs)
    text.add(numbers.at(v));
  const ProductShape &p = g.gemm->shape;
  std::string extents = (p.batch > 1 ? std::to_string(p.batch) + "x" : "") + std::to_string(p.m) + "x" +
                        std::to_string(p.n) + "x" + std::to_string(p.k);
  char hash[24];
  std::snprintf(hash, sizeof hash, "-%016llx", static_cast<unsigned long long>(text.hash()));
  return extents + hash;
}

void rankCandidates(PlannedGroup &g) {
  constexpr double kWithin = 1.15;
  std::vector<TileCandidate> ranked{{*g.gemm, g.time.total}};
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < g.tiles.size(); ++i)
    order.emplace_back(g.tiles[i].seconds, i);
  std::sort(order.begin(), order.end());
  // Tiles of one form that are a few columns narrower or wider take about the same time: what the model gets wrong, it gets wrong for
  // all of them.
  constexpr int kOfAForm = 2;
  auto form = [](const GemmSchedule &s) {
    return std::tuple(s.kernel, s.tileM, s.threads, s.warpsN, s.wgmma.alternate, s.wgmma.blocksPerSm, s.blocksPerSm);
  };
  std::map<decltype(form(*g.gemm)), int> taken{{form(*g.gemm), 1}};
  for (auto [seconds, i] : order) {
    const GemmSchedule &s = g.tiles[i].schedule;
    if (ranked.size() == kMostCandidates || seconds > kWithin * g.time.total)
      break;
    const bool many = s.kernel == "wgmma" || s.streams();
    if (std::any_of(ranked.begin(), ranked.end(), [&](const TileCandidate &c) { return c.schedule == s; }))
      continue;
    if (!many || ++taken[form(s)] <= kOfAForm)
      ranked.push_back(std::move(g.tiles[i]));
  }
  g.tiles = std::move(ranked);
}

Result<PlannedGroup> takeChoice(PlannedGroup g, const TileChoices &choices,
                                const std::function<Result<PlannedGroup>(const GemmSchedule &)> &reschedule) {
  auto found = choices.find(g.key);
  if (found == choices.end())
    return g;
  const TileChoice &choice = found->second;
  if (choice.candidate >= g.tiles.size() || choice.microseconds.size() > g.tiles.size() ||
      (!choice.microseconds.empty() && choice.candidate >= choice.microseconds.size()))
    return usageError("kernel " + g.key + ": tile " + std::to_string(choice.candidate) + " of " +
                      std::to_string(choice.microseconds.size()) + " that were timed is chosen, and the model has " +
                      std::to_string(g.tiles.size()));
  const std::vector<TileCandidate> tiles = g.tiles;
  if (choice.candidate != 0) {
    std::string key = std::move(g.key);
    RL_ASSIGN(g, reschedule(tiles[choice.candidate].schedule));
    if (*g.gemm != tiles[choice.candidate].schedule)
      return unsupported({}, "kernel " + key + " has no tile " + tiles[choice.candidate].str());
    g.key = std::move(key);
    g.tiles = tiles;
  }
  g.tile = choice.candidate;
  g.measured = choice.microseconds;
  if (choice.microseconds.empty()) {
    g.why.push_back("tile " + tiles[g.tile].str() + " as asked for; the model's first is " + tiles[0].str());
    return g;
  }
  auto took = [&](size_t i) {
    double us = choice.microseconds[i];
    return us > 0 ? " took " + figure(us) : std::string(" could not be timed");
  };
  std::string why = "chosen by measurement: " + tiles[g.tile].str() + took(g.tile) + " us; the model's first";
  why += g.tile == 0 ? std::string(" it is") : ", " + tiles[0].str() + "," + took(0);
  for (size_t i = 1; i < choice.microseconds.size(); ++i)
    if (i != g.tile)
      why += "; " + tiles[i].str() + took(i);
  g.why.push_back(why);
  return g;
}

} // namespace rl
