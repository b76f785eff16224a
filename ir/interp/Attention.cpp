// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// scaled_dot_product_attention and cross_entropy, in f64 throughout, each result rounded once.
#include "ir/interp/Tensor.h"

#include <cmath>
#include <limits>

namespace rl::interp {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<int64_t> batchOf(const std::vector<int64_t> &shape) { return {shape.begin(), shape.end() - 2}; }

/// One query's scores to its weights. A key that a mask excludes has `masked` set: it takes no part at all, whatever
/// its value and its score are. With no key left the weights are all 0; with keys left it is softmax.
void weigh(std::vector<double> &scores, const std::vector<char> &masked) {
  double top = -kInfinity, sum = 0;
  for (size_t s = 0; s < scores.size(); ++s)
    if (!masked[s])
      top = std::isnan(scores[s]) || scores[s] > top ? scores[s] : top;
  for (size_t s = 0; s < scores.size(); ++s) {
    scores[s] = masked[s] ? 0 : std::exp(scores[s] - top);
    sum += scores[s];
  }
  for (size_t s = 0; s < scores.size(); ++s)
    if (!masked[s])
      scores[s] /= sum;
}

/// By what their sums' order and their own roundings bring, which exp makes a share of the weights of: the larger they are, the more.
/// `magnitudes` are of the sums of E terms before the scale, and are cleared; `first` numbers the scores.
void nudgeScores(const Nudges &nudges, std::vector<double> &scores, std::vector<double> &magnitudes, double scale,
                 int64_t E, size_t first) {
  const double share = Nudges::ofSum(static_cast<double>(E));
  for (size_t s = 0; s < scores.size(); ++s) {
    const double by = std::max(magnitudes[s] * std::fabs(scale) * share, std::fabs(scores[s]) * Nudges::kShare);
    if (std::isfinite(by))
      scores[s] += nudges.at(first + s, 1) * by;
    magnitudes[s] = 0;
  }
}

} // namespace

