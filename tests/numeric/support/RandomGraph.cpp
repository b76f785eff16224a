// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/numeric/support/RandomGraph.h"

#include "tests/numeric/support/Rng.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <set>

namespace rl::numeric {

bool isTranscendental(OpKind op) {
  using enum OpKind;
  switch (op) {
  case Exp:
  case Exp2:
  case Expm1:
  case Log:
  case Log2:
  case Log1p:
  case Rsqrt:
  case Sin:
  case Cos:
  case Tanh:
  case Sigmoid:
  case Erf:
  case Silu:
  case Softplus:
  case Gelu:
  case Pow:
  case Atan2: return true;
  default: return false;
  }
}

void dropDead(GraphSpec &spec) {
  std::set<std::string> needed(spec.outputs.begin(), spec.outputs.end());
  std::vector<bool> live(spec.nodes.size(), false);
  for (bool again = true; again;) {
    again = false;
    for (size_t n = 0; n < spec.nodes.size(); ++n) {
      if (live[n])
        continue;
      for (const std::string &out : spec.nodes[n].outputs)
        if (needed.contains(out))
          live[n] = again = true;
      if (live[n])
        for (const OperandSpec &o : spec.nodes[n].inputs)
          if (!o.literal)
            needed.insert(o.name);
    }
  }
  std::vector<NodeSpec> nodes;
  for (size_t n = 0; n < spec.nodes.size(); ++n)
    if (live[n])
      nodes.push_back(std::move(spec.nodes[n]));
  spec.nodes = std::move(nodes);
  for (auto *tensors : {&spec.inputs, &spec.parameters})
    std::erase_if(*tensors, [&](const TensorSpec &t) { return !needed.contains(t.name); });
}

namespace {

class Generator {
public:
  Generator(uint64_t seed, const RandomGraphOptions &options) : rng(seed), options(options) {
    for (const OpInfo &info : allOps()) {
      if (!options.transcendental && isTranscendental(info.kind))
        continue;
      if (info.cls == OpClass::Unary && info.kind != OpKind::Cast && info.kind != OpKind::Clamp)
        unaryOps.push_back(info.name);
      if (info.cls == OpClass::Binary)
        binaryOps.push_back(info.name);
    }
    dtypes = {DType::F32, DType::F32, DType::F32, DType::I8, DType::U8, DType::I32, DType::I64, DType::Bool};
    if (options.sixteenBits)
      for (int i = 0; i < 2; ++i)
        dtypes.insert(dtypes.end(), {DType::F16, DType::BF16});
  }

  GraphSpec run();

private:
  struct Val {
    std::string name;
    TensorType type;
  };
  using Attributes = std::map<std::string, AttrValue>;
  using Shape = std::vector<int64_t>;

  static AttrValue integer(int64_t i) { return Scalar{Scalar::Int, i, 0}; }
  static AttrValue list(const Shape &s) {
    std::vector<Dim> dims;
    for (int64_t e : s)
      dims.push_back({e, {}});
    return dims;
  }
  OperandSpec tensor(size_t v) const { return {values[v].name, {}}; }
  static OperandSpec literal(Scalar s) { return {{}, s}; }

  Shape randomShape();
  int64_t randomExtent(int64_t room);
  DType anyType(bool f8) {
    return f8 && rng.chance(8) ? rng.pick(std::vector<DType>{DType::F8E4M3, DType::F8E5M2, DType::F8E8M0})
                               : rng.pick(dtypes);
  }
  size_t newInput(DType, Shape);
  size_t pickValue();
  std::optional<size_t> tryEmit(const std::string &op, std::vector<OperandSpec> operands, Attributes attrs = {});
  Scalar randomLiteral(DType beside);
  Shape broadcastable(const Shape &);
  OperandSpec partner(size_t of, bool mayBeLiteral);
  Shape factor(int64_t elements);
  bool step();
  bool layout(size_t v);
  bool indexing(size_t v);
  std::string arithmetic() { return rng.pick(std::vector<std::string>{"add", "sub", "mul", "maximum", "minimum"}); }
  void butterflies();
  void many();
  void pressure();
  void broadcastChain();
  void equalPieces();

