// The parts of a condition that all hold where it holds.
// Pure functions.
#pragma once

#include <vector>

#include "compiler/ir/uop.h"

namespace outboard {

// Returns the conditions of which the bool `condition` is the conjunction (AND), each once, from
// left to right. Iterative, and linear in the nodes, however often ANDs share their operands.
std::vector<const UOp*> ConjunctsOf(const UOp* condition);

}  // namespace outboard
