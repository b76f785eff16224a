// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Traces: which instances there are, in which scopes and under which guards; and that evaluating a trace gives what the
// reference interpreter gives, for vectors of every width and random chains of layout ops.
#include "ir/interp/Interpreter.h"
#include "passes/plan/Dominance.h"
#include "passes/plan/Measure.h"
#include "tests/unit/TraceHarness.h"

#include <cstring>
#include <map>
#include <random>
#include <set>

namespace {

size_t countOf(const Graph &graph, const Trace &trace, const std::string &name) {
  size_t n = 0;
  for (const Instance &in : trace.instances)
    n += graph.values[in.value].name == name;
  return n;
}

const Instance *find(const Graph &graph, const Trace &trace, const std::string &name) {
  for (const Instance &in : trace.instances)
    if (graph.values[in.value].name == name)
      return &in;
  ADD_FAILURE() << "no instance of " << name;
  return nullptr;
}

//===--------------------------------------------------------------------------------------------------------------===//
// Instances
//===--------------------------------------------------------------------------------------------------------------===//

TEST(Trace, AChainIsOneInstanceAValue) {
  GraphBuilder g("chain");
  auto x = g.input("x", DType::F32, {4, 10});
  g.output(g.mul(g.name(g.relu(x), "a"), g.name(g.neg(x), "b")), "y");
  Graph graph = graphOf(g);
  Trace t = traceOf(graph, 4);
  ASSERT_EQ(t.instances.size(), 4u); // x once, though it is read twice
  EXPECT_EQ(t.elements, 40);
  ASSERT_EQ(t.scopes.size(), 1u);
  EXPECT_EQ(t.scopes[0].order, (std::vector<uint32_t>{0, 1, 2, 3}));
  EXPECT_EQ(t.instances[0].node, kNone);
  EXPECT_EQ(t.context->str(t.instances[0].linear), t.context->str(t.stores[0].linear));
  ASSERT_EQ(t.stores.size(), 1u);
  EXPECT_EQ(t.stores[0].instance, 3u);
  for (const Instance &in : t.instances)
    EXPECT_FALSE(in.uniform);
}

TEST(Trace, OperandsComeBeforeTheirUsers) {
  GraphBuilder g("order");
  auto x = g.input("x", DType::F32, {64}), y = g.input("y", DType::F32, {64});
  auto a = g.add(x, y), b = g.mul(a, 2.0), c = g.sub(b, a);
  g.output(g.div(c, g.where(g.gt(a, 0), b, x)), "z");
  Graph graph = graphOf(g);
  Trace t = traceOf(graph, 1);
  std::set<uint32_t> done;
  for (uint32_t i : t.scopes[0].order) {
    for (uint32_t o : t.instances[i].operands)
      EXPECT_TRUE(o == kNone || done.contains(o));
    done.insert(i);
  }
  EXPECT_EQ(done.size(), t.instances.size());
}

TEST(Trace, AnIndexThatLanesShareLeavesVectorsWhole) {
  GraphBuilder g("rows");
  auto table = g.input("t", DType::F32, {100, 64}), other = g.input("o", DType::F32, {100, 64}),
       i = g.input("i", DType::I64, {10});
  g.output(g.add(g.embedding(table, i), g.name(g.embedding(other, i), "e")), "y");
  Graph graph = graphOf(g);
  Trace t = traceOf(graph, 4);
  // One index, and one dimension for both tables.
  EXPECT_EQ(countOf(graph, t, "i"), 1u);
  EXPECT_EQ(std::count_if(t.indexOf.begin(), t.indexOf.end(), [](uint32_t of) { return of != kNone; }), 1);
  const Instance *index = find(graph, t, "i"), *row = find(graph, t, "t"), *e = find(graph, t, "e");
  EXPECT_TRUE(index->uniform);
  EXPECT_FALSE(t.isGathered(*index));
  EXPECT_TRUE(t.isGathered(*row));
  EXPECT_EQ(row->linear.coefficient(t.laneDim), 1);
  EXPECT_FALSE(row->linear.dependsNonlinearly(t.laneDim));
  // The load comes behind its index, and what is gathered has both as operands.
  ASSERT_EQ(row->operands.size(), 1u);
  EXPECT_EQ(&t.instances[row->operands[0]], index);
  ASSERT_EQ(e->operands.size(), 2u);
  EXPECT_EQ(&t.instances[e->operands[1]], index);
}

TEST(Trace, AnIndexOfEachLaneIsNoVectorOfTheTable) {
  GraphBuilder g("elements");
  auto x = g.input("x", DType::F32, {16, 64}), i = g.input("i", DType::I32, {16, 64});
  g.output(g.gather(x, i, 1), "y");
  Graph graph = graphOf(g);
  Trace t = traceOf(graph, 4);
  EXPECT_FALSE(find(graph, t, "i")->uniform);
  EXPECT_TRUE(t.dependsOnLane(find(graph, t, "x")->linear));
}

TEST(Trace, ATableWithoutElementsIsNotRead) {
  GraphBuilder g("nothing");
  g.output(g.embedding(g.input("t", DType::F32, {0, 8}), g.input("i", DType::I64, {3})), "y");
  Graph graph = graphOf(g);
  Trace t = traceOf(graph, 1);
  EXPECT_EQ(countOf(graph, t, "t"), 0u);
  EXPECT_EQ(t.instances.back().operands[0], kNone);
}

TEST(Trace, LiteralsAreNoInstances) {
  GraphBuilder g("literal");
  g.output(g.add(1.5, g.input("x", DType::F32, {4})), "y");
  Graph graph = graphOf(g);
  Trace t = traceOf(graph, 1);
  ASSERT_EQ(t.instances.size(), 2u);
  EXPECT_EQ(t.instances[1].operands, (std::vector<uint32_t>{kNone, 0}));
}

TEST(Trace, AValueReadAtTwoIndicesHasTwoInstances) {
  GraphBuilder g("flip");
  auto x = g.name(g.exp(g.input("x", DType::F32, {64})), "e");
  g.output(g.add(x, g.flip(x, {0})), "y");
  Graph graph = graphOf(g);
  Trace t = traceOf(graph, 1);
  EXPECT_EQ(countOf(graph, t, "x"), 2u);
  EXPECT_EQ(countOf(graph, t, "e"), 2u);
}

TEST(Trace, LayoutsThatCancelGiveOneInstance) {
  GraphBuilder g("cancel");
  auto x = g.name(g.exp(g.input("x", DType::F32, {8, 16})), "e");
  auto back = g.permute(g.permute(g.flip(g.flip(x, {1}), {1}), {1, 0}), {1, 0});
  g.output(g.add(x, g.reshape(g.reshape(back, {128}), {8, 16})), "y");
  Graph graph = graphOf(g);
  Trace t = traceOf(graph, 4);
  EXPECT_EQ(countOf(graph, t, "e"), 1u);
  EXPECT_EQ(countOf(graph, t, "x"), 1u);
}

TEST(Trace, WhatAllLanesShareIsUniform) {
  GraphBuilder g("rows");
  auto x = g.input("x", DType::F32, {32, 64}), row = g.input("row", DType::F32, {32, 1}),
       column = g.input("column", DType::F32, {64});
  auto r = g.name(g.exp(row), "r"), c = g.name(g.exp(column), "c");
  g.output(g.add(g.mul(x, r), c), "y");
  Graph graph = graphOf(g);
  Trace t = traceOf(graph, 4);
  EXPECT_TRUE(find(graph, t, "row")->uniform);
  EXPECT_TRUE(find(graph, t, "r")->uniform);
  EXPECT_FALSE(find(graph, t, "column")->uniform);
  EXPECT_FALSE(find(graph, t, "c")->uniform);
  EXPECT_FALSE(find(graph, t, "x")->uniform);
  // A row of 6 is no whole number of vectors: then lanes lie in two rows.
  GraphBuilder h("ragged");
  auto z = h.input("x", DType::F32, {32, 6});
  h.output(h.mul(z, h.input("row", DType::F32, {32, 1})), "y");
  Graph ragged = graphOf(h);
  Trace u = traceOf(ragged, 4);
  EXPECT_FALSE(find(ragged, u, "row")->uniform);
}

TEST(Trace, BoundaryValuesAreLoaded) {
  GraphBuilder g("boundary");
  auto e = g.name(g.exp(g.input("x", DType::F32, {16})), "e");
  g.output(g.neg(e), "y");
  Graph graph = graphOf(g);
  TraceRequest r = requestOf(graph, 1);
  for (ValueId v = 0; v < graph.values.size(); ++v)
    r.boundary[v] = graph.values[v].name == "e";
  Result<Trace> t = tracePointwise(r);
  ASSERT_TRUE(t.ok());
  ASSERT_EQ(t->instances.size(), 2u);
  EXPECT_EQ(t->instances[0].node, kNone);
  EXPECT_EQ(graph.values[t->instances[0].value].name, "e");
}

//===--------------------------------------------------------------------------------------------------------------===//
// Choices
//===--------------------------------------------------------------------------------------------------------------===//

TEST(Trace, PiecesOfWholeVectorsAreBranches) {
  GraphBuilder g("cat");
  std::vector<Arg> parts;
  for (int i = 0; i < 3; ++i)
    parts.push_back(g.name(g.exp(g.input("x" + std::to_string(i), DType::F32, {8, 16})), "e" + std::to_string(i)));
  g.output(g.cat(parts, 0), "y");
  Graph graph = graphOf(g);
  Trace t = traceOf(graph, 4);
  const Instance *y = find(graph, t, "y");
  ASSERT_TRUE(y && y->branches);
  ASSERT_EQ(y->pieces.size(), 3u);
  EXPECT_EQ(y->pieces[0].conditions.size(), 1u);
  EXPECT_EQ(y->pieces[1].conditions.size(), 1u);
  EXPECT_TRUE(y->pieces[2].conditions.empty());
  EXPECT_EQ(t.scopes.size(), 4u);
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_EQ(y->pieces[i].scope, i + 1);
    EXPECT_EQ(t.scopes[i + 1].parent, 0u);
    EXPECT_EQ(t.scopes[i + 1].depth, 1u);
    EXPECT_EQ(t.scopes[i + 1].order.size(), 2u); // the load and its exp
    EXPECT_EQ(t.instances[y->pieces[i].instance].guard, 0u);
  }
  EXPECT_EQ(t.scopes[0].order.size(), 1u);
}

