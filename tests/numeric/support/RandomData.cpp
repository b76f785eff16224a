// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/numeric/support/RandomData.h"

#include "ir/interp/Convert.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace rl::numeric {

std::vector<double> specialValues(DType type) {
  constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  switch (type) {
  case DType::F32:
    return {0.0,
            -0.0,
            1.0,
            -1.0,
            0.5,
            -0.5,
            1.5,
            -1.5,
            2.5,
            -2.5,
            2.0,
            -2.0,
            3.0,
            -3.0,
            7.0,
            -7.0,
            0x1p-149,
            -0x1p-149,
            0x1p-126,
            -0x1p-126,
            0x1.8p-127,
            0x1p23,
            -0x1p23,
            0x1.000002p23,
            0x1p24,
            0x1p31,
            -0x1p31,
            0x1p63,
            -0x1p63,
            0x1.fffffep127,
            -0x1.fffffep127,
            inf,
            -inf,
            nan,
            127.0,
            128.0,
            -128.0,
            -129.0,
            255.0,
            256.0,
            88.5,
            -88.5,
            1e-3f,
            -1e-3f,
            1e30f,
            65504.0,
            65520.0,
            448.0,
            480.0,
            57344.0,
            3.1415927410125732,
            0x1.fffffep30,
            0x1.fffffep62,
            0.99999994,
            1.0000001192092896};
  case DType::F16:
    return {0.0,      -0.0, 1.0,  -1.0,    0.5,      -0.5,    1.5,         -1.5,   2.5,    -2.5,    2.0,
            -3.0,     7.0,  -7.0, 0x1p-24, -0x1p-24, 0x1p-14, 0x1.ffcp-15, 2047.0, 2048.0, -2048.0, 65504.0,
            -65504.0, inf,  -inf, nan,     127.0,    128.0,   -129.0,      256.0,  448.0,  464.0,   0.0999755859375};
  case DType::BF16:
    return {0.0,         -0.0, 1.0,  -1.0,     0.5,       -0.5,     1.5,        -1.5,  2.5,    -2.5,    2.0,
            -3.0,        7.0,  -7.0, 0x1p-133, -0x1p-133, 0x1p-126, 0x1.8p-127, 256.0, 128.0,  -128.0,  0x1.fep127,
            -0x1.fep127, inf,  -inf, nan,      127.0,     -129.0,   448.0,      464.0, 0x1p31, -0x1p63, 0.10009765625};
  case DType::I8: return {0, 1, -1, 2, -2, 3, 7, -7, 100, 127, -127, -128};
  case DType::U8: return {0, 1, 2, 3, 7, 100, 127, 128, 200, 254, 255};
  case DType::I32:
    return {0,   1,    -1,   2,   -2,  3,      7,          -7,           100,           127,
            128, -128, -129, 255, 256, 0x1p24, 0x1p24 + 1, 2147483647.0, -2147483647.0, -2147483648.0};
  case DType::I64: // beyond 2^53 the extremes are added by the caller that writes integers
    return {0,    1,    -1,  2,   -2,         3,      7,       -7,         100,    127,     128,
            -128, -129, 255, 256, 0x1p24 + 1, 0x1p31, -0x1p31, 0x1p32 + 5, 0x1p53, -0x1p62, -0x1p63};
  case DType::Bool: return {0, 1};
  default: {
    std::vector<double> all;
    for (int c = 0; c < 256; ++c) {
      auto code = static_cast<uint8_t>(c);
      all.push_back(loadElement(&code, type, 0));
    }
    return all;
  }
  }
}

HostTensor allCodes(DType type) {
  HostTensor t;
  int64_t n = int64_t{1} << (8 * dtypeSize(type));
  t.type = {type, {n}};
  t.data.resize(static_cast<size_t>(t.type.bytes()));
  for (int64_t i = 0; i < n; ++i)
    std::memcpy(t.data.data() + static_cast<size_t>(i) * dtypeSize(type), &i, dtypeSize(type)); // little endian
  return t;
}

HostTensor normalTensor(const TensorType &type, double deviation, std::mt19937 &bits) {
  HostTensor t{type, {}};
  t.data.resize(static_cast<size_t>(type.bytes()));
  std::normal_distribution<double> normal(0, deviation);
  for (int64_t i = 0; i < type.elements(); ++i)
    storeElement(t.data.data(), type.dtype, i, normal(bits));
  return t;
}

