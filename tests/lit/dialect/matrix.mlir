// RUN: ridge-opt %s | ridge-opt | FileCheck %s
//
// Matrix products, indexing, attention, loss.

// CHECK-LABEL: func.func @matmul
func.func @matmul(%a: tensor<2x1x4x8xbf16>, %b: tensor<3x8x5xbf16>, %at: tensor<8x4xf16>, %bt: tensor<5x8xf16>,
                  %i: tensor<4x8xi8>, %j: tensor<8x5xi8>) {
  // CHECK: ridge.matmul %arg0, %arg1 : (tensor<2x1x4x8xbf16>, tensor<3x8x5xbf16>) -> tensor<2x3x4x5xbf16>
  %0 = ridge.matmul %a, %b : (tensor<2x1x4x8xbf16>, tensor<3x8x5xbf16>) -> tensor<2x3x4x5xbf16>
  // CHECK: ridge.matmul %arg2 transpose_a, %arg3 transpose_b : (tensor<8x4xf16>, tensor<5x8xf16>) -> tensor<4x5xf16>
  %1 = ridge.matmul %at transpose_a, %bt transpose_b : (tensor<8x4xf16>, tensor<5x8xf16>) -> tensor<4x5xf16>
  // CHECK: ridge.matmul %arg2 transpose_a, %arg3 transpose_b : (tensor<8x4xf16>, tensor<5x8xf16>) -> tensor<4x5xf32>
  %2 = ridge.matmul %at transpose_a, %bt transpose_b : (tensor<8x4xf16>, tensor<5x8xf16>) -> tensor<4x5xf32>
  // CHECK: ridge.matmul %arg4, %arg5 : (tensor<4x8xi8>, tensor<8x5xi8>) -> tensor<4x5xi32>
  %3 = ridge.matmul %i, %j : (tensor<4x8xi8>, tensor<8x5xi8>) -> tensor<4x5xi32>
  return
}

// CHECK-LABEL: func.func @linear
func.func @linear(%x: tensor<2x3x8xf32>, %w: tensor<5x8xf32>, %b: tensor<5xf32>) {
  // CHECK: ridge.linear %arg0, %arg1 : (tensor<2x3x8xf32>, tensor<5x8xf32>) -> tensor<2x3x5xf32>
  %0 = ridge.linear %x, %w : (tensor<2x3x8xf32>, tensor<5x8xf32>) -> tensor<2x3x5xf32>
  // CHECK: ridge.linear %arg0, %arg1 bias %arg2 : (tensor<2x3x8xf32>, tensor<5x8xf32>, tensor<5xf32>) -> tensor<2x3x5xf32>
  %1 = ridge.linear %x, %w bias %b : (tensor<2x3x8xf32>, tensor<5x8xf32>, tensor<5xf32>) -> tensor<2x3x5xf32>
  return
}

// CHECK-LABEL: func.func @indexing
func.func @indexing(%t: tensor<10x8xbf16>, %i: tensor<2x3xi64>, %j: tensor<5xi32>, %g: tensor<10x3xi64>) {
  // CHECK: ridge.gather embedding %arg0, %arg1 dim 0 : (tensor<10x8xbf16>, tensor<2x3xi64>) -> tensor<2x3x8xbf16>
  %0 = ridge.gather embedding %t, %i dim 0 : (tensor<10x8xbf16>, tensor<2x3xi64>) -> tensor<2x3x8xbf16>
  // CHECK: ridge.gather index_select %arg0, %arg2 dim 1 : (tensor<10x8xbf16>, tensor<5xi32>) -> tensor<10x5xbf16>
  %1 = ridge.gather index_select %t, %j dim 1 : (tensor<10x8xbf16>, tensor<5xi32>) -> tensor<10x5xbf16>
  // CHECK: ridge.gather gather %arg0, %arg3 dim 1 : (tensor<10x8xbf16>, tensor<10x3xi64>) -> tensor<10x3xbf16>
  %2 = ridge.gather gather %t, %g dim 1 : (tensor<10x8xbf16>, tensor<10x3xi64>) -> tensor<10x3xbf16>
  return
}

// CHECK-LABEL: func.func @attention
func.func @attention(%q: tensor<2x4x16x8xbf16>, %k: tensor<2x4x32x8xbf16>, %v: tensor<2x4x32x8xbf16>, %m: tensor<16x32xi1>) {
  // CHECK: ridge.attention %arg0, %arg1, %arg2 : (tensor<2x4x16x8xbf16>, tensor<2x4x32x8xbf16>, tensor<2x4x32x8xbf16>) -> tensor<2x4x16x8xbf16>
  %0 = ridge.attention %q, %k, %v : (tensor<2x4x16x8xbf16>, tensor<2x4x32x8xbf16>, tensor<2x4x32x8xbf16>) -> tensor<2x4x16x8xbf16>
  // CHECK: ridge.attention %arg0, %arg1, %arg2 mask %arg3 causal scale 1.250000e-01 :
  %1 = ridge.attention %q, %k, %v mask %m causal scale 0.125 : (tensor<2x4x16x8xbf16>, tensor<2x4x32x8xbf16>, tensor<2x4x32x8xbf16>, tensor<16x32xi1>) -> tensor<2x4x16x8xbf16>
  return
}

// CHECK-LABEL: func.func @cross_entropy
func.func @cross_entropy(%l: tensor<4x10xbf16>, %t: tensor<4xi64>) {
  // CHECK: ridge.cross_entropy %arg0, %arg1 : (tensor<4x10xbf16>, tensor<4xi64>) -> tensor<4xf32>
  %0 = ridge.cross_entropy %l, %t : (tensor<4x10xbf16>, tensor<4xi64>) -> tensor<4xf32>
  // CHECK: ridge.cross_entropy %arg0, %arg1 ignore -1 : (tensor<4x10xbf16>, tensor<4xi64>) -> tensor<4xf32>
  %1 = ridge.cross_entropy %l, %t ignore -1 : (tensor<4x10xbf16>, tensor<4xi64>) -> tensor<4xf32>
  return
}
