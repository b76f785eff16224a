// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Attributes as a user wrote them to attributes as they are meant: names and kinds checked against the op table, defaults
// filled in, negative dimensions counted from the end, Python's slices and the -1 of a reshape worked out.
#include "ir/graph/Infer.h"

#include <algorithm>
#include <cfloat>
#include <cmath>

namespace rl::graph {

bool isChoice(std::string_view word, const char *choices) {
  for (std::string_view rest = choices;;) {
    size_t bar = rest.find('|');
    if (word == rest.substr(0, bar))
      return true;
    if (bar == std::string_view::npos)
      return false;
    rest.remove_prefix(bar + 1);
  }
}

std::string listed(std::string_view choices) {
  std::string out;
  for (size_t bar; (bar = choices.find('|')) != std::string_view::npos; choices.remove_prefix(bar + 1))
    out += (out.empty() ? "" : ", ") + std::string(choices.substr(0, bar));
  return (out.empty() ? "" : out + " or ") + std::string(choices);
}

namespace {

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

std::string namesOf(const std::vector<AttrInfo> &attrs) {
  std::string out;
  for (size_t i = 0; i < attrs.size(); ++i)
    out += (i == 0 ? "" : i + 1 == attrs.size() ? " and " : ", ") + std::string(attrs[i].name);
  return out;
}

/// One node's attributes, each looked up by name and turned into the type that the op table gives it.
class Reader {
public:
  Reader(OpKind op, const Operands &operands, const std::map<std::string, AttrValue> &given, const DimValues &dims)
      : op(op), info(opInfo(op)), operands(operands), given(given), dims(dims) {}

  Result<Attrs> read() {
    RL_TRY(checkNames());
    RL_TRY(checkKinds());
    RL_TRY(fill());
    return std::move(attrs);
  }

private:
  Status checkNames() {
    for (const auto &[name, value] : given) {
      if (std::any_of(info.attrs.begin(), info.attrs.end(), [&](const AttrInfo &a) { return name == a.name; }))
        continue;
      std::string takes = info.attrs.empty() ? " takes none" : " takes " + namesOf(info.attrs);
      return attrError(name, "unknown attribute " + quoted(name) + "; " + info.name + takes);
    }
    for (const AttrInfo &attr : info.attrs)
      if (attr.required && !given.count(attr.name))
        return nodeError("attribute " + quoted(attr.name) + " is missing");
    return {};
  }

  Status checkKinds() {
    for (const AttrInfo &attr : info.attrs) {
      const AttrValue *value = find(attr.name);
      if (!value)
        continue;
      const Scalar *scalar = std::get_if<Scalar>(value);
      const std::string *text = std::get_if<std::string>(value);
      const std::vector<Dim> *list = std::get_if<std::vector<Dim>>(value);
      switch (attr.type) {
      case AttrInfo::Boolean:
        if (!scalar || scalar->kind != Scalar::Bool)
          return attrError(attr.name, quoted(attr.name) + " must be true or false");
        break;
      case AttrInfo::Integer:
        if (!scalar || scalar->kind != Scalar::Int)
          return attrError(attr.name, quoted(attr.name) + " must be an integer");
        break;
      case AttrInfo::Number:
        if (!scalar || scalar->kind == Scalar::Bool)
          return attrError(attr.name, quoted(attr.name) + " must be a number");
        // These are used in f32: what is not finite there is not finite.
        if (!(std::fabs(scalar->asDouble()) <= FLT_MAX))
          return attrError(attr.name, quoted(attr.name) + " must be finite");
        break;
      case AttrInfo::ScalarValue:
        if (!scalar)
          return attrError(attr.name, quoted(attr.name) + " must be a number or a boolean");
        break;
      case AttrInfo::String:
        if (!text)
          return attrError(attr.name, quoted(attr.name) + " must be a string");
        if (attr.choices && !isChoice(*text, attr.choices))
          return attrError(attr.name,
                           quoted(attr.name) + " must be " + listed(attr.choices) + ", not " + quoted(*text));
        break;
      case AttrInfo::DTypeName: {
        if (!text)
          return attrError(attr.name, quoted(attr.name) + " must be the name of a type");
        std::optional<DType> type = parseDType(*text);
        if (!type)
          return attrError(attr.name, quoted(*text) + " is not the name of a type");
        if (attr.choices && !isChoice(dtypeName(*type), attr.choices))
          return attrError(attr.name, quoted(attr.name) + " must be " + listed(attr.choices) + ", not " + *text);
        break;
      }
      case AttrInfo::IntList:
        if (!list)
          return attrError(attr.name, quoted(attr.name) + " must be a list of integers");
        for (const Dim &dim : *list)
          if (!dim.symbol.empty())
            return attrError(attr.name,
                             quoted(attr.name) + " must be a list of integers; it has " + quoted(dim.symbol));
        break;
      case AttrInfo::Shape:
        if (!list)
          return attrError(attr.name, quoted(attr.name) + " must be a list of extents");
        for (const Dim &dim : *list)
          if (!dim.symbol.empty() && !dims.count(dim.symbol))
            return attrError(attr.name, "the dimension " + quoted(dim.symbol) + " is not declared in 'dims'");
        break;
      }
    }
    return {};
  }

