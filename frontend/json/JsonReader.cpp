// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Graph files: JSON to GraphSpec. What is checked here is what a GraphSpec cannot express: keys, JSON types, the
// spelling of element types. What a graph means (names, arity, attributes of an op, shapes) is checked by `checkSpec`,
// so that the C++ builder gets the same checks; graph.schema.json describes both together.
#include "frontend/json/JsonReader.h"

#include "frontend/json/JsonDocument.h"

#include <array>
#include <new>

namespace rl {
namespace {

using Kind = JsonDocument::Kind;
using Index = JsonDocument::Index;
constexpr Index kAbsent = UINT32_MAX;

/// No list of numbers in a graph is longer than a shape, whose rank the resolver limits. This bounds the memory of a
/// list that will be refused in any case.
constexpr uint32_t kMaxListLength = 1024;

/// Bound of a spec's memory, in bytes counted roughly. Two bytes of text can become an operand of 64 ("0,"), so that
/// the limit of the text alone would allow a spec of many GB; a graph of real nodes stays far below.
constexpr size_t kMaxSpecBytes = size_t{2} << 30;

const char *kindName(Kind kind) {
  switch (kind) {
  case Kind::Null: return "null";
  case Kind::Bool: return "a boolean";
  case Kind::Int: return "an integer";
  case Kind::Float: return "a number with a fraction or an exponent";
  case Kind::Array: return "a list";
  case Kind::Object: return "an object";
  case Kind::String:
  case Kind::Key: break;
  }
  return "a string";
}

class Reader {
public:
  explicit Reader(const JsonDocument &doc) : doc(doc) {}

  Result<GraphSpec> read() {
    RL_TRY(expect(0, Kind::Object, "a graph file", "one object"));
    // The version comes first: a file of a later version may well have keys that are unknown here.
    if (Index version = find(0, "ridgeline"); version == kAbsent)
      return invalid("/ridgeline", "missing: the format version, the integer 1");
    else if (doc.kind(version) != Kind::Int || doc.integer(version) != 1)
      return fail(version, "the format version must be the integer 1");
    std::array<Index, 10> at;
    RL_TRY(fields(
        0, "a graph file",
        {"ridgeline", "name", "inputs", "parameters", "nodes", "outputs", "dims", "numerics", "precision", "gradient"},
        0b110110, at));
    auto [version, name, inputs, parameters, nodes, outputs, dims, numerics, precision, gradient] = at;
    RL_TRY(text(name, "name", spec.name));
    RL_TRY(tensors(inputs, "inputs", spec.inputs));
    if (parameters != kAbsent)
      RL_TRY(tensors(parameters, "parameters", spec.parameters));
    RL_TRY(expect(nodes, Kind::Array, "nodes", "a list"));
    RL_TRY(charge(nodes, doc.size(nodes), sizeof(NodeSpec)));
    spec.nodes.reserve(doc.size(nodes));
    for (Index c = doc.first(nodes); c < doc.end(nodes); c = doc.next(c))
      RL_TRY(node(c));
    RL_TRY(texts(outputs, "outputs", spec.outputs));
    if (dims != kAbsent)
      RL_TRY(symbolicDims(dims));
    if (numerics != kAbsent) {
      std::string mode;
      RL_TRY(text(numerics, "numerics", mode));
      if (mode != "fused" && mode != "strict")
        return fail(numerics, "numerics must be 'fused' or 'strict', not " + quoted(mode));
      spec.strict = mode == "strict";
    }
    if (precision != kAbsent)
      RL_TRY(precisionPolicy(precision));
    if (gradient != kAbsent)
      RL_TRY(gradientRequest(gradient));
    return std::move(spec);
  }

private:
  const JsonDocument &doc;
  GraphSpec spec;
  size_t specBytes = 0;

  /// Counts what is about to be added to the spec for item i.
  Status charge(Index i, size_t count, size_t bytesEach) {
    specBytes += count * bytesEach;
    if (specBytes > kMaxSpecBytes)
      return fail(i, "the graph is too large");
    return {};
  }

