// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// References, points and judgement of MathReference.h.
#include "tests/unit/MathReference.h"

#include "ir/interp/Convert.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <limits>
#include <numbers>
#include <random>
#include <thread>

namespace rl::mathtest {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr float kInfF = std::numeric_limits<float>::infinity();
constexpr float kNanF = std::numeric_limits<float>::quiet_NaN();

float floorDivide(float a, float b) {
  if (std::isinf(a) && b != 0)
    return kNanF;
  if (std::isinf(b) && a != 0 && !std::isnan(a))
    return std::signbit(a) != std::signbit(b) ? -1.0f : 0.0f;
  return static_cast<float>(std::floor(static_cast<double>(a) / static_cast<double>(b)));
}
float remainder(float a, float b) {
  float r = std::fmod(a, b);
  if (r == 0)
    return std::copysign(0.0f, b);
  return (r < 0) != (b < 0) ? r + b : r;
}

} // namespace

bool isExact(MathFn fn) {
  return fn == MathFn::Sqrt || fn == MathFn::Div || fn == MathFn::Fmod || fn == MathFn::Remainder ||
         fn == MathFn::FloorDivide || fn == MathFn::Quotient || fn == MathFn::FloorQuotient || fn == MathFn::Root;
}

double reference(MathFn fn, float xf, float yf) {
  double x = xf, y = yf;
  switch (fn) {
  case MathFn::Exp: return std::exp(x);
  case MathFn::Exp2: return std::exp2(x);
  case MathFn::Expm1: return std::expm1(x);
  case MathFn::Log: return std::log(x);
  case MathFn::Log2: return std::log2(x);
  case MathFn::Log1p: return std::log1p(x);
  case MathFn::Sqrt:
  case MathFn::Root: return std::sqrt(xf);
  case MathFn::Rsqrt: return 1 / std::sqrt(x);
  case MathFn::Reciprocal: return 1 / x;
  case MathFn::Div: return xf / yf;
  case MathFn::Sin: return std::sin(x);
  case MathFn::Cos: return std::cos(x);
  case MathFn::Tanh: return std::tanh(x);
  case MathFn::Sigmoid: return 1 / (1 + std::exp(-x));
  case MathFn::Silu: return x / (1 + std::exp(-x));
  case MathFn::Softplus: return std::isnan(x) ? x : std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x)));
  case MathFn::Erf: return std::erf(x);
  case MathFn::GeluErf: return 0.5 * x * std::erfc(-x / std::numbers::sqrt2);
  case MathFn::GeluTanh: // x/2 (1 + tanh u) without cancellation
    return x / (1 + std::exp(-2 * std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
  case MathFn::Pow: return std::pow(x, y);
  case MathFn::Atan2: return std::atan2(x, y);
  case MathFn::Fmod: return std::fmod(xf, yf);
  case MathFn::Remainder: return remainder(xf, yf);
  case MathFn::FloorDivide:
  case MathFn::FloorQuotient: return floorDivide(xf, yf);
  case MathFn::Quotient: return xf / yf;
  }
  return 0;
}

