// GFLOP/s and GB/s of compiled kernels on one core, and what compiling them takes. An argument
// picks kernels by name. OPTS="VECTOR:1:16 ..." is used instead of the heuristic's; DUMP=1 prints
// expression, plan and IR; OBJECT=<path> keeps the object.
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <string>
#include <vector>

#include "base/check.h"
#include "compiler/compile.h"
#include "compiler/ir/accessors.h"
#include "tests/compiler/bench_kernels.h"
#include "tests/compiler/kernel_run.h"

namespace outboard::test {
namespace {

// Of this thread's own processor time: others that use the machine cost cache misses at most.
double Now() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

void Measure(const char* name, const UOp* sink) {
  const bool dump = std::getenv("DUMP") != nullptr;
  CompileOptions options{.dump = dump};
  if (const char* opts = std::getenv("OPTS")) options.opts = ValueOrDie(codegen::ParseOpts(opts));
  const double start = Now();
  CompiledKernel kernel = ValueOrDie(CompileKernel(sink, options));
  const double compile_ms = (Now() - start) * 1e3;
  if (const char* path = std::getenv("OBJECT")) {
    std::FILE* const file = std::fopen(path, "wb");
    std::fwrite(kernel.object.data(), 1, kernel.object.size(), file);
    std::fclose(file);
  }
  const auto loaded = ValueOrDie(LoadedKernel::Load(std::move(kernel)));
  std::vector<std::vector<char>> memory;
  std::vector<void*> buffers;
  for (const UOp* node : PostOrder(sink)) {
    if (node->op != Op::kGlobal) continue;
    const auto slot = static_cast<size_t>(GlobalOf(node).slot());
    if (memory.size() <= slot) memory.resize(slot + 1);
    memory[slot].resize(GlobalOf(node).elements() * ByteWidth(node->dtype) + 64);
    if (node->dtype == DType::kF32)
      for (int64_t i = 0; i < GlobalOf(node).elements(); ++i)
        reinterpret_cast<float*>(memory[slot].data())[i] = 0.25f * (i % 7);
  }
  for (auto& bytes : memory)
    buffers.push_back(
        reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(bytes.data()) + 63) & ~uintptr_t{63}));
  const CompiledKernel& k = loaded->kernel();
  double best = 1e9, spent = 0;
  for (int i = 0; i < 100 && (i < 3 || spent < 0.3); ++i) {
    const double t = Now();
    loaded->Run(buffers.data(), 0, k.tasks);
    const double seconds = Now() - t;
    spent += seconds;
    best = std::min(best, seconds);
  }
  std::printf(
      "%-26s %9.3f ms %8.1f GFLOP/s %7.1f GB/s  tasks %6ld  compile %6.1f ms  object %6zu B\n",
      name, best * 1e3, static_cast<double>(k.flops) / best / 1e9,
      static_cast<double>(k.bytes) / best / 1e9, static_cast<long>(k.tasks), compile_ms,
      k.object.size());
}

}  // namespace
}  // namespace outboard::test

int main(int argc, char** argv) {
  using namespace outboard;        // NOLINT
  using namespace outboard::test;  // NOLINT
  WarmUpCompiler();
  const auto run = [&](const std::string& name, const MakeKernel& make) {
    if (argc > 1 && name.find(argv[1]) == std::string::npos) return;
    Graph g;
    Measure(name.c_str(), make(g));
  };
  ForBenchKernels(run);
  return 0;
}
