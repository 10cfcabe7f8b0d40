// How the threads of a warp share a kernel without reductions that reads along another range than
// it writes, as a transposition or a copy to another layout does.
//
// Threads side by side along one of the two ranges touch a sector for each element of the other
// side. A tile of a warp that is some sectors long along both has whole ones on either side, and a
// tile of a thread has wide accesses on both.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler/kernel/access_profile.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_cost.h"
#include "compiler/target.h"

namespace outboard::codegen {

// What the threads of a block have of an output range: powers of two.
struct RangePart {
  int range = -1;
  int64_t values = 1;   // of a thread, next to each other; divides the extent
  int64_t threads = 1;  // of a warp
  int64_t warps = 1;    // of a block
};

// The output ranges but `along` in which loads of the body are consecutive that also depend on
// `along`, where they are not, and read at half of the body's points or more.
std::vector<int> RangesAcross(const LoopNest& kernel, optimize::LoopCost& cost, const Body& body,
                              int along);

// Parts of the range in which the stores are consecutive (`along`, where none is), of another range
// in which a load of as many elements is, and perhaps of a third one: those for which a warp has
// the fewest sectors and accesses for each element, as counted for a few of its places. Blocks are
// as square as whole warps allow, and of few warps where there would be less than one for each
// multiprocessor. None where no load is so. Accesses at places that are no sum of ranges are not
// counted; of very many ranges, accesses and candidates the most important and some.
std::optional<std::vector<RangePart>> ChooseTransposed(const LoopNest& kernel,
                                                       const Target& target,
                                                       optimize::LoopCost& cost, int along);

}  // namespace outboard::codegen
