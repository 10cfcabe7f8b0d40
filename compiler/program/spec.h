// Which programs are legal. Passes check their results by it, in release too.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "compiler/program/program.h"

namespace outboard::program {

enum class Phase {
  kExpanding,  // loops may still be marked to be unrolled or to become lanes
  kFinal,
};

// Sources: known, in scope, of the types and lanes that program.h says. Memory of a block is
// allocated outside of scopes; a barrier and an MMA stand where all threads of a block come by,
// that is in no IF and no LOOP whose condition or limit may differ from thread to thread.
//
// Errors: INTERNAL  names the pass that has made the program, the rule, and the instruction
absl::Status CheckProgram(const Program& program, std::string_view pass,
                          Phase phase = Phase::kFinal);

}  // namespace outboard::program
