// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The table of element types: size and the three families of names.
#include "runtime/base/DType.h"

#include <array>

namespace rl {
namespace {

struct DTypeInfo {
  size_t size;
  const char *name, *torch, *safetensors;
};

// In the order of the enum. The names of PyTorch are those that str(dtype) prints, without "torch."; those of safetensors
// are the spellings of the "dtype" key of its header.
constexpr std::array<DTypeInfo, kDTypeCount> kTable = {{
    {4, "f32", "float32", "F32"},
    {2, "f16", "float16", "F16"},
    {2, "bf16", "bfloat16", "BF16"},
    {1, "f8e4m3", "float8_e4m3fn", "F8_E4M3"},
    {1, "f8e5m2", "float8_e5m2", "F8_E5M2"},
    {1, "f8e8m0", "float8_e8m0fnu", "F8_E8M0"},
    {1, "i8", "int8", "I8"},
    {1, "u8", "uint8", "U8"},
    {4, "i32", "int32", "I32"},
    {8, "i64", "int64", "I64"},
    {1, "bool", "bool", "BOOL"},
}};

const DTypeInfo &info(DType t) { return kTable[static_cast<size_t>(t)]; }

} // namespace

size_t dtypeSize(DType t) { return info(t).size; }
const char *dtypeName(DType t) { return info(t).name; }
const char *safetensorsName(DType t) { return info(t).safetensors; }

std::optional<DType> parseDType(std::string_view text) {
  for (size_t i = 0; i < kTable.size(); ++i)
    if (text == kTable[i].name || text == kTable[i].torch || text == kTable[i].safetensors)
      return static_cast<DType>(i);
  return std::nullopt;
}

std::string str(const std::vector<int64_t> &shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i)
      out += ", ";
    out += std::to_string(shape[i]);
  }
  return out + "]";
}

std::string str(const TensorType &type) { return std::string(dtypeName(type.dtype)) + " " + str(type.shape); }

} // namespace rl
