// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/plan/Trace.h"
#include "ir/index/Access.h"

#include <algorithm>
#include <array>
#include <map>

namespace rl {

using index::Context;
using index::Expr;

namespace {

/// A value wanted at an index, in a scope and under a guard.
struct Want {
  ValueId value;
  IndexTuple index;
  uint32_t scope, guard;
};

struct Key {
  ValueId value;
  uint32_t guard;
  IndexTuple index;
  bool operator==(const Key &) const = default;
};
struct KeyHash {
  size_t operator()(const Key &k) const {
    size_t h = k.value * 0x9E3779B97F4A7C15ull + k.guard;
    for (Expr e : k.index)
      h = (h ^ reinterpret_cast<size_t>(e.sum)) * 0x9E3779B97F4A7C15ull;
    return h;
  }
};

class Tracer {
public:
  explicit Tracer(const TraceRequest &request) : request(request), graph(*request.graph) {}
  Status run();
  TraceOutcome out;
  Trace &trace = out.trace;

private:
  /// A value being evaluated: its operands are wanted one after the other.
  struct Frame {
    explicit Frame(Want want) : want(std::move(want)) {}
    Want want;
    bool started = false;
    bool indexFirst = false; ///< of a gather: what it picks from is wanted once the index is there
    std::vector<Want> wants; ///< in the order of the operands
    Instance made;
    size_t next = 0;
    std::array<uint8_t, 3> turn = {0, 1, 2}; ///< of an elementwise op: the order in which operands are evaluated
    size_t turnOf(size_t i) const { return made.pieces.empty() && i < turn.size() ? turn[i] : i; }
  };

  uint32_t find(const Want &);
  void measureNeeds();
  Status start(Frame &);
  Status startReduction(Frame &, const Node &);
  bool isPerSegment(const IndexTuple &, int64_t extent);
  void startGather(Frame &, const Node &);
  void wantGathered(Frame &);
  void addIndexOperands(Instance &) const;
  Status startProduct(Frame &, const Node &);
  IndexTuple indexBehindProduct(ValueId output);
  Status foreign(const Frame &, const Node &, const char *why);
  void placeInRow(Instance &) const;
  bool dependsOnElement(Expr e) const {
    e = ctx->expand(e);
    for (int d : e.dims())
      if (uint32_t i = trace.indexInstance(d); i != kNone && trace.instances[i].varies)
        return true;
    return e.dependsOn(trace.vectorDim) || (trace.laneDim >= 0 && !trace.lanesAcross && e.dependsOn(trace.laneDim));
  }
  void startPieces(Frame &, const std::vector<index::Guarded> &);
  uint32_t finish(Frame &);
  Result<uint32_t> evaluate(Want);
  uint32_t guardWith(uint32_t guard, const std::vector<Condition> &more);
  bool isAncestor(uint32_t scope, uint32_t of) const {
    for (; of != kNone; of = trace.scopes[of].parent)
      if (of == scope)
        return true;
    return false;
  }
  bool dependsOnLane(Expr e) const { return trace.dependsOnLane(ctx->expand(e)); }
  bool guardDependsOnLane(uint32_t guard) const {
    return std::any_of(trace.guards[guard].begin(), trace.guards[guard].end(),
                       [&](const Condition &c) { return dependsOnLane(c.expr); });
  }

