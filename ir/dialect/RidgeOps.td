// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The ops of the graph format. What each computes, and which types and shapes it takes, is said by the format and
// decided by rl::inferResults, which every verifier here asks.
#ifndef RIDGE_OPS_TD
#define RIDGE_OPS_TD

include "ir/dialect/RidgeAttrs.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

/// The storage types of the format. i8 is signed, ui8 is u8, i1 is bool.
def Ridge_Tensor : RankedTensorOf<[F32, F16, BF16, F8E4M3FN, F8E5M2, F8E8M0FNU, I8, UI8, I32, I64, I1],
    [HasStaticShapePred], "statically shaped tensor of an element type of the graph format">;

class Ridge_Op<string mnemonic, list<Trait> traits = []> : Op<Ridge_Dialect, mnemonic, traits>;

/// An op that computes a tensor from tensors. Its results are named after `ridge.name` when printed.
class Ridge_ComputeOp<string mnemonic, list<Trait> traits = []>
    : Ridge_Op<mnemonic, !listconcat(
          [Pure, DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>], traits)> {
  let results = (outs Ridge_Tensor:$result);
  let hasVerifier = 1;
  let extraClassDefinition = [{
    ::llvm::LogicalResult $cppClass::verify() { return ::mlir::ridge::verifyCompute(getOperation()); }
    void $cppClass::getAsmResultNames(::mlir::OpAsmSetValueNameFn setName) {
      ::mlir::ridge::nameResults(getOperation(), setName);
    }
  }];
}

//===-- Elementwise ---------------------------------------------------------------------------------------------===//

def Ridge_MapOp : Ridge_ComputeOp<"map"> {
  let summary = "An elementwise function of tensors that broadcast to one shape";
  let description = [{
    `tanh`: gelu's approximation. `saturate`: cast to f8. `min`, `max`: clamp. An operand defined by `ridge.literal` is
    weakly typed.

    ```mlir
    %y = ridge.map add(%x, %c) : (tensor<4x8xbf16>, tensor<f32>) -> tensor<4x8xbf16>
    %z = ridge.map clamp(%y) {max = 1.0, min = 0.0} : (tensor<4x8xbf16>) -> tensor<4x8xbf16>
    ```
  }];
  let arguments = (ins Ridge_MapFnAttr:$fn, Variadic<Ridge_Tensor>:$inputs, UnitAttr:$tanh,
                       DefaultValuedAttr<BoolAttr, "true">:$saturate, OptionalAttr<Ridge_ScalarAttr>:$min,
                       OptionalAttr<Ridge_ScalarAttr>:$max);
  let assemblyFormat = [{
    $fn `(` $inputs `)` (`tanh` $tanh^)? attr-dict `:` functional-type($inputs, results)
  }];
  let hasFolder = 1;
}

def Ridge_LiteralOp : Ridge_Op<"literal", [Pure, DeclareOpInterfaceMethods<InferTypeOpInterface>,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "A scalar literal, weakly typed";
  let description = [{
    Stands for a number in the place of a tensor. It keeps the precision of the file (f64 or i64) and does not widen the
    type of what it meets; its own type, tensor<i1>, tensor<i64> or tensor<f32>, says which kind of number it is. Used
    by ops of this dialect only, and never an operand of a group: it is cloned into the group.

    ```mlir
    %c = ridge.literal 5.000000e-01
    ```
  }];
  let arguments = (ins Ridge_ScalarAttr:$value);
  let results = (outs Ridge_Tensor:$result);
  let assemblyFormat = "custom<Scalar>($value) attr-dict";
  let hasVerifier = 1;
}

//===-- Shape ---------------------------------------------------------------------------------------------------===//

def Ridge_ReshapeOp : Ridge_ComputeOp<"reshape"> {
  let summary = "The same elements in row-major order under another shape (reshape, squeeze, unsqueeze)";
  let arguments = (ins Ridge_Tensor:$input);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let hasFolder = 1;
}

def Ridge_PermuteOp : Ridge_ComputeOp<"permute"> {
  let summary = "Dimension i of the result is dimension dims[i] of the operand";
  let arguments = (ins Ridge_Tensor:$input, DenseI64ArrayAttr:$dims);
  let assemblyFormat = "$input `by` $dims attr-dict `:` type($input) `->` type($result)";
  let hasFolder = 1;
}