  Error at(std::string pointer, std::string message) {
    std::string label = doc.nodeLabel(pointer);
    return invalid(std::move(pointer), label + message);
  }
  Error fail(Index i, std::string message) { return at(doc.pointer(i), std::move(message)); }

  Status expect(Index i, Kind kind, const std::string &what, const char *wanted) {
    if (doc.kind(i) == kind)
      return {};
    return fail(i, what + " must be " + wanted + ", not " + kindName(doc.kind(i)));
  }
  Index find(Index object, std::string_view key) {
    for (Index c = doc.first(object); c < doc.end(object); c = doc.next(c + 1))
      if (doc.string(c) == key)
        return c + 1;
    return kAbsent;
  }

  /// Sorts an object's members into `out` by name; refuses a key that is not among `names` and the absence of those
  /// whose bit is set in `required` (bit 0: the first name).
  template <size_t N>
  Status fields(Index object, const std::string &what, const char *const (&names)[N], unsigned required,
                std::array<Index, N> &out) {
    RL_TRY(expect(object, Kind::Object, what, "an object"));
    out.fill(kAbsent);
    for (Index c = doc.first(object); c < doc.end(object); c = doc.next(c + 1)) {
      size_t k = 0;
      while (k < N && doc.string(c) != names[k])
        ++k;
      if (k == N) {
        std::string known;
        for (const char *name : names)
          known += std::string(known.empty() ? "" : ", ") + name;
        return fail(c, "unknown key " + quoted(doc.string(c)) + "; " + what + " may have " + known);
      }
      out[k] = c + 1;
    }
    for (size_t k = 0; k < N; ++k)
      if ((required >> k & 1) && out[k] == kAbsent)
        return at(doc.pointer(object) + "/" + names[k], "missing: " + what + " needs '" + names[k] + "'");
    return {};
  }

  Status text(Index i, const std::string &what, std::string &out) {
    RL_TRY(expect(i, Kind::String, what, "a string"));
    out = doc.string(i);
    return {};
  }
  Status texts(Index i, const std::string &what, std::vector<std::string> &out) {
    RL_TRY(expect(i, Kind::Array, what, "a list of names"));
    RL_TRY(charge(i, doc.size(i), sizeof(std::string)));
    out.reserve(doc.size(i));
    for (Index c = doc.first(i); c < doc.end(i); c = doc.next(c))
      RL_TRY(text(c, "each of " + what, out.emplace_back()));
    return {};
  }
  Status integer(Index i, const std::string &what, int64_t &out) {
    RL_TRY(expect(i, Kind::Int, what, "an integer"));
    out = doc.integer(i);
    return {};
  }
  Status number(Index i, const std::string &what, double &out) {
    if (!doc.isNumber(i))
      return fail(i, what + " must be a number, not " + kindName(doc.kind(i)));
    out = doc.number(i);
    return {};
  }
  Status dtype(Index i, const std::string &what, DType &out) {
    RL_TRY(expect(i, Kind::String, what, "the name of a type"));
    auto parsed = parseDType(doc.string(i));
    if (!parsed) {
      std::string known;
      for (int t = 0; t < kDTypeCount; ++t)
        known += std::string(t ? " " : "") + dtypeName(static_cast<DType>(t));
      return fail(i, "unknown type " + quoted(doc.string(i)) + "; the types are " + known);
    }
    out = *parsed;
    return {};
  }
  Status dimList(Index i, const std::string &what, std::vector<Dim> &out) {
    RL_TRY(expect(i, Kind::Array, what, "a list of integers or names of dims"));
    if (doc.size(i) > kMaxListLength)
      return fail(i, what + " has " + std::to_string(doc.size(i)) + " entries; the greatest rank is 8");
    RL_TRY(charge(i, doc.size(i), sizeof(Dim)));
    out.reserve(doc.size(i));
    for (Index c = doc.first(i); c < doc.end(i); c = doc.next(c)) {
      if (doc.kind(c) == Kind::Int)
        out.push_back({doc.integer(c), {}});
      else if (doc.kind(c) == Kind::String && doc.size(c) > 0)
        out.push_back({0, std::string(doc.string(c))});
      else if (doc.kind(c) == Kind::String)
        return fail(c, "an empty name");
      else
        return fail(c,
                    "each entry of " + what + " must be an integer or the name of a dim, not " + kindName(doc.kind(c)));
    }
    return {};
  }
  Scalar scalar(Index i) {
    switch (doc.kind(i)) {
    case Kind::Bool: return {Scalar::Bool, doc.integer(i), 0};
    case Kind::Int: return {Scalar::Int, doc.integer(i), 0};
    default: return {Scalar::Float, 0, doc.number(i)};
    }
  }

