// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Quotients of which nothing but values of 8 bits is made: what quantises.
#pragma once

#include "passes/plan/Trace.h"

#include <vector>

namespace rl {

/// By instance: whether it is an f32 quotient all of whose users tell apart neither values beyond 2^20 nor values below 2^-64: casts
/// to f8 or i8; a clamp tells not the former, rounding to an integer not the latter.
std::vector<bool> narrowQuotients(const Graph &, const Trace &);

} // namespace rl
