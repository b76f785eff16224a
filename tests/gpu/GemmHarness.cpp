// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "tests/gpu/GemmHarness.h"

#include "compiler/emit/WgmmaGemm.h"
#include "compiler/lower/MathCalls.h"
#include "compiler/lower/common/NarrowFloat.h"

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

using namespace mlir;

namespace rl::gemmtest {

using mlir::Value;

int64_t GemmCase::batches() const {
  int64_t n = 1;
  for (int64_t e : batch)
    n *= e;
  return n;
}

static std::vector<int64_t> shapeOf(const std::vector<int64_t> &batch, int64_t rows, int64_t columns) {
  std::vector<int64_t> s = batch;
  s.insert(s.end(), {rows, columns});
  return s;
}

std::vector<PackageTensor> inputsOf(const GemmCase &c) {
  std::vector<PackageTensor> out;
  DType left = c.left == GemmCase::FromF32 ? DType::F32 : c.type;
  out.push_back({"a", {left, c.aKMajor ? shapeOf(c.batch, c.m, c.k) : shapeOf(c.batch, c.k, c.m)}});
  std::vector<int64_t> ofB = c.bBroadcast ? std::vector<int64_t>() : c.batch;
  for (int p = 0; p < c.products(); ++p)
    out.push_back({"b" + std::to_string(p),
                   {c.weights.value_or(c.type), c.bKMajor ? shapeOf(ofB, c.n, c.k) : shapeOf(ofB, c.k, c.n)}});
  if (c.epilogue == GemmCase::BiasGelu || c.epilogue == GemmCase::BiasResidual)
    out.push_back({"bias", {c.narrow(), {c.n}}});
  if (c.epilogue == GemmCase::BiasResidual)
    out.push_back({"residual", {c.narrow(), shapeOf(c.batch, c.m, c.n)}});
  if (c.epilogue == GemmCase::RowScale || c.epilogue == GemmCase::OwnLoads)
    out.push_back({"scale", {DType::F32, shapeOf(c.batch, c.m, 1)}});
  if (c.epilogue == GemmCase::OwnLoads)
    out.push_back({"bias", {DType::F32, {c.n}}});
  if (c.scaleRows > 0) {
    out.push_back({"scale_a", {DType::F32, shapeOf(c.batch, c.m, c.scalesOfK())}});
    out.push_back({"scale_b", {DType::F32, shapeOf(ofB, c.scalesOfN(), c.scalesOfK())}});
  }
  if (c.left == GemmCase::Affine) {
    out.push_back({"left_scale", {DType::F32, shapeOf(c.batch, c.m, 1)}});
    out.push_back({"left_shift", {c.type, {c.k}}});
  }
  if (c.left == GemmCase::Gated)
    out.push_back({"left_gate", {c.type, shapeOf(c.batch, c.m, c.k)}});
  return out;
}

std::vector<PackageTensor> outputsOf(const GemmCase &c) {
  std::vector<PackageTensor> out{{"y", {c.output(), shapeOf(c.batch, c.m, c.n)}}};
  if (c.epilogue == GemmCase::TwoOutputs)
    out.push_back({"z", {DType::F32, shapeOf(c.batch, c.m, c.n)}});
  return out;
}

namespace {

const DialectRegistry &dialects() {
  static const DialectRegistry registry = [] {
    DialectRegistry r;
    r.insert<arith::ArithDialect, cf::ControlFlowDialect, func::FuncDialect, gpu::GPUDialect, LLVM::LLVMDialect,
             NVVM::NVVMDialect, math::MathDialect, scf::SCFDialect, ub::UBDialect, vector::VectorDialect>();
    registerBuiltinDialectTranslation(r);
    registerLLVMDialectTranslation(r);
    registerNVVMDialectTranslation(r);
    return r;
  }();
  return registry;
}

constexpr MathTarget kTarget{true, 90};

Type memoryType(OpBuilder &b, DType t) {
  return t == DType::F32 ? Type(b.getF32Type()) : Type(b.getIntegerType(static_cast<unsigned>(8 * dtypeSize(t))));
}

/// `lanes` elements from `index` on, as f32.
Value loadFloats(OpBuilder &b, Location loc, Value pointer, Value index, DType t, int lanes) {
  Type element = memoryType(b, t), type = lanes == 1 ? element : VectorType::get({lanes}, element);
  Value offset = arith::IndexCastOp::create(b, loc, b.getI64Type(), index);
  Value at = LLVM::GEPOp::create(b, loc, pointer.getType(), element, pointer, ValueRange{offset});
  Value v = LLVM::LoadOp::create(b, loc, type, at, static_cast<unsigned>(dtypeSize(t)) * static_cast<unsigned>(lanes));
  return t == DType::F32 ? v : widenFloat(b, loc, v, t, kTarget);
}

Value toMemory(OpBuilder &b, Location loc, Value v, DType t) {
  return t == DType::F32 || t == DType::I32 ? v : narrowFloat(b, loc, v, t, true, kTarget);
}

/// The pointers: a, b..., what the epilogue reads, outputs.
emit::GemmEpilogue epilogueOf(const GemmCase &c) {
  return [&c](OpBuilder &b, Location loc, const emit::GemmSite &s) -> Result<SmallVector<Value>> {
    Value x = s.products[0];
    auto bias = [&] {
      return c.narrow() == DType::F32 ? s.columns[0] : widenFloat(b, loc, s.columns[0], c.narrow(), kTarget);
    };
    auto plus = [&](Value p, Value q) { return arith::AddFOp::create(b, loc, p, q).getResult(); };
    auto times = [&](Value p, Value q) { return arith::MulFOp::create(b, loc, p, q).getResult(); };
    auto splat = [&](Value v) {
      return s.lanes == 1 ? v
                          : vector::BroadcastOp::create(b, loc, VectorType::get({s.lanes}, v.getType()), v).getResult();
    };
    SmallVector<Value> out;
    switch (c.epilogue) {
    case GemmCase::Plain:
    case GemmCase::ToF8: break;
    case GemmCase::BiasGelu: x = callMath(b, loc, MathFn::GeluTanh, plus(x, bias()), Rounding::BF16); break;
    case GemmCase::BiasResidual: x = plus(plus(x, bias()), widenFloat(b, loc, s.tiles[0], c.narrow(), kTarget)); break;
    case GemmCase::SwiGlu: x = times(callMath(b, loc, MathFn::Silu, x, Rounding::BF16), s.products[1]); break;
    case GemmCase::TwoOutputs:
      out.push_back(toMemory(b, loc, x, c.output()));
      out.push_back(times(x, splat(arith::ConstantOp::create(b, loc, b.getF32FloatAttr(2.0f)))));
      return out;
    case GemmCase::RowScale: x = times(x, splat(s.rows[0])); break;
    case GemmCase::OwnLoads: { // scale[batch, row] and bias[column], by the callback itself
      auto aux = static_cast<size_t>(1 + c.products());
      Value m = arith::ConstantIndexOp::create(b, loc, c.m);
      Value row = arith::AddIOp::create(b, loc, arith::MulIOp::create(b, loc, s.batch, m), s.row);
      x = times(x, splat(loadFloats(b, loc, s.pointers[aux], row, DType::F32, 1)));
      x = plus(x, loadFloats(b, loc, s.pointers[aux + 1], s.column, DType::F32, s.lanes));
      break;
    }
    }
    out.push_back(toMemory(b, loc, x, c.output()));
    return out;
  };
}

/// The same where a site's rows are the result's columns.
emit::GemmEpilogue turnedEpilogueOf(const GemmCase &c) {
  return [epilogue = epilogueOf(c)](OpBuilder &b, Location loc, const emit::GemmSite &s) {
    emit::GemmSite turned(s);
    std::swap(turned.row, turned.column);
    std::swap(turned.rows, turned.columns);
    return epilogue(b, loc, turned);
  };
}

/// The left operand where it is computed: from tiles, columns and rows of the site, as memory has it.
emit::GemmEpilogue leftOf(const GemmCase &c) {
  return [&c](OpBuilder &b, Location loc, const emit::GemmSite &s) -> Result<SmallVector<Value>> {
    auto wide = [&](Value v) { return widenFloat(b, loc, v, c.type, kTarget); };
    const Rounding rounding = c.type == DType::F16 ? Rounding::F16 : Rounding::BF16;
    Value x = c.left == GemmCase::FromF32 ? s.tiles[0] : wide(s.tiles[0]);
    if (c.left == GemmCase::Affine) {
      Value scale = s.rows[0];
      if (s.lanes > 1)
        scale = vector::BroadcastOp::create(b, loc, x.getType(), scale);
      x = arith::AddFOp::create(b, loc, arith::MulFOp::create(b, loc, x, scale), wide(s.columns[0]));
    } else if (c.left == GemmCase::Gated) {
      x = arith::MulFOp::create(b, loc, callMath(b, loc, MathFn::Silu, x, rounding), wide(s.tiles[1]));
    } else if (c.left == GemmCase::Exp) {
      x = callMath(b, loc, MathFn::Exp, x, rounding);
    }
    return SmallVector<Value>{toMemory(b, loc, x, c.type)};
  };
}

std::vector<int64_t> denseBatchStrides(const GemmCase &c, int64_t elements) {
  std::vector<int64_t> out(c.batch.size());
  for (size_t d = c.batch.size(); d-- > 0;) {
    out[d] = elements;
    elements *= c.batch[d];
  }
  return out;
}

emit::WgmmaGemm describe(const GemmCase &c) {
  emit::WgmmaGemm g;
  g.name = "gemm";
  g.m = c.m;
  g.n = c.n;
  g.k = c.k;
  g.batch = c.batch;
  g.tile = c.tile;
  auto inputs = static_cast<unsigned>(inputsOf(c).size()), outputs = static_cast<unsigned>(outputsOf(c).size());
  g.pointers = inputs + outputs;
  g.a = {0, c.type, c.aKMajor, 0, c.aKMajor ? c.k : c.m, denseBatchStrides(c, c.m * c.k)};
  if (c.left != GemmCase::InMemory) {
    g.left.tiles.push_back(
        {0, c.left == GemmCase::FromF32 ? DType::F32 : c.type, true, 0, c.k, denseBatchStrides(c, c.m * c.k)});
    if (c.left == GemmCase::Affine) {
      g.left.rows.push_back({inputs - 2, DType::F32, 0, denseBatchStrides(c, c.m)});
      g.left.columns.push_back({inputs - 1, c.type, 0, std::vector<int64_t>(c.batch.size(), 0)});
    }
    if (c.left == GemmCase::Gated)
      g.left.tiles.push_back({inputs - 1, c.type, true, 0, c.k, denseBatchStrides(c, c.m * c.k)});
    g.left.compute = leftOf(c);
  }
  for (int p = 0; p < c.products(); ++p)
    g.b.push_back({static_cast<unsigned>(1 + p), c.type, c.bKMajor, 0, c.bKMajor ? c.k : c.n,
                   c.bBroadcast ? std::vector<int64_t>(c.batch.size(), 0) : denseBatchStrides(c, c.n * c.k)});
  std::vector<int64_t> strides = denseBatchStrides(c, c.m * c.n);
  if (c.epilogue == GemmCase::BiasResidual)
    g.tiles.push_back({inputs - 1, c.narrow(), 0, c.n, strides});
  auto aux = static_cast<unsigned>(1 + c.products());
  if (c.epilogue == GemmCase::BiasGelu || c.epilogue == GemmCase::BiasResidual)
    g.columns.push_back({aux, c.narrow(), 0, std::vector<int64_t>(c.batch.size(), 0)});
  if (c.epilogue == GemmCase::RowScale)
    g.rows.push_back({aux, DType::F32, 0, denseBatchStrides(c, c.m)});
  g.promotes = c.promotes;
  if (c.scaleRows > 0) {
    int64_t perK = c.scalesOfK(), rows = c.scalesOfN();
    g.scales.push_back({inputs - 2, 0, 1, perK, 1, denseBatchStrides(c, c.m * perK)});
    g.scales.push_back({inputs - 1, 0, c.scaleRows, perK, 1,
                        c.bBroadcast ? std::vector<int64_t>(c.batch.size(), 0) : denseBatchStrides(c, rows * perK)});
  }
  if (c.weights) {
    g.turned = true;
    std::swap(g.m, g.n);
    std::swap(g.rows, g.columns);
    for (emit::WgmmaOperand &o : g.b) {
      g.left.tiles.push_back(o);
      g.left.tiles.back().dtype = *c.weights;
      o = g.a;
    }
  }
  std::vector<PackageTensor> results = outputsOf(c);
  for (unsigned o = 0; o < outputs; ++o)
    g.outputs.push_back({inputs + o, results[o].type.dtype, 0, c.n, strides});
  return g;
}

/// One element a thread, K in order.
Status emitReference(ModuleOp module, const GemmCase &c, PackageLaunch &launch) {
  OpBuilder b(module.getContext());
  Location loc = b.getUnknownLoc();
  b.setInsertionPointToEnd(module.getBody());
  std::vector<PackageTensor> inputs = inputsOf(c), outputs = outputsOf(c);
  Type pointer = LLVM::LLVMPointerType::get(module.getContext(), 1);
  SmallVector<Type> types(inputs.size() + outputs.size(), pointer);
  auto f = func::FuncOp::create(b, loc, "reference", b.getFunctionType(types, {}));
  f->setAttr("ridge.kernel", b.getUnitAttr());
  f->setAttr("ridge.block", b.getI64IntegerAttr(256));
  b.setInsertionPointToStart(f.addEntryBlock());
  auto index = [&](int64_t v) { return arith::ConstantIndexOp::create(b, loc, v).getResult(); };
  auto plus = [&](Value x, Value y) { return arith::AddIOp::create(b, loc, x, y).getResult(); };
  auto times = [&](Value x, int64_t v) { return arith::MulIOp::create(b, loc, x, index(v)).getResult(); };
  auto div = [&](Value x, int64_t v) { return arith::DivUIOp::create(b, loc, x, index(v)).getResult(); };
  auto rem = [&](Value x, int64_t v) { return arith::RemUIOp::create(b, loc, x, index(v)).getResult(); };
  Value id = plus(times(gpu::BlockIdOp::create(b, loc, gpu::Dimension::x), 256),
                  gpu::ThreadIdOp::create(b, loc, gpu::Dimension::x));
  int64_t total = c.batches() * c.m * c.n;
  auto there = scf::IfOp::create(b, loc, arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ult, id, index(total)));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(there.thenBlock()->getTerminator());
    ValueRange arguments = f.getArguments();
    Value column = rem(id, c.n), row = rem(div(id, c.n), c.m), batch = div(id, c.n * c.m);
    bool integers = c.type == DType::I8;
    Value zero = integers ? arith::ConstantOp::create(b, loc, b.getI32IntegerAttr(0)).getResult()
                          : arith::ConstantOp::create(b, loc, b.getF32FloatAttr(0.0f)).getResult();
    auto load = [&](Value from, Value at, DType t) {
      if (t != DType::I8)
        return loadFloats(b, loc, from, at, t, 1);
      Value offset = arith::IndexCastOp::create(b, loc, b.getI64Type(), at);
      Value address = LLVM::GEPOp::create(b, loc, pointer, b.getI8Type(), from, ValueRange{offset});
      Value v = arith::ExtSIOp::create(b, loc, b.getI32Type(), LLVM::LoadOp::create(b, loc, b.getI8Type(), address));
      return integers ? v : arith::SIToFPOp::create(b, loc, b.getF32Type(), v).getResult();
    };
    SmallVector<Value> sums(static_cast<size_t>(c.products()), zero);
    auto loop = scf::ForOp::create(b, loc, index(0), index(c.k), index(1), sums);
    {
      OpBuilder::InsertionGuard inner(b);
      b.setInsertionPointToStart(loop.getBody());
      Value k = loop.getInductionVar();
      Value atA = plus(times(batch, c.m * c.k), c.aKMajor ? plus(times(row, c.k), k) : plus(times(k, c.m), row));
      SmallVector<Value> next;
      Value x;
      if (c.left == GemmCase::InMemory) {
        x = load(arguments[0], atA, c.type);
      } else {
        auto memory = [&](size_t argument, Value at, DType t) {
          Value offset = arith::IndexCastOp::create(b, loc, b.getI64Type(), at);
          Value from = LLVM::GEPOp::create(b, loc, pointer, memoryType(b, t), arguments[argument], ValueRange{offset});
          return LLVM::LoadOp::create(b, loc, memoryType(b, t), from).getResult();
        };
        emit::GemmSite site;
        site.lanes = 1;
        site.tiles.push_back(memory(0, atA, inputs[0].type.dtype));
        if (c.left == GemmCase::Affine) {
          site.rows.push_back(memory(inputs.size() - 2, div(id, c.n), DType::F32));
          site.columns.push_back(memory(inputs.size() - 1, k, c.type));
        }
        if (c.left == GemmCase::Gated)
          site.tiles.push_back(memory(inputs.size() - 1, atA, c.type));
        RL_ASSIGN(SmallVector<Value> left, leftOf(c)(b, loc, site));
        x = widenFloat(b, loc, left[0], c.type, kTarget);
      }
      for (int p = 0; p < c.products(); ++p) {
        Value atB = plus(times(batch, c.bBroadcast ? 0 : c.n * c.k),
                         c.bKMajor ? plus(times(column, c.k), k) : plus(times(k, c.n), column));
        Value y = load(arguments[static_cast<size_t>(1 + p)], atB, c.weights.value_or(c.type));
        if (c.scaleRows > 0) {
          int64_t perK = c.scalesOfK();
          auto scale = [&](size_t argument, Value scaleRow, int64_t rows) {
            Value at = plus(times(plus(times(batch, rows), scaleRow), perK), div(k, 128));
            return loadFloats(b, loc, arguments[argument], at, DType::F32, 1);
          };
          Value columnScale = div(column, c.scaleRows);
          x = arith::MulFOp::create(b, loc, load(arguments[0], atA, c.type), scale(inputs.size() - 2, row, c.m));
          y = arith::MulFOp::create(b, loc, y, scale(inputs.size() - 1, columnScale, c.bBroadcast ? 0 : c.scalesOfN()));
        }
        Value sum = loop.getRegionIterArg(static_cast<unsigned>(p));
        next.push_back(integers ? arith::AddIOp::create(b, loc, sum, arith::MulIOp::create(b, loc, x, y)).getResult()
                                : arith::AddFOp::create(b, loc, sum, arith::MulFOp::create(b, loc, x, y)).getResult());
      }
      scf::YieldOp::create(b, loc, next);
    }
    emit::GemmSite site;
    site.batch = batch;
    site.row = row;
    site.column = column;
    site.lanes = 1;
    site.products.assign(loop.getResults().begin(), loop.getResults().end());
    site.pointers = arguments;
    auto element = [&](size_t argument, DType t) {
      Value offset = arith::IndexCastOp::create(b, loc, b.getI64Type(), id);
      return LLVM::GEPOp::create(b, loc, pointer, memoryType(b, t), arguments[argument], ValueRange{offset})
          .getResult();
    };
    if (c.epilogue == GemmCase::BiasResidual)
      site.tiles.push_back(
          LLVM::LoadOp::create(b, loc, memoryType(b, c.narrow()), element(inputs.size() - 1, c.narrow())));
    size_t aux = static_cast<size_t>(1 + c.products());
    auto loaded = [&](size_t argument, Value at, DType t) {
      Value offset = arith::IndexCastOp::create(b, loc, b.getI64Type(), at);
      Value from =
          LLVM::GEPOp::create(b, loc, pointer, memoryType(b, t), arguments[argument], ValueRange{offset}).getResult();
      return LLVM::LoadOp::create(b, loc, memoryType(b, t), from).getResult();
    };
    if (c.epilogue == GemmCase::BiasGelu || c.epilogue == GemmCase::BiasResidual)
      site.columns.push_back(loaded(aux, column, c.narrow()));
    if (c.epilogue == GemmCase::RowScale)
      site.rows.push_back(loaded(aux, div(id, c.n), DType::F32));
    RL_ASSIGN(SmallVector<Value> out, epilogueOf(c)(b, loc, site));
    for (size_t o = 0; o < outputs.size(); ++o)
      LLVM::StoreOp::create(b, loc, out[o], element(inputs.size() + o, outputs[o].type.dtype));
  }
  func::ReturnOp::create(b, loc);
  launch.kernel = "reference";
  launch.grid.x = static_cast<uint32_t>((total + 255) / 256);
  launch.block.x = 256;
  return {};
}

} // namespace

