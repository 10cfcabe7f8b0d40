// Where an engine gets objects for kernels: a compile box (compile_box.h), or the compiler in this
// process (in_process_compiler.h: tests and benchmarks).
#pragma once

#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/codegen/compiled_kernel.h"

namespace outboard::worker {

class KernelCompiler {
 public:
  virtual ~KernelCompiler() = default;
  // Each of `kernels` is the canonical encoding of a kernel (compiler/ir/encoding.h). Results in
  // their order; one kernel's failure is its own.
  virtual std::vector<absl::StatusOr<CompiledKernel>> Compile(
      std::span<const std::string> kernels) = 0;
};

}  // namespace outboard::worker
