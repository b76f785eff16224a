// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/emit/EqualKernels.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace rl::emit {

/// All that makes up the function but its name.
static std::string textOf(func::FuncOp f) {
  std::string out;
  llvm::raw_string_ostream text(out);
  f.print(text, OpPrintingFlags().useLocalScope());
  const std::string name = ("@" + f.getSymName()).str();
  if (size_t at = out.find(name); at != std::string::npos)
    out.erase(at, name.size());
  return out;
}

void shareEqualKernels(ModuleOp kernels, Package &package) {
  llvm::StringMap<std::string> firstOf, shared; // by text; by name
  SmallVector<func::FuncOp> left;
  auto share = [&](std::string &name) {
    if (name.empty())
      return;
    auto [it, fresh] = shared.try_emplace(name, name);
    auto f = kernels.lookupSymbol<func::FuncOp>(name);
    if (fresh && f) {
      auto [first, isFirst] = firstOf.try_emplace(textOf(f), name);
      it->second = first->second;
      if (!isFirst)
        left.push_back(f);
    }
    name = it->second;
  };
  for (std::vector<PackageLaunch> *list : {&package.launches, &package.bindLaunches})
    for (PackageLaunch &l : *list)
      if (l.kind == PackageLaunch::Kernel) {
        const std::string name = l.kernel;
        share(l.kernel);
        share(l.unalignedKernel);
        if (l.kernel != name)
          l.name = name;
      }
  for (func::FuncOp f : left)
    f.erase();
}

} // namespace rl::emit
