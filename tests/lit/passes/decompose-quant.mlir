// RUN: ridge-opt %s --ridge-decompose-quant | FileCheck %s

// The scale of a row: its greatest magnitude over that of the type, but 1 where that is 0. What is quantised is rounded to its own
// type first.
// CHECK-LABEL: func.func @token
// CHECK: %[[R:.*]] = ridge.map cast(%arg0) {{.*}} (tensor<4x96xbf16>) -> tensor<4x96xbf16>
// CHECK: %[[X:.*]] = ridge.map cast(%[[R]]) {{.*}} -> tensor<4x96xf32>
// CHECK: %[[A:.*]] = ridge.map abs(%[[X]])
// CHECK: %[[RANGE:.*]] = ridge.reduce amax %[[A]] over [1] {{.*}} -> tensor<4xf32>
// CHECK: %[[L:.*]] = ridge.literal 4.480000e+02
// CHECK: ridge.map div(%[[RANGE]], %[[L]])
// CHECK: ridge.map eq(%[[RANGE]]
// CHECK: %[[S:.*]] = ridge.map where({{.*}} -> tensor<4xf32>
// CHECK: %[[COLUMN:.*]] = ridge.reshape %[[S]] {{.*}} -> tensor<4x1xf32>
// CHECK: %[[V:.*]] = ridge.map div(%[[X]], %[[COLUMN]])
// CHECK: %[[Q:.*]] = ridge.map cast(%[[V]]) {ridge.name = "q"} : (tensor<4x96xf32>) -> tensor<4x96xf8E4M3FN>
// CHECK: return %[[Q]], %[[S]]
func.func @token(%x: tensor<4x96xbf16>) -> (tensor<4x96xf8E4M3FN>, tensor<4xf32>) {
  %q, %s = ridge.quantize %x <token> {ridge.name = "q"} : (tensor<4x96xbf16>) -> (tensor<4x96xf8E4M3FN>, tensor<4xf32>)
  return %q, %s : tensor<4x96xf8E4M3FN>, tensor<4xf32>
}

// Blocks at the edges are filled up with zeros, which change no range.
// CHECK-LABEL: func.func @blocks
// CHECK: ridge.pad {{.*}} low [0, 0, 0] high [0, 2, 28] value(0.000000e+00) {{.*}} -> tensor<1x12x128xf32>
// CHECK: ridge.reshape {{.*}} -> tensor<1x3x4x4x32xf32>
// CHECK: ridge.reduce amax {{.*}} over [2, 4] {{.*}} -> tensor<1x3x4xf32>
// CHECK: ridge.expand {{.*}} tensor<1x3x1x4x1xf32> -> tensor<1x3x4x4x32xf32>
// CHECK: ridge.slice {{.*}} dim 1 start 0 step 1
// CHECK: ridge.slice {{.*}} dim 2 start 0 step 1 {{.*}} -> tensor<1x10x100xf32>
// CHECK: ridge.map clamp({{.*}} {max = 1.270000e+02 : f64, min = -1.270000e+02 : f64
func.func @blocks(%x: tensor<10x100xf32>) -> (tensor<10x100xi8>, tensor<3x4xf32>) {
  %q, %s = ridge.quantize %x <block 4 by 32> : (tensor<10x100xf32>) -> (tensor<10x100xi8>, tensor<3x4xf32>)
  return %q, %s : tensor<10x100xi8>, tensor<3x4xf32>
}

// Powers of two are rounded up, so that nothing clips.
// CHECK-LABEL: func.func @microscaled
// CHECK: ridge.map cast({{.*}} -> tensor<8x4xf8E8M0FNU>
// CHECK: ridge.map ge
// CHECK: %[[S:.*]] = ridge.map cast({{.*}} -> tensor<8x4xf8E8M0FNU>
// CHECK: return {{.*}}, %[[S]]
func.func @microscaled(%x: tensor<8x128xf32>) -> (tensor<8x128xf8E5M2>, tensor<8x4xf8E8M0FNU>) {
  %q, %s = ridge.quantize %x <block 1 by 32> : (tensor<8x128xf32>) -> (tensor<8x128xf8E5M2>, tensor<8x4xf8E8M0FNU>)
  return %q, %s : tensor<8x128xf8E5M2>, tensor<8x4xf8E8M0FNU>
}

