// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/plan/Stream.h"
#include "passes/cost/GemmModel.h"
#include "passes/plan/Measure.h"
#include "passes/plan/TileSegments.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace rl {

namespace {

/// Seen through views.
uint32_t behindViews(const Graph &graph, const Trace &trace, uint32_t i) {
  for (;;) {
    const Instance &in = trace.instances[i];
    if (in.node == kNone || opInfo(graph.nodes[in.node].op).cls != OpClass::Shape || in.operands.size() != 1 ||
        in.operands[0] == kNone)
      return i;
    i = in.operands[0];
  }
}

bool isPlainLoad(const Instance &in) { return in.node == kNone && in.guard == 0 && in.operands.empty(); }

/// A load at offset + row * stride, plus the column where that counts; nothing where it is none.
std::optional<StreamAccess> accessOf(const Trace &trace, const Instance &in, bool alongColumns) {
  if (!isPlainLoad(in))
    return std::nullopt;
  StreamAccess out;
  out.value = in.value;
  out.offset = in.linear.constantTerm();
  bool vector = false, lane = trace.laneDim < 0;
  for (const index::Term &t : in.linear.terms()) {
    if (t.atom->kind != index::Atom::Dim)
      return std::nullopt;
    if (t.atom->dim == trace.rowDim) {
      out.stride = t.coef;
      continue;
    }
    if (!alongColumns)
      return std::nullopt;
    if (t.atom->dim == trace.vectorDim && t.coef == trace.lanes)
      vector = true;
    else if (t.atom->dim == trace.laneDim && t.coef == 1)
      lane = true;
    else
      return std::nullopt;
  }
  if (alongColumns && (!lane || (!vector && trace.width > trace.lanes)))
    return std::nullopt;
  return out;
}

/// A number of 8 bits that was made a wider float, exactly.
std::optional<StreamAccess> narrowOf(const Graph &graph, const Trace &trace, uint32_t i) {
  i = behindViews(graph, trace, i);
  const Instance &in = trace.instances[i];
  if (in.node == kNone || graph.nodes[in.node].op != OpKind::Cast || in.operands[0] == kNone)
    return std::nullopt;
  const Instance &load = trace.instances[behindViews(graph, trace, in.operands[0])];
  if (load.node != kNone || !cost::isNarrow(graph.type(load.value).dtype))
    return std::nullopt;
  return accessOf(trace, load, true);
}

bool hasMap(const StreamAccess &a, DType t, int64_t rows) {
  return cost::hasTensorMap(t, a.offset, rows, a.stride, {}, {});
}

} // namespace

Result<StreamOperand> streamOperand(const Graph &graph, const Trace &trace) {
  StreamOperand out;
  uint32_t i = behindViews(graph, trace, trace.stores[0].instance);
  const Instance *in = &trace.instances[i];
  if (in->node == kNone) {
    DType t = graph.type(in->value).dtype;
    if (t != DType::BF16 && t != DType::F16)
      return unsupported({}, quoted(graph, in->value) + " is " + dtypeName(t));
    std::optional<StreamAccess> rows = accessOf(trace, *in, true);
    if (!rows)
      return unsupported({}, quoted(graph, in->value) + " is not read row by row");
    out.rows = *rows;
    return out;
  }
  if (std::optional<StreamAccess> rows = narrowOf(graph, trace, i)) {
    out.rows = *rows;
    return out;
  }
  std::string name = quoted(graph, in->value);
  // What a node of the file rounds on its way to its result stays in f32; a cast of the file's would round.
  if (const Node &cast = graph.nodes[in->node]; cast.op == OpKind::Cast && in->operands[0] != kNone) {
    i = behindViews(graph, trace, in->operands[0]);
    in = &trace.instances[i];
    if (in->node == kNone || graph.nodes[in->node].specIndex != cast.specIndex)
      return unsupported({}, name + " is a cast of no 8-bit numbers");
  }
  if (graph.nodes[in->node].op != OpKind::Mul || in->operands[0] == kNone || in->operands[1] == kNone)
    return unsupported({}, name + " is neither in memory nor 8-bit numbers times one number for all of K");
  if (graph.strict)
    return unsupported({}, name + " is rounded element by element in strict numerics");
  for (size_t side : {0, 1}) {
    std::optional<StreamAccess> rows = narrowOf(graph, trace, in->operands[side]);
    if (!rows)
      continue;
    uint32_t other = behindViews(graph, trace, in->operands[1 - side]);
    const Instance *factor = &trace.instances[other];
    if (factor->node != kNone && graph.nodes[factor->node].op == OpKind::Cast && factor->operands[0] != kNone)
      factor = &trace.instances[behindViews(graph, trace, factor->operands[0])];
    if (factor->node != kNone)
      continue;
    DType t = graph.type(factor->value).dtype;
    std::optional<StreamAccess> scale = accessOf(trace, *factor, false);
    if (!scale || (t != DType::F32 && t != DType::BF16 && t != DType::F16))
      return unsupported({}, quoted(graph, factor->value) + " is no float that all of K has");
    out.rows = *rows;
    out.scale = *scale;
    return out;
  }
  return unsupported({}, name + " is not 8-bit numbers times one number for all of K");
}

