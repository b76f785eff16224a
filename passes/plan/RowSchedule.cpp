// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "passes/plan/RowSchedule.h"
#include "passes/cost/OpCost.h"
#include "passes/plan/FactoredMax.h"
#include "passes/plan/OnlineSum.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace rl {

namespace {

/// Sizes in bytes of the elements of what is loaded and stored, tensors of whole rows only.
struct ElementSizes {
  int64_t least = 8, most = 1;
};
ElementSizes sizesOf(const Graph &graph, const TraceRequest &request) {
  ElementSizes out;
  auto &[least, most] = out;
  int64_t elements = request.rows * request.width;
  std::set<ValueId> seen(request.outputs.begin(), request.outputs.end());
  std::vector<ValueId> work(request.outputs);
  auto count = [&](ValueId v) {
    if (graph.type(v).elements() * 2 <= elements)
      return;
    auto size = static_cast<int64_t>(dtypeSize(graph.type(v).dtype));
    least = std::min(least, size);
    most = std::max(most, size);
  };
  for (ValueId v : request.outputs)
    count(v);
  while (!work.empty()) {
    ValueId v = work.back();
    work.pop_back();
    if (graph.values[v].kind != Value::Result || request.boundary[v]) {
      count(v);
      continue;
    }
    for (const Operand &o : graph.nodes[graph.values[v].node].inputs)
      if (!o.isLiteral() && seen.insert(o.value).second)
        work.push_back(o.value);
  }
  return out;
}

} // namespace

int64_t chooseColumnLanes(const Graph &graph, const TraceRequest &request, const cost::TargetDesc &target) {
  for (ValueId v : request.outputs)
    if (graph.type(v).elements() != request.rows)
      return 1;
  // A CPU fetches lines, two at a time: of fewer bytes the rest would be there again only if all columns' lines fitted in its cache.
  auto bytes = static_cast<int64_t>(target.gpu ? target.vectorBytes : 2 * target.lineBytes);
  int64_t lanes = std::max<int64_t>(1, bytes / sizesOf(graph, request).most);
  while (request.rows % lanes != 0)
    lanes /= 2;
  return lanes;
}

int64_t chooseRowLanes(const Graph &graph, const TraceRequest &request, const cost::TargetDesc &target) {
  auto [least, most] = sizesOf(graph, request);
  auto bytes = static_cast<int64_t>(target.vectorBytes);
  int64_t lanes = target.gpu ? bytes / most : std::min(bytes / std::min(least, most), 2 * bytes / most);
  lanes = std::max<int64_t>(1, lanes);
  while (request.width % lanes != 0)
    lanes /= 2;
  return lanes;
}

bool readsAcrossRows(const Graph &graph, Trace &trace) {
  int64_t across = 0, all = 0;
  for (const Instance &in : trace.instances) {
    if (in.node != kNone || !in.varies || graph.type(in.value).elements() * 2 <= trace.elements)
      continue;
    auto bytes = static_cast<int64_t>(dtypeSize(graph.type(in.value).dtype));
    all += bytes;
    for (int64_t V : {32, 16, 8})
      if (trace.context->extent(trace.rowDim) >= V &&
          index::classify(*trace.context, in.linear, trace.rowDim, V).kind == index::Access::Contiguous) {
        across += bytes;
        break;
      }
  }
  return across * 2 > all;
}

std::vector<uint32_t> copiedLoads(const Graph &graph, const Trace &trace) {
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < trace.instances.size(); ++i) {
    const Instance &in = trace.instances[i];
    if (in.node != kNone || in.guard != 0 || in.scope != 0 || !in.varies || in.uniform || trace.laneDim < 0 ||
        graph.type(in.value).dtype == DType::Bool || trace.isGathered(in) ||
        !trace.context->expand(in.linear).dependsOn(trace.rowDim))
      continue;
    int64_t bytes = vectorBytes(graph, trace, {i});
    if (bytes >= 4 && bytes <= 16 && !in.linear.dependsNonlinearly(trace.laneDim) &&
        in.linear.coefficient(trace.laneDim) == 1 && in.linear.divisor(trace.laneDim) % trace.lanes == 0)
      out.push_back(i);
  }
  return out;
}

bool isFlat(const Trace &trace, const index::Expr &linear) {
  index::Context &ctx = *trace.context;
  index::Expr own =
      ctx.add(ctx.mul(ctx.dim(trace.rowDim), trace.width), ctx.mul(ctx.dim(trace.vectorDim), trace.lanes));
  if (trace.laneDim >= 0)
    own = ctx.add(own, ctx.dim(trace.laneDim));
  return ctx.expand(linear) == own;
}

