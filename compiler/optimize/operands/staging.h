// Lays out the elements of a staged load, or of a factor unpacked from loads, in the thread's own
// memory: block by block as the loops inside the stage read them, with the lanes of a vector last.
// A vector is then one run, and a tile reads consecutive memory from step to step: one stream of
// few pages, whatever the strides of the source are.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "compiler/optimize/loop_plan.h"

namespace outboard::codegen {

// One range that a staged load depends on. An element lies at the sum over the ranges of
// (base - origin) * per_value + offset * inside, where `base` is the first value of the tile's
// block, `offset` that of the piece, and `origin` the first value that is copied.
struct StageDim {
  int range = 0;
  const Tile* tile = nullptr;
  bool open = false;     // its loop encloses the stage: only the values of the tile are copied
  bool blocked = false;  // a longer block is open: `origin` is its start, else 0
  int64_t per_value = 0;
  int64_t inside = 0;
};

struct StageLayout {
  std::vector<StageDim> dims;  // output ranges first, each kind by its loops, outermost first
  int64_t elements = 0;
  int element_bytes = 0;  // as in a register: small floats are stored as f32; bf16 of a
                          // CpuMatrixUnit as such, in the order that cpu_matrix_unit.h defines

  // Rounded up so that consecutive copies start at a cache line.
  int64_t bytes() const { return (elements * element_bytes + 63) / 64 * 64; }
};

// A factor of a sum of products that is arithmetic on loads of fewer bytes than it has itself, such
// as weights of 8 or 4 bits with their scales: it may be copied as a number, so that it is unpacked
// once for each copy.
struct Unpacked {
  const UOp* value = nullptr;         // f32
  std::vector<const UOp*> loads;      // that it is made of; the one with most elements first
  std::vector<const UOp*> operations;  // arithmetic and casts
};
// In the order of LoopNest::nodes.
std::vector<Unpacked> UnpackedOf(const LoopNest& kernel);

// Checks that the load, or the unpacked value, may be copied before it is used. Errors:
// INVALID_ARGUMENT, with the reason.
absl::Status CanStage(const LoopNest& kernel, const UOp* value);

// Returns the range of a reduction, of a multiple of `lanes` values, along which an unconditional
// load of f32, or those of an unpacked value, read consecutive elements, or the same one; -1 if
// there is none. Where another range is in lanes, its copy is made by transposing squares of
// `lanes` by `lanes` in registers.
int SquaresAlong(const LoopNest& kernel, const UOp* value, int64_t lanes);

// Returns the layout of a staged load. Requires a legal `stage` (apply.cc) and the final tiles in
// `plan`.
StageLayout LayOut(const LoopNest& kernel, const LoopPlan& plan, const Stage& stage);
// Returns the layout of a panel: the values of the tile of rows, step by step of the loop.
StageLayout LayOut(const LoopNest& kernel, const LoopPlan& plan, const Panel& panel);

}  // namespace outboard::codegen
