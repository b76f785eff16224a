// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "frontend/calibrate/Calibration.h"

#include <cmath>

namespace rl::calibrate {

Calibration::Calibration(Site site, std::optional<double> percentile)
    : of(std::move(site)), asked(percentile), values(of.from == DType::BF16) {
  Candidate present;
  present.grouping = of.grouping;
  present.dynamic = !isWritten();
  if (of.grouping.granularity == Granularity::Tensor && !present.dynamic) {
    if (asked)
      present.percentile = *asked;
    choices.push_back(present);
    if (!asked) {
      choices.push_back(present);
      choices.back().percentile = kPercentile;
    }
  } else {
    choices.push_back(present);
  }
  for (const Grouping &g : of.finer) {
    Candidate c;
    c.grouping = g;
    c.dynamic = !regrouped(of, g).staysDynamic.empty();
    finer.push_back(c);
  }
}

Groups Calibration::groupsOf(const Grouping &g, const std::vector<int64_t> &shape) const {
  return Groups(shape, g.granularity, g.axis, g.block);
}

std::vector<float> Calibration::scalesFor(const std::vector<float> &amax) const {
  std::vector<float> out;
  for (float range : amax)
    out.push_back(scaleFor(range, of.dtype, of.scaleDtype));
  return out;
}

void Calibration::first(const float *x, const std::vector<int64_t> &shape) {
  size_t elements = 1;
  for (int64_t e : shape)
    elements *= static_cast<size_t>(e);
  values.add(x, elements);
  for (auto *list : {&choices, &finer})
    for (Candidate &c : *list) {
      if (c.dynamic)
        continue;
      const Groups groups = groupsOf(c.grouping, shape);
      c.amax.resize(static_cast<size_t>(groups.count()));
      raise(c.amax, x, groups);
    }
}

void Calibration::endFirst() {
  for (auto *list : {&choices, &finer})
    for (Candidate &c : *list) {
      if (c.percentile < 100)
        c.amax.assign(c.amax.size(), values.percentile(c.percentile));
      c.scale = scalesFor(c.amax);
    }
  beyond = values.percentile(kPercentile);
}

void Calibration::second(const float *x, const std::vector<int64_t> &shape) {
  for (auto *list : {&choices, &finer})
    for (Candidate &c : *list) {
      const Groups groups = groupsOf(c.grouping, shape);
      if (of.asymmetric) {
        add(c.quality, x, groups, affineFor(x, groups, of.scaleDtype));
      } else if (!c.dynamic) {
        add(c.quality, x, groups, c.scale, of.dtype);
      } else {
        std::vector<float> amax(static_cast<size_t>(groups.count()));
        raise(amax, x, groups);
        add(c.quality, x, groups, scalesFor(amax), of.dtype);
      }
    }
  if (of.channelDim < 0 || of.grouping.granularity == Granularity::Axis)
    return;
  const Groups channels = groupsOf({Granularity::Axis, of.channelDim}, shape);
  const auto n = std::max(channelValues.size(), static_cast<size_t>(channels.count())); // the extent may be symbolic
  channelAmax.resize(n);
  channelBeyond.resize(n);
  channelValues.resize(n);
  raise(channelAmax, x, channels);
  channels.runs([&](int64_t begin, int64_t count, int64_t channel, int64_t step) {
    for (int64_t j = 0; j < count; ++j) {
      const float v = std::fabs(x[begin + j]);
      const auto c = static_cast<size_t>(channel + j * step);
      channelBeyond[c] += v > beyond && v < INFINITY;
      channelValues[c] += v < INFINITY;
    }
  });
}

void Calibration::endSecond() {
  const Candidate *best = &choices[0];
  for (const Candidate &c : choices)
    if (c.quality.sqnr() > best->quality.sqnr())
      best = &c;
  outcome = best->quality;
  used = best->percentile;
  chosen = best->scale;
  std::vector<float> sorted = channelAmax;
  std::sort(sorted.begin(), sorted.end());
  const float median = sorted.empty() ? 0 : sorted[(sorted.size() - 1) / 2];
  for (size_t c = 0; c < channelAmax.size(); ++c) {
    if (channelValues[c] == 0)
      continue;
    const double share = static_cast<double>(channelBeyond[c]) / static_cast<double>(channelValues[c]);
    const bool clips = channelBeyond[c] > kOutlierValues && share > kOutlierShare;
    if (channelAmax[c] > (clips ? kOutlierAmax : kOutlierAmaxAlone) * median && (clips || median > 0))
      outlierChannels.push_back({static_cast<int64_t>(c), share, channelAmax[c]});
  }
  const bool lost = !outlierChannels.empty() || outcome.clippedShare() > kOutlierShare;
  double wanted = outcome.sqnr() + (lost ? kGainWithOutliers : kGain);
  for (const Candidate &c : finer)
    if (std::isfinite(outcome.sqnr()) && c.quality.sqnr() >= wanted &&
        (!proposed || c.quality.sqnr() > proposed->quality.sqnr()))
      proposed = Proposal{c.grouping, c.scale, c.quality};
}

void Calibration::refine() {
  if (!proposed || !of.keepsGrouping.empty())
    return;
  before = Proposal{of.grouping, chosen, outcome};
  of = regrouped(of, proposed->grouping);
  chosen = proposed->scale;
  outcome = proposed->quality;
  used = 100;
  proposed.reset();
}

} // namespace rl::calibrate
