// RUN: ridge-opt %s | ridge-opt | FileCheck %s
//
// Every elementwise function, mixed types, broadcasting, literals.

// CHECK-LABEL: func.func @unary
func.func @unary(%x: tensor<3x5xf32>, %b: tensor<3x5xi1>, %i: tensor<3x5xi32>) {
  // CHECK: ridge.map abs(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %0 = ridge.map abs(%x) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map neg(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %1 = ridge.map neg(%x) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map sign(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %2 = ridge.map sign(%x) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map exp(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %3 = ridge.map exp(%x) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map exp2(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %4 = ridge.map exp2(%x) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map expm1(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %5 = ridge.map expm1(%x) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map log(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %6 = ridge.map log(%x) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map log2(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %7 = ridge.map log2(%x) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map log1p(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %8 = ridge.map log1p(%x) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map sqrt(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %9 = ridge.map sqrt(%x) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map rsqrt(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %10 = ridge.map rsqrt(%x) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map reciprocal(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %11 = ridge.map reciprocal(%x) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map square(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %12 = ridge.map square(%x) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map sin(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %13 = ridge.map sin(%x) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map cos(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %14 = ridge.map cos(%x) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map tanh(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %15 = ridge.map tanh(%x) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map sigmoid(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %16 = ridge.map sigmoid(%x) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map erf(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %17 = ridge.map erf(%x) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map relu(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %18 = ridge.map relu(%x) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map silu(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %19 = ridge.map silu(%x) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map softplus(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %20 = ridge.map softplus(%x) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map floor(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %21 = ridge.map floor(%x) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map ceil(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %22 = ridge.map ceil(%x) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map round(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %23 = ridge.map round(%x) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map trunc(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %24 = ridge.map trunc(%x) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map isnan(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xi1>
  %25 = ridge.map isnan(%x) : (tensor<3x5xf32>) -> tensor<3x5xi1>
  // CHECK: ridge.map isinf(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xi1>
  %26 = ridge.map isinf(%x) : (tensor<3x5xf32>) -> tensor<3x5xi1>
  // CHECK: ridge.map isfinite(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xi1>
  %27 = ridge.map isfinite(%x) : (tensor<3x5xf32>) -> tensor<3x5xi1>
  // CHECK: ridge.map logical_not(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xi1>
  %28 = ridge.map logical_not(%x) : (tensor<3x5xf32>) -> tensor<3x5xi1>
  // CHECK: ridge.map bitwise_not(%arg2) : (tensor<3x5xi32>) -> tensor<3x5xi32>
  %29 = ridge.map bitwise_not(%i) : (tensor<3x5xi32>) -> tensor<3x5xi32>
  return
}

