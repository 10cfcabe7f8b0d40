// Panels: values that reductions read along a loop of theirs and that are reductions themselves, as
// the scores of attention are. Where the kernel is left plain, each reading computes them again.
// A panel is computed once for a tile of rows, for all steps of the loop that reads it, and kept in
// memory of the thread's own:
//
//   for each tile of rows                  the output ranges that the panel depends on
//     for each few steps of the loop       Panel::tile, whose products are kept in registers
//       panel[step][row] = value
//     reductions that read it
//     for each tile of other outputs
//       reductions that read it
//
// Rows lie next to each other, so that a vector of rows is one run for whoever writes or reads it.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"
#include "compiler/optimize/staging.h"

namespace outboard::codegen {

// The values that may be panels, each after those that it reads, as Opts number them: what a
// reduction (or, at its end, one of these) takes as it is, of float type, over one loop.
std::vector<const UOp*> PanelsOf(const LoopNest& kernel);

// The loop that a panel's value depends on, into LoopNest::ranges.
int PanelRange(const LoopNest& kernel, const UOp* value);

// When and where a panel of a plan is computed, and where it lies.
struct PanelPlace {
  size_t level = 0;  // output loops that are open
  size_t group = 0;  // before this group of that level, after the groups that it reads
  StageLayout layout;
  // Into the memory of all panels. Those that nobody reads any more leave their place to others, of
  // the same size, also to one that reads them element by element.
  int64_t first_byte = 0;
};

// One for each panel of the plan, which are in the order of PanelsOf, and the bytes of all.
struct PanelPlaces {
  std::vector<PanelPlace> places;
  int64_t bytes = 0;
};
PanelPlaces PlacePanels(const LoopNest& kernel, const LoopPlan& plan);

}  // namespace outboard::codegen
