// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The safetensors reader on good files and on a table of corrupt ones, and the writer.
#include "runtime/safetensors/Safetensors.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

using namespace rl;
namespace fs = std::filesystem;

namespace {

std::string file(const std::string &header, const std::string &data = "", uint64_t length = UINT64_MAX) {
  if (length == UINT64_MAX)
    length = header.size();
  std::string out;
  for (int i = 0; i < 8; ++i)
    out += static_cast<char>(length >> (8 * i) & 0xFF);
  return out + header + data;
}

Result<SafetensorsFile> parse(const std::string &bytes) { return SafetensorsFile::parse(bytes.data(), bytes.size()); }

class SafetensorsTest : public testing::Test {
protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "safetensors-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder = pattern;
  }
  void TearDown() override { fs::remove_all(folder); }
  std::string path(const std::string &name) const { return (folder / name).string(); }
  std::string write(const std::string &name, const std::string &bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
    return path(name);
  }
  std::string read(const std::string &name) const {
    std::ifstream in(path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  size_t filesInFolder() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }
  fs::path folder;
};

TEST_F(SafetensorsTest, ReadsWhatTorchWrites) {
  // As safetensors.torch.save_file lays it out: metadata first, no spaces in the JSON, padded to a multiple of 8.
  std::string header =
      R"({"__metadata__":{"format":"pt"},"h.w":{"dtype":"BF16","shape":[2,3],"data_offsets":[8,20]},"s":{"dtype":"I64","shape":[],"data_offsets":[0,8]}})";
  header.append((8 - header.size() % 8) % 8, ' ');
  std::string bytes = file(header, std::string("\x2a\0\0\0\0\0\0\0abcdefghijkl", 20));
  auto f = parse(bytes);
  ASSERT_TRUE(f.ok()) << f.error().str();
  ASSERT_EQ(f->entries().size(), 2u);
  EXPECT_EQ(f->entries()[0].name, "s"); // in the order of the data
  const SafetensorsEntry *s = f->find("s");
  ASSERT_NE(s, nullptr);
  EXPECT_EQ(s->type, (TensorType{DType::I64, {}}));
  int64_t value = 0;
  std::memcpy(&value, s->data, 8);
  EXPECT_EQ(value, 42);
  auto w = f->get("h.w", {DType::BF16, {2, 3}});
  ASSERT_TRUE(w.ok()) << w.error().str();
  EXPECT_EQ(std::string_view(reinterpret_cast<const char *>((*w)->data), (*w)->bytes), "abcdefghijkl");
  EXPECT_EQ(f->find("h"), nullptr);
  EXPECT_EQ(f->find("__metadata__"), nullptr);
}

TEST_F(SafetensorsTest, ReadsEveryDType) {
  for (int i = 0; i < kDTypeCount; ++i) {
    auto type = static_cast<DType>(i);
    size_t bytes = 3 * dtypeSize(type);
    std::string text = file(std::string(R"({"t":{"dtype":")") + safetensorsName(type) +
                                R"(","shape":[3],"data_offsets":[0,)" + std::to_string(bytes) + "]}}",
                            std::string(bytes, '\1'));
    auto f = parse(text);
    ASSERT_TRUE(f.ok()) << f.error().str();
    auto t = f->get("t", {type, {3}});
    ASSERT_TRUE(t.ok()) << t.error().str();
    EXPECT_EQ((*t)->bytes, bytes);
  }
}

TEST_F(SafetensorsTest, EmptyFilesAndTensors) {
  EXPECT_TRUE(parse(file("{}")).ok());
  EXPECT_TRUE(parse(file("{}   ")).ok());
  EXPECT_TRUE(parse(file(R"({"__metadata__":{}})")).ok());
  // Empty tensors at the start, in the middle and at the end; both orders in the header.
  std::string bytes = file(
      R"({"d":{"dtype":"F32","shape":[0,4],"data_offsets":[8,8]},"b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
      R"("a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
      std::string(8, 'x'));
  auto f = parse(bytes);
  ASSERT_TRUE(f.ok()) << f.error().str();
  EXPECT_EQ(f->entries().size(), 3u);
  EXPECT_EQ(f->find("d")->bytes, 0u);
  EXPECT_TRUE(f->get("d", {DType::F32, {-1, 4}}).ok());
}

