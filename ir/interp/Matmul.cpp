// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products of floats (accumulated in f64, rounded once) and of integers (exact, wrapped to the result's type).
#include "ir/interp/Convert.h"
#include "ir/interp/Tensor.h"

namespace rl::interp {
namespace {

/// An operand as a batch of matrices: its element (row, column) of batch b is at b * rows * columns + row * stepRow +
/// column * stepColumn. A vector is a row on the left and a column on the right, as NumPy has it.
struct Matrices {
  std::vector<int64_t> batch;
  int64_t rows = 1, columns = 1, stepRow = 1, stepColumn = 1;

  Matrices(const std::vector<int64_t> &shape, bool transpose, bool left) {
    const size_t rank = shape.size();
    if (rank == 1) {
      (left ? columns : rows) = shape[0];
      return;
    }
    batch.assign(shape.begin(), shape.end() - 2);
    rows = shape[rank - 2], columns = shape[rank - 1];
    stepRow = columns;
    if (transpose) {
      std::swap(rows, columns);
      std::swap(stepRow, stepColumn);
    }
  }
};

/// The common shape of two lists of batch extents.
std::vector<int64_t> broadcast(const std::vector<int64_t> &a, const std::vector<int64_t> &b) {
  std::vector<int64_t> out(std::max(a.size(), b.size()));
  for (size_t d = 0; d < out.size(); ++d) {
    int64_t ea = d < a.size() ? a[a.size() - 1 - d] : 1, eb = d < b.size() ? b[b.size() - 1 - d] : 1;
    out[out.size() - 1 - d] = ea == 1 ? eb : ea;
  }
  return out;
}

/// Calls `product(a, b, y)` with the element offsets of each batch's matrices.
template <class Product> void forEachBatch(const Matrices &a, const Matrices &b, Product product) {
  std::vector<int64_t> offsetA, offsetB;
  batchOffsets(broadcast(a.batch, b.batch), a.batch, b.batch, offsetA, offsetB);
  for (size_t k = 0; k < offsetA.size(); ++k)
    product(offsetA[k] * a.rows * a.columns, offsetB[k] * b.rows * b.columns,
            static_cast<int64_t>(k) * a.rows * b.columns);
}

void multiplyFloats(Call &c, const Matrices &a, const Matrices &b, const float *bias) {
  std::vector<float> scratchA, scratchB;
  const std::vector<float> &va = asFloats(*c.in[0], scratchA), &vb = asFloats(*c.in[1], scratchB);
  Tensor &y = c.out[0];
  forEachBatch(a, b, [&](int64_t offsetA, int64_t offsetB, int64_t offsetY) {
    multiply(
        a.rows, b.columns, a.columns,
        [&](int64_t m, int64_t k) { return va[static_cast<size_t>(offsetA + m * a.stepRow + k * a.stepColumn)]; },
        [&](int64_t k, int64_t n) { return vb[static_cast<size_t>(offsetB + k * b.stepRow + n * b.stepColumn)]; },
        [&](int64_t m, int64_t n, double sum) {
          float result = static_cast<float>(bias ? sum + bias[n] : sum);
          size_t at = static_cast<size_t>(offsetY + m * b.columns + n);
          if (isArithmeticFloat(y.dtype))
            y.f[at] = result;
          else if (isF8(y.dtype))
            y.codes[at] = encodeF8(y.dtype, result);
          else
            y.i[at] = truncateTo(y.dtype, result);
        });
  });
}

void multiplyIntegers(Call &c, const Matrices &a, const Matrices &b, const int64_t *bias) {
  const std::vector<int64_t> &va = c.in[0]->i, &vb = c.in[1]->i;
  Tensor &y = c.out[0];
  // i8 products sum exactly in i32's range of K, and i32 wraps beyond it; other output types are made from the i32.
  const bool bytes = c.in[0]->dtype != DType::I32 && c.in[0]->dtype != DType::I64 && c.in[1]->dtype != DType::I32 &&
                     c.in[1]->dtype != DType::I64;
  auto store = [&](size_t at, uint64_t sum) {
    int64_t value = static_cast<int64_t>(sum);
    if (y.dtype != DType::I64 && bytes)
      value = wrapTo(DType::I32, value);
    if (isArithmeticFloat(y.dtype)) {
      y.f[at] = static_cast<float>(value);
    } else if (isF8(y.dtype)) {
      y.codes[at] = encodeF8(y.dtype, static_cast<float>(value));
    } else {
      y.i[at] = wrapTo(y.dtype, value);
    }
  };
  forEachBatch(a, b, [&](int64_t offsetA, int64_t offsetB, int64_t offsetY) {
    if (bytes) // sums of products of 8-bit numbers are exact in f64 for every K that fits in memory
      return multiply(
          a.rows, b.columns, a.columns,
          [&](int64_t m, int64_t k) {
            return static_cast<double>(va[static_cast<size_t>(offsetA + m * a.stepRow + k * a.stepColumn)]);
          },
          [&](int64_t k, int64_t n) {
            return static_cast<double>(vb[static_cast<size_t>(offsetB + k * b.stepRow + n * b.stepColumn)]);
          },
          [&](int64_t m, int64_t n, double sum) {
            store(static_cast<size_t>(offsetY + m * b.columns + n),
                  static_cast<uint64_t>(static_cast<int64_t>(sum)) + (bias ? static_cast<uint64_t>(bias[n]) : 0));
          });
    for (int64_t m = 0; m < a.rows; ++m)
      for (int64_t n = 0; n < b.columns; ++n) {
        uint64_t sum = bias ? static_cast<uint64_t>(bias[n]) : 0;
        for (int64_t k = 0; k < a.columns; ++k)
          sum += static_cast<uint64_t>(va[static_cast<size_t>(offsetA + m * a.stepRow + k * a.stepColumn)]) *
                 static_cast<uint64_t>(vb[static_cast<size_t>(offsetB + k * b.stepRow + n * b.stepColumn)]);
        store(static_cast<size_t>(offsetY + m * b.columns + n), sum);
      }
  });
}

} // namespace

Status evalMatmul(Call &c) {
  const Attrs &attrs = c.attrs();
  const bool linear = c.node.op == OpKind::Linear;
  Matrices a(c.in[0]->shape, !linear && attrs.transposeA, true);
  Matrices b(c.in[1]->shape, linear || attrs.transposeB, false);
  if (linear) { // x of any rank is one matrix of rows
    for (int64_t e : a.batch)
      a.rows *= e;
    a.batch.clear();
  }
  if (a.columns != b.rows)
    return c.error("inner extents differ: " + str(c.in[0]->shape) + ", " + str(c.in[1]->shape));
  const Tensor *bias = linear && attrs.hasBias ? c.in[2] : nullptr;
  if (!isFloat(c.in[0]->dtype) && !isFloat(c.in[1]->dtype) && (!bias || !isFloat(bias->dtype)))
    return multiplyIntegers(c, a, b, bias ? bias->i.data() : nullptr), Status();
  std::vector<float> scratch;
  multiplyFloats(c, a, b, bias ? asFloats(*bias, scratch).data() : nullptr);
  return {};
}

} // namespace rl::interp
