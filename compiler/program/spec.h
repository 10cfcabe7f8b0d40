// Defines which programs are legal: sources, types, scopes and the uniform control flow around
// barriers. The result of every pass is checked, in release builds too.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "compiler/program/program.h"

namespace outboard::program {

enum class Phase {
  kExpanding,  // loops may still be marked to be unrolled or to become lanes
  kFinal,
};

// Checks that sources exist, are in scope, and have the types and lanes that program.h requires;
// that memory of a block is allocated outside of all scopes; and that all threads of a block reach
// each barrier, MMA and LDMATRIX, that is, no IF or LOOP around it has a condition or limit that
// may differ between threads; nor between those of a warpgroup around what a warpgroup runs
// together.
//
// Errors: INTERNAL  names the pass that made the program, the rule, and the instruction
absl::Status CheckProgram(const Program& program, std::string_view pass,
                          Phase phase = Phase::kFinal);

}  // namespace outboard::program