  Rng rng;
  const RandomGraphOptions &options;
  GraphSpec spec;
  std::vector<Val> values;
  std::map<std::string, size_t> byName;
  size_t current = 0; ///< the end of the main chain
  std::vector<std::string> unaryOps, binaryOps;
  std::vector<DType> dtypes;
};

int64_t Generator::randomExtent(int64_t room) {
  static const std::vector<int64_t> extents = {1,  1,  2,  3,  4,   5,   7,   8,   13,  16,   17,   31,
                                               32, 33, 64, 65, 127, 128, 129, 255, 256, 1000, 1024, 4097};
  for (int i = 0; i < 4; ++i)
    if (int64_t e = rng.pick(extents); e <= room)
      return e;
  return 1;
}

Generator::Shape Generator::randomShape() {
  static const std::vector<int64_t> ranks = {0, 1, 1, 2, 2, 2, 3, 3, 4, 5, 6};
  Shape shape;
  int64_t room = options.maxElements;
  for (int64_t r = rng.pick(ranks); r > 0; --r) {
    shape.push_back(randomExtent(room));
    room /= shape.back();
  }
  if (!shape.empty() && rng.chance(2))
    shape[static_cast<size_t>(rng.below(static_cast<int64_t>(shape.size())))] = 0;
  for (size_t i = shape.size(); i > 1; --i)
    std::swap(shape[i - 1], shape[static_cast<size_t>(rng.below(static_cast<int64_t>(i)))]);
  return shape;
}

size_t Generator::newInput(DType dtype, Shape shape) {
  TensorSpec t{"x" + std::to_string(values.size()), dtype, {}};
  for (int64_t e : shape)
    t.shape.push_back({e, {}});
  (rng.chance(15) ? spec.parameters : spec.inputs).push_back(t);
  byName[t.name] = values.size();
  values.push_back({t.name, {dtype, std::move(shape)}});
  return values.size() - 1;
}

/// Mostly the value that the last ones led to, so that graphs grow deep; sharing of others makes diamonds.
size_t Generator::pickValue() {
  if (rng.chance(2))
    return newInput(anyType(true), randomShape());
  return rng.chance(70) ? current : static_cast<size_t>(rng.below(static_cast<int64_t>(values.size())));
}

std::optional<size_t> Generator::tryEmit(const std::string &op, std::vector<OperandSpec> operands, Attributes attrs) {
  const OpInfo *info = findOp(op);
  std::vector<OperandType> types;
  for (const OperandSpec &o : operands)
    types.push_back(o.literal ? OperandType{{}, o.literal} : OperandType{values[byName.at(o.name)].type, {}});
  Result<Inferred> inferred = inferNode(info->kind, types, 1, attrs, {});
  if (!inferred)
    return std::nullopt;
  const TensorType &type = inferred->results[0];
  if (type.elements() > options.maxElements || type.rank() > 8)
    return std::nullopt;
  if (!options.sixteenBits && (type.dtype == DType::F16 || type.dtype == DType::BF16))
    return std::nullopt;
  NodeSpec node;
  node.op = op;
  node.inputs = std::move(operands);
  node.outputs = {"n" + std::to_string(values.size())};
  node.attrs = std::move(attrs);
  byName[node.outputs[0]] = values.size();
  values.push_back({node.outputs[0], type});
  bool goesOn = false;
  for (const OperandSpec &o : node.inputs)
    goesOn |= !o.literal && o.name == values[current].name;
  spec.nodes.push_back(std::move(node));
  if (goesOn || rng.chance(4))
    current = values.size() - 1;
  return values.size() - 1;
}

Scalar Generator::randomLiteral(DType beside) {
  static const std::vector<double> floats = {0.5, -1.5, 2.0,  0.1,     3.14159265, 1e-3, -0.0,           0.0,
                                             1.0, -1.0, 1e30, 65504.0, 1e-40,      3.0,  0.3333333333333};
  static const std::vector<int64_t> ints = {0,   1,    -1,  2,   3,    -3,     7,        16,
                                            100, -128, 127, 255, 1000, -40000, 16777217, 2147483647};
  int64_t kind = rng.below(10);
  if (kind == 0)
    return {Scalar::Bool, rng.below(2), 0};
  if (isFloat(beside) ? kind < 3 : kind < 7)
    return {Scalar::Int, rng.pick(ints), 0};
  return {Scalar::Float, 0, rng.pick(floats)};
}

/// A shape that broadcasts with the given one: extents become 1, leading dimensions go, and sometimes new ones come.
Generator::Shape Generator::broadcastable(const Shape &shape) {
  Shape out = shape;
  if (rng.chance(40))
    out.erase(out.begin(), out.begin() + rng.range(0, static_cast<int64_t>(out.size())));
  for (int64_t &e : out)
    if (rng.chance(35))
      e = 1;
  if (rng.chance(10) && out.size() == shape.size() && out.size() < 6)
    out.insert(out.begin(), rng.range(1, 3));
  return out;
}

OperandSpec Generator::partner(size_t of, bool mayBeLiteral) {
  if (mayBeLiteral && rng.chance(25))
    return literal(randomLiteral(values[of].type.dtype));
  if (rng.chance(55))
    for (int i = 0; i < 4; ++i)
      if (size_t v = static_cast<size_t>(rng.below(static_cast<int64_t>(values.size())));
          inferNode(OpKind::Eq, {{{DType::F32, values[of].type.shape}, {}}, {{DType::F32, values[v].type.shape}, {}}},
                    1, {}, {}))
        return tensor(v);
  return tensor(
      newInput(rng.chance(60) ? values[of].type.dtype : anyType(false), broadcastable(values[of].type.shape)));
}

Generator::Shape Generator::factor(int64_t n) {
  Shape out;
  int64_t zero = n == 0;
  if (zero)
    n = rng.range(1, 12);
  for (int64_t r = rng.range(0, 4); r > 0 && n > 1; --r) {
    std::vector<int64_t> divisors;
    for (int64_t d = 2; d * d <= n; ++d)
      if (n % d == 0)
        divisors.insert(divisors.end(), {d, n / d});
    if (divisors.empty())
      break;
    out.push_back(rng.pick(divisors));
    n /= out.back();
  }
  if (n > 1)
    out.push_back(n);
  while (rng.chance(25) && out.size() < 6)
    out.insert(out.begin() + rng.below(static_cast<int64_t>(out.size()) + 1), 1);
  if (zero)
    out.insert(out.begin() + rng.below(static_cast<int64_t>(out.size()) + 1), 0);
  return out;
}

bool Generator::layout(size_t v) {
  const TensorType type = values[v].type;
  const int64_t rank = type.rank();
  auto anyDim = [&](int64_t r) {
    int64_t d = rng.below(r);
    return integer(rng.chance(40) ? d - r : d);
  };
  switch (rng.below(11)) {
  case 0: {
    Shape to = factor(type.elements());
    if (!to.empty() && type.elements() != 0 && rng.chance(30))
      to[static_cast<size_t>(rng.below(static_cast<int64_t>(to.size())))] = -1;
    return tryEmit("reshape", {tensor(v)}, {{"shape", list(to)}}).has_value();
  }
  case 1: {
    Shape dims;
    for (int64_t d = 0; d < rank; ++d)
      dims.push_back(d);
    for (size_t i = dims.size(); i > 1; --i)
      std::swap(dims[i - 1], dims[static_cast<size_t>(rng.below(static_cast<int64_t>(i)))]);
    for (int64_t &d : dims)
      d -= rng.chance(20) ? rank : 0;
    return tryEmit("permute", {tensor(v)}, {{"dims", list(dims)}}).has_value();
  }
  case 2: {
    Shape to = type.shape;
    for (int64_t &e : to)
      if (e == 1 && rng.chance(70))
        e = rng.range(1, 5);
    while (rng.chance(30) && to.size() < 6)
      to.insert(to.begin(), rng.range(1, 3));
    return tryEmit("expand", {tensor(v)}, {{"shape", list(to)}}).has_value();
  }
  case 3: return tryEmit("unsqueeze", {tensor(v)}, {{"dim", anyDim(rank + 1)}}).has_value();
  case 4:
    for (int64_t d = 0; d < rank; ++d)
      if (type.shape[static_cast<size_t>(d)] == 1 && rng.chance(60))
        return tryEmit("squeeze", {tensor(v)}, {{"dim", integer(rng.chance(40) ? d - rank : d)}}).has_value();
    return false;
  case 5: {
    if (rank == 0)
      return false;
    int64_t d = rng.below(rank), extent = type.shape[static_cast<size_t>(d)];
    Attributes attrs{{"dim", integer(rng.chance(40) ? d - rank : d)}};
    static const std::vector<int64_t> steps = {1, 1, 2, 3, -1, -1, -2, -3, 5, -7};
    int64_t step = rng.pick(steps);
    if (step != 1 || rng.chance(30))
      attrs["step"] = integer(step);
    int64_t first = rng.range(0, extent / 3 + 1), last = extent - rng.range(0, extent / 3 + 1);
    if (step < 0)
      std::swap(first, last);
    auto shown = [&](int64_t at) {
      return integer(rng.chance(30) && at < extent ? at - extent : rng.chance(5) ? at + 2 * extent : at);
    };
    if (rng.chance(70))
      attrs["start"] = shown(first);
    if (rng.chance(70))
      attrs["end"] = step < 0 && last <= 0 ? integer(-extent - 1) : shown(last);
    return tryEmit("slice", {tensor(v)}, attrs).has_value();
  }
  case 6: {
    if (rank == 0)
      return false;
    int64_t d = rng.below(rank);
    std::vector<OperandSpec> operands{tensor(v)};
    for (int64_t more = rng.range(0, 3); more > 0; --more) {
      if (rng.chance(35)) {
        operands.push_back(tensor(v));
        continue;
      }
      bool found = false;
      for (int i = 0; i < 3 && !found; ++i) {
        size_t other = static_cast<size_t>(rng.below(static_cast<int64_t>(values.size())));
        found = inferNode(OpKind::Cat, {{type, {}}, {values[other].type, {}}}, 1, {{"dim", integer(d)}}, {}).ok();
        if (found)
          operands.push_back(tensor(other));
      }
      if (found)
        continue;
      Shape shape = type.shape;
      if (rng.chance(60))
        shape[static_cast<size_t>(d)] = rng.range(rng.chance(10) ? 0 : 1, 9);
      operands.push_back(tensor(newInput(isF8(type.dtype) || rng.chance(60) ? type.dtype : anyType(false), shape)));
    }
    for (size_t i = operands.size(); i > 1; --i)
      std::swap(operands[i - 1], operands[static_cast<size_t>(rng.below(static_cast<int64_t>(i)))]);
    return tryEmit("cat", operands, {{"dim", integer(rng.chance(40) ? d - rank : d)}}).has_value();
  }
  case 7: {
    Shape low, high;
    for (int64_t d = 0; d < rank; ++d) {
      low.push_back(rng.chance(50) ? 0 : rng.range(0, 4));
      high.push_back(rng.chance(50) ? 0 : rng.range(0, 4));
    }
    Attributes attrs{{"low", list(low)}, {"high", list(high)}};
    if (rng.chance(70))
      attrs["value"] = randomLiteral(type.dtype);
    return tryEmit("pad", {tensor(v)}, attrs).has_value();
  }
  case 8: {
    Shape dims;
    for (int64_t d = 0; d < rank; ++d)
      if (rng.chance(60))
        dims.push_back(rng.chance(30) ? d - rank : d);
    return tryEmit("flip", {tensor(v)}, {{"dims", list(dims)}}).has_value();
  }
  default: return indexing(v);
  }
}

/// Elements picked by an index that is an input, whose data is in range, or that is brought into range.
bool Generator::indexing(size_t v) {
  const TensorType type = values[v].type;
  const int64_t rank = type.rank();
  if (rank == 0)
    return false;
  const int64_t kind = rng.below(3), d = kind == 0 ? 0 : rng.below(rank), extent = type.shape[static_cast<size_t>(d)];
  if (extent == 0 || (kind == 0 && rank != 2))
    return false;
  Shape shape;
  if (kind == 2) {
    shape = type.shape;
    for (int64_t &e : shape)
      if (e > 1 && rng.chance(20))
        e = rng.range(1, e);
    shape[static_cast<size_t>(d)] = rng.chance(50) ? extent : rng.range(1, 9);
  } else {
    shape = {rng.chance(50) ? extent : rng.range(0, 40)};
    if (kind == 0 && rng.chance(30))
      shape.push_back(rng.range(1, 5));
  }
  const DType dtype = rng.chance(50) ? DType::I64 : DType::I32;
  size_t index = newInput(dtype, shape);
  std::optional<size_t> placed = index;
  if (int64_t how = rng.below(4); how == 0)
    placed = tryEmit("remainder", {tensor(index), literal({Scalar::Int, extent, 0})});
  else if (how == 1)
    placed = tryEmit("clamp", {tensor(index)}, {{"min", integer(0)}, {"max", integer(rng.range(0, extent - 1))}});
  if (!placed)
    return false;
  if (kind == 0)
    return tryEmit("embedding", {tensor(v), tensor(*placed)}).has_value();
  return tryEmit(kind == 1 ? "index_select" : "gather", {tensor(v), tensor(*placed)},
                 {{"dim", integer(rng.chance(40) ? d - rank : d)}})
      .has_value();
}

bool Generator::step() {
  int64_t kind = rng.below(100);
  if (kind < 4) {
    Attributes attrs{{"dtype", std::string(dtypeName(anyType(true)))}};
    Shape shape = rng.chance(50) ? broadcastable(values[pickValue()].type.shape) : randomShape();
    attrs["shape"] = list(shape);
    if (rng.chance(50))
      return tryEmit("full", {},
                     [&] {
                       attrs["value"] = randomLiteral(*parseDType(std::get<std::string>(attrs["dtype"])));
                       return attrs;
                     }())
          .has_value();
    if (shape.empty())
      return false;
    attrs["dim"] = integer(rng.range(-static_cast<int64_t>(shape.size()), static_cast<int64_t>(shape.size()) - 1));
    return tryEmit("iota", {}, attrs).has_value();
  }
  size_t v = pickValue();
  DType dtype = values[v].type.dtype;
  if (kind < 30)
    return layout(v);
  if (kind < 40 || (isF8(dtype) && kind < 80)) {
    Attributes attrs{{"dtype", std::string(dtypeName(rng.chance(20) ? anyType(true) : anyType(false)))}};
    if (rng.chance(20))
      attrs["saturate"] = Scalar{Scalar::Bool, rng.below(2), 0};
    return tryEmit("cast", {tensor(v)}, attrs).has_value();
  }
  if (kind < 45) {
    Attributes attrs;
    int64_t which = rng.below(3);
    Scalar low = randomLiteral(dtype), high = randomLiteral(dtype);
    if (which != 0)
      attrs["min"] = low;
    if (which != 1)
      attrs["max"] = high;
    return tryEmit("clamp", {tensor(v)}, attrs).has_value();
  }
  if (kind < 51) {
    OperandSpec cond;
    for (size_t c = values.size(); c-- > 0 && cond.name.empty();)
      if (values[c].type.dtype == DType::Bool && rng.chance(50))
        cond = tensor(c);
    if (cond.name.empty())
      cond = rng.chance(5) ? literal({Scalar::Bool, rng.below(2), 0})
                           : tensor(newInput(DType::Bool, broadcastable(values[v].type.shape)));
    OperandSpec a = tensor(v), b = partner(v, true);
    if (rng.chance(50))
      std::swap(a, b);
    return tryEmit("where", {cond, a, b}).has_value();
  }
  if (kind < 75) {
    const std::string &op = rng.pick(unaryOps);
    Attributes attrs;
    if (op == "gelu" && rng.chance(60))
      attrs["approximate"] = std::string(rng.chance(50) ? "tanh" : "none");
    return tryEmit(op, {tensor(v)}, attrs).has_value();
  }
  OperandSpec a = tensor(v), b = rng.chance(5) ? a : partner(v, true);
  if (rng.chance(50))
    std::swap(a, b);
  return tryEmit(rng.pick(binaryOps), {a, b}).has_value();
}

/// y = x op moved(x), again and again: twice as many distinct indices a level, until a planner must write something down.
void Generator::butterflies() {
  current = newInput(rng.chance(60) ? DType::F32 : rng.pick(dtypes),
                     rng.chance(50) ? Shape{rng.range(9, 40), rng.range(9, 40)} : Shape{rng.range(30, 700)});
  for (int64_t level = rng.range(4, 13); level > 0; --level) {
    const std::string x = values[current].name;
    const Shape shape = values[current].type.shape;
    int64_t d = rng.below(static_cast<int64_t>(shape.size())), by = rng.range(1, 7);
    std::optional<size_t> moved;
    if (rng.chance(30)) {
      moved = tryEmit("flip", {{x, {}}}, {{"dims", list({d})}});
    } else if (shape[static_cast<size_t>(d)] > by) { // rolled, or shifted with something that comes in
      auto first = tryEmit("slice", {{x, {}}}, {{"dim", integer(d)}, {"start", integer(by)}});
      if (!first)
        continue;
      std::string rest = values[*first].name;
      if (rng.chance(50)) {
        Shape low(shape.size(), 0), high(shape.size(), 0);
        (rng.chance(50) ? low : high)[static_cast<size_t>(d)] = by;
        moved = tryEmit("pad", {{rest, {}}},
                        {{"low", list(low)}, {"high", list(high)}, {"value", Scalar{Scalar::Int, 1, 0}}});
      } else if (auto head = tryEmit("slice", {{x, {}}}, {{"dim", integer(d)}, {"end", integer(by)}})) {
        moved = tryEmit("cat", {{rest, {}}, tensor(*head)}, {{"dim", integer(d)}});
      }
    }
    if (moved)
      if (auto y = tryEmit(arithmetic(), {{x, {}}, tensor(*moved)}))
        current = *y;
  }
}

/// More tensors than a launch takes.
void Generator::many() {
  Shape shape{rng.range(1, 40)};
  DType type = rng.chance(50) ? DType::F32 : DType::I32;
  current = newInput(type, shape);
  for (int64_t n = rng.range(500, 560); n > 0; --n) {
    size_t x = newInput(type, shape);
    if (auto y = tryEmit(arithmetic(), {tensor(current), tensor(x)}))
      current = *y;
  }
}

/// Many values that are all needed to the end.
void Generator::pressure() {
  Shape shape{rng.range(1, 300)};
  size_t x = newInput(DType::F32, shape);
  std::vector<size_t> live;
  for (int64_t n = rng.range(40, 240); n > 0; --n)
    if (auto y =
            tryEmit("mul", {tensor(live.empty() ? x : live.back()), literal({Scalar::Float, 0, 1 + rng.unit() / 64})}))
      live.push_back(*y);
  current = live.front();
  for (size_t i = 1; i < live.size(); ++i) // the oldest first: each is live until here
    if (auto y = tryEmit(arithmetic(), {tensor(current), tensor(live[i])}))
      current = *y;
}

/// Costly functions of a small tensor, which is then spread over a large one.
void Generator::broadcastChain() {
  int64_t inner = rng.range(3, 70), outer = options.maxElements / inner;
  bool row = rng.chance(50);
  current = newInput(DType::F32, row ? Shape{inner} : Shape{inner, 1});
  static const std::vector<std::string> costly = {"sin",   "exp",      "tanh",  "erf",   "gelu",
                                                  "log1p", "softplus", "floor", "square"};
  for (int64_t n = rng.range(4, 14); n > 0; --n)
    if (std::string op = rng.pick(costly); std::find(unaryOps.begin(), unaryOps.end(), op) != unaryOps.end())
      if (auto y = tryEmit(op, {tensor(current)}))
        current = *y;
  size_t large =
      newInput(rng.chance(50) ? DType::F32 : rng.pick(dtypes), row ? Shape{outer, inner} : Shape{inner, outer});
  if (auto y = tryEmit(arithmetic(), {tensor(current), tensor(large)}))
    current = *y;
}

/// A cat of pieces of one size, whose parts are computed from each other's operands, as rotary embeddings do.
void Generator::equalPieces() {
  static const std::vector<int64_t> extents = {1, 2, 4, 8, 16, 32, 64, 7, 12};
  Shape shape;
  for (int64_t r = rng.range(1, 4); r > 0; --r)
    shape.push_back(rng.pick(extents) > 8 && r > 2 ? 2 : rng.pick(extents));
  DType type = rng.pick(dtypes);
  size_t x = newInput(type, shape), y = newInput(type, rng.chance(50) ? shape : broadcastable(shape));
  std::vector<OperandSpec> pieces;
  for (int64_t n = rng.range(2, 8); n > 0; --n) {
    auto p = tryEmit(arithmetic(), {tensor(x), rng.chance(70) ? tensor(y) : tensor(x)});
    if (p && values[*p].type.shape == shape && rng.chance(50))
      p = tryEmit("add", {tensor(*p), literal({Scalar::Int, n, 0})});
    pieces.push_back(p && values[*p].type == values[x].type ? tensor(*p) : tensor(x));
  }
  if (auto z = tryEmit("cat", pieces, {{"dim", integer(rng.below(static_cast<int64_t>(shape.size())))}}))
    current = *z;
}

GraphSpec Generator::run() {
  spec.name = "random";
  spec.strict =
      options.numerics == RandomGraphOptions::Either ? rng.chance(50) : options.numerics == RandomGraphOptions::Strict;
  current = newInput(anyType(true), randomShape());
  int64_t span = options.maxNodes - options.minNodes + 1, shape = rng.below(options.structures ? 200 : 1);
  auto wanted =
      static_cast<size_t>(options.minNodes + std::min(rng.below(span), rng.below(span))); // many small, some long
  // Some start as what a planner must take apart; whatever follows is built on that.
  if (shape >= 180)
    wanted = spec.nodes.size() + static_cast<size_t>(rng.below(5));
  if (shape >= 199)
    many();
  else if (shape >= 195)
    pressure();
  else if (shape >= 190)
    butterflies();
  else if (shape >= 185)
    broadcastChain();
  else if (shape >= 180)
    equalPieces();
  wanted += shape >= 180 ? spec.nodes.size() : 0;
  for (int tries = 0; spec.nodes.size() < wanted && tries < 2000; ++tries)
    step();
  std::vector<std::string> results;
  for (const NodeSpec &n : spec.nodes)
    results.push_back(n.outputs[0]);
  if (!results.empty())
    spec.outputs.push_back(values[current].name);
  for (int64_t more = rng.below(4); more > 0 && !results.empty(); --more)
    spec.outputs.push_back(rng.pick(results));
  if (spec.outputs.empty() || rng.chance(8))
    spec.outputs.push_back(values[static_cast<size_t>(rng.below(static_cast<int64_t>(values.size())))].name);
  std::set<std::string> seen;
  std::erase_if(spec.outputs, [&](const std::string &name) { return !seen.insert(name).second; });
  if (rng.chance(85))
    dropDead(spec);
  if (rng.chance(20))
    for (size_t i = spec.nodes.size(); i > 1; --i)
      std::swap(spec.nodes[i - 1], spec.nodes[static_cast<size_t>(rng.below(static_cast<int64_t>(i)))]);
  if (Result<Graph> graph = resolve(spec); !graph) {
    std::fprintf(stderr, "the generator made a graph that does not resolve: %s\n", graph.error().str().c_str());
    std::abort();
  }
  return std::move(spec);
}

} // namespace

GraphSpec randomGraph(uint64_t seed, const RandomGraphOptions &options) { return Generator(seed, options).run(); }

} // namespace rl::numeric