def Ridge_ExpandOp : Ridge_ComputeOp<"expand"> {
  let summary = "Broadcast to the result's shape";
  let arguments = (ins Ridge_Tensor:$input);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let hasFolder = 1;
}

def Ridge_SliceOp : Ridge_ComputeOp<"slice"> {
  let summary = "Elements start, start + step, ... along one dimension, as many as the result has";
  let arguments = (ins Ridge_Tensor:$input, I64Attr:$dim, I64Attr:$start, I64Attr:$step);
  let assemblyFormat = [{
    $input `dim` $dim `start` $start `step` $step attr-dict `:` type($input) `->` type($result)
  }];
  let hasFolder = 1;
}

def Ridge_CatOp : Ridge_ComputeOp<"cat"> {
  let summary = "Operands one after another along a dimension";
  let arguments = (ins Variadic<Ridge_Tensor>:$inputs, I64Attr:$dim);
  let assemblyFormat = "$inputs `dim` $dim attr-dict `:` functional-type($inputs, results)";
  let hasFolder = 1;
}

def Ridge_PadOp : Ridge_ComputeOp<"pad"> {
  let summary = "low[i] and high[i] elements of one value before and after dimension i";
  let arguments = (ins Ridge_Tensor:$input, DenseI64ArrayAttr:$low, DenseI64ArrayAttr:$high, Ridge_ScalarAttr:$value);
  let assemblyFormat = [{
    $input `low` $low `high` $high `value` `(` custom<Scalar>($value) `)` attr-dict `:` type($input) `->` type($result)
  }];
  let hasFolder = 1;
}

def Ridge_FlipOp : Ridge_ComputeOp<"flip"> {
  let summary = "Elements in reverse order along some dimensions";
  let arguments = (ins Ridge_Tensor:$input, DenseI64ArrayAttr:$dims);
  let assemblyFormat = "$input `dims` $dims attr-dict `:` type($input) `->` type($result)";
  let hasFolder = 1;
}

//===-- Creation ------------------------------------------------------------------------------------------------===//

def Ridge_FullOp : Ridge_ComputeOp<"full"> {
  let summary = "One value everywhere";
  let arguments = (ins Ridge_ScalarAttr:$value);
  let assemblyFormat = "`(` custom<Scalar>($value) `)` attr-dict `:` type($result)";
}

def Ridge_IotaOp : Ridge_ComputeOp<"iota"> {
  let summary = "An element's index along a dimension";
  let arguments = (ins I64Attr:$dim);
  let assemblyFormat = "`dim` $dim attr-dict `:` type($result)";
}

//===-- Reductions and norms ------------------------------------------------------------------------------------===//

def Ridge_ReduceOp : Ridge_ComputeOp<"reduce"> {
  let summary = "A reduction over dimensions";
  let description = [{
    `dims` ascends. argmax and argmin take one dimension. `correction`: var.

    ```mlir
    %s = ridge.reduce sum %x over [1] keepdim : tensor<4x8xf32> -> tensor<4x1xf32>
    ```
  }];
  let arguments = (ins Ridge_ReduceFnAttr:$fn, Ridge_Tensor:$input, DenseI64ArrayAttr:$dims, UnitAttr:$keepdim,
                       DefaultValuedAttr<F64Attr, "1.0">:$correction);
  let assemblyFormat = [{
    $fn $input `over` $dims (`keepdim` $keepdim^)? (`correction` $correction^)? attr-dict `:`
    type($input) `->` type($result)
  }];
}

def Ridge_SoftmaxOp : Ridge_ComputeOp<"softmax"> {
  let summary = "softmax or, with `log`, log_softmax along a dimension";
  let arguments = (ins Ridge_Tensor:$input, I64Attr:$dim, UnitAttr:$log);
  let assemblyFormat = "$input `dim` $dim (`log` $log^)? attr-dict `:` type($input) `->` type($result)";
}

