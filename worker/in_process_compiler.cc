#include "worker/in_process_compiler.h"

#include "compiler/ir/encoding.h"
#include "compiler/ir/uop.h"

namespace outboard::worker {

std::vector<absl::StatusOr<CompiledKernel>> InProcessCompiler::Compile(std::span<const std::string> kernels) {
  // A graph a kernel: what one kernel may hold is not spent by its neighbours.
  std::vector<std::unique_ptr<Graph>> graphs;
  std::vector<absl::StatusOr<CompiledKernel>> results(kernels.size(), absl::InternalError("not compiled"));
  std::vector<const UOp*> sinks;
  std::vector<size_t> places;
  for (size_t i = 0; i < kernels.size(); ++i) {
    graphs.push_back(std::make_unique<Graph>());
    absl::StatusOr<const UOp*> sink = DecodeGraph(*graphs.back(), kernels[i], Level::kKernel);
    if (sink.ok()) {
      sinks.push_back(*sink);
      places.push_back(i);
    } else {
      results[i] = sink.status();
    }
  }
  std::vector<absl::StatusOr<CompiledKernel>> compiled = CompileKernels(sinks, options_);
  for (size_t i = 0; i < places.size(); ++i) results[places[i]] = std::move(compiled[i]);
  return results;
}

}  // namespace outboard::worker
