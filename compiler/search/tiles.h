// The moves of the search among tiles of a GPU's matrix units: MMA, WGMMA and ONLINE (opt.h), each
// of which is a list of one Opt.
#pragma once

#include <vector>

#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/opt.h"
#include "compiler/search/neighbours.h"
#include "compiler/target.h"

namespace outboard::search {

// Whether these Opts are such a tile.
bool IsTile(const std::vector<codegen::Opt>& opts);

// The legal tiles of the same kind that differ from `tile` by one number, or by two where one side
// of a tile grows and the other shrinks. `cost`: rounds of blocks by what a block computes; what a
// tile's shape costs beside that is measured.
std::vector<Neighbour> TileNeighbours(const codegen::LoopNest& kernel, const codegen::Opt& tile,
                                      const Target& target);

}  // namespace outboard::search