def Ridge_LayerNormOp : Ridge_ComputeOp<"layer_norm", [AttrSizedOperandSegments]> {
  let summary = "Layer normalisation over the last dimension; a bias comes with a weight";
  let arguments = (ins Ridge_Tensor:$input, Optional<Ridge_Tensor>:$weight, Optional<Ridge_Tensor>:$bias, F64Attr:$eps);
  let assemblyFormat = [{
    $input (`weight` $weight^)? (`bias` $bias^)? `eps` $eps attr-dict `:` functional-type(operands, results)
  }];
}

def Ridge_RmsNormOp : Ridge_ComputeOp<"rms_norm"> {
  let summary = "Root-mean-square normalisation over the last dimension";
  let arguments = (ins Ridge_Tensor:$input, Optional<Ridge_Tensor>:$weight, F64Attr:$eps);
  let assemblyFormat = "$input (`weight` $weight^)? `eps` $eps attr-dict `:` functional-type(operands, results)";
}

//===-- Matrices ------------------------------------------------------------------------------------------------===//

def Ridge_MatmulOp : Ridge_ComputeOp<"matmul"> {
  let summary = "Matrix product, [..., M, K] by [..., K, N], batch dimensions broadcast; transpose: stored so";
  let arguments = (ins Ridge_Tensor:$a, Ridge_Tensor:$b, UnitAttr:$transpose_a, UnitAttr:$transpose_b);
  let assemblyFormat = [{
    $a (`transpose_a` $transpose_a^)? `,` $b (`transpose_b` $transpose_b^)? attr-dict `:`
    functional-type(operands, results)
  }];
}

def Ridge_LinearOp : Ridge_ComputeOp<"linear"> {
  let summary = "[..., K] by a weight [N, K], plus a bias [N]";
  let arguments = (ins Ridge_Tensor:$input, Ridge_Tensor:$weight, Optional<Ridge_Tensor>:$bias);
  let assemblyFormat = "$input `,` $weight (`bias` $bias^)? attr-dict `:` functional-type(operands, results)";
}

def Ridge_ScaledMatmulOp : Ridge_ComputeOp<"scaled_matmul"> {
  let summary = "Matrix product of quantised operands, with their scales";
  let arguments = (ins Ridge_Tensor:$a, Ridge_Tensor:$b, Ridge_Tensor:$scale_a, Ridge_Tensor:$scale_b,
                       Ridge_GranularityAttr:$granularity_a, Ridge_GranularityAttr:$granularity_b,
                       UnitAttr:$transpose_a, UnitAttr:$transpose_b, UnitAttr:$fast_accumulate);
  let assemblyFormat = [{
    $a (`transpose_a` $transpose_a^)? `scale` $scale_a $granularity_a `,`
    $b (`transpose_b` $transpose_b^)? `scale` $scale_b $granularity_b
    (`fast_accumulate` $fast_accumulate^)? attr-dict `:` functional-type(operands, results)
  }];
}

//===-- Indexing, attention, loss -------------------------------------------------------------------------------===//

def Ridge_GatherOp : Ridge_ComputeOp<"gather"> {
  let summary = "Elements or rows chosen by an index tensor (embedding, index_select, gather)";
  let arguments = (ins Ridge_GatherKindAttr:$kind, Ridge_Tensor:$input, Ridge_Tensor:$indices, I64Attr:$dim);
  let assemblyFormat = "$kind $input `,` $indices `dim` $dim attr-dict `:` functional-type(operands, results)";
}

def Ridge_AttentionOp : Ridge_ComputeOp<"attention"> {
  let summary = "softmax(q k^T * scale + mask) v; scale absent: one over the root of the head size";
  let arguments = (ins Ridge_Tensor:$q, Ridge_Tensor:$k, Ridge_Tensor:$v, Optional<Ridge_Tensor>:$mask,
                       UnitAttr:$causal, OptionalAttr<F64Attr>:$scale);
  let assemblyFormat = [{
    $q `,` $k `,` $v (`mask` $mask^)? (`causal` $causal^)? (`scale` $scale^)? attr-dict `:`
    functional-type(operands, results)
  }];
}

def Ridge_CrossEntropyOp : Ridge_ComputeOp<"cross_entropy"> {
  let summary = "Negative log-likelihood of a target class a row of logits";
  let arguments = (ins Ridge_Tensor:$logits, Ridge_Tensor:$targets, DefaultValuedAttr<I64Attr, "-100">:$ignore_index);
  let assemblyFormat = [{
    $logits `,` $targets (`ignore` $ignore_index^)? attr-dict `:` functional-type(operands, results)
  }];
}

