// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/plan/Gemm.h"
#include "passes/plan/Measure.h"
#include "passes/plan/Planner.h"
#include "passes/plan/RowSchedule.h"
#include "passes/plan/TileSegments.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>

namespace rl {

static int64_t ceilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }

ProductShape productShape(const Graph &graph, const Node &product) {
  const std::vector<int64_t> &a = graph.type(product.inputs[0].value).shape, &y = graph.type(product.outputs[0]).shape;
  return {y[0], y[1], y[2], a[product.attrs.transposeA ? 1 : 2]};
}

/// Whether two values are the same views and casts of one.
static bool sameView(const Graph &graph, ValueId x, ValueId y) {
  while (x != y) {
    if (graph.values[x].kind != Value::Result || graph.values[y].kind != Value::Result ||
        graph.type(x) != graph.type(y))
      return false;
    const Node &m = graph.nodes[graph.values[x].node], &n = graph.nodes[graph.values[y].node];
    if (m.op != n.op || !(cost::isView(m.op) || m.op == OpKind::Cast) || m.inputs[0].isLiteral() ||
        n.inputs[0].isLiteral() || m.attrs.dims != n.attrs.dims || m.attrs.dim != n.attrs.dim ||
        m.attrs.start != n.attrs.start || m.attrs.step != n.attrs.step || m.attrs.saturate != n.attrs.saturate)
      return false;
    x = m.inputs[0].value;
    y = n.inputs[0].value;
  }
  return true;
}

bool shareKernel(const Graph &graph, const Node &x, const Node &y) {
  return productShape(graph, x) == productShape(graph, y) && sameView(graph, x.inputs[0].value, y.inputs[0].value) &&
         x.attrs.transposeA == y.attrs.transposeA && graph.type(x.outputs[0]).dtype == graph.type(y.outputs[0]).dtype;
}

/// Casts that lose nothing: operands of narrower types are widened where they are read.
static bool widens(DType from, DType to) {
  if (from == to)
    return true;
  if (isFloat(from) && isFloat(to))
    return to == DType::F32 || to == DType::BF16 ? isF8(from) || to == DType::F32
                                                 : isF8(from) && from != DType::F8E8M0 && to == DType::F16;
  return from != DType::Bool && !isFloat(from) && !isFloat(to) && dtypeSize(from) < dtypeSize(to) &&
         !(from == DType::U8 && to == DType::I8);
}

ValueId operandSource(const Graph &graph, ValueId v, const std::set<ValueId> *stored) {
  for (;;) {
    if (graph.values[v].kind != Value::Result || (stored && stored->contains(v)))
      return v;
    const Node &node = graph.nodes[graph.values[v].node];
    bool through = cost::isView(node.op) && !node.attrs.fast;
    if (node.op == OpKind::Cast && !node.inputs[0].isLiteral())
      through = widens(graph.type(node.inputs[0].value).dtype, graph.type(v).dtype);
    if (!through || node.inputs[0].isLiteral())
      return v;
    v = node.inputs[0].value;
  }
}

bool readsOnce(const Graph &graph, const Node &product, bool left, const std::set<ValueId> &stored) {
  // One tile of every schedule has as many rows, or columns.
  constexpr int64_t kOneTile = 16;
  constexpr double kMostOps = 24;
  ProductShape shape = productShape(graph, product);
  if ((left ? shape.n : shape.m) > kOneTile)
    return false;
  ValueId operand = product.inputs[left ? 0 : 1].value;
  std::vector<ValueId> work{operand};
  std::set<ValueId> seen{operand};
  double ops = 0;
  int64_t bytes = 0;
  while (!work.empty()) {
    ValueId v = work.back();
    work.pop_back();
    if (graph.values[v].kind != Value::Result || stored.contains(v)) {
      bytes += graph.type(v).bytes();
      continue;
    }
    const Node &node = graph.nodes[graph.values[v].node];
    if (!isPointwise(node.op) || node.op == OpKind::Cat || node.op == OpKind::Pad || node.op == OpKind::Flip)
      return false;
    cost::OpCost c = cost::opCost(node.op, graph.type(v).dtype, node.attrs.tanhApproximation);
    ops += c.ops + 8 * c.special;
    for (const Operand &o : node.inputs)
      if (!o.isLiteral() && seen.insert(o.value).second)
        work.push_back(o.value);
  }
  return ops <= kMostOps && bytes <= graph.type(operand).bytes() * 5 / 4;
}

