// RUN: ridge-opt %s --ridge-decompose-loss --ridge-decompose-quant --ridge-decompose --canonicalize --cse --ridge-group="target=h200" | FileCheck %s

// Rows of a table, scaled: one kernel.
// CHECK-LABEL: func.func @embedding
// CHECK: ridge.group "pointwise"
// CHECK-NOT: ridge.group
// CHECK: return
func.func @embedding(%w: tensor<50304x4096xbf16>, %i: tensor<65536xi64>) -> tensor<65536x4096xbf16> {
  %e = ridge.gather embedding %w, %i dim 0 : (tensor<50304x4096xbf16>, tensor<65536xi64>) -> tensor<65536x4096xbf16>
  %c = ridge.literal 5.000000e-01
  %y = ridge.map mul(%e, %c) : (tensor<65536x4096xbf16>, tensor<f32>) -> tensor<65536x4096xbf16>
  return %y : tensor<65536x4096xbf16>
}

// The norm of what is looked up takes it as it comes; the rows are those of the result.
// CHECK-LABEL: func.func @embedding_norm
// CHECK: ridge.group "row"
// CHECK-SAME: resident = true
// CHECK-SAME: rows = 512
// CHECK-NOT: ridge.group
// CHECK: return
func.func @embedding_norm(%w: tensor<50304x4096xbf16>, %i: tensor<512xi32>) -> tensor<512x4096xbf16> {
  %e = ridge.gather embedding %w, %i dim 0 : (tensor<50304x4096xbf16>, tensor<512xi32>) -> tensor<512x4096xbf16>
  %y = ridge.rms_norm %e eps 1.0e-06 : (tensor<512x4096xbf16>) -> tensor<512x4096xbf16>
  return %y : tensor<512x4096xbf16>
}

// A softmax that is read at other rows than its own is written first, and the reason names it.
// CHECK-LABEL: func.func @picked_after
// CHECK: ridge.group "row"
// CHECK-SAME: stored: 'picked' is not made of the rows
// CHECK: ridge.group "pointwise"
// CHECK-NOT: ridge.group
// CHECK: return
func.func @picked_after(%x: tensor<64x128xf32>, %i: tensor<5xi64>) -> tensor<5x128xf32> {
  %s = ridge.softmax %x dim 1 {ridge.name = "s"} : tensor<64x128xf32> -> tensor<64x128xf32>
  %y = ridge.gather index_select %s, %i dim 0 {ridge.name = "picked"} : (tensor<64x128xf32>, tensor<5xi64>) -> tensor<5x128xf32>
  return %y : tensor<5x128xf32>
}

// The logits are read by one kernel, and the target's once more.
// CHECK-LABEL: func.func @loss
// CHECK: ridge.group "row"
// CHECK-SAME: rows = 1024
// CHECK-NOT: ridge.group
// CHECK: return
func.func @loss(%x: tensor<1024x8192xbf16>, %t: tensor<1024xi64>) -> tensor<1024xf32> {
  %y = ridge.cross_entropy %x, %t : (tensor<1024x8192xbf16>, tensor<1024xi64>) -> tensor<1024xf32>
  return %y : tensor<1024xf32>
}

// A norm and what its rows are quantised by: one kernel, both results.
// CHECK-LABEL: func.func @norm_quantised
// CHECK: %{{.*}}:2 = ridge.group "row"
// CHECK-SAME: resident = true
// CHECK-SAME: 2 dependent reductions
// CHECK-NOT: ridge.group
// CHECK: return
func.func @norm_quantised(%x: tensor<16384x4096xbf16>) -> (tensor<16384x4096xf8E4M3FN>, tensor<16384xf32>) {
  %n = ridge.rms_norm %x eps 1.0e-06 : (tensor<16384x4096xbf16>) -> tensor<16384x4096xbf16>
  %q, %s = ridge.quantize %n <token> : (tensor<16384x4096xbf16>) -> (tensor<16384x4096xf8E4M3FN>, tensor<16384xf32>)
  return %q, %s : tensor<16384x4096xf8E4M3FN>, tensor<16384xf32>
}

// Blocks within the norm's row too: they are segments of it.
// CHECK-LABEL: func.func @norm_quantised_by_blocks
// CHECK: %{{.*}}:2 = ridge.group "row"
// CHECK-SAME: rows = 16384
// CHECK-SAME: width = 4096
// CHECK-SAME: segments of 128 are reduced on the way, each by the 16 threads of a warp that have it
// CHECK-NOT: ridge.group
// CHECK: return
func.func @norm_quantised_by_blocks(%x: tensor<16384x4096xbf16>) -> (tensor<16384x4096xf8E4M3FN>, tensor<16384x32xf32>) {
  %n = ridge.rms_norm %x eps 1.0e-06 : (tensor<16384x4096xbf16>) -> tensor<16384x4096xbf16>
  %q, %s = ridge.quantize %n <block 1 by 128> : (tensor<16384x4096xbf16>) -> (tensor<16384x4096xf8E4M3FN>, tensor<16384x32xf32>)
  return %q, %s : tensor<16384x4096xf8E4M3FN>, tensor<16384x32xf32>
}

// A segment that no power of two of threads has is reduced by a kernel of its own.
// CHECK-LABEL: func.func @odd_segments
// CHECK-COUNT-2: ridge.group "row"
// CHECK-NOT: segments
// CHECK: return
func.func @odd_segments(%x: tensor<64x1152xbf16>) -> tensor<64x12x96xbf16> {
  %n = ridge.rms_norm %x eps 1.0e-06 : (tensor<64x1152xbf16>) -> tensor<64x1152xbf16>
  %h = ridge.reshape %n : tensor<64x1152xbf16> -> tensor<64x12x96xbf16>
  %y = ridge.rms_norm %h eps 1.0e-06 : (tensor<64x12x96xbf16>) -> tensor<64x12x96xbf16>
  return %y : tensor<64x12x96xbf16>
}

// Blocks of a tensor that is there are rows of their own.
// CHECK-LABEL: func.func @blocks_quantised
// CHECK: %{{.*}}:2 = ridge.group "row"
// CHECK-SAME: rows = 524288
// CHECK-SAME: width = 128
// CHECK-NOT: ridge.group
// CHECK: return
func.func @blocks_quantised(%x: tensor<16384x4096xbf16>) -> (tensor<16384x4096xf8E4M3FN>, tensor<16384x32xf32>) {
  %q, %s = ridge.quantize %x <block 1 by 128> : (tensor<16384x4096xbf16>) -> (tensor<16384x4096xf8E4M3FN>, tensor<16384x32xf32>)
  return %q, %s : tensor<16384x4096xf8E4M3FN>, tensor<16384x32xf32>
}