/// q [..., L, E], k [..., S, E], v [..., S, D], mask broadcast to [..., L, S]; result [..., L, D]. `causal` keeps key j
/// for query i where j <= i, counted from the first of each, as PyTorch does where L and S differ.
Status evalAttention(Call &c) {
  const Tensor &q = *c.in[0], &k = *c.in[1], &v = *c.in[2];
  const Tensor *mask = c.in.size() > 3 ? c.in[3] : nullptr;
  Tensor &y = c.out[0];
  const int64_t L = q.shape[q.shape.size() - 2], E = q.shape.back(), S = k.shape[k.shape.size() - 2],
                D = v.shape.back();
  std::vector<float> scratchQ, scratchK, scratchV, scratchM;
  const std::vector<float> &vq = asFloats(q, scratchQ), &vk = asFloats(k, scratchK), &vv = asFloats(v, scratchV);
  const bool keeps = mask && mask->dtype == DType::Bool;
  const float *added = mask && !keeps ? asFloats(*mask, scratchM).data() : nullptr;
  // Heads of no extent have scores of 0, which no scale changes.
  const double scale = c.attrs().scale ? *c.attrs().scale : 1 / std::sqrt(static_cast<double>(std::max<int64_t>(E, 1)));

  const std::vector<int64_t> batch = batchOf(y.shape);
  std::vector<int64_t> offsetQ, offsetK, offsetV, offsetM;
  batchOffsets(batch, batchOf(q.shape), batchOf(k.shape), offsetQ, offsetK);
  std::vector<int64_t> maskShape = batch;
  maskShape.insert(maskShape.end(), {L, S});
  const std::vector<int64_t> maskStrides =
      mask ? broadcastStrides(mask->shape, maskShape) : std::vector<int64_t>(maskShape.size());
  const std::vector<int64_t> vStrides = broadcastStrides(batchOf(v.shape), batch);
  {
    const std::vector<int64_t> strides[2] = {vStrides, {maskStrides.begin(), maskStrides.end() - 2}};
    forEachRow(batch, strides, [&](const int64_t *offset, int64_t n, const int64_t *step) {
      for (int64_t j = 0; j < n; ++j) {
        offsetV.push_back(offset[0] + j * step[0]);
        offsetM.push_back(offset[1] + j * step[1]);
      }
    });
  }
  const int64_t maskRow = maskStrides[maskStrides.size() - 2], maskColumn = maskStrides.back();

  std::vector<double> keys(static_cast<size_t>(E * S)), values(static_cast<size_t>(S * D)); // keys transposed: [E, S]
  std::vector<double> scores(static_cast<size_t>(S)), result(static_cast<size_t>(D));
  std::vector<char> masked(static_cast<size_t>(S));
  std::vector<double> magnitudes(c.nudges ? static_cast<size_t>(S) : 0);
  for (size_t b = 0; b < offsetQ.size(); ++b) {
    const float *pq = vq.data() + offsetQ[b] * L * E, *pk = vk.data() + offsetK[b] * S * E,
                *pv = vv.data() + offsetV[b] * S * D;
    for (int64_t s = 0; s < S; ++s)
      for (int64_t e = 0; e < E; ++e)
        keys[static_cast<size_t>(e * S + s)] = pk[s * E + e];
    std::copy_n(pv, S * D, values.begin());
    for (int64_t l = 0; l < L; ++l) {
      std::fill(scores.begin(), scores.end(), 0.0);
      for (int64_t e = 0; e < E; ++e) {
        const double factor = pq[l * E + e], *column = keys.data() + e * S;
        for (int64_t s = 0; s < S; ++s)
          scores[static_cast<size_t>(s)] += factor * column[s];
        for (int64_t s = 0; c.nudges && s < S; ++s)
          magnitudes[static_cast<size_t>(s)] += std::fabs(factor * column[s]);
      }
      for (int64_t s = 0; s < S; ++s) {
        const int64_t at = offsetM[b] + l * maskRow + s * maskColumn;
        double &score = scores[static_cast<size_t>(s)];
        score *= scale;
        bool out = c.attrs().causal && s > l;
        if (keeps)
          out |= mask->i[static_cast<size_t>(at)] == 0;
        else if (added)
          out |= added[at] == -std::numeric_limits<float>::infinity();
        if (added)
          score += added[at];
        masked[static_cast<size_t>(s)] = out;
      }
      const size_t first = (b * static_cast<size_t>(L) + static_cast<size_t>(l)) * static_cast<size_t>(S);
      if (c.nudges)
        nudgeScores(*c.nudges, scores, magnitudes, scale, E, first);
      weigh(scores, masked);
      if (c.nudges) // as they are stored between the products
        for (size_t s = 0; s < scores.size(); ++s)
          scores[s] += c.nudges->at(first + s, 2) * Nudges::ofValue(y.dtype, scores[s]);
      std::fill(result.begin(), result.end(), 0.0);
      for (int64_t s = 0; s < S; ++s) {
        if (masked[static_cast<size_t>(s)])
          continue;
        const double weight = scores[static_cast<size_t>(s)], *value = values.data() + s * D;
        for (int64_t d = 0; d < D; ++d)
          result[static_cast<size_t>(d)] += weight * value[d];
      }
      float *to = y.f.data() + (static_cast<int64_t>(b) * L + l) * D;
      for (int64_t d = 0; d < D; ++d)
        to[d] = static_cast<float>(result[static_cast<size_t>(d)]);
    }
  }
  return {};
}

/// logits [M, V], targets [M]: logsumexp of the row less the target's logit.
Status evalLoss(Call &c) {
  const Tensor &logits = *c.in[0], &targets = *c.in[1];
  Tensor &y = c.out[0];
  std::vector<float> scratch;
  const std::vector<float> &x = asFloats(logits, scratch);
  const int64_t M = logits.shape[0], V = logits.shape[1];
  for (int64_t m = 0; m < M; ++m) {
    const int64_t target = targets.i[static_cast<size_t>(m)];
    if (target == c.attrs().ignoreIndex)
      continue; // 0
    if (target < 0 || target >= V)
      return c.error("target " + std::to_string(target) + " at position [" + std::to_string(m) +
                     "] is out of range: there are " + std::to_string(V) + " classes");
    const float *row = x.data() + m * V;
    double top = -kInfinity, sum = 0;
    for (int64_t j = 0; j < V; ++j)
      top = std::isnan(row[j]) || row[j] > top ? row[j] : top;
    for (int64_t j = 0; j < V; ++j)
      sum += std::exp(row[j] - top);
    y.f[static_cast<size_t>(m)] = static_cast<float>(top - row[target] + std::log(sum));
  }
  return {};
}

} // namespace rl::interp
