// Compiles kernels in the calling process: used inside a compile process, and instead of one in
// tests and benchmarks.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "compiler/compile.h"
#include "worker/compile/kernel_compiler.h"

namespace outboard::worker {

// Threads: any.
class InProcessCompiler final : public KernelCompiler {
 public:
  explicit InProcessCompiler(CompileOptions options = {}) : options_(std::move(options)) {}
  std::vector<absl::StatusOr<CompiledKernel>> Compile(
      std::span<const KernelSource> kernels) override;
  const Target& target() const override { return options_.target; }

 private:
  std::unique_ptr<Compiler> Take();
  void GiveBack(std::unique_ptr<Compiler> compiler);

  const CompileOptions options_;
  std::mutex mutex_;
  // Kept from call to call: LLVM's description of a processor costs as much as a small kernel.
  std::vector<std::unique_ptr<Compiler>> idle_;
};

}  // namespace outboard::worker
