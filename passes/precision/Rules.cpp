// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/precision/Rules.h"
#include "passes/precision/ErrorModel.h"

#include <algorithm>
#include <map>

namespace rl {

namespace {

bool isElementwise(OpKind op) {
  OpClass c = opInfo(op).cls;
  return c == OpClass::Unary || c == OpClass::Binary || c == OpClass::Ternary;
}
bool isLayout(OpKind op) { return opInfo(op).cls == OpClass::Shape; }
/// What a kernel is built around.
bool isHero(OpKind op) { return !isElementwise(op) && !isLayout(op) && opInfo(op).cls != OpClass::Creation; }

} // namespace

bool isDecidedProduct(const Node &n) {
  return n.op == OpKind::Matmul || n.op == OpKind::Linear || n.op == OpKind::Attention;
}

ValueId parameterOf(const Graph &g, ValueId v) {
  while (g.values[v].kind == Value::Result) {
    const Node &n = g.nodes[g.values[v].node];
    if (n.inputs.size() != 1 || n.inputs[0].isLiteral() || !(isLayout(n.op) || n.op == OpKind::Cast))
      return kNone;
    v = n.inputs[0].value;
  }
  return g.values[v].kind == Value::Parameter ? v : kNone;
}

/// Marks what a value is computed of elementwise, through layout ops and casts, itself too, but not what is above what is marked.
static void markElementwise(const Graph &g, ValueId v, std::vector<char> &into) {
  std::vector<ValueId> work{v};
  while (!work.empty()) {
    ValueId at = work.back();
    work.pop_back();
    if (into[at])
      continue;
    into[at] = 1;
    if (g.values[at].kind != Value::Result)
      continue;
    const Node &n = g.nodes[g.values[at].node];
    if (isElementwise(n.op) || isLayout(n.op))
      for (const Operand &o : n.inputs)
        if (!o.isLiteral())
          work.push_back(o.value);
  }
}

static std::vector<ValueId> parametersAbove(const Graph &g, ValueId v) {
  std::vector<char> above(g.values.size(), 0);
  markElementwise(g, v, above);
  std::vector<ValueId> out;
  for (ValueId p : g.parameters)
    if (above[p])
      out.push_back(p);
  return out;
}

PrecisionRules::PrecisionRules(const Graph &g) : g(g), constant(onParametersAlone(g)) {
  size_t count = g.values.size();
  for (std::vector<char> *flags :
       {&stored, &rows, &statistic, &probability, &state, &loss, &logits, &table, &normParameter})
    flags->assign(count, 0);
  kernels.assign(count, kNone);
  findKernels();
  findRoles();
}

/// Elementwise and layout ops belong to the kernel of the latest op that theirs is built around. What another kernel reads is
/// stored; so is what ops read that pick elements, which no epilogue has at hand, and what a product reads.
void PrecisionRules::findKernels() {
  std::vector<char> picked(g.values.size(), 0);
  for (const Node &n : g.nodes)
    if (n.op == OpKind::Slice || n.op == OpKind::Cat || n.op == OpKind::Flip || n.op == OpKind::Pad)
      for (const Operand &o : n.inputs)
        if (!o.isLiteral())
          picked[o.value] = 1;
  auto isHeros = [&](ValueId v) { return kernels[v] != kNone && kernels[v] != kPointwise; };
  std::map<std::vector<int64_t>, uint32_t> shared; // products of one left operand and one shape are one kernel
  for (NodeId id = 0; id < g.nodes.size(); ++id) {
    const Node &n = g.nodes[id];
    uint32_t kernel = kNone;
    char lastRows = 0;
    if (isHero(n.op)) {
      kernel = id;
      if (n.op == OpKind::Linear || n.op == OpKind::Matmul) {
        std::vector<int64_t> key = {static_cast<int64_t>(n.op), n.attrs.transposeA, n.attrs.transposeB,
                                    n.inputs[0].isLiteral() ? -1 : static_cast<int64_t>(n.inputs[0].value)};
        for (int64_t e : g.type(n.outputs[0]).shape)
          key.push_back(e);
        kernel = shared.emplace(std::move(key), id).first->second;
      }
      int64_t last = g.type(n.outputs[0]).rank() - 1;
      lastRows = n.op == OpKind::LayerNorm || n.op == OpKind::RmsNorm ||
                 ((n.op == OpKind::Softmax || n.op == OpKind::LogSoftmax) && n.attrs.dim == last);
      for (const Operand &o : n.inputs)
        if (!o.isLiteral() && (isHeros(o.value) || (isDecidedProduct(n) && kernels[o.value] != kNone)))
          stored[o.value] = 1;
    } else {
      bool constantAlone = true;
      for (const Operand &o : n.inputs) {
        if (o.isLiteral())
          continue;
        constantAlone &= constant[o.value] != 0;
        // Picked elements are loaded, as those of inputs are.
        if (isHeros(o.value) && !picked[o.value] && (kernel == kNone || kernels[o.value] > kernel)) {
          kernel = kernels[o.value];
          lastRows = rows[o.value] && !isLayout(n.op);
        }
      }
      for (const Operand &o : n.inputs)
        if (!o.isLiteral() && isHeros(o.value) && kernels[o.value] != kernel)
          stored[o.value] = 1;
      const bool viewOfNone =
          isLayout(n.op) && n.inputs.size() == 1 && !n.inputs[0].isLiteral() && kernels[n.inputs[0].value] == kNone;
      if (kernel == kNone && !constantAlone && !viewOfNone)
        kernel = kPointwise;
    }
    for (ValueId v : n.outputs) {
      kernels[v] = kernel;
      rows[v] = lastRows;
    }
  }
  for (ValueId v : g.outputs)
    stored[v] = g.values[v].kind == Value::Result;
}

void PrecisionRules::findRoles() {
  std::vector<char> multiplied(g.values.size(),
                               0); // leads to a product: probabilities of an attention, not of a result
  for (NodeId id = static_cast<NodeId>(g.nodes.size()); id-- > 0;) {
    const Node &n = g.nodes[id];
    bool passes = isElementwise(n.op) || isLayout(n.op);
    for (const Operand &o : n.inputs)
      if (!o.isLiteral())
        multiplied[o.value] |= isDecidedProduct(n) || (passes && multiplied[n.outputs[0]]);
  }
  // By output of f32: what elementwise ops make of an f32 input of its shape is a state that is carried on.
  std::vector<char> leads(g.values.size(), 0);
  for (ValueId v : g.outputs)
    if (g.type(v).dtype == DType::F32)
      leads[v] = 1;
  for (NodeId id = static_cast<NodeId>(g.nodes.size()); id-- > 0;) {
    const Node &n = g.nodes[id];
    if (isElementwise(n.op) && leads[n.outputs[0]])
      for (const Operand &o : n.inputs)
        if (!o.isLiteral() && g.type(o.value) == g.type(n.outputs[0]))
          leads[o.value] = 1;
  }
  for (const std::vector<ValueId> *list : {&g.inputs, &g.parameters})
    for (ValueId v : *list)
      state[v] = leads[v];

  for (NodeId id = 0; id < g.nodes.size(); ++id) {
    const Node &n = g.nodes[id];
    OpClass cls = opInfo(n.op).cls;
    ValueId result = n.outputs[0];
    if (cls == OpClass::Reduction)
      statistic[result] = 1;
    if (n.op == OpKind::Quantize) // its scales
      for (size_t o = 1; o < n.outputs.size(); ++o)
        statistic[n.outputs[o]] = 1;
    if (n.op == OpKind::Softmax)
      probability[result] = 1;
    if (isElementwise(n.op) || isLayout(n.op)) {
      bool any = false, all = true;
      for (const Operand &o : n.inputs) {
        if (o.isLiteral())
          continue;
        any |= statistic[o.value] != 0;
        all &= statistic[o.value] != 0;
        probability[result] |= probability[o.value] && g.type(o.value).elements() == g.type(result).elements();
        state[result] |= state[o.value] && isElementwise(n.op);
        loss[result] |= loss[o.value];
      }
      statistic[result] = any && all;
    }
    if (cls == OpClass::Loss) {
      loss[result] = 1;
      markElementwise(g, n.inputs[0].value, logits);
    }
    // Probabilities that nothing multiplies are a result, and what they are computed of are logits.
    if ((n.op == OpKind::Softmax || n.op == OpKind::LogSoftmax || n.op == OpKind::LogSumExp ||
         n.op == OpKind::ArgMax) &&
        !multiplied[result])
      markElementwise(g, n.inputs[0].value, logits);
    if (cls == OpClass::Reduction && !n.inputs[0].isLiteral())
      loss[result] |= loss[n.inputs[0].value];
    auto mark = [&](size_t operand, std::vector<char> &into) {
      if (operand >= n.inputs.size() || n.inputs[operand].isLiteral())
        return;
      if (ValueId p = parameterOf(g, n.inputs[operand].value); p != kNone)
        into[p] = 1;
    };
    if (cls == OpClass::Indexing && !n.inputs[0].isLiteral())
      for (ValueId p : parametersAbove(g, n.inputs[0].value))
        table[p] = 1;
    if (n.op == OpKind::LayerNorm || n.op == OpKind::RmsNorm) {
      mark(1, normParameter);
      mark(2, normParameter);
    }
    if (n.op == OpKind::Linear)
      mark(2, normParameter);
  }
  // A result that is many times wider than what it is projected from, or as wide as vocabularies are and no layer is (28,672 at a width of
  // 8,192), and comes out with elementwise ops, layouts and picks alone behind it, is one over a vocabulary. (Not where results are
  // multiplied with each other, as a gate and what it lets through.)
  constexpr int64_t kWider = 4, kVocabulary = 30000;
  std::vector<ValueId> work(g.outputs);
  std::vector<char> seen(g.values.size(), 0);
  while (!work.empty()) {
    ValueId at = work.back();
    work.pop_back();
    if (seen[at] || g.values[at].kind != Value::Result)
      continue;
    seen[at] = 1;
    const Node &n = g.nodes[g.values[at].node];
    if (isDecidedProduct(n)) {
      const TensorType &x = g.type(n.inputs[0].value), &y = g.type(n.outputs[0]);
      if (n.op != OpKind::Attention && x.rank() > 0 && y.rank() > 0 &&
          (y.shape.back() > kWider * x.shape.back() || y.shape.back() >= kVocabulary))
        logits[n.outputs[0]] = 1;
    } else if (isElementwise(n.op) || isLayout(n.op) || opInfo(n.op).cls == OpClass::Indexing) {
      const auto computed = std::count_if(n.inputs.begin(), n.inputs.end(), [&](const Operand &o) {
        return !o.isLiteral() && !constant[o.value] && g.values[o.value].kind == Value::Result;
      });
      if (n.op == OpKind::Mul && computed > 1)
        continue;
      for (const Operand &o : n.inputs)
        if (!o.isLiteral() && !constant[o.value])
          work.push_back(o.value);
    }
  }
}

bool PrecisionRules::hasWeight(NodeId id) const {
  const Node &n = g.nodes[id];
  return (n.op == OpKind::Linear || n.op == OpKind::Matmul) && !n.inputs[1].isLiteral() &&
         constant[n.inputs[1].value] && !n.inputs[0].isLiteral() && !constant[n.inputs[0].value] &&
         g.type(n.inputs[1].value).rank() == 2;
}

std::string PrecisionRules::mayNotNarrow(ValueId v) const {
  if (statistic[v])
    return "a statistic of rows stays f32";
  if (state[v])
    return "a state that is carried from an f32 input to an f32 output stays f32";
  if (loss[v])
    return "a loss stays f32";
  if (logits[v])
    return "logits stay f32";
  return {};
}

std::string PrecisionRules::mayNotCast(NodeId id) const {
  for (const Operand &o : g.nodes[id].inputs)
    if (!o.isLiteral() && statistic[o.value])
      return "a statistic of rows stays f32";
  return {};
}

std::string PrecisionRules::mayNotQuantise(NodeId id) const {
  const Node &n = g.nodes[id];
  if (!hasWeight(id))
    return "no operand is a matrix of parameters on the right";
  if (logits[n.outputs[0]])
    return "a final projection onto logits is not quantised";
  if (probability[n.inputs[0].value])
    return "probabilities and their normaliser are not quantised";
  if (statistic[n.inputs[0].value])
    return "a statistic of rows stays f32";
  for (ValueId p : parametersAbove(g, n.inputs[1].value))
    if (table[p])
      return "the weight is an embedding table, which is not quantised";
  if (ValueId p = parameterOf(g, n.inputs[1].value); p != kNone && normParameter[p])
    return "the weight is a norm's scale or a bias, which is not quantised";
  return {};
}

} // namespace rl
