#include "tests/bench/gpu_attention_figures.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/kernel/loop_nest.h"
#include "compiler/program/online/plan.h"
#include "compiler/schedule/schedule.h"
#include "compiler/schedule_options.h"
#include "tests/bench/gpu_machine_code.h"
#include "tests/compiler/attention_gradient_kernels.h"
#include "tests/compiler/attention_programs.h"
#include "tests/compiler/kernel_build.h"
#include "tests/compiler/kernel_run.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/ptx_run.h"
#include "tests/gpu/ptx/machine.h"

namespace outboard::bench {
namespace {

using test::Fold;
using test::LoadAt;
using test::Range;
using test::ReduceRange;
using test::RowMajor;

constexpr const char* kArches[] = {"sm_90", "sm_90a"};  // by mma.sync, and by warpgroups
constexpr int kMultiprocessors = 132;  // an H100's
// What is assembled, and what the machine runs: for a device of one multiprocessor, so that it has
// the same tiles.
constexpr int64_t kLargeHeads = 64, kLargeRows = 4096, kRows = 256, kHeads = 2;
constexpr int64_t kWayRows = 256;  // where only accesses to shared memory are counted
// Of a layer of GPT-2 124M: 8 passages of 1,024 tokens, 12 heads.
constexpr int64_t kGradientHeads = 96, kGradientRows = 1024;

// y[h,i,c] = sum of bf16(softmax(q[h,i,:] k[h,j,:] / sqrt(width)) over j) * v[h,j,c].
const UOp* Attention(Graph& g, int64_t heads, int64_t rows, int64_t width, bool causal) {
  const UOp *h = Range(g, 0, heads), *i = Range(g, 1, rows), *c = Range(g, 2, width);
  const UOp *j = ReduceRange(g, 3, rows), *d = ReduceRange(g, 4, width);
  const int64_t elements = heads * rows * width;
  const auto load = [&](int64_t slot, const UOp* row, const UOp* column) {
    return Cast(g,
                LoadAt(g, slot, DType::kBF16, elements,
                       RowMajor(g, {h, row, column}, {heads, rows, width})),
                DType::kF32);
  };
  const UOp* x = Fold(g, Op::kAdd, Mul(g, load(1, i, d), load(2, j, d)), {d});
  x = Mul(g, x, ConstFloat(g, DType::kF32, 1 / std::sqrt(static_cast<double>(width))));
  if (causal)
    x = Alu(g, Op::kWhere, Alu(g, Op::kCmpLt, i, j),
            ConstFloat(g, DType::kF32, -std::numeric_limits<double>::infinity()), x);
  const UOp* const max = Fold(g, Op::kMax, x, {j});
  const UOp* const e = Alu(g, Op::kExp, Add(g, x, Alu(g, Op::kNeg, max)));
  const UOp* const weight =
      Cast(g, Cast(g, Alu(g, Op::kFDiv, e, Fold(g, Op::kAdd, e, {j})), DType::kBF16), DType::kF32);
  const UOp* const y = Fold(g, Op::kAdd, Mul(g, weight, load(3, j, c)), {j});
  return Sink(g, {test::StoreAt(g, 0, elements, RowMajor(g, {h, i, c}, {heads, rows, width}),
                                Cast(g, y, DType::kBF16))});
}

absl::StatusOr<CompiledKernel> Compiled(const char* arch, int64_t heads, int64_t rows,
                                        int64_t width, bool causal,
                                        int multiprocessors = kMultiprocessors) {
  Graph g;
  return CompileKernel(Attention(g, heads, rows, width, causal),
                       {.target = CudaTarget(arch, multiprocessors)});
}

absl::StatusOr<ptx::Counters> RunOnMachine(int64_t width, bool causal) {
  OB_ASSIGN_OR_RETURN(const CompiledKernel kernel,
                      Compiled(kArches[0], kHeads, kRows, width, causal, 1));
  ptx::DeviceMemory memory;
  ptx::Machine machine(&memory);
  OB_ASSIGN_OR_RETURN(const auto module, machine.Load(kernel.object));
  ptx::LaunchConfig config;
  config.grid[0] = static_cast<uint32_t>(kernel.blocks[0]);
  config.block[0] = static_cast<uint32_t>(kernel.threads[0]);
  config.shared_bytes = test::SharedBytesOfLaunch(kernel);
  std::vector<uint64_t> addresses;
  for (int slot = 0; slot < 4; ++slot) {
    std::string bytes(static_cast<size_t>(kHeads * kRows * width * 2), '\0');
    for (size_t at = 0; at < bytes.size(); at += 2)
      StoreFloat(DType::kBF16, static_cast<double>(at / 2 * 7 % 9) / 4 - 1, bytes.data() + at);
    addresses.push_back(memory.Allocate(bytes.size()));
    OB_CHECK(memory.Write(addresses.back(), bytes.data(), bytes.size()));
  }
  config.parameters.resize(addresses.size() * sizeof(uint64_t));
  std::memcpy(config.parameters.data(), addresses.data(), config.parameters.size());
  OB_RETURN_IF_ERROR(machine.Launch(*module, kernel.symbol, config));
  if (!machine.reports().empty())
    return absl::FailedPreconditionError(machine.reports()[0].ToString());
  return machine.counters();
}

// The kernels of a whole graph of attention, on the machine.
absl::Status AddBankWays(const char* arch, int64_t width, bool backward,
                         GpuAttentionFigures& figures) {
  const Target target = CudaTarget(arch, /*multiprocessors=*/1);
  Graph g;
  const UOp* const sink = test::AttentionGraph(g, {.heads = 1,
                                                   .queries = kWayRows,
                                                   .keys = kWayRows,
                                                   .width = width,
                                                   .backward = backward,
                                                   .dtype = DType::kBF16,
                                                   .batch = 1});
  // Scores are computed again, also where so few of them would not be worth it.
  schedule::ScheduleOptions options = ScheduleOptionsFor(target);
  options.scores = schedule::ScorePolicy::kRecompute;
  OB_ASSIGN_OR_RETURN(const schedule::Schedule schedule,
                      schedule::MakeSchedule(g, sink, target, {}, options));
  const char* const unit = arch == kArches[1] ? "wgmma.mma_async" : "mma.sync";
  bool by_unit = false;
  for (size_t k = 0; k < schedule.kernels.size(); ++k) {
    OB_ASSIGN_OR_RETURN(const CompiledKernel kernel,
                        CompileKernel(schedule.kernels[k].ast, {.target = target}));
    if (kernel.tasks == 0) continue;
    test::Buffers buffers;
    for (const int buffer : schedule.kernels[k].buffers)
      buffers.emplace_back(
          static_cast<size_t>(schedule.buffers[static_cast<size_t>(buffer)].bytes()), '\0');
    buffers.resize(static_cast<size_t>(kernel.buffer_count));
    test::MachineCounts counts;
    OB_RETURN_IF_ERROR(test::RunOnPtxMachine(kernel, buffers, {}, /*seed=*/1,
                                             /*bank_conflicts=*/nullptr, &counts));
    by_unit = by_unit || absl::StrContains(kernel.object, unit);
    if (counts.shared_accesses == 0) continue;
    const double ways = static_cast<double>(counts.shared_wavefronts) /
                        static_cast<double>(counts.shared_accesses);
    if (ways <= figures.bank_ways) continue;
    figures.bank_ways = ways;
    figures.bank_ways_of = absl::StrCat(arch, ", heads of ", width,
                                        backward ? ", with gradients" : "", ", kernel ", k);
  }
  // Of a graph with gradients so small a one may be left to mma.sync.
  if (!by_unit && !backward)
    return absl::InternalError(absl::StrCat("attention for ", arch, " without ", unit));
  return absl::OkStatus();
}

// What becomes of the kernel for this target.
absl::Status AddCode(const char* arch, int64_t width, bool causal, GpuAttentionFigures& figures) {
  const std::string ptxas = test::FindPtxas(), nvdisasm = test::FindNvdisasm();
  const bool groups = arch == kArches[1];
  const auto begin = std::chrono::steady_clock::now();
  OB_ASSIGN_OR_RETURN(const CompiledKernel kernel,
                      Compiled(arch, kLargeHeads, kLargeRows, width, causal));
  if (width == 64 && !groups)
    figures.compile_ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  if (ptxas.empty()) return absl::OkStatus();
  OB_ASSIGN_OR_RETURN(const test::Assembled assembled,
                      test::AssembleKernel(ptxas, kernel.object, arch));
  figures.spill_bytes = std::max(figures.spill_bytes.value_or(0), assembled.spill_bytes);
  figures.registers = std::max(figures.registers.value_or(0), assembled.registers);
  figures.ignored = figures.ignored || assembled.ignored;
  if (nvdisasm.empty()) return absl::OkStatus();
  OB_ASSIGN_OR_RETURN(const MachineCode code, MachineCodeOf(ptxas, nvdisasm, kernel.object, arch));
  figures.serialised = figures.serialised || absl::StrContains(code.said, "serialized");
  const std::vector<CodeLoop> loops = LoopsWith(groups ? "HGMMA" : "HMMA", code.listing);
  // ptxas puts retries of waits behind the function's end. Their jumps back look like loops, which
  // have more instructions for each product than the main loop: that is the one with the fewest.
  const auto is_less = [](const CodeLoop& a, const CodeLoop& b) {
    return a.PerProduct() < b.PerProduct();
  };
  const auto main_loop = std::min_element(loops.begin(), loops.end(), is_less);
  if (main_loop == loops.end()) return absl::InternalError("no loop of matrix instructions");
  if (causal) {
    figures.instructions_per_hgmma_whole = main_loop->PerProduct();
    const size_t end = main_loop->first + main_loop->instructions;
    std::vector<CodeLoop> after;
    std::copy_if(loops.begin(), loops.end(), std::back_inserter(after),
                 [&](const CodeLoop& loop) { return loop.first >= end; });
    if (after.empty()) return absl::InternalError("no loop of times that a mask cuts");
    figures.instructions_per_hgmma_cut =
        std::min_element(after.begin(), after.end(), is_less)->PerProduct();
    return absl::OkStatus();
  }
  std::optional<double>* const of_64 =
      groups ? &figures.instructions_per_hgmma_64 : &figures.instructions_per_hmma_64;
  std::optional<double>* const of_128 =
      groups ? &figures.instructions_per_hgmma_128 : &figures.instructions_per_hmma_128;
  *(width == 64 ? of_64 : of_128) = main_loop->PerProduct();
  return absl::OkStatus();
}

// The loops that are no retries of waits: ptxas puts these behind the kernel's end, so that the
// jumps back from there have a real loop, or the rest of one, between them and their targets.
std::vector<CodeLoop> RealLoops(std::vector<CodeLoop> loops) {
  std::ranges::sort(loops, {}, &CodeLoop::instructions);
  std::vector<CodeLoop> real;
  for (const CodeLoop& loop : loops) {
    const auto meets = [&](const CodeLoop& other) {
      return loop.first < other.first + other.instructions &&
             other.first < loop.first + loop.instructions;
    };
    if (std::ranges::none_of(real, meets)) real.push_back(loop);
  }
  std::ranges::sort(real, {}, &CodeLoop::first);
  return real;
}

absl::Status AddGradients(int64_t width, bool over_columns, GpuAttentionFigures& figures) {
  const std::string ptxas = test::FindPtxas(), nvdisasm = test::FindNvdisasm();
  if (ptxas.empty()) return absl::OkStatus();
  const Target target = CudaTarget(kArches[1], kMultiprocessors);
  const test::GradientShape shape{.heads = kGradientHeads,
                                  .queries = kGradientRows,
                                  .keys = kGradientRows,
                                  .width = width,
                                  .causal = true,
                                  .loads_dot = over_columns};
  for (const bool of_keys : {false, true}) {
    Graph g;
    const UOp* const sink =
        of_keys ? test::KeysGradientKernel(g, shape) : test::QueriesGradientKernel(g, shape);
    OB_ASSIGN_OR_RETURN(const codegen::LoopNest nest, codegen::AnalyzeKernel(sink));
    OB_ASSIGN_OR_RETURN(const auto plan, program::PlanOnline(nest, target, /*opts=*/nullptr));
    if (!plan || !plan->tile.groups)
      return absl::InternalError("gradients of attention without warpgroups");
    OB_ASSIGN_OR_RETURN(const CompiledKernel kernel, CompileKernel(sink, {.target = target}));
    OB_ASSIGN_OR_RETURN(const test::Assembled assembled,
                        test::AssembleKernel(ptxas, kernel.object, kArches[1]));
    figures.spill_bytes = std::max(figures.spill_bytes.value_or(0), assembled.spill_bytes);
    figures.registers = std::max(figures.registers.value_or(0), assembled.registers);
    figures.ignored = figures.ignored || assembled.ignored;
    if (nvdisasm.empty()) continue;
    OB_ASSIGN_OR_RETURN(const MachineCode code,
                        MachineCodeOf(ptxas, nvdisasm, kernel.object, kArches[1]));
    figures.serialised = figures.serialised || absl::StrContains(code.said, "serialized");
    GpuAttentionFigures::PerScore& of =
        over_columns ? figures.per_score_over_columns : figures.per_score;
    std::vector<double>& per_score = of_keys ? (width == 64 ? of.keys_64 : of.keys_128)
                                             : (width == 64 ? of.queries_64 : of.queries_128);
    // Of 64 rows, by the 128 threads of a warpgroup.
    const auto scores = static_cast<double>(plan->tile.steps) / 2;
    for (const CodeLoop& loop : RealLoops(LoopsWith("HGMMA", code.listing)))
      per_score.push_back(static_cast<double>(loop.instructions) / scores);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GpuAttentionFigures> MeasureGpuAttention() {
  GpuAttentionFigures figures;
  for (const char* arch : kArches)
    for (const int64_t width : {64, 128})
      OB_RETURN_IF_ERROR(AddCode(arch, width, /*causal=*/false, figures));
  OB_RETURN_IF_ERROR(AddCode(kArches[1], 64, /*causal=*/true, figures));
  for (const int64_t width : {64, 128})
    for (const bool over_columns : {false, true})
      OB_RETURN_IF_ERROR(AddGradients(width, over_columns, figures));
  OB_ASSIGN_OR_RETURN(const ptx::Counters all, RunOnMachine(64, /*causal=*/false));
  OB_ASSIGN_OR_RETURN(const ptx::Counters causal, RunOnMachine(64, /*causal=*/true));
  for (const char* arch : kArches)
    for (const int64_t width : {64, 128})
      for (const bool backward : {false, true})
        OB_RETURN_IF_ERROR(AddBankWays(arch, width, backward, figures));
  figures.causal_part = static_cast<double>(causal.products) / static_cast<double>(all.products);
  return figures;
}

}  // namespace outboard::bench
