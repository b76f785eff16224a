// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Stage texts cut into kernels, and machine code as text through the tools of a CUDA toolkit.
#include "frontend/cli/Stages.h"
#include "runtime/cuda/Cuda.h"
#include "runtime/package/PtxKernels.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

namespace rl::cli {
namespace {

/// The identifier that begins at `at`.
std::string identifier(const std::string &line, size_t at) {
  size_t end = at;
  while (end < line.size() && (std::isalnum(static_cast<unsigned char>(line[end])) || std::strchr("_$.", line[end])))
    ++end;
  return line.substr(at, end - at);
}

/// The name of the kernel of MLIR or LLVM that this line begins; empty where it begins none.
std::string kernelAt(const std::string &stage, const std::string &line) {
  const std::string start = stage == "llvm" ? "define " : "func.func ";
  size_t first = line.find_first_not_of(' ');
  if (first == std::string::npos || line.compare(first, start.size(), start) != 0)
    return {};
  size_t at = line.find('@', first);
  return at == std::string::npos ? std::string() : identifier(line, at + 1);
}

/// Does this line end a function, of MLIR or LLVM?
bool endsKernel(const std::string &line, size_t indent) {
  return line.compare(0, indent + 1, std::string(indent, ' ') + "}") == 0 &&
         line.find_first_not_of(' ', indent + 1) == std::string::npos;
}

/// A name that a file may have.
std::string fileName(std::string name) {
  if (name.size() > 120)
    name.resize(120);
  return name;
}

} // namespace

std::vector<std::pair<std::string, std::string>> splitKernels(const std::string &stage, const std::string &text) {
  std::vector<std::pair<std::string, std::string>> out;
  if (stage == "ptx") {
    const std::vector<PtxKernel> kernels = ptxKernels(text);
    for (const PtxKernel &k : kernels)
      out.emplace_back(k.name, text.substr(0, kernels[0].begin) + text.substr(k.begin, k.end - k.begin));
    return out;
  }
  std::string *into = nullptr;
  size_t indent = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = text.find('\n', at);
    end = end == std::string::npos ? text.size() : end + 1;
    std::string line = text.substr(at, end - at), bare = line;
    at = end;
    while (!bare.empty() && (bare.back() == '\n' || bare.back() == '\r'))
      bare.pop_back();
    if (!into) {
      std::string name = kernelAt(stage, bare);
      if (name.empty())
        continue;
      into = &out.emplace_back(name, std::string()).second;
      indent = bare.find_first_not_of(' ');
    }
    *into += line;
    if (endsKernel(bare, indent))
      into = nullptr;
  }
  return out;
}

std::vector<std::pair<std::string, std::string>> stageFiles(const Artifact &artifact) {
  std::vector<std::pair<std::string, std::string>> files;
  int index = 0;
  for (const StageDump &dump : artifact.stages) {
    char number[16];
    std::snprintf(number, sizeof number, "%02d-", index++);
    const char *suffix = dump.stage == "llvm"   ? ".ll"
                         : dump.stage == "ptx"  ? ".ptx"
                         : dump.stage == "asm"  ? ".s"
                         : dump.stage == "sass" ? ".sass"
                                                : ".mlir";
    const std::string stem = number + dump.stage;
    std::vector<std::pair<std::string, std::string>> kernels;
    if (dump.stage == "kernel" || dump.stage == "llvm" || dump.stage == "ptx")
      kernels = splitKernels(dump.stage, dump.text);
    if (kernels.size() != 1)
      files.emplace_back(stem + suffix, dump.text);
    // What stands around a single kernel (attributes, declarations) belongs to it.
    for (auto &[name, text] : kernels)
      files.emplace_back(stem + "-" + fileName(name) + suffix, kernels.size() == 1 ? dump.text : std::move(text));
  }
  return files;
}

