// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The command line: what its subcommands share. A subcommand is one function from the options to a Status; Main.cpp prints
// the error of one that failed and makes its code the exit status (0 done, 1 usage, 2 invalid, 3 unsupported, 4 device).
#pragma once

#include "frontend/api/Engine.h"
#include "ir/graph/Graph.h"
#include "runtime/base/Result.h"

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace rl::cli {

struct Options {
  // Of every subcommand.
  std::string target;            ///< empty: the default one
  std::string cache;             ///< a directory, "off", or empty for the default one
  std::vector<std::string> dims; ///< NAME=VALUE
  bool quiet = false, verbose = false;

  std::string graph;               ///< the graph file, or a package directory
  std::string output;              ///< compile: the package directory; calibrate: the graph file
  std::string dumpDir;             ///< compile, dump
  std::vector<std::string> params; ///< run, bench, verify, calibrate: safetensors files
  std::string inputs, outputs;     ///< run, bench, verify: safetensors files, or "random[:SEED]"
  std::string format = "text";     ///< explain
  std::string stage;               ///< dump
  int repeat = 0;                  ///< bench; 0: as many as fit into about two seconds
  bool json = false;               ///< bench, calibrate
  double tolerance = -1;           ///< verify: relative; negative: by type
  bool precision = false;          ///< verify: also the error of the graph's types
  std::string action;              ///< cache
  std::string data;                ///< calibrate: a safetensors file or a directory of them
  int samples = 512;               ///< calibrate
  bool refine = false;             ///< calibrate
  double percentile = -1;          ///< calibrate; negative: the better of the amax and 99.99
  int tune = 0;                    ///< compile, run, explain, bench, verify: tiles of a kernel that are timed; 0: none
};

Status compileCommand(const Options &);
Status runCommand(const Options &);
Status explainCommand(const Options &);
Status dumpCommand(const Options &);
Status benchCommand(const Options &);
Status verifyCommand(const Options &);
Status calibrateCommand(const Options &);
Status targetsCommand(const Options &);
Status cacheCommand(const Options &);

/// The error as it is printed, one line without control characters: "FILE:/json/pointer: message". The place of an error of
/// a graph or its data is never left out: the pointer of a file as a whole is empty, "FILE:: message".
std::string errorLine(const Error &);

/// Writes to standard output; Code::Device where that fails (a full disk, a closed pipe).
Status print(std::string_view text);
/// A line on standard error, where not --quiet.
void note(const Options &, const std::string &line);

std::string amount(double bytes); ///< "22.54 MB"
std::string fixed(double value, int digits);
std::string number(double value); ///< up to four significant digits; for errors and values

/// Code::Device where a file of that name could not be written: the folder is missing or read-only, or the name is a
/// folder's. Called before long work.
Status checkWritable(const std::string &path, bool directory = false);

/// Writes the files into the directory, which is made if it is missing: all of them or, on failure, none.
Status writeFiles(const std::string &directory, const std::vector<std::pair<std::string, std::string>> &files);

/// The contents of a graph file; Code::Invalid where it cannot be opened, is no regular file or is too large.
Result<std::string> readGraphFile(const std::string &path);

bool isDirectory(const std::string &path);

/// A line on standard error that says how far long work has come; nothing unless that is a terminal, and nothing for work
/// that ends within half a second.
class Progress {
public:
  Progress(const Options &, std::string what);
  ~Progress();
  Progress(const Progress &) = delete;
  Progress &operator=(const Progress &) = delete;
  void step(size_t done, size_t all);

private:
  std::string what;
  bool enabled, shown = false;
  std::chrono::steady_clock::time_point next;
};

/// Seconds on a steady clock.
double now();

} // namespace rl::cli