TEST_F(SafetensorsTest, TensorsOfOtherTypesStandBesideThoseThatAGraphNames) {
  std::string bytes = file(
      R"({"big":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},"x":{"dtype":"U8","shape":[2],"data_offsets":[8,10]},)"
      R"("f4":{"dtype":"F4","shape":[2,3],"data_offsets":[10,13]},)"
      R"("deep":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[13,14]}})",
      std::string(14, 'x'));
  auto f = parse(bytes);
  ASSERT_TRUE(f.ok()) << f.error().str();
  EXPECT_EQ(f->entries().size(), 1u);
  EXPECT_TRUE(f->get("x", {DType::U8, {2}}).ok());
  auto big = f->get("big", {DType::F32, {1}});
  ASSERT_FALSE(big.ok());
  EXPECT_EQ(big.error().str("F"), "F:/big: tensor big is F64 [1], where f32 [1] is expected");
  EXPECT_FALSE(f->get("deep", {DType::U8, {1}}).ok());
}

TEST_F(SafetensorsTest, GetNamesWhatDiffers) {
  std::string bytes = file(R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", std::string(24, 'x'));
  auto f = parse(bytes);
  ASSERT_TRUE(f.ok());
  EXPECT_TRUE(f->get("w", {DType::F32, {2, 3}}).ok());
  EXPECT_TRUE(f->get("w", {DType::F32, {-1, 3}}).ok());
  struct {
    const char *name;
    TensorType type;
    const char *text;
  } cases[] = {
      {"v", {DType::F32, {2, 3}}, "F:/v: tensor v is missing"},
      {"a/b~c", {DType::F32, {}}, "F:/a~1b~0c: tensor a/b~c is missing"},
      {"w", {DType::BF16, {2, 3}}, "F:/w: tensor w is f32 [2, 3], where bf16 [2, 3] is expected"},
      {"w", {DType::F32, {3, 2}}, "F:/w: tensor w is f32 [2, 3], where f32 [3, 2] is expected"},
      {"w", {DType::F32, {6}}, "F:/w: tensor w is f32 [2, 3], where f32 [6] is expected"},
      {"w", {DType::F32, {}}, "F:/w: tensor w is f32 [2, 3], where f32 [] is expected"},
      {"w", {DType::F32, {-1, 4}}, "F:/w: tensor w is f32 [2, 3], where f32 [any, 4] is expected"},
  };
  for (const auto &c : cases) {
    auto got = f->get(c.name, c.type);
    ASSERT_FALSE(got.ok()) << c.text;
    EXPECT_EQ(got.error().code, Code::Invalid);
    EXPECT_EQ(got.error().str("F"), c.text);
  }
}

TEST_F(SafetensorsTest, BoolsAreZeroOrOne) {
  std::string bytes = file(
      R"({"m":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]},"n":{"dtype":"BOOL","shape":[3],"data_offsets":[3,6]}})",
      std::string("\0\1\0\1\1\2", 6));
  auto f = parse(bytes);
  ASSERT_TRUE(f.ok()) << f.error().str();
  EXPECT_TRUE(f->get("m", {DType::Bool, {3}}).ok());
  auto n = f->get("n", {DType::Bool, {3}});
  ASSERT_FALSE(n.ok());
  EXPECT_EQ(n.error().str("F"), "F:/n: tensor n: element 2 is the byte 2, where a bool is 0 or 1");
}

struct Corruption {
  const char *what;
  std::string bytes;
  const char *pointer;
  const char *message; ///< a part of it
};

std::string one(const std::string &fields, size_t dataBytes = 8) {
  return file("{\"t\":{" + fields + "}}", std::string(dataBytes, 'x'));
}

std::vector<Corruption> corruptions() {
  const std::string good = R"("dtype":"F32","shape":[2],"data_offsets":[0,8])";
  const std::string data(8, 'x');
  return {
      {"nothing", "", "", "not a safetensors file: 0 bytes"},
      {"7 bytes", "\1\0\0\0\0\0\0", "", "not a safetensors file"},
      {"no header", file("", ""), "", "does not begin with '{'"},
      {"header past the end", file("{}", "", 3), "", "header runs past the end of the file"},
      {"header length of all ones", file("{}", "", UINT64_MAX - 1), "", "header runs past the end of the file"},
      {"header length 2^63", file("{}", "", uint64_t(1) << 63), "", "header runs past the end of the file"},
      {"header cut short", file(R"({"t":{)", ""), "", "header is not JSON"},
      {"leading space", file(" {}", ""), "", "does not begin with '{'"},
      {"byte order mark", file("\xEF\xBB\xBF{}", ""), "", "does not begin with '{'"},
      {"an array", file("[]", ""), "", "does not begin with '{'"},
      {"trailing comma", file("{},", ""), "", "header is not JSON"},
      {"two documents", file("{}{}", ""), "", "header is not JSON"},
      {"padding of zero bytes", file(std::string("{}\0\0", 4), ""), "", "header is not JSON"},
      {"a comment", file("{}/**/", ""), "", "header is not JSON"},
      {"not UTF-8", file("{\"\xFF\":{" + good + "}}", data), "", "header is not JSON"},
      {"an unpaired surrogate", file("{\"\\ud800\":{" + good + "}}", data), "", "header is not JSON"},
      {"an array as tensor", file(R"({"t":[]})", ""), "/t", "an object is expected, not an array"},
      {"a number as tensor", file(R"({"t":1})", ""), "/t", "an object is expected, not the number 1"},
      {"null as tensor", file(R"({"t":null})", ""), "/t", "an object is expected, not null"},
      {"a string as metadata", file(R"({"__metadata__":"x"})", ""), "/__metadata__", "object of strings"},
      {"a number in the metadata", file(R"({"__metadata__":{"a":1}})", ""), "/__metadata__", "object of strings"},
      {"an object in the metadata", file(R"({"__metadata__":{"a":{}}})", ""), "/__metadata__", "object of strings"},
      {"the metadata twice", file(R"({"__metadata__":{},"__metadata__":{}})", ""), "/__metadata__", "twice"},
      {"a name twice", file("{\"t\":{" + good + "},\"t\":{" + good + "}}", data), "/t", "stands twice"},
      {"a name twice, once escaped", file("{\"t\":{" + good + "},\"\\u0074\":{" + good + "}}", data), "/t",
       "stands twice"},
      {"no dtype", one(R"("shape":[2],"data_offsets":[0,8])"), "/t", "key 'dtype' is missing"},
      {"no shape", one(R"("dtype":"F32","data_offsets":[0,8])"), "/t", "key 'shape' is missing"},
      {"no offsets", one(R"("dtype":"F32","shape":[2])"), "/t", "key 'data_offsets' is missing"},
      {"an empty entry", one(""), "/t", "key 'dtype' is missing"},
      {"a key twice", one(good + R"(,"shape":[2])"), "/t/shape", "stands twice"},
      {"an unknown key", one(good + R"(,"strides":[1])"), "/t/strides", "unknown key 'strides'"},
      {"dtype a number", one(R"("dtype":4,"shape":[2],"data_offsets":[0,8])"), "/t/dtype", "a string is expected"},
      {"dtype unknown", one(R"("dtype":"F31","shape":[2],"data_offsets":[0,8])"), "/t/dtype", "unknown dtype 'F31'"},
      {"dtype of the graph format", one(R"("dtype":"f32","shape":[2],"data_offsets":[0,8])"), "/t/dtype",
       "unknown dtype 'f32'"},
      {"shape a number", one(R"("dtype":"F32","shape":2,"data_offsets":[0,8])"), "/t/shape", "a list of extents"},
      {"an extent below 0", one(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])"), "/t/shape", "not the number -2"},
      {"an extent 2.0", one(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])"), "/t/shape", "not the number 2.0"},
      {"an extent as text", one(R"("dtype":"F32","shape":["2"],"data_offsets":[0,8])"), "/t/shape", "not a string"},
      {"shape nested", one(R"("dtype":"F32","shape":[[2]],"data_offsets":[0,8])"), "/t/shape", "not an array"},
      {"an extent 2^63", one(R"("dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8])"), "/t/shape",
       "too large"},
      {"an extent 2^64", one(R"("dtype":"F32","shape":[18446744073709551616],"data_offsets":[0,8])"), "/t/shape",
       "not the number 18446744073709551616"},
      {"a product of 2^64", one(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0])", 0), "/t/shape",
       "overflows"},
      {"a size of 2^64", one(R"("dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0])", 0), "/t/shape",
       "overflows"},
      {"a size of 2^63", one(R"("dtype":"U8","shape":[4294967296,2147483648],"data_offsets":[0,0])", 0), "/t/shape",
       "overflows"},
      {"an overflow behind a 0", one(R"("dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0])", 0),
       "/t/shape", "overflows"},
      {"part of a byte", one(R"("dtype":"F4","shape":[3],"data_offsets":[0,2])", 2), "/t/shape", "whole bytes"},
      {"no offset", one(R"("dtype":"F32","shape":[2],"data_offsets":[])"), "/t/data_offsets", "not two offsets"},
      {"one offset", one(R"("dtype":"F32","shape":[2],"data_offsets":[0])"), "/t/data_offsets", "not two offsets"},
      {"three offsets", one(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])"), "/t/data_offsets", "more than two"},
      {"offset below 0", one(R"("dtype":"F32","shape":[2],"data_offsets":[-8,0])"), "/t/data_offsets",
       "not the number -8"},
      {"offset of 2^64", one(R"("dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551624])"), "/t/data_offsets",
       "not the number"},
      {"offsets turned", one(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])"), "/t/data_offsets", "after its end"},
      {"offset past the end", one(R"("dtype":"F32","shape":[2],"data_offsets":[8,16])"), "/t/data_offsets",
       "ends at byte 16 of the data, which has 8"},
      {"range shorter than the shape", one(R"("dtype":"F32","shape":[2],"data_offsets":[0,7])", 7), "/t/data_offsets",
       "spans 7 bytes, where F32 [2] takes 8"},
      {"range longer than the shape", one(R"("dtype":"F32","shape":[2],"data_offsets":[0,9])", 9), "/t/data_offsets",
       "spans 9 bytes"},
      {"a gap at the start", one(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])"), "/t/data_offsets",
       "a gap of 4 bytes stands before"},
      {"bytes at the end", one(good, 9), "", "1 bytes at the end of the file belong to no tensor"},
      {"data without tensors", file("{}", "x"), "", "1 bytes at the end"},
      {"an overlap",
       file(
           R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
           data),
       "/b/data_offsets", "tensor b overlaps tensor a"},
      {"the same range twice", file("{\"a\":{" + good + "},\"b\":{" + good + "}}", data), "/b/data_offsets",
       "tensor b overlaps tensor a"},
      {"an empty tensor within another",
       file(
           R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},"b":{"dtype":"U8","shape":[0],"data_offsets":[4,4]}})",
           data),
       "/b/data_offsets", "tensor b overlaps tensor a"},
      {"a gap between",
       file(
           R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
           data),
       "/b/data_offsets", "a gap of 2 bytes stands before tensor b"},
      {"an unknown name's corruption, escaped", file("{\"a\\/b~\\u001b\":{}}", ""), "/a~1b~0\\x1b",
       "tensor a/b~\\x1b: key"},
      {"very deep", file("{\"t\":" + std::string(1 << 20, '[') + std::string(1 << 20, ']') + "}", ""), "/t",
       "an object is expected"},
      {"very deep metadata", file("{\"__metadata__\":" + std::string(1 << 20, '{'), ""), "", ""},
      {"rank above 64",
       one(
           "\"dtype\":\"U8\",\"data_offsets\":[0,1],\"shape\":[1" +
               [] {
                 std::string ones;
                 for (int i = 0; i < 64; ++i)
                   ones += ",1";
                 return ones;
               }() +
               "]",
           1),
       "/t/shape", "rank above 64"},
  };
}