StreamForm streamForm(const Graph &graph, const std::vector<NodeId> &products,
                      const std::vector<const Trace *> &operands, int64_t mostRows) {
  StreamForm out;
  auto refuse = [&](std::string why) {
    out.refusal = std::move(why);
    return out;
  };
  const Node &first = graph.nodes[products[0]];
  ProductShape p = productShape(graph, first);
  if (p.batch != 1)
    return refuse("there are " + std::to_string(p.batch) + " products");
  if (p.m < 1 || p.n < 1 || p.k < 1)
    return refuse("the product is empty");
  if (p.m > mostRows)
    return refuse(std::to_string(p.m) + " rows");
  if (std::max(p.n, p.k) > INT32_MAX / 2)
    return refuse("the product is larger than 32-bit coordinates reach");
  if (products.size() > 2)
    return refuse(std::to_string(products.size()) + " products");
  if (graph.type(first.outputs[0]).dtype != DType::F32)
    return refuse("integers are summed");

  const Instance &left = operands[0]->instances[behindViews(graph, *operands[0], operands[0]->stores[0].instance)];
  DType t = graph.type(left.value).dtype;
  std::optional<StreamAccess> a = first.attrs.transposeA ? std::nullopt : accessOf(*operands[0], left, true);
  if (!a || (t != DType::BF16 && t != DType::F16) || !hasMap(*a, t, p.m))
    return refuse("the left operand is not bf16 or f16 in memory, in rows of K at multiples of 16 bytes");
  out.left = *a;
  cost::StreamShape &s = out.shape;
  s.m = p.m;
  s.n = p.n;
  s.k = p.k;
  s.left = t;
  s.products = static_cast<int>(products.size());
  for (size_t i = 0; i < products.size(); ++i) {
    const bool kMajor = graph.nodes[products[i]].attrs.transposeB;
    if (i > 0 && kMajor != s.kMajor)
      return refuse("one right operand's rows are along K, the other's along N");
    s.kMajor = kMajor;
    Result<StreamOperand> right = streamOperand(graph, *operands[2 * i + 1]);
    if (!right)
      return refuse(right.error().message);
    DType u = graph.type(right->rows.value).dtype;
    if (!cost::isNarrow(u) && u != t)
      return refuse(quoted(graph, right->rows.value) + " is " + dtypeName(u) + " beside " + dtypeName(t));
    if (i > 0 && u != s.right)
      return refuse("the right operands have different types");
    if (!kMajor && cost::isNarrow(u))
      return refuse(quoted(graph, right->rows.value) + " is " + dtypeName(u) + ", and its rows are not along K");
    if (!hasMap(right->rows, u, kMajor ? p.n : p.k))
      return refuse(quoted(graph, right->rows.value) + ": its rows, " + std::to_string(right->rows.stride) +
                    " elements apart, or its start are no multiples of 16 bytes");
    s.right = u;
    out.right.push_back(*right);
  }
  return out;
}

bool streamsOperand(const Graph &graph, const Node &product, const std::vector<bool> &boundary,
                    const cost::TargetDesc &target) {
  ProductShape p = productShape(graph, product);
  if (!target.gpu || target.sm != 90 || p.batch != 1 || p.m > cost::kMostStreamRows || !product.attrs.transposeB)
    return false;
  Result<Trace> left = traceOperand(graph, product.inputs[0].value, boundary, true),
                right = traceOperand(graph, product.inputs[1].value, boundary, true);
  auto self = static_cast<NodeId>(&product - graph.nodes.data());
  return left && right && streamForm(graph, {self}, {&*left, &*right}).refusal.empty();
}

