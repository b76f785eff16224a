// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ir/dialect/Ridge.h"
#include "passes/cost/Target.h"
#include "passes/transforms/Passes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"

#include <cstdio>

using namespace mlir;

namespace {

/// A kernel that shares the launch of the one before it has `joins = true` in its schedule, and the reason in its `why`.
struct ShareLaunchPass : PassWrapper<ShareLaunchPass, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(ShareLaunchPass)
  ShareLaunchPass() = default;
  ShareLaunchPass(const ShareLaunchPass &other) : PassWrapper(other), target(other.target) {}
  explicit ShareLaunchPass(const rl::cost::TargetDesc &target) : target(&target) {}
  StringRef getArgument() const override { return "ridge-share-launch"; }
  StringRef getDescription() const override { return "Launch short kernels that need nothing of each other as one"; }
  Option<std::string> targetName{*this, "target", llvm::cl::desc("the machine to plan for: h200, a100, cpu ..."),
                                 llvm::cl::init("h200")};

  /// What two kernels of one launch have in common: threads of a block, for aligned pointers and for others.
  struct Form {
    int64_t threads = 0, unaligned = 0;
    bool operator==(const Form &) const = default;
  };

  static int64_t number(DictionaryAttr d, StringRef name) {
    auto a = d ? d.getAs<IntegerAttr>(name) : IntegerAttr();
    return a ? a.getInt() : 0;
  }

  /// Of a short kernel whose code asks for nothing but its block's number and dynamic shared memory.
  static std::optional<Form> formOf(ridge::GroupOp g, const rl::cost::TargetDesc &machine) {
    // Longer kernels fill the machine and gain nothing.
    constexpr double kShort = 20e-6;
    DictionaryAttr s = g.getScheduleAttr();
    if (number(s, "elements") == 0 || s.getAs<FloatAttr>("seconds").getValueAsDouble() - machine.launchFirst > kShort)
      return std::nullopt;
    Form out{number(s, "threads"), number(s, "threads")};
    if (g.getKind() == "pointwise")
      return out;
    auto kernel = s.getAs<StringAttr>("kernel");
    if (g.getKind() != "gemm" || (kernel != "thin" && kernel != "mma" && kernel != "stream" && kernel != "direct"))
      return std::nullopt;
    if (auto other = s.getAs<DictionaryAttr>("fallback"))
      out.unaligned = number(other, "threads");
    return out;
  }

  /// At most: pointers, and tensor maps, of 128 bytes behind a multiple of 64.
  static double parameterBytes(ridge::GroupOp g) {
    const int64_t maps = g.getKind() == "gemm" ? number(g.getScheduleAttr(), "products") + 1 : 0;
    return static_cast<double>(8 * (g.getNumOperands() + g.getNumResults()) + 128 * maps + 64);
  }

  void runOnOperation() override {
    auto machine = target ? rl::Result<rl::cost::TargetDesc>(*target) : rl::cost::findTarget(targetName);
    if (!machine) {
      getOperation().emitError(machine.error().message);
      return signalPassFailure();
    }
    if (!machine->gpu)
      return;
    SmallVector<Operation *> together; // the launch so far
    double parameters = 0;             // its bytes of these
    std::optional<Form> form;
    for (auto g : getOperation().getOps<ridge::GroupOp>()) {
      std::optional<Form> own = formOf(g, *machine);
      const bool needsOne =
          llvm::any_of(g.getOperands(), [&](Value v) { return llvm::is_contained(together, v.getDefiningOp()); });
      const double more = parameterBytes(g);
      if (own && form == own && !needsOne && together.front()->getAttr("kind") == g->getAttr("kind") &&
          parameters + more <= machine->maxParameterBytes) {
        join(g, together.size(), *machine);
        together.push_back(g);
        parameters += more;
        continue;
      }
      together.clear();
      form = own;
      parameters = more;
      if (own)
        together.push_back(g);
    }
  }

  void join(ridge::GroupOp g, size_t before, const rl::cost::TargetDesc &machine) {
    Builder b(&getContext());
    NamedAttrList schedule(g.getScheduleAttr());
    schedule.set("joins", b.getBoolAttr(true));
    g.setScheduleAttr(schedule.getDictionary(&getContext()));
    char text[200];
    std::snprintf(text, sizeof text,
                  "shares a launch with %s, of which it needs nothing: a launch and a trip to memory less, %.2g us",
                  before == 1 ? "the kernel before" : ("the " + std::to_string(before) + " kernels before").c_str(),
                  (machine.launchNext + machine.l2Latency) * 1e6);
    SmallVector<Attribute> why;
    if (ArrayAttr all = g.getWhyAttr())
      llvm::append_range(why, all);
    why.push_back(b.getStringAttr(text));
    g.setWhyAttr(b.getArrayAttr(why));
  }

  const rl::cost::TargetDesc *target = nullptr;
};

} // namespace

std::unique_ptr<Pass> rl::createShareLaunchPass(const cost::TargetDesc &target) {
  return std::make_unique<ShareLaunchPass>(target);
}

void rl::registerShareLaunchPass() { PassRegistration<ShareLaunchPass>(); }
