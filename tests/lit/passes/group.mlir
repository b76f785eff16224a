// RUN: ridge-opt %s -split-input-file -ridge-group=target=h200 | FileCheck %s
// RUN: ridge-opt %s -split-input-file -ridge-group=target=h200 | ridge-opt -split-input-file -ridge-group=target=h200 | FileCheck %s
//
// Where the grouping pass fires: which ops share a kernel, with what schedule and why. A second run changes nothing.

// One chain, one kernel: what is in between is not stored. The figures are those of two reads and one write of 1 MiB.
// CHECK-LABEL: func.func @chain
// CHECK-SAME: attributes {ridge.bytes_unfused = 5242880 : i64}
// CHECK-NEXT: %y = ridge.group "pointwise" (%gate = %arg0 : tensor<512x1024xbf16>, %up = %arg1 : tensor<512x1024xbf16>) -> tensor<512x1024xbf16>
// CHECK-SAME: schedule {bytes_read = 2097152 : i64, bytes_unfused = 5242880 : i64, bytes_written = 1048576 : i64
// CHECK-SAME: elements = 524288 : i64
// CHECK-SAME: lanes = 8 : i64
// CHECK-SAME: split_cat = false, threads = 128 : i64
// CHECK-SAME: why ["one pass over 524288 elements: every value above 'y' is computed from what is loaded"]
// CHECK-NEXT: %[[S:.*]] = ridge.map silu(%gate)
// CHECK-NEXT: %[[Y:.*]] = ridge.map mul(%[[S]], %up)
// CHECK-NEXT: ridge.yield %[[Y]]
// CHECK-NEXT: }
// CHECK-NEXT: return %y
func.func @chain(%gate: tensor<512x1024xbf16> {ridge.name = "gate"}, %up: tensor<512x1024xbf16> {ridge.name = "up"}) -> tensor<512x1024xbf16> {
  %s = ridge.map silu(%gate) {ridge.name = "s"} : (tensor<512x1024xbf16>) -> tensor<512x1024xbf16>
  %y = ridge.map mul(%s, %up) {ridge.name = "y"} : (tensor<512x1024xbf16>, tensor<512x1024xbf16>) -> tensor<512x1024xbf16>
  return %y : tensor<512x1024xbf16>
}

// -----

// Several outputs of as many elements leave one kernel, whatever their shapes; literals go along.
// CHECK-LABEL: func.func @outputs
// CHECK: %{{.*}}:2 = ridge.group "pointwise" (%{{.*}} = %arg0 : tensor<10x100xf32>) -> (tensor<10x100xf32>, tensor<1000xbf16>)
// CHECK-SAME: why ["one pass over 1000 elements: every value above 2 outputs is computed from what is loaded"]
// CHECK-NEXT: ridge.literal 5.000000e-01
// CHECK-NEXT: ridge.map mul
// CHECK-NEXT: ridge.reshape
// CHECK-NEXT: ridge.map cast
// CHECK-NEXT: ridge.yield
// CHECK-NOT: ridge.group
func.func @outputs(%x: tensor<10x100xf32>) -> (tensor<10x100xf32>, tensor<1000xbf16>) {
  %half = ridge.literal 0.5
  %a = ridge.map mul(%x, %half) : (tensor<10x100xf32>, tensor<f32>) -> tensor<10x100xf32>
  %f = ridge.reshape %a : tensor<10x100xf32> -> tensor<1000xf32>
  %b = ridge.map cast(%f) : (tensor<1000xf32>) -> tensor<1000xbf16>
  return %a, %b : tensor<10x100xf32>, tensor<1000xbf16>
}

// -----

// Another number of elements is another kernel. What is cheap is computed in both.
// CHECK-LABEL: func.func @spaces
// CHECK: %r = ridge.group {{.*}} -> tensor<64xf32> {{.*}} elements = 64 : i64
// CHECK: %y = ridge.group "pointwise" (%{{.*}} = %arg1 : tensor<1024x64xf32>, %{{.*}} = %arg0 : tensor<64xf32>)
// CHECK-SAME: elements = 65536 : i64
// CHECK: ridge.map neg
// CHECK: ridge.map add
// CHECK: return %y, %r
func.func @spaces(%row: tensor<64xf32>, %x: tensor<1024x64xf32>) -> (tensor<1024x64xf32>, tensor<64xf32>) {
  %r = ridge.map neg(%row) {ridge.name = "r"} : (tensor<64xf32>) -> tensor<64xf32>
  %y = ridge.map add(%x, %r) {ridge.name = "y"} : (tensor<1024x64xf32>, tensor<64xf32>) -> tensor<1024x64xf32>
  return %y, %r : tensor<1024x64xf32>, tensor<64xf32>
}

