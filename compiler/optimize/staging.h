// Where the elements of a staged load lie in the thread's own memory: block by block as the loops
// inside the stage read them, and inside a block with the vector's lanes last. A vector is then one
// run, and what a tile reads in one step follows what it read in the step before: one stream of few
// pages, whatever the strides of the source are.
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
  bool open = false;     // its loop is around the stage: only what the tile holds is copied
  bool blocked = false;  // a longer block is open: `origin` is its start, else 0
  int64_t per_value = 0;
  int64_t inside = 0;
};

struct StageLayout {
  std::vector<StageDim> dims;  // output ranges first, each kind by its loops, outermost first
  int64_t elements = 0;
  int element_bytes = 0;  // as in a register: small floats are kept as f32; bf16 of a TensorCore
                          // as such, in the order that tensor_core.h says

  // Rounded up so that copies that follow each other start at a cache line.
  int64_t bytes() const { return (elements * element_bytes + 63) / 64 * 64; }
};

// Whether the load may be copied before it is used. Errors: INVALID_ARGUMENT, says why not.
absl::Status CanStage(const LoopNest& kernel, const UOp* load);

// `stage` is legal (apply.cc), and every tile in the plan is what it will be.
StageLayout LayOut(const LoopNest& kernel, const LoopPlan& plan, const Stage& stage);
// A panel: the values of the tile of rows, step after step of the loop.
StageLayout LayOut(const LoopNest& kernel, const LoopPlan& plan, const Panel& panel);

}  // namespace outboard::codegen
