// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The narrow float conversions against tables built here from the definitions of the formats (sign, exponent, mantissa
// in real arithmetic, no bit tricks): every code, and from f32 every code, midpoint and neighbour of a midpoint.
#include "ir/interp/Convert.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <random>

using namespace rl;

namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// A format by its definition. The top exponent holds infinity and NaNs where `ieee`; of e4m3 only all ones is NaN.
struct Format {
  const char *name;
  int exponentBits, mantissaBits, bias;
  bool ieee;
  int bits() const { return 1 + exponentBits + mantissaBits; }
  unsigned signBit() const { return 1u << (bits() - 1); }

  double value(unsigned code) const {
    unsigned magnitude = code & (signBit() - 1);
    int exponent = static_cast<int>(magnitude >> mantissaBits), top = (1 << exponentBits) - 1;
    unsigned mantissa = magnitude & ((1u << mantissaBits) - 1), ones = (1u << mantissaBits) - 1;
    double sign = code & signBit() ? -1 : 1;
    if (ieee && exponent == top)
      return mantissa ? std::nan("") : sign * INFINITY;
    if (!ieee && exponent == top && mantissa == ones)
      return std::nan("");
    double fraction = mantissa / std::pow(2.0, mantissaBits);
    return exponent == 0 ? sign * fraction * std::pow(2.0, 1 - bias)
                         : sign * (1 + fraction) * std::pow(2.0, exponent - bias);
  }
  /// The greatest finite code, without a sign.
  unsigned greatest() const {
    unsigned code = signBit() - 1;
    while (!std::isfinite(value(code)))
      --code;
    return code;
  }
};

const Format kF16{"f16", 5, 10, 15, true}, kBF16{"bf16", 8, 7, 127, true}, kE4M3{"f8e4m3", 4, 3, 7, false},
    kE5M2{"f8e5m2", 5, 2, 15, true};

void expectSame(float got, double want, unsigned code, const char *name) {
  if (std::isnan(want))
    EXPECT_TRUE(std::isnan(got)) << name << " code " << code;
  else
    EXPECT_TRUE(got == want && std::signbit(got) == std::signbit(want))
        << name << " code " << code << ": " << got << ", not " << want;
}

/// Everything that rounding must get right around every value of a format. `isNanCode` tells NaNs of the format.
void checkRounding(const Format &f, const std::function<unsigned(float)> &narrow, unsigned overflow) {
  const unsigned greatest = f.greatest();
  auto check = [&](double magnitude, unsigned want) {
    float x = static_cast<float>(magnitude);
    ASSERT_EQ(static_cast<double>(x), magnitude) << f.name;
    EXPECT_EQ(narrow(x), want) << f.name << " of " << x;
    EXPECT_EQ(narrow(-x), want | f.signBit()) << f.name << " of " << -x;
  };
  for (unsigned code = 0; code <= greatest; ++code) {
    const double here = f.value(code);
    // Past the greatest value the next one would be a step further on.
    const double next = code == greatest ? here + (here - f.value(code - 1)) : f.value(code + 1);
    const unsigned up = code == greatest ? overflow : code + 1, even = code & 1 ? up : code;
    const double middle = (here + next) / 2;
    check(here, code);
    if (middle > std::numeric_limits<float>::max())
      continue;
    check(middle, even);
    float below = std::nextafterf(static_cast<float>(middle), 0),
          above = std::nextafterf(static_cast<float>(middle), kInf);
    if (below > here)
      check(below, code);
    if (std::isfinite(above))
      check(above, up);
    float after = std::nextafterf(static_cast<float>(here), kInf);
    if (after < middle)
      check(after, code);
  }
  check(std::numeric_limits<float>::max(), overflow);
}

} // namespace

TEST(Convert, KnownConstants) {
  EXPECT_EQ(kE4M3.value(kE4M3.greatest()), 448);
  EXPECT_EQ(kE5M2.value(kE5M2.greatest()), 57344);
  EXPECT_EQ(kF16.value(kF16.greatest()), 65504);
  EXPECT_EQ(f8e4m3ToF32(0x7e), 448);
  EXPECT_EQ(f8e4m3ToF32(0x01), std::ldexp(1.0f, -9));
  EXPECT_EQ(f8e5m2ToF32(0x7b), 57344);
  EXPECT_EQ(f8e5m2ToF32(0x01), std::ldexp(1.0f, -16));
  EXPECT_EQ(f8e5m2ToF32(0x7c), kInf);
  EXPECT_EQ(f16ToF32(0x0001), std::ldexp(1.0f, -24));
  EXPECT_EQ(bf16ToF32(0x3f80), 1);
}

