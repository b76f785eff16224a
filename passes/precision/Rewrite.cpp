// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/precision/Rewrite.h"
#include "passes/precision/ErrorModel.h"

#include <algorithm>
#include <map>
#include <unordered_set>

namespace rl {

std::string ProductForm::str(const std::string &kept) const {
  switch (kind) {
  case Keep: return kept;
  case Cast: return std::string(dtypeName(compute)) + " x " + dtypeName(compute);
  case Both: return std::string(dtypeName(activation)) + " x " + dtypeName(weight);
  case Weight: return std::string(dtypeName(compute)) + " x " + dtypeName(weight) + " widened";
  }
  return {};
}

namespace {

class Rewriter {
public:
  Rewriter(const Graph &from, const PrecisionChoices &choices)
      : from(from), choices(choices), constant(onParametersAlone(from)), to(from.values.size(), kNone),
        isOutput(from.values.size(), 0) {}

  Result<PrecisionAssignment> run() {
    for (const Value &v : from.values)
      names.insert(v.name);
    for (ValueId v : from.outputs)
      isOutput[v] = 1;
    g.name = from.name;
    g.strict = from.strict;
    for (auto [list, into] : {std::pair{&from.inputs, &g.inputs}, std::pair{&from.parameters, &g.parameters}})
      for (ValueId v : *list) {
        to[v] = static_cast<ValueId>(g.values.size());
        g.values.push_back(from.values[v]);
        into->push_back(to[v]);
      }
    for (NodeId n = 0; n < from.nodes.size(); ++n) {
      const Node &node = from.nodes[n];
      // Inputs and parameters pass through their type where they are first read.
      for (const Operand &o : node.inputs)
        if (!o.isLiteral() && from.values[o.value].kind != Value::Result && choices.storage[o.value] &&
            passed.insert(o.value).second)
          RL_TRY(passThrough(o.value, node));
      const ProductForm &form = choices.products[n];
      if (form.kind == ProductForm::Keep)
        copy(node);
      else
        RL_TRY(product(node, form));
      for (ValueId v : node.outputs)
        if (choices.storage[v])
          RL_TRY(passThrough(v, node));
    }
    for (ValueId v : from.outputs)
      g.outputs.push_back(from.values[v].kind == Value::Result ? to[v] : given(v));
    out.graph = std::move(g);
    return std::move(out);
  }

private:
  /// An input or parameter itself, whatever its readers get.
  ValueId given(ValueId v) const {
    const Value &value = from.values[v];
    return value.kind == Value::Input ? g.inputs[value.index] : g.parameters[value.index];
  }
  std::string unused(const std::string &base) {
    std::string name = base;
    for (int i = 2; !names.insert(name).second; ++i)
      name = base + "_" + std::to_string(i);
    return name;
  }
  /// What a result is called: a graph's output that passes through another type has its name behind that.
  std::string nameOf(ValueId v) {
    const std::string &name = from.values[v].name;
    return isOutput[v] && choices.storage[v] ? unused(name + ".exact") : name;
  }

  void copy(const Node &node) {
    Node n = node;
    for (Operand &o : n.inputs)
      if (!o.isLiteral())
        o.value = to[o.value];
    n.outputs.clear();
    auto id = static_cast<NodeId>(g.nodes.size());
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      ValueId v = node.outputs[k];
      to[v] = static_cast<ValueId>(g.values.size());
      n.outputs.push_back(to[v]);
      g.values.push_back({Value::Result, nameOf(v), from.type(v), id, static_cast<uint32_t>(k)});
    }
    g.nodes.push_back(std::move(n));
  }

