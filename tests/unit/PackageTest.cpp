// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Package directories: what is written comes back, what is damaged is refused, and replacing a directory is all or
// nothing.
#include "runtime/package/Package.h"
#include "runtime/Module.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <thread>
#include <unistd.h>

using namespace rl;
using Json = nlohmann::ordered_json;
namespace fs = std::filesystem;

namespace {

class TemporaryFolder {
public:
  TemporaryFolder() {
    std::string path = ::testing::TempDir() + "ridgeline-package-XXXXXX";
    folder = ::mkdtemp(path.data());
  }
  ~TemporaryFolder() { fs::remove_all(folder); }
  std::string operator/(const std::string &name) const { return (folder / name).string(); }
  size_t entries() const { return static_cast<size_t>(std::distance(fs::directory_iterator(folder), {})); }

private:
  fs::path folder;
};

Package sample() {
  Package p;
  p.name = "ffn \"quoted\" \xc3\xa9";
  p.version = "0.1.0";
  p.target = "cuda";
  p.arch = "sm_90a";
  p.inputs = {{"x", {DType::BF16, {4, 8}}}, {"empty", {DType::F32, {0, 3}}}};
  p.parameters = {{"w", {DType::F8E4M3, {16, 8}}}};
  p.outputs = {{"y", {DType::F32, {}}}, {"x", {DType::BF16, {4, 8}}}};
  p.buffers = {{PackageBuffer::Input, 0, 0, 64},      {PackageBuffer::Input, 1, 0, 0},
               {PackageBuffer::Parameter, 0, 0, 128}, {PackageBuffer::Output, 0, 0, 4},
               {PackageBuffer::Output, 1, 0, 64},     {PackageBuffer::Arena, 0, 256, 100}};
  p.arenaBytes = 512;
  PackageLaunch k;
  k.kernel = "ffn_0";
  k.args = {0, 2, 5, 3};
  k.grid = {2147483647, 65535, 1};
  k.block = {256, 2, 2};
  k.cluster = {1, 1, 1};
  k.blocks = int64_t(1) << 40;
  k.sharedBytes = 232448;
  k.align = 16;
  k.unalignedKernel = "ffn_0_u";
  k.unalignedGrid = {7, 1, 1};
  k.unalignedBlock = {128, 1, 1};
  k.unalignedSharedBytes = 70000;
  k.label = "linear:h, gelu:y";
  k.name = "ffn_7";
  PackageLaunch c;
  c.kind = PackageLaunch::Copy;
  c.args = {4, 0};
  c.label = "x";
  PackageLaunch g;
  g.kernel = "ffn_1";
  g.args = {0, 2, 5};
  g.grid = {12, 1, 1};
  g.block = {384, 1, 1};
  g.cluster = {2, 1, 1};
  g.align = 16;
  g.persistent = true;
  g.early = true;
  g.tensorMaps = {{.arg = 1, .dtype = DType::F8E4M3, .extents = {8, 8}, .strides = {16}, .box = {16, 8}, .swizzle = 32},
                  {.arg = 2,
                   .offset = 32,
                   .dtype = DType::BF16,
                   .extents = {8, 2, 2},
                   .strides = {16, 32},
                   .box = {64, 64, 1},
                   .swizzle = 128,
                   .l2Promotion = 128}};
  p.launches = {k, c, g};
  p.ptx = ".version 8.0\n";
  p.cubin = std::string("\x7f"
                        "ELF\0\x01\xff",
                        7);
  p.graph = "{\"ridgeline\": 1}";
  p.explain = "{}";
  return p;
}

void expectEqual(const Package &a, const Package &b) {
  EXPECT_EQ(printManifest(a), printManifest(b));
  EXPECT_EQ(a.name, b.name);
  EXPECT_EQ(a.ptx, b.ptx);
  EXPECT_EQ(a.cubin, b.cubin);
  EXPECT_EQ(a.sharedObject, b.sharedObject);
  EXPECT_EQ(a.graph, b.graph);
  EXPECT_EQ(a.explain, b.explain);
  ASSERT_EQ(a.launches.size(), b.launches.size());
  for (size_t i = 0; i < a.launches.size(); ++i) {
    const PackageLaunch &x = a.launches[i], &y = b.launches[i];
    EXPECT_EQ(x.kind, y.kind);
    EXPECT_EQ(x.kernel, y.kernel);
    EXPECT_EQ(x.args, y.args);
    EXPECT_EQ(x.grid, y.grid);
    EXPECT_EQ(x.block, y.block);
    EXPECT_EQ(x.cluster, y.cluster);
    EXPECT_EQ(x.blocks, y.blocks);
    EXPECT_EQ(x.sharedBytes, y.sharedBytes);
    EXPECT_EQ(x.align, y.align);
    EXPECT_EQ(x.unalignedKernel, y.unalignedKernel);
    EXPECT_EQ(x.name, y.name);
    EXPECT_EQ(x.unalignedGrid, y.unalignedGrid);
    EXPECT_EQ(x.unalignedBlock, y.unalignedBlock);
    EXPECT_EQ(x.unalignedCluster, y.unalignedCluster);
    EXPECT_EQ(x.unalignedSharedBytes, y.unalignedSharedBytes);
    EXPECT_EQ(x.persistent, y.persistent);
    EXPECT_EQ(x.early, y.early);
    EXPECT_EQ(x.tensorMaps, y.tensorMaps);
    EXPECT_EQ(x.label, y.label);
  }
  ASSERT_EQ(a.buffers.size(), b.buffers.size());
  for (size_t i = 0; i < a.buffers.size(); ++i) {
    EXPECT_EQ(a.buffers[i].kind, b.buffers[i].kind);
    EXPECT_EQ(a.buffers[i].index, b.buffers[i].index);
    EXPECT_EQ(a.buffers[i].offset, b.buffers[i].offset);
    EXPECT_EQ(a.buffers[i].bytes, b.buffers[i].bytes);
  }
  for (auto list : {&Package::inputs, &Package::parameters, &Package::outputs}) {
    ASSERT_EQ((a.*list).size(), (b.*list).size());
    for (size_t i = 0; i < (a.*list).size(); ++i) {
      EXPECT_EQ((a.*list)[i].name, (b.*list)[i].name);
      EXPECT_EQ((a.*list)[i].type, (b.*list)[i].type);
    }
  }
}

std::string slurp(const std::string &path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream out;
  out << in.rdbuf();
  return out.str();
}
void spill(const std::string &path, const std::string &text) { std::ofstream(path, std::ios::binary) << text; }

} // namespace