TEST_F(SafetensorsTest, RefusesCorruptFilesAtTheirPlace) {
  for (const Corruption &c : corruptions()) {
    SCOPED_TRACE(c.what);
    auto f = parse(c.bytes);
    ASSERT_FALSE(f.ok());
    EXPECT_EQ(f.error().code, Code::Invalid);
    EXPECT_EQ(f.error().pointer, c.pointer);
    EXPECT_NE(f.error().message.find(c.message), std::string::npos) << f.error().message;

    // From a file: the same, with its name.
    auto g = SafetensorsFile::open(write("bad", c.bytes));
    ASSERT_FALSE(g.ok());
    EXPECT_EQ(g.error().str(),
              path("bad") + (*c.pointer ? std::string(":") + c.pointer : "") + ": " + f.error().message);
  }
}

TEST_F(SafetensorsTest, EveryTruncationIsRefused) {
  std::string whole = file(
      R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},"b":{"dtype":"BF16","shape":[2],"data_offsets":[5,9]}})",
      "123456789");
  ASSERT_TRUE(parse(whole).ok());
  for (size_t n = 0; n < whole.size(); ++n) {
    std::vector<char> exact(whole.begin(),
                            whole.begin() + static_cast<std::ptrdiff_t>(n)); // so that a sanitizer sees a read past it
    EXPECT_FALSE(SafetensorsFile::parse(exact.data(), exact.size()).ok()) << n;
  }
}

