#include "compiler/compile.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "compiler/copies.h"
#include "compiler/ir/build.h"
#include "compiler/ir/print.h"
#include "compiler/ir/spec.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/kernel/row_sums.h"
#include "compiler/optimize/apply.h"
#include "compiler/optimize/heuristics.h"
#include "compiler/optimize/limits.h"
#include "compiler/optimize/loop_plan.h"
#include "compiler/optimize/operands/mma_tile.h"
#include "compiler/program/expand.h"
#include "compiler/program/hopper/plan.h"
#include "compiler/program/online/plan.h"
#include "compiler/proof/program_range.h"
#include "compiler/render/gpu_renderer.h"
#include "compiler/render/llvm/amdgpu/amdgpu.h"
#include "compiler/render/llvm/x86.h"
#include "compiler/render/opencl_c.h"
#include "compiler/render/ptx/ptx_renderer.h"
#include "compiler/starting_opts.h"

namespace outboard {
namespace {

constexpr char kSymbol[] = "outboard_kernel";

// A kernel on its way to text: what every target has in common.
struct Expanded {
  program::Program program;  // proved to be in range; nothing changes it before it is printed
  int64_t flops = 0, bytes = 0;
  int buffer_count = 0;
  bool empty = false;
  std::string dump;  // empty unless options.dump
  std::vector<std::string> given_up;  // as CompiledKernel's

