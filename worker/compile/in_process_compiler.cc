#include "worker/compile/in_process_compiler.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <system_error>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/cores.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/uop.h"

namespace outboard::worker {
namespace {

// A thread's start, and its code generator the first time, cost about as much as a kernel.
constexpr size_t kKernelsPerThreadMin = 4;
constexpr size_t kThreadsMax = 16;

using Results = std::vector<absl::StatusOr<CompiledKernel>>;

absl::StatusOr<CompiledKernel> CompileOne(Compiler& compiler, const KernelSource& kernel) {
  Graph graph;  // one a kernel: what one kernel may hold is not spent by others
  OB_ASSIGN_OR_RETURN(const UOp* const sink, DecodeGraph(graph, kernel.encoding, Level::kKernel));
  if (!kernel.opts.has_value()) return compiler.Compile(sink);
  OB_ASSIGN_OR_RETURN(std::vector<codegen::Opt> opts, codegen::ParseOpts(*kernel.opts));
  return compiler.Compile(sink, std::move(opts));
}

}  // namespace

std::unique_ptr<Compiler> InProcessCompiler::Take() {
  {
    std::lock_guard lock(mutex_);
    if (!idle_.empty()) {
      std::unique_ptr<Compiler> compiler = std::move(idle_.back());
      idle_.pop_back();
      return compiler;
    }
  }
  return std::make_unique<Compiler>(options_);
}

void InProcessCompiler::GiveBack(std::unique_ptr<Compiler> compiler) {
  std::lock_guard lock(mutex_);
  if (idle_.size() < kThreadsMax) idle_.push_back(std::move(compiler));
}

Results InProcessCompiler::Compile(std::span<const KernelSource> kernels) {
  Results results(kernels.size(), absl::InternalError("not compiled"));
  size_t threads =
      std::min({kernels.size() / kKernelsPerThreadMin, kThreadsMax, UsableCores().size()});
  if (threads < 1 || options_.dump) threads = 1;  // dumps are read in order
  // The longest first, each thread the next one when it has finished one: no thread is left with a
  // long kernel at the end.
  std::vector<size_t> order(kernels.size());
  std::iota(order.begin(), order.end(), 0);
  if (threads > 1)
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      return kernels[a].encoding.size() > kernels[b].encoding.size();
    });
  std::atomic<size_t> next = 0;
  const auto work = [&] {
    std::unique_ptr<Compiler> compiler = Take();
    for (size_t i; (i = next++) < order.size();)
      results[order[i]] = CompileOne(*compiler, kernels[order[i]]);
    GiveBack(std::move(compiler));
  };
  std::vector<std::thread> others;
  others.reserve(threads);
  try {
    for (size_t t = 1; t < threads; ++t) others.emplace_back(work);
  } catch (const std::system_error&) {
    // No thread is left, or no memory for its stack: those that are there do the work.
  }
  work();
  for (std::thread& other : others) other.join();
  return results;
}

}  // namespace outboard::worker