TEST(Trace, PiecesWithinAVectorAreSelectsAndTheirLoadsGuarded) {
  GraphBuilder g("cat");
  g.output(g.cat({g.input("a", DType::F32, {8, 3}), g.input("b", DType::F32, {8, 5})}, 1), "y");
  Graph graph = graphOf(g);
  Trace t = traceOf(graph, 4);
  const Instance *y = find(graph, t, "y"), *a = find(graph, t, "a"), *b = find(graph, t, "b");
  EXPECT_FALSE(y->branches);
  EXPECT_EQ(t.scopes.size(), 1u);
  EXPECT_NE(a->guard, 0u);
  EXPECT_NE(b->guard, 0u);
  EXPECT_NE(a->guard, b->guard);
  EXPECT_EQ(t.guards[a->guard].size(), 1u);
  EXPECT_FALSE(a->uniform);
  // One lane at a time, the same cat branches.
  Trace single = traceOf(graph, 1);
  EXPECT_TRUE(find(graph, single, "y")->branches);
  EXPECT_EQ(find(graph, single, "a")->guard, 0u);
}

TEST(Trace, WhatABranchNeedsIsReusedFromAroundItButNotFromBesideIt) {
  GraphBuilder g("scopes");
  auto s = g.input("s", DType::F32, {1, 1});
  auto e = g.name(g.exp(s), "e");
  auto a = g.mul(g.input("a", DType::F32, {8, 16}), e), b = g.mul(g.input("b", DType::F32, {8, 16}), e);
  auto y = g.cat({a, b}, 0);
  g.output(y, "inside");
  Graph graph = graphOf(g);
  Trace t = traceOf(graph, 4);
  EXPECT_EQ(countOf(graph, t, "e"), 2u) << "each branch computes its own";
  GraphBuilder h("around");
  auto s2 = h.input("s", DType::F32, {1, 1});
  auto e2 = h.name(h.exp(s2), "e");
  auto big = h.mul(h.input("z", DType::F32, {16, 16}), e2);
  auto y2 = h.cat({h.mul(h.input("a", DType::F32, {8, 16}), e2), h.mul(h.input("b", DType::F32, {8, 16}), e2)}, 0);
  h.output(h.add(big, y2), "y");
  Graph around = graphOf(h);
  Trace u = traceOf(around, 4);
  EXPECT_EQ(countOf(around, u, "e"), 1u) << "computed ahead of both branches";
}

