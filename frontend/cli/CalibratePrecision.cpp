// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "frontend/cli/CalibratePrecision.h"
#include "frontend/api/Engine.h"
#include "frontend/cli/Compare.h"
#include "frontend/json/JsonReader.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>

namespace rl::cli {
namespace {

using Observed = std::map<std::string, double>;

double ratioOf(const Observed &observed, const std::string &name) {
  const auto at = observed.find(name);
  return at == observed.end() ? 1 : at->second;
}

/// What one round chose and showed.
struct Round {
  Observed used;
  PrecisionRecord record;
  std::string types;            ///< of the graph that came of it
  std::vector<double> measured; ///< negative: nothing was to be measured
  std::vector<int64_t> leftOut; ///< values that are not finite
  Observed seen;                ///< of these types
};

class Calibrator {
public:
  Calibrator(const Options &options, const Work &work, const Target &target, const Samples &samples)
      : options(options), target(target), samples(samples), asked(work), kept(work) {
    kept.spec.precision = {};
    for (NodeSpec &node : kept.spec.nodes)
      node.precision.clear();
  }

  /// What is chosen by what was observed.
  Result<Round> choose(Observed observed) {
    Round out;
    asked.spec.precision.observed = observed;
    out.used = std::move(observed);
    RL_ASSIGN(Graph graph, resolve(asked.spec, samples.list().back().dims));
    floats.clear();
    for (ValueId v : graph.outputs)
      floats.push_back(isArithmeticFloat(graph.type(v).dtype));
    RL_ASSIGN(PrecisionAssignment assigned, assignTypes(std::move(graph), target));
    out.types = printGraph(specOf(assigned.graph));
    out.record = std::move(assigned.record);
    return out;
  }

  /// Integers, codes and conditions have no error of their own.
  bool isMeasured(size_t output) const { return output < floats.size() && floats[output]; }

  Result<Round> run(Observed observed, int number) {
    RL_ASSIGN(Round out, choose(std::move(observed)));
    RL_TRY(measure(out, number));
    return out;
  }

private:
  Status measure(Round &round, int number) {
    Progress progress(options, "precision, round " + std::to_string(number) + ": samples");
    SampleRunner as(options, kept, target, samples), with(options, asked, target, samples);
    std::vector<ErrorSum> sums(asked.spec.outputs.size());
    size_t done = 0;
    for (const Sample &sample : samples.list()) {
      RL_TRY(as.run(sample));
      RL_TRY(with.run(sample));
      for (size_t i = 0; i < sums.size(); ++i)
        if (isMeasured(i))
          sums[i].add(as.outputs()[i].type, with.output(i), as.output(i));
      progress.step(++done, samples.list().size());
    }
    // Roundings of the file's own types are in both runs, and the estimate has them.
    for (size_t i = 0; i < sums.size(); ++i) {
      const double kept = round.record.errorsKept[i] / ratioOf(round.used, asked.spec.outputs[i]);
      const double added = sums[i].relative();
      round.measured.push_back(sums[i].hasValues() || added > 0 ? std::hypot(added, kept) : -1);
      round.leftOut.push_back(sums[i].leftOut());
    }
    return {};
  }

  const Options &options;
  const Target &target;
  const Samples &samples;
  Work asked, kept;
  std::vector<char> floats; ///< of the outputs
};

} // namespace

Result<CalibratedPrecision> calibratePrecision(const Options &options, Work &work, const Target &target,
                                               const Samples &samples) {
  constexpr int kMostRounds = 6;
  constexpr double kSlack = 1.02;  // an estimate that is as far off is right
  constexpr double kCaution = 1.1; // of what was observed, where the error was beyond the tolerance
  constexpr double kOverflow = 16; // in place of a ratio that is not finite
  const std::vector<std::string> &names = work.spec.outputs;
  const double tolerance = work.spec.precision.tolerance;
  Calibrator calibrator(options, work, target, samples);
  std::optional<Round> best, last;
  auto isWithin = [&](const Round &r) {
    return std::all_of(r.measured.begin(), r.measured.end(), [&](double e) { return e <= tolerance; });
  };
  Observed observed;
  std::set<std::string> seen;
  int rounds = 0;
  while (rounds < kMostRounds) {
    RL_ASSIGN(Round round, calibrator.run(observed, ++rounds));
    const bool within = isWithin(round), repeats = !seen.insert(round.types).second;
    Observed next;
    double change = 1;
    for (size_t o = 0; o < names.size(); ++o) {
      const double estimated = round.record.errors[o], measured = round.measured[o];
      if (!(estimated > 0) || !(measured > 0))
        continue;
      const double off = std::isfinite(measured) ? measured / estimated : kOverflow,
                   used = ratioOf(round.used, names[o]);
      auto limited = [](double ratio) { return std::clamp(ratio, kLeastObserved, kMostObserved); };
      if (std::isfinite(measured))
        round.seen[names[o]] = limited(used * off);
      next[names[o]] = limited(used * off * (measured > tolerance ? kCaution : 1));
      change = std::max({change, off, 1 / off});
    }
    if (within && (!best || round.record.seconds < best->record.seconds))
      best = round;
    last = std::move(round);
    if (change <= kSlack || (repeats && within))
      break;
    observed = std::move(next);
  }

  Round &taken = best ? *best : *last;
  // Where what was observed of these types leads to them again, that is what is said of them.
  RL_ASSIGN(Round again, calibrator.choose(taken.seen));
  if (again.types == taken.types) {
    again.measured = std::move(taken.measured);
    again.leftOut = std::move(taken.leftOut);
    taken = std::move(again);
  }
  CalibratedPrecision out;
  out.mode = work.spec.precision.mode;
  out.tolerance = tolerance;
  out.seconds = taken.record.seconds;
  out.secondsKept = taken.record.secondsKept;
  out.within = best.has_value();
  out.rounds = rounds;
  work.spec.precision.observed = taken.used;
  for (size_t o = 0; o < names.size(); ++o) {
    if (!calibrator.isMeasured(o))
      continue;
    const auto used = taken.used.find(names[o]);
    CalibratedPrecision::Output &output = out.outputs.emplace_back();
    output.name = names[o];
    output.leftOut = taken.leftOut[o];
    output.estimated = taken.record.errors[o] / ratioOf(taken.used, names[o]);
    if (taken.measured[o] >= 0)
      output.measured = taken.measured[o];
    if (used != taken.used.end())
      output.observed = used->second;
  }
  return out;
}

} // namespace rl::cli
