// Which values are kept in memory. Everything else is computed where it is read.
//
// One walk from the results to the inputs estimates how often each value would be computed if it
// were not kept: a REDUCE multiplies the count of its source, an EXPAND leaves its source with more
// readings than elements, two users add up. A value is kept where that costs more than a trip
// through memory:
//
//   - a REDUCE with several users, or read more often than it has elements, or under another loop
//   it cannot join;
//   - what still holds such a REDUCE (its bias, its activation), once there is more than one user;
//   - a sum into places that data names (scatter.h): it is not computed where it is read;
//   - arithmetic that would be repeated many times for each element (the operand of a convolution);
//   - long arithmetic that two kernels would repeat.
//
// One-hot sums (collapse.h) are loads, not loops, and are never a reason to keep anything. They
// collapse only where their condition is seen: what a condition does with positions is computed
// where it is read, also if it is a result besides.
#pragma once

#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "compiler/ir/uop.h"
#include "compiler/target.h"

namespace outboard::schedule {

struct Choice {
  std::vector<const UOp*> kept;               // sources before users, without PARAMs
  absl::flat_hash_set<const UOp*> scattered;  // of the kept, those for LowerScatter
  absl::flat_hash_set<const UOp*>
      read_again;  // PARAMs aside, what is loaded where it is read: kept, but for conditions
};

// Results of `sink` are among the kept unless they have no elements; none of `never` (attention.h)
// is. Requires a graph as Prepare leaves it.
absl::StatusOr<Choice> ChooseMaterialized(Graph& graph, const UOp* sink, const Target& target,
                                          const absl::flat_hash_set<const UOp*>& never = {});

}  // namespace outboard::schedule