  Status tensors(Index i, const char *what, std::vector<TensorSpec> &out) {
    RL_TRY(expect(i, Kind::Object, what, "an object of tensors"));
    RL_TRY(charge(i, doc.size(i), sizeof(TensorSpec)));
    out.reserve(doc.size(i));
    for (Index c = doc.first(i); c < doc.end(i); c = doc.next(c + 1)) {
      TensorSpec &tensor = out.emplace_back();
      tensor.name = doc.string(c);
      std::array<Index, 2> at;
      RL_TRY(fields(c + 1, "a tensor", {"dtype", "shape"}, 0b11, at));
      RL_TRY(dtype(at[0], "dtype", tensor.dtype));
      RL_TRY(dimList(at[1], "shape", tensor.shape));
    }
    return {};
  }

  Status node(Index i) {
    NodeSpec &node = spec.nodes.emplace_back();
    std::array<Index, 6> at;
    RL_TRY(fields(i, "a node", {"op", "inputs", "outputs", "attrs", "precision", "source"}, 0b111, at));
    auto [op, inputs, outputs, attrs, precision, source] = at;
    RL_TRY(text(op, "op", node.op));
    RL_TRY(expect(inputs, Kind::Array, "inputs", "a list"));
    RL_TRY(charge(inputs, doc.size(inputs), sizeof(OperandSpec)));
    node.inputs.reserve(doc.size(inputs));
    for (Index c = doc.first(inputs); c < doc.end(inputs); c = doc.next(c)) {
      OperandSpec &operand = node.inputs.emplace_back();
      if (doc.kind(c) == Kind::String && doc.size(c) > 0)
        operand.name = doc.string(c);
      else if (doc.kind(c) == Kind::String)
        return fail(c, "an empty name");
      else if (doc.kind(c) == Kind::Bool || doc.isNumber(c))
        operand.literal = scalar(c);
      else
        return fail(c, std::string("an input must be a tensor's name, a number or a boolean, not ") +
                           kindName(doc.kind(c)));
    }
    RL_TRY(texts(outputs, "outputs", node.outputs));
    if (attrs != kAbsent) {
      RL_TRY(expect(attrs, Kind::Object, "attrs", "an object"));
      RL_TRY(charge(attrs, doc.size(attrs), 2 * sizeof(std::pair<std::string, AttrValue>)));
      for (Index c = doc.first(attrs); c < doc.end(attrs); c = doc.next(c + 1))
        RL_TRY(attribute(c, node.attrs[std::string(doc.string(c))]));
    }
    if (precision != kAbsent) {
      RL_TRY(text(precision, "precision", node.precision));
      if (node.precision.empty()) // in a NodeSpec: no precision given
        return fail(precision, "an empty name");
    }
    if (source != kAbsent)
      RL_TRY(text(source, "source", node.source));
    return {};
  }

  Status attribute(Index key, AttrValue &out) {
    Index value = key + 1;
    switch (doc.kind(value)) {
    case Kind::Bool:
    case Kind::Int:
    case Kind::Float: out = scalar(value); return {};
    case Kind::String: out = std::string(doc.string(value)); return {};
    case Kind::Array: {
      std::vector<Dim> list;
      RL_TRY(dimList(value, "the attribute " + quoted(doc.string(key)), list));
      out = std::move(list);
      return {};
    }
    default:
      return fail(value, "an attribute must be a boolean, a number, a string or a list, not " +
                             std::string(kindName(doc.kind(value))));
    }
  }

