// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The decisions. Everything starts as the graph says (or as it is pinned); then the change that saves most time for each
// unit of variance that it adds to an output is made, as long as one is left that keeps every output within the tolerance.
#include "passes/precision/Candidates.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>

namespace rl {

namespace {

/// What changes must gain, of the time of what they change: less is within what the model knows.
constexpr double kLeastGain = 0.02;

std::string figure(double v, const char *format = "%.3g") {
  char text[32];
  std::snprintf(text, sizeof text, format, v);
  return text;
}

class Assigner {
public:
  Assigner(const Graph &g, const cost::TargetDesc &machine, const std::vector<ValueId> &cotangents)
      : g(g), candidates(g, machine, cotangents), model(g), state(candidates, machine, model) {}

  Result<PrecisionAssignment> run() {
    RL_TRY(candidates.find());
    state.prepare();
    const PrecisionState::Totals start = state.totals();
    state.applyPins();
    // A pair of i8 is quicker than one of f8, and takes more of the budget: with each alone others may gain more than it saves.
    const PrecisionState::Saved pinned = state.save();
    PrecisionState::Saved best = pinned;
    double least = -1;
    for (auto [f8, i8] : {std::pair{true, true}, {true, false}, {false, true}}) {
      state.restore(pinned);
      improve(f8, i8);
      if (double seconds = state.totals().seconds; least < 0 || seconds < least) {
        least = seconds;
        best = state.save();
      }
    }
    state.restore(best);
    RL_ASSIGN(PrecisionAssignment out, rewritePrecision(g, state.choices()));
    PrecisionRecord &r = out.record;
    r.mode = g.precision.mode;
    r.tolerance = g.precision.tolerance;
    r.observed = !g.precision.observed.empty();
    r.errorKept = std::sqrt(worst(start.variance));
    for (double v : start.variance)
      r.errorsKept.push_back(std::sqrt(v));
    r.secondsKept = start.seconds;
    const PrecisionState::Totals now = state.totals();
    r.error = std::sqrt(worst(now.variance));
    for (double v : now.variance)
      r.errors.push_back(std::sqrt(v));
    r.seconds = now.seconds;
    record(r, now);
    return out;
  }

private:
  static double worst(const std::vector<double> &variance) {
    return variance.empty() ? 0 : *std::max_element(variance.begin(), variance.end());
  }
  double budget() const { return g.precision.tolerance * g.precision.tolerance; }

  /// Products that share a kernel change together, as they would not share it otherwise. All of one activation may, too: its
  /// conversion may only pay for all of them.
  std::vector<PrecisionMove> moves() const {
    std::vector<PrecisionMove> out;
    std::map<std::pair<uint32_t, std::string>, PrecisionMove> ofKernel;
    std::map<std::pair<ValueId, std::string>, PrecisionMove> ofActivation;
    for (size_t u = 0; u < candidates.products.size(); ++u) {
      const ProductUnit &unit = candidates.products[u];
      const uint32_t kernel = candidates.rules.kernelOf(g.nodes[unit.node].outputs[0]);
      for (size_t k = 0; k < unit.forms.size(); ++k) {
        if (!unit.refused[k].empty())
          continue;
        const std::string form = unit.forms[k].str({});
        ofKernel[{kernel, form}].products.emplace_back(u, k);
        ofActivation[{unit.activation, form}].products.emplace_back(u, k);
      }
    }
    for (auto &[key, move] : ofKernel)
      out.push_back(std::move(move));
    for (auto &[key, move] : ofActivation)
      if (move.products.size() > 1)
        out.push_back(std::move(move));
    for (size_t s = 0; s < candidates.storage.size(); ++s)
      if (candidates.storage[s].refused.empty() && !candidates.storage[s].pinned) {
        PrecisionMove move;
        move.storage.push_back(s);
        out.push_back(move);
      }
    return out;
  }