std::vector<uint32_t> stagedLoads(const Graph &graph, const Trace &trace) {
  std::vector<uint32_t> out;
  for (uint32_t i = 0; i < trace.instances.size(); ++i)
    if (const Instance &in = trace.instances[i]; in.node == kNone && in.guard == 0 && in.scope == 0 && in.varies &&
                                                 graph.type(in.value).elements() == trace.elements &&
                                                 graph.type(in.value).dtype != DType::Bool && !trace.isGathered(in) &&
                                                 isFlat(trace, in.linear))
      out.push_back(i);
  return out;
}

std::vector<size_t> stagedStores(const Graph &graph, const Trace &trace) {
  std::vector<size_t> out;
  for (size_t s = 0; s < trace.stores.size(); ++s) {
    const TensorType &type = graph.type(trace.instances[trace.stores[s].instance].value);
    if (type.elements() == trace.elements && type.dtype != DType::Bool && isFlat(trace, trace.stores[s].linear))
      out.push_back(s);
  }
  return out;
}

int64_t stagedBytes(const Trace &trace, DType type, int64_t rows) {
  constexpr int64_t kAlignment = 128;
  int64_t bytes = rows * trace.width * static_cast<int64_t>(dtypeSize(type)) + 16;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

int64_t vectorBytes(const Graph &graph, const Trace &trace, const std::vector<uint32_t> &loads) {
  int64_t bytes = 0;
  for (uint32_t i : loads)
    bytes += static_cast<int64_t>(dtypeSize(graph.type(trace.instances[i].value).dtype)) * trace.lanes;
  return bytes;
}

namespace {

/// 32-bit registers that one vector of the row takes: what is loaded, packed; and what is dear and needed in a later
/// pass. `between`: the most of both that is kept from one pass for a later one. `shared`: bytes of a row's loads that
/// all rows have in common.
struct Held {
  int64_t loads = 0, dear = 0, between = 0, shared = 0;
  int64_t elements = 0; ///< of the loads: what these take where nothing is aligned and each is loaded by itself
  int64_t lanes = 1;
  int64_t rare = 0;  ///< what functions with a path for rare arguments want, beside the results of all vectors
  bool plain = true; ///< nothing dear is computed again, and few reductions wait for each other
  int64_t call = 0;  ///< what subroutines want, which linked quotients and roots of f32 call
  int64_t withRare(int64_t registers, int64_t unroll) const {
    return unroll * registers + (rare ? rare + unroll * lanes : 0);
  }
};
Held heldRegisters(const Graph &graph, const Trace &trace) {
  // The last pass that uses an instance, and the first.
  std::vector<uint32_t> last(trace.instances.size(), 0), first(trace.instances.size(), trace.levels);
  for (const Instance &in : trace.instances) {
    bool reduction = in.node != kNone && opInfo(graph.nodes[in.node].op).cls == OpClass::Reduction;
    uint32_t pass = reduction && !in.segment ? in.level - 1 : in.level;
    for (uint32_t o : in.operands)
      if (o != kNone) {
        last[o] = std::max(last[o], pass);
        first[o] = std::min(first[o], pass);
      }
  }
  for (const TraceStore &s : trace.stores)
    last[s.instance] = std::max(last[s.instance], trace.instances[s.instance].level);
  constexpr int64_t kRare = 48, kCall = 32;
  Held out;
  out.lanes = trace.lanes;
  std::set<ValueId> shared;
  std::vector<int64_t> kept(trace.levels, 0); // from each pass for later ones
  const std::vector<bool> dear = dearInstances(graph, trace);
  for (size_t i = 0; i < trace.instances.size(); ++i) {
    const Instance &in = trace.instances[i];
    if (!in.varies)
      continue;
    int64_t registers = in.uniform ? 1 : trace.lanes;
    if (in.node != kNone)
      switch (graph.nodes[in.node].op) {
      case OpKind::Sin:
      case OpKind::Cos:
      case OpKind::Pow:
      case OpKind::Fmod:
      case OpKind::Remainder: out.rare = kRare; break;
      case OpKind::Div:
      case OpKind::Sqrt:
      case OpKind::Reciprocal:
      case OpKind::FloorDivide:
        if (graph.strict || graph.type(in.value).dtype == DType::F32)
          out.call = kCall;
        break;
      default: break;
      }
    if (in.node == kNone) {
      out.elements += registers;
      auto size = static_cast<int64_t>(dtypeSize(graph.type(in.value).dtype));
      registers = (size * registers + 3) / 4;
      out.loads += registers;
      if (!trace.context->expand(in.linear).dependsOn(trace.rowDim) && shared.insert(in.value).second)
        out.shared +=
            std::min(graph.type(in.value).bytes(), trace.context->extent(trace.vectorDim) * trace.lanes * size);
    } else if (last[i] > in.level && dear[i]) {
      out.dear += registers;
      first[i] = in.level;
    } else {
      continue;
    }
    for (uint32_t p = first[i]; p < last[i]; ++p)
      kept[p] += registers;
  }
  for (int64_t registers : kept)
    out.between = std::max(out.between, registers);
  constexpr uint32_t kFewLevels = 3;
  out.plain = out.dear == 0 && trace.levels <= kFewLevels;
  return out;
}

} // namespace

std::vector<bool> dearInstances(const Graph &graph, const Trace &trace) {
  // Four operations take as long as four registers' worth of waiting threads save: measured at a norm that is quantised. Where
  // sums down the columns are carried, arithmetic is what takes the time.
  const double kDear = trace.columnSums.empty() ? 4 : 3;
  std::vector<double> cone(trace.instances.size(), 0);
  std::vector<bool> out(trace.instances.size(), false);
  for (size_t i = 0; i < trace.instances.size(); ++i) {
    const Instance &in = trace.instances[i];
    if (in.node == kNone || !in.varies)
      continue;
    cost::OpCost own = cost::opCost(graph.nodes[in.node], graph.type(in.value).dtype);
    cone[i] = own.ops;
    for (uint32_t o : in.operands)
      if (o != kNone)
        cone[i] += cone[o];
    bool view = opInfo(graph.nodes[in.node].op).cls == OpClass::Shape;
    out[i] = own.special > 0 || (!view && cone[i] >= kDear);
  }
  return out;
}

int64_t unfusedBytes(const Graph &graph, const std::vector<NodeId> &nodes) {
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  // By node of the file: bytes of what enters it, and of what leaves it.
  std::map<uint32_t, std::map<ValueId, int64_t>> moved;
  auto moves = [&](uint32_t owner, ValueId v, int64_t most) {
    int64_t &bytes = moved[owner][v];
    bytes = std::max(bytes, std::min(most, graph.type(v).bytes()));
  };
  // What is picked out of a tensor is read, and no more of it.
  auto readOf = [&](const Node &node, size_t operand) {
    const bool picks = opInfo(node.op).cls == OpClass::Indexing && operand == 0;
    return picks ? graph.type(node.outputs[0]).elements() *
                       static_cast<int64_t>(dtypeSize(graph.type(node.inputs[0].value).dtype))
                 : kAll;
  };
  std::set<NodeId> all(nodes.begin(), nodes.end());
  std::set<ValueId> outputs(graph.outputs.begin(), graph.outputs.end());
  auto ownerOf = [&](ValueId v) {
    return graph.values[v].kind == Value::Result ? graph.nodes[graph.values[v].node].specIndex : kNone;
  };
  // A view in the making of a node that is more than a view reads what the node reads.
  std::set<uint32_t> computes;
  for (NodeId n : all)
    if (!cost::isView(graph.nodes[n].op))
      computes.insert(graph.nodes[n].specIndex);
  auto isView = [&](const Node &node) { return !computes.contains(node.specIndex); };
  for (NodeId n = 0; n < graph.nodes.size(); ++n) {
    const Node &node = graph.nodes[n];
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Operand &o = node.inputs[i];
      if (o.isLiteral() || ownerOf(o.value) == node.specIndex)
        continue;
      if (all.contains(n) && !isView(node))
        moves(node.specIndex, o.value, readOf(node, i));
      if (NodeId from = graph.values[o.value].node; all.contains(from) && !isView(graph.nodes[from]))
        moves(ownerOf(o.value), o.value, kAll);
    }
    for (ValueId v : node.outputs)
      if (outputs.contains(v) && all.contains(n) && !isView(node))
        moves(node.specIndex, v, kAll);
  }
  int64_t bytes = 0;
  for (auto &[owner, values] : moved)
    for (auto [v, n] : values)
      bytes += n;
  return bytes;
}

