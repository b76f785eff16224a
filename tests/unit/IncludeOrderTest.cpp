// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The house's order, held by reading the sources: ir <- passes <- compiler <- frontend, each including itself and what
// stands before it; runtime includes only itself; of runtime, everybody may include base, the compiler the package header,
// the frontend everything. Also: which folders may see MLIR, LLVM or CUDA headers, no headers in a ring, no file over
// 800 lines, and the licence named at each file's start.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace fs = std::filesystem;

namespace {

constexpr size_t kMaxLines = 800;
const std::string kIdentifier = "SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception";
const std::string kLicence = "// " + kIdentifier + "\n";

struct Source {
  std::string path; ///< from the project's root
  std::string text;
};

struct Include {
  size_t line = 0; ///< from 1
  std::string path;
  bool quoted = false; ///< "path", not <path>
};

/// The includes of a C++ or TableGen file. Comments and strings are skipped, continuation lines are not a thing here.
std::vector<Include> includesOf(const Source &source) {
  const bool tableGen = source.path.ends_with(".td");
  std::vector<Include> out;
  std::istringstream in(source.text);
  std::string line;
  bool inComment = false;
  for (size_t number = 1; std::getline(in, line); ++number) {
    if (inComment) {
      size_t end = line.find("*/");
      if (end == std::string::npos)
        continue;
      line.erase(0, end + 2);
      inComment = false;
    }
    for (size_t start = line.find("/*"); start != std::string::npos; start = line.find("/*", start)) {
      if (size_t slashes = line.find("//"); slashes < start)
        break;
      size_t end = line.find("*/", start + 2);
      inComment = end == std::string::npos;
      line.erase(start, inComment ? std::string::npos : end + 2 - start);
    }
    size_t at = line.find_first_not_of(" \t");
    if (at == std::string::npos)
      continue;
    if (!tableGen) {
      if (line[at] != '#')
        continue;
      at = line.find_first_not_of(" \t", at + 1);
    }
    if (at == std::string::npos || line.compare(at, 7, "include") != 0)
      continue;
    at = line.find_first_not_of(" \t", at + 7);
    if (at == std::string::npos || (line[at] != '"' && line[at] != '<'))
      continue;
    size_t end = line.find(line[at] == '"' ? '"' : '>', at + 1);
    if (end != std::string::npos)
      out.push_back({number, line.substr(at + 1, end - at - 1), line[at] == '"'});
  }
  return out;
}

std::string firstPart(const std::string &path) {
  size_t slash = path.find('/');
  return slash == std::string::npos ? std::string() : path.substr(0, slash);
}

const std::vector<std::string> kHouse{"ir", "passes", "compiler", "frontend", "runtime"};
bool isHouse(const std::string &part) { return std::find(kHouse.begin(), kHouse.end(), part) != kHouse.end(); }

/// Why `from` may not include `to` (both from the project's root); nothing where it may.
std::optional<std::string> wrongArrow(const std::string &from, const std::string &to) {
  const std::string of = firstPart(from), what = firstPart(to);
  if (of == what || !isHouse(of)) // tests and examples may include everything
    return std::nullopt;
  if (what == "tests")
    return "the product includes no test";
  if (what == "runtime") {
    if (to.starts_with("runtime/base/") || of == "frontend")
      return std::nullopt;
    if (of == "compiler" && to == "runtime/package/Package.h")
      return std::nullopt;
    return of + " may include of runtime only base" + (of == "compiler" ? " and package/Package.h" : "");
  }
  if (of == "runtime")
    return "runtime includes nothing of " + what;
  auto place = [](const std::string &part) { return std::find(kHouse.begin(), kHouse.end(), part) - kHouse.begin(); };
  if (place(what) > place(of))
    return of + " stands before " + what + " and may not include it";
  return std::nullopt;
}

/// Why `from` may not include the outside header `header`.
std::optional<std::string> wrongOutsider(const std::string &from, const std::string &header) {
  auto in = [&](std::initializer_list<const char *> folders) {
    return std::any_of(folders.begin(), folders.end(), [&](const char *f) { return from.starts_with(f); });
  };
  const std::string part = firstPart(header);
  if (part == "mlir" || part == "llvm" || part == "llvm-c" || part == "lld") {
    if (in({"runtime/", "frontend/", "ir/graph/", "ir/interp/", "ir/index/", "passes/cost/"}))
      return "no LLVM or MLIR header belongs here";
  }
  if (part == "CLI" && !from.starts_with("frontend/cli/"))
    return "the command line's library is the command line's alone";
  if (header == "cuda.h" || header.starts_with("cuda_") || header == "nvrtc.h" || header == "nvml.h")
    return "the project is built without a CUDA toolkit";
  return std::nullopt;
}

/// Every breach in the given sources, as "path:line: why".
std::vector<std::string> breaches(const std::vector<Source> &sources) {
  std::vector<std::string> out;
  std::set<std::string> known;
  for (const Source &s : sources)
    known.insert(s.path);
  std::map<std::string, std::set<std::string>> uses; // header -> headers, to find rings
  for (const Source &s : sources) {
    auto lines = static_cast<size_t>(std::count(s.text.begin(), s.text.end(), '\n')) +
                 (!s.text.empty() && s.text.back() != '\n');
    if (lines > kMaxLines)
      out.push_back(s.path + ": " + std::to_string(lines) + " lines, more than " + std::to_string(kMaxLines));
    if (!s.path.ends_with(".py") && !s.path.ends_with(".def") &&
        s.text.substr(0, 400).find(kIdentifier) == std::string::npos)
      out.push_back(s.path + ": no licence line at its start");
    for (const Include &i : includesOf(s)) {
      const std::string place = s.path + ":" + std::to_string(i.line) + ": ";
      std::string target = i.path;
      if (i.quoted && !isHouse(firstPart(target))) { // beside the file, which may climb out of its folder
        std::string beside = (fs::path(s.path).parent_path() / target).lexically_normal().generic_string();
        if (known.count(beside))
          target = beside;
        if (target.find("..") != std::string::npos || (target != i.path && i.path.find("..") != std::string::npos))
          out.push_back(place + "include from the project's root, not " + i.path);
      }
      if (isHouse(firstPart(target)) || firstPart(target) == "tests") {
        if (auto why = wrongArrow(s.path, target))
          out.push_back(place + *why + " (" + i.path + ")");
        // Generated files are not in the source tree.
        if (!known.count(target) && !target.ends_with(".inc") && !target.ends_with(".def"))
          out.push_back(place + "there is no " + target);
      } else if (target == "ridgeline.h") {
        if (isHouse(firstPart(s.path)) && !s.path.starts_with("runtime/") && !s.path.starts_with("frontend/"))
          out.push_back(place + "the C interface belongs to runtime and frontend");
      } else if (auto why = wrongOutsider(s.path, target)) {
        out.push_back(place + *why + " (" + i.path + ")");
      }
      if (s.path.ends_with(".h") && known.count(target))
        uses[s.path].insert(target);
    }
  }
  // Rings of headers: depth first, with the path taken.
  std::map<std::string, int> colour;
  std::vector<std::string> trail;
  auto visit = [&](auto &&self, const std::string &h) -> void {
    colour[h] = 1;
    trail.push_back(h);
    for (const std::string &next : uses[h]) {
      if (colour[next] == 1) {
        std::string ring;
        for (auto it = std::find(trail.begin(), trail.end(), next); it != trail.end(); ++it)
          ring += *it + " -> ";
        out.push_back(h + ": headers in a ring: " + ring + next);
      } else if (colour[next] == 0) {
        self(self, next);
      }
    }
    trail.pop_back();
    colour[h] = 2;
  };
  std::vector<std::string> headers;
  for (const auto &[h, unused] : uses)
    headers.push_back(h);
  for (const std::string &h : headers)
    if (colour[h] == 0)
      visit(visit, h);
  return out;
}

std::vector<Source> projectSources() {
  std::vector<Source> out;
  const fs::path root = RIDGELINE_SOURCE_DIR;
  std::vector<std::string> folders = kHouse;
  folders.insert(folders.end(), {"tests", "examples"});
  for (const std::string &folder : folders) {
    if (!fs::exists(root / folder))
      continue;
    for (const auto &item : fs::recursive_directory_iterator(root / folder)) {
      static const std::set<std::string> kKinds{".h", ".cpp", ".c", ".td", ".def", ".py"};
      if (!item.is_regular_file() || !kKinds.count(item.path().extension().string()))
        continue;
      std::ifstream in(item.path(), std::ios::binary);
      std::stringstream text;
      text << in.rdbuf();
      out.push_back({item.path().lexically_relative(root).generic_string(), text.str()});
    }
  }
  return out;
}

TEST(IncludeOrderTest, TheProjectKeepsIt) {
  std::vector<Source> sources = projectSources();
  EXPECT_GT(sources.size(), 40u) << "the sources were not found under " RIDGELINE_SOURCE_DIR;
  std::set<std::string> seen;
  size_t includes = 0;
  for (const Source &s : sources) {
    seen.insert(firstPart(s.path));
    includes += includesOf(s).size();
  }
  for (const std::string &part : kHouse)
    EXPECT_TRUE(seen.count(part)) << part;
  EXPECT_GT(includes, 200u);
  for (const std::string &b : breaches(sources))
    ADD_FAILURE() << b;
}

TEST(IncludeOrderTest, EveryBreachIsFound) {
  std::vector<Source> base;
  for (const char *path :
       {"ir/graph/Graph.h", "ir/dialect/Ridge.h", "passes/Pipeline.h", "compiler/emit/Emit.h", "frontend/api/Builder.h",
        "runtime/base/Result.h", "runtime/package/Package.h", "runtime/cache/Cache.h", "tests/numeric/Random.h"})
    base.push_back({path, kLicence});
  struct Case {
    const char *from, *text;
    const char *breach; ///< null: allowed
  } cases[] = {
      // Forward, and to itself.
      {"passes/A.cpp", "#include \"ir/graph/Graph.h\"\n", nullptr},
      {"compiler/A.cpp", "#include \"passes/Pipeline.h\"\n#include \"ir/dialect/Ridge.h\"\n", nullptr},
      {"compiler/A.cpp", "#include \"runtime/package/Package.h\"\n", nullptr},
      {"frontend/A.cpp", "#include \"compiler/emit/Emit.h\"\n#include \"runtime/cache/Cache.h\"\n", nullptr},
      {"ir/A.cpp", "#include \"runtime/base/Result.h\"\n#include <vector>\n", nullptr},
      {"runtime/A.cpp", "#include \"runtime/package/Package.h\"\n", nullptr},
      {"ir/dialect/A.cpp", "#include \"mlir/IR/Builders.h\"\n#include \"ir/dialect/Ops.h.inc\"\n", nullptr},
      {"tests/A.cpp", "#include \"frontend/api/Builder.h\"\n#include \"tests/numeric/Random.h\"\n", nullptr},
      {"frontend/cli/A.cpp", "#include <CLI/CLI.hpp>\n", nullptr},
      {"tests/A.cpp", "#include \"ridgeline.h\"\n", nullptr},
      {"examples/embed_c/A.c", "#include \"ridgeline.h\"\n", nullptr},
      {"ir/A.cpp",
       "// #include \"passes/Pipeline.h\"\n/* #include \"passes/Pipeline.h\"\n#include \"passes/Pipeline.h\" */\n",
       nullptr},
      {"frontend/api/A.cpp", "#include \"Builder.h\"\n", nullptr},
      // Back.
      {"ir/A.cpp", "#include \"passes/Pipeline.h\"\n", "ir/A.cpp:1: ir stands before passes"},
      {"ir/A.cpp", "\n\n  #  include \"compiler/emit/Emit.h\" // why\n", "ir/A.cpp:3: ir stands before compiler"},
      {"ir/A.cpp", "/* a */ #include \"frontend/api/Builder.h\"\n", "ir/A.cpp:1: ir stands before frontend"},
      {"ir/A.cpp", "#include <passes/Pipeline.h>\n", "ir/A.cpp:1: ir stands before passes"},
      {"passes/A.h", "#include \"compiler/emit/Emit.h\"\n", "passes stands before compiler"},
      {"passes/A.h", "#include \"frontend/api/Builder.h\"\n", "passes stands before frontend"},
      {"compiler/A.h", "#include \"frontend/api/Builder.h\"\n", "compiler stands before frontend"},
      {"ir/A.td", "include \"passes/Passes.td\"\n", "ir/A.td:1: ir stands before passes"},
      {"ir/graph/A.cpp", "#include \"../../passes/Pipeline.h\"\n", "ir stands before passes"},
      {"ir/graph/A.cpp", "#include \"../dialect/Ridge.h\"\n", "include from the project's root"},
      // The runtime's walls.
      {"runtime/A.cpp", "#include \"ir/graph/Graph.h\"\n", "runtime includes nothing of ir"},
      {"runtime/A.cpp", "#include \"passes/Pipeline.h\"\n", "runtime includes nothing of passes"},
      {"runtime/A.cpp", "#include \"compiler/emit/Emit.h\"\n", "runtime includes nothing of compiler"},
      {"runtime/A.cpp", "#include \"frontend/api/Builder.h\"\n", "runtime includes nothing of frontend"},
      {"ir/A.cpp", "#include \"runtime/package/Package.h\"\n", "ir may include of runtime only base"},
      {"passes/A.cpp", "#include \"runtime/cache/Cache.h\"\n", "passes may include of runtime only base"},
      {"compiler/A.cpp", "#include \"runtime/cache/Cache.h\"\n",
       "compiler may include of runtime only base and package"},
      // Outsiders.
      {"runtime/A.cpp", "#include <llvm/ADT/SmallVector.h>\n", "no LLVM or MLIR header"},
      {"frontend/api/A.h", "#include \"mlir/IR/Builders.h\"\n", "no LLVM or MLIR header"},
      {"ir/interp/A.h", "#include \"mlir/IR/Builders.h\"\n", "no LLVM or MLIR header"},
      {"passes/cost/A.h", "#include \"llvm/ADT/SmallVector.h\"\n", "no LLVM or MLIR header"},
      {"runtime/cuda/A.h", "#include <cuda.h>\n", "without a CUDA toolkit"},
      {"runtime/cuda/A.h", "#include <cuda_runtime.h>\n", "without a CUDA toolkit"},
      {"frontend/api/A.h", "#include <CLI/CLI.hpp>\n", "the command line's alone"},
      {"ir/A.cpp", "#include \"tests/numeric/Random.h\"\n", "the product includes no test"},
      {"passes/A.cpp", "#include \"ridgeline.h\"\n", "belongs to runtime and frontend"},
      // What is not there, and rings.
      {"ir/A.cpp", "#include \"ir/graph/Grpah.h\"\n", "there is no ir/graph/Grpah.h"},
      {"ir/A.h", "#include \"ir/A.h\"\n", "headers in a ring: ir/A.h -> ir/A.h"},
  };
  for (const Case &c : cases) {
    std::vector<Source> sources = base;
    sources.push_back({c.from, c.text + kLicence}); // behind, so that the lines above count from 1
    std::vector<std::string> found = breaches(sources);
    if (!c.breach) {
      EXPECT_TRUE(found.empty()) << c.from << ": " << c.text << found.front();
      continue;
    }
    EXPECT_TRUE(std::any_of(found.begin(), found.end(),
                            [&](const std::string &f) { return f.find(c.breach) != std::string::npos; }))
        << c.from << ": " << c.text << "expected: " << c.breach;
  }

  std::vector<Source> ring{{"ir/A.h", kLicence + "#include \"ir/B.h\"\n"},
                           {"ir/B.h", kLicence + "#include \"ir/C.h\"\n"},
                           {"ir/C.h", kLicence + "#include \"ir/A.h\"\n"}};
  ASSERT_EQ(breaches(ring).size(), 1u);
  EXPECT_EQ(breaches(ring)[0], "ir/C.h: headers in a ring: ir/A.h -> ir/B.h -> ir/C.h -> ir/A.h");
}

TEST(IncludeOrderTest, LongFilesAndFilesWithoutLicenceAreFound) {
  auto lines = [](size_t n) { // with the licence
    std::string text = kLicence;
    for (size_t i = 1; i < n; ++i)
      text += "x\n";
    return text;
  };
  EXPECT_TRUE(breaches({{"ir/A.cpp", lines(800)}}).empty());
  ASSERT_EQ(breaches({{"ir/A.cpp", lines(801)}}).size(), 1u);
  EXPECT_EQ(breaches({{"ir/A.cpp", lines(801)}})[0], "ir/A.cpp: 801 lines, more than 800");
  EXPECT_EQ(breaches({{"ir/A.cpp", lines(800) + "x"}}), breaches({{"ir/A.cpp", lines(801)}}));
  ASSERT_EQ(breaches({{"ir/A.cpp", "int x;\n"}}).size(), 1u);
  EXPECT_EQ(breaches({{"ir/A.cpp", "int x;\n"}})[0], "ir/A.cpp: no licence line at its start");
}

} // namespace
