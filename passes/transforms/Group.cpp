// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Writes the planner's decision into the IR: each kernel a `ridge.group`, what it recomputes cloned into it, its figures and
// reasons as attributes. Nothing is decided here.
#include "ir/dialect/Export.h"
#include "ir/dialect/OpModel.h"
#include "ir/dialect/Ridge.h"
#include "passes/plan/RowPlanner.h"
#include "passes/transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Pass/Pass.h"

#include <algorithm>
#include <map>
#include <set>

using namespace mlir;
using namespace mlir::ridge;

namespace {

class Grouper {
public:
  Grouper(func::FuncOp f, const ExportedGraph &exported, const rl::cost::TargetDesc &machine)
      : f(f), exported(exported), machine(machine), b(f.getContext()) {}

  void apply(const rl::Plan &plan) {
    Block &block = f.getBody().front();
    f->setAttr(kUnfusedBytesAttr, b.getI64IntegerAttr(plan.unfusedBytes));
    b.setInsertionPoint(block.getTerminator());
    std::map<rl::NodeId, int> kernels; // that compute a node
    for (const rl::PlannedGroup &g : plan.groups)
      for (rl::NodeId n : g.nodes)
        ++kernels[n];
    // A value that leaves the plan alone is nobody's to disagree with.
    std::set<rl::ValueId> loaded;
    for (const rl::PlannedGroup &g : plan.groups)
      loaded.insert(g.inputs.begin(), g.inputs.end());
    for (const rl::PlannedGroup &g : plan.groups)
      for (rl::ValueId v : g.outputs)
        if (loaded.contains(v) || kernels[exported.graph.values[v].node] > 1)
          markRounded(v);
    for (const rl::PlannedGroup &g : plan.groups)
      form(g);
    for (OpOperand &o : block.getTerminator()->getOpOperands())
      if (Value v = made.lookup(o.get()))
        o.set(v);
    // What is left has been cloned into the groups that need it.
    SmallVector<Operation *> left;
    for (Operation &op : block.without_terminator())
      if (!isa<GroupOp>(op))
        left.push_back(&op);
    for (Operation *op : llvm::reverse(left))
      if (op->use_empty())
        op->erase();
  }

private:
  /// The intensity, in flops a byte, at which the unit that most of the arithmetic runs on takes as long as memory.
  double ridgePoint(const rl::cost::WorkEstimate &work) const {
    const auto &tensor = work.tensorFlops;
    const auto most = std::max_element(tensor.begin(), tensor.end());
    const bool onTensorCores = 2 * *most > work.flops();
    return machine.ridgePoint(onTensorCores ? static_cast<rl::DType>(most - tensor.begin()) : rl::DType::F32);
  }

  /// A value that is stored, and those whose elements it has.
  void markRounded(rl::ValueId v) {
    const rl::DType type = exported.graph.type(v).dtype;
    Operation *op = exported.values[v].getDefiningOp();
    if (!op || (type != rl::DType::BF16 && type != rl::DType::F16) || op->hasAttr(kRoundedAttr))
      return;
    op->setAttr(kRoundedAttr, b.getUnitAttr());
    const rl::Node &node = exported.graph.nodes[exported.graph.values[v].node];
    if (rl::opInfo(node.op).cls == rl::OpClass::Shape)
      for (const rl::Operand &o : node.inputs)
        if (!o.isLiteral())
          markRounded(o.value);
  }

  Value stored(rl::ValueId v) {
    Value original = exported.values[v];
    Value group = made.lookup(original);
    return group ? group : original;
  }

