// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Compiles graphs for a target and runs them on host tensors, with every trap that a test can set: outputs are poisoned,
// fenced by bytes that must stay as they are, and on request off by one element from any alignment.
#pragma once

#include "ir/graph/Graph.h"
#include "ir/interp/Interpreter.h"
#include "runtime/Module.h"

#include <memory>
#include <string>
#include <vector>

namespace rl::numeric {

class Device {
public:
  virtual ~Device() = default;
  /// "cpu" or "cuda". Code::Usage for another name, Code::Device without a GPU.
  static Result<std::unique_ptr<Device>> create(const std::string &target);
  /// What RIDGELINE_TEST_TARGET asks for, the CPU without it.
  static Result<std::unique_ptr<Device>> ofEnvironment();

  /// `delayedScaling`: as in EngineOptions.
  virtual Result<std::unique_ptr<Module>> compile(const GraphSpec &, int64_t delayedScaling = 0) = 0;
  std::string record; ///< the decision record of the graph that was compiled last
  /// `offset`: tensors start one, two, three, four or eight elements behind a multiple of 256 bytes, few at one. Code::Device with the tensor's name where a
  /// kernel wrote outside of it.
  virtual Result<std::vector<HostTensor>> run(Module &, const std::vector<HostTensor> &inputs,
                                              const std::vector<HostTensor> &parameters, bool offset) = 0;
};

} // namespace rl::numeric
