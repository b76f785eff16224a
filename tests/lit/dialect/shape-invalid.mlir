// RUN: ridge-opt %s -split-input-file -verify-diagnostics
//
// What layout and creation ops refuse.

func.func @reshape(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{[4, 6] does not reshape to [5, 5]: 24 elements to 25}}
  %0 = ridge.reshape %x : tensor<4x6xf32> -> tensor<5x5xf32>
  return
}

// -----

func.func @reshape_type(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{result 0 must be 'tensor<24xf32>'}}
  %0 = ridge.reshape %x : tensor<4x6xf32> -> tensor<24xf16>
  return
}

// -----

func.func @reshape_rank(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{more than 8 dimensions}}
  %0 = ridge.reshape %x : tensor<4x6xf32> -> tensor<1x1x1x1x1x1x1x4x6xf32>
  return
}

// -----

func.func @permute_length(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{/attrs/dims: 'dims' must list every one of the 2 dimensions once}}
  %0 = ridge.permute %x by [0] : tensor<4x6xf32> -> tensor<4xf32>
  return
}

// -----

func.func @permute_twice(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{dimension 1 is listed twice}}
  %0 = ridge.permute %x by [1, 1] : tensor<4x6xf32> -> tensor<6x6xf32>
  return
}

// -----

func.func @permute_range(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{dimension 2 is out of range for rank 2}}
  %0 = ridge.permute %x by [0, 2] : tensor<4x6xf32> -> tensor<4x6xf32>
  return
}

// -----

func.func @permute_negative(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{dimension -1 is out of range for rank 2}}
  %0 = ridge.permute %x by [0, -1] : tensor<4x6xf32> -> tensor<4x6xf32>
  return
}

// -----

func.func @permute_shape(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{result 0 must be 'tensor<6x4xf32>'}}
  %0 = ridge.permute %x by [1, 0] : tensor<4x6xf32> -> tensor<4x6xf32>
  return
}

// -----

func.func @expand(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{[4, 6] does not expand to [4, 12]}}
  %0 = ridge.expand %x : tensor<4x6xf32> -> tensor<4x12xf32>
  return
}

// -----

func.func @expand_rank(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{[4, 6] does not expand to [6]}}
  %0 = ridge.expand %x : tensor<4x6xf32> -> tensor<6xf32>
  return
}

// -----

func.func @slice_dim(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{/attrs/dim: dimension 2 is out of range for rank 2}}
  %0 = ridge.slice %x dim 2 start 0 step 1 : tensor<4x6xf32> -> tensor<4x6xf32>
  return
}

// -----

func.func @slice_rank(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{result 0 must be 'tensor<4x0xf32>'}}
  %0 = ridge.slice %x dim 1 start 0 step 1 : tensor<4x6xf32> -> tensor<4xf32>
  return
}

// -----

func.func @slice_start(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{slice from -1 by 1, 1 elements, leaves the extent 4}}
  %0 = ridge.slice %x dim 0 start -1 step 1 : tensor<4x6xf32> -> tensor<1x6xf32>
  return
}

// -----

func.func @slice_end(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{slice from 1 by 2, 3 elements, leaves the extent 4}}
  %0 = ridge.slice %x dim 0 start 1 step 2 : tensor<4x6xf32> -> tensor<3x6xf32>
  return
}

// -----

func.func @slice_backwards(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{slice from 2 by -1, 4 elements, leaves the extent 4}}
  %0 = ridge.slice %x dim 0 start 2 step -1 : tensor<4x6xf32> -> tensor<4x6xf32>
  return
}

// -----

func.func @slice_step(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{slice from 0 by 0}}
  %0 = ridge.slice %x dim 0 start 0 step 0 : tensor<4x6xf32> -> tensor<4x6xf32>
  return
}

// -----

func.func @slice_overflow(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{leaves the extent 4}}
  %0 = ridge.slice %x dim 0 start 1 step 9223372036854775807 : tensor<4x6xf32> -> tensor<3x6xf32>
  return
}

// -----

func.func @slice_other_extent(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{result 0 must be 'tensor<2x6xf32>'}}
  %0 = ridge.slice %x dim 0 start 0 step 1 : tensor<4x6xf32> -> tensor<2x5xf32>
  return
}

// -----

func.func @slice_empty_step(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{slice from 0 by 0}}
  %0 = ridge.slice %x dim 0 start 0 step 0 : tensor<4x6xf32> -> tensor<0x6xf32>
  return
}

// -----

