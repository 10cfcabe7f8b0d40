// Generates an LLVM function for one kernel and its loop plan.
//
// Each open loop is a scope, and a value is emitted in the scope of the innermost loop that it
// depends on, once for each piece of the tiles that it depends on. So loop invariants are hoisted
// and loads are shared across a register tile before LLVM's passes run.
#pragma once

#include <llvm/IR/Module.h>

#include <string>

#include "absl/status/status.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"

namespace outboard::render {

// Adds `void name(ptr buffers, i64 task_begin, i64 task_end)` to `module`.
// Errors: UNIMPLEMENTED, an operation without code for its type.
absl::Status EmitKernel(const codegen::LoopNest& kernel, const codegen::LoopPlan& plan,
                        const std::string& name, llvm::Module& module);

}  // namespace outboard::render
