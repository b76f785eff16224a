// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ridgeline verify: a target and the reference interpreter on the same data.
#include "frontend/cli/Compare.h"
#include "frontend/cli/Work.h"
#include "ir/interp/Convert.h"

#include <cmath>

namespace rl::cli {

static std::string valueText(double v, DType dtype) {
  char text[64];
  std::snprintf(text, sizeof text, isFloat(dtype) ? "%.9g" : "%.20g", v);
  return text;
}

/// Each output's error against the interpreter in f32: no type of the graph but those of its inputs, parameters and outputs
/// rounds anything. `problem` gets what is beyond the tolerance.
static Result<std::string> precisionText(const Options &options, const Call &call, const PrecisionRecord &record,
                                         const Graph &asWritten, const std::vector<CallTensor> &got,
                                         std::string &problem) {
  Call exact;
  exact.graph = asWritten;
  exact.graph.strict = false;
  exact.graph.precision = {};
  for (Node &node : exact.graph.nodes)
    node.pin.reset();
  auto view = [](const std::vector<CallTensor> &from, std::vector<CallTensor> &to) {
    for (const CallTensor &t : from)
      to.push_back({t.name, t.type, t.data, {}});
  };
  view(call.inputs, exact.inputs);
  view(call.parameters, exact.parameters);
  RL_ASSIGN(std::vector<HostTensor> wanted, runReference(options, exact, exact.graph, Intermediates::KeepF32));
  const bool asked = !record.mode.empty() && record.mode != "keep";
  std::string out = "precision " + (asked ? record.mode : std::string("keep"));
  if (asked)
    out += ", tolerance " + number(record.tolerance) + ", estimated error " + number(record.error);
  out += "\n";
  for (size_t i = 0; i < got.size(); ++i) {
    const CallTensor &t = got[i];
    if (!isArithmeticFloat(t.type.dtype))
      continue;
    ErrorSum sum;
    sum.add(t.type, t.data, wanted[i].data.data());
    const double error = sum.relative();
    const bool beyond = asked && !(error <= record.tolerance);
    out +=
        "output " + t.name + ": error " + number(error) + " of the interpreter's in f32 (relative, root mean square)";
    if (asked)
      out += std::string(beyond ? ", beyond" : ", within") + " the tolerance of " + number(record.tolerance);
    out += "\n";
    if (beyond && problem.empty())
      problem = "output " + t.name + " has an error of " + number(error) + ", beyond the precision tolerance of " +
                number(record.tolerance);
  }
  return out;
}

Status verifyCommand(const Options &given) {
  Options options = given;
  if (options.inputs.empty())
    options.inputs = "random";
  RL_ASSIGN(Work work, loadWork(options));
  RL_ASSIGN(Target target, chooseTarget(options, work));
  RL_TRY(checkRunsHere(target));
  RL_ASSIGN(Call call, prepareCall(options, work));
  if (work.package && call.graph.outputs.empty())
    return invalid({}, "the package holds no graph that the reference interpreter could run");
  if (work.package && options.precision)
    return usageError("--precision needs the graph file: a package holds the graph with the types that were chosen");
  const Graph asWritten = call.graph;
  RL_ASSIGN(const PrecisionRecord precision, assignTypes(call, target));
  RL_ASSIGN(Artifact artifact, buildArtifact(options, work, target, call.dims));

  std::string out;
  const RecordSummary record = summarise(artifact.package.explain);
  const size_t kernels = record.kernels.size();
  if (target.kind == Target::Reference)
    out = "graph " + work.name + " on reference: nothing is fused\n";
  else
    out = summaryText(record, work.name, target);

  RL_ASSIGN(std::unique_ptr<Module> module, makeModule(std::move(artifact)));
  double start = now();
  RL_ASSIGN(Runner runner, Runner::make(std::move(module), target, call));
  RL_TRY(runner.run());
  RL_ASSIGN(std::vector<CallTensor> got, runner.outputs());
  double ran = now();
  RL_ASSIGN(References references, References::make(call.graph, target.kind != Target::Reference,
                                                    [&](const Graph &graph, Intermediates kind, uint64_t nudging) {
                                                      return runReference(options, call, graph, kind, nudging);
                                                    }));
  if (options.verbose)
    note(options, target.name + ": " + fixed((ran - start) * 1e3, 2) +
                      " ms with copies; reference: " + fixed((now() - ran) * 1e3, 2) + " ms");

  out += "compared with reference on " + call.source + "\n";
  std::string problem;
  for (size_t i = 0; i < got.size(); ++i) {
    const CallTensor &t = got[i];
    RL_ASSIGN(const Comparison c, references.compare(i, t.data, options.tolerance, kernels > 1));
    out += "output " + t.name + ": " + str(t.type) + ": max error " + number(c.maxAbsolute) + ", relative " +
           number(c.maxRelative) + ", " + std::to_string(c.maxSteps) + " ulp; " + std::to_string(c.different) + " of " +
           std::to_string(c.elements) + " differ, " + std::to_string(c.beyond) + " beyond the tolerance (" + c.rule +
           ")" + (c.nans ? "; " + std::to_string(c.nans) + " NaN in both" : "") + "\n";
    if (!c.within && problem.empty())
      problem = "output " + t.name + " is beyond the tolerance (" + c.rule + ") in " + std::to_string(c.beyond) +
                " of " + std::to_string(c.elements) + " elements; worst at " + c.worstPlace + ": " + target.name + " " +
                valueText(c.worstGot, t.type.dtype) + ", reference " + valueText(c.worstWanted, t.type.dtype);
    else if (c.worst >= 0 && options.verbose)
      out += "  worst at " + c.worstPlace + ": " + target.name + " " + valueText(c.worstGot, t.type.dtype) +
             ", reference " + valueText(c.worstWanted, t.type.dtype) + "\n";
  }
  if (options.precision) {
    RL_ASSIGN(std::string text, precisionText(options, call, precision, asWritten, got, problem));
    out += text;
  }
  if (problem.empty())
    out += "ok\n";
  if (!options.quiet || !problem.empty())
    RL_TRY(print(out));
  if (!problem.empty())
    return Error{Code::Device, {}, problem, work.path};
  return {};
}

} // namespace rl::cli
