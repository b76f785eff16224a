// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Enums and attributes. Their cases are those of ir/graph/Ops.def in its order; OpModel.cpp holds the two together.
#ifndef RIDGE_ATTRS_TD
#define RIDGE_ATTRS_TD

include "ir/dialect/RidgeDialect.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"

def Ridge_MapFn : I32EnumAttr<"MapFn", "an elementwise function", [
    I32EnumAttrCase<"Abs", 0, "abs">, I32EnumAttrCase<"Neg", 1, "neg">, I32EnumAttrCase<"Sign", 2, "sign">,
    I32EnumAttrCase<"Exp", 3, "exp">, I32EnumAttrCase<"Exp2", 4, "exp2">, I32EnumAttrCase<"Expm1", 5, "expm1">,
    I32EnumAttrCase<"Log", 6, "log">, I32EnumAttrCase<"Log2", 7, "log2">, I32EnumAttrCase<"Log1p", 8, "log1p">,
    I32EnumAttrCase<"Sqrt", 9, "sqrt">, I32EnumAttrCase<"Rsqrt", 10, "rsqrt">,
    I32EnumAttrCase<"Reciprocal", 11, "reciprocal">, I32EnumAttrCase<"Square", 12, "square">,
    I32EnumAttrCase<"Sin", 13, "sin">, I32EnumAttrCase<"Cos", 14, "cos">, I32EnumAttrCase<"Tanh", 15, "tanh">,
    I32EnumAttrCase<"Sigmoid", 16, "sigmoid">, I32EnumAttrCase<"Erf", 17, "erf">, I32EnumAttrCase<"Relu", 18, "relu">,
    I32EnumAttrCase<"Silu", 19, "silu">, I32EnumAttrCase<"Softplus", 20, "softplus">,
    I32EnumAttrCase<"Floor", 21, "floor">, I32EnumAttrCase<"Ceil", 22, "ceil">, I32EnumAttrCase<"Round", 23, "round">,
    I32EnumAttrCase<"Trunc", 24, "trunc">, I32EnumAttrCase<"IsNan", 25, "isnan">,
    I32EnumAttrCase<"IsInf", 26, "isinf">, I32EnumAttrCase<"IsFinite", 27, "isfinite">,
    I32EnumAttrCase<"LogicalNot", 28, "logical_not">, I32EnumAttrCase<"BitwiseNot", 29, "bitwise_not">,
    I32EnumAttrCase<"Gelu", 30, "gelu">, I32EnumAttrCase<"Cast", 31, "cast">, I32EnumAttrCase<"Clamp", 32, "clamp">,
    I32EnumAttrCase<"Add", 33, "add">, I32EnumAttrCase<"Sub", 34, "sub">, I32EnumAttrCase<"Mul", 35, "mul">,
    I32EnumAttrCase<"Div", 36, "div">, I32EnumAttrCase<"FloorDivide", 37, "floor_divide">,
    I32EnumAttrCase<"Fmod", 38, "fmod">, I32EnumAttrCase<"Remainder", 39, "remainder">,
    I32EnumAttrCase<"Pow", 40, "pow">, I32EnumAttrCase<"Atan2", 41, "atan2">,
    I32EnumAttrCase<"Maximum", 42, "maximum">, I32EnumAttrCase<"Minimum", 43, "minimum">,
    I32EnumAttrCase<"Eq", 44, "eq">, I32EnumAttrCase<"Ne", 45, "ne">, I32EnumAttrCase<"Lt", 46, "lt">,
    I32EnumAttrCase<"Le", 47, "le">, I32EnumAttrCase<"Gt", 48, "gt">, I32EnumAttrCase<"Ge", 49, "ge">,
    I32EnumAttrCase<"LogicalAnd", 50, "logical_and">, I32EnumAttrCase<"LogicalOr", 51, "logical_or">,
    I32EnumAttrCase<"LogicalXor", 52, "logical_xor">, I32EnumAttrCase<"BitwiseAnd", 53, "bitwise_and">,
    I32EnumAttrCase<"BitwiseOr", 54, "bitwise_or">, I32EnumAttrCase<"BitwiseXor", 55, "bitwise_xor">,
    I32EnumAttrCase<"Where", 56, "where">
]> {
  let cppNamespace = "::mlir::ridge";
  let genSpecializedAttr = 0;
}

def Ridge_ReduceFn : I32EnumAttr<"ReduceFn", "a reduction", [
    I32EnumAttrCase<"Sum", 0, "sum">, I32EnumAttrCase<"Mean", 1, "mean">, I32EnumAttrCase<"Amax", 2, "amax">,
    I32EnumAttrCase<"Amin", 3, "amin">, I32EnumAttrCase<"Prod", 4, "prod">, I32EnumAttrCase<"Any", 5, "any">,
    I32EnumAttrCase<"All", 6, "all">, I32EnumAttrCase<"Var", 7, "var">, I32EnumAttrCase<"LogSumExp", 8, "logsumexp">,
    I32EnumAttrCase<"ArgMax", 9, "argmax">, I32EnumAttrCase<"ArgMin", 10, "argmin">
]> {
  let cppNamespace = "::mlir::ridge";
  let genSpecializedAttr = 0;
}

def Ridge_GatherKind : I32EnumAttr<"GatherKind", "which indexing rule", [
    I32EnumAttrCase<"Embedding", 0, "embedding">, I32EnumAttrCase<"IndexSelect", 1, "index_select">,
    I32EnumAttrCase<"Gather", 2, "gather">
]> {
  let cppNamespace = "::mlir::ridge";
  let genSpecializedAttr = 0;
}

class Ridge_EnumAttr<EnumInfo info, string mnemonic> : EnumAttr<Ridge_Dialect, info, mnemonic> {
  let assemblyFormat = "$value";
}
def Ridge_MapFnAttr : Ridge_EnumAttr<Ridge_MapFn, "map_fn">;
def Ridge_ReduceFnAttr : Ridge_EnumAttr<Ridge_ReduceFn, "reduce_fn">;
def Ridge_GatherKindAttr : Ridge_EnumAttr<Ridge_GatherKind, "gather_kind">;

def Ridge_GranularityAttr : AttrDef<Ridge_Dialect, "Granularity"> {
  let mnemonic = "granularity";
  let summary = "which elements of a quantised tensor share a scale";
  let description = [{
    `<tensor>`: all; `<axis 1>`: those with the same index along that axis; `<token>`: a row of the last dimension;
    `<block 128 x 128>`: tiles of rows x columns of the last two dimensions.
  }];
  let parameters = (ins "::rl::Granularity":$kind, "int64_t":$axis, "int64_t":$rows, "int64_t":$columns);
  let hasCustomAssemblyFormat = 1;
}

/// A weakly typed number: a boolean, an i64 or an f64.
def Ridge_ScalarAttr : Attr<CPred<"::mlir::ridge::isScalarAttr($_self)">, "boolean, i64 or f64 attribute"> {
  let storageType = [{ ::mlir::Attribute }];
  let returnType = [{ ::mlir::Attribute }];
  let convertFromStorage = "$_self";
}

#endif