TEST(Trace, PiecesWithoutElementsAndConditionsThatAlwaysHoldAreDropped) {
  GraphBuilder g("dropped");
  auto x = g.input("x", DType::F32, {8, 4}), nothing = g.input("nothing", DType::F32, {0, 4});
  g.output(g.cat({nothing, x, nothing}, 0), "y");
  Graph graph = graphOf(g);
  Trace t = traceOf(graph, 1);
  EXPECT_EQ(countOf(graph, t, "nothing"), 0u);
  const Instance *y = find(graph, t, "y");
  ASSERT_EQ(y->pieces.size(), 1u);
  EXPECT_FALSE(y->branches);
  EXPECT_EQ(t.scopes.size(), 1u);
  // A slice of a cat that lies in one piece reads that piece alone.
  GraphBuilder h("sliced");
  auto a = h.input("a", DType::F32, {8, 4}), b = h.input("b", DType::F32, {8, 4});
  h.output(h.slice(h.cat({a, b}, 0), {.dim = 0, .start = 10, .end = 14}), "y");
  Graph sliced = graphOf(h);
  Trace u = traceOf(sliced, 1);
  EXPECT_EQ(countOf(sliced, u, "a"), 0u);
  EXPECT_EQ(countOf(sliced, u, "b"), 1u);
}

