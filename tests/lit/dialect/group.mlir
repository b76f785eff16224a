// RUN: ridge-opt %s | ridge-opt | FileCheck %s
// RUN: ridge-opt %s -mlir-print-op-generic | ridge-opt | FileCheck %s

// CHECK-LABEL: func.func @group
func.func @group(%x: tensor<4x8xbf16> {ridge.name = "x"}, %w: tensor<8xf32> {ridge.name = "w", ridge.parameter})
    -> (tensor<4x8xf32> {ridge.name = "y"}, tensor<4x8xbf16> {ridge.name = "e"}) attributes {ridge.strict} {
  // CHECK: %y, %e = ridge.group "pointwise" (%x = %arg0 : tensor<4x8xbf16>, %w = %arg1 : tensor<8xf32>)
  // CHECK-SAME: -> (tensor<4x8xf32>, tensor<4x8xbf16>)
  // CHECK-SAME: schedule {lanes = 8 : i64} why ["one chain", "one load"] attributes {note = "kept"} {
  %g:2 = ridge.group "pointwise" (%a = %x : tensor<4x8xbf16>, %b = %w : tensor<8xf32>)
      -> (tensor<4x8xf32>, tensor<4x8xbf16>) schedule {lanes = 8} why ["one chain", "one load"] attributes {note = "kept"} {
    // CHECK: %lit = ridge.literal 5.000000e-01
    %half = ridge.literal 0.5
    // CHECK: %[[E:e_.*]] = ridge.map exp(%x) {ridge.name = "e", ridge.node = 0 : i64}
    %e = ridge.map exp(%a) {ridge.name = "e", ridge.node = 0} : (tensor<4x8xbf16>) -> tensor<4x8xbf16>
    // CHECK: %m = ridge.map mul(%[[E]], %lit)
    %m = ridge.map mul(%e, %half) {ridge.name = "m", ridge.node = 1} : (tensor<4x8xbf16>, tensor<f32>) -> tensor<4x8xbf16>
    // CHECK: %[[Y:y_.*]] = ridge.map add(%m, %w)
    %y = ridge.map add(%m, %b) {ridge.name = "y", ridge.node = 2} : (tensor<4x8xbf16>, tensor<8xf32>) -> tensor<4x8xf32>
    // CHECK: ridge.yield %[[Y]], %[[E]] : tensor<4x8xf32>, tensor<4x8xbf16>
    ridge.yield %y, %e : tensor<4x8xf32>, tensor<4x8xbf16>
  }
  return %g#0, %g#1 : tensor<4x8xf32>, tensor<4x8xbf16>
}

// CHECK-LABEL: func.func @small
func.func @small() -> tensor<3xi64> {
  // CHECK: ridge.group "pointwise" () -> () {
  // CHECK-NEXT: ridge.yield
  ridge.group "pointwise" () -> () {
    ridge.yield
  }
  // CHECK: %[[I:.*]] = ridge.group "pointwise" () -> tensor<3xi64> {
  %0 = ridge.group "pointwise" () -> tensor<3xi64> {
    %1 = ridge.iota dim 0 : tensor<3xi64>
    ridge.yield %1 : tensor<3xi64>
  }
  // CHECK: return %[[I]]
  return %0 : tensor<3xi64>
}

// A name goes through groups to what uses them.
// CHECK-LABEL: func.func @chain
func.func @chain(%x: tensor<4xf32>) -> tensor<4xf32> {
  // CHECK: %a = ridge.group "pointwise"
  %0 = ridge.group "pointwise" (%p = %x : tensor<4xf32>) -> tensor<4xf32> {
    %1 = ridge.map exp(%p) {ridge.name = "a"} : (tensor<4xf32>) -> tensor<4xf32>
    ridge.yield %1 : tensor<4xf32>
  }
  // CHECK: %b = ridge.group "pointwise" (%a_{{.*}} = %a : tensor<4xf32>)
  %2 = ridge.group "pointwise" (%p = %0 : tensor<4xf32>) -> tensor<4xf32> {
    %1 = ridge.map exp(%p) {ridge.name = "b"} : (tensor<4xf32>) -> tensor<4xf32>
    ridge.yield %1 : tensor<4xf32>
  }
  return %2 : tensor<4xf32>
}
