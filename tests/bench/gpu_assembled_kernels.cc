#include "tests/bench/gpu_assembled_kernels.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/copies.h"
#include "compiler/schedule_options.h"
#include "tests/compiler/attention_programs.h"
#include "tests/compiler/golden_kernels.h"
#include "tests/compiler/ptx_assembler.h"
#include "tests/compiler/schedule_programs.h"

namespace outboard::bench {
namespace {

constexpr int kMultiprocessors = 132;  // of an H100

Tensor In(const Dims& dims, DType dtype) { return Tensor::zeros(dims, dtype).state_(); }

GpuProgram Recorded(const std::string& name, std::function<void()> run) {
  return {name, [name, run = std::move(run)](Graph& g) {
            return SentProgram{test::RecordProgram(g, {name, [&](test::Size) { run(); }},
                                                   test::Size::kReal)};
          }};
}

void AddAttention(std::vector<GpuProgram>& programs) {
  for (const auto& [type, dtype] : {std::pair("bf16", DType::kBF16), {"f16", DType::kF16}})
    for (const int64_t width : {64, 128, 256})
      for (const bool causal : {false, true})
        for (const bool backward : {false, true})
          programs.push_back(
              {absl::StrCat("attention_", type, "_", width, causal ? "_causal" : "",
                            backward ? "_gradients" : ""),
               [=, type_of = dtype](Graph& g) {
                 return SentProgram{test::AttentionGraph(g, {.heads = 2048 / width,
                                                             .queries = 1024,
                                                             .keys = 1024,
                                                             .width = width,
                                                             .causal = causal,
                                                             .backward = backward,
                                                             .dtype = type_of,
                                                             .batch = 4})};
               }});
}

// A layer of ResNet-50 and its gradients.
void AddConvolution(std::vector<GpuProgram>& programs, int64_t channels, int64_t side,
                    int64_t filters, int64_t kernel, int64_t stride) {
  programs.push_back(
      Recorded(absl::StrCat("conv_", channels, "_", filters, "_", kernel, "_", stride), [=] {
        Tensor x = In({32, channels, side, side}, DType::kBF16);
        Tensor w = In({filters, channels, kernel, kernel}, DType::kBF16);
        x.requires_grad_();
        w.requires_grad_();
        const Tensor y = x.conv2d(w, {}, {.stride = stride, .padding = kernel / 2});
        std::vector<Tensor> results = {y};
        for (const Tensor& gradient : y.gradient({x, w}, In(y.shape(), DType::kBF16)))
          results.push_back(gradient);
        realize(results);
      }));
}

// Calls `each` with "program number" and what becomes of the kernel.
void CompileAll(std::span<const GpuProgram> programs, const std::string& arch,
                const std::function<void(const std::string& number,
                                         const absl::StatusOr<CompiledKernel>& kernel)>& each) {
  const Target target = CudaTarget(arch, kMultiprocessors);
  Compiler compiler({.target = target});
  for (const GpuProgram& program : programs) {
    Graph graph;
    const SentProgram sent = program.graph(graph);
    const schedule::Schedule schedule = ValueOrDie(schedule::MakeSchedule(
        graph, sent.sink, target, sent.donated, ScheduleOptionsFor(target)));
    for (size_t k = 0; k < schedule.kernels.size(); ++k)
      each(absl::StrCat(program.name, " ", k), compiler.Compile(schedule.kernels[k].ast));
  }
}

}  // namespace

std::vector<GpuProgram> GoldenPrograms() {
  std::vector<GpuProgram> programs;
  for (const test::GoldenKernel& golden : test::GoldenKernels())
    programs.push_back(Recorded(golden.name, [&golden] { realize(golden.results()); }));
  return programs;
}

std::vector<GpuProgram> MatrixPrograms() {
  std::vector<GpuProgram> programs;
  AddAttention(programs);
  AddConvolution(programs, 3, 224, 64, 7, 2);
  AddConvolution(programs, 64, 56, 64, 3, 1);
  AddConvolution(programs, 128, 56, 128, 3, 2);
  AddConvolution(programs, 256, 56, 64, 1, 1);
  constexpr int64_t kSide = 4096;
  for (const auto& [type, dtype] : {std::pair("f32", DType::kF32), {"bf16", DType::kBF16}})
    for (const bool a : {false, true})
      for (const bool b : {false, true})
        programs.push_back(Recorded(
            absl::StrCat("matmul_", type, a ? "_t" : "_n", b ? "t" : "n"), [=, of = dtype] {
              const Tensor x = In({kSide, kSide}, of), w = In({kSide, kSide}, of);
              (a ? x.transpose() : x).matmul(b ? w.transpose() : w).realize();
            }));
  return programs;
}

GpuProgram Gpt2StepProgram(DType products) {
  const std::string name = products == DType::kF32 ? "gpt2_124m_step" : "gpt2_124m_step_bf16";
  return {name, [name, products](Graph& g) {
            SentProgram sent;
            sent.sink = test::RecordProgram(g, test::Gpt2Step(name, products), test::Size::kReal,
                                            &sent.donated);
            return sent;
          }};
}

std::vector<GpuProgram> Gpt2StepPrograms() {
  return {Gpt2StepProgram(DType::kF32), Gpt2StepProgram(DType::kBF16)};
}

void AssembledKernels::Add(const AssembledKernels& other) {
  kernels += other.kernels;
  assembled += other.assembled;
  by_warpgroups += other.by_warpgroups;
  spill_bytes += other.spill_bytes;
  local_bytes += other.local_bytes;
  warnings += other.warnings;
  serialised += other.serialised;
  ignored += other.ignored;
  seconds += other.seconds;
  seconds_max = std::max(seconds_max, other.seconds_max);
  registers_max = std::max(registers_max, other.registers_max);
  failures += other.failures;
  spills.insert(other.spills.begin(), other.spills.end());
}

AssembledKernels AssembleAll(std::span<const GpuProgram> programs, const std::string& arch,
                             const std::string& ptxas) {
  AssembledKernels all;
  absl::flat_hash_set<std::string> known;
  CompileAll(programs, arch, [&](const std::string& number, const auto& kernel) {
    const std::string name = absl::StrCat(number, " for ", arch);
    if (!kernel.ok()) {
      ++all.kernels;
      absl::StrAppend(&all.failures, name, ": ", kernel.status().message(), "\n");
      return;
    }
    if (kernel->tasks == 0 ||
        !known.insert(absl::StrReplaceAll(kernel->object, {{kernel->symbol, "kernel"}})).second)
      return;
    ++all.kernels;
    all.by_warpgroups += absl::StrContains(kernel->object, "wgmma.mma_async");
    const auto result = test::AssembleKernel(ptxas, kernel->object, arch);
    if (!result.ok()) {
      absl::StrAppend(&all.failures, name, ": ", result.status().message(), "\n");
      return;
    }
    ++all.assembled;
    all.spill_bytes += result->spill_bytes;
    all.local_bytes += result->stack_bytes;
    all.warnings += result->warnings;
    all.serialised += result->serialised;
    all.ignored += result->ignored;
    all.seconds += result->seconds;
    all.seconds_max = std::max(all.seconds_max, result->seconds);
    all.registers_max = std::max(all.registers_max, result->registers);
    if (const int64_t bytes = std::max(result->spill_bytes, result->stack_bytes); bytes > 0)
      all.spills[name] = bytes;
  });
  return all;
}

std::vector<std::string> PlansGivenUp(std::span<const GpuProgram> programs,
                                      const std::string& arch) {
  std::vector<std::string> plans;
  CompileAll(programs, arch, [&](const std::string& number, const auto& kernel) {
    OB_CHECK_OK(kernel.status());
    for (const std::string& plan : kernel->given_up)
      plans.push_back(absl::StrCat(number, ": ", plan));
  });
  return plans;
}

}  // namespace outboard::bench
