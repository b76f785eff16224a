// RUN: ridge-opt %s -split-input-file -ridge-split-cats=most=2 | FileCheck %s
// RUN: not ridge-opt %s -split-input-file -ridge-split-cats=most=1 2>&1 | FileCheck %s --check-prefix=ONE
// RUN: %python %S/Inputs/graphs.py cat 254 | ridge-opt -ridge-split-cats | FileCheck %s --check-prefix=SHORT
// RUN: %python %S/Inputs/graphs.py cat 600 | ridge-opt -ridge-split-cats | FileCheck %s --check-prefix=LONG
// RUN: %python %S/Inputs/graphs.py cat 600 | ridge-opt -ridge-split-cats -ridge-group=target=h200 | FileCheck %s --check-prefix=GROUPED
// RUN: %python %S/Inputs/graphs.py cat 600 | not ridge-opt -ridge-group=target=h200 2>&1 | FileCheck %s --check-prefix=REFUSED
//
// Concatenations of more operands than a kernel takes.

// ONE: a cat must be allowed two operands
// SHORT-COUNT-1: ridge.cat
// SHORT-NOT: ridge.cat
// LONG: %y.part0 = ridge.cat {{.*}} -> tensor<400x8xf32>
// LONG: %y.part1 = ridge.cat {{.*}} -> tensor<400x8xf32>
// LONG: %y.part2 = ridge.cat {{.*}} -> tensor<400x8xf32>
// LONG: %y = ridge.cat %y.part0, %y.part1, %y.part2 dim 0 {{.*}} -> tensor<1200x8xf32>
// GROUPED: ridge.group {{.*}} -> tensor<400x8xf32>
// GROUPED-SAME: stored: 601 tensors meet here, and a launch takes 508
// GROUPED: ridge.group {{.*}} -> tensor<1200x8xf32>
// REFUSED: error: {{.*}}a kernel of 601 tensors: a launch on h200 takes 508

// The order stays; places and sources go along.
// CHECK-LABEL: func.func @five
// CHECK-NEXT: %[[P0:.*]] = ridge.cat %arg1, %arg2 dim 1 {ridge.name = "y.part0", ridge.node = 4 : i64, ridge.source = "m.py:3"}
// CHECK-SAME: -> tensor<2x5xf32>
// CHECK-NEXT: %[[P1:.*]] = ridge.cat %arg3, %arg4 dim 1
// CHECK-SAME: -> tensor<2x9xf32>
// CHECK-NEXT: %[[P2:.*]] = ridge.cat %[[P0]], %[[P1]] dim 1
// CHECK-SAME: -> tensor<2x14xf32>
// CHECK-NEXT: %[[Y:.*]] = ridge.cat %arg0, %[[P2]] dim 1 {ridge.name = "y", ridge.node = 4 : i64, ridge.source = "m.py:3"}
// CHECK-NEXT: return %[[Y]]
func.func @five(%a: tensor<2x1xf32>, %b: tensor<2x2xf32>, %c: tensor<2x3xf32>, %d: tensor<2x4xf32>, %e: tensor<2x5xf32>) -> tensor<2x15xf32> {
  %y = ridge.cat %a, %b, %c, %d, %e dim 1 {ridge.name = "y", ridge.node = 4 : i64, ridge.source = "m.py:3"}
     : (tensor<2x1xf32>, tensor<2x2xf32>, tensor<2x3xf32>, tensor<2x4xf32>, tensor<2x5xf32>) -> tensor<2x15xf32>
  return %y : tensor<2x15xf32>
}

// -----

// CHECK-LABEL: func.func @two
// CHECK-NEXT: ridge.cat %arg0, %arg0 dim 0
// CHECK-NEXT: return
func.func @two(%a: tensor<2xi8>) -> tensor<4xi8> {
  %y = ridge.cat %a, %a dim 0 : (tensor<2xi8>, tensor<2xi8>) -> tensor<4xi8>
  return %y : tensor<4xi8>
}
