// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Runs a graph node by node: loads storage types into the form that the kernels compute on, evaluates, rounds where the
// numerics ask for it, frees what no later node reads, and stores the outputs.
#include "ir/interp/Interpreter.h"

#include "ir/interp/Convert.h"
#include "ir/interp/Tensor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <new>
#include <stdexcept>

namespace rl {
namespace {

using interp::Call;
using interp::Tensor;

template <class Stored, class Held, class F> void convertAll(const void *from, std::vector<Held> &to, F f) {
  const char *bytes = static_cast<const char *>(from);
  for (size_t e = 0; e < to.size(); ++e) {
    Stored stored;
    std::memcpy(&stored, bytes + e * sizeof(Stored), sizeof(Stored));
    to[e] = f(stored);
  }
}

Tensor load(const HostTensor &host) {
  Tensor t(host.type);
  const void *data = host.data.data();
  switch (host.type.dtype) {
  case DType::F32: convertAll<float>(data, t.f, [](float v) { return v; }); break;
  case DType::F16: convertAll<uint16_t>(data, t.f, f16ToF32); break;
  case DType::BF16: convertAll<uint16_t>(data, t.f, bf16ToF32); break;
  case DType::F8E4M3:
  case DType::F8E5M2:
  case DType::F8E8M0: convertAll<uint8_t>(data, t.codes, [](uint8_t v) { return v; }); break;
  default:
    for (size_t e = 0; e < t.i.size(); ++e)
      t.i[e] = loadInteger(data, host.type.dtype, static_cast<int64_t>(e));
  }
  return t;
}

HostTensor store(const Tensor &t) {
  HostTensor host;
  host.type = {t.dtype, t.shape};
  host.data.resize(static_cast<size_t>(host.type.bytes()));
  void *data = host.data.data();
  auto each = [&](const auto &values, auto narrow) {
    char *bytes = static_cast<char *>(data);
    for (auto v : values) {
      auto stored = narrow(v);
      std::memcpy(bytes, &stored, sizeof stored);
      bytes += sizeof stored;
    }
  };
  switch (t.dtype) {
  case DType::F32: each(t.f, [](float v) { return v; }); break;
  case DType::F16: each(t.f, f32ToF16); break;
  case DType::BF16: each(t.f, f32ToBf16); break;
  case DType::F8E4M3:
  case DType::F8E5M2:
  case DType::F8E8M0: each(t.codes, [](uint8_t v) { return v; }); break;
  default:
    for (size_t e = 0; e < t.i.size(); ++e)
      storeInteger(data, t.dtype, static_cast<int64_t>(e), t.i[e]);
  }
  return host;
}

Tensor literal(const Scalar &s) {
  Tensor t(TensorType{s.kind == Scalar::Float ? DType::F32 : s.kind == Scalar::Int ? DType::I64 : DType::Bool, {}});
  if (s.kind == Scalar::Float)
    t.f[0] = static_cast<float>(s.f);
  else
    t.i[0] = s.i;
  return t;
}

Status evaluate(Call &c) {
  using namespace interp;
  switch (opInfo(c.node.op).cls) {
  case OpClass::Unary:
    return c.node.op == OpKind::Cast ? evalCast(c) : c.node.op == OpKind::Clamp ? evalClamp(c) : evalUnary(c);
  case OpClass::Binary: return evalBinary(c);
  case OpClass::Ternary: return evalWhere(c);
  case OpClass::Shape:
  case OpClass::Creation: return evalLayout(c);
  case OpClass::Reduction: return evalReduction(c);
  case OpClass::Norm: return evalNorm(c);
  case OpClass::Matrix: return evalMatmul(c);
  case OpClass::Indexing: return evalIndexing(c);
  case OpClass::Attention: return evalAttention(c);
  case OpClass::Loss: return evalLoss(c);
  case OpClass::Quant: return c.node.op == OpKind::ScaledMatmul ? evalScaledMatmul(c) : evalQuant(c);
  }
  return unsupported(c.node.pointer(), "the interpreter does not know this op");
}

/// The interpreter's run of one graph.
class Run {
public:
  Run(const Graph &graph, const std::vector<HostTensor> &inputs, const std::vector<HostTensor> &parameters,
      Intermediates intermediates, uint64_t nudging)
      : graph(graph), inputs(inputs), parameters(parameters), held(graph.values.size()),
        present(graph.values.size(), 0), readers(graph.values.size(), 0), live(graph.nodes.size(), 0),
        keepF32(!graph.strict && (intermediates == Intermediates::KeepF32 ||
                                  (intermediates == Intermediates::Nudged && nudging % 2 == 1))),
        nudged(intermediates == Intermediates::Nudged), nudging(nudging) {}