/// Whether the kernel is behind another of the plan, and what it streams is there before (compiler/emit/EarlyLaunch).
static bool readsAhead(const Graph &graph, const StreamForm &form, const cost::TargetDesc &target) {
  auto isGiven = [&](ValueId v) {
    return std::find(graph.inputs.begin(), graph.inputs.end(), v) != graph.inputs.end() ||
           std::find(graph.parameters.begin(), graph.parameters.end(), v) != graph.parameters.end();
  };
  return target.sm >= 90 && !isGiven(form.left.value) &&
         std::all_of(form.right.begin(), form.right.end(),
                     [&](const StreamOperand &o) { return isGiven(o.rows.value); });
}

/// 128 bytes of K each.
static int64_t stagesOf(const cost::StreamShape &shape) {
  const auto size = static_cast<int64_t>(dtypeSize(shape.right));
  return (shape.k * size + 127) / 128;
}

/// Seconds that reading ahead saves: of the ring's bytes, what the kernel before gives time for.
static double savedAhead(const cost::StreamShape &shape, const cost::StreamTile &tile, const cost::TargetDesc &target) {
  constexpr double kMost = 2e-6;
  const auto stages = static_cast<double>(std::min<int64_t>(tile.stages, stagesOf(shape)));
  auto bytes = stages * 128 * static_cast<double>(shape.n * shape.products);
  if (tile.direct) // of the blocks that there is room for
    bytes =
        std::min(static_cast<double>(shape.n * shape.k * shape.products) * static_cast<double>(dtypeSize(shape.right)),
                 target.smCount * tile.blocksPerSm * tile.threads() * 16 * tile.stages * tile.tileN * shape.products);
  return std::min(kMost, bytes / target.dramCopy);
}

/// Clocks between the starts of the blocks that an SM has first: not quite what memory takes for what one block on each SM asks for, so
/// that it always has something to do, and no more than was measured. Together they would have their weights together, and it would
/// have nothing to do while all of them multiply.
static int64_t startApart(const cost::StreamShape &shape, const cost::StreamTile &tile,
                          const cost::TargetDesc &target) {
  constexpr double kPart = 0.9, kMost = 0.48e-6;
  if (!tile.direct || tile.blocksPerSm < 2 || static_cast<double>(shape.n) <= target.smCount * tile.tileN)
    return 0;
  const auto row = static_cast<double>(shape.k) * static_cast<double>(dtypeSize(shape.right));
  const double asked = std::min(row, 512.0 * tile.parts() * tile.stages) * tile.tileN * shape.products;
  return std::lround(std::min(kMost, kPart * target.smCount * asked / target.dramCopy) * target.clockHz);
}

