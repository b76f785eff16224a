// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What there is to decide in a graph, and what a set of decisions costs in time and error. Private to passes/precision.
#pragma once

#include "passes/precision/ErrorModel.h"
#include "passes/precision/Rewrite.h"
#include "passes/precision/Rules.h"
#include "passes/precision/Times.h"

#include <map>
#include <set>
#include <tuple>

namespace rl {

/// A product of matrices, or an attention.
struct ProductUnit {
  NodeId node = kNone;
  ValueId activation = kNone;       ///< what is quantised in each run
  std::vector<ProductForm> forms;   ///< the first keeps everything
  std::vector<std::string> refused; ///< by form: why it may not be
  size_t first = 0;                 ///< what it starts as
  std::string pinned;               ///< what pins it; empty: nothing
};

/// An f32 tensor that is likely to pass through memory, or one that is pinned.
struct StorageUnit {
  ValueId value = kNone;
  DType to = DType::BF16;
  std::string refused;
  bool pinned = false;
};

struct PrecisionCandidates {
  PrecisionCandidates(const Graph &, const cost::TargetDesc &, const std::vector<ValueId> &cotangents);
  /// Errors: Code::Unsupported with the place of a pin that cannot be honoured.
  Status find();
  /// "bf16 x f32": the types of a product's operands.
  std::string typesOf(NodeId) const;

  const Graph &g;
  PrecisionRules rules;
  std::vector<ProductUnit> products;
  std::vector<StorageUnit> storage;
  std::vector<char> gradient; ///< by value: it depends on a cotangent

private:
  Status addProduct(NodeId);
  Status addStorage();
  Status pinProduct(ProductUnit &);
  /// The pin of an operand, by its own name or that of the parameter behind it.
  std::optional<std::pair<std::string, DType>> pinOf(ValueId, bool weight) const;
  const cost::TargetDesc &machine;
  std::map<ValueId, DType> pins;
  std::vector<char> pinUsed; ///< by value: a product honours it
};

struct PrecisionMove {
  std::vector<std::pair<size_t, size_t>> products; ///< unit, form
  std::vector<size_t> storage;                     ///< units that become narrow
};

/// Decisions, with their costs.
class PrecisionState {
public:
  struct Totals {
    double seconds = 0;
    std::vector<double> variance; ///< by output
  };
  struct Effect {
    double saved = 0, of = 0; ///< seconds; of what changes
    std::vector<double> variance;
  };
  struct Cost {
    double seconds = 0, atBind = 0, variance = 0;
  };

  PrecisionState(const PrecisionCandidates &, const cost::TargetDesc &, const ErrorModel &);
  /// Once the candidates are found: everything as the graph says.
  void prepare();
  Totals totals() const;
  /// Every unit as it is pinned; those that are not as they are.
  void applyPins();
  Effect effectOf(const PrecisionMove &);
  /// The values whose traffic a move changes. Moves without a common one do not change each other's effects.
  std::set<ValueId> touched(const PrecisionMove &) const;
  void apply(const PrecisionMove &);

  const ProductForm &formOf(size_t unit) const;
  bool isNarrow(size_t storageUnit) const;
  /// Of one unit in another form, all else as it is.
  Cost costOf(size_t unit, size_t form);
  Cost storageCost(size_t unit, bool narrow);
  PrecisionChoices choices() const;
  using Saved = std::pair<std::vector<size_t>, std::vector<char>>;
  Saved save() const { return {form, narrow}; }
  void restore(const Saved &s) { std::tie(form, narrow) = s; }

private:
  std::set<size_t> productsOf(const PrecisionMove &) const;
  std::vector<ValueId> activationsOf(size_t unit) const;
  double productTime(size_t unit) const;
  double valueTime(ValueId) const;
  double productVariance(size_t unit) const;
  double storageVariance(size_t unit) const;
  DType storedAs(ValueId v) const;
  ValueId beforeViews(ValueId v) const;
  const PrecisionCandidates &c;
  const Graph &g;
  const cost::TargetDesc &machine;
  const ErrorModel &model;
  std::vector<size_t> form; ///< by product unit
  std::vector<char> narrow; ///< by storage unit
  std::vector<uint32_t> unitOfNode, unitOfValue;
  std::vector<std::vector<NodeId>> readers; ///< by value
  std::vector<char> isOutput;
  mutable std::map<ProductAsk, double> known;
};

} // namespace rl
