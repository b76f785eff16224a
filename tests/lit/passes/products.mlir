// RUN: ridge-opt %s --ridge-products --canonicalize | FileCheck %s

// One right operand: the batches' rows are rows of one product, which is f32; the result's type comes last.
// CHECK-LABEL: func.func @linear
// CHECK: ridge.matmul %{{.*}}, %{{.*}} transpose_b {{.*}} (tensor<1x12x64xbf16>, tensor<1x32x64xbf16>) -> tensor<1x12x32xf32>
// CHECK: ridge.map add({{.*}}) {{.*}} (tensor<3x4x32xf32>, tensor<32xf32>) -> tensor<3x4x32xf32>
// CHECK: ridge.map cast({{.*}}) {ridge.fast, ridge.name = "y"} : (tensor<3x4x32xf32>) -> tensor<3x4x32xbf16>
// CHECK-NOT: ridge.linear
func.func @linear(%x: tensor<3x4x64xbf16>, %w: tensor<32x64xbf16>, %b: tensor<32xbf16>) -> tensor<3x4x32xbf16> {
  %y = ridge.linear %x, %w bias %b {ridge.name = "y"} : (tensor<3x4x64xbf16>, tensor<32x64xbf16>, tensor<32xbf16>) -> tensor<3x4x32xbf16>
  return %y : tensor<3x4x32xbf16>
}

// Batch dimensions that broadcast are expanded: an index map.
// CHECK-LABEL: func.func @batches
// CHECK: ridge.expand {{.*}} tensor<5x1x8x16xf32> -> tensor<5x6x8x16xf32>
// CHECK: ridge.expand {{.*}} tensor<6x16x4xf32> -> tensor<5x6x16x4xf32>
// CHECK: ridge.matmul {{.*}} (tensor<30x8x16xf32>, tensor<30x16x4xf32>) -> tensor<30x8x4xf32>
func.func @batches(%a: tensor<5x1x8x16xf32>, %b: tensor<6x16x4xf32>) -> tensor<5x6x8x4xf32> {
  %y = ridge.matmul %a, %b : (tensor<5x1x8x16xf32>, tensor<6x16x4xf32>) -> tensor<5x6x8x4xf32>
  return %y : tensor<5x6x8x4xf32>
}

// A transposed operand is read as it is stored.
// CHECK-LABEL: func.func @transposed_before
// CHECK-NOT: ridge.permute
// CHECK: ridge.matmul {{.*}} transpose_b {{.*}} (tensor<1x8x16xf32>, tensor<1x4x16xf32>) -> tensor<1x8x4xf32>
func.func @transposed_before(%a: tensor<8x16xf32>, %b: tensor<4x16xf32>) -> tensor<8x4xf32> {
  %t = ridge.permute %b by [1, 0] : tensor<4x16xf32> -> tensor<16x4xf32>
  %y = ridge.matmul %a, %t : (tensor<8x16xf32>, tensor<16x4xf32>) -> tensor<8x4xf32>
  return %y : tensor<8x4xf32>
}

// Outer products are elementwise, products over nothing are zero.
// CHECK-LABEL: func.func @thin
// CHECK: ridge.map mul({{.*}}) : (tensor<8x1xf32>, tensor<1x4xf32>) -> tensor<8x4xf32>
// CHECK: ridge.full
// CHECK-NOT: ridge.matmul
func.func @thin(%a: tensor<8x1xf32>, %b: tensor<1x4xf32>, %c: tensor<8x0xf32>, %d: tensor<0x4xf32>) -> (tensor<8x4xf32>, tensor<8x4xf32>) {
  %y = ridge.matmul %a, %b : (tensor<8x1xf32>, tensor<1x4xf32>) -> tensor<8x4xf32>
  %z = ridge.matmul %c, %d : (tensor<8x0xf32>, tensor<0x4xf32>) -> tensor<8x4xf32>
  return %y, %z : tensor<8x4xf32>, tensor<8x4xf32>
}

// A single column is a single row of the transposed product.
// CHECK-LABEL: func.func @column
// CHECK: ridge.matmul {{.*}} transpose_b : (tensor<1x1x16xf32>, tensor<1x8x16xf32>) -> tensor<1x1x8xf32>
func.func @column(%a: tensor<8x16xf32>, %b: tensor<16xf32>) -> tensor<8xf32> {
  %y = ridge.matmul %a, %b : (tensor<8x16xf32>, tensor<16xf32>) -> tensor<8xf32>
  return %y : tensor<8xf32>
}

// 8-bit integers sum in 32 bits.
// CHECK-LABEL: func.func @integers
// CHECK: ridge.matmul {{.*}} (tensor<1x8x16xi8>, tensor<1x16x4xi8>) -> tensor<1x8x4xi32>
func.func @integers(%a: tensor<8x16xi8>, %b: tensor<16x4xi8>) -> tensor<8x4xi32> {
  %y = ridge.matmul %a, %b : (tensor<8x16xi8>, tensor<16x4xi8>) -> tensor<8x4xi32>
  return %y : tensor<8x4xi32>
}

// Two products around a softmax; what is masked has no weight, also where nothing else is left.
// CHECK-LABEL: func.func @attention
// CHECK: ridge.matmul {{.*}} transpose_b
// CHECK: ridge.iota
// CHECK: ridge.map ge
// CHECK: ridge.map where
// CHECK: ridge.reduce amax
// CHECK: ridge.reduce sum
// CHECK: ridge.map where
// CHECK: ridge.map cast({{.*}}) : (tensor<2x4x8x12xf32>) -> tensor<2x4x8x12xbf16>
// CHECK: ridge.matmul
// CHECK-NOT: ridge.attention
func.func @attention(%q: tensor<2x4x8x16xbf16>, %k: tensor<2x4x12x16xbf16>, %v: tensor<2x4x12x16xbf16>) -> tensor<2x4x8x16xbf16> {
  %y = ridge.attention %q, %k, %v causal : (tensor<2x4x8x16xbf16>, tensor<2x4x12x16xbf16>, tensor<2x4x12x16xbf16>) -> tensor<2x4x8x16xbf16>
  return %y : tensor<2x4x8x16xbf16>
}

// A cast of the file's behind a product rounds, though it is to the product's own type.
// RUN: ridge-opt %s --ridge-products --canonicalize | FileCheck %s --check-prefix=ROUNDS
// ROUNDS-LABEL: func.func @cast_to_its_own_type
// ROUNDS: ridge.matmul
// ROUNDS: ridge.map cast({{.*}}) {ridge.fast} : (tensor<8x8xf32>) -> tensor<8x8xbf16>
// ROUNDS: ridge.map cast({{.*}}) : (tensor<8x8xbf16>) -> tensor<8x8xbf16>
// ROUNDS: ridge.map cast({{.*}}) : (tensor<8x8xbf16>) -> tensor<8x8xf32>
func.func @cast_to_its_own_type(%a: tensor<8x8xbf16>, %b: tensor<8x8xbf16>) -> tensor<8x8xf32> {
  %y = ridge.matmul %a, %b : (tensor<8x8xbf16>, tensor<8x8xbf16>) -> tensor<8x8xbf16>
  %c = ridge.map cast(%y) : (tensor<8x8xbf16>) -> tensor<8x8xbf16>
  %r = ridge.map cast(%c) : (tensor<8x8xbf16>) -> tensor<8x8xf32>
  return %r : tensor<8x8xf32>
}