TEST(Package, RoundTrip) {
  TemporaryFolder folder;
  Package p = sample();
  ASSERT_TRUE(writePackage(p, folder / "pkg")) << writePackage(p, folder / "pkg").error().message;
  auto back = readPackage(folder / "pkg");
  ASSERT_TRUE(back) << back.error().str();
  expectEqual(p, *back);
  EXPECT_EQ(folder.entries(), 1u); // nothing is left beside it
  auto slash = readPackage(folder / "pkg/");
  EXPECT_TRUE(slash);
}

TEST(Package, RoundTripOfAnEmptyPlanNeedsNoCode) {
  TemporaryFolder folder;
  Package p;
  p.target = "cpu";
  p.arch = "x86-64-v3";
  p.inputs = {{"a~b/c", {DType::I64, {1, 1, 1, 1, 1, 1, 1, 0}}}};
  p.outputs = {{"a~b/c", {DType::I64, {1, 1, 1, 1, 1, 1, 1, 0}}}};
  ASSERT_TRUE(writePackage(p, folder / "pkg"));
  auto back = readPackage(folder / "pkg");
  ASSERT_TRUE(back) << back.error().str();
  expectEqual(p, *back);
}

TEST(Package, CodeThatIsMissingIsRefusedWhenWritten) {
  TemporaryFolder folder;
  Package p = sample();
  p.ptx.clear();
  p.cubin.clear();
  EXPECT_FALSE(writePackage(p, folder / "pkg"));
  p.target = "cpu";
  p.arch = "x86-64-v3";
  p.launches.pop_back(); // which only CUDA has
  Status s = writePackage(p, folder / "pkg");
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().code, Code::Unsupported);
  EXPECT_EQ(folder.entries(), 0u);
}

