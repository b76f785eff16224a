// RUN: ridge-opt %s -split-input-file -verify-diagnostics -ridge-group=target=h200
//
// What the grouping pass does not take, and what it says.

// expected-error @+1 {{/nodes/3: node y (scaled_matmul): this op is not compiled yet for h200}}
func.func @after_others(%a: tensor<4x8xi8>, %b: tensor<8x2xi8>, %s: tensor<f32>) -> tensor<4x2xf32> {
  %t = ridge.map square(%s) : (tensor<f32>) -> tensor<f32>
  %0 = ridge.scaled_matmul %a scale %t <tensor>, %b scale %s <tensor> {ridge.name = "y", ridge.node = 3 : i64} : (tensor<4x8xi8>, tensor<8x2xi8>, tensor<f32>, tensor<f32>) -> tensor<4x2xf32>
  return %0 : tensor<4x2xf32>
}

// -----

// The machine is named, and the target that runs every op.
// expected-error @+1 {{not compiled yet for h200; the target 'reference' runs every op}}
func.func @scaled(%a: tensor<4x8xi8>, %b: tensor<8x2xi8>, %s: tensor<f32>) -> tensor<4x2xf32> {
  %0 = ridge.scaled_matmul %a scale %s <tensor>, %b scale %s <tensor> : (tensor<4x8xi8>, tensor<8x2xi8>, tensor<f32>, tensor<f32>) -> tensor<4x2xf32>
  return %0 : tensor<4x2xf32>
}

// -----

// expected-error @+1 {{has groups beside ops that are in none}}
func.func @half_grouped(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = ridge.group "pointwise" (%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    %2 = ridge.map exp(%a) : (tensor<4xf32>) -> tensor<4xf32>
    ridge.yield %2 : tensor<4xf32>
  }
  %1 = ridge.map neg(%0) : (tensor<4xf32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}

// -----

func.func private @declaration(tensor<4xf32>) -> tensor<4xf32>

func.func @calls(%x: tensor<4xf32>) -> tensor<4xf32> {
  // expected-error @+1 {{is not an op of a graph}}
  %0 = func.call @declaration(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}