/// What a thread has for the values of its row: 65536 / threads registers at full occupancy of one block, 255 at most, without some
/// for addresses and the like.
static int64_t registersOf(int64_t threads, const cost::TargetDesc &target) {
  constexpr int64_t kMost = 255, kOther = 28, kMostHeld = 132;
  return std::min(std::min(static_cast<int64_t>(target.registersPerSm) / threads, kMost) - kOther, kMostHeld);
}

/// The schedules are those measured on an H200 (tests/bench/NOTES.md): few threads with several 16-byte vectors each, small
/// blocks, a row's every load in flight before the first reduction.
static void layOut(const Held &held, int64_t reductions, const cost::TargetDesc &target, PlannedGroup &g) {
  int64_t vectors = g.across ? g.width : g.width / g.lanes;
  g.threads = g.rowsPerBlock = 1;
  g.unroll = std::min<int64_t>(4, vectors);
  g.resident = false;
  if (!target.gpu) {
    // What is dear to compute again waits in memory of the thread's own, as long as that stays in the first caches.
    constexpr int64_t kScratchBytes = 128 * 1024, kRegisterBytes = 4;
    g.keeps = !g.across && held.dear > 0 && vectors * held.dear * kRegisterBytes <= kScratchBytes;
    return;
  }
  auto ceilDiv = [](int64_t a, int64_t b) { return (a + b - 1) / b; };
  if (g.across) {
    // A strip of columns is 256 bytes wide where vectors lie across it, else 32 columns; several threads divide its rows.
    g.rowsPerBlock = g.lanes > 1 ? 16 : 32;
    // Half as wide, whole lines still, where there would not be a block for every multiprocessor.
    if (g.lanes > 1 && static_cast<double>(g.rows) < target.smCount * static_cast<double>(g.rowsPerBlock * g.lanes))
      g.rowsPerBlock /= 2;
    // A thread's partial results lie in 8 bytes of shared memory each, of which a kernel has 48 kB without asking.
    int64_t most = g.lanes > 1 ? 256 / g.rowsPerBlock : 32;
    while (most > 1 && most * g.rowsPerBlock * g.lanes * reductions * 8 > 48 * 1024)
      most /= 2;
    for (g.threads = std::min<int64_t>(8, most); g.threads < most && ceilDiv(vectors, g.threads) > 16;)
      g.threads *= 2;
    g.unroll = ceilDiv(vectors, g.threads);
    g.resident = g.unroll <= 16 && g.unroll * held.loads <= 32;
    g.keeps = g.resident && g.unroll * (held.loads + held.dear) <= 32;
    if (!g.resident) {
      g.threads = std::min<int64_t>(g.lanes > 1 ? 32 : 16, most);
      int64_t inFlight = std::max<int64_t>(1, 32 / std::max<int64_t>(1, held.loads));
      g.unroll = std::min(std::min<int64_t>(8, inFlight), std::max<int64_t>(1, vectors / g.threads));
    }
    return;
  }
  if (vectors <= 256) {
    // Two vectors a thread; a power of two of threads up to a warp, so that rows share one.
    auto most = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(ceilDiv(vectors, 2))));
    g.threads = most;
    for (int64_t t = most; t >= 1 && t >= most / 4; t /= 2)
      if (t * ceilDiv(vectors, t) < g.threads * ceilDiv(vectors, g.threads))
        g.threads = t;
  } else {
    g.threads = vectors <= 512 ? 128 : vectors <= 2048 ? 256 : vectors <= 4096 ? 512 : 1024;
    // Few rows: more threads a row, as there are not enough blocks to hide a wait.
    if (static_cast<double>(g.rows) <= 4 * target.smCount && g.threads < 512 && ceilDiv(vectors, g.threads) > 2)
      g.threads *= 2;
  }
  g.unroll = ceilDiv(vectors, g.threads);
  constexpr int64_t kLargest = 1024, kNotPlain = 16; // of 64 that a thread of the largest block has
  const int64_t perThread = registersOf(g.threads, target) - (g.threads >= kLargest && !held.plain ? kNotPlain : 0);
  g.resident = g.unroll <= 32 && held.withRare(held.loads, g.unroll) <= perThread;
  g.keeps = g.resident && held.withRare(held.loads + held.dear, g.unroll) <= perThread;
  if (!g.resident) {
    g.threads = vectors >= 2048 ? 512 : std::max<int64_t>(32, std::min<int64_t>(g.threads, 256));
    g.unroll = std::min<int64_t>(4, std::max<int64_t>(1, vectors / g.threads));
    constexpr int64_t kMostElements = 64;
    while (g.unroll > 1 && g.unroll * held.elements > (held.rare ? kMostElements / 2 : kMostElements))
      g.unroll /= 2;
  }
  if (g.threads < 128)
    g.rowsPerBlock = 128 / g.threads;
}

