// RUN: ridge-opt %s --ridge-pins | FileCheck %s

// A node that is pinned to 16 bits rounds what it reads and what it gives. Where the operands' types decide what the op computes, they
// come back in these.
// CHECK-LABEL: func.func @product
// CHECK-COUNT-2: ridge.map cast({{.*}} (tensor<4x4xf32>) -> tensor<4x4xbf16>
// CHECK: ridge.matmul {{.*}} (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
// CHECK: ridge.map cast({{.*}} (tensor<4x4xf32>) -> tensor<4x4xbf16>
// CHECK: ridge.map cast({{.*}} (tensor<4x4xbf16>) -> tensor<4x4xf32>
// CHECK-NEXT: return
func.func @product(%a: tensor<4x4xf32>, %b: tensor<4x4xf32>) -> tensor<4x4xf32> {
  %y = ridge.matmul %a, %b {ridge.precision = bf16} : (tensor<4x4xf32>, tensor<4x4xf32>) -> tensor<4x4xf32>
  return %y : tensor<4x4xf32>
}

// An elementwise op is of the pinned type itself.
// CHECK-LABEL: func.func @elementwise
// CHECK: ridge.map tanh({{.*}} (tensor<4xf16>) -> tensor<4xf16>
func.func @elementwise(%a: tensor<4xf32>) -> tensor<4xf32> {
  %y = ridge.map tanh(%a) {ridge.precision = f16} : (tensor<4xf32>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
