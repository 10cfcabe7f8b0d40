// LLVM's code generator for x86-64: optimises a module for one processor and turns it into a
// relocatable object.
#pragma once

#include <llvm/IR/Module.h>
#include <llvm/Target/TargetMachine.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "compiler/target.h"

namespace outboard::render {

class X86Target {
 public:
  // `cpu` and `features` are LLVM's names. Errors: INVALID_ARGUMENT, a processor that LLVM does not
  // know.
  static absl::StatusOr<std::unique_ptr<X86Target>> Create(const std::string& cpu,
                                                           const std::string& features);

  std::unique_ptr<llvm::Module> NewModule(llvm::LLVMContext& context) const;
  // Errors: INTERNAL if LLVM finds the module invalid (a bug of ours) or cannot emit it.
  absl::Status Optimize(llvm::Module& module, bool no_opt) const;
  absl::StatusOr<std::string> EmitObject(llvm::Module& module) const;

  // The processor as LLVM describes it: no caches, and one thread.
  const Target& has() const { return has_; }

 private:
  std::unique_ptr<llvm::TargetMachine> target_;
  Target has_;
};

}  // namespace outboard::render
