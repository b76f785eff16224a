// RUN: ridge-opt %s | ridge-opt | FileCheck %s
//
// Reductions and normalisations.

// CHECK-LABEL: func.func @reduce
func.func @reduce(%x: tensor<4x6xbf16>, %i: tensor<4x6xi8>, %b: tensor<4x6xi1>, %e: tensor<0x6xf32>) {
  // CHECK: ridge.reduce sum %arg0 over [0, 1] : tensor<4x6xbf16> -> tensor<bf16>
  %0 = ridge.reduce sum %x over [0, 1] : tensor<4x6xbf16> -> tensor<bf16>
  // CHECK: ridge.reduce sum %arg1 over [1] keepdim : tensor<4x6xi8> -> tensor<4x1xi64>
  %1 = ridge.reduce sum %i over [1] keepdim : tensor<4x6xi8> -> tensor<4x1xi64>
  // CHECK: ridge.reduce sum %arg3 over [0] : tensor<0x6xf32> -> tensor<6xf32>
  %2 = ridge.reduce sum %e over [0] : tensor<0x6xf32> -> tensor<6xf32>
  // CHECK: ridge.reduce mean %arg1 over [0] : tensor<4x6xi8> -> tensor<6xf32>
  %3 = ridge.reduce mean %i over [0] : tensor<4x6xi8> -> tensor<6xf32>
  // CHECK: ridge.reduce amax %arg0 over [1] : tensor<4x6xbf16> -> tensor<4xbf16>
  %4 = ridge.reduce amax %x over [1] : tensor<4x6xbf16> -> tensor<4xbf16>
  // CHECK: ridge.reduce amin %arg1 over [1] : tensor<4x6xi8> -> tensor<4xi8>
  %5 = ridge.reduce amin %i over [1] : tensor<4x6xi8> -> tensor<4xi8>
  // CHECK: ridge.reduce prod %arg0 over [0] : tensor<4x6xbf16> -> tensor<6xbf16>
  %6 = ridge.reduce prod %x over [0] : tensor<4x6xbf16> -> tensor<6xbf16>
  // CHECK: ridge.reduce any %arg2 over [0, 1] keepdim : tensor<4x6xi1> -> tensor<1x1xi1>
  %7 = ridge.reduce any %b over [0, 1] keepdim : tensor<4x6xi1> -> tensor<1x1xi1>
  // CHECK: ridge.reduce all %arg2 over [0] : tensor<4x6xi1> -> tensor<6xi1>
  %8 = ridge.reduce all %b over [0] : tensor<4x6xi1> -> tensor<6xi1>
  // CHECK: ridge.reduce var %arg0 over [1] : tensor<4x6xbf16> -> tensor<4xbf16>
  %9 = ridge.reduce var %x over [1] correction 1.0 : tensor<4x6xbf16> -> tensor<4xbf16>
  // CHECK: ridge.reduce var %arg0 over [1] keepdim correction 0.000000e+00 : tensor<4x6xbf16> -> tensor<4x1xbf16>
  %10 = ridge.reduce var %x over [1] keepdim correction 0.0 : tensor<4x6xbf16> -> tensor<4x1xbf16>
  // CHECK: ridge.reduce logsumexp %arg0 over [1] : tensor<4x6xbf16> -> tensor<4xbf16>
  %11 = ridge.reduce logsumexp %x over [1] : tensor<4x6xbf16> -> tensor<4xbf16>
  // CHECK: ridge.reduce argmax %arg0 over [1] : tensor<4x6xbf16> -> tensor<4xi64>
  %12 = ridge.reduce argmax %x over [1] : tensor<4x6xbf16> -> tensor<4xi64>
  // CHECK: ridge.reduce argmin %arg1 over [0] keepdim : tensor<4x6xi8> -> tensor<1x6xi64>
  %13 = ridge.reduce argmin %i over [0] keepdim : tensor<4x6xi8> -> tensor<1x6xi64>
  return
}

// CHECK-LABEL: func.func @norms
func.func @norms(%x: tensor<4x6xf32>, %w: tensor<6xf32>, %b: tensor<6xf32>) {
  // CHECK: ridge.softmax %arg0 dim 1 : tensor<4x6xf32> -> tensor<4x6xf32>
  %0 = ridge.softmax %x dim 1 : tensor<4x6xf32> -> tensor<4x6xf32>
  // CHECK: ridge.softmax %arg0 dim 0 log : tensor<4x6xf32> -> tensor<4x6xf32>
  %1 = ridge.softmax %x dim 0 log : tensor<4x6xf32> -> tensor<4x6xf32>
  // CHECK: ridge.layer_norm %arg0 eps 1.000000e-05 : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %2 = ridge.layer_norm %x eps 1.0e-5 : (tensor<4x6xf32>) -> tensor<4x6xf32>
  // CHECK: ridge.layer_norm %arg0 weight %arg1 eps 1.000000e-05 : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  %3 = ridge.layer_norm %x weight %w eps 1.0e-5 : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  // CHECK: ridge.layer_norm %arg0 weight %arg1 bias %arg2 eps 1.000000e-05
  %4 = ridge.layer_norm %x weight %w bias %b eps 1.0e-5 : (tensor<4x6xf32>, tensor<6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  // CHECK: ridge.rms_norm %arg0 eps 9.999{{[0-9]*}}E-7 : (tensor<4x6xf32>) -> tensor<4x6xf32>
  %5 = ridge.rms_norm %x eps 9.9999999999999995E-7 : (tensor<4x6xf32>) -> tensor<4x6xf32>
  // CHECK: ridge.rms_norm %arg0 weight %arg1 eps 0.000000e+00 : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  %6 = ridge.rms_norm %x weight %w eps 0.0 : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<4x6xf32>
  return
}