  Result<std::vector<HostTensor>> operator()(const std::function<void(size_t, size_t)> &progress) {
    RL_TRY(check());
    countReaders();
    size_t total = 0, done = 0;
    for (char l : live)
      total += static_cast<size_t>(l);
    for (NodeId n = 0; n < graph.nodes.size(); ++n) {
      if (!live[n])
        continue;
      RL_TRY(evaluateNode(n));
      if (progress)
        progress(++done, total);
    }
    std::vector<HostTensor> outputs;
    for (ValueId v : graph.outputs) {
      const HostTensor *given = givenTensor(v); // an input returned keeps its bits, NaN payloads included
      outputs.push_back(given ? *given : store(held[v]));
      release(v);
    }
    return outputs;
  }

private:
  const HostTensor *givenTensor(ValueId v) const {
    const Value &value = graph.values[v];
    return value.kind == Value::Input       ? &inputs[value.index]
           : value.kind == Value::Parameter ? &parameters[value.index]
                                            : nullptr;
  }

  Status check() const {
    RL_TRY(checkInterpretable(graph));
    if (inputs.size() != graph.inputs.size() || parameters.size() != graph.parameters.size())
      return usageError("the graph has " + std::to_string(graph.inputs.size()) + " inputs and " +
                        std::to_string(graph.parameters.size()) + " parameters, given were " +
                        std::to_string(inputs.size()) + " and " + std::to_string(parameters.size()));
    for (ValueId v = 0; v < graph.values.size(); ++v) {
      const HostTensor *given = givenTensor(v);
      const Value &value = graph.values[v];
      if (given && (given->type != value.type || given->data.size() != static_cast<size_t>(value.type.bytes())))
        return invalid("/" + value.name, "expected " + str(value.type) + ", got " + str(given->type) + " in " +
                                             std::to_string(given->data.size()) + " bytes");
    }
    return {};
  }

  /// Nodes that no output needs are not run. An output counts as one reader.
  void countReaders() {
    for (ValueId v : graph.outputs)
      ++readers[v];
    for (NodeId n = static_cast<NodeId>(graph.nodes.size()); n-- > 0;) {
      for (ValueId v : graph.nodes[n].outputs)
        live[n] |= readers[v] != 0;
      if (live[n])
        for (const Operand &operand : graph.nodes[n].inputs)
          if (!operand.isLiteral())
            ++readers[operand.value];
    }
  }

  const Tensor &get(ValueId v) {
    if (!present[v]) {
      held[v] = load(*givenTensor(v));
      present[v] = 1;
    }
    return held[v];
  }

  void release(ValueId v) {
    if (--readers[v] == 0) {
      held[v] = Tensor();
      present[v] = 0;
    }
  }

