// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The planner of RowPlanner.h, in four parts: which values are stored, over which rows, in which order (RowSpaces.cpp); the kernels
// that they become (RowPlanner.cpp); whether a product's kernel reduces segments of its rows (RowSegments.cpp), and whether it
// computes one of its operands (RowLefts.cpp).
#pragma once

#include "passes/plan/Gemm.h"
#include "passes/plan/Measure.h"
#include "passes/plan/Planner.h"
#include "passes/plan/TileChoice.h"
#include "passes/plan/Trace.h"

#include <limits>
#include <map>
#include <set>

namespace rl {

/// Plain rows of elements have width 0: they are not reduced. A product of [B, M, N] has B*M rows of N.
struct Space {
  int64_t rows = 0, width = 0;
  bool product = false;
  auto operator<=>(const Space &) const = default;
};

class RowPlanner {
public:
  RowPlanner(const Graph &graph, const cost::TargetDesc &target, const TileChoices &choices)
      : graph(graph), target(target), choices(choices) {}
  Result<Plan> run();

private:
  struct Cut {
    std::string reason;
    bool hard = false; ///< loaded even by a kernel over the same rows
  };
  struct Draft {
    Space space;
    int level = 0;
    std::vector<ValueId> outputs;
  };
  /// A group, or (cut) what must be written first.
  struct Verdict {
    std::optional<PlannedGroup> group;
    ValueId cut = kNone;
    std::string reason;
    bool hard = false;             ///< to be loaded even by a kernel over the same rows
    std::vector<ValueId> dropped;  ///< column sums that the kernel cannot carry
    bool whole = false;            ///< its rows must be reduced whole
    std::string apart;             ///< not empty: why another kernel must reduce segments of the product's rows, and
    std::vector<ValueId> reducing; ///< for which outputs
  };
  /// Two kernels in the place of one that reduces segments of a product's rows: seconds, and what passes through memory.
  struct Apart {
    ValueId stored = kNone;
    double product = 0, rows = 0;
  };

  const Node *nodeOf(ValueId v) const {
    return graph.values[v].kind == Value::Result ? &graph.nodes[graph.values[v].node] : nullptr;
  }
  Space rowsOf(const Node &hero) const {
    int64_t rows = graph.type(hero.outputs[0]).elements();
    if (isProduct(hero)) {
      ProductShape shape = productShape(graph, hero);
      return {shape.rows(), shape.n, true};
    }
    return {rows, graph.type(hero.inputs[0].value).elements() / rows};
  }
  bool inSpace(ValueId v, Space s) const {
    if (auto own = carried.find(v); own != carried.end())
      return own->second == s;
    if (auto own = spaces.find(v); own != spaces.end() && own->second == s)
      return true;
    int64_t n = graph.type(v).elements();
    return (n == s.rows && !s.product) || (s.width && n == s.rows * s.width);
  }
  void above(ValueId v, Space s, std::vector<ValueId> &computed, std::vector<ValueId> *loaded) const;
  bool dependsOn(ValueId v, ValueId on) const;
  void storeOperands();
  bool mayComputeLeft(const Node &product, ValueId) const;
  std::set<ValueId> widenedRights(const std::vector<NodeId> &products) const;
  Result<double> writingSeconds(ValueId operand) const;
  /// Of the kernels that write a product's operands, and of its own, where it is one.
  struct LeftToOthers {
    double writing = 0, product = std::numeric_limits<double>::infinity();
  };
  Result<LeftToOthers> leaveOperands(const Draft &, const std::set<ValueId> &operands,
                                     const std::set<ValueId> &loaded) const;
  Result<ValueId> cutBetweenProducts(const Draft &, const PlannedGroup &, const std::vector<NodeId> &products,
                                     const std::set<ValueId> &widened, const std::set<ValueId> &loaded,
                                     std::string &why) const;
  Result<bool> leavesOperands(const Draft &, const PlannedGroup &, const std::set<ValueId> &operands, bool isRight,
                              const std::set<ValueId> &loaded, std::string &why) const;
  ValueId cutBehindProduct(const std::vector<ValueId> &path) const;
  std::vector<ValueId> pathTo(const std::vector<ValueId> &outputs, NodeId hero, Space s) const;
  bool productsOnce(const std::vector<Draft> &);
  bool loadedFor(ValueId v, Space s) const;
  Status checkSupported() const;
  void carryColumnSums();
  bool spacesFit(); ///< false: something was cut, plan again
  Space longestRows(ValueId v, Space rows) const;
  std::optional<Space> productOfRows(ValueId v, Space rows) const;
  Result<std::optional<Apart>> planApart(const Draft &, const Trace &, NodeId hero) const;
  Result<std::string> whyApart(const Draft &, const Trace &, const PlannedGroup &, int64_t segment,
                               std::string &together) const;
  void placeLevels();
  std::vector<Draft> drafts() const;
  void joinPointwise(std::vector<Draft> &, std::set<ValueId> &pointwise) const;
  std::vector<ValueId> nearestHero(ValueId v, bool softly) const;
  ValueId cutOnPath(const std::vector<ValueId> &path) const;
  bool cut(ValueId v, std::string reason, bool hard = false);
  TraceRequest requestOf(const Draft &) const;
  Result<Verdict> judge(const Draft &);
  std::vector<ValueId> reducingOutputs(const Trace &) const;
  Result<Verdict> judgeProducts(const Draft &, const std::set<ValueId> &loaded = {});
  Result<Plan> planPointwiseAt(int level, const std::set<ValueId> &outputs) const;

  const Graph &graph;
  const cost::TargetDesc &target;
  const TileChoices &choices;
  std::set<ValueId> stored;
  std::map<ValueId, Cut> cuts;
  std::map<ValueId, Space> spaces; ///< of what is stored
  /// Stored sums down the columns of a row kernel's rows, which it carries along; and those that it cannot carry.
  std::map<ValueId, Space> carried;
  std::set<ValueId> notCarried;
  /// Stored values whose kernel iterates over rows of which the nearest reduction takes segments; and those whose kernel must
  /// not reduce segments.
  std::set<ValueId> lifted, whole;
  /// Stored values whose kernel must not reduce segments of a product's rows, and why.
  std::map<ValueId, std::string> apart;
  std::map<ValueId, int> level;
  Cones cones;
};

} // namespace rl
