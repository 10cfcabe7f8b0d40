#include "compiler/compile.h"

#include <cstdio>
#include <memory>

#include "base/check.h"
#include "compiler/ir/build.h"
#include "compiler/ir/print.h"
#include "compiler/ir/spec.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/optimize/apply.h"
#include "compiler/optimize/heuristics.h"
#include "compiler/optimize/loop_plan.h"
#include "compiler/program/expand.h"
#include "compiler/proof/in_range.h"
#include "compiler/render/llvm/x86.h"
#include "compiler/render/opencl_c.h"

namespace outboard {
namespace {

constexpr char kSymbol[] = "outboard_kernel";

absl::StatusOr<CompiledKernel> Compile(render::X86Renderer& renderer, const UOp* sink,
                                       const CompileOptions& options, std::string* ir) {
  OB_RETURN_IF_ERROR(VerifyGraph(sink, Level::kKernel));
  Graph guards;
  OB_ASSIGN_OR_RETURN(const UOp* const guarded, proof::GuardUnproved(guards, sink));
  OB_ASSIGN_OR_RETURN(codegen::LoopNest kernel, codegen::AnalyzeKernel(guarded));
  const Target& target = renderer.target();
  std::vector<codegen::Opt> opts;
  if (options.opts.has_value()) {
    opts = *options.opts;
  } else if (!options.no_opt) {
    opts = codegen::HeuristicOpts(kernel, target);
  }
  OB_ASSIGN_OR_RETURN(codegen::PlannedKernel planned,
                      codegen::ApplyOpts(std::move(kernel), opts, target));
  kernel = std::move(planned.kernel);
  const codegen::LoopPlan& plan = planned.plan;
  CompiledKernel out;
  out.symbol = kSymbol;
  out.buffer_count = static_cast<int>(kernel.slot_elements.size());
  out.flops = kernel.flops;
  out.bytes = kernel.bytes;
  // Nothing changes the program after the proof in ExpandPlan: what is proved is what runs.
  OB_ASSIGN_OR_RETURN(const program::Program made, program::ExpandPlan(kernel, plan));
  out.tasks = kernel.empty ? 0 : made.Extent(program::Grid::kBlock);
  std::string text;
  OB_ASSIGN_OR_RETURN(out.object,
                      renderer.Render(made, kSymbol, options.no_opt,
                                      options.dump || ir != nullptr ? &text : nullptr));
  if (options.dump)
    std::fprintf(stderr, "%s%s\n%s%s%s\n", GraphToString(sink).c_str(),
                 codegen::OptsToString(opts).c_str(), PlanToString(kernel, plan).c_str(),
                 ToString(made).c_str(), text.c_str());
  if (ir != nullptr) *ir = std::move(text);
  return out;
}

absl::StatusOr<std::unique_ptr<render::X86Renderer>> RendererFor(const CompileOptions& options) {
  OB_ASSIGN_OR_RETURN(Target target, TargetOf(options));
  return render::MakeX86Renderer(std::move(target));
}

// Compiles for a device that runs blocks of threads, by lowering to a program.
absl::StatusOr<CompiledKernel> CompileForThreads(const UOp* sink, const CompileOptions& options) {
  if (options.opts.has_value() && !options.opts->empty())
    return absl::UnimplementedError("kernel: no Opts on devices that run blocks of threads");
  OB_RETURN_IF_ERROR(VerifyGraph(sink, Level::kKernel));
  Graph guards;
  OB_ASSIGN_OR_RETURN(const UOp* const guarded, proof::GuardUnproved(guards, sink));
  OB_ASSIGN_OR_RETURN(const codegen::LoopNest kernel, codegen::AnalyzeKernel(guarded));
  OB_ASSIGN_OR_RETURN(
      const program::Program made,
      program::ExpandThreads(kernel, program::MapToThreads(kernel, options.opencl->threads_max)));
  OB_ASSIGN_OR_RETURN(CompiledKernel out, render::RenderOpenClC(made, kSymbol, *options.opencl));
  out.flops = kernel.flops;
  out.bytes = kernel.bytes;
  if (options.dump)
    std::fprintf(stderr, "%s%s\n%s\n", GraphToString(sink).c_str(), ToString(made).c_str(),
                 out.object.c_str());
  return out;
}

}  // namespace

absl::StatusOr<CompiledKernel> CompileKernel(const UOp* sink, const CompileOptions& options) {
  return std::move(CompileKernels({&sink, 1}, options)[0]);
}

std::vector<absl::StatusOr<CompiledKernel>> CompileKernels(
    std::span<const UOp* const> sinks, const CompileOptions& options,
    std::span<const std::optional<std::vector<codegen::Opt>>> opts) {
  std::vector<absl::StatusOr<CompiledKernel>> out;
  CompileOptions own = options;
  if (options.opencl.has_value()) {
    for (size_t i = 0; i < sinks.size(); ++i) {
      if (!opts.empty()) own.opts = opts[i];
      out.push_back(CompileForThreads(sinks[i], own));
    }
    return out;
  }
  auto renderer = RendererFor(options);
  for (size_t i = 0; i < sinks.size(); ++i) {
    if (!opts.empty()) own.opts = opts[i];
    if (renderer.ok()) {
      out.push_back(Compile(**renderer, sinks[i], own, nullptr));
    } else {
      out.push_back(renderer.status());
    }
  }
  return out;
}

absl::StatusOr<Target> TargetOf(const CompileOptions& options) {
  if (options.cpu.empty()) return options.target;
  return render::NamedTarget(options.cpu, options.features);
}

absl::StatusOr<std::string> KernelToLlvmIr(const UOp* sink, const CompileOptions& options) {
  OB_ASSIGN_OR_RETURN(const auto renderer, RendererFor(options));
  std::string ir;
  OB_RETURN_IF_ERROR(Compile(*renderer, sink, options, &ir).status());
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
