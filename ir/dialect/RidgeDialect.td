// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The `ridge` dialect: tensors as values, one op a class of operations. Its types are the builtin ranked tensors.
#ifndef RIDGE_DIALECT_TD
#define RIDGE_DIALECT_TD

include "mlir/IR/OpBase.td"

def Ridge_Dialect : Dialect {
  let name = "ridge";
  let cppNamespace = "::mlir::ridge";
  let summary = "Tensor graphs before and after fusion";
  let description = [{
    Every op of the graph format, on dense tensors of known extents, and `ridge.group`, a set of ops that becomes one
    kernel. A graph is a `func.func`. Attributes of the dialect on it and its ops:

    * on the function: `ridge.strict` (unit) where every node's result is rounded to its type;
    * on its arguments: `ridge.name` (string), `ridge.parameter` (unit); on its results: `ridge.name`;
    * on ops: `ridge.node` (i64, the place in the graph file's nodes), `ridge.name` (string, the first output's name),
      `ridge.source` (string, free text from the file), `ridge.precision` (type, the node's pinned precision).
  }];
  let useDefaultAttributePrinterParser = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let hasRegionResultAttrVerify = 1;
  let extraClassDeclaration = [{
    void registerOps();
    void registerAttrs();
  }];
}

#endif
