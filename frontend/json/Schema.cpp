// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The JSON Schema of graph files, made from the op table. graph.schema.json is this text; SchemaTest holds the two
// together, and holds the schema to the reader.
#include "frontend/json/JsonReader.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <iterator>

namespace rl {
namespace {

using Json = nlohmann::ordered_json;

Json ref(const char *definition) { return {{"$ref", std::string("#/$defs/") + definition}}; }

Json object(Json properties, Json required, const char *description = nullptr) {
  Json out = {{"type", "object"}};
  if (description)
    out["description"] = description;
  out["properties"] = std::move(properties);
  if (!required.empty())
    out["required"] = std::move(required);
  out["additionalProperties"] = false;
  return out;
}

/// All spellings of the types that `choices` ("f32|f16", null: all) names.
Json dtypeNames(const char *choices) {
  std::vector<std::string> names;
  auto add = [&](std::string name) {
    auto type = parseDType(name);
    bool among =
        !choices || (type && ("|" + std::string(choices) + "|").find("|" + std::string(dtypeName(*type)) + "|") !=
                                 std::string::npos);
    if (type && among && std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(std::move(name));
  };
  for (int t = 0; t < kDTypeCount; ++t)
    add(dtypeName(static_cast<DType>(t)));
  for (const char *torch : {"float32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "int8",
                            "uint8", "int32", "int64"})
    add(torch);
  for (int t = 0; t < kDTypeCount; ++t)
    add(safetensorsName(static_cast<DType>(t)));
  return {{"enum", names}};
}

Json words(std::string_view choices) {
  std::vector<std::string> names;
  for (size_t bar; (bar = choices.find('|')) != std::string_view::npos; choices.remove_prefix(bar + 1))
    names.emplace_back(choices.substr(0, bar));
  names.emplace_back(choices);
  return {{"enum", names}};
}

Json attribute(OpKind op, const AttrInfo &attr) {
  std::string_view name = attr.name;
  switch (attr.type) {
  case AttrInfo::Boolean: return {{"type", "boolean"}};
  case AttrInfo::Integer: return ref("integer");
  case AttrInfo::Number: return {{"type", "number"}};
  case AttrInfo::ScalarValue: return ref("scalar");
  case AttrInfo::String: return attr.choices ? words(attr.choices) : Json{{"type", "string"}};
  case AttrInfo::DTypeName: return attr.choices ? dtypeNames(attr.choices) : ref("dtype");
  case AttrInfo::IntList:
    return ref(name.starts_with("block") ? "block" : name == "low" || name == "high" ? "padding" : "integers");
  case AttrInfo::Shape: break;
  }
  return ref(op == OpKind::Reshape ? "reshaped" : "shape");
}

/// What an op asks of its node: how many operands and results, which attributes.
Json nodeRule(const OpInfo &info) {
  Json inputs = {{"minItems", info.minInputs}};
  if (info.maxInputs >= 0)
    inputs["maxItems"] = info.maxInputs;
  Json attrs = Json::object(), required = Json::array();
  for (const AttrInfo &attr : info.attrs) {
    attrs[attr.name] = attribute(info.kind, attr);
    if (attr.required)
      required.push_back(attr.name);
  }
  Json rule = {{"properties",
                {{"inputs", inputs},
                 {"outputs", {{"minItems", info.minOutputs}, {"maxItems", info.maxOutputs}}},
                 {"attrs", object(attrs, required)}}}};
  rule["properties"]["attrs"].erase("type"); // said once, of all nodes
  if (!required.empty())
    rule["required"] = {"attrs"};
  return rule;
}

Json node() {
  Json names = Json::array();
  // Ops with the same rule share it.
  std::vector<std::pair<Json, Json>> rules; // rule, names
  for (const OpInfo &info : allOps()) {
    names.push_back(info.name);
    Json rule = nodeRule(info);
    auto known = std::find_if(rules.begin(), rules.end(), [&](const auto &r) { return r.first == rule; });
    if (known == rules.end()) {
      rules.emplace_back(std::move(rule), Json::array());
      known = std::prev(rules.end());
    }
    known->second.push_back(info.name);
  }
  Json operands = {{"type", "array"}, {"items", {{"anyOf", {ref("name"), ref("scalar")}}}}};
  Json results = {{"type", "array"}, {"items", ref("name")}};
  Json out = object({{"op", {{"enum", names}}},
                     {"inputs", operands},
                     {"outputs", results},
                     {"attrs", {{"type", "object"}}},
                     {"precision", ref("pin")},
                     {"source", {{"type", "string"}}}},
                    {"op", "inputs", "outputs"});
  Json all = Json::array();
  for (auto &[rule, ops] : rules) {
    Json is = {{"properties", {{"op", {{"enum", ops}}}}}, {"required", {"op"}}};
    all.push_back({{"if", is}, {"then", rule}});
  }
  out["allOf"] = all;
  return out;
}

} // namespace

std::string graphSchema() {
  Json extent = {{"type", "integer"}, {"minimum", 0}};
  Json tensors = {
      {"type", "object"},
      {"propertyNames", ref("name")},
      {"additionalProperties", object({{"dtype", ref("dtype")}, {"shape", ref("shape")}}, {"dtype", "shape"})}};
  Json dim = object({{"min", extent}, {"max", extent}}, Json::array(), "min is 1 and max 2147483647 unless given.");
  Json precision = object(
      {{"mode", words("keep|bf16|f16|fp8|int8|auto")},
       {"tolerance", {{"type", "number"}, {"exclusiveMinimum", 0}}},
       {"pin", {{"type", "object"}, {"additionalProperties", ref("pin")}}},
       {"observed", {{"type", "object"}, {"additionalProperties", {{"type", "number"}, {"exclusiveMinimum", 0}}}}}},
      Json::array());
  Json names = {{"type", "array"}, {"items", ref("name")}, {"minItems", 1}};
  Json of = object(
      {{"of", {{"type", "object"}, {"minProperties", 1}, {"additionalProperties", ref("name")}}}, {"wrt", names}},
      {"of", "wrt"});
  Json loss = object({{"loss", ref("name")}, {"loss_scale", {{"type", "number"}}}, {"wrt", names}}, {"loss", "wrt"});

  Json schema = {
      {"$schema", "https://json-schema.org/draft/2020-12/schema"},
      {"$id", "urn:ridgeline:graph:1"},
      {"title", "Ridgeline graph file, format version 1"},
      {"$comment",
       "Made from the op table. Beyond what a schema can say, the reader refuses duplicate keys, nesting deeper "
       "than 32 levels, integers beyond 64 bits, and an integer written with a fraction or an exponent (1.0). "
       "Names, shapes and types are checked against each other after that."}};
  Json top = object({{"ridgeline", {{"type", "integer"}, {"const", 1}}},
                     {"name", ref("identifier")},
                     {"inputs", ref("tensors")},
                     {"parameters", ref("tensors")},
                     {"nodes", {{"type", "array"}, {"items", ref("node")}}},
                     {"outputs", names},
                     {"dims", {{"type", "object"}, {"propertyNames", ref("name")}, {"additionalProperties", dim}}},
                     {"numerics", words("fused|strict")},
                     {"precision", precision},
                     {"gradient", {{"oneOf", {of, loss}}}}},
                    {"ridgeline", "name", "inputs", "nodes", "outputs"});
  schema.update(top);
  schema["$defs"] = {
      {"identifier", {{"type", "string"}, {"pattern", "^[A-Za-z_][A-Za-z0-9_]*$"}}},
      {"name", {{"type", "string"}, {"minLength", 1}}},
      {"dtype", dtypeNames(nullptr)},
      {"pin", dtypeNames("f32|f16|bf16|f8e4m3|f8e5m2|i8")},
      {"integer", {{"type", "integer"}}},
      {"scalar", {{"type", {"number", "boolean"}}}},
      {"integers", {{"type", "array"}, {"maxItems", 8}, {"items", ref("integer")}}},
      {"shape", {{"type", "array"}, {"maxItems", 8}, {"items", {{"anyOf", {extent, ref("name")}}}}}},
      {"reshaped",
       {{"type", "array"},
        {"maxItems", 8},
        {"items", {{"anyOf", {Json{{"type", "integer"}, {"minimum", -1}}, ref("name")}}}}}},
      {"padding", {{"type", "array"}, {"maxItems", 8}, {"items", extent}}},
      {"block",
       {{"type", "array"}, {"minItems", 1}, {"maxItems", 2}, {"items", {{"type", "integer"}, {"minimum", 1}}}}},
      {"tensors", tensors},
      {"node", node()}};
  return schema.dump(2) + "\n";
}

} // namespace rl