namespace {

class Source {
public:
  explicit Source(uint64_t seed) : engine(seed) {}
  uint32_t bits() { return static_cast<uint32_t>(engine() >> 32); }
  float any() { return std::bit_cast<float>(bits()); }
  double unit() { return static_cast<double>(engine() >> 11) * 0x1p-53; }
  float uniform(double lo, double hi) { return static_cast<float>(lo + (hi - lo) * unit()); }
  /// A random sign and mantissa, and an exponent in [lo, hi].
  float scaled(int lo, int hi) {
    uint32_t b = bits();
    return std::ldexp(std::bit_cast<float>((b & 0x807fffffu) | 0x3f800000u),
                      lo + static_cast<int>(engine() % (hi - lo + 1)));
  }

private:
  std::mt19937_64 engine;
};

/// Values at which something changes, in some function.
std::vector<float> edges() {
  std::vector<float> e = {0.0f,
                          kInfF,
                          kNanF,
                          std::numeric_limits<float>::denorm_min(),
                          std::numeric_limits<float>::min(),
                          std::nextafter(std::numeric_limits<float>::min(), 0.0f),
                          std::numeric_limits<float>::max(),
                          1.0f,
                          2.0f,
                          3.0f,
                          0.5f,
                          1.5f,
                          2.5f,
                          16777215.0f,
                          16777216.0f,
                          8388607.5f,
                          8388609.0f,
                          1e10f,
                          1e30f,
                          1e-30f};
  for (float centre :
       {1.0f,        0.65f,       0.5f,        1.0f / 3, 2.0f / 3,  4.0f / 3, 0.70710678f, 1.41421356f, 0.34657359f,
        88.722839f,  87.336548f,  103.97208f,  104.0f,   105.0f,    110.0f,   89.0f,       126.0f,      127.0f,
        128.0f,      149.0f,      150.0f,      151.0f,   10.0f,     11.0f,    14.5f,       4.0f,        25.0f,
        3.14159265f, 1.57079633f, 0.78539816f, 8192.0f,  131072.0f, 2.0f,     0x1p-24f,    0x1p-12f}) {
    float up = centre, down = centre;
    e.push_back(centre);
    for (int i = 0; i < 3; ++i) {
      e.push_back(up = std::nextafter(up, kInfF));
      e.push_back(down = std::nextafter(down, 0.0f));
    }
  }
  for (size_t i = 0, n = e.size(); i < n; ++i)
    e.push_back(-e[i]);
  return e;
}

float unaryPoint(MathFn fn, Source &s) {
  switch (fn) {
  case MathFn::Exp:
  case MathFn::Expm1:
  case MathFn::Sigmoid:
  case MathFn::Silu:
  case MathFn::Softplus: return s.bits() & 1 ? s.uniform(-110, 110) : s.uniform(-5, 5);
  case MathFn::Exp2: return s.uniform(-152, 130);
  case MathFn::Log:
  case MathFn::Log2: return s.bits() & 1 ? s.uniform(0.5, 2) : std::fabs(s.scaled(-149, 127));
  case MathFn::Log1p: return s.bits() & 1 ? s.uniform(-1, 2) : s.scaled(-30, 20);
  case MathFn::Sin:
  case MathFn::Cos:
    switch (s.bits() & 3) {
    case 0: return s.uniform(-10, 10);
    case 1: return s.scaled(17, 127);
    case 2: { // near multiples of pi/2
      float x = static_cast<float>(std::numbers::pi / 2 * (s.bits() & 0x1fff));
      return std::bit_cast<float>(std::bit_cast<uint32_t>(x) + (s.bits() & 7) - 3);
    }
    default: return s.uniform(-8192, 8192);
    }
  case MathFn::Tanh: return s.bits() & 1 ? s.uniform(-10, 10) : s.uniform(-1, 1);
  case MathFn::Erf: return s.uniform(-4.2, 4.2);
  case MathFn::GeluErf: return s.bits() & 1 ? s.uniform(-14.5, 0) : s.uniform(-2, 6);
  case MathFn::GeluTanh: return s.bits() & 1 ? s.uniform(-11, 0) : s.uniform(-2, 6);
  default: return s.any();
  }
}

void binaryPoint(MathFn fn, Source &s, float &x, float &y) {
  if (fn == MathFn::Pow) {
    switch (s.bits() % 5) {
    case 0: // results all over the range
      x = std::fabs(s.scaled(-149, 127));
      y = static_cast<float>((s.unit() * 300 - 150) / std::log2(static_cast<double>(x)));
      return;
    case 1: // bases near 1, large exponents
      x = 1 + s.scaled(-23, -4);
      y = static_cast<float>((s.unit() * 300 - 150) / std::log2(static_cast<double>(x)));
      return;
    case 2: // integers and halves, both signs
      x = s.scaled(-20, 20);
      y = 0.5f * static_cast<float>(static_cast<int>(s.bits() % 41) - 20);
      return;
    case 3:
      x = s.scaled(-3, 3);
      y = s.scaled(-10, 6);
      return;
    default:
      x = s.any();
      y = s.any();
      return;
    }
  }
  switch (s.bits() & 3) {
  case 0:
    x = s.any();
    y = s.any();
    return;
  case 1: // near exponents
    x = s.scaled(-10, 30);
    y = s.scaled(-10, 10);
    return;
  case 2: { // near multiples
    y = s.scaled(-20, 20);
    double multiple = static_cast<double>(y) * (s.bits() >> (s.bits() & 31));
    x = std::bit_cast<float>(std::bit_cast<uint32_t>(static_cast<float>(multiple)) + (s.bits() & 3) - 1);
    return;
  }
  default: // subnormals and the top of the range
    x = s.bits() & 1 ? s.scaled(-149, -120) : s.scaled(100, 127);
    y = s.bits() & 1 ? s.scaled(-149, -120) : s.scaled(100, 127);
  }
}

} // namespace