  void form(const rl::PlannedGroup &g) {
    SmallVector<Value> inputs;
    SmallVector<Type> outputs;
    for (rl::ValueId v : g.inputs)
      inputs.push_back(stored(v));
    for (rl::ValueId v : g.outputs)
      outputs.push_back(exported.values[v].getType());
    auto group = GroupOp::create(b, f.getLoc(), outputs, inputs, g.kind);
    auto i64 = [&](int64_t v) { return b.getI64IntegerAttr(v); };
    auto f64 = [&](double v) { return b.getF64FloatAttr(v); };
    auto name = [&](StringRef n, Attribute a) { return b.getNamedAttr(n, a); };
    SmallVector<NamedAttribute> schedule = {
        name("lanes", i64(g.lanes)),
        name("threads", i64(g.threads)),
        name("unroll", i64(g.unroll)),
        name("elements", i64(g.elements)),
        name("split_cat", b.getBoolAttr(g.splitCat)),
        name("bytes_read", i64(static_cast<int64_t>(g.work.bytesRead))),
        name("bytes_written", i64(static_cast<int64_t>(g.work.bytesWritten))),
        name("bytes_unfused", i64(g.unfusedBytes)),
        name("flops", f64(g.work.flops())),
        name("ridge_point", f64(ridgePoint(g.work))),
        name("seconds", f64(g.time.total)),
        name("compute_seconds", f64(g.time.compute())),
        name("memory_seconds", f64(g.time.memory)),
    };
    if (g.kind == "row")
      schedule.append({
          name("width", i64(g.width)),
          name("rows", i64(g.rows)),
          name("rows_per_block", i64(g.rowsPerBlock)),
          name("resident", b.getBoolAttr(g.resident)),
          name("keeps", b.getBoolAttr(g.keeps)),
          name("across", b.getBoolAttr(g.across)),
          name("online", b.getBoolAttr(g.online)),
          name("factored", b.getBoolAttr(g.factored)),
          name("parts", i64(g.parts)),
          name("in_turn", b.getBoolAttr(g.inTurn)),
          name("stages", i64(g.stages)),
          name("cluster", i64(g.cluster)),
          name("staged", b.getBoolAttr(g.staged)),
          name("stream_bytes", i64(g.streamBytes)),
      });
    if (g.kind == "transpose")
      schedule.append(
          {name("width", i64(g.width)), name("rows", i64(g.rows)), name("stream_bytes", i64(g.streamBytes))});
    auto tiles = [&](const rl::GemmSchedule &s) {
      return SmallVector<NamedAttribute>{
          name("kernel", b.getStringAttr(s.kernel)),
          name("tile_m", i64(s.tileM)),
          name("tile_n", i64(s.tileN)),
          name("tile_k", i64(s.tileK)),
          name("stages", i64(s.stages)),
          name("warps_m", i64(s.warpsM)),
          name("warps_n", i64(s.warpsN)),
          name("warps_k", i64(s.warpsK)),
          name("once", b.getBoolAttr(s.once)),
      };
    };
    if (g.gemm) {
      schedule.append(tiles(*g.gemm));
      schedule.append({
          name("batch", i64(g.gemm->shape.batch)),
          name("m", i64(g.gemm->shape.m)),
          name("n", i64(g.gemm->shape.n)),
          name("k", i64(g.gemm->shape.k)),
          name("products", i64(g.gemm->products)),
      });
    }
    if (g.gemm && g.gemm->streams())
      schedule.push_back(name("blocks_per_sm", i64(g.gemm->blocksPerSm)));
    if (g.gemm && g.gemm->startApart)
      schedule.push_back(name("start_apart", i64(g.gemm->startApart)));
    if (g.gemm && g.gemm->kernel == "wgmma") {
      const rl::cost::GemmTile &t = g.gemm->wgmma;
      schedule.push_back(name("wgmma", b.getDictionaryAttr({
                                           name("consumers", i64(t.consumers)),
                                           name("blocks", i64(t.blocks)),
                                           name("alternate", b.getBoolAttr(t.alternate)),
                                           name("cluster", i64(t.cluster)),
                                           name("group_rows", i64(t.groupRows)),
                                           name("buffers", i64(t.buffers)),
                                           name("unroll", i64(t.unroll)),
                                           name("blocks_per_sm", i64(t.blocksPerSm)),
                                           name("more_registers", b.getBoolAttr(t.moreRegisters)),
                                           name("keeps", b.getBoolAttr(t.keeps)),
                                           name("turned", b.getBoolAttr(g.gemm->turned)),
                                       })));
    }
    if (g.fallback) {
      SmallVector<NamedAttribute> other = tiles(*g.fallback);
      other.push_back(name("threads", i64(g.fallback->threads)));
      schedule.push_back(name("fallback", b.getDictionaryAttr(other)));
    }
    if (g.tiles.size() > 1) {
      SmallVector<Attribute> names;
      SmallVector<double> predicted;
      for (const rl::TileCandidate &c : g.tiles) {
        names.push_back(b.getStringAttr(c.str()));
        predicted.push_back(c.seconds);
      }
      schedule.push_back(name("candidates", b.getDictionaryAttr({
                                                name("key", b.getStringAttr(g.key)),
                                                name("tiles", b.getArrayAttr(names)),
                                                name("seconds", b.getF64ArrayAttr(predicted)),
                                                name("taken", i64(static_cast<int64_t>(g.tile))),
                                                name("measured_us", b.getF64ArrayAttr(g.measured)),
                                            })));
    }
    group.setScheduleAttr(b.getDictionaryAttr(schedule));
    SmallVector<StringRef> why(g.why.begin(), g.why.end());
    group.setWhyAttr(b.getStrArrayAttr(why));

    OpBuilder::InsertionGuard guard(b);
    Block *body = &group.getBody().front();
    b.setInsertionPointToStart(body);
    IRMapping map;
    for (auto [v, arg] : llvm::zip(g.inputs, body->getArguments()))
      map.map(exported.values[v], arg);
    for (rl::NodeId n : g.nodes) {
      Operation *op = exported.values[exported.graph.nodes[n].outputs[0]].getDefiningOp();
      for (Value operand : op->getOperands()) {
        if (map.contains(operand))
          continue;
        if (auto literal = operand.getDefiningOp<LiteralOp>())
          b.clone(*literal, map);
        else // a piece of a cat or a pad of which no element is read: its shape is all that counts
          map.map(operand, FullOp::create(b, f.getLoc(), operand.getType(),
                                          toAttribute(f.getContext(), rl::Scalar{rl::Scalar::Int, 0, 0})));
      }
      b.clone(*op, map);
    }
    SmallVector<Value> yields;
    for (rl::ValueId v : g.outputs)
      yields.push_back(map.lookup(exported.values[v]));
    YieldOp::create(b, f.getLoc(), yields);
    for (auto [v, result] : llvm::zip(g.outputs, group.getResults()))
      made[exported.values[v]] = result;
  }

