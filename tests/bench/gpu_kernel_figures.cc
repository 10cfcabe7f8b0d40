#include "tests/bench/gpu_kernel_figures.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/copies.h"
#include "compiler/ir/encoding.h"
#include "compiler/schedule/schedule.h"
#include "compiler/schedule_options.h"
#include "tests/bench/figure_list.h"
#include "tests/bench/gpu_assembled_kernels.h"
#include "tests/bench/report.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/schedule_programs.h"
#include "worker/engine/plans/planned_launches.h"

namespace outboard::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMultiprocessors = 132;  // of an H100
constexpr const char* kArchs[] = {"sm_80", "sm_89", "sm_90", "sm_90a"};
constexpr char kNewest[] = "sm_90a";
constexpr int kThreads = 2;
constexpr int kRepeats = 3;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// Of this thread's own processor time.
double ProcessorMs() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e3 + static_cast<double>(t.tv_nsec) * 1e-6;
}

// What a client sends.
struct SentGraph {
  std::string bytes;
  std::vector<int64_t> donated;
};
SentGraph SentBy(const test::Program& program) {
  Graph recording;
  SentGraph sent;
  const UOp* const sink =
      test::RecordProgram(recording, program, test::Size::kReal, &sent.donated);
  sent.bytes = ValueOrDie(EncodeGraph(sink)).bytes;
  return sent;
}

// What a worker does before a program's first step: kernels that are equal are compiled once, and a
// launch that the compiler refuses becomes two of half as many copies.
struct CompiledStep {
  double seconds = 0;
  size_t launches = 0, calls = 0;  // of kernels; several may be one launch
  size_t divided = 0;              // launches that were refused
  std::vector<CompiledKernel> kernels;  // without those that have nothing to do
  std::vector<double> ms;               // processor time of each
};

struct EncodedKernel {
  GraphId id;
  std::string bytes;
};

// By kThreads threads. Adds what was compiled to `step`. Returns the ids of those that were
// refused.
absl::flat_hash_set<GraphId> CompileAll(const std::vector<EncodedKernel>& kernels,
                                        const Target& target, CompiledStep& step) {
  std::vector<absl::StatusOr<CompiledKernel>> compiled(kernels.size());
  std::vector<double> ms(kernels.size());
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i)
    threads.emplace_back([&] {
      Compiler compiler({.target = target});
      for (size_t k; (k = next++) < kernels.size();) {
        const double start = ProcessorMs();
        Graph own;
        compiled[k] =
            compiler.Compile(ValueOrDie(DecodeGraph(own, kernels[k].bytes, Level::kKernel)));
        ms[k] = ProcessorMs() - start;
      }
    });
  for (std::thread& thread : threads) thread.join();
  absl::flat_hash_set<GraphId> refused;
  for (size_t k = 0; k < kernels.size(); ++k) {
    if (!compiled[k].ok()) {
      std::fprintf(stderr, "%s\n", compiled[k].status().ToString().c_str());
      refused.insert(kernels[k].id);
      continue;
    }
    step.kernels.push_back(*std::move(compiled[k]));
    step.ms.push_back(ms[k]);
  }
  return refused;
}

CompiledStep Compile(const SentGraph& sent, const Target& target) {
  CompiledStep step;
  const Clock::time_point begin = Clock::now();
  Graph graph;
  const UOp* const sink = ValueOrDie(DecodeGraph(graph, sent.bytes));
  const schedule::Schedule schedule = ValueOrDie(
      schedule::MakeSchedule(graph, sink, target, sent.donated, ScheduleOptionsFor(target)));
  std::vector<worker::WantedKernel> wanted = worker::WantedBy(schedule);
  absl::flat_hash_set<GraphId> known;
  for (bool all = false; !all;) {
    std::vector<EncodedKernel> distinct;
    std::vector<GraphId> ids;  // of `wanted`
    for (const worker::WantedKernel& one : wanted) {
      EncodedGraph encoded =
          ValueOrDie(EncodeGraph(WithCopies(graph, schedule.kernels[one.first].ast, one.copies)));
      ids.push_back(encoded.id);
      if (known.insert(encoded.id).second) distinct.push_back({encoded.id, encoded.bytes});
    }
    const absl::flat_hash_set<GraphId> refused = CompileAll(distinct, target, step);
    for (size_t i = 0; i < wanted.size(); ++i) {
      wanted[i].refused = refused.contains(ids[i]);
      if (!wanted[i].refused) continue;
      ++step.divided;
      known.erase(ids[i]);  // half of a larger launch may be the same kernel
    }
    all = refused.empty();
    if (!all) wanted = worker::InHalves(wanted);  // dies where one copy is refused
  }
  step.launches = wanted.size();
  step.calls = schedule.kernels.size();
  step.seconds = SecondsSince(begin);
  std::erase_if(step.kernels, [](const CompiledKernel& kernel) { return kernel.tasks == 0; });
  return step;
}

bool MultipliesByWarpgroups(const CompiledKernel& kernel) {
  return absl::StrContains(kernel.object, "wgmma.mma_async");
}

