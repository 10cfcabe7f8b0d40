#include "compiler/render/llvm/x86.h"

#include <llvm/Config/llvm-config.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/Support/raw_ostream.h>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/render/llvm/program_printer.h"
#include "compiler/render/llvm/target.h"

namespace outboard::render {
namespace {

class Renderer : public X86Renderer {
 public:
  explicit Renderer(std::unique_ptr<X86Target> target) : target_(std::move(target)) {}

  absl::StatusOr<std::string> Render(const program::Program& program, const std::string& symbol,
                                     bool no_opt, std::string* ir) override {
    // A context a kernel: types and constants of one must not change the order of things in
    // another.
    llvm::LLVMContext context;
    const std::unique_ptr<llvm::Module> module = target_->NewModule(context);
    OB_RETURN_IF_ERROR(PrintProgram(program, symbol, *module));
    if (ir != nullptr) {
      llvm::raw_string_ostream stream(*ir);
      module->print(stream, nullptr);
    }
    if (absl::Status status = target_->Optimize(*module, no_opt); !status.ok()) return status;
    return target_->EmitObject(*module);
  }

 private:
  const std::unique_ptr<X86Target> target_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<X86Renderer>> MakeX86Renderer(const Target& target) {
  if (target.kind != TargetKind::kCpu)
    return absl::InvalidArgumentError("a target of another kind than x86-64");
  OB_ASSIGN_OR_RETURN(std::unique_ptr<X86Target> generator,
                      X86Target::Create(target.arch, target.features));
  const Target& has = generator->has();
  if (target.vector_bytes > has.vector_bytes || target.vector_registers > has.vector_registers ||
      (target.bf16 != Bf16Products::kNone && target.bf16 > has.bf16))
    return absl::InvalidArgumentError(
        absl::StrCat("\"", target.arch, "\" has vectors of ", has.vector_bytes, " bytes, ",
                     has.vector_registers, " registers and products of bf16 of kind ",
                     static_cast<int>(has.bf16), "; the target says ", target.vector_bytes, ", ",
                     target.vector_registers, " and ", static_cast<int>(target.bf16)));
  return std::make_unique<Renderer>(std::move(generator));
}

absl::StatusOr<Target> NamedTarget(const std::string& arch, const std::string& features) {
  OB_ASSIGN_OR_RETURN(const std::unique_ptr<X86Target> generator,
                      X86Target::Create(arch, features));
  return generator->has();
}

}  // namespace outboard::render
