#include "compiler/render/llvm/amdgpu/amdgpu.h"

#include <llvm/IR/DiagnosticInfo.h>
#include <llvm/IR/DiagnosticPrinter.h>
#include <llvm/IR/IntrinsicsAMDGPU.h>
#include <llvm/IR/LLVMContext.h>
#include <llvm/IR/Module.h>
#include <llvm/MC/TargetRegistry.h>
#include <llvm/Support/TargetSelect.h>
#include <llvm/Support/raw_ostream.h>
#include <llvm/Target/TargetMachine.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/render/launch_shape.h"
#include "compiler/render/llvm/amdgpu/gpu_printer.h"
#include "compiler/render/llvm/optimize.h"

namespace outboard::render {
namespace {

using llvm::Value;
using program::Code;
using program::Grid;
using program::Instruction;

constexpr char kTriple[] = "amdgcn-amd-amdhsa";

struct Processor {
  const char* arch;
  int wave_threads;  // that run together
};
constexpr Processor kProcessors[] = {{"gfx942", 64}, {"gfx1100", 32}};

const Processor* FindProcessor(const std::string& arch) {
  const auto* const found = std::find_if(std::begin(kProcessors), std::end(kProcessors),
                                         [&](const Processor& p) { return arch == p.arch; });
  return found == std::end(kProcessors) ? nullptr : found;
}

// Global and shared memory have the numbers that they have on NVIDIA's; variables lie in the
// address space that the data layout says.
class AmdgpuPrinter final : public GpuPrinter {
 public:
  AmdgpuPrinter(const program::Program& program, const Target& target, const GridShape& grid,
                int wave_threads, llvm::Module& module)
      : GpuPrinter(program, target, grid, module), wave_threads_(wave_threads) {}

 private:
  absl::Status CheckUnits() const override {
    for (const Instruction& i : program_.code)
      if ((i.code == Code::kMma && i.imm[0] != static_cast<int64_t>(unit())) ||
          i.code == Code::kLdmatrix || program::IsHopper(i.code) ||
          (i.code == Code::kStore && i.imm[0] != 0))
        return absl::UnimplementedError(
            absl::StrCat(target_.arch, " has no form for ", std::string(Name(i.code))));
    return absl::OkStatus();
  }

  void MarkKernel(int64_t threads) override {
    kernel_->setCallingConv(llvm::CallingConv::AMDGPU_KERNEL);
    kernel_->addFnAttr("amdgpu-flat-work-group-size", absl::StrCat(threads, ",", threads));
    kernel_->addFnAttr("uniform-work-group-size", "true");
    llvm::Metadata* const sizes[] = {Number32(threads), Number32(1), Number32(1)};
    kernel_->setMetadata("reqd_work_group_size", llvm::MDNode::get(b_.getContext(), sizes));
  }

  Value* Number(Grid axis) override {
    const auto id = axis == Grid::kBlock ? llvm::Intrinsic::amdgcn_workgroup_id_x
                                         : llvm::Intrinsic::amdgcn_workitem_id_x;
    return b_.CreateIntrinsic(id, {}, {});
  }

  Value* Row() override {
    return b_.CreateIntrinsic(llvm::Intrinsic::amdgcn_workgroup_id_y, {}, {});
  }

  // The instruction alone orders nothing.
  void Barrier() override {
    const auto group = b_.getContext().getOrInsertSyncScopeID("workgroup");
    b_.CreateFence(llvm::AtomicOrdering::Release, group);
    b_.CreateIntrinsic(llvm::Intrinsic::amdgcn_s_barrier, {}, {});
    b_.CreateFence(llvm::AtomicOrdering::Acquire, group);
  }