// CHECK-LABEL: func.func @unary_with_attributes
func.func @unary_with_attributes(%x: tensor<3x5xf32>, %h: tensor<3x5xbf16>, %i: tensor<i64>) {
  // CHECK: ridge.map gelu(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  %0 = ridge.map gelu(%x) : (tensor<3x5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map gelu(%arg1) tanh : (tensor<3x5xbf16>) -> tensor<3x5xbf16>
  %1 = ridge.map gelu(%h) tanh : (tensor<3x5xbf16>) -> tensor<3x5xbf16>
  // CHECK: ridge.map cast(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xf16>
  %2 = ridge.map cast(%x) : (tensor<3x5xf32>) -> tensor<3x5xf16>
  // CHECK: ridge.map cast(%arg0) : (tensor<3x5xf32>) -> tensor<3x5xf8E4M3FN>
  %3 = ridge.map cast(%x) {saturate = true} : (tensor<3x5xf32>) -> tensor<3x5xf8E4M3FN>
  // CHECK: ridge.map cast(%arg0) {saturate = false} : (tensor<3x5xf32>) -> tensor<3x5xf8E5M2>
  %4 = ridge.map cast(%x) {saturate = false} : (tensor<3x5xf32>) -> tensor<3x5xf8E5M2>
  // CHECK: ridge.map cast(%arg2) : (tensor<i64>) -> tensor<ui8>
  %5 = ridge.map cast(%i) : (tensor<i64>) -> tensor<ui8>
  // CHECK: ridge.map clamp(%arg0) {max = 1.500000e+00 : f64, min = -1.000000e+00 : f64}
  %6 = ridge.map clamp(%x) {min = -1.0, max = 1.5} : (tensor<3x5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map clamp(%arg2) {min = -3 : i64} : (tensor<i64>) -> tensor<i64>
  %7 = ridge.map clamp(%i) {min = -3} : (tensor<i64>) -> tensor<i64>
  return
}

// CHECK-LABEL: func.func @binary
func.func @binary(%x: tensor<3x5xf32>, %y: tensor<5xf32>, %b: tensor<3x5xi1>, %i: tensor<3x5xi32>) {
  // CHECK: ridge.map add(%arg0, %arg1) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
  %0 = ridge.map add(%x, %y) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map sub(%arg0, %arg1) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
  %1 = ridge.map sub(%x, %y) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map mul(%arg0, %arg1) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
  %2 = ridge.map mul(%x, %y) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map div(%arg0, %arg1) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
  %3 = ridge.map div(%x, %y) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map floor_divide(%arg0, %arg1) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
  %4 = ridge.map floor_divide(%x, %y) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map fmod(%arg0, %arg1) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
  %5 = ridge.map fmod(%x, %y) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map remainder(%arg0, %arg1) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
  %6 = ridge.map remainder(%x, %y) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map pow(%arg0, %arg1) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
  %7 = ridge.map pow(%x, %y) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map atan2(%arg0, %arg1) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
  %8 = ridge.map atan2(%x, %y) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map maximum(%arg0, %arg1) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
  %9 = ridge.map maximum(%x, %y) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map minimum(%arg0, %arg1) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
  %10 = ridge.map minimum(%x, %y) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xf32>
  // CHECK: ridge.map eq(%arg0, %arg1) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xi1>
  %11 = ridge.map eq(%x, %y) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xi1>
  // CHECK: ridge.map ne(%arg0, %arg1) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xi1>
  %12 = ridge.map ne(%x, %y) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xi1>
  // CHECK: ridge.map lt(%arg0, %arg1) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xi1>
  %13 = ridge.map lt(%x, %y) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xi1>
  // CHECK: ridge.map le(%arg0, %arg1) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xi1>
  %14 = ridge.map le(%x, %y) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xi1>
  // CHECK: ridge.map gt(%arg0, %arg1) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xi1>
  %15 = ridge.map gt(%x, %y) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xi1>
  // CHECK: ridge.map ge(%arg0, %arg1) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xi1>
  %16 = ridge.map ge(%x, %y) : (tensor<3x5xf32>, tensor<5xf32>) -> tensor<3x5xi1>
  // CHECK: ridge.map logical_and(%arg2, %arg2) : (tensor<3x5xi1>, tensor<3x5xi1>) -> tensor<3x5xi1>
  %17 = ridge.map logical_and(%b, %b) : (tensor<3x5xi1>, tensor<3x5xi1>) -> tensor<3x5xi1>
  // CHECK: ridge.map logical_or(%arg2, %arg2) : (tensor<3x5xi1>, tensor<3x5xi1>) -> tensor<3x5xi1>
  %18 = ridge.map logical_or(%b, %b) : (tensor<3x5xi1>, tensor<3x5xi1>) -> tensor<3x5xi1>
  // CHECK: ridge.map logical_xor(%arg2, %arg2) : (tensor<3x5xi1>, tensor<3x5xi1>) -> tensor<3x5xi1>
  %19 = ridge.map logical_xor(%b, %b) : (tensor<3x5xi1>, tensor<3x5xi1>) -> tensor<3x5xi1>
  // CHECK: ridge.map bitwise_and(%arg3, %arg3) : (tensor<3x5xi32>, tensor<3x5xi32>) -> tensor<3x5xi32>
  %20 = ridge.map bitwise_and(%i, %i) : (tensor<3x5xi32>, tensor<3x5xi32>) -> tensor<3x5xi32>
  // CHECK: ridge.map bitwise_or(%arg3, %arg3) : (tensor<3x5xi32>, tensor<3x5xi32>) -> tensor<3x5xi32>
  %21 = ridge.map bitwise_or(%i, %i) : (tensor<3x5xi32>, tensor<3x5xi32>) -> tensor<3x5xi32>
  // CHECK: ridge.map bitwise_xor(%arg3, %arg3) : (tensor<3x5xi32>, tensor<3x5xi32>) -> tensor<3x5xi32>
  %22 = ridge.map bitwise_xor(%i, %i) : (tensor<3x5xi32>, tensor<3x5xi32>) -> tensor<3x5xi32>
  return
}

// CHECK-LABEL: func.func @where
func.func @where(%c: tensor<5xi1>, %x: tensor<3x1xf16>, %y: tensor<bf16>) -> tensor<3x5xf32> {
  // CHECK: ridge.map where(%arg0, %arg1, %arg2) : (tensor<5xi1>, tensor<3x1xf16>, tensor<bf16>) -> tensor<3x5xf32>
  %0 = ridge.map where(%c, %x, %y) : (tensor<5xi1>, tensor<3x1xf16>, tensor<bf16>) -> tensor<3x5xf32>
  return %0 : tensor<3x5xf32>
}

// A literal does not widen what it meets, but changes its category.
// CHECK-LABEL: func.func @literals
func.func @literals(%h: tensor<4xbf16>, %i: tensor<4xi32>, %b: tensor<4xi1>) {
  // CHECK: %[[HALF:.*]] = ridge.literal 5.000000e-01{{$}}
  %half = ridge.literal 0.5
  // CHECK: %[[TWO:.*]] = ridge.literal 2{{$}}
  %two = ridge.literal 2
  // CHECK: %[[YES:.*]] = ridge.literal true{{$}}
  %yes = ridge.literal true
  // CHECK: ridge.literal 1.0000000000000002{{$}}
  %precise = ridge.literal 1.0000000000000002
  // CHECK: ridge.literal -9223372036854775808{{$}}
  %least = ridge.literal -9223372036854775808
  // CHECK: ridge.literal 0x7FF0000000000000 : f64
  %inf = ridge.literal 0x7FF0000000000000 : f64
  // CHECK: ridge.literal 0x7FF8000000000000 : f64
  %nan = ridge.literal 0x7FF8000000000000 : f64
  // CHECK: ridge.literal -0.000000e+00
  %negative_zero = ridge.literal -0.0
  // CHECK: ridge.map add(%arg0, %[[HALF]]) : (tensor<4xbf16>, tensor<f32>) -> tensor<4xbf16>
  %0 = ridge.map add(%h, %half) : (tensor<4xbf16>, tensor<f32>) -> tensor<4xbf16>
  // CHECK: ridge.map mul(%arg1, %[[TWO]]) : (tensor<4xi32>, tensor<i64>) -> tensor<4xi32>
  %1 = ridge.map mul(%i, %two) : (tensor<4xi32>, tensor<i64>) -> tensor<4xi32>
  // CHECK: ridge.map mul(%arg1, %[[HALF]]) : (tensor<4xi32>, tensor<f32>) -> tensor<4xf32>
  %2 = ridge.map mul(%i, %half) : (tensor<4xi32>, tensor<f32>) -> tensor<4xf32>
  // CHECK: ridge.map logical_and(%arg2, %[[YES]]) : (tensor<4xi1>, tensor<i1>) -> tensor<4xi1>
  %3 = ridge.map logical_and(%b, %yes) : (tensor<4xi1>, tensor<i1>) -> tensor<4xi1>
  return
}

// Empty and rank-0 tensors, rank 8.
// CHECK-LABEL: func.func @extents
func.func @extents(%e: tensor<0x3xf32>, %s: tensor<f32>, %r: tensor<1x2x1x2x1x2x1x2xf32>) {
  // CHECK: ridge.map add(%arg0, %arg1) : (tensor<0x3xf32>, tensor<f32>) -> tensor<0x3xf32>
  %0 = ridge.map add(%e, %s) : (tensor<0x3xf32>, tensor<f32>) -> tensor<0x3xf32>
  // CHECK: ridge.map exp(%arg1) : (tensor<f32>) -> tensor<f32>
  %1 = ridge.map exp(%s) : (tensor<f32>) -> tensor<f32>
  // CHECK: ridge.map exp(%arg2)
  %2 = ridge.map exp(%r) : (tensor<1x2x1x2x1x2x1x2xf32>) -> tensor<1x2x1x2x1x2x1x2xf32>
  return
}
