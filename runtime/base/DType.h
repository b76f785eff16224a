// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Element types and their names. Depends on the standard library alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace rl {

/// The element types of the graph format. The order is the table's in DType.cpp.
enum class DType : uint8_t { F32, F16, BF16, F8E4M3, F8E5M2, F8E8M0, I8, U8, I32, I64, Bool };
inline constexpr int kDTypeCount = 11;

size_t dtypeSize(DType);            ///< bytes of one element; bool is one byte, 0 or 1
const char *dtypeName(DType);       ///< the format's own name: "f32", "f8e4m3", "bool"
const char *safetensorsName(DType); ///< "F32", "F8_E4M3", "BOOL"
/// Any accepted spelling: the format's own, torch's ("float32", "float8_e4m3fn") or safetensors' ("BF16").
std::optional<DType> parseDType(std::string_view);

inline bool isF8(DType t) { return t == DType::F8E4M3 || t == DType::F8E5M2 || t == DType::F8E8M0; }
inline bool isFloat(DType t) { return t <= DType::F8E8M0; }                  ///< f32 f16 bf16 and the f8 types
inline bool isArithmeticFloat(DType t) { return t <= DType::BF16; }          ///< f32 f16 bf16
inline bool isInteger(DType t) { return t >= DType::I8 && t <= DType::I64; } ///< bool is not an integer

/// A dense row-major tensor's type. Rank 0 to 8; an extent may be 0. Extent -1: known only at run time (symbolic).
struct TensorType {
  DType dtype = DType::F32;
  std::vector<int64_t> shape;

  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
  int64_t elements() const { ///< product of the extents; 1 for rank 0
    int64_t n = 1;
    for (int64_t e : shape)
      n *= e;
    return n;
  }
  int64_t bytes() const { return elements() * static_cast<int64_t>(dtypeSize(dtype)); }
  bool operator==(const TensorType &) const = default;
};

std::string str(const std::vector<int64_t> &shape); ///< "[2, 3]"
std::string str(const TensorType &);                ///< "bf16 [512, 4096]"

} // namespace rl
