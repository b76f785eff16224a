// RUN: ridge-opt %s -split-input-file -verify-diagnostics
//
// What matrix products, indexing, attention and the loss refuse.

func.func @k(%x: tensor<4x6xf32>, %y: tensor<5x3xf32>) {
  // expected-error @+1 {{shapes do not fit for a matrix product: [4, 6] x [5, 3], K is 6 and 5}}
  %0 = ridge.matmul %x, %y : (tensor<4x6xf32>, tensor<5x3xf32>) -> tensor<4x3xf32>
  return
}

// -----

func.func @transposed_k(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{K is 4 and 6}}
  %0 = ridge.matmul %x transpose_a, %x transpose_b : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<6x4xf32>
  return
}

// -----

func.func @batch(%a: tensor<2x4x6xf32>, %b: tensor<3x6x5xf32>) {
  // expected-error @+1 {{batch dimensions do not broadcast}}
  %0 = ridge.matmul %a, %b : (tensor<2x4x6xf32>, tensor<3x6x5xf32>) -> tensor<2x4x5xf32>
  return
}

// -----

func.func @scalar(%x: tensor<4x6xf32>, %s: tensor<f32>) {
  // expected-error @+1 {{matmul needs a left operand of rank 1 or more}}
  %0 = ridge.matmul %s, %x : (tensor<f32>, tensor<4x6xf32>) -> tensor<6xf32>
  return
}

// -----

func.func @matmul_shape(%x: tensor<4x6xf32>, %y: tensor<6x3xf32>) {
  // expected-error @+1 {{result 0 must be 'tensor<4x3xf32>'}}
  %0 = ridge.matmul %x, %y : (tensor<4x6xf32>, tensor<6x3xf32>) -> tensor<3x4xf32>
  return
}

// -----

func.func @matmul_bool(%b: tensor<4x4xi1>) {
  // expected-error @+1 {{a matrix product of bool is not defined}}
  %0 = ridge.matmul %b, %b : (tensor<4x4xi1>, tensor<4x4xi1>) -> tensor<4x4xi1>
  return
}

// -----

func.func @matmul_result_type(%x: tensor<4x6xf32>, %y: tensor<6x3xf32>) {
  // expected-error @+1 {{/attrs/out_dtype: }}
  %0 = ridge.matmul %x, %y : (tensor<4x6xf32>, tensor<6x3xf32>) -> tensor<4x3xi32>
  return
}

// -----

func.func @linear_k(%x: tensor<4x6xf32>, %w: tensor<5x7xf32>) {
  // expected-error @+1 {{K is 6 and 7}}
  %0 = ridge.linear %x, %w : (tensor<4x6xf32>, tensor<5x7xf32>) -> tensor<4x5xf32>
  return
}

// -----

func.func @linear_bias(%x: tensor<4x6xf32>, %w: tensor<5x6xf32>, %b: tensor<6xf32>) {
  // expected-error @+1 {{linear needs a bias of shape [5], not [6]}}
  %0 = ridge.linear %x, %w bias %b : (tensor<4x6xf32>, tensor<5x6xf32>, tensor<6xf32>) -> tensor<4x5xf32>
  return
}

// -----

func.func @linear_type(%x: tensor<4x6xf32>, %w: tensor<5x6xf32>) {
  // expected-error @+1 {{result 0 must be 'tensor<4x5xf32>'}}
  %0 = ridge.linear %x, %w : (tensor<4x6xf32>, tensor<5x6xf32>) -> tensor<4x5xbf16>
  return
}

// -----

func.func @embedding_indices(%t: tensor<10x8xf32>, %i: tensor<3xf32>) {
  // expected-error @+1 {{/inputs/1: embedding needs indices of i32 or i64, not f32}}
  %0 = ridge.gather embedding %t, %i dim 0 : (tensor<10x8xf32>, tensor<3xf32>) -> tensor<3x8xf32>
  return
}

// -----

func.func @embedding_dim(%t: tensor<10x8xf32>, %i: tensor<3xi64>) {
  // expected-error @+1 {{embedding takes rows: its dim is 0}}
  %0 = ridge.gather embedding %t, %i dim 1 : (tensor<10x8xf32>, tensor<3xi64>) -> tensor<3x8xf32>
  return
}

// -----

func.func @embedding_table(%t: tensor<10xf32>, %i: tensor<3xi64>) {
  // expected-error @+1 {{embedding needs a table of rank 2}}
  %0 = ridge.gather embedding %t, %i dim 0 : (tensor<10xf32>, tensor<3xi64>) -> tensor<3xf32>
  return
}

// -----

func.func @index_select_rank(%t: tensor<10x8xf32>, %i: tensor<3x1xi64>) {
  // expected-error @+1 {{index_select needs indices of rank 1}}
  %0 = ridge.gather index_select %t, %i dim 0 : (tensor<10x8xf32>, tensor<3x1xi64>) -> tensor<3x8xf32>
  return
}

// -----

func.func @index_select_dim(%t: tensor<10x8xf32>, %i: tensor<3xi64>) {
  // expected-error @+1 {{dimension 2 is out of range for rank 2}}
  %0 = ridge.gather index_select %t, %i dim 2 : (tensor<10x8xf32>, tensor<3xi64>) -> tensor<3x8xf32>
  return
}

