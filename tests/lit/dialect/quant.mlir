// RUN: ridge-opt %s | ridge-opt | FileCheck %s
//
// Quantisation.

// CHECK-LABEL: func.func @quantize
func.func @quantize(%x: tensor<4x256xbf16>, %s: tensor<f32>) {
  // CHECK: ridge.quantize %arg0 <tensor> : (tensor<4x256xbf16>) -> (tensor<4x256xf8E4M3FN>, tensor<f32>)
  %q0, %s0 = ridge.quantize %x <tensor> : (tensor<4x256xbf16>) -> (tensor<4x256xf8E4M3FN>, tensor<f32>)
  // CHECK: ridge.quantize %arg0 scale %arg1 <tensor> : (tensor<4x256xbf16>, tensor<f32>) -> (tensor<4x256xi8>, tensor<f32>)
  %q1, %s1 = ridge.quantize %x scale %s <tensor> : (tensor<4x256xbf16>, tensor<f32>) -> (tensor<4x256xi8>, tensor<f32>)
  // CHECK: ridge.quantize %arg0 <axis 1> : (tensor<4x256xbf16>) -> (tensor<4x256xi8>, tensor<256xf32>)
  %q2, %s2 = ridge.quantize %x <axis 1> : (tensor<4x256xbf16>) -> (tensor<4x256xi8>, tensor<256xf32>)
  // CHECK: ridge.quantize %arg0 <token> : (tensor<4x256xbf16>) -> (tensor<4x256xf8E5M2>, tensor<4xf32>)
  %q3, %s3 = ridge.quantize %x <token> : (tensor<4x256xbf16>) -> (tensor<4x256xf8E5M2>, tensor<4xf32>)
  // CHECK: ridge.quantize %arg0 <block 1 by 32> : (tensor<4x256xbf16>) -> (tensor<4x256xf8E4M3FN>, tensor<4x8xf8E8M0FNU>)
  %q4, %s4 = ridge.quantize %x <block 1 by 32> : (tensor<4x256xbf16>) -> (tensor<4x256xf8E4M3FN>, tensor<4x8xf8E8M0FNU>)
  // CHECK: ridge.quantize %arg0 <token> asymmetric : (tensor<4x256xbf16>) -> (tensor<4x256xi8>, tensor<4xf32>, tensor<4xi32>)
  %q5, %s5, %z5 = ridge.quantize %x <token> asymmetric : (tensor<4x256xbf16>) -> (tensor<4x256xi8>, tensor<4xf32>, tensor<4xi32>)
  return
}

// CHECK-LABEL: func.func @dequantize
func.func @dequantize(%q: tensor<4x256xf8E4M3FN>, %s: tensor<4x2xf32>, %i: tensor<4x256xi8>, %t: tensor<4xf32>, %z: tensor<4xi32>) {
  // CHECK: ridge.dequantize %arg0 scale %arg1 <block 1 by 128> : (tensor<4x256xf8E4M3FN>, tensor<4x2xf32>) -> tensor<4x256xbf16>
  %0 = ridge.dequantize %q scale %s <block 1 by 128> : (tensor<4x256xf8E4M3FN>, tensor<4x2xf32>) -> tensor<4x256xbf16>
  // CHECK: ridge.dequantize %arg2 scale %arg3 zero_point %arg4 <token> : (tensor<4x256xi8>, tensor<4xf32>, tensor<4xi32>) -> tensor<4x256xf32>
  %1 = ridge.dequantize %i scale %t zero_point %z <token> : (tensor<4x256xi8>, tensor<4xf32>, tensor<4xi32>) -> tensor<4x256xf32>
  return
}

// CHECK-LABEL: func.func @fake_quantize
func.func @fake_quantize(%x: tensor<4x256xbf16>, %s: tensor<f32>) {
  // CHECK: ridge.fake_quantize %arg0 through f8E4M3FN, f32 <token> : (tensor<4x256xbf16>) -> tensor<4x256xbf16>
  %0 = ridge.fake_quantize %x through f8E4M3FN, f32 <token> : (tensor<4x256xbf16>) -> tensor<4x256xbf16>
  // CHECK: ridge.fake_quantize %arg0 through f8E5M2, f8E8M0FNU <block 1 by 32> : (tensor<4x256xbf16>) -> tensor<4x256xbf16>
  %1 = ridge.fake_quantize %x through f8E5M2, f8E8M0FNU <block 1 by 32> : (tensor<4x256xbf16>) -> tensor<4x256xbf16>
  // CHECK: ridge.fake_quantize %arg0 scale %arg1 through i8, f32 <tensor> : (tensor<4x256xbf16>, tensor<f32>) -> tensor<4x256xbf16>
  %2 = ridge.fake_quantize %x scale %s through i8, f32 <tensor> : (tensor<4x256xbf16>, tensor<f32>) -> tensor<4x256xbf16>
  // CHECK: ridge.fake_quantize %arg0 through i8, f32 <tensor> asymmetric : (tensor<4x256xbf16>) -> tensor<4x256xbf16>
  %3 = ridge.fake_quantize %x through i8, f32 <tensor> asymmetric : (tensor<4x256xbf16>) -> tensor<4x256xbf16>
  return
}

// CHECK-LABEL: func.func @scaled_matmul
func.func @scaled_matmul(%a: tensor<4x256xf8E4M3FN>, %b: tensor<5x256xf8E4M3FN>, %sa: tensor<4x2xf32>, %sb: tensor<1x2xf32>, %s: tensor<f32>, %c: tensor<256x5xf8E4M3FN>) {
  // CHECK: ridge.scaled_matmul %arg0 scale %arg2 <block 1 by 128>, %arg1 transpose_b scale %arg3 <block 128 by 128> fast_accumulate
  // CHECK-SAME: : (tensor<4x256xf8E4M3FN>, tensor<5x256xf8E4M3FN>, tensor<4x2xf32>, tensor<1x2xf32>) -> tensor<4x5xbf16>
  %0 = "ridge.scaled_matmul"(%a, %b, %sa, %sb) <{fast_accumulate, granularity_a = #ridge.granularity<block 1 by 128>,
      granularity_b = #ridge.granularity<block 128 by 128>, transpose_b}>
      : (tensor<4x256xf8E4M3FN>, tensor<5x256xf8E4M3FN>, tensor<4x2xf32>, tensor<1x2xf32>) -> tensor<4x5xbf16>
  // CHECK: ridge.scaled_matmul %arg0 scale %arg4 <tensor>, %arg5 scale %arg4 <tensor>
  // CHECK-SAME: : (tensor<4x256xf8E4M3FN>, tensor<256x5xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<4x5xf32>
  %1 = ridge.scaled_matmul %a scale %s <tensor>, %c scale %s <tensor>
      : (tensor<4x256xf8E4M3FN>, tensor<256x5xf8E4M3FN>, tensor<f32>, tensor<f32>) -> tensor<4x5xf32>
  return
}
