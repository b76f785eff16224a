// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// How far off the estimates of a precision policy are, measured on samples.
//
// The types that the policy leads to are tried on the samples, beside those of the file: each output's error over its estimate is what
// was observed of it, and multiplies the estimates of the next round, which may then choose other types. Rounds end where nothing
// changes; of those whose outputs were all within the tolerance the one of the quickest types is taken.
#pragma once

#include "frontend/cli/Samples.h"

namespace rl::cli {

struct CalibratedPrecision {
  std::string mode;
  double tolerance = 0;
  struct Output {
    std::string name;
    double measured =
        0; ///< relative error, root mean square over all samples, with the roundings of the file's own types as estimated
    double estimated = 0; ///< for the same types, without samples
    double observed = 1;  ///< for PrecisionPolicy::observed
  };
  std::vector<Output> outputs;         ///< those of float types
  double seconds = 0, secondsKept = 0; ///< as PrecisionRecord has them
  bool within = false;                 ///< every output's measured error is within the tolerance
  int rounds = 0;
};

/// Leaves in the work's policy what was observed. The policy must be another than "keep".
Result<CalibratedPrecision> calibratePrecision(const Options &, Work &, const Target &, const Samples &);

} // namespace rl::cli