/// A kernel that carries sums down the columns: a row after the other in one block, two blocks an SM, the next rows copied to
/// shared memory while a row is computed (loads into registers the assembler moves behind the arithmetic that needs those). With
/// few elements a thread the exchanges between threads cost more than the arithmetic.
static bool layOutCarrying(const Held &held, int64_t sums, int64_t copied, const cost::TargetDesc &target,
                           PlannedGroup &g) {
  int64_t vectors = g.width / g.lanes;
  if (g.lanes < 2 || vectors < 128)
    return false;
  constexpr int64_t kBlocks = 2, kOther = 40; // registers for addresses, temporary results and the like
  for (int64_t threads : {256, 128, 512}) {
    int64_t unroll = (vectors + threads - 1) / threads;
    int64_t registers = std::min<int64_t>(255, static_cast<int64_t>(target.registersPerSm) / (kBlocks * threads));
    if (unroll * (g.lanes * sums + 2 * held.loads) + kOther + held.call > registers)
      continue;
    g.threads = threads;
    g.unroll = unroll;
    // As few rows ahead as keep the memory busy: of rows of 16 KB three ahead took 8 % longer than one on an H200. Exchanges' places
    // and what is reserved take less than 2 KB a block.
    const int64_t row = threads * unroll * copied;
    const auto fits = [&](int64_t stages) {
      return static_cast<double>(kBlocks * (stages * row + 2048)) <= target.sharedPerSm;
    };
    g.stages = copied && fits(2) ? 2 : 0;
    while (g.stages && g.stages < 8 && fits(2 * g.stages) &&
           static_cast<double>(kBlocks * (g.stages - 1) * row) < target.bytesInFlight)
      g.stages *= 2;
    g.rowsPerBlock = 1;
    g.resident = true;
    g.keeps = unroll * (g.lanes * sums + std::max(held.between, 2 * held.loads)) + kOther + held.call <= registers;
    return true;
  }
  return false;
}

