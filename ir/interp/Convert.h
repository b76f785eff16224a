// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Exact conversions between f32 and the narrow float types, one value at a time. Round to nearest even; subnormals
// kept.
#pragma once

#include "runtime/base/DType.h"

#include <cstdint>

namespace rl {

float bf16ToF32(uint16_t);
uint16_t f32ToBf16(float); ///< NaN stays a (quiet) NaN
float f16ToF32(uint16_t);
uint16_t f32ToF16(float);
float f8e4m3ToF32(uint8_t);
/// Saturating: finite and infinite beyond 448 give +-448. Otherwise what rounds beyond 448 gives NaN. NaN gives 0x7f or
/// 0xff.
uint8_t f32ToF8e4m3(float, bool saturate);
float f8e5m2ToF32(uint8_t);
uint8_t f32ToF8e5m2(float, bool saturate); ///< not saturating: beyond 57344 (after rounding) gives infinity
float f8e8m0ToF32(uint8_t);                ///< 2^(code - 127); 255 is NaN
uint8_t f32ToF8e8m0(float); ///< to the nearest power of two, ties to the even code; NaN, negative: 255; saturates

/// Element `i` of a buffer as a double, and back with the format's cast rules from f32 (floats) or i64 (integers).
double loadElement(const void *data, DType, int64_t i);
void storeElement(void *data, DType, int64_t i, double value, bool saturate = true);
int64_t loadInteger(const void *data, DType, int64_t i);
void storeInteger(void *data, DType, int64_t i, int64_t value); ///< wraps

} // namespace rl
