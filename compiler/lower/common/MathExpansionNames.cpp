// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Names and operand counts of the functions, apart from the expansion so that they link without MLIR.
#include "compiler/lower/common/MathExpansion.h"

#include <cstddef>

namespace rl {

int mathArity(MathFn fn) {
  switch (fn) {
  case MathFn::Div:
  case MathFn::Pow:
  case MathFn::Atan2:
  case MathFn::Fmod:
  case MathFn::Remainder:
  case MathFn::FloorDivide:
  case MathFn::Quotient:
  case MathFn::FloorQuotient: return 2;
  default: return 1;
  }
}

const char *mathName(MathFn fn) {
  static constexpr const char *names[] = {"exp",        "exp2",
                                          "expm1",      "log",
                                          "log2",       "log1p",
                                          "sqrt",       "rsqrt",
                                          "reciprocal", "div",
                                          "sin",        "cos",
                                          "tanh",       "sigmoid",
                                          "silu",       "softplus",
                                          "erf",        "gelu_erf",
                                          "gelu_tanh",  "pow",
                                          "atan2",      "fmod",
                                          "remainder",  "floor_divide",
                                          "quotient",   "floor_quotient",
                                          "root"};
  return names[static_cast<size_t>(fn)];
}

} // namespace rl