// -----

// What is dear is loaded.
// CHECK-LABEL: func.func @dear
// CHECK: %r = ridge.group {{.*}} -> tensor<64xf32>
// CHECK: %y = ridge.group "pointwise" (%{{.*}} = %arg1 : tensor<1024x64xf32>, %{{.*}} = %r : tensor<64xf32>)
// CHECK-SAME: "'r' is loaded from an earlier kernel: another iteration space stores it, and computing it again costs more"
// CHECK-NOT: ridge.map pow
// CHECK: return %y, %r
func.func @dear(%row: tensor<64xf32>, %x: tensor<1024x64xf32>) -> (tensor<1024x64xf32>, tensor<64xf32>) {
  %e = ridge.literal 1.5
  %r = ridge.map pow(%row, %e) {ridge.name = "r"} : (tensor<64xf32>, tensor<f32>) -> tensor<64xf32>
  %y = ridge.map add(%x, %r) {ridge.name = "y"} : (tensor<1024x64xf32>, tensor<64xf32>) -> tensor<1024x64xf32>
  return %y, %r : tensor<1024x64xf32>, tensor<64xf32>
}

// -----

// A cat of equal halves is computed half by half: both in one thread, and what they share once.
// CHECK-LABEL: func.func @rope
// CHECK: ridge.group
// CHECK-SAME: bytes_read = 2097152 : i64
// CHECK-SAME: split_cat = true
func.func @rope(%q: tensor<8192x64xbf16>, %k: tensor<8192x64xbf16>) -> tensor<8192x128xbf16> {
  %a = ridge.map sub(%q, %k) : (tensor<8192x64xbf16>, tensor<8192x64xbf16>) -> tensor<8192x64xbf16>
  %b = ridge.map add(%q, %k) : (tensor<8192x64xbf16>, tensor<8192x64xbf16>) -> tensor<8192x64xbf16>
  %y = ridge.cat %a, %b dim 1 : (tensor<8192x64xbf16>, tensor<8192x64xbf16>) -> tensor<8192x128xbf16>
  return %y : tensor<8192x128xbf16>
}

// -----

// Halves that are no whole vectors are not.
// CHECK-LABEL: func.func @odd
// CHECK: split_cat = false
func.func @odd(%q: tensor<8192x63xbf16>, %k: tensor<8192x63xbf16>) -> tensor<8192x126xbf16> {
  %y = ridge.cat %q, %k dim 1 : (tensor<8192x63xbf16>, tensor<8192x63xbf16>) -> tensor<8192x126xbf16>
  return %y : tensor<8192x126xbf16>
}

// -----

// A piece of which no element is read is no argument; the body says so with a constant of its shape.
// CHECK-LABEL: func.func @unread
// CHECK: ridge.group "pointwise" (%{{.*}} = %arg1 : tensor<8x4xf32>)
// CHECK-NEXT: ridge.full(0)
// CHECK-NEXT: ridge.cat
func.func @unread(%a: tensor<8x4xf32>, %b: tensor<8x4xf32>) -> tensor<4x4xf32> {
  %c = ridge.cat %a, %b dim 0 : (tensor<8x4xf32>, tensor<8x4xf32>) -> tensor<16x4xf32>
  %y = ridge.slice %c dim 0 start 9 step 1 : tensor<16x4xf32> -> tensor<4x4xf32>
  return %y : tensor<4x4xf32>
}

// -----

// Arguments that are returned, and ops that nothing needs, are in no group.
// CHECK-LABEL: func.func @nothing
// CHECK-NEXT: return %arg0
func.func @nothing(%x: tensor<4xf32>) -> tensor<4xf32> {
  %0 = ridge.map exp(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return %x : tensor<4xf32>
}