  Result<std::vector<ValueId>> add(OpKind op, const std::vector<ValueId> &inputs, const Attrs &attrs,
                                   const Node &origin, const std::vector<std::string> &outputNames) {
    std::vector<OperandType> operands;
    Node n{op, {}, {}, attrs, std::nullopt, origin.source, origin.specIndex};
    for (ValueId v : inputs) {
      operands.push_back({g.type(v), std::nullopt});
      n.inputs.push_back({v, {}});
    }
    auto types = inferResults(op, operands, outputNames.size(), attrs);
    if (!types)
      return unsupported(origin.pointer(), std::string("internal: the precision assignment made an invalid ") +
                                               opInfo(op).name + ": " + types.error().message);
    auto id = static_cast<NodeId>(g.nodes.size());
    for (size_t k = 0; k < types->size(); ++k) {
      n.outputs.push_back(static_cast<ValueId>(g.values.size()));
      g.values.push_back({Value::Result, unused(outputNames[k]), (*types)[k], id, static_cast<uint32_t>(k)});
    }
    std::vector<ValueId> made = n.outputs;
    g.nodes.push_back(std::move(n));
    return made;
  }
  Result<ValueId> one(OpKind op, const std::vector<ValueId> &inputs, const Attrs &attrs, const Node &origin,
                      const std::string &name) {
    RL_ASSIGN(std::vector<ValueId> made, add(op, inputs, attrs, origin, {name}));
    return made[0];
  }
  /// `v` is the graph's, `value` what stands for it.
  Result<ValueId> castTo(ValueId value, DType t, const Node &origin, const std::string &name) {
    Attrs a;
    a.dtype = t;
    return one(OpKind::Cast, {value}, a, origin, name);
  }
  Result<ValueId> cast(ValueId v, DType t, const Node &origin) {
    if (g.type(to[v]).dtype == t)
      return to[v];
    auto [at, fresh] = casts.try_emplace({v, t}, kNone);
    if (fresh) {
      RL_ASSIGN(at->second, castTo(to[v], t, origin, from.values[v].name + "." + dtypeName(t)));
      if (constant[v])
        out.atBind.push_back(at->second);
    }
    return at->second;
  }

  using Quantised = std::pair<ValueId, ValueId>; // codes and scales
  Result<Quantised> quantise(ValueId value, DType t, const Node &origin, const std::string &name) {
    Attrs a;
    a.dtype = t;
    a.granularity = g.type(value).rank() > 0 ? Granularity::Token : Granularity::Tensor;
    std::string base = name + "." + dtypeName(t);
    RL_ASSIGN(std::vector<ValueId> made, add(OpKind::Quantize, {value}, a, origin, {base, base + ".scale"}));
    return Quantised{made[0], made[1]};
  }
  Result<Quantised> quantised(ValueId v, DType t, const Node &origin) {
    auto [at, fresh] = codes.try_emplace({v, t}, Quantised{kNone, kNone});
    if (fresh) {
      RL_ASSIGN(at->second, quantise(to[v], t, origin, from.values[v].name));
    }
    return at->second;
  }
  /// A product's weight as [N, K], by row of which it is quantised.
  Result<Quantised> quantisedWeight(const Node &node, DType t) {
    ValueId w = node.inputs[1].value;
    bool turned = node.op == OpKind::Matmul && !node.attrs.transposeB;
    auto [at, fresh] = weights.try_emplace({w, t, turned}, Quantised{kNone, kNone});
    if (!fresh)
      return at->second;
    ValueId matrix = to[w];
    std::string name = from.values[w].name;
    if (turned) {
      Attrs a;
      a.dims = {1, 0};
      name += ".rows";
      RL_ASSIGN(matrix, one(OpKind::Permute, {matrix}, a, node, name));
    }
    RL_ASSIGN(at->second, quantise(matrix, t, node, name));
    out.atBind.push_back(at->second.first);
    out.atBind.push_back(at->second.second);
    return at->second;
  }

  /// The value passes through a type, and its readers get what is left of it.
  Status passThrough(ValueId v, const Node &origin) {
    DType t = *choices.storage[v], own = from.type(v).dtype;
    const std::string &name = from.values[v].name;
    ValueId back = kNone;
    if (isArithmeticFloat(t)) {
      RL_ASSIGN(ValueId narrow, castTo(to[v], t, origin, name + "." + dtypeName(t)));
      casts[{v, t}] = narrow;
      RL_ASSIGN(back, castTo(narrow, own, origin, name + ".again"));
    } else {
      RL_ASSIGN(Quantised q, quantise(to[v], t, origin, name));
      codes[{v, t}] = q;
      Attrs a;
      a.dtype = own;
      a.granularity = g.type(to[v]).rank() > 0 ? Granularity::Token : Granularity::Tensor;
      RL_ASSIGN(back, one(OpKind::Dequantize, {q.first, q.second}, a, origin, name + ".again"));
    }
    if (isOutput[v] && from.values[v].kind == Value::Result)
      g.values[back].name = name;
    to[v] = back;
    return {};
  }

