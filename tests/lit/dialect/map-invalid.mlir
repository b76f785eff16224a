// RUN: ridge-opt %s -split-input-file -verify-diagnostics
//
// What ridge.map and ridge.literal refuse.

func.func @arity(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{/inputs: add takes 2 operands, not 1}}
  %0 = ridge.map add(%x) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  return
}

// -----

func.func @arity_unary(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{/inputs: exp takes 1 operand, not 2}}
  %0 = ridge.map exp(%x, %x) : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  return
}

// -----

func.func @no_operands() {
  // expected-error @+1 {{/inputs: exp takes 1 operand, not 0}}
  %0 = ridge.map exp() : () -> tensor<f32>
  return
}

// -----

func.func @unknown_function(%x: tensor<4x6xf32>) {
  // expected-error @+2 {{expected ::mlir::ridge::MapFn to be one of}}
  // expected-error @+1 {{failed to parse Ridge_MapFnAttr}}
  %0 = ridge.map frobnicate(%x) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  return
}

// -----

func.func @broadcast(%x: tensor<4x6xf32>, %y: tensor<5xf32>) {
  // expected-error @+1 {{shapes do not broadcast: [4, 6], [5]}}
  %0 = ridge.map add(%x, %y) : (tensor<4x6xf32>, tensor<5xf32>) -> tensor<4x6xf32>
  return
}

// -----

func.func @result_shape(%x: tensor<4x6xf32>, %y: tensor<6xf32>) {
  // expected-error @+1 {{result 0 must be 'tensor<4x6xf32>', not 'tensor<6xf32>'}}
  %0 = ridge.map add(%x, %y) : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<6xf32>
  return
}

// -----

func.func @result_type(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{result 0 must be 'tensor<4x6xf32>', not 'tensor<4x6xbf16>'}}
  %0 = ridge.map exp(%x) : (tensor<4x6xf32>) -> tensor<4x6xbf16>
  return
}

// -----

func.func @promotion(%x: tensor<4x6xf32>, %h: tensor<6xf16>) {
  // expected-error @+1 {{result 0 must be 'tensor<4x6xf32>'}}
  %0 = ridge.map mul(%x, %h) : (tensor<4x6xf32>, tensor<6xf16>) -> tensor<4x6xf16>
  return
}

// -----

func.func @comparison(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{result 0 must be 'tensor<4x6xi1>'}}
  %0 = ridge.map lt(%x, %x) : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  return
}

// -----

func.func @integer_div(%i: tensor<4xi32>) {
  // expected-error @+1 {{result 0 must be 'tensor<4xf32>'}}
  %0 = ridge.map div(%i, %i) : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi32>
  return
}

// -----

func.func @f8(%q: tensor<4xf8E4M3FN>) {
  // expected-error @+1 {{/inputs/0: neg does not compute on f8e4m3}}
  %0 = ridge.map neg(%q) : (tensor<4xf8E4M3FN>) -> tensor<4xf8E4M3FN>
  return
}

// -----

func.func @bitwise_float(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{bitwise_not needs integers or bools, not f32}}
  %0 = ridge.map bitwise_not(%x) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  return
}

// -----

func.func @neg_bool(%b: tensor<4xi1>) {
  // expected-error @+1 {{neg is not defined on bool}}
  %0 = ridge.map neg(%b) : (tensor<4xi1>) -> tensor<4xi1>
  return
}

// -----

func.func @where_condition(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{the condition must be bool, not f32}}
  %0 = ridge.map where(%x, %x, %x) : (tensor<4x6xf32>, tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x6xf32>
  return
}

// -----

func.func @clamp_no_bound(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{clamp needs 'min', 'max' or both}}
  %0 = ridge.map clamp(%x) : (tensor<4x6xf32>) -> tensor<4x6xf32>
  return
}

// -----

func.func @clamp_bound_kind(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{boolean, i64 or f64 attribute}}
  %0 = ridge.map clamp(%x) {min = "zero"} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  return
}

// -----

func.func @clamp_bound_f32(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{boolean, i64 or f64 attribute}}
  %0 = ridge.map clamp(%x) {min = 0.0 : f32} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  return
}

// -----

func.func @tanh_of_exp(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{has 'tanh', which is an attribute of gelu}}
  %0 = ridge.map exp(%x) tanh : (tensor<4x6xf32>) -> tensor<4x6xf32>
  return
}

// -----

func.func @saturate_of_exp(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{has 'saturate', which is an attribute of cast}}
  %0 = ridge.map exp(%x) {saturate = false} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  return
}

