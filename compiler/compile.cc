#include "compiler/compile.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string_view>

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

bool ThroughPrograms(const CompileOptions& options) {
  if (options.x86.has_value()) return *options.x86 == CompileOptions::X86Path::kPrograms;
  static const char* const path = std::getenv("OUTBOARD_X86");
  return path != nullptr && std::string_view(path) == "programs";
}

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
  // Checks the kernel that is rendered, not the one passed in: a pass in between may have lost a
  // gate.
  OB_RETURN_IF_ERROR(proof::CheckInRange(kernel.stores));
  CompiledKernel out;
  out.symbol = kSymbol;
  out.buffer_count = static_cast<int>(kernel.slot_elements.size());
  out.flops = kernel.flops;
  out.bytes = kernel.bytes;
  std::string text, program_text;
  std::string* const wanted_text = options.dump || ir != nullptr ? &text : nullptr;
  if (ThroughPrograms(options)) {
    OB_ASSIGN_OR_RETURN(const program::Program made, program::ExpandPlan(kernel, plan));
    out.tasks = kernel.empty ? 0 : made.Extent(program::Grid::kBlock);
    if (options.dump) program_text = ToString(made);
    OB_ASSIGN_OR_RETURN(out.object, renderer.Render(made, kSymbol, options.no_opt, wanted_text));
  } else {
    out.tasks = kernel.empty ? 0 : plan.tasks();
    OB_ASSIGN_OR_RETURN(out.object,
                        renderer.Render(kernel, plan, kSymbol, options.no_opt, wanted_text));
  }
  if (options.dump)
    std::fprintf(stderr, "%s%s\n%s%s%s\n", GraphToString(sink).c_str(),
                 codegen::OptsToString(opts).c_str(), PlanToString(kernel, plan).c_str(),
                 program_text.c_str(), text.c_str());
  if (ir != nullptr) *ir = std::move(text);
  return out;
}

absl::StatusOr<std::unique_ptr<render::X86Renderer>> RendererFor(const CompileOptions& options) {
  OB_ASSIGN_OR_RETURN(Target target, TargetOf(options));
  return render::MakeX86Renderer(std::move(target));
}

// A program of one thread a block, by the same Opts as for x86-64.
absl::StatusOr<program::Program> ExpandForProcessor(codegen::LoopNest kernel,
                                                    const CompileOptions& options) {
  std::vector<codegen::Opt> opts;
  if (options.opts.has_value()) {
    opts = *options.opts;
  } else if (!options.no_opt) {
    opts = codegen::HeuristicOpts(kernel, options.target);
  }
  OB_ASSIGN_OR_RETURN(const codegen::PlannedKernel planned,
                      codegen::ApplyOpts(std::move(kernel), opts, options.target));
  return program::ExpandPlan(planned.kernel, planned.plan);
}

absl::StatusOr<program::Program> ExpandForThreads(const codegen::LoopNest& kernel,
                                                  const CompileOptions& options) {
  if (options.opts.has_value() && !options.opts->empty())
    return absl::UnimplementedError("kernel: no Opts on devices that run blocks of threads");
  return program::ExpandThreads(kernel,
                                program::MapToThreads(kernel, options.target.block_threads));
}

absl::StatusOr<CompiledKernel> CompileToOpenCl(const UOp* sink, const CompileOptions& options) {
  OB_RETURN_IF_ERROR(VerifyGraph(sink, Level::kKernel));
  Graph guards;
  OB_ASSIGN_OR_RETURN(const UOp* const guarded, proof::GuardUnproved(guards, sink));
  OB_ASSIGN_OR_RETURN(codegen::LoopNest kernel, codegen::AnalyzeKernel(guarded));
  const int64_t flops = kernel.flops, bytes = kernel.bytes;
  OB_ASSIGN_OR_RETURN(const program::Program made,
                      options.target.block_threads > 1
                          ? ExpandForThreads(kernel, options)
                          : ExpandForProcessor(std::move(kernel), options));
  OB_ASSIGN_OR_RETURN(CompiledKernel out, render::RenderOpenClC(made, kSymbol, options.target));
  out.flops = flops;
  out.bytes = bytes;
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
  if (options.cpu.empty() && options.target.kind == TargetKind::kOpenCl) {
    for (size_t i = 0; i < sinks.size(); ++i) {
      if (!opts.empty()) own.opts = opts[i];
      out.push_back(CompileToOpenCl(sinks[i], own));
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