TEST_F(SafetensorsTest, RefusesALongHeaderBeforeReadingIt) {
  // A sparse file: the header is 100,000,001 bytes of nothing.
  std::string p = write("long", file("", "", kSafetensorsMaxHeader + 1));
  ASSERT_EQ(::truncate(p.c_str(), static_cast<off_t>(kSafetensorsMaxHeader + 16)), 0);
  auto f = SafetensorsFile::open(p);
  ASSERT_FALSE(f.ok());
  EXPECT_NE(f.error().message.find("is longer than 100000000"), std::string::npos) << f.error().message;
}

TEST_F(SafetensorsTest, RefusesWhatIsNoFile) {
  auto missing = SafetensorsFile::open(path("none"));
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().str(), path("none") + ": cannot open: No such file or directory");
  EXPECT_EQ(missing.error().code, Code::Invalid);
  auto dir = SafetensorsFile::open(folder.string());
  ASSERT_FALSE(dir.ok());
  EXPECT_EQ(dir.error().message, "is a directory, not a file");
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  auto pipe = SafetensorsFile::open(path("pipe")); // must not hang
  ASSERT_FALSE(pipe.ok());
  EXPECT_EQ(pipe.error().message, "is not a regular file");
  EXPECT_FALSE(SafetensorsFile::open("").ok());
}

