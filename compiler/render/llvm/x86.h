// Planned kernels to x86-64 objects: what the rest of the compiler sees of LLVM. Nothing here asks
// which processor it runs on (compiler/target.h).
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/loop_plan.h"
#include "compiler/target.h"

namespace outboard::render {

// One processor's code generator. Threads: one at a time.
class X86Renderer {
 public:
  virtual ~X86Renderer() = default;

  virtual const Target& target() const = 0;
  // A relocatable object that defines `symbol`, as compiled_kernel.h says. `ir`, unless null,
  // receives what was written for LLVM, before its passes.
  // Errors: UNIMPLEMENTED  an operation without code for its type
  //         INTERNAL       LLVM refused what was written
  virtual absl::StatusOr<std::string> Render(const codegen::LoopNest& kernel,
                                             const codegen::LoopPlan& plan,
                                             const std::string& symbol, bool no_opt,
                                             std::string* ir) = 0;
};

// Errors: INVALID_ARGUMENT  a target that is no x86-64, that LLVM does not know, or whose vectors
//                           or products of bf16 its features do not have
absl::StatusOr<std::unique_ptr<X86Renderer>> MakeX86Renderer(Target target);

// What LLVM knows of a processor by its name for it, and with more or fewer features ("+a,-b"): for
// code that is to run elsewhere. No caches, and one thread.
// Errors: INVALID_ARGUMENT  LLVM does not know it
absl::StatusOr<Target> NamedTarget(const std::string& arch, const std::string& features);

}  // namespace outboard::render
