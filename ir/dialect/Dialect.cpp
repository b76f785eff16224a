// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The dialect itself: types, enums, attributes, and checks of the attributes that it puts on functions and ops.
#include "ir/dialect/Ridge.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::ridge;

#include "ir/dialect/RidgeDialect.cpp.inc"
#include "ir/dialect/RidgeEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "ir/dialect/RidgeAttrs.cpp.inc"

void RidgeDialect::initialize() {
  registerOps();
  registerAttrs();
}

void RidgeDialect::registerAttrs() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "ir/dialect/RidgeAttrs.cpp.inc"
      >();
}

//===-- Types and scalars ---------------------------------------------------------------------------------------===//

std::optional<rl::DType> mlir::ridge::toDType(Type type) {
  using rl::DType;
  return llvm::TypeSwitch<Type, std::optional<DType>>(type)
      .Case([](Float32Type) { return DType::F32; })
      .Case([](Float16Type) { return DType::F16; })
      .Case([](BFloat16Type) { return DType::BF16; })
      .Case([](Float8E4M3FNType) { return DType::F8E4M3; })
      .Case([](Float8E5M2Type) { return DType::F8E5M2; })
      .Case([](Float8E8M0FNUType) { return DType::F8E8M0; })
      .Case([](IntegerType t) -> std::optional<DType> {
        if (t.isUnsignedInteger(8))
          return DType::U8;
        if (!t.isSignless())
          return std::nullopt;
        switch (t.getWidth()) {
        case 1: return DType::Bool;
        case 8: return DType::I8;
        case 32: return DType::I32;
        case 64: return DType::I64;
        default: return std::nullopt;
        }
      })
      .Default([](Type) { return std::nullopt; });
}

Type mlir::ridge::toMlirType(MLIRContext *context, rl::DType dtype) {
  using rl::DType;
  switch (dtype) {
  case DType::F32: return Float32Type::get(context);
  case DType::F16: return Float16Type::get(context);
  case DType::BF16: return BFloat16Type::get(context);
  case DType::F8E4M3: return Float8E4M3FNType::get(context);
  case DType::F8E5M2: return Float8E5M2Type::get(context);
  case DType::F8E8M0: return Float8E8M0FNUType::get(context);
  case DType::I8: return IntegerType::get(context, 8);
  case DType::U8: return IntegerType::get(context, 8, IntegerType::Unsigned);
  case DType::I32: return IntegerType::get(context, 32);
  case DType::I64: return IntegerType::get(context, 64);
  case DType::Bool: return IntegerType::get(context, 1);
  }
  llvm_unreachable("not an element type");
}

std::optional<rl::TensorType> mlir::ridge::toTensorType(Type type) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor || !tensor.hasStaticShape() || tensor.getRank() > 8 || tensor.getEncoding())
    return std::nullopt;
  auto dtype = toDType(tensor.getElementType());
  if (!dtype)
    return std::nullopt;
  return rl::TensorType{*dtype, {tensor.getShape().begin(), tensor.getShape().end()}};
}

RankedTensorType mlir::ridge::toMlirType(MLIRContext *context, const rl::TensorType &type) {
  return RankedTensorType::get(type.shape, toMlirType(context, type.dtype));
}

bool mlir::ridge::isScalarAttr(Attribute attr) {
  if (auto f = dyn_cast_or_null<FloatAttr>(attr))
    return f.getType().isF64();
  if (auto i = dyn_cast_or_null<IntegerAttr>(attr))
    return i.getType().isSignlessInteger(1) || i.getType().isSignlessInteger(64);
  return false;
}

rl::Scalar mlir::ridge::toScalar(Attribute attr) {
  rl::Scalar scalar;
  if (auto f = dyn_cast<FloatAttr>(attr)) {
    scalar.kind = rl::Scalar::Float;
    scalar.f = f.getValueAsDouble();
  } else if (auto b = dyn_cast<BoolAttr>(attr)) {
    scalar.kind = rl::Scalar::Bool;
    scalar.i = b.getValue();
  } else {
    scalar.kind = rl::Scalar::Int;
    scalar.i = cast<IntegerAttr>(attr).getInt();
  }
  return scalar;
}

