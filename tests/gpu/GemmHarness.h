// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products with a few epilogues, each as a package of one kernel: the generated one, or a plain one that computes an
// element a thread, for comparison. For the test of the generated code with ptxas, and for the test on a GPU.
#pragma once

#include "passes/cost/GemmModel.h"
#include "runtime/package/Package.h"

#include <optional>
#include <string>
#include <vector>

namespace rl::gemmtest {

struct GemmCase {
  enum Epilogue : uint8_t {
    Plain,        ///< x
    BiasGelu,     ///< gelu(x + bias[column])
    BiasResidual, ///< x + bias[column] + residual[row, column]
    SwiGlu,       ///< silu(x) * y, two products
    TwoOutputs,   ///< x, and 2 x in f32
    RowScale,     ///< x * scale[batch, row], f32
    OwnLoads,     ///< x * scale[batch, row] + bias[column], f32, where the callback loads for itself
    ToF8,         ///< x, as f8e4m3
  };
  /// What is multiplied with the right operand, where it is computed from the left one.
  enum Left : uint8_t {
    InMemory, ///< a
    Affine,   ///< a * scale[batch, row] + shift[k], of a scale in f32
    FromF32,  ///< a, which is f32
    Gated,    ///< silu(a) * u[row, k]
    Exp,      ///< exp(a): no zero where a is zero
  };
  std::string name;
  std::vector<int64_t> batch;
  int64_t m = 0, n = 0, k = 0;
  Epilogue epilogue = Plain;
  Left left = InMemory; ///< otherwise not beside a residual or scales
  DType type = DType::
      BF16; ///< of the operands, bias, residual and first output (f8 operands: bf16 for the rest; i8: i32, plain alone)
  bool aKMajor = true, bKMajor = true;
  bool bBroadcast = false; ///< one right operand for all of the batch
  bool special = false;    ///< a few NaNs and infinities among the operands
  bool promotes = false;   ///< f8 alone
  /// Of 8 bits: the right operands are these, widened in registers, and the result is computed turned round (WgmmaGemm::turned).
  std::optional<DType> weights;
  int64_t scaleRows =
      0; ///< with promotion: scales of 1 x 128 of A and of so many rows x 128 of B; not beside BiasResidual
  cost::GemmTile tile;

  int products() const { return epilogue == SwiGlu ? 2 : 1; }
  DType narrow() const { return isF8(type) ? DType::BF16 : type; }
  DType output() const {
    if (type == DType::I8)
      return DType::I32;
    if (epilogue == ToF8)
      return DType::F8E4M3;
    return epilogue == RowScale || epilogue == OwnLoads ? DType::F32 : narrow();
  }
  int64_t scalesOfK() const { return (k + 127) / 128; }
  int64_t scalesOfN() const { return (n + scaleRows - 1) / scaleRows; }
  int64_t batches() const;
  double flops() const { return 2.0 * static_cast<double>(batches() * m * n) * static_cast<double>(k) * products(); }
  cost::GemmShape shape() const; ///< with the epilogue's cost
  std::string str() const;
};

/// The tensors, inputs first: a, b..., what the epilogue reads, the outputs.
std::vector<PackageTensor> inputsOf(const GemmCase &);
std::vector<PackageTensor> outputsOf(const GemmCase &);

/// The package for sm_90a, with PTX. Code::Unsupported with the generator's reason.
Result<Package> compileGemm(const GemmCase &, bool reference);

/// Shapes, types, orders and tiles that between them take every path of the generator.
std::vector<GemmCase> gemmCases();

} // namespace rl::gemmtest