/// Of a thread of a cluster's: for addresses, temporary results and the like.
constexpr int64_t kClusterRegisters = 32;

/// Shared memory of a block whose rows are staged.
static int64_t stagedShared(const Graph &graph, const Trace &trace, int64_t rows) {
  int64_t bytes = kStagedBarrier;
  for (uint32_t i : stagedLoads(graph, trace))
    bytes += stagedBytes(trace, graph.type(trace.instances[i].value).dtype, rows);
  for (size_t s : stagedStores(graph, trace))
    bytes += stagedBytes(trace, graph.type(trace.instances[trace.stores[s].instance].value).dtype, rows);
  return bytes;
}

/// Rows that no more than vectors of 4 bytes divide: threads that read them so have too little under way to keep memory
/// busy. As few threads a row as hold it, so that they exchange little.
static void layOutStaged(const Graph &graph, const Trace &trace, const Held &held, const cost::TargetDesc &target,
                         PlannedGroup &g) {
  constexpr int64_t kShort = 4, kFew = 20, kMany = 33, kThreads = 128, kMostThreads = 1024;
  int64_t widest = 0;
  for (uint32_t i : stagedLoads(graph, trace))
    widest = std::max(widest, vectorBytes(graph, trace, {i}));
  for (size_t s : stagedStores(graph, trace))
    widest = std::max(widest, trace.lanes * static_cast<int64_t>(dtypeSize(
                                                graph.type(trace.instances[trace.stores[s].instance].value).dtype)));
  bool segments =
      std::any_of(trace.instances.begin(), trace.instances.end(), [](const Instance &in) { return in.segment != 0; });
  if (widest == 0 || widest > kShort || segments)
    return;
  const int64_t vectors = g.width / g.lanes;
  auto unrollOf = [&](int64_t threads) { return (vectors + threads - 1) / threads; };
  auto budgetOf = [&](int64_t threads) {
    return std::min<int64_t>(static_cast<int64_t>(target.registersPerSm) / std::max(threads, kThreads) / 2, 128) - 28;
  };
  auto holds = [&](int64_t threads) {
    return unrollOf(threads) <= kMany && unrollOf(threads) * held.loads <= budgetOf(threads);
  };
  // Threads of one warp hold more vectors before others join, which they would exchange with through shared memory.
  int64_t threads = 1;
  while (threads < kMostThreads && (!holds(threads) || (threads < 32 && unrollOf(threads) > kFew)))
    threads *= threads == 32 ? 4 : 2;
  const int64_t unroll = unrollOf(threads), rows = std::max<int64_t>(1, kThreads / threads);
  // Where not every SM has a block, these are the shorter the more threads a row has.
  if (static_cast<double>(g.rows) < target.smCount * static_cast<double>(rows) || !holds(threads) ||
      2 * static_cast<double>(stagedShared(graph, trace, rows)) > target.sharedPerSm)
    return;
  g.staged = g.resident = true;
  g.threads = threads;
  g.unroll = unroll;
  g.rowsPerBlock = rows;
  g.keeps = unroll * held.between <= budgetOf(threads);
}

/// Why a kernel that is laid out does not reduce a maximum without its factors: it would gain nothing, or could not reduce a row
/// that is beyond the limits again by itself. Null: it does.
static const char *whyNotFactored(const PlannedGroup &g, const Held &held, const cost::TargetDesc &target) {
  if (!target.gpu || g.across || g.parts)
    return "each of its threads goes over several rows or parts of them";
  if (g.threads <= 32)
    return "the threads of one warp exchange without a barrier";
  if (g.rowsPerBlock > 1)
    return "rows share a block, and if one were reduced again all would be";
  if (g.online)
    return "another maximum and a sum over it take one pass";
  if (g.staged || !g.resident || !g.keeps)
    return "values do not wait in registers";
  // Fewer threads would have room, whose waits hide each other.
  if (g.lanes > held.loads || g.unroll * g.lanes > registersOf(g.threads, target))
    return "values without their factors would take more registers than the loads that they come from";
  return nullptr;
}