  // Lookups, after checkKinds: the kinds are right.
  const AttrValue *find(const std::string &name) const {
    auto it = given.find(name);
    return it == given.end() ? nullptr : &it->second;
  }
  const Scalar *scalar(const std::string &name) const {
    const AttrValue *value = find(name);
    return value ? &std::get<Scalar>(*value) : nullptr;
  }
  bool boolean(const char *name, bool otherwise) const {
    const Scalar *s = scalar(name);
    return s ? s->i != 0 : otherwise;
  }
  double number(const char *name, double otherwise) const {
    const Scalar *s = scalar(name);
    return s ? s->asDouble() : otherwise;
  }
  const std::string *text(const std::string &name) const {
    const AttrValue *value = find(name);
    return value ? &std::get<std::string>(*value) : nullptr;
  }
  DType dtype(const char *name, DType otherwise) const {
    const std::string *s = text(name);
    return s ? *parseDType(*s) : otherwise;
  }
  std::optional<std::vector<int64_t>> list(const std::string &name) const {
    const AttrValue *value = find(name);
    if (!value)
      return std::nullopt;
    std::vector<int64_t> out;
    for (const Dim &dim : std::get<std::vector<Dim>>(*value))
      out.push_back(dim.symbol.empty() ? dim.value : dims.at(dim.symbol));
    return out;
  }

  const Shape &shapeOf(size_t operand) const { return operands[operand].type.shape; }
  int64_t rankOf(size_t operand) const { return operands[operand].type.rank(); }

  Status normalise(const char *name, int64_t &dim, int64_t rank) const {
    if (dim >= -rank && dim < rank) {
      dim += dim < 0 ? rank : 0;
      return {};
    }
    if (rank == 0)
      return attrError(name, "dimension " + std::to_string(dim) + " of a rank-0 tensor, which has none");
    return attrError(name, "dimension " + std::to_string(dim) + " is out of range for rank " + std::to_string(rank) +
                               ": " + std::to_string(-rank) + " to " + std::to_string(rank - 1));
  }

  Status readDim(const std::string &name, int64_t &dim, int64_t rank) const {
    dim = scalar(name)->i;
    return normalise(name.c_str(), dim, rank);
  }

  /// A list of different dimensions.
  Status readDims(std::vector<int64_t> &out, int64_t rank) const {
    out = *list("dims");
    uint64_t seen = 0;
    for (int64_t &dim : out) {
      RL_TRY(normalise("dims", dim, rank));
      if (seen >> dim & 1)
        return attrError("dims", "dimension " + std::to_string(dim) + " is listed twice");
      seen |= uint64_t{1} << dim;
    }
    return {};
  }

  Status fillSlice() {
    RL_TRY(readDim("dim", attrs.dim, rankOf(0)));
    const int64_t extent = shapeOf(0)[attrs.dim];
    int64_t step = scalar("step") ? scalar("step")->i : 1;
    if (step == 0)
      return attrError("step", "'step' must not be 0");
    step = std::max(step, -INT64_MAX); // so that -step exists; no extent tells the two apart
    // Python's slice.indices: what lies outside is clamped, "before the first" is -1 for a negative step.
    const int64_t lower = step > 0 ? 0 : -1, upper = step > 0 ? extent : extent - 1;
    auto clamped = [&](const char *name, int64_t otherwise) {
      const Scalar *s = scalar(name);
      if (!s)
        return otherwise;
      return s->i < 0 ? std::max(s->i + extent, lower) : std::min(s->i, upper);
    };
    const int64_t start = clamped("start", step > 0 ? lower : upper), end = clamped("end", step > 0 ? upper : lower);
    if (step > 0)
      attrs.length = start < end ? (end - start - 1) / step + 1 : 0;
    else
      attrs.length = end < start ? (start - end - 1) / -step + 1 : 0;
    attrs.start = attrs.length > 0 ? start : 0;
    attrs.step = attrs.length > 1 ? step : 1;
    return {};
  }

