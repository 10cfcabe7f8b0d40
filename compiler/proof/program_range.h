// Proof that a program touches nothing outside its memories: the last look before text, at the
// instructions that are printed. As in_range.h, on which loops and conditions around an access, its
// mask included, bound its index; nothing that a pass believes is used.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "compiler/program/program.h"

namespace outboard::proof {

// The accesses, LOADs, STOREs and COPYs, that are not shown to be in range in every lane.
std::vector<program::ValueId> UnprovedAccesses(const program::Program& program);

// Errors: INTERNAL  shows the first of them.
absl::Status CheckInRange(const program::Program& program);

}  // namespace outboard::proof