  // Lanes of a wave read each other's registers by number. Threads of another half of a wave may be
  // elsewhere in the program; nobody reads theirs.
  Values Shuffle(ValueId n) override {
    const Instruction& i = at(n);
    Value* lane = b_.CreateIntrinsic(llvm::Intrinsic::amdgcn_mbcnt_lo, {},
                                     {b_.getInt32(UINT32_MAX), b_.getInt32(0)});
    if (wave_threads_ == 64)
      lane =
          b_.CreateIntrinsic(llvm::Intrinsic::amdgcn_mbcnt_hi, {}, {b_.getInt32(UINT32_MAX), lane});
    Value* const other = b_.CreateXor(lane, b_.getInt32(static_cast<uint32_t>(i.imm[0])));
    Value* const address = b_.CreateShl(other, uint64_t{2});  // in bytes
    return {Exchanged(Lane(i.src[0], 0), [&](Value* bits) {
      return b_.CreateIntrinsic(llvm::Intrinsic::amdgcn_ds_bpermute, {}, {address, bits});
    })};
  }

  MatrixUnit unit() const { return wave_threads_ == 64 ? MatrixUnit::kMfma : MatrixUnit::kWmma; }

  // The lanes of an operand as LLVM wants them: bf16 as 16-bit integers.
  Value* OperandOf(ValueId n) {
    const Instruction& i = at(n);
    const bool half = i.dtype == DType::kF16;
    llvm::Type* const element = half ? b_.getHalfTy() : b_.getInt16Ty();
    Value* all =
        llvm::PoisonValue::get(llvm::FixedVectorType::get(element, static_cast<unsigned>(i.lanes)));
    for (int lane = 0; lane < i.lanes; ++lane) {
      Value* const bits = alu_.Bitcast(Lane(n, lane), i.dtype, DType::kU16);
      all = b_.CreateInsertElement(all, half ? b_.CreateBitCast(bits, element) : bits,
                                   static_cast<uint64_t>(lane));
    }
    return all;
  }

  // v_wmma_f32_16x16x16, v_mfma_f32_16x16x16: their fragments are AmdElement's.
  Values MatrixProduct(ValueId n) override {
    const Instruction& i = at(n);
    const bool half = at(i.src[0]).dtype == DType::kF16;
    Value *const a = OperandOf(i.src[0]), *const b = OperandOf(i.src[1]);
    llvm::Type* const sums =
        llvm::FixedVectorType::get(b_.getFloatTy(), static_cast<unsigned>(i.lanes));
    Value* c = llvm::PoisonValue::get(sums);
    for (int lane = 0; lane < i.lanes; ++lane)
      c = b_.CreateInsertElement(c, Lane(i.src[2], lane), static_cast<uint64_t>(lane));
    Value* product = nullptr;
    if (unit() == MatrixUnit::kWmma) {
      product = b_.CreateIntrinsic(half ? llvm::Intrinsic::amdgcn_wmma_f32_16x16x16_f16
                                        : llvm::Intrinsic::amdgcn_wmma_f32_16x16x16_bf16,
                                   {sums, a->getType()}, {a, b, c});
    } else {
      Value* const none = b_.getInt32(0);  // nothing is broadcast
      product = b_.CreateIntrinsic(half ? llvm::Intrinsic::amdgcn_mfma_f32_16x16x16f16
                                        : llvm::Intrinsic::amdgcn_mfma_f32_16x16x16bf16_1k,
                                   {}, {a, b, c, none, none, none});
    }
    Values out;
    for (int lane = 0; lane < i.lanes; ++lane)
      out.push_back(b_.CreateExtractElement(product, static_cast<uint64_t>(lane)));
    return out;
  }

  llvm::Metadata* Number32(int64_t value) {
    return llvm::ConstantAsMetadata::get(b_.getInt32(static_cast<uint32_t>(value)));
  }

  const int wave_threads_;
};

void InitializeOnce() {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeAMDGPUTargetInfo();
    LLVMInitializeAMDGPUTarget();
    LLVMInitializeAMDGPUTargetMC();
    LLVMInitializeAMDGPUAsmPrinter();
  });
}

class Renderer final : public GpuRenderer {
 public:
  Renderer(Target target, int64_t columns_max, bool no_opt, int wave_threads,
           std::unique_ptr<llvm::TargetMachine> machine)
      : target_(std::move(target)),
        columns_max_(columns_max),
        no_opt_(no_opt),
        wave_threads_(wave_threads),
        machine_(std::move(machine)) {}

