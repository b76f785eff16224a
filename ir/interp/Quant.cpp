// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// quantize, dequantize, fake_quantize, scaled_matmul. Quotients by a scale and products with one are f32, as they are
// on every target; scales are what their type stores, and values are quantised from what their type stores.
//
// Groups with values that are not finite, where the format page is silent: a NaN anywhere makes the scale NaN, and with
// it every element that is read back. An infinity makes an f32 scale infinite: finite values of its group become 0 and
// come back as NaN (0 * inf), so that such a group too is visibly lost rather than silently wrong. f8e8m0 has no
// infinity: the scale of such a group is NaN. A scale that f32 would round to 0 is its least positive value instead,
// since 0 would turn the group's zeros into NaN.
#include "ir/interp/Convert.h"
#include "ir/interp/Tensor.h"

#include <cmath>
#include <limits>

namespace rl::interp {
namespace {

/// Which group, and so which scale, an element of a tensor belongs to: along each extent its index is divided and the
/// quotient counts by a stride of the scales.
struct Groups {
  std::vector<int64_t> shape, divisor, stride;
  int64_t count = 1;

  Groups(const std::vector<int64_t> &shape, Granularity granularity, int64_t axis, const int64_t (&block)[2])
      : shape(shape), divisor(shape.size(), 1), stride(shape.size(), 0) {
    const size_t rank = shape.size();
    std::vector<int64_t> scales;
    std::vector<size_t> along;
    auto counts = [&](size_t d, int64_t size) {
      divisor[d] = size;
      scales.push_back(shape[d] / size + (shape[d] % size != 0));
      along.push_back(d);
    };
    if (granularity == Granularity::Axis) {
      counts(static_cast<size_t>(axis), 1);
    } else if (granularity == Granularity::Token) {
      for (size_t d = 0; d + 1 < rank; ++d)
        counts(d, 1);
    } else if (granularity == Granularity::Block) {
      for (size_t d = 0; d < rank; ++d)
        counts(d, d + 1 == rank ? block[1] : d + 2 == rank ? block[0] : 1);
    }
    std::vector<int64_t> strides = stridesOf(scales);
    for (size_t k = 0; k < along.size(); ++k) {
      stride[along[k]] = strides[k];
      count *= scales[k];
    }
  }

  /// Calls `f(element, group)` for every element in row-major order.
  template <class F> void forEach(F f) const {
    std::vector<int64_t> index(shape.size(), 0);
    int64_t total = 1, columns = shape.empty() ? 1 : shape.back();
    for (int64_t e : shape)
      total *= e;
    const int64_t lastDivisor = shape.empty() ? 1 : divisor.back(), lastStride = shape.empty() ? 0 : stride.back();
    for (int64_t at = 0; at < total; at += columns) {
      int64_t base = 0;
      for (size_t d = 0; d + 1 < shape.size(); ++d)
        base += index[d] / divisor[d] * stride[d];
      for (int64_t j = 0; j < columns; ++j)
        f(static_cast<size_t>(at + j), static_cast<size_t>(base + j / lastDivisor * lastStride));
      for (size_t d = shape.size(); d-- > 0;) {
        if (d + 1 == shape.size())
          continue;
        if (++index[d] < shape[d])
          break;
        index[d] = 0;
      }
    }
  }

