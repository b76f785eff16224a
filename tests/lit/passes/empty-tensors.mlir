// RUN: ridge-opt %s -split-input-file -ridge-empty-tensors | FileCheck %s
//
// A tensor without elements depends on nothing.

// CHECK-LABEL: func.func @chain
// CHECK-NEXT: %y = ridge.full(0) {ridge.name = "y", ridge.node = 1 : i64, ridge.source = "m.py:9"} : tensor<0x4xf32>
// CHECK-NEXT: return %y
func.func @chain(%x: tensor<0x4xf32>, %z: tensor<1x4xf32>) -> tensor<0x4xf32> {
  %a = ridge.map exp(%x) : (tensor<0x4xf32>) -> tensor<0x4xf32>
  %y = ridge.map add(%a, %z) {ridge.name = "y", ridge.node = 1 : i64, ridge.source = "m.py:9"} : (tensor<0x4xf32>, tensor<1x4xf32>) -> tensor<0x4xf32>
  return %y : tensor<0x4xf32>
}

// -----

// What empty tensors give that is not empty stays: a cat with them, a sum over them.
// CHECK-LABEL: func.func @stays
// CHECK: %[[E:.*]] = ridge.full(0) : tensor<0x4xi64>
// CHECK-NEXT: %[[C:.*]] = ridge.cat %arg1, %[[E]] dim 0
// CHECK-NEXT: %[[S:.*]] = ridge.reduce sum %[[E]]
// CHECK-NEXT: return %[[C]], %[[S]]
func.func @stays(%x: tensor<0x4xi64>, %z: tensor<2x4xi64>) -> (tensor<2x4xi64>, tensor<4xi64>) {
  %a = ridge.map neg(%x) : (tensor<0x4xi64>) -> tensor<0x4xi64>
  %c = ridge.cat %z, %a dim 0 : (tensor<2x4xi64>, tensor<0x4xi64>) -> tensor<2x4xi64>
  %s = ridge.reduce sum %a over [0] : tensor<0x4xi64> -> tensor<4xi64>
  return %c, %s : tensor<2x4xi64>, tensor<4xi64>
}

// -----

// CHECK-LABEL: func.func @full
// CHECK-NEXT: ridge.map exp
// CHECK-NEXT: return
func.func @full(%x: tensor<1xf32>) -> tensor<1xf32> {
  %a = ridge.map exp(%x) : (tensor<1xf32>) -> tensor<1xf32>
  return %a : tensor<1xf32>
}

// -----

func.func private @declaration(tensor<0xf32>)
