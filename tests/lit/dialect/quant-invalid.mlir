// RUN: ridge-opt %s -split-input-file -verify-diagnostics
//
// What quantised ops refuse.

func.func @input_type(%x: tensor<4x256xi32>) {
  // expected-error @+1 {{/inputs/0: quantize needs a tensor of f32, f16 or bf16, not i32}}
  %q, %s = ridge.quantize %x <tensor> : (tensor<4x256xi32>) -> (tensor<4x256xi8>, tensor<f32>)
  return
}

// -----

func.func @result_type(%x: tensor<4x256xf32>) {
  // expected-error @+1 {{'dtype' must be f8e4m3, f8e5m2 or i8, not bf16}}
  %q, %s = ridge.quantize %x <tensor> : (tensor<4x256xf32>) -> (tensor<4x256xbf16>, tensor<f32>)
  return
}

// -----

func.func @scale_type(%x: tensor<4x256xf32>) {
  // expected-error @+1 {{'scale_dtype' must be f32 or f8e8m0, not f16}}
  %q, %s = ridge.quantize %x <tensor> : (tensor<4x256xf32>) -> (tensor<4x256xi8>, tensor<f16>)
  return
}

// -----

func.func @scale_shape(%x: tensor<4x256xf32>) {
  // expected-error @+1 {{result 1 must be 'tensor<4xf32>', not 'tensor<4x1xf32>'}}
  %q, %s = ridge.quantize %x <token> : (tensor<4x256xf32>) -> (tensor<4x256xi8>, tensor<4x1xf32>)
  return
}

// -----

func.func @scale_operand(%x: tensor<4x256xf32>, %s: tensor<256xf32>) {
  // expected-error @+1 {{the scale of [4, 256] by axis has shape [4], not [256]}}
  %q, %t = ridge.quantize %x scale %s <axis 0> : (tensor<4x256xf32>, tensor<256xf32>) -> (tensor<4x256xi8>, tensor<4xf32>)
  return
}

// -----

func.func @axis(%x: tensor<4x256xf32>) {
  // expected-error @+1 {{/attrs/axis: dimension 2 is out of range for rank 2}}
  %q, %s = ridge.quantize %x <axis 2> : (tensor<4x256xf32>) -> (tensor<4x256xi8>, tensor<256xf32>)
  return
}

// -----

func.func @block(%x: tensor<4x256xf32>) {
  // expected-error @+1 {{/attrs/block: a block must have extents of 1 or more}}
  %q, %s = ridge.quantize %x <block 0 by 32> : (tensor<4x256xf32>) -> (tensor<4x256xi8>, tensor<4x8xf32>)
  return
}

// -----

func.func @block_scale(%x: tensor<4x256xf32>) {
  // expected-error @+1 {{result 1 must be 'tensor<4x3xf32>'}}
  %q, %s = ridge.quantize %x <block 1 by 100> : (tensor<4x256xf32>) -> (tensor<4x256xi8>, tensor<4x2xf32>)
  return
}

// -----

func.func @granularity(%x: tensor<4x256xf32>) {
  // expected-error @+1 {{expected tensor, axis, token or block}}
  %q, %s = ridge.quantize %x <row> : (tensor<4x256xf32>) -> (tensor<4x256xi8>, tensor<4xf32>)
  return
}

// -----

func.func @asymmetric_f8(%x: tensor<4x256xf32>) {
  // expected-error @+1 {{"asymmetric" is for i8 only}}
  %q, %s, %z = ridge.quantize %x <tensor> asymmetric : (tensor<4x256xf32>) -> (tensor<4x256xf8E4M3FN>, tensor<f32>, tensor<i32>)
  return
}

// -----

func.func @asymmetric_two(%x: tensor<4x256xf32>) {
  // expected-error @+1 {{/outputs: scheme "asymmetric" has three results}}
  %q, %s = ridge.quantize %x <tensor> asymmetric : (tensor<4x256xf32>) -> (tensor<4x256xi8>, tensor<f32>)
  return
}

// -----

func.func @symmetric_three(%x: tensor<4x256xf32>) {
  // expected-error @+1 {{/outputs: scheme "symmetric" has two results}}
  %q, %s, %z = ridge.quantize %x <tensor> : (tensor<4x256xf32>) -> (tensor<4x256xi8>, tensor<f32>, tensor<i32>)
  return
}

// -----

func.func @zero_point_type(%x: tensor<4x256xf32>) {
  // expected-error @+1 {{result 2 must be 'tensor<i32>'}}
  %q, %s, %z = ridge.quantize %x <tensor> asymmetric : (tensor<4x256xf32>) -> (tensor<4x256xi8>, tensor<f32>, tensor<i8>)
  return
}

// -----

