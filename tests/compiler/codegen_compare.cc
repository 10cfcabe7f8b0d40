// x86-64 code from programs against code from loop plans: for each kernel, with the same Opts, the
// ratio of run times and of compile times. Both are run in turns on one core, with real-time
// priority where that is allowed; medians.
//
//   codegen_compare                 the kernels of bench_kernels.h
//   codegen_compare NAME            those whose name contains NAME
//   codegen_compare -p PROGRAM ...  the kernels of these programs (schedule_programs.h); "all": of
//   all
//   codegen_compare -k N -p PROGRAM kernel N alone
// DUMP=1 prints each kernel's Opts, program and LLVM IR. OBJECTS=PREFIX keeps both objects of the
// last kernel. CPU=NAME compiles for another processor; nothing is run. TASKS=N runs the first N
// tasks.
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/ir/accessors.h"
#include "compiler/ir/print.h"
#include "compiler/schedule/schedule.h"
#include "compiler/target.h"
#include "tests/compiler/bench_kernels.h"
#include "tests/compiler/kernel_run.h"
#include "tests/compiler/schedule_programs.h"

namespace outboard::test {
namespace {

using Path = CompileOptions::X86Path;

double Now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double Median(std::vector<double> of) {
  std::sort(of.begin(), of.end());
  return of[of.size() / 2];
}

struct Memory {
  std::vector<std::vector<char>> bytes;
  std::vector<int64_t> vars;
  std::vector<void*> pointers;
};

Memory MakeMemory(const UOp* sink) {
  constexpr uintptr_t kLine = 64;
  Memory memory;
  for (const UOp* node : PostOrder(sink)) {
    if (node->op == Op::kVar) {
      const auto slot = static_cast<size_t>(VarOf(node).slot());
      if (memory.vars.size() <= slot) memory.vars.resize(slot + 1);
      memory.vars[slot] = VarOf(node).max();
    }
    if (node->op != Op::kGlobal) continue;
    const auto slot = static_cast<size_t>(GlobalOf(node).slot());
    if (memory.bytes.size() <= slot) memory.bytes.resize(slot + 1);
    std::vector<char>& bytes = memory.bytes[slot];
    bytes.resize(GlobalOf(node).elements() * ByteWidth(node->dtype) + kLine);
    if (node->dtype == DType::kF32)
      for (int64_t i = 0; i < GlobalOf(node).elements(); ++i) {
        const float value = 0.25F * static_cast<float>(i % 7);
        std::memcpy(bytes.data() + 4 * i, &value, 4);
      }
  }
  for (auto& bytes : memory.bytes)
    memory.pointers.push_back(reinterpret_cast<void*>(
        (reinterpret_cast<uintptr_t>(bytes.data()) + kLine - 1) & ~(kLine - 1)));
  memory.pointers.push_back(memory.vars.data());
  return memory;
}

struct Totals {
  double log_run = 0, log_compile = 0;
  double run[2] = {0, 0}, compile[2] = {0, 0};
  int measured = 0, without_form = 0;
} totals;

void Compare(const std::string& name, const UOp* sink) {
  const char* const cpu = std::getenv("CPU");
  std::unique_ptr<LoadedKernel> loaded[2];
  double compile[2];
  size_t bytes[2];
  for (const Path path : {Path::kPlan, Path::kPrograms}) {
    const auto p = static_cast<size_t>(path);
    CompileOptions options{.dump = std::getenv("DUMP") != nullptr, .x86 = path};
    if (const char* opts = std::getenv("OPTS")) options.opts = ValueOrDie(codegen::ParseOpts(opts));
    if (cpu != nullptr) options.cpu = cpu;
    std::vector<double> times;
    absl::StatusOr<CompiledKernel> kernel;
    for (int i = 0; i < 3; ++i) {
      const double start = Now();
      kernel = CompileKernel(sink, options);
      times.push_back(Now() - start);
      if (times.back() > 0.2) break;
    }
    compile[p] = Median(times);
    if (!kernel.ok()) {
      std::printf("%-28s %s\n", name.c_str(), kernel.status().ToString().c_str());
      ++totals.without_form;
      return;
    }
    bytes[p] = kernel->object.size();
    if (const char* path_prefix = std::getenv("OBJECTS")) {
      std::FILE* const file =
          std::fopen(absl::StrCat(path_prefix, p == 0 ? ".plan.o" : ".programs.o").c_str(), "wb");
      std::fwrite(kernel->object.data(), 1, kernel->object.size(), file);
      std::fclose(file);
    }
    if (cpu == nullptr) loaded[p] = ValueOrDie(LoadedKernel::Load(*std::move(kernel)));
  }
  double seconds[2] = {1, 1};
  if (cpu == nullptr) {
    Memory memory = MakeMemory(sink);
    const int64_t tasks_max = std::getenv("TASKS") ? std::atoi(std::getenv("TASKS")) : INT64_MAX;
    const auto run = [&](int p, int times) {
      const double start = Now();
      for (int i = 0; i < times; ++i)
        loaded[p]->Run(memory.pointers.data(), 0, std::min(tasks_max, loaded[p]->kernel().tasks));
      return (Now() - start) / times;
    };
    const double once = std::min(run(0, 1), run(0, 1));
    // A turn lasts a millisecond or more, so that caches are warm for most of it.
    const int times = static_cast<int>(std::clamp(1e-3 / std::max(once, 1e-8), 1.0, 1e5));
    const int turns = static_cast<int>(std::clamp(0.15 / std::max(once * times, 1e-8), 5.0, 41.0));
    std::vector<double> samples[2];
    run(1, 1);
    for (int t = 0; t < turns; ++t)
      for (const int p : {t % 2, 1 - t % 2}) samples[p].push_back(run(p, times));
    for (const int p : {0, 1}) seconds[p] = Median(samples[p]);
  }
  std::printf(
      "%-28s %10.1f us -> %10.1f us  ratio %5.3f  compile %6.1f -> %6.1f ms  ratio %5.2f  object "
      "%zu -> %zu B\n",
      name.c_str(), seconds[0] * 1e6, seconds[1] * 1e6, seconds[1] / seconds[0], compile[0] * 1e3,
      compile[1] * 1e3, compile[1] / compile[0], bytes[0], bytes[1]);
  std::fflush(stdout);
  ++totals.measured;
  totals.log_run += std::log(seconds[1] / seconds[0]);
  totals.log_compile += std::log(compile[1] / compile[0]);
  for (const int p : {0, 1}) {
    totals.run[p] += seconds[p];
    totals.compile[p] += compile[p];
  }
}

void CompareProgram(const Program& program, int only) {
  Graph g;
  const UOp* const sink = RecordProgram(g, program, Size::kReal);
  const auto schedule = ValueOrDie(schedule::MakeSchedule(g, sink, HostTarget()));
  std::set<std::string> seen;  // equal kernels are measured once
  for (size_t k = 0; k < schedule.kernels.size(); ++k) {
    if (only >= 0 && static_cast<int>(k) != only) continue;
    const UOp* const ast = schedule.kernels[k].ast;
    if (seen.insert(GraphToString(ast)).second) Compare(absl::StrCat(program.name, " ", k), ast);
  }
}

void Pin() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(sched_getcpu(), &cores);
  sched_setaffinity(0, sizeof cores, &cores);
  const sched_param priority{.sched_priority = 10};
  if (sched_setscheduler(0, SCHED_FIFO, &priority) != 0)
    std::printf("no real-time priority: others on the machine disturb\n");
}

}  // namespace
}  // namespace outboard::test