  /// A product in another form, and those that share its kernel.
  PrecisionMove withItsKernel(size_t unit, size_t form) const {
    PrecisionMove move;
    auto kernelOf = [&](size_t u) {
      return candidates.rules.kernelOf(g.nodes[candidates.products[u].node].outputs[0]);
    };
    for (size_t u = 0; u < candidates.products.size(); ++u)
      if (kernelOf(u) == kernelOf(unit))
        for (size_t k = 0; k < candidates.products[u].forms.size(); ++k)
          if (candidates.products[u].forms[k] == candidates.products[unit].forms[form] &&
              candidates.products[u].refused[k].empty())
            move.products.emplace_back(u, k);
    return move;
  }

  /// The time that an effect saves for each part of the budget that it takes; 0: it may not be, or is not worth it.
  double worth(const PrecisionState::Effect &e, const PrecisionState::Totals &totals) const {
    if (e.saved <= kLeastGain * e.of || e.saved <= 0)
      return 0;
    double added = 0;
    for (size_t o = 0; o < totals.variance.size(); ++o) {
      added = std::max(added, e.variance[o]);
      if (e.variance[o] > 0 && totals.variance[o] + e.variance[o] > budget())
        return 0;
    }
    return e.saved / std::max(added / budget(), 1e-9);
  }

  /// `f8`, `i8`: whether products of pairs of these may be chosen.
  void improve(bool f8, bool i8) {
    PrecisionState::Totals totals = state.totals();
    std::vector<PrecisionMove> all = moves();
    std::erase_if(all, [&](const PrecisionMove &move) {
      return std::any_of(move.products.begin(), move.products.end(), [&](const std::pair<size_t, size_t> &p) {
        const ProductForm &form = candidates.products[p.first].forms[p.second];
        return form.kind == ProductForm::Both && !(form.activation == DType::I8 ? i8 : f8);
      });
    });
    std::vector<PrecisionState::Effect> effects;
    std::map<ValueId, std::vector<size_t>> touching; // what one move does depends on others that touch the same values
    for (size_t m = 0; m < all.size(); ++m) {
      effects.push_back(state.effectOf(all[m]));
      for (ValueId v : state.touched(all[m]))
        touching[v].push_back(m);
    }
    for (;;) {
      double best = 0;
      size_t chosen = all.size();
      for (size_t m = 0; m < all.size(); ++m)
        if (double w = worth(effects[m], totals); w > best) {
          best = w;
          chosen = m;
        }
      if (chosen == all.size())
        return;
      for (size_t o = 0; o < totals.variance.size(); ++o)
        totals.variance[o] += effects[chosen].variance[o];
      state.apply(all[chosen]);
      std::set<size_t> changed;
      for (ValueId v : state.touched(all[chosen]))
        changed.insert(touching[v].begin(), touching[v].end());
      for (size_t m : changed)
        effects[m] = state.effectOf(all[m]);
    }
  }

  void record(PrecisionRecord &r, const PrecisionState::Totals &now) {
    for (size_t u = 0; u < candidates.products.size(); ++u) {
      const ProductUnit &unit = candidates.products[u];
      const Node &node = g.nodes[unit.node];
      PrecisionDecision d;
      d.kind = "product";
      d.name = g.values[node.outputs[0]].name;
      d.op = opInfo(node.op).name;
      d.pointer = node.pointer();
      d.source = node.source;
      for (size_t k = 0; k < unit.forms.size(); ++k) {
        PrecisionAlternative a;
        a.name = unit.forms[k].str(candidates.typesOf(unit.node));
        PrecisionState::Cost c = state.costOf(u, k);
        a.seconds = c.seconds;
        a.atBind = c.atBind;
        a.error = std::sqrt(c.variance);
        a.atOutput = std::sqrt(c.variance * model.greatestGain(node.outputs[0]));
        a.refused = unit.refused[k];
        a.chosen = unit.forms[k] == state.formOf(u);
        if (a.chosen)
          r.atBind += a.atBind;
        d.alternatives.push_back(std::move(a));
      }
      d.why = unit.pinned.empty() ? why(
                                        d, [&](size_t k) { return state.effectOf(withItsKernel(u, k)); }, now)
                                  : unit.pinned;
      r.decisions.push_back(std::move(d));
    }
    for (size_t s = 0; s < candidates.storage.size(); ++s) {
      const StorageUnit &unit = candidates.storage[s];
      const Value &value = g.values[unit.value];
      PrecisionDecision d;
      d.kind = "storage";
      d.name = value.name;
      if (value.kind == Value::Result) {
        const Node &node = g.nodes[value.node];
        d.op = opInfo(node.op).name;
        d.pointer = node.pointer();
        d.source = node.source;
      }
      for (bool narrow : {false, true}) {
        PrecisionAlternative a;
        a.name = dtypeName(narrow ? unit.to : value.type.dtype);
        PrecisionState::Cost c = state.storageCost(s, narrow);
        a.seconds = c.seconds;
        a.error = std::sqrt(c.variance);
        a.atOutput = std::sqrt(c.variance * model.greatestGain(unit.value));
        if (narrow)
          a.refused = unit.refused;
        a.chosen = narrow == state.isNarrow(s);
        d.alternatives.push_back(std::move(a));
      }
      d.why = unit.pinned ? "pinned"
                          : why(
                                d,
                                [&](size_t) {
                                  PrecisionMove move;
                                  move.storage.push_back(s);
                                  return state.effectOf(move);
                                },
                                now);
      r.decisions.push_back(std::move(d));
    }
  }

