// What every target does with a module of one kernel: passes over it, and its text or object. What
// a target does beside that is in its own file (x86.h, amdgpu/amdgpu.h).
#pragma once

#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace outboard::render {

// Makes registers of private memory and, unless `no_opt`, simplifies. Errors: INTERNAL if LLVM
// finds the module invalid (a bug of ours).
absl::Status OptimizeFunctions(llvm::Module& module, llvm::TargetMachine* machine, bool no_opt);

// The same for a GPU. Checks that all private memory became registers: a thread's stack would lie
// behind all caches.
absl::Status OptimizeInRegisters(llvm::Module& module, llvm::TargetMachine* machine, bool no_opt);

// LLVM's own text of the module, for people.
std::string TextOf(const llvm::Module& module);

// Returns the module as assembler text or as an object. Errors: INTERNAL if the target has no such
// file.
absl::StatusOr<std::string> EmitFile(llvm::Module& module, llvm::TargetMachine* machine,
                                     llvm::CodeGenFileType type);

}  // namespace outboard::render