func.func @dequantize_input(%x: tensor<4x256xf32>, %s: tensor<f32>) {
  // expected-error @+1 {{dequantize needs f8e4m3, f8e5m2 or i8, not f32}}
  %0 = ridge.dequantize %x scale %s <tensor> : (tensor<4x256xf32>, tensor<f32>) -> tensor<4x256xf32>
  return
}

// -----

func.func @dequantize_result(%q: tensor<4x256xi8>, %s: tensor<f32>) {
  // expected-error @+1 {{'dtype' must be f32, f16 or bf16, not i32}}
  %0 = ridge.dequantize %q scale %s <tensor> : (tensor<4x256xi8>, tensor<f32>) -> tensor<4x256xi32>
  return
}

// -----

func.func @dequantize_scale(%q: tensor<4x256xi8>, %s: tensor<4xf32>) {
  // expected-error @+1 {{the scale of [4, 256] by tensor has shape [], not [4]}}
  %0 = ridge.dequantize %q scale %s <tensor> : (tensor<4x256xi8>, tensor<4xf32>) -> tensor<4x256xf32>
  return
}

// -----

func.func @dequantize_zero_point(%q: tensor<4x256xi8>, %s: tensor<4xf32>, %z: tensor<4xi8>) {
  // expected-error @+1 {{a zero point must be i32, not i8}}
  %0 = ridge.dequantize %q scale %s zero_point %z <token> : (tensor<4x256xi8>, tensor<4xf32>, tensor<4xi8>) -> tensor<4x256xf32>
  return
}

// -----

func.func @fake_type(%x: tensor<4x256xf32>) {
  // expected-error @+1 {{'dtype' must be f8e4m3, f8e5m2 or i8, not bf16}}
  %0 = ridge.fake_quantize %x through bf16, f32 <tensor> : (tensor<4x256xf32>) -> tensor<4x256xf32>
  return
}

// -----

func.func @fake_foreign_type(%x: tensor<4x256xf32>) {
  // expected-error @+1 {{'i4' is not an element type of the graph format}}
  %0 = ridge.fake_quantize %x through i4, f32 <tensor> : (tensor<4x256xf32>) -> tensor<4x256xf32>
  return
}

// -----

func.func @fake_scale_type(%x: tensor<4x256xf32>) {
  // expected-error @+1 {{'f64' is not an element type of the graph format}}
  %0 = ridge.fake_quantize %x through i8, f64 <tensor> : (tensor<4x256xf32>) -> tensor<4x256xf32>
  return
}

// -----

func.func @fake_result(%x: tensor<4x256xf32>) {
  // expected-error @+1 {{result 0 must be 'tensor<4x256xf32>'}}
  %0 = ridge.fake_quantize %x through i8, f32 <tensor> : (tensor<4x256xf32>) -> tensor<4x256xi8>
  return
}

// -----

func.func @scaled_matmul_types(%a: tensor<4x256xf8E4M3FN>, %b: tensor<256x5xi8>, %s: tensor<f32>) {
  // expected-error @+1 {{scaled_matmul multiplies f8 with f8 or i8 with i8}}
  %0 = ridge.scaled_matmul %a scale %s <tensor>, %b scale %s <tensor> : (tensor<4x256xf8E4M3FN>, tensor<256x5xi8>, tensor<f32>, tensor<f32>) -> tensor<4x5xf32>
  return
}

// -----

func.func @scaled_matmul_k_scale(%a: tensor<4x256xi8>, %b: tensor<256x5xi8>, %s: tensor<256xf32>, %t: tensor<f32>) {
  // expected-error @+1 {{varies along K, which only blocks may}}
  %0 = ridge.scaled_matmul %a scale %t <tensor>, %b scale %s <token> : (tensor<4x256xi8>, tensor<256x5xi8>, tensor<f32>, tensor<256xf32>) -> tensor<4x5xf32>
  return
}

// -----

func.func @scaled_matmul_axis(%a: tensor<4x256xi8>, %b: tensor<256x5xi8>, %s: tensor<256xf32>, %t: tensor<f32>) {
  // expected-error @+1 {{/attrs/axis_a: }}
  %0 = ridge.scaled_matmul %a scale %s <axis 1>, %b scale %t <tensor> : (tensor<4x256xi8>, tensor<256x5xi8>, tensor<256xf32>, tensor<f32>) -> tensor<4x5xf32>
  return
}

// -----

func.func @scaled_matmul_result(%a: tensor<4x256xi8>, %b: tensor<256x5xi8>, %t: tensor<f32>) {
  // expected-error @+1 {{/attrs/out_dtype: }}
  %0 = ridge.scaled_matmul %a scale %t <tensor>, %b scale %t <tensor> : (tensor<4x256xi8>, tensor<256x5xi8>, tensor<f32>, tensor<f32>) -> tensor<4x5xi32>
  return
}
