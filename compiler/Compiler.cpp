// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/Compiler.h"
#include "compiler/Plan.h"
#include "compiler/Tunable.h"
#include "compiler/emit/EarlyLaunch.h"
#include "compiler/emit/EqualKernels.h"
#include "compiler/emit/Gemm.h"
#include "compiler/emit/GemmStream.h"
#include "compiler/emit/GemmWgmma.h"
#include "compiler/emit/Merge.h"
#include "compiler/emit/Pointwise.h"
#include "compiler/emit/Row.h"
#include "compiler/emit/Transpose.h"
#include "compiler/explain/Record.h"
#include "compiler/lower/Lower.h"
#include "ir/dialect/Export.h"
#include "ir/dialect/Import.h"
#include "ir/dialect/Ridge.h"
#include "passes/plan/Wgmma.h"
#include "passes/precision/AtBind.h"
#include "passes/transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/UB/IR/UBOps.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"

#include <chrono>
#include <set>

using namespace mlir;

namespace rl {

namespace {

std::string textOf(Operation *op) {
  std::string out;
  llvm::raw_string_ostream stream(out);
  OpPrintingFlags flags;
  op->print(stream, flags);
  return out + "\n";
}

class Stopwatch {
public:
  explicit Stopwatch(std::map<std::string, double> &into) : into(into) {}
  void lap(const std::string &phase) {
    auto now = std::chrono::steady_clock::now();
    into[phase] += std::chrono::duration<double>(now - last).count();
    last = now;
  }

private:
  std::map<std::string, double> &into;
  std::chrono::steady_clock::time_point last = std::chrono::steady_clock::now();
};

const DialectRegistry &dialects() {
  static const DialectRegistry registry = [] {
    DialectRegistry r;
    ridge::registerRidgeDialects(r);
    r.insert<arith::ArithDialect, cf::ControlFlowDialect, func::FuncDialect, gpu::GPUDialect, LLVM::LLVMDialect,
             NVVM::NVVMDialect, math::MathDialect, scf::SCFDialect, ub::UBDialect, vector::VectorDialect>();
    registerBuiltinDialectTranslation(r);
    registerLLVMDialectTranslation(r);
    registerNVVMDialectTranslation(r);
    return r;
  }();
  return registry;
}

/// What runs at one time: each run, or the binding of parameters.
struct Part {
  const Graph &graph;
  bool atBind = false;
  OwningOpRef<ModuleOp> module;
  func::FuncOp f;
  std::vector<ridge::GroupOp> groups;
};

class Driver {
public:
  Driver(const PrecisionAssignment &assigned, const CompileTarget &target, const CompileOptions &options)
      : graph(assigned.graph), precision(assigned.record), split(splitAtBind(graph, assigned.atBind)), target(target),
        options(options), context(dialects(), MLIRContext::Threading::DISABLED), watch(out.seconds) {}

  Result<Compiled> run();

private:
  void keep(const char *stage, const std::string &kernel, std::string text) {
    if (options.keepStages)
      out.stages.push_back({stage, kernel, std::move(text)});
  }
  Status plan(Part &);
  void layOut(Part &);
  std::vector<uint32_t> layOutResults(const Part &);
  void layOutIntermediates(Part &);
  /// Fill in a launch; the number of blocks of its unaligned kernel.
  Result<int64_t> emitPointwise(ModuleOp, DictionaryAttr schedule, Graph body, PackageLaunch &);
  Result<int64_t> emitTranspose(ModuleOp, DictionaryAttr schedule, Graph body, PackageLaunch &);
  Result<int64_t> emitRow(ModuleOp, DictionaryAttr schedule, Graph body, PackageLaunch &);
  Result<int64_t> emitGemm(ModuleOp, DictionaryAttr schedule, Graph body, PackageLaunch &);
  Status emitKernels(ModuleOp, const Part &);
  Status lower(ModuleOp);