Points pointsFor(MathFn fn) {
  Points p;
  Source s(0x9e3779b97f4a7c15u + static_cast<uint64_t>(fn));
  std::vector<float> e = edges();
  if (mathArity(fn) == 1) {
    p.x = e;
    for (uint32_t sign = 0; sign < 2; ++sign)
      for (uint32_t exponent = 0; exponent < 255; ++exponent)
        for (uint32_t high = 0; high < 2048; ++high)
          p.x.push_back(std::bit_cast<float>(sign << 31 | exponent << 23 | high << 12 | (s.bits() & 0xfff)));
    while (p.x.size() < 2100000 || p.x.size() % 64)
      p.x.push_back(unaryPoint(fn, s));
    return p;
  }
  for (float x : e)
    for (float y : e) {
      p.x.push_back(x);
      p.y.push_back(y);
    }
  while (p.x.size() < 2100000 || p.x.size() % 64) {
    float x, y;
    binaryPoint(fn, s, x, y);
    p.x.push_back(x);
    p.y.push_back(y);
  }
  return p;
}

Patterns patternsFor(MathFn fn, DType type) {
  Patterns p;
  Source s(0xb5297a4d3f84d5b5u + static_cast<uint64_t>(fn));
  int mantissa = type == DType::F16 ? 10 : 7;
  for (uint32_t code = 0; code < 65536; ++code) {
    p.x.push_back(static_cast<uint16_t>(code));
    if (mathArity(fn) == 2) {
      p.x.push_back(static_cast<uint16_t>(code));
      p.y.push_back(static_cast<uint16_t>(s.bits()));
      p.y.push_back(static_cast<uint16_t>((code ^ (s.bits() & 0x8000)) + (s.bits() & 0x7ff) - (4u << mantissa)));
    }
  }
  return p;
}

namespace {

std::string describe(MathFn fn, float x, float y, double got, double want) {
  char text[200];
  if (mathArity(fn) == 2)
    std::snprintf(text, sizeof text, "%s(%a, %a) = %.9g, not %.9g", mathName(fn), x, y, got, want);
  else
    std::snprintf(text, sizeof text, "%s(%a = %.9g) = %.9g, not %.9g", mathName(fn), x, x, got, want);
  return text;
}

double ulpError(MathFn fn, float got, double want) {
  if (std::isnan(want) || std::isnan(got))
    return std::isnan(want) && std::isnan(got) ? 0 : kInf;
  if (isExact(fn))
    return got == want && std::signbit(got) == std::signbit(want) ? 0 : kInf;
  if (std::signbit(got) != std::signbit(want) || (want == 0 && got != 0) || (std::isinf(want) && !std::isinf(got)))
    return kInf;
  if (std::isinf(got)) // the exact result must round to infinity, or come within 4 ulp of that
    return std::fabs(want) > 0x1.fffff8p+127 ? 0 : kInf;
  if (want == 0)
    return 0;
  int exponent;
  std::frexp(std::min(std::fabs(want), 0x1.fffffep+127), &exponent);
  return std::fabs(got - want) / std::ldexp(1.0, std::max(exponent - 24, -149));
}

} // namespace