TEST_F(SafetensorsTest, ErrorsOfGetNameTheFile) {
  auto f = SafetensorsFile::open(write("in.safetensors", file("{}")));
  ASSERT_TRUE(f.ok());
  auto w = f->get("w", {DType::F32, {3, 4}});
  ASSERT_FALSE(w.ok());
  EXPECT_EQ(w.error().str(), path("in.safetensors") + ":/w: tensor w is missing");
}

TEST_F(SafetensorsTest, TheMappingOutlivesTheFile) {
  std::string p = write("x", file(R"({"t":{"dtype":"U8","shape":[3],"data_offsets":[0,3]}})", "abc"));
  auto f = SafetensorsFile::open(p);
  ASSERT_TRUE(f.ok());
  SafetensorsFile copy = *f;
  f = SafetensorsFile::open(p);
  fs::remove(p);
  EXPECT_EQ(std::to_integer<char>(copy.find("t")->data[2]), 'c');
}

TEST_F(SafetensorsTest, WritesWhatItReads) {
  std::vector<unsigned char> bytes(8 * 2 * 3);
  for (size_t i = 0; i < bytes.size(); ++i)
    bytes[i] = static_cast<unsigned char>(i & 1);
  std::vector<SafetensorsWrite> tensors;
  for (int i = 0; i < kDTypeCount; ++i) // small elements first, so that alignment needs the writer's own order
    for (auto shape : {std::vector<int64_t>{}, {0}, {3}, {2, 3}, {1, 1, 1, 1, 1, 1, 1, 3}})
      tensors.push_back({"t/" + std::to_string(i) + "\"\\\n\x01~é" + str(shape),
                         {static_cast<DType>(kDTypeCount - 1 - i), shape},
                         bytes.data()});
  ASSERT_TRUE(writeSafetensors(path("out"), tensors).ok());
  EXPECT_EQ(filesInFolder(), 1u);
  auto f = SafetensorsFile::open(path("out"));
  ASSERT_TRUE(f.ok()) << f.error().str();
  EXPECT_EQ(f->entries().size(), tensors.size());
  std::string raw = read("out");
  auto formatted = formatSafetensors(tensors);
  ASSERT_TRUE(formatted.ok());
  EXPECT_EQ(*formatted, raw);
  uint64_t header = 0;
  std::memcpy(&header, raw.data(), 8);
  EXPECT_EQ((header + 8) % 64, 0u);
  for (const SafetensorsWrite &t : tensors) {
    auto e = f->get(t.name, t.type);
    ASSERT_TRUE(e.ok()) << e.error().str();
    ASSERT_EQ((*e)->bytes, static_cast<size_t>(t.type.bytes()));
    EXPECT_EQ(std::memcmp((*e)->data, t.data, (*e)->bytes), 0);
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*e)->data) % dtypeSize(t.type.dtype), 0u) << t.name;
  }
}