// -----

func.func @min_of_exp(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{has 'min' or 'max', which are attributes of clamp}}
  %0 = ridge.map exp(%x) {min = 0.0} : (tensor<4x6xf32>) -> tensor<4x6xf32>
  return
}

// -----

func.func @cast_shape(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{result 0 must be 'tensor<4x6xf16>'}}
  %0 = ridge.map cast(%x) : (tensor<4x6xf32>) -> tensor<24xf16>
  return
}

// -----

func.func @element_type(%x: tensor<4xf64>) {
  // expected-error @+1 {{statically shaped tensor of an element type of the graph format}}
  %0 = ridge.map exp(%x) : (tensor<4xf64>) -> tensor<4xf64>
  return
}

// -----

func.func @element_type_signed(%x: tensor<4xsi8>) {
  // expected-error @+1 {{statically shaped tensor of an element type of the graph format}}
  %0 = ridge.map neg(%x) : (tensor<4xsi8>) -> tensor<4xsi8>
  return
}

// -----

func.func @dynamic(%x: tensor<?xf32>) {
  // expected-error @+1 {{statically shaped tensor of an element type of the graph format}}
  %0 = ridge.map exp(%x) : (tensor<?xf32>) -> tensor<?xf32>
  return
}

// -----

func.func @unranked(%x: tensor<*xf32>) {
  // expected-error @+1 {{must be variadic of statically shaped tensor}}
  %0 = ridge.map exp(%x) : (tensor<*xf32>) -> tensor<*xf32>
  return
}

// -----

func.func @rank(%x: tensor<1x1x1x1x1x1x1x1x1xf32>) {
  // expected-error @+1 {{has an operand of more than 8 dimensions or with an encoding}}
  %0 = ridge.map exp(%x) : (tensor<1x1x1x1x1x1x1x1x1xf32>) -> tensor<1x1x1x1x1x1x1x1x1xf32>
  return
}

// -----

func.func @encoding(%x: tensor<4xf32, "csr">) {
  // expected-error @+1 {{has an operand of more than 8 dimensions or with an encoding}}
  %0 = ridge.map exp(%x) : (tensor<4xf32, "csr">) -> tensor<4xf32>
  return
}

// -----

func.func @result_encoding(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{has a result of more than 8 dimensions or with an encoding}}
  %0 = ridge.map exp(%x) : (tensor<4x6xf32>) -> tensor<4x6xf32, 1>
  return
}

// -----

func.func @literal_widens(%h: tensor<4xbf16>) {
  %c = ridge.literal 0.5
  // expected-error @+1 {{result 0 must be 'tensor<4xbf16>', not 'tensor<4xf32>'}}
  %0 = ridge.map add(%h, %c) : (tensor<4xbf16>, tensor<f32>) -> tensor<4xf32>
  return
}

// -----

func.func @literal_range(%i: tensor<4xi8>) {
  %c = ridge.literal 300
  // expected-error @+1 {{/inputs/1: }}
  %0 = ridge.map add(%i, %c) : (tensor<4xi8>, tensor<i64>) -> tensor<4xi8>
  return
}

// -----

func.func @literal_string() {
  // expected-error @+1 {{expected a boolean, an i64 or an f64}}
  %c = ridge.literal "half"
  return
}

// -----

func.func @literal_i32() {
  // expected-error @+1 {{expected a boolean, an i64 or an f64}}
  %c = ridge.literal 3 : i32
  return
}

// -----

func.func @literal_f32() {
  // expected-error @+1 {{expected a boolean, an i64 or an f64}}
  %c = ridge.literal 0.5 : f32
  return
}

// -----

func.func @literal_type() {
  // expected-error @+2 {{inferred type(s) 'tensor<f32>' are incompatible with return type(s) of operation 'tensor<bf16>'}}
  // expected-error @+1 {{failed to infer returned types}}
  %c = "ridge.literal"() <{value = 0.5 : f64}> : () -> tensor<bf16>
  return
}

// -----

func.func @literal_returned() -> tensor<f32> {
  // expected-error @+1 {{is an operand of 'func.return', which takes tensors only}}
  %c = ridge.literal 0.5
  return %c : tensor<f32>
}

// -----

func.func @literal_returned() -> tensor<f32> {
  // expected-error @+1 {{is an operand of 'func.return', which takes tensors only}}
  %c = ridge.literal 0.5
  return %c : tensor<f32>
}
