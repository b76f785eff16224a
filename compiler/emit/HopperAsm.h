// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The instructions of compute capability 9.0 that kernels use by name: tensor memory copies, barriers in shared memory and
// warpgroup matrix products, as inline PTX (PTX ISA 8.0, "Data movement", "Parallel synchronization" and "wgmma"). The NVVM
// dialect has most of them, but its lowering adds fences of a scope that costs a third of the speed, wants the accumulators'
// first product apart, and gives a wait no edge to the accumulators that it waits for.
#pragma once

#include "runtime/base/DType.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/Value.h"

namespace rl::emit {

/// Arithmetic on i32 with as few words as it deserves.
class Int32 {
public:
  Int32(mlir::OpBuilder &b, mlir::Location loc) : b(b), loc(loc) {}
  mlir::Value of(int64_t);
  mlir::Value add(mlir::Value, mlir::Value);
  mlir::Value add(mlir::Value x, int64_t c) { return c ? add(x, of(c)) : x; }
  mlir::Value sub(mlir::Value, mlir::Value);
  mlir::Value mul(mlir::Value, mlir::Value);
  mlir::Value mul(mlir::Value x, int64_t c) { return c == 1 ? x : mul(x, of(c)); }
  mlir::Value div(mlir::Value, mlir::Value); ///< unsigned
  mlir::Value div(mlir::Value x, int64_t c) { return c == 1 ? x : div(x, of(c)); }
  mlir::Value rem(mlir::Value, mlir::Value); ///< unsigned
  mlir::Value rem(mlir::Value x, int64_t c) { return c == 1 ? of(0) : rem(x, of(c)); }
  mlir::Value andWith(mlir::Value, int64_t);
  mlir::Value xorWith(mlir::Value, mlir::Value);
  mlir::Value shiftRight(mlir::Value, int64_t);
  mlir::Value min(mlir::Value, mlir::Value); ///< signed
  mlir::Value equal(mlir::Value, mlir::Value);
  mlir::Value less(mlir::Value, mlir::Value); ///< signed
  mlir::Value select(mlir::Value condition, mlir::Value, mlir::Value);

private:
  mlir::OpBuilder &b;
  mlir::Location loc;
};

/// What a warpgroup multiplies with one call of HopperAsm::multiply: for each of `products`, `blocks` times 64 rows of A by
/// `n` columns of B, over `steps` times 32 bytes of K.
struct WgmmaShape {
  DType a = DType::BF16, b = DType::BF16;
  int n = 8;
  int blocks = 1, products = 1, steps = 1;
  /// The operand's contiguous dimension in memory is not K (16-bit types alone).
  bool transposeA = false, transposeB = false;
  /// What is added to a descriptor (16 bytes a unit) for the next step of K, and for A's next 64 rows.
  int64_t stepA = 2, stepB = 2, blockA = 512;

  int accumulators() const { return products * blocks * n / 2; } ///< registers of a thread: [product][block][n / 2]
};

/// May wgmma multiply operands of these types with `n` columns at a time?
bool isWgmmaShape(DType a, DType b, int n);
/// Of its accumulators: f32, or i32 for integers.
bool accumulatesIntegers(DType a);

/// The policy of what is read once: it leaves the L2 cache before what else is there. PTX ISA, "createpolicy"; compute capability 8.0.
mlir::Value evictFirst(mlir::OpBuilder &, mlir::Location);

/// Two of the four numbers of 8 bits in `four` (i8, f8e4m3 or f8e5m2), the lower (`half` 0) or the upper ones, as a pair of `to` (bf16
/// or f16), exactly. All i32. Compute capability 9.0. `exponents`: exponentsOf128, or none.
mlir::Value widenPair(mlir::OpBuilder &, mlir::Location, DType from, DType to, mlir::Value four, int half,
                      mlir::Value exponents = {});
/// 0x43434343 in a register of its own. As an immediate value the assembler would load it, or the permutation, anew for each pair: an
/// instruction has one.
mlir::Value exponentsOf128(mlir::OpBuilder &, mlir::Location);

/// Addresses in shared memory are i32, those of barriers too.
class HopperAsm {
public:
  HopperAsm(mlir::OpBuilder &b, mlir::Location loc) : b(b), loc(loc) {}

  // Barriers in shared memory. A phase ends when `count` arrivals and all bytes that were announced have come.
  void initBarrier(mlir::Value barrier, int count);
  void fenceBarrierInit(); ///< makes their initialisation visible to the cluster and to copies
  void expectBytes(mlir::Value barrier, int64_t bytes); ///< arrives, and announces bytes
  void arrive(mlir::Value barrier);
  void arriveAt(mlir::Value barrier, mlir::Value rank); ///< at the same barrier of the cluster's block `rank`
  void wait(mlir::Value barrier, mlir::Value parity);   ///< until the phase of this parity has ended

