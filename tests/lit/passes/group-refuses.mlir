// RUN: ridge-opt %s -split-input-file -verify-diagnostics -ridge-group=target=h200
//
// What the grouping pass does not take, and what it says.

// expected-error @+1 {{/nodes/3: node total (sum): only elementwise, layout and creation ops are compiled for h200; the target 'reference' runs every op}}
func.func @reduction(%x: tensor<4x8xf32>) -> tensor<4xf32> {
  %0 = ridge.map relu(%x) : (tensor<4x8xf32>) -> tensor<4x8xf32>
  %1 = ridge.reduce sum %0 over [1] {ridge.name = "total", ridge.node = 3 : i64} : tensor<4x8xf32> -> tensor<4xf32>
  return %1 : tensor<4xf32>
}

// -----

// expected-error @+1 {{node y (matmul): only elementwise, layout and creation ops}}
func.func @matmul(%x: tensor<4x8xf32>, %w: tensor<8x2xf32>) -> tensor<4x2xf32> {
  %0 = ridge.matmul %x, %w {ridge.name = "y"} : (tensor<4x8xf32>, tensor<8x2xf32>) -> tensor<4x2xf32>
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