TEST(Trace, APadOfNothingIsNoChoice) {
  GraphBuilder g("none");
  g.output(g.pad(g.input("x", DType::F32, {10}), {.low = {0}, .high = {0}, .value = 7}), "y");
  Graph graph = graphOf(g);
  Trace t = traceOf(graph, 1);
  ASSERT_EQ(find(graph, t, "y")->pieces.size(), 1u);
  EXPECT_EQ(find(graph, t, "x")->guard, 0u);
}

TEST(Trace, BranchesEndAtADepth) {
  GraphBuilder g("deep");
  auto x = g.input("x", DType::F32, {64, 8});
  for (int i = 0; i < 40; ++i)
    x = g.mul(g.pad(x, {.low = {1, 0}, .high = {0, 0}, .value = i}), 2.0);
  g.output(x, "y");
  Graph graph = graphOf(g);
  Trace t = traceOf(graph, 4);
  uint32_t deepest = 0;
  for (const TraceScope &s : t.scopes)
    deepest = std::max(deepest, s.depth);
  EXPECT_EQ(deepest, kMaxBranchDepth);
  EXPECT_EQ(t.guards[find(graph, t, "x")->guard].size(), 40u - kMaxBranchDepth);
}

TEST(Trace, SplitCatStoresEachPiece) {
  GraphBuilder g("rope");
  auto x = g.input("x", DType::F32, {4, 8}), y = g.input("y", DType::F32, {4, 8});
  auto s = g.name(g.exp(x), "s");
  g.output(g.cat({g.add(s, y), g.sub(s, y)}, 1), "z");
  Graph graph = graphOf(g);
  ASSERT_TRUE(isSplittableCat(graph, graph.outputs[0]));
  EXPECT_EQ(iterationElements(graph, graph.outputs[0], true), 32);
  EXPECT_EQ(iterationElements(graph, graph.outputs[0], false), 64);
  Trace t = traceOf(graph, 4, true);
  EXPECT_EQ(t.elements, 32);
  ASSERT_EQ(t.stores.size(), 2u);
  EXPECT_EQ(countOf(graph, t, "s"), 1u) << "what the pieces share is computed once";
  EXPECT_EQ(countOf(graph, t, "z"), 0u);
}

TEST(Trace, WhichCatsAreSplittable) {
  GraphBuilder g("cats");
  auto a = g.input("a", DType::F32, {4}), b = g.input("b", DType::F32, {4}), c = g.input("c", DType::F32, {5});
  auto i = g.input("i", DType::I32, {4}), e = g.input("e", DType::F32, {0});
  g.output(g.cat({a, b}, 0), "equal");
  g.output(g.cat({a, c}, 0), "unequal");
  g.output(g.cat({a, i}, 0), "types");
  g.output(g.cat({a}, 0), "one");
  g.output(g.cat({e, e}, 0), "empty");
  g.output(g.cat({a, b, a, b, a, b, a, b}, 0), "eight");
  g.output(g.cat({a, b, a, b, a, b, a, b, a}, 0), "nine");
  g.output(g.relu(a), "relu");
  Graph graph = graphOf(g);
  std::vector<bool> found;
  for (ValueId v : graph.outputs)
    found.push_back(isSplittableCat(graph, v));
  EXPECT_EQ(found, (std::vector<bool>{true, false, false, false, false, true, false, false}));
  EXPECT_FALSE(isSplittableCat(graph, graph.inputs[0]));
}

