// RUN: ridge-opt %s -split-input-file -verify-diagnostics | FileCheck %s
//
// The dialect's attributes on functions and ops.

// CHECK: func.func @good(%arg0: tensor<4xf32> {ridge.name = "x"}, %arg1: tensor<4xf32> {ridge.name = "w", ridge.parameter})
// CHECK-SAME: -> (tensor<4xf32> {ridge.name = "y"}) attributes {ridge.strict} {
func.func @good(%x: tensor<4xf32> {ridge.name = "x"}, %w: tensor<4xf32> {ridge.name = "w", ridge.parameter})
    -> (tensor<4xf32> {ridge.name = "y"}) attributes {ridge.strict} {
  // CHECK: %y = ridge.map add(%arg0, %arg1) {ridge.name = "y", ridge.node = 3 : i64, ridge.precision = bf16, ridge.source = "model.py:7"}
  %0 = ridge.map add(%x, %w) {ridge.name = "y", ridge.node = 3, ridge.source = "model.py:7", ridge.precision = bf16}
      : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}

// -----

// expected-error @+1 {{'ridge.strict' must be a unit attribute}}
func.func @strict_value() attributes {ridge.strict = true} {
  return
}

// -----

func.func @strict_on_op(%x: tensor<4xf32>) {
  // expected-error @+1 {{'ridge.strict' belongs on a function}}
  %0 = ridge.map exp(%x) {ridge.strict} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @node_type(%x: tensor<4xf32>) {
  // expected-error @+1 {{'ridge.node' must be a non-negative i64}}
  %0 = ridge.map exp(%x) {ridge.node = 3 : i32} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @node_negative(%x: tensor<4xf32>) {
  // expected-error @+1 {{'ridge.node' must be a non-negative i64}}
  %0 = ridge.map exp(%x) {ridge.node = -1} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @name_type(%x: tensor<4xf32>) {
  // expected-error @+1 {{'ridge.name' must be a string}}
  %0 = ridge.map exp(%x) {ridge.name = 3} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

func.func @precision_type(%x: tensor<4xf32>) {
  // expected-error @+1 {{'ridge.precision' must be an element type of the graph format}}
  %0 = ridge.map exp(%x) {ridge.precision = f64} : (tensor<4xf32>) -> tensor<4xf32>
  return
}

// -----

// expected-error @+1 {{'ridge.name' must be a string}}
func.func @argument_name(%x: tensor<4xf32> {ridge.name = 1}) {
  return
}

// -----

// expected-error @+1 {{'ridge.parameter' must be a unit attribute}}
func.func @argument_parameter(%x: tensor<4xf32> {ridge.parameter = false}) {
  return
}

// -----

// expected-error @+1 {{unknown argument attribute 'ridge.weight'}}
func.func @argument_unknown(%x: tensor<4xf32> {ridge.weight}) {
  return
}

// -----

// expected-error @+1 {{'ridge.name' must be a string}}
func.func @result_name(%x: tensor<4xf32>) -> (tensor<4xf32> {ridge.name}) {
  return %x : tensor<4xf32>
}

// -----

// expected-error @+1 {{unknown result attribute 'ridge.parameter'}}
func.func @result_unknown(%x: tensor<4xf32>) -> (tensor<4xf32> {ridge.parameter}) {
  return %x : tensor<4xf32>
}
