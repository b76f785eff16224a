// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// ridgeline: options, help and exit status. Nothing of the compiler runs before a subcommand asks for it.
#include "frontend/cli/Cli.h"

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <new>

namespace rl::cli {
namespace {

constexpr const char *kDescription =
    "Ridgeline compiles tensor graphs into few fused kernels, for NVIDIA GPUs and CPUs, and runs them.";

constexpr const char *kFooter = R"(
Examples:
  ridgeline explain ffn.json                        what is fused, what it moves, and why
  ridgeline run ffn.json --inputs in.safetensors --outputs out.safetensors
  ridgeline verify ffn.json                         compare with the reference interpreter
  ridgeline COMMAND --help                          the options of a command, with examples

Targets: cuda (the GPU here; default where there is one), cpu (default elsewhere), reference (a plain interpreter),
and for compiling: sm_80, sm_90a, a100, h100, h200, ...; see ridgeline targets.
Exit status: 0 done; 1 usage; 2 the graph or its data is invalid; 3 not supported on this target; 4 the device or the
run failed. Errors: error: FILE:/json/pointer: message. Nothing is written on failure.)";

void addCommon(CLI::App &app, Options &options, bool target = true) {
  if (target)
    app.add_option("--target", options.target,
                   "cuda, cpu, reference, sm_90a, h200, ...; default: cuda where a GPU is, else cpu")
        ->type_name("T");
  app.add_option("--cache", options.cache, "where compiled code is kept; default: ~/.cache/ridgeline ($XDG_CACHE_HOME)")
      ->type_name("DIR|off");
  app.add_flag("-q,--quiet", options.quiet, "no notes and summaries");
  app.add_flag("-v,--verbose", options.verbose, "times of phases, hits and misses of the cache, on standard error");
}

void addDims(CLI::App &app, Options &options) {
  app.add_option("--dim", options.dims, "value of a symbolic dimension; may be repeated")
      ->type_name("NAME=VALUE")
      ->expected(1)
      ->take_all();
}

void addGraph(CLI::App &app, Options &options, bool package) {
  app.add_option("graph", options.graph, package ? "a graph file, or a package directory" : "a graph file")
      ->required()
      ->type_name(package ? "G|PKG" : "G");
}

void addInputs(CLI::App &app, Options &options, bool required) {
  CLI::Option *inputs =
      app.add_option("--inputs", options.inputs,
                     std::string("safetensors file with every input and parameter by name, or made-up tensors") +
                         (required ? "" : "; default: random"));
  inputs->type_name("F|random[:SEED]");
  if (required)
    inputs->required();
}

void addParams(CLI::App &app, Options &options, const char *otherwise) {
  app.add_option("--params", options.params,
                 std::string("safetensors file with parameters by name; may be repeated; those in none of them are ") +
                     otherwise)
      ->type_name("F")
      ->expected(1)
      ->take_all();
}

/// A range has no opinion of NaN, and says its bounds in all their digits.
CLI::Validator isNumber(double least, double most, const char *range) {
  return {[=](std::string &text) -> std::string {
            char *end = nullptr;
            const double v = std::strtod(text.c_str(), &end);
            if (text.empty() || *end != 0 || !std::isfinite(v))
              return "'" + text + "' is no number";
            return v < least || v > most ? text + " is not " + range : std::string();
          },
          "", "number"};
}

void addTune(CLI::App &app, Options &options) {
  app.add_flag(
         "--tune{" + std::to_string(kTuneDefault) + "}", options.tune,
         "time this many of the tiles that the model finds good for each matrix product on the GPU here, and take "
         "the quickest; kept in the cache. Default, as --tune=N: " +
             std::to_string(kTuneDefault))
      ->check(CLI::Validator(
          [](std::string &text) {
            bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
            return digits ? std::string() : "'" + text + "' is no number";
          },
          "", "digits"))
      ->check(CLI::Range(2, kTuneMost))
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
}

struct Command {
  CLI::App *app;
  Status (*run)(const Options &);
};

/// Everything after the program's name; the options go to `options`.
std::vector<Command> declare(CLI::App &app, Options &options) {
  app.require_subcommand(1);
  app.set_version_flag("--version", "ridgeline " RIDGELINE_VERSION);
  app.footer(kFooter);
  app.get_formatter()->column_width(34);
  addCommon(app, options);
  std::vector<Command> commands;
  auto add = [&](const char *name, const char *description, Status (*run)(const Options &),
                 const char *footer) -> CLI::App & {
    CLI::App *command = app.add_subcommand(name, description);
    command->footer(footer);
    commands.push_back({command, run});
    return *command;
  };

  CLI::App &compile =
      add("compile", "compile a graph; with -o, into a package that runs without the compiler", compileCommand, R"(
Examples:
  ridgeline compile ffn.json                            is it valid, and what comes of it
  ridgeline compile ffn.json -o ffn.pkg --target h200
  ridgeline compile ffn.json -o ffn.pkg --tune          tiles of its matrix products by measurement, on the GPU here
  ridgeline compile batch.json -o b32.pkg --dim B=32    a package has fixed extents)");
  addGraph(compile, options, false);
  compile.add_option("-o,--output", options.output, "package directory to write; a package there is replaced")
      ->type_name("DIR");
  compile.add_option("--dump-dir", options.dumpDir, "also write a numbered file per stage and kernel there")
      ->type_name("DIR");
  addTune(compile, options);
  addDims(compile, options);
  addCommon(compile, options);

  CLI::App &run = add("run", "run a graph or a package on given or made-up tensors", runCommand, R"(
Symbolic dimensions take their values from the shapes in the file. Made-up floats have mean 0 and variance 1 (positive
where a root, a logarithm or a scale is taken of them), integers are small, indices are in range.
Examples:
  ridgeline run ffn.json --inputs in.safetensors --outputs out.safetensors
  ridgeline run ffn.pkg --inputs in.safetensors --outputs out.safetensors
  ridgeline run ffn.json --inputs in.safetensors --params weights.safetensors --outputs out.safetensors
  ridgeline run ffn.json --inputs random:7               prints each output's range and mean)");
  addGraph(run, options, true);
  addInputs(run, options, true);
  addParams(run, options, "taken from --inputs");
  run.add_option("--outputs", options.outputs, "safetensors file to write; without it a line per output is printed")
      ->type_name("F");
  addTune(run, options);
  addDims(run, options);
  addCommon(run, options);

  CLI::App &explain =
      add("explain", "show the kernels, the nodes in each, bytes, bound, predicted time, and why", explainCommand, R"(
Examples:
  ridgeline explain ffn.json
  ridgeline explain ffn.json --target h200 --format html >ffn.html)");
  addGraph(explain, options, true);
  explain.add_option("--format", options.format, "text, json or html; default: text")->type_name("FORMAT");
  addTune(explain, options);
  addDims(explain, options);
  addCommon(explain, options);

  CLI::App &dump = add("dump", "show what a stage of the compiler left", dumpCommand, R"(
Examples:
  ridgeline dump ffn.json --stage fused
  ridgeline dump ffn.json --stage ptx --target sm_90a
  ridgeline dump ffn.json --dump-dir stages              00-graph.mlir, 01-fused.mlir, 02-kernel-NAME.mlir, ...)");
  addGraph(dump, options, false);
  dump.add_option(
          "--stage", options.stage,
          "graph (ridge dialect), fused (with groups), kernel (MLIR), llvm (LLVM IR), ptx, sass (needs a CUDA toolkit)")
      ->type_name("S");
  dump.add_option("--dump-dir", options.dumpDir,
                  "write a numbered file per stage and kernel there, and print their names")
      ->type_name("DIR");
  addDims(dump, options);
  addCommon(dump, options);

  CLI::App &bench = add("bench", "measure a graph or a package, beside what was predicted", benchCommand, R"(
On a GPU: events around each run, with a cold L2 cache; on the CPU: wall clock. Medians. The copy bandwidth is this
machine's, measured on the spot.
Examples:
  ridgeline bench ffn.json
  ridgeline bench ffn.json --repeat 200 --json
  ridgeline bench ffn.json --tune=8)");
  addGraph(bench, options, true);
  addInputs(bench, options, false);
  addParams(bench, options, "taken from --inputs");
  bench
      .add_option("--repeat", options.repeat,
                  "runs to take the median of; default: as many as take two seconds, 200 at most")
      ->type_name("N")
      ->check(CLI::Range(1, 1000000));
  bench.add_flag("--json", options.json, "print JSON");
  addTune(bench, options);
  addDims(bench, options);
  addCommon(bench, options);

  CLI::App &verify =
      add("verify", "compare a target with the reference interpreter on the same data", verifyCommand, R"(
Default tolerance: f32 1e-5 relative, 16-bit floats 2 ulp, both beside a floor for cancellation of 1e-6 (where 16-bit
results are stored between nodes half an ulp) of the size of the output's row, 2 + 2n times that behind n matrix products
one above the other. Where that is not enough the reference runs again, up to 16 times, with errors of a few roundings at
each node: an element may be as far off as they move it, and infinite or NaN where they make it so. Outputs of exact
operations alone are equal; integers, bool and f8 equal, but for 1 element in 1,000 one step off where a function of a few
ulp leads to them; places that argmax and argmin find hold what is the extreme within such errors. Of results that 16-bit
values lead to no half is off in one direction, as by a wrong factor. A
fused kernel may keep f32 inside, so that the values with and without rounding between nodes are both right.
Exit status 4, with the worst element's place and values, where an output is beyond it.
Examples:
  ridgeline verify ffn.json
  ridgeline verify ffn.json --target cpu --inputs random:3 --tolerance 1e-3)");
  addGraph(verify, options, true);
  addInputs(verify, options, false);
  addParams(verify, options, "taken from --inputs");
  verify.add_flag(
      "--precision", options.precision,
      "also print each output's error against the interpreter in f32, beside the graph's precision tolerance");
  verify
      .add_option("--tolerance", options.tolerance,
                  "relative tolerance of every output (and a tenth of it times the output's "
                  "root mean square)")
      ->type_name("X")
      ->check(isNumber(0, 1e30, "from 0 to 1e30"));
  addTune(verify, options);
  addDims(verify, options);
  addCommon(verify, options);

  CLI::App &calibrate = add("calibrate", "find scales for what a graph quantises, from samples, and write them into it",
                            calibrateCommand, R"(
Runs the graph up to each quantize and fake_quantize node without a scale operand, on every sample, twice: for the range
of the values, then for the noise and the clipping that scales would bring. Whole tensors get the scale of their amax or
of their 99.99 percentile, whichever has the higher SQNR (--percentile decides otherwise); granularity "axis" gets each
index's amax. Scales of rows and blocks are written where parameters alone lead to the tensor and stay dynamic elsewhere,
as do asymmetric ones. An f32 scale of a whole tensor becomes a literal in the graph; others become parameters, kept in
NAME.scales.safetensors beside NAME.json, for --params of run, verify and bench.
Where the graph's precision policy lets the compiler choose types, their errors are measured on the samples as well, in up
to 6 rounds: the graph gets "observed", each output's error over its estimate, by which types are then chosen.
A sample is a file with the inputs by name, or one index of a file in which every input has one more dimension in front.
The report has each tensor's amax, percentiles (at most 2^-7 above the exact ones; exact for bf16), scale, share of
clipped values and SQNR; outlier channels (more than 0.1 % of the values beyond the 99.99 percentile and an amax twice
the median channel's, or an amax 8 times the median channel's); and granularity axis or token where the node's users take
it and it gains 6 dB, or 1 dB where there are outlier channels or more than 0.1 % is clipped.
Examples:
  ridgeline calibrate ffn.json --data samples --refine -o calibrated.json
  ridgeline calibrate ffn.json --data stacked.safetensors --params weights.safetensors --samples 64 --json
  ridgeline run calibrated.json --inputs in.safetensors --params calibrated.scales.safetensors --outputs out.safetensors)");
  addGraph(calibrate, options, false);
  calibrate.add_option("--data", options.data, "samples: a safetensors file, or a directory of them, taken by name")
      ->required()
      ->type_name("DIR|F");
  addParams(calibrate, options, "taken from the first file of --data");
  calibrate.add_option("--samples", options.samples, "how many samples at most; default: 512")
      ->type_name("N")
      ->check(CLI::Range(1, 1000000000));
  calibrate
      .add_option("--percentile", options.percentile, "scales of whole tensors clip what lies beyond it; 100: the amax")
      ->type_name("P")
      ->check(isNumber(1, 100, "from 1 to 100"));
  calibrate.add_flag("--refine", options.refine,
                     "use the granularities that are proposed, where dequantize and scaled_matmul are the only users");
  calibrate.add_option("-o,--output", options.output, "graph file to write; without it there is the report alone")
      ->type_name("G");
  calibrate.add_flag("--json", options.json, "print the report as JSON");
  addCommon(calibrate, options);

  CLI::App &targets = add("targets", "list the targets and which of them run here", targetsCommand, R"(
Example:
  ridgeline targets)");
  addCommon(targets, options, false);

  CLI::App &cache = add("cache", "show or clear the cache of compiled code", cacheCommand, R"(
Examples:
  ridgeline cache show
  ridgeline cache clear --cache /tmp/ridgeline-cache)");
  cache.add_option("action", options.action, "show or clear")->required()->type_name("ACTION");
  addCommon(cache, options, false);
  return commands;
}

/// What CLI11 does not check.
Status check(const Options &options, const std::string &command) {
  auto oneOf = [](const std::string &value, std::initializer_list<const char *> words) {
    for (const char *w : words)
      if (value == w)
        return true;
    return false;
  };
  if (command == "explain" && !oneOf(options.format, {"text", "json", "html"}))
    return usageError("--format " + options.format + ": unknown; known: text, json, html");
  if (command == "dump") {
    if (options.stage.empty() && options.dumpDir.empty())
      return usageError("dump: --stage or --dump-dir is missing");
    if (!options.stage.empty() && !oneOf(options.stage, {"graph", "fused", "kernel", "llvm", "ptx", "sass"}))
      return usageError("--stage " + options.stage + ": unknown; known: graph, fused, kernel, llvm, ptx, sass");
  }
  if (command == "cache" && !oneOf(options.action, {"show", "clear"}))
    return usageError("cache " + options.action + ": unknown; known: show, clear");
  if (options.graph.find('\0') != std::string::npos)
    return usageError("a file's name holds a zero byte");
  return {};
}

/// An empty word is a variable of a script that is not set, not a wish to go without.
Status checkEmpty(const CLI::App &command) {
  for (const CLI::Option *option : command.get_options())
    for (const std::string &word : option->results())
      if (word.empty())
        return usageError(option->get_name() + ": an empty word is given");
  return {};
}

int fail(const Error &error, const std::string &hint = {}) {
  std::fprintf(stderr, "error: %s\n", errorLine(error).c_str());
  if (!hint.empty())
    std::fprintf(stderr, "%s\n", hint.c_str());
  return static_cast<int>(error.code);
}

int mainGuarded(int argc, char **argv) {
  std::signal(SIGXFSZ, SIG_IGN); // likewise a file that may not grow further
  std::signal(SIGPIPE, SIG_IGN); // a closed pipe is an output that cannot be written, which is said and not died of
  Options options;
  CLI::App app(kDescription, "ridgeline");
  const std::vector<Command> commands = declare(app, options);
  const Command *chosen = nullptr;
  try {
    app.parse(argc, argv);
    for (const Command &c : commands)
      if (c.app->parsed())
        chosen = &c;
  } catch (const CLI::CallForHelp &) {
    const CLI::App *asked = &app;
    for (const Command &c : commands)
      if (c.app->parsed() || c.app->count("--help"))
        asked = c.app;
    Status status = print(asked == &app ? app.help() : asked->help("ridgeline"));
    return status ? 0 : fail(status.error());
  } catch (const CLI::CallForVersion &) {
    Status status = print("ridgeline " RIDGELINE_VERSION "\n");
    return status ? 0 : fail(status.error());
  } catch (const CLI::ParseError &e) {
    std::string command = "ridgeline", message = e.what();
    for (const Command &c : commands)
      if (c.app->parsed())
        command += " " + c.app->get_name();
    // CLI11 asks for the command before it looks at the words that are none.
    const std::vector<std::string> left = app.remaining();
    if (command == "ridgeline" && !left.empty())
      message = "unknown command or option '" + left.front() + "'";
    return fail(usageError(message), command + " --help shows what there is, with examples");
  }
  const std::string name = chosen->app->get_name();
  Status sound = checkEmpty(*chosen->app);
  if (sound)
    sound = check(options, name);
  if (!sound)
    return fail(sound.error(), "ridgeline " + name + " --help shows what there is, with examples");
  Status status = chosen->run(options);
  if (status)
    return 0;
  Error error = status.takeError();
  if (error.file.empty() && (error.code == Code::Invalid || error.code == Code::Unsupported))
    error.file = options.graph;
  return fail(error);
}

} // namespace
} // namespace rl::cli

int main(int argc, char **argv) {
  try {
    return rl::cli::mainGuarded(argc, argv);
  } catch (const std::bad_alloc &) {
    std::fputs("error: out of memory\n", stderr);
  } catch (const std::exception &e) {
    std::fprintf(stderr, "error: unexpected: %s\n", e.what());
  } catch (...) {
    std::fputs("error: unexpected\n", stderr);
  }
  return 4;
}
