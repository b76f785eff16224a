// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Package directories: written whole beside their place and moved there in one step, read with every byte accounted
// for.
#include "runtime/package/Manifest.h"

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

namespace rl {
namespace {

Error ioError(const std::string &path, const std::string &what, int code) {
  return {Code::Device, {}, what + ": " + std::strerror(code), path};
}
Error fileError(const std::string &path, std::string message) { return {Code::Invalid, {}, std::move(message), path}; }

class FileDescriptor {
public:
  explicit FileDescriptor(int fd) : fd(fd) {}
  ~FileDescriptor() {
    if (fd >= 0)
      ::close(fd);
  }
  FileDescriptor(const FileDescriptor &) = delete;
  FileDescriptor &operator=(const FileDescriptor &) = delete;
  int get() const { return fd; }
  int release() { return std::exchange(fd, -1); }

private:
  int fd;
};

Status writeFile(const std::string &path, std::string_view contents) {
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (file.get() < 0)
    return ioError(path, "cannot be created", errno);
  while (!contents.empty()) {
    ssize_t n = ::write(file.get(), contents.data(), contents.size());
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return ioError(path, "cannot be written", errno);
    contents.remove_prefix(static_cast<size_t>(n));
  }
  if (::close(file.release()) != 0) // where a network file system reports a full disk
    return ioError(path, "cannot be written", errno);
  return {};
}

/// The whole of a regular file of at most `limit` bytes.
Result<std::string> readFile(const std::string &path, int64_t limit) {
  // O_NONBLOCK: a pipe with nobody behind it must not hang the caller before fstat can tell what it is.
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat info;
  if (file.get() < 0 || ::fstat(file.get(), &info) != 0)
    return fileError(path, std::string("cannot be read: ") + std::strerror(errno));
  if (!S_ISREG(info.st_mode))
    return fileError(path, "not a regular file");
  if (info.st_size > limit)
    return fileError(path, "larger than " + std::to_string(limit) + " bytes");
  std::string out(static_cast<size_t>(info.st_size), '\0');
  size_t done = 0;
  while (done < out.size()) {
    ssize_t n = ::read(file.get(), out.data() + done, out.size() - done);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return fileError(path, std::string("cannot be read: ") + std::strerror(errno));
    if (n == 0)
      break; // it became shorter while it was read; the checksum says so
    done += static_cast<size_t>(n);
  }
  out.resize(done);
  return out;
}

bool isPackageFile(std::string_view name) {
  if (name == kManifestName)
    return true;
  for (const PackageFile &file : kPackageFiles)
    if (name == file.name)
      return true;
  return false;
}

/// The entries of a directory but "." and ".."; sets errno and `ok` on failure.
std::vector<std::string> listDirectory(const std::string &path, bool &ok) {
  std::vector<std::string> out;
  std::unique_ptr<DIR, int (*)(DIR *)> dir(::opendir(path.c_str()), ::closedir);
  ok = dir != nullptr;
  if (!ok)
    return out;
  while (dirent *entry = ::readdir(dir.get()))
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0)
      out.emplace_back(entry->d_name);
  return out;
}

/// Deletes a package's own files and the directory; anything else in it stays, and so does the directory then.
void removePackage(const std::string &path) {
  ::unlink((path + "/" + kManifestName).c_str());
  for (const PackageFile &file : kPackageFiles)
    ::unlink((path + "/" + file.name).c_str());
  ::rmdir(path.c_str());
}

/// Removes the half-made directory unless it was moved to its place.
struct TemporaryDirectory {
  std::string path;
  ~TemporaryDirectory() {
    if (!path.empty())
      removePackage(path);
  }
};

/// May `path`, which exists, be replaced? Only an empty directory or a package with nothing else in it.
Status checkReplaceable(const std::string &path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0)
    return ioError(path, "cannot be examined", errno);
  if (!S_ISDIR(info.st_mode))
    return Error{Code::Device, {}, "exists and is not a directory", path};
  bool ok = false;
  std::vector<std::string> entries = listDirectory(path, ok);
  if (!ok)
    return ioError(path, "cannot be listed", errno);
  bool manifest = false;
  for (const std::string &name : entries) {
    if (!isPackageFile(name))
      return Error{Code::Device, {}, "is not replaced: '" + name + "' in it does not belong to a package", path};
    manifest |= name == kManifestName;
  }
  if (entries.empty())
    return {};
  if (!manifest)
    return Error{Code::Device, {}, "is not replaced: it is not empty and has no manifest.json", path};
  auto text = readFile(path + "/" + kManifestName, kMaxManifestBytes);
  if (!text || text->find(std::string("\"") + kManifestMark + "\"") == std::string::npos)
    return Error{Code::Device, {}, "is not replaced: its manifest.json is not a package's", path};
  return {};
}

