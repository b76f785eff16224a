// RUN: ridge-opt %s -split-input-file -verify-diagnostics
//
// What reductions and normalisations refuse.

func.func @dim(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{/attrs/dims: dimension 2 is out of range for rank 2}}
  %0 = ridge.reduce sum %x over [2] : tensor<4x6xf32> -> tensor<4x6xf32>
  return
}

// -----

func.func @twice(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{dimension 1 is listed twice}}
  %0 = ridge.reduce sum %x over [1, 1] : tensor<4x6xf32> -> tensor<4xf32>
  return
}

// -----

func.func @order(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{has dims that do not ascend}}
  %0 = ridge.reduce sum %x over [1, 0] : tensor<4x6xf32> -> tensor<f32>
  return
}

// -----

func.func @shape(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{result 0 must be 'tensor<4xf32>'}}
  %0 = ridge.reduce sum %x over [1] : tensor<4x6xf32> -> tensor<4x1xf32>
  return
}

// -----

func.func @keepdim(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{result 0 must be 'tensor<4x1xf32>'}}
  %0 = ridge.reduce sum %x over [1] keepdim : tensor<4x6xf32> -> tensor<4xf32>
  return
}

// -----

func.func @integer_sum(%i: tensor<4xi8>) {
  // expected-error @+1 {{result 0 must be 'tensor<i64>'}}
  %0 = ridge.reduce sum %i over [0] : tensor<4xi8> -> tensor<i8>
  return
}

// -----

func.func @integer_mean(%i: tensor<4xi8>) {
  // expected-error @+1 {{result 0 must be 'tensor<f32>'}}
  %0 = ridge.reduce mean %i over [0] : tensor<4xi8> -> tensor<i8>
  return
}

// -----

func.func @any_type(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{result 0 must be 'tensor<6xi1>'}}
  %0 = ridge.reduce any %x over [0] : tensor<4x6xf32> -> tensor<6xf32>
  return
}

// -----

func.func @f8(%q: tensor<4xf8E5M2>) {
  // expected-error @+1 {{sum does not compute on f8e5m2}}
  %0 = ridge.reduce sum %q over [0] : tensor<4xf8E5M2> -> tensor<f8E5M2>
  return
}

// -----

func.func @amax_empty(%e: tensor<0x6xf32>) {
  // expected-error @+1 {{amax over nothing: dimension 0 of [0, 6] is empty}}
  %0 = ridge.reduce amax %e over [0] : tensor<0x6xf32> -> tensor<6xf32>
  return
}

// -----

func.func @amin_empty(%e: tensor<4x0xf32>) {
  // expected-error @+1 {{amin over nothing}}
  %0 = ridge.reduce amin %e over [0, 1] : tensor<4x0xf32> -> tensor<f32>
  return
}

// -----

func.func @argmax_empty(%e: tensor<0xf32>) {
  // expected-error @+1 {{argmax over nothing}}
  %0 = ridge.reduce argmax %e over [0] : tensor<0xf32> -> tensor<i64>
  return
}

// -----

func.func @argmax_two(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{takes one dimension for argmax, not 2}}
  %0 = ridge.reduce argmax %x over [0, 1] : tensor<4x6xf32> -> tensor<i64>
  return
}

// -----

func.func @argmin_none(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{takes one dimension for argmin, not 0}}
  %0 = ridge.reduce argmin %x over [] : tensor<4x6xf32> -> tensor<4x6xi64>
  return
}

// -----

func.func @argmax_type(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{result 0 must be 'tensor<6xi64>'}}
  %0 = ridge.reduce argmax %x over [0] : tensor<4x6xf32> -> tensor<6xi32>
  return
}

// -----

func.func @prod_type(%i: tensor<4xi32>) {
  // expected-error @+1 {{result 0 must be 'tensor<i64>'}}
  %0 = ridge.reduce prod %i over [0] : tensor<4xi32> -> tensor<i32>
  return
}

// -----

func.func @all_type(%b: tensor<4xi1>) {
  // expected-error @+1 {{result 0 must be 'tensor<i1>'}}
  %0 = ridge.reduce all %b over [0] : tensor<4xi1> -> tensor<i64>
  return
}

// -----

