// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a graph must give, from the reference interpreter, in one of two ways.
//
// Exactly: strict graphs, and fused ones whose every 16-bit float is an input or comes from a cast, creation or layout op.
// The interpreter evaluates node by node; a function that the format lets be inexact (isTranscendental) is instead run as a
// graph of its own on the device under test, once its results have been held against the interpreter's within the format's
// bounds. The fused graph must then give the same bits (NaN for NaN): "a fused run equals the op-by-op run bit for bit".
//
// Within bounds: fused graphs with 16-bit arithmetic, whose intermediate results may be rounded or not. Every value is an
// interval per element: what the op's operands may be, and what the op may then give, rounded and unrounded, with the
// format's error added where the op may be inexact. See Ranges.cpp.
#pragma once

#include "tests/numeric/support/Device.h"
#include "tests/numeric/support/RandomData.h"

#include <map>

namespace rl::numeric {

/// One node of a graph by the interpreter. `operands`: one a node's operand, null for a literal; their types may differ from
/// the graph's where the op gives a result for them.
Result<HostTensor> evaluateNode(const Graph &, NodeId, const std::vector<const HostTensor *> &operands);

/// Values that a tensor's elements may have.
struct Expected {
  TensorType type;
  bool exact = true;
  HostTensor lo, hi;             ///< exact: lo alone, in the tensor's own type; else floats as f32
  std::vector<uint8_t> mayBeNan; ///< not exact: NaN is allowed beside lo .. hi
};

/// Whether the graph's results are determined bit by bit, given the device's functions.
bool isDetermined(const Graph &);

class Oracle {
public:
  explicit Oracle(Device &device) : device(device) {}
  /// In the order of the graph's outputs. An error is a failure of the device's own functions or of the interpreter.
  Result<std::vector<Expected>> expect(const Graph &, const Case &);
  /// `bounds` forces intervals even where the graph is determined.
  Result<std::vector<Expected>> expectBounds(const Graph &, const Case &);

private:
  Result<HostTensor> onDevice(const Graph &, NodeId, const std::vector<const HostTensor *> &operands);

  Device &device;
  std::map<std::string, std::unique_ptr<Module>> functions;
};

/// "" where `got` is allowed, else the first element that is not, with how many there are.
std::string mismatch(const Expected &, const HostTensor &got);

/// The place of an f32 or 16-bit float among the values of its type: neighbours differ by one, both zeros are 0.
int64_t ordinal(DType, const void *element);
/// The value `steps` places further, as f32; stops at infinity. NaN stays NaN.
float stepped(DType, float, int64_t steps);
/// Rounds to the type and back.
float roundedTo(DType, float);

/// The largest distance that an inexact op's result may have from the exact one rounded once, in places of f32.
inline constexpr int64_t kUlps = 5; // the format's 4, and half each for what is compared

Result<std::vector<Expected>> evaluateRanges(const Graph &, const Case &);

} // namespace rl::numeric
