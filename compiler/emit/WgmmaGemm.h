// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Matrix products on Hopper (sm_90a): one persistent kernel in which one warp copies tiles of the operands into a ring of
// shared memory by tensor memory copies and one or two warpgroups multiply them there, and work an epilogue on the result
// before it is stored. What the epilogue computes is the caller's; where its values come from and go to is the generator's.
#pragma once

#include "compiler/emit/Combine.h"
#include "compiler/lower/Lower.h"
#include "passes/cost/GemmModel.h"
#include "runtime/package/Package.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/Value.h"

#include <functional>

namespace rl::emit {

/// An operand: element (batch, row, k) is at offset + sum of batchStrides + row * stride + k, where K is contiguous; at
/// ... + k * stride + row otherwise. In elements; a batch stride of 0 is a broadcast. A row is one of M, or one of N. Where K lies in
/// parts, k is k % part in this, and k / part * partStride is added.
struct WgmmaOperand {
  unsigned arg = 0; ///< the kernel's pointer
  DType dtype = DType::BF16;
  bool kMajor = true;
  int64_t offset = 0, stride = 0;
  std::vector<int64_t> batchStrides; ///< of WgmmaGemm::batch
  int64_t part = 0;                  ///< whole tiles along K, of which K has a whole number; 0: K is one part
  int64_t partStride = 0;
};

/// Scales of an operand, f32, each of 128 elements along K and `rows` of its rows: of (batch, row, k) at offset + sum of
/// batchStrides + row / rows * stride + k / 128 * kStride.
struct WgmmaScales {
  unsigned arg = 0;
  int64_t offset = 0, rows = 1, stride = 0, kStride = 0;
  std::vector<int64_t> batchStrides;
};

/// A tensor of M by N, N contiguous: an output, or one that the epilogue reads (of N by M, M contiguous, where the result is turned
/// round). Of an output whose columns lie in parts, column n is
/// n % part of its row, and n / part * partStride is added.
struct GemmTensor {
  unsigned arg = 0;
  DType dtype = DType::BF16;
  int64_t offset = 0, stride = 0; ///< stride: of a row
  std::vector<int64_t> batchStrides;
  int64_t part = 0, partStride = 0; ///< part: whole chunks of columns, of which N has a whole number; 0: one part
};

/// A vector that the epilogue reads: one element a column (N), or one a row (M). `stride`: of one a row, from an element to the next.
struct GemmVector {
  unsigned arg = 0;
  DType dtype = DType::BF16;
  int64_t offset = 0;
  std::vector<int64_t> batchStrides;
  int64_t stride = 1;
};

/// A tensor with one element for each segment of WgmmaGemm::segment columns of a row: that of (batch, row, column) at offset + sum of
/// batchStrides + row * stride + column / segment * segmentStride.
struct GemmSegmentTensor {
  unsigned arg = 0;
  DType dtype = DType::F32;
  int64_t offset = 0, stride = 0, segmentStride = 0;
  std::vector<int64_t> batchStrides;
};

/// Where in the result the epilogue is: `lanes` columns of one row (where that is one, as it is of a result turned round, vectors are
/// scalars). Rows and columns beyond the result are moved to its last,
/// so that loads need no guard; what is computed for them is not stored.
struct GemmSite {
  mlir::Value batch, row, column;          ///< index
  int lanes = 2;                           ///< columns: 2 where N is even, and `column` is even; otherwise 1
  llvm::SmallVector<mlir::Value> products; ///< vectors of `lanes` f32 (i32 of integer products)
  llvm::SmallVector<mlir::Value> tiles;    ///< of the tile operands: vectors of `lanes` elements as memory has them
  llvm::SmallVector<mlir::Value> columns;  ///< of the column vectors, likewise
  llvm::SmallVector<mlir::Value> rows;     ///< of the row vectors: one element
  mlir::ValueRange pointers;               ///< the kernel's, in address space 1
  /// What is wanted: of 1 to as many as there are in WgmmaGemm::reductions, what the site contributes to each reduction of the level;
  /// of the next, the outputs; of 0, what the segment has once, and then there are neither products nor tiles, columns and rows.
  uint32_t level = 1;
  llvm::SmallVector<mlir::Value> reduced; ///< results of the reductions of the levels before (of 0: of all), in order
  /// Where WgmmaGemm::keeps, behind the first level: what that gave behind its contributions, f32; products are null then.
  mlir::Value kept;
};

/// Returns the value of each output at the site: a vector of `lanes` elements as memory has them (f32, i32; i16 and i8 for
/// the bits of narrower types). Called more than once, each time for another part of the code. What a segment has once is one
/// element, a contribution a partial result.
using GemmEpilogue =
    std::function<Result<llvm::SmallVector<mlir::Value>>(mlir::OpBuilder &, mlir::Location, const GemmSite &)>;

/// The left operand where it is computed as it is multiplied: `compute` gives the value, 16 bits wide, of two neighbours along K from
/// tensors of M by K (`tiles` of its site), vectors along K (`columns`) and of M (`rows`). Its site has no products.
struct WgmmaLeft {
  std::vector<WgmmaOperand>
      tiles; ///< K contiguous; none: the operand is in memory as it is. Turned round: of each product one
  std::vector<GemmVector> columns, rows;
  GemmEpilogue compute;
};

struct WgmmaGemm {
  std::string name;
  bool turned = false; ///< the result lies transposed in memory (cost::GemmShape::turned); all of `b` are one operand

  int64_t m = 0, n = 0, k = 0;
  std::vector<int64_t> batch; ///< extents, the outermost first, at most 3
  unsigned pointers = 0;      ///< the kernel's pointer parameters
  WgmmaOperand a;             ///< [m, k]; where it is computed, of these only what type
  WgmmaLeft left;
  std::vector<WgmmaOperand> b;           ///< [n, k] each: one or two products with the same left operand
  std::vector<GemmTensor> outputs;       ///< at least one, or one of `segments`
  std::vector<GemmTensor> tiles;         ///< that the epilogue reads
  std::vector<GemmVector> columns, rows; ///< likewise: loaded ahead, where the callback's own loads would be waited for
  bool promotes = false; ///< sums of 8-bit floats over 128 of K are added up in f32 (cost::GemmShape::promotes)
  std::vector<WgmmaScales> scales; ///< of the left and the right operand, or none; one product, promoted
  bool once = false;               ///< the right operands (the left one's, turned round) leave the L2 cache first
  bool branches = false;           ///< what the epilogue computes may part the threads of a warp
  int64_t segment = 0;             ///< columns that are reduced together (cost::GemmShape::segment); 0: none are
  std::vector<std::vector<Combiner>> reductions; ///< by level: those of the second need what the first give
  std::vector<GemmSegmentTensor> segments;       ///< outputs
  bool mayKeep =
      false; ///< the first level gives one value more, f32, which with tile.keeps the next ones get instead of products
  cost::GemmTile tile;

  cost::GemmShape shape() const; ///< but for the epilogue's cost
};

/// Why tensor memory copies cannot serve these operands, or nothing: 16-byte strides and offsets, extents, types, ranks.
std::string wgmmaRefusal(const WgmmaGemm &, const cost::TargetDesc &);

/// Adds the kernel to the module, and fills in all of the launch but its arguments and label: the kernel's name, grid,
/// block, cluster, shared memory, alignment and tensor maps. Code::Unsupported where wgmmaRefusal has a reason.
Status emitWgmmaGemm(mlir::ModuleOp, const WgmmaGemm &, const GemmEpilogue &, const cost::TargetDesc &,
                     PackageLaunch &);

} // namespace rl::emit