  void GiveUp(absl::string_view plan, const absl::Status& why) {
    given_up.push_back(absl::StrCat(plan, ": ", why.message()));
  }
};

std::vector<codegen::Opt> OptsFor(const codegen::LoopNest& kernel, const Target& target,
                                  const CompileOptions& options) {
  if (options.opts.has_value()) return *options.opts;
  if (options.no_opt) return {};
  return codegen::HeuristicOpts(kernel, target, codegen::kCodePrice);
}

// What is left over of a tile has copies of its own, which only the program shows: it may need
// twice the memory that ApplyOpts counted. A thread has kLocalBytesMax.
absl::Status CheckMemory(const program::Program& program) {
  int64_t bytes = 0;
  for (const program::Instruction& i : program.code) {
    if (i.code != program::Code::kAlloc || i.imm[0] == static_cast<int64_t>(program::Space::kTile))
      continue;
    // Of small floats a register's width; masked lanes may touch a vector behind the end.
    bytes += (i.imm[1] + 64) * std::max(4, ByteWidth(i.dtype));
  }
  if (bytes <= limits::kLocalBytesMax) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(
      "Opts: copies of ", bytes, " bytes are over the limit of ", limits::kLocalBytesMax));
}

// By a GPU's matrix units; none if the kernel is to be computed without. What somebody asks for is
// done, or refused; our own choice may turn out not to fit.
absl::StatusOr<std::optional<program::Program>> ExpandByMatrixUnits(
    const codegen::LoopNest& kernel, const Target& target, const CompileOptions& options,
    Expanded& out) {
  if (!options.opts.has_value() && options.no_opt) return std::nullopt;
  const bool asked = options.opts.has_value();
  const std::vector<codegen::Opt>* const opts = asked ? &*options.opts : nullptr;
  const auto is_done = [&](absl::string_view plan, const absl::Status& status) {
    if (options.dump) absl::StrAppend(&out.dump, plan, ": ", status.ToString(), "\n");
    if (!status.ok() && !asked) out.GiveUp(plan, status);
    return status.ok() || asked;
  };
  OB_ASSIGN_OR_RETURN(const std::optional<program::OnlinePlan> online,
                      program::PlanOnline(kernel, target, opts));
  if (online) {
    absl::StatusOr<program::Program> program = program::ExpandOnline(*online);
    if (is_done(absl::StrCat("ONLINE ", program::OnlineAmount(online->tile)), program.status()))
      return program;
  }
  OB_ASSIGN_OR_RETURN(const std::optional<codegen::MmaPlan> plan,
                      codegen::PlanMma(kernel, target, opts));
  OB_ASSIGN_OR_RETURN(const std::optional<program::HopperPlan> hopper,
                      program::PlanHopper(kernel, target, opts, plan));
  if (hopper) {
    absl::StatusOr<program::Program> program = program::ExpandHopper(kernel, *hopper);
    if (is_done(absl::StrCat("WGMMA ", program::WgmmaAmount(hopper->tile)), program.status()))
      return program;
  }
  if (plan) {
    absl::StatusOr<program::Program> program = program::ExpandMma(kernel, *plan);
    if (is_done(absl::StrCat("MMA ", codegen::MmaAmount(plan->tile)), program.status()))
      return program;
  }
  return std::nullopt;
}

// Sets the program and what is known of the plan.
absl::Status ExpandByLoopPlan(codegen::LoopNest kernel, const std::vector<codegen::Opt>& opts,
                              const Target& target, const CompileOptions& options, Expanded& out) {
  OB_ASSIGN_OR_RETURN(const codegen::PlannedKernel planned,
                      codegen::ApplyOpts(std::move(kernel), opts, target));
  OB_ASSIGN_OR_RETURN(out.program, program::ExpandPlan(planned.kernel, planned.plan));
  // The heuristic's copies are at most half of the limit.
  if (target.block_threads == 1 && options.opts.has_value())
    OB_RETURN_IF_ERROR(CheckMemory(out.program));
  out.buffer_count = static_cast<int>(planned.kernel.slot_elements.size());
  out.empty = planned.kernel.empty;
  if (options.dump)
    absl::StrAppend(&out.dump, codegen::OptsToString(opts), "\n",
                    PlanToString(planned.kernel, planned.plan));
  return absl::OkStatus();
}

// One value a thread. Where that is not proved to store within its buffers, the threads of a block
// have the last range's points; and where that is not proved, there is one thread a block: the
// block's number alone is divided by axes, and intervals show that the kernel's own places, which
// were proved before, are still within their buffers.
absl::StatusOr<program::Program> ExpandByThreads(const codegen::LoopNest& kernel,
                                                 const Target& target, Expanded& out) {
  for (const program::ThreadMapping& mapping :
       {program::MapToThreads(kernel, target.block_threads),
        program::MapLastRangeToThreads(kernel, target.block_threads)}) {
    absl::StatusOr<program::Program> program = program::ExpandThreads(kernel, mapping);
    // Any other error is that of a pass.
    if (!proof::IsNotInRange(program.status()) || mapping.threads == 1) return program;
    out.GiveUp(absl::StrCat("blocks of ", mapping.threads, " threads"), program.status());
  }
  return program::ExpandThreads(kernel, {.threads = 1});
}

// Of options.target, which is resolved: there is no options.cpu.
absl::StatusOr<Expanded> MakeProgram(const UOp* sink, const CompileOptions& options) {
  const Target& device = options.target;
  OB_RETURN_IF_ERROR(VerifyGraph(sink, Level::kKernel));
  const int64_t copies = CopiesOf(sink);
  if (copies > 1 && device.kind != TargetKind::kCuda)
    return absl::UnimplementedError("kernel: several copies, on another device than CUDA's");
  const Target target = ShareOf(device, copies);
  Graph guards;
  OB_ASSIGN_OR_RETURN(const UOp* guarded, GuardedKernel(guards, sink, target));
  OB_ASSIGN_OR_RETURN(codegen::LoopNest kernel, codegen::AnalyzeKernel(guarded));
  Expanded out;
  if (target.kind == TargetKind::kOpenCl && options.opts.has_value() && !options.opts->empty())
    return absl::UnimplementedError("kernel: no Opts on OpenCL devices");
  OB_ASSIGN_OR_RETURN(std::optional<program::Program> product,
                      ExpandByMatrixUnits(kernel, target, options, out));
  if (!product && codegen::HasRowSums(guarded)) {
    if (!options.opts.has_value() && !options.no_opt)
      out.given_up.push_back("sums of rows beside those of a product: no such plan");
    OB_ASSIGN_OR_RETURN(guarded, PlainKernel(guards, sink, target));
    OB_ASSIGN_OR_RETURN(kernel, codegen::AnalyzeKernel(guarded));
  }
  out.flops = kernel.flops;
  out.bytes = kernel.bytes;
  std::vector<codegen::Opt> opts;
  if (!product && target.kind != TargetKind::kOpenCl) opts = OptsFor(kernel, target, options);
  if (product) {
    out.program = *std::move(product);
  } else {
    const bool loops = target.block_threads == 1;
    absl::Status planned = absl::OkStatus();
    if (loops || !opts.empty())
      planned = ExpandByLoopPlan(std::move(kernel), opts, target, options, out);
    if (!planned.ok()) {
      // What somebody asks for is done, or refused; our own choice may turn out not to fit.
      if (options.opts.has_value() || opts.empty()) return planned;
      if (options.dump) absl::StrAppend(&out.dump, planned.ToString(), "\n");
      out.GiveUp(codegen::OptsToString(opts), planned);
      OB_ASSIGN_OR_RETURN(kernel, codegen::AnalyzeKernel(guarded));
      if (loops) OB_RETURN_IF_ERROR(ExpandByLoopPlan(std::move(kernel), {}, target, options, out));
    }
    if (!loops && (opts.empty() || !planned.ok())) {
      OB_ASSIGN_OR_RETURN(out.program, ExpandByThreads(kernel, target, out));
    }
  }
  out.program.copies = static_cast<int>(copies);
  out.program.steady = SteadySlots(sink);
  if (options.dump) out.dump = GraphToString(sink) + out.dump + ToString(out.program);
  return out;
}

absl::StatusOr<CompiledKernel> CompileToX86(render::X86Renderer& renderer, const UOp* sink,
                                            const CompileOptions& options, std::string* ir) {
  OB_ASSIGN_OR_RETURN(const Expanded expanded, MakeProgram(sink, options));
  CompiledKernel out;
  out.symbol = kSymbol;
  out.buffer_count = expanded.buffer_count;
  out.flops = expanded.flops;
  out.bytes = expanded.bytes;
  out.given_up = expanded.given_up;
  out.tasks = expanded.empty ? 0 : expanded.program.Extent(program::Grid::kBlock);
  std::string text;
  OB_ASSIGN_OR_RETURN(out.object, renderer.Render(expanded.program, kSymbol, options.no_opt,
                                                  options.dump || ir != nullptr ? &text : nullptr));
  if (options.dump) std::fprintf(stderr, "%s%s\n", expanded.dump.c_str(), text.c_str());
  if (ir != nullptr) *ir = std::move(text);
  return out;
}

absl::StatusOr<CompiledKernel> CompileToOpenCl(const UOp* sink, const CompileOptions& options) {
  OB_ASSIGN_OR_RETURN(const Expanded expanded, MakeProgram(sink, options));
  OB_ASSIGN_OR_RETURN(CompiledKernel out,
                      render::RenderOpenClC(expanded.program, kSymbol, options.target));
  out.flops = expanded.flops;
  out.bytes = expanded.bytes;
  out.given_up = expanded.given_up;
  if (options.dump) std::fprintf(stderr, "%s%s\n", expanded.dump.c_str(), out.object.c_str());
  return out;
}

absl::StatusOr<CompiledKernel> CompileForGpu(const render::GpuRenderer& renderer, const UOp* sink,
                                             const CompileOptions& options) {
  OB_ASSIGN_OR_RETURN(Expanded expanded, MakeProgram(sink, options));
  std::string ir;
  const auto render = [&] {
    return renderer.Render(expanded.program, kSymbol, options.dump ? &ir : nullptr);
  };
  absl::StatusOr<CompiledKernel> rendered = render();
  // Our own choice may need more registers than the printer permits; the plain threads that come
  // last need few. What the assembler spills is not known here: tests ask it (docs/testing.md).
  const auto too_much = [&] {
    return absl::IsUnimplemented(rendered.status()) || absl::IsResourceExhausted(rendered.status());
  };
  std::vector<std::string> given_up = std::move(expanded.given_up);
  if (too_much() && !options.opts.has_value() && !options.no_opt) {
    given_up.push_back(absl::StrCat("the plan's text: ", rendered.status().message()));
    OB_ASSIGN_OR_RETURN(const auto lists,
                        StartingOpts(sink, ShareOf(options.target, CopiesOf(sink))));
    for (const std::vector<codegen::Opt>& opts : lists) {
      CompileOptions other = options;
      other.opts = opts;
      absl::StatusOr<Expanded> again = MakeProgram(sink, other);
      if (!again.ok()) continue;
      expanded = *std::move(again);
      rendered = render();
      if (!too_much()) break;
    }
  }
  OB_ASSIGN_OR_RETURN(CompiledKernel out, std::move(rendered));
  out.flops = expanded.flops * out.copies;
  out.bytes = expanded.bytes * out.copies;
  out.given_up = std::move(given_up);
  if (options.dump) {
    const bool is_text = out.form == CompiledKernel::Form::kPtx;
    std::fprintf(stderr, "%s%s%s\n", expanded.dump.c_str(), ir.c_str(),
                 is_text ? out.object.c_str() : "");
  }
  return out;
}

// The options with the target that they select, and no `cpu`.
absl::StatusOr<CompileOptions> Resolved(CompileOptions options) {
  OB_ASSIGN_OR_RETURN(options.target, TargetOf(options));
  options.cpu.clear();
  return options;
}

}  // namespace

