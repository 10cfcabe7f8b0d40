// Programs of the golden tests on one core: what scheduling and compiling take, and the sum of the
// kernels' best times. schedule_bench [-v] [name ...]; -v lists the kernels.
#include <chrono>
#include <cstdio>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target.h"
#include "tests/compiler/kernel_run.h"
#include "tests/compiler/schedule_programs.h"

namespace outboard::test {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Seconds, the best of several.
double BestTime(const LoadedKernel& kernel, std::vector<void*>& buffers) {
  double best = 1e9, spent = 0;
  for (int i = 0; i < 20 && (i < 2 || spent < 0.05); ++i) {
    const double begin = Now();
    kernel.Run(buffers.data(), 0, kernel.kernel().tasks);
    const double time = Now() - begin;
    spent += time;
    best = std::min(best, time);
  }
  return best;
}

void Measure(const Program& program, bool list) {
  Graph g;
  const UOp* const sink = RecordProgram(g, program, Size::kReal);
  double start = Now();
  const auto schedule = ValueOrDie(schedule::MakeSchedule(g, sink, HostTarget()));
  const double schedule_ms = (Now() - start) * 1e3;
  std::vector<const UOp*> asts;
  for (const schedule::ScheduledKernel& kernel : schedule.kernels) asts.push_back(kernel.ast);
  start = Now();
  Compiler compiler;
  std::vector<absl::StatusOr<CompiledKernel>> compiled;
  for (const UOp* ast : asts) compiled.push_back(compiler.Compile(ast));
  const double compile_ms = (Now() - start) * 1e3;

  double total = 0;
  for (size_t k = 0; k < asts.size(); ++k) {
    const auto loaded = ValueOrDie(LoadedKernel::Load(ValueOrDie(compiled[k])));
    // Zeros for each kernel, so that no time depends on what another one computed (subnormals).
    constexpr size_t kLine = 64;
    std::vector<std::vector<char>> memory;
    std::vector<void*> buffers;
    for (const int b : schedule.kernels[k].buffers) {
      memory.emplace_back(schedule.buffers[b].bytes() + kLine);
      const auto at = reinterpret_cast<uintptr_t>(memory.back().data());
      buffers.push_back(reinterpret_cast<void*>((at + kLine - 1) & ~(kLine - 1)));
    }
    const double best = BestTime(*loaded, buffers);
    total += best;
    if (list)
      std::printf("%3zu %9.3f ms %7.1f GFLOP/s %7.1f GB/s  %s\n", k, best * 1e3,
                  static_cast<double>(compiled[k]->flops) / best / 1e9,
                  static_cast<double>(compiled[k]->bytes) / best / 1e9,
                  KernelToString(schedule, k).c_str());
  }
  std::printf("%-28s %4zu kernels  schedule %7.1f ms  compile %7.1f ms  run %9.3f ms  %.1f MB\n",
              program.name.c_str(), asts.size(), schedule_ms, compile_ms, total * 1e3,
              static_cast<double>(schedule.arena_bytes) / 1e6);
}

}  // namespace
}  // namespace outboard::test

int main(int argc, char** argv) {
  bool list = false;
  std::set<std::string> names;
  for (int i = 1; i < argc; ++i)
    if (std::strcmp(argv[i], "-v") == 0)
      list = true;
    else
      names.insert(argv[i]);
  outboard::WarmUpCompiler();
  for (const outboard::test::Program& program : outboard::test::Programs())
    if (names.empty() || names.contains(program.name)) outboard::test::Measure(program, list);
}