std::optional<std::pair<ValueId, ValueId>> scaledOperand(const Graph &graph, ValueId operand,
                                                         const std::set<ValueId> &stored) {
  ValueId v = operandSource(graph, operand, &stored);
  if (graph.values[v].kind != Value::Result || stored.contains(v))
    return std::nullopt;
  const Node &node = graph.nodes[graph.values[v].node];
  if (node.op != OpKind::Mul || node.inputs[0].isLiteral() || node.inputs[1].isLiteral())
    return std::nullopt;
  ValueId x = operandSource(graph, node.inputs[0].value, &stored),
          y = operandSource(graph, node.inputs[1].value, &stored);
  auto isNumbers = [&](ValueId of) { return isF8(graph.type(of).dtype) && graph.type(of).dtype != DType::F8E8M0; };
  if (isNumbers(y))
    std::swap(x, y);
  if (!isNumbers(x) || graph.type(y).dtype != DType::F32)
    return std::nullopt;
  return std::pair(x, y);
}

Result<Trace> traceOperand(const Graph &graph, ValueId operand, const std::vector<bool> &boundary, bool gpu,
                           int64_t lanes) {
  const TensorType &type = graph.type(operand);
  TraceRequest request;
  request.graph = &graph;
  request.outputs = {operand};
  request.boundary = boundary;
  request.boundary.resize(graph.values.size(), false);
  request.rows = type.shape[0] * type.shape[1];
  request.width = type.shape[2];
  auto size = static_cast<int64_t>(dtypeSize(graph.type(operandSource(graph, operand)).dtype));
  request.lanes = lanes > 0 ? lanes : gpu ? 16 / size : 8;
  while (request.width % request.lanes != 0)
    request.lanes /= 2;
  return tracePointwise(request);
}

int64_t epilogueLanes(const Graph &graph, const std::vector<ValueId> &outputs, int64_t n,
                      const cost::TargetDesc &target) {
  int64_t most = 1, elements = 0;
  for (ValueId v : outputs)
    elements = std::max(elements, graph.type(v).elements());
  for (ValueId v : outputs)
    if (graph.type(v).elements() == elements)
      most = std::max(most, static_cast<int64_t>(dtypeSize(graph.type(v).dtype)));
  int64_t lanes = target.gpu ? 16 / most : 8;
  while (n % lanes != 0)
    lanes /= 2;
  return lanes;
}

std::optional<DType> tensorType(const Graph &graph, const Node &product) {
  if (graph.type(product.outputs[0]).dtype != DType::F32)
    return std::nullopt;
  DType a = graph.type(product.inputs[0].value).dtype, b = graph.type(product.inputs[1].value).dtype;
  for (DType t : {DType::BF16, DType::F16}) {
    auto fits = [&](DType x) { return x == t || (isF8(x) && x != DType::F8E8M0); };
    // An f8 pair alone goes through f16: e5m2's range and e4m3's precision are both within it.
    if (fits(a) && fits(b) && (a == t || b == t || t == DType::F16))
      return t;
  }
  return std::nullopt;
}