  /// The group of the first element along the last two extents' (row, column), in batch `lead` of the others.
  int64_t groupOf(int64_t lead, int64_t row, int64_t column) const {
    const size_t rank = shape.size();
    int64_t group = column / divisor[rank - 1] * stride[rank - 1] + row / divisor[rank - 2] * stride[rank - 2];
    for (size_t d = rank - 2; d-- > 0;) {
      group += lead % shape[d] / divisor[d] * stride[d];
      lead /= shape[d];
    }
    return group;
  }
};

/// Largest magnitude of a quantised type; of i8 symmetric about 0.
float largest(DType dtype) { return dtype == DType::F8E4M3 ? 448.0f : dtype == DType::F8E5M2 ? 57344.0f : 127.0f; }

/// range / steps as the scale type stores it; the range is not negative.
float makeScale(double range, double steps, DType scaleDtype) {
  if (range == 0)
    return 1;
  if (scaleDtype == DType::F8E8M0) {
    if (!std::isfinite(range))
      return std::numeric_limits<float>::quiet_NaN();
    // The least power of two with steps * 2^e >= range, the product being exact in f64.
    int exponent = std::max(std::ilogb(range / steps) - 1, -127);
    while (exponent < 127 && std::ldexp(steps, exponent) < range)
      ++exponent;
    return std::ldexp(1.0f, exponent);
  }
  const float scale = static_cast<float>(range / steps);
  return scale == 0 ? std::numeric_limits<float>::denorm_min() : scale;
}

/// f32 to the nearest integer, half to even; NaN to 0, out of range to the ends of i32.
int64_t nearest(float v) { return truncateTo(DType::I32, std::rint(v)); }

struct Parameters {
  std::vector<float> scale;
  std::vector<int64_t> zeroPoint; ///< of the asymmetric scheme
};

/// The scale (given, or from the data) and the zero point of every group.
Parameters parametersOf(const std::vector<float> &x, const Groups &groups, const Attrs &a, const Tensor *given) {
  Parameters p;
  const size_t n = static_cast<size_t>(groups.count);
  std::vector<float> least(n, 0), most(n, 0); // 0 is always within the range
  groups.forEach([&](size_t e, size_t g) {
    const float v = x[e];
    if (std::isnan(v))
      least[g] = most[g] = v;
    least[g] = v < least[g] ? v : least[g]; // a NaN stays
    most[g] = v > most[g] ? v : most[g];
  });
  if (given) {
    std::vector<float> scratch;
    p.scale = asFloats(*given, scratch);
    if (p.scale.size() == 1 && n != 1)
      p.scale.assign(n, p.scale[0]);
    if (a.scaleDtype == DType::F8E8M0)
      for (float &s : p.scale)
        s = f8e8m0ToF32(f32ToF8e8m0(s));
  }
  for (size_t g = 0; g < n; ++g) {
    if (!given)
      p.scale.push_back(a.asymmetric
                            ? makeScale(static_cast<double>(most[g]) - static_cast<double>(least[g]), 255, a.scaleDtype)
                            : makeScale(std::isnan(most[g]) ? most[g] : std::fmax(most[g], -least[g]), largest(a.dtype),
                                        a.scaleDtype));
    if (a.asymmetric) // so that the least value becomes -128
      p.zeroPoint.push_back(std::clamp<int64_t>(-128 - nearest(least[g] / p.scale[g]), -128, 127));
  }
  return p;
}

/// An element as its quantised type holds it: an integer, or the value of an f8.
float quantised(float x, float scale, int64_t zeroPoint, const Attrs &a) {
  const float v = x / scale;
  if (a.dtype != DType::I8)
    return decodeF8(a.dtype, encodeF8(a.dtype, v));
  if (a.asymmetric)
    return static_cast<float>(std::clamp<int64_t>(nearest(v) + zeroPoint, -128, 127));
  return static_cast<float>(std::clamp<int64_t>(nearest(v), -127, 127));
}

/// What the operand's type stores of it.
std::vector<float> stored(const Tensor &t) {
  std::vector<float> scratch;
  std::vector<float> values = asFloats(t, scratch);
  roundAll(values, t.dtype);
  return values;
}

void storeScale(Tensor &t, const std::vector<float> &scale) {
  if (t.dtype == DType::F8E8M0)
    for (size_t g = 0; g < scale.size(); ++g)
      t.codes[g] = f32ToF8e8m0(scale[g]);
  else
    t.f = scale;
}

void quantize(Call &c) {
  const Attrs &a = c.attrs();
  const std::vector<float> x = stored(*c.in[0]);
  const Groups groups(c.in[0]->shape, a.granularity, a.axis, a.block);
  const Parameters p = parametersOf(x, groups, a, c.in.size() > 1 ? c.in[1] : nullptr);
  Tensor &q = c.out[0];
  groups.forEach([&](size_t e, size_t g) {
    if (q.dtype == DType::I8)
      q.i[e] = static_cast<int64_t>(quantised(x[e], p.scale[g], a.asymmetric ? p.zeroPoint[g] : 0, a));
    else
      q.codes[e] = encodeF8(q.dtype, x[e] / p.scale[g]);
  });
  storeScale(c.out[1], p.scale);
  if (c.out.size() > 2)
    c.out[2].i = a.asymmetric ? p.zeroPoint : std::vector<int64_t>(p.scale.size(), 0);
}

void fakeQuantize(Call &c) {
  const Attrs &a = c.attrs();
  const std::vector<float> x = stored(*c.in[0]);
  const Groups groups(c.in[0]->shape, a.granularity, a.axis, a.block);
  const Parameters p = parametersOf(x, groups, a, c.in.size() > 1 ? c.in[1] : nullptr);
  groups.forEach([&](size_t e, size_t g) {
    const int64_t zero = a.asymmetric ? p.zeroPoint[g] : 0;
    c.out[0].f[e] = (quantised(x[e], p.scale[g], zero, a) - static_cast<float>(zero)) * p.scale[g];
  });
}

void dequantize(Call &c) {
  const Attrs &a = c.attrs();
  std::vector<float> scratch;
  const std::vector<float> &q = asFloats(*c.in[0], scratch);
  const std::vector<float> scale = stored(*c.in[1]);
  const Groups groups(c.in[0]->shape, a.granularity, a.axis, a.block);
  std::vector<int64_t> zero;
  if (c.in.size() > 2) {
    std::vector<int64_t> integers;
    zero = asIntegers(*c.in[2], integers);
  }
  groups.forEach([&](size_t e, size_t g) {
    float v = q[e];
    if (!zero.empty()) // exact: the difference of an i8 and a zero point is rounded only where the point is beyond 2^24
      v = static_cast<float>(static_cast<int64_t>(q[e]) - zero[zero.size() == 1 ? 0 : g]);
    c.out[0].f[e] = v * scale[scale.size() == 1 ? 0 : g];
  });
}

/// An operand of scaled_matmul as f64: multiplied by its scales where they vary along K (blocks), else as it is stored,
/// with a scale for each of its rows or columns to be applied to the sums.
struct ScaledOperand {
  std::vector<double> values;
  std::vector<float> scale;
  Groups groups;
  bool block;

