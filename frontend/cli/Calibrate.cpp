// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ridgeline calibrate: runs a graph on samples for the tensors that it quantises, and writes it with the scales that suit
// them.
#include "frontend/calibrate/Calibration.h"
#include "frontend/cli/CalibrateReport.h"
#include "frontend/cli/Samples.h"
#include "frontend/json/JsonReader.h"
#include "ir/interp/Convert.h"

#include <algorithm>
#include <cstring>
#include <filesystem>

namespace rl::cli {
namespace {

using calibrate::Calibration;
using calibrate::Site;

/// Tensors that one graph measures.
struct Round {
  std::vector<std::string> tensors;
  bool constant = false; ///< the same in all samples
};
constexpr int64_t kRoundBytes = int64_t(1) << 30; ///< of a round, unless one tensor alone has more

std::vector<Round> roundsOf(const std::vector<Site> &sites, const Graph &graph) {
  std::vector<Round> rounds;
  for (bool constant : {true, false}) {
    int64_t bytes = 0;
    std::vector<std::string> seen;
    for (const Site &site : sites) {
      if (site.constant != constant || std::find(seen.begin(), seen.end(), site.tensor) != seen.end())
        continue;
      seen.push_back(site.tensor);
      auto value =
          std::find_if(graph.values.begin(), graph.values.end(), [&](const Value &v) { return v.name == site.tensor; });
      if (seen.size() == 1 || bytes + value->type.bytes() > kRoundBytes) {
        rounds.push_back({{}, constant});
        bytes = 0;
      }
      bytes += value->type.bytes();
      rounds.back().tensors.push_back(site.tensor);
    }
  }
  return rounds;
}

std::vector<float> floatsOf(const std::byte *data, const TensorType &type) {
  std::vector<float> out(static_cast<size_t>(type.elements()));
  if (type.dtype == DType::F32) {
    if (!out.empty())
      std::memcpy(out.data(), data, out.size() * sizeof(float));
    return out;
  }
  const auto *halves = reinterpret_cast<const uint16_t *>(data);
  for (size_t i = 0; i < out.size(); ++i)
    out[i] = type.dtype == DType::BF16 ? bf16ToF32(halves[i]) : f16ToF32(halves[i]);
  return out;
}

/// Runs the graph of a round on samples and hands each tensor to `use`.
template <class Use>
Status measure(const Options &options, const Work &work, const Target &target, const Round &round,
               const Samples &samples, Progress &progress, size_t &done, size_t all, Use use) {
  Work measured;
  measured.path = work.path;
  measured.name = work.name;
  measured.spec = calibrate::measuring(work.spec, round.tensors);
  SampleRunner runner(options, measured, target, samples);
  for (const Sample &sample : samples.list()) {
    RL_TRY(runner.run(sample));
    const std::vector<PackageTensor> &tensors = runner.outputs();
    for (size_t i = 0; i < tensors.size(); ++i)
      use(tensors[i].name, floatsOf(runner.output(i), tensors[i].type), tensors[i].type.shape);
    progress.step(++done, all);
    if (round.constant)
      break;
  }
  return {};
}

/// The files that -o names: the graph's, and the scales' that cannot stand in a graph.
struct Outputs {
  std::string graph, scales;
};

Result<Outputs> outputsOf(const Options &options) {
  namespace fs = std::filesystem;
  Outputs out;
  std::error_code ignored;
  out.graph = options.output;
  if (fs::is_symlink(options.output, ignored)) // a link is kept and its target replaced
    if (const fs::path real = fs::canonical(options.output, ignored); !real.empty())
      out.graph = real;
  std::string stem = out.graph;
  if (stem.ends_with(".json"))
    stem.resize(stem.size() - std::strlen(".json"));
  out.scales = stem + ".scales.safetensors";
  for (const std::string &path : {out.graph, out.scales}) {
    RL_TRY(checkWritable(path));
    if (fs::exists(path, ignored) && !fs::is_regular_file(path, ignored))
      return Error{Code::Device, {}, "cannot be written: it is no regular file", path};
  }
  return out;
}

/// Of files that are read.
Status checkKeeps(const Outputs &outputs, const Options &options, const std::vector<std::string> &samples) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  for (const std::string &path : {outputs.graph, outputs.scales})
    for (const std::vector<std::string> &list : {options.params, samples})
      for (const std::string &from : list)
        if (fs::equivalent(path, from, ignored))
          return usageError("-o " + options.output + " would replace " + from + ", which is read here");
  return {};
}

Status writeCalibrated(const Outputs &outputs, GraphSpec spec, std::vector<Calibrated> &all) {
  std::vector<std::vector<uint8_t>> codes;
  std::vector<SafetensorsWrite> scales;
  codes.reserve(all.size());
  for (Calibrated &c : all) {
    const Site &site = c.calibration.site();
    if (c.calibration.unrefined())
      calibrate::writeGrouping(spec, site);
    if (!c.calibration.isWritten())
      continue;
    const std::vector<float> &scale = c.calibration.scale();
    c.parameter = calibrate::writeScale(spec, site, scale);
    if (c.parameter.empty())
      continue;
    SafetensorsWrite write{c.parameter, {site.scaleDtype, site.scaleShape}, scale.data()};
    if (site.scaleDtype == DType::F8E8M0) {
      std::vector<uint8_t> &bytes = codes.emplace_back();
      for (float s : scale)
        bytes.push_back(f32ToF8e8m0(s));
      write.data = bytes.data();
    }
    scales.push_back(write);
  }
  if (Result<Signature> valid = checkSpec(spec); !valid)
    return valid.takeError();
  namespace fs = std::filesystem;
  std::vector<std::pair<std::string, std::string>> files;
  if (!scales.empty()) {
    RL_ASSIGN(std::string bytes, formatSafetensors(scales));
    files.emplace_back(fs::path(outputs.scales).filename(), std::move(bytes));
  }
  files.emplace_back(fs::path(outputs.graph).filename(), printGraph(spec));
  const std::string folder = fs::path(outputs.graph).parent_path();
  return writeFiles(folder.empty() ? "." : folder, files);
}

} // namespace

