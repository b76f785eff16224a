// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "frontend/cli/CalibrateReport.h"
#include "frontend/cli/Cli.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>

namespace rl::cli {
namespace {

using calibrate::Calibration;
using calibrate::Channel;

constexpr double kPercentiles[] = {50, 99, 99.9, 99.99};

std::string decibels(double value) { return std::isnan(value) ? "-" : std::isinf(value) ? "exact" : fixed(value, 2); }
/// "44.47 dB (+10.03)"
std::string gained(const calibrate::Quality &now, const calibrate::Quality &before) {
  return decibels(now.sqnr()) + " dB (+" + decibels(now.sqnr() - before.sqnr()) + ")";
}
std::string percent(double share) { return number(100 * share) + " %"; }
std::string basis(const Calibration &c) { return c.percentile() < 100 ? number(c.percentile()) + " %" : "amax"; }

std::string scaleText(const Calibration &c) {
  if (!c.isWritten())
    return "dynamic";
  if (c.scale().size() == 1)
    return number(static_cast<double>(c.scale()[0]));
  if (c.scale().empty())
    return "none";
  const auto [least, most] = std::minmax_element(c.scale().begin(), c.scale().end());
  return number(static_cast<double>(*least)) + " to " + number(static_cast<double>(*most));
}

/// Columns as wide as their widest cell; the first `left` to the left, the others to the right.
std::string tableOf(const std::vector<std::vector<std::string>> &rows, size_t left) {
  std::vector<size_t> width(rows[0].size());
  for (const auto &row : rows)
    for (size_t k = 0; k < row.size(); ++k)
      width[k] = std::max(width[k], row[k].size());
  std::string out;
  for (const auto &row : rows) {
    for (size_t k = 0; k < row.size(); ++k) {
      const std::string space(width[k] - row[k].size(), ' ');
      out += (k ? "  " : "") + (k < left ? row[k] + space : space + row[k]);
    }
    out += "\n";
  }
  return out;
}

/// What a table has no room for, a line each.
std::string remarks(const Calibrated &calibrated) {
  const Calibration &c = calibrated.calibration;
  const calibrate::Site &site = c.site();
  const std::string start = site.output + ": ";
  std::string out;
  if (const auto &m = c.magnitudes(); m.nans() || m.infinite())
    out += start + std::to_string(m.nans()) + " NaN and " + std::to_string(m.infinite()) +
           " infinite values were left out\n";
  if (!site.staysDynamic.empty())
    out += start + "the scale stays dynamic: " + site.staysDynamic + "\n";
  if (const std::vector<Channel> &channels = c.outliers(); !channels.empty()) {
    constexpr size_t kShown = 8;
    out += start + std::to_string(channels.size()) + (channels.size() == 1 ? " outlier channel" : " outlier channels") +
           " along dimension " + std::to_string(site.channelDim) + " (amax, share beyond " +
           number(static_cast<double>(c.threshold())) + "):";
    for (size_t i = 0; i < channels.size() && i < kShown; ++i)
      out += (i ? "; " : " ") + std::to_string(channels[i].index) + " (" +
             number(static_cast<double>(channels[i].amax)) + ", " + percent(channels[i].share) + ")";
    if (channels.size() > kShown)
      out += " and " + std::to_string(channels.size() - kShown) + " more";
    out += "\n";
  }
  if (c.proposal())
    out += start + "proposed: granularity " + str(c.proposal()->grouping) + ", SQNR " +
           gained(c.proposal()->quality, c.quality()) +
           (site.keepsGrouping.empty() ? "" : "; to be written by hand: " + site.keepsGrouping) + "\n";
  if (c.unrefined())
    out += start + "granularity " + str(c.unrefined()->grouping) + " became " + str(site.grouping) + ", SQNR " +
           gained(c.quality(), c.unrefined()->quality) + "\n";
  return out;
}

nlohmann::ordered_json finiteOrNull(double value) {
  return std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
}

void addGrouping(nlohmann::ordered_json &j, const calibrate::Grouping &g) {
  const char *const names[] = {"tensor", "axis", "token", "block"};
  j["granularity"] = names[static_cast<size_t>(g.granularity)];
  if (g.granularity == Granularity::Axis)
    j["axis"] = g.axis;
  if (g.granularity == Granularity::Block)
    j["block"] = {g.block[0], g.block[1]};
}

nlohmann::ordered_json jsonOf(const Calibrated &calibrated) {
  const Calibration &c = calibrated.calibration;
  const calibrate::Site &site = c.site();
  nlohmann::ordered_json j;
  j["tensor"] = site.tensor;
  j["output"] = site.output;
  j["pointer"] = "/nodes/" + std::to_string(site.node);
  j["dtype"] = dtypeName(site.dtype);
  addGrouping(j, site.grouping);
  if (c.unrefined()) {
    nlohmann::ordered_json was;
    addGrouping(was, c.unrefined()->grouping);
    was["sqnr_db"] = finiteOrNull(c.unrefined()->quality.sqnr());
    j["before"] = was;
  }
  j["values"] = c.magnitudes().finite();
  j["nan"] = c.magnitudes().nans();
  j["infinite"] = c.magnitudes().infinite();
  j["amax"] = c.magnitudes().amax();
  j["percentiles"] = nlohmann::ordered_json::object();
  for (double p : kPercentiles)
    j["percentiles"][number(p)] = c.magnitudes().percentile(p);
  j["scale"] = nullptr;
  if (c.isWritten()) {
    j["scale"] = c.scale();
    j["scale_percentile"] = c.percentile();
  } else {
    j["dynamic"] = site.staysDynamic;
  }
  if (!calibrated.parameter.empty())
    j["parameter"] = calibrated.parameter;
  j["clipped"] = c.quality().clippedShare();
  j["sqnr_db"] = finiteOrNull(c.quality().sqnr());
  j["channel_dim"] = site.channelDim < 0 ? nlohmann::ordered_json(nullptr) : nlohmann::ordered_json(site.channelDim);
  j["outlier_channels"] = nlohmann::ordered_json::array();
  for (const Channel &channel : c.outliers())
    j["outlier_channels"].push_back({{"index", channel.index}, {"beyond", channel.share}, {"amax", channel.amax}});
  j["proposal"] = nullptr;
  if (c.proposal()) {
    nlohmann::ordered_json proposal;
    addGrouping(proposal, c.proposal()->grouping);
    proposal["sqnr_db"] = finiteOrNull(c.proposal()->quality.sqnr());
    j["proposal"] = proposal;
  }
  return j;
}

bool needsScales(const std::vector<Calibrated> &all) {
  return std::any_of(all.begin(), all.end(), [](const Calibrated &c) { return !c.parameter.empty(); });
}

} // namespace

static std::string precisionText(const CalibratedPrecision &p) {
  std::string out = "precision " + p.mode + ", tolerance " + number(p.tolerance) + ", " + std::to_string(p.rounds) +
                    (p.rounds == 1 ? " round: " : " rounds: ") + fixed(p.seconds * 1e6, 1) +
                    " us predicted for what is decided about, " + fixed(p.secondsKept * 1e6, 1) +
                    " with the types of the file\n";
  std::vector<std::vector<std::string>> rows{{"output", "error measured", "estimated without samples", "observed"}};
  for (const CalibratedPrecision::Output &o : p.outputs)
    rows.push_back({o.name, number(o.measured), number(o.estimated), number(o.observed)});
  out += tableOf(rows, 1);
  if (!p.within)
    out += "no types were found with which every output's measured error is within the tolerance\n";
  return out;
}

std::string reportText(const ReportHeader &header, const std::vector<Calibrated> &all) {
  std::string out =
      "graph " + header.graph + " on " + header.target.name +
      (header.target.arch.empty() ? "" : " (" + header.target.arch + ")") + ": " +
      (all.empty() ? std::string()
                   : std::to_string(all.size()) + (all.size() == 1 ? " quantised tensor, " : " quantised tensors, ")) +
      std::to_string(header.samples) + (header.samples == 1 ? " sample\n" : " samples\n");
  std::vector<std::vector<std::string>> rows{
      {"tensor", "node", "type", "granularity", "amax", "99.9 %", "99.99 %", "scale", "of", "clipped", "SQNR dB"}};
  std::string lines;
  for (const Calibrated &calibrated : all) {
    const Calibration &c = calibrated.calibration;
    const calibrate::Magnitudes &m = c.magnitudes();
    rows.push_back({c.site().tensor, c.site().output, dtypeName(c.site().dtype), str(c.site().grouping),
                    number(static_cast<double>(m.amax())), number(static_cast<double>(m.percentile(99.9))),
                    number(static_cast<double>(m.percentile(99.99))), scaleText(c), c.isWritten() ? basis(c) : "-",
                    percent(c.quality().clippedShare()), decibels(c.quality().sqnr())});
    lines += remarks(calibrated);
  }
  if (!all.empty())
    out += tableOf(rows, 4) + lines;
  if (header.precision)
    out += precisionText(*header.precision);
  if (!header.output.empty())
    out += "written: " + header.output + (needsScales(all) ? " and, for --params, " + header.scales : "") + "\n";
  return out;
}

std::string reportJson(const ReportHeader &header, const std::vector<Calibrated> &all) {
  nlohmann::ordered_json j;
  j["graph"] = header.graph;
  j["target"] = header.target.name;
  j["arch"] = header.target.arch;
  j["samples"] = header.samples;
  j["tensors"] = nlohmann::ordered_json::array();
  for (const Calibrated &c : all)
    j["tensors"].push_back(jsonOf(c));
  if (header.precision) {
    const CalibratedPrecision &p = *header.precision;
    nlohmann::ordered_json outputs = nlohmann::ordered_json::array();
    for (const CalibratedPrecision::Output &o : p.outputs)
      outputs.push_back(
          {{"name", o.name}, {"measured", o.measured}, {"estimated", o.estimated}, {"observed", o.observed}});
    j["precision"] = {{"mode", p.mode},
                      {"tolerance", p.tolerance},
                      {"within", p.within},
                      {"rounds", p.rounds},
                      {"predicted_us", p.seconds * 1e6},
                      {"predicted_kept_us", p.secondsKept * 1e6},
                      {"outputs", std::move(outputs)}};
  }
  if (!header.output.empty()) {
    j["output"] = header.output;
    j["scales"] = needsScales(all) ? nlohmann::ordered_json(header.scales) : nlohmann::ordered_json(nullptr);
  }
  return j.dump(1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

} // namespace rl::cli