HostTensor randomTensor(Rng &rng, const TensorType &type) {
  HostTensor t;
  t.type = type;
  t.data.resize(static_cast<size_t>(type.bytes()));
  const std::vector<double> special = specialValues(type.dtype);
  // One manner a tensor, so that some tensors are tame enough for what is computed from them to stay finite.
  const int64_t manner = rng.below(6);
  const int specials = manner == 3 ? 60 : manner == 4 ? 0 : 5;
  const size_t size = dtypeSize(type.dtype);
  for (int64_t i = 0; i < type.elements(); ++i) {
    std::byte *at = t.data.data() + static_cast<size_t>(i) * size;
    if (rng.chance(specials)) {
      storeElement(t.data.data(), type.dtype, i, rng.pick(special));
      continue;
    }
    uint64_t bits = rng.bits();
    if (type.dtype == DType::Bool) {
      *at = static_cast<std::byte>(bits & 1);
    } else if (isF8(type.dtype)) {
      *at = static_cast<std::byte>(bits & 0xff);
    } else if (isInteger(type.dtype)) {
      if (manner == 0 || manner == 4)
        storeInteger(t.data.data(), type.dtype, i, rng.range(type.dtype == DType::U8 ? 0 : -9, 9));
      else if (manner == 1) // any magnitude
        storeInteger(t.data.data(), type.dtype, i, static_cast<int64_t>(bits) >> rng.below(64));
      else
        storeInteger(t.data.data(), type.dtype, i, static_cast<int64_t>(bits));
    } else if (manner == 1) { // small integers and halves: many ties and equalities
      storeElement(t.data.data(), type.dtype, i, static_cast<double>(rng.range(-16, 16)) / 2);
    } else if (manner == 2) { // any bits at all
      std::memcpy(at, &bits, size);
    } else if (manner == 5) { // any magnitude
      double v = std::ldexp(1 + rng.unit(), static_cast<int>(rng.range(-30, 30)));
      storeElement(t.data.data(), type.dtype, i, bits & 1 ? v : -v);
    } else {
      storeElement(t.data.data(), type.dtype, i, rng.unit() * 8 - 4);
    }
  }
  return t;
}

HostTensor randomIndices(Rng &rng, const TensorType &type, int64_t extent) {
  HostTensor t{type, std::vector<std::byte>(static_cast<size_t>(type.bytes()))};
  for (int64_t i = 0; i < type.elements(); ++i)
    storeInteger(t.data.data(), type.dtype, i,
                 extent < 1 || rng.chance(5) ? 0
                 : rng.chance(5)             ? extent - 1
                                             : rng.below(extent));
  return t;
}

std::map<std::string, int64_t> indexExtents(const GraphSpec &spec) {
  std::map<std::string, int64_t> out;
  Result<Graph> graph = resolve(spec);
  if (!graph)
    return out;
  for (const Node &n : graph->nodes) {
    bool loss = n.op == OpKind::CrossEntropy;
    if ((opInfo(n.op).cls != OpClass::Indexing && !loss) || n.inputs[0].isLiteral())
      continue;
    const std::vector<int64_t> &shape = graph->type(n.inputs[0].value).shape;
    int64_t extent = shape[loss ? 1 : n.op == OpKind::Embedding ? 0 : static_cast<size_t>(n.attrs.dim)];
    const std::string &name = graph->values[n.inputs[1].value].name;
    auto [it, fresh] = out.try_emplace(name, extent);
    it->second = std::min(it->second, extent);
  }
  return out;
}

Case withRandomData(GraphSpec spec, uint64_t seed) {
  Rng rng(seed * 0x9E3779B97F4A7C15ull + 1);
  const std::map<std::string, int64_t> extents = indexExtents(spec);
  Case out;
  auto make = [&](const std::vector<TensorSpec> &tensors, std::vector<HostTensor> &into) {
    for (const TensorSpec &t : tensors) {
      TensorType type{t.dtype, {}};
      for (const Dim &d : t.shape)
        type.shape.push_back(d.value);
      auto it = extents.find(t.name);
      into.push_back(it == extents.end() ? randomTensor(rng, type) : randomIndices(rng, type, it->second));
    }
  };
  make(spec.inputs, out.inputs);
  make(spec.parameters, out.parameters);
  out.spec = std::move(spec);
  return out;
}

} // namespace rl::numeric
