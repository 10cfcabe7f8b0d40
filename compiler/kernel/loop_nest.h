// The analysis of one kernel: its loops, its reductions in the order to compute them, and the loops
// that each node depends on.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"
#include "compiler/kernel/affine.h"

namespace outboard::codegen {

// A set of ranges: bit i is LoopNest::ranges[i].
using RangeSet = uint64_t;

// One loop: `node` is its RANGE, which counts 0 .. extent - 1; `reduce` is set for a loop of a
// reduction. Blocks that lie at or past `end`, an i64 scalar of VARs, need not be run.
struct Range {
  const UOp* node = nullptr;
  int64_t extent = 0;
  bool reduce = false;
  bool sequence = false;

  const UOp* end() const { return node->src.empty() ? nullptr : node->src[0]; }
};

// Reductions over the same loops that share one loop nest.
struct ReduceGroup {
  std::vector<int> ranges;        // into LoopNest::ranges, in the order written
  std::vector<const UOp*> nodes;  // REDUCE_LOOPs
  // The ranges they depend on: output ranges, and ranges of enclosing reductions, inside which they
  // are computed.
  RangeSet deps = 0;
};

struct LoopNest {
  std::unique_ptr<Graph> graph;  // owns the copy of the kernel that is analysed
  std::vector<const UOp*> stores;
  std::vector<Range> ranges;  // output ranges first, outermost first; then those of reductions
  int output_count = 0;
  int parallel_count = 0;           // the leading output ranges, up to the first sequence
  std::vector<ReduceGroup> groups;  // a group comes after those that its values use
  std::vector<const UOp*> nodes;    // all, sources first
  absl::flat_hash_map<const UOp*, RangeSet>
      deps;  // of every node; a REDUCE_LOOP does not depend on its own ranges
  std::vector<int64_t> slot_elements;  // by slot; -1 for unused slots
  std::vector<DType> slot_dtypes;
  std::vector<const UOp*> vars;  // by slot
  int64_t flops = 0;
  int64_t bytes = 0;
  bool empty = false;  // an output range has extent 0: nothing to compute
  bool tf32 = false;   // products of f32 may be of rounded operands: SINK's argument

  RangeSet DepsOf(const UOp* node) const { return deps.at(node); }
  int IndexOf(const UOp* range) const;
  RangeSet OutputSet() const { return (RangeSet{1} << output_count) - 1; }
  // Returns whether the group lies inside another group or contains one.
  bool IsNested(const ReduceGroup& group) const;
};

// Analyses a verified kernel (ir/spec.h). Removes ranges of extent 1, merges ranges that always
// occur together (a * extent(b) + b), so that a contiguous array is one loop, and decomposes
// transcendental operations into arithmetic (decompose_math.h), which `flops` then counts. Errors:
// INVALID_ARGUMENT, RESOURCE_EXHAUSTED as in compile.h.
absl::StatusOr<LoopNest> AnalyzeKernel(const UOp* sink);

// Checks the number of nodes and of loops of a kernel as it is written, as AnalyzeKernel does
// first: for what comes before, whose time grows with them. Errors: RESOURCE_EXHAUSTED.
absl::Status CheckWrittenSize(const UOp* sink);

}  // namespace outboard::codegen
