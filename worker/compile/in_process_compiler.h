// Compiles kernels in the calling process: used inside a compile process, and instead of one in
// tests and benchmarks.
#pragma once

#include "compiler/compile.h"
#include "worker/compile/kernel_compiler.h"

namespace outboard::worker {

class InProcessCompiler final : public KernelCompiler {
 public:
  explicit InProcessCompiler(CompileOptions options = {}) : options_(std::move(options)) {}
  std::vector<absl::StatusOr<CompiledKernel>> Compile(
      std::span<const KernelSource> kernels) override;
  const Target& target() const override { return options_.target; }

 private:
  CompileOptions options_;
};

}  // namespace outboard::worker
