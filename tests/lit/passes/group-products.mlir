// RUN: ridge-opt %s --ridge-products --ridge-decompose --canonicalize --cse --ridge-group="target=h200" | FileCheck %s

// A bias, a residual and an activation go behind the product, with the sum that is wanted as well.
// CHECK-LABEL: func.func @epilogue
// CHECK: ridge.group "gemm"
// CHECK-SAME: k = 256
// CHECK-SAME: kernel = "mma"
// CHECK-SAME: m = 96
// CHECK-SAME: n = 512
// CHECK-NOT: ridge.group
// CHECK: return
func.func @epilogue(%x: tensor<96x256xbf16>, %w: tensor<512x256xbf16>, %b: tensor<512xbf16>, %r: tensor<96x512xbf16>) -> (tensor<96x512xbf16>, tensor<96x512xbf16>) {
  %h = ridge.linear %x, %w bias %b : (tensor<96x256xbf16>, tensor<512x256xbf16>, tensor<512xbf16>) -> tensor<96x512xbf16>
  %s = ridge.map add(%h, %r) : (tensor<96x512xbf16>, tensor<96x512xbf16>) -> tensor<96x512xbf16>
  %g = ridge.map gelu(%s) tanh : (tensor<96x512xbf16>) -> tensor<96x512xbf16>
  return %s, %g : tensor<96x512xbf16>, tensor<96x512xbf16>
}

// The gate and the other half of a gated unit share their left operand, and a kernel.
// CHECK-LABEL: func.func @swiglu
// CHECK: ridge.group "gemm"
// CHECK-SAME: products = 2
// CHECK-NOT: ridge.group
// CHECK: return
func.func @swiglu(%x: tensor<96x256xbf16>, %w1: tensor<512x256xbf16>, %w2: tensor<512x256xbf16>) -> tensor<96x512xbf16> {
  %g = ridge.linear %x, %w1 : (tensor<96x256xbf16>, tensor<512x256xbf16>) -> tensor<96x512xbf16>
  %u = ridge.linear %x, %w2 : (tensor<96x256xbf16>, tensor<512x256xbf16>) -> tensor<96x512xbf16>
  %a = ridge.map silu(%g) : (tensor<96x512xbf16>) -> tensor<96x512xbf16>
  %y = ridge.map mul(%a, %u) : (tensor<96x512xbf16>, tensor<96x512xbf16>) -> tensor<96x512xbf16>
  return %y : tensor<96x512xbf16>
}

// Products of different operands do not: one is written, and read where the other's results are finished.
// CHECK-LABEL: func.func @two_sources
// CHECK: ridge.group "gemm"
// CHECK: ridge.group "gemm"
// CHECK-SAME: why [{{.*}}is loaded from an earlier kernel
// CHECK-NOT: ridge.group
// CHECK: return
func.func @two_sources(%x: tensor<96x256xf32>, %z: tensor<96x256xf32>, %w1: tensor<512x256xf32>, %w2: tensor<512x256xf32>) -> tensor<96x512xf32> {
  %g = ridge.linear %x, %w1 : (tensor<96x256xf32>, tensor<512x256xf32>) -> tensor<96x512xf32>
  %u = ridge.linear %z, %w2 : (tensor<96x256xf32>, tensor<512x256xf32>) -> tensor<96x512xf32>
  %y = ridge.map add(%g, %u) : (tensor<96x512xf32>, tensor<96x512xf32>) -> tensor<96x512xf32>
  return %y : tensor<96x512xf32>
}

