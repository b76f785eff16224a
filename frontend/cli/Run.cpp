// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ridgeline run: a graph or a package on given or made-up tensors.
#include "frontend/cli/Work.h"
#include "ir/interp/Convert.h"

#include <algorithm>
#include <cmath>

namespace rl::cli {

/// "y: f32 [2, 3]: min -1, max 2, mean 0.5".
static std::string describe(const std::string &name, const TensorType &type, const void *data) {
  std::string out = name + ": " + str(type);
  double low = INFINITY, high = -INFINITY, sum = 0;
  int64_t nans = 0, count = 0, infinite = 0;
  for (int64_t i = 0, n = type.elements(); i < n; ++i) {
    double v = loadElement(data, type.dtype, i);
    if (std::isnan(v)) {
      ++nans;
      continue;
    }
    low = std::min(low, v);
    high = std::max(high, v);
    if (std::isinf(v)) {
      ++infinite;
      continue;
    }
    sum += v;
    ++count;
  }
  if (count + infinite)
    out += ": min " + number(low) + ", max " + number(high);
  if (count)
    out += ", mean " + number(sum / static_cast<double>(count)) + (infinite ? " of the finite ones" : "");
  if (infinite)
    out += "; " + std::to_string(infinite) + " infinite";
  if (nans)
    out += "; " + std::to_string(nans) + " NaN";
  return out + "\n";
}

Status runCommand(const Options &options) {
  if (!options.outputs.empty())
    RL_TRY(checkWritable(options.outputs));
  RL_ASSIGN(Work work, loadWork(options));
  RL_ASSIGN(Target target, chooseTarget(options, work));
  RL_TRY(checkRunsHere(target));
  RL_ASSIGN(Call call, prepareCall(options, work));

  std::vector<SafetensorsWrite> results;
  std::vector<HostTensor> interpreted;
  std::vector<CallTensor> computed;
  double start = now();
  if (target.kind == Target::Reference) {
    RL_TRY(assignTypes(call, target));
    RL_ASSIGN(interpreted, runReference(options, call, call.graph));
    for (size_t i = 0; i < interpreted.size(); ++i)
      results.push_back(
          {call.graph.values[call.graph.outputs[i]].name, interpreted[i].type, interpreted[i].data.data()});
  } else {
    RL_ASSIGN(Artifact artifact, buildArtifact(options, work, target, call.dims));
    RL_ASSIGN(std::unique_ptr<Module> module, makeModule(std::move(artifact)));
    start = now();
    RL_ASSIGN(Runner runner, Runner::make(std::move(module), target, call));
    RL_TRY(runner.run());
    RL_ASSIGN(computed, runner.outputs());
    for (const CallTensor &t : computed)
      results.push_back({t.name, t.type, t.data});
  }
  if (options.verbose)
    note(options, "run: " + fixed((now() - start) * 1e3, 2) + " ms on " + target.name + ", copies included");

  if (!options.outputs.empty())
    return writeSafetensors(options.outputs, results);
  std::string out;
  for (const SafetensorsWrite &w : results)
    out += describe(w.name, w.type, w.data);
  return print(out);
}

} // namespace rl::cli
