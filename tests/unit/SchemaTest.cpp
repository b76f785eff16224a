// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// graph.schema.json and the reader judge alike. Every value and every key of a set of graphs that uses each op and each
// attribute is removed, replaced by values of other kinds and given company; what the schema then refuses the reader
// and the checks must refuse, and what these refuse for its structure the schema must refuse. (Run with
// RIDGELINE_UPDATE_SCHEMA=1 to write the file anew after a change of the op table.)
#include "frontend/json/JsonReader.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>

using namespace rl;
using Json = nlohmann::ordered_json;

namespace {

const std::filesystem::path kRoot = RIDGELINE_SOURCE_DIR;

std::string readFile(const std::filesystem::path &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The part of JSON Schema 2020-12 that the schema uses. Any other keyword fails the test, so that none is overlooked.
class Validator {
public:
  explicit Validator(const Json &schema) : root(schema) {}
  bool valid(const Json &value) { return valid(root, value); }

private:
  const Json &root;
  std::map<std::string, std::regex> patterns;

  static bool isType(const std::string &type, const Json &v) {
    if (type == "object")
      return v.is_object();
    if (type == "array")
      return v.is_array();
    if (type == "string")
      return v.is_string();
    if (type == "boolean")
      return v.is_boolean();
    if (type == "number")
      return v.is_number();
    if (type == "integer")
      return v.is_number_integer(); // as the reader: 1.0 is none
    ADD_FAILURE() << "type " << type;
    return false;
  }
  static bool equal(const Json &a, const Json &b) {
    return a.type() == b.type() || (a.is_number() && b.is_number()) ? a == b : false;
  }

  bool valid(const Json &schema, const Json &v) {
    if (schema.is_boolean())
      return schema.get<bool>();
    for (const auto &[keyword, rule] : schema.items())
      if (!holds(keyword, rule, schema, v))
        return false;
    return true;
  }
  bool holds(const std::string &keyword, const Json &rule, const Json &schema, const Json &v) {
    auto any = [&](const Json &list, auto &&test) { return std::any_of(list.begin(), list.end(), test); };
    if (keyword == "$ref")
      return valid(root.at(Json::json_pointer(rule.get<std::string>().substr(1))), v);
    if (keyword == "type")
      return rule.is_array() ? any(rule, [&](const Json &t) { return isType(t, v); }) : isType(rule, v);
    if (keyword == "enum")
      return any(rule, [&](const Json &word) { return equal(word, v); });
    if (keyword == "const")
      return equal(rule, v);
    if (keyword == "anyOf")
      return any(rule, [&](const Json &s) { return valid(s, v); });
    if (keyword == "allOf")
      return std::all_of(rule.begin(), rule.end(), [&](const Json &s) { return valid(s, v); });
    if (keyword == "oneOf")
      return std::count_if(rule.begin(), rule.end(), [&](const Json &s) { return valid(s, v); }) == 1;
    if (keyword == "if")
      return !valid(rule, v) || valid(schema.at("then"), v);
    if (keyword == "then")
      return true; // with "if"
    if (keyword == "properties") {
      for (const auto &[name, s] : rule.items())
        if (v.is_object() && v.contains(name) && !valid(s, v.at(name)))
          return false;
      return true;
    }
    if (keyword == "required")
      return !v.is_object() || std::all_of(rule.begin(), rule.end(),
                                           [&](const Json &name) { return v.contains(name.get<std::string>()); });
    if (keyword == "additionalProperties") {
      if (v.is_object())
        for (const auto &[name, value] : v.items())
          if (!(schema.contains("properties") && schema.at("properties").contains(name)) && !valid(rule, value))
            return false;
      return true;
    }
    if (keyword == "propertyNames") {
      if (v.is_object())
        for (const auto &[name, value] : v.items())
          if (!valid(rule, name))
            return false;
      return true;
    }
    if (keyword == "minProperties")
      return !v.is_object() || v.size() >= rule.get<size_t>();
    if (keyword == "items")
      return !v.is_array() || std::all_of(v.begin(), v.end(), [&](const Json &e) { return valid(rule, e); });
    if (keyword == "minItems")
      return !v.is_array() || v.size() >= rule.get<size_t>();
    if (keyword == "maxItems")
      return !v.is_array() || v.size() <= rule.get<size_t>();
    if (keyword == "minLength")
      return !v.is_string() || v.get_ref<const std::string &>().size() >= rule.get<size_t>();
    if (keyword == "minimum")
      return !v.is_number() || v.get<double>() >= rule.get<double>();
    if (keyword == "maximum")
      return !v.is_number() || v.get<double>() <= rule.get<double>();
    if (keyword == "exclusiveMinimum")
      return !v.is_number() || v.get<double>() > rule.get<double>();
    if (keyword == "pattern") {
      auto [it, fresh] = patterns.try_emplace(rule.get<std::string>());
      if (fresh)
        it->second = std::regex(it->first, std::regex::ECMAScript);
      return !v.is_string() || std::regex_search(v.get_ref<const std::string &>(), it->second);
    }
    for (const char *annotation : {"$schema", "$id", "$comment", "$defs", "title", "description"})
      if (keyword == annotation)
        return true;
    ADD_FAILURE() << "keyword " << keyword;
    return false;
  }
};

class Schema : public testing::Test {
protected:
  Json schema = Json::parse(readFile(kRoot / "frontend/json/graph.schema.json"), nullptr, false);
  Validator validator{schema};
};

/// Graphs that are valid and use every op and attribute.
std::vector<std::pair<std::string, Json>> baseGraphs() {
  std::vector<std::pair<std::string, Json>> out;
  for (const auto &entry : std::filesystem::directory_iterator(kRoot / "tests/fuzz/corpus/FuzzJson")) {
    std::string text = readFile(entry.path());
    Result<GraphSpec> spec = parseGraph(text);
    if (entry.path().filename().string().starts_with("seed_") && spec.ok() && checkSpec(*spec).ok())
      out.emplace_back(entry.path().filename().string(), Json::parse(text));
  }
  return out;
}

TEST_F(Schema, FileIsMadeFromTheOpTable) {
  const std::filesystem::path path = kRoot / "frontend/json/graph.schema.json";
  if (std::getenv("RIDGELINE_UPDATE_SCHEMA"))
    std::ofstream(path, std::ios::binary) << graphSchema();
  EXPECT_TRUE(readFile(path) == graphSchema())
      << "the op table has changed: run SchemaTest with RIDGELINE_UPDATE_SCHEMA=1";
}

TEST_F(Schema, AcceptsWhatTheReaderAccepts) {
  size_t valid = 0;
  for (const char *folder : {"tests/cases", "examples/graphs", "tests/fuzz/corpus/FuzzJson"})
    for (const auto &entry : std::filesystem::recursive_directory_iterator(kRoot / folder)) {
      std::string text =
          entry.is_regular_file() && entry.path().extension() != ".safetensors" ? readFile(entry.path()) : "";
      Result<GraphSpec> spec = parseGraph(text);
      if (!spec || !checkSpec(*spec).ok())
        continue;
      ++valid;
      EXPECT_TRUE(validator.valid(Json::parse(text))) << entry.path();
      EXPECT_TRUE(validator.valid(Json::parse(printGraph(*spec)))) << entry.path();
    }
  EXPECT_GT(valid, 120u);
}

TEST_F(Schema, NamesEveryOpOnce) {
  std::multiset<std::string> named;
  for (const Json &rule : schema["$defs"]["node"]["allOf"])
    for (const Json &op : rule["if"]["properties"]["op"]["enum"])
      named.insert(op.get<std::string>());
  EXPECT_EQ(named.size(), allOps().size());
  for (const OpInfo &op : allOps())
    EXPECT_EQ(named.count(op.name), 1u) << op.name;
}

TEST_F(Schema, SpellingsOfTypes) {
  std::set<std::string> spellings;
  for (const Json &name : schema["$defs"]["dtype"]["enum"])
    spellings.insert(name.get<std::string>());
  for (const std::string &name : spellings)
    EXPECT_TRUE(parseDType(name)) << name;
  // Whatever else might be a spelling: if the reader takes it the schema lists it.
  for (const char *stem : {"f32",           "f16",         "bf16",        "f8e4m3",
                           "f8e5m2",        "f8e8m0",      "i8",          "u8",
                           "i32",           "i64",         "bool",        "float32",
                           "float",         "float16",     "half",        "bfloat16",
                           "float8_e4m3fn", "float8_e4m3", "float8_e5m2", "float8_e8m0fnu",
                           "float8_e8m0",   "f8_e4m3",     "f8_e5m2",     "f8_e8m0",
                           "int8",          "uint8",       "int32",       "int64",
                           "int",           "long",        "f64",         "float64",
                           "double",        "i16",         "u16",         "u32",
                           "u64",           "int16",       "b8",          "uint32",
                           "boolean"}) {
    std::string upper = stem;
    for (char &c : upper)
      c = static_cast<char>(std::toupper(c));
    for (const std::string &name : {std::string(stem), upper, "torch." + std::string(stem)})
      EXPECT_EQ(parseDType(name).has_value(), spellings.count(name) == 1) << name;
  }
}

/// Whether an error of the checks is about structure, which a schema can see, by its wording.
bool isStructural(const std::string &message) {
  for (const char *part : {"unknown attribute",
                           "unknown op",
                           " is missing",
                           "must be true or false",
                           "must be an integer",
                           "must be a number",
                           "must be a string",
                           "must be the name of a type",
                           "is not the name of a type",
                           "must be a list of",
                           "' must be f",
                           "' must be tensor",
                           "' must be symmetric",
                           "' must be none",
                           "' must be keep",
                           "operand, not",
                           "operands, not",
                           "results, not",
                           "result, not",
                           "must be an identifier",
                           "needs at least one",
                           "name must not be empty",
                           "is negative",
                           "must have one or two extents"})
    if (message.find(part) != std::string::npos)
      return true;
  return false;
}

TEST_F(Schema, JudgesMutatedGraphsAsTheReaderDoes) {
  const auto bases = baseGraphs();
  ASSERT_GT(bases.size(), 10u);
  const Json values[] = {nullptr,
                         true,
                         0,
                         -1,
                         7,
                         1.5,
                         "zzz",
                         "",
                         "f32",
                         "fused",
                         Json::array(),
                         Json::object(),
                         Json::array({1}),
                         Json::array({nullptr}),
                         Json::array({0, 1, 2, 3, 4, 5, 6, 7, 8}),
                         Json::array({"x", 1.5}),
                         Json{{"x", "x"}}};
  size_t total = 0, refusedByBoth = 0, semantic = 0, accepted = 0, structuralInChecks = 0;
  auto judge = [&](const std::string &base, const std::string &what, const Json &mutant) {
    ++total;
    std::string text = mutant.dump();
    bool bySchema = validator.valid(mutant);
    Result<GraphSpec> spec = parseGraph(text);
    std::optional<Error> error;
    bool structural = false;
    if (!spec) {
      error = spec.error();
      structural = true;
    } else if (Result<Signature> signature = checkSpec(*spec); !signature) {
      error = signature.error();
      structural = isStructural(error->message);
      structuralInChecks += structural;
    }
    if (!bySchema)
      EXPECT_TRUE(error) << base << ": " << what << " is refused by the schema alone: " << text.substr(0, 2000);
    if (structural)
      EXPECT_FALSE(bySchema) << base << ": " << what << " is refused by the reader alone: " << error->str();
    if (error)
      EXPECT_EQ(error->code, Code::Invalid);
    (!error ? accepted : !bySchema ? refusedByBoth : semantic) += 1;
    return !testing::Test::HasFailure();
  };
  for (const auto &[name, base] : bases) {
    const Json flat = base.flatten();
    // Every place: those of the leaves and of all that contains them.
    std::set<std::string> places{""};
    for (const auto &[pointer, leaf] : flat.items())
      for (std::string p = pointer; !p.empty(); p = p.substr(0, p.rfind('/')))
        places.insert(p);
    for (const std::string &place : places) {
      const Json::json_pointer at(place);
      for (const Json &value : values) {
        Json mutant = base;
        mutant[at] = value;
        if (!judge(name, place + " = " + value.dump(), mutant))
          return;
      }
      if (base[at].is_object()) {
        Json mutant = base;
        mutant[at]["zzz"] = 1;
        if (!judge(name, place + " with a key zzz", mutant))
          return;
      }
      if (base[at].is_array()) {
        Json mutant = base;
        mutant[at].push_back(base[at].empty() ? Json(1) : base[at].back());
        if (!judge(name, place + " with its last element twice", mutant))
          return;
      }
      if (!place.empty()) {
        Json mutant = base;
        Json &parent = mutant[at.parent_pointer()];
        if (parent.is_array())
          parent.erase(std::stoul(at.back()));
        else
          parent.erase(at.back());
        if (!judge(name, place + " removed", mutant))
          return;
      }
    }
  }
  // The test itself works: there is enough of each outcome.
  EXPECT_GT(total, 20000u);
  EXPECT_GT(refusedByBoth, total / 3);
  EXPECT_GT(semantic, 1000u);
  EXPECT_GT(accepted, 500u);
  EXPECT_GT(structuralInChecks, 3000u);
}

TEST_F(Schema, BaseGraphsUseEveryOpAndAttribute) {
  std::set<std::pair<std::string, std::string>> used;
  for (const auto &[name, base] : baseGraphs())
    for (const Json &node : base["nodes"]) {
      used.emplace(node["op"].get<std::string>(), "");
      if (node.contains("attrs"))
        for (const auto &[attr, value] : node["attrs"].items())
          used.emplace(node["op"].get<std::string>(), attr);
    }
  for (const OpInfo &op : allOps()) {
    EXPECT_TRUE(used.count({op.name, ""})) << op.name;
    for (const AttrInfo &attr : op.attrs)
      EXPECT_TRUE(used.count({op.name, attr.name})) << op.name << " " << attr.name;
  }
}

/// Each attribute of each op with a value of every other kind: refused by both, at the attribute.
TEST_F(Schema, AttributesOfTheWrongKind) {
  size_t tried = 0;
  for (const auto &[name, base] : baseGraphs())
    for (size_t n = 0; n < base["nodes"].size(); ++n) {
      const Json &node = base["nodes"][n];
      if (!node.contains("attrs"))
        continue;
      const OpInfo &op = *findOp(node["op"].get<std::string>());
      for (const AttrInfo &attr : op.attrs) {
        auto takes = [&](const Json &v) {
          switch (attr.type) {
          case AttrInfo::Boolean: return v.is_boolean();
          case AttrInfo::Integer: return v.is_number_integer();
          case AttrInfo::Number: return v.is_number();
          case AttrInfo::ScalarValue: return v.is_number() || v.is_boolean();
          case AttrInfo::String:
          case AttrInfo::DTypeName: return v.is_string();
          case AttrInfo::IntList:
          case AttrInfo::Shape: return v.is_array();
          }
          return false;
        };
        for (const Json &value : {Json(true), Json(1), Json(1.0), Json("word"), Json::array({1})}) {
          if (takes(value))
            continue;
          Json mutant = base;
          mutant["nodes"][n]["attrs"][attr.name] = value;
          Result<GraphSpec> spec = parseGraph(mutant.dump());
          ASSERT_TRUE(spec.ok());
          Result<Signature> signature = checkSpec(*spec);
          ASSERT_FALSE(signature.ok()) << mutant["nodes"][n];
          EXPECT_EQ(signature.error().pointer, "/nodes/" + std::to_string(n) + "/attrs/" + attr.name);
          EXPECT_FALSE(validator.valid(mutant)) << mutant["nodes"][n];
          ++tried;
        }
      }
    }
  EXPECT_GT(tried, 500u);
}

} // namespace
