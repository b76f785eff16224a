// Part of Ridgeline, under the Apache License v2.0 with LLVM Exceptions.
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// What one thread of a fused pointwise kernel evaluates. A graph says which tensors there are; a trace says, for V
// consecutive elements of the outputs, which elements of which tensors are computed, at which index, under which condition,
// and in which order. The planner counts a trace to judge a group (work, bytes, registers); the emitter writes it down as
// code. Both see the same one, so that what was judged is what is emitted. No MLIR here.
//
// An instance is a tensor's value at one index tuple. A tensor that is read at two indices (x and its flip) has two
// instances; one that is read twice at the same index has one. `cat` and `pad` choose between pieces by conditions on the
// index. A condition that all lanes of a vector share becomes a branch, and what is evaluated inside it lives in a scope of
// its own; a condition that differs between lanes becomes a select, and the loads under it are guarded lane by lane. Branches
// within branches end at kMaxBranchDepth; what lies deeper is selected, so that code never nests without bound.
//
// A row kernel iterates over R rows of W elements, element = W*row + V*vector + lane, and stores tensors of R*W elements and
// of R. A reduction in it is an instance whose operand is the same row at every vector and lane: its index knows the row alone.
// A reduction of segments of the row, each so many neighbouring elements, differs within the row, but not within a segment: the
// few threads that have one exchange what they have, without the others. What is stored may have one element a segment.
//
// An index that is itself an element of a tensor (embedding, gather) is a dimension of the context like any other, so that
// the index arithmetic goes on through it; the trace knows the instance that gives its value. Where that is out of range the
// dimension is 0, so that no load leaves its tensor, and the gathering instance, which has both as operands, gives NaN or 0.
//
// A kernel of matrix products has rows likewise, and in it a product is an instance that is there before all others. It reduces
// segments of a row alone, of so many elements as any tile has at most; they may be the whole row.
#pragma once

#include "ir/graph/Graph.h"
#include "ir/index/Layout.h"

#include <memory>
#include <unordered_map>

namespace rl {

using IndexTuple = index::Tuple;
using index::Condition;

inline constexpr uint32_t kMaxBranchDepth = 16;
inline constexpr int64_t kMostTileSegment = 128; ///< tiles of all kernels of products are as wide

struct Instance {
  ValueId value = kNone;
  NodeId node = kNone; ///< kNone: a load of `value`
  IndexTuple index;
  index::Expr linear; ///< of a load: element of the tensor, expanded
  uint32_t scope = 0;
  uint32_t guard = 0;   ///< of a load: place in Trace::guards; 0: none
  bool uniform = false; ///< the same for all lanes
  bool varies = false;  ///< of a row kernel: differs between the elements of a row
  uint32_t level = 0;  ///< of a row kernel: how many reductions, one above the other, must be known before it; those of
                       ///< segments count in a kernel of products alone
  int64_t segment = 0; ///< of a reduction of segments of the row: elements of one; 0: of the whole row
  /// Instances, in the order of the node's operands; kNone for a literal, and for a table without elements. Behind them, of
  /// any instance, those that its index, guard or conditions need.
  std::vector<uint32_t> operands;

  /// Of cat and pad: the first piece whose conditions hold gives the value; the last has none. `instance` kNone: the pad
  /// value. `scope`: where a branch evaluates the piece; the instance's own scope where pieces are chosen by select.
  struct Piece {
    std::vector<Condition> conditions;
    uint32_t scope = 0;
    uint32_t instance = kNone;
  };
  std::vector<Piece> pieces;
  bool branches = false;
};

struct TraceScope {
  uint32_t parent = kNone;
  uint32_t depth = 0;          ///< branches around it
  std::vector<uint32_t> order; ///< instances in the order of evaluation
};

/// A result of the kernel: the instance and the element of the output that it is stored to.
struct TraceStore {
  uint32_t instance = kNone;
  uint32_t output = 0; ///< place in the request's outputs
  index::Expr linear;
};

struct Trace {
  std::shared_ptr<index::Context> context;
  int vectorDim = -1, laneDim = -1; ///< element = V * vectorDim + laneDim; laneDim -1 where V is 1
  int rowDim = -1;                  ///< of a row kernel: the row; element and vector are those of the row
  int64_t width = 0;                ///< of a row kernel: elements of a row; 0: no row kernel
  uint32_t levels = 0;              ///< of a row kernel: the greatest level of an instance
  int64_t lanes = 1;
  bool lanesAcross = false; ///< of a row kernel: lanes are neighbouring rows
  int64_t elements = 0;     ///< of the iteration space
  std::vector<Instance> instances;
  std::vector<TraceScope> scopes;
  std::vector<std::vector<Condition>> guards; ///< [0] is empty
  std::vector<TraceStore> stores;
  std::vector<TraceStore> columnSums; ///< what is added up over the rows of a part, and where a part's sums are stored
  std::vector<uint32_t>
      indexOf; ///< by dimension of the context: the instance whose value it is; kNone, or none: no such