  // Tensor memory copies. Coordinates are i32, the innermost first; `map` is a generic pointer to the map.
  void prefetchMap(mlir::Value map);
  /// `policy`: of the L2 cache, or none.
  void load(mlir::Value to, mlir::Value map, mlir::ValueRange coordinates, mlir::Value barrier,
            mlir::Value policy = {});
  /// To the same place in each block of the cluster whose bit is set, and its barrier there.
  void loadMulticast(mlir::Value to, mlir::Value map, mlir::ValueRange coordinates, mlir::Value barrier, int mask);
  void store(mlir::Value map, mlir::ValueRange coordinates, mlir::Value from);
  void commitStores();
  void waitStoresRead(int pending); ///< until all but the last `pending` groups have read their source
  void fenceProxy();                ///< of this thread's writes to shared memory, before a copy or wgmma reads them

  // Copies of ranges: addresses and `bytes` (i32) are multiples of 16. What the program reads and writes in shared
  // memory stays before or behind them.
  void expectBytes(mlir::Value barrier, mlir::Value bytes);
  void loadRange(mlir::Value to, mlir::Value from, mlir::Value bytes, mlir::Value barrier);
  void storeRange(mlir::Value to, mlir::Value from, mlir::Value bytes);
  void waitRange(mlir::Value barrier); ///< for what a barrier's first phase announced

  /// 16 bytes from global memory (address space 1, aligned), of which `bytes` are read and the rest are zero.
  void copyAsync(mlir::Value to, mlir::Value from, mlir::Value bytes);
  void waitAsync(); ///< for this thread's copies of that kind

  // Blocks, clusters, warps
  void setMaxRegisters(int count, bool raise);
  void clusterArrive();
  void clusterWait();
  mlir::Value clusterRank();
  void syncBlock();
  void syncWarp();
  void syncWarpgroup(mlir::Value index); ///< 0 to 2, by a barrier that nothing else uses
  /// Two warpgroups in turn: 0 or 1 waits until the other passed the turn to it.
  void waitTurn(mlir::Value index);
  void passTurn(mlir::Value index);
  mlir::Value firstLane(mlir::Value);                  ///< lane 0's value, known to be uniform
  mlir::Value fromLane(mlir::Value, mlir::Value lane); ///< that lane's value, f32
  /// Four matrices of 8x8 elements of 16 bits, a pair of each in a thread's `values` (i32), to rows at `address`: lane l has
  /// the address of row l % 8 of matrix l / 8. Transposed, a pair is of neighbours in a column, in memory.
  void storeMatrices(mlir::Value address, mlir::ValueRange values, bool transposed = false);
  /// The same the other way: what the rows at `address` hold, as four i32.
  llvm::SmallVector<mlir::Value> loadMatrices(mlir::Value address, bool transposed = false);

  // Products
  /// Starts the products of one stage behind all that was started, and waits until at most these are on their way. Where
  /// `accumulate` (i32) is 0, what `accumulators` hold does not count. The results may be touched after finish alone.
  llvm::SmallVector<mlir::Value> multiply(const WgmmaShape &, mlir::ValueRange accumulators, mlir::Value a,
                                          mlir::ValueRange b, mlir::Value accumulate);
  /// Waits for all products.
  llvm::SmallVector<mlir::Value> finish(const WgmmaShape &, mlir::ValueRange accumulators);
  /// One of the steps of multiply with the left operand in registers: `a` has, by block of 64 rows, four i32 of two 16-bit numbers
  /// each, of all products or of each; `b` one right operand a product, or one of all (PTX ISA, "Register fragments for wgmma", A). Waits for nothing; but a warp that starts another while the tensor cores have
  /// not come to this one stands still. `isGroup`: the step is a group (waitAllBut), otherwise all steps are.
  llvm::SmallVector<mlir::Value> startStep(const WgmmaShape &, int step, mlir::ValueRange accumulators,
                                           mlir::ValueRange a, mlir::ValueRange b, mlir::Value accumulate,
                                           bool isGroup = false);
  /// Has the values (i32) computed by here, where ptxas would do so behind a wait for products, and in registers of their own until
  /// here: a store that is never made, as no `address` in shared memory is that of the last byte.
  void holdValues(mlir::Value address, mlir::ValueRange values);
  /// The same of fours that lie beside each other anyway, as a left operand's registers do: an instruction each.
  void holdQuads(mlir::Value address, mlir::ValueRange values);
  void waitAllBut(int groups); ///< for all groups of products but the last

private:
  void run(const llvm::Twine &text, const llvm::Twine &constraints, mlir::ValueRange operands);
  mlir::Value compute(mlir::Type, const llvm::Twine &text, const llvm::Twine &constraints, mlir::ValueRange operands);
  llvm::SmallVector<mlir::Value> tied(const WgmmaShape &, mlir::ValueRange accumulators, const llvm::Twine &text,
                                      const llvm::Twine &constraints, mlir::ValueRange operands);

  mlir::OpBuilder &b;
  mlir::Location loc;
};

} // namespace rl::emit