TEST(Convert, EveryCodeWidens) {
  for (unsigned code = 0; code < 256; ++code) {
    expectSame(f8e4m3ToF32(static_cast<uint8_t>(code)), kE4M3.value(code), code, "f8e4m3");
    expectSame(f8e5m2ToF32(static_cast<uint8_t>(code)), kE5M2.value(code), code, "f8e5m2");
    expectSame(f8e8m0ToF32(static_cast<uint8_t>(code)),
               code == 255 ? std::nan("") : std::pow(2.0, static_cast<int>(code) - 127), code, "f8e8m0");
  }
  for (unsigned code = 0; code < 65536; ++code) {
    expectSame(f16ToF32(static_cast<uint16_t>(code)), kF16.value(code), code, "f16");
    expectSame(bf16ToF32(static_cast<uint16_t>(code)), kBF16.value(code), code, "bf16");
  }
}

TEST(Convert, EveryCodeRoundTrips) {
  for (unsigned code = 0; code < 65536; ++code) {
    uint16_t c = static_cast<uint16_t>(code);
    if (std::isnan(kF16.value(code)))
      EXPECT_TRUE(std::isnan(kF16.value(f32ToF16(f16ToF32(c)))) && (f32ToF16(f16ToF32(c)) >> 15) == code >> 15) << code;
    else
      EXPECT_EQ(f32ToF16(f16ToF32(c)), c);
    if (std::isnan(kBF16.value(code)))
      EXPECT_TRUE(std::isnan(kBF16.value(f32ToBf16(bf16ToF32(c)))) && (f32ToBf16(bf16ToF32(c)) >> 15) == code >> 15)
          << code;
    else
      EXPECT_EQ(f32ToBf16(bf16ToF32(c)), c);
  }
  for (unsigned code = 0; code < 256; ++code) {
    uint8_t c = static_cast<uint8_t>(code);
    for (bool saturate : {false, true}) {
      if ((code & 0x7f) == 0x7f)
        EXPECT_EQ(f32ToF8e4m3(f8e4m3ToF32(c), saturate), c);
      else
        EXPECT_EQ(f32ToF8e4m3(f8e4m3ToF32(c), saturate), c);
      if (std::isnan(kE5M2.value(code)))
        EXPECT_TRUE(std::isnan(kE5M2.value(f32ToF8e5m2(f8e5m2ToF32(c), saturate))));
      else if (std::isinf(kE5M2.value(code)))
        EXPECT_EQ(f32ToF8e5m2(f8e5m2ToF32(c), saturate), saturate ? (code & 0x80) | 0x7bu : code);
      else
        EXPECT_EQ(f32ToF8e5m2(f8e5m2ToF32(c), saturate), c);
    }
    EXPECT_EQ(f32ToF8e8m0(f8e8m0ToF32(c)), c);
  }
}

TEST(Convert, RoundsToNearestEvenEverywhere) {
  checkRounding(kF16, [](float v) { return f32ToF16(v); }, 0x7c00);
  checkRounding(kBF16, [](float v) { return f32ToBf16(v); }, 0x7f80);
  checkRounding(kE4M3, [](float v) { return f32ToF8e4m3(v, true); }, 0x7e);
  checkRounding(kE4M3, [](float v) { return f32ToF8e4m3(v, false); }, 0x7f);
  checkRounding(kE5M2, [](float v) { return f32ToF8e5m2(v, true); }, 0x7b);
  checkRounding(kE5M2, [](float v) { return f32ToF8e5m2(v, false); }, 0x7c);
}

/// Random bits against a search for the nearest value: what the walk above might not have thought of.
TEST(Convert, RandomBitsAgainstSearch) {
  std::mt19937 random(7);
  for (const Format *f : {&kE4M3, &kE5M2, &kF16}) {
    std::map<double, unsigned> codes;
    for (unsigned code = 0; code <= f->greatest(); ++code)
      codes[f->value(code)] = code;
    for (int n = 0; n < 200000; ++n) {
      float x = std::fabs(std::bit_cast<float>(static_cast<uint32_t>(random())));
      if (!std::isfinite(x) || x >= f->value(f->greatest()))
        continue;
      auto above = codes.lower_bound(x);
      unsigned want = above->second;
      if (above->first != x) {
        auto below = std::prev(above);
        double down = x - below->first, up = above->first - x;
        want = down < up || (down == up && !(below->second & 1)) ? below->second : above->second;
      }
      unsigned got = f == &kE4M3 ? f32ToF8e4m3(x, true) : f == &kE5M2 ? f32ToF8e5m2(x, true) : f32ToF16(x);
      ASSERT_EQ(got, want) << f->name << " of " << x;
    }
  }
}

