// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ridgeline dump: what each stage of the compiler left.
#include "frontend/cli/Stages.h"
#include "frontend/cli/Work.h"

namespace rl::cli {

Status dumpCommand(const Options &options) {
  if (!options.dumpDir.empty())
    RL_TRY(checkWritable(options.dumpDir, true));
  RL_ASSIGN(Work work, loadGraph(options));
  RL_ASSIGN(Target target, chooseTarget(options, work));
  if (target.kind == Target::Reference)
    return unsupported({}, "the reference interpreter runs graphs as they are and has no stages; use another --target");
  if (options.stage == "ptx" && target.kind != Target::Cuda)
    return unsupported({}, "stage ptx is code of a GPU, and the target is " + target.name +
                               "; its stages are graph, fused, kernel, llvm");
  if (options.stage == "sass" && target.kind != Target::Cuda)
    return unsupported({}, "stage sass is machine code of a GPU, and the target is " + target.name +
                               "; its stages are graph, fused, kernel, llvm");
  RL_ASSIGN(DimValues dims, givenDims(options, work.spec));
  RL_TRY(resolveWithDefaults(options, work.spec, dims));
  RL_ASSIGN(Artifact artifact, buildArtifact(options, work, target, dims, true));

  std::string text;
  if (options.stage == "sass") {
    RL_ASSIGN(text, disassemble(artifact.package));
    artifact.stages.push_back({"sass", text});
  } else if (!options.stage.empty()) {
    std::string known;
    bool found = false;
    for (const StageDump &dump : artifact.stages) {
      if (dump.stage == options.stage) {
        text += dump.text;
        found = true;
      }
      known += (known.empty() ? "" : ", ") + dump.stage;
    }
    // A graph without a kernel (outputs that are inputs, empty tensors) ends before the stages of kernels.
    bool kernels = false;
    for (const PackageLaunch &l : artifact.package.launches)
      kernels |= l.kind == PackageLaunch::Kernel;
    if (!found && !kernels)
      text = "// no kernels\n";
    else if (!found)
      return unsupported({}, "target " + target.name + " has no stage " + options.stage + "; it has: " + known);
  }
  if (!options.dumpDir.empty()) {
    const auto files = stageFiles(artifact);
    RL_TRY(writeFiles(options.dumpDir, files));
    std::string list;
    for (const auto &[name, contents] : files)
      list += options.dumpDir + "/" + name + "\n";
    return options.quiet ? Status() : print(list);
  }
  if (!text.empty() && text.back() != '\n')
    text += '\n';
  return print(text);
}

} // namespace rl::cli