  Status evaluateNode(NodeId id) {
    const Node &node = graph.nodes[id];
    std::vector<Tensor> scalars, pinned;
    scalars.reserve(node.inputs.size());
    pinned.reserve(node.inputs.size());
    const bool pin = node.pin && *node.pin != DType::F32;
    Call call{graph, id, node, {}, {}};
    for (const Operand &operand : node.inputs) {
      if (operand.isLiteral()) {
        scalars.push_back(literal(operand.literal));
        call.in.push_back(&scalars.back());
        continue;
      }
      const Tensor &t = get(operand.value);
      call.in.push_back(&t);
      if (pin && isArithmeticFloat(t.dtype)) {
        pinned.push_back(t);
        interp::roundAll(pinned.back().f, *node.pin);
        call.in.back() = &pinned.back();
      }
    }
    for (ValueId v : node.outputs)
      call.out.emplace_back(graph.type(v));
    const interp::Nudges nudges{nudging, id};
    if (nudged)
      call.nudges = &nudges;
    RL_TRY(evaluate(call));
    for (size_t k = 0; k < node.outputs.size(); ++k) {
      Tensor &result = call.out[k];
      // Before it is rounded, so that it may be rounded the other way.
      if (nudged && isArithmeticFloat(result.dtype) && mayErr(call, pin))
        RL_TRY(nudge(call, nudges, pin ? *node.pin : result.dtype, result));
      if (pin)
        interp::roundAll(result.f, *node.pin);
      if (!keepF32)
        interp::roundAll(result.f, result.dtype);
      if (readers[node.outputs[k]] != 0) {
        held[node.outputs[k]] = std::move(result);
        present[node.outputs[k]] = 1;
      }
    }
    for (const Operand &operand : node.inputs)
      if (!operand.isLiteral())
        release(operand.value);
    return {};
  }

  /// May a result differ from what another order of the same steps gives, or another rounding?
  static bool mayErr(const Call &call, bool pin) {
    using enum OpKind;
    const auto narrowed = [&] { // what may have kept f32 until here
      return call.out[0].dtype != DType::F32 && call.in[0]->dtype != call.out[0].dtype;
    };
    switch (opInfo(call.node.op).cls) {
    case OpClass::Shape:
    case OpClass::Creation:
    case OpClass::Ternary:
    case OpClass::Indexing: return false;
    default: break;
    }
    switch (call.node.op) {
    case Cast: return narrowed() || pin;
    case Abs:
    case Neg:
    case Sign:
    case Relu:
    case Floor:
    case Ceil:
    case Round:
    case Trunc:
    case Clamp:
    case Maximum:
    case Minimum:
    case Amax:
    case Amin: return pin;
    default: return true;
    }
  }

  /// The magnitudes of what the result's elements are the sums of, as far as that is finite, and how many terms they are; empty: it is no sum of others.
  static Result<std::vector<float>> magnitudesOf(const Call &call, const Tensor &result, double &terms) {
    const OpKind op = call.node.op;
    const Tensor &x = *call.in[0];
    std::vector<float> logarithms; // of sums, beside what they are subtracted from or added to
    switch (op) {
    case OpKind::LogSoftmax: // x less logsumexp
      for (size_t i = 0; i < result.f.size(); ++i)
        logarithms.push_back(std::fabs(x.f[i]) + std::fabs(result.f[i]));
      return logarithms;
    case OpKind::LogSumExp: // the greatest and the logarithm of up to n
      for (float v : result.f)
        logarithms.push_back(std::fabs(v) +
                             std::log(static_cast<float>(x.size()) / static_cast<float>(result.f.size())));
      return logarithms;
    case OpKind::CrossEntropy: // logsumexp less a logit
      for (size_t m = 0; m < result.f.size(); ++m)
        if (const int64_t t = call.in[1]->i[m]; t >= 0 && t < x.shape[1])
          logarithms.push_back(std::fabs(x.f[m * static_cast<size_t>(x.shape[1]) + static_cast<size_t>(t)]) +
                               std::fabs(result.f[m]));
        else
          logarithms.push_back(0);
      return logarithms;
    default: break;
    }
    const bool product = op == OpKind::Matmul || op == OpKind::Linear || op == OpKind::ScaledMatmul;
    if ((op != OpKind::Sum && op != OpKind::Mean && !product) || result.f.empty())
      return std::vector<float>();
    if (op == OpKind::ScaledMatmul ? call.in[0]->dtype == DType::I8 && call.in[1]->dtype == DType::I8
                                   : !isFloat(x.dtype))
      return std::vector<float>(); // exact
    std::deque<Tensor> positive;
    Call again{call.graph, call.id, call.node, {}, {}};
    for (const Tensor *t : call.in) {
      positive.push_back(*t);
      for (float &v : positive.back().f)
        v = std::isfinite(v) ? std::fabs(v) : 0;
      for (int64_t &v : positive.back().i)
        v = std::abs(v);
      if (t->dtype != DType::F8E8M0)
        for (uint8_t &code : positive.back().codes)
          code &= 0x7f;
      again.in.push_back(&positive.back());
    }
    again.out.push_back(result);
    RL_TRY(evaluate(again));
    const std::vector<int64_t> &shape = x.shape;
    terms = !product ? static_cast<double>(x.size()) / static_cast<double>(result.f.size())
                     : static_cast<double>(shape[shape.size() - (call.attrs().transposeA && shape.size() > 1 ? 2 : 1)]);
    return std::move(again.out[0].f);
  }

