#include "compiler/render/llvm/optimize.h"

#include <llvm/Analysis/AliasAnalysis.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/Instructions.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/SROA.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace outboard::render {

absl::Status OptimizeFunctions(llvm::Module& module, llvm::TargetMachine* machine, bool no_opt) {
  std::string error;
  llvm::raw_string_ostream stream(error);
  if (llvm::verifyModule(module, &stream))
    return absl::InternalError(absl::StrCat("LLVM refuses a kernel: ", error));
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::SROAPass(llvm::SROAOptions::ModifyCFG));
  if (!no_opt) {
    passes.addPass(llvm::EarlyCSEPass());
    passes.addPass(llvm::InstCombinePass());
    passes.addPass(llvm::SimplifyCFGPass());
  }
  for (llvm::Function& function : module)
    if (!function.isDeclaration()) passes.run(function, functions);
  return absl::OkStatus();
}

absl::Status OptimizeInRegisters(llvm::Module& module, llvm::TargetMachine* machine, bool no_opt) {
  OB_RETURN_IF_ERROR(OptimizeFunctions(module, machine, no_opt));
  for (const llvm::Function& function : module)
    for (const llvm::Instruction& instruction : llvm::instructions(function))
      OB_CHECK(!llvm::isa<llvm::AllocaInst>(instruction));
  return absl::OkStatus();
}

std::string TextOf(const llvm::Module& module) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  module.print(stream, nullptr);
  return text;
}

absl::StatusOr<std::string> EmitFile(llvm::Module& module, llvm::TargetMachine* machine,
                                     llvm::CodeGenFileType type) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  if (machine->addPassesToEmitFile(passes, stream, nullptr, type))
    return absl::InternalError("LLVM cannot write a kernel's file");
  passes.run(module);
  return std::string(bytes.begin(), bytes.end());
}

}  // namespace outboard::render
