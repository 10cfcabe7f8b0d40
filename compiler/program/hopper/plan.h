// Decides which kernels are products by warpgroups (product.h), and in which tiles: those whose
// operands are loads that a view can describe, or that can be gathered, where that is estimated to
// be faster than MMA.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/operands/mma_tile.h"
#include "compiler/optimize/opt.h"
#include "compiler/program/hopper/product.h"
#include "compiler/program/program.h"
#include "compiler/target.h"

namespace outboard::program {

// A store of the kernel whose values leave in boxes.
struct BoxedStore {
  const UOp* store = nullptr;
  HopperResult result;
};

// A kernel's product, as boxes of its operands and tiles of its result.
struct HopperPlan {
  codegen::MmaProduct product;
  HopperShape shape;
  HopperTile tile;
  std::vector<BoxedStore> boxed;  // as shape.results; all other stores are done directly
};

// Of a tile, the amount of an Opt WGMMA: three digits for columns, one each for stages, blocks of a
// cluster, parts of sums and whether blocks persist (1: as many as there are multiprocessors), two
// for rows of tiles that follow each other. 256421108: 256 columns, 4 stages, clusters of 2, sums
// in one part, persistent blocks, 8 rows.
int64_t WgmmaAmount(const HopperTile& tile);
HopperTile WgmmaTileOf(int64_t amount, const Target& target);

// Returns the shape of a product whose operands are loads. Boxes of a view can copy one whose index
// is a sum of its steps, its rows or columns and up to two ranges of the batch, of which one of the
// first two is contiguous and the others are multiples of 16 bytes apart, and which has no gate.
// Several ranges of steps, rows or columns that follow each other in memory are one; or they are
// two, of which tiles and stages divide the inner one. Any other operand of 16 bits is gathered,
// with zeros where its gate is false; not one of several products that are added.
// Errors: UNIMPLEMENTED, names what is otherwise.
absl::StatusOr<HopperShape> HopperShapeOf(const codegen::LoopNest& kernel,
                                          const codegen::MmaProduct& product);

// Whether rows, columns or the batch end at a VAR: tiles beyond that are left out.
bool OutputsEndEarly(const codegen::LoopNest& kernel, const codegen::MmaProduct& product);

// Returns the stores that boxes can do, up to two of one type: into a view as above, whose buffer
// the kernel does not read, of values that are computed from no buffer that the kernel stores to.
// All other stores of a tile are done first.
std::vector<BoxedStore> BoxedStoresOf(const codegen::LoopNest& kernel,
                                      const codegen::MmaProduct& product);

// Returns the plan in tiles of this kind. Errors: as HopperShapeOf and CheckHopperShape.
absl::StatusOr<HopperPlan> MakeHopperPlan(const codegen::LoopNest& kernel,
                                          const codegen::MmaProduct& product,
                                          const HopperTile& tile);

// Whether a product that gathers is planned where we estimate it to be faster, or anyway: for a
// search, which measures.
enum class Gathers { kWhereFaster, kAnyway };

// Returns the plan that `opts` ask for (an Opt WGMMA alone). Without `opts` the one in tiles of our
// choice: the one that takes the least time by waves of blocks over the multiprocessors, or none
// where the target has no warpgroups that multiply, the operands are no such loads, the sum has
// less than two stages of steps, there is no plan by mma.sync (`mma`), or that one takes less time
// by our estimate. Errors: for an Opt WGMMA alone, as MakeHopperPlan.
absl::StatusOr<std::optional<HopperPlan>> PlanHopper(const codegen::LoopNest& kernel,
                                                     const Target& target,
                                                     const std::vector<codegen::Opt>* opts,
                                                     const std::optional<codegen::MmaPlan>& mma,
                                                     Gathers gathers = Gathers::kWhereFaster);

// Whether the kernel, as it is without Opts, is a product beside which its sums of rows
// (kernel/row_sums.h) are added, in the tile that it would have without them or one of 128 x 128.
// The schedule makes no others.
bool ComputesRowSums(const UOp* kernel, const Target& target);

// Lowers the plan; what the kernel stores is computed from each sum in the thread that has it.
Program LowerHopper(const codegen::LoopNest& kernel, const HopperPlan& plan);

}  // namespace outboard::program