func.func @cat_none() {
  // expected-error @+1 {{/inputs: cat takes 1 or more operands, not 0}}
  %0 = ridge.cat dim 0 : () -> tensor<4xf32>
  return
}

// -----

func.func @cat_extent(%x: tensor<4x6xf32>, %y: tensor<4x5xf32>) {
  // expected-error @+1 {{/inputs/1: shapes do not fit for cat along dimension 0: [4, 6], [4, 5]}}
  %0 = ridge.cat %x, %y dim 0 : (tensor<4x6xf32>, tensor<4x5xf32>) -> tensor<8x6xf32>
  return
}

// -----

func.func @cat_rank(%x: tensor<4x6xf32>, %y: tensor<6xf32>) {
  // expected-error @+1 {{shapes do not fit for cat}}
  %0 = ridge.cat %x, %y dim 0 : (tensor<4x6xf32>, tensor<6xf32>) -> tensor<5x6xf32>
  return
}

// -----

func.func @cat_dim(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{dimension 2 is out of range for rank 2}}
  %0 = ridge.cat %x, %x dim 2 : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<8x6xf32>
  return
}

// -----

func.func @cat_f8(%x: tensor<4x6xf32>, %y: tensor<4x6xf8E4M3FN>) {
  // expected-error @+1 {{an f8 type does not promote}}
  %0 = ridge.cat %x, %y dim 0 : (tensor<4x6xf32>, tensor<4x6xf8E4M3FN>) -> tensor<8x6xf32>
  return
}

// -----

func.func @cat_result(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{result 0 must be 'tensor<8x6xf32>'}}
  %0 = ridge.cat %x, %x dim 0 : (tensor<4x6xf32>, tensor<4x6xf32>) -> tensor<4x12xf32>
  return
}

// -----

func.func @pad_length(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{/attrs/low: 'low' has 1 entries for rank 2}}
  %0 = ridge.pad %x low [0] high [0, 0] value(0) : tensor<4x6xf32> -> tensor<4x6xf32>
  return
}

// -----

func.func @pad_negative(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{/attrs/high: padding -1 is negative}}
  %0 = ridge.pad %x low [0, 0] high [0, -1] value(0) : tensor<4x6xf32> -> tensor<4x5xf32>
  return
}

// -----

func.func @pad_value(%i: tensor<4xi8>) {
  // expected-error @+1 {{/attrs/value: }}
  %0 = ridge.pad %i low [1] high [0] value(200) : tensor<4xi8> -> tensor<5xi8>
  return
}

// -----

func.func @pad_shape(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{result 0 must be 'tensor<5x7xf32>'}}
  %0 = ridge.pad %x low [1, 1] high [0, 0] value(0) : tensor<4x6xf32> -> tensor<4x6xf32>
  return
}

// -----

func.func @flip_dim(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{dimension 2 is out of range for rank 2}}
  %0 = ridge.flip %x dims [2] : tensor<4x6xf32> -> tensor<4x6xf32>
  return
}

// -----

func.func @flip_twice(%x: tensor<4x6xf32>) {
  // expected-error @+1 {{dimension 0 is listed twice}}
  %0 = ridge.flip %x dims [0, 0] : tensor<4x6xf32> -> tensor<4x6xf32>
  return
}

// -----

func.func @full_range() {
  // expected-error @+1 {{/attrs/value: }}
  %0 = ridge.full(256) : tensor<4xui8>
  return
}

// -----

func.func @full_fraction() {
  // expected-error @+1 {{/attrs/value: }}
  %0 = ridge.full(0.5) : tensor<4xi32>
  return
}

// -----

func.func @full_string() {
  // expected-error @+1 {{expected a boolean, an i64 or an f64}}
  %0 = ridge.full("x") : tensor<4xi32>
  return
}

// -----

func.func @iota_dim() {
  // expected-error @+1 {{dimension 1 is out of range for rank 1}}
  %0 = ridge.iota dim 1 : tensor<4xi32>
  return
}

// -----

func.func @iota_scalar() {
  // expected-error @+1 {{dimension 0 is out of range for rank 0}}
  %0 = ridge.iota dim 0 : tensor<i32>
  return
}

// -----

func.func @iota_bool() {
  // expected-error @+1 {{/attrs/dtype: iota does not count in bool}}
  %0 = ridge.iota dim 0 : tensor<4xi1>
  return
}

// -----

func.func @too_large() {
  // expected-error @+1 {{too large}}
  %0 = ridge.full(0) : tensor<4294967296x4294967296xf32>
  return
}
