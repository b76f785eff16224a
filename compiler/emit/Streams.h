// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Tensors far larger than a GPU's second-level cache, which leave it before anything reads them again: the cache is told which
// lines to give up first, those that were written. Lines that are still being read then stay, and what is written goes out early
// and in order.
#pragma once

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

namespace rl::emit {

struct Streams {
  int64_t leastBytes = 0;     ///< of a tensor that is one; 0: none is
  mlir::Value loaded, stored; ///< policies of the cache, i64
  bool isOne(int64_t bytes) const { return leastBytes > 0 && bytes >= leastBytes; }
};

/// Makes the policies at the builder's place, which must dominate every use.
Streams makeStreams(mlir::OpBuilder &, mlir::Location, int64_t leastBytes);

/// A load of 4, 8 or 16 aligned bytes of global memory that does not change, as `type`, by a policy of the second-level cache.
mlir::Value loadByPolicy(mlir::OpBuilder &, mlir::Location, mlir::Value policy, mlir::VectorType type, mlir::Value from,
                         bool keepsInL1);
/// A store of 16 aligned bytes.
void storeStream(mlir::OpBuilder &, mlir::Location, const Streams &, mlir::Value, mlir::Value to);
// Not copies to shared memory: what ptxas 13.0 makes of cp.async with a policy is an illegal instruction on an H200.

} // namespace rl::emit
