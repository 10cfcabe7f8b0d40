// Guards: the condition under which a value is loaded. nullptr means "always".
// Pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/uop.h"

namespace outboard::schedule {

// Returns the conjunction of `a` and `b`.
const UOp* AndGuards(Graph& graph, const UOp* a, const UOp* b);

// Returns 0 <= index < extent, leaving out what the bounds of both already prove.
const UOp* InRange(Graph& graph, const UOp* index, const Dim& extent);

// Appends the conjuncts of `guard` to `conditions`.
void AppendConditions(const UOp* guard, std::vector<const UOp*>& conditions);

// True if `node` contains `range`.
bool DependsOn(const UOp* node, const UOp* range);

}  // namespace outboard::schedule
