// RUN: ridge-opt %s -ridge-group=target=cpu | FileCheck %s --check-prefix=CPU
// RUN: ridge-opt %s -ridge-group=target=a100 | FileCheck %s --check-prefix=A100
// RUN: not ridge-opt %s -ridge-group=target=toaster 2>&1 | FileCheck %s --check-prefix=UNKNOWN
//
// The schedule is the machine's.

// CPU: lanes = 8 : i64
// CPU-SAME: threads = 1 : i64
// A100: lanes = 4 : i64
// A100-SAME: threads = 128 : i64
// UNKNOWN: error: {{.*}}toaster
func.func @f(%x: tensor<4096x4096xf32>) -> tensor<4096x4096xf32> {
  %0 = ridge.map sqrt(%x) : (tensor<4096x4096xf32>) -> tensor<4096x4096xf32>
  return %0 : tensor<4096x4096xf32>
}
