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
// CHECK: ridge.group "transpose"
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
func.func @siblings(%x: tensor<65536x128xf32>, %y: tensor<65536x128xf32>) -> (tensor<65536x128xf32>, tensor<65536xf32>, tensor<65536x128xf32>) {
  %a = ridge.softmax %x dim 1 : tensor<65536x128xf32> -> tensor<65536x128xf32>
  %s = ridge.reduce amax %x over [1] : tensor<65536x128xf32> -> tensor<65536xf32>
  %b = ridge.softmax %y dim 1 : tensor<65536x128xf32> -> tensor<65536x128xf32>
  return %a, %s, %b : tensor<65536x128xf32>, tensor<65536xf32>, tensor<65536x128xf32>
}

// Small ones share a launch.
// CHECK-LABEL: func.func @small_siblings
// CHECK-COUNT-1: ridge.group "row"
// CHECK-NOT: ridge.group
// CHECK: return
func.func @small_siblings(%x: tensor<64x128xf32>, %y: tensor<64x128xf32>) -> (tensor<64x128xf32>, tensor<64x128xf32>) {
  %a = ridge.softmax %x dim 1 : tensor<64x128xf32> -> tensor<64x128xf32>
  %b = ridge.softmax %y dim 1 : tensor<64x128xf32> -> tensor<64x128xf32>
  return %a, %b : tensor<64x128xf32>, tensor<64x128xf32>
}

// A chain of norms that is too long for one kernel is parted between its links, and each part loads what the last one wrote.
// CHECK-LABEL: func.func @chain
// CHECK-COUNT-2: ridge.group "row"
// CHECK-NOT: ridge.group
// CHECK: return
func.func @chain(%x: tensor<64x128xf32>) -> tensor<64x128xf32> {
  %n0 = ridge.rms_norm %x eps 1.0e-06 : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %h0 = ridge.map tanh(%n0) : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %n1 = ridge.rms_norm %h0 eps 1.0e-06 : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %h1 = ridge.map tanh(%n1) : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %n2 = ridge.rms_norm %h1 eps 1.0e-06 : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %h2 = ridge.map tanh(%n2) : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %n3 = ridge.rms_norm %h2 eps 1.0e-06 : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %h3 = ridge.map tanh(%n3) : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %n4 = ridge.rms_norm %h3 eps 1.0e-06 : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %h4 = ridge.map tanh(%n4) : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %n5 = ridge.rms_norm %h4 eps 1.0e-06 : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %h5 = ridge.map tanh(%n5) : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %n6 = ridge.rms_norm %h5 eps 1.0e-06 : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %h6 = ridge.map tanh(%n6) : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %n7 = ridge.rms_norm %h6 eps 1.0e-06 : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %h7 = ridge.map tanh(%n7) : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %n8 = ridge.rms_norm %h7 eps 1.0e-06 : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %h8 = ridge.map tanh(%n8) : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %n9 = ridge.rms_norm %h8 eps 1.0e-06 : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %h9 = ridge.map tanh(%n9) : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %n10 = ridge.rms_norm %h9 eps 1.0e-06 : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %h10 = ridge.map tanh(%n10) : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %n11 = ridge.rms_norm %h10 eps 1.0e-06 : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %h11 = ridge.map tanh(%n11) : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %n12 = ridge.rms_norm %h11 eps 1.0e-06 : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %h12 = ridge.map tanh(%n12) : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %n13 = ridge.rms_norm %h12 eps 1.0e-06 : (tensor<64x128xf32>) -> tensor<64x128xf32>
  %h13 = ridge.map tanh(%n13) : (tensor<64x128xf32>) -> tensor<64x128xf32>
  return %h13 : tensor<64x128xf32>
}
