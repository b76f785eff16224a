// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Made-up tensors.
#include "frontend/cli/Random.h"
#include "ir/interp/Convert.h"

#include <algorithm>
#include <cmath>
#include <thread>

namespace rl::cli {
namespace {

void narrow(Demand &to, const Demand &by) {
  to.limit = std::min(to.limit, by.limit);
  to.positive |= by.positive;
  to.scale = std::min(to.scale, by.scale);
}

/// Adds what a node asks of its operands: of its own, and what its results are asked for.
void ask(const Graph &graph, const Node &node, std::vector<Demand> &all) {
  auto operand = [&](size_t i, const Demand &demand) {
    if (i < node.inputs.size() && !node.inputs[i].isLiteral())
      narrow(all[node.inputs[i].value], demand);
  };
  auto extent = [&](size_t i, int64_t dim) -> int64_t {
    if (i >= node.inputs.size() || node.inputs[i].isLiteral())
      return INT64_MAX;
    const auto &shape = graph.type(node.inputs[i].value).shape;
    return dim >= 0 && dim < static_cast<int64_t>(shape.size()) ? shape[static_cast<size_t>(dim)] : INT64_MAX;
  };
  // Codes that are given are as they are; those that a graph makes are of weights that are asked for as if they were multiplied themselves.
  auto isComputed = [&](size_t i) {
    return !node.inputs[i].isLiteral() && graph.values[node.inputs[i].value].kind == Value::Result;
  };
  auto weight = [](int64_t K) {
    return Demand{INT64_MAX, false, K == INT64_MAX || K < 1 ? 1 : 1 / std::sqrt(static_cast<float>(K))};
  };
  const Demand positive{INT64_MAX, true};
  Demand result;
  for (ValueId v : node.outputs)
    narrow(result, all[v]);
  const Demand sign{INT64_MAX, result.positive};

  switch (node.op) {
  case OpKind::Embedding: operand(1, {extent(0, 0), false}); break;
  case OpKind::IndexSelect:
  case OpKind::Gather:
    operand(1, {extent(0, node.attrs.dim), false});
    operand(0, result);
    break;
  case OpKind::CrossEntropy: operand(1, {extent(0, 1), false}); break;
  case OpKind::Sqrt:
  case OpKind::Rsqrt:
  case OpKind::Log:
  case OpKind::Log2:
  case OpKind::Pow: operand(0, positive); break;
  case OpKind::Quantize:
  case OpKind::FakeQuantize:
  case OpKind::Dequantize:
    if (node.op == OpKind::Quantize || isComputed(0))
      operand(0, all[node.outputs[0]]); // its scale asks for nothing
    operand(1, positive);
    break;
  case OpKind::Matmul:
  case OpKind::Linear: {
    const bool along = node.op == OpKind::Linear || node.attrs.transposeB;
    const int64_t rank =
        node.inputs[1].isLiteral() ? 0 : static_cast<int64_t>(graph.type(node.inputs[1].value).shape.size());
    const int64_t K = extent(1, along || rank == 1 ? rank - 1 : rank - 2);
    operand(1, weight(K));
    break;
  }
  case OpKind::ScaledMatmul:
    if (isComputed(1)) {
      const int64_t rank = static_cast<int64_t>(graph.type(node.inputs[1].value).shape.size());
      operand(1, weight(extent(1, node.attrs.transposeB ? rank - 1 : rank - 2)));
    }
    operand(2, positive);
    operand(3, positive);
    break;
  case OpKind::Cast:
  case OpKind::Reshape:
  case OpKind::Permute:
  case OpKind::Expand:
  case OpKind::Unsqueeze:
  case OpKind::Squeeze:
  case OpKind::Slice:
  case OpKind::Flip:
  case OpKind::Pad:
  case OpKind::Cat:
    for (size_t i = 0; i < node.inputs.size(); ++i)
      operand(i, result);
    break;
  case OpKind::Where:
    operand(1, result);
    operand(2, result);
    break;
  case OpKind::Mul:
  case OpKind::Div:
  case OpKind::Add:
  case OpKind::Maximum:
    // A square is positive whatever its operand; two different factors are both asked to be.
    if (node.inputs[0].isLiteral() || node.inputs[1].isLiteral() || node.inputs[0].value != node.inputs[1].value ||
        node.op == OpKind::Add) {
      operand(0, sign);
      operand(1, sign);
    }
    break;
  case OpKind::Sum:
  case OpKind::Mean:
  case OpKind::Prod:
  case OpKind::Amax:
  case OpKind::Amin: operand(0, sign); break;
  default: break;
  }
}

uint64_t mix(uint64_t z) { // the finaliser of SplitMix64
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

uint64_t streamOf(const std::string &name, uint64_t seed) {
  uint64_t hash = 0xcbf29ce484222325u; // FNV-1a
  for (char c : name)
    hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3u;
  return mix(hash + mix(seed + 0x9e3779b97f4a7c15u));
}

uint64_t bitsAt(uint64_t stream, int64_t i) { return mix(stream + static_cast<uint64_t>(i + 1) * 0x9e3779b97f4a7c15u); }

/// Four uniform 16-bit numbers have the variance 4 (2^32 - 1) / 12, hence the factor sqrt(3) / 2^16.
float normalish(uint64_t bits) {
  auto sum = static_cast<int32_t>((bits & 0xffff) + (bits >> 16 & 0xffff) + (bits >> 32 & 0xffff) + (bits >> 48));
  return static_cast<float>(sum - 2 * 0xffff) * (1.7320508f / 65536.0f);
}

/// Uniform in [0, count): the high half of a 128-bit product.
int64_t uniform(uint64_t bits, int64_t count) {
  return static_cast<int64_t>(static_cast<unsigned __int128>(bits) * static_cast<uint64_t>(count) >> 64);
}

template <class T, class Make> void each(void *data, int64_t begin, int64_t end, Make make) {
  T *out = static_cast<T *>(data);
  for (int64_t i = begin; i < end; ++i)
    out[i] = static_cast<T>(make(i));
}

void fillRange(void *data, DType dtype, uint64_t stream, const Demand &demand, int64_t begin, int64_t end) {
  auto real = [&](int64_t i) {
    float v = normalish(bitsAt(stream, i)) * demand.scale;
    return demand.positive ? std::fabs(v) + 1.0f / 64 : v;
  };
  auto whole = [&](int64_t low, int64_t count) {
    return [=](int64_t i) { return low + uniform(bitsAt(stream, i), count); };
  };
  int64_t least = -8, count = 17;
  if (demand.limit != INT64_MAX) {
    least = 0;
    count = std::max<int64_t>(demand.limit, 1);
  }
  switch (dtype) {
  case DType::F32: return each<float>(data, begin, end, real);
  case DType::F16: return each<uint16_t>(data, begin, end, [&](int64_t i) { return f32ToF16(real(i)); });
  case DType::BF16: return each<uint16_t>(data, begin, end, [&](int64_t i) { return f32ToBf16(real(i)); });
  case DType::F8E4M3: return each<uint8_t>(data, begin, end, [&](int64_t i) { return f32ToF8e4m3(real(i), true); });
  case DType::F8E5M2: return each<uint8_t>(data, begin, end, [&](int64_t i) { return f32ToF8e5m2(real(i), true); });
  case DType::F8E8M0: return each<uint8_t>(data, begin, end, whole(124, 7));
  case DType::I8: return each<int8_t>(data, begin, end, whole(least, std::min<int64_t>(count, 128)));
  case DType::U8: return each<uint8_t>(data, begin, end, whole(0, std::min<int64_t>(count, 256)));
  case DType::I32: return each<int32_t>(data, begin, end, whole(least, std::min<int64_t>(count, INT32_MAX)));
  case DType::I64: return each<int64_t>(data, begin, end, whole(least, count));
  case DType::Bool: return each<uint8_t>(data, begin, end, whole(0, 2));
  }
}

} // namespace

std::vector<Demand> demands(const Graph &graph) {
  std::vector<Demand> all(graph.values.size());
  for (size_t n = graph.nodes.size(); n-- > 0;)
    ask(graph, graph.nodes[n], all);
  return all;
}

void fillRandom(void *data, const TensorType &type, const std::string &name, uint64_t seed, const Demand &demand) {
  const int64_t elements = type.elements();
  const uint64_t stream = streamOf(name, seed);
  int64_t parts = std::clamp<int64_t>(elements >> 20, 1, std::max(1u, std::thread::hardware_concurrency()));
  std::vector<std::thread> threads;
  int64_t done = 0;
  for (int64_t p = 1; p < parts; ++p) {
    int64_t end = elements / parts * p;
    try {
      threads.emplace_back(fillRange, data, type.dtype, stream, demand, done, end);
    } catch (...) { // no more threads to be had: this one does the rest
      break;
    }
    done = end;
  }
  fillRange(data, type.dtype, stream, demand, done, elements);
  for (std::thread &t : threads)
    t.join();
}

} // namespace rl::cli