  func::FuncOp f;
  const ExportedGraph &exported;
  const rl::cost::TargetDesc &machine;
  OpBuilder b;
  llvm::DenseMap<Value, Value> made;
};

struct GroupPass : PassWrapper<GroupPass, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(GroupPass)
  GroupPass() = default;
  GroupPass(const GroupPass &other)
      : PassWrapper(other), target(other.target), error(other.error), choices(other.choices) {}
  GroupPass(const rl::cost::TargetDesc &target, rl::Error *error, const rl::TileChoices *choices)
      : target(&target), error(error), choices(choices) {}
  StringRef getArgument() const override { return "ridge-group"; }
  StringRef getDescription() const override { return "Form the groups that become kernels"; }
  Option<std::string> targetName{*this, "target", llvm::cl::desc("the machine to plan for: h200, a100, cpu ..."),
                                 llvm::cl::init("h200")};

  void runOnOperation() override {
    func::FuncOp f = getOperation();
    if (f.isExternal())
      return;
    if (!f.getBody().hasOneBlock()) {
      f.emitError("a graph is one block");
      return signalPassFailure();
    }
    // What is grouped stays as it is; a function that is grouped in part was not made by this pass.
    bool grouped = false, plain = false;
    for (Operation &op : f.getBody().front().without_terminator()) {
      bool group = isa<GroupOp>(op);
      if (!group && !isa<LiteralOp>(op) && !opKind(&op)) {
        op.emitOpError("is not an op of a graph");
        return signalPassFailure();
      }
      grouped |= group;
      plain |= !group;
    }
    if (grouped) {
      if (plain) {
        f.emitError("has groups beside ops that are in none");
        signalPassFailure();
      }
      return;
    }
    auto machine = target ? rl::Result<rl::cost::TargetDesc>(*target) : rl::cost::findTarget(targetName);
    if (!machine) {
      f.emitError(machine.error().message);
      return signalPassFailure();
    }
    ExportedGraph exported = exportBlock(f.getBody().front(), f->hasAttr(kStrictAttr));
    auto plan = rl::planKernels(exported.graph, *machine, choices ? *choices : rl::TileChoices());
    if (!plan) {
      if (error)
        *error = plan.error();
      else
        f.emitError(plan.error().str());
      return signalPassFailure();
    }
    Grouper(f, exported, *machine).apply(*plan);
  }

  const rl::cost::TargetDesc *target = nullptr;
  rl::Error *error = nullptr;
  const rl::TileChoices *choices = nullptr;
};

} // namespace

std::unique_ptr<Pass> rl::createGroupPass(const cost::TargetDesc &target, Error *error, const TileChoices *choices) {
  return std::make_unique<GroupPass>(target, error, choices);
}

void rl::registerRidgePasses() {
  PassRegistration<GroupPass>();
  registerShareLaunchPass();
  registerEarlyLaunchPass();
  registerPass([] { return rl::createEmptyTensorsPass(); });
  registerPass([] { return rl::createProductsPass(); });
  registerPass([] { return rl::createDecomposePass(); });
  registerPass([] { return rl::createDecomposeLossPass(); });
  registerPass([] { return rl::createDecomposeQuantPass(); });
  registerPass([] { return rl::createSliceProductsPass(); });
  registerPass([] { return rl::createSplitCatsPass(254); });
  registerPass([] { return rl::createPinsPass(); });
}
