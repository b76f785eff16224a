// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "compiler/emit/Merge.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

#include <algorithm>

using namespace mlir;

namespace rl::emit {

using mlir::Value; // not the graph's

namespace {

struct Part {
  std::string kernel;
  int64_t blocks = 0;
  unsigned pointers = 0; ///< behind which are tensor maps
};

/// A part's body at the builder's place, as its block `block` (i32).
void inlinePart(OpBuilder &b, Block &body, IRMapping &arguments, Value block) {
  SmallVector<Operation *> made;
  for (Operation &op : body.without_terminator())
    made.push_back(b.clone(op, arguments));
  for (Operation *top : made)
    top->walk([&](Operation *op) {
      OpBuilder at(op);
      Value id;
      if (isa<NVVM::BlockIdXOp>(op))
        id = block;
      else if (isa<gpu::BlockIdOp>(op))
        id = arith::IndexCastUIOp::create(at, op->getLoc(), at.getIndexType(), block);
      else if (isa<gpu::ThreadIdOp>(op))
        id = arith::IndexCastUIOp::create(at, op->getLoc(), at.getIndexType(),
                                          NVVM::ThreadIdXOp::create(at, op->getLoc(), at.getI32Type()));
      if (!id)
        return;
      op->getResult(0).replaceAllUsesWith(id);
      op->erase();
    });
}

/// One function that is all parts.
LLVM::LLVMFuncOp mergeFunctions(ModuleOp module, const std::vector<Part> &parts, uint32_t threads,
                                const std::string &name) {
  MLIRContext *ctx = module.getContext();
  OpBuilder b(ctx);
  Location loc = b.getUnknownLoc();
  std::vector<FunctionOpInterface> functions;
  SmallVector<Type> types, maps;
  SmallVector<DictionaryAttr> mapAttributes;
  int64_t least = 0; // blocks an SM
  for (const Part &p : parts) {
    auto f = cast<FunctionOpInterface>(module.lookupSymbol(p.kernel));
    functions.push_back(f);
    ArrayRef<Type> all = f.getArgumentTypes();
    types.append(all.begin(), all.begin() + p.pointers);
    for (unsigned a = p.pointers; a < all.size(); ++a) {
      maps.push_back(all[a]);
      mapAttributes.push_back(f.getArgAttrDict(a));
    }
    if (auto atLeast = f->getAttrOfType<IntegerAttr>(NVVM::NVVMDialect::getMinctasmAttrName()))
      least = least ? std::min(least, atLeast.getInt()) : atLeast.getInt();
  }
  const auto pointers = static_cast<unsigned>(types.size());
  types.append(maps);
  b.setInsertionPoint(functions[0]);
  auto merged =
      LLVM::LLVMFuncOp::create(b, loc, name, LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(ctx), types));
  merged->setAttr(NVVM::NVVMDialect::getKernelFuncAttrName(), b.getUnitAttr());
  merged->setAttr(NVVM::NVVMDialect::getReqntidAttrName(), b.getDenseI32ArrayAttr({static_cast<int32_t>(threads)}));
  // Left to itself ptxas spills some registers for more blocks.
  merged->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(),
                  b.getI32IntegerAttr(static_cast<int32_t>(std::max<int64_t>(least, 1))));
  for (auto [m, attributes] : llvm::enumerate(mapAttributes))
    merged.setArgAttrs(pointers + static_cast<unsigned>(m), attributes);
  Block *entry = merged.addEntryBlock(b);
  b.setInsertionPointToStart(entry);
  Type i32 = b.getI32Type();
  Value block = NVVM::BlockIdXOp::create(b, loc, i32);
  int64_t firstBlock = 0;
  unsigned pointer = 0, map = pointers;
  for (auto [at, part] : llvm::enumerate(parts)) {
    auto constant = [&](int64_t v) { return arith::ConstantIntOp::create(b, loc, i32, v).getResult(); };
    Block &body = functions[at].getFunctionBody().front();
    IRMapping arguments;
    for (auto [a, argument] : llvm::enumerate(body.getArguments()))
      arguments.map(argument, entry->getArgument(a < part.pointers ? pointer++ : map++));
    Value own = firstBlock ? arith::SubIOp::create(b, loc, block, constant(firstBlock)).getResult() : block;
    firstBlock += part.blocks;
    if (at + 1 == parts.size()) {
      inlinePart(b, body, arguments, own);
      break;
    }
    Value isOwn = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, block, constant(firstBlock));
    auto branch = scf::IfOp::create(b, loc, isOwn, /*withElseRegion=*/true);
    b.setInsertionPoint(branch.thenBlock()->getTerminator());
    inlinePart(b, body, arguments, own);
    b.setInsertionPoint(branch.elseBlock()->getTerminator());
  }
  b.setInsertionPointToEnd(entry);
  LLVM::ReturnOp::create(b, loc, ValueRange{});
  return merged;
}

} // namespace

PackageLaunch mergeLaunches(ModuleOp module, const std::string &name, const std::vector<PackageLaunch> &launches) {
  std::vector<Part> parts, unaligned;
  bool anyUnaligned = false;
  PackageLaunch out = launches[0];
  out.kernel = name;
  out.args.clear();
  out.tensorMaps.clear();
  out.label.clear();
  out.blocks = out.grid.x = out.unalignedGrid.x = 0;
  for (const PackageLaunch &l : launches) {
    // A kernel that has no other takes pointers of any alignment.
    const bool has = !l.unalignedKernel.empty();
    anyUnaligned |= has;
    const auto pointers = static_cast<unsigned>(l.args.size());
    parts.push_back({l.kernel, l.grid.x, pointers});
    unaligned.push_back({has ? l.unalignedKernel : l.kernel, has ? l.unalignedGrid.x : l.grid.x, pointers});
    for (PackageTensorMap m : l.tensorMaps) {
      m.arg += static_cast<uint32_t>(out.args.size());
      out.tensorMaps.push_back(std::move(m));
    }
    out.args.insert(out.args.end(), l.args.begin(), l.args.end());
    out.blocks += l.blocks;
    out.grid.x += l.grid.x;
    out.align = std::max(out.align, l.align);
    out.sharedBytes = std::max(out.sharedBytes, l.sharedBytes);
    out.unalignedGrid.x += static_cast<uint32_t>(unaligned.back().blocks);
    out.unalignedBlock = has ? l.unalignedBlock : l.block;
    out.unalignedSharedBytes = std::max(out.unalignedSharedBytes, has ? l.unalignedSharedBytes : l.sharedBytes);
    out.label += (out.label.empty() ? "" : ", ") + l.label;
  }
  LLVM::LLVMFuncOp made = mergeFunctions(module, parts, out.block.x, name + "_merged"), other;
  if (anyUnaligned) {
    out.unalignedKernel = name + "_unaligned";
    other = mergeFunctions(module, unaligned, out.unalignedBlock.x, name + "_merged_unaligned");
  } else {
    out.unalignedGrid = out.unalignedBlock = {};
    out.unalignedSharedBytes = 0;
  }
  for (const std::vector<Part> *list : {&parts, &unaligned})
    for (const Part &p : *list)
      if (Operation *f = module.lookupSymbol(p.kernel))
        f->erase();
  made.setSymName(name);
  if (other)
    other.setSymName(out.unalignedKernel);
  return out;
}

} // namespace rl::emit