// A norm of the sum needs whole rows: the product's kernel writes the sum, in its 16-bit type, and not the product.
// CHECK-LABEL: func.func @norm_behind
// CHECK: ridge.group "gemm" {{.*}} -> tensor<96x512xbf16>
// CHECK: ridge.group "row"
// CHECK-NOT: ridge.group
// CHECK: return
func.func @norm_behind(%x: tensor<96x256xbf16>, %w: tensor<512x256xbf16>, %r: tensor<96x512xbf16>) -> tensor<96x512xbf16> {
  %h = ridge.linear %x, %w : (tensor<96x256xbf16>, tensor<512x256xbf16>) -> tensor<96x512xbf16>
  %s = ridge.map add(%h, %r) : (tensor<96x512xbf16>, tensor<96x512xbf16>) -> tensor<96x512xbf16>
  %y = ridge.rms_norm %s eps 1.0e-06 : (tensor<96x512xbf16>) -> tensor<96x512xbf16>
  return %y : tensor<96x512xbf16>
}

// A product that is read transposed is written first.
// CHECK-LABEL: func.func @transposed_behind
// CHECK: ridge.group "gemm"
// CHECK: ridge.group "{{pointwise|transpose}}"
// CHECK-NOT: ridge.group
// CHECK: return
func.func @transposed_behind(%x: tensor<96x256xf32>, %w: tensor<512x256xf32>, %r: tensor<512x96xf32>) -> tensor<512x96xf32> {
  %h = ridge.linear %x, %w : (tensor<96x256xf32>, tensor<512x256xf32>) -> tensor<96x512xf32>
  %t = ridge.permute %h by [1, 0] : tensor<96x512xf32> -> tensor<512x96xf32>
  %y = ridge.map add(%t, %r) : (tensor<512x96xf32>, tensor<512x96xf32>) -> tensor<512x96xf32>
  return %y : tensor<512x96xf32>
}

// Two layers are two kernels, with all that is elementwise in them.
// CHECK-LABEL: func.func @mlp
// CHECK: ridge.group "gemm"
// CHECK: ridge.group "gemm"
// CHECK-NOT: ridge.group
// CHECK: return
func.func @mlp(%x: tensor<4x24x256xbf16>, %w1: tensor<512x256xbf16>, %w2: tensor<256x512xbf16>) -> tensor<4x24x256xbf16> {
  %h = ridge.linear %x, %w1 : (tensor<4x24x256xbf16>, tensor<512x256xbf16>) -> tensor<4x24x512xbf16>
  %g = ridge.map gelu(%h) tanh : (tensor<4x24x512xbf16>) -> tensor<4x24x512xbf16>
  %o = ridge.linear %g, %w2 : (tensor<4x24x512xbf16>, tensor<256x512xbf16>) -> tensor<4x24x256xbf16>
  %y = ridge.map add(%o, %x) : (tensor<4x24x256xbf16>, tensor<4x24x256xbf16>) -> tensor<4x24x256xbf16>
  return %y : tensor<4x24x256xbf16>
}

// Heads are index maps of the operands: nothing is moved between the projection and the scores.
// CHECK-LABEL: func.func @heads
// CHECK: ridge.group "gemm"
// CHECK: ridge.group "gemm"
// CHECK-NOT: ridge.group
// CHECK: return
func.func @heads(%x: tensor<2x24x256xbf16>, %w: tensor<256x256xbf16>, %k: tensor<2x24x256xbf16>) -> tensor<2x4x24x24xf32> {
  %q = ridge.linear %x, %w : (tensor<2x24x256xbf16>, tensor<256x256xbf16>) -> tensor<2x24x256xbf16>
  %q1 = ridge.reshape %q : tensor<2x24x256xbf16> -> tensor<2x24x4x64xbf16>
  %q2 = ridge.permute %q1 by [0, 2, 1, 3] : tensor<2x24x4x64xbf16> -> tensor<2x4x24x64xbf16>
  %k1 = ridge.reshape %k : tensor<2x24x256xbf16> -> tensor<2x24x4x64xbf16>
  %k2 = ridge.permute %k1 by [0, 2, 3, 1] : tensor<2x24x4x64xbf16> -> tensor<2x4x64x24xbf16>
  %s = ridge.matmul %q2, %k2 : (tensor<2x4x24x64xbf16>, tensor<2x4x64x24xbf16>) -> tensor<2x4x24x24xf32>
  return %s : tensor<2x4x24x24xf32>
}

