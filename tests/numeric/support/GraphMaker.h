// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What generators of random graphs of one kind share: inputs, nodes that the format allows, attributes.
#pragma once

#include "ir/graph/Graph.h"
#include "tests/numeric/support/Rng.h"

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace rl::numeric {

class GraphMaker {
protected:
  using Shape = std::vector<int64_t>;
  using Attributes = std::map<std::string, AttrValue>;
  struct Val {
    std::string name;
    TensorType type;
  };

  explicit GraphMaker(uint64_t seed) : rng(seed) {}

  static AttrValue integer(int64_t i) { return Scalar{Scalar::Int, i, 0}; }
  static AttrValue flag(bool v) { return Scalar{Scalar::Bool, v, 0}; }
  static AttrValue word(DType t) { return std::string(dtypeName(t)); }
  static AttrValue list(const Shape &);
  Val input(DType, Shape);
  Val parameter(DType, Shape);
  /// Adds a node; empty where the format has no such one.
  std::vector<Val> emitAll(const std::string &op, const std::vector<Val> &operands, Attributes, size_t results = 1,
                           std::optional<Scalar> literal = {});
  /// One of one result.
  std::optional<Val> emit(const std::string &op, const std::vector<Val> &operands, Attributes = {},
                          std::optional<Scalar> literal = {});

  Rng rng;
  GraphSpec spec;
  int names = 0;
};

} // namespace rl::numeric