// -----

func.func @gather_shape(%t: tensor<10x8xf32>, %i: tensor<11x3xi64>) {
  // expected-error @+1 {{needs indices of the same rank and nowhere else larger}}
  %0 = ridge.gather gather %t, %i dim 1 : (tensor<10x8xf32>, tensor<11x3xi64>) -> tensor<11x3xf32>
  return
}

// -----

func.func @gather_result(%t: tensor<10x8xf32>, %i: tensor<9x3xi64>) {
  // expected-error @+1 {{result 0 must be 'tensor<9x3xf32>'}}
  %0 = ridge.gather gather %t, %i dim 1 : (tensor<10x8xf32>, tensor<9x3xi64>) -> tensor<10x3xf32>
  return
}

// -----

func.func @attention_head(%q: tensor<2x4x16x8xf32>, %k: tensor<2x4x32x8xf32>, %v: tensor<2x4x32x8xf32>, %w: tensor<2x4x32x9xf32>) {
  // expected-error @+1 {{query and key differ in their last extent}}
  %0 = ridge.attention %q, %w, %v : (tensor<2x4x16x8xf32>, tensor<2x4x32x9xf32>, tensor<2x4x32x8xf32>) -> tensor<2x4x16x8xf32>
  return
}

// -----

func.func @attention_keys(%q: tensor<2x4x16x8xf32>, %k: tensor<2x4x32x8xf32>, %v: tensor<2x4x32x8xf32>, %w: tensor<2x4x31x8xf32>) {
  // expected-error @+1 {{keys and values differ in number}}
  %0 = ridge.attention %q, %k, %w : (tensor<2x4x16x8xf32>, tensor<2x4x32x8xf32>, tensor<2x4x31x8xf32>) -> tensor<2x4x16x8xf32>
  return
}

// -----

func.func @attention_mask_shape(%q: tensor<2x4x16x8xf32>, %k: tensor<2x4x32x8xf32>, %v: tensor<2x4x32x8xf32>, %m: tensor<32x16xi1>) {
  // expected-error @+1 {{/inputs/3: the mask [32, 16] does not broadcast to the scores [2, 4, 16, 32]}}
  %0 = ridge.attention %q, %k, %v mask %m : (tensor<2x4x16x8xf32>, tensor<2x4x32x8xf32>, tensor<2x4x32x8xf32>, tensor<32x16xi1>) -> tensor<2x4x16x8xf32>
  return
}

// -----

func.func @attention_mask_type(%q: tensor<2x4x16x8xf32>, %k: tensor<2x4x32x8xf32>, %v: tensor<2x4x32x8xf32>, %m: tensor<16x32xi64>) {
  // expected-error @+1 {{a mask must be bool, f32, f16 or bf16, not i64}}
  %0 = ridge.attention %q, %k, %v mask %m : (tensor<2x4x16x8xf32>, tensor<2x4x32x8xf32>, tensor<2x4x32x8xf32>, tensor<16x32xi64>) -> tensor<2x4x16x8xf32>
  return
}

// -----

func.func @attention_scale(%q: tensor<2x4x16x8xf32>, %k: tensor<2x4x32x8xf32>, %v: tensor<2x4x32x8xf32>) {
  // expected-error @+1 {{/attrs/scale: 'scale' must be finite}}
  %0 = ridge.attention %q, %k, %v scale 0x7FF0000000000000 : (tensor<2x4x16x8xf32>, tensor<2x4x32x8xf32>, tensor<2x4x32x8xf32>) -> tensor<2x4x16x8xf32>
  return
}

// -----

func.func @attention_result(%q: tensor<2x4x16x8xf32>, %k: tensor<2x4x32x8xf32>, %v: tensor<2x4x32x8xf32>) {
  // expected-error @+1 {{result 0 must be 'tensor<2x4x16x8xf32>'}}
  %0 = ridge.attention %q, %k, %v : (tensor<2x4x16x8xf32>, tensor<2x4x32x8xf32>, tensor<2x4x32x8xf32>) -> tensor<2x4x32x8xf32>
  return
}

// -----

func.func @cross_entropy_targets(%x: tensor<4x6xf32>, %t: tensor<4xi32>) {
  // expected-error @+1 {{cross_entropy needs targets of i64, not i32}}
  %0 = ridge.cross_entropy %x, %t : (tensor<4x6xf32>, tensor<4xi32>) -> tensor<4xf32>
  return
}

// -----

func.func @cross_entropy_rows(%x: tensor<4x6xf32>, %t: tensor<5xi64>) {
  // expected-error @+1 {{cross_entropy needs targets of shape [4], not [5]}}
  %0 = ridge.cross_entropy %x, %t : (tensor<4x6xf32>, tensor<5xi64>) -> tensor<4xf32>
  return
}

// -----

func.func @cross_entropy_type(%h: tensor<4x6xbf16>, %t: tensor<4xi64>) {
  // expected-error @+1 {{result 0 must be 'tensor<4xf32>'}}
  %0 = ridge.cross_entropy %h, %t : (tensor<4x6xbf16>, tensor<4xi64>) -> tensor<4xbf16>
  return
}