// CHECK-LABEL: func.func @asymmetric
// CHECK: ridge.reduce amin
// CHECK: ridge.reduce amax
// CHECK: ridge.literal 2.550000e+02
// CHECK: ridge.map clamp({{.*}} {max = 127 : i64, min = -128 : i64
func.func @asymmetric(%x: tensor<8x128xf32>) -> (tensor<8x128xi8>, tensor<8xf32>, tensor<8xi32>) {
  %q, %s, %z = ridge.quantize %x <axis 0> asymmetric : (tensor<8x128xf32>) -> (tensor<8x128xi8>, tensor<8xf32>, tensor<8xi32>)
  return %q, %s, %z : tensor<8x128xi8>, tensor<8xf32>, tensor<8xi32>
}

// A scale that is given is not found, and returned as it came.
// CHECK-LABEL: func.func @given
// CHECK-NOT: ridge.reduce
// CHECK: ridge.map div
// CHECK: return {{.*}}, %arg1
func.func @given(%x: tensor<8x128xf32>, %s: tensor<f32>) -> (tensor<8x128xi8>, tensor<f32>) {
  %q, %r = ridge.quantize %x scale %s <tensor> : (tensor<8x128xf32>, tensor<f32>) -> (tensor<8x128xi8>, tensor<f32>)
  return %q, %r : tensor<8x128xi8>, tensor<f32>
}

// CHECK-LABEL: func.func @back
// CHECK-NOT: ridge.dequantize
// CHECK: ridge.map mul({{.*}} (tensor<8x128xf32>, tensor<8x1xf32>) -> tensor<8x128xf32>
// CHECK: ridge.map cast({{.*}} -> tensor<8x128xbf16>
func.func @back(%q: tensor<8x128xi8>, %s: tensor<8xf32>) -> tensor<8x128xbf16> {
  %x = ridge.dequantize %q scale %s <token> : (tensor<8x128xi8>, tensor<8xf32>) -> tensor<8x128xbf16>
  return %x : tensor<8x128xbf16>
}

// Groups of nothing have the scale 1.
// CHECK-LABEL: func.func @nothing
// CHECK: ridge.full(1.000000e+00) : tensor<8xf32>
func.func @nothing(%x: tensor<8x0xf32>) -> tensor<8xf32> {
  %q, %s = ridge.quantize %x <token> : (tensor<8x0xf32>) -> (tensor<8x0xi8>, tensor<8xf32>)
  return %s : tensor<8xf32>
}

// The scales of a quantised product come behind it; those of blocks, which vary along K, before.
// CHECK-LABEL: func.func @scaled_matmul
// CHECK: ridge.matmul {{.*}} transpose_b : (tensor<4x256xf8E4M3FN>, tensor<5x256xf8E4M3FN>) -> tensor<4x5xf32>
// CHECK: ridge.reshape {{.*}} tensor<4xf32> -> tensor<4x1xf32>
// CHECK: ridge.map mul
// CHECK: ridge.reshape {{.*}} tensor<5x1xf32> -> tensor<1x5xf32>
// CHECK: ridge.map mul
// CHECK: ridge.expand
// CHECK: ridge.map mul
// CHECK: ridge.matmul {{.*}} transpose_b : (tensor<4x256xf32>, tensor<5x256xf32>) -> tensor<4x5xf32>
func.func @scaled_matmul(%a: tensor<4x256xf8E4M3FN>, %b: tensor<5x256xf8E4M3FN>, %s: tensor<4xf32>, %t: tensor<5xf32>, %u: tensor<4x2xf32>) -> (tensor<4x5xf32>, tensor<4x5xf32>) {
  %y = ridge.scaled_matmul %a scale %s <token>, %b transpose_b scale %t <token> : (tensor<4x256xf8E4M3FN>, tensor<5x256xf8E4M3FN>, tensor<4xf32>, tensor<5xf32>) -> tensor<4x5xf32>
  %z = ridge.scaled_matmul %a scale %u <block 1 by 128>, %b transpose_b scale %t <token> : (tensor<4x256xf8E4M3FN>, tensor<5x256xf8E4M3FN>, tensor<4x2xf32>, tensor<5xf32>) -> tensor<4x5xf32>
  return %y, %z : tensor<4x5xf32>, tensor<4x5xf32>
}
