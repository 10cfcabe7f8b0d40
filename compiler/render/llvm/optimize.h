// The passes that every target runs over a module of one kernel.
#pragma once

#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

#include "absl/status/status.h"

namespace outboard::render {

// Makes registers of private memory and, unless `no_opt`, simplifies. Errors: INTERNAL if LLVM
// finds the module invalid (a bug of ours).
absl::Status OptimizeFunctions(llvm::Module& module, llvm::TargetMachine* machine, bool no_opt);

}  // namespace outboard::render