  Status fillReshape() {
    attrs.shape = *list("shape");
    int64_t *free = nullptr;
    Shape rest;
    for (int64_t &extent : attrs.shape) {
      if (extent >= 0) {
        rest.push_back(extent);
      } else if (extent == -1 && !free) {
        free = &extent;
      } else {
        return attrError("shape", extent == -1 ? "'shape' may have one -1"
                                               : "extent " + std::to_string(extent) + " is negative");
      }
    }
    if (!free)
      return {};
    const std::string all = rl::str(shapeOf(0)) + " does not reshape to " + rl::str(attrs.shape) + ": ";
    std::optional<int64_t> known = product(rest);
    if (!known)
      return attrError("shape", all + "too many elements");
    if (*known == 0)
      return attrError("shape", all + "with an extent of 0 beside it, -1 could be anything");
    int64_t elements = operands[0].type.elements();
    if (elements % *known != 0)
      return attrError("shape",
                       all + std::to_string(elements) + " elements are no multiple of " + std::to_string(*known));
    *free = elements / *known;
    return {};
  }

  /// A scalar attribute in the category of a type.
  Status readScalar(const char *name, DType type, Scalar &out) const {
    const Scalar *s = scalar(name);
    ScalarIn in = scalarIn(s ? *s : Scalar{Scalar::Int, 0, 0}, type);
    if (!in.problem.empty())
      return attrError(name, in.problem);
    out = in.value;
    return {};
  }

  Status fillClamp() {
    Operands all = operands;
    for (const char *name : {"min", "max"})
      if (const Scalar *s = scalar(name))
        all.push_back({{}, *s});
    std::optional<DType> type = promoteOperands(all);
    if (!type)
      return {}; // f8: refused by the type rules
    for (auto [name, bound] : {std::pair{"min", &attrs.min}, std::pair{"max", &attrs.max}})
      if (scalar(name)) {
        RL_TRY(readScalar(name, *type, bound->emplace()));
        if (std::isnan((*bound)->f))
          return attrError(name, quoted(name) + " must not be NaN");
      }
    return {};
  }

  Status fillGranularity(const std::string &suffix, size_t operand, Granularity &granularity, int64_t &axis,
                         int64_t (&block)[2]) {
    const std::string name = "granularity" + suffix, axisName = "axis" + suffix, blockName = "block" + suffix;
    const std::string *word = text(name);
    granularity = !word || *word == "tensor" ? Granularity::Tensor
                  : *word == "axis"          ? Granularity::Axis
                  : *word == "token"         ? Granularity::Token
                                             : Granularity::Block;
    auto wants = [&](const std::string &attr, const char *kind, bool given, Granularity of) -> Status {
      if (given && granularity != of)
        return attrError(attr, quoted(attr) + " belongs to " + name + " \"" + kind + "\", and " + name + " is \"" +
                                   (word ? *word : "tensor") + "\"");
      if (!given && granularity == of)
        return attrError(name, name + " \"" + kind + "\" needs the attribute " + quoted(attr));
      return {};
    };
    RL_TRY(wants(axisName, "axis", scalar(axisName) != nullptr, Granularity::Axis));
    std::optional<std::vector<int64_t>> extents = list(blockName);
    RL_TRY(wants(blockName, "block", extents.has_value(), Granularity::Block));
    if (granularity == Granularity::Axis)
      RL_TRY(readDim(axisName, axis, rankOf(operand)));
    if (!extents)
      return {};
    if (extents->empty() || extents->size() > 2)
      return attrError(blockName, quoted(blockName) + " must have one or two extents");
    block[0] = extents->size() == 2 ? extents->front() : 1;
    block[1] = extents->back();
    return {};
  }

  Status fillQuantise() {
    attrs.dtype = dtype("dtype", DType::F32);
    const std::string *scheme = text("scheme");
    attrs.asymmetric = scheme && *scheme == "asymmetric";
    attrs.scaleDtype = dtype("scale_dtype", operands.size() == 2 ? operands[1].type.dtype : DType::F32);
    return fillGranularity("", 0, attrs.granularity, attrs.axis, attrs.block);
  }