TEST(Package, ReplacesPackagesAndEmptyDirectoriesOnly) {
  TemporaryFolder folder;
  Package p = sample();
  fs::create_directory(folder / "pkg");
  ASSERT_TRUE(writePackage(p, folder / "pkg"));
  p.name = "second";
  p.explain.clear(); // and the old one's file goes with it
  ASSERT_TRUE(writePackage(p, folder / "pkg/"));
  EXPECT_FALSE(fs::exists(folder / "pkg/explain.json"));
  EXPECT_EQ(readPackage(folder / "pkg")->name, "second");
  EXPECT_EQ(folder.entries(), 1u);

  // A package with a stranger's file in it, a directory of something else, a file.
  spill(folder / "pkg/notes.txt", "mine");
  Status s = writePackage(p, folder / "pkg");
  ASSERT_FALSE(s);
  EXPECT_EQ(s.error().code, Code::Device);
  EXPECT_NE(s.error().str().find("notes.txt"), std::string::npos);
  EXPECT_EQ(slurp(folder / "pkg/notes.txt"), "mine");
  fs::create_directory(folder / "other");
  spill(folder / "other/manifest.json", "{\"name\": \"a web app\"}");
  EXPECT_FALSE(writePackage(p, folder / "other"));
  EXPECT_EQ(slurp(folder / "other/manifest.json"), "{\"name\": \"a web app\"}");
  fs::create_directory(folder / "third");
  spill(folder / "third/kernels.ptx", "x");
  EXPECT_FALSE(writePackage(p, folder / "third"));
  spill(folder / "file", "text");
  EXPECT_FALSE(writePackage(p, folder / "file"));
  EXPECT_EQ(slurp(folder / "file"), "text");
  EXPECT_EQ(folder.entries(), 4u);
}

