// RUN: ridge-opt %s --ridge-decompose | FileCheck %s

// Statistics are f32, and the result is cast last.
// CHECK-LABEL: func.func @rms_norm
// CHECK: ridge.map cast(%arg0) {{.*}} (tensor<4x96xbf16>) -> tensor<4x96xf32>
// CHECK: ridge.reduce sum {{.*}} over [1] keepdim {{.*}} tensor<4x96xf32> -> tensor<4x1xf32>
// CHECK: ridge.map rsqrt({{.*}}) {{.*}} (tensor<4x1xf32>) -> tensor<4x1xf32>
// CHECK: ridge.map cast({{.*}}) {ridge.name = "y"} : (tensor<4x96xf32>) -> tensor<4x96xbf16>
// CHECK-NOT: ridge.rms_norm
func.func @rms_norm(%x: tensor<4x96xbf16>) -> tensor<4x96xbf16> {
  %y = ridge.rms_norm %x eps 1.0e-06 {ridge.name = "y"} : (tensor<4x96xbf16>) -> tensor<4x96xbf16>
  return %y : tensor<4x96xbf16>
}

// CHECK-LABEL: func.func @softmax
// CHECK: ridge.reduce amax %arg0 over [0] keepdim : tensor<4x8xf32> -> tensor<1x8xf32>
// CHECK: ridge.map exp
// CHECK: ridge.reduce sum {{.*}} over [0] keepdim
// CHECK: ridge.map reciprocal
func.func @softmax(%x: tensor<4x8xf32>) -> tensor<4x8xf32> {
  %y = ridge.softmax %x dim 0 : tensor<4x8xf32> -> tensor<4x8xf32>
  return %y : tensor<4x8xf32>
}

// Two passes: the mean is subtracted before squaring.
// CHECK-LABEL: func.func @var
// CHECK: ridge.reduce sum %arg0
// CHECK: ridge.map sub
// CHECK: ridge.map mul
// CHECK: ridge.reduce sum
// CHECK: ridge.reshape {{.*}} tensor<4x1xf32> -> tensor<4xf32>
func.func @var(%x: tensor<4x8xf32>) -> tensor<4xf32> {
  %y = ridge.reduce var %x over [1] : tensor<4x8xf32> -> tensor<4xf32>
  return %y : tensor<4xf32>
}

// The first NaN or the first extreme: the least place among the hits.
// CHECK-LABEL: func.func @argmax
// CHECK: ridge.reduce amax
// CHECK: ridge.map eq
// CHECK: ridge.map isnan
// CHECK: ridge.iota
// CHECK: ridge.reduce amin {{.*}} tensor<4x8xi32> -> tensor<4x1xi32>
// CHECK: ridge.map cast({{.*}} (tensor<4x1xi32>) -> tensor<4x1xi64>
func.func @argmax(%x: tensor<4x8xf32>) -> tensor<4xi64> {
  %y = ridge.reduce argmax %x over [1] : tensor<4x8xf32> -> tensor<4xi64>
  return %y : tensor<4xi64>
}

// CHECK-LABEL: func.func @nothing
// CHECK: ridge.full(0xFFF0000000000000{{.*}} : tensor<4xf32>
// CHECK: ridge.full(1{{.*}} : tensor<4xf32>
// CHECK-NOT: ridge.reduce
func.func @nothing(%x: tensor<4x0xf32>) -> (tensor<4xf32>, tensor<4xf32>) {
  %a = ridge.reduce logsumexp %x over [1] : tensor<4x0xf32> -> tensor<4xf32>
  %b = ridge.reduce prod %x over [1] : tensor<4x0xf32> -> tensor<4xf32>
  return %a, %b : tensor<4xf32>, tensor<4xf32>
}

// A plain reduction stays.
// CHECK-LABEL: func.func @plain
// CHECK-NEXT: ridge.reduce sum %arg0 over [1] : tensor<4x8xbf16> -> tensor<4xbf16>
func.func @plain(%x: tensor<4x8xbf16>) -> tensor<4xbf16> {
  %y = ridge.reduce sum %x over [1] : tensor<4x8xbf16> -> tensor<4xbf16>
  return %y : tensor<4xbf16>
}

// A softmax that is rounded to 16 bits takes the hardware's exponential; one in f32 does not, unless all that reads it rounds it.
// CHECK-LABEL: func.func @exponentials
// CHECK: ridge.map {{ *}}exp({{.*}}) {ridge.fast}
// CHECK: ridge.map {{ *}}exp({{[^{]*}}) : (tensor<4x8xf32>)
// CHECK: ridge.map {{ *}}exp({{.*}}) {ridge.fast}
func.func @exponentials(%h: tensor<4x8xbf16>, %x: tensor<4x8xf32>) -> (tensor<4x8xbf16>, tensor<4x8xf32>, tensor<4x8xbf16>) {
  %a = ridge.softmax %h dim 1 : tensor<4x8xbf16> -> tensor<4x8xbf16>
  %b = ridge.softmax %x dim 1 : tensor<4x8xf32> -> tensor<4x8xf32>
  %y = ridge.map mul(%x, %x) : (tensor<4x8xf32>, tensor<4x8xf32>) -> tensor<4x8xf32>
  %c = ridge.softmax %y dim 1 : tensor<4x8xf32> -> tensor<4x8xf32>
  %d = ridge.map cast(%c) : (tensor<4x8xf32>) -> tensor<4x8xbf16>
  return %a, %b, %d : tensor<4x8xbf16>, tensor<4x8xf32>, tensor<4x8xbf16>
}

// A row of one element is its own mean and maximum.
// CHECK-LABEL: func.func @rows_of_one
// CHECK-NOT: ridge.reduce
// CHECK: return
func.func @rows_of_one(%x: tensor<24x1xbf16>) -> (tensor<24x1xbf16>, tensor<24x1xbf16>) {
  %n = ridge.layer_norm %x eps 1.000000e-05 : (tensor<24x1xbf16>) -> tensor<24x1xbf16>
  %s = ridge.softmax %x dim 1 : tensor<24x1xbf16> -> tensor<24x1xbf16>
  return %n, %s : tensor<24x1xbf16>, tensor<24x1xbf16>
}
