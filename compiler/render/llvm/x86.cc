#include "compiler/render/llvm/x86.h"

#include <llvm/Config/llvm-config.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/Support/raw_ostream.h>

#include "base/check.h"
#include "compiler/render/llvm/kernel.h"
#include "compiler/render/llvm/target.h"

namespace outboard::render {
namespace {

class Renderer : public X86Renderer {
 public:
  explicit Renderer(std::unique_ptr<X86Target> target) : target_(std::move(target)) {}

  const codegen::Machine& machine() const override { return target_->machine(); }

  absl::StatusOr<std::string> Render(const codegen::LoopNest& kernel, const codegen::LoopPlan& plan,
                                     const std::string& symbol, bool no_opt,
                                     std::string* ir) override {
    // A context a kernel: types and constants of one must not change the order of things in
    // another.
    llvm::LLVMContext context;
    const std::unique_ptr<llvm::Module> module = target_->NewModule(context);
    OB_RETURN_IF_ERROR(EmitKernel(kernel, plan, symbol, *module));
    if (ir != nullptr) {
      llvm::raw_string_ostream stream(*ir);
      module->print(stream, nullptr);
    }
    if (absl::Status status = target_->Optimize(*module, no_opt); !status.ok()) return status;
    return target_->EmitObject(*module);
  }

 private:
  std::unique_ptr<X86Target> target_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<X86Renderer>> MakeX86Renderer(const std::string& cpu,
                                                             const std::string& features) {
  OB_ASSIGN_OR_RETURN(std::unique_ptr<X86Target> target, X86Target::Create(cpu, features));
  return std::make_unique<Renderer>(std::move(target));
}

}  // namespace outboard::render