func.func @logsumexp_type(%i: tensor<4xi32>) {
  // expected-error @+1 {{result 0 must be 'tensor<f32>'}}
  %0 = ridge.reduce logsumexp %i over [0] : tensor<4xi32> -> tensor<i32>
  return
}

// -----

func.func @var_integer(%i: tensor<4xi32>) {
  // expected-error @+1 {{var needs a float tensor, not i32}}
  %0 = ridge.reduce var %i over [0] : tensor<4xi32> -> tensor<f32>
  return
}

// -----

func.func @var_correction(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{'correction' must be finite}}
  %0 = ridge.reduce var %x over [0] correction 0x7FF0000000000000 : tensor<4x6xf32> -> tensor<6xf32>
  return
}

// -----

func.func @sum_correction(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{has 'correction', which is an attribute of var}}
  %0 = ridge.reduce sum %x over [0] correction 0.0 : tensor<4x6xf32> -> tensor<6xf32>
  return
}

// -----

func.func @unknown_function(%x: tensor<4x6xf32>) {
  // expected-error @+2 {{expected ::mlir::ridge::ReduceFn to be one of}}
  // expected-error @+1 {{failed to parse Ridge_ReduceFnAttr}}
  %0 = ridge.reduce median %x over [0] : tensor<4x6xf32> -> tensor<6xf32>
  return
}

// -----

func.func @softmax_dim(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{/attrs/dim: dimension -1 is out of range for rank 2}}
  %0 = ridge.softmax %x dim -1 : tensor<4x6xf32> -> tensor<4x6xf32>
  return
}

// -----

func.func @softmax_scalar(%s: tensor<f32>) {
  // expected-error @+1 {{dimension 0 is out of range for rank 0}}
  %0 = ridge.softmax %s dim 0 : tensor<f32> -> tensor<f32>
  return
}

// -----

func.func @softmax_integer(%i: tensor<4xi32>) {
  // expected-error @+1 {{softmax needs a tensor of f32, f16 or bf16, not i32}}
  %0 = ridge.softmax %i dim 0 : tensor<4xi32> -> tensor<4xi32>
  return
}

// -----

func.func @log_softmax_shape(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{result 0 must be 'tensor<4x6xf32>'}}
  %0 = ridge.softmax %x dim 0 log : tensor<4x6xf32> -> tensor<6xf32>
  return
}

// -----

func.func @layer_norm_weight(%x: tensor<4x6xf32>, %w: tensor<4xf32>) {
  // expected-error @+1 {{/inputs/1: layer_norm needs a weight of shape [6], not [4]}}
  %0 = ridge.layer_norm %x weight %w eps 1.0e-5 : (tensor<4x6xf32>, tensor<4xf32>) -> tensor<4x6xf32>
  return
}

// -----

func.func @layer_norm_bias_only(%x: tensor<4x6xf32>, %b: tensor<6xf32>) {
  // expected-error @+1 {{has a bias and no weight}}
  %0 = ridge.layer_norm %x bias %b eps 1.0e-5 : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  return
}

// -----

func.func @layer_norm_eps(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{'eps' must be 0 or more and finite}}
  %0 = ridge.layer_norm %x eps -1.0 : (tensor<4x6xf32>) -> tensor<4x6xf32>
  return
}

// -----

func.func @layer_norm_scalar(%s: tensor<f32>) {
  // expected-error @+1 {{needs a tensor of rank 1 or more}}
  %0 = ridge.layer_norm %s eps 0.0 : (tensor<f32>) -> tensor<f32>
  return
}

// -----

func.func @rms_norm_weight(%x: tensor<4x6xf32>, %w: tensor<6xi32>) {
  // expected-error @+1 {{rms_norm needs a weight of f32, f16 or bf16, not i32}}
  %0 = ridge.rms_norm %x weight %w eps 1.0e-6 : (tensor<4x6xf32>, tensor<6xi32>) -> tensor<4x6xf32>
  return
}

// -----

func.func @rms_norm_type(%h: tensor<4x6xbf16>, %w: tensor<6xf32>) {
  // expected-error @+1 {{result 0 must be 'tensor<4x6xf32>'}}
  %0 = ridge.rms_norm %h weight %w eps 1.0e-6 : (tensor<4x6xbf16>, tensor<6xf32>) -> tensor<4x6xbf16>
  return
}
