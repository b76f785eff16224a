// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The `ridge` dialect: its enums, attributes and ops, and how its types and scalars correspond to the graph's. Heavy:
// it pulls in what MLIR's op definitions need, so headers of other components do not include it.
#pragma once

#include "ir/graph/Graph.h"

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace mlir::ridge {

/// Names of the dialect's discardable attributes.
inline constexpr llvm::StringLiteral kStrictAttr = "ridge.strict";       ///< function: unit
inline constexpr llvm::StringLiteral kParameterAttr = "ridge.parameter"; ///< function argument: unit
inline constexpr llvm::StringLiteral kNameAttr = "ridge.name";           ///< op, function argument or result: string
inline constexpr llvm::StringLiteral kNodeAttr = "ridge.node";           ///< op: i64, place in GraphSpec::nodes
inline constexpr llvm::StringLiteral kSourceAttr = "ridge.source";       ///< op: string
inline constexpr llvm::StringLiteral kPrecisionAttr = "ridge.precision"; ///< op: type
/// Op: unit. Made by a pass; a cheaper form of the function, as accurate as what follows needs it: see rl::Attrs::fast.
inline constexpr llvm::StringLiteral kFastAttr = "ridge.fast";
inline constexpr llvm::StringLiteral kRoundedAttr = "ridge.rounded"; ///< op in a group: unit; see rl::Attrs::rounded
/// Function that is grouped: i64, what its ops would move as a kernel each.
inline constexpr llvm::StringLiteral kUnfusedBytesAttr = "ridge.bytes_unfused";

/// The element type of the format that `type` is, if it is one. i8 is signless, u8 is ui8, bool is i1.
std::optional<rl::DType> toDType(Type type);
Type toMlirType(MLIRContext *context, rl::DType dtype);
/// A statically shaped tensor of rank 0 to 8 of an element type of the format, else nothing.
std::optional<rl::TensorType> toTensorType(Type type);
RankedTensorType toMlirType(MLIRContext *context, const rl::TensorType &type);

/// A scalar is a BoolAttr, an i64 IntegerAttr or an f64 FloatAttr.
bool isScalarAttr(Attribute attr);
rl::Scalar toScalar(Attribute attr);
Attribute toAttribute(MLIRContext *context, const rl::Scalar &scalar);

/// Asks rl::inferResults whether the op is well formed and its result types are right.
LogicalResult verifyCompute(Operation *op);
/// Names results after `ridge.name` in printed IR.
void nameResults(Operation *op, OpAsmSetValueNameFn setName);
/// A value's name in the graph file: of a node's first output, of a function's argument, of what a group's argument or
/// result stands for. Empty where there is none.
StringRef valueName(Value value);

} // namespace mlir::ridge

#include "ir/dialect/RidgeDialect.h.inc"
#include "ir/dialect/RidgeEnums.h.inc"
#define GET_ATTRDEF_CLASSES
#include "ir/dialect/RidgeAttrs.h.inc"
#define GET_OP_CLASSES
#include "ir/dialect/RidgeOps.h.inc"
