// RUN: ridge-opt %s -canonicalize -split-input-file | FileCheck %s
//
// Folds move and compose index maps; an op that absorbs its producer keeps its own name.

// CHECK-LABEL: func.func @identities
// CHECK-NEXT: return %arg0, %arg0, %arg0, %arg0, %arg0, %arg0, %arg0 :
func.func @identities(%x: tensor<4x1x6xbf16>) -> (tensor<4x1x6xbf16>, tensor<4x1x6xbf16>, tensor<4x1x6xbf16>,
    tensor<4x1x6xbf16>, tensor<4x1x6xbf16>, tensor<4x1x6xbf16>, tensor<4x1x6xbf16>) {
  %0 = ridge.reshape %x : tensor<4x1x6xbf16> -> tensor<4x1x6xbf16>
  %1 = ridge.permute %x by [0, 1, 2] : tensor<4x1x6xbf16> -> tensor<4x1x6xbf16>
  %2 = ridge.expand %x : tensor<4x1x6xbf16> -> tensor<4x1x6xbf16>
  %3 = ridge.slice %x dim 2 start 0 step 1 : tensor<4x1x6xbf16> -> tensor<4x1x6xbf16>
  %4 = ridge.flip %x dims [1] : tensor<4x1x6xbf16> -> tensor<4x1x6xbf16>
  %5 = ridge.pad %x low [0, 0, 0] high [0, 0, 0] value(1.0) : tensor<4x1x6xbf16> -> tensor<4x1x6xbf16>
  %6 = ridge.cat %x dim 0 : (tensor<4x1x6xbf16>) -> tensor<4x1x6xbf16>
  return %0, %1, %2, %3, %4, %5, %6 : tensor<4x1x6xbf16>, tensor<4x1x6xbf16>, tensor<4x1x6xbf16>, tensor<4x1x6xbf16>,
      tensor<4x1x6xbf16>, tensor<4x1x6xbf16>, tensor<4x1x6xbf16>
}

// -----

// CHECK-LABEL: func.func @scalar_and_empty
// CHECK-NEXT: return %arg0, %arg1, %arg2 :
func.func @scalar_and_empty(%s: tensor<f32>, %e: tensor<0x3xf32>, %o: tensor<1xf32>) -> (tensor<f32>, tensor<0x3xf32>, tensor<1xf32>) {
  %0 = ridge.permute %s by [] : tensor<f32> -> tensor<f32>
  %1 = ridge.slice %e dim 0 start 0 step -1 : tensor<0x3xf32> -> tensor<0x3xf32>
  %2 = ridge.slice %o dim 0 start 0 step -3 : tensor<1xf32> -> tensor<1xf32>
  return %0, %1, %2 : tensor<f32>, tensor<0x3xf32>, tensor<1xf32>
}

// -----

// What looks like an identity and is none.
// CHECK-LABEL: func.func @not_identities
func.func @not_identities(%x: tensor<4x4xf32>) -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>) {
  // CHECK: ridge.permute %arg0 by [1, 0]
  %0 = ridge.permute %x by [1, 0] : tensor<4x4xf32> -> tensor<4x4xf32>
  // CHECK: ridge.slice %arg0 dim 0 start 3 step -1
  %1 = ridge.slice %x dim 0 start 3 step -1 : tensor<4x4xf32> -> tensor<4x4xf32>
  // CHECK: ridge.flip %arg0 dims [1]
  %2 = ridge.flip %x dims [1] : tensor<4x4xf32> -> tensor<4x4xf32>
  // CHECK: ridge.reduce sum %arg0 over [] :
  %3 = ridge.reduce sum %x over [] : tensor<4x4xf32> -> tensor<4x4xf32>
  return %0, %1, %2, %3 : tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>
}

// -----