  const TraceRequest &request;
  const Graph &graph;
  Context *ctx = nullptr;
  std::vector<int> need; ///< by value: registers that evaluating it as a tree takes (Sethi and Ullman 1970)
  bool isForeign = false;
  Expr element; ///< in the iteration space, or in the row
  std::unordered_map<Key, std::vector<uint32_t>, KeyHash> memo;
  std::map<std::pair<uint32_t, int64_t>, int> indexDims; ///< instance, extent -> the dimension that is its value
};

uint32_t Tracer::find(const Want &w) {
  auto it = memo.find(Key{w.value, w.guard, w.index});
  if (it == memo.end())
    return kNone;
  for (uint32_t i : it->second)
    if (isAncestor(trace.instances[i].scope, w.scope))
      return i;
  return kNone;
}

uint32_t Tracer::guardWith(uint32_t guard, const std::vector<Condition> &more) {
  std::vector<Condition> all = trace.guards[guard];
  for (const Condition &c : more)
    if (std::find(all.begin(), all.end(), c) == all.end())
      all.push_back(c);
  for (uint32_t i = 0; i < trace.guards.size(); ++i)
    if (trace.guards[i] == all)
      return i;
  trace.guards.push_back(std::move(all));
  return static_cast<uint32_t>(trace.guards.size() - 1);
}

void Tracer::measureNeeds() {
  need.assign(graph.values.size(), 0);
  std::vector<NodeId> reached;
  std::vector<ValueId> work = request.outputs;
  while (!work.empty()) {
    ValueId v = work.back();
    work.pop_back();
    if (need[v])
      continue;
    need[v] = 1;
    if (graph.values[v].kind != Value::Result || request.boundary[v])
      continue;
    reached.push_back(graph.values[v].node);
    for (const Operand &o : graph.nodes[reached.back()].inputs)
      if (!o.isLiteral())
        work.push_back(o.value);
  }
  std::sort(reached.begin(), reached.end());
  std::vector<int> needs;
  for (NodeId n : reached) {
    const Node &node = graph.nodes[n];
    needs.clear();
    for (const Operand &o : node.inputs)
      if (!o.isLiteral())
        needs.push_back(need[o.value]);
    std::sort(needs.rbegin(), needs.rend());
    int most = 1;
    // The k-th is evaluated while the results of those before it wait. Pieces of a cat do not wait for one another.
    for (size_t k = 0; k < needs.size(); ++k)
      most = std::max(most, needs[k] + (node.op == OpKind::Cat ? 0 : static_cast<int>(k)));
    for (ValueId v : node.outputs)
      need[v] = most;
  }
}

/// Decides what a value needs: nothing (a load, a creation), operands at indices, or pieces.
Status Tracer::start(Frame &f) {
  f.started = true;
  const Value &value = graph.values[f.want.value];
  f.made.value = f.want.value;
  f.made.index = f.want.index;
  f.made.scope = f.want.scope;
  f.made.guard = f.want.guard;
  if (value.kind != Value::Result || request.boundary[f.want.value]) {
    f.made.linear = index::address(*ctx, f.want.index, value.type.shape);
    f.made.uniform = !dependsOnLane(f.made.linear) && !guardDependsOnLane(f.want.guard);
    return {};
  }
  const Node &node = graph.nodes[value.node];
  uint64_t weight = 0;
  for (Expr e : f.want.index)
    weight += e.weight();
  if (weight > request.maxIndexWeight || trace.guards[f.want.guard].size() > request.maxGuards) {
    out.exceeded = true;
    out.deep = f.want.value;
    out.indexWeight = static_cast<uint32_t>(std::min<uint64_t>(weight, index::kMaxWeight));
    out.guards = trace.guards[f.want.guard].size();
    return unsupported(node.pointer(), graph.describe(value.node) + " is too deep in layouts");
  }
  f.made.node = value.node;
  f.made.guard = 0;
  const std::vector<int64_t> &shape = value.type.shape;
  auto want = [&](const Operand &o, IndexTuple at) {
    f.wants.push_back({o.value, std::move(at), f.want.scope, f.want.guard});
  };
  OpClass cls = opInfo(node.op).cls;
  switch (cls) {
  case OpClass::Unary:
  case OpClass::Binary:
  case OpClass::Ternary:
    for (const Operand &o : node.inputs)
      if (!o.isLiteral())
        want(o, index::broadcastIndex(*ctx, f.want.index, shape, graph.type(o.value).shape));
    // What needs more registers first, so that less waits for it.
    std::sort(f.turn.begin(), f.turn.begin() + static_cast<std::ptrdiff_t>(f.wants.size()), [&](uint8_t a, uint8_t b) {
      return std::pair(-need[f.wants[a].value], a) < std::pair(-need[f.wants[b].value], b);
    });
    return {};
  case OpClass::Creation: return {};
  case OpClass::Indexing: startGather(f, node); return {};
  case OpClass::Shape: break;
  case OpClass::Reduction:
    if (request.width)
      return startReduction(f, node);
    return foreign(f, node, " is not a pointwise or layout op");
  case OpClass::Matrix:
    if (request.width && node.op == OpKind::Matmul)
      return startProduct(f, node);
    return foreign(f, node, " is not a pointwise or layout op");
  default: return unsupported(node.pointer(), graph.describe(value.node) + " is not a pointwise or layout op");
  }
  const std::vector<int64_t> &from = graph.type(node.inputs[0].value).shape;
  const Attrs &a = node.attrs;
  switch (node.op) {
  case OpKind::Reshape:
  case OpKind::Unsqueeze:
  case OpKind::Squeeze: want(node.inputs[0], index::reshapeOperand(*ctx, f.want.index, shape, from)); return {};
  case OpKind::Permute: want(node.inputs[0], index::permuteOperand(f.want.index, a.dims)); return {};
  case OpKind::Expand: want(node.inputs[0], index::broadcastIndex(*ctx, f.want.index, shape, from)); return {};
  case OpKind::Slice: want(node.inputs[0], index::sliceOperand(*ctx, f.want.index, a.dim, a.start, a.step)); return {};
  case OpKind::Flip: want(node.inputs[0], index::flipOperand(*ctx, f.want.index, from, a.dims)); return {};
  case OpKind::Pad: {
    startPieces(f, {index::padOperand(*ctx, f.want.index, a.low, from)});
    return {};
  }
  case OpKind::Cat: {
    std::vector<int64_t> extents;
    for (const Operand &o : node.inputs)
      extents.push_back(graph.type(o.value).shape[a.dim]);
    std::vector<index::Guarded> pieces;
    for (size_t i = 0; i < extents.size(); ++i)
      pieces.push_back(index::catOperand(*ctx, f.want.index, a.dim, extents, i));
    startPieces(f, pieces);
    return {};
  }
  default: return unsupported(node.pointer(), graph.describe(value.node) + " has no index map");
  }
}

Status Tracer::foreign(const Frame &f, const Node &node, const char *why) {
  isForeign = request.width != 0;
  return unsupported(node.pointer(), graph.describe(graph.values[f.want.value].node) + why);
}

/// A product's elements come in the kernel's order, from all threads together: it may be read in no other, in no branch and under
/// no guard.
Status Tracer::startProduct(Frame &f, const Node &node) {
  const std::vector<int64_t> &shape = graph.type(f.want.value).shape;
  Expr own = ctx->add(ctx->mul(ctx->dim(trace.rowDim), request.width), element);
  if (!request.products || f.want.scope != 0 || f.want.guard != 0 ||
      graph.type(f.want.value).elements() != trace.elements || index::address(*ctx, f.want.index, shape) != own)
    return foreign(f, node, " is not a product of this kernel");
  return {};
}

/// At which index to compute an output so that the product it comes from is read in its own order: behind a permutation, which
/// becomes an index map of the store. What moves the last dimension would make stores of single elements: not followed.
IndexTuple Tracer::indexBehindProduct(ValueId output) {
  std::unordered_map<ValueId, ValueId> below{{output, kNone}};
  std::vector<ValueId> work{output};
  ValueId product = kNone;
  for (size_t w = 0; w < work.size() && product == kNone; ++w) {
    ValueId u = work[w];
    if (graph.values[u].kind != Value::Result || (u != output && request.boundary[u]))
      continue;
    const Node &node = graph.nodes[graph.values[u].node];
    if (node.op == OpKind::Matmul) {
      product = u;
      break;
    }
    bool follows = opInfo(node.op).cls == OpClass::Unary || opInfo(node.op).cls == OpClass::Binary ||
                   opInfo(node.op).cls == OpClass::Ternary || node.op == OpKind::Reshape ||
                   node.op == OpKind::Unsqueeze || node.op == OpKind::Squeeze ||
                   (node.op == OpKind::Permute && node.attrs.dims.back() + 1 == graph.type(u).rank());
    for (const Operand &in : node.inputs)
      if (follows && !in.isLiteral() && graph.type(in.value).elements() == graph.type(u).elements() &&
          below.try_emplace(in.value, u).second)
        work.push_back(in.value);
  }
  Expr own = ctx->add(ctx->mul(ctx->dim(trace.rowDim), request.width), element);
  if (product == kNone || graph.type(product).elements() != trace.elements)
    return index::delinearize(*ctx, own, graph.type(output).shape);
  IndexTuple at = index::delinearize(*ctx, own, graph.type(product).shape);
  for (ValueId from = product, to = below[product]; to != kNone; from = to, to = below[to]) {
    const Node &node = graph.nodes[graph.values[to].node];
    if (node.op == OpKind::Permute) {
      IndexTuple moved;
      for (int64_t d : node.attrs.dims)
        moved.push_back(at[static_cast<size_t>(d)]);
      at = std::move(moved);
    } else if (graph.type(to).shape != graph.type(from).shape) {
      at = index::reshapeOperand(*ctx, at, graph.type(from).shape, graph.type(to).shape);
    }
  }
  return at;
}

/// Whether an index is the same for each `extent` neighbouring elements of the row, which are whole vectors.
bool Tracer::isPerSegment(const IndexTuple &at, int64_t extent) {
  if (!request.segments || extent < 2 || request.width % extent != 0 || extent % request.lanes != 0 ||
      request.lanesAcross || request.parts > 1)
    return false;
  if (request.products ? extent > kMostTileSegment : extent == request.width)
    return false;
  Context::Split vectors = ctx->split(trace.vectorDim, extent / request.lanes);
  for (Expr e : at) {
    e = ctx->substitute(ctx->expand(e), trace.vectorDim, vectors.value);
    if (e.dependsOn(vectors.lane) || (trace.laneDim >= 0 && e.dependsOn(trace.laneDim)))
      return false;
    for (int d : e.dims())
      if (uint32_t i = trace.indexInstance(d); i != kNone && trace.instances[i].varies)
        return false;
  }
  return true;
}

/// The operand of a reduction at the kernel's row: the kept dimensions are the result's index, the others the place in the
/// row. All threads of a row take part, so it may stand in no branch and under no guard.
Status Tracer::startReduction(Frame &f, const Node &node) {
  const std::vector<int64_t> &from = graph.type(node.inputs[0].value).shape;
  std::vector<int64_t> reduced;
  std::vector<bool> isReduced(from.size(), false);
  int64_t extent = 1;
  for (int64_t d : node.attrs.dims) {
    isReduced[static_cast<size_t>(d)] = true;
    reduced.push_back(from[static_cast<size_t>(d)]);
    extent *= reduced.back();
  }
  bool here = f.want.scope == 0 && f.want.guard == 0, varies = false;
  for (Expr e : f.want.index)
    varies |= dependsOnElement(e);
  if (extent != request.width || varies || request.products) {
    here &= isPerSegment(f.want.index, extent);
    f.made.segment = extent;
  }
  if (!here)
    return foreign(f, node, " does not reduce the rows of this kernel");
  IndexTuple place = index::delinearize(*ctx, f.made.segment ? ctx->mod(element, f.made.segment) : element, reduced);
  IndexTuple at;
  size_t next = 0, kept = 0;
  for (size_t d = 0; d < from.size(); ++d) {
    if (isReduced[d]) {
      at.push_back(place[next++]);
      kept += node.attrs.keepdim;
    } else {
      at.push_back(f.want.index[kept++]);
    }
  }
  f.wants.push_back({node.inputs[0].value, std::move(at), 0, 0});
  return {};
}

/// The index first: what is gathered is wanted at its value.
void Tracer::startGather(Frame &f, const Node &node) {
  f.indexFirst = true;
  f.made.guard = f.want.guard;
  IndexTuple at = f.want.index;
  if (node.op == OpKind::Embedding)
    at.pop_back();
  else if (node.op == OpKind::IndexSelect)
    at = {at[static_cast<size_t>(node.attrs.dim)]};
  f.wants.push_back({node.inputs[1].value, std::move(at), f.want.scope, f.want.guard});
}

/// The second half of startGather. Nothing can be read of a table without elements.
void Tracer::wantGathered(Frame &f) {
  const Node &node = graph.nodes[f.made.node];
  const std::vector<int64_t> &shape = graph.type(node.inputs[0].value).shape;
  size_t dim = node.op == OpKind::Embedding ? 0 : static_cast<size_t>(node.attrs.dim);
  if (shape[dim] == 0)
    return;
  uint32_t index = find(f.wants[0]);
  auto [it, fresh] = indexDims.try_emplace({index, shape[dim]}, 0);
  if (fresh) {
    it->second = ctx->addDim(shape[dim]);
    trace.indexOf.resize(static_cast<size_t>(ctx->dimCount()), kNone);
    trace.indexOf.back() = index;
  }
  IndexTuple at = f.want.index;
  if (node.op == OpKind::Embedding)
    at = {at.back(), at.back()};
  at[dim] = ctx->dim(it->second);
  f.wants.push_back({node.inputs[0].value, std::move(at), f.want.scope, f.want.guard});
}

/// The instances behind the dimensions that say where the instance reads, and whether it does.
void Tracer::addIndexOperands(Instance &made) const {
  auto add = [&](Expr e) {
    if (indexDims.empty() || !e)
      return;
    Expr plain = ctx->expand(e);
    for (int d : plain.dims())
      if (uint32_t i = trace.indexInstance(d);
          i != kNone && std::find(made.operands.begin(), made.operands.end(), i) == made.operands.end())
        made.operands.push_back(i);
  };
  if (made.node == kNone)
    add(made.linear);
  else if (const Node &node = graph.nodes[made.node]; node.op == OpKind::Iota)
    add(made.index[static_cast<size_t>(node.attrs.dim)]);
  for (const Condition &c : trace.guards[made.guard])
    add(c.expr);
  for (const Instance::Piece &p : made.pieces)
    for (const Condition &c : p.conditions)
      add(c.expr);
}

/// Whether an instance differs within a row, and after how many reductions it is known.
void Tracer::placeInRow(Instance &made) const {
  auto from = [&](uint32_t i) {
    if (i == kNone)
      return;
    made.varies |= trace.instances[i].varies;
    made.level = std::max(made.level, trace.instances[i].level);
  };
  for (const Condition &c : trace.guards[made.guard])
    made.varies |= dependsOnElement(c.expr);
  if (made.node == kNone) {
    made.varies |= dependsOnElement(made.linear);
    for (uint32_t o : made.operands)
      from(o);
    return;
  }
  const Node &node = graph.nodes[made.node];
  if (node.op == OpKind::Matmul)
    made.varies = true;
  if (node.op == OpKind::Iota)
    made.varies = dependsOnElement(made.index[node.attrs.dim]);
  for (uint32_t o : made.operands)
    from(o);
  for (const Instance::Piece &p : made.pieces) {
    from(p.instance);
    for (const Condition &c : p.conditions)
      made.varies |= dependsOnElement(c.expr);
  }
  if (opInfo(node.op).cls == OpClass::Reduction) {
    made.varies = made.segment != 0;
    made.level += made.segment == 0 || request.products;
  }
}

/// Pieces of a cat (in order, covering everything) or of a pad (one, with what is outside given by the pad value). Pieces
/// that no point reaches are dropped; conditions that always hold are dropped; a single piece that always holds is not a
/// choice at all.
void Tracer::startPieces(Frame &f, const std::vector<index::Guarded> &pieces) {
  const Node &node = graph.nodes[f.made.node];
  bool pad = node.op == OpKind::Pad;
  struct Candidate {
    ValueId value;
    IndexTuple index;
    std::vector<Condition> conditions;
  };
  std::vector<Candidate> kept;
  bool covered = false;
  for (size_t i = 0; i < pieces.size() && !covered; ++i) {
    std::vector<Condition> conditions;
    for (const Condition &c : pieces[i].conditions) {
      const Condition whole = index::expanded(*ctx, c);
      const index::Conditions parts =
          trace.laneDim < 0 ? index::Conditions{whole} : index::independentOf(*ctx, whole, trace.laneDim);
      conditions.insert(conditions.end(), parts.begin(), parts.end());
    }
    const TensorType &type = graph.type(node.inputs[i].value);
    if (pieces[i].never() || type.elements() == 0)
      continue;
    covered = conditions.empty();
    kept.push_back({node.inputs[i].value, pieces[i].index, std::move(conditions)});
  }
  // A cat's last piece is what is left; so its own conditions need no test.
  if (!pad && !kept.empty())
    covered = true;
  bool lanesDiffer = false;
  for (size_t i = 0; i < kept.size(); ++i)
    for (const Condition &c : kept[i].conditions)
      lanesDiffer |= dependsOnLane(c.expr);
  size_t choices = kept.size() + (covered ? 0 : 1);
  uint32_t depth = trace.scopes[f.want.scope].depth;
  f.made.branches = choices > 1 && !lanesDiffer && depth < kMaxBranchDepth;
  for (size_t i = 0; i < kept.size(); ++i) {
    bool last = i + 1 == choices;
    Instance::Piece piece;
    piece.scope = f.want.scope;
    uint32_t guard = f.want.guard;
    if (f.made.branches) {
      piece.scope = static_cast<uint32_t>(trace.scopes.size());
      trace.scopes.push_back({f.want.scope, depth + 1, {}});
    } else if (choices > 1) {
      guard = guardWith(guard, kept[i].conditions);
    }
    if (!last)
      piece.conditions = kept[i].conditions;
    f.made.pieces.push_back(std::move(piece));
    f.wants.push_back({kept[i].value, std::move(kept[i].index), f.made.pieces.back().scope, guard});
  }
  if (!covered) {
    Instance::Piece piece;
    piece.scope = f.want.scope;
    f.made.pieces.push_back(piece);
  }
}

uint32_t Tracer::finish(Frame &f) {
  Instance &made = f.made;
  if (made.node != kNone) {
    const Node &node = graph.nodes[made.node];
    if (node.op == OpKind::Matmul) {
      made.uniform = false;
    } else if (opInfo(node.op).cls == OpClass::Creation) {
      made.uniform = node.op == OpKind::Full || !dependsOnLane(made.index[node.attrs.dim]);
    } else if (node.op == OpKind::Cat || node.op == OpKind::Pad) {
      made.uniform = true;
      for (size_t i = 0; i < f.wants.size(); ++i) {
        made.pieces[i].instance = find(f.wants[i]);
        made.uniform &= trace.instances[made.pieces[i].instance].uniform;
        for (const Condition &c : made.pieces[i].conditions)
          made.uniform &= !dependsOnLane(c.expr);
      }
    } else if (opInfo(node.op).cls == OpClass::Indexing) {
      uint32_t index = find(f.wants[0]);
      made.operands = {f.wants.size() > 1 ? find(f.wants[1]) : kNone, index};
      made.uniform = trace.instances[index].uniform && !guardDependsOnLane(made.guard) &&
                     (made.operands[0] == kNone || trace.instances[made.operands[0]].uniform);
    } else {
      made.uniform = true;
      size_t w = 0;
      for (const Operand &o : node.inputs) {
        made.operands.push_back(o.isLiteral() ? kNone : find(f.wants[w++]));
        if (!o.isLiteral())
          made.uniform &= trace.instances[made.operands.back()].uniform;
      }
      if (opInfo(node.op).cls == OpClass::Reduction)
        made.uniform = !trace.lanesAcross;
    }
  }
  addIndexOperands(made);
  if (request.width) {
    placeInRow(made);
    trace.levels = std::max(trace.levels, made.level);
  }
  auto id = static_cast<uint32_t>(trace.instances.size());
  trace.scopes[made.scope].order.push_back(id);
  memo[Key{f.want.value, f.want.guard, f.want.index}].push_back(id);
  trace.instances.push_back(std::move(made));
  return id;
}

Result<uint32_t> Tracer::evaluate(Want root) {
  if (uint32_t known = find(root); known != kNone)
    return known;
  std::vector<Frame> stack;
  stack.push_back(Frame(std::move(root)));
  uint32_t last = kNone;
  while (!stack.empty()) {
    Frame &f = stack.back();
    if (!f.started) {
      Status s = start(f);
      if (isForeign)
        for (const Frame &on : stack)
          out.foreign.push_back(on.want.value);
      RL_TRY(std::move(s));
    }
    bool pushed = false;
    while (f.next < f.wants.size()) {
      const Want &want = f.wants[f.turnOf(f.next)];
      if (find(want) != kNone) {
        ++f.next;
        continue;
      }
      stack.push_back(Frame(want));
      pushed = true;
      break;
    }
    if (pushed)
      continue;
    if (f.indexFirst) {
      f.indexFirst = false;
      wantGathered(f);
      continue;
    }
    out.exceeded = trace.instances.size() >= request.maxInstances;
    if (out.exceeded)
      return unsupported({}, "more than " + std::to_string(request.maxInstances) + " values at distinct indices");
    last = finish(f);
    stack.pop_back();
  }
  return last;
}

Status Tracer::run() {
  measureNeeds();
  trace.context = std::make_shared<Context>();
  ctx = trace.context.get();
  trace.lanes = request.lanes;
  trace.width = request.width;
  trace.lanesAcross = request.lanesAcross;
  trace.elements =
      request.width ? request.rows * request.width : iterationElements(graph, request.outputs[0], request.splitCat);
  trace.scopes.push_back({});
  trace.guards.push_back({});
  int64_t rowLanes = request.lanesAcross ? request.lanes : 1, lanes = request.lanes / rowLanes;
  if (request.width)
    trace.rowDim = ctx->addDim(request.rows / rowLanes);
  int64_t vectors = (request.width ? request.width : trace.elements) / lanes;
  trace.vectorDim = ctx->addDim(vectors);
  element = ctx->dim(trace.vectorDim);
  Expr row = request.width ? ctx->dim(trace.rowDim) : element;
  if (request.lanes > 1) {
    trace.laneDim = ctx->addDim(request.lanes);
    Expr &of = request.lanesAcross ? row : element;
    of = ctx->add(ctx->mul(of, request.lanes), ctx->dim(trace.laneDim));
  }
  for (uint32_t o = 0; o < request.outputs.size(); ++o) {
    ValueId v = request.outputs[o];
    if (request.products && graph.type(v).elements() == trace.elements) {
      IndexTuple at = indexBehindProduct(v);
      RL_ASSIGN(uint32_t i, evaluate({v, at, 0, 0}));
      trace.stores.push_back({i, o, index::address(*ctx, at, graph.type(v).shape)});
      continue;
    }
    if (request.width) {
      if (!request.columnSums.empty() && request.columnSums[o] != kNone) {
        ValueId of = request.columnSums[o];
        Expr in = ctx->add(ctx->mul(row, request.width), element);
        RL_ASSIGN(uint32_t i, evaluate({of, index::delinearize(*ctx, in, graph.type(of).shape), 0, 0}));
        Expr part =
            request.partsInTurn ? ctx->mod(row, request.parts) : ctx->floordiv(row, request.rows / request.parts);
        trace.columnSums.push_back({i, o, ctx->add(ctx->mul(part, request.width), element)});
        continue;
      }
      Expr at = row;
      if (int64_t n = graph.type(v).elements(); n == request.rows * request.width)
        at = ctx->add(ctx->mul(at, request.width), element);
      else if (n != request.rows)
        at = ctx->add(ctx->mul(at, n / request.rows), ctx->floordiv(element, request.rows * request.width / n));
      RL_ASSIGN(uint32_t i, evaluate({v, index::delinearize(*ctx, at, graph.type(v).shape), 0, 0}));
      trace.stores.push_back({i, o, at});
      continue;
    }
    if (!request.splitCat) {
      Want want{v, index::delinearize(*ctx, element, graph.type(v).shape), 0, 0};
      RL_ASSIGN(uint32_t i, evaluate(std::move(want)));
      trace.stores.push_back({i, o, element});
      continue;
    }
    const Node &cat = graph.nodes[graph.values[v].node];
    int64_t offset = 0;
    for (const Operand &piece : cat.inputs) {
      const std::vector<int64_t> &shape = graph.type(piece.value).shape;
      IndexTuple at = index::delinearize(*ctx, element, shape);
      RL_ASSIGN(uint32_t i, evaluate({piece.value, at, 0, 0}));
      at[cat.attrs.dim] = ctx->add(at[cat.attrs.dim], offset);
      trace.stores.push_back({i, o, index::address(*ctx, at, graph.type(v).shape)});
      offset += shape[cat.attrs.dim];
    }
  }
  if (ctx->overflowed())
    return unsupported({}, "an index of a fused kernel does not fit 64 bits");
  return {};
}

} // namespace

bool Trace::dependsOnLane(Expr e) const {
  if (laneDim < 0)
    return false;
  for (int d : e.dims())
    if (uint32_t i = indexInstance(d); d == laneDim || (i != kNone && !instances[i].uniform))
      return true;
  return false;
}

bool Trace::isGathered(const Instance &in) const {
  if (in.node != kNone)
    return false;
  const std::vector<int> &dims = in.linear.dims();
  return std::any_of(dims.begin(), dims.end(), [&](int d) { return indexInstance(d) != kNone; });
}

Result<TraceOutcome> tracePointwiseUpTo(const TraceRequest &request) {
  Tracer tracer(request);
  if (Status s = tracer.run(); !s && !tracer.out.exceeded && tracer.out.foreign.empty())
    return s.takeError();
  return std::move(tracer.out);
}

Result<Trace> tracePointwise(const TraceRequest &request) {
  Tracer tracer(request);
  RL_TRY(tracer.run());
  return std::move(tracer.trace);
}

int64_t iterationElements(const Graph &graph, ValueId output, bool splitCat) {
  if (!splitCat)
    return graph.type(output).elements();
  return graph.type(graph.nodes[graph.values[output].node].inputs[0].value).elements();
}

bool isSplittableCat(const Graph &graph, ValueId v) {
  if (graph.values[v].kind != Value::Result)
    return false;
  const Node &node = graph.nodes[graph.values[v].node];
  if (node.op != OpKind::Cat || node.inputs.size() < 2 || node.inputs.size() > 8)
    return false;
  for (const Operand &o : node.inputs)
    if (graph.type(o.value) != graph.type(node.inputs[0].value))
      return false;
  return graph.type(v).elements() > 0;
}

} // namespace rl
