// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/emit/EqualKernels.h"

#include "mlir/IR/SymbolTable.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;

namespace rl::emit {

/// The kernel and what it alone refers to: shared memory, tables, the kernels that it was merged from. Functions of numbers have names
/// that say what they are.
static SmallVector<Operation *> partsOf(ModuleOp kernels, Operation *kernel) {
  llvm::SetVector<Operation *> out;
  out.insert(kernel);
  for (size_t i = 0; i < out.size(); ++i)
    if (auto uses = SymbolTable::getSymbolUses(out[i]))
      for (const SymbolTable::SymbolUse &use : *uses)
        if (StringRef name = use.getSymbolRef().getRootReference().getValue(); !name.starts_with("ridge_"))
          if (Operation *part = kernels.lookupSymbol(name))
            out.insert(part);
  return out.takeVector();
}

/// All that makes up the parts but their names, for which their places stand.
static std::string textOf(ArrayRef<Operation *> parts) {
  llvm::StringMap<std::string> places;
  std::string printed, out;
  llvm::raw_string_ostream stream(printed);
  for (Operation *part : parts) {
    places[SymbolTable::getSymbolName(part).getValue()] = std::to_string(places.size());
    part->print(stream, OpPrintingFlags().useLocalScope());
  }
  const char *letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_$.";
  for (size_t at = 0; at < printed.size();) {
    const size_t sign = printed.find('@', at), begin = sign == std::string::npos ? printed.size() : sign + 1;
    const size_t end = std::min(printed.find_first_not_of(letters, begin), printed.size());
    out.append(printed, at, begin - at);
    auto place = places.find(StringRef(printed).slice(begin, end));
    out += place != places.end() ? place->second : printed.substr(begin, end - begin);
    at = end;
  }
  return out;
}

void shareEqualKernels(ModuleOp kernels, Package &package) {
  llvm::StringMap<std::string> firstOf, shared; // by text; by name
  SmallVector<SmallVector<Operation *>> left;
  auto share = [&](std::string &name) {
    if (name.empty())
      return;
    auto [it, fresh] = shared.try_emplace(name, name);
    Operation *kernel = kernels.lookupSymbol(name);
    if (fresh && kernel) {
      SmallVector<Operation *> parts = partsOf(kernels, kernel);
      auto [first, isFirst] = firstOf.try_emplace(textOf(parts), name);
      it->second = first->second;
      if (!isFirst)
        left.push_back(std::move(parts));
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
  llvm::SetVector<Operation *> unused;
  for (ArrayRef<Operation *> parts : left) {
    parts.front()->erase();
    unused.insert(parts.begin() + 1, parts.end());
  }
  for (bool again = !unused.empty(); again;) { // a part may have parts
    llvm::StringSet<> used;
    if (auto uses = SymbolTable::getSymbolUses(kernels))
      for (const SymbolTable::SymbolUse &use : *uses)
        used.insert(use.getSymbolRef().getRootReference().getValue());
    again = unused.remove_if([&](Operation *part) {
      if (used.contains(SymbolTable::getSymbolName(part).getValue()))
        return false;
      part->erase();
      return true;
    });
  }
}

} // namespace rl::emit
