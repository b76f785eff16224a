// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Graphs and traces for the tests of the planner's parts.
#pragma once

#include "frontend/api/Builder.h"
#include "passes/plan/Trace.h"

#include <gtest/gtest.h>

using namespace rl;

inline Graph graphOf(const GraphBuilder &g) {
  Result<GraphSpec> spec = g.build();
  if (!spec) {
    ADD_FAILURE() << spec.error().str();
    return {};
  }
  Result<Graph> graph = resolve(*spec);
  if (!graph) {
    ADD_FAILURE() << graph.error().str();
    return {};
  }
  return *std::move(graph);
}

inline TraceRequest requestOf(const Graph &graph, int64_t lanes, bool splitCat = false) {
  TraceRequest r;
  r.graph = &graph;
  r.outputs = graph.outputs;
  r.boundary.assign(graph.values.size(), false);
  r.lanes = lanes;
  r.splitCat = splitCat;
  return r;
}

inline Trace traceOf(const Graph &graph, int64_t lanes, bool splitCat = false) {
  Result<Trace> t = tracePointwise(requestOf(graph, lanes, splitCat));
  if (!t) {
    ADD_FAILURE() << t.error().str();
    return {};
  }
  return *std::move(t);
}