// Heads that are returned permuted are stored so, with what is elementwise behind the permutation.
// CHECK-LABEL: func.func @heads_returned
// CHECK: ridge.group "gemm"
// CHECK-NOT: ridge.group
// CHECK: return
func.func @heads_returned(%x: tensor<2x24x256xbf16>, %w: tensor<256x256xbf16>, %r: tensor<2x4x24x64xbf16>) -> tensor<2x4x24x64xbf16> {
  %q = ridge.linear %x, %w : (tensor<2x24x256xbf16>, tensor<256x256xbf16>) -> tensor<2x24x256xbf16>
  %q1 = ridge.reshape %q : tensor<2x24x256xbf16> -> tensor<2x24x4x64xbf16>
  %q2 = ridge.permute %q1 by [0, 2, 1, 3] : tensor<2x24x4x64xbf16> -> tensor<2x4x24x64xbf16>
  %y = ridge.map add(%q2, %r) : (tensor<2x4x24x64xbf16>, tensor<2x4x24x64xbf16>) -> tensor<2x4x24x64xbf16>
  return %y : tensor<2x4x24x64xbf16>
}

// Weights in 8 bits are made into numbers where a thin product reads them, once; for more rows in the registers of warpgroup products, and
// where these do not take them they are written first.
// CHECK-LABEL: func.func @dequantised
// CHECK: ridge.group "gemm"
// CHECK-SAME: kernel = "thin"
// CHECK-NOT: ridge.group
// CHECK: return
func.func @dequantised(%x: tensor<2x256xbf16>, %w: tensor<512x256xi8>, %s: tensor<512x1xbf16>) -> tensor<2x512xbf16> {
  %c = ridge.map cast(%w) : (tensor<512x256xi8>) -> tensor<512x256xbf16>
  %d = ridge.map mul(%c, %s) : (tensor<512x256xbf16>, tensor<512x1xbf16>) -> tensor<512x256xbf16>
  %y = ridge.linear %x, %d : (tensor<2x256xbf16>, tensor<512x256xbf16>) -> tensor<2x512xbf16>
  return %y : tensor<2x512xbf16>
}

// CHECK-LABEL: func.func @dequantised_turned
// CHECK: ridge.group "gemm"
// CHECK-SAME: kernel = "wgmma"
// CHECK-SAME: turned = true
// CHECK-NOT: ridge.group
// CHECK: return
func.func @dequantised_turned(%x: tensor<512x1024xbf16>, %w: tensor<4096x1024xi8>, %s: tensor<4096x1xbf16>) -> tensor<512x4096xbf16> {
  %c = ridge.map cast(%w) : (tensor<4096x1024xi8>) -> tensor<4096x1024xbf16>
  %d = ridge.map mul(%c, %s) : (tensor<4096x1024xbf16>, tensor<4096x1xbf16>) -> tensor<4096x1024xbf16>
  %y = ridge.linear %x, %d : (tensor<512x1024xbf16>, tensor<4096x1024xbf16>) -> tensor<512x4096xbf16>
  return %y : tensor<512x4096xbf16>
}

// CHECK-LABEL: func.func @dequantised_first
// CHECK: ridge.group "pointwise"
// CHECK: ridge.group "gemm"
// CHECK-NOT: ridge.group
// CHECK: return
func.func @dequantised_first(%x: tensor<200x256xbf16>, %w: tensor<512x256xi8>, %s: tensor<512x256xbf16>) -> tensor<200x512xbf16> {
  %c = ridge.map cast(%w) : (tensor<512x256xi8>) -> tensor<512x256xbf16>
  %d = ridge.map mul(%c, %s) : (tensor<512x256xbf16>, tensor<512x256xbf16>) -> tensor<512x256xbf16>
  %y = ridge.linear %x, %d : (tensor<200x256xbf16>, tensor<512x256xbf16>) -> tensor<200x512xbf16>
  return %y : tensor<200x512xbf16>
}
