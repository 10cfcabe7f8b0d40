// Decides which kernels are products by warpgroups (product.h), and in which tiles: those whose
// operands are plain loads that a view can describe, where that is estimated to be faster than MMA.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/operands/mma_tile.h"
#include "compiler/program/hopper/product.h"
#include "compiler/program/program.h"
#include "compiler/target.h"

namespace outboard::program {

// A kernel's product, as boxes of its operands and tiles of its result.
struct HopperPlan {
  codegen::MmaProduct product;
  HopperShape shape;
  HopperTile tile;
};

// Returns the shape of a product whose operands are loads that boxes of a view can copy: each one's
// index is a sum of one range of steps, one of rows or columns and up to two of the batch, of which
// one of the first two is contiguous and the others are multiples of 16 bytes apart; no gate.
// Errors: UNIMPLEMENTED, names what is otherwise.
absl::StatusOr<HopperShape> HopperShapeOf(const codegen::LoopNest& kernel,
                                          const codegen::MmaProduct& product);

// Returns the plan in tiles of our choice, or none where the target has no warpgroups that
// multiply, the operands are no such loads, or `instead` takes less time by our estimate: small
// products, which small tiles divide among more multiprocessors.
std::optional<HopperPlan> PlanHopper(const codegen::LoopNest& kernel, const Target& target,
                                     const codegen::MmaPlan& instead);

// Lowers the plan; what the kernel stores is computed from each sum in the thread that has it.
Program LowerHopper(const codegen::LoopNest& kernel, const HopperPlan& plan);

}  // namespace outboard::program