// CHECK-LABEL: func.func @compose
func.func @compose(%x: tensor<2x3x4xf32>, %y: tensor<1x4xf32>, %z: tensor<20x2xf32>)
    -> (tensor<24xf32>, tensor<3x2x4xf32>, tensor<2x3x4xf32>, tensor<5x3x4xf32>, tensor<3x2xf32>, tensor<2x2xf32>) {
  // CHECK: %r = ridge.reshape %arg0 {ridge.name = "r", ridge.node = 1 : i64} : tensor<2x3x4xf32> -> tensor<24xf32>
  %0 = ridge.reshape %x {ridge.name = "q", ridge.node = 0} : tensor<2x3x4xf32> -> tensor<6x4xf32>
  %1 = ridge.reshape %0 {ridge.name = "r", ridge.node = 1} : tensor<6x4xf32> -> tensor<24xf32>
  // Dimension i of the result is dimension inner[outer[i]] of the source.
  // CHECK: ridge.permute %arg0 by [1, 0, 2] {ridge.name = "p"} : tensor<2x3x4xf32> -> tensor<3x2x4xf32>
  %2 = ridge.permute %x by [1, 2, 0] : tensor<2x3x4xf32> -> tensor<3x4x2xf32>
  %3 = ridge.permute %2 by [0, 2, 1] {ridge.name = "p"} : tensor<3x4x2xf32> -> tensor<3x2x4xf32>
  // CHECK: ridge.flip %arg0 dims [0, 2] : tensor<2x3x4xf32> -> tensor<2x3x4xf32>
  %4 = ridge.flip %x dims [2, 1] : tensor<2x3x4xf32> -> tensor<2x3x4xf32>
  %5 = ridge.flip %4 dims [1, 0] : tensor<2x3x4xf32> -> tensor<2x3x4xf32>
  // CHECK: ridge.expand %arg1 : tensor<1x4xf32> -> tensor<5x3x4xf32>
  %6 = ridge.expand %y : tensor<1x4xf32> -> tensor<3x4xf32>
  %7 = ridge.expand %6 : tensor<3x4xf32> -> tensor<5x3x4xf32>
  // 19, 16, 13, ... then its elements 1, 3, 5.
  // CHECK: ridge.slice %arg2 dim 0 start 16 step -6 : tensor<20x2xf32> -> tensor<3x2xf32>
  %8 = ridge.slice %z dim 0 start 19 step -3 : tensor<20x2xf32> -> tensor<7x2xf32>
  %9 = ridge.slice %8 dim 0 start 1 step 2 : tensor<7x2xf32> -> tensor<3x2xf32>
  // CHECK: ridge.slice %arg2 dim 0 start 7 step -1 : tensor<20x2xf32> -> tensor<2x2xf32>
  %10 = ridge.slice %z dim 0 start 5 step 1 : tensor<20x2xf32> -> tensor<3x2xf32>
  %11 = ridge.slice %10 dim 0 start 2 step -1 : tensor<3x2xf32> -> tensor<2x2xf32>
  return %1, %3, %5, %7, %9, %11 : tensor<24xf32>, tensor<3x2x4xf32>, tensor<2x3x4xf32>, tensor<5x3x4xf32>, tensor<3x2xf32>, tensor<2x2xf32>
}

// -----

// CHECK-LABEL: func.func @cancel
// CHECK-NEXT: return %arg0, %arg0, %arg0, %arg0 :
func.func @cancel(%x: tensor<2x3x4xf32>) -> (tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>) {
  %0 = ridge.reshape %x : tensor<2x3x4xf32> -> tensor<24xf32>
  %1 = ridge.reshape %0 : tensor<24xf32> -> tensor<2x3x4xf32>
  %2 = ridge.permute %x by [2, 0, 1] : tensor<2x3x4xf32> -> tensor<4x2x3xf32>
  %3 = ridge.permute %2 by [1, 2, 0] : tensor<4x2x3xf32> -> tensor<2x3x4xf32>
  %4 = ridge.flip %x dims [0, 1] : tensor<2x3x4xf32> -> tensor<2x3x4xf32>
  %5 = ridge.flip %4 dims [1, 0] : tensor<2x3x4xf32> -> tensor<2x3x4xf32>
  %6 = ridge.slice %x dim 2 start 3 step -1 : tensor<2x3x4xf32> -> tensor<2x3x4xf32>
  %7 = ridge.slice %6 dim 2 start 3 step -1 : tensor<2x3x4xf32> -> tensor<2x3x4xf32>
  return %1, %3, %5, %7 : tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>, tensor<2x3x4xf32>
}

// -----

// Slices along different dimensions stay two.
// CHECK-LABEL: func.func @slices_apart
func.func @slices_apart(%x: tensor<6x6xf32>) -> tensor<3x3xf32> {
  // CHECK: ridge.slice %arg0 dim 0
  %0 = ridge.slice %x dim 0 start 0 step 2 : tensor<6x6xf32> -> tensor<3x6xf32>
  // CHECK: ridge.slice %{{.*}} dim 1
  %1 = ridge.slice %0 dim 1 start 0 step 2 : tensor<3x6xf32> -> tensor<3x3xf32>
  return %1 : tensor<3x3xf32>
}

