// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Random graphs as ptxas sees them, for machines of three generations: no kernel may spill registers, have a stack or local memory, or
// have its warpgroup products serialised, whatever tile the cost model has chosen. Graphs that fail are printed, with what ptxas says.
//
//   numeric_assemble_test [--target h200,a100,...] [--seeds A:B] [--jobs N] [--keep DIR] [--both] [--tiles] [--print] [GRAPH.json...]
//
// --tiles: with each tile of its products that tuning would try, not the model's first alone. --both: as code to be linked and as code to be loaded, else as the runtime has it done. --keep: the PTX and the graphs of what fails.
// Without ptxas there is nothing to say (exit status 77).
#include "compiler/Compiler.h"
#include "compiler/explain/Record.h"
#include "frontend/json/JsonReader.h"
#include "tests/numeric/support/AssembledGraphs.h"
#include "tests/numeric/support/Harness.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <future>
#include <iterator>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include <sys/wait.h>
#include <unistd.h>

using namespace rl;
using namespace rl::numeric;

namespace {

std::string findPtxas() {
  std::stringstream path(std::getenv("PATH") ? std::getenv("PATH") : "");
  for (std::string folder; std::getline(path, folder, ':');)
    if (std::string file = folder + "/ptxas"; ::access(file.c_str(), X_OK) == 0)
      return file;
  const std::string usual = "/usr/local/cuda/bin/ptxas";
  return ::access(usual.c_str(), X_OK) == 0 ? usual : std::string();
}

/// What was compiled, and what ptxas finds wrong with it.
struct Job {
  std::string name, arch, graph, ptx, plan;
  std::vector<std::string> complaints;
};

bool isComplaint(const std::string &line) {
  for (const char *word : {"C75", "warning", "error", "fatal"})
    if (line.find(word) != std::string::npos)
      return true;
  for (const char *what : {" bytes stack frame", " bytes spill", " bytes lmem"})
    for (size_t at = line.find(what); at != std::string::npos; at = line.find(what, at + 1)) {
      const size_t space = line.rfind(' ', at - 1), first = space == std::string::npos ? 0 : space + 1;
      if (line.substr(first, at - first) != "0")
        return true;
    }
  return false;
}

void assemble(const std::string &ptxas, bool linked, const std::string &file, Job &job) {
  const std::string command =
      ptxas + (linked ? " -c" : "") + " -arch=" + job.arch + " -v -o /dev/null " + file + " 2>&1";
  FILE *pipe = ::popen(command.c_str(), "r");
  std::string log;
  std::array<char, 4096> text;
  while (size_t n = pipe ? std::fread(text.data(), 1, text.size(), pipe) : 0)
    log.append(text.data(), n);
  const int status = pipe ? ::pclose(pipe) : -1;
  std::stringstream lines(log);
  std::string kernel;
  for (std::string line; std::getline(lines, line);) {
    if (size_t at = line.find("entry function '"); at != std::string::npos)
      kernel = line.substr(at + 16, line.find('\'', at + 16) - at - 16);
    if (isComplaint(line))
      job.complaints.push_back(kernel + (linked ? " (linked): " : ": ") + line.substr(line.find_first_not_of(' ')));
  }
  if (status != 0 && job.complaints.empty())
    job.complaints.push_back("ptxas: exit status " + std::to_string(WEXITSTATUS(status)));
}

struct Options {
  SeedOptions seeds;
  std::vector<std::string> targets{"h200", "a100", "rtx4090"}, files;
  std::string keep;
  size_t jobs = std::max(1U, std::thread::hardware_concurrency());
  bool both = false, tiles = false;
};

std::optional<Options> readOptions(int argc, char **argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    const std::string a = argv[i];
    const bool more = i + 1 < argc;
    if (a == "--target" && more) {
      o.targets.clear();
      std::stringstream names(argv[++i]);
      for (std::string name; std::getline(names, name, ',');)
        o.targets.push_back(name);
    } else if (a == "--jobs" && more) {
      o.jobs = std::max(1UL, std::strtoul(argv[++i], nullptr, 10));
    } else if (a == "--keep" && more) {
      o.keep = argv[++i];
    } else if (a == "--both") {
      o.both = true;
    } else if (a == "--tiles") {
      o.tiles = true;
    } else if (!a.starts_with("-")) {
      o.files.push_back(a);
    } else if (!o.seeds.take(argc, argv, i)) {
      return std::nullopt;
    }
  }
  return o;
}

