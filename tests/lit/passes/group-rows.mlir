// RUN: ridge-opt %s --ridge-decompose --canonicalize --cse --ridge-group="target=h200" | FileCheck %s

// A residual sum, its norm and both results: one kernel that reads and writes each tensor once.
// CHECK-LABEL: func.func @add_rms_norm
// CHECK: ridge.group "row"
// CHECK-SAME: resident = true
// CHECK-SAME: rows = 64
// CHECK-SAME: width = 4096
// CHECK-NOT: ridge.group
// CHECK: return
func.func @add_rms_norm(%x: tensor<64x4096xbf16>, %r: tensor<64x4096xbf16>, %w: tensor<4096xbf16>) -> (tensor<64x4096xbf16>, tensor<64x4096xbf16>) {
  %h = ridge.map add(%x, %r) : (tensor<64x4096xbf16>, tensor<64x4096xbf16>) -> tensor<64x4096xbf16>
  %y = ridge.rms_norm %h weight %w eps 1.0e-06 : (tensor<64x4096xbf16>, tensor<4096xbf16>) -> tensor<64x4096xbf16>
  return %h, %y : tensor<64x4096xbf16>, tensor<64x4096xbf16>
}

// What is transposed afterwards is written first: its rows are no longer the kernel's.
// CHECK-LABEL: func.func @softmax_transposed
// CHECK: ridge.group "row"
// CHECK: ridge.group "pointwise"
// CHECK-NOT: ridge.group
// CHECK: return
func.func @softmax_transposed(%x: tensor<64x128xf32>) -> tensor<128x64xf32> {
  %y = ridge.softmax %x dim 1 : tensor<64x128xf32> -> tensor<64x128xf32>
  %z = ridge.permute %y by [1, 0] : tensor<64x128xf32> -> tensor<128x64xf32>
  %e = ridge.map neg(%z) : (tensor<128x64xf32>) -> tensor<128x64xf32>
  return %e : tensor<128x64xf32>
}

// Two softmaxes of unrelated tensors are two kernels; a statistic of one row goes with its row.
// CHECK-LABEL: func.func @siblings
// CHECK-COUNT-2: ridge.group "row"
// CHECK-NOT: ridge.group
// CHECK: return
func.func @siblings(%x: tensor<64x128xf32>, %y: tensor<64x128xf32>) -> (tensor<64x128xf32>, tensor<64xf32>, tensor<64x128xf32>) {
  %a = ridge.softmax %x dim 1 : tensor<64x128xf32> -> tensor<64x128xf32>
  %s = ridge.reduce amax %x over [1] : tensor<64x128xf32> -> tensor<64xf32>
  %b = ridge.softmax %y dim 1 : tensor<64x128xf32> -> tensor<64x128xf32>
  return %a, %s, %b : tensor<64x128xf32>, tensor<64xf32>, tensor<64x128xf32>
}
