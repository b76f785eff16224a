// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Generated op definitions, how ops print, and the literal.
#include "ir/dialect/Ridge.h"

#include "mlir/IR/Builders.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace mlir::ridge;

/// A scalar prints without its type: `true`, `3`, `3.000000e+00`. Only a float that prints as bits (NaN, infinities)
/// needs the type, since bits alone read back as an integer.
static ParseResult parseScalar(OpAsmParser &parser, Attribute &attr) {
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseAttribute(attr))
    return failure();
  if (!isScalarAttr(attr))
    return parser.emitError(loc, "expected a boolean, an i64 or an f64");
  return success();
}

static void printScalar(OpAsmPrinter &printer, Operation *, Attribute attr) {
  if (auto f = dyn_cast<FloatAttr>(attr)) {
    printer << f.getValue();
    if (!f.getValue().isFinite())
      printer << " : f64";
  } else if (auto b = dyn_cast<BoolAttr>(attr)) {
    printer << (b.getValue() ? "true" : "false");
  } else {
    printer << cast<IntegerAttr>(attr).getInt();
  }
}

#define GET_OP_CLASSES
#include "ir/dialect/RidgeOps.cpp.inc"

void RidgeDialect::registerOps() {
  addOperations<
#define GET_OP_LIST
#include "ir/dialect/RidgeOps.cpp.inc"
      >();
}

//===-- Names ---------------------------------------------------------------------------------------------------===//

StringRef mlir::ridge::valueName(Value value) {
  // Groups do not nest, but a name may pass through several of them, one after the other.
  for (;;) {
    if (auto arg = dyn_cast<BlockArgument>(value)) {
      Operation *parent = arg.getOwner()->getParentOp();
      if (auto group = dyn_cast_or_null<GroupOp>(parent)) {
        if (arg.getArgNumber() >= group.getInputs().size())
          return {};
        value = group.getInputs()[arg.getArgNumber()];
        continue;
      }
      auto function = dyn_cast_or_null<FunctionOpInterface>(parent);
      if (!function || arg.getArgNumber() >= function.getNumArguments())
        return {};
      auto name = function.getArgAttrOfType<StringAttr>(arg.getArgNumber(), kNameAttr);
      return name ? name.getValue() : StringRef();
    }
    auto result = cast<OpResult>(value);
    Operation *op = result.getOwner();
    if (auto group = dyn_cast<GroupOp>(op)) {
      // Names are asked for in diagnostics too, of ops that do not verify.
      if (group.getBody().empty())
        return {};
      Block &block = group.getBody().front();
      if (block.empty() || result.getResultNumber() >= block.back().getNumOperands())
        return {};
      value = block.back().getOperand(result.getResultNumber());
      continue;
    }
    if (result.getResultNumber() != 0)
      return {};
    auto name = op->getAttrOfType<StringAttr>(kNameAttr);
    return name ? name.getValue() : StringRef();
  }
}

void mlir::ridge::nameResults(Operation *op, OpAsmSetValueNameFn setName) {
  if (auto name = op->getAttrOfType<StringAttr>(kNameAttr); name && op->getNumResults() > 0)
    setName(op->getResult(0), name.getValue());
}

//===-- Literal -------------------------------------------------------------------------------------------------===//

LogicalResult LiteralOp::inferReturnTypes(MLIRContext *context, std::optional<Location> location, ValueRange operands,
                                          DictionaryAttr attributes, OpaqueProperties properties, RegionRange regions,
                                          SmallVectorImpl<Type> &types) {
  Attribute value = Adaptor(operands, attributes, properties, regions).getValue();
  if (!isScalarAttr(value))
    return emitOptionalError(location, "a literal is a boolean, an i64 or an f64");
  Type element = isa<FloatAttr>(value) ? Type(Float32Type::get(context)) : cast<IntegerAttr>(value).getType();
  types.push_back(RankedTensorType::get({}, element));
  return success();
}

void LiteralOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  if ((*this)->getNumResults() > 0)
    setName((*this)->getResult(0), "lit");
}

LogicalResult LiteralOp::verify() {
  for (Operation *user : getResult().getUsers())
    if (user->getDialect() != (*this)->getDialect() || isa<GroupOp, YieldOp>(user))
      return emitOpError() << "is an operand of '" << user->getName()
                           << "', which takes tensors only; a group has its literals in its body";
  return success();
}
