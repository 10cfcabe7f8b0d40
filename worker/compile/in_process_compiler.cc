#include "worker/compile/in_process_compiler.h"

#include <algorithm>
#include <memory>
#include <thread>

#include "compiler/ir/encoding.h"
#include "compiler/ir/uop.h"

namespace outboard::worker {
namespace {

// A thread's start and a code generator of its own cost about as much as a kernel.
constexpr size_t kKernelsPerThreadMin = 4;
constexpr size_t kThreadsMax = 16;

using Results = std::vector<absl::StatusOr<CompiledKernel>>;

// Kernels first, first + step, first + 2 * step ...: neighbours in a schedule are alike, so that
// each share is about as much work.
void CompileShare(std::span<const KernelSource> kernels, size_t first, size_t step,
                  const CompileOptions& options, Results& results) {
  // A graph a kernel: what one kernel may hold is not spent by its neighbours.
  std::vector<std::unique_ptr<Graph>> graphs;
  std::vector<const UOp*> sinks;
  std::vector<std::optional<std::vector<codegen::Opt>>> opts;
  std::vector<size_t> places;
  for (size_t i = first; i < kernels.size(); i += step) {
    graphs.push_back(std::make_unique<Graph>());
    const KernelSource& kernel = kernels[i];
    absl::StatusOr<const UOp*> sink = DecodeGraph(*graphs.back(), kernel.encoding, Level::kKernel);
    absl::StatusOr<std::vector<codegen::Opt>> parsed = codegen::ParseOpts(kernel.opts.value_or(""));
    if (sink.ok() && parsed.ok()) {
      sinks.push_back(*sink);
      opts.push_back(options.opts);
      if (kernel.opts.has_value()) opts.back() = *std::move(parsed);
      places.push_back(i);
    } else {
      results[i] = sink.ok() ? parsed.status() : sink.status();
    }
  }
  Results compiled = CompileKernels(sinks, options, opts);
  for (size_t i = 0; i < places.size(); ++i) results[places[i]] = std::move(compiled[i]);
}

}  // namespace

Results InProcessCompiler::Compile(std::span<const KernelSource> kernels) {
  Results results(kernels.size(), absl::InternalError("not compiled"));
  size_t threads = std::min({kernels.size() / kKernelsPerThreadMin, kThreadsMax,
                             static_cast<size_t>(std::thread::hardware_concurrency())});
  if (threads < 1 || options_.dump) threads = 1;  // dumps are read in order
  std::vector<std::thread> others;
  for (size_t t = 1; t < threads; ++t)
    others.emplace_back([&, t] { CompileShare(kernels, t, threads, options_, results); });
  CompileShare(kernels, 0, threads, options_, results);
  for (std::thread& other : others) other.join();
  return results;
}

}  // namespace outboard::worker
