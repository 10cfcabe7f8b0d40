// The moves of the search: the lists of Opts that differ from a given one by one step. ApplyOpts
// decides which are legal. What they cost is estimated by LoopCost (optimize/loop_cost.h) for
// processors and by ThreadCost (neighbours.cc) for blocks of threads. Tiles of a GPU's matrix units
// are legal where PlanMma and PlanHopper say so, and tiles.h estimates them.
#pragma once

#include <vector>

#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"
#include "compiler/optimize/opt.h"

namespace outboard::search {

// Increment it when the meaning of an Opt or the neighbours of a list change, when the heuristic's
// lists or the generated code have become clearly faster, or when kernels are loaded or timed in
// another way: searches finished under another version are not finished under this one.
inline constexpr int kSpaceVersion = 11;

// A legal list that differs from `opts` by one move: another amount, another register tile, one Opt
// more or less. Block sizes are adjusted to the tiles inside. Neighbours returns all of them in a
// fixed order, each once, without `opts` itself; none if `opts` is not legal.
struct Neighbour {
  std::vector<codegen::Opt> opts;
  double cost = 0;  // an estimate: which to try first
};
std::vector<Neighbour> Neighbours(const UOp* sink, const std::vector<codegen::Opt>& opts,
                                  const Target& target);

}  // namespace outboard::search
