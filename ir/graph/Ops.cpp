// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The op table: what Ops.def says of names and arity, and the attributes of every op of the format. An attribute is
// required where the format page gives it no default and leaving it out could mean several things.
#include "ir/graph/Graph.h"

#include <cassert>
#include <string_view>
#include <unordered_map>

namespace rl {
namespace {

using A = AttrInfo;

constexpr const char *kGranularities = "tensor|axis|token|block";
constexpr const char *kResultFloats = "f32|f16|bf16|f8e4m3|f8e5m2";

std::vector<AttrInfo> quantiseAttributes() {
  return {{A::DTypeName, "dtype", true, "f8e4m3|f8e5m2|i8"},
          {A::String, "granularity", false, kGranularities},
          {A::Integer, "axis"},
          {A::IntList, "block"},
          {A::DTypeName, "scale_dtype", false, "f32|f8e8m0"},
          {A::String, "scheme", false, "symmetric|asymmetric"}};
}

std::vector<AttrInfo> attributesOf(OpKind op) {
  switch (op) {
  case OpKind::Gelu: return {{A::String, "approximate", false, "none|tanh"}};
  case OpKind::Cast: return {{A::DTypeName, "dtype", true}, {A::Boolean, "saturate"}};
  case OpKind::Clamp: return {{A::ScalarValue, "min"}, {A::ScalarValue, "max"}};
  case OpKind::Reshape:
  case OpKind::Expand: return {{A::Shape, "shape", true}};
  case OpKind::Permute:
  case OpKind::Flip: return {{A::IntList, "dims", true}};
  case OpKind::Unsqueeze:
  case OpKind::Squeeze:
  case OpKind::Cat:
  case OpKind::Softmax:
  case OpKind::LogSoftmax:
  case OpKind::IndexSelect:
  case OpKind::Gather: return {{A::Integer, "dim", true}};
  case OpKind::Slice:
    return {{A::Integer, "dim", true}, {A::Integer, "start"}, {A::Integer, "end"}, {A::Integer, "step"}};
  case OpKind::Pad: return {{A::IntList, "low", true}, {A::IntList, "high", true}, {A::ScalarValue, "value"}};
  case OpKind::Full: return {{A::Shape, "shape", true}, {A::ScalarValue, "value", true}, {A::DTypeName, "dtype", true}};
  case OpKind::Iota:
    return {{A::Shape, "shape", true},
            {A::Integer, "dim", true},
            {A::DTypeName, "dtype", true, "f32|f16|bf16|i8|u8|i32|i64"}};
  case OpKind::Sum:
  case OpKind::Mean:
  case OpKind::Amax:
  case OpKind::Amin:
  case OpKind::Prod:
  case OpKind::Any:
  case OpKind::All:
  case OpKind::LogSumExp: return {{A::IntList, "dims"}, {A::Boolean, "keepdim"}};
  case OpKind::Var: return {{A::IntList, "dims"}, {A::Boolean, "keepdim"}, {A::Number, "correction"}};
  case OpKind::ArgMax:
  case OpKind::ArgMin: return {{A::Integer, "dim", true}, {A::Boolean, "keepdim"}};
  case OpKind::LayerNorm:
  case OpKind::RmsNorm: return {{A::Number, "eps"}};
  case OpKind::Matmul:
    return {{A::Boolean, "transpose_a"},
            {A::Boolean, "transpose_b"},
            {A::DTypeName, "out_dtype", false, "f32|f16|bf16|f8e4m3|f8e5m2|i8|u8|i32|i64"}};
  case OpKind::Attention: return {{A::Boolean, "causal"}, {A::Number, "scale"}};
  case OpKind::CrossEntropy: return {{A::Integer, "ignore_index"}};
  case OpKind::Quantize:
  case OpKind::FakeQuantize: return quantiseAttributes();
  case OpKind::Dequantize:
    return {{A::DTypeName, "dtype", false, "f32|f16|bf16"},
            {A::String, "granularity", false, kGranularities},
            {A::Integer, "axis"},
            {A::IntList, "block"}};
  case OpKind::ScaledMatmul:
    return {{A::String, "granularity_a", false, kGranularities},
            {A::Integer, "axis_a"},
            {A::IntList, "block_a"},
            {A::String, "granularity_b", false, kGranularities},
            {A::Integer, "axis_b"},
            {A::IntList, "block_b"},
            {A::Boolean, "transpose_b"},
            {A::DTypeName, "out_dtype", false, kResultFloats},
            {A::Boolean, "fast_accumulate"}};
  default: return {};
  }
}

} // namespace

const std::vector<OpInfo> &allOps() {
  static const std::vector<OpInfo> table = {
#define RL_OP(Enum, Name, Class, MinIn, MaxIn, MinOut, MaxOut)                                                         \
  OpInfo{OpKind::Enum, Name, OpClass::Class, MinIn, MaxIn, MinOut, MaxOut, attributesOf(OpKind::Enum)},
#include "ir/graph/Ops.def"
  };
  return table;
}

const OpInfo &opInfo(OpKind op) {
  const std::vector<OpInfo> &table = allOps();
  assert(static_cast<size_t>(op) < table.size());
  return table[static_cast<size_t>(op)];
}

const OpInfo *findOp(std::string_view name) {
  static const std::unordered_map<std::string_view, const OpInfo *> byName = [] {
    std::unordered_map<std::string_view, const OpInfo *> map;
    for (const OpInfo &info : allOps())
      map.emplace(info.name, &info);
    return map;
  }();
  auto it = byName.find(name);
  return it == byName.end() ? nullptr : it->second;
}

} // namespace rl