namespace {

/// Of the L2 cache, what is better left to others from here on.
constexpr double kOnceShare = 0.25;

/// The tiles of mma. Few rows leave K to be divided between warps. `rate`: multiply-adds a clock and SM, measured on an H200 at
/// 4096^3 and 1024^3 in bf16, at its nominal clock; those of thin tiles, which wait for memory, are estimates.
constexpr struct {
  int64_t m, n, k, stages, warpsM, warpsN, warpsK;
  double rate;
} kTiles[] = {{128, 256, 32, 4, 2, 4, 1, 650}, {128, 128, 32, 4, 2, 4, 1, 490}, {128, 64, 32, 4, 4, 2, 1, 520},
              {64, 128, 32, 4, 2, 2, 1, 670},  {64, 64, 64, 4, 2, 2, 1, 560},   {64, 64, 128, 3, 2, 1, 4, 450},
              {32, 64, 128, 4, 1, 1, 8, 450},  {16, 64, 128, 4, 1, 1, 8, 450},  {16, 32, 256, 4, 1, 1, 8, 450}};

/// Calls `load` for each tensor that an operand is computed from, and `op` for each op in between.
template <typename Load, typename Op>
void walkOperand(const Graph &graph, ValueId operand, const std::vector<ValueId> &loads, Load load, Op op) {
  std::vector<ValueId> work{operand};
  std::set<ValueId> seen{operand}, stored(loads.begin(), loads.end());
  while (!work.empty()) {
    ValueId v = work.back();
    work.pop_back();
    if (graph.values[v].kind != Value::Result || stored.contains(v)) {
      load(v);
      continue;
    }
    const Node &node = graph.nodes[graph.values[v].node];
    op(node, v);
    for (const Operand &o : node.inputs)
      if (!o.isLiteral() && seen.insert(o.value).second)
        work.push_back(o.value);
  }
}

/// kNone where the operand is computed from nothing.
ValueId largestLoad(const Graph &graph, ValueId operand, const std::vector<ValueId> &loads) {
  ValueId largest = kNone;
  walkOperand(
      graph, operand, loads,
      [&](ValueId v) {
        if (largest == kNone || graph.type(v).bytes() > graph.type(largest).bytes())
          largest = v;
      },
      [](const Node &, ValueId) {});
  return largest;
}

/// What computing an element of the operand takes, as instructions.
double operandOps(const Graph &graph, ValueId operand, const std::vector<ValueId> &loads) {
  double ops = 0;
  walkOperand(
      graph, operand, loads, [](ValueId) {},
      [&](const Node &node, ValueId v) {
        if (cost::isView(node.op))
          return;
        cost::OpCost c = cost::opCost(node.op, graph.type(v).dtype, node.attrs.tanhApproximation);
        ops += c.ops + 8 * c.special;
      });
  return ops;
}

/// Bytes that a tile schedule moves: each operand once, and from the L2 cache again for every further tile of the other side.
void countTraffic(const Graph &graph, const Trace &epilogue, const std::vector<NodeId> &products,
                  const std::vector<ValueId> &loads, const GemmSchedule &s, cost::WorkEstimate &w) {
  std::map<ValueId, double> once;
  std::set<ValueId> operands, inputs(loads.begin(), loads.end());
  auto readOperand = [&](ValueId operand, double times) {
    if (!operands.insert(operand).second)
      return;
    std::vector<ValueId> work{operand};
    std::set<ValueId> seen{operand};
    while (!work.empty()) {
      ValueId v = work.back();
      work.pop_back();
      if (graph.values[v].kind == Value::Result && !inputs.contains(v)) {
        for (const Operand &o : graph.nodes[graph.values[v].node].inputs)
          if (!o.isLiteral() && seen.insert(o.value).second)
            work.push_back(o.value);
        continue;
      }
      double bytes = static_cast<double>(std::min(graph.type(v).elements(), graph.type(operand).elements())) *
                     static_cast<double>(dtypeSize(graph.type(v).dtype));
      // Operands that are parts of one tensor are other parts of it, or all of it.
      once[v] = std::min(static_cast<double>(graph.type(v).bytes()), once[v] + bytes);
      w.l2Bytes += bytes * (times - 1);
    }
  };
  for (NodeId n : products) {
    readOperand(graph.nodes[n].inputs[0].value, static_cast<double>(ceilDiv(s.shape.n, s.tileN)));
    readOperand(graph.nodes[n].inputs[1].value, static_cast<double>(ceilDiv(s.shape.m, s.tileM)));
  }
  for (const Instance &in : epilogue.instances)
    if (in.node == kNone) {
      double &r = once[in.value];
      r = std::max(r, static_cast<double>(std::min(graph.type(in.value).elements(), epilogue.elements)) *
                          static_cast<double>(dtypeSize(graph.type(in.value).dtype)));
    }
  for (auto [v, bytes] : once)
    w.bytesRead += bytes;
  for (const TraceStore &store : epilogue.stores)
    w.bytesWritten += static_cast<double>(graph.type(epilogue.instances[store.instance].value).bytes());
}

/// Of a block, as the emitters use it.
int64_t sharedBytes(const Graph &graph, const std::vector<NodeId> &products, const GemmSchedule &s) {
  if (s.kernel == "mma")
    return std::max(s.stages * (s.tileM + s.products * s.tileN) * s.tileK * 2,
                    s.warpsK * s.products * (s.tileM / s.warpsM) * (s.tileN + 8) * 4);
  auto bytes = static_cast<int64_t>(dtypeSize(graph.type(graph.nodes[products[0]].outputs[0]).dtype));
  if (s.kernel == "thin") {
    bool alongK = graph.nodes[products[0]].attrs.transposeB;
    int64_t parts = alongK ? s.warpsK : s.threads / 32;
    return bytes * std::max(parts * s.products * s.tileM * s.tileN, alongK ? 0 : s.tileM * s.tileK);
  }
  return bytes *
         std::max(2 * s.tileK * (s.tileM + 4 + s.products * (s.tileN + 4)), s.products * s.tileM * (s.tileN + 4));
}

cost::WorkEstimate workOf(const Graph &graph, const Trace &epilogue, const std::vector<NodeId> &products,
                          const std::vector<ValueId> &loads, const GemmSchedule &s, const cost::TargetDesc &target) {
  cost::WorkEstimate w;
  w.traffic = s.once ? cost::Traffic::MatrixOnce : cost::Traffic::Matrix;
  countTraffic(graph, epilogue, products, loads, s, w);
  for (const Instance &in : epilogue.instances) {
    cost::WorkEstimate one = measureOps(
        graph, in, static_cast<double>(epilogue.elements) / static_cast<double>(in.uniform ? epilogue.lanes : 1));
    w.ops += one.ops;
    w.specialOps += one.specialOps;
  }
  // A CPU computes a segment again for each pass over it; the threads of a GPU that share one compute it once.
  if (!target.gpu && tileSegments(graph, epilogue).columns)
    for (uint32_t level = 1; level <= epilogue.levels; ++level) {
      cost::WorkEstimate one = passOps(graph, epilogue, level);
      w.ops += one.ops * static_cast<double>(epilogue.elements);
      w.specialOps += one.specialOps * static_cast<double>(epilogue.elements);
    }
  // Whole tiles are computed, also where they stick out.
  int64_t tilesM = ceilDiv(s.shape.m, s.tileM), tilesN = ceilDiv(s.shape.n, s.tileN);
  double macs = static_cast<double>(s.shape.batch * tilesM * s.tileM) * static_cast<double>(tilesN * s.tileN) *
                static_cast<double>(s.kernel == "thin" ? s.shape.k : ceilDiv(s.shape.k, s.tileK) * s.tileK) *
                static_cast<double>(s.products);
  if (s.kernel == "thin") // each weight is widened once
    w.ops += macs / static_cast<double>(s.tileM);
  // Or computed: each op takes an instruction or two more, of narrow numbers, as what it reads is unpacked and converted. (8-bit
  // integers times scales, one row, on an H200: 24.9 us.)
  constexpr double kUnpacked = 3.5;
  if (s.kernel == "mma")
    w.ops += kUnpacked * operandOps(graph, graph.nodes[products[0]].inputs[0].value, loads) *
             static_cast<double>(s.shape.rows() * s.shape.k * tilesN);
  if (s.kernel == "thin" || s.kernel == "mma")
    for (NodeId n : products)
      w.ops += kUnpacked * operandOps(graph, graph.nodes[n].inputs[1].value, loads) *
               static_cast<double>(s.shape.batch * s.shape.n * s.shape.k * tilesM);
  DType type = DType::F32;
  if (s.kernel == "mma") {
    type = *tensorType(graph, graph.nodes[products[0]]);
    // What a tile's kernel multiplies a clock on an SM at most, of what the machine can.
    double perClock = target.tensorFlops(type) * target.tensorAchieved / 2 / (target.smCount * target.clockHz);
    for (const auto &t : kTiles)
      if (t.m == s.tileM && t.n == s.tileN && t.k == s.tileK)
        macs *= std::max(1.0, perClock / t.rate);
    auto warpM = static_cast<double>(s.tileM / s.warpsM), warpN = static_cast<double>(s.tileN / s.warpsN);
    w.registers = static_cast<int>(std::min(255.0, warpM * warpN / 32 * static_cast<double>(s.products) + 80));
  }
  w.tensorFlops[static_cast<size_t>(type)] = 2 * macs;
  w.threadsPerBlock = static_cast<int>(s.threads);
  w.blocks = target.gpu ? static_cast<double>(s.shape.batch * tilesM * tilesN) : 0;
  // The cache serves tiles faster than its assumed bandwidth says: 4096^3 in tiles of 64 x 128 reads 3.2 GB from it, and took 391
  // us on an H200.
  constexpr double kServed = 0.66;
  if (s.kernel == "mma")
    w.l2Bytes *= kServed;
  if (target.gpu) {
    w.sharedBytes = static_cast<double>(sharedBytes(graph, products, s));
    // Rows that are not there are not read.
    w.bytesInFlight = static_cast<double>((std::min(s.tileM, s.shape.m) + s.products * s.tileN) * s.tileK * 2) *
                      static_cast<double>(std::max<int64_t>(1, s.stages - 1));
    // What is not copied as it is passes through registers, and these hold one tile.
    if (ValueId v = largestLoad(graph, graph.nodes[products[0]].inputs[1].value, loads);
        s.kernel == "mma" && v != kNone && graph.type(v).dtype != type)
      w.bytesInFlight =
          static_cast<double>(s.products * s.tileN * s.tileK) * static_cast<double>(dtypeSize(graph.type(v).dtype));
    if (ValueId v = graph.nodes[products[0]].inputs[0].value; s.kernel == "mma" && operandOps(graph, v, loads) > 0)
      w.bytesInFlight = std::min(w.bytesInFlight, static_cast<double>(std::min(s.tileM, s.shape.m) * s.tileK) *
                                                      static_cast<double>(dtypeSize(type)));
    if (s.kernel == "thin") {
      int64_t columns = graph.nodes[products[0]].attrs.transposeB ? s.tileN / s.warpsN : 1;
      w.bytesInFlight = static_cast<double>(s.threads * 16 * s.stages * columns * s.products);
      w.registers = 96;
    }
    // A trip to the L2 cache takes about a quarter of one to memory (fits 1024^3 on an H200, all of which stays in the cache).
    constexpr double kShorter = 0.25;
    if (double all = w.bytesRead + w.l2Bytes; all > 0)
      w.bytesInFlight *= all / (w.bytesRead + w.l2Bytes * kShorter);
  }
  return w;
}

bool isOnce(const Graph &graph, const std::vector<NodeId> &products, const std::vector<ValueId> &loads,
            const GemmSchedule &s, const cost::TargetDesc &target) {
  return (s.kernel == "thin" || s.kernel == "mma") && readsRightOnce(graph, products, loads, s, target);
}

/// Kernels that stream the right operand, for so few rows that the arithmetic of single elements keeps up with memory.
void addThin(const Graph &graph, const std::vector<NodeId> &products, GemmSchedule s, int64_t epilogueLanes,
             std::vector<GemmSchedule> &out) {
  const Node &first = graph.nodes[products[0]];
  // Tensor cores do more rows in no more than the time of one (measured on an H200: 33 us against 39 at four rows).
  int64_t mostRows = tensorType(graph, first) ? 2 : 8;
  auto sizeOf = [&](ValueId v) { return static_cast<int64_t>(dtypeSize(graph.type(operandSource(graph, v)).dtype)); };
  int64_t left = sizeOf(first.inputs[0].value), right = sizeOf(first.inputs[1].value);
  bool alongK = first.attrs.transposeB;
  if (s.shape.m * s.products > mostRows || first.attrs.transposeA || (alongK && left < right))
    return;
  for (NodeId n : products)
    if (graph.nodes[n].attrs.transposeB != alongK || sizeOf(graph.nodes[n].inputs[1].value) != right)
      return;
  s.kernel = "thin";
  s.threads = 256;
  s.tileM = s.shape.m;
  auto take = [&](int64_t tileN) {
    s.tileN = tileN;
    if (tileN % epilogueLanes == 0)
      out.push_back(s);
  };
  if (alongK) {
    s.tileK = 16 / right;
    s.stages = s.shape.m * s.products > 2 ? 2 : 4;
    for (auto [warpsN, columns] : {std::pair<int64_t, int64_t>{8, 2}, {4, 2}, {2, 4}}) {
      s.warpsN = warpsN;
      s.warpsK = 8 / warpsN;
      take(warpsN * columns);
    }
    return;
  }
  int64_t lanes = 16 / right;
  while (s.shape.n % lanes != 0)
    lanes /= 2;
  constexpr int64_t kMostSums = 96; // of a thread, beside the vectors of a round
  if (s.shape.m * s.products * lanes > kMostSums)
    return;
  s.stages = s.shape.m * s.products > 2 ? 4 : 8;
  s.tileK = std::min(ceilDiv(s.shape.k, 16) * 16, 8192 / std::max<int64_t>(1, s.shape.m) / 16 * 16);
  for (int64_t across : {8, 4, 16, 32})
    take(across * lanes);
}

std::vector<GemmSchedule> anyCandidates(const Graph &graph, const std::vector<NodeId> &products, int64_t epilogueLanes,
                                        int64_t segment, const cost::TargetDesc &target) {
  GemmSchedule s;
  s.shape = productShape(graph, graph.nodes[products[0]]);
  s.products = static_cast<int64_t>(products.size());
  std::vector<GemmSchedule> out;
  if (!target.gpu) {
    // Three buffers that stay in the second-level cache: 96 rows of A and 256 columns of B by 256 of K, and the tile.
    s.kernel = "blocked";
    bool wide = graph.type(graph.nodes[products[0]].outputs[0]).dtype == DType::I64;
    int64_t most = wide || s.products > 1 ? 128 : 256;
    s.tileM = s.shape.m < 6 ? s.shape.m : std::min<int64_t>(96, ceilDiv(s.shape.m, 6) * 6);
    s.tileN = std::min<int64_t>(most, ceilDiv(s.shape.n, 16) * 16);
    s.tileK = std::min<int64_t>(256, ceilDiv(s.shape.k, 8) * 8);
    auto blocks = [&] { return s.shape.batch * ceilDiv(s.shape.m, s.tileM) * ceilDiv(s.shape.n, s.tileN); };
    while (static_cast<double>(blocks()) < 3 * target.smCount && s.tileN > 64)
      s.tileN = ceilDiv(s.tileN / 2, 16) * 16;
    if (segment)
      s.tileN = ceilDiv(s.tileN, segment) * segment;
    // In multiples of the rows multiplied at once and of the lanes read.
    while (static_cast<double>(blocks()) < 3 * target.smCount && s.tileM > 24)
      s.tileM = ceilDiv(s.tileM / 2, 24) * 24;
    return {s};
  }
  addThin(graph, products, s, epilogueLanes, out);
  if (tensorType(graph, graph.nodes[products[0]])) {
    s.kernel = "mma";
    for (const auto &t : kTiles) {
      if (s.products > 1 && t.m * t.n > 128 * 128)
        continue; // the sums of both would need more registers than a thread has
      s.tileM = t.m;
      s.tileN = t.n;
      s.tileK = t.k;
      s.stages = t.stages;
      s.warpsM = t.warpsM;
      s.warpsN = t.warpsN;
      s.warpsK = t.warpsK;
      s.threads = 32 * t.warpsM * t.warpsN * t.warpsK;
      if (static_cast<double>(sharedBytes(graph, products, s)) <= target.sharedPerBlock)
        out.push_back(s);
    }
    return out;
  }
  s.kernel = "simt";
  s.threads = 256;
  s.tileK = 16;
  bool wide = graph.type(graph.nodes[products[0]].outputs[0]).dtype == DType::I64;
  if (!wide && s.products == 1) {
    s.tileM = s.tileN = 128;
    out.push_back(s);
  }
  s.tileM = s.tileN = 64;
  out.push_back(s);
  return out;
}

/// Those whose tiles have segments whole. On a GPU the threads that share one are neighbours in a warp, all of which goes over the
/// tile as often.
std::vector<GemmSchedule> candidates(const Graph &graph, const std::vector<NodeId> &products, const Trace &epilogue,
                                     const cost::TargetDesc &target) {
  const int64_t segment = tileSegments(graph, epilogue).columns, lanes = epilogue.lanes;
  std::vector<GemmSchedule> all = anyCandidates(graph, products, lanes, segment, target);
  if (segment)
    std::erase_if(all, [&](const GemmSchedule &s) {
      if (!target.gpu)
        return s.tileN % segment != 0 || segment % lanes != 0;
      return s.tileN % segment != 0 || segment % lanes != 0 || segment / lanes > 32 ||
             (s.kernel == "mma" && !stagesWhole(s)) || s.tileM / s.warpsM * s.tileN / lanes % 32 != 0;
    });
  return all;
}

std::string figure(double v, const char *format = "%.3g") {
  char text[32];
  std::snprintf(text, sizeof text, format, v);
  return text;
}

} // namespace

