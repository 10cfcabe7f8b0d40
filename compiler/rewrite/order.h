// A total order of nodes that is the same in every process. The simplifier sorts terms and
// conditions by it, so that canonical forms do not depend on addresses.
#pragma once

#include "compiler/ir/uop.h"

namespace outboard {

// Compares two nodes of one Graph by their structure, not by when or where they were made: ranges
// by their id, then variables, then other operations, constants last. Returns a negative number, 0
// (the same node) or a positive number.
//
// Two nodes that agree in the first hundred nodes compared are ordered by creation; the order is
// then only as reproducible as the steps that built the Graph.
int CompareStructure(const UOp* a, const UOp* b);

}  // namespace outboard
