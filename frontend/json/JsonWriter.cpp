// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// GraphSpec to a canonical graph file: one line a tensor and a node, so that two versions of a graph diff well.
#include "frontend/json/JsonReader.h"
#include "frontend/json/Utf8.h"

#include <charconv>
#include <cmath>

namespace rl {
namespace {

std::string str(std::string_view s) {
  std::string out = "\"";
  while (!s.empty()) {
    size_t n = utf8Length(s);
    unsigned char c = static_cast<unsigned char>(s[0]);
    if (n == 0) {
      out += "\\ufffd"; // the replacement character: a name that did not come from a file may hold any bytes
      n = 1;
    } else if (c == '"' || c == '\\') {
      out += {'\\', s[0]};
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (c < 0x20) {
      char hex[8];
      std::snprintf(hex, sizeof hex, "\\u%04x", c);
      out += hex;
    } else {
      out += s.substr(0, n);
    }
    s.remove_prefix(n);
  }
  return out + "\"";
}

/// The shortest text that reads back as the same double, and as a Float. A value that is not finite has no JSON; the
/// text then is one that the reader refuses with the place.
std::string num(double value) {
  if (!std::isfinite(value))
    return std::isnan(value) ? "NaN" : value < 0 ? "-Infinity" : "Infinity";
  char buffer[64];
  auto [end, ec] = std::to_chars(buffer, buffer + sizeof buffer, value);
  std::string out(buffer, end);
  if (out.find_first_of(".e") == std::string::npos)
    out += ".0";
  return out;
}

std::string scalar(const Scalar &s) {
  switch (s.kind) {
  case Scalar::Bool: return s.i ? "true" : "false";
  case Scalar::Int: return std::to_string(s.i);
  case Scalar::Float: break;
  }
  return num(s.f);
}

template <class List, class Print> std::string list(const List &values, Print print) {
  std::string out = "[";
  for (const auto &v : values)
    out += (out.size() > 1 ? ", " : "") + print(v);
  return out + "]";
}
std::string dims(const std::vector<Dim> &shape) {
  return list(shape, [](const Dim &d) { return d.symbol.empty() ? std::to_string(d.value) : str(d.symbol); });
}
std::string names(const std::vector<std::string> &values) {
  return list(values, [](const std::string &s) { return str(s); });
}

std::string attribute(const AttrValue &value) {
  if (auto *s = std::get_if<Scalar>(&value))
    return scalar(*s);
  if (auto *s = std::get_if<std::string>(&value))
    return str(*s);
  return dims(std::get<std::vector<Dim>>(value));
}

/// `"key": {` one line per entry `}`.
template <class List, class Print> std::string block(const List &values, char open, char close, Print print) {
  std::string out(1, open);
  for (const auto &v : values)
    out += (out.size() > 1 ? ",\n    " : "\n    ") + print(v);
  return out + (out.size() > 1 ? "\n  " : "") + close;
}

std::string tensors(const std::vector<TensorSpec> &values) {
  return block(values, '{', '}', [](const TensorSpec &t) {
    return str(t.name) + ": {\"dtype\": \"" + dtypeName(t.dtype) + "\", \"shape\": " + dims(t.shape) + "}";
  });
}

std::string node(const NodeSpec &n) {
  std::string out = "{\"op\": " + str(n.op) + ", \"inputs\": " +
                    list(n.inputs, [](const OperandSpec &o) { return o.literal ? scalar(*o.literal) : str(o.name); }) +
                    ", \"outputs\": " + names(n.outputs);
  if (!n.attrs.empty()) {
    std::string attrs;
    for (const auto &[name, value] : n.attrs)
      attrs += (attrs.empty() ? "" : ", ") + str(name) + ": " + attribute(value);
    out += ", \"attrs\": {" + attrs + "}";
  }
  if (!n.precision.empty())
    out += ", \"precision\": " + str(n.precision);
  if (!n.source.empty())
    out += ", \"source\": " + str(n.source);
  return out + "}";
}

std::string precision(const PrecisionPolicy &p) {
  std::string out = "{\"mode\": " + str(p.mode) + ", \"tolerance\": " + num(p.tolerance);
  if (!p.pin.empty()) {
    std::string pins;
    for (const auto &[name, type] : p.pin)
      pins += (pins.empty() ? "" : ", ") + str(name) + ": \"" + dtypeName(type) + "\"";
    out += ", \"pin\": {" + pins + "}";
  }
  if (!p.observed.empty()) {
    std::string all;
    for (const auto &[name, ratio] : p.observed)
      all += (all.empty() ? "" : ", ") + str(name) + ": " + num(ratio);
    out += ", \"observed\": {" + all + "}";
  }
  return out + "}";
}

std::string gradient(const GradientSpec &g) {
  std::string out;
  if (g.loss.empty()) {
    for (const auto &[output, cotangent] : g.of)
      out += (out.empty() ? "" : ", ") + str(output) + ": " + str(cotangent);
    out = "\"of\": {" + out + "}";
  } else {
    out = "\"loss\": " + str(g.loss);
    if (g.lossScale != 1)
      out += ", \"loss_scale\": " + num(g.lossScale);
  }
  return "{" + out + ", \"wrt\": " + names(g.wrt) + "}";
}

} // namespace

std::string printGraph(const GraphSpec &spec) {
  std::string out = "{\n  \"ridgeline\": 1,\n  \"name\": " + str(spec.name);
  out += ",\n  \"inputs\": " + tensors(spec.inputs);
  if (!spec.parameters.empty())
    out += ",\n  \"parameters\": " + tensors(spec.parameters);
  out += ",\n  \"nodes\": " + block(spec.nodes, '[', ']', node);
  out += ",\n  \"outputs\": " + names(spec.outputs);
  if (!spec.dims.empty())
    out += ",\n  \"dims\": " + block(spec.dims, '{', '}', [](const DimSpec &d) {
             return str(d.name) + ": {\"min\": " + std::to_string(d.min) + ", \"max\": " + std::to_string(d.max) + "}";
           });
  if (spec.strict)
    out += ",\n  \"numerics\": \"strict\"";
  if (spec.precision != PrecisionPolicy{})
    out += ",\n  \"precision\": " + precision(spec.precision);
  if (spec.gradient)
    out += ",\n  \"gradient\": " + gradient(*spec.gradient);
  return out + "\n}\n";
}

} // namespace rl
