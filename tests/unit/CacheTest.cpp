// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// SHA-256 by its standard's vectors; the disk cache alone, damaged, over its bound, unusable, and shared by processes that
// are killed while they write.
#include "runtime/cache/Cache.h"
#include "runtime/cache/Sha256.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace rl;
namespace fs = std::filesystem;

namespace {

std::string sha(std::string_view text) { return hex(Sha256::of(text)); }

TEST(Sha256Test, VectorsOfTheStandard) { // FIPS 180-4's examples, and the empty message of the validation suite
  EXPECT_EQ(sha(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(sha("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqr"
                "stnopqrstu"),
            "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
  EXPECT_EQ(sha(std::string(1'000'000, 'a')), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256Test, EveryLengthAroundTheBlock) { // the digest of 300 digests; from an independent implementation
  Sha256 all;
  for (int n = 0; n < 300; ++n) {
    std::string text;
    for (int i = 0; i < n; ++i)
      text += static_cast<char>(i * 7 + n);
    Sha256::Digest whole = Sha256::of(text);
    all.update({reinterpret_cast<const char *>(whole.data()), whole.size()});
    Sha256 pieces;
    for (size_t at = 0, step = 1; at < text.size(); at += step, step = step * 3 % 67 + 1)
      pieces.update(std::string_view(text).substr(at, step));
    EXPECT_EQ(hex(pieces.finish()), hex(whole)) << n;
  }
  EXPECT_EQ(hex(all.finish()), "d5238871a46ac4a1a75ac3fb19d645b0b3b9e5f35f5f720e2b240d605c6b694e");
}

CacheKey key(const std::string &text) { return {text, "sm_90a", "{}", "0.1.0"}; }

class CacheTest : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "cache-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root = pattern;
    folder = root / "cache";
  }
  void TearDown() override { fs::remove_all(root); }
  DiskCache open(uint64_t maxBytes = DiskCache::kDefaultBytes) const {
    return DiskCache::open(folder.string(), maxBytes);
  }
  fs::path entry(const CacheKey &k) const { return folder / (k.digest() + ".entry"); }
  size_t count(const std::string &extension) const {
    size_t n = 0;
    for (const auto &item : fs::directory_iterator(folder))
      n += item.path().extension() == extension;
    return n;
  }
  static std::string read(const fs::path &p) {
    std::ifstream in(p, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void write(const fs::path &p, const std::string &bytes) { std::ofstream(p, std::ios::binary) << bytes; }
  static void setAge(const fs::path &p, int seconds) {
    timespec times[2];
    ::clock_gettime(CLOCK_REALTIME, &times[0]);
    times[0].tv_sec -= seconds;
    times[1] = times[0];
    ASSERT_EQ(::utimensat(AT_FDCWD, p.c_str(), times, 0), 0);
  }
  fs::path root, folder;
};

TEST_F(CacheTest, MissesThenHits) {
  DiskCache cache = open();
  ASSERT_TRUE(cache.enabled()) << cache.reason();
  EXPECT_EQ(cache.directory(), folder.string());
  EXPECT_EQ(cache.get(key("a")), std::nullopt);
  std::string value("\0binary\xff\n", 9);
  cache.put(key("a"), value);
  EXPECT_EQ(cache.get(key("a")), value);
  EXPECT_EQ(cache.get(key("b")), std::nullopt);
  cache.put(key("b"), "");
  EXPECT_EQ(cache.get(key("b")), "");
  cache.put(key("a"), "other");
  EXPECT_EQ(open().get(key("a")), "other"); // another object on the same directory
  CacheStats s = cache.stats();
  EXPECT_EQ(s.hits, 2u);
  EXPECT_EQ(s.misses, 2u);
  EXPECT_EQ(s.stored, 3u);
  EXPECT_EQ(s.damaged + s.failed + s.evicted, 0u);
  EXPECT_EQ(count(".tmp"), 0u);
  EXPECT_EQ(count(".entry"), 2u);
  DiskCache copy = cache;
  (void)copy.get(key("a"));
  EXPECT_EQ(cache.stats().hits, 3u);
}

TEST_F(CacheTest, EveryPartOfTheKeyCounts) {
  std::vector<CacheKey> keys{{"a", "b", "c", "d"}, {"ab", "", "c", "d"},
                             {"a", "bc", "", "d"}, {"a", "b", "cd", ""},
                             {"", "ab", "c", "d"}, {"b", "a", "c", "d"},
                             {"a", "b", "c", "e"}, {"a", "b", "d", "c"},
                             {"", "", "", ""},     {std::string(1, '\0'), "", "", ""}};
  DiskCache cache = open();
  for (size_t i = 0; i < keys.size(); ++i)
    cache.put(keys[i], std::to_string(i));
  for (size_t i = 0; i < keys.size(); ++i)
    EXPECT_EQ(cache.get(keys[i]), std::to_string(i));
  EXPECT_EQ(count(".entry"), keys.size());
}

TEST_F(CacheTest, ATornEntryIsAMissAndDeleted) {
  DiskCache cache = open();
  cache.put(key("a"), "value");
  const std::string whole = read(entry(key("a")));
  uint64_t damaged = 0;
  auto expectDamage = [&](const std::string &bytes, const std::string &what) {
    write(entry(key("a")), bytes);
    EXPECT_EQ(cache.get(key("a")), std::nullopt) << what;
    EXPECT_FALSE(fs::exists(entry(key("a")))) << what;
    EXPECT_EQ(cache.stats().damaged, ++damaged) << what;
  };
  for (size_t n = 0; n < whole.size(); ++n)
    expectDamage(whole.substr(0, n), "cut at " + std::to_string(n));
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string flipped = whole;
    flipped[i] = static_cast<char>(flipped[i] ^ 1);
    expectDamage(flipped, "bit flipped in byte " + std::to_string(i));
  }
  expectDamage(whole + "x", "one byte more");
  cache.put(key("b"), "value");
  expectDamage(read(entry(key("b"))), "the whole entry of another key");
  write(entry(key("a")), whole);
  EXPECT_EQ(cache.get(key("a")), "value");
  write(root / "elsewhere", whole);
  fs::remove(entry(key("a")));
  fs::create_symlink(root / "elsewhere", entry(key("a")));
  EXPECT_EQ(cache.get(key("a")), std::nullopt); // links are not followed
  EXPECT_TRUE(fs::exists(root / "elsewhere"));
}

TEST_F(CacheTest, TheBoundKeepsWhatWasUsedLast) {
  constexpr uint64_t kPage = 4096;
  DiskCache cache = open(64 * kPage);
  const std::string value(3 * kPage, 'x'); // four pages with the header
  for (int i = 0; i < 16; ++i) {
    cache.put(key(std::to_string(i)), value);
    setAge(entry(key(std::to_string(i))), 1000 - i);
  }
  EXPECT_EQ(cache.stats().evicted, 0u);
  ASSERT_TRUE(cache.get(key("0"))); // the oldest, but used now
  cache.put(key("new"), value);     // over the bound: down to 48 pages, twelve entries
  EXPECT_EQ(cache.stats().evicted, 5u);
  EXPECT_EQ(count(".entry"), 12u);
  EXPECT_TRUE(cache.get(key("0")));
  EXPECT_TRUE(cache.get(key("new")));
  for (int i = 1; i < 16; ++i)
    EXPECT_EQ(cache.get(key(std::to_string(i))).has_value(), i > 5) << i;

  // The same entry stored again and again fills nothing.
  for (int i = 0; i < 100; ++i)
    cache.put(key("new"), value);
  EXPECT_EQ(count(".entry"), 12u);
  // Too large for the bound: not stored, and nothing is thrown out for it.
  cache.put(key("huge"), std::string(40 * kPage, 'x'));
  EXPECT_EQ(cache.stats().failed, 1u);
  EXPECT_EQ(count(".entry"), 12u);
}

TEST_F(CacheTest, ALostLedgerAndAbandonedFilesAreSetRightByASweep) {
  constexpr uint64_t kPage = 4096;
  for (int i = 0; i < 32; ++i)
    open().put(key(std::to_string(i)), std::string(kPage, 'x'));
  write(folder / "old.ABCDEF.tmp", "abandoned");
  setAge(folder / "old.ABCDEF.tmp", 7200);
  write(folder / "young.ABCDEF.tmp", "being written");
  fs::remove(folder / "ledger");
  fs::create_directory(folder / "ledger"); // cannot be opened for writing: every put looks for itself
  DiskCache cache = open(16 * kPage);
  cache.put(key("new"), "x");
  EXPECT_LE(count(".entry"), 12u);
  EXPECT_TRUE(cache.get(key("new")));
  EXPECT_FALSE(fs::exists(folder / "old.ABCDEF.tmp"));
  EXPECT_TRUE(fs::exists(folder / "young.ABCDEF.tmp"));
}

TEST_F(CacheTest, OffOrUnusableIsNoError) {
  write(root / "file", "");
  fs::create_directory(root / "open");
  fs::permissions(root / "open", fs::perms::all);
  struct {
    std::string where, reason;
  } cases[] = {{"off", "off"},
               {(root / "file").string(), (root / "file").string() + ": not a directory"},
               {(root / "file/below").string(), (root / "file/below").string() + ": Not a directory"},
               {(root / "open").string(), (root / "open").string() + ": others may write there"},
               {"/proc/none/cache", "/proc/none: No such file or directory"}};
  for (const auto &c : cases) {
    DiskCache cache = DiskCache::open(c.where);
    EXPECT_FALSE(cache.enabled()) << c.where;
    EXPECT_EQ(cache.reason(), c.reason);
    EXPECT_EQ(cache.directory(), "");
    cache.put(key("a"), "value");
    EXPECT_EQ(cache.get(key("a")), std::nullopt);
    EXPECT_EQ(cache.stats().misses + cache.stats().failed, 0u);
  }
  if (::geteuid() != 0) {
    fs::create_directory(root / "closed");
    fs::permissions(root / "closed", fs::perms::owner_read);
    EXPECT_EQ(DiskCache::open((root / "closed").string()).reason(), (root / "closed").string() + ": Permission denied");
    EXPECT_FALSE(DiskCache::open("/").enabled());
  } else { // root may write everywhere; a directory of another user is refused
    fs::create_directory(root / "foreign");
    ASSERT_EQ(::chown((root / "foreign").c_str(), 12345, 12345), 0);
    EXPECT_EQ(DiskCache::open((root / "foreign").string()).reason(),
              (root / "foreign").string() + ": belongs to another user");
  }
}

TEST_F(CacheTest, ADirectoryThatVanishesIsNoError) {
  DiskCache cache = open();
  fs::remove_all(folder);
  cache.put(key("a"), "value");
  EXPECT_EQ(cache.get(key("a")), std::nullopt);
  EXPECT_EQ(cache.stats().failed, 1u);
}

TEST_F(CacheTest, TheDefaultDirectoryFollowsTheEnvironment) {
  std::string xdg = (root / "xdg").string(), home = (root / "home").string();
  ::setenv("HOME", home.c_str(), 1);
  ::setenv("XDG_CACHE_HOME", xdg.c_str(), 1);
  EXPECT_EQ(DiskCache::open("").directory(), xdg + "/ridgeline");
  ::setenv("XDG_CACHE_HOME", "relative", 1); // to be ignored
  EXPECT_EQ(DiskCache::open("").directory(), home + "/.cache/ridgeline");
  ::unsetenv("XDG_CACHE_HOME");
  DiskCache cache = DiskCache::open("");
  EXPECT_EQ(cache.directory(), home + "/.cache/ridgeline");
  struct stat info;
  ASSERT_EQ(::stat(cache.directory().c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0700u);
}

std::string valueOf(int k, unsigned salt) { // says which key it is for and is long enough to be written in pieces
  std::string text = std::to_string(k) + ":" + std::to_string(salt) + ":";
  return text + std::string(1000 + (salt * 7919u + static_cast<unsigned>(k) * 104729u) % 200'000,
                            static_cast<char>('a' + salt % 26));
}

bool consistent(const std::string &value, int k) {
  unsigned salt = 0;
  int of = -1;
  return std::sscanf(value.c_str(), "%d:%u:", &of, &salt) == 2 && of == k && value == valueOf(k, salt);
}

TEST_F(CacheTest, ProcessesShareIt) {
  constexpr int kProcesses = 6, kKeys = 12, kRounds = 150;
  constexpr uint64_t kBound = 1 << 20; // small, so that sweeps run against readers and writers
  std::vector<pid_t> children;
  for (int p = 0; p < kProcesses; ++p) {
    pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      DiskCache cache = open(kBound);
      unsigned random = static_cast<unsigned>(p) + 1;
      bool good = cache.enabled();
      for (int round = 0; good && round < kRounds; ++round) {
        random = random * 1664525u + 1013904223u;
        int k = static_cast<int>(random >> 16) % kKeys;
        if (auto value = cache.get(key(std::to_string(k))))
          good = consistent(*value, k);
        else
          cache.put(key(std::to_string(k)), valueOf(k, random >> 8 & 0xFFFF));
        if (round % 3 == p % 3)
          cache.put(key(std::to_string(k)), valueOf(k, random >> 4 & 0xFFFF));
      }
      // Renaming makes entries appear whole: no reader ever sees a damaged one.
      ::_exit(good && cache.stats().damaged == 0 && cache.stats().failed == 0 ? 0 : 1);
    }
    children.push_back(child);
  }
  for (pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
  }
  EXPECT_EQ(count(".tmp"), 0u);
  uint64_t total = 0;
  for (const auto &item : fs::directory_iterator(folder))
    if (item.path().extension() == ".entry")
      total += item.file_size();
  EXPECT_GT(total, 0u);
  EXPECT_LE(total, kBound + kProcesses * 220'000u); // approximate by an entry a process
}

TEST_F(CacheTest, KilledWritersLeaveNoTornEntry) {
  constexpr int kKeys = 4;
  DiskCache cache = open();
  for (int round = 0; round < 20; ++round) {
    pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0)
      for (unsigned i = 0;; ++i)
        open().put(key(std::to_string(i % kKeys)),
                   valueOf(static_cast<int>(i % kKeys), i + static_cast<unsigned>(round)));
    std::this_thread::sleep_for(std::chrono::microseconds(2000 + 700 * round));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    for (int k = 0; k < kKeys; ++k)
      if (auto value = cache.get(key(std::to_string(k))))
        EXPECT_TRUE(consistent(*value, k));
  }
  EXPECT_EQ(cache.stats().damaged, 0u);
  EXPECT_GT(cache.stats().hits, 0u);
}

TEST_F(CacheTest, ThreadsShareIt) {
  DiskCache cache = open(1 << 20);
  std::vector<std::thread> threads;
  std::atomic<int> bad{0};
  for (unsigned t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (unsigned i = 0; i < 100; ++i) {
        int k = static_cast<int>((i * 13 + t) % 8);
        if (auto value = cache.get(key(std::to_string(k))); value && !consistent(*value, k))
          ++bad;
        cache.put(key(std::to_string(k)), valueOf(k, i));
      }
    });
  for (std::thread &t : threads)
    t.join();
  EXPECT_EQ(bad, 0);
  EXPECT_EQ(cache.stats().hits + cache.stats().misses, 400u);
  EXPECT_EQ(cache.stats().stored, 400u);
  EXPECT_EQ(cache.stats().damaged, 0u);
}

TEST(BlobsTest, RoundTripAndRefusals) {
  using Blobs = std::vector<std::string>;
  for (const Blobs &blobs : {Blobs{}, Blobs{""}, Blobs{"a"}, Blobs{"ptx", "", std::string("\0cubin", 6)}}) {
    std::string joined = joinBlobs({blobs.begin(), blobs.end()});
    EXPECT_EQ(splitBlobs(joined), blobs);
    EXPECT_EQ(splitBlobs(joined + "x"), std::nullopt);
    for (size_t n = 0; n < joined.size(); ++n)
      EXPECT_EQ(splitBlobs(joined.substr(0, n)), std::nullopt);
  }
  EXPECT_EQ(splitBlobs(std::string(16, '\xff')), std::nullopt);
}

} // namespace
