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

#include "absl/container/flat_hash_set.h"
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

namespace {

// A list of passes that some are not added to. What they would have needed is still computed for
// others alone.
class ShorterList : public llvm::legacy::PassManager {
 public:
  explicit ShorterList(absl::Span<const absl::string_view> without)
      : without_(without.begin(), without.end()) {}

  void add(llvm::Pass* pass) override {
    const llvm::StringRef name = pass->getPassName();
    if (!without_.contains(absl::string_view(name.data(), name.size())))
      return llvm::legacy::PassManager::add(pass);
    left_out_.insert(name.str());
    delete pass;
  }

  // A pass that the target does not have; empty if it has all.
  std::string Unknown() const {
    for (const std::string& name : without_)
      if (!left_out_.contains(name)) return name;
    return {};
  }

 private:
  const absl::flat_hash_set<std::string> without_;
  absl::flat_hash_set<std::string> left_out_;
};

}  // namespace

absl::StatusOr<std::string> EmitFile(llvm::Module& module, llvm::TargetMachine* machine,
                                     llvm::CodeGenFileType type,
                                     absl::Span<const absl::string_view> without) {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  ShorterList passes(without);
  if (machine->addPassesToEmitFile(passes, stream, nullptr, type))
    return absl::InternalError("LLVM cannot write a kernel's file");
  if (const std::string unknown = passes.Unknown(); !unknown.empty())
    return absl::InternalError(absl::StrCat("LLVM has no pass ", unknown, " for this target"));
  passes.run(module);
  return std::string(bytes.begin(), bytes.end());
}

}  // namespace outboard::render