Status calibrateCommand(const Options &options) {
  std::optional<Outputs> outputs;
  if (!options.output.empty()) {
    RL_ASSIGN(outputs, outputsOf(options));
  }
  RL_ASSIGN(Work work, loadGraph(options));
  RL_ASSIGN(Target target, resolveTarget(options.target));
  RL_TRY(checkRunsHere(target));
  const bool chooses = work.spec.precision.mode != "keep";
  if (!chooses && std::none_of(work.spec.nodes.begin(), work.spec.nodes.end(), [](const NodeSpec &n) {
        return (n.op == "quantize" || n.op == "fake_quantize") && n.inputs.size() == 1 && !n.inputs[0].literal;
      }))
    return invalid("/nodes",
                   "there is nothing to calibrate: no quantize or fake_quantize node without a scale, and the "
                   "precision policy keeps all types");
  RL_ASSIGN(Samples samples, Samples::open(options, work));
  if (outputs)
    RL_TRY(checkKeeps(*outputs, options, samples.files()));
  Result<Graph> graph = resolve(work.spec, samples.list().back().dims);
  if (!graph)
    return graph.takeError();

  std::vector<Calibrated> all;
  const std::vector<Site> sites = calibrate::findSites(work.spec, *graph);
  for (const Site &site : sites)
    all.push_back({Calibration(site, options.percentile < 0 ? std::nullopt : std::optional(options.percentile)), {}});
  const std::vector<Round> rounds = roundsOf(sites, *graph);
  size_t runs = 0, done = 0;
  for (const Round &round : rounds)
    runs += 2 * (round.constant ? 1 : samples.list().size());
  {
    Progress progress(options, "calibrate: runs");
    for (const Round &round : rounds)
      for (bool second : {false, true}) {
        RL_TRY(measure(options, work, target, round, samples, progress, done, runs,
                       [&](const std::string &name, const std::vector<float> &x, const std::vector<int64_t> &shape) {
                         for (Calibrated &c : all)
                           if (c.calibration.site().tensor == name)
                             second ? c.calibration.second(x.data(), shape) : c.calibration.first(x.data(), shape);
                       }));
        for (Calibrated &c : all)
          if (std::find(round.tensors.begin(), round.tensors.end(), c.calibration.site().tensor) != round.tensors.end())
            second ? c.calibration.endSecond() : c.calibration.endFirst();
      }
  }
  std::optional<CalibratedPrecision> precision;
  if (chooses) {
    RL_ASSIGN(precision, calibratePrecision(options, work, target, samples));
  }
  if (options.refine)
    for (Calibrated &c : all)
      c.calibration.refine();
  if (outputs)
    RL_TRY(writeCalibrated(*outputs, work.spec, all));

  const ReportHeader header{work.name,
                            target,
                            samples.list().size(),
                            outputs ? outputs->graph : std::string(),
                            outputs ? outputs->scales : std::string(),
                            std::move(precision)};
  if (options.json)
    return print(reportJson(header, all));
  return options.quiet ? Status() : print(reportText(header, all));
}

} // namespace rl::cli
