// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Values are rounded to the quantised types by adding and taking away a power of two whose last place is the type's at that
// magnitude: branch-free, so that the loops over samples vectorise.
#include "frontend/calibrate/Quality.h"

#include <bit>
#include <cmath>
#include <limits>

namespace rl::calibrate {
namespace {

/// A small float type, as f32 bits.
struct Float {
  float largest;
  float clips;            ///< the least magnitude that would round beyond the largest
  uint32_t leastExponent; ///< f32 exponent field of the type's least normal value
  uint32_t lastPlace;     ///< f32 exponent steps up to the power of two that is added
  float operator()(float v) const {
    const float a = std::min(std::fabs(v), largest);
    const uint32_t exponent = std::max(std::bit_cast<uint32_t>(a) & 0x7f800000, leastExponent);
    const float c = std::bit_cast<float>(exponent + lastPlace);
    return std::copysign((a + c) - c, v);
  }
};
constexpr Float kE4M3{448, 464, (127 - 6) << 23, (23 - 3) << 23};
constexpr Float kE5M2{57344, 61440, (127 - 14) << 23, (23 - 2) << 23};

struct Integer {
  float clips = 127.5f;
  float operator()(float v) const {
    constexpr float c = 12582912; // 1.5 * 2^23: its last place is 1 on both sides of 0
    return (std::clamp(v, -127.0f, 127.0f) + c) - c;
  }
};

bool isFiniteValue(float v) { return (std::bit_cast<uint32_t>(v) & 0x7f800000) != 0x7f800000; }

template <class Round>
void addRounded(Quality &q, const float *x, const Groups &groups, const std::vector<float> &scales, Round round) {
  groups.runs([&](int64_t begin, int64_t n, int64_t group, int64_t step) {
    double signal = 0, noise = 0;
    int64_t values = 0, clipped = 0;
    const float *scale = scales.data() + group;
    for (int64_t j = 0; j < n; ++j) {
      const bool finite = isFiniteValue(x[begin + j]);
      const float v = finite ? x[begin + j] : 0.0f, s = scale[j * step], scaled = v / s;
      const double error = static_cast<double>(v) - static_cast<double>(round(scaled) * s);
      signal += static_cast<double>(v) * static_cast<double>(v);
      noise += error * error;
      values += finite;
      clipped += std::fabs(scaled) >= round.clips;
    }
    q.signal += signal;
    q.noise += noise;
    q.values += values;
    q.clipped += clipped;
  });
}

} // namespace

Groups::Groups(std::vector<int64_t> extents, Granularity granularity, int64_t axis, const int64_t (&block)[2])
    : shape(std::move(extents)), divisor(shape.size(), 1), stride(shape.size(), 0) {
  const size_t rank = shape.size();
  for (size_t d = rank; d-- > 0;) {
    const size_t back = rank - d;
    switch (granularity) {
    case Granularity::Tensor: continue;
    case Granularity::Axis:
      if (d != static_cast<size_t>(axis))
        continue;
      break;
    case Granularity::Token:
      if (back == 1)
        continue;
      break;
    case Granularity::Block: divisor[d] = back <= 2 ? block[2 - back] : 1; break;
    }
    stride[d] = groups;
    groups *= shape[d] / divisor[d] + (shape[d] % divisor[d] != 0);
  }
}

float largestOf(DType t) { return t == DType::F8E4M3 ? kE4M3.largest : t == DType::F8E5M2 ? kE5M2.largest : 127.0f; }

float clipsFrom(DType t) {
  return t == DType::F8E4M3 ? kE4M3.clips : t == DType::F8E5M2 ? kE5M2.clips : Integer{}.clips;
}

static float scaleOver(double range, double steps, DType scaleDtype) {
  if (range == 0)
    return 1;
  if (scaleDtype != DType::F8E8M0)
    return std::max(static_cast<float>(range / steps), std::numeric_limits<float>::denorm_min());
  int exponent = 0;
  const double fraction = std::frexp(range / steps, &exponent); // in [1/2, 1), of a quotient that may be rounded
  if (fraction == 0.5 && std::ldexp(steps, exponent - 1) >= range)
    --exponent;
  return std::ldexp(1.0f, std::clamp(exponent, -127, 127));
}

float scaleFor(float range, DType quantised, DType scaleDtype) {
  return scaleOver(static_cast<double>(range), static_cast<double>(largestOf(quantised)), scaleDtype);
}

void raise(std::vector<float> &amax, const float *x, const Groups &groups) {
  groups.runs([&](int64_t begin, int64_t n, int64_t group, int64_t step) {
    for (int64_t j = 0; j < n; ++j) {
      const float v = isFiniteValue(x[begin + j]) ? std::fabs(x[begin + j]) : 0.0f;
      float &most = amax[static_cast<size_t>(group + j * step)];
      most = std::max(most, v);
    }
  });
}

Affine affineFor(const float *x, const Groups &groups, DType scaleDtype) {
  const auto n = static_cast<size_t>(groups.count());
  std::vector<float> least(n, 0), most(n, 0); // 0 is always within the range
  groups.runs([&](int64_t begin, int64_t count, int64_t group, int64_t step) {
    for (int64_t j = 0; j < count; ++j) {
      const float v = isFiniteValue(x[begin + j]) ? x[begin + j] : 0.0f;
      const auto g = static_cast<size_t>(group + j * step);
      least[g] = std::min(least[g], v);
      most[g] = std::max(most[g], v);
    }
  });
  Affine a;
  for (size_t g = 0; g < n; ++g) {
    a.scale.push_back(scaleOver(static_cast<double>(most[g]) - static_cast<double>(least[g]), 255, scaleDtype));
    a.zeroPoint.push_back(std::clamp(-128 - std::nearbyint(least[g] / a.scale[g]), -128.0f, 127.0f));
  }
  return a;
}

double Quality::sqnr() const {
  return noise > 0    ? 10 * std::log10(signal / noise)
         : signal > 0 ? std::numeric_limits<double>::infinity()
                      : std::numeric_limits<double>::quiet_NaN();
}

void add(Quality &q, const float *x, const Groups &groups, const std::vector<float> &scales, DType quantised) {
  if (quantised == DType::F8E4M3)
    addRounded(q, x, groups, scales, kE4M3);
  else if (quantised == DType::F8E5M2)
    addRounded(q, x, groups, scales, kE5M2);
  else
    addRounded(q, x, groups, scales, Integer{});
}

void add(Quality &q, const float *x, const Groups &groups, const Affine &a) {
  groups.runs([&](int64_t begin, int64_t n, int64_t group, int64_t step) {
    for (int64_t j = 0; j < n; ++j) {
      const float v = x[begin + j];
      if (!isFiniteValue(v))
        continue;
      const auto g = static_cast<size_t>(group + j * step);
      const float code = std::nearbyint(v / a.scale[g]) + a.zeroPoint[g], kept = std::clamp(code, -128.0f, 127.0f);
      const double error = static_cast<double>(v) - static_cast<double>((kept - a.zeroPoint[g]) * a.scale[g]);
      q.signal += static_cast<double>(v) * static_cast<double>(v);
      q.noise += error * error;
      ++q.values;
      q.clipped += code != kept;
    }
  });
}

} // namespace rl::calibrate