cost::GemmShape GemmCase::shape() const {
  cost::GemmShape s = describe(*this).shape();
  s.ops = epilogue == BiasGelu ? 10 : epilogue == SwiGlu ? 8 : epilogue == Plain ? 0 : 2;
  s.specialOps = epilogue == BiasGelu || epilogue == SwiGlu ? 2 : 0; // exp2 and a reciprocal
  s.leftOps = left == Gated ? 7 : left == Affine || left == Exp ? 2 : 0;
  s.leftSpecialOps = left == Gated ? 2 : left == Exp ? 1 : 0;
  return s;
}

std::string GemmCase::str() const {
  static const char *const names[] = {"plain",       "bias_gelu", "bias_residual", "swiglu",
                                      "two_outputs", "row_scale", "own_loads",     "to_f8"};
  std::string out = name.empty() ? std::string() : name + " ";
  for (int64_t e : batch)
    out += std::to_string(e) + "*";
  out += std::to_string(m) + "x" + std::to_string(n) + "x" + std::to_string(k) + " " + dtypeName(type) + " " +
         names[epilogue];
  static const char *const lefts[] = {"", " left_affine", " left_from_f32", " left_gated", " left_exp"};
  out += lefts[left];
  if (weights)
    out += std::string(" weights of ") + dtypeName(*weights);
  if (!aKMajor)
    out += " A^T";
  if (!bKMajor)
    out += " B^T";
  if (promotes)
    out += " promoted";
  if (scaleRows > 0)
    out += " scales of " + std::to_string(scaleRows);
  return out + " (" + tile.str() + ", " + std::to_string(tile.buffers) + " buffers)";
}

