// Planned kernels to x86-64 objects: what the rest of the compiler sees of LLVM. The target
// is this machine unless the caller names another.
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"

namespace outboard::render {

// One processor's code generator. Threads: one at a time.
class X86Renderer {
 public:
  virtual ~X86Renderer() = default;

  virtual const codegen::Machine& machine() const = 0;
  // A relocatable object that defines `symbol`, as compiled_kernel.h says. `ir`, unless null,
  // receives what was written for LLVM, before its passes.
  // Errors: UNIMPLEMENTED  an operation without code for its type
  //         INTERNAL       LLVM refused what was written
  virtual absl::StatusOr<std::string> Render(const codegen::LoopNest& kernel,
                                             const codegen::LoopPlan& plan,
                                             const std::string& symbol, bool no_opt,
                                             std::string* ir) = 0;
};

// Both empty: this machine. Errors: INVALID_ARGUMENT, a processor that LLVM does not know.
absl::StatusOr<std::unique_ptr<X86Renderer>> MakeX86Renderer(const std::string& cpu,
                                                             const std::string& features);

}  // namespace outboard::render