TEST(Convert, NonFinite) {
  EXPECT_EQ(f32ToF16(kInf), 0x7c00);
  EXPECT_EQ(f32ToF16(-kInf), 0xfc00);
  EXPECT_EQ(f32ToBf16(kInf), 0x7f80);
  EXPECT_EQ(f32ToBf16(-kInf), 0xff80);
  EXPECT_EQ(f32ToF8e4m3(kInf, true), 0x7e);
  EXPECT_EQ(f32ToF8e4m3(-kInf, true), 0xfe);
  EXPECT_EQ(f32ToF8e4m3(kInf, false), 0x7f);
  EXPECT_EQ(f32ToF8e4m3(-kInf, false), 0xff);
  EXPECT_EQ(f32ToF8e5m2(kInf, true), 0x7b);
  EXPECT_EQ(f32ToF8e5m2(-kInf, true), 0xfb);
  EXPECT_EQ(f32ToF8e5m2(kInf, false), 0x7c);
  EXPECT_EQ(f32ToF8e5m2(-kInf, false), 0xfc);
  // Every kind of NaN, the ones whose payload would be cut to nothing included, stays a NaN of its sign.
  for (uint32_t bits : {0x7fc00000u, 0x7f800001u, 0x7fffffffu, 0x7f801000u}) {
    for (uint32_t sign : {0u, 0x80000000u}) {
      float nan = std::bit_cast<float>(bits | sign);
      unsigned high = sign >> 31;
      EXPECT_TRUE(std::isnan(kF16.value(f32ToF16(nan)))) << bits;
      EXPECT_EQ(f32ToF16(nan) >> 15, high);
      EXPECT_TRUE(std::isnan(kBF16.value(f32ToBf16(nan)))) << bits;
      EXPECT_EQ(f32ToBf16(nan) >> 15, high);
      for (bool saturate : {false, true}) {
        EXPECT_EQ(f32ToF8e4m3(nan, saturate), high ? 0xff : 0x7f);
        EXPECT_TRUE(std::isnan(kE5M2.value(f32ToF8e5m2(nan, saturate))));
        EXPECT_EQ(f32ToF8e5m2(nan, saturate) >> 7, static_cast<int>(high));
      }
      EXPECT_EQ(f32ToF8e8m0(nan), 255);
    }
  }
}

TEST(Convert, SubnormalF32) {
  const float least = std::numeric_limits<float>::denorm_min();
  EXPECT_EQ(f32ToF16(least), 0);
  EXPECT_EQ(f32ToF16(-least), 0x8000);
  EXPECT_EQ(f32ToF8e4m3(-least, true), 0x80);
  EXPECT_EQ(f32ToF8e5m2(least, true), 0);
  EXPECT_EQ(f32ToBf16(least), 0);
  EXPECT_EQ(f32ToBf16(std::bit_cast<float>(0x00008000u)), 0); // half of bf16's least subnormal: to even
  EXPECT_EQ(f32ToBf16(std::bit_cast<float>(0x00008001u)), 1);
  EXPECT_EQ(f32ToBf16(std::bit_cast<float>(0x807fffffu)), 0x8080); // a subnormal that rounds up to a normal value
  EXPECT_EQ(f8e8m0ToF32(0), std::ldexp(1.0f, -127));
}

TEST(Convert, PowersOfTwo) {
  for (int code = 0; code < 254; ++code) {
    double here = std::pow(2.0, code - 127), middle = 1.5 * here;
    float m = static_cast<float>(middle);
    ASSERT_EQ(static_cast<double>(m), middle);
    EXPECT_EQ(f32ToF8e8m0(static_cast<float>(here)), code);
    EXPECT_EQ(f32ToF8e8m0(m), code % 2 ? code + 1 : code);
    EXPECT_EQ(f32ToF8e8m0(std::nextafterf(m, 0)), code);
    EXPECT_EQ(f32ToF8e8m0(std::nextafterf(m, kInf)), code + 1);
  }
  EXPECT_EQ(f32ToF8e8m0(0.0f), 0);
  EXPECT_EQ(f32ToF8e8m0(-0.0f), 0);
  EXPECT_EQ(f32ToF8e8m0(std::numeric_limits<float>::denorm_min()), 0);
  EXPECT_EQ(f32ToF8e8m0(std::numeric_limits<float>::max()), 254);
  EXPECT_EQ(f32ToF8e8m0(kInf), 254);
  EXPECT_EQ(f32ToF8e8m0(-1.0f), 255);
  EXPECT_EQ(f32ToF8e8m0(-kInf), 255);
}

