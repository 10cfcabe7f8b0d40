// Renders programs as x86-64 objects: the interface between LLVM and the rest of the
// compiler. Nothing here queries the processor it runs on (compiler/target.h).
#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/program/program.h"
#include "compiler/target.h"

namespace outboard::render {

// One processor's code generator. Threads: one at a time.
class X86Renderer {
 public:
  virtual ~X86Renderer() = default;

  // Returns a relocatable object that defines `symbol`, as compiled_kernel.h specifies; the
  // program's blocks are the tasks. `ir`, unless null, receives the LLVM IR before LLVM's passes.
  // Errors: UNIMPLEMENTED  an operation without code for its type
  //         INTERNAL       LLVM refused what was written
  virtual absl::StatusOr<std::string> Render(const program::Program& program,
                                             const std::string& symbol, bool no_opt,
                                             std::string* ir) = 0;
};

// Errors: INVALID_ARGUMENT  a target that is no x86-64, that LLVM does not know, or whose vectors
//                           or products of bf16 its features do not have
absl::StatusOr<std::unique_ptr<X86Renderer>> MakeX86Renderer(const Target& target);

// Returns the target that LLVM describes for a processor name with features added or removed
// ("+a,-b"): for code that runs on another machine. It has no caches, and one thread.
// Errors: INVALID_ARGUMENT  LLVM does not know it
absl::StatusOr<Target> NamedTarget(const std::string& arch, const std::string& features);

}  // namespace outboard::render
