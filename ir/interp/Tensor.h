// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What the interpreter's kernels compute on. Not an interface of the library: only the files of this folder include it.
#pragma once

#include "ir/graph/Graph.h"
#include "ir/interp/Interpreter.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <vector>

namespace rl::interp {

/// A tensor in the form that the kernels compute on. f32, f16 and bf16 are held as f32 (a 16-bit type says then only
/// how the value is to be rounded when it is stored), integers and bool as i64 within the range of their type, f8 as
/// codes: nothing but casts, layout ops, indexing, quantised ops and matmuls reads those.
struct Tensor {
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  std::vector<float> f;
  std::vector<int64_t> i;
  std::vector<uint8_t> codes;

  Tensor() = default;
  explicit Tensor(const TensorType &type) : dtype(type.dtype), shape(type.shape) {
    size_t n = static_cast<size_t>(type.elements());
    if (isArithmeticFloat(dtype))
      f.resize(n);
    else if (isF8(dtype))
      codes.resize(n);
    else
      i.resize(n);
  }
  int64_t size() const {
    int64_t n = 1;
    for (int64_t e : shape)
      n *= e;
    return n;
  }
  int64_t rank() const { return static_cast<int64_t>(shape.size()); }
};

/// The errors that a nudged run adds at a node (Intermediates::Nudged), in units of the largest that is to be expected of one cause.
struct Nudges {
  static constexpr double kShare = 0x1p-22, kOrder = 0x1p-17;
  uint64_t number = 0; ///< of the run
  NodeId node = 0;

  /// Of the sum of the magnitudes of n terms.
  static double ofSum(double n) { return std::min(kShare, kOrder / std::sqrt(std::max(1.0, n))); }
  /// Of a mean of n terms of one sign, whose sum's roundings may all go one way: half of one each, in lanes of eight, and no more than those of
  /// sums in parts.
  static double ofMean(double n) { return std::clamp(n * 0x1p-28, kShare, 0x1p-18); }
  /// Half of a place of a 16-bit float, a few roundings of another.
  static double ofValue(DType t, double v) {
    if (t == DType::F32 || v == 0 || !std::isfinite(v))
      return std::fabs(v) * kShare;
    return t == DType::F16 ? std::ldexp(1.0, std::max(std::ilogb(v), -14) - 11)
                           : std::ldexp(1.0, std::max(std::ilogb(v), -126) - 8);
  }
  /// `cause`: of several errors of an element, which.
  double at(size_t element, uint64_t cause = 0) const {
    if (number == 0)
      return element % 2 ? 1 : -1;
    const uint64_t z = bits(number % 4 == 2 ? 0 : element, cause); // alike, as where all rows hold the same
    const double size = 0.5 + static_cast<double>(z >> 11) * 0x1p-54;
    return z & 1 ? size : -size;
  }
  /// 0 to 3: whether what may overflow in some order does, and how.
  uint64_t order() const { return bits(0, 7) % 4; }

private:
  uint64_t bits(size_t element, uint64_t cause) const { // SplitMix64's finaliser
    uint64_t z = (number * 8 + cause) * 0x9e3779b97f4a7c15u + node * 0xd1342543de82ef95u + element;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
  }
};

/// One node while it is evaluated. `in` has a tensor for each operand, literals as tensors of rank 0 (f32, i64 or
/// bool); `out` has a tensor of the right type and shape, zeroed, for each result.
struct Call {
  const Graph &graph;
  NodeId id;
  const Node &node;
  std::vector<const Tensor *> in;
  std::vector<Tensor> out;
  const Nudges *nudges = nullptr; ///< of a nudged run: for errors that the result does not show

