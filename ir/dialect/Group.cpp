// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ridge.group: building, text form, checks, names.
#include "ir/dialect/Ridge.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace mlir::ridge;

void GroupOp::build(OpBuilder &builder, OperationState &state, TypeRange outputs, ValueRange inputs, StringRef kind) {
  state.addTypes(outputs);
  state.addOperands(inputs);
  state.getOrAddProperties<Properties>().kind = builder.getStringAttr(kind);
  Block &block = state.addRegion()->emplaceBlock();
  for (Value input : inputs)
    block.addArgument(input.getType(), input.getLoc());
}

// ridge.group "kind" (%a = %x : T, ...) -> T schedule {...} why [...] attributes {...} { body }
// Several or no results: -> (T, U), -> ().
ParseResult GroupOp::parse(OpAsmParser &parser, OperationState &state) {
  auto &properties = state.getOrAddProperties<Properties>();
  SmallVector<OpAsmParser::Argument> arguments;
  SmallVector<OpAsmParser::UnresolvedOperand> operands;
  auto parsePair = [&]() -> ParseResult {
    auto &argument = arguments.emplace_back();
    auto &operand = operands.emplace_back();
    return failure(parser.parseArgument(argument) || parser.parseEqual() || parser.parseOperand(operand) ||
                   parser.parseColonType(argument.type));
  };
  SMLoc kindLoc = parser.getCurrentLocation();
  std::string kind;
  if (failed(parser.parseOptionalString(&kind)))
    return parser.emitError(kindLoc, "expected the group's kind, a string");
  properties.kind = parser.getBuilder().getStringAttr(kind);
  SMLoc operandLoc = parser.getCurrentLocation();
  if (parser.parseCommaSeparatedList(OpAsmParser::Delimiter::Paren, parsePair))
    return failure();
  SmallVector<Type> types;
  for (auto &argument : arguments)
    types.push_back(argument.type);
  if (parser.resolveOperands(operands, types, operandLoc, state.operands))
    return failure();

  SmallVector<Type> outputs;
  if (parser.parseArrowTypeList(outputs))
    return failure();
  state.addTypes(outputs);

  if (succeeded(parser.parseOptionalKeyword("schedule")) && parser.parseAttribute(properties.schedule))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("why")) && parser.parseAttribute(properties.why))
    return failure();
  if (parser.parseOptionalAttrDictWithKeyword(state.attributes))
    return failure();
  return parser.parseRegion(*state.addRegion(), arguments);
}

void GroupOp::print(OpAsmPrinter &printer) {
  printer << ' ' << getKindAttr() << " (";
  llvm::interleaveComma(llvm::zip(getBody().getArguments(), getInputs()), printer, [&](auto pair) {
    auto [argument, input] = pair;
    printer << argument << " = " << input << " : " << input.getType();
  });
  printer << ")";
  printer.printArrowTypeList(getOutputs().getTypes());
  if (auto schedule = getScheduleAttr())
    printer << " schedule " << schedule;
  if (auto why = getWhyAttr())
    printer << " why " << why;
  printer.printOptionalAttrDictWithKeyword((*this)->getDiscardableAttrs().empty()
                                               ? ArrayRef<NamedAttribute>()
                                               : (*this)->getDiscardableAttrDictionary().getValue());
  printer << ' ';
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

LogicalResult GroupOp::verify() {
  if (getKind().empty())
    return emitOpError("has no kind");
  Block &block = getBody().front();
  if (block.getArgumentTypes() != getInputs().getTypes())
    return emitOpError("body arguments must have the types of the operands");
  auto yield = dyn_cast_or_null<YieldOp>(block.empty() ? nullptr : &block.back());
  if (!yield)
    return emitOpError("body must end in ridge.yield");
  if (yield.getValues().getTypes() != getOutputs().getTypes())
    return yield.emitOpError("must yield values of the group's result types");
  for (Operation &op : block)
    if (op.getDialect() != (*this)->getDialect() || isa<GroupOp>(op))
      return op.emitOpError("cannot be in a group: its body holds compute ops and literals of the ridge dialect");
  return success();
}

void GroupOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  for (Value output : getOutputs())
    if (StringRef name = valueName(output); !name.empty())
      setName(output, name);
}

void GroupOp::getAsmBlockArgumentNames(Region &region, OpAsmSetValueNameFn setName) {
  for (Value argument : region.getArguments())
    if (StringRef name = valueName(argument); !name.empty())
      setName(argument, name);
}