int main(int argc, char** argv) {
  using namespace outboard;        // NOLINT
  using namespace outboard::test;  // NOLINT
  WarmUpCompiler();
  Pin();
  int only = -1;
  bool programs = false;
  std::set<std::string> names;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "-p") == 0) {
      programs = true;
    } else if (std::strcmp(argv[i], "-k") == 0 && i + 1 < argc) {
      only = std::atoi(argv[++i]);
    } else {
      names.insert(argv[i]);
    }
  }
  if (programs) {
    for (const test::Program& program : Programs())
      if (names.contains(program.name) || names.contains("all")) CompareProgram(program, only);
  } else {
    ForBenchKernels([&](const std::string& name, const MakeKernel& make) {
      if (!names.empty() && name.find(*names.begin()) == std::string::npos) return;
      Graph g;
      Compare(name, make(g));
    });
  }
  if (totals.measured == 0) return 0;
  std::printf(
      "%d kernels, %d without a form; run time ratio: geometric mean %.3f, of sums %.3f; compile "
      "time ratio: geometric mean %.3f, of sums %.3f\n",
      totals.measured, totals.without_form, std::exp(totals.log_run / totals.measured),
      totals.run[1] / totals.run[0], std::exp(totals.log_compile / totals.measured),
      totals.compile[1] / totals.compile[0]);
}
