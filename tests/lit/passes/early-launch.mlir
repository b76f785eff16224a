// RUN: ridge-opt %s --ridge-decompose --canonicalize --cse --ridge-group="target=h200" --ridge-early-launch="target=h200" | FileCheck %s
// RUN: ridge-opt %s --ridge-decompose --canonicalize --cse --ridge-group="target=a100" --ridge-early-launch="target=a100" | FileCheck %s --check-prefix=OLD

// The second kernel starts while the first ends; the first, behind work that is not the plan's, does not.
// CHECK-LABEL: func.func @short
// CHECK: ridge.group "row"
// CHECK-NOT: early = true
// CHECK: ridge.group "row"
// CHECK-SAME: early = true
// CHECK-SAME: launched while the kernel before still runs, for whose end it waits: predicted to save 0.6 us
// CHECK: return
// OLD-LABEL: func.func @short
// OLD-NOT: launched
// OLD: return
func.func @short(%x: tensor<16x4096xbf16>) -> tensor<16x4096xbf16> {
  %y = ridge.softmax %x dim 0 : tensor<16x4096xbf16> -> tensor<16x4096xbf16>
  %z = ridge.softmax %y dim 1 : tensor<16x4096xbf16> -> tensor<16x4096xbf16>
  return %z : tensor<16x4096xbf16>
}

// A kernel of 130 us has nothing to gain.
// CHECK-LABEL: func.func @long
// CHECK: ridge.group "row"
// CHECK-NOT: early = true
// CHECK: launched behind the kernel before: of {{[0-9.]+}} us, launching it earlier saves 0.6
// CHECK: return
func.func @long(%x: tensor<16384x8192xbf16>) -> tensor<16384x8192xbf16> {
  %y = ridge.softmax %x dim 0 : tensor<16384x8192xbf16> -> tensor<16384x8192xbf16>
  %z = ridge.softmax %y dim 1 : tensor<16384x8192xbf16> -> tensor<16384x8192xbf16>
  return %z : tensor<16384x8192xbf16>
}
