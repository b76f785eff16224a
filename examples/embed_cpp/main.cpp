// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A C++ program that builds a graph, compiles it, runs it and prints what was fused.
//   embed_cpp [TARGET]     cpu (default), reference
#include "frontend/api/Builder.h"
#include "frontend/api/Engine.h"

#include <cmath>
#include <cstdio>
#include <vector>

// y = silu(x * w) + r, on [rows, columns] with w along the columns.
static rl::Status run(std::string_view targetName, std::vector<float> &worst) {
  constexpr int64_t rows = 37, columns = 513;
  rl::GraphBuilder g("scaled_silu");
  auto x = g.input("x", rl::DType::F32, {rows, columns});
  auto r = g.input("r", rl::DType::F32, {rows, columns});
  auto w = g.parameter("w", rl::DType::F32, {columns});
  g.output(g.silu(x * w) + r, "y");

  RL_ASSIGN(rl::GraphSpec spec, g.build()); // or the first mistake, with its place
  RL_ASSIGN(rl::Target target, rl::resolveTarget(targetName));
  RL_ASSIGN(rl::Artifact artifact, rl::compileSpec(spec, target));
  RL_ASSIGN(std::string text, rl::explainArtifact(artifact, "text"));
  std::fputs(text.c_str(), stdout);
  RL_ASSIGN(auto module, rl::makeModule(std::move(artifact)));

  std::vector<float> hx(rows * columns), hr(rows * columns), hw(columns), hy(rows * columns, NAN);
  for (size_t i = 0; i < hx.size(); ++i) {
    hx[i] = std::sin(0.37f * static_cast<float>(i)) * 4;
    hr[i] = std::cos(0.11f * static_cast<float>(i));
  }
  for (size_t i = 0; i < hw.size(); ++i)
    hw[i] = 0.5f + 0.001f * static_cast<float>(i);
  RL_TRY(module->bind("w", hw.data(), hw.size() * sizeof(float)));
  const void *inputs[] = {hx.data(), hr.data()};
  void *outputs[] = {hy.data()};
  RL_TRY(module->run(inputs, outputs, nullptr));

  float error = 0;
  for (size_t i = 0; i < hy.size(); ++i) {
    double v = static_cast<double>(hx[i] * hw[i % columns]), want = v / (1 + std::exp(-v)) + hr[i];
    float e = static_cast<float>(std::fabs(hy[i] - want));
    if (!(e <= error))
      error = e;
  }
  worst.push_back(error);
  return {};
}

int main(int argc, char **argv) {
  std::vector<float> worst;
  if (rl::Status s = run(argc > 1 ? argv[1] : "cpu", worst); !s) {
    std::fprintf(stderr, "error: %s\n", s.error().str("graph").c_str());
    return static_cast<int>(s.error().code);
  }
  std::printf("\nlargest error: %g\n", static_cast<double>(worst[0]));
  return worst[0] < 1e-5f ? 0 : 4;
}
