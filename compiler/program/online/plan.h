// Decides which kernels run online on blocks of threads (compiler/optimize/operands/online.h), with
// products by matrix units, and in which tiles:
//
//   for each tile of rows                       a block; each warp has 16 or 32 rows of its own
//     for each few steps of the loop
//       the matrices of these steps             to shared memory, while those before are used
//       scores                                  products of rows and steps, in registers
//       maxima, sums                            of a row's scores, carried in registers
//       results                                 products of values of scores and matrices of steps
//
// Such a kernel has reductions over one common range, the steps. Inside of these there are others,
// the scores: sums of products of two numbers, one of the row, one of the step, both widened ones
// of bf16 or f16, or both f32, which go to the unit as two TF32 each. What is computed from scores,
// element by element, is any expression: nothing here knows of a softmax or a mask. A matrix is in
// memory, or is unpacked from there, element by element, as keys of 8 bits with a scale are.
//
// Rows of results may be added beside them (compiler/kernel/row_sums.h): 16 at a time, as one warp
// has them.
//
// Results with more columns than a thread has registers for are divided: a block has a part of the
// columns, and each computes the scores of its rows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"
#include "compiler/optimize/opt.h"
#include "compiler/program/expand.h"
#include "compiler/program/program.h"
#include "compiler/target.h"

namespace outboard::program {

// A matrix that products read from shared memory: a LOAD whose elements are copied as they are,
// with zeros where its gate is false; or a value that is computed from LOADs, with its type or of 8
// bits, by the threads that would copy it. Its lines there are its rows or steps, `width` elements
// long, or (`across`) the other way round, as in the buffer.
struct OnlineMatrix {
  const UOp* value = nullptr;
  const UOp* load = nullptr;  // the value itself, where it is copied
  bool of_rows = false;    // else of steps
  std::vector<int> other;  // ranges, the last one varying fastest
  int64_t width = 1;       // their extent
  bool across = false;
  int64_t run = 1;  // elements that are copied, or computed, at a time
};

// The width of its lines, a multiple of what MMA takes.
inline int64_t OnlinePadded(int64_t width) { return (width + 15) / 16 * 16; }

// A sum of products of a row and a step, over the `other` ranges of both matrices.
struct OnlineScore {
  const UOp* sum = nullptr;
  size_t rows = 0, steps = 0;  // matrices
};

// A sum over the steps of products of a value of the row and step, of the matrices' type, and a
// matrix.
struct OnlineProduct {
  const UOp* sum = nullptr;
  const UOp* value = nullptr;
  size_t matrix = 0;
};

// One pass over the steps: a phase of codegen::Online.
struct OnlinePass {
  std::vector<size_t> scores, matrices;  // that it computes, and those of steps that it reads
};

// A warp has `fragments` times 16 rows; `steps` are multiplied in an iteration, and meanwhile those
// of the next `stages` - 1 iterations are copied. By warpgroups of sm_90a, four warps each, where
// `groups`: one more copies. `parts` blocks divide the columns of the results.
struct OnlineTile {
  int64_t warps = 4, fragments = 1, steps = 64, stages = 2;
  bool groups = false;
  int64_t parts = 1;

  int64_t rows() const { return 16 * warps * fragments; }
  int64_t threads() const { return 32 * warps + (groups ? kWarpgroupThreads : 0); }
  bool operator==(const OnlineTile&) const = default;
};

struct OnlinePlan {
  codegen::LoopNest kernel;      // with what does not vary along the steps out of its sums
  int range = -1;                // the steps
  std::vector<int> batch, rows;  // output ranges: of all matrices, of those of rows
  std::vector<int> columns;      // the others, of results
  int64_t batches = 1, row_count = 1, column_count = 1;
  DType dtype = DType::kVoid;  // of all matrices: bf16, f16 or f32
  std::vector<OnlineMatrix> matrices;
  std::vector<OnlineScore> scores;
  std::vector<OnlineProduct> products;
  codegen::Online online;
  std::vector<OnlinePass> passes;  // by phase
  codegen::VisibleSteps visible;
  OnlineTile tile;

  // Views of matrices that are copied in boxes.
  int64_t maps() const { return tile.groups ? static_cast<int64_t>(matrices.size()) : 0; }

  // That a value is computed from, also if it is none of the kernel's nodes.
  codegen::RangeSet RangesIn(const UOp* value) const;
  const OnlineProduct* ProductOf(const UOp* sum) const;
  // Of a pass, in the order in which they are computed.
  std::vector<const OnlineProduct*> ProductsOf(size_t pass) const;
  // The last pass that a STORE needs the reductions of: it is stored behind it, so that its sums
  // have no registers in later ones.
  size_t PassOf(const UOp* store) const;
};

// Of a tile, the amount of an Opt ONLINE: three digits for steps, one each for fragments and stages
// behind the number of warps: 406412 is 4 warps, 64 steps, 1 fragment, 2 stages. By warpgroups
// there is a 1 before two digits for warps: 10812812 is 8 warps, 128 steps. Parts, less one, come
// before these eight: 110803212 is the same of 32 steps, in two parts.
int64_t OnlineAmount(const OnlineTile& tile);
OnlineTile OnlineTileOf(int64_t amount);

// Returns the plan that `opts` ask for (a single ONLINE), or, without `opts`, the one that we
// choose; none if the kernel is to be computed otherwise.
// Errors, for an Opt alone: INVALID_ARGUMENT    names the condition that the kernel or tile misses
//                           RESOURCE_EXHAUSTED  names what a block has too little of
absl::StatusOr<std::optional<OnlinePlan>> PlanOnline(const codegen::LoopNest& kernel,
                                                     const Target& target,
                                                     const std::vector<codegen::Opt>* opts);

// Returns whether a kernel, if it computes reductions inside of others, has such a plan on this
// target: else each element of its results would compute them again.
bool ComputesScores(const UOp* kernel, const Target& target);

// Returns whether a kernel with stores of sums (compiler/kernel/row_sums.h) has such a plan.
bool ComputesSumsOfOnline(const UOp* kernel, const Target& target);

absl::StatusOr<Program> LowerOnlineMma(const OnlinePlan& plan);
// The same for tiles of warpgroups.
absl::StatusOr<Program> LowerOnlineHopper(const OnlinePlan& plan);
// Expands the plan to blocks of threads with matrix units. Errors: as of ExpandPlan.
absl::StatusOr<Program> ExpandOnline(const OnlinePlan& plan,
                                     std::vector<PassResult>* passes = nullptr);

}  // namespace outboard::program
