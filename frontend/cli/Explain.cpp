// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ridgeline explain: the compiler's decisions and their reasons.
#include "frontend/cli/Work.h"

namespace rl::cli {

Status explainCommand(const Options &options) {
  RL_ASSIGN(Work work, loadWork(options));
  RL_ASSIGN(Target target, chooseTarget(options, work));
  if (work.package) {
    RL_ASSIGN(std::string text, explainPackage(*work.package, options.format));
    return print(text);
  }
  RL_ASSIGN(DimValues dims, givenDims(options, work.spec));
  RL_TRY(resolveWithDefaults(options, work.spec, dims));
  RL_ASSIGN(Artifact artifact, buildArtifact(options, work, target, dims));
  RL_ASSIGN(std::string text, explainArtifact(artifact, options.format));
  if (!text.empty() && text.back() != '\n')
    text += '\n';
  return print(text);
}

} // namespace rl::cli