class Sweep {
public:
  Sweep(const Options &options, std::string ptxas) : options(options), ptxas(std::move(ptxas)) {
    std::string name = std::filesystem::temp_directory_path() / "ridgeline-assemble-XXXXXX";
    if (::mkdtemp(name.data()))
      folder = name;
  }
  ~Sweep() {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  /// False: not a graph.
  bool add(const std::string &name, const GraphSpec &, const std::vector<std::string> &targets);
  int finish();

private:
  void start(const std::string &name, const GraphSpec &, const CompileTarget &, const Package &);
  void take();
  void count(const std::string &explain);

  const Options &options;
  const std::string ptxas;
  std::string folder;
  std::deque<std::future<Job>> running;
  std::map<std::string, int> kernels; ///< by their kind
  int assembled = 0, refused = 0, failed = 0, next = 0;
};

/// The kinds of kernels that a record speaks of.
void Sweep::count(const std::string &explain) {
  static const std::string mark = "kernel '";
  for (size_t at = explain.find(mark); at != std::string::npos; at = explain.find(mark, at + 1))
    ++kernels[explain.substr(at + mark.size(), explain.find('\'', at + mark.size()) - at - mark.size())];
}

bool Sweep::add(const std::string &name, const GraphSpec &spec, const std::vector<std::string> &targets) {
  Result<Graph> graph = resolve(spec);
  if (!graph) {
    std::printf("FAILED %s: %s\n%s\n", name.c_str(), graph.error().str().c_str(), printGraph(spec).c_str());
    ++failed;
    return false;
  }
  for (const std::string &t : targets) {
    Result<CompileTarget> target = findCompileTarget(t);
    if (!target) {
      std::fprintf(stderr, "%s\n", target.error().str().c_str());
      return false;
    }
    nameCrash(name + " " + t);
    Result<Compiled> code = compile(*graph, *target);
    if (!code && code.error().code == Code::Unsupported) {
      ++refused;
      continue;
    }
    if (!code) {
      std::printf("FAILED %s %s: %s\n%s\n", name.c_str(), t.c_str(), code.error().str().c_str(),
                  printGraph(spec).c_str());
      ++failed;
      continue;
    }
    start(name + " " + t, spec, *target, code->package);
    size_t most = 1;
    for (const TunableKernel &k : code->tunable)
      most = std::max(most, k.tiles.size());
    for (size_t tile = 1; options.tiles && tile < most; ++tile) {
      CompileOptions chosen;
      for (const TunableKernel &k : code->tunable)
        chosen.tiles[k.key] = {std::min(tile, k.tiles.size() - 1), {}};
      if (Result<Compiled> other = compile(*graph, *target, chosen))
        start(name + " " + t + " tile " + std::to_string(tile), spec, *target, other->package);
    }
  }
  return true;
}

void Sweep::start(const std::string &name, const GraphSpec &spec, const CompileTarget &target, const Package &package) {
  count(package.explain);
  if (package.ptx.find(".entry") == std::string::npos)
    return;
  Job job{name, target.arch, printGraph(spec), package.ptx, package.explain, {}};
  while (running.size() >= options.jobs)
    take();
  running.push_back(std::async(std::launch::async, [this, job = std::move(job), number = next++]() mutable {
    const std::string file = folder + "/" + std::to_string(number) + ".ptx";
    std::ofstream(file) << job.ptx;
    // Which the runtime leaves to the driver's loader: runtime/cuda/Cuda.cpp, assemblePtx.
    const bool loaded = job.ptx.find("setmaxnreg") != std::string::npos ||
                        job.ptx.find("barrier.cluster.arrive.relaxed") != std::string::npos;
    if (!loaded)
      assemble(ptxas, true, file, job);
    if (loaded || options.both)
      assemble(ptxas, false, file, job);
    std::filesystem::remove(file);
    return std::move(job);
  }));
}

/// The result of the one that was started first.
void Sweep::take() {
  Job job = running.front().get();
  running.pop_front();
  ++assembled;
  if (job.complaints.empty())
    return;
  ++failed;
  std::printf("FAILED %s\n", job.name.c_str());
  for (const std::string &line : job.complaints)
    std::printf("    %s\n", line.c_str());
  if (Result<std::string> text = renderRecord(job.plan, "text"); text && options.keep.empty())
    std::printf("%s\n", text->c_str());
  if (options.keep.empty()) {
    std::printf("%s\n", job.graph.c_str());
  } else {
    std::string base = job.name;
    std::replace(base.begin(), base.end(), ' ', '_');
    std::replace(base.begin(), base.end(), '/', '_');
    base = options.keep + "/" + base;
    std::ofstream(base + ".json") << job.graph;
    std::ofstream(base + ".ptx") << job.ptx;
  }
  std::fflush(stdout);
}

int Sweep::finish() {
  while (!running.empty())
    take();
  std::string kinds;
  for (const auto &[kind, n] : kernels)
    kinds += (kinds.empty() ? "" : ", ") + std::to_string(n) + " " + kind;
  std::printf("%d assembled (%s), %d refused by the compiler, %d failed\n", assembled, kinds.c_str(), refused, failed);
  return failed || !assembled ? 4 : 0;
}

} // namespace

int main(int argc, char **argv) {
  std::optional<Options> options = readOptions(argc, argv);
  if (!options) {
    std::fprintf(stderr, "usage: numeric_assemble_test [--target T,...] [--seeds A:B] [--jobs N] [--keep DIR] [--both] "
                         "[--tiles] [--print] [GRAPH.json...]\n");
    return 1;
  }
  const std::string ptxas = findPtxas();
  if (ptxas.empty()) {
    std::printf("skipped: no ptxas on this machine\n");
    return 77;
  }
  Sweep sweep(*options, ptxas);
  for (const std::string &file : options->files) {
    std::ifstream in(file);
    Result<GraphSpec> spec = parseGraph(std::string(std::istreambuf_iterator<char>(in), {}));
    if (!spec) {
      std::fprintf(stderr, "%s: %s\n", file.c_str(), spec.error().str().c_str());
      return 1;
    }
    sweep.add(file, *spec, options->targets);
  }
  for (uint64_t seed = options->seeds.first; options->files.empty() && seed < options->seeds.end; ++seed) {
    const GraphSpec spec = assembledGraph(seed);
    if (options->seeds.print)
      std::printf("%s\n", printGraph(spec).c_str());
    sweep.add("seed " + std::to_string(seed), spec, options->targets);
  }
  return sweep.finish();
}