// Of a step whose products are of that type; `suffix` ends the names.
void CompileFiguresOf(DType products, const std::string& suffix) {
  const SentGraph sent = SentBy(test::Gpt2Step("gpt2_124m_step", products));
  const Target target = CudaTarget(kNewest, kMultiprocessors);
  std::vector<double> seconds;
  CompiledStep step;
  for (int i = 0; i < kRepeats; ++i) {
    step = Compile(sent, target);
    seconds.push_back(step.seconds);
  }
  const std::string type(Name(products));
  Report(absl::StrCat("cuda_compile_ms_p50", suffix), Quantile(step.ms, 0.5), "ms", "",
         absl::StrFormat("processor time of a kernel of GPT-2 124M, products of %s, to PTX; the "
                         "longest of %d took %.1f ms; 6 are wanted",
                         type, step.ms.size(), *std::max_element(step.ms.begin(), step.ms.end())));
  Report(absl::StrCat("cuda_compile_s_gpt2_124m", suffix), Quantile(seconds, 0.5), "s", "",
         absl::StrCat("a step's graph, 8 x 1,024 tokens, products of ", type, ", to PTX for ",
                      kNewest, " by ", kThreads, " threads; 3 are wanted"));
  Report(absl::StrCat("cuda_launches_gpt2_124m", suffix), static_cast<double>(step.launches),
         "count", "",
         absl::StrCat("a step, products of ", type, "; ", step.calls, " kernels, of which ",
                      step.ms.size(), " launches are distinct; ", step.divided,
                      " launches were refused and divided; at most 260 launches are wanted"));
  Report(absl::StrCat("cuda_wgmma_kernels_gpt2_124m", suffix),
         static_cast<double>(std::count_if(step.kernels.begin(), step.kernels.end(),
                                           MultipliesByWarpgroups)),
         "count", "", "of the distinct kernels those that multiply by warpgroups");
}

}  // namespace

void GpuCompileFigures() {
  CompileFiguresOf(DType::kF32, "");
  CompileFiguresOf(DType::kBF16, "_bf16");
}

void GpuAssemblerFigures() {
  FigureList figures({"ptx_assembled_ratio", "ptx_spill_bytes", "ptx_local_bytes",
                      "ptx_registers_most", "ptx_warnings", "ptx_wgmma_kernels",
                      "ptx_wgmma_serialised", "ptx_assemble_s_gpt2_124m",
                      "ptx_spill_bytes_gpt2_124m"});
  const std::string ptxas = test::FindPtxas();
  if (ptxas.empty())
    return figures.Lacks("there is no ptxas; scripts/setup --assembler fetches it");
  std::vector<GpuProgram> programs = GoldenPrograms();
  for (GpuProgram& program : MatrixPrograms()) programs.push_back(std::move(program));
  AssembledKernels all, trained;
  for (const char* const arch : kArchs) {
    all.Add(AssembleAll(programs, arch, ptxas));
    trained.Add(AssembleAll(Gpt2StepPrograms(), arch, ptxas));
  }
  all.Add(trained);
  std::fprintf(stderr, "%s", all.failures.c_str());
  for (const auto& [name, bytes] : all.spills)
    std::fprintf(stderr, "%s: %d bytes spilled\n", name.c_str(), static_cast<int>(bytes));
  figures.Report("ptx_assembled_ratio", static_cast<double>(all.assembled) / all.kernels, "", "",
                 absl::StrFormat("%d kernels of the goldens, attention and its gradients, "
                                 "convolutions and theirs, products of f32 and bf16, and training "
                                 "steps of GPT-2 124M, for sm_80, sm_89, sm_90 and sm_90a",
                                 all.kernels));
  figures.Report("ptx_spill_bytes", static_cast<double>(all.spill_bytes), "bytes", "",
                 absl::StrFormat("stored and loaded, of all of these, in %d of them; 0 are wanted",
                                 all.spills.size()));
  figures.Report("ptx_local_bytes", static_cast<double>(all.local_bytes), "bytes", "",
                 "of all of these");
  figures.Report("ptx_wgmma_kernels", all.by_warpgroups, "count", "",
                 "of all of these those that multiply by warpgroups");
  figures.Report("ptx_wgmma_serialised", static_cast<double>(all.serialised), "count", "",
                 "of these, whose products the assembler lets wait for each other; 0 are wanted");
  figures.Report("ptx_registers_most", static_cast<double>(all.registers_max), "count", "",
                 "of a thread, of all of these; there are 255");
  figures.Report("ptx_warnings", static_cast<double>(all.warnings), "count", "",
                 "of the assembler, of all of these");
  // What the first step waits for beside our own compiler: the driver has the same assembler.
  const std::vector<GpuProgram> steps = {Gpt2StepProgram(DType::kBF16)};
  const AssembledKernels step = AssembleAll(steps, kNewest, ptxas);
  std::fprintf(stderr, "%s", step.failures.c_str());
  figures.Report("ptx_assemble_s_gpt2_124m", step.seconds, "s", "",
                 absl::StrFormat("processor time of the assembler for the %d distinct kernels of a "
                                 "step in bf16 for %s; the longest of them takes %.1f s",
                                 step.kernels, kNewest, step.seconds_max));
  std::string which;
  for (const auto& [name, bytes] : trained.spills)
    absl::StrAppend(&which, which.empty() ? "" : ", ", name, " ", bytes);
  figures.Report("ptx_spill_bytes_gpt2_124m", static_cast<double>(trained.spill_bytes), "bytes", "",
                 absl::StrFormat("of the %d distinct kernels of a training step in f32 and bf16, "
                                 "for all four; 0 are wanted: %s",
                                 trained.kernels, which));
}

}  // namespace outboard::bench
