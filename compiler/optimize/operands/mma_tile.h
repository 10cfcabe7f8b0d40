// How a product of matrices is divided among the blocks and warps of a GPU.
//
// A block computes a tile of `rows` by `columns`, `steps` steps an iteration: while these are
// multiplied, those of the next `stages` - 1 iterations are on their way to shared memory. Its
// warps stand in a rectangle, `warps_down` by `warps_across`, and share the tile evenly. Blocks
// that come one after the other take `order` tiles below each other, then the same of the next
// columns: those that run at the same time read few different rows and columns, which the second
// cache holds.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/matrix_unit.h"
#include "compiler/optimize/operands/mma.h"
#include "compiler/optimize/opt.h"
#include "compiler/target.h"

namespace outboard::codegen {

// As described above: elements, and numbers of warps and stages.
struct MmaTile {
  int64_t rows = 0, columns = 0, steps = 0;
  int64_t warps_down = 1, warps_across = 1;
  int64_t stages = 2;
  int64_t warp_threads = kWarpThreads;  // the unit's: no choice
  // Divides the number of tiles below each other. 0: the largest of 8, 4, 2 and 1 that does.
  int64_t order = 0;

  int64_t threads() const { return warp_threads * warps_down * warps_across; }
  bool operator==(const MmaTile&) const = default;
};

// A product of a kernel, and how it is divided: all that its lowering needs.
struct MmaPlan {
  MmaProduct product;
  MmaTile tile;
  MatrixUnit unit = MatrixUnit::kMma;
};

// Of a tile, the amount of an Opt MMA: three digits each for rows, columns and steps, one each for
// warps and stages: 128128032223 is 128 by 128, 32 steps, 2 by 2 warps, 3 stages. The order comes
// before these twelve, if it is not 0: 16128128032223.
int64_t MmaAmount(const MmaTile& tile);
MmaTile MmaTileOf(int64_t amount);

// The matrix unit of a GPU. nullopt: it has none, or none that is known here.
std::optional<MatrixUnit> MatrixUnitOf(const Target& target);

// Whether an Opt MMA or WGMMA may name this axis: one that the first reduction sums over. Where
// several sums are added, the tile is that of all of them.
bool IsSummedOver(const LoopNest& kernel, int64_t axis);

// Whether three products of TF32 by matrix units take less time than one of f32 by threads.
bool ThreeProductsPay(const Target& target);

// The tiles below each other that blocks take before the next columns, of `down` in all.
int64_t OrderOf(const MmaTile& tile, int64_t down);

// Checks that a block of the target has the threads, the shared memory and the registers.
// Errors: INVALID_ARGUMENT    sizes that do not fit each other or the instructions
//         RESOURCE_EXHAUSTED  names what there is too little of, with limit and need
absl::Status CheckMmaTile(const MmaProduct& product, const MmaTile& tile, const Target& target);

// Whether the threads of a block share the copies of each operand evenly.
bool TileSharesCopies(const MmaProduct& product, const MmaTile& tile);

// The tile that takes the least time by our estimate: the blocks that one of the multiprocessors
// has, times what a block of that size takes beside the others that run there at once. None where
// the product is too small for a matrix unit, or nothing fits.
std::optional<MmaTile> ChooseMmaTile(const MmaProduct& product, const Target& target);

// Returns the plan that `opts` ask for, or, without `opts`, the one that we choose; none if the
// kernel is to be computed without a matrix unit. Errors: as of CheckMmaTile and FindMmaProduct,
// for an Opt MMA alone.
absl::StatusOr<std::optional<MmaPlan>> PlanMma(const LoopNest& kernel, const Target& target,
                                               const std::vector<Opt>* opts);

}  // namespace outboard::codegen
