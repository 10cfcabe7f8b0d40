#include "compiler/render/llvm/nvptx.h"

#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Target/TargetMachine.h>

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "compiler/copies.h"
#include "compiler/render/launch_shape.h"
#include "compiler/render/llvm/gpu_printer.h"
#include "compiler/render/llvm/optimize.h"
#include "compiler/render/ptx/nvptx.h"

namespace outboard::render {
namespace {

using program::Grid;

constexpr char kTriple[] = "nvptx64-nvidia-cuda";

// The processors that code is made for, with the oldest version of PTX that knows what is used of
// them: the older, the more drivers accept the text.
struct Processor {
  const char *arch, *ptx;
};
constexpr Processor kProcessors[] = {
    {"sm_80", "+ptx75"},
    {"sm_89", "+ptx78"},
    {"sm_90", "+ptx80"},
    {"sm_90a", "+ptx80"},
};
constexpr char kPtxOfSmallProducts[] = "+ptx84";  // mma.sync of 8-bit floats

bool HasSmallProducts(const program::Program& program) {
  return std::any_of(program.code.begin(), program.code.end(), [&](const auto& i) {
    return i.code == program::Code::kMma && ByteWidth(program.code[i.src[0]].dtype) == 1;
  });
}

// Passes of NVPTX's list that are left out. N-ary reassociation compares each sum with all others
// to reuse a part of it: an eighth of the time of compiling a training step's kernels, which have
// as many machine instructions without it (docs/measurements/2026-11-29-gpu-compile.md).
constexpr absl::string_view kLeftOut[] = {"Nary reassociation"};
// Where indices have 32 bits also those that look for what 64-bit addresses have in common, which
// the printer says (GpuPrinter::Address; docs/decisions/185-accesses-and-indices.md).
constexpr absl::string_view kLeftOutOfSmallIndices[] = {
    "Nary reassociation", "Loop Strength Reduction", "Straight line strength reduction"};

absl::Span<const absl::string_view> PassesLeftOut(const program::Program& program) {
  if (GpuPrinter::HasSmallIndices(program)) return kLeftOutOfSmallIndices;
  return kLeftOut;
}

void InitializeOnce() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
}

// LLVM 19 prints no size of clusters.
void MakeClusters(std::string& ptx, int64_t blocks) {
  constexpr std::string_view kBefore = ".maxntid";
  const size_t at = ptx.find(kBefore);
  OB_CHECK(at != std::string::npos);
  ptx.insert(at, absl::StrCat(".explicitcluster\n.reqnctapercluster ", blocks, ", 1, 1\n"));
}

// From sm_90 on a graph may start a kernel when all blocks of the one in front of it run
// (docs/decisions/115-uploads-beside-work.md). All it does comes after the wait; the launch behind
// it may start then. In the text, since LLVM moves loads of what nobody writes across assembly.
void WaitForLaunchesBefore(std::string& ptx) {
  size_t line = ptx.find("\n{\n", ptx.find(".entry"));
  OB_CHECK(line != std::string::npos);
  line += 3;
  constexpr std::string_view kDeclaration = "\t.reg";
  for (size_t next = line; (next = ptx.find(kDeclaration, line)) == line;)
    line = ptx.find('\n', next) + 1;
  ptx.insert(line, "\tgriddepcontrol.wait;\n\tgriddepcontrol.launch_dependents;\n");
}

class Renderer : public NvptxRenderer {
 public:
  Renderer(Target target, std::unique_ptr<llvm::TargetMachine> machine,
           std::unique_ptr<llvm::TargetMachine> newer)
      : target_(std::move(target)), machine_(std::move(machine)), newer_(std::move(newer)) {}