  Status fill() {
    switch (op) {
    case OpKind::Gelu: attrs.tanhApproximation = text("approximate") && *text("approximate") == "tanh"; return {};
    case OpKind::Cast:
      attrs.dtype = dtype("dtype", DType::F32);
      attrs.saturate = boolean("saturate", true);
      return {};
    case OpKind::Clamp: return fillClamp();
    case OpKind::Reshape: return fillReshape();
    case OpKind::Expand: attrs.shape = *list("shape"); return {};
    case OpKind::Permute: return readDims(attrs.dims, rankOf(0));
    case OpKind::Flip:
      RL_TRY(readDims(attrs.dims, rankOf(0)));
      std::sort(attrs.dims.begin(), attrs.dims.end());
      return {};
    case OpKind::Unsqueeze: return readDim("dim", attrs.dim, rankOf(0) + 1);
    case OpKind::Squeeze:
    case OpKind::Cat:
    case OpKind::Softmax:
    case OpKind::LogSoftmax:
    case OpKind::IndexSelect:
    case OpKind::Gather: return readDim("dim", attrs.dim, rankOf(0));
    case OpKind::ArgMax:
    case OpKind::ArgMin: attrs.keepdim = boolean("keepdim", false); return readDim("dim", attrs.dim, rankOf(0));
    case OpKind::Slice: return fillSlice();
    case OpKind::Pad:
      attrs.low = *list("low");
      attrs.high = *list("high");
      return readScalar("value", operands[0].type.dtype, attrs.value);
    case OpKind::Full:
      attrs.shape = *list("shape");
      attrs.dtype = dtype("dtype", DType::F32);
      return readScalar("value", attrs.dtype, attrs.value);
    case OpKind::Iota:
      attrs.shape = *list("shape");
      attrs.dtype = dtype("dtype", DType::F32);
      return readDim("dim", attrs.dim, static_cast<int64_t>(attrs.shape.size()));
    case OpKind::Sum:
    case OpKind::Mean:
    case OpKind::Amax:
    case OpKind::Amin:
    case OpKind::Prod:
    case OpKind::Any:
    case OpKind::All:
    case OpKind::Var:
    case OpKind::LogSumExp:
      attrs.keepdim = boolean("keepdim", false);
      attrs.correction = number("correction", 1);
      if (find("dims")) {
        RL_TRY(readDims(attrs.dims, rankOf(0)));
        std::sort(attrs.dims.begin(), attrs.dims.end());
        return {};
      }
      for (int64_t dim = 0; dim < rankOf(0); ++dim)
        attrs.dims.push_back(dim);
      return {};
    case OpKind::LayerNorm:
    case OpKind::RmsNorm:
      attrs.eps = number("eps", op == OpKind::LayerNorm ? 1e-5 : 1e-6);
      attrs.hasWeight = operands.size() > 1;
      attrs.hasBias = operands.size() > 2;
      return {};
    case OpKind::Linear: attrs.hasBias = operands.size() > 2; return {};
    case OpKind::Matmul: {
      attrs.transposeA = boolean("transpose_a", false);
      attrs.transposeB = boolean("transpose_b", false);
      RL_ASSIGN(std::optional<DType> type, productType(operands));
      if (!type && !find("out_dtype"))
        return nodeError(std::string(dtypeName(operands[0].type.dtype)) + " and " + dtypeName(operands[1].type.dtype) +
                         " have no common type: give 'out_dtype'");
      attrs.dtype = dtype("out_dtype", type.value_or(DType::F32));
      return {};
    }
    case OpKind::Attention: {
      attrs.causal = boolean("causal", false);
      int64_t features = operands[0].type.shape.empty() ? 0 : operands[0].type.shape.back();
      attrs.scale = number("scale", features > 0 ? 1 / std::sqrt(static_cast<double>(features)) : 1);
      return {};
    }
    case OpKind::CrossEntropy:
      if (const Scalar *index = scalar("ignore_index"))
        attrs.ignoreIndex = index->i;
      return {};
    case OpKind::Quantize:
    case OpKind::FakeQuantize: return fillQuantise();
    case OpKind::Dequantize:
      attrs.dtype = dtype("dtype", DType::F32);
      attrs.asymmetric = operands.size() > 2;
      return fillGranularity("", 0, attrs.granularity, attrs.axis, attrs.block);
    case OpKind::ScaledMatmul:
      attrs.transposeB = boolean("transpose_b", false);
      attrs.dtype = dtype("out_dtype", DType::F32);
      attrs.fastAccumulate = boolean("fast_accumulate", false);
      RL_TRY(fillGranularity("_a", 0, attrs.granularityA, attrs.axisA, attrs.blockA));
      return fillGranularity("_b", 1, attrs.granularityB, attrs.axisB, attrs.blockB);
    default: return {};
    }
  }

  OpKind op;
  const OpInfo &info;
  const Operands &operands;
  const std::map<std::string, AttrValue> &given;
  const DimValues &dims;
  Attrs attrs;
};

} // namespace

Result<Attrs> readAttributes(OpKind op, const Operands &operands, const std::map<std::string, AttrValue> &given,
                             const DimValues &dims) {
  return Reader(op, operands, given, dims).read();
}

} // namespace rl::graph
