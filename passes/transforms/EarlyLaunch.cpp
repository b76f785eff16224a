// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ir/dialect/Ridge.h"
#include "passes/cost/Cost.h"
#include "passes/transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

#include <cmath>

using namespace mlir;

namespace {

/// A kernel that is launched early has `early = true` in its schedule, and the reason, either way, in its `why`.
struct EarlyLaunchPass : PassWrapper<EarlyLaunchPass, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(EarlyLaunchPass)
  EarlyLaunchPass() = default;
  EarlyLaunchPass(const EarlyLaunchPass &other) : PassWrapper(other), target(other.target) {}
  explicit EarlyLaunchPass(const rl::cost::TargetDesc &target) : target(&target) {}
  StringRef getArgument() const override { return "ridge-early-launch"; }
  StringRef getDescription() const override { return "Decide which kernels start while the one before them ends"; }
  Option<std::string> targetName{*this, "target", llvm::cl::desc("the machine to plan for: h200, a100, cpu ..."),
                                 llvm::cl::init("h200")};

  void runOnOperation() override {
    auto machine = target ? rl::Result<rl::cost::TargetDesc>(*target) : rl::cost::findTarget(targetName);
    if (!machine) {
      getOperation().emitError(machine.error().message);
      return signalPassFailure();
    }
    SmallVector<SmallVector<ridge::GroupOp>> launches;
    for (auto g : getOperation().getOps<ridge::GroupOp>()) {
      DictionaryAttr schedule = g.getScheduleAttr();
      if (number(schedule, "elements") == 0) // not launched
        continue;
      auto joins = schedule.getAs<BoolAttr>("joins");
      if (launches.empty() || !joins || !joins.getValue())
        launches.emplace_back();
      launches.back().push_back(g);
    }
    double longest = 0; // of the launches before
    for (auto [at, launch] : llvm::enumerate(launches)) {
      double seconds = machine->launchFirst; // of all its kernels
      for (ridge::GroupOp g : launch)
        seconds += g.getScheduleAttr().getAs<FloatAttr>("seconds").getValueAsDouble() - machine->launchFirst;
      if (at > 0)
        decide(launch, rl::cost::earlyLaunch(seconds, productBlocks(launch), longest, *machine));
      longest = std::max(longest, seconds);
    }
  }

  static int64_t number(DictionaryAttr d, StringRef name) {
    auto a = d ? d.getAs<IntegerAttr>(name) : IntegerAttr();
    return a ? a.getInt() : 0;
  }

  /// How many blocks multiply.
  static double productBlocks(ArrayRef<ridge::GroupOp> launch) {
    double blocks = 0;
    for (ridge::GroupOp g : launch) {
      DictionaryAttr s = g.getScheduleAttr();
      auto tiles = [&](StringRef extent, StringRef tile) {
        return std::ceil(static_cast<double>(number(s, extent)) /
                         static_cast<double>(std::max<int64_t>(1, number(s, tile))));
      };
      if (g.getKind() == "gemm")
        blocks += static_cast<double>(number(s, "batch")) * tiles("m", "tile_m") * tiles("n", "tile_n");
    }
    return blocks;
  }

  void decide(ArrayRef<ridge::GroupOp> launch, const rl::cost::EarlyLaunch &early) {
    if (early.why.empty())
      return;
    Builder b(&getContext());
    for (ridge::GroupOp g : launch) {
      NamedAttrList schedule(g.getScheduleAttr());
      if (early.is)
        schedule.set("early", b.getBoolAttr(true));
      if (early.blocksPerSm)
        schedule.set("most_per_sm", b.getI64IntegerAttr(early.blocksPerSm));
      g.setScheduleAttr(schedule.getDictionary(&getContext()));
    }
    addWhy(launch.front(), early.why);
  }

  void addWhy(ridge::GroupOp g, const std::vector<std::string> &reasons) {
    Builder b(&getContext());
    SmallVector<Attribute> why;
    if (ArrayAttr before = g.getWhyAttr())
      llvm::append_range(why, before);
    for (const std::string &reason : reasons)
      why.push_back(b.getStringAttr(reason));
    g.setWhyAttr(b.getArrayAttr(why));
  }

  const rl::cost::TargetDesc *target = nullptr;
};

} // namespace

std::unique_ptr<Pass> rl::createEarlyLaunchPass(const cost::TargetDesc &target) {
  return std::make_unique<EarlyLaunchPass>(target);
}

void rl::registerEarlyLaunchPass() { PassRegistration<EarlyLaunchPass>(); }