TEST(Package, PlacesThatCannotBeWritten) {
  TemporaryFolder folder;
  Package p = sample();
  spill(folder / "file", "");
  for (const std::string &path : {folder / "missing/pkg", folder / "file/pkg", std::string("/proc/ridgeline")}) {
    Status s = writePackage(p, path);
    ASSERT_FALSE(s) << path;
    EXPECT_EQ(s.error().code, Code::Device) << path;
    EXPECT_NE(s.error().str().find(path), std::string::npos) << s.error().str();
  }
  EXPECT_FALSE(writePackage(p, ""));
  EXPECT_FALSE(writePackage(p, std::string("a\0b", 3)));
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(Package, ASymbolicLinkIsFollowed) {
  TemporaryFolder folder;
  Package p = sample();
  fs::create_directory(folder / "real");
  fs::create_directory_symlink("real", folder / "link");
  ASSERT_TRUE(writePackage(p, folder / "link"));
  EXPECT_TRUE(fs::is_symlink(folder / "link"));
  EXPECT_TRUE(readPackage(folder / "real"));
  EXPECT_TRUE(readPackage(folder / "link"));
  fs::create_directory_symlink("nowhere", folder / "dangling");
  EXPECT_FALSE(writePackage(p, folder / "dangling"));
}

TEST(Package, WritersAtTheSameTimeLeaveOneWholePackage) {
  TemporaryFolder folder;
  std::atomic<bool> stop{false};
  std::atomic<int> written{0}, torn{0};
  auto write = [&](int seed) {
    Package p = sample();
    p.name = "writer" + std::to_string(seed);
    p.graph = std::string(10000, static_cast<char>('a' + seed));
    for (int i = 0; i < 30; ++i)
      written += writePackage(p, folder / "pkg").ok();
  };
  ASSERT_TRUE(writePackage(sample(), folder / "pkg"));
  std::thread a(write, 0), b(write, 1);
  std::thread reader([&] {
    // A reader that opens files one by one may meet two generations; the checksums must tell it so.
    while (!stop) {
      auto p = readPackage(folder / "pkg");
      if (p && p->name != sample().name &&
          p->graph != std::string(10000, static_cast<char>('a' + p->name.back() - '0')))
        ++torn;
    }
  });
  a.join();
  b.join();
  stop = true;
  reader.join();
  EXPECT_GT(written, 0);
  EXPECT_EQ(torn, 0);
  EXPECT_TRUE(readPackage(folder / "pkg"));
  EXPECT_EQ(folder.entries(), 1u);
}

TEST(Package, MissingAndUnusableDirectories) {
  TemporaryFolder folder;
  for (const std::string &path :
       {folder / "missing", std::string(""), std::string("/dev/null"), std::string("/proc")}) {
    auto p = readPackage(path);
    ASSERT_FALSE(p) << path;
    EXPECT_EQ(p.error().code, Code::Invalid) << path;
  }
  // A pipe with no writer must not hang the reader.
  fs::create_directory(folder / "pipe");
  ASSERT_EQ(::mkfifo((folder / "pipe/manifest.json").c_str(), 0600), 0);
  EXPECT_FALSE(readPackage(folder / "pipe"));
}

TEST(Package, ACopyMayReplaceAParameterAndNoInput) {
  Package p;
  p.target = "cpu";
  const TensorType type{DType::F32, {2}};
  p.inputs = {{"x", type}};
  p.parameters = {{"w", type}};
  p.buffers = {{PackageBuffer::Input, 0, 0, 8}, {PackageBuffer::Parameter, 0, 0, 8}};
  PackageLaunch copy;
  copy.kind = PackageLaunch::Copy;
  copy.args = {1, 0};
  p.launches = {copy};
  EXPECT_TRUE(validatePackage(p));
  p.launches[0].args = {0, 1};
  ASSERT_FALSE(validatePackage(p));
  EXPECT_EQ(validatePackage(p).error().pointer, "/launches/0/to");
}

TEST(Package, DamagedFilesAreRefused) {
  TemporaryFolder folder;
  for (const char *name : {"kernels.ptx", "kernels.cubin", "graph.json", "explain.json"}) {
    ASSERT_TRUE(writePackage(sample(), folder / "pkg"));
    std::string path = folder / "pkg/" + name, whole = slurp(path);
    ASSERT_FALSE(whole.empty());
    for (int damage = 0; damage < 3; ++damage) {
      std::string text = whole;
      if (damage == 0)
        text.back() ^= 1;
      else if (damage == 1)
        text.pop_back();
      else
        text += '\0';
      spill(path, text);
      auto p = readPackage(folder / "pkg");
      ASSERT_FALSE(p) << name << " " << damage;
      EXPECT_EQ(p.error().code, Code::Invalid);
      EXPECT_EQ(p.error().file, path);
    }
    fs::remove(path);
    EXPECT_FALSE(readPackage(folder / "pkg")) << name;
  }
}

TEST(Package, EveryCutOfTheManifestIsRefused) {
  std::string text = printManifest(sample());
  for (size_t n = 0; n + 1 < text.size(); ++n) // the last byte is the line's end
    EXPECT_FALSE(parseManifest(std::string_view(text).substr(0, n))) << n;
  EXPECT_TRUE(parseManifest(text));
  EXPECT_FALSE(parseManifest(text + "x"));
}

TEST(Package, RandomDamageNeverCrashes) {
  const std::string text = printManifest(sample());
  std::mt19937 random(7);
  const char pool[] = "0123456789-{}[]\",:.eEtfn\\ \xff\x00";
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string damaged = text;
    for (unsigned n = random() % 4 + 1; n; --n) {
      size_t at = random() % damaged.size();
      switch (random() % 3) {
      case 0: damaged[at] = pool[random() % (sizeof pool - 1)]; break;
      case 1: damaged.erase(at, random() % 5); break;
      default: damaged.insert(at, 1, pool[random() % (sizeof pool - 1)]); break;
      }
    }
    if (auto p = parseManifest(damaged)) {
      ++accepted;
      EXPECT_TRUE(validatePackage(*p));
      EXPECT_TRUE(makeModule(*std::move(p))); // CUDA: nothing is loaded yet, but the plan is walked
    }
  }
  EXPECT_GT(accepted, 0); // names and labels may say anything
}

