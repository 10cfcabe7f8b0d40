// Conditions under which something is read; nullptr stands for "always".
#pragma once

#include <cstdint>

#include "compiler/ir/uop.h"

namespace outboard::schedule {

// Both hold.
const UOp* JoinGuards(Graph& graph, const UOp* a, const UOp* b);

// 0 <= index < extent, as far as the bounds of `index` leave it open.
const UOp* InRange(Graph& graph, const UOp* index, int64_t extent);

}  // namespace outboard::schedule
