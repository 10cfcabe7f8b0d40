// What accesses of a program have in common: the beginnings of their indices, and the branches that
// they stand in.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "compiler/program/program.h"

namespace outboard::program {

// An index without the constants that are added to it last, and their sum.
std::pair<ValueId, int64_t> WithoutConstants(const Program& program, ValueId index);

// By instruction: whether it is an IF around nothing but LOADs, STOREs, what is pure, and such IFs.
std::vector<bool> BranchesOfAccesses(const Program& program);

}  // namespace outboard::program