  Status product(const Node &node, const ProductForm &form) {
    const ValueId result = node.outputs[0];
    const std::string name = from.values[result].name;
    const DType type = from.type(result).dtype;
    const bool bias = node.op == OpKind::Linear && node.attrs.hasBias;
    auto operand = [&](size_t i) { return node.inputs[i].value; };
    Attrs a;
    a.dtype = bias ? DType::F32 : type; // one rounding, behind the bias
    a.transposeA = node.attrs.transposeA;
    a.transposeB = node.op == OpKind::Linear || node.attrs.transposeB;
    ValueId y = kNone;
    switch (form.kind) {
    case ProductForm::Keep: return {};
    case ProductForm::Cast:
      if (node.op == OpKind::Attention) {
        std::vector<ValueId> inputs;
        for (size_t i = 0; i < 3; ++i) {
          RL_ASSIGN(ValueId in, cast(operand(i), form.compute, node));
          inputs.push_back(in);
        }
        if (node.inputs.size() > 3)
          inputs.push_back(to[operand(3)]);
        RL_ASSIGN(y, one(OpKind::Attention, inputs, node.attrs, node, name + ".narrow"));
      } else {
        RL_ASSIGN(ValueId x, cast(operand(0), form.compute, node));
        RL_ASSIGN(ValueId w, cast(operand(1), form.compute, node));
        RL_ASSIGN(y, one(OpKind::Matmul, {x, w}, a, node, name + ".product"));
      }
      break;
    case ProductForm::Both: {
      RL_ASSIGN(Quantised x, quantised(operand(0), form.activation, node));
      RL_ASSIGN(Quantised w, quantisedWeight(node, form.weight));
      a.granularityA = a.granularityB = Granularity::Token;
      a.transposeB = true;
      RL_ASSIGN(y, one(OpKind::ScaledMatmul, {x.first, w.first, x.second, w.second}, a, node, name + ".product"));
      break;
    }
    case ProductForm::Weight: {
      RL_ASSIGN(ValueId x, cast(operand(0), form.compute, node));
      RL_ASSIGN(Quantised w, quantisedWeight(node, form.weight));
      Attrs wide;
      wide.dtype = form.compute;
      wide.granularity = Granularity::Token;
      RL_ASSIGN(ValueId matrix,
                one(OpKind::Dequantize, {w.first, w.second}, wide, node,
                    from.values[operand(1)].name + "." + dtypeName(form.weight) + "." + dtypeName(form.compute)));
      a.transposeB = true;
      RL_ASSIGN(y, one(OpKind::Matmul, {x, matrix}, a, node, name + ".product"));
      break;
    }
    }
    if (bias) {
      RL_ASSIGN(y, one(OpKind::Add, {y, to[operand(2)]}, {}, node, name + ".biased"));
    }
    if (g.type(y).dtype != type) {
      RL_ASSIGN(y, castTo(y, type, node, name + ".rounded"));
    }
    g.values[y].name = nameOf(result);
    to[result] = y;
    return {};
  }

  const Graph &from;
  const PrecisionChoices &choices;
  const std::vector<char> constant;
  Graph g;
  PrecisionAssignment out;
  std::vector<ValueId> to;
  std::vector<char> isOutput;
  std::unordered_set<std::string> names;
  std::unordered_set<ValueId> passed;
  std::map<std::pair<ValueId, DType>, ValueId> casts;
  std::map<std::pair<ValueId, DType>, Quantised> codes;
  std::map<std::tuple<ValueId, DType, bool>, Quantised> weights;
};

} // namespace

Result<PrecisionAssignment> rewritePrecision(const Graph &graph, const PrecisionChoices &choices) {
  return Rewriter(graph, choices).run();
}

} // namespace rl
