#include "compiler/render/llvm/target.h"

#include <llvm/IR/IRBuilder.h>
#include <llvm/IR/InstIterator.h>
#include <llvm/IR/IntrinsicInst.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/ErrorHandling.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/render/llvm/optimize.h"

namespace outboard::render {
namespace {

constexpr char kTriple[] = "x86_64-unknown-linux-gnu";

// Where malloc has no memory for LLVM: as where `new` has none.
void NoMemory(void*, const char*, bool) {
  if (const std::new_handler handler = std::get_new_handler()) handler();
  std::abort();  // LLVM cannot go on
}

void InitializeOnce() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
    llvm::install_bad_alloc_error_handler(NoMemory);
  });
}

// InstCombine makes the larger of two widened halves the larger of halves. LLVM 19 loses NaNs
// there: of a NaN and a zero it gives the zero. So they are widened again; the result is one of the
// two, so nothing is rounded.
void WidenExtrema(llvm::Function& function) {
  std::vector<llvm::IntrinsicInst*> narrow;
  for (llvm::Instruction& instruction : llvm::instructions(function)) {
    auto* const call = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction);
    if (call == nullptr) continue;
    const bool is_extremum = call->getIntrinsicID() == llvm::Intrinsic::maximum ||
                             call->getIntrinsicID() == llvm::Intrinsic::minimum;
    if (is_extremum && call->getType()->getScalarSizeInBits() < 32) narrow.push_back(call);
  }
  for (llvm::IntrinsicInst* const call : narrow) {
    llvm::IRBuilder<> builder(call);
    llvm::Type* const wide = call->getType()->getWithNewType(builder.getFloatTy());
    llvm::Value* const value = builder.CreateBinaryIntrinsic(
        call->getIntrinsicID(), builder.CreateFPExt(call->getArgOperand(0), wide),
        builder.CreateFPExt(call->getArgOperand(1), wide));
    call->replaceAllUsesWith(builder.CreateFPTrunc(value, call->getType()));
    call->eraseFromParent();
  }
}

}  // namespace

absl::StatusOr<std::unique_ptr<X86Target>> X86Target::Create(const std::string& cpu,
                                                             const std::string& features) {
  InitializeOnce();
  std::string error;
  const llvm::Target* const target = llvm::TargetRegistry::lookupTarget(kTriple, error);
  if (target == nullptr) return absl::InternalError(absl::StrCat("LLVM has no x86-64: ", error));
  auto out = std::make_unique<X86Target>();
  llvm::TargetOptions options;
  // Products and sums are fused where both are marked `contract`, which the renderer decides.
  options.AllowFPOpFusion = llvm::FPOpFusion::Standard;
  out->target_.reset(target->createTargetMachine(kTriple, cpu, features, options, llvm::Reloc::PIC_,
                                                 std::nullopt, llvm::CodeGenOptLevel::Default));
  if (out->target_ == nullptr || !out->target_->getMCSubtargetInfo()->isCPUStringValid(cpu))
    return absl::InvalidArgumentError(
        absl::StrCat("LLVM does not know the processor \"", cpu, "\""));
  const llvm::MCSubtargetInfo& info = *out->target_->getMCSubtargetInfo();
  Target& has = out->has_;
  has.name = has.arch = cpu;
  has.features = features;
  if (info.checkFeatures("+avx512f,+avx512vl,+avx512bw,+avx512dq")) {
    has.vector_bytes = 64;
    has.vector_registers = 32;
  } else {
    has.vector_bytes = info.checkFeatures("+avx2") ? 32 : 16;
    has.vector_registers = 16;
  }
  if (info.checkFeatures("+amx-tile,+amx-bf16")) {
    has.bf16 = Bf16Products::kTiles;
  } else if (info.checkFeatures("+avx512bf16")) {
    has.bf16 = Bf16Products::kVectors;
  }
  has.fp16 = info.checkFeatures("+avx512fp16");
  return out;
}

std::unique_ptr<llvm::Module> X86Target::NewModule(llvm::LLVMContext& context) const {
  auto module = std::make_unique<llvm::Module>("kernel", context);
  module->setTargetTriple(kTriple);
  module->setDataLayout(target_->createDataLayout());
  return module;
}

absl::Status X86Target::Optimize(llvm::Module& module, bool no_opt) const {
  OB_RETURN_IF_ERROR(OptimizeFunctions(module, target_.get(), no_opt));
  for (llvm::Function& function : module)
    if (!function.isDeclaration()) WidenExtrema(function);
  return absl::OkStatus();
}

absl::StatusOr<std::string> X86Target::EmitObject(llvm::Module& module) const {
  return EmitFile(module, target_.get(), llvm::CodeGenFileType::ObjectFile);
}

}  // namespace outboard::render