/// Moves `from` to `to`, which may be there already.
Status replaceDirectory(const std::string &from, const std::string &to, bool exists) {
  // rename(2) replaces an empty directory by itself.
  if (::rename(from.c_str(), to.c_str()) == 0)
    return {};
  if (!exists || (errno != ENOTEMPTY && errno != EEXIST))
    return ioError(to, "cannot be created", errno);
  if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_EXCHANGE) == 0) {
    removePackage(from); // which is the old one now
    return {};
  }
  if (errno != EINVAL && errno != ENOSYS)
    return ioError(to, "cannot be replaced", errno);
  // A file system without exchange: the old one goes aside first, and comes back if the new one cannot take its place.
  std::string old = from + ".old";
  if (::rename(to.c_str(), old.c_str()) != 0)
    return ioError(to, "cannot be replaced", errno);
  if (::rename(from.c_str(), to.c_str()) != 0) {
    int code = errno;
    ::rename(old.c_str(), to.c_str());
    return ioError(to, "cannot be replaced", code);
  }
  removePackage(old);
  return {};
}

} // namespace

bool hasKernels(const Package &p) {
  for (const std::vector<PackageLaunch> *list : {&p.launches, &p.bindLaunches})
    for (const PackageLaunch &l : *list)
      if (l.kind == PackageLaunch::Kernel)
        return true;
  return false;
}

Status writePackage(const Package &p, const std::string &directory) {
  RL_TRY(validatePackage(p));
  const bool launches = hasKernels(p);
  if (launches && p.target == "cpu" && p.sharedObject.empty())
    return unsupported({}, "the package has no shared object of its kernels, so it cannot be written");
  if (launches && p.target == "cuda" && p.ptx.empty() && p.cubin.empty())
    return invalid({}, "the package has no code of its kernels");

  std::string path = directory;
  while (path.size() > 1 && path.back() == '/')
    path.pop_back();
  if (path.empty() || path.find('\0') != std::string::npos)
    return usageError("the package's directory has no name");
  struct stat info;
  bool exists = ::lstat(path.c_str(), &info) == 0;
  if (exists) {
    // Through a symbolic link (and for "." and ".."), what it names is replaced, not the link.
    std::unique_ptr<char, void (*)(void *)> real(::realpath(path.c_str(), nullptr), std::free);
    if (!real)
      return ioError(path, "cannot be resolved", errno);
    path = real.get();
    RL_TRY(checkReplaceable(path));
  }

  static std::atomic<unsigned> counter{0};
  TemporaryDirectory temporary;
  std::string candidate;
  for (int attempt = 0;; ++attempt) {
    candidate = path + ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
    if (::mkdir(candidate.c_str(), 0777) == 0)
      break;
    if (errno != EEXIST || attempt == 100)
      return ioError(path, "cannot be created", errno);
  }
  temporary.path = candidate;
  for (const PackageFile &file : kPackageFiles)
    if (const std::string &contents = p.*file.member; !contents.empty())
      RL_TRY(writeFile(candidate + "/" + file.name, contents));
  RL_TRY(writeFile(candidate + "/" + kManifestName, printManifest(p)));
  RL_TRY(replaceDirectory(candidate, path, exists));
  temporary.path.clear();
  return {};
}

Result<Package> readPackage(const std::string &directory) {
  if (directory.empty() || directory.find('\0') != std::string::npos)
    return fileError(directory, "not a package directory");
  std::string manifest = directory + "/" + kManifestName;
  RL_ASSIGN(std::string text, readFile(manifest, kMaxManifestBytes));
  std::map<std::string, FileRecord> files;
  auto parsed = parseManifest(text, files);
  if (!parsed) {
    Error e = parsed.takeError();
    e.file = manifest;
    return e;
  }
  Package p = *std::move(parsed);
  for (const PackageFile &file : kPackageFiles) {
    auto record = files.find(file.name);
    if (record == files.end())
      continue;
    std::string path = directory + "/" + file.name;
    RL_ASSIGN(std::string contents, readFile(path, kMaxPackageFileBytes));
    if (static_cast<int64_t>(contents.size()) != record->second.bytes)
      return fileError(path, std::to_string(contents.size()) + " bytes, but the manifest says " +
                                 std::to_string(record->second.bytes));
    if (fileHash(contents) != record->second.hash)
      return fileError(path, "does not match the manifest's checksum");
    p.*file.member = std::move(contents);
  }
  if (hasKernels(p)) {
    if (p.target == "cpu" && p.sharedObject.empty())
      return Error{Code::Invalid, "/files", "kernels.so is missing", manifest};
    if (p.target == "cuda" && p.ptx.empty() && p.cubin.empty())
      return Error{Code::Invalid, "/files", "kernels.ptx and kernels.cubin are missing", manifest};
  }
  return p;
}

} // namespace rl