Result<Package> compileGemm(const GemmCase &c, bool reference) {
  Package p;
  p.name = c.str();
  p.version = "test";
  p.target = "cuda";
  p.arch = "sm_90a";
  p.inputs = inputsOf(c);
  p.outputs = outputsOf(c);
  for (uint32_t i = 0; i < p.inputs.size(); ++i)
    p.buffers.push_back({PackageBuffer::Input, i, 0, p.inputs[i].type.bytes()});
  for (uint32_t i = 0; i < p.outputs.size(); ++i)
    p.buffers.push_back({PackageBuffer::Output, i, 0, p.outputs[i].type.bytes()});
  PackageLaunch launch;
  for (uint32_t i = 0; i < p.buffers.size(); ++i)
    launch.args.push_back(i);
  launch.label = c.name;
  MLIRContext context(dialects(), MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  OwningOpRef<ModuleOp> module = ModuleOp::create(UnknownLoc::get(&context));
  if (reference) {
    RL_TRY(emitReference(*module, c, launch));
  } else {
    RL_ASSIGN(cost::TargetDesc machine, cost::findTarget("h200"));
    RL_TRY(emit::emitWgmmaGemm(*module, describe(c), c.weights ? turnedEpilogueOf(c) : epilogueOf(c), machine, launch));
  }
  CodeTarget target;
  target.nvptx = true;
  target.sm = 90;
  target.cpu = "sm_90a";
  RL_ASSIGN(LoweredCode lowered, lowerKernels(*module, target, false));
  p.ptx = std::move(lowered.code);
  p.launches.push_back(std::move(launch));
  RL_TRY(validatePackage(p));
  return p;
}

} // namespace rl::gemmtest
