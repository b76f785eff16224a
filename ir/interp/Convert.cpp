// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Conversions between f32 and the narrow floats by bit arithmetic alone, so that they mean the same on every host,
// whatever its rounding mode or its handling of subnormals. The f8 formats are those of the OCP 8-bit floating point
// specification, f8e8m0 that of the OCP microscaling specification.
#include "ir/interp/Convert.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace rl {
namespace {

constexpr uint32_t kF32Infinity = 0x7f800000u;

/// The code, without a sign, of the nearest value of a format with `manBits` mantissa bits and exponent bias `bias`,
/// ties to even, as if its exponent had no upper end: the caller deals with codes past its largest. `magnitude` is the
/// bits of a finite, non-negative f32. A carry out of the mantissa goes on into the exponent, which is what rounding up
/// means.
uint32_t roundMagnitude(uint32_t magnitude, int manBits, int bias) {
  int exponent = static_cast<int>(magnitude >> 23);
  if (exponent == 0) // a subnormal f32 lies below half of the least subnormal of every format handled here
    return 0;
  uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
  int target = exponent - 127 + bias;
  int shift = 23 - manBits;
  uint32_t code = 0;
  if (target >= 1) {
    code = static_cast<uint32_t>(target - 1) << manBits;
  } else {
    shift += 1 - target;
    if (shift > 24)
      return 0;
  }
  uint32_t half = 1u << (shift - 1), rest = significand & ((1u << shift) - 1);
  code += significand >> shift;
  if (rest > half || (rest == half && (code & 1)))
    ++code;
  return code;
}

/// The value of a code of such a format, all of whose exponents are finite.
float decodeFinite(uint32_t magnitude, bool negative, int manBits, int bias) {
  int exponent = static_cast<int>(magnitude >> manBits);
  uint32_t mantissa = magnitude & ((1u << manBits) - 1);
  uint32_t bits = negative ? 0x80000000u : 0u;
  if (exponent != 0) {
    bits |= static_cast<uint32_t>(exponent - bias + 127) << 23 | mantissa << (23 - manBits);
  } else if (mantissa != 0) {
    int top = 31 - std::countl_zero(mantissa); // normalise: the leading one becomes the implicit bit
    bits |= static_cast<uint32_t>(top + 1 - bias - manBits + 127) << 23;
    bits |= (mantissa ^ (1u << top)) << (23 - top);
  }
  return std::bit_cast<float>(bits);
}

template <class T> T loadAs(const void *data, int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const char *>(data) + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}
template <class T> void storeAs(void *data, int64_t i, T value) {
  std::memcpy(static_cast<char *>(data) + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

template <class T> T saturateTo(double value) {
  if (std::isnan(value))
    return 0;
  // For i64 the upper bound rounds to 2^63 as a double, which is the first value that does not fit.
  if (value >= static_cast<double>(std::numeric_limits<T>::max()))
    return std::numeric_limits<T>::max();
  if (value <= static_cast<double>(std::numeric_limits<T>::min()))
    return std::numeric_limits<T>::min();
  return static_cast<T>(value);
}

/// The f32 next to `value` towards zero, with its last bit set where it is not `value` itself (round to odd). Rounding
/// that to a format with at least two bits less gives what rounding `value` would have given (Boldo and Melquiond,
/// 2008).
float roundToOdd(double value) {
  float nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(value))
    return nearest;
  uint32_t bits = std::bit_cast<uint32_t>(nearest);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value))
    --bits;
  return std::bit_cast<float>(bits | 1u);
}

/// The same for an integer, whose magnitude may have more bits than a double holds.
float roundToOdd(int64_t value) {
  uint64_t magnitude = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  int width = 64 - std::countl_zero(magnitude);
  if (width > 24) {
    int drop = width - 24;
    uint64_t lost = magnitude & ((uint64_t{1} << drop) - 1);
    magnitude = ((magnitude >> drop) | (lost ? 1u : 0u)) << drop;
  }
  float result = static_cast<float>(magnitude); // exact: 24 significant bits
  return value < 0 ? -result : result;
}

} // namespace

