// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a calibration found, as text and as JSON.
#pragma once

#include "frontend/api/Engine.h"
#include "frontend/calibrate/Calibration.h"
#include "frontend/cli/CalibratePrecision.h"

namespace rl::cli {

struct Calibrated {
  calibrate::Calibration calibration;
  std::string parameter; ///< that holds the scale; empty: it stands in the graph, or stays dynamic
};

struct ReportHeader {
  std::string graph;
  Target target;
  size_t samples = 0;
  std::string output, scales; ///< files; empty: nothing was written
  std::optional<CalibratedPrecision> precision;
};

std::string reportText(const ReportHeader &, const std::vector<Calibrated> &);
std::string reportJson(const ReportHeader &, const std::vector<Calibrated> &);

} // namespace rl::cli