  uint32_t indexInstance(int dim) const {
    return static_cast<size_t>(dim) < indexOf.size() ? indexOf[static_cast<size_t>(dim)] : kNone;
  }
  /// Whether an expression of plain dimensions (index::Context::expand) may differ between the lanes of a vector.
  bool dependsOnLane(index::Expr) const;
  /// Whether a load reads where an index says that was loaded or computed itself.
  bool isGathered(const Instance &load) const;
};

struct TraceRequest {
  const Graph *graph = nullptr;
  std::vector<ValueId> outputs; ///< all with the same number of elements (of a cat's pieces where `splitCat`)
  std::vector<bool> boundary;   ///< by value: loaded, not computed
  int64_t lanes = 1;
  bool splitCat = false; ///< every output is a cat of equal pieces: iterate over a piece, store all of them
  int64_t width = 0;     ///< of a row kernel: elements of a row, a multiple of the lanes; outputs have rows*width
  int64_t rows = 0;      ///< elements, or `rows` of them, or one for each segment of a row
  bool segments = true;  ///< of a kernel with rows: reductions of segments of a row are its own
  /// Of a row kernel, by output: what is summed down the columns (ColumnSums.h), or kNone. Empty: nothing is. Of the rows each of
  /// `parts` equal parts has one sum a column.
  std::vector<ValueId> columnSums;
  int64_t parts = 1;
  bool partsInTurn = false; ///< each has every parts-th row
  /// Of a row kernel: lanes are neighbouring rows, row = V*row + lane, and a vector is one element of each. `rows` is a multiple
  /// of the lanes, and all outputs have that many elements.
  bool lanesAcross = false;
  /// Of a kernel of products: a product of rows*width elements, where it is read in its own order, is an instance without
  /// operands; all other products, and reductions but those of segments, are foreign.
  bool products = false;
  // Where tracing ends early. A value that would be computed at an index which costs more than `maxIndexWeight`
  // (index::Expr::weight), or under more than `maxGuards` conditions, is too deep in layouts.
  size_t maxInstances = SIZE_MAX;
  uint32_t maxIndexWeight = UINT32_MAX;
  size_t maxGuards = SIZE_MAX;
};

/// Errors: Code::Unsupported where a limit of the request is exceeded, or an op is not elementwise, layout, creation or
/// indexing.
Result<Trace> tracePointwise(const TraceRequest &);

/// The same, but a trace that meets a limit is handed back as far as it went, so that its shape can be judged.
struct TraceOutcome {
  Trace trace;
  bool exceeded = false;    ///< too many instances, or:
  ValueId deep = kNone;     ///< this value is too deep in layouts
  uint32_t indexWeight = 0; ///< of `deep`
  size_t guards = 0;        ///< conditions over `deep`
  /// Not empty: the way from an output, which comes first, up to a reduction that is not over this kernel's rows, or to a
  /// product that is not this kernel's.
  std::vector<ValueId> foreign;
};
Result<TraceOutcome> tracePointwiseUpTo(const TraceRequest &);

/// The elements of a request's iteration space.
int64_t iterationElements(const Graph &, ValueId output, bool splitCat);

/// Whether the value is a cat of two to eight pieces of the same type.
bool isSplittableCat(const Graph &, ValueId);

} // namespace rl
