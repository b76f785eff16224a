// RUN: ridge-opt %s | ridge-opt | FileCheck %s
//
// Layout and creation ops.

// CHECK-LABEL: func.func @layout
func.func @layout(%x: tensor<4x6xbf16>, %q: tensor<4x6xf8E4M3FN>, %s: tensor<f32>, %e: tensor<0x6xbf16>) {
  // CHECK: ridge.reshape %arg0 : tensor<4x6xbf16> -> tensor<2x12xbf16>
  %0 = ridge.reshape %x : tensor<4x6xbf16> -> tensor<2x12xbf16>
  // CHECK: ridge.reshape %arg2 : tensor<f32> -> tensor<1x1xf32>
  %1 = ridge.reshape %s : tensor<f32> -> tensor<1x1xf32>
  // CHECK: ridge.reshape %arg3 : tensor<0x6xbf16> -> tensor<2x0x5xbf16>
  %2 = ridge.reshape %e : tensor<0x6xbf16> -> tensor<2x0x5xbf16>
  // CHECK: ridge.permute %arg1 by [1, 0] : tensor<4x6xf8E4M3FN> -> tensor<6x4xf8E4M3FN>
  %3 = ridge.permute %q by [1, 0] : tensor<4x6xf8E4M3FN> -> tensor<6x4xf8E4M3FN>
  // CHECK: ridge.permute %arg2 by [] : tensor<f32> -> tensor<f32>
  %4 = ridge.permute %s by [] : tensor<f32> -> tensor<f32>
  // CHECK: ridge.expand %arg0 : tensor<4x6xbf16> -> tensor<3x4x6xbf16>
  %5 = ridge.expand %x : tensor<4x6xbf16> -> tensor<3x4x6xbf16>
  // CHECK: ridge.slice %arg0 dim 1 start 1 step 2 : tensor<4x6xbf16> -> tensor<4x3xbf16>
  %6 = ridge.slice %x dim 1 start 1 step 2 : tensor<4x6xbf16> -> tensor<4x3xbf16>
  // CHECK: ridge.slice %arg0 dim 0 start 3 step -1 : tensor<4x6xbf16> -> tensor<4x6xbf16>
  %7 = ridge.slice %x dim 0 start 3 step -1 : tensor<4x6xbf16> -> tensor<4x6xbf16>
  // CHECK: ridge.slice %arg0 dim 0 start 0 step 1 : tensor<4x6xbf16> -> tensor<0x6xbf16>
  %8 = ridge.slice %x dim 0 start 0 step 1 : tensor<4x6xbf16> -> tensor<0x6xbf16>
  // CHECK: ridge.cat %arg0, %arg3, %arg0 dim 0 : (tensor<4x6xbf16>, tensor<0x6xbf16>, tensor<4x6xbf16>) -> tensor<8x6xbf16>
  %9 = ridge.cat %x, %e, %x dim 0 : (tensor<4x6xbf16>, tensor<0x6xbf16>, tensor<4x6xbf16>) -> tensor<8x6xbf16>
  // CHECK: ridge.cat %arg0 dim 1 : (tensor<4x6xbf16>) -> tensor<4x6xbf16>
  %10 = ridge.cat %x dim 1 : (tensor<4x6xbf16>) -> tensor<4x6xbf16>
  // CHECK: ridge.pad %arg0 low [0, 1] high [2, 3] value(5.000000e-01) : tensor<4x6xbf16> -> tensor<6x10xbf16>
  %11 = ridge.pad %x low [0, 1] high [2, 3] value(0.5) : tensor<4x6xbf16> -> tensor<6x10xbf16>
  // CHECK: ridge.flip %arg0 dims [0, 1] : tensor<4x6xbf16> -> tensor<4x6xbf16>
  %12 = ridge.flip %x dims [0, 1] : tensor<4x6xbf16> -> tensor<4x6xbf16>
  return
}

// CHECK-LABEL: func.func @creation
func.func @creation() {
  // CHECK: ridge.full(1.500000e+00) : tensor<2x3xf16>
  %0 = ridge.full(1.5) : tensor<2x3xf16>
  // CHECK: ridge.full(7) : tensor<i64>
  %1 = ridge.full(7) : tensor<i64>
  // CHECK: ridge.full(true) : tensor<0xi1>
  %2 = ridge.full(true) : tensor<0xi1>
  // CHECK: ridge.iota dim 1 : tensor<2x3xi32>
  %3 = ridge.iota dim 1 : tensor<2x3xi32>
  // CHECK: ridge.iota dim 0 : tensor<5xf32>
  %4 = ridge.iota dim 0 : tensor<5xf32>
  return
}
