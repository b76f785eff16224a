// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the math expansion is held against: references in double (libm), test points, and the judgement of results.
// Shared by the test on the CPU and the one on a GPU.
#pragma once

#include "compiler/lower/common/MathExpansion.h"
#include "runtime/base/DType.h"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace rl::mathtest {

/// fn(x, y) as a double; for Sqrt, Div, Fmod, Remainder, FloorDivide and their like the f32 that must come out.
double reference(MathFn fn, float x, float y);
bool isExact(MathFn fn); ///< one of those five

struct Points {
  std::vector<float> x, y; ///< y empty for unary functions; the length is a multiple of 64
};
/// At least 2 million points: edges and their neighbours, every exponent with 2,048 mantissas, and the function's
/// interesting ranges at random (with a fixed seed). Pairs likewise.
Points pointsFor(MathFn fn);
/// All 65,536 patterns of the type; for binary functions each with one pattern at random and one of a near exponent.
struct Patterns {
  std::vector<uint16_t> x, y;
};
Patterns patternsFor(MathFn fn, DType type);

struct Tally {
  int64_t points = 0;
  double maxUlp = 0;      ///< infinite where a result is wrong in kind: NaN, infinity, zero, sign
  int64_t misrounded = 0; ///< 16-bit types: not correctly rounded
  int64_t maxSteps = 0;   ///< and by how many steps at most; INT64_MAX where wrong in kind
  std::string worst;      ///< "f(x, y) = got, not want"
};
/// Judges f32 results, in units of the last place of the exact result (2^-149 at least).
Tally judge(MathFn fn, const Points &points, const std::vector<float> &results);
/// Judges 16-bit results against the exact result rounded once.
Tally judge(MathFn fn, DType type, const Patterns &patterns, const std::vector<uint16_t> &results);
/// Judges f32 results that are to be rounded to a 16-bit type, likewise.
Tally judgeRounded(MathFn fn, DType type, const Points &points, const std::vector<float> &results);
/// Judges a unary function on all 2^32 operands, with every core. `run` fills the results of the operands.
Tally judgeAll(MathFn fn, const std::function<void(const std::vector<float> &x, std::vector<float> &results)> &run);

} // namespace rl::mathtest