float bf16ToF32(uint16_t code) { return std::bit_cast<float>(static_cast<uint32_t>(code) << 16); }

uint16_t f32ToBf16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffffu) > kF32Infinity)
    return static_cast<uint16_t>(bits >> 16 | 0x40u);
  return static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

float f16ToF32(uint16_t code) {
  bool negative = code >> 15;
  uint32_t magnitude = code & 0x7fffu;
  if (magnitude >= 0x7c00u) // infinity, or NaN with its payload
    return std::bit_cast<float>((negative ? 0x80000000u : 0u) | kF32Infinity | (magnitude & 0x3ffu) << 13);
  return decodeFinite(magnitude, negative, 10, 15);
}

uint16_t f32ToF16(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffffu;
  uint32_t sign = bits >> 16 & 0x8000u;
  if (magnitude > kF32Infinity)
    return static_cast<uint16_t>(sign | 0x7e00u | (magnitude >> 13 & 0x1ffu));
  uint32_t code = magnitude == kF32Infinity ? 0x7c00u : roundMagnitude(magnitude, 10, 15);
  return static_cast<uint16_t>(sign | (code > 0x7c00u ? 0x7c00u : code));
}

float f8e4m3ToF32(uint8_t code) {
  if ((code & 0x7f) == 0x7f)
    return std::bit_cast<float>((code & 0x80 ? 0x80000000u : 0u) | 0x7fc00000u);
  return decodeFinite(code & 0x7f, code >> 7, 3, 7);
}

uint8_t f32ToF8e4m3(float value, bool saturate) {
  uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffffu;
  uint32_t sign = bits >> 24 & 0x80u;
  if (magnitude > kF32Infinity)
    return static_cast<uint8_t>(sign | 0x7fu);
  uint32_t code = magnitude == kF32Infinity ? 0x7fu : roundMagnitude(magnitude, 3, 7);
  if (code > 0x7eu)
    code = saturate ? 0x7eu : 0x7fu;
  return static_cast<uint8_t>(sign | code);
}

float f8e5m2ToF32(uint8_t code) {
  bool negative = code >> 7;
  uint32_t magnitude = code & 0x7fu;
  if (magnitude == 0x7cu)
    return std::bit_cast<float>((negative ? 0x80000000u : 0u) | kF32Infinity);
  if (magnitude > 0x7cu)
    return std::bit_cast<float>((negative ? 0x80000000u : 0u) | 0x7fc00000u | (magnitude & 1u) << 21);
  return decodeFinite(magnitude, negative, 2, 15);
}

uint8_t f32ToF8e5m2(float value, bool saturate) {
  uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffffu;
  uint32_t sign = bits >> 24 & 0x80u;
  if (magnitude > kF32Infinity)
    return static_cast<uint8_t>(sign | 0x7fu);
  uint32_t code = magnitude == kF32Infinity ? 0x7cu : roundMagnitude(magnitude, 2, 15);
  if (code > 0x7bu)
    code = saturate ? 0x7bu : 0x7cu;
  return static_cast<uint8_t>(sign | code);
}

float f8e8m0ToF32(uint8_t code) {
  if (code == 255)
    return std::numeric_limits<float>::quiet_NaN();
  // 2^-127 is a subnormal f32.
  return std::bit_cast<float>(code == 0 ? 0x00400000u : static_cast<uint32_t>(code) << 23);
}

uint8_t f32ToF8e8m0(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffffu;
  if (magnitude > kF32Infinity || (bits >> 31 && magnitude != 0))
    return 255;
  uint32_t code = magnitude >> 23, mantissa = magnitude & 0x7fffffu;
  if (code >= 254)
    return 254;
  // The midpoint of the powers of two around the value: 1.5 * 2^e, and 1.5 * 2^-127 among the subnormals.
  uint32_t half = code == 0 ? 0x600000u : 0x400000u;
  if (mantissa > half || (mantissa == half && (code & 1)))
    ++code;
  return static_cast<uint8_t>(code);
}

