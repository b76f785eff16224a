// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The precision policy: in which types a graph's tensors are stored and its products multiply. A graph whose policy lets the
// compiler choose becomes one that says everything: casts, `quantize`, `dequantize` and `scaled_matmul` nodes stand for what
// was decided, and all that follows (the interpreter too) runs that graph. Without MLIR.
//
// What is decided. Of each product of matrices: its operands stay, are cast to 16 bits, are both quantised (weights by row of
// [N, K], activations by token), or the weight alone is, and widened again where it is multiplied. Of each f32 tensor that is
// likely to pass through memory: whether 16 bits of it do. Of all that lowers the time that the cost model predicts, what
// gains most for the error it adds is taken first, while every output's estimated error (ErrorModel.h) stays within the
// tolerance. Rules.h has what no mode may touch. Pins win over both.
//
// Weights are converted when they are bound, not in each run (AtBind.h).
#pragma once

#include "ir/graph/Graph.h"
#include "passes/cost/Target.h"

#include <string>
#include <vector>

namespace rl {

struct PrecisionAlternative {
  std::string name;    ///< "bf16", "f8e4m3 x f8e4m3", "bf16 x i8"
  double seconds = 0;  ///< of what the decision is about, converted activations included
  double atBind = 0;   ///< seconds, once for each binding of a weight
  double error = 0;    ///< relative, of the tensor that it is about
  double atOutput = 0; ///< what that adds to the error of the output that it moves most
  std::string refused; ///< why it may not be chosen; empty: it may
  bool chosen = false;
};

struct PrecisionDecision {
  std::string kind; ///< "product" or "storage"
  std::string name; ///< of the tensor
  std::string op, pointer, source;
  std::vector<PrecisionAlternative> alternatives; ///< the first leaves all as it is
  std::string why;
};

struct PrecisionRecord {
  std::string mode; ///< empty: nothing was asked for
  double tolerance = 0;
  double error = 0, errorKept = 0;        ///< estimated, of the worst output: as assigned, and with nothing changed
  std::vector<double> errors, errorsKept; ///< of each output
  bool observed = false;                  ///< estimates were multiplied by what samples showed
  double seconds = 0, secondsKept = 0;    ///< of all that is decided about
  double atBind = 0;                      ///< seconds
  std::vector<PrecisionDecision> decisions;
};

struct PrecisionAssignment {
  Graph graph; ///< with the mode "keep"; inputs, parameters and outputs as they were, in the same order
  /// Values of `graph` that depend on parameters alone and are to be computed when those are bound.
  std::vector<ValueId> atBind;
  PrecisionRecord record;
};

/// Whether there is anything to assign: a mode other than "keep", or a node pinned to a quantised type.
bool asksForPrecision(const Graph &);

/// A pure function of its arguments. `cotangents`: inputs whose dependants are gradients, which are quantised to f8e5m2.
/// Errors: Code::Unsupported with the place for a gradient request, and for a pin that cannot be honoured.
Result<PrecisionAssignment> assignPrecision(const Graph &, const cost::TargetDesc &,
                                            const std::vector<ValueId> &cotangents = {});

} // namespace rl
