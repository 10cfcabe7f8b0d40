// Prints a program (compiler/program/program.h) as an LLVM function, instruction by instruction.
#pragma once

#include <llvm/IR/Module.h>

#include <string>

#include "absl/status/status.h"
#include "compiler/program/program.h"

namespace outboard::render {

// Adds `void name(ptr buffers, i64 task_begin, i64 task_end)` to `module`, as compiled_kernel.h
// specifies; the program's blocks are the tasks. What stands before the first instruction that
// reads the block's number or stores to a buffer is the same in all blocks, and runs once per call.
// Errors: UNIMPLEMENTED  the program needs threads, memory of a block, or an instruction that has
//                        no form on x86-64; the message names it
absl::Status PrintProgram(const program::Program& program, const std::string& name,
                          llvm::Module& module);

}  // namespace outboard::render