// -----

// CHECK-LABEL: func.func @cat
func.func @cat(%x: tensor<4x3xf32>, %e: tensor<0x3xf32>, %h: tensor<2x3xf16>, %n: tensor<0x3xf16>)
    -> (tensor<4x3xf32>, tensor<6x3xf32>, tensor<2x3xf32>, tensor<0x3xf32>, tensor<8x3xf32>) {
  // CHECK-NEXT: ridge.cat %arg0, %arg2 dim 0 : (tensor<4x3xf32>, tensor<2x3xf16>) -> tensor<6x3xf32>
  // CHECK-NEXT: ridge.cat %arg1, %arg2 dim 0 : (tensor<0x3xf32>, tensor<2x3xf16>) -> tensor<2x3xf32>
  // CHECK-NEXT: ridge.cat %arg0, %arg3, %arg0 dim 0 :
  %0 = ridge.cat %e, %x, %e dim 0 : (tensor<0x3xf32>, tensor<4x3xf32>, tensor<0x3xf32>) -> tensor<4x3xf32>
  %1 = ridge.cat %x, %e, %h dim 0 : (tensor<4x3xf32>, tensor<0x3xf32>, tensor<2x3xf16>) -> tensor<6x3xf32>
  // The empty operand gives the result its type.
  %2 = ridge.cat %e, %h dim 0 : (tensor<0x3xf32>, tensor<2x3xf16>) -> tensor<2x3xf32>
  %3 = ridge.cat %e, %e dim 0 : (tensor<0x3xf32>, tensor<0x3xf32>) -> tensor<0x3xf32>
  %4 = ridge.cat %x, %n, %x dim 0 : (tensor<4x3xf32>, tensor<0x3xf16>, tensor<4x3xf32>) -> tensor<8x3xf32>
  // CHECK-NEXT: return %arg0, %{{.*}}, %{{.*}}, %arg1, %{{.*}} :
  return %0, %1, %2, %3, %4 : tensor<4x3xf32>, tensor<6x3xf32>, tensor<2x3xf32>, tensor<0x3xf32>, tensor<8x3xf32>
}

// -----