//===--------------------------------------------------------------------------------------------------------------===//
// Limits
//===--------------------------------------------------------------------------------------------------------------===//

TEST(Trace, TooManyInstances) {
  GraphBuilder g("many");
  auto x = g.input("x", DType::F32, {64});
  for (int i = 0; i < 20; ++i) { // each step reads the one before at two places
    auto s = g.slice(x, {.dim = 0, .start = 1}), r = g.slice(g.flip(x, {0}), {.dim = 0, .start = 1});
    x = g.add(s, r);
  }
  g.output(x, "y");
  Graph graph = graphOf(g);
  TraceRequest r = requestOf(graph, 1);
  r.maxInstances = 300;
  Result<Trace> t = tracePointwise(r);
  ASSERT_FALSE(t.ok());
  EXPECT_EQ(t.error().code, Code::Unsupported);
  EXPECT_NE(t.error().message.find("300"), std::string::npos);
  Result<TraceOutcome> partly = tracePointwiseUpTo(r);
  ASSERT_TRUE(partly.ok());
  EXPECT_TRUE(partly->exceeded);
  EXPECT_EQ(partly->deep, kNone);
  EXPECT_EQ(partly->trace.instances.size(), 300u);
}

TEST(Trace, TooDeepInLayouts) {
  GraphBuilder g("deep");
  auto x = g.input("x", DType::F32, {32, 8});
  for (int i = 0; i < 30; ++i)
    x = g.slice(g.name(g.mul(g.pad(x, {.low = {0, 1}, .high = {0, 0}}), 2.0), "m" + std::to_string(i)),
                {.dim = 1, .end = -1});
  g.output(x, "y");
  Graph graph = graphOf(g);
  TraceRequest r = requestOf(graph, 8);
  r.maxGuards = 10;
  Result<TraceOutcome> t = tracePointwiseUpTo(r);
  ASSERT_TRUE(t.ok());
  ASSERT_TRUE(t->exceeded);
  ASSERT_NE(t->deep, kNone);
  EXPECT_EQ(t->guards, 11u);
  EXPECT_FALSE(tracePointwise(r).ok());
  r.maxGuards = 30;
  EXPECT_TRUE(tracePointwise(r).ok());
}

TEST(Trace, TooHeavyAnIndex) {
  GraphBuilder g("heavy");
  auto x = g.input("x", DType::F32, {945});
  for (int i = 0; i < 12; ++i)
    x = g.permute(g.reshape(x, i % 2 ? Shape{9, 35, 3} : Shape{15, 7, 9}), {2, 0, 1});
  g.output(x, "y");
  Graph graph = graphOf(g);
  TraceRequest r = requestOf(graph, 1);
  r.maxIndexWeight = 100;
  Result<TraceOutcome> t = tracePointwiseUpTo(r);
  ASSERT_TRUE(t.ok());
  ASSERT_TRUE(t->exceeded);
  EXPECT_NE(t->deep, kNone);
  EXPECT_GT(t->indexWeight, 100u);
}

TEST(Trace, OtherOpsAreErrorsWithTheirPlace) {
  GraphBuilder g("sum");
  auto s = g.name(g.sum(g.relu(g.input("x", DType::F32, {4, 4})), {.dims = {1}}), "s");
  g.output(g.neg(s), "y");
  Graph graph = graphOf(g);
  Result<Trace> t = tracePointwise(requestOf(graph, 1));
  ASSERT_FALSE(t.ok());
  EXPECT_EQ(t.error().code, Code::Unsupported);
  EXPECT_EQ(t.error().pointer, "/nodes/1");
  EXPECT_NE(t.error().message.find("node s (sum)"), std::string::npos) << t.error().message;
}

TEST(Trace, ChainsOfAHundredThousandNodes) {
  constexpr int kNodes = 100000;
  for (const char *kind : {"unary", "binary", "reshape", "pad"}) {
    SCOPED_TRACE(kind);
    GraphBuilder g("chain");
    auto x = g.input("x", DType::F32, {64, 2}), y = x;
    int nodes = std::string(kind) == "pad" ? 1000 : kNodes; // a pad is a condition more for all above it
    for (int i = 0; i < nodes; ++i)
      switch (kind[0]) {
      case 'u': y = g.neg(y); break;
      case 'b': y = g.add(y, x); break;
      case 'r': y = g.reshape(y, i % 2 ? Shape{64, 2} : Shape{2, 64}); break;
      default: y = g.slice(g.pad(y, {.low = {0, 1}, .high = {0, 0}}), {.dim = 1, .end = -1});
      }
    g.output(y, "y");
    Graph graph = graphOf(g);
    Trace t = traceOf(graph, 2);
    EXPECT_GE(t.instances.size(), static_cast<size_t>(nodes));
    EXPECT_LE(measurePressure(graph, t).registers, 8);
    Dominance d(t);
    EXPECT_EQ(d.above(t.stores[0].instance), d.root());
  }
}