TEST(Package, DeepNestingAndDuplicateKeys) {
  EXPECT_FALSE(parseManifest(std::string(1000000, '[')));
  EXPECT_FALSE(parseManifest(std::string(100000, '[') + std::string(100000, ']')));
  std::string text = printManifest(sample());
  std::string twice = text;
  twice.insert(twice.find("\"name\""), "\"name\": \"other\", ");
  auto p = parseManifest(twice);
  ASSERT_FALSE(p);
  EXPECT_NE(p.error().message.find("twice"), std::string::npos) << p.error().message;
}

// Each row changes one thing of a good manifest; the error names the place.
struct Damage {
  const char *pointer; ///< where the change is
  const char *json;    ///< the new value; null: removed
  const char *place;   ///< the error's pointer starts with this
};
void PrintTo(const Damage &d, std::ostream *out) { *out << d.pointer << " := " << (d.json ? d.json : "(removed)"); }

class PackageDamage : public ::testing::TestWithParam<Damage> {};

TEST_P(PackageDamage, IsRefusedWithItsPlace) {
  Json top = Json::parse(printManifest(sample()));
  Json::json_pointer pointer(GetParam().pointer);
  if (GetParam().json)
    top[pointer] = Json::parse(GetParam().json);
  else
    top[pointer.parent_pointer()].erase(pointer.back());
  auto p = parseManifest(top.dump());
  ASSERT_FALSE(p);
  EXPECT_EQ(p.error().pointer.substr(0, std::string(GetParam().place).size()), GetParam().place) << p.error().str();
  EXPECT_FALSE(p.error().message.empty());
}

