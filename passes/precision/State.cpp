// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/cost/OpCost.h"
#include "passes/precision/Candidates.h"

#include <algorithm>
#include <cmath>

namespace rl {

PrecisionState::PrecisionState(const PrecisionCandidates &c, const cost::TargetDesc &machine, const ErrorModel &model)
    : c(c), g(c.g), machine(machine), model(model), unitOfNode(g.nodes.size(), kNone),
      unitOfValue(g.values.size(), kNone), readers(g.values.size()), isOutput(g.values.size(), 0) {
  for (ValueId v : g.outputs)
    isOutput[v] = 1;
  for (NodeId n = 0; n < g.nodes.size(); ++n)
    for (const Operand &o : g.nodes[n].inputs)
      if (!o.isLiteral() && (readers[o.value].empty() || readers[o.value].back() != n))
        readers[o.value].push_back(n);
}

void PrecisionState::prepare() {
  form.assign(c.products.size(), 0);
  narrow.assign(c.storage.size(), 0);
  for (size_t u = 0; u < c.products.size(); ++u)
    unitOfNode[c.products[u].node] = static_cast<uint32_t>(u);
  for (size_t s = 0; s < c.storage.size(); ++s)
    unitOfValue[c.storage[s].value] = static_cast<uint32_t>(s);
}

void PrecisionState::applyPins() {
  for (size_t s = 0; s < c.storage.size(); ++s)
    narrow[s] = c.storage[s].pinned;
  for (size_t u = 0; u < c.products.size(); ++u) {
    form[u] = c.products[u].first;
    // Of several forms that a pin leaves, the quickest.
    if (!c.products[u].pinned.empty())
      for (size_t k = 0; k < c.products[u].forms.size(); ++k)
        if (c.products[u].refused[k].empty() && costOf(u, k).seconds < costOf(u, form[u]).seconds)
          form[u] = k;
  }
}

const ProductForm &PrecisionState::formOf(size_t unit) const { return c.products[unit].forms[form[unit]]; }
bool PrecisionState::isNarrow(size_t unit) const { return narrow[unit]; }

DType PrecisionState::storedAs(ValueId v) const {
  uint32_t s = unitOfValue[v];
  return s != kNone && narrow[s] ? c.storage[s].to : g.type(v).dtype;
}

/// The operands of a product that are computed or given anew in each run.
std::vector<ValueId> PrecisionState::activationsOf(size_t unit) const {
  const Node &n = g.nodes[c.products[unit].node];
  std::vector<ValueId> out;
  for (size_t i = 0; i < n.inputs.size() && i < (n.op == OpKind::Attention ? 3 : 2); ++i) {
    ValueId v = n.inputs[i].value;
    if (!c.rules.isConstant(v) && std::find(out.begin(), out.end(), v) == out.end())
      out.push_back(v);
  }
  return out;
}

double PrecisionState::productTime(size_t unit) const {
  const ProductForm &f = formOf(unit);
  const Node &n = g.nodes[c.products[unit].node];
  auto ask = [&](const ProductAsk &p) {
    auto [at, fresh] = known.try_emplace(p, 0);
    if (fresh)
      at->second = productSeconds(p, machine);
    return at->second;
  };
  const TensorType &a = g.type(n.inputs[0].value), &b = g.type(n.inputs[1].value), &y = g.type(n.outputs[0]);
  auto last = [](const TensorType &t, int64_t fromEnd) {
    return t.rank() >= fromEnd ? t.shape[static_cast<size_t>(t.rank() - fromEnd)] : 1;
  };
  ProductAsk p;
  p.out = y.dtype;
  p.a = f.kind == ProductForm::Keep ? a.dtype : f.kind == ProductForm::Both ? f.activation : f.compute;
  p.b = f.kind == ProductForm::Keep ? b.dtype : f.kind == ProductForm::Cast ? f.compute : f.weight;
  if (n.op == OpKind::Attention) { // two products; scores pass through memory
    int64_t queries = last(a, 2), depth = last(a, 1), keys = last(b, 2);
    int64_t batch = y.elements() / std::max<int64_t>(1, queries * last(y, 1));
    ProductAsk scores{batch, queries, keys, depth, p.a, p.b, p.a},
        sums{batch, queries, last(y, 1), keys, p.a, p.b, p.out};
    return ask(scores) + ask(sums);
  }
  // Behind a permutation the left operand is read as what it is a view of lies.
  for (ValueId v = n.inputs[0].value; g.values[v].kind == Value::Result && p.a == a.dtype;) {
    const Node &view = g.nodes[g.values[v].node];
    if (!cost::isView(view.op) || view.inputs[0].isLiteral())
      break;
    p.rows &= view.op != OpKind::Permute;
    v = view.inputs[0].value;
  }
  p.k = last(a, n.attrs.transposeA && a.rank() >= 2 ? 2 : 1);
  p.n = b.rank() >= 2 ? last(y, 1) : 1;
  int64_t rows = y.elements() / std::max<int64_t>(1, p.n);
  if (b.rank() <= 2) {
    p.m = rows;
  } else {
    p.m = a.rank() >= 2 ? last(a, n.attrs.transposeA ? 1 : 2) : 1;
    p.batch = rows / std::max<int64_t>(1, p.m);
  }
  return ask(p);
}

/// What goes to memory and comes back of a value beside what products read: itself where somebody reads it as it is, and each
/// form that products want.
double PrecisionState::valueTime(ValueId v) const {
  const Value &value = g.values[v];
  const DType stored = storedAs(v);
  const double elements = static_cast<double>(value.type.elements());
  if (elements == 0 || !isArithmeticFloat(value.type.dtype))
    return 0;
  auto bytes = [&](DType t) { return elements * static_cast<double>(dtypeSize(t)); };
  const uint32_t kernel = c.rules.kernelOf(v);
  const bool computed = value.kind == Value::Result && kernel != kNone;
  bool asItIs = isOutput[v] != 0;
  std::set<uint32_t> kernels; // that read it
  std::set<DType> casts, quantised;
  for (NodeId n : readers[v]) {
    uint32_t u = unitOfNode[n];
    const ProductForm form = u == kNone ? ProductForm{} : formOf(u);
    const bool right = !g.nodes[n].inputs[0].isLiteral() && g.nodes[n].inputs[0].value != v;
    if (u != kNone && form.kind != ProductForm::Keep && !(right && form.kind == ProductForm::Weight)) {
      if (form.kind == ProductForm::Both)
        quantised.insert(form.activation);
      else if (form.compute != stored)
        casts.insert(form.compute);
      else
        asItIs = true;
      continue;
    }
    if (isDecidedProduct(g.nodes[n])) {
      asItIs = true;
      continue;
    }
    uint32_t by = c.rules.kernelOf(g.nodes[n].outputs[0]);
    if (by != kernel && by != kNone && kernel != kPointwise) {
      asItIs = true;
      kernels.insert(by);
    }
  }
  double seconds = 0;
  const int64_t width = value.type.rank() > 0 ? value.type.shape.back() : 1;
  for (DType t : quantised) {
    bool alone = !computed || !c.rules.rowsAtHand(v);
    seconds += quantiseSeconds(value.type.elements() / std::max<int64_t>(1, width), width, stored, t, alone, machine);
    asItIs |= alone && kernel != kPointwise; // which has the rows' elements at hand
  }
  for (DType t : casts)
    seconds += computed ? trafficSeconds(bytes(t), machine) : conversionSeconds(bytes(stored), bytes(t), machine);
  if (computed && asItIs)
    seconds += trafficSeconds(bytes(stored), machine);
  return seconds + trafficSeconds(bytes(stored), machine) * static_cast<double>(kernels.size());
}

/// Of a product's result, by what its operands lose.
double PrecisionState::productVariance(size_t unit) const {
  const ProductForm &f = formOf(unit);
  const ProductUnit &p = c.products[unit];
  const Node &n = g.nodes[p.node];
  if (f.kind == ProductForm::Keep)
    return 0;
  const std::vector<double> &local = model.local(p.node);
  const TensorType &x = g.type(n.inputs[0].value);
  const int64_t k = x.rank() > 0 ? x.shape.back() : 1;
  // Rounding to a type that a tensor already has, or passes through, loses nothing more.
  auto rounding = [&](ValueId v, DType t, bool tails = false) {
    DType has = storedAs(v);
    if (has == t || (has != DType::F32 && isArithmeticFloat(t) && t == g.type(v).dtype))
      return 0.0;
    double e = roundingError(t, k, tails);
    return e * e;
  };
  double variance = 0;
  switch (f.kind) {
  case ProductForm::Keep: break;
  case ProductForm::Cast:
    for (size_t i = 0; i < (n.op == OpKind::Attention ? 3 : 2); ++i)
      variance += local[i] * rounding(n.inputs[i].value, f.compute);
    if (n.op == OpKind::Attention) { // probabilities are multiplied in 16 bits too, and the result is
      double e = roundingError(f.compute);
      variance += 2 * e * e;
    }
    break;
  case ProductForm::Both:
    variance =
        local[0] * rounding(n.inputs[0].value, f.activation, true) + local[1] * rounding(n.inputs[1].value, f.weight);
    break;
  case ProductForm::Weight: {
    double widened = f.compute == DType::F32 ? 0 : roundingError(f.compute);
    variance = local[0] * rounding(n.inputs[0].value, f.compute) +
               local[1] * (rounding(n.inputs[1].value, f.weight) + widened * widened);
    break;
  }
  }
  return variance;
}

double PrecisionState::storageVariance(size_t unit) const {
  if (!narrow[unit])
    return 0;
  const TensorType &t = g.type(c.storage[unit].value);
  double e = roundingError(c.storage[unit].to, t.rank() > 0 ? t.shape.back() : 1, true);
  return e * e;
}

PrecisionState::Totals PrecisionState::totals() const {
  Totals t;
  t.variance.assign(model.outputs(), 0);
  std::set<ValueId> values;
  auto add = [&](ValueId v, double variance) {
    for (size_t o = 0; o < t.variance.size(); ++o)
      t.variance[o] += variance * model.gain(o, v);
  };
  for (size_t u = 0; u < c.products.size(); ++u) {
    t.seconds += productTime(u);
    for (ValueId v : activationsOf(u))
      values.insert(v);
    add(g.nodes[c.products[u].node].outputs[0], productVariance(u));
  }
  for (size_t s = 0; s < c.storage.size(); ++s) {
    values.insert(c.storage[s].value);
    add(c.storage[s].value, storageVariance(s));
  }
  for (ValueId v : values)
    t.seconds += valueTime(v);
  // What the graph itself rounds: 16-bit tensors that pass through memory, or all where numerics are strict.
  for (ValueId v = 0; v < g.values.size(); ++v) {
    DType d = g.type(v).dtype;
    if (g.values[v].kind == Value::Result && !isOutput[v] && (d == DType::BF16 || d == DType::F16) &&
        (g.strict || c.rules.isStored(v)) && !c.rules.isConstant(v))
      add(v, std::pow(roundingError(d), 2));
  }
  return t;
}

/// The products whose time or error a move changes.
std::set<size_t> PrecisionState::productsOf(const PrecisionMove &move) const {
  std::set<size_t> out;
  for (auto [u, k] : move.products)
    out.insert(u);
  for (size_t s : move.storage)
    for (NodeId n : readers[c.storage[s].value])
      if (unitOfNode[n] != kNone)
        out.insert(unitOfNode[n]);
  return out;
}

std::set<ValueId> PrecisionState::touched(const PrecisionMove &move) const {
  std::set<ValueId> out;
  for (size_t s : move.storage)
    out.insert(c.storage[s].value);
  for (size_t u : productsOf(move))
    for (ValueId v : activationsOf(u))
      out.insert(v);
  return out;
}

PrecisionState::Effect PrecisionState::effectOf(const PrecisionMove &move) {
  const std::set<size_t> products = productsOf(move);
  const std::set<ValueId> values = touched(move);
  Effect e;
  e.variance.assign(model.outputs(), 0);
  auto count = [&](double sign) {
    double seconds = 0;
    for (size_t u : products) {
      seconds += productTime(u);
      double variance = productVariance(u);
      for (size_t o = 0; o < e.variance.size(); ++o)
        e.variance[o] += sign * variance * model.gain(o, g.nodes[c.products[u].node].outputs[0]);
    }
    for (size_t s : move.storage)
      for (size_t o = 0; o < e.variance.size(); ++o)
        e.variance[o] += sign * storageVariance(s) * model.gain(o, c.storage[s].value);
    for (ValueId v : values)
      seconds += valueTime(v);
    return seconds;
  };
  e.of = count(-1);
  std::vector<std::pair<size_t, size_t>> forms;
  std::vector<std::pair<size_t, char>> narrows;
  for (auto [u, k] : move.products)
    forms.emplace_back(u, form[u]);
  for (size_t s : move.storage)
    narrows.emplace_back(s, narrow[s]);
  apply(move);
  e.saved = e.of - count(1);
  for (auto [u, k] : forms)
    form[u] = k;
  for (auto [s, was] : narrows)
    narrow[s] = was;
  return e;
}

void PrecisionState::apply(const PrecisionMove &move) {
  for (auto [u, k] : move.products)
    form[u] = k;
  for (size_t s : move.storage)
    narrow[s] = 1;
}

PrecisionState::Cost PrecisionState::costOf(size_t unit, size_t k) {
  const size_t before = form[unit];
  auto conversions = [&] {
    double seconds = 0;
    for (ValueId v : activationsOf(unit))
      seconds += valueTime(v);
    return seconds;
  };
  form[unit] = 0;
  const double kept = conversions();
  form[unit] = k;
  Cost cost;
  cost.seconds = productTime(unit) + conversions() - kept;
  cost.variance = productVariance(unit);
  const ProductForm &f = formOf(unit);
  const Node &n = g.nodes[c.products[unit].node];
  if (f.kind != ProductForm::Keep && n.op != OpKind::Attention && c.rules.isConstant(n.inputs[1].value)) {
    const TensorType &w = g.type(n.inputs[1].value);
    double elements = static_cast<double>(w.elements());
    DType t = f.kind == ProductForm::Cast ? f.compute : f.weight;
    if (t != w.dtype)
      cost.atBind =
          conversionSeconds(static_cast<double>(w.bytes()), elements * static_cast<double>(dtypeSize(t)), machine);
  }
  form[unit] = before;
  return cost;
}

PrecisionState::Cost PrecisionState::storageCost(size_t unit, bool is) {
  const char before = narrow[unit];
  narrow[unit] = is;
  Cost cost;
  cost.seconds = valueTime(c.storage[unit].value);
  cost.variance = storageVariance(unit);
  narrow[unit] = before;
  return cost;
}

/// What a value is a view of, where nothing else reads that: rounding there is the same, and what is stored is what a kernel has
/// before its views.
ValueId PrecisionState::beforeViews(ValueId v) const {
  while (g.values[v].kind == Value::Result && !isOutput[v]) {
    const Node &n = g.nodes[g.values[v].node];
    if (!cost::isView(n.op) || n.op == OpKind::Slice || n.inputs[0].isLiteral())
      break;
    ValueId of = n.inputs[0].value;
    if (g.values[of].kind != Value::Result || isOutput[of] || readers[of].size() != 1 || unitOfValue[of] != kNone)
      break;
    v = of;
  }
  return v;
}

PrecisionChoices PrecisionState::choices() const {
  PrecisionChoices out;
  out.products.resize(g.nodes.size());
  out.storage.resize(g.values.size());
  for (size_t u = 0; u < c.products.size(); ++u)
    out.products[c.products[u].node] = formOf(u);
  for (size_t s = 0; s < c.storage.size(); ++s)
    if (narrow[s])
      out.storage[isArithmeticFloat(c.storage[s].to) ? beforeViews(c.storage[s].value) : c.storage[s].value] =
          c.storage[s].to;
  return out;
}

} // namespace rl
