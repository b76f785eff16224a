// RUN: ridge-opt %s --ridge-group="target=h200" | FileCheck %s
// RUN: ridge-opt %s --ridge-group="target=cpu" | FileCheck %s --check-prefix=CPU

// A CPU's squares are as wide as its vectors.
// CPU-LABEL: @transposed
// CPU: ridge.group "transpose"
// CPU-SAME: lanes = 16 : i64
// CPU-LABEL: @channels
// CPU: ridge.group "transpose"
// CPU-SAME: lanes = 8 : i64
// CPU-LABEL: @heads
// CPU: ridge.group "pointwise"
// CPU-LABEL: @odd
// CPU: ridge.group "pointwise"

// One operand is read along its rows, one down its columns.
// CHECK-LABEL: @transposed
// CHECK: ridge.group "transpose"
// CHECK-SAME: lanes = 8 : i64, {{.*}}rows = 512 : i64, {{.*}}width = 256 : i64
func.func @transposed(%a: tensor<256x512xbf16>, %b: tensor<512x256xbf16>) -> tensor<512x256xbf16> {
  %t = ridge.permute %a by [1, 0] : tensor<256x512xbf16> -> tensor<512x256xbf16>
  %y = ridge.map add(%t, %b) : (tensor<512x256xbf16>, tensor<512x256xbf16>) -> tensor<512x256xbf16>
  return %y : tensor<512x256xbf16>
}

// NHWC to NCHW: what the result has beside each other are two dimensions of the operand.
// CHECK-LABEL: @channels
// CHECK: ridge.group "transpose"
// CHECK-SAME: rows = 256 : i64, {{.*}}width = 256 : i64
func.func @channels(%x: tensor<4x16x16x64xf32>) -> tensor<4x64x16x16xf32> {
  %y = ridge.permute %x by [0, 3, 1, 2] : tensor<4x16x16x64xf32> -> tensor<4x64x16x16xf32>
  return %y : tensor<4x64x16x16xf32>
}

// The last dimension stays where it is: vectors along it.
// CHECK-LABEL: @heads
// CHECK: ridge.group "pointwise"
func.func @heads(%x: tensor<4x128x8x64xbf16>) -> tensor<4x8x128x64xbf16> {
  %y = ridge.permute %x by [0, 2, 1, 3] : tensor<4x128x8x64xbf16> -> tensor<4x8x128x64xbf16>
  return %y : tensor<4x8x128x64xbf16>
}

// Squares do not divide it.
// CHECK-LABEL: @odd
// CHECK: ridge.group "pointwise"
func.func @odd(%a: tensor<255x511xbf16>) -> tensor<511x255xbf16> {
  %t = ridge.permute %a by [1, 0] : tensor<255x511xbf16> -> tensor<511x255xbf16>
  return %t : tensor<511x255xbf16>
}