  const Graph &graph;
  const PrecisionRecord &precision;
  const BindSplit split;
  const CompileTarget &target;
  const CompileOptions &options;
  MLIRContext context;
  Compiled out;
  Stopwatch watch;
  CodeTarget code;
  emit::EarlyLaunch early; ///< of the kernel that is emitted
  llvm::DenseMap<mlir::Value, uint32_t> buffers;
  uint32_t firstDerived = 0; ///< of the buffers that hold what is made at binding
};

static int64_t number(DictionaryAttr schedule, StringRef name) {
  auto a = schedule ? schedule.getAs<IntegerAttr>(name) : IntegerAttr();
  return a ? a.getInt() : 0;
}

static bool flag(DictionaryAttr schedule, StringRef name) {
  auto a = schedule ? schedule.getAs<BoolAttr>(name) : BoolAttr();
  return a && a.getValue();
}

/// Gives every stored tensor a buffer: what is returned in the caller's memory, what only later kernels read in the arena, what is
/// made at binding in memory of its own.
void Driver::layOut(Part &part) {
  for (ridge::GroupOp g : part.f.getOps<ridge::GroupOp>())
    part.groups.push_back(g);
  // Arguments at binding are the parameters; in a run they come behind the inputs, and what was made of them behind them.
  auto first = static_cast<uint32_t>(part.atBind ? graph.inputs.size() : 0);
  for (auto [i, arg] : llvm::enumerate(part.f.getArguments())) {
    auto at = static_cast<uint32_t>(i), given = static_cast<uint32_t>(graph.inputs.size() + graph.parameters.size());
    buffers[arg] = at < given ? first + at : firstDerived + at - given;
  }
  std::vector<uint32_t> results = layOutResults(part);
  Operation *ret = part.f.getBody().front().getTerminator();
  for (auto [i, v] : llvm::enumerate(ret->getOperands()))
    if (v.getDefiningOp() && !buffers.contains(v))
      buffers[v] = results[i];
  layOutIntermediates(part);
}

/// The buffers of what a part returns.
std::vector<uint32_t> Driver::layOutResults(const Part &part) {
  std::vector<uint32_t> out;
  for (size_t i = 0; i < part.graph.outputs.size(); ++i)
    out.push_back((part.atBind ? firstDerived : firstDerived - static_cast<uint32_t>(graph.outputs.size())) +
                  static_cast<uint32_t>(i));
  return out;
}

void Driver::layOutIntermediates(Part &part) {
  Package &p = out.package;
  std::vector<Lifetime> lifetimes;
  std::vector<mlir::Value> intermediates;
  // By launches: kernels that share one run at the same time.
  llvm::DenseMap<Operation *, int> place;
  int launch = 0;
  for (ridge::GroupOp g : part.groups)
    place[g] = launch += !flag(g.getScheduleAttr(), "joins");
  for (ridge::GroupOp g : part.groups)
    for (mlir::Value result : g.getResults()) {
      if (buffers.contains(result))
        continue;
      const int first = place.lookup(g);
      int last = first;
      for (Operation *user : result.getUsers())
        if (auto it = place.find(user); it != place.end())
          last = std::max(last, it->second);
      lifetimes.push_back({ridge::toTensorType(result.getType())->bytes(), first, last});
      intermediates.push_back(result);
    }
  std::vector<int64_t> offsets;
  p.arenaBytes = std::max(p.arenaBytes, placeInArena(lifetimes, offsets));
  for (size_t i = 0; i < intermediates.size(); ++i) {
    buffers[intermediates[i]] = static_cast<uint32_t>(p.buffers.size());
    p.buffers.push_back({PackageBuffer::Arena, 0, offsets[i], lifetimes[i].bytes});
  }
}

/// The package's signature, with the buffers of it and of what is made at binding.
static uint32_t declare(const Graph &graph, const Graph &atBind, Package &p) {
  auto tensors = [&](const std::vector<ValueId> &list, PackageBuffer::Kind kind, std::vector<PackageTensor> &into) {
    for (auto [i, v] : llvm::enumerate(list)) {
      into.push_back({graph.values[v].name, graph.type(v)});
      p.buffers.push_back({kind, static_cast<uint32_t>(i), 0, graph.type(v).bytes()});
    }
  };
  tensors(graph.inputs, PackageBuffer::Input, p.inputs);
  tensors(graph.parameters, PackageBuffer::Parameter, p.parameters);
  tensors(graph.outputs, PackageBuffer::Output, p.outputs);
  auto first = static_cast<uint32_t>(p.buffers.size());
  for (ValueId v : atBind.outputs) {
    int64_t bytes = atBind.type(v).bytes();
    p.buffers.push_back({PackageBuffer::Derived, 0, p.derivedBytes, bytes});
    p.derivedBytes += (bytes + 255) / 256 * 256;
  }
  return first;
}

/// The launch of a pointwise kernel; where it uses aligned accesses, with a plain kernel for pointers that are not aligned.
Result<int64_t> Driver::emitPointwise(ModuleOp kernels, DictionaryAttr schedule, Graph body, PackageLaunch &launch) {
  emit::PointwiseKernel kernel;
  kernel.name = launch.kernel;
  kernel.schedule.lanes = number(schedule, "lanes");
  kernel.schedule.threads = number(schedule, "threads");
  kernel.schedule.unroll = std::max<int64_t>(1, number(schedule, "unroll"));
  kernel.schedule.splitCat = flag(schedule, "split_cat");
  kernel.body = std::move(body);
  RL_ASSIGN(launch.blocks, emit::emitPointwise(kernels, kernel, code, /*alignedTo16=*/target.cuda));
  launch.block.x = static_cast<uint32_t>(kernel.schedule.threads);
  if (!target.cuda || kernel.schedule.lanes == 1)
    return 0;
  kernel.name += "_unaligned";
  kernel.schedule.lanes = kernel.schedule.unroll = 1;
  launch.unalignedKernel = kernel.name;
  return emit::emitPointwise(kernels, kernel, code, false);
}

/// The launch of a transposing kernel; on a GPU for pointers that are not aligned a pointwise one, element by element.
Result<int64_t> Driver::emitTranspose(ModuleOp kernels, DictionaryAttr schedule, Graph body, PackageLaunch &launch) {
  emit::TransposeKernel kernel;
  kernel.name = launch.kernel;
  kernel.schedule.width = number(schedule, "width");
  kernel.schedule.rows = number(schedule, "rows");
  kernel.schedule.lanes = number(schedule, "lanes");
  kernel.schedule.streamBytes = number(schedule, "stream_bytes");
  kernel.body = body;
  RL_ASSIGN(launch.blocks, emit::emitTranspose(kernels, kernel, code));
  if (!target.cuda)
    return 0;
  launch.block.x = static_cast<uint32_t>(emit::kTransposeThreads);
  emit::PointwiseKernel plain;
  plain.name = launch.unalignedKernel = launch.kernel + "_unaligned";
  plain.schedule.threads = emit::kTransposeThreads;
  plain.body = std::move(body);
  return emit::emitPointwise(kernels, plain, code, false);
}

Result<int64_t> Driver::emitRow(ModuleOp kernels, DictionaryAttr schedule, Graph body, PackageLaunch &launch) {
  emit::RowKernel kernel;
  kernel.name = launch.kernel;
  kernel.schedule.width = number(schedule, "width");
  kernel.schedule.rows = number(schedule, "rows");
  kernel.schedule.lanes = number(schedule, "lanes");
  kernel.schedule.threads = number(schedule, "threads");
  kernel.schedule.rowsPerBlock = number(schedule, "rows_per_block");
  kernel.schedule.unroll = number(schedule, "unroll");
  kernel.schedule.resident = flag(schedule, "resident");
  kernel.schedule.keeps = flag(schedule, "keeps");
  kernel.schedule.across = flag(schedule, "across");
  kernel.schedule.online = flag(schedule, "online");
  kernel.schedule.factored = flag(schedule, "factored");
  kernel.schedule.parts = number(schedule, "parts");
  kernel.schedule.inTurn = flag(schedule, "in_turn");
  kernel.schedule.stages = number(schedule, "stages");
  kernel.schedule.cluster = number(schedule, "cluster");
  kernel.schedule.staged = flag(schedule, "staged");
  kernel.schedule.streamBytes = number(schedule, "stream_bytes");
  kernel.body = std::move(body);
  launch.cluster.x = static_cast<uint32_t>(kernel.schedule.cluster);
  RL_ASSIGN(emit::RowLaunch made, emit::emitRow(kernels, kernel, code, /*alignedTo16=*/target.cuda));
  launch.blocks = made.blocks;
  launch.sharedBytes = static_cast<uint32_t>(made.sharedBytes);
  launch.block.x = static_cast<uint32_t>(kernel.schedule.threads * kernel.schedule.rowsPerBlock);
  if (!target.cuda || (kernel.schedule.lanes == 1 && !kernel.schedule.staged))
    return 0;
  // The same order of additions, so that alignment does not show in the results.
  kernel.name += "_unaligned";
  launch.unalignedKernel = kernel.name;
  launch.unalignedCluster = launch.cluster;
  RL_ASSIGN(emit::RowLaunch unaligned, emit::emitRow(kernels, kernel, code, false));
  launch.unalignedSharedBytes = static_cast<uint32_t>(unaligned.sharedBytes);
  return unaligned.blocks;
}

static GemmSchedule gemmSchedule(DictionaryAttr schedule) {
  GemmSchedule s;
  s.kernel = schedule.getAs<StringAttr>("kernel").str();
  s.tileM = number(schedule, "tile_m");
  s.tileN = number(schedule, "tile_n");
  s.tileK = number(schedule, "tile_k");
  s.stages = number(schedule, "stages");
  s.threads = number(schedule, "threads");
  s.warpsM = number(schedule, "warps_m");
  s.warpsN = number(schedule, "warps_n");
  s.warpsK = number(schedule, "warps_k");
  s.once = flag(schedule, "once");
  if (s.streams())
    s.blocksPerSm = number(schedule, "blocks_per_sm");
  s.startApart = number(schedule, "start_apart");
  if (auto t = schedule.getAs<DictionaryAttr>("wgmma")) {
    auto small = [&](StringRef name) { return static_cast<int>(number(t, name)); };
    s.turned = flag(t, "turned");
    s.wgmma = {.tileN = static_cast<int>(s.turned ? s.tileM : s.tileN),
               .consumers = small("consumers"),
               .blocks = small("blocks"),
               .alternate = flag(t, "alternate"),
               .stages = static_cast<int>(s.stages),
               .cluster = small("cluster"),
               .groupRows = small("group_rows"),
               .buffers = small("buffers"),
               .unroll = small("unroll"),
               .blocksPerSm = small("blocks_per_sm"),
               .moreRegisters = flag(t, "more_registers"),
               .keeps = flag(t, "keeps")};
  }
  return s;
}

/// For pointers that are not aligned: the same kernel, which adds in the same order, so that alignment does not show in the
/// results; behind tensor memory copies, which only read what is aligned, another one.
Result<int64_t> Driver::emitGemm(ModuleOp kernels, DictionaryAttr schedule, Graph body, PackageLaunch &launch) {
  emit::GemmKernel kernel;
  kernel.name = launch.kernel;
  GemmSchedule &s = kernel.schedule;
  s = gemmSchedule(schedule);
  s.shape = {number(schedule, "batch"), number(schedule, "m"), number(schedule, "n"), number(schedule, "k")};
  s.products = number(schedule, "products");
  kernel.lanes = number(schedule, "lanes");
  kernel.body = std::move(body);
  kernel.early = early;
  if (s.kernel == "wgmma" || s.streams()) {
    kernel.lanes = s.turned ? 1 : wgmmaLanes(s.shape.n);
    if (s.streams())
      RL_TRY(emit::emitGemmStream(kernels, kernel, code, target.machine, launch));
    else
      RL_TRY(emit::emitGemmWgmma(kernels, kernel, code, target.machine, launch));
    GemmSchedule other = gemmSchedule(schedule.getAs<DictionaryAttr>("fallback"));
    other.shape = s.shape;
    other.products = s.products;
    s = std::move(other);
    kernel.lanes = number(schedule, "lanes");
  } else {
    RL_ASSIGN(emit::GemmLaunch made, emit::emitGemm(kernels, kernel, code, /*alignedTo16=*/target.cuda));
    launch.blocks = made.blocks;
    launch.block.x = static_cast<uint32_t>(s.threads);
    launch.sharedBytes = static_cast<uint32_t>(made.sharedBytes);
    if (!target.cuda)
      return 0;
  }
  kernel.name += "_unaligned";
  launch.unalignedKernel = kernel.name;
  RL_ASSIGN(emit::GemmLaunch unaligned, emit::emitGemm(kernels, kernel, code, false));
  launch.unalignedBlock.x = static_cast<uint32_t>(s.threads);
  launch.unalignedSharedBytes = static_cast<uint32_t>(unaligned.sharedBytes);
  return unaligned.blocks;
}

/// How a kernel stands to the ones before and behind it in what a part launches.
static emit::EarlyLaunch earlyLaunchOf(const Part &part, ridge::GroupOp g, const Graph &body) {
  emit::EarlyLaunch out;
  out.waits = flag(g.getScheduleAttr(), "early");
  for (auto at = std::find(part.groups.begin(), part.groups.end(), g) + 1; at != part.groups.end(); ++at) {
    ridge::GroupOp behind = *at;
    if (number(behind.getScheduleAttr(), "elements") == 0 || flag(behind.getScheduleAttr(), "joins"))
      continue; // not launched, or with this one
    out.triggers = flag(behind.getScheduleAttr(), "early");
    break;
  }
  for (auto [v, input] : llvm::zip(g.getOperands(), body.inputs)) {
    out.written.push_back(v.getDefiningOp<ridge::GroupOp>() != nullptr);
    out.bytes.push_back(body.type(input).bytes());
  }
  return out;
}

Status Driver::emitKernels(ModuleOp kernels, const Part &part) {
  Package &p = out.package;
  std::vector<PackageLaunch> &launches = part.atBind ? p.bindLaunches : p.launches;
  size_t count = 0;
  std::vector<std::pair<double, PackageLaunch>> together; // that become one launch, with how long each takes
  int64_t mostPerSm = 0;                                  // blocks of that launch; 0: any
  auto launchTogether = [&] {
    if (together.empty())
      return;
    if (together.size() == 1) {
      launches.push_back(std::move(together[0].second));
    } else {
      const std::string name = together[0].second.kernel;
      // Those that take longest begin first.
      llvm::stable_sort(together, [](const auto &a, const auto &b) { return a.first > b.first; });
      std::vector<PackageLaunch> all;
      for (auto &[seconds, launch] : together)
        all.push_back(std::move(launch));
      launches.push_back(emit::mergeLaunches(kernels, name, all));
    }
    // One block more would need more shared memory than an SM has.
    if (mostPerSm)
      launches.back().sharedBytes =
          std::max(launches.back().sharedBytes,
                   static_cast<uint32_t>(target.machine.sharedPerSm / static_cast<double>(mostPerSm + 1)) / 16 * 16);
    together.clear();
  };
  for (ridge::GroupOp g : part.groups) {
    Graph body = ridge::exportBlock(g.getBody().front(), graph.strict).graph;
    PackageLaunch launch;
    launch.kernel = kernelName(graph.name, part.atBind, count++);
    if (body.type(body.outputs[0]).elements() == 0)
      continue;
    if (std::optional<TunableKernel> tunable = tunableKernel(g); tunable && !part.atBind) {
      tunable->kernel = launch.kernel;
      out.tunable.push_back(*std::move(tunable));
    }
    if (options.only && *options.only != launch.kernel)
      continue;
    for (mlir::Value v : g.getOperands())
      launch.args.push_back(buffers.lookup(v));
    for (mlir::Value v : g.getResults())
      launch.args.push_back(buffers.lookup(v));
    std::set<std::string> told; // a node of the file may be several here
    for (const Node &n : body.nodes) {
      if (!told.insert(body.values[n.outputs[0]].name).second)
        continue;
      if (launch.label.size() > 160) {
        launch.label += " ...";
        break;
      }
      launch.label += (launch.label.empty() ? "" : " ") + body.values[n.outputs[0]].name;
    }
    early = earlyLaunchOf(part, g, body);
    launch.early = early.waits;
    auto emit = g.getKind() == "row"         ? &Driver::emitRow
                : g.getKind() == "gemm"      ? &Driver::emitGemm
                : g.getKind() == "transpose" ? &Driver::emitTranspose
                                             : &Driver::emitPointwise;
    RL_ASSIGN(int64_t unalignedBlocks, (this->*emit)(kernels, g.getScheduleAttr(), std::move(body), launch));
    if (early.waits || early.triggers) {
      RL_TRY(emit::applyEarlyLaunch(kernels, launch.kernel, early, launch.blocks));
      if (!launch.unalignedKernel.empty())
        RL_TRY(emit::applyEarlyLaunch(kernels, launch.unalignedKernel, early, unalignedBlocks));
    }
    if (target.cuda) {
      if (int64_t most = std::max(launch.blocks, unalignedBlocks); most > INT32_MAX)
        return unsupported({}, "kernel " + launch.kernel + " needs " + std::to_string(most) +
                                   " blocks, a launch takes 2^31 - 1");
      launch.grid.x = static_cast<uint32_t>(launch.blocks);
      if (!launch.unalignedKernel.empty()) {
        launch.align = 16;
        launch.unalignedGrid.x = static_cast<uint32_t>(unalignedBlocks);
        if (g.getKind() != "gemm")
          launch.unalignedBlock = launch.block;
      }
    }
    if (!flag(g.getScheduleAttr(), "joins"))
      launchTogether();
    mostPerSm = number(g.getScheduleAttr(), "most_per_sm");
    together.emplace_back(g.getScheduleAttr().getAs<FloatAttr>("seconds").getValueAsDouble(), std::move(launch));
  }
  launchTogether();
  // What is returned as it came in, or returned twice, is copied.
  func::FuncOp f = part.f;
  Operation *ret = f.getBody().front().getTerminator();
  std::vector<uint32_t> results = layOutResults(part);
  for (auto [i, v] : llvm::enumerate(ret->getOperands())) {
    uint32_t from = buffers.lookup(v), to = results[i];
    if (from == to || p.buffers[to].bytes == 0)
      continue;
    PackageLaunch copy;
    copy.kind = PackageLaunch::Copy;
    copy.args = {to, from};
    copy.label = part.graph.values[part.graph.outputs[i]].name;
    launches.push_back(std::move(copy));
  }
  return {};
}

Status Driver::lower(ModuleOp kernels) {
  Package &p = out.package;
  keep("kernel", {}, textOf(kernels));
  if (kernels.getBody()->empty())
    return {};
  RL_ASSIGN(LoweredCode lowered, lowerKernels(kernels, code, options.keepStages));
  if (options.keepStages)
    keep("llvm", {}, std::move(lowered.llvmIr));
  if (target.cuda) {
    keep("ptx", {}, lowered.code);
    p.ptx = std::move(lowered.code);
  } else {
    p.object = std::move(lowered.code);
  }
  watch.lap("lower");
  return {};
}

/// Imports a part and decides its kernels.
Status Driver::plan(Part &part) {
  part.module = ridge::importGraph(context, part.graph);
  keep("graph", {}, options.keepStages ? textOf(*part.module) : std::string());
  watch.lap("import");
  RL_TRY(runPipeline(*part.module, target.machine, &options.tiles, /*atRun=*/target.cuda && !part.atBind));
  keep("fused", {}, options.keepStages ? textOf(*part.module) : std::string());
  watch.lap("passes");
  part.f = *part.module->getOps<func::FuncOp>().begin();
  layOut(part);
  return {};
}

Result<Compiled> Driver::run() {
  code.nvptx = target.cuda;
  code.cpu = target.arch;
  if (target.cuda) {
    code.sm = std::atoi(target.arch.c_str() + 3);
    // sm_89 has f8 conversions, but only from PTX 8.1 on.
    if (code.sm == 89)
      code.ptxVersion = 81;
  }
  context.loadAllAvailableDialects();
  Package &p = out.package;
  p.name = graph.name;
  p.version = RIDGELINE_VERSION;
  p.target = target.cuda ? "cuda" : "cpu";
  p.arch = target.arch;
  firstDerived = declare(graph, split.atBind, p);
  Part atBind{split.atBind, true, {}, {}, {}}, atRun{split.atRun, false, {}, {}, {}};
  OwningOpRef<ModuleOp> kernels = ModuleOp::create(UnknownLoc::get(&context));
  RL_TRY(plan(atRun));
  RL_TRY(emitKernels(*kernels, atRun));
  if (!split.atBind.outputs.empty()) {
    RL_TRY(plan(atBind));
    RL_TRY(emitKernels(*kernels, atBind));
  }
  emit::shareEqualKernels(*kernels, p);
  RL_TRY(checkChoices(options.tiles, out.tunable));
  watch.lap("emit");
  RL_TRY(lower(*kernels));
  RL_ASSIGN(p.explain, writeRecord(atRun.f, atBind.f, precision, out.package, target.machine));
  out.graph = graph;
  watch.lap("record");
  return std::move(out);
}

} // namespace

Result<Compiled> compile(const Graph &graph, const CompileTarget &target, const CompileOptions &options) {
  if (graph.gradient)
    return unsupported("/gradient", "gradient requests are not compiled by this version");
  PrecisionAssignment assigned;
  if (asksForPrecision(graph)) {
    RL_ASSIGN(assigned, assignPrecision(graph, target.machine));
  } else {
    assigned.graph = graph;
  }
  return Driver(assigned, target, options).run();
}

std::vector<std::string> compileTargetNames() {
  return {"cpu", "sm_80", "sm_89", "sm_90a", "a100", "h100", "h200", "rtx4090"};
}

Result<CompileTarget> findCompileTarget(std::string_view name) {
  std::vector<std::string> names = compileTargetNames();
  auto machine = cost::findTarget(name);
  if (std::find(names.begin(), names.end(), name) == names.end() || !machine) {
    std::string all;
    for (const std::string &n : names)
      all += (all.empty() ? "" : ", ") + n;
    return usageError("unknown target '" + std::string(name) + "'; known: " + all);
  }
  CompileTarget out;
  out.machine = *std::move(machine);
  out.cuda = name != "cpu";
  out.arch = out.cuda ? out.machine.arch : "x86-64-v3";
  // A name that says an architecture means it exactly.
  if (name.starts_with("sm_"))
    out.arch = name;
  return out;
}

} // namespace rl