INSTANTIATE_TEST_SUITE_P(
    All, PackageDamage,
    ::testing::Values(
        Damage{"/ridgeline_package", "2", "/ridgeline_package"},
        Damage{"/ridgeline_package", "1.0", "/ridgeline_package"}, Damage{"/ridgeline_package", nullptr, ""},
        Damage{"/extra", "1", ""}, Damage{"/name", "1", "/name"}, Damage{"/name", nullptr, ""},
        Damage{"/target", "\"tpu\"", "/target"}, Damage{"/inputs", "{}", "/inputs"},
        Damage{"/inputs/0", "1", "/inputs/0"}, Damage{"/inputs/0/extra", "1", "/inputs/0"},
        Damage{"/inputs/0/dtype", "\"f64\"", "/inputs/0/dtype"}, Damage{"/inputs/0/dtype", "0", "/inputs/0/dtype"},
        Damage{"/inputs/0/name", "\"\"", "/inputs/0/name"}, Damage{"/inputs/0/name", "\"w\"", "/parameters/0/name"},
        Damage{"/inputs/0/name", "\"a\\u0000b\"", "/inputs/0/name"},
        Damage{"/inputs/0/shape/0", "-1", "/inputs/0/shape/0"}, Damage{"/inputs/0/shape/0", "1.5", "/inputs/0/shape/0"},
        Damage{"/inputs/0/shape/0", "null", "/inputs/0/shape/0"},
        Damage{"/inputs/0/shape/0", "18446744073709551615", "/inputs/0/shape/0"},
        Damage{"/inputs/0/shape", "[1,1,1,1,1,1,1,1,1]", "/inputs/0/shape"},
        Damage{"/inputs/0/shape", "[4611686018427387904,4]", "/inputs/0/shape"},
        Damage{"/inputs/1/shape", "[4611686018427387904,4,0]", "/inputs/1/shape"},
        Damage{"/inputs/0/shape/0", "5", "/buffers/0/bytes"}, Damage{"/buffers/0/kind", "\"gpu\"", "/buffers/0/kind"},
        Damage{"/buffers/0/index", "2", "/buffers/0/index"}, Damage{"/buffers/0/index", "-1", "/buffers/0/index"},
        Damage{"/buffers/0/index", nullptr, "/buffers/0"}, Damage{"/buffers/0/offset", "0", "/buffers/0"},
        Damage{"/buffers/0/bytes", "65", "/buffers/0/bytes"}, Damage{"/buffers/5/offset", "255", "/buffers/5/offset"},
        Damage{"/buffers/5/offset", "512", "/buffers/5"}, Damage{"/buffers/5/bytes", "257", "/buffers/5"},
        Damage{"/buffers/5/bytes", "-1", "/buffers/5/bytes"},
        Damage{"/buffers/5/bytes", "9223372036854775807", "/buffers/5"},
        Damage{"/buffers/5/offset", "9223372036854775552", "/buffers/5"}, Damage{"/arena_bytes", "-1", "/arena_bytes"},
        Damage{"/arena_bytes", "9223372036854775807", "/arena_bytes"}, Damage{"/arena_bytes", "300", "/buffers/5"},
        Damage{"/launches/0/kind", "\"jump\"", "/launches/0/kind"}, Damage{"/launches/0/kind", nullptr, "/launches/0"},
        Damage{"/launches/0/kernel", "\"\"", "/launches/0/kernel"},
        Damage{"/launches/0/kernel", "\"a b\"", "/launches/0/kernel"},
        Damage{"/launches/0/kernel", "\"0a\"", "/launches/0/kernel"},
        Damage{"/launches/0/args/1", "6", "/launches/0/args"}, Damage{"/launches/0/args/1", "-1", "/launches/0/args/1"},
        Damage{"/launches/0/args/1", "4294967296", "/launches/0/args/1"},
        Damage{"/launches/0/grid", "[1,1]", "/launches/0/grid"},
        Damage{"/launches/0/grid/0", "2147483648", "/launches/0"}, Damage{"/launches/0/grid/1", "65536", "/launches/0"},
        Damage{"/launches/0/grid/2", "65536", "/launches/0"}, Damage{"/launches/0/block/0", "0", "/launches/0"},
        Damage{"/launches/0/block/0", "1025", "/launches/0"}, Damage{"/launches/0/block/2", "65", "/launches/0"},
        Damage{"/launches/0/block", "[512,2,2]", "/launches/0"},
        Damage{"/launches/0/cluster/0", "0", "/launches/0/cluster"},
        Damage{"/launches/0/cluster/0", "2", "/launches/0/cluster"},
        Damage{"/launches/0/cluster", "[16,16,16]", "/launches/0/cluster"},
        Damage{"/launches/0/blocks", "-1", "/launches/0/blocks"},
        Damage{"/launches/0/shared_bytes", "232449", "/launches/0/shared_bytes"},
        Damage{"/launches/0/align", "0", "/launches/0/align"}, Damage{"/launches/0/align", "3", "/launches/0/align"},
        Damage{"/launches/0/align", "512", "/launches/0/align"},
        Damage{"/launches/0/unaligned", "{}", "/launches/0/unaligned"},
        Damage{"/launches/0/unaligned/kernel", "\"\"", "/launches/0/unaligned/kernel"},
        Damage{"/launches/0/unaligned/grid/1", "65536", "/launches/0/unaligned"},
        Damage{"/launches/0/unaligned/block/1", "0", "/launches/0/unaligned"},
        Damage{"/launches/0/unaligned/cluster/0", "2", "/launches/0/unaligned"},
        Damage{"/launches/0/unaligned/cluster", nullptr, "/launches/0/unaligned"},
        Damage{"/launches/0/unaligned/shared_bytes", "232449", "/launches/0/unaligned/shared_bytes"},
        Damage{"/launches/0/persistent", "true", "/launches/0/persistent"}, // its grid has two dimensions
        Damage{"/launches/2/persistent", "1", "/launches/2/persistent"},
        Damage{"/launches/2/early", "1", "/launches/2/early"}, Damage{"/launches/2/align", "8", "/launches/2/align"},
        Damage{"/launches/2/tensor_maps", "{}", "/launches/2/tensor_maps"},
        Damage{"/launches/2/tensor_maps/0/arg", "3", "/launches/2/tensor_maps/0/arg"},
        Damage{"/launches/2/tensor_maps/0/dtype", "\"f7\"", "/launches/2/tensor_maps/0/dtype"},
        Damage{"/launches/2/tensor_maps/0/extra", "1", "/launches/2/tensor_maps/0"},
        Damage{"/launches/2/tensor_maps/0/box", nullptr, "/launches/2/tensor_maps/0"},
        Damage{"/launches/2/tensor_maps/0/extents/0", "0", "/launches/2/tensor_maps/0/extents/0"},
        Damage{"/launches/2/tensor_maps/0/extents/0", "17", "/launches/2/tensor_maps/0"},
        Damage{"/launches/2/tensor_maps/0/extents/1", "9", "/launches/2/tensor_maps/0"},
        Damage{"/launches/2/tensor_maps/0/extents/1", "4294967297", "/launches/2/tensor_maps/0/extents"},
        Damage{"/launches/2/tensor_maps/0/extents", "[]", "/launches/2/tensor_maps/0/extents"},
        Damage{"/launches/2/tensor_maps/0/extents", "[1,1,1,1,1,1]", "/launches/2/tensor_maps/0/extents"},
        Damage{"/launches/2/tensor_maps/0/strides", "[]", "/launches/2/tensor_maps/0/strides"},
        Damage{"/launches/2/tensor_maps/0/strides/0", "8", "/launches/2/tensor_maps/0/strides"},
        Damage{"/launches/2/tensor_maps/0/strides/0", "0", "/launches/2/tensor_maps/0/strides"},
        Damage{"/launches/2/tensor_maps/0/strides/0", "32", "/launches/2/tensor_maps/0"},
        Damage{"/launches/2/tensor_maps/0/strides/0", "1099511627776", "/launches/2/tensor_maps/0/strides"},
        Damage{"/launches/2/tensor_maps/0/box", "[16]", "/launches/2/tensor_maps/0/box"},
        Damage{"/launches/2/tensor_maps/0/box/0", "8", "/launches/2/tensor_maps/0/box"},
        Damage{"/launches/2/tensor_maps/0/box/0", "48", "/launches/2/tensor_maps/0/box"},
        Damage{"/launches/2/tensor_maps/0/box/1", "257", "/launches/2/tensor_maps/0/box"},
        Damage{"/launches/2/tensor_maps/0/swizzle", "16", "/launches/2/tensor_maps/0/swizzle"},
        Damage{"/launches/2/tensor_maps/1/offset", "8", "/launches/2/tensor_maps/1/offset"},
        Damage{"/launches/2/tensor_maps/1/offset", "48", "/launches/2/tensor_maps/1"},
        Damage{"/launches/2/tensor_maps/1/l2_promotion", "32", "/launches/2/tensor_maps/1/l2_promotion"},
        Damage{"/launches/0/label", "1", "/launches/0/label"}, Damage{"/launches/0/extra", "1", "/launches/0"},
        Damage{"/launches/1/to", "0", "/launches/1"}, Damage{"/launches/1/to", "2", "/launches/1"},
        Damage{"/launches/1/from", "9", "/launches/1/from"}, Damage{"/launches/1/from", "3", "/launches/1"},
        Damage{"/launches/1/args", "[]", "/launches/1"}, Damage{"/files", "[]", "/files"},
        Damage{"/files/..~1..~1etc~1passwd", "{\"bytes\": 1, \"hash\": \"0000000000000000\"}", "/files"},
        Damage{"/files/kernels.ptx/bytes", "-1", "/files/kernels.ptx/bytes"},
        Damage{"/files/kernels.ptx/hash", "\"0\"", "/files/kernels.ptx/hash"},
        Damage{"/files/kernels.ptx/hash", "\"000000000000000G\"", "/files/kernels.ptx/hash"}));