  /// By a few roundings of the result, or of the terms that it is the sum of.
  static Status nudge(const Call &call, const interp::Nudges &nudges, DType type, Tensor &result) {
    double terms = 0;
    RL_ASSIGN(const std::vector<float> magnitudes, magnitudesOf(call, result, terms));
    const double share = interp::Nudges::ofSum(terms);
    // Hardware's short sums of 8-bit floats keep 13 bits of what 32 terms bring to a sum of all, cutting off the rest.
    const bool isShort = call.node.op == OpKind::ScaledMatmul && call.attrs().fastAccumulate;
    for (size_t i = 0; i < result.f.size(); ++i) {
      const double value = result.f[i];
      // Its parts may be infinite, of either sign; a mean's are a sum's.
      const double sum = magnitudes.empty() ? 0 : call.node.op == OpKind::Mean ? magnitudes[i] * terms : magnitudes[i];
      if (sum > std::numeric_limits<float>::max() && nudges.order() >= 2) {
        result.f[i] = std::numeric_limits<float>::quiet_NaN();
        continue;
      }
      double by = interp::Nudges::ofValue(type, value);
      if (!magnitudes.empty())
        by = std::max(by, magnitudes[i] * share);
      if (isShort && !magnitudes.empty())
        by = std::max(by,
                      std::max(std::fabs(value), magnitudes[i] / std::sqrt(terms)) * 0x1p-13 * std::ceil(terms / 32));
      if (std::isfinite(value + by))
        result.f[i] = static_cast<float>(value + std::copysign(by, value) * nudges.at(i));
    }
    return {};
  }

  const Graph &graph;
  const std::vector<HostTensor> &inputs, &parameters;
  std::vector<Tensor> held;
  std::vector<char> present;
  std::vector<size_t> readers; ///< nodes and outputs that are still to read a value
  std::vector<char> live;
  const bool keepF32, nudged;
  const uint64_t nudging;
};

} // namespace

Status checkInterpretable(const Graph &graph) {
  if (graph.gradient)
    return unsupported("/gradient", "the interpreter does not compute gradients");
  if (graph.precision.mode != "keep")
    return unsupported("/precision/mode", "the interpreter keeps every type: precision mode " + graph.precision.mode +
                                              " is not supported");
  for (NodeId n = 0; n < graph.nodes.size(); ++n)
    if (auto pin = graph.nodes[n].pin; pin && !isArithmeticFloat(*pin))
      return unsupported(graph.nodes[n].pointer() + "/precision",
                         graph.describe(n) + ": the interpreter does not pin a node to " + dtypeName(*pin));
  return {};
}

Result<std::vector<HostTensor>> interpret(const Graph &graph, const std::vector<HostTensor> &inputs,
                                          const std::vector<HostTensor> &parameters,
                                          const std::function<void(size_t, size_t)> &progress,
                                          Intermediates intermediates, uint64_t nudging) {
  try {
    return Run(graph, inputs, parameters, intermediates, nudging)(progress);
  } catch (const std::bad_alloc &) {
    return deviceError("not enough memory for the tensors of " + graph.name);
  } catch (const std::length_error &) {
    return deviceError("not enough memory for the tensors of " + graph.name);
  }
}

} // namespace rl
