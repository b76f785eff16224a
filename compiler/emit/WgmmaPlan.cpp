// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What a WgmmaGemm kernel is before it is written: its shape for the model, where things lie in shared memory, its tensor maps, and why
// there is none.
#include "compiler/emit/WgmmaParts.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <numeric>

using namespace mlir;

namespace rl::emit {

cost::GemmShape WgmmaGemm::shape() const {
  cost::GemmShape s;
  s.turned = turned;
  for (int64_t e : batch)
    s.batch *= e;
  s.m = m;
  s.n = n;
  s.k = k;
  s.a = a.dtype;
  s.b = b.empty() ? a.dtype : b[0].dtype;
  s.products = static_cast<int>(b.size());
  s.aKMajor = a.kMajor;
  for (const WgmmaOperand &o : b)
    s.bKMajor.push_back(o.kMajor);
  for (const GemmTensor &t : outputs)
    s.outputs.push_back(t.dtype);
  for (const GemmTensor &t : tiles)
    s.tiles.push_back(t.dtype);
  for (const GemmVector &v : columns)
    s.columns.push_back(v.dtype);
  s.promotes = promotes;
  s.scaleColumns = scales.empty() ? 0 : scales[1].rows;
  s.segment = segment;
  for (const GemmTensor &t : outputs)
    s.columnPart = std::gcd(s.columnPart, t.part);
  s.mayKeep = mayKeep;
  for (const WgmmaOperand &t : left.tiles)
    s.leftTiles.push_back(t.dtype);
  for (const GemmVector &v : left.columns)
    s.leftColumns.push_back(v.dtype);
  return s;
}

namespace {

constexpr int64_t kMaxWork = int64_t(1) << 30;

bool hasMap(const WgmmaGemm &g, const GemmTensor &t) {
  return cost::hasTensorMap(t.dtype, t.offset, g.turned ? g.n : g.m, t.stride, g.batch, t.batchStrides);
}

PackageTensorMap makeMap(unsigned arg, DType dtype, int64_t offset, int64_t contiguous, int64_t extent, int64_t stride,
                         const std::vector<int64_t> &batch, const std::vector<int64_t> &batchStrides,
                         int64_t boxColumns, int64_t boxRows, int64_t parts = 1, int64_t partStride = 0) {
  auto size = static_cast<int64_t>(dtypeSize(dtype));
  PackageTensorMap m;
  m.arg = arg;
  m.dtype = dtype;
  m.offset = offset * size;
  m.extents = {contiguous, extent};
  // One row alone has a stride that nothing is read at; the driver wants one that it can take.
  m.strides = {extent > 1 ? stride * size : (contiguous * size + 15) / 16 * 16};
  m.box = {static_cast<uint32_t>(boxColumns), static_cast<uint32_t>(boxRows)};
  if (parts > 1) {
    m.extents.push_back(parts);
    m.strides.push_back(partStride * size);
    m.box.push_back(1);
  }
  for (size_t d = batch.size(); d-- > 0;)
    if (batch[d] > 1 && batchStrides[d] != 0) {
      m.extents.push_back(batch[d]);
      m.strides.push_back(batchStrides[d] * size);
      m.box.push_back(1);
    }
  int64_t span = boxColumns * size;
  m.swizzle = span >= 32 ? static_cast<uint32_t>(span) : 0;
  return m;
}

} // namespace

GemmPlan makePlan(const WgmmaGemm &g) {
  const cost::GemmTile &t = g.tile;
  GemmPlan p;
  p.gemm = &g;
  cost::GemmShape shape = g.shape();
  p.shared = gemmShared(shape, t);
  p.tileK = 128 / static_cast<int64_t>(dtypeSize(g.a.dtype));
  p.kBlocks = (g.k + p.tileK - 1) / p.tileK;
  p.tilesM = (g.m + t.tileM() * t.cluster - 1) / (t.tileM() * t.cluster);
  p.tilesN = (g.n + t.tileN - 1) / t.tileN;
  p.batches = shape.batch;
  p.work = p.batches * p.tilesM * p.tilesN;
  p.buffers = t.buffers;

  cost::GemmSlots slots = gemmSlots(shape);
  int64_t offset = 0;
  for (int bytes : slots.bytes) {
    GemmSlot s;
    s.elementBytes = bytes;
    const int along = g.turned ? 64 : t.chunkColumns();
    s.rows = g.turned ? t.chunkColumns() : 16;
    s.span = std::min(128, along * bytes);
    s.subs = along * bytes / s.span;
    s.offset = offset;
    offset += (s.subs * s.subBytes() + 1023) / 1024 * 1024;
    p.slots.push_back(s);
  }
  p.outputSlot = slots.ofOutput;
  p.tileSlot = slots.ofTile;

  auto operandMap = [&](const WgmmaOperand &o, int64_t rows, int64_t boxRows) {
    const int64_t k = o.part ? o.part : g.k, parts = g.k / k;
    p.maps.push_back(o.kMajor ? makeMap(o.arg, o.dtype, o.offset, k, rows, o.stride, g.batch, o.batchStrides, p.tileK,
                                        boxRows, parts, o.partStride)
                              : makeMap(o.arg, o.dtype, o.offset, rows, k, o.stride, g.batch, o.batchStrides, kMnBox,
                                        p.tileK, parts, o.partStride));
    p.maps.back().l2Promotion = 256;
    return static_cast<unsigned>(p.maps.size() - 1);
  };
  p.boxA = t.tileM() <= 256 ? t.tileM() : t.tileM() / 2; // a box has at most 256 rows
  if (g.left.tiles.empty())
    p.mapA = operandMap(g.a, g.m, p.boxA);
  int64_t inStage = 0;
  for (const WgmmaOperand &o : g.left.tiles) {
    GemmSlot s;
    s.elementBytes = static_cast<int>(dtypeSize(o.dtype));
    const int bytes = static_cast<int>(p.tileK) * s.elementBytes;
    s.span = std::min(128, bytes);
    s.subs = bytes / s.span;
    s.offset = inStage;
    inStage += t.tileM() * bytes;
    p.mapLeft.push_back(static_cast<unsigned>(p.maps.size()));
    p.maps.push_back(
        makeMap(o.arg, o.dtype, o.offset, g.k, g.m, o.stride, g.batch, o.batchStrides, s.subColumns(), p.boxA));
    p.maps.back().l2Promotion = 256;
    p.left.push_back(s);
  }
  for (const GemmVector &v : g.left.columns) {
    p.mapLeftColumn.push_back(static_cast<unsigned>(p.maps.size()));
    p.maps.push_back(makeMap(v.arg, v.dtype, v.offset, g.k, 1, 0, g.batch, v.batchStrides, p.tileK, 1));
    p.maps.back().swizzle = 0;
    p.copiedBytes += p.tileK * static_cast<int64_t>(dtypeSize(v.dtype));
  }
  p.copiedBytes += p.shared.a + p.shared.b * static_cast<int64_t>(p.rights());
  for (const WgmmaOperand &o : llvm::ArrayRef(g.b).take_front(p.rights()))
    p.mapB.push_back(operandMap(o, g.n, t.tileN / t.cluster));
  auto tensorMap = [&](const GemmTensor &x, int slot) {
    const int64_t n = x.part ? x.part : g.n;
    const GemmSlot &s = p.slots[static_cast<size_t>(slot)];
    p.maps.push_back(g.turned ? makeMap(x.arg, x.dtype, x.offset, g.m, g.n, x.stride, g.batch, x.batchStrides,
                                        s.subColumns(), s.rows)
                              : makeMap(x.arg, x.dtype, x.offset, n, g.m, x.stride, g.batch, x.batchStrides,
                                        s.subColumns(), s.rows, g.n / n, x.partStride));
    return static_cast<int>(p.maps.size() - 1);
  };
  for (size_t o = 0; o < g.outputs.size(); ++o)
    p.outputMap.push_back(hasMap(g, g.outputs[o]) ? tensorMap(g.outputs[o], p.outputSlot[o]) : -1);
  for (size_t o = 0; o < g.tiles.size(); ++o)
    p.tileMap.push_back(tensorMap(g.tiles[o], p.tileSlot[o]));
  return p;
}

bool GemmPlan::storesByMap() const {
  return std::any_of(outputMap.begin(), outputMap.end(), [](int m) { return m >= 0; });
}

std::string wgmmaRefusal(const WgmmaGemm &g, const cost::TargetDesc &machine) {
  std::string why = gemmRefusal(g.shape(), g.tile, machine);
  if (!why.empty())
    return why;
  if (g.batch.size() > 3)
    return "a tensor map has five dimensions, not " + std::to_string(g.batch.size() + 2);
  if (g.outputs.empty() && g.segments.empty())
    return "nothing is stored";
  const cost::GemmTile &t = g.tile;
  auto work =
      static_cast<__int128>(g.shape().batch) * ((g.m + t.tileM() - 1) / t.tileM()) * ((g.n + t.tileN - 1) / t.tileN);
  if (work > kMaxWork || g.m > INT32_MAX / 2 || g.n > INT32_MAX / 2 || g.k > INT32_MAX / 2)
    return "the product is larger than 32-bit coordinates reach";
  auto operand = [&](const WgmmaOperand &o, const std::string &name, int64_t rows) -> std::string {
    if (!isWgmmaShape(g.a.dtype, o.dtype, t.tileN))
      return std::string("there is no wgmma for ") + dtypeName(g.a.dtype) + " by " + dtypeName(o.dtype) + " with " +
             std::to_string(t.tileN) + " columns";
    if (!cost::hasTensorMap(o.dtype, o.offset, o.kMajor ? rows : (o.part ? o.part : g.k), o.stride, g.batch,
                            o.batchStrides))
      return name + ": a stride of " + std::to_string(o.stride) + " elements or its start is no multiple of 16 bytes";
    const int64_t step = 128 / static_cast<int64_t>(dtypeSize(g.a.dtype));
    if (o.part &&
        (o.part % step != 0 || g.k % o.part != 0 || g.k == o.part || !cost::isMapStride(o.dtype, o.partStride)))
      return name + ": parts of " + std::to_string(o.part) + " along K";
    return {};
  };
  if (g.left.tiles.empty())
    if (why = operand(g.a, "the left operand", g.m); !why.empty())
      return why;
  for (const WgmmaOperand &x : g.left.tiles)
    if (!x.kMajor || dtypeSize(x.dtype) > 4 ||
        !cost::hasTensorMap(x.dtype, x.offset, g.m, x.stride, g.batch, x.batchStrides))
      return "the left operand: what it is computed from has strides that are no multiples of 16 bytes";
  if (!g.left.tiles.empty() && !g.turned && g.k % 2 != 0)
    return "the left operand is computed by pairs along K, which is odd";
  for (const GemmVector &v : g.left.columns)
    if (dtypeSize(v.dtype) > 4 || !cost::hasTensorMap(v.dtype, v.offset, 1, 0, g.batch, v.batchStrides))
      return "the left operand: a vector that it is computed with starts at no multiple of 16 bytes";
  for (const WgmmaOperand &o : g.b)
    if (why = operand(o, "the right operand", g.n); !why.empty())
      return why;
  if (g.promotes && (!isF8(g.a.dtype) || !isF8(g.b[0].dtype)))
    return "sums over parts of K are added up for 8-bit floats";
  if (!g.scales.empty() && (g.scales.size() != 2 || !g.promotes || g.b.size() != 1))
    return "scales along K are those of both operands of one product, whose sums are promoted";
  if (g.segment > 0 &&
      (g.n % g.segment != 0 || g.segment < 16 || g.reductions.empty() || g.segment / kGroup % t.unroll != 0))
    return "rows of " + std::to_string(g.n) + " are not reduced by segments of " + std::to_string(g.segment);
  for (const GemmTensor &o : g.outputs)
    if (o.part && (g.n % o.part != 0 || g.n == o.part || !hasMap(g, o) || !cost::isMapStride(o.dtype, o.partStride)))
      return "parts of " + std::to_string(o.part) + " columns, " + std::to_string(o.partStride) +
             " elements apart, have no tensor map";
  for (const GemmTensor &o : g.outputs)
    if (g.turned && !hasMap(g, o))
      return "a result turned round has strides that are no multiples of 16 bytes";
  if (g.turned && (g.left.tiles.size() != g.b.size() || !g.left.columns.empty() || !g.left.rows.empty()))
    return "a result turned round is that of one tensor of 8 bits a product";
  for (const GemmTensor &o : g.outputs)
    if (dtypeSize(o.dtype) > 4)
      return std::string("outputs of type ") + dtypeName(o.dtype) + " are not staged";
  for (const GemmTensor &x : g.tiles)
    if (dtypeSize(x.dtype) > 4 || !hasMap(g, x))
      return "an operand of the epilogue has strides that are no multiples of 16 bytes";
  for (const GemmVector &v : g.columns) {
    bool whole = cost::isMultipleOf16Bytes(v.offset, v.dtype);
    for (size_t d = 0; d < g.batch.size(); ++d)
      whole &= cost::isMultipleOf16Bytes(v.batchStrides[d], v.dtype);
    if (dtypeSize(v.dtype) > 4 || !whole || !cost::isMultipleOf16Bytes(t.tileN, v.dtype))
      return "a vector of the epilogue starts at no multiple of 16 bytes";
  }
  return {};
}

SmallVector<Value> batchCoordinates(Int32 &i, const WgmmaGemm &g, const std::vector<int64_t> &strides, Value batch) {
  SmallVector<Value> out;
  int64_t inner = 1;
  for (size_t d = g.batch.size(); d-- > 0;) {
    if (g.batch[d] > 1 && strides[d] != 0)
      out.push_back(i.rem(i.div(batch, inner), g.batch[d]));
    inner *= g.batch[d];
  }
  return out;
}

Value batchOffset(OpBuilder &b, Location loc, const WgmmaGemm &g, int64_t offset, const std::vector<int64_t> &strides,
                  Value batch) {
  Int32 i(b, loc);
  Type i64 = b.getI64Type();
  auto constant = [&](int64_t v) { return arith::ConstantIntOp::create(b, loc, i64, v).getResult(); };
  Value out = constant(offset);
  int64_t inner = 1;
  for (size_t d = g.batch.size(); d-- > 0;) {
    if (g.batch[d] > 1 && strides[d] != 0) {
      Value at = arith::ExtUIOp::create(b, loc, i64, i.rem(i.div(batch, inner), g.batch[d]));
      out = arith::AddIOp::create(b, loc, out, arith::MulIOp::create(b, loc, at, constant(strides[d])));
    }
    inner *= g.batch[d];
  }
  return out;
}

} // namespace rl::emit
