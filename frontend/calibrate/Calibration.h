// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The scales of one site from samples, which are shown twice: the first time for the range of the values, the second for
// what quantising them with the scales that come into question does. Nothing of a sample is kept.
#pragma once

#include "frontend/calibrate/Magnitudes.h"
#include "frontend/calibrate/Quality.h"
#include "frontend/calibrate/Sites.h"

#include <optional>

namespace rl::calibrate {

/// The percentile that stands beside the amax where none is asked for, and beyond which a value is an outlier.
inline constexpr double kPercentile = 99.99;
/// A channel is an outlier where more than this share of its values, and more than so many, are beyond that percentile (their
/// share over the whole tensor is a tenth of that), and its amax is twice the median channel's, so that neither evenly
/// spread outliers nor equal samples make a channel one. Among few channels, where the percentile lies within the outlier
/// itself: where its amax is 8 times the median channel's.
inline constexpr double kOutlierShare = 1e-3;
inline constexpr int64_t kOutlierValues = 4;
inline constexpr float kOutlierAmax = 2, kOutlierAmaxAlone = 8;
/// Finer scales are proposed where they gain as much in dB (a bit is 6.02 dB); with outlier channels, or that share of the tensor clipped, for less.
inline constexpr double kGain = 6, kGainWithOutliers = 1;

struct Channel {
  int64_t index = 0;
  double share = 0; ///< of its finite values that are beyond the percentile
  float amax = 0;
};

struct Proposal {
  Grouping grouping;
  std::vector<float> scale; ///< empty: dynamic
  Quality quality;
};

class Calibration {
public:
  /// `percentile`: what a scale for a whole tensor is made for, 100 the amax. None: the amax or kPercentile, whichever gives
  /// the higher SQNR.
  Calibration(Site site, std::optional<double> percentile);

  void first(const float *x, const std::vector<int64_t> &shape);
  void endFirst();
  void second(const float *x, const std::vector<int64_t> &shape);
  void endSecond();
  /// Takes what is proposed, if something is and the graph can be written with it.
  void refine();

  const Site &site() const { return of; }
  const Magnitudes &magnitudes() const { return values; }
  bool isWritten() const { return of.staysDynamic.empty(); }
  const std::vector<float> &scale() const { return chosen; } ///< to be written; empty where it stays dynamic
  double percentile() const { return used; }                 ///< that the scale was made for
  const Quality &quality() const { return outcome; }         ///< with the chosen scale, or as it stays
  float threshold() const { return beyond; }                 ///< of outliers
  /// By index; none where each channel has a scale.
  const std::vector<Channel> &outliers() const { return outlierChannels; }
  const std::optional<Proposal> &proposal() const { return proposed; } ///< that was not taken
  /// What the site was before `refine` changed it.
  const std::optional<Proposal> &unrefined() const { return before; }

private:
  struct Candidate {
    Grouping grouping;
    double percentile = 100;
    bool dynamic = false;    ///< scales from each sample
    std::vector<float> amax; ///< of each group, over all samples; of one that is not dynamic
    std::vector<float> scale;
    Quality quality;
  };
  Groups groupsOf(const Grouping &, const std::vector<int64_t> &shape) const;
  std::vector<float> scalesFor(const std::vector<float> &amax) const;

  Site of;
  std::optional<double> asked;
  Magnitudes values;
  std::vector<Candidate> choices; ///< for the site as it is
  std::vector<Candidate> finer;
  std::vector<float> channelAmax;
  std::vector<int64_t> channelBeyond, channelValues;
  float beyond = 0;

  std::vector<float> chosen;
  double used = 100;
  Quality outcome;
  std::vector<Channel> outlierChannels;
  std::optional<Proposal> proposed, before;
};

} // namespace rl::calibrate
