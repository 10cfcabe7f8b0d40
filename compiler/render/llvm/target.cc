#include "compiler/render/llvm/target.h"

#include <llvm/Analysis/AliasAnalysis.h>
#include <llvm/IR/LegacyPassManager.h>
#include <llvm/IR/Verifier.h>
#include <llvm/MC/MCSubtargetInfo.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Passes/PassBuilder.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/TargetParser/Host.h>
#include <llvm/TargetParser/SubtargetFeature.h>
#include <llvm/Transforms/InstCombine/InstCombine.h>
#include <llvm/Transforms/Scalar/EarlyCSE.h>
#include <llvm/Transforms/Scalar/SimplifyCFG.h>
#include <llvm/Transforms/Utils/Mem2Reg.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <vector>

#include "absl/strings/str_cat.h"

namespace outboard::render {
namespace {

constexpr char kTriple[] = "x86_64-unknown-linux-gnu";

void InitializeOnce() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeX86TargetInfo();
    LLVMInitializeX86Target();
    LLVMInitializeX86TargetMC();
    LLVMInitializeX86AsmPrinter();
  });
}

// Tiles are state that a process must ask for, once for all its threads and whoever it starts after
// that (Linux, Documentation/arch/x86/xstate.rst). Where the system says no, there are none.
bool SystemGrantsTiles() {
  constexpr int kRequestPermission = 0x1023,
                kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

}  // namespace

std::string HostCpu() { return llvm::sys::getHostCPUName().str(); }

std::string HostFeatures() {
  const bool tiles = SystemGrantsTiles();
  const auto usable = [&](llvm::StringRef name) { return tiles || !name.starts_with("amx"); };
  std::vector<std::string> features;
  for (const auto& feature : llvm::sys::getHostCPUFeatures())
    features.push_back((feature.second && usable(feature.first()) ? "+" : "-") +
                       feature.first().str());
  std::sort(features.begin(), features.end());  // LLVM's map has no order
  std::string out;
  for (const std::string& feature : features) out += (out.empty() ? "" : ",") + feature;
  return out;
}

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
  out->target_.reset(target->createTargetMachine(
      kTriple, cpu.empty() ? HostCpu() : cpu, cpu.empty() ? HostFeatures() : features, options,
      llvm::Reloc::PIC_, std::nullopt, llvm::CodeGenOptLevel::Default));
  if (out->target_ == nullptr ||
      !out->target_->getMCSubtargetInfo()->isCPUStringValid(cpu.empty() ? HostCpu() : cpu))
    return absl::InvalidArgumentError(
        absl::StrCat("LLVM does not know the processor \"", cpu, "\""));
  const llvm::MCSubtargetInfo& info = *out->target_->getMCSubtargetInfo();
  if (info.checkFeatures("+avx512f,+avx512vl,+avx512bw,+avx512dq")) {
    out->machine_ = {64, 32};
  } else if (info.checkFeatures("+avx2")) {
    out->machine_ = {32, 16};
  } else {
    out->machine_ = {16, 16};
  }
  if (info.checkFeatures("+amx-tile,+amx-bf16")) {
    out->machine_.bf16 = codegen::Bf16Products::kTiles;
  } else if (info.checkFeatures("+avx512bf16")) {
    out->machine_.bf16 = codegen::Bf16Products::kVectors;
  }
  return out;
}

std::unique_ptr<llvm::Module> X86Target::NewModule(llvm::LLVMContext& context) const {
  auto module = std::make_unique<llvm::Module>("kernel", context);
  module->setTargetTriple(kTriple);
  module->setDataLayout(target_->createDataLayout());
  return module;
}

absl::Status X86Target::Optimize(llvm::Module& module, bool no_opt) const {
  std::string error;
  llvm::raw_string_ostream stream(error);
  if (llvm::verifyModule(module, &stream))
    return absl::InternalError(absl::StrCat("LLVM refuses a kernel: ", error));
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(target_.get());
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::PromotePass());
  if (!no_opt) {
    passes.addPass(llvm::EarlyCSEPass());
    passes.addPass(llvm::InstCombinePass());
    passes.addPass(llvm::SimplifyCFGPass());
  }
  for (llvm::Function& function : module)
    if (!function.isDeclaration()) passes.run(function, functions);
  return absl::OkStatus();
}

absl::StatusOr<std::string> X86Target::EmitObject(llvm::Module& module) const {
  llvm::SmallVector<char, 0> bytes;
  llvm::raw_svector_ostream stream(bytes);
  llvm::legacy::PassManager passes;
  if (target_->addPassesToEmitFile(passes, stream, nullptr, llvm::CodeGenFileType::ObjectFile))
    return absl::InternalError("LLVM cannot write objects");
  passes.run(module);
  return std::string(bytes.begin(), bytes.end());
}

}  // namespace outboard::render