  absl::StatusOr<CompiledKernel> Render(const program::Program& program, const std::string& symbol,
                                        std::string* ir) const override {
    constexpr int64_t kItemsMax = (int64_t{1} << 32) - 1;  // of a dispatch packet's grid
    const int64_t columns_max = std::min(columns_max_, kItemsMax / program.Extent(Grid::kThread));
    CompiledKernel out =
        LaunchShapeOf(program, symbol, CompiledKernel::Form::kElfAmdgpu, columns_max);
    if (out.threads[0] > target_.block_threads || out.shared_bytes > target_.shared_bytes ||
        out.blocks[1] > kGridRowsMax)
      return absl::ResourceExhaustedError(absl::StrCat(
          "device ", target_.name, " has no room for ", out.tasks, " blocks of ", out.threads[0],
          " threads with ", out.shared_bytes, " bytes; a block may have ", target_.block_threads,
          " threads and ", target_.shared_bytes, " bytes"));
    // A context a kernel: types and constants of one must not change the order of things in
    // another.
    llvm::LLVMContext context;
    // The default handler would end the process.
    std::string refused;
    context.setDiagnosticHandlerCallBack(
        [](const llvm::DiagnosticInfo* info, void* words) {
          if (info->getSeverity() != llvm::DS_Error) return;
          llvm::raw_string_ostream stream(*static_cast<std::string*>(words));
          llvm::DiagnosticPrinterRawOStream printer(stream);
          info->print(printer);
        },
        &refused);
    llvm::Module module("kernel", context);
    module.setTargetTriple(kTriple);
    module.setDataLayout(machine_->createDataLayout());
    const GridShape grid = GridOf(program, columns_max);
    OB_RETURN_IF_ERROR(AmdgpuPrinter(program, target_, grid, wave_threads_, module).Run(symbol));
    if (ir != nullptr) *ir = TextOf(module);
    OB_RETURN_IF_ERROR(OptimizeInRegisters(module, machine_.get(), no_opt_));
    OB_ASSIGN_OR_RETURN(out.object,
                        EmitFile(module, machine_.get(), llvm::CodeGenFileType::ObjectFile));
    if (!refused.empty())
      return absl::InternalError(absl::StrCat("LLVM refuses a kernel: ", refused));
    return out;
  }

 private:
  const Target target_;
  const int64_t columns_max_;
  const bool no_opt_;
  const int wave_threads_;
  const std::unique_ptr<llvm::TargetMachine> machine_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<GpuRenderer>> MakeAmdgpuRenderer(Target target,
                                                                int64_t columns_max, bool no_opt) {
  if (target.kind != TargetKind::kAmd)
    return absl::InvalidArgumentError("a target of another kind than AMD's GPUs");
  const Processor* const processor = FindProcessor(target.arch);
  if (processor == nullptr)
    return absl::InvalidArgumentError(absl::StrCat("no code for GPUs of kind \"", target.arch,
                                                   "\"; there is for gfx942 and gfx1100"));
  InitializeOnce();
  std::string error;
  const llvm::Target* const found = llvm::TargetRegistry::lookupTarget(kTriple, error);
  if (found == nullptr) return absl::InternalError(absl::StrCat("LLVM has no AMDGPU: ", error));
  llvm::TargetOptions options;
  // No product is fused with a sum but where the printer does it.
  options.AllowFPOpFusion = llvm::FPOpFusion::Strict;
  std::unique_ptr<llvm::TargetMachine> machine(
      found->createTargetMachine(kTriple, processor->arch, "", options, llvm::Reloc::PIC_,
                                 std::nullopt, llvm::CodeGenOptLevel::Default));
  if (machine == nullptr) return absl::InternalError("LLVM cannot generate code for AMDGPU");
  return std::make_unique<Renderer>(std::move(target), columns_max, no_opt,
                                    processor->wave_threads, std::move(machine));
}

}  // namespace outboard::render
