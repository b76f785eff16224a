// RUN: ridge-opt %s -split-input-file -verify-diagnostics

func.func @no_kind(%x: tensor<4xf32>) {
  // expected-error @+1 {{'ridge.group' op has no kind}}
  ridge.group "" (%a = %x : tensor<4xf32>) -> () {
    ridge.yield
  }
  return
}

// -----

func.func @kind_missing(%x: tensor<4xf32>) {
  // expected-error @+1 {{expected the group's kind, a string}}
  ridge.group (%a = %x : tensor<4xf32>) -> () {
    ridge.yield
  }
  return
}

// -----

func.func @argument_types(%x: tensor<4xf32>) {
  // expected-error @+1 {{body arguments must have the types of the operands}}
  "ridge.group"(%x) <{kind = "pointwise"}> ({
  ^bb0(%a: tensor<5xf32>):
    "ridge.yield"() : () -> ()
  }) : (tensor<4xf32>) -> ()
  return
}

// -----

func.func @result_types(%x: tensor<4xf32>) {
  %0 = ridge.group "pointwise" (%a = %x : tensor<4xf32>) -> tensor<4xf16> {
    // expected-error @+1 {{must yield values of the group's result types}}
    ridge.yield %a : tensor<4xf32>
  }
  return
}

// -----

func.func @result_count(%x: tensor<4xf32>) {
  %0 = ridge.group "pointwise" (%a = %x : tensor<4xf32>) -> tensor<4xf32> {
    // expected-error @+1 {{must yield values of the group's result types}}
    ridge.yield
  }
  return
}

// -----

func.func @isolated(%x: tensor<4xf32>) {
  // expected-note @+1 {{required by region isolation constraints}}
  %0 = ridge.group "pointwise" () -> tensor<4xf32> {
    // expected-error @+1 {{using value defined outside the region}}
    %1 = ridge.map exp(%x) : (tensor<4xf32>) -> tensor<4xf32>
    ridge.yield %1 : tensor<4xf32>
  }
  return
}

// -----

func.func @nested(%x: tensor<4xf32>) {
  ridge.group "pointwise" (%a = %x : tensor<4xf32>) -> () {
    // expected-error @+1 {{'ridge.group' op cannot be in a group}}
    ridge.group "pointwise" () -> () {
      ridge.yield
    }
    ridge.yield
  }
  return
}

// -----

func.func @foreign_op() {
  ridge.group "pointwise" () -> () {
    // expected-error @+1 {{cannot be in a group}}
    %0 = builtin.unrealized_conversion_cast to tensor<4xf32>
    ridge.yield
  }
  return
}

// -----

func.func @no_yield(%x: tensor<4xf32>) {
  // expected-error @+1 {{body must end in ridge.yield}}
  "ridge.group"(%x) <{kind = "pointwise"}> ({
  ^bb0(%a: tensor<4xf32>):
    %0 = ridge.map exp(%a) : (tensor<4xf32>) -> tensor<4xf32>
  }) : (tensor<4xf32>) -> ()
  return
}

// -----

func.func @yield_outside(%x: tensor<4xf32>) {
  // expected-error @+1 {{'ridge.yield' op expects parent op 'ridge.group'}}
  ridge.yield %x : tensor<4xf32>
}

// -----

func.func @literal_operand() {
  // expected-error @+1 {{is an operand of 'ridge.group', which takes tensors only}}
  %c = ridge.literal 0.5
  ridge.group "pointwise" (%a = %c : tensor<f32>) -> () {
    ridge.yield
  }
  return
}

// -----

func.func @literal_yielded() {
  %0 = ridge.group "pointwise" () -> tensor<f32> {
    // expected-error @+1 {{is an operand of 'ridge.yield', which takes tensors only}}
    %c = ridge.literal 0.5
    ridge.yield %c : tensor<f32>
  }
  return
}

// -----

// Ops in a group are held to the same rules.
func.func @body_verified(%x: tensor<4xf32>) {
  ridge.group "pointwise" (%a = %x : tensor<4xf32>) -> () {
    // expected-error @+1 {{result 0 must be 'tensor<4xf32>', not 'tensor<4xf16>'}}
    %0 = ridge.map exp(%a) : (tensor<4xf32>) -> tensor<4xf16>
    ridge.yield
  }
  return
}