  ScaledOperand(const Tensor &t, const Tensor &scales, Granularity granularity, int64_t axis, const int64_t (&size)[2])
      : scale(stored(scales)), groups(t.shape, granularity, axis, size), block(granularity == Granularity::Block) {
    if (scale.size() == 1)
      scale.resize(static_cast<size_t>(groups.count), scale[0]);
    std::vector<float> scratch;
    const std::vector<float> &v = asFloats(t, scratch);
    values.assign(v.begin(), v.end());
    if (block)
      groups.forEach([&](size_t e, size_t g) { values[e] *= scale[g]; });
  }
  double outer(int64_t lead, int64_t row, int64_t column) const {
    return block ? 1.0 : scale[static_cast<size_t>(groups.groupOf(lead, row, column))];
  }
};

} // namespace

Status evalQuant(Call &c) {
  switch (c.node.op) {
  case OpKind::Quantize: return quantize(c), Status();
  case OpKind::Dequantize: return dequantize(c), Status();
  default: return fakeQuantize(c), Status();
  }
}

/// a [..., M, K], b [..., K, N] or with transpose_b [..., N, K]. i8 operands sum in i32 (wrapping) before outer scales.
Status evalScaledMatmul(Call &c) {
  const Attrs &at = c.attrs();
  const Tensor &ta = *c.in[0], &tb = *c.in[1];
  Tensor &y = c.out[0];
  const ScaledOperand a(ta, *c.in[2], at.granularityA, at.axisA, at.blockA);
  const ScaledOperand b(tb, *c.in[3], at.granularityB, at.axisB, at.blockB);
  const bool integers = ta.dtype == DType::I8 && tb.dtype == DType::I8 && !a.block && !b.block;
  const size_t ra = ta.shape.size();
  const int64_t M = ta.shape[ra - 2], K = ta.shape[ra - 1], N = y.shape.back();
  const int64_t stepK = at.transposeB ? 1 : N, stepN = at.transposeB ? K : 1;
  std::vector<int64_t> offsetA, offsetB;
  batchOffsets({y.shape.begin(), y.shape.end() - 2}, {ta.shape.begin(), ta.shape.end() - 2},
               {tb.shape.begin(), tb.shape.end() - 2}, offsetA, offsetB);
  for (size_t batch = 0; batch < offsetA.size(); ++batch) {
    const double *pa = a.values.data() + offsetA[batch] * M * K, *pb = b.values.data() + offsetB[batch] * K * N;
    multiply(
        M, N, K, [&](int64_t m, int64_t k) { return pa[m * K + k]; },
        [&](int64_t k, int64_t n) { return pb[k * stepK + n * stepN]; },
        [&](int64_t m, int64_t n, double sum) {
          if (integers)
            sum = static_cast<double>(wrapTo(DType::I32, static_cast<int64_t>(sum)));
          sum *= a.outer(offsetA[batch], m, 0);
          sum *= b.outer(offsetB[batch], at.transposeB ? n : 0, at.transposeB ? 0 : n);
          const float result = static_cast<float>(sum);
          const size_t e = static_cast<size_t>((static_cast<int64_t>(batch) * M + m) * N + n);
          if (isArithmeticFloat(y.dtype))
            y.f[e] = result;
          else
            y.codes[e] = encodeF8(y.dtype, result);
        });
  }
  return {};
}

} // namespace rl::interp
