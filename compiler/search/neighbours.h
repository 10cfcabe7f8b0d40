// The moves of the search: lists of Opts that differ from one by little. Legality is ApplyOpts' to
// say; what each is likely to cost, LoopCost's (optimize/loop_cost.h).
#pragma once

#include <vector>

#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"
#include "compiler/optimize/opt.h"

namespace outboard::search {

// Raised when an Opt means something else, the neighbours of a list are others, or the heuristic's
// lists or the code of a list have become clearly faster: a search that has ended in another space
// has not ended in this.
inline constexpr int kSpaceVersion = 2;

// Every list that is legal for the kernel and comes from `opts` by one move: another amount,
// another register tile, an Opt more or one less. Block sizes follow the tiles that they hold. In a
// fixed order, each once, `opts` itself not among them; none where `opts` is not legal.
struct Neighbour {
  std::vector<codegen::Opt> opts;
  double cost = 0;  // LoopCost::PlanCost: which to try first
};
std::vector<Neighbour> Neighbours(const UOp* sink, const std::vector<codegen::Opt>& opts,
                                  const Target& target);

}  // namespace outboard::search