//===--------------------------------------------------------------------------------------------------------------===//
// Meaning: a trace against the interpreter
//===--------------------------------------------------------------------------------------------------------------===//

class Evaluator {
public:
  Evaluator(const Graph &graph, const Trace &trace, const std::map<ValueId, std::vector<int64_t>> &inputs)
      : graph(graph), trace(trace), inputs(inputs) {}

  /// What one lane of one vector stores: (output, element) -> value.
  void run(int64_t vector, int64_t lane, std::map<std::pair<uint32_t, int64_t>, int64_t> &out) {
    point.assign(static_cast<size_t>(trace.context->dimCount()), 0);
    point[static_cast<size_t>(trace.vectorDim)] = vector;
    if (trace.laneDim >= 0)
      point[static_cast<size_t>(trace.laneDim)] = lane;
    memo.clear();
    for (const TraceStore &s : trace.stores) {
      auto [it, first] = out.emplace(std::pair{s.output, at(s.linear)}, value(s.instance));
      EXPECT_TRUE(first) << "element " << it->first.second << " is stored twice";
    }
  }

private:
  int64_t at(index::Expr e) {
    index::Expr plain = trace.context->expand(e);
    for (int d : plain.dims())
      if (uint32_t i = trace.indexInstance(d); i != kNone) {
        int64_t v = value(i);
        point[static_cast<size_t>(d)] = v >= 0 && v < trace.context->extent(d) ? v : 0;
      }
    return trace.context->evaluate(plain, point);
  }
  bool holds(const std::vector<Condition> &all) {
    for (const Condition &c : all)
      if (int64_t v = at(c.expr); v < c.lo || v >= c.hi)
        return false;
    return true;
  }
  int64_t value(uint32_t i) {
    if (auto it = memo.find(i); it != memo.end())
      return it->second;
    const Instance &in = trace.instances[i];
    int64_t v = 0;
    if (in.node == kNone) {
      const std::vector<int64_t> &data = inputs.at(in.value);
      if (holds(trace.guards[in.guard])) {
        int64_t element = at(in.linear);
        if (element < 0 || element >= static_cast<int64_t>(data.size())) {
          ADD_FAILURE() << "element " << element << " of " << graph.values[in.value].name;
          return 0;
        }
        v = data[static_cast<size_t>(element)];
      }
    } else {
      const Node &node = graph.nodes[in.node];
      auto operand = [&](size_t o) {
        return node.inputs[o].isLiteral() ? node.inputs[o].literal.i : value(in.operands[o]);
      };
      switch (node.op) {
      case OpKind::Add: v = operand(0) + operand(1); break;
      case OpKind::Sub: v = operand(0) - operand(1); break;
      case OpKind::Neg: v = -operand(0); break;
      case OpKind::Full: v = node.attrs.value.i; break;
      case OpKind::Remainder: v = operand(0) % operand(1); break; // of what is positive
      case OpKind::Iota: v = at(in.index[static_cast<size_t>(node.attrs.dim)]); break;
      case OpKind::Cat:
      case OpKind::Pad:
        for (const Instance::Piece &p : in.pieces) {
          if (!holds(p.conditions))
            continue;
          v = p.instance == kNone ? node.attrs.value.i : value(p.instance);
          break;
        }
        break;
      default: v = value(in.operands[0]);
      }
    }
    return memo[i] = v;
  }

  const Graph &graph;
  const Trace &trace;
  const std::map<ValueId, std::vector<int64_t>> &inputs;
  std::vector<int64_t> point;
  std::map<uint32_t, int64_t> memo;
};

