// RUN: ridge-opt %s -ridge-slice-products | FileCheck %s

// Two halves that meet: two products of the halves of the weights, and of the bias.
// CHECK-LABEL: func.func @gate
func.func @gate(%x: tensor<4x8xbf16>, %w: tensor<12x8xbf16>, %b: tensor<12xbf16>) -> tensor<4x6xbf16> {
  // CHECK: %[[W0:.*]] = ridge.slice %arg1 dim 0 start 0 step 1 {{.*}}tensor<12x8xbf16> -> tensor<6x8xbf16>
  // CHECK: %[[B0:.*]] = ridge.slice %arg2 dim 0 start 0 step 1 {{.*}}tensor<12xbf16> -> tensor<6xbf16>
  // CHECK: ridge.linear %arg0, %[[W0]] bias %[[B0]]
  // CHECK: %[[W1:.*]] = ridge.slice %arg1 dim 0 start 6 step 1
  // CHECK: ridge.linear %arg0, %[[W1]] bias
  // CHECK-NOT: ridge.slice
  %h = ridge.linear %x, %w bias %b : (tensor<4x8xbf16>, tensor<12x8xbf16>, tensor<12xbf16>) -> tensor<4x12xbf16>
  %g = ridge.slice %h dim 1 start 0 step 1 : tensor<4x12xbf16> -> tensor<4x6xbf16>
  %u = ridge.slice %h dim 1 start 6 step 1 : tensor<4x12xbf16> -> tensor<4x6xbf16>
  %s = ridge.map silu(%g) : (tensor<4x6xbf16>) -> tensor<4x6xbf16>
  %y = ridge.map mul(%s, %u) : (tensor<4x6xbf16>, tensor<4x6xbf16>) -> tensor<4x6xbf16>
  return %y : tensor<4x6xbf16>
}

// Columns that nobody reads are not computed, of either layout of the right operand.
// CHECK-LABEL: func.func @part
func.func @part(%x: tensor<4x8xf32>, %w: tensor<8x12xf32>, %v: tensor<12x8xf32>) -> (tensor<4x3xf32>, tensor<4x2xf32>) {
  // CHECK: ridge.slice %arg1 dim 1 start 4 step 1 {{.*}}tensor<8x12xf32> -> tensor<8x3xf32>
  // CHECK: ridge.matmul %arg0, {{.*}} -> tensor<4x3xf32>
  // CHECK: ridge.slice %arg2 dim 0 start 1 step 1 {{.*}}tensor<12x8xf32> -> tensor<2x8xf32>
  // CHECK: ridge.matmul %arg0, {{.*}} transpose_b {{.*}} -> tensor<4x2xf32>
  %h = ridge.matmul %x, %w : (tensor<4x8xf32>, tensor<8x12xf32>) -> tensor<4x12xf32>
  %a = ridge.slice %h dim 1 start 4 step 1 : tensor<4x12xf32> -> tensor<4x3xf32>
  %i = ridge.matmul %x, %v transpose_b : (tensor<4x8xf32>, tensor<12x8xf32>) -> tensor<4x12xf32>
  %b = ridge.slice %i dim 1 start 1 step 1 : tensor<4x12xf32> -> tensor<4x2xf32>
  return %a, %b : tensor<4x3xf32>, tensor<4x2xf32>
}

// Three parts that go their ways, columns that two read, a step, and a result that is read as a whole: one product.
// CHECK-LABEL: func.func @whole
func.func @whole(%x: tensor<4x8xf32>, %w: tensor<12x8xf32>)
    -> (tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x5xf32>, tensor<4x6xf32>, tensor<4x12xf32>, tensor<4x2xf32>) {
  // CHECK-COUNT-4: tensor<12x8xf32>) -> tensor<4x12xf32>
  %h = ridge.linear %x, %w : (tensor<4x8xf32>, tensor<12x8xf32>) -> tensor<4x12xf32>
  %a = ridge.slice %h dim 1 start 0 step 1 : tensor<4x12xf32> -> tensor<4x4xf32>
  %b = ridge.slice %h dim 1 start 4 step 1 : tensor<4x12xf32> -> tensor<4x4xf32>
  %c = ridge.slice %h dim 1 start 8 step 1 : tensor<4x12xf32> -> tensor<4x4xf32>
  %i = ridge.linear %x, %w : (tensor<4x8xf32>, tensor<12x8xf32>) -> tensor<4x12xf32>
  %d = ridge.slice %i dim 1 start 0 step 1 : tensor<4x12xf32> -> tensor<4x4xf32>
  %e = ridge.slice %i dim 1 start 3 step 1 : tensor<4x12xf32> -> tensor<4x5xf32>
  %j = ridge.linear %x, %w : (tensor<4x8xf32>, tensor<12x8xf32>) -> tensor<4x12xf32>
  %f = ridge.slice %j dim 1 start 0 step 2 : tensor<4x12xf32> -> tensor<4x6xf32>
  %k = ridge.linear %x, %w : (tensor<4x8xf32>, tensor<12x8xf32>) -> tensor<4x12xf32>
  %g = ridge.slice %k dim 1 start 0 step 1 : tensor<4x12xf32> -> tensor<4x2xf32>
  return %a, %b, %c, %d, %e, %f, %k, %g : tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x4xf32>, tensor<4x5xf32>, tensor<4x6xf32>, tensor<4x12xf32>, tensor<4x2xf32>
}
