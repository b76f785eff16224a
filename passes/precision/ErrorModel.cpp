// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/precision/ErrorModel.h"

#include <algorithm>
#include <cmath>

namespace rl {

double unitRoundoff(DType t) {
  switch (t) {
  case DType::F32: return 0x1p-24;
  case DType::F16: return 0x1p-11;
  case DType::BF16: return 0x1p-8;
  case DType::F8E4M3: return 0x1p-4;
  case DType::F8E5M2: return 0x1p-3;
  default: return 0;
  }
}

double roundingError(DType t, int64_t group, bool tails) {
  if (t == DType::I8) {
    // The expected largest magnitude of n normal numbers is close to sqrt(2 ln 2n), from below. Activations of trained networks have
    // features up to 20 times as large as others (Dettmers et al., "LLM.int8()", 2022); no crest is above sqrt(n).
    double n = static_cast<double>(std::max<int64_t>(group, 2));
    double crest = tails ? std::min(20.0, std::sqrt(n)) : std::sqrt(2 * std::log(2 * n));
    return crest / (127 * std::sqrt(12.0));
  }
  // Within a step errors have the rms u 2^e / sqrt(3); over mantissas m with density 1 / (m ln 2) the mean of 1 / m^2 is
  // 3 / (8 ln 2).
  return unitRoundoff(t) / std::sqrt(3.0) * std::sqrt(3 / (8 * std::log(2.0)));
}

std::vector<char> onParametersAlone(const Graph &g) {
  std::vector<char> out(g.values.size(), 0);
  for (ValueId v : g.parameters)
    out[v] = 1;
  for (const Node &n : g.nodes) {
    char all = 1;
    for (const Operand &o : n.inputs)
      all &= o.isLiteral() || out[o.value];
    for (ValueId v : n.outputs)
      out[v] = all;
  }
  return out;
}

namespace {

double square(double v) { return v * v; }

/// Where any error may change the result by as much as it is: steps, and what is near a pole.
constexpr double kUnbounded = 1e12;

bool hasSteps(OpKind op) {
  switch (op) {
  case OpKind::Floor:
  case OpKind::Ceil:
  case OpKind::Round:
  case OpKind::Trunc:
  case OpKind::Sign:
  case OpKind::FloorDivide:
  case OpKind::Remainder:
  case OpKind::Fmod: return true;
  default: return false;
  }
}

/// Of what kind a number is does not depend on how it was rounded.
bool asksForKind(OpKind op) { return op == OpKind::IsNan || op == OpKind::IsInf || op == OpKind::IsFinite; }

/// Size of f(x), and the factor from x's relative error to that of f(x), for normal x of this size.
struct Moments {
  double size, gain;
};
template <class F> Moments moments(F f, double size) {
  // Tails of large arguments mean nothing: what they are in a graph was not 1 at its inputs.
  size = std::clamp(size, 1e-6, 8.0);
  double weights = 0, values = 0, slopes = 0;
  for (double z = -5; z <= 5; z += 0.05) {
    double x = z * size, h = 1e-4 * size, w = std::exp(-z * z / 2);
    double slope = (f(x + h) - f(x - h)) / (2 * h);
    weights += w;
    values += w * square(f(x));
    slopes += w * square(x * slope);
  }
  if (values <= 0)
    return {0, 0};
  return {std::sqrt(values / weights), std::sqrt(slopes / values)};
}

/// Functions of one operand; roots and logarithms of its magnitude, kept away from 0 where they are steep.
Moments unaryMoments(const Node &n, double size) {
  auto magnitude = [&](double x) { return std::max(std::fabs(x), size / 8); };
  switch (n.op) {
  case OpKind::Exp: return moments([](double x) { return std::exp(x); }, size);
  case OpKind::Exp2: return moments([](double x) { return std::exp2(x); }, size);
  case OpKind::Expm1: return moments([](double x) { return std::expm1(x); }, size);
  case OpKind::Log: return moments([&](double x) { return std::log(magnitude(x)); }, size);
  case OpKind::Log2: return moments([&](double x) { return std::log2(magnitude(x)); }, size);
  case OpKind::Log1p: return moments([](double x) { return std::log1p(std::fabs(x)); }, size);
  case OpKind::Sqrt: return {std::sqrt(size), 0.5};
  case OpKind::Rsqrt: return {1 / std::sqrt(size), 0.5};
  case OpKind::Reciprocal: return {1 / size, 1};
  case OpKind::Square: return {square(size), 2};
  case OpKind::Sin: return moments([](double x) { return std::sin(x); }, size);
  case OpKind::Cos: return moments([](double x) { return std::cos(x); }, size);
  case OpKind::Tanh: return moments([](double x) { return std::tanh(x); }, size);
  case OpKind::Sigmoid: return moments([](double x) { return 1 / (1 + std::exp(-x)); }, size);
  case OpKind::Erf: return moments([](double x) { return std::erf(x); }, size);
  case OpKind::Relu: return moments([](double x) { return std::max(x, 0.0); }, size);
  case OpKind::Silu: return moments([](double x) { return x / (1 + std::exp(-x)); }, size);
  case OpKind::Gelu: return moments([](double x) { return x / 2 * std::erfc(-x / std::sqrt(2.0)); }, size);
  case OpKind::Softplus: return moments([](double x) { return std::log1p(std::exp(x)); }, size);
  case OpKind::Sign: return {1, 0};
  default: return {size, 1};
  }
}

bool makesPositive(OpKind op) {
  switch (op) {
  case OpKind::Abs:
  case OpKind::Square:
  case OpKind::Exp:
  case OpKind::Exp2:
  case OpKind::Sqrt:
  case OpKind::Rsqrt:
  case OpKind::Sigmoid:
  case OpKind::Relu:
  case OpKind::Softplus:
  case OpKind::Softmax: return true;
  default: return false;
  }
}

} // namespace

ErrorModel::ErrorModel(const Graph &g)
    : sizes(g.values.size(), 1), positive(g.values.size(), 0), constant(onParametersAlone(g)), factors(g.nodes.size()) {
  for (NodeId n = 0; n < g.nodes.size(); ++n) {
    propagate(g, n);
    for (ValueId v : g.nodes[n].outputs)
      sizes[v] = std::clamp(sizes[v], 1e-9, 1e9);
  }
  for (ValueId output : g.outputs) {
    std::vector<double> &gain = gains.emplace_back(g.values.size(), 0.0);
    const auto observed = g.precision.observed.find(g.values[output].name);
    const double factor = kAllowance * (observed == g.precision.observed.end() ? 1 : observed->second);
    gain[output] = factor * factor;
    for (NodeId n = static_cast<NodeId>(g.nodes.size()); n-- > 0;) {
      const Node &node = g.nodes[n];
      double at = gain[node.outputs[0]];
      if (at > 0)
        for (size_t i = 0; i < node.inputs.size(); ++i)
          if (!node.inputs[i].isLiteral())
            gain[node.inputs[i].value] += at * factors[n][i];
    }
  }
}

double ErrorModel::greatestGain(ValueId v) const {
  double most = 0;
  for (const std::vector<double> &gain : gains)
    most = std::max(most, gain[v]);
  return most;
}

void ErrorModel::propagate(const Graph &g, NodeId id) {
  const Node &n = g.nodes[id];
  std::vector<double> &c = factors[id];
  c.assign(n.inputs.size(), 1);
  auto sizeOf = [&](size_t i) {
    const Operand &o = n.inputs[i];
    return o.isLiteral() ? std::fabs(o.literal.asDouble()) : sizes[o.value];
  };
  auto extent = [&](ValueId v, int64_t fromEnd) {
    const std::vector<int64_t> &s = g.type(v).shape;
    return static_cast<int64_t>(s.size()) < fromEnd
               ? 1.0
               : static_cast<double>(std::max<int64_t>(1, s[s.size() - static_cast<size_t>(fromEnd)]));
  };
  double &size = sizes[n.outputs[0]];
  char &above = positive[n.outputs[0]];
  auto isPositive = [&](size_t i) {
    return n.inputs[i].isLiteral() ? n.inputs[i].literal.asDouble() >= 0 : positive[n.inputs[i].value] != 0;
  };
  auto isFloatAt = [&](size_t i) { return !n.inputs[i].isLiteral() && isFloat(g.type(n.inputs[i].value).dtype); };
  // Integers and truth values of floats: right, or wrong by any amount. Of others: as wrong as those are.
  if (!isFloat(g.type(n.outputs[0]).dtype) && opInfo(n.op).cls != OpClass::Quant) {
    for (size_t i = 0; i < c.size(); ++i)
      c[i] = asksForKind(n.op) ? 0 : isFloatAt(i) ? kUnbounded : 1;
    return;
  }
  above = makesPositive(n.op);
  switch (opInfo(n.op).cls) {
  case OpClass::Unary: {
    Moments m = unaryMoments(n, sizeOf(0));
    size = m.size;
    c[0] = square(m.gain);
    if (hasSteps(n.op) || (n.op == OpKind::Reciprocal && !isPositive(0)))
      c[0] = kUnbounded;
    above |= (n.op == OpKind::Cast || n.op == OpKind::Clamp) && isPositive(0);
    return;
  }
  case OpClass::Binary: {
    double a = sizeOf(0), b = sizeOf(1);
    bool same = !n.inputs[0].isLiteral() && !n.inputs[1].isLiteral() && n.inputs[0].value == n.inputs[1].value;
    above = (isPositive(0) && isPositive(1) && n.op != OpKind::Sub) || (same && n.op == OpKind::Mul);
    switch (n.op) {
    case OpKind::Add:
    case OpKind::Sub: {
      double sum = a * a + b * b;
      size = std::sqrt(sum);
      c[0] = sum > 0 ? a * a / sum : 1;
      c[1] = sum > 0 ? b * b / sum : 1;
      return;
    }
    case OpKind::Mul:
      size = a * b;
      if (same) // the same error twice
        c[0] = c[1] = 2;
      return;
    case OpKind::Div:
      size = b > 0 ? a / b : a;
      if (!isPositive(1))
        c[1] = kUnbounded;
      return;
    case OpKind::Pow:
      if (n.inputs[1].isLiteral()) {
        size = std::pow(a, n.inputs[1].literal.asDouble());
        c[0] = square(n.inputs[1].literal.asDouble());
        above |= std::fmod(n.inputs[1].literal.asDouble(), 2) == 0;
      }
      return;
    default:
      size = std::max(a, b);
      if (hasSteps(n.op))
        c[0] = c[1] = kUnbounded;
      return;
    }
  }
  case OpClass::Ternary: // a condition that is wrong takes the other value
    size = std::max(sizeOf(1), sizeOf(2));
    above = isPositive(1) && isPositive(2);
    return;
  case OpClass::Shape: {
    size = 0;
    above = !n.inputs.empty();
    for (size_t i = 0; i < n.inputs.size(); ++i) {
      size = std::max(size, sizeOf(i));
      above &= isPositive(i);
    }
    // The parts of a whole have each their share of it.
    double whole = static_cast<double>(std::max<int64_t>(1, g.type(n.outputs[0]).elements()));
    if (n.op == OpKind::Cat)
      for (size_t i = 0; i < n.inputs.size(); ++i)
        c[i] = n.inputs[i].isLiteral() ? 0 : static_cast<double>(g.type(n.inputs[i].value).elements()) / whole;
    return;
  }
  case OpClass::Creation:
    size = n.op == OpKind::Full ? std::fabs(n.attrs.value.asDouble())
                                : std::max(1.0, extent(n.outputs[0], g.type(n.outputs[0]).rank() - n.attrs.dim)) / 2;
    return;
  case OpClass::Reduction: {
    double elements = static_cast<double>(g.type(n.inputs[0].value).elements());
    double count = std::max(1.0, elements / static_cast<double>(std::max<int64_t>(1, g.type(n.outputs[0]).elements())));
    double tail = std::sqrt(2 * std::log(2 * count));
    above = isPositive(0) || n.op == OpKind::Var;
    switch (n.op) {
    case OpKind::Sum:
    case OpKind::Mean:
      // What does not cancel grows with the count, its errors with the root.
      size = sizeOf(0) * (isPositive(0) ? count : std::sqrt(count)) / (n.op == OpKind::Mean ? count : 1);
      c[0] = isPositive(0) ? 1 / count : 1;
      return;
    case OpKind::Var:
      size = square(sizeOf(0));
      c[0] = 4 / count;
      return;
    case OpKind::Prod: c[0] = count; return;
    case OpKind::LogSumExp:
      size = std::log(count) + sizeOf(0);
      c[0] = square(sizeOf(0) / size);
      return;
    default: size = sizeOf(0) * std::max(1.0, tail); return;
    }
  }
  case OpClass::Norm:
    switch (n.op) {
    case OpKind::Softmax: c[0] = square(sizeOf(0)); return;
    case OpKind::LogSoftmax: {
      const std::vector<int64_t> &s = g.type(n.outputs[0]).shape;
      size = std::log(static_cast<double>(std::max<int64_t>(2, s[static_cast<size_t>(n.attrs.dim)]))) + sizeOf(0);
      c[0] = square(sizeOf(0) / size);
      return;
    }
    default: // a weight scales, a bias adds
      size = n.attrs.hasWeight ? sizeOf(1) : 1;
      return;
    }
  case OpClass::Matrix:
    // A weight, or rows of probabilities, keep the size of the other operand.
    if (isPositive(0))
      size = sizeOf(1);
    else if (n.op == OpKind::Linear || constant[n.inputs[1].value])
      size = sizeOf(0);
    else if (constant[n.inputs[0].value])
      size = sizeOf(1);
    else
      size = sizeOf(0) * sizeOf(1) * std::sqrt(extent(n.inputs[0].value, 1));
    return;
  case OpClass::Attention: {
    double depth = extent(n.inputs[0].value, 1), keys = extent(n.inputs[1].value, 2);
    double scores = sizeOf(0) * sizeOf(1) * std::sqrt(depth) * n.attrs.scale.value_or(1 / std::sqrt(depth));
    size = sizeOf(2);
    c[0] = c[1] = square(scores) * (1 - 1 / keys); // one key has all the weight, whatever its score
    if (n.inputs.size() > 3)
      c[3] = 0;
    return;
  }
  case OpClass::Loss: {
    double classes = extent(n.inputs[0].value, 1);
    size = std::log(std::max(2.0, classes)) + sizeOf(0);
    c = {square(sizeOf(0) / size), 0};
    return;
  }
  case OpClass::Indexing: // an index that is wrong picks another element
    size = sizeOf(0);
    return;
  case OpClass::Quant:
    size = sizeOf(0);
    above = isPositive(0);
    // The scale of a dequantised tensor counts; what quantises finds it from the values.
    for (size_t i = 1; i < c.size(); ++i)
      c[i] = n.op == OpKind::Dequantize && i == 1 ? 1 : 0;
    if (n.op == OpKind::ScaledMatmul)
      c = {1, 1, 1, 1};
    return;
  }
}

} // namespace rl