void compare(const Graph &graph, int64_t lanes, bool splitCat = false) {
  std::vector<HostTensor> tensors;
  std::map<ValueId, std::vector<int64_t>> inputs;
  int64_t next = 1;
  for (ValueId v : graph.inputs) {
    HostTensor t{graph.type(v), std::vector<std::byte>(static_cast<size_t>(graph.type(v).bytes()))};
    std::vector<int64_t> &data = inputs[v];
    for (int64_t i = 0; i < t.type.elements(); ++i)
      data.push_back(next++);
    if (!data.empty())
      std::memcpy(t.data.data(), data.data(), t.data.size());
    tensors.push_back(std::move(t));
  }
  Result<std::vector<HostTensor>> expected = interpret(graph, tensors, {});
  ASSERT_TRUE(expected.ok()) << expected.error().str();
  std::map<std::pair<uint32_t, int64_t>, int64_t> got;
  auto run = [&](int64_t width, int64_t from, int64_t to) {
    Trace t = traceOf(graph, width, splitCat);
    Evaluator e(graph, t, inputs);
    for (int64_t i = from; i < to; ++i)
      e.run(i / width, i % width, got);
  };
  // Whole vectors, and what is left one by one.
  int64_t elements = iterationElements(graph, graph.outputs[0], splitCat), whole = elements / lanes * lanes;
  run(lanes, 0, whole);
  run(1, whole, elements);
  for (uint32_t o = 0; o < graph.outputs.size(); ++o) {
    const HostTensor &want = (*expected)[o];
    std::vector<int64_t> data(static_cast<size_t>(want.type.elements()));
    if (!data.empty())
      std::memcpy(data.data(), want.data.data(), want.data.size());
    for (size_t i = 0; i < data.size(); ++i) {
      auto it = got.find({o, static_cast<int64_t>(i)});
      ASSERT_TRUE(it != got.end()) << "element " << i << " is not stored";
      ASSERT_EQ(it->second, data[i]) << "element " << i << " of output " << o;
    }
  }
}

/// A tensor under construction and its shape.
struct Random {
  GraphBuilder &g;
  std::mt19937 &random;
  std::vector<std::pair<TensorHandle, std::vector<int64_t>>> pool;
  int inputs = 0;

  int64_t upTo(int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); }
  static int64_t elements(const std::vector<int64_t> &shape) {
    int64_t n = 1;
    for (int64_t e : shape)
      n *= e;
    return n;
  }

  void input() {
    static const std::vector<std::vector<int64_t>> shapes{{4, 6}, {24}, {2, 3, 4}, {1, 6}, {4, 1},
                                                          {6},    {},   {8, 8},    {3, 5}};
    const auto &shape = shapes[static_cast<size_t>(upTo(static_cast<int64_t>(shapes.size())))];
    pool.push_back({g.input("x" + std::to_string(inputs++), DType::I64, shape), shape});
  }

  void step() {
    auto [x, shape] = pool[static_cast<size_t>(upTo(static_cast<int64_t>(pool.size())))];
    auto rank = static_cast<int64_t>(shape.size());
    auto push = [&](TensorHandle t, std::vector<int64_t> s) {
      if (elements(s) > 0 && elements(s) <= 256 && s.size() <= 5)
        pool.push_back({t, std::move(s)});
    };
    switch (upTo(11)) {
    case 0: return push(g.neg(x), shape);
    case 1: { // an equal shape, or one that broadcasts
      for (auto &[y, other] : pool)
        if (other == shape || other.empty())
          if (upTo(2))
            return push(g.add(x, y), shape);
      return push(g.add(x, 1000), shape);
    }
    case 2: {
      int64_t n = elements(shape);
      std::vector<int64_t> to;
      for (int64_t f : {2, 3, 5})
        while (n % f == 0 && to.size() < 4) {
          to.push_back(f);
          n /= f;
        }
      to.push_back(n);
      std::shuffle(to.begin(), to.end(), random);
      return push(g.reshape(x, to), to);
    }
    case 3: {
      std::vector<int64_t> dims, to;
      for (int64_t d = 0; d < rank; ++d)
        dims.push_back(d);
      std::shuffle(dims.begin(), dims.end(), random);
      for (int64_t d : dims)
        to.push_back(shape[static_cast<size_t>(d)]);
      return push(g.permute(x, dims), to);
    }
    default: break;
    }
    if (rank == 0)
      return;
    int64_t d = upTo(rank), extent = shape[static_cast<size_t>(d)];
    std::vector<int64_t> to = shape;
    switch (upTo(7)) {
    case 5: { // an index that is loaded, or the places backwards
      auto loaded = [&](const std::vector<int64_t> &s) {
        return g.remainder(g.input("i" + std::to_string(inputs++), DType::I64, s), extent);
      };
      if (upTo(2)) {
        to[static_cast<size_t>(d)] = 1 + upTo(6);
        return push(g.indexSelect(x, loaded({to[static_cast<size_t>(d)]}), d), to);
      }
      return push(upTo(2) ? g.gather(x, loaded(shape), d) : g.gather(x, g.flip(g.iota(shape, d, DType::I64), {d}), d),
                  shape);
    }
    case 0: {
      int64_t from = upTo(extent), end = from + 1 + upTo(extent - from), by = 1 + upTo(3);
      to[static_cast<size_t>(d)] = (end - from + by - 1) / by;
      return push(g.slice(x, {.dim = d, .start = from, .end = end, .step = by}), to);
    }
    case 1: return push(g.flip(x, {d}), to);
    case 2: {
      std::vector<int64_t> low(shape.size(), 0), high(shape.size(), 0);
      low[static_cast<size_t>(d)] = upTo(3);
      high[static_cast<size_t>(d)] = upTo(3);
      to[static_cast<size_t>(d)] += low[static_cast<size_t>(d)] + high[static_cast<size_t>(d)];
      return push(g.pad(x, {.low = low, .high = high, .value = -7}), to);
    }
    case 3:
      return push(g.unsqueeze(x, d), [&] {
        to.insert(to.begin() + d, 1);
        return to;
      }());
    case 4: {
      std::vector<Arg> parts{x};
      for (auto &[y, other] : pool) {
        if (other.size() != shape.size() || parts.size() > 4 || !upTo(2))
          continue;
        bool fits = true;
        for (size_t k = 0; k < shape.size(); ++k)
          fits &= static_cast<int64_t>(k) == d || other[k] == shape[k];
        if (!fits)
          continue;
        parts.push_back(y);
        to[static_cast<size_t>(d)] += other[static_cast<size_t>(d)];
      }
      return push(g.cat(parts, d), to);
    }
    default:
      if (upTo(2))
        return push(g.add(x, g.iota(shape, d, DType::I64)), to);
      return push(g.sub(g.full(shape, 11, DType::I64), x), to);
    }
  }
};