// One of the renderers.
struct Compiler::Generator {
  absl::Status status;  // of the options
  absl::StatusOr<std::unique_ptr<render::X86Renderer>> x86;
  absl::StatusOr<std::unique_ptr<render::GpuRenderer>> gpu;
};

Compiler::Compiler(CompileOptions options) : generator_(std::make_unique<Generator>()) {
  absl::StatusOr<CompileOptions> resolved = Resolved(std::move(options));
  generator_->status = resolved.status();
  if (!resolved.ok()) return;
  options_ = *std::move(resolved);
  const int64_t columns_max = options_.grid_columns_max.value_or(render::kGridColumnsMax);
  switch (options_.target.kind) {
    case TargetKind::kCpu: generator_->x86 = render::MakeX86Renderer(options_.target); break;
    case TargetKind::kCuda:
      generator_->gpu = render::MakePtxRenderer(options_.target, columns_max);
      break;
    case TargetKind::kAmd:
      generator_->gpu =
          render::MakeAmdgpuRenderer(options_.target, columns_max, options_.no_opt);
      break;
    case TargetKind::kOpenCl: break;
  }
}

Compiler::~Compiler() = default;

absl::StatusOr<CompiledKernel> Compiler::Compile(const UOp* sink) {
  OB_RETURN_IF_ERROR(generator_->status);
  switch (options_.target.kind) {
    case TargetKind::kOpenCl: return CompileToOpenCl(sink, options_);
    case TargetKind::kCuda:
    case TargetKind::kAmd:
      OB_RETURN_IF_ERROR(generator_->gpu.status());
      return CompileForGpu(**generator_->gpu, sink, options_);
    case TargetKind::kCpu: break;
  }
  OB_RETURN_IF_ERROR(generator_->x86.status());
  return CompileToX86(**generator_->x86, sink, options_, nullptr);
}

