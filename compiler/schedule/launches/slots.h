// Kernels that are equal but for the order in which they number their buffers become equal, so that
// GroupLaunches (group.h) can put them together. Slots are numbered in the order of use, and
// factors and terms stand in the order of slots: x * y of one kernel may be y * x of another.
#pragma once

#include <vector>

#include "compiler/ir/uop.h"
#include "compiler/schedule/fuse_kernels.h"

namespace outboard::schedule {

// Each kernel gets the graph and the slots of the first one that it is equal to; one that is equal
// to none stays as it is. What is stored keeps its slots. Bits stay those that they were: only the
// operands of commutative operations change places. Deterministic. Stops, with what it has, when
// `graph` is close to its limit of nodes.
void NumberSlotsAlike(Graph& graph, std::vector<FusedKernel>& kernels);

}  // namespace outboard::schedule