double loadElement(const void *data, DType dtype, int64_t i) {
  switch (dtype) {
  case DType::F32: return loadAs<float>(data, i);
  case DType::F16: return f16ToF32(loadAs<uint16_t>(data, i));
  case DType::BF16: return bf16ToF32(loadAs<uint16_t>(data, i));
  case DType::F8E4M3: return f8e4m3ToF32(loadAs<uint8_t>(data, i));
  case DType::F8E5M2: return f8e5m2ToF32(loadAs<uint8_t>(data, i));
  case DType::F8E8M0: return f8e8m0ToF32(loadAs<uint8_t>(data, i));
  default: return static_cast<double>(loadInteger(data, dtype, i));
  }
}

void storeElement(void *data, DType dtype, int64_t i, double value, bool saturate) {
  switch (dtype) {
  case DType::F32: return storeAs<float>(data, i, static_cast<float>(value));
  case DType::F16: return storeAs<uint16_t>(data, i, f32ToF16(roundToOdd(value)));
  case DType::BF16: return storeAs<uint16_t>(data, i, f32ToBf16(roundToOdd(value)));
  case DType::F8E4M3: return storeAs<uint8_t>(data, i, f32ToF8e4m3(roundToOdd(value), saturate));
  case DType::F8E5M2: return storeAs<uint8_t>(data, i, f32ToF8e5m2(roundToOdd(value), saturate));
  case DType::F8E8M0: return storeAs<uint8_t>(data, i, f32ToF8e8m0(roundToOdd(value)));
  case DType::I8: return storeAs<int8_t>(data, i, saturateTo<int8_t>(value));
  case DType::U8: return storeAs<uint8_t>(data, i, saturateTo<uint8_t>(value));
  case DType::I32: return storeAs<int32_t>(data, i, saturateTo<int32_t>(value));
  case DType::I64: return storeAs<int64_t>(data, i, saturateTo<int64_t>(value));
  case DType::Bool: return storeAs<uint8_t>(data, i, value != 0); // NaN is not zero
  }
}

int64_t loadInteger(const void *data, DType dtype, int64_t i) {
  switch (dtype) {
  case DType::I8: return loadAs<int8_t>(data, i);
  case DType::U8: return loadAs<uint8_t>(data, i);
  case DType::I32: return loadAs<int32_t>(data, i);
  case DType::I64: return loadAs<int64_t>(data, i);
  case DType::Bool: return loadAs<uint8_t>(data, i) != 0;
  default: return saturateTo<int64_t>(loadElement(data, dtype, i));
  }
}

void storeInteger(void *data, DType dtype, int64_t i, int64_t value) {
  switch (dtype) {
  case DType::F32: return storeAs<float>(data, i, static_cast<float>(value));
  case DType::F16: return storeAs<uint16_t>(data, i, f32ToF16(roundToOdd(value)));
  case DType::BF16: return storeAs<uint16_t>(data, i, f32ToBf16(roundToOdd(value)));
  case DType::F8E4M3: return storeAs<uint8_t>(data, i, f32ToF8e4m3(roundToOdd(value), true));
  case DType::F8E5M2: return storeAs<uint8_t>(data, i, f32ToF8e5m2(roundToOdd(value), true));
  case DType::F8E8M0: return storeAs<uint8_t>(data, i, f32ToF8e8m0(roundToOdd(value)));
  case DType::I8: return storeAs<int8_t>(data, i, static_cast<int8_t>(value));
  case DType::U8: return storeAs<uint8_t>(data, i, static_cast<uint8_t>(value));
  case DType::I32: return storeAs<int32_t>(data, i, static_cast<int32_t>(value));
  case DType::I64: return storeAs<int64_t>(data, i, value);
  case DType::Bool: return storeAs<uint8_t>(data, i, value != 0);
  }
}

} // namespace rl