/// What a kernel that is laid out does and how long it takes. Returns how often the row is read.
static int64_t measure(const Graph &graph, const Trace &trace, const Held &held, const Factoring &factoring,
                       const cost::TargetDesc &target, PlannedGroup &g) {
  cost::WorkEstimate w;
  std::map<ValueId, double> reads;
  std::set<uint32_t> passes, onlineLevels;
  // Not on a CPU, where a row is in its caches and a dependence of each step on the last costs more than a pass; nor in strict
  // graphs.
  const bool canBeOnline = target.gpu && !g.across && !graph.strict;
  g.online = false;
  for (const Instance &in : trace.instances) {
    const TensorType &type = graph.type(in.value);
    double n = in.varies ? (in.uniform ? static_cast<double>(trace.elements / trace.lanes)
                                       : static_cast<double>(trace.elements))
                         : static_cast<double>(g.rows);
    if (in.node == kNone) {
      double &r = reads[in.value];
      r = trace.isGathered(in) ? r + n : std::min(std::max(r, static_cast<double>(type.elements())), r + n);
      continue;
    }
    const Node &node = graph.nodes[in.node];
    cost::OpCost c = cost::opCost(node, type.dtype);
    if (opInfo(node.op).cls == OpClass::Reduction) {
      n = static_cast<double>(trace.elements);
      bool online = canBeOnline && findOnline(graph, trace, static_cast<uint32_t>(&in - trace.instances.data()));
      g.online |= online;
      if (online)
        onlineLevels.insert(in.level);
      if (!online && !in.segment)
        passes.insert(in.level - 1);
    }
    w.ops += c.ops * n;
    w.specialOps += c.special * n;
  }
  bool stores = false;
  for (const TraceStore &s : trace.stores) {
    const TensorType &type = graph.type(g.outputs[s.output]);
    w.bytesWritten += static_cast<double>(type.bytes());
    if (type.elements() != g.rows) {
      stores = true;
      passes.insert(trace.instances[s.instance].level);
    }
  }
  for (const TraceStore &s : trace.columnSums) {
    w.bytesWritten += static_cast<double>(graph.type(g.outputs[s.output]).bytes());
    w.ops += static_cast<double>(trace.elements);
    passes.insert(trace.instances[s.instance].level);
  }
  for (auto [v, n] : reads)
    w.bytesRead += n * static_cast<double>(dtypeSize(graph.type(v).dtype));
  int64_t times = g.resident ? 1 : std::max<int64_t>(1, static_cast<int64_t>(passes.size()));
  w.traffic = g.parts                     ? cost::Traffic::ColumnPartials
              : g.cluster > 1             ? cost::Traffic::LongRow
              : g.across                  ? cost::Traffic::Column
              : !stores                   ? cost::Traffic::ReadStatistics
              : g.resident || !target.gpu ? cost::Traffic::Row
                                          : cost::Traffic::LongRow;
  g.factored = factoring.found && !whyNotFactored(g, held, target);
  w.reductions = static_cast<int>(trace.levels) - static_cast<int>(onlineLevels.size()) - static_cast<int>(g.factored);
  w.threadsPerBlock = static_cast<int>(g.threads * g.rowsPerBlock);
  // A CPU's blocks are rows, handed to threads in long runs: they make no waves.
  int64_t rowsOfBlock = g.rowsPerBlock * (g.across ? g.lanes : 1);
  w.blocks = target.gpu ? std::ceil(static_cast<double>(g.rows) / static_cast<double>(rowsOfBlock)) : 0;
  if (g.parts)
    w.blocks = static_cast<double>(g.parts);
  if (g.resident)
    w.bytesInFlight = static_cast<double>(g.threads * g.rowsPerBlock * g.unroll * held.loads * 4);
  if (g.stages)
    w.sharedBytes =
        static_cast<double>(g.stages * g.threads * g.unroll * vectorBytes(graph, trace, copiedLoads(graph, trace)));
  if (g.staged)
    w.sharedBytes = static_cast<double>(stagedShared(graph, trace, g.rowsPerBlock));
  if (g.cluster > 1) {
    w.clusterSize = static_cast<int>(g.cluster);
    w.blocks *= static_cast<double>(g.cluster);
    w.registers = static_cast<int>(g.unroll * std::max(held.between, g.keeps ? 0 : held.loads) + kClusterRegisters);
  }
  const double again = w.bytesRead * static_cast<double>(times - 1);
  double missed = 0;
  if (target.gpu && again > 0) // unless the rows that are under way together stay in the cache
    missed = std::clamp(std::min(w.blocks, cost::residentBlocks(target, w)) * static_cast<double>(rowsOfBlock) *
                                w.bytesRead / static_cast<double>(g.rows) / target.usableL2() -
                            1,
                        0.0, 1.0);
  w.bytesRead += again * missed;
  w.l2Bytes = again * (1 - missed);
  // Weights and the like come from the second-level cache once for each SM, or with every row where its first cache does
  // not hold them.
  if (target.gpu && !g.across && !g.parts) {
    const auto shared = static_cast<double>(held.shared), blocks = static_cast<double>(g.cluster),
               rows = static_cast<double>(g.rows);
    const bool holds = shared / blocks <= target.sharedPerSm / 2;
    w.l2Bytes += shared * (std::max(1.0, holds ? std::min(rows, target.smCount / blocks) : rows) - 1);
  }
  g.work = w;
  g.time = cost::estimate(w, target);
  return times;
}

