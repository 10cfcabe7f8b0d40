// Panels: values that are reductions themselves and that other reductions read along one of their
// loops, such as the scores of attention. In plain loops each use recomputes them. A panel is
// computed once for a tile of rows, for all steps of the loop that reads it, and stored in memory
// of the thread's own:
//
//   for each tile of rows                  the output ranges that the panel depends on
//     for each few steps of the loop       Panel::tile, whose products are kept in registers
//       panel[step][row] = value
//     reductions that read it
//     for each tile of other outputs
//       reductions that read it
//
// Rows are adjacent in memory, so a vector of rows is written and read as one run.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"
#include "compiler/optimize/operands/staging.h"

namespace outboard::codegen {

// Returns the values that may be panels, each after those that it reads, in the order in which Opts
// number them. Such a value has float type, depends on one loop, and a reduction, or another such
// value, reads it unchanged. A loop that ends at a VAR has no tiles in plain loops; with `ends`
// (online kernels on blocks of threads) values may depend on such loops.
std::vector<const UOp*> PanelsOf(const LoopNest& kernel, bool ends = false);

// Returns the loop that a panel's value depends on, as an index into LoopNest::ranges.
int PanelRange(const LoopNest& kernel, const UOp* value);

// When and where a panel of a plan is computed, and where it lies.
struct PanelPlace {
  size_t level = 0;  // output loops that are open
  size_t group = 0;  // before this group of that level, after the groups that it reads
  StageLayout layout;
  // Offset into the memory of all panels. After its last use, the memory of a panel is reused for
  // another one of the same size, even for one that reads it element by element.
  int64_t first_byte = 0;
};

// The placement of each panel of the plan, in the order of PanelsOf, and the bytes of all of them.
struct PanelPlaces {
  std::vector<PanelPlace> places;
  int64_t bytes = 0;
};
PanelPlaces PlacePanels(const LoopNest& kernel, const LoopPlan& plan);

}  // namespace outboard::codegen