Package withDerived() {
  Package p = sample();
  p.buffers.push_back({PackageBuffer::Derived, 0, 256, 128});
  p.derivedBytes = 512;
  PackageLaunch l = p.launches[0];
  l.args = {2, 5, 6};
  p.bindLaunches = {l};
  return p;
}

TEST(Package, WhatIsMadeAtBindingSurvivesWriting) {
  TemporaryFolder folder;
  ASSERT_TRUE(writePackage(withDerived(), folder / "pkg"));
  auto p = readPackage(folder / "pkg");
  ASSERT_TRUE(p) << p.error().str();
  expectEqual(*p, withDerived());
  EXPECT_EQ(p->derivedBytes, 512);
  ASSERT_EQ(p->bindLaunches.size(), 1u);
  EXPECT_EQ(p->bindLaunches[0].args, (std::vector<uint32_t>{2, 5, 6}));
  EXPECT_EQ(p->buffers[6].kind, PackageBuffer::Derived);
  // Code is needed for it alone, too.
  Package alone = withDerived();
  alone.launches.clear();
  alone.ptx.clear();
  alone.cubin.clear();
  EXPECT_FALSE(writePackage(alone, folder / "other"));
}

TEST(Package, WhatIsMadeAtBindingIsChecked) {
  auto pointer = [](auto damage) {
    Package p = withDerived();
    damage(p);
    Status s = validatePackage(p);
    return s ? std::string("fine") : s.error().pointer;
  };
  EXPECT_EQ(pointer([](Package &) {}), "fine");
  EXPECT_EQ(pointer([](Package &p) { p.derivedBytes = -1; }), "/derived_bytes");
  EXPECT_EQ(pointer([](Package &p) { p.derivedBytes = 300; }), "/buffers/6");
  EXPECT_EQ(pointer([](Package &p) { p.buffers[6].offset = 8; }), "/buffers/6/offset");
  EXPECT_EQ(pointer([](Package &p) { p.bindLaunches[0].args[0] = 0; }), "/bind_launches/0/args");
  EXPECT_EQ(pointer([](Package &p) { p.bindLaunches[0].args[2] = 3; }), "/bind_launches/0/args");
  EXPECT_EQ(pointer([](Package &p) { p.bindLaunches[0].args[2] = 9; }), "/bind_launches/0/args");
  EXPECT_EQ(pointer([](Package &p) { // each run replaces what is read at binding
              PackageLaunch copy = p.launches[1];
              p.buffers[5].bytes = 128;
              copy.args = {2, 5};
              p.launches.push_back(copy);
            }),
            "/bind_launches/0/args");
  EXPECT_EQ(pointer([](Package &p) { p.bindLaunches[0].kernel = ""; }), "/bind_launches/0/kernel");
  Json top = Json::parse(printManifest(withDerived()));
  top["bind_launches"][0]["args"][0] = -1;
  auto p = parseManifest(top.dump());
  ASSERT_FALSE(p);
  EXPECT_EQ(p.error().pointer, "/bind_launches/0/args/0");
}

