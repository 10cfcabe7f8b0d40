// Passes of a target that LLVM's list is made without, by their names.
#include <gtest/gtest.h>
#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>

#include <memory>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "compiler/render/llvm/optimize.h"

namespace outboard::test {
namespace {

// The assembler text for this machine's processor of a function that returns.
absl::StatusOr<std::string> TextWithout(absl::Span<const absl::string_view> passes) {
  constexpr char kTriple[] = "x86_64-pc-linux-gnu";
  llvm::InitializeNativeTarget();
  llvm::InitializeNativeTargetAsmPrinter();
  std::string error;
  const llvm::Target* const target = llvm::TargetRegistry::lookupTarget(kTriple, error);
  const std::unique_ptr<llvm::TargetMachine> machine(
      target->createTargetMachine(kTriple, "x86-64", "", {}, llvm::Reloc::PIC_));
  llvm::LLVMContext context;
  llvm::Module module("kernel", context);
  module.setTargetTriple(kTriple);
  module.setDataLayout(machine->createDataLayout());
  llvm::IRBuilder<> builder(context);
  auto* const function =
      llvm::Function::Create(llvm::FunctionType::get(builder.getVoidTy(), false),
                             llvm::Function::ExternalLinkage, "returns", module);
  builder.SetInsertPoint(llvm::BasicBlock::Create(context, "", function));
  builder.CreateRetVoid();
  return render::EmitFile(module, machine.get(), llvm::CodeGenFileType::AssemblyFile, passes);
}

TEST(LlvmPasses, AnyOfTheTargetsIsLeftOut) {
  constexpr absl::string_view kPasses[] = {"Loop Strength Reduction"};
  const absl::StatusOr<std::string> text = TextWithout(kPasses);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_TRUE(absl::StrContains(*text, "returns:")) << *text;
}

// The printer is a pass, too.
TEST(LlvmPasses, WhatIsNamed_IsLeftOut) {
  constexpr absl::string_view kPasses[] = {"X86 Assembly Printer"};
  const absl::StatusOr<std::string> text = TextWithout(kPasses);
  ASSERT_TRUE(text.ok()) << text.status();
  EXPECT_FALSE(absl::StrContains(*text, "returns:")) << *text;
}

TEST(LlvmPasses, ANameThatLlvmDoesNotKnow_IsAnError) {
  constexpr absl::string_view kPasses[] = {"Loop Strength Reduction", "Loop Strength Increase"};
  EXPECT_EQ(TextWithout(kPasses).status(),
            absl::InternalError("LLVM has no pass Loop Strength Increase for this target"));
}

}  // namespace
}  // namespace outboard::test
