// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An entry is DIGEST.entry: 8 bytes of magic, the key's digest (32 bytes), the value's length (8, little endian), the
// SHA-256 of all these and the value (32), the value. It is written to a name of its own and renamed.
//
// No locks: a process stopped or killed anywhere leaves at worst a .tmp file, which a later sweep removes. How full the
// directory is, is known without listing it: the file `ledger` is as many bytes long as pages were stored since the last
// sweep, plus those that this sweep found. Appends are atomic; that concurrent sweeps may lose one makes the bound
// approximate by an entry, no more.
#include "runtime/cache/Cache.h"

#include "runtime/base/WriteAll.h"
#include "runtime/cache/Sha256.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <tuple>
#include <unistd.h>

namespace rl {

struct DiskCache::State {
  std::string directory; ///< empty: off
  std::string reason;
  uint64_t maxBytes = 0;
  std::atomic<uint64_t> hits{0}, misses{0}, stored{0}, damaged{0}, failed{0}, evicted{0};
};

namespace {

constexpr char kMagic[] = "RLCACHE1";
constexpr size_t kMagicBytes = 8, kDigestBytes = 32, kLengthBytes = 8;
constexpr size_t kHeaderBytes = kMagicBytes + kDigestBytes + kLengthBytes + kDigestBytes;
constexpr uint64_t kPage = 4096;
constexpr time_t kAbandoned = 3600; ///< seconds after which a .tmp file has no living writer

std::string littleEndian(uint64_t value) {
  std::string out;
  for (int i = 0; i < 8; ++i)
    out += static_cast<char>(value >> (8 * i) & 0xFF);
  return out;
}

uint64_t fromLittleEndian(std::string_view bytes) {
  uint64_t out = 0;
  for (size_t i = 8; i-- > 0;)
    out = out << 8 | static_cast<uint8_t>(bytes[i]);
  return out;
}

Sha256::Digest digestOf(const CacheKey &key) {
  Sha256 sha;
  for (const std::string *part : {&key.text, &key.target, &key.schedule, &key.version})
    sha.update(littleEndian(part->size())).update(*part);
  return sha.finish();
}

std::string_view view(const Sha256::Digest &digest) {
  return {reinterpret_cast<const char *>(digest.data()), digest.size()};
}

std::string formatHeader(const Sha256::Digest &key, std::string_view value) {
  std::string out(kMagic, kMagicBytes);
  out += view(key);
  out += littleEndian(value.size());
  out += view(Sha256().update(out).update(value).finish());
  return out;
}

/// The value within an entry's bytes, where they are whole and this key's.
std::optional<std::string_view> checkedValue(std::string_view entry, const Sha256::Digest &key) {
  if (entry.size() < kHeaderBytes)
    return std::nullopt;
  std::string_view value = entry.substr(kHeaderBytes);
  if (entry.substr(0, kHeaderBytes) != formatHeader(key, value))
    return std::nullopt;
  return value;
}

struct Descriptor {
  int fd;
  explicit Descriptor(int fd) : fd(fd) {}
  Descriptor(const Descriptor &) = delete;
  Descriptor &operator=(const Descriptor &) = delete;
  ~Descriptor() {
    if (fd >= 0)
      ::close(fd);
  }
};

bool readAll(int fd, std::string &out, size_t bytes) {
  out.resize(bytes);
  for (size_t done = 0; done < bytes;) {
    ssize_t n = ::read(fd, out.data() + done, bytes - done);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0)
      return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

std::string message(const std::string &path) { return path + ": " + std::strerror(errno); }

/// Makes the directory and those above it that are missing, for this user alone; a reason where it cannot.
std::string makeDirectories(const std::string &path) {
  for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    std::string prefix = path.substr(0, end);
    if (::mkdir(prefix.c_str(), 0700) != 0 && errno != EEXIST) {
      struct stat info; // on a read-only file system mkdir may report that before it reports that the folder exists
      int problem = errno;
      if (::stat(prefix.c_str(), &info) != 0 || !S_ISDIR(info.st_mode)) {
        errno = problem;
        return message(prefix);
      }
    }
    if (end == std::string::npos)
      return {};
  }
}

std::string unusable(const std::string &path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0)
    return message(path);
  if (!S_ISDIR(info.st_mode))
    return path + ": not a directory";
  if (info.st_uid != ::geteuid())
    return path + ": belongs to another user";
  if (info.st_mode & S_IWOTH)
    return path + ": others may write there";
  if (::faccessat(AT_FDCWD, path.c_str(), R_OK | W_OK | X_OK, AT_EACCESS) != 0)
    return message(path);
  return {};
}

/// Empty where there is none.
std::string defaultDirectory() {
  if (const char *cache = std::getenv("XDG_CACHE_HOME"); cache && *cache == '/') // a relative one is invalid, says XDG
    return std::string(cache) + "/ridgeline";
  if (const char *home = std::getenv("HOME"); home && *home == '/')
    return std::string(home) + "/.cache/ridgeline";
  passwd entry, *found = nullptr;
  std::string buffer(16384, '\0');
  if (::getpwuid_r(::geteuid(), &entry, buffer.data(), buffer.size(), &found) == 0 && found && found->pw_dir &&
      *found->pw_dir == '/')
    return std::string(found->pw_dir) + "/.cache/ridgeline";
  return {};
}

uint64_t pages(uint64_t bytes) { return (bytes + kPage - 1) / kPage; }

/// Adds an entry to the ledger. True where a sweep is due.
bool enterInLedger(const std::string &directory, uint64_t bytes, uint64_t maxBytes) {
  Descriptor ledger(
      ::open((directory + "/ledger").c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  struct stat info;
  if (ledger.fd < 0 || !writeAll(ledger.fd, std::string(pages(bytes), '\0')) || ::fstat(ledger.fd, &info) != 0)
    return true; // unknown: look
  return static_cast<uint64_t>(info.st_size) > maxBytes / kPage;
}

/// Deletes the entries used longest ago until three quarters of the bound are left (so that sweeps are rare), and what
/// killed writers left behind. Returns how many entries.
uint64_t sweep(const std::string &directory, uint64_t maxBytes) {
  DIR *dir = ::opendir(directory.c_str());
  if (!dir)
    return 0;
  struct Found {
    timespec used;
    std::string name;
    uint64_t pages;
  };
  std::vector<Found> entries;
  uint64_t total = 0;
  const time_t now = ::time(nullptr);
  while (const dirent *item = ::readdir(dir)) {
    std::string_view name = item->d_name;
    struct stat info;
    bool entry = name.ends_with(".entry"), temporary = name.ends_with(".tmp");
    if ((!entry && !temporary) || ::fstatat(::dirfd(dir), item->d_name, &info, AT_SYMLINK_NOFOLLOW) != 0)
      continue;
    if (temporary) {
      if (info.st_mtime + kAbandoned < now)
        ::unlinkat(::dirfd(dir), item->d_name, 0);
      continue;
    }
    entries.push_back({info.st_mtim, std::string(name), pages(static_cast<uint64_t>(info.st_size))});
    total += entries.back().pages;
  }
  std::sort(entries.begin(), entries.end(), [](const Found &a, const Found &b) {
    return std::tie(a.used.tv_sec, a.used.tv_nsec, a.name) < std::tie(b.used.tv_sec, b.used.tv_nsec, b.name);
  });
  uint64_t evicted = 0;
  const uint64_t keep = maxBytes / kPage / 4 * 3;
  for (const Found &e : entries) {
    if (total <= keep)
      break;
    if (::unlinkat(::dirfd(dir), e.name.c_str(), 0) == 0)
      ++evicted;
    total -= e.pages; // also where another process was faster
  }
  ::closedir(dir);
  // Sparse: the ledger's length is what counts. Where this fails, the next put sweeps again.
  Descriptor ledger(::open((directory + "/ledger").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  [[maybe_unused]] int result = ledger.fd < 0 ? -1 : ::ftruncate(ledger.fd, static_cast<off_t>(total));
  return evicted;
}

} // namespace

std::string CacheKey::digest() const { return hex(digestOf(*this)); }

DiskCache DiskCache::open(std::string_view where, uint64_t maxBytes) {
  DiskCache cache;
  cache.state = std::make_shared<State>();
  State &state = *cache.state;
  state.maxBytes = maxBytes;
  if (where == "off") {
    state.reason = "off";
    return cache;
  }
  std::string path = where.empty() ? defaultDirectory() : std::string(where);
  if (path.empty()) {
    state.reason = "neither XDG_CACHE_HOME nor HOME is set";
    return cache;
  }
  state.reason = makeDirectories(path);
  if (state.reason.empty())
    state.reason = unusable(path);
  if (state.reason.empty())
    state.directory = std::move(path);
  return cache;
}

bool DiskCache::enabled() const { return !state->directory.empty(); }
const std::string &DiskCache::directory() const { return state->directory; }
const std::string &DiskCache::reason() const { return state->reason; }

std::optional<std::string> DiskCache::get(const CacheKey &key) const {
  if (!enabled())
    return std::nullopt;
  const Sha256::Digest digest = digestOf(key);
  const std::string path = state->directory + "/" + hex(digest) + ".entry";
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (file.fd < 0 && errno != ELOOP) { // none there, or no more descriptors to be had: no reason to delete it
    ++state->misses;
    return std::nullopt;
  }
  struct stat info;
  std::string bytes;
  std::optional<std::string_view> value;
  if (file.fd >= 0 && ::fstat(file.fd, &info) == 0 && S_ISREG(info.st_mode) &&
      static_cast<uint64_t>(info.st_size) <= state->maxBytes &&
      readAll(file.fd, bytes, static_cast<size_t>(info.st_size)))
    value = checkedValue(bytes, digest);
  if (!value) {
    // If another process has just put a whole entry in its place, that one is lost: a miss more, nothing worse.
    ::unlink(path.c_str());
    ++state->misses;
    ++state->damaged;
    return std::nullopt;
  }
  ::futimens(file.fd, nullptr);
  ++state->hits;
  bytes.erase(0, kHeaderBytes);
  return bytes;
}

void DiskCache::put(const CacheKey &key, std::string_view value) const {
  if (!enabled())
    return;
  if (value.size() + kHeaderBytes > state->maxBytes / 2) {
    ++state->failed;
    return;
  }
  const Sha256::Digest digest = digestOf(key);
  const std::string stem = state->directory + "/" + hex(digest);
  // Before the entry: a process killed between the two counts too much, and the next sweep sets that right.
  bool full = enterInLedger(state->directory, value.size() + kHeaderBytes, state->maxBytes);

  std::string temporary = stem + ".XXXXXX.tmp";
  int fd = ::mkostemps(temporary.data(), 4, O_CLOEXEC);
  bool ok = fd >= 0;
  if (ok) {
    ok = writeAll(fd, formatHeader(digest, value)) && writeAll(fd, value);
    ok = ::close(fd) == 0 && ok;
    ok = ok && ::rename(temporary.c_str(), (stem + ".entry").c_str()) == 0;
    if (!ok)
      ::unlink(temporary.c_str());
  }
  ++(ok ? state->stored : state->failed);
  if (full)
    state->evicted += sweep(state->directory, state->maxBytes);
}

CacheStats DiskCache::stats() const {
  return {state->hits, state->misses, state->stored, state->damaged, state->failed, state->evicted};
}

std::string joinBlobs(const std::vector<std::string_view> &blobs) {
  std::string out = littleEndian(blobs.size());
  for (std::string_view b : blobs) {
    out += littleEndian(b.size());
    out += b;
  }
  return out;
}

std::optional<std::vector<std::string>> splitBlobs(std::string_view bytes) {
  auto number = [&]() -> std::optional<uint64_t> {
    if (bytes.size() < kLengthBytes)
      return std::nullopt;
    uint64_t n = fromLittleEndian(bytes);
    bytes.remove_prefix(kLengthBytes);
    return n;
  };
  auto count = number();
  if (!count)
    return std::nullopt;
  std::vector<std::string> out;
  for (uint64_t i = 0; i < *count; ++i) {
    auto length = number();
    if (!length || *length > bytes.size())
      return std::nullopt;
    out.emplace_back(bytes.substr(0, *length));
    bytes.remove_prefix(*length);
  }
  if (!bytes.empty())
    return std::nullopt;
  return out;
}

} // namespace rl
