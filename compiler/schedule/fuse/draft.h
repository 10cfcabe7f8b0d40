// A kernel while others are fused into it (compiler/schedule/fuse_kernels.h), and what is asked of
// its loops and values to find out whether they can be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/ir/uop.h"
#include "compiler/target.h"

namespace outboard::schedule {

using Replacements = absl::flat_hash_map<const UOp*, const UOp*>;

// One of its stores, or of sums of what all points of one place store (SumsPoints).
struct DraftStore {
  const UOp* node = nullptr;   // of the tensor graph
  const UOp* place = nullptr;  // i64
  const UOp* value = nullptr;
  bool sums = false;
};

// GLOBALs are numbered over all kernels (Merger::node_of_).
struct Draft {
  std::vector<const UOp*>
      ranges;  // of outputs, outermost first; those of a store are its first ones
  std::vector<DraftStore> stores;
  absl::flat_hash_set<const UOp*> reads;  // tensor nodes, before anything was fused
  const UOp* then = nullptr;              // a second kernel: this one stays alone
  bool has_loop = false;
  int loops = 0;        // ranges of reductions, shared ones counted again
  bool streams = true;  // no loop goes over an input more than once
  bool scores = false;  // computes a reduction again in each step of another one (attention.h)
  size_t rows =
      SIZE_MAX;  // ranges of the fewest that a kernel with a loop brought: these are tasks
  bool renumber = false;
  int64_t nodes = 0;  // at most, shared ones counted again
  double size = 0;    // as optimize::kKernelSizeMax counts; shared operations counted again
};

// Of one extent, and to one end.
bool SameLength(const UOp* a, const UOp* b);

// The same loop by another id.
const UOp* WithId(Graph& graph, const UOp* range, int64_t id);

double Points(const std::vector<const UOp*>& ranges);
bool StartsWith(const std::vector<const UOp*>& ranges, const std::vector<const UOp*>& first);

// Whether one of the ranges behind the first `rows` can end before it begins: a store that is made
// once for each row would then be left out with it.
bool MayBeEmptyBehind(const std::vector<const UOp*>& ranges, size_t rows);

// The replacements that turn `place` into `index`, which has loops in the place of some output
// ranges: x[r, c] read as x[r, k] gives c -> k.
std::optional<Replacements> MatchPlace(const UOp* place, const UOp* index);

// Operations for each element of `value` that depend on the ranges to be replaced; nullopt where a
// reduction does.
std::optional<double> CostAgain(const UOp* value, const Replacements& by, const CostTable& costs);

// How many reductions are below each one, at most: two of one depth do not use each other.
absl::flat_hash_map<const UOp*, int> Depths(const std::vector<const UOp*>& values);

// Ranges of the loops around other reductions, by id.
std::vector<const UOp*> ScoreLoops(const std::vector<const UOp*>& values);

}  // namespace outboard::schedule
