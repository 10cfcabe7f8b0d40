// An order of nodes that is the same in every process.
#pragma once

#include "compiler/ir/uop.h"

namespace outboard {

// An order of the nodes of one Graph by what they say, not by when or where they were made: ranges
// by their id, then variables, then other operations, constants last. Negative, 0 (the same node)
// or positive.
//
// Two nodes that agree in their first hundred places are ordered by creation; what comes
// of it is then only as reproducible as the steps that built the Graph.
int CompareStructure(const UOp* a, const UOp* b);

}  // namespace outboard
