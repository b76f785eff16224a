// RUN: ridge-opt %s --ridge-products --ridge-decompose --canonicalize --cse --ridge-group="target=h200" | FileCheck %s

// What each head of a product's rows has as its largest lies in one tile: the product's kernel reduces it, and subtracts it.
// CHECK-LABEL: func.func @heads
// CHECK: ridge.group "gemm" {{.*}} -> (tensor<96x8x1xbf16>, tensor<96x8x64xbf16>)
// CHECK-SAME: segments of 64 are reduced within tiles: {{[0-9.]+}} us with tiles of {{[0-9]+}} x {{[0-9]+}}, where {{[0-9.]+}} us and {{[0-9.]+}} us would write
// CHECK-NOT: ridge.group
// CHECK: return
func.func @heads(%x: tensor<96x256xbf16>, %w: tensor<512x256xbf16>) -> (tensor<96x8x1xbf16>, tensor<96x8x64xbf16>) {
  %h = ridge.linear %x, %w : (tensor<96x256xbf16>, tensor<512x256xbf16>) -> tensor<96x512xbf16>
  %z = ridge.reshape %h : tensor<96x512xbf16> -> tensor<96x8x64xbf16>
  %a = ridge.reduce amax %z over [2] keepdim : tensor<96x8x64xbf16> -> tensor<96x8x1xbf16>
  %y = ridge.map sub(%z, %a) : (tensor<96x8x64xbf16>, tensor<96x8x1xbf16>) -> tensor<96x8x64xbf16>
  return %a, %y : tensor<96x8x1xbf16>, tensor<96x8x64xbf16>
}

// Tiles have no such parts.
// CHECK-LABEL: func.func @thirds
// CHECK: ridge.group "gemm"
// CHECK: ridge.group "row"
// CHECK-SAME: apart from the product: segments of 48 are no power of two from 16 to 128
// CHECK-NOT: ridge.group
// CHECK: return
func.func @thirds(%x: tensor<96x256xbf16>, %w: tensor<480x256xbf16>) -> (tensor<96x10x1xbf16>, tensor<96x10x48xbf16>) {
  %h = ridge.linear %x, %w : (tensor<96x256xbf16>, tensor<480x256xbf16>) -> tensor<96x480xbf16>
  %z = ridge.reshape %h : tensor<96x480xbf16> -> tensor<96x10x48xbf16>
  %a = ridge.reduce amax %z over [2] keepdim : tensor<96x10x48xbf16> -> tensor<96x10x1xbf16>
  %y = ridge.map sub(%z, %a) : (tensor<96x10x48xbf16>, tensor<96x10x1xbf16>) -> tensor<96x10x48xbf16>
  return %a, %y : tensor<96x10x1xbf16>, tensor<96x10x48xbf16>
}
