// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Conversions between the forms that the interpreter holds tensors in, and index arithmetic.
#include "ir/interp/Tensor.h"

#include "ir/interp/Convert.h"

#include <algorithm>

// The same loop for wider vectors, chosen at run time. Contraction is off, so that all of them give the same bits.
// Sanitizers do not get along with the resolver that chooses.
#if defined(__x86_64__) && defined(__linux__) && !defined(__SANITIZE_ADDRESS__)
#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define RL_VECTOR_CLONES
#endif
#endif
#ifndef RL_VECTOR_CLONES
#define RL_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#endif
#else
#define RL_VECTOR_CLONES
#endif

namespace rl::interp {

RL_VECTOR_CLONES
void multiplyTile(const double *a, const double *b, int64_t K, double (&sum)[kTileRows][kTileColumns]) {
  double s[kTileRows][kTileColumns] = {};
  for (int64_t k = 0; k < K; ++k)
    for (int64_t r = 0; r < kTileRows; ++r)
      for (int64_t n = 0; n < kTileColumns; ++n)
        s[r][n] += a[r * K + k] * b[k * kTileColumns + n];
  std::copy_n(&s[0][0], kTileRows * kTileColumns, &sum[0][0]);
}

int64_t wrapTo(DType dtype, int64_t value) {
  switch (dtype) {
  case DType::I8: return static_cast<int8_t>(value);
  case DType::U8: return static_cast<uint8_t>(value);
  case DType::I32: return static_cast<int32_t>(value);
  case DType::Bool: return value != 0;
  default: return value;
  }
}

int64_t truncateTo(DType dtype, float value) {
  int64_t bits = 0;
  storeElement(&bits, dtype, 0, value);
  return loadInteger(&bits, dtype, 0);
}

float roundTo(DType dtype, float value) {
  switch (dtype) {
  case DType::F16: return f16ToF32(f32ToF16(value));
  case DType::BF16: return bf16ToF32(f32ToBf16(value));
  default: return value;
  }
}

void roundAll(std::vector<float> &values, DType dtype) {
  if (dtype == DType::F16)
    for (float &v : values)
      v = f16ToF32(f32ToF16(v));
  else if (dtype == DType::BF16)
    for (float &v : values)
      v = bf16ToF32(f32ToBf16(v));
}

float decodeF8(DType dtype, uint8_t code) {
  return dtype == DType::F8E4M3 ? f8e4m3ToF32(code) : dtype == DType::F8E5M2 ? f8e5m2ToF32(code) : f8e8m0ToF32(code);
}

uint8_t encodeF8(DType dtype, float value, bool saturate) {
  return dtype == DType::F8E4M3   ? f32ToF8e4m3(value, saturate)
         : dtype == DType::F8E5M2 ? f32ToF8e5m2(value, saturate)
                                  : f32ToF8e8m0(value);
}

const std::vector<float> &asFloats(const Tensor &t, std::vector<float> &scratch) {
  if (isArithmeticFloat(t.dtype))
    return t.f;
  if (isF8(t.dtype)) {
    float table[256];
    for (int code = 0; code < 256; ++code)
      table[code] = decodeF8(t.dtype, static_cast<uint8_t>(code));
    scratch.resize(t.codes.size());
    for (size_t e = 0; e < scratch.size(); ++e)
      scratch[e] = table[t.codes[e]];
  } else {
    scratch.resize(t.i.size());
    for (size_t e = 0; e < scratch.size(); ++e)
      scratch[e] = static_cast<float>(t.i[e]);
  }
  return scratch;
}

const std::vector<int64_t> &asIntegers(const Tensor &t, std::vector<int64_t> &scratch) {
  if (!isFloat(t.dtype))
    return t.i;
  std::vector<float> decoded;
  const std::vector<float> &values = asFloats(t, decoded);
  scratch.resize(values.size());
  for (size_t e = 0; e < scratch.size(); ++e)
    scratch[e] = truncateTo(DType::I64, values[e]);
  return scratch;
}

int64_t scalarInteger(DType dtype, const Scalar &s) {
  if (s.kind != Scalar::Float)
    return wrapTo(dtype, s.i);
  int64_t bits = 0;
  storeElement(&bits, dtype, 0, s.f);
  return loadInteger(&bits, dtype, 0);
}

float scalarFloat(const Scalar &s) {
  return s.kind == Scalar::Float ? static_cast<float>(s.f) : static_cast<float>(s.i);
}

std::vector<int64_t> stridesOf(const std::vector<int64_t> &shape) {
  std::vector<int64_t> strides(shape.size(), 1);
  for (size_t d = shape.size(); d-- > 1;)
    strides[d - 1] = strides[d] * shape[d];
  return strides;
}

std::vector<int64_t> broadcastStrides(const std::vector<int64_t> &shape, const std::vector<int64_t> &to) {
  std::vector<int64_t> own = stridesOf(shape), strides(to.size(), 0);
  assert(shape.size() <= to.size());
  size_t lead = to.size() - shape.size();
  for (size_t d = 0; d < shape.size(); ++d)
    strides[lead + d] = shape[d] == 1 ? 0 : own[d];
  return strides;
}

void batchOffsets(const std::vector<int64_t> &out, const std::vector<int64_t> &a, const std::vector<int64_t> &b,
                  std::vector<int64_t> &offsetA, std::vector<int64_t> &offsetB) {
  const std::vector<int64_t> strides[2] = {broadcastStrides(a, out), broadcastStrides(b, out)};
  forEachRow(out, strides, [&](const int64_t *offset, int64_t n, const int64_t *step) {
    for (int64_t j = 0; j < n; ++j) {
      offsetA.push_back(offset[0] + j * step[0]);
      offsetB.push_back(offset[1] + j * step[1]);
    }
  });
}

} // namespace rl::interp