  const Attrs &attrs() const { return node.attrs; }
  /// An error of the data at this node; the message names the node.
  Error error(const std::string &message) const { return invalid(node.pointer(), graph.describe(id) + ": " + message); }
};

// The families of ops, one file each.
Status evalUnary(Call &);        // Unary.cpp: all but cast and clamp
Status evalCast(Call &);         // Unary.cpp
Status evalClamp(Call &);        // Binary.cpp
Status evalBinary(Call &);       // Binary.cpp
Status evalWhere(Call &);        // Binary.cpp
Status evalLayout(Call &);       // Layout.cpp: shape and creation ops
Status evalReduction(Call &);    // Reduce.cpp
Status evalNorm(Call &);         // Norm.cpp
Status evalMatmul(Call &);       // Matmul.cpp: matmul and linear
Status evalIndexing(Call &);     // Indexing.cpp
Status evalAttention(Call &);    // Attention.cpp
Status evalLoss(Call &);         // Attention.cpp
Status evalQuant(Call &);        // Quant.cpp: quantize, dequantize, fake_quantize
Status evalScaledMatmul(Call &); // Quant.cpp

/// `value` within the range of an integer type, wrapped around; for bool whether it is not zero.
int64_t wrapTo(DType, int64_t value);
/// A float to an integer type: towards zero, saturating, NaN to 0; for bool whether it is not zero.
int64_t truncateTo(DType, float value);
/// The f32 nearest to `value` that the type holds.
float roundTo(DType, float value);
void roundAll(std::vector<float> &, DType);
float decodeF8(DType, uint8_t code);
uint8_t encodeF8(DType, float value, bool saturate = true);

/// The elements as f32 or as i64 (floats truncated); a view of `t` where it holds them so, else `scratch`.
const std::vector<float> &asFloats(const Tensor &t, std::vector<float> &scratch);
const std::vector<int64_t> &asIntegers(const Tensor &t, std::vector<int64_t> &scratch);
/// An attribute as an element of an integer type: wrapped, or truncated where it is written as a float.
int64_t scalarInteger(DType, const Scalar &);
/// An attribute as an f32, which is the precision that scalars keep beside tensors of any type.
float scalarFloat(const Scalar &);

/// Row-major strides, in elements.
std::vector<int64_t> stridesOf(const std::vector<int64_t> &shape);
/// Strides that read a tensor of `shape` as if it were broadcast to `to` (0 along what is repeated).
std::vector<int64_t> broadcastStrides(const std::vector<int64_t> &shape, const std::vector<int64_t> &to);

/// Visits the elements of `shape` in row-major order, a row at a time: `row(offset, n, stride)`, where `offset[k]` is
/// where operand k's row starts and `stride[k]` its step. Extents over which all operands run on evenly are merged, so
/// that rows are long. K operands, each with one stride per extent.
template <size_t K, class Row>
void forEachRow(const std::vector<int64_t> &shape, const std::vector<int64_t> (&strides)[K], Row row) {
  std::vector<int64_t> extents;
  std::vector<int64_t> steps[K];
  for (size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] == 0)
      return;
    if (shape[d] == 1)
      continue;
    bool merge = !extents.empty();
    for (size_t k = 0; k < K && merge; ++k)
      merge = steps[k].back() == strides[k][d] * shape[d];
    if (merge) {
      extents.back() *= shape[d];
      for (size_t k = 0; k < K; ++k)
        steps[k].back() = strides[k][d];
      continue;
    }
    extents.push_back(shape[d]);
    for (size_t k = 0; k < K; ++k)
      steps[k].push_back(strides[k][d]);
  }
  int64_t offset[K] = {}, step[K] = {};
  if (extents.empty()) {
    row(offset, int64_t{1}, step);
    return;
  }
  size_t last = extents.size() - 1;
  for (size_t k = 0; k < K; ++k)
    step[k] = steps[k][last];
  std::vector<int64_t> index(extents.size(), 0);
  while (true) {
    row(offset, extents[last], step);
    size_t d = last;
    while (d > 0) {
      --d;
      for (size_t k = 0; k < K; ++k)
        offset[k] += steps[k][d];
      if (++index[d] < extents[d])
        break;
      for (size_t k = 0; k < K; ++k)
        offset[k] -= steps[k][d] * extents[d];
      index[d] = 0;
      if (d == 0)
        return;
    }
    if (last == 0)
      return;
  }
}

/// Calls `f` with the vector that holds the elements of every given tensor of the same type: `f(a.f, b.f)` and so on.
template <class F> auto withElements(Tensor &a, const Tensor &b, F f) {
  if (isArithmeticFloat(a.dtype))
    return f(a.f, b.f);
  if (isF8(a.dtype))
    return f(a.codes, b.codes);
  return f(a.i, b.i);
}

inline constexpr int64_t kTileRows = 4, kTileColumns = 16;
/// sum[r][n] = sum over k of a[r * K + k] * b[k * kTileColumns + n], each in ascending k.
void multiplyTile(const double *a, const double *b, int64_t K, double (&sum)[kTileRows][kTileColumns]);

/// C[m, n] = sum over k of A[m, k] * B[k, n], in f64, each sum in ascending k. `loadA(m, k)` and `loadB(k, n)` give
/// doubles, `store(m, n, sum)` takes a result. The product of two f32 is exact in f64.
template <class LoadA, class LoadB, class Store>
void multiply(int64_t M, int64_t N, int64_t K, LoadA loadA, LoadB loadB, Store store) {
  constexpr int64_t kBlock = 256; // rows of A that are converted to f64 at a time
  std::vector<double> a, b(static_cast<size_t>(K) * kTileColumns);
  for (int64_t m0 = 0; m0 < M; m0 += kBlock) {
    int64_t rows = std::min(kBlock, M - m0), padded = (rows + kTileRows - 1) / kTileRows * kTileRows;
    a.assign(static_cast<size_t>(padded * K), 0);
    for (int64_t m = 0; m < rows; ++m)
      for (int64_t k = 0; k < K; ++k)
        a[static_cast<size_t>(m * K + k)] = loadA(m0 + m, k);
    for (int64_t n0 = 0; n0 < N; n0 += kTileColumns) {
      int64_t columns = std::min(kTileColumns, N - n0);
      for (int64_t k = 0; k < K; ++k)
        for (int64_t n = 0; n < columns; ++n)
          b[static_cast<size_t>(k * kTileColumns + n)] = loadB(k, n0 + n);
      for (int64_t m = 0; m < rows; m += kTileRows) {
        double sum[kTileRows][kTileColumns];
        multiplyTile(a.data() + m * K, b.data(), K, sum);
        for (int64_t r = 0; r < std::min(kTileRows, rows - m); ++r)
          for (int64_t n = 0; n < columns; ++n)
            store(m0 + m + r, n0 + n, sum[r][n]);
      }
    }
  }
}

/// The batches of a matrix product: where each batch of the result, in row-major order, finds its matrices among those
/// of `a` and `b` (in matrices, not elements). The arguments are shapes without the two matrix extents.
void batchOffsets(const std::vector<int64_t> &out, const std::vector<int64_t> &a, const std::vector<int64_t> &b,
                  std::vector<int64_t> &offsetA, std::vector<int64_t> &offsetB);

/// A tensor seen around one dimension: element (o, k, i) is at (o * extent + k) * inner + i. Rank 0 counts as [1].
struct Split {
  int64_t outer = 1, extent = 1, inner = 1;
  Split(const std::vector<int64_t> &shape, int64_t dim) {
    for (int64_t d = 0; d < static_cast<int64_t>(shape.size()); ++d)
      (d < dim ? outer : d == dim ? extent : inner) *= shape[static_cast<size_t>(d)];
  }
};

} // namespace rl::interp
