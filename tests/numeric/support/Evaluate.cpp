// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/numeric/support/Evaluate.h"

#include "ir/interp/Convert.h"
#include "tests/numeric/support/RandomGraph.h"

#include <bit>
#include <cmath>
#include <cstring>

namespace rl::numeric {

Result<HostTensor> evaluateNode(const Graph &graph, NodeId id, const std::vector<const HostTensor *> &operands) {
  Graph single;
  single.name = graph.name;
  single.strict = graph.strict;
  Node node = graph.nodes[id];
  std::vector<HostTensor> inputs;
  std::vector<OperandType> types;
  for (size_t k = 0; k < node.inputs.size(); ++k) {
    Operand &o = node.inputs[k];
    if (o.isLiteral()) {
      types.push_back({{}, o.literal});
      continue;
    }
    types.push_back({operands[k]->type, {}});
    o.value = static_cast<ValueId>(single.values.size());
    single.values.push_back(
        {Value::Input, "x" + std::to_string(k), operands[k]->type, kNone, static_cast<uint32_t>(inputs.size())});
    single.inputs.push_back(o.value);
    inputs.push_back(*operands[k]);
  }
  RL_ASSIGN(std::vector<TensorType> results, inferResults(node.op, types, 1, node.attrs));
  auto out = static_cast<ValueId>(single.values.size());
  single.values.push_back({Value::Result, "y", results[0], 0, 0});
  node.outputs = {out};
  single.outputs = {out};
  single.nodes.push_back(std::move(node));
  RL_ASSIGN(std::vector<HostTensor> values, interpret(single, inputs, {}));
  return std::move(values[0]);
}

int64_t ordinal(DType type, const void *element) {
  if (type == DType::F32) {
    int32_t bits;
    std::memcpy(&bits, element, 4);
    return bits < 0 ? -static_cast<int64_t>(bits & 0x7fffffff) : bits;
  }
  int16_t bits;
  std::memcpy(&bits, element, 2);
  return bits < 0 ? -static_cast<int64_t>(bits & 0x7fff) : bits;
}

float roundedTo(DType type, float v) {
  switch (type) {
  case DType::F16: return f16ToF32(f32ToF16(v));
  case DType::BF16: return bf16ToF32(f32ToBf16(v));
  case DType::F8E4M3: return f8e4m3ToF32(f32ToF8e4m3(v, true));
  case DType::F8E5M2: return f8e5m2ToF32(f32ToF8e5m2(v, true));
  case DType::F8E8M0: return f8e8m0ToF32(f32ToF8e8m0(v));
  default: return v;
  }
}

float stepped(DType type, float v, int64_t steps) {
  if (std::isnan(v))
    return v;
  auto moved = [&](int64_t at, int64_t infinity) { return std::clamp(at + steps, -infinity, infinity); };
  if (type == DType::F32) {
    int64_t at = moved(ordinal(type, &v), 0x7f800000);
    return std::bit_cast<float>(static_cast<uint32_t>(at < 0 ? -at : at) | (at < 0 ? 0x80000000u : 0u));
  }
  uint16_t code = type == DType::F16 ? f32ToF16(v) : f32ToBf16(v);
  int64_t at = moved(ordinal(type, &code), type == DType::F16 ? 0x7c00 : 0x7f80);
  code = static_cast<uint16_t>((at < 0 ? -at : at) | (at < 0 ? 0x8000 : 0));
  return type == DType::F16 ? f16ToF32(code) : bf16ToF32(code);
}

bool isDetermined(const Graph &graph) {
  if (graph.strict)
    return true;
  for (const Node &node : graph.nodes) {
    OpClass cls = opInfo(node.op).cls;
    DType type = graph.type(node.outputs[0]).dtype;
    if (cls == OpClass::Indexing)
      continue; // what it picks is judged where it is computed
    if ((type == DType::F16 || type == DType::BF16) && cls != OpClass::Shape && cls != OpClass::Creation &&
        node.op != OpKind::Cast)
      return false;
    // Promoted pieces of a cat, and literals that the type does not hold, may stay unrounded.
    if ((type == DType::F16 || type == DType::BF16) && cls != OpClass::Unary && node.op != OpKind::Reshape)
      for (const Operand &o : node.inputs)
        if (o.isLiteral() || graph.type(o.value).dtype != type)
          return false;
    if ((type == DType::F16 || type == DType::BF16) && (cls == OpClass::Creation || node.op == OpKind::Pad))
      return false;
  }
  return true;
}

namespace {

std::string show(DType type, const void *data, int64_t i) {
  char text[96];
  double v = loadElement(data, type, i);
  if (isFloat(type)) {
    uint64_t bits = 0;
    std::memcpy(&bits, static_cast<const char *>(data) + i * static_cast<int64_t>(dtypeSize(type)), dtypeSize(type));
    std::snprintf(text, sizeof text, "%.9g (0x%llx)", v, static_cast<unsigned long long>(bits));
  } else {
    std::snprintf(text, sizeof text, "%lld", static_cast<long long>(loadInteger(data, type, i)));
  }
  return text;
}

bool sameElement(DType type, const std::byte *a, const std::byte *b, int64_t i) {
  const size_t size = dtypeSize(type), at = static_cast<size_t>(i) * size;
  if (std::memcmp(a + at, b + at, size) == 0)
    return true;
  return isFloat(type) && std::isnan(loadElement(a, type, i)) && std::isnan(loadElement(b, type, i));
}

/// An exact result within the format's bounds of the device's.
bool closeEnough(OpKind op, DType type, const HostTensor &want, const HostTensor &got, int64_t i,
                 const HostTensor &operand) {
  const size_t at = static_cast<size_t>(i) * dtypeSize(type);
  const std::byte *w = want.data.data() + at, *g = got.data.data() + at;
  double wanted = loadElement(w, type, 0), given = loadElement(g, type, 0);
  if (std::isnan(wanted) || std::isnan(given))
    return std::isnan(wanted) && std::isnan(given);
  if (std::llabs(ordinal(type, w) - ordinal(type, g)) <= (type == DType::F32 ? kUlps : 1))
    return true;
  if (type == DType::F32 && std::fabs(wanted) < 0x1p-126 && given == 0)
    return true; // a flushed result
  if ((op == OpKind::Sin || op == OpKind::Cos) &&
      std::fabs(loadElement(operand.data.data(), operand.type.dtype, i)) > 8192)
    return std::fabs(given - wanted) <=
           1e-4 * std::fabs(wanted) + (type == DType::F32 ? 0 : std::fabs(wanted) * 0x1p-7);
  return false;
}

constexpr int64_t kChunk = 1031; ///< of a function's own graph: whole vectors and a tail

/// x as a flat tensor of the shape's elements.
Result<HostTensor> spread(const HostTensor &x, const std::vector<int64_t> &shape) {
  Graph g;
  g.values.push_back({Value::Input, "x", x.type, kNone, 0});
  g.values.push_back({Value::Result, "y", {x.type.dtype, shape}, 0, 0});
  Node node;
  node.op = OpKind::Expand;
  node.inputs = {{0, {}}};
  node.outputs = {1};
  node.attrs.shape = shape;
  g.nodes.push_back(node);
  g.inputs = {0};
  g.outputs = {1};
  RL_ASSIGN(std::vector<HostTensor> out, interpret(g, {x}, {}));
  out[0].type.shape = {out[0].type.elements()};
  return std::move(out[0]);
}

} // namespace

Result<HostTensor> Oracle::onDevice(const Graph &graph, NodeId id, const std::vector<const HostTensor *> &operands) {
  const Node &node = graph.nodes[id];
  const TensorType &type = graph.type(node.outputs[0]);
  RL_ASSIGN(HostTensor want, evaluateNode(graph, id, operands));
  GraphSpec spec;
  spec.name = "function";
  spec.strict = graph.strict;
  NodeSpec n;
  n.op = opInfo(node.op).name;
  n.outputs = {"y"};
  if (node.op == OpKind::Gelu)
    n.attrs["approximate"] = std::string(node.attrs.tanhApproximation ? "tanh" : "none");
  std::string key = n.op + (node.attrs.tanhApproximation ? "/tanh" : "") + (graph.strict ? "/strict" : "");
  std::vector<HostTensor> flat;
  for (size_t k = 0; k < node.inputs.size(); ++k) {
    if (node.inputs[k].isLiteral()) {
      const Scalar &s = node.inputs[k].literal;
      n.inputs.push_back({{}, s});
      char text[64];
      std::snprintf(text, sizeof text, " %d:%a", s.kind, s.asDouble());
      key += text;
      continue;
    }
    std::string name = "x" + std::to_string(k);
    n.inputs.push_back({name, {}});
    spec.inputs.push_back({name, operands[k]->type.dtype, {{kChunk, {}}}});
    key += std::string(" ") + dtypeName(operands[k]->type.dtype);
    RL_ASSIGN(HostTensor x, spread(*operands[k], type.shape));
    flat.push_back(std::move(x));
  }
  spec.nodes = {n};
  spec.outputs = {"y"};
  HostTensor got;
  got.type = type;
  if (flat.empty()) { // of literals alone
    spec.nodes[0] = n;
    RL_ASSIGN(std::unique_ptr<Module> module, device.compile(spec));
    RL_ASSIGN(std::vector<HostTensor> y, device.run(*module, {}, {}, false));
    got.data = y[0].data;
  } else {
    std::unique_ptr<Module> &module = functions[key];
    if (!module) {
      RL_ASSIGN(module, device.compile(spec));
    }
    const int64_t elements = type.elements();
    for (int64_t at = 0; at < elements; at += kChunk) {
      int64_t count = std::min(kChunk, elements - at);
      std::vector<HostTensor> inputs;
      for (const HostTensor &x : flat) {
        const size_t size = dtypeSize(x.type.dtype);
        HostTensor piece{{x.type.dtype, {kChunk}}, {}};
        piece.data.resize(static_cast<size_t>(kChunk) * size);
        std::memcpy(piece.data.data(), x.data.data() + static_cast<size_t>(at) * size,
                    static_cast<size_t>(count) * size);
        inputs.push_back(std::move(piece));
      }
      RL_ASSIGN(std::vector<HostTensor> y, device.run(*module, inputs, {}, false));
      got.data.insert(got.data.end(), y[0].data.begin(),
                      y[0].data.begin() +
                          static_cast<std::ptrdiff_t>(static_cast<size_t>(count) * dtypeSize(type.dtype)));
    }
  }
  for (int64_t i = 0; i < type.elements(); ++i)
    if (!closeEnough(node.op, type.dtype, want, got, i, flat.empty() ? want : flat[0])) {
      std::string of;
      for (const HostTensor &x : flat)
        of += (of.empty() ? "" : ", ") + show(x.type.dtype, x.data.data(), i);
      return deviceError("the function '" + key + "' of " + of + " is " + show(type.dtype, got.data.data(), i) +
                         ", not " + show(type.dtype, want.data.data(), i));
    }
  return got;
}

Result<std::vector<Expected>> Oracle::expect(const Graph &graph, const Case &data) {
  if (!isDetermined(graph))
    return evaluateRanges(graph, data);
  std::vector<HostTensor> held(graph.values.size());
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    held[graph.inputs[i]] = data.inputs[i];
  for (size_t i = 0; i < graph.parameters.size(); ++i)
    held[graph.parameters[i]] = data.parameters[i];
  for (NodeId n = 0; n < graph.nodes.size(); ++n) {
    const Node &node = graph.nodes[n];
    std::vector<const HostTensor *> operands;
    for (const Operand &o : node.inputs)
      operands.push_back(o.isLiteral() ? nullptr : &held[o.value]);
    if (isTranscendental(node.op) && isFloat(graph.type(node.outputs[0]).dtype)) {
      RL_ASSIGN(held[node.outputs[0]], onDevice(graph, n, operands));
    } else {
      RL_ASSIGN(held[node.outputs[0]], evaluateNode(graph, n, operands));
    }
  }
  std::vector<Expected> out;
  for (ValueId v : graph.outputs) {
    Expected e;
    e.type = graph.type(v);
    e.lo = held[v];
    out.push_back(std::move(e));
  }
  return out;
}

Result<std::vector<Expected>> Oracle::expectBounds(const Graph &graph, const Case &data) {
  return evaluateRanges(graph, data);
}

std::string mismatch(const Expected &want, const HostTensor &got) {
  if (got.type != want.type)
    return "the result is " + str(got.type) + ", not " + str(want.type);
  const DType type = want.type.dtype;
  int64_t wrong = 0, first = -1;
  std::string text;
  for (int64_t i = 0; i < want.type.elements(); ++i) {
    bool fine;
    if (want.exact) {
      fine = sameElement(type, want.lo.data.data(), got.data.data(), i);
    } else if (isFloat(type)) {
      auto lo = static_cast<float>(loadElement(want.lo.data.data(), DType::F32, i));
      auto hi = static_cast<float>(loadElement(want.hi.data.data(), DType::F32, i));
      if (!isF8(type)) // an output is rounded at the latest when it is stored
        lo = roundedTo(type, lo), hi = roundedTo(type, hi);
      auto g = static_cast<float>(loadElement(got.data.data(), type, i));
      if (std::isnan(g))
        fine = want.mayBeNan[static_cast<size_t>(i)] != 0;
      else if (std::bit_cast<uint32_t>(lo) == std::bit_cast<uint32_t>(hi))
        fine = std::bit_cast<uint32_t>(g) == std::bit_cast<uint32_t>(lo);
      else
        fine = lo <= g && g <= hi;
    } else {
      int64_t g = loadInteger(got.data.data(), type, i);
      fine = loadInteger(want.lo.data.data(), type, i) <= g && g <= loadInteger(want.hi.data.data(), type, i);
      if (type == DType::Bool) // the byte must be 0 or 1
        fine &= std::to_integer<int>(got.data[static_cast<size_t>(i)]) <= 1;
    }
    if (fine)
      continue;
    if (first < 0) {
      first = i;
      text = "element " + std::to_string(i) + " is " + show(type, got.data.data(), i) + ", not ";
      if (want.exact)
        text += show(type, want.lo.data.data(), i);
      else
        text += show(isFloat(type) ? DType::F32 : type, want.lo.data.data(), i) + " .. " +
                show(isFloat(type) ? DType::F32 : type, want.hi.data.data(), i) +
                (want.mayBeNan[static_cast<size_t>(i)] ? " or NaN" : "");
    }
    ++wrong;
  }
  if (!wrong)
    return {};
  return text + "; " + std::to_string(wrong) + " of " + std::to_string(want.type.elements()) + " elements differ";
}

} // namespace rl::numeric