// A cast to the same type goes, but for a 16-bit value that may hold more than its type does.
// CHECK-LABEL: func.func @casts
func.func @casts(%x: tensor<4xf32>, %h: tensor<4xbf16>, %q: tensor<4xf8E4M3FN>, %i: tensor<4xi8>)
    -> (tensor<4xf32>, tensor<4xbf16>, tensor<4xf8E4M3FN>, tensor<4xi8>, tensor<4xbf16>, tensor<4xbf16>, tensor<4xf32>) {
  // CHECK-NEXT: %[[E:.*]] = ridge.map exp(%arg1)
  // CHECK-NEXT: %[[C:.*]] = ridge.map cast(%[[E]]) : (tensor<4xbf16>) -> tensor<4xbf16>
  // CHECK-NEXT: %[[F:.*]] = ridge.map exp(%arg0)
  // CHECK-NEXT: return %arg0, %arg1, %arg2, %arg3, %[[C]], %[[C]], %[[F]] :
  %0 = ridge.map cast(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = ridge.map cast(%h) : (tensor<4xbf16>) -> tensor<4xbf16>
  %2 = ridge.map cast(%q) : (tensor<4xf8E4M3FN>) -> tensor<4xf8E4M3FN>
  %3 = ridge.map cast(%i) : (tensor<4xi8>) -> tensor<4xi8>
  %4 = ridge.map exp(%h) : (tensor<4xbf16>) -> tensor<4xbf16>
  %5 = ridge.map cast(%4) : (tensor<4xbf16>) -> tensor<4xbf16>
  %6 = ridge.map cast(%5) : (tensor<4xbf16>) -> tensor<4xbf16>
  %7 = ridge.map exp(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %8 = ridge.map cast(%7) : (tensor<4xf32>) -> tensor<4xf32>
  return %0, %1, %2, %3, %5, %6, %8 : tensor<4xf32>, tensor<4xbf16>, tensor<4xf8E4M3FN>, tensor<4xi8>, tensor<4xbf16>, tensor<4xbf16>, tensor<4xf32>
}

// -----

// A saturating cast clamps the infinities of f8e5m2.
// CHECK-LABEL: func.func @saturating_cast
func.func @saturating_cast(%q: tensor<4xf8E5M2>) -> (tensor<4xf8E5M2>, tensor<4xf8E5M2>) {
  // CHECK-NEXT: %[[C:.*]] = ridge.map cast(%arg0) : (tensor<4xf8E5M2>) -> tensor<4xf8E5M2>
  // CHECK-NEXT: return %[[C]], %arg0 :
  %0 = ridge.map cast(%q) : (tensor<4xf8E5M2>) -> tensor<4xf8E5M2>
  %1 = ridge.map cast(%q) {saturate = false} : (tensor<4xf8E5M2>) -> tensor<4xf8E5M2>
  return %0, %1 : tensor<4xf8E5M2>, tensor<4xf8E5M2>
}

// -----

// In a strict graph every value is rounded already.
// CHECK-LABEL: func.func @strict_cast
func.func @strict_cast(%h: tensor<4xbf16>) -> tensor<4xbf16> attributes {ridge.strict} {
  // CHECK-NEXT: %[[E:.*]] = ridge.map exp
  // CHECK-NEXT: return %[[E]]
  %0 = ridge.map exp(%h) : (tensor<4xbf16>) -> tensor<4xbf16>
  %1 = ridge.map cast(%0) : (tensor<4xbf16>) -> tensor<4xbf16>
  return %1 : tensor<4xbf16>
}

// -----

// Arithmetic stays: each of these changes a NaN, a zero's sign or a rounding, or is left to what computes it.
// CHECK-LABEL: func.func @no_arithmetic
func.func @no_arithmetic(%x: tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>) {
  %zero = ridge.literal 0.0
  %one = ridge.literal 1.0
  // CHECK: ridge.map add
  %0 = ridge.map add(%x, %zero) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  // CHECK: ridge.map mul
  %1 = ridge.map mul(%x, %one) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  // CHECK: ridge.map mul
  %2 = ridge.map mul(%x, %zero) : (tensor<4xf32>, tensor<f32>) -> tensor<4xf32>
  // CHECK: ridge.map sub
  %3 = ridge.map sub(%x, %x) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %0, %1, %2, %3 : tensor<4xf32>, tensor<4xf32>, tensor<4xf32>, tensor<4xf32>
}

// -----

// A literal's moved copy is an f32 tensor, which a literal beside a bf16 tensor is not.
// CHECK-LABEL: func.func @literal_moved
func.func @literal_moved(%h: tensor<4xbf16>) -> tensor<4xf32> {
  // CHECK: %[[R:.*]] = ridge.reshape %lit : tensor<f32> -> tensor<f32>
  // CHECK: ridge.map add(%arg0, %[[R]]) : (tensor<4xbf16>, tensor<f32>) -> tensor<4xf32>
  %c = ridge.literal 0.5
  %0 = ridge.reshape %c : tensor<f32> -> tensor<f32>
  %1 = ridge.map add(%h, %0) : (tensor<4xbf16>, tensor<f32>) -> tensor<4xf32>
  return %1 : tensor<4xf32>
}

// -----

// Unused ops and groups go; folding reaches into groups.
// CHECK-LABEL: func.func @dead
func.func @dead(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK-NEXT: ridge.group
  // CHECK-NEXT: ridge.map exp
  // CHECK-NEXT: ridge.yield
  // CHECK-NEXT: }
  // CHECK-NEXT: return
  %0 = ridge.map neg(%x) : (tensor<4xf32>) -> tensor<4xf32>
  %1 = ridge.group "pointwise" (%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    %3 = ridge.map exp(%a) : (tensor<4xf32>) -> tensor<4xf32>
    ridge.yield %3 : tensor<4xf32>
  }
  %2 = ridge.group "pointwise" (%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    %3 = ridge.flip %a dims [0] : tensor<4xf32> -> tensor<4xf32>
    %4 = ridge.flip %3 dims [0] : tensor<4xf32> -> tensor<4xf32>
    %5 = ridge.map exp(%4) : (tensor<4xf32>) -> tensor<4xf32>
    ridge.yield %5 : tensor<4xf32>
  }
  return %2 : tensor<4xf32>
}