TEST(TraceMeaning, RandomLayoutChainsOfEveryWidth) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    GraphBuilder g("random");
    Random r{g, random, {}, 0};
    for (int i = 0; i < 3; ++i)
      r.input();
    auto steps = 3 + r.upTo(12);
    for (int64_t i = 0; i < steps; ++i)
      r.step();
    if (r.pool.size() == 3)
      continue;
    // Every result with as many elements as the last: one kernel of several outputs.
    auto last = r.pool.back().second;
    size_t outputs = 0;
    for (size_t i = 3; i < r.pool.size(); ++i)
      if (Random::elements(r.pool[i].second) == Random::elements(last))
        g.output(r.pool[i].first, "y" + std::to_string(outputs++));
    Graph graph = graphOf(g);
    for (int64_t lanes : {1, 2, 4, 8}) {
      SCOPED_TRACE("lanes " + std::to_string(lanes));
      compare(graph, lanes);
      if (graph.outputs.size() == 1 && isSplittableCat(graph, graph.outputs[0]))
        compare(graph, lanes, true);
    }
    if (HasFailure())
      return;
  }
}

TEST(TraceMeaning, CatOfCatsOfPads) {
  GraphBuilder g("nested");
  auto a = g.input("a", DType::I64, {3, 7}), b = g.input("b", DType::I64, {2, 7});
  auto p = g.pad(g.cat({a, b}, 0), {.low = {1, 0}, .high = {2, 3}, .value = 99});
  auto q = g.cat({g.flip(p, {1}), g.neg(p), p}, 1);
  g.output(g.cat({q, g.slice(q, {.dim = 0, .start = 5, .end = 0, .step = -2})}, 0), "y");
  Graph graph = graphOf(g);
  for (int64_t lanes : {1, 2, 4, 8, 16})
    compare(graph, lanes);
}

TEST(TraceMeaning, SplitCatsAlongEveryDim) {
  for (int64_t dim : {0, 1, 2})
    for (int64_t lanes : {1, 4}) {
      GraphBuilder g("split");
      auto a = g.input("a", DType::I64, {2, 3, 4}), b = g.input("b", DType::I64, {2, 3, 4});
      auto s = g.sub(a, b);
      g.output(g.cat({g.neg(s), g.add(s, b), g.flip(a, {2})}, dim), "y");
      compare(graphOf(g), lanes, true);
    }
}

} // namespace