  Status symbolicDims(Index i) {
    RL_TRY(expect(i, Kind::Object, "dims", "an object"));
    RL_TRY(charge(i, doc.size(i), sizeof(DimSpec)));
    spec.dims.reserve(doc.size(i));
    for (Index c = doc.first(i); c < doc.end(i); c = doc.next(c + 1)) {
      DimSpec &dim = spec.dims.emplace_back();
      dim.name = doc.string(c);
      std::array<Index, 2> at;
      RL_TRY(fields(c + 1, "a dim", {"min", "max"}, 0, at));
      if (at[0] != kAbsent)
        RL_TRY(integer(at[0], "min", dim.min));
      if (at[1] != kAbsent)
        RL_TRY(integer(at[1], "max", dim.max));
    }
    return {};
  }

  Status precisionPolicy(Index i) {
    std::array<Index, 4> at;
    RL_TRY(fields(i, "precision", {"mode", "tolerance", "pin", "observed"}, 0, at));
    if (at[0] != kAbsent)
      RL_TRY(text(at[0], "mode", spec.precision.mode));
    if (at[1] != kAbsent)
      RL_TRY(number(at[1], "tolerance", spec.precision.tolerance));
    if (at[2] != kAbsent) {
      RL_TRY(expect(at[2], Kind::Object, "pin", "an object"));
      RL_TRY(charge(at[2], doc.size(at[2]), 2 * sizeof(std::pair<std::string, DType>)));
      for (Index c = doc.first(at[2]); c < doc.end(at[2]); c = doc.next(c + 1))
        RL_TRY(dtype(c + 1, "a pinned type", spec.precision.pin[std::string(doc.string(c))]));
    }
    if (at[3] != kAbsent) {
      RL_TRY(expect(at[3], Kind::Object, "observed", "an object"));
      RL_TRY(charge(at[3], doc.size(at[3]), 2 * sizeof(std::pair<std::string, double>)));
      for (Index c = doc.first(at[3]); c < doc.end(at[3]); c = doc.next(c + 1))
        RL_TRY(number(c + 1, "an observed error", spec.precision.observed[std::string(doc.string(c))]));
    }
    return {};
  }

  Status gradientRequest(Index i) {
    GradientSpec &gradient = spec.gradient.emplace();
    std::array<Index, 4> at;
    RL_TRY(fields(i, "gradient", {"of", "wrt", "loss", "loss_scale"}, 0b10, at));
    auto [of, wrt, loss, scale] = at;
    if (of == kAbsent && loss == kAbsent)
      return fail(i, "gradient needs 'of' or 'loss'");
    if (of != kAbsent && loss != kAbsent)
      return fail(loss, "gradient has both 'of' and 'loss'");
    if (of != kAbsent) {
      RL_TRY(expect(of, Kind::Object, "of", "an object from outputs to their cotangents"));
      if (doc.size(of) == 0)
        return fail(of, "of names no output");
      for (Index c = doc.first(of); c < doc.end(of); c = doc.next(c + 1)) {
        auto &[output, cotangent] = gradient.of.emplace_back();
        output = doc.string(c);
        RL_TRY(text(c + 1, "a cotangent", cotangent));
      }
      if (scale != kAbsent)
        return fail(scale, "loss_scale goes with 'loss', not with 'of'");
    } else {
      RL_TRY(text(loss, "loss", gradient.loss));
      if (gradient.loss.empty()) // in a GradientSpec: no loss given
        return fail(loss, "an empty name");
      if (scale != kAbsent)
        RL_TRY(number(scale, "loss_scale", gradient.lossScale));
    }
    return texts(wrt, "wrt", gradient.wrt);
  }
};

} // namespace

Result<GraphSpec> parseGraph(std::string_view json) {
  if (json.size() > kMaxGraphBytes)
    return invalid({}, "the graph file has " + std::to_string(json.size()) + " bytes; the limit is " +
                           std::to_string(kMaxGraphBytes));
  RL_ASSIGN(JsonDocument doc, JsonDocument::parse(json, kMaxJsonDepth));
  try {
    return Reader(doc).read();
  } catch (const std::bad_alloc &) {
    return deviceError("not enough memory to read the graph file");
  }
}

} // namespace rl