void scheduleStream(const Graph &graph, const Trace &epilogue, const std::vector<NodeId> &products,
                    const std::vector<Trace> &operands, const cost::TargetDesc &target, PlannedGroup &g,
                    const GemmSchedule *only) {
  if (!target.gpu || target.sm != 90 || !g.gemm || g.gemm->shape.m > cost::kMostStreamRows ||
      (only && !only->streams()))
    return;
  auto refuse = [&](const std::string &why) { g.why.push_back("no streamed operand: " + why); };
  if (int64_t segment = tileSegments(graph, epilogue).columns)
    return refuse("a block's columns are no whole segments of " + std::to_string(segment));
  std::vector<const Trace *> traces;
  for (const Trace &t : operands)
    traces.push_back(&t);
  StreamForm form = streamForm(graph, products, traces);
  if (!form.refusal.empty())
    return refuse(form.refusal);
  cost::StreamShape &shape = form.shape;
  shape.bytes = g.work.bytes();
  for (const Instance &in : epilogue.instances)
    if (in.node != kNone) {
      cost::WorkEstimate w = measureOps(graph, in, in.uniform ? 1.0 / static_cast<double>(epilogue.lanes) : 1.0);
      shape.ops += w.ops + 8 * w.specialOps;
    }
  const bool even = epilogue.lanes == 2;
  const int64_t live = measurePressure(graph, epilogue).registers;
  std::optional<cost::StreamCandidate> best = cost::chooseStream(shape, even, live, target);
  if (!best)
    return refuse("what is behind needs more registers than a block's threads have");
  const bool ahead = readsAhead(graph, form, target);
  auto secondsOf = [&](const cost::StreamCandidate &c) {
    return c.seconds + g.time.launch + target.memoryLatency - (ahead ? savedAhead(shape, c.tile, target) : 0);
  };
  auto scheduleOf = [&](const cost::StreamTile &tile) {
    GemmSchedule s = *g.gemm;
    s.kernel = tile.direct ? "direct" : "stream";
    s.tileM = s.shape.m;
    s.tileN = tile.tileN;
    s.tileK = (tile.direct ? 512 * tile.parts() : 128) / static_cast<int64_t>(dtypeSize(shape.right));
    s.stages = tile.stages;
    s.threads = tile.threads();
    s.warpsM = 1;
    s.warpsN = tile.warpsN;
    s.warpsK = tile.parts();
    s.blocksPerSm = tile.blocksPerSm;
    s.startApart = startApart(shape, tile, target);
    s.wgmma = {};
    s.once = readsRightOnce(graph, products, g.inputs, s, target);
    return s;
  };
  for (const cost::StreamCandidate &c : cost::streamCandidates(shape, even, live, target)) {
    g.tiles.push_back({scheduleOf(c.tile), secondsOf(c)});
    if (only && g.tiles.back().schedule == *only)
      best = c;
  }
  double seconds = secondsOf(*best);
  char text[200];
  // Neither model is exact: what is as good as equal stays as it is.
  constexpr double kGain = 0.995;
  if (!only && seconds >= kGain * g.time.total) {
    std::snprintf(text, sizeof text, "predicted %.3g us, against %.3g us; ", seconds * 1e6, g.time.total * 1e6);
    return refuse(text + best->str());
  }
  std::string other = "kernel '" + g.gemm->kernel + "', predicted ";
  std::snprintf(text, sizeof text, "%.3g us", g.time.total * 1e6);
  other += text;
  if (!g.fallback)
    g.fallback = g.gemm;
  const cost::StreamTile &tile = best->tile;
  GemmSchedule &s = *g.gemm;
  s = scheduleOf(tile);

  g.threads = s.threads;
  g.work.threadsPerBlock = static_cast<int>(s.threads);
  g.work.blocks = best->blocks;
  g.work.registers = 0;
  g.work.sharedBytes = static_cast<double>(cost::streamShared(shape, tile).total);
  g.work.tensorFlops = {};
  g.work.tensorFlops[static_cast<size_t>(shape.left)] =
      2.0 * static_cast<double>(shape.m) * static_cast<double>(shape.n) * static_cast<double>(shape.k) * shape.products;
  cost::Estimate time;
  time.launch = g.time.launch;
  time.latency = target.memoryLatency;
  time.memory = best->memory;
  time.tensor = std::max(best->ingest, best->compute);
  time.tail = std::max(0.0, seconds - time.launch - time.latency - std::max(time.memory, time.tensor));
  time.total = seconds;
  time.bound = time.memory > time.tensor ? cost::Bound::Memory : cost::Bound::Tensor;
  time.intensity = g.work.bytes() > 0 ? g.work.flops() / g.work.bytes() : 0;
  g.time = time;

  g.why.resize(1); // what was said of the kernel that is not taken
  std::snprintf(text, sizeof text, "predicted %.3g us; kernel '%s', ", seconds * 1e6, s.kernel.c_str());
  g.why.push_back(text + best->str());
  if (s.once)
    g.why.push_back(kReadOnce);
  if (ahead) {
    std::snprintf(text, sizeof text,
                  "weights are asked for while the kernel before still runs, as many as %s: %.2g us of these",
                  tile.direct ? "registers hold" : "the ring holds", savedAhead(shape, tile, target) * 1e6);
    g.why.push_back(text);
  }
  if (s.startApart) {
    std::snprintf(
        text, sizeof text,
        "the blocks that an SM has first start %.2g us apart, so that memory has something to do while they multiply",
        static_cast<double>(s.startApart) / target.clockHz * 1e6);
    g.why.push_back(text);
  }
  for (const StreamOperand &o : form.right)
    if (o.scale.value != kNone)
      g.why.push_back(quoted(graph, o.scale.value) + " multiplies the sums of what " + quoted(graph, o.rows.value) +
                      " is multiplied with");
  g.why.push_back("instead of " + other);
  const GemmSchedule &f = *g.fallback;
  g.why.push_back("otherwise kernel '" + f.kernel + "', tiles of " + std::to_string(f.tileM) + " x " +
                  std::to_string(f.tileN) + " x " + std::to_string(f.tileK) +
                  ": where a pointer is no multiple of 16 bytes, or the driver has no tensor maps");
}

} // namespace rl
