// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ridgeline compile: a graph into a package.
#include "frontend/cli/Stages.h"
#include "frontend/cli/Work.h"

namespace rl::cli {

Status compileCommand(const Options &options) {
  for (const std::string *directory : {&options.output, &options.dumpDir})
    if (!directory->empty())
      RL_TRY(checkWritable(*directory, true));
  RL_ASSIGN(Work work, loadGraph(options));
  RL_ASSIGN(Target target, chooseTarget(options, work));
  if (target.kind == Target::Reference && !options.output.empty())
    return unsupported({},
                       "the reference interpreter runs graphs as they are and has no packages; use another --target");
  RL_ASSIGN(DimValues dims, givenDims(options, work.spec));
  if (!options.output.empty())
    for (const DimSpec &d : work.spec.dims)
      if (!dims.count(d.name))
        return unsupported("/dims/" + d.name, "a package is compiled for fixed extents: give " + d.name +
                                                  " a value with --dim " + d.name +
                                                  "=N, or run the graph file itself, which specialises at each call");
  RL_TRY(resolveWithDefaults(options, work.spec, dims));
  double start = now();
  RL_ASSIGN(Artifact artifact, buildArtifact(options, work, target, dims, !options.dumpDir.empty()));
  double seconds = now() - start;

  if (!options.output.empty())
    RL_TRY(savePackage(artifact.package, options.output));
  if (!options.dumpDir.empty())
    RL_TRY(writeFiles(options.dumpDir, stageFiles(artifact)));
  if (options.quiet)
    return {};
  std::string out = target.kind == Target::Reference
                        ? "graph " + work.name + " is valid; reference runs it as it is\n"
                        : summaryText(summarise(artifact.package.explain), work.name, target);
  if (target.kind != Target::Reference)
    out += "compiled in " + fixed(seconds * 1e3, 1) + " ms" +
           (artifact.cached == Artifact::Hit ? " (from the cache)" : "") + "\n";
  if (!options.output.empty())
    out += "package: " + options.output + "\n";
  if (!options.dumpDir.empty())
    out += "stages: " + options.dumpDir + "\n";
  return print(out);
}

} // namespace rl::cli
