// RUN: ridge-opt %s -split-input-file -verify-diagnostics
// RUN: not ridge-opt %s -split-input-file 2>&1 | FileCheck %s
//
// Ops in generic form that lack what the custom form cannot leave out: refused, never a crash, also while they are printed
// in the diagnostic.
//
// CHECK-COUNT-11: note: see current operation:

func.func @map_no_result(%x: tensor<4xf32>) {
  // expected-error @+1 {{'ridge.map' op requires one result}}
  "ridge.map"(%x) <{fn = #ridge<map_fn exp>}> {ridge.name = "a"} : (tensor<4xf32>) -> ()
  return
}

// -----

func.func @map_no_function(%x: tensor<4xf32>) {
  // expected-error @+1 {{'ridge.map' op requires attribute 'fn'}}
  %0 = "ridge.map"(%x) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @literal_no_value() {
  // expected-error @+1 {{'ridge.literal' op requires attribute 'value'}}
  %0 = "ridge.literal"() : () -> tensor<f32>
  return
}

// -----

func.func @literal_no_result() {
  // expected-error @+1 {{'ridge.literal' op requires one result}}
  "ridge.literal"() <{value = 1.0 : f64}> : () -> ()
  return
}

// -----

func.func @quantize_one_result(%x: tensor<4xf32>) {
  // expected-error @+1 {{'ridge.quantize' op expected 2 or more results}}
  %0 = "ridge.quantize"(%x) <{granularity = #ridge.granularity<tensor>}> {ridge.name = "q"} : (tensor<4xf32>) -> tensor<4xi8>
  return
}

// -----

func.func @slice_no_step(%x: tensor<4xf32>) {
  // expected-error @+1 {{'ridge.slice' op requires attribute 'step'}}
  %0 = "ridge.slice"(%x) <{dim = 0 : i64, start = 0 : i64}> : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @attribute_type(%x: tensor<4xf32>) {
  // expected-error @+1 {{attribute 'dim' failed to satisfy constraint: 64-bit signless integer attribute}}
  %0 = "ridge.softmax"(%x) <{dim = 0 : i32}> : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @group_no_block(%x: tensor<4xf32>) {
  // expected-error @+1 {{region with 1 blocks}}
  %0 = "ridge.group"(%x) <{kind = "pointwise"}> ({}) : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @group_no_kind(%x: tensor<4xf32>) {
  // expected-error @+1 {{'ridge.group' op requires attribute 'kind'}}
  "ridge.group"(%x) ({
  ^bb0(%a: tensor<4xf32>):
    "ridge.yield"() : () -> ()
  }) : (tensor<4xf32>) -> ()
  return
}

// -----

func.func @group_more_arguments(%x: tensor<4xf32>) {
  // expected-error @+1 {{body arguments must have the types of the operands}}
  "ridge.group"(%x) <{kind = "pointwise"}> ({
  ^bb0(%a: tensor<4xf32>, %b: tensor<4xf32>):
    "ridge.yield"() : () -> ()
  }) : (tensor<4xf32>) -> ()
  return
}

// -----

func.func @group_why(%x: tensor<4xf32>) {
  // expected-error @+1 {{attribute 'why' failed to satisfy constraint: string array attribute}}
  "ridge.group"(%x) <{kind = "pointwise", why = [1]}> ({
  ^bb0(%a: tensor<4xf32>):
    "ridge.yield"() : () -> ()
  }) : (tensor<4xf32>) -> ()
  return
}
