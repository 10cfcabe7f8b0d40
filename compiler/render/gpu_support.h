// What a program may not have for a GPU, whatever prints it: there is nothing like it there, or it
// would not fit in registers.
#pragma once

#include "absl/status/status.h"
#include "compiler/program/program.h"
#include "compiler/target.h"

namespace outboard::render {

bool IsPrivateAlloc(const program::Instruction& instruction);

// Errors: UNIMPLEMENTED  names the instruction, the type or the limit
absl::Status CheckForGpu(const program::Program& program, const Target& target);

}  // namespace outboard::render