//===-- Quantisation --------------------------------------------------------------------------------------------===//

def Ridge_QuantizeOp : Ridge_ComputeOp<"quantize"> {
  let summary = "Quantised values, their scale (and zero point); without a scale operand it comes from the values";
  let arguments = (ins Ridge_Tensor:$input, Optional<Ridge_Tensor>:$scale, Ridge_GranularityAttr:$granularity,
                       UnitAttr:$asymmetric);
  let results = (outs Ridge_Tensor:$result, Ridge_Tensor:$result_scale, Optional<Ridge_Tensor>:$zero_point);
  let assemblyFormat = [{
    $input (`scale` $scale^)? $granularity (`asymmetric` $asymmetric^)? attr-dict `:` functional-type(operands, results)
  }];
}

def Ridge_DequantizeOp : Ridge_ComputeOp<"dequantize"> {
  let summary = "(q - zero point) * scale";
  let arguments = (ins Ridge_Tensor:$input, Ridge_Tensor:$scale, Optional<Ridge_Tensor>:$zero_point,
                       Ridge_GranularityAttr:$granularity);
  let assemblyFormat = [{
    $input `scale` $scale (`zero_point` $zero_point^)? $granularity attr-dict `:` functional-type(operands, results)
  }];
}

def Ridge_FakeQuantizeOp : Ridge_ComputeOp<"fake_quantize"> {
  let summary = "quantize, then dequantize";
  let arguments = (ins Ridge_Tensor:$input, Optional<Ridge_Tensor>:$scale, TypeAttr:$quantized_type,
                       TypeAttr:$scale_type, Ridge_GranularityAttr:$granularity, UnitAttr:$asymmetric);
  let assemblyFormat = [{
    $input (`scale` $scale^)? `through` $quantized_type `,` $scale_type $granularity (`asymmetric` $asymmetric^)?
    attr-dict `:` functional-type(operands, results)
  }];
}

//===-- Groups --------------------------------------------------------------------------------------------------===//

def Ridge_GroupOp : Ridge_Op<"group", [IsolatedFromAbove, SingleBlock, RecursiveMemoryEffects, RecursivelySpeculatable,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames", "getAsmBlockArgumentNames"]>]> {
  let summary = "Ops that become one kernel";
  let description = [{
    Operands are the kernel's inputs and enter the body as its block arguments; results are what it stores, the operands
    of the body's `ridge.yield`. The body holds compute ops and literals of this dialect. `kind` names the emitter,
    `schedule` holds its numbers, `why` the reasons for what was decided.

    ```mlir
    %y = ridge.group "pointwise" (%a = %x : tensor<4x8xf32>) -> tensor<4x8xf32> schedule {lanes = 8} why ["one chain"] {
      %0 = ridge.map exp(%a) : (tensor<4x8xf32>) -> tensor<4x8xf32>
      ridge.yield %0 : tensor<4x8xf32>
    }
    ```
  }];
  let arguments = (ins Variadic<Ridge_Tensor>:$inputs, StrAttr:$kind, OptionalAttr<DictionaryAttr>:$schedule,
                       OptionalAttr<StrArrayAttr>:$why);
  let results = (outs Variadic<Ridge_Tensor>:$outputs);
  let regions = (region SizedRegion<1>:$body);
  let skipDefaultBuilders = 1;
  let builders = [
    /// With an empty body block whose arguments are the inputs; the caller fills it and ends it with a yield.
    OpBuilder<(ins "::mlir::TypeRange":$outputs, "::mlir::ValueRange":$inputs, "::llvm::StringRef":$kind)>
  ];
  let extraClassDeclaration = [{
    ::mlir::Operation *getYield() { return getBody().front().getTerminator(); }
  }];
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
}

def Ridge_YieldOp : Ridge_Op<"yield", [Pure, Terminator, HasParent<"GroupOp">]> {
  let summary = "What a group stores";
  let arguments = (ins Variadic<Ridge_Tensor>:$values);
  let assemblyFormat = "attr-dict ($values^ `:` type($values))?";
}

#endif