static std::string microseconds(double seconds) {
  std::string text = std::to_string(std::round(seconds * 1e7) / 10);
  return text.substr(0, text.find('.') + 2) + " us";
}

static bool isFew(const PlannedGroup &g, int64_t blocks, const cost::TargetDesc &target) {
  return static_cast<double>(g.rows * blocks) <= target.smCount;
}

/// A row divided between the blocks of a cluster, each of which holds its part in registers. False: it is too long, or
/// too short to give each thread a vector. The sizes are those measured on an H200 (tests/bench/NOTES.md): small blocks,
/// of which an SM holds several, so that one computes while another's loads are under way; and where an SM would have no
/// more than one, as many threads as leave each of them four vectors.
static bool layOutCluster(const Held &held, int64_t blocks, const cost::TargetDesc &target, PlannedGroup &g) {
  constexpr int64_t kMostVectors = 16, kMostOfFew = 8;
  const int64_t vectors = (g.width / g.lanes + blocks - 1) / blocks;
  const bool few = isFew(g, blocks, target);
  g.cluster = blocks;
  g.rowsPerBlock = 1;
  g.resident = true;
  const int64_t most = few || blocks >= 8 ? 512 : 256;
  for (g.threads = few ? 128 : 256; g.threads < most && vectors > g.threads * (few ? 4 : kMostVectors);)
    g.threads *= 2;
  g.unroll = (vectors + g.threads - 1) / g.threads;
  const int64_t budget =
      std::min<int64_t>(static_cast<int64_t>(target.registersPerSm) / g.threads, 128) - kClusterRegisters;
  g.keeps = g.unroll * held.between <= budget;
  return vectors >= g.threads && g.unroll <= (few ? kMostOfFew : kMostVectors) &&
         g.unroll * (g.keeps ? held.between : held.loads) <= budget;
}

/// Takes a cluster where that is predicted to be quicker by more than the prediction is worth. Returns how often the row
/// is read.
static int64_t chooseCluster(const Graph &graph, const Trace &trace, const Held &held, const Factoring &factoring,
                             const cost::TargetDesc &target, int64_t times, PlannedGroup &g) {
  constexpr double kWorthwhile = 0.97;
  PlannedGroup best = g;
  for (auto [blocks, _] : target.activeClusters) {
    PlannedGroup other = g;
    // Clusters of more than eight are not had everywhere: where a row fits in no less.
    if (!std::has_single_bit(static_cast<uint64_t>(blocks)) || (blocks > 8 && best.cluster > 1) ||
        !layOutCluster(held, blocks, target, other))
      continue;
    measure(graph, trace, held, factoring, target, other);
    if (!other.time.fits)
      continue;
    if (best.cluster == 1              ? other.time.total < kWorthwhile * best.time.total
        : isFew(other, blocks, target) ? other.time.total <= best.time.total // no SM is idle then that need not be
                                       : other.time.total < best.time.total)
      best = std::move(other);
  }
  if (best.cluster == 1)
    return times;
  best.why.push_back("a cluster of " + std::to_string(best.cluster) +
                     " blocks shares a row and exchanges through their shared memory: " +
                     microseconds(best.time.total) + ", with one block a row " + microseconds(g.time.total));
  g = std::move(best);
  return 1;
}

static std::string whyFactored(const Graph &graph, const Trace &trace, const FactoredMax &found,
                               const cost::TargetDesc &target, const PlannedGroup &g) {
  auto nameOf = [&](uint32_t i) { return "'" + graph.values[trace.instances[i].value].name + "'"; };
  std::string names;
  for (const FactoredMax::Factor &f : found.factors)
    names += (names.empty() ? "" : " and ") + nameOf(f.instance);
  cost::WorkEstimate apart = g.work;
  ++apart.reductions;
  return "the greatest magnitude of " + nameOf(found.value) + " is reduced without its " +
         (found.factors.size() == 1 ? "factor " : "factors ") + names + ", together with what " +
         (found.factors.size() == 1 ? "that is" : "those are") + " computed from: " + microseconds(g.time.total) +
         ", with an exchange more " + microseconds(cost::estimate(apart, target).total) +
         "; a row with numbers near the ends of the range is reduced again";
}

