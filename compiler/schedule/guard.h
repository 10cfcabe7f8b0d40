// Conditions under which something is read; nullptr stands for "always".
#pragma once

#include <cstdint>
#include <vector>

#include "compiler/ir/uop.h"

namespace outboard::schedule {

// Both hold.
const UOp* JoinGuards(Graph& graph, const UOp* a, const UOp* b);

// 0 <= index < extent, as far as the bounds of both leave it open.
const UOp* InRange(Graph& graph, const UOp* index, const Dim& extent);

// Appends the conditions that `guard` joins by AND.
void AppendConditions(const UOp* guard, std::vector<const UOp*>& conditions);

// Whether the expression holds the range.
bool DependsOn(const UOp* node, const UOp* range);

}  // namespace outboard::schedule