TEST(Package, TheManifestsFilesMustHoldCode) {
  TemporaryFolder folder;
  ASSERT_TRUE(writePackage(sample(), folder / "pkg"));
  Json top = Json::parse(slurp(folder / "pkg/manifest.json"));
  top["files"].erase("kernels.ptx");
  top["files"].erase("kernels.cubin");
  spill(folder / "pkg/manifest.json", top.dump());
  auto p = readPackage(folder / "pkg");
  ASSERT_FALSE(p);
  EXPECT_EQ(p.error().pointer, "/files");
  top["target"] = "cpu";
  spill(folder / "pkg/manifest.json", top.dump());
  EXPECT_FALSE(readPackage(folder / "pkg"));
}

TEST(Package, InMemoryPackagesAreCheckedToo) {
  Package p = sample();
  p.launches[0].args.push_back(99);
  auto m = makeModule(p);
  ASSERT_FALSE(m);
  EXPECT_EQ(m.error().code, Code::Invalid);
  p = sample();
  p.target = "cpu";
  EXPECT_EQ(validatePackage(p).error().pointer, "/launches/2"); // tensor maps are CUDA's
  p = sample();
  p.inputs[0].type.shape[0] = -1; // symbolic extents are settled before a package is made
  EXPECT_FALSE(makeModule(p));
}

TEST(Package, KernelCountIsOfLaunchesThatRun) {
  Package p = sample();
  EXPECT_EQ((*makeModule(p))->kernelCount(), 2);
  p.launches.push_back(p.launches[0]);
  p.launches.back().grid.y = 0;
  EXPECT_EQ((*makeModule(p))->kernelCount(), 2);
  p.launches.back().grid.y = 1;
  EXPECT_EQ((*makeModule(p))->kernelCount(), 3);
}