namespace {

/// A folder for files between tools, deleted with what is in it.
class Scratch {
public:
  static Result<Scratch> make() {
    const char *base = std::getenv("TMPDIR");
    Scratch out;
    out.path = std::string(base && *base ? base : "/tmp") + "/ridgeline.XXXXXX";
    if (!::mkdtemp(out.path.data())) {
      out.path.clear();
      return deviceError(std::string("no folder for temporary files: ") + std::strerror(errno));
    }
    return out;
  }
  Scratch() = default;
  Scratch(Scratch &&other) noexcept : path(std::exchange(other.path, {})), files(std::move(other.files)) {}
  Scratch &operator=(Scratch &&) = delete;
  ~Scratch() {
    for (const std::string &f : files)
      ::unlink(f.c_str());
    if (!path.empty())
      ::rmdir(path.c_str());
  }
  std::string file(const char *name) {
    files.push_back(path + "/" + name);
    return files.back();
  }

private:
  std::string path;
  std::vector<std::string> files;
};

std::string findTool(const char *name) {
  std::string paths = std::getenv("PATH") ? std::getenv("PATH") : "";
  paths += ":/usr/local/cuda/bin"; // where the toolkit puts itself
  for (size_t at = 0; at <= paths.size();) {
    size_t end = std::min(paths.find(':', at), paths.size());
    std::string candidate = paths.substr(at, end - at) + "/" + name;
    if (candidate[0] == '/' && ::access(candidate.c_str(), X_OK) == 0)
      return candidate;
    at = end + 1;
  }
  return {};
}

bool writeFile(const std::string &path, const std::string &text) {
  std::FILE *f = std::fopen(path.c_str(), "wb");
  if (!f)
    return false;
  bool ok = std::fwrite(text.data(), 1, text.size(), f) == text.size();
  return std::fclose(f) == 0 && ok;
}

std::string readFile(const std::string &path) {
  std::string out;
  if (std::FILE *f = std::fopen(path.c_str(), "rb")) {
    char chunk[65536];
    while (size_t n = std::fread(chunk, 1, sizeof chunk, f))
      out.append(chunk, n);
    std::fclose(f);
  }
  return out;
}

/// Runs a program without a shell; its output and errors go to `log`.
Status runTool(const std::vector<std::string> &words, const std::string &log) {
  std::vector<char *> argv;
  for (const std::string &w : words)
    argv.push_back(const_cast<char *>(w.c_str()));
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t pid = 0;
  int error = ::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    return deviceError(words[0] + " does not start: " + std::strerror(error));
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0)
    if (errno != EINTR)
      return deviceError(words[0] + ": " + std::strerror(errno));
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return deviceError(words[0] + " failed: " + readFile(log).substr(0, 2000));
  return {};
}

} // namespace

Result<std::string> disassemble(const Package &package) {
  if (package.target != "cuda")
    return unsupported({}, "stage sass is machine code of a GPU, and the target is " + package.target +
                               "; its last stage is llvm");
  if (package.ptx.empty() && package.cubin.empty())
    return std::string("// no kernels\n");
  std::string nvdisasm = findTool("nvdisasm"), cuobjdump = findTool("cuobjdump");
  if (nvdisasm.empty() && cuobjdump.empty())
    return unsupported({},
                       "stage sass needs nvdisasm or cuobjdump of a CUDA toolkit on the PATH, and neither is there");
  RL_ASSIGN(Scratch scratch, Scratch::make());
  std::string cubin = scratch.file("kernels.cubin"), ptx = scratch.file("kernels.ptx"), log = scratch.file("log");
  // Where the driver made the machine code that is kept, it is asked again: what is kept lacks the kernels for pointers that are not
  // aligned.
  std::string code, refusal, ptxas = package.ptx.empty() ? std::string() : findTool("ptxas");
  if (!package.ptx.empty() && (!package.cubin.empty() || ptxas.empty())) {
    if (Result<std::string> assembled = assemblePtx(package.ptx))
      code = *std::move(assembled);
    else
      refusal = assembled.error().message;
  }
  if (code.empty() && !ptxas.empty()) {
    if (!writeFile(ptx, package.ptx))
      return deviceError(ptx + " cannot be written: " + std::strerror(errno));
    RL_TRY(runTool({ptxas, "-arch", package.arch, "-o", cubin, ptx}, log));
  } else {
    if (code.empty())
      code = package.cubin;
    if (code.empty())
      return unsupported({}, "stage sass needs ptxas of a CUDA toolkit on the PATH or a GPU's driver: " + refusal);
    if (!writeFile(cubin, code))
      return deviceError(cubin + " cannot be written: " + std::strerror(errno));
  }
  if (!nvdisasm.empty())
    RL_TRY(runTool({nvdisasm, cubin}, log));
  else
    RL_TRY(runTool({cuobjdump, "-sass", cubin}, log));
  return readFile(log);
}

} // namespace rl::cli
