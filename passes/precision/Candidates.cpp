// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/precision/Candidates.h"

#include <algorithm>

namespace rl {

namespace {

std::string escaped(const std::string &name) { // RFC 6901
  std::string out;
  for (char c : name)
    out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

bool isQuantised(DType t) { return t == DType::F8E4M3 || t == DType::F8E5M2 || t == DType::I8; }
bool isNarrower(DType to, DType from) { return dtypeSize(to) < dtypeSize(from); }

} // namespace

PrecisionCandidates::PrecisionCandidates(const Graph &g, const cost::TargetDesc &machine,
                                         const std::vector<ValueId> &cotangents)
    : g(g), rules(g), gradient(g.values.size(), 0), machine(machine), pinUsed(g.values.size(), 0) {
  for (ValueId v : cotangents)
    gradient[v] = 1;
  for (const Node &n : g.nodes)
    for (const Operand &o : n.inputs)
      if (!o.isLiteral() && gradient[o.value])
        for (ValueId v : n.outputs)
          gradient[v] = 1;
}

std::string PrecisionCandidates::typesOf(NodeId id) const {
  std::string out;
  const Node &n = g.nodes[id];
  for (size_t i = 0; i < n.inputs.size() && i < (n.op == OpKind::Attention ? 3 : 2); ++i)
    out += (i ? " x " : "") + std::string(dtypeName(g.type(n.inputs[i].value).dtype));
  return out;
}

Status PrecisionCandidates::find() {
  if (g.precision.mode != "keep")
    for (ValueId v = 0; v < g.values.size(); ++v)
      if (auto pin = g.precision.pin.find(g.values[v].name); pin != g.precision.pin.end()) {
        if (!isArithmeticFloat(g.type(v).dtype) && g.type(v).dtype != pin->second)
          return unsupported("/precision/pin/" + escaped(pin->first), pin->first + " is " + dtypeName(g.type(v).dtype) +
                                                                          ", and stays so: only f32, f16 and bf16 "
                                                                          "tensors are given other types");
        pins.emplace(v, pin->second);
      }
  for (NodeId n = 0; n < g.nodes.size(); ++n)
    RL_TRY(addProduct(n));
  return addStorage();
}

std::optional<std::pair<std::string, DType>> PrecisionCandidates::pinOf(ValueId v, bool weight) const {
  auto named = [&](ValueId at) -> std::optional<std::pair<std::string, DType>> {
    auto pin = pins.find(at);
    if (pin == pins.end())
      return std::nullopt;
    return std::pair{g.values[at].name, pin->second};
  };
  if (auto own = named(v))
    return own;
  ValueId p = weight ? parameterOf(g, v) : kNone;
  return p == kNone ? std::nullopt : named(p);
}

Status PrecisionCandidates::addProduct(NodeId id) {
  const Node &n = g.nodes[id];
  const bool pinned = n.pin && isQuantised(*n.pin);
  if (!isDecidedProduct(n)) {
    if (pinned)
      return unsupported(n.pointer() + "/precision", g.describe(id) + ": " + opInfo(n.op).name +
                                                         " does not compute in " + dtypeName(*n.pin) +
                                                         "; matmul and linear with a weight do");
    return {};
  }
  ProductUnit unit;
  unit.node = id;
  auto offer = [&](ProductForm form, std::string refused) {
    // What a form does not use is the same in all of its kind.
    if (form.kind == ProductForm::Both)
      form.compute = DType::F32;
    else
      form.activation = form.compute;
    if (form.kind == ProductForm::Cast)
      form.weight = form.compute;
    if (std::find(unit.forms.begin(), unit.forms.end(), form) == unit.forms.end()) {
      unit.forms.push_back(form);
      unit.refused.push_back(std::move(refused));
    }
  };
  offer({}, {});
  const DType result = g.type(n.outputs[0]).dtype;
  bool floats = isArithmeticFloat(result) && g.type(n.outputs[0]).elements() > 0, wide = false, empty = false;
  for (size_t i = 0; i < n.inputs.size() && i < (n.op == OpKind::Attention ? 3 : 2); ++i) {
    if (n.inputs[i].isLiteral())
      return {};
    const TensorType &t = g.type(n.inputs[i].value);
    floats &= isArithmeticFloat(t.dtype);
    wide |= t.dtype == DType::F32;
    empty |= t.elements() == 0;
  }
  unit.activation = n.inputs[0].value;
  if (!floats || empty) {
    if (pinned)
      return unsupported(n.pointer() + "/precision",
                         g.describe(id) + ": there are no products of f32, f16 or bf16 numbers to be quantised");
    return {};
  }
  const std::string &mode = g.precision.mode;
  const DType narrow = mode == "f16" ? DType::F16 : DType::BF16;
  const DType x = g.type(unit.activation).dtype;
  // What a widened weight is multiplied in. A CPU multiplies in f32 whatever it reads, and rounding to less takes it time.
  const DType compute = !machine.gpu ? DType::F32 : x != DType::F32 ? x : narrow;
  const DType f8 = gradient[unit.activation] ? DType::F8E5M2 : DType::F8E4M3;
  std::string mayNotCast = rules.mayNotCast(id), mayNot = rules.mayNotQuantise(id);
  // What the form of a product cannot have, whatever is asked for.
  std::string cannotBoth = !rules.hasWeight(id) ? "no operand is a matrix of parameters on the right"
                           : n.attrs.transposeA ? "the left operand is stored transposed, and has no rows to scale"
                           : g.type(unit.activation).rank() < 2 ? "the left operand is a vector"
                                                                : "";
  std::string cannotWeight = rules.hasWeight(id) ? "" : "no operand is a matrix of parameters on the right";
  auto either = [](const std::string &a, const std::string &b) { return a.empty() ? b : a; };
  if (mode != "keep" && wide)
    offer({ProductForm::Cast, narrow}, mayNotCast);
  for (bool isF8 : {true, false}) {
    if (n.op == OpKind::Attention || (mode != "auto" && mode != (isF8 ? "fp8" : "int8")))
      continue;
    DType a = isF8 ? f8 : DType::I8, w = isF8 ? DType::F8E4M3 : DType::I8;
    offer({ProductForm::Both, compute, a, w}, either(mayNot, cannotBoth));
    offer({ProductForm::Weight, compute, a, w}, either(mayNot, cannotWeight));
  }

  // Pins win, over the rules as well; what has no such form is refused.
  auto only = [&](auto allowed, const std::string &what, const std::string &pointer) -> Status {
    bool any = false;
    for (size_t k = 0; k < unit.forms.size(); ++k) {
      if (!allowed(unit.forms[k])) {
        unit.refused[k] = what;
        continue;
      }
      const std::string &cannot = unit.forms[k].kind == ProductForm::Both     ? cannotBoth
                                  : unit.forms[k].kind == ProductForm::Weight ? cannotWeight
                                                                              : std::string();
      if (unit.refused[k].empty() || unit.refused[k] == mayNot || unit.refused[k] == mayNotCast)
        unit.refused[k] = cannot;
      any |= unit.refused[k].empty();
    }
    if (!any)
      return unsupported(pointer, g.describe(id) + ": it cannot be computed as it is " + what + ": " +
                                      (cannotBoth.empty() ? "its operands' types do not allow it" : cannotBoth));
    unit.pinned += (unit.pinned.empty() ? "" : ", ") + what;
    return {};
  };
  auto activationOf = [&](const ProductForm &f) {
    return f.kind == ProductForm::Keep ? x : f.kind == ProductForm::Both ? f.activation : f.compute;
  };
  auto isCast = [&](DType t) { return t == DType::BF16 || t == DType::F16; };
  if (n.pin) {
    if (pinned) {
      offer({ProductForm::Both, compute, *n.pin, *n.pin}, cannotBoth);
      RL_TRY(only(
          [&](const ProductForm &f) {
            return f.kind == ProductForm::Both && f.activation == *n.pin && f.weight == *n.pin;
          },
          std::string("pinned to ") + dtypeName(*n.pin), n.pointer() + "/precision"));
    } else {
      RL_TRY(only([](const ProductForm &f) { return f.kind == ProductForm::Keep; },
                  std::string("pinned to ") + dtypeName(*n.pin), n.pointer() + "/precision"));
    }
  }
  if (rules.hasWeight(id))
    if (auto pin = pinOf(n.inputs[1].value, true); pin && !n.pin) {
      DType own = g.type(n.inputs[1].value).dtype, t = pin->second;
      if (isQuantised(t)) {
        offer({ProductForm::Both, compute, t == DType::I8 ? DType::I8 : f8, t}, cannotBoth);
        offer({ProductForm::Weight, compute, f8, t}, {});
      } else if (isCast(t) && t != own) {
        offer({ProductForm::Cast, t}, {});
      }
      RL_TRY(only(
          [&](const ProductForm &f) {
            if (isQuantised(t))
              return (f.kind == ProductForm::Both || f.kind == ProductForm::Weight) && f.weight == t;
            return isCast(t) && t != own ? f.kind == ProductForm::Cast && f.compute == t : f.kind == ProductForm::Keep;
          },
          "pinned by its weight " + pin->first + " to " + dtypeName(t), "/precision/pin/" + escaped(pin->first)));
      for (ValueId v : {n.inputs[1].value, parameterOf(g, n.inputs[1].value)})
        if (v != kNone)
          pinUsed[v] = 1;
    }
  if (auto pin = pinOf(unit.activation, false); pin && !n.pin) {
    DType t = pin->second;
    if (isQuantised(t)) { // what it passes through anyway; where the product can, it multiplies that
      if (cannotBoth.empty() && unit.pinned.empty())
        offer({ProductForm::Both, compute, t, t == DType::I8 ? DType::I8 : DType::F8E4M3}, {});
    } else {
      RL_TRY(only(
          [&](const ProductForm &f) {
            return activationOf(f) == t || (f.kind == ProductForm::Keep && !isNarrower(t, x));
          },
          "pinned by its operand " + pin->first + " to " + dtypeName(t), "/precision/pin/" + escaped(pin->first)));
    }
  }
  unit.first = 0;
  while (!unit.refused[unit.first].empty())
    ++unit.first;
  if (unit.forms.size() > 1)
    products.push_back(std::move(unit));
  return {};
}

Status PrecisionCandidates::addStorage() {
  const std::string &mode = g.precision.mode;
  const DType narrow = mode == "f16" ? DType::F16 : DType::BF16;
  std::vector<char> isOutput(g.values.size(), 0);
  for (ValueId v : g.outputs)
    isOutput[v] = 1;
  for (ValueId v = 0; v < g.values.size(); ++v) {
    const Value &value = g.values[v];
    if (auto pin = pins.find(v); pin != pins.end()) {
      if (!pinUsed[v] && isNarrower(pin->second, value.type.dtype))
        storage.push_back({v, pin->second, {}, true});
      continue;
    }
    if (mode == "keep" || value.kind != Value::Result || value.type.dtype != DType::F32 || isOutput[v] ||
        !rules.isStored(v) || rules.isConstant(v) || g.nodes[value.node].pin)
      continue;
    storage.push_back({v, narrow, rules.mayNotNarrow(v), false});
  }
  return {};
}

} // namespace rl