static double rightBytes(const Graph &graph, const std::vector<NodeId> &products, const std::vector<ValueId> &loads) {
  double bytes = 0;
  for (NodeId n : products)
    if (ValueId v = largestLoad(graph, graph.nodes[n].inputs[1].value, loads); v != kNone)
      bytes += static_cast<double>(graph.type(v).bytes());
  return bytes;
}

bool readsRightOnce(const Graph &graph, const std::vector<NodeId> &products, const std::vector<ValueId> &loads,
                    const GemmSchedule &s, const cost::TargetDesc &target) {
  if (!target.gpu || s.tileM < s.shape.m)
    return false;
  double bytes = 0;
  for (NodeId n : products) {
    ValueId v = largestLoad(graph, graph.nodes[n].inputs[1].value, loads);
    // One that all of a batch read, or that is seen several times, is not read once.
    if (v == kNone || graph.type(v).elements() < s.shape.batch * s.shape.n * s.shape.k)
      return false;
    bytes += static_cast<double>(graph.type(v).bytes());
  }
  return bytes >= kOnceShare * target.l2Bytes;
}

std::string noTileFor(int64_t segment) {
  return "no kernel of these operands has tiles of whole segments of " + std::to_string(segment);
}

void scheduleGemm(const Graph &graph, const Trace &epilogue, const std::vector<NodeId> &products,
                  const cost::TargetDesc &target, PlannedGroup &g, const GemmSchedule *only) {
  std::vector<GemmSchedule> all = candidates(graph, products, epilogue, target);
  if (all.empty())
    return;
  if (only && std::any_of(all.begin(), all.end(), [&](const GemmSchedule &s) { return s.kernel == only->kernel; }))
    all = {*only};
  // Copies to shared memory by a policy of the cache are an illegal instruction in some forms (ptxas 13.0): mma's have none.
  for (GemmSchedule &s : all)
    s.once = s.kernel == "thin" && isOnce(graph, products, g.inputs, s, target);
  size_t best = 0;
  std::vector<cost::Estimate> times;
  std::vector<cost::WorkEstimate> works;
  // Where times are as good as equal, the one that asks for more at once: it has more in hand against what is not modelled.
  auto inFlight = [&](size_t i) {
    return works[i].bytesInFlight * std::min(works[i].blocks, cost::residentBlocks(target, works[i]));
  };
  for (size_t i = 0; i < all.size(); ++i) {
    works.push_back(workOf(graph, epilogue, products, g.inputs, all[i], target));
    times.push_back(cost::estimate(works.back(), target));
    if (all[i].kernel == "thin") {
      // Until the stream of the right operand flows and after it: what 34, 90 and 235 MB took on an H200 beside their traffic. Of 4
      // MB about half of that; less is over before it flows.
      constexpr double most = 2.2e-6, whole = 8e6;
      const double ends = most * std::min(1.0, rightBytes(graph, products, g.inputs) / whole);
      times[i].tail += ends;
      times[i].total += ends;
    }
    double now = times[i].total, least = times[best].total;
    if (now < 0.99 * least || (now < 1.01 * least && inFlight(i) > inFlight(best)))
      best = i;
  }
  for (size_t i = 0; target.gpu && i < all.size(); ++i)
    g.tiles.push_back({all[i], times[i].total});
  const GemmSchedule &s = all[best];
  const ProductShape &p = s.shape;
  g.kind = "gemm";
  g.gemm = s;
  g.elements = p.rows() * p.n;
  g.rows = p.rows();
  g.width = p.n;
  g.lanes = epilogue.lanes;
  g.threads = s.threads;
  g.work = works[best];
  g.time = times[best];
  // The estimate counts whole tiles at a tile's rate; what is recorded is what there is to do.
  double flops = 2.0 * static_cast<double>(p.rows()) * static_cast<double>(p.n) * static_cast<double>(p.k) *
                 static_cast<double>(s.products);
  for (double &f : g.work.tensorFlops)
    f = f > 0 ? flops : 0;
  g.unfusedBytes = unfusedBytes(graph, g.nodes);

  std::string size = std::to_string(p.m) + " x " + std::to_string(p.n) + " x " + std::to_string(p.k);
  if (p.batch > 1)
    size = std::to_string(p.batch) + " of " + size;
  g.why.push_back(std::string(s.products > 1 ? "two products of one left operand, " : "a product of ") + size +
                  " with what is elementwise behind it: " + std::to_string(g.nodes.size() - products.size()) + " op" +
                  (g.nodes.size() - products.size() == 1 ? "" : "s"));
  std::string why = "kernel '" + s.kernel + "', tiles of " + std::to_string(s.tileM) + " x " + std::to_string(s.tileN) +
                    " x " + std::to_string(s.tileK);
  if (target.gpu)
    why += ", " + figure(g.work.blocks) + " blocks on " + figure(target.smCount) + " SMs";
  why += ": " + figure(flops / 1e9) + " Gflop in " + figure(g.time.compute() * 1e6) + " us, " +
         figure(g.work.bytes() / 1e6) + " MB in " + figure(g.time.memory * 1e6) + " us";
  g.why.push_back(why);
  if (s.once)
    g.why.push_back(kReadOnce);
  std::string others;
  for (size_t i = 0; i < all.size(); ++i)
    if (i != best)
      others += (others.empty() ? "" : ", ") + all[i].kernel + " " + std::to_string(all[i].tileM) + " x " +
                std::to_string(all[i].tileN) + " x " + std::to_string(all[i].tileK) + " in " +
                figure(times[i].total * 1e6);
  if (!others.empty())
    g.why.push_back("predicted " + figure(g.time.total * 1e6) + " us; other tiles: " + others);
}

} // namespace rl
