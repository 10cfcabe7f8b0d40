// Recognises a REDUCE that reads rows by an index (a one-hot comparison times rows): it reads one
// element where it seems to add thousands, so it counts as no work. The scheduler has its own,
// exact test; this one affects estimates only.
#pragma once

#include "compiler/ir/uop.h"

namespace outboard::shard {

bool IsGather(const UOp* reduce);

}  // namespace outboard::shard