absl::StatusOr<CompiledKernel> Compiler::Compile(const UOp* sink,
                                                 std::optional<std::vector<codegen::Opt>> opts) {
  std::swap(options_.opts, opts);
  auto compiled = Compile(sink);
  std::swap(options_.opts, opts);
  return compiled;
}

absl::StatusOr<CompiledKernel> CompileKernel(const UOp* sink, const CompileOptions& options) {
  return Compiler(options).Compile(sink);
}

absl::StatusOr<Target> TargetOf(const CompileOptions& options) {
  if (options.cpu.empty()) return options.target;
  return render::NamedTarget(options.cpu, options.features);
}

absl::StatusOr<std::string> KernelToLlvmIr(const UOp* sink, const CompileOptions& options) {
  OB_ASSIGN_OR_RETURN(const CompileOptions resolved, Resolved(options));
  OB_ASSIGN_OR_RETURN(const auto renderer, render::MakeX86Renderer(resolved.target));
  std::string ir;
  OB_RETURN_IF_ERROR(CompileToX86(*renderer, sink, resolved, &ir).status());
  return ir;
}

void WarmUpCompiler() {
  Graph g;
  const UOp* const range = g.MakeChecked(Op::kRange, DType::kI64, {}, {0, 64, 0});
  const auto place = [&](int slot) {
    const UOp* const global = g.MakeChecked(Op::kGlobal, DType::kF32, {}, {slot, 64});
    return g.MakeChecked(Op::kIndex, DType::kVoid, {global, range});
  };
  const UOp* const load = g.MakeChecked(Op::kLoad, DType::kVoid, {place(1)});
  const UOp* const store = g.MakeChecked(Op::kStore, DType::kVoid, {place(0), Mul(g, load, load)});
  OB_CHECK_OK(CompileKernel(Sink(g, {store})).status());
}

}  // namespace outboard