TEST(Convert, Elements) {
  alignas(8) unsigned char buffer[33];
  for (int t = 0; t < kDTypeCount; ++t) {
    DType dtype = static_cast<DType>(t);
    storeElement(buffer, dtype, 2, 1);
    EXPECT_EQ(loadElement(buffer, dtype, 2), 1) << dtypeName(dtype);
    EXPECT_EQ(loadInteger(buffer, dtype, 2), 1) << dtypeName(dtype);
    storeInteger(buffer + 1, dtype, 3, 1); // unaligned
    EXPECT_EQ(loadElement(buffer + 1, dtype, 3), 1) << dtypeName(dtype);
  }
}

TEST(Convert, FloatToInteger) {
  auto through = [](DType t, double v) {
    int64_t bits = 0;
    storeElement(&bits, t, 0, v);
    return loadInteger(&bits, t, 0);
  };
  EXPECT_EQ(through(DType::I8, 127.9), 127);
  EXPECT_EQ(through(DType::I8, -128.9), -128);
  EXPECT_EQ(through(DType::I8, 1e9), 127);
  EXPECT_EQ(through(DType::I8, -kInf), -128);
  EXPECT_EQ(through(DType::U8, -0.9), 0);
  EXPECT_EQ(through(DType::U8, -5), 0);
  EXPECT_EQ(through(DType::U8, 255.99), 255);
  EXPECT_EQ(through(DType::U8, kInf), 255);
  EXPECT_EQ(through(DType::I32, 2147483647.0), 2147483647);
  EXPECT_EQ(through(DType::I32, 2147483648.0), 2147483647);
  EXPECT_EQ(through(DType::I32, -2147483649.0), INT32_MIN);
  EXPECT_EQ(through(DType::I64, 9223372036854775808.0), INT64_MAX);
  EXPECT_EQ(through(DType::I64, -9223372036854775808.0), INT64_MIN);
  EXPECT_EQ(through(DType::I64, kInf), INT64_MAX);
  EXPECT_EQ(through(DType::I64, 9223371487098961920.0f), 9223371487098961920);
  for (DType t : {DType::I8, DType::U8, DType::I32, DType::I64})
    EXPECT_EQ(through(t, kNan), 0);
  EXPECT_EQ(through(DType::Bool, kNan), 1);
  EXPECT_EQ(through(DType::Bool, -0.0), 0);
  EXPECT_EQ(through(DType::Bool, 0.25), 1);
}

TEST(Convert, IntegersWrapAndRoundOnce) {
  auto through = [](DType t, int64_t v) {
    int64_t bits = 0;
    storeInteger(&bits, t, 0, v);
    return loadInteger(&bits, t, 0);
  };
  EXPECT_EQ(through(DType::I8, 128), -128);
  EXPECT_EQ(through(DType::I8, -129), 127);
  EXPECT_EQ(through(DType::U8, -1), 255);
  EXPECT_EQ(through(DType::U8, 256), 0);
  EXPECT_EQ(through(DType::I32, int64_t{1} << 31), INT32_MIN);
  EXPECT_EQ(through(DType::Bool, 256), 1);
  // 2^24 + 2^16 lies midway between two bf16; one more decides, and f32 would lose it.
  uint16_t code;
  const int64_t middle = (int64_t{1} << 24) + (int64_t{1} << 16);
  storeInteger(&code, DType::BF16, 0, middle);
  EXPECT_EQ(bf16ToF32(code), 16777216);
  storeInteger(&code, DType::BF16, 0, middle + 1);
  EXPECT_EQ(bf16ToF32(code), 16777216 + 131072);
  storeInteger(&code, DType::BF16, 0, -middle - 1);
  EXPECT_EQ(bf16ToF32(code), -16777216 - 131072);
  storeInteger(&code, DType::F16, 0, 65519);
  EXPECT_EQ(f16ToF32(code), 65504);
  storeInteger(&code, DType::F16, 0, 65520);
  EXPECT_EQ(f16ToF32(code), kInf);
  storeInteger(&code, DType::BF16, 0, INT64_MIN);
  EXPECT_EQ(bf16ToF32(code), -9223372036854775808.0f);
  uint8_t f8;
  storeInteger(&f8, DType::F8E4M3, 0, INT64_MIN);
  EXPECT_EQ(f8e4m3ToF32(f8), -448);
  // The same of a double that f32 rounds onto a midpoint.
  storeElement(&code, DType::BF16, 0, 1 + std::ldexp(1.0, -8) + std::ldexp(1.0, -40));
  EXPECT_EQ(bf16ToF32(code), 1 + std::ldexp(1.0f, -7));
  storeElement(&code, DType::BF16, 0, 1 + std::ldexp(1.0, -8) - std::ldexp(1.0, -40));
  EXPECT_EQ(bf16ToF32(code), 1);
  storeElement(&code, DType::BF16, 0, 1e300);
  EXPECT_EQ(bf16ToF32(code), kInf);
  storeElement(&code, DType::F16, 0, -1e-300);
  EXPECT_EQ(code, 0x8000);
}