Attribute mlir::ridge::toAttribute(MLIRContext *context, const rl::Scalar &scalar) {
  switch (scalar.kind) {
  case rl::Scalar::Bool: return BoolAttr::get(context, scalar.i != 0);
  case rl::Scalar::Int: return IntegerAttr::get(IntegerType::get(context, 64), scalar.i);
  case rl::Scalar::Float: return FloatAttr::get(Float64Type::get(context), scalar.f);
  }
  llvm_unreachable("not a kind of scalar");
}

//===-- Granularity ---------------------------------------------------------------------------------------------===//

Attribute GranularityAttr::parse(AsmParser &parser, Type) {
  using rl::Granularity;
  StringRef keyword;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess() || parser.parseKeyword(&keyword))
    return {};
  Granularity kind = Granularity::Tensor;
  int64_t axis = 0, rows = 1, columns = 1;
  if (keyword == "axis") {
    kind = Granularity::Axis;
    if (parser.parseInteger(axis))
      return {};
  } else if (keyword == "token") {
    kind = Granularity::Token;
  } else if (keyword == "block") {
    kind = Granularity::Block;
    if (parser.parseInteger(rows) || parser.parseKeyword("by") || parser.parseInteger(columns))
      return {};
  } else if (keyword != "tensor") {
    parser.emitError(loc, "expected tensor, axis, token or block");
    return {};
  }
  if (parser.parseGreater())
    return {};
  return GranularityAttr::get(parser.getContext(), kind, axis, rows, columns);
}

void GranularityAttr::print(AsmPrinter &printer) const {
  using rl::Granularity;
  switch (getKind()) {
  case Granularity::Tensor: printer << "<tensor>"; return;
  case Granularity::Axis: printer << "<axis " << getAxis() << ">"; return;
  case Granularity::Token: printer << "<token>"; return;
  case Granularity::Block: printer << "<block " << getRows() << " by " << getColumns() << ">"; return;
  }
}

//===-- Attributes on functions and ops -------------------------------------------------------------------------===//

template <class T> static LogicalResult expect(Operation *op, NamedAttribute attr, const char *what) {
  if (isa<T>(attr.getValue()))
    return success();
  return op->emitError() << "'" << attr.getName().getValue() << "' must be " << what;
}

LogicalResult RidgeDialect::verifyOperationAttribute(Operation *op, NamedAttribute attr) {
  StringRef name = attr.getName().getValue();
  if (name == kStrictAttr) {
    if (!isa<FunctionOpInterface>(op))
      return op->emitError() << "'" << name << "' belongs on a function";
    return expect<UnitAttr>(op, attr, "a unit attribute");
  }
  if (name == kNodeAttr) {
    auto index = dyn_cast<IntegerAttr>(attr.getValue());
    if (!index || !index.getType().isSignlessInteger(64) || index.getInt() < 0)
      return op->emitError() << "'" << name << "' must be a non-negative i64";
    return success();
  }
  if (name == kFastAttr || name == kRoundedAttr)
    return expect<UnitAttr>(op, attr, "a unit attribute");
  if (name == kNameAttr || name == kSourceAttr)
    return expect<StringAttr>(op, attr, "a string");
  if (name == kPrecisionAttr) {
    auto type = dyn_cast<TypeAttr>(attr.getValue());
    if (!type || !toDType(type.getValue()))
      return op->emitError() << "'" << name << "' must be an element type of the graph format";
  }
  return success();
}

LogicalResult RidgeDialect::verifyRegionArgAttribute(Operation *op, unsigned, unsigned, NamedAttribute attr) {
  StringRef name = attr.getName().getValue();
  if (name == kNameAttr)
    return expect<StringAttr>(op, attr, "a string");
  if (name == kParameterAttr)
    return expect<UnitAttr>(op, attr, "a unit attribute");
  return op->emitError() << "unknown argument attribute '" << name << "'";
}

LogicalResult RidgeDialect::verifyRegionResultAttribute(Operation *op, unsigned, unsigned, NamedAttribute attr) {
  StringRef name = attr.getName().getValue();
  if (name == kNameAttr)
    return expect<StringAttr>(op, attr, "a string");
  return op->emitError() << "unknown result attribute '" << name << "'";
}