Tally judge(MathFn fn, const Points &p, const std::vector<float> &results) {
  Tally t;
  for (size_t i = 0; i < p.x.size(); ++i) {
    float y = p.y.empty() ? 0 : p.y[i];
    double want = reference(fn, p.x[i], y), error = ulpError(fn, results[i], want);
    ++t.points;
    if (error > t.maxUlp) {
      t.maxUlp = error;
      t.worst = describe(fn, p.x[i], y, results[i], want);
    }
  }
  return t;
}

namespace {

/// One 16-bit result, with the exact one.
void judgeCode(Tally &t, MathFn fn, DType type, float x, float y, uint16_t got) {
  auto ordered = [](uint16_t code) { return code & 0x8000 ? -static_cast<int64_t>(code & 0x7fff) : int64_t{code}; };
  auto value = [&](const uint16_t &code) { return static_cast<float>(loadElement(&code, type, 0)); };
  double exact = fn == MathFn::Sqrt || fn == MathFn::Root      ? std::sqrt(static_cast<double>(x))
                 : fn == MathFn::Div || fn == MathFn::Quotient ? static_cast<double>(x) / static_cast<double>(y)
                                                               : reference(fn, x, y);
  uint16_t want;
  storeElement(&want, type, 0, exact);
  ++t.points;
  if (got == want || (std::isnan(value(got)) && std::isnan(value(want))))
    return;
  bool wrongKind = std::isnan(value(got)) || std::isnan(value(want)) || (got ^ want) & 0x8000;
  int64_t steps = wrongKind ? std::numeric_limits<int64_t>::max() : std::abs(ordered(got) - ordered(want));
  ++t.misrounded;
  if (steps > t.maxSteps) {
    t.maxSteps = steps;
    t.worst = describe(fn, x, y, value(got), value(want));
  }
}

} // namespace

Tally judge(MathFn fn, DType type, const Patterns &p, const std::vector<uint16_t> &results) {
  auto value = [&](const uint16_t &code) { return static_cast<float>(loadElement(&code, type, 0)); };
  Tally t;
  for (size_t i = 0; i < p.x.size(); ++i)
    judgeCode(t, fn, type, value(p.x[i]), p.y.empty() ? 0 : value(p.y[i]), results[i]);
  return t;
}

Tally judgeRounded(MathFn fn, DType type, const Points &p, const std::vector<float> &results) {
  Tally t;
  for (size_t i = 0; i < p.x.size(); ++i)
    judgeCode(t, fn, type, p.x[i], p.y.empty() ? 0 : p.y[i],
              type == DType::F16 ? f32ToF16(results[i]) : f32ToBf16(results[i]));
  return t;
}

Tally judgeAll(MathFn fn, const std::function<void(const std::vector<float> &, std::vector<float> &)> &run) {
  constexpr uint64_t kChunk = 1u << 24;
  size_t threads = std::max(1u, std::thread::hardware_concurrency());
  Tally total;
  std::vector<float> x(kChunk), out(kChunk);
  for (uint64_t begin = 0; begin < uint64_t{1} << 32; begin += kChunk) {
    for (uint64_t i = 0; i < kChunk; ++i)
      x[i] = std::bit_cast<float>(static_cast<uint32_t>(begin + i));
    run(x, out);
    std::vector<Tally> tallies(threads);
    std::vector<std::thread> workers;
    for (size_t w = 0; w < threads; ++w)
      workers.emplace_back([&, w] {
        size_t lo = kChunk * w / threads, hi = kChunk * (w + 1) / threads;
        Points part;
        part.x.assign(x.begin() + lo, x.begin() + hi);
        tallies[w] = judge(fn, part, std::vector<float>(out.begin() + lo, out.begin() + hi));
      });
    for (size_t w = 0; w < threads; ++w) {
      workers[w].join();
      total.points += tallies[w].points;
      if (tallies[w].maxUlp > total.maxUlp) {
        total.maxUlp = tallies[w].maxUlp;
        total.worst = tallies[w].worst;
      }
    }
  }
  return total;
}

} // namespace rl::mathtest
