// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Printing, files and progress.
#include "frontend/cli/Cli.h"
#include "frontend/json/JsonReader.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace rl::cli {

std::string errorLine(const Error &error) {
  std::string line;
  bool placed = error.code == Code::Invalid || error.code == Code::Unsupported;
  if (placed && !error.file.empty())
    line = error.file + ":" + error.pointer + ": " + error.message;
  else
    line = error.str();
  // One line, whatever names a file holds: line ends become "; ", other control characters are escaped.
  std::string out;
  for (size_t i = 0; i < line.size(); ++i) {
    unsigned char c = static_cast<unsigned char>(line[i]);
    if (c == '\n' || c == '\r') {
      size_t end = line.find_first_not_of("\r\n \t", i);
      if (end == std::string::npos)
        break;
      out += "; ";
      i = end - 1;
    } else if (c < 0x20 || c == 0x7f) {
      char text[8];
      std::snprintf(text, sizeof text, "\\x%02x", c);
      out += text;
    } else {
      out += static_cast<char>(c);
    }
  }
  return out;
}

Status print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    return deviceError(std::string("standard output cannot be written: ") + std::strerror(errno));
  return {};
}

void note(const Options &options, const std::string &line) {
  if (!options.quiet)
    std::fprintf(stderr, "%s\n", line.c_str());
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

bool isDirectory(const std::string &path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

static Error writeError(const std::string &path, const char *what, int code) {
  return {Code::Device, {}, std::string(what) + ": " + std::strerror(code), path};
}

static std::string folderOf(const std::string &path) {
  size_t end = path.find_last_not_of('/');
  size_t slash = end == std::string::npos ? std::string::npos : path.find_last_of('/', end);
  if (slash == std::string::npos)
    return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

Status checkWritable(const std::string &path, bool directory) {
  struct stat info;
  bool exists = ::stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode) != directory)
    return writeError(path, "cannot be written", directory ? ENOTDIR : EISDIR);
  if (exists && !directory && !S_ISREG(info.st_mode)) // a device or a pipe is written to as it stands
    return ::access(path.c_str(), W_OK) == 0 ? Status() : writeError(path, "cannot be written", errno);
  const std::string folder = folderOf(path);
  if (::stat(folder.c_str(), &info) != 0)
    return writeError(path, "cannot be written", errno);
  if (!S_ISDIR(info.st_mode))
    return writeError(path, "cannot be written", ENOTDIR);
  if (::access(folder.c_str(), W_OK | X_OK) != 0)
    return writeError(path, "cannot be written", errno);
  return {};
}

static Status writeAll(const std::string &path, std::string_view text) {
  int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0)
    return writeError(path, "cannot be created", errno);
  while (!text.empty()) {
    ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0) {
      int code = errno;
      ::close(fd);
      return writeError(path, "cannot be written", code);
    }
    text.remove_prefix(static_cast<size_t>(n));
  }
  if (::close(fd) != 0)
    return writeError(path, "cannot be written", errno);
  return {};
}

Status writeFiles(const std::string &directory, const std::vector<std::pair<std::string, std::string>> &files) {
  bool made = ::mkdir(directory.c_str(), 0777) == 0;
  if (!made && errno != EEXIST)
    return writeError(directory, "cannot be created", errno);
  if (!isDirectory(directory))
    return writeError(directory, "cannot be written", ENOTDIR);
  const std::string suffix = "." + std::to_string(::getpid()) + ".tmp";
  Status status;
  size_t written = 0, renamed = 0;
  for (; status && written < files.size(); ++written)
    status = writeAll(directory + "/" + files[written].first + suffix, files[written].second);
  for (; status && renamed < files.size(); ++renamed) {
    const std::string path = directory + "/" + files[renamed].first;
    if (::rename((path + suffix).c_str(), path.c_str()) != 0)
      status = writeError(path, "cannot be written", errno);
  }
  if (!status) {
    for (size_t i = 0; i < written; ++i) {
      ::unlink((directory + "/" + files[i].first + suffix).c_str());
      if (made)
        ::unlink((directory + "/" + files[i].first).c_str());
    }
    if (made)
      ::rmdir(directory.c_str());
  }
  return status;
}

Result<std::string> readGraphFile(const std::string &path) {
  auto failed = [&](const std::string &message) { return Error{Code::Invalid, {}, message, path}; };
  // Non-blocking: a pipe without a writer must not hang before fstat can tell what it is.
  int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0)
    return failed(std::string("cannot open: ") + std::strerror(errno));
  struct stat info;
  if (::fstat(fd, &info) != 0 || S_ISDIR(info.st_mode)) {
    ::close(fd);
    return failed("cannot open: it is a directory");
  }
  ::fcntl(fd, F_SETFL, 0);
  std::string text;
  if (S_ISREG(info.st_mode) && info.st_size > 0 && static_cast<uint64_t>(info.st_size) <= kMaxGraphBytes)
    text.reserve(static_cast<size_t>(info.st_size) + 1);
  char chunk[1 << 16];
  for (;;) {
    ssize_t n = ::read(fd, chunk, sizeof chunk);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0) {
      int code = errno;
      ::close(fd);
      return failed(std::string("cannot be read: ") + std::strerror(code));
    }
    if (n == 0)
      break;
    text.append(chunk, static_cast<size_t>(n));
    if (text.size() > kMaxGraphBytes) {
      ::close(fd);
      return failed("larger than " + std::to_string(kMaxGraphBytes >> 20) + " MiB, the limit of a graph file");
    }
  }
  ::close(fd);
  return text;
}

Progress::Progress(const Options &options, std::string what)
    : what(std::move(what)), enabled(!options.quiet && ::isatty(STDERR_FILENO)),
      next(std::chrono::steady_clock::now() + std::chrono::milliseconds(500)) {}

Progress::~Progress() {
  if (shown)
    std::fputs("\r\033[K", stderr);
}

void Progress::step(size_t done, size_t all) {
  if (!enabled)
    return;
  auto time = std::chrono::steady_clock::now();
  if (time < next)
    return;
  next = time + std::chrono::milliseconds(100);
  shown = true;
  std::fprintf(stderr, "\r\033[K%s: %zu of %zu", what.c_str(), done, all);
  std::fflush(stderr);
}

} // namespace rl::cli