  /// Why what is chosen is, in figures.
  template <class F> std::string why(const PrecisionDecision &d, F effectOf, const PrecisionState::Totals &now) const {
    const PrecisionAlternative *chosen = nullptr;
    for (const PrecisionAlternative &a : d.alternatives)
      if (a.chosen)
        chosen = &a;
    if (!chosen)
      return {};
    const PrecisionAlternative &first = d.alternatives.front();
    std::string text;
    if (chosen != &first)
      text = "saves " + figure((first.seconds - chosen->seconds) * 1e6) + " us of " + figure(first.seconds * 1e6) +
             " for an error of " + figure(chosen->atOutput) + " of the " + figure(g.precision.tolerance) +
             " that the outputs may have";
    // What would be quicker, and is not taken.
    const PrecisionAlternative *quicker = nullptr;
    size_t place = 0;
    for (size_t k = 0; k < d.alternatives.size(); ++k) {
      const PrecisionAlternative &a = d.alternatives[k];
      if (a.refused.empty() && a.seconds < (1 - kLeastGain) * chosen->seconds &&
          (!quicker || a.seconds < quicker->seconds)) {
        quicker = &a;
        place = k;
      }
    }
    if (quicker) {
      PrecisionState::Effect e = effectOf(place);
      double most = 0;
      for (size_t o = 0; o < now.variance.size(); ++o)
        most = std::max(most, now.variance[o] + e.variance[o]);
      text += (text.empty() ? "" : "; ") + quicker->name + " would take " + figure(quicker->seconds * 1e6) +
              " us, and an output's error to " + figure(std::sqrt(most)) + " of " + figure(g.precision.tolerance);
    } else if (chosen == &first) {
      std::string reason;
      for (const PrecisionAlternative &a : d.alternatives)
        if (!a.refused.empty() && reason.find(a.refused) == std::string::npos)
          reason += (reason.empty() ? "" : "; ") + a.refused;
      text = d.alternatives.size() == 1 ? "nothing else is open to it in this mode" : reason;
      bool open = std::any_of(d.alternatives.begin() + 1, d.alternatives.end(),
                              [](const PrecisionAlternative &a) { return a.refused.empty(); });
      if (open)
        text += (text.empty() ? "" : "; ") + std::string("nothing else gains as much as it costs to convert");
    }
    return text;
  }

  const Graph &g;
  PrecisionCandidates candidates;
  ErrorModel model;
  PrecisionState state;
};

} // namespace

bool asksForPrecision(const Graph &g) {
  if (g.precision.mode != "keep")
    return true;
  return std::any_of(g.nodes.begin(), g.nodes.end(), [](const Node &n) { return n.pin && !isArithmeticFloat(*n.pin); });
}

Result<PrecisionAssignment> assignPrecision(const Graph &graph, const cost::TargetDesc &machine,
                                            const std::vector<ValueId> &cotangents) {
  if (graph.gradient)
    return unsupported("/gradient", "a gradient request is to be carried out before types are assigned");
  return Assigner(graph, machine, cotangents).run();
}

} // namespace rl
