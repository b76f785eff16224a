// RUN: ridge-opt %s --ridge-products=pad=true --canonicalize | FileCheck %s
// RUN: ridge-opt %s --ridge-products="pad=true target=h200" --canonicalize | FileCheck %s --check-prefixes=CHECK,LINES
// RUN: not ridge-opt %s --ridge-products="target=nothing" 2>&1 | FileCheck %s --check-prefix=UNKNOWN
// UNKNOWN: error: {{.*}}nothing

// Rows of an odd extent are written anew with zeros up to whole vectors.
// CHECK-LABEL: func.func @odd
// CHECK-COUNT-2: ridge.pad {{.*}} tensor<1x256x255xbf16> -> tensor<1x256x256xbf16>
// CHECK: ridge.matmul {{.*}} transpose_b : (tensor<1x256x256xbf16>, tensor<1x256x256xbf16>)
func.func @odd(%x: tensor<256x255xbf16>, %w: tensor<256x255xbf16>) -> tensor<256x256xbf16> {
  %y = ridge.matmul %x, %w transpose_b : (tensor<256x255xbf16>, tensor<256x255xbf16>) -> tensor<256x256xbf16>
  return %y : tensor<256x256xbf16>
}

// Long ones up to whole lines.
// CHECK-LABEL: func.func @long
// CHECK-COUNT-2: ridge.pad {{.*}} tensor<1x256x4097xbf16> -> tensor<1x256x4160xbf16>
func.func @long(%x: tensor<256x4097xbf16>, %w: tensor<256x4097xbf16>) -> tensor<256x256xbf16> {
  %y = ridge.matmul %x, %w transpose_b : (tensor<256x4097xbf16>, tensor<256x4097xbf16>) -> tensor<256x256xbf16>
  return %y : tensor<256x256xbf16>
}

// What is stored along an odd N is turned on the way.
// CHECK-LABEL: func.func @odd_columns
// CHECK-NOT: ridge.pad
// CHECK: ridge.permute {{.*}} {ridge.fast{{.*}} tensor<1x256x255xbf16> -> tensor<1x255x256xbf16>
// CHECK: ridge.matmul {{.*}} transpose_b : (tensor<1x256x256xbf16>, tensor<1x255x256xbf16>)
func.func @odd_columns(%x: tensor<256x256xbf16>, %w: tensor<256x255xbf16>) -> tensor<256x255xbf16> {
  %y = ridge.matmul %x, %w : (tensor<256x256xbf16>, tensor<256x255xbf16>) -> tensor<256x255xbf16>
  return %y : tensor<256x255xbf16>
}

// 8-bit numbers are multiplied along K: whatever is stored otherwise is turned.
// CHECK-LABEL: func.func @bytes
// CHECK-NOT: ridge.pad
// CHECK: ridge.permute {{.*}} {ridge.fast{{.*}} tensor<1x256x512xf8E4M3FN> -> tensor<1x512x256xf8E4M3FN>
// CHECK: ridge.matmul {{.*}} transpose_b : (tensor<1x128x256xf8E4M3FN>, tensor<1x512x256xf8E4M3FN>)
func.func @bytes(%x: tensor<128x256xf8E4M3FN>, %w: tensor<256x512xf8E4M3FN>) -> tensor<128x512xf32> {
  %y = ridge.matmul %x, %w : (tensor<128x256xf8E4M3FN>, tensor<256x512xf8E4M3FN>) -> tensor<128x512xf32>
  return %y : tensor<128x512xf32>
}

// CHECK-LABEL: func.func @odd_bytes
// CHECK: ridge.pad {{.*}} tensor<1x128x250xi8> -> tensor<1x128x256xi8>
// CHECK: ridge.permute
// CHECK: ridge.pad {{.*}} tensor<1x512x250xi8> -> tensor<1x512x256xi8>
func.func @odd_bytes(%x: tensor<128x250xi8>, %w: tensor<250x512xi8>) -> tensor<128x512xi32> {
  %y = ridge.matmul %x, %w : (tensor<128x250xi8>, tensor<250x512xi8>) -> tensor<128x512xi32>
  return %y : tensor<128x512xi32>
}

// Whole vectors, f32 and small products stay as they are.
// CHECK-LABEL: func.func @stays
// CHECK-NOT: ridge.pad
// CHECK: return
func.func @stays(%x: tensor<256x256xbf16>, %w: tensor<255x256xbf16>, %a: tensor<256x255xf32>, %b: tensor<256x255xf32>, %c: tensor<16x255xbf16>, %d: tensor<256x255xbf16>) -> (tensor<256x255xbf16>, tensor<256x256xf32>, tensor<16x256xbf16>) {
  %y = ridge.matmul %x, %w transpose_b : (tensor<256x256xbf16>, tensor<255x256xbf16>) -> tensor<256x255xbf16>
  %z = ridge.matmul %a, %b transpose_b : (tensor<256x255xf32>, tensor<256x255xf32>) -> tensor<256x256xf32>
  %u = ridge.matmul %c, %d transpose_b : (tensor<16x255xbf16>, tensor<256x255xbf16>) -> tensor<16x256xbf16>
  return %y, %z, %u : tensor<256x255xbf16>, tensor<256x256xf32>, tensor<16x256xbf16>
}

// Rows of whole vectors that are not whole lines: by the model.
// LINES-LABEL: func.func @lines
// LINES-COUNT-2: ridge.pad {{.*}} tensor<1x4096x4104xbf16> -> tensor<1x4096x4160xbf16>
// LINES: return
func.func @lines(%x: tensor<4096x4104xbf16>, %w: tensor<4096x4104xbf16>) -> tensor<4096x4096xbf16> {
  %y = ridge.matmul %x, %w transpose_b : (tensor<4096x4104xbf16>, tensor<4096x4104xbf16>) -> tensor<4096x4096xbf16>
  return %y : tensor<4096x4096xbf16>
}

// LINES-LABEL: func.func @few_rows
// LINES-NOT: ridge.pad
// LINES: return
func.func @few_rows(%x: tensor<512x4104xbf16>, %w: tensor<11008x4104xbf16>) -> tensor<512x11008xbf16> {
  %y = ridge.matmul %x, %w transpose_b : (tensor<512x4104xbf16>, tensor<11008x4104xbf16>) -> tensor<512x11008xbf16>
  return %y : tensor<512x11008xbf16>
}
