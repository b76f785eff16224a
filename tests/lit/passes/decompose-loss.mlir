// RUN: ridge-opt %s --ridge-decompose-loss | FileCheck %s

// Reductions of the rows and one element picked from each; an ignored target is looked up at 0.
// CHECK-LABEL: func.func @loss
// CHECK: %[[IGNORED:.*]] = ridge.map eq(%arg1, {{.*}}) {ridge.name = "y", ridge.node = 2 : i64} : (tensor<4xi64>, tensor<i64>) -> tensor<4xi1>
// CHECK: %[[X:.*]] = ridge.map cast(%arg0) {{.*}} (tensor<4x96xbf16>) -> tensor<4x96xf32>
// CHECK: %[[CHOSEN:.*]] = ridge.map where(%[[IGNORED]], {{.*}}, %arg1)
// CHECK: ridge.reduce amax %[[X]] over [1] {{.*}} tensor<4x96xf32> -> tensor<4xf32>
// CHECK: ridge.map exp
// CHECK: ridge.reduce sum {{.*}} over [1]
// CHECK: %[[INDEX:.*]] = ridge.reshape %[[CHOSEN]] {{.*}} tensor<4xi64> -> tensor<4x1xi64>
// CHECK: ridge.gather gather %[[X]], %[[INDEX]] dim 1
// CHECK: ridge.map log
// CHECK: %[[Y:.*]] = ridge.map where(%[[IGNORED]], {{.*}} -> tensor<4xf32>
// CHECK-NOT: cross_entropy
// CHECK: return %[[Y]]
func.func @loss(%x: tensor<4x96xbf16>, %t: tensor<4xi64>) -> tensor<4xf32> {
  %y = ridge.cross_entropy %x, %t ignore -1 {ridge.name = "y", ridge.node = 2 : i64} : (tensor<4x96xbf16>, tensor<4xi64>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// Without classes there is nothing to reduce, and every target that is not ignored is out of range.
// CHECK-LABEL: func.func @no_classes
// CHECK-NOT: ridge.reduce
// CHECK: ridge.gather gather {{.*}} (tensor<4x1xf32>, tensor<4x1xi64>) -> tensor<4x1xf32>
func.func @no_classes(%x: tensor<4x0xf32>, %t: tensor<4xi64>) -> tensor<4xf32> {
  %y = ridge.cross_entropy %x, %t : (tensor<4x0xf32>, tensor<4xi64>) -> tensor<4xf32>
  return %y : tensor<4xf32>
}