  absl::StatusOr<CompiledKernel> Render(const program::Program& program, const std::string& symbol,
                                        bool no_opt, std::string* ir) override {
    CompiledKernel out = LaunchShapeOf(program, symbol, CompiledKernel::Form::kPtx);
    // Of CUDA: the grid's first axis.
    constexpr int64_t kBlocksMax = (int64_t{1} << 31) - 1;
    // Warpgroups that divide registers and copy boxes ask for as much as a block may have at all.
    const bool hopper = std::any_of(program.code.begin(), program.code.end(),
                                    [](const auto& i) { return program::IsHopper(i.code); });
    constexpr int64_t kThreadsMax = 1024;  // of all of these processors
    // Products by matrix units may have all memory of a multiprocessor: their stages fill it. Other
    // kernels have what every launch has.
    const bool mma = std::any_of(program.code.begin(), program.code.end(),
                                 [](const auto& i) { return i.code == program::Code::kMma; });
    const int64_t shared_bytes_max =
        hopper ? kHopperSharedBytesMax : mma ? target_.block_bytes_max() : target_.shared_bytes;
    out.maps = program.maps;
    if (const int64_t bytes = ParameterBytes(program.copies, program.buffer_count,
                                             static_cast<int64_t>(program.maps.size()));
        bytes > limits::kParameterBytesMax) {
      const std::string need = absl::StrCat(
          "a kernel of ", program.buffer_count, " buffers in ", program.copies,
          program.copies > 1 ? " copies" : " copy", " has ", bytes,
          " bytes of parameters; a launch has ", limits::kParameterBytesMax);
      if (program.copies > 1) return absl::OutOfRangeError(need);
      return absl::ResourceExhaustedError(need);
    }
    if (out.threads[0] > kThreadsMax || out.shared_bytes > shared_bytes_max ||
        out.blocks[0] > kBlocksMax)
      return absl::ResourceExhaustedError(absl::StrCat(
          "device ", target_.name, " has no room for ", out.blocks[0], " blocks of ",
          out.threads[0], " threads with ", out.shared_bytes, " bytes; a block may have ",
          kThreadsMax, " threads and ", shared_bytes_max, " bytes"));
    // A context a kernel: types and constants of one must not change the order of things in
    // another.
    llvm::TargetMachine* const machine = HasSmallProducts(program) ? newer_.get() : machine_.get();
    llvm::LLVMContext context;
    llvm::Module module("kernel", context);
    module.setTargetTriple(kTriple);
    module.setDataLayout(machine->createDataLayout());
    OB_RETURN_IF_ERROR(GpuPrinter(program, target_, module).Run(symbol));
    if (ir != nullptr) *ir = TextOf(module);
    OB_RETURN_IF_ERROR(OptimizeInRegisters(module, machine, no_opt));
    OB_ASSIGN_OR_RETURN(out.object, EmitFile(module, machine, llvm::CodeGenFileType::AssemblyFile,
                                             PassesLeftOut(program)));
    if (program.cluster > 1) MakeClusters(out.object, program.cluster);
    if (target_.arch.starts_with("sm_9")) WaitForLaunchesBefore(out.object);
    return out;
  }

 private:
  const Target target_;
  const std::unique_ptr<llvm::TargetMachine> machine_, newer_;  // newer_: of kPtxOfSmallProducts
};

}  // namespace

absl::StatusOr<std::unique_ptr<NvptxRenderer>> MakeNvptxRenderer(Target target) {
  if (std::getenv("OUTBOARD_OWN_PTX") != nullptr) return MakePtxRenderer(std::move(target));
  if (target.kind != TargetKind::kCuda)
    return absl::InvalidArgumentError("a target of another kind than CUDA");
  const auto* const processor =
      std::find_if(std::begin(kProcessors), std::end(kProcessors),
                   [&](const Processor& p) { return target.arch == p.arch; });
  if (processor == std::end(kProcessors))
    return absl::InvalidArgumentError(absl::StrCat("no code for GPUs of kind \"", target.arch,
                                                   "\"; there is for sm_80, sm_89, sm_90, sm_90a"));
  InitializeOnce();
  std::string error;
  const llvm::Target* const found = llvm::TargetRegistry::lookupTarget(kTriple, error);
  if (found == nullptr) return absl::InternalError(absl::StrCat("LLVM has no NVPTX: ", error));
  llvm::TargetOptions options;
  // No product is fused with a sum but where the printer does it.
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  // The text is the same as by CodeGenOptLevel::Default, whose further passes are about machine
  // code: the driver's assembler makes that.
  const auto make = [&](const char* ptx) {
    return std::unique_ptr<llvm::TargetMachine>(
        found->createTargetMachine(kTriple, processor->arch, ptx, options, std::nullopt,
                                   std::nullopt, llvm::CodeGenOptLevel::Less));
  };
  auto machine = make(processor->ptx), newer = make(kPtxOfSmallProducts);
  if (machine == nullptr || newer == nullptr)
    return absl::InternalError("LLVM cannot generate code for NVPTX");
  return std::make_unique<Renderer>(std::move(target), std::move(machine), std::move(newer));
}

}  // namespace outboard::render
