// Transposes squares of vectors in registers.
#pragma once

#include <span>

#include "compiler/program/program.h"

namespace outboard::program {

// Exchanges rows and columns of `square`: as many vectors of one type as each has lanes, a power of
// two. Takes log2(n) rounds of n instructions, each of which makes a vector of lanes of two.
void Transpose(ProgramBuilder& b, std::span<ValueId> square);

}  // namespace outboard::program