bool scheduleRows(const Graph &graph, const Trace &trace, const cost::TargetDesc &target, PlannedGroup &g) {
  Held held = heldRegisters(graph, trace);
  auto reductions = std::count_if(trace.instances.begin(), trace.instances.end(), [&](const Instance &in) {
    return in.node != kNone && opInfo(graph.nodes[in.node].op).cls == OpClass::Reduction && !in.segment;
  });
  if (!g.parts)
    layOut(held, reductions, target, g);
  else if (int64_t copied = vectorBytes(graph, trace, copiedLoads(graph, trace));
           reductions == 0 || !layOutCarrying(held, static_cast<int64_t>(trace.columnSums.size()), copied, target, g))
    return false;
  // A segment is had by neighbouring threads of one warp, all of which go over the row as often.
  int64_t vectors = g.width / g.lanes, segments = 0;
  for (const Instance &in : trace.instances)
    if (in.segment) {
      int64_t sharing = in.segment / g.lanes;
      if (g.across || !std::has_single_bit(static_cast<uint64_t>(sharing)) || sharing > 32 ||
          g.threads % sharing != 0 || (!g.resident && vectors % g.threads != 0))
        return false;
      segments = in.segment;
    }

  if (target.sm == 90 && !g.parts && !g.across)
    layOutStaged(graph, trace, held, target, g);
  Factoring factoring;
  if (target.gpu)
    factoring = findFactoredMax(graph, trace);
  int64_t times = measure(graph, trace, held, factoring, target, g);
  if (target.gpu && !g.staged && !g.parts && !g.across && reductions > 0)
    times = chooseCluster(graph, trace, held, factoring, target, times, g);
  g.unfusedBytes = unfusedBytes(graph, g.nodes);

  if (g.online)
    g.why.push_back("a maximum and the sum of the exponentials over it take one pass and one exchange between threads");
  if (g.factored)
    g.why.push_back(whyFactored(graph, trace, *factoring.found, target, g));
  else if (const char *why = whyNotFactored(g, held, target); factoring.found && why)
    g.why.push_back(std::string("the maximum of magnitudes waits for the factors that the row shares: ") + why);
  else if (!factoring.refusal.empty() && !why)
    g.why.push_back("the maximum of magnitudes waits for the reduction before: " + factoring.refusal);
  if (g.parts)
    g.why.push_back("each of " + std::to_string(g.parts) + " blocks takes " + std::to_string(g.rows / g.parts) +
                    " rows one after the other" +
                    (g.inTurn ? ", every " + std::to_string(g.parts) + "th," : std::string()) + " and adds up " +
                    std::to_string(trace.columnSums.size()) + (trace.columnSums.size() == 1 ? " sum" : " sums") +
                    " down the columns in registers: a kernel of their own would read the rows again");
  if (g.stages)
    g.why.push_back("asynchronous copies bring the next " +
                    (g.stages == 2 ? std::string("row") : std::to_string(g.stages - 1) + " rows") +
                    " to shared memory while one is computed");
  if (g.staged)
    g.why.push_back("no more than 4 bytes of a row are a vector: the " + std::to_string(g.rowsPerBlock) +
                    (g.rowsPerBlock == 1 ? " row" : " rows") +
                    " of a block are copied to shared memory as one range, and results from there");
  std::string shape = std::to_string(g.rows) + " rows of " + std::to_string(g.width);
  g.why.push_back("one kernel over " + shape + ": " + std::to_string(trace.levels) + " dependent reduction" +
                  (trace.levels == 1 ? "" : "s") + " and what is elementwise around " +
                  (trace.levels == 1 ? "it" : "them"));
  if (segments)
    g.why.push_back("segments of " + std::to_string(segments) + " are reduced on the way, each by the " +
                    std::to_string(segments / g.lanes) +
                    (segments == g.lanes ? " thread that has it" : " threads of a warp that have it"));
  if (!target.gpu)
    g.why.push_back("a row is gone over " + std::to_string(times) + (times == 1 ? " time" : " times") +
                    " by one thread, in vectors of " + std::to_string(g.lanes) +
                    (g.keeps ? "; what is dear to compute again is kept in memory of its own" : ""));
  else if (g.across)
    g.why.push_back("neighbouring rows are neighbours in memory: so are the threads that have them, " +
                    std::to_string(g.threads) + " to a row" +
                    (g.lanes > 1 ? ", " + std::to_string(g.lanes) + " rows to a thread" : ""));
  else if (g.resident)
    g.why.push_back(
        "a row is held in the registers of " + (g.cluster > 1 ? std::to_string(g.cluster) + " times " : std::string()) +
        std::to_string(g.threads) + (g.threads == 1 ? " thread, " : " threads, ") + std::to_string(g.unroll) +
        " vector" + (g.unroll == 1 ? "" : "s") + " of " + std::to_string(g.lanes) + " each (" +
        std::to_string(g.unroll * held.loads) + " registers of loads" +
        (g.keeps && held.dear
             ? ", " + std::to_string(g.unroll * held.dear) + " of results that are dear to compute again"
             : "") +
        ")");
  else
    g.why.push_back("a row does not fit in the registers of a block: it is read " + std::to_string(times) +
                    " times by " + std::to_string(g.threads) + " threads");
  return true;
}

} // namespace rl
