// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Where a graph quantises with scales of its own finding, the graph that measures what is quantised there, and the graph
// with the scales that were found.
#pragma once

#include "ir/graph/Graph.h"

#include <string>
#include <vector>

namespace rl::calibrate {

/// Which elements share a scale.
struct Grouping {
  Granularity granularity = Granularity::Tensor;
  int64_t axis = 0;
  int64_t block[2] = {1, 1};
};
std::string str(const Grouping &); ///< "tensor", "axis 1", "token", "block [1, 128]"

/// An operand of a node that takes what a quantize node makes: of dequantize 0, of scaled_matmul 0 or 1, with its scale.
struct Use {
  size_t node = 0; ///< in GraphSpec::nodes
  int operand = 0;
};

/// A quantize or fake_quantize node without a scale operand.
struct Site {
  size_t node = 0;    ///< in GraphSpec::nodes
  std::string tensor; ///< what it quantises
  std::string output; ///< its first result
  OpKind op = OpKind::Quantize;
  DType from = DType::F32, dtype = DType::F8E4M3, scaleDtype = DType::F32;
  Grouping grouping;
  bool asymmetric = false;
  bool constant = false;           ///< parameters alone lead to the tensor
  std::vector<int64_t> shape;      ///< of the tensor; -1: an extent that a call decides
  std::vector<int64_t> scaleShape; ///< of a scale operand
  std::string staysDynamic;        ///< why no scale can be written; empty: one can
  /// The dimension whose indices are called channels: N of scaled_matmul's second operand, the first of what parameters alone
  /// make, else the last. -1 for a tensor of rank 0.
  int64_t channelDim = -1;
  std::vector<Grouping> finer; ///< that its users take; of scales for the whole tensor
  std::vector<Use> uses;       ///< whose attributes say the granularity, too
  std::string keepsGrouping;   ///< why it cannot be written with another granularity; empty: it can
};

/// For each value, whether parameters alone lead to it.
std::vector<char> constants(const Graph &);

/// In the order of the file. `spec` must be valid, `graph` what it resolves to for some extents.
std::vector<Site> findSites(const GraphSpec &spec, const Graph &graph);

/// The site with another granularity, one of its finer ones.
Site regrouped(const Site &, const Grouping &);
/// Writes the site's granularity to its node and to its uses.
void writeGrouping(GraphSpec &, const Site &);

/// The spec with these tensors as its outputs. A gradient request is left out.
GraphSpec measuring(const GraphSpec &, const std::vector<std::string> &tensors);

/// The spec with a scale operand for the site. A scale of f32 for a whole tensor becomes a literal; others become a
/// parameter, whose name (that of the output with ".scale" behind it, or more where the graph has that name) is returned.
std::string writeScale(GraphSpec &, const Site &, const std::vector<float> &scale);

} // namespace rl::calibrate