TEST_F(SafetensorsTest, WritesNoTensors) {
  ASSERT_TRUE(writeSafetensors(path("out"), {}).ok());
  auto f = SafetensorsFile::open(path("out"));
  ASSERT_TRUE(f.ok()) << f.error().str();
  EXPECT_TRUE(f->entries().empty());
}

TEST_F(SafetensorsTest, WriterRefusesNamesThatTheFormatCannotHold) {
  char data[4] = {};
  TensorType type{DType::F32, {}};
  for (const auto &tensors : {std::vector<SafetensorsWrite>{{"__metadata__", type, data}},
                              {{"a", type, data}, {"a", type, data}},
                              {{"\xC3", type, data}},
                              {{"a", {DType::F32, {-1}}, data}}}) {
    Status status = writeSafetensors(path("out"), tensors);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Code::Invalid);
    EXPECT_EQ(filesInFolder(), 0u);
  }
}

TEST_F(SafetensorsTest, AFailedWriteLeavesWhatWasThere) {
  char data[4] = {1, 2, 3, 4};
  std::vector<SafetensorsWrite> tensors{{"a", {DType::F32, {}}, data}};
  Status status = writeSafetensors(path("none/out"), tensors);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::Device);
  EXPECT_EQ(status.error().str(), path("none/out") + ": cannot write: No such file or directory");
  EXPECT_FALSE(writeSafetensors(folder.string(), tensors).ok());
  EXPECT_EQ(filesInFolder(), 0u);

  // A source that cannot be read fails in the middle of the write.
  write("out", "before");
  std::vector<SafetensorsWrite> bad{{"a", {DType::U8, {1 << 20}}, reinterpret_cast<void *>(16)}};
  Status torn = writeSafetensors(path("out"), bad);
  ASSERT_FALSE(torn.ok());
  EXPECT_EQ(torn.error().code, Code::Device);
  EXPECT_EQ(read("out"), "before");
  EXPECT_EQ(filesInFolder(), 1u);
}

TEST_F(SafetensorsTest, LeftoversOfAKilledWriterAreNoObstacle) {
  char data[4] = {1, 2, 3, 4};
  for (int i = 0; i < 100; ++i)
    write(".rl-" + std::to_string(::getpid()) + "-" + std::to_string(i) + ".tmp", "left over");
  EXPECT_TRUE(writeSafetensors(path("out"), {{"a", {DType::F32, {}}, data}}).ok());
  EXPECT_EQ(filesInFolder(), 101u);
}

TEST_F(SafetensorsTest, WritesThroughLinksAndToDevices) {
  char data[4] = {1, 2, 3, 4};
  std::vector<SafetensorsWrite> tensors{{"a", {DType::F32, {}}, data}};
  write("real", "before");
  fs::create_symlink("real", path("link"));
  ASSERT_TRUE(writeSafetensors(path("link"), tensors).ok());
  EXPECT_TRUE(fs::is_symlink(path("link")));
  EXPECT_TRUE(SafetensorsFile::open(path("real")).ok());
  EXPECT_TRUE(writeSafetensors("/dev/null", tensors).ok());
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
  Status full = writeSafetensors("/dev/full", tensors);
  ASSERT_FALSE(full.ok());
  EXPECT_EQ(full.error().str(), "/dev/full: cannot write: No space left on device");
}

} // namespace
